"""The audit against published values, and of the shipped classifiers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import VERSIONS, InformedClassifier, scale_noise
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline

from dpsubspace import (
    DPSGDClassifier,
    GradientDirections,
    PrivacyError,
    audit_epsilon,
    audit_estimator,
)
from dpsubspace._workflow.audit import _p_value


def test_p_value_and_bounds_match_published_values():
    assert _p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.5535, abs=1e-4)
    cases = [
        ((100, 100, 75), 0.0, 0.7022),
        ((100, 100, 75), 1e-4, 0.6995),
        ((1000, 100, 75), 1e-4, 0.6730),
        ((100_000, 1510, 1439), 1e-5, 2.6759),
        ((100, 100, 100), 1e-5, 3.49),
        ((1000, 1000, 1000), 1e-5, 5.78),
    ]
    for counts, delta, expected in cases:
        assert audit_epsilon(*counts, delta=delta) == pytest.approx(expected, abs=5e-3)


def test_guesses_no_better_than_coins_bound_nothing():
    assert audit_epsilon(500, 250, 125, delta=1e-5) == 0.0
    assert audit_epsilon(500, 250, 0, delta=1e-5) == 0.0


@pytest.mark.parametrize(
    ("counts", "options", "match"),
    [
        ((0, 1, 1), {}, "n_canaries"),
        ((10, 20, 5), {}, "n_guesses"),
        ((10, 5, 6), {}, "n_correct"),
        ((10, 5, 4), {"delta": 1.0}, "delta"),
        ((10, 5, 4), {"confidence": 1.0}, "confidence"),
    ],
)
def test_senseless_counts_are_refused(counts, options, match):
    with pytest.raises(ValueError, match=match):
        audit_epsilon(*counts, **{"delta": 1e-5, **options})


OPTIONS = [{}, {"row_norm": 1.0}, {"loss": "hinge"}, {"batch_size": 400}]


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("Classifier", VERSIONS)
def test_audit_stays_below_the_claim_and_catches_a_tenth_of_the_noise(
    monkeypatch, Classifier, options
):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0) / np.sqrt(X.shape[1])
    model = Classifier(epsilon=1.0, delta=1e-5, random_state=0, **options)
    honest = audit_estimator(model, X, y, random_state=0)
    assert not honest.refuted and "does not refute the claim of 1" in str(honest)

    scale_noise(monkeypatch, 0.1)
    broken = audit_estimator(model, X, y, random_state=0)
    assert broken.refuted and broken.epsilon_lower_bound > 1.2
    assert "REFUTES" in str(broken)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (DPSGDClassifier(neighboring_relation="replace_one"), "zero_out"),
        (DPSGDClassifier(epsilon=math.inf), "claims nothing"),
        (make_pipeline(DPSGDClassifier()), "one private step"),
    ],
    ids=["relation", "inf", "pipeline"],
)
def test_what_cannot_be_audited_is_refused(model, match):
    with pytest.raises(PrivacyError, match=match):
        audit_estimator(model, *load_breast_cancer(return_X_y=True))


def test_more_guesses_than_canaries_are_refused_before_the_fit():
    with pytest.raises(ValueError, match="n_guesses"):
        audit_estimator(DPSGDClassifier(), [[0.0]], [0], n_canaries=10, n_guesses=12)


class WithCanaries(InformedClassifier):
    """Its public rows span some of the canaries, which are the last 300 columns."""

    every = 1

    def _fit(self, X, y, present=None, **public):
        rows = np.vstack([X[:20], 1e6 * np.eye(X.shape[1])[-300 :: self.every]])
        uncentred = replace(self._plan(), centre=None)
        return super()._fit(X, y, present, X_public=rows, plan=uncentred)


PARTS = {"residual_norm": 0.125, "embedding_share": 0.5}


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(
    ("every", "options"),
    [
        (1, {"n_components": 320}),
        (2, {"directions": GradientDirections(n_components=150, **PARTS), "n_iter": 20}),
    ],
    ids=["all in", "half in"],
)
def test_canaries_in_and_off_public_directions_do_not_refute_the_claim(monkeypatch, every, options):
    monkeypatch.setattr(WithCanaries, "every", every)
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0) / np.sqrt(X.shape[1])
    model = WithCanaries(random_state=0, epsilon=1.0, delta=1e-5, **options)
    honest = audit_estimator(model, X, y, n_canaries=300, random_state=0)
    assert not honest.refuted

    scale_noise(monkeypatch, 0.1)
    broken = audit_estimator(model, X, y, n_canaries=300, random_state=0)
    assert broken.refuted and broken.epsilon_lower_bound > 1.2
