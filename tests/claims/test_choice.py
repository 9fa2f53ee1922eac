"""The exponential mechanism: what it draws, how far one record moves scores, and what it costs."""

import math
from collections import Counter

import numpy as np
import pytest
from cases import CASES, FORMS, RECORDS
from helpers import (
    RARE,
    RELATIONS,
    SeededNoise,
    blobs,
    choice_of,
    pairs_first,
    public_rows,
    thinned,
)
from scipy import sparse, stats

from dpsubspace import GEPClassifier, PrivacyLedger, select_public
from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.events import bounded_range
from dpsubspace._core.release.mechanisms import BoundedScores, release_choice, score_sum
from dpsubspace._core.release.noise import SecureNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import ScoreTotal

CHOICE = {case.name: case for case in CASES}["select_public"]
UNIT = {"zero_out": 1.0, "replace_one": 2.0}


# What is drawn ----------------------------------------------------------------------------------


def frequencies(epsilon, relation, source, n=40_000):
    scores = score_sum(np.array([3.0, 0.0, 5.0, 4.5]))
    found = Counter(
        release_choice(scores, epsilon, source, neighboring_relation=relation) for _ in range(n)
    )
    return np.array([found[j] for j in range(4)])


@pytest.mark.parametrize("relation", thinned(RELATIONS[::-1]))
def test_names_are_drawn_with_the_probabilities_of_the_exponential_mechanism(relation):
    found = frequencies(0.8, relation, SeededNoise(3))

    def p_value(epsilon):
        weights = np.exp(epsilon * np.array([3.0, 0.0, 5.0, 4.5]) / UNIT[relation])
        return stats.chisquare(found, weights / weights.sum() * found.sum()).pvalue

    assert p_value(0.8) > RARE
    assert p_value(0.64) < RARE and p_value(0.96) < RARE  # the test has power


def test_names_are_drawn_from_secure_noise_too():
    found = frequencies(0.8, "zero_out", SecureNoise(), n=10_000)
    weights = np.exp(0.8 * np.array([3.0, 0.0, 5.0, 4.5]))
    assert stats.chisquare(found, weights / weights.sum() * found.sum()).pvalue > RARE


def test_exponentials_are_exponential_and_as_precise_near_zero():
    drawn = SeededNoise(0).exponentials((100_000,))
    assert stats.kstest(drawn, "expon").pvalue > RARE
    assert stats.kstest(1.07 * drawn, "expon").pvalue < RARE
    # Bits of which the first to be 1 comes late: a plain uniform would end at 1e-16.
    late = lambda self, shape: np.full(shape, 1 << 13, np.uint64)  # noqa: E731
    zeros = type("Zeros", (SeededNoise,), {"_bits": late})
    assert 0 < zeros(0).exponentials((1,))[0] < 1e-18


@pytest.mark.parametrize("epsilon", thinned([0.1, 1e-4, 30.0, 1e6]))
def test_a_far_better_name_is_always_drawn_and_equal_ones_alike(epsilon):
    noise = SeededNoise(0)
    scores = score_sum(np.array([0.0, 1e9]))
    options = {"neighboring_relation": "replace_one"}
    assert {release_choice(scores, epsilon, noise, **options) for _ in range(100)} == {1}
    equal = score_sum(np.full(3, 7.0))
    found = Counter(release_choice(equal, epsilon, noise, **options) for _ in range(6000))
    assert stats.chisquare([found[j] for j in range(3)]).pvalue > RARE


def test_without_noise_the_first_of_the_best_is_chosen():
    scores = score_sum(np.array([1.0, 2.0, 2.0]))
    options = {"neighboring_relation": "zero_out"}
    assert release_choice(scores, math.inf, SeededNoise(0), **options) == 1
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="must be positive"):
            release_choice(scores, epsilon, SeededNoise(0), **options)


# How far one record moves scores ----------------------------------------------------------------


