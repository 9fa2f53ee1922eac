"""Rows of a table are read alike from every library, and errors name columns and no value."""

import traceback
import unicodedata
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dpsubspace import Categories, PrivateRange, Range, Schema
from dpsubspace._core.rows.remote import for_each_part
from dpsubspace._core.tables.kinds import MISSING, UNKNOWN
from dpsubspace._core.tables.schema import read_anywhere, read_table, unnamed_columns

INF = float("inf")


def library(name):
    """A module that the tests do without where it is not installed."""
    return pytest.importorskip(name)


# The same table in every form -------------------------------------------------------------------

COLUMNS = {
    "age": [20, 95, 10],
    "gain": [1.5, INF, -INF],
    "platelets": [None, 1.0, 2.0],
    "ward": ["A", "Z", "C"],
    "kin": [None, "no", "yes"],
    "stage": [1, None, 3],
    "smokes": [True, False, True],
    "unnamed": [1, 2, 3],
}
SCHEMA = Schema(
    {
        "age": Range(17, 90),
        "gain": Range(0, 99_999, log=True),
        "ward": ["A", "B", "C"],
        "platelets": PrivateRange(missing=True),
        "kin": Categories(["yes", "no"], missing=True),
        "stage": Categories([1, 2], missing=True),
        "smokes": [False, True],
    }
)
NUMBERS = [[20, 1.5, np.nan], [90, 99_999, 1], [17, 0, 2]]
CODES = [[0, MISSING, 0, 1], [UNKNOWN, 1, MISSING, 0], [2, 0, UNKNOWN, 1]]


def of_polars(**types):
    polars = library("polars")
    frame = polars.DataFrame(COLUMNS)
    return frame.with_columns(
        polars.col(name).cast(getattr(polars, kind)) for name, kind in types.items()
    )


