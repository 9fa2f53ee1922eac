"""Rows of a table as numbers and codes: of pandas, Polars, Arrow, or an array without names.

Design note. The columns are read by name and one by one, so that a table is never copied as a
whole, and columns that the schema does not name are never looked at. What is read depends on one
row at a time, except whether all rows can be read: an error tells that some row has a missing
value, or a text, where the schema says otherwise. So the guarantee assumes that the rows pass
these checks. No message contains a value of a row, or counts rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from dpsubspace._checks import shown
from dpsubspace._tables.columns import (
    Coded,
    Numeric,
    checked_frame,
    column_of,
    n_rows,
    names_of,
    read_column,
    refused,
    what_is,
)
from dpsubspace._tables.kinds import Buy, Categories, Kind, Range, family
from dpsubspace._tables.schema import Schema

__all__ = ["MISSING", "UNKNOWN", "Table", "read_table", "unnamed_columns"]

# Codes of values that are no category, and of missing ones.
UNKNOWN, MISSING = -1, -2


@dataclass(frozen=True)
class Table:
    """Rows as a schema reads them.

    Attributes
    ----------
    numbers : ndarray of shape (n, d), float64
        Columns of numbers in the order of the schema. Values outside of a public range are at its
        nearer end, so that infinity is too. NaN where a value is missing, which only columns that
        declare it have.
    codes : ndarray of shape (n, c), intp
        Columns of categories: the place of each value among the categories, UNKNOWN, or MISSING
        where the column declares it.
    """

    numbers: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)


def read_table(frame: Any, schema: Schema, *, name: str = "X") -> Table:
    """Rows of `frame` as `schema` reads them.

    Parameters
    ----------
    frame : data frame of pandas, Polars or Arrow, or array-like
        Columns are taken by name. An array, which has no names, must have as many columns as the
        schema, in its order.
    schema : Schema
        What is public about the columns.
    name : str, default="X"
        What messages call the table.

    Raises
    ------
    ValueError
        If a column is absent, given twice, of another type than the schema says, or misses values
        that the schema does not declare. Messages name columns, and no value.
    """
    frame = checked_frame(frame, name)
    columns = _columns(frame, schema, name)
    n = n_rows(frame)
    if not n:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=(0, {len(schema)})) while a minimum of 1 is"
            f" required: `{name}` has no rows."
        )
    numbers = np.empty((n, len(schema.numbers)), order="F")
    codes = np.empty((n, len(schema.categories)), dtype=np.intp, order="F")
    for place, column in enumerate(schema.numbers):
        label = f"Column {shown(column)} of `{name}`"
        _read_numbers(columns[column], schema[column], label, numbers[:, place])
    for place, column in enumerate(schema.categories):
        label = f"Column {shown(column)} of `{name}`"
        codes[:, place] = _read_codes(columns[column], schema[column], label)
    return Table(numbers, codes)


def unnamed_columns(frame: Any, schema: Schema) -> list[str]:
    """Columns of `frame` that `schema` does not name, and that are therefore not read."""
    names = names_of(frame)
    return [str(name) for name in dict.fromkeys(names or ()) if name not in schema]


# Columns of a frame -----------------------------------------------------------------------------


def _columns(frame: Any, schema: Schema, name: str) -> dict[str, Any]:
    """Columns that the schema names."""
    names = names_of(frame)
    if names is None:
        if frame.shape[1] != len(schema):
            raise ValueError(
                f"X has {frame.shape[1]} features, but Schema is expecting {len(schema)} features as"
                f" input. `{name}` has no column names, so that it must have the columns of the"
                " schema in its order; or pass a data frame."
            )
        return {column: frame[:, place] for place, column in enumerate(schema)}
    times = Counter(names)
    absent = [column for column in schema if column not in times]
    if absent:
        raise ValueError(
            f"`{name}` has no columns {shown(absent)}, which the schema names. Its columns are"
            f" {shown(names)}: write the names as they are there, or leave them out of the schema."
        )
    twice = [column for column in schema if times[column] > 1]
    if twice:
        raise ValueError(
            f"`{name}` has several columns of the names {shown(twice)}: rename or drop all but one"
            " of each."
        )
    return {column: column_of(frame, column) for column in schema}


# One column -------------------------------------------------------------------------------------


def _read_numbers(column: Any, kind: Range | Buy, label: str, out: np.ndarray) -> None:
    """Write the numbers of a column to `out`."""
    found = read_column(column, label)
    if isinstance(found, Numeric):
        out[:] = found.values
        missing = found.missing
        out[missing] = np.nan
    else:
        missing = found.codes < 0
        out[:] = np.append(_as_floats(found.values, kind, label), np.nan)[found.codes]
    _check_missing(missing, kind, label)
    largest = np.finfo(np.float64).max
    low, high = (kind.low, kind.high) if isinstance(kind, Range) else (-largest, largest)
    np.clip(out, low, high, out=out)


def _as_floats(values: list[Any], kind: Kind, label: str) -> np.ndarray:
    for what in {what_is(each) for each in set(map(type, values))} - {"numbers"}:
        if what != "text":
            raise refused(label, what)
        raise ValueError(
            f"{label} holds text, and the schema says {kind}, a column of numbers: turn the text into"
            " numbers before, or list its values that are publicly known in Categories([...])."
        )
    try:
        return np.array(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        pass
    # Raised out here: what was caught may carry a value.
    raise ValueError(f"{label} holds numbers that are too large for float64: drop those rows.")


def _read_codes(column: Any, kind: Categories, label: str) -> np.ndarray:
    """Place of each value of a column among the categories, UNKNOWN or MISSING."""
    found = read_column(column, label)
    missing = found.missing if isinstance(found, Numeric) else found.codes < 0
    _check_missing(missing, kind, label)
    if isinstance(found, Coded):
        for what in {what_is(each) for each in set(map(type, found.values))}:
            if what not in ("numbers", "text"):
                raise refused(label, what)
        _check_family({type(value) for value in found.values}, kind, label)
        places = dict(zip(kind.values, range(len(kind.values)), strict=True))
        codes = np.fromiter(map(places.get, found.values, repeat(UNKNOWN)), np.intp)
        return np.append(codes, MISSING)[found.codes]
    if not missing.all():
        _check_family({found.values.dtype.type}, kind, label)
    codes = _places(found.values, kind.values)
    codes[missing] = MISSING
    return codes


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
    ends = np.array(order, dtype=values.dtype)
    at = np.minimum(np.searchsorted(ends, values), len(ends) - 1)
    return np.where(ends[at] == values, np.array([known[end] for end in order])[at], UNKNOWN)


def _of_type(category: Any, dtype: np.dtype) -> Any:
    """A category as a number of a type, None if that type has no such number.

    Of floats it is the nearest, since a column of float32 holds no other 0.1 than its own.
    """
    if isinstance(category, str):
        return None
    if dtype.kind == "f":
        return dtype.type(category)
    limits = np.iinfo(dtype)
    if category != int(category) or not limits.min <= category <= limits.max:
        return None
    return dtype.type(int(category))


def _check_missing(missing: np.ndarray, kind: Kind, label: str) -> None:
    if kind.missing or not missing.any():
        return
    declared = repr(kind)[:-1].removesuffix("(")
    comma = "" if repr(kind).endswith("()") else ", "
    raise ValueError(
        f"{label} has missing values, and the schema declares none: write"
        f" {declared}{'(' if not comma else comma}missing=True), or fill them with a constant that is"
        " known in advance."
    )


def _check_family(kinds: set[type], kind: Categories, label: str) -> None:
    """ValueError if no value can be a category, since one is text and the other are numbers."""
    texts = {issubclass(each, str) for each in kinds}
    is_text = family(kind.values[0]) == "text"
    if texts and is_text not in texts:
        held, listed = ("numbers", "text") if is_text else ("text", "numbers")
        raise ValueError(
            f"{label} holds {held}, and its categories in the schema are {listed}, so that no value"
            f" could be one of them: write the categories as {held}, or turn the column into"
            f" {listed}."
        )
