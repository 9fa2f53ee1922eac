"""Searches on Dask collections: those of the same rows in memory, on the same split."""

import math

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask.array as da
import dask.dataframe as dd
from dask.distributed import Client, LocalCluster
from helpers import RELATIONS, blobs, groups_of, releases
from in_parts import (
    SCHEMA,
    UNEVEN,
    assert_same,
    at_call,
    blocks,
    cluster_here,
    lengths,
    mixed,
    partitions,
)
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyLedger,
    PrivateSearch,
    tabular_pipeline,
)
from dpsubspace._rows.positions import at_positions
from dpsubspace._rows.remote import RemoteRows
from dpsubspace._workflow import search as module
from dpsubspace._workflow.search_rows import Given
from dpsubspace.exceptions import ClusterError

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

N = 400
X, Y = blobs(n=N)
FRAME = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
T = X @ np.arange(1, X.shape[1] + 1) + np.random.default_rng(0).normal(size=N)
FAST = DPSGDClassifier(n_iter=3)
SOME = {"clip_norm": [0.5, 1.0, 2.0], "row_norm": ["l2", 3.0]}
FEW = {"clip_norm": [0.5, 1.0]}
# Of weights that differ by 1e-12, one of 80 rows changes sides with a chance of about 1e-10.
CLOSE = {"rel": 1e-6, "abs": 1e-6}


def search(estimator=FAST, candidates=SOME, **options):
    return PrivateSearch(estimator, candidates, **{"epsilon": 4.0, "random_state": 0, **options})


def assert_equal(here, there):
    assert here.best_params_ == there.best_params_
    assert there.best_score_ == pytest.approx(here.best_score_, **CLOSE)
    assert here.privacy_.event == there.privacy_.event
    assert here.privacy_.public == there.privacy_.public
    assert here.n_features_in_ == there.n_features_in_
    one, other = (each.best_estimator_ for each in (here, there))
    one, other = (each[-1] if hasattr(each, "steps") else each for each in (one, other))
    assert_same(one, other)
    assert one.privacy_.epsilon == other.privacy_.epsilon == here.epsilon


def kept(model, rows, labels):
    """How much of each row the model keeps."""
    return np.linalg.norm(model.transform(rows), axis=1) / 20


SEARCHES = {
    "random": (search(), Y, {}),
    "all": (search(candidates=FEW), Y, {}),
    "batches": (search(candidates={"batch_size": [40, 80], "n_iter": [5]}), Y, {}),
    "steps": (
        search(
            make_pipeline(BoundedScaler(bounds=(-9, 9)), FAST),
            {"boundedscaler": [None, BoundedScaler(bounds=(-5, 5)), DPPCA(2)]},
        ),
        Y,
        {},
    ),
    "numbers": (
        search(
            DPLinearRegression(target_bounds=(-40, 60)),
            {"fit_intercept": [True, False]},
            target_bounds=(-40, 60),
        ),
        T,
        {},
    ),
    "directions": (search(DPPCA(), {"n_components": [1, 2]}, scoring=kept), Y, {}),
    "public rows": (
        search(validation_fraction=None),
        Y,
        dict(zip(("X_public_val", "y_public_val"), blobs(n=58, seed=5), strict=True)),
    ),
}


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize(("relation", "form"), zip(RELATIONS, ("array", "frame"), strict=True))
def test_a_search_finds_what_it_finds_in_memory(monkeypatch, kind, relation, form):
    model, y, given = SEARCHES[kind]
    model = clone(model).set_params(neighboring_relation=relation)
    here = clone(model).fit(X if form == "array" else FRAME, y, **given)
    rows, targets = {
        "array": (blocks(X), blocks(y)),
        "frame": (partitions(FRAME), partitions(pd.Series(y))),
    }[form]
    with cluster_here(monkeypatch):
        there = clone(model).fit(rows, targets, **given)
    assert_equal(here, there)
    method = "predict" if hasattr(here, "predict") else "transform"
    found = getattr(there, method)(rows).compute(scheduler="sync")
    expected = getattr(here, method)(X if form == "array" else FRAME)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("shares", [(), (0.0, 0.2), (0.05,) * 19])
def test_cuts_and_workers_change_nothing(monkeypatch, n_workers, shares):
    with cluster_here(monkeypatch, n_workers):
        there = search().fit(blocks(X, shares), Y)  # labels may be in memory
    assert_equal(search().fit(X, Y), there)


