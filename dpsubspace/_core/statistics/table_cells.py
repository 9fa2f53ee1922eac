"""Releases that tables are made of: counts in cells, sums of numbers, and searches, by group.

Design note. All sums here are exact, whatever the order of the rows: weights of rows are whole
numbers of public steps (see :func:`~dpsubspace._core.rows.records.exact_steps`), and what is added
up is rounded to such steps. So no bound needs slack for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from dpsubspace._core.release.mechanisms import BoundedL1Sum, BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records, exact_steps
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.statistics.quantiles import weighted_quantiles
from dpsubspace._core.statistics.table_intervals import in_order

# Counts -----------------------------------------------------------------------------------------


def cell_total(cells: np.ndarray, n_cells: int, records: Records) -> np.ndarray:
    """How many records are in each cell; a row of a record counts as its part of the record.

    `cells` (n_rows,) are private and below `n_cells`.
    """
    return np.bincount(cells, records.weights_numpy, minlength=n_cells).astype(np.float64)


def counts_sum(counts: np.ndarray, n_tables: int = 1) -> BoundedSum:
    """Private counts of `n_tables` tables, of which a record is in one cell each.

    Proof: a row contributes a vector with a 1 for its cell in each table, of norm
    ``sqrt(n_tables)``. Two rows are apart by two such entries in each table at most, ``sqrt(2
    n_tables)``. By the lemma of ``_core/rows/records.py`` both hold for records of several rows.
    """
    return BoundedSum(counts.ravel(), math.sqrt(n_tables), math.sqrt(2 * n_tables))


def counts_l1_sum(counts: np.ndarray) -> BoundedL1Sum:
    """Private counts of one table, of which a record is in one cell, with bounds in L1 norm.

    Proof: a record that becomes null takes 1 from the count of one cell. One that is replaced takes
    1 from a count and adds 1 to another, 2 in all. By the lemma of ``_core/rows/records.py`` both
    hold for records of several rows.
    """
    return BoundedL1Sum(counts.ravel(), 1.0, 2.0)


# Sums of numbers --------------------------------------------------------------------------------


def unit_sums(
    units: np.ndarray, groups: np.ndarray, n_groups: int, records: Records
) -> tuple[np.ndarray, np.ndarray]:
    """Sums by group of u and of ``2 u^2 - 1``, for private numbers u of each row in [-1, 1].

    NaN is a missing number and brings nothing. Each has shape (n_groups,).

    The second is from -1 to 1 as well, so that it tells the sum of squares, which is half of it and
    of the number of records, with half the noise that a sum of squares has.
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
    """Private sums of :func:`unit_sums` of some columns.

    Proof: of each column a row contributes two numbers in [-1, 1] to the sums of its one group, a
    vector of norm at most ``sqrt(2 n_columns)``. Two rows are apart by at most twice that (triangle
    inequality), which two rows of one group at opposite ends reach in the first number.
    """
    bound = math.sqrt(2 * n_columns)
    return BoundedSum(values.ravel(), bound, 2 * bound)


# Quantiles --------------------------------------------------------------------------------------

# Releases of a search for quantiles, which tells 4,096 values of a column apart.
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
    a missing number. `grid` (c, 2^STAGES) has the public numbers of each column in which quantiles
    are looked for. There are :data:`STAGES` releases called `name`. Each interval covers the exact
    quantile of the group, the least value that a share of at least the level is not above, with
    probability `confidence`. Levels rise, and quantiles with them: see
    :func:`~dpsubspace._core.statistics.table_intervals.in_order`.

    Privacy: at each stage every search of a column and group has one midpoint, which is a function
    of earlier releases. They cut the numbers of the group into cells, and the counts of all cells
    are one release. A record is in one cell of one group for each column: norm ``sqrt(c)``, and
    ``sqrt(2 c)`` where it is replaced. Event: a Gaussian mechanism for each stage.

    Proof of the intervals: let B values of the group lie below a midpoint and A not below it. The
    quantile of level q is below it if ``(1 - q) B - q A > 0``, and not below it otherwise. This
    number, the lead, is a sum of released counts with known weights, so that its noise is normal
    with a known deviation, also for midpoints that follow from earlier noise. A midpoint ends the
    interval where the lead is z deviations or more from 0. It does so wrongly with probability
    ``1 - Phi(z)`` at most, and z is such that these add up to ``1 - confidence`` over the stages.
    The size of the group does not need to be known.

    A search halves what is left until noise hides on which side the quantile is, and spends its
    other stages on the ends of the interval.
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
    # The ends are midpoints, or those of the grid, where the numbers end.
    bounds = np.concatenate([grids[:, :1], middles, grids[:, -1:]], axis=1)
    found = (grids, search.estimates()), (bounds, search.low), (bounds, search.high + 1)
    shape = (c, n_groups, k)
    arrays = (np.take_along_axis(*pair, axis=1).reshape(shape) for pair in found)
    return Quantiles(*in_order(*arrays))


@dataclass
class _Search:
    """Searches side by side, (rows, levels), for places of a grid: all of it is postprocessing.

    A midpoint is known by the place that follows it. The quantile is at a place from `low` to
    `high`, as far as can be told. Of midpoints from `first` to `last` noise has hidden on which
    side it is; there are none yet where `first` is 0.
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
        """Midpoints to ask for: halfway, or between what is hidden and the farther end.

        Distances from the middle of what is hidden are halved by their logarithms: how far noise
        reaches is not known beforehand, and may be any part of the range.
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
        below, above = lead > doubt, lead < -doubt  # where the quantile is
        self.low = np.where(above, np.maximum(self.low, places), self.low)
        self.high = np.where(below, np.minimum(self.high, places - 1), self.high)
        self.high = np.maximum(self.high, self.low)  # which noise may turn round
        hidden, new = ~(below | above), self.first == 0
        self.last = np.where(hidden, np.maximum(self.last, places), self.last)
        nearer = np.where(new, places, np.minimum(self.first, places))
        self.first = np.where(hidden, nearer, self.first)
        self.asked.append(places)
        self.leads.append(lead)

    def estimates(self) -> np.ndarray:
        """Where a line through the leads within the interval is 0; its middle without a line."""
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
    ranks: Sequence[np.ndarray]  # what lies before each of them, and all

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
        """Records with a number, of each column and group."""
        return np.array([rank[-1] for rank in self.ranks])

    def before(self, edges: np.ndarray) -> np.ndarray:
        pairs = zip(self.values, self.ranks, edges, strict=True)
        return np.stack([ranks[np.searchsorted(own, edge)] for own, ranks, edge in pairs])


def exact_quantiles(
    columns: np.ndarray, groups: np.ndarray, n_groups: int, levels: np.ndarray, records: Records
) -> Quantiles:
    """The same without noise, not private; NaN where a group has no number."""
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
