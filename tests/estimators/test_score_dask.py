"""Scores of Dask collections: those of the same rows in memory."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask.array as da
from helpers import RELATIONS, groups_of, pairs_first, replaced
from in_parts import UNEVEN, blocks, cluster_here, partitions
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from dpsubspace import DPSGDClassifier, PrivacyLedger, private_score, tabular_pipeline
from dpsubspace._core.release.mechanisms import release_laplace
from dpsubspace._core.rows.records import NullRecords
from dpsubspace.metrics import (
    PrivateCalibrationDisplay,
    PrivateRocCurveDisplay,
    private_score_difference,
)

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

N, SEEDED = 1201, {"epsilon": 1.0, "random_state": 0}
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 3))
FRAME = pd.DataFrame(X, columns=list("abc")).assign(
    sex=_rng.choice(["f", "m", "?"], N, p=[0.6, 0.35, 0.05])
)
Y2 = (X[:, 0] + _rng.logistic(size=N) > 0).astype(int)
Y3 = np.digitize(X[:, 0] + 0.3 * _rng.normal(size=N), [-0.5, 0.5])
T = X[:, 0] + 0.3 * _rng.normal(size=N)


class Exact(ClassifierMixin, BaseEstimator):
    """Log-odds in single columns: no row is rounded by where others lie."""

    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)

    def predict_proba(self, X):
        columns = np.asarray(X[["a", "b", "c"]] if hasattr(X, "columns") else X, dtype=float)
        if self.n_classes == 2:
            chance = expit(columns[:, 0])
            return np.stack([1 - chance, chance], axis=1)
        scores = np.stack([np.exp(3 * columns[:, 0] * i) for i in (-1, 0, 1)], axis=1)
        return scores / (scores[:, :1] + scores[:, 1:2] + scores[:, 2:])

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


class Decides(ClassifierMixin, BaseEstimator):
    classes_ = np.arange(2)

    def decision_function(self, X):
        return np.asarray(X)[:, 0]

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)


class Guess(RegressorMixin, BaseEstimator):
    def predict(self, X):
        return np.asarray(X)[:, 0]


TWO = ["accuracy", "roc_auc", "roc_curve", "calibration_curve", "log_loss", "brier_score_loss"]
CALLS = {
    "two classes": (Exact(2), Y2, {"metric": TWO}),
    "accuracy": (Exact(2), Y2, {}),
    "labels": (Exact(2), Y2, {"metric": ["f1", "confusion_matrix"]}),
    "decisions": (Decides(), Y2, {"metric": ["roc_auc", "recall"]}),
    "three classes": (Exact(3), Y3, {"metric": ["roc_auc_ovr", "f1_macro", "log_loss"]}),
    "numbers": (
        Guess(),
        T,
        {"metric": ["mean_absolute_error", "root_mean_squared_error"], "target_bounds": (-4, 4)},
    ),
}
BY = {"no groups": None, "groups": {"sex": ["f", "m"]}}


def scored(call, X, y=None, **options):
    model, targets, given = CALLS[call]
    return private_score(model, X, targets if y is None else y, **(SEEDED | given | options))


def numbers(score):
    """All numbers of scores."""
    each = score.values() if isinstance(score, dict) else [score]
    for one in each:
        yield from (one.value, one.low, one.high)
        if one.curve is not None:
            yield from numbers(one.curve)
        for group in (one.by or {}).values():
            yield from numbers(group)


def assert_equal(one, other):
    assert one.privacy_.event == other.privacy_.event
    assert one.privacy_.public == other.privacy_.public
    pairs = [*zip(numbers(one), numbers(other), strict=True)]
    assert pairs
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def rows_of(call, by, shares=UNEVEN):
    """Rows with a column of groups where there are such, in memory and in partitions."""
    if BY[by] is not None or call == "numbers":
        return FRAME, partitions(FRAME, shares)
    return X, blocks(X, shares)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("by", BY)
def test_the_release_is_that_of_rows_in_memory(monkeypatch, call, relation, by):
    here, there = rows_of(call, by)
    options = {"neighboring_relation": relation, "by": BY[by]}
    y = CALLS[call][1]
    targets = blocks(y) if isinstance(there, da.Array) else partitions(pd.Series(y))
    with cluster_here(monkeypatch) as cluster:
        found = scored(call, there, targets, **options)
    assert len(cluster.parts) == 3
    assert_equal(scored(call, here, **options), found)


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("shares", [(), (0.0, 0.2), (0.05,) * 19])
def test_cuts_and_workers_change_nothing(monkeypatch, n_workers, shares):
    for call in ("two classes", "numbers"):
        here, there = rows_of(call, "groups", shares)
        targets = partitions(pd.Series(CALLS[call][1]), shares)
        options = {"by": BY["groups"]}
        with cluster_here(monkeypatch, n_workers):
            found = scored(call, there, targets, **options)
        assert_equal(scored(call, here, **options), found)


def test_a_table_and_its_groups_by_the_schema(monkeypatch):
    schema = {"a": (-4, 4), "b": (-4, 4), "sex": ["f", "m"]}
    rows, columns = partitions(FRAME.assign(y=Y2)), list(schema)
    model = tabular_pipeline(DPSGDClassifier(), schema, epsilon=3.0).fit(FRAME[columns], Y2)
    with cluster_here(monkeypatch):
        found = private_score(model, rows[columns], rows["y"], by="sex", **SEEDED)
    # Products of a row are rounded by where it lies: a row may change sides.
    here = private_score(model, FRAME[columns], Y2, by="sex", **SEEDED)
    assert abs(float(found) - float(here)) <= 2 / N
    assert found.by.keys() == here.by.keys() and found.privacy_.event == here.privacy_.event


def test_pictures_are_of_the_same_release(monkeypatch):
    with cluster_here(monkeypatch):
        roc = PrivateRocCurveDisplay.from_estimator(Exact(2), blocks(X), blocks(Y2), epsilon=1.0)
        calibration = PrivateCalibrationDisplay.from_estimator(
            Exact(2), blocks(X), blocks(Y2), epsilon=1.0
        )
    assert roc.privacy.epsilon == calibration.privacy.epsilon == 1.0


# Bounds over blocks -----------------------------------------------------------------------------


def totals(monkeypatch, call, outputs=None):
    """Sums that a call releases, which is given `outputs` of another one."""
    seen = []

    def recording(total, epsilon, noise, **options):
        out = release_laplace(total, epsilon, noise, **options)
        out = out if outputs is None else outputs[len(seen)][1]
        seen.append((total, out))
        return out

    with monkeypatch.context() as patch:
        replaced(patch, release_laplace, recording)
        call()
    return seen


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("place", [0, 400, N - 1])
def test_one_row_moves_each_release_within_its_bound(monkeypatch, call, relation, by, place):
    y, present = CALLS[call][1], np.ones(N, dtype=bool)
    other, other_y = FRAME.copy(), np.array(y)
    if relation == "zero_out":
        present[place] = False
    else:
        other.loc[place, ["a", "b", "c"]] = 6.0
        other.loc[place, "sex"] = "m" if other.loc[place, "sex"] == "f" else "f"
        other_y[place] = -4.0 if call == "numbers" else (other_y[place] + 1) % (1 + y.max())
    options = {"neighboring_relation": relation, "by": BY[by]}

    def run(frame, y, **more):
        X = partitions(frame) if BY[by] else partitions(frame[["a", "b", "c"]])
        with cluster_here(monkeypatch):
            scored(call, X, partitions(pd.Series(y)), **options, **more)

    first = totals(monkeypatch, lambda: run(FRAME, y))
    second = totals(
        monkeypatch, lambda: run(other, other_y, groups=NullRecords(None, present)), first
    )
    assert len(first) == len(second) > 0
    moves = []
    for (one, _), (two, _) in zip(first, second, strict=True):
        bound = one.norm_bound if relation == "zero_out" else one.replace_bound
        assert (one.norm_bound, one.replace_bound) == (two.norm_bound, two.replace_bound)
        move = np.abs(np.asarray(one.value) - np.asarray(two.value)).sum()
        assert move <= bound * (1 + 1e-12)
        moves.append(move)
    assert max(moves) > 0 or call == "accuracy"  # of a row that is predicted wrongly


def test_rows_of_null_records_are_shown_as_all_others_are(monkeypatch):
    """Tests and audits compare a score without them, in the same arithmetic."""
    CALLS["blocks"], found = (Rounded(2), Y2, {"metric": TWO}), []
    try:
        for groups in (None, NullRecords(None, np.ones(N, dtype=bool))):
            with cluster_here(monkeypatch):
                run = partial(scored, "blocks", blocks(X), blocks(Y2), groups=groups)
                found.append(totals(monkeypatch, run))
    finally:
        del CALLS["blocks"]
    for (one, _), (two, _) in zip(*found, strict=True):
        np.testing.assert_array_equal(one.value, two.value)


@pytest.mark.parametrize("call", ["two classes", "numbers"])
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, call):
    def lose(cluster):
        if cluster.calls > 1:
            cluster.lose(cluster.calls % 3)

    here, there = rows_of(call, "groups")
    options = {"by": BY["groups"]}
    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        found = scored(call, there, partitions(pd.Series(CALLS[call][1])), **options)
    assert cluster.calls > 2
    assert_equal(scored(call, here, **options), found)


@pytest.mark.parametrize("call", CALLS)
def test_parts_hold_what_the_model_says_and_no_rows(monkeypatch, call):
    there = rows_of(call, "groups")[1]
    with cluster_here(monkeypatch) as cluster:
        scored(call, there, partitions(pd.Series(CALLS[call][1])), by=BY["groups"])
    known = {"rows", "scores", "predicted", "group", "first", "hit", "loss", "brier", "error", "t"}
    first, *results = cluster.results
    assert set(first.kinds) <= known
    for result in results:
        assert not isinstance(result, np.ndarray) or N not in result.shape


# Persons ----------------------------------------------------------------------------------------

# Rows of 120 persons, all over a part of the table: each row is shown to the model by itself.
N_ROWS, N_PERSONS = 263, 120
WHO = _rng.permutation(np.r_[np.arange(120), _rng.integers(0, 120, N_ROWS - N_PERSONS)])
HEAVY = 37  # rows of the person who changes
LEGIBLE = {"epsilon": 30.0}


def in_partitions(array):
    return partitions(pd.Series(array))


@pytest.mark.parametrize(
    ("call", "relation", "by", "n_workers"), pairs_first(CALLS, RELATIONS, BY, [1, 2])
)
def test_scores_of_persons_are_those_in_memory(monkeypatch, call, relation, by, n_workers):
    y, rows = CALLS[call][1][:N_ROWS], FRAME[:N_ROWS]
    here, cut = (rows, in_partitions) if BY[by] else (X[:N_ROWS], blocks)
    there = partitions(rows) if BY[by] else blocks(here)
    options = LEGIBLE | {"neighboring_relation": relation, "by": BY[by]}
    with cluster_here(monkeypatch, n_workers):
        found = scored(call, there, cut(y), groups=cut(WHO), **options)
    assert_equal(scored(call, here, y, groups=WHO, **options), found)
    assert (found.privacy_.unit, found.privacy_.n_samples) == ("person", N_PERSONS)


class Rounded(Exact):
    """What it says of a row depends on where that lies, and on how many others there are."""

    def predict_proba(self, X):
        found, n = super().predict_proba(X), len(X)
        shift = 1e-6 * (n + np.arange(n))[:, None] * np.linspace(-1, 1, self.n_classes)
        return np.clip(found + shift, 0, 1)


def with_person(y, n, row, label):
    """Rows with `n` of one person more among them."""
    index = np.insert(np.arange(N_ROWS), np.random.default_rng(1).integers(0, N_ROWS, n), N_ROWS)
    frame = pd.concat([FRAME[:N_ROWS], pd.DataFrame([row])], ignore_index=True).iloc[index]
    labels, who = np.append(y[:N_ROWS], label)[index], np.append(WHO, N_PERSONS)[index]
    return frame.reset_index(drop=True), labels, who


@pytest.mark.parametrize(
    ("call", "relation", "by"), pairs_first(CALLS, RELATIONS, BY, together=(0, 1))
)
def test_all_rows_of_a_person_move_each_release_within_its_bound(monkeypatch, call, relation, by):
    """Their number moves rows of others to other blocks, where a model may say otherwise."""
    model, y, given = CALLS[call]
    model = Rounded(model.n_classes) if isinstance(model, Exact) else model
    options = SEEDED | given | LEGIBLE | {"neighboring_relation": relation, "by": BY[by]}

    def run(data, *, null=False):
        frame, y, who = data
        rows, groups = frame if BY[by] else frame[["a", "b", "c"]], in_partitions(who)
        present = in_partitions(who != N_PERSONS) if null else None
        with cluster_here(monkeypatch):
            groups = groups_of(present, groups)
            private_score(model, partitions(rows), in_partitions(y), groups=groups, **options)

    row = {"a": 6.0, "b": 6.0, "c": 6.0, "sex": "f"}
    here = there = with_person(y, HEAVY, row, low := -4.0 if call == "numbers" else 0)
    if relation == "zero_out":
        there = with_person(y, 1, row, low)
    else:
        other = low if call == "numbers" else y.max()
        there = with_person(y, 1, row | {"a": -6.0, "sex": "m"}, other)
    first = totals(monkeypatch, lambda: run(here))
    second = totals(monkeypatch, lambda: run(there, null=relation == "zero_out"), first)
    assert len(first) == len(second) > 0
    moves = []
    for (one, _), (two, _) in zip(first, second, strict=True):
        bound = one.norm_bound if relation == "zero_out" else one.replace_bound
        assert (one.norm_bound, one.replace_bound) == (two.norm_bound, two.replace_bound)
        moves.append(np.abs(np.asarray(one.value) - np.asarray(two.value)).sum() / bound)
    assert max(moves) <= 1 + 1e-12
    assert max(moves) > 0.1 or call == "accuracy"  # of a person who is predicted wrongly


def test_parts_of_persons_hold_what_the_model_says_and_no_rows(monkeypatch):
    rows, y, who = partitions(FRAME[:N_ROWS]), in_partitions(Y2[:N_ROWS]), in_partitions(WHO)
    with cluster_here(monkeypatch) as cluster:
        scored("two classes", rows, y, by=BY["groups"], groups=who, **LEGIBLE)
    seen, results = cluster.results[:3], cluster.results[3:]
    known = {"rows", "scores", "predicted", "group", "hit", "loss", "brier", "persons", "held"}
    assert all(set(each.kinds) <= known for each in seen)
    for result in results:
        assert not isinstance(result, np.ndarray) or not {N_ROWS, N_PERSONS} & set(result.shape)


SHOWN = []  # how many rows, in each call


class Counting(Exact):
    def predict(self, X):
        SHOWN.append(len(X))
        return super().predict(X)


def test_the_model_is_shown_each_row_of_persons_by_itself(monkeypatch):
    """What it says of one does not follow from how many rows of others are in its block."""
    SHOWN.clear()
    rows, y = blocks(X[:N_ROWS]), blocks(Y2[:N_ROWS])
    with cluster_here(monkeypatch):
        private_score(Counting(2), rows, y, groups=blocks(WHO), **SEEDED)
    assert SHOWN == [1] * N_ROWS


# Errors -----------------------------------------------------------------------------------------


def test_what_cannot_be_scored_is_refused_and_costs_nothing(monkeypatch):
    rows, y = partitions(FRAME), partitions(pd.Series(Y2))
    with cluster_here(monkeypatch) as cluster, PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        plain = {"epsilon": 0.5}
        for words, given in {
            "`by` must name a column where `X` is a Dask": {"by": (FRAME["sex"], ["f", "m"])},
            "`X` lacks the columns \\['ward'\\]": {"by": {"ward": ["A", "B"]}},
            "no schema of the model says": {"by": "sex"},
            "`epsilon`=inf looks at all scores": {"metric": "roc_auc", "epsilon": math.inf},
        }.items():
            with pytest.raises(ValueError, match=words):
                private_score(Exact(2), rows, y, **(plain | given))
        assert not cluster.sent
        with pytest.raises(ValueError, match="`groups` is in memory and the lengths of the blocks"):
            private_score(Exact(2), rows, y, groups=np.arange(N), **plain)
        with pytest.raises(ValueError, match=r"not in `model.classes_`.* partition 0, counted"):
            private_score(Exact(2), rows, partitions(pd.Series(Y2 + 7)), **plain)
        with pytest.raises(ValueError, match="`y` is a Dask collection"):
            private_score(Exact(2), FRAME, y, **plain)
        with pytest.raises(ValueError, match="requires y to be passed"):
            private_score(Exact(2), rows, None, **plain)
    assert len(ledger) == 0


def test_sums_without_noise_are_exact(monkeypatch):
    with cluster_here(monkeypatch):
        found = private_score(Exact(2), blocks(X), blocks(Y2), epsilon=math.inf)
    assert float(found) == (Exact(2).predict(X) == Y2).mean()


class Other(Exact):
    """A model to compare with, of which the first column says nothing."""

    def predict_proba(self, X):
        return super().predict_proba(np.asarray(X, dtype=float)[:, [1, 0, 2]])


DIFFERENCES = {
    "accuracy": (Exact(2), Other(2), Y2, {}),
    "f1": (Exact(2), Other(2), Y2, {}),
    "roc_auc": (Exact(2), Other(2), Y2, {}),
    "log_loss": (Exact(3), Other(3), Y3, {}),
    "r2": (Guess(), Decides(), T, {"target_bounds": (-4, 4)}),
}


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("metric", DIFFERENCES)
def test_a_difference_is_that_of_rows_in_memory(monkeypatch, metric, persons):
    *models, y, options = DIFFERENCES[metric]
    options = SEEDED | {"metric": metric, "epsilon": 5.0} | options
    people = np.arange(N) // 2
    groups = {"groups": people} if persons else {}
    here = private_score_difference(*models, X, y, **options, **groups)
    groups = {"groups": blocks(people)} if persons else {}
    with cluster_here(monkeypatch):
        there = private_score_difference(*models, blocks(X), blocks(y), **options, **groups)
    assert here.privacy_.event == there.privacy_.event
    assert (here.value, here.low, here.high) == (there.value, there.low, there.high)
