"""What a ledger saw and does not count stands in it, in its file and in its report."""

import functools
import json
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RANSACRegressor
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from dpsubspace import (
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDRegressor,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    PrivateSearch,
    Range,
    Schema,
    privacy_report,
    private_mean,
    private_score,
    tabular_pipeline,
)
from dpsubspace._core.accounting.events import non_private
from dpsubspace._core.accounting.payer import observe
from dpsubspace._names import PLACES, imported
from dpsubspace.budget import BudgetDisplay
from dpsubspace.budget._filter import KINDS, MOST, UNWATCHED, in_words
from dpsubspace.budget._journal import Journal
from dpsubspace.exceptions import PrivacyBudgetError

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:scipy.optimize:DeprecationWarning"),
]

X = np.column_stack([np.arange(60) % 7, np.arange(60) % 5, np.arange(60) % 3]) / 7.0
Y = np.arange(60) % 2


def small(**options):
    return DPSGDClassifier(**{"epsilon": 0.3, "n_iter": 1, **options})


def ledger(**options):
    return PrivacyLedger(**{"epsilon": 100.0, "delta": 1e-5, **options})


def seen(run, **options):
    """Observations of a block in which `run` ran: their counts by kind and name."""
    with ledger(**options) as book:
        run()
    return counted(book)


def counted(book):
    return {(kind, name): count for kind, name, count in book.seen}


