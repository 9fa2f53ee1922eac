"""Kinds of columns in a schema: public facts about a column, and how it is read."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.checks import check_bool, check_choice, check_integer, shown
from dpsubspace._core.tables.dates import (
    FIRST_DAY,
    LAST_DAY,
    MONTHS,
    WEEKDAYS,
    day_of,
    month_of,
    read_dates,
    text_of,
    weekday_of,
)
from dpsubspace._core.tables.frames import (
    INEXACT,
    Coded,
    Numeric,
    read_column,
    refused,
    what_is,
)
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn

# Kinds of columns -------------------------------------------------------------------------------

# Larger ends of a range would overflow when they are squared.
_LARGEST = 1e50

_FLOAT_MAX = sys.float_info.max

# Range of made-up rows where that of the private ones is to be estimated.
_SOME_RANGE = (0.0, 100.0)


# Codes of values that are not among the categories, and of missing values.
UNKNOWN, MISSING = -1, -2

# Whole numbers within a span of this size are looked up in a table, which is faster than a search.
_TABLE = 1 << 16


# Largest number of words or characters in a row that make a feature of a text; halves of pairs of
# UTF-16; and words of made-up texts.
_LONGEST, _HALVES = 10, re.compile("[\ud800-\udfff]")
_WORDS = (
    *("the", "and", "of", "to", "in", "was", "no", "not", "with", "for", "after", "before"),
    *("since", "first", "second", "new", "old", "good", "bad", "small", "large", "left", "right"),
    *("day", "night", "week", "home", "work", "water", "red", "blue", "early", "late", "again"),
    "more",
)


class Kind:
    """Public facts about a column. A new kind is a class here, and a row of KINDS.

    A column becomes numbers between ends, codes of categories, or sparse rows of hashed text.
    Encodings, fits and displays use only that, so that they need not know about kinds.
    """

    _in_files: ClassVar[str]  # Name of the kind in files, which have all of its fields
    _categorical: ClassVar[bool] = False  # Whether a column becomes codes, and not numbers
    _textual: ClassVar[bool] = False  # Whether a column becomes sparse rows, and not numbers
    # Categories that follow from the numbers of a column: their values, and what gives the codes.
    _parts: ClassVar[Mapping[str, tuple[Sequence[str], Callable[[np.ndarray], np.ndarray]]]] = {}
    log: bool = False  # Whether differences matter more among small values than among large ones
    missing: bool  # Whether values can be missing

    @property
    def _ends(self) -> tuple[float, float] | None:
        """Public range of the numbers; None for codes, and where it is estimated privately."""
        return None

    @property
    def _gap(self) -> float:
        """Value that represents a missing one."""
        return MISSING if self._categorical else math.nan

    @staticmethod
    def _read(column: Any, label: str) -> Numeric | Coded:
        """Read a column of any library; ValueError that starts with `label` if that fails."""
        return read_column(column, label)

    def _with_missing(self) -> str:
        """Code that declares the same kind with missing values."""
        return repr(replace(cast(Any, self), missing=True))

    def _said(self, value: float) -> str:
        """Write a number of the column for people."""
        return f"{value:g}" if isinstance(value, np.floating) else repr(value)

    def _shown(self, values: np.ndarray) -> np.ndarray:
        """Convert numbers of the column for people and plots."""
        return values

    def _write(self, found: Numeric | Coded, label: str, out: np.ndarray) -> None:
        """Write a column as numbers into `out`; ValueError that starts with `label` for others."""
        _write_numbers(found, self, label, out)

    def _drawn(self, n: int, rng: np.random.Generator) -> Any:
        """Draw `n` values evenly on the scale of the column; whole numbers where both ends are."""
        low, high = self._ends or _SOME_RANGE
        whole = isinstance(low, int) and isinstance(high, int) and max(-low, high) < INEXACT
        shares, width = rng.random(n), float(high) - float(low) + whole
        shares = np.clip(off_log(shares, low, high), 0.0, 1.0) if self.log else shares
        numbers = low + width * shares
        return np.floor(numbers).clip(low, high).astype(np.int64) if whole else numbers


@public
@dataclass(frozen=True, repr=False)
class Range(Kind):
    """A column of numbers whose range is public.

    Values outside of the range are moved to its nearer end. The range must come from public
    knowledge, such as a code book, the limits of a device or public rows. The smallest and the
    largest value of the private rows are each the value of one person.

    Parameters
    ----------
    low : float
        Smallest value that is told apart from others. Smaller ones are read as `low`.
    high : float
        Largest value that is told apart from others. Larger ones are read as `high`.
    log : bool, default=False
        Whether small values differ more than large ones do, as for incomes and counts: the column
        is then read on a logarithmic scale, which tells values apart best near 0, on both sides of
        it where a range has both.
    missing : bool, default=False
        Whether values can be missing. A missing value is then a state of its own, and nothing is
        filled in. Missing values that were not declared are an error.

    See Also
    --------
    PrivateRange : A range that is estimated privately, with a part of the budget.
    Categories : A column with a few values that are known.
    Schema : What is public about all columns of a table.

    Notes
    -----
    A range that is too wide costs accuracy and never privacy. One that is too narrow costs what is
    clipped. Infinite values count as the nearer end.

    Examples
    --------
    >>> from dpsubspace import Range
    >>> Range(17, 90)
    Range(17, 90)
    >>> Range(0, 99_999, log=True, missing=True)
    Range(0, 99999, log=True, missing=True)
    """

    _in_files = "range"

    low: float
    high: float
    log: bool = field(default=False, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        computed = hasattr(self.low, "dtype") or hasattr(self.high, "dtype")
        ends = plain(self.low), plain(self.high)
        if not all(map(_is_number, ends)) or not ends[0] < ends[1]:
            raise ValueError(
                "Range(low, high) takes two finite numbers with low < high and at most"
                f" {_LARGEST:g} in size, got low={shown(self.low)} and high={shown(self.high)}."
                + about_dates(self.low, self.high)
            )
        _keep(self, low=ends[0], high=ends[1])
        _keep_flags(self, "log", "missing")
        if computed:
            warn(_COMPUTED, PrivacyWarning, about="computed", once=True)

    @property
    def _ends(self) -> tuple[float, float]:
        """Ends of the range itself."""
        return self.low, self.high

    def __repr__(self) -> str:
        return f"Range({self.low!r}, {self.high!r}{_flags(self, ', ')})"


@public
@dataclass(frozen=True, repr=False)
class PrivateRange(Kind):
    """A column of numbers whose range is not known and is estimated privately.

    The range is read off noisy counts of the private rows, which takes a part of the privacy
    budget. Write :class:`Range` wherever public knowledge gives a range: it costs nothing, and the
    model is usually better.

    Parameters
    ----------
    log : bool, default=False
        Whether small values differ more than large ones do, as for incomes and counts: the column
        is then read on a logarithmic scale, which tells values apart best near 0, on both sides of
        it where a range has both.
    missing : bool, default=False
        Whether values can be missing. A missing value is then a state of its own, and nothing is
        filled in. Missing values that were not declared are an error.

    See Also
    --------
    Range : A range that is public, and free.
    Schema : What is public about all columns of a table.

    Examples
    --------
    >>> from dpsubspace import PrivateRange
    >>> PrivateRange(missing=True)
    PrivateRange(missing=True)
    """

    _in_files = "private_range"

    log: bool = field(default=False, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _keep_flags(self, "log", "missing")

    def __repr__(self) -> str:
        return f"PrivateRange({_flags(self)})"


@public
@dataclass(frozen=True, repr=False)
class Categories(Kind):
    """A column with a few values that are public.

    The values must come from public knowledge, such as a code book, a form or public rows. A
    list of the values that occur in the private rows would tell that somebody has each of them.
    A value that is not in the list is read as unknown, without an error.

    Parameters
    ----------
    values : list of str, of numbers or of bool
        Values that a row can have, at least two and all of one type. A value of a row belongs to
        a category if Python's ``==`` says so: the numbers 1 and 1.0 are the same, and the number 1
        and the text "1" are not.
    missing : bool, default=False
        Whether values can be missing. A missing value is then a state of its own, and nothing is
        filled in. Missing values that were not declared are an error.

    See Also
    --------
    Range : A column of numbers whose range is public.
    Schema : What is public about all columns of a table.

    Examples
    --------
    >>> from dpsubspace import Categories
    >>> Categories(["A", "B", "C"])
    Categories(['A', 'B', 'C'])
    >>> Categories([False, True], missing=True)
    Categories([False, True], missing=True)
    """

    _in_files = "categories"
    _categorical = True

    values: tuple[Any, ...]
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _keep(self, values=_checked_values(self.values))
        _keep_flags(self, "missing")

    def _with_missing(self) -> str:
        """Code that declares the same kind with missing values, without its categories."""
        return "Categories([...], missing=True)"

    def _write(self, found: Numeric | Coded, label: str, out: np.ndarray) -> None:
        """Write the position of each value among the categories, UNKNOWN or MISSING."""
        out[:] = _codes(found, self, label)

    def _drawn(self, n: int, rng: np.random.Generator) -> Any:
        """Draw `n` of the categories, all with the same chance."""
        return [self.values[place] for place in rng.integers(len(self.values), size=n)]

    def __repr__(self) -> str:
        return f"Categories({list(self.values)!r}{_flags(self, ', ')})"


@public
@dataclass(frozen=True, repr=False)
class Date(Kind):
    """A column of dates whose first and last day are public.

    A date is one number, the days from the first one, and models learn from its month and its
    weekday as well. Dates outside of the range are moved to its nearer end. A time of day is cut
    off, and times with a time zone are refused.

    Parameters
    ----------
    first : str, date, datetime or datetime64
        First day that is told apart from others, such as ``"2020-01-01"``. It must come from public
        knowledge, such as the years of a study. It is kept as text.
    last : str, date, datetime or datetime64
        Last day that is told apart from others.
    missing : bool, default=False
        Whether values can be missing. A missing value is then a state of its own, and nothing is
        filled in. Missing values that were not declared are an error.

    See Also
    --------
    Range : A column of numbers whose range is public.
    Schema : What is public about all columns of a table.

    Notes
    -----
    Columns can be dates or times of NumPy, pandas, Polars and Arrow, Python's dates, or text such
    as ``"2024-05-31"``. In a :class:`TableEncoder` the days are encoded as those of a
    :class:`Range`, and month and weekday as :class:`Categories` with 12 and 7 values; a missing
    date has no month and no weekday. All three follow from the date of the row, after it was moved
    to the range. So a row with a date counts as one with a number and two categories, and has the
    same bound on its norm. Summaries, counts and coefficients use the days alone.

    Examples
    --------
    >>> from dpsubspace.tables import Date
    >>> Date("2020-01-01", "2024-12-31", missing=True)
    Date('2020-01-01', '2024-12-31', missing=True)
    """

    _in_files = "date"
    _parts: ClassVar = {"month": (MONTHS, month_of), "weekday": (WEEKDAYS, weekday_of)}

    first: str
    last: str
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        days = [day_of(end) for end in (self.first, self.last)]
        first, last = (day if isinstance(day, int) else math.nan for day in days)
        if not FIRST_DAY <= first < last <= LAST_DAY:
            raise ValueError(
                "Date(first, last) takes two dates without a time zone, the earlier one first, such"
                f" as Date('2020-01-01', '2024-12-31'), got first={shown(self.first)} and"
                f" last={shown(self.last)}."
            )
        _keep(self, first=text_of(first), last=text_of(last))
        _keep_flags(self, "missing")

    @staticmethod
    def _read(column: Any, label: str) -> Numeric:
        """Read a column of dates of any library as days."""
        return read_dates(column, label)

    @property
    def _ends(self) -> tuple[int, int]:
        """First and last day, in days since 1970-01-01."""
        return cast(int, day_of(self.first)), cast(int, day_of(self.last))

    def _said(self, value: float) -> str:
        """Write a day as a date."""
        return text_of(value)

    def _shown(self, values: np.ndarray) -> np.ndarray:
        """Convert days to dates."""
        return values.astype("datetime64[D]")

    def _drawn(self, n: int, rng: np.random.Generator) -> Any:
        """Draw `n` days of the range."""
        return self._shown(super()._drawn(n, rng)).astype("datetime64[s]")

    def __repr__(self) -> str:
        return f"Date({self.first!r}, {self.last!r}{_flags(self, ', ')})"


@public
@dataclass(frozen=True, repr=False)
class Text(Kind):
    """A column of text, such as notes, whose words become features.

    Words are hashed to a fixed number of features, so that no list of words is learned from the
    rows. Nothing has to be known about the texts.

    Parameters
    ----------
    n_features : int, default=4096
        Number of features of a text, from 2 to 2^20. Words share a feature by chance if there are
        fewer features than words, which costs accuracy where rows or budget would tell them apart.
        With 6,000 sentences and epsilon 4, 4096 features have a higher AUC than 512 by 2 to 6
        points; with 1,000 sentences, numbers beside them and epsilon 1, a lower one by 1 to 4.
    ngram_range : tuple (low, high), default=(1, 1)
        Least and largest number of words in a row that make a feature: ``(1, 2)`` are single words
        and pairs. Of characters if `analyzer` says so.
    analyzer : {"word", "char", "char_wb"}, default="word"
        Whether features are words, or characters, across words or within each. Words are those of
        scikit-learn: two or more letters or digits, in small letters. For languages without blanks
        between words, ``analyzer="char", ngram_range=(1, 3)`` may suit better.

    See Also
    --------
    Categories : A column with a few values that are known.
    Schema : What is public about all columns of a table.

    Notes
    -----
    A text becomes the row of :class:`sklearn.feature_extraction.text.HashingVectorizer`: counts of
    words, with a sign for each, divided by their norm. So its norm is 1 however long it is, or 0
    for a text without words. A missing text counts as one without words. The row follows from the
    text alone, whatever other rows hold, since which feature a word belongs to is public.

    In a :class:`TableEncoder` this row, times a public number, is one block of features beside
    those of other columns, and counts like four numbers: 16 parts of the squared norm. The encoded
    rows are sparse. :class:`DPSGDClassifier`, :class:`DPSGDFClassifier`, :class:`DPSGDRegressor`
    and GEP estimators take them, and :class:`DPLinearRegression` does not. Summaries, counts,
    coefficients, plots of shapes, importances, ``interactions="learned"``, and rows of Dask and of
    datasets have no columns of text.

    Examples
    --------
    >>> from dpsubspace.tables import Text
    >>> Text(n_features=1024, ngram_range=(1, 2))
    Text(n_features=1024, ngram_range=(1, 2))
    """

    _in_files = "text"
    _textual = True

    missing = False  # A missing text is an empty one

    n_features: int = 4096
    ngram_range: tuple[int, int] = field(default=(1, 1), kw_only=True)
    analyzer: str = field(default="word", kw_only=True)

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features, low=2, high=1 << 20)
        check_choice("analyzer", self.analyzer, ("word", "char", "char_wb"))
        ends = self.ngram_range
        ends = tuple(map(plain, ends)) if isinstance(ends, (tuple, list)) else ()
        whole = [isinstance(end, int) and not isinstance(end, bool) for end in ends]
        if len(ends) != 2 or not all(whole) or not 1 <= ends[0] <= ends[1] <= _LONGEST:
            raise ValueError(
                "`ngram_range` takes two whole numbers (low, high) from 1 to"
                f" {_LONGEST}, the smaller one first, such as (1, 2), got"
                f" {shown(self.ngram_range)}."
            )
        _keep(self, n_features=int(self.n_features), ngram_range=ends)

    def _write(self, found: Numeric | Coded, label: str, out: np.ndarray) -> None:
        """Write texts, in which missing ones are empty."""
        if isinstance(found, Numeric):  # as a column may be that has no value
            kinds, values, codes = {"numbers"} if not found.missing.all() else set(), [], -1
        else:
            kinds, values = {what_is(kind) for kind in set(map(type, found.values))}, found.values
            codes = found.codes
        for what in sorted(kinds - {"numbers", "text"}):
            raise refused(label, what)
        if "numbers" in kinds:
            raise ValueError(
                f"{label} holds numbers, and the schema says {shown(self)}, which is for text: turn"
                " the column into text, as column.astype(str) does in pandas, or write Range(low,"
                " high) or Categories([...]) in the schema."
            )
        out[:] = np.array([*values, ""], dtype=object)[codes]

    def _hashed(self, texts: np.ndarray) -> Any:
        """Features (n, n_features) of texts, a CSR array in float64: each of norm at most 1.

        The norm of a row is 1 up to rounding, by less than 2^-30 for any number of words: a row
        has at most 2^20 entries, whose squares are added up in float64 before the division.
        """
        from sklearn.feature_extraction.text import HashingVectorizer

        if not len(texts):
            return sparse.csr_array((0, self.n_features))
        vectorizer = HashingVectorizer(
            n_features=self.n_features, ngram_range=self.ngram_range, analyzer=self.analyzer
        )
        # A half of a pair of UTF-16 is no character, and cannot be hashed.
        whole = [_HALVES.sub("\ufffd", text) for text in texts]
        return sparse.csr_array(vectorizer.transform(whole))

    def _drawn(self, n: int, rng: np.random.Generator) -> Any:
        """Draw `n` texts of 3 to 12 words of a public list."""
        lengths = rng.integers(3, 13, size=n)
        return [" ".join(rng.choice(_WORDS, size=length)) for length in lengths]

    def __repr__(self) -> str:
        defaults = {each.name: each.default for each in fields(self)}
        written = [
            f"{name}={getattr(self, name)!r}"
            for name, default in defaults.items()
            if getattr(self, name) != default
        ]
        return f"Text({', '.join(written)})"


KINDS: tuple[type[Kind], ...] = (Range, PrivateRange, Categories, Date, Text)


def type_of_codes(kinds: Iterable[Any]) -> np.dtype:
    """The smallest integer type for all codes, which stay in memory for the whole fit."""
    most = max((len(kind.values) for kind in kinds if kind._categorical), default=2)
    return np.min_scalar_type(-max(most, 2))


# Logarithmic scales ------------------------------------------------------------------------------

# On a logarithmic scale: ratio of the ends above which it is used as the steepness; the steepness
# that is used otherwise; and the largest ratio that is used.
_WIDE, _STEEP, _STEEPEST = 10.0, 1000.0, 1e300


def _steepness(low: float, high: float) -> float:
    """Slope of a log scale at `low`, its end nearer to 0, over its slope at `high`, less 1."""
    if low <= 0:
        return _STEEP
    ratio = min(float(high) / float(low), _STEEPEST)  # may be infinite for ends far apart
    return ratio - 1 if ratio > _WIDE else _STEEP


def on_log(share: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map shares of a range to a logarithmic scale from 0 to 1, which is fine near 0."""
    if high <= 0:
        return 1 - on_log(1 - share, -high, -low)
    if low < 0:
        return _on_both_sides(share, low, high)
    steep = _steepness(low, high)
    return np.log1p(steep * share) / np.log1p(steep)


