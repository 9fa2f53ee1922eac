"""Dates of a table are the same days from every library, and nothing else passes for one."""

from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsubspace
from dpsubspace import (
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.kinds import MISSING, UNKNOWN
from dpsubspace._core.tables.schema import Table, read_anywhere, read_table
from dpsubspace.inspection import ShapeDisplay
from dpsubspace.tables import Date

# Late at night before 1970 and after: a time of day is cut off, also of negative times.
TIMES = [datetime(1969, 12, 30, 23, 59, 59), datetime(1970, 1, 1, 1), None, datetime(2020, 2, 29)]
DAYS = [-2, 0, np.nan, 18321]
DATES = [time and time.date() for time in TIMES]
TEXT = [date and date.isoformat() for date in DATES]
VISIT = Schema({"visit": Date("1960-01-01", "2029-12-31", missing=True)})


def of_pandas(values, kind):
    return pd.DataFrame({"visit": pd.Series(values, dtype=kind)})


def of_arrow(values, kind=None):
    return pa.table({"visit": pa.array(values, kind)})


def of_dask(frame):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=1)


FORMS = {
    **{f"datetime64[{u}]": lambda u=u: of_pandas(TIMES, f"datetime64[{u}]") for u in ("s", "ns")},
    "datetime64[us], inferred": lambda: of_pandas(TIMES, None),
    "dates in objects": lambda: of_pandas(DATES, object),
    "times in objects": lambda: of_pandas([pd.NaT, *TIMES], object).iloc[1:],
    "NumPy's in objects": lambda: of_pandas([np.datetime64(t or "NaT") for t in TIMES], object),
    "text": lambda: of_pandas(TEXT, "str"),
    "text with times": lambda: of_pandas([t and t.isoformat() for t in TIMES], object),
    "text and dates": lambda: of_pandas([TEXT[0], *DATES[1:]], object),
    "categories": lambda: of_pandas(TIMES, "datetime64[s]").astype("category"),
    "categories of text": lambda: of_pandas(TEXT, "category"),
    "Arrow's date32 in pandas": lambda: of_pandas(DATES, pd.ArrowDtype(pa.date32())),
    "Arrow's date64 in pandas": lambda: of_pandas(DATES, pd.ArrowDtype(pa.date64())),
    "Arrow's times in pandas": lambda: of_pandas(TIMES, pd.ArrowDtype(pa.timestamp("us"))),
    "Arrow's text in pandas": lambda: of_pandas(TEXT, "string[pyarrow]"),
    "Polars, dates": lambda: pl.DataFrame({"visit": DATES}),
    **{
        f"Polars, times, {u}": lambda u=u: pl.DataFrame({"visit": pl.Series(TIMES, dtype=u)})
        for u in (pl.Datetime("ms"), pl.Datetime("ns"))
    },
    "Polars, text": lambda: pl.DataFrame({"visit": TEXT}),
    "Polars, objects": lambda: pl.DataFrame({"visit": pl.Series(DATES, dtype=pl.Object)}),
    "Arrow, date32": lambda: of_arrow(DATES),
    "Arrow, date64": lambda: of_arrow(DATES, pa.date64()),
    **{f"Arrow, {u}": lambda u=u: of_arrow(TIMES, pa.timestamp(u)) for u in ("s", "ns")},
    "Arrow, text": lambda: of_arrow(TEXT),
    "Arrow, dictionary": lambda: pa.table({"visit": pa.array(DATES).dictionary_encode()}),
    "Arrow, chunks": lambda: pa.concat_tables([of_arrow([each], pa.date32()) for each in DATES]),
    "array of times": lambda: np.array([[t or "NaT"] for t in TIMES], "datetime64[s]"),
    "array of objects": lambda: np.array([[each] for each in DATES], dtype=object),
    "list": lambda: [[each] for each in TEXT],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_date_is_the_same_day_in_every_form(form):
    found = read_table(FORMS[form](), VISIT)
    np.testing.assert_array_equal(found.numbers[:, 0], DAYS)
    assert found.codes.shape == (4, 0)


@given(st.lists(st.one_of(st.none(), st.datetimes(datetime(1677, 9, 22), datetime(2262, 4, 10)))))
def test_libraries_agree_on_any_times(times):
    schema = Schema({"visit": Date("0001-01-01", "9999-12-31", missing=True)})
    whole = [t and t.toordinal() - date(1970, 1, 1).toordinal() for t in times]
    for frame in (
        of_pandas(times, "datetime64[ns]"),
        of_pandas(times, object),
        pl.DataFrame({"visit": pl.Series(times, dtype=pl.Datetime("us"))}),
        of_arrow(times, pa.timestamp("us")),
        of_arrow([t and t.isoformat() for t in times], pa.string()),
    ):
        found = read_table(frame, schema, empty=True).numbers[:, 0]
        np.testing.assert_array_equal(found, np.array(whole, dtype=float))


def test_dates_outside_of_the_range_count_as_its_ends():
    schema = Schema({"visit": Date("2020-02-03", "2020-03-31")})
    frame = of_pandas(["1900-01-01", "2020-02-10T23:59", "9999-12-31", "2020-03-31"], object)
    found = read_table(frame, schema)
    first, last = schema["visit"]._ends
    np.testing.assert_array_equal(found.numbers[:, 0], [first, first + 7, last, last])
    codes = encoding_for(schema, 1.0).codes(found.numbers.T, found.codes.T)
    np.testing.assert_array_equal(codes, [[1, 1, 2, 2], [0, 0, 1, 1]])  # Monday, Tuesday


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("in_pandas", [False, True])
def test_dates_after_the_year_9999_count_as_the_last_day(coded, in_pandas):
    """Arrow has them, and Python does not: one such row must not end a fit to all others."""
    days = pa.array([18321, 2**31 - 1, None], pa.int32()).cast(pa.date32())
    table = pa.table({"visit": days.dictionary_encode() if coded else days})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype) if in_pandas else table
    numbers = read_table(frame, VISIT).numbers[:, 0]
    np.testing.assert_array_equal(numbers, [18321, VISIT["visit"]._ends[1], np.nan])