def of_arrow(*, chunks=1, coded=False):
    arrow = library("pyarrow")
    rows = arrow.table(COLUMNS)
    if coded:
        for name in ("ward", "kin"):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows.column(name).dictionary_encode())
    parts = [rows.slice(at, 3 // chunks) for at in range(0, 3, 3 // chunks)]
    return arrow.concat_tables(parts)


def of_pandas(**types):
    return pd.DataFrame(COLUMNS).astype(types)


NULLABLE = {"age": "Int64", "gain": "Float64", "platelets": "Float64", "stage": "Int64"}
NULLABLE |= {"ward": "string", "kin": "string", "smokes": "boolean"}
OF_ARROW = {"age": "int64", "gain": "float64", "platelets": "float64", "stage": "int64"}
OF_ARROW |= {"ward": "string", "kin": "string", "smokes": "bool"}
OF_ARROW = {name: f"{kind}[pyarrow]" for name, kind in OF_ARROW.items()}

FRAMES = {
    "pandas": of_pandas,
    "pandas, nullable": lambda: of_pandas(**NULLABLE),
    "pandas, of Arrow": lambda: library("pyarrow") and of_pandas(**OF_ARROW),
    "pandas, objects": lambda: pd.DataFrame(COLUMNS, dtype=object),
    "pandas, categories": lambda: of_pandas(ward="category", kin="category", stage="category"),
    "pandas, sparse": lambda: of_pandas(age=pd.SparseDtype("int64", 0), platelets="Sparse[float]"),
    "pandas, small types": lambda: of_pandas(age="uint8", gain="float32", smokes="int8"),
    "Polars": of_polars,
    "Polars, categories": lambda: of_polars(ward="Categorical", stage="Int8", age="Float32"),
    "Polars, decimals": lambda: of_polars().with_columns(
        library("polars").col("age", "platelets").cast(library("polars").Decimal(9, 2))
    ),
    "Arrow": of_arrow,
    "Arrow, chunks": lambda: of_arrow(chunks=3),
    "Arrow, codes": lambda: of_arrow(chunks=3, coded=True),
    "Arrow, batch": lambda: of_arrow().to_batches()[0],
    "array": lambda: of_pandas()[list(SCHEMA)].astype(object).to_numpy(),
    "list": lambda: [list(row) for row in zip(*map(COLUMNS.get, SCHEMA), strict=True)],
}


@pytest.mark.parametrize("form", FRAMES)
def test_every_form_of_a_table_is_read_alike(form):
    found = read_table(FRAMES[form](), SCHEMA)
    np.testing.assert_array_equal(found.numbers, NUMBERS)
    np.testing.assert_array_equal(found.codes, CODES)
    assert found.numbers.dtype == np.float64 and found.codes.dtype == np.intp
    assert len(found) == 3


@pytest.mark.parametrize("form", ["pandas", "Polars", "Arrow", "Arrow, batch"])
def test_columns_that_the_schema_does_not_name_are_told(form):
    assert unnamed_columns(FRAMES[form](), SCHEMA) == ["unnamed"]
    assert unnamed_columns(FRAMES["array"](), SCHEMA) == []


maybe = {
    "number": st.one_of(st.none(), st.floats(-10, 10), st.just(INF)),
    "whole": st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    "text": st.one_of(st.none(), st.sampled_from(["a", "b", "ä", "", "1"]), st.text()),
    "truth": st.one_of(st.none(), st.booleans()),
}


@given(st.lists(st.fixed_dictionaries(maybe), min_size=1, max_size=30))
@examples(100)
def test_libraries_agree_on_any_table(rows):
    polars, arrow = library("polars"), library("pyarrow")
    schema = Schema(
        {
            "number": Range(-1, 1, missing=True),
            "whole": Categories([0, 2**61 + 1, -5], missing=True),
            "text": Categories(["b", "ä", "1"], missing=True),
            "truth": Categories([True, False], missing=True),
        }
    )
    columns = {name: [row[name] for row in rows] for name in maybe}
    types = {"number": "Float64", "whole": "Int64", "text": "string", "truth": "boolean"}
    frames = [
        pd.DataFrame({name: pd.array(columns[name], dtype=types[name]) for name in maybe}),
        pd.DataFrame(columns, dtype=object),
        polars.DataFrame(
            columns,
            schema=dict(zip(maybe, (polars.Float64, polars.Int64, str, bool), strict=True)),
        ),
        arrow.table(
            {
                name: arrow.array(columns[name], type=kind)
                for name, kind in zip(maybe, ("float64", "int64", "string", "bool"), strict=True)
            }
        ),
        pd.DataFrame(columns, dtype=object).to_numpy(),
    ]
    frames.append(frames[3].to_pandas(types_mapper=pd.ArrowDtype))
    first, *others = [read_table(frame, schema) for frame in frames]
    for other in others:
        np.testing.assert_array_equal(first.numbers, other.numbers)
        np.testing.assert_array_equal(first.codes, other.codes)
    place = {value: at for at, value in enumerate(schema["text"].values)} | {None: MISSING}
    assert first.codes[:, 1].tolist() == [place.get(text, UNKNOWN) for text in columns["text"]]


# Numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (np.array([1, 2], dtype=np.uint64), [1, 2]),
        (np.array([1.5, 2.5], dtype=np.longdouble), [1.5, 2.5]),
        (np.array([1.5, 2.5], dtype=np.float16), [1.5, 2.5]),
        ([True, False], [1, 0]),
        ([Decimal("1.5"), Fraction(1, 4), np.int8(3), True, 2], [1.5, 0.25, 3, 1, 2]),
        (pd.Series([2, 1], dtype="category"), [2, 1]),
        (pd.Series([10**400, -(10**400), 1], dtype=object), [9, -9, 1]),
        ([Decimal("inf"), 0], [9, 0]),
    ],
)
def test_numbers_of_any_type_are_read_and_clipped(column, read):
    found = read_table(pd.DataFrame({"x": column}), Schema({"x": (-9, 9)}))
    assert found.numbers[:, 0].tolist() == read


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT, Decimal("nan"), np.float32("nan")])
def test_gaps_of_all_kinds_are_missing(gap):
    frame = pd.DataFrame({"x": [gap, 1], "t": [gap, "a"]}, dtype=object)
    schema = Schema({"x": Range(0, 1, missing=True), "t": Categories(["a", "b"], missing=True)})
    found = read_table(frame, schema)
    assert np.isnan(found.numbers[0, 0]) and found.numbers[1, 0] == 1
    assert found.codes[:, 0].tolist() == [MISSING, 0]
    with pytest.raises(ValueError, match=r"Column 'x' of `X` has missing values"):
        read_table(frame, Schema({"x": (0, 1)}))


