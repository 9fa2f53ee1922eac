"""Tables in parts: what a record moves over several partitions, and what goes to and fro.

All of it on a cluster in this process: see in_parts.py.
"""

import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

from helpers import RELATIONS, assert_all_charged, assert_within_bounds, move, pairs_first, releases
from in_parts import SCHEMA, assert_same, cluster_here, lengths, mixed, partitions
from sklearn.base import clone
from test_dask_privacy import arrays

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivateRange,
    Range,
    tabular_pipeline,
)
from dpsubspace._core.rows import dask_parts
from dpsubspace._core.rows.records import NullRecords
from dpsubspace._core.tables import forming

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:columns that the schema does not name"),
]

N = 397  # as many rows as no other thing has entries
FRAME, PUBLIC = mixed(N), mixed(60, seed=5)
SEEDED, CLASSES = {"random_state": 0}, {"classes": ["no", "yes"]}
FEW = {"n_iter": 4, **SEEDED, **CLASSES}
ESTIMATED = SCHEMA | {"dose": PrivateRange(log=True), "lab": PrivateRange(missing=True)}
TARGET = {"target": Range(-20, 20)}

# A pipeline, its labels or targets, and other arguments of `fit`.
FITS = {
    "classes": (tabular_pipeline(DPSGDFClassifier(**FEW), SCHEMA), "label", {}),
    "batches": (tabular_pipeline(DPSGDClassifier(batch_size=90, **FEW), SCHEMA), "label", {}),
    "learned": (
        tabular_pipeline(
            DPSGDClassifier(**FEW | {"n_iter": 12}),
            {name: SCHEMA[name] for name in ("age", "dose", "lab")},
            epsilon=300.0,
            interactions="learned",
        ),
        "label",
        {},
    ),
    "ranges": (tabular_pipeline(DPSGDFClassifier(**FEW), ESTIMATED, epsilon=40.0), "label", {}),
    "targets": (tabular_pipeline(DPSGDRegressor(n_iter=4, **SEEDED), SCHEMA, **TARGET), "days", {}),
    "least squares": (tabular_pipeline(DPLinearRegression(**SEEDED), SCHEMA, **TARGET), "days", {}),
    "moments": (
        tabular_pipeline(DPLinearRegression(solver="moments", **SEEDED), SCHEMA, **TARGET),
        ["days", "other"],
        {},
    ),
    "range of targets": (
        tabular_pipeline(
            DPLinearRegression(**SEEDED), ESTIMATED, epsilon=40.0, target=PrivateRange()
        ),
        "days",
        {},
    ),
    "public rows": (
        tabular_pipeline(GEPClassifier(**FEW), SCHEMA),
        "label",
        {"X_public": (PUBLIC,)},
    ),
}

# What becomes of the record that changes.
OTHERS = {
    "unknown": {"ward": "?", "place": "elsewhere", "code": 77, "age": 1e9, "dose": -np.inf}
    | {"admitted": pd.Timestamp("1700-01-01"), "born": "9999-12-31"},
    "gaps": {"lab": np.nan, "sex": None, "code": np.nan, "flag": True, "admitted": pd.NaT},
    "the other end": {"age": 95, "dose": 500, "lab": 450, "ward": "C", "sex": "m", "flag": True}
    | {"admitted": pd.Timestamp("2023-12-31"), "born": "2009-12-31T23:59"},
}
# Where it lies: first of all, or among others in the middle of a part.
PLACES = {"first part": 0, "middle part": 0.4, "last part": 0.99}


def neighbours(relation, record, place):
    """Two tables that differ in one record, and which records of the second are there."""
    i = int(PLACES[place] * N)
    frame = FRAME.astype({"ward": object, "age": float})
    if relation == "zero_out":
        frame.loc[i, [*OTHERS[record]]] = [*OTHERS[record].values()]
        return frame, frame, np.arange(N) != i
    other = frame.copy()
    other.loc[i, [*OTHERS[record]]] = [*OTHERS[record].values()]
    other.loc[i, "label"] = "yes" if other.loc[i, "label"] == "no" else "no"
    other.loc[i, ["days", "other"]] = 1e9
    return frame, other, None


def fitted(name, relation, frame, present=None):
    made, target, others = FITS[name]
    made = clone(made).set_params(neighboring_relation=relation)
    groups = None if present is None else NullRecords(None, present)
    frame = partitions(frame)
    return made.fit(frame, frame[target], groups=groups, **others)


