"""Gradient embedding perturbation: private linear and deep models that know public rows.

Design note. One mixin holds all that public rows are used for: the directions on which
gradients are embedded, the mean to centre by, the weights to start from and the gradient to
mix in. Each is a function of public rows and released values, chosen by a parameter, and ends
in a step, a start or a shift that the one training loop runs. What is released is what the
step clips and sums, whatever the public rows are: bad ones cost accuracy and no privacy.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsubspace import _auto
from dpsubspace._array import Array, as_like, check_device, device, namespace, to_numpy
from dpsubspace._classifier import LinearClassifier
from dpsubspace._compat import with_callbacks
from dpsubspace._features import Features
from dpsubspace._gradients import GradientSource, LinearSource
from dpsubspace._inputs import check_auto, check_bool, check_choice, check_integer, check_rows
from dpsubspace._linear_model import (
    Bounded,
    Budget,
    LinearModel,
    Problem,
    PublicRows,
    Releases,
    Sizes,
    Trained,
    stable_step,
)
from dpsubspace._modules import ModuleSource, module_scores, parameter_groups
from dpsubspace._moments import noisy_mean
from dpsubspace._noise import as_noise
from dpsubspace._regressor import LinearRegressor
from dpsubspace._scaling import Shift
from dpsubspace._steps import FlatStep, GEPStep, MirrorStep
from dpsubspace._subspace import FeatureSubspace, Subspace, anchor_subspace, group_sizes
from dpsubspace._training import Step, TrainingPlan, train
from dpsubspace.exceptions import PublicDataWarning

__all__ = ["GEPClassifier", "GEPRegressor"]

DIRECTIONS = ("auto", "features", "gradients")
CLIPPING = ("separate", "joint")
ANCHOR_LABELS = ("redrawn", "fixed", "public")


class _GradientEmbedding(LinearModel):
    """What public rows are used for."""

    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

    directions: str
    n_components: int | str
    residual: bool
    clipping: str
    residual_norm: float | str
    embedding_share: float | str
    anchor_labels: str
    power_iterations: int | None
    center: bool
    mean_share: float | str
    init: str
    mirror: bool
    module: Any
    input_shape: tuple[int, ...] | None
    groups: Any

    # Public rows ----------------------------------------------------------------------------

    def _public(
        self, sets: tuple[np.ndarray, ...], targets: np.ndarray | None
    ) -> PublicRows | None:
        public = super()._public(sets, targets)
        if public is None:
            warnings.warn(
                f"{type(self).__name__} got no public rows and trains without them. Pass"
                " fit(X, y, X_public=(rows,)); without any, the DPSGD estimators are the same.",
                PublicDataWarning,
                stacklevel=5,
            )
        needing = {
            "init='public'": self.init == "public",
            "mirror=True": self.mirror,
            "anchor_labels='public'": self.anchor_labels == "public",
        }
        for option, needed in needing.items():
            if needed and targets is None:
                raise ValueError(
                    f"{option} needs the labels of public rows: pass `y_public`, or change it."
                )
        return public

    @property
    def _kind(self) -> str:
        """Directions of features or of gradients; modules have the second only."""
        if self.directions != "auto":
            return self.directions
        return "features" if self.module is None else "gradients"

    # Releases before training ---------------------------------------------------------------

    @property
    def _centres(self) -> bool:
        """Whether rows are shifted by a mean: those of linear models."""
        return self.center and self.module is None

    def _scale(self) -> tuple[float, float]:
        if self._centres:
            return _auto.CENTRED_CLIP, _auto.CENTRED_LARGEST
        return super()._scale()

    def _mean_share(self) -> float:
        return _auto.MEAN_SHARE if self.mean_share == "auto" else float(self.mean_share)

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        before = dict(super()._before(sizes))
        if self._centres and self._mean_share() > 0:
            before["mean"] = (self._mean_share(), 1)
        return before

    def _prepared(
        self, features: Features, releases: Releases, public: PublicRows | None
    ) -> Features:
        """Shift rows by a released mean, by that of the public rows, or by what both say.

        Notes
        -----
        Privacy: as for :class:`DPSGDFClassifier`. The mean of the public rows costs nothing,
        and neither does weighing it with the released one.
        """
        if not self._centres:
            return features
        rows = None if public is None else _formed(features, public)[1]
        if "mean" in releases.budget.before:
            mean = noisy_mean(
                features,
                features.bound,
                releases.budget.before["mean"],
                noise=releases.noise.child("mean"),
                neighboring_relation=releases.neighboring_relation,
                present=releases.present,
                public=None if rows is None else to_numpy(rows),
            )
        elif rows is None:
            return features
        else:
            mean = to_numpy(rows).mean(axis=0)
        constant = None
        if self.fit_intercept:
            constant = _auto.CENTRED_BIAS * self._clip_norm(features.bound)
        return features.shifted(Shift(mean, constant))

    # What is trained ------------------------------------------------------------------------

    def _problem(
        self,
        X: Array,
        bounded: Bounded,
        n_outputs: int,
        releases: Releases,
        public: PublicRows | None,
        source: Any,
    ) -> Problem:
        if source is not None:
            return self._module_problem(source, bounded, n_outputs, public)
        linear = super()._problem(X, bounded, n_outputs, releases, public, source)
        if public is None:
            return linear
        loss, features = self._losses[self.loss], linear.features
        assert features is not None
        rows, formed = _formed(features, public)
        targets = None
        if public.targets is not None:
            targets = as_like(self._public_targets(public.targets, bounded), bounded.targets)
        anchors = LinearSource(loss, rows, targets, public=formed)
        multiplier = releases.budget.multiplier
        directions = self._feature_directions(features, formed, n_outputs, multiplier)
        known = formed if self._kind == "gradients" else directions
        source = LinearSource(loss, features, bounded.targets, releases.present, known)
        start, way_left = linear.start, 1.0
        if targets is not None and self.init != "zero":
            start = _fitted(anchors, start, linear.penalised)
            trained = formed if directions is None else formed @ directions.T
            energies = np.linalg.svd(to_numpy(trained), compute_uv=False) ** 2 / len(public.X)
            way_left = _auto.way_left(
                energies, len(public.X), n_outputs, features.n_samples, multiplier
            )
        return Problem(
            source, start, linear.penalised, features, anchors, directions, way_left, n_outputs
        )

    def _module_problem(
        self,
        sources: tuple[Any, Any],
        bounded: Bounded,
        n_outputs: int,
        public: PublicRows | None,
    ) -> Problem:
        """A module that starts from its own parameters."""
        private, anchors = sources
        private = private.relabelled(bounded.targets)
        if public is not None and public.targets is not None:
            anchors = anchors.relabelled(self._public_targets(public.targets, bounded))
        start = private.start()
        penalised = namespace(start).ones_like(start)
        return Problem(private, start, penalised, public=anchors, n_outputs=n_outputs)

    def _source(
        self,
        X: Any,
        targets: np.ndarray,
        n_targets: int,
        present: np.ndarray | None,
        rate: float,
        public: PublicRows | None,
    ) -> Any:
        """Gradients of the module on private and on public rows."""
        if self.module is None:
            return None
        if sparse.issparse(X):
            raise ValueError("a `module` takes dense rows: pass X.toarray(), or a smaller X.")
        options: dict[str, Any] = {
            "n_targets": n_targets,
            "input_shape": self.input_shape,
            "microbatch_size": self.microbatch_size,
            "device": check_device(self.device),
        }
        loss = self._losses[self.loss]
        source = ModuleSource(
            self.module, loss, X, targets, present=present, sample_rate=rate, **options
        )
        if public is None:
            return source, None
        rows = public.X.astype(X.dtype)
        return source, ModuleSource(
            self.module, loss, rows, targets[:1].repeat(len(rows), 0), **options
        )

    def _feature_directions(
        self, features: Features, formed: Array, n_outputs: int, multiplier: float
    ) -> Array | None:
        """Top directions (q, width) of public features; None where all are worth their noise."""
        if self._kind == "gradients":
            return None
        xp, n_public = namespace(formed), formed.shape[0]
        _, values, vectors = xp.linalg.svd(formed, full_matrices=False)
        n_clear = int(xp.sum(values > 1e-6 * values[0]))
        if self.n_components != "auto":
            return vectors[: min(n_clear, int(self.n_components)), :]
        noise = multiplier * self._clip_norm(features.bound) / features.n_samples
        count = _auto.n_worth(to_numpy(values) ** 2 / n_public, n_outputs, noise)
        # Where all that public rows tell of are worth it, what they do not tell of may be too.
        return vectors[:count, :] if count < n_clear else None

    def _step(self, problem: Problem, budget: Budget, clip_norm: float, rng: Any) -> Step:
        step: Step = FlatStep(clip_norm=clip_norm)
        subspace, n_components = self._subspace(problem, rng)
        if n_components:
            step = GEPStep(
                subspace=subspace,
                n_components=n_components,
                clip_norm=clip_norm,
                residual_norm=self._residual_norm(clip_norm),
                clipping=self.clipping if budget.private else "separate",
                residual=self._has_residual(),
                embedding_share=self._embedding_share(),
                n_samples=problem.source.n_samples,
            )
        if self.mirror:
            step = MirrorStep(
                step=step,
                public_gradient=lambda params: _mean_gradient(problem.public, params),
                batch_size=budget.sample_rate * problem.source.n_samples,
                n_iter=budget.n_iter,
            )
        return step

    def _subspace(
        self, problem: Problem, rng: np.random.Generator
    ) -> tuple[Callable[[Array, int], Subspace], int]:
        """Directions at given parameters, and their number; 0 for all of the space."""
        if self._kind == "features":
            if problem.directions is None:
                return _nothing, 0
            fixed = FeatureSubspace(problem.directions, problem.start.shape[1])
            return (lambda params, t: fixed), fixed.n_components
        if problem.public is None:
            return _nothing, 0
        source, n_public = problem.public, problem.public.n_samples
        groups, sizes = self._groups(problem)
        wanted = _auto.ANCHOR_DIRECTIONS
        if self.n_components != "auto":
            wanted = int(self.n_components)
        elif self.module is not None:
            wanted = n_public // 2
        counts = group_sizes(wanted, sizes, n_public) if wanted else [0]

        def drawn() -> Any:
            targets = self._drawn(rng, n_public, problem.n_outputs)
            return source.relabelled(targets if self.module else _moved(targets, problem.start))

        once = source if self.anchor_labels == "public" else drawn()

        def at(params: Array, t: int) -> Subspace:
            anchors = drawn() if self.anchor_labels == "redrawn" else once
            return anchor_subspace(
                anchors.at(params, slice(0, n_public)),
                counts,
                groups,
                power_iterations=self.power_iterations,
                rng=rng,
            )

        return at, sum(counts)

    def _groups(self, problem: Problem) -> tuple[list[Any], list[int]]:
        """Index of the last axis of the parameters for each group, and its number of them."""
        shape = problem.start.shape
        if self.module is not None:
            groups = parameter_groups(problem.source.module, self.groups)
        elif self.groups is None:
            return [None], [math.prod(shape)]
        else:
            groups = [slice(i, i + 1) for i in range(shape[1])]
        index = np.arange(shape[-1])
        return groups, [math.prod(shape[:-1]) * len(index[group]) for group in groups]

    def _drawn(self, rng: np.random.Generator, n_public: int, n_outputs: int) -> np.ndarray:
        """Random targets of public rows, as the loss takes them."""
        raise NotImplementedError

    def _has_residual(self) -> bool:
        return self._kind == "gradients" if self.residual == "auto" else bool(self.residual)

    def _embedding_share(self) -> float:
        if self.embedding_share != "auto":
            return float(self.embedding_share)
        return _auto.EMBEDDING_SHARE if self.module is None else _auto.MODULE_SHARE

    def _residual_norm(self, clip_norm: float) -> float:
        if self.residual_norm != "auto" and clip_norm < math.inf:
            return float(self.residual_norm)
        ratio = _auto.RESIDUAL_RATIO if self.module is None else _auto.MODULE_RATIO
        return ratio * clip_norm

    def _module_scores(self, X: Any) -> np.ndarray:
        """Scores of rows by the trained module."""
        X = check_rows(self, X, reset=False, accept_sparse=False)
        where = check_device(self.device)
        return module_scores(self.module_, X, self.input_shape, device=where)

    # Parameters -----------------------------------------------------------------------------

    def _n_params(self, sizes: Sizes) -> int:
        if self.module is None:
            return super()._n_params(sizes)
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)

    def _row_bound(self) -> float:
        return super()._row_bound() if self.module is None else math.inf

    def _travel(self, sizes: Sizes, multiplier: float, step: Step | None = None) -> float:
        length = super()._travel(sizes, multiplier, step)
        return length if self.module is None else _auto.MODULE_WALK * length

    def _largest(self) -> float:
        largest = super()._largest()
        return largest if self.module is None else min(largest, _auto.MODULE_LARGEST)

    def _clip_norm(self, bound: float) -> float:
        if self.module is not None and self.clip_norm == "auto":
            return _auto.MODULE_CLIP
        return super()._clip_norm(bound)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("directions", self.directions, DIRECTIONS)
        if self.n_components != "auto":
            check_integer("n_components", self.n_components, low=0)
        if self.residual != "auto":
            check_bool("residual", self.residual)
        check_choice("clipping", self.clipping, CLIPPING)
        check_auto("residual_norm", self.residual_norm, low=1e-10, high=1e50)
        check_auto("embedding_share", self.embedding_share, low=0, high=1)
        check_choice("anchor_labels", self.anchor_labels, ANCHOR_LABELS)
        if self.power_iterations is not None:
            check_integer("power_iterations", self.power_iterations, low=1)
        check_bool("center", self.center)
        check_auto("mean_share", self.mean_share, low=0, high=1, include_low=True)
        check_choice("init", self.init, ("auto", "zero", "public"))
        check_bool("mirror", self.mirror)
        if self.module is not None:
            self._check_module()
        elif self.groups not in (None, "outputs") or self.input_shape is not None:
            raise ValueError(
                "`groups` of a linear model are None or 'outputs', and `input_shape` is for a"
                f" `module`: got groups={self.groups!r} and input_shape={self.input_shape!r}."
            )

    def _check_module(self) -> None:
        """ValueError where a parameter does not go with a module."""
        if self.directions == "features":
            raise ValueError("directions='features' is for linear models: use 'gradients'.")
        if self.epsilon == math.inf and self.learning_rate == "auto":
            raise ValueError(
                "learning_rate='auto' of a `module` follows from the noise, and epsilon=inf has"
                " none: set `learning_rate`, for example 0.05."
            )
        if self.init == "public":
            raise ValueError(
                "init='public' is for linear models. A module starts from its own parameters:"
                " train it on public rows first, then pass it."
            )


def _formed(features: Features, public: PublicRows) -> tuple[Features, Array]:
    """Public rows, bounded and shifted as `features` are, in float64."""
    rows = features.of(as_like(public.X, features.lengths))
    return rows, rows.at(slice(0, len(public.X))).formed()


def _nothing(params: Array, t: int) -> Subspace:
    raise AssertionError("no subspace is asked for")


def _mean_gradient(public: GradientSource, params: Array) -> Array:
    """Mean gradient of labelled public rows."""
    total = None
    for rows in public.chunks(None):
        grads = public.at(params, rows)
        norms = grads.norms()
        xp = namespace(norms)
        weights = xp.where(xp.isfinite(norms), xp.ones_like(norms), xp.zeros_like(norms))
        part = grads.weighted_sum(weights)
        total = part if total is None else total + part
    return total / public.n_samples


def _fitted(public: LinearSource, start: Array, penalised: Array) -> Array:
    """Weights that fit labelled public rows: the same descent, without clipping and noise."""
    alpha = 1 / (_auto.PUBLIC_FIT * public.n_samples)
    plan = TrainingPlan(
        n_iter=500,
        noise_multiplier=0.0,
        sample_rate=1.0,
        learning_rate=stable_step(public.loss, public.features, alpha),
        momentum=None,
        alpha=alpha,
        average=False,
        neighboring_relation="zero_out",
        tolerance=1e-5,
    )
    return train(plan, FlatStep(clip_norm=math.inf), public, start, penalised, noise=as_noise(0))


def _moved(values: np.ndarray, like: Array) -> Array:
    """`values` where `like` is, of their own dtype."""
    if isinstance(like, np.ndarray):
        return values
    return namespace(like).asarray(values, device=device(like))


class GEPClassifier(_GradientEmbedding, LinearClassifier):
    """X."""

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        directions: str = "auto",
        n_components: int | str = "auto",
        residual: bool | str = "auto",
        clipping: str = "separate",
        residual_norm: float | str = "auto",
        embedding_share: float | str = "auto",
        anchor_labels: str = "redrawn",
        power_iterations: int | None = 1,
        center: bool = True,
        mean_share: float | str = "auto",
        init: str = "auto",
        mirror: bool = False,
        module: Any = None,
        input_shape: tuple[int, ...] | None = None,
        groups: Any = None,
        loss: str = "log_loss",
        alpha: float = 1e-6,
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        row_norm: str | None = "l2",
        data_norm: float | None = None,
        class_weight: dict | None = None,
        classes: Any = None,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            loss=loss,
            alpha=alpha,
            n_iter=n_iter,
            learning_rate=learning_rate,
            momentum=momentum,
            average=average,
            clip_norm=clip_norm,
            batch_size=batch_size,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            row_norm=row_norm,
            data_norm=data_norm,
            class_weight=class_weight,
            classes=classes,
            microbatch_size=microbatch_size,
            device=device,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.directions = directions
        self.n_components = n_components
        self.residual = residual
        self.clipping = clipping
        self.residual_norm = residual_norm
        self.embedding_share = embedding_share
        self.anchor_labels = anchor_labels
        self.power_iterations = power_iterations
        self.center = center
        self.mean_share = mean_share
        self.init = init
        self.mirror = mirror
        self.module = module
        self.input_shape = input_shape
        self.groups = groups

    @with_callbacks
    def fit(self, X: Any, y: Any, *, X_public: Any = None, y_public: Any = None):
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,)
            Private labels.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or tuple of such, optional
            Their labels, in the form of `X_public`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit(X, y, X_public=X_public, y_public=y_public)

    def _drawn(self, rng: np.random.Generator, n_public: int, n_outputs: int) -> np.ndarray:
        return rng.integers(max(2, n_outputs), size=n_public)

    def _keep(self, trained: Trained, offset: np.ndarray) -> None:
        if self.module is None:
            return super()._keep(trained, offset)
        self.offset_ = offset
        self.module_ = trained.source.loaded(trained.weights)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        if not hasattr(self, "module_"):
            return super()._scores(X)
        return self._module_scores(X) + self.offset_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._centres and self.row_norm is None:
            raise ValueError(
                "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
                " private. Use row_norm='l2', 'clip' with a public data_norm, or center=False."
            )


class GEPRegressor(_GradientEmbedding, LinearRegressor):
    """X."""

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        directions: str = "auto",
        n_components: int | str = "auto",
        residual: bool | str = "auto",
        clipping: str = "separate",
        residual_norm: float | str = "auto",
        embedding_share: float | str = "auto",
        anchor_labels: str = "redrawn",
        power_iterations: int | None = 1,
        center: bool = True,
        mean_share: float | str = "auto",
        init: str = "auto",
        mirror: bool = False,
        module: Any = None,
        input_shape: tuple[int, ...] | None = None,
        groups: Any = None,
        loss: str = "squared_error",
        alpha: float = 1e-6,
        data_norm: float | None = None,
        target_bounds: tuple[Any, Any] | None = None,
        bounds_share: float | str = "auto",
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            loss=loss,
            alpha=alpha,
            data_norm=data_norm,
            target_bounds=target_bounds,
            bounds_share=bounds_share,
            n_iter=n_iter,
            learning_rate=learning_rate,
            momentum=momentum,
            average=average,
            clip_norm=clip_norm,
            batch_size=batch_size,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            microbatch_size=microbatch_size,
            device=device,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.directions = directions
        self.n_components = n_components
        self.residual = residual
        self.clipping = clipping
        self.residual_norm = residual_norm
        self.embedding_share = embedding_share
        self.anchor_labels = anchor_labels
        self.power_iterations = power_iterations
        self.center = center
        self.mean_share = mean_share
        self.init = init
        self.mirror = mirror
        self.module = module
        self.input_shape = input_shape
        self.groups = groups

    @with_callbacks
    def fit(self, X: Any, y: Any, *, X_public: Any = None, y_public: Any = None):
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or (m, n_targets), or tuple of such, optional
            Their targets, in the form of `X_public`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit(X, y, X_public=X_public, y_public=y_public)

    def _drawn(self, rng: np.random.Generator, n_public: int, n_outputs: int) -> np.ndarray:
        return rng.uniform(-1, 1, size=(n_public, n_outputs))

    def _view(self) -> GEPRegressor:
        """What bounds are bought for: a module needs none on rows."""
        if self.module is None or self.data_norm is not None:
            return self
        other = copy.copy(self)
        other.data_norm = 1.0
        return other

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        return super(GEPRegressor, self._view())._before(sizes)

    def _bound(self, X: Array, targets: Array, releases: Releases) -> Bounded:
        return super(GEPRegressor, self._view())._bound(X, targets, releases)

    def _keep(self, trained: Trained, *, single: bool) -> None:
        if self.module is None:
            return super()._keep(trained, single=single)
        self._single = single
        self.module_ = trained.source.loaded(trained.weights)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, which may lie outside ``target_bounds_``.
        """
        check_is_fitted(self)
        if not hasattr(self, "module_"):
            return super().predict(X)
        low, high = self.target_bounds_
        scores = (low + high) / 2 + (high - low) / 2 * self._module_scores(X)
        return scores[:, 0] if self._single else scores
