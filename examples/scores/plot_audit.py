"""
Can the promise be refuted? An attack
=====================================

``audit_estimator`` plays the attacker. It plants made-up rows among the others, tosses a coin for
each of them to decide whether it takes part, fits, and guesses from the fitted model how the coins
fell. Epsilon says how often such guesses can be right, so that too many right guesses refute it.

An audit is a test of the software and not a private computation: use public or made-up rows, as
here. It can find a bug and never prove that there is none.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpsubspace import DPSGDClassifier, DPSGDRegressor, GEPClassifier, private_mean
from dpsubspace.audit import AuditDisplay, AuditResult, audit_epsilon, audit_estimator

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = (X.sum(axis=1) > 0).astype(int)

# %%
# One audit
# ---------
# 500 rows are planted, and the 250 that show the most are guessed about.

result = audit_estimator(DPSGDClassifier(epsilon=4.0, delta=1e-5), X, y)
print(result)

# %%
# What would a bug look like?
# ---------------------------
# Somebody forgets to add the noise, and nearly all guesses are right. ``audit_epsilon`` takes the
# guesses of any attack, also on other software. These guesses are made up.

found = audit_epsilon(500, 250, 249, delta=1e-5)
made_up = {"n_canaries": 500, "n_guesses": 250, "n_correct": 249}
bug = AuditResult(
    epsilon_lower_bound=found, epsilon_claimed=1.0, delta=1e-5, confidence=0.95, **made_up
)
print(f"249 of 250 guesses right: epsilon is at least {found:.2f}, which refutes a claim of 1")

# %%
# Several audits, compared with their claims
# ------------------------------------------
# A bar ends at the bound that the attack has shown, and the vertical mark is the claim. A bar that
# crosses its mark refutes the claim. An open circle shows how far the bar could have come if all
# guesses had been right. Where no bar is to be seen, the attack has shown nothing at all. By bad
# luck a right claim is refuted in one audit out of twenty at most.

audits = {
    "private_mean, epsilon 1": private_mean,
    "DPSGDRegressor, epsilon 1": DPSGDRegressor(delta=1e-5),
    "DPSGDClassifier, epsilon 1": DPSGDClassifier(delta=1e-5),
    "DPSGDClassifier, epsilon 4": result,
    "GEPClassifier, epsilon 4": GEPClassifier(epsilon=4.0, delta=1e-5),
    "noise forgotten, epsilon 1": bug,
}
results = [
    each if isinstance(each, AuditResult) else audit_estimator(each, X, y)
    for each in audits.values()
]
figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
AuditDisplay.from_results(results, names=list(audits), ax=axes)
plt.show()