def test_infinity_of_a_bought_column_is_the_largest_number():
    found = read_table(pd.DataFrame({"x": [INF, -INF, 3]}), Schema({"x": PrivateRange()}))
    assert np.isfinite(found.numbers).all() and found.numbers[2, 0] == 3
    assert found.numbers[0, 0] == -found.numbers[1, 0] == np.finfo(float).max


# Categories -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        ([1.0, 2.0, 2.5], [1, 2], [0, 1, -1]),
        (np.array([1, 2, 3], dtype=np.int8), [1.0, 2.0, 2.5], [0, 1, -1]),
        (np.array([250, 2], dtype=np.uint8), [300, 250, -1], [1, -1]),
        (np.array([-128, 127, 0], dtype=np.int8), [-128, 127], [0, 1, -1]),
        (np.array([2**63, 2**63 + 1], dtype=np.uint64), [2**63 + 1, 7], [-1, 0]),
        (np.array([-(2**63), 2**63 - 1, 0]), [-(2**63), 2**63 - 1], [0, 1, -1]),
        ([2**53 + 1, 2**53], [2**53, 2**53 + 1], [1, 0]),
        (np.array([0.1, 0.2], dtype=np.float32), [0.2, 0.1], [1, 0]),
        ([True, False], [0, 1], [1, 0]),
        ([0, 1, 2], [True, False], [1, 0, -1]),
        (pd.Series([True, 0, 2.0], dtype=object), [0, 1, 2], [1, 0, 2]),
        (pd.Series([3, 1, 3], dtype="category"), [3, 1], [0, 1, 0]),
        (pd.Series(["b", "a"], dtype="category"), ["a", "b"], [1, 0]),
        (pd.Series(["1", 1, "b"], dtype=object), ["b", "1"], [1, -1, 0]),
        (["a ", "A", "a"], ["a", "b"], [-1, -1, 0]),
        ([np.inf, -np.inf, 1.0], [1, 2], [-1, -1, 0]),
        (np.array([1.0, np.inf], dtype=np.float16), [1, 1e300], [0, -1]),
    ],
)
def test_a_value_belongs_to_the_category_that_it_equals(column, values, codes):
    found = read_table(pd.DataFrame({"x": column}), Schema({"x": Categories(values)}))
    assert found.codes[:, 0].tolist() == codes


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_a_category_is_found_in_the_width_of_the_column_in_every_library(width):
    arrows, polars = library("pyarrow"), library("polars")
    values = np.array([0.1, 0.2], dtype=width)
    arrow = arrows.table({"x": values})
    frames = [pd.DataFrame({"x": values}), arrow, arrow.to_batches()[0]]
    frames.append(pd.DataFrame({"x": pd.Series(pd.arrays.ArrowExtensionArray(arrow["x"]))}))
    if width is not np.float16:  # older versions of these libraries have no such numbers
        frames += [polars.DataFrame({"x": values}), frames[0].convert_dtypes()]
    for frame in frames:
        found = read_table(frame, Schema({"x": Categories([0.2, 0.1])}))
        assert found.codes[:, 0].tolist() == [1, 0]


def test_a_column_with_no_value_has_any_categories():
    schema = Schema({"x": Categories(["a", "b"], missing=True)})
    for column in ([None, None], [np.nan, np.nan], pd.array([None, None], dtype="Int64")):
        assert (read_table(pd.DataFrame({"x": column}), schema).codes == MISSING).all()


# What is refused --------------------------------------------------------------------------------

