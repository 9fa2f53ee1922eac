"""Containers and types that are met less often, which :mod:`forms` tries beside its own."""

import collections
import datetime
import io
import uuid
from fractions import Fraction

import numpy as np
import pandas as pd
from pandas.io.stata import StataMissingValue
from scipy import sparse

NAMES = ["a", "b", "c"]


# Frames of pandas -------------------------------------------------------------------------------


def columns(array):
    """What a table has in each column, by its name."""
    return dict(zip(NAMES, array.T, strict=False)) if array.ndim == 2 else {"a": array}


def _framed(wrap):
    """A frame, or a Series, each column of which is wrapped."""

    def make(array):
        found = pd.DataFrame({name: wrap(pd.Series(v)) for name, v in columns(array).items()})
        return found if array.ndim == 2 else found["a"]

    return make


def _ordered(column):
    kinds = column.dropna().unique().tolist()
    return column.astype(pd.CategoricalDtype(kinds[::-1], ordered=True))


def _with(**changes):
    """A frame with other names or labels; of one column, the labels alone."""

    def make(array):
        found = pd.DataFrame(columns(array))
        if "columns" in changes:
            found.columns = changes["columns"][: found.shape[1]]
        if "index" in changes:
            found.index = changes["index"](len(found))
        return found if array.ndim == 2 else found.iloc[:, 0]

    return make


def _mixed(array):
    """A frame of which only one column is of that type."""
    if array.ndim == 1:
        return None
    others = np.arange(len(array)) % 10
    return pd.DataFrame({"a": array[:, 0], "b": others, "c": others.astype(float)})


def _stata(wrap=None, **options):
    """What pandas reads of a file of Stata."""

    def make(array):
        file = io.BytesIO()
        frame = pd.DataFrame(columns(array))
        frame = frame if wrap is None else frame.astype(wrap)
        frame.to_stata(file, write_index=False, version=118)
        file.seek(0)
        found = pd.read_stata(file, **options)
        return found if array.ndim == 2 else found["a"]

    return make


# Polars, Arrow and others -----------------------------------------------------------------------


def _polars(kind):
    import polars as pl

    def wrap(column):
        if kind == "Decimal":
            return column.cast(pl.Decimal(38, 4))
        text = column.cast(pl.String)
        known = text.unique().drop_nulls().to_list()
        return text.cast(pl.Enum(known) if kind == "Enum" else pl.Categorical)

    def make(array):
        frame = pl.from_pandas(pd.DataFrame(columns(array)))
        if kind == "lazy":
            return frame.lazy()
        frame = frame.with_columns(*(wrap(frame[name]) for name in frame.columns))
        return frame if array.ndim == 2 else frame["a"]

    return make


def _arrow(wrap):
    """A table, or an array, of which each column is wrapped."""

    def make(array):
        import pyarrow as pa

        found = {name: wrap(pa.array(values)) for name, values in columns(array).items()}
        return pa.table(found) if array.ndim == 2 else found["a"]

    return make


def _run_ends(column):
    import pyarrow.compute as pc

    return pc.run_end_encode(column)


def _cast(name, *options):
    def wrap(column):
        import pyarrow as pa

        return column.cast(getattr(pa, name)(*options))

    return wrap


def _with_a_null(column):
    import pyarrow as pa

    mask = np.arange(len(column)) == len(column) // 2
    return pa.array(column.to_pylist(), mask=mask, type=column.type)


class Stream:
    """What has a stream of Arrow and nothing else, as relations of databases have."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Relation(Stream):
    """What a database will give, with names of columns and a shape, as DuckDB has it."""

    def __init__(self, table):
        super().__init__(table)
        self.shape, self.columns = (table.num_rows, table.num_columns), table.column_names

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, name):
        raise TypeError("a relation is indexed by one name")


class AsArray:
    """What has an array and nothing else."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype)

    def __len__(self):
        return len(self.array)


def _narwhals(array):
    import narwhals as nw

    return nw.from_native(_framed(lambda column: column)(array), allow_series=True)


def _tensor(change):
    def make(array):
        import torch

        return change(torch.from_numpy(array))

    return make


def _dask(array, change):
    import in_parts

    found = in_parts.partitions(change(pd.DataFrame(columns(array))))
    return found if array.ndim == 2 else found["a"]


def _twice(array):
    """A sparse matrix with two entries in each place."""
    if array.ndim == 1:
        return None
    once = sparse.coo_array(array)
    places = tuple(np.r_[side, side] for side in once.coords)
    found = sparse.coo_array((np.r_[once.data, once.data], places), shape=once.shape)
    return sparse.csr_array(found)


def _records(array):
    kind = [(name, array.dtype) for name in columns(array)]
    found = np.zeros(len(array), dtype=kind)
    for name, values in columns(array).items():
        found[name] = values
    return found.view(np.recarray)


