"""The plan of a private training of a torch module, from its parameters to its weights.

Where to check the privacy claim: :meth:`ModuleFit.run` is the whole fit. The range of targets that
are numbers is released in ``_core/fits/bounds.py``, and whether public labels help by ``borne_out``
in ``_core/plans/guide.py``. Gradients of rows are those of ``ModuleSource`` and ``LayeredSource``
in ``_core/gradients/modules.py``, and are shortened in ``_core/gradients/clipping.py``. Each step
is released by ``train`` in ``_core/solvers/descent.py``. Noise is added in
``_core/release/mechanisms.py``. The event is made by ``budget_of`` in ``_core/plans/linear.py``,
and ``_core/release/releases.py`` takes the noise from the same budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.bounds import Bounded, Bounds, Limits
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.gradients.clipping import of_records
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.gradients.modules import LayeredSource, ModuleSource
from dpsubspace._core.gradients.reach import OutputLimits, limits_of
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import namespace
from dpsubspace._core.plans.guide import Anchors, borne_out, checks, mirrored
from dpsubspace._core.plans.linear import budget_of, with_steps
from dpsubspace._core.public.anchors import LABELS, LabelledModule, Targets
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.public import Data
from dpsubspace._core.solvers.descent import STEPS, Descent, Problem, Scale, train
from dpsubspace.exceptions import PrivacyWarning, warn


@dataclass(frozen=True, kw_only=True)
class ModuleFit(Plan):
    target: Target  # Requested privacy
    loss: Loss  # Loss of the scores
    bounds: Bounds  # Bounds of targets; rows need no bound
    targets: Targets  # Whether targets are labels or values
    descent: Descent  # How to train
    module: Any  # What to train
    n_params: int  # Number of parameters that are trained
    # Directions of public gradients to embed private ones on, where there are public rows.
    anchors: Anchors
    input_shape: tuple[int, ...] | None = None  # Shape of one row as the module sees it
    microbatch_size: int | None = None  # Most rows to have in memory at once
    mirror: bool = False  # Whether the gradient of labelled public rows is mixed in

    # Before the data are seen ---------------------------------------------------------------

    def sizes(self, data: Data) -> Sizes:
        return data.sizes(self.loss.n_outputs(data.n_targets))

    def resolved(self, sizes: Sizes) -> ModuleFit:
        return replace(self, descent=with_steps(self, sizes))

    def budget(self, sizes: Sizes) -> Budget:
        return budget_of(self, sizes)

    def beside_steps(self, sizes: Sizes) -> dict[str, Part]:
        return {**self.bounds.parts(sizes), **checks(asked=self.mirror and sizes.labelled)}

    def scale(self, sizes: Sizes) -> Scale:
        n_outputs, loss = sizes.n_outputs or 1, self.loss
        clip_norm = auto.PERSON_MODULE_CLIP if sizes.persons else auto.MODULE_CLIP
        if self.descent.clip_norm != "auto":
            clip_norm = float(self.descent.clip_norm)
        largest = min(auto.LARGEST, loss.largest_step * loss.size * auto.CLIP)
        largest = min(largest, auto.MODULE_LARGEST)
        shorter = auto.MODULE_WALK * loss.size / loss.walk(n_outputs)
        of_loss = (loss, n_outputs, self.n_params, 1.0, clip_norm, largest)
        return Scale(*of_loss, shorter=shorter, growing=False)

    def prepared(self, data: Data, where: Any, budget: Budget) -> Ready:
        if sparse.issparse(data.X):
            raise ValueError(
                "a `module` takes no sparse rows, but dense rows: pass X.toarray(), or a smaller X."
            )
        self.descent.plan(budget, self.scale(self.sizes(data)), data.records.n)
        if data.public is not None:
            self.anchors.check_noise(budget, data.records.n)
        options: dict[str, Any] = {
            "n_targets": data.n_targets,
            "input_shape": self.input_shape,
            "microbatch_size": self.microbatch_size,
            "device": where,
        }
        # Directions and persons need the gradient of each row; steps of DP-SGD need only the sum.
        formed = data.public is not None or data.records.grouped
        private = (ModuleSource if formed else LayeredSource)(
            self.module,
            self.loss,
            data.X,
            data.targets,
            records=data.records,
            sample_rate=budget.parts[STEPS].rate,
            **options,
        )
        limits = limits_of(private.module, private.shape, private.device)
        warn_of_limits(
            limits.kind, self.loss.n_outputs(data.n_targets), labels=self.targets is LABELS
        )
        if data.public is None:
            return Ready(data, private, None, limits)
        rows, targets = data.public.X.astype(data.X.dtype), data.targets
        nothing = np.zeros((len(rows), *targets.shape[1:]), targets.dtype)  # set or drawn later
        anchors = ModuleSource(self.module, self.loss, rows, nothing, **options)
        return Ready(data, private, anchors, limits)

    # The fit --------------------------------------------------------------------------------

    def run(
        self, ready: Ready, releases: Releases, rng: Any, after_step: Callable[[], bool]
    ) -> FittedModule:
        data, budget = ready.data, releases.budget
        bounded = self.bounds(data, releases, self.loss)
        problem = self._problem(ready, bounded)
        if self.mirror:
            labelled = LabelledModule(problem.public)
            trusted = borne_out(problem.source, labelled, self.targets, releases)
            problem = replace(problem, mirrored=trusted)
        scale = self.scale(data.sizes(problem.n_outputs))
        clip_norm = scale.clip_norm if budget.private else math.inf
        step = self.anchors.step(problem, clip_norm, self.targets, rng)
        if problem.mirrored:
            step = mirrored(step, problem, budget)
        plan = self.descent.plan(budget, scale, data.records.n, step.noise_size)
        source = problem.source
        weights = train(
            plan,
            step,
            of_records(source, clip_norm) if budget.private else source,
            problem.start,
            problem.penalised,
            releases,
            after_step=after_step,
        )
        return FittedModule(
            module=problem.source.loaded(weights),
            limits=bounded.limits,
            outputs=ready.limits,
            n_iter=plan.n_iter,
            learning_rate=plan.learning_rate,
            clip_norm=clip_norm,
            n_components=self.anchors.count(problem) or None,
        )

    def _problem(self, ready: Ready, bounded: Bounded) -> Problem:
        private, anchors = ready.private.relabelled(bounded.targets), ready.public
        public = ready.data.public
        if public is not None and public.targets is not None:
            anchors = anchors.relabelled(bounded.public_targets(public.targets))
        start = private.start()
        n_outputs = self.loss.n_outputs(ready.data.n_targets)
        penalised = namespace(start).ones_like(start)
        return Problem(private, start, penalised, n_outputs, public=anchors, init="module")


@dataclass(frozen=True)
class Ready:
    data: Data
    private: ModuleSource
    public: Any
    limits: OutputLimits  # Limits that the outputs of the module have in common


@dataclass(frozen=True)
class FittedModule:
    module: Any
    limits: Limits
    outputs: OutputLimits
    n_iter: int
    learning_rate: float | None
    clip_norm: float
    n_components: int | None


def warn_of_limits(kind: str, n_outputs: int, *, labels: bool) -> None:
    """Warn if outputs of a module cannot be what they are used as, whatever the module learns.

    `kind` is a kind of :class:`~dpsubspace._core.gradients.reach.OutputLimits`.
    """
    if not kind or (labels and n_outputs > 1 and kind in ("positive", "negative")):
        return
    which, of_two, of_targets = _LIMITED[kind]
    follows = f"are taken for targets scaled to [-1, 1], {of_targets}"
    if labels and n_outputs == 1:
        follows = f"are taken for log-odds, {of_two}"
    elif labels:
        follows = (
            "are taken for scores, which the loss itself turns into probabilities, so that no"
            " probability comes near to 1"
        )
    warn(
        f"{which}, as random rows and weights show. Outputs {follows}. Let `module` end in a linear"
        " layer, without an activation.",
        PrivacyWarning,
        about=("limits", kind, n_outputs),
    )


# Texts for each kind: what outputs are, and what that means for two classes and for targets.
_LIMITED = {
    "constant": (
        "`module` gives the same outputs for all rows",
        "so that one class is never predicted",
        "so that one number is predicted for all rows",
    ),
    "shares": (
        "all outputs of `module` lie between 0 and 1, as behind a Sigmoid or a Softmax",
        "so that the second class always has a probability of at least 0.5",
        "the lower half of which is never predicted",
    ),
    "positive": (
        "no output of `module` is below 0, as behind a ReLU",
        "so that the second class always has a probability of at least 0.5",
        "the lower half of which is never predicted",
    ),
    "negative": (
        "no output of `module` is above 0",
        "so that the second class always has a probability of at most 0.5",
        "the upper half of which is never predicted",
    ),
}
