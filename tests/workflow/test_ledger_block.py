"""``with ledger:`` charges every fit inside, whoever makes it and wherever it runs."""

import contextvars
import copy
import json
import os
import pickle
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import joblib
import numpy as np
import pandas as pd
import pytest
from helpers import blobs, pairs_first
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import RFE, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    private_mean,
)
from dpsubspace._core.accounting.events import gaussian
from dpsubspace._core.accounting.payer import already_paid, payer_around
from dpsubspace.exceptions import PrivacyBudgetError

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning"),
    # LogisticRegression of old scikit-learn asks for what new SciPy does without.
    pytest.mark.filterwarnings("ignore:scipy.optimize:DeprecationWarning"),
]


def small(**options):
    return DPSGDClassifier(**{"epsilon": 0.3, "n_iter": 5, **options})


def ledger(epsilon=100.0, **options):
    return PrivacyLedger(epsilon=epsilon, delta=1e-5, **options)


def table(n=240, classes=2):
    return blobs(n=n, classes=classes) if classes > 2 else blobs(n=n)


def two_targets(y):
    return np.column_stack([y, y])


META = {
    "plain": (lambda X, y: small().fit(X, y), 1),
    "pipeline": (lambda X, y: make_pipeline(BoundedScaler((-9, 9)), small()).fit(X, y), 1),
    "pipeline of two": (lambda X, y: make_pipeline(DPPCA(2, epsilon=0.1), small()).fit(X, y), 2),
    "columns": (
        lambda X, y: make_pipeline(
            ColumnTransformer([("a", DPPCA(1, epsilon=0.1), [0, 1])], remainder="passthrough"),
            small(),
        ).fit(X, y),
        2,
    ),
    "union": (
        lambda X, y: FeatureUnion([("a", DPPCA(1, epsilon=0.1)), ("b", DPPCA(2, epsilon=0.1))]).fit(
            X, y
        ),
        2,
    ),
    "grid": (lambda X, y: GridSearchCV(small(), {"alpha": [0.0, 0.1]}, cv=3).fit(X, y), 7),
    "random": (
        lambda X, y: RandomizedSearchCV(
            small(), {"alpha": [0.0, 0.1, 0.2]}, n_iter=2, cv=2, random_state=0
        ).fit(X, y),
        5,
    ),
    "cross_val_score": (lambda X, y: cross_val_score(small(), X, y, cv=4), 4),
    "cross_val_predict": (lambda X, y: cross_val_predict(small(), X, y, cv=4), 4),
    "cross_validate": (lambda X, y: cross_validate(small(), X, y, cv=2), 2),
    "learning_curve": (lambda X, y: learning_curve(small(), X, y, cv=2, train_sizes=[0.5, 1.0]), 4),
    "validation_curve": (
        lambda X, y: validation_curve(
            small(), X, y, cv=2, param_name="alpha", param_range=[0.0, 0.1]
        ),
        4,
    ),
    "calibration": (lambda X, y: CalibratedClassifierCV(small(), cv=3).fit(X, y), 3),
    "one vs rest": (lambda X, y: OneVsRestClassifier(small()).fit(X, y % 2), 1),
    "one vs one": (lambda X, y: OneVsOneClassifier(small()).fit(X, np.arange(len(y)) % 3), 3),
    "bagging": (lambda X, y: BaggingClassifier(small(random_state=None), 4).fit(X, y), 4),
    "voting": (
        lambda X, y: VotingClassifier([("a", small()), ("b", small(alpha=0.1))]).fit(X, y),
        2,
    ),
    "stacking": (
        lambda X, y: StackingClassifier([("a", small())], LogisticRegression(), cv=3).fit(X, y),
        4,
    ),
    "several targets": (
        lambda X, y: MultiOutputClassifier(small()).fit(X, two_targets(y)),
        2,
    ),
    "regressors": (
        lambda X, y: MultiOutputRegressor(DPLinearRegression(epsilon=0.5)).fit(X, two_targets(y)),
        2,
    ),
    "transformed targets": (
        lambda X, y: TransformedTargetRegressor(DPLinearRegression(epsilon=0.5)).fit(X, 1.0 * y),
        1,
    ),
    "elimination": (lambda X, y: RFE(small(), n_features_to_select=1).fit(X, y), None),
    "selection": (
        lambda X, y: SequentialFeatureSelector(small(), n_features_to_select=1, cv=2).fit(X, y),
        None,
    ),
    "function": (lambda X, y: private_mean(X, data_norm=9.0, epsilon=0.1), 1),
}


