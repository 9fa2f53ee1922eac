"""What a linear model uses public rows for: directions, a start, and mirror descent.

Design note. Each use is a function of public rows and released values, chosen by a
parameter, and ends in a step or a start that the one training loop runs. What is released is
what the step clips and sums, whatever the public rows are: bad ones cost accuracy and no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Part, Sizes
from dpsubspace._array import Array, as_like, to_numpy
from dpsubspace._estimators.bounds import Bounded
from dpsubspace._estimators.directions import Anchors
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._public.directions import Directions, principal_directions
from dpsubspace._public.start import (
    Labelled,
    Targets,
    beside_each_other,
    correct,
    energy_outside,
    mean_gradient,
    nothing,
)
from dpsubspace._public.subspace import FeatureSubspace
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import RowMap
from dpsubspace._rows.public import PublicRows
from dpsubspace._rows.remote import made
from dpsubspace._solvers.descent import STEPS, Step
from dpsubspace._solvers.problem import Problem
from dpsubspace._solvers.steps import FlatStep, GEPStep, MirrorStep
from dpsubspace._statistics.counts import noisy_shares
from dpsubspace.exceptions import PublicDataWarning, warn

__all__ = ["Guide", "check_labelled", "mirrored", "warn_of_few"]


@dataclass(frozen=True)
class Guide:
    """What public rows are used for.

    Parameters
    ----------
    targets : Targets
        Whether targets are labels or values.
    n_components : int or "auto"
        Directions of features; 0 embeds nothing.
    anchors : Anchors or None
        Directions of gradients instead.
    init : {"auto", "zero", "public"}
        Where training starts.
    mirror : bool
        Whether the gradient of labelled public rows is mixed in.
    """

    targets: Targets
    n_components: int | str = "auto"
    anchors: Anchors | None = None
    init: str = "auto"
    mirror: bool = False

    def check_public(self, estimator: Any, public: PublicRows | None) -> None:
        """Raise where labels are needed and missing; warn where there are no public rows."""
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
        """One release of what tells whether public rows are of use, where that is asked."""
        asked = self._asks_missed(sizes) or self._asks_right(sizes)
        return {"checks": Part(_auto.CHECK_SHARE)} if asked else {}

    def _asks_missed(self, sizes: Sizes) -> bool:
        """Whether private rows are asked how much of them public directions miss."""
        return self.anchors is None and self.n_components == "auto" and sizes.n_public > 0

    def _asks_right(self, sizes: Sizes) -> bool:
        """Whether private rows are asked how well a fit to public labels does."""
        return self.init == "auto" and sizes.labelled

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
            targets = bounded.public_targets(public.targets)
            anchors = anchors.relabelled(as_like(targets, bounded.targets))
            if self.init != "zero":
                labelled = Labelled(source.loss, to_numpy(formed), targets, linear.n_outputs)
                start = as_like(labelled.fitted(), start)
        clear = _clear(releases.budget, features, linear.n_outputs, clip_norm)
        principal = principal_directions(unshifted, features)
        directions = self._kept(principal, clear)
        knowing = source if directions is None else source.beside(directions.vectors)
        shares = self._checked(knowing, directions, start, labelled, releases)
        if directions is not None and "missed" in shares:
            n_off = features.width - len(directions.energies)
            if shares["missed"] * features.bound**2 > n_off * clear:
                directions = None
        if labelled is not None and "right" in shares:
            expected = labelled.held_out(self.targets.right(labelled.targets))
            chance = self.targets.chance(labelled.targets)
            # Labels that public rows do not tell beyond chance are nothing to start from.
            beyond = 2 * math.sqrt(chance * (1 - chance) / len(labelled.targets))
            if expected <= chance + beyond or shares["right"] < (chance + expected) / 2:
                start = linear.start
        if self.anchors is not None:
            knowing = source.beside(formed)
        elif directions is None:
            knowing = source
        guided = replace(
            linear,
            source=knowing,
            public=anchors,
            directions=None if directions is None else directions.vectors,
        )
        if start is linear.start:
            return guided
        energies = (directions or principal).energies
        remaining = _auto.remaining(
            energies,
            clear,
            n_public=rows.n_samples,
            n_outputs=linear.n_outputs,
            n_samples=features.n_samples,
            multiplier=releases.budget.of_all(STEPS),
        )
        return replace(guided, start=start, remaining=remaining, init="public")

    def _kept(self, principal: Directions, clear: float) -> Directions | None:
        """Directions of features to embed gradients on; None for all of the space."""
        none = self.n_components == 0 or not len(principal.energies)  # rows that span none
        if self.anchors is not None or none:
            return None
        if self.n_components != "auto":
            return principal.first(int(self.n_components))
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
        if self._asks_missed(sizes):
            missed = nothing if directions is None else energy_outside
            columns["missed"] = made(missed, source)
        if labelled is not None and self._asks_right(sizes):
            right = self.targets.right(labelled.targets)
            columns["right"] = made(correct, source, start, right)
        if not columns:
            return {}
        shares = noisy_shares(made(beside_each_other, *columns.values()), releases, "checks")
        return dict(zip(columns, map(float, shares), strict=True))

    # How it is trained ----------------------------------------------------------------------

    def step(self, problem: Problem, clip_norm: float, budget: Budget, rng: Any) -> Step:
        """How a step uses gradients; `rng` is public randomness."""
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
        return mirrored(step, problem, budget) if self.mirror else step

    def has_objective(self, problem: Problem) -> bool:
        """Whether training without privacy minimises one function, which can be solved."""
        # Gradients on directions of their own at every step are those of no one function.
        anchors = None if problem.public is None else self.anchors
        of_one = anchors is None or anchors.residual or anchors.n_components == 0
        return of_one and not self.mirror

    def n_trained(self, problem: Problem) -> int | None:
        """Directions that gradients are embedded on, at most; None where all of the space is."""
        if problem.directions is not None:
            return int(problem.directions.shape[0])
        return (self.anchors.count(problem) or None) if self.anchors is not None else None


def mirrored(step: Step, problem: Problem, budget: Budget) -> Step:
    """Mix the gradient of labelled public rows into every step."""
    part = budget.parts[STEPS]
    return MirrorStep(
        step=step,
        public_gradient=lambda params: mean_gradient(problem.public, params),
        batch_size=part.rate * problem.source.n_samples,
        n_iter=part.count,
    )


def check_labelled(needing: Mapping[str, bool], public: PublicRows | None) -> None:
    """ValueError where an option that is set needs labels of public rows, and there are none."""
    for option, needed in needing.items():
        if needed and (public is None or public.targets is None):
            raise ValueError(
                f"{option} needs the labels of public rows: pass `y_public`, or leave it out."
            )


def warn_of_few(estimator: Any, public: PublicRows, n_components: int | str) -> None:
    """Warn where there are fewer public rows than directions."""
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
    noise = budget.of_all(STEPS) * clip_norm / features.n_samples
    return _auto.clear_energy(n_outputs, noise)
