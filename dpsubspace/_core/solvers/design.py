"""Rows and targets of a regression in a public or released basis, and sums of bounded scores.

With a row v in that basis, a target y and weights a, a *score* is the sum of ``v (y - m(v a))``
over records, for the mean m of the family, and a *curvature* that of ``m'(v a) v v^T``. Every
residual ``e = y - m(v a)`` is cut so that ``v e`` is no longer than a public or released bound, and
every row of a second moment is shortened likewise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import matmul
from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import EPS, Total, column_sums, slices, to_numpy, weighted
from dpsubspace._core.release.mechanisms import BoundedSum, gram_sum, vector_sum
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.solvers.families import FAMILIES, Family
from dpsubspace._core.statistics.counts import record_sums
from dpsubspace._core.statistics.inverted_tests import Tally
from dpsubspace._core.statistics.table_cells import cell_total, counts_sum

# Rows whose products are added up at once.
_TOGETHER = 4096

# Sizes below which cells of scores and of curvatures end, in powers of 2.
SIZES = 2.0 ** np.arange(-4.0, 10.01, 0.5)


@dataclass(frozen=True)
class Design:
    """Rows and targets of a regression, local or remote.

    Arrays with an entry for each row are made where the rows are, and sums over them come from
    there.
    """

    # (n_rows, p): of the table entries from -1 to 1, the first of them 1; in a basis, of any
    # length. Private.
    rows: Any
    # (n_rows,): from -1 to 1 for a linear regression, 0 or 1 for a logistic one, and from 0 to 1
    # for that of Poisson: counts over the end of their range. Private.
    targets: Any
    # Public bound on the squared norm of a row of the table, of which no entry is above 1: 1 for
    # the constant, and 1 for each column (a category has one indicator that is 1, or none; a number
    # that is missing is 0 beside its indicator).
    size: int
    family: str  # A key of FAMILIES
    records: Records
    numbers: np.ndarray  # (p,): which columns are numbers; the others are 0 or 1. Public.
    # Places of the indicators of each column of categories. Public.
    levels: tuple[np.ndarray, ...] = ()
    # About the deviation of targets from their means over the root of m', by public numbers.
    unit: float = 1.0
    # (n_rows,): what is added to scores, at most 0: logarithms of exposures over their largest.
    # Private. None where there is none.
    offsets: Any = None

    @property
    def n(self) -> int:
        return self.records.n

    @property
    def kind(self) -> Family:
        return FAMILIES[self.family]

    def within(self, basis: np.ndarray) -> Design:
        """Return the same with rows ``z B`` for a `basis` B (p, k) that is public or released.

        For persons, each row depends on itself only, to the last bit. BLAS rounds a product by the
        position of its row, which an additional row of another person moves, and residuals are
        counted in cells. If each row is a record, positions are public.
        """
        product = _by_columns if self.records.grouped else matmul
        return replace(self, rows=rowwise(product, self.rows, _as_numbers(basis)))

    @cached_property
    def lengths(self) -> Any:
        """Norms of rows (n_rows,). Private."""
        return rowwise(_lengths, self.rows)

    def scores(self, weights: np.ndarray) -> Any:
        """Return products of rows with weights, and offsets, (n_rows,).

        Products are as in :meth:`within` for persons.
        """
        weights = _as_numbers(weights)
        if self.records.grouped:
            found = rowwise(_by_columns, self.rows, weights[:, None])[:, 0]
        else:
            found = rowwise(matmul, self.rows, weights)
        return found if self.offsets is None else found + self.offsets

    def residuals(self, weights: np.ndarray) -> Any:
        return self.targets - rowwise(self.kind.mean, self.scores(weights))

    def slopes(self, weights: np.ndarray) -> Any:
        """Derivatives of predictions by scores."""
        return rowwise(self.kind.slope, self.scores(weights))

    @property
    def room(self) -> float:
        """Factor below 1 by more than rounding makes of the norm of a row."""
        return 1 - 4 * EPS * (self.rows.shape[1] + 4)

    def cut(self, residuals: Any, most: float) -> Any:
        """Residuals e such that no ``v e`` is longer than `most`."""
        limits = self.room * most / np.maximum(self.lengths, _SHORTEST)
        return np.clip(residuals, -limits, limits)

    def shortened(self, roots: Any, most: float) -> Any:
        """Factors of rows, at most `roots`, such that no row is longer than the root of `most`."""
        limits = self.room * math.sqrt(most) / np.maximum(self.lengths, _SHORTEST)
        return np.minimum(limits, roots)

    def by_record(self, residuals: Any) -> Any:
        """Return what each record contributes to a score: ``v e`` of its rows by parts, (n, p)."""
        return rowwise(_by_record, self.rows * residuals[:, None], self.records)


# Length below which a row counts as one of that length, which makes its limit longer than any.
_SHORTEST = 1e-200

# Largest entry of a basis or of weights: squares of products with rows do not overflow.
_LARGEST = 1e100


def _as_numbers(values: np.ndarray) -> np.ndarray:
    """Return released values within limits, which no noise that is likely comes near.

    Products with rows are then numbers whatever was released, and no sum is NaN for some rows only.
    """
    return np.clip(np.nan_to_num(values), -_LARGEST, _LARGEST)


# Functions of single rows, which run where the rows are.


def _lengths(rows: np.ndarray) -> np.ndarray:
    found = np.empty(len(rows))
    for some in slices(len(rows), _TOGETHER):  # squares of all at once would be as large as rows
        found[some] = np.linalg.norm(rows[some], axis=1)
    return found


def _by_columns(rows: np.ndarray, basis: np.ndarray) -> np.ndarray:
    found = np.zeros((len(rows), basis.shape[1]))
    for column, weights in zip(rows.T, basis, strict=True):
        for i, weight in enumerate(weights):
            found[:, i] += column * weight
    return found


def _by_record(values: np.ndarray, records: Records) -> np.ndarray:
    weights, index = records.weights_numpy, records.index
    values = values if weights is None else values * weights[:, None]
    if index is None:
        return values
    sums = [np.bincount(index, column, minlength=records.n_here) for column in values.T]
    return np.stack(sums, axis=1)


# Sums with low sensitivity ----------------------------------------------------------------------


def column_sum_of(design: Design) -> BoundedSum:
    """Sum over records of what :func:`_of_columns` has of a row of the table.

    Proof of the bound: a number x contributes ``x^2 + x^4 <= 2`` to the squared norm, or at most 2
    by the indicator that it is missing; a category 1 by its indicator, and 1 more by the product
    with the target, where that is released. The indicator that a number is missing and its product
    are at most 2 together, as the number is 0 there. The target itself contributes as a number
    does, from -1 to 1, or 1 where its square is not there. An exposure over its largest is at most
    1.
    """
    kind, n_numbers = design.kind, int(design.numbers.sum())
    records, of_rows = design.records, (design.rows, design.targets, design.offsets)
    total = to_numpy(sum_over_parts(_column_sums, *of_rows, design.numbers, kind, records).value)
    n_categories = design.size - 1 - n_numbers
    square = 2 * n_numbers + (1 + kind.counted) * n_categories + 1 + kind.square
    square += design.offsets is not None
    return vector_sum(total, math.sqrt(square), records.slack(EPS, _TOGETHER))


def _column_sums(
    rows: np.ndarray,
    targets: np.ndarray,
    offsets: np.ndarray | None,
    numbers: np.ndarray,
    kind: Family,
    records: Records,
) -> Total:
    total, weights = Total(), records.weights_numpy
    for some in slices(len(rows), _TOGETHER) or [slice(0, 0)]:
        exposures = None if offsets is None else offsets[some]
        block = _of_columns(rows[some], targets[some], exposures, numbers, kind)
        total.add(column_sums(block if weights is None else weighted(block, weights[some])))
    return total


def _of_columns(
    rows: np.ndarray,
    targets: np.ndarray,
    offsets: np.ndarray | None,
    numbers: np.ndarray,
    kind: Family,
) -> np.ndarray:
    """Columns but the constant, squares of numbers, the target, and what a family needs.

    The latter are its square, exposures, and products with indicators of a target that counts
    events.
    """
    of_target = targets[:, None]
    found = [rows[:, 1:], rows[:, numbers] ** 2, of_target]
    if kind.square:
        found.append(of_target**2)
    if offsets is not None:
        found.append(np.exp(offsets)[:, None])
    if kind.counted:
        found.append(rows[:, 1:][:, ~numbers[1:]] * of_target)
    return np.concatenate(found, axis=1)


def tally_of(design: Design, sums: np.ndarray, noise: float) -> Tally:
    """Return what released sums of :func:`column_sum_of` say of columns; this is postprocessing.

    The target and its products with indicators count events, over the largest number of one row.
    """
    numbers, counted = design.numbers[1:], np.flatnonzero(~design.numbers)
    target, largest = sums[len(numbers) + numbers.sum()], design.unit**-2
    records = np.full(len(design.numbers), math.nan)
    records[counted] = [design.n, *sums[: len(numbers)][~numbers]]
    places, of_numbers = np.flatnonzero(design.numbers), np.full((2, len(design.numbers)), math.nan)
    of_numbers[0, places] = sums[places - 1]
    of_numbers[1, places] = sums[len(numbers) : len(numbers) + len(places)]
    events = None
    if design.kind.counted:
        events = np.full(len(design.numbers), math.nan)
        events[counted] = largest * np.append(target, sums[len(sums) + 1 - len(counted) :])
    return Tally(records, events, of_numbers[0], of_numbers[1], noise, largest)


def score_sum_of(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Return the sum of ``v e`` over records, for residuals e cut by :meth:`Design.cut` at `most`.

    Proof of the bound: ``|e| |v|`` is at most `most` after the cut, which leaves more room than
    rounding of lengths needs. Several rows of a record have the bound of one row, by the lemma of
    :mod:`dpsubspace._core.rows.records`.
    """
    total, slack = record_sums(design.rows, design.records, residuals)
    return vector_sum(total, most, slack)


