"""Heads: a person's own part of a model, from the person's rows and released numbers alone.

A head is an intercept and weights that are added to the shared model. Several priors are tried for
each person: no head, an intercept, weights along shared directions with a released covariance,
weights anywhere, and both. With each prior, the head is a ridge regression with a closed form for
its leave-one-out errors. Nobody has to choose a prior: a person's head is the mean of all of them,
each weighted by how likely it makes the person's own targets, and by how well it did for all
persons, as released noisy means show.

Design note. To choose the head with the least leave-one-out error is to follow noise if rows are
few: it costs more than a wrong prior does. A mean of heads is a head, and costs nothing to keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np

from dpsubspace._core.gradients.losses import Loss, Squared
from dpsubspace._core.statistics.persons import PersonChunk, PersonRows, products

# Own models -------------------------------------------------------------------------------------
# Models of persons who do without anybody else: ridge regression on their own rows alone.
#
# If a person has many rows, and noise has hidden what all persons share, that may be best. It uses
# nothing that was released: not even the locations of columns, which each person computes from the
# own rows.

# Origin of the numbers of this file: chosen by hand, on the persons that
# benchmarks/repro_personal.py makes and on its tables of people. No script varies them.

# Penalties, over the number of rows of the person; the least leave-one-out error decides.
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)

# Fewest rows of a person who may do alone, and the number of standard errors by which the own model
# must be better: more if rows are few, since their least leave-one-out error is lower by chance.
_FEWEST, _CLEARLY, _FEW = 8, 1.0, 6.0

# Share by which the squared error must be less, times the rows: among many persons with few rows,
# those whose own model noise happens to favour have errors that are less, but rarely by that much.
# The example of docs/personal_models.md lost 0.03 of R2 without it.
_LESS = 7.0


class OwnModel(NamedTuple):
    coef: np.ndarray  # (u, d): weights of rows in their own units
    constant: np.ndarray  # (u,): constants
    # (u, m): residual of each row by the model of the person's other rows.
    left_out: np.ndarray


def own_model(chunk: PersonChunk, *, intercept: bool) -> OwnModel:
    """Return ridge regressions of each person on rows standardised by the person's own rows.

    Columns and targets are divided by their largest entries first, so that nothing is out of range,
    whatever a person's rows are.
    """
    there = np.arange(chunk.rows.shape[1]) < chunk.sizes[:, None]
    targets, unit = _in_range(chunk.residuals[:, :, None])
    rows, means, factors, units = in_own_units(chunk, intercept=intercept)
    targets, sizes = targets[:, :, 0], chunk.sizes[:, None]
    level = np.zeros_like(sizes)
    if intercept:
        level = targets.sum(axis=1, keepdims=True) / sizes
    targets = np.where(there, targets - level, 0.0)
    wide = rows.shape[1] < rows.shape[2]  # the smaller of two systems is solved
    across = np.swapaxes(rows, 1, 2)
    gram = np.matmul(rows, across) if wide else np.matmul(across, rows)
    right = targets[:, :, None] if wide else np.matmul(across, targets[:, :, None])
    best, error = np.zeros_like(targets), np.full(len(gram), np.inf)
    chosen = np.zeros_like(right)
    for penalty in PENALTIES:
        ridge = (penalty * sizes)[:, :, None]
        inverse = np.linalg.inv(gram + ridge * np.eye(gram.shape[1]))
        dual = np.matmul(inverse, right)
        if wide:
            rest = ridge * dual
            own = ridge[:, :, 0] * np.diagonal(inverse, axis1=1, axis2=2)
        else:
            rest = targets[:, :, None] - np.matmul(rows, dual)
            own = 1 - np.sum(np.matmul(rows, inverse) * rows, axis=2)
        if intercept:
            own = own - 1 / sizes
        found = np.where(there, rest[:, :, 0] / np.maximum(own, 1e-9), 0.0)
        errors = products(found, found)
        wins = errors < error
        best, error = np.where(wins[:, None], found, best), np.where(wins, errors, error)
        chosen = np.where(wins[:, None, None], dual, chosen)
    coef = (np.matmul(across, chosen) if wide else chosen)[:, :, 0]
    coef = coef * factors
    constant = (level[:, 0] - products(coef, means)) * unit[:, 0]
    with np.errstate(over="ignore"):
        coef = coef / units * unit
    return OwnModel(np.where(np.isfinite(coef), coef, 0.0), constant, best * unit)


class OwnUnits(NamedTuple):
    rows: np.ndarray  # (u, m, d): rows, standardised by each person's own
    means: np.ndarray  # (u, d): subtracted means, of columns over their largest entries
    factors: np.ndarray  # (u, d): factors that multiply the columns after that
    largest: np.ndarray  # (u, d): largest entries


def in_own_units(chunk: PersonChunk, *, intercept: bool) -> OwnUnits:
    """Return rows standardised per person by the own rows; not centred without an intercept."""
    there = np.arange(chunk.rows.shape[1]) < chunk.sizes[:, None]
    rows, largest = _in_range(chunk.rows)
    sizes, means = chunk.sizes[:, None], np.zeros_like(rows[:, 0, :])
    if intercept:
        means = rows.sum(axis=1) / sizes
    rows = np.where(there[:, :, None], rows - means[:, None, :], 0.0)
    scale = np.sqrt((rows**2).sum(axis=1) / sizes)
    flat = scale <= 1e-9 * np.abs(means)
    factors = np.where(flat, 0.0, 1 / np.where(flat, 1.0, np.maximum(scale, 1e-300)))
    return OwnUnits(rows * factors[:, None, :], means, factors, largest)


def _in_range(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide rows (u, m, d) by each person's largest entries per column; return both."""
    rows = np.where(np.isfinite(rows), rows, 0.0)
    largest = np.abs(rows).max(axis=1)
    largest = np.where(largest > 0, largest, 1.0)
    return rows / largest[:, None, :], largest


