"""Descent: how to train, its steps, the one training loop, and the noise that it leaves.

The loop requests bounded sums from a step, has them released and hands the noisy sums back. A step
therefore cannot forget noise or add it twice, and the event of the budget describes the loop that
runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.gradients.clipping import (
    GradientSource,
    PerExampleGradients,
    clipped_sum,
    in_parts,
    shrink_factors,
)
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import EPS, Array, as_like, at_least, namespace, to_numpy
from dpsubspace._core.ground.forms import Flag, Maybe, Number, NumberArray, Record, Whole
from dpsubspace._core.public.subspace import Embedded, Subspace
from dpsubspace._core.release.mechanisms import BoundedSum, DisjointTotals, vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.rows.features import Features

# Steps ------------------------------------------------------------------------------------------
# Steps of training: which sums of gradients are released and how they become an update.
#
# A step is added here and nowhere else. It clips and sums;
# :func:`~dpsubspace._core.solvers.descent.train` has the sums released, so that a step can neither
# forget it nor add it twice.

# Smallest reported length of an embedding, relative to its gradient.
_EMBEDDING_FLOOR = 0.05


@dataclass(frozen=True, kw_only=True)
class FlatStep:
    """DP-SGD (Abadi et al., 2016): one clipped sum of gradients."""

    clip_norm: float  # Bound on one gradient
    budget_shares: tuple[float, ...] = (1.0,)  # One sum, one share

    def begin(self, params: Array, t: int) -> None:
        """Return nothing: this step needs no public state."""

    def sums(self, state: None, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        return (clipped_sum(grads, self.clip_norm),)

    def combine(self, state: None, noisy: tuple[Array, ...]) -> Array:
        return noisy[0]

    def noise_size(self, n_params: int) -> float:
        return math.sqrt(n_params)


@dataclass(frozen=True, kw_only=True)
class RecordedStep(FlatStep):
    points: list[np.ndarray] = field(default_factory=list)
    gradients: list[np.ndarray] = field(default_factory=list)

    def begin(self, params: Array, t: int) -> None:
        self.points.append(to_numpy(params))

    def combine(self, state: None, noisy: tuple[Array, ...]) -> Array:
        self.gradients.append(to_numpy(noisy[0]))
        return noisy[0]


@dataclass(frozen=True, kw_only=True)
class GEPStep:
    """Gradient embedding perturbation (Yu, Zhang, Chen, Liu, 2021).

    A gradient g is split into its embedding ``E = B g``, k coordinates on the top directions B of
    public gradients at the same parameters, and its residual ``g - B' E``. The sums of both are
    released, each with noise in proportion to its norm bound.

    Proof of the bounds. B depends on public rows, public or drawn labels and on parameters that
    earlier releases determine: given those it is a constant. A record's parts are functions of its
    own gradient. ``min(1, S1 / |E|) E`` has norm at most S1 and
    ``min(1, S2 / |g - B'E|) (g - B'E)`` at most S2; removing the record moves the two sums by that,
    replacing it by twice that. With shares s and 1 - s of mu^2 the two releases are one Gaussian
    mechanism with the step's multiplier, since they are released on one batch.

    Norms are never rounded down. The squared norm of the residual is ``|g|^2 - |E|^2`` plus what
    rounding can hide (:class:`~dpsubspace._core.public.subspace.Subspace`), and the norm is at
    least a floor, a public share of ``|g|``: residuals are summed as whole gradients less a lift of
    summed embeddings, whose terms are up to ``1 / floor`` times as long, and round like that. A
    floor clips a little more where a residual is nearly nothing, which costs no privacy.

    B need not be exactly orthonormal: nothing above uses that it is.
    """

    # Directions at given parameters, for the step with a given number.
    subspace: Callable[[Array, int], Subspace]
    clip_norm: float  # Bound on an embedding, of all groups together
    residual_norm: float  # Bound on a residual
    residual: bool = True  # False releases embeddings only (B-GEP)
    embedding_share: float = 0.5  # Share of the budget (of mu^2) of the embedding
    n_samples: int  # Number of records, public
    n_components: int  # Number of directions, for the size of the noise

    def __getstate__(self) -> dict[str, Any]:
        # For remote rows the directions are found here, and sent with the state of a step.
        return {**vars(self), "subspace": None}

    @property
    def budget_shares(self) -> tuple[float, ...]:
        if self.residual:
            return (self.embedding_share, 1 - self.embedding_share)
        return (1.0,)

    def begin(self, params: Array, t: int) -> Subspace:
        return self.subspace(params, t)

    def sums(self, state: Subspace, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        parts = _Parts.of(state, grads)
        weights = shrink_factors(parts.lengths, self.clip_norm) * parts.counts
        embedding = vector_sum(
            parts.embedded.weighted_sum(weights),
            self.clip_norm,
            (grads.wide_slack() + self._regrouped(state)) / _EMBEDDING_FLOOR,
        )
        if not self.residual:
            return (embedding,)
        weights = shrink_factors(parts.rests, self.residual_norm) * parts.counts
        residual = parts.residual_sum(state, grads, weights)
        return embedding, vector_sum(residual, self.residual_norm, self._slack(state, grads))

    def combine(self, state: Subspace, noisy: tuple[Array, ...]) -> Array:
        """Lift the embedding; add the residual without its noise along the directions."""
        if not self.residual:
            return state.lift(noisy[0])
        embedding, residual = noisy
        return residual + state.lift(embedding - state.coordinates(residual))

    def noise_size(self, n_params: int) -> float:
        inside, outside = float(self.n_components), float(max(0, n_params - self.n_components))
        if not self.residual:
            return math.sqrt(inside)
        ratio = self.residual_norm / self.clip_norm if self.clip_norm < math.inf else 1.0
        inside, outside = inside / self.embedding_share, outside / (1 - self.embedding_share)
        return math.sqrt(inside + ratio**2 * outside)

    def _regrouped(self, state: Subspace) -> float:
        """Return how much rounding of all coordinates can move their sum, in units of a gradient.

        In a batch without one record the other records have other positions, where products may
        round otherwise.
        """
        return 2 * self.n_samples * state.rounding

    def _slack(self, state: Subspace, grads: PerExampleGradients) -> float:
        """Return the slack of a sum of residuals, including the lift of their embeddings."""
        return (grads.slack() + 2 * self._regrouped(state)) / _residual_floor(grads)


@dataclass(frozen=True)
class _Parts:
    embedded: Embedded
    lengths: Array  # Lengths of embeddings, never too small
    rests: Array  # Lengths of residuals, likewise
    counts: Array  # 0 for rows that do not count, else the row's part of its record

    @classmethod
    def of(cls, space: Subspace, grads: PerExampleGradients) -> _Parts:
        norms, embedded = grads.norms(), space.embed(grads)
        xp, squares = namespace(norms), embedded.squares()
        norms = xp.astype(norms, xp.float64)
        counts = xp.isfinite(norms) & (norms < 1e140) & xp.isfinite(squares)
        norms, squares = (xp.where(counts, x, xp.zeros_like(x)) for x in (norms, squares))
        lengths = xp.sqrt(squares) * (1 + (space.n_components + 8) * EPS)
        rests = xp.sqrt(at_least(norms**2 - squares, 0.0) + space.margin * norms**2)
        return cls(
            embedded,
            xp.maximum(lengths, _EMBEDDING_FLOOR * norms),
            xp.maximum(rests * (1 + 8 * EPS), _residual_floor(grads) * norms),
            in_parts(grads, xp.astype(counts, xp.float64)),
        )

    def residual_sum(self, space: Subspace, grads: PerExampleGradients, weights: Array) -> Array:
        return grads.weighted_sum(weights) - space.lift(self.embedded.weighted_sum(weights))


def _residual_floor(grads: PerExampleGradients) -> float:
    """Return the floor of residuals: their rounding then adds at most about a hundredth."""
    return min(0.25, max(0.01, 100 * grads.slack()))


@dataclass(frozen=True, kw_only=True)
class MirrorStep:
    """A step mixed with the gradient of labelled public rows (PDA-DPMD).

    The first-order form of mirror descent with the public loss for a mirror map (Amid et
    al., 2022): ``a_t g + (1 - a_t) g_public`` with ``a_t = cos(pi t / (2 n_iter))``, so that
    private gradients decide at first and public ones at last.
    """

    step: Any  # How private gradients are released. Mixing them is postprocessing, at no cost.
    # Mean gradient of the public rows at given parameters.
    public_gradient: Callable[[Array], Array]
    batch_size: float  # Expected number of private records in a batch
    n_iter: int  # Steps of the run

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "public_gradient": None}  # evaluated here

    @property
    def budget_shares(self) -> tuple[float, ...]:
        return self.step.budget_shares

    def begin(self, params: Array, t: int) -> tuple[Any, float, Array]:
        weight = math.cos(math.pi * t / (2 * self.n_iter))
        return self.step.begin(params, t), weight, self.public_gradient(params)

    def sums(self, state: Any, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        return self.step.sums(state[0], grads)

    def combine(self, state: Any, noisy: tuple[Array, ...]) -> Array:
        inner, weight, public = state
        return weight * self.step.combine(inner, noisy) + (1 - weight) * self.batch_size * public

    def noise_size(self, n_params: int) -> float:
        return self.step.noise_size(n_params)


# Descent ----------------------------------------------------------------------------------------

# Name of the releases of training.
STEPS = "steps"


class Step(Protocol):
    """A step, which turns the gradients of the records into one noisy gradient."""

    @property
    def budget_shares(self) -> tuple[float, ...]:
        """Share of a step's mu^2 for each released sum, adding up to 1."""
        ...

    def begin(self, params: Array, t: int) -> Any:
        """Return the public state of step number `t`: from public data and released values."""
        ...

    def sums(self, state: Any, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        """Return private sums over some of the records. Must not add noise."""
        ...

    def combine(self, state: Any, noisy: tuple[Array, ...]) -> Array:
        """Return the gradient of the summed loss from the released sums: postprocessing."""
        ...

    def noise_size(self, n_params: int) -> float:
        """Return the norm of a step's noise, in units of its clip norm and of the multiplier."""
        ...


# Meaning of "auto" ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Public sizes of the trained model, from which clip norm and step size follow."""

    loss: Loss  # Loss of the scores
    n_outputs: int  # Columns of scores
    n_params: int | None  # Trained numbers; None if the number of features is not known
    size: float  # Bound on the norm of a row; 1 if there is no bound
    clip_norm: float  # Clip norm
    largest: float  # Bound on the learning rate times the clip norm, for rows of size 1
    shorter: float = 1.0  # Length of the descent, relative to that of a linear model
    growing: bool = True  # Whether momentum grows instead of the number of steps
    more_steps: float = 1.0  # Factor of the usual number of steps

    def travel(
        self, n_samples: int, multiplier: float, noise_size: Callable[[int], float]
    ) -> float:
        assert self.n_params is not None
        return self.shorter * auto.travel(
            walk=self.loss.walk(self.n_outputs),
            noise_size=noise_size(self.n_params),
            n_samples=n_samples,
            multiplier=multiplier,
        )


@dataclass(frozen=True, kw_only=True)
class Descent:
    alpha: float = 1e-6  # Weight of the squared norm of the penalised parameters, halved
    n_iter: int | str = "auto"  # Steps, all of them charged
    learning_rate: float | str = "auto"  # Step size, and bound on the gradient of one record
    clip_norm: float | str = "auto"
    # Expected size of the Poisson batch of a step; None uses all records.
    batch_size: int | None = None
    momentum: float | str = "auto"  # Of Nesterov's descent; above 0.9 it is the largest momentum
    # Whether a private fit returns the mean of the last quarter of the iterates.
    average: bool = True

    def rate(self, n_samples: Callable[[], int]) -> float:
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
        if self.n_iter != "auto":
            return int(self.n_iter)
        if rate < 1:
            # Batches with a small rate need more steps to see each record as often.
            return min(10_000, max(auto.n_steps(0.0, 1.0), math.ceil(20 / rate)))
        if None in (sizes.n_samples, sizes.n_features, sizes.n_outputs) or multiplier == 0:
            return auto.n_steps(0.0, 1.0)  # any number of full batches costs the same
        n_samples = sizes.known("n_samples", "the step size")
        way = scale.travel(n_samples, multiplier, math.sqrt)
        found = auto.n_steps(way, scale.largest, growing=scale.growing)
        return round(scale.more_steps * found)

    @property
    def chosen(self) -> bool:
        """Whether public sizes set the number and length of the steps, clip norm and momentum."""
        asked = self.n_iter, self.learning_rate, self.clip_norm, self.momentum
        return self.batch_size is None and set(asked) == {"auto"}

    def plan(
        self,
        budget: Budget,
        scale: Scale,
        n_samples: int,
        noise_size: Callable[[int], float] = math.sqrt,
        remaining: float = 1.0,
    ) -> TrainingPlan:
        momentum = auto.MOMENTUM if budget.private else None
        if self.momentum != "auto":
            momentum = float(self.momentum)
        if self.learning_rate != "auto":
            learning_rate = float(self.learning_rate)
        elif not budget.private:
            learning_rate = 0.0  # set by the training data, which need not be private
        else:
            # A gradient as long as the clip norm moves a score by about the norm, times the row's
            # size.
            way = remaining * scale.travel(
                n_samples, budget.per_record_multiplier(STEPS), noise_size
            )
            steps, units = budget.parts[STEPS], scale.clip_norm * scale.size
            n_iter, largest = steps.count, scale.largest
            if self.momentum == "auto" and steps.rate == 1 and scale.growing:
                momentum = auto.momentum_for(way, largest, n_iter=n_iter)
            options = {"n_iter": n_iter, "momentum": momentum or 0.0}
            learning_rate = auto.step_size(way, largest, **options) / units
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
    n_iter: int  # Largest number of steps
    learning_rate: float  # Step size of Nesterov's accelerated gradient descent
    # Its momentum (see :func:`dpsubspace._core.ground.auto.momentum_at`). With None it grows, and
    # restarts when it points uphill (O'Donoghue and Candes, 2015), which suits exact gradients.
    momentum: float | None
    alpha: float  # Weight of the squared norm of the penalised parameters
    average: bool  # Return the mean of the last iterates instead of the last one
    tolerance: float = 0.0  # Stop when the largest entry of the released gradient is below
    averaged: float = 0.25  # Share of the iterates that are averaged

    @property
    def first_averaged(self) -> int:
        return min(self.n_iter - 1, math.ceil((1 - self.averaged) * self.n_iter))

    @property
    def noise_of_mean(self) -> np.ndarray:
        """Weight of the noise of each step in the mean of the last iterates, (n_iter,)."""
        return self.noise_at(1.0)

    def noise_at(self, curvature: float) -> np.ndarray:
        """Return the weight of each step's noise in the result at this curvature, (n_iter,)."""
        momentum, rate = self.momentum or 0.0, self.learning_rate
        first = self.first_averaged if self.average else self.n_iter - 1
        return noise_of_mean(self.n_iter, rate, momentum, first, curvature)

    def noise_before(self, t: int, curvature: float | None = None) -> np.ndarray:
        """Return the weight of the noise of each earlier step in the weights before step `t`, (t,).

        The curvature is that of the penalty if None is given.
        """
        momentum, rate = self.momentum or 0.0, self.learning_rate
        curvature = self.alpha if curvature is None else curvature
        return noise_of_mean(self.n_iter, rate, momentum, t - 1, curvature, stop=t)[:t]

    def noise_beside(self, curvatures: np.ndarray, usual: float) -> np.ndarray:
        """Return the noise size in the result at these curvatures, over that at the `usual` one."""
        grid = np.linspace(0.0, 1.0, 33)
        sizes = [float(np.linalg.norm(self.noise_at(one))) for one in [usual, *grid]]
        return np.interp(curvatures, grid, sizes[1:]) / sizes[0]

    def reached_at(self, curvature: float) -> float:
        """Return the share of the way from zero to the minimum that the descent has gone."""
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
    relevance: Any = None,
    after_step: Callable[[], bool] = lambda: False,
) -> Array:
    """Run `plan` from `params` and return the trained parameters.

    `params` are public initial values in float64, and `penalised`, which broadcasts against them,
    is 1 where `plan.alpha` applies and 0 elsewhere. The budget has as many "steps" as the plan, or
    more, on batches or on all records. `relevance` weights columns by earlier released numbers, and
    may add columns (:class:`~dpsubspace._core.solvers.relevance.Relevance`). `after_step` is called
    after each step without any private value; True ends the run (its cost stays that of the whole
    plan, an upper bound).

    Privacy: every step draws a Poisson batch (or uses all records) and releases ``step.sums`` over
    it, with a state that ``step.begin`` makes without the records; the step uses the records for
    nothing else. The number of records in a batch stays private: sums are divided by its *expected*
    size, and an empty batch steps like any other. The sums of a step are released jointly, in the
    shares that the step states, and inside the sampling, since they share the batch. Gradients are
    computed at points that earlier releases determine, and so are added columns and the weights of
    columns: steps compose adaptively, and the bound of
    :func:`~dpsubspace._core.gradients.clipping.clipped_sum` holds for any features. Momentum,
    restarts, penalty, averaging and the tolerance see released gradients only and are
    postprocessing. Event: that of "steps" in the budget, whether or not the run ends early.
    """
    expected = releases.budget.parts[STEPS].fraction * source.n_samples
    whole: Any = source
    with ExitStack() as visits:
        each, seen = visits.enter_context(over_chunks(whole)), whole
        shrink = plan.alpha * penalised

        def released(at: Array, t: int) -> Array:
            """Return the noisy gradient of the mean loss at `at`: all that records contribute.

            The gradient of the penalty, which is public, is added.
            """
            state, batch = step.begin(at, t), releases.batch(STEPS, source.n_samples)
            totals = each.total(
                lambda rows: step.sums(state, seen.at(at, rows)), DisjointTotals, batch
            )
            noisy_sums = releases.jointly(STEPS, totals.bounded_sums(), step.budget_shares)
            return step.combine(state, noisy_sums) / expected + shrink * at

        def turned(t: int, *state: Array) -> tuple[Array, ...]:
            """Return weights and their velocity for the columns as they are from step `t` on."""
            nonlocal whole, seen, each, shrink
            if relevance is None or (found := relevance.turn(t, *state)) is None:
                return state
            if len(found[0]) > len(state[0]):
                whole = whole.widened(relevance.added)
                each = visits.enter_context(over_chunks(whole))
            seen = whole  # values cached for the earlier weights are not kept
            seen, shrink = whole.weighed(relevance.columns), relevance.penalty(found[0])
            return found

        found = _descend(plan, released, turned, params, after_step)
    return found if relevance is None else relevance.unweighed(found)


