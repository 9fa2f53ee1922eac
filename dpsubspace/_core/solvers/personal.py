"""Private shared parts of personal linear models: directions and distribution of heads.

The model is ``y = x' (b + U v_j) + a_j + noise`` for a row x of person j. The shared model b is
there already. Released here are the directions U, the mean and the covariance of the persons' heads
``(a_j, v_j)``, of which the mean joins the shared model, and a comparison of the kinds of heads
over all persons. Heads themselves are computed afterwards, by each person alone
(:mod:`dpsubspace._core.solvers.heads`). The outputs that all persons see are differentially
private, and a person's head is a function of these outputs and of the person's own rows: together
that is joint differential privacy (Hsu, Huang, Roth, Roughgarden, Wu, 2014). So heads may use a
person's rows as often as they like: for weights of kinds, for scales, and for a choice by errors
that are left out.

Design note. Most sums are of *unit vectors*: a person contributes a matrix of norm 1, or nothing.
So no bound depends on how many rows a person has or how large they are, there is no norm to clip
to, and huge rows are harmless. The sizes are lost. Directions need none, and a step gets its own
size from a second sum that is scaled to unit norm together with the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.public.tasks import TaskPrior
from dpsubspace._core.release.mechanisms import vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.solvers.heads import NUMBERS, Candidate, HeadPrior, Heads, Outcome
from dpsubspace._core.statistics.moments import packed, symmetric
from dpsubspace._core.statistics.persons import PersonChunk, PersonRows, products, unit_weights

DIRECTIONS, ROUNDS, PRIOR, COMPARISON = "directions", "rounds", "heads", "kinds of heads"
CHECK = "public directions"

# Origin of the numbers: bounds on the contribution of a person are part of the proofs below. All
# others were chosen by hand on the persons that benchmarks/repro_personal.py makes. No script
# varies them: the grids of that script are for the constants of rivals.

# Shares of the solver's budget.
_SHARES = {DIRECTIONS: 0.6, CHECK: 0.03, ROUNDS: 0.57, PRIOR: 0.3, COMPARISON: 0.15}

# Part of the share for directions that rounds get if both are released.
_ROUNDS_SHARE = 0.35

# Number of persons for each column, over the noise multiplier of the whole fit, from which on a
# round pays: after public directions the first and the second, and after released ones.
_FIRST, _SECOND, _AFTER_RELEASED = 2.0, 12.0, 20.0

# Rounds without privacy, and the largest number of directions that "auto" uses.
_EXACT_ROUNDS, _MOST_DIRECTIONS = 10, 10

# Factor of the edge of noise that an eigenvalue or a singular value must exceed.
_ABOVE_EDGE, _ABOVE_STEP = 1.05, 1.2

# Number of rows with the value 0 that are added to a person's mean residual.
_CENTRING_ROWS = 4.0

# Variances of noise, of intercepts and of all scores together that rounds assume for heads.
_USUAL_NOISE, _USUAL_INTERCEPT, _USUAL_SCORES = 0.7, 0.17, 0.2

# Weight of the second part of a round, which its step is divided by, relative to the first.
_BESIDE = 0.5

# Bounds on a person's contribution to the moments of heads.
_HEAD_BOUND, _MEAN_BOUND, _MOMENT_BOUND, _SQUARE_BOUND, _MEMBER = 1.5, 1.0, 1.0, 1.0, 0.5

# Noise of these moments, in variances of the targets, from which on usual values are used.
_HIDDEN = 0.15

# Standard deviations of the square of noise by which noisy numbers have to stand out.
_CLEAR = 3.0

# Least second moment that scores of about white rows are assumed to have.
_LEAST_MOMENT = 0.5

# Factor by which the noise variance of persons may differ from that of public tasks.
_ALIKE = 4.0

# Largest number of unknowns of a round by moments, which releases all their products.
_MOST_UNKNOWNS = 5000


def default_rounds(reach: float, width: int, *, public: bool) -> int:
    if reach == math.inf:
        return _EXACT_ROUNDS
    each = reach / width
    return (each >= _FIRST) + (each >= _SECOND) if public else int(each >= _AFTER_RELEASED)


def slope_whitening(mixing: np.ndarray, width: int) -> np.ndarray:
    inverse = np.linalg.inv(mixing)
    values, vectors = np.linalg.eigh((inverse.T @ inverse)[:width, :width])
    return vectors / np.sqrt(values)


@dataclass(frozen=True)
class Personal:
    # (d,): shared weights of standardised rows: the previous ones plus the mean of heads.
    weights: np.ndarray
    constant: float  # Shared constant, likewise
    whitening: np.ndarray  # (d, d): W such that ``W^T u`` is about white
    directions: np.ndarray  # (d, k): shared directions of weights of standardised rows
    white: np.ndarray  # (d, k): the same directions for white rows, orthonormal
    prior: HeadPrior  # Distribution of heads
    # (d,): released eigenvalues from the largest, over the edge of their noise; empty
    # where directions were public.
    spectrum: np.ndarray

    def heads(self, persons: PersonRows) -> Heads:
        """Return the heads of persons, from each one's own rows, beside this shared model."""
        return self.prior.heads(persons.sharing(self.weights, self.constant))


