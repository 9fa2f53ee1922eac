"""
What do a hundred public rows add to a private fit?
===================================================

A few people have agreed to show their rows, with or without labels, and the others have not.
``GEPClassifier`` uses the public rows to see which directions matter, and their labels to begin
the fit somewhere better than at zero. None of that costs privacy.

The fits are private. The plot takes shortcuts: it makes many fits with seeds; the public rows
are drawn at random from the same table, which is the best case; and the test rows are taken to be
public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from dpsubspace import DPSGDFClassifier, GEPClassifier, PrivacyLedger, PrivacyWarning

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
X, X_public, y, y_public = train_test_split(X, y, test_size=100, random_state=0)

# %%
# One private model
# -----------------
# Public rows are passed as tuples, because cross-validation slices any other argument that
# happens to be as long as the private rows.

ledger = PrivacyLedger(epsilon=0.5, delta=1e-5)
model = GEPClassifier(epsilon=0.5)
ledger.fit(model, X, y, X_public=(X_public,), y_public=(y_public,))
print(ledger)
print(f"\n{model.n_components_} directions, accuracy {model.score(X_test, y_test):.3f}")

# %%
# With labels, without labels, and without public rows
# ----------------------------------------------------
# Always look at a model of the public rows alone as well: it costs nothing. Where epsilon is small
# it may be the best; where epsilon is large, public rows add little to what the private ones say.

warnings.simplefilter("ignore", PrivacyWarning)  # small budgets are mostly noise, and say so
epsilons, seeds = (0.1, 0.3, 1, 3), range(3)
methods = {
    "100 public rows with labels": (
        GEPClassifier,
        {"X_public": (X_public,), "y_public": (y_public,)},
    ),
    "100 public rows": (GEPClassifier, {"X_public": (X_public,)}),
    "no public rows": (DPSGDFClassifier, {}),
}
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, (Model, given) in methods.items():
    scores = [
        [
            Model(epsilon=epsilon, random_state=seed).fit(X, y, **given).score(X_test, y_test)
            for seed in seeds
        ]
        for epsilon in epsilons
    ]
    mean, spread = np.mean(scores, axis=1), np.std(scores, axis=1)
    axes.plot(epsilons, mean, marker="o", label=name)
    axes.fill_between(epsilons, mean - spread, mean + spread, alpha=0.2)
    print(f"{name:>27}:", *(f"{m:.3f}" for m in mean))
alone = LogisticRegression(max_iter=1000).fit(X_public / 16, y_public)
axes.axhline(alone.score(X_test / 16, y_test), color="grey", ls="--", label="public rows alone")
axes.set(xscale="log", xlabel="epsilon (delta = 1e-5)", ylabel="accuracy on test rows")
axes.set_xticks(epsilons, epsilons)
axes.minorticks_off()
axes.legend()
plt.show()
