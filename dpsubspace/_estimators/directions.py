"""Directions of public gradients: the settings of gradient embedding perturbation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget
from dpsubspace._array import Array, device, namespace
from dpsubspace._checks import check_auto, check_bool, check_choice, check_integer, shown
from dpsubspace._estimators.words import estimator
from dpsubspace._gradients.groups import parameter_groups
from dpsubspace._public.anchors import anchor_subspace, group_sizes
from dpsubspace._public.start import Targets
from dpsubspace._public.subspace import Subspace
from dpsubspace._release.mechanisms import check_lattice
from dpsubspace._solvers.descent import STEPS, Step
from dpsubspace._solvers.problem import Problem
from dpsubspace._solvers.steps import FlatStep, GEPStep

__all__ = ["Anchors", "GradientDirections", "check_components", "linear_anchors", "module_anchors"]


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
    >>> from dpsubspace import GEPClassifier, GradientDirections
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
    """Checked settings of :class:`GradientDirections`, which nothing can change any more.

    Parameters
    ----------
    share, ratio : float
        What "auto" is for `embedding_share`, and for `residual_norm` in units of the clip norm.
    """

    n_components: int | str
    residual: bool
    residual_norm: float | str
    embedding_share: float | str
    labels: str
    power_iterations: int | None
    groups: Any
    share: float
    ratio: float

    @property
    def needs_labels(self) -> bool:
        """Whether public rows need targets of their own."""
        return self.labels == "public"

    def step(self, problem: Problem, clip_norm: float, targets: Targets, rng: Any) -> Step:
        """Embed gradients on the directions of those of public rows; `rng` is public randomness."""
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
        """Raise where the noise of embedding or residual cannot be drawn."""
        share = self.share if self.embedding_share == "auto" else float(self.embedding_share)
        if self.residual and budget.private:
            parts = (share, 1 - share)
            check_lattice(n_samples, *(budget.scales[STEPS] / math.sqrt(s) for s in parts))

    def count(self, problem: Problem) -> int:
        """Number of directions, of all groups together; 0 embeds nothing."""
        return 0 if problem.public is None else sum(self._counts(problem)[1])

    def _subspace(
        self, problem: Problem, targets: Targets, rng: np.random.Generator
    ) -> Callable[[Array, int], Subspace]:
        """Directions at given parameters."""
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
        """Groups of parameters and the number of directions of gradients of each."""
        groups, sizes = self._groups(problem)
        linear, n_public = problem.features is not None, problem.public.n_samples
        wanted = _auto.ANCHOR_DIRECTIONS if linear else n_public // 2
        if self.n_components != "auto":
            wanted = int(self.n_components)
        return groups, group_sizes(wanted, sizes, n_public) if wanted else [0]

    def _groups(self, problem: Problem) -> tuple[list[Any], list[int]]:
        """Index of the last axis of the parameters for each group, and its number of them."""
        shape = problem.start.shape
        if problem.features is not None:
            return [None], [math.prod(shape)]
        groups, index = parameter_groups(problem.source.module, self.groups), np.arange(shape[-1])
        return groups, [math.prod(shape[:-1]) * len(index[group]) for group in groups]


def linear_anchors(directions: Any) -> Anchors:
    """Checked settings for a linear model; ValueError where one is out of range."""
    given = _checked(directions, "'auto', 'features'")
    if given["groups"] is not None:
        raise ValueError(
            "`groups` of GradientDirections are groups of the parameters of a torch module, and"
            f" a linear model has one: leave it None, got {given['groups']!r}."
        )
    return Anchors(**given, share=_auto.EMBEDDING_SHARE, ratio=_auto.RESIDUAL_RATIO)


def module_anchors(directions: Any, module: Any) -> Anchors:
    """Checked settings for a torch module; ValueError where one is out of range."""
    given = _checked(directions, "'auto'")
    parameter_groups(module, given["groups"])  # raises what it has to
    given["groups"] = copy.deepcopy(given["groups"])  # lists of the user may change later
    return Anchors(**given, share=_auto.MODULE_SHARE, ratio=_auto.MODULE_RATIO)


def _checked(directions: Any, names: str) -> dict[str, Any]:
    """Parameters that do for any model; `names` are what else could have been given."""
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
    # Beyond these, noise of one part has no use, and may be too wide to be drawn.
    ends = {"include_low": True, "include_high": True}
    check_auto("embedding_share", given["embedding_share"], low=0.001, high=0.999, **ends)
    check_choice("labels", given["labels"], ("redrawn", "public"))
    if given["power_iterations"] is not None:
        check_integer("power_iterations", given["power_iterations"], low=1)
    return given


def check_components(name: str, value: Any) -> int:
    """Check a number of directions, which may be 0."""
    try:
        return check_integer(name, value, low=0)
    except ValueError as error:
        raise ValueError(f"{error} Or use 'auto'.") from None


def _moved(values: np.ndarray, problem: Problem) -> Array:
    """`values` where the parameters are, of their own dtype; modules take them as they are."""
    start = problem.start
    if problem.features is None or isinstance(start, np.ndarray):
        return values
    return namespace(start).asarray(values, device=device(start))
