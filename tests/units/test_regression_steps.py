"""Steps of private linear regression on many columns: what noise hides may not carry them off."""

from dataclasses import replace

import numpy as np
import pytest

from dpsubspace import DPLinearRegression
from dpsubspace._core.ground import auto
from dpsubspace._core.solvers.descent import TrainingPlan
from dpsubspace._core.solvers.least_squares import gains
from dpsubspace._core.solvers.regression import (
    Path,
    curvature_left,
    found_on,
    james_stein,
    whitening,
)

RATE = 0.4  # the largest step size of the solver


@pytest.mark.parametrize(("p", "noise", "size"), [(400, 0.75, 28.0), (800, 1.4, 50.0)])
def test_steps_bear_a_direction_that_stands_out_of_noise(p, noise, size):
    """Offsets of all columns make one. Noise has more of the whole matrix, and W was about I.

    Noise of that size lifts an eigenvalue by ``noise^2 p / (2 size)``.
    """
    outer = np.ones((p, p)) / p
    moment, lifted = np.eye(p) + size * outer, size + noise**2 * p / (2 * size)
    W = whitening(np.eye(p) + lifted * outer, noise).weights
    assert RATE * np.linalg.eigvalsh(W.T @ moment @ W)[-1] < 2


def path(curvatures, target, steps=20):
    """A descent without noise, where the moment is diagonal."""
    point, points, gradients = np.zeros_like(target), [], []
    for _ in range(steps):
        gradient = curvatures[:, None] * point - target
        points.append(point)
        gradients.append(gradient)
        point = point - RATE * gradient
    return Path(np.stack(points), np.stack(gradients), RATE, 1e-9)


@pytest.mark.parametrize("curvature", [0.05, 0.4, 1.0])
def test_a_path_tells_the_curvature(curvature):
    found = path(np.full(6, curvature), np.arange(1.0, 7.0)[:, None])
    assert found.curvature() == pytest.approx(curvature, abs=0.006)


def test_a_path_that_overshoots_is_cut_back_and_others_are_not():
    target = np.ones((6, 1))
    calm, wild = np.full(6, 0.8), np.array([0.8] * 5 + [6.0])  # 0.4 * 6 is above 2
    assert path(calm, target).not_beyond(12, 0.8)[0] > 0.99
    swung = path(wild, target)
    mean = swung.points[13:].mean(axis=0)
    square, product = (wild[:, None] * mean**2).sum(), (mean * target).sum()
    assert square > 2 * product, "as it stands it is worse than nothing"
    factor = swung.not_beyond(12, 0.8)[0]
    assert factor**2 * square / 2 - factor * product < 0


def test_steps_that_swing_are_seen_and_others_are_not():
    target = np.full((6, 1), 0.4)  # of a length of 1
    for curvatures, swings in (
        ([0.8] * 6, False),
        ([0.8] * 5 + [4.0], False),  # 0.4 * 4 is below 2: they become calm
        ([0.8] * 5 + [6.0], True),
    ):
        whole = path(np.array(curvatures), target)
        begun = (
            replace(whole, points=whole.points[:k], gradients=whole.gradients[:k])
            for k in range(1, 21)
        )
        seen = [part for part in begun if part.swings()]
        assert bool(seen) == swings
        if swings:
            np.testing.assert_allclose(np.abs(seen[0].swing())[-1], 1.0, atol=0.1)


def test_noise_alone_does_not_swing():
    """Gradients of 2,000 numbers: an angle of more than 120 degrees between two is 22 deviations.

    Their square is within 6 deviations of what it is but for a chance below 1e-9.
    """
    rng = np.random.default_rng()
    noise = rng.normal(size=(20, 2000, 1))
    points = -RATE * (np.cumsum(noise, axis=0) - noise)
    for k in range(2, 21):
        assert not Path(points[:k], noise[:k], RATE, 1.0).swings()


@pytest.mark.filterwarnings("ignore:`bounds` are about:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("n", [3000, 10_000])
def test_columns_that_hardly_vary_within_their_ranges_do_not_carry_a_fit_off(n):
    """R2 is .8 in the mean and was .63 at least in 64 fits. Steps that swung had -14 to .8."""
    rng = np.random.default_rng(0)
    varies = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 200)) + rng.normal(size=(n, 200)) / 1.5
    X = np.clip(0.4 + 0.009 * varies, -1, 1)
    y = X @ rng.normal(size=200)
    y = np.clip((y - y.mean()) / y.std() / 4, -1, 1)
    options = {"bounds": (-1, 1), "target_bounds": (-1, 1), "solver": "descent"}
    model = DPLinearRegression(epsilon=1.0, **options, random_state=0).fit(X, y)
    assert model.n_iter_ == 20
    assert model.score(X, y) > -0.5


def test_noise_does_not_pass_for_curvature():
    """Pure noise on flat ground, many times over: the mean of its estimates is near 0.

    Each gradient is 2,000 numbers: the estimate has a deviation of about
    ``1 / sqrt(sum |w|^2 / noise^2)`` < 0.02 beside the 2 of them that it is raised by, so that
    0.2 is more than 7 of them off: a chance below 1e-9.
    """
    rng, point, points, gradients = np.random.default_rng(), np.zeros((2000, 1)), [], []
    for _ in range(20):
        gradients.append(rng.normal(size=point.shape))
        points.append(point)
        point = point - RATE * gradients[-1]
    assert Path(np.stack(points), np.stack(gradients), RATE, 1.0).curvature() < 0.2


# How far weights are from what they are to be ---------------------------------------------------


