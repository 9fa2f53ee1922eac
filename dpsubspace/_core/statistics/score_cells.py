"""Counts of private rows in cells of score and label, and results from these counts.

Design note. A cell has one more row or one less, wherever the row lies, so that all cells together
cost as much as one count; and all metrics of a classifier follow from the distribution of scores
and labels. Noise is Laplace noise: if a record moves one count, it has less spread than Gaussian
noise of the same guarantee, by a factor of 2.6 at epsilon 1 and delta 1e-5, and no delta. Fewer
cells have less noise, and hide the order of the scores in a cell. That costs less than it seems:
the likelihood of the positive class changes smoothly from cell to cell, which shows how the two
classes are ordered inside of one (:func:`within_cells`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import EPS
from dpsubspace._core.release.mechanisms import BoundedL1Sum, BoundedScores, BoundedSum, score_sum
from dpsubspace._core.rows.records import Records, exact_steps
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._names import public

# Roots and ranks --------------------------------------------------------------------------------
# Scores of candidates by how near a sum over records is to zero there, or a rank to a given one.
#
# Both find in one release, with no delta, what a search would need many releases for: the
# exponential mechanism on the distance by which a candidate misses its target (the inverse
# sensitivity mechanism of Asi and Duchi, 2020).

# Finest multiples that are added up, and the largest number of steps of an exact sum.
_FINEST_ROOTS, _EXACT_ROOTS = 2.0**40, 2.0**51


def sums_of_records(columns: Iterable[np.ndarray], records: Records) -> tuple[np.ndarray, float]:
    """Return sums over records of numbers in [-1, 1], one for each column, and their slack.

    Columns have the contributions of rows, which are clipped to [-1, 1], and NaN counts as 0. A
    record contributes the mean of its rows, and nothing if it is null.

    The contribution of a record is rounded to a multiple of a public step, so that sums are exact
    in any order. If the rows of one record are at other positions because of another record, its
    contribution may be rounded otherwise, by one step. The slack is that for all records: a sum
    moves between neighbours by the contribution of their one record, and at most as much more.
    """
    steps = min(2.0 ** np.floor(np.log2(_EXACT_ROOTS / records.n)), _FINEST_ROOTS)
    weights, found = records.weights_numpy, []
    for column in columns:
        brought = np.nan_to_num(np.clip(column, -1.0, 1.0))
        if records.index is not None:
            brought = np.bincount(records.index, brought * weights, minlength=records.n)
        elif weights is not None:
            brought = brought * weights
        found.append(np.rint(np.clip(brought, -1.0, 1.0) * steps).sum())
    return np.array(found) / steps, records.n / steps


def root_scores(totals: np.ndarray, slack: float, public: np.ndarray) -> BoundedScores:
    """Score each candidate by how near its sum is to zero.

    The private `totals` (n_candidates, p) are sums over records at each candidate, of vectors of
    norm at most 1. `slack` is how far rounding moves a sum between neighbours, in L2 norm. `public`
    (n_candidates,) is an addition to the score of a candidate, by public knowledge.

    Proof: the score is minus the length of the sum. A record that becomes null takes a vector of
    norm at most 1 out of each, which changes each length by a number in [-1, 1], and one that is
    replaced by a number in [-2, 2]. The moves of two candidates differ by at most 2, and 4.
    """
    scores = public - np.sqrt((totals**2).sum(axis=1))
    return BoundedScores(scores, 2 * (1 + slack), 2 * (2 + slack))


def rank_scores(counts: np.ndarray, rank: float) -> BoundedScores:
    """Score each candidate by how near it is to the value of a rank.

    The private `counts` (n_candidates,) are the records at each candidate, in their order; a record
    of several rows contributes parts that add up to at most 1. The rank is public.

    Score: minus the distance of `rank` from the ranks of a candidate, which go from the number of
    records below it to that number plus the records at it. The value of the rank has a score of 0,
    however many records are tied there. Proof of the bounds: whether a record becomes null or is
    replaced, both numbers move by at most 1 each, and so does the distance, which is the largest
    of 0, one of them less `rank`, and `rank` less the other. The moves of two candidates differ by
    at most 2 in either relation.
    """
    up_to = np.cumsum(counts)
    missed = np.maximum(np.maximum(up_to - counts - rank, rank - up_to), 0.0)
    return BoundedScores(-missed, 2.0, 2.0)


# Scores of candidates ---------------------------------------------------------------------------
# Scores of candidates, added up over records without rounding.

# If records may move by rounding, a step is larger than that.
_FINEST_SCORES = 2.0**40

# Sums of so many steps are exact, with room for public scores.
_EXACT_SCORES = 2.0**51


class ScoreTotal:
    """Sum over records of one number in [0, 1] for each of some candidates.

    Records, if given, have a row each, and a null one contributes exactly 0 to all candidates.
    `n_moving` is the public number of records whose contribution may be rounded otherwise because
    of the rows of another record.

    Bounds: those of :func:`~dpsubspace._core.release.mechanisms.score_sum`. The contribution of a
    record is rounded to whole steps of :func:`~dpsubspace._core.rows.records.exact_steps`, whose
    sum is exact in any order. If other records may move by rounding, each moves by one step at
    most, and two of its scores by two steps apart. Steps are then as small as exact sums of so many
    allow.
    """

    def __init__(self, n_candidates: int, records: Records | None = None, n_moving: int = 0):
        self._total = np.zeros(n_candidates)
        self._present = None if records is None else records.present
        self._steps = exact_steps(1 if records is None else records.n)
        if n_moving:
            self._steps = min(2.0 ** np.floor(np.log2(_EXACT_SCORES / n_moving)), _FINEST_SCORES)
        self._slack = 2 * n_moving / self._steps

    def add(self, rows: Any, scores: np.ndarray) -> None:
        """Add scores (k, n_candidates) of a slice, clipped to [0, 1]; NaN counts as 0."""
        whole = np.rint(np.nan_to_num(np.clip(scores, 0.0, 1.0)) * self._steps)
        if self._present is not None:
            whole = np.where(self._present[rows, None], whole, 0.0)
        self._total += whole.sum(axis=0)

    def bounded_sum(self, *public: float) -> BoundedScores:
        """Return the total, followed by public scores of further candidates, rounded as well."""
        steps = self._steps
        total = score_sum(np.append(self._total, np.rint(np.multiply(public, steps))) / steps)
        norm, apart = (b + self._slack for b in (total.norm_bound, total.replace_bound))
        return replace(total, norm_bound=norm, replace_bound=apart)


def score_total(values: Any, records: Records) -> BoundedSum:
    """Return the sum over records of one number in [0, 1] each; rows have parts of their record.

    Numbers outside of [0, 1] count as the nearer end, and NaN as 0.

    Proof of the bounds: the contribution of a record is an average of such numbers, and 0 for a
    null record, rounded to whole steps of :func:`~dpsubspace._core.rows.records.exact_steps`, whose
    sums are exact in any order. So a record that becomes null takes away a number in [0, 1], and
    one that is replaced moves the sum by a number in [-1, 1]: by at most 1 either way.
    """
    steps, weights = exact_steps(records.n), records.weights_numpy
    values = np.nan_to_num(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0))
    values = values if weights is None else values * weights
    if records.index is not None:
        values = np.minimum(np.bincount(records.index, values, minlength=records.n), 1.0)
    total = float(np.rint(values * steps).sum()) / steps
    return BoundedSum(np.array([total]), 1.0, 1.0)


# Cells of scores --------------------------------------------------------------------------------

# Number of cells of the grid for edges, and the largest log-odds and decision value on it.
FINE = 64
_TOP = {True: 12.0, False: 1e6}

# Values smaller than this lie in the cells beside 0, and cells beyond grow by a factor each. Half
# of a log-odds is little; decision values may be of any size.
_NEAR = {True: 0.5, False: 1e-3}

# Number of cells of errors by size: half octaves below 1, and one for smaller errors.
ERRORS = 41

# Sums of so many steps are exact in float64, and no step is smaller than one over the second.
_EXACT, _FINEST = 2.0**52, 2.0**40

# Weights of neighbours, by their distance, for the slope of the share of a class.
_NEARBY = {0: 1.0, 1: 1.0, 2: 0.1}

# Number of points in a cell over which its typical score is averaged.
_INSIDE = 32


# Sums with low sensitivity --------------------------------------------------------------------


def counted(cells: np.ndarray, n_cells: int, records: Records) -> BoundedL1Sum:
    """Count the records that have each of the numbers 0, ..., n_cells - 1 in `cells`.

    Cells are (n_rows,), in one list, or (n_rows, k) in each of k lists; the counts of the lists are
    concatenated.

    Proof of the bounds: a row is in one cell of each list, so that a null record takes 1 from one
    count of each, and a replaced one moves two counts of each by 1. The cell may depend on anything
    in the row, such as the public group that it belongs to: so all groups are released together for
    the same bounds, 1 if a record becomes null, and 2 if it is replaced and may leave one group for
    another. A record of several rows contributes parts of it that add up to at most 1, in however
    many groups (see :mod:`~dpsubspace._core.rows.records`); sums of such parts are exact.
    """
    k = 1 if cells.ndim == 1 else cells.shape[1]
    return BoundedL1Sum(sum_over_parts(_counted, cells, n_cells, records), 1.0 * k, 2.0 * k)


def _counted(cells: np.ndarray, n_cells: int, records: Records) -> np.ndarray:
    weights, lists = records.weights_numpy, np.atleast_2d(cells.T)
    totals = [np.bincount(each, weights, minlength=n_cells).astype(np.float64) for each in lists]
    return np.concatenate(totals)


def count_sum(cells: np.ndarray, n_cells: int, records: Records) -> BoundedSum:
    """Count records as :func:`counted` does, with bounds in L2 norm.

    Proof of the bounds: in each of k lists a record contributes a vector without negative entries
    that add up to at most 1, so that its norm is at most 1, and two such vectors are at most
    sqrt(2) apart, since their product is not negative. Squares of k lists add up to k times that.
    """
    k = 1 if cells.ndim == 1 else cells.shape[1]
    total = counted(cells, n_cells, records).value
    return BoundedSum(total, math.sqrt(k), math.sqrt(2 * k))


def share_sums(values: np.ndarray, shares: np.ndarray, records: Records) -> BoundedSum:
    """Sums over records of several numbers in [0, 1] a row, each times the root of its share.

    Numbers are read and rounded as :func:`bounded_sums` does. Shares (k,) add up to 1.

    Proof of the bounds: each number of a record moves by at most 1 whether it becomes null or is
    replaced, so that the square of the distance is at most the sum of shares. Products with roots
    of shares are rounded, which the bound has.
    """
    steps = _steps(records.n)
    whole = sum_over_parts(np.sum, _whole(_inside(values), records, steps), 0)
    largest = _largest(shares, records.n)
    return BoundedSum(whole / steps * np.sqrt(shares), largest, largest)


def bounded_sums(values: np.ndarray, shares: np.ndarray, records: Records) -> BoundedL1Sum:
    """Sums over records of several numbers in [0, 1] a row, each times its share.

    Of `values` (n_rows, k), what is outside of [0, 1] counts as the nearer end, and what is not a
    number as 1. Shares (k,) are public weights above 0, which add up to 1.

    Proof of the bounds: number j of a record is in [0, 1] whether it is null or not, so that it
    moves by at most 1 in *both* relations, and the L1 norm of all by at most the sum of shares.
    Each row's part is rounded down to a multiple of a power of 2, so small as exact sums over n
    records allow, so that no row moves how another is rounded, and rows of one record add up to at
    most 1. Their product with a share is rounded, by a unit in up to n, which the bound has.
    """
    steps = _steps(records.n)
    whole = sum_over_parts(np.sum, _whole(_inside(values), records, steps), 0)
    largest = _largest(shares, records.n)
    return BoundedL1Sum(whole / steps * shares, largest, largest)


def difference_sums(values: np.ndarray, shares: np.ndarray, records: Records) -> BoundedL1Sum:
    """Sums of a difference of two numbers in [0, 1], and of numbers in [0, 1], each by its share.

    Column 0 of `values` (n_rows, k) is the difference: what is outside of [-1, 1] counts as the
    nearer end, and what is not a number as 0. The others are as :func:`bounded_sums` takes them.

    Proof of the bounds: a null record takes away at most 1 of each number, in size, so that the
    sums move by at most the shares together, in L1 norm. A record that is replaced moves the
    difference by at most 2, from 1 to -1, and each other number by at most 1, since it is in
    [0, 1] before and after: by the shares together and that of the difference once more. A record
    of several rows contributes an average of their numbers, for which the same holds. Each row's
    part is rounded towards 0 to a multiple of a power of 2, as in :func:`bounded_sums`, so that
    none grows and no row moves how another is rounded.
    """
    steps = _steps(records.n)
    whole = sum_over_parts(np.sum, _whole(rowwise(_signed, values), records, steps), 0)
    largest = _largest(shares, records.n)
    twice = _largest(np.append(shares, shares[0]), records.n)
    return BoundedL1Sum(whole / steps * shares, largest, twice)


def _signed(values: np.ndarray) -> np.ndarray:
    first = np.nan_to_num(np.clip(values[:, :1], -1.0, 1.0))
    return np.concatenate([first, _inside(values[:, 1:])], axis=1)


def grouped_sums(
    values: np.ndarray, shares: np.ndarray, records: Records, group: np.ndarray, n_groups: int
) -> BoundedL1Sum:
    """Return the sums of each public group, and the sums of the complements to 1, for its size.

    The shape is (n_groups, 2, k): `group` is the number of each row's group.

    Proof of the bounds: number v of a row contributes ``s v`` and ``s (1 - v)`` to its own group,
    with s its share, and nothing to others: together ``s``, and all numbers at most 1 in L1 norm.
    So a null record takes 1 away. A row that is replaced may leave one group for another, and both
    sums change: two points of norm 1 are at most 2 apart, which is also the bound within a group in
    general. The same holds for a record of several rows, which contributes a point of the convex
    hull of these, in however many groups (see :mod:`~dpsubspace._core.rows.records`). Rounding is
    that of :func:`bounded_sums`: each part is rounded down by itself.
    """
    steps = _steps(records.n)
    whole = sum_over_parts(_summed_by, values, group, n_groups, records, steps)
    largest = _largest(shares, records.n)
    total = whole.reshape(n_groups, 2, len(shares)) / steps * shares
    return BoundedL1Sum(total, largest, 2 * largest)


def _summed_by(
    values: np.ndarray, group: np.ndarray, n_groups: int, records: Records, steps: float
) -> np.ndarray:
    """Return sums by group, followed by the sums of the complements to 1, (n_groups, 2 k)."""
    inside = _inside(values)
    whole = _whole(np.concatenate([inside, 1.0 - inside], axis=1), records, steps)
    return np.stack([np.bincount(group, each, minlength=n_groups) for each in whole.T], axis=1)


def _steps(n: int) -> float:
    """Return the number of steps to 1 for exact sums over so many records."""
    return min(2.0 ** np.floor(np.log2(_EXACT / n)), _FINEST)


def _inside(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), 1.0, np.clip(values, 0.0, 1.0))


def _whole(inside: np.ndarray, records: Records, steps: float) -> np.ndarray:
    """Round the contributions of rows to whole steps, towards 0."""
    weights = records.weights_numpy
    return np.trunc((inside if weights is None else inside * weights[:, None]) * steps)


def _largest(shares: np.ndarray, n: int) -> float:
    """Sum the shares, plus the rounding of their products with sums over n records."""
    return float(shares.sum()) * (1 + 4 * EPS * (n + 8))


# Edges ----------------------------------------------------------------------------------------


def fine_edges(*, probabilities: bool) -> np.ndarray:
    """Return the public grid's inner edges, for log-odds or decisions: narrow near 0, then wide."""
    near = _NEAR[probabilities]
    end = np.arcsinh(_TOP[probabilities] / near)
    return near * np.sinh(np.linspace(-end, end, FINE - 1))


