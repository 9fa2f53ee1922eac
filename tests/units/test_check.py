"""What Schema.check says of a table: exact findings, printed and not returned."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsubspace import Categories, PrivateRange, Range, Schema

N = 40
ROWS = pd.DataFrame(
    {
        "age": np.linspace(20, 90, N),
        "ward": ["A", "B"] * (N // 2),
        "sick": [0, 1, 1, 0] * (N // 4),
    }
)
KIND = {"age": Range(18, 95), "ward": Categories(["A", "B"])}


def told(capsys, schema, rows, y=None):
    assert Schema(schema).check(rows, y) is None
    *found, last = capsys.readouterr().out.splitlines()
    assert last.startswith("These figures are exact, and not private")
    return found


@pytest.mark.parametrize("library", [lambda rows: rows, pl.from_pandas, pa.Table.from_pandas])
def test_a_table_that_agrees(capsys, library):
    rows = library(ROWS[["age", "ward"]])
    assert told(capsys, KIND, rows, ROWS["sick"]) == ["The table agrees with the schema."]


@pytest.mark.parametrize(
    "column, values, kind, finding",
    [
        ("age", [130.0, *ROWS["age"][1:]], Range(18, 95), "1 of 40 values (2.5%) are above 95"),
        ("age", [1.0, *ROWS["age"][1:]], Range(18, 95), "1 of 40 values (2.5%) are below 18"),
        (
            "age",
            [999, 999, *ROWS["age"][2:]],
            Range(18, 95),
            "are above 95, and counted as 95: all of",
        ),
        ("age", [-1, -9, -1, -9, *ROWS["age"][4:]], Range(18, 95), "all of them are -9 or -1. If"),
        ("ward", [" A", *ROWS["ward"][1:]], KIND["ward"], "which is 'A' with a blank before or"),
        ("age", ROWS["age"], Range(0, 5000), "in 1.4% of the range"),
        ("age", np.geomspace(1, 1000, N), Range(0, 1000), "log=True may suit it"),
        ("age", [np.nan, *ROWS["age"][1:]], Range(18, 95), "write missing=True"),
        ("age", ROWS["age"], Range(18, 95, missing=True), "no row misses it"),
        ("age", [None] * N, Range(18, 95, missing=True), "missing in all rows"),
        ("age", [50.0] * N, PrivateRange(), "the same value in all rows"),
        ("age", ["old"] * N, Range(18, 95), "no numbers"),
        ("age", pd.date_range("2020-01-01", periods=N), Range(18, 95), "cannot be read"),
        ("age", np.arange(N), Range(-5, 50), "is it an id?"),
        ("age", [f"p{i}" for i in range(N)], Categories(["p0", "p1"]), "is it an id?"),
        ("ward", ["a ", *ROWS["ward"][1:]], KIND["ward"], "'a ' (1, probably 'A')"),
        ("ward", ROWS["ward"], Categories(["A", "B", "C"]), "no row has one of"),
        (
            "ward",
            ["sick" if s else "well" for s in ROWS["sick"]],
            ["sick", "well"],
            "determines `y`",
        ),
    ],
)
def test_a_finding(capsys, column, values, kind, finding):
    rows = ROWS.assign(**{column: values})[["age", "ward"]]
    found = told(capsys, KIND | {column: kind}, rows, ROWS["sick"])
    assert any(line.startswith(f"{column}: ") and finding in line for line in found), found
    assert all(line.startswith(f"{column}: ") for line in found)


def test_most_rows_at_the_low_end_need_no_logarithm(capsys):
    children = pd.DataFrame({"age": [0] * 25 + [1, 2, 3] * 5})
    assert told(capsys, {"age": Range(0, 12)}, children) == ["The table agrees with the schema."]


def test_the_target_of_a_regression_in_another_unit(capsys):
    found = told(capsys, KIND, ROWS[["age", "ward"]], 3 - 0.5 * ROWS["age"])
    assert found == ["age: determines `y` in all rows: is it the label, or known only after it?"]


def test_columns_that_are_not_there_or_not_named(capsys):
    found = told(capsys, {"Age": Range(18, 95)}, ROWS)
    assert "Did you mean 'age'?" in found[0] and "does not name ['age', 'ward', 'sick']" in found[1]


def test_an_array_has_the_columns_of_the_schema(capsys):
    array = ROWS[["age", "sick"]].to_numpy()
    schema = {"age": Range(18, 95), "sick": Categories([0, 1])}
    assert told(capsys, schema, array) == ["The table agrees with the schema."]
    with pytest.raises(ValueError, match="`X` has no column names and 1 columns"):
        Schema(schema).check(array[:, :1])
    with pytest.raises(ValueError, match="`y` has 3 values, and `X` has 40 rows"):
        Schema(schema).check(array, [0, 1, 1])
