"""Steps of private linear regression on many columns: what noise hides may not carry them off."""

import numpy as np
import pytest

from dpsubspace._solvers.regression import Path, whitening

RATE = 0.4  # the largest step size of the solver


@pytest.mark.parametrize(("p", "noise", "size"), [(400, 0.75, 28.0), (800, 1.4, 50.0)])
def test_steps_bear_a_direction_that_stands_out_of_noise(p, noise, size):
    """Offsets of all columns make one. Noise has more of the whole matrix, and W was about I.

    Noise of that size lifts an eigenvalue by ``noise^2 p / (2 size)``.
    """
    outer = np.ones((p, p)) / p
    moment, lifted = np.eye(p) + size * outer, size + noise**2 * p / (2 * size)
    W = whitening(np.eye(p) + lifted * outer, noise)
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
