"""The person as the unit: how far all rows of one person move every release of whole fits."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from cases import CASES, FORMS, RECORDS, privacy_of
from helpers import (
    RELATIONS,
    assert_within_bounds,
    blobs,
    epsilon_of,
    move,
    pairs_first,
    releases,
    some_releases,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from test_bounds import BLOCKS, NAMED

from dpsubspace import (
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDRegressor,
    PrivacyError,
    PrivacyLedger,
    private_mean,
)
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.accounting.events import gaussian
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.records import Records
from dpsubspace._core.solvers.personal import gradient_round
from dpsubspace._core.statistics.persons import PersonRows
from dpsubspace.audit import audit_epsilon
from dpsubspace.linear_model import PersonalizedLinearRegression
from dpsubspace.statistics import private_quantile

pytestmark = pytest.mark.filterwarnings(
    "ignore:(the noise of|class|the released mean shows):dpsubspace.PrivacyWarning"
)

HEAVY = 37  # rows of the person who changes


def persons(n_persons, most=3, seed=0):
    """Who rows belong to: each of the persons has up to `most`, side by side."""
    counts = np.random.default_rng(seed).integers(1, most + 1, size=n_persons)
    return np.repeat(np.arange(n_persons), counts)


def spread(X, y, groups, rows, labels, seed=1):
    """The table with rows of one more person spread all over it."""
    places = np.random.default_rng(seed).integers(0, len(y) + 1, size=len(rows))
    groups = np.insert(groups, places, groups.max() + 1)
    return np.insert(X, places, rows, axis=0), np.insert(y, places, labels), groups


def neighbours(n_persons, relation, record, heavy=HEAVY, most=3):
    """Tables in which one person has many rows, and one row instead, and who is null."""
    groups = persons(n_persons - 1, most)
    X, y = blobs(n=len(groups))
    one, other = (np.tile(row, (heavy, 1)) for row in RECORDS[record](X))
    labels = np.full(heavy, y[0])
    here = spread(X, y, groups, one, labels)
    if relation == "zero_out":
        there = spread(X, y, groups, one[:1], labels[:1])
        return here, there, there[2] < n_persons - 1
    return here, spread(X, y, groups, other[:1], (labels[:1] + 1) % 3), None


def replayed(monkeypatch, case, here, there, present, **options):
    """Sums of a fit, and of one on the neighbour that has the outputs of the first."""
    (X, y, groups), (other_X, other_y, others) = here, there
    with releases(monkeypatch) as first:
        case.fit(X, y, groups=groups, **options)
    with releases(monkeypatch, outputs=first) as second:
        case.fit(other_X, other_y, present=present, groups=others, **options)
    assert len(first) == len(second) > 0
    return first, second


# A module sees rows of persons in training only, where rounding at other places is counted.
WHOLE = [case for case in CASES if not (case.module and case.task == "rows")]


def fits():
    """Every setting, with relations, records and forms of rows in turns."""
    turn = itertools.count()
    for case in [case for case in WHOLE if case.gaussian]:
        forms = [form for form in FORMS if case.sparse or "sparse" not in form]
        factors = (case.settings, RELATIONS, RECORDS, forms)
        apart = {(0, 2), (0, 3)}
        yield from pairs_first(*factors, prefix=(case,), apart=apart, turn=turn)


@pytest.mark.parametrize(("case", "setting", "relation", "record", "form"), fits(), ids=str)
def test_every_release_moves_within_its_bound_with_all_rows_of_a_person(
    monkeypatch, case, setting, relation, record, form
):
    """The number of rows changes along, so that all later rows lie elsewhere."""
    here, there, present = neighbours(case.n, relation, record)
    here, there = ((FORMS[form](X), y, groups) for X, y, groups in (here, there))
    options = {"setting": setting, "relation": relation}
    pair = replayed(monkeypatch, case, here, there, present, **options)
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_person_moves_what_finds_targets_far_from_zero_within_its_bound(monkeypatch, relation):
    here, there, present = neighbours(60, relation, "opposite")
    here, there = ((X, 1e6 + y, groups) for X, y, groups in (here, there))
    options = {"relation": relation, "epsilon": 300.0}
    case = NAMED["DPSGDRegressor"]
    pair = replayed(monkeypatch, case, here, there, present, **options)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize(
    ("fit", "relation", "form", "batch_size"),
    pairs_first(BLOCKS, RELATIONS, FORMS, [None, 150]),
    ids=str,
)
def test_a_person_in_every_block_moves_sums_within_their_bounds(
    monkeypatch, fit, relation, form, batch_size
):
    name, setting = fit
    here, there, present = neighbours(300, relation, "opposite", heavy=400)
    here, there = ((FORMS[form](X), y, groups) for X, y, groups in (here, there))
    options = {"setting": setting, "relation": relation, "chunk": 256, "batch_size": batch_size}
    pair = replayed(monkeypatch, NAMED[name], here, there, present, **options)
    assert_within_bounds(*pair, relation)


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")  # of sums that are far too large
def test_these_tests_would_notice_rows_that_count_in_full(monkeypatch):
    """Without weights a person moves a sum by as many clip norms as there are rows."""

    def unweighted(cls, index, n, present=None):
        return cls(n, np.where(present is None or present, 1.0, 0.0) * np.ones(len(index)), index)

    here, there, present = neighbours(40, "zero_out", "opposite")
    fit = NAMED["DPSGDFClassifier"]  # of which the first sum is that of the rows
    with monkeypatch.context() as patch:
        patch.setattr(Records, "of_groups", classmethod(unweighted))
        first, second = replayed(monkeypatch, fit, here, there, present)
    assert move(first[0][0], second[0][0]) > 0.9 * HEAVY * first[0][0].norm_bound
    first, second = replayed(monkeypatch, fit, here, there, present)
    assert move(first[0][0], second[0][0]) > 0.9 * first[0][0].norm_bound  # the bound is tight


def test_parts_of_a_person_add_up_to_one_at_most_and_without_rounding(rng):
    index = rng.integers(500, size=20_000)
    index[:5_000] = 7
    index = np.unique(index, return_inverse=True)[1]
    records = Records.of_groups(index, int(index.max()) + 1)
    sums = np.bincount(index, records.weights)
    assert (sums <= 1).all() and (sums > 1 - 1e-3).all()
    shuffled = records.weights[rng.permutation(len(index))]
    assert shuffled.sum() == records.weights.sum() == np.cumsum(records.weights)[-1]


def test_rows_of_a_batch_are_those_of_its_persons(rng):
    index = rng.integers(30, size=200)
    records, batch = Records.of_groups(index, 31), np.array([0, 3, 17, 30])  # one has no rows
    rows = records.rows(batch)
    np.testing.assert_array_equal(rows, np.flatnonzero(np.isin(index, batch)))
    taken = records.taken(batch)
    np.testing.assert_array_equal(batch[taken.index], index[rows])
    assert taken.n == 4


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_what_a_fit_releases_does_not_follow_from_the_number_of_rows(monkeypatch, case):
    """Every row three times, for each person: the same statement, and the same sums."""
    groups = persons(case.n)
    X, y = blobs(n=len(groups))
    fits = []
    for times in (1, 3):
        table = np.tile(X, (times, 1)), np.tile(y, times)
        with releases(monkeypatch) as seen:
            fitted = case.fit(*table, groups=np.tile(groups, times))
        fits.append((privacy_of(fitted), seen))
    (one, here), (three, there) = fits
    assert one == three and one.details() == three.details()
    assert one.unit == "person" and f"number of persons ({case.n})" in one.details()
    for first, second in zip(here, there, strict=True):
        assert first[2] == second[2]  # the noise
        assert first[0].norm_bound == pytest.approx(second[0].norm_bound, rel=1e-6)
    if here:  # later sums may depend on where the first ones are cut to the lattice
        np.testing.assert_allclose(here[0][0].value, there[0][0].value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("batch_size", [None, 60])
def test_a_person_with_one_row_is_a_row(batch_size):
    X, y = blobs(n=400)
    options = {"random_state": 0, "batch_size": batch_size, "n_iter": 5}
    options |= {"clip_norm": 0.2, "learning_rate": 1.0}  # defaults differ for persons
    rows = DPSGDClassifier(**options).fit(X, y)
    people = DPSGDClassifier(**options).fit(X, y, groups=[f"p{i:03}" for i in range(400)])
    # Slack for rounding differs by a little, and so does the noise.
    np.testing.assert_allclose(rows.coef_, people.coef_, rtol=1e-3, atol=1e-6)
    assert rows.privacy_.event == people.privacy_.event
    assert (rows.privacy_.unit, people.privacy_.unit) == ("row", "person")


def test_without_privacy_each_person_has_the_same_weight(rng):
    groups = persons(150, most=9)
    X, y = blobs(n=len(groups), d=3)
    weights = 1 / np.bincount(groups)[groups]
    ours = DPSGDClassifier(epsilon=math.inf, row_norm=None, alpha=1e-3)
    ours.fit(X, y, groups=groups)
    # A solver that any scipy runs without warnings.
    theirs = LogisticRegression(C=1 / (150 * 1e-3), tol=1e-8, solver="newton-cg")
    theirs.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-3)
    target = X @ [1.0, -2.0, 0.5] + rng.normal(size=len(X))
    ours = DPLinearRegression(epsilon=math.inf).fit(X, target, groups=groups)
    theirs = LinearRegression().fit(X, target, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    mean = private_mean(X, epsilon=math.inf, groups=groups).value
    np.testing.assert_allclose(mean, np.average(X, axis=0, weights=weights), rtol=1e-5)
    median = private_quantile(X[:, 0], epsilon=math.inf, groups=groups).value
    below = weights[X[:, 0] < median].sum() / weights.sum()
    assert abs(below - 0.5) < 0.02


def test_noisy_quantiles_count_persons():
    """Most rows belong to one person, and lie where nobody else's do."""
    groups = np.concatenate([np.zeros(20_000, int), np.arange(1, 2000)])
    values = np.where(groups == 0, 1000.0, groups % 10)
    found, guarantee = private_quantile(values, 0.5, random_state=0, groups=groups)
    assert 3 < found < 6
    assert "20000" not in guarantee.details() and "21999" not in guarantee.details()


