"""What a schema says is checked when it is written, and survives files, copies and the console."""

import copy
import json
import pickle
from datetime import date
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone

from dpsubspace import (
    Categories,
    PrivateRange,
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.tables.check import outward
from dpsubspace._core.tables.schema import as_schema

NAMES = {"Range": Range, "PrivateRange": PrivateRange, "Categories": Categories, "Schema": Schema}


def admissions():
    """A schema with a column of each kind."""
    return Schema(
        {
            "age": Range(17, 90),
            "gain": Range(0, 99_999, log=True),
            "platelets": PrivateRange(missing=True),
            "dose": PrivateRange(log=True),
            "ward": Categories(["A", "B", "C"], missing=True),
            "grade": Categories([1, 2.5, 3]),
            "smokes": Categories([False, True]),
            "hours": (0, 99.5),
            "sex": ["f", "m"],
        }
    )


# Kinds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (0, np.nan),
        (-np.inf, 1),
        (0, 1e60),
        (False, True),
        ("0", "1"),
        (None, 1),
        (Decimal(0), Decimal(1)),
        (0, 1j),
        (date(2020, 1, 1), date(2021, 1, 1)),
        (0, 10**400),
    ],
)
def test_a_range_is_two_finite_numbers_in_order(low, high):
    with pytest.raises(ValueError, match=r"two finite numbers with low < high"):
        Range(low, high)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least two values, got []"),
        (["A"], "at least two values"),
        ("AB", "takes a list"),
        (b"AB", "takes a list"),
        (5, "takes a list"),
        ({"A": 1, "B": 2}, "takes a list"),
        ({"A", "B"}, "pass sorted(values)"),
        (["A", "B", "A"], "has the value 'A' twice"),
        ([1, 2, 1.0], "has the value 1 twice"),
        (["A", None], "a missing value is no category: leave it out and write missing=True"),
        ([1, np.nan], "a missing value is no category"),
        (pd.Series(["A", pd.NA]), "a missing value is no category"),
        ([1, np.inf], "a category is a text, a finite number, or True or False"),
        ([b"A", b"B"], "a category is a text"),
        ([("A",), ("B",)], "a category is a text"),
        ([date(2020, 1, 1), date(2020, 1, 2)], "a category is a text"),
        (["A", 1], "several types"),
        ([False, 2], "several types"),
        ([True, "yes"], "several types"),
    ],
)
def test_categories_are_different_values_of_one_type(values, message):
    with pytest.raises(ValueError) as raised:
        Categories(values)
    assert message in str(raised.value)


class Ward(StrEnum):
    """Names of wards."""

    A = "A ward"
    B = "B ward"


@pytest.mark.filterwarnings("ignore:a Range or Categories was given values of NumPy")
@pytest.mark.parametrize(
    ("given_values", "kept"),
    [
        (np.array([1, 2], dtype=np.int8), (1, 2)),
        (np.array(["a", "b"]), ("a", "b")),
        ([np.True_, np.False_], (True, False)),
        (pd.Index(["a", "b"]), ("a", "b")),
        ([np.float32(0.5), Fraction(1, 4)], (0.5, 0.25)),
        (range(3), (0, 1, 2)),
        (Ward, ("A ward", "B ward")),
    ],
)
def test_values_become_plain(given_values, kept):
    values = Categories(given_values).values
    assert values == kept
    assert [type(value) for value in values] == [type(value) for value in kept]
    assert all(type(value) in (bool, int, float, str) for value in values)


@pytest.mark.filterwarnings("ignore:a Range or Categories was given values of NumPy")
def test_ends_become_plain_and_stay_whole():
    kind = Range(np.int16(3), np.float32(4.5))
    assert (type(kind.low), type(kind.high)) == (int, float)
    assert repr(kind) == "Range(3, 4.5)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Range(0, 1, log=1),
        lambda: Range(0, 1, missing=None),
        lambda: PrivateRange(log="yes"),
        lambda: Categories(["A", "B"], missing="no"),
    ],
)
def test_flags_are_true_or_false(make):
    with pytest.raises(ValueError, match=r"must be True or False"):
        make()


