"""A private fit of a linear model, from its parameters to its weights, in one place.

Where to check the privacy claim: :meth:`LinearFit.run` is the whole fit. Its releases are bounded
where the module of each estimator says, such as ``linear_model/_dpsgd.py``.

Design note. A :class:`LinearFit` holds parameters and nothing else. ``resolved`` replaces each
"auto" that public sizes decide, ``budget`` states what is released and what that costs, and ``run``
does it: bound the rows, centre them, look at public rows, train. No code here knows of an
estimator, so that callbacks and hooks, which may change an estimator, change nothing that runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.bounds import AdaptiveCentre, Bounds, Centre, Limits
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.gradients.clipping import PersonSource
from dpsubspace._core.gradients.linear import stable_step
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import Array, as_like, to_numpy
from dpsubspace._core.plans.guide import PublicGuide
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Shift
from dpsubspace._core.solvers.descent import (
    STEPS,
    Descent,
    FlatStep,
    Problem,
    Scale,
    Step,
    TrainingPlan,
    WeightNoise,
    linear_problem,
    noise_of_descent,
    train,
)
from dpsubspace._core.solvers.intercepts import INTERCEPT, TIMES, Doubt, noisy_map, usual_shift
from dpsubspace._core.solvers.lbfgs import TOLERANCE, minimise
from dpsubspace._core.solvers.relevance import Groups, Relevance, penalties
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace._core.tables.forming import Interactions, drawn
from dpsubspace.exceptions import warn

# Iterations of L-BFGS: the run ends at a stationary point, and the number is a safety net.
MOST_ITERATIONS = 5_000

# Rounds in which penalties follow from weights, and weights from penalties.
_ROUNDS = 4


@dataclass(frozen=True)
class Fitted:
    """Result of a fit, released or public: weights on mapped rows, and how they were found.

    The learning rate is None if a solver was used instead; `n_weights` is the number of trained
    weights of one column of scores, and `init` where training started. No row is in here.
    """

    weights: np.ndarray
    shift: Shift | None
    radius: float
    limits: Limits
    n_iter: int
    learning_rate: float | None
    clip_norm: float
    init: str
    n_samples: int
    n_weights: int
    # (k, c): weights of features of several numbers that were added to rows; k is 0 if none were.
    interaction_weights: np.ndarray
    n_components: int | None = None  # directions that gradients were embedded on
    noise: WeightNoise | None = None  # noise of the weights, where it is known
    # Addition to the scores against the bias of clipping; None if nothing is known of the bias.
    intercept: np.ndarray | None = None
    doubt: Doubt | None = None  # doubt that is left in probabilities, if sums of them were released
    interactions: Interactions | None = None  # these features, where any were added


@dataclass(frozen=True, kw_only=True)
class LinearFit(Plan):
    """Parameters of a fit of a linear model."""

    target: Target  # Requested privacy
    loss: Loss  # Loss of the scores
    bounds: Bounds  # Bounds of rows and targets
    centre: Centre | None = None  # How rows are centred
    # Centring to use instead if public sizes show that noise leaves it legible.
    centre_if: AdaptiveCentre | None = None
    guide: PublicGuide | None = None  # Use of public rows
    descent: Descent = field(default_factory=Descent)  # How to train
    groups: Groups | None = None  # Columns of rows that matter or not together
    interacting: bool = False  # Whether features of several numbers of a table may be added
    table: Encoding | None = None  # Encoding of rows, where these features are to be added
    encoded: bool = False  # Whether rows are those of a table
    constant: bool = True  # Whether centred rows get a constant entry
    chunk: int | None = None  # Rows to visit at once; None leaves it to the device
    opened: float = 0.0  # How far clipping is given up: 0 is as usual, and 1 clips very little

    # Before the data are seen ---------------------------------------------------------------

    def sizes(self, data: Data) -> Sizes:
        """Public sizes of a fit."""
        return data.sizes(self.loss.n_outputs(data.n_targets))

    def resolved(self, sizes: Sizes) -> LinearFit:
        """Return this fit with its number of steps and the version of centring that it uses."""
        if self.centre_if is not None and self.target.private:
            n_samples = sizes.known("n_samples", "preprocessing='auto'")
            adaptive = replace(self, centre=self.centre_if, centre_if=None).resolved(sizes)
            if self.centre_if.legible(adaptive.budget(sizes), n_samples):
                return adaptive
        multiplier = _multiplier(self, sizes)
        fit = replace(self, centre_if=None, opened=self._opened(sizes, multiplier))
        return replace(fit, descent=with_steps(fit, sizes, multiplier))

    def for_table(self, encoding: Encoding, limits: Any, *, estimated: bool = False) -> LinearFit:
        """Return this fit for encoded tables, with targets within `limits`."""
        groups = Groups(*encoding.groups) if self.guide is None else None
        bounds = self.bounds.for_table(encoding.bound, limits, estimated=estimated)
        table = encoding if groups and self.interacting and encoding.interacting else None
        return replace(self, bounds=bounds, groups=groups, table=table, encoded=True)

    def budget(self, sizes: Sizes) -> Budget:
        """Return the releases of this fit, with their noise and their cost."""
        return budget_of(self, sizes)

    def beside_steps(self, sizes: Sizes) -> dict[str, Part]:
        """Releases before the steps of training, in their order, and after the steps."""
        parts = dict(self.bounds.parts(sizes))
        for part in (self.centre, self.guide):
            parts |= {} if part is None else part.parts(sizes)
        if self._shifts(sizes):
            parts[INTERCEPT] = Part(auto.INTERCEPT_SHARE, count=TIMES)
        return parts

    def _opened(self, sizes: Sizes, multiplier: float) -> float:
        """Return how far clipping is given up, by public sizes.

        Rows that are not centred are clipped half as much, and their fits end well without this.
        """
        able = self.loss.probabilistic and self.guide is None and self.centre is not None
        able = able and self.bounds.size < math.inf
        n_params = self.scale(sizes).n_params
        if not (able and multiplier and self.descent.chosen and n_params and sizes.n_samples):
            return 0.0
        return auto.opened(multiplier, n_params, sizes.n_samples)

    def _shifts(self, sizes: Sizes) -> bool:
        """True if scores are corrected after training, so that probabilities are right on average.

        Losses without probabilities have nothing to add up, and a fit without an intercept wants
        none. With public rows nothing is corrected.
        """
        guided = self.guide is not None and sizes.n_public > 0
        return self.loss.probabilistic and self.constant and not guided

    def scale(self, sizes: Sizes, size: float | None = None) -> Scale:
        """Public sizes of the problem, for rows that are bounded by `size` or by `bounds`."""
        clip_share, largest = auto.CLIP, auto.LARGEST
        if self.centre is not None:
            clip_share, largest = auto.CENTRED_CLIP, auto.CENTRED_LARGEST
        if sizes.persons and self._by_person:
            clip_share = auto.PERSON_CLIP
        size = self.bounds.size if size is None else size
        size = size if size < math.inf else 1.0  # rows that nothing bounds are assumed to have it
        n_outputs, n_params, more_steps = sizes.n_outputs or 1, None, 1.0
        if self.opened:
            residual = self.loss.size * (1.0 if n_outputs == 1 else math.sqrt(2))
            open_clip = auto.OPEN_CLIP * residual
            stable = auto.OPEN_STEP / (self.loss.curvature * auto.OPEN_CLIP**2) * open_clip
            clip_share = clip_share ** (1 - self.opened) * open_clip**self.opened
            largest = largest ** (1 - self.opened) * stable**self.opened
            more_steps = auto.OPEN_STEPS**self.opened
        clip_norm = clip_share * self.loss.size * size
        if self.descent.clip_norm != "auto":
            clip_norm = float(self.descent.clip_norm)
        if sizes.n_features is not None:
            n_params = (sizes.known("n_features", "the step size") + 1) * n_outputs
        largest = min(largest, self.loss.largest_step * self.loss.size * clip_share)
        found = Scale(self.loss, n_outputs, n_params, size, clip_norm, largest)
        return replace(found, more_steps=more_steps)

    @property
    def _by_person(self) -> bool:
        """Whether gradients of persons are clipped; with gradient directions, those of rows are."""
        return self.guide is None or self.guide.anchors is None

    def decides_weights(self, sizes: Sizes) -> bool:
        """Return whether releases of the fit decide how many weights are trained."""
        return self.guide is not None and self.guide.anchors is None and sizes.n_public > 0

    def prepared(self, data: Data, where: Any, budget: Budget) -> Data:
        """Return data on the device; raise errors of training before anything is spent."""
        self.descent.plan(budget, self.scale(self.sizes(data)), data.records.n)
        if self.guide is not None and self.guide.anchors is not None:
            self.guide.anchors.check_noise(budget, data.records.n)
        return data.on_device(where)

    # The fit --------------------------------------------------------------------------------

    def run(self, ready: Data, releases: Releases, rng: Any, after_step: Callable) -> Fitted:
        """Bound, centre, guide, train: on rows that lie where they are used.

        `rng` is public randomness, and `after_step` is called after each step.
        """
        data, public = ready, ready.public
        n_outputs = self.loss.n_outputs(data.n_targets)
        sizes, budget = data.sizes(n_outputs), releases.budget
        bounded = self.bounds(data, releases, self.loss)
        features = Features.of_rows(data.X, bounded.limits.row_map, self.chunk, data.records)
        of_rows = replace(sizes, persons=False)
        clip_norm = self.scale(of_rows, features.bound).clip_norm
        if self.centre is not None:
            constant = auto.CENTRED_BIAS * clip_norm if self.constant else None
            features = self.centre(features, releases, _mapped(public, features), constant)
        problem = linear_problem(self.loss, features, bounded.targets, n_outputs)
        if self.guide is not None and public is not None:
            problem = self.guide.problem(problem, bounded, public, releases, clip_norm)
        scale = self.scale(sizes)
        clip_norm = scale.clip_norm if budget.private else math.inf
        rows = problem.source
        if sizes.persons and self._by_person and budget.private:
            problem = replace(problem, source=PersonSource(rows, clip_norm))
        step: Step = FlatStep(clip_norm=clip_norm)
        if self.guide is not None:
            step = self.guide.step(problem, clip_norm, budget, rng)
        plan = self.descent.plan(
            budget, scale, features.n_samples, step.noise_size, problem.remaining
        )
        relevance = self._relevance(plan, clip_norm, features, budget, rng)
        weights, n_iter, rate = self._solved(plan, step, problem, releases, relevance, after_step)
        interactions: Any = None if relevance is None else relevance.added
        factor, intercept, doubt, on = 1.0, None, None, problem.directions
        if self._shifts(sizes) and budget.private:
            rows = rows if interactions is None else rows.widened(interactions)
            usual = usual_of(features, to_numpy(weights), clip_norm, persons=sizes.persons)
            factor, intercept, doubt = noisy_map(rows, weights, usual, releases)
            # Where less is clipped, there is less to correct.
            factor, intercept = factor ** (1 - self.opened), intercept * (1 - self.opened)
        noise = self._noise_left(plan, clip_norm, features.n_samples, problem, budget, relevance)
        own, d = features.unscaled(factor * to_numpy(weights)), data.X.shape[1]
        behind = slice(d, d + (0 if interactions is None else interactions.width))
        own, added = np.delete(own, behind, axis=0), own[behind]
        return Fitted(
            weights=own,
            interactions=interactions,
            interaction_weights=added,
            shift=features.shift,
            radius=features.radius,
            limits=bounded.limits,
            n_iter=n_iter,
            learning_rate=rate,
            clip_norm=clip_norm,
            init=problem.init,
            n_samples=features.n_samples,
            n_weights=features.width if on is None else on.shape[0],
            n_components=None if self.guide is None else self.guide.n_trained(problem),
            noise=None if noise is None else noise.times(factor * features.zoom),
            intercept=intercept,
            doubt=doubt,
        )

    def _relevance(
        self, plan: TrainingPlan, clip_norm: float, features: Features, budget: Budget, rng: Any
    ) -> Relevance | None:
        """Rule that decides during the steps which columns matter; None if there is none."""
        if self.groups is None or not budget.private:
            return None
        if len(self.groups.shares) == 1 and not self.opened:
            return None
        table, interactions = self.table, None
        each = _noise_of_entries(clip_norm, features.n_samples, budget)
        if table is not None:
            means, shift = None, features.shift
            if shift is not None:
                means = mean_of_rows(shift.mean, features.bias)
            interactions = partial(drawn, table, means=means, rng=rng)
        n_samples = features.n_samples if self.loss.probabilistic else None
        return Relevance(
            self.groups, plan, each, features.width, interactions, n_samples, self.opened
        )

    def _noise_left(
        self,
        plan: TrainingPlan,
        clip_norm: float,
        n_samples: int,
        problem: Problem,
        budget: Budget,
        relevance: Relevance | None,
    ) -> WeightNoise | None:
        """Return the noise that the steps leave in the weights; None if it is not known."""
        guide = self.guide
        if not budget.private or (guide and (guide.anchors is not None or guide.mirror)):
            return None
        each = _noise_of_entries(clip_norm, n_samples, budget)
        on = None if problem.directions is None else to_numpy(problem.directions)
        return noise_of_descent(plan, each, problem.n_outputs, on, relevance)

    def _solved(
        self,
        plan: TrainingPlan,
        step: Step,
        problem: Problem,
        releases: Releases,
        relevance: Relevance | None,
        after_step: Callable[[], bool],
    ) -> tuple[Array, int, float | None]:
        """Weights, the number of steps, and their size; without privacy by L-BFGS if possible."""
        if not releases.budget.private:
            if self.guide is None or self.guide.has_objective(problem):
                # Without a residual, weights leave their start along the directions only.
                found = minimised(problem, plan, problem.directions, after_step)
                return (*self._penalised(problem, plan, *found, after_step), None)
            if self.descent.learning_rate == "auto":
                plan = replace(plan, learning_rate=stable_step(problem.source, plan.alpha))
        weights = train(
            plan,
            step,
            problem.source,
            problem.start,
            problem.penalised,
            releases,
            relevance=relevance,
            after_step=after_step,
        )
        return weights, plan.n_iter, plan.learning_rate

    def _penalised(
        self, problem: Problem, plan: TrainingPlan, weights: Array, n_iter: int, after_step: Any
    ) -> tuple[Array, int]:
        """Return weights of a table with the penalties they call for, as in a private fit."""
        groups = self.groups
        if groups is None or not self.loss.probabilistic or plan.alpha == 0.0:
            return weights, n_iter
        n_samples, of = problem.source.n_samples, groups.of
        for _ in range(_ROUNDS):
            own = to_numpy(weights)[: len(of)]
            energies = np.bincount(of, np.sum(own**2, axis=1))
            found = penalties(
                energies, np.zeros_like(energies), groups, own.shape[1], n_samples, plan.alpha
            )
            penalised = to_numpy(problem.penalised).copy()
            penalised[: len(of), 0] = found[of] / plan.alpha
            problem = replace(
                problem, start=weights, penalised=as_like(penalised, problem.penalised)
            )
            left = replace(plan, n_iter=max(1, plan.n_iter - n_iter))
            weights, more = minimised(problem, left, problem.directions, after_step)
            n_iter += more
        return weights, n_iter


def _noise_of_entries(clip_norm: float, n_samples: int, budget: Budget) -> float:
    """Standard deviation of the noise of an entry of a mean gradient."""
    return budget.scales[STEPS] * clip_norm / (budget.parts[STEPS].fraction * n_samples)


def minimised(
    problem: Problem, plan: TrainingPlan, span: Array | None, after_step: Callable[[], bool]
) -> tuple[Array, int]:
    """Return weights of least penalised loss and the number of iterations, without privacy."""
    found = minimise(
        problem.source,
        problem.start,
        problem.penalised,
        alpha=plan.alpha,
        max_iter=plan.n_iter,
        span=span,
        after_step=after_step,
    )
    if not found.converged:
        warn(
            f"L-BFGS ended after {found.n_iter} of at most {plan.n_iter} iterations without"
            f" converging: the largest entry of the gradient is {found.slope:.2g} and should be"
            f" {TOLERANCE:g}. Increase `n_iter` or `alpha`, or scale the columns alike.",
            ConvergenceWarning,
        )
    return found.weights, found.n_iter


def mean_of_rows(mean: np.ndarray, bias: float | None) -> np.ndarray:
    """Approximate mean of unmapped rows, from that of mapped rows with their constant entry."""
    if not bias:
        return mean
    factor = max(float(mean[-1]) / bias, 1e-6)  # by which the map shortens rows, on average
    return mean[:-1] / factor


def usual_of(
    features: Features, weights: np.ndarray, clip_norm: float, *, persons: bool
) -> np.ndarray:
    """Shift of the scores that public and released numbers suggest, (c,); 0 if they suggest none.

    These numbers show the score of the mean row if rows are centred, and the length of rows if all
    had one: rows of norm R about their mean m have the mean square ``R^2 - |m|^2``. The mean of a
    person's gradients is shorter than any of them.
    """
    shift, zoom, bound = features.shift, features.zoom, features.bound
    one_length = features.row_map.norm == "l2" and not persons
    if shift is None or shift.constant is None or not one_length:
        return np.zeros(weights.shape[1])
    about = zoom * math.sqrt(max(0.0, bound**2 - float(shift.mean @ shift.mean)))
    constant = zoom * shift.constant
    length = math.hypot(min(about, bound), constant)
    return usual_shift(constant * weights[-1], length / clip_norm)


# Steps of training, and what they may cost --------------------------------------------------


class Trains(Protocol):
    """Parameters of a fit that ends in training."""

    @property
    def target(self) -> Target:
        """Requested privacy."""
        ...

    @property
    def descent(self) -> Descent:
        """How to train."""
        ...

    def beside_steps(self, sizes: Sizes) -> dict[str, Part]:
        """Releases before the steps of training, in their order, and after the steps."""
        ...

    def scale(self, sizes: Sizes) -> Scale:
        """Public sizes of the problem."""
        ...


def budget_of(fit: Trains, sizes: Sizes) -> Budget:
    """Budget of a fit: the steps have the share that other releases leave."""
    return _budget(fit, sizes, Part(1.0, int(fit.descent.n_iter), _rate(fit, sizes)))


def with_steps(fit: Trains, sizes: Sizes, multiplier: float | None = None) -> Descent:
    """Return how a fit trains, with the number of steps that it is charged for."""
    if fit.descent.n_iter == "auto" and not fit.target.private:
        return replace(fit.descent, n_iter=MOST_ITERATIONS)
    multiplier = _multiplier(fit, sizes) if multiplier is None else multiplier
    steps = fit.descent.steps(_rate(fit, sizes), multiplier, sizes, fit.scale(sizes))
    return replace(fit.descent, n_iter=steps)


def _multiplier(fit: Trains, sizes: Sizes) -> float:
    """Noise multiplier of everything together, if it decides the steps; otherwise 0."""
    asked = fit.target.private and fit.target.epsilon is not None
    if not asked or fit.descent.n_iter != "auto" or _rate(fit, sizes) < 1:
        return 0.0
    # The multiplier does not depend on the number of steps.
    once = _budget(fit, sizes, Part(1.0))
    return once.scales[STEPS] * math.sqrt(once.parts[STEPS].share)


def _budget(fit: Trains, sizes: Sizes, steps: Part) -> Budget:
    others = fit.beside_steps(sizes)
    rest = 1 - sum(part.share for part in others.values())
    parts = {**others, STEPS: replace(steps, share=rest)}
    return Budget.split(fit.target, parts, sizes.n_samples)


def _rate(fit: Trains, sizes: Sizes) -> float:
    """Probability with which a record enters a batch; 1 without privacy."""
    if not fit.target.private:
        return 1.0
    why = f"`batch_size`={fit.descent.batch_size}"
    return fit.descent.rate(lambda: sizes.known("n_samples", why))


def _mapped(public: Any, features: Features) -> np.ndarray | None:
    """Public rows after the map that bounds rows."""
    if public is None:
        return None
    rows = features.of(as_like(public.X, features.lengths))
    return to_numpy(rows.at(slice(0, rows.n_samples)).dense())
