"""Columns of tables of any library, as numbers or as codes."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.checks import unwrapped

# Design note. pandas, Polars and Arrow are no dependencies, so none of them is imported: a column
# is read by the methods that it has. The result is one of two things. Numbers of NumPy's types stay
# an array. All else becomes one code for each row and the list of the values that the codes stand
# for, which the libraries compute in compiled code, so that Python handles a value once for all
# rows that have it.
#
# Privacy: the value of a row after reading depends on that row and on the type of the column alone,
# which is public. A column keeps the type that it has; lists and objects, which have none, are read
# value by value. Codes and lists of values do depend on all rows, and never leave this package: the
# result for a row depends on its own value only.
#
# No message here contains a value of a row: errors end up in logs.


@dataclass(frozen=True, eq=False)
class Numeric:
    """Numbers, or True and False, and a mask of missing values; NaN is missing as well."""

    values: np.ndarray
    missing: np.ndarray


@dataclass(frozen=True, eq=False)
class Coded:
    """One code for each row, -1 where the value is missing, and the values of the codes.

    `declared` is true if the values are those of a library's type for categories, which may have
    values that no row has.
    """

    codes: np.ndarray
    values: list[Any]
    declared: bool = False


# Frames -----------------------------------------------------------------------------------------


def names_of(frame: Any) -> list[Any] | None:
    """Names of the columns of a frame; None for objects without column names."""
    if hasattr(frame, "column_names") and hasattr(frame, "num_rows"):  # a table of Arrow
        return list(frame.column_names)
    if len(getattr(frame, "shape", ())) == 2 and hasattr(frame, "columns"):
        return list(frame.columns)
    return None


def n_rows(frame: Any) -> int:
    return frame.num_rows if hasattr(frame, "num_rows") else len(frame)


def column_of(frame: Any, name: str) -> Any:
    if hasattr(frame, "num_rows"):
        return frame.column(list(frame.column_names).index(name))
    return frame[name]


def checked_frame(frame: Any, name: str) -> Any:
    """Return a data frame unchanged, and anything without names as a 2-dimensional array."""
    frame = unwrapped(name, frame)
    if names_of(frame) is not None:
        return frame
    if sparse.issparse(frame):
        raise ValueError(f"`{name}` is a sparse matrix: pass {name}.toarray(), or a data frame.")
    if isinstance(frame, Mapping):
        raise ValueError(f"`{name}` is a dict: pass a data frame, as pandas.DataFrame({name}) is.")
    # As an array of objects: NumPy would convert rows with a text in them to text entirely.
    array = np.asarray(frame) if hasattr(frame, "dtype") else np.array(frame, dtype=object)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array for `{name}`, got {array.ndim}D. Pass a data frame of pandas,"
            " Polars or Arrow with the columns of the schema, or an array with one row a record."
            f" Reshape your data with {name}.reshape(1, -1) if it is one record."
        )
    return array


# Types of text and of whole numbers in NumPy, pandas, Polars and Arrow. Columns without any value
# may have a type for floats, whatever they are about.
_TEXT = re.compile(r"(large_)?str(ing)?|string_view|categorical|enum|<[ut]\d+")
_WHOLE = re.compile(r"u?int\d+|bool(ean)?")

# Types of floats in Arrow.
_FLOATS = ("halffloat", "float", "double")


def typical_of(column: Any) -> Any:
    """A column that has the type of another and reveals nothing about its rows."""
    dtype = column.type if hasattr(column, "dictionary_encode") else column.dtype
    name = re.split(r"[(\[]", str(dtype))[0].lower()
    if _TEXT.fullmatch(name):
        return np.array(["2000-01-01"])  # any text, which is a date as well
    if _WHOLE.fullmatch(name):
        return np.array([0])
    return column.iloc[:0] if hasattr(column, "iloc") else column[:0]


# The least whole number that is the nearest float of another whole number.
INEXACT = 2**53


def holds_floats(column: Any) -> bool:
    """Whether a column has a type for floats, in any library."""
    if hasattr(column, "dictionary_encode"):
        return str(getattr(column.type, "value_type", column.type)) in _FLOATS
    dtype = column.dtype
    return dtype.is_float() if hasattr(dtype, "is_float") else getattr(dtype, "kind", "O") == "f"


# A column of any library ------------------------------------------------------------------------


def read_column(column: Any, label: str) -> Numeric | Coded:
    """Read a column of any library; ValueError that starts with `label` if that fails."""
    if hasattr(column, "dictionary_encode"):
        return _of_arrow(column, label)
    dtype = column.dtype
    if hasattr(dtype, "is_temporal"):
        return _of_polars(column, label)
    if isinstance(dtype, np.dtype) and not (dtype.kind == "O" and hasattr(column, "factorize")):
        return _of_numpy(np.asarray(column), label)
    return _of_pandas(column, label)


def times_of(column: Any) -> tuple[np.ndarray | None, bool]:
    """Days of a column of a type for dates or times, and whether it has a time zone.

    None for columns of other types, which may still hold dates.
    """
    of_arrow = hasattr(column, "dictionary_encode")
    dtype = column.type if of_arrow else column.dtype
    inner = getattr(dtype, "pyarrow_dtype", dtype)  # of a column of Arrow in pandas
    if getattr(inner, "tz", None) or getattr(inner, "time_zone", None):
        return None, True
    coded = str(inner).startswith("dictionary")  # categories of Arrow
    values = inner.value_type if coded else inner
    if getattr(values, "tz", None):
        return None, True
    if not re.match(r"date|timestamp", str(values).lower()):
        return None, False
    if inner is not dtype:  # NumPy would make Python's dates of these, of which the years end
        column = column.array.__arrow_array__()
    elif not of_arrow:
        return np.asarray(column).astype("datetime64[D]"), False
    if coded:
        column = column.cast(values)
    # Without a chunk, it has no type for NumPy.
    return _joined(column).astype("datetime64[D]"), False


def _of_numpy(values: np.ndarray, label: str) -> Numeric | Coded:
    kind = values.dtype.kind
    if kind in "biu":
        return Numeric(values, np.zeros(len(values), dtype=bool))
    if kind == "f":
        return Numeric(values, np.isnan(values))
    if kind in "OUT":
        return _of_objects(values.tolist(), label)
    raise refused(label, what_is(values.dtype.type))


def _of_pandas(series: Any, label: str) -> Numeric | Coded:
    """Read a column of a type of pandas: with missing values, with categories, or of Arrow."""
    dtype = series.dtype
    kind = getattr(dtype, "kind", "O")
    if hasattr(dtype, "categories"):
        values = series.cat.categories.tolist()
        return _without_missing(np.asarray(series.cat.codes, dtype=np.intp), values, declared=True)
    if kind == "f":
        # At the original width: 0.1 of float32 is the category 0.1 in that width only.
        wide = getattr(dtype, "numpy_dtype", np.float64)  # sparse columns have no numpy_dtype
        return _of_numpy(series.to_numpy(dtype=wide, na_value=np.nan), label)
    if kind in "biu":
        wide, fill = {"b": (np.bool_, False), "i": (np.int64, 0), "u": (np.uint64, 0)}[kind]
        missing = np.asarray(series.isna(), dtype=bool)
        return Numeric(series.to_numpy(dtype=wide, na_value=fill), missing)
    if kind in "mM":
        raise refused(label, "durations" if kind == "m" else "dates or times")
    found = None
    # For objects, pandas may confuse two equal values of different types if others lie between, and
    # half of a pair of UTF-16 with the text that Python writes for it. Arrow confuses none.
    of_arrow = hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", "") == "pyarrow"
    with suppress(TypeError, NotImplementedError, OverflowError):  # for values without a hash
        found = series.factorize() if of_arrow else None
    if found is None:
        return _of_objects(series.to_numpy(dtype=object).tolist(), label)
    return _without_missing(found[0], found[1].tolist())


def _of_polars(series: Any, label: str) -> Numeric | Coded:
    dtype = series.dtype
    name = str(dtype).partition("(")[0]
    if dtype.is_float():
        return _of_numpy(series.fill_null(np.nan).to_numpy(), label)
    if dtype.is_decimal() or name in ("Null", "Int128", "UInt128"):
        return _of_numpy(series.cast(float).fill_null(np.nan).to_numpy(), label)
    if dtype.is_integer() or name == "Boolean":
        values = series.fill_null(False if name == "Boolean" else 0)
        return Numeric(values.to_numpy(), series.is_null().to_numpy())
    if name in ("String", "Categorical", "Enum"):
        return _of_polars_text(series.cast(str))
    if name == "Object":
        return _of_objects(series.to_list(), label)
    if dtype.is_temporal():
        raise refused(label, "durations" if name == "Duration" else "dates or times")
    raise refused(label, "bytes" if name == "Binary" else "lists or other objects")


def _of_polars_text(series: Any) -> Coded:
    values = series.drop_nulls().unique()
    if not len(values):
        return Coded(np.full(len(series), -1), [])
    codes = series.replace_strict(values, list(range(len(values))), default=-1)
    return Coded(codes.to_numpy(), values.to_list())


def _of_arrow(column: Any, label: str) -> Numeric | Coded:
    name = str(column.type)
    if name.startswith("run_end_encoded"):
        decoded: Any = import_module("pyarrow.compute")  # its type stubs lack this function
        return _of_arrow(decoded.run_end_decode(column), label)
    if name in ("string", "large_string", "string_view") or name.startswith("dictionary"):
        return _of_arrow_text(column, declared=name.startswith("dictionary"))
    if name.startswith(("int", "uint")) or name == "bool":
        values = column.fill_null(False if name == "bool" else 0)
        return Numeric(_joined(values), _joined(column.is_null()).astype(bool))
    if name in _FLOATS:
        return _of_numpy(_joined(column), label)  # NumPy has NaN where a value is missing
    if name.startswith(("decimal", "null")):
        # Arrow's check of the range of a type would quote a value in its message.
        return _of_numpy(_joined(column.cast("float64", safe=False).fill_null(np.nan)), label)
    if name.startswith(("date", "time", "duration", "month")):
        spans = name.startswith(("duration", "month"))
        raise refused(label, "durations" if spans else "dates or times")
    raise refused(label, "bytes" if "binary" in name else "lists or other objects")


def _of_arrow_text(column: Any, *, declared: bool) -> Coded:
    """Read text, or a type of Arrow with codes; each chunk may have its own list of values."""
    codes, values, last, start = [np.zeros(0, dtype=np.intp)], [], None, 0
    for chunk in _chunks(column if declared else column.dictionary_encode()):
        if last is None or not chunk.dictionary.equals(last):
            start, last = len(values), chunk.dictionary
            values += last.to_pylist()
        places = chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        codes.append(np.where(places < 0, -1, places + start))
    return _without_missing(np.concatenate(codes), values, declared=declared)


def _chunks(column: Any) -> list[Any]:
    """Parts of a column: it may have several in a table, and is one part in a batch."""
    return column.chunks if hasattr(column, "chunks") else [column]


def _joined(column: Any) -> np.ndarray:
    arrays = [chunk.to_numpy(zero_copy_only=False) for chunk in _chunks(column)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.zeros(0)])


# Python's own objects ---------------------------------------------------------------------------


_MAY_BE_NAN = (float, np.floating, Decimal)

# Words for values, by their type. NumPy counts its time spans among the integers.
_WHAT: list[tuple[tuple[type, ...], str]] = [
    ((datetime.timedelta, np.timedelta64), "durations"),
    ((datetime.date, datetime.time, np.datetime64), "dates or times"),
    ((bool, int, float, np.bool_, np.integer, np.floating, Decimal, Fraction), "numbers"),
    ((str,), "text"),
    ((bytes, bytearray), "bytes"),
    ((complex, np.complexfloating), "complex numbers"),
]

_MISSING = ("NoneType", "NAType", "NaTType")  # the last two are pandas' own


def what_is(kind: type) -> str:
    """Word for values of a type: "numbers", "text", "missing", or a type that is refused."""
    if kind.__name__ in _MISSING:
        return "missing"
    known = (what for types, what in _WHAT if issubclass(kind, types))
    return next(known, "dates or times" if kind.__name__ == "Period" else "lists or other objects")


def refused(label: str, what: str) -> ValueError:
    """Error for a column whose values are neither numbers nor categories."""
    way_out = {
        "dates or times": (
            "write Date(first, last), of dpsubspace.tables, in the schema, or turn them into a"
            " number, such as the days since a date that is public, or into text of"
            " a few categories, such as the year"
        ),
        "durations": "turn them into a number of days or hours",
        "bytes": "decode them to text",
        "complex numbers": "pass their real and imaginary parts as two columns",
    }.get(what, "turn them into columns of numbers or of text")
    # scikit-learn's own words, which its estimator checks look for.
    start = "Complex data not supported: " if what == "complex numbers" else ""
    return ValueError(
        f"{start}{label} holds {what}: {way_out}, or leave the column out of the schema."
    )


def _of_objects(values: Sequence[Any], label: str) -> Coded:
    places = None
    with suppress(TypeError):
        places = dict(zip(dict.fromkeys(values), count(), strict=False))
    if places is None:  # raised out here: the suppressed error may quote a value
        raise refused(label, "lists or other objects")
    codes = np.fromiter(map(places.__getitem__, values), np.intp, len(values))
    return _without_missing(codes, list(places))


def _without_missing(codes: np.ndarray, values: list[Any], *, declared: bool = False) -> Coded:
    """Codes that are -1 where the value is None, NaN, or another marker of missing values."""
    kinds = {kind: what_is(kind) for kind in set(map(type, values))}
    doubtful = {kind for kind in kinds if issubclass(kind, _MAY_BE_NAN)}
    if not doubtful and "missing" not in kinds.values():
        return Coded(codes, values, declared)
    gone = np.array(
        [
            kinds[type(value)] == "missing" or (type(value) in doubtful and value != value)
            for value in values
        ],
        dtype=bool,
    )
    kept = np.where(gone, -1, np.cumsum(~gone) - 1)
    present = [value for value, is_gone in zip(values, gone, strict=True) if not is_gone]
    return Coded(np.append(kept, -1)[codes], present, declared)
