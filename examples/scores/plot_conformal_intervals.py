"""
How wrong may a prediction be?
==============================

``DPConformalRegressor`` puts an interval around the predictions of any fitted model, such that it
holds the truth in nine of ten cases, say, whatever the model is worth. It learns how wide that is
from private rows that were held out, and the promise counts the noise.

The first part is an honest private pipeline: the model and the intervals pay for rows of their own.
The plot on the right takes a shortcut: it makes many fits with seeds. The rows are simulated,
and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpsubspace import DPLinearRegression, PrivacyLedger, PrivacyWarning
from dpsubspace.calibration import DPConformalRegressor

rng = np.random.default_rng(0)


def visits(n):
    """Age, weeks since the last visit, and days in hospital."""
    X = np.column_stack([rng.uniform(20, 90, n), rng.uniform(0, 52, n)])
    return X, 2 + 0.2 * X[:, 0] - 0.05 * X[:, 1] + rng.laplace(0, 2, n)


X, y = visits(3000)
X_held_out, y_held_out = visits(8000)
X_test, y_test = visits(5000)
days = (0, 60)  # of the stay: public

# %%
# One private model and its intervals
# -----------------------------------
# No row is in both tables, so each has a ledger of its own.

model = DPLinearRegression(epsilon=1.0, target_bounds=days)
PrivacyLedger(epsilon=1.0, delta=1e-5).fit(model, X, y)
held_out = PrivacyLedger(epsilon=0.5, delta=1e-5)
intervals = DPConformalRegressor(model, confidence_level=0.9, target_bounds=days, epsilon=0.5)
held_out.fit(intervals, X_held_out[:1000], y_held_out[:1000])


def coverage(fitted):
    """How often the intervals hold the truth, on test rows."""
    low, high = fitted.predict_interval(X_test).T
    return np.mean((low <= y_test) & (y_test <= high))


print(f"plus or minus {intervals.half_width_:.1f} days, which hold {coverage(intervals):.1%}")
print(f"promised on average: {intervals.expected_coverage_:.1%}\n\n{held_out}")

# %%
# How many rows does it take?
# ---------------------------
# The fewer rows and the smaller epsilon, the wider intervals have to be to keep the promise, which
# they do in all cases. Below about 200 rows at epsilon 0.5 they would be as wide as the range of
# the target, and nothing is spent.

warnings.simplefilter("ignore", PrivacyWarning)  # few rows make wide intervals, and it says so
sizes, seeds = (500, 1000, 2000, 4000, 8000), range(20)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
order = np.argsort(X_test[:300, 0])
low, high = intervals.predict_interval(X_test[:300][order]).T
inside = (low <= y_test[:300][order]) & (y_test[:300][order] <= high)
age = X_test[:300, 0][order]
left.vlines(age, low, high, color="C0", alpha=0.15)
left.plot(age[inside], y_test[:300][order][inside], ".", color="C0", label="inside")
left.plot(age[~inside], y_test[:300][order][~inside], "x", color="C3", label="outside")
left.set(xlabel="age", ylabel="days in hospital", title="intervals of 300 test rows")
left.legend()
for epsilon in (0.5, 2.0, float("inf")):
    widths = []
    for n in sizes:
        given = {"target_bounds": days, "epsilon": epsilon}
        found = []
        for seed in seeds:
            some = rng.choice(len(X_held_out), n, replace=False)
            fit = DPConformalRegressor(model, **given, random_state=seed)
            found.append(fit.fit(X_held_out[some], y_held_out[some]).half_width_)
        widths.append(np.mean(found))
    name = f"epsilon {epsilon:g}" if epsilon < 10 else "not private"
    right.plot(sizes, widths, marker="o", label=name)
    print(f"{name:>11}:", *(f"{width:.1f}" for width in widths))
right.set(xscale="log", xlabel="held-out rows", ylabel="plus or minus so many days")
right.set_xticks(sizes, sizes)
right.minorticks_off()
right.legend()
plt.show()