def n_cells(n: int, epsilon: float) -> int:
    """Return a number of cells: with more, noise costs more than the additional order helps.

    The rule was found with normal scores of two classes: from 4 for a hundred records at epsilon 1
    to 16 for 100,000.
    """
    if epsilon == math.inf:
        return 2048
    return int(np.clip(round(2 * (n * epsilon) ** 0.18), 4, 32))


def on_simplex(counts: np.ndarray, total: float) -> np.ndarray:
    """Return the nearest nonnegative counts with the sum `total`: most of noise becomes 0."""
    return each_on_simplex(counts[None], total)[0]


def each_on_simplex(counts: np.ndarray, total: float) -> np.ndarray:
    """Apply :func:`on_simplex` to each entry along the first axis."""
    flat = counts.reshape(len(counts), -1)
    falling = np.sort(flat, axis=1)[:, ::-1]
    over = (np.cumsum(falling, axis=1) - total) / np.arange(1, flat.shape[1] + 1)
    last = flat.shape[1] - 1 - np.argmax((falling > over)[:, ::-1], axis=1)
    level = np.take_along_axis(over, last[:, None], axis=1)
    return np.maximum(flat - level, 0.0).reshape(counts.shape)


def _ranks(fine: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the cells of the grid, and the share of scores below each."""
    ends = np.concatenate([[2 * grid[0] - grid[1]], grid, [2 * grid[-1] - grid[-2]]])
    return ends, np.concatenate([[0.0], np.cumsum(fine)]) / max(fine.sum(), 1e-300)


def quantile_edges(
    fine: np.ndarray, grid: np.ndarray, k: int, threshold: float | None
) -> np.ndarray:
    """Return edges of `k` cells with about equal numbers of scores, from -inf to inf.

    `fine` are the released counts (FINE,) of scores on the grid, whose inner edges are `grid`. The
    threshold, if any, is one more edge.
    """
    ends, below = _ranks(fine, grid)
    rising = below + 1e-9 * np.linspace(0, 1, len(below))
    inner = np.interp(np.arange(1, k) / k, rising, ends)
    # An edge within a cell of the grid is there to divide many scores, not rows of one score.
    cell = np.clip(np.searchsorted(grid, inner), 0, len(fine) - 1)
    nearest = grid[np.abs(inner[:, None] - grid).argmin(axis=1)]
    inner = np.where(np.diff(below)[cell] < 1.5 / k, nearest, inner)
    if threshold is not None:
        inner = np.append(inner, threshold)
    return np.concatenate([[-np.inf], np.unique(inner), [np.inf]])


def typical_scores(
    fine: np.ndarray, grid: np.ndarray, edges: np.ndarray, *, probabilities: bool
) -> np.ndarray:
    """Return the mean score of each cell by the released counts: a probability if scores are."""
    ends, below = _ranks(fine, grid)
    rising = below + 1e-9 * np.linspace(0, 1, len(below))
    low, high = (
        np.interp(np.clip(e, ends[0], ends[-1]), ends, rising) for e in (edges[:-1], edges[1:])
    )
    steps = (np.arange(_INSIDE) + 0.5) / _INSIDE
    scores = np.interp(low[:, None] + steps * (high - low)[:, None], rising, ends)
    scores = np.clip(scores, edges[:-1, None], edges[1:, None])
    return (_expit(scores) if probabilities else scores).mean(axis=1)


def spread_of_scores(
    fine: np.ndarray, grid: np.ndarray, edges: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return how much scores differ within cells, from 0 to 1, by the released counts.

    For two rows of a cell, together with a cell of the grid on either side: how often they are in
    different cells of the grid, over how often they would be if the scores were spread evenly.
    Among the parts of one cell of the grid, a part that holds nearly all rows holds one score.
    """
    inside = np.searchsorted(grid, edges[1:-1])  # cell of the grid that each edge is in, or ends
    k, sizes = len(edges) - 1, counts.sum(axis=1)
    first = np.concatenate([[0], inside + np.isin(edges[1:-1], grid)])
    last = np.concatenate([inside, [len(fine) - 1]])
    spread = np.empty(k)
    for j in range(k):
        low, high = max(first[j] - 1, 0), min(last[j] + 1, len(fine) - 1)
        held = np.trim_zeros(fine[low : high + 1])
        total, evenly = held.sum(), 1 - 1 / max(len(held), 1)
        lumps = ((held / total) ** 2).sum() if total > 0 else 1.0
        spread[j] = min((1 - lumps) / evenly, 1.0) if evenly > 0 else 0.0
    parts = np.where(first == last, first, -1)
    for cell in np.unique(parts[parts >= 0]):
        some = parts == cell
        if some.sum() > 1:
            held = np.maximum(sizes[some], 0.0)
            spread[some] = float(held.max() < 0.8 * held.sum())
    return spread


def _expit(scores: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -scores))


