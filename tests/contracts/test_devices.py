"""The same arithmetic through torch: on its CPU everywhere, on a GPU where there is one."""

import math

import numpy as np
import pytest
from helpers import ESTIMATORS, INFORMED, blobs, with_plan
from scipy import sparse
from sklearn.base import is_classifier

from dpsubspace import DPPCA, DPSGDClassifier, DPSGDFClassifier
from dpsubspace._core.statistics.moments import MECHANISMS
from dpsubspace.linear_model import GradientDirections

torch = pytest.importorskip("torch")

CPU = torch.device("cpu")
DEVICES = [
    CPU,
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
SETTINGS = [{}, {"batch_size": 200}, {"chunk": 128}, {"epsilon": float("inf")}]
CASES = [(Estimator, options) for Estimator in ESTIMATORS for options in SETTINGS]
CASES += [(DPSGDFClassifier, {"preprocessing": "adaptive"} | options) for options in SETTINGS]

PAPER = GradientDirections(n_components=6, residual=False, power_iterations=None)
WAYS = [
    {"n_components": 3},
    {"n_components": 3, "batch_size": 200},
    {"directions": GradientDirections(), "chunk": 128},
    {"directions": PAPER},
    {"init": "zero", "mirror": True, "n_iter": 10},
    {"n_components": 2, "epsilon": float("inf")},
]
CASES += [(Estimator, options) for Estimator in INFORMED for options in WAYS]


def fitted(Estimator, X, y, device, chunk=None, **options):
    options = {"epsilon": 5.0, "random_state": 0, **options}
    options.setdefault("n_iter", 30 if options["epsilon"] < math.inf else "auto")
    return with_plan(Estimator(device=device, **options), chunk=chunk)(X, y)


def weights(model):
    return np.column_stack([np.atleast_2d(model.coef_), np.ravel(model.intercept_)])


def assert_same_minimum(here, there, X):
    """Both are where the slope of one convex loss has no entry above 1e-6.

    With weights V and W and scores Z and Y, ``mean((p(Z) - p(Y)) . (Z - Y))`` is then at most
    ``2e-6 |V - W|_1``, as rows have a norm of at most 1. Probabilities p follow scores by no more
    than half of their move, so that the mean of ``|p(Z) - p(Y)|^2`` is at most half of that.
    Among the weights is that of a constant entry of 0.15, which `offset_` has together with the
    product of the others and a mean of norm at most 1: 1e-5 in place of 1e-6 counts it. Weights
    themselves may differ along what the loss hardly depends on.
    """
    moved = np.abs(weights(there) - weights(here)).sum()
    moved += np.abs(there.offset_ - here.offset_).sum()
    apart = np.sum((there.predict_proba(X) - here.predict_proba(X)) ** 2, axis=1)
    assert np.mean(apart) <= 1e-5 * moved + 1e-9


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("Estimator", "options"), CASES, ids=str)
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_torch_gives_the_numbers_of_numpy(device, Estimator, options, dtype):
    X, y = blobs(n=700)
    X = X.astype(dtype)
    here, there = (fitted(Estimator, X, y, where, **options) for where in ("cpu", device))
    tolerance = 1e-9 if dtype == np.float64 else 2e-3
    if is_classifier(here) and here.epsilon == math.inf:
        assert_same_minimum(here, there, X)
    else:
        np.testing.assert_allclose(weights(there), weights(here), rtol=tolerance, atol=tolerance)
    assert there.privacy_ == here.privacy_
    arrays = [value for value in vars(there).values() if hasattr(value, "shape")]
    assert arrays and all(isinstance(value, np.ndarray) for value in arrays)
    assert isinstance(there.predict(X), np.ndarray)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_subspaces_on_torch(device, mechanism, dtype):
    X = blobs(n=700)[0].astype(dtype)
    options = {"mechanism": mechanism, "data_norm": 9.0, "random_state": 0, "epsilon": 9.0}
    options |= {"centered": "bingham" not in mechanism, "microbatch_size": 256}
    here, there = (DPPCA(2, device=where, **options).fit(X) for where in ("cpu", device))
    tolerance = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(there.components_, here.components_, atol=tolerance)
    np.testing.assert_allclose(
        there.explained_variance_, here.explained_variance_, rtol=tolerance, atol=tolerance
    )
    assert there.privacy_ == here.privacy_
    arrays = [value for value in vars(there).values() if hasattr(value, "shape")]
    assert arrays and all(isinstance(value, np.ndarray) for value in arrays)


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_losses_on_torch(loss, n_classes):
    X, y = blobs(n=400, n_classes=n_classes)
    here, there = (fitted(DPSGDClassifier, X, y, where, loss=loss) for where in ("cpu", CPU))
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-9)


def test_a_device_that_is_not_there_is_named():
    count = torch.cuda.device_count()
    with pytest.raises(ValueError, match=rf"device.*cuda:{count}.*sees {count} CUDA.*'auto'"):
        fitted(DPSGDClassifier, *blobs(n=400), f"cuda:{count}")
    with pytest.raises(ValueError, match="float64"):
        fitted(DPSGDClassifier, *blobs(n=400), torch.device("meta"))


def test_auto_takes_what_there_is():
    model = fitted(DPSGDClassifier, *blobs(n=400), "auto")
    assert model.predict(blobs(n=400)[0]).shape == (400,)


def test_sparse_rows_stay_on_the_cpu():
    X, y = blobs(n=400)
    model = DPSGDClassifier(epsilon=5.0, device=CPU)
    with pytest.raises(ValueError, match="sparse rows run on the CPU only"):
        model.fit(sparse.csr_array(X), y)
    assert not hasattr(model, "privacy_")


def test_mixed_precision_does_not_reach_the_sums():
    """Half precision rounds far beyond what the bounds allow for."""
    X, y = blobs(n=700)
    X = X.astype(np.float32)
    plain = fitted(DPSGDClassifier, X, y, CPU)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = fitted(DPSGDClassifier, X, y, CPU)
    np.testing.assert_array_equal(mixed.coef_, plain.coef_)
