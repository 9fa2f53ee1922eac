"""The value that a row gets depends on that row and on public types alone, in every container.

A library that chooses the type of a column by the values of a block would let one row change how
all others are read. So one row of a small table is replaced, by missing values, by the ends of
types and by others, and all other rows have to be read to the same bits.
"""

from contextlib import nullcontext
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet as pq
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator

from dpsubspace import Categories, DPSGDClassifier, Range, private_score, tabular_pipeline
from dpsubspace._core.rows import dataset_parts
from dpsubspace._core.rows.remote import for_each_part
from dpsubspace._core.tables.schema import Schema, read_anywhere, read_table
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)

# A warning of pandas 3.1 about what Dask calls.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

BIG = 2**53

# Types of Arrow, values of rows, three that those of one row are replaced by, and categories.
TYPES = {
    "whole": (
        pa.int64(),
        [BIG, BIG + 1, -BIG - 1, BIG + 2, 0, 2**62 + 1, None],
        [None, 2**63 - 1, -(2**63)],
        [BIG + 1, -BIG - 1, 2**62 + 1],
    ),
    "unsigned": (
        pa.uint64(),
        [BIG, BIG + 1, 2**64 - 1, 2**63 + 1, 0, None],
        [None, 2**64 - 2, 1],
        [BIG + 1, 2**64 - 1],
    ),
    "small": (pa.int8(), [1, 2, -128, 127, None], [None, 127, -1], [1, 2, 127]),
    "narrow": (pa.int32(), [1, 2**31 - 1, 2**24 + 1, None], [None, -(2**31), 0], [1, 2**24 + 1]),
    "floats": (
        pa.float64(),
        [0.1, 1e300, 5e-324, -0.0, 2.0**53, None],
        [None, -1.7e308, 0.5],
        [0.1, 2.0**53],
    ),
    "short": (pa.float32(), [0.1, 3e38, 16777216.0, None], [None, -3e38, 0.5], [0.1, 2.5]),
    "truth": (pa.bool_(), [True, False, None], [None, True, False], [False, True]),
    "text": (pa.string(), ["A", "", "ä", "1", None], [None, "?" * 999, "1.5"], ["A", "1", ""]),
    "coded text": (
        pa.dictionary(pa.int32(), pa.string()),
        ["A", "B", "1", None],
        [None, "new", ""],
        ["A", "1"],
    ),
    "coded": (
        pa.dictionary(pa.int32(), pa.int64()),
        [BIG + 1, BIG, 3, None],
        [None, 2**62, 0],
        [BIG + 1, 3],
    ),
    "decimals": (
        pa.decimal128(38, 6),
        [Decimal(f"{BIG + 1}.5"), Decimal("0.1"), Decimal(3), None],
        [None, Decimal("9" * 31), Decimal("0.000001")],
        [3, 4],
    ),
}
SCHEMA = {name: Categories(own, missing=True) for name, (*_, own) in TYPES.items()}
SCHEMA |= {
    f"range of {name}": Range(-1e17, 1e17, missing=True) for name in TYPES if "text" not in name
}
# Of which Dask makes floats where a value is missing, unless it is asked for other types.
LARGE = ("whole", "unsigned", "coded")
N, CHANGED = 16, 5


def column_of(kind, last):
    """Values of rows, of which one is replaced by one of three where `last` says so."""
    arrow, values, others, _ = TYPES[kind]
    rows = (values * N)[:N]
    if last is not None:
        rows[CHANGED] = others[last]
    if isinstance(arrow, pa.DictionaryType):
        return pa.array(rows, arrow.value_type).dictionary_encode()
    return pa.array(rows, arrow)


def table_of(last=None):
    columns = {name: column_of(name.removeprefix("range of "), last) for name in SCHEMA}
    return pa.table(columns)


def nullable(table):
    kinds = {pa.int64(): "Int64", pa.uint64(): "UInt64", pa.int8(): "Int8", pa.int32(): "Int32"}
    kinds |= {pa.float64(): "Float64", pa.float32(): "Float32", pa.bool_(): "boolean"}
    types = {arrow: pd.api.types.pandas_dtype(kind) for arrow, kind in kinds.items()}
    return table.to_pandas(types_mapper=types.get)


def of_arrow(table):
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def objects(table):
    return pd.DataFrame(table.to_pydict(), dtype=object)


