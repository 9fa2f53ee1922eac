"""Families of regressions: the mean of a target by its score, and the derivative of that mean.

Whatever differs between families stands here. Targets are from -1 to 1 for a linear regression, 0
or 1 for a logistic one, and counts over the end of their range, from 0 to 1, for that of Poisson.
There the variance is ``m' u^2`` for the *unit* u, the root of 1 over that end, if rows differ by
chance alone. The unit of a logistic regression is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

# Least mean of a target of two classes, and least mean of counts over the end of their range.
_RAREST, _FEWEST = 0.002, 1e-6

# Deviation of the noise of a mean from which on nothing is known of one from 0 to 1.
HALF = 0.5

# How much larger slopes may be than at the mean before they are cut: of odds, and of rates, which
# differ more between rows.
_STEEP, _STEEP_RATES = 2.5, 4.0

# Score from which on the mean of counts goes on along a line: no exponential is too large then. It
# is 20 times the end of the range of counts.
_STRAIGHT = 3.0

# Share of counts that are far from their mean.
_FAR = 0.2

# A distribution of two values: shares of rows, and sizes of residuals.
Pair = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Family:
    """A generalised linear model with its canonical link: ``E y = m(s)`` for a score s."""

    name: str
    mean: Callable[[np.ndarray], np.ndarray]  # m
    slope: Callable[[np.ndarray], np.ndarray]  # m', which is also the variance but for a factor
    link: Callable[[float], float]  # inverse of m
    start: float | None  # Mean that the first score is about; None for the released mean
    dispersed: bool  # Whether the factor of the variance is measured; it is 1 otherwise
    square: bool  # Whether the mean square of targets is released
    counted: bool  # Whether targets count events, of which those of each category are released
    likely: Callable[[float, float], float]  # Mean of targets, of a noisy one and its noise
    first: Callable[[float, float], float]  # Usual size of residuals of a mean and a unit
    # Mean slope at a noisy mean with its noise, and the slope from which on it is cut.
    steep: Callable[[float, float], tuple[float, float]]
    residuals: Callable[[np.ndarray, float], Pair]  # Residuals of predicted means, over the unit
    # Expected number of events of a row with a predicted mean, or of the rarer of two outcomes.
    events: Callable[[np.ndarray, float], np.ndarray]
    flat: Callable[[float], float]  # m' where m is a mean
    least: float  # Least mean of m'
    # Whether m' has no bound, so that rows of a rare category may have far more than all others.
    unbounded: bool = False
    ratio: str = ""  # What the exponential of a coefficient is

    @property
    def linear(self) -> bool:
        return self.name == "linear"


def _same(mean: float, _: float) -> float:
    return mean


def _normal_residuals(predicted: np.ndarray, _: float) -> Pair:
    half = np.full(np.shape(predicted), 0.5)
    return (half, np.ones_like(half)), (half, np.ones_like(half))


def _logistic_slope(scores: np.ndarray) -> np.ndarray:
    predicted = expit(scores)
    return predicted * (1 - predicted)


def _logit(mean: float) -> float:
    return float(np.log(mean / (1 - mean)))


def _likely_share(mean: float, noise: float) -> float:
    rarest = min(max(noise, _RAREST), HALF)
    return min(max(mean, rarest), 1 - rarest)


def _steep_odds(mean: float, noise: float) -> tuple[float, float]:
    mean = min(max(mean, noise, _RAREST), 1 - max(noise, _RAREST))
    usual = (mean + noise) * (1 - mean + noise)
    return usual, min(0.25, _STEEP * usual)


def _residuals_of_classes(predicted: np.ndarray, _: float) -> Pair:
    return (1 - predicted, predicted), (predicted, 1 - predicted)


def _rate(scores: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(scores, _STRAIGHT)) * (1 + np.maximum(scores - _STRAIGHT, 0.0))


def _rate_slope(scores: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(scores, _STRAIGHT))


def _likely_rate(mean: float, noise: float) -> float:
    return min(max(mean, noise, _FEWEST), 1.0)


def _first_of_counts(mean: float, unit: float) -> float:
    """Two deviations of a count, and one count: where these are rare, they are not cut."""
    return 2 * unit * math.sqrt(mean) + unit**2


def _steep_rates(mean: float, noise: float) -> tuple[float, float]:
    usual = _likely_rate(mean, noise) + noise
    return usual, _STEEP_RATES * usual


def _residuals_of_counts(predicted: np.ndarray, unit: float) -> Pair:
    """Two values with the variance of the count: of small means, no count and one count.

    Of large ones a fifth is off by two deviations, and all others by half of one.
    """
    counts = predicted / unit**2
    share = np.minimum(counts, _FAR)
    odds = share / (1 - share)
    few = np.sqrt(counts / np.maximum(odds, 1e-300))
    return (1 - share, unit * np.sqrt(counts * odds)), (share, unit * few)


FAMILIES = {
    "linear": Family(
        "linear",
        np.positive,
        np.ones_like,
        float,
        start=None,
        dispersed=True,
        square=True,
        counted=False,
        likely=_same,
        first=lambda _, __: 0.0,  # the released deviation is larger
        steep=lambda _, __: (1.0, 1.0),
        residuals=_normal_residuals,
        events=lambda predicted, _: np.full_like(predicted, math.inf),
        flat=lambda _: 1.0,
        least=1.0,
    ),
    "logistic": Family(
        "logistic",
        expit,
        _logistic_slope,
        _logit,
        start=0.5,
        dispersed=False,
        square=False,
        counted=True,
        likely=_likely_share,
        first=lambda _, __: 0.5,
        steep=_steep_odds,
        residuals=_residuals_of_classes,
        events=lambda predicted, _: np.minimum(predicted, 1 - predicted),
        flat=lambda mean: mean * (1 - mean),
        least=1e-4,
        ratio="odds ratio",
    ),
    "poisson": Family(
        "poisson",
        _rate,
        _rate_slope,
        math.log,
        start=None,
        dispersed=True,
        square=True,
        counted=True,
        likely=_likely_rate,
        first=_first_of_counts,
        steep=_steep_rates,
        residuals=_residuals_of_counts,
        events=lambda predicted, unit: predicted / unit**2,
        flat=float,
        least=_FEWEST,
        unbounded=True,
        ratio="rate ratio",
    ),
}
