"""What a schema says about one column: its range, its categories, or that a range is bought."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np

from dpsubspace._checks import check_bool, shown
from dpsubspace._tables.columns import what_is

__all__ = ["Buy", "Categories", "Kind", "Range", "family", "plain"]

# Larger ends of a range would overflow where they are squared.
_LARGEST = 1e50

_FLOAT_MAX = sys.float_info.max


@dataclass(frozen=True, repr=False)
class Range:
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
    Buy : A range that is bought from the private rows with a part of the budget.
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

    low: float
    high: float
    log: bool = field(default=False, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        ends = plain(self.low), plain(self.high)
        if not all(map(_is_number, ends)) or not ends[0] < ends[1]:
            raise ValueError(
                "Range(low, high) takes two finite numbers with low < high and at most"
                f" {_LARGEST:g} in size, got low={shown(self.low)} and high={shown(self.high)}."
            )
        _keep(self, low=ends[0], high=ends[1])
        _keep_flags(self, "log", "missing")

    def __repr__(self) -> str:
        return f"Range({self.low!r}, {self.high!r}{_flags(self, ', ')})"


@dataclass(frozen=True, repr=False)
class Buy:
    """A column of numbers whose range is not known and is bought from the private rows.

    The range is found with noise, and a part of the privacy budget pays for it. Write
    :class:`Range` wherever public knowledge gives a range: it costs nothing, and the model is
    usually better.

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
    >>> from dpsubspace import Buy
    >>> Buy(missing=True)
    Buy(missing=True)
    """

    log: bool = field(default=False, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _keep_flags(self, "log", "missing")

    def __repr__(self) -> str:
        return f"Buy({_flags(self)})"


@dataclass(frozen=True, repr=False)
class Categories:
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

    values: tuple[Any, ...]
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _keep(self, values=_checked_values(self.values))
        _keep_flags(self, "missing")

    def __repr__(self) -> str:
        return f"Categories({list(self.values)!r}{_flags(self, ', ')})"


Kind = Range | Buy | Categories


# Values -------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """`value` as Python's own bool, int, float or str, where it is one of NumPy's or a fraction."""
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
    is_finite = isinstance(value, (int, float)) and abs(value) <= _FLOAT_MAX  # not so of NaN
    return "number" if is_finite else None


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
    found = tuple(map(plain, values))
    families = {family(value) for value in found}
    if None in families:
        wrong = next(value for value in found if family(value) is None)
        gap = what_is(type(wrong)) == "missing" or (isinstance(wrong, float) and wrong != wrong)
        way_out = (
            "a missing value is no category: leave it out and write missing=True."
            if gap
            else "a category is a text, a finite number, or True or False."
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
            " one value tells nothing, so leave it out of the schema."
        )
    if len(set(found)) < len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise ValueError(f"Categories(values) has the value {shown(twice)} twice: write it once.")
    return found


def _keep(kind: Any, **values: Any) -> None:
    """Set fields of a frozen object while it is made."""
    for name, value in values.items():
        object.__setattr__(kind, name, value)


def _keep_flags(kind: Any, *names: str) -> None:
    _keep(kind, **{name: check_bool(name, getattr(kind, name)) for name in names})


def _flags(kind: Any, before: str = "") -> str:
    """Flags of a column that are True, as they are written."""
    written = [f"{name}=True" for name in ("log", "missing") if getattr(kind, name, False)]
    return before * bool(written) + ", ".join(written)