def test_nothing_fitted_tells_the_number_of_rows():
    groups = persons(211, most=40)
    X, y = blobs(n=len(groups))
    model = DPLinearRegression(random_state=0).fit(X, y.astype(float), groups=groups)
    numbers = [value for value in vars(model).values() if isinstance(value, (int, np.integer))]
    assert len(groups) not in numbers
    assert all(len(groups) not in getattr(value, "shape", ()) for value in vars(model).values())
    assert str(len(groups)) not in model.privacy_.details()


BAD = [
    (None, "single value"),
    ("patient", "pass the column itself"),
    (np.zeros(7), "one entry for each row"),
    (np.r_[np.nan, np.zeros(39)], "missing"),
    (np.array([None, *"a" * 39], dtype=object), "missing"),
    (np.array([1, *"a" * 39], dtype=object), "one type"),
    (np.zeros((40, 2)), "2 columns"),
    (np.ma.array(np.zeros(40), mask=np.arange(40) == 3), "missing"),
    ([frozenset({i % 3}) for i in range(40)], "one type"),
    (pd.array(["a", pd.NA] * 20, dtype="string"), "missing"),
    (np.array(["NaT", *["2020-01-01"] * 39], dtype="datetime64[D]"), "missing"),
]


@pytest.mark.parametrize(("groups", "message"), BAD[1:], ids=[m for _, m in BAD[1:]])
def test_groups_that_cannot_be_are_refused_before_anything_is_spent(groups, message):
    X, y = blobs(n=40)
    model = DPSGDClassifier(random_state=0)
    with pytest.raises(ValueError, match=f"`groups`.*{message}"):
        model.fit(X, y, groups=groups)
    assert not hasattr(model, "privacy_")


