"""Releases of quantiles and of ranges, by parallel noisy binary searches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.release.mechanisms import BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.remote import RemoteRows, rowwise, sum_over_parts
from dpsubspace._core.statistics.counts import SMALLEST, TOGETHER, CountedRanks, noisy_shares
from dpsubspace._core.statistics.intervals import LEAST, noisy_intervals

# Releases of a search for quantiles: a sign, 128 octaves, and 4096 steps in each.
SEARCH = 20

# Largest number of rows, for each quantile, for which columns are sorted and not counted.
_FEW = 1 << 14

# Standard deviations of the noise that a search keeps from the first and the last rank, while it
# chooses a magnitude and afterwards.
_COARSE, _FINE = 4.0, 2.0


@dataclass(frozen=True)
class _Line:
    low: np.ndarray
    high: np.ndarray
    n_levels: int

    def edge(self, place: np.ndarray) -> np.ndarray:
        """Return the least value that belongs to a place or to a later one."""
        return self._at(place - 0.5)

    def value(self, place: np.ndarray) -> np.ndarray:
        return self._at(place)

    def _at(self, place: np.ndarray) -> np.ndarray:
        share = place / (2**self.n_levels - 1)
        return self.low * (1 - share) + self.high * share


@dataclass(frozen=True)
class _Doubles:
    """Grid of numbers of few binary digits, from -2^64 to 2^64 and in their order.

    A place is 0, or a sign, an octave and an equal part of the octave. Its value is the end
    that is nearer to 0, so that integers up to ``2^(n_levels - 7)`` are values themselves.
    """

    n_levels: int
    octaves = 64

    @property
    def digits(self) -> int:
        return self.n_levels - 8

    def edge(self, place: np.ndarray) -> np.ndarray:
        code = place - 2 ** (self.n_levels - 1)
        return np.where(code > 0, self._size(code), np.nextafter(-self._size(1 - code), np.inf))

    def value(self, place: np.ndarray) -> np.ndarray:
        code = place - 2 ** (self.n_levels - 1)
        return np.where(code == 0, 0.0, np.sign(code) * self._size(np.abs(code)))

    def _size(self, code: np.ndarray) -> np.ndarray:
        octave, part = np.divmod(np.maximum(code, 1) - 1, 2**self.digits)
        return np.ldexp(1 + part / 2**self.digits, octave - self.octaves)


def rank_noise(
    noise_multiplier: float, n_columns: int, n_wanted: int, neighboring_relation: str
) -> float:
    """Return the standard deviation of an outer rank at each stage of a search."""
    doubled = 2 if neighboring_relation == "replace_one" else 1
    unit = math.sqrt(n_columns) if doubled == 1 else math.sqrt(2 * n_columns) / 2
    return noise_multiplier * unit * math.sqrt(n_wanted / (n_wanted + 1))


def noisy_quantiles(
    values: np.ndarray,
    levels: np.ndarray,
    releases: Releases,
    name: str,
    *,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
    there: np.ndarray | None = None,
) -> np.ndarray:
    """Release quantiles of several columns, by as many noisy binary searches side by side.

    The columns (n, c) are private, and `levels` (k,) are shares of the values that should lie
    below, the same for all columns. There are releases called `name`, one a stage. Each stage
    halves what is left to search, and there must be more than 8. `bounds` are public ranges of the
    columns, to search with equal steps; values outside count as the nearer end. None searches from
    -2^64 to 2^64 in steps of a constant share. `there` (c,) is the public or released share of the
    records that have a value in each column. Others must be NaN, which lies beyond all values;
    levels are shares of those that are there.

    Gives values (k, c) of the grid: the quantile, where many values are tied at it, or one of a
    rank that noise cannot tell from the one asked for. Those of a column rise with their levels:
    searches at one midpoint see one rank, and never meet again once they have gone apart.

    Privacy: at each stage, every search of a column has one midpoint, which is a function of
    earlier releases. The midpoints of a column cut the line into cells, and the counts
    of all cells of all columns are one release. A record is in one cell a column, however
    many quantiles are searched for, so it moves the vector by sqrt(c) when it becomes null and
    by at most sqrt(2 c) when it is replaced. Event: one Gaussian mechanism a stage.

    The rank of a midpoint is estimated from the cells below it and, since the number of
    records is public, from those above it. A search whose rank lies within the noise of 0 or of
    n would run off into the empty space beyond the data, where it cannot turn around: ranks
    are kept away from both ends by a public number of standard deviations. It is larger
    in the first two fifths of the stages, where a wrong turn costs orders of magnitude.
    """
    n_columns, budget, records = values.shape[1], releases.budget, releases.records_of(values)
    n = records.n
    n_levels = budget.parts[name].count
    grid = _Doubles(n_levels)
    if bounds is not None:
        low, high = (np.reshape(bound, (-1, 1)) for bound in bounds)
        grid = _Line(low, high, n_levels)
    levels = np.asarray(levels, dtype=np.float64)
    relation = budget.target.neighboring_relation
    spread = rank_noise(budget.scales[name], n_columns, len(levels), relation)
    weights = records.weights_numpy
    before = _before(values, weights, grid, len(levels))
    present = float(len(values) if weights is None else sum_over_parts(np.sum, weights))
    known = np.full((n_columns, 1), float(n)) if there is None else n * there[:, None]
    place = np.zeros((n_columns, len(levels)), dtype=np.int64)
    for stage in range(n_levels):
        spare = spread * (_COARSE if 5 * stage < 2 * n_levels else _FINE)
        margin = np.minimum(known / 2, spare)
        wanted = np.clip(levels * known, margin, known - margin)
        middle = place + 2 ** (n_levels - 1 - stage)
        cells = _Cells(grid.edge(middle))
        total = BoundedSum(
            cells.counts(before(middle), present),
            norm_bound=math.sqrt(n_columns),
            replace_bound=math.sqrt(2 * n_columns),
        )
        below = cells.ranks(releases.gaussian(name, total), n) < wanted
        place += below * 2 ** (n_levels - 1 - stage)
    return grid.value(place).T


def weighted_quantiles(
    values: np.ndarray, weights: np.ndarray | None, levels: np.ndarray
) -> np.ndarray:
    """Return exact quantiles (k, c) of columns, not private; ``inverted_cdf`` with weights."""
    if weights is None or np.all(weights == 1):
        return np.quantile(values, levels, axis=0)
    kept = weights > 0
    values, weights = values[kept], weights[kept]
    if np.all(weights == weights[0]):
        return np.quantile(values, levels, axis=0)
    order = np.argsort(values, axis=0)
    ranks = np.cumsum(weights[order], axis=0)
    found = []
    for column, rank in zip(np.take_along_axis(values, order, axis=0).T, ranks.T, strict=True):
        places = np.searchsorted(rank, levels * rank[-1] * (1 - 1e-12))
        found.append(column[np.minimum(places, len(column) - 1)])
    return np.stack(found, axis=1)


def refuse_exact_quantiles(target: Target, values: Any) -> None:
    if isinstance(values, RemoteRows) and not target.private:
        raise ValueError(
            "`epsilon`=inf takes exact quantiles, which need all values in one place: give a finite"
            " epsilon, or use the quantiles of Dask or PyArrow themselves."
        )


def _before(
    columns: np.ndarray, weights: np.ndarray | None, grid: _Line | _Doubles, n_wanted: int
) -> Callable[[np.ndarray], np.ndarray]:
    few = len(columns) <= _FEW * n_wanted
    if isinstance(grid, _Line) or grid.n_levels > SEARCH or few:  # too many cells to count
        ordered = rowwise(_Ordered, columns, weights)
        return lambda wanted: sum_over_parts(_Ordered.before, ordered, grid.edge(wanted))
    # Few columns at a time, so that their counts stay in the cache.
    groups = slices(columns.shape[1], TOGETHER)
    digits, octaves = grid.digits, grid.octaves
    counted = [CountedRanks(columns[:, some], digits, octaves, weights) for some in groups]

    def counted_before(wanted: np.ndarray) -> np.ndarray:
        pairs = zip(counted, groups, strict=True)
        return np.concatenate([ranks.before(wanted[some]) for ranks, some in pairs])

    return counted_before


class _Ordered:
    def __init__(self, columns: np.ndarray, weights: np.ndarray | None):
        self._columns, self._ranks = columns.T.astype(np.float64, order="C"), None
        if weights is None:
            self._columns.sort(axis=1)
            return
        order = np.argsort(self._columns, axis=1)
        self._columns = np.take_along_axis(self._columns, order, axis=1)
        self._ranks = np.pad(np.cumsum(weights[order], axis=1), ((0, 0), (1, 0)))

    def before(self, edges: np.ndarray) -> np.ndarray:
        pairs = zip(self._columns, edges, strict=True)
        places = np.stack([column.searchsorted(edge) for column, edge in pairs])
        return places if self._ranks is None else np.take_along_axis(self._ranks, places, axis=1)


class _Cells:
    def __init__(self, edges: np.ndarray):
        self._order = np.argsort(edges, axis=1, kind="stable")
        ordered = np.take_along_axis(edges, self._order, axis=1)
        new = np.diff(ordered, axis=1, prepend=-np.inf) > 0
        self._new = new
        # Cells that end at a new edge, and the cell after the last edge.
        self._kept = np.column_stack([new, np.ones(len(new), dtype=bool)])

    def counts(self, ranks: np.ndarray, n: float) -> np.ndarray:
        ranks = np.take_along_axis(ranks, self._order, axis=1)
        return np.diff(ranks, axis=1, prepend=0, append=n)[self._kept].astype(np.float64)

    def ranks(self, noisy: np.ndarray, n: int) -> np.ndarray:
        """Compute ranks of the edges from noisy counts: sums from both sides by their variances."""
        cells = np.zeros(self._kept.shape)
        cells[self._kept] = noisy
        share = np.cumsum(self._new, axis=1) / self._kept.sum(axis=1, keepdims=True)
        below = np.cumsum(cells, axis=1)[:, :-1]
        above = np.cumsum(cells[:, ::-1], axis=1)[:, -2::-1]
        ranks = np.empty_like(below)
        found = below * (1 - share) + (n - above) * share
        np.put_along_axis(ranks, self._order, found, axis=1)
        return ranks


def turns_up(
    found: np.ndarray, n_levels: int, *, bounds: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Return how often a search went up on its way to each value (k, c) that it has released."""
    values = np.asarray(found, dtype=np.float64).T
    grid = _Doubles(n_levels)
    if bounds is not None:
        low, high = (np.reshape(bound, (-1, 1)) for bound in bounds)
        grid = _Line(low, high, n_levels)
    place, ups = np.zeros(values.shape, dtype=np.int64), np.zeros(values.shape, dtype=np.int64)
    for stage in range(n_levels):
        middle = place + 2 ** (n_levels - 1 - stage)
        up = values >= grid.edge(middle)
        place, ups = np.where(up, middle, place), ups + up
    return ups.T


