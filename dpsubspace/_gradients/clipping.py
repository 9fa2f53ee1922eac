"""Per-example gradients: what is asked of them, the one clipped sum, and gradients of persons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dpsubspace._array import (
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
from dpsubspace._release.mechanisms import BoundedSum, vector_sum
from dpsubspace._rows.records import Records

# Above this norm a float64 row cannot be weighed down without denormal numbers.
LONGEST = 1e-6 * EPS / float(np.finfo(np.float64).smallest_normal)


class PerExampleGradients(Protocol):
    """Gradients of some rows, one a row, in whatever form is cheap."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of the parameters."""
        ...

    @property
    def shares(self) -> Array | None:
        """Part of its record that each row is, (k,); None where each is one."""
        ...

    def norms(self) -> Array:
        """Euclidean norm of each gradient, never rounded down, (k,).

        In the dtype in which gradients are added up, above which it may be by a few units of
        rounding of that dtype.

        Inf for a gradient that must not count: a null record's, or one out of range.
        """
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of ``weights[i] * gradient[i]``, of the shape of the parameters."""
        ...

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        """Weighted sums of runs of rows, as long as `counts` says: (m, p), in float64."""
        ...

    def slack(self) -> float:
        """How far rounding can move the sum over all records, in units of a term."""
        ...

    def wide_slack(self) -> float:
        """The same for sums of what is computed of them in float64, in units of a gradient."""
        ...

    def inner(self, anchors: Any) -> tuple[Array, float]:
        """Inner products with the gradients of public rows, (k, m), in float64.

        And how far rounding moves one, in units of the product of the two norms. Gradients
        that must not count may have any.
        """
        ...

    def dot(self, gradient: Array) -> Array:
        """Inner products with one gradient of the shape of the parameters, (k,)."""
        ...

    def part(self, group: Any) -> PerExampleGradients:
        """Gradients by the parameters at an index of the last axis."""
        ...

    def dense(self) -> Array:
        """Gradients as rows (k, p) in float64, for so few that this is cheap."""
        ...


class GradientSource(Protocol):
    @property
    def n_samples(self) -> int: ...

    @property
    def data(self) -> Array: ...

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Indices that together name every record once, or every record of `batch`."""
        ...

    def bytes_read(self, batch: np.ndarray | None = None) -> float: ...

    def at(self, params: Array, rows: Array) -> PerExampleGradients:
        """Gradients at `params` of the records of a chunk."""
        ...


