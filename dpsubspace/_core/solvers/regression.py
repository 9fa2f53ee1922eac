"""Private solvers of linear regression: rows of one table.

All of them answer one question: which weights predict standardised targets from standardised rows,
at the least squared error? A solver lists its releases (``parts``) and makes them (``__call__``).
However much noise there is, its answer is no further from zero than the noise warrants, so that a
fit from too few rows ends near a constant and not far from it.

Design note. Second moments hold everything that least squares needs, but noise in them multiplies
the weights: with p columns it costs sqrt(p) more than noise in gradients does. Gradients need
several steps, but only few if curvature is the same in all directions. :class:`WhitenedDescent`
therefore releases a rough second moment first, and steps in coordinates in which the rows are
white.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from scipy import linalg, special

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.gradients.clipping import of_records
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Loss, Squared
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import Array, as_like, to_numpy
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import AffineRows
from dpsubspace._core.solvers.descent import STEPS, RecordedStep, TrainingPlan, train
from dpsubspace._core.solvers.evidence import WhiteWeights, without_chance
from dpsubspace._core.solvers.lbfgs import minimise
from dpsubspace._core.statistics.moments import Rows, released_moment, second_moment

MOMENT = "second moment"

# Origin of these numbers: chosen by hand on tables of benchmarks/repro_regression.py, with other
# splits of 1,000 and 6,000 rows. No script varies them.

# Standard deviations of the square of noise, beyond its mean, by which weights have to stand out.
_CLEAR = 1.0

# Standard deviations by which weights must exceed their assumed largest length to be believed.
_SPARE = 2.0

# Squared length of a gradient that points back, over that of the one before, from which on steps
# swing without calming down; and deviations of the square of its noise by which it has to stand
# out.
_STEADY, _CERTAIN = 0.8, 6.0

# Coordinates become shorter along a swing, by the root of the step size over this number; and the
# fewest remaining steps for which a restart is worthwhile.
_CALM, _FEWEST = 1.5, 3

# Largest stable curvature, over the usual one: the largest steps are 0.4.
_BEARABLE = 2.5

# Least second moment that a standardised column is assumed to have.
_FAINT = 1e-2

# Variance that second moments of levels of entries have, about that of the first.
_SPREAD = 0.1

# Penalty and iterations without privacy, if there is no closed form.
_SLIGHT, _MOST_ITERATIONS = 1e-6, 5_000

# Squared length of a direction, with its entries in units of the noise, from which on what is
# learned along it counts.
_COUNTING = 0.05


@dataclass(frozen=True)
class Level:
    """Entries of rows that are next to each other and expected to explain equally much."""

    size: int  # Number of entries
    explained: float  # Share of the variance of a target that their weights explain, about
    importance: float = 1.0  # Root mean square of the entries


@dataclass(frozen=True)
class Regression:
    # Rows, of location 0 and scale 1 by public or released numbers, with a constant entry if there
    # is an intercept.
    rows: AffineRows
    targets: Array  # (n, c): targets, likewise
    # (p,): root mean squares of the entries, at most 1; None if all have 1.
    importance: np.ndarray | None = None
    # Expected explained variance of the entries from the first on; empty if nothing is expected. A
    # constant entry belongs to the first level.
    levels: tuple[Level, ...] = ()
    # (p,): numbers of groups of entries whose weights are expected to be of one size; None if
    # nothing is expected, and weights are those of least squares as far as noise allows.
    groups: np.ndarray | None = None
    # Loss of the scores, in the same units. Solvers by moments use the squared error alone.
    loss: Loss = field(default_factory=Squared)
    # Number of the last columns of the targets that are offsets: the loss adds scores to them.
    n_beside: int = 0

    @property
    def n_targets(self) -> int:
        return self.targets.shape[1] - self.n_beside

    @property
    def size(self) -> float:
        """Squared length of a typical row: the number of its entries if all count."""
        return (
            self.rows.width if self.importance is None else float(self.importance @ self.importance)
        )

    def noise(self, releases: Releases, name: str) -> float:
        """Return the noise of all releases of a name together, relative to the sums over rows.

        It is a share of the spread of a target, all weights together, for rows of typical length.
        """
        return releases.budget.per_record_multiplier(name) * self.size / self.rows.n_samples


@dataclass(frozen=True)
class Solution:
    weights: np.ndarray  # (p, c): weights
    # (p, q): its product with standard normal numbers is about the noise of a column of weights.
    noise: np.ndarray
    sizes: np.ndarray  # (c,): factor of the noise of each column
    n_iter: int = 1  # Number of steps
    # Upper bound on the factor of noise in any column, for any curvature and before weights are
    # shrunk, or (q, c), factors of the noise in the returned weights; None if not known.
    most: float | np.ndarray | None = None
    # (q,): standard deviations of these normal numbers, if curvature differs; None if all are 1.
    spread: np.ndarray | None = None
    # (q, c): factors that include what shrinking may have removed from weights, if that is more.
    hidden: np.ndarray | None = None


class Solver(Protocol):
    def parts(self, reach: float) -> Mapping[str, Part]:
        """Return releases by name, with their shares of the solver's budget.

        `reach` is the number of rows over the noise multiplier of the whole fit.
        """
        ...

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution: ...


# Without privacy ------------------------------------------------------------------------------


def exact_solution(data: Regression, releases: Releases) -> Solution:
    """Return the least-squares solution, the shortest if there are several: not private.

    If entries come in groups, effects of chance are removed.
    """
    joint = data.rows.with_columns(data.targets)
    total = to_numpy(second_moment(Rows(joint, 1.0)).value)
    p = data.rows.width
    if data.levels:
        left, at = max(0.05, 1 - sum(level.explained for level in data.levels)), 0
        for level in data.levels:
            own = np.arange(at, at + level.size)
            total[own, own] += left * level.size / max(level.explained, 1e-4) * level.importance**2
            at += level.size
    if data.groups is None:
        weights = linalg.pinvh(total[:p, :p], rtol=1e-14 * p) @ total[:p, p:]
    else:
        weights = _exact_without_chance(total / data.rows.n_samples, data, data.groups)
    return Solution(weights, np.zeros((p, 1)), np.zeros(data.n_targets))


def _exact_without_chance(total: np.ndarray, data: Regression, groups: np.ndarray) -> np.ndarray:
    """Return weights (p, c) by the second moment of rows and targets together."""
    p = data.rows.width
    units = np.sqrt(np.maximum(np.diag(total)[p:], 1e-300))
    values, vectors = np.linalg.eigh(total[:p, :p])
    shared = vectors.T @ (total[:p, p:] / units)
    white = WhiteWeights.of_moment(values, vectors, shared, np.zeros(data.n_targets))
    return white.mixing @ without_chance(white, white.found, groups, data.rows.n_samples) * units


def exact_minimum(data: Regression) -> Solution:
    """Return the weights of least loss, with a penalty that keeps them finite: not private."""
    features: Any = data.rows  # they have the parts of Features that are needed
    c = data.n_targets
    source = LinearSource.of(data.loss, features, data.targets, n_outputs=c)
    start, every = (
        as_like(x, features.norms()) for x in (np.zeros((data.rows.width, c)), np.ones(1))
    )
    found = minimise(source, start, every, alpha=_SLIGHT, max_iter=_MOST_ITERATIONS)
    weights = to_numpy(found.weights)
    return Solution(weights, np.zeros((len(weights), 1)), np.zeros(c))


# Solvers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Least squares from one noisy second moment of rows and targets together.

    One pass over the rows. Rows and targets are shrunk by one factor, which keeps every linear
    relation between them, so that clipped rows count less and bias little.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        return {MOMENT: Part(1.0)}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release the second moment of rows and targets; the rest is postprocessing.

        Privacy: a record is its row, constant entry and targets, shrunk together to a public norm.
        Bounds and event are those of :func:`~dpsubspace._core.statistics.moments.released_moment`.

        Targets count as much as half of the row: noise in the products of rows and targets harms
        more than noise in the rows' own moments.
        """
        p, c = data.rows.width, data.n_targets
        tau = max(1.0, math.sqrt(data.size / c) / 2)
        joint = data.rows.with_columns(data.targets * tau)
        size = math.sqrt(data.size + c * tau**2)
        radius = size * auto.REGRESSION_RADIUS
        moment, noise = released_moment(Rows(joint.clipped(radius), radius), releases, MOMENT)
        after_step()
        own, shared = moment[:p, :p], moment[:p, p:] / tau
        spread = np.maximum(np.diag(moment)[p:] / tau**2, 1e-3)
        n, groups = data.rows.n_samples, data.groups
        return shrunk_least_squares(own, shared, spread, noise, tau, n, groups)