@dataclass(frozen=True)
class PersonalSolver:
    n_components: int | None  # Number of directions; None uses those that stand out of the noise
    method: str = "gradient"  # "gradient" or "moments": what a round releases
    n_iter: int = 0  # Number of rounds
    rate: float = 1.0  # Probability with which a person enters the Poisson batch of a round
    public: bool = False  # Whether there are public directions to start at
    outcome: Outcome = NUMBERS  # Kind of targets

    def parts(self) -> dict[str, Part]:
        shares, rounds = dict(_SHARES), self.n_iter
        if not self.public:
            shares[ROUNDS] = shares[DIRECTIONS] * _ROUNDS_SHARE if rounds else 0.0
            shares[DIRECTIONS] -= shares[ROUNDS]
        kept = set(shares) - {DIRECTIONS if self.public else CHECK}
        kept = [name for name in shares if name in kept and (name not in (CHECK, ROUNDS) or rounds)]
        total = math.fsum(shares[name] for name in kept)
        found = {name: Part(shares[name] / total) for name in kept}
        if rounds:
            found[ROUNDS] = Part(found[ROUNDS].share, rounds, self.rate)
        return found

    def __call__(
        self,
        persons: PersonRows,
        releases: Releases,
        public: np.ndarray | None = None,
        after_step: Callable[[], object] = lambda: None,
        tasks: TaskPrior | None = None,
    ) -> Personal:
        """Release the shared part.

        `public` (d, q) are public directions of weights of standardised rows, and `tasks` describes
        the models of public tasks, of standardised rows and targets. `after_step` is called after
        each round.
        """
        start = None if public is None else _orthonormal(np.linalg.solve(persons.whitening, public))
        step = gradient_round if self.method == "gradient" else moments_round
        rounds = releases.budget.parts[ROUNDS].count if ROUNDS in releases else 0
        if start is None:
            white, spectrum = self._released_directions(persons, releases, DIRECTIONS)
        elif rounds and released_doubt(persons, releases, start, self.outcome):
            white, spectrum = self._released_directions(persons, releases, ROUNDS)
            after_step()
            rounds -= 1
        else:
            white, spectrum = start, np.zeros(0)
        for _ in range(rounds):
            if white.shape[1]:
                white = step(persons, releases, white)
            after_step()
        heads = self._seen(persons, released_heads(persons, releases, white))
        if tasks is not None:  # the noise of tasks is a guess at the persons'
            near = np.clip(heads.noise, tasks.noise / _ALIKE, tasks.noise * _ALIKE)
            heads = heads._replace(noise=float(near) if heads.known else tasks.noise, known=True)
        directions = persons.whitening @ white
        weights = persons.weights + directions @ heads.mean[1:]
        constant = persons.constant + persons.intercept * float(heads.mean[0])
        like_tasks = None if tasks is None else _as_tasks(tasks, persons, weights, constant)
        prior = HeadPrior.of(
            white, heads.covariance, heads.noise, start, like_tasks, heads.known, self.outcome
        )
        prior = released_comparison(persons.sharing(weights, constant), releases, prior)
        return Personal(weights, constant, persons.whitening, directions, white, prior, spectrum)

    def _seen(self, persons: PersonRows, heads: HeadMoments) -> HeadMoments:
        """Return the moments of heads in scores, from the moments that residuals show."""
        shared = np.linalg.solve(persons.whitening, persons.weights)
        variance, factor = self.outcome.behind(
            float(np.trace(heads.covariance)), float(shared @ shared), heads.noise
        )
        return heads._replace(
            mean=heads.mean * math.sqrt(factor),
            covariance=heads.covariance * factor,
            noise=variance,
        )

    def _released_directions(
        self, persons: PersonRows, releases: Releases, name: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return top eigenvectors of the pair statistic; the spectrum over the edge of noise."""
        matrix, edge = released_pairs(persons, releases, name)
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = values[::-1] / edge, vectors[:, ::-1]
        count = self.n_components
        if count is None:
            most = _MOST_DIRECTIONS
            if self.method == "moments" and ROUNDS in releases:
                most = min(most, _MOST_UNKNOWNS // persons.width)
            count = min(int(np.count_nonzero(values > _ABOVE_EDGE)), most)
        return vectors[:, :count], values


def _as_tasks(
    tasks: TaskPrior, persons: PersonRows, weights: np.ndarray, constant: float
) -> Candidate:
    """Return the prior under which models with heads are distributed like public tasks."""
    d = persons.width
    inverse = np.eye(d + 1)
    inverse[1:, 1:] = np.linalg.inv(persons.whitening)
    centre = inverse @ (tasks.mean - np.concatenate([[constant], weights]))
    values, vectors = np.linalg.eigh(inverse @ tasks.covariance @ inverse.T / tasks.noise)
    return Candidate("public tasks", vectors * np.sqrt(np.maximum(values, 0.0)), centre=centre)


def _orthonormal(directions: np.ndarray) -> np.ndarray:
    return np.linalg.qr(directions)[0]


# Directions from pairs of rows -----------------------------------------------------------------


def pair_statistics(chunk: PersonChunk) -> np.ndarray:
    """Return each person's matrix, packed and of norm 1, whose mean shows directions of heads.

    With r the residuals of a person less most of their mean, ``sum over i != l of r_i r_l x_i
    x_l^T`` for white rows x. Its mean is ``m (m - 1)`` times the outer product of the person's own
    weights, whatever the noise is (Duchi, Feldman, Hu, Talwar, 2022). A single row has no pairs,
    and contributes nothing.
    """
    means = products(chunk.residuals, np.ones_like(chunk.residuals))
    means = means / (chunk.sizes + _CENTRING_ROWS)
    residuals = chunk.residuals - chunk.ones * means[:, None]
    weighted = chunk.white * residuals[:, :, None]
    across = np.swapaxes(weighted, 1, 2)
    sums = np.matmul(across, np.ones((weighted.shape[1], 1)))
    matrices = packed(np.matmul(sums, np.swapaxes(sums, 1, 2)) - np.matmul(across, weighted))
    matrices[chunk.sizes < 2] = 0.0  # only rounding is left there
    return matrices * unit_weights(products(matrices, matrices), matrices.shape[1])[:, None]


def released_pairs(
    persons: PersonRows, releases: Releases, name: str = DIRECTIONS
) -> tuple[np.ndarray, float]:
    """Return the noisy sum of the persons' pair statistics, and the edge of the noise spectrum.

    Privacy: each person contributes a vector of norm at most 1, a function of the person's own rows
    and of released numbers, or zero. So the sum moves by at most 1 where the person becomes a null
    person, and by at most 2 where replaced; rounding adds the slack of
    :meth:`~dpsubspace._core.statistics.persons.PersonRows.slack`. Event: one Gaussian mechanism,
    that of the part of the budget called `name`, on a Poisson batch of persons if that part has
    one.

    The edge: unit matrices with random directions have squared entries of ``2 / (d (d + 1))``, half
    of that off the diagonal. With the noise of the release, entries off the diagonal have the
    variance ``(s^2 + 2 n / (d (d + 1))) / 2``, and the largest eigenvalue of such a matrix is about
    twice the root of d times that (Wigner, 1958).
    """
    d, batch = persons.width, releases.batch(name, persons.n_persons)
    size, n = d * (d + 1) // 2, releases.budget.parts[name].rate * persons.n_persons

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        return np.ones(len(chunk.persons)) @ pair_statistics(chunk)

    value = persons.total(of_chunk, (size,), batch, beside=4 * d * d)
    total = vector_sum(value, 1.0, persons.slack())
    noise = releases.noise_of(name, total)
    matrix = symmetric(to_numpy(releases.gaussian(name, total)))
    return matrix, 2 * math.sqrt(d * (noise**2 + 2 * n / (d * (d + 1))) / 2)


# Public directions -------------------------------------------------------------------------------


def released_doubt(
    persons: PersonRows, releases: Releases, start: np.ndarray, outcome: Outcome = NUMBERS
) -> bool:
    """Return whether heads along public directions (d, q) do no better than intercepts.

    The comparison is over all persons. If the persons' weights are orthogonal to the directions,
    rounds cannot improve the directions, since each round starts from heads along them.

    Privacy: each person contributes one number in [-1, 1], the logarithm of a quotient of the
    person's own leave-one-out errors by priors that are public or released; 0 where there is none.
    So the sum moves by at most 1 where the person becomes a null person, and by at most 2 where
    replaced, and by the slack of rounding. Event: one Gaussian mechanism.
    """
    prior = HeadPrior.checking(start, outcome)

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        losses = prior.losses(chunk)
        return np.clip(losses[:, 1:] - losses[:, :1], -1.0, 1.0).sum(axis=0)

    value = persons.total(of_chunk, (1,), beside=4 * (persons.width + 1))
    total = vector_sum(value, 1.0, persons.slack())
    return bool(to_numpy(releases.gaussian(CHECK, total))[0] > 0)


# Rounds ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Round:
    """A chunk's persons in a round: their heads along the current directions, and gradients."""

    heads: np.ndarray  # (u, k): scores of heads along the directions
    # (u, d): ``sum x e`` over white rows x and residuals e, across the directions.
    gradients: np.ndarray
    rows: np.ndarray  # (u,): number of rows less the number that the head uses up


def _round_of(chunk: PersonChunk, white: np.ndarray) -> _Round:
    """Return the heads of persons, by a public penalty, and gradients of the same rows.

    Rows in white coordinates are nearly independent across directions and along them, so that the
    noise of a head, which is from the same rows, does not appear in the mean of the gradient.
    """
    d, k = white.shape
    root = np.zeros((d + 1, k + 1))
    root[0, 0], root[1:, 1:] = 1.0, white
    penalty = np.full(k + 1, _USUAL_NOISE * k / _USUAL_SCORES)
    penalty[0] = _USUAL_NOISE / _USUAL_INTERCEPT
    scores = chunk.scores(root)
    across = np.swapaxes(scores, 1, 2)
    inverse = np.linalg.inv(np.matmul(across, scores) + np.diag(penalty))
    found = np.matmul(inverse, np.matmul(across, chunk.residuals[:, :, None]))
    rest = chunk.residuals - np.matmul(scores, found)[:, :, 0]
    left = np.diagonal(inverse, axis1=1, axis2=2) * penalty
    used = k + 1 - products(left, np.ones_like(left))
    gradients = np.matmul(np.matmul(rest[:, None, :], chunk.rows), chunk.whitening)
    gradients = gradients - np.matmul(np.matmul(gradients, white), white.T)
    rows = np.maximum(chunk.sizes - used, 0.0)
    return _Round(found[:, 1:, 0], gradients[:, 0], rows)


def gradient_round(persons: PersonRows, releases: Releases, white: np.ndarray) -> np.ndarray:
    """Return the directions (d, k) after a round that releases gradients.

    Privacy: person j contributes ``w_j h_j v_j^T``, with v_j the head, h_j the gradient of the
    directions' weights followed by a public multiple of ``m_j v_j``, and w_j one over
    ``|h_j| |v_j|``, which is the Frobenius norm of the product: together a matrix of norm 1, or
    zero if one of them is zero. All of it is a function of the person's own rows and of directions
    that were released. So the sum moves by at most 1 or 2, and the slack of rounding. Event: a
    Gaussian mechanism, on a Poisson batch of persons if the budget has one.

    The rest is postprocessing. The second part gives the matrix by which the first is divided to
    give a step of least squares, since white rows have the identity as their moment.
    """
    d, k = white.shape
    batch = releases.batch(ROUNDS, persons.n_persons)

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        one = _round_of(chunk, white)
        beside = _BESIDE * one.rows[:, None] * one.heads
        both = np.concatenate([one.gradients, beside], axis=1)
        squares = products(both, both) * products(one.heads, one.heads)
        factors = unit_weights(squares, (d + k) * k)
        return (both * factors[:, None]).T @ one.heads

    value = persons.total(of_chunk, (d + k, k), batch, beside=3 * (d + k))
    total = vector_sum(value, 1.0, persons.slack())
    noise = releases.noise_of(ROUNDS, total)
    found = to_numpy(releases.gaussian(ROUNDS, total))
    gradient = _denoised(found[:d], white, _entry_noise(releases, noise, persons.n_persons, d * k))
    curvature = (found[d:] + found[d:].T) / (2 * _BESIDE)
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, _floor(values, noise * math.sqrt(2 * k) / _BESIDE))
    return _orthonormal(white + gradient @ ((vectors / values) @ vectors.T))


