"""What all private linear models share: from checked arrays to trained weights.

Design note. Every fit here is one sequence: bound the rows (and release what that needs),
release their mean or not, train, map the weights back. Estimators say what they release
before training (`_bound`, `_prepared`) and which share of the budget it gets; all lines that
a privacy claim rests on are in this module and below it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._accounting.events import non_private
from dpsubspace._accounting.guarantee import PrivacyGuarantee, warn_about_delta
from dpsubspace._accounting.legacy import LinearBudget, Split
from dpsubspace._array import Array, as_like, check_device, on_device, plain_arithmetic, to_numpy
from dpsubspace._checks import (
    check_auto,
    check_bool,
    check_choice,
    check_integer,
    check_real,
    shown,
)
from dpsubspace._compat import CallbackSupportMixin, nameless, start_progress
from dpsubspace._estimators.base import PrivateEstimator
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Loss
from dpsubspace._release.mechanisms import check_lattice
from dpsubspace._release.noise import NoiseSource, as_noise
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import RowMap, Shift
from dpsubspace._rows.public import PublicRows
from dpsubspace._solvers.descent import Step, TrainingPlan, train
from dpsubspace._solvers.lbfgs import TOLERANCE, minimise
from dpsubspace._solvers.steps import FlatStep
from dpsubspace.exceptions import PrivacyWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Bounded", "LinearModel", "Problem", "Releases", "Trained"]


def _releases(
    budget: LinearBudget, target: Target, noise: NoiseSource, present: Array | None
) -> Releases:
    """Releases of a budget that does not know their names yet."""
    parts = {name: Part(0.0, count) for name, count in budget.counts.items()}
    parts["steps"] = Part(0.0, budget.n_iter, budget.sample_rate)
    scales = {**budget.before, "steps": budget.step}
    return Releases(Budget(target, parts, scales, budget.event), noise, present)


@dataclass(frozen=True)
class Bounded:
    """How rows are bounded, and targets as the loss takes them with the range they had.

    `found` says of each bound whether it is more than a placeholder.
    """

    row_map: RowMap
    targets: Array
    target_bounds: Any = None
    found: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What is trained: gradients of the records, and parameters to start from.

    `features` are those of a linear model. `public` gives gradients of public rows at the same
    parameters, and `directions` are those of their features, where gradients are embedded on
    them. `way_left` is how long training should be from this start, beside one from zero;
    `n_outputs` the columns of scores; `init` says what start that is.
    """

    source: Any
    start: Array
    penalised: Array
    features: Features | None = None
    public: Any = None
    directions: Array | None = None
    way_left: float = 1.0
    n_outputs: int = 0
    init: str = "zero"


@dataclass(frozen=True)
class Trained:
    """Result of a fit, released or public: weights on mapped rows and how they came about.

    The learning rate is None where a solver took its place.
    """

    weights: np.ndarray
    shift: Shift | None
    radius: float
    bounded: Bounded
    n_iter: int
    learning_rate: float | None
    clip_norm: float
    problem: Problem
    budget: LinearBudget