def clipped_sum(grads: PerExampleGradients, clip_norm: float) -> BoundedSum:
    """Sum of gradients, each shrunk to norm `clip_norm` where it is longer.

    A `clip_norm` of inf clips nothing and bounds nothing.

    The sum has ``norm_bound = clip_norm * (1 + slack)`` and
    ``replace_bound = clip_norm * (2 + slack)``; the slack is for rounding of this sum and of its
    addition to those of other records (0.8 % in float32; in float64 below 1e-6 up to a million
    rows, or a thousand times that where rows are centred).

    Proof of the bound: record i contributes ``min(1, C / |g_i|) g_i``, which depends on record i
    alone and has norm at most C. Removing it moves the sum by at most C, replacing it by at most 2C
    (triangle inequality). Where a record has several rows, each is clipped and counts for its part
    of the record, and the same holds by the lemma of ``_rows/records.py``. The sums as computed
    differ from the real ones by at most ``slack * C`` more (:func:`~dpsubspace._array.sum_slack`).

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
    """Factors that bring vectors of given norms to `bound` where they are longer, 0 at inf."""
    xp = namespace(norms)
    if bound > 1e-3 * float(xp.finfo(norms.dtype).max):  # longer than any that counts
        return xp.astype(xp.isfinite(norms), norms.dtype)
    return bound / at_least(norms, bound)


# Gradients that are formed ----------------------------------------------------------------------
# Per-example gradients that are formed: rows of numbers.

# Entries of rows that are converted to float64 at once (64 MiB).
_WIDE = 1 << 23


@dataclass(frozen=True)
class DenseGradients:
    rows: Array  # (k, p): one gradient a row, in float32 or float64
    params_shape: tuple[int, ...]  # Shape of the parameters, of p entries
    present: Array | None = None  # (k,): False for null records
    rounding: float = 0.0  # Slack of their sum over all records
    # (k,): part of its record that each row is; None where each is one.
    shares: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows.shape[0], *self.params_shape)

    def norms(self) -> Array:
        xp = namespace(self.rows)
        if self.rows.shape[0] == 0:
            return xp.zeros(0, dtype=xp.float64, device=device(self.rows))
        norms = row_norms(self.rows)
        counts = norms <= LONGEST  # never true of NaN
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


# Gradients of persons ---------------------------------------------------------------------------
# Gradients of persons: the mean over the rows of each.
#
# Design note. Rows of one person have gradients in many directions, and their mean is several times
# shorter than they are. A bound on the mean may therefore be smaller than one on each row, for the
# same bias, and noise is in proportion to the bound. Of a linear model, means are formed for their
# norms alone, a few at a time, and not at all where a person has one row: the sum of clipped means
# is one of rows, each with the weight of its person. Of other models they are formed.

# A row's gradient is shrunk to this many clip norms before the mean is taken: one row far out
# should not decide the direction of it, and rounding is in proportion to the longest.
_LONGEST_ROW = 8.0

# Numbers of the gradients of a chunk of persons (8 MiB), and of the rows that are used at once.
_FORMED, _PIECE = 1 << 20, 1 << 20

# Numbers of means that are formed at once for their norms (2 MiB).
_MEASURED = 1 << 18


@dataclass(frozen=True)
class MeanGradients:
    """Weighted sums of runs of gradients of rows, one a record, not kept as they are formed.

    Rounding: a sum of some of the gradients, in whatever order, is off by at most `error` times
    the sum of the norms of its terms. As much is added to norms, which are those of sums as they
    are formed.
    """

    rows: Any  # Gradients of the rows, of which some can be taken
    weights: Array  # (k,): what each row counts for, 0 where it must not count
    counts: np.ndarray  # (m,): rows of each record, which lie one after another
    rounding: float  # Slack of the sum over all records
    error: float
    shares: None = None  # each is all of its record

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.counts), *self.rows.shape[1:])

    def norms(self) -> Array:
        lengths = self.weights * np.where(self.weights > 0, self.rows.norms(), 0.0)
        found = np.bincount(self._run, lengths, minlength=len(self.counts)) * (1 + 8 * EPS)
        several = np.flatnonzero(self.counts > 1)
        first = int(several[0]) if len(several) else len(self.counts)
        for some, formed in self._formed(first):
            found[some] = formed.norms() + self.error * found[some]
        return found

    def weighted_sum(self, weights: Array) -> Array:
        return self.rows.weighted_sum(self.weights * weights[self._run])

    def slack(self) -> float:
        return self.rounding

    def wide_slack(self) -> float:
        return self.rounding

    @cached_property
    def _run(self) -> np.ndarray:
        """Whose each row is."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def _formed(self, first: int = 0) -> Iterator[tuple[slice, DenseGradients]]:
        """Sums of the records from `first` on, a few at a time."""
        shape, ends = self.shape[1:], np.concatenate([[0], np.cumsum(self.counts)])
        for part in slices(len(self.counts) - first, max(1, _MEASURED // math.prod(shape))):
            some = slice(first + part.start, first + part.stop)
            rows = slice(ends[some.start], ends[some.stop])
            taken = self.rows.taken(rows)
            yield some, DenseGradients(taken.sums(self.weights[rows], self.counts[some]), shape)

    # What needs gradients as rows ----------------------------------------------------------

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        return self._as_rows().sums(weights, counts)

    def inner(self, anchors: Any) -> tuple[Array, float]:
        return self._as_rows().inner(anchors)

    def dot(self, gradient: Array) -> Array:
        return self._as_rows().dot(gradient)

    def part(self, group: Any) -> DenseGradients:
        return self._as_rows().part(group)

    def dense(self) -> Array:
        return self.rows.sums(self.weights, self.counts)

    def _as_rows(self) -> DenseGradients:
        return DenseGradients(self.dense(), self.shape[1:], None, self.rounding)


@dataclass(frozen=True)
class PersonSource:
    """Gradients of records that have several rows, one gradient a record.

    Proof of the bounds: the gradient of a record is a function of its rows alone, whatever they
    are, and is clipped as that of any record. Rounding: rows of other records may lie elsewhere in
    a chunk, where what is computed of them rounds otherwise, which
    :meth:`~dpsubspace._rows.records.Records.slack` counts for rows as long as a clip norm. Rows
    are up to 8 times as long here: with s the slack of a sum of rows, that is ``8 s`` clip norms.

    Of :class:`MeanGradients` norms round as well. The norms of the n records' terms add up to
    ``T <= 8 C`` for each, with C the clip norm, and the sum v of one, as it is formed, is off by
    ``s T / 2 n`` at most: s counts as much for all n records, in two sums. The norm that is
    reported is between ``|v|`` and ``|v| + t + s T / 2 n``, where ``t = s T / n`` is what was added
    to it. Had nothing been rounded, the record would bring ``min(1, C / (|v| + t)) v``, which is
    a function of its rows, no longer than C, and moves by no more than v moves. A norm that is off
    by a part of C moves it by no more than that: by ``4 s C / n``, which is ``8 s`` clip norms
    for all records in two sums.
    """

    source: Any  # Gradients of the rows, which knows whose they are
    clip_norm: float  # What the gradients of records will be clipped to

    @property
    def records(self) -> Records:
        """Whose the rows are, where they lie."""
        return self.source.records

    @property
    def n_samples(self) -> int:
        return self.source.n_samples

    @property
    def data(self) -> Array:
        return self.source.data

    def weighed(self, columns: np.ndarray) -> PersonSource:
        """The same persons, of whose rows the columns are multiplied by these numbers."""
        return replace(self, source=self.source.weighed(columns))

    def widened(self, more: Callable[[Array], Array]) -> PersonSource:
        """The same persons, of whose rows `more` makes further columns."""
        return replace(self, source=self.source.widened(more))

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return self.source.bytes_read(batch)

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Numbers of records, each in one chunk: few enough for their gradients and rows.

        In a chunk, those of as many rows lie side by side.
        """
        records = np.arange(self.records.n_here) if batch is None else np.asarray(batch)
        counts = self.records.counts[records]
        ends = np.cumsum(counts)
        most, chunks, start, before = self._most, [], 0, 0
        while start < len(records):
            stop = int(np.searchsorted(ends, before + self._piece, side="right"))
            stop = min(max(stop, start + 1), start + most)
            order = np.argsort(counts[start:stop], kind="stable")
            chunks.append(records[start:stop][order])
            start, before = stop, int(ends[stop - 1])
        return chunks or [records]

    def at(self, params: Array, records: np.ndarray) -> PerExampleGradients:
        rows, counts = self.records.rows_by_record(records)
        if len(rows) <= self._piece or len(records) > 1:
            return self._means(params, rows, counts)
        gradients, slack = Total(), 0.0
        for some in slices(len(rows), self._piece):  # of very many rows, one piece after another
            part = self._means(params, rows[some], np.array([len(rows[some])]))
            gradients.add(part.dense())
            slack = part.slack()
        return DenseGradients(gradients.value, tuple(params.shape), None, slack)

    def _means(self, params: Array, rows: np.ndarray, counts: np.ndarray) -> PerExampleGradients:
        grads = self.source.at(params, rows)
        weights = in_parts(grads, shrink_factors(grads.norms(), _LONGEST_ROW * self.clip_norm))
        slack = _LONGEST_ROW * grads.slack()
        if not self.source.formed:
            error = grads.slack() / self.n_samples
            return MeanGradients(grads, weights, counts, 2 * slack, error)
        slack += self.records.slack(EPS, self._most)
        return DenseGradients(grads.sums(weights, counts), tuple(params.shape), None, slack)

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
    """Gradients of what one record is: of the rows themselves, or of persons."""
    return PersonSource(source, clip_norm) if source.records.grouped else source