def better_alone(chunk: PersonChunk, own: np.ndarray, together: np.ndarray) -> np.ndarray:
    """Return whether the own model is clearly better, by leave-one-out residuals (u, m).

    Squared errors of the same rows are compared, so that rows that are hard for both models count
    for nothing. The mean difference has to be clear, and a large share of the squared error.
    """
    there = np.arange(own.shape[1]) < chunk.sizes[:, None]
    largest = np.maximum(np.abs(own), np.abs(together)).max(axis=1, keepdims=True)
    largest = np.where(largest > 0, largest, 1.0)  # squares stay in range
    mine, others = (np.where(there, left / largest, 0.0) ** 2 for left in (own, together))
    mean = (others - mine).sum(axis=1) / chunk.sizes
    spread = np.where(there, others - mine - mean[:, None], 0.0)
    error = np.sqrt(products(spread, spread)) / chunk.sizes
    clear = mean > (_CLEARLY + _FEW / chunk.sizes) * error
    large = mean > _LESS / chunk.sizes * (others.sum(axis=1) / chunk.sizes)
    return (chunk.sizes >= _FEWEST) & clear & large


# Heads ------------------------------------------------------------------------------------------

# Number of rows that the noise variance of all persons counts as, beside own residuals.
_NOISE_ROWS = 4.0

# The number of rows if that variance is not known, and then its guess, over the mean square of the
# person's residuals.
_FEW_NOISE_ROWS, _GUESSED_NOISE = 0.1, 0.2

# A person's rows count as equal if their variance is below this share of their mean's square.
_FLAT = 1e-20

# Largest norm of the scores of a person's rows, over that of the noise, for which the inverse of
# their products is accurate in float64.
_LARGEST_SCORES = 1e6

# Largest product of squared norms of scores and of own rows for which one inverse serves all
# priors.
_NEAR = 1e8

# Largest number of rows that the comparison over all persons counts as, beside own rows.
_MOST_ROWS_OF_ALL = 100.0

# Residuals about a model other than the shared one are clipped to this, in units of the targets.
_FARTHEST = 100.0

# Usual standard deviation of means over all persons of the logarithms of errors of heads.
_USUALLY_APART = 0.2