def test_a_missing_date_has_one_indicator_and_no_month():
    encoding = encoding_for(VISIT, 1.0)
    gap = Table(np.array([[np.nan]]), np.zeros((1, 0), dtype=np.intp))
    assert (encoding.codes(gap.numbers.T, gap.codes.T) == UNKNOWN).all() and UNKNOWN != MISSING
    names = np.array(encoding.names)
    assert [*names[encoding(gap)[0] != 0]] == ["visit:missing"]
    assert sum(":missing" in name for name in names) == 1


def test_columns_without_any_date_are_missing():
    assert (
        len(read_table(pa.table({"visit": pa.chunked_array([], pa.date32())}), VISIT, empty=True))
        == 0
    )
    for values, kind in (([None] * 3, object), ([np.nan] * 3, float), ([], "datetime64[s]")):
        found = read_table(of_pandas(values, kind), VISIT, empty=True)
        assert np.isnan(found.numbers).all() and len(found) == len(values)


UTC = [datetime(2020, 1, 1, tzinfo=UTC)]
ZONE = "Column 'visit' of `X` holds times with a time zone"
WRONG = {
    "zone, pandas": (lambda: of_pandas(UTC, None), ZONE),
    "zone, objects": (lambda: of_pandas([*UTC, TIMES[0]], object), ZONE),
    "zone, text": (lambda: of_pandas(["2020-01-01T10:00Z"], object), ZONE),
    "zone, categories": (lambda: of_pandas(UTC, "category"), ZONE),
    "zone, Arrow in pandas": (
        lambda: of_pandas(UTC, pd.ArrowDtype(pa.timestamp("us", "UTC"))),
        ZONE,
    ),
    "zone, Polars": (lambda: pl.DataFrame({"visit": UTC}), ZONE),
    "zone, Arrow": (lambda: of_arrow(UTC), ZONE),
    "zone, Dask": (lambda: of_dask(of_pandas(UTC, None)), ZONE),
    "periods": (lambda: of_pandas(pd.period_range("2020", periods=2, freq="M"), None), "periods"),
    "time of day": (lambda: of_pandas([time(10)], object), "holds times without a date"),
    "time of day, Polars": (lambda: pl.DataFrame({"visit": [time(1)]}), "holds dates or times"),
    "spans": (lambda: of_pandas([timedelta(1)], None), "holds durations"),
    "numbers": (lambda: of_pandas([20200101], None), "holds numbers, and the schema has a Date"),
    "numbers in objects": (lambda: of_pandas([20200101, TEXT[0]], object), "holds numbers"),
    "True": (lambda: of_pandas([True], None), "holds numbers"),
    "other text": (lambda: of_pandas(["31.5.2024"], object), "text that is no date of the form"),
    "no such day": (lambda: of_pandas(["2023-02-29"], "str"), "text that is no date of the form"),
    "lists": (lambda: of_pandas([[1]], object), "holds lists or other objects"),
}