def shrunk_least_squares(
    own: np.ndarray,
    shared: np.ndarray,
    spread: np.ndarray,
    noise: float,
    tau: float,
    n: int,
    groups: np.ndarray | None = None,
) -> Solution:
    """Return least-squares weights from noisy moments, shrunk along each direction for noise.

    `own` (p, p) and `shared` (p, c) are noisy means of ``x x^T`` and ``x y^T``. `spread` (c,) is
    about the mean square of the targets. `noise` is the standard deviation of the diagonal of
    `own`; that of `shared` is `noise` over ``sqrt(2) tau``, with tau the factor of the targets when
    noise was added. There are n rows.

    Along an eigenvector of the moment with eigenvalue a, noisy ``x y`` has the variance
    ``t a^2 + s a / n + v`` if weights have the variance t, targets the variance s about their
    prediction, and v is the variance of the noise in both moments. The best linear estimate of the
    weight is then ``t a / (t a^2 + s a / n + v)`` times it. The noisy numbers determine t:
    estimates for a grid of values are averaged by their likelihood (Bernstein, Sheldon, 2019, is
    the Bayesian view of such moments). In that view the weight without noise is off by the variance
    ``t v / (t a^2 + v)``: noise, and the effect of shrinking.
    """
    p = len(own)
    own = without_noise(own, noise)
    values, vectors = np.linalg.eigh(own)
    a = np.maximum(values, 0.0)[None, :, None]
    b = (vectors.T @ shared)[None]
    t = np.exp(np.linspace(-10, 4, 57))[:, None, None] * spread / p
    explained = np.minimum((t * a).sum(axis=1, keepdims=True) / spread, 0.95)
    variance = t * a**2 + spread * (1 - explained) * a / n
    of_noise = noise**2 / (2 * tau**2) + noise**2 * t * (p + 1) / 2
    variance = np.maximum(variance + of_noise, 1e-300)
    likelihood = -0.5 * (np.log(variance) + b**2 / variance).sum(axis=1)
    chances = np.exp(likelihood - likelihood.max(axis=0))
    chances = (chances / chances.sum(axis=0))[:, None, :]
    gain = (chances * t * a / variance).sum(axis=0)  # (p, c)
    weights = vectors @ (gain * b[0])
    if groups is not None:
        units = np.sqrt(spread)
        of_products = noise**2 / 2 * (1 / (tau * units) ** 2 + (p + 1) / (2 * a.sum()))
        white = WhiteWeights.of_moment(values, vectors, b[0] / units, of_products)
        shrunk = white.unmixing @ weights / units
        weights = white.mixing @ without_chance(white, shrunk, groups, n) * units
    total = math.sqrt(0.5) * noise * np.sqrt(1 / tau**2 + (weights**2).sum(axis=0))
    left = np.sqrt((chances * t * of_noise / (t * a**2 + of_noise + 1e-300)).sum(axis=0))
    return Solution(weights, vectors, total, 1, gain * total, gain.mean(axis=1), left)


