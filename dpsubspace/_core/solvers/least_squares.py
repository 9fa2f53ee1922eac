"""All private solvers of linear regression, by name, and solvers for comparison.

Beside the named solvers, :func:`descent_by_level` runs on columns of which the first are expected
to explain more of the targets than the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.gradients.clipping import clipped_sum, of_records
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Squared
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import EPS, as_like, row_norms, to_numpy
from dpsubspace._core.release.mechanisms import BoundedSum, DisjointTotal
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import AffineRows
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.solvers.descent import STEPS, FlatStep, TrainingPlan, noise_of_mean, train
from dpsubspace._core.solvers.regression import (
    MOMENT,
    Level,
    Moments,
    Regression,
    Solution,
    Solver,
    Steps,
    WhitenedDescent,
    Whitening,
    curvature_left,
    james_stein,
    moment_of_rows,
    plan_of_steps,
    released_whitening,
    white_steps,
    whitening,
    whole_way,
)
from dpsubspace._core.statistics.moments import Rows, noisy_moment, second_moment

# AdaSSP -----------------------------------------------------------------------------------------
# AdaSSP: least squares from noisy moments, with a penalty that the least eigenvalue decides.
#
# The method of Wang (2018), whose constants compose three releases of (epsilon/3, delta/3). Here
# they are three shares of one Gaussian budget, which is exact, and the penalty is the actual size
# of the noise of the moment.

EIGENVALUE, PRODUCTS = "least eigenvalue", "products with targets"

# Probability that the noise is larger than the penalty allows for, as in Wang (2018).
_RARE = 0.05


@dataclass(frozen=True)
class AdaSSP:
    """Adaptive sufficient statistics perturbation (Wang, 2018).

    Three statistics of the rows are released in equal shares: the least eigenvalue of their second
    moment, that moment, and their products with the targets. The penalty is what the noise of the
    moment may subtract from its eigenvalues, less what the least eigenvalue has to spare.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        return {name: Part(1 / 3) for name in (EIGENVALUE, MOMENT, PRODUCTS)}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release the three statistics; the rest is postprocessing.

        Privacy: a record is its row, constant entry and targets, shrunk together to a public norm.
        Events: three Gaussian mechanisms, on the sums of :func:`_statistics`.
        """
        p, c, n = data.rows.width, data.n_targets, data.rows.n_samples
        tau = max(1.0, math.sqrt(data.size / c) / 2)
        radius = math.sqrt(data.size + c * tau**2)
        radius *= auto.REGRESSION_RADIUS
        rows = Rows(data.rows.with_columns(data.targets * tau).clipped(radius), radius)
        least, own, shared = _statistics(rows, p, releases)
        least_noise = releases.noise_of(EIGENVALUE, least) / n
        lowest = float(releases.gaussian(EIGENVALUE, least)[0]) / n
        moment, noise = noisy_moment(own, n, releases, MOMENT)
        shared_noise = releases.noise_of(PRODUCTS, shared) / (n * tau)
        products = to_numpy(releases.gaussian(PRODUCTS, shared)) / (n * tau)
        after_step()
        penalty = _penalty(lowest, least_noise, noise, p)
        values, vectors = np.linalg.eigh(moment)
        inverse = vectors / np.maximum(values + penalty, max(noise, 1e-12))
        weights = inverse @ (vectors.T @ products)
        sizes = np.sqrt(shared_noise**2 + noise**2 * (weights**2).sum(axis=0) / 2)
        return Solution(weights, inverse, sizes)


def _statistics(rows: Rows, p: int, releases: Releases) -> tuple[BoundedSum, ...]:
    """Return the least eigenvalue and the moment of the first p entries; products with others.

    Proof of the bounds, for records (u, v) of norm at most R, without rounding.

    - The moment of u is a sum of outer products of vectors of norm at most R: the bounds of
      :func:`~dpsubspace._core.release.mechanisms.gram_sum`.
    - Its least eigenvalue moves by at most the largest absolute eigenvalue of the change (Weyl).
      The eigenvalue of ``u u^T`` is ``|u|^2 <= R^2``. A replacement changes the moment by
      ``u u^T - w w^T``, whose eigenvalues lie between ``-|w|^2`` and ``|u|^2``: R^2 again.
    - ``|u v^T| = |u| |v| <= R^2 / 2``, since ``|u|^2 + |v|^2 <= R^2``. A null record moves the
      products by at most that, a replaced one by twice that (triangle inequality).

    Rounding moves the whole matrix by the excess of its bound over R^2, and so each of its blocks;
    a computed eigenvalue is off by at most a small multiple of p units of rounding of the largest
    one, which is at most n R^2.
    """
    total, square = second_moment(rows), rows.norm_bound**2
    rounded = total.norm_bound - square
    own = replace(total, value=total.value[:p, :p])
    shared = BoundedSum(total.value[:p, p:], square / 2 + rounded, square + 2 * rounded)
    computed = 32 * p * rows.features.n_samples * EPS * square
    bound = square + rounded + computed
    value = np.linalg.eigvalsh(own.value)[:1]
    return BoundedSum(value, bound, bound), own, shared


def _penalty(lowest: float, lowest_noise: float, noise: float, p: int) -> float:
    """Return the penalty that nearly always keeps all noisy eigenvalues above zero.

    The norm of symmetric Gaussian noise of scale s is about ``s sqrt(2 p)`` and no more than
    ``s sqrt(2 log(2 / a))`` above that with probability 1 - a, by concentration of a Lipschitz
    function; Wang (2018) has ``s sqrt(p log(2 p^2 / a))`` for noise of another shape.
    """
    edge = noise * (math.sqrt(2 * p) + math.sqrt(2 * math.log(2 / _RARE)))
    sure = lowest - lowest_noise * math.sqrt(2 * math.log(2 / _RARE))
    return max(0.0, edge - max(0.0, sure))


# One pass ---------------------------------------------------------------------------------------
# One pass over disjoint blocks of records, with a clip norm that follows the residuals.
#
# DP-AMBSSGD of Varshney, Thakurta, Jain (2022). Each block of records is used in one step, so that
# all steps together cost as much as one: without amplification by shuffling, whose bounds are poor
# if there are few blocks.
#
# Design note. Under exact accounting blocks are no gain: with T of them the noise of a step, beside
# the sum over its records, is sqrt(T) times that of a step over all records at a T-th of the
# budget. The method is here because theory speaks of it, and to be compared with.

RESIDUALS = "sizes of residuals"

# Largest and smallest number of blocks.
_MOST, _FEWEST = 20, 2

# Size of the steps on white rows.
_STEP = 0.6

# Sizes of residuals that are distinguished, in units of the scale of a target, and the share of
# residuals that is not clipped. Larger sizes would be noise in the counts.
_SIZES, _WITHIN = 2.0 ** np.arange(-6, 2), 0.8


@dataclass(frozen=True)
class OnePass:
    """DP-AMBSSGD (Varshney, Thakurta, Jain, 2022) on rows that a rough second moment whitens.

    Each step estimates from a new block how large its residuals are, clips gradients accordingly,
    and moves along their noisy mean. The iterates of the second half are averaged. Blocks are so
    large that the noise of a step is small beside its gradient, or there are three of them.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        share = auto.WHITENING_SHARE
        return {
            MOMENT: Part(share),
            RESIDUALS: Part(0.2 * (1 - share), _MOST, disjoint=True),
            STEPS: Part(0.8 * (1 - share), _MOST, disjoint=True),
        }

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release a second moment, then sizes of residuals and a gradient of each block.

        Privacy: the second moment as in
        :class:`~dpsubspace._core.solvers.regression.WhitenedDescent`. Blocks are disjoint and
        public (:meth:`~dpsubspace._core.release.releases.Releases.batch`), so a record contributes
        to one release of sizes and one of gradients, at weights and with a clip norm that earlier
        releases determine. Events: three Gaussian mechanisms, whatever the number of blocks.
        """
        rows = data.rows.materialised()
        p, c, n = rows.width, data.n_targets, rows.n_samples
        mixing = released_whitening(rows, data, releases).weights
        blocks = _n_blocks(releases, n, p * c)
        rate = _STEP if blocks > 1 else 1.0
        weights, size = np.zeros((p, c)), 1.0
        found, scales = [], []
        for _ in range(blocks):
            block = _Block.of(data, rows, mixing, releases, blocks)
            size = block.residual_size(weights, size, releases)
            gradient, scale = block.gradient(weights, size * math.sqrt(data.size * c), releases)
            weights = weights - rate * gradient
            found.append(weights)
            scales.append(scale)
            if after_step():
                break
        first = len(found) // 2
        mean = np.mean(found[first:], axis=0)
        weights_of_noise = noise_of_mean(len(found), rate, 0.0, first)
        each = float(np.linalg.norm(weights_of_noise * scales))
        factors = james_stein(mean, each)
        return Solution(mixing @ (mean * factors), mixing, each * factors, len(found))


def _n_blocks(releases: Releases, n: int, n_weights: int) -> int:
    """Return a number of blocks with so many records each that noise does not hide results."""
    scales = releases.budget.scales
    least = max(20 * n_weights * scales[STEPS], 10 * scales[RESIDUALS] * math.sqrt(len(_SIZES)), 1)
    return int(min(max(n // least, _FEWEST), _MOST, math.ceil(2 * math.log(n + 1)), max(n, 1)))


@dataclass(frozen=True)
class _Block:
    source: LinearSource

    @classmethod
    def of(
        cls,
        data: Regression,
        rows: AffineRows,
        mixing: np.ndarray,
        releases: Releases,
        blocks: int,
    ) -> _Block:
        index = releases.batch(STEPS, rows.n_samples, blocks=blocks)
        same = releases.batch(RESIDUALS, rows.n_samples, blocks=blocks)
        assert index is not None and same is not None and np.array_equal(index, same)
        taken = rows.taken(index)
        own: Any = taken.mixed(taken.mixing_by(mixing))  # has the parts of Features that are needed
        targets = data.targets[rows.records.rows(index), :]
        return cls(LinearSource(Squared(), own, targets, n_outputs=data.n_targets))

    def residual_size(self, weights: np.ndarray, before: float, releases: Releases) -> float:
        """Release the size of most residuals, for one target; return `before` if noise hides it.

        Proof of the bounds: a record that is present adds 1 to the count of one size. If it becomes
        null one count falls by 1; if it is replaced, one falls and another rises: sqrt(2). Counts
        are exact in float64.
        """
        params = as_like(weights, self.source.features.lengths)
        with over_chunks(self.source) as each:
            lengths = np.concatenate(
                [*each(lambda rows: to_numpy(row_norms(self.source.at(params, rows).residuals)))]
            )
        lengths = lengths / math.sqrt(weights.shape[1])
        bins = np.searchsorted(_SIZES[:-1], np.where(np.isnan(lengths), np.inf, lengths))
        weights_of_rows = self.source.features.records.weights_numpy
        counts = np.bincount(bins, weights_of_rows, minlength=len(_SIZES)).astype(np.float64)
        noisy = to_numpy(releases.gaussian(RESIDUALS, BoundedSum(counts, 1.0, math.sqrt(2))))
        enough = np.flatnonzero(np.cumsum(noisy) >= _WITHIN * self.source.n_samples)
        return float(_SIZES[enough[0]]) if len(enough) else before

    def gradient(
        self, weights: np.ndarray, clip_norm: float, releases: Releases
    ) -> tuple[np.ndarray, float]:
        params, total = as_like(weights, self.source.features.lengths), DisjointTotal()
        with over_chunks(self.source) as each:
            for part in each(lambda rows: clipped_sum(self.source.at(params, rows), clip_norm)):
                total.add(part)
        bounded, n = total.bounded_sum(), self.source.n_samples
        noisy = to_numpy(releases.gaussian(STEPS, bounded)) / n
        return noisy, releases.noise_of(STEPS, bounded) / n


# Noisy descent ----------------------------------------------------------------------------------
# Noisy gradient descent on standardised rows: all of the budget for gradients.

# Number of steps (any number has the same total cost), and their momentum and averaging.
_STEPS, _MOMENTUM, _AVERAGED = 50, 0.9, 0.5

# Length of the descent relative to the size of the rows over the noise; least and most.
_LENGTH, _SHORTEST, _LONGEST = 4.0, 40.0, 600.0


@dataclass(frozen=True)
class NoisyDescent:
    """Nesterov's descent with one noisy clipped gradient per step, from zero.

    The length of the descent acts as a penalty: it is the shorter, the more noise there is. If rows
    vary much more along a few directions than along others, weights along the others take long to
    be found, which :class:`~dpsubspace._core.solvers.regression.WhitenedDescent` avoids.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        return {STEPS: Part(1.0, _STEPS)}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release the gradients of the steps; the rest is postprocessing.

        Privacy: the gradient of a record is shrunk to a public norm
        (:func:`~dpsubspace._core.gradients.clipping.clipped_sum`), and
        :func:`~dpsubspace._core.solvers.descent.train` releases the sums, one Gaussian mechanism
        each.
        """
        rows = data.rows.materialised()
        p, c, n = rows.width, data.n_targets, rows.n_samples
        features: Any = rows  # they have the parts of Features that are needed
        rows_only = LinearSource.of(data.loss, features, data.targets, n_outputs=c)
        noise = data.noise(releases, STEPS)
        size = math.sqrt(data.size * c) * auto.regression_clip(noise)
        plan = _plan(noise, data.size)
        start, every = (as_like(x, rows.norms()) for x in (np.zeros((p, c)), np.ones(1)))
        step, source = FlatStep(clip_norm=size), of_records(rows_only, size)
        found = to_numpy(train(plan, step, source, start, every, releases, after_step=after_step))
        each = releases.budget.scales[STEPS] * size / n
        most = each * float(np.linalg.norm(plan.noise_at(0.0)))
        each *= float(np.linalg.norm(plan.noise_of_mean))
        factors = james_stein(found, each)
        spread = None
        if data.importance is not None:
            spread = plan.noise_beside(data.importance**2, 1.0)
        return Solution(found * factors, np.eye(p), each * factors, _STEPS, most, spread)


def _plan(noise: float, p: float) -> TrainingPlan:
    """Return the plan of steps; steps of 1.3 / p are stable, since curvature is at most p."""
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


# Descent by levels ------------------------------------------------------------------------------
# Descent on columns of which the first are expected to explain more of targets than the rest.
#
# The first columns are the directions that public tasks have in common. Rows are multiplied by a
# factor below 1 along all other directions, so that noise is mostly in these. Weights along the two
# kinds are shrunk towards zero separately.

# Share of the steps after which to test what the directions miss, and the fewest of them.
_ASKED, _FEWEST_STEPS = 0.3, 2

# Standard deviations by which the rest has to explain more than expected, and by which factor.
_SURE, _MORE = 2.5, 2.0

# Standard deviation of the logarithm of the share that weights explain, about the expected one.
_DOUBT = 1.5

# Least share of the variance of a target that weights are expected to explain, and to leave.
_LITTLE, _LEFT = 1e-4, 0.05


def descent_by_level(
    data: Regression, releases: Releases, after_step: Callable[[], bool]
) -> Solution:
    """Release the same as :class:`~dpsubspace._core.solvers.regression.WhitenedDescent`.

    Privacy: the same mechanisms, as often. If the first gradients show that the rest explains more
    than expected, the other steps have another W and another clip norm, which follow from earlier
    releases: steps compose adaptively, and each gradient is shrunk to the clip norm of its step.
    """
    rows = data.rows.materialised()
    moment, noise = moment_of_rows(rows, data, releases)
    white = whitening(moment, noise, data.importance)
    plan = plan_of_steps(data, white, releases)
    asked = min(max(_FEWEST_STEPS, round(_ASKED * plan.n_iter)), plan.n_iter - 1)
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
    """Join two sequences of steps, the second of which starts at the end of the first."""
    path = replace(
        begun.path,
        points=np.concatenate([begun.path.points, rest.path.points]),
        gradients=np.concatenate([begun.path.gradients, rest.path.gradients]),
    )
    after = np.concatenate([path.points[1:], rest.found[None]])
    return replace(rest, plan=plan, path=path, found=after[plan.first_averaged :].mean(axis=0))


def _entries(data: Regression) -> list[np.ndarray]:
    """Return the positions of each level's entries; a constant entry belongs to the first."""
    ends = np.cumsum([level.size for level in data.levels])
    places = np.split(np.arange(data.rows.width), ends)
    return [np.append(places[0], places[-1]), *places[1:-1]]