class LinearModel(CallbackSupportMixin, PrivateEstimator):
    """Private linear models: parameters and training; subclasses know labels and targets."""

    _losses: ClassVar[Mapping[str, Loss]]

    # Parameters that every subclass has; they store them in their own __init__.
    loss: str
    alpha: float
    n_iter: int | str
    learning_rate: float | str
    momentum: float | str
    average: bool
    clip_norm: float | str
    batch_size: int | None
    fit_intercept: bool
    intercept_scaling: float
    microbatch_size: int | None
    device: Any
    noise_multiplier: float | None
    random_state: int | np.random.RandomState | None

    n_features_in_: int  # set by scikit-learn's validation

    @nameless
    def privacy_event(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
    ) -> DpEvent:
        """Return what a fit would cost, before any data are seen.

        Parameters
        ----------
        n_samples : int, optional
            Number of private rows. Needed where ``delta="auto"`` or a `batch_size` is set.
        n_features : int, optional
            Number of features. With ``n_iter="auto"`` the number of steps depends on it;
            without it the event has 100, which cost the same.
        n_outputs : int, optional
            Number of columns of scores: 1 for two classes, else that of classes or targets.
            Used as `n_features` is, and to count the ranges of targets to release.

        Returns
        -------
        DpEvent
            The ``dp_accounting`` event that ``fit`` will store in ``privacy_.event``.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or a size that is needed was not given.
        """
        self._check_parameters()
        return self._budget(Sizes(n_samples, n_features, n_outputs)).event

    def _scale(self) -> tuple[float, float]:
        """Clip norm in units of the bound on a row, and the largest step for rows of size 1."""
        return _auto.CLIP, _auto.LARGEST

    def _public(
        self, sets: tuple[np.ndarray, ...], targets: np.ndarray | None
    ) -> PublicRows | None:
        """Checked public rows, all in one; None without any."""
        return PublicRows.of(sets, targets)

    # What subclasses release before they train -----------------------------------------------

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        """Releases before training: share of the budget (of mu^2) and number, by name."""
        return {}

    def _row_bound(self) -> float:
        """Public bound on the norm of a mapped row; inf where nothing bounds rows."""
        raise NotImplementedError

    def _bound(
        self, X: Array, targets: Array, releases: Releases, public: PublicRows | None
    ) -> Bounded:
        """Bound rows and targets, by public or released numbers."""
        raise NotImplementedError

    def _prepared(
        self, features: Features, releases: Releases, public: PublicRows | None
    ) -> Features:
        """Features to train on, by public or released numbers."""
        return features

    def _source(
        self,
        X: Any,
        targets: np.ndarray,
        n_targets: int,
        present: np.ndarray | None,
        rate: float,
        public: PublicRows | None,
    ) -> Any:
        """What may be refused and so is made before anything is spent; None for nothing."""
        return None

    def _public_targets(self, targets: np.ndarray, bounded: Bounded) -> np.ndarray:
        """Targets of public rows as the loss takes them."""
        return targets

    def _problem(
        self,
        X: Array,
        bounded: Bounded,
        n_outputs: int,
        releases: Releases,
        public: PublicRows | None,
        source: Any,
    ) -> Problem:
        """What to train: a linear model that starts from zero."""
        features = Features(X, bounded.row_map, self.microbatch_size)
        features = self._prepared(features, releases, public)
        penalised = np.zeros((features.width, 1))
        penalised[: X.shape[1]] = 1.0  # not the bias entries
        return Problem(
            LinearSource(self._losses[self.loss], features, bounded.targets, releases.present),
            as_like(np.zeros((features.width, n_outputs)), features.lengths),
            as_like(penalised, features.lengths),
            features,
        )

    def _step(self, problem: Problem, budget: LinearBudget, clip_norm: float, rng: Any) -> Step:
        """How a step uses gradients; `rng` is public randomness."""
        return FlatStep(clip_norm=clip_norm)

    # The fit --------------------------------------------------------------------------------

    def _train(
        self,
        X: Any,
        targets: np.ndarray,
        n_targets: int,
        assumed: tuple[str, ...],
        present: np.ndarray | None,
        public: PublicRows | None = None,
    ) -> Trained:
        """Train on checked rows and targets, after setting ``privacy_`` and before any other."""
        # Callbacks and hooks may change parameters: from here on they are read from a copy, so
        # that nothing the noise depends on can differ from what is charged.
        fixed = copy.copy(self)
        loss = fixed._losses[fixed.loss]
        n_samples, n_features = X.shape
        n_outputs = loss.n_outputs(n_targets)
        where = check_device(fixed.device)
        noise = as_noise(fixed.random_state)
        sizes = Sizes(n_samples, n_features, n_outputs)
        if public is not None:
            labelled = public.targets is not None
            sizes = replace(sizes, n_public=len(public.X), labelled=labelled)
        budget = fixed._budget(sizes)
        if budget.private:
            check_lattice(n_samples, budget.step, *budget.before.values())
        guarantee = fixed._target().guarantee(
            budget.event,
            secure=noise.secure,
            n_samples=n_samples,
            n_features=n_features,
            public=assumed,
            unit=self.privacy_unit,
        )
        if budget.private:
            warn_about_delta(guarantee.delta, n_samples)
            fixed._warn(guarantee, budget, sizes)
        with plain_arithmetic(where):
            source = fixed._source(X, targets, n_targets, present, budget.sample_rate, public)
            if source is None:
                X, targets, present = (on_device(a, where) for a in (X, targets, present))
            bound = fixed._row_bound()
            clip_norm = fixed._clip_norm(bound) if budget.private else math.inf
            fixed._plan(budget, sizes, bound)  # raises what it has to before anything is spent
            after_step, finish = start_progress(self, budget.n_iter)
            self._start_spending(guarantee)  # from here on, failing costs what succeeding costs
            releases = _releases(budget, fixed._target(), noise, present)
            bounded = fixed._bound(X, targets, releases, public)
            problem = fixed._problem(X, bounded, n_outputs, releases, public, source)
            features = problem.features
            step = fixed._step(problem, budget, clip_norm, noise.public())
            plan = fixed._plan(budget, sizes, bound, step, problem.way_left)
            n_iter, learning_rate = plan.n_iter, plan.learning_rate
            if not budget.private and fixed._has_objective(problem):
                weights, n_iter = fixed._minimised(problem, plan, after_step)
                learning_rate = None
            else:
                if not budget.private and fixed.learning_rate == "auto" and features is not None:
                    learning_rate = problem.source.stable_step(plan.alpha)
                    plan = replace(plan, learning_rate=learning_rate)
                weights = train(
                    plan,
                    step,
                    problem.source,
                    problem.start,
                    problem.penalised,
                    noise=noise,
                    after_step=after_step,
                )
        finish()
        shift, radius = None, math.inf
        if features is not None:
            weights = features.unscaled(to_numpy(weights))
            shift, radius = features.shift, features.radius
        return Trained(
            weights=weights,
            shift=shift,
            radius=radius,
            bounded=bounded,
            n_iter=n_iter,
            learning_rate=learning_rate,
            clip_norm=clip_norm,
            problem=problem,
            budget=budget,
        )

    def _has_objective(self, problem: Problem) -> bool:
        """Whether training without privacy minimises one function, which can be solved."""
        return True

    def _span(self, problem: Problem) -> Array | None:
        """Directions that weights leave their start along; None for all."""
        return None

    def _minimised(
        self, problem: Problem, plan: TrainingPlan, after_step: Callable[[], bool]
    ) -> tuple[Array, int]:
        """Weights of least penalised loss and the iterations they took, without privacy."""
        found = minimise(
            problem.source,
            problem.start,
            problem.penalised,
            alpha=plan.alpha,
            max_iter=plan.n_iter,
            span=self._span(problem),
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

    # Parameters and what follows from them --------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise ValueError for any parameter out of its range, before data are touched."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "set either `epsilon` or `noise_multiplier` and leave the other None, got epsilon="
                f"{shown(self.epsilon)} and noise_multiplier={shown(self.noise_multiplier)}."
            )
        if self.epsilon is None:
            check_real("noise_multiplier", self.noise_multiplier, low=1e-6, high=1e9)
        self._target().check(multipliers=True)
        check_choice("loss", self.loss, list(self._losses))
        check_bool("fit_intercept", self.fit_intercept)
        check_bool("average", self.average)
        check_real("intercept_scaling", self.intercept_scaling, low=1e-50, high=1e50)
        check_real("alpha", self.alpha, low=0, high=1e50, include_low=True)
        if self.n_iter != "auto":
            check_integer("n_iter", self.n_iter, low=1, high=10**9)
        check_auto("learning_rate", self.learning_rate, low=0, high=1e50)
        check_auto("clip_norm", self.clip_norm, low=1e-10, high=1e50)
        check_auto("momentum", self.momentum, low=0, high=1, include_low=True)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, low=1)
        if self.microbatch_size is not None:
            check_integer("microbatch_size", self.microbatch_size, low=1)

    def _sample_rate(self, sizes: Sizes) -> float:
        """Probability with which a record enters a batch."""
        if self.batch_size is None or self.epsilon == math.inf:
            return 1.0
        n_samples = sizes.known("n_samples", f"`batch_size`={self.batch_size}")
        if self.batch_size > n_samples:
            raise ValueError(
                f"`batch_size`={self.batch_size} is larger than the number of records"
                f" ({n_samples}). Use None for the full batch, or a smaller number."
            )
        return self.batch_size / n_samples

    def _n_iter(self, sizes: Sizes, rate: float, multiplier: float) -> int:
        """Number of steps, where `multiplier` is that of all of them together."""
        if self.n_iter != "auto":
            return int(self.n_iter)
        if self.epsilon == math.inf:
            return 5_000  # the run ends at a stationary point; the number is a safety net
        if rate < 1:
            # Batches of a small rate need more steps to see each record as often.
            return min(10_000, max(_auto.n_steps(0.0, 1.0), math.ceil(20 / rate)))
        if None in (sizes.n_samples, sizes.n_features, sizes.n_outputs):
            return _auto.n_steps(0.0, 1.0)  # any number of full batches costs the same
        return _auto.n_steps(self._travel(sizes, multiplier), self._largest())

    def _n_params(self, sizes: Sizes) -> int:
        """Weights and intercepts."""
        return (sizes.known("n_features", "the step size") + 1) * (sizes.n_outputs or 1)

    def _travel(self, sizes: Sizes, multiplier: float, step: Step | None = None) -> float:
        flat = FlatStep(clip_norm=1.0)
        return _auto.travel(
            walk=self._losses[self.loss].walk(sizes.n_outputs or 1),
            noise_size=(step or flat).noise_size(self._n_params(sizes)),
            n_samples=sizes.known("n_samples", "the step size"),
            multiplier=multiplier,
        )

    def _largest(self) -> float:
        """Bound on the learning rate times the clip norm, for rows of size 1."""
        loss, (clip_share, largest) = self._losses[self.loss], self._scale()
        return min(largest, loss.largest_step * loss.size * clip_share)

    def _clip_norm(self, bound: float) -> float:
        if self.clip_norm != "auto":
            return float(self.clip_norm)
        return self._scale()[0] * self._losses[self.loss].size * _size(bound)

    def _budget(self, sizes: Sizes) -> LinearBudget:
        """Noise multipliers from epsilon (or the expert's multiplier) and their event."""
        rate, shares = self._sample_rate(sizes), self._before(sizes)
        rest = 1 - sum(share for share, _ in shares.values())
        if rest <= 0:
            given = " and ".join(f"`{name}_share`={share:g}" for name, (share, _) in shares.items())
            raise ValueError(
                f"{given} leave nothing of the budget for training: use less than 1 in all."
            )
        if self.epsilon == math.inf:
            nothing = dict.fromkeys(shares, 0.0)
            counts = {name: count for name, (_, count) in shares.items()}
            n_iter = self._n_iter(sizes, 1.0, 0.0)
            return LinearBudget(n_iter, 1.0, nothing, counts, 0.0, non_private())
        if self.epsilon is None:
            n_iter = self._n_iter(Sizes(None), rate, 0.0)
            step = float(self.noise_multiplier or 0.0)  # checked: one of the two is given
            # What comes before gets its share of the steps' mu^2 (by their central limit
            # where batches are sampled: a choice, which the event then counts exactly).
            sq_mu = n_iter / step**2
            if rate < 1:
                sq_mu = n_iter * rate**2 * math.expm1(min(step**-2, 700.0))
            before = {
                name: (math.sqrt(count * rest / (share * sq_mu)), count)
                for name, (share, count) in shares.items()
            }
            return LinearBudget.of(step, before, n_iter, rate)
        target, n_samples = self._target(), sizes.n_samples

        def full(n_iter: int) -> Mapping[str, float]:
            """Multipliers for so many full batches."""
            parts = {**shares, "steps": (rest, n_iter)}
            return Split.of(target, parts, n_samples).multipliers

        # The multiplier of everything together does not depend on the number of steps.
        n_iter = self._n_iter(sizes, rate, full(1)["steps"] * math.sqrt(rest))
        multipliers = full(n_iter)
        before = {name: (multipliers[name], count) for name, (_, count) in shares.items()}
        step = multipliers["steps"]
        if rate < 1:
            step = target.calibrated(
                lambda m: LinearBudget.of(m, before, n_iter, rate).event, n_samples
            )
        return LinearBudget.of(step, before, n_iter, rate)

    def _plan(
        self,
        budget: LinearBudget,
        sizes: Sizes,
        bound: float,
        step: Step | None = None,
        way_left: float = 1.0,
    ) -> TrainingPlan:
        """How to train with `step` (or any), from public quantities."""
        momentum = _auto.MOMENTUM if budget.private else None
        if self.momentum != "auto":
            momentum = float(self.momentum)
        if self.learning_rate != "auto":
            learning_rate = float(self.learning_rate)
        elif not budget.private:
            learning_rate = 0.0  # set by what is learned from, which need not be private
        else:
            # A gradient of the clip norm moves a score by about as much, times the row's size.
            units = self._clip_norm(bound) * _size(bound)
            learning_rate = (
                _auto.step_size(
                    way_left * self._travel(sizes, budget.multiplier, step),
                    self._largest(),
                    n_iter=budget.n_iter,
                    momentum=momentum or 0.0,
                )
                / units
            )
            if self.alpha:
                learning_rate = min(learning_rate, 1 / self.alpha)
        return TrainingPlan(
            n_iter=budget.n_iter,
            sample_rate=budget.sample_rate,
            noise_multiplier=budget.step,
            learning_rate=learning_rate,
            momentum=momentum,
            alpha=float(self.alpha),
            average=bool(self.average) and budget.private,
            neighboring_relation=self.neighboring_relation,
            tolerance=0.0 if budget.private else 1e-6,
        )

    def _warn(self, guarantee: PrivacyGuarantee, budget: LinearBudget, sizes: Sizes) -> None:
        """Warn of what public quantities already tell to be a bad idea."""
        n_weights = self._n_weights(sizes)
        if n_weights is not None:
            n_samples = sizes.known("n_samples", "the warning")
            self._warn_of_noise(budget, guarantee.epsilon, n_samples, n_weights)

    def _n_weights(self, sizes: Sizes) -> float | None:
        """Weights of one column of scores; None where releases of the fit will decide it."""
        return self._n_params(sizes) / (sizes.n_outputs or 1)

    def _bearable(self) -> float:
        """Noise up to which a fit does not warn, of those that `_auto` has."""
        raise NotImplementedError

    def _warn_of_noise(
        self, budget: LinearBudget, epsilon: float, n_samples: int, n_weights: float
    ) -> None:
        """Warn where noise in so many weights probably hides most of what can be learned."""
        if budget.multiplier * math.sqrt(n_weights) <= self._bearable() * n_samples:
            return
        price = f"epsilon={epsilon:.3g}"
        warn(
            f"the noise of a fit with {price} will probably hide most of what can be learned"
            f" from {n_samples} rows: expect a poor model. Use more rows, a larger epsilon or"
            " fewer columns.",
            PrivacyWarning,
            about=("noise", type(self).__name__, price),
        )

    def _tell(self, trained: Trained) -> None:
        """Warn of what released numbers, and no others, show to have failed: costs nothing."""
        features, budget = trained.problem.features, trained.budget
        if trained.shift is None or features is None or not budget.private:
            return
        noise = budget.before.get("coarse mean", budget.before.get("mean", 0.0))
        noise *= trained.bounded.row_map.bound / features.n_samples
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        found = _dominant(trained.shift.mean, noise, self.n_features_in_, trained.bounded.row_map)
        columns = [f"{names[i]!r}" for i in found]
        if columns:
            several = len(columns) > 1
            warn(
                f"the released mean shows that column{'s' * several} {' and '.join(columns)}"
                f" make{'s' * (not several)} up most of the length of the rows. Columns are in"
                " different units or far from 0, and the model hardly sees the others. Scale the"
                " columns before the fit, for example with a BoundedScaler.",
                PrivacyWarning,
                about=("units", type(self).__name__, *columns),
            )


def _size(bound: float) -> float:
    """Public size of a mapped row; rows that nothing bounds are taken to be of size 1."""
    return bound if bound < math.inf else 1.0


def _dominant(mean: np.ndarray, noise: float, n_features: int, row_map: RowMap) -> np.ndarray:
    """Columns that by the released mean hold most of the squared length of the rows; few or none.

    The mean square of an entry is at least the square of its mean, so that a large mean
    proves it; small ones prove nothing. `noise` is the standard deviation of that of an entry.
    """
    size = float(row_map.data_norm or 1.0) if row_map.norm == "clip" else 1.0
    held = (np.maximum(np.abs(mean[:n_features]) - 2 * noise, 0.0) / size) ** 2
    largest = np.argsort(-held)[:2]
    if n_features > 1 and held[largest[0]] >= _auto.DOMINANT:
        return largest[:1]
    long = len(mean) > n_features and abs(mean[n_features]) <= _auto.LONG_ROWS * size
    both = n_features >= _auto.MANY_COLUMNS and held[largest].sum() >= _auto.DOMINANT
    return largest if long and both else largest[:0]