def _descend(
    plan: TrainingPlan,
    released: Callable[[Array, int], Array],
    turned: Callable[..., tuple[Array, ...]],
    params: Array,
    after_step: Callable[[], bool],
) -> Array:
    """Run Nesterov's descent along released gradients: postprocessing."""
    xp = namespace(params)
    velocity = xp.zeros_like(params)
    total, n_averaged, first = 0.0, 0, plan.first_averaged
    age = 0  # steps since the momentum last started from zero
    for t in range(plan.n_iter):
        params, velocity = turned(t, params, velocity)
        momentum = age / (age + 3)
        if plan.momentum is not None:
            momentum = auto.momentum_at(t, plan.momentum, n_iter=plan.n_iter)
        ahead = params + momentum * velocity
        gradient = released(ahead, t)
        velocity = momentum * velocity - plan.learning_rate * gradient
        params = params + velocity
        uphill = plan.momentum is None and float(xp.sum(velocity * gradient)) > 0
        age = 0 if uphill else age + 1
        if t >= first:
            total, n_averaged = total + params, n_averaged + 1
        stationary = plan.tolerance > 0 and float(xp.max(xp.abs(gradient))) < plan.tolerance
        if after_step() or stationary:
            break
    return total / n_averaged if plan.average and n_averaged else params


