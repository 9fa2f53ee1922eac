"""Whose the rows are, and the maps that bound them before anything is learned.

A *record* is what the guarantee hides. Usually that is a row. Where a person has several rows, the
person is the record, and each of the rows counts for a part of it.

Lemma. Let S be the set of what single rows can bring to a sum, with 0 in it. A record of several
rows brings ``sum_i w_i s_i`` with s_i in S, ``w_i >= 0`` and ``sum_i w_i <= 1``: a point of the
convex hull of S. The longest vector of a convex hull is as long as the longest of the set, and its
two furthest points are as far apart as those of the set (norms are convex functions). So a bound
on what one row contributes, and one on how far apart are what two rows bring, hold for one record
and for two, whatever the number of their rows. This covers vectors, second moments with their
``sqrt(2) c^2``, counts in cells, and scores between 0 and 1.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.arrays import (
    BLOCK,
    EPS,
    Array,
    at_least,
    chunk_rows,
    eps_of,
    namespace,
    on_device,
    row_norms,
    sum_slack,
    to_numpy,
)
from dpsubspace._core.ground.checks import is_collection, unwrapped
from dpsubspace._core.ground.forms import Maybe, Number, Record, Text
from dpsubspace._core.rows.chunks import FormedRows, Slices, over_chunks
from dpsubspace._core.rows.columns import are_floats_too, as_column
from dpsubspace._core.rows.remote import RemoteRows, RowParts, rowwise
from dpsubspace._core.rows.together import HELD, PERSONS, PRESENT, parts_of_persons, whole

# Maps of rows -----------------------------------------------------------------------------------
# Maps that bound rows before anything is learned from them.
#
# A :class:`RowMap` looks at one row at a time, so it costs no privacy: whatever a record is, its
# image is bounded, and no other record is needed to compute it. A :class:`Shift` is made of
# released values only.

ROW_NORMS = ("l2", "clip", None)


@dataclass(frozen=True, kw_only=True)
class RowMap:
    """Append the bias entry to each row, then bound the two together by one factor.

    Scaling a row together with its bias entry multiplies every affine score ``w @ x + b`` of that
    row by one positive number, so each affine decision boundary of the original rows is a linear
    one of the mapped rows, and rows of one feature do not collapse to their sign.
    """

    # ``"l2"`` divides (x, bias) by its norm; ``"clip"`` shrinks (x, bias) by the factor that
    # brings the norm of x down to `data_norm`, where it is above; ``"ball"`` does that and divides
    # by `data_norm`; None leaves rows as they are.
    norm: str | None
    # Public or released bound on the norm of x, for ``"clip"`` and ``"ball"``.
    data_norm: float | None = None
    bias: float | None = None  # Public value of the bias entry; None appends no entry

    @property
    def bound(self) -> float:
        """Most that the norm of a mapped row can be (inf where rows are left alone)."""
        if self.norm == "l2":
            return 1.0
        if self.norm == "clip":
            return float(np.hypot(self.data_norm or 0.0, self.bias or 0.0))
        if self.norm == "ball":
            return float(np.hypot(1.0, (self.bias or 0.0) / (self.data_norm or 1.0)))
        return np.inf

    @property
    def largest_factor(self) -> float:
        """Most that the factor of a row can be."""
        if self.norm == "l2":
            return 1 / self.bias if self.bias else np.inf
        return 1 / (self.data_norm or 1.0) if self.norm == "ball" else 1.0

    def factors(self, X: Array) -> tuple[Array, Array]:
        """Factor of each row and norm of the mapped row, both float64 of shape (n,).

        A row too long for sums in its dtype (with its bias entry above 1e30 in float32, 1e290 in
        float64), or one whose factor would leave that range, counts as a row of zeros,
        its bias entry included; so do all rows where the bound itself is below that range.
        """
        norms = _all_norms(X)
        xp = namespace(norms)
        joint = xp.hypot(norms, xp.full_like(norms, self.bias or 0.0)) * (1 + 4 * EPS)
        # Rounded in the dtype of the rows, a factor grows by at most eps / 2: shrink first,
        # so that the bound holds for the numbers that are used.
        shrink = 1 - 4 * eps_of(X)
        if self.norm == "l2":
            factors = shrink / xp.where(joint > 0, joint, xp.ones_like(joint))
        elif self.norm == "clip":
            factors = shrink * (self.data_norm or 0.0) / at_least(norms, self.data_norm or 0.0)
        elif self.norm == "ball":
            factors = shrink / at_least(norms, self.data_norm or 0.0)
        else:
            factors = xp.ones_like(norms)
        limit = 1e30 if eps_of(X) > 1e-10 else 1e290
        usable = (factors > 1 / limit) & (factors < limit) & (joint > 0) & (joint < limit)
        usable = usable & (self.bound > 1 / limit)  # below, numbers have few digits left
        factors = xp.where(usable, factors, xp.zeros_like(factors))
        lengths = factors * xp.where(usable, joint, xp.zeros_like(joint))
        return factors, lengths


ROW_MAP_FORM = Record(
    RowMap,
    norm=Maybe(Text(("l2", "clip", "ball"))),
    data_norm=Maybe(Number(0)),
    bias=Maybe(Number(0)),
)


def _all_norms(X: Array) -> Array:
    """Norms of rows, by all threads."""
    if isinstance(X, FormedRows):
        with over_chunks(Slices(X, X.chunk)) as each:
            return np.concatenate(list(each(X.norms)))
    step = chunk_rows(X)
    if sparse.issparse(X) or X.shape[0] <= step:
        return row_norms(X)
    with over_chunks(Slices(X, step)) as each:
        return namespace(X).concat(list(each(lambda rows: row_norms(X[rows, :]))))


@dataclass(frozen=True)
class Shift:
    """Subtract a released mean from mapped rows, and append a constant entry."""

    mean: np.ndarray  # (width,): released mean of the mapped rows
    constant: float | None  # Public value of the constant entry; None appends none
    error: float = 0.0  # About how far noise has moved the mean, as public and released numbers say

    def undo(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (width, c) and offset (c,) with the same scores on unshifted rows.

        ``W @ (r - m) + c k = W @ r + (c k - W @ m)`` (Sun, Suresh, Menon, 2024, Lemma 5).
        """
        width = len(self.mean)
        offset = -(self.mean @ weights[:width])
        if self.constant is not None:
            offset = offset + self.constant * weights[width]
        return weights[:width], offset


