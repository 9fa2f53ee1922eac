"""Rows that an estimator was fitted to, as far as this process knows.

Rows are recognised by the object that was passed, or the memory that they lie in, and by their
content, in any container. For the content, some rows of the last fit are kept as numbers of 64 bits
each, mixed by a secret of the process. No row is kept, nothing is written to a file or a pickle,
and nothing keeps rows alive.

Warnings follow from this. They reveal the same as the refusal of private rows as public ones
(:mod:`dpsubspace._core.rows.same_rows`), by the same rule: half of the rows and more than chance
explains, so that honest use never gets near it.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.ground.checks import is_elsewhere
from dpsubspace._core.rows.same_rows import explained_by_chance

# Owner of the rows of the last fit of each estimator, and the position of its rows in it.
_SEEN: weakref.WeakKeyDictionary[Any, tuple[weakref.ref[Any], dict[str, Any] | None]] = (
    weakref.WeakKeyDictionary()
)
# Keys of some of these rows, where the fit has released something.
_KEYS: weakref.WeakKeyDictionary[Any, _Keys] = weakref.WeakKeyDictionary()
# References to the owner and the rows of a fit that is not paid for yet: it may be refused, and the
# last fit is still there then.
_NOTED: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()

# Steps that an exact comparison of two regions of memory may take; they are few for plain slices.
_WORK = 10_000

# Most and fewest rows whose keys are kept, and entries that are read for that: a fit that pays for
# noise takes a hundred times as long, whatever the shape of its rows.
_MOST, _LEAST, _ENTRIES = 4096, 64, 1 << 16


def note_rows(estimator: Any, X: Any, rows: Any) -> None:
    """Note the data of the next fit of an estimator: `X` as it was passed, and its rows."""
    owner = _owner(X)
    _NOTED[estimator] = noted = {}
    with suppress(TypeError):  # a list has no weak references
        noted["seen"] = weakref.ref(owner), _region(X, owner)
    with suppress(TypeError):
        noted["rows"] = weakref.ref(rows)


def keep_rows(estimator: Any, *, released: bool, ledger: str = "") -> None:
    """Remember the noted data of a fit that is paid for, and keys of them if it has `released`.

    Their object belongs to `ledger` from now on, so that a warning about it comes once.
    """
    for known in (_SEEN, _KEYS):
        known.pop(estimator, None)
    if ledger and (owner := _noted_owner(estimator)) is not None:
        key = id(owner)
        _CHARGED[key] = weakref.ref(owner, lambda _: _CHARGED.pop(key, None)), ledger
    noted = _NOTED.pop(estimator, {})
    if "seen" in noted:
        _SEEN[estimator] = noted["seen"]
    rows = noted["rows"]() if released and "rows" in noted else None
    if rows is None:
        return
    with suppress(Exception):  # no numbers can be made of some rows
        rows = rows if _all_numbers(rows) else estimator._rows_as_fitted(rows)
        if _all_numbers(rows):
            _KEYS[estimator] = _Keys.of(rows)


# The object that rows came in, by its id, and the ledger that was charged for a fit to it.
_CHARGED: dict[int, tuple[weakref.ref[Any], str]] = {}


def charged_elsewhere(estimator: Any, ledger: str) -> bool:
    """Return whether the object of the noted rows was charged to another ledger before."""
    owner = _noted_owner(estimator)
    if owner is None or not ledger:
        return False
    known = _CHARGED.get(id(owner))
    return known is not None and known[0]() is owner and known[1] != ledger


def _noted_owner(estimator: Any) -> Any:
    return _NOTED.get(estimator, {}).get("seen", (lambda: None, None))[0]()


def has_seen(model: Any, X: Any) -> bool:
    """Return whether a model itself, and none inside of it, is known to be fitted to `X`."""
    try:
        return _is_in_memory(model, X) or _is_equal(model, X)
    except TypeError:  # estimators without weak references
        return False


# Memory -----------------------------------------------------------------------------------------


def _is_in_memory(model: Any, X: Any) -> bool:
    known, region = _SEEN.get(model, (lambda: None, None))
    owner = known()
    if owner is None or owner is not _owner(X):
        return False
    if region is None or X is owner:
        return True
    try:
        whole = owner if owner.flags.c_contiguous else owner.T
        seen = np.ndarray(buffer=whole, **region)
        return np.shares_memory(seen, X, max_work=_WORK)  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError, np.exceptions.TooHardError):
        return False


def _owner(X: Any) -> Any:
    """Return the owner of an array's memory; anything else is its own owner."""
    while isinstance(X, np.ndarray) and isinstance(X.base, np.ndarray):
        X = X.base
    return X


