"""Releases for tables by group, and intervals for the released numbers.

Design note. The releases are counts in cells, sums of numbers, and searches. All sums here are
exact, whatever the order of the rows: weights of rows are whole numbers of public steps (see
:func:`~dpsubspace._core.rows.records.exact_steps`), and summands are rounded to such steps. So no
bound needs slack for rounding.

Intervals, and counts that add up, use no rows: all of that is postprocessing of released and public
numbers. Intervals are about noise alone, whose distribution is known exactly, and cover the exact
results on the rows.
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

from dpsubspace._core.release.mechanisms import BoundedL1Sum, BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records, exact_steps
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.statistics.quantiles import weighted_quantiles

# Counts -----------------------------------------------------------------------------------------


def cell_total(cells: np.ndarray, n_cells: int, records: Records) -> np.ndarray:
    """Count the records in each cell; a row of a record counts as its part of the record.

    `cells` (n_rows,) are private and below `n_cells`.
    """
    return np.bincount(cells, records.weights_numpy, minlength=n_cells).astype(np.float64)


def counts_sum(counts: np.ndarray, n_tables: int = 1) -> BoundedSum:
    """Return private counts of `n_tables` tables; a record is in one cell of each.

    Proof: a row contributes a vector with a 1 for its cell in each table, of norm
    ``sqrt(n_tables)``. Two rows are apart by two such entries in each table at most, ``sqrt(2
    n_tables)``. By the lemma of ``_core/rows/records.py`` both hold for records of several rows.
    """
    return BoundedSum(counts.ravel(), math.sqrt(n_tables), math.sqrt(2 * n_tables))


def counts_l1_sum(counts: np.ndarray) -> BoundedL1Sum:
    """Return private counts of one table, where a record is in one cell, with L1 bounds.

    Proof: a record that becomes null takes 1 from the count of one cell. One that is replaced takes
    1 from a count and adds 1 to another, 2 in all. By the lemma of ``_core/rows/records.py`` both
    hold for records of several rows.
    """
    return BoundedL1Sum(counts.ravel(), 1.0, 2.0)


# Sums of numbers --------------------------------------------------------------------------------


def unit_sums(
    units: np.ndarray, groups: np.ndarray, n_groups: int, records: Records
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums by group of u and of ``2 u^2 - 1``, for private u of each row in [-1, 1].

    NaN is a missing number and contributes nothing. Each has shape (n_groups,).

    The second is from -1 to 1 as well. The sum of squares is half of the second sum plus half of
    the number of records, with half the noise that a sum of squares has.
    """
    weights, to_one = records.weights_numpy, exact_steps(records.n)
    steps = to_one if weights is None else weights * to_one  # whole numbers
    there = ~np.isnan(units)
    plain = np.where(there, units, 0.0)
    square = np.where(there, 2 * plain * plain - 1, 0.0)
    # A whole number times one in [-1, 1], rounded, is no larger than that whole number.
    sums = (
        np.bincount(groups, np.rint(steps * values), n_groups) / to_one
        for values in (plain, square)
    )
    first, second = sums
    return first, second


def unit_total(values: np.ndarray, n_columns: int) -> BoundedSum:
    """Return private sums of :func:`unit_sums` of several columns.

    Proof: for each column a row contributes two numbers in [-1, 1] to the sums of its one group, a
    vector of norm at most ``sqrt(2 n_columns)``. Two rows are apart by at most twice that (triangle
    inequality), which two rows of one group at opposite ends reach in the first number.
    """
    bound = math.sqrt(2 * n_columns)
    return BoundedSum(values.ravel(), bound, 2 * bound)


# Quantiles --------------------------------------------------------------------------------------

# Releases of a search for quantiles, which distinguishes 4,096 values of a column.
STAGES = 12


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of columns by group, each with an interval: arrays (columns, groups, levels)."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