def check_unknowns(d: int, k: int) -> None:
    """Raise ValueError if a round by moments has too many unknowns."""
    if d * k > _MOST_UNKNOWNS:
        raise ValueError(
            f"method='moments' with {d} columns and {k} directions has {d * k} unknowns, and all"
            f" their products would be released: at most {_MOST_UNKNOWNS} are supported. Use"
            " method='gradient', or a smaller `n_components`."
        )


def moments_round(persons: PersonRows, releases: Releases, white: np.ndarray) -> np.ndarray:
    """Return the directions (d, k) after a round that releases moments of least squares.

    Privacy: person j contributes ``w_j`` times the gradient ``g_j v_j^T`` and a public multiple of
    the moment ``m_j M_j (x) v_j v_j^T``, M_j the person's mean of ``x x^T``. Here w_j is one over
    the norm of both, whose squares are ``|g_j|^2 |v_j|^2`` and that multiple of
    ``m_j^2 |M_j|^2 |v_j|^4``. So the contribution has norm 1, and the sum has the bounds of
    :func:`gradient_round`. The moment is symmetric, and packed.
    """
    d, k = white.shape
    check_unknowns(d, k)
    weight, batch = _BESIDE / math.sqrt(d), releases.batch(ROUNDS, persons.n_persons)
    size = d * k * (d * k + 1) // 2

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        one, u = _round_of(chunk, white), len(chunk.persons)
        moments = np.matmul(np.swapaxes(chunk.white, 1, 2), chunk.white).reshape(u, -1)
        moments = moments * (weight * one.rows / chunk.sizes)[:, None]
        outer = (one.heads[:, :, None] * one.heads[:, None, :]).reshape(u, -1)
        head = products(one.heads, one.heads)
        squares = products(one.gradients, one.gradients) * head
        squares = squares + products(moments, moments) * head**2
        factors = unit_weights(squares, d * d * k * k)[:, None]
        curvature = ((moments * factors).T @ outer).reshape(d, d, k, k)
        return np.concatenate(
            [
                ((one.gradients * factors).T @ one.heads).reshape(-1),
                packed(curvature.transpose(0, 2, 1, 3).reshape(d * k, d * k)),
            ]
        )

    value = persons.total(of_chunk, (d * k + size,), batch, beside=3 * d * d)
    total = vector_sum(value, 1.0, persons.slack())
    noise = releases.noise_of(ROUNDS, total)
    found = to_numpy(releases.gaussian(ROUNDS, total))
    gradient = found[: d * k].reshape(d, k)
    gradient = _denoised(gradient, white, _entry_noise(releases, noise, persons.n_persons, d * k))
    values, vectors = np.linalg.eigh(symmetric(found[d * k :]) / weight)
    values = np.maximum(values, _floor(values, noise * math.sqrt(2 * d * k) / weight))
    step = vectors @ ((vectors.T @ gradient.reshape(-1)) / values)
    return _orthonormal(white + step.reshape(d, k))


