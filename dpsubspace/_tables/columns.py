"""One column of a table, whichever library the table is of, as numbers or as codes.

Design note. pandas, Polars and Arrow are no dependencies, so that nothing of them is imported: a
column is read by the methods that it has. Whatever it is, it becomes one of two things. Numbers
that NumPy knows stay an array. All else becomes one code a row and the list of the values that
the codes stand for, which the libraries find in their own compiled code; looking at a value then
happens once for each different one.

No message here contains a value of a row: errors end up in logs.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
from scipy import sparse

__all__ = [
    "Coded",
    "Numeric",
    "checked_frame",
    "column_of",
    "n_rows",
    "names_of",
    "read_column",
    "refused",
    "what_is",
]


@dataclass(frozen=True)
class Numeric:
    """Numbers, or True and False, and where they are missing (NaN is so too)."""

    values: np.ndarray
    missing: np.ndarray


@dataclass(frozen=True)
class Coded:
    """One code a row, -1 where the value is missing, and the values that codes stand for."""

    codes: np.ndarray
    values: list[Any]


def read_column(column: Any, label: str) -> Numeric | Coded:
    """A column of any library; ValueError that starts with `label` if it cannot be read."""
    if hasattr(column, "dictionary_encode"):
        return _of_arrow(column, label)
    dtype = column.dtype
    if hasattr(dtype, "is_temporal"):
        return _of_polars(column, label)
    if isinstance(dtype, np.dtype):
        return _of_numpy(column.to_numpy() if hasattr(column, "to_numpy") else column, label)
    return _of_pandas(column, label)


# Values that are no numbers ---------------------------------------------------------------------


def refused(label: str, what: str) -> ValueError:
    """Error for a column whose values are neither numbers nor categories."""
    way_out = {
        "dates or times": "turn them into a number, such as the days since a public date",
        "bytes": "decode them to text",
        "complex numbers": "pass their real and imaginary parts as two columns",
    }.get(what, "turn them into columns of numbers or of text")
    return ValueError(f"{label} holds {what}: {way_out}, or leave the column out of the schema.")


def what_is(kind: type) -> str:
    """What values of a type are: "numbers", "text", "missing", or something that is refused."""
    if kind.__name__ in ("NoneType", "NAType", "NaTType"):
        return "missing"
    for known, what in _WHAT.items():
        if issubclass(kind, known):
            return what
    return "lists or other objects"


_WHAT: dict[tuple[type, ...], str] = {
    (np.timedelta64,): "dates or times",  # which NumPy counts among the integers
    (bool, int, float, np.bool_, np.integer, np.floating, Decimal, Fraction): "numbers",
    (str,): "text",
    (bytes, bytearray): "bytes",
    (complex, np.complexfloating): "complex numbers",
    (datetime.date, datetime.time, datetime.timedelta, np.datetime64): "dates or times",
}


def _of_objects(values: Sequence[Any], label: str) -> Coded:
    """Codes of Python's own objects."""
    try:
        places = dict(zip(dict.fromkeys(values), count(), strict=False))
        codes = np.fromiter(map(places.__getitem__, values), np.intp, len(values))
    except TypeError:
        places = codes = None
    if places is None or codes is None:  # raised out here: what was caught may carry a value
        raise refused(label, "lists or other objects")
    return _without_missing(codes, list(places))


def _without_missing(codes: np.ndarray, values: list[Any]) -> Coded:
    """Codes that are -1 where the value is one that stands for a missing one."""
    kinds = {kind: what_is(kind) for kind in set(map(type, values))}
    if not any(what == "missing" or kind in _MAY_BE_NAN for kind, what in kinds.items()):
        return Coded(codes, values)
    gone = [kinds[type(value)] == "missing" or _is_nan(value) for value in values]
    if not any(gone):
        return Coded(codes, values)
    kept = np.cumsum(~np.array(gone)) - 1
    kept[gone] = -1
    present = [value for value, is_gone in zip(values, gone, strict=True) if not is_gone]
    return Coded(np.append(kept, -1)[codes], present)


_MAY_BE_NAN = {float, np.float16, np.float32, np.float64, np.longdouble, Decimal}


def _is_nan(value: Any) -> bool:
    return type(value) in _MAY_BE_NAN and value != value


# Libraries --------------------------------------------------------------------------------------


def _of_numpy(values: np.ndarray, label: str) -> Numeric | Coded:
    kind = values.dtype.kind
    if kind in "biu":
        return Numeric(values, np.zeros(len(values), dtype=bool))
    if kind == "f":
        return Numeric(values, np.isnan(values))
    if kind in "OUT":
        return _of_objects(values.tolist(), label)
    what = {"M": "dates or times", "m": "dates or times", "S": "bytes", "c": "complex numbers"}
    raise refused(label, what.get(kind, "lists or other objects"))


