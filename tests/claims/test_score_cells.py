"""Counts of scores and sums of losses: how far one record moves them, and what noise they get."""

import itertools
import math
import sys
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from cases import COMPARED, RECORDS, PublicModel, scored
from cases import SCORED as OF_ONE_MODEL
from dp_accounting import LaplaceDpEvent
from helpers import RARE, RELATIONS, blobs, groups_of, pairs_first
from scipy import stats

from dpsubspace import PrivacyError, private_score
from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.fits.outputs import shown_to
from dpsubspace._core.release import mechanisms
from dpsubspace._core.release.mechanisms import release_laplace
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import (
    bounded_sums,
    counted,
    difference_sums,
    grouped_sums,
)
from dpsubspace.audit import audit_epsilon

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* is NaN:dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:noise hides:dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:noise will hide :dpsubspace.PrivacyWarning"),
    # So few rows are mostly noise, as the warning rightly says.
    pytest.mark.filterwarnings("ignore:.* will be mostly noise:dpsubspace.PrivacyWarning"),
]
SCORED = OF_ONE_MODEL | {f"difference, {name}": each for name, each in COMPARED.items()}
ENDS = {"zero_out": "norm_bound", "replace_one": "replace_bound"}


@contextmanager
def laplace_releases(monkeypatch, outputs=None, factor=1.0):
    """Record what is released with Laplace noise, or give `outputs` again."""
    seen = []

    def recording(total, epsilon, noise, **options):
        if outputs is not None:
            out = outputs[len(seen)][1]
        else:
            out = release_laplace(total, epsilon / factor, noise, **options)
        seen.append((total, out, epsilon))
        return out

    with monkeypatch.context() as patch:
        for module in [m for key, m in sys.modules.items() if key.startswith("dpsubspace.")]:
            if module is not mechanisms and getattr(module, "release_laplace", None):
                patch.setattr(module, "release_laplace", recording)
        yield seen


def fits():
    yield from pairs_first(SCORED, RELATIONS, RECORDS, [False, True], together=(0, 1))


@pytest.mark.parametrize(("setting", "relation", "record", "persons"), fits(), ids=str)
def test_one_record_moves_every_release_within_its_bound(
    monkeypatch, setting, relation, record, persons
):
    """A row, or a person with a third of the rows, of which there are fewer afterwards."""
    X, _ = blobs(n=60)
    other, present, groups, others = X.copy(), None, None, None
    few = np.arange(20) if persons else np.arange(1)
    X[few], other[few] = RECORDS[record](X)
    if persons:
        groups = others = np.maximum(np.arange(60) - 19, 0)
    if relation == "zero_out":
        other, present = X, np.arange(60) >= len(few)
    elif persons:
        other, others = other[7:], groups[7:]
    target = Target(9.0, "auto", relation)  # with less, a class in a group is hidden by noise
    options = SCORED[setting]
    # Of a person with a third of the rows, noise may hide how large errors are.
    with suppress(PrivacyError), laplace_releases(monkeypatch) as here:
        scored(X, target, 0, groups=groups, **options)
    with suppress(PrivacyError), laplace_releases(monkeypatch, here) as there:
        scored(other, target, 0, groups=groups_of(present, others), **options)
    assert len(here) == len(there) > 0
    for (one, _, _), (two, _, _) in zip(here, there, strict=True):
        bound = getattr(one, ENDS[relation])
        assert bound == getattr(two, ENDS[relation])
        assert np.isfinite(one.value).all()
        assert np.abs(one.value - two.value).sum() <= bound * (1 + 1e-12)


def test_the_bounds_are_tight():
    here, there = Records.of_rows(1), Records.of_rows(1, np.zeros(1, bool))
    ends = [counted(np.array([cell]), 3, here) for cell in (0, 2)]
    nothing = counted(np.array([0]), 3, there)
    assert np.abs(ends[0].value - ends[1].value).sum() == ends[0].replace_bound == 2.0
    assert np.abs(ends[0].value - nothing.value).sum() == ends[0].norm_bound == 1.0
    shares = np.array([0.5, 0.25, 0.25])
    sums = [bounded_sums(np.full((1, 3), value), shares, here) for value in (0.0, 1.0)]
    moved = np.abs(sums[0].value - sums[1].value).sum()
    assert moved == 1.0 <= sums[0].replace_bound == sums[0].norm_bound < 1 + 1e-9


def test_the_bounds_of_groups_are_tight():
    """One row that leaves a group for another, of which both sums change, and one that is null."""
    shares, row = np.array([0.75, 0.25]), np.array([[1.0, 0.0]])
    here, null = Records.of_rows(1), Records.of_rows(1, np.zeros(1, bool))
    sums = [grouped_sums(row, shares, here, np.array([j]), 2) for j in (0, 1)]
    nothing = grouped_sums(row, shares, null, np.array([0]), 2)
    assert np.abs(sums[0].value - sums[1].value).sum() == 2.0 <= sums[0].replace_bound < 2 + 1e-9
    assert np.abs(sums[0].value - nothing.value).sum() == 1.0 <= sums[0].norm_bound < 1 + 1e-9
    np.testing.assert_array_equal(sums[0].value, [[[0.75, 0.0], [0.0, 0.25]], np.zeros((2, 2))])


