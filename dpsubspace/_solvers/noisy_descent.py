"""Noisy gradient descent on standardised rows: all of the budget for gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Part
from dpsubspace._array import as_like, to_numpy
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Squared
from dpsubspace._gradients.persons import of_records
from dpsubspace._release.releases import Releases
from dpsubspace._rows.remote import made
from dpsubspace._solvers.descent import STEPS, TrainingPlan, train
from dpsubspace._solvers.regression import Regression, Solution, james_stein
from dpsubspace._solvers.steps import FlatStep

__all__ = ["NoisyDescent"]

# Steps of which all cost the same together, and the momentum and averaging of them.
_STEPS, _MOMENTUM, _AVERAGED = 50, 0.9, 0.5

# Length of the descent beside the size of the rows over the noise, where it is least and most.
_LENGTH, _SHORTEST, _LONGEST = 4.0, 40.0, 600.0


@dataclass(frozen=True)
class NoisyDescent:
    """Nesterov's descent with a noisy clipped gradient a step, from zero.

    The length of the descent stands for a penalty: it is the shorter, the more noise there is. What
    is behind few directions of much spread takes long to be found, which is what
    :class:`~dpsubspace._solvers.regression.WhitenedDescent` avoids.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        """The steps."""
        return {STEPS: Part(1.0, _STEPS)}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release the gradients of the steps; the rest is postprocessing.

        Notes
        -----
        Privacy: the gradient of a record is shrunk to a public norm
        (:func:`~dpsubspace._gradients.clipping.clipped_sum`), and
        :func:`~dpsubspace._solvers.descent.train` releases the sums, one Gaussian mechanism each.
        """
        rows = data.rows.kept()
        p, c, n = rows.width, data.n_targets, rows.n_samples
        features: Any = rows  # they have what is asked of Features here
        rows_only = made(LinearSource, Squared(), features, data.targets, n_outputs=c)
        noise = data.noise(releases, STEPS)
        size = math.sqrt(p * c) * _auto.regression_clip(noise)
        plan = _plan(noise, p)
        start, every = (as_like(x, rows.norms()) for x in (np.zeros((p, c)), np.ones(1)))
        step, source = FlatStep(clip_norm=size), of_records(rows_only, size)
        found = to_numpy(train(plan, step, source, start, every, releases, after_step=after_step))
        each = releases.budget.scales[STEPS] * size / n
        most = each * float(np.linalg.norm(plan.noise_at(0.0)))
        each *= float(np.linalg.norm(plan.noise_of_mean))
        factors = james_stein(found, each)
        return Solution(found * factors, np.eye(p), each * factors, _STEPS, most)


def _plan(noise: float, p: int) -> TrainingPlan:
    """How far to go, for so much noise beside standardised rows of p entries.

    Curvature is at most p, so that steps of 1.3 / p are stable.
    """
    length = min(max(_LENGTH * math.sqrt(p) / max(noise, 1e-12), _SHORTEST), _LONGEST)
    rate = min(length * (1 - _MOMENTUM) / _STEPS, 1.3) / p
    return TrainingPlan(
        n_iter=_STEPS,
        learning_rate=rate,
        momentum=_MOMENTUM,
        alpha=0.0,
        average=True,
        averaged=_AVERAGED,
    )
