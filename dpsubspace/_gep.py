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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsubspace import _auto
from dpsubspace._array import (
    Array,
    as_like,
    check_device,
    device,
    namespace,
    row_norms,
    to_numpy,
)
from dpsubspace._classifier import LinearClassifier
from dpsubspace._compat import with_callbacks
from dpsubspace._features import Features
from dpsubspace._gradients import LinearSource
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
)
from dpsubspace._modules import ModuleSource, module_scores, parameter_groups
from dpsubspace._moments import noisy_mean, noisy_shares
from dpsubspace._public import (
    Directions,
    Labelled,
    mean_gradient,
    missed,
    principal_directions,
    rightly,
)
from dpsubspace._regressor import LinearRegressor
from dpsubspace._scaling import RowMap, Shift
from dpsubspace._steps import FlatStep, GEPStep, MirrorStep
from dpsubspace._subspace import FeatureSubspace, Subspace, anchor_subspace, group_sizes
from dpsubspace._training import Step
from dpsubspace.exceptions import PublicDataWarning

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["GEPClassifier", "GEPRegressor"]

DIRECTIONS = ("auto", "features", "gradients")
CLIPPING = ("separate", "joint")
ANCHOR_LABELS = ("redrawn", "fixed", "public")


class _GradientEmbedding(LinearModel):
    """What public rows are used for."""

    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

    directions: str
    n_components: int | str
    residual: bool | str
    clipping: str
    residual_norm: float | str
    embedding_share: float | str
    anchor_labels: str
    power_iterations: int | None
    center: bool
    mean_share: float | str
    checks_share: float | str
    init: str
    mirror: bool
    module: Any
    input_shape: tuple[int, ...] | None
    groups: Any

    module_: Any  # the trained copy of it

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
        elif self.n_components != "auto" and int(self.n_components) > len(public.X):
            warnings.warn(
                f"`n_components`={self.n_components} is more than the {len(public.X)} public rows,"
                " which span no more directions than they are: fewer are used. Pass more rows.",
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

    def privacy_event(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
        *,
        n_public: int = 0,
        labelled: bool = False,
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
        n_public : int, default=0
            Number of public rows. What is released before training depends on whether
            there are any; what all of it costs together does not.
        labelled : bool, default=False
            Whether they have labels.

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
        return self._budget(Sizes(n_samples, n_features, n_outputs, n_public, labelled)).event

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        before = dict(super()._before(sizes))
        if self._centres:
            share = _auto.PUBLIC_MEAN_SHARE if sizes.n_public else _auto.MEAN_SHARE
            if self.mean_share != "auto":
                share = float(self.mean_share)
            before |= {"mean": (share, 1)} if share else {}
        if self._guarded(sizes) or self._gated(sizes):
            before["checks"] = (self._checks_share(), 1)
        return before

    def _checks_share(self) -> float:
        return _auto.CHECK_SHARE if self.checks_share == "auto" else float(self.checks_share)

    def _guarded(self, sizes: Sizes) -> bool:
        """Whether private rows are asked how much of them public directions miss."""
        asked = self._kind == "features" and self.n_components == "auto"
        return asked and sizes.n_public > 0 and self._checks_share() > 0

    def _gated(self, sizes: Sizes) -> bool:
        """Whether private rows are asked how well a fit to public labels does."""
        asked = self.init == "auto" and self.module is None
        return asked and sizes.labelled and self._checks_share() > 0

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
        rows = None
        if public is not None:
            rows = features.of(as_like(public.X, features.lengths))
            rows = to_numpy(rows.at(slice(0, rows.n_samples)).formed())
        if "mean" in releases.budget.before:
            mean = noisy_mean(
                features,
                features.bound,
                releases.budget.before["mean"],
                noise=releases.noise.child("mean"),
                neighboring_relation=releases.neighboring_relation,
                present=releases.present,
                public=rows,
            )
        elif rows is None:
            return features
        else:
            mean = rows.mean(axis=0)
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
        return self._linear_problem(linear, bounded, n_outputs, releases, public)

    def _linear_problem(
        self,
        linear: Problem,
        bounded: Bounded,
        n_outputs: int,
        releases: Releases,
        public: PublicRows,
    ) -> Problem:
        """A linear model with the directions and the start that public rows are good for."""
        features, source, start = linear.features, linear.source, linear.start
        assert features is not None
        unshifted = features.shifted(None).of(as_like(public.X, features.lengths))
        rows = unshifted.shifted(features.shift)
        formed = rows.at(slice(0, rows.n_samples)).formed()
        # Anchors are these numbers themselves: less a mean that they nearly equal, rows would
        # be other numbers in every product, by more than the subspace counts for rounding.
        plain = Features(formed, RowMap(norm=None))
        anchors, labelled = LinearSource(source.loss, plain, None, public=formed), None
        if public.targets is not None:
            targets = self._public_targets(public.targets, bounded)
            anchors = anchors.relabelled(as_like(targets, bounded.targets))
            if self.init != "zero":
                labelled = Labelled(source.loss, to_numpy(formed), targets, n_outputs)
                start = as_like(labelled.fitted(), start)
        multiplier = releases.budget.multiplier
        noise = multiplier * self._clip_norm(features.bound) / features.n_samples
        clear = _auto.clear_energy(n_outputs, noise)
        principal = principal_directions(unshifted, features)
        directions = self._kept(principal, clear)
        knowing = source if directions is None else source.beside(directions.vectors)
        shares = self._checked(knowing, directions, start, labelled, releases)
        if directions is not None and "missed" in shares:
            n_off = features.width - len(directions.energies)
            if shares["missed"] * features.bound**2 > n_off * clear:
                directions = None
        if labelled is not None and "right" in shares:
            expected = labelled.held_out(self._right(labelled.targets))
            if shares["right"] < (self._chance(labelled.targets) + expected) / 2:
                start = linear.start
        if self._kind == "gradients":
            knowing = source.beside(formed)
        elif directions is None:
            knowing = source
        way_left = 1.0
        if start is not linear.start:
            way_left = _auto.way_left(
                (directions or principal).energies,
                clear,
                n_public=rows.n_samples,
                n_outputs=n_outputs,
                n_samples=features.n_samples,
                multiplier=multiplier,
            )
        vectors = None if directions is None else directions.vectors
        return Problem(
            knowing,
            start,
            linear.penalised,
            features,
            anchors,
            vectors,
            way_left,
            n_outputs,
            "zero" if start is linear.start else "public",
        )

    def _kept(self, principal: Directions, clear: float) -> Directions | None:
        """Directions of features to embed gradients on; None for all of the space."""
        if self._kind == "gradients" or self.n_components == 0:
            return None
        if self.n_components != "auto":
            return principal.first(check_integer("n_components", self.n_components, low=1))
        if principal.outside > clear:
            return None
        kept = principal.first(_auto.n_worth(principal.energies, clear))
        return None if kept.are_all else kept

    def _checked(
        self,
        source: LinearSource,
        directions: Directions | None,
        start: Array,
        labelled: Labelled | None,
        releases: Releases,
    ) -> dict[str, float]:
        """Release how much of the private rows is off the directions, and how many `start` fits.

        Notes
        -----
        Privacy: each is the mean over records of a number in [0, 1] that depends on its own record
        alone, given public rows and the released mean. Both are released as one vector
        (:func:`~dpsubspace._moments.noisy_shares`) and decide what is trained: postprocessing.
        """
        sizes = Sizes(None, n_public=1, labelled=labelled is not None)
        columns: dict[str, Array] = {}
        if self._guarded(sizes):
            zeros = namespace(source.features.lengths).zeros_like(source.features.lengths)
            columns["missed"] = zeros if directions is None else missed(source)
        if labelled is not None and self._gated(sizes):
            columns["right"] = rightly(source, start, self._right(labelled.targets))
        if not columns:
            return {}
        values = list(columns.values())
        shares = noisy_shares(
            namespace(values[0]).stack(values, axis=1),
            releases.budget.before["checks"],
            noise=releases.noise.child("checks"),
            neighboring_relation=releases.neighboring_relation,
            present=releases.present,
        )
        return dict(zip(columns, map(float, shares), strict=True))

    def _right(self, targets: Any) -> Callable[[Array, Array], Array]:
        """Whether scores are right about targets, record by record."""
        raise NotImplementedError

    def _chance(self, targets: Any) -> float:
        """Share of public rows that a constant gets right."""
        raise NotImplementedError

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
        return Problem(
            private, start, penalised, public=anchors, n_outputs=n_outputs, init="module"
        )

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
        nothing = np.zeros((len(rows), *targets.shape[1:]), targets.dtype)  # set or drawn later
        return source, ModuleSource(self.module, loss, rows, nothing, **options)

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
                public_gradient=lambda params: mean_gradient(problem.public, params),
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
        groups, counts = self._counts(problem)

        def drawn() -> Any:
            targets = self._drawn(rng, n_public, problem.n_outputs)
            return source.relabelled(
                targets if self.module is not None else _moved(targets, problem.start)
            )

        once = drawn() if self.anchor_labels == "fixed" else source

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

    def _counts(self, problem: Problem) -> tuple[list[Any], list[int]]:
        """Groups of parameters and the number of directions of gradients of each."""
        groups, sizes = self._groups(problem)
        wanted, n_public = _auto.ANCHOR_DIRECTIONS, problem.public.n_samples
        if self.n_components != "auto":
            wanted = int(self.n_components)
        elif self.module is not None:
            wanted = n_public // 2
        return groups, group_sizes(wanted, sizes, n_public) if wanted else [0]

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

    def _say(self, trained: Trained) -> None:
        """Store what "auto" stood for: released or public numbers decided it."""
        problem = trained.problem
        self.init_ = problem.init
        self.n_components_ = None
        if problem.directions is not None:
            self.n_components_ = int(problem.directions.shape[0])
        elif self._kind == "gradients" and problem.public is not None:
            self.n_components_ = sum(self._counts(problem)[1]) or None

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
        length, loss = super()._travel(sizes, multiplier, step), self._losses[self.loss]
        if self.module is None:
            return length
        return _auto.MODULE_WALK * loss.size / loss.walk * length

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
        for name, check in (("n_components", _check_count), ("residual", check_bool)):
            value = getattr(self, name)
            try:
                if not (isinstance(value, str) and value == "auto"):
                    check(name, value)
            except ValueError as error:
                raise ValueError(f"{error} Or use 'auto'.") from None
        check_choice("clipping", self.clipping, CLIPPING)
        check_auto("residual_norm", self.residual_norm, low=1e-10, high=1e50)
        check_auto("embedding_share", self.embedding_share, low=0, high=1)
        check_choice("anchor_labels", self.anchor_labels, ANCHOR_LABELS)
        if self.power_iterations is not None:
            check_integer("power_iterations", self.power_iterations, low=1)
        check_bool("center", self.center)
        check_auto("mean_share", self.mean_share, low=0, high=1, include_low=True)
        check_auto("checks_share", self.checks_share, low=0, high=1, include_low=True)
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
        if isinstance(self.module, type) or not hasattr(self.module, "named_parameters"):
            raise ValueError(
                "`module` must be a torch.nn.Module (an instance, not its class) or None, got"
                f" {type(self.module).__name__}."
            )
        parameter_groups(self.module, self.groups)  # raises what it has to
        if self.epsilon == math.inf and self.learning_rate == "auto":
            raise ValueError(
                "learning_rate='auto' of a `module` follows from the noise, and epsilon=inf adds"
                " none: give `learning_rate`, and `n_iter`."
            )
        if self.directions == "features":
            raise ValueError("directions='features' is for linear models: use 'gradients'.")
        if self.init == "public":
            raise ValueError(
                "init='public' is for linear models. A module starts from its own parameters:"
                " train it on public rows first, then pass it."
            )


def _check_count(name: str, value: Any) -> int:
    return check_integer(name, value, low=0)


def _nothing(params: Array, t: int) -> Subspace:
    raise AssertionError("no subspace is asked for")


def _moved(values: np.ndarray, like: Array) -> Array:
    """`values` where `like` is, of their own dtype."""
    if isinstance(like, np.ndarray):
        return values
    return namespace(like).asarray(values, device=device(like))


class GEPClassifier(_GradientEmbedding, LinearClassifier):
    """Private classifier that spends its noise where public rows say that gradients live.

    Gradient embedding perturbation splits every gradient into its part along a few directions
    that public rows give, and a small rest, and adds noise to each in proportion to
    what it is allowed to be. Public rows further give a mean to centre by and, with labels,
    weights to start from. They cost no privacy, whatever they are; bad ones cost accuracy.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for everything that is released.
        ``float("inf")`` trains without clipping and noise. None where
        `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record is a null record, or what it is. The
        second needs twice the noise. The number of records is public in both.
    directions : {"auto", "features", "gradients"}, default="auto"
        What the directions are made of. "features": principal directions of the public
        rows, the same for every column of scores; they need no labels and stay as they are.
        "gradients": top directions of public gradients at the current parameters (Yu
        et al., 2021). "auto" is "features" for linear models and "gradients" for modules.
    n_components : int or "auto", default="auto"
        Number of directions: of features (each holds one parameter for every column of
        scores) or of gradients; fewer where public rows span fewer. 0 embeds nothing: DP-SGD.
        "auto" takes the directions of features that stand out of the noise, at least those with
        0.6 of the public rows' energy, and the whole space where all do or where private
        rows turn out to have much outside (a released number); 200 directions of gradients,
        and half as many as public rows for modules.
    residual : bool or "auto", default="auto"
        Whether what lies off the directions is released as well, with its own bound. False
        is B-GEP. "auto" is True for directions of gradients.
    clipping : {"separate", "joint"}, default="separate"
        Bound embedding and residual each on its own, or both by one factor. This and the
        next four parameters are of no effect where there is no residual or no directions of
        gradients, as by default for linear models.
    residual_norm : float or "auto", default="auto"
        Bound on the residual of one gradient. "auto" is a fifth of the clip norm, and half of it
        for modules.
    embedding_share : float or "auto", default="auto"
        Share in (0, 1) of a step's budget (of mu^2) for the embedding, where the two are
        clipped separately. "auto" is 0.8, and 0.5 for modules.
    anchor_labels : {"redrawn", "fixed", "public"}, default="redrawn"
        Labels of the public rows for directions of gradients: random ones, drawn at
        every step or once, or `y_public`.
    power_iterations : int or None, default=1
        Of the search for directions of gradients, from a random start; None takes the exact
        ones.
    center : bool, default=True
        Whether rows are shifted by their mean before a linear model is trained (see
        :class:`DPSGDFClassifier`).
    mean_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for the mean of the private rows, which is
        combined with that of the public ones, each weighted by what it is worth. 0 takes the
        public mean as it is; "auto" is 0.05, and 0.1 without public rows.
    checks_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for asking the private rows what public
        ones are good for, where `n_components` or `init` is "auto". 0 takes it on trust; "auto"
        is 0.05.
    init : {"auto", "zero", "public"}, default="auto"
        Where a linear model starts: from zero, or from a fit to the labelled public rows,
        which shortens the way that is left. "auto" is "public" where `y_public` is given and
        the fit turns out to be of use on private rows (a released number). A module starts
        from its own parameters: train it on public rows first.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight
        that grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    module : torch.nn.Module or None, default=None
        What to train instead of a linear model: from a batch of rows to scores, one column
        for two classes and else one a class.
        It is copied, and its copy put into evaluation mode; parameters without
        ``requires_grad`` stay as they are. Row maps, intercept and centring do not apply.
    input_shape : tuple of int or None, default=None
        Shape to give to each row before the module sees it, ``(1, 28, 28)`` say.
    groups : None, "outputs", "layers", int or list of lists of str, default=None
        Groups of parameters with directions of their own, shared out by the square roots
        of their sizes. "outputs": a column of scores each, for linear models; the others are
        for modules: top-level layers, so many consecutive parts, or names of parameters.
    loss : {"log_loss", "hinge"}, default="log_loss"
        Multinomial log loss (for two classes the logistic loss), or the margin loss of
        support vector machines, which gives no probabilities.
    alpha : float, default=1e-6
        Weight of the squared norm of the weights, halved, beside the mean loss. The intercept is
        not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 (20 passes where that is more,
        with a `batch_size`), and without privacy as many as a stationary point takes, up
        to 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal, all public.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9, and without privacy grows and restarts.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Without privacy the last step is returned.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record, or on its embedding. "auto" is a quarter
        of the bound on a row (half without centring), and 1 for modules.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to centred ones.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip", None}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`; None changes nothing, and needs ``center=False``.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class, by which predicted probabilities are multiplied.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    microbatch_size : int or None, default=None
        Records to have in memory at once; no more than memory and time depend on it. None
        leaves it to the device. Lower it where gradients of a module run out of memory.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy (torch for modules), anything else torch, with the
        same arithmetic and noise. "auto" takes a GPU if there is one.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of a linear model; they act on rows after the map of `row_norm`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean that mapped rows were shifted by, of released and public values.
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    n_components_ : int or None
        Number of directions that gradients were embedded on (for "gradients" at most); None where
        all of the space was trained.
    init_ : {"zero", "public", "module"}
        Where training started.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged.
    learning_rate_ : float
        Step size used.
    clip_norm_ : float
        Clip norm used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDFClassifier : The same without public rows.
    GEPRegressor : The same for numbers.
    TorchFeatures : Frozen modules in front of a linear model, cheaper than training them.

    Notes
    -----
    Released: the mean of the mapped rows (unless ``mean_share=0``), as by
    :class:`DPSGDFClassifier`; where ``n_components="auto"`` or
    ``init="auto"`` ask for it, with `checks_share` up to two means of numbers in [0, 1], of
    sensitivity sqrt(2) together as sums: how much of a row is off the directions, and whether
    the public fit is right about it (more often than half-way from chance to what it gets right
    of held-out public rows, or it is not used); then at every step the sum of clipped embeddings
    and that of clipped residuals, of L2 sensitivity C and R (``"zero_out"``) or twice that
    (``"replace_one"``), with C = `clip_norm` and R = `residual_norm`; or with joint clipping both
    as one vector in units of their bounds. Event: the two sums of a step are *one* Gaussian
    mechanism, inside the sampling where `batch_size` is set, so that a step costs what one
    of DP-SGD costs. Counting two sampled mechanisms instead, as the code published with the
    paper does, is wrong: at its settings for SVHN and epsilon 8 the true cost is 21.4. The
    unit is one row. Assumed public: the numbers of rows and features, the set of labels,
    `X_public` and `y_public`, `module` and all other parameters.

    Directions depend on public rows, random or public labels, and parameters that earlier
    releases determine. That fails if public rows were *chosen* or scaled by looking at
    private ones: then the choice is a release to pay for.

    No gradient of a linear model is ever formed: inner products of rows with public
    rows are computed once, those of gradients follow from them. A module's gradients are formed
    chunk by chunk.

    Without public rows this is :class:`DPSGDFClassifier` (:class:`DPSGDClassifier` with
    ``center=False``), or DP-SGD for a module, and ``fit`` warns.

    What to expect. Public rows help where noise outweighs the signal: few rows, small
    epsilon. Labelled ones from the same source help most, and the model fitted to them alone
    is what to beat. On linear models, directions of gradients with random labels are no
    better than those of features, cost more time, and lose more where public rows come from
    elsewhere; ``benchmarks/repro_gep.py`` has the tables.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta. "Public
    data-assisted mirror descent for private model training". ICML 2022.

    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import GEPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> X, X_public, y, y_public = train_test_split(X, y, test_size=100, random_state=0)
    >>> model = GEPClassifier(epsilon=0.3, random_state=0)
    >>> model.fit(X, y, X_public=(X_public,), y_public=(y_public,)).score(X_test, y_test) > 0.85
    True
    """

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
        checks_share: float | str = "auto",
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
        self.checks_share = checks_share
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

    def _right(self, targets: Any) -> Callable[[Array, Array], Array]:
        def right(scores: Array, y: Array) -> Array:
            if scores.shape[1] == 1:
                return (scores[:, 0] > 0) == (y == 1)
            return namespace(scores).argmax(scores, axis=1) == y

        return right

    def _chance(self, targets: Any) -> float:
        return float(np.bincount(to_numpy(targets)).max() / len(targets))

    def _keep(self, trained: Trained, offset: np.ndarray) -> None:
        self._say(trained)
        if self.module is None:
            return super()._keep(trained, offset)
        self.offset_ = offset
        self.module_ = trained.problem.source.loaded(trained.weights)

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
    """Private regression that spends its noise where public rows say that gradients live.

    Gradient embedding perturbation splits every gradient into its part along a few directions
    that public rows give, and a small rest, and adds noise to each in proportion to
    what it is allowed to be. Public rows further give a mean to centre by and, with targets,
    weights to start from. They cost no privacy, whatever they are; bad ones cost accuracy.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for everything that is released.
        ``float("inf")`` trains without clipping and noise. None where
        `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record is a null record, or what it is. The
        second needs twice the noise. The number of records is public in both.
    directions : {"auto", "features", "gradients"}, default="auto"
        What the directions are made of. "features": principal directions of the public
        rows, the same for every column of scores; they need no labels and stay as they are.
        "gradients": top directions of public gradients at the current parameters (Yu
        et al., 2021). "auto" is "features" for linear models and "gradients" for modules.
    n_components : int or "auto", default="auto"
        Number of directions: of features (each holds one parameter for every column of
        scores) or of gradients; fewer where public rows span fewer. 0 embeds nothing: DP-SGD.
        "auto" takes the directions of features that stand out of the noise, at least those with
        0.6 of the public rows' energy, and the whole space where all do or where private
        rows turn out to have much outside (a released number); 200 directions of gradients,
        and half as many as public rows for modules.
    residual : bool or "auto", default="auto"
        Whether what lies off the directions is released as well, with its own bound. False
        is B-GEP. "auto" is True for directions of gradients.
    clipping : {"separate", "joint"}, default="separate"
        Bound embedding and residual each on its own, or both by one factor. This and the
        next four parameters are of no effect where there is no residual or no directions of
        gradients, as by default for linear models.
    residual_norm : float or "auto", default="auto"
        Bound on the residual of one gradient. "auto" is a fifth of the clip norm, and half of it
        for modules.
    embedding_share : float or "auto", default="auto"
        Share in (0, 1) of a step's budget (of mu^2) for the embedding, where the two are
        clipped separately. "auto" is 0.8, and 0.5 for modules.
    anchor_labels : {"redrawn", "fixed", "public"}, default="redrawn"
        Targets of the public rows for directions of gradients: random ones, drawn at
        every step or once, or `y_public`.
    power_iterations : int or None, default=1
        Of the search for directions of gradients, from a random start; None takes the exact
        ones.
    center : bool, default=True
        Whether rows are shifted by their mean before a linear model is trained (see
        :class:`DPSGDFClassifier`).
    mean_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for the mean of the private rows, which is
        combined with that of the public ones, each weighted by what it is worth. 0 takes the
        public mean as it is; "auto" is 0.05, and 0.1 without public rows.
    checks_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for asking the private rows what public
        ones are good for, where `n_components` or `init` is "auto". 0 takes it on trust; "auto"
        is 0.05.
    init : {"auto", "zero", "public"}, default="auto"
        Where a linear model starts: from zero, or from a fit to the labelled public rows,
        which shortens the way that is left. "auto" is "public" where `y_public` is given and
        the fit turns out to be of use on private rows (a released number). A module starts
        from its own parameters: train it on public rows first.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight
        that grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    module : torch.nn.Module or None, default=None
        What to train instead of a linear model: from a batch of rows to scores, one column
        a target, for targets scaled to [-1, 1].
        It is copied, and its copy put into evaluation mode; parameters without
        ``requires_grad`` stay as they are. Row maps, intercept and centring do not apply.
    input_shape : tuple of int or None, default=None
        Shape to give to each row before the module sees it, ``(1, 28, 28)`` say.
    groups : None, "outputs", "layers", int or list of lists of str, default=None
        Groups of parameters with directions of their own, shared out by the square roots
        of their sizes. "outputs": a column of scores each, for linear models; the others are
        for modules: top-level layers, so many consecutive parts, or names of parameters.
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the squared error of the scaled target, or one that grows linearly beyond 0.1,
        a twentieth of the range of the targets.
    alpha : float, default=1e-6
        Weight of the squared norm of the weights, halved, beside the mean loss. The intercept is
        not penalised.
    data_norm : float or None, default=None
        Public bound on row norms; longer rows are shrunk to it in ``fit``. None takes the
        largest norm of the public rows, or without any releases one: see `bounds_share`. A
        module needs none.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, or two arrays of shape (n_targets,).
        Targets outside are clipped to it in ``fit``. None takes that of `y_public`, a tenth wider
        on either side, or without any releases one.
    bounds_share : float or "auto", default="auto"
        Share in (0, 1) of the budget (of mu^2) for the bounds that are not given. "auto" is 0.1.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 (20 passes where that is more,
        with a `batch_size`), and without privacy as many as a stationary point takes, up
        to 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal, all public.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9, and without privacy grows and restarts.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Without privacy the last step is returned.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record, or on its embedding. "auto" is 0.175
        times the bound on a scaled row (0.35 without centring), less for the Huber loss, and 1
        for modules.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to centred ones.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in units of the bound on row norms.
    microbatch_size : int or None, default=None
        Records to have in memory at once; no more than memory and time depend on it. None
        leaves it to the device. Lower it where gradients of a module run out of memory.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy (torch for modules), anything else torch, with the
        same arithmetic and noise. "auto" takes a GPU if there is one.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights of a linear model: ``predict`` is ``X @ coef_.T + intercept_``.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant term.
    data_norm_ : float
        Bound on row norms that was used: `data_norm`, or released.
    target_bounds_ : tuple of two ndarrays of shape (n_targets,)
        Range of the targets that was used: `target_bounds`, or released.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean that scaled rows were shifted by, of released and public values.
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    n_components_ : int or None
        Number of directions that gradients were embedded on (for "gradients" at most); None where
        all of the space was trained.
    init_ : {"zero", "public", "module"}
        Where training started.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged.
    learning_rate_ : float
        Step size used.
    clip_norm_ : float
        Clip norm used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDRegressor : The same without public rows.
    GEPClassifier : The same for classes, with more on what is released.

    Notes
    -----
    Released: the bounds that are not given, as by :class:`DPSGDRegressor`; the mean of
    the scaled rows (unless ``mean_share=0``); what tells whether public rows are of use (here
    a fit is right about a record if it is closer than the mean of the public targets);
    at every step the sums of clipped embeddings and
    residuals, as by :class:`GEPClassifier`. Event: Gaussian mechanisms, those of the steps on
    Poisson batches where `batch_size` is set, calibrated together and never above
    `epsilon`. The unit is one row. Assumed public: the numbers of rows, features and targets,
    `data_norm`, `target_bounds`, `X_public` and `y_public`, `module` and all other parameters.

    Without public rows this is private regression by DP-SGD on centred rows
    (:class:`DPSGDRegressor` itself with ``center=False``), and ``fit`` warns.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import GEPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 4))
    >>> y = 20 + X @ [3.0, -2.0, 1.0, 0.0] + rng.normal(size=5000)
    >>> model = GEPRegressor(epsilon=0.3, data_norm=2.0, target_bounds=(10, 30), random_state=0)
    >>> model.fit(X[100:], y[100:], X_public=(X[:100],), y_public=(y[:100],)).score(X, y) > 0.7
    True
    """

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
        checks_share: float | str = "auto",
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
        self.checks_share = checks_share
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

    def _with_bounds(self, data_norm: float | None, target_bounds: Any) -> GEPRegressor:
        """Copy with bounds that are public, where none are given."""
        other = copy.copy(self)
        if self.data_norm is None:  # rows of a module need none
            other.data_norm = data_norm if self.module is None else 1.0
        if self.target_bounds is None:
            other.target_bounds = target_bounds
        return other

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        public = 1.0 if sizes.n_public else None, (-1.0, 1.0) if sizes.labelled else None
        return super(GEPRegressor, self._with_bounds(*public))._before(sizes)

    def _bound(
        self, X: Array, targets: Array, releases: Releases, public: PublicRows | None
    ) -> Bounded:
        data_norm = target_bounds = None
        if public is not None:
            data_norm = max(float(row_norms(public.X).max()), 1e-49)
            if public.targets is not None:
                low, high = public.targets.min(axis=0), public.targets.max(axis=0)
                margin = 0.1 * (high - low) + 1e-9 * (1 + np.abs(high))
                target_bounds = low - margin, high + margin
        known = self._with_bounds(data_norm, target_bounds)
        return super(GEPRegressor, known)._bound(X, targets, releases, public)

    def _right(self, targets: Any) -> Callable[[Array, Array], Array]:
        mean = to_numpy(targets).mean(axis=0)

        def right(scores: Array, y: Array) -> Array:
            xp, constant = namespace(scores), as_like(mean, y)
            return xp.sum((scores - y) ** 2, axis=1) < xp.sum((constant - y) ** 2, axis=1)

        return right

    def _chance(self, targets: Any) -> float:
        return 0.5

    def _keep(self, trained: Trained, *, single: bool) -> None:
        self._say(trained)
        if self.module is None:
            return super()._keep(trained, single=single)
        self._single = single
        self.module_ = trained.problem.source.loaded(trained.weights)

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
