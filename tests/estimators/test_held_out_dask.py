"""Calibration and conformal prediction on Dask collections: what they find of rows in memory."""

import math
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask.array as da
import dask.dataframe as dd
from dask.distributed import Client, LocalCluster
from helpers import RELATIONS, choice_of
from in_parts import UNEVEN, blocks, cluster_here, partitions
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from dpsubspace import DPSGDClassifier, PrivacyError, PrivacyLedger, tabular_pipeline
from dpsubspace._rows.records import NullRecords
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)

N = 1201
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 3))
LABELS = np.array(["no", "yes", "so"])
Y2 = LABELS[(0.4 * X[:, 0] + 0.5 + _rng.logistic(size=N) > 0).astype(int)]
Y3 = LABELS[(0.5 * X + _rng.gumbel(size=X.shape)).argmax(axis=1)]
T = X[:, 0] + 0.3 * _rng.normal(size=N)


class Exact(ClassifierMixin, BaseEstimator):
    """Scores in the columns: no row is rounded by where others lie."""

    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.classes_ = LABELS[:n_classes]

    def fit(self, X, y):
        raise AssertionError("what is wrapped is never fitted")

    def predict_proba(self, X):
        X = np.asarray(X, dtype=float)
        if self.n_classes == 2:
            return np.column_stack([expit(-X[:, 0]), expit(X[:, 0])])
        return np.stack([softmax(row) for row in X])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class First(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        raise AssertionError("what is wrapped is never fitted")

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return np.asarray(X)[:, 0]


FITS = {
    "temperature": (DPCalibratedClassifier, Exact(3), Y3, {}),
    "sigmoid": (DPCalibratedClassifier, Exact(2), Y2, {"method": "sigmoid"}),
    "sets": (DPConformalClassifier, Exact(3), Y3, {}),
    "intervals": (DPConformalRegressor, First(), T, {}),
    "range": (DPConformalRegressor, First(), T, {"target_bounds": (-4, 4)}),
}


def wrapped(fit, **options):
    build, model, _, given = FITS[fit]
    return build(model, **({"random_state": 0} | given | options))


def found(fitted):
    """All that a fit has stored."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(fitted).items()
        if name.endswith("_") and name != "privacy_"
    }


def ledger_here():
    return PrivacyLedger(epsilon=1.0, delta=1e-5, allow_seeded=True)


def assert_equal(here, there):
    assert found(here) == found(there) and len(found(here)) >= 4
    assert here.privacy_.event == there.privacy_.event
    assert here.privacy_.public == there.privacy_.public


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.5, 20.0, math.inf])
def test_what_is_found_is_that_of_rows_in_memory(monkeypatch, fit, relation, epsilon):
    options, y = {"neighboring_relation": relation, "epsilon": epsilon}, FITS[fit][2]
    here = wrapped(fit, **options).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abc"))
    for rows, targets in ((blocks(X), blocks(y)), (partitions(frame), partitions(pd.Series(y)))):
        with cluster_here(monkeypatch) as cluster:
            there = wrapped(fit, **options).fit(rows, targets)
        assert len(cluster.parts) == 3
        assert_equal(here, there)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("shares", [(), (0.0, 0.2), (0.05,) * 19])
def test_cuts_and_workers_change_nothing(monkeypatch, fit, n_workers, shares):
    y = FITS[fit][2]
    with cluster_here(monkeypatch, n_workers):
        there = wrapped(fit).fit(blocks(X, shares), y)  # targets may be in memory
    assert_equal(wrapped(fit).fit(X, y), there)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n_workers", [1, 2])
def test_persons_whose_rows_lie_in_several_blocks(monkeypatch, fit, n_workers):
    y, people = FITS[fit][2], np.arange(N) * 7 % 600
    with cluster_here(monkeypatch, n_workers):
        there = wrapped(fit).fit(blocks(X), blocks(y), groups=blocks(people))
    here = wrapped(fit).fit(X, y, groups=people)
    assert_equal(here, there)
    assert there.privacy_.unit == "person" and there.privacy_.n_samples == 600


class Placed(Exact):
    """What it says of a row depends on its place among those that it is shown."""

    shown: ClassVar[list[int]] = []

    def predict_proba(self, X):
        self.shown.append(len(X))
        return np.roll(super().predict_proba(X), np.arange(len(X)).sum(), axis=1)


class PlacedFirst(First):
    shown: ClassVar[list[int]] = Placed.shown

    def predict(self, X):
        self.shown.append(len(X))
        return super().predict(X) * (1 + np.arange(len(X)))


@pytest.mark.parametrize("fit", FITS)
def test_rows_of_persons_are_shown_by_themselves_wherever_they_lie(monkeypatch, fit):
    """Those of one person together in memory, and one after the other where they are in blocks."""
    build, model, y, given = FITS[fit]
    placed = PlacedFirst() if isinstance(model, First) else Placed(model.n_classes)
    few, y, people = X[:200], y[:200], np.random.default_rng(1).permutation(200)
    fits = []
    with cluster_here(monkeypatch):
        for each, whose in ((few, people), (blocks(few), blocks(people)), (few, people // 2)):
            Placed.shown.clear()
            fits.append(build(placed, epsilon=20.0, random_state=0, **given))
            fits[-1].fit(each, y, groups=whose)
            assert set(Placed.shown) == {2 if len(fits) == 3 else 1}
    assert_equal(*fits[:2])


@pytest.mark.parametrize("fit", FITS)
def test_rows_of_null_records_are_shown_as_all_others_are(monkeypatch, fit):
    """Tests and audits compare a fit without them, in the same arithmetic."""
    build, model, y, given = FITS[fit]
    placed = PlacedFirst() if isinstance(model, First) else Placed(model.n_classes)
    fits, shown = [], []
    with cluster_here(monkeypatch):
        for groups in (None, NullRecords(None, np.ones(200, dtype=bool))):
            Placed.shown.clear()
            fits.append(build(placed, epsilon=20.0, random_state=0, **given))
            fits[-1].fit(blocks(X[:200]), blocks(y[:200]), groups=groups)
            shown.append([*Placed.shown])
    assert shown[0] == shown[1] and max(shown[0]) > 1
    assert_equal(*fits)


@pytest.mark.parametrize("fit", FITS)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, fit):
    def lose(cluster):
        if cluster.calls > 1:
            cluster.lose(cluster.calls % 3)

    y = FITS[fit][2]
    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        there = wrapped(fit).fit(blocks(X), blocks(y))
    assert cluster.calls == 2  # what is public of the parts, and one sum
    assert_equal(wrapped(fit).fit(X, y), there)
    first, *results = cluster.results
    assert set(first.kinds) == {"rows", "said", "first"}  # what the model says, and no features
    for result in results:
        assert not isinstance(result, np.ndarray) or N not in result.shape


@pytest.mark.parametrize("fit", FITS)
def test_too_few_rows_release_and_cost_nothing(monkeypatch, fit):
    y, options = FITS[fit][2], {"epsilon": 1e-4}
    few = pytest.warns(match="too few")
    with cluster_here(monkeypatch), ledger_here() as ledger, few:
        there = wrapped(fit, **options).fit(blocks(X), blocks(y))
    assert ledger.epsilon() == 0
    with pytest.warns(match="too few"):
        assert_equal(wrapped(fit, **options).fit(X, y), there)


def test_a_scheduler_and_workers_as_they_are(tmp_path):
    """Files of which one column is read as a target: Dask would join their small partitions."""
    frame = pd.DataFrame(X, columns=list("abc")).assign(label=Y3)
    for i in range(5):
        frame.iloc[241 * i : 241 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
    rows = dd.read_parquet(tmp_path)
    options = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(2, **options) as cluster, Client(cluster):
        there = wrapped("sets").fit(rows[["a", "b", "c"]], rows["label"])
        sets = there.predict_set(rows[["a", "b", "c"]]).compute()
    here = wrapped("sets").fit(X, Y3)
    assert_equal(here, there)
    np.testing.assert_array_equal(sets, here.predict_set(X))


# What is predicted ------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("form", ["array", "frame"])
def test_predictions_are_lazy_and_those_of_rows_in_memory(fit, form):
    y, frame = FITS[fit][2], pd.DataFrame(X, columns=list("abc"))
    rows, targets = {
        "array": (blocks(X), blocks(y)),
        "frame": (partitions(frame), partitions(pd.Series(y))),
    }[form]
    model, methods = wrapped(fit, epsilon=5.0).fit(X, y), ["predict"]
    methods += ["predict_proba"] if hasattr(model, "predict_proba") else []
    methods += {"sets": ["predict_set"], "intervals": ["predict_interval"]}.get(fit, [])
    for name in methods:
        here, there = getattr(model, name)(X), getattr(model, name)(rows)
        assert isinstance(there, da.Array) and there.dtype == here.dtype
        assert there.ndim == here.ndim and there.numblocks[0] == len(UNEVEN) + 1
        np.testing.assert_array_equal(there.compute(scheduler="sync"), here)
    weights = np.arange(N) % 3
    for given in ({}, {"sample_weight": blocks(weights) if form == "array" else None}):
        alone = {} if given.get("sample_weight") is None else {"sample_weight": weights}
        expected = model.score(X, y, **alone)
        assert abs(model.score(rows, targets, **given) - expected) < 1e-12


def test_what_is_not_fitted_predicts_nothing():
    for fit in FITS:
        with pytest.raises(NotFittedError):
            wrapped(fit).predict(blocks(X))


# Bounds over blocks -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`X` has rows that this:dpsubspace.PrivacyWarning")
def test_a_table_with_text(monkeypatch):
    schema = {"a": (-4, 4), "b": (-4, 4), "sex": ["f", "m"]}
    sex = np.random.default_rng(0).choice(["f", "m", "?"], N)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "sex": sex})
    inner = tabular_pipeline(DPSGDClassifier(random_state=0), schema, epsilon=3.0).fit(frame, Y2)
    # Products of a row are rounded by where it lies, in float32: of 1,201 rows, about one in a
    # hundred tables has one that changes its cell, and ten in one have a chance of 1e-26.
    for build, apart in ((DPCalibratedClassifier, 0.01), (DPConformalClassifier, 10)):
        model, rows, y = build(inner, epsilon=5.0), partitions(frame), partitions(pd.Series(Y2))
        here = choice_of(monkeypatch, model.fit, frame, Y2)
        with cluster_here(monkeypatch):
            there = choice_of(monkeypatch, model.fit, rows, y)
        assert np.abs(here.value - there.value).max() <= apart < np.ptp(here.value)
        chances = model.predict_proba(rows).compute(scheduler="sync")
        np.testing.assert_allclose(chances, model.predict_proba(frame), atol=1e-5)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("place", [0, 121, 400, N - 1])
@pytest.mark.parametrize("extreme", [9.0, 1e300])
def test_one_row_moves_scores_within_their_bounds(monkeypatch, fit, relation, place, extreme):
    y, present = FITS[fit][2], np.ones(N, dtype=bool)
    other, other_y = X.copy(), y.copy()
    if relation == "zero_out":
        present[place] = False
    else:
        other[place] = [-extreme, 0, extreme]
        other_y[place] = -extreme if fit in ("intervals", "range") else LABELS[1]

    def run(X, y, present):
        with cluster_here(monkeypatch):
            model = wrapped(fit, neighboring_relation=relation, epsilon=5.0)
            model.fit(blocks(X), blocks(y), groups=NullRecords(None, present))

    here = choice_of(monkeypatch, run, X, y, np.ones(N, dtype=bool))
    there = choice_of(monkeypatch, run, other, other_y, present)
    assert (here.norm_bound, here.replace_bound) == (there.norm_bound, there.replace_bound)
    bound = here.norm_bound if relation == "zero_out" else here.replace_bound
    moves = here.value - there.value
    assert np.isfinite(moves).all() and 0 < np.ptp(moves) <= bound


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_person_moves_scores_within_their_bounds(monkeypatch, fit, relation):
    """All rows of a person, in several blocks: of the replaced one, the label is another."""
    y, people = FITS[fit][2], np.arange(N) * 7 % 300
    theirs, other, other_y, present = people == 21, X.copy(), y.copy(), np.ones(N, dtype=bool)
    if relation == "zero_out":
        present = ~theirs
    else:
        other[theirs] = [-9.0, 0, 9.0]
        other_y[theirs] = -9.0 if fit in ("intervals", "range") else LABELS[1]

    def run(X, y, present):
        with cluster_here(monkeypatch):
            model = wrapped(fit, neighboring_relation=relation, epsilon=5.0)
            model.fit(blocks(X), blocks(y), groups=NullRecords(blocks(people), present))

    here = choice_of(monkeypatch, run, X, y, np.ones(N, dtype=bool))
    there = choice_of(monkeypatch, run, other, other_y, present)
    bound = here.norm_bound if relation == "zero_out" else here.replace_bound
    moves = here.value - there.value
    assert theirs.sum() > 3 and 0 < np.ptp(moves) <= bound


# Errors -----------------------------------------------------------------------------------------


class Fails(Exact):
    def predict_proba(self, X):
        return np.ones((len(X), 5))


BAD = {
    "labels": (DPConformalClassifier(Exact(2)), X, Y3, r"not in `classes_`.* partition 0, counted"),
    "numbers": (DPConformalRegressor(First()), X, Y2, "entries that are not numbers.* partition 0"),
    "infinite": (DPConformalRegressor(First()), X, T * math.inf, "NaN or infinity.* partition 0"),
    "outputs": (DPConformalClassifier(Fails(2)), X, Y2, "must give 2 probabilities a row"),
    "no y": (DPCalibratedClassifier(Exact(2)), X, None, "requires y to be passed"),
    "lengths": (DPCalibratedClassifier(Exact(2)), X, Y2[:-1], "inconsistent numbers of samples"),
    "one axis": (DPCalibratedClassifier(Exact(2)), X[:, 0], Y2, "Expected 2D array for `X`"),
    "width": (
        DPCalibratedClassifier(LogisticRegression().fit(X, Y2)),
        X[:, :2],
        Y2,
        "X has 2 features, but the estimator is expecting 3",
    ),
}


@pytest.mark.parametrize(("model", "rows", "y", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_and_costs_nothing(monkeypatch, model, rows, y, match):
    targets = None if y is None else blocks(y)
    refused = pytest.raises(ValueError, match=match)
    with cluster_here(monkeypatch), ledger_here() as ledger, refused as caught:
        model.fit(blocks(rows), targets)
    assert len(ledger) == 0 and not hasattr(model, "privacy_")
    assert caught.value.__context__ is None  # which would name a label


def test_what_else_is_refused(monkeypatch):
    model = DPCalibratedClassifier(Exact(2))
    unknown = blocks(X)[:, da.from_array(np.ones(3, dtype=bool), chunks=3)]
    with (
        cluster_here(monkeypatch) as cluster,
        ledger_here() as ledger,
    ):
        with pytest.raises(ValueError, match="`y` is a Dask collection"):
            model.fit(X, blocks(Y2))
        with pytest.raises(ValueError, match="known number of columns"):
            model.fit(unknown, blocks(Y2))
        assert not cluster.sent
    assert len(ledger) == 0


def test_a_ledger_charges_it_once_and_refuses_what_is_too_much(monkeypatch):
    model = DPConformalClassifier(Exact(2), epsilon=0.6)
    with cluster_here(monkeypatch), ledger_here() as ledger:
        model.fit(blocks(X), blocks(Y2))
        with pytest.raises(PrivacyError):
            model.fit(blocks(X), blocks(Y2))
    assert len(ledger) == 1