def _entry_noise(releases: Releases, noise: float, n_persons: int, entries: int) -> float:
    """Return the deviation of an entry of a noisy sum of unit matrices in random directions."""
    return math.sqrt(noise**2 + releases.budget.parts[ROUNDS].rate * n_persons / entries)


def _floor(values: np.ndarray, noise: float) -> float:
    return max(noise, 1e-3 * float(values.max()), 1e-300)


def _denoised(gradient: np.ndarray, white: np.ndarray, noise: float) -> np.ndarray:
    """Return the part of a noisy gradient across the directions, denoised.

    Singular values are shrunk as is best in Frobenius norm, and set to zero below the edge of noise
    (Gavish, Donoho, 2017): if there is only noise, directions stay unchanged.
    """
    d, k = white.shape
    across = gradient - white @ (white.T @ gradient)
    left, values, right = np.linalg.svd(across, full_matrices=False)
    squares = np.maximum(values**2 - noise**2 * (d + k), 0.0) ** 2 - 4 * noise**4 * d * k
    clear = values > _ABOVE_STEP * noise * (math.sqrt(d) + math.sqrt(k))
    shrunk = np.sqrt(np.maximum(squares, 0.0)) / np.maximum(values, 1e-300)
    return (left * np.where(clear, shrunk, 0.0)) @ right