def replayed(monkeypatch, name, relation, here, there, present):
    """Sums of a fit in parts, and of one on a neighbour that is given the outputs of the first."""
    with cluster_here(monkeypatch) as cluster:
        with releases(monkeypatch) as first:
            event = fitted(name, relation, here).privacy_.event
        assert len(cluster.parts) == 3
        with releases(monkeypatch, outputs=first) as second:
            fitted(name, relation, there, present)
    assert_all_charged(first, second, event)
    return first, second


@pytest.mark.parametrize(
    ("name", "relation", "record", "place"),
    pairs_first(FITS, RELATIONS, OTHERS, PLACES, together=(0, 1)),
)
def test_every_release_over_partitions_moves_within_its_bound(
    monkeypatch, name, relation, record, place
):
    pair = replayed(monkeypatch, name, relation, *neighbours(relation, record, place))
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize(
    ("name", "relation", "record"),
    pairs_first([name for name in FITS if name != "learned"], RELATIONS, OTHERS, together=(0, 1)),
)
def test_so_does_every_release_of_rows_that_are_formed_in_every_step(
    monkeypatch, name, relation, record
):
    monkeypatch.setattr(forming, "_MOST_KEPT", 0)
    pair = replayed(monkeypatch, name, relation, *neighbours(relation, record, "middle part"))
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.wide
def test_these_tests_would_notice_a_part_that_counts_twice(monkeypatch):
    def twice(parts, *call):
        found = run(parts, *call)
        return [found[0], *found]

    run = dask_parts._DaskParts.run
    pair = neighbours("zero_out", "gaps", "first part")
    first, second = replayed(monkeypatch, "classes", "zero_out", *pair)
    assert max(move(*totals) / totals[0].norm_bound for totals in _totals(first, second)) <= 1
    monkeypatch.setattr(dask_parts._DaskParts, "run", twice)
    first, second = replayed(monkeypatch, "classes", "zero_out", *pair)
    assert max(move(*totals) / totals[0].norm_bound for totals in _totals(first, second)) > 1.5


def _totals(first, second):
    return [(one, other) for (one, *_), (other, *_) in zip(first, second, strict=True)]


@pytest.mark.parametrize("name", FITS)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, name):
    """Each task gives the same twice, to the last bit, and the fit is that of tasks run once."""
    with cluster_here(monkeypatch):
        once = fitted(name, "zero_out", FRAME)

    def lose(cluster):
        if cluster.calls > 1:  # all parts are there
            cluster.lose(cluster.calls % 3)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        again = fitted(name, "zero_out", FRAME)
    assert cluster.calls > 3
    assert_same(once[-1], again[-1], 0.0)


@pytest.mark.parametrize("name", FITS)
def test_what_leaves_a_part_has_no_entry_for_a_row(monkeypatch, name):
    with cluster_here(monkeypatch) as cluster:
        fitted(name, "zero_out", FRAME)
    sizes = {N} | {sum(part.value.lengths) for part in cluster.parts}
    sizes |= set(lengths(N)) - {0, 1}
    first, *results = cluster.results
    found = [array for result in results for array in arrays(result)]
    assert found and not [array.shape for array in found if sizes & set(array.shape)]
    assert set(first.kinds) <= {"rows", "codes", "targets", "first"} and not [*arrays(first)]


def test_what_parts_are_sent_has_neither_rows_nor_the_seed_of_the_noise(monkeypatch):
    made, target, _ = FITS["classes"]
    frame = FRAME.assign(age=FRAME["age"] + 0.123456)
    given, (encoder, model) = partitions(frame), [name for name, _ in made.steps]
    seeds = {f"{step}__random_state": 736_251_943 for step in (encoder, model)}
    with cluster_here(monkeypatch) as cluster:
        made = clone(made).set_params(**seeds).fit(given, given[target])
    values = [np.float64(value).tobytes() for value in frame["age"]]
    read, sums = cluster.sent[:3], cluster.sent[3:]
    assert any(value in sent for _, sent in read for value in values)  # it would be noticed
    assert not any(value in sent for _, sent in sums for value in values)
    seed = (736_251_943).to_bytes(4, "little")
    assert seed in pickle.dumps(made)
    assert not any(seed in sent for _, sent in cluster.sent)
