"""Differences of a metric between two models on the same rows, from released numbers.

Rows of which both models say the same contribute nothing to a difference of means, so that the
sample moves it much less than it moves the metric of either model. The released second moment, or
the released counts of rows on which one model alone is right, tell how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dpsubspace._core.statistics.score_cells import area, interval, on_simplex, resampled_counts
from dpsubspace._core.statistics.score_metrics import (
    CLEAR,
    CLEAR_VARIANCE,
    METRICS,
    Formula,
    Value,
    clear_of_noise,
    matrix_of_recalls,
)

_DRAWS = 2000

# Means ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A metric that follows from sums over rows: the difference of a number, and what it needs."""

    base: str  # Number of each row that differs: of NUMBERS in _core/fits/outputs.py, or a square
    # Sums beside those of the difference and its square, with their shares of the noise.
    beside: Mapping[str, float] = field(default_factory=dict)
    ranged: bool = False  # Whether a bound on differences is released first

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the noise of all sums, which add up to 1."""
        all_of = {"d": 1.0, "d^2": 0.2, **self.beside}
        return {name: share / sum(all_of.values()) for name, share in all_of.items()}


# Metrics by the names in METRICS. "level" is the mean of both squares, "t" is of targets.
PAIRED = {
    "accuracy": Paired(base="hit"),
    "log_loss": Paired(base="loss"),
    "brier_score_loss": Paired(base="brier"),
    "mean_absolute_error": Paired(base="error", ranged=True),
    "mean_squared_error": Paired(base="square", ranged=True),
    "root_mean_squared_error": Paired(base="square", beside={"level": 0.5}, ranged=True),
    "r2": Paired(base="square", beside={"t": 0.2, "t^2": 0.4}, ranged=True),
}


@dataclass(frozen=True)
class PairedMeans:
    """Released means of a difference in [-1, 1], of its square and of numbers in [0, 1]."""

    means: Mapping[str, float]
    scales: Mapping[str, float]  # Scales of their Laplace noise
    n: int
    largest: float  # Largest difference of a row, as a part of the largest possible one

    @classmethod
    def of(
        cls, shares: Mapping[str, float], sums: np.ndarray, scale: float, n: int, largest: float
    ) -> PairedMeans:
        """Return means from sums, multiplied by shares, with noise of a scale."""
        means = {name: float(sums[i]) / share / n for i, (name, share) in enumerate(shares.items())}
        return cls(means, {name: scale / share / n for name, share in shares.items()}, n, largest)

    def value(self, metric: str, unit: float, level: float, rng: np.random.Generator) -> Value:
        """Return the difference of a metric with its interval; NaN if noise hides its scale."""
        found, spread = self._difference(rng, PAIRED[metric].base == "hit")
        per_unit, by_other = self._slopes(metric, found)
        if math.isnan(per_unit):
            return Value(math.nan, math.nan, math.nan)
        value, draws = per_unit * found, per_unit * spread + by_other * rng.normal(size=_DRAWS)
        low, high = interval(np.asarray(value), np.asarray(0.0), draws, level)
        return Value(unit * value, unit * float(low), unit * float(high))

    def _difference(self, rng: np.random.Generator, whole: bool) -> tuple[float, np.ndarray]:
        """Return the mean difference, and draws of its error by another sample and other noise.

        Where differences are `whole`, one more row that differs is added to the variance: of a few
        such rows, none may be in the sample.
        """
        found = float(np.clip(self.means["d"], -1.0, 1.0))
        square = self.means["d^2"] + math.sqrt(2) * self.scales["d^2"]
        variance = float(np.clip(square - found**2, 0.0, 1.0)) + whole / self.n
        draws = math.sqrt(variance / self.n) * rng.normal(size=_DRAWS)
        draws += self.scales["d"] * rng.laplace(size=_DRAWS)
        return self.largest * found, self.largest * draws

    def _slopes(self, metric: str, found: float) -> tuple[float, float]:
        """Return what the metric's difference is per difference of means, and its deviation.

        The second is the deviation by what else was released. For roots it is ``D / (sqrt(A) +
        sqrt(B))`` with S = (A + B) / 2 released, and for R2 ``-4 D / V`` with V the variance of
        the targets in [-1, 1].
        """
        if metric == "root_mean_squared_error":
            middle, noise = self.means["level"], math.sqrt(2) * self.scales["level"]
            if middle < CLEAR * noise or middle <= 0:
                return math.nan, math.nan
            ends = (max(middle + found / 2, 0.0), max(middle - found / 2, 0.0))
            slope = 1 / sum(map(math.sqrt, ends))
            spread = math.sqrt(noise**2 + middle * max(1 - middle, 0.0) / self.n)
            return slope, abs(found) * slope * spread / (2 * middle)
        if metric == "r2":
            mean, second = 2 * self.means["t"] - 1, self.means["t^2"]
            variance, noise = second - mean**2, self.noise_of_variance(mean)
            if variance < CLEAR_VARIANCE * noise or variance <= 1 / self.n**2:
                return math.nan, math.nan
            sampled = max(second * (1 - second), 0.0) / self.n
            spread = math.sqrt(noise**2 + sampled)
            return -4 / variance, 4 * abs(found) * spread / variance**2
        return 1.0, 0.0

    def noise_of_variance(self, mean: float) -> float:
        """Return the deviation of the noise in the variance of targets, by their mean."""
        return math.sqrt(2) * (self.scales["t^2"] + 4 * abs(mean) * self.scales["t"])


# Labels ---------------------------------------------------------------------------------------

# Cells of a class: rows of which both models, the first, the second and none say the label.
OUTCOMES = 4


def matrices(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confusion matrices (..., c, c) of both models, of counts (..., c, 4) by class and outcome."""
    both, first, second, none = np.moveaxis(counts, -1, 0)
    of_first = matrix_of_recalls(both + first, second + none)
    return of_first, matrix_of_recalls(both + second, first + none)


