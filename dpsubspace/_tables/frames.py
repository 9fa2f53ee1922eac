"""Rows of a table as numbers and codes: of pandas, Polars or Arrow, or an array without names.

Design note. Columns are read by name and one by one, so that a table is never copied as a whole,
and columns that the schema does not name are never looked at. What becomes of a row follows from
that row alone, apart from one thing: an error says that some row has a missing value, or a text,
where the schema has none. So the guarantee rests on the assumption that the rows pass these
checks, which a message that contains no value and no number of rows keeps as small as it can be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from dpsubspace._checks import nearest, refuse_collection, shown
from dpsubspace._tables.kinds import (
    Categories,
    Coded,
    Kind,
    Numeric,
    Range,
    checked_frame,
    column_of,
    family,
    n_rows,
    names_of,
    read_column,
    refused,
    what_is,
)
from dpsubspace._tables.schema import Schema

# Codes of values that are no category, and of missing ones.
UNKNOWN, MISSING = -1, -2

# Whole numbers no further apart than this are looked up in a table, which is faster than a search.
_TABLE = 1 << 16

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Table:
    # (n, d), float64: columns of numbers in the order of the schema. Values outside of a public
    # range are at its nearer end, and so is infinity, which is the largest number where the range
    # is estimated. NaN where a value is missing, which only columns that declare it have.
    numbers: np.ndarray
    # (n, c), intp: the place of each value among the categories, UNKNOWN where it is none of them,
    # and MISSING where it is missing, which only columns that declare it have.
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)


def read_table(frame: Any, schema: Schema, *, name: str = "X") -> Table:
    """Rows of `frame` as `schema` reads them.

    Columns are taken by name. An array, which has no names, must have as many columns as the
    schema, in its order. Messages call the table `name`.

    ValueError if a column is absent, given twice, of another type than the schema says, or misses
    values that the schema does not declare. Messages name columns, and no value.
    """
    refuse_collection(name, frame)
    frame = checked_frame(frame, name)
    columns = _columns(frame, schema, name)
    n = n_rows(frame)
    if not n:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=(0, {len(schema)})) while a minimum of 1 is"
            f" required: `{name}` has no rows."
        )
    # Columns are written one by one, and lie in one piece each.
    numbers = np.empty((n, len(schema.numbers)), order="F")
    codes = np.empty((n, len(schema.categories)), dtype=np.intp, order="F")
    written = {column: numbers[:, place] for place, column in enumerate(schema.numbers)}
    written |= {column: codes[:, place] for place, column in enumerate(schema.categories)}
    for column, kind in schema.items():
        label = f"Column {shown(column)} of `{name}`"
        found = read_column(columns[column], label)
        if isinstance(kind, Categories):
            written[column][:] = _codes(found, kind, label)
        else:
            _write_numbers(found, kind, label, written[column])
    return Table(numbers, codes)


def unnamed_columns(frame: Any, schema: Schema) -> list[str]:
    """Columns of `frame` that `schema` does not name, and that are therefore not read."""
    names = dict.fromkeys(names_of(frame) or ())
    return [str(name) for name in names if name not in schema]


def _columns(frame: Any, schema: Schema, name: str) -> dict[str, Any]:
    names = names_of(frame)
    if names is None:
        return _columns_in_order(frame, schema, name)
    times = Counter(names)
    if absent := [column for column in schema if column not in times]:
        raise ValueError(
            f"`{name}` lacks the columns {shown(absent)}, which the schema names. It has"
            f" {shown(names)}: write the names in the schema as they are there, or leave these"
            f" columns out of it.{_alike(absent, names)}"
        )
    if twice := [column for column in schema if times[column] > 1]:
        raise ValueError(
            f"`{name}` has more than one column of the names {shown(twice)}: rename or drop all but"
            " one of each."
        )
    return {column: column_of(frame, column) for column in schema}


def _alike(absent: list[str], names: list[Any]) -> str:
    """Names that a table has and that may be meant by those that it lacks."""
    found = ((a, nearest(a, names)) for a in absent[:10])
    pairs = [f"{shown(close)} for {shown(a)}" for a, close in found if close]
    return f" Did you mean {' and '.join(pairs)}?" if pairs else ""


def _columns_in_order(array: np.ndarray, schema: Schema, name: str) -> dict[str, Any]:
    n, width = array.shape
    if width == len(schema):
        return {column: array[:, place] for place, column in enumerate(schema)}
    # The first words are those that scikit-learn's checks of estimators look for.
    start = f"X has {width} features, but Schema is expecting {len(schema)} features as input"
    if not width:
        start = f"Found array with 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required"
    raise ValueError(
        f"{start}: `{name}` has no column names, and must then have the columns of the schema, in"
        " its order. Or pass a data frame, whose columns are found by name."
    )


# One column -------------------------------------------------------------------------------------


def _write_numbers(found: Numeric | Coded, kind: Kind, label: str, numbers: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # of what is wider than float64
        if isinstance(found, Numeric):
            missing = found.missing
            numbers[:] = found.values
            np.copyto(numbers, np.nan, where=missing)
        else:
            missing = found.codes < 0
            numbers[:] = np.append(_floats(found.values, kind, label), np.nan)[found.codes]
    _check_missing(missing, kind, label)
    low, high = (kind.low, kind.high) if isinstance(kind, Range) else (-_LARGEST, _LARGEST)
    np.clip(numbers, low, high, out=numbers)


def _floats(values: list[Any], kind: Kind, label: str) -> np.ndarray:
    """Numbers of Python's, or of others, as float64."""
    kinds = {what_is(each) for each in set(map(type, values))} - {"numbers"}
    for what in sorted(kinds - {"text"}):
        raise refused(label, what)
    if kinds:
        raise ValueError(
            f"{label} holds text, and the schema says {shown(kind)}, which is for numbers: turn the"
            " text into numbers, for example with pandas.to_numeric, or name the values that are"
            " public in Categories([...])."
        )
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # of a whole number that no float64 holds
        return np.array([float(min(max(value, -_LARGEST), _LARGEST)) for value in values])


