"""Per-example gradients: their interface, the only clipped sum, and gradients of persons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpsubspace._core.ground.arrays import (
    BLOCK,
    EPS,
    Array,
    Total,
    at_least,
    device,
    namespace,
    row_norms,
    run_sums,
    slices,
)
from dpsubspace._core.release.mechanisms import BoundedSum, vector_sum
from dpsubspace._core.rows.records import Records

# Float64 rows of a larger norm cannot be scaled down without denormal numbers.
LONGEST = 1e-6 * EPS / float(np.finfo(np.float64).smallest_normal)


class PerExampleGradients(Protocol):
    """Gradients of some rows, one for each row, in whatever form is cheap."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of the parameters."""
        ...

    @property
    def shares(self) -> Array | None:
        """Share of its record that each row is, (k,); None where each row is a whole record."""
        ...

    def norms(self) -> Array:
        """Euclidean norm of each gradient, never rounded down, (k,).

        The norm is that of the gradient in the dtype in which gradients are added up, and may
        exceed it by a few units of rounding of that dtype.

        Inf for a gradient that must not count: that of a null record, or one out of range.
        """
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of ``weights[i] * gradient[i]``, of the shape of the parameters."""
        ...

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        """Weighted sums over runs of rows of lengths `counts`: (m, p), in float64."""
        ...

    def slack(self) -> float:
        """Bound on how far rounding can move the sum over all records, in units of a term."""
        ...

    def wide_slack(self) -> float:
        """Bound on the rounding of sums of derived values in float64, in units of a gradient."""
        ...

    def inner(self, anchors: Any) -> tuple[Array, float]:
        """Inner products with the gradients of public rows, (k, m), in float64, and their slack.

        The slack is how far rounding moves one of them, in units of the product of the two norms.
        For gradients that must not count, any value is allowed.
        """
        ...

    def dot(self, gradient: Array) -> Array:
        """Inner products with one gradient of the shape of the parameters, (k,)."""
        ...

    def part(self, group: Any) -> PerExampleGradients:
        """Gradients by the parameters at these indices of the last axis."""
        ...

    def dense(self) -> Array:
        """Gradients as rows (k, p) in float64, for few rows, where that is cheap."""
        ...


class GradientSource(Protocol):
    @property
    def n_samples(self) -> int: ...

    @property
    def data(self) -> Array: ...

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Indices of chunks that together name every record once, or every record of `batch`."""
        ...

    def bytes_read(self, batch: np.ndarray | None = None) -> float: ...

    def at(self, params: Array, rows: Array) -> PerExampleGradients:
        """Gradients at `params` of the records of a chunk."""
        ...


def clipped_sum(grads: PerExampleGradients, clip_norm: float) -> BoundedSum:
    """Sum of gradients, each shrunk to norm `clip_norm` where it is longer.

    With a `clip_norm` of inf nothing is clipped and there is no bound.

    The sum has ``norm_bound = clip_norm * (1 + slack)`` and ``replace_bound = clip_norm * (2 +
    slack)``; the slack covers the rounding of this sum and of its addition to those of other
    records (0.8 % in float32; in float64 below 1e-6 up to a million rows, or a thousand times that
    where rows are centred).

    Proof of the bound: record i contributes ``min(1, C / |g_i|) g_i``, which depends on record i
    alone and has norm at most C. Removing it moves the sum by at most C, replacing it by at most 2C
    (triangle inequality). Where a record has several rows, each is clipped and counts for its part
    of the record, and the same holds by the lemma of ``_core/rows/records.py``. The sums as
    computed differ from the real ones by at most ``slack * C`` more
    (:func:`~dpsubspace._core.ground.arrays.sum_slack`).

    ===========================  =====================================
    gradient                     contribution
    ===========================  =====================================
    norm at most `clip_norm`     itself
    norm above it                same direction, norm `clip_norm`
    norm inf or NaN              zero
    zero                         zero
    ===========================  =====================================
    """
    weights = in_parts(grads, shrink_factors(grads.norms(), clip_norm))
    return vector_sum(grads.weighted_sum(weights), clip_norm, grads.slack())


def in_parts(grads: PerExampleGradients, weights: Array) -> Array:
    if grads.shares is None:
        return weights
    return namespace(weights).astype(grads.shares, weights.dtype, copy=False) * weights


