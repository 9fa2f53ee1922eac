"""Events, calibration, the guarantee and the ledger."""

import copy
import math
import multiprocessing
import pickle
import threading

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from helpers import CLASSIFIERS, RELATIONS, blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, scale

from dpsubspace import (
    DPSGDClassifier,
    PrivacyBudgetError,
    PrivacyError,
    PrivacyGuarantee,
    PrivacyLedger,
)
from dpsubspace._privacy import calibrate, composed, describe, epsilon_of, gaussian, non_private

EPSILONS = [0.01, 0.1, 1.0, 3.0, 10.0, 100.0]


# Calibration --------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_calibration_is_tight_and_never_above_the_target(epsilon, delta, relation):
    def event(m):
        return composed([gaussian(4 * m), gaussian(5 * m, 30)])

    kwargs = {"delta": delta, "neighboring_relation": relation}
    multiplier = calibrate(event, epsilon=epsilon, **kwargs)
    reached = epsilon_of(event(multiplier), **kwargs)
    assert epsilon * (1 - 1e-6) < reached <= epsilon


def test_more_epsilon_needs_less_noise():
    kwargs = {"delta": 1e-5, "neighboring_relation": "zero_out"}
    multipliers = [calibrate(gaussian, epsilon=e, **kwargs) for e in np.geomspace(0.01, 100, 60)]
    assert (np.diff(multipliers) < 0).all()


def test_calibration_matches_published_multipliers():
    for n_iter, sigma in ((1, 3.7306), (10, 11.797), (100, 37.306), (10000, 373.06)):
        for relation, factor in (("zero_out", 1), ("replace_one", 2)):
            multiplier = calibrate(
                lambda m, n_iter=n_iter: gaussian(m, n_iter),
                epsilon=1.0,
                delta=1e-5,
                neighboring_relation=relation,
            )
            assert multiplier == pytest.approx(factor * sigma, rel=1e-4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_closed_form_agrees_with_the_pld_accountant(relation):
    event = composed([gaussian(20.0), gaussian(40.0, 50)])
    enum = {
        "zero_out": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[relation]
    pld = PLDAccountant(enum).compose(event).get_epsilon(1e-5)
    assert epsilon_of(event, 1e-5, neighboring_relation=relation) == pytest.approx(pld, rel=1e-3)


def test_other_events_go_to_the_pld_accountant():
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0)), 10)
    epsilon = epsilon_of(event, 1e-5, neighboring_relation="zero_out")
    pld = PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
    assert epsilon == pytest.approx(pld.get_epsilon(1e-5), rel=1e-3)


def test_an_event_that_no_accountant_takes_is_refused():
    with pytest.raises(PrivacyError, match="does not support"):
        epsilon_of(
            dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(1.0)),
            1e-5,
            neighboring_relation="zero_out",
        )
    with pytest.raises(PrivacyError, match="Gaussian"):
        calibrate(
            lambda m: dpa.LaplaceDpEvent(m),
            epsilon=1.0,
            delta=1e-5,
            neighboring_relation="zero_out",
        )


def test_degenerate_events():
    assert epsilon_of(composed([]), 1e-5, neighboring_relation="zero_out") == 0
    assert epsilon_of(non_private(), 1e-5, neighboring_relation="zero_out") == math.inf
    assert epsilon_of(gaussian(1e9), 1e-5, neighboring_relation="zero_out") == 0


# Events of estimators -----------------------------------------------------------------------


def test_event_of_dpsgd_is_the_hand_written_one():
    event = DPSGDClassifier(epsilon=1.0, delta=1e-5, n_iter=25).privacy_event()
    assert describe(event) == "25 x (Gaussian noise, multiplier 18.65)"


def test_event_of_dpsgdf_adds_the_mean():
    event = CLASSIFIERS[1](epsilon=1.0, delta=1e-5, n_iter=25, mean_share=0.19).privacy_event()
    mean, steps = event.events
    assert mean.noise_multiplier == pytest.approx(3.73063 / math.sqrt(0.19), rel=1e-5)
    assert steps.event.noise_multiplier == pytest.approx(3.73063 * 5 / 0.9, rel=1e-5)
    assert steps.count == 25


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_expert_noise_multiplier_is_that_of_a_step(Classifier):
    model = Classifier(epsilon=None, noise_multiplier=15.0, n_iter=9, delta=1e-6)
    event = model.privacy_event()
    steps = event.events[1] if hasattr(event, "events") else event
    assert steps.event.noise_multiplier == pytest.approx(15.0)
    X, y = blobs(n=300)
    guarantee = model.fit(X, y).privacy_
    assert guarantee.event == event
    assert guarantee.epsilon == epsilon_of(event, 1e-6, neighboring_relation="zero_out")