def _codes(found: Numeric | Coded, kind: Categories, label: str) -> np.ndarray:
    """Place of each value of a column among the categories, UNKNOWN or MISSING."""
    missing = found.missing if isinstance(found, Numeric) else found.codes < 0
    _check_missing(missing, kind, label)
    if isinstance(found, Numeric):
        if not missing.all():
            _check_family({found.values.dtype.type}, kind, label)
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
    """Place of each number among the categories, UNKNOWN where it is none of them."""
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
    # The difference of two int8 may be none, while that of two unsigned numbers in order is.
    wide = inside if values.dtype.kind == "u" else inside.astype(np.int64)
    codes = table[wide - wide.dtype.type(order[0])]
    np.copyto(codes, UNKNOWN, where=inside != values)
    return codes


def _of_type(category: Any, dtype: np.dtype) -> Any:
    """A category as a number of a type, None if that type has no such number.

    Of floats it is the nearest, since a column of float32 has no other 0.1 than its own.
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


# Checks -----------------------------------------------------------------------------------------


def _check_missing(missing: np.ndarray, kind: Kind, label: str) -> None:
    if kind.missing or not missing.any():
        return
    raise ValueError(
        f"{label} has missing values, and the schema declares none: write"
        f" {_with_missing(kind)}, or fill them with a constant that is known in advance. A mean of"
        " these rows would not be private."
    )


def _with_missing(kind: Kind) -> str:
    if isinstance(kind, Categories):
        return "Categories([...], missing=True)"
    return repr(replace(kind, missing=True))


def _check_family(kinds: set[type], kind: Categories, label: str) -> None:
    """ValueError if no value can be a category, since one is text and the other is not."""
    are_text = {issubclass(each, str) for each in kinds}
    is_text = family(kind.values[0]) == "text"
    if not are_text or is_text in are_text:
        return
    held, listed = ("numbers", "text") if is_text else ("text", "numbers")
    raise ValueError(
        f"{label} holds {held} and its categories in the schema are {listed}, so that no value can"
        f" be one of them: write the categories as {held}, or turn the column into {listed}."
    )
