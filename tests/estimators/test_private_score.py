"""Scores on private rows: exact without noise, near with it, and silent about what is private."""

import contextlib
import gc
import math
import pickle
import re
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
from helpers import RELATIONS, scale_noise
from scipy import sparse
from scipy.special import expit
from sklearn import metrics
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_regression
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dpsubspace import (
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    privacy_cost,
    privacy_report,
    private_score,
    tabular_pipeline,
)
from dpsubspace._core.accounting.guarantee import footnote
from dpsubspace._core.statistics.score_metrics import Summed
from dpsubspace.metrics import PrivateScore

INF = float("inf")
EXACT = {
    "roc_auc": lambda m, X, y: metrics.roc_auc_score(y, m.predict_proba(X)[:, 1]),
    "accuracy": lambda m, X, y: metrics.accuracy_score(y, m.predict(X)),
    "balanced_accuracy": lambda m, X, y: metrics.balanced_accuracy_score(y, m.predict(X)),
    "precision": lambda m, X, y: metrics.precision_score(y, m.predict(X)),
    "recall": lambda m, X, y: metrics.recall_score(y, m.predict(X)),
    "f1": lambda m, X, y: metrics.f1_score(y, m.predict(X)),
    "f1_macro": lambda m, X, y: metrics.f1_score(y, m.predict(X), average="macro"),
    "confusion_matrix": lambda m, X, y: metrics.confusion_matrix(y, m.predict(X)),
    "log_loss": lambda m, X, y: metrics.log_loss(y, m.predict_proba(X)),
    "neg_log_loss": lambda m, X, y: -metrics.log_loss(y, m.predict_proba(X)),
    "brier": lambda m, X, y: np.mean((m.predict_proba(X)[:, 1] - y) ** 2),
}


class Linear(ClassifierMixin, BaseEstimator):
    """Log-odds in the only column, and no more."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        chance = expit(np.asarray(X)[:, 0])
        return np.stack([1 - chance, chance], axis=1)

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)


def normals(n, seed=0, positives=0.5, shift=1.5):
    """Rows of two normal classes, of which the column is the log-odds."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < positives).astype(int)
    x = rng.normal(size=n) + shift * y
    odds = shift * (x - shift / 2) + math.log(positives / (1 - positives))
    return odds[:, None], y


@pytest.fixture(scope="module")
def fitted():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, solver="newton-cg")).fit(
        X[::2], y[::2]
    )
    return model, X[1::2], y[1::2]


# Without noise ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_without_noise_a_metric_is_that_of_scikit_learn(fitted, name):
    model, X, y = fitted
    score = private_score(model, X, y, metric=name, epsilon=INF, loss_bound=100.0)
    np.testing.assert_allclose(score.value, EXACT[name](model, X, y), rtol=1e-6, atol=1e-6)
    assert score.privacy_.epsilon == INF and np.all(score.low <= score.high)


def test_without_noise_all_metrics_together_are_those_of_scikit_learn(fitted):
    model, X, y = fitted
    found = private_score(model, X, y, metric=[*EXACT], epsilon=INF, loss_bound=100.0)
    assert [*found] == [*EXACT]
    for name, exact in EXACT.items():
        np.testing.assert_allclose(found[name].value, exact(model, X, y), atol=1e-6)


