"""Descent: how to train, and the one training loop.

The loop asks a step for bounded sums, has them released and hands the noisy sums back. A
step therefore cannot forget noise or add it twice, and what the budget's event describes
is what the loop runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Sizes
from dpsubspace._array import Array, namespace
from dpsubspace._gradients.clipping import GradientSource, PerExampleGradients
from dpsubspace._gradients.losses import Loss
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotals
from dpsubspace._release.releases import Releases
from dpsubspace._rows.chunks import over_chunks

__all__ = ["STEPS", "Descent", "Scale", "Step", "TrainingPlan", "noise_of_mean", "train"]

# Name of the releases of training.
STEPS = "steps"


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


# What "auto" stands for -----------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Public sizes of what is trained, which clip norm and step size follow from.

    Parameters
    ----------
    loss : Loss
        Loss of the scores.
    n_outputs : int
        Columns of scores.
    n_params : int or None
        Numbers that are trained; None where the number of features is not known.
    size : float
        Bound on the norm of a row; 1 where nothing bounds it.
    clip_norm : float
        Clip norm.
    largest : float
        Bound on the learning rate times the clip norm, for rows of size 1.
    shorter : float
        Length of the descent beside that of a linear model.
    growing : bool
        Whether momentum grows in place of more steps.
    """

    loss: Loss
    n_outputs: int
    n_params: int | None
    size: float
    clip_norm: float
    largest: float
    shorter: float = 1.0
    growing: bool = True

    def travel(
        self, n_samples: int, multiplier: float, noise_size: Callable[[int], float]
    ) -> float:
        """Length of the descent, for the noise of all steps and of one."""
        assert self.n_params is not None
        return self.shorter * _auto.travel(
            walk=self.loss.walk(self.n_outputs),
            noise_size=noise_size(self.n_params),
            n_samples=n_samples,
            multiplier=multiplier,
        )


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Parameters of descent; "auto" is what public sizes and the noise make of it.

    Parameters
    ----------
    alpha : float
        Weight of the squared norm of the penalised parameters, halved.
    n_iter : int or "auto"
        Steps, all of them charged.
    learning_rate, clip_norm : float or "auto"
        Step size, and bound on the gradient of one record.
    batch_size : int or None
        Expected size of the Poisson batch of a step; None takes all records.
    momentum : float or "auto"
        Of Nesterov's descent; above 0.9 it is what momentum grows to.
    average : bool
        Whether the mean of the last quarter of the steps is returned, with privacy.
    """

    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    batch_size: int | None = None
    momentum: float | str = "auto"
    average: bool = True

    def rate(self, n_samples: Callable[[], int]) -> float:
        """Probability with which a record enters a batch."""
        if self.batch_size is None:
            return 1.0
        n = n_samples()
        if self.batch_size > n:
            raise ValueError(
                f"`batch_size`={self.batch_size} is larger than the number of records"
                f" ({n}). Use None for the full batch, or a smaller number."
            )
        return self.batch_size / n

    def steps(self, rate: float, multiplier: float, sizes: Sizes, scale: Scale) -> int:
        """Number of steps with privacy, where `multiplier` is that of all of them together."""
        if self.n_iter != "auto":
            return int(self.n_iter)
        if rate < 1:
            # Batches of a small rate need more steps to see each record as often.
            return min(10_000, max(_auto.n_steps(0.0, 1.0), math.ceil(20 / rate)))
        if None in (sizes.n_samples, sizes.n_features, sizes.n_outputs) or multiplier == 0:
            return _auto.n_steps(0.0, 1.0)  # any number of full batches costs the same
        n_samples = sizes.known("n_samples", "the step size")
        way = scale.travel(n_samples, multiplier, math.sqrt)
        return _auto.n_steps(way, scale.largest, growing=scale.growing)

    def plan(
        self,
        budget: Budget,
        scale: Scale,
        n_samples: int,
        noise_size: Callable[[int], float] = math.sqrt,
        remaining: float = 1.0,
    ) -> TrainingPlan:
        """How to train, from public quantities."""
        momentum = _auto.MOMENTUM if budget.private else None
        if self.momentum != "auto":
            momentum = float(self.momentum)
        if self.learning_rate != "auto":
            learning_rate = float(self.learning_rate)
        elif not budget.private:
            learning_rate = 0.0  # set by what is learned from, which need not be private
        else:
            # A gradient of the clip norm moves a score by about as much, times the row's size.
            way = remaining * scale.travel(n_samples, budget.of_all(STEPS), noise_size)
            steps, units = budget.parts[STEPS], scale.clip_norm * scale.size
            n_iter, largest = steps.count, scale.largest
            if self.momentum == "auto" and steps.rate == 1 and scale.growing:
                momentum = _auto.momentum_for(way, largest, n_iter=n_iter)
            options = {"n_iter": n_iter, "momentum": momentum or 0.0}
            learning_rate = _auto.step_size(way, largest, **options) / units
            if self.alpha:
                learning_rate = min(learning_rate, 1 / self.alpha)
        return TrainingPlan(
            n_iter=budget.parts[STEPS].count,
            learning_rate=learning_rate,
            momentum=momentum,
            alpha=self.alpha,
            average=self.average and budget.private,
            tolerance=0.0 if budget.private else 1e-6,
        )


# Training -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Public parameters of a training run.

    Parameters
    ----------
    n_iter : int
        Most steps.
    learning_rate : float
        Step size of Nesterov's accelerated gradient descent.
    momentum : float or None
        Its momentum (see :func:`dpsubspace._auto.momentum_at`). None lets it grow, and restarts it
        where it points uphill (O'Donoghue and Candes, 2015), which suits exact gradients.
    alpha : float
        Weight of the squared norm of the penalised parameters.
    average : bool
        Return the mean of the last iterates instead of the last one.
    tolerance : float
        Stop when the largest entry of the released gradient is below.
    averaged : float
        Share of the iterates that the mean is of.
    """

    n_iter: int
    learning_rate: float
    momentum: float | None
    alpha: float
    average: bool
    tolerance: float = 0.0
    averaged: float = 0.25

    @property
    def first_averaged(self) -> int:
        """Step of which the iterate is the first of the mean."""
        return min(self.n_iter - 1, math.ceil((1 - self.averaged) * self.n_iter))

    @property
    def noise_of_mean(self) -> np.ndarray:
        """Weight that the mean of the last iterates gives to the noise of each step, (n_iter,)."""
        return self.noise_at(1.0)

    def noise_at(self, curvature: float) -> np.ndarray:
        """Weight of the noise of each step in what is returned, by curvature, (n_iter,)."""
        momentum, rate = self.momentum or 0.0, self.learning_rate
        first = self.first_averaged if self.average else self.n_iter - 1
        return noise_of_mean(self.n_iter, rate, momentum, first, curvature)

    def reached_at(self, curvature: float) -> float:
        """Share of the way from zero to the minimum that is gone, by curvature."""
        return -curvature * float(self.noise_at(curvature).sum())

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
    releases: Releases,
    *,
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
    releases : Releases
        Has as many "steps" as the plan, or more, on batches or on all records.
    after_step : callable, optional
        Called after each step without any private value; True ends the run (its cost
        stays that of the whole plan, an upper bound).

    Notes
    -----
    Privacy: every step draws a Poisson batch (or takes all records) and releases ``step.sums``
    over it, with a state that ``step.begin`` makes without the records; it uses them for
    nothing else. What a batch holds stays private: sums are divided by its *expected* size,
    and an empty one steps like any other. The sums of a step are released jointly, in the
    shares that the step says, and that inside the sampling, since they share the batch.
    Gradients are taken at points that earlier releases determine, so
    steps compose adaptively. Momentum, restarts, penalty, averaging and the tolerance see
    released gradients only and are postprocessing. Event: that of "steps" in the budget,
    whether or not the run ends early.
    """
    expected = releases.budget.parts[STEPS].fraction * source.n_samples
    with over_chunks(source) as each:

        def released(at: Array, t: int) -> Array:
            """Noisy gradient of the mean loss at `at`: all that is learned from the records."""
            state, batch = step.begin(at, t), releases.batch(STEPS, source.n_samples)
            totals = each.total(
                lambda rows: step.sums(state, source.at(at, rows)), DisjointTotals, batch
            )
            noisy_sums = releases.jointly(STEPS, totals.bounded_sums(), step.budget_shares)
            return step.combine(state, noisy_sums) / expected

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
        momentum = age / (age + 3)
        if plan.momentum is not None:
            momentum = _auto.momentum_at(t, plan.momentum, n_iter=plan.n_iter)
        ahead = params + momentum * velocity
        gradient = released(ahead, t) + plan.alpha * penalised * ahead
        velocity = momentum * velocity - plan.learning_rate * gradient
        params = params + velocity
        uphill = plan.momentum is None and float(xp.sum(velocity * gradient)) > 0
        age = 0 if uphill else age + 1
        if t >= plan.first_averaged:
            total, n_averaged = total + params, n_averaged + 1
        stationary = plan.tolerance > 0 and float(xp.max(xp.abs(gradient))) < plan.tolerance
        if after_step() or stationary:
            break
    return total / n_averaged if plan.average and n_averaged else params


def noise_of_mean(
    n_iter: int, learning_rate: float, momentum: float, first: int, curvature: float = 1.0
) -> np.ndarray:
    """Weight of the noise of each gradient in the mean of the iterates from `first` on, (n_iter,).

    Along a direction in which the loss has this curvature, which is 1 on white rows: what the
    noise of a step does to later iterates is followed one step at a time, for all steps at once.
    """
    weights, velocity, total = np.zeros(n_iter), np.zeros(n_iter), np.zeros(n_iter)
    for t in range(n_iter):
        held = _auto.momentum_at(t, momentum, n_iter=n_iter)
        gradient = curvature * (weights + held * velocity)
        gradient[t] += 1.0
        velocity = held * velocity - learning_rate * gradient
        weights = weights + velocity
        if t >= first:
            total += weights
    return total / (n_iter - first)
