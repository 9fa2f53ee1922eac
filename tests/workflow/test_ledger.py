"""The ledger: what it adds up, what it refuses, and that its cap holds however fits are chosen."""

import copy
import math
import multiprocessing
import pickle
import re
import threading
from contextlib import suppress
from functools import cache
from itertools import permutations

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent, RepeatAndSelectDpEvent
from helpers import CLASSIFIERS, blobs, calibrate, charged, epsilon_of, examples, price_of
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from scipy.special import log_ndtr
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, scale

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyError,
    PrivacyLedger,
    private_mean,
)
from dpsubspace._core.accounting.accountants import renyi_curve
from dpsubspace._core.accounting.cost import Cost, dominating_mu, gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import (
    bounded_range,
    composed,
    gaussian,
    laplace,
    mechanisms_of,
    non_private,
    sampled_gaussian,
)
from dpsubspace.budget import PrivacyGuarantee
from dpsubspace.budget._filter import Charge, response_divergence
from dpsubspace.budget._fit_charge import FitCharge
from dpsubspace.budget._journal import About
from dpsubspace.exceptions import PrivacyBudgetError
from dpsubspace.statistics import private_covariance, private_quantile

ZERO_OUT = {"neighboring_relation": "zero_out"}
AT = {"delta": 1e-5, **ZERO_OUT}

GUARANTEE = PrivacyGuarantee(
    event=gaussian(37.3, 100),
    epsilon=1.00004,
    delta=1e-5,
    neighboring_relation="zero_out",
    unit="row",
    secure=False,
    public=("a < b",),
)


def ledger(epsilon=1.0, **options):
    return PrivacyLedger(epsilon=epsilon, delta=1e-5, **options)


def test_ledger_composes_exactly():
    book = ledger(2.0)
    for _ in range(3):
        book.charge(gaussian(20.0, 10), **ZERO_OUT)
    assert book.epsilon() == pytest.approx(epsilon_of(gaussian(20.0, 30), **AT), rel=1e-12)
    assert book.epsilon_if_planned() == pytest.approx(book.epsilon(), rel=1e-12)
    assert book.epsilon(1e-7) > book.epsilon()


def test_ledger_refuses_to_overspend_and_records_nothing():
    book = ledger(1.0)
    book.charge(gaussian(4.0), "first", **ZERO_OUT)
    before = book.epsilon()
    with pytest.raises(PrivacyBudgetError, match="second"):
        book.charge(gaussian(4.0), "second", **ZERO_OUT)
    assert (book.epsilon(), len(book.entries)) == (before, 1)


def test_ledger_takes_a_fit_of_exactly_its_budget():
    model = DPSGDClassifier(epsilon=1.0, delta=1e-5)
    book = ledger(1.0)
    book.charge(model.privacy_event(), **ZERO_OUT)
    assert book.remaining() < 1e-3


def test_what_remains_can_be_spent():
    book = ledger(1.0)
    assert book.remaining() == pytest.approx(1.0)
    book.charge(DPSGDClassifier(epsilon=0.6, delta=1e-5).privacy_event(), **ZERO_OUT)
    left = book.remaining()
    assert left > 0.4  # guarantees of Gaussians do not simply add up
    book.charge(DPSGDClassifier(epsilon=left, delta=1e-5).privacy_event(), **ZERO_OUT)
    assert book.epsilon() <= 1.0


def test_ledger_refuses_other_relations_and_units():
    for book in (ledger(neighboring_relation="replace_one"), ledger(unit="user")):
        with pytest.raises(PrivacyError, match="cannot be added up"):
            book.charge(gaussian(50.0), **ZERO_OUT, unit="row")
        with pytest.raises(PrivacyError, match="cannot be added up"):
            book.fit(DPSGDClassifier(), *blobs())
        assert book.entries == ()
        with pytest.raises(PrivacyError, match="recorded as not private"):
            book.charge(GUARANTEE)
        assert book.epsilon() == math.inf


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_ledger_cannot_be_copied_or_sent_to_another_process(duplicate):
    with pytest.raises(PrivacyError, match="spend one budget twice"):
        duplicate(ledger())


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(math.nan),
        dpa.GaussianDpEvent(-1.0),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(4.0), -1),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(4.0), 0.5),
        dpa.ComposedDpEvent([dpa.GaussianDpEvent(4.0), dpa.GaussianDpEvent(math.nan)]),
        dpa.GaussianDpEvent(1e-200),
        dpa.LaplaceDpEvent(-1.0),
        dpa.NonPrivateDpEvent(),
        0.5,
        DPSGDClassifier(),
    ],
    ids=str,
)
def test_ledger_refuses_events_that_make_no_sense(event):
    book = ledger()
    with pytest.raises(PrivacyError):
        book.charge(event, **ZERO_OUT)
    assert book.entries == () and book.remaining() == pytest.approx(1.0)


def test_ledger_refuses_seeded_fits_unless_told_otherwise():
    X, y = blobs(n=300)
    seeded = DPSGDClassifier(epsilon=0.5, random_state=0)
    with pytest.raises(PrivacyError, match="cancels its noise"):
        ledger().fit(seeded, X, y)
    with pytest.raises(PrivacyError, match="cancels its noise"):
        ledger().charge(GUARANTEE)
    book = ledger(2.0, allow_seeded=True)
    book.charge(GUARANTEE)
    assert book.epsilon() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("released", [gaussian(1.0), non_private(), GUARANTEE], ids=str)
def test_what_is_out_already_is_recorded_over_budget(released):
    book = ledger(1.0)
    book.charge(released, **ZERO_OUT, already_released=True)
    assert book.epsilon() > 1.0 and book.remaining() == 0.0
    # A seeded fit that is out has no noise that anybody could rely on.
    assert (book.epsilon() == math.inf) == (released in (non_private(), GUARANTEE))


@pytest.mark.parametrize("other", [{"neighboring_relation": "replace_one"}, {"unit": "person"}])
def test_what_a_guarantee_says_of_itself_cannot_be_said_otherwise(other):
    ledger, found = PrivacyLedger(2.0, 1e-5), private_mean(np.ones((50, 2)), data_norm=2.0)
    with pytest.raises(ValueError, match=f"`{next(iter(other))}`=.* leave it out"):
        ledger.charge(found, **other)
    assert len(ledger) == 0
    ledger.charge(found, neighboring_relation="zero_out", unit="row")
    assert len(ledger) == 1


def test_a_charge_cannot_be_changed_afterwards():
    book = ledger(2.0)
    parts = [gaussian(4.0), gaussian(4.0)]
    book.charge(dpa.ComposedDpEvent(parts), **ZERO_OUT)
    before = book.epsilon()
    parts.clear()
    book.entries[0].event.events.clear()
    assert book.epsilon() == before


def _fit_in_child(book, queue):
    try:
        book.fit(DPSGDClassifier(epsilon=0.5, delta=1e-5), *blobs(n=300))
    except PrivacyError as error:
        queue.put(str(error))


def test_a_forked_process_cannot_charge():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=_fit_in_child, args=(ledger(), queue))
    worker.start()
    assert "forked process" in queue.get(timeout=60)
    worker.join()


@pytest.mark.parametrize("X", [np.empty((0, 3)), []], ids=["array", "list"])
def test_no_rows_through_a_ledger(X):
    book = ledger()
    with pytest.raises(ValueError, match="n_samples"):
        book.fit(DPSGDClassifier(), X, [])
    assert book.entries == ()


