"""Differences of scores: exact without noise, near that with little, and refused where they say
nothing.
"""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import get_scorer

from dpsubspace import PrivacyLedger
from dpsubspace.metrics import private_score_difference

pytestmark = pytest.mark.filterwarnings("ignore:.*no meaningful protection")

_rng = np.random.default_rng(0)
X = _rng.normal(size=(3000, 4))
Y = (X[:, 0] + 0.5 * X[:, 1] + _rng.logistic(size=3000) > 0).astype(int)
T = X[:, 0] + 0.5 * _rng.normal(size=3000)
MODELS = [LogisticRegression(C=C).fit(X[:1000], Y[:1000]) for C in (1.0, 1e-4)]
NUMBERS = [LinearRegression().fit(X[:1000], T[:1000]), Ridge(3000.0).fit(X[:1000], T[:1000])]
ROWS = slice(1000, None)
OF_LABELS = ("accuracy", "balanced_accuracy", "precision", "recall", "f1", "f1_macro", "roc_auc")
LOSSES = ("neg_log_loss", "neg_brier_score")
ERRORS = ("neg_mean_absolute_error", "neg_mean_squared_error", "neg_root_mean_squared_error", "r2")


def difference(metric, **options):
    if metric in ERRORS:
        options = {"target_bounds": (-6, 6)} | options
        return private_score_difference(*NUMBERS, X[ROWS], T[ROWS], metric=metric, **options)
    return private_score_difference(*MODELS, X[ROWS], Y[ROWS], metric=metric, **options)


@pytest.mark.parametrize("metric", OF_LABELS + LOSSES + ERRORS)
def test_without_noise_it_is_the_difference_of_both_scores(metric):
    """And with hardly any it is nearly that: of areas, up to the order within cells."""
    models, y = (NUMBERS, T) if metric in ERRORS else (MODELS, Y)
    one, two = (get_scorer(metric)(model, X[ROWS], y[ROWS]) for model in models)
    exact = difference(metric, epsilon=math.inf)
    assert float(exact) == pytest.approx(one - two, abs=1e-9)
    assert exact.low < float(exact) < exact.high
    near = difference(metric, epsilon=1e5, random_state=0)
    assert float(near) == pytest.approx(one - two, abs=2e-3 if metric == "roc_auc" else 1e-4)


def test_it_is_charged_once_and_prints_both_models():
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        found = difference("accuracy", epsilon=0.3)
    assert [entry.estimator for entry in ledger.entries] == ["private_score_difference"]
    assert "LogisticRegression (model) less that of LogisticRegression (other)" in str(found)
    assert "0.3" in str(found).splitlines()[-1] and "2,000 rows" in str(found)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"metric": ["accuracy"]}, "each difference is a call of its own"),
        ({"metric": "roc_curve"}, "has several numbers"),
        ({"metric": "acuracy"}, "`metric` must be one of"),
        ({"metric": "r2", "target_bounds": None}, "pass `target_bounds`"),
        ({"metric": "f1", "epsilon": 1e-3}, "noise would hide 'f1'"),
        ({"metric": "r2", "epsilon": 1e-2}, "noise would hide 'r2'"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_charged(options, match):
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with ledger, pytest.raises(ValueError, match=match):
        difference(**{"epsilon": 0.1, **options})
    assert not ledger.entries


def test_models_of_other_classes_or_of_many_are_refused():
    three = [model.__class__().fit(X[:1000], np.arange(1000) % 3) for model in MODELS]
    with pytest.raises(ValueError, match="have different `classes_`"):
        private_score_difference(MODELS[0], three[0], X[ROWS], Y[ROWS])
    with pytest.raises(ValueError, match="no paired difference for 3 classes"):
        private_score_difference(*three, X[ROWS], Y[ROWS], metric="f1_macro")
