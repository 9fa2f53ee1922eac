"""Messages that the page on tables quotes, and those about Dask, are those that a reader gets."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpsubspace import (
    Categories,
    DPLinearRegression,
    DPSGDFClassifier,
    PrivateRange,
    PrivateSearch,
    Range,
    private_mean,
    tabular_pipeline,
)
from dpsubspace.exceptions import ClusterError
from dpsubspace.linear_model import PersonalizedLinearRegression
from dpsubspace.statistics import _functions as functions
from dpsubspace.tables import Text

DOCS = Path(__file__).parents[2] / "docs"

STAYS = pd.DataFrame(
    {
        "age": np.arange(60) % 60 + 18,
        "sex": ["f", "m"] * 30,
        "ward": ["medicine", "surgery", "cardiology"] * 20,
        "platelets": np.linspace(90, 410, 60),
        "visits": np.arange(60) % 4,
    }
)
READMITTED = np.arange(60) % 2


def fit(schema, frame=STAYS, model=None, *, epsilon=1.0, **options):
    """Fit a pipeline to few rows of a hospital."""
    model = DPSGDFClassifier(random_state=0) if model is None else model
    return tabular_pipeline(model, schema, epsilon=epsilon, **options).fit(frame, READMITTED)


# What goes wrong, by what the page says is wrong.
MISTAKES = {
    "a column of the schema is absent": lambda: fit({"age": (18, 95), "crp": (0, 500)}),
    "a value is missing, and the schema does not say so": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=STAYS["age"].where(STAYS["age"] > 20))
    ),
    "text in a column of numbers": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=STAYS["age"].astype(str))
    ),
    "numbers in a column whose categories are text": lambda: fit(
        {"visits": Categories(["0", "1", "2"])}
    ),
    "numbers in a column of text": lambda: fit({"visits": Text()}),
    "text before a model that takes no sparse rows": lambda: fit(
        {"ward": Text()}, model=DPLinearRegression(random_state=0), target=Range(0, 1)
    ),
    "dates": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=pd.date_range("1950-01-01", periods=60))
    ),
    "two columns with the same name": lambda: fit(
        {"age": (18, 95)}, pd.concat([STAYS[["age"]], STAYS], axis=1)
    ),
    "an empty schema": lambda: fit({}),
    "a list of two numbers": lambda: fit({"visits": [0, 1]}),
    "the wrong way round": lambda: Range(90, 17),
    "a private range that noise would hide": lambda: fit(
        {"platelets": PrivateRange()}, epsilon=0.5
    ),
    "a regression without a range of the target": lambda: fit(
        {"age": (18, 95)}, model=DPLinearRegression(random_state=0)
    ),
    "a classifier with a range of the target": lambda: fit({"age": (18, 95)}, target=Range(0, 1)),
}


def quoted(page="table_errors.md"):
    """Rows of a page's table of errors: what is wrong, and the message."""
    page = (DOCS / page).read_text(encoding="utf-8")
    table = page.partition("| what is wrong | the message |\n| --- | --- |\n")[2].partition("\n\n")[
        0
    ]
    rows = [re.fullmatch(r"\| (.+?) \| (.+) \|", line) for line in table.splitlines()]
    return {row.group(1): row.group(2) for row in rows if row}


def test_the_page_quotes_each_mistake():
    assert quoted().keys() == MISTAKES.keys()


@pytest.mark.filterwarnings("ignore:columns that the schema does not name")
@pytest.mark.parametrize("wrong", MISTAKES)
def test_a_reader_gets_the_message_that_the_page_quotes(wrong):
    with pytest.raises(Exception) as raised:  # of several types
        MISTAKES[wrong]()
    assert str(raised.value) == quoted()[wrong]


def test_the_page_on_missing_values_quotes_the_same_message():
    message = quoted()["a value is missing, and the schema does not say so"]
    assert f"> {message}\n" in (DOCS / "missing_values.md").read_text(encoding="utf-8")


# Dask -----------------------------------------------------------------------------------------


def ages(n_blocks=8):
    """Two columns of a Dask data frame in blocks, as if read from files."""
    dask_frames = pytest.importorskip("dask.dataframe")
    frame = STAYS[["age", "visits"]].assign(days=READMITTED)
    return dask_frames.from_pandas(frame, npartitions=n_blocks)


def fit_on_blocks(rows=None, targets=None, **options):
    """Fit a regression to blocks of rows."""
    rows = ages() if rows is None else rows
    targets = rows["days"] if targets is None else targets
    model = DPLinearRegression(epsilon=1.0, target_bounds=(0, 1))
    return model.fit(rows[["age", "visits"]], targets, **options)


def fit_on_mixed_names():
    """Fit to persons whose names are text in every second file."""
    rows = ages()

    def named(part, partition_info=None):
        return part.astype(str) if partition_info["number"] % 2 else part

    fit_on_blocks(rows, groups=rows["visits"].map_partitions(named, meta=("visits", object)))


def fit_in_a_task():
    """Fit inside of a task of the cluster."""
    from distributed import get_client

    get_client().submit(fit_on_blocks).result()