def test_all_that_a_schema_says_wrongly_is_told_at_once():
    with pytest.raises(ValueError, match=r"\(1, 2, 3\) about the column 'b'.*\n.*column 'c'"):
        Schema({"a": (0, 1), "b": (1, 2, 3), "c": 3})


def test_what_is_known_cannot_be_changed():
    for kind in (Range(0, 1), PrivateRange(), Categories(["A", "B"])):
        with pytest.raises(AttributeError):
            kind.missing = True
    schema = admissions()
    with pytest.raises(AttributeError, match="make a new one"):
        schema.columns = {}
    with pytest.raises(TypeError):
        schema["age"] = Range(0, 1)


# The schema -------------------------------------------------------------------------------------


def test_a_schema_is_a_mapping_in_order():
    schema = admissions()
    assert schema["hours"] == Range(0, 99.5) and schema["sex"] == Categories(["f", "m"])
    assert schema.numbers == ("age", "gain", "platelets", "dose", "hours")
    assert schema.categories == ("ward", "grade", "smokes", "sex")
    assert schema.private_ranges == ("platelets", "dose")
    with pytest.warns(FutureWarning, match="called `private_ranges` now"):
        assert schema.bought == schema.private_ranges
    assert list(schema) == list(dict(schema)) and len(schema) == 9
    assert as_schema(schema) is schema and as_schema(dict(schema)) == schema
    assert Schema({**schema, "age": Range(0, 120)})["age"].high == 120


def test_schemas_are_equal_if_columns_and_their_order_are():
    a, b = {"x": (0, 1), "y": PrivateRange()}, {"y": PrivateRange(), "x": (0, 1)}
    assert Schema(a) == Schema(a) and hash(Schema(a)) == hash(Schema(a))
    assert Schema(a) != Schema(b) and Schema(a) != Schema({**a, "x": (0, 2)})
    assert Schema(a) != 3


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "`schema` is empty"),
        (None, "`schema` must be a Schema, or a dict"),
        ([("age", (0, 1))], "`schema` must be a Schema, or a dict"),
        ("schema.json", "Schema.from_json(path) reads one"),
        ({1: (0, 1)}, "rename the columns of the table"),
        ({"": (0, 1)}, "names must be text"),
        ({"age": Range}, "gives the class Range for the column 'age': write Range(...)"),
        ({"age": "PrivateRange"}, "about the column 'age': write Range(low, high), PrivateRange()"),
        ({"age": None}, "about the column 'age': write Range(low, high), PrivateRange()"),
        ({"age": (0, 1, 2)}, "a tuple is short for a range and must be two numbers"),
        ({"age": ("a", "b")}, "A list is short for categories"),
        ({"age": (False, True)}, "a tuple is short for a range"),
        ({"age": (90, 17)}, "about the column 'age': Range(low, high) takes two finite numbers"),
        ({"age": [0, 99]}, "a range or two categories: write Range(0, 99) or Categories([0, 99])"),
        ({"age": ["a", 1]}, "about the column 'age': Categories(values) has values of several"),
    ],
)
def test_what_is_wrong_with_a_schema_is_told_by_column(schema, message):
    with pytest.raises((ValueError, TypeError)) as raised:
        as_schema(schema)
    assert message in str(raised.value)


def wide():
    """A schema of many columns."""
    return Schema({f"column {j}": (Range(0, j + 1), ["low", "high"])[j % 2] for j in range(40)})


@pytest.mark.parametrize("schema", [admissions(), Schema({"age": PrivateRange()}), wide()])
def test_repr_can_be_pasted(schema):
    assert eval(repr(schema), NAMES) == schema
    assert all(eval(repr(kind), NAMES) == kind for kind in schema.values())


@pytest.mark.parametrize("schema", [wide(), dict(wide())])
def test_an_estimator_with_a_wide_schema_is_shown_in_short(schema):
    class Encoder(BaseEstimator):
        def __init__(self, schema):
            self.schema = schema

    encoder = clone(Encoder(schema))
    assert encoder.schema == schema
    assert len("".join(repr(encoder).split())) < 800


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_are_equal(copied):
    assert copied(admissions()) == admissions()


