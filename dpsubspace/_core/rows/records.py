"""Privacy units (rows or persons), and maps that bound rows before anything is learned.

A *record* is the unit that the guarantee hides. Usually that is a row. If a person has several
rows, the person is the record, and each of the rows counts for a part of it.

Lemma. Let S be the set of possible contributions of single rows to a sum, with 0 in it. A record of
several rows contributes ``sum_i w_i s_i`` with s_i in S, ``w_i >= 0`` and ``sum_i w_i <= 1``: a
point of the convex hull of S. The longest vector of a convex hull is as long as the longest of the
set, and its two furthest points are as far apart as those of the set (norms are convex functions).
So a bound on the contribution of one row, and a bound on the distance between the contributions of
two rows, hold for one record and for two, whatever the number of their rows. This covers vectors,
second moments with their ``sqrt(2) c^2``, counts in cells, and scores between 0 and 1.
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
from dpsubspace._core.ground.checks import is_collection, is_dataset, unwrapped
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
    # reduces the norm of x to `data_norm`, if it is above; ``"ball"`` does that and divides by
    # `data_norm`; None leaves rows unchanged.
    norm: str | None
    # Public or released bound on the norm of x, for ``"clip"`` and ``"ball"``.
    data_norm: float | None = None
    bias: float | None = None  # Public value of the bias entry; None appends no entry

    @property
    def bound(self) -> float:
        """The largest possible norm of a mapped row (inf if rows are left unchanged)."""
        if self.norm == "l2":
            return 1.0
        if self.norm == "clip":
            return float(np.hypot(self.data_norm or 0.0, self.bias or 0.0))
        if self.norm == "ball":
            return float(np.hypot(1.0, (self.bias or 0.0) / (self.data_norm or 1.0)))
        return np.inf

    @property
    def largest_factor(self) -> float:
        """The largest possible factor of a row."""
        if self.norm == "l2":
            return 1 / self.bias if self.bias else np.inf
        return 1 / (self.data_norm or 1.0) if self.norm == "ball" else 1.0

    def factors(self, X: Array) -> tuple[Array, Array]:
        """Return the factor of each row and the norm of the mapped row, both float64 of shape (n,).

        A row too long for sums in its dtype (with its bias entry above 1e30 in float32, 1e290 in
        float64), or one whose factor would leave that range, counts as a row of zeros, its bias
        entry included; so do all rows if the bound itself is below that range.
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
    """Return the norms of rows, computed by all threads."""
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
    error: float = 0.0  # About how far noise has moved the mean, by public and released numbers

    def undo(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (width, c) and offset (c,) with the same scores on unshifted rows.

        ``W @ (r - m) + c k = W @ r + (c k - W @ m)`` (Sun, Suresh, Menon, 2024, Lemma 5).
        """
        width = len(self.mean)
        offset = -(self.mean @ weights[:width])
        if self.constant is not None:
            offset = offset + self.constant * weights[width]
        return weights[:width], offset


# Records ----------------------------------------------------------------------------------------

# Names of records.
ROW, PERSON = "row", "person"


def exact_steps(n_records: int) -> float:
    """Return the number of steps to 1 for sums of at most 1 per record: a power of 2.

    Sums of whole steps are exact in float64, in any order, as long as there are at most 2^53 of
    them. There are 2^24 to 1 for up to 2^29 records, and fewer for more: the number of records is
    public.
    """
    return 2.0 ** min(24, 53 - (n_records - 1).bit_length())


@dataclass(frozen=True)
class Records:
    """Records, their rows, and each row's part of its record."""

    n: int  # Number of records, public
    # (n_rows,): each row's part of its record: the parts of one record add up to at most 1, and
    # those of a null record are 0, so that it contributes exactly nothing. None stands for ones.
    weights: Array | None = None
    # (n_rows,): record of each row, from 0 to ``n - 1``. None if each row is a record. If it is
    # given, the number of rows is private.
    index: Array | None = None
    # (1,): number of the records that lie here, if rows lie in parts and `index` counts the records
    # of a part; None if all do.
    held: Array | None = None

    @classmethod
    def of_rows(cls, n: int, present: np.ndarray | None = None) -> Records:
        """Make every row a record; False in `present` makes it a null record."""
        return cls(n, None if present is None else np.asarray(present, dtype=np.float64))

    @classmethod
    def of_groups(cls, index: np.ndarray, n: int, present: np.ndarray | None = None) -> Records:
        """Make records of rows that belong to `n` records, in equal parts.

        One over the number of rows is rounded down to whole steps of :func:`exact_steps`. The
        weights of the rows of a record then add up to at most 1, and sums of such numbers are exact
        in any order. A record of more rows than there are steps counts for nothing: 2^24, with up
        to 2^29 records.
        """
        counts, steps = np.bincount(index, minlength=n), exact_steps(n)
        parts = np.floor(steps / np.maximum(counts, 1)) / steps
        weights = parts[index]
        return cls(n, weights if present is None else np.where(present, weights, 0.0), index)

    @property
    def n_here(self) -> int:
        """The number of records that lie here: in a part, those of the part."""
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
        """Each row's part of its record; None if each is all of it, or null."""
        return self.weights if self.grouped else None

    @property
    def present(self) -> Array | None:
        """Whether each row belongs to a record that is not null; None if all do."""
        return None if self.weights is None else self.weights > 0

    @property
    def weights_numpy(self) -> np.ndarray | None:
        """Weights as a NumPy array, for counts."""
        return None if self.weights is None else to_numpy(self.weights)

    def on_device(self, where: Any) -> Records:
        return replace(self, weights=on_device(self.weights, where))

    def count(self, chosen: np.ndarray) -> float:
        """Count the records whose rows are True in `chosen`; parts of records count as such."""
        weights = self.weights_numpy
        return float(np.count_nonzero(chosen) if weights is None else weights[chosen].sum())

    # Subsets of the records -----------------------------------------------------------------

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of their records, and the first position of each record."""
        assert self.index is not None
        counts = np.bincount(self.index, minlength=self.n_here)
        return np.argsort(self.index, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def counts(self) -> np.ndarray:
        """Return the number of rows of each record."""
        if self.index is None:
            return np.ones(self.n_here, dtype=np.intp)
        return np.diff(self._order[1])

    def rows_by_record(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the records in `batch`, record by record, and their numbers."""
        if self.index is None:
            return batch, np.ones(len(batch), dtype=np.intp)
        order, starts = self._order
        first, counts = starts[batch], starts[batch + 1] - starts[batch]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return order[np.repeat(first, counts) + within], counts

    def rows(self, batch: np.ndarray) -> np.ndarray:
        """Return the rows of the records in `batch`, in the order of the rows."""
        return batch if self.index is None else np.sort(self.rows_by_record(batch)[0])

    def taken(self, batch: np.ndarray) -> Records:
        """Return the records in `batch`, with the rows that :meth:`rows` gives."""
        rows = self.rows(batch)
        weights = None if self.weights is None else self.weights[rows]
        if self.index is None:
            return Records(len(batch), weights)
        return Records(len(batch), weights, np.searchsorted(batch, self.index[rows]))

    def pairs(self, order: np.ndarray) -> tuple[Records, np.ndarray, np.ndarray]:
        """Return pairs of each second record of `order` and the next one, and rows to compare.

        Return the pairs, of which one with a null record is null, and two arrays with the rows of
        the first and second records: for each pair as many as the smaller record has.
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
        """Return how far rounding can move a sum between neighbours, in units of its largest term.

        `eps` is that of the dtype in which blocks are added up, `chunk` and `block` are the most
        rows of either. `own` is the number of units of rounding by which a term may differ if its
        row has another position in a chunk. With `by_block` a chunk adds up its blocks, and not its
        rows, in float64.

        If each row is a record, :func:`~dpsubspace._core.ground.arrays.sum_slack` has the proof:
        neighbours share all blocks but one. A record of several rows may have some in every block,
        and a neighbour may have other numbers of rows, which moves all later ones to other blocks.
        Such sums are in float64 throughout. Each of the two is then off by at most ``k u`` times
        the sum of the norms of its terms, with k the rows of a chunk (or of a block, and blocks of
        a chunk) plus 2 for chunks that are added up with compensation (Higham, 2002, section 4).
        Terms are weighted and weights add up to at most n, whatever the number of rows: both sums
        together are off by ``(k + 2) 2 u n`` terms, with ``2 u`` the epsilon of float64. There are
        16 in place of the 2, which is enough for the error of compensated sums of up to 2^28
        chunks.
        """
        if not self.grouped:
            return sum_slack(self.n, eps, chunk, block, by_block=by_block)
        if eps > EPS:
            raise RuntimeError("sums over records of several rows must be taken in float64.")
        added = block + chunk / block if by_block else chunk
        return 1.01 * self.n * EPS * (added + own + 16)


class RecordRows:
    """Common base of rows of records that are visited chunk by chunk."""

    def __init__(self, X: Any, records: Records | None):
        self.X = self.data = X
        self.records = Records.of_rows(X.shape[0]) if records is None else records
        # Number of records, public, and of rows, which is private if it differs from that of the
        # records.
        self.n_samples, self.n_rows = self.records.n, X.shape[0]


@dataclass(frozen=True)
class NullRecords:
    """Replaces `groups` if some records are null: for tests and audits alone.

    A null record contributes exactly nothing and is still counted: two tables of which one has a
    null record are neighbours under ``"zero_out"``. Only this type can mark null records. What
    users pass as `groups` is a column, no entry of which can leave out a row.

    Groups are in numbers or text, or None. False in `present` makes the record of a row a null
    record; it is the same for all rows of one record.
    """

    groups: Any
    present: np.ndarray

    def __post_init__(self) -> None:
        # A column of a collection has a type, and is not computed.
        known = self.present if hasattr(self.present, "dtype") else np.asarray(self.present)
        if known.dtype != bool:
            raise TypeError("`present` must be True or False for each row.")


def check_groups(groups: Any, X: Any) -> Records:
    """Return records of checked rows: each its own, or all rows of one group together."""
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
    """Raise ValueError if a column has the labels of the rows of `X` in another order.

    Labels are those of pandas (its index). Columns are used by position, so that rows would be
    counted for other persons, or get the targets of others. A column that also has other labels,
    such as a new series beside some rows of a frame, can only be used by position, and is. Messages
    call `X` by the name in `rows`.
    """
    X = unwrapped(rows, X, read=False)
    if is_dataset(X):  # whose columns have names, and which has no labels
        return
    given = {name: unwrapped(name, split_groups(column)[0]) for name, column in columns.items()}
    if getattr(X, "ndim", 2) == 1 and getattr(given.get("y"), "ndim", 1) == 2:
        raise ValueError(_SWAPPED)
    if not _has_labels(X):
        return
    for name, column in given.items():
        if not _has_labels(column) or len(column) != len(X):  # other checks compare lengths
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


_SWAPPED = (
    "Expected 2D array for `X`, got 1D, and `y` has two dimensions: they seem to be swapped. Rows"
    " come first, and then their labels or targets, as in fit(X, y)."
)


def _has_labels(column: Any) -> bool:
    return hasattr(type(column), "iloc") and not is_collection(column)


def _in_parts(parts: RowParts) -> Records:
    """Return persons whose rows lie in parts, each in one: see ``_core/rows/together.py``."""
    n = parts.n_persons
    if n is None:
        raise RuntimeError("rows of persons have to be brought together when they are read.")
    index, held = parts.leaf(PERSONS, np.empty(0, np.int64)), parts.leaf(HELD, np.zeros(1, int))
    weights = rowwise(parts_of_persons, index, held, exact_steps(n))
    if PRESENT in parts.template:
        weights = weights * parts.leaf(PRESENT, np.empty(0, bool))
    return Records(n, weights, index, held)


def names_of_records(groups: Any, n_rows: int) -> np.ndarray:
    """Return names of the records of :func:`check_groups`: row numbers if each is its own."""
    groups = groups.groups if isinstance(groups, NullRecords) else groups
    return np.arange(n_rows) if groups is None else group_index(groups, n_rows)[1]


def split_groups(groups: Any) -> tuple[Any, Any]:
    """Return the person of each row, and whether its record is not null, if that is given."""
    return (groups.groups, groups.present) if isinstance(groups, NullRecords) else (groups, None)


def groups_of_rows(groups: Any, rows: np.ndarray) -> Any:
    if isinstance(groups, NullRecords):
        return NullRecords(groups_of_rows(groups.groups, rows), groups.present[rows])
    return None if groups is None else np.asarray(groups)[rows]


def group_index(groups: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the number of each row's group, the names of the groups in that order; their count."""
    names, index = np.unique(names_of_rows(groups, n_rows), return_inverse=True)
    return index.reshape(-1), names, len(names)


def names_of_rows(groups: Any, n_rows: int) -> np.ndarray:
    """Return each row's person as numbers, dates or text; raise ValueError if unknown."""
    if np.ma.is_masked(groups):
        raise ValueError(_MISSING)
    values = None
    with suppress(ValueError):  # the message may have the number of rows, which is private
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
    """Return names as numbers, dates or text, none missing; whole numbers as integers."""
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
    with suppress(ValueError, TypeError):  # the messages may have entries
        found = np.array(values)
    texts = sum(isinstance(value, (str, bytes)) for value in values)
    if found is None or found.ndim != 1 or found.dtype.kind == "O" or 0 < texts < len(values):
        raise ValueError("`groups` has numbers and text: give all entries one type.")
    if found.dtype.kind == "f" and not are_floats_too(values):  # several persons would become one
        raise ValueError("`groups` has floats and whole numbers of 2^53 or more: pass all as text.")
    return found


def _scalar(value: Any) -> Any:
    """Convert a scalar of NumPy to one of Python, whose comparisons are plain."""
    return value.item() if isinstance(value, np.generic) else value


_MISSING = (
    "`groups` has missing entries: fill in who these rows belong to, give each such row a group of"
    " its own, or drop the rows."
)
