"""Without privacy the objective is minimised: as scikit-learn does it, and with a word if not."""

import math

import numpy as np
import pytest
from helpers import PLAIN, blobs, mapped, pairs_first, public_rows, who, with_plan
from scipy import sparse
from scipy.optimize import approx_fprime
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor
from sklearn.svm import LinearSVC

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor, GEPClassifier
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES, Hinge, SoftHinge
from dpsubspace._core.rows.features import Features
from dpsubspace._core.solvers.lbfgs import minimise
from dpsubspace.linear_model import GradientDirections

NOT_PRIVATE = {"epsilon": math.inf}


def source_of(loss, n_outputs, n=40):
    rng = np.random.default_rng(0)
    y = rng.integers(max(n_outputs, 2), size=n)
    if loss in REGRESSOR_LOSSES.values():
        y = rng.uniform(-1, 1, size=(n, n_outputs))
    return LinearSource(loss, Features(rng.normal(size=(n, 3)), PLAIN), y)


@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize(
    "loss",
    [loss.smooth[0] for loss in (*CLASSIFIER_LOSSES.values(), *REGRESSOR_LOSSES.values())],
    ids=str,
)
def test_the_objective_of_a_chunk_has_the_gradient_that_it_says(loss, n_outputs, rng):
    source, weights = source_of(loss, n_outputs), rng.normal(size=(3, n_outputs))
    rows = slice(3, 30)

    def value(flat):
        return source.objective(flat.reshape(weights.shape), rows)[0]

    gradient = source.objective(weights, rows)[1]
    expected = approx_fprime(weights.ravel(), value, 1e-7).reshape(weights.shape)
    np.testing.assert_allclose(gradient, expected, atol=2e-5)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_soft_hinge_is_above_the_hinge_by_no_more_than_it_says(n_classes, rng):
    scores = rng.normal(size=(500, 1 if n_classes == 2 else n_classes)) * 2
    y = rng.integers(n_classes, size=500)
    for temperature in (0.1, 1e-3):
        above = SoftHinge(temperature).value(y, scores) - Hinge().value(y, scores)
        assert above.min() > -1e-12 and above.max() <= temperature * math.log(n_classes) + 1e-12


# Older ones say so of Crammer and Singer's loss; the reference is then what they reached.
@pytest.mark.filterwarnings("ignore:Liblinear failed:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("n_classes", "alpha"), pairs_first([2, 10], [1e-4, 1e-2]))
def test_the_hinge_reaches_the_support_vector_machine(n_classes, alpha):
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600] if n_classes == 10 else y[:600] >= 5
    model = DPSGDClassifier(loss="hinge", alpha=alpha, fit_intercept=False, **NOT_PRIVATE)
    rows = mapped(X, norm="l2")
    svm = LinearSVC(loss="hinge", C=1 / (len(X) * alpha), fit_intercept=False, max_iter=10**6)
    if n_classes == 10:
        svm.set_params(multi_class="crammer_singer")
    codes = y.astype(int)

    def objective(coef):
        loss = np.mean(Hinge().value(codes, rows @ coef.T))
        return loss + alpha / 2 * np.sum(coef**2)

    best = objective(svm.fit(rows, y).coef_)
    assert objective(model.fit(X, y).coef_) < best * (1 + 2e-3)


@pytest.mark.filterwarnings("ignore:scipy.optimize:DeprecationWarning")  # scikit-learn 1.6
def test_huber_reaches_scikit_learn():
    X, y = blobs(n=300)
    y = X @ np.arange(5.0) + np.random.default_rng(0).standard_t(2, size=300)
    low, high = y.min() - 1, y.max() + 1
    model = DPSGDRegressor(
        loss="huber", alpha=0.0, data_norm=30.0, target_bounds=(low, high), **NOT_PRIVATE
    ).fit(X, y)
    # HuberRegressor estimates the scale, in which it measures the threshold.
    threshold = 0.1 * (high - low) / 2

    def objective(coef, intercept):
        error = np.abs(X @ coef + intercept - y)
        small = np.minimum(error, threshold)
        return np.mean(small * (error - small / 2))

    reference = HuberRegressor(epsilon=1.35, alpha=0.0, max_iter=1000).fit(X, y)
    reference.set_params(epsilon=max(1.0, threshold / reference.scale_)).fit(X, y)
    best = objective(reference.coef_, reference.intercept_)
    assert objective(model.coef_, model.intercept_) <= best * (1 + 1e-6)


