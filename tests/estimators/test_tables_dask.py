"""Tables of Dask data frames: fits and predictions are those of the same rows in memory."""

import time

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from helpers import RELATIONS, pairs_first, thinned
from in_parts import (
    READ,
    SCHEMA,
    UNEVEN,
    assert_same,
    cluster_here,
    mixed,
    partitions,
    read_by_columns,
)
from sklearn.base import clone

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyLedger,
    PrivateRange,
    Range,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.tables import forming
from dpsubspace.tables import TableEncoder

# Small data sets are mostly noise, as the warnings rightly say.
pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:columns that the schema does not name"),
    # What Dask itself calls in pandas.
    pytest.mark.filterwarnings(
        "ignore:[\\s\\S]*The inplace keyword in DataFrame:DeprecationWarning"
    ),
]

N = 1003
FRAME, PUBLIC = mixed(N), mixed(300, seed=5)
SEEDED = {"random_state": 0}
ESTIMATED = SCHEMA | {"dose": PrivateRange(log=True), "lab": PrivateRange(missing=True)}
NUMBERS = {name: SCHEMA[name] for name in ("age", "dose", "lab")}
CODES = {name: SCHEMA[name] for name in ("ward", "sex", "place")}
WIDE = {"target": Range(-20, 20)}

# A model, its schema, its labels or targets, and other arguments of the pipeline and of `fit`.
FITS = {
    "classes": (DPSGDFClassifier(**SEEDED), SCHEMA, "label", {}, {}),
    "batches": (DPSGDClassifier(n_iter=20, batch_size=90, **SEEDED), SCHEMA, "label", {}, {}),
    "categories alone": (DPSGDClassifier(n_iter=20, **SEEDED), CODES, "label", {}, {}),
    "numbers alone": (DPSGDClassifier(n_iter=20, **SEEDED), NUMBERS, "ward", {}, {}),
    "learned": (
        DPSGDFClassifier(epsilon=30.0, **SEEDED),
        SCHEMA,
        "label",
        {"interactions": "learned"},
        {},
    ),
    "pairs": (DPSGDClassifier(**SEEDED), NUMBERS, "label", {"interactions": True}, {}),
    "targets": (DPSGDRegressor(**SEEDED), SCHEMA, "days", WIDE, {}),
    "least squares": (DPLinearRegression(**SEEDED), SCHEMA, "days", WIDE, {}),
    "moments": (
        DPLinearRegression(solver="moments", epsilon=10.0, **SEEDED),
        SCHEMA,
        ["days", "other"],
        WIDE,
        {},
    ),
    "exact": (DPLinearRegression(epsilon=float("inf"), **SEEDED), SCHEMA, "days", WIDE, {}),
    "ranges": (DPSGDFClassifier(epsilon=20.0, n_iter=20, **SEEDED), ESTIMATED, "label", {}, {}),
    "range of targets": (
        DPLinearRegression(epsilon=20.0, **SEEDED),
        ESTIMATED,
        ["days", "other"],
        {"target": PrivateRange()},
        {},
    ),
    "public rows": (GEPClassifier(**SEEDED), SCHEMA, "label", {}, {"X_public": (PUBLIC,)}),
}


def assert_same_ranges(here, there):
    assert here.ranges_.keys() == there.ranges_.keys()
    for name, ends in here.ranges_.items():
        assert there.ranges_[name] == pytest.approx(ends, rel=1e-12)


def assert_same_pipeline(here, there, atol=1e-6):
    """Two pipelines have learned the same, and say the same of what it cost."""
    assert_same(here[-1], there[-1], atol)
    assert_same_ranges(here[0], there[0])
    assert there[0].encoding_.names == here[0].encoding_.names
    assert there.privacy_ == here.privacy_ == there[-1].privacy_ == there[0].privacy_