# Largest noise of the comparison in the logarithm of a weight, in standard deviations.
_MOST_SPREAD = 1.0

# Least share of the squared leave-one-out error without a head that other heads are assumed to
# leave; the inverse is the largest.
_LEAST_LEFT = 1e-3

# Variance of all own weights together over that of the noise, if weights may point anywhere.
_OWN_SPREADS = (0.1, 0.5, 2.0, 8.0)

# That variance for heads that are larger than released numbers show, or hidden by noise.
_WIDE = 4.0

# That variance of intercepts if nothing is known of them.
_USUAL_INTERCEPT = 0.25

# That variance for weights along directions, beside the released covariance.
_USUAL_SPREAD = 1.0


class Ridge(NamedTuple):
    coef: np.ndarray  # (u, d + 1): own intercept and weights of white rows
    # (u, m): residual of each row by the head of the person's other rows.
    left_out: np.ndarray
    # (u,): ``r^T (I + K)^-1 r`` with K the covariance of the person's scores over the noise
    # variance.
    fit: np.ndarray
    # Matrices whose determinants have the product ``|I + K|``: few callers need it.
    systems: tuple[Definite | Known, ...]
    own: np.ndarray  # (u, m): share of each row that the person's other rows do not determine
    stretch: np.ndarray | float = 1.0  # (u,): factor of the shared scores

    @property
    def volume(self) -> np.ndarray:
        """The logarithm of the determinant of ``I + K``, (u,)."""
        volume = self.systems[0].volume
        return volume + self.systems[1].volume if self.systems[1:] else volume


@dataclass(frozen=True, eq=False)
class Definite:
    """A positive definite matrix of each person (u, q, q), with cached inverse and determinant."""

    matrices: np.ndarray

    @cached_property
    def inverse(self) -> np.ndarray:
        return np.linalg.inv(self.matrices)

    @cached_property
    def volume(self) -> np.ndarray:
        """Logarithms of the determinants, (u,)."""
        return np.linalg.slogdet(self.matrices)[1]


class Known(NamedTuple):
    """Logarithms of determinants, (u,), that were computed another way."""

    volume: np.ndarray


@dataclass(frozen=True)
class Candidate:
    name: str  # Name of the prior
    root: np.ndarray  # (d + 1, f): R
    # s, of weights of rows whose entries have a mean square of 1 over the person's rows; an
    # intercept has its variance in R
    own: float = 0.0
    # Whether these rows are centred at their own mean: if noise has hidden the columns' locations.
    about_mean: bool = False
    centre: np.ndarray | None = None  # (d + 1,): mean of the heads, where it is not 0


def _along(constant: np.ndarray, directions: np.ndarray, spread: float) -> np.ndarray:
    """Return the root of a covariance: an intercept's, with variance `spread` along directions."""
    inside = directions * math.sqrt(spread)
    inside = np.concatenate([np.zeros((1, directions.shape[1])), inside])
    return np.concatenate([constant, inside], axis=1)


# Targets ----------------------------------------------------------------------------------------


class Outcome(Protocol):
    """The kind of targets: their likelihood given a head, and a model without other persons."""

    @property
    def loss(self) -> Loss:
        """The loss of standardised targets by scores."""
        ...

    @property
    def origin(self) -> float:
        """The shared score of 0 less the score that decides nothing."""
        ...

    def units(self, scale: float, location: float) -> tuple[float, float]:
        """Return slope and constant of the scores in the units of the data."""
        ...

    def moved(self, chunk: PersonChunk, scores: np.ndarray) -> PersonChunk:
        """Return the same persons with scores (u, m) added to the shared ones."""
        ...

    def penalised(self, chunk: PersonChunk, design: Design) -> Ridge:
        """Return the coefficients of a design with a prior of variance 1, beside shared scores."""
        ...

    def log_density(self, found: Ridge, rows: np.ndarray, beside: np.ndarray) -> np.ndarray:
        """Return the logarithm of the density of targets, up to a constant, (u,).

        `beside` are squares that other persons contribute to the estimated noise of a person's
        residuals. Together with the person's own squares they count as `rows` rows.
        """
        ...

    def own_model(self, chunk: PersonChunk, *, intercept: bool) -> OwnModel: ...

    def behind(self, seen: float, shared: float, noise: float) -> tuple[float, float]:
        """Return the variance of noise, and a factor of the variance of heads, from residuals.

        `seen` is what residuals show of the variance of heads, `shared` is the variance of shared
        scores, and `noise` that of residuals beside heads.
        """
        ...