# Distribution of heads ---------------------------------------------------------------------------


def _clipped(vectors: np.ndarray, bound: float, *, private: bool) -> np.ndarray:
    if not private:
        return vectors
    factors = bound * unit_weights(products(vectors, vectors), vectors.shape[1])
    return vectors * np.minimum(factors, 1 - 1e-12)[:, None]


def head_moments(chunk: PersonChunk, white: np.ndarray, *, private: bool) -> np.ndarray:
    """Return each person's contribution to mean and covariance of heads, and to the noise variance.

    Five vectors one after another: the outer product of the person's own head from pairs of rows,
    packed; the person's head from single rows; a multiple of the second moment that both are
    divided by; half of the mean square of the residuals; and a half for persons who have pairs.
    """
    d, k = white.shape
    root = np.zeros((d + 1, k + 1))
    root[0, 0], root[1:, 1:] = 1.0, white
    scores = chunk.scores(root)
    weighted = scores * chunk.residuals[:, :, None]
    across = np.swapaxes(weighted, 1, 2)
    sums = np.matmul(across, np.ones((weighted.shape[1], 1)))
    matrices = np.matmul(sums, np.swapaxes(sums, 1, 2)) - np.matmul(across, weighted)
    pairs = chunk.sizes * (chunk.sizes - 1)
    several = pairs > 0
    outer = packed(matrices) / np.maximum(pairs, 1.0)[:, None]
    outer[~several] = 0.0
    moments = packed(np.matmul(np.swapaxes(scores, 1, 2), scores)) / chunk.sizes[:, None]
    squares = products(chunk.residuals, chunk.residuals) / chunk.sizes / 2
    if private:
        squares = np.minimum(squares, _SQUARE_BOUND)
    return np.concatenate(
        [
            _clipped(outer, _HEAD_BOUND, private=private),
            _clipped(sums[:, :, 0] / chunk.sizes[:, None], _MEAN_BOUND, private=private),
            _clipped(moments * _moment_scale(k + 1), _MOMENT_BOUND, private=private),
            squares[:, None],
            _MEMBER * several[:, None],
        ],
        axis=1,
    )


