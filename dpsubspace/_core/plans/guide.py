"""Uses of public rows by a model: directions, a start, and mirror descent.

Design note. Each use is a function of public rows and released values, chosen by a
parameter, and ends in a step or a start that the one training loop runs. The step clips and sums
what is released, whatever the public rows are: bad public rows cost accuracy and no privacy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.base import BaseEstimator

from dpsubspace._core.accounting.budget import Budget, Part, Sizes
from dpsubspace._core.fits.bounds import Bounded
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.torch_rows import parameter_groups
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import Array, as_like, device, namespace, to_numpy
from dpsubspace._core.ground.checks import (
    check_auto,
    check_bool,
    check_choice,
    check_integer,
    shown,
)
from dpsubspace._core.public.anchors import (
    Fittable,
    Labelled,
    Targets,
    anchor_subspace,
    beside_each_other,
    correct,
    group_sizes,
    held_out,
    mean_gradient,
    nothing,
    share_inside,
)
from dpsubspace._core.public.subspace import (
    Directions,
    FeatureSubspace,
    Subspace,
    principal_directions,
)
from dpsubspace._core.release.mechanisms import check_lattice
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.public import PublicRows
from dpsubspace._core.rows.records import RowMap
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.solvers.descent import STEPS, FlatStep, GEPStep, MirrorStep, Problem, Step
from dpsubspace._core.statistics.counts import noise_of_shares, noisy_shares
from dpsubspace._names import public
from dpsubspace.exceptions import PublicDataWarning, warn

# Directions of gradients ------------------------------------------------------------------------
# Directions of public gradients: the settings of gradient embedding perturbation.


@public
@estimator
class GradientDirections(BaseEstimator):
    """Directions of public gradients, as in gradient embedding perturbation.

    Public rows have gradients too, and the top directions of these at the current parameters are
    where gradients of private rows mostly lie. Every private gradient is split into its embedding,
    which is what it has on these directions, and its residual, which is the rest. Each gets a
    bound and noise of its own. This is the algorithm of Yu et al. (2021). It is passed as the
    parameter `directions` of an estimator, and its own parameters are reached by names such as
    ``directions__n_components``.

    Choose `n_components` if anything. The other parameters can be left alone; they are there to
    reproduce the paper.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of directions; fewer are used where public gradients span fewer, and 0 is plain
        DP-SGD. "auto" is 200 for linear models and half the number of public rows for modules.
    residual : bool, default=True
        Whether what a gradient has off the directions is released as well, with a bound of its
        own. "auto" is True. False is the variant that the paper calls B-GEP.
    labels : {"redrawn", "public"}, default="redrawn"
        Labels or targets at which gradients of public rows are taken: random ones that are drawn
        anew at every step, or `y_public`.
    residual_norm : float or "auto", default="auto"
        Bound on the L2 norm of the residual of one gradient, which is what it has off the
        directions. "auto" is a fifth of the `clip_norm` of the estimator, and half of it for
        modules. Not used without a residual.
    embedding_share : float or "auto", default="auto"
        Share in [0.001, 0.999] of the budget of a step (of mu^2) for the embedding, which is what a
        gradient has on the directions; the residual gets the rest. "auto" is 0.8, and 0.5 for
        modules. Without a residual the embedding gets all.
    power_iterations : int or None, default=1
        Number of power iterations, from a random start, by which the directions are found. None
        computes them exactly, as is always done for gradients of no more entries than there are
        public rows.
    groups : None, "layers", int or list of lists of str, default=None
        For modules: groups of parameters with directions of their own, whose numbers are in
        proportion to the square roots of the sizes of the groups. "layers" makes a group of each
        child of the module, a number makes so many groups of consecutive parameters, and lists
        name the parameters, or the layers that hold them. None is one group.

    See Also
    --------
    GEPClassifier : Linear models, with directions of features by default.
    DPModuleClassifier : Torch modules, with these directions by default.

    Notes
    -----
    What is released at every step is the noisy sum of clipped embeddings and, with `residual`,
    that of clipped residuals. One row changes the first by at most C in L2 norm and the second by
    at most R (``"zero_out"``), or by twice that (``"replace_one"``), with C the `clip_norm` of the
    estimator and R = `residual_norm`. The two sums are *one* Gaussian mechanism, inside the
    sampling where `batch_size` is set, so that a step costs what one of DP-SGD costs. Counting two
    sampled mechanisms instead, as the code published with the paper does, is wrong: at its
    settings for SVHN and epsilon 8 the true cost is 21.4.

    Directions depend on public rows, on random or public labels, and on parameters that earlier
    releases determine. They cost nothing, unless public rows were *chosen* or scaled by looking at
    private ones.

    For linear models with random labels these directions are no better than those of features,
    cost more time, and lose more where public rows come from elsewhere.
    ``benchmarks/repro_gep.py`` and ``benchmarks/repro_gep_deep.py`` have the tables.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import GEPClassifier
    >>> from dpsubspace.linear_model import GradientDirections
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> X, X_public, y, _ = train_test_split(X, y, test_size=100, random_state=0)
    >>> directions = GradientDirections(n_components=50)
    >>> model = GEPClassifier(epsilon=1.0, directions=directions, random_state=0)
    >>> model.fit(X, y, X_public=(X_public,)).score(X_test, y_test) > 0.85
    True
    """

    n_components: int | str = "auto"
    residual: bool = True
    labels: str = "redrawn"
    residual_norm: float | str = "auto"
    embedding_share: float | str = "auto"
    power_iterations: int | None = 1
    groups: Any = None


@dataclass(frozen=True)
class Anchors:
    """Checked settings of :class:`GradientDirections`, which cannot change any more."""

    n_components: int | str
    residual: bool
    residual_norm: float | str
    embedding_share: float | str
    labels: str
    power_iterations: int | None
    groups: Any
    # Values of "auto" for `embedding_share`, and for `residual_norm` in units of the clip norm.
    share: float
    ratio: float

    @property
    def needs_labels(self) -> bool:
        return self.labels == "public"

    def step(self, problem: Problem, clip_norm: float, targets: Targets, rng: Any) -> Step:
        """Embed gradients on the directions of public gradients; `rng` is public randomness."""
        count = self.count(problem)
        if not count:
            return FlatStep(clip_norm=clip_norm)
        residual_norm = self.ratio * clip_norm
        if self.residual_norm != "auto" and clip_norm < math.inf:
            residual_norm = float(self.residual_norm)
        share = self.share if self.embedding_share == "auto" else float(self.embedding_share)
        return GEPStep(
            subspace=self._subspace(problem, targets, rng),
            n_components=count,
            clip_norm=clip_norm,
            residual_norm=residual_norm,
            residual=self.residual,
            embedding_share=share,
            n_samples=problem.source.n_samples,
        )

    def check_noise(self, budget: Budget, n_samples: int) -> None:
        share = self.share if self.embedding_share == "auto" else float(self.embedding_share)
        if self.residual and budget.private:
            parts = (share, 1 - share)
            check_lattice(n_samples, *(budget.scales[STEPS] / math.sqrt(s) for s in parts))

    def count(self, problem: Problem) -> int:
        """Number of directions of all groups together; with 0 nothing is embedded."""
        return 0 if problem.public is None else sum(self._counts(problem)[1])

    def _subspace(
        self, problem: Problem, targets: Targets, rng: np.random.Generator
    ) -> Callable[[Array, int], Subspace]:
        source, n_public = problem.public, problem.public.n_samples
        groups, counts = self._counts(problem)

        def drawn() -> Any:
            labels = targets.drawn(rng, n_public, problem.n_outputs)
            return source.relabelled(_moved(labels, problem))

        def at(params: Array, t: int) -> Subspace:
            anchors = drawn() if self.labels == "redrawn" else source
            return anchor_subspace(
                anchors.at(params, slice(0, n_public)),
                counts,
                groups,
                power_iterations=self.power_iterations,
                rng=rng,
            )

        return at

    def _counts(self, problem: Problem) -> tuple[list[Any], list[int]]:
        groups, sizes = self._groups(problem)
        linear, n_public = problem.features is not None, problem.public.n_samples
        wanted = auto.ANCHOR_DIRECTIONS if linear else n_public // 2
        if self.n_components != "auto":
            wanted = int(self.n_components)
        return groups, group_sizes(wanted, sizes, n_public) if wanted else [0]

    def _groups(self, problem: Problem) -> tuple[list[Any], list[int]]:
        shape = problem.start.shape
        if problem.features is not None:
            return [None], [math.prod(shape)]
        groups, index = parameter_groups(problem.source.module, self.groups), np.arange(shape[-1])
        return groups, [math.prod(shape[:-1]) * len(index[group]) for group in groups]


def linear_anchors(directions: Any) -> Anchors:
    given = _checked(directions, "'auto', 'features'")
    if given["groups"] is not None:
        raise ValueError(
            "`groups` of GradientDirections are groups of the parameters of a torch module, and"
            f" a linear model has one: leave it None, got {given['groups']!r}."
        )
    return Anchors(**given, share=auto.EMBEDDING_SHARE, ratio=auto.RESIDUAL_RATIO)


def module_anchors(directions: Any, module: Any) -> Anchors:
    given = _checked(directions, "'auto'")
    parameter_groups(module, given["groups"])  # raises its own errors
    given["groups"] = copy.deepcopy(given["groups"])  # lists of the user may change later
    return Anchors(**given, share=auto.MODULE_SHARE, ratio=auto.MODULE_RATIO)


def _checked(directions: Any, names: str) -> dict[str, Any]:
    if not isinstance(directions, GradientDirections):
        raise ValueError(
            f"`directions` must be {names} or an instance such as"
            f" GradientDirections(n_components=20), got {shown(directions)}."
        )
    given = {field.name: getattr(directions, field.name) for field in fields(directions)}
    if given["n_components"] != "auto":
        check_components("n_components of GradientDirections", given["n_components"])
    check_bool("residual", given["residual"])
    check_auto("residual_norm", given["residual_norm"], low=1e-10, high=1e50)
    # Beyond these ends, noise of one part has no use, and may be too wide to be drawn.
    ends = {"include_low": True, "include_high": True}
    check_auto("embedding_share", given["embedding_share"], low=0.001, high=0.999, **ends)
    check_choice("labels", given["labels"], ("redrawn", "public"))
    if given["power_iterations"] is not None:
        check_integer("power_iterations", given["power_iterations"], low=1)
    return given


def check_components(name: str, value: Any) -> int:
    try:
        return check_integer(name, value, low=0)
    except ValueError as error:
        raise ValueError(f"{error} Or use 'auto'.") from None


def _moved(values: np.ndarray, problem: Problem) -> Array:
    """Return `values` on the device of the parameters, in their own dtype; for modules as is."""
    start = problem.start
    if problem.features is None or isinstance(start, np.ndarray):
        return values
    return namespace(start).asarray(values, device=device(start))


# Whether labels of public rows are believed -----------------------------------------------------


def checks(*, asked: bool) -> dict[str, Part]:
    """One release that shows whether public rows are of use, if that is requested."""
    return {"checks": Part(auto.CHECK_SHARE)} if asked else {}


def borne_out(source: Any, public: Fittable, targets: Targets, releases: Releases) -> bool:
    """Return whether private rows bear out the labels of public rows.

    Privacy: the release is the mean over records of a number in {0, 1} that depends on its own
    record alone, given the fit to public rows. It is released as "checks"
    (:func:`~dpsubspace._core.statistics.counts.noisy_shares`), and what follows is postprocessing.
    Where persons have any number of rows, scores of a row are the same wherever the rows of other
    persons put it (:class:`~dpsubspace._core.gradients.modules.ModuleSource`), so that no other
    number moves.
    """
    right = correct(source, public.fitted(), targets.right(public.targets))
    (share,) = noisy_shares(beside_each_other(right), releases, "checks")
    noise = noise_of_shares(releases.budget.scales["checks"], 1, source.n_samples)
    return trusts(targets, public, float(share), noise)


def trusts(targets: Targets, public: Fittable, right: float, noise: float) -> bool:
    """Return whether a fit to public labels that has this share of private rows right is of use.

    Public rows show how likely that is beforehand: a useful fit has any share of held-out rows
    right that is at least the share of a constant, and a useless fit has the share of a constant,
    each up to chance. Private rows then answer with noise: a useful fit has any share of them right
    from the middle between the share that public rows suggest and that of a constant on, and a
    useless fit has any share below the middle.
    """
    expected = held_out(public, targets.right(public.targets))
    chance = targets.chance(public.targets)
    deviation = math.sqrt(chance * (1 - chance) / len(public.targets))
    if deviation == 0:  # public rows of one class
        return False
    beyond = (expected - chance) / deviation
    rare = math.exp(min(beyond**2 / 2, 100.0)) * math.sqrt(2 * math.pi) * deviation
    odds = auto.TRUST * min(1.0, rare * float(ndtr(beyond)) / (1 - chance))
    middle = max(chance, (chance + expected) / 2)
    at = (np.array([0.0, middle, 1.0]) - min(max(right, 0.0), 1.0)) / max(noise, 1e-12)
    below, above = np.diff(ndtr(at)) / (middle, 1 - middle)
    return bool(odds * above >= below)


# Guides -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PublicSizes:
    """Public sizes of rows and noise, which decide how many directions are of use."""

    n_samples: int
    n_public: int
    width: int
    n_outputs: int
    multiplier: float  # noise multiplier of all steps

    @property
    def n_directions(self) -> int:
        reach = self.n_samples / max(self.multiplier, 1e-300)
        sizes = {"n_public": self.n_public, "width": self.width}
        return auto.n_directions(reach, self.n_outputs, **sizes)

    def needed(self, directions: Directions) -> float:
        """Share of the energy of rows from which on directions are better than all of the space."""
        return auto.break_even(
            self.width * self.n_outputs,
            len(directions.energies) * self.n_outputs,
            n_samples=self.n_samples,
            multiplier=self.multiplier,
            coherence=auto.DIRECTIONS_COHERENCE,
        )


@dataclass(frozen=True)
class PublicGuide:
    targets: Targets  # Whether targets are labels or values
    n_components: int | str = "auto"  # Directions of features; 0 embeds nothing
    anchors: Anchors | None = None  # Directions of gradients instead
    init: str = "auto"  # "auto", "zero", "public": where training starts.
    mirror: bool = False  # Whether the gradient of labelled public rows is mixed in

    def check_public(self, estimator: Any, public: PublicRows | None) -> None:
        needing = {
            "init='public'": self.init == "public",
            "mirror=True": self.mirror,
            "labels='public' of GradientDirections": bool(
                self.anchors and self.anchors.needs_labels
            ),
        }
        check_labelled(needing, public)
        if public is not None:
            warn_of_few(estimator, public, (self.anchors or self).n_components)
            return
        name = type(estimator).__name__
        warn(
            f"{name} got no public rows and trains without them. Pass them as"
            " fit(X, y, X_public=(rows,)). If you have none, use a DPSGD estimator instead.",
            PublicDataWarning,
            about=("none", name),
        )

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        return checks(asked=self._asks_held(sizes) or self._asks_right(sizes))

    def _asks_held(self, sizes: Sizes) -> bool:
        """Return whether to release how much of private rows public directions hold."""
        return self.anchors is None and self.n_components == "auto" and sizes.n_public > 0

    def _asks_right(self, sizes: Sizes) -> bool:
        """Return whether to release how well a fit to public labels does on private rows."""
        return (self.init == "auto" or self.mirror) and sizes.labelled

    # What is trained ------------------------------------------------------------------------

    def problem(
        self,
        linear: Problem,
        bounded: Bounded,
        public: PublicRows,
        releases: Releases,
        clip_norm: float,
    ) -> Problem:
        """A linear model with the directions and the start that public rows are good for."""
        features, source, fitted = linear.features, linear.source, linear.start
        assert features is not None
        unshifted = features.shifted(None).of(as_like(public.X, features.lengths))
        rows = unshifted.shifted(features.shift)
        formed = rows.at(slice(0, rows.n_samples)).dense()
        # Anchors are these rows themselves: if a mean that they nearly equal were subtracted, rows
        # would differ from product to product, by more than the subspace counts for rounding.
        plain = Features(formed, RowMap(norm=None))
        anchors, labelled = LinearSource(source.loss, plain, None, public=formed), None
        if public.targets is not None:
            targets = bounded.public_targets(public.targets)
            anchors = anchors.relabelled(as_like(targets, bounded.targets))
            if self.init != "zero" or self.mirror:
                labelled = Labelled(source.loss, to_numpy(formed), targets, linear.n_outputs)
                fitted = as_like(labelled.fitted(), fitted)
        clear = _clear(releases.budget, features, linear.n_outputs, clip_norm)
        multiplier = releases.budget.per_record_multiplier(STEPS)
        principal = principal_directions(unshifted, features)
        known = PublicSizes(
            n_samples=features.n_samples,
            n_public=rows.n_samples,
            width=features.width,
            n_outputs=linear.n_outputs,
            multiplier=multiplier,
        )
        directions, needed = self._kept(principal, known, clear)
        knowing = source if directions is None else source.with_public(directions.vectors)
        shares = self._checked(knowing, needed, fitted, labelled, releases)
        if needed is not None and "held" in shares and shares["held"] < needed:
            directions = None
        trusted = labelled is not None
        if labelled is not None and "right" in shares:
            scale = releases.budget.scales["checks"]
            noise = noise_of_shares(scale, len(shares), features.n_samples)
            trusted = trusts(self.targets, labelled, shares["right"], noise)
        if self.anchors is not None:
            knowing = source.with_public(formed)
        elif directions is None:
            knowing = source
        guided = replace(
            linear,
            source=knowing,
            public=anchors,
            directions=None if directions is None else directions.vectors,
            mirrored=self.mirror and trusted,
        )
        started = trusted if self.init == "auto" else self.init == "public"
        if labelled is None or not started:
            return guided
        energies = (directions or principal).energies
        remaining = auto.remaining(
            energies,
            clear,
            n_public=rows.n_samples,
            n_outputs=linear.n_outputs,
            n_samples=features.n_samples,
            multiplier=multiplier,
        )
        return replace(guided, start=fitted, remaining=remaining, init="public")

    def _kept(
        self, principal: Directions, sizes: PublicSizes, clear: float
    ) -> tuple[Directions | None, float | None]:
        """Return directions of features to embed gradients on; None for all of the space.

        The second value is the share of the energy of private rows that the directions must hold,
        if that is to be released.
        """
        none = self.n_components == 0 or not len(principal.energies)  # rows that span none
        if self.anchors is not None or none:
            return None, None
        if self.n_components != "auto":
            return principal.first(int(self.n_components)), None
        few = principal.first(sizes.n_directions)
        if len(few.energies):
            needed = sizes.needed(few)
            if few.energies.sum() >= needed * principal.total:
                return few, needed
        kept = principal.first(auto.n_worth(principal.energies, clear))
        if principal.outside > clear or kept.are_all:
            return None, None
        # At least the share that is needed if noise hides nearly everything: see `break_even`.
        n_kept = len(kept.energies)
        clearly = 1 - (sizes.width - n_kept) * clear / principal.total
        return kept, max(math.sqrt(n_kept / sizes.width), clearly)

    def _checked(
        self,
        source: LinearSource,
        needed: float | None,
        start: Array,
        labelled: Labelled | None,
        releases: Releases,
    ) -> dict[str, float]:
        """Release how much of the private rows is on the directions, and how many `start` fits.

        Privacy: each is the mean over records of a number in [0, 1] that depends on its own record
        alone, given public rows and the released mean. Both are released as one vector
        (:func:`~dpsubspace._core.statistics.counts.noisy_shares`) and decide what is trained:
        postprocessing.

        Only whether more than `needed` is held counts. So shares are cut off at twice `needed`, a
        public number, and noise is in proportion to it.
        """
        sizes = Sizes(None, n_public=1, labelled=labelled is not None)
        columns: dict[str, Array] = {}
        most = 1.0 if needed is None else min(1.0, 2 * needed)
        if self._asks_held(sizes):
            held, of = (nothing, {}) if needed is None else (share_inside, {"most": most})
            columns["held"] = rowwise(held, source, **of)
        if labelled is not None and self._asks_right(sizes):
            right = self.targets.right(labelled.targets)
            columns["right"] = rowwise(correct, source, start, right)
        if not columns:
            return {}
        shares = noisy_shares(rowwise(beside_each_other, *columns.values()), releases, "checks")
        found = dict(zip(columns, map(float, shares), strict=True))
        return found | {"held": found["held"] * most} if "held" in found else found

    # How it is trained ----------------------------------------------------------------------

    def step(self, problem: Problem, clip_norm: float, budget: Budget, rng: Any) -> Step:
        step: Step = FlatStep(clip_norm=clip_norm)
        if self.anchors is not None:
            step = self.anchors.step(problem, clip_norm, self.targets, rng)
        elif problem.directions is not None:
            fixed = FeatureSubspace(problem.directions, problem.n_outputs)
            step = GEPStep(
                subspace=lambda params, t: fixed,
                n_components=fixed.n_components,
                clip_norm=clip_norm,
                residual_norm=clip_norm,  # of no effect: there is no residual
                residual=False,
                n_samples=problem.source.n_samples,
            )
        return mirrored(step, problem, budget) if problem.mirrored else step

    def has_objective(self, problem: Problem) -> bool:
        # Gradients on new directions at every step are not the gradients of one function.
        anchors = None if problem.public is None else self.anchors
        of_one = anchors is None or anchors.residual or anchors.n_components == 0
        return of_one and not self.mirror

    def n_trained(self, problem: Problem) -> int | None:
        """Most directions that gradients are embedded on; None if all of the space is used."""
        if problem.directions is not None:
            return int(problem.directions.shape[0])
        return (self.anchors.count(problem) or None) if self.anchors is not None else None


def mirrored(step: Step, problem: Problem, budget: Budget) -> Step:
    part = budget.parts[STEPS]
    return MirrorStep(
        step=step,
        public_gradient=lambda params: mean_gradient(problem.public, params),
        batch_size=part.rate * problem.source.n_samples,
        n_iter=part.count,
    )


def check_labelled(needing: Mapping[str, bool], public: PublicRows | None) -> None:
    for option, needed in needing.items():
        if needed and (public is None or public.targets is None):
            raise ValueError(
                f"{option} needs the labels of public rows: pass `y_public`, or leave it out."
            )


def warn_of_few(estimator: Any, public: PublicRows, n_components: int | str) -> None:
    if n_components != "auto" and int(n_components) > len(public.X):
        warn(
            f"`n_components`={n_components} is more than the {len(public.X)} public rows."
            f" So few rows span at most {len(public.X)} directions, and fewer than"
            " `n_components` are used. Pass more public rows.",
            PublicDataWarning,
            about=("n_components", type(estimator).__name__, n_components),
        )


def _clear(budget: Budget, features: Features, n_outputs: int, clip_norm: float) -> float:
    """Energy of a direction above which gradients along it outdo the noise of all steps."""
    noise = budget.per_record_multiplier(STEPS) * clip_norm / features.n_samples
    return auto.clear_energy(n_outputs, noise)