def test_without_noise_the_roc_curve_is_that_of_scikit_learn(fitted):
    model, X, y = fitted
    curve = private_score(model, X, y, metric="roc_curve", epsilon=INF)
    fpr, tpr, _ = metrics.roc_curve(y, model.predict_proba(X)[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(np.unique(curve.at), np.unique(fpr), atol=1e-12)
    assert metrics.auc(curve.at, curve.value) == pytest.approx(metrics.auc(fpr, tpr))
    assert (curve.low <= curve.value).all() and (curve.value <= curve.high).all()


@pytest.mark.parametrize("name", ["r2", "root_mean_squared_error", "mean_absolute_error"])
def test_without_noise_metrics_of_numbers_are_those_of_scikit_learn(name):
    X, y = make_regression(400, 5, noise=20.0, random_state=0)
    model = Ridge().fit(X[:200], y[:200])
    rows, targets = X[200:], y[200:]
    options = {"target_bounds": (-1000, 1000), "epsilon": INF}
    exact = getattr(metrics, f"{name}_score" if name == "r2" else name)
    value = float(private_score(model, rows, targets, metric=name, **options))
    assert value == pytest.approx(exact(targets, model.predict(rows)), rel=1e-4)
    if name != "r2":
        score = private_score(model, rows, targets, metric=f"neg_{name}", **options)
        assert float(score) == pytest.approx(-value) and score.low <= float(score) <= score.high


# With noise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_area_is_found_within_a_hundredth(relation):
    """2,000 rows of balanced classes at epsilon 0.5: the median of 25 draws.

    One draw is further off once in 20, so 13 of 25 are once in 1e10 or less.
    """
    errors = []
    for seed in range(25):
        X, y = normals(2000, seed)
        options = {"epsilon": 0.5, "neighboring_relation": relation, "random_state": seed}
        score = private_score(Linear(), X, y, metric="roc_auc", **options)
        errors.append(abs(float(score) - metrics.roc_auc_score(y, X[:, 0])))
    assert np.median(errors) < (0.01 if relation == "zero_out" else 0.02)


class Decides(ClassifierMixin, BaseEstimator):
    """Decision values in the only column, in some unit."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, scale=1.0):
        self.scale = scale

    def decision_function(self, X):
        return self.scale * X[:, 0]


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.1, 1.0, 1e4])
def test_decision_values_of_any_size_are_ordered(scale):
    X, y = normals(20_000)
    labels = Decides.classes_[y]
    score = private_score(Decides(scale), X, labels, metric="roc_auc", random_state=0)
    exact = metrics.roc_auc_score(y, X[:, 0])
    # It is off by 0.0003 on average, with a deviation of 0.0004: 0.01 is at more than 20 of these,
    # and an end of the interval, which is 0.012 wide, at 13.
    assert float(score) == pytest.approx(exact, abs=0.01) and score.low <= exact <= score.high
    assert not score.cells.probabilities


@pytest.mark.parametrize("scale", [1e-8, 1e-5])
def test_decision_values_whose_order_is_hidden_are_told(scale):
    X, y = normals(20_000)
    with pytest.warns(PrivacyWarning, match="fall into one bin of the histogram"):
        private_score(Decides(scale), X, Decides.classes_[y], metric="roc_auc", random_state=0)


@pytest.mark.parametrize("name", ["roc_auc", "accuracy", "f1", "log_loss"])
def test_intervals_cover_what_they_are_about(name):
    """At a level of 80 %, over draws of rows and of noise; few, but in both directions."""
    everything = normals(200_000, 99)
    exact = EXACT[name](Linear(), *everything)
    hits = 0
    for seed in range(150):
        X, y = normals(1000, seed)
        score = private_score(Linear(), X, y, metric=name, level=0.8, random_state=seed)
        hits += score.low <= exact <= score.high
    # Binomial: at 80 % 88 or fewer of 150 once in 1e9, and up to 87 % all of them.
    assert 88 < hits < 150


@pytest.mark.wide
@pytest.mark.parametrize(("n", "epsilon"), [(120, 0.45), (120, 1.0), (2000, 0.1), (2000, 1.0)])
@pytest.mark.parametrize("metric", ["root_mean_squared_error", "mean_absolute_error"])
def test_intervals_of_errors_cover_where_noise_hides_most_of_them(n, epsilon, metric):
    """Their bound is released first. One that is too small cuts errors, of which nothing tells.

    Of 150 intervals at 95 %, which also allow for another sample, 32 or more miss the error of
    these rows once in 1e11.
    """
    rng = np.random.default_rng(n)
    targets = np.clip(np.round(50 + rng.laplace(0, 8, n), 1), 0, 100)
    rows = np.zeros((n, 1))
    model = DummyRegressor(strategy="constant", constant=50.0).fit(rows, targets)
    exact = getattr(metrics, metric)(targets, model.predict(rows))
    options = {"metric": metric, "target_bounds": (0, 100), "epsilon": epsilon}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        found = [
            private_score(model, rows, targets, random_state=seed, **options) for seed in range(150)
        ]
    assert sum(not score.low <= exact <= score.high for score in found) < 32
    assert all(score.low < score.high for score in found)


def test_bands_of_curves_cover_what_they_are_about():
    """Each point of them by itself."""
    hits, observed = [], []
    for seed in range(60):
        X, y = normals(3000, seed)
        names = ["roc_curve", "calibration_curve"]
        found = private_score(Linear(), X, y, metric=names, level=0.8, random_state=seed)
        curve, shares = (found[name] for name in names)
        exact = np.interp(curve.at, *EVERY_CURVE)[1:-1]
        hits.append(((curve.low[1:-1] <= exact) & (exact <= curve.high[1:-1])).mean())
        # The model is calibrated: what is observed is what is predicted.
        observed.append(((shares.low <= shares.at) & (shares.at <= shares.high)).mean())
    assert 0.72 < np.mean(hits) < 0.95
    assert 0.7 < np.mean(observed) < 0.95


def every_curve():
    X, y = normals(200_000, 99)
    return metrics.roc_curve(y, X[:, 0])[:2]


EVERY_CURVE = every_curve()


def test_more_level_is_a_wider_interval_and_more_epsilon_a_narrower_one():
    X, y = normals(1000)

    def width(**options):
        score = private_score(Linear(), X, y, metric="roc_auc", random_state=0, **options)
        return score.high - score.low

    assert width(level=0.5) < width(level=0.9) < width(level=0.99)
    assert width(epsilon=5.0) < width(epsilon=1.0) < width(epsilon=0.3)


@pytest.mark.filterwarnings("ignore:noise hides:dpsubspace.PrivacyWarning")
def test_errors_of_a_regressor_drown_in_no_wide_range():
    """The noise follows the errors: a range a thousand times as wide costs little."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 1))
    y = X[:, 0] + rng.normal(size=3000) / 2
    model = Ridge(alpha=1e-9).fit(X[:1000], y[:1000])
    for bounds in ((-10, 10), (-1000, 1000)):
        options = {"metric": "root_mean_squared_error", "target_bounds": bounds, "epsilon": 10.0}
        scores = [
            private_score(model, X[1000:], y[1000:], random_state=seed, **options)
            for seed in range(15)
        ]
        # Of rows and of noise it has a deviation of 0.01. In 3 of 300 draws noise hides it, and the
        # interval says so: in 8 of 15 once in 1e12.
        assert np.median([float(score) for score in scores]) == pytest.approx(0.5, abs=0.1)
        assert np.median([score.high - score.low for score in scores]) < 0.1


# Models -----------------------------------------------------------------------------------------


def test_many_classes_with_names():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cg")).fit(
        X[::2], names[::2]
    )
    asked = ["accuracy", "balanced_accuracy", "f1_macro", "confusion_matrix", "log_loss", "brier"]
    found = private_score(model, X[1::2], names[1::2], metric=asked, epsilon=50.0, random_state=0)
    assert found["confusion_matrix"].value.shape == (3, 3)
    assert float(found["accuracy"]) == pytest.approx(model.score(X[1::2], names[1::2]), abs=0.03)
    with pytest.raises(ValueError, match="is for two classes, and the model has 3"):
        private_score(model, X, names, metric="roc_auc")


def test_a_threshold_of_a_models_own_is_that_of_its_labels():
    X, y = normals(4000)
    inner = LogisticRegression(solver="newton-cg").fit(X, y)
    model = FixedThresholdClassifier(inner, threshold=0.2).fit(X, y)
    names = ["recall", "roc_auc", "accuracy"]
    found = private_score(model, X, y, metric=names, epsilon=20.0, random_state=0)
    assert float(found["recall"]) == pytest.approx(
        metrics.recall_score(y, model.predict(X)), abs=0.01
    )
    assert float(found["roc_auc"]) == pytest.approx(metrics.roc_auc_score(y, X[:, 0]), abs=0.01)


def test_labels_alone_need_no_scores():
    X, y = load_digits(return_X_y=True)
    model = LinearSVC().fit(X[:900] / 16, y[:900] == 8)
    value = private_score(model, X[900:] / 16, y[900:] == 8, random_state=0)
    assert float(value) == pytest.approx(model.score(X[900:] / 16, y[900:] == 8), abs=0.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_predictions_that_are_no_numbers_raise_and_warn_of_nothing(bad):
    class Broken(Linear):
        def predict_proba(self, X):
            chances = super().predict_proba(X)
            chances[3] = bad
            return chances

    X, y = normals(500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = private_score(Broken(), X, y, metric=["roc_auc", "log_loss"], random_state=0)
    assert all(math.isfinite(float(score)) for score in found.values())


@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 1e6, INF])
@pytest.mark.parametrize("n", [1, 2, 50])
def test_few_rows_and_any_budget_give_numbers_or_a_refusal(n, epsilon):
    X, y = normals(n)
    names = ["roc_curve", "calibration_curve", "confusion_matrix", "roc_auc", "log_loss", "f1"]
    found, options = {}, {"epsilon": epsilon, "random_state": 0}
    numbers = {"metric": ["r2", "mean_absolute_error"], "target_bounds": (0, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told_of = (".* is NaN", "delta=", "noise will hide ", ".* only if the standard")
        for told in (
            *told_of,
            "noise hides",
            "noise would hide",
            ".* be mostly noise",
            ".*no meaningful",
        ):
            warnings.filterwarnings("ignore", told, PrivacyWarning)
        for model, asked in ((Linear(), {"metric": names}), (Ridge().fit(X, y), numbers)):
            try:
                found |= private_score(model, X, y, **asked, **options)
            except ValueError as error:
                assert "Nothing was released" in str(error) and n * epsilon < 60
    assert len(found) == 8 or epsilon <= 1.0
    for score in found.values():
        assert np.all(np.isnan(score.value)) or np.all(score.low <= score.value)
        assert np.all(np.isnan(score.value)) or np.all(score.value <= score.high)


def test_entries_of_a_matrix_add_up_and_a_curve_rises_with_its_band():
    X, y = normals(300)
    asked = ["confusion_matrix", "roc_curve", "accuracy"]
    for seed in range(10):
        alone = private_score(
            Linear(), X, y, metric="confusion_matrix", epsilon=0.1, random_state=seed
        )
        found = private_score(Linear(), X, y, metric=asked, epsilon=1.0, random_state=seed)
        for matrix in (alone, found["confusion_matrix"]):
            assert matrix.value.min() >= 0 and matrix.value.sum() == pytest.approx(300)
            assert np.all((matrix.low <= matrix.value) & (matrix.value <= matrix.high))
        curve = found["roc_curve"]
        for each in (curve.at, curve.value, curve.low, curve.high):
            assert np.all(np.diff(each) >= 0)


@pytest.mark.parametrize("form", [pd.DataFrame, sparse.csr_array, np.asarray, list])
def test_rows_reach_the_model_in_their_own_form(form):
    class Asks(Linear):
        def predict(self, X):
            # Lists are read entry by entry, so that no row decides the types of others.
            assert isinstance(X, np.ndarray if form in (list, np.asarray) else form)
            return np.zeros(100, int)

    X, y = normals(100)
    rows = [list(row) for row in X] if form is list else form(X)
    assert private_score(Asks(), rows, y == 1, random_state=0).n == 100


# What is refused, and what shows nothing --------------------------------------------------------


@pytest.mark.parametrize("name", ["roc_auc", "balanced_accuracy", "precision", "roc_curve"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_class_shows_in_released_counts_alone_and_stays_charged(name, missing):
    X, _ = normals(400)
    y = np.full(400, 1 - missing)
    refused = 0
    for seed in range(10):
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, allow_seeded=True)
        try:
            ledger.run(private_score, Linear(), X, y, metric=name, epsilon=0.9, random_state=seed)
        except PrivacyError as error:
            assert re.search(r"which the noise hides.*stays charged", str(error))
            refused += 1
        assert len(ledger.entries) == 1 and ledger.epsilon() == pytest.approx(0.9)
    # Noise makes the count large enough once in 100 draws: in 8 of 10 once in 1e14.
    assert refused >= 3


def test_a_class_of_few_rows_is_refused_like_one_of_none():
    """The message has the released number alone, which is the same for the same noise."""
    messages = []
    X, y = normals(400)
    for few in (0, 1):
        y[:] = 0
        y[:few] = 1
        with pytest.raises(PrivacyError) as caught:
            private_score(Linear(), X, y, metric="roc_auc", epsilon=0.9, random_state=0)
        messages.append(str(caught.value))
    assert [m.partition("is ")[0] for m in messages] == [messages[0].partition("is ")[0]] * 2


def test_of_several_metrics_those_that_can_be_told_are():
    X, _ = normals(400)
    with pytest.warns(PrivacyWarning, match="roc_auc is NaN: the noisy number of rows"):
        found = private_score(
            Linear(), X, np.zeros(400, int), metric=["roc_auc", "accuracy"], random_state=0
        )
    assert math.isnan(float(found["roc_auc"])) and 0 < float(found["accuracy"]) < 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"metric": "auc"}, "`metric` must be one of"),
        ({"metric": []}, "`metric` must be one of"),
        ({"metric": ["accuracy", "accuracy"]}, "different ones"),
        ({"metric": ["accuracy", "r2"]}, "of classifiers and of regressors"),
        ({"metric": "r2"}, "need the public range of targets"),
        ({"metric": "r2", "target_bounds": (3, 1)}, "`target_bounds` must be"),
        ({"target_bounds": (0, 1)}, "`target_bounds` are for metrics of regressors"),
        ({"level": 1.0}, "level"),
        ({"loss_bound": 0.0}, "loss_bound"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"neighboring_relation": "add"}, "neighboring_relation"),
        ({"random_state": "seed"}, "random_state"),
        ({"groups": [1, 2]}, "one entry for each row"),
    ],
    ids=str,
)
def test_parameters_out_of_range(options, match):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with pytest.raises(ValueError, match=match):
        ledger.run(private_score, Linear(), *normals(50), **({"epsilon": 1.0} | options))
    assert len(ledger.entries) == 0