# JSON -------------------------------------------------------------------------------------------

numbers = st.one_of(st.integers(-(10**18), 10**18), st.floats(-1e50, 1e50))
values = st.one_of(
    st.lists(st.text(), min_size=2, unique=True),
    st.lists(numbers, min_size=2, unique=True),
    st.permutations([False, True]),
)
kinds = st.one_of(
    st.builds(
        lambda ends, log, missing: Range(*sorted(ends), log=log, missing=missing),
        st.lists(numbers, min_size=2, max_size=2, unique=True),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(PrivateRange, log=st.booleans(), missing=st.booleans()),
    st.builds(Categories, values, missing=st.booleans()),
)
schemas = st.dictionaries(st.text(min_size=1), kinds, min_size=1).map(Schema)


@given(schemas)
def test_json_keeps_what_a_schema_says_and_of_what_type(schema):
    found = Schema.from_json(schema.to_json())
    assert found == schema
    assert repr(found) == repr(schema)  # which tells 1 from 1.0 and from True
    assert eval(repr(schema), NAMES) == schema


def test_json_in_a_file(tmp_path):
    path = tmp_path / "schema.json"
    schema = Schema({"größe": (0, 2.5), "ward": ["Ä", "ß"]})
    assert path.write_bytes(b"") == 0 and schema.to_json(path) == path.read_text("utf-8")
    assert Schema.from_json(path) == Schema.from_json(str(path)) == schema
    with pytest.raises(FileNotFoundError):
        Schema.from_json(tmp_path / "other.json")


def changed(**changes):
    """JSON of one column, with changes to it; None takes a field out."""
    fields = {"name": "age", "kind": "range", "low": 0, "high": 1, "log": False, "missing": False}
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    return json.dumps({"schema": "urn:dpsubspace:table-schema:1", "columns": [fields]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the JSON cannot be read as a schema: Expecting"),
        ("{}", "its `schema` is None, not 'urn:dpsubspace:table-schema:1'"),
        (
            changed().replace("schema:1", "schema:2"),
            "its `schema` is 'urn:dpsubspace:table-schema:2'",
        ),
        (changed().replace("]}", '], "more": 1}'), "and nothing else"),
        (changed().replace("[", '{"a": [').replace("]", "]}"), "a list of `columns`"),
        ('{"schema": "urn:dpsubspace:table-schema:1", "columns": []}', "`schema` is empty"),
        ('{"schema": "urn:dpsubspace:table-schema:1", "columns": [3]}', "an object with a `name`"),
        (changed(name=3), "an object with a `name`"),
        (changed(name=""), "names must be text"),
        (
            changed(kind="Range"),
            "the column 'age' must be of a `kind` in ['range', 'private_range'",
        ),
        (changed(kind=["buy"]), "the column 'age' must be of a `kind`"),
        (changed(high=None), "must have the fields ['low', 'high', 'log', 'missing']"),
        (changed(values=[1, 2]), "must have the fields"),
        (changed(high=0), "the column 'age': Range(low, high) takes two finite numbers"),
        (changed(high="1"), "the column 'age': Range(low, high) takes two finite numbers"),
        (changed(high=float("nan")), "NaN is no number"),
        (changed(high=float("inf")), "Infinity is no number"),
        (changed().replace('"high": 1', '"high": 1e999'), "takes two finite numbers"),
        (changed(log=1), "the column 'age': `log` must be True or False"),
        (changed().replace('"log"', '"low"'), "a field is given twice"),
        (changed().replace("]", f", {changed()[changed().index('[') + 1 : -2]}]"), "'age' twice"),
        (
            changed(kind="categories", low=None, high=None, log=None, values="AB"),
            "the `values` of the column 'age' must be a list",
        ),
        (
            changed(kind="categories", low=None, high=None, log=None, values=["A", ["B"]]),
            "the column 'age': Categories(values) has the value ['B']",
        ),
        (
            changed(kind="categories", low=None, high=None, log=None, values=["A"]),
            "the column 'age': Categories(values) takes at least two values",
        ),
        ('{"a":' * 10**5, "cannot be read as a schema"),
    ],
)
def test_other_json_is_refused_with_what_is_wrong(text, message):
    with pytest.raises(ValueError) as raised:
        Schema.from_json(text)
    assert message in str(raised.value)
    assert "Schema.to_json(path)" in str(raised.value)


# Drafts from public rows ------------------------------------------------------------------------


def public(n=200):
    """Public rows with a column of each type that a draft knows."""
    rng = np.random.default_rng(0)
    ages = np.append(rng.integers(18, 88, n - 2), [17, 88])
    return pd.DataFrame(
        {
            "age": ages,
            "income": np.append(0, rng.lognormal(10, 1.5, n - 1)),
            "ratio": np.linspace(0.3, 0.7, n),
            "dose": pd.array([None, *range(1, n)], dtype="Int64"),
            "ward": rng.choice(["C", "A", "B"], n),
            "grade": pd.Categorical(rng.choice([3, 1], n), categories=[1, 2, 3]),
            "smokes": ages > 30,
            "kin": pd.array([None, "no", *["yes"] * (n - 2)], dtype="string"),
            "flag": pd.Series([None, True, *[False] * (n - 2)], dtype=object),
        }
    )


def test_a_draft_shows_what_public_rows_have():
    found = Schema.from_public(public())
    income = found["income"]
    assert income.log and income.low == 0 and income.high >= public()["income"].max()
    assert {name: kind for name, kind in found.items() if name != "income"} == {
        "age": Range(17, 88),
        "ratio": Range(0.3, 0.7),
        "dose": Range(0, 200, missing=True),
        "ward": Categories(["A", "B", "C"]),
        "grade": Categories([1, 2, 3]),
        "smokes": Categories([False, True]),
        "kin": Categories(["no", "yes"], missing=True),
        "flag": Categories([False, True], missing=True),
    }
    assert eval(repr(found), NAMES) == found
    some = Schema.from_public(public(), columns=["ward", "age"])
    assert list(some) == ["ward", "age"]


def test_a_draft_is_the_same_from_any_library():
    frame = public().drop(columns=["grade", "flag"])
    drafts = [Schema.from_public(frame)]
    polars = pytest.importorskip("polars")
    drafts.append(Schema.from_public(polars.DataFrame(frame.to_dict("list"))))
    arrow = pytest.importorskip("pyarrow")
    drafts.append(Schema.from_public(arrow.Table.from_pandas(frame)))
    assert drafts[0] == drafts[1] == drafts[2]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2020", periods=3, tz="UTC"), "'bad' holds times with a time zone"),
        ([f"name {j}" for j in range(101)], "'bad' has 101 different values, and max_categories="),
        ([1.5, 1.5], "'bad' has one value in all rows"),
        (["A", "A", None], "'bad' has one value in all rows"),
        ([None, None], "'bad' has no value in any row"),
        ([], "'bad' has no value in any row"),
        (["A", 1], "'bad' holds numbers and text"),
        ([[1], [2]], "'bad' holds lists or other objects"),
        ([1e300, -1e300], "'bad' has no range"),
    ],
)
def test_what_no_draft_can_show_is_refused_by_name(column, message):
    frame = pd.DataFrame({"bad": column})
    with pytest.raises(ValueError) as raised:
        Schema.from_public(frame)
    assert message in str(raised.value)
    assert "Leave them out with `columns`" in str(raised.value)
    good = frame.assign(good=np.arange(len(frame))) if len(frame) else None
    if good is not None:
        assert list(Schema.from_public(good, columns=["good"])) == ["good"]


