"""
My columns are in different units: what may a scaler know?
==========================================================

Classifiers divide every row by its length, so columns must be brought to one size first: else a
column in hundreds hides one in thousandths. ``StandardScaler`` would publish exact means of the
private rows. ``BoundedScaler`` takes ranges that are public, or estimates them from the rows with a
part of the budget.

The first fit is an honest private pipeline, charged to a ledger. The plot takes shortcuts:
it makes many fits with seeds, its public ranges are those that the description of this data set
prints, and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from dpsubspace import BoundedScaler, DPSGDFClassifier, PrivacyLedger, PrivacyWarning

X, y = load_breast_cancer(return_X_y=True)
public = (X.min(axis=0), X.max(axis=0))  # as in the description of the data set
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

# %%
# One private model with estimated ranges
# ---------------------------------------
# Both steps look at the rows, and both are charged. ``share_budget`` would share one epsilon
# between them.

ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
model = make_pipeline(BoundedScaler(epsilon=0.8), DPSGDFClassifier(epsilon=1.5))
ledger.fit(model, X, y)
print(ledger)
low, high = model[0].data_min_, model[0].data_max_
print(f"\nrange of the first column, with noise: {low[0]:.1f} to {high[0]:.1f}")
print(f"accuracy on test rows: {model.score(X_test, y_test):.3f}")

# %%
# What are public ranges worth?
# -----------------------------
# All three ways cost the same epsilon. Ranges of 30 columns are dear for a table of 398 rows:
# whatever is known of a column need not be estimated. But even estimated ranges are better than no
# scaling.

warnings.simplefilter("ignore", PrivacyWarning)  # small budgets are mostly noise, and say so
epsilons, seeds = (0.3, 1, 3, 10), range(5)


def model_of(bounds, epsilon, seed):
    """A classifier behind a scaler. The epsilons of two steps add up nearly like squares."""
    if bounds is None:
        return DPSGDFClassifier(epsilon=epsilon, random_state=seed)
    estimated = isinstance(bounds, str)
    scaler = BoundedScaler(bounds, epsilon=0.4 * epsilon, random_state=seed)
    epsilon = 0.88 * epsilon if estimated else epsilon
    return make_pipeline(scaler, DPSGDFClassifier(epsilon=epsilon, random_state=seed))


figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, bounds in (
    ("public ranges", public),
    ("estimated ranges", "private"),
    ("no scaling", None),
):
    scores = [
        [model_of(bounds, epsilon, seed).fit(X, y).score(X_test, y_test) for seed in seeds]
        for epsilon in epsilons
    ]
    mean, spread = np.mean(scores, axis=1), np.std(scores, axis=1)
    axes.plot(epsilons, mean, marker="o", label=name)
    axes.fill_between(epsilons, mean - spread, mean + spread, alpha=0.2)
    print(f"{name:>13}:", *(f"{m:.3f}" for m in mean))
axes.set(xscale="log", xlabel="epsilon (delta = 1e-5)", ylabel="accuracy on test rows")
axes.set_xticks(epsilons, epsilons)
axes.minorticks_off()
axes.legend()
plt.show()