def lose_all_workers():
    """Lose the workers, of which none comes back, when a release has read its rows."""
    from dask import config
    from distributed import get_client

    client, read = get_client(), functions._rows

    def read_and_lost(*given):
        rows = read(*given)
        client.cluster.scale(0)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "_rows", read_and_lost)
        with config.set({"dpsubspace.no-worker-timeout": 0.1}):
            private_mean(ages()["age"], bounds=(18, 95), epsilon=1.0)


DASK_MISTAKES = {
    "`y` is a NumPy array beside a data frame": lambda: fit_on_blocks(targets=READMITTED),
    "rows and targets from two data frames": lambda: fit_on_blocks(targets=ages(2)["days"]),
    "`groups` is a NumPy array beside a data frame": lambda: fit_on_blocks(groups=READMITTED),
    "Dask has moved rows to align columns": lambda: fit_on_blocks(
        groups=ages()["visits"].map_partitions(lambda part: part[::-1])
    ),
    "some blocks of `groups` have numbers, and others text": fit_on_mixed_names,
    "values are missing": lambda: fit_on_blocks(ages().replace(30, np.nan)),
    "values are missing, and the schema has none": lambda: tabular_pipeline(
        "classification", {"age": Range(18, 95)}
    ).fit(ages()[["age"]].replace(30, np.nan), ages()["days"]),
    "an estimator that needs rows in memory": lambda: PersonalizedLinearRegression().fit(
        ages()[["age"]], ages()["days"], groups=READMITTED
    ),
    "a search, or held-out rows of a calibration": lambda: PrivateSearch(
        DPSGDFClassifier(), {}
    ).fit(ages()[["age", "visits"]], ages()["days"]),
    "a fit inside of a task": fit_in_a_task,
    "all workers are lost in the middle": lose_all_workers,
}

# What a reader gets, by what is wrong: these explain themselves, and no page repeats them.
DASK_MESSAGES = {
    "there is no client": (
        "Dask collections need the workers of a cluster, and there is no client. Start one: "
        "from dask.distributed import Client; client = Client()."
    ),
    "`y` is a NumPy array beside a data frame": (
        "`y` is in memory and the lengths of the blocks of `X` are not known. Pass `y` as a "
        "Dask collection too, or call compute_chunk_sizes() on the array `X`."
    ),
    "rows and targets from two data frames": (
        "`X` has 8 blocks and `y` has 2, of which the lengths are not known. Take both from "
        "one data frame, or call compute_chunk_sizes() on both arrays."
    ),
    "`groups` is a NumPy array beside a data frame": (
        "`groups` is in memory and the lengths of the blocks of `X` are not known. Pass "
        "`groups` as a Dask collection too, or call compute_chunk_sizes() on the array `X`."
    ),
    "Dask has moved rows to align columns": (
        "`X` and `groups` have other rows, or in another order, as their index says. Take "
        "both from one data frame, and call persist() on it, or write it to files first, "
        "where a column was made of another data frame or of an array. This is about "
        "partition 0, counted from 0."
    ),
    "some blocks of `groups` have numbers, and others text": (
        "`groups` has blocks of int64 and text: give all blocks one type, by astype."
    ),
    "values are missing": (
        "Input X contains NaN. Fill such entries with a constant that is known in advance, or"
        " drop the rows or columns. An imputer fitted on these rows would not be private. "
        "This is about partition 1, counted from 0."
    ),
    "values are missing, and the schema has none": (
        "Column 'age' of `X` has missing values, and the schema declares none: write "
        "Range(18, 95, missing=True), or fill them with a constant that is known in advance. "
        "A mean of these rows would not be private. Do so for every column in which values "
        "can be missing, since this names the first alone. This is about partition 1, counted"
        " from 0."
    ),
    "an estimator that needs rows in memory": (
        "PersonalizedLinearRegression does not take Dask collections: pass X.compute() and "
        "y.compute() where they fit into memory. tabular_pipeline, the linear estimators, "
        "DPPCA, BoundedScaler and the private_ functions take them as they are."
    ),
    "a search, or held-out rows of a calibration": (
        "`X` is a Dask collection, which PrivateSearch does not take: pass X.compute() if it "
        "fits into memory."
    ),
    "a fit inside of a task": (
        "a fit on Dask collections cannot run inside a Dask task, whose worker it would wait "
        "for. Call it outside, or pass arrays."
    ),
    "all workers are lost in the middle": (
        "the fit on Dask collections has ended. The cluster has had no worker for 30 seconds."
        " What it had reserved stays charged, since noisy sums may have been released."
    ),
}


@pytest.mark.parametrize("wrong", DASK_MISTAKES)
def test_a_reader_gets_a_message_about_dask_that_explains_itself(wrong):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    client = distributed.Client(**options, dashboard_address=":0", silence_logs=50)
    with client, pytest.raises((ValueError, ClusterError)) as raised:
        DASK_MISTAKES[wrong]()
    waited = str(raised.value).replace("worker for 0 seconds", "worker for 30 seconds")
    assert waited == DASK_MESSAGES[wrong]


def test_a_reader_who_has_started_no_client_learns_how_to_start_one():
    with pytest.raises(ValueError) as raised:
        fit_on_blocks()
    assert str(raised.value) == DASK_MESSAGES["there is no client"]
    assert DASK_MESSAGES.keys() == {"there is no client", *DASK_MISTAKES}