def short(rate, steps=20, averaged=0.4):
    """Plan of a descent without momentum of which the mean of the last points is taken."""
    return TrainingPlan(
        n_iter=steps, learning_rate=rate, momentum=0.0, alpha=0.0, average=True, averaged=averaged
    )


def descent(plan, curvature, target, noise, rng):
    """A noisy descent towards `target` with one curvature everywhere, and what it finds."""
    point, points, gradients, found = np.zeros_like(target), [], [], []
    for _ in range(plan.n_iter):
        points.append(point)
        gradients.append(curvature * (point - target) + noise * rng.normal(size=point.shape))
        point = point - plan.learning_rate * gradients[-1]
        found.append(point)
    made = Path(np.stack(points), np.stack(gradients), plan.learning_rate, noise)
    return made, np.mean(found[plan.first_averaged :], axis=0)


@pytest.mark.parametrize("curvature", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_a_plan_knows_how_far_it_goes(curvature, rate):
    target, plan = np.ones((3, 1)), short(rate)
    _, found = descent(plan, curvature, target, 0.0, np.random.default_rng(0))
    assert found == pytest.approx(plan.reached_at(curvature) * target)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("curvature", [0.2, 1.0])
def test_what_is_left_of_the_way_is_added(rate, curvature, rng):
    target, plan = rng.normal(size=(50, 2)), short(rate)
    made, found = descent(plan, curvature, target, 1e-9, rng)
    factors, _ = found_on(made, plan, found, 0.1)
    assert found * factors == pytest.approx(target, rel=0.02)


@pytest.mark.parametrize(("rate", "noise"), [(0.06, 0.003), (0.2, 0.005)])
def test_short_steps_under_noise_end_where_they_predict_best(rate, noise, rng):
    """Beside the best multiple of what was found: on white rows that are clipped much.

    In 400 runs of each case the logarithm had a deviation of at most 0.06 about at most 0.05 from
    0, and was never further than 5 of these off: 0.6 is 9 of them.
    """
    target, plan = rng.normal(size=(4000, 1)), short(rate)
    target /= np.linalg.norm(target)
    made, found = descent(plan, 0.2, target, noise, rng)
    factor, best = found_on(made, plan, found, 0.2)[0][0], (found * target).sum()
    best /= (found**2).sum()
    assert abs(np.log(factor / best)) < 0.6


def test_noise_that_passes_for_weights_is_not_made_longer():
    """Longer than noise alone often is by two deviations, where no weights could be seen."""
    p, noise = 10, 5.0
    weights = np.full((p, 1), noise * np.sqrt(1 + 2 * np.sqrt(2 / p)))
    assert james_stein(weights, noise)[0] > 0.4
    assert james_stein(weights, noise, 1.0)[0] < 1 / noise**2
    clear = 10 * weights
    assert james_stein(clear, noise, 1.0)[0] > 0.9, "what is clear is believed"


def test_a_curved_direction_of_what_was_found_is_seen():
    """One direction of much curvature has most of the weights, and others most of the path."""
    rng, plan = np.random.default_rng(0), short(0.02)
    target = np.zeros((400, 1))
    target[0] = 1.0
    curvatures = np.full((400, 1), 0.2)
    curvatures[0] = 5.0
    made, found = descent(plan, curvatures, target, 1e-3, rng)
    along = made.along(found, plan.noise_at(made.curvature()))[0]
    assert along == pytest.approx(5.0, rel=0.2)
    assert found[0] * found_on(made, plan, found, 0.2)[0] < 1.1


@pytest.mark.parametrize("c", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.01, 0.3, 3.0])
def test_clipping_leaves_the_curvature_that_is_said(c, noise, rng):
    """By Stein's lemma, the mean of ``r . cut(r) / c`` is that of the derivative.

    It is a mean of 200,000 numbers whose deviation is at most 1.5: 0.03 is 9 of its own.
    """
    r = rng.normal(size=(200_000, c))
    lengths, most = np.linalg.norm(r, axis=1), np.sqrt(c) * auto.regression_clip(noise)
    mean = (lengths * np.minimum(lengths, most)).mean() / c
    assert curvature_left(noise, c) == pytest.approx(mean, abs=0.03)
    assert 0 < curvature_left(noise, c) <= 1


def test_gains_follow_what_is_expected_and_what_is_seen():
    """Noise of size 1 in 50 weights: what is expected decides, unless weights are far longer."""
    noise, none = np.full(1, 0.01), np.zeros((50, 1))
    hidden = np.full((50, 1), 0.01)  # as long as noise alone
    little, much = (float(gains(hidden, noise, 0.0, share)[0]) for share in (1e-4, 0.5))
    assert 0 < little < 0.1 < much < 0.9
    assert gains(none, noise, 0.0, 0.5)[0] < much
    assert gains(np.full((50, 1), 0.1), noise, 0.0, 1e-3)[0] > 0.95
    assert gains(hidden, np.zeros(1), 0.0, 0.5)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("n_samples", [300, 3000, 30_000, 300_000])
def test_other_columns_count_the_more_the_more_rows_there_are(n_samples):
    reach = n_samples / 4
    factor, error = auto.importance_of_rest(0.5, 0.02, 5, 55, n_samples, reach)
    more, less = auto.importance_of_rest(0.5, 0.02, 5, 55, 2 * n_samples, 2 * reach)
    assert factor <= more <= 1 and less < error
    assert auto.importance_of_rest(0.5, 0.2, 5, 55, n_samples, reach)[0] >= factor