# Guarantee ----------------------------------------------------------------------------------

GUARANTEE = PrivacyGuarantee(
    event=gaussian(37.3, 100),
    epsilon=1.00004,
    delta=1e-5,
    neighboring_relation="zero_out",
    unit="row",
    secure=False,
    public=("a < b",),
)


def test_statement_names_all_that_it_rests_on():
    text = str(GUARANTEE)
    for part in ("delta = 1e-05", "per row", "zero_out", "100 x", "37.3", "seed", "a < b"):
        assert part in text


def test_statement_never_rounds_epsilon_down():
    assert "epsilon = 1.001," in str(GUARANTEE)


def test_html_statement_is_escaped():
    html = GUARANTEE._repr_html_()
    assert "a &lt; b" in html and "epsilon = 1.001" in html


def test_a_fit_that_is_not_private_says_so():
    X, y = blobs()
    model = DPSGDClassifier(epsilon=math.inf).fit(X, y)
    assert "NOT private" in str(model.privacy_)
    with pytest.raises(PrivacyBudgetError):
        PrivacyLedger(epsilon=1e6, delta=1e-5).charge(model.privacy_)


# Ledger -------------------------------------------------------------------------------------


def ledger(epsilon=1.0, **options):
    return PrivacyLedger(epsilon=epsilon, delta=1e-5, **options)


def test_ledger_composes_exactly():
    book = ledger(2.0)
    for _ in range(3):
        book.charge(gaussian(20.0, 10))
    assert book.epsilon() == epsilon_of(gaussian(20.0, 30), 1e-5, neighboring_relation="zero_out")
    assert book.epsilon(1e-7) > book.epsilon()


def test_ledger_refuses_to_overspend_and_records_nothing():
    book = ledger(1.0)
    book.charge(gaussian(4.0), "first")
    before = book.epsilon()
    with pytest.raises(PrivacyBudgetError, match="second"):
        book.charge(gaussian(4.0), "second")
    assert (book.epsilon(), len(book.entries)) == (before, 1)


def test_ledger_takes_a_fit_of_exactly_its_budget():
    model = DPSGDClassifier(epsilon=1.0, delta=1e-5)
    book = ledger(1.0)
    book.charge(model.privacy_event())
    assert book.remaining() < 1e-3


def test_what_remains_can_be_spent():
    book = ledger(1.0)
    assert book.remaining() == pytest.approx(1.0)
    book.charge(DPSGDClassifier(epsilon=0.6, delta=1e-5).privacy_event())
    left = book.remaining()
    assert left > 0.4  # guarantees of Gaussians do not simply add up
    book.charge(DPSGDClassifier(epsilon=left, delta=1e-5).privacy_event())
    assert book.epsilon() <= 1.0


def test_ledger_refuses_other_relations_and_units():
    for book in (ledger(neighboring_relation="replace_one"), ledger(unit="user")):
        with pytest.raises(PrivacyError, match="do not add up"):
            book.charge(GUARANTEE)
        with pytest.raises(PrivacyError, match="do not add up"):
            book.fit(DPSGDClassifier(), *blobs())


def test_ledger_is_kept_by_save_and_load(tmp_path):
    book = ledger()
    book.charge(gaussian(10.0), "first")
    book.save(tmp_path / "ledger")
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert (again.epsilon(), again.entries) == (book.epsilon(), book.entries)
    again.charge(gaussian(10.0))


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
        book.charge(event)
    assert book.entries == () and book.remaining() == pytest.approx(1.0)


def test_ledger_refuses_seeded_fits_unless_told_otherwise():
    X, y = blobs(n=300)
    seeded = DPSGDClassifier(epsilon=0.5, random_state=0)
    with pytest.raises(PrivacyError, match="cancels its noise"):
        ledger().fit(seeded, X, y)
    with pytest.raises(PrivacyError, match="cancels its noise"):
        ledger().charge(GUARANTEE)
    ledger(2.0, allow_seeded=True).charge(GUARANTEE)