def test_a_table_with_text(monkeypatch):
    frame = mixed(600)
    table = tabular_pipeline(DPSGDClassifier(n_iter=5), SCHEMA)
    model = search(table, {"dpsgdclassifier__row_norm": ["l2"]}, epsilon=8.0)
    here = clone(model).fit(frame[[*SCHEMA]], frame["label"])
    rows = partitions(frame)
    with cluster_here(monkeypatch):
        there = clone(model).fit(rows[[*SCHEMA]], rows["label"])
        with pytest.raises(ValueError, match=r"`X` and `y` must have one entry.* partition \d"):
            clone(model).fit(rows[[*SCHEMA]], partitions(frame["label"], UNEVEN[::-1]))
    assert here.best_params_ == there.best_params_
    # Rows are encoded in float32: one fit in ten thousand has one of 120 on a border, and four of
    # them have a chance of less than 1e-13.
    assert there.best_score_ == pytest.approx(here.best_score_, abs=3 / 120)
    assert here.privacy_.public == there.privacy_.public
    assert there.classes_.tolist() == ["no", "yes"]


# Which rows are scored --------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["array", "frame", "unknown"])
def test_rows_are_shared_out_as_in_memory(monkeypatch, form):
    """Also where the lengths of blocks are known to nobody before they are read."""
    given = {
        "array": lambda: (blocks(X), blocks(Y)),
        "frame": lambda: (partitions(FRAME), partitions(pd.Series(Y))),
        "unknown": lambda: tuple(blocks(each)[blocks(X)[:, 0] > -99] for each in (X, Y)),
    }[form]()
    model, train = search(), {"groups": None}
    records = module.check_groups(None, X)
    here = model._plan().rows(Given(X, Y), records, train, (None, None))
    with cluster_here(monkeypatch):
        checked, rows, _ = Given.checked(model, *given, None, table=False)
        assert isinstance(rows, RemoteRows)
        there = model._plan().rows(checked, records, train, (None, None))
    for one, other in (
        (here.train["X"], there.train["X"]),
        (here.train["y"], there.train["y"]),
        (here.X, there.X),
        (here.y, there.y),
    ):
        np.testing.assert_array_equal(np.concatenate([*map(np.asarray, parts_of(other))]), one)
    assert there.records.n == here.records.n == len(here.y)


def parts_of(collection):
    keys = da.core.flatten(collection.__dask_keys__())
    return da.core.Array.__dask_scheduler__(collection.__dask_graph__(), [*keys], num_workers=1)


def test_rows_at_positions_are_those_of_the_files(tmp_path):
    """Of small partitions Dask joins some where only one column is read."""
    for i, n in enumerate((3, 0, 40, 7)):
        pd.DataFrame({"a": np.arange(n) + 100 * i, "b": "x"}).to_parquet(tmp_path / f"{i}.parquet")
    rows, chosen = dd.read_parquet(tmp_path), np.arange(50) % 3 == 1
    expected = np.concatenate([np.arange(n) + 100 * i for i, n in enumerate((3, 0, 40, 7))])
    for some in (rows[["a"]], rows["a"]):
        found = parts_of(at_positions(some, (3, 0, 40, 7), chosen))
        assert [len(part) for part in found] == [1, 0, 13, 3]
        np.testing.assert_array_equal(np.concatenate([*map(np.ravel, found)]), expected[chosen])


def draws(monkeypatch, *chosen):
    """The number of trials is random, and often 1: here these candidates are drawn."""
    monkeypatch.setattr(module, "draw_trials", lambda *args: np.array(chosen))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("candidates", [SOME, FEW], ids=["random", "all"])