def spread(here, there):
    """Largest difference of the moves of two candidates."""
    moves = here.value - there.value
    return moves.max() - moves.min()


def fits():
    yield from pairs_first(
        CHOICE.settings, RELATIONS, RECORDS, FORMS, apart={(0, 3)}, together=(0, 1)
    )


@pytest.mark.parametrize(("setting", "relation", "record", "form"), fits(), ids=str)
def test_one_record_moves_scores_within_their_bounds(monkeypatch, setting, relation, record, form):
    X, y = blobs(n=41)
    other, mask = X.copy(), None
    X[0], other[0] = RECORDS[record](X)
    if relation == "zero_out":
        other, mask = X, np.arange(41) > 0
    options = {"setting": setting, "relation": relation}
    here = choice_of(monkeypatch, CHOICE.fit, FORMS[form](X), y, **options)
    there = choice_of(monkeypatch, CHOICE.fit, FORMS[form](other), y, present=mask, **options)
    bound = {"zero_out": here.norm_bound, "replace_one": here.replace_bound}[relation]
    assert bound == UNIT[relation]
    assert np.isfinite(here.value).all() and spread(here, there) <= bound
    if relation == "zero_out":  # where a record can only add
        assert (here.value >= there.value).all()


def test_the_bounds_are_tight():
    """A record that is all for one candidate, and then all for the other."""
    all_for_one = ScoreTotal(2)
    all_for_one.add(slice(0, 1), np.array([[1.0, 0.0]]))
    other = ScoreTotal(2)
    other.add(slice(0, 1), np.array([[0.0, 1.0]]))
    null = ScoreTotal(2, Records.of_rows(1, np.array([False])))
    null.add(slice(0, 1), np.array([[1.0, 0.0]]))
    here, there, nothing = (t.bounded_sum() for t in (all_for_one, other, null))
    assert spread(here, there) == here.replace_bound == 2.0
    assert spread(here, nothing) == here.norm_bound == 1.0


def test_scores_are_added_up_without_rounding(rng):
    scores = rng.random((5000, 3))
    totals = []
    for order in (np.arange(5000), rng.permutation(5000)):
        total = ScoreTotal(3)
        for some in np.array_split(order, 7):
            total.add(some, scores[some])
        totals.append(total.bounded_sum(2.5).value)
    assert np.array_equal(*totals) and totals[0][3] == 2.5
    np.testing.assert_allclose(totals[0][:3], scores.sum(axis=0), atol=5000 * 2.0**-25)


@pytest.mark.parametrize("wild", [-3.0, 7.0, np.nan, np.inf, -np.inf])
def test_what_a_record_brings_is_a_number_from_0_to_1(wild):
    total = ScoreTotal(2)
    total.add(slice(0, 1), np.array([[wild, 0.5]]))
    brought = total.bounded_sum().value
    assert 0 <= brought[0] <= 1 and brought[1] == 0.5


