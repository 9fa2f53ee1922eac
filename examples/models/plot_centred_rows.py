"""
DPSGDFClassifier or DPSGDClassifier: how much does the private mean help?
=========================================================================

Both classifiers divide every row by its length, so that no row can change the model by much.
Rows that have something in common, such as a bright background or columns that are always
positive, are then close to each other, and hard to distinguish. ``DPSGDFClassifier`` pays for a
noisy mean of the rows with a part of its budget, and trains on what is left when the mean is taken
off.

The fits are private. The comparison takes shortcuts: it makes many fits with seeds, where an
honest project makes one and charges it. The rows are simulated, and the test rows are taken to
be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, PrivacyWarning


def table(n, columns, offset, seed=0):
    """Two classes of rows that differ by two units, and lie `offset` away from zero."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, columns))
    X[:, 0] += np.where(y == 1, 1.0, -1.0)
    X[:, 1] += offset
    return X, y


# %%
# What goes wrong without it?
# ---------------------------
# On the left are rows as they come, and on the right the same rows divided by their lengths.
# Nothing is lost, but the differences of the classes have become small compared with what they
# share.

X, y = table(400, 2, offset=8.0)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for label in (0, 1):
    rows = X[y == label]
    left.scatter(*rows.T, s=12, label=f"class {label}")
    right.scatter(*(rows / np.linalg.norm(rows, axis=1, keepdims=True)).T, s=12)
left.plot(0, 0, "k+", markersize=12, label="zero")
right.plot(0, 0, "k+", markersize=12)
left.set(title="rows as they come", xlabel="first column", ylabel="second column")
right.set(title="rows divided by their length", xlabel="first column", xlim=(-0.7, 0.7))
left.legend()
plt.show()

# %%
# How much does it matter?
# ------------------------
# 1,000 rows of 20 columns at epsilon 0.3. Where rows lie about zero already, the mean is not
# needed, and what it costs hardly shows. The farther they are, the more it gains. Far beyond the
# spread of the rows no mean is exact enough: subtract a public constant from such columns.

warnings.simplefilter("ignore", PrivacyWarning)  # far from zero noise hides the classes
offsets, seeds = (1, 2, 4, 8, 16, 32, 64), range(5)
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for Classifier in (DPSGDClassifier, DPSGDFClassifier):
    scores = []
    for offset in offsets:
        X, y = table(1000, 20, offset)
        test = table(5000, 20, offset, seed=1)
        fits = [Classifier(epsilon=0.3, random_state=seed).fit(X, y) for seed in seeds]
        scores.append([fit.score(*test) for fit in fits])
    mean, spread = np.mean(scores, axis=1), np.std(scores, axis=1)
    axes.plot(offsets, mean, marker="o", label=Classifier.__name__)
    axes.fill_between(offsets, mean - spread, mean + spread, alpha=0.2)
    print(f"{Classifier.__name__:>16}:", *(f"{m:.3f}" for m in mean))
axes.axhline(0.841, color="grey", linestyle="--", label="best possible")
axes.set(xscale="log", xlabel="distance of the rows' mean from zero")
axes.set(ylabel="accuracy on test rows")
axes.set_xticks(offsets, offsets)
axes.minorticks_off()
axes.legend()
plt.show()
