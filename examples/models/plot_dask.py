"""
Rows in many files: fitting on a Dask cluster
=============================================

A table that is too large for the memory of one machine can be read by many, from many files.
``fit`` takes Dask data frames as it takes those of pandas. Each worker adds up its own rows, and
noise is added once, to the total. So the promise is the same as in memory, and so is the model.

Each fit is an honest private pipeline, and would have to be charged if it were one of several on
the same rows, as here. Scores and single rows that are shown are not private. The rows are
simulated. This example needs the extra ``dask``.
"""

import tempfile

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from dask.distributed import Client
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from dpsubspace import BoundedScaler, DPLinearRegression, DPSGDFClassifier

COLUMNS = ["age", "creatinine", "haemoglobin", "pressure", "visits"]
LOW, HIGH = np.array([18, 20, 50, 70, 0]), np.array([95, 400, 200, 220, 30])


def stays(n, seed):
    """Simulate stays in a hospital: how long each was, and whether the patient came back."""
    rng = np.random.default_rng(seed)
    X = LOW + (HIGH - LOW) * rng.beta(2, 3, size=(n, 5))
    effect = (X - LOW) / (HIGH - LOW) @ [4, 3, -2, 1, 2]
    days = np.clip(effect + rng.normal(0, 2, n) + 4, 0, 30)
    readmitted = effect + rng.logistic(0, 0.7, n) > 3.2
    return pd.DataFrame(X, columns=COLUMNS).assign(days=days, readmitted=readmitted)


# %%
# A cluster, and rows in files
# ----------------------------
# ``Client()`` starts workers as processes, and ``Client("tcp://scheduler:8786")`` connects to a
# cluster that is there. Here the two workers are threads of this process: processes would need
# ``if __name__ == "__main__":`` around all of this script.

client = Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0")
folder = tempfile.mkdtemp()
for i in range(16):
    stays(4000, seed=i).to_parquet(f"{folder}/stays{i:02}.parquet")
rows = dd.read_parquet(folder)
test = stays(20_000, seed=99)

# %%
# The same model as in memory
# ---------------------------
# With a seed, both fits draw the same noise, so that their weights can be compared: they differ
# by rounding at most. Leave ``random_state`` out where the rows are private.

scaler = BoundedScaler(bounds=(LOW, HIGH))
model = make_pipeline(scaler, DPSGDFClassifier(epsilon=1.0, random_state=0))
model.fit(rows[COLUMNS], rows["readmitted"])
on_cluster = model[-1].coef_
print(model[-1].privacy_)
in_memory = rows.compute()  # what one could not do with rows that are too many
model.fit(in_memory[COLUMNS], in_memory["readmitted"])
print(f"largest difference of a weight: {np.abs(model[-1].coef_ - on_cluster).max():.1e}")

# %%
# Predictions are lazy
# --------------------
# They are Dask arrays. Nothing is read before they are computed or written to files. ``score``
# computes, and gives a number.

rows["risk"] = model.predict_proba(rows[COLUMNS])[:, 1]
rows.to_parquet(f"{folder}/with_risk")
print(dd.read_parquet(f"{folder}/with_risk")[["age", "visits", "risk"]].head(3).round(2))
print(f"accuracy: {model.score(rows[COLUMNS], rows['readmitted']):.3f}")

# %%
# How much more files help
# ------------------------
# The noise in a total stays the same, however many rows there are. So its share gets smaller
# with each file, and a small epsilon is enough. The scores are of rows that no fit has seen.

n_files, scores = [1, 2, 4, 8, 16], []
for part in (rows.partitions[:k] for k in n_files):  # a partition is a file
    regression = DPLinearRegression(epsilon=0.03, target_bounds=(0, 30))
    regression.fit(part[COLUMNS], part["days"])
    scores.append(regression.score(test[COLUMNS], test["days"]))
model = LinearRegression().fit(in_memory[COLUMNS], in_memory["days"])
limit = model.score(test[COLUMNS], test["days"])

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot(4000 * np.array(n_files), scores, marker="o", label="DPLinearRegression, epsilon 0.03")
axes.axhline(limit, color="grey", linestyle="--", label="without privacy, all rows")
axes.set(xlabel="rows", ylabel="R2")
axes.legend()
client.close()
plt.show()
