"""Training without privacy: L-BFGS minimises the objective itself.

Nothing here clips or adds noise, so this is for ``epsilon=inf`` alone. Sums are taken over the
rows as training sees them, chunk by chunk, so that memory maps, sparse rows and devices work
as they do with privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.ground.arrays import Array, as_like, namespace, to_numpy
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.rows.remote import sum_over_parts

# L-BFGS -----------------------------------------------------------------------------------------

# Largest entry of the gradient at a minimum, for rows whose mean square norm is 1.
TOLERANCE = 1e-6

# Steps that L-BFGS remembers: five times its default halves the number of iterations on images, and
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

        # A loss with kinks is approximated by smooth ones, each started from the minimum of the
        # last. Sums in float32 may be too rough for the last digits: then training continues in
        # float64.
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
    """Variables of L-BFGS: moves of weights from their start, for rows of mean square norm 1."""

    start: Array
    span: Array | None
    unit: float

    @classmethod
    def of(cls, source: LinearSource, start: Array, span: Array | None) -> _Variables:
        squares = to_numpy(source.features.norms()) ** 2
        size = math.sqrt(sum_over_parts(np.sum, squares) / max(1, len(squares)))
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