@pytest.mark.parametrize("name", META)
def test_every_fit_in_a_block_is_charged(name, monkeypatch):
    """Bagging seeds its parts, which a ledger takes only if told to."""
    run, count = META[name]
    X, y = table()
    started = []
    original = DPSGDClassifier._start_spending

    def counting(self, guarantee):
        started.append(self)
        return original(self, guarantee)

    monkeypatch.setattr(DPSGDClassifier, "_start_spending", counting)
    book = ledger(allow_seeded=True)
    with book:
        run(X, y)
    assert len(book) == (len(started) if count is None else count) > 0
    assert count is None or len(book) >= len(started)
    assert book.epsilon() > 0 and book.path is None


PARALLEL = {
    "grid": (
        lambda X, y: GridSearchCV(small(), {"alpha": [0.0, 0.1]}, cv=2, n_jobs=2).fit(X, y),
        5,
    ),
    "cross_validate": (lambda X, y: cross_validate(small(), X, y, cv=3, n_jobs=2), 3),
    "bagging": (lambda X, y: BaggingClassifier(small(), 4, n_jobs=2).fit(X, y), 4),
    "pipelines": (
        lambda X, y: cross_validate(
            make_pipeline(DPPCA(2, epsilon=0.1), small()), X, y, cv=2, n_jobs=2
        ),
        4,
    ),
    "one vs one": (
        lambda X, y: OneVsOneClassifier(small(), n_jobs=2).fit(X, np.arange(len(y)) % 3),
        3,
    ),
}


@pytest.mark.parametrize(
    ("backend", "kept"), pairs_first(["loky", "threading", "multiprocessing"], [False, True])
)
def test_workers_charge_the_ledger(backend, kept, tmp_path):
    X, y = table()
    book = ledger(allow_seeded=True, path=tmp_path / "ledger" if kept else None)
    total = 0
    with book, joblib.parallel_backend(backend):
        for run, count in PARALLEL.values():
            run(X, y)
            total += count
            assert len(book) == total
    assert len(book) == total and len({entry.id for entry in book.entries}) == total
    assert {entry.n_features for entry in book.entries} <= {2, X.shape[1]}
    counts = {(kind, name): count for kind, name, count in book.seen}
    assert counts["validation", "DPSGDClassifier"] == 9 and counts["validation", "DPPCA"] == 2
    assert counts["seed", "DPSGDClassifier"] == counts["unknown", "BaggingClassifier"] == 4
    assert counts["choice", "GridSearchCV"] == 1
    if kept:
        assert PrivacyLedger.load(tmp_path / "ledger").entries == book.entries


def test_a_block_gives_its_delta_to_workers():
    X, y = table()
    with PrivacyLedger(epsilon=100.0, delta=3e-6), joblib.parallel_backend("loky"):
        found = cross_validate(small(), X, y, cv=2, n_jobs=2, return_estimator=True)
    assert {model.privacy_.delta for model in found["estimator"]} == {3e-6}


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_search_that_exhausts_the_ledger(n_jobs):
    """Fits that are refused are scores of NaN; the refit raises."""
    X, y = table()
    grid = {"alpha": [0.0, 0.1]}
    search = GridSearchCV(small(epsilon=1.0), grid, cv=3, n_jobs=n_jobs, refit=False)
    book = ledger(2.2)
    with book, warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        warnings.simplefilter("ignore", UserWarning)
        search.fit(X, y)
        scores = np.array([search.cv_results_[f"split{i}_test_score"] for i in range(3)])
        assert np.isnan(scores).sum() == 6 - len(book) and 1 < len(book) < 6
    assert book.epsilon() <= 2.2
    with ledger(2.2) as book, warnings.catch_warnings():
        warnings.simplefilter("ignore", FitFailedWarning)
        warnings.simplefilter("ignore", UserWarning)
        search = GridSearchCV(small(epsilon=1.0), grid, cv=3, n_jobs=n_jobs)
        with pytest.raises(PrivacyBudgetError, match="does not fit"):
            search.fit(X, y)
    assert 1 < len(book) < 6 and not hasattr(search.estimator, "coef_")


