"""Intervals for numbers of a table from what was released, and counts that add up.

Nothing here sees a row: all of it is postprocessing of released and public numbers. Intervals are
about noise alone, whose distribution is known exactly, and cover what the rows themselves give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr, ndtri

# Points at which a distribution of the variance of noise is looked at.
_POINTS = 2001

# Most rounds of a projection, and of entries that it looks at; and records that it may be off by,
# before what is left is scaled away and after that.
_ROUNDS, _WORK = 1000, 100_000_000
_NEAR, _CLOSE = 1e-3, 1e-6


# Noise ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountNoise:
    """Noise of released counts: Gaussian of a standard deviation, or Laplace of a scale."""

    mechanism: str  # "gaussian" or "laplace"
    scale: float

    @property
    def deviation(self) -> float:
        return self.scale * (math.sqrt(2) if self.mechanism == "laplace" else 1.0)

    def half_width(self, level: float, n_cells: int = 1) -> float:
        """What the noise of a sum of cells is below in size with the probability `level`."""
        if self.scale == 0:
            return 0.0
        if self.mechanism == "gaussian":
            return self.scale * math.sqrt(n_cells) * float(ndtri((1 + level) / 2))
        return self.scale * _laplace_quantile(n_cells, level)

    def positive(self, count: float = 0.5) -> float:
        """How likely the noise of one count is to be more than `count`."""
        if self.scale == 0:
            return 0.0
        if self.mechanism == "gaussian":
            return float(ndtr(-count / self.scale))
        return 0.5 * math.exp(-count / self.scale)


@lru_cache(maxsize=256)
def _laplace_quantile(n_terms: int, level: float) -> float:
    """What a sum of Laplace variables of scale 1 is below in size with probability `level`.

    Such a variable is normal with a variance that is twice an exponential one, so that a sum is
    normal with twice a Gamma variable.
    """
    if n_terms == 1:
        return -math.log1p(-level)
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    deviations = np.sqrt(2 * gammaincinv(n_terms, shares))

    def beyond(size: float) -> float:
        return float(np.mean(2 * ndtr(-size / deviations))) - (1 - level)

    # A little is added for what lies between the points.
    most = 50.0 * math.sqrt(n_terms) - 10 * math.log1p(-level)
    found: Any = brentq(beyond, 0.0, most)
    return 1.001 * float(found)


def around(noisy: np.ndarray, half: float, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of counts from 0 to `n`, whose noise is at most `half` in size with some chance.

    They cover with that chance at least. To bring a noisy count to the nearest one that is possible
    takes it no farther from the exact count, which is possible. So where noise is at most `half`,
    the interval around it covers, and so does the possible part of it. No interval is one
    point unless there is no noise.
    """
    possible = np.clip(noisy, 0.0, n)
    return np.maximum(possible - half, 0.0), np.minimum(possible + half, n)