SECRET = "secret value"


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([1, SECRET], (0, 1), "Column 'age' of `X` holds text, and the schema says Range(0, 1)"),
        (["1", "2"], (0, 1), "with pandas.to_numeric, or, if the values are public, list"),
        (pd.Series(["1"], dtype="string"), (0, 1), "holds text, and the schema says Range(0, 1)"),
        (pd.Series(["1"], dtype="category"), (0, 1), "holds text"),
        (
            [1, np.nan],
            (0, 1),
            "Column 'age' of `X` has missing values, and the schema declares none",
        ),
        ([1, np.nan], (0, 1), "write Range(0, 1, missing=True), or fill them with a constant"),
        (
            [1, np.nan],
            PrivateRange(log=True),
            "write PrivateRange(log=True, missing=True), or fill",
        ),
        ([SECRET, None], ["a", "b"], "write Categories([...], missing=True), or fill"),
        (pd.array([1, None], dtype="Int64"), [1, 2, 3], "has missing values"),
        ([datetime(2020, 1, 1)], (0, 1), "Column 'age' of `X` holds dates or times: write Date("),
        ([date(2020, 1, 1)], (0, 1), "such as the days since a date that is public"),
        ([timedelta(1)], (0, 1), "holds durations: turn them into a number of days"),
        (pd.to_timedelta([1, 2], unit="D"), (0, 1), "holds durations: turn them into a number"),
        ([pd.Period("2020")], (0, 1), "holds dates or times"),
        (pd.date_range("2020", periods=2, tz="UTC"), ["a", "b"], "holds dates or times"),
        ([1, date(2020, 1, 1)], ["a", "b"], "holds dates or times"),
        ([1 + 2j], (0, 1), "Complex data not supported: Column 'age' of `X` holds complex numbers"),
        (
            [[SECRET], [2]],
            (0, 1),
            "holds lists or other objects: turn them into columns of numbers or",
        ),
        ([{SECRET: 1}], ["a", "b"], "holds lists or other objects"),
        ([{1, 2}, (1,)], ["a", "b"], "holds lists or other objects"),
        ([b"a", b"b"], ["a", "b"], "holds bytes: decode them to text"),
        ([pd.Interval(0, 1)], ["a", "b"], "holds lists or other objects"),
        ([1, 2], ["1", "2"], "holds numbers and its categories in the schema are text, so that no"),
        (["1", "2"], [1, 2, 3], "holds text and its categories in the schema are numbers, so that"),
        ([True, False], ["yes", "no"], "write the categories as numbers, or turn the column into"),
        (pd.Series(["1"], dtype="category"), [1, 2, 3], "holds text and its categories"),
    ],
)
@pytest.mark.parametrize("form", ["pandas", "array"])
def test_columns_of_other_types_are_refused_by_name(column, kind, message, form):
    frame = pd.DataFrame({"age": column})
    if form == "array":
        frame = frame.to_numpy(dtype=object)
    with pytest.raises(ValueError) as raised:
        read_table(frame, Schema({"age": kind}))
    assert message in str(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda arrow: arrow.array(["a"]), "holds text"),
        (lambda arrow: arrow.array(["a"]).dictionary_encode(), "holds text"),
        (lambda arrow: arrow.array([date(2020, 1, 1)]), "holds dates or times"),
        (lambda arrow: arrow.array([datetime(2020, 1, 1)]), "holds dates or times"),
        (lambda arrow: arrow.array([timedelta(1)]), "holds durations"),
        (lambda arrow: arrow.array([b"a"]), "holds bytes"),
        (lambda arrow: arrow.array([[1]]), "holds lists or other objects"),
        (lambda arrow: arrow.array([{"a": 1}]), "holds lists or other objects"),
        (lambda arrow: arrow.array([1, None]), "has missing values"),
        (lambda arrow: arrow.array([None], type="null"), "has missing values"),
    ],
)
@pytest.mark.parametrize("form", ["Arrow", "Polars", "pandas, of Arrow"])
def test_columns_of_arrow_and_polars_are_refused_alike(make, message, form):
    table = library("pyarrow").table({"age": make(library("pyarrow"))})
    if form == "Polars":
        table = library("polars").from_arrow(table)
    if form == "pandas, of Arrow":
        table = table.to_pandas(types_mapper=pd.ArrowDtype)
    with pytest.raises(ValueError) as raised:
        read_table(table, Schema({"age": (0, 1)}))
    assert message in str(raised.value)