@pytest.mark.parametrize("form", WRONG)
def test_what_is_no_date_is_refused_by_name_and_without_a_value(form):
    make, message = WRONG[form]
    with pytest.raises(ValueError) as raised:
        read_anywhere(make(), VISIT, name="X")
    said = str(raised.value)
    assert message in said and "'visit'" in said
    assert not {"31.5.2024", "2023-02-29", "20200101", "2020-01-01T10:00Z"} & {*said.split()}


def test_missing_dates_need_to_be_declared():
    with pytest.raises(ValueError, match=r"write Date\('2020-01-01', '2020-12-31', missing=True\)"):
        read_table(of_pandas(TIMES, None), Schema({"visit": Date("2020-01-01", "2020-12-31")}))


def test_one_error_names_all_columns_of_a_wrong_type_and_no_right_one():
    frame = pd.DataFrame({"day": TEXT, "visit": UTC * 4, "age": ["x"] * 4})
    schema = Schema({"day": VISIT["visit"], "visit": VISIT["visit"], "age": (0, 9)})
    with pytest.raises(ValueError) as raised:
        read_table(frame, schema)
    assert [line.split("'")[1] for line in str(raised.value).splitlines()] == ["visit", "age"]


# What a schema says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        "2020-01-01",
        date(2020, 1, 1),
        datetime(2020, 1, 1, 12),
        pd.Timestamp("2020-01-01"),
        np.datetime64("2020-01-01T23:00"),
        np.datetime64("2020"),
    ],
)
def test_ends_are_kept_as_text(first):
    assert Date(first, "2020-12-31") == Date("2020-01-01", np.datetime64("2020-12-31"))
    assert repr(Date(first, date(2021, 1, 1))) == "Date('2020-01-01', '2021-01-01')"


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("2020-01-01", "2020-01-01"),
        ("2020-01-02", "2020-01-01"),
        ("x", "2020-01-01"),
        (pd.NaT, "2020-01-01"),
        (None, "2020-01-01"),
        ("2020-01-01", "2021-01-01T00:00+02:00"),
        (2019, 2020),
        (pd.Period("2019"), pd.Period("2020")),
        ("2020-01-01", np.datetime64("20000-01-01")),
    ],
)
def test_a_date_has_two_days_in_order(first, last):
    with pytest.raises(ValueError, match="takes two dates without a time zone"):
        Date(first, last)