@dataclass(frozen=True)
class WhitenedDescent:
    """A few noisy gradient steps, in coordinates in which a rough second moment is white."""

    share: float = auto.WHITENING_SHARE  # Of the budget, for the second moment

    def parts(self, reach: float) -> Mapping[str, Part]:
        steps = Part(1 - self.share, auto.regression_steps(reach))
        return {MOMENT: Part(self.share), STEPS: steps}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release a second moment and the gradients of the steps; the rest is postprocessing.

        Privacy: the matrix W that whitens rows is released (:func:`released_whitening`), and is a
        constant of the steps. The gradient of a record is ``W^T u (u^T W theta - y)^T``; it is
        shrunk to a public norm (:func:`~dpsubspace._core.gradients.clipping.clipped_sum`), and
        :func:`~dpsubspace._core.solvers.descent.train` releases the sums, one Gaussian mechanism
        each.

        The mean of the last iterates has gone a share of the way to the minimum and has noise in
        each coordinate. Both follow from the curvature, which is estimated from the released
        gradients (:func:`found_on`).
        """
        rows = data.rows.materialised()
        white = released_whitening(rows, data, releases)
        plan = plan_of_steps(data, white, releases)
        steps = steady_steps(plan, data, rows, white, releases, after_step)
        path, clear = steps.path.along_some(white.clear), white.clear[:, None]
        least = curvature_left(data.noise(releases, STEPS), data.n_targets)
        factors, each = found_on(path, steps.plan, steps.found[white.clear], least)
        shrunk = np.where(clear, steps.found, 0.0) * factors
        most, spread = steps.most_noise * max(1.0, float(factors.max())), None
        if data.importance is not None:
            usual = path.curvature(least)
            spread = white.clear * steps.plan.noise_beside(usual * white.curvature, usual)
        if data.groups is not None:
            n, found = data.rows.n_samples, white_weights(steps, white, least)
            shrunk[white.clear] = without_chance(found, shrunk[white.clear], data.groups, n)
        weights = steps.mixing @ shrunk
        return Solution(weights, steps.mixing, each * factors, plan.n_iter, most, spread)


def plan_of_steps(data: Regression, white: Whitening, releases: Releases) -> TrainingPlan:
    reach = data.rows.n_samples / releases.budget.per_record_multiplier(STEPS)
    return TrainingPlan(
        n_iter=releases.budget.parts[STEPS].count,
        learning_rate=min(auto.regression_rate(reach), 2 / white.hidden),
        momentum=0.0,
        alpha=0.0,
        average=True,
        averaged=auto.REGRESSION_AVERAGED,
    )


@dataclass(frozen=True)
class Steps:
    """Noisy gradient steps in white coordinates."""

    plan: TrainingPlan
    path: Path  # Points, and the gradients released there
    found: np.ndarray  # (q, c): the result of the plan
    mixing: np.ndarray  # (p, q): W
    ended: bool  # Whether the caller ended the steps before the last one

    @property
    def most_noise(self) -> float:
        """Return an upper bound on the noise in each coordinate of the result."""
        return self.path.noise * float(np.linalg.norm(self.plan.noise_at(0.0)))


def white_steps(
    plan: TrainingPlan,
    data: Regression,
    rows: AffineRows,
    white: Whitening,
    releases: Releases,
    after_step: Callable[[], bool],
    start: np.ndarray | None = None,
    *,
    wary: bool = False,
) -> Steps:
    """Run the steps of a plan in coordinates of released directions, from `start` or from zero.

    With `wary`, they end if they swing ever wider (:meth:`Path.swings`) and enough are left.

    Privacy: see :meth:`WhitenedDescent.__call__`.
    """
    p, c, n = data.rows.width, data.n_targets, data.rows.n_samples
    rows = rows.mixed(rows.mixing_by(white.weights))
    features: Any = rows  # they have the parts of Features that are needed
    rows_only = LinearSource.of(data.loss, features, data.targets, n_outputs=c)
    size = math.sqrt(data.size * c) * auto.regression_clip(data.noise(releases, STEPS))
    start = np.zeros((p, c)) if start is None else start
    first, every = (as_like(x, rows.norms()) for x in (start, np.ones(1)))
    step, source, ended = RecordedStep(clip_norm=size), of_records(rows_only, size), []
    own, mixing = releases.budget.scales[STEPS] * size / n, rows.mixing
    assert mixing is not None

    def path(first: int = 0) -> Path:
        points, gradients = np.stack(step.points[first:]), np.stack(step.gradients[first:]) / n
        return Path(points, gradients, plan.learning_rate, own)

    def after() -> bool:
        ended.append(after_step())
        enough_left = len(step.gradients) <= plan.n_iter - _FEWEST
        return ended[-1] or (wary and enough_left and path(-2).swings())

    found = to_numpy(train(plan, step, source, first, every, releases, after_step=after))
    return Steps(plan, path(), found, mixing.weights, ended[-1])


def steady_steps(
    plan: TrainingPlan, data: Regression, rows: AffineRows, white: Whitening, *rest: Any
) -> Steps:
    """Run :func:`white_steps`, again in other coordinates if the steps swing ever wider.

    If columns hardly vary within their ranges, nearly all of the rows' second moment may lie along
    their mean, and noise hides it: there the curvature of white rows is far above 1. Gradients that
    swing show this direction, along which coordinates are then made shorter. Steps become smaller
    as well, since there may be other such directions.

    Privacy: only released gradients determine when, and by how much. All steps together are those
    that the budget has.
    """
    while True:
        steps = white_steps(plan, data, rows, white, *rest, wary=True)
        left = plan.n_iter - len(steps.path.points)
        if steps.ended or not left:
            return steps
        way = steps.path.swing()
        shorter = np.eye(len(way)) - (1 - math.sqrt(plan.learning_rate) / _CALM) * np.outer(
            way, way
        )
        white = replace(white, weights=white.weights @ shorter)
        plan = replace(plan, n_iter=left, learning_rate=plan.learning_rate / 2)


@dataclass(frozen=True)
class Whitening:
    weights: np.ndarray  # (p, p): W such that W^T u is about white for rows u
    # (p,): which directions have more than entries that hardly count beside noise.
    clear: np.ndarray
    curvature: np.ndarray  # (p,): known curvature along the directions, from 0 to 1
    # Curvature that noise may hide, relative to the usual one.
    hidden: float
    noise: float  # Standard deviation of the noise of the diagonal of the moment


def released_whitening(rows: AffineRows, data: Regression, releases: Releases) -> Whitening:
    moment, noise = moment_of_rows(rows, data, releases)
    return whitening(moment, noise, data.importance)


def moment_of_rows(
    rows: AffineRows, data: Regression, releases: Releases
) -> tuple[np.ndarray, float]:
    """Release the second moment for whitening rows; return it and the noise of its diagonal.

    Privacy: rows are shrunk to a public norm, with the bounds and the event of
    :func:`~dpsubspace._core.statistics.moments.released_moment`. The rest is postprocessing.
    """
    size = math.sqrt(data.size)
    return released_moment(Rows(rows.clipped(size), size), releases, MOMENT)


def without_noise(moment: np.ndarray, noise: float, mean: float | None = None) -> np.ndarray:
    """Shrink a second moment towards a multiple of the identity: `mean`, or the closest one.

    It moves by the share that the known noise has of its distance from the multiple: if noise is
    all of the distance, nothing else is left but directions that stand out of it by themselves. The
    multiple is positive, also if noise has made the trace negative.
    """
    p = len(moment)
    mean = float(np.trace(moment)) / p if mean is None else mean
    common, apart = max(mean, _FAINT), moment - mean * np.eye(p)
    kept = _kept(apart, noise**2 * p * (p + 1) / 2)
    return common * np.eye(p) + kept * apart + _standing_out(apart, noise, common, kept)


def _kept(noisy: np.ndarray, noise: float) -> float:
    """Return the share of a noisy matrix that remains, given the sum of squares of its noise."""
    square = float((noisy**2).sum())
    return max(0.0, 1 - noise / square) if square > 0 else 1.0


def _standing_out(apart: np.ndarray, noise: float, common: float, kept: float) -> np.ndarray:
    """Return what to add to directions of a shrunk noisy matrix, so that steps do not overshoot.

    Offsets of many columns make one direction of much of the moment, and little of this direction
    is left by shrinking for the noise of the whole matrix. Noise alone has eigenvalues up to
    ``e = noise sqrt(2 p)``, and rarely more than a few times ``p^(-2/3)`` of that beyond. An
    eigenvalue v above e stands for about ``sqrt(v^2 - e^2)``, since noise has moved its direction
    as well (Gavish, Donoho, 2017, for this shape of noise). Steps are stable up to a multiple of
    the usual curvature, and weights along such directions are learned better for it.
    """
    edge = noise * math.sqrt(2 * len(apart))
    values, vectors = np.linalg.eigh(apart)
    clear = values > edge * (1 + 2 * len(apart) ** (-2 / 3))
    values, vectors = values[clear], vectors[:, clear]
    wanted = (common + np.sqrt(values**2 - edge**2)) / _BEARABLE
    return (vectors * np.maximum(wanted - common - kept * values, 0.0)) @ vectors.T


def whitening(
    moment: np.ndarray,
    noise: float,
    importance: np.ndarray | None = None,
    more: np.ndarray | None = None,
) -> Whitening:
    """Return a map that whitens vectors u, from noisy moments of them.

    Entries have a root mean square of about `importance`, (p,), or of 1. Entries with equal
    importance make a level, and have noise in common. Directions with a moment below the noise of
    their level are assumed to have that much. `more`, (p,), is the factor by which noise is larger
    along entries; None if it is equal.
    """
    each = np.ones(len(moment)) if importance is None else importance
    levels = [np.flatnonzero(each == one) for one in np.unique(each)[::-1]]
    noises = [noise * (1.0 if more is None else float(more[level[0]])) for level in levels]
    moment = _without_noise_of_levels(moment, noises, levels, each)
    usual = max(float(np.diag(moment)[levels[0]].mean()), _FAINT)
    floors, hidden = np.empty(len(moment)), 0.0
    for i, level in enumerate(levels):
        edge = noises[i] * math.sqrt(2 * len(level))
        floors[level] = min(max(edge, 1e-3 * usual), usual)
        most = math.inf if i == 0 else float((each[level] ** 2).sum())  # most that a level can have
        hidden = max(hidden, min(edge, most) / 2)
    units = np.sqrt(floors / floors.max())
    values, vectors = np.linalg.eigh(moment / np.outer(units, units))
    weights = vectors / np.sqrt(np.maximum(values, floors.max())) / units[:, None]
    counting = (vectors**2 * (each**2 / floors)[:, None]).sum(axis=0)
    clear = counting > _COUNTING
    clear |= not clear.any()  # noise hides all of them equally
    curvature = np.clip(values / np.maximum(values, floors.max()), 0.0, 1.0)
    return Whitening(weights, clear, curvature, 1 + hidden, noise)


def _without_noise_of_levels(
    moment: np.ndarray, noises: list[float], levels: list[np.ndarray], each: np.ndarray
) -> np.ndarray:
    """Shrink blocks of a moment for noise: those of entries of equal importance, and others."""
    found, mean = np.empty_like(moment), None
    for i, one in enumerate(levels):
        own, square, noise = moment[np.ix_(one, one)], float(each[one[0]]) ** 2, noises[i]
        if mean is None:
            found[np.ix_(one, one)] = without_noise(own, noise)
            mean = max(float(np.trace(own)) / len(one), _FAINT)
        else:  # that of the first level, if noise hides its own
            unsure = (noise / square) ** 2 / len(one)
            own_mean = float(np.trace(own)) / len(one) / square
            mean_here = (_SPREAD * own_mean + unsure * mean) / (_SPREAD + unsure)
            found[np.ix_(one, one)] = without_noise(own, noise, max(mean_here, _FAINT) * square)
        for j, other in enumerate(levels[:i]):
            block = moment[np.ix_(one, other)]
            block = _kept(block, noise * noises[j] / 2 * block.size) * block
            found[np.ix_(one, other)], found[np.ix_(other, one)] = block, block.T
    return found


@dataclass(frozen=True)
class Path:
    """Points of a descent from zero by one step size, and the noisy gradients released there.

    The methods are postprocessing. A gradient is ``M w - b`` plus noise, which moves later points
    but not its own.
    """

    points: np.ndarray  # (t, p, c): points, and gradients of the mean loss
    gradients: np.ndarray
    rate: float  # Step size
    noise: float  # Standard deviation of each entry of a gradient

    def along_some(self, directions: np.ndarray) -> Path:
        """Return the path restricted to these directions."""
        return replace(
            self, points=self.points[:, directions], gradients=self.gradients[:, directions]
        )

    def curvature(self, least: float = 0.0) -> float:
        """Return the curvature along the path, averaged over what noise moved, at most 1.

        It is 1 for white rows. It is less if scales are too large, rows have fewer directions than
        entries, or gradients are clipped, and noise adds up over more steps then. It is estimated
        by the least-squares slope of gradients on points, less the part of noise in that slope:
        noise of earlier gradients is in the points, and in the mean of the gradients. The result is
        the mean of all values from `least` on, by their likelihood given that slope.
        """
        apart = self.points - self.points.mean(axis=0)
        slope, square = float((apart * self.gradients).sum()), float((apart**2).sum())
        values = np.linspace(least, 1.0, 101)
        count = len(apart)
        noise = np.array([count * self._pull(count, value) for value in values])
        deviation = self.noise * math.sqrt(max(square, 1e-300))
        off = np.abs(slope - noise - values * square) / deviation
        chances = np.exp((off.min() - off) * (off.min() + off) / 2)
        return float((chances * values).sum() / chances.sum())

    def swings(self) -> bool:
        """Return whether the last gradient points back, and is about as long as the previous one.

        It may also be longer. It must be visible beside noise (the noise of one gradient is in the
        next as well), and be long enough to matter for standardised targets.
        """
        if len(self.gradients) < 2:
            return False
        before, last = self.gradients[-2:]
        squares, product = ((before**2).sum(), (last**2).sum()), float((before * last).sum())
        of_noise = self.noise**2 * (last.size + _CERTAIN * math.sqrt(2 * last.size))
        wide = squares[1] > max(_STEADY * squares[0], of_noise + last.shape[1] / 4)
        return wide and product < -math.sqrt(squares[0] * squares[1]) / 2

    def swing(self) -> np.ndarray:
        """The direction (p,) in which the last two gradients differ most."""
        return np.linalg.svd(np.diff(self.gradients[-2:], axis=0)[0], full_matrices=False)[0][:, 0]

    def explained(self) -> np.ndarray:
        """Return twice the decrease of the mean loss along the path, (c,), without clipping."""
        moved, middle = np.diff(self.points, axis=0), self.gradients[1:] + self.gradients[:-1]
        of_noise = self.rate * moved[:, :, 0].size * self.noise**2
        return -(moved * middle).sum(axis=(0, 1)) - of_noise

    def along(self, found: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the curvature along each column of weights (p, c), (c,): growth of gradients.

        `weights` are those of the noise of each gradient in the result. A direction of much
        curvature, such as an offset of many columns, may have most of the result and little of the
        path.
        """
        p, length = len(found), np.maximum(np.linalg.norm(found, axis=0), 1e-300)
        at, slopes = (
            np.einsum("tpc,pc->tc", each, found / length) for each in (self.points, self.gradients)
        )
        apart, own = at - at.mean(axis=0), weights[:, None] * p * self.noise**2 / length
        return (apart * (slopes - own)).sum(axis=0) / np.maximum((apart**2).sum(axis=0), 1e-300)

    def _pull(self, count: int, curvature: float) -> float:
        """Return what noise subtracts from the product of means of `count` points and gradients."""
        steps = np.arange(count)
        left = (1 - self.rate * curvature) ** steps
        moved = (1 - left) / curvature if curvature > 0 else self.rate * steps
        return self.points[0].size * self.noise**2 * float(moved.sum()) / count**2

    def not_beyond(self, first: int, curvature: float) -> np.ndarray:
        """Return a factor in [0, 1] of each column of the mean of points after `first`, (c,).

        Along the line from zero the loss falls, as its gradient at zero shows, and is least where
        the gradient is orthogonal to the line. Beyond, the gradient points back: so it does if
        steps have overshot. In doubt this counts as noise, which the factor of James and Stein
        takes care of.
        """
        last, columns = self.points[first + 1 :], self.points.shape[2]
        if not len(last):
            return np.ones(columns)
        mean, back = last.mean(axis=0), self.gradients[first + 1 :].mean(axis=0)
        spare = self.noise * np.linalg.norm(mean, axis=0)
        down = np.maximum(-(mean * self.gradients[0]).sum(axis=0), 0.0) + spare
        back = (mean * back).sum(axis=0) + self._pull(len(last), curvature) / columns - spare
        return np.where(down > 0, down / np.maximum(down + np.maximum(back, 0.0), 1e-300), 1.0)