def test_differences_to_a_public_score_are_exact():
    total = ScoreTotal(1)
    total.add(slice(0, 3), np.full((3, 1), 0.7))
    assert (np.mod(total.bounded_sum(0.1, 1e6 / 3).value * 2.0**24, 1) == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_no_row_is_refused_by_a_model_that_predicts_labels(rng, dtype, as_rows):
    """Scaled by the small spread of public rows, the largest number is out of range."""
    X, y = rng.normal(size=(50, 3)).astype(dtype), np.arange(50) % 2
    X[0] = np.finfo(dtype).max
    candidates = {name: (rng.normal(size=(40, 3)) / 100).astype(dtype) for name in "ab"}
    labels = dict.fromkeys(candidates, np.arange(40) % 2)
    found = select_public(candidates, as_rows(X), y, method="validation", y_public=labels)
    assert found.name in candidates


def test_pairs_take_two_rows():
    rows, _ = public_rows(5)
    options = {"n_components": 2, "method": "centered_energy"}
    with pytest.raises(ValueError, match="takes pairs of rows"):
        select_public({"a": rows, "b": -rows[:, ::-1]}, blobs(n=1)[0], **options)


def test_probabilities_of_neighbours_stay_within_epsilon_and_its_range(rng):
    """Closed form: over all pairs of neighbours that differ in one record of any scores."""
    for relation, bound in UNIT.items():
        for _ in range(200):
            scores = 10 * rng.random(6)
            added = rng.integers(2, size=6) * rng.random()
            move = added if relation == "zero_out" else added - rng.integers(2, size=6)
            logs = []
            for u in (scores, scores + move):
                log = 1.3 * u / bound
                logs.append(log - np.log(np.exp(log).sum()))
            loss = logs[0] - logs[1]
            assert np.abs(loss).max() <= 1.3 + 1e-12 and np.ptp(loss) <= 1.3 + 1e-12


# What it costs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_choice_has_a_pure_guarantee_of_its_epsilon(relation):
    X, _ = blobs(n=300)
    rows, _ = public_rows(5)
    choice = select_public(
        {"a": rows, "b": -rows[:, ::-1]}, X, n_components=2, neighboring_relation=relation
    )
    assert choice.privacy.epsilon == 0.1 and choice.privacy.delta == 0
    assert choice.privacy.event == bounded_range(0.1)
    assert choice.privacy.neighboring_relation == relation


def test_a_choice_that_was_not_charged_is_refused():
    target = Target(1.0, 0.0, "zero_out")
    scores = score_sum(np.array([1.0, 2.0]))
    budget = Budget.split(target, {"choice": Part(1.0, kind="range")}, 10)
    releases = Releases(budget, SeededNoise(0))
    with pytest.raises(RuntimeError, match="'other' is not in the budget"):
        releases.choice("other", scores)
    releases.choice("choice", scores)
    with pytest.raises(RuntimeError, match="has 1 releases"):
        releases.choice("choice", scores)
    gaussian = Releases(Budget.split(Target(1.0), {"choice": Part(1.0)}, 10), SeededNoise(0))
    with pytest.raises(RuntimeError, match="charged as gaussian"):
        gaussian.choice("choice", scores)


def test_a_ledger_asks_before_a_choice_and_counts_it_beside_a_fit():
    X, y = blobs(n=400)
    rows, _ = public_rows(5)
    candidates = {"a": rows, "b": -rows[:, ::-1]}
    ledger = PrivacyLedger(epsilon=0.7, delta=1e-5)
    name, guarantee = ledger.run(select_public, candidates, X, n_components=2, epsilon=0.1)
    assert name in candidates and guarantee.epsilon == 0.1
    ledger.fit(GEPClassifier(epsilon=0.5), X, y, X_public=(candidates[name],))
    assert ledger.epsilon() <= 0.6 + 1e-6 and ledger.epsilon_if_planned() < 0.56
    with pytest.raises(Exception, match=r"overspend|would cost|left"):
        ledger.run(select_public, candidates, X, n_components=2, epsilon=0.4)


def test_a_choice_costs_less_after_a_fit_than_before_it():
    """Figures of the docstring."""
    fit = GEPClassifier(epsilon=0.5, delta=1e-5).privacy_event(2000, n_public=100)
    cost = {}
    for name, events in (
        ("before", [bounded_range(0.1), fit]),
        ("after", [fit, bounded_range(0.1)]),
    ):
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        for event in events:
            ledger.charge(event, neighboring_relation="zero_out")
        cost[name] = ledger.epsilon() - 0.5
    assert cost["before"] == pytest.approx(0.1, abs=1e-3)
    assert cost["after"] == pytest.approx(0.051, abs=1e-3)
    assert ledger.epsilon_if_planned() - 0.5 == pytest.approx(0.038, abs=1e-3)


def test_bounds_of_scores_are_of_their_own_kind():
    assert isinstance(score_sum(np.zeros(2)), BoundedScores)