WRONG_TYPES = pd.DataFrame(
    {
        "fine": [1.0, np.nan],
        "text": pd.Series(["1", None], dtype="string"),
        "time": pd.date_range("2020", periods=2),
        "whole": [1, 2],
        "codes": pd.Series(["a", None], dtype="category"),
    }
)
FOR_WRONG_TYPES = {
    "fine": Range(0, 1, missing=True),
    "text": (0, 1),
    "time": (0, 1),
    "whole": ["a", "b"],
    "codes": (0, 1),
}


@pytest.mark.parametrize("form", ["pandas", "Arrow", "Polars"])
def test_one_error_names_all_columns_of_a_wrong_type(form):
    frame = WRONG_TYPES
    if form != "pandas":
        frame = library("pyarrow").Table.from_pandas(frame)
    if form == "Polars":
        frame = library("polars").from_arrow(frame)
    with pytest.raises(ValueError) as raised:
        read_table(frame, Schema(FOR_WRONG_TYPES))
    lines = str(raised.value).split("\n")
    assert [line.split("'")[1] for line in lines] == ["text", "time", "whole", "codes"]


def test_an_error_about_values_names_the_first_column_alone():
    """What values are is private, also where a column of Python's own objects has text."""
    frame = pd.DataFrame({"a": [1, None], "b": [None, 1], "c": pd.Series(["1", 2], dtype=object)})
    schema = Schema({"a": (0, 1), "b": (0, 1), "c": (0, 1)})
    with pytest.raises(ValueError, match="Do so for every column") as raised:
        read_table(frame, schema)
    assert "'a'" in str(raised.value) and "'b'" not in str(raised.value)
    with pytest.raises(ValueError, match="Column 'c' of `X` holds text"):
        read_table(frame.fillna(0), schema)


def test_columns_of_arrow_without_a_chunk_are_read():
    empty = library("pyarrow").schema([("x", "int64")]).empty_table().slice(0, 0)
    empty = empty.from_arrays([library("pyarrow").chunked_array([], "int64")], names=["x"])
    for kind in ([1, 2, 3], (0, 1)):
        assert len(read_table(empty, Schema({"x": kind}), empty=True)) == 0


def test_large_numbers_of_arrow_are_read_without_a_check_that_would_quote_them():
    arrow = library("pyarrow")
    found = read_table(arrow.table({"x": [2**62 + 1]}), Schema({"x": PrivateRange()}))
    assert found.numbers[0, 0] == 2.0**62


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"b": [1]}), "`X_test` lacks the columns ['a', 'c'], which the schema names"),
        (
            pd.DataFrame([[1, 2, 3, 4]], columns=list("aabc")),
            "more than one column with the names ['a']",
        ),
        (pd.DataFrame({"a": [], "b": [], "c": []}), "Found array with 0 sample(s) (shape=(0, 3))"),
        (np.zeros((0, 3)), "while a minimum of 1 is required: `X_test` has no rows"),
        (np.zeros((2, 2)), "X has 2 features, but Schema is expecting 3 features as input"),
        (np.zeros((2, 2)), "`X_test` has no column names, and must then have the columns"),
        (np.zeros((2, 0)), "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1"),
        (np.zeros(3), "Expected 2D array for `X_test`, got 1D"),
        ([1, 2, 3], "Reshape your data with X_test.reshape(1, -1)"),
        ([[1, 2, 3], [1, 2]], "Expected 2D array"),
        (None, "Expected 2D array for `X_test`, got 0D. Pass a data frame of pandas, Polars or"),
        (pd.Series([1, 2, 3]), "Expected 2D array"),
        ({"a": [1], "b": [1], "c": [1]}, "`X_test` is a dict: pass a data frame, as pandas"),
        (sparse.csr_array(np.eye(3)), "`X_test` is a sparse matrix: pass X_test.toarray()"),
    ],
)
def test_tables_that_do_not_fit_are_refused_with_a_way_out(frame, message):
    with pytest.raises(ValueError) as raised:
        read_table(frame, Schema({"a": (0, 1), "b": (0, 1), "c": (0, 1)}), name="X_test")
    assert message in str(raised.value)


