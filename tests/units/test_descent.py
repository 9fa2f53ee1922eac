"""The loop of a fit: its steps, its batches and what they cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import ESTIMATORS, PLAIN, blobs, releases, some_releases

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.rows.features import Features
from dpsubspace._core.solvers.descent import STEPS, Descent, FlatStep, Scale, TrainingPlan, train


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


# Momentum 0.98 of thirty steps: it remembers ten steps, as many as there were, and twenty.
GROWING = [0.9] * 10 + [t / (t + 1) for t in range(10, 20)] + [0.95] * 10


@pytest.mark.parametrize(("momentum", "of_steps"), [(0.5, [0.5] * 30), (0.98, GROWING)])
def test_training_is_clipped_nesterov_descent(momentum, of_steps):
    """Against the textbook form: gradient at the look-ahead point, then velocity."""
    X, y = blobs(n=60, d=2)
    weights, velocity = np.zeros((2, 3)), np.zeros((2, 3))
    for of_step in of_steps:
        ahead = weights + of_step * velocity
        residual = LogLoss().residual(y, X @ ahead)
        norms = np.linalg.norm(X, axis=1) * np.linalg.norm(residual, axis=1)
        clipped = residual * np.minimum(1, 0.3 / norms)[:, None]
        velocity = of_step * velocity - 0.5 * (X.T @ clipped / 60 + 0.1 * ahead)
        weights = weights + velocity
    np.testing.assert_allclose(trained(plan(momentum=momentum)), weights, atol=1e-12)


def test_average_is_the_mean_of_the_last_quarter():
    expected = np.mean([trained(plan(n_iter=n)) for n in (10, 11, 12)], axis=0)
    np.testing.assert_allclose(trained(plan(n_iter=12, average=True)), expected, atol=1e-12)


@pytest.mark.parametrize("needed", [0.1, 99.5, 159.5, 170, 200, 399, 1e6])
def test_steps_momentum_and_step_size_make_the_length(needed):
    """`needed` counts steps at momentum 0.9: up to 160 are taken, then momentum goes further."""
    length, largest = 20 * needed, 2.0
    n_iter = auto.n_steps(length, largest)
    momentum = auto.momentum_for(length, largest, n_iter=n_iter)
    step = auto.step_size(length, largest, n_iter=n_iter, momentum=momentum)
    at = [auto.momentum_at(t, momentum, n_iter=n_iter) for t in range(n_iter)]
    assert n_iter == np.clip(np.ceil(needed), 100, 160)
    assert (momentum == 0.9) == (needed <= 160) and momentum < 1
    made = step * sum(1 / (1 - m) for m in at)
    if needed < 400:
        assert made == pytest.approx(length) and 0 < step <= largest
    else:
        assert step == largest and 450 < made / 20 < length / 20


def test_only_chosen_steps_of_all_records_have_chosen_momentum():
    loss, n_samples = LogLoss(), 10**6
    scale = Scale(loss, 1, 5, 1.0, 0.5, 16.0)

    def momentum(rate, **options):
        target = Target(epsilon=1.0, delta=1e-6)
        budget = Budget.split(target, {STEPS: Part(1.0, 160, rate)})
        return Descent(**options).plan(budget, scale, n_samples).momentum

    assert momentum(1.0) > 0.98
    scale = replace(scale, growing=False)
    assert momentum(1.0) == 0.9
    scale = replace(scale, growing=True)
    assert momentum(1.0, momentum=0.5) == 0.5
    assert momentum(1.0, learning_rate=0.1) == momentum(0.01) == 0.9


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
    X, _ = blobs(n=60, d=2)
    # No softmax loss is more curved, for any weights; with longer steps nothing has to converge.
    curvature = np.linalg.eigvalsh(X.T @ X / 60)[-1] / 2 + 0.1
    calls = []
    trained(
        plan(n_iter=10_000, momentum=None, tolerance=1e-9, learning_rate=1 / curvature),
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
    # Empty are 0.98 ** 60 = 0.30 of 400: binomial with deviation 9, and 119 - 7 * 9 is 55.
    assert len(sizes) == 400 and (sizes == 0).sum() > 50
    # The sum is binomial: 480 with deviation 22, and within 150 of it but for a chance of 2e-11.
    assert abs(sizes.mean() - 1.2) < 150 / 400
    # The ratio has a deviation of 0.083 and a skewness of 0.2: 6 of them below, 9 above.
    assert 0.5 < sizes.var() / (60 * 0.02 * 0.98) < 1.8


def test_an_empty_batch_steps_with_noise_alone(monkeypatch):
    with releases(monkeypatch) as seen:
        weights = trained(plan(n_iter=1, alpha=0.0), rate=1e-9, multiplier=1.0)
    ((total, out, _),) = seen
    assert not total.value.any()
    assert total.norm_bound >= 0.3
    np.testing.assert_allclose(weights, -0.5 * out / (60 * 1e-9))


def test_a_batch_of_everything_is_the_full_batch(monkeypatch):
    from dpsubspace._core.release.noise import SeededNoise as Source

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
    with pytest.raises(ValueError, match=r"(batch_size|preprocessing).*n_samples"):
        Estimator(batch_size=40, delta=1e-5).privacy_event()
