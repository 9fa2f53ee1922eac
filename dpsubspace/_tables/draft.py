"""A schema drafted from rows that are public."""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np

from dpsubspace._checks import check_integer, shown
from dpsubspace._tables.columns import Coded, column_of, names_of, read_column, what_is
from dpsubspace._tables.kinds import Categories, Kind, Range, plain

__all__ = ["drafted"]

# A column is drafted with log=True if its middle value is in this part of the range: a rule of
# thumb, which nothing was tuned for.
_LOWEST = 0.1

# Whole numbers up to this are float64 as they are.
_WHOLE = 2**53


def drafted(frame: Any, columns: Any, max_categories: int) -> dict[str, Kind]:
    """What the rows of a public frame show about its columns."""
    limit = check_integer("max_categories", max_categories, low=2)
    found, wrong = {}, []
    for name in _wanted(frame, columns):
        try:
            found[name] = _kind_of(column_of(frame, name), limit)
        except _NoKindError as error:
            wrong.append(f"{shown(name)} {error}")
    if wrong:
        raise ValueError(
            f"`frame` has columns that no schema can be drafted for: {'; '.join(wrong)}. Leave them"
            " out with `columns`, or add what is known about them to the draft of the others, as in"
            " Schema({**draft, 'age': Range(17, 90)})."
        )
    return found


class _NoKindError(ValueError):
    """A column has no range and no categories that rows show; says what it has."""


def _wanted(frame: Any, columns: Any) -> list[Any]:
    """Names of the columns to draft."""
    names = names_of(frame)
    if names is None:
        raise ValueError(
            "`frame` must be a data frame of pandas, Polars or Arrow, whose columns have names, as"
            " pandas.DataFrame(rows, columns=[...]) is."
        )
    wanted = names if columns is None else columns
    absent = [name for name in wanted if name not in names] or isinstance(wanted, str)
    if absent:
        raise ValueError(
            f"`columns` must be a list of columns that `frame` has, which are {shown(names)}, got"
            f" {shown(columns)}."
        )
    if twice := [name for name, times in Counter(names).items() if times > 1 and name in wanted]:
        raise ValueError(
            f"`frame` has more than one column of the names {shown(twice)}: rename or drop all but"
            " one of each."
        )
    return list(wanted)


def _kind_of(column: Any, limit: int) -> Kind:
    """Range or categories of a column, by what its rows show."""
    try:
        found = read_column(column, "")
    except ValueError as error:  # dates, for example, and what to do about them
        raise _NoKindError(str(error).partition(", or leave")[0].strip()) from None
    if isinstance(found, Coded):
        missing = bool((found.codes < 0).any())
        kinds = {what_is(type(value)) for value in found.values}
        bools = set(map(type, found.values)) <= {bool, np.bool_}
        if kinds and (kinds == {"text"} or bools or (kinds == {"numbers"} and found.declared)):
            return _categories({plain(value) for value in found.values}, missing, limit)
        if kinds - {"numbers"}:
            raise _NoKindError(f"holds {' and '.join(sorted(kinds))}")
        return _range(np.array(found.values, dtype=np.float64), missing)
    missing = bool(found.missing.any())
    values = found.values[~found.missing]
    if values.dtype.kind == "b" and len(values):
        return _categories({False, True}, missing, limit)
    return _range(values.astype(np.float64), missing)


def _categories(values: set[Any], missing: bool, limit: int) -> Categories:
    if len(values) > limit:
        raise _NoKindError(f"has {len(values)} different values, and max_categories={limit}")
    if len(values) < 2:
        raise _NoKindError("has one value in all rows")
    return Categories(tuple(sorted(values)), missing=missing)


def _range(values: np.ndarray, missing: bool) -> Range:
    values = values[np.isfinite(values)]
    if not len(values):
        raise _NoKindError("has no value in any row")
    if values.min() == values.max():
        raise _NoKindError("has one value in all rows")
    low, high = outward(float(values.min()), float(values.max()))
    try:
        return Range(low, high, log=_is_skewed(values, low, high), missing=missing)
    except ValueError as error:
        raise _NoKindError(f"has no range: {error}") from None


def outward(low: float, high: float) -> tuple[float, float]:
    """Ends of a range rounded outward to two digits of its width, as int where they are whole."""
    with localcontext() as context:
        context.prec = 700  # all digits of any two float64 and of their difference
        ends = Decimal(repr(low)), Decimal(repr(high))
        step = Decimal(1).scaleb((ends[1] - ends[0]).adjusted() - 1)
        ways = (ROUND_FLOOR, ROUND_CEILING)
        found = [
            (end / step).to_integral_value(way) * step for end, way in zip(ends, ways, strict=True)
        ]
        whole = [end == int(end) and abs(end) <= _WHOLE for end in found]
        low, high = (
            int(e) if is_whole else float(e) for e, is_whole in zip(found, whole, strict=True)
        )
    return low, high


def _is_skewed(values: np.ndarray, low: float, high: float) -> bool:
    """Whether the middle value lies in the lowest part of the range.

    A heap of values at the low end, such as zeros of a column of gains, says nothing of the rest.
    """
    middle = float(np.median(values[values > values.min()]))
    return middle < low + _LOWEST * (high - low)
