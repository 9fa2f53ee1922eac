"""
From a census table to a two-page result
========================================

What a paper reports of a table: who is in it (Table 1), odds ratios with their intervals, and how
well a model predicts, also for each sex. All of it is released with noise and charged to one
ledger, and a report says what the whole has cost.

This is an honest private pipeline. Its rows are made up, in the form of the public-use extract of
the 1994 census of the United States (Adult): as many rows, the same columns, and shares, means and
odds like those of that table. Read your own file in place of the next cell.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import (
    Categories,
    DPSGDFClassifier,
    PrivacyLedger,
    privacy_report,
    private_coefficients,
    private_score,
    private_summary,
    tabular_pipeline,
)
from dpsubspace.metrics import PrivateRocCurveDisplay
from dpsubspace.statistics import CoefficientDisplay

rng, n = np.random.default_rng(1994), 48_842
man, u = rng.random(n) < 0.67, rng.random(n)
people = pd.DataFrame({"sex": np.where(man, "male", "female")})
edges = np.where(man, 0.12, 0.40), np.where(man, 0.73, 0.55)
status = np.digitize(u - edges[0], [0]) + np.digitize(u - edges[1], [0])
people["marital"] = np.array(["formerly married", "married", "never married"])[status]
people["age"] = np.clip(rng.normal(np.array([45, 43, 28])[status], 12), 17, 90).round()
people["education"] = np.clip(rng.normal(10, 2.6, n), 1, 16).round()  # in steps, 13 a bachelor's
people["hours"] = np.clip(rng.normal(np.where(man, 42, 36), 12), 1, 99).round()  # a week
people["work"] = rng.choice(["private", "government", "self-employed"], n, p=[0.75, 0.13, 0.12])
people.loc[rng.random(n) < 0.06, "work"] = None  # did not say
odds = -8.8 + 0.03 * people["age"] + 0.36 * people["education"] + 0.03 * people["hours"]
odds += np.array([0, 2.1, -0.5])[status] + 0.15 * man
people["income"] = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), "above 50,000", "up to 50,000")

# %%
# What is public
# --------------
# Ranges and categories are those of the code book, and none is read from the rows. Numbers beyond a
# range count as its end. The first category of each list is the reference of odds ratios.

schema = {
    "sex": ["female", "male"],
    "age": (17, 90),
    "education": (1, 16),
    "marital": ["never married", "married", "formerly married"],
    "work": Categories(["private", "government", "self-employed"], missing=True),
    "hours": (1, 99),
    "income": ["up to 50,000", "above 50,000"],
}
ledger = PrivacyLedger(epsilon=2.0, delta=1e-6)  # for all that follows

# %%
# Page 1: who is in the table
# ---------------------------
# Each row is another person. Intervals are for noise alone: they cover the numbers of these rows.

with ledger:
    summary = private_summary(people, schema, by="sex", epsilon=0.6)
print(summary)
print(summary.compare("hours", "male", "female", population=True))

# %%
# Page 2: what goes with a high income
# ------------------------------------
# These intervals count the noise and chance in who was drawn, as those of a paper do. Odds ratios
# are for ten years of age, a step of education and ten hours a week more. Marital status and work
# may lie between sex and income and are left out; the rest is complete, so that all persons are in
# it. Men and women are not quite as many as on page 1: each table has its own noise. The score is
# of rows that the model has not seen, the last quarter, which is like the others.

regression = {name: schema[name] for name in ("sex", "age", "education", "hours", "income")}
inputs = {name: kind for name, kind in schema.items() if name != "income"}
fitted, held_out = people[: 3 * n // 4], people[3 * n // 4 :]
with ledger:
    tens = {"age": 10, "hours": 10}
    ratios = private_coefficients(people, regression, "income", units=tens, epsilon=0.8)
    model = tabular_pipeline(DPSGDFClassifier(), inputs, epsilon=0.8)
    model.fit(fitted[list(inputs)], fitted["income"])
    auc = private_score(
        model, held_out[list(inputs)], held_out["income"], metric="roc_auc", by="sex", epsilon=0.3
    )
print(ratios, auc, sep="\n\n")
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
CoefficientDisplay.from_coefficients(ratios, ax=axes[0])
PrivateRocCurveDisplay.from_released(auc, ax=axes[1])
# Four releases of epsilon 0.6, 0.8, 0.8 and 0.3 cost less together than their sum, 2.5.
report = privacy_report(ledger, curator="Census office (made up)", use="a paper on incomes")
print(report.verdict)  # report.to_html("report.html") is the page that is filed with the paper
plt.show()