@dataclass(frozen=True)
class PairedCounts:
    """Released counts from which the same metric of both models follows."""

    counts: np.ndarray  # By class and outcome (c, 4), or by two cells of scores and class (k, k, 2)
    scale: float  # Scale of the Laplace noise of each count
    n: int
    spreads: tuple[np.ndarray, np.ndarray] | None = None  # How scores differ within cells

    def hidden(self, metric: str) -> float | None:
        """Return the noisy size of the smallest class that matters, if noise hides it."""
        if self.spreads is not None:
            sizes, merged = self.counts.sum(axis=(0, 1)), self.counts[..., 0].size
        else:
            sizes, merged = self.counts.sum(axis=1), OUTCOMES
        if METRICS[metric].of_predicted:
            predicted = [each.sum(axis=0) for each in matrices(self.counts)]
            sizes = np.concatenate([sizes, *predicted])
        smallest = float(sizes.min())
        return smallest if smallest < clear_of_noise(self.scale, merged) else None

    def value(self, metric: str, level: float, rng: np.random.Generator) -> Value:
        """Return the difference, with an interval from samples with other noise."""
        formula = METRICS[metric].formula
        difference = self._of_areas if formula is None else self._of_matrices(formula)
        draws = resampled_counts(self.counts, self.scale, self.n, _DRAWS, rng)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = difference(self.counts)
            centre = difference(on_simplex(self.counts, self.n))
            low, high = interval(found, centre, difference(draws), level)
        beside = 0.0 if formula is not None else self._of_ties()
        ends = (float(np.clip(x, -1.0, 1.0)) for x in (found, low - beside, high + beside))
        value, least, most = ends
        return Value(value, least, most)

    def _of_matrices(self, formula: Formula) -> Callable[[np.ndarray], np.ndarray]:
        def difference(counts: np.ndarray) -> np.ndarray:
            first, second = matrices(counts)
            return np.asarray(formula(first, self.n) - formula(second, self.n))

        return difference

    def _of_ties(self) -> float:
        """Return how far the difference of areas may be off by the order of scores within cells.

        That is a guess from neighbouring cells, so that what it adds to the difference counts. How
        much scores differ within a cell, s, is least sure in the middle: by ``s (1 - s)``.
        """
        assert self.spreads is not None
        counts, sides = (self.counts.sum(axis=1), self.counts.sum(axis=0)), []
        for each, s in zip(counts, self.spreads, strict=True):
            untied = float(area(each, s))
            sides.append((untied - float(area(each, 0 * s)), untied - float(area(each, s**2))))
        (first, one), (second, two) = sides
        return abs(first - second) + abs(one) + abs(two)

    def _of_areas(self, counts: np.ndarray) -> np.ndarray:
        assert self.spreads is not None
        first, second = counts.sum(axis=-2), counts.sum(axis=-3)
        return area(first, self.spreads[0]) - area(second, self.spreads[1])


# Areas without noise --------------------------------------------------------------------------


def exact_areas(scores: np.ndarray, y: np.ndarray, level: float) -> Value:
    """Difference of exact areas of two columns of scores, with the interval of DeLong et al.

    "Comparing the areas under two or more correlated receiver operating characteristic curves: a
    nonparametric approach". Biometrics 44, 1988. Nothing of this is private.
    """
    found = []
    for column in scores.T:
        low, high = np.sort(column[y == 0]), np.sort(column[y == 1])
        sides = [(low, column[y == 1]), (high, column[y == 0])]
        places = [
            (np.searchsorted(a, b, "left") + np.searchsorted(a, b, "right")) / (2 * len(a))
            for a, b in sides
        ]
        found.append(places)
    (up, down), (up_other, down_other) = found
    above, below = up - up_other, down - down_other
    variance = above.var() / len(above) + below.var() / len(below)
    value, away = float(above.mean()), _normal(level) * math.sqrt(variance)
    return Value(value, max(value - away, -1.0), min(value + away, 1.0))


def _normal(level: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + level) / 2)
