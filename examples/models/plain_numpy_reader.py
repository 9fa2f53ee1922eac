"""
Predict from a saved model without this package
===============================================

``model.to_json("model.json")`` writes a fitted model as JSON; ``docs/saving_models.md`` says what
is in it. The functions below read a private classifier of a table from such a file and predict with
NumPy alone, as a service could that must not install anything else. They know of ranges,
categories, dates, missing values, logarithmic scales from 0 on, and pairs of columns.
"""

import json

import numpy as np


def array(part):
    """Read an array: an object with its type, shape and entries."""
    return np.array(part["values"], dtype=part["type"]).reshape(part["shape"])


def place(x, low, high, log):
    """Put numbers on their range, from 0 to 1."""
    u = (np.clip(x, low, high) - low) / (high - low)
    steep = high / low - 1 if low > 0 and high / low > 10 else 1000.0
    return np.log1p(steep * u) / np.log1p(steep) if log else u


def days(dates):
    """Count days since 1970-01-01: NaN where a date is missing."""
    found = np.asarray(dates, dtype="datetime64[D]")
    return np.where(np.isnat(found), np.nan, found.astype(float))


def calendar(x):
    """Mark the months of days and then the weekdays, January and Monday first."""
    dates = np.where(np.isnan(x), 0, x).astype("datetime64[D]")
    months, weekdays = dates.astype("datetime64[M]").astype(int) % 12, (x + 3) % 7
    months = np.where(np.isnan(x), -1, months)
    return [months == np.arange(12)[:, None], weekdays == np.arange(7)[:, None]]


def encoded(columns, encoding):
    """Encode columns of a table, by their names, as rows of features."""
    kinds = {kind["name"]: kind for kind in encoding["schema"]["columns"]}
    numbers = [name for name, kind in kinds.items() if kind["kind"] != "categories"]
    others, shrunk = [name for name in kinds if name not in numbers], 1 - 2.0**-22
    pairs = [(a, b) for i, a in enumerate(numbers) for b in numbers[i + 1 :]] * encoding["pairs"]
    dates = [name for name in numbers if kinds[name]["kind"] == "date"]
    weight = 4 * len(numbers) + len(others) + 2 * len(dates)
    unit = shrunk * ((0.7 if pairs else 1) / weight) ** 0.5
    j = np.arange(1, encoding["n_curves"] + 1)
    sizes = 2 * unit * j ** -encoding["decay"] / np.linalg.norm(j ** -encoding["decay"])
    curves, gaps, flags, values, empty = {}, [], [], [], []
    for name in numbers:
        x = days(columns[name]) if name in dates else np.asarray(columns[name], dtype=float)
        u = place(x, *encoding["ranges"][name], kinds[name].get("log"))
        flags += calendar(np.clip(x, *encoding["ranges"][name])) if name in dates else []
        curves[name] = np.where(np.isnan(x), 0, np.cos(np.pi * np.outer(j, u)))
        gaps += [2 * unit * np.isnan(x)[None]] * kinds[name]["missing"]
    own = [[[x == value for x in columns[a]] for value in kinds[a]["values"]] for a in others]
    for one in map(np.array, own + flags):
        values.append(unit / (1 - 1 / len(one)) ** 0.5 * (one - one.any(axis=0) / len(one)))
    for name in others:
        gone = [[x is None or x != x for x in columns[name]]]
        empty += [unit * np.array(gone)] * kinds[name]["missing"]
    few = np.outer([1, 0.5], [1, 0.5]) / 1.25 * shrunk * (0.3 / max(1, len(pairs))) ** 0.5
    products = [
        few[i, k] * curves[a][i][None] * curves[b][k]
        for a, b in pairs
        for i in (0, 1)
        for k in (0, 1)
    ]
    blocks = [sizes[:, None] * curves[name] for name in numbers]
    return np.concatenate([*blocks, *gaps, *values, *empty, *products]).T


def probabilities(whole, columns):
    """Predict the probabilities of the classes of rows, given by their columns."""
    (_, encoder), (_, model) = (step["tuple"] for step in whole["parameters"]["steps"])
    fitted, X = model["model"]["fitted"], encoded(columns, encoder["model"]["fitted"]["encoding"])
    assert fitted["interactions"] is None and fitted["fitted_row_map"]["norm"] == "l2"
    bias = fitted["fitted_row_map"]["bias"] or 0.0
    scores = X @ array(fitted["coef"]).T + bias * array(fitted["intercept"])
    scores /= np.hypot(np.linalg.norm(X, axis=1), bias)[:, None]
    scores += array(fitted["offset"])
    if scores.shape[1] == 1:  # two classes have one score
        scores = np.concatenate([0 * scores, scores], axis=1)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


# %%
# A model, of rows that are made up here, and what is predicted with this package and without it.

import pandas as pd  # noqa: E402

from dpsubspace import Range, tabular_pipeline  # noqa: E402

rng = np.random.default_rng(0)
rows = pd.DataFrame(
    {
        "age": rng.uniform(18, 95, size=5000),
        "income": rng.lognormal(10, 1, size=5000),
        "ward": rng.choice(["A", "B", "C"], size=5000),
    }
)
rows.loc[::9, "income"] = np.nan
ill = rng.uniform(size=5000) < 1 / (1 + np.exp(4 - rows["age"] / 20 - (rows["ward"] == "A")))
schema = {
    "age": (18, 95),
    "income": Range(0, 1_000_000, log=True, missing=True),
    "ward": ["A", "B", "C"],
}
model = tabular_pipeline("classification", schema, epsilon=1.0).fit(rows, ill)

found = probabilities(json.loads(model.to_json()), {name: rows[name] for name in rows})
print(f"largest difference: {abs(found - model.predict_proba(rows)).max():.1e}")