def test_a_fit_that_is_refused_releases_nothing():
    X, y = table()
    model = small(epsilon=5.0)
    with ledger(1.0) as book, pytest.raises(PrivacyBudgetError):
        model.fit(X, y)
    assert len(book) == 0 and not hasattr(model, "coef_") and not hasattr(model, "privacy_")


def test_a_fit_that_fails_after_it_was_charged_stays_charged(monkeypatch):
    X, y = table()

    def fails(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("dpsubspace._core.release.releases.Releases._next", fails)
    with ledger() as book, pytest.raises(RuntimeError, match="out of memory"):
        small().fit(X, y)
    assert len(book) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"neighboring_relation": "replace_one"}, "cannot be added up"),
        ({"random_state": 0}, "random_state"),
        ({"epsilon": float("inf")}, "not private"),
    ],
)
def test_a_block_refuses_what_it_cannot_count(options, match):
    X, y = table()
    with ledger() as book, pytest.raises(PrivacyError, match=match):
        small(**options).fit(X, y)
    assert len(book) == 0


def test_blocks_of_two_ledgers():
    X, y = table()
    first, second = ledger(), ledger()
    with first:
        for refused in (second.__enter__, lambda: second.fit(small(), X, y)):
            with pytest.raises(PrivacyError, match="another ledger is open"):
                refused()
        with pytest.raises(PrivacyError, match="another ledger is open"):
            second.run(private_mean, X, data_norm=1.0)
        with first:  # of itself, once more
            small().fit(X, y)
        first.fit(small(), X, y)
        first.run(private_mean, X, data_norm=1.0, epsilon=0.1)
    small().fit(X, y)
    assert (len(first), len(second)) == (3, 0)


def in_thread(function):
    """What `function` returns, or the error that it raises, in a thread of its own."""
    found = []

    def run():
        try:
            found.append(function())
        except PrivacyError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_threads_charge_the_one_ledger_that_is_open():
    X, y = table()
    first, second = ledger(), ledger()
    with first:
        marked = clone(small())
        in_thread(lambda: small().fit(X, y))
        assert len(first) == 1

        def inside():
            with second:
                small().fit(X, y)  # the ledger of this thread
                alone = in_thread(lambda: small().fit(X, y))  # that of neither
                known = in_thread(lambda: marked.fit(X, y))  # by its address
                sent = pickle.dumps(marked)
            return alone, known, sent

        alone, known, _ = in_thread(inside)
        assert isinstance(alone, PrivacyError) and "several ledgers" in str(alone)
        assert hasattr(known, "coef_") and (len(first), len(second)) == (2, 1)
    assert len(first) == 2


def refit(text, number=None):
    """Fit what was pickled, in a process that has another number if one is given."""
    own = os.getpid
    try:
        os.getpid = own if number is None else lambda: number
        return pickle.loads(text).fit(*table())
    finally:
        os.getpid = own