def curvature_left(noise: float, c: int) -> float:
    """Return the curvature of white rows that clipping leaves, for standard normal targets.

    A residual r of c entries is cut to the length R, which follows from `noise`. Its derivative is
    on average the probability that it is not cut, and in all directions but that of r, ``R / |r|``
    if it is cut.
    """
    cut = math.sqrt(c) * auto.regression_clip(noise)
    left = float(special.gammainc(c / 2, cut**2 / 2))
    if c > 1:
        longer = float(special.gammaincc((c - 1) / 2, cut**2 / 2)) / math.sqrt(2)
        longer *= math.exp(math.lgamma((c - 1) / 2) - math.lgamma(c / 2))
        left += (1 - 1 / c) * cut * longer
    return left


def found_on(
    path: Path, plan: TrainingPlan, found: np.ndarray, least: float
) -> tuple[np.ndarray, float]:
    """Return factors of the columns of the mean (p, c) of last points, and the noise before them.

    `least` is the curvature of white rows by public numbers: the estimated curvature is not below
    it, since a curvature that noise has made too small would send weights far beyond the minimum.

    Small steps, and steps that clipping makes small, end on the way to the minimum. The remaining
    way follows from the curvature of the path, or from the curvature along the result if that is
    larger; and the end of the whole way is the estimate. Of this estimate, noise leaves the share
    of James and Stein (1961), with which the error of predictions is below that of zero weights on
    average, whatever the weights are. Weights of white rows that explain all of a standardised
    target have the length 1. The part of them that is reached at the least curvature, beside the
    noise there, is the assumed largest length, unless the weights are clearly longer. If gradients
    point back, less is left.
    """
    reached, most, weights = whole_way(path, plan, found, least)
    each = path.noise * float(np.linalg.norm(weights))
    signal = plan.reached_at(least) / float(np.linalg.norm(plan.noise_at(least)))
    factors = james_stein(found, each, (signal * float(np.linalg.norm(weights))) ** 2)
    factors = np.where(most < 1, np.minimum(factors / reached, most), factors / reached)
    return factors, each