def test_few_iterations_are_enough_and_no_step_size_is_needed():
    X, y = load_digits(return_X_y=True)
    model = DPSGDClassifier(learning_rate=1e-9, **NOT_PRIVATE)
    model = with_plan(model, {"momentum": 0.0})(X, y)
    assert 20 < model.n_iter_ < 600 and model.learning_rate_ is None
    assert model.score(X, y) > 0.99


def test_a_fit_that_does_not_converge_says_what_to_do():
    X, y = blobs(n=300)
    with pytest.warns(
        ConvergenceWarning, match=r"after 3 of at most 3 iter.*Increase `n_iter`"
    ) as seen:
        model = DPSGDClassifier(n_iter=3, **NOT_PRIVATE).fit(X, y)
    assert seen[0].filename == __file__
    assert model.n_iter_ == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_rows_in_single_precision_converge_as_well(dtype, loss):
    X, y = load_breast_cancer(return_X_y=True)
    model = DPSGDFClassifier(loss=loss, **NOT_PRIVATE).fit(X.astype(dtype), y)
    assert model.score(X, y) > 0.93


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e6])
def test_the_units_of_rows_that_nothing_bounds_do_not_matter(scale):
    X, y = blobs(n=300)
    options = {"row_norm": None, "fit_intercept": False, **NOT_PRIVATE}
    one = DPSGDClassifier(alpha=1e-2, **options).fit(X, y)
    other = DPSGDClassifier(alpha=1e-2 * scale**2, **options).fit(X * scale, y)
    np.testing.assert_allclose(other.coef_ * scale, one.coef_, atol=1e-4)


def test_sparse_and_mapped_rows_reach_the_same_minimum(tmp_path):
    X, y = blobs(n=700)
    X = np.where(X > 1, X, 0.0)
    np.save(tmp_path / "rows.npy", X)
    model = DPSGDFClassifier(alpha=1e-3, **NOT_PRIVATE)
    expected = model.fit(X, y).predict_proba(X)
    fit = with_plan(model, chunk=128)
    for rows in (sparse.csr_array(X), np.load(tmp_path / "rows.npy", mmap_mode="r")):
        found = fit(rows, y).predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_null_records_add_nothing():
    source = source_of(CLASSIFIER_LOSSES["log_loss"], 3)
    present = np.arange(40) >= 10
    features = Features(source.features.X, PLAIN, records=who(present, 40))
    masked = LinearSource(source.loss, features, source.y)
    weights = np.full((3, 3), 0.3) * np.arange(3)
    for part, rest in zip(
        masked.objective(weights, slice(0, 40)),
        source.objective(weights, slice(10, 40)),
        strict=True,
    ):
        np.testing.assert_allclose(part, rest)


def test_public_directions_alone_are_a_minimum_within_their_span():
    X, y = blobs(n=300)
    P, _ = public_rows(5)
    model = GEPClassifier(n_components=2, fit_intercept=False, alpha=1e-3, **NOT_PRIVATE)
    with_plan(model, centre=None)(X, y, X_public=(P,))
    V = np.linalg.svd(mapped(P, norm="l2"))[2][:2]
    rows, weights = mapped(X, norm="l2"), model.coef_.T
    residuals = CLASSIFIER_LOSSES["log_loss"].residual(y, rows @ weights)
    gradient = rows.T @ residuals / len(rows) + 1e-3 * weights
    assert np.abs(V @ gradient).max() < 2e-6 < np.abs(gradient).max()


@pytest.mark.parametrize(
    "options", [{"mirror": True}, {"directions": GradientDirections(residual=False)}], ids=str
)
def test_what_is_no_objective_is_trained_by_descent(options):
    X, y = blobs(n=300)
    P, q = public_rows(5)
    model = GEPClassifier(n_iter=7, random_state=0, **options, **NOT_PRIVATE)
    model.fit(X, y, X_public=(P,), y_public=(q,))
    assert model.n_iter_ == 7 and model.learning_rate_ > 0


def test_a_run_can_be_ended_from_outside():
    source, calls = source_of(CLASSIFIER_LOSSES["hinge"], 4), []
    found = minimise(
        source,
        np.zeros((3, 4)),
        np.ones((3, 1)),
        alpha=1e-4,
        max_iter=100,
        after_step=lambda: calls.append(1) or len(calls) == 4,
    )
    assert found.n_iter == len(calls) == 4 and found.converged
