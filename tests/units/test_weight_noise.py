"""Noise that a descent leaves in its weights: held against descents that were run many times."""

import numpy as np
import pytest
from sklearn.base import clone

from dpsubspace import DPSGDClassifier, GEPClassifier
from dpsubspace._core.ground.auto import momentum_at
from dpsubspace._core.solvers.descent import TrainingPlan, WeightNoise, noise_of_descent
from dpsubspace.linear_model import GradientDirections

N_RUNS = 20_000


def plan(**options):
    defaults = {"n_iter": 60, "learning_rate": 0.8, "momentum": 0.95, "alpha": 0.0, "average": True}
    return TrainingPlan(**defaults | options)


def spread(plan, each, curvature):
    """Standard deviation of what many descents return, from the only noise that there is."""
    rng = np.random.default_rng(0)
    weights = velocity = total = np.zeros(N_RUNS)
    for t in range(plan.n_iter):
        momentum = momentum_at(t, plan.momentum, n_iter=plan.n_iter)
        ahead = weights + momentum * velocity
        gradient = (curvature + plan.alpha) * ahead + each * rng.standard_normal(N_RUNS)
        velocity = momentum * velocity - plan.learning_rate * gradient
        weights = weights + velocity
        total = total + weights * (t >= plan.first_averaged)
    return (total / (plan.n_iter - plan.first_averaged) if plan.average else weights).std()


@pytest.mark.parametrize(
    "options",
    [{}, {"average": False}, {"momentum": 0.5}, {"alpha": 0.02}, {"n_iter": 7}],
)
def test_it_is_exact_where_only_the_penalty_pulls_back(options):
    found = noise_of_descent(plan(**options), 0.3, 2)
    assert found.sizes == pytest.approx(
        [spread(plan(**options), 0.3, 0.0)] * 2, rel=0.035
    )  # 7 deviations


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("average", [True, False])
def test_it_is_an_upper_bound_whatever_the_curvature(momentum, average):
    """As long as steps times curvature are at most 1."""
    tried = plan(momentum=momentum, average=average)
    most = np.linalg.norm(tried.noise_at(0.0))
    curvatures = np.geomspace(1e-6, 1 / tried.learning_rate, 60)
    found = np.array([np.linalg.norm(tried.noise_at(h)) for h in curvatures])
    assert (found <= most * (1 + 1e-12)).all() and found.min() < 0.3 * most


def test_what_pulls_back_counts_along_its_own_directions():
    tried, each = plan(), 0.3
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    values = np.array([0.0, 0.01, 0.4])
    noise = noise_of_descent(tried, each, 2).pulled_back((vectors * values) @ vectors.T, [1.0, 2.0])
    for k, times in enumerate([1.0, 2.0]):
        found = noise.std(vectors.T)[:, k]
        exact = [spread(tried, each, times * h) for h in values]
        assert found == pytest.approx(exact, rel=0.05)
    plane = noise_of_descent(tried, each, 1, vectors[:, :2].T)
    plane = plane.pulled_back((vectors * values) @ vectors.T, np.ones(1))
    assert plane.std(vectors.T)[:, 0] == pytest.approx(
        [*noise.std(vectors.T)[:2, 0], 0.0], rel=1e-3, abs=1e-6
    )


def test_noise_of_scores_follows_from_that_of_weights():
    rng = np.random.default_rng(0)
    factor, rows = rng.normal(size=(4, 2)), rng.normal(size=(3, 4))
    noise = WeightNoise(np.array([0.5, 2.0]), factor)
    draws = factor @ rng.standard_normal((2, N_RUNS)) * 2.0
    np.testing.assert_allclose(noise.std(rows)[:, 1], (rows @ draws).std(axis=1), rtol=0.02)
    np.testing.assert_allclose(
        noise.std(rows[:, :2], np.array([3, 1]))[:, 0],
        0.5 * np.linalg.norm(rows[:, :2] @ factor[[3, 1]], axis=1),
    )
    for one in (noise, WeightNoise(noise.sizes), WeightNoise(np.full((4, 2), 2.0))):
        drawn = one.drawn(rng, 2, 4, N_RUNS)
        expected = [one.std(np.eye(4))[:, k] for k in (0, 1)]
        np.testing.assert_allclose(drawn.std(axis=2).T, expected, rtol=0.035)  # 7 deviations
    assert noise == WeightNoise(np.array([0.5, 2.0]), factor.copy())
    assert noise != noise.times(2.0) and noise != WeightNoise(noise.sizes) and noise != 1
    np.testing.assert_allclose(noise.times(2.0).std(rows), 2 * noise.std(rows))


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, (X[:, 0] > 0).astype(int)


def fitted(Classifier=DPSGDClassifier, **options):
    X, y = rows()
    defaults = {"delta": 1e-5, "learning_rate": 1.0, "n_iter": 30, "random_state": 0}
    given = {"X_public": (rows(40, seed=1)[0],)} if Classifier is GEPClassifier else {}
    return Classifier(**defaults | options).fit(X, y, **given)


def test_hiding_what_a_row_says_takes_twice_the_noise():
    sizes = [
        fitted(neighboring_relation=relation, fit_intercept=False)._weight_noise.sizes
        for relation in ("zero_out", "replace_one")
    ]
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=1e-3)


def test_batches_persons_and_directions_count():
    """An expert's multiplier is that of each step, beside what a batch adds up to."""
    options = {"epsilon": None, "noise_multiplier": 2.0, "fit_intercept": False}
    full, batches = (fitted(batch_size=size, **options) for size in (None, 60))
    assert batches._weight_noise.sizes == pytest.approx(5 * full._weight_noise.sizes)
    options |= {"clip_norm": 0.2}
    X, y = rows()
    of_rows = fitted(**options)
    of_pairs = clone(of_rows).fit(X, y, groups=np.arange(len(X)) // 2)
    assert of_pairs._weight_noise.sizes == pytest.approx(2 * of_rows._weight_noise.sizes)
    guided = fitted(GEPClassifier, n_components=2, init="zero")._weight_noise
    assert guided.factor.shape[1] == 2
    np.testing.assert_allclose(guided.factor.T @ guided.factor, np.eye(2), atol=1e-8)


def test_it_is_not_known_without_noise_or_for_directions_that_change():
    assert fitted(epsilon=float("inf"), learning_rate="auto")._weight_noise is None
    assert fitted(GEPClassifier, directions=GradientDirections())._weight_noise is None
