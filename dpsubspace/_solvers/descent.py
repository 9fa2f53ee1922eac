"""Iterative releases: the plan and the one training loop.

The loop asks a step for bounded sums, releases them and hands the noisy sums back. A
step therefore cannot forget noise or add it twice, and what the plan's event describes
is what the loop runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpsubspace._array import Array, chunk_map, namespace
from dpsubspace._gradients.clipping import GradientSource, PerExampleGradients
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotal, release
from dpsubspace._release.noise import NoiseSource

__all__ = ["Step", "TrainingPlan", "train"]


class Step(Protocol):
    """How the gradients of the records become one noisy gradient."""

    @property
    def budget_shares(self) -> tuple[float, ...]:
        """Share of a step's mu^2 for each released sum, adding up to 1."""
        ...

    def begin(self, params: Array, t: int) -> Any:
        """What step number `t` needs beside the records: from public data and released values."""
        ...

    def sums(self, state: Any, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        """Private sums over some of the records. Must not add noise."""
        ...

    def combine(self, state: Any, noisy: tuple[Array, ...]) -> Array:
        """Gradient of the summed loss from the released sums: postprocessing."""
        ...

    def noise_size(self, n_params: int) -> float:
        """Norm of the noise of a step, in units of its clip norm and of the multiplier."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Public parameters of a training run.

    Parameters
    ----------
    n_iter : int
        Steps, all of them charged.
    noise_multiplier : float
        Of each step; 0 is not private.
    sample_rate : float
        Probability with which each record enters a step's batch; 1 is the full batch.
    learning_rate : float
        Step size of Nesterov's accelerated gradient descent.
    momentum : float or None
        Its momentum. None lets it grow, and restarts it where it points uphill
        (O'Donoghue and Candes, 2015), which suits exact gradients.
    alpha : float
        Weight of the squared norm of the penalised parameters.
    average : bool
        Return the mean of the last quarter of the iterates instead of the last one.
    neighboring_relation : str
        Relation that the noise is scaled for.
    tolerance : float
        Stop when the largest entry of the released gradient is below.
    """

    n_iter: int
    noise_multiplier: float
    sample_rate: float
    learning_rate: float
    momentum: float | None
    alpha: float
    average: bool
    neighboring_relation: str
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        # Clipped gradients are bounded, so only the penalty can drive the iterates apart:
        # on alpha / 2 |w|^2 this descent is stable below the following product.
        momentum = 1.0 if self.momentum is None else self.momentum
        limit = 2 * (1 + momentum) / (1 + 2 * momentum)
        if self.learning_rate * self.alpha > limit:
            raise ValueError(
                f"`learning_rate`={self.learning_rate:.3g} and `alpha`={self.alpha:.3g} diverge:"
                f" their product must be at most {limit:.3g}. Use a smaller learning_rate."
            )


def train(
    plan: TrainingPlan,
    step: Step,
    source: GradientSource,
    params: np.ndarray,
    penalised: np.ndarray,
    *,
    noise: NoiseSource,
    after_step: Callable[[], bool] = lambda: False,
) -> Array:
    """Run `plan` from `params` and return the trained parameters.

    Parameters
    ----------
    plan : TrainingPlan
        What to run.
    step : Step
        Which sums to release and how to use them.
    source : GradientSource
        Gradients of the private records.
    params : array
        Public initial values, float64.
    penalised : array that broadcasts against `params`
        1 where `plan.alpha` applies, 0 elsewhere.
    noise : NoiseSource
        Source of the noise.
    after_step : callable, optional
        Called after each step without any private value; True ends the run (its cost
        stays that of the whole plan, an upper bound).

    Notes
    -----
    Privacy: every step draws a Poisson batch (or takes all records) and releases ``step.sums``
    over it, with a state that ``step.begin`` makes without the records; it uses them for
    nothing else. What a batch holds stays private: sums are divided by its *expected* size,
    and an empty one steps like any other. Sum i has multiplier
    ``plan.noise_multiplier / sqrt(share_i)``: jointly the sums of a step are one Gaussian of
    ``plan.noise_multiplier``, since squares of mu add up, and that inside the sampling, since
    they share the batch. Gradients are taken at points that earlier releases determine, so
    steps compose adaptively. Momentum, restarts, penalty, averaging and the tolerance see
    released gradients only and are postprocessing. Event: ``n_iter`` Gaussian mechanisms
    of ``plan.noise_multiplier``, sampled at ``plan.sample_rate``, whether or not the run ends
    early.
    """
    with chunk_map(source.data, len(source.chunks(None))) as over_chunks:

        def released(at: Array, t: int) -> Array:
            """Noisy gradient of the mean loss at `at`: all that is learned from the records."""
            batch, state = None, step.begin(at, t)
            if plan.sample_rate < 1:
                batch = batch_noise.poisson_sample(source.n_samples, plan.sample_rate)
            parts = over_chunks(
                lambda rows: step.sums(state, source.at(at, rows)), source.chunks(batch)
            )
            noisy_sums = tuple(
                release(
                    raw,
                    plan.noise_multiplier / math.sqrt(share),
                    step_noise,
                    neighboring_relation=plan.neighboring_relation,
                    sampled=batch is not None,
                )
                for raw, share in zip(_totals(parts), step.budget_shares, strict=True)
            )
            return step.combine(state, noisy_sums) / (plan.sample_rate * source.n_samples)

        step_noise, batch_noise = noise.child("steps"), noise.child("batches")
        return _descend(plan, released, params, penalised, after_step)


def _descend(
    plan: TrainingPlan,
    released: Callable[[Array, int], Array],
    params: Array,
    penalised: Array,
    after_step: Callable[[], bool],
) -> Array:
    """Nesterov's descent along released gradients: postprocessing."""
    xp = namespace(params)
    velocity = xp.zeros_like(params)
    total, n_averaged = xp.zeros_like(params), 0
    age = 0  # steps since the momentum last started from zero
    for t in range(plan.n_iter):
        momentum = age / (age + 3) if plan.momentum is None else plan.momentum
        ahead = params + momentum * velocity
        gradient = released(ahead, t) + plan.alpha * penalised * ahead
        velocity = momentum * velocity - plan.learning_rate * gradient
        params = params + velocity
        uphill = plan.momentum is None and float(xp.sum(velocity * gradient)) > 0
        age = 0 if uphill else age + 1
        if 4 * t >= 3 * plan.n_iter:
            total, n_averaged = total + params, n_averaged + 1
        stationary = plan.tolerance > 0 and float(xp.max(xp.abs(gradient))) < plan.tolerance
        if after_step() or stationary:
            break
    return total / n_averaged if plan.average and n_averaged else params


def _totals(parts: Iterable[tuple[BoundedSum, ...]]) -> tuple[BoundedSum, ...]:
    """Each of a step's sums over all chunks of its batch, added up as they come."""
    totals: list[DisjointTotal] = []
    for sums in parts:
        totals = totals or [DisjointTotal() for _ in sums]
        for total, part in zip(totals, sums, strict=True):
            total.add(part)
    return tuple(total.bounded_sum() for total in totals)