def searched_quantiles(
    columns: np.ndarray,
    groups: np.ndarray,
    n_groups: int,
    grid: np.ndarray,
    levels: np.ndarray,
    releases: Releases,
    name: str,
    *,
    confidence: float,
) -> Quantiles:
    """Release quantiles of columns (n, c) in each of some groups, by noisy binary searches.

    Columns and `groups` (n,) are private: rows of group `n_groups` or more are in none, and NaN is
    a missing number. `grid` (c, 2^STAGES) has the public numbers of each column among which
    quantiles are searched. There are :data:`STAGES` releases called `name`. Each interval covers
    the exact quantile of the group, the least value that a share of at least the level is not
    above, with probability `confidence`. Levels rise, and quantiles with them: see
    :func:`~dpsubspace._core.statistics.table_cells.in_order`.

    Privacy: at each stage every search of a column and group has one midpoint, which is a function
    of earlier releases. The midpoints cut the numbers of the group into cells, and the counts of
    all cells are one release. A record is in one cell of one group for each column: norm
    ``sqrt(c)``, and ``sqrt(2 c)`` if it is replaced. Event: a Gaussian mechanism for each stage.

    Proof of the intervals: let B values of the group lie below a midpoint and A not below it. The
    quantile of level q is below it if ``(1 - q) B - q A > 0``, and not below it otherwise. This
    number, the lead, is a sum of released counts with known weights, so that its noise is normal
    with a known deviation, also for midpoints that follow from earlier noise. A midpoint ends the
    interval where the lead is z deviations or more from 0. It does so wrongly with probability
    ``1 - Phi(z)`` at most, and z is such that these add up to ``1 - confidence`` over the stages.
    The size of the group does not need to be known.

    A search halves the remaining places until noise hides on which side the quantile is, and spends
    its other stages on the ends of the interval.
    """
    records, k, c = releases.records_of(columns), len(levels), columns.shape[1]
    ranks, m = rowwise(_Ranks.of, columns, groups, n_groups, records), c * n_groups
    totals = sum_over_parts(_Ranks.all, ranks)
    grids = np.repeat(grid, n_groups, axis=0)
    middles = (grids[:, 1:] + grids[:, :-1]) / 2
    search = _Search.of(m, k, grid.shape[1])
    z = float(ndtri(1 - (1 - confidence) / STAGES))
    for _ in range(STAGES):
        places = search.next()
        edges = np.take_along_axis(middles, places - 1, axis=1)
        order = np.argsort(edges, axis=1, kind="stable")
        before = sum_over_parts(_Ranks.before, ranks, np.take_along_axis(edges, order, axis=1))
        cells = np.diff(before, axis=1, prepend=0.0, append=totals[:, None])
        total = counts_sum(cells, c)
        noisy = releases.gaussian(name, total).reshape(m, k + 1)
        rank = np.argsort(order, axis=1)
        below = np.take_along_axis(np.cumsum(noisy, axis=1), rank, axis=1)
        above = noisy.sum(axis=1, keepdims=True) - below
        spread = np.sqrt((1 - levels) ** 2 * (rank + 1) + levels**2 * (k - rank))
        lead = (1 - levels) * below - levels * above
        search.learn(places, lead, z * releases.noise_of(name, total) * spread)
    # The ends are midpoints, or the ends of the grid, where the numbers end.
    bounds = np.concatenate([grids[:, :1], middles, grids[:, -1:]], axis=1)
    found = (grids, search.estimates()), (bounds, search.low), (bounds, search.high + 1)
    shape = (c, n_groups, k)
    arrays = (np.take_along_axis(*pair, axis=1).reshape(shape) for pair in found)
    return Quantiles(*in_order(*arrays))


