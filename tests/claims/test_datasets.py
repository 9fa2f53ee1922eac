"""Fits on datasets of PyArrow, which are read from their files in each pass."""

import os
import pickle
import re
import weakref
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("distributed")

import pyarrow
import pyarrow.dataset as ds
from helpers import RELATIONS, assert_all_charged, assert_within_bounds, move, pairs_first, releases
from in_parts import SCHEMA, assert_same, charged_once, lengths
from pyarrow import csv, feather
from pyarrow import parquet as pq
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from test_tables_in_parts import ESTIMATED, FITS, FRAME, OTHERS, PLACES, N, neighbours

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    GEPClassifier,
    PrivacyLedger,
    Range,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.rows import dataset_parts
from dpsubspace._core.rows.records import NullRecords
from dpsubspace.exceptions import PrivacyError
from dpsubspace.linear_model import (
    GEPRegressor,
    PersonalizedLinearRegression,
    PublicSubspaceLinearRegression,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:columns that the schema does not name"),
]

NUMBERS = ["age", "dose", "other"]
PUBLIC, MORE = FRAME[[*NUMBERS, "days"]][:50] + 0.1, FRAME[[*NUMBERS, "flag"]][:50] + 0.1
TASKS = {"X_public": (MORE,), "y_public": (FRAME["days"][:50] + 0.1,)}
MODEL = DPSGDFClassifier(n_iter=6, delta=1e-5, random_state=0)
TABLE = tabular_pipeline(clone(MODEL), SCHEMA)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of 90 rows, of which three are worked on at once."""
    monkeypatch.setattr(dataset_parts, "_FEWEST", 90)
    monkeypatch.setattr(dataset_parts, "_MOST", 90)
    monkeypatch.setattr(dataset_parts, "blas_threads", lambda: 3)


def write_parquet(table, path):
    """In row groups of other lengths than parts have."""
    pq.write_table(table, f"{path}.parquet", row_group_size=37)


WRITERS = {
    "parquet": write_parquet,
    "feather": lambda table, path: feather.write_feather(table, f"{path}.feather"),
    "csv": lambda table, path: csv.write_csv(table, f"{path}.csv"),
}


def written(frame, folder, form="parquet"):
    """A dataset of uneven files, some of no rows."""
    folder.mkdir()
    ends = np.cumsum([0, *lengths(len(frame))])
    for number, (start, stop) in enumerate(pairwise(ends)):
        table = pyarrow.Table.from_pandas(frame.iloc[start:stop])
        WRITERS[form](table, folder / str(number))
    if form == "csv":
        gaps = csv.ConvertOptions(strings_can_be_null=True)
        form = ds.CsvFileFormat(convert_options=gaps)
    return ds.dataset(folder, format=form)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The table with every kind of column, in files that no test changes."""
    return written(FRAME, tmp_path_factory.mktemp("table") / "files")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    columns = [*NUMBERS, "flag", "days"]
    return written(FRAME[columns], tmp_path_factory.mktemp("numbers") / "files")


# As in memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
def test_a_table_in_files_gives_what_it_gives_in_memory(files, name):
    made, target, others = FITS[name]
    here = clone(made).fit(FRAME, FRAME[target], **others)
    there = clone(made).fit(files, target, **others)
    assert there.privacy_ == here.privacy_
    assert_same(here[0], there[0])
    assert_same(here[-1], there[-1])