class Meta(ClassifierMixin, BaseEstimator):
    """What no list knows."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self


class Subclass(DPSGDClassifier):
    """May do anything with the rows, and keeps to what its base does."""

    def predict(self, X):
        return 1 - super().predict(X)


class Looking(DPSGDClassifier):
    def fit(self, X, y, **more):
        self.means_ = X.mean(axis=0)
        return super().fit(X, y, **more)


class Scaler(BoundedScaler):
    """Keeps to what its base does."""


class LookingScaler(BoundedScaler):
    def transform(self, X):
        return super().transform(X - X.mean(axis=0))


EXACT = {("validation", "DPSGDClassifier"): 4, ("choice", "GridSearchCV"): 1}


def scaled(*steps):
    return make_pipeline(*steps, small())


def released(model, X, y):
    return private_score(model, X, y, epsilon=1.0)


def released_number(model, X, y):
    return float(released(model, X, y))


class Released:
    def __call__(self, model, X, y):
        return released(model, X, y)


def several(model, X, y):
    return private_score(model, X, y, metric=["accuracy", "recall"], pos_label=1, epsilon=1.0)


def searched(scoring, **options):
    grid = GridSearchCV(small(), {"alpha": [0.0, 0.1]}, scoring=scoring, cv=2, **options)
    return grid.fit(X, Y)


# By what a search computes its scores, and what is noted beside its four fits and the refit.
SCORINGS = {
    "a score": (released, {}),
    "a number": (released_number, {}),
    "an object": (Released(), {}),
    "a part": (functools.partial(released), {}),
    "two": ({"a": released, "b": released_number}, {}),
    "several metrics": (several, {}),
    "one of two": ({"a": released, "b": "accuracy"}, EXACT),
    "another model": (lambda model, X, y: released(clone(model).fit(X, y), X, y), None),
    "exact": ("accuracy", EXACT),
}


@pytest.mark.parametrize(
    ("name", "train"), [*((name, False) for name in SCORINGS), ("two", True), ("a score", True)]
)
def test_scores_that_were_released_are_not_noted_as_exact(name, train, tmp_path):
    """Nor is a choice by them, and the ledger is charged for each; also of training rows."""
    scoring, expected = SCORINGS[name]
    refit = (
        "accuracy" if name == "several metrics" else "a" if name in ("two", "one of two") else True
    )
    with ledger(path=tmp_path / "ledger", epsilon=1000.0) as book:
        found = searched(scoring, refit=refit, return_train_score=train)
        assert np.isfinite(found.best_score_)
    if expected is None:  # what was scored is not what the search fitted
        assert (
            counted(book)["validation", "DPSGDClassifier"] >= 4 and not privacy_report(book).holds
        )
        return
    again = PrivacyLedger.load(tmp_path / "ledger")
    assert counted(book) == counted(again) == expected
    report = privacy_report(book)
    assert report.holds == (not expected)
    assert ("gave what private_score released" in str(report).replace("\n", " ")) == (not expected)


CASES = {
    "nothing": (lambda: make_pipeline(BoundedScaler((0, 1)), small()).fit(X, Y), {}),
    "a step": (lambda: scaled(StandardScaler()).fit(X, Y), {("refused", "StandardScaler"): 1}),
    "two steps": (
        lambda: scaled(StandardScaler(), MinMaxScaler()).fit(X, Y),
        {("refused", "StandardScaler"): 1, ("refused", "MinMaxScaler"): 1},
    ),
    "a frozen step": (lambda: scaled(FrozenEstimator(StandardScaler().fit(X))).fit(X, Y), {}),
    "columns": (
        lambda: scaled(
            ColumnTransformer([("a", "passthrough", [0])], remainder=StandardScaler())
        ).fit(X, Y),
        {("refused", "StandardScaler"): 1},
    ),
    "around an ensemble": (
        lambda: make_pipeline(StandardScaler(), VotingClassifier([("a", small())])).fit(X, Y),
        {("refused", "StandardScaler"): 1},
    ),
    "a step in an ensemble": (
        lambda: VotingClassifier([("a", scaled(StandardScaler()))]).fit(X, Y),
        {("refused", "StandardScaler"): 1},
    ),
    "a class at a time": (lambda: OneVsRestClassifier(small()).fit(X, Y), {}),
    "targets": (
        lambda: TransformedTargetRegressor(DPLinearRegression(epsilon=0.3)).fit(X, X[:, 0]),
        {},
    ),
    "scaled targets": (
        lambda: TransformedTargetRegressor(
            DPLinearRegression(epsilon=0.3), transformer=StandardScaler()
        ).fit(X, X[:, 0]),
        {("refused", "StandardScaler"): 1},
    ),
    "stacking": (
        lambda: StackingClassifier([("a", small())], LogisticRegression(), cv=2).fit(X, Y),
        {("unknown", "StackingClassifier"): 3},
    ),
    "calibration": (
        lambda: CalibratedClassifierCV(small(), cv=2).fit(X, Y),
        {("unknown", "CalibratedClassifierCV"): 2},
    ),
    "a stranger": (lambda: Meta(small()).fit(X, Y), {("unknown", "Meta"): 1}),
    "a subclass": (lambda: Subclass(epsilon=0.3, n_iter=1).fit(X, Y), {}),
    "a subclass with a fit of its own": (
        lambda: Looking(epsilon=0.3, n_iter=1).fit(X, Y),
        {("unknown", "Looking"): 1},
    ),
    "subclasses as steps": (
        lambda: make_pipeline(Scaler((0, 1)), Subclass(epsilon=0.3, n_iter=1)).fit(X, Y),
        {},
    ),
    "a step with a method of its own": (
        lambda: scaled(LookingScaler((0, 1))).fit(X, Y),
        {("refused", "LookingScaler"): 1},
    ),
    "a last step with a fit of its own": (
        lambda: make_pipeline(BoundedScaler(), Looking(epsilon=0.3, n_iter=1)).fit(X, Y),
        {("refused", "Looking"): 1},
    ),
    "cross-validation": (
        lambda: cross_val_score(small(), X, Y, cv=3, scoring="roc_auc"),
        {("validation", "DPSGDClassifier"): 3},
    ),
    "a search": (
        lambda: GridSearchCV(small(), {"alpha": [0.0, 0.1]}, cv=2).fit(X, Y),
        {
            ("validation", "DPSGDClassifier"): 4,
            ("score", "DPSGDClassifier"): 4,
            ("choice", "GridSearchCV"): 1,
        },
    ),
    "a cross-validation by released scores": (
        lambda: cross_val_score(scaled(BoundedScaler((0, 1))), X, Y, cv=3, scoring=released),
        {},
    ),
    "released scores beside exact ones": (
        lambda: [searched(released), cross_val_score(small(), X, Y, cv=2, scoring="roc_auc")],
        {("validation", "DPSGDClassifier"): 2, ("choice", "GridSearchCV"): 1},
    ),
    "a search in a search": (
        lambda: cross_val_score(
            GridSearchCV(small(), {"alpha": [0.0]}, cv=2, scoring="roc_auc"),
            X,
            Y,
            cv=2,
            scoring="roc_auc",
        ),
        {("validation", "DPSGDClassifier"): 6, ("choice", "GridSearchCV"): 2},
    ),
    "a private search": (
        lambda: PrivateSearch(small(), {"alpha": [0.0, 0.1]}, epsilon=1.0).fit(X, Y),
        {},
    ),
    "a private search in a cross-validation": (
        lambda: cross_val_score(
            PrivateSearch(small(), {"alpha": [0.0, 0.1]}, epsilon=1.0),
            X,
            Y,
            cv=2,
            scoring="accuracy",
        ),
        {("validation", "PrivateSearch"): 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_around_a_fit_is_seen(name):
    run, expected = CASES[name]
    if not any(kind == "refused" for kind, _ in expected):
        assert seen(run) == expected
        return
    book = ledger()
    with book, pytest.raises(PrivacyError, match="nothing was released or charged"):
        run()
    assert counted(book) == expected and len(book) == 0
    assert privacy_report(book).holds and "it must not be published" in str(privacy_report(book))


LEAKING = {
    "scaler": lambda: scaled(StandardScaler()),
    "columns": lambda: scaled(ColumnTransformer([("a", StandardScaler(), [0])])),
    "beside": lambda: VotingClassifier([("a", small()), ("b", LogisticRegression())]),
    "frozen": lambda: scaled(FrozenEstimator(StandardScaler().fit(X))),
    "bounded": lambda: scaled(BoundedScaler((0, 1))),
    "ours": lambda: make_pipeline(Scaler((0, 1)), Subclass(epsilon=0.3, n_iter=1)),
    "looking": lambda: scaled(LookingScaler((0, 1))),
}
KEPT = ("frozen", "bounded", "ours")


@pytest.mark.parametrize("name", LEAKING)
def test_a_block_and_a_fit_by_the_ledger_treat_a_pipeline_alike(name):
    ends = []
    for in_block in (False, True):
        book = ledger()
        try:
            if in_block:
                with book:
                    LEAKING[name]().fit(X, Y)
            else:
                book.fit(LEAKING[name](), X, Y)
        except PrivacyError:
            ends.append(("refused", len(book)))
        else:
            ends.append(("fitted", len(book)))
    assert ends == [("fitted", 1) if name in KEPT else ("refused", 0)] * 2


def test_workers_know_what_is_around_them():
    """Their calls start with the worker, so that clones bring along what was around them."""
    stack = StackingClassifier([("a", small())], LogisticRegression(), cv=2, n_jobs=2)
    vote = make_pipeline(StandardScaler(), VotingClassifier([("a", small())], n_jobs=2))
    with joblib.parallel_backend("threading"):
        assert seen(lambda: stack.fit(X, Y)) == {("unknown", "StackingClassifier"): 3}
        with ledger() as book:
            with pytest.raises(PrivacyError, match="nothing was released or charged"):
                vote.fit(X, Y)
            assert counted(book) == {("refused", "StandardScaler"): 1} and len(book) == 0
            member = VotingClassifier([("a", small())], n_jobs=2).fit(X, Y).estimators_[0]
            member.fit(X, Y)  # by itself
        assert counted(book) == {("refused", "StandardScaler"): 1} and len(book) == 2


def test_nothing_is_seen_outside_of_a_block():
    book = ledger()
    scaled(StandardScaler()).fit(X, Y).score(X, Y)
    with book:
        model = small().fit(X, Y)
    model.score(X, Y)
    clone(model)
    assert book.seen == () and "NOT COUNTED" not in str(book)
    assert privacy_report(book).holds


def test_what_is_seen_is_kept_where_warnings_are_errors():
    with ledger() as book, warnings.catch_warnings():
        warnings.filterwarnings("error", ".* scores", PrivacyWarning)
        with pytest.raises(PrivacyError):
            scaled(StandardScaler()).fit(X, Y)
    assert counted(book) == {("refused", "StandardScaler"): 1} and len(book) == 0


# Scores ---------------------------------------------------------------------------------------


PREDICT_BY_OTHERS = ("PrivateSearch", "TabularPipeline")  # whose scores are those of their models
SCORED = [
    name
    for name in PLACES
    if hasattr(imported(name), "score")
    and name not in ("GSDScorer", *PREDICT_BY_OTHERS)  # whose scores are of public rows
]


@pytest.mark.parametrize("name", SCORED)
def test_exact_scores_are_seen(name, monkeypatch):
    kind = imported(name)
    monkeypatch.setattr(kind, "predict", lambda self, X, **groups: np.asarray(Y))
    model = kind.__new__(kind)
    assert seen(lambda: model.score(X, Y)) == {("score", name): 1}
    assert model.score(X, Y) == 1.0


def test_scores_of_what_holds_a_model_are_seen():
    frame = pd.DataFrame(X, columns=list("abc"))
    table = Schema({"a": (0, 1), "b": (0, 1), "c": (0, 1)})
    model = tabular_pipeline(small(), table).fit(frame, Y)
    assert seen(lambda: model.score(frame, Y)) == {("score", "DPSGDClassifier"): 1}
    model = tabular_pipeline(DPSGDRegressor(epsilon=0.3, n_iter=1, target_bounds=(0, 1)), table)
    model.fit(frame, X[:, 0])
    assert seen(lambda: model.score(frame, Y)) == {("score", "TabularPipeline"): 1}
    model = PrivateSearch(small(), {"alpha": [0.0, 0.1]}, epsilon=1.0).fit(X, Y)
    assert seen(lambda: model.score(X, Y)) == {("score", "DPSGDClassifier"): 1}


def test_a_table_in_a_cross_validation_is_seen():
    """One fit, which is the pipeline's."""
    frame = pd.DataFrame(X, columns=list("abc"))
    model = tabular_pipeline(small(), Schema({"a": (0, 1), "b": (0, 1), "c": (0, 1)}))
    found = seen(lambda: cross_val_score(model, frame, Y, cv=2, scoring="accuracy"))
    assert found == {("validation", "TabularPipeline"): 2}


