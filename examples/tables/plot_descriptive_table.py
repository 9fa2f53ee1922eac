"""
Table 1: how do I describe private patients?
============================================

Most papers on patients begin with a table of means and quartiles. Each of these numbers is
computed from private rows, and a few exact ones can give a person away. Here all of them are
noisy and charged to one ledger.

This is an honest private pipeline: the ranges of the columns are those that a doctor would name
without a look at the rows. Only the exact quartiles in the plot, which show how good the noisy
ones are, would have to stay at home. The 442 patients are those of scikit-learn's diabetes table.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from dpsubspace import PrivacyLedger, private_counts, private_mean, private_summary
from dpsubspace.statistics import PrivateCountsDisplay, private_covariance, private_quantile

ranges = {
    "age": (18, 90, "years"),
    "bmi": (15, 50, "kg / m²"),
    "bp": (60, 150, "mm Hg"),
    "s1": (80, 320, "mg / dl"),
}
table = load_diabetes(scaled=False, as_frame=True).data[list(ranges)]
low, high = np.array([(low, high) for low, high, _ in ranges.values()]).T

# %%
# Means and quartiles
# -------------------
# One call releases a number for each column. The ledger asks for the budget before the call
# looks at a row, and refuses calls that it cannot pay for.

ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
given = {"bounds": (low, high), "epsilon": 0.7}
mean = ledger.run(private_mean, table, **given, label="means").value
levels = (0.25, 0.5, 0.75)
quartiles = [
    ledger.run(private_quantile, table, level, **given, label=f"quantiles {level}").value
    for level in levels
]
print(f"{'':>4} {'mean':>6} {'median':>7}  {'quartiles':>14}")
for name, m, first, median, third in zip(table, mean, *quartiles, strict=True):
    print(f"{name:>4} {m:6.1f} {median:7.1f}  {first:6.1f} to {third:.1f}")

# %%
# What goes with what?
# --------------------
# A noisy covariance matrix gives all correlations at once.

covariance = ledger.run(private_covariance, table, **given, label="covariances").value
spread = np.sqrt(np.diag(covariance))
print((covariance / np.outer(spread, spread)).round(2), ledger, sep="\n\n")

# %%
# How good are they?
# ------------------
# The bars run from the first to the third quartile, with a line at the median. Noise moves them
# by a few hundredths of the range: less with more rows, and more with a wider range.

figure, panels = plt.subplots(1, 4, figsize=(10, 3.5), layout="constrained")
for i, (panel, name) in enumerate(zip(panels, table, strict=True)):
    exact = table[name].quantile(levels)
    noisy = [quartile[i] for quartile in quartiles]
    for place, (first, median, third) in enumerate((noisy, exact)):
        panel.bar(place, third - first, 0.6, bottom=first, color=f"C{place}", alpha=0.5)
        panel.hlines(median, place - 0.3, place + 0.3, color=f"C{place}", linewidth=3)
    panel.set(title=f"{name} ({ranges[name][2]})", ylim=ranges[name][:2])
    panel.set_xticks([0, 1], ["private", "exact"])
plt.show()

# %%
# All of it in one call
# ---------------------
# :func:`~dpsubspace.private_summary` splits one budget over all lines of the table, and gives each
# number an interval for the noise. :func:`~dpsubspace.private_counts` releases a histogram.

schema = {name: ends[:2] for name, ends in ranges.items()}
print(ledger.run(private_summary, table, schema, epsilon=0.7))
ages = ledger.run(private_counts, table, schema, "age", bins=[18, 30, 40, 50, 60, 90], epsilon=0.4)
PrivateCountsDisplay.from_counts(ages)
plt.show()
