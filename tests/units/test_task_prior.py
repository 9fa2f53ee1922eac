"""What models of tasks are like, by public tasks."""

import numpy as np
import pytest

from dpsubspace._core.public.tasks import task_prior
from dpsubspace._core.rows.affine import Affine


@pytest.mark.parametrize("intercept", [True, False])
def test_mean_covariance_and_noise_of_tasks_are_found(intercept):
    """Within eight deviations of what weights that are fitted to each task alone have.

    These have a covariance of at most that of the tasks and .49 / 7 of the identity (12 rows, four
    weights), and the noise has 3000 times 8 degrees of freedom.
    """
    rng, d = np.random.default_rng(0), 3
    mean, root = np.array([1.0, 2.0, 0.0, -1.0]), np.tril(rng.normal(size=(d + 1, d + 1)))
    if not intercept:
        mean[0], root[0] = 0.0, 0.0
    affine = Affine(np.array([5.0, 0.0, -2.0]) * intercept, np.array([1.0, 10.0, 0.1]))
    sets, targets = [], []
    for _ in range(3000):
        rows = rng.normal(size=(12, d))
        coef = mean + root @ rng.normal(size=d + 1)
        targets.append(coef[0] + rows @ coef[1:] + 0.7 * rng.normal(size=12))
        sets.append(rows / affine.weights + affine.mean)
    found = task_prior(sets, targets, affine, intercept=intercept)
    each = root @ root.T + 0.49 / 7 * np.eye(d + 1)
    squares = np.diag(each)
    assert (np.abs(found.mean - mean) < 8 * np.sqrt(squares / 3000)).all()
    most = 8 * np.sqrt((np.outer(squares, squares) + each**2) / 3000)
    assert (np.abs(found.covariance - root @ root.T) < most).all()
    assert found.noise == pytest.approx(0.49, rel=8 * np.sqrt(2 / 24_000))
    scaled = found.in_units(3.0, 2.0)
    assert scaled.mean[0] == pytest.approx((found.mean[0] - 3) / 2)
    np.testing.assert_allclose(scaled.mean[1:], found.mean[1:] / 2)
    np.testing.assert_allclose(scaled.covariance, found.covariance / 4)


def test_tasks_of_few_rows_and_of_exact_targets_have_a_prior():
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(2, 5)) for _ in range(3)]
    targets = [rows @ np.ones(5) for rows in sets]
    found = task_prior(sets, targets, Affine.identity(5), intercept=True)
    assert np.isfinite(found.mean).all() and found.noise > 0
    assert (np.linalg.eigvalsh(found.covariance) > 0).all()