def moment_sum(rows: Any, norm_bound: float, records: Records, factors: Any = None) -> BoundedSum:
    """Return the sum of ``v v^T`` over records, whose rows v are no longer than `norm_bound`.

    Rows are multiplied by `factors` (n_rows,), block by block, if these are given.

    Proof of the bounds: that of :func:`~dpsubspace._core.release.mechanisms.gram_sum`, which holds
    for several rows of a record by the lemma of :mod:`dpsubspace._core.rows.records`.
    """
    total = sum_over_parts(_moments, rows, records, factors).value
    slack = records.slack(EPS, _TOGETHER, own=2 * rows.shape[1])
    return gram_sum(total, norm_bound, slack)


def _moments(rows: np.ndarray, records: Records, factors: np.ndarray | None) -> Total:
    total, weights = Total(), records.weights_numpy
    for some in slices(len(rows), _TOGETHER) or [slice(0, 0)]:
        block = rows[some] if factors is None else rows[some] * factors[some, None]
        if weights is not None:
            # A row times the root of its part of the record contributes that part of its product.
            block = block * np.sqrt(weights[some])[:, None]
        total.add(block.T @ block)
    return total


def curvature_sum(design: Design, roots: Any, most: float) -> BoundedSum:
    """Sum of ``h v v^T`` over records, for roots of h, each of norm at most `most`.

    Proof of the bounds: a row times its factor is no longer than the root of `most`
    (:meth:`Design.shortened`), so those of :func:`moment_sum` hold.
    """
    factors = design.shortened(roots, most)
    return moment_sum(design.rows, math.sqrt(most), design.records, factors)


