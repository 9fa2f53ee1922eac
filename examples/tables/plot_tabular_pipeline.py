"""
From a raw table to a private model
===================================

A table of patients has numbers, categories and missing values. ``tabular_pipeline`` takes it
without preparation, together with a *schema*: what is publicly known of each column, such as the
range of ages. It encodes the columns by that and not by the rows, estimates privately what nobody
knows, and fits a model. All of it shares one epsilon and has one guarantee.

This is an honest private pipeline, charged to a ledger. The patients are simulated, and the test
rows are taken to be public.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import (
    Categories,
    DPSGDFClassifier,
    PrivacyLedger,
    PrivateRange,
    Range,
    tabular_pipeline,
)
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay

rng = np.random.default_rng(0)


def admissions(n):
    """Patients as a hospital keeps them, and whether they were admitted again."""
    patients = pd.DataFrame(
        {
            "age": rng.integers(18, 96, n),
            "income": rng.lognormal(10, 0.8, n).round(),
            "platelets": rng.normal(250, 60, n).round(),  # in thousands
            "ward": rng.choice(["A", "B", "C"], n, p=[0.5, 0.4, 0.1]),
            "smoker": rng.choice(["yes", "no"], n),
        }
    )
    patients.loc[rng.random(n) < 0.2, "platelets"] = np.nan  # not measured
    risk = ((patients["age"] - 50) / 25) ** 2 - 1 - 0.8 * np.log(patients["income"] / 22_000)
    risk += 1.0 * (patients["ward"] == "C") + 0.7 * (patients["smoker"] == "yes")
    risk += 1.0 * patients["platelets"].isna()
    return patients, rng.random(n) < 1 / (1 + np.exp(-risk))


patients, readmitted = admissions(12_000)
new_patients, new_readmitted = admissions(12_000)
print(patients.head().to_string(index=False))

# %%
# What is public?
# ---------------
# The schema comes from knowledge and never from a look at the rows. Of platelets nothing is known
# here: their range is estimated privately. A column that it did not name would be left out, with a
# warning.

schema = {
    "age": Range(18, 100),
    "income": Range(1_000, 1_000_000, log=True),
    "platelets": PrivateRange(missing=True),
    "ward": Categories(["A", "B", "C", "D"]),
    "smoker": ["yes", "no"],
}

# %%
# One call, one guarantee
# -----------------------

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = tabular_pipeline(DPSGDFClassifier(), schema, epsilon=1.0)
ledger.fit(model, patients, readmitted)
print(model.privacy_)
print(f"\nbought: platelets from {model[0].ranges_['platelets']}")
print(f"accuracy on new patients: {model.score(new_patients, new_readmitted):.3f}")

# %%
# What has it learned?
# --------------------
# Each panel shows what a column adds to the log-odds of being admitted again. The bands say how far
# the noise of the fit may have moved it. Since the weights are released, this costs nothing. The
# risk falls and rises again with age, though the model is linear: the encoding bends it.

ShapeDisplay.from_estimator(model)
plt.show()

# %%
# Which columns matter?
# ---------------------
# The bars are shares of the variance of the score: what the model uses, over all values that the
# schema allows. What noise adds to them on average is taken out, and the whiskers say where an
# importance may be in the same fit without noise. Columns that go together share their importance,
# and nothing of this is causal.

ImportanceDisplay.from_estimator(model)
plt.show()