def test_a_name_that_is_nearly_right_is_suggested():
    frame = pd.DataFrame({"Age ": [1], "marital-status": [1], 3: [1]})
    with pytest.raises(ValueError) as raised:
        read_table(frame, Schema({"age": (0, 1), "marital status": (0, 1), "other": (0, 1)}))
    message = "Did you mean 'Age ' for 'age' and 'marital-status' for 'marital status'?"
    assert str(raised.value).endswith(message)


def test_lazy_frames_are_refused():
    lazy = of_polars().lazy()
    with pytest.raises(ValueError, match=r"pass X\.collect\(\)"):
        read_table(lazy, SCHEMA)


def test_columns_that_are_not_named_are_never_looked_at():
    frame = pd.DataFrame([[1, object(), [2], 0.5]], columns=["a", "twice", "twice", "x"])
    assert read_table(frame, Schema({"x": (0, 1)})).numbers.tolist() == [[0.5]]


def test_the_frame_is_left_as_it_was():
    frame = pd.DataFrame({"x": [5.0, np.nan], "t": ["a", "z"]})
    before = frame.copy()
    schema = Schema({"x": Range(0, 1, missing=True), "t": ["a", "b"]})
    read_table(frame, schema).numbers[:] = 7
    read_table(frame[["x"]].to_numpy(), Schema({"x": schema["x"]})).numbers[:] = 7
    pd.testing.assert_frame_equal(frame, before)


# Forms of Arrow and of Unicode ------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("name", ["ward", "kin", "stage", "smokes", "platelets", "age"])
def test_columns_of_arrow_that_are_encoded_by_runs_are_read(name, chunks):
    """Text, numbers and truth values, with gaps, in memory and of a dataset."""
    functions, ds = library("pyarrow.compute"), library("pyarrow.dataset")
    table, schema = of_arrow(chunks=chunks), Schema({name: SCHEMA[name]})
    parts = [functions.run_end_encode(chunk) for chunk in table.column(name).chunks]
    encoded = library("pyarrow").table({name: library("pyarrow").chunked_array(parts)})
    expected = read_table(table, schema)
    for found in (
        read_table(encoded, schema),
        read_table(encoded.slice(0, 0), schema, empty=True),
        read_anywhere(ds.dataset(encoded), schema, name="X"),
    ):
        arrays = [*for_each_part(lambda *some: some, found.numbers, found.codes)]
        for one, other in zip(
            (expected.numbers, expected.codes), zip(*arrays, strict=True), strict=True
        ):
            other = np.concatenate(other)
            np.testing.assert_array_equal(other, one[: len(other)])


@pytest.mark.parametrize(("name", "form"), [("Größe", "NFC"), ("é", "NFC"), ("ﬁeld m²", "NFKC")])
def test_names_and_categories_in_another_form_of_unicode_are_told(name, form, capsys):
    """They look the same, and "Did you mean 'Größe' for 'Größe'?" helps nobody."""
    other = unicodedata.normalize(form.replace("C", "D"), name)
    frame, cure = pd.DataFrame({other: [0.5]}), f"apply unicodedata.normalize('{form}', name) to"
    with pytest.raises(ValueError, match="lacks the columns") as caught:
        read_table(frame, Schema({name: (0, 1)}))
    assert cure in str(caught.value) and ascii(other) in str(caught.value)
    assert "Did you mean" not in str(caught.value)
    Schema({name: (0, 1)}).check(frame)
    assert cure in capsys.readouterr().out
    Schema({"x": Categories([name, "b"])}).check(pd.DataFrame({"x": [other, "b"]}))
    assert f"with other characters: write both in Unicode's form {form}" in capsys.readouterr().out