def test_a_single_group_is_one_person():
    X, y = blobs(n=40)
    model = DPSGDClassifier(random_state=0).fit(X, y, groups=np.zeros(40))
    assert "number of persons (1)" in model.privacy_.details()


def test_a_ledger_counts_persons_or_rows_and_not_both():
    groups = persons(40)
    X, y = blobs(n=len(groups))
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5, unit="person")
    ledger.fit(DPSGDClassifier(epsilon=1.0, n_iter=3), X, y, groups=groups)
    spent = ledger.epsilon()
    with pytest.raises(PrivacyError, match="Pass `groups`"):
        ledger.fit(DPSGDClassifier(epsilon=1.0, n_iter=3), X, y)
    with pytest.raises(PrivacyError, match="Pass `groups`"):
        ledger.run(private_mean, X, epsilon=0.1)
    assert ledger.epsilon() == spent
    ledger.run(private_mean, X, epsilon=0.1, groups=groups)
    pipe = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(epsilon=0.5, n_iter=3))
    with pytest.raises(PrivacyError, match="Pass `groups`"):
        ledger.fit(pipe, X, y, dpsgdclassifier__groups=groups)
    both = {"boundedscaler__groups": groups, "dpsgdclassifier__groups": groups}
    ledger.fit(pipe, X, y, **both)
    rows = PrivacyLedger(epsilon=3.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="unit"):
        rows.fit(DPSGDClassifier(epsilon=1.0, n_iter=3), X, y, groups=groups)


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_cross_validation_passes_groups_on():
    groups = persons(90)
    X, y = blobs(n=len(groups))
    model = DPSGDClassifier(epsilon=5.0, n_iter=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(model, {"row_norm": ["l2", 1.0]}, cv=GroupKFold(3))
        search.fit(X, y, groups=groups)
        assert search.best_estimator_.privacy_.unit == "person"
        scores = cross_val_score(model, X, y, cv=GroupKFold(3), params={"groups": groups})
    assert scores.mean() > 0.5


def test_steps_are_as_many_as_the_clip_norm_of_persons_asks_for():
    # Persons have a smaller clip norm, so that stable steps of a squared loss are shorter.
    model = DPSGDRegressor(epsilon=3.0, delta=1e-5, data_norm=1.0, target_bounds=(0, 1))
    of_rows = Sizes(1200, 13, 1)
    of_persons = replace(of_rows, persons=True)
    steps = [model._plan().resolved(sizes).descent.n_iter for sizes in (of_rows, of_persons)]
    assert steps[0] < steps[1]
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(2400, 13)), np.repeat(np.arange(1200), 2)
    assert model.fit(X, rng.uniform(size=2400), groups=groups).n_iter_ == steps[1]


