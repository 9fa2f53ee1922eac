"""Regression on columns of which the first are expected to explain more of targets than the rest.

These are the directions that public tasks have in common, and all others. Rows count along the
others by a factor below 1, so that noise is mostly in the others. What is learned along either is
drawn towards zero by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dpsubspace._core.ground import auto
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.solvers.descent import STEPS, TrainingPlan
from dpsubspace._core.solvers.regression import (
    Level,
    Regression,
    Solution,
    Steps,
    Whitening,
    curvature_left,
    moment_of_rows,
    plan_of_steps,
    white_steps,
    whitening,
    whole_way,
)

# Share of the steps after which it is asked what the directions miss, and the fewest of them.
_ASKED, _FEWEST = 0.3, 2

# Standard deviations by which the rest has to explain more than expected, and how much more.
_SURE, _MORE = 2.5, 2.0

# Standard deviation of the logarithm of what weights explain, about what is expected of them.
_DOUBT = 1.5

# Least share of the variance of a target that weights are expected to explain, and to leave.
_LITTLE, _LEFT = 1e-4, 0.05


def descent_by_level(
    data: Regression, releases: Releases, after_step: Callable[[], bool]
) -> Solution:
    """Release what :class:`~dpsubspace._core.solvers.regression.WhitenedDescent` does.

    Privacy: the same mechanisms, as often. Where the first gradients tell that the rest explains
    more than expected, the other steps have another W and another clip norm, which follow from what
    was released by then: steps compose adaptively, and each gradient is shrunk to the norm that its
    step has.
    """
    rows = data.rows.materialised()
    moment, noise = moment_of_rows(rows, data, releases)
    white = whitening(moment, noise, data.importance)
    plan = plan_of_steps(data, white, releases)
    asked = min(max(_FEWEST, round(_ASKED * plan.n_iter)), plan.n_iter - 1)
    part = replace(plan, n_iter=asked, average=False)
    begun = white_steps(part, data, rows, white, releases, after_step)
    if begun.ended:
        return _shrunk(begun, data, white, releases, asked)
    left = replace(plan, n_iter=plan.n_iter - asked)
    told = _told(begun, data, releases, 1 - asked / plan.n_iter)
    if told is None:
        rest = white_steps(
            replace(left, average=False), data, rows, white, releases, after_step, begun.found
        )
        return _shrunk(_joined(plan, begun, rest), data, white, releases, plan.n_iter)
    data, factor = told
    scale = np.ones(data.rows.width)
    scale[_entries(data)[1]] = factor
    white = whitening(moment * np.outer(scale, scale), noise, data.importance, scale**2)
    white = replace(white, weights=scale[:, None] * white.weights)
    left = replace(left, learning_rate=min(left.learning_rate, 2 / white.hidden))
    steps = white_steps(left, data, rows, white, releases, after_step)
    return _shrunk(steps, data, white, releases, plan.n_iter)


def _joined(plan: TrainingPlan, begun: Steps, rest: Steps) -> Steps:
    """All steps, of which the last ones start where the first ones have ended."""
    path = replace(
        begun.path,
        points=np.concatenate([begun.path.points, rest.path.points]),
        gradients=np.concatenate([begun.path.gradients, rest.path.gradients]),
    )
    after = np.concatenate([path.points[1:], rest.found[None]])
    return replace(rest, plan=plan, path=path, found=after[plan.first_averaged :].mean(axis=0))


def _entries(data: Regression) -> list[np.ndarray]:
    """Places of the entries of each level; a constant entry belongs to the first."""
    ends = np.cumsum([level.size for level in data.levels])
    places = np.split(np.arange(data.rows.width), ends)
    return [np.append(places[0], places[-1]), *places[1:-1]]


def _told(
    begun: Steps, data: Regression, releases: Releases, left: float
) -> tuple[Regression, float] | None:
    """The problem with the rest counting more, and by which factor, where gradients say so.

    Near zero weights a mean gradient of white rows is what rows and residuals have in common. The
    square of its length along the rest, less that of its noise, is the share of the variance of
    a target that the rest explains, times the curvature, squared. `left` is the share of the
    steps that is left.
    """
    path, rest = begun.path, _entries(data)[1]
    count, c = len(path.gradients), data.n_targets
    inverse = np.linalg.pinv(begun.mixing)
    along = (inverse.T @ path.gradients.mean(axis=0))[rest]
    precision = (inverse.T @ inverse)[np.ix_(rest, rest)]
    squares = float((along * (np.linalg.pinv(precision, hermitian=True) @ along)).sum()) / c
    variance = path.noise**2 / count
    few, other = data.levels
    spread = (begun.mixing[rest] ** 2).sum() * other.importance**2 / len(rest)
    least = curvature_left(data.noise(releases, STEPS), c) ** 2 * min(1.0, float(spread))
    found = max(0.0, squares - len(rest) * variance)
    chance = _SURE * math.sqrt(2 * len(rest) / c) * variance
    if found - chance < _MORE * other.explained * least:
        return None
    explained = min(found / least, 1 - _LEFT)
    multiplier = releases.budget.per_record_multiplier(STEPS)
    reach = data.rows.n_samples / multiplier / math.sqrt(releases.budget.parts[STEPS].share / left)
    inside, n = min(few.explained, 1 - explained), data.rows.n_samples
    importance, _ = auto.importance_of_rest(
        inside, explained, few.size, other.size, n_samples=n, reach=reach
    )
    if importance < math.sqrt(2) * other.importance:
        return None
    levels = (few, Level(other.size, explained, importance))
    assert data.importance is not None
    factors = data.importance.copy()
    factors[rest] = importance
    return replace(data, levels=levels, importance=factors), importance / other.importance


def _shrunk(
    steps: Steps, data: Regression, white: Whitening, releases: Releases, n_iter: int
) -> Solution:
    """Weights at the end of the way, those of each level as far as noise leaves them to be seen."""
    clear, c = white.clear, data.n_targets
    path = steps.path.along_some(clear)
    least = curvature_left(data.noise(releases, STEPS), c)
    reached, most, weights = whole_way(path, steps.plan, steps.found[clear], least)
    factors = np.where(most < 1, np.minimum(1 / reached, most), 1 / reached)
    each = path.noise * float(np.linalg.norm(weights)) * factors
    mixing = steps.mixing[:, clear]
    lifted = mixing @ (steps.found[clear] * factors)
    chance = max(_LEFT, 1 - sum(level.explained for level in data.levels)) / data.rows.n_samples
    kept = np.ones_like(lifted)
    for own, level in zip(_entries(data), data.levels, strict=True):
        values, vectors = np.linalg.eigh(mixing[own] @ mixing[own].T)
        known = values > 1e-9 * max(float(values[-1]), 1e-300)
        along = (vectors[:, known].T @ lifted[own]) / np.sqrt(values[known])[:, None]
        kept[own] = gains(along, each, chance, level.explained)
    noise = each * np.sqrt((kept**2).max(axis=0))
    largest = steps.most_noise * max(1.0, float(factors.max()))
    return Solution(lifted * kept, steps.mixing, noise, n_iter, largest)


def gains(weights: np.ndarray, noise: np.ndarray, chance: float, explained: float) -> np.ndarray:
    """Factor in [0, 1] of each column of noisy weights (q, c) of white rows.

    Without noise the square of their length is the share of the variance of a target that they
    explain: about `explained`, of which the logarithm is normal about that. Entries have normal
    noise of the variance ``noise^2 + chance``, of what was added and of a sample. The factor is
    the mean of those of best linear estimates by how likely each share is.
    """
    off = np.linspace(-5, 5, 61)[:, None]
    shares = np.minimum(max(explained, _LITTLE) * np.exp(off), 1.0)
    each = shares / max(len(weights), 1)
    variance = each + noise**2 + chance
    likelihood = -len(weights) / 2 * np.log(variance) - (weights**2).sum(axis=0) / (2 * variance)
    likelihood = likelihood - off**2 / (2 * _DOUBT**2)
    chances = np.exp(likelihood - likelihood.max(axis=0))
    return (chances * each / variance).sum(axis=0) / chances.sum(axis=0)