# Ranges -----------------------------------------------------------------------------------------
# Private ranges of columns: intervals that hold nearly all of the values of each.
#
# Design note. There are two ways to estimate a range. A search for quantiles takes twenty releases
# and assumes nothing: it is used if public sizes and the budget show that its noise hides no more
# rows than are to be left out, so that no turn of it is wrong but by an accident of 1 in 30,000.
# With fewer rows it would leave out all rows that noise hides, which are most rows of a small
# table. Then counts in ever smaller cells take two to four releases, and the ends are those of
# distributions that agree with all counts: hidden rows are assumed to lie where the visible ones
# suggest.

# Share of the values to leave out at either end.
LEVEL = 0.01

# Standard deviations of a rank that a search keeps from either end to take no wrong turn.
_SAFE = 4.0

# Numbers of releases of counts; the first one is used with which a column that has this share of
# the records is visible: more of them look closer, and each has more noise.
_COUNTS, _VISIBLE = (4, 3, 2), 0.25

# Part of the budget of private ranges that first counts missing values, if there may be any.
GAPS = 0.1


def range_part(
    target: Target,
    n_samples: int | None,
    n_columns: int | None,
    share: float = 1.0,
    *,
    level: float = LEVEL,
) -> Part:
    """Return the releases that estimate the ranges of columns with a `share` of the budget.

    A search for quantiles, if public sizes imply that noise hides none of them; else counts.
    """
    if not target.private or n_samples is None or n_columns is None:
        return Part(share)
    relation = target.neighboring_relation
    whole = target.multiplier(n_samples) / math.sqrt(share)
    searched = rank_noise(whole * math.sqrt(SEARCH), n_columns, 2, relation)
    if _SAFE * searched <= level * n_samples:
        return Part(share, SEARCH)
    hidden = [_hidden(whole * math.sqrt(count), n_columns, relation) for count in _COUNTS]
    visible = [c for c, rows in zip(_COUNTS, hidden, strict=True) if rows <= _VISIBLE * n_samples]
    return Part(share, max(visible, default=min(_COUNTS)))


