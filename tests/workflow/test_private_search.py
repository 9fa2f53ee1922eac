"""A search costs what it says, hides how long it was, and finds what is better."""

import math
import pickle
import re
import warnings
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from helpers import RARE, RELATIONS, blobs, epsilon_of, groups_of, price_of, releases
from scipy import stats
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, make_scorer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateSearch,
    privacy_cost,
    private_mean,
)
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.accounting.cost import (
    excess_over,
    gaussian_sq_mu,
    logarithmic_rate,
    search_multiplier,
)
from dpsubspace._core.accounting.events import gaussian, mechanisms_of, private_search
from dpsubspace._core.fits.composites import private_parts
from dpsubspace._core.plans import search as plans
from dpsubspace._core.plans.search_budget import REFUSED
from dpsubspace._core.plans.search_criteria import Criterion, criteria, criterion_of
from dpsubspace._core.release.noise import SecureNoise, SeededNoise
from dpsubspace._core.release.releases import draw_trials
from dpsubspace._core.rows.records import Records, check_groups
from dpsubspace._core.statistics.score_cells import count_sum, score_total, share_sums
from dpsubspace.exceptions import PrivacyBudgetError
from dpsubspace.linear_model import PersonalizedLinearRegression
from dpsubspace.model_selection import _search as module

DELTA = 1e-5
X, Y = blobs(n=400)
FAST = DPSGDClassifier(n_iter=3)
MANY = {"clip_norm": [0.5, 1.0, 2.0], "row_norm": ["l2", None, 3.0]}
SOME = {"clip_norm": [0.5, 1.0, 2.0], "row_norm": ["l2", 3.0]}
FEW = {"clip_norm": [0.5, 1.0]}


def search(estimator=FAST, candidates=SOME, **options):
    return PrivateSearch(estimator, candidates, **{"epsilon": 4.0, "random_state": 0, **options})


# What it costs ------------------------------------------------------------------------------------


def renyi(order, mu, mean):
    """Renyi divergence of a search over Gaussian mechanisms, by the theorem as it is printed."""
    g = logarithmic_rate(mean)
    orders = np.geomspace(1.0001, 1e5, 20_000)
    least = np.min((1 - 1 / orders) * orders * mu**2 / 2 + math.log(1 / g) / orders)
    return order * mu**2 / 2 + least + math.log(mean) / (order - 1)


@pytest.mark.parametrize("mean", [1.5, 10, 300])
@pytest.mark.parametrize("mu", [0.1, 1.0])
def test_epsilon_of_a_search_is_that_of_the_theorem(mean, mu):
    orders = np.geomspace(1.01, 1e4, 1000)
    at = np.array([renyi(order, mu, mean) for order in orders])
    bound = at + np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)
    found = epsilon_of(private_search(gaussian(1 / mu), mean), DELTA, "zero_out")
    assert bound.min() * (1 - 1e-3) <= found <= bound.min() * 1.05  # which has fewer orders


def test_noise_of_a_search_of_ten_trials_is_1_88_times_that_of_one_fit():
    once = gaussian_sq_mu(1.0, DELTA) ** -0.5
    assert search_multiplier(1.0, DELTA, "zero_out", 10) / once == pytest.approx(1.881, abs=2e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_replacement_costs_a_search_over_gaussians_twice_the_noise(epsilon):
    here, there = (search_multiplier(epsilon, DELTA, relation, 10) for relation in RELATIONS)
    assert there == pytest.approx(2 * here, rel=1e-6)
    assert here > gaussian_sq_mu(epsilon, DELTA) ** -0.5
    prices = [
        price_of(private_search(gaussian(scale), 10), 1e-7, relation).sq_mu
        for scale, relation in zip((here, there), RELATIONS, strict=True)
    ]
    assert prices[0] == pytest.approx(prices[1], rel=1e-6)


def test_no_noise_is_enough_for_a_search_at_a_tiny_epsilon():
    with pytest.raises(PrivacyBudgetError, match="too little for a search, however much noise"):
        search_multiplier(1e-3, DELTA, "zero_out", 10)
    assert search(epsilon=1e-3).privacy_event(400) == gaussian(
        1 / math.sqrt(gaussian_sq_mu(1e-3, DELTA))
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "random"), ({"candidates": FEW}, "all"), ({"method": "all"}, "all")],
    ids=str,
)
def test_the_whole_budget_is_used_and_no_more(relation, options, kind):
    model = search(neighboring_relation=relation, **options)
    event = model.privacy_event(len(X))
    cost = epsilon_of(event, DELTA, relation)
    assert 4.0 * (1 - 1e-4) <= cost <= 4.0
    assert (mechanisms_of(event)[0].kind == "search") == (kind == "random")
    assert privacy_cost(model, n_samples=len(X)) == pytest.approx(cost)
    assert model.fit(X, Y).privacy_.event == event and model.privacy_.epsilon == 4.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("candidates", [SOME, FEW], ids=["random", "all"])
def test_every_candidate_costs_one_mu(relation, candidates):
    model = search(candidates=candidates, neighboring_relation=relation)
    shared = model._plan().resolved(Sizes(400, 5, 3)).shared
    part = mechanisms_of(shared.event)[0]
    moved = 2 if relation == "replace_one" else 1
    for candidate in shared.candidates:
        parts = mechanisms_of(candidate.event)
        own = sum(part.count / Fraction(part.value) ** 2 for part in parts)  # nothing is rounded
        most = 1 / Fraction(shared.multiplier) ** 2
        assert own <= most and float(own) == pytest.approx(float(most), rel=2e-8)
    if part.kind == "search":
        assert part.inside[0].value == shared.multiplier
    else:  # squares of mu of all candidates add up to that of the whole
        assert part.value == pytest.approx(shared.multiplier / math.sqrt(2))
    assert moved * gaussian_sq_mu(4.0, DELTA) ** -0.5 < shared.multiplier