@pytest.mark.parametrize("released", [gaussian(1.0), non_private(), GUARANTEE], ids=str)
def test_what_is_out_already_is_recorded_over_budget(released):
    book = ledger(1.0)
    book.charge(released, already_released=True)
    assert book.epsilon() > 1.0 and book.remaining() == 0.0
    # A seeded fit that is out has no noise that anybody could rely on.
    assert (book.epsilon() == math.inf) == (released in (non_private(), GUARANTEE))


def test_a_charge_cannot_be_changed_afterwards():
    book = ledger(2.0)
    parts = [gaussian(4.0), gaussian(4.0)]
    book.charge(dpa.ComposedDpEvent(parts))
    before = book.epsilon()
    parts.clear()
    book.entries[0][1].events.clear()
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


def test_a_failed_save_keeps_the_old_record(tmp_path, monkeypatch):
    book = ledger()
    book.charge(gaussian(10.0), "first")
    book.save(tmp_path / "ledger")
    spent = book.epsilon()
    book.charge(gaussian(10.0), "second")

    def full(self, data):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        book.save(tmp_path / "ledger")
    assert PrivacyLedger.load(tmp_path / "ledger").epsilon() == spent


@pytest.mark.parametrize("X", [np.empty((0, 3)), []], ids=["array", "list"])
def test_no_rows_through_a_ledger(X):
    book = ledger()
    with pytest.raises(ValueError, match="n_samples"):
        book.fit(DPSGDClassifier(), X, [])
    assert book.entries == ()


def test_ledger_counts_what_ran_where_it_differs_from_the_plan():
    """Rows that are dropped on the way change an automatic delta, and with it the noise."""
    book = ledger(50.0)
    X, y = blobs(n=400)

    class Claims:
        shape = (99_999, 5)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(X, dtype)

    for Classifier in CLASSIFIERS:
        model = book.fit(Classifier(epsilon=5.0), Claims(), y)
        assert book.entries[-1] == (Classifier.__name__, model.privacy_.event)
    spent = book.epsilon()
    model.privacy_.event.events.clear()  # the model's event is not the ledger's
    assert len(book.entries) == 2 and book.epsilon() == spent


def test_ledger_prints_its_entries():
    book = ledger()
    book.charge(gaussian(10.0), "churn")
    assert "churn: Gaussian noise, multiplier 10" in str(book)
    assert "of 1 spent" in str(book)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"delta": 0},
        {"delta": 1},
        {"neighboring_relation": "add_remove"},
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
    assert book.entries == ((Classifier.__name__, model.privacy_.event),)


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
    from dpsubspace import _steps

    calls, clipped_sum = [], _steps.clipped_sum

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("third step")
        return clipped_sum(*args, **kwargs)

    monkeypatch.setattr(_steps, "clipped_sum", failing)


def test_a_fit_that_fails_after_a_release_costs_everything(monkeypatch):
    X, y = blobs(n=300)
    model = DPSGDClassifier(epsilon=5.0).fit(X, y)
    book = ledger(8.0)
    break_third_step(monkeypatch)
    with pytest.raises(MemoryError):
        book.fit(model, X, y)
    assert book.entries == (("DPSGDClassifier", model.privacy_.event),)
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


class Scales(Normalizer):
    """A subclass may do anything, whatever its base does."""


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (make_pipeline(Scales(), DPSGDClassifier()), "scales"),
        (make_pipeline(StandardScaler(), DPSGDClassifier()), "standardscaler"),
        (make_pipeline(FunctionTransformer(scale), DPSGDClassifier()), "FunctionTransformer"),
        (make_pipeline(Normalizer(), LogisticRegression()), "logisticregression"),
        (make_pipeline(DPSGDClassifier(), Normalizer()), "not private"),
        (FrozenEstimator(DPSGDClassifier()), "cannot say"),
        (GridSearchCV(DPSGDClassifier(), {"alpha": [0, 1]}), "GridSearchCV"),
    ],
    ids=["subclass", "scaler", "function", "not private", "last step", "frozen", "search"],
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
            book.charge(DPSGDClassifier(epsilon=0.45, delta=1e-5).privacy_event())
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