@dataclass(frozen=True)
class Numbers:
    """Numbers with normal noise, whose variance is a person's own."""

    loss = Squared()
    origin = 0.0

    def units(self, scale: float, location: float) -> tuple[float, float]:
        return scale, location

    def moved(self, chunk: PersonChunk, scores: np.ndarray) -> PersonChunk:
        left = np.clip(chunk.residuals + chunk.beyond - scores, -_FARTHEST, _FARTHEST)
        left = np.where(np.arange(left.shape[1]) < chunk.sizes[:, None], left, 0.0)
        return replace(chunk, residuals=left)

    def penalised(self, chunk: PersonChunk, design: Design) -> Ridge:
        return penalised(chunk.residuals, design)

    def log_density(self, found: Ridge, rows: np.ndarray, beside: np.ndarray) -> np.ndarray:
        """Return the density; the noise variance of all persons counts as a few rows of a person.

        If it is not known, its guess counts for almost no rows, so that units of the targets do not
        matter.
        """
        return -(rows * np.log(beside + found.fit) + found.volume) / 2

    def own_model(self, chunk: PersonChunk, *, intercept: bool) -> OwnModel:
        return own_model(chunk, intercept=intercept)

    def behind(self, seen: float, shared: float, noise: float) -> tuple[float, float]:
        return noise, 1.0


NUMBERS = Numbers()


# Fits -------------------------------------------------------------------------------------------


class _Common:
    """Intermediate results that fits of the same persons by several priors share, cached."""

    def __init__(self, chunk: PersonChunk):
        self._chunk = chunk
        self._scores: dict[int, np.ndarray] = {}
        self._own: dict[tuple[float, bool], OwnRows] = {}

    def scores(self, root: np.ndarray) -> np.ndarray:
        if id(root) not in self._scores:  # priors share the same matrices
            self._scores[id(root)] = self._chunk.scores(root)
        return self._scores[id(root)]

    def own(self, variance: float, about_mean: bool) -> OwnRows:
        if (variance, about_mean) not in self._own:
            self._own[variance, about_mean] = _own_rows(self._chunk, variance, about_mean)
        return self._own[variance, about_mean]


def ridges(chunk: PersonChunk, priors: Sequence[Candidate], outcome: Outcome) -> list[Ridge]:
    """Return fits by several priors, most of which share roots or own rows with others."""
    common = _Common(chunk)
    return [ridge(chunk, prior, outcome, common) for prior in priors]


def ridge(
    chunk: PersonChunk,
    prior: Candidate,
    outcome: Outcome = NUMBERS,
    common: _Common | None = None,
) -> Ridge:
    common = common or _Common(chunk)
    if prior.centre is not None:  # own rows stay unchanged
        moved = outcome.moved(chunk, chunk.scores(prior.centre[:, None])[:, :, 0])
        found = ridge(moved, replace(prior, centre=None), outcome, common)
        return found._replace(coef=found.coef + np.asarray(found.stretch)[..., None] * prior.centre)
    scores, f = common.scores(prior.root), prior.root.shape[1]
    if prior.own == 0:
        found = outcome.penalised(chunk, Design(scores))
        return found._replace(coef=_mapped(prior.root, found.coef[:, :, None]))
    own = common.own(prior.own, prior.about_mean)
    found = outcome.penalised(chunk, Design(scores, own))
    weights = own.factors[:, None] * found.coef[:, f:]
    coef = _mapped(prior.root, found.coef[:, :f, None])
    coef[:, 1:] += weights
    coef[:, 0] -= products(own.means, weights)
    return found._replace(coef=coef)