@pytest.mark.parametrize(
    ("model", "y", "metric", "match"),
    [
        (Linear(), ["secret"] * 50, "accuracy", "labels that are not in"),
        (Linear(), np.full(50, 7), "accuracy", "labels that are not in"),
        (Linear(), np.zeros(49), "accuracy", "inconsistent numbers of samples"),
        (Linear(), [None] * 50, "accuracy", "missing labels|labels that are not in"),
        (Ridge().fit([[0.0], [1.0]], [0, 1]), np.zeros(50), "accuracy", "has no `classes_`"),
        (LinearSVC().fit([[0.0], [1.0]], [0, 1]), np.zeros(50), "log_loss", "`predict_proba`"),
        (
            LogisticRegression(),
            np.zeros(50),
            "accuracy",
            "not fitted: call fit",
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.* will be mostly noise:dpsubspace.PrivacyWarning")
def test_what_cannot_be_scored_is_refused_without_a_charge_or_an_entry(model, y, metric, match):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with pytest.raises(ValueError, match=match) as caught:
        ledger.run(private_score, model, normals(50)[0], y, metric=metric, epsilon=1.0)
    assert len(ledger.entries) == 0
    assert "secret" not in str(caught.value) and caught.value.__cause__ is None
    assert caught.value.__context__ is None or "secret" not in str(caught.value.__context__)


# Persons, cost and what is given back -----------------------------------------------------------


def test_persons_count_alike_however_many_rows_they_have():
    """One who has half of the rows, which are all wrong, is one of a thousand."""
    X, y = normals(1000)
    truth = metrics.accuracy_score(y, X[:, 0] > 0)
    X = np.concatenate([X, np.ones((1000, 1))])
    y, groups = np.append(y, np.zeros(1000, int)), np.minimum(np.arange(2000), 1000)
    for name in (["accuracy"], ["accuracy", "roc_auc"]):
        found = private_score(
            Linear(), X, y, metric=name, groups=groups, epsilon=50.0, random_state=0
        )
        assert float(found["accuracy"]) == pytest.approx(truth, abs=0.01)
        assert found["accuracy"].n == 1001 and found["accuracy"].unit == "person"
        assert found.privacy_.unit == "person" == found["accuracy"].privacy_.unit


def test_all_metrics_together_cost_what_one_of_them_costs():
    X, y = normals(500)
    names = ["roc_auc", "f1", "log_loss", "calibration_curve"]
    for asked in (names, "accuracy"):
        guarantee = private_score(Linear(), X, y, metric=asked, epsilon=0.7, delta=0.0).privacy_
        assert guarantee.epsilon == 0.7 and guarantee.delta == 0 and guarantee.secure
    assert "Laplace noise" in guarantee.details() and "the model" in guarantee.public


def test_a_score_is_a_number_with_an_interval():
    X, y = normals(500)
    score = private_score(Linear(), X, y, random_state=0)
    assert isinstance(score, PrivateScore) and float(score) == score.value
    assert str(score).startswith(f"accuracy = {score.value:.4g} (95% interval")
    again = pickle.loads(pickle.dumps(score))
    assert again.value == score.value
    assert "counts" not in repr(score) and len(repr(score)) < 200
    assert "this call only" in str(score.privacy_)
    curve = private_score(Linear(), X, y, metric="roc_curve", random_state=0)
    assert "with intervals" in str(curve)
    fpr, tpr = curve.cells.roc_curve()
    np.testing.assert_array_equal([fpr, tpr], [curve.at, curve.value])
    assert curve.cells.roc_auc() == pytest.approx(metrics.roc_auc_score(y, X[:, 0]), abs=0.05)
    assert curve.cells.resampled(7, np.random.default_rng(0)).shape[0] == 7
    with pytest.raises(ValueError, match="do not hold predictions"):
        curve.cells.confusion_matrix()


def test_the_same_seed_gives_the_same_score_and_another_another():
    X, y = normals(500)
    found = [private_score(Linear(), X, y, metric="roc_auc", random_state=s) for s in (0, 0, 1)]
    assert (found[0].value, found[0].low) == (found[1].value, found[1].low)
    assert found[0].value != found[2].value


@pytest.mark.parametrize(("size", "told"), [(1.0, False), (1e-9, True)])
def test_decision_values_of_another_size_are_told_of(size, told):
    """One cell holds them all then, and an interval would not cover."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = X[:, 0] + rng.normal(size=2000) > 0
    model = LinearSVC().fit(X, y)
    model.coef_, model.intercept_ = model.coef_ * size, np.array([0.1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        private_score(model, X, y, metric="roc_auc", epsilon=1.0, random_state=0)
    assert any("one bin" in str(each.message) for each in caught) == told


# Which class ------------------------------------------------------------------------------------

OF_A_CLASS = {
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "f1": metrics.f1_score,
    "specificity": lambda y, found, pos_label: metrics.recall_score(
        y, found, pos_label=next(each for each in ("ill", "well") if each != pos_label)
    ),
}


@pytest.fixture(scope="module")
def named_classes():
    """A model of classes with names, of which the last one is not the one that is looked for."""
    X, y = normals(600, positives=0.3)
    labels = np.where(y == 1, "ill", "well")
    return LogisticRegression(solver="newton-cg").fit(X[:300], labels[:300]), X[300:], labels[300:]


@pytest.mark.parametrize("others", [(), ("roc_auc",), ("roc_curve", "accuracy")], ids=str)
@pytest.mark.parametrize("pos_label", ["ill", "well"])
def test_metrics_are_about_the_class_that_is_asked_for(named_classes, pos_label, others):
    """Whether labels are counted by themselves or with scores, and beside sums."""
    model, X, y = named_classes
    names, options = [*OF_A_CLASS, "confusion_matrix", *others], {"epsilon": INF}
    found = private_score(model, X, y, metric=names, pos_label=pos_label, **options)
    predicted = model.predict(X)
    for name, exact in OF_A_CLASS.items():
        assert float(found[name]) == pytest.approx(exact(y, predicted, pos_label=pos_label))
        assert str(found[name]).startswith(f"{name} of class '{pos_label}' = ")
    matrix = found["confusion_matrix"]
    np.testing.assert_array_equal(matrix.value, metrics.confusion_matrix(y, predicted))
    assert matrix.pos_label is None and found[names[0]].pos_label == pos_label


@pytest.mark.parametrize("pos_label", ["ill", "well"])
def test_curves_are_about_the_class_that_is_asked_for(named_classes, pos_label):
    model, X, y = named_classes
    chance = model.predict_proba(X)[:, [*model.classes_].index(pos_label)]
    names = ["roc_curve", "calibration_curve", "roc_auc"]
    found = private_score(model, X, y, metric=names, pos_label=pos_label, epsilon=INF)
    fpr, tpr, _ = metrics.roc_curve(y, chance, pos_label=pos_label, drop_intermediate=False)
    curve, shares = found["roc_curve"], found["calibration_curve"]
    np.testing.assert_allclose(np.unique(curve.at), np.unique(fpr), atol=1e-12)
    assert metrics.auc(curve.at, curve.value) == pytest.approx(metrics.auc(fpr, tpr))
    assert float(found["roc_auc"]) == pytest.approx(metrics.auc(fpr, tpr))
    # Each row has a cell of its own.
    np.testing.assert_allclose(np.sort(shares.at), np.sort(chance), atol=0.05)
    order = np.argsort(chance)
    np.testing.assert_array_equal(shares.value, (y == pos_label)[order])
    assert curve.cells.classes[1] == shares.pos_label == pos_label


@pytest.mark.parametrize(
    ("classes", "about"), [((0, 1), 1), ((-1, 1), 1), ((False, True), True), ((0.0, 1.0), 1.0)]
)
def test_of_classes_that_scikit_learn_knows_it_is_the_class_1(classes, about):
    X, y = normals(200)
    model = LogisticRegression(solver="newton-cg").fit(X, np.array(classes)[y])
    score = private_score(model, X, np.array(classes)[y], metric="recall", epsilon=INF)
    assert score.pos_label == about
    assert float(score) == pytest.approx(metrics.recall_score(y, model.predict(X) == classes[1]))


@pytest.mark.parametrize("name", [*OF_A_CLASS, "roc_curve", "calibration_curve"])
def test_a_class_that_is_not_named_is_asked_for_before_any_charge(named_classes, name):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    for words, options in (
        ("`pos_label` is not specified, and the classes are", {}),
        ("pos_label='sick' is not a valid label: It should be one of", {"pos_label": "sick"}),
        ("is not a valid label", {"pos_label": ["ill"]}),
    ):
        with pytest.raises(ValueError, match=words):
            ledger.run(private_score, *named_classes, metric=name, epsilon=1.0, **options)
    assert len(ledger.entries) == 0


def test_a_class_of_1_and_2_is_asked_for():
    """1 is the first of them, which nobody means."""
    X, y = normals(100)
    model = LogisticRegression(solver="newton-cg").fit(X, y + 1)
    with pytest.raises(ValueError, match=r"classes are \[1, 2\].*pos_label=2"):
        private_score(model, X, y + 1, metric="precision")


@pytest.mark.parametrize("metric", ["accuracy", ["log_loss", "balanced_accuracy"]])
def test_a_class_that_nothing_is_about_is_refused(named_classes, metric):
    with pytest.raises(ValueError, match="pos_label='ill' has no effect on metric="):
        private_score(*named_classes, metric=metric, pos_label="ill")


@pytest.mark.parametrize(
    ("metric", "instead"),
    [
        ("recall", "recall_macro"),
        ("precision", "precision_macro"),
        ("roc_auc", "roc_auc_ovr"),
        ("specificity", "recall_macro"),
        ("calibration_curve", "log_loss"),
    ],
)
def test_what_there_is_for_more_classes_is_named(metric, instead):
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(solver="newton-cg").fit(X, y)
    with pytest.raises(ValueError, match=f"is for two classes, .* 3: ask for '{instead}'"):
        private_score(model, X, y, metric=metric)
    assert 0 < float(private_score(model, X, y, metric=instead, epsilon=100.0)) <= 1


def test_one_against_all_others_without_noise_is_that_of_scikit_learn():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(solver="newton-cg", C=1e-3).fit(X[::2], y[::2])
    names = ["roc_auc_ovr", "f1_macro", "accuracy", "log_loss"]
    found = private_score(model, X, y, metric=names, epsilon=INF)
    chances = model.predict_proba(X)
    exact = metrics.roc_auc_score(y, chances, multi_class="ovr")
    assert float(found["roc_auc_ovr"]) == pytest.approx(exact)
    assert float(found["f1_macro"]) == pytest.approx(
        metrics.f1_score(y, model.predict(X), average="macro")
    )
    assert float(found["accuracy"]) == pytest.approx(model.score(X, y))
    two = y < 2
    model = LogisticRegression(solver="newton-cg", C=1e-3).fit(X[two][:, :1], y[two])
    area = private_score(model, X[two][:, :1], y[two], metric="roc_auc_ovr", epsilon=INF)
    exact = metrics.roc_auc_score(y[two], model.predict_proba(X[two][:, :1])[:, 1])
    assert float(area) == pytest.approx(exact)


def test_decision_values_of_many_classes_are_ranked():
    X, y = load_iris(return_X_y=True)
    model = LinearSVC().fit(X, y)
    area = private_score(model, X, y, metric="roc_auc_ovr", epsilon=INF)
    decided = model.decision_function(X)
    exact = np.mean([metrics.roc_auc_score(y == c, decided[:, c]) for c in range(3)])
    assert float(area) == pytest.approx(exact)


# What is given back -----------------------------------------------------------------------------


def test_the_curve_comes_with_its_area():
    X, y = normals(500)
    area = private_score(Linear(), X, y, metric="roc_auc", random_state=0)
    curve = private_score(Linear(), X, y, metric="roc_curve", random_state=0)
    np.testing.assert_array_equal(area.curve.value, curve.value)
    np.testing.assert_array_equal(area.curve.at, curve.at)
    assert area.curve.privacy_ is area.privacy_ and curve.curve is None


@pytest.mark.parametrize("missing", ["X", "y"])
def test_rows_and_labels_are_needed(missing):
    given = dict(zip("Xy", normals(300), strict=True)) | {missing: None}
    with pytest.raises(ValueError, match=f"requires {missing} to be passed"):
        private_score(Linear(), **given)


def test_a_pair_can_be_unpacked_for_one_more_release():
    X, y = normals(300)
    score = private_score(Linear(), X, y, random_state=0)
    with pytest.warns(FutureWarning, match=r"score = private_score"):
        value, guarantee = score
    assert value is score and guarantee is score.privacy_ and guarantee.epsilon == 1.0
    for old in (lambda: score[1], lambda: score.privacy):
        with pytest.warns(FutureWarning, match=r"score\.privacy_"):
            assert old() is guarantee


def test_several_scores_are_a_dict():
    X, y = normals(300)
    scores = private_score(Linear(), X, y, metric=["accuracy", "roc_auc"], random_state=0)
    assert [*scores] == list(scores) == ["accuracy", "roc_auc"] == [name for name in scores]
    assert {**scores} == dict(scores) and scores.privacy_.of == "private_score"
    with pytest.raises(KeyError, match="f1"):
        scores["f1"]
    again = pickle.loads(pickle.dumps(scores))
    assert [*again] == [*scores] and again.privacy_ == scores.privacy_
    lines = [str(scores[name]).splitlines() for name in ("accuracy", "roc_auc")]
    told = footnote(scores.privacy_)
    assert [line[1:] for line in lines] == [[told]] * 2 and told.endswith("; 300 rows.")
    assert str(scores).splitlines() == [lines[0][0], lines[1][0], told]
    assert scores._repr_html_() == f"<p>{'<br>'.join(str(scores).splitlines())}</p>"
    assert scores["roc_auc"]._repr_html_() == f"<p>{'<br>'.join(lines[1])}</p>"


def test_a_ledger_takes_a_score_as_it_is():
    X, y = normals(300)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    ledger.charge(private_score(Linear(), X, y, epsilon=0.3))
    ledger.charge(private_score(Linear(), X, y, metric=["accuracy", "f1"], epsilon=0.4))
    score = ledger.run(private_score, Linear(), X, y, epsilon=0.5)
    assert ledger.epsilon() == pytest.approx(1.2) and isinstance(score, PrivateScore)
    with pytest.raises(PrivacyError, match="released already"):
        ledger.run(score)
    scores = private_score(Linear(), X, y, metric=["accuracy", "f1"], epsilon=0.4)
    for released in (scores, scores["f1"]):
        assert privacy_report(released).epsilon == pytest.approx(0.4)
        assert privacy_cost(released, delta=1e-5) == pytest.approx(0.4, rel=1e-3)


# By group ---------------------------------------------------------------------------------------

SIDES = ["left", "right"]


def sides(n):
    """Groups of rows, of which a third is in none that is named."""
    return np.array([*SIDES, "elsewhere"])[np.arange(n) % 3]


@pytest.mark.parametrize(
    "names", [["accuracy"], ["f1", "recall"], ["roc_auc", "accuracy", "log_loss"]], ids=str
)
def test_without_noise_scores_of_groups_are_those_of_their_rows(names):
    X, y = normals(900)
    where = sides(900)
    options = {"metric": names, "epsilon": INF, "loss_bound": 100.0}
    found = private_score(Linear(), X, y, by=(where, SIDES), **options)
    for name in names:
        assert float(found[name]) == pytest.approx(EXACT[name](Linear(), X, y))
        assert [*found[name].by] == SIDES
        for side, score in found[name].by.items():
            rows = where == side
            assert float(score) == pytest.approx(EXACT[name](Linear(), X[rows], y[rows]))
            assert score.n is None and score.low <= score.value <= score.high
    line, left, *_ = str(found[names[0]]).splitlines()
    assert line.startswith(f"{names[0]} ") and left.startswith("  'left': 0.")


def test_without_noise_errors_of_groups_are_those_of_their_rows():
    X, y = make_regression(600, 5, noise=20.0, random_state=0)
    model, where = Ridge().fit(X, y), sides(600)
    names = ["r2", "mean_absolute_error", "neg_root_mean_squared_error"]
    options = {"target_bounds": (-1000, 1000), "epsilon": INF, "by": (where, SIDES)}
    found = private_score(model, X, y, metric=names, **options)
    for side in SIDES:
        rows = where == side
        exact = metrics.r2_score(y[rows], model.predict(X[rows]))
        assert float(found["r2"].by[side]) == pytest.approx(exact, rel=1e-4)
        exact = metrics.mean_absolute_error(y[rows], model.predict(X[rows]))
        assert float(found["mean_absolute_error"].by[side]) == pytest.approx(exact, rel=1e-4)
        assert float(found[names[2]].by[side]) < 0


def test_levels_are_those_of_the_schema_or_given_and_never_of_the_rows():
    X, y = normals(300)
    frame = pd.DataFrame({"x": X[:, 0], "side": sides(300)})

    class Framed(Linear):
        @property
        def schema(self):
            return {"x": (-9, 9), "side": [*SIDES, "above"]}

        def predict(self, X):
            return (np.asarray(X["x"]) > 0).astype(int)

    with pytest.warns(PrivacyWarning, match="of group 'above' is NaN: the noisy number of rows"):
        score = private_score(Framed(), frame, y, by="side", random_state=0)
    assert [*score.by] == ["left", "right", "above"]
    assert "levels of groups (3)" in score.privacy_.public
    for by in ({"side": SIDES}, (sides(300), SIDES), (list(sides(300)), SIDES)):
        score = private_score(Framed(), frame, y, by=by, random_state=0)
        assert [*score.by] == SIDES


def test_a_group_that_nobody_is_in_is_one_that_noise_hides():
    """Whether anybody is in it shows in released numbers alone."""
    X, y = normals(500)
    for nobody in (True, False):
        where = np.where(np.arange(500) == 0, "elsewhere" if nobody else "right", "left")
        with pytest.warns(PrivacyWarning, match="of group 'right' is NaN: .* stays charged"):
            options = {"epsilon": 0.05, "random_state": 0, "metric": "confusion_matrix"}
            score = private_score(Linear(), X, y, by=(where, SIDES), **options)
        assert math.isnan(score.by["right"].value) and score.by["left"].value.shape == (2, 2)


@pytest.mark.parametrize(
    ("by", "match"),
    [
        ("side", "no schema of the model says"),
        (sides(50), r"must be the name of a column .* never read"),
        ({"side": ["left"]}, "the levels of `by` cannot be used"),
        ((sides(49), SIDES), "one entry for each row"),
        ({"side": SIDES}, "the columns of `X` have no names"),
        (("side", SIDES), "must be the name of a column"),
    ],
    ids=str,
)
def test_groups_that_cannot_be_told_are_refused_before_any_charge(by, match):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with pytest.raises(ValueError, match=match):
        ledger.run(private_score, Linear(), *normals(50), by=by, epsilon=1.0)
    assert len(ledger.entries) == 0


# Before anything is charged ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "epsilon", "told"),
    [
        ("precision", 0.01, "noise would hide 'precision' of 400 rows .* Nothing was released"),
        ("roc_auc", 0.02, "noise would hide 'roc_auc' of 400 rows"),
        (["f1", "recall"], 0.01, "hide 'f1', 'recall' of 400 rows .* an epsilon of 0.081 or more"),
    ],
)
def test_what_noise_hides_whatever_the_rows_say_is_refused_before_any_charge(metric, epsilon, told):
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with pytest.raises(ValueError, match=told):
        ledger.run(private_score, Linear(), *normals(400), metric=metric, epsilon=epsilon)
    assert len(ledger.entries) == 0


def test_r2_that_no_targets_could_have_is_refused_before_any_charge():
    ledger, X = PrivacyLedger(epsilon=10.0, delta=1e-5), np.arange(50.0)[:, None]
    options = {"metric": "r2", "target_bounds": (0, 50), "epsilon": 0.1}
    with pytest.raises(ValueError, match=r"noise would hide 'r2' of 50 rows .* Nothing was"):
        ledger.run(private_score, Ridge().fit(X, X[:, 0]), X, X[:, 0], **options)
    assert len(ledger.entries) == 0


def test_what_noise_may_well_hide_is_told_before_any_charge():
    """Precision of a rare class, and R2 of few rows: warnings that are errors charge nothing."""
    ledger, (X, y) = PrivacyLedger(epsilon=10.0, delta=1e-5), normals(334)
    with pytest.raises(PrivacyWarning, match=r"fewer than about 30 rows \(9 %\)"):
        ledger.run(private_score, Linear(), X, y, metric="precision", epsilon=0.2)
    with pytest.raises(PrivacyWarning, match="standard deviation of the targets is at least"):
        options = {"metric": "r2", "target_bounds": (-9, 9), "epsilon": 1.5}
        ledger.run(private_score, Ridge().fit(X, X[:, 0]), X, X[:, 0], **options)
    assert len(ledger.entries) == 0


# A metric, the model and its rows, of so many.
def scored(metric, n):
    X, y = normals(n)
    if metric in ("roc_auc_ovr", "f1_macro", "balanced_accuracy"):
        rng = np.random.default_rng(n)
        X, y = rng.normal(size=(n, 3)), np.arange(n) % 3
        X[np.arange(n), y] += 3.0
        return {"model": LogisticRegression().fit(X, y), "X": X, "y": y}
    if metric == "r2":  # of mean 0.56 and deviation 0.58, between bounds that are 3.4 apart
        targets = np.random.default_rng(n).uniform(-0.44, 1.56, n)
        model = Ridge().fit(targets[:, None], targets)
        return {"model": model, "X": targets[:, None], "y": targets, "target_bounds": (-1.7, 1.7)}
    return {"model": Linear(), "X": X, "y": y}


@pytest.mark.filterwarnings("ignore:noise will hide:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:'r2' of:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:.*is NaN:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n", [90, 2000])
@pytest.mark.parametrize(
    "metric", [*OF_A_CLASS, "roc_auc", "roc_curve", "roc_auc_ovr", "f1_macro", "r2"]
)
def test_the_epsilon_of_a_refusal_is_enough(metric, n, relation):
    """In 99 of 100 calls: 7 failures of 12 have a chance below 1e-11."""
    given = scored(metric, n) | {"metric": metric, "neighboring_relation": relation}
    with pytest.raises(ValueError, match="Nothing was released") as refused:
        private_score(**given, epsilon=0.002 if n == 90 else 0.0005)
    found = re.search(r"an epsilon of (\S+) or more", str(refused.value))
    failed = 0
    for seed in range(12):
        try:
            value = private_score(**given, epsilon=float(found[1]), random_state=seed).value
            failed += not np.isfinite(value).all()
        except PrivacyError:
            failed += 1
    assert failed < 7


@pytest.mark.filterwarnings("ignore:.*mostly noise:dpsubspace.PrivacyWarning")
def test_metrics_that_noise_hides_are_left_out_beside_others():
    """They are NaN, with a sentence before the charge, and take no share of the budget."""
    X, y = normals(400)
    asked = ["recall", "accuracy", "roc_auc"]
    with pytest.warns(PrivacyWarning, match="'recall', 'roc_auc' will be NaN, and take no share"):
        found = private_score(Linear(), X, y, metric=asked, epsilon=0.03, random_state=0)
    assert [*found] == asked
    assert math.isnan(found["recall"].value) and math.isnan(found["roc_auc"].value)
    alone = private_score(Linear(), X, y, metric="accuracy", epsilon=0.03, random_state=0)
    assert found["accuracy"].value == alone.value
    assert found.privacy_.event == alone.privacy_.event
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match="noise would hide"):
            ledger.run(private_score, Linear(), X, y, metric=asked, epsilon=0.01)
    assert len(ledger.entries) == 0


REGRESSES = ["mean_absolute_error", "mean_squared_error", "root_mean_squared_error"]


@pytest.mark.parametrize(
    "metric", ["accuracy", "log_loss", "brier", "confusion_matrix", *REGRESSES]
)
def test_a_score_that_is_all_noise_is_told_before_any_charge(metric):
    X, y = normals(100)
    given = {"model": Linear(), "X": X, "y": y, "metric": metric}
    if metric in REGRESSES:
        given |= {"model": Ridge().fit(X, X[:, 0]), "y": X[:, 0], "target_bounds": (-9, 9)}
    ledger = PrivacyLedger(epsilon=1e3, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match=f"'{metric}' of 100 rows .* mostly noise") as told:
            ledger.run(private_score, **given, epsilon=0.02)
        assert len(ledger.entries) == 0
        enough = float(re.search(r"an epsilon of (\S+) or more", str(told.value))[1])
        warnings.filterwarnings("ignore", "noise hides")
        private_score(**given, epsilon=enough)  # says nothing


def test_groups_that_noise_hides_are_told_before_any_charge():
    X, y = normals(300)
    by = (np.arange(300) % 10, [*range(10)])
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "noise will hide 'recall'")
        for metric in ("accuracy", "recall"):
            with pytest.raises(PrivacyWarning, match=r"groups of fewer .* 30 on average"):
                ledger.run(private_score, Linear(), X, y, metric=metric, by=by, epsilon=0.15)
    assert len(ledger.entries) == 0


@pytest.mark.filterwarnings("ignore:.* will be mostly noise:dpsubspace.PrivacyWarning")
def test_an_error_that_noise_hides_is_told_of(monkeypatch):
    """With a tenth of the noise, less than e^-30 of the draws are above what is stated."""
    scale_noise(monkeypatch, 0.1)
    X = np.linspace(-1, 1, 40)[:, None]
    model = Ridge().fit(X, X[:, 0])
    options = {"target_bounds": (-1, 1), "epsilon": 1e-4, "random_state": 0}
    for metric in ("mean_absolute_error", "neg_root_mean_squared_error"):
        with pytest.warns(PrivacyWarning, match=f"noise hides {metric}: .* at most .* upper end"):
            private_score(model, X, X[:, 0] ** 2, metric=metric, **options)


def test_enough_rows_are_told_of_nothing():
    X, y = normals(2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        private_score(Linear(), X, y, metric=["roc_auc", "precision"], epsilon=0.5)
        model = Ridge().fit(X, X[:, 0])
        options = {"metric": "r2", "target_bounds": (-4, 4)}
        private_score(model, X, np.clip(X[:, 0], -4, 4), **options)


# Rows that a model was fitted to ----------------------------------------------------------------


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_the_fit_are_told_of(piped, order):
    X = np.random.default_rng(0).normal(size=(400, 3))
    X, y = np.asarray(X, order=order), np.arange(400) % 2
    model = DPSGDClassifier(epsilon=50.0, n_iter=2)
    model = make_pipeline(model) if piped else model
    model.fit(X[:200], y[:200])
    for rows, told in ((X[:200], 1), (X[100:300], 1), (X, 1), (X[200:], 0), (X.copy(), 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            private_score(model, rows, y[: len(rows)], epsilon=5.0)
        found = [each for each in caught if "was fitted to" in str(each.message)]
        assert len(found) == told


def test_a_frame_of_the_fit_is_told_of_and_nothing_keeps_its_rows():
    frame = pd.DataFrame({"x": np.arange(200.0)})
    y = np.arange(200) % 2
    model = tabular_pipeline(DPSGDClassifier(n_iter=2), {"x": (0, 200)}, epsilon=5.0).fit(frame, y)
    with pytest.warns(PrivacyWarning, match="rows that this TabularPipeline was fitted to"):
        private_score(model, frame, y)
    other, alive = frame.copy(), weakref.ref(frame)
    del frame
    gc.collect()
    assert alive() is None
    private_score(pickle.loads(pickle.dumps(model)), other, y)


def test_the_size_of_a_group_is_nowhere():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 2))
    labels, sex = (rows[:, 0] > 0).astype(int), np.arange(3000) % 2
    model = LogisticRegression().fit(rows[:50], labels[:50])
    options = {"metric": "roc_auc", "epsilon": 20.0}
    score = private_score(model, rows.copy(), labels, by=(sex, [0, 1]), **options)
    assert score.n == score.curve.n == 3000
    assert score.by[0].n is None and score.by[0].curve.n is None
    with pytest.raises(ValueError, match="`by`") as caught:
        private_score(model, rows.copy(), labels, by=(sex[1:], [0, 1]), **options)
    assert "3000" not in str(caught.value) and "2999" not in str(caught.value)


def test_a_score_is_a_number_where_scikit_learn_asks_for_one():
    """In cross-validations and searches of whatever release, by one metric or several."""
    X, y = np.arange(400.0).reshape(-1, 1) / 400, np.arange(400) % 2

    def scoring(model, X, y):
        return private_score(model, X, y, metric="neg_log_loss", epsilon=1.0, random_state=0)

    def several(model, X, y):
        names = ["accuracy", "brier"]
        return private_score(model, X, y, metric=names, epsilon=1.0, random_state=0)

    model = DummyClassifier(strategy="prior")
    scores = cross_val_score(model, X, y, cv=2, scoring=scoring)
    assert scores.dtype == np.float64 and scores.shape == (2,) and (scores < 0).all()
    found = GridSearchCV(model, {"strategy": ["prior"]}, cv=2, scoring=scoring).fit(X, y)
    assert found.best_score_ == pytest.approx(scores.mean())
    table = cross_validate(model, X, y, cv=2, scoring=several)
    assert {"test_accuracy", "test_brier"} <= {*table}
    assert scoring(model.fit(X, y), X, y).item() == float(scoring(model, X, y))


def test_a_curve_is_no_number():
    X, y = np.arange(400.0).reshape(-1, 1) / 400, np.arange(400) % 2
    model = DummyClassifier(strategy="uniform", random_state=0).fit(X, y)
    curve = private_score(model, X, y, metric="roc_curve", random_state=0)
    for number in (float, PrivateScore.item):
        with pytest.raises(ValueError, match=r"'roc_curve' has .* values, and no single number"):
            number(curve)


# The situation of a warning before the charge, and what its advice is about.
def _of_a_rare_class():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(4000, 1)), (np.arange(4000) % 20 == 0).astype(int)
    X[:, 0] += 6.0 * y
    return {"model": LogisticRegression().fit(X, y), "X": X, "y": y, "metric": "recall"}


def _of_targets():
    return scored("r2", 2000) | {"metric": "r2"}


def _of_groups(metric="accuracy"):
    X, y = normals(4000)
    by = (np.tile(["a", "b"], 2000), ["a", "b"])
    return {"model": Linear(), "X": X, "y": y, "metric": metric, "by": by}


ADVISED = {
    "a rare class": (_of_a_rare_class, 0.02, "for a class of 5 %"),
    "targets that vary little": (_of_targets, 0.06, "a sixth of the width"),
    "groups": (_of_groups, 0.002, "if groups are about as large"),
    "classes of groups": (lambda: _of_groups("recall"), 0.0055, "classes as frequent"),
}


@pytest.mark.filterwarnings("ignore:.*mostly noise:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:.*is NaN:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:noise will hide:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", ADVISED)
def test_the_epsilon_of_a_warning_is_enough(kind, relation):
    """In 99 of 100 calls: 7 failures of 12 have a chance below 1e-11."""
    make, epsilon, words = ADVISED[kind]
    given = make() | {"neighboring_relation": relation}
    if relation == "replace_one" and make is not _of_targets:
        epsilon *= 2  # counts have twice the noise
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(PrivacyError):
            private_score(**given, epsilon=epsilon, random_state=0)
    (told,) = [str(each.message) for each in caught if words in str(each.message)]
    found, failed = re.search(r"An epsilon of (\S+) or more", told), 0
    for seed in range(12):
        try:
            score = private_score(**given, epsilon=float(found[1]), random_state=seed)
            parts = [score, *(score.by or {}).values()]
            failed += not all(np.isfinite(each.value).all() for each in parts)
        except PrivacyError:
            failed += 1
    assert failed < 7


# Scores of one call agree with each other --------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 5.0])
def test_a_mean_error_is_at_most_the_root_of_the_mean_square(epsilon, by):
    """Whatever the noise is: of one call, with groups and without."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.clip(X[:, 0] + 0.3 * rng.normal(size=300), -4, 4)
    given = {"model": Ridge().fit(X, y), "X": X, "y": y, "target_bounds": (-4, 4)}
    given |= {"by": (np.tile(["a", "b"], 150), ["a", "b"])} if by else {}
    names = ["mean_absolute_error", "mean_squared_error", "root_mean_squared_error"]
    for seed in range(20):
        found = private_score(**given, metric=names, epsilon=epsilon, random_state=seed)
        parts = [found]
        if by:
            parts += [{name: found[name].by[level] for name in names} for level in "ab"]
        for part in parts:
            mean, square, root = (part[name].value for name in names)
            # NaN where noise hides a group
            assert not mean > root and not abs(root**2 - square) > 1e-12
            assert all(not part[name].low > part[name].value for name in names)
            assert all(not part[name].high < part[name].value for name in names)


@pytest.mark.parametrize("square", [0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("mean", [-0.1, 0.0, 0.1, 0.4, 0.9, 1.2])
@pytest.mark.parametrize("scale", [1e-6, 0.1, 10.0])
def test_means_of_errors_are_moved_to_the_nearest_that_there_can_be(mean, square, scale):
    """As on a grid of all pairs that there can be, in units of their noise."""
    scales = {"error": 0.1, "error^2": scale}
    given = Summed({"error": mean, "error^2": square}, scales, 100, {}, 1.0)
    one, two = given.in_order().means.values()
    at = np.linspace(0, 1, 2001)
    pairs = np.concatenate([np.stack([at, at**2]), np.stack([at, at])], axis=1)
    inside = np.clip([mean, square], 0, 1)
    if inside[0] ** 2 <= inside[1] <= inside[0]:
        assert given.in_order() is given
        return
    assert one**2 <= two * (1 + 1e-12) <= one * (1 + 1e-11)

    def away(m, s):
        return ((m - inside[0]) / 0.1) ** 2 + ((s - inside[1]) / scale) ** 2

    # On a grid of steps of 1 / 2,000, the nearest is at most half of one of either away.
    step = (0.5 / 2000 / 0.1 + 1 / 2000 / scale) ** 2
    assert np.sqrt(away(one, two)) <= np.sqrt(away(*pairs).min()) + np.sqrt(step)


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_metrics_of_labels_of_one_call_are_those_of_one_matrix(epsilon, ranked):
    """Accuracy is between the recalls, and each number is what the matrix gives."""
    X, y = normals(600)
    names = ["accuracy", "recall", "specificity", "precision", "f1", "balanced_accuracy"]
    names += ["confusion_matrix"] + ["roc_auc"] * ranked
    for seed in range(10):
        found = private_score(Linear(), X, y, metric=names, epsilon=epsilon, random_state=seed)
        value = {name: score.value for name, score in found.items()}
        ((tn, fp), (fn, tp)) = matrix = value["confusion_matrix"]
        assert (matrix >= 0).all() and abs(matrix.sum() - 600) < 1e-9
        expected = {"recall": tp / (tp + fn), "specificity": tn / (tn + fp)}
        expected |= {"accuracy": (tp + tn) / 600, "precision": tp / (tp + fp)}
        expected |= {"balanced_accuracy": (expected["recall"] + expected["specificity"]) / 2}
        expected |= {"f1": 2 * tp / (2 * tp + fn + fp)}
        for name, number in expected.items():
            assert np.isnan(value[name]) or abs(value[name] - number) < 1e-9
            assert not value[name] < found[name].low and not value[name] > found[name].high
