"""What the noise of a fit leaves in the weights that it releases."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._solvers.descent import TrainingPlan

__all__ = ["WeightNoise", "noise_of_descent"]


# Curvatures between which what noise leaves is interpolated.
_CURVATURES = 64


@dataclass(frozen=True, eq=False)
class WeightNoise:
    """Noise in released weights: that of column k is ``F diag(sizes[:, k])`` times standard noise.

    Parameters
    ----------
    sizes : ndarray of shape (c,) or (q, c)
        Size of the noise in each column of weights, along all of the q columns of F or each.
    factor : ndarray of shape (p, q) or None, default=None
        F. None is the identity.
    plan : TrainingPlan or None, default=None
        Descent that left noise of one size along all orthonormal columns of F, as much as it can.
    """

    sizes: np.ndarray
    factor: np.ndarray | None = None
    plan: TrainingPlan | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightNoise) or (self.factor is None) != (other.factor is None):
            return False
        factors = self.factor is None or np.array_equal(self.factor, np.asarray(other.factor))
        return factors and np.array_equal(self.sizes, other.sizes) and self.plan == other.plan

    def std(self, rows: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Standard deviation, of shape (m, c), that noise leaves in the scores of rows (m, k).

        `at` are the places of their k entries among the p weights.
        """
        lifted = rows if self.factor is None else rows @ self.factor[at]
        if self.sizes.ndim == 1:
            return np.linalg.norm(lifted, axis=1)[:, None] * self.sizes
        return np.sqrt(lifted**2 @ self.sizes**2)

    def times(self, factors: float | np.ndarray) -> WeightNoise:
        """The same for weights that are multiplied by `factors`, one for each column."""
        return replace(self, sizes=self.sizes * factors)

    def pulled_back(self, curvature: np.ndarray, by_output: np.ndarray) -> WeightNoise:
        """The same where the loss of column k has the curvature ``by_output[k] * curvature``.

        `curvature` is a matrix of shape (p, p). Along its eigenvectors, weights go their own ways.
        """
        plan = self.plan
        assert plan is not None and self.sizes.ndim == 1
        own = curvature if self.factor is None else self.factor.T @ curvature @ self.factor
        values, vectors = np.linalg.eigh(own)
        found = np.maximum(values, 0.0)[:, None] * by_output
        top = max(float(found.max()), 1e-12)
        known = np.append(0.0, np.geomspace(1e-6 * top, top, _CURVATURES))
        left = [float(np.linalg.norm(plan.noise_at(plan.alpha + h))) for h in known]
        sizes = self.sizes * np.interp(found, known, left) / left[0]
        factor = vectors if self.factor is None else self.factor @ vectors
        return WeightNoise(sizes, factor)


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
    hardly vary or gradients are clipped, and an upper bound elsewhere. Where more is known,
    :meth:`WeightNoise.pulled_back` counts it.
    """
    size = each * float(np.linalg.norm(plan.noise_at(plan.alpha)))
    factor = None if directions is None else np.asarray(directions, np.float64).T
    return WeightNoise(np.full(n_outputs, size), factor, plan)
