"""What is chosen on held-out rows: how far one record moves scores, and what it tells of itself."""

import math
from typing import ClassVar

import numpy as np
import pytest
from cases import CASES, FORMS, RECORDS
from helpers import RELATIONS, blobs, pairs_first, replaced
from sklearn.linear_model import LogisticRegression
from test_persons import neighbours as neighbours_of_persons

from dpsubspace._core.release.mechanisms import release_choice
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import rank_scores, root_scores, sums_of_records
from dpsubspace.calibration import DPCalibratedClassifier, DPConformalClassifier

HELD_OUT = [case for case in CASES if case.choice and case.name != "select_public"]
BOUNDS = {"DPCalibratedClassifier": {"zero_out": 2.0, "replace_one": 4.0}}
BOUNDS_OF_RANKS = dict.fromkeys(RELATIONS, 2.0)


def scores_of(monkeypatch, case, *args, **options):
    """Scores that a choice is made by, and its epsilon."""
    seen = []

    def recording(scores, epsilon, *rest, **kwargs):
        seen.append((scores, epsilon))
        return release_choice(scores, epsilon, *rest, **kwargs)

    with monkeypatch.context() as patch:
        replaced(patch, release_choice, recording)
        case.fit(*args, **options)
    assert len(seen) == 1
    return seen[0]


def assert_hidden(here, there, relation, name):
    """Scores move apart by no more than their bound, and probabilities by no more than epsilon."""
    (here, epsilon), (there, same) = here, there
    bound = {"zero_out": here.norm_bound, "replace_one": here.replace_bound}[relation]
    assert epsilon == same
    expected = BOUNDS.get(name, BOUNDS_OF_RANKS)[relation]
    assert expected <= bound < expected * (1 + 1e-6)  # which rounding may add
    moves = here.value - there.value
    assert np.isfinite(here.value).all() and moves.max() - moves.min() <= bound
    logs = [epsilon * scores.value / bound for scores in (here, there)]
    logs = [log - log.max() - math.log(np.exp(log - log.max()).sum()) for log in logs]
    assert np.abs(logs[0] - logs[1]).max() <= epsilon + 1e-9


def fits():
    for case in HELD_OUT:
        yield from pairs_first(
            case.settings, RELATIONS, RECORDS, FORMS, prefix=(case,), together=(0, 1)
        )


@pytest.mark.parametrize(("case", "setting", "relation", "record", "form"), fits(), ids=str)
def test_one_record_moves_scores_within_their_bounds(
    monkeypatch, case, setting, relation, record, form
):
    X, y = blobs(n=41)
    other, mask = X.copy(), None
    X[0], other[0] = RECORDS[record](X)
    if relation == "zero_out":
        other, mask = X, np.arange(41) > 0
    options = {"setting": setting, "relation": relation}
    here = scores_of(monkeypatch, case, FORMS[form](X), y, **options)
    there = scores_of(monkeypatch, case, FORMS[form](other), y, present=mask, **options)
    assert_hidden(here, there, relation, case.name)


@pytest.mark.parametrize(("case", "setting", "relation", "record", "form"), fits(), ids=str)
def test_all_rows_of_a_person_move_scores_within_their_bounds(
    monkeypatch, case, setting, relation, record, form
):
    """The number of rows changes along, so that all later rows lie elsewhere."""
    here, there, present = neighbours_of_persons(41, relation, record)
    found, options = [], {"setting": setting, "relation": relation}
    for (X, y, groups), mask in ((here, None), (there, present)):
        rows = FORMS[form](X)
        found.append(scores_of(monkeypatch, case, rows, y, groups=groups, present=mask, **options))
    assert_hidden(*found, relation, case.name)


class Watching(LogisticRegression):
    """How many rows it is shown together."""

    shown: ClassVar[list[int]] = []

    def predict_proba(self, X):
        self.shown.append(len(X))
        return super().predict_proba(X)


@pytest.mark.parametrize("build", [DPCalibratedClassifier, DPConformalClassifier])
def test_rows_of_each_person_are_shown_by_themselves(build):
    X, y = blobs(n=200, n_classes=2)
    model = Watching().fit(X, y)
    for people, together in ((None, [200]), (np.arange(200) // 2, [2] * 100)):
        Watching.shown.clear()
        build(model, epsilon=20.0, random_state=0).fit(X.copy(), y, groups=people)
        assert Watching.shown == together


def test_the_bounds_are_tight():
    """A record that pulls one sum up and another down, and a rank between two candidates."""
    totals = np.array([[5.0], [-5.0]])
    for moved, name in ((np.array([[1.0], [1.0]]), "norm_bound"), (2.0, "replace_bound")):
        here, there = (root_scores(t, 0.0, np.zeros(2)) for t in (totals, totals + moved))
        assert np.ptp(here.value - there.value) == getattr(here, name)
    here = rank_scores(np.array([3.0, 1.0, 3.0]), 4.0)
    there = rank_scores(np.array([2.0, 1.0, 3.0]), 4.0)
    np.testing.assert_array_equal(here.value, [-1, 0, 0])
    np.testing.assert_array_equal(there.value, [-2, -1, 0])
    low, high = np.array([9.0, 0.0, 0.0, 9.0]), np.array([8.0, 0.0, 0.0, 9.0])
    for rank in (5.0, 12.0):
        here, there = (rank_scores(counts, rank) for counts in (low, high))
        assert np.ptp(here.value - there.value) <= here.norm_bound


def test_the_value_of_a_rank_has_the_best_score_where_many_are_tied(rng):
    counts = rng.integers(0, 30, size=40).astype(float)
    counts[::3] = 0
    values = np.repeat(np.arange(40), counts.astype(int))
    for rank in (1, 7, len(values) // 2, len(values)):
        scores = rank_scores(counts, rank).value
        assert scores[values[rank - 1]] == 0 == scores.max()


@pytest.mark.parametrize("wild", [-3.0, 7.0, np.nan, np.inf, -np.inf])
def test_what_a_record_brings_is_a_number_up_to_1(wild):
    for records in (Records.of_rows(2), Records.of_groups(np.array([0, 0]), 1)):
        columns = np.array([wild, 0.5]), np.zeros(2)
        totals, slack = sums_of_records(columns, records)
        assert -0.5 <= totals[0] <= 1.5 and totals[1] == 0 and 0 < slack < 1e-9


def summed(column, records):
    return sums_of_records([column], records)


def test_sums_do_not_depend_on_the_order_of_rows(rng):
    column, index = rng.normal(size=3000), rng.integers(0, 700, size=3000)
    order = rng.permutation(3000)
    one, other = (
        summed(column[rows], Records.of_groups(index[rows], 700))[0]
        for rows in (np.arange(3000), order)
    )
    assert abs(one - other) <= summed(column, Records.of_rows(700))[1]
    plain = [summed(column[rows], Records.of_rows(3000))[0] for rows in (..., order)]
    assert plain[0] == plain[1]