@dataclass
class _Search:
    """Parallel searches, (rows, levels), for places of a grid: all of it is postprocessing.

    A midpoint is identified by the place that follows it. The quantile is at a place from `low` to
    `high`, as far as the releases show. For midpoints from `first` to `last` noise has hidden on
    which side the quantile is; there are none yet while `first` is 0.
    """

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    last: np.ndarray
    asked: list[np.ndarray]
    leads: list[np.ndarray]

    @classmethod
    def of(cls, n_rows: int, n_levels: int, n_places: int) -> _Search:
        nothing = [np.zeros((n_rows, n_levels), dtype=np.intp) for _ in range(3)]
        low, first, last = nothing
        return cls(low, np.full_like(low, n_places - 1), first, last, [], [])

    def next(self) -> np.ndarray:
        """Return the next midpoints: halfway, or between the hidden places and the farther end.

        Distances from the middle of the hidden places are halved on a logarithmic scale: how far
        noise reaches is not known beforehand, and may be any part of the range.
        """
        middle = (self.first + self.last) / 2
        hidden = np.maximum((self.last - self.first) / 2, 0.5)
        down = np.maximum(middle - self.low, 0.5)
        up = np.maximum(self.high + 1 - middle, 0.5)
        below = np.rint(middle - np.sqrt(hidden * down)).astype(np.intp)
        above = np.rint(middle + np.sqrt(hidden * up)).astype(np.intp)
        outside = np.where(
            down >= up, np.minimum(below, self.first - 1), np.maximum(above, self.last + 1)
        )
        places = np.where(self.first == 0, (self.low + self.high + 1) // 2, outside)
        return np.clip(places, np.minimum(self.low + 1, self.high), np.maximum(self.high, 1))

    def learn(self, places: np.ndarray, lead: np.ndarray, doubt: np.ndarray) -> None:
        below, above = lead > doubt, lead < -doubt  # side of the quantile
        self.low = np.where(above, np.maximum(self.low, places), self.low)
        self.high = np.where(below, np.minimum(self.high, places - 1), self.high)
        self.high = np.maximum(self.high, self.low)  # noise may reverse them
        hidden, new = ~(below | above), self.first == 0
        self.last = np.where(hidden, np.maximum(self.last, places), self.last)
        nearer = np.where(new, places, np.minimum(self.first, places))
        self.first = np.where(hidden, nearer, self.first)
        self.asked.append(places)
        self.leads.append(lead)

    def estimates(self) -> np.ndarray:
        """Return zeros of lines through the leads in the interval; its middle without a line."""
        x, y = np.stack(self.asked).astype(float), np.stack(self.leads)
        near = ((x >= self.low) & (x <= self.high + 1)).astype(float)
        n = np.maximum(near.sum(axis=0), 1.0)
        mean, level = (near * x).sum(axis=0) / n, (near * y).sum(axis=0) / n
        square = (near * (x - mean) ** 2).sum(axis=0)
        slope = (near * (x - mean) * y).sum(axis=0) / np.where(square > 0, square, 1.0)
        middle = (self.low + self.high) / 2
        crossing = mean - level / np.where(slope > 0, slope, 1.0)
        found = np.where(slope > 0, np.clip(crossing, self.low, self.high), middle)
        return np.rint(found).astype(np.intp)


@dataclass(frozen=True)
class _Ranks:
    values: Sequence[np.ndarray]  # of each column and group, in order
    ranks: Sequence[np.ndarray]  # numbers before each of them, and all

    @classmethod
    def of(cls, columns: np.ndarray, groups: np.ndarray, n_groups: int, records: Records) -> _Ranks:
        values, ranks, weights = [], [], records.weights_numpy
        members = [np.flatnonzero(groups == group) for group in range(n_groups)]
        for column in columns.T:
            for rows in members:
                there = rows[~np.isnan(column[rows])]
                own = column[there]
                if weights is None:
                    values.append(np.sort(own))
                    ranks.append(np.arange(len(own) + 1.0))
                else:
                    order = np.argsort(own)
                    values.append(own[order])
                    ranks.append(np.concatenate([[0.0], np.cumsum(weights[there][order])]))
        return cls(values, ranks)

    def all(self) -> np.ndarray:
        """Return the number of records with a value, of each column and group."""
        return np.array([rank[-1] for rank in self.ranks])

    def before(self, edges: np.ndarray) -> np.ndarray:
        pairs = zip(self.values, self.ranks, edges, strict=True)
        return np.stack([ranks[np.searchsorted(own, edge)] for own, ranks, edge in pairs])


def exact_quantiles(
    columns: np.ndarray, groups: np.ndarray, n_groups: int, levels: np.ndarray, records: Records
) -> Quantiles:
    """Return quantiles without noise, not private; NaN if a group has no number."""
    found, weights = (
        np.full((columns.shape[1], n_groups, len(levels)), np.nan),
        records.weights_numpy,
    )
    for place, column in enumerate(columns.T):
        for group in range(n_groups):
            there = (groups == group) & ~np.isnan(column)
            there &= True if weights is None else weights > 0
            if there.any():
                own = None if weights is None else weights[there]
                found[place, group] = weighted_quantiles(column[there][:, None], own, levels)[:, 0]
    return Quantiles(found, found, found)


# Intervals --------------------------------------------------------------------------------------

# Number of points at which a distribution of the variance of noise is evaluated.
_POINTS = 2001

# Most rounds of a projection, and most entries that it uses; and the error in records that is
# allowed, before the rest is scaled away and after that.
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
        """Return a bound on the absolute noise of a sum of cells, with probability `level`."""
        if self.scale == 0:
            return 0.0
        if self.mechanism == "gaussian":
            return self.scale * math.sqrt(n_cells) * float(ndtri((1 + level) / 2))
        return self.scale * _laplace_quantile(n_cells, level)

    def positive(self, count: float = 0.5) -> float:
        """Return the probability that the noise of one count is more than `count`."""
        if self.scale == 0:
            return 0.0
        if self.mechanism == "gaussian":
            return float(ndtr(-count / self.scale))
        return 0.5 * math.exp(-count / self.scale)


@lru_cache(maxsize=256)
def _laplace_quantile(n_terms: int, level: float) -> float:
    """Return a bound, with probability `level`, on the size of a sum of Laplace variables.

    They have the scale 1. Such a variable is normal with a variance that is twice an exponential
    variable, so that a sum is normal with twice a Gamma variable.
    """
    if n_terms == 1:
        return -math.log1p(-level)
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    deviations = np.sqrt(2 * gammaincinv(n_terms, shares))

    def beyond(size: float) -> float:
        return float(np.mean(2 * ndtr(-size / deviations))) - (1 - level)

    # A little is added for values between the points.
    most = 50.0 * math.sqrt(n_terms) - 10 * math.log1p(-level)
    found: Any = brentq(beyond, 0.0, most)
    return 1.001 * float(found)


def around(noisy: np.ndarray, half: float, n: float) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals of counts from 0 to `n`; noise is at most `half` with some probability.

    They cover with at least that probability. Moving a noisy count to the nearest possible count
    takes it no farther from the exact count, which is possible. So if noise is at most `half`, the
    interval around it covers, and so does the possible part of it. No interval is one point unless
    there is no noise.
    """
    possible = np.clip(noisy, 0.0, n)
    return np.maximum(possible - half, 0.0), np.minimum(possible + half, n)


def holding(value: Any, low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """Widen intervals to values that were moved to agree with others."""
    return np.minimum(low, value), np.maximum(high, value)


def in_order(
    values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort quantiles (..., levels) along the last axis, as their levels are, with intervals.

    Values are sorted. No interval becomes shorter: each begins at the lowest of its own and all
    later beginnings, and ends at the highest of its own and all earlier ends. So each covers
    whenever it did before. It also holds its value: of the k lowest values one is the k-th or
    a later one, which is no lower than the new beginning, and likewise for the end.
    """
    begin = np.minimum.accumulate(low[..., ::-1], axis=-1)[..., ::-1]
    return np.sort(values, axis=-1), begin, np.maximum.accumulate(high, axis=-1)


# Counts that add up -----------------------------------------------------------------------------


def onto_total(counts: np.ndarray, total: float) -> np.ndarray:
    """Return the nonnegative counts that add up to `total` and are nearest to `counts`.

    All are lowered by one number, and negative results then become 0 (Held, Wolfe, Crowder, 1974).
    """
    if total <= 0:
        return np.zeros(counts.shape)
    flat = counts.ravel()
    ordered = np.sort(flat)[::-1]
    shifts = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    last = int(np.flatnonzero(ordered > shifts)[-1])
    return np.maximum(counts - shifts[last], 0.0)


def onto_total_of_seen(counts: np.ndarray, total: float, unseen: int | None) -> np.ndarray:
    """Return the same with the count at one place set to 0: at no place if `unseen` is None.

    So a count that noise hides, and a table leaves out, does not keep the others from adding up.
    """
    if unseen is None:
        return onto_total(counts, total)
    return np.insert(onto_total(np.delete(counts, unseen), total), unseen, 0.0)


def onto_margins(counts: np.ndarray, margins: Sequence[np.ndarray]) -> np.ndarray:
    """Return nonnegative counts of a cross table with these `margins`, near to `counts`.

    The margins are those of single columns, not negative, and of one total. Projections onto tables
    with these margins and onto those without negative counts alternate (Dykstra, 1983), and the
    remaining difference from the margins is scaled away.
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
    """Return the nearest table with these margins: differences are shared out evenly."""
    found, total = counts.copy(), float(np.sum(margins[0]))
    for axis, margin in enumerate(margins):
        rest = counts.size // counts.shape[axis]
        found += _along((margin - _sum_but(counts, axis)) / rest, axis, counts.ndim)
    return found - (counts.ndim - 1) * (total - counts.sum()) / counts.size


def _sum_but(counts: np.ndarray, axis: int) -> np.ndarray:
    return counts.sum(axis=tuple(other for other in range(counts.ndim) if other != axis))


def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    return values.reshape([-1 if each == axis else 1 for each in range(ndim)])


# Tables by group that agree on the sizes of groups ----------------------------------------------


@dataclass(frozen=True)
class GroupedCounts:
    """Counts (groups, cells) of one column, with variances that describe their normal noise."""

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
    """Combine tables of counts with one normal noise, given that all add up to `n`.

    Each table has shape (groups, cells), and every record is in one cell of each. By least squares:
    the margins of the tables are estimates of the sizes of groups, with variances in proportion to
    their numbers of cells. Their weighted mean is shifted to add up to `n`, and the counts of a
    group are shifted equally to add up to its size. The difference of a count from the mean of its
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
    """Two released numbers with normal noise, whose quotient is wanted."""

    above: float
    below: float
    above_variance: float = 0.0
    below_variance: float = 0.0
    covariance: float = 0.0

    def value(self, low: float, high: float) -> float:
        """Return the quotient, within its possible range; the middle if it is not determined."""
        if self.below <= 0:
            return (low + high) / 2
        return min(max(self.above / self.below, low), high)

    def interval(self, level: float, low: float, high: float) -> tuple[float, float]:
        """Return an interval that has the exact quotient with probability `level` (Fieller, 1954).

        The quotient is r if ``above - r below`` has mean 0, and this difference is normal with a
        variance that is known for each r. The interval has each r at which the difference is not
        too far from 0, clipped to the possible range, from `low` to `high`. If these r are no
        interval, the whole range is returned.

        A numerator that makes the quotient impossible is moved to the nearest end first. The
        difference then comes nearer to 0 for each possible r, so that the interval has all possible
        r that it would have otherwise, and more than one point.
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