# The same as in memory ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_workers", "relation", "formed"),
    pairs_first(FITS, [3, 1, 2], RELATIONS, [False, True]),
)
def test_a_fit_is_that_in_memory(monkeypatch, name, n_workers, relation, formed):
    """Weights differ by what sums in float32 round, over partitions of uneven and of no rows.

    Rows may be formed in every step, as those of large tables are.
    """
    monkeypatch.setattr(forming, "_MOST_KEPT", 0 if formed else forming._MOST_KEPT)
    model, schema, target, options, others = FITS[name]
    made = tabular_pipeline(model, schema, **options)
    made.set_params(neighboring_relation=relation)
    here = clone(made).fit(FRAME, FRAME[target], **others)
    frame = partitions(FRAME)
    with cluster_here(monkeypatch, n_workers):
        there = clone(made).fit(frame, frame[target], **others)
    assert_same_pipeline(here, there)
    predicted, lazy = here.predict(FRAME), there.predict(frame)
    assert isinstance(lazy, da.Array) and np.isnan(lazy.shape[0])
    computed = lazy.compute(scheduler="sync")
    if predicted.dtype.kind == "f":
        np.testing.assert_allclose(computed, predicted, atol=1e-6)
    else:
        np.testing.assert_array_equal(computed, predicted)
    with dask.config.set(scheduler="sync"):
        found = there.score(frame, frame[target])
    assert found == pytest.approx(here.score(FRAME, FRAME[target]), abs=1e-6)


@pytest.mark.parametrize("source", ["Parquet", "pandas", "CSV"])
@pytest.mark.parametrize("name", thinned(["ranges", "classes", "least squares"]))
def test_a_fit_on_workers_is_that_in_memory(client, tmp_path, source, name):
    model, schema, target, options, _ = FITS[name]
    made, given = tabular_pipeline(model, schema, **options), dd.from_pandas(FRAME, npartitions=5)
    if source == "Parquet":
        pytest.importorskip("pyarrow")
        given.to_parquet(tmp_path)
        frame = dd.read_parquet(tmp_path)
    elif source == "CSV":
        given.to_csv(str(tmp_path / "*.csv"), index=False)
        frame = dd.read_csv(str(tmp_path / "*.csv"))
    else:
        frame = given
    with PrivacyLedger(100.0, 1e-3, allow_seeded=True) as ledger:
        here = clone(made).fit(FRAME, FRAME[target])
        there = clone(made).fit(frame, frame[target])
    one, other = ledger.entries
    assert one.event == other.event
    assert_same_pipeline(here, there)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(there, method):
            expected, lazy = getattr(here, method)(FRAME), getattr(there, method)(frame)
            assert isinstance(lazy, da.Array)
            found = lazy.compute()
            assert found.shape == expected.shape
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
            else:
                np.testing.assert_array_equal(found, expected)
    assert there.score(frame, frame[target]) == pytest.approx(
        here.score(FRAME, FRAME[target]), abs=1e-6
    )


@pytest.mark.parametrize("name", thinned(["ranges", "classes", "least squares"]))
def test_a_fit_to_persons_on_workers_is_that_in_memory(client, tmp_path, name):
    """Rows of persons travel between workers, which read them from files."""
    pytest.importorskip("pyarrow")
    model, schema, target, options, _ = FITS[name]
    who = np.random.default_rng(1).integers(0, N // 2, size=N)
    rows = FRAME.assign(patient=[f"patient {i}" for i in who])
    dd.from_pandas(rows, npartitions=5, sort=False).to_parquet(tmp_path)
    frame, made = dd.read_parquet(tmp_path), tabular_pipeline(model, schema, **options)
    with PrivacyLedger(100.0, 1e-3, allow_seeded=True, unit="person"):
        here = clone(made).fit(rows, rows[target], groups=rows["patient"])
        there = clone(made).fit(frame, frame[target], groups=frame["patient"])
        columns = {name: SCHEMA[name] for name in ("age", "ward")}
        options = {"by": "ward", "epsilon": 1.0, **SEEDED}
        found = [
            private_summary(each, columns, groups=each["patient"], **options).entries
            for each in (rows, frame)
        ]
    assert_same_pipeline(here, there)
    assert there.privacy_.unit == "person" and found[0] == found[1]


def test_an_encoder_alone(monkeypatch):
    encoder = TableEncoder(ESTIMATED, epsilon=5.0, **SEEDED)
    here, frame = clone(encoder).fit(FRAME), partitions(FRAME)
    with cluster_here(monkeypatch):
        there = clone(encoder).fit(frame)
    assert_same_ranges(here, there)
    assert there.privacy_ == here.privacy_
    lazy, rows = there.transform(frame), here.transform(FRAME)
    assert lazy.dtype == rows.dtype == np.float32 and lazy.shape[1] == rows.shape[1]
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), rows, atol=1e-6)