def test_up_to_three_candidates_are_all_fitted():
    found = {}
    for k in range(1, 8):
        event = search(candidates={"alpha": list(range(k))}, epsilon=1.0).privacy_event(400)
        found[k] = mechanisms_of(event)[0].kind
    assert [found[k] for k in range(1, 8)] == ["gaussian"] * 3 + ["search"] * 4


STEPS = Pipeline([("scale", BoundedScaler()), ("fit", DPSGDClassifier(n_iter=5))])
ON_BATCHES = DPSGDClassifier(batch_size=200, n_iter=2)


@pytest.mark.parametrize(
    ("epsilon", "estimator", "grid", "method"),
    [
        (1e-4, FAST, {"row_norm": ["l2", 1.0]}, "auto"),
        (1.3e-4, FAST, {"alpha": [1e-3, 1e-2, 0.1, 1.0]}, "all"),
        (1.7e-4, STEPS, {"fit__alpha": [1e-3, 1e-2]}, "auto"),
        (1e-4, ON_BATCHES, {"alpha": [1e-3, 1e-2]}, "auto"),
    ],
)
def test_a_budget_that_is_too_small_to_be_shared_is_named_as_it_was_given(
    epsilon, estimator, grid, method
):
    def cost(epsilon):
        asked = PrivateSearch(estimator, grid, epsilon=epsilon, method=method)
        return asked.privacy_event(2000, n_features=2, n_outputs=1)

    with pytest.raises(
        ValueError, match=rf"^`epsilon`={epsilon:g} is too small .* is enough"
    ) as no:
        cost(epsilon)
    numbers = {float(found) for found in re.findall(r"\d[\d.e-]*\d", str(no.value))}
    enough = max(numbers)
    assert numbers == {epsilon, 1e-4, enough}  # the first, the limit and the way out
    assert mechanisms_of(cost(enough))


def test_batches_have_one_curve_above_all_trials():
    sizes = {"batch_size": [30, 60, None], "n_iter": [80]}
    model = search(candidates=sizes, method="random", validation_fraction=0.25, epsilon=1.0)
    shared = model._plan().resolved(Sizes(400, 5, 3)).shared
    (part,) = mechanisms_of(shared.event)
    base = shared.candidates[0].event
    assert part.kind == "search" and mechanisms_of(base) == part.inside
    assert part.inside[-1].rate == pytest.approx(30 / 300)  # after that of the intercept
    for candidate in shared.candidates:
        assert 0.9 < excess_over(candidate.event, base) <= 1
    assert 0.99 < excess_over(gaussian(shared.multiplier), base) <= 1
    assert 0.99 < epsilon_of(shared.event, DELTA, "zero_out") <= 1.0


@pytest.mark.wide
def test_few_candidates_on_batches_are_composed_with_their_scores():
    batches = {"candidates": {"batch_size": [20, 40], "n_iter": [80]}, "epsilon": 1.0}
    model = search(**batches)
    event = model.privacy_event(400)
    assert 1 - 1e-3 <= epsilon_of(event, DELTA, "zero_out") <= 1.0
    assert [part.count for part in mechanisms_of(event)] == [6, 80, 80, 2]  # corrections first
    public = search(validation_fraction=None, **batches)
    assert [part.count for part in mechanisms_of(public.privacy_event(400))] == [6, 80, 80]


# Trials are private -----------------------------------------------------------------------------


def draws(monkeypatch, *chosen):
    """The number of trials is random, and often 1: here these candidates are drawn."""
    monkeypatch.setattr(plans, "draw_trials", lambda *args: np.array(chosen))


def replay(monkeypatch, model, here, there, present, **options):
    with releases(monkeypatch) as first:
        model.fit(*here, **options)
    with releases(monkeypatch, outputs=first) as second:
        clone(model).fit(*there, groups=groups_of(present), **options)
    assert len(first) == len(second) > 0
    moves = [
        np.linalg.norm(np.asarray(a.value) - np.asarray(b.value))
        for (a, *_), (b, *_) in zip(first, second, strict=True)
    ]
    return [total for total, *_ in first], np.array(moves)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("candidates", [SOME, FEW], ids=["random", "all"])
def test_a_record_is_in_the_fits_or_in_the_scores_and_moves_them_within_their_bounds(
    monkeypatch, relation, candidates
):
    held_out = np.random.default_rng(0).permutation(400)[:80]
    trained = np.setdiff1d(np.arange(400), held_out)
    model = search(candidates=candidates, neighboring_relation=relation)
    draws(monkeypatch, 3, 0, 3)
    for record in (held_out[0], held_out[1], trained[0]):
        other, labels, present = X.copy(), Y.copy(), None
        if relation == "zero_out":
            present = np.arange(400) != record
        else:
            other[record], labels[record] = -30 * X[record], (Y[record] + 1) % 3
        sums, moves = replay(monkeypatch, model, (X, Y), (other, labels), present)
        bounds = [s.norm_bound if relation == "zero_out" else s.replace_bound for s in sums]
        assert (moves <= np.array(bounds) * (1 + 1e-9)).all()
        scores = np.array([s.value.shape == (6,) for s in sums])  # right and wrong by class
        assert scores.sum() >= 2
        if record in trained:  # a score is the model, postprocessed, on rows that are the same
            assert not moves[scores].any() and moves[~scores].any()
        else:
            assert not moves[~scores].any()