@dataclass(frozen=True, eq=False)
class OwnRows:
    rows: np.ndarray  # (u, m, d): white rows, about each person's mean or not
    gram: np.ndarray  # (u, m, m): their products with each other
    factors: np.ndarray  # (u,): factors that multiply them
    means: np.ndarray  # (u, d): means that were subtracted from them

    @cached_property
    def shrunk(self) -> np.ndarray:
        """Factors (u,) that shrink the norm of the multiplied rows into range."""
        return _factors(np.sqrt(np.trace(self.gram, axis1=1, axis2=2)) * self.factors)

    @cached_property
    def system(self) -> Definite:
        """The identity plus the products of the multiplied rows, for all priors that have them."""
        each = (self.factors * self.shrunk)[:, None, None]
        return Definite(_one_more(np.where(each > 0, self.gram * each**2, 0.0)))


@dataclass(frozen=True)
class Design:
    """Design of a ridge regression: scores (u, m, f), and then the own rows times their factors.

    Several priors have the same own rows, whose products are computed once.
    """

    scores: np.ndarray
    own: OwnRows | None = None

    @property
    def width(self) -> int:
        return self.scores.shape[2] + (0 if self.own is None else self.own.rows.shape[2])

    def dense(self) -> np.ndarray:
        if self.own is None:
            return self.scores
        rows = self.own.rows * self.own.factors[:, None, None]
        return np.concatenate([self.scores, rows], axis=2)


def _own_rows(chunk: PersonChunk, variance: float, about_mean: bool) -> OwnRows:
    """Return white rows, scaled so that each person's rows have a `variance` about their mean.

    Released scales may be far off. A person's own rows show how much they vary; a single row, or
    rows that are all equal, have the mean square of 1 that white rows should have.
    """
    rows, means, squares = chunk.about_own_mean
    varies = squares > _FLAT * (products(means, means) / means.shape[1])
    factors = math.sqrt(variance) / np.sqrt(np.where(varies, squares, 1.0))
    if about_mean:
        return OwnRows(rows, chunk.gram_about_mean, np.where(varies, factors, 0.0), means)
    return OwnRows(chunk.white, chunk.gram, factors, np.zeros_like(means))


