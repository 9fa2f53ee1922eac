"""The audit against published values, and of the shipped classifiers."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from cases import CASES, small_module, tasks
from helpers import InformedClassifier, blobs, public_rows, scale_noise
from sklearn.datasets import load_breast_cancer

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPModuleClassifier,
    DPModuleRegressor,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    GEPRegressor,
    GradientDirections,
    GSDScorer,
    PersonalizedLinearRegression,
    PublicSubspaceLinearRegression,
    audit_epsilon,
    audit_estimator,
    private_covariance,
    private_mean,
    private_quantile,
    select_public,
)
from dpsubspace._release.bingham import sample_bingham
from dpsubspace._workflow.audit import _p_value
from dpsubspace._workflow.canaries import DESIGNS


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


# What each estimator and function is audited as ---------------------------------------------------


X, LABELS = blobs(n=100, d=5, n_classes=4)
NUMBERS = LABELS - 1.0
PUBLIC = {"X_public": (public_rows(5)[0],)}
RANGES = {"bounds": (-6, 8), "target_bounds": (-1, 2)}
TARGETS = {"data_norm": 9.0, "target_bounds": (-1, 2)}
STRONG = 1.2  # what is shown of a claim of 1 where the noise is a tenth of what it should be


def small(Model, n_outputs, **options):
    """A torch model of few steps, whose fits take a while."""
    return lambda: Model(module=small_module(5, n_outputs), n_iter=2, **options)


def sets():
    """Public sets of one direction each."""
    return {f"along {j}": np.outer(np.arange(1, 4), row) for j, row in enumerate(np.eye(20))}


@dataclass(frozen=True)
class Audit:
    """What is audited, with a claim of epsilon 1, and how."""

    what: Any
    y: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: Any = None
    strong: float = STRONG

    def run(self, **options):
        what = self.what if inspect.isfunction(self.what) and self.what in DESIGNS else self.what()
        rows = X if self.rows is None else self.rows
        options = {"fit_params": self.given, "random_state": 0} | self.options | options
        return audit_estimator(what, rows, self.y, **options)


def claimed(Estimator, **options):
    """How an estimator is made that claims an epsilon of 1 at a delta of 1e-5."""
    return partial(Estimator, **{"epsilon": 1.0, "delta": 1e-5, **options})


FEW, MANY = {"n_canaries": 100, "n_training": 60}, {"method": "many_runs"}
AUDITS = {
    "DPSGDClassifier": {
        "plain": Audit(claimed(DPSGDClassifier), LABELS),
        "public bound": Audit(claimed(DPSGDClassifier, row_norm=1.0), LABELS),
        "hinge": Audit(claimed(DPSGDClassifier, loss="hinge"), LABELS),
        "batches": Audit(claimed(DPSGDClassifier, batch_size=400), LABELS),
        "many runs": Audit(claimed(DPSGDClassifier), LABELS, options=FEW | MANY),
    },
    "DPSGDFClassifier": {
        "plain": Audit(claimed(DPSGDFClassifier), LABELS),
        "adaptive": Audit(claimed(DPSGDFClassifier, preprocessing="adaptive"), LABELS),
        "hinge": Audit(claimed(DPSGDFClassifier, loss="hinge"), LABELS),
    },
    "DPSGDRegressor": {
        "plain": Audit(claimed(DPSGDRegressor), NUMBERS),
        "public bounds": Audit(claimed(DPSGDRegressor, **TARGETS), NUMBERS),
    },
    "GEPClassifier": {"plain": Audit(claimed(GEPClassifier), LABELS, PUBLIC)},
    "GEPRegressor": {"plain": Audit(claimed(GEPRegressor), NUMBERS, PUBLIC)},
    "DPLinearRegression": {
        "plain": Audit(claimed(DPLinearRegression, **RANGES), NUMBERS),
        "not white": Audit(claimed(DPLinearRegression, solver="plain", **RANGES), NUMBERS),
    },
    "PublicSubspaceLinearRegression": {
        "plain": Audit(
            claimed(PublicSubspaceLinearRegression, n_components=3, target_bounds=(-1, 2)),
            NUMBERS,
            tasks(public_rows(5)[0]),
        )
    },
    "PersonalizedLinearRegression": {
        "plain": Audit(
            claimed(PersonalizedLinearRegression, missing_groups="each_row", **RANGES), NUMBERS
        )
    },
    "DPModuleClassifier": {
        "plain": Audit(small(DPModuleClassifier, 4, delta=1e-5), LABELS, options=FEW)
    },
    "DPModuleRegressor": {
        "plain": Audit(
            small(DPModuleRegressor, 1, delta=1e-5, target_bounds=(-1, 2)), NUMBERS, options=FEW
        )
    },
    "BoundedScaler": {
        "counts": Audit(claimed(BoundedScaler)),
        "search": Audit(claimed(BoundedScaler, level=0.2), rows=np.zeros((1000, 1))),
    },
    "DPPCA": {
        "plain": Audit(claimed(DPPCA, n_components=2)),
        "gaussian": Audit(claimed(DPPCA, n_components=2, mechanism="gaussian")),
        "drawn directions": Audit(
            claimed(DPPCA, n_components=1, mechanism="bingham", centered=False, data_norm=9.0)
        ),
    },
    "GSDScorer": {
        "plain": Audit(claimed(GSDScorer, n_components=2)),
        "gaussian": Audit(claimed(GSDScorer, n_components=2, mechanism="gaussian")),
    },
    "private_mean": {
        "plain": Audit(private_mean),
        "public bound": Audit(private_mean, given={"data_norm": 9.0, "method": "gaussian"}),
        "many runs": Audit(private_mean, options=MANY),
    },
    "private_quantile": {
        "plain": Audit(private_quantile),
        "public range": Audit(private_quantile, given={"bounds": (-3, 9), "level": [0.3, 0.9]}),
    },
    "private_covariance": {
        "plain": Audit(private_covariance),
        "many runs": Audit(private_covariance, options=FEW | MANY),
    },
    "select_public": {
        "plain": Audit(
            select_public,
            given={"candidates": sets(), "epsilon": 1.0, "n_components": 1},
            rows=np.zeros((100, 20)),
        )
    },
}


def test_everything_that_is_fitted_or_called_is_audited():
    released = {case.name.split(",")[0] for case in CASES}
    assert released == AUDITS.keys()
    assert {kind.__name__ for kind in DESIGNS} == released


def break_noise(monkeypatch):
    """A tenth of the noise, whatever is drawn."""
    scale_noise(monkeypatch, 0.1)
    sharper = lambda matrix, *sources: sample_bingham(10 * matrix, *sources)  # noqa: E731
    monkeypatch.setattr("dpsubspace._release.mechanisms.sample_bingham", sharper)


PAIRS = [(name, setting) for name, settings in AUDITS.items() for setting in settings]


@pytest.mark.parametrize(("name", "setting"), PAIRS)
def test_audit_stays_below_the_claim_and_catches_a_tenth_of_the_noise(monkeypatch, name, setting):
    audit = AUDITS[name][setting]
    honest = audit.run()
    assert honest.epsilon_claimed == pytest.approx(1.0, rel=1e-3) and honest.name == name
    assert not honest.refuted and "does not refute the claim of 1" in str(honest)

    break_noise(monkeypatch)
    broken = audit.run()
    assert broken.refuted and broken.epsilon_lower_bound > audit.strong
    assert broken.epsilon_lower_bound <= broken.epsilon_reachable
    assert "REFUTES" in str(broken)


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
