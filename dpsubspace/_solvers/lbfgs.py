"""Training without privacy: the objective itself is minimised, by L-BFGS.

Nothing here clips or adds noise, so this is for ``epsilon=inf`` alone. Sums are taken over the
rows as training sees them, chunk by chunk, so that memory maps, sparse rows and devices work
as they do with privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

from dpsubspace._array import Array, as_like, namespace, to_numpy
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Loss
from dpsubspace._rows.chunks import over_chunks
from dpsubspace._rows.features import Features
from dpsubspace._rows.remote import added, made
from dpsubspace._solvers.descent import TrainingPlan

# The problem ------------------------------------------------------------------------------------
# What is trained: gradients of the records, and parameters to start from.


@dataclass(frozen=True)
class Problem:
    """Gradients of the records, and parameters to start from.

    `features` are those of a linear model. `public` gives gradients of public rows at the same
    parameters, and `directions` are those of their features, where gradients are embedded on
    them. `remaining` is how long training should be from this start, beside one from zero;
    `n_outputs` the columns of scores; `init` says what start that is.
    """

    source: Any
    start: Array
    penalised: Array
    n_outputs: int
    features: Features | None = None
    public: Any = None
    directions: Array | None = None
    remaining: float = 1.0
    init: str = "zero"


def linear_problem(
    loss: Loss,
    features: Features,
    targets: Array,
    n_outputs: int,
) -> Problem:
    penalised = np.zeros((features.width, 1))
    penalised[: features.X.shape[1]] = 1.0  # not the bias entries
    return Problem(
        made(LinearSource, loss, features, targets, n_outputs=n_outputs),
        as_like(np.zeros((features.width, n_outputs)), features.lengths),
        as_like(penalised, features.lengths),
        n_outputs,
        features,
    )


# Noise of weights -------------------------------------------------------------------------------
# What the noise of a fit leaves in the weights that it releases.

# Curvatures between which what noise leaves is interpolated.
_CURVATURES = 64


@dataclass(frozen=True, eq=False)
class WeightNoise:
    """Noise in released weights: in column k it is ``F diag(sizes[:, k])`` times standard noise."""

    # (c,): size of the noise in each column of weights, along all of the q columns of F or
    # each.
    sizes: np.ndarray
    factor: np.ndarray | None = None  # (p, q): F; None is the identity.
    # Descent that left noise of one size along all orthonormal columns of F, as much as it can.
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

    `each` is the standard deviation of the noise of an entry of each mean gradient. Gradients were
    embedded on `directions` (k, p), which are orthonormal; None is the whole space.

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


# L-BFGS -----------------------------------------------------------------------------------------

# Largest entry of the gradient at a minimum, for rows whose mean square norm is 1.
TOLERANCE = 1e-6

# Steps that L-BFGS remembers: five times its default takes half the iterations on images, and
# costs little beside a pass over the rows.
_MEMORY = 50


@dataclass(frozen=True)
class Minimum:
    weights: Array
    n_iter: int
    slope: float
    converged: bool


def minimise(
    source: LinearSource,
    start: Array,
    penalised: Array,
    *,
    alpha: float,
    max_iter: int,
    span: Array | None = None,
    after_step: Callable[[], bool] = lambda: False,
) -> Minimum:
    """Minimise the mean loss plus ``alpha / 2`` times the squared norm of penalised weights.

    `penalised` broadcasts against `start` (width, c): 1 where `alpha` applies, 0 elsewhere. `span`
    (k, width) are orthonormal directions along which weights may leave `start`; None is for all.
    `after_step` is called after each iteration; True ends the run, which then counts as converged.
    """
    variables = _Variables.of(source, start, span)
    flat, slope, used, stopped = variables.zero, math.inf, 0, False

    def ended(_: np.ndarray) -> None:
        nonlocal used, stopped
        used, stopped = used + 1, after_step()
        if stopped:
            raise StopIteration

    with over_chunks(source) as each:

        def objective(flat: np.ndarray, part: LinearSource) -> tuple[float, np.ndarray]:
            weights = variables.weights(flat)
            shrunk = penalised * weights
            value = alpha / 2 * float(namespace(weights).sum(shrunk * weights))
            gradient = alpha * shrunk
            found = each.total(lambda rows: part.objective(weights, rows), _LossAndSlope)
            value += found.loss / source.n_samples
            return value, variables.slope(gradient + found.slope / source.n_samples)

        # A loss with kinks is approached by smooth ones, each from the minimum of the last. Sums
        # in float32 may be too rough for the last digits: then float64 goes on.
        for loss in source.loss.smooth:
            slope = math.inf
            for part in (source.with_loss(loss), source.wide().with_loss(loss)):
                if slope <= TOLERANCE or used >= max_iter or stopped:
                    break
                found = optimize.minimize(
                    objective,
                    flat,
                    args=(part,),
                    jac=True,
                    method="L-BFGS-B",
                    callback=ended,
                    options={
                        "maxiter": max_iter - used,
                        "maxfun": 10**9,
                        "maxcor": _MEMORY,
                        "gtol": TOLERANCE,
                        "ftol": 0.0,
                    },
                )
                flat, slope = found.x, float(np.abs(found.jac).max())
    return Minimum(variables.weights(flat), used, slope, stopped or slope <= TOLERANCE)


@dataclass
class _LossAndSlope:
    loss: float = 0.0
    slope: Any = 0.0

    def add(self, part: tuple[float, Array]) -> None:
        self.loss, self.slope = self.loss + part[0], self.slope + part[1]

    def merge(self, other: _LossAndSlope) -> None:
        self.add((other.loss, other.slope))


@dataclass(frozen=True)
class _Variables:
    """What L-BFGS sees: how far weights are from their start, for rows of mean square norm 1."""

    start: Array
    span: Array | None
    unit: float

    @classmethod
    def of(cls, source: LinearSource, start: Array, span: Array | None) -> _Variables:
        square, n_rows = added(_squares, source.features)
        size = math.sqrt(square / max(1, n_rows))
        return cls(start, span, 1 / size if 0 < size < math.inf else 1.0)

    @property
    def zero(self) -> np.ndarray:
        height = self.start.shape[0] if self.span is None else self.span.shape[0]
        return np.zeros(height * self.start.shape[1])

    def weights(self, flat: np.ndarray) -> Array:
        step = as_like(self.unit * flat.reshape(-1, self.start.shape[1]), self.start)
        return self.start + (step if self.span is None else self.span.T @ step)

    def slope(self, gradient: Array) -> np.ndarray:
        gradient = gradient if self.span is None else self.span @ gradient
        return self.unit * to_numpy(gradient).ravel()


def _squares(features: Features) -> np.ndarray:
    return np.array([np.sum(to_numpy(features.norms()) ** 2), features.n_rows])