def _region(X: Any, owner: Any) -> dict[str, Any] | None:
    """Return the region of an array's rows in their owner; None for all of it."""
    if X is owner or not isinstance(X, np.ndarray):
        return None
    offset = X.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return {"shape": X.shape, "dtype": X.dtype, "offset": offset, "strides": X.strides}


# Content ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keys:
    """Keys of some rows of a fit, evenly spread."""

    keys: np.ndarray
    n: int  # Number of rows of the fit
    n_columns: int

    @classmethod
    def of(cls, rows: Any) -> _Keys:
        parts = _parts(rows)
        n, n_columns = parts[0].shape[0], sum(part.shape[1] for part in parts)
        most = min(n, max(_LEAST, min(_MOST, _ENTRIES // max(1, n_columns))))
        some = slice(None) if most == n else np.linspace(0, n - 1, most).astype(np.intp)
        return cls(_keys([part[some] for part in parts]), n, n_columns)

    def are_of(self, rows: Any) -> bool:
        """Return whether half of `rows` are rows of the fit, or half of these are in `rows`."""
        parts = _parts(rows)
        if sum(part.shape[1] for part in parts) != self.n_columns:
            return False
        keys = _keys(parts)
        pairs = [(self.keys, keys)]
        if len(self.keys) == self.n:
            pairs.append((keys, self.keys))
        return any(_are_among(some, others) for some, others in pairs)


def _are_among(some: np.ndarray, others: np.ndarray) -> bool:
    """Return whether half of the keys are among the others, equally often: more than chance."""
    keys, times = np.unique(some, return_counts=True)
    known, counts = np.unique(others, return_counts=True)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    same = int(np.count_nonzero((known[places] == keys) & (counts[places] == times)))
    return 2 * same >= len(keys) and not explained_by_chance(same, len(keys), len(others))


def _is_equal(model: Any, X: Any) -> bool:
    known = _KEYS.get(model)
    if known is None or is_elsewhere(X):
        return False
    with suppress(Exception):  # if the model does not accept X, it will raise an error itself
        return known.are_of(model._rows_as_fitted(X))
    return False


def _parts(rows: Any) -> list[Any]:
    """Return the arrays or matrices that hold the columns of rows."""
    if hasattr(rows, "numbers") and hasattr(rows, "codes"):  # a table
        return [rows.numbers, rows.codes, *rows.texts]
    return [rows] if len(getattr(rows, "shape", ())) == 2 and rows.shape[0] else []


def _all_numbers(rows: Any) -> bool:
    """Return whether rows are in their final form, in memory."""
    parts = _parts(rows)
    known = [part for part in parts if sparse.issparse(part) or isinstance(part, np.ndarray)]
    return bool(parts) and len(known) == len(parts) and all(p.dtype.kind in "biuf" for p in known)


def _keys(parts: Iterable[Any]) -> np.ndarray:
    """Return 64-bit keys of rows, which differ for different rows but for rare chance."""
    found: Any = 0
    for i, part in enumerate(parts):
        found = found + _sums(part, _weights(part.shape[1], i))
    found = found ^ (found >> np.uint64(32))
    return found * np.uint64(0x9E3779B97F4A7C15)


def _sums(part: Any, weights: np.ndarray) -> np.ndarray:
    """Sum, over the entries of each row, in float32, their bits times a column's weight."""
    if sparse.issparse(part):
        part = sparse.csr_array(part)
        terms = _bits(part.data) * weights[part.indices]
        ends = np.concatenate([[np.uint64(0)], np.cumsum(terms)])
        return ends[part.indptr[1:]] - ends[part.indptr[:-1]]
    found = np.empty(len(part), dtype=np.uint64)
    for some in slices(len(part), max(1, _ENTRIES // max(1, part.shape[1]))):
        found[some] = np.einsum("ij,j->i", _bits(part[some]), weights)
    return found


def _bits(entries: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # for entries beyond float32
        entries = entries.astype(np.float32) + np.float32(0.0)  # 0 for -0
    return entries.view(np.uint32).astype(np.uint64)


@lru_cache(maxsize=8)
def _weights(n_columns: int, part: int) -> np.ndarray:
    """Return odd numbers of this process, one for each column."""
    drawn = np.random.default_rng([_SECRET, part]).integers(1 << 63, size=n_columns)
    return 2 * drawn.astype(np.uint64) + np.uint64(1)


_SECRET = secrets.randbits(128)