def _told(
    begun: Steps, data: Regression, releases: Releases, left: float
) -> tuple[Regression, float] | None:
    """Return the problem in which the rest counts more, and the factor, if gradients show it.

    Near zero weights a mean gradient of white rows is the mean product of rows and residuals. The
    square of its length along the rest, less that of its noise, is the share of the variance of a
    target that the rest explains, times the curvature, squared. `left` is the share of the steps
    that is left.
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
    """Return weights at the end of the way, for each level shrunk by what noise hides."""
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
    """Return a factor in [0, 1] of each column of noisy weights (q, c) of white rows.

    Without noise the square of their length is the share of the variance of a target that they
    explain. The logarithm of this share is normal about that of `explained`. Entries have normal
    noise of the variance ``noise^2 + chance``, from added noise and from sampling. The factor is
    the mean of the factors of best linear estimates, weighted by the likelihood of each share.
    """
    off = np.linspace(-5, 5, 61)[:, None]
    shares = np.minimum(max(explained, _LITTLE) * np.exp(off), 1.0)
    each = shares / max(len(weights), 1)
    variance = each + noise**2 + chance
    likelihood = -len(weights) / 2 * np.log(variance) - (weights**2).sum(axis=0) / (2 * variance)
    likelihood = likelihood - off**2 / (2 * _DOUBT**2)
    chances = np.exp(likelihood - likelihood.max(axis=0))
    return (chances * each / variance).sum(axis=0) / chances.sum(axis=0)


# All solvers ------------------------------------------------------------------------------------

SOLVERS: Mapping[str, Solver] = {
    "descent": WhitenedDescent(),
    "moments": Moments(),
    "adassp": AdaSSP(),
    "ambssgd": OnePass(),
    "plain": NoisyDescent(),
}