def test_a_record_is_in_the_fits_or_in_the_scores_and_moves_them_within_their_bounds(
    monkeypatch, relation, candidates
):
    held_out = np.random.default_rng(0).permutation(N)[:80]
    trained = np.setdiff1d(np.arange(N), held_out)
    model = search(candidates=candidates, neighboring_relation=relation)
    draws(monkeypatch, 3, 0, 3)

    def sums(X, y, present, outputs=None):
        with cluster_here(monkeypatch), releases(monkeypatch, outputs) as seen:
            clone(model).fit(blocks(X), blocks(y), groups=groups_of(present))
        return seen

    for record in (held_out[0], held_out[1], trained[0], trained[-1]):
        other, labels, present = X.copy(), Y.copy(), None
        if relation == "zero_out":
            present = np.arange(N) != record
        else:
            other[record], labels[record] = -30 * X[record], (Y[record] + 1) % 3
        first = sums(X, Y, None)
        second = sums(other, labels, present, first)
        assert len(first) == len(second) > 2
        moves = []
        for (one, *_), (two, *_) in zip(first, second, strict=True):
            bound = one.norm_bound if relation == "zero_out" else one.replace_bound
            moves.append(np.linalg.norm(np.asarray(one.value) - np.asarray(two.value)))
            assert moves[-1] <= bound * (1 + 1e-9)
        moves, scores = np.array(moves), np.array([s.value.shape == (1,) for s, *_ in first])
        assert scores.sum() >= 2
        if record in trained:  # a score is the model, postprocessed, on rows that are the same
            assert not moves[scores].any() and moves[~scores].any()
        else:
            assert not moves[~scores].any()


def badly(model, rows, labels):
    """A scoring that some rows make fail."""
    if (np.asarray(rows)[:, 0] > 1e3).any():
        raise ValueError("this row")
    return np.full(len(labels), 0.5)


def test_a_row_that_cannot_be_scored_changes_no_other_score(monkeypatch):
    held_out = np.random.default_rng(0).permutation(N)[:80]
    other = X.copy()
    other[held_out[:3], 0] = 1e4
    draws(monkeypatch, 0)
    seen = []
    for rows in (X, other):
        with cluster_here(monkeypatch), releases(monkeypatch) as released:
            search(scoring=badly).fit(blocks(rows), blocks(Y))
        seen.append(float(np.asarray(released[-1][0].value)[0]))
    assert seen == [40.0, 38.5]


@pytest.mark.parametrize("form", [np.asarray, blocks], ids=["here", "in parts"])
def test_other_scores_are_rounded_as_if_no_row_had_failed(monkeypatch, form):
    """As products are, by how many rows are shown and by the place of each."""

    def rounded(model, rows, labels):
        badly(model, rows, labels)
        return 1 / (2 + len(labels) + np.arange(len(labels)))

    held_out = np.sort(np.random.default_rng(0).permutation(N)[:80])
    draws(monkeypatch, 0)
    sums = []
    for failing in ([], held_out[[0]], held_out[[40]], held_out[[-1]], held_out):
        rows = X.copy()
        rows[failing, 0] = 1e4
        with cluster_here(monkeypatch), releases(monkeypatch) as released:
            search(scoring=rounded).fit(form(rows), form(Y))
        sums.append(float(np.asarray(released[-1][0].value)[0]))
    assert sums[-1] == 0.0
    assert all(0 < sums[0] - other <= 0.5 for other in sums[1:-1])
    if form is np.asarray:
        each = np.array([1 / 82, 1 / 122, 1 / 161])
        np.testing.assert_allclose(sums[0] - np.array(sums[1:-1]), each, atol=1e-6)


# What goes to the cluster -----------------------------------------------------------------------


def test_only_sums_come_back_and_parts_may_be_read_again(monkeypatch):
    def lose(cluster):
        if cluster.calls > 1:
            cluster.lose(cluster.calls % 3)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        there = search(candidates=FEW).fit(blocks(X), blocks(Y))
    assert_equal(search(candidates=FEW).fit(X, Y), there)
    sizes = {N, 80, N - 80}
    for result in cluster.results:
        assert not isinstance(result, np.ndarray) or not sizes & {*result.shape}


def saved(path):
    return pd.DataFrame(np.load(path))


@pytest.mark.parametrize("number", [2, 6])
def test_other_rows_in_a_later_pass_end_the_search_which_stays_charged(
    monkeypatch, tmp_path, number
):
    paths = [tmp_path / f"{i}.npy" for i in range(4)]
    for i, path in enumerate(paths):
        np.save(path, X[100 * i : 100 * (i + 1)])

    def change(cluster):  # before the first trial reads its rows, or while it runs
        if cluster.calls == number:
            np.save(paths[1], X[100:201])

    rows, y = dd.from_map(saved, paths, meta=pd.DataFrame(X[:0])), pd.Series(Y)
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5, allow_seeded=True)
    ended = pytest.raises(ClusterError, match=r"other numbers of rows.*stays charged")
    with cluster_here(monkeypatch, before=change), ledger, ended:
        search(candidates=FEW).fit(rows, partitions(y, (0.25,) * 3))
    assert len(ledger) == 1