def test_other_kinds_name_it():
    for ends in (("1995-01-01", "1999-12-31"), (date(1995, 1, 1), date(1999, 12, 31))):
        with pytest.raises(ValueError, match=r"Dates have Date\(first, last\)"):
            Range(*ends)
        with pytest.raises(ValueError, match=r"tuple is short .*Dates have Date\(first, last\)"):
            Schema({"visit": ends})
    with pytest.raises(ValueError, match=r"write Date\(first, last\), of dpsubspace.tables"):
        read_table(of_pandas(TIMES, None), Schema({"visit": (0, 9)}))


def test_a_check_shows_dates(capsys):
    values = ["1900-01-01"] * 2 + [*pd.date_range("2020-01-01", periods=50)]
    rows = pd.DataFrame({"visit": pd.to_datetime(pd.Series(values))})
    Schema({"visit": Date("2020-01-01", "2020-02-10")}).check(rows)
    said = capsys.readouterr().out
    assert "2 of 52 values (3.8%) are below 2020-01-01, and counted as 2020-01-01: all of them" in (
        said
    )
    assert "are 1900-01-01. If that stands for missing values" in said and "id?" not in said
    assert "9 of 52 values (17.3%) are above 2020-02-10, and counted as 2020-02-10." in said
    Schema({"visit": Date("2020-01-01", "2020-03-01")}).check(of_pandas(UTC, None))
    assert "cannot be read: the column holds times with a time zone" in capsys.readouterr().out


def test_drafts_have_dates():
    days = pd.Series(pd.date_range("2019-03-04 10:00", "2021-06-01", periods=200))
    frame = pd.DataFrame({"visit": days, "day": days.dt.date}).astype({"day": object})
    frame.loc[3, "day"] = None
    kind = Schema.from_public(frame)["visit"]
    assert kind == Date("2019-02-23", "2021-06-02") and not kind.missing
    assert Schema.from_public(frame)["day"] == Date(kind.first, kind.last, missing=True)
    assert Schema.from_public(pl.from_pandas(frame)) == Schema.from_public(frame)
    for bad, message in (
        (UTC, "'bad' holds times with a time zone: a day"),
        ([time(1)], "'bad' h"),
    ):
        with pytest.raises(ValueError, match=message):
            Schema.from_public(pd.DataFrame({"bad": bad}))


# What is released and drawn ---------------------------------------------------------------------

STAYS = Schema(
    {
        "admitted": Date("2019-01-01", "2023-12-31", missing=True),
        "age": Range(18, 90),
        "ward": ["A", "B"],
        "days": Range(0, 30),
    }
)


def test_a_summary_prints_dates():
    rows = STAYS.example(4000, random_state=0)
    found = private_summary(rows, STAYS, epsilon=float("inf"))
    day = found.entry("admitted", "median").value
    assert abs(np.datetime64(int(day), "D") - rows["admitted"].median()) <= np.timedelta64(1, "D")
    said = [line for line in str(found).splitlines() if line.startswith("admitted, ")]
    assert f"admitted, median              {np.datetime64(int(day), 'D')}" in said
    assert "admitted, standard deviation  5" in "\n".join(said)  # of days: 1826 / sqrt(12)
    noisy = private_summary(rows, STAYS, by="ward", epsilon=1.0)
    for each in ("mean", "lower quartile", "upper quartile"):
        low, high = noisy.entry("admitted", each, group="A")[5:]
        assert low < found.entry("admitted", each).value + 40 and low < high
    assert str(noisy).count(" to 20") >= 8
    assert found.dates == ("admitted",)


def test_an_interval_of_a_date_holds_its_days():
    entry = ("visit", "median", None, "all", 1.5, 0.4, 2.2)
    made = dpsubspace.statistics.PrivateSummary(
        [entry], ("all",), None, 9, "row", 0.95, dates=("visit",)
    )
    assert "1970-01-03 (1970-01-01 to 1970-01-04)" in str(made)