def held_out_and_trained(n):
    held_out = np.random.default_rng(0).permutation(n)[: n // 5]
    return held_out[0], np.setdiff1d(np.arange(n), held_out)[0]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("scoring", criteria(regression=False) + criteria(regression=True))
def test_every_criterion_moves_within_its_bounds(monkeypatch, scoring, relation):
    """Of a record that is scored; one of the fits moves no score, as these are given again."""
    numbers = scoring in criteria(regression=True)
    labels = np.clip(X[:, 0], -3, 3) if numbers else Y % 2
    estimator, options = FAST, {}
    if numbers:
        estimator, options = DPSGDRegressor(n_iter=3), {"target_bounds": (-3, 3)}
    model = search(estimator, FEW, scoring=scoring, neighboring_relation=relation, **options)
    seen, run = [], plans.TrialScorePlan.run

    def spy(self, ready, records, releases):
        before = len(kept[-1])
        found = run(self, ready, records, releases)
        seen.append(slice(before, len(kept[-1])))
        return found

    kept = []
    monkeypatch.setattr(plans.TrialScorePlan, "run", spy)
    for record in held_out_and_trained(400):
        other, aims, present = X.copy(), labels.copy(), None
        if relation == "zero_out":
            present = np.arange(400) != record
        else:
            other[record] = -30 * X[record]
            aims[record] = -labels[record] if numbers else 1 - labels[record]
        seen.clear()
        with releases(monkeypatch) as first:
            kept.append(first)
            model.fit(X, labels)
        with releases(monkeypatch, outputs=first) as second:
            kept.append(second)
            clone(model).fit(other, aims, groups=groups_of(present))
        scored = np.zeros(len(first), bool)
        for place in seen[:2]:
            scored[place] = True
        assert scored.sum() == 2 * len(criterion_of(scoring, estimator, (-3, 3)).shares)
        for is_score, (one, *_), (two, *_) in zip(scored, first, second, strict=True):
            moved = np.linalg.norm(np.asarray(one.value) - np.asarray(two.value))
            bound = one.norm_bound if relation == "zero_out" else one.replace_bound
            assert moved <= bound * (1 + 1e-9)
            assert is_score == (record == held_out_and_trained(400)[0]) or not moved


@pytest.mark.parametrize("scoring", [None, "accuracy", "roc_auc", "log_loss", "f1"])
def test_a_search_costs_the_same_by_any_criterion(scoring):
    event = search(scoring=lambda model, rows, labels: labels == 0).privacy_event(400)
    model = search(scoring=scoring).fit(X, Y % 2)
    assert model.privacy_.event == event == search(scoring=scoring).privacy_event(400)


@pytest.mark.parametrize("sums", [count_sum, share_sums])
@pytest.mark.parametrize("relation", RELATIONS)
def test_sums_of_criteria_have_their_bounds(rng, sums, relation):
    """All persons of one to four rows, against each other and against nobody."""
    shares, found = np.array([0.7, 0.2, 0.1]), []
    for _ in range(150):
        rows = rng.choice([0.0, 1 / 3, 1.0], size=(rng.integers(1, 5), 3))
        person = Records.of_groups(np.zeros(len(rows), dtype=int), 1)
        if sums is share_sums:
            found.append(share_sums(rows, shares, person))
        else:
            found.append(count_sum((3 * rows[:, :2]).astype(int), 4, person))
    nothing = [np.zeros_like(found[0].value)]
    for one in found:
        there = [each.value for each in found] if relation == "replace_one" else nothing
        bound = one.replace_bound if relation == "replace_one" else one.norm_bound
        assert max(np.linalg.norm(one.value - other) for other in there) <= bound
    ends = count_sum(np.zeros((1, 2), int), 4, Records.of_rows(1))
    other = count_sum(np.ones((1, 2), int), 4, Records.of_rows(1))
    assert np.linalg.norm(ends.value) == pytest.approx(ends.norm_bound)
    assert np.linalg.norm(ends.value - other.value) == pytest.approx(ends.replace_bound)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_score_moves_by_what_one_record_says(grouped):
    rng = np.random.default_rng(1)
    people = rng.integers(30, size=100) if grouped else None
    records = check_groups(people, X[:100])
    values = rng.uniform(size=100)
    total = score_total(values, records)
    assert total.norm_bound == total.replace_bound == 1.0
    for who in range(10):
        his = people == who if grouped else np.arange(100) == who
        gone = score_total(values, check_groups(groups_of(~his, people), X[:100]))
        assert gone.value[0] <= total.value[0] <= gone.value[0] + 1
        for said in (np.nan, -5.0, 9.0, math.inf):
            other = score_total(np.where(his, said, values), records)
            assert abs(other.value[0] - total.value[0]) <= 1
            assert gone.value[0] <= other.value[0] <= gone.value[0] + 1
    assert score_total(np.ones(9), Records.of_rows(9)).value[0] == 9


def test_a_row_that_cannot_be_scored_changes_no_other_score():
    def scoring(model, rows, labels):
        if (rows[:, 0] > 1e3).any():
            raise ValueError
        return model.predict(rows) == labels

    other = X.copy()
    other[:, 0] = 0.0
    values = []
    for extreme in (0.0, 1e4):
        other[7, 0] = extreme
        rows = plans.TrialRows({}, other, Y, check_groups(None, other), "row")
        says = plans.RowScorer(
            LogisticRegression().fit(X, Y), Criterion(scoring), DELTA, by_row=True
        )
        values.append(rows.said(says, says.criterion))
    assert np.flatnonzero(values[0] != values[1]).tolist() in ([7], [])
    assert values[1][7] == 0 and values[1].mean() > 0.3


def test_other_scores_are_rounded_as_if_no_row_had_failed():
    """As products are, by how many rows are shown and by the place of each."""

    def rounded(model, rows, labels):
        if (rows[:, 0] > 1e3).any():
            raise ValueError
        return 1 / (2 + len(labels) + np.arange(len(labels)))

    says, sums = plans.RowScorer(None, Criterion(rounded), DELTA, by_row=True), []
    for failing in ([], [0], [40], [79], range(80)):
        rows = X[:80].copy()
        rows[failing, 0] = 1e4
        sums.append(says(rows, Y[:80]).sum())
    each = np.array([1 / 82, 1 / 122, 1 / 161])
    np.testing.assert_allclose(sums[0] - np.array(sums[1:-1]), each, rtol=1e-9)
    assert sums[-1] == 0.0


def test_all_rows_of_a_person_are_on_one_side():
    people = np.random.default_rng(0).integers(60, size=400)
    model = search(FAST, SOME)
    records = check_groups(people, X)
    train = {"groups": people}
    rows = model._plan().rows(X, Y, records, train)
    assert rows.records.n == round(0.2 * records.n)
    scored = np.isin(people, rows.train["groups"], invert=True)
    assert scored.sum() == len(rows.y) > 0
    assert np.array_equal(rows.X, X[scored])
    fitted = model.fit(X, Y, groups=people)
    assert fitted.privacy_.unit == "person"


def test_who_is_held_out_follows_from_sizes_alone():
    train = {"groups": None}
    plan = search()._plan()
    one = plan.rows(X, Y, check_groups(None, X), train)
    two = plan.rows(-X[::-1], Y, check_groups(None, X), train)
    assert np.array_equal(-X[::-1][np.isin(X[:, 0], one.X[:, 0])], two.X)


@pytest.mark.wide
def test_the_number_of_trials_has_its_distribution():
    """Mean, and counts of small numbers by a chi-square test; a wrong mean is noticed."""
    noise, rate = SeededNoise(7), logarithmic_rate(10)
    assert (1 / rate - 1) / math.log(1 / rate) == pytest.approx(10, rel=1e-9)
    drawn = [draw_trials(noise, 10, 6) for _ in range(20_000)]
    found = np.array([len(each) for each in drawn])
    for mean, wrong in ((10, False), (20, True)):
        g = logarithmic_rate(mean)
        k = np.arange(1, 30)
        expected = np.append((1 - g) ** k / (k * math.log(1 / g)), 0.0)
        expected[-1] = 1 - expected.sum()
        counts = np.append([np.sum(found == each) for each in k], np.sum(found >= 30))
        p = stats.chisquare(counts, expected * len(found)).pvalue
        assert (p < RARE) == wrong
    # By Bernstein's inequality for tails that fall by e every 37 trials, once in 1e11.
    assert found.mean() == pytest.approx(10, abs=8 * found.std() / math.sqrt(len(found)))
    chosen = np.bincount(np.concatenate(drawn), minlength=6)
    assert stats.chisquare(chosen).pvalue > RARE
    assert {len(draw_trials(SecureNoise(), 1, 3)) for _ in range(50)} == {1}
    assert len({len(draw_trials(SecureNoise(), 10, 3)) for _ in range(50)}) > 3


def ran(monkeypatch, model, rows=(X, Y), **options):
    """Fits of a search, as what each of them was."""
    seen, honest = [], plans.Trial._fitted

    def spy(self, rows):
        seen.append(honest(self, rows))
        return seen[-1]

    with monkeypatch.context() as patch:
        patch.setattr(plans.Trial, "_fitted", spy)
        model.fit(*rows, **options)
    return seen


def test_nothing_tells_how_many_trials_there_were(monkeypatch, capfd):
    noisy = DPSGDClassifier(n_iter=3, epsilon=1.0)
    kept = {}
    for seed in range(20):
        model = search(noisy, SOME, random_state=seed, epsilon=0.5)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            number = len(ran(monkeypatch, model))
        kept[number] = {k: v for k, v in vars(model).items() if k.endswith("_")}
        assert not warned
        sizes = {len(pickle.dumps(v)) for k, v in vars(model).items() if k == "privacy_"}
        assert len(sizes) == 1
        assert kept[number].keys() == {
            *("best_estimator_", "best_params_", "best_score_", "classes_", "privacy_"),
            "n_features_in_",
        }
    assert len(kept) > 2
    out = capfd.readouterr()
    assert not out.out and not out.err


@pytest.mark.literal_seeds  # no salt reaches the workers, which draw noise from these seeds
def test_workers_find_the_same_and_say_nothing(capfd):
    alone = search(n_jobs=1).fit(X, Y)
    with config_context(), __import__("joblib").parallel_config("threading", verbose=50):
        threads = search(n_jobs=2).fit(X, Y)
    processes = search(n_jobs=2).fit(X, Y)
    for other in (threads, processes):
        assert other.best_params_ == alone.best_params_ and other.best_score_ == alone.best_score_
        assert np.array_equal(other.best_estimator_.coef_, alone.best_estimator_.coef_)
    out = capfd.readouterr()
    assert not out.out and not out.err


def test_threads_within_trials_do_not_let_a_ledger_count_them(capfd):
    table = pd.DataFrame(X, columns=list("abcde"))
    halves = [(name, BoundedScaler((-9, 9)), list(name)) for name in ("ab", "cd")]
    columns = ColumnTransformer(halves, sparse_threshold=0, verbose=True)
    pipeline = Pipeline([("columns", columns), ("model", FAST)], verbose=True)
    candidates = {"columns__n_jobs": [2, None], "model__clip_norm": [0.5, 1.0]}
    ledger = PrivacyLedger(epsilon=10, delta=DELTA, allow_seeded=True)
    with ledger, __import__("joblib").parallel_config("threading", n_jobs=2):
        search(pipeline, candidates, n_jobs=1).fit(table, Y)
    assert [entry.estimator for entry in ledger.entries] == ["PrivateSearch"]
    out = capfd.readouterr()
    assert not out.out and not out.err


def spending(model, rows, labels):
    private_mean(rows, data_norm=9.0, epsilon=5.0)
    return model.predict(rows) == labels


def test_a_scoring_releases_nothing_that_was_not_paid_for():
    model = search(candidates=FEW, epsilon=200.0, scoring=spending).fit(X, Y)
    assert abs(model.best_score_) < 0.2


def test_code_within_a_trial_releases_nothing_that_was_not_paid_for():
    """As a torch module could that fits something when it is called."""
    told = []

    def peek(rows):
        with suppress(PrivacyError):
            told.append(private_mean(rows, data_norm=9.0, epsilon=5.0))
        return rows

    frozen = FrozenEstimator(FunctionTransformer(peek))
    pipeline = Pipeline([("peek", frozen), ("model", FAST)])
    ledger = PrivacyLedger(epsilon=10, delta=DELTA, allow_seeded=True)
    with ledger:
        model = search(pipeline, {"model__clip_norm": [0.5, 1.0]}, n_jobs=1).fit(X, Y)
    assert not told and len(ledger) == 1 and hasattr(model, "best_estimator_")


def warning(model, rows, labels):
    warnings.warn("a trial saw rows", UserWarning, stacklevel=1)
    return model.predict(rows) == labels


def test_threads_show_no_warnings_of_each_other_and_leave_no_filters():
    before = [*warnings.filters]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for seed in range(2):
            with __import__("joblib").parallel_config("threading"):
                search(n_jobs=6, n_trials=30, scoring=warning, random_state=seed).fit(X, Y)
        assert warnings.filters[0][0] == "always"
    assert not warned and before == [*warnings.filters]


def test_noise_of_every_trial_is_its_own(monkeypatch):
    same = {"alpha": [1e-6, 1e-6, 1e-6]}
    draws(monkeypatch, 2, 0, 2, 1)
    fitted = ran(monkeypatch, search(candidates=same, method="random", random_state=5))
    weights = [tuple(model.coef_.ravel()) for model in fitted]
    assert len(set(weights)) == len(weights) == 4
    secure = ran(monkeypatch, search(candidates=same, method="all", random_state=None))
    assert len({tuple(model.coef_.ravel()) for model in secure}) == 3
    assert all(model.random_state is None for model in secure)


def test_a_seed_repeats_a_search_and_is_told():
    one, two, other = (search(random_state=seed).fit(X, Y) for seed in (0, 0, 1))
    assert np.array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert not np.array_equal(one.best_estimator_.coef_, other.best_estimator_.coef_)
    assert not one.privacy_.secure and search(random_state=None).fit(X, Y).privacy_.secure


def test_the_best_model_states_what_the_search_cost():
    pipeline = Pipeline([("scale", BoundedScaler((-9, 9))), ("model", FAST)])
    model = search(pipeline, {"model__clip_norm": [0.5, 1, 2, 3]}).fit(X, Y)
    for _, part in private_parts(model.best_estimator_, fitted=True):
        assert part.privacy_ == model.privacy_


def test_a_ledger_is_charged_once_for_all_trials():
    ledger = PrivacyLedger(epsilon=10, delta=DELTA, allow_seeded=True)
    ledger.fit(search(candidates=FEW, epsilon=1.0), X, Y)
    assert len(ledger.entries) == 1 and ledger.epsilon() == pytest.approx(1.0)
    assert ledger.entries[0].event == search(candidates=FEW, epsilon=1.0).privacy_event(400)
    searches = PrivacyLedger(epsilon=10, delta=DELTA, allow_seeded=True)
    searches.fit(search(epsilon=1.0), X, Y)
    assert len(searches.entries) == 1 and searches.epsilon() == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(PrivacyBudgetError):
        ledger.fit(search(epsilon=20.0), X, Y)


# What it finds ----------------------------------------------------------------------------------


def columns_of(rows, columns):
    return rows[:, columns]


def test_the_better_candidate_is_found_and_its_score_is_noisy(monkeypatch):
    """Labels are told by the first columns, where classes are 5.7 deviations apart, alone."""
    labels = np.arange(3000) % 3
    rows = np.random.default_rng(0).normal(size=(3000, 6)) + 4 * np.eye(3, 6)[labels]
    choices = [
        FrozenEstimator(FunctionTransformer(columns_of, kw_args={"columns": columns}))
        for columns in ([3], [4], [0, 1, 2], [5])
    ]
    pipeline = Pipeline([("some", choices[0]), ("model", FAST)])
    model = search(pipeline, {"some": choices}, n_trials=20, epsilon=3.0)
    draws(monkeypatch, 3, 0, 2, 1, 0)
    model.fit(rows, labels)
    assert model.best_params_["some"] is choices[2]
    held_out = np.sort(np.random.default_rng(0).permutation(3000)[:600])
    exact = model.score(rows[held_out], labels[held_out])
    # One of five scores is further off than by 6.5 deviations of its noise once in 2e9.
    noise = model._plan().resolved(Sizes(3000, 6, 3)).shared.multiplier / 600
    assert exact != model.best_score_ == pytest.approx(exact, abs=6.5 * noise) and noise < 0.005
    # It is 0.995, and 1/3 with a deviation of 0.02 where columns tell nothing.
    assert model.score(rows, labels) > 0.95


def test_steps_can_be_exchanged_and_keep_their_ratio():
    pipeline = Pipeline([("scale", BoundedScaler(epsilon=0.2)), ("model", FAST)])
    models = {"model": [FAST, DPSGDFClassifier(n_iter=3)], "scale__row_norm": ["l2", None]}
    model = search(pipeline, models, epsilon=8.0).fit(X, Y)
    assert type(model.best_params_["model"]) in (DPSGDClassifier, DPSGDFClassifier)
    assert not hasattr(model.best_params_["model"], "coef_")
    parts = [part for _, part in private_parts(model.best_estimator_, fitted=True)]
    squares = [gaussian_sq_mu(part.epsilon, part.delta) for part in parts]
    own = [gaussian_sq_mu(epsilon, DELTA) for epsilon in (0.2, 1.0)]
    assert squares[0] / squares[1] == pytest.approx(own[0] / own[1], rel=1e-6)


def test_public_rows_to_score_on_are_free_and_exact():
    model = search(validation_fraction=None)
    public = X[:100] + 0.01
    model.fit(X, Y, X_public_val=(public,), y_public_val=(Y[:100].copy(),))
    found = balanced_accuracy_score(Y[:100], model.predict(public))
    assert model.best_score_ == pytest.approx(found)
    assert "public rows to score" in model.privacy_.public
    assert model.privacy_event(400) == search().privacy_event(400)


def test_public_rows_reach_the_candidates():
    seen = []

    def scoring(model, rows, labels):
        seen.append(model.n_components_)
        return model.predict(rows) == labels

    model = search(GEPClassifier(n_iter=3), {"n_components": [2, 3, 4, 5]}, scoring=scoring)
    model.fit(X, Y, X_public=(X[:50] + 0.01,))
    assert {*seen} <= {2, 3, 4, 5}
    with pytest.raises(ValueError, match="takes no `X_public`: leave it out"):
        search(FAST, {"alpha": [0.0, 1.0]}).fit(X, Y, X_public=(X[:50] + 0.01,))
    with pytest.raises(ValueError, match=r"transform_input=\['X_public'\]"):
        search(Pipeline([("model", GEPClassifier())]), {"model__n_components": [2, 3]}).fit(
            X, Y, X_public=(X[:50] + 0.01,)
        )


@pytest.mark.parametrize("routed", [False, True])
def test_persons_reach_every_step(routed):
    people = np.arange(400) // 4
    pipeline = Pipeline([("scale", BoundedScaler(epsilon=0.5)), ("model", FAST)])
    with config_context(enable_metadata_routing=routed):
        model = search(pipeline, {"model__clip_norm": [0.5, 1.0]}, epsilon=20.0)
        model.fit(X, Y, groups=people)
    assert model.privacy_.unit == "person"
    assert "number of persons (100)" in model.privacy_.public


def test_columns_of_a_table():
    table = pd.DataFrame(X, columns=list("abcde"))
    columns = ColumnTransformer(
        [("some", BoundedScaler((-9, 9)), ["a", "b"])], remainder="passthrough", sparse_threshold=0
    )
    pipeline = Pipeline([("columns", columns), ("model", FAST)])
    names = {
        "columns__some": [BoundedScaler((-9, 9)), "passthrough"],
        "columns__remainder": ["drop"],
    }
    model = search(pipeline, names).fit(table, Y)
    assert model.predict(table).shape == (400,) and model.n_features_in_ == 5


def test_regressors_are_scored_by_absolute_errors():
    targets = X[:, 0] + 0.1 * X[:, 1]
    options = {"target_bounds": (-6.0, 6.0), "epsilon": 8.0}
    model = search(DPLinearRegression(), {"fit_intercept": [True, False]}, **options).fit(
        X, targets
    )
    assert 0.5 < model.best_score_ < 1.1 and is_regressor(model)
    scored = criterion_of(None, DPLinearRegression(), (-6.0, 6.0)).scoring

    class Fixed:
        def predict(self, rows):
            return rows

    found = scored(Fixed(), np.array([0.0, 3.0, 99.0, 0.0]), np.array([0.0, 0.0, 6.0, -6.0]))
    assert found.tolist() == [1.0, 0.5, 1.0, 0.0]


THREE = [("poor", DPSGDClassifier(n_iter=1, clip_norm=1e-6)), FAST, DPSGDFClassifier(n_iter=3)]


def test_different_models_are_compared_in_one_search():
    """The first hardly learns, so that it is right by chance; scores have noise of .015."""
    model = search(None, None, estimators=THREE, epsilon=8.0)
    event = model.privacy_event(400)
    assert event == search(candidates={"alpha": [1, 2, 3]}, epsilon=8.0).privacy_event(400)
    model.fit(X, Y)
    assert model.privacy_.event == event and model.privacy_.epsilon == 8.0
    assert model.best_params_["estimator"] in ("dpsgdclassifier", "dpsgdfclassifier")
    assert type(model.best_estimator_).__name__.lower() == model.best_params_["estimator"]
    assert model.best_estimator_.privacy_ == model.privacy_ and is_classifier(model)
    assert model.predict(X).shape == (400,) and hasattr(model, "predict_proba")
    two = search(None, None, estimators=[FAST, BATCHES], method="all").fit(X, Y)
    assert two.best_params_["estimator"] in ("dpsgdclassifier-1", "dpsgdclassifier-2")


def test_models_that_are_compared_are_cloned_and_kept():
    model = search(None, None, estimators=THREE)
    fitted = clone(model).fit(X, Y)
    assert not any(hasattr(each, "coef_") for each in (THREE[0][1], *THREE[1:]))
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    hinge = search(None, None, estimators=[FAST, DPSGDClassifier(loss="hinge")])
    assert not hasattr(hinge, "predict_proba") and hasattr(hinge, "decision_function")


def test_a_ledger_is_charged_once_for_all_models():
    ledger = PrivacyLedger(epsilon=10, delta=DELTA, allow_seeded=True)
    ledger.fit(search(None, None, estimators=THREE, epsilon=1.0), X, Y)
    assert len(ledger.entries) == 1 and ledger.epsilon() == pytest.approx(1.0)


def test_distributions_are_a_public_list_of_draws():
    space = {"clip_norm": stats.uniform(0.1, 2), "row_norm": ["l2", None]}
    model = search(candidates=space, n_trials=3).fit(X, Y)
    listed = list(module._listed(space, 3))
    assert len(listed) == 30 and model.best_params_ in listed


@pytest.mark.filterwarnings("ignore:a search or a cross-validation:dpsubspace.PrivacyWarning")
def test_it_is_an_estimator():
    model = search(epsilon=8.0)
    assert is_classifier(model) and hasattr(model, "predict_proba")
    hinge = search(DPSGDClassifier(loss="hinge", n_iter=3), SOME)
    assert not hasattr(hinge, "predict_proba") and hasattr(hinge, "decision_function")
    assert not hasattr(model, "transform")
    assert clone(model).get_params()["estimator__n_iter"] == 3
    fitted = pickle.loads(pickle.dumps(model.fit(X, Y)))
    assert np.array_equal(fitted.predict_proba(X), model.predict_proba(X))
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert len(cross_val_score(model, X, Y, cv=2)) == 2
    table = pd.DataFrame(X, columns=list("abcde"))
    assert search().fit(table, Y).predict(table).shape == (400,)


def test_without_privacy():
    model = search(epsilon=math.inf).fit(X, Y)
    assert model.privacy_.epsilon == math.inf
    held_out = np.sort(np.random.default_rng(0).permutation(400)[:80])
    found = balanced_accuracy_score(Y[held_out], model.predict(X[held_out]))
    assert model.best_score_ == pytest.approx(found, abs=1e-6)


def test_a_class_that_training_rows_lack_is_kept():
    labels = Y.copy()
    labels[np.random.default_rng(0).permutation(400)[0]] = 7  # held out
    model = search().fit(X, labels)
    assert model.classes_.tolist() == model.best_estimator_.classes_.tolist() == [0, 1, 2, 7]


# What goes wrong ----------------------------------------------------------------------------------


def test_a_failing_trial_is_always_wrong_and_says_nothing():
    def scoring(model, rows, labels):
        raise ValueError(f"secret {rows[0]}")

    model = search(scoring=scoring).fit(X, Y)
    assert abs(model.best_score_) < 0.5

    def shape(model, rows, labels):
        return 3.0

    assert abs(search(scoring=shape).fit(X, Y).best_score_) < 0.5


def test_without_a_model_the_budget_is_gone_and_no_row_is_told(monkeypatch):
    def fail(self, rows, labels, **options):
        raise ValueError(f"secret {rows[0]}")

    monkeypatch.setattr(DPSGDClassifier, "fit", fail)
    model = search()
    with pytest.raises(RuntimeError, match="the best trial has no model") as raised:
        model.fit(X, Y)
    assert "secret" not in str(raised.value) and raised.value.__context__ is None
    assert model.privacy_.epsilon == 4.0 and not hasattr(model, "best_estimator_")


BATCHES = DPSGDClassifier(n_iter=3, batch_size=50)
ALONE = {"estimator": None, "candidates": None}
SCALED = Pipeline([("scale", BoundedScaler()), ("model", FAST)])
LEARNS = Pipeline([("scale", StandardScaler()), ("model", FAST)])
EXACT = DPPCA(mechanism="bingham", n_components=1, centered=False, data_norm=1.0)
ERRORS = [
    *(({"candidates": {name: [1.0, 2.0]}}, f"must not set '{name}'") for name in REFUSED),
    (
        {
            "estimator": SCALED,
            "candidates": {"model__epsilon": [1]},
        },
        "must not set 'model__epsilon'",
    ),
    ({"estimator": LEARNS, "candidates": {}}, "may learn from the private rows"),
    ({"candidates": {"loss": ["hinge", "nonsense"]}}, "`loss` must be one of"),
    ({"candidates": {"nobody": [1, 2]}}, "Invalid parameter 'nobody'"),
    ({"candidates": []}, "`candidates` must be a dict"),
    ({"candidates": {"alpha": []}}, "which is not empty"),
    ({"candidates": {"alpha": 3.0}}, "must be a list of values"),
    (
        {"estimator": LogisticRegression(), "candidates": {"C": [1]}},
        "cannot say what its fit will spend",
    ),
    ({"estimator": DPSGDClassifier(epsilon=None, noise_multiplier=3.0)}, "no `epsilon` that the"),
    (
        {"estimator": PersonalizedLinearRegression(), "target_bounds": (0, 1), "candidates": {}},
        "single persons",
    ),
    ({"estimator": DPLinearRegression(), "candidates": {}}, "`target_bounds` of the search"),
    ({"estimator": None}, "`estimator` must be given, with its `candidates`, or `estimators`"),
    ({"estimators": [FAST, SCALED]}, "leave `estimator` and `candidates` out"),
    (ALONE | {"estimators": [FAST]}, "a list of at least two models"),
    (ALONE | {"estimators": [FAST, DPSGDClassifier]}, "models that are not fitted"),
    (ALONE | {"estimators": [("a", FAST), ("a", SCALED)]}, "each once, got 'a'"),
    (ALONE | {"estimators": [FAST, DPSGDRegressor()]}, "must be of one kind"),
    (ALONE | {"estimators": [FAST, LogisticRegression()]}, "cannot say what its fit will spend"),
    ({"scoring": "acuracy"}, "Scorers of scikit-learn return one number"),
    ({"scoring": "roc_curve"}, "`scoring` must be None, a name"),
    ({"scoring": "r2"}, "Metrics for a classifier are"),
    ({"scoring": "f1"}, "is for two classes, and there are 3: use scoring='f1_macro'"),
    ({"scoring": make_scorer(accuracy_score)}, "Scorers of scikit-learn return one number"),
    ({"estimator": EXACT, "candidates": {"n_components": [1, 2]}}, "`scoring` must be given"),
    ({"method": "grid"}, "`method` must be one of"),
    ({"n_trials": 0}, "`n_trials` must be a number in"),
    ({"validation_fraction": 1.0}, "`validation_fraction` must be a number in"),
    ({"validation_fraction": 0.999}, "leaves none to train on"),
    ({"validation_fraction": None}, "pass `X_public_val` and `y_public_val`"),
    (
        {"estimator": BATCHES, "neighboring_relation": "replace_one"},
        "use batch_size=None",
    ),
    (
        {"estimator": Pipeline([("m", FAST)], memory="x"), "candidates": {"m__alpha": [1, 2]}},
        "`memory` would give later trials",
    ),
    ({"epsilon": None}, "`epsilon` must be a number"),
    ({"random_state": -1}, "`random_state` must not be negative"),
]


@pytest.mark.parametrize(("options", "match"), ERRORS, ids=[match for _, match in ERRORS])
def test_what_cannot_be_is_refused_before_anything_is_spent(options, match):
    model = search(**options)
    with pytest.raises((ValueError, PrivacyError), match=match):
        model.fit(X[:100], Y[:100])
    assert not hasattr(model, "privacy_")


def test_other_refusals():
    with pytest.raises(ValueError, match="a person of another name would move others"):
        search(neighboring_relation="replace_one").fit(X, Y, groups=np.arange(400) // 2)
    with pytest.raises(ValueError, match="needs validation_fraction=None"):
        search().fit(X, Y, X_public_val=X + 1, y_public_val=Y.copy())
    with pytest.raises(PrivacyError, match="over Gaussian noise only"):
        search(EXACT, {"n_components": [1, 2, 3, 4]}, scoring=lambda m, X, y: y).fit(X, Y)
    steps = Pipeline([("pca", DPPCA(n_components=2)), ("model", DPSGDClassifier(batch_size=50))])
    with pytest.raises(ValueError, match="n_iter='auto' depends on how many columns"):
        search(steps, {"model__alpha": [1e-3, 1e-4]}).fit(X, Y)
    with pytest.raises(ValueError, match="contains NaN"):
        search().fit(np.where(X > 2, np.nan, X), Y)


@pytest.mark.parametrize("inside", [False, True])
def test_callbacks_that_would_count_trials_are_refused(inside):
    callback = pytest.importorskip("sklearn.callback")
    watched = DPSGDClassifier(n_iter=3).set_callbacks(callback.ProgressBar())
    model = Pipeline([("model", watched)]) if inside else watched
    with pytest.raises(ValueError, match="take them off with set_callbacks"):
        search(model, {}).fit(X, Y)
    with pytest.raises(ValueError, match="take them off with set_callbacks"):
        search(Pipeline([("model", FAST)]), {"model": [watched]}).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "own"), [("delta", 1e-7), ("neighboring_relation", "replace_one")]
)
def test_what_holds_for_all_of_a_search_is_given_to_the_search(name, own):
    model, grid = DPSGDClassifier(**{name: own}), {"alpha": [0.0, 1.0]}
    with pytest.raises(
        ValueError, match=f"DPSGDClassifier has {name}=.*give `{name}` to the search"
    ):
        PrivateSearch(model, grid).privacy_event(500, 5, 1)
    PrivateSearch(model, grid, **{name: own}).privacy_event(500, 5, 1)


def test_public_rows_to_score_have_labels_that_candidates_can_predict():
    X, y = blobs(n=200)
    labels = y[:50].copy()
    labels[:5] = 7
    search = PrivateSearch(DPSGDClassifier(n_iter=2), {"alpha": [0.0]}, validation_fraction=None)
    with pytest.raises(ValueError, match=r"`y_public_val` has the labels \[7\]"):
        search.fit(X, y, X_public_val=X[:50] + 0.5, y_public_val=labels)
    assert not hasattr(search, "privacy_")