def penalised(r: np.ndarray, design: Design) -> Ridge:
    """Return the ridge regression of r (u, m) on a design whose penalty 1 exceeds rounding.

    The scores of a person are shrunk to a norm that rounding bears, and own rows likewise. So
    matrices have an inverse, whatever the rows are: whether a fit fails would reveal rows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        by_weights = r.shape[1] > design.width
        B = design.dense() if by_weights else design.scores
        flat = B.reshape(len(B), -1)
        factors = _factors(np.sqrt(products(flat, flat)))
        each = factors[:, None, None]
        B = np.where(each > 0, B * each, 0.0)
        if by_weights:
            found = _by_weights(r, B)
        elif design.own is None:
            found = _by_rows(r, B)
        else:
            found = _beside_own(r, B, design.own, products(flat, flat) * factors**2)
            own = np.tile(design.own.shrunk, (design.own.rows.shape[2], 1)).T
            factors = np.concatenate([np.tile(factors, (B.shape[2], 1)).T, own], axis=1)
            return found._replace(coef=found.coef * factors)
    return found._replace(coef=found.coef * factors[:, None])


def _factors(norms: np.ndarray) -> np.ndarray:
    return _LARGEST_SCORES / np.maximum(norms, _LARGEST_SCORES)


def _one_more(matrices: np.ndarray) -> np.ndarray:
    """Add the identity to matrices (u, q, q), in place."""
    matrices += np.eye(matrices.shape[1])
    return matrices


def _by_weights(r: np.ndarray, B: np.ndarray) -> Ridge:
    across = np.swapaxes(B, 1, 2)
    system = Definite(_one_more(across @ B))
    found = np.matmul(system.inverse, np.matmul(across, r[:, :, None]))
    rest = r - np.matmul(B, found)[:, :, 0]
    leverage = np.sum(np.matmul(B, system.inverse) * B, axis=2)
    left_out = rest / np.maximum(1 - leverage, 1e-9)
    coef = found[:, :, 0]
    fit = products(rest, rest) + products(coef, coef)  # the same by definition, and never below 0
    return Ridge(coef, left_out, fit, (system,), 1 - leverage)


def _by_rows(r: np.ndarray, B: np.ndarray, own: OwnRows | None = None) -> Ridge:
    gram = np.matmul(B, np.swapaxes(B, 1, 2))
    system = Definite(_one_more(gram) if own is None else gram + own.system.matrices)
    dual = np.matmul(system.inverse, r[:, :, None])[:, :, 0]
    return _of_dual(dual, B, own, (system,), np.diagonal(system.inverse, axis1=1, axis2=2))


def _beside_own(r: np.ndarray, B: np.ndarray, own: OwnRows, squares: np.ndarray) -> Ridge:
    """Solve in the space of rows, for few scores B of squared norms `squares` and own rows.

    Priors share the inverse of the part with own rows alone (Woodbury). The inverse is off by some
    units of rounding times the norm of the own rows, and products with scores by the squared norm
    of the scores times that. If this product is not far below 1, one matrix with both is inverted:
    the person's own data alone decide which way is used.
    """
    near = squares * np.trace(own.system.matrices, axis1=1, axis2=2) <= _NEAR
    found = _by_shared(r, np.where(near[:, None, None], B, 0.0), own)
    if near.all():
        return found
    other = _by_rows(r, B, own)

    def either(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        return np.where(near.reshape(-1, *[1] * (one.ndim - 1)), one, two)

    coef, left_out, fit = map(either, found[:3], other[:3])
    volume = Known(either(found.volume, other.volume))
    return Ridge(coef, left_out, fit, (volume,), either(found.own, other.own))


def _by_shared(r: np.ndarray, B: np.ndarray, own: OwnRows) -> Ridge:
    inverse, across = own.system.inverse, np.swapaxes(B, 1, 2)
    mapped = np.matmul(inverse, B)
    inside = Definite(_one_more(np.matmul(across, mapped)))
    back = np.matmul(mapped, inside.inverse)
    dual = np.matmul(inverse, r[:, :, None])
    dual = (dual - np.matmul(back, np.matmul(across, dual)))[:, :, 0]
    diagonal = np.diagonal(inverse, axis1=1, axis2=2) - np.sum(back * mapped, axis=2)
    return _of_dual(dual, B, own, (own.system, inside), diagonal)


def _of_dual(
    dual: np.ndarray,
    B: np.ndarray,
    own: OwnRows | None,
    systems: tuple[Definite, ...],
    diagonal: np.ndarray,
) -> Ridge:
    """Return the fit from dual weights of the rows (u, m) and the diagonal of the inverse."""
    coef = np.matmul(dual[:, None, :], B)[:, 0]
    if own is not None:
        rows = np.matmul(dual[:, None, :], own.rows)[:, 0]
        coef = np.concatenate([coef, rows * (own.factors * own.shrunk)[:, None]], axis=1)
    left_out = dual / np.maximum(diagonal, 0.1 / _LARGEST_SCORES**2)
    fit = products(dual, dual) + products(coef, coef)
    return Ridge(coef, left_out, fit, systems, diagonal)


def _mapped(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Multiply a matrix (p, f) by the vector of each person, (u, f, 1): (u, p).

    There is one product per person: its rounding must not depend on the number of persons.
    """
    return np.matmul(matrix, vectors)[:, :, 0]


class Heads(NamedTuple):
    # (n_persons, d): weights of standardised rows, added to the shared ones. Zero for persons
    # without rows.
    coef: np.ndarray
    constant: np.ndarray  # (n_persons,): constants, likewise
    # (n_persons, C + 1): weight of each prior in the head, and last whether a person does alone;
    # adds up to 1.
    weights: np.ndarray
    # (n_persons, d): weights of rows in their own units, for persons who do alone; they replace all
    # shared weights.
    own_coef: np.ndarray
    own_constant: np.ndarray  # (n_persons,): constants, likewise

    @property
    def uses_own(self) -> np.ndarray:
        return self.weights[:, -1] > 0