@pytest.fixture(scope="module")
def elsewhere():
    """`refit` in a new process, which knows nothing of ours; starting one takes seconds."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda *given: pool.submit(refit, *given).result(timeout=300)


def test_what_was_pickled_in_a_block_charges_it_while_it_is_open_and_is_refused_later(elsewhere):
    X, y = table()
    with ledger() as book:
        text = pickle.dumps(small())
        model = elsewhere(text)
        assert len(book) == 1 and model.privacy_.delta == 1e-5
        copied = clone(clone(small()))
    with pytest.raises(PrivacyError, match="has been closed"):
        elsewhere(text)
    # In the process of the ledger it is known that there is none any more.
    copied.fit(X, y)
    pickle.loads(text).fit(X, y)
    assert len(book) == 1


@pytest.mark.wide
def test_another_process_with_the_same_number_charges_the_ledger(tmp_path, elsewhere):
    # As in two containers.
    book = ledger(path=tmp_path / "ledger")
    with book:
        elsewhere(pickle.dumps(small()), os.getpid())
    assert [entry.estimator for entry in book.entries] == ["DPSGDClassifier"]


def test_a_file_that_is_open_can_be_charged_by_who_knows_its_block(tmp_path, elsewhere):
    book = ledger(path=tmp_path / "ledger")
    with book:
        elsewhere(pickle.dumps(small()))
    assert len(book) == len(PrivacyLedger.load(tmp_path / "ledger")) == 1


def test_the_address_is_no_parameter_and_no_row():
    with ledger():
        model = small()
        copied = clone(model)
        assert copied.get_params() == model.get_params() and repr(copied) == repr(model)
        size = len(pickle.dumps(copied))
    assert size < len(pickle.dumps(model)) + 500
    assert not hasattr(clone(small()), "_address") or clone(small())._address is None


def test_planned_fits_are_paid_once_and_nothing_else_is():
    X, y = table()
    plan = small(delta=1e-7).privacy_event(n_samples=len(X))
    with ledger() as book:
        with already_paid(1e-7, [plan], ("zero_out", "row")):
            with pytest.raises(PrivacyError, match="not planned as a part of it"):
                private_mean(X, data_norm=1.0, epsilon=0.31)
            with pytest.raises(PrivacyError, match="not planned as a part of it"):
                small(epsilon=0.31).fit(X, y)
            model = clone(small()).fit(X, y)
            assert model.privacy_.delta == 1e-7
            with pytest.raises(PrivacyError, match="not planned as a part of it"):
                model.fit(X, y)
        assert len(book) == 0
        model.fit(X, y)
    assert len(book) == 1


def test_less_may_run_in_place_of_what_was_planned():
    X, y = table()
    with already_paid(1e-5, [gaussian(10.0)], ("zero_out", "row")):
        with pytest.raises(PrivacyError, match="not planned as a part"):
            small(epsilon=None, noise_multiplier=9.9 * 5**0.5).fit(X, y)
        small(epsilon=None, noise_multiplier=10.1 * 5**0.5).fit(X, y)


def test_what_was_planned_for_others_is_not_paid():
    """The same event means less of rows than of persons, and less under another relation."""
    X, y = table()
    plan = small(delta=1e-5).privacy_event(n_samples=len(X))
    for relation, unit in (("replace_one", "row"), ("zero_out", "person")):
        with (
            already_paid(1e-5, [plan], (relation, unit)),
            pytest.raises(PrivacyError, match="not planned as a part of it"),
        ):
            small().fit(X, y)


def test_copies_of_a_context_pay_for_nothing_after_their_block():
    X, y = table()
    plan = small(delta=1e-5).privacy_event(n_samples=len(X))
    with already_paid(1e-5, [plan], ("zero_out", "row")):
        alone = contextvars.copy_context()
    assert alone.run(payer_around) is None
    with ledger() as book:
        with already_paid(1e-5, [plan], ("zero_out", "row")):
            inside = contextvars.copy_context()
        inside.run(small().fit, X, y)
        alone.run(small().fit, X, y)
        assert len(book) == 2
    assert inside.run(payer_around) is None


class Kept:
    """Rows that keep the context variables of whoever reads them, and then fail to be read."""

    def __init__(self, shape):
        self.shape, self.contexts = shape, []

    def __len__(self):
        return self.shape[0]

    def __array__(self, *args, **kwargs):
        self.contexts.append(contextvars.copy_context())
        raise ValueError("rows that cannot be read")


def test_a_failed_fit_leaves_nothing_to_a_copy_of_its_context():
    X, y = table()
    with ledger() as book:
        kept = Kept(X.shape)
        with pytest.raises(ValueError, match="cannot be read"):
            book.fit(small(), kept, y)
        assert len(book) == 0
        kept.contexts[-1].run(small().fit, X, y)
        assert len(book) == 1


def test_a_block_in_memory_leaves_no_file_behind():
    book = ledger()
    with book:
        folder = book._folder
        assert os.path.isdir(folder) and book.path is None
    assert not os.path.exists(folder)
    book.charge(gaussian(50.0), neighboring_relation="zero_out")
    with book:
        small().fit(*table())
        assert len(book) == 2
    with pytest.raises(PrivacyError, match="cannot be copied"):
        copy.copy(book)


# Outside of any ledger ---------------------------------------------------------------------------


def warned(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        run()
    return [str(w.message) for w in caught if issubclass(w.category, PrivacyWarning)]


def test_a_search_outside_of_a_ledger_says_once_what_it_costs():
    X, y = table()
    told = warned(lambda: GridSearchCV(small(), {"alpha": [0.0, 0.1]}, cv=3).fit(X, y))
    told = [text for text in told if "fitting copies" in text]
    assert len(told) == 1 and "epsilon=0.3" in told[0] and "PrivacyLedger" in told[0]
    assert not warned(lambda: small(epsilon=3.0).fit(X, y))
    assert not warned(lambda: clone(small(epsilon=3.0)).fit(X, y))


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "ledger"])
def test_a_step_that_learns_from_private_rows_is_named(inside):
    """By a warning, or in a ledger by a refusal."""
    X, y = table()
    book = ledger()

    def told(*steps):
        model, refused = make_pipeline(*steps, small(epsilon=3.0)), []

        def run():
            if not inside:
                return model.fit(X, y)
            try:
                with book:
                    model.fit(X, y)
            except PrivacyError as error:
                refused.append(str(error))

        warned_of = [text for text in warned(run) if "learns from the rows" in text]
        assert not (inside and warned_of)
        return refused if inside else warned_of

    assert "'standardscaler' (StandardScaler)" in told(StandardScaler())[0]
    columns = ColumnTransformer([("a", StandardScaler(), [0])], remainder="passthrough")
    assert "ColumnTransformer" in told(columns)[0]
    assert not told(FunctionTransformer())
    assert not told(BoundedScaler((-9, 9)))
    known = OneHotEncoder(categories=[[0.0, 1.0]], handle_unknown="ignore", sparse_output=False)
    assert not told(ColumnTransformer([("a", known, [0])], remainder="passthrough"))
    assert len(book) == (3 if inside else 0)


def test_what_learns_beside_a_fit_is_named():
    """The mean of the targets in TransformedTargetRegressor, and members that are not private."""
    X, y = table()
    scaled = TransformedTargetRegressor(DPLinearRegression(), transformer=StandardScaler())
    members = VotingClassifier([("a", small(epsilon=3.0)), ("b", LogisticRegression())])
    for model, learner in ((scaled, "StandardScaler"), (members, "LogisticRegression")):
        told = [text for text in warned(lambda m=model: m.fit(X, y)) if "learns from" in text]
        assert len(told) == 1 and told[0].startswith(f"{learner}, which is in ")
    plain = TransformedTargetRegressor(DPLinearRegression(), func=abs, inverse_func=abs)
    assert not [text for text in warned(lambda: plain.fit(X, y)) if "learns from" in text]


def test_a_search_in_a_ledger_says_that_its_scores_are_not_private():
    X, y = table()

    def run():
        with ledger():
            cross_val_score(small(epsilon=3.0), X, y, cv=3)

    told = [text for text in warned(run) if "scores" in text]
    assert len(told) == 1 and "private_score" in told[0]


# What it shows ------------------------------------------------------------------------------


def test_entries_say_what_was_fitted():
    X, y = table()
    with ledger() as book:
        GEPClassifier(epsilon=0.4, n_iter=5).fit(X, y, X_public=(X[:20] + 0.1,))
        private_mean(X, data_norm=1.0, epsilon=0.1)
    first, second = book.entries
    assert (first.estimator, first.n_samples, first.n_features) == (
        "GEPClassifier", *X.shape,
    )  # fmt: skip
    assert first.epsilon == pytest.approx(0.4, rel=1e-3) and first.date.endswith("+00:00")
    assert (second.estimator, second.label) == ("private_mean", "private_mean")
    frame = book.to_frame()
    assert isinstance(frame, pd.DataFrame) and len(frame) == 2
    assert list(frame["estimator"]) == ["GEPClassifier", "private_mean"]
    assert len(ledger().to_frame()) == 0 and "own_epsilon" in ledger().to_frame().columns
    html = book._repr_html_()
    assert "GEPClassifier" in html and "<table>" in html
    whole = json.loads(book.to_json())
    assert whole["spent"] == book.epsilon() and len(whole["entries"]) == 2


def test_labels_are_escaped_in_html():
    book = ledger()
    book.charge(gaussian(50.0), "<script>", neighboring_relation="zero_out")
    assert "<script>" not in book._repr_html_()


def test_an_accountant_of_diffprivlib_is_charged_once():
    diffprivlib = pytest.importorskip("diffprivlib", exc_type=ImportError)
    book = ledger(3.0)
    for _ in range(3):
        book.charge(gaussian(10.0), neighboring_relation="zero_out")
    accountant = book.to_diffprivlib(diffprivlib.BudgetAccountant(5.0, 1e-4))
    assert accountant.total() == pytest.approx((book.epsilon(), book.delta))
