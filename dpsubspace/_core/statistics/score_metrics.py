"""Metrics of a model from released numbers about its predictions, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsubspace._core.statistics.score_cells import (
    ScoreCells,
    area,
    confusion,
    curve,
    each_on_simplex,
    fractions,
    interval,
    on_simplex,
    resampled_counts,
)
from dpsubspace._core.statistics.table_cells import holding, in_order

# Draws for an interval, and fewer if there are this many counts.
_DRAWS, _FEWER, _MANY = 1000, 200, 1000

# A count is distinguished from zero if it is so many standard deviations of its noise.
CLEAR = 3.0

# The same for a variance in a denominator: a variance that noise has just lifted above a lower
# limit would be far too large, and R2 with it.
CLEAR_VARIANCE = 6.0


@dataclass(frozen=True)
class Value:
    """A metric, an interval for it, and the horizontal positions of a curve."""

    value: Any
    low: Any
    high: Any
    at: np.ndarray | None = None


# Metrics --------------------------------------------------------------------------------------

Formula = Callable[[np.ndarray, Any], np.ndarray]


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, np.nan)


def _recalls(m: np.ndarray) -> np.ndarray:
    return _ratio(np.diagonal(m, axis1=-2, axis2=-1), m.sum(axis=-1))


def _precisions(m: np.ndarray) -> np.ndarray:
    return _ratio(np.diagonal(m, axis1=-2, axis2=-1), m.sum(axis=-2))


def _f1s(m: np.ndarray) -> np.ndarray:
    return _ratio(2 * np.diagonal(m, axis1=-2, axis2=-1), m.sum(axis=-1) + m.sum(axis=-2))


def matrix_of_recalls(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return a confusion matrix (..., c, c) of rows by class (..., c) whose label is right or not.

    Wrong labels count as the next class. With two classes that is what they are; with more, it
    holds for metrics that ask only whether a label is right.
    """
    matrix, each = np.zeros((*right.shape, right.shape[-1])), np.arange(right.shape[-1])
    matrix[..., each, each] = right
    matrix[..., each, (each + 1) % len(each)] = wrong
    return matrix


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The data and the formula of a metric. All facts about a metric are in its row of METRICS."""

    # Function of a confusion matrix (..., c, c) and a number of records; None if a matrix does not
    # determine the metric. If a metric is about one of two classes, that is the last one.
    formula: Formula | None = None
    # Required sums over records, with their weights: of NUMBERS in _core/fits/outputs.py, or of
    # powers of these such as "error^2". The metric is the mean of the first sum. The second, of its
    # square, serves the interval alone.
    sums: Mapping[str, float] = field(default_factory=dict)
    root: bool = False  # Whether it is the root of that mean
    cells: bool = False  # Whether it is computed from counts of scores
    within: tuple[float, float] = (0.0, 1.0)  # Least and largest possible value, for labels
    of_class: bool = False  # Whether it is about one of two classes
    of_all_rows: bool = False  # Whether it does not depend on how many rows a class has
    of_predicted: bool = False  # Whether it depends on how many rows are predicted to be of a class
    for_many: str | None = None  # Metric that replaces it with more than two classes
    regression: bool = False  # Whether it is about numbers, and not classes
    error: bool = False  # Whether it is a mean of errors, so that 0 is a perfect regressor
    # Other names of the metric in scikit-learn, with its sign under these.
    others: Mapping[str, int] = field(default_factory=dict)
    # Words that are used for it elsewhere, which errors answer with its name.
    words: tuple[str, ...] = ()

    @property
    def mean(self) -> tuple[str, str]:
        """The names of the sum whose mean it is, and of the sum of its square."""
        names = [*self.sums]
        return names[0], names[min(1, len(names) - 1)]

    def unit(self, units: Mapping[str, float], largest: float) -> float:
        """Return the value of 1 in numbers; errors are parts of `largest`.

        It is a product of powers, and no power of a product, which would be rounded otherwise.
        """
        base, _, power = self.mean[0].partition("^")
        exponent = int(power or 1) // (2 if self.root else 1)
        return units[base] ** exponent * (largest**exponent if self.regression else 1.0)


METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        formula=lambda m, n: np.trace(m, axis1=-2, axis2=-1) / n,
        sums={"hit": 1.0},
        of_all_rows=True,
        words=("acc", "accuracy_score"),
    ),
    "balanced_accuracy": Metric(formula=lambda m, n: _recalls(m).mean(axis=-1)),
    "precision": Metric(
        formula=lambda m, n: _precisions(m)[..., 1],
        of_class=True,
        of_predicted=True,
        for_many="precision_macro",
        words=("ppv", "positive_predictive_value"),
    ),
    "recall": Metric(
        formula=lambda m, n: _recalls(m)[..., 1],
        of_class=True,
        for_many="recall_macro",
        words=("sensitivity", "tpr"),
    ),
    "f1": Metric(
        formula=lambda m, n: _f1s(m)[..., 1],
        of_class=True,
        for_many="f1_macro",
        words=("f1_score",),
    ),
    "specificity": Metric(
        formula=lambda m, n: _recalls(m)[..., 0],
        of_class=True,
        for_many="recall_macro",
        words=("tnr",),
    ),
    "precision_macro": Metric(formula=lambda m, n: _precisions(m).mean(axis=-1), of_predicted=True),
    "recall_macro": Metric(formula=lambda m, n: _recalls(m).mean(axis=-1)),
    "f1_macro": Metric(formula=lambda m, n: _f1s(m).mean(axis=-1)),
    "confusion_matrix": Metric(formula=lambda m, n: m, within=(0.0, math.inf), of_all_rows=True),
    "roc_auc": Metric(
        cells=True,
        for_many="roc_auc_ovr",
        words=("auc", "auroc", "auc_roc", "rocauc", "c_index", "c_statistic", "area"),
    ),
    "roc_curve": Metric(cells=True, of_class=True, for_many="roc_auc_ovr", words=("roc",)),
    "calibration_curve": Metric(cells=True, of_class=True, of_all_rows=True, for_many="log_loss"),
    "roc_auc_ovr": Metric(cells=True),
    "log_loss": Metric(sums={"loss": 1.0, "loss^2": 0.2}, others={"neg_log_loss": -1}),
    "brier_score_loss": Metric(
        sums={"brier": 1.0, "brier^2": 0.2}, others={"neg_brier_score": -1, "brier": 1}
    ),
    "mean_absolute_error": Metric(
        sums={"error": 1.0, "error^2": 0.2},
        regression=True,
        error=True,
        others={"neg_mean_absolute_error": -1},
        words=("mae", "l1"),
    ),
    "mean_squared_error": Metric(
        sums={"error^2": 1.0, "error^4": 0.2},
        regression=True,
        error=True,
        others={"neg_mean_squared_error": -1},
        words=("mse", "l2"),
    ),
    "root_mean_squared_error": Metric(
        sums={"error^2": 1.0, "error^4": 0.2},
        root=True,
        regression=True,
        error=True,
        others={"neg_root_mean_squared_error": -1},
        words=("rmse",),
    ),
    "r2": Metric(
        sums={"error^2": 1.0, "error^4": 0.15, "t": 0.3, "t^2": 1.0, "t^3": 0.15, "t^4": 0.15},
        regression=True,
        words=("r2_score", "r_squared", "explained_variance"),
    ),
}


# Sums of bounded numbers ----------------------------------------------------------------------


def needed_sums(metrics: list[str]) -> dict[str, float]:
    """Return the sums that these metrics need, with shares of the noise that add up to 1."""
    largest: dict[str, float] = {}
    for metric in metrics:
        for name, share in METRICS[metric].sums.items():
            largest[name] = max(share, largest.get(name, 0.0))
    return {name: share / sum(largest.values()) for name, share in largest.items()}


@dataclass(frozen=True)
class Summed:
    """Released means over records of numbers in [0, 1]."""

    means: Mapping[str, float]  # Noisy means
    scales: Mapping[str, float]  # Scales of their Laplace noise
    n: int  # Number of records
    units: Mapping[str, float]  # Value of 1 in numbers, by their names
    largest: float  # Largest error, as a part of the width of the bounds of targets
    # Noisy number of records, if that is of a group and the noise hides it.
    few: float | None = None

    @classmethod
    def of(
        cls,
        shares: Mapping[str, float],
        sums: np.ndarray,
        scale: Any,
        n: int,
        units: Mapping[str, float],
        largest: float = 1.0,
        few: float | None = None,
    ) -> Summed:
        """Return means from sums over `n`, multiplied by shares, with noise of a scale."""
        given = np.array([*shares.values()])
        means, scales = (
            dict(zip(shares, each.tolist(), strict=True)) for each in (sums / given, scale / given)
        )
        return cls(means, scales, n, units, largest, few)

    @classmethod
    def of_group(
        cls,
        shares: Mapping[str, float],
        pair: np.ndarray,
        scale: float,
        units: Mapping[str, float],
        largest: float,
    ) -> Summed:
        """Return means of a group, from sums and the sums of the complements to 1, of shape (2, k).

        All entries together are about the size N of the group. A mean ``S / (s N)`` is off by about
        ``(1 / s - m) e / N`` by the noise e of its own sum, and by ``- m e / N`` by that of each of
        the ``2 k - 1`` other entries: in standard deviations as much as one Laplace variable of the
        reported scale.
        """
        size = float(pair.sum())
        if size < clear_of_noise(scale, pair.size):
            return cls.of(shares, pair[0], scale, 1, units, largest, few=size)
        given = np.array([*shares.values()])
        means = np.clip(pair[0] / given / size, 0.0, 1.0)
        factors = np.sqrt((1 - means * given) ** 2 + (pair.size - 1) * (means * given) ** 2)
        spread = scale * factors / size
        return cls.of(shares, pair[0] / size, spread, round(size), units, largest)

    def value(self, metric: str, level: float, rng: np.random.Generator) -> Value | None:
        """Return a metric with its interval; None if noise hides it."""
        if metric == "r2":
            return self._r2(level, rng)
        asked = METRICS[metric]
        mean, draws = self._mean(*asked.mean, rng)
        unit = asked.unit(self.units, self.largest)

        def shown(x: Any) -> Any:
            inside = np.clip(x, 0.0, 1.0)
            return unit * (np.sqrt(inside) if asked.root else inside)

        low, high = interval(np.asarray(mean), np.asarray(mean), draws, level)
        return Value(float(shown(mean)), float(shown(low)), float(shown(high)))

    def _mean(self, main: str, square: str, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        """Return a mean, and draws of it with another sample and other noise.

        A mean that noise has made impossible is moved to the nearest possible value first. So it
        comes nearer to any possible mean, and an interval around it is never one point.
        """
        mean = float(np.clip(self.means[main], 0.0, 1.0))
        likely = (mean * self.n + 1) / (self.n + 2)
        most = likely * (1 - likely)  # of any numbers in [0, 1]
        variance = most
        if square != main:
            spare = math.sqrt(2) * self.scales[square]
            variance = float(np.clip(self.means[square] - likely**2, 0.0, most)) + spare
            variance = min(variance, most)
        return mean, mean + self._moved(math.sqrt(variance / self.n), self.scales[main], rng)

    def _moved(self, spread: float, scale: float, rng: np.random.Generator) -> np.ndarray:
        return spread * rng.normal(size=_DRAWS) + scale * rng.laplace(size=_DRAWS)

    def in_order(self) -> Summed:
        """Return a copy whose mean error is at most the root of the mean squared error.

        The mean squared error is at most the mean error: errors are in [0, 1]. Means that noise has
        made inconsistent are moved to the nearest consistent ones, each the further the more noise
        it has.
        """
        one, two = (float(np.clip(self.means[name], 0.0, 1.0)) for name in ("error", "error^2"))
        first, second = (self.scales[name] ** 2 for name in ("error", "error^2"))
        if one**2 <= two <= one or not first + second:
            return self
        share = second / (first + second)
        if two > one:
            one = two = share * one + (1 - share) * two
        else:  # the nearest point of the curve (t, t^2)
            of_slope = [2 * (1 - share), 0.0, share - 2 * (1 - share) * two, -share * one]
            roots = np.roots(of_slope)
            real = np.clip(roots[np.abs(roots.imag) < 1e-9].real, 0.0, 1.0)
            away = share * (real - one) ** 2 + (1 - share) * (real**2 - two) ** 2
            one = float(real[np.argmin(away)])
            two = one * one
        return replace(self, means={**self.means, "error": one, "error^2": two})

    def hides(self, metric: str) -> bool:
        """Return whether a mean may be noise alone, which is above `most` in 1 of 20 draws.

        Noise that is smaller than the largest error of one record hides nothing.
        """
        main, _ = METRICS[metric].mean
        most = math.log(20) * self.scales[main]
        return self.means[main] <= most and most * self.n >= 1

    def clear_variance(self, mean: float) -> float:
        """Return the least variance of targets in [-1, 1] that is clear of noise, by their mean."""
        noise = math.sqrt(2) * (self.scales["t^2"] + 4 * abs(mean) * self.scales["t"])
        return CLEAR_VARIANCE * noise

    def _r2(self, level: float, rng: np.random.Generator) -> Value | None:
        """Return the explained share of the variance of targets, from five moments."""
        m1, m3 = (2 * self.means[name] - 1 for name in ("t", "t^3"))
        m2, m4 = self.means["t^2"], self.means["t^4"]
        variance = m2 - m1**2
        if variance < self.clear_variance(m1) or variance <= 1 / self.n**2:
            return None
        noise = self.clear_variance(m1) / CLEAR_VARIANCE
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        spare = math.sqrt(2) * (self.scales["t^4"] + 8 * abs(m1) * self.scales["t^3"])
        spread = math.sqrt(max(fourth - variance**2, 0.0) + spare)
        error, errors = self._mean("error^2", "error^4", rng)
        variances = variance + self._moved(spread / math.sqrt(self.n), self.scales["t^2"], rng)
        variances += 4 * m1 * self.scales["t"] * rng.laplace(size=_DRAWS)
        unit = 4.0 * self.largest**2  # errors are parts of the width of the bounds, targets of half
        explained = 1 - unit * error / variance
        draws = 1 - unit * errors / np.maximum(variances, noise / 10 + 1e-12)
        low, high = interval(np.asarray(explained), np.asarray(explained), draws, level)
        return Value(min(explained, 1.0), min(float(low), 1.0), min(float(high), 1.0))


# Counts ---------------------------------------------------------------------------------------


def clear_of_noise(scale: float, merged: int) -> float:
    """Return the least sum of so many counts, with noise of a scale each, that is clear of 0."""
    return max(CLEAR * scale * math.sqrt(2 * merged), 1.0)


def mean_area(of_classes: list[Value]) -> Value:
    """Return the mean of the areas of each class against all others.

    Its interval is as wide as the mean of theirs, which is valid for any dependence.
    """
    value, low, high = (
        float(np.mean([getattr(each, name) for each in of_classes]))
        for name in ("value", "low", "high")
    )
    return Value(value, low, high)


@dataclass(frozen=True)
class Counted:
    """Released counts of cells of scores or of predicted labels, and samples like them."""

    cells: ScoreCells | None  # Cells of scores, if those were counted
    # (c, c): noisy confusion matrix, if that was counted instead.
    matrix: np.ndarray | None
    scale: float  # Scale of the Laplace noise of each count
    n: int  # Number of records, or about that of a group
    rng: np.random.Generator  # For samples
    flipped: bool = False  # Whether the first class comes last: metrics are about the last one
    # Whether these are the counts of a group, whose size is not public.
    of_group: bool = False
    # Whether several metrics of labels are computed from them: all of them from one matrix then.
    together: bool = False

    def __post_init__(self) -> None:
        draws = _FEWER if self._counts.size > _MANY else _DRAWS
        drawn = resampled_counts(self._counts, self.scale, self.n, draws, self.rng)
        object.__setattr__(self, "_draws", drawn)

    _draws = np.empty(0)

    @property
    def _counts(self) -> np.ndarray:
        found = self.matrix if self.cells is None else self.cells.counts
        assert found is not None
        return found

    def too_few(self, metric: str) -> float | None:
        """Return the noisy size of the smallest class that matters, if noise hides it."""
        counts = self._counts
        if METRICS[metric].of_all_rows:
            sizes, merged = counts.sum(keepdims=True), counts.size
            if not self.of_group:
                return None
        elif self.cells is not None:
            sizes, merged = counts.sum(axis=0), len(counts)
        else:
            sizes, merged = counts.sum(axis=1), counts.shape[1]
        if METRICS[metric].of_predicted:
            sizes = np.append(sizes, self._as_matrix(counts).sum(axis=0))
        smallest = float(sizes.min())
        return smallest if smallest < clear_of_noise(self.scale, merged) else None

    def value(self, metric: str, level: float) -> Value:
        if metric == "roc_curve":
            return self._curve(level)
        if metric == "calibration_curve":
            assert self.cells is not None
            return self._of(fractions, level, at=self.cells.scores)
        if metric == "roc_auc":
            return self._area(level)
        formula, within = METRICS[metric].formula, METRICS[metric].within
        assert formula is not None
        if metric == "confusion_matrix":
            return self._whole_matrix(level)
        found = self._of(lambda c: formula(self._as_matrix(c), self._size(c)), level, within=within)
        return self._of_one_matrix(formula, found) if self.together else found

    def _of_one_matrix(self, formula: Formula, noisy: Value) -> Value:
        """Return a metric of the nearest possible matrix, like all metrics beside it.

        Accuracy and recalls then have the same sizes of classes, and an entry that noise has made
        negative is 0 for each of them. The interval is widened to the metric.
        """
        value = np.asarray(formula(on_simplex(self._as_matrix(self._counts), self.n), self.n))
        if not np.isfinite(value).all():
            return noisy
        low, high = holding(value, noisy.low, noisy.high)
        return Value(float(value), float(low), float(high))

    def _whole_matrix(self, level: float) -> Value:
        """Return nonnegative entries that add up to all records, in the order of the classes."""
        turn = -1 if self.flipped else 1

        def matrix(counts: np.ndarray) -> np.ndarray:
            return self._as_matrix(counts)[..., ::turn, ::turn]

        noisy = self._of(matrix, level, within=(0.0, math.inf))
        value = on_simplex(matrix(self._counts), self.n)
        return Value(value, *holding(value, noisy.low, noisy.high))

    def _size(self, counts: np.ndarray) -> Any:
        """Return the number of records: public, except for a group."""
        axes = tuple(range(-self._counts.ndim, 0))
        return np.maximum(counts.sum(axis=axes), 1.0) if self.of_group else self.n

    def _as_matrix(self, counts: np.ndarray) -> np.ndarray:
        return counts if self.cells is None else confusion(counts, self.cells.threshold)

    def _of(
        self,
        formula: Callable[[np.ndarray], np.ndarray],
        level: float,
        *,
        at: np.ndarray | None = None,
        within: tuple[float, float] = (0.0, 1.0),
    ) -> Value:
        """Return `formula` of the counts, with an interval from `formula` of the samples."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = formula(self._counts)
            centre = formula(on_simplex(self._counts, self.n))
            low, high = interval(found, centre, formula(self._draws), level)
        found, low, high = (np.clip(x, *within) for x in (found, low, high))
        if np.ndim(found) == 0:
            return Value(float(found), float(low), float(high))
        return Value(found, low, high, at)

    def _area(self, level: float) -> Value:
        """Return the area under the ROC curve; its interval reaches to that of unordered ties."""
        assert self.cells is not None
        found, untied = self._of(self.cells._area, level), np.zeros(len(self.cells.counts))
        inside = found.value - float(np.clip(area(self._counts, untied), 0.0, 1.0))
        return Value(found.value, max(found.low - max(inside, 0.0), 0.0), found.high)

    def _curve(self, level: float) -> Value:
        """Return the ROC curve, and a band of true positive rates at each false positive rate."""
        at, value = curve(on_simplex(self._counts, self.n))
        curves = curve(each_on_simplex(self._draws, self.n))
        drawn = np.array([np.interp(at, x, y) for x, y in zip(*curves, strict=True)])
        low, high = interval(value, value, drawn, level)
        return Value(*in_order(value, np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)), at)
