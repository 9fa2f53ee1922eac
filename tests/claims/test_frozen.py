"""With the outputs of all releases frozen, nothing that a fit leaves behind depends on a record.

Two runs on neighbouring data sets that are given the same outputs may differ in nothing that
can be looked at: attributes of any name, the statement, types, warnings. What differs was
not released.
"""

import sys
import warnings
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
from helpers import RELATIONS, blobs, public_rows

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    GEPRegressor,
    private_covariance,
    private_mean,
    private_quantile,
)
from dpsubspace._accounting.budget import Target
from dpsubspace._estimators import functions
from dpsubspace._release import mechanisms

D, N = 4, 60


@contextmanager
def frozen(monkeypatch, outputs):
    """Record what the three functions that release give, or give it again."""
    calls = []

    def freezing(real):
        def release(total, multiplier, noise, **options):
            if multiplier in (0, np.inf):
                return real(total, multiplier, noise, **options)
            how = (real.__name__, multiplier, options, total.norm_bound, total.replace_bound)
            if outputs is None:
                out = real(total, multiplier, noise, **options)
            else:
                expected, out = outputs[len(calls)]
                assert expected == how
            calls.append((how, out))
            return out

        return release

    with monkeypatch.context() as patch:
        for name in ("release", "release_laplace", "release_direction"):
            real = getattr(mechanisms, name)
            for module in [m for key, m in sys.modules.items() if key.startswith("dpsubspace.")]:
                if getattr(module, name, None) is real:
                    patch.setattr(module, name, freezing(real))
        yield calls


def linear(Model, public=None, **options):
    def run(X, y, present, relation):
        model = Model(neighboring_relation=relation, random_state=0, n_iter=2, **options)
        if "Classifier" in Model.__name__:
            model.set_params(classes=[0, 1, 2, 3])
        given = {}
        if public is not None:
            rows, labels = public_rows(D)
            given = {"X_public": (rows,)} | ({"y_public": (labels,)} if public == "labels" else {})
        return model._fit(X, y, present, **given)

    return run


def transformer(Model, **options):
    def run(X, y, present, relation):
        model = Model(neighboring_relation=relation, random_state=0, **options)
        return model._fit(X, present=present)

    return run


def function(public, **options):
    inner = getattr(functions, public.__name__.removeprefix("private"))

    def run(X, y, present, relation):
        return inner(X, Target(20.0, "auto", relation), 0, present=present, **options)

    return run


# Calibration on batches takes a second, and a given multiplier none.
BATCHES = {"batch_size": 40, "epsilon": None, "noise_multiplier": 5.0}
BOUNDS = {"data_norm": None, "bounds": None}
CASES = {
    "classifier": linear(DPSGDClassifier),
    "batches": linear(DPSGDClassifier, **BATCHES),
    "centred": linear(DPSGDFClassifier),
    "adaptive": linear(DPSGDFClassifier, preprocessing="adaptive", epsilon=200.0),
    "regressor": linear(DPSGDRegressor, epsilon=200.0),
    "bounded regressor": linear(DPSGDRegressor, data_norm=5.0, target_bounds=(-9, 9)),
    "features": linear(GEPClassifier, "labels"),
    "gradients": linear(GEPClassifier, "rows", directions="gradients", **BATCHES),
    "regressor, features": linear(GEPRegressor, "labels", epsilon=20.0),
    "scaler": transformer(BoundedScaler, epsilon=200.0),
    "counts": transformer(BoundedScaler),
    "pca": transformer(DPPCA, n_components=2, epsilon=20.0),
    "share": transformer(DPPCA, n_components=0.9, data_norm=9.0, epsilon=200.0),
    "gaussian": transformer(DPPCA, mechanism="gaussian", n_components=2),
    "power": transformer(DPPCA, mechanism="power", n_components=2),
    "bingham": transformer(DPPCA, mechanism="bingham", centered=False, data_norm=9.0),
    "mean": function(private_mean, method="recentre", **BOUNDS),
    "quantile": function(private_quantile, level=[0.1, 0.5], bounds=None),
    "covariance": function(private_covariance, centered=True, **BOUNDS),
}
LARGEST = np.finfo(np.float64).max
RECORDS = {
    "zero": np.zeros(D),
    "far": np.full(D, 1e6),
    "largest": LARGEST * np.array([1.0, 1.0, -1.0, -1.0]),
}


def left_behind(run, *data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(*data)
    state = dict(vars(result)) if hasattr(result, "__dict__") else tuple(result)
    if isinstance(state, dict):
        state.pop("_callback_fit_ctx", None)  # of scikit-learn, with the time; `fit` deletes it
    return joblib.hash(state), [str(warning.message) for warning in caught]


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("run", CASES.values(), ids=CASES)
def test_nothing_but_releases_depends_on_a_record(monkeypatch, run, relation, record):
    X, y = blobs(n=N, d=D)
    here, there = (X, y, None, relation), (X.copy(), y.copy(), None, relation)
    there[0][0], there[1][0] = record, 3  # a label that no other record has
    if relation == "zero_out":
        here = (*there[:2], np.ones(N, bool), relation)
        there = (*there[:2], np.arange(N) > 0, relation)
    with frozen(monkeypatch, None) as outputs:
        first = left_behind(run, *here)
    with frozen(monkeypatch, outputs) as again:
        second = left_behind(run, *there)
    assert len(outputs) == len(again) > 0
    assert first == second


def test_a_number_of_the_rows_would_be_noticed(monkeypatch):
    def leaking(X, *rest):
        model = CASES["classifier"](X, *rest)
        model._largest = X.max()
        return model

    with pytest.raises(AssertionError, match="=="):
        test_nothing_but_releases_depends_on_a_record(
            monkeypatch, leaking, "replace_one", RECORDS["far"]
        )
