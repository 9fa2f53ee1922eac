"""Releases for coefficients with intervals: scores of regressions, and their moments.

A coefficient with a valid interval needs more than a good estimate: its noise must be known. Other
solvers shrink their weights where noise is large, so that nobody can state how far they are from
the truth. Here everything is released at weights that are public by then, and each release is
linear in its noise. With a row z of bounded entries, a target y and weights a, the *score* is the
mean of ``z (y - m(z a))``, for m the identity or the logistic function. It is 0 in expectation at
the best-fitting weights b, and about ``H (b - a)`` elsewhere, where H is the mean of ``m' z z^T``.
Noise in H is multiplied by the distance of a from b. Hence a few scores, each at weights that the
earlier scores have improved, and a budget that grows towards the last.
:mod:`dpsubspace._core.statistics.inverted_tests` makes intervals of these releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import matmul
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.ground.arrays import EPS, Total, slices, to_numpy
from dpsubspace._core.release.mechanisms import BoundedSum, gram_sum, vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.statistics.counts import record_sums
from dpsubspace._core.statistics.inverted_tests import Equations
from dpsubspace._core.statistics.moments import noisy_moment, packed, symmetric
from dpsubspace._core.statistics.table_cells import cell_total

# Origin of these numbers: chosen by hand on the simulated tables of
# benchmarks/repro_coefficients.py. No script varies them.
PARTS = {
    "linear": {
        "moment": Part(0.45),
        "first score": Part(0.06),
        "residuals": Part(0.04),
        "second score": Part(0.15),
        "last score": Part(0.30),
    },
    "logistic": {
        "moment": Part(0.14),
        "first score": Part(0.06),
        "residuals": Part(0.03),
        "second score": Part(0.13),
        "curvature": Part(0.38),
        "last score": Part(0.26),
    },
}

# Number of releases of the second score for "logistic", each at the weights that the previous one
# suggests. They are made only if together they add little noise to a mean score relative to
# sampling (half of ``1 / sqrt(n)``, or less). For strong effects, one step from weights of 0 is not
# nearly enough, whatever its budget.
_ROUNDS, _LITTLE = 12, 0.5

# Share of each score after the first that is for the mass of cut parts, and shares of the last
# score that are for the second moment and for the squared residuals.
_OF_MASS, _OF_MOMENT, _OF_SQUARES = 0.30, 0.12, 0.05

# Cells of residual sizes, in halves of the range of the target, for rows of full length.
_EDGES = 2.0 ** np.arange(-6.0, 1.01, 0.5)

# Rows whose products are added up at once.
_TOGETHER = 4096

# Share of the squared term in the expansion of a logistic score by which the noise is widened: the
# second derivative of the logistic function is at most 0.097, half of it counts, and it has both
# signs.
_CURVED = 0.03

# Largest second derivative of a prediction by its score, sqrt(3) / 18.
_STEEPEST = math.sqrt(3) / 18

# Deviations of noise that may remain in a score.
_FAR = 2.0

# The cut part of a residual counts as at most this bound less the size that is kept, in halves of
# the range of the target (residuals of a logistic regression are below 1). This limit is never
# below the least value.
_WHOLE, _LEAST_WHOLE = 1.0, 0.25

# Assumed least deviation of a weight about its estimate before scores are released; that of the
# score from a weight and its column; and the least deviation of a column in that score.
_SCALES = {"linear": 1.0, "logistic": 2.0}
_REACH = {"linear": 0.4, "logistic": 0.8}
_SEEN = 0.05

# Share of residuals that determine how far normal ones would reach.
_BODY = 0.8

# Deviations of its noise that are added to the mass of cut parts: intervals whose bias is as large
# as the mass, and whose noise is as large as that of the mass, then have their stated coverage.
_DOUBT = 0.5


def parts_of(family: str, multiplier: float, size: int, n: int) -> dict[str, Part]:
    """Return the releases with their shares: more second scores if noise allows them.

    `multiplier` is the noise multiplier of the second score if it is released once, `size` the size
    of the design, and n the number of records: all are public.
    """
    parts = PARTS[family]
    most = 0.5 * multiplier * math.sqrt(size * _ROUNDS / n)  # beside 1 / sqrt(n), of residuals
    if family == "linear" or most > _LITTLE / 2:
        return parts
    return {**parts, "second score": replace(parts["second score"], count=_ROUNDS)}


@dataclass(frozen=True)
class Design:
    """Rows and targets of a regression on public scales, local or remote.

    Arrays with an entry for each row are made where the rows are, and sums over them come from
    there.
    """

    rows: Any  # (n_rows, p): entries from -1 to 1. Private.
    # (n_rows,): from -1 to 1 for a linear regression, 0 or 1 for a logistic one. Private.
    targets: Any
    # Public bound on the squared norm of a row, of which no entry is above 1: 1 for the constant,
    # and 1 for each column (a category has one indicator that is 1, or none; a number that is
    # missing is 0 beside its indicator).
    size: int
    family: str  # "linear" or "logistic"
    records: Records
    numbers: np.ndarray  # (p,): which columns are numbers; the others are 0 or 1. Public.

    @property
    def n(self) -> int:
        return self.records.n

    @cached_property
    def lengths(self) -> Any:
        """Norms of rows (n_rows,), each at least 1 for the constant. Private."""
        return rowwise(_lengths, self.rows)

    def scores(self, weights: np.ndarray) -> Any:
        """Return products of rows with weights (n_rows,). Private.

        For persons, each score depends on its own row only, to the last bit. BLAS rounds a product
        by the position of its row, which an additional row of another person moves, and residuals
        are counted in cells. If each row is a record, positions are public.
        """
        return rowwise(_by_columns if self.records.grouped else matmul, self.rows, weights)

    def residuals(self, weights: np.ndarray) -> Any:
        scores = self.scores(weights)
        return self.targets - (scores if self.family == "linear" else rowwise(expit, scores))

    def cut(self, residuals: Any, most: float) -> Any:
        """Residuals e such that no ``z e`` is longer than `most` times the root of `size`.

        Hence `most` is the size at which residuals of the longest rows there may be are cut, and
        those of shorter rows, which need less noise, are cut further out.
        """
        # Less than exact arithmetic allows, by more than rounding makes of a length.
        room = (1 - 4 * EPS * (self.rows.shape[1] + 4)) * most * math.sqrt(self.size)
        limits = room / np.maximum(self.lengths, 1.0)
        return np.clip(residuals, -limits, limits)

    def curvature(self, weights: np.ndarray) -> Any:
        """Derivatives of predictions by scores, at most 1 or 1/4."""
        predicted = rowwise(expit, self.scores(weights))
        return predicted * (1 - predicted)

    def by_record(self, residuals: Any) -> Any:
        """Return what each record contributes to a score: ``z e`` of its rows by parts, (n, p)."""
        return rowwise(_by_record, self.rows * residuals[:, None], self.records)


# Functions of single rows, which run where the rows are.


def _lengths(rows: np.ndarray) -> np.ndarray:
    found = np.empty(len(rows))
    for some in slices(len(rows), _TOGETHER):  # squares of all at once would be as large as rows
        found[some] = np.linalg.norm(rows[some], axis=1)
    return found


def _by_columns(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = np.zeros(len(rows))
    for column, weight in zip(rows.T, weights, strict=True):
        scores += column * weight
    return scores


def _by_record(values: np.ndarray, records: Records) -> np.ndarray:
    weights, index = records.weights_numpy, records.index
    values = values if weights is None else values * weights[:, None]
    if index is None:
        return values
    sums = [np.bincount(index, column, minlength=records.n_here) for column in values.T]
    return np.stack(sums, axis=1)


# Sums with low sensitivity ----------------------------------------------------------------------


def score_sum_of(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Return the sum of ``z e`` over records, for residuals e cut by :meth:`Design.cut` at `most`.

    Proof of the bound: ``|e| |z|`` is at most ``most sqrt(size)`` after the cut, which leaves more
    room than rounding of lengths needs. Several rows of a record have the bound of one row, by the
    lemma of :mod:`dpsubspace._core.rows.records`.
    """
    total, slack = record_sums(design.rows, design.records, residuals)
    return vector_sum(total, most * math.sqrt(design.size), slack)


