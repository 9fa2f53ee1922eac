"""What private models use public rows for: gradient embedding, a mean, a start, mirror descent.

Design note. One mixin holds all that public rows are used for: the directions on which
gradients are embedded, the mean to centre by, the weights to start from and the gradient to
mix in. Each is a function of public rows and released values, chosen by a parameter, and ends
in a step, a start or a shift that the one training loop runs. What is released is what the
step clips and sums, whatever the public rows are: bad ones cost accuracy and no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse

from dpsubspace import _auto
from dpsubspace._accounting.budget import Sizes
from dpsubspace._accounting.legacy import LinearBudget
from dpsubspace._array import Array, as_like, check_device, device, namespace, to_numpy
from dpsubspace._checks import check_auto, check_bool, check_choice, check_integer
from dpsubspace._compat import nameless
from dpsubspace._estimators.linear_model import Bounded, LinearModel, Problem, Releases, Trained
from dpsubspace._gradients.groups import parameter_groups
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.modules import ModuleSource, module_scores
from dpsubspace._public.anchors import anchor_subspace, group_sizes
from dpsubspace._public.directions import Directions, principal_directions
from dpsubspace._public.start import Labelled, mean_gradient, missed, rightly
from dpsubspace._public.subspace import FeatureSubspace, Subspace
from dpsubspace._rows.features import Features
from dpsubspace._rows.inputs import check_rows
from dpsubspace._rows.maps import RowMap, Shift
from dpsubspace._rows.public import PublicRows
from dpsubspace._solvers.descent import Step
from dpsubspace._solvers.steps import FlatStep, GEPStep, MirrorStep
from dpsubspace._statistics.counts import noisy_shares
from dpsubspace._statistics.means import noisy_mean
from dpsubspace.exceptions import PublicDataWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["GradientEmbedding"]

DIRECTIONS = ("auto", "features", "gradients")
CLIPPING = ("separate", "joint")
ANCHOR_LABELS = ("redrawn", "fixed", "public")


class GradientEmbedding(LinearModel):
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
            warn(
                f"{type(self).__name__} got no public rows and trains without them. Pass them as"
                " fit(X, y, X_public=(rows,)). If you have none, use a DPSGD estimator instead.",
                PublicDataWarning,
                about=("none", type(self).__name__),
            )
        elif self.n_components != "auto" and int(self.n_components) > len(public.X):
            warn(
                f"`n_components`={self.n_components} is more than the {len(public.X)} public rows."
                f" So few rows span at most {len(public.X)} directions, and fewer than"
                " `n_components` are used. Pass more public rows.",
                PublicDataWarning,
                about=("n_components", type(self).__name__, self.n_components),
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

    @nameless
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
        if "mean" in releases:
            mean = noisy_mean(features, features.bound, releases, public=rows)
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
        multiplier = releases.budget.of_all("steps")
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
        (:func:`~dpsubspace._statistics.counts.noisy_shares`) and decide what is trained:
        postprocessing.
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
        shares = noisy_shares(namespace(values[0]).stack(values, axis=1), releases)
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

    def _step(self, problem: Problem, budget: LinearBudget, clip_norm: float, rng: Any) -> Step:
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

    def _has_objective(self, problem: Problem) -> bool:
        if self.module is not None or self.mirror:
            return False
        # Gradients on directions of their own at every step are those of no one function.
        embedded = self._kind == "gradients" and problem.public is not None
        return not embedded or self._has_residual() or self.n_components == 0

    def _span(self, problem: Problem) -> Array | None:
        return None if self._has_residual() else problem.directions

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

    def _bearable(self) -> float:
        return super()._bearable() if self.module is None else _auto.HIDING_MODULES

    def _n_weights(self, sizes: Sizes) -> float | None:
        if self.module is not None:
            return self._n_params(sizes)
        decided_later = sizes.n_public and self._kind == "features"
        return None if decided_later else super()._n_weights(sizes)

    def _tell(self, trained: Trained) -> None:
        super()._tell(trained)
        problem, features = trained.problem, trained.problem.features
        if features is None or self._kind != "features" or problem.init != "zero":
            return
        n_weights = features.width if problem.directions is None else len(problem.directions)
        if problem.public is not None:  # without public rows it has been said
            epsilon, n_samples = self.privacy_.epsilon, features.n_samples
            self._warn_of_noise(trained.budget, epsilon, n_samples, n_weights)

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
        return _auto.MODULE_WALK * loss.size / loss.walk(sizes.n_outputs or 1) * length

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
