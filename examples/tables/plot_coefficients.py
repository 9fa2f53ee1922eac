"""
Odds ratios with intervals for a paper
======================================

A logistic regression of a table, as a paper reports it: an odds ratio for each column, with an
interval that counts both the noise that protects the rows and chance in who they are.

The first fit is private. The comparison takes a shortcut: it shows the exact fit beside it, and the
noise has a seed.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import private_coefficients
from dpsubspace.statistics import CoefficientDisplay

# %%
# A table
# -------
# 30,000 made-up patients. The schema says what is public: ranges and categories.

rng, n = np.random.default_rng(0), 30_000
frame = pd.DataFrame(
    {
        "age": rng.integers(18, 91, n),
        "ward": rng.choice(["surgery", "medicine", "other"], n, p=[0.5, 0.3, 0.2]),
        "smokes": rng.random(n) < 0.3,
    }
)
score = -4 + 0.04 * frame["age"] + 0.7 * frame["smokes"] - 0.5 * (frame["ward"] == "other")
frame["readmitted"] = rng.random(n) < 1 / (1 + np.exp(-score))
schema = {
    "age": (18, 90),
    "ward": ["surgery", "medicine", "other"],
    "smokes": [False, True],
    "readmitted": [False, True],
}

# %%
# One release
# -----------
# The first value of a category is the reference. Leave out ``random_state`` for private rows.

found = private_coefficients(frame, schema, target="readmitted", epsilon=1.0, random_state=0)
print(found)

# %%
# Beside the same without privacy
# -------------------------------
# Without noise, intervals are those of the sandwich covariance.

exact = private_coefficients(frame, schema, target="readmitted", epsilon=float("inf"))
figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), sharex=True, layout="constrained")
for ax, coefficients, title in zip(axes, (found, exact), ("epsilon 1", "exact"), strict=True):
    CoefficientDisplay.from_coefficients(coefficients, ax=ax)
    ax.set_title(title)
plt.show()
