"""What a fitted model says of private rows: labels, scores and probabilities, of each row its own.

Nothing here depends on labels, and nothing raises because of what a model says: what is not a
number counts as stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline

from dpsubspace._rows.records import Records

__all__ = [
    "by_record",
    "losses",
    "predicted_codes",
    "residuals",
    "scores_of",
    "squared_errors",
    "taken",
    "threshold_of",
]


def by_record(
    X: Any, records: Records, says: Callable[[Any, Any], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What is said of all rows, where each person's rows are shown alone.

    Parameters
    ----------
    X : array-like of n_rows rows
        Rows in any form.
    records : Records
        Whose they are.
    says : callable
        From some rows, and where they lie in `X`, to arrays with one entry for each of them.

    Notes
    -----
    Proof that a person moves nothing but what that person brings: `says` is called once for each
    person, with that person's rows in their order, copied, and with nothing else. So what it says
    of them is the same whoever the others are, however many rows they have and wherever in `X` they
    lie, for any model that says the same of the same rows whenever it is asked, also for one that
    compares rows with each other. A single call for all rows would not do, for no model that takes
    products: BLAS rounds the product of a row by its place and by the number of rows, which is
    private here, so that one more row of one person can move the rows of all later persons from
    one cell to another. Neither padding nor rounding of what comes out changes that: some row is
    always nearest to a border.

    Where each row is a record, all rows are shown in one call. Their number is public, and so is
    the place of each: a neighbour has the same rows at the same places but for one. That a model
    says of a row then what depends on that row and its place alone is assumed.
    """
    if records.index is None:
        return dict(says(X, slice(None)))
    rows, counts = records.rows_by_record(np.arange(records.n))
    people = np.split(rows, np.cumsum(counts)[:-1])
    parts = [says(taken(X, some), some) for some in people]
    place = np.argsort(rows)
    return {name: np.concatenate([part[name] for part in parts])[place] for name in parts[0]}


def taken(X: Any, rows: np.ndarray) -> Any:
    """Some rows of `X` in its own form."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "take") and hasattr(X, "column_names"):  # of Arrow
        return X.take(rows)
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def predicted_codes(model: Any, X: Any, codes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Index among `classes` of each label that is predicted; a wrong one where it is not there."""
    predicted = np.asarray(model.predict(X)).reshape(-1)
    _check_length(predicted, codes, "predict")
    order = np.argsort(classes)
    found = order[np.clip(np.searchsorted(classes[order], predicted), 0, len(classes) - 1)]
    return np.where(classes[found] == predicted, found, (codes + 1) % len(classes))


def scores_of(model: Any, X: Any, n: int, n_classes: int) -> np.ndarray:
    """Scores of each row (n, k): log-odds of probabilities, else decision values.

    One for the second of two classes, or one for each of more against all others. What is not a
    number is 0.
    """
    if hasattr(model, "predict_proba"):
        chances = np.clip(_probabilities(model, X, n, n_classes), 0.0, 1.0)
        others = chances[:, :1] if n_classes == 2 else 1.0 - chances
        chances = chances[:, 1:] if n_classes == 2 else chances
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log(chances) - np.log(others)
        return np.nan_to_num(scores, nan=0.0)
    if not hasattr(model, "decision_function"):
        raise ValueError(
            f"{type(model).__name__} has neither `predict_proba` nor `decision_function`, from"
            " which scores are read: ask for metrics of labels, such as metric='accuracy'."
        )
    scores, each = np.asarray(model.decision_function(X), dtype=np.float64), 1
    if n_classes > 2:
        each = n_classes
    if scores.size != n * each:
        numbers = "one number" if each == 1 else f"{each} numbers"
        raise ValueError(f"`decision_function` must give {numbers} a row, and gave more or fewer.")
    return np.nan_to_num(scores.reshape(n, each), nan=0.0)


def threshold_of(model: Any, *, probabilities: bool) -> float:
    """Score beyond which a classifier predicts the second class, as its parameters tell."""
    while isinstance(model, Pipeline):
        model = model[-1]
    found = "auto"
    if isinstance(model, TunedThresholdClassifierCV):
        found = model.best_threshold_
    elif isinstance(model, FixedThresholdClassifier):
        found = model.threshold
    if isinstance(found, str):
        return 0.0
    if not probabilities:
        return float(found)
    chance = min(max(float(found), 1e-9), 1 - 1e-9)
    return math.log(chance / (1 - chance))


def losses(model: Any, X: Any, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Log loss of each row, inf where the probability of its label is 0 or not a number."""
    chances = _probabilities(model, X, len(codes), n_classes)
    true = chances[np.arange(len(codes)), codes]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(-np.log(true), nan=np.inf, posinf=np.inf)


def squared_errors(model: Any, X: Any, codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Brier loss of each row: of the second class where there are two, else of all classes."""
    chances = np.clip(_probabilities(model, X, len(codes), n_classes), 0.0, 1.0)
    errors = (chances - np.eye(n_classes)[codes]) ** 2
    return errors[:, 1] if n_classes == 2 else errors.sum(axis=1)


def residuals(
    model: Any, X: Any, y: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Errors and targets between bounds, as parts of their distance; targets from -1 to 1."""
    predicted = np.asarray(model.predict(X), dtype=np.float64).reshape(-1)
    _check_length(predicted, y, "predict")
    width = high - low
    inside, guess = (np.clip(values, low, high) for values in (y, predicted))
    errors = np.where(np.isnan(guess), 1.0, np.abs(inside - guess) / width)
    return np.clip(errors, 0.0, 1.0), np.clip(2 * (inside - low) / width - 1, -1.0, 1.0)


def _probabilities(model: Any, X: Any, n: int, n_classes: int) -> np.ndarray:
    """Probabilities as a model gives them, one column a class."""
    if not hasattr(model, "predict_proba"):
        raise ValueError(
            f"{type(model).__name__} has no `predict_proba`, which this metric needs: calibrate"
            " the model, or ask for another metric, such as 'accuracy'."
        )
    chances = np.asarray(model.predict_proba(X), dtype=np.float64)
    if chances.shape != (n, n_classes):
        raise ValueError(
            f"`predict_proba` must give {n_classes} probabilities a row, and gave more or fewer."
        )
    return chances


def _check_length(predicted: np.ndarray, rows: np.ndarray, method: str) -> None:
    if len(predicted) != len(rows):
        raise ValueError(f"`{method}` must give one value a row, and gave more or fewer.")