def _hidden(multiplier: float, n_columns: int, relation: str) -> float:
    return LEAST * multiplier * math.sqrt(n_columns * (0.5 if relation == "replace_one" else 1.0))


def hidden_records(budget: Budget, name: str, n_columns: int) -> tuple[float, bool]:
    """Return the records that noise hides at each end of a column; and if a search is used."""
    multiplier, relation = budget.scales[name], budget.target.neighboring_relation
    if budget.parts[name].count == SEARCH:
        return _SAFE * rank_noise(multiplier, n_columns, 2, relation), True
    return _hidden(multiplier, n_columns, relation), False


def visible(budget: Budget, name: str, n_samples: int, n_columns: int) -> bool:
    return hidden_records(budget, name, n_columns)[0] <= _VISIBLE * n_samples


def noisy_extents(
    values: np.ndarray,
    releases: Releases,
    name: str,
    *,
    level: float = LEVEL,
    gaps: str | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release for each column an interval that leaves out a share of its values at either end.

    The columns (n, c) are private, and NaN is a missing value. There are the releases of
    :func:`range_part` called `name`. `level` is the share of the values to leave out at each end.
    `gaps` names one more release, which counts missing values; without it there are none.

    Gives low and high ends, and whether noise has left the column to be seen. A search always finds
    it.

    Privacy: that of :func:`~dpsubspace._core.statistics.quantiles.noisy_quantiles` or of
    :func:`~dpsubspace._core.statistics.intervals.noisy_intervals`, and before it that of
    :func:`~dpsubspace._core.statistics.counts.noisy_shares` for gaps. What follows is
    postprocessing.
    """
    there = None
    if gaps is not None:
        missing = np.isnan(values).astype(np.float64)
        there = 1 - np.clip(noisy_shares(missing, releases, gaps), 0, 1)
    if releases.budget.parts[name].count != SEARCH:
        return noisy_intervals(values, releases, name, level=level, there=there)
    levels = np.array([level, 1 - level])
    found = noisy_quantiles(values, levels, releases, name, there=there)
    low, high = found.min(axis=0), found.max(axis=0)
    # A search that ends beside a heap of zeros ends anywhere in the gap to the rest.
    beside = ((low == 0) & (high < SMALLEST)) | ((high == 0) & (low > -SMALLEST))
    low, high = np.where(beside, 0.0, low), np.where(beside, 0.0, high)
    return low, high, np.ones(len(low), dtype=bool)


def exact_extents(
    rows: np.ndarray, level: float = LEVEL, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return exact quantiles, rounded outwards; the extremes of a column where they coincide."""
    levels = np.array([level, 1 - level])
    if weights is not None:
        rows, weights = rows[weights > 0], weights[weights > 0]
    if weights is None or np.all(weights == 1):
        low = np.quantile(rows, level, axis=0, method="lower")
        high = np.quantile(rows, 1 - level, axis=0, method="higher")
    else:
        low, high = weighted_quantiles(rows, weights, levels)
    same = low == high
    return np.where(same, rows.min(axis=0), low), np.where(same, rows.max(axis=0), high)