@dataclass(frozen=True)
class HeadPrior:
    candidates: tuple[Candidate, ...]  # Priors, of which the first is "no head"
    noise: float  # Variance of targets about their persons' models, in variances of the targets
    # (C,): logarithms of the weight of each prior before a person's rows are used.
    log_weights: np.ndarray
    known: bool = True  # Whether `noise` was visible through the noise of its release
    outcome: Outcome = NUMBERS  # Kind of targets

    @classmethod
    def of(
        cls,
        directions: np.ndarray,
        covariance: np.ndarray,
        noise: float,
        public: np.ndarray | None = None,
        tasks: Candidate | None = None,
        known: bool = True,
        outcome: Outcome = NUMBERS,
    ) -> HeadPrior:
        """Return priors with a covariance (k + 1, k + 1) of intercept and scores on `directions`.

        Directions (d, k) are orthonormal in white coordinates, and `noise` is the variance of
        targets about persons' models. `public` (d, q) are orthonormal directions of public tasks,
        and `tasks` is a prior made of their models.
        """
        d, k = directions.shape
        values, vectors = np.linalg.eigh(covariance / noise)
        inside = vectors * np.sqrt(np.maximum(values, 0.0))
        shared = np.concatenate([inside[:1], directions @ inside[1:]])
        constant = np.zeros((d + 1, 1))
        constant[0] = math.sqrt(max(float(covariance[0, 0]) / noise, 0.0))
        found = [Candidate("shared", np.zeros((d + 1, 0))), Candidate("intercept", constant)]
        wide = np.zeros((d + 1, 1))
        wide[0] = math.sqrt(_WIDE)
        found += [Candidate("intercept, wide", wide)]
        constant = constant if known else wide  # locations of columns and targets are hidden too
        own = partial(Candidate, about_mean=not known)
        found += [own("local, wide", wide, _WIDE / d)]
        found += [own(f"local {s}", constant, s / d) for s in _OWN_SPREADS]
        if k:
            found += [Candidate("directions", shared)]
            found += [own(f"directions and local {s}", shared, s / d) for s in _OWN_SPREADS[:3]]
            usual = _along(constant, directions, _USUAL_SPREAD / k)
            found += [Candidate("directions, usual spread", usual)]
            found += [Candidate("directions, wide", _along(wide, directions, _WIDE))]
        if public is not None:
            usual = _along(constant, public, _USUAL_SPREAD / public.shape[1])
            found += [Candidate("public directions", usual)]
            found += [Candidate("public directions, wide", _along(wide, public, _WIDE))]
        if tasks is not None:
            found += [tasks]
            found += [
                replace(tasks, name=f"public tasks and local {s}", own=s / d)
                for s in _OWN_SPREADS[:3]
            ]
        return cls(tuple(found), noise, np.zeros(len(found)), known, outcome)

    @classmethod
    def checking(cls, public: np.ndarray, outcome: Outcome = NUMBERS) -> HeadPrior:
        """Return priors of an intercept, without and with weights along orthonormal directions."""
        constant = np.zeros((len(public) + 1, 1))
        constant[0] = math.sqrt(_USUAL_INTERCEPT)
        usual = _along(constant, public, _USUAL_SPREAD / public.shape[1])
        found = (Candidate("intercept", constant), Candidate("public directions", usual))
        return cls(found, 1.0, np.zeros(2), outcome=outcome)

    @property
    def names(self) -> list[str]:
        return [candidate.name for candidate in self.candidates]

    # Comparison of priors over all persons -------------------------------------------------------

    def losses(self, chunk: PersonChunk) -> np.ndarray:
        """Return logarithms (u, C) of each person's squared leave-one-out errors, centred.

        They do not depend on the units of the targets. Persons who are predicted exactly without a
        head contribute zeros, and every head is assumed to leave at least a small share of the
        error without a head.
        """
        outcome = self.outcome
        every = [one.left_out for one in ridges(chunk, self.candidates, outcome)]
        squares = np.stack([products(one, one) for one in every], axis=1)
        squares += self._noise_beside(chunk)[:, None]
        none = squares[:, :1]
        shares = squares / np.where(none > 0, none, 1.0)
        losses = np.log(np.clip(shares, _LEAST_LEFT, 1 / _LEAST_LEFT))
        return np.where(none > 0, losses - losses.mean(axis=1, keepdims=True), 0.0)

    def compared(self, losses: np.ndarray, noise: float) -> HeadPrior:
        """Return a copy with weights from noisy means (C,) of such losses over all persons.

        The means over all persons count as much as several rows of the person: the more of them,
        the smaller the standard deviation `noise` of the means. Noise that is larger than the means
        usually are removes nearly all of their effect.
        """
        apart = (losses - losses.min()) / (1 + (noise / _USUALLY_APART) ** 2)
        factor = min(_MOST_ROWS_OF_ALL / 2, _MOST_SPREAD / max(noise, 1e-9))
        return replace(self, log_weights=-factor * apart)

    # Heads ------------------------------------------------------------------------------------

    def heads(self, persons: PersonRows) -> Heads:
        """Return the head of every person, from own rows; or the own model if that is better."""
        d, n, C = persons.width, persons.n_persons, len(self.candidates)
        found, own, own_constant = np.zeros((n, d + 1)), np.zeros((n, d)), np.zeros(n)
        stretch, shared = np.ones(n), persons.constant + self.outcome.origin
        weights = np.tile(np.exp(self.log_weights - self.log_weights.max()), (n, 1))
        weights = np.pad(weights / weights.sum(axis=1, keepdims=True), ((0, 0), (0, 1)))
        beside = (C + 1) * (d + 1)
        pairs = zip(
            persons.chunks(beside=beside), persons.as_they_are().chunks(beside=beside), strict=True
        )
        for chunk, raw in pairs:
            them = chunk.persons
            found[them], stretch[them], weights[them, :-1], left_out = self._of_chunk(chunk)
            by_themselves = self.outcome.own_model(raw, intercept=persons.intercept)
            better = better_alone(raw, by_themselves.left_out, left_out + chunk.beyond)
            some = them[better]
            weights[some], found[some], stretch[some] = np.eye(C + 1)[-1], 0.0, 1.0
            own[some] = by_themselves.coef[better]
            own_constant[some] = by_themselves.constant[better]
        more = stretch - 1
        coef = _mapped(persons.whitening, found[:, 1:, None]) + more[:, None] * persons.weights
        return Heads(coef, found[:, 0] + more * shared, weights, own, own_constant)

    def _noise_beside(self, chunk: PersonChunk) -> np.ndarray:
        """Return squares that the noise of all persons adds to a person's own residuals, (u,)."""
        if self.known:
            return np.full(len(chunk.sizes), _NOISE_ROWS * self.noise)
        squares = products(chunk.residuals, chunk.residuals) / chunk.sizes
        return _FEW_NOISE_ROWS * _GUESSED_NOISE * squares

    def _of_chunk(
        self, chunk: PersonChunk
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return mean heads, mean score factors, weights of priors, and left-out residuals.

        A prior counts by the density of the person's targets under it.
        """
        every = ridges(chunk, self.candidates, self.outcome)
        beside = np.maximum(self._noise_beside(chunk), 1e-300)
        rows = chunk.sizes + (_NOISE_ROWS if self.known else _FEW_NOISE_ROWS)
        scores = np.stack([self.outcome.log_density(one, rows, beside) for one in every], axis=1)
        scores += self.log_weights
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        coefs = np.stack([one.coef for one in every], axis=1)
        left_out = np.stack([one.left_out for one in every], axis=1)
        coef, left_out = (np.matmul(weights[:, None, :], x)[:, 0] for x in (coefs, left_out))
        alike = np.broadcast_to
        stretch = np.stack([alike(one.stretch, len(chunk.sizes)) for one in every], axis=1)
        # Weights add up to 1 but for rounding: scores with a factor of 1 stay unchanged.
        return coef, 1 + products(weights, stretch - 1), weights, left_out