def holding(value: Any, low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """Intervals that are widened to their values, where these were moved to agree with others."""
    return np.minimum(low, value), np.maximum(high, value)


def in_order(
    values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantiles (..., levels) that rise along the last axis, as their levels do, with intervals.

    Values are sorted. No interval becomes shorter: each begins at the lowest of its own and all
    later beginnings, and ends at the highest of its own and all earlier ends. So each covers
    whenever it did before. It also holds its value: of the k lowest values one is the k-th or
    a later one, which is no lower than the new beginning, and likewise for the end.
    """
    begin = np.minimum.accumulate(low[..., ::-1], axis=-1)[..., ::-1]
    return np.sort(values, axis=-1), begin, np.maximum.accumulate(high, axis=-1)


# Counts that add up -----------------------------------------------------------------------------


def onto_total(counts: np.ndarray, total: float) -> np.ndarray:
    """Counts without a negative one that add up to `total` and are nearest to `counts`.

    All are lowered by one number, and what is below 0 then becomes 0 (Held, Wolfe, Crowder, 1974).
    """
    if total <= 0:
        return np.zeros(counts.shape)
    flat = counts.ravel()
    ordered = np.sort(flat)[::-1]
    shifts = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    last = int(np.flatnonzero(ordered > shifts)[-1])
    return np.maximum(counts - shifts[last], 0.0)


def onto_total_of_seen(counts: np.ndarray, total: float, unseen: int | None) -> np.ndarray:
    """The same, of which the count at one place is taken to be 0: none where that is None.

    So what noise hides, and a table leaves out, does not keep the others from adding up.
    """
    if unseen is None:
        return onto_total(counts, total)
    return np.insert(onto_total(np.delete(counts, unseen), total), unseen, 0.0)


def onto_margins(counts: np.ndarray, margins: Sequence[np.ndarray]) -> np.ndarray:
    """Counts of a cross table without a negative one that have `margins`, near to `counts`.

    The margins are those of single columns, not negative, and of one total. Projections onto
    tables with these margins and onto those without negative counts take turns (Dykstra, 1983),
    and what is left to the margins is scaled away.
    """
    found, correction = np.array(counts, dtype=np.float64), np.zeros(counts.shape)
    for _ in range(min(_ROUNDS, 10 + _WORK // counts.size)):
        near = _with_margins(found, margins)
        found = np.maximum(near + correction, 0.0)
        correction += near - found
        if np.abs(near - found).max() < _NEAR:
            break
    for _ in range(min(_ROUNDS, 10 + _WORK // counts.size)):
        off = 0.0
        for axis, margin in enumerate(margins):
            own = _sum_but(found, axis)
            off = max(off, float(np.abs(own - margin).max()))
            ratio = np.divide(margin, own, out=np.zeros(len(own)), where=own > 0)
            found = found * _along(ratio, axis, found.ndim)
        if off < _CLOSE:
            break
    return found


def _with_margins(counts: np.ndarray, margins: Sequence[np.ndarray]) -> np.ndarray:
    """The nearest table with some margins: what is missing is shared out evenly."""
    found, total = counts.copy(), float(np.sum(margins[0]))
    for axis, margin in enumerate(margins):
        rest = counts.size // counts.shape[axis]
        found += _along((margin - _sum_but(counts, axis)) / rest, axis, counts.ndim)
    return found - (counts.ndim - 1) * (total - counts.sum()) / counts.size


def _sum_but(counts: np.ndarray, axis: int) -> np.ndarray:
    return counts.sum(axis=tuple(other for other in range(counts.ndim) if other != axis))


def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    return values.reshape([-1 if each == axis else 1 for each in range(ndim)])


# Tables by group that agree on the sizes of groups -----------------------------------------------


@dataclass(frozen=True)
class GroupedCounts:
    """Counts (groups, cells) of one column, and variances: all that normal noise leaves to know."""

    counts: np.ndarray  # least squares, which may be negative
    variance: float  # of each of them
    common: float  # covariance of two of one group


@dataclass(frozen=True)
class GroupSizes:
    counts: np.ndarray  # (groups,)
    variance: float


def agreeing(
    tables: Sequence[np.ndarray], deviation: float, n: float
) -> tuple[GroupSizes, list[GroupedCounts]]:
    """What tables of counts with one normal noise say together, given that all add up to `n`.

    Each table has shape (groups, cells), and every record is in one cell of each. Least squares:
    the margins of the tables are estimates of the sizes of groups, of variances in proportion to
    their numbers of cells. Their weighted mean is shifted to add up to `n`, and the counts of a
    group are shifted alike to add up to its size. What is left of a count beside the mean of its
    group is independent of all margins, so that variances follow.
    """
    square, n_groups = deviation**2, len(tables[0])
    widths = np.array([table.shape[1] for table in tables], dtype=float)
    weights = (1 / widths) / np.sum(1 / widths)
    sizes = np.sum(
        [w * table.sum(axis=1) for w, table in zip(weights, tables, strict=True)], axis=0
    )
    sizes = sizes + (n - sizes.sum()) / n_groups
    of_size = square / float(np.sum(1 / widths)) * (1 - 1 / n_groups)
    found = []
    for table, width in zip(tables, widths, strict=True):
        counts = table + ((sizes - table.sum(axis=1)) / width)[:, None]
        common = of_size / width**2 - square / width
        found.append(GroupedCounts(counts, square + common, common))
    return GroupSizes(sizes, of_size), found


# Ratios -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """Two released numbers with normal noise, of which the quotient is asked for."""

    above: float
    below: float
    above_variance: float = 0.0
    below_variance: float = 0.0
    covariance: float = 0.0

    def value(self, low: float, high: float) -> float:
        """The quotient, within what it can be at all; the middle where it says nothing."""
        if self.below <= 0:
            return (low + high) / 2
        return min(max(self.above / self.below, low), high)

    def interval(self, level: float, low: float, high: float) -> tuple[float, float]:
        """Where the quotient of the exact numbers is with probability `level` (Fieller, 1954).

        It is r if ``above - r below`` has mean 0, and this difference is normal with a variance
        that is known for each r. The interval has the r at which it is not too far from 0, cut to
        what is possible at all, from `low` to `high`. If it is no interval, all of that is given.

        A numerator that makes the quotient impossible is brought to the nearest end first. The
        difference then comes nearer to 0 for each r that is possible, so that the interval has all
        possible r that it would have otherwise, and more than one point.
        """
        z = float(ndtri((1 + level) / 2))
        a = self.below**2 - z**2 * self.below_variance
        if a <= 0 or self.below <= 0:
            return low, high
        above = min(max(self.above, low * self.below), high * self.below)
        b = above * self.below - z**2 * self.covariance
        c = above**2 - z**2 * self.above_variance
        root = math.sqrt(max(b * b - a * c, 0.0))
        ends = (b - root) / a, (b + root) / a
        return min(max(ends[0], low), high), max(min(ends[1], high), low)
