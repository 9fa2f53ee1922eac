"""
A table in several units: bounds that are public, and bounds that are bought
=============================================================================

Rows are normalised one by one before they are learned from, so columns must be of one size
first. Three ways: no scaling; bounds from the private rows, paid for out of the same budget;
bounds from public knowledge, for free.

Census incomes (Adult) where the environment variable DPSUBSPACE_DATA names a folder that has
``adult.npz``, breast cancer else. Public are: the codes of the categories, the number of rows,
and the ranges of the columns where they are said to be (the codebook of the census, or the
description of the data set). The test rows are taken to be public.
"""

import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from dpsubspace import BoundedScaler, DPSGDClassifier, PrivacyLedger, PrivacyWarning

archive = Path(os.environ.get("DPSUBSPACE_DATA", "")) / "adult.npz"
if archive.exists():
    with np.load(archive) as adult:
        used = [i for i, name in enumerate(adult["num_names"]) if name != "fnlwgt"]
        sizes = [len(adult[f"levels_{name}"]) for name in adult["cat_names"]]
        parts = []
        for part in ("train", "test"):
            codes = zip(sizes, adult[f"{part}_cat"].T, strict=True)
            onehot = [np.eye(size)[code] for size, code in codes]
            parts += [np.hstack([adult[f"{part}_num"][:, used], *onehot]), adult[f"{part}_y"]]
    X, y, X_test, y_test = parts
    X, y, data = X[:10_000], y[:10_000], "Adult, 10,000 rows"
    # Age, years of education, capital gain and loss, hours a week, by the codebook.
    public = ([17, 1, 0, 0, 1], [90, 16, 99_999, 4_356, 99])
else:
    X, y = load_breast_cancer(return_X_y=True)
    public, data = (X.min(axis=0), X.max(axis=0)), "Breast cancer, 398 rows"
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
numbers = list(range(len(public[0])))


def pipeline(bounds, epsilon, seed=None):
    """Scaled numbers, other columns as they are, then a classifier; `epsilon` for both."""
    steps, share = [], 0.82 if isinstance(bounds, str) else 1.0
    if bounds is not None:
        # Costs add up nearly like squares: 0.5 and 0.82 make less than 1 (the ledger knows).
        scaler = BoundedScaler(bounds, row_norm=None, epsilon=0.5 * epsilon, random_state=seed)
        columns = (scaler, numbers)
        steps = [make_column_transformer(columns, remainder="passthrough", sparse_threshold=0)]
    return make_pipeline(*steps, DPSGDClassifier(epsilon=share * epsilon, random_state=seed))


# %%
# One private model: the ledger charges the scaler and the classifier.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = ledger.fit(pipeline("private", 1.0), X, y, label=data)
print(ledger)
scaler = model[0].transformers_[0][1]
print(f"bounds of the first column: {scaler.data_min_[0]:g} to {scaler.data_max_[0]:g}")
print(f"test accuracy {model.score(X_test, y_test):.3f}\n")

# %%
# The same at many budgets, for the picture only: were these rows really private, every fit
# would have to be charged.

warnings.simplefilter("ignore", PrivacyWarning)  # small budgets are mostly noise
epsilons, seeds = [0.1, 0.3, 1, 3], range(3)
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for bounds, label in (
    (None, "no scaling"),
    ("private", "bought bounds"),
    (public, "public bounds"),
):
    scores = [
        [pipeline(bounds, epsilon, seed).fit(X, y).score(X_test, y_test) for seed in seeds]
        for epsilon in epsilons
    ]
    mean = np.mean(scores, axis=1)
    axes.plot(epsilons, mean, marker="o", label=label)
    print(f"{label:<14}", " ".join(f"{e:g}: {m:.3f} " for e, m in zip(epsilons, mean, strict=True)))
axes.set(xscale="log", xlabel="epsilon (delta = 1e-5)", ylabel="test accuracy", title=data)
axes.legend()

plt.show()
