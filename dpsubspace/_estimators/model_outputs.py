"""What a fitted model says of private rows: labels, scores and probabilities, of each row its own.

Nothing here depends on labels, and nothing raises because of what a model says: what is not a
number counts as stated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline

__all__ = ["losses", "predicted_codes", "residuals", "scores_of", "squared_errors", "threshold_of"]


def predicted_codes(model: Any, X: Any, codes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Index among `classes` of each label that is predicted; a wrong one where it is not there."""
    predicted = np.asarray(model.predict(X)).reshape(-1)
    _check_length(predicted, codes, "predict")
    order = np.argsort(classes)
    found = order[np.clip(np.searchsorted(classes[order], predicted), 0, len(classes) - 1)]
    return np.where(classes[found] == predicted, found, (codes + 1) % len(classes))


def scores_of(model: Any, X: Any, n: int) -> tuple[np.ndarray, bool]:
    """Score of each row for the second of two classes, and whether it is of a probability.

    Log-odds of probabilities, else decision values. What is not a number is 0.
    """
    if hasattr(model, "predict_proba"):
        chances = np.clip(_probabilities(model, X, n, 2), 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log(chances[:, 1]) - np.log(chances[:, 0])
        return np.nan_to_num(scores, nan=0.0), True
    if not hasattr(model, "decision_function"):
        raise ValueError(
            f"{type(model).__name__} has neither `predict_proba` nor `decision_function`, from"
            " which scores are read: ask for metrics of labels, such as metric='accuracy'."
        )
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    if scores.size != n:
        raise ValueError("`decision_function` must give one number a row, and gave more or fewer.")
    return np.nan_to_num(scores.reshape(-1), nan=0.0), False


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