def test_an_array_has_the_columns_of_the_schema_in_its_order(monkeypatch):
    model, schema, *_ = FITS["numbers alone"]
    made, rows = tabular_pipeline(model, schema), FRAME[[*schema]].to_numpy()
    here = clone(made).fit(rows, FRAME["label"])
    with cluster_here(monkeypatch):
        there = clone(made).fit(da.from_array(rows, chunks=(300, 2)), FRAME["label"].to_numpy())
    assert_same_pipeline(here, there)
    lazy = there.predict(da.from_array(rows, chunks=(300, 2)))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), here.predict(rows))


# What is read ---------------------------------------------------------------------------------


def test_only_columns_of_the_schema_are_read(monkeypatch):
    """Of a source that can be read by columns, as Parquet files are."""
    frame = read_by_columns(FRAME, [500, 500, 500])
    model = tabular_pipeline(DPSGDClassifier(n_iter=2, **SEEDED), NUMBERS)
    with cluster_here(monkeypatch):
        model.fit(frame, frame["label"])
    assert len(READ) == 6 and all({*some} in ({*NUMBERS}, {"label"}) for some in READ)
    READ.clear()
    model.predict(frame).compute(scheduler="sync")
    assert len(READ) == 3 and all({*some} == {*NUMBERS} for some in READ)


def test_predictions_read_nothing_before_they_are_computed():
    model = tabular_pipeline(DPSGDClassifier(n_iter=2, **SEEDED), SCHEMA)
    model.fit(FRAME, FRAME["label"])

    def refusing(place):
        raise AssertionError("a partition was read")

    unread = dd.from_map(refusing, [0, 1], meta=FRAME[:0])
    lazy = model.predict_proba(unread)
    assert lazy.shape[1] == 2
    with pytest.raises(AssertionError, match="was read"):
        lazy.compute(scheduler="sync")


# What is refused ------------------------------------------------------------------------------

SECRET = 987654.25


def with_bad(name, value, dtype=object):
    """The table with one value in its last partition that the schema does not allow."""
    frame = FRAME.copy()
    frame[name] = frame[name].astype(dtype)
    frame.loc[N - 2, name] = value
    return partitions(frame)


