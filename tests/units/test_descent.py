"""The loop of a fit: its steps, its batches and what they cost."""

import math

import numpy as np
import pytest
from helpers import (
    ESTIMATORS,
    PLAIN,
    blobs,
    releases,
    some_releases,
)

from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import LogLoss
from dpsubspace._rows.features import Features
from dpsubspace._solvers.descent import STEPS, TrainingPlan, train
from dpsubspace._solvers.steps import FlatStep


def plan(**options):
    return TrainingPlan(
        **{
            "n_iter": 30,
            "learning_rate": 0.5,
            "momentum": 0.5,
            "alpha": 0.1,
            "average": False,
            **options,
        }
    )


def trained(plan, step=None, *, multiplier=0.0, rate=1.0, **options):
    X, y = blobs(n=60, d=2)
    step = step or FlatStep(clip_norm=0.3)
    source = LinearSource(LogLoss(), Features(X, PLAIN), y)
    start, penalised = np.zeros((2, 3)), np.ones((2, 1))
    steps = some_releases(multiplier, plan.n_iter, name=STEPS, rate=rate)
    return train(plan, step, source, start, penalised, steps, **options)


def test_training_is_clipped_nesterov_descent():
    """Against the textbook form: gradient at the look-ahead point, then velocity."""
    X, y = blobs(n=60, d=2)
    weights, velocity = np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(30):
        ahead = weights + 0.5 * velocity
        residual = LogLoss().residual(y, X @ ahead)
        norms = np.linalg.norm(X, axis=1) * np.linalg.norm(residual, axis=1)
        clipped = residual * np.minimum(1, 0.3 / norms)[:, None]
        velocity = 0.5 * velocity - 0.5 * (X.T @ clipped / 60 + 0.1 * ahead)
        weights = weights + velocity
    np.testing.assert_allclose(trained(plan()), weights, atol=1e-12)


def test_average_is_the_mean_of_the_last_quarter():
    expected = np.mean([trained(plan(n_iter=n)) for n in (10, 11, 12)], axis=0)
    np.testing.assert_allclose(trained(plan(n_iter=12, average=True)), expected, atol=1e-12)


def test_a_step_of_two_sums_costs_what_its_event_says(monkeypatch):
    """Shares of the budget make the sums of one step one Gaussian of the plan's multiplier."""

    class TwoSums(FlatStep):
        def sums(self, state, grads):
            return super().sums(state, grads) * 2

        def combine(self, state, noisy):
            return (noisy[0] + noisy[1]) / 2

    with releases(monkeypatch) as seen:
        step = TwoSums(clip_norm=0.3, budget_shares=(0.25, 0.75))
        trained(plan(n_iter=1), step, multiplier=3.0)
    used = [multiplier for _, _, multiplier in seen]
    assert sum(m**-2 for m in used) == pytest.approx(3.0**-2)
    assert used[0] == pytest.approx(6.0)


def test_a_step_whose_sums_and_shares_differ_in_number_is_refused():
    with pytest.raises(RuntimeError, match="1 sums need as many shares"):
        trained(plan(), FlatStep(clip_norm=0.3, budget_shares=(0.5, 0.5)))


def test_a_run_can_be_stopped_from_outside_only_between_steps():
    calls = []
    stopped = trained(plan(), after_step=lambda: calls.append(1) or len(calls) == 4)
    np.testing.assert_allclose(stopped, trained(plan(n_iter=4)))


def test_exact_gradients_converge_and_stop():
    calls = []
    trained(
        plan(n_iter=10_000, momentum=None, tolerance=1e-9, learning_rate=0.2),
        FlatStep(clip_norm=math.inf),
        after_step=lambda: calls.append(1) or False,
    )
    assert 10 < len(calls) < 1000


class Recorder:
    """Step that notes the batches it is given, as the sums of a constant column."""

    budget_shares = (1.0,)

    def __init__(self):
        self.sizes = []

    def begin(self, params, t):
        return None

    def sums(self, state, grads):
        total = FlatStep(clip_norm=0.3).sums(None, grads)[0]
        self.sizes.append(grads.residuals.shape[0])
        return (total,)

    def combine(self, state, noisy):
        return noisy[0]


def test_batches_are_poisson_and_their_size_stays_private():
    """Sizes vary as binomials do, empty batches step, and the denominator is the expected size."""
    step = Recorder()
    trained(plan(n_iter=400), step, rate=0.02)
    sizes = np.array(step.sizes)
    assert len(sizes) == 400 and (sizes == 0).sum() > 60  # 0.98 ** 60 = 0.30 of 400
    assert abs(sizes.mean() - 1.2) < 0.25
    assert 0.8 < sizes.var() / (60 * 0.02 * 0.98) < 1.25


def test_an_empty_batch_steps_with_noise_alone(monkeypatch):
    with releases(monkeypatch) as seen:
        weights = trained(plan(n_iter=1, alpha=0.0), rate=1e-9, multiplier=1.0)
    ((total, out, _),) = seen
    assert not total.value.any()
    assert total.norm_bound >= 0.3
    np.testing.assert_allclose(weights, -0.5 * out / (60 * 1e-9))


def test_a_batch_of_everything_is_the_full_batch(monkeypatch):
    from dpsubspace._release.noise import SeededNoise as Source

    everything = trained(plan())
    monkeypatch.setattr(Source, "poisson_sample", lambda self, n, rate: np.arange(n))
    sampled = trained(plan(), rate=1 - 1e-12)
    np.testing.assert_allclose(sampled, everything, atol=1e-10)


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_a_batch_size_becomes_the_rate_of_its_event(Estimator):
    X, y = blobs(n=400)
    model = Estimator(batch_size=100, epsilon=5.0, n_iter=20, random_state=0).fit(X, y)
    step = model.privacy_.event
    step = step.events[-1] if hasattr(step, "events") else step
    assert step.count == 20 and step.event.sampling_probability == 0.25
    assert model.privacy_.epsilon == 5.0
    with pytest.raises(ValueError, match=r"batch_size.*401.*400.*None"):
        Estimator(batch_size=401).fit(X, y)
    with pytest.raises(ValueError, match=r"batch_size.*n_samples"):
        Estimator(batch_size=40, delta=1e-5).privacy_event()