def _moment_scale(q: int) -> float:
    """Return a factor of the second moment of q scores, so that white ones are within the bound."""
    return _MOMENT_BOUND / (2 * math.sqrt(q))


class HeadMoments(NamedTuple):
    """Mean (k + 1,) and covariance of intercepts and heads, and the variance of other noise."""

    mean: np.ndarray
    covariance: np.ndarray
    noise: float
    known: bool = True  # Whether noise left covariance and variance visible


def released_heads(persons: PersonRows, releases: Releases, white: np.ndarray) -> HeadMoments:
    """Release the mean and covariance of heads along the directions, and the noise variance.

    Privacy: a person's contribution has five parts of norms at most 1.5, 1, 1, 1 and 0.5, each a
    function of the person's own rows and of released directions, and so a norm of at most the root
    of the sum of their squares. The sum moves by that or twice that, and the slack of rounding.
    Event: one Gaussian mechanism.
    """
    q, n = white.shape[1] + 1, persons.n_persons
    size = q * (q + 1) // 2

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        every = head_moments(chunk, white, private=releases.budget.private)
        return np.ones(len(every)) @ every

    value = persons.total(of_chunk, (2 * size + q + 2,), beside=6 * q * q)
    bound = math.hypot(_HEAD_BOUND, _MEAN_BOUND, _MOMENT_BOUND, _SQUARE_BOUND, _MEMBER)
    total = vector_sum(value, bound, persons.slack() + 1e-12)
    noise = releases.noise_of(PRIOR, total) / n
    found = to_numpy(releases.gaussian(PRIOR, total)) / n
    return _head_moments_of(found, q, noise, n)


