"""Releases for coefficients with intervals: scores of regressions, and their moments.

A coefficient with a valid interval needs more than a good estimate: its noise must be known. Other
solvers shrink their weights where noise is large, so that nobody can state how far they are from
the truth. Here everything is released at weights that are public by then, and each release is
linear in its noise. With a row v in a released basis, a target y and weights a, the *score* is the
mean of ``v (y - m(v a))``, for m the mean of the family. It is 0 in expectation at the best-fitting
weights b, and about ``H (b - a)`` elsewhere, where H is the mean of ``m' v v^T``. These are the
steps of Newton's method, in a basis in which H is about the identity, so that noise is small
beside chance in every direction (:mod:`dpsubspace._core.solvers.whitening`). They come near the
best weights before the last score is released, so that neither the bend of m nor the noise of H,
which is multiplied by the distance of a from b, counts for much. The last score is of all rows as
they are: rows that are weighted would have other best weights where the model is not exactly true.
:mod:`dpsubspace._core.statistics.inverted_tests` makes intervals of these releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.release.mechanisms import BoundedSum, vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.solvers.cuts import best_cut, longest_excess, seen_counts
from dpsubspace._core.solvers.design import (
    SIZES,
    Design,
    column_sum_of,
    curvature_sum,
    mass_sum,
    moment_of_scores,
    score_sum_of,
    size_counts,
    tally_of,
)
from dpsubspace._core.solvers.exact_equations import exact_equations
from dpsubspace._core.solvers.families import HALF
from dpsubspace._core.solvers.slopes import Slope
from dpsubspace._core.solvers.whitening import FittedRows, ReleasedRows, Whitening, roots
from dpsubspace._core.statistics.inverted_tests import Equations, Tally
from dpsubspace._core.statistics.moments import noisy_moment, packed, symmetric

# Origin of these numbers: chosen by hand on simulated tables of benchmarks/repro_coefficients.py
# and on tables of medical and of economic data. No script varies them.
PARTS = {
    "linear": {
        "columns": Part(0.05),
        "moment": Part(0.12),
        "first score": Part(0.06),
        "second score": Part(0.12),
        "sizes": Part(0.06),
        "last score": Part(0.59),
    },
    "logistic": {
        "columns": Part(0.05),
        "moment": Part(0.07),
        "first score": Part(0.04),
        "curvature": Part(0.08),
        "second score": Part(0.07),
        "sizes": Part(0.04),
        "middle score": Part(0.09),
        "last score": Part(0.56),
    },
}
PARTS["poisson"] = PARTS["logistic"]

# Shares of the last release: the score, the mass of what is cut from it, the curvature, and the
# moment of scores.
_LAST = {"linear": (0.56, 0.08, 0.16, 0.20), "logistic": (0.61, 0.10, 0.20, 0.09)}
_LAST["poisson"] = _LAST["logistic"]

# Most releases of the middle score, and how large their noise may be beside chance, together, for
# more than one.
_ROUNDS, _LITTLE = 6, 0.5

# Length at which rows are cut before their sizes are known, over the root of the mean square.
_LONG, _LONGER, _LONGEST = 1.2, 1.25, 1.5

# Least variances of columns, and of those in moments; least eigenvalues of correlations of rows,
# and of the information.
_NARROWEST, _LEAST_DIAGONAL, _LEAST_EIGENVALUES = 1e-4, 0.03, (0.01, 0.02)

# Rounds to find first weights, and the curvature in the middle of a move; largest standard
# deviation of scores at first.
_STEPS, _HALVES, _WIDEST = 20, 6, 4.0

# Square of the scale of an indicator over its deviation.
_RARE = 0.5

# Least mean slope at first, over that at the mean, and largest first weight of a category: rows
# that are far from normal can make both of them too extreme.
_LEAST_SLOPE, _FARTHEST = 0.4, 3.0

# Least curvature along a direction, and the least share of the mean slope that it is.
_FLAT, _FLATTER = 1e-5, 0.006

# Noise, in a basis in which curvatures are 1, that is too small to count while weights are on their
# way, and how much wider a cut becomes at most for it.
_UNSEEN, _WIDER = 0.02, 64.0

# Longest step of weights, as the root mean square of scores.
_STRIDE = 1.0

# Part of the noise of a score that may be in what is cut and not counted, and deviations of their
# noise that counts which it hides may have more.
_HIDDEN, _DOUBTED = 0.25, {"linear": 1.0, "logistic": 0.25, "poisson": 0.25}

# Deviations of its noise that are added to the mass.
_DOUBT = 0.5

# Share of the mean square of the last move that counts as bend of the mean score.
_BEND = 0.15

# Share of the change of a score by what is carried that may be wrong.
_CARRIED = 0.25

# Expected number of the rarer outcome in a category below which it has no coefficient.
_ONE_SIDED = 0.5

# Most that a curvature changes along the way of weights, as a factor.
_CHANGE = 0.3

# Least share of a category, and of all others, that make two parts of the rows; and the spread of
# lengths in a part, over their square, below which all rows of it are alike.
_COMMON, _ALIKE = 0.05, 0.25

# Least eigenvalue of a covariance over the largest: below, it is rounding. Only noise that is many
# times as wide as it is likely to be makes such a basis, and nothing is known then.
_LEAST_DIGITS = 1e-13

# Assumed least deviation of a weight about its estimate before scores are released; that of the
# score from a weight and its column; and the least deviation of a column in that score.
_SCALES = {"linear": 1.0, "logistic": 2.0, "poisson": 2.0}
_REACH = {"linear": 0.4, "logistic": 0.8, "poisson": 0.8}
_LEAST_DEVIATION = 0.05


def parts_of(family: str, multiplier: float, n_terms: int, n: int) -> dict[str, Part]:
    """Return the releases with their shares: more middle scores if noise allows them.

    `multiplier` is the noise multiplier of the middle score if it is released once, `n_terms` the
    number of weights, and n the number of records: all are public.
    """
    parts = PARTS[family]
    if "middle score" not in parts:
        return parts
    # Scores are cut at about twice the root of the number of weights.
    room = (_LITTLE * math.sqrt(n / n_terms) / (2 * multiplier)) ** 2
    count = min(max(int(room), 1), _ROUNDS)
    return {**parts, "middle score": replace(parts["middle score"], count=count)}


# Releases ---------------------------------------------------------------------------------------


def released_equations(design: Design, releases: Releases) -> Equations:
    """Release scores and moments that determine the best weights, and their noise and sampling.

    Privacy: each release is a Gaussian mechanism of one of :data:`PARTS`, over sums whose bounds
    ``_core/solvers/design.py`` proves. All weights, bases and cuts are public or made of what was
    released before, so that what a record contributes is a function of that record alone. In order:
    sums of columns (:func:`column_sum_of`); the moment of standardised rows, each shortened
    (:func:`curvature_sum`); the score at weights of 0; unless the family is linear, the curvature
    where that leads; a second score; counts of rows by the size of their scores and curvatures
    (:func:`size_counts`), which decide where both are cut; unless the family is linear, middle
    scores; and jointly (:meth:`Releases.jointly`) the last score, the mass of what was cut from it
    (:func:`mass_sum`), the curvature, and the moment of scores (:func:`moment_of_scores`). The rest
    is postprocessing.
    """
    if not releases.budget.private:
        return exact_equations(design)
    n, linear = design.n, design.kind.linear
    columns = _released_columns(design, releases)
    recoded = _with_common_references(design, columns)
    columns = columns.within(recoded, design.numbers)
    if (recoded != np.eye(len(recoded))).any():
        design = design.within(recoded)
    place = _first_basis(design, columns, releases)
    del design  # rows of the table, which those in the basis replace
    place = _first_weights(place, columns, releases)
    if not linear:
        place = _basis_of_information(place, releases)
    cut = _LONGEST * place.unit * math.sqrt(place.expected)
    cut = _wider("second score", cut, _UNSEEN * place.unit, n, releases)
    place = _step("second score", place, cut, releases)
    cuts = _released_cuts(place, columns, releases)
    for _ in range(0 if linear else releases.budget.parts["middle score"].count):
        place = _step("middle score", place, cuts.score, releases)
    equations = _last_equations(place, cuts, columns, releases)
    return replace(equations, basis=recoded @ place.basis)


@dataclass(frozen=True)
class _Columns:
    """Released means of columns of the table."""

    means: np.ndarray  # (p - 1,): of columns but the constant
    variances: np.ndarray  # (p - 1,)
    target: float  # Mean target
    square: float  # Mean square of the target; 0 where it is not released
    level: float  # Logarithm of the mean exposure over the largest; 0 without exposures
    noise: float  # Deviation of the noise of each mean
    tally: Tally

    def within(self, basis: np.ndarray, numbers: np.ndarray) -> _Columns:
        """Return the same of columns ``z B``, of which numbers are as they were."""
        means = np.clip((np.append(1.0, self.means) @ basis)[1:], -1.0, 1.0)
        means = np.where(numbers[1:], means, np.maximum(means, 0.0))
        variances = np.where(numbers[1:], self.variances, means * (1 - means))
        return replace(self, means=means, variances=variances)


def _released_columns(design: Design, releases: Releases) -> _Columns:
    total = column_sum_of(design)
    sums = to_numpy(releases.gaussian("columns", total))
    tally = tally_of(design, sums, releases.noise_of("columns", total))
    found, noise, numbers = sums / design.n, tally.noise / design.n, design.numbers[1:]
    k = len(numbers)
    means = np.clip(found[:k], np.where(numbers, -1.0, 0.0), 1.0)
    squares = means.copy()
    squares[numbers] = found[k : k + numbers.sum()]
    target, *more = found[k + numbers.sum() :]
    square = float(more.pop(0)) if design.kind.square else 0.0
    level = 0.0 if design.offsets is None else math.log(min(max(more.pop(0), noise), 1.0))
    return _Columns(means, squares - means**2, float(target), square, level, noise, tally)


@dataclass(frozen=True)
class _Place:
    """Weights on the way, the basis in which they are, and what is known there."""

    design: Design  # in the basis
    basis: np.ndarray  # (p, p): weights of the table are ``basis @ weights``
    rows: ReleasedRows  # in the basis, as far as the moment tells
    fitted: ReleasedRows | FittedRows  # the same, with the curvature that was released first
    length: float  # Length at which rows are shortened until sizes are known
    weights: np.ndarray
    # Mean of ``m' v v^T`` at `at`, where it was released; and half of the noise of its diagonal.
    curvature: Slope
    at: np.ndarray
    expected: float  # About the mean of ``m' |v|^2``
    unit: float  # About the deviation of residuals over the root of m'
    mean: float = 0.0  # Released mean target, and the deviation of its noise
    mean_noise: float = 0.0

    def near(self, weights: np.ndarray) -> Slope:
        """Return the curvature at other weights: that of normal rows changes it."""
        kind, old = self.design.kind, self.curvature.matrix
        if kind.linear:
            return self.curvature
        change = self.fitted.curvature(weights, kind) - self.fitted.curvature(self.at, kind)
        return Slope(_bounded(old + change, old), self.curvature.noise)


def _with_common_references(design: Design, columns: _Columns) -> np.ndarray:
    """Return a basis (p, p) in which the reference of each column is its most common category.

    Rows of a rare reference would be in no indicator of their own, and all indicators of the
    column would be nearly constant together. Its indicator takes the place of the most common one.
    """
    basis = np.eye(design.rows.shape[1])
    for places in design.levels:
        shares = columns.means[places - 1]
        if len(places) and shares.max() > 1 - shares.sum():
            most = places[shares.argmax()]
            basis[:, most] = 0.0
            basis[0, most], basis[places, most] = 1.0, -1.0
    return basis


def _first_basis(design: Design, columns: _Columns, releases: Releases) -> _Place:
    """Release the moment of standardised rows, and make its correlations those of the identity."""
    numbers, p = design.numbers[1:], design.rows.shape[1]
    centre, floor = columns.means, max(columns.noise, _NARROWEST)
    variances = np.clip(columns.variances, floor, np.where(numbers, 1.0, 0.25))
    scales = np.where(
        numbers,
        _of_numbers(centre, variances, columns.noise),
        np.maximum(variances, _RARE * np.sqrt(variances)),
    )
    standard = np.concatenate([[-centre / np.sqrt(scales)], np.diag(1 / np.sqrt(scales))])
    expected = float((variances / scales).sum())
    most = _wider("moment", _LONG**2 * expected, _UNSEEN, design.n, releases)
    total = curvature_sum(design.within(standard), 1.0, most)
    found, noise = noisy_moment(total, design.n, releases, "moment")
    diagonal = np.minimum(np.maximum(np.diag(found), max(2 * noise, _LEAST_DIAGONAL)), 1.0)
    white = Whitening.of(
        found,
        noise,
        np.where(numbers, np.sqrt(diagonal), 1.0),
        least=_LEAST_EIGENVALUES[0],
        floor=_LEAST_DIAGONAL,
    )
    basis, covariance = np.eye(p), np.zeros((p, p))
    basis[:, 1:] = standard @ white.basis
    covariance[1:, 1:] = white.basis.T @ white.moment @ white.basis
    rows = _as_released(design, columns, basis, covariance)
    length = _LONGER * math.sqrt(1 + np.trace(covariance))
    slope = Slope(rows.moment, noise**2 / 2)
    return _Place(
        design.within(basis),
        basis,
        rows,
        rows,
        length,
        np.zeros(p),
        slope,
        at=np.zeros(p),
        expected=0.0,
        unit=design.unit,
    )


def _as_released(
    design: Design, columns: _Columns, basis: np.ndarray, covariance: np.ndarray
) -> ReleasedRows:
    """Return what is known of rows, with the mean rows of categories."""
    mean, inverse = np.eye(len(basis))[0], np.linalg.inv(basis)
    moment = inverse.T @ (covariance + np.outer(mean, mean)) @ inverse
    places = np.flatnonzero(~design.numbers)[1:]
    shares = np.clip(columns.means[places - 1], _NARROWEST, 1.0)
    centres = moment[places] / shares[:, None]
    centres = np.clip(centres, np.where(design.numbers, -1.0, 0.0), 1.0)
    centres[:, 0], centres[np.arange(len(places)), places] = 1.0, 1.0
    seen = np.maximum(columns.means[places - 1] - columns.noise, 0.0)
    rare = seen * np.maximum(0.0, 1 - 2 * seen)
    return ReleasedRows(mean, covariance, rare, centres @ basis, seen, columns.level)


def _wider(name: str, most: float, unseen: float, n: int, releases: Releases) -> float:
    """Return `most`, or more if the noise that follows from it is below `unseen` even so."""
    noise = _noise_of_one(name, releases) / n
    return max(most, min(unseen / noise, _WIDER * most))


def _noise_of_one(name: str, releases: Releases, share: float = 1.0) -> float:
    """Deviation of the noise of a sum to which a record contributes at most 1 in norm."""
    return releases.noise_of(name, vector_sum(np.zeros(1), 1.0, 0.0), share)


def _of_numbers(means: np.ndarray, variances: np.ndarray, noise: float) -> np.ndarray:
    """Squares of the scales of numbers: variances, and more where a column is rarely off an end.

    A column that is at one end of its range in nearly all rows is as an indicator of the others, if
    it varies by more than the noise of its mean and of its mean square would say of a constant.
    """
    gaps = 1 - np.abs(means)
    varied = np.maximum(variances - noise * np.sqrt(1 + 4 * means**2), 0.0)
    shares = np.clip(gaps**2 / (gaps**2 + varied + 1e-300), 1e-4, 1.0)
    return np.minimum(variances * np.maximum(1.0, 0.5 / np.sqrt(shares)), 1.0)


def _first_weights(place: _Place, columns: _Columns, releases: Releases) -> _Place:
    """Release the score of a constant, and the weights that normal rows would have with it.

    For normal rows ``E (v - E v) y = C b E m'``, with C their covariance (Stein, 1981): such
    weights are not too short, as those of a step of Newton's method from 0 are.
    """
    design, kind, p = place.design, place.design.kind, len(place.weights)
    variance, doubt = columns.square - columns.target**2, 4 * columns.noise
    constant = kind.start
    if constant is None:
        constant = kind.likely(columns.target, columns.noise)
    deviation = math.sqrt(max(variance, doubt) if kind.linear else max(variance - doubt, 0.0))
    most = place.length * max(_LONGEST * deviation, kind.first(constant, place.unit))
    residuals = design.cut(design.targets - constant, most)
    score, noise = _released_score("first score", design, residuals, most, releases)
    mean = constant + float(score[0])
    if kind.linear:
        weights = place.curvature.solved(score, noise**2)[0]
        weights[0] += constant
        explained = float(weights[1:] @ place.rows.covariance[1:, 1:] @ weights[1:])
        unit = math.sqrt(max(deviation**2 - explained, deviation**2 / 25))
        return replace(place, weights=weights, unit=unit, expected=np.trace(place.rows.moment))
    mean, weights = kind.likely(mean, noise), np.zeros(p)
    least = _LEAST_SLOPE * kind.flat(mean)
    for _ in range(_STEPS):
        spread = math.sqrt(float(weights @ place.rows.covariance @ weights))
        weights[0], slope = place.rows.offset(mean, min(spread, _WIDEST), kind)
        slope = max(slope, least)
        known = Slope(slope * place.rows.covariance[1:, 1:], slope**2 * place.curvature.noise)
        weights[1:] += (known.solved(score[1:], noise**2)[0] - weights[1:]) / 2
    of_table = (place.basis @ weights)[1:]
    limits = np.where(design.numbers[1:], math.inf, _FARTHEST)
    weights[1:] = np.linalg.solve(place.basis[1:, 1:], np.clip(of_table, -limits, limits))
    spread = math.sqrt(float(weights @ place.rows.covariance @ weights))
    weights[0] = place.rows.offset(mean, min(spread, _WIDEST), kind)[0]
    if kind.start is not None:
        mean, noise = columns.target, columns.noise
    return replace(place, weights=weights, mean=mean, mean_noise=noise)


def _basis_of_information(place: _Place, releases: Releases) -> _Place:
    """Release the curvature, and change the basis to one in which it is about the identity."""
    design, numbers = place.design, place.design.numbers
    usual, steepest = design.kind.steep(place.mean, place.mean_noise)
    most = steepest * place.length**2
    most = _wider("curvature", most, _UNSEEN * usual, design.n, releases)
    total = curvature_sum(design, np.sqrt(design.slopes(place.weights)), most)
    found, noise = noisy_moment(total, design.n, releases, "curvature")
    found = found + _lost_curvature(place, most)
    floor = min(_FLAT, _FLATTER * usual)
    diagonal = np.maximum(np.diag(found), max(2 * noise, floor))
    usual = float(np.mean(diagonal[numbers | (np.arange(len(numbers)) == 0)]))
    scales = np.sqrt(np.where(numbers, diagonal, np.maximum(diagonal, usual)))
    scales[0] = math.sqrt(diagonal[0])
    white = Whitening.of(found, noise, scales, least=_LEAST_EIGENVALUES[1], floor=floor)
    change = white.basis
    weights, basis = np.linalg.solve(change, place.weights), place.basis @ change
    noise *= float(np.mean(np.sum(change**2, axis=0)))
    slope = Slope(change.T @ found @ change, noise**2 / 2)
    whole = change.T @ white.moment @ change
    rows = place.rows.within(change)
    return replace(
        place,
        design=design.within(change),
        basis=basis,
        rows=rows,
        fitted=rows.fitted(weights, whole, design.kind),
        weights=weights,
        at=weights,
        curvature=slope,
        expected=float(np.trace(whole)),
    )


def _released_score(
    name: str, design: Design, residuals: np.ndarray, most: float, releases: Releases
) -> tuple[np.ndarray, float]:
    """Release the mean of ``v e``, with the deviation of its noise."""
    total = score_sum_of(design, residuals, most)
    found = to_numpy(releases.gaussian(name, total)) / design.n
    return found, releases.noise_of(name, total) / design.n


def _step(name: str, place: _Place, most: float, releases: Releases) -> _Place:
    """Release the score at the weights, cut at `most`, and move to where it would be 0."""
    design = place.design
    residuals = design.cut(design.residuals(place.weights), most)
    score, noise = _released_score(name, design, residuals, most, releases)
    move, _ = _moved(place, score, noise**2)
    size = math.sqrt(max(float(move @ place.rows.moment @ move), 1e-300))
    longest = math.inf if design.kind.linear else _STRIDE
    return replace(place, weights=place.weights + move * min(1.0, longest / size))


def _moved(place: _Place, score: np.ndarray, variance: float) -> tuple[np.ndarray, float]:
    """Return the move to a score of 0, by the curvature in its middle, and its mean square."""
    move, square = place.near(place.weights).solved(score, variance)
    for _ in range(0 if place.design.kind.linear else _HALVES):
        half = place.near(place.weights + move / 2)
        other, square = half.solved(score, variance)
        move = (move + other) / 2
    return move, square


# Cuts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cuts:
    score: float  # Longest ``v e``
    curvature: float  # Longest ``m' v v^T``
    mass: float  # Most that is counted of what is cut from one score


def _released_cuts(place: _Place, columns: _Columns, releases: Releases) -> _Cuts:
    """Release counts of sizes, and choose where noise and what is cut are least together."""
    design, p = place.design, len(place.weights)
    residuals, slopes = design.residuals(place.weights), design.slopes(place.weights)
    total = size_counts(design, residuals, slopes, place.unit)
    found = to_numpy(releases.gaussian("sizes", total)).reshape(2, -1)
    noise = releases.noise_of("sizes", total)
    longest = _longest_row(place, columns)
    largest = ((1 + abs(columns.target)) / place.unit * longest, longest**2)
    doubt = _DOUBTED[design.family]
    counts = [
        seen_counts(each, noise, most, doubt) for each, most in zip(found, largest, strict=True)
    ]
    if not design.kind.linear:
        counts[0] = np.maximum(counts[0], _expected_counts(place))
    if design.kind.unbounded:
        counts[1] = np.maximum(counts[1], _curvatures_of_rare_rows(place))
    scores, _, curvatures, _ = _LAST[design.family]
    of_score = _noise_of_one("last score", releases, scores) / design.n
    of_curvature = _noise_of_one("last score", releases, curvatures) / design.n * math.sqrt(p / 2)
    score = best_cut(counts[0], of_score, design.n)
    curvature = best_cut(counts[1], of_curvature, design.n, 1 / math.sqrt(p))
    mass = longest_excess(counts[0], score, _HIDDEN * of_score * score * design.n)
    return _Cuts(score * place.unit, curvature, mass * place.unit)


def _expected_counts(place: _Place) -> np.ndarray:
    """Return about how many scores of each size rare outcomes and rare categories make.

    They may be too few to be seen beside noise. Each group of rows counts as if all of them were as
    long as its mean square says, and had the same mean outcome. Rows of a category do count one
    cell higher: all of them are about as long, and half of them are longer than that.
    """
    rows, kind, found = place.rows, place.design.kind, np.zeros(len(SIZES))
    centres = np.concatenate([rows.mean[None], rows.centres])
    predicted = kind.mean(rows.scores_of(centres, place.weights))
    predicted[0] = np.clip(place.mean, 0.0, 1.0)
    shares, higher = np.append(1.0, rows.shares), np.arange(len(centres)) > 0
    # Along what hardly varies the moment of rows is noise, and the curvature is known better.
    mapped = place.fitted.mapped
    squares = mapped.squares_of(np.concatenate([mapped.mean[None], mapped.centres]))
    squares[0] = np.trace(_bounded(rows.moment, mapped.moment))
    _add_scores(found, place, shares, predicted, np.sqrt(squares), higher)
    return np.maximum(found, _counts_of_parts(place, mapped))


def _counts_of_parts(place: _Place, mapped: ReleasedRows) -> np.ndarray:
    """Return the same where rows are divided into those of a common category and all others.

    In a table of two by two with risks of 2 % and 50 %, the few events of one part are far longer
    than all other scores. Where rows of a part hardly differ, half of them are a cell higher.
    """
    rows, kind, found = place.rows, place.design.kind, np.zeros(len(SIZES))
    for i in np.flatnonzero((rows.seen > _COMMON) & (rows.seen < 1 - _COMMON)):
        share = rows.seen[i]
        parts, known = (
            np.stack([each.centres[i], (each.mean - share * each.centres[i]) / (1 - share)])
            for each in (rows, mapped)
        )
        apart = share * (1 - share) * float(((known[0] - known[1]) ** 2).sum())
        within = max(float(np.trace(mapped.covariance)) - apart, 0.0)
        most = (known**2).sum(axis=1)
        squares = np.minimum((parts**2).sum(axis=1), most / _CHANGE) + within
        predicted = kind.mean(rows.scores_of(parts, place.weights))
        counts, shares = np.zeros(len(SIZES)), np.array([share, 1 - share])
        alike = within < _ALIKE * most
        _add_scores(counts, place, shares, predicted, np.sqrt(squares), alike)
        found = np.maximum(found, counts)
    return found


def _add_scores(
    found: np.ndarray,
    place: _Place,
    shares: np.ndarray,
    predicted: np.ndarray,
    lengths: np.ndarray,
    higher: np.ndarray,
) -> None:
    """Add to counts those of groups of rows with some shares, mean outcomes and lengths."""
    for chance, size in place.design.kind.residuals(predicted, place.unit):
        cells = np.searchsorted(SIZES, size * lengths) + higher
        np.add.at(found, np.minimum(cells, len(SIZES) - 1), place.design.n * shares * chance)


def _curvatures_of_rare_rows(place: _Place) -> np.ndarray:
    """Return the same for curvatures."""
    rows, found = place.rows, np.zeros(len(SIZES))
    slopes = place.design.kind.slope(rows.scores_of(rows.centres, place.weights))
    cells = np.searchsorted(SIZES, slopes * rows.squares_of(rows.centres))
    np.add.at(found, np.minimum(cells, len(SIZES) - 1), place.design.n * rows.shares)
    return found


def _lost_curvature(place: _Place, most: float) -> np.ndarray:
    """Return what rows of rare categories lose of their curvatures if these are cut at `most`.

    It follows from what was released before. Where a rare category has a rate ten times as high as
    others, its rows have most of the information about it, and are cut to a part of it.
    """
    rows, kind = place.rows, place.design.kind
    if not kind.unbounded:
        return np.zeros_like(rows.covariance)
    slopes = kind.slope(rows.scores_of(rows.centres, place.weights))
    lost = np.maximum(slopes - most / rows.squares_of(rows.centres), 0.0)
    return (rows.centres.T * (rows.shares * lost)) @ rows.centres


def _longest_row(place: _Place, columns: _Columns) -> float:
    """Return about the length of the longest row in the basis that the ranges of columns allow.

    Columns count as if they were at right angles in the basis, as they are but for noise.
    """
    numbers, basis = place.design.numbers[1:], place.basis[1:]
    constant = place.basis[0] + columns.means @ basis
    away = 1 - np.where(numbers, -np.abs(columns.means), columns.means)
    squares = away**2 * (basis**2).sum(axis=1)
    n_values = max(place.design.size - 1 - int(numbers.sum()), 0)
    of_values = np.sort(squares[~numbers])[::-1][:n_values]
    return math.sqrt(float(constant @ constant + squares[numbers].sum() + of_values.sum()))


# The last release -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Last:
    score: np.ndarray
    score_noise: float
    mass: float  # Mean length that is cut: possible bias of the score, with its doubt
    curvature: np.ndarray
    curvature_noise: float
    moment: np.ndarray
    moment_noise: float


def _released_last(place: _Place, cuts: _Cuts, releases: Releases) -> _Last:
    design, weights = place.design, place.weights
    whole = design.residuals(weights)
    residuals = design.cut(whole, cuts.score)
    totals = [
        score_sum_of(design, residuals, cuts.score),
        mass_sum(design, whole, cuts.score, cuts.mass),
        _packed(curvature_sum(design, np.sqrt(design.slopes(weights)), cuts.curvature)),
        _packed(moment_of_scores(design, residuals, cuts.score)),
    ]
    shares = _LAST[design.family]
    found = [to_numpy(x) / design.n for x in releases.jointly("last score", totals, shares)]
    noises = [
        releases.noise_of("last score", total, share) / design.n
        for total, share in zip(totals, shares, strict=True)
    ]
    mass = math.hypot(max(float(found[1][0]) - noises[1], 0.0), _DOUBT * noises[1])
    curvature, moment = symmetric(found[2]), symmetric(found[3])
    curvature = curvature + _lost_curvature(place, cuts.curvature)
    return _Last(found[0], noises[0], mass, curvature, noises[2], moment, noises[3])


def _packed(total: BoundedSum) -> BoundedSum:
    """Return a sum of symmetric matrices, each packed, which leaves its norm."""
    return replace(total, value=packed(total.value))


def _last_equations(place: _Place, cuts: _Cuts, columns: _Columns, releases: Releases) -> Equations:
    """Release the last score with what belongs to it, and return the equations of all releases."""
    design, last = place.design, _released_last(place, cuts, releases)
    n, kind = design.n, design.kind
    p = len(place.weights)
    slope = Slope(last.curvature, last.curvature_noise**2 / 2)
    place = replace(place, curvature=slope, at=place.weights)
    chance = place.unit**2 / n
    move, length = _moved(place, last.score, last.score_noise**2 + chance)
    there, slope = slope, place.near(place.weights + move / 2)
    spread = _spread_of_weights(design, place.basis, columns)
    positive = _at_least(slope.matrix, last.curvature_noise)
    residual, bend, moved = 1.0, 0.0, 0.0
    if kind.dispersed:
        residual = max(float(np.trace(np.linalg.solve(positive, last.moment))) / p, 1e-8)
    if not kind.linear:
        whole = last.score_noise**2 + chance + last.curvature_noise**2 * length
        inverse = np.linalg.inv(place.basis)
        usual = max(float((inverse.T @ positive @ inverse)[0, 0]), kind.least)
        moved = Slope(slope.matrix, 0.0).squared_moves(last.score, whole, positive, spread) / usual
        change = float(np.linalg.norm((slope.matrix - there.matrix) @ move))
        bend = max(_BEND * min(length, moved * usual), _CARRIED * change)
        if columns.noise > HALF:  # nor are log-odds known that seem to be
            moved = math.inf
    if not _has_digits(spread):
        moved, spread = math.inf, np.eye(p)
    return Equations(
        about=place.weights,
        score=last.score,
        slope=slope.matrix,
        moment=last.moment,
        n=n,
        score_noise=last.score_noise**2 + last.mass**2 + bend**2,
        slope_noise=slope.noise,
        moment_noise=last.moment_noise,
        length=length,
        residual=residual,
        spread=spread,
        moved=moved,
        separate=None if kind.linear else _one_sided(place, move),
        basis=place.basis,
        tally=columns.tally,
    )


# Postprocessing ---------------------------------------------------------------------------------


def _spread_of_weights(design: Design, basis: np.ndarray, columns: _Columns) -> np.ndarray:
    """Return the covariance that weights are assumed to have without other information.

    The weight of a number with standard deviation s is at most about the deviation of targets over
    s, unless other columns cancel most of its effect. The number counts as if it varied by less
    than the released value, by a deviation of its noise. An indicator's weight is a difference of
    means, which the range of the target bounds. The constant is that of rows in the middle of all.
    """
    least = np.maximum(columns.variances - columns.noise, _LEAST_DEVIATION**2)
    reach = np.where(design.numbers[1:], _REACH[design.family] / np.sqrt(least), 0.0)
    scales = np.maximum(_SCALES[design.family], np.concatenate([[0.0], reach]))
    shift = np.eye(len(scales))
    shift[0, 1:] -= columns.means
    inverse = np.linalg.inv(basis)
    return inverse @ (shift * scales**2) @ shift.T @ inverse.T


def _one_sided(place: _Place, move: np.ndarray) -> np.ndarray:
    """Return directions of weights (p, k) of categories that have hardly one of the two outcomes.

    Of counts these are those without events. Log-odds and rates go on from step to step there, and
    no interval follows from where they are.
    """
    rows, numbers = place.rows, place.design.numbers
    kind = place.design.kind
    predicted = kind.mean(rows.scores_of(rows.centres, place.weights + move))
    fewer = place.design.n * rows.seen * kind.events(predicted, place.unit)
    own = np.eye(len(numbers))[:, np.flatnonzero(~numbers)[1:]]
    return np.linalg.solve(place.basis, own[:, fewer < _ONE_SIDED])


def _has_digits(covariance: np.ndarray) -> bool:
    """Return whether no direction of a covariance is lost in the rounding of others."""
    if not np.isfinite(covariance).all():
        return False
    values = np.linalg.eigvalsh(covariance)
    return bool(values[0] > _LEAST_DIGITS * values[-1])


def _at_least(matrix: np.ndarray, least: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, least)) @ vectors.T


def _bounded(matrix: np.ndarray, about: np.ndarray) -> np.ndarray:
    """Return the matrix, changed by no more than a factor along any direction of another."""
    values, vectors = np.linalg.eigh(about)
    if values[0] <= 0:
        return about
    root, inverse = roots(values, vectors)
    shares, turns = np.linalg.eigh(inverse @ matrix @ inverse)
    change = (turns * np.clip(shares, _CHANGE, 1 / _CHANGE)) @ turns.T
    return root @ change @ root
