"""
A person with many rows: whom does epsilon protect?
===================================================

Without further word the promise is about one row. Who has ten rows in the table is protected ten
times less, since epsilon counts ten times. ``groups=`` says whose each row is, and the
promise is then about all rows of a person together, however many these are.

The fits are private. The comparison takes shortcuts: it makes many fits with seeds, the persons
are made up by dealing out the rows, and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dpsubspace import DPSGDFClassifier, PrivacyLedger, PrivacyWarning

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)

# %%
# One private model of persons
# ----------------------------
# As if there were three rows of everybody. A ledger of persons refuses a fit without ``groups``.

persons = np.arange(len(X)) // 3
ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, unit="person")
model = ledger.fit(DPSGDFClassifier(epsilon=1.0), X, y, groups=persons)
print(model.privacy_)
print(f"\naccuracy on test rows: {model.score(X_test, y_test):.3f}")

# %%
# What does it cost?
# ------------------
# All fits see the same 1,437 rows, which belong to fewer persons the farther right. With
# ``groups``, what counts is the number of persons. Without, accuracy stays where it was, but
# what is promised to a person is an epsilon of so many times 1, which is soon next to nothing.

warnings.simplefilter("ignore", PrivacyWarning)  # few persons are mostly noise, and it says so
rows_each, seeds = (1, 3, 8, 20), range(2)
fits = [DPSGDFClassifier(epsilon=1.0, random_state=seed).fit(X, y) for seed in seeds]
with_groups, without = [], [[fit.score(X_test, y_test) for fit in fits]] * len(rows_each)
for each in rows_each:
    persons = np.arange(len(X)) // each
    fits = [fit.fit(X, y, groups=persons) for fit in fits]
    with_groups.append([fit.score(X_test, y_test) for fit in fits])
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, scores in (("with groups", with_groups), ("without groups", without)):
    mean, spread = np.mean(scores, axis=1), np.std(scores, axis=1)
    axes.plot(rows_each, mean, marker="o", label=name)
    axes.fill_between(rows_each, mean - spread, mean + spread, alpha=0.2)
    print(f"{name:>14}:", *(f"{m:.3f}" for m in mean))
for each, with_them, scores in zip(rows_each, with_groups, without, strict=True):
    offsets = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
    axes.annotate("ε = 1", (each, np.mean(with_them)), (0, -14), **offsets)
    axes.annotate(f"ε = {each}", (each, np.mean(scores)), (0, 8), **offsets)
axes.set(xscale="log", xlabel="rows of each person", ylabel="accuracy on test rows")
axes.set(ylim=(0.4, 1.0), title="label of each point: the epsilon of a person")
axes.set_xticks(rows_each, rows_each)
axes.minorticks_off()
axes.legend()
plt.show()