def mass_sum(design: Design, residuals: Any, most: float, bound: float) -> BoundedSum:
    """Sum of what :meth:`Design.cut` takes from the lengths of ``v e``, at most `bound` of each.

    Proof of the bound: a row contributes a number in [0, bound], and several rows of a record bring
    their weighted mean.
    """
    lost = np.clip(np.abs(residuals) * design.lengths - most, 0.0, bound)
    total, slack = record_sums(lost[:, None], design.records)
    bound = bound * (1 + slack)
    return BoundedSum(total, norm_bound=bound, replace_bound=bound)


def moment_of_scores(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Sum over records of the outer product of what each brings to a score.

    Proof of the bounds: a record contributes a vector q that is no longer than `most`
    (:func:`score_sum_of`), and it is cut to that length, since adding up several rows rounds. So
    those of :func:`~dpsubspace._core.release.mechanisms.gram_sum` hold. Persons count as a whole:
    what their rows have in common is in q, as in a covariance that is clustered by person.
    """
    if not design.records.grouped:
        return moment_sum(design.rows, most, design.records, residuals)
    found = design.by_record(residuals)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    found = found * (most * (1 - 1e-14) / np.maximum(lengths, most))
    return moment_sum(found, most, Records.of_rows(design.n))


def size_counts(design: Design, residuals: Any, slopes: Any, unit: float) -> BoundedSum:
    """How many rows have scores ``|v e|`` and curvatures ``h |v|^2`` of each size.

    Scores are in units of `unit`, and counts of scores come first. The last cells have all larger
    sizes as well.

    Proof of the bounds: a row is in one cell of each table, so those of
    :func:`~dpsubspace._core.statistics.table_cells.counts_sum` for two tables hold. Parts of
    records are multiples of a public step, of which sums are exact.
    """
    of_scores = np.abs(residuals) * design.lengths / unit
    counts = [
        sum_over_parts(
            cell_total,
            np.minimum(np.searchsorted(SIZES, sizes), len(SIZES) - 1),
            len(SIZES),
            design.records,
        )
        for sizes in (of_scores, slopes * design.lengths**2)
    ]
    return counts_sum(np.concatenate(counts), n_tables=2)