def test_counts_have_cells_of_whole_days():
    rows = STAYS.example(3000, random_state=0)
    exact = {"epsilon": float("inf")}
    found = private_counts(rows, STAYS, "admitted", bins=5, **exact)
    assert found.labels[0][0] == "[2019-01-01, 2020-01-01)" and found.labels[0][-1] == "missing"
    assert found.labels[0][4].endswith("2023-12-31]")
    years = private_counts(
        rows,
        STAYS,
        "admitted",
        bins={"admitted": ["2019-01-01", "2020-01-01", date(2024, 1, 1)]},
        **exact,
    )
    of_2019 = (rows["admitted"] < "2020-01-01").sum()
    assert years.counts[0] == of_2019 == found.counts[0]
    assert years.edges["admitted"].dtype == "datetime64[D]"
    few = Schema({"admitted": Date("2020-01-01", "2020-01-04", missing=True)})
    assert len(private_counts(rows, few, "admitted", bins=10, **exact).labels[0]) == 4
    for bins in ([0, 1], ["2020-01-01", "2019-01-01"], ["x", "y"]):
        with pytest.raises(ValueError, match="Its edges are dates, such as '2024-05-31'"):
            private_counts(rows, STAYS, "admitted", bins={"admitted": bins}, **exact)


def test_coefficients_are_for_a_day():
    rows = STAYS.example(20_000, random_state=0)
    day = (rows["admitted"] - pd.Timestamp("2019-01-01")).dt.days
    rows["days"] = (0.01 * day.fillna(0)).clip(0, 30)
    found = private_coefficients(rows, STAYS, target="days", epsilon=30.0, random_state=0)
    assert found.terms[:3] == ("Intercept", "admitted", "admitted[missing]")
    assert abs(found.estimate[1] - 0.01) < 0.001


@pytest.fixture(scope="module")
def winters():
    """A model of an outcome that depends on the season, the weekday and the year."""
    rows = STAYS.example(20_000, random_state=0)
    when = rows["admitted"].dt
    risk = (
        3.0 * when.month.isin([12, 1, 2]) + 1.5 * (when.day_of_week > 4) + 0.1 * (when.year - 2021)
    )
    ill = risk.fillna(0) + np.random.default_rng(0).logistic(size=len(rows)) > 1
    features = {name: STAYS[name] for name in ("admitted", "age", "ward")}
    model = tabular_pipeline("classification", features, epsilon=10.0)
    return model.set_params(random_state=0).fit(rows[[*features]], ill.rename("ill")), rows, ill


def test_models_learn_from_months_and_weekdays(winters):
    model, rows, ill = winters
    assert model.score(rows, ill) > 0.7
    names = [*model[0].get_feature_names_out()]
    weights = dict(zip(names, model[-1].coef_[0], strict=True))
    assert weights["admitted:month=Jan"] > weights["admitted:month=Jul"]
    assert weights["admitted:weekday=Sun"] > weights["admitted:weekday=Wed"]
    assert model.feature_importances_[0] > 0.9


def test_shapes_have_a_calendar_and_no_weekdays(winters):
    pytest.importorskip("matplotlib").use("Agg")
    found = ShapeDisplay.from_estimator(winters[0], features=["admitted", ("admitted", "age")])
    shape = found.shapes["admitted"]
    assert shape.at.dtype == "datetime64[D]" and shape.at[0] == np.datetime64("2019-01-01")
    months, values = shape.at.astype("datetime64[M]").astype(int) % 12, shape.values[:, 0]
    assert values[months == 0].min() > values[months == 6].max()
    steps = np.abs(np.diff(values))[np.diff(months) == 0]
    assert steps.max() < 0.2 * np.ptp(values)  # weekdays would be such steps
    found.figure_.canvas.draw()


def test_a_saved_model_knows_its_dates(winters):
    model, rows, _ = winters
    again = dpsubspace.load(model.to_json())
    np.testing.assert_array_equal(again.predict_proba(rows[:99]), model.predict_proba(rows[:99]))
    assert again[0].schema_ == model[0].schema_