def _of_pandas(series: Any, label: str) -> Numeric | Coded:
    """A column of one of pandas' own types: with missing values, categories, or of Arrow."""
    dtype = series.dtype
    if hasattr(dtype, "categories"):
        codes = np.asarray(series.cat.codes, dtype=np.intp)
        return _without_missing(codes, series.cat.categories.tolist())
    kind = getattr(dtype, "kind", "O")
    if kind == "f":
        return _of_numpy(series.to_numpy(dtype=np.float64, na_value=np.nan), label)
    if kind in "biu":
        wide = {"b": np.bool_, "i": np.int64, "u": np.uint64}[kind]
        missing = np.asarray(series.isna(), dtype=bool)
        return Numeric(series.to_numpy(dtype=wide, na_value=0), missing)
    if getattr(dtype, "type", None) is str:
        codes, values = series.factorize()
        return Coded(codes, values.tolist())
    if kind in "mM":
        raise refused(label, "dates or times")
    return _of_objects(series.to_numpy(dtype=object).tolist(), label)


def _of_polars(series: Any, label: str) -> Numeric | Coded:
    dtype = series.dtype
    name = str(dtype).partition("(")[0]
    if dtype.is_float() or dtype.is_decimal() or name in ("Null", "Int128", "UInt128"):
        return _of_numpy(series.cast(float).to_numpy(), label)
    if dtype.is_integer() or name == "Boolean":
        missing = series.is_null().to_numpy()
        return Numeric(series.fill_null(strategy="zero").to_numpy(), missing)
    if name in ("String", "Categorical", "Enum"):
        text = series.cast(str)
        values = text.drop_nulls().unique()
        codes = text.replace_strict(values, range(len(values)), default=-1, return_dtype=int)
        return Coded(codes.to_numpy(), values.to_list())
    if name == "Object":
        return _of_objects(series.to_list(), label)
    if dtype.is_temporal():
        raise refused(label, "dates or times")
    raise refused(label, "bytes" if name == "Binary" else "lists or other objects")


def _of_arrow(column: Any, label: str) -> Numeric | Coded:
    name = str(column.type)
    if name in ("string", "large_string", "string_view") or name.startswith("dictionary"):
        return _of_arrow_text(column, label)
    if name.startswith(("int", "uint", "bool")):
        missing = _joined(column.is_null())
        return Numeric(_joined(column.fill_null(False if name == "bool" else 0)), missing)
    if name.startswith(("float", "double", "halffloat", "decimal", "null")):
        # Without a check of ranges, whose message would name a value.
        return _of_numpy(_joined(column.cast("float64", safe=False)), label)
    if name.startswith(("date", "time", "duration", "month")):
        raise refused(label, "dates or times")
    raise refused(label, "bytes" if "binary" in name else "lists or other objects")


def _of_arrow_text(column: Any, label: str) -> Coded:
    """Text, or what is stored as codes already; chunks may have lists of values of their own."""
    codes, values, last, start = [], [], None, 0
    for chunk in _chunks(column.dictionary_encode()):
        if last is None or not chunk.dictionary.equals(last):
            start, last = len(values), chunk.dictionary
            values += last.to_pylist()
        found = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
        found[found >= 0] += start
        codes.append(found)
    return _without_missing(np.concatenate([np.zeros(0, dtype=np.intp), *codes]), values)


def _chunks(column: Any) -> list[Any]:
    """Parts of a column of a table, which has several, or of a batch, which is one."""
    return column.chunks if hasattr(column, "chunks") else [column]


def _joined(column: Any) -> np.ndarray:
    arrays = [chunk.to_numpy(zero_copy_only=False) for chunk in _chunks(column)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.zeros(0)])


# Frames -----------------------------------------------------------------------------------------


def checked_frame(frame: Any, name: str) -> Any:
    """A frame, or an array of two dimensions."""
    if names_of(frame) is not None:
        return frame
    if hasattr(frame, "collect_schema"):
        raise ValueError(f"`{name}` is a lazy frame, which has no rows yet: pass {name}.collect().")
    if sparse.issparse(frame):
        raise ValueError(f"`{name}` is a sparse matrix: pass {name}.toarray(), or a data frame.")
    if isinstance(frame, Mapping):
        raise ValueError(
            f"`{name}` is a dict: pass a data frame, such as pandas.DataFrame({name})."
        )
    array = frame if hasattr(frame, "dtype") else _objects(frame)
    array = np.asarray(array)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array for `{name}`, got {array.ndim}D. Pass a data frame with the columns"
            " of the schema, or an array with one row a record. Reshape your data with"
            f" {name}.reshape(1, -1) if it is one record."
        )
    return array


def _objects(rows: Any) -> np.ndarray:
    """Rows of a list, whose values stay of the types that they have."""
    try:
        return np.array(rows, dtype=object)
    except ValueError:
        pass
    return np.zeros(0)


def names_of(frame: Any) -> list[Any] | None:
    """Names of the columns of a frame; None of what has none."""
    if hasattr(frame, "column_names") and hasattr(frame, "num_rows"):
        return list(frame.column_names)
    if hasattr(frame, "columns") and hasattr(frame, "shape") and len(frame.shape) == 2:
        return list(frame.columns)
    return None


def n_rows(frame: Any) -> int:
    return frame.num_rows if hasattr(frame, "num_rows") else len(frame)


def column_of(frame: Any, name: str) -> Any:
    """Column of a frame by its name, which one column has."""
    if hasattr(frame, "num_rows"):
        return frame.column(list(frame.column_names).index(name))
    return frame[name]