def error_cells(errors: np.ndarray) -> np.ndarray:
    """Return the cell of each error in [0, 1], by size; the largest errors are in the first."""
    with np.errstate(divide="ignore"):
        octaves = -2 * np.log2(errors)
    return np.floor(np.clip(octaves, 0, ERRORS - 1)).astype(np.intp)


def largest_error(counts: np.ndarray, scale: float, n: int) -> float:
    """Return a bound on nearly all of `n` errors, from released counts with noise of a scale.

    Start from the largest size at which noise, up to three standard deviations, does not explain
    the number of errors of at least this size. The bound is an octave beyond it, or two octaves if
    three standard deviations are more than one record in 100, since the errors that noise hides may
    be larger. There is no bound if they are a fifth of the records or more: nearly all errors could
    be larger than the size at which noise by itself gives such a number, and a mean of clipped
    errors would be far too small.
    """
    above, hidden = np.cumsum(counts), 3 * scale * np.sqrt(2 * np.arange(1, ERRORS + 1))
    clear = (above > hidden) & (hidden < n / 5)
    if not clear.any():
        return 1.0
    first = int(np.argmax(clear))
    octaves = 2 if hidden[first] > n / 100 else 1
    return min(1.0, 2.0 ** (octaves - first / 2))


# Results from cells ---------------------------------------------------------------------------