def test_a_check_of_a_schema_is_seen(capsys):
    rows = pd.DataFrame({"age": [20, 30, 40]})
    assert seen(lambda: Schema({"age": Range(18, 95)}).check(rows)) == {("look", "Schema.check"): 1}
    with PrivacyLedger(1.0, 1e-5) as book:
        Schema({"age": Range(18, 95)}).check(rows)
    assert "displayed exact facts about the rows" in str(privacy_report(book))


def test_a_score_where_several_ledgers_are_open_is_seen_by_each():
    model, books = small().fit(X, Y), [ledger(), ledger()]

    def inside():
        with books[1]:
            thread = threading.Thread(target=lambda: model.score(X, Y))
            thread.start()
            thread.join()

    with books[0]:
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
    assert [counted(book) for book in books] == [{("score", "DPSGDClassifier"): 1}] * 2


def test_threads_lose_no_score():
    model, book = small().fit(X, Y), ledger()
    with book:
        threads = [threading.Thread(target=lambda: model.score(X, Y)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counted(book) == {("score", "DPSGDClassifier"): 8}


# Seeds of ensembles ---------------------------------------------------------------------------


def told_of_seeds(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return {str(w.message) for w in caught if "sets the `random_state`" in str(w.message)}


ENSEMBLES = {
    "BaggingClassifier": lambda **options: BaggingClassifier(small(), 2, **options).fit(X, Y),
    "BaggingRegressor": lambda **options: BaggingRegressor(
        DPLinearRegression(epsilon=0.3, target_bounds=(0, 1)), 2, **options
    ).fit(X, X[:, 0]),
    "AdaBoostRegressor": lambda: AdaBoostRegressor(
        DPLinearRegression(epsilon=0.3, target_bounds=(0, 1)), n_estimators=1
    ).fit(X, X[:, 0]),
    "RANSACRegressor": lambda: RANSACRegressor(
        DPLinearRegression(epsilon=0.3, target_bounds=(0, 1)), min_samples=50, max_trials=1
    ).fit(X, X[:, 0]),
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_seeds_that_an_ensemble_sets_are_told_of(name):
    told = told_of_seeds(ENSEMBLES[name])
    assert told and all(text.startswith(f"{name} sets the `random_state`") for text in told)
    assert all("VotingClassifier" in text and "remove the noise" in text for text in told)
    assert all(("bootstrap=True" in text) == name.startswith("Bagging") for text in told)
    book = ledger()
    with book, pytest.raises(PrivacyError, match=f"{name} sets the `random_state`.*Voting"):
        ENSEMBLES[name]()
    assert len(book) == 0 and book.seen == ()  # nothing ran


def test_the_noise_of_an_ensemble_can_be_made_again():
    """What the warning says: the seeds are in the model, and the same noise comes from them."""
    model = BaggingClassifier(small(), 2, bootstrap=False).fit(X, Y)
    for member in model.estimators_:
        assert not member.privacy_.secure and member.random_state is not None
        assert np.array_equal(clone(member).fit(X, Y).coef_, member.coef_)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_the_way_out_of_seeds_fits_in_a_ledger(n_jobs):
    members, regressors = [(str(i), small()) for i in range(3)], DPLinearRegression(epsilon=0.3)

    def run():
        with joblib.parallel_backend("threading"):
            model = VotingClassifier(members, voting="soft", n_jobs=n_jobs).fit(X, Y)
        assert all(each.privacy_.secure for each in model.estimators_)
        first, second, _ = (each.coef_ for each in model.estimators_)
        assert not np.array_equal(first, second)
        assert model.predict_proba(X).shape == (60, 2)
        model = VotingRegressor([("a", regressors), ("b", regressors)]).fit(X, X[:, 0])
        assert model.predict(X).shape == (60,)

    book = ledger()
    with book:
        assert not told_of_seeds(run)
    assert len(book) == 5 and book.seen == ()
    assert not told_of_seeds(run)  # outside of a ledger, too


def test_a_seed_that_was_set_by_hand_is_no_ensembles():
    assert not told_of_seeds(lambda: small(random_state=0).fit(X, Y))
    with ledger(), pytest.raises(PrivacyError, match=r"^a fit with a `random_state` cannot be"):
        VotingClassifier([("a", small(random_state=0))]).fit(X, Y)


def test_rows_that_an_ensemble_repeats_are_seen():
    found = seen(ENSEMBLES["BaggingClassifier"], allow_seeded=True)
    assert found == {("seed", "DPSGDClassifier"): 2, ("unknown", "BaggingClassifier"): 2}
    found = seen(lambda: ENSEMBLES["BaggingClassifier"](bootstrap=False), allow_seeded=True)
    assert found == {("seed", "DPSGDClassifier"): 2}


# Seeds and failures ---------------------------------------------------------------------------


def test_seeds_are_seen():
    book = ledger(allow_seeded=True)
    book.fit(small(random_state=0), X, Y)
    book.run(private_mean, X, data_norm=2.0, epsilon=0.1, random_state=0)
    with book:
        small(random_state=1).fit(X, Y)
        small().fit(X, Y)
    book.charge(small(random_state=2, delta=1e-5).fit(X, Y).privacy_)
    assert counted(book) == {("seed", "DPSGDClassifier"): 3, ("seed", "private_mean"): 1}
    page = privacy_report(book).to_html()
    assert "the noise of DPSGDClassifier was made from a seed (3 times)" in page


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lambda: small().fit(X * np.nan, Y), "DPSGDClassifier"),
        (lambda: scaled(BoundedScaler((0, 1))).fit(X + np.inf, Y), "BoundedScaler"),
        (lambda: private_mean(X * np.nan, data_norm=1.0, epsilon=0.1), "private_mean"),
        (lambda: 1 / 0, None),
        (lambda: small().fit(X, Y).predict(X[:, :1]), None),
        (lambda: small(epsilon=1e4, n_iter=1).fit(X, Y), None),  # a refusal is public
    ],
)
def test_a_fit_that_fails_and_ends_the_block_is_seen(run, name):
    book = ledger()
    with pytest.raises((ValueError, ZeroDivisionError, PrivacyBudgetError)), book, book:
        run()
    assert counted(book) == ({("failure", name): 1} if name else {})


def test_a_block_is_closed_where_a_failure_cannot_be_noted(monkeypatch):
    book = ledger()

    def full(kind, name):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(book._state, "note", full)
        with pytest.raises(OSError, match="no space left"), book:
            small().fit(X * np.nan, Y)
    assert book._depth == 0 and book._payer is None
    small().fit(X, Y)
    assert len(book) == 0


# The ledger, its file and its report ----------------------------------------------------------


def filled(**options):
    """A ledger with an observation of each kind."""
    book = ledger(**options)
    with book:
        small().fit(X, Y)
        for i, kind in enumerate(KINDS):
            for _ in range(i + 1):
                observe(kind, f"Some<{kind}>")
    return book


def test_what_was_seen_stands_in_the_ledger(tmp_path):
    book = filled(path=tmp_path / "ledger")
    expected = {(kind, f"Some<{kind}>"): i + 1 for i, kind in enumerate(KINDS)}
    assert counted(book) == expected and len(book) == 1
    assert f"NOT COUNTED: {KINDS['step'].short} Some<step> (once), " in str(book)
    assert "Some&lt;step&gt; (once)" in book._repr_html_() and "color:#8a1c1c" in book._repr_html_()
    whole = json.loads(book.to_json())
    assert whole["seen"][2] == {"kind": "unknown", "of": "Some<unknown>", "count": 3}
    assert len(book.to_frame()) == 1
    drawn, alone = (BudgetDisplay.from_ledger(each) for each in (book, one_fit()))
    assert (drawn.names, drawn.left) == (alone.names, alone.left)
    again = PrivacyLedger.load(tmp_path / "ledger")
    again.save(tmp_path / "copy")
    copied = PrivacyLedger.load(tmp_path / "copy")
    assert counted(again) == counted(copied) == expected
    # A kind and the name of a class: nothing else has a place.
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    fields = {tuple(sorted(line)) for line in lines if line["type"] == "seen"}
    assert fields == {("count", "hash", "id", "kind", "n", "of", "previous", "type")}


def one_fit():
    with ledger() as book:
        small().fit(X, Y)
    return book


def test_what_was_seen_stands_in_the_summary_of_the_report():
    report = privacy_report(filled())
    text, page = str(report), report.to_html()
    summary = " ".join(text.partition("What was released")[0].replace("! ", "").split())
    shown = page.partition("What was released")[0]
    read = json.loads(report.to_json())
    assert not report.holds and report.verdict.startswith("NO PRIVACY GUARANTEE for this ledger")
    assert "Their budget is epsilon = 100." in report.verdict
    assert len(read["reasons"]) == 3 and len(read["alarms"]) == len(KINDS) - 3
    for each in read["seen"]:
        name, words = each["of"], KINDS[each["kind"]].words.split("{name}")[0]
        assert f"{words}{name}" in summary
        loud = shown.split('<p class="loud"')[1:]
        assert sum(f"&lt;{each['kind']}&gt;" in part for part in loud) == 2  # and in the verdict
    assert "color: #8a1c1c" in page
    one = ledger()
    with one:
        observe("score", "DPSGDClassifier")
    report = privacy_report(one)
    assert report.holds and len(json.loads(report.to_json())["alarms"]) == 1


def cross_validated(book):
    cross_val_score(small(), X, Y, cv=2)


def nothing_private(book):
    book.charge(non_private(), already_released=True, neighboring_relation="zero_out")


def too_much(book):
    event = small(epsilon=200.0, delta=1e-5).privacy_event(60, 3, 1)
    book.charge(event, already_released=True, neighboring_relation="zero_out")


SITUATIONS = {
    "nothing": lambda book: None,
    "a fit": lambda book: small().fit(X, Y),
    "a score": lambda book: small().fit(X, Y).score(X, Y),
    "a cross-validation": cross_validated,
    "a choice": lambda book: GridSearchCV(small(), {"alpha": [0.0, 0.1]}, cv=2).fit(X, Y),
    "a stranger": lambda book: Meta(small()).fit(X, Y),
    "not private": nothing_private,
    "over the budget": too_much,
    "a seed": lambda book: small(random_state=0).fit(X, Y),
    # What nobody watches.
    "a scaler by itself": lambda book: small().fit(StandardScaler().fit_transform(X), Y),
    "metrics": lambda book: accuracy_score(Y, small().fit(X, Y).predict(X)),
    "another model": lambda book: LogisticRegression().fit(X, Y),
}
LOUD = ("NO PRIVACY GUARANTEE", "THE BUDGET HAS BEEN EXCEEDED", "NOT COUNTED")


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_printed_agrees_wherever_it_stands(name):
    """The verdict, the text and the JSON of a report, and those of the ledger and its page."""
    book = ledger(allow_seeded=name == "a seed")
    with book:
        SITUATIONS[name](book)
    report = privacy_report(book)
    told, own = json.loads(report.to_json()), json.loads(book.to_json())
    text = " ".join(str(report).replace("! ", "").split())
    for word in LOUD:
        said = word in report.verdict
        assert said == (word in str(book)) == (word in book._repr_html_())
        assert said == (word in book.details())
        assert said == (word in told["verdict"]) == any(word in each for each in own["beside"])
    assert (in_words(book.seen) in report.verdict) and in_words(book.seen) in str(book)
    assert told["seen"] == own["seen"] and report.verdict in text
    broken = "NO PRIVACY GUARANTEE" in report.verdict and name != "a seed"
    assert report.holds == told["holds"] == (not broken and "EXCEEDED" not in report.verdict)
    for form in (str(book), book.details()):
        assert form.splitlines()[-1].strip() == UNWATCHED == own["not_watched"]
    assert UNWATCHED in text.partition("Annex 1")[0] and told["not_watched"] == UNWATCHED
    assert UNWATCHED.startswith("Not watched: ") and "scikit-learn's own metrics" in UNWATCHED


def test_a_file_from_before_there_were_observations_is_continued(tmp_path):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    book.fit(small(), X, Y)
    assert b'"seen"' not in path.read_bytes()  # as all files were
    again = PrivacyLedger.load(path)
    assert again.seen == ()
    with again:
        small().fit(X, Y).score(X, Y)
    assert counted(book) == counted(PrivacyLedger.load(path)) == {("score", "DPSGDClassifier"): 1}


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"kind": 1}, {"of": 1}, {"count": 0}, {"count": 1.0}, {"value": 0.5}],
)
def test_other_observations_are_refused(tmp_path, change):
    path = tmp_path / "ledger"
    book = ledger(path=path)
    with book:
        observe("step", "StandardScaler")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    place = next(i for i, record in enumerate(records) if record["type"] == "seen")
    records[place] |= change
    Journal(path).create(records)
    with pytest.raises(PrivacyError, match="cannot be read as a PrivacyLedger"):
        PrivacyLedger.load(path)


def test_scores_in_a_loop_do_not_fill_the_file():
    book = ledger()
    book._state.seen["score", "DPSGDClassifier"] = MOST - 1
    with book:
        for _ in range(3):
            observe("score", "DPSGDClassifier")
    assert counted(book) == {("score", "DPSGDClassifier"): MOST}
    assert f"({MOST:,} times or more)" in str(book)
