"""
GradientDirections: how much does the residual help?
====================================================

Gradient embedding perturbation (Yu et al., 2021) splits each gradient in two. One part lies along a
few directions of public gradients, and the other part is the residual. Both get noise of their
own. Without the residual, nothing is learned off the directions; with it, noise enters there as
well. Which is better depends on how much noise there is and on the number of directions.

The first fit is an honest private pipeline, but for one shortcut: the 100 public rows are drawn
from the digits themselves. The plot takes two more: it makes many fits with seeds, and the test
rows are taken to be public. Labels of public rows are not used.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dpsubspace import DPSGDFClassifier, GEPClassifier, PrivacyWarning
from dpsubspace.linear_model import GradientDirections

warnings.simplefilter("ignore", PrivacyWarning)  # at 0.1 noise outweighs signal, and it says so
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
X, public, y, _ = train_test_split(X, y, test_size=100, random_state=0)

# %%
# One fit
# -------
# It uses 50 directions of public gradients with random labels, which are drawn anew at every step.

model = GEPClassifier(epsilon=1.0, directions=GradientDirections(n_components=50))
model.fit(X, y, X_public=(public,))
print(model.privacy_)

# %%
# With and without the residual
# -----------------------------
# Each point is the mean of two fits. "auto" is the default of linear models: it takes directions of
# public rows in place of gradients, as many as stand out of the noise, and no residual.

epsilons, counts, seeds = (0.1, 3.0), (5, 20, 50), range(2)


def accuracy(Model, **options):
    """Mean accuracy over seeds."""
    public_rows = {"X_public": (public,)} if Model is GEPClassifier else {}
    fits = (Model(random_state=seed, **options).fit(X, y, **public_rows) for seed in seeds)
    return np.mean([fit.score(X_test, y_test) for fit in fits])


figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharex=True)
for epsilon, panel in zip(epsilons, panels, strict=True):
    for residual, name in ((True, "with residual"), (False, "without (B-GEP)")):
        directions = [GradientDirections(n_components=k, residual=residual) for k in counts]
        scores = [accuracy(GEPClassifier, epsilon=epsilon, directions=each) for each in directions]
        panel.plot(counts, scores, marker="o", label=name)
        print(f"epsilon {epsilon:>4}, {name:>15}:", *(f"{s:.3f}" for s in scores))
    for Model, name, style in (
        (GEPClassifier, 'directions of rows ("auto")', "-"),
        (DPSGDFClassifier, "no public rows", "--"),
    ):
        score = accuracy(Model, epsilon=epsilon)
        panel.axhline(score, color="grey", linestyle=style, label=name)
        print(f"epsilon {epsilon:>4}, {name}: {score:.3f}")
    panel.set(title=f"epsilon {epsilon}", xlabel="directions of gradients")
panels[0].set_ylabel("accuracy on test rows")
panels[-1].legend(loc="lower right")

plt.show()
