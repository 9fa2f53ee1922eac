"""A schema drafted from rows that are public."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from dpsubspace._checks import check_integer, shown
from dpsubspace._tables.columns import (
    Coded,
    column_of,
    names_of,
    read_column,
    what_is,
)
from dpsubspace._tables.kinds import Categories, Kind, Range, plain

__all__ = ["drafted"]

# A column of numbers above 0 is drafted with log=True if its largest value is this many times its
# smallest: the rule by which the encoding takes logarithms of the values themselves.
_RATIO = 10.0

# A column with zeros is, if its largest value is this many times the median of what is above 0.
_SKEW = 20.0


def drafted(frame: Any, columns: Any, max_categories: int) -> dict[str, Kind]:
    """What the rows of a public frame show about its columns."""
    limit = check_integer("max_categories", max_categories, low=2)
    names = names_of(frame)
    if names is None:
        raise ValueError(
            "`frame` has no column names: pass a data frame of pandas, Polars or Arrow, such as"
            " pandas.DataFrame(rows, columns=[...])."
        )
    wanted = names if columns is None else list(columns)
    absent = [name for name in wanted if name not in names]
    if absent:
        raise ValueError(f"`columns` has {shown(absent)}, which are not among {shown(names)}.")
    twice = [name for name, times in Counter(names).items() if times > 1 and name in wanted]
    if twice:
        raise ValueError(f"`frame` has several columns of the names {shown(twice)}: rename them.")
    found, wrong = {}, []
    for name in wanted:
        try:
            found[name] = _drafted_column(column_of(frame, name), limit)
        except ValueError as error:
            wrong.append(f"{shown(name)} {error}")
    if wrong:
        raise ValueError(
            f"No schema can be drafted for the columns: {'; '.join(wrong)}. Choose others with"
            " `columns`, and write Range, Buy or Categories for these by hand."
        )
    return found


def _drafted_column(column: Any, limit: int) -> Kind:
    """Range or categories of a column; ValueError with what it holds instead."""
    found = read_column(column, "")
    if isinstance(found, Coded):
        missing = bool((found.codes < 0).any())
        kinds = {what_is(type(value)) for value in found.values}
        if kinds <= {"text"} or set(map(type, found.values)) <= {bool, np.bool_}:
            return _categories(sorted(set(map(plain, found.values))), missing, limit)
        if kinds != {"numbers"}:
            raise ValueError(f"holds {' and '.join(sorted(kinds))}")
        values = np.array(found.values, dtype=np.float64)
    else:
        missing = bool(found.missing.any())
        values = found.values[~found.missing]
        if values.dtype.kind == "b":
            return _categories([False, True], missing, limit)
    return _range(values, missing)


def _categories(values: list[Any], missing: bool, limit: int) -> Categories:
    if len(values) > limit:
        raise ValueError(f"has {len(values)} different values, more than max_categories={limit}")
    if len(values) < 2:
        raise ValueError("has one value in all rows")
    return Categories(values, missing=missing)


def _range(values: np.ndarray, missing: bool) -> Range:
    values = values[np.isfinite(values)]
    if not len(values):
        raise ValueError("has no value")
    low, high = float(values.min()), float(values.max())
    if not low < high:
        raise ValueError("has one value in all rows")
    above = values[values > 0]
    log = (low > 0 and high / low > _RATIO) or (low == 0 and high / float(np.median(above)) > _SKEW)
    return Range(*_outward(low, high), log=log, missing=missing)


def _outward(low: float, high: float) -> tuple[float, float]:
    """Ends of a range rounded outward to two digits of its width, whole numbers as such."""
    digits = math.floor(math.log10(high - low)) - 1
    ends = []
    for end, to in ((low, math.floor), (high, math.ceil)):
        scaled = to(end / 10.0**digits)
        ends.append(scaled * 10**digits if digits >= 0 else scaled / 10**-digits)
    if low > 0 and ends[0] <= 0:  # else nothing would be left of a scale of logarithms
        ends[0] = float(f"{low / 2:.1g}")
    return ends[0], ends[1]