@pytest.mark.parametrize("number", [3, 8])
def test_a_cluster_that_is_lost_ends_the_search_which_stays_charged(monkeypatch, number):
    def act():
        raise ClusterError("the fit has ended. None of it was charged.", "No worker is left.")

    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5, allow_seeded=True)
    lost, ended = at_call(monkeypatch, number, act), pytest.raises(ClusterError)
    with cluster_here(monkeypatch), lost, ledger, ended as caught:
        search(candidates=FEW).fit(blocks(X), blocks(Y))
    assert len(ledger) == 1 and "None of it was charged" not in str(caught.value)
    assert str(caught.value).startswith("the search on Dask collections has ended. No worker is")


def test_trials_that_fail_leave_no_model_and_tell_nothing(monkeypatch):
    """A table whose columns its schema does not know, which the candidates alone notice."""
    frame = mixed(200)
    table = tabular_pipeline(DPSGDClassifier(n_iter=5), {**SCHEMA, "missing": (0, 1)})
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5, allow_seeded=True)
    with cluster_here(monkeypatch), ledger:
        rows = partitions(frame)
        with pytest.raises(RuntimeError, match="the best trial has no model") as caught:
            search(table, {"dpsgdclassifier__alpha": [0.1, 0.2]}).fit(rows, rows["label"])
    assert len(ledger) == 1 and caught.value.__context__ is None


def test_a_scheduler_and_workers_as_they_are(tmp_path):
    frame = FRAME.assign(label=Y)
    for i in range(5):
        frame.iloc[i::5].to_parquet(tmp_path / f"{i}.parquet")
    here = pd.concat([frame.iloc[i::5] for i in range(5)])
    rows, columns = dd.read_parquet(tmp_path), [*FRAME]
    model = search(DPSGDFClassifier(n_iter=3), {"clip_norm": [0.5, 1.0]})
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(2, **options) as cluster, Client(cluster):
        there = clone(model).fit(rows[columns], rows["label"])
        predicted = there.predict(rows[columns]).compute()
    here = clone(model).fit(here[columns], here["label"])
    assert_equal(here, there)
    assert len(predicted) == N


# Errors -----------------------------------------------------------------------------------------


REFUSED = {
    "jobs": (search(n_jobs=2), {}, "`n_jobs` must be 1 for Dask collections"),
    "steps": (
        search(make_pipeline(Normalizer(), FAST), {"dpsgdclassifier__alpha": [0.1, 0.2]}),
        {},
        "Normalizer, which a candidate has, does not take Dask",
    ),
    "one of them": (
        search(make_pipeline(None, FAST), {"nonetype": [None, Normalizer()]}),
        {},
        "Normalizer, which a candidate has, does not take Dask",
    ),
    "frozen": (
        search(make_pipeline(FrozenEstimator(StandardScaler().fit(X)), FAST), {}),
        {},
        "StandardScaler, which a candidate has, does not take Dask",
    ),
    "persons": (search(), {"groups": np.arange(N) // 2}, "does not take `groups`, since"),
    "no labels": (search(), {"y": None}, "requires y to be passed"),
    "labels": (search(), {"y": blocks(np.zeros(N, int))}, "fewer than two classes"),
    "missing": (search(), {"X": blocks(X * math.nan)}, "Input X contains NaN.* partition 0"),
    "rows to score": (
        search(validation_fraction=None),
        {"X_public_val": blocks(X), "y_public_val": Y},
        "`X_public_val` is a Dask collection",
    ),
    "public rows": (
        search(),
        {"X_public": (blocks(X),), "y_public": Y},
        r"`X_public\[0\]` is a Dask collection",
    ),
    "one of both": (search(), {"X": X}, "`y` is a Dask collection"),
}


@pytest.mark.parametrize(("model", "given", "match"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_charged(monkeypatch, model, given, match):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5, allow_seeded=True)
    rows = {"X": blocks(X), "y": blocks(Y), **given}
    with cluster_here(monkeypatch), ledger, pytest.raises(ValueError, match=match):
        model.fit(**rows)
    assert len(ledger) == 0 and not hasattr(model, "privacy_")


def test_blocks_of_these_lengths_are_uneven_and_some_are_empty():
    assert lengths(N)[2] == 0 and len({*lengths(N)}) > 4