def area(counts: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve, of counts (..., k, 2).

    Half of the pairs within one cell are in order, and more than that if their scores differ:
    `spread` is how much they do in each cell, from 0 to 1.
    """
    negative, positive = counts[..., 0], counts[..., 1]
    below = np.cumsum(negative, axis=-1) - negative
    more = spread * within_cells(counts) if spread.any() else 0.0
    pairs = positive * (below + negative * (0.5 + more))
    sizes = positive.sum(axis=-1) * negative.sum(axis=-1)
    return pairs.sum(axis=-1) / np.where(sizes == 0, np.nan, sizes)


def within_cells(counts: np.ndarray) -> np.ndarray:
    """Return the excess over half of the pairs within a cell that are in order, for (..., k, 2).

    The share r of the positive class is assumed to change linearly within a cell, by d. With x the
    rank in the cell, from -1/2 to 1/2, densities are ``1 + (d / r) x`` and ``1 - (d / (1 - r)) x``,
    for which (d / r + d / (1 - r)) / 12 more pairs are in order. The slope is that of a line
    through the shares of the cell and its neighbours, by least squares.
    """
    some = np.maximum(counts, 0.5)
    sizes = some.sum(axis=-1)
    share = some[..., 1] / sizes
    if counts.shape[-2] < 2:
        return np.zeros_like(share)
    middle = np.cumsum(sizes, axis=-1) - sizes / 2
    near = np.array(
        [
            [_NEARBY.get(abs(i - j), 0.0) for j in range(share.shape[-1])]
            for i in range(share.shape[-1])
        ]
    )
    weights = sizes[..., None, :] * near
    weights /= weights.sum(axis=-1, keepdims=True)
    across, up = middle[..., None, :], share[..., None, :]
    across = across - (weights * across).sum(axis=-1, keepdims=True)
    slope = (weights * across * up).sum(axis=-1) / (weights * across**2).sum(axis=-1)
    change = slope * sizes
    lean = change / np.maximum(share, 0.02) + change / np.maximum(1 - share, 0.02)
    return np.clip(lean / 12, -0.3, 0.3)


def curve(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return false and true positive rates at the edges, from 0 to 1, of nonnegative counts."""
    above = np.cumsum(counts[..., ::-1, :], axis=-2)
    above = np.concatenate([np.zeros_like(above[..., :1, :]), above], axis=-2)
    rates = above / np.maximum(above[..., -1:, :], 1e-300)
    return rates[..., 0], rates[..., 1]


def confusion(counts: np.ndarray, threshold: int) -> np.ndarray:
    """Return confusion matrices (..., 2, 2), true classes first, with `threshold` cells below."""
    low, high = counts[..., :threshold, :].sum(axis=-2), counts[..., threshold:, :].sum(axis=-2)
    return np.stack([low, high], axis=-1)


# Intervals ------------------------------------------------------------------------------------


def resampled_counts(
    counts: np.ndarray, scale: float, n: int, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return counts (n_draws, ...) of other samples with other noise: postprocessing."""
    shares = on_simplex(counts, n).ravel() / n
    draws = rng.multinomial(n, shares / shares.sum(), size=n_draws).astype(np.float64)
    draws = draws + scale * rng.laplace(size=draws.shape)
    return draws.reshape(n_draws, *counts.shape)


def interval(
    value: np.ndarray, centre: np.ndarray, draws: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return an interval about `value`; `draws` are from samples with the true value `centre`.

    It reaches as far on either side as `level` of the samples are from the true value. For small
    classes such intervals have nearer to the stated coverage than quantiles of each side.
    """
    away = np.nanquantile(np.abs(draws - centre), level, axis=0)
    return value - away, value + away


@public
@dataclass(frozen=True, eq=False)
class ScoreCells:
    """Noisy counts of private rows by predicted score and label, from which metrics are computed.

    From these follow ROC curves, calibration curves and confusion matrices, and what they might
    have been with another sample and other noise.

    Parameters
    ----------
    edges : ndarray of shape (k + 1,)
        Edges of cells of scores, from -inf to inf: log-odds of the second class where the model
        gives probabilities, else decision values. A cell is (low, high].
    counts : ndarray of shape (k, 2)
        Noisy numbers of rows of the first and of the second class; they may be negative.
    scores : ndarray of shape (k,)
        About the mean score of each cell: a predicted probability of the second class where the
        model gives them.
    noise : float
        Scale of the Laplace noise of each count.
    n : int
        Number of records, public.
    classes : ndarray of shape (2,)
        Names of the classes.
    probabilities : bool
        Whether scores are of probabilities.
    threshold : int
        Cells that the model predicts the first class for, which come first; -1 where cells do not
        tell.
    spread : ndarray of shape (k,)
        How far scores of one cell differ, from 0 where all of them are the same to 1 where they are
        as many as there are rows. Those of one score are half in order.

    See Also
    --------
    private_score : Releases such counts.

    Notes
    -----
    All methods are postprocessing: they cost no privacy.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import scale
    >>> from dpsubspace import private_score
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> model = LogisticRegression(solver="newton-cg").fit(X[::2], y[::2])
    >>> score = private_score(model, X[1::2], y[1::2], metric="roc_auc", random_state=0)
    >>> bool(abs(score.cells.counts.sum() - 284) < 50)
    True
    """

    edges: np.ndarray
    counts: np.ndarray
    scores: np.ndarray
    noise: float
    n: int
    classes: np.ndarray
    probabilities: bool
    threshold: int
    spread: np.ndarray

    def roc_auc(self) -> float:
        """Return the area under the ROC curve.

        Returns
        -------
        float
            About the share of pairs of rows of both classes that scores bring into order.
        """
        return float(self._area(self.counts))

    def roc_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ROC curve at the edges of cells, from the highest to the lowest.

        Returns
        -------
        fpr : ndarray of shape (k + 1,)
            False positive rates, from 0 to 1.
        tpr : ndarray of shape (k + 1,)
            True positive rates.
        """
        return curve(on_simplex(self.counts, self.n))

    def calibration_curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how often rows of each cell are of the second class.

        Returns
        -------
        predicted : ndarray of shape (k,)
            Mean predicted probability of each cell.
        observed : ndarray of shape (k,)
            Share of the second class among the rows of the cell.
        """
        return self.scores, fractions(self.counts)

    def confusion_matrix(self) -> np.ndarray:
        """Return how many rows of each class are predicted as each class.

        Returns
        -------
        ndarray of shape (2, 2)
            Noisy numbers, true classes by rows.
        """
        if self.threshold < 0:
            raise ValueError("these cells do not hold predictions: ask for 'confusion_matrix'.")
        return confusion(self.counts, self.threshold)

    def resampled(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Return counts as they might have been: of another sample, with other noise.

        Parameters
        ----------
        n_draws : int
            How many.
        rng : numpy.random.Generator
            Any generator: nothing is hidden here.

        Returns
        -------
        ndarray of shape (n_draws, k, 2)
            Counts.
        """
        return resampled_counts(self.counts, self.noise, self.n, n_draws, rng)

    def flipped(self) -> ScoreCells:
        """Return the same counts with the classes in the other order, and scores for the other one.

        Returns
        -------
        ScoreCells
            Cells in the opposite order: what was the first class is the second one.
        """
        return ScoreCells(
            -self.edges[::-1],
            self.counts[::-1, ::-1],
            (1 - self.scores if self.probabilities else -self.scores)[::-1],
            self.noise,
            self.n,
            self.classes[::-1],
            self.probabilities,
            -1 if self.threshold < 0 else len(self.counts) - self.threshold,
            self.spread[::-1],
        )

    def _area(self, counts: np.ndarray) -> np.ndarray:
        return area(counts, self.spread)


def fractions(counts: np.ndarray) -> np.ndarray:
    """Return the share of the second class in each cell, of counts (..., k, 2)."""
    sizes = np.maximum(counts.sum(axis=-1), 1.0)
    return np.clip(counts[..., 1] / sizes, 0.0, 1.0)