def _head_moments_of(found: np.ndarray, q: int, noise: float, n_persons: int) -> HeadMoments:
    outer, mean, moment = np.split(found[:-2], [q * (q + 1) // 2, q * (q + 1) // 2 + q])
    share = float(np.clip(found[-1] / _MEMBER, 0.2, 1.0))
    square = 2 * float(found[-2])
    known = 2 * noise <= 0.3 and square > 0.05
    if not known:
        square = _USUAL_NOISE + _USUAL_INTERCEPT
    # Heads were multiplied by the moment of the scores, which is not quite the identity.
    inverse = _inverse_moment(symmetric(moment) / _moment_scale(q), noise / _moment_scale(q))
    mean = inverse @ mean
    variance = noise**2 + 1 / n_persons
    mean = mean * (_clear_part(mean, variance) if q * variance < _HIDDEN else 0.0)
    second = inverse @ (symmetric(outer) / share) @ inverse
    if noise / share * math.sqrt(q) > _HIDDEN:
        usual = [_USUAL_INTERCEPT, *np.full(q - 1, _USUAL_SCORES / max(q - 1, 1))]
        rest = max(square - sum(usual), 0.2 * square)
        return HeadMoments(mean, np.diag(usual), rest, known=False)
    values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
    values = np.maximum(values - noise / share * math.sqrt(q / 2), 1e-3)
    covariance = (vectors * values) @ vectors.T
    rest = square - float(np.trace(covariance)) - float(mean @ mean)
    return HeadMoments(mean, covariance, max(rest, 0.2 * square, 2 * noise), known)


def _clear_part(numbers: np.ndarray, variance: float) -> float:
    """Return a factor of noisy numbers (James, Stein, 1961); 0 if they may be noise alone."""
    n, square = len(numbers), float(numbers @ numbers)
    clear = square > (n + _CLEAR * math.sqrt(2 * n)) * variance
    return max(0.0, 1 - n * variance / square) if clear else 0.0


def _inverse_moment(moment: np.ndarray, noise: float) -> np.ndarray:
    """Invert a noisy second moment that is about the identity; the identity if noise is all."""
    q = len(moment)
    apart = moment - np.eye(q)
    values, vectors = np.linalg.eigh(np.eye(q) + _clear_part(packed(apart), noise**2) * apart)
    return (vectors / np.maximum(values, _LEAST_MOMENT)) @ vectors.T


def released_comparison(persons: PersonRows, releases: Releases, prior: HeadPrior) -> HeadPrior:
    """Return the prior with each kind of head weighted by how well it does for all persons.

    Privacy: a person contributes the differences of their mean losses, a vector that is a function
    of their own rows and of released numbers, clipped to norm 1. The sum moves by at most 1 or 2,
    and the slack of rounding. Event: one Gaussian mechanism.
    """
    size = len(prior.candidates)

    def of_chunk(chunk: PersonChunk) -> np.ndarray:
        losses = prior.losses(chunk)
        if releases.budget.private:
            factors = np.minimum(unit_weights(products(losses, losses), size), 1 - 1e-12)
            losses = losses * factors[:, None]
        return np.ones(len(losses)) @ losses

    value = persons.total(of_chunk, (size,))
    total = vector_sum(value, 1.0, persons.slack() + 1e-12)
    noise = releases.noise_of(COMPARISON, total) / persons.n_persons
    found = to_numpy(releases.gaussian(COMPARISON, total)) / persons.n_persons
    return prior.compared(found, noise)