# Personal models --------------------------------------------------------------------------------


def test_an_audit_of_one_round_does_not_refute_its_claim_and_would_refute_a_smaller_one(
    monkeypatch,
):
    """Sixty persons, each of whom half take part, point along coordinates of their own.

    Of 4,000 guesses 0.626 are right, with a deviation of 0.0073: 0.58, which would bound epsilon by
    0.26, is at 6.5 of these.
    """
    d, multiplier, repeats = 61, 1.0, 100
    white = np.eye(d)[:, :1]
    own = np.arange(1, d)
    # Each has one row: their residuals along the direction give a head, and the rest a gradient.
    X = 0.2 * white[:, 0] + np.eye(d)[own]
    coins, guessed, right = np.random.default_rng(0), 0, 0
    claim = epsilon_of(gaussian(multiplier), 1e-5, "zero_out")
    for seed in range(repeats):
        present = coins.random(d - 1) < 0.5
        users = PersonRows(
            AffineRows(X, Affine.identity(d), constant=False),
            np.full(d - 1, 4.0),
            Records.of_rows(d - 1, present),
            weights=np.zeros(d),
            constant=0.0,
            whitening=np.eye(d),
        )
        how = some_releases(multiplier, name="rounds", seed=seed)
        with releases(monkeypatch) as seen:
            gradient_round(users, how, white)
        found = np.abs(seen[0][1][own, 0])
        order = np.argsort(found)
        right += present[order[-20:]].sum() + (~present[order[:20]]).sum()
        guessed += 40
    bound = audit_epsilon(repeats * (d - 1), guessed, int(right), delta=1e-5)
    assert 0.2 < bound <= claim


def test_the_cost_of_personal_models_is_pinned():
    """Location, scale and lengths; a second moment and steps; directions, heads, their kinds."""
    model = PersonalizedLinearRegression(epsilon=1.0, delta=1e-6, n_iter=0)
    event = model.privacy_event(1000, 10)
    counts = [getattr(part, "count", 1) for part in event.events]
    assert counts == [1, 5, 1, 1, counts[4], 1, 1, 1] and 6 <= counts[4] <= 20
    assert epsilon_of(event, 1e-6, "zero_out") == pytest.approx(1.0, rel=1e-3)
    rounds = PersonalizedLinearRegression(epsilon=1.0, delta=1e-6, n_iter=3)
    counts = [getattr(part, "count", 1) for part in rounds.privacy_event(1000, 10).events]
    assert counts[6] == 3
    # Where noise would hide the second moment all steps are of columns as they are, and none is
    # released.
    few = model.privacy_event(50, 10)
    assert [getattr(part, "count", 1) for part in few.events] == [1, 5, 1, 50, 1, 1, 1]
    with_public = model.privacy_event(1000, 10, n_public=100, labelled=True)
    # Nothing is released of columns or directions; of targets, their place in a public range.
    assert len(with_public.events) == 5
    # With a round, whether the directions are worth it is checked first.
    checked = rounds.privacy_event(1000, 10, n_public=100, labelled=True)
    assert [getattr(part, "count", 1) for part in checked.events][3:] == [1, 3, 1, 1]
    batches = PersonalizedLinearRegression(epsilon=None, n_iter=2, batch_size=100, delta=1e-6)
    with pytest.raises(ValueError, match="epsilon"):
        batches.privacy_event(1000, 10)