@lru_cache(maxsize=256)  # later fits of the same sizes need the same result
def noise_of_mean(
    n_iter: int,
    learning_rate: float,
    momentum: float,
    first: int,
    curvature: float = 1.0,
    stop: int | None = None,
) -> np.ndarray:
    """Return the weight of each gradient's noise in the mean of the iterates from `first` on.

    The shape is (n_iter,). The last iterate of the mean is before `stop`, if that is given.

    The weights hold along a direction in which the loss has this curvature (1 on white rows). The
    effect of a step's noise on later iterates is followed one step at a time, for all steps at
    once. The array is read-only.
    """
    weights, velocity, total = np.zeros(n_iter), np.zeros(n_iter), np.zeros(n_iter)
    stop = n_iter if stop is None else stop
    for t in range(stop):
        held = auto.momentum_at(t, momentum, n_iter=n_iter)
        gradient = curvature * (weights + held * velocity)
        gradient[t] += 1.0
        velocity = held * velocity - learning_rate * gradient
        weights = weights + velocity
        if t >= first:
            total += weights
    found = total / (stop - first)
    found.flags.writeable = False
    return found


# Problems ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Gradients of the records, and parameters to start from.

    `features` are those of a linear model. `public` gives gradients of public rows at the same
    parameters, and `directions` are those of their features, if gradients are embedded on them.
    `remaining` is how long training should be from this start, relative to training from zero;
    `n_outputs` is the number of columns of scores; `init` names the kind of start, and `mirrored`
    states whether the gradient of public rows is mixed in.
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
    mirrored: bool = False