# Records ----------------------------------------------------------------------------------------

# What a record is called.
ROW, PERSON = "row", "person"


def exact_steps(n_records: int) -> float:
    """Steps to 1 of what is added up over so many records, at most 1 of each: a power of 2.

    Sums of whole steps are exact in float64, in whatever order they are taken, as long as there
    are at most 2^53 of them. There are 2^24 to 1 for up to 2^29 records, and fewer for more: the
    number of records is public.
    """
    return 2.0 ** min(24, 53 - (n_records - 1).bit_length())


@dataclass(frozen=True)
class Records:
    """Records, their rows, and what part of its record each row is."""

    n: int  # Number of records, public
    # (n_rows,): part of its record that a row is: those of one record add up to at most 1,
    # and those of a null record are 0, so that it contributes exactly nothing. None stands for
    # ones.
    weights: Array | None = None
    # (n_rows,): record of each row, from 0 to ``n - 1``. None where each row is a record.
    # How many rows there are is private where it is given.
    index: Array | None = None
    # (1,): how many of the records lie here, where rows lie in parts and `index` counts those of
    # a part; None where all do.
    held: Array | None = None

    @classmethod
    def of_rows(cls, n: int, present: np.ndarray | None = None) -> Records:
        """Every row a record; False in `present` makes it a null record."""
        return cls(n, None if present is None else np.asarray(present, dtype=np.float64))

    @classmethod
    def of_groups(cls, index: np.ndarray, n: int, present: np.ndarray | None = None) -> Records:
        """Rows that belong to `n` records, in equal parts.

        One over the number of rows is rounded down to whole steps of :func:`exact_steps`. What the
        rows of a record count for then adds up to at most 1, and sums of such numbers are exact in
        whatever order they are taken. A record of more rows than there are steps counts for
        nothing: 2^24, of up to 2^29 records.
        """
        counts, steps = np.bincount(index, minlength=n), exact_steps(n)
        parts = np.floor(steps / np.maximum(counts, 1)) / steps
        weights = parts[index]
        return cls(n, weights if present is None else np.where(present, weights, 0.0), index)

    @property
    def n_here(self) -> int:
        """How many of the records lie here: of those in a part, which is asked where it lies."""
        return self.n if self.held is None else int(self.held[0])

    @property
    def grouped(self) -> bool:
        """Whether a record may have several rows."""
        return self.index is not None

    @property
    def unit(self) -> str:
        return PERSON if self.grouped else ROW

    @property
    def shares(self) -> Array | None:
        """Part of its record that a row is; None where each is all of it, or null."""
        return self.weights if self.grouped else None

    @property
    def present(self) -> Array | None:
        """Whether each row belongs to a record that is not null; None where all do."""
        return None if self.weights is None else self.weights > 0

    @property
    def weights_numpy(self) -> np.ndarray | None:
        """Weights as a NumPy array, where counts are taken."""
        return None if self.weights is None else to_numpy(self.weights)

    def on_device(self, where: Any) -> Records:
        return replace(self, weights=on_device(self.weights, where))

    def count(self, chosen: np.ndarray) -> float:
        """Number of records of which the rows are True; parts of records count as such."""
        weights = self.weights_numpy
        return float(np.count_nonzero(chosen) if weights is None else weights[chosen].sum())

    # Some of the records --------------------------------------------------------------------

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of their records, and where those of each begin."""
        assert self.index is not None
        counts = np.bincount(self.index, minlength=self.n_here)
        return np.argsort(self.index, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def counts(self) -> np.ndarray:
        """How many rows each record has."""
        if self.index is None:
            return np.ones(self.n_here, dtype=np.intp)
        return np.diff(self._order[1])

    def rows_by_record(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the records in `batch`, one record after another, and how many each has."""
        if self.index is None:
            return batch, np.ones(len(batch), dtype=np.intp)
        order, starts = self._order
        first, counts = starts[batch], starts[batch + 1] - starts[batch]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return order[np.repeat(first, counts) + within], counts

    def rows(self, batch: np.ndarray) -> np.ndarray:
        """Rows of the records in `batch`, in the order of the rows."""
        return batch if self.index is None else np.sort(self.rows_by_record(batch)[0])

    def taken(self, batch: np.ndarray) -> Records:
        """The records in `batch`, with the rows that :meth:`rows` gives."""
        rows = self.rows(batch)
        weights = None if self.weights is None else self.weights[rows]
        if self.index is None:
            return Records(len(batch), weights)
        return Records(len(batch), weights, np.searchsorted(batch, self.index[rows]))

    def pairs(self, order: np.ndarray) -> tuple[Records, np.ndarray, np.ndarray]:
        """Pairs of each second record of `order` and the next one, and rows to compare.

        Gives the pairs, of which one with a null record is null, and two arrays with a row each of
        two records: as many for each pair as the smaller of them has.
        """
        ours, theirs = order[0 : len(order) // 2 * 2 : 2], order[1::2]
        present = self.weights_numpy
        present = np.ones(self.n, bool) if present is None else present > 0
        if self.index is None:
            return Records.of_rows(len(ours), present[ours] & present[theirs]), ours, theirs
        rows, starts = self._order
        counts = np.minimum(np.diff(starts)[ours], np.diff(starts)[theirs])
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        first, second = (rows[np.repeat(starts[x], counts) + within] for x in (ours, theirs))
        index = np.repeat(np.arange(len(ours)), counts)
        both = present[first] & present[second]
        return Records.of_groups(index, len(ours), both), first, second

    # Sums over records ----------------------------------------------------------------------

    def slack(
        self,
        eps: float,
        chunk: int,
        block: int = BLOCK,
        *,
        own: float = 0.0,
        by_block: bool = False,
    ) -> float:
        """How far rounding can move a sum between neighbours, in units of its largest term.

        `eps` is that of the dtype in which blocks are added up, `chunk` and `block` are the most
        rows of either. `own` is by how many units of rounding a term may differ where its row lies
        elsewhere in a chunk. With `by_block` a chunk adds up its blocks, and not its rows, in
        float64.

        Where each row is a record, :func:`~dpsubspace._core.ground.arrays.sum_slack` has the proof:
        neighbours share all blocks but one. A record of several rows may have some in every block,
        and a neighbour may have other numbers of rows, which moves all later ones to other blocks.
        Such sums are in float64 throughout. Each of the two is then off by at most ``k u`` times
        the sum of the norms of its terms, with k the rows of a chunk (or of a block, and blocks of
        a chunk) plus 2 for chunks that are added up with compensation (Higham, 2002, section 4).
        Terms are weighted and weights add up to at most n, whatever the number of rows: both sums
        together are off by ``(k + 2) 2 u n`` terms, with ``2 u`` the epsilon of float64. There are
        16 in place of the 2, which is enough for what compensation leaves of up to 2^28 chunks.
        """
        if not self.grouped:
            return sum_slack(self.n, eps, chunk, block, by_block=by_block)
        if eps > EPS:
            raise RuntimeError("sums over records of several rows must be taken in float64.")
        added = block + chunk / block if by_block else chunk
        return 1.01 * self.n * EPS * (added + own + 16)


class RecordRows:
    """What rows of records have that are visited chunk by chunk."""

    def __init__(self, X: Any, records: Records | None):
        self.X = self.data = X
        self.records = Records.of_rows(X.shape[0]) if records is None else records
        # Number of records, public, and of rows, which is private where it is another one.
        # The number of rows is private where it is not that of the records.
        self.n_samples, self.n_rows = self.records.n, X.shape[0]


@dataclass(frozen=True)
class NullRecords:
    """What takes the place of `groups` where some records are null: for tests and audits alone.

    A null record contributes exactly nothing and is still counted: two tables of which one has a
    null record are neighbours under ``"zero_out"``. Nothing but this type says so. What users pass
    as `groups` is a column, of which no entry can leave out a row.

    Groups are in numbers or text, or None. False in `present` makes the record of a row a null
    record; it is the same for all rows of one.
    """

    groups: Any
    present: np.ndarray

    def __post_init__(self) -> None:
        # A column of a collection says its type, and is not computed.
        known = self.present if hasattr(self.present, "dtype") else np.asarray(self.present)
        if known.dtype != bool:
            raise TypeError("`present` must be True or False for each row.")


def check_groups(groups: Any, X: Any) -> Records:
    """Records of checked rows: each its own, or all rows with one entry of `groups` together."""
    n_rows, present = X.shape[0], None
    if isinstance(groups, NullRecords):
        groups, present = groups.groups, groups.present
        if len(present) != n_rows:
            raise ValueError("`present` must have one entry for each row of `X`.")
    if isinstance(X, RemoteRows):
        if groups is not None:
            return _in_parts(X.parts)
        return Records(n_rows, None if present is None else X.parts.scattered(present))
    if groups is None:
        return Records.of_rows(n_rows, present)
    index, _, n = group_index(groups, n_rows)
    if present is not None and len(np.unique(index[present])) + len(np.unique(index[~present])) > n:
        raise ValueError("`present` must be the same for all rows of a record.")
    return Records.of_groups(index, n, present)


def check_order(X: Any, rows: str = "X", **columns: Any) -> None:
    """ValueError where a column has the labels of the rows of `X` in another order.

    Labels are those of pandas (its index). Columns are taken by position, so that rows would be
    counted as those of other persons, or get the targets of others. A column that has other labels
    as well, such as a new series beside some rows of a frame, can only go by position, and does.
    Messages call `X` by the name in `rows`.
    """
    X = unwrapped(rows, X, read=False)
    given = {name: unwrapped(name, split_groups(column)[0]) for name, column in columns.items()}
    if not _has_labels(X):
        return
    for name, column in given.items():
        if not _has_labels(column) or len(column) != len(X):  # others compare lengths
            continue
        ours, theirs = X.index, column.index
        if ours.equals(theirs) or not (ours.isin(theirs).all() and theirs.isin(ours).all()):
            continue
        if list(ours) != list(theirs):  # equal labels may be of two types
            raise ValueError(
                f"`{name}` has the labels of the rows of `{rows}` in another order, as its index"
                f" says, and rows are taken by position. Pass {name}.loc[{rows}.index] to go by"
                f" labels, or {name}.to_numpy() if the positions are right."
            )


def _has_labels(column: Any) -> bool:
    return hasattr(type(column), "iloc") and not is_collection(column)


def _in_parts(parts: RowParts) -> Records:
    """Persons whose rows lie in parts, each in one: see ``_core/rows/together.py``."""
    n = parts.n_persons
    if n is None:
        raise RuntimeError("rows of persons have to be brought together when they are read.")
    index, held = parts.leaf(PERSONS, np.empty(0, np.int64)), parts.leaf(HELD, np.zeros(1, int))
    weights = rowwise(parts_of_persons, index, held, exact_steps(n))
    if PRESENT in parts.template:
        weights = weights * parts.leaf(PRESENT, np.empty(0, bool))
    return Records(n, weights, index, held)


def names_of_records(groups: Any, n_rows: int) -> np.ndarray:
    """Names of the records of :func:`check_groups`: numbers of rows where each is its own."""
    groups = groups.groups if isinstance(groups, NullRecords) else groups
    return np.arange(n_rows) if groups is None else group_index(groups, n_rows)[1]


def split_groups(groups: Any) -> tuple[Any, Any]:
    """Who each row belongs to, and whether its record is no null record, where that is said."""
    return (groups.groups, groups.present) if isinstance(groups, NullRecords) else (groups, None)


def groups_of_rows(groups: Any, rows: np.ndarray) -> Any:
    if isinstance(groups, NullRecords):
        return NullRecords(groups_of_rows(groups.groups, rows), groups.present[rows])
    return None if groups is None else np.asarray(groups)[rows]


def group_index(groups: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Number of the group of each row, the names of the groups in that order, and how many."""
    names, index = np.unique(names_of_rows(groups, n_rows), return_inverse=True)
    return index.reshape(-1), names, len(names)


def names_of_rows(groups: Any, n_rows: int) -> np.ndarray:
    """Who each row belongs to, as numbers, dates or text; ValueError where that is not known."""
    if np.ma.is_masked(groups):
        raise ValueError(_MISSING)
    values = None
    with suppress(ValueError):  # whose message may have how many rows there are, which is private
        values = np.asarray(as_column(groups, "groups"))
    if values is None:
        raise ValueError("`groups` must be one column, and has entries of several.")
    if values.ndim == 0:
        raise ValueError(
            "`groups` must have one entry for each row of `X`, got a single value: pass the column"
            " itself, such as table['patient'], and not its name."
        )
    if values.ndim > 2 or (values.ndim == 2 and values.shape[1] != 1):
        several = f"{values.shape[1]} columns" if values.ndim == 2 else f"{values.ndim} axes"
        raise ValueError(f"`groups` must be one column, who each row belongs to, got {several}.")
    values = values.reshape(-1)
    if len(values) != n_rows:
        raise ValueError(
            "`groups` must have one entry for each row of `X`, and has more or fewer: compare"
            " len(groups) and len(X)."
        )
    return _plain(values)


def _plain(values: np.ndarray) -> np.ndarray:
    """Names as numbers, dates or text, of which none is missing; whole numbers as integers."""
    if values.dtype.kind == "O":
        values = _of_objects(values.tolist())
    kind = values.dtype.kind
    if (kind == "f" and not np.isfinite(values).all()) or (kind in "mM" and np.isnat(values).any()):
        raise ValueError(_MISSING)
    if kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if kind == "f" and whole(values).all():
        return values.astype(np.int64)
    if kind not in "biufmMU":
        raise ValueError(f"`groups` must be numbers, dates or text, got {values.dtype}.")
    return values


def _of_objects(values: list[Any]) -> np.ndarray:
    # NaN is not equal to itself, and pandas' missing value compares as neither true nor false.
    missing = any(value is None or (value == value) is not True for value in map(_scalar, values))
    if missing:
        raise ValueError(_MISSING)
    found = None
    with suppress(ValueError, TypeError):  # whose messages may have entries
        found = np.array(values)
    texts = sum(isinstance(value, (str, bytes)) for value in values)
    if found is None or found.ndim != 1 or found.dtype.kind == "O" or 0 < texts < len(values):
        raise ValueError("`groups` has numbers and text: give all entries one type.")
    if found.dtype.kind == "f" and not are_floats_too(values):  # persons would become one
        raise ValueError("`groups` has floats and whole numbers of 2^53 or more: pass all as text.")
    return found


def _scalar(value: Any) -> Any:
    """A scalar of NumPy as one of Python, whose comparisons are plain."""
    return value.item() if isinstance(value, np.generic) else value


_MISSING = (
    "`groups` has missing entries: fill in who these rows belong to, give each such row a group of"
    " its own, or drop the rows."
)