def off_log(places: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map places on a logarithmic scale to shares of the range: the inverse."""
    if high <= 0:
        return 1 - off_log(1 - places, -high, -low)
    if low < 0:
        return _off_both_sides(places, low, high)
    steep = _steepness(low, high)
    return np.expm1(places * np.log1p(steep)) / steep


# A range with numbers of both signs is logarithmic on both sides of 0, with the same steepness.


def _signed_log(parts: np.ndarray) -> np.ndarray:
    """Map numbers over the farther end, from -1 to 1, to a scale that is symmetric about 0."""
    return np.copysign(np.log1p(_STEEP * np.abs(parts)), parts)


def _parts(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Both ends over the farther one, and their places on the scale."""
    parts = np.array([low, high]) / max(-low, high)
    return parts, _signed_log(parts)


def _on_both_sides(share: np.ndarray, low: float, high: float) -> np.ndarray:
    parts, ends = _parts(low, high)
    return (_signed_log(parts[0] + share * np.ptp(parts)) - ends[0]) / np.ptp(ends)


def _off_both_sides(places: np.ndarray, low: float, high: float) -> np.ndarray:
    parts, ends = _parts(low, high)
    at = ends[0] + places * np.ptp(ends)
    return (np.copysign(np.expm1(np.abs(at)), at) / _STEEP - parts[0]) / np.ptp(parts)


# Values -------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert `value` to Python's bool, int, float or str if it is a NumPy scalar or a fraction."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def family(value: Any) -> str | None:
    """Whether a plain value is a "text", a "number" or a "bool", None if it is no category."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "bool"
    is_finite = isinstance(value, (int, float)) and abs(value) <= _FLOAT_MAX  # false for NaN
    return "number" if is_finite else None


# Warning of ends or categories that a library for arrays has computed, by their types alone.
_COMPUTED = (
    "a Range or Categories was given values of NumPy or of a data frame. If they were read from the"
    " private rows, as X['age'].min() and X['ward'].unique() are, they are not public, and no"
    " guarantee covers what they tell: take them from a code book or from common sense. If they are"
    " public, write them as plain values, or let Schema.from_public read them from public rows."
)


def about_dates(*ends: Any) -> str:
    """Advice where ends of a range are dates."""
    found = any(isinstance(day_of(end), int) for end in ends)
    return " Dates have Date(first, last), of dpsubspace.tables." if found else ""


def _is_number(value: Any) -> bool:
    return family(value) == "number" and abs(value) <= _LARGEST


def _checked_values(values: Any) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(
            "Categories(values) takes a list of the values that a row can have, such as"
            f" Categories(['A', 'B']), got {shown(values)}."
        )
    if isinstance(values, Set):
        raise ValueError(
            "Categories(values) got a set, which has no order, so that the columns of the model"
            " would change places from run to run: pass sorted(values)."
        )
    is_array, values = hasattr(values, "dtype"), tuple(values)
    found = tuple(map(plain, values))
    families = {family(value) for value in found}
    if None in families:
        wrong = next(value for value in found if family(value) is None)
        gap = what_is(type(wrong)) == "missing" or (isinstance(wrong, float) and wrong != wrong)
        way_out = "a category is a text, a finite number, or True or False."
        if gap:
            way_out = "a missing value is no category: leave it out and write missing=True."
        elif what_is(type(wrong)) in ("dates or times", "durations"):
            way_out += (
                " Turn the column into text, such as the year, and write what it can be; or into a"
                " number, and write its range."
            )
        raise ValueError(f"Categories(values) has the value {shown(wrong)}: {way_out}")
    if len(families) > 1:
        raise ValueError(
            f"Categories(values) has values of several types, {shown(list(found))}: write all of"
            " them as text, all of them as numbers, or only True and False."
        )
    if len(found) < 2:
        raise ValueError(
            f"Categories(values) takes at least two values, got {shown(list(found))}: a column with"
            " one value says nothing, so leave it out of the schema."
        )
    if len(set(found)) < len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise ValueError(f"Categories(values) has the value {shown(twice)} twice: write it once.")
    if is_array or any(map(isinstance, values, repeat(np.generic))):
        warn(_COMPUTED, PrivacyWarning, about="computed", once=True)
    return found


def _keep(kind: Any, **values: Any) -> None:
    """Set fields of a frozen object during its construction."""
    for name, value in values.items():
        object.__setattr__(kind, name, value)


def _keep_flags(kind: Any, *names: str) -> None:
    _keep(kind, **{name: check_bool(name, getattr(kind, name)) for name in names})


def _flags(kind: Any, before: str = "") -> str:
    written = [f"{name}=True" for name in ("log", "missing") if getattr(kind, name, False)]
    return before * bool(written) + ", ".join(written)


# Columns read by their kinds --------------------------------------------------------------------


def _write_numbers(found: Numeric | Coded, kind: Kind, label: str, numbers: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # for types wider than float64
        if isinstance(found, Numeric):
            missing = found.missing
            numbers[:] = found.values
            np.copyto(numbers, np.nan, where=missing)
        else:
            missing = found.codes < 0
            numbers[:] = np.append(_floats(found.values, kind, label), np.nan)[found.codes]
    _check_missing(missing, kind, label)
    low, high = kind._ends or (-_FLOAT_MAX, _FLOAT_MAX)
    np.clip(numbers, low, high, out=numbers)


def _floats(values: list[Any], kind: Kind, label: str) -> np.ndarray:
    """Convert numbers of Python or of other libraries to float64."""
    kinds = {what_is(each) for each in set(map(type, values))} - {"numbers"}
    for what in sorted(kinds - {"text"}):
        raise refused(label, what)
    if kinds:
        raise ValueError(
            f"{label} holds text, and the schema says {shown(kind)}, which is for numbers: turn the"
            " text into numbers, for example with pandas.to_numeric, or, if the values are"
            " public, list them in Categories([...])."
        )
    try:
        found = np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number that no float64 can hold
        found = np.array([float(min(max(value, -_FLOAT_MAX), _FLOAT_MAX)) for value in values])
    return found + 0.0  # makes 0.0 and -0.0 one value, whichever of them some row has first


def _codes(found: Numeric | Coded, kind: Categories, label: str) -> np.ndarray:
    """Position of each value of a column among the categories, UNKNOWN or MISSING."""
    missing = found.missing if isinstance(found, Numeric) else found.codes < 0
    _check_missing(missing, kind, label)
    if isinstance(found, Numeric):
        if not missing.all():
            _check_family({found.values.dtype.type}, kind, label)
            if found.values.dtype.kind == "f":
                check_told_apart(kind, label)
        codes = _places(found.values, kind.values)
        np.copyto(codes, MISSING, where=missing)
        return codes
    kinds = set(map(type, found.values))
    for what in sorted({what_is(each) for each in kinds} - {"numbers", "text"}):
        raise refused(label, what)
    _check_family(kinds, kind, label)
    places = dict(zip(kind.values, range(len(kind.values)), strict=True))
    codes = np.fromiter(map(places.get, found.values, repeat(UNKNOWN)), np.intp)
    return np.append(codes, MISSING)[found.codes]


def _places(values: np.ndarray, categories: tuple[Any, ...]) -> np.ndarray:
    """Position of each number among the categories, UNKNOWN where it is none of them."""
    values = values.view(np.uint8) if values.dtype.kind == "b" else values
    known = {}
    for place, category in enumerate(categories):
        if (same := _of_type(category, values.dtype)) is not None:
            known.setdefault(same, place)
    if not known:
        return np.full(len(values), UNKNOWN)
    order = sorted(known)
    ends, places = np.array(order, dtype=values.dtype), np.array([known[end] for end in order])
    span = int(order[-1]) - int(order[0]) + 1
    if values.dtype.kind == "f" or span > _TABLE:
        at = np.minimum(np.searchsorted(ends, values), len(ends) - 1)
        codes = places[at]
        np.copyto(codes, UNKNOWN, where=ends[at] != values)
        return codes
    table = np.full(span, UNKNOWN)
    table[[int(end) - int(order[0]) for end in order]] = places
    inside = np.clip(values, ends[0], ends[-1])
    # The difference of two int8 may not fit into int8; that of two sorted unsigned numbers fits.
    wide = inside if values.dtype.kind == "u" else inside.astype(np.int64)
    codes = table[wide - wide.dtype.type(order[0])]
    np.copyto(codes, UNKNOWN, where=inside != values)
    return codes


def _of_type(category: Any, dtype: np.dtype) -> Any:
    """Convert a category to a number of a type; None if that type has no such number.

    For floats it is the nearest number, since a column of float32 has no other 0.1 than its own.
    """
    if isinstance(category, str):
        return None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            nearest = dtype.type(category)
        return nearest if np.isfinite(nearest) else None
    limits = np.iinfo(dtype)
    if category != int(category) or not limits.min <= category <= limits.max:
        return None
    return dtype.type(int(category))


def check_told_apart(kind: Kind, label: str, *, whole: bool = False) -> None:
    """Raise ValueError for categories that are numbers which floats cannot distinguish.

    2^53 and 2^53 + 1 are the same float. Libraries convert whole numbers to floats where one of
    them is missing, so that the value of a row would depend on what another row holds. Where the
    column may have been `whole`, this also applies to a category that is written as a float.
    """
    types = (int, float) if whole else int
    values = kind.values if isinstance(kind, Categories) else ()
    if any(isinstance(value, types) and abs(value) >= INEXACT for value in values):
        what = "becomes one of floats where values are missing" if whole else "is one of floats"
        raise ValueError(
            f"{label} {what}, and its categories in the schema are whole numbers of 2^53 or more,"
            " which floats do not tell apart. Read it as whole numbers that can be missing, for"
            " example with dtype_backend='pyarrow' or 'numpy_nullable', or as text, and write the"
            " categories as text."
        )


def _check_missing(missing: np.ndarray, kind: Kind, label: str) -> None:
    if kind.missing or not missing.any():
        return
    raise ValueError(
        f"{label} has missing values, and the schema declares none: write"
        f" {kind._with_missing()}, or fill them with a constant that is known in advance. A mean of"
        " these rows would not be private. Do so for every column in which values can be missing,"
        " since this names the first alone."
    )


def _check_family(kinds: set[type], kind: Categories, label: str) -> None:
    """Raise ValueError if no value can be a category, since only one of both is text."""
    are_text = {issubclass(each, str) for each in kinds}
    is_text = family(kind.values[0]) == "text"
    if not are_text or is_text in are_text:
        return
    held, listed = ("numbers", "text") if is_text else ("text", "numbers")
    raise ValueError(
        f"{label} holds {held} and its categories in the schema are {listed}, so that no value can"
        f" be one of them: write the categories as {held}, or turn the column into {listed}."
    )