def linear_problem(
    loss: Loss,
    features: Features,
    targets: Array,
    n_outputs: int,
) -> Problem:
    """Return the problem of a linear model that starts from zero."""
    penalised = np.zeros((features.width, 1))
    penalised[: features.X.shape[1]] = 1.0  # not the bias entries
    return Problem(
        LinearSource.of(loss, features, targets, n_outputs=n_outputs),
        as_like(np.zeros((features.width, n_outputs)), features.lengths),
        as_like(penalised, features.lengths),
        n_outputs,
        features,
    )


# Noise in the weights that a fit releases -------------------------------------------------------

# Number of curvatures between which the noise in weights is interpolated.
_CURVATURES = 64


@dataclass(frozen=True, eq=False)
class WeightNoise:
    """Noise in released weights: in column k it is ``F diag(sizes[:, k])`` times standard noise."""

    # (c,): size of the noise in each column of weights, along all of the q columns of F; or (q, c),
    # along each of them.
    sizes: np.ndarray
    # (p, q): F, or (p,), its diagonal; None is the identity.
    factor: np.ndarray | None = None
    # Descent that left noise of one size along all orthonormal columns of F, as an upper bound.
    plan: TrainingPlan | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeightNoise) or (self.factor is None) != (other.factor is None):
            return False
        factors = self.factor is None or np.array_equal(self.factor, np.asarray(other.factor))
        return factors and np.array_equal(self.sizes, other.sizes) and self.plan == other.plan

    def std(self, rows: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the standard deviation, (m, c), of the noise in the scores of rows (m, k).

        `at` are the positions of the k entries of a row among the p weights.
        """
        lifted = rows
        if self.factor is not None:
            factor = self.factor[at]
            lifted = rows * factor if factor.ndim == 1 else rows @ factor
        if self.sizes.ndim == 1:
            return np.linalg.norm(lifted, axis=1)[:, None] * self.sizes
        return np.sqrt(lifted**2 @ self.sizes**2)

    def drawn(self, rng: np.random.Generator, c: int, p: int, number: int) -> np.ndarray:
        """Return draws of the noise, (p, c, number); p counts if neither sizes nor F imply it."""
        factor, sizes = self.factor, self.sizes
        if factor is not None or sizes.ndim == 2:
            p = len(sizes) if factor is None else factor.shape[-1]
        draws = rng.standard_normal((p, c, number)) * np.atleast_2d(sizes)[:, :, None]
        if factor is None:
            return draws
        return factor[:, None, None] * draws if factor.ndim == 1 else np.tensordot(factor, draws, 1)

    def times(self, factors: float | np.ndarray) -> WeightNoise:
        """Return the noise of weights that are multiplied by `factors`, one for each column."""
        return replace(self, sizes=self.sizes * factors)

    def pulled_back(self, curvature: np.ndarray, by_output: np.ndarray) -> WeightNoise:
        """Return the noise if the loss of column k has the curvature ``by_output[k] * curvature``.

        `curvature` is a matrix of shape (p, p). Along each of its eigenvectors, weights evolve
        independently.
        """
        plan = self.plan
        assert plan is not None and self.sizes.ndim == 1
        own, factor = curvature, self.factor
        if factor is not None:
            factor = np.diag(factor) if factor.ndim == 1 else factor
            own = factor.T @ curvature @ factor
        values, vectors = np.linalg.eigh(own)
        found = np.maximum(values, 0.0)[:, None] * by_output
        top = max(float(found.max()), 1e-12)
        known = np.append(0.0, np.geomspace(1e-6 * top, top, _CURVATURES))
        left = [float(np.linalg.norm(plan.noise_at(plan.alpha + h))) for h in known]
        sizes = self.sizes * np.interp(found, known, left) / left[0]
        factor = vectors if factor is None else factor @ vectors
        return WeightNoise(sizes, factor)


WEIGHT_NOISE_FORM = Record(
    WeightNoise,
    sizes=NumberArray(("noises",), ("noise", "noises"), low=0, high=math.inf),
    factor=Maybe(NumberArray(("weights",), ("weights", "noise"), low=-math.inf, high=math.inf)),
    plan=Maybe(
        Record(
            TrainingPlan,
            n_iter=Whole(1, 10**9),
            learning_rate=Number(0),
            momentum=Maybe(Number(0, 1)),
            alpha=Number(0),
            average=Flag(),
            tolerance=Number(0),
            averaged=Number(0, 1),
        )
    ),
)


def noise_of_descent(
    plan: TrainingPlan,
    each: float,
    n_outputs: int,
    directions: np.ndarray | None = None,
    relevance: Any = None,
) -> WeightNoise:
    """Return an upper bound on the noise in the weights of a descent.

    `each` is the standard deviation of the noise of an entry of each mean gradient. Gradients were
    embedded on `directions` (k, p), which are orthonormal; None is the whole space. `relevance` has
    weighted the columns.

    Let e be the difference between the weights of a noisy descent and those of the same descent
    without noise, along a direction in which the loss has the curvature h. To first order, a step
    changes e and its velocity v to

        ``v <- m v - lr (h (e + m v) + noise)``  and  ``e <- e + v``,

    which is linear in the noise. The mean of the last iterates is therefore off by the sum of
    ``a_t noise_t``, with the weights a of ``TrainingPlan.noise_at``. The noises of the steps are
    independent, so that the standard deviation is `each` times the norm of a.

    Curvature pulls weights back, whatever has moved them. As long as ``lr h`` is at most 1, the
    noise of a step moves no later iterate by more than it does where the curvature has its least
    possible value, that of the penalty. This value is used here for all directions, since only the
    private rows could show the actual curvature. It is exact where the rows hardly vary or
    gradients are clipped, and gives an upper bound elsewhere. If more is known,
    :meth:`WeightNoise.pulled_back` accounts for it.
    """
    weights = plan.noise_at(plan.alpha)
    factor = None if directions is None else np.asarray(directions, np.float64).T
    if relevance is not None:
        factor = relevance.noise(weights)
    size = each * float(np.linalg.norm(weights))
    return WeightNoise(np.full(n_outputs, size), factor, plan)
