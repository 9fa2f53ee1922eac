"""Private recalibration: what it finds, when it leaves things as they are, and what it refuses."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dpsubspace import DPSGDFClassifier, PrivacyError, PrivacyLedger, PrivacyWarning
from dpsubspace._core.accounting.events import bounded_range, composed
from dpsubspace.calibration import DPCalibratedClassifier


class Given(ClassifierMixin, BaseEstimator):
    """Probabilities that are the rows themselves: log-odds, or logarithms up to a constant."""

    def __init__(self, n_classes=2):
        self.n_classes = n_classes

    def fit(self, X=None, y=None):
        self.classes_ = np.arange(self.n_classes)
        return self

    def predict_proba(self, X):
        X = np.asarray(X, dtype=float)
        if self.n_classes == 2:
            return np.column_stack([expit(-X[:, 0]), expit(X[:, 0])])
        return softmax(X, axis=1)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def binary(n, slope, intercept=0.0, seed=0, spread=2.0):
    """Log-odds that a model gives, and labels whose log-odds are another line of them."""
    rng = np.random.default_rng(seed)
    odds = spread * rng.normal(size=(n, 1)) - 0.5
    return odds, (rng.random(n) < expit(slope * odds[:, 0] + intercept)).astype(int)


def several(n, slope, n_classes=4, seed=0):
    """The same for several classes."""
    rng = np.random.default_rng(seed)
    logs = 2 * rng.normal(size=(n, n_classes))
    drawn = slope * logs + rng.gumbel(size=logs.shape)
    return logs, drawn.argmax(axis=1)


MODEL, MODEL4 = Given().fit(), Given(4).fit()


@pytest.mark.parametrize("slope", [0.3, 1.0, 2.5])
def test_the_slope_is_found(slope):
    for model, (X, y) in ((MODEL, binary(40_000, slope)), (MODEL4, several(40_000, slope))):
        fitted = DPCalibratedClassifier(model, epsilon=1.0, random_state=0).fit(X, y)
        # By Fisher's information, its logarithm has a deviation of at most 0.018.
        assert abs(np.log(fitted.slope_ / slope)) < 0.15 and fitted.intercept_ == 0
        np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
        assert (fitted.predict(X) == model.predict(X)).all()


@pytest.mark.parametrize(("slope", "intercept"), [(0.5, 1.0), (2.0, -0.5), (1.0, -2.0)])
def test_slope_and_intercept_are_found(slope, intercept):
    X, y = binary(40_000, slope, intercept)  # deviations of at most 0.021
    options = {"method": "sigmoid", "random_state": 0}
    fitted = DPCalibratedClassifier(MODEL, **options).fit(X, y)
    assert abs(np.log(fitted.slope_ / slope)) < 0.2 and abs(fitted.intercept_ - intercept) < 0.2
    expected = expit(fitted.slope_ * X[:, 0] + fitted.intercept_)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], expected, rtol=1e-6)
    assert log_loss(y, fitted.predict_proba(X)) < log_loss(y, MODEL.predict_proba(X)) - 0.01


def test_without_noise_it_is_as_good_as_the_least_log_loss():
    X, y = several(5000, 0.4)
    fitted = DPCalibratedClassifier(MODEL4, epsilon=float("inf")).fit(X, y)
    best = minimize(lambda s: log_loss(y, softmax(np.exp(s[0]) * X, axis=1)), [0.0]).fun
    assert log_loss(y, fitted.predict_proba(X)) < best + 5e-4
    X, y = binary(5000, 0.4, 0.7)
    fitted = DPCalibratedClassifier(MODEL, method="sigmoid", epsilon=float("inf")).fit(X, y)
    best = minimize(lambda s: log_loss(y, expit(s[0] * X[:, 0] + s[1])), [1.0, 0.0]).fun
    assert log_loss(y, fitted.predict_proba(X)) < best + 1e-3
    assert fitted.privacy_.epsilon == float("inf")


def test_probabilities_of_a_private_model_get_better():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:700], y[:700])
    model.coef_, model.intercept_ = 4 * model.coef_, 4 * model.intercept_  # far too sure
    before = log_loss(y[1300:], model.predict_proba(X[1300:]))
    losses = []
    for seed in range(5):
        # At 0.5 one fit in ten leaves them as they are, which ten times epsilon makes 1 in 1e10.
        fitted = DPCalibratedClassifier(model, epsilon=5.0, random_state=seed)
        fitted.fit(X[700:1300], y[700:1300])
        losses.append(log_loss(y[1300:], fitted.predict_proba(X[1300:])))
    assert max(losses) < before - 0.01


@pytest.mark.wide
@pytest.mark.parametrize("method", ["temperature", "sigmoid"])
def test_probabilities_that_are_right_stay_nearly_as_they_are(method):
    test, labels = binary(20000, 1.0, seed=99)
    before = log_loss(labels, MODEL.predict_proba(test))
    worse = []
    for n, epsilon in ((200, 0.3), (500, 0.3), (500, 1.0)):
        for seed in range(20):
            X, y = binary(n, 1.0, seed=seed)
            options = {"method": method, "epsilon": epsilon, "random_state": seed}
            fitted = DPCalibratedClassifier(MODEL, **options).fit(X, y)
            worse.append(log_loss(labels, fitted.predict_proba(test)) - before)
    # Over 30 salts this mean was 0.0014 or 0.0033, with a deviation of 0.0009 and at most 0.0049.
    # One fit in twenty loses more, of a law with an exponential tail of about 0.02: that 60 of
    # them lose 0.9 in sum, instead of 0.2, has a chance of about exp(-22).
    assert np.mean(worse) < 0.015


def test_where_noise_hides_the_answer_nothing_is_released_or_charged():
    X, _ = binary(200, 0.3)
    for options, n in (({}, 499), ({"neighboring_relation": "replace_one"}, 999)):
        model = DPCalibratedClassifier(MODEL, epsilon=0.1, **options)
        rows, labels = binary(n, 0.3)
        with pytest.warns(PrivacyWarning, match="too few to correct") as caught:
            model.fit(rows, labels)
        assert caught[0].filename == __file__
        assert model.slope_ == 1.0 and model.privacy_.epsilon == 0
        assert model.privacy_.event == model.privacy_event(n) == composed([])
        np.testing.assert_array_equal(model.predict_proba(X), MODEL.predict_proba(X))
        assert model.fit(*binary(n + 1, 0.3)).privacy_.epsilon == 0.1


def test_persons_count_and_not_rows():
    X, y = binary(9000, 0.4)
    groups = np.arange(9000) // 3
    fitted = DPCalibratedClassifier(MODEL, random_state=0).fit(X, y, groups=groups)
    assert (
        fitted.privacy_.unit == "person" and "number of persons (3000)" in fitted.privacy_.details()
    )
    assert abs(np.log(fitted.slope_ / 0.4)) < 0.3
    with pytest.warns(PrivacyWarning, match="10 persons"):
        DPCalibratedClassifier(MODEL).fit(X, y, groups=np.arange(9000) % 10)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_its_cost_is_pure_and_known_before(relation):
    X, y = binary(2000, 0.5)
    options = {"epsilon": 0.5, "delta": 0.0, "neighboring_relation": relation}
    model = DPCalibratedClassifier(MODEL, **options)
    assert model.privacy_event(2000) == model.fit(X, y).privacy_.event == bounded_range(0.5)
    assert model.privacy_.delta == 0 and model.privacy_.epsilon == 0.5


def test_a_ledger_charges_it():
    X, y = binary(2000, 0.5)
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    fitted = ledger.fit(DPCalibratedClassifier(MODEL, epsilon=0.6), X, y)
    assert fitted.slope_ < 0.8 and 0.5 < ledger.epsilon() <= 0.6 + 1e-9
    with pytest.raises(PrivacyError):
        ledger.fit(DPCalibratedClassifier(MODEL, epsilon=0.9), X, y)


def test_labels_of_text_and_pipelines():
    X, y = load_digits(return_X_y=True)
    X, y = X[:, :30], np.where(y > 4, "high", "low")
    model = make_pipeline(StandardScaler(), LogisticRegression(C=10.0, solver="newton-cg")).fit(
        X[:500], y[:500]
    )
    fitted = DPCalibratedClassifier(model, random_state=0).fit(X[500:], y[500:])
    assert fitted.classes_.tolist() == ["high", "low"] and fitted.n_features_in_ == 30
    assert fitted.score(X[500:], y[500:]) == model.score(X[500:], y[500:])
    same = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(same.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.filterwarnings("ignore:the ledger counts each fit:dpsubspace.PrivacyWarning")
def test_clones_keep_a_frozen_estimator():
    X, y = binary(2000, 0.5)
    model = DPCalibratedClassifier(FrozenEstimator(MODEL), epsilon=5.0, random_state=0)
    copy = clone(model).fit(X, y)
    assert copy.slope_ == model.fit(X, y).slope_
    with PrivacyLedger(epsilon=20.0, delta=1e-5, allow_seeded=True) as ledger:
        assert np.isfinite(cross_val_score(model, X, y, cv=2)).all()
    assert len(ledger) == 2
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


class Broken(Given):
    """Probabilities that are no numbers."""

    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


def test_a_row_without_probabilities_counts_as_undecided():
    X, y = binary(500, 1.0)
    fitted = DPCalibratedClassifier(Broken().fit(), random_state=0).fit(X, y)
    assert np.isfinite(fitted.slope_)


X2, Y2 = binary(300, 1.0)
REFUSED = {
    "not fitted": (Given(), {}, (X2, Y2), "must be fitted before.*FrozenEstimator"),
    "a class": (Given, {}, (X2, Y2), "must be a fitted classifier"),
    "none": (None, {}, (X2, Y2), "must be a fitted classifier"),
    "no probabilities": (LinearSVC().fit(X2, Y2), {}, (X2, Y2), "must have predict_proba"),
    "sigmoid": (MODEL4, {"method": "sigmoid"}, several(300, 1.0), "is for two classes.*has 4"),
    "method": (MODEL, {"method": "isotonic"}, (X2, Y2), "`method`"),
    "epsilon": (MODEL, {"epsilon": -1.0}, (X2, Y2), "`epsilon`"),
    "labels": (MODEL, {}, (X2, Y2 + 5), "labels that are not in `classes_`"),
    "width": (
        LogisticRegression(solver="newton-cg").fit(X2, Y2),
        {},
        (np.ones((9, 3)), np.ones(9)),
        "expecting 1",
    ),
    "lengths": (MODEL, {}, (X2, Y2[1:]), "compare their lengths"),
    "no y": (MODEL, {}, (X2, None), "requires y"),
    "one row": (MODEL, {}, (X2[0], Y2[:1]), "Expected 2D"),
}


@pytest.mark.parametrize(("model", "options", "data", "match"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_charged(model, options, data, match):
    fitted = DPCalibratedClassifier(model, **options)
    with pytest.raises(ValueError, match=match) as caught:
        fitted.fit(*data)
    assert not hasattr(fitted, "privacy_")
    assert "labels" not in match or caught.value.__context__ is None  # which would name a label