def test_the_bounds_of_differences_are_tight():
    """One row that a model is right about, of which the other is right, and one that is null."""
    shares = np.array([0.75, 0.15, 0.1])
    here, null = Records.of_rows(1), Records.of_rows(1, np.zeros(1, bool))
    rows = np.array([[1.0, 1.0, 1.0]]), np.array([[-1.0, 0.0, 0.0]])
    sums = [difference_sums(row, shares, here) for row in rows]
    nothing = difference_sums(rows[0], shares, null)
    assert np.abs(sums[0].value - nothing.value).sum() == 1.0 <= sums[0].norm_bound < 1 + 1e-9
    assert np.abs(sums[0].value - sums[1].value).sum() == pytest.approx(1.75, rel=1e-12)
    assert 1.75 <= sums[0].replace_bound < 1.75 + 1e-9


@pytest.mark.parametrize("wild", [-3.0, 7.0, math.nan, math.inf, -math.inf])
def test_a_difference_of_a_row_is_from_minus_1_to_1(wild):
    rows = np.array([[wild, wild]])
    first, second = difference_sums(rows, np.ones(2), Records.of_rows(1)).value
    assert -1 <= first <= 1 and 0 <= second <= 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_differences_of_persons_are_within_the_bounds(rng, relation):
    """All people of one to four rows of differences of -1, 0, 1/3 and 1, against each other."""
    shares, found = np.array([0.8, 0.2]), []
    for _ in range(200):
        moved = rng.choice([-1.0, 0.0, 1 / 3, 1.0], size=rng.integers(1, 5))
        person = Records.of_groups(np.zeros(len(moved), dtype=int), 1)
        found.append(difference_sums(np.column_stack([moved, moved**2]), shares, person))
    others = [each.value for each in found] if relation == "replace_one" else [np.zeros(2)]
    for one in found:
        assert max(np.abs(one.value - other).sum() for other in others) <= getattr(
            one, ENDS[relation]
        )


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_person_in_several_groups_is_within_the_bounds(rng, relation):
    """All people of one to four rows of values 0, 1/3 and 1 in three groups, against each other."""
    shares = np.array([0.6, 0.4])
    found = []
    for _ in range(200):
        k = rng.integers(1, 5)
        values, group = rng.choice([0.0, 1 / 3, 1.0], size=(k, 2)), rng.integers(3, size=k)
        person = Records.of_groups(np.zeros(k, dtype=int), 1)
        cells = counted(4 * group + rng.integers(4, size=k), 12, person)
        found.append((grouped_sums(values, shares, person, group, 3), cells))
    nothing = [np.zeros((3, 2, 2)), np.zeros(12)]
    for one in found:
        others = found if relation == "replace_one" else [None]
        for other in others:
            for j in range(2):
                there = nothing[j] if other is None else other[j].value
                moved = np.abs(one[j].value - there).sum()
                assert moved <= getattr(one[j], ENDS[relation])


@pytest.mark.parametrize("wild", [-3.0, 7.0, math.nan, math.inf, -math.inf])
def test_what_a_row_brings_to_a_sum_is_from_0_to_1(wild):
    brought = bounded_sums(np.array([[wild]]), np.ones(1), Records.of_rows(1)).value
    assert 0 <= brought[0] <= 1


def test_sums_are_taken_without_rounding(rng):
    values, index = rng.random((5000, 2)), rng.integers(700, size=5000)
    index = np.unique(index, return_inverse=True)[1]
    shares, sums = np.array([0.7, 0.3]), []
    for order in (np.arange(5000), rng.permutation(5000)):
        records = Records.of_groups(index[order], int(index.max()) + 1)
        sums.append(bounded_sums(values[order], shares, records).value)
    assert np.array_equal(*sums)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("setting", SCORED)
def test_what_is_released_is_what_the_event_says(monkeypatch, setting, relation):
    """Each release once, with Laplace noise of the bound over its epsilon."""
    with laplace_releases(monkeypatch) as seen:
        found = scored(blobs(n=600)[0], Target(5.0, 0.0, relation), 0, **SCORED[setting])
    guarantee = found.privacy_
    event = guarantee.event
    events = event.events if hasattr(event, "events") else [event]
    doubled = 2.0 if relation == "replace_one" else 1.0  # by the accountant
    assert all(isinstance(each, LaplaceDpEvent) for each in events)
    said = sorted(doubled / each.noise_multiplier for each in events)
    assert sorted(epsilon for *_, epsilon in seen) == pytest.approx(said, rel=1e-9)
    assert sum(said) <= 5.0 * (1 + 1e-9)
    assert guarantee.epsilon == 5.0 and guarantee.delta == 0.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_of_counts_has_the_scale_that_is_said(monkeypatch, relation):
    """Of every release of a score, of all kinds of scores."""
    X, noise = blobs(n=600)[0], []
    for setting, seed in itertools.product(SCORED.values(), range(3)):
        with suppress(PrivacyError), laplace_releases(monkeypatch) as seen:
            scored(X, Target(2.0, 0.0, relation), seed, **setting)
        for total, out, epsilon in seen:
            scale = getattr(total, ENDS[relation]) / epsilon
            noise.append((out - total.value).ravel() / scale)
    noise = np.concatenate(noise)
    assert stats.kstest(noise, "laplace").pvalue > RARE
    # The mean size of Laplace noise has a gamma law; a wrong scale is certain to be found in 1,000.
    sizes, law = np.abs(noise).sum(), stats.gamma(len(noise))
    assert 2 * min(law.cdf(sizes), law.sf(sizes)) > RARE and len(noise) > 1000
    assert law.cdf(2 / 3 * sizes) < RARE and law.sf(3 / 2 * sizes) < RARE