def moment_sum(rows: Any, norm_bound: float, records: Records, factors: Any = None) -> BoundedSum:
    """Return the sum of ``z z^T`` over records, whose rows z are no longer than `norm_bound`.

    Rows are multiplied by `factors` (n_rows,), block by block, if these are given.

    Proof of the bounds: that of :func:`~dpsubspace._core.release.mechanisms.gram_sum`, which holds
    for several rows of a record by the lemma of :mod:`dpsubspace._core.rows.records`.
    """
    total = sum_over_parts(_moments, rows, records, factors).value
    slack = records.slack(EPS, _TOGETHER, own=2 * rows.shape[1])
    return gram_sum(total, norm_bound, slack)


def _moments(rows: np.ndarray, records: Records, factors: np.ndarray | None) -> Total:
    total, weights = Total(), records.weights_numpy
    for some in slices(len(rows), _TOGETHER) or [slice(0, 0)]:
        block = rows[some] if factors is None else rows[some] * factors[some, None]
        if weights is not None:
            # A row times the root of its part of the record contributes that part of its product.
            block = block * np.sqrt(weights[some])[:, None]
        total.add(block.T @ block)
    return total


def square_sum(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Sum of squared residuals, each at most twice `most`: a record contributes one of them."""
    most = 2 * most
    squares = np.clip(residuals, -most, most) ** 2
    total, slack = record_sums(squares[:, None], design.records)
    bound = most**2 * (1 + slack)
    return BoundedSum(total, norm_bound=bound, replace_bound=bound)


def mass_sum(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Sum of what :meth:`Design.cut` takes from the sizes of residuals.

    Proof of the bound: a row contributes what is cut, which is put into [0, largest_cut(most)], and
    several rows of a record bring their weighted mean.
    """
    bound = largest_cut(most)
    lost = np.clip(np.abs(residuals) - np.abs(design.cut(residuals, most)), 0.0, bound)
    total, slack = record_sums(lost[:, None], design.records)
    bound = bound * (1 + slack)
    return BoundedSum(total, norm_bound=bound, replace_bound=bound)


def largest_cut(most: float) -> float:
    return max(_WHOLE - most, _LEAST_WHOLE)


def moment_of_scores(design: Design, residuals: Any, most: float) -> BoundedSum:
    """Sum over records of the outer product of what each brings to a score, packed.

    Proof of the bounds: a record contributes a vector q that is no longer than ``most sqrt(size)``
    (:func:`score_sum_of`), and it is cut to that length, since adding up several rows rounds. So
    those of :func:`~dpsubspace._core.release.mechanisms.gram_sum` hold. Persons count as a whole:
    what their rows have in common is in q, as in a covariance that is clustered by person.
    """
    bound = most * math.sqrt(design.size)
    if design.records.grouped:
        found = design.by_record(residuals)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        found = found * (bound * (1 - 1e-14) / np.maximum(lengths, bound))
        total = moment_sum(found, bound, Records.of_rows(design.n))
    else:
        total = moment_sum(design.rows, bound, design.records, residuals)
    return replace(total, value=packed(total.value))


def curvature_sum(design: Design, weights: np.ndarray) -> BoundedSum:
    """Sum of ``m'(z a) z z^T`` for weights a: rows are multiplied by the root, at most 1/2."""
    roots = np.sqrt(design.curvature(weights))
    return moment_sum(design.rows, math.sqrt(design.size) / 2, design.records, roots)


def size_counts(design: Design, residuals: Any) -> BoundedSum:
    """How many residuals are cut at each size but no smaller one, those of several rows by parts.

    Proof of the bounds: a row is in one cell. A record contributes a vector of numbers that are not
    negative and add up to at most 1: its norm is at most 1, and two of them are at most sqrt(2)
    apart. Parts of records are multiples of a public step, of which sums are exact.
    """
    sizes = np.abs(residuals) * design.lengths / math.sqrt(design.size)
    cells = np.searchsorted(_EDGES[:-1], sizes, side="left")
    counts = sum_over_parts(cell_total, cells, len(_EDGES), design.records)
    return BoundedSum(counts, 1.0, math.sqrt(2))


# Releases ---------------------------------------------------------------------------------------


def released_equations(design: Design, releases: Releases) -> Equations:
    """Release scores and moments that determine the best weights, and their noise and sampling.

    Privacy: the second moment of rows has the bounds of :func:`moment_sum`. Then come scores, with
    those of :func:`score_sum_of`. All weights are 0 or made of released numbers, so that a residual
    is a function of its record alone. The first score is at weights of 0, where a residual is at
    most 1 (a half for "logistic"), and all residuals are cut as :meth:`Design.cut` states. Released
    counts of residuals by their size then determine where to cut the residuals of the other scores
    (:func:`size_counts`). The mass of the cut parts (:func:`mass_sum`) is released with each of
    these other scores, as one Gaussian mechanism (:meth:`Releases.jointly`). The last one also
    releases the second moment of the ``z e`` of records (:func:`moment_of_scores`), and for
    "linear" the sum of squares of residuals (:func:`square_sum`). If there is little noise, the
    second score of "logistic" is released more than once, each time at weights that follow from the
    last (:func:`parts_of`): each of these releases is a Gaussian mechanism that is charged. The
    curvature is the second moment of rows times the root of ``m' <= 1/4``. Events: a Gaussian
    mechanism for each of :data:`PARTS`; the rest is postprocessing.
    """
    if not releases.budget.private:
        return exact_equations(design)
    linear, d, n = design.family == "linear", design.size, design.n
    root, p = math.sqrt(d), design.rows.shape[1]

    total = moment_sum(design.rows, root, design.records)
    moment, deviation = noisy_moment(total, n, releases, "moment")
    factor = 1.0 if linear else 0.25
    known, moment_deviation = _Slope(moment * factor, (deviation * factor) ** 2 / 2), deviation

    length = math.sqrt(min(max(float(np.trace(moment)), 1.0), d))
    # The cut of the first score affects the weights of the next score, and no interval.
    most = length / root if linear else 0.5 * length / root
    total = score_sum_of(design, design.cut(design.residuals(np.zeros(p)), most), most)
    variance = (releases.noise_of("first score", total) / n) ** 2
    first = to_numpy(releases.gaussian("first score", total)) / n
    weights = known.solved(first, variance + linear * most**2 / (30 * n))[0]
    most = cut_of_residuals(design, weights, length / root, releases)
    second = _score_and_mass("second score", design, weights, most, releases)
    sampling = linear * most**2 / (60 * n)
    for _ in range(releases.budget.parts["second score"].count - 1):
        weights = weights + known.solved(second.score, second.variance)[0]
        second = _score_and_mass("second score", design, weights, most, releases)
    last_weights = weights + known.solved(second.score, second.variance + sampling)[0]
    if not linear:
        total = curvature_sum(design, last_weights)
        curvature, deviation = noisy_moment(total, n, releases, "curvature")
        known = _Slope(curvature, deviation**2 / 2)
    last = _score_and_mass("last score", design, last_weights, most, releases)
    # Both scores inform about the best-fitting weights: about the average of the weights at which
    # they were computed, by the inverses of their variances.
    share = last.variance / (last.variance + second.variance)
    variance = share * second.variance
    about = share * weights + (1 - share) * last_weights
    value = share * second.score + (1 - share) * last.score
    doubt = _DOUBT * math.hypot(share * second.mass_noise, (1 - share) * last.mass_noise)
    bias = max(0.0, share * second.mass + (1 - share) * last.mass + doubt)
    step, length = known.solved(value, variance + sampling)
    spread = spread_of_weights(moment, moment_deviation, design)
    moved = known.squared_moves(value, variance + sampling, moment, spread)
    curved = 0.0
    if not linear:
        diagonal = 4 * max(0.0, float(np.diag(known.matrix).mean()))
        best = about + step
        bend = share * _bend(best - weights, moment) + (1 - share) * _bend(
            best - last_weights, moment
        )
        curved = (_CURVED * length * diagonal) ** 2 + bend**2
    return Equations(
        about=about,
        score=value,
        slope=known.matrix,
        score_noise=variance + curved + bias**2,
        slope_noise=known.noise,
        length=length,
        residual=last.square,
        moment=last.moment,
        moment_noise=last.moment_noise,
        n=n,
        spread=spread,
        moved=0.0 if linear else moved,
    )


def _bend(move: np.ndarray, moment: np.ndarray) -> float:
    """Return an approximate upper bound on the nonlinearity of a mean score over a move."""
    return _STEEPEST * max(0.0, float(move @ moment @ move))


@dataclass(frozen=True)
class _Score:
    score: np.ndarray
    variance: float
    mass: float  # Mean of the cut parts of residuals: possible bias of the score
    mass_noise: float
    # Of the last score alone
    moment: np.ndarray
    moment_noise: float
    square: float


def _score_and_mass(
    name: str, design: Design, weights: np.ndarray, most: float, releases: Releases
) -> _Score:
    """Release a score with the mass of the cut parts, and with second moments for the last score.

    The returned mean square of residuals is an upper bound.
    """
    last, n = name == "last score", design.n
    squared = last and design.family == "linear"
    whole = design.residuals(weights)
    residuals = design.cut(whole, most)
    totals = [score_sum_of(design, residuals, most), mass_sum(design, whole, most)]
    shares = [1 - _OF_MASS - _OF_MOMENT * last - _OF_SQUARES * squared, _OF_MASS]
    if last:
        totals.append(moment_of_scores(design, residuals, most))
        shares.append(_OF_MOMENT)
    if squared:
        totals.append(square_sum(design, residuals, most))
        shares.append(_OF_SQUARES)
    found = [to_numpy(part) / n for part in releases.jointly(name, totals, shares)]
    noises = [
        releases.noise_of(name, total, share) / n
        for total, share in zip(totals, shares, strict=True)
    ]
    return _Score(
        score=found[0],
        variance=noises[0] ** 2,
        mass=float(found[1][0]),
        mass_noise=noises[1],
        moment=symmetric(found[2]) if last else np.empty((0, 0)),
        moment_noise=noises[2] if last else 0.0,
        # A variance that is underestimated makes intervals too narrow.
        square=max(0.0, float(found[3][0])) + noises[3] if squared else 1.0,
    )


def cut_of_residuals(
    design: Design, weights: np.ndarray, length: float, releases: Releases
) -> float:
    """Release the size to cut residuals at: about the size with least noise and cut mass.

    The noise of a score grows with that size. The cut mass is computed from the counts that exceed
    their noise, and from normal residuals beyond them. Wherever residuals are cut, intervals
    account for the cut parts (:func:`mass_sum`): this size affects their length alone. The `length`
    is about that of rows, in units of the largest possible length.
    """
    total = size_counts(design, design.residuals(weights))
    counts = to_numpy(releases.gaussian("residuals", total))
    noise = releases.noise_of("residuals", total)
    seen = np.where(counts > 2 * noise, counts, 0.0)
    middles = (np.append(0.0, _EDGES[:-1]) + _EDGES) / 2
    beyond = np.maximum(middles[None, :] - _EDGES[:, None], 0.0) @ seen / length
    # Normal residuals with as many in the cells that hold most of them.
    within = np.cumsum(seen) / max(seen.sum(), 1.0)
    at = min(int(np.searchsorted(within, _BODY)), len(_EDGES) - 1)
    spread = _EDGES[at] / norm.ppf(0.5 + np.clip(within[at], 0.5, 0.99) / 2)
    place = _EDGES / spread
    normal = 2 * design.n * spread * (norm.pdf(place) - place * norm.sf(place)) / length
    unit = vector_sum(np.zeros(1), math.sqrt(design.size), 0.0)
    of_score = releases.noise_of("last score", unit, 1 - _OF_MASS) * _EDGES
    best = int(np.argmin(of_score**2 + np.maximum(beyond, normal) ** 2))
    return float(_EDGES[best])


# Postprocessing ---------------------------------------------------------------------------------


def spread_of_weights(moment: np.ndarray, deviation: float, design: Design) -> np.ndarray:
    """Return the covariance that weights are assumed to have without other information.

    The weight of a number with standard deviation s is at most about the deviation of targets over
    s, unless other columns cancel most of its effect. The number counts as if it varied by less
    than the released value, by a deviation of its noise. An indicator's weight is a difference of
    means, which the range of the target bounds. The constant is that of rows in the middle of all.
    """
    means = moment[0].copy()
    means[0] = 0.0
    least = np.maximum(np.diag(moment) - means**2 - deviation, _SEEN**2)
    reach = np.where(design.numbers, _REACH[design.family] / np.sqrt(least), 0.0)
    scales = np.maximum(_SCALES[design.family], reach)
    shift = np.eye(len(scales))
    shift[0] -= means
    return (shift * scales**2) @ shift.T


@dataclass(frozen=True)
class _Slope:
    """A released mean of ``m' z z^T``, and half of the noise variance of its diagonal."""

    matrix: np.ndarray
    noise: float

    def solved(self, score: np.ndarray, variance: float) -> tuple[np.ndarray, float]:
        """Return the move of weights to a score of 0, shrunk for noise, and its mean square.

        In the basis of the eigenvectors the score is ``a b``, for the eigenvalue a and the move b,
        with noise of the `variance` and that of the matrix times moves. Moves under a normal prior
        of each variance in a grid are averaged by the likelihood of the score. The second result is
        the mean squared length of the move, and shows how much the noise of the matrix counts. One
        prior for all directions would hide one direction with a large move among many with small
        ones: the rest of the score is at most twice its noise in each (Efron, Morris, 1972).
        """
        values, vectors = np.linalg.eigh(self.matrix)
        values, seen, p = np.maximum(values, 0.0), vectors.T @ score, len(score)
        prior = np.exp(np.linspace(-12, 3, 46))[:, None]
        noise = np.maximum(variance + self.noise * prior * (p + 1), 1e-300)
        total = prior * values**2 + noise
        log = -0.5 * (np.log(total) + seen**2 / total).sum(axis=1)
        chances = np.exp(log - log.max())
        chances /= chances.sum()
        moves = prior * values / total * seen
        square = (moves**2 + prior * noise / total).sum(axis=1)
        move, square = chances @ moves, float(chances @ square)
        left = seen - values * move
        room = _FAR * math.sqrt(variance + self.noise * square)
        more = np.sign(left) * np.maximum(np.abs(left) - room, 0.0)
        move = move + more * values / np.maximum(values**2 + 4 * self.noise, 1e-300)
        return vectors @ move, square

    def squared_moves(
        self, score: np.ndarray, variance: float, moment: np.ndarray, spread: np.ndarray
    ) -> float:
        """Return about the mean of ``(z d)^2`` over rows z, for the move d to a score of 0.

        Moves have a normal prior with the covariance `spread`, so that moves that the score does
        not inform about count as well.
        """
        within = self.matrix @ spread @ self.matrix + (variance + self.noise) * np.eye(len(score))
        gain = spread @ self.matrix @ np.linalg.inv(within)
        move, left = gain @ score, spread - gain @ self.matrix @ spread
        values, vectors = np.linalg.eigh(moment)
        moment = (vectors * np.maximum(values, math.sqrt(self.noise))) @ vectors.T
        return max(0.0, float(move @ moment @ move + np.trace(moment @ left)))


# Without privacy --------------------------------------------------------------------------------

# Largest number of Newton steps, and the size of a step that ends them. Classes are separate along
# a direction if its slope is below this share of the squares of its rows. A direction of the rows
# has at least this share of the largest square.
_STEPS, _CLOSE, _SEPARATE, _NONE = 100, 1e-12, 1e-10, 1e-11


def exact_equations(design: Design) -> Equations:
    """The same at the weights that fit best, of all rows and without noise: not private.

    Where some direction tells classes apart without an error, there are none that fit best: each
    step moves weights on along it, and the slope falls by a factor of e. It counts as 0 then, as it
    does along directions in which no row goes.
    """
    p, n = design.rows.shape[1], design.n
    weights, own = np.zeros(p), _own_directions(_exact_slope(design, None))
    along, shares = own, np.ones(own.shape[1])
    fixed = shares > 0
    for _ in range(1 if design.family == "linear" else _STEPS):
        score = sum_over_parts(np.sum, design.by_record(design.residuals(weights)), 0)
        at = None if design.family == "linear" else design.curvature(weights)
        shares, turns = np.linalg.eigh(own.T @ _exact_slope(design, at) @ own)
        along, fixed = own @ turns, shares > _SEPARATE
        move = along[:, fixed] @ (along[:, fixed].T @ score / shares[fixed])
        weights = weights + move
        if np.abs(move).max() < _CLOSE:
            break
    found, whole = design.by_record(design.residuals(weights)), _exact_slope(design, None)
    back = whole @ along[:, fixed]
    return Equations(
        about=weights,
        score=np.zeros(p),
        slope=(back * shares[fixed]) @ back.T / n,
        moment=sum_over_parts(_product, found, found) / max(1, n - p),
        n=n,
        separate=along[:, ~fixed],
    )


def _own_directions(squares: np.ndarray) -> np.ndarray:
    """Return directions (p, k) of the rows, in which mean squares are 1 and mixed means 0."""
    values, vectors = np.linalg.eigh(squares)
    there = values > _NONE * values.max()
    return vectors[:, there] / np.sqrt(values[there])


def _exact_slope(design: Design, own: Any) -> np.ndarray:
    parts = design.records.weights_numpy
    own = 1.0 if own is None else own[:, None]
    own = own if parts is None else own * parts[:, None]
    return sum_over_parts(_product, design.rows * own, design.rows)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.T @ right