def test_ledger_counts_what_ran_where_it_differs_from_the_plan():
    """Rows that are dropped on the way change the rate of batches, and with it the noise."""
    book = ledger(50.0)
    X, y = blobs(n=400)

    class Claims:
        shape = (99_999, 5)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(X, dtype)

    batches = {"noise_multiplier": 2.0, "n_iter": 5, "batch_size": 200}
    for Classifier in CLASSIFIERS:
        model = book.fit(Classifier(epsilon=None, **batches), Claims(), y)
        assert charged(book)[-1] == (Classifier.__name__, model.privacy_.event)
    spent = book.epsilon()
    model.privacy_.event.events.clear()  # the model's event is not the ledger's
    assert len(book.entries) == 2 and book.epsilon() == spent


def test_ledger_prints_its_entries():
    book = ledger()
    book.charge(gaussian(10.0), "churn", **ZERO_OUT)
    assert "churn: Gaussian noise, multiplier 10" in book.details()
    assert "of 1 spent" in str(book)


@pytest.mark.parametrize("unit", ["row", "person"])
def test_a_printed_ledger_has_a_line_for_each_entry_and_what_is_left(unit):
    """Total, entries with sizes and times, and what is left; no multiplier and no relation."""
    book = PrivacyLedger(epsilon=1.0, delta=1e-5, unit=unit)
    assert str(book).splitlines()[1] == (
        "  left: up to epsilon 1 for one more fit, or up to epsilon 1 for one more score"
    )
    book.charge(gaussian(10.0), "churn", **ZERO_OUT)
    groups = {"groups": np.arange(1000)} if unit == "person" else {}
    book.run(private_mean, np.arange(1000.0), bounds=(0, 1000), epsilon=0.2, label="ages", **groups)
    first, churn, ages, left, more, last = str(book).splitlines()
    assert first.endswith(f" of 1 spent at delta = 1e-05, per {unit} (zero_out)")
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(rf"  churn, {when}: epsilon 0\.\d+ by itself", churn)
    said = rf"  ages \(private_mean\) on 1,000 {unit}s, {when}: epsilon 0\.2 by itself"
    assert re.fullmatch(said, ages)
    fit, score = map(float, re.findall(r"up to epsilon ([\d.]+) for one more", left))
    assert book.remaining() * 0.999 < fit <= book.remaining() and 0 < score < 1
    assert ".details()" in more and last.startswith("  Not watched: ")
    assert "multiplier" not in str(book) and "multiplier" in book.details()
    book.charge(gaussian(0.1), already_released=True, **ZERO_OUT)
    assert "  left: nothing" in str(book).splitlines()


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"delta": 0},
        {"delta": 1},
        {"neighboring_relation": "add_remove"},
        {"unit": None},
        {"allow_seeded": 1},
        {"slack": 1e-5},
        {"slack": math.nan},
        {"pure_epsilon": 1.0},
        {"max_failures": -1},
        {"max_failures": 2.0},
    ],
)
def test_ledger_refuses_senseless_budgets(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        PrivacyLedger(**{"epsilon": 1.0, "delta": 1e-5, **options})


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_fit_through_a_ledger_charges_what_the_model_says(Classifier):
    X, y = blobs(n=300)
    book = ledger(8.0)
    model = book.fit(Classifier(epsilon=5.0), X, y)
    assert charged(book) == ((Classifier.__name__, model.privacy_.event),)


def test_a_fit_that_fails_before_its_first_release_costs_nothing():
    X, y = blobs(n=300)
    model = DPSGDClassifier(epsilon=5.0).fit(X, y)
    book = ledger(8.0)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        book.fit(model, X, y)
    assert book.entries == ()
    assert model.score(*blobs(n=300)) > 0.5  # and the earlier fit is still there


def break_third_step(monkeypatch):
    from dpsubspace._core.solvers import descent

    calls, clipped_sum = [], descent.clipped_sum

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("third step")
        return clipped_sum(*args, **kwargs)

    monkeypatch.setattr(descent, "clipped_sum", failing)


def test_a_fit_that_fails_after_a_release_costs_everything(monkeypatch):
    X, y = blobs(n=300)
    model = DPSGDClassifier(epsilon=5.0).fit(X, y)
    book = ledger(8.0)
    break_third_step(monkeypatch)
    with pytest.raises(MemoryError):
        book.fit(model, X, y)
    assert charged(book) == (("DPSGDClassifier", model.privacy_.event),)
    assert not hasattr(model, "coef_")


def test_a_fit_over_budget_never_sees_the_data():
    book = ledger(0.5)
    model = DPSGDClassifier(epsilon=1.0)
    with pytest.raises(PrivacyBudgetError):
        book.fit(model, *blobs())
    assert not hasattr(model, "privacy_") and book.entries == ()


def test_ledger_fits_pipelines_that_learn_nothing_outside():
    X, y = blobs(n=300)
    public_scaler = FrozenEstimator(StandardScaler().fit(X))  # as if X were public
    book = ledger(8.0)
    pipeline = make_pipeline(Normalizer(), public_scaler, DPSGDClassifier(epsilon=5.0))
    book.fit(pipeline, X, y)
    assert len(book.entries) == 1


def test_ledger_fits_text_that_is_hashed_row_by_row():
    texts, y = ["cough and fever", "a broken leg"] * 50, [0, 1] * 50
    book = ledger(8.0)
    book.fit(make_pipeline(HashingVectorizer(n_features=16), DPSGDClassifier()), texts, y)
    assert len(book.entries) == 1
    own = HashingVectorizer(n_features=16, tokenizer=str.split, token_pattern=None)
    with pytest.raises(PrivacyError, match="hashingvectorizer"):
        book.fit(make_pipeline(own, DPSGDClassifier()), texts, y)


class Scales(Normalizer):
    """A subclass may do anything, whatever its base does."""


class Stores(Pipeline):
    def fit(self, X, y=None):
        self.means_ = np.mean(X, axis=0)
        return super().fit(X, y)


class Freezer(FrozenEstimator):
    def fit(self, X, y=None):
        self.estimator.fit(X, y)
        return self


class Leaky(DPSGDClassifier):
    def fit(self, X, y):
        self.means_ = np.mean(X, axis=0)
        return super().fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (make_pipeline(Scales(), DPSGDClassifier()), "scales"),
        (make_pipeline(StandardScaler(), DPSGDClassifier()), "standardscaler"),
        (make_pipeline(FunctionTransformer(scale), DPSGDClassifier()), "FunctionTransformer"),
        (make_pipeline(Normalizer(), LogisticRegression()), "logisticregression"),
        (make_pipeline(DPSGDClassifier(), Normalizer()), "not private"),
        (Stores([("model", DPSGDClassifier())]), "Stores"),
        (make_pipeline(Freezer(StandardScaler()), DPSGDClassifier()), "freezer"),
        (Leaky(), "Leaky"),
        (make_pipeline(Normalizer(), Leaky()), "leaky"),
        (FrozenEstimator(DPSGDClassifier()), "cannot say"),
        (GridSearchCV(DPSGDClassifier(), {"alpha": [0, 1]}), "GridSearchCV"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_ledger_refuses_what_it_cannot_count(estimator, match):
    book = ledger()
    with pytest.raises(PrivacyError, match=match):
        book.fit(estimator, *blobs())
    assert book.entries == ()


def test_a_failure_in_an_earlier_step_of_a_pipeline_costs_nothing():
    X, y = blobs(n=300)
    X[0, 0] = np.nan
    book = ledger(8.0)
    with pytest.raises(ValueError, match="NaN"):
        book.fit(make_pipeline(Normalizer(), DPSGDClassifier(epsilon=5.0)), X, y)
    assert book.entries == ()


def test_a_pipeline_with_memory_is_never_given_back(tmp_path):
    """It fits clones, and nobody can see what they released."""
    X, y = blobs(n=300)
    book = ledger(8.0)
    pipeline = make_pipeline(Normalizer(), DPSGDClassifier(epsilon=5.0), memory=str(tmp_path))
    with pytest.raises(ValueError, match="inconsistent"):
        book.fit(pipeline, X, y[:7])
    assert len(book.entries) == 1


def test_threads_cannot_overspend_together():
    book = ledger(1.0)
    outcomes = []

    def spend():
        try:
            book.charge(DPSGDClassifier(epsilon=0.45, delta=1e-5).privacy_event(), **ZERO_OUT)
            outcomes.append(True)
        except PrivacyBudgetError:
            outcomes.append(False)

    threads = [threading.Thread(target=spend) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 12 and sum(outcomes) == len(book.entries)
    assert book.epsilon() <= 1.0


# What cannot be counted -----------------------------------------------------------------------


class Renamed(dpa.GaussianDpEvent):
    """A subclass may mean anything."""


class Nothing(dpa.NoOpDpEvent):
    """So may this one."""


@pytest.mark.parametrize(
    "event",
    [
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(20.0)),
        dpa.PoissonSampledDpEvent(0.1, bounded_range(0.01)),
        dpa.PoissonSampledDpEvent(0.1, sampled_gaussian(20.0, 0.1, 1)),
        *(dpa.PoissonSampledDpEvent(q, gaussian(20.0)) for q in (0, -0.1, 1.5, math.nan, "1")),
        dpa.PoissonSampledDpEvent(0.5, dpa.GaussianDpEvent(0.0)),
        dpa.SampledWithoutReplacementDpEvent(100, 1, dpa.GaussianDpEvent(50.0)),
        dpa.UnsupportedDpEvent(),
        dpa.ZCDpEvent(1e-9),
        MixtureOfGaussiansDpEvent(100.0, [1.0], [1.0]),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(50.0), True),
        dpa.GaussianDpEvent(math.inf),
        dpa.GaussianDpEvent("50"),
        dpa.LaplaceDpEvent(0.0),
        bounded_range(-0.1),
        Renamed(50.0),
        Nothing(),
        dpa.ComposedDpEvent([dpa.GaussianDpEvent(50.0), dpa.UnsupportedDpEvent()]),
        RepeatAndSelectDpEvent(dpa.LaplaceDpEvent(50.0), 2.0, 0.0),
        RepeatAndSelectDpEvent(gaussian(50.0), 0.5, 0.0),
        RepeatAndSelectDpEvent(gaussian(50.0), math.nan, 0.0),
        RepeatAndSelectDpEvent(dpa.NoOpDpEvent(), 2.0, 0.0),
    ],
    ids=str,
)
def test_what_cannot_be_counted_is_refused_or_recorded_as_not_private(event):
    book = ledger(1e6)
    with pytest.raises(PrivacyError):
        book.charge(event, **ZERO_OUT)
    assert book.entries == ()
    book.charge(dpa.NoOpDpEvent(), "nothing")
    assert book.epsilon() == 0
    other = ledger()
    with suppress(PrivacyError):  # where it is only known to be infinite
        other.charge(event, **ZERO_OUT, already_released=True)
    assert other.epsilon() == math.inf
    guarantee = PrivacyGuarantee(
        event=event, epsilon=0.1, delta=1e-5, unit="row", secure=True, **ZERO_OUT
    )
    with pytest.raises(PrivacyError):
        book.charge(guarantee, "out already")
    assert book.epsilon() == math.inf and book.remaining() == 0


def test_sampling_at_rate_1_is_no_sampling():
    """It was taken for nothing at all: a budget of 1 took Laplace noise of epsilon 20."""
    event = dpa.PoissonSampledDpEvent(1.0, dpa.LaplaceDpEvent(0.05))
    book = ledger()
    with pytest.raises(PrivacyBudgetError):
        book.charge(event, **ZERO_OUT)
    book.charge(event, **ZERO_OUT, already_released=True)
    assert book.epsilon() == pytest.approx(20.0)
    assert epsilon_of(dpa.PoissonSampledDpEvent(1.0, gaussian(4.0)), **AT) == epsilon_of(
        gaussian(4.0), **AT
    )


def test_gaussians_that_share_a_batch_are_one_gaussian():
    both = dpa.PoissonSampledDpEvent(0.02, composed([gaussian(2.0), gaussian(2.0)]))
    together = dpa.SelfComposedDpEvent(both, 50)
    one = epsilon_of(sampled_gaussian(math.sqrt(2.0), 0.02, 50), **AT)
    assert epsilon_of(together, **AT) == pytest.approx(one, rel=1e-3)
    assert epsilon_of(sampled_gaussian(2.0, 0.02, 100), **AT) < 0.9 * one  # which it is not
    book = ledger(2.0)
    book.charge(together, **ZERO_OUT)
    assert book.epsilon() == pytest.approx(one, rel=1e-3)


def test_an_event_must_say_its_relation():
    """The same range cost 1.1 in a ledger of replacements, where it is 2.0."""
    book = ledger(3.0, neighboring_relation="replace_one")
    with pytest.raises(PrivacyError, match="which neighbouring relation"):
        book.charge(bounded_range(1.0))
    with pytest.raises(PrivacyError, match="cannot be added up"):
        book.charge(bounded_range(1.0), **ZERO_OUT)
    with pytest.raises(PrivacyError, match="cannot be added up"):
        book.charge(bounded_range(1.0), neighboring_relation="replace_one", unit="user")
    assert book.entries == ()


def test_rounding_of_the_accountant_is_in_the_bound():
    """Batches with nearly all records are Gaussians, of which the divergence is known."""
    event = sampled_gaussian(100 / 0.3, 1 - 1e-12, 10_000)
    with pytest.raises(PrivacyError, match="1e-14"):
        epsilon_of(event, 1e-14, **ZERO_OUT)
    for delta in (2e-10, 1e-9):
        epsilon = epsilon_of(event, delta, **ZERO_OUT)
        assert hockey_stick(0.3, epsilon) < delta
        assert epsilon < 1.01 * gaussian_epsilon(0.09, delta)
    # So many steps that rounding would be a part of delta are counted by weighed losses.
    many = sampled_gaussian(1000 / 0.3, 1 - 1e-12, 10**6)
    exact = gaussian_epsilon(0.09, 2e-10)
    assert exact <= epsilon_of(many, 2e-10, **ZERO_OUT) < 1.01 * exact


# The filter -----------------------------------------------------------------------------------


def hockey_stick(mu, a):
    """Of the Gaussian mechanism."""
    a = np.asarray(a, dtype=float)
    return np.exp(log_ndtr(mu / 2 - a / mu)) - np.exp(a + log_ndtr(-mu / 2 - a / mu))


def sampled_hockey_stick(multiplier, rate, orders):
    """Of one Gaussian on a Poisson batch, record present against absent, by quadrature."""
    z = np.linspace(-12 * multiplier, 1 + 12 * multiplier, 20_001)
    absent = np.exp(-0.5 * (z / multiplier) ** 2) / multiplier / math.sqrt(2 * math.pi)
    ratio = 1 - rate + rate * np.exp((2 * z - 1) / 2 / multiplier**2)
    excess = [np.maximum(ratio - math.exp(a), 0) @ absent for a in orders]
    return np.array(excess) * (z[1] - z[0])


def after_a_gaussian(mu, a, *choices):
    """Divergence of a Gaussian mechanism and then the worse of `choices`, by its loss."""
    z = np.linspace(-9, 9, 901)
    weights = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    left = a - (mu**2 / 2 + mu * z)
    return weights @ np.max([choice(left) for choice in choices], axis=0)


def test_no_choice_after_a_look_breaks_the_cap():
    """A full-batch fit, and then a batch of one in a thousand or a full batch, by its result.

    Either path costs epsilon 1 at delta 1e-5 by itself, which is what ledgers used to ask for.
    """
    first, rate = 4.5, 1e-3
    small = calibrate(
        lambda m: composed([gaussian(first), sampled_gaussian(m, rate, 1)]), epsilon=1.0, **AT
    )
    full = calibrate(lambda m: composed([gaussian(first), gaussian(m)]), epsilon=1.0, **AT)

    def on_a_batch(left):
        return sampled_hockey_stick(small, rate, left)

    def on_all(left):
        return hockey_stick(1 / full, left)

    for path in (on_a_batch, on_all):
        assert after_a_gaussian(1 / first, 1.0, path) <= 1e-5
    assert after_a_gaussian(1 / first, 1.0, on_a_batch, on_all) > 1.85e-5
    book = ledger(1.0, pure_epsilon=0.0)
    book.charge(gaussian(first), **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError):
        book.charge(sampled_gaussian(small, rate, 1), **ZERO_OUT)
    # With what the ledger does take, choices stay below its cap.
    left = book.remaining()
    full = calibrate(gaussian, epsilon=left, **AT)

    def fits(log_multiplier):
        try:
            ledger_of(gaussian(first), sampled_gaussian(math.exp(log_multiplier), rate, 1))
        except PrivacyBudgetError:
            return False
        return True

    grid = np.linspace(math.log(small), math.log(full), 9)
    small = math.exp(next(m for m in grid if fits(m)))
    assert 0.9 * 1e-5 < after_a_gaussian(1 / first, 1.0, on_a_batch, on_all) < 1e-5


def ledger_of(*events):
    book = ledger(pure_epsilon=0.0)
    for event in events:
        book.charge(event, **ZERO_OUT)
    return book


def test_no_choice_between_kinds_breaks_the_cap():
    """The rest of a budget may not go to either kind of mechanism by what was seen."""
    first, mu = 4.5, 1 / 4.5
    full = calibrate(lambda m: composed([gaussian(first), gaussian(m)]), epsilon=1.0, **AT)
    rest = 1.0 - epsilon_of(gaussian(first), **AT)

    def pure(left):  # randomised response
        inside = (math.exp(rest) - np.exp(left)) / (1 + math.exp(rest))
        return np.where(left < -rest, -np.expm1(np.minimum(left, 0)), np.maximum(inside, 0))

    def on_all(left):
        return hockey_stick(1 / full, left)

    assert after_a_gaussian(mu, 1.0, pure, on_all) > 1.01e-5
    book = ledger_of(gaussian(first))
    with pytest.raises(PrivacyBudgetError):
        book.charge(laplace(rest, **ZERO_OUT), **ZERO_OUT)
    # Set apart in advance it is taken, and the other kind has less.
    book = ledger(pure_epsilon=rest * 0.99)
    book.charge(gaussian(first), **ZERO_OUT)
    book.charge(laplace(rest * 0.99, **ZERO_OUT), **ZERO_OUT)
    assert book.epsilon() <= 1.0 and book.remaining() < 0.2


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_refusal_names_the_score_that_still_fits_when_only_the_account_of_fits_has_room(epsilon):
    book = ledger(epsilon)
    for _ in range(3):
        book.charge(fit_at(epsilon / 2), **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError, match="a full-batch fit of epsilon=") as refused:
        book.charge(pure(epsilon / 2), **ZERO_OUT)
    found = re.search(r"such as a score, of epsilon=([\d.]+):", str(refused.value))
    assert found and float(found[1]) > 0.05
    with pytest.raises(PrivacyBudgetError):
        book.charge(pure(1.2 * float(found[1])), **ZERO_OUT)
    book.charge(pure(float(found[1])), **ZERO_OUT)


def best_adversary(admits, sq_mu, units, budget):
    """Largest divergence at ``e^budget`` that choices after every look can reach.

    The choices are to stop, a Gaussian mechanism of `sq_mu`, or randomised response at any number
    of units of epsilon, where `admits(charge, spent)`. By backward induction over what was
    charged, on a grid of orders that has every kink; between its points a chord is above.
    """
    unit, cells = budget / units, 8
    orders = np.arange(-2 * units * cells, 3 * units * cells + 1) * (unit / cells)
    z = np.linspace(-7, 7, 43)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    losses = sq_mu / 2 + math.sqrt(sq_mu) * z

    def at(values, a):
        inside = np.interp(np.exp(a), np.exp(orders), values, right=0.0)
        return np.where(a < orders[0], -np.expm1(np.minimum(a, 0)), inside)

    @cache
    def value(fits, pure):
        spent = Charge.total([Charge(fits * sq_mu, 0, pure * unit, fits * sq_mu, pure * unit)])
        best = np.maximum(0, -np.expm1(orders))
        if admits(Charge(sq_mu, 0, 0, sq_mu), spent):
            best = np.maximum(best, at(value(fits + 1, pure), orders[:, None] - losses) @ weights)
        for more in range(1, units + 1 - pure):
            e = more * unit
            if admits(Charge(0, 0, e, 0, e), spent):
                after = value(fits, pure + more)
                lies = at(after, orders + e) / (1 + math.exp(e))
                best = np.maximum(best, at(after, orders - e) / (1 + math.exp(-e)) + lies)
        return best

    return float(value(0, 0)[(2 * units + units) * cells])


def first_passage(left, sq_mu, fits, budget):
    """The same for Gaussian mechanisms, and randomised response at all that is `left` after them.

    Which is the best that there is: epsilon loses nothing by being spent last, at once.
    """
    orders = np.linspace(-2 * budget, 3 * budget, 1001)
    z = np.linspace(-7, 7, 43)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    losses = sq_mu / 2 + math.sqrt(sq_mu) * z

    def response(e, a):
        truth = np.maximum(0, -np.expm1(np.minimum(a - e, 0))) / (1 + math.exp(-e))
        return truth + np.maximum(0, -np.expm1(np.minimum(a + e, 0))) / (1 + math.exp(e))

    best = response(left(fits), orders)
    for done in range(fits - 1, -1, -1):
        a = orders[:, None] - losses
        after = np.interp(a, orders, best, right=0.0)
        after = np.where(a < orders[0], -np.expm1(np.minimum(a, 0)), after) @ weights
        best = np.maximum(after, response(left(done), orders) if done else 0.0)
    return float(np.interp(budget, orders, best))


def accounts_of(budget, fits):
    """Accounts of a ledger whose first fit is one of so many, which take all of its plan."""
    book = PrivacyLedger(budget, 1e-5)._state
    sq_mu = gaussian_sq_mu(budget, 0.64 * 1e-5) / fits
    plan = book._open_split(Charge(), Charge(sq_mu, 0, 0, sq_mu))
    return sq_mu, [plan, *book._sums(plan)]


def test_the_best_of_all_choices_stays_below_delta():
    sq_mu, accounts = accounts_of(1.5, 4)

    def taken(charge, spent):
        return any(account.takes(charge, spent) for account in accounts)

    assert 0.64e-5 < best_adversary(taken, sq_mu, 5, 1.5) < 1e-5


@pytest.mark.parametrize("budget", [0.5, 1.5, 4.0])
def test_epsilon_that_is_spent_when_the_loss_is_large_stays_below_delta(budget):
    """With accounts that share delta; sums of epsilons at one delta for all are no filter."""
    sq_mu, accounts = accounts_of(budget, 12)

    def taken(fits):
        return max(a.epsilon for a in accounts if a.sq_mu >= fits * sq_mu)

    def summed(fits):
        return max(0.0, budget - gaussian_epsilon(fits * sq_mu, 1e-5))

    assert 0.64e-5 < first_passage(taken, sq_mu, 12, budget) < 1e-5
    assert first_passage(summed, sq_mu, 12, budget) > 2e-5


@pytest.mark.parametrize("sq_mu", [1e-4, 0.07, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.45, 3.0, 50.0])
def test_divergence_of_a_gaussian_beside_randomised_response(sq_mu, epsilon):
    mu, order = math.sqrt(sq_mu), epsilon + 0.3
    z = np.linspace(-14, 14, 200_001)
    excess = np.zeros_like(z)
    for sign in (1, -1):
        loss = mu**2 / 2 + mu * z + sign * epsilon
        excess += np.maximum(0, -np.expm1(order - loss)) / (1 + math.exp(-sign * epsilon))
    found = response_divergence(sq_mu, epsilon, order)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    assert found == pytest.approx(excess @ density, rel=1e-4, abs=1e-14)


def fit_at(epsilon):
    return gaussian(calibrate(gaussian, epsilon=epsilon, **AT))


def pure(epsilon):
    return laplace(epsilon, **ZERO_OUT)


@pytest.mark.parametrize(
    ("budget", "events", "spent"),
    [
        (1.5, [fit_at(1.0), pure(0.45)], 1.45),
        (1.5, [fit_at(1.0), pure(0.2), pure(0.25)], 1.45),
        (1.5, [fit_at(0.5), pure(0.9)], 1.4),
        (1.5, [fit_at(0.3), fit_at(0.9), pure(0.45)], 1.414),
        (2.0, [fit_at(1.0), pure(0.45), fit_at(0.5)], 1.596),
        (1.5, [pure(0.2), fit_at(0.8), pure(0.35)], 1.35),
        (1.5, [fit_at(0.9), sampled_gaussian(60.0, 0.1, 100), pure(0.45)], 1.352),
    ],
)
def test_fits_and_releases_without_a_delta_add_up_by_themselves(budget, events, spent):
    """In ledgers that used to refuse each of these."""
    book, before = ledger(budget), ledger(budget, pure_epsilon=0.0)
    for event in events:
        book.charge(event, **ZERO_OUT)
    assert book.epsilon() == pytest.approx(spent, abs=2e-3)
    with pytest.raises(PrivacyBudgetError):
        for event in events:
            before.charge(event, **ZERO_OUT)


@pytest.mark.parametrize(("pure_epsilon", "parts"), [(0.1, [0.1]), (0.3, [0.1, 0.2]), (0.5, [0.5])])
@pytest.mark.parametrize("fits", [1, 2])
def test_what_is_set_apart_is_set_apart_once_in_any_order(pure_epsilon, parts, fits, tmp_path):
    """Scores of all that is set apart, and fits of all the rest, whichever come first."""
    fit = gaussian(math.sqrt(fits) * calibrate(gaussian, epsilon=1 - pure_epsilon, **AT))
    found = []
    for order in {*permutations(["fit"] * fits + parts)}:
        book = ledger(1.0, slack=0.0, pure_epsilon=pure_epsilon)
        for part in order:
            book.charge(fit if part == "fit" else pure(part), **ZERO_OUT)
        for more in (fit, pure(0.01)):
            with pytest.raises(PrivacyBudgetError):
                book.charge(more, **ZERO_OUT)
        book.save(tmp_path / "ledger")
        again = PrivacyLedger.load(tmp_path / "ledger")
        found += [(each.epsilon(), each.remaining()) for each in (book, again)]
    assert found == [pytest.approx((1.0, 0.0), abs=1e-4)] * len(found)


def test_what_is_left_for_a_first_fit_is_less_what_is_set_apart_once():
    book = ledger(1.0, pure_epsilon=0.3)
    for spent, left in ((0.0, 0.7), (0.1, 0.7), (0.3, 0.7), (0.4, 0.6)):
        while book.epsilon() < spent - 0.05:
            book.charge(pure(0.1), **ZERO_OUT)
        assert book.remaining() == pytest.approx(left)


@pytest.mark.parametrize("before", [0.0, 0.2])
@pytest.mark.parametrize("fit", [0.3, 0.6])
def test_accounts_beside_the_plan_keep_their_part_of_delta(before, fit):
    """All that they have room for costs the rest of the budget after what came before, no more."""
    book = ledger(1.0)
    if before:
        book.charge(pure(before), **ZERO_OUT)
    book.charge(fit_at(fit), **ZERO_OUT)
    rooms, parts = book._state._sums(book._state.split), []
    for room in rooms:
        after = room.epsilon - before
        parts.append(room.slack + response_divergence(room.sq_mu, after, 1.0 - before))
    aside = book._state.terms.aside
    assert len(rooms) == 2 and aside * 0.99 < sum(parts) <= aside


def raised_batches(book):
    return book.add("batches", sampled_gaussian(3.0, 0.1, 20), About())[0], gaussian(30.0)


def raised_fit(book):
    return book.add("fit", gaussian(9.0), About())[0], gaussian(8.0)


def raised_mixed(book):
    """An entry that a plan was made with, and that is a fit now."""
    entry, _ = book.add("first", laplace(0.5, "zero_out"), About())
    book.add("fit", gaussian(6.0), About())
    return book.replace_entry(entry, gaussian(20.0)), gaussian(40.0)


def raised_search(book):
    """One that is charged with a part of delta."""
    event = composed([gaussian(9.0), RepeatAndSelectDpEvent(gaussian(50.0, 20), 10.0, 0.0)])
    return book.add("search", event, About())[0], gaussian(9.0)


@pytest.mark.parametrize("made", [raised_batches, raised_fit, raised_mixed, raised_search])
def test_only_fits_that_add_up_by_themselves_are_lowered_to_what_ran(made):
    book = ledger(3.0)
    entry, less = made(book._state)
    before = (book.remaining(), book._state.remaining_pure(), book._state.spent())
    assert book._state.settle(entry, less) == entry
    assert (book.remaining(), book._state.remaining_pure(), book._state.spent()) == before


def test_what_a_plan_was_made_with_is_not_taken_out_of_it(tmp_path):
    """A reserved release without a delta fails after another fit has fixed the plan beside it."""
    book = ledger(3.0, path=tmp_path / "ledger")
    reserved, _ = book._state.add("reserved", laplace(0.5, "zero_out"), About())
    book._state.add("fit", gaussian(6.0), About())
    left = book._state.remaining_pure()
    book._state.drop(reserved)
    assert [entry.label for entry in book.entries] == ["reserved", "fit"]
    assert book._state.remaining_pure() == left
    assert PrivacyLedger.load(tmp_path / "ledger").epsilon() == book.epsilon()


@pytest.mark.parametrize(
    "events",
    [
        [fit_at(0.6)] * 3,
        [fit_at(0.5), pure(0.05), fit_at(0.4)],
        [fit_at(0.5), pure(0.05), sampled_gaussian(6.0, 0.1, 100), pure(0.05), pure(0.05)],
        [sampled_gaussian(0.9, 0.01, 100), pure(0.05)],
        [RepeatAndSelectDpEvent(gaussian(50.0, 20), 10.0, 0.0), fit_at(0.5), pure(0.01)],
        [bounded_range(0.01, 100), fit_at(0.4), bounded_range(0.02, 8)],
    ],
)
def test_what_fitted_into_one_plan_fits_but_for_a_share_of_delta(events):
    """The plan has 0.65 of delta, less the slack: then no more than 0.6 of it is asked for."""
    one = PrivacyLedger(2.0, 0.6e-5, slack=1e-7, pure_epsilon=0.0)
    book = PrivacyLedger(2.0, 1e-5, slack=1e-7)
    for event in events:
        one.charge(event, **ZERO_OUT)
        book.charge(event, **ZERO_OUT)


def test_room_in_either_account_is_enough_and_both_count_everything():
    book = ledger(3.0)
    book.charge(fit_at(1.0), **ZERO_OUT)
    book.charge(pure(0.3), **ZERO_OUT)  # in the plan like a fit, beside it by its epsilon
    charge = book.entries[-1].charge
    assert (charge.epsilon, charge.sum_sq_mu, charge.sum_epsilon) == (0.0, 0.0, 0.3)
    assert charge.sq_mu > 0 and book.epsilon() == pytest.approx(1.3)
    left = book.remaining()
    for _ in range(20):  # until only one of them has room
        with suppress(PrivacyBudgetError):
            book.charge(fit_at(0.5), **ZERO_OUT)
    assert left > 1.5 > 0.5 > book.remaining()
    assert book._state.spent().sum_sq_mu > book._state._sums(book._state.split)[0].sq_mu
    with pytest.raises(PrivacyBudgetError):
        book.charge(pure(0.3), **ZERO_OUT)


def two_steps(second, look):
    """A scaler of multiplier 4.5, something that looks at it, and a classifier."""
    scaler = BoundedScaler(epsilon=epsilon_of(gaussian(4.5), **AT))
    watcher = FrozenEstimator(FunctionTransformer(lambda rows: look(scaler, second) or rows))
    return make_pipeline(scaler, watcher, second)


def test_a_fit_that_is_ended_after_a_look_stays_charged_as_planned():
    """Or the two paths of the first test of this kind were open: batches, or a full batch."""
    small = calibrate(
        lambda m: composed([gaussian(4.5), sampled_gaussian(m, 1e-3, 1)]), epsilon=1.0, **AT
    )
    X, y = blobs(n=2000)

    def end(scaler, model):
        if hasattr(scaler, "data_norm_"):
            raise KeyboardInterrupt

    def change(scaler, model):
        model.set_params(noise_multiplier=7.0, batch_size=None)

    for look, error in ((end, KeyboardInterrupt), (change, PrivacyBudgetError)):
        book = ledger(1.0)
        model = DPSGDClassifier(epsilon=None, noise_multiplier=small, n_iter=1, batch_size=2)
        with pytest.raises(error):
            book.fit(two_steps(model, look), X, y)
        assert not hasattr(model, "coef_")
        assert book.remaining() == 0 and book.epsilon() > 0.99
        assert len(book.entries) == 1 and "Poisson" in book.details()


def test_what_is_changed_after_a_look_is_charged_beside_what_was_planned():
    X, y = blobs(n=2000)
    batches = {"noise_multiplier": 1.0, "n_iter": 10, "batch_size": 20}
    batches["fit_intercept"] = False  # it would be one more release

    def change(scaler, model):
        model.set_params(noise_multiplier=9.0, batch_size=None)

    book = ledger(3.0)
    model = DPSGDClassifier(epsilon=None, **batches)
    planned = sampled_gaussian(1.0, 0.01, 10)
    book.fit(two_steps(model, change), X, y)
    (_, whole), (_, beside) = charged(book)
    assert whole.events[-1] == planned and beside == model.privacy_.event == gaussian(9.0, 10)
    # Full batches add up exactly, so that a fit of them which ends costs what has run.
    book = ledger(3.0)
    with pytest.raises(ZeroDivisionError):
        book.fit(two_steps(DPSGDClassifier(epsilon=2.0), lambda *_: 1 / 0), X, y)
    assert book.epsilon() == pytest.approx(epsilon_of(gaussian(4.5), **AT))
    book.fit(DPSGDClassifier(epsilon=book.remaining()), X, y)


SOME_EVENTS = [
    gaussian(5.0),
    gaussian(40.0, 30),
    sampled_gaussian(3.0, 0.1, 20),
    sampled_gaussian(0.8, 0.01, 10),
    sampled_gaussian(30.0, 0.5, 40),
    laplace(0.2, **ZERO_OUT),
    laplace(1.5, **ZERO_OUT),
    bounded_range(0.05, 8),
    composed([bounded_range(0.3), sampled_gaussian(3.0, 0.1, 20), gaussian(9.0)]),
    dpa.NoOpDpEvent(),
    non_private(),
]


@examples(50, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=st.lists(st.sampled_from(SOME_EVENTS[:-1]) | st.sampled_from(SOME_EVENTS), max_size=5),
    pure_epsilon=st.sampled_from([0.0, 0.3]),
    slack=st.sampled_from(["auto", 0.0]),
)
def test_totals_only_grow_and_are_never_below_an_entry(events, pure_epsilon, slack):
    book = ledger(2.0, pure_epsilon=pure_epsilon, slack=slack)
    before, largest = 0.0, 0.0
    for event in events:
        book.charge(event, **ZERO_OUT, already_released=True)
        largest = max(largest, epsilon_of(event, **AT))
        total = book.epsilon()
        assert total >= before * (1 - 1e-12) and total >= largest * (1 - 1e-12)
        assert largest * (1 - 1e-12) <= book.epsilon_if_planned() <= total
        before = total


@examples(50, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(st.sampled_from(SOME_EVENTS[:-1]), max_size=8))
def test_what_is_taken_stays_within_the_budget_and_survives_a_file(events, tmp_path_factory):
    book = ledger(2.0)
    for event in events:
        left = book.remaining()
        try:
            book.charge(event, **ZERO_OUT)
        except PrivacyBudgetError:
            assert book.remaining() == left
        assert book.epsilon() <= 2.0 * (1 + 1e-12) and book.remaining() <= left
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    book.save(path)
    again = PrivacyLedger.load(path)
    assert again.entries == book.entries and again._state.split == book._state.split
    assert (again.epsilon(), again.remaining()) == (book.epsilon(), book.remaining())
    if (left := book.remaining()) > 1e-3:
        again.charge(gaussian(calibrate(gaussian, epsilon=left, **AT)), **ZERO_OUT)
        assert again.epsilon() <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(
    "event", [sampled_gaussian(0.9, 0.01, 100), sampled_gaussian(5.0, 0.1, 300)], ids=str
)
def test_a_price_is_above_the_whole_curve(event, relation):
    slack = 1e-9
    mu = math.sqrt(price_of(event, slack, relation).sq_mu)
    orders = np.concatenate([[0.0], np.geomspace(1e-3, 20.0, 700)])
    cost = Cost.of(event, relation)
    divergences = cost.accountant(cost.grid(0.3)).curve(orders)
    assert (divergences <= hockey_stick(mu, orders) + slack).all()
    assert not (divergences <= hockey_stick(mu * 0.999, orders) + slack).all()


def test_prices_of_what_has_no_delta():
    """Epsilon 1 is as bad as mu 1.232 in general; Laplace noise and bounded ranges are not."""
    orders = np.linspace(0.0, 1.0, 3000)
    response = (math.e - np.exp(orders)) / (1 + math.e)
    assert dominating_mu(orders, response, 0.0) == pytest.approx(1.2320, rel=1e-3)
    for event, mu in ((laplace(1.0, **ZERO_OUT), 1.0301), (bounded_range(1.0), 0.6247)):
        price = price_of(event, 0.0, "zero_out")
        assert price.epsilon == 1.0 and math.sqrt(price.pure_sq_mu) == pytest.approx(mu, rel=1e-3)
    many = price_of(bounded_range(0.125, 100), 0.0, "zero_out")
    assert math.sqrt(many.pure_sq_mu) < 0.7 < many.epsilon


def test_a_first_fit_may_take_everything():
    events = [
        sampled_gaussian(
            calibrate(lambda m: sampled_gaussian(m, 0.01, 100), epsilon=1.0, **AT), 0.01, 100
        ),
        gaussian(calibrate(gaussian, epsilon=1.0, **AT)),
        laplace(1.0, **ZERO_OUT),
    ]
    for event in events:
        book = ledger()
        book.charge(event, **ZERO_OUT)
        assert 0.99 < book.epsilon() <= 1.0
        with pytest.raises(PrivacyBudgetError):
            book.charge(gaussian(200.0), **ZERO_OUT)
        with pytest.raises(PrivacyBudgetError):
            book.charge(laplace(0.02, **ZERO_OUT), **ZERO_OUT)
        assert len(book.entries) == 1 and book.remaining() < 1e-2


def test_what_a_first_fit_leaves_is_for_releases_without_a_delta():
    book = ledger(1.5)
    book.charge(sampled_gaussian(0.9, 0.01, 160), **ZERO_OUT)  # far from Gaussian
    assert 1.0 < book.epsilon() < 1.3 and book.remaining() == 0
    book.charge(laplace(0.2, **ZERO_OUT), **ZERO_OUT)
    assert book.epsilon() < 1.5


def test_full_batch_fits_may_have_all_of_delta():
    half = gaussian(calibrate(lambda m: gaussian(m, 2), epsilon=1.0, **AT))
    book = ledger(slack=0.0, pure_epsilon=0.0)
    book.charge(half, **ZERO_OUT)
    book.charge(half, **ZERO_OUT)
    assert book.epsilon() > 1 - 1e-6
    book = ledger(pure_epsilon=0.0)
    book.charge(half, **ZERO_OUT)
    assert 0.999 < ledger(slack=0.0).remaining() <= 1.0
    with pytest.raises(PrivacyBudgetError, match="does not fit"):
        book.charge(half, **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError, match="used up"):
        book = ledger(slack=0.0)
        book.charge(gaussian(20.0), **ZERO_OUT)
        book.charge(sampled_gaussian(2.0, 0.01, 10), **ZERO_OUT)


@pytest.mark.wide
def test_many_fits_on_batches():
    """They cost a little more than if they had been planned, and slack for them does not end."""
    book, event = ledger(3.0), sampled_gaussian(20.0, 0.1, 100)
    for _ in range(150):
        book.charge(event, **ZERO_OUT)
    total, planned = book.epsilon(), book.epsilon_if_planned()
    assert planned < total < 1.02 * planned
    assert f"would have cost {planned:.2f}"[:20] in book.details()


def test_a_private_search_is_charged():
    search = RepeatAndSelectDpEvent(gaussian(100.0, 20), 10.0, 0.0)
    alone = epsilon_of(search, **AT)
    assert 0.3 < alone < 1.0
    for slack in ("auto", 0.0):
        book = ledger(10.0, slack=slack)
        book.charge(search, "search", **ZERO_OUT)
        assert book.epsilon() == alone
    book = ledger(10.0)
    book.charge(search, "search", **ZERO_OUT)
    book.charge(gaussian(5.0), **ZERO_OUT)
    assert alone < book.epsilon() <= 10.0 and "best of about 10 runs" in book.details()
    other = ledger(10.0, neighboring_relation="replace_one")
    other.charge(search, neighboring_relation="replace_one")
    halved = RepeatAndSelectDpEvent(gaussian(50.0, 20), 10.0, 0.0)
    assert other.epsilon() == pytest.approx(epsilon_of(halved, **AT), rel=1e-12)
    batches = RepeatAndSelectDpEvent(sampled_gaussian(5.0, 0.1, 20), 10.0, 0.0)
    with pytest.raises(PrivacyError, match="search"):
        other.charge(batches, neighboring_relation="replace_one")


@pytest.mark.parametrize("first", [True, False], ids=["search first", "fit first"])
def test_a_search_leaves_room_for_fits(first):
    """It is charged by its epsilon at a slack: far less than the Gaussian mechanism above it."""
    search = RepeatAndSelectDpEvent(gaussian(37.0, 20), 10.0, 0.0)
    assert 0.8 < epsilon_of(search, **AT) < 1.1
    book = ledger(3.0, pure_epsilon=0.0 if first else 1.6)
    events = [search, gaussian(5.0)]
    for event in events if first else events[::-1]:
        book.charge(event, **ZERO_OUT)
    charge = next(entry.charge for entry in book.entries if entry.charge.slack)
    assert charge.sq_mu == 0 and 1.0 < charge.epsilon < 1.6
    # What is beyond that epsilon is no more than the slack: it may be charged so.
    curve = renyi_curve(mechanisms_of(search), np.array([charge.epsilon]))
    assert curve[0] <= charge.slack
    assert max(epsilon_of(event, **AT) for event in events) < book.epsilon() <= 3.0
    assert not first or book.remaining() > 0.5


def test_what_is_refused_says_why_and_what_would_fit():
    book = ledger(2.0)
    X, y = blobs(n=2000)
    model = make_pipeline(BoundedScaler(epsilon=0.5), DPSGDClassifier(epsilon=1.9985))
    with pytest.raises(PrivacyBudgetError) as error:
        book.fit(model, X, y)
    text = str(error.value)
    for part in ("boundedscaler 0.5", "dpsgdclassifier 1.998", "budget of 2", "epsilon=2 at"):
        assert part in text
    book = ledger(1.0)
    book.charge(gaussian(5.0), **ZERO_OUT)
    slightly = calibrate(gaussian, epsilon=book.remaining() * (1 + 1e-7), **AT)
    with pytest.raises(PrivacyBudgetError, match=r"epsilon=1\.0000\d+ .* budget of 1\."):
        book.charge(gaussian(slightly), **ZERO_OUT)


# What has been released -------------------------------------------------------------------------


def test_what_is_out_is_recorded_even_if_nobody_says_that_it_is():
    """Four medians at 0.7 used to read 0.7."""
    book, values = ledger(1.0), np.arange(4000.0)
    released = private_quantile(values, 0.5, epsilon=0.7, delta=1e-5)
    book.charge(released, "first")
    for _ in range(3):
        with pytest.raises(PrivacyBudgetError, match="is recorded"):
            book.charge(private_quantile(values, 0.5, epsilon=0.7, delta=1e-5), "again")
    four = composed([released.privacy.event] * 4)
    assert len(book.entries) == 4 and book.epsilon() == pytest.approx(epsilon_of(four, **AT))


@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_a_function_is_run_inside_of_a_ledger(function):
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    book = ledger(1.0)
    released = book.run(function, X, epsilon=0.7)
    assert released.privacy.delta == book.delta  # not 5e-6
    assert charged(book) == ((function.__name__, released.privacy.event),)
    assert book.epsilon() == pytest.approx(0.7, rel=1e-4)
    for options, error in (
        ({"epsilon": 0.9}, PrivacyBudgetError),
        ({"epsilon": math.inf}, PrivacyBudgetError),
        ({"random_state": 0, "epsilon": 0.1}, PrivacyError),
        ({"neighboring_relation": "replace_one", "epsilon": 0.1}, PrivacyError),
    ):
        with pytest.raises(error):
            book.run(function, X, **options)
        assert len(book.entries) == 1
    assert function(X).privacy.delta == 5e-6  # outside again


def test_a_function_over_budget_releases_nothing(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("looked at the values")

    monkeypatch.setattr("dpsubspace._core.plans.quantile.noisy_quantiles", fail)
    with pytest.raises(PrivacyBudgetError):
        ledger(1.0).run(private_quantile, np.arange(100.0), 0.5, epsilon=2.0)


@pytest.mark.parametrize("function", [np.mean, lambda X: private_mean(X), epsilon_of])
def test_only_private_functions_are_run(function):
    with pytest.raises(PrivacyError):
        ledger().run(function, sampled_gaussian(20.0, 0.1, 10), 1e-5, **ZERO_OUT)


# Fits -----------------------------------------------------------------------------------------


def test_auto_is_the_delta_of_the_ledger():
    X, y = blobs(n=20_000)
    book = ledger(1.0)
    model = book.fit(
        make_pipeline(BoundedScaler(epsilon=0.4), DPSGDFClassifier(epsilon=0.85, n_iter=3)), X, y
    )
    assert [step.privacy_.delta for _, step in model.steps] == [1e-5, 1e-5]
    assert DPSGDFClassifier(epsilon=0.85, n_iter=3).fit(X, y).privacy_.delta == 5e-6
    spent = epsilon_of(model[1].privacy_.event, **AT)
    assert spent == pytest.approx(0.85, rel=1e-6)


def test_a_part_that_is_about_to_cost_more_than_planned_releases_nothing(monkeypatch):
    X, y = blobs(n=300)
    monkeypatch.setattr(DPSGDClassifier, "privacy_event", lambda self, *a, **k: gaussian(50.0))
    book = ledger(1.0)
    with pytest.raises(PrivacyBudgetError):
        book.fit(DPSGDClassifier(epsilon=1.5), X, y)
    assert book.entries == ()
    model = book.fit(DPSGDClassifier(epsilon=0.9), X, y)
    assert charged(book) == (("DPSGDClassifier", model.privacy_.event),)


def test_a_plan_stays_once_part_of_a_fit_is_out():
    """What comes next may depend on it: another composition at the same price is refused."""
    first = gaussian(4.5)
    full = calibrate(lambda m: composed([first, gaussian(m)]), epsilon=1.0, **AT)
    small = calibrate(lambda m: composed([first, sampled_gaussian(m, 1e-3, 1)]), epsilon=1.0, **AT)

    def stated(event):
        return PrivacyGuarantee(
            event=event, epsilon=1.0, delta=1e-5, unit="row", secure=True, **ZERO_OUT
        )

    other = sampled_gaussian(small, 1e-3, 1)
    book = ledger()
    charge = FitCharge(
        book._state, "fit", [("a", first), ("b", gaussian(full))], About(), unseen=False
    )
    charge.spend(stated(first))
    with pytest.raises(PrivacyBudgetError):
        charge.spend(stated(other))
    charge.spend(stated(gaussian(full)))
    charge.finish([])
    assert charged(book) == (("fit", composed([first, gaussian(full)])),)
    # Before anything is out it may be chosen freely; what was planned then stays charged.
    book = ledger()
    charge = FitCharge(
        book._state, "fit", [("a", gaussian(full)), ("b", first)], About(), unseen=False
    )
    charge.spend(stated(other))
    charge.finish([stated(other)])
    assert charged(book) == (("fit", composed([other, first])),) and book.epsilon() <= 1.0


def test_a_part_that_runs_in_another_relation_releases_nothing(monkeypatch):
    X, y = blobs(n=300)
    model = DPSGDClassifier(epsilon=0.5)

    def event(self, *args, **kwargs):
        self.neighboring_relation = "replace_one"  # after it was checked, say
        return gaussian(50.0)

    monkeypatch.setattr(DPSGDClassifier, "privacy_event", event)
    book = ledger(1.0)
    with pytest.raises(PrivacyError, match="cannot be added up"):
        book.fit(model, X, y)
    assert book.entries == () and not hasattr(model, "privacy_")


def test_failures_before_a_release_are_limited():
    """Each tells whether a label occurs, and cost nothing."""
    X, y = blobs(n=300)
    book = ledger(8.0, max_failures=2)
    model = DPSGDClassifier(epsilon=2.0, classes=[0, 1])
    for attempt in range(2):
        with pytest.raises(ValueError, match="classes") as error:
            book.fit(model, X, y)
        assert book.entries == () and book.failures == attempt + 1
        assert "was not charged" in error.value.__notes__[0]
    assert "not charged: 2 of at most 2" in str(book)
    with pytest.raises(PrivacyError, match="max_failures"):
        book.run(private_mean, X)
    with pytest.raises(ValueError, match="classes"):
        book.fit(model, X, y)
    assert len(book.entries) == 1 and book.epsilon() == pytest.approx(2.0)
    with pytest.raises(PrivacyBudgetError):  # that tells nothing, and is no failure
        book.fit(DPSGDClassifier(epsilon=50.0), X, y)
    assert book.failures == 2


def test_a_failed_call_counts_as_a_failure():
    book = ledger(max_failures=1)
    with pytest.raises(ValueError, match="NaN"):
        book.run(private_mean, np.array([[math.nan]]), epsilon=1.0)
    assert book.failures == 1 and book.entries == ()


def test_a_column_transformer_of_another_type_is_refused():
    transformer = make_column_transformer((Normalizer(), [0, 1]), sparse_threshold=0)
    kind = type("Storing", (type(transformer),), {})
    transformer.__class__ = kind
    with pytest.raises(PrivacyError, match="Storing"):
        ledger().fit(make_pipeline(transformer, DPSGDClassifier()), *blobs())


def test_pure_and_other_steps_share_a_ledger():
    X, y = blobs(n=3000)
    X /= np.abs(X).max() * 10
    book = ledger(2.0)
    pca = DPPCA(
        1, data_norm=1.0, epsilon=0.5, delta=0, mechanism="bingham", centered=False, whiten=False
    )
    book.fit(make_pipeline(pca, DPSGDClassifier(epsilon=1.0)), X, y)
    assert 1.0 < book.epsilon() < 1.5
    before = book.epsilon()
    book.fit(pca, X)
    assert before < book.epsilon() <= 2.0


# Files ----------------------------------------------------------------------------------------


def test_a_failure_that_may_have_released_something_says_that_it_stays_charged():
    """Whether the parts of a ColumnTransformer ran cannot be seen."""
    X, y = blobs(n=300)
    X[0, 0] = np.nan
    columns = ColumnTransformer([("scaler", BoundedScaler((-9, 9)), [0, 1])], sparse_threshold=0)
    book = ledger(8.0)
    with pytest.raises(ValueError, match="NaN") as error:
        book.fit(make_pipeline(columns, DPSGDClassifier(epsilon=5.0)), X, y)
    assert book.epsilon() == pytest.approx(5.0, rel=1e-3)
    assert error.value.__notes__ == [
        "The ledger stays charged for what this fit may have released before it failed."
    ]


def test_a_value_in_place_of_a_function_is_told_to_have_been_released():
    released = private_mean(blobs()[0], data_norm=10.0, epsilon=0.5)
    book = ledger(1.0)
    with pytest.raises(PrivacyError, match=r"released already: record it with charge") as error:
        book.run(released)
    assert not hasattr(error.value, "__notes__") and book.failures == 0
    book.charge(released)
    assert book.epsilon() == pytest.approx(0.5, rel=1e-3)


def test_only_a_charge_is_told_of_already_released():
    book = ledger(0.5)
    with pytest.raises(PrivacyBudgetError, match=r"already_released=True\.$"):
        book.charge(gaussian(1.0), **ZERO_OUT)
    with pytest.raises(PrivacyBudgetError, match=r"Nothing was recorded\.$"):
        book.fit(DPSGDClassifier(epsilon=1.0), *blobs())


def test_a_class_or_a_nested_pipeline_is_refused_with_the_way_out():
    with pytest.raises(PrivacyError, match=r"is a class: pass an instance, DPSGDClassifier\(\)"):
        ledger().fit(DPSGDClassifier, *blobs())
    nested = make_pipeline(make_pipeline(Normalizer()), DPSGDClassifier())
    with pytest.raises(PrivacyError, match="'pipeline' is a Pipeline inside of another step"):
        ledger().fit(nested, *blobs())