@pytest.mark.parametrize(
    ("model", "target", "others"),
    [
        (MODEL, "flag", {}),
        (DPSGDClassifier(n_iter=6, batch_size=50, random_state=0), "flag", {}),
        (GEPClassifier(n_iter=6, random_state=0), "flag", {"X_public": (PUBLIC,)}),
        (DPSGDClassifier(epsilon=np.inf, delta=1e-5), "flag", {}),
        (DPLinearRegression(random_state=0), "days", {}),
        (DPLinearRegression(random_state=0), ["days", "other"], {}),
        (
            GEPRegressor(n_iter=6, target_bounds=(-5, 9), random_state=0),
            "days",
            {"X_public": (MORE,)},
        ),
        (PublicSubspaceLinearRegression(random_state=0), "days", TASKS),
        (DPPCA(2, random_state=0), None, {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_columns_of_numbers_give_what_they_give_in_memory(numbers, model, target, others):
    """All columns but those of the target are features."""
    X = FRAME[[*NUMBERS, "flag", "days"]].drop(columns=target or [])
    y = None if target is None else FRAME[target]
    here = clone(model).fit(X, y, **others)
    there = clone(model).fit(numbers, target, **others)
    assert there.privacy_ == here.privacy_
    assert list(there.feature_names_in_) == list(here.feature_names_in_) == list(X.columns)
    assert_same(here, there, 1e-4 if getattr(model, "epsilon", 1) == np.inf else 1e-6)


@pytest.mark.parametrize("form", WRITERS)
def test_files_of_any_format_that_arrow_reads_are_taken(tmp_path, form):
    """Arrow takes nothing in a column of text for a gap if it is told to."""
    schema = {name: SCHEMA[name] for name in ("age", "lab", "ward", "sex", "flag")}
    made = tabular_pipeline(clone(MODEL), schema)
    there = clone(made).fit(written(FRAME, tmp_path / "files", form), "label")
    assert_same(clone(made).fit(FRAME, FRAME["label"])[-1], there[-1])


@pytest.mark.parametrize("kind", ["in memory", "filtered", "union", "text as codes"])
def test_datasets_of_any_kind_are_taken(tmp_path, files, kind):
    """Rows in memory, some of all rows, several datasets, and other codes in each file."""
    frame, cut = FRAME, N // 3
    if kind == "in memory":
        rows = ds.dataset(pyarrow.Table.from_pandas(FRAME))
    elif kind == "filtered":
        rows, frame = files.filter(ds.field("age") > 40), FRAME[FRAME["age"] > 40]
    elif kind == "union":
        text = FRAME.astype({"ward": str})
        halves = [written(text[:cut], tmp_path / "a"), written(text[cut:], tmp_path / "b")]
        rows = ds.dataset(halves)
    else:
        form = ds.ParquetFileFormat(dictionary_columns=["sex", "place"])
        rows = ds.dataset(files.files, format=form)
    there = clone(TABLE).fit(rows, "label")
    assert_same(clone(TABLE).fit(frame, frame["label"])[-1], there[-1])


def test_other_threads_and_other_parts_change_nothing_but_rounding(monkeypatch, files):
    expected = clone(TABLE).fit(FRAME, FRAME["label"])
    for rows, threads in ((7, 2), (64, 1), (1000, 5)):
        monkeypatch.setattr(dataset_parts, "_FEWEST", rows)
        monkeypatch.setattr(dataset_parts, "_MOST", rows)
        monkeypatch.setattr(dataset_parts, "blas_threads", lambda n=threads: n)
        found = [clone(TABLE).fit(files, "label") for _ in range(2)]
        assert_same(expected[-1], found[0][-1])
        assert_same(found[0][-1], found[1][-1], 0)


def test_summaries_and_counts_take_datasets_too(files):
    schema = {name: SCHEMA[name] for name in ("age", "lab", "ward", "flag")}
    for release in (
        lambda rows: private_summary(
            rows, schema, by="flag", epsilon=1.0, random_state=0
        ).to_frame(),
        lambda rows: (
            private_counts(
                rows, schema, ["age", "ward"], bins=4, epsilon=1.0, random_state=0
            ).counts
        ),
    ):
        here, there = release(FRAME), release(files)
        if isinstance(here, pd.DataFrame):
            pd.testing.assert_frame_equal(here, there)
        else:
            np.testing.assert_array_equal(here, there)


# Neighbours -------------------------------------------------------------------------------------


def replayed(monkeypatch, name, relation, here, there, present):
    """Sums of a fit of a dataset, and of one of a neighbour that is given what the first gave."""
    made, target, others = FITS[name]
    made = clone(made).set_params(neighboring_relation=relation)
    here, there = (ds.dataset(pyarrow.Table.from_pandas(frame)) for frame in (here, there))
    with releases(monkeypatch) as first:
        event = clone(made).fit(here, target, **others).privacy_.event
    with releases(monkeypatch, outputs=first) as second:
        null = None if present is None else NullRecords(None, present)
        clone(made).fit(there, target, groups=null, **others)
    assert_all_charged(first, second, event)
    return first, second


@pytest.mark.parametrize(
    ("name", "relation", "record", "place"),
    pairs_first(FITS, RELATIONS, OTHERS, PLACES, together=(0, 1)),
)
def test_every_release_over_parts_of_a_dataset_moves_within_its_bound(
    monkeypatch, name, relation, record, place
):
    pair = replayed(monkeypatch, name, relation, *neighbours(relation, record, place))
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.wide
def test_these_tests_would_notice_a_part_that_counts_twice(monkeypatch):
    run = dataset_parts._DatasetParts.run

    def twice(parts, *call):
        for number, found in enumerate(run(parts, *call)):
            yield found
            if number == 0:
                yield pickle.loads(pickle.dumps(found))

    monkeypatch.setattr(dataset_parts._DatasetParts, "run", twice)
    here, there, present = neighbours("zero_out", "unknown", "first part")
    first, second = replayed(monkeypatch, "least squares", "zero_out", here, there, present)
    pairs = zip(first, second, strict=True)
    assert max(move(one[0], other[0]) / one[0].norm_bound for one, other in pairs) > 1.2


# Memory -----------------------------------------------------------------------------------------


@pytest.mark.wide
def test_few_parts_are_in_memory_at_a_time_however_many_there_are(monkeypatch, files):
    """Neither rows nor what was made of them stays, and sums are added up as they come."""
    alive, most = weakref.WeakSet(), []
    read = dataset_parts._Reading.part

    def watched(*given):
        part = read(*given)
        alive.add(part)
        most.append(len(alive))
        return part

    monkeypatch.setattr(dataset_parts, "_FEWEST", 8)
    monkeypatch.setattr(dataset_parts, "_MOST", 8)
    monkeypatch.setattr(dataset_parts._Reading, "part", watched)
    clone(TABLE).fit(files, "label")
    assert len(most) > 6 * N // 8 and max(most) <= 3
    assert not alive


# Refusals ---------------------------------------------------------------------------------------


def refused(model, *given, match, **others):
    """A fit that ends before anything is released, and the message."""
    ledger = PrivacyLedger(10.0, 1e-3, allow_seeded=True)
    with ledger, pytest.raises(ValueError, match=match) as caught:
        model.fit(*given, **others)
    assert not ledger.entries and not hasattr(model, "privacy_")
    return caught.value


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (None, "requires y to be passed"),
        ("nothing", r"`y` names \['nothing'\], and the dataset has the columns"),
        ("age", r"`y` names \['age'\], which the schema has among the features too"),
        (["label", 3], "`y` is the name of a column of it"),
        (FRAME["label"], "`y` is the name of a column of it.*Got Series"),
    ],
    ids=str,
)
def test_what_is_no_column_of_labels_is_refused(files, y, match):
    refused(clone(TABLE), files, y, match=match)


def test_what_needs_rows_in_memory_is_refused(files, numbers):
    table, who = clone(TABLE).fit(files, "label"), np.arange(N) // 2
    refused(
        clone(TABLE),
        files,
        "label",
        groups=who,
        match="`groups` does not work with datasets of PyArrow.*pass a Dask data frame",
    )
    refused(
        clone(MODEL),
        numbers,
        "flag",
        groups=who,
        match="`groups` does not work with datasets of PyArrow.*pass a Dask data frame",
    )
    for release in (private_summary, partial(private_counts, columns="age")):
        with pytest.raises(ValueError, match="`groups` does not work with datasets of PyArrow"):
            release(files, {"age": SCHEMA["age"]}, groups=who)
    into_memory = r"is a dataset of PyArrow, which is not taken here: pass X\.to_table"
    for fitted, rows in ((table, files), (clone(MODEL).fit(numbers, "flag"), numbers)):
        for ask in (fitted.predict, fitted.predict_proba):
            with pytest.raises(ValueError, match=into_memory):
                ask(rows)
        with pytest.raises(ValueError, match=into_memory):
            fitted.score(rows, "label")
    with pytest.raises(ValueError, match=into_memory):
        make_pipeline(BoundedScaler(bounds=(0, 100)), clone(MODEL)).fit(numbers, "flag")
    with pytest.raises(ValueError, match=into_memory):
        PersonalizedLinearRegression().fit(numbers, "days", groups=who)
    with pytest.raises(ValueError, match="Open the ledger around the fit"):
        PrivacyLedger(10.0, 1e-5).fit(clone(MODEL), numbers, "flag")
    exact = tabular_pipeline(clone(MODEL), ESTIMATED, epsilon=np.inf)
    refused(exact, files, "label", match="exact")


def test_a_dataset_of_no_rows_is_refused(files):
    refused(clone(TABLE), files.filter(ds.field("age") > 1000), "label", match="`X` has no rows")


BAD = {
    "a gap": ("age", None, "Column 'age' of `X` has missing values"),
    "text": ("age", "secret", "Column 'age' of `X` holds text"),
    "a date": ("age", pd.Timestamp("1999-01-07"), "Column 'age' of `X` holds dates"),
    "a label": ("label", None, "missing labels"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_value_names_file_and_column_and_no_value(tmp_path, what):
    """A column with one in the third file: the type of the column is that of all files."""
    column, value, match = BAD[what]
    frame = FRAME.astype({"age": object})
    if what == "text":
        frame["age"] = frame["age"].astype(str)
    elif what == "a date":
        frame["age"] = pd.Timestamp("2001-02-03")
    frame.loc[N // 5, column] = value
    error = refused(clone(TABLE), written(frame, tmp_path / "files"), "label", match=match)
    assert not re.search("secret|1999|2001", str(error))
    assert error.__cause__ is None
    if what in ("a gap", "a label"):
        assert str(error).endswith("This is about the file " + str(tmp_path / "files/3.parquet."))


def test_a_file_that_arrow_cannot_read_by_the_schema_is_refused_without_its_value(tmp_path):
    """Arrow's own message has the entry. CSV files have the types of the first rows of all."""
    for number, age in enumerate(["41", "secret"]):
        (tmp_path / f"{number}.csv").write_text(f"age,label\n{age},a\n52,b\n")
    rows = ds.dataset(tmp_path, format="csv")
    made = tabular_pipeline(clone(MODEL), {"age": Range(18, 95)})
    error = refused(made, rows, "label", match="could not read the dataset by its schema")
    assert "secret" not in str(error) and error.__cause__ is error.__context__ is None


def test_whole_numbers_in_one_file_and_halves_in_another_name_file_and_column(tmp_path):
    """By what the files say of their types; the way out is taken."""
    for number, first in enumerate([41, 41.5]):
        rows = pyarrow.table({"age": [first, 52] * 60, "label": ["a", "b"] * 60})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    made = tabular_pipeline(clone(MODEL), {"age": Range(18, 95)})
    error = refused(made, ds.dataset(tmp_path), "label", match="could not read the dataset by")
    assert f"{tmp_path / '1.parquet'} has double in the column 'age', and dataset" in str(error)
    assert "says int64: pass a `schema`" in str(error) and "41" not in str(error)
    types = pyarrow.schema({"age": pyarrow.float64(), "label": pyarrow.string()})
    there = clone(made).fit(ds.dataset(tmp_path, schema=types), "label")
    assert there.classes_.tolist() == ["a", "b"]


# Files that change ------------------------------------------------------------------------------


class Meddler:
    """Does something to the files before pass number `at`, or in the middle of it."""

    def __init__(self, monkeypatch, at, act, *, within=False):
        self.passes, self.at, self.act = 0, at, act
        pieces = dataset_parts._Reading.pieces

        def meddled(reading):
            self.passes += 1
            mine = self.passes == self.at
            if mine and not within:
                act()
            for number, piece in enumerate(pieces(reading)):
                if mine and within and number == 1:
                    act()
                yield piece

        monkeypatch.setattr(dataset_parts._Reading, "pieces", meddled)


def rewrite(path):
    """Other values in the same rows."""
    table = pq.read_table(path)
    write_parquet(table.take(list(range(len(table)))[::-1]), str(path).removesuffix(".parquet"))


CHANGES = {
    "rewritten": rewrite,
    "removed": lambda path: path.unlink(),
    "shorter": lambda path: write_parquet(
        pq.read_table(path).slice(3), str(path).removesuffix(".parquet")
    ),
    "no table any more": lambda path: path.write_bytes(b"secret"),
}


@pytest.mark.parametrize("within", [False, True], ids=["between passes", "in a pass"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_changes_ends_the_fit_which_stays_charged(monkeypatch, tmp_path, how, within):
    rows, model = written(FRAME, tmp_path / "files"), clone(TABLE)
    path = tmp_path / "files" / "5.parquet"
    meddler = Meddler(monkeypatch, 5, lambda: CHANGES[how](path), within=within)
    match = r"5\.parquet has changed while it ran.*What it had reserved stays charged"
    charged_once(model, rows, "label", error=PrivacyError, match=match)
    assert meddler.passes == 5
    assert model.privacy_.epsilon == pytest.approx(1.0) and not hasattr(model[-1], "coef_")


def test_other_rows_of_as_many_bytes_are_told_by_their_time(monkeypatch, tmp_path):
    rows, path = written(FRAME, tmp_path / "files", "csv"), tmp_path / "files" / "5.csv"
    before = path.stat()

    def swap():
        head, *lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([head, *lines[::-1]]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert path.stat().st_size == before.st_size

    Meddler(monkeypatch, 5, swap)
    match = r"5\.csv has changed while it ran.*What it had reserved stays charged"
    charged_once(clone(TABLE), rows, "label", error=PrivacyError, match=match)


def test_a_file_that_changes_in_the_first_pass_costs_nothing(monkeypatch, tmp_path):
    rows, ledger, model = (
        written(FRAME, tmp_path / "files"),
        PrivacyLedger(10, 1e-5, allow_seeded=True),
        clone(TABLE),
    )
    Meddler(monkeypatch, 1, lambda: rewrite(tmp_path / "files" / "5.parquet"), within=True)
    with ledger, pytest.raises(PrivacyError, match=r"5\.parquet has changed.*nothing was charged"):
        model.fit(rows, "label")
    assert not ledger.entries and not hasattr(model, "privacy_")


@pytest.mark.parametrize("kept", [N - 100, N - 7, 0])
def test_rows_that_vanish_from_what_has_no_times_end_the_fit(monkeypatch, kept):
    """Of a dataset in memory, or behind a file system that tells nothing, rows are counted."""
    monkeypatch.setattr(dataset_parts._Reading, "files", lambda reading: [])
    rows = ds.dataset(pyarrow.Table.from_pandas(FRAME))
    batches, calls = dataset_parts._Reading._batches, []

    def fewer(reading, n):
        calls.append(n)
        left = N if len(calls) < 5 else kept
        for file, batch in batches(reading, n):
            yield file, batch.slice(0, left)
            left = max(0, left - batch.num_rows)

    monkeypatch.setattr(dataset_parts._Reading, "_batches", fewer)
    match = "a file has changed while it ran.*stays charged"
    charged_once(clone(TABLE), rows, "label", error=PrivacyError, match=match)


def test_rows_that_are_added_to_what_has_no_times_end_the_fit(monkeypatch):
    monkeypatch.setattr(dataset_parts._Reading, "files", lambda reading: [])
    monkeypatch.setattr(dataset_parts, "_FEWEST", N)
    monkeypatch.setattr(dataset_parts, "_MOST", N)  # so that the rows that are new are a part
    rows = ds.dataset(pyarrow.Table.from_pandas(FRAME))
    batches, calls = dataset_parts._Reading._batches, []

    def more(reading, n):
        calls.append(n)
        for file, batch in batches(reading, n):
            yield file, batch
            if len(calls) == 5:
                yield file, batch.slice(0, 10)

    monkeypatch.setattr(dataset_parts._Reading, "_batches", more)
    match = "a file has changed while it ran.*stays charged"
    charged_once(clone(TABLE), rows, "label", error=PrivacyError, match=match)
