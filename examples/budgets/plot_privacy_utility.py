"""
How many rows, and which epsilon?
=================================

How good will a private model be? Nobody may try that on the private rows, since every trial is
charged. ``PrivacyUtilityDisplay`` tries it on rows that are public: of an earlier study, of
another place, or made up to be as hard as yours will be.

Nothing here is private, and nothing has to be: all rows are made up.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from dpsubspace import DPSGDFClassifier, PrivacyWarning
from dpsubspace.metrics import PrivacyUtilityDisplay

X, y = make_classification(
    *(12_000, 20),
    **{"n_informative": 6, "n_redundant": 4, "class_sep": 0.8, "flip_y": 0.05, "random_state": 0},
)
X_test, y_test = X[8000:], y[8000:]

# %%
# Three sizes of a study
# ----------------------
# Each line is the mean of five fits and its band their standard deviation: how much is luck.
# The dashed lines are without privacy. Twice as many rows are about as good as twice the epsilon.

warnings.simplefilter("ignore", PrivacyWarning)  # small budgets are mostly noise, and say so
figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for n in (500, 2000, 8000):
    display = PrivacyUtilityDisplay.from_estimator(
        *(DPSGDFClassifier(), X[:n], y[:n]),
        **{"X_test": X_test, "y_test": y_test, "scoring": "roc_auc"},
        epsilons=(0.1, 0.3, 1, 3, 10, float("inf")),
        chance_level=0.5 if n == 500 else None,
        name=f"{n:,} rows",
        ax=axes,
    )
    print(f"{n:>5} rows:", *(f"{scores.mean():.3f}" for scores in display.scores))
plt.show()