@pytest.mark.parametrize(
    ("frame", "columns", "message"),
    [
        (np.eye(3), None, "`frame` must be a data frame"),
        (public(), ["wards"], "`columns` must be a list of columns that `frame` has"),
        (public(), "ward", "`columns` must be a list"),
        (pd.DataFrame(np.eye(2), columns=["a", "a"]), None, "more than one column with the names"),
        (pd.DataFrame(np.eye(2)), None, "names must be text"),
        (pd.DataFrame(), None, "`schema` is empty"),
    ],
)
def test_drafts_need_columns_with_names(frame, columns, message):
    with pytest.raises(ValueError) as raised:
        Schema.from_public(frame, columns=columns)
    assert message in str(raised.value)


@given(st.lists(st.floats(-1e40, 1e40), min_size=2, max_size=2, unique=True).map(sorted))
def test_ranges_are_rounded_outward_to_two_digits_of_the_width(ends):
    low, high = outward(*ends)
    assert low <= ends[0] and ends[1] <= high
    # A step at each end; floats far from 0 have no smaller ones.
    width, rounding = ends[1] - ends[0], 4 * np.spacing(max(map(abs, ends)))
    assert high - low <= 1.2 * width + rounding


def test_rounding_is_that_of_decimals():
    assert outward(0.3, 0.7) == (0.3, 0.7)
    assert outward(-124.35, -114.41) == (-124.4, -114.4)
    assert outward(1.0, 39320.0) == (0, 40000)
    assert outward(1e-7, 1.0) == (0, 1)