def spelled_out(table):
    """Dictionaries of Polars are of text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and not pa.types.is_string(field.type.value_type):
            column = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.name, column)
    return table


def chunks(table):
    return pa.concat_tables([table.slice(at, 1) for at in range(len(table))])


def in_files(table, folder):
    folder.mkdir()
    for number, (start, stop) in enumerate(pairwise([0, 1, 1, 12, len(table)])):
        pq.write_table(table.slice(start, stop - start), folder / f"{number}.parquet")
    return folder


def in_partitions(frame):
    """Dask would make text of objects."""
    import dask.dataframe as dd
    from dask import config

    with config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame, npartitions=3)


def of_files(table, folder, **options):
    import dask.dataframe as dd

    return dd.read_parquet(in_files(table, folder), **options)


HERE = {
    "Arrow": lambda table: table,
    "chunks": chunks,
    "batch": lambda table: table.to_batches()[0],
    "Polars": lambda table: pytest.importorskip("polars").from_arrow(spelled_out(table)),
    "pandas, of Arrow": of_arrow,
    "pandas, nullable": nullable,
    "pandas, objects": objects,
    "array": lambda table: objects(table).to_numpy(),
    "list": lambda table: [[*row.values()] for row in table.to_pylist()],
}
IN_PARTS = {
    "dataset in memory": lambda table, _: ds.dataset(table),
    "dataset in files": lambda table, folder: ds.dataset(in_files(table, folder)),
    "union": lambda table, _: ds.dataset([ds.dataset(part) for part in (table[:7], table[7:])]),
    "Dask, of Arrow": lambda table, _: in_partitions(of_arrow(table)),
    "Dask, nullable": lambda table, _: in_partitions(nullable(table)),
    "Dask, files": lambda table, folder: of_files(table.drop([*LARGE]), folder),
    "Dask, files of Arrow": lambda table, folder: of_files(table, folder, dtype_backend="pyarrow"),
    "Dask, files, nullable": lambda *given: of_files(*given, dtype_backend="numpy_nullable"),
}


def assert_others_are_the_same(frames, but=()):
    schema = Schema({name: kind for name, kind in SCHEMA.items() if name not in but})
    first, *others = [numbers_and_codes(frame, schema) for frame in frames]
    for other in others:
        names = [*schema.numbers, *schema.categories]
        for name, one, another in zip(names, first, other, strict=True):
            same = one.tobytes() == another.tobytes()
            assert same, f"a row changes how others of the column {name!r} are read"


def numbers_and_codes(frame, schema):
    """Columns as they are read, without the row that is replaced."""
    table = read_anywhere(frame, schema, name="X")
    found = [*for_each_part(lambda *arrays: arrays, table.numbers, table.codes)]
    arrays = [np.concatenate(some) for some in zip(*found, strict=True)]
    assert {len(array) for array in arrays} == {N}
    return [column for array in arrays for column in np.delete(array, CHANGED, 0).T]


@pytest.mark.parametrize("container", HERE)
def test_one_row_changes_how_no_other_is_read(container):
    assert_others_are_the_same(HERE[container](table_of(last)) for last in (None, 0, 1, 2))


OBJECTS = {
    "pandas": lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
    "array": lambda values: np.array([[value] for value in values], dtype=object),
    "list": lambda values: [[value] for value in values],
    "Polars": lambda values: pytest.importorskip("polars").DataFrame(
        {
            "x": pytest.importorskip("polars").Series(
                values, dtype=pytest.importorskip("polars").Object
            )
        }
    ),
}


@pytest.mark.parametrize("container", OBJECTS)
def test_equal_objects_of_several_types_are_read_alike_whichever_comes_first(container):
    """0.0 and -0.0 are equal, and so are 1, True and Decimal(1)."""
    rows = [0.0, -0.0, 1, True, Decimal(1), np.float32(1), BIG, float(BIG), BIG + 1, 0.1, None]
    schema, read = Schema({"x": Range(-1e17, 1e17, missing=True)}), []
    for first in [*rows, 10**400, np.float32(0.1), Decimal("0.1"), Decimal("NaN")]:
        table = read_table(OBJECTS[container]([first, *rows]), schema)
        read.append(table.numbers[1:].tobytes())
    assert set(read) == {read[0]}


@pytest.mark.parametrize("container", OBJECTS)
def test_an_object_is_read_among_others_as_it_is_alone(container):
    """0.6 of NumPy in 32 bits equals 0.6, and the table of pandas takes them for one value here."""
    short, large = np.float32, [float(BIG), Decimal("1E+400")]
    rows = [1, short(3.5), 24, 49, 34, 29, short(0.4), large[0], 45, 10, 2.7, large[1], 40]
    rows += [short(0.6), 53, 3.6, 3.9, 0.6, 28, 0, 1.3, 3.0, False, short(0.1), 4, 1.5, 51, 41]
    rows += [short(2.9), 3.8]
    schema, make = Schema({"x": Range(-1e17, 1e17)}), OBJECTS[container]
    alone = [read_table(make([row]), schema).numbers for row in rows]
    assert (read_table(make(rows), schema).numbers == np.concatenate(alone)).all()


@pytest.mark.parametrize("container", IN_PARTS)
def test_nor_where_rows_are_read_in_parts(monkeypatch, tmp_path, container):
    monkeypatch.setattr(dataset_parts, "_FEWEST", 5)
    monkeypatch.setattr(dataset_parts, "_MOST", 5)
    where = nullcontext()
    if "Dask" in container:
        where = pytest.importorskip("in_parts").cluster_here(monkeypatch, 2)
    made = [IN_PARTS[container](table_of(last), tmp_path / f"{last}") for last in (None, 0, 1, 2)]
    with where:
        assert_others_are_the_same(made, LARGE if container == "Dask, files" else ())


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("last", [None, 0, 1])
def test_categories_are_refused_by_type_where_dask_makes_floats_of_them(tmp_path, name, last):
    """Whether or not a value is missing, before anything is read."""
    pytest.importorskip("distributed")
    frame, schema = of_files(table_of(last), tmp_path / "files"), Schema({name: SCHEMA[name]})
    with pytest.raises(ValueError, match=rf"Column '{name}' of `X` becomes .*dtype_backend='pyarr"):
        read_anywhere(frame, schema, name="X")


@pytest.mark.parametrize("kind", ["float64", "Float64", "double[pyarrow]", "Sparse[float]"])
def test_categories_that_floats_do_not_tell_apart_are_refused(kind):
    schema = Schema({"x": Categories([BIG, BIG + 2], missing=True)})
    frame = pd.DataFrame({"x": [BIG + 1.0, np.nan]}).astype(kind)
    with pytest.raises(
        ValueError, match=r"Column 'x' of `X` is one of floats, and its categ.* do not tell"
    ):
        read_table(frame, schema)
    assert read_table(frame, Schema({"x": Categories([2.0**60, 1.0], missing=True)}))


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:columns that the schema does not name")
def test_models_and_groups_with_such_categories_are_refused_by_type(tmp_path):
    """What a fitted model is shown of Dask, and levels of groups, before anything is read."""
    pytest.importorskip("distributed")
    frame = of_files(pa.table({"x": [1, BIG] * 40, "y": [0, 1] * 40}), tmp_path / "files")
    model = tabular_pipeline("classification", {"x": Categories([1, BIG + 1], missing=True)})
    here = pd.DataFrame({"x": pd.array([1, BIG] * 40, dtype="Int64")})
    model.set_params(epsilon=1.0).fit(here, [0, 1] * 40)
    whole = DPSGDClassifier().fit(np.arange(80.0)[:, None], [0, 1] * 40)
    for act in (
        lambda: private_score(model, frame, frame["y"], epsilon=1.0),
        lambda: private_score(FrozenEstimator(model), frame[["x"]], frame["y"], epsilon=1.0),
        lambda: private_score(whole, frame[["x"]], frame["y"], by={"x": [1, BIG + 1]}, epsilon=1.0),
    ):
        with pytest.raises(ValueError, match=r"Column 'x' of `X` becomes one of floats"):
            act()


# Lists that models of others are shown ----------------------------------------------------------


class Watching(ClassifierMixin, BaseEstimator):
    """Keeps what it is shown, and says of a row what its own first entry is."""

    def fit(self, X=None, y=None):
        self.classes_, self.shown_ = np.array([0, 1]), []
        return self

    def predict_proba(self, X):
        self.shown_ += [[*row] for row in np.asarray(X).tolist()]
        odd = np.array([row[0] % 2 for row in np.asarray(X).tolist()], dtype=float)
        return np.stack([0.9 - 0.8 * odd, 0.1 + 0.8 * odd], axis=1)

    def predict(self, X):
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)


class WatchingRegressor(RegressorMixin, Watching):
    def predict(self, X):
        return self.predict_proba(X)[:, 1]


SHOWN = {
    "private_score": (
        Watching,
        lambda model, X, y: private_score(model, X, y, metric="log_loss", epsilon=1.0),
    ),
    "DPCalibratedClassifier": (
        Watching,
        lambda model, X, y: DPCalibratedClassifier(model).fit(X, y),
    ),
    "DPConformalClassifier": (Watching, lambda model, X, y: DPConformalClassifier(model).fit(X, y)),
    "DPConformalRegressor": (
        WatchingRegressor,
        lambda model, X, y: DPConformalRegressor(model, target_bounds=(0, 1)).fit(X, y),
    ),
}


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("last", [0.5, "a text", BIG + 3, -(2**70), True])
@pytest.mark.parametrize("name", SHOWN)
def test_one_row_of_a_list_changes_none_that_a_model_is_shown(name, last):
    """An array that NumPy makes has one type for all: 2^53 + 1 would be 2^53 beside a half."""
    kind, call = SHOWN[name]
    rows, y = [[BIG + 1 + i % 7, i % 3] for i in range(60)], [i % 2 for i in range(60)]
    shown = []
    for other in (rows[-1], [BIG + 1, last]):
        model = kind().fit()
        call(model, [*rows[:-1], other], y)
        shown.append(model.shown_[:59])
    assert shown[0] == shown[1] == rows[:-1]


def test_the_way_out_of_a_dataset_keeps_whole_numbers():
    dataset = ds.dataset(pa.table({"x": [BIG + 1, None]}))
    with pytest.raises(ValueError, match=r"pass X.to_table\(\) if") as refused:
        Schema({"x": Range(0, 1)}).check(dataset)
    assert "to_pandas" not in str(refused.value)
    column = pa.table({"x": dataset.to_table()["x"]})
    schema = Schema({"x": Categories([BIG, BIG + 1], missing=True)})
    assert read_table(column, schema).codes[0, 0] == 1
