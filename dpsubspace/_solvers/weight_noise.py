"""What the noise of a fit leaves in the weights that it releases."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._solvers.descent import TrainingPlan

__all__ = ["WeightNoise", "noise_of_descent"]


@dataclass(frozen=True, eq=False)
class WeightNoise:
    """Covariance of the noise in released weights: that of a column is ``size^2 F F^T``.

    Parameters
    ----------
    sizes : ndarray of shape (c,)
        Size of the noise in each column of weights.
    factor : ndarray of shape (p, q) or None, default=None
        F, whose product with standard normal numbers is the noise of a column. None is the
        identity: noise that is the same in all directions.
    """

    sizes: np.ndarray
    factor: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightNoise) or (self.factor is None) != (other.factor is None):
            return False
        factors = self.factor is None or np.array_equal(self.factor, np.asarray(other.factor))
        return factors and np.array_equal(self.sizes, other.sizes)

    def std(self, rows: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Standard deviation, of shape (m, c), that noise leaves in the scores of rows (m, k).

        `at` are the places of their k entries among the p weights.
        """
        lifted = rows if self.factor is None else rows @ self.factor[at]
        return np.linalg.norm(lifted, axis=1)[:, None] * self.sizes

    def times(self, factors: float | np.ndarray) -> WeightNoise:
        """The same for weights that are multiplied by `factors`, one for each column."""
        return replace(self, sizes=self.sizes * factors)


def noise_of_descent(
    plan: TrainingPlan, each: float, n_outputs: int, directions: np.ndarray | None = None
) -> WeightNoise:
    """Noise that is left in the weights of a descent, at most.

    Parameters
    ----------
    plan : TrainingPlan
        What was run.
    each : float
        Standard deviation of the noise of an entry of each mean gradient.
    n_outputs : int
        Columns of weights.
    directions : ndarray of shape (k, p) or None, default=None
        Orthonormal directions that gradients were embedded on; None is the whole space.

    Notes
    -----
    Let e be how far the weights of a noisy descent are from those of the same descent without
    noise, along a direction in which the loss has the curvature h. To first order, a step makes
    of e and its velocity v

        ``v <- m v - lr (h (e + m v) + noise)``  and  ``e <- e + v``,

    which is linear in the noise. The mean of the last iterates is therefore off by the sum of
    ``a_t noise_t``, with the weights a of ``TrainingPlan.noise_at``. The noises of the steps are
    independent, so that the standard deviation is `each` times the norm of a.

    Curvature pulls weights back, whatever has moved them. As long as ``lr h`` is at most 1, the
    noise of a step moves no later iterate by more than it does where the curvature is the least
    that it can be, that of the penalty. This one is used here for all directions, since what
    the curvature is otherwise, only the private rows could tell. It is exact where the rows
    hardly vary or gradients are clipped, and an upper bound elsewhere.
    """
    size = each * float(np.linalg.norm(plan.noise_at(plan.alpha)))
    factor = None if directions is None else np.asarray(directions, np.float64).T
    return WeightNoise(np.full(n_outputs, size), factor)
