"""Families of regressions: the mean of a target by its score, and the derivative of that mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit


@dataclass(frozen=True)
class Family:
    """A generalised linear model with its canonical link: ``E y = m(s)`` for a score s."""

    name: str
    mean: Callable[[np.ndarray], np.ndarray]  # m
    slope: Callable[[np.ndarray], np.ndarray]  # m', which is also the variance but for a factor
    link: Callable[[float], float]  # inverse of m
    start: float  # m(0)

    @property
    def linear(self) -> bool:
        return self.name == "linear"


def _logistic_slope(scores: np.ndarray) -> np.ndarray:
    predicted = expit(scores)
    return predicted * (1 - predicted)


def _logit(mean: float) -> float:
    return float(np.log(mean / (1 - mean)))


FAMILIES = {
    "linear": Family("linear", np.positive, np.ones_like, float, 0.0),
    "logistic": Family("logistic", expit, _logistic_slope, _logit, 0.5),
}
