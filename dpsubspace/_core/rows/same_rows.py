"""Refusal of private rows that are passed as public ones, before anything is charged.

Nothing protects public rows. So a set of public rows is refused if it shares memory with the
private rows, or if half of its rows are private ones. Rows are compared by their content, wherever
they lie, so that copies and parts are found.

Information in the refusal: whether a table passes this check is assumed to be public, as for all
checks ("that the data pass the checks" stands in each guarantee). The check is designed so that
honest fits never get near it, and no single row decides it there. A public row counts as private if
the table has it exactly as often as the public set. At least half of the different public rows have
to count, and more than chance would explain.

Lemma. Let public rows be chosen without looking at n private ones, which are drawn independently,
from whatever distribution, discrete or not. Of u different public rows, t or more count with a
probability of at most ``e sqrt(n) P(Bin(u, 1/e) >= t)``. Proof. Let the number of private rows be
Poisson with mean n in place of n. Then the numbers N_v of those that equal the public row v are
independent and Poisson. The event that N_v is c, the number of public rows that equal v, has a
probability of at most ``c^c e^-c / c!``, which is at most 1/e for c = 1, 2, ... So t or more count
with a probability of at most ``P(Bin(u, 1/e) >= t)``. Given that there are n rows, they are what
they were before, and that there are n has the probability ``n^n e^-n / n!``, which is at least
``1 / (e sqrt(n))`` (Stirling). The lemma holds for what any function makes of rows as well.

So tables in which many rows are equal by chance, such as some columns of yes and no, are accepted.
If public rows are refused, that probability is below 1e-6; about 20 of them are needed for that.

Rows are compared unchanged, in float32, and as someone who copied them may have rounded them: to
decimals, to significant digits, or to half precision. The kind of rounding shows in the public rows
alone, so that the lemma holds for each of these up to four comparisons. Rows to which noise was
added, however little, are not found: no rounding shows whether two of them are near by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse, special

from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.ground.checks import is_elsewhere
from dpsubspace._core.rows.remote import for_each_part

# Probability that a set is refused that was chosen without looking at the private rows.
_CHANCE = 1e-6

# Number of columns that are compared first, of their rows that are processed together, and of
# entries of the remaining rows that are.
_FIRST, _ROWS, _ENTRIES = 8, 1 << 14, 1 << 20
# The number of first columns if entries are rounded, which takes longer than to compare them.
_FEW = 3

# Rows of a set from which its rounding is inferred, and the least rows of a set for that.
_TOLD, _LEAST = 64, 20


def refuse_private(given: Any, X: Any, sets: Sequence[Any]) -> None:
    """Raise ValueError if sets `given` to a fit as public are private rows or targets.

    `X` are the private rows and `sets` the public ones, checked, in the order in which they were
    given.
    """
    refuse_shared(given.X, named_sets("X_public", given.X_public))
    refuse_shared(given.y, named_sets("y_public", given.y_public), "y")
    refuse_private_rows(X, by_name("X_public", given.X_public, sets))


def refuse_private_rows(X: Any, public: Mapping[str, Any]) -> None:
    """Raise ValueError if half of the rows of a public set, by its name, are rows of `X`.

    Rows are those of arrays, sparse matrices and tables; those of `X` may be
    remote.
    """
    if not public:
        return
    sets = [(name, each) for name, rows in public.items() for each in _Sought.each_of([rows])]
    if len(public) > 1:
        name = f"{' and '.join(list(public)[:2])}{' ...' * (len(public) > 2)}"
        sets += [(name, each) for each in _Sought.each_of(public.values())]
    found = [*for_each_part(_counts, tuple(sought for _, sought in sets), X)]
    for i, (name, sought) in enumerate(sets):
        if sought.are_private(sum(counts[i] for counts, _ in found), sum(n for _, n in found)):
            rounded = "" if sought.form is None else f", {sought.form.words}"
            raise ValueError(
                f"`{name}` holds private rows: at least half of them are rows of `X` too{rounded}."
                " Nothing protects public rows, and a model may show them. Pass rows that are"
                " really public, or none. If those in both are public already, they need no"
                " protection: leave them out of `X`."
            )


def refuse_shared(X: Any, public: Mapping[str, Any], rows: str = "X") -> None:
    """Raise ValueError if a public set, or its labels, is the object `X` or shares its memory.

    Both are in the form that the user passed. Messages call `X` by the name in `rows`.
    """
    for name, given in public.items():
        if given is not None and (given is X or _share_memory(given, X)):
            raise ValueError(
                f"`{name}` is a part of `{rows}` itself: nothing protects public rows, and a model"
                " may show them. Pass rows that are really public, or leave it out."
            )


def named_sets(name: str, given: Any) -> dict[str, Any]:
    """Return public sets by their names in messages: those of a tuple, a dict, or a single set.

    Each entry of a dict may be a tuple, which is the union of its sets.
    """
    if given is None:
        return {}
    if isinstance(given, tuple):
        return {f"{name}[{i}]": each for i, each in enumerate(given)}
    if isinstance(given, Mapping):
        parts = (named_sets(f"{name}[{key!r}]", each) for key, each in given.items())
        return {label: each for part in parts for label, each in part.items()}
    return {name: given}


def by_name(name: str, given: Any, sets: Iterable[Any]) -> dict[str, Any]:
    """Return checked sets by the names of the given ones, one for each entry of a dict."""
    known = given if isinstance(given, Mapping) else None
    names = named_sets(name, given) if known is None else [f"{name}[{key!r}]" for key in known]
    return dict(zip(names, sets, strict=False))


# Memory -----------------------------------------------------------------------------------------


def _share_memory(one: Any, other: Any) -> bool:
    """Return whether two arrays, matrices or frames are known to share entries."""
    work: Any = 10_000  # stubs of NumPy know two values only
    for part, own in zip(_memory(one), _memory(other), strict=False):
        try:
            if np.shares_memory(part, own, max_work=work):
                return True
        except np.exceptions.TooHardError:
            continue
    return False


def _memory(rows: Any) -> Iterable[np.ndarray]:
    """Return the arrays that hold rows: of a frame its columns, which a copy does not share."""
    if sparse.issparse(rows):
        entries = getattr(rows, "data", None)  # none for a dictionary of keys
        return [] if entries is None else [entries]
    if isinstance(rows, np.ndarray):
        return [rows]
    if not hasattr(type(rows), "iloc") or is_elsewhere(rows):
        return []
    columns = [rows.iloc[:, i] for i in range(rows.shape[1])] if rows.ndim == 2 else [rows]
    return [np.asarray(column) for column in columns]


# Rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Rounding of a set: a number for each column, 0 if it was not rounded."""

    words: str
    function: Callable[[np.ndarray, np.ndarray], np.ndarray]
    numbers: np.ndarray  # (n_columns,)

    def of(self, entries: np.ndarray, columns: Any) -> np.ndarray:
        """Return the same entries of `columns`, rounded."""
        numbers = self.numbers if columns is None else self.numbers[columns]
        found = self.function(entries, numbers)
        return found if numbers.all() else np.where(numbers > 0, found, entries)

    @classmethod
    def all_of(cls, entries: np.ndarray) -> list[_Form]:
        """Return all ways in which a set may have been rounded, by some of its rows."""
        some = entries[:: max(1, len(entries) // _TOLD)]
        found = []
        for words, function, most in _ROUNDED:
            numbers = np.zeros(some.shape[1], dtype=np.int64)
            for number in range(most, 0, -1):
                rounded = _short(function(some, np.full(len(numbers), number)))
                same = (rounded == _short(some)) | np.isnan(some)
                numbers[same.all(axis=0)] = number
            if numbers.any():
                found.append(cls(words, function, numbers))
        return found


def _to_decimals(entries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    factors = _POWERS[numbers - 1]
    return np.rint(entries * factors) / factors


def _to_digits(entries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    places = np.floor(np.log10(np.abs(entries)))
    places = np.where(np.abs(places) < _LONGEST, places, 0).astype(np.intp)  # for 0 and NaN
    sizes = _POWERS[numbers - 1 - places]  # from the end for negative ones
    return np.rint(entries * sizes) / sizes


def _to_half(entries: np.ndarray, _: np.ndarray) -> np.ndarray:
    return entries.astype(np.float16).astype(np.float64)


# Powers of 10, negative exponents from the end, for entries not larger than those of float32.
_LONGEST = 46
_POWERS = 10.0 ** np.concatenate([np.arange(_LONGEST + 6), np.arange(-_LONGEST - 6, 0)])

# Roundings with which rows are compared, besides without: in words, the function, and the largest
# number. The number is one more than that of decimals, or that of digits.
_ROUNDED = (
    ("rounded to decimals", _to_decimals, 6),
    ("rounded to significant digits", _to_digits, 5),
    ("in half precision", _to_half, 1),
)


@dataclass(frozen=True)
class _Sought:
    """Different rows of a public set, and how often it has each of them."""

    keys: np.ndarray  # (u,): of rows, sorted
    times: np.ndarray  # (u,)
    columns: np.ndarray  # Columns that distinguish rows
    first: np.ndarray  # Keys of rows by these columns alone, sorted
    form: _Form | None = None  # How private rows are rounded before they are compared

    @classmethod
    def each_of(cls, sets: Iterable[Any]) -> list[_Sought]:
        """Return unchanged rows, and each way in which they may have been rounded."""
        entries = np.concatenate([_entries(rows) for rows in sets])
        with np.errstate(all="ignore"):
            forms = [] if len(entries) < _LEAST else _Form.all_of(entries.astype(np.float64))
        return [cls.of(entries), *(cls.of(entries, form) for form in forms)]

    @classmethod
    def of(cls, entries: np.ndarray, form: _Form | None = None) -> _Sought:
        some = np.sort(entries[:1000], axis=0)
        columns = np.argsort(-(some[1:] != some[:-1]).sum(axis=0), kind="stable")
        columns = columns[: _FIRST if form is None else _FEW]
        keys, times = np.unique(_keys(entries), return_counts=True)
        return cls(keys, times, columns, np.unique(_keys(entries[:, columns])), form)

    def counts(self, rows: Any, n: int) -> np.ndarray:
        """Return how often each of the rows is among n rows."""
        near = []
        for some in slices(n, _ROWS):
            if self.form is not None and not some.start and self._changes_nothing(rows, some):
                break  # the comparison of unchanged rows has found these
            keys = _keys(_entries(rows, some, self.columns, self.form))
            near.append(some.start + np.flatnonzero(_places(self.first, keys) >= 0))
        found = np.zeros(len(self.keys), dtype=np.int64)
        left = np.concatenate(near) if near else np.zeros(0, dtype=np.intp)
        for some in slices(len(left), max(1, _ENTRIES // max(1, _width(rows)))):
            places = _places(self.keys, _keys(_entries(rows, left[some], None, self.form)))
            found += np.bincount(places[places >= 0], minlength=len(found))
        return found

    def _changes_nothing(self, rows: Any, some: slice) -> bool:
        """Return whether rounding leaves these rows unchanged."""
        some = slice(some.start, min(some.stop, some.start + _TOLD))
        rounded = _entries(rows, some, None, self.form)
        return np.array_equal(_entries(rows, some), rounded, equal_nan=True)

    def are_private(self, counts: Any, n: int) -> bool:
        """Return whether half of the rows are private, and more than chance explains."""
        u, t = len(self.keys), int(np.count_nonzero(counts == self.times))
        return 2 * t >= u and not explained_by_chance(t, u, n)


def explained_by_chance(t: int, u: int, n: int) -> bool:
    """Return whether t of u different rows may be among n others by chance, by the lemma."""
    return not t or math.e * math.sqrt(n) * special.bdtrc(t - 1, u, 1 / math.e) > _CHANCE


def _counts(sets: tuple[_Sought, ...], rows: Any) -> tuple[list[np.ndarray], int]:
    """Count each public row among the rows of a part; also return the number of these."""
    n = (rows.numbers if hasattr(rows, "numbers") else rows).shape[0]
    return [sought.counts(rows, n) for sought in sets], n


def _width(rows: Any) -> int:
    return rows.shape[1]


def _entries(
    rows: Any, some: Any = slice(None), columns: Any = None, form: _Form | None = None
) -> np.ndarray:
    """Return some entries of rows, in float32, which distinguishes nearly all numbers."""
    if hasattr(rows, "numbers"):  # a table: nothing is encoded yet
        found: Any = rows.compared(some)
    else:
        found = rows[some]
    found = found if columns is None else found[:, columns]
    found = found.toarray() if sparse.issparse(found) else found
    with np.errstate(all="ignore"):  # for entries beyond float32
        if form is not None:
            found = form.of(np.asarray(found, dtype=np.float64), columns)
        return _short(found)


def _short(entries: Any) -> np.ndarray:
    return np.asarray(entries, dtype=np.float32)


def _keys(entries: np.ndarray) -> np.ndarray:
    """Return 64-bit keys of rows, which differ for different rows but for rare chance."""
    entries = np.where(np.isnan(entries), np.float32(np.nan), entries + np.float32(0.0))
    bits = entries.view(np.uint32).astype(np.uint64)
    bits += np.arange(1, entries.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    return bits.sum(axis=1, dtype=np.uint64)


def _places(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the position of each key among sorted ones, -1 if it is none of them."""
    found = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[found] == keys, found, -1)