class Told(PublicModel):
    """A model that predicts what stands in the first column."""

    def predict(self, X):
        return X[:, 0].astype(int)


def guesses(monkeypatch, factor, classes=30, runs=4):
    """Guesses which rows are there, each of them alone in its cell, and how many are right."""
    places = np.indices((classes, classes)).reshape(2, -1).T
    X, coins = np.zeros((len(places), 5)), np.random.default_rng(0)
    X[:, 0], guessed, right = places[:, 0], 0, 0
    for seed in range(runs):
        there = coins.random(len(X)) < 0.5
        with laplace_releases(monkeypatch, factor=factor) as seen:
            private_score(
                Told(classes), X, places[:, 1], metric="confusion_matrix", random_state=seed,
                groups=groups_of(there),
            )  # fmt: skip
        ((total, out, _),) = seen
        assert sorted(total.value) == sorted(there)
        sure = np.abs(out - 0.5) > 0.5
        guessed, right = guessed + sure.sum(), right + (sure & ((out > 0.5) == total.value)).sum()
    return int(guessed), int(right)


def test_an_audit_stays_below_the_claim_and_catches_half_of_the_noise(monkeypatch):
    """Both fail at most once in 1e9.

    Where the claim holds, that is what the audit's confidence says. With noise of scale 1/2 a guess
    is made with a chance of 0.568, and is right with one of 0.88: of 3,600 rows at least 1,865
    are guessed and 83 % of those right, where 80 % are enough.
    """
    sure = {"delta": 0.0, "confidence": 1 - 1e-9}
    guessed, right = guesses(monkeypatch, 1.0)
    assert audit_epsilon(guessed, guessed, right, **sure) < 1.0
    guessed, right = guesses(monkeypatch, 1 / 2)
    assert audit_epsilon(guessed, guessed, right, **sure) > 1.0


# Whatever a model says of a row because of the others ------------------------------------------


class Placed(PublicModel):
    """A model that rounds by the place of a row, as products do, but by more.

    It says the same of the same rows whenever it is asked.
    """

    def predict(self, X):
        return (super().predict(X) + np.arange(len(X))) % len(self.classes_)

    def predict_proba(self, X):
        return super().predict_proba(X) * (0.01 + np.arange(len(X)) % 2)[:, None]


@pytest.mark.parametrize("metric", [["roc_auc", "f1"], "accuracy", "confusion_matrix", "log_loss"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_person_moves_nothing_but_what_that_person_brings(monkeypatch, metric, relation):
    """A person of one row is replaced by one of two, or leaves with that row: all others shift."""
    X, _ = blobs(n=41)
    one = np.arange(41) - (np.arange(41) > 0)  # the first person has two rows
    y = (X[:, 0] > 0).astype(int)
    kept = np.arange(41) != 1
    options = {"metric": metric, "pos_label": 1 if "f1" in metric else None, "epsilon": 5.0}
    options |= {"neighboring_relation": relation, "random_state": 0}
    with laplace_releases(monkeypatch) as here:
        private_score(Placed(2), X, y, groups=one, **options)
    present = None if relation == "replace_one" else np.arange(40) > 0
    with laplace_releases(monkeypatch, here) as there:
        whose = groups_of(present, one[kept])
        private_score(Placed(2), X[kept], y[kept], groups=whose, **options)
    for (first, _, _), (second, _, _) in zip(here, there, strict=True):
        moved = np.abs(first.value - second.value).sum()
        assert moved <= getattr(first, ENDS[relation]) * (1 + 1e-12)


def test_people_are_shown_alone_to_whatever_is_held_out_from_a_model():
    """Calibration and conformal sets, which take rows from there."""
    X, _ = blobs(n=41)
    one = np.arange(41) - (np.arange(41) > 0)
    for records, rows in (
        (Records.of_groups(one, 40), X),
        (Records.of_groups(one[1:], 40), X[1:]),
    ):
        held = Data(rows, np.zeros(len(rows)), 1, records)
        shown = shown_to(Placed(2).predict_proba, held)
        alone = [Placed(2).predict_proba(row[None])[0] for row in X[2:]]
        np.testing.assert_array_equal(shown[-39:], alone)