CONTAINERS = {
    "frame, ordered": _framed(_ordered),
    "frame, strings": _framed(lambda column: column.astype("string")),
    "frame, strings of Arrow": _framed(lambda column: column.astype("string[pyarrow]")),
    "frame, other fill": _framed(lambda column: column.astype(pd.SparseDtype(float, 1.0))),
    "frame, one name": _with(columns=["a", "a", "a"]),
    "frame, numbers as names": _with(columns=[0, 1, 2]),
    "frame, names of two types": _with(columns=["a", 1, None]),
    "frame, levels of names": _with(
        columns=pd.MultiIndex.from_tuples([("a", "x"), ("b", "x"), ("c", "y")])
    ),
    "frame, one label": _with(index=lambda n: ["same"] * n),
    "frame, dates as labels": _with(index=lambda n: pd.date_range("2001", periods=n, freq="h")),
    "frame, mixed": _mixed,
    "Stata": _stata(),
    "Stata, missing": _stata(convert_missing=True),
    "Stata, labels": _stata("category"),
    "narwhals": _narwhals,
    "Polars, Categorical": lambda array: _polars("Categorical")(array),
    "Polars, Enum": lambda array: _polars("Enum")(array),
    "Polars, Decimal": lambda array: _polars("Decimal")(array),
    "Polars, lazy": lambda array: _polars("lazy")(array),
    "Arrow, dictionary": _arrow(lambda column: column.dictionary_encode()),
    "Arrow, run ends": _arrow(_run_ends),
    "Arrow, decimal128": _arrow(_cast("decimal128", 38, 4)),
    "Arrow, decimal256": _arrow(_cast("decimal256", 60, 4)),
    "Arrow, views": _arrow(_cast("string_view")),
    "Arrow, large text": _arrow(_cast("large_string")),
    "Arrow, a null": _arrow(_with_a_null),
    "Arrow, stream": lambda array: Stream(_arrow(lambda column: column)(array)),
    "Arrow, relation": lambda array: Relation(_arrow(lambda column: column)(array)),
    "Arrow, reader": lambda array: _arrow(lambda column: column)(array).to_reader(),
    "has an array": AsArray,
    "masked nowhere": np.ma.array,
    "recarray": _records,
    "one more side": lambda array: array[..., None],
    "one entry": lambda array: np.array(array.flat[0]),
    "memoryview": lambda array: memoryview(np.ascontiguousarray(array)),
    "iterator": lambda array: iter(array.tolist()),
    "deque": lambda array: collections.deque(array.tolist()),
    "records": lambda array: pd.DataFrame(columns(array)).to_dict("records"),
    "index": lambda array: (
        pd.Index(array) if array.ndim == 1 else pd.MultiIndex.from_arrays(array.T)
    ),
    "array of pandas": lambda array: pd.array(array) if array.ndim == 1 else None,
    "Categorical": lambda array: pd.Categorical(array) if array.ndim == 1 else None,
    "tensor, gradient": _tensor(lambda tensor: tensor.requires_grad_()),
    "tensor, bfloat16": _tensor(lambda tensor: tensor.bfloat16()),
    "tensor, sparse": _tensor(lambda tensor: tensor.to_sparse()),
    "Dask frame, categories": lambda array: _dask(array, lambda frame: frame.astype("category")),
    "Dask array, unknown": lambda array: _dask(array, lambda frame: frame).to_dask_array(),
    "csr_array, twice": _twice,
    "dok_array": lambda array: sparse.dok_array(array),
    "lil_array": lambda array: sparse.lil_array(array),
    "bsr_array": lambda array: sparse.bsr_array(array) if array.ndim == 2 else None,
}


def values_of(cast, objects, text):
    """What entries are, by the makers of :mod:`forms`."""
    return {
        "strings of NumPy": lambda base: text(base).astype(np.dtypes.StringDType()),
        "big-endian ints": cast(">i8", 7341),
        "big-endian float32": cast(">f4"),
        "negative zeros": lambda base: np.where(base > 0, base, -0.0),
        "subnormal": lambda base: base * 5e-324,
        "days": lambda base: np.datetime64("2001-01-01", "D") + base.astype(int),
        "objects, periods": objects(
            lambda v: pd.Period("2001-01", "M") + int(v), pd.Period("7341-01", "M")
        ),
        "objects, intervals": objects(
            lambda v: pd.Interval(int(v), int(v) + 1), pd.Interval(7340, 7341)
        ),
        "objects, timestamps": objects(
            lambda v: pd.Timestamp(2001, 1, 1 + int(v), tz="Europe/Paris"),
            pd.Timestamp(1973, 4, 1, tz="Europe/Paris"),
        ),
        "objects, NaT": objects(lambda v: pd.Timestamp(2001, 1, 1 + int(v)), pd.NaT),
        "objects, NA": objects(float, pd.NA),
        "objects, times": objects(lambda v: datetime.time(int(v)), datetime.time(7, 34, 1)),
        "objects, fractions": objects(lambda v: Fraction(int(v)), Fraction(7341, 4)),
        "objects, names of persons": objects(lambda v: uuid.UUID(int=int(v)), uuid.UUID(int=7341)),
        "objects, floats of NumPy": objects(np.float32, np.float64(7341.25)),
        "objects, ints and a float": objects(int, 7341.25),
        "objects, bools and a number": objects(bool, 7341),
        "objects, dicts": objects(float, {"HIV": 7341.25}),
        "objects, arrays": objects(float, np.array([7341.25])),
        "objects, missing of Stata": objects(float, StataMissingValue(101)),
        "objects, bytes": objects(lambda v: b"HIV %d" % v, b"HIV positive"),
        "objects, half a character": objects(lambda v: f"HIV {v:.0f}", "HIV \ud800"),
        "objects, text with a zero": objects(lambda v: f"HIV {v:.0f}", "HIV \0 positive"),
    }