def whole_way(
    path: Path, plan: TrainingPlan, found: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of the way gone, the factor against overshooting, and weights of noise.

    The first two are (c,), for the columns of `found`, and the last are weights of the noise of
    each step, (n_iter,).
    """
    curvature = path.curvature(least)
    weights = plan.noise_at(curvature)
    along = np.clip(path.along(found, weights), curvature, 1 / plan.learning_rate)
    reached = np.array([plan.reached_at(float(value)) for value in along])
    return reached, path.not_beyond(plan.first_averaged, curvature), weights


def white_weights(steps: Steps, white: Whitening, least: float) -> WhiteWeights:
    """Return weights at the end of the whole way, with their noise and chance variances.

    Directions of little curvature, which noise of the second moment hides, have gone a part of
    their way, and chance the same part of its own. The released gradients show how much of the
    targets the steps have explained along the path: their noise, and that of the steps after them,
    is known.
    """
    clear, path, plan = white.clear, steps.path.along_some(white.clear), steps.plan
    reached, most, weights = whole_way(path, plan, steps.found[clear], least)
    whole = np.where(most < 1, most, 1 / reached)
    usual, curvature = path.curvature(least), np.maximum(white.curvature[clear], 1e-6)
    each = path.noise * float(np.linalg.norm(weights)) * whole
    noise = (plan.noise_beside(usual * curvature, usual)[:, None] * each) ** 2
    different, places = np.unique(usual * curvature, return_inverse=True)  # most are equal
    gone = np.array([plan.reached_at(one) for one in different.tolist()])[places]
    return WhiteWeights(
        mixing=steps.mixing[:, clear],
        unmixing=np.linalg.inv(steps.mixing)[clear],
        found=steps.found[clear] * whole,
        noise=noise,
        curvature=curvature,
        chance=(gone * float(whole.mean())) ** 2 / curvature,
        explained=path.explained(),
    )


def james_stein(weights: np.ndarray, noise: float, signal: float = math.inf) -> np.ndarray:
    """Return a factor in [0, 1] of each column of noisy weights of shape (p, c).

    Weights that are no longer than noise alone may well be are set to zero. The square of their
    length without noise is assumed to be at most `signal`, unless they are clearly longer.
    """
    p, squares = len(weights), np.maximum((weights**2).sum(axis=0), 1e-300)
    usual = max(0, p - 2) * noise**2
    left = np.maximum(squares - usual, 0.0)
    left = np.minimum(left, np.maximum(signal, left - _SPARE * math.sqrt(2 / p) * squares))
    clear = squares > (p + _CLEAR * math.sqrt(2 * p)) * noise**2
    return np.where(clear, left / np.maximum(left + usual, 1e-300), 0.0)