def shrink_factors(norms: Array, bound: float) -> Array:
    """Factors that shrink vectors of given norms to `bound` where they are longer; 0 at inf."""
    xp = namespace(norms)
    if bound > 1e-3 * float(xp.finfo(norms.dtype).max):  # longer than any gradient that counts
        return xp.astype(xp.isfinite(norms), norms.dtype)
    return bound / at_least(norms, bound)


# Gradients as rows ------------------------------------------------------------------------------
# Per-example gradients as explicit rows of numbers.

# Entries of rows that are converted to float64 at once (64 MiB).
_WIDE = 1 << 23


@dataclass(frozen=True)
class DenseGradients:
    rows: Array  # (k, p): one gradient for each row, in float32 or float64
    params_shape: tuple[int, ...]  # Shape of the parameters, which have p entries
    present: Array | None = None  # (k,): False for null records
    rounding: float = 0.0  # Slack of their sum over all records
    # (k,): share of its record that each row is; None where each row is a whole record.
    shares: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows.shape[0], *self.params_shape)

    def norms(self) -> Array:
        xp = namespace(self.rows)
        if self.rows.shape[0] == 0:
            return xp.zeros(0, dtype=xp.float64, device=device(self.rows))
        norms = row_norms(self.rows)
        counts = norms <= LONGEST  # never true for NaN
        if self.present is not None:
            counts = counts & self.present
        return xp.where(counts, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        xp = namespace(self.rows)
        k, p = self.rows.shape
        total = xp.zeros(p, dtype=xp.float64, device=device(self.rows))
        weights = xp.astype(weights, xp.float64)
        for some in slices(k, max(1, min(BLOCK, _WIDE // p))):
            rows, absent = xp.astype(self.rows[some, :], xp.float64), weights[some] == 0
            if bool(xp.any(absent)):
                rows = xp.where(absent[:, None], xp.zeros_like(rows), rows)
            total += weights[some] @ rows
        return xp.reshape(total, self.params_shape)

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        return run_sums(self.rows, weights[:, None], counts)[:, :, 0]

    def slack(self) -> float:
        return self.rounding

    def wide_slack(self) -> float:
        return self.rounding

    def inner(self, anchors: Any) -> tuple[Array, float]:
        xp = namespace(self.rows)
        (k, p), m = self.rows.shape, anchors.rows.shape[0]
        total = xp.zeros((k, m), dtype=xp.float64, device=device(self.rows))
        for some in slices(p, max(1, _WIDE // max(1, k + m))):
            ours, theirs = self.rows[:, some], anchors.rows[:, some]
            total += xp.astype(ours, xp.float64) @ xp.astype(theirs, xp.float64).T
        return total, (p + 8) * EPS

    def dot(self, gradient: Array) -> Array:
        xp = namespace(self.rows)
        one = xp.reshape(xp.astype(gradient, xp.float64), (-1, 1))
        return self.inner(DenseGradients(one.T, self.params_shape))[0][:, 0]

    def part(self, group: Any) -> DenseGradients:
        rows = self.rows[:, group]
        return replace(self, rows=rows, params_shape=(rows.shape[1],))

    def dense(self) -> Array:
        xp = namespace(self.rows)
        return xp.astype(self.rows, xp.float64)


class FormedIfNeeded(Protocol):
    """Gradients that are formed as rows only for operations that need the rows."""

    rounding: float  # Slack of their sum over all records, or over a batch
    shares: Any  # As in `PerExampleGradients`, like the next two:

    @property
    def shape(self) -> tuple[int, ...]: ...

    def dense(self) -> Array: ...

    def slack(self) -> float:
        return self.rounding

    def wide_slack(self) -> float:
        return self.rounding

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        return self._as_rows().sums(weights, counts)

    def inner(self, anchors: Any) -> tuple[Array, float]:
        return self._as_rows().inner(anchors)

    def dot(self, gradient: Array) -> Array:
        return self._as_rows().dot(gradient)

    def part(self, group: Any) -> DenseGradients:
        return self._as_rows().part(group)

    def _as_rows(self) -> DenseGradients:
        own = {"rounding": self.rounding, "shares": self.shares}
        return DenseGradients(self.dense(), self.shape[1:], **own)


# Gradients of persons ---------------------------------------------------------------------------
# Gradients of persons: the mean over the rows of each.
#
# Design note. Rows of one person have gradients in many directions, and their mean is several times
# shorter than they are. A bound on the mean may therefore be smaller than a bound on each row, for
# the same bias, and noise is in proportion to the bound. For a linear model, means are formed for
# their norms alone, a few at a time, and not at all where a person has one row: the sum of clipped
# means is a sum over rows, each with the weight of its person. For other models means are formed.

# The gradient of a row is shrunk to this many clip norms before the mean is computed: one outlying
# row should not decide the direction of the mean, and rounding is in proportion to the longest row.
_LONGEST_ROW = 8.0

# Numbers in the gradients of a chunk of persons (8 MiB), and in the rows that are used at once.
_FORMED, _PIECE = 1 << 20, 1 << 20

# Numbers in the means that are formed at once for their norms (2 MiB).
_MEASURED = 1 << 18

# See `Runs`.
CachedProducts = tuple[slice, slice, list[tuple[slice, np.ndarray]]]


class Runs:
    """Consecutive rows of some persons, persons with the fewest rows first."""

    def __init__(self, records: Records, persons: np.ndarray):
        persons = persons[np.argsort(records.counts[persons], kind="stable")]
        self.rows, self.counts = records.rows_by_record(persons)
        self.person = np.repeat(np.arange(len(persons)), self.counts)
        self._ends = np.concatenate([[0], np.cumsum(self.counts)])
        several = int(np.searchsorted(self.counts, 2))
        # Persons with several rows for whom all products of unit features with each other are kept,
        # other persons, and the products by number of rows. Set in one assignment, since other
        # threads may read it.
        self.cached: CachedProducts = slice(several, several), slice(several, len(persons)), []
        self.tried = False  # whether it has been decided which products can be kept

    def of(self, persons: slice) -> slice:
        """Rows of some persons."""
        return slice(int(self._ends[persons.start]), int(self._ends[persons.stop]))

    def cache_products(self, grads: Any, most: int) -> None:
        """Keep products of features, which do not change between steps, of up to `most` rows."""
        first = self.cached[0].start
        last = max(first, int(np.searchsorted(self.counts, most, side="right")))
        numbers = range(2, most + 1) if last > first else []
        ends, found = np.searchsorted(self.counts, [*numbers, most + 1]), []
        for k, start, stop in zip(numbers, ends, ends[1:], strict=False):
            if stop > start:
                rows = self.of(slice(start, stop))
                found.append((rows, grads.taken(rows).cosines(k)))
        if found and all(products is not None for _, products in found):
            self.cached = slice(first, last), slice(last, len(self.counts)), found
        self.tried = True


@dataclass(frozen=True)
class MeanGradients(FormedIfNeeded):
    """Weighted sums of gradients ``phi_i r_i^T`` of rows, one sum for each record.

    The sums are formed for their norms at most. The norm of a sum of one gradient follows from its
    factors. The squared norm of a sum of several gradients is ``sum_ij (phi_i . phi_j) (r_i .
    r_j)``, whose first factors are the same in all steps. Where these are not kept, the sum is
    formed.

    Norms are never too small. Let T be the sum of the norms of the terms. Rounding moves a sum that
    is formed by at most ``formed T``, and twice as much is added to its norm. Rounding moves a
    squared norm that is computed from products by at most ``products T^2``, which is added to the
    square: with terms as fractions of T, these are products of unit vectors, and products of
    vectors whose norms add up to 1. Each product of unit vectors has an error of twice the error of
    a unit vector, plus half an epsilon for each of its columns; sums of these with the products of
    the other vectors have an error of half an epsilon for each row, in the matrix product and after
    it, and for each column of residuals (Higham, 2002, section 3.1).
    """

    rows: Any  # Gradients of the rows, which can be sliced
    weights: Array  # (k,): weight of each row, 0 where it must not count
    runs: Runs  # Persons of the rows
    rounding: float  # Slack of the sum over all records
    formed: float  # Bounds on the rounding of a formed sum, and of a squared norm
    products: float
    shares: None = None  # each sum is for a whole record

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.runs.counts), *self.rows.shape[1:])

    def norms(self) -> Array:
        lengths = self.weights * np.where(self.weights > 0, self.rows.norms(), 0.0)
        found = np.bincount(self.runs.person, lengths, minlength=self.shape[0])
        found = found * (1 + (8 + self.runs.counts) * EPS)  # bincount of no rows has integers
        few, many, products = self.runs.cached
        if few.stop > few.start:
            found[few] = self._by_products(few, found[few], products)
        if many.stop > many.start:
            found[many] = self._as_formed(many, found[many])
        return found

    def _by_products(
        self, some: slice, longest: np.ndarray, products: list[tuple[slice, np.ndarray]]
    ) -> np.ndarray:
        rows, units = self.runs.of(some), np.where(longest > 0, longest, 1.0)
        weights, person = self.weights[rows], self.runs.person[rows] - some.start
        counts, residuals = weights > 0, self.rows.residuals[rows, :]
        weights = weights * np.where(counts, self.rows.feature_norms[rows], 0.0) / units[person]
        if not bool(counts.all()):
            residuals = np.where(counts[:, None], residuals, 0.0)
        parts = np.multiply(residuals, weights[:, None], order="C")
        found = np.empty_like(parts)
        for own, cosines in products:
            own = slice(own.start - rows.start, own.stop - rows.start)
            shape = (*cosines.shape[:2], -1)
            np.matmul(cosines, parts[own].reshape(shape), out=found[own].reshape(shape))
        squares = np.bincount(person, np.einsum("ij,ij->i", found, parts), minlength=len(units))
        norms = units * np.sqrt(np.maximum(squares, 0.0) + self.products)
        return np.fmin(norms * (1 + 8 * EPS), longest)  # `longest` is used in place of NaN

    def _as_formed(self, some: slice, longest: np.ndarray) -> np.ndarray:
        norms = np.empty_like(longest)
        for part in slices(len(norms), max(1, _MEASURED // math.prod(self.shape[1:]))):
            persons = slice(some.start + part.start, some.start + part.stop)
            rows = self.runs.of(persons)
            sums = self.rows.taken(rows).sums(self.weights[rows], self.runs.counts[persons])
            norms[part] = DenseGradients(sums, self.shape[1:]).norms()
        return norms + 2 * self.formed * longest

    def weighted_sum(self, weights: Array) -> Array:
        return self.rows.weighted_sum(self.weights * weights[self.runs.person])

    def dense(self) -> Array:
        return self.rows.sums(self.weights, self.runs.counts)


@dataclass(frozen=True)
class PersonSource:
    """Gradients of records that have several rows, one gradient for each record.

    Proof of the bounds: the gradient of a record is a function of its own rows alone, for any rows,
    and is clipped like that of any record. Rounding: rows of other records may lie elsewhere in a
    chunk, where computations on them round differently, which
    :meth:`~dpsubspace._core.rows.records.Records.slack` includes for rows as long as a clip norm.
    Rows are up to 8 times as long here: with s the slack of a sum of rows, that is ``8 s`` clip
    norms.

    In :class:`MeanGradients` norms are rounded as well, and more than the sum. Take one record,
    with C the clip norm, v the sum of its terms and ``T <= 8 C`` the sum of their norms. Without
    any rounding, its norm would be reported as a function f of v and T: as ``|v| + 2 e T``, where e
    is the effect of rounding on a sum that is formed, or as the root of ``|v|^2 + e' T^2``, where
    e' is the effect of rounding on products, or as T if that is less. The record would contribute
    ``min(1, C / f) v``, which is no longer than C, and moves by no more than v moves. The norm g
    that is reported instead has an error of at most ``e T``, or its square has an error of at most
    ``e' T^2``. The error of the record's contribution is then at most ``|max(C, f) - max(C, g)|``:
    ``8 e C`` or, since a difference of squares is that of the roots times their sum, ``32 e' C``.
    For n records in two sums, this adds up to ``16 n e`` or ``64 n e'`` clip norms. One case may
    apply to a record and the other to the next, or to the same record in another table.
    """

    source: Any  # Gradients of the rows, which has the records of the rows
    clip_norm: float  # Norm to which the gradients of records will be clipped

    @property
    def records(self) -> Records:
        """Records of the rows, where the rows are stored."""
        return self.source.records

    @property
    def n_samples(self) -> int:
        return self.source.n_samples

    @property
    def data(self) -> Array:
        return self.source.data

    def weighed(self, columns: np.ndarray) -> PersonSource:
        """Source of the same persons, with the columns of rows multiplied by these numbers."""
        return replace(self, source=self.source.weighed(columns))

    def widened(self, more: Callable[[Array], Array]) -> PersonSource:
        """Source of the same persons, with further columns of rows made by `more`."""
        return replace(self, source=self.source.widened(more))

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return self.source.bytes_read(batch)

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Numbers of records, each in one chunk: chunks are small enough for gradients and rows."""
        counts = self.records.counts
        counts = counts if batch is None else counts[batch]
        ends, most, piece = np.cumsum(counts), self._most, self._piece
        chunks, start, before = [], 0, 0
        while start < len(counts):
            stop = int(np.searchsorted(ends, before + piece, side="right"))
            stop = min(max(stop, start + 1), start + most)
            chunks.append(slice(start, stop) if batch is None else batch[start:stop])
            start, before = stop, int(ends[stop - 1])
        return chunks or [slice(0, 0) if batch is None else batch]

    def at(self, params: Array, records: Array) -> PerExampleGradients:
        """Gradients of the records of a chunk, in any order."""
        if isinstance(records, slice):
            persons = np.arange(*records.indices(self.records.n_here))
        else:
            persons = records
        n_rows = int(self.records.counts[persons].sum())
        if n_rows > self._piece and len(persons) == 1:
            return self._in_pieces(params, persons)
        if self.source.formed:
            return self._formed(params, *self.records.rows_by_record(persons))
        if not isinstance(records, slice):
            return self._means(params, Runs(self.records, persons))
        # A chunk of all records is the same in each step. Which products are kept affects the time
        # of a step, and the rounding of norms, which the slack covers either way.
        known, place = self.source.runs, (records.start, records.stop)
        if place not in known:
            known[place] = Runs(self.records, persons)
        return self._means(params, known[place], self.source.longest_kept)

    def _in_pieces(self, params: Array, person: np.ndarray) -> DenseGradients:
        """The gradient of a person with very many rows, computed in pieces."""
        rows, total, slack = self.records.rows_by_record(person)[0], Total(), 0.0
        for some in slices(len(rows), self._piece):
            part = self._formed(params, rows[some], np.array([len(rows[some])]))
            total.add(part.rows)
            slack = part.slack()
        return DenseGradients(total.value, tuple(params.shape), None, slack)

    def _formed(self, params: Array, rows: np.ndarray, counts: np.ndarray) -> DenseGradients:
        grads = self.source.at(params, rows)
        sums = grads.sums(self._weights(grads), counts)
        return DenseGradients(sums, tuple(params.shape), None, self._slack(grads))

    def _means(self, params: Array, runs: Runs, kept: int = 0) -> MeanGradients:
        grads = self.source.at(params, runs.rows)
        if kept > 1 and not runs.tried:
            runs.cache_products(grads, kept)
        weights, slack = self._weights(grads), self._slack(grads)
        return MeanGradients(grads, weights, runs, slack, *self.source.norm_slack)

    def _weights(self, grads: PerExampleGradients) -> Array:
        """Weights of rows: their share of the record, less where they are very long."""
        return in_parts(grads, shrink_factors(grads.norms(), _LONGEST_ROW * self.clip_norm))

    def _slack(self, grads: PerExampleGradients) -> float:
        slack = _LONGEST_ROW * grads.slack()
        if self.source.formed:
            return slack + self.records.slack(EPS, self._most)
        formed, products = self.source.norm_slack
        return slack + self.n_samples * max(16 * formed, 64 * products)

    @property
    def _most(self) -> int:
        if not self.source.formed:
            return self._piece
        return max(1, _FORMED // max(1, self.source.n_params))

    @property
    def _piece(self) -> int:
        if not self.source.formed:
            return self.source.gathered
        return max(1 << 10, _PIECE // max(1, self.source.width))


def of_records(source: Any, clip_norm: float) -> Any:
    """Gradients of the records: of the rows themselves, or of persons."""
    return PersonSource(source, clip_norm) if source.records.grouped else source