REFUSED = {
    "a gap": (
        with_bad("dose", None, float),
        r"Column 'dose' of `X` has missing values.*write Range\(.*missing=True\)"
        r".*This is about partition 6, counted from 0",
    ),
    "a text": (
        with_bad("dose", f"{SECRET}!"),
        r"Column 'dose' of `X` holds text.*pandas.to_numeric.*partition \d",
    ),
    "a gap in categories": (
        with_bad("ward", None),
        r"Column 'ward' of `X` has missing values.*partition 6",
    ),
    "dates": (
        partitions(FRAME.assign(dose=pd.Timestamp("2020-01-01"))),
        r"Column 'dose' of `X` holds dates or times: write Date\(first, last\)",
    ),
    "numbers as wards": (
        partitions(FRAME.assign(ward=1)),
        "Column 'ward' of `X` holds numbers and its categories in the schema are text",
    ),
    "no column": (partitions(FRAME.drop(columns="age")), r"`X` lacks the columns \['age'\]"),
    "two columns": (
        partitions(pd.concat([FRAME, FRAME[["age"]]], axis=1)),
        r"more than one column with the names \['age'\]",
    ),
    "no rows": (partitions(FRAME[:0]), "`X` has no rows"),
    "one axis": (partitions(FRAME)["age"], "Expected 2D array for `X`, got 1D"),
    "too few columns": (da.zeros((N, 3), chunks=100), "X has 3 features, but Schema is expecting"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_costs_nothing_and_quotes_no_value(monkeypatch, name):
    frame, match = REFUSED[name]
    model, ledger = tabular_pipeline(DPSGDClassifier(**SEEDED), SCHEMA), PrivacyLedger(9.0, 1e-5)
    y = frame["label"] if hasattr(frame, "columns") and frame.ndim == 2 else FRAME["label"]
    error = pytest.raises(ValueError, match=f"(?s){match}")
    with cluster_here(monkeypatch), ledger, error as caught:
        model.fit(frame, y)
    assert not ledger.entries and not hasattr(model, "privacy_")
    chain, error = [], caught.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    assert not any("987654" in message for message in chain)


@pytest.mark.parametrize(
    ("made", "y", "options", "match"),
    [
        (
            tabular_pipeline(DPSGDClassifier(), SCHEMA),
            "label",
            {"groups": np.arange(N)},
            "`groups` is in memory and the lengths of the blocks of `X` are not known",
        ),
        (
            tabular_pipeline(DPSGDClassifier(), ESTIMATED, epsilon=float("inf")),
            "label",
            {},
            "`epsilon`=inf takes exact quantiles",
        ),
        (
            tabular_pipeline(DPLinearRegression(), SCHEMA, target=Range(0, 9)),
            "label",
            {},
            "`y` has entries that are not numbers.*partition 0",
        ),
        (tabular_pipeline(DPSGDClassifier(), SCHEMA), None, {}, "requires y to be passed"),
        *(
            (
                tabular_pipeline(DPLinearRegression(solver="ambssgd"), schema, target=(0, 9)),
                "days",
                {},
                "takes the rows apart by chance",
            )
            for schema in (SCHEMA, ESTIMATED)
        ),
    ],
)
def test_what_a_model_refuses_of_a_collection(monkeypatch, made, y, options, match):
    frame, ledger = partitions(FRAME), PrivacyLedger(9.0, 1e-5)
    error = pytest.raises(ValueError, match=f"(?s){match}")
    with cluster_here(monkeypatch), ledger, error:
        made.fit(frame, None if y is None else frame[y], **options)
    assert not ledger.entries and not hasattr(made, "privacy_")


def test_a_frame_of_one_partition_and_more_workers(monkeypatch):
    model, *_ = FITS["batches"]
    made = tabular_pipeline(model, SCHEMA)
    with cluster_here(monkeypatch, 3) as cluster:
        frame = partitions(FRAME, ())
        there = clone(made).fit(frame, frame["label"])
    assert len(cluster.parts) == 1 and UNEVEN
    assert_same_pipeline(clone(made).fit(FRAME, FRAME["label"]), there)


def test_codes_take_as_few_bytes_as_they_need(monkeypatch):
    """One for a category where all codes of the schema are that short."""
    sizes = []
    for schema in (SCHEMA, SCHEMA | {"place": ["place 1", "place 2"]}):
        made = tabular_pipeline(DPSGDClassifier(n_iter=2, **SEEDED), schema)
        with cluster_here(monkeypatch) as cluster:
            made.fit(partitions(FRAME), partitions(FRAME)["label"])
        codes = [part.value._leaves["codes"] for part in cluster.parts]
        assert {len(rows[0]) for rows in codes} == {5}
        sizes.append({rows.itemsize for rows in codes})
    assert sizes == [{2}, {1}]


def test_a_partition_that_lacks_a_column_is_named(client):
    """As that of a file is: what Dask knows of the columns comes from the first one."""

    def part(number):
        rows = FRAME[number::2]
        return rows.drop(columns="dose") if number else rows

    frame = dd.from_map(part, [0, 1], meta=FRAME[:0])
    model, ledger = tabular_pipeline(DPSGDClassifier(), SCHEMA), PrivacyLedger(9.0, 1e-5)
    lacks = r"partition 1, counted from 0, cannot be computed.*dose.*give all files the same"
    with ledger, pytest.raises(ValueError, match=lacks):
        model.fit(frame, frame["label"])
    assert not ledger.entries


def test_nothing_of_a_fit_stays_on_the_workers(client):
    made, frame = tabular_pipeline(DPSGDClassifier(n_iter=2), SCHEMA), partitions(FRAME)
    made.fit(frame, frame["label"])
    until = time.monotonic() + 10
    while held := {key for key in client.who_has() if "dpsubspace" in str(key)}:
        assert time.monotonic() < until, held
        time.sleep(0.1)