# Made-up rows -----------------------------------------------------------------------------------


def test_made_up_rows_are_as_the_schema_says(capsys):
    schema, n = Schema({**admissions(), "id": Categories([2**60, 2**60 + 1], missing=True)}), 2000
    rows = schema.example(n, random_state=0)
    assert list(rows) == [*schema] and len(rows) == n
    assert rows["age"].dtype == rows["gain"].dtype == np.int64 and rows["smokes"].dtype == bool
    assert rows["hours"].dtype == np.float64 and set(rows["age"]) == {*range(17, 91)}
    for name, kind in schema.items():
        assert 0 < rows[name].isna().mean() < 0.2 if kind.missing else rows[name].notna().all()
        if kind._categorical:
            assert set(rows[name].dropna()) == {*kind.values}
        elif kind._ends:
            assert rows[name].between(*kind._ends).all()
    assert np.median(rows["gain"]) < 10_000 < rows["gain"].max()  # even on the scale of its log
    schema.check(rows)
    assert capsys.readouterr().out.startswith("The table agrees with the schema.")


def test_made_up_rows_are_the_same_by_seed_alone():
    one, same, other, free, also = (
        admissions().example(50, random_state=seed) for seed in (3, 3, 4, None, None)
    )
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other) and not free.equals(also)
    drawn = np.random.default_rng(3).random(50)  # as users draw noise for a target
    made = Schema({"a": (0.0, 1.0)}).example(50, random_state=3)["a"]
    assert not set(drawn) & set(made)
    for wrong in ({"n": 0}, {"n": 2.5}, {"n": 5, "random_state": "a"}):
        with pytest.raises(ValueError, match="must be an integer"):
            admissions().example(**wrong)


def test_code_that_is_tried_on_made_up_rows_runs():
    schema = Schema({**admissions(), "ill": Categories(["no", "yes"])})
    rows = schema.example(3000, random_state=0)
    features = Schema({name: kind for name, kind in schema.items() if name != "ill"})
    model = tabular_pipeline("classification", features, epsilon=9.0)
    assert set(model.fit(rows[[*features]], rows["ill"]).predict(rows)) <= {"no", "yes"}
    public = {name: kind for name, kind in schema.items() if name not in schema.private_ranges}
    assert private_summary(rows, public, epsilon=9.0).n == 3000
    assert private_counts(rows, public, columns=["ill", "age"], epsilon=9.0).privacy_.epsilon == 9
    few = {name: schema[name] for name in ("age", "sex", "ill")}
    assert private_coefficients(rows, few, target="ill", epsilon=9.0).privacy_.epsilon == 9


def test_the_old_name_of_a_private_range_still_works_and_says_so():
    with pytest.warns(FutureWarning, match="called `PrivateRange` now"):
        from dpsubspace import Buy
    assert Buy is PrivateRange
    schema = Schema({"dose": PrivateRange(log=True)})
    old = schema.to_json().replace('"private_range"', '"buy"')
    assert Schema.from_json(old) == schema
