"""Rows of many users, heads that a user fits alone, and the algorithms of two papers, in NumPy.

The model is ``y = x'U v_j + noise`` for user j, with one U (d, k) for all. A guarantee is for a
user, whatever he has of rows, and for what is broadcast (joint differential privacy): the heads
v_j stay with their users.

``fed_rep`` follows Snedeker, Zhou and Bassily (2025), and ``alternating`` follows Jain and others
(2021), as far as their texts could be read. Both differ from the papers where that helps them:
noise is that of an exact calibration of all releases together, no user is left out of a round,
rows serve in all rounds, and heads have a penalty. What they need to know (norms to clip at,
steps, rounds) is given to them from the private rows or chosen by the true error, which no user
of theirs could do: they are rivals at their best, and not methods.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from dp_accounting import get_sigma_gaussian

PENALTIES = np.logspace(-3, 4, 15)  # of a head, in units of the squared rows of its columns
MOST_PADDED = 2_000_000  # numbers in a chunk of users

# Rows of users ----------------------------------------------------------------------------------


class Padded(NamedTuple):
    """Users with rows up to a common number; rows that are not there are zero."""

    users: np.ndarray
    X: np.ndarray  # (users, rows, columns)
    y: np.ndarray
    there: np.ndarray


@dataclass(frozen=True)
class Users:
    """Rows, targets, and whose they are: numbers from 0 to `count` - 1."""

    X: np.ndarray
    y: np.ndarray
    index: np.ndarray
    count: int

    @cached_property
    def sizes(self) -> np.ndarray:
        """Rows of each user."""
        return np.bincount(self.index, minlength=self.count)

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows user by user, and where each user begins."""
        return np.argsort(self.index, kind="stable"), np.cumsum(self.sizes) - self.sizes

    def padded(self) -> Iterator[Padded]:
        """All users with rows, in chunks of those that have about as many."""
        order, starts = self._order
        users = np.argsort(self.sizes, kind="stable")
        users = users[self.sizes[users] > 0]
        while len(users):
            first = int(self.sizes[users[0]])
            width = self.X.shape[1]
            number = max(1, MOST_PADDED // (2 * first * width))
            number = int(np.sum(self.sizes[users[:number]] <= 2 * first)) or 1
            some, users = users[:number], users[number:]
            sizes = self.sizes[some]
            place = np.arange(sizes.max())
            there = place < sizes[:, None]
            rows = order[np.minimum(starts[some][:, None] + place, len(order) - 1)]
            yield Padded(some, self.X[rows] * there[..., None], self.y[rows] * there, there)

    def some(self, rows: np.ndarray) -> "Users":
        """The same users with the rows of a mask."""
        return Users(self.X[rows], self.y[rows], self.index[rows], self.count)

    def halves(self) -> tuple["Users", "Users"]:
        """Every user's rows in two parts, in turn."""
        order, starts = self._order
        rank = np.empty(len(order), dtype=int)
        rank[order] = np.arange(len(order)) - np.repeat(starts, self.sizes)
        return self.some(rank % 2 == 0), self.some(rank % 2 == 1)

    def summed(self, rows: np.ndarray) -> np.ndarray:
        """Sums of the rows of each user."""
        order, starts = self._order
        found = np.zeros((self.count, rows.shape[1]))
        has = self.sizes > 0
        found[has] = np.add.reduceat(rows[order], starts[has], axis=0)
        return found


def in_fact(users: Users, heads: np.ndarray) -> np.ndarray:
    """Predictions for rows by a vector a user."""
    return np.einsum("ij,ij->i", users.X, heads[users.index])


# Heads ------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """Weights and constant of each user, and mean squared errors on rows left out in turn."""

    weights: np.ndarray
    constant: np.ndarray
    errors: np.ndarray


def heads(users: Users, directions: np.ndarray | None = None, *, constant: bool = False) -> Heads:
    """Ridge regression of every user in the span of `directions` (all columns).

    Each user's penalty is the one of least error on his own rows left out in turn, in closed form.
    """
    width = users.X.shape[1] if directions is None else directions.shape[1]
    weights, free = np.zeros((users.count, width)), np.zeros(users.count)
    errors = np.full(users.count, np.inf)
    for some in users.padded():
        Z = some.X if directions is None else some.X @ directions
        found = _ridge(Z, some.y, some.there, constant)
        weights[some.users], free[some.users], errors[some.users] = found
    return Heads(weights if directions is None else weights @ directions.T, free, errors)


def _ridge(Z, y, there, constant):
    """Weights, constants and errors of one chunk of users."""
    number = np.maximum(there.sum(axis=1), 1)
    at, middle = np.zeros((len(Z), Z.shape[2])), np.zeros(len(Z))
    if constant:
        at, middle = Z.sum(axis=1) / number[:, None], y.sum(axis=1) / number
        Z, y = (Z - at[:, None]) * there[..., None], (y - middle[:, None]) * there
    left, values, right = np.linalg.svd(Z, full_matrices=False)
    moments = np.einsum("jir,ji->jr", left, y)
    unit = np.maximum(np.mean(values**2, axis=1), 1e-12)
    best, chosen = np.full(len(Z), np.inf), np.zeros((len(Z), Z.shape[2]))
    for penalty in PENALTIES:
        kept = values**2 / (values**2 + penalty * unit[:, None])
        own = np.einsum("jir,jr->ji", left**2, kept) + constant / number[:, None]
        residuals = y - np.einsum("jir,jr->ji", left, kept * moments)
        out = there * residuals / np.maximum(1 - own, 1e-3)
        error = np.sum(out**2, axis=1) / number
        weights = np.einsum("jr,jrc->jc", kept * moments / np.maximum(values, 1e-12), right)
        better = error < best
        best[better], chosen[better] = error[better], weights[better]
    return chosen, middle - np.einsum("jc,jc->j", at, chosen), best


def least_squares(users: Users, directions: np.ndarray) -> np.ndarray:
    """Heads (users, k) of least squares with a small fixed penalty, for rounds of algorithms."""
    k = directions.shape[1]
    found = np.zeros((users.count, k))
    for some in users.padded():
        Z = some.X @ directions
        gram = np.einsum("jia,jib->jab", Z, Z) + 0.5 * np.eye(k)
        found[some.users] = np.linalg.solve(gram, np.einsum("jia,ji->ja", Z, some.y)[..., None])[
            ..., 0
        ]
    return found


# Without privacy --------------------------------------------------------------------------------


def pairs(users: Users) -> np.ndarray:
    """Sums of x y of each user, of which the pair statistic is made."""
    return users.summed(users.X * users.y[:, None])


def without_privacy(users: Users, k: int, rounds: int = 10) -> np.ndarray:
    """Directions by alternating least squares from the pair statistic, each user weighing alike."""
    directions = first_directions(users, k, clip=np.inf, noise=0, rng=None)
    for _ in range(rounds):
        found = least_squares(users, directions)
        gram, moments = _statistics(users, found, np.ones(users.count))
        gram += 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
        directions = np.linalg.solve(gram, moments).reshape(-1, k)
        directions = np.linalg.qr(directions)[0]
    return directions


def _statistics(users: Users, found: np.ndarray, weights: np.ndarray):
    """Sums over users of the mean of (x, v)(x, v)' and of y (x, v), times `weights`."""
    d, k = users.X.shape[1], found.shape[1]
    gram, moments = np.zeros((d * k, d * k)), np.zeros(d * k)
    root = np.sqrt(weights / np.maximum(users.sizes, 1))
    step = max(1, MOST_PADDED // (d * k))
    for start in range(0, len(users.y), step):
        of = users.index[start : start + step]
        scaled = found[of] * root[of][:, None]
        rows = (users.X[start : start + step, :, None] * scaled[:, None, :]).reshape(len(of), -1)
        gram += rows.T @ rows
        moments += rows.T @ (users.y[start : start + step] * root[of])
    return gram, moments


class Mixed(NamedTuple):
    """Random coefficients: their mean and covariance over users, and the variance of noise."""

    mean: np.ndarray
    covariance: np.ndarray
    variance: float

    def coefficients(self, users: Users) -> np.ndarray:
        """Posterior means of the users' coefficients."""
        grams, moments = _products(users)
        inner = np.linalg.inv(self.covariance)
        right = moments / self.variance + inner @ self.mean
        return np.linalg.solve(grams / self.variance + inner, right[..., None])[..., 0]


def mixed_model(users: Users, rounds: int = 100) -> Mixed:
    """Random coefficients of all columns by expectation and maximisation, without privacy."""
    grams, moments = _products(users)
    width, number = users.X.shape[1], len(users.y)
    mean = np.linalg.solve(grams.sum(axis=0) + 1e-6 * np.eye(width), moments.sum(axis=0))
    variance = float(np.mean((users.y - users.X @ mean) ** 2))
    covariance = 0.1 * variance * np.eye(width)
    for _ in range(rounds):
        inner = np.linalg.inv(covariance)
        spread = np.linalg.inv(grams / variance + inner)
        own = np.einsum("jab,jb->ja", spread, moments / variance + inner @ mean)
        mean = own.mean(axis=0)
        apart = own - mean
        covariance = spread.mean(axis=0) + apart.T @ apart / users.count
        covariance += 1e-8 * variance * np.eye(width)
        left = np.sum((users.y - in_fact(users, own)) ** 2) + np.sum(grams * spread)
        variance = float(left / number)
    return Mixed(mean, covariance, variance)


def _products(users: Users) -> tuple[np.ndarray, np.ndarray]:
    """X'X and X'y of every user."""
    width = users.X.shape[1]
    grams, moments = np.zeros((users.count, width, width)), np.zeros((users.count, width))
    for some in users.padded():
        grams[some.users] = np.einsum("jia,jib->jab", some.X, some.X)
        moments[some.users] = np.einsum("jia,ji->ja", some.X, some.y)
    return grams, moments


# The algorithms of the papers -------------------------------------------------------------------


class Constants(NamedTuple):
    """What an algorithm is told: rounds, quantile of norms to clip at, step, share of the start."""

    rounds: int
    level: float
    step: float = 1.0
    share: float = 0.5


def symmetric(size: int, rng) -> np.ndarray:
    """Noise of a symmetric matrix, for a bound in the Frobenius norm."""
    upper = np.triu(rng.normal(size=(size, size)), 1) / np.sqrt(2)
    return upper + upper.T + np.diag(rng.normal(size=size))


def first_directions(users: Users, k: int, clip: float, noise: float, rng) -> np.ndarray:
    """Leading directions of the clipped and noisy pair statistic of all users."""
    sums, number = pairs(users), np.maximum(users.sizes * (users.sizes - 1), 1)
    squares = users.y**2 * np.einsum("ij,ij->i", users.X, users.X)
    norms = _pair_norms(users, sums, squares)
    weights = np.minimum(1, clip / np.maximum(norms / number, 1e-12)) / number
    total = (sums * weights[:, None]).T @ sums
    scaled = users.X * (users.y * np.sqrt(weights[users.index]))[:, None]
    total -= scaled.T @ scaled
    if noise:
        total += noise * clip * symmetric(len(total), rng)
    values, vectors = np.linalg.eigh(total)
    return vectors[:, np.argsort(values)[::-1][:k]]


def _pair_norms(users: Users, sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Frobenius norms of ``s s' - sum x x' y^2`` of each user."""
    norms = np.sum(sums**2, axis=1) ** 2
    rows = users.X * users.y[:, None]
    norms -= 2 * np.bincount(
        users.index, np.einsum("ij,ij->i", rows, sums[users.index]) ** 2, users.count
    )
    for some in Users(rows, squares, users.index, users.count).padded():
        products = np.einsum("jia,jla->jil", some.X, some.X)
        norms[some.users] += np.sum(products**2, axis=(1, 2))
    return np.sqrt(np.maximum(norms, 0))


def start(users: Users, k: int, epsilon: float, delta: float, told: Constants, rng) -> np.ndarray:
    """Private first directions, with a share of the squared budget, clipped at the told level."""
    number = np.maximum(users.sizes * (users.sizes - 1), 1)
    squares = users.y**2 * np.einsum("ij,ij->i", users.X, users.X)
    clip = np.quantile(_pair_norms(users, pairs(users), squares) / number, told.level)
    noise = multiplier(epsilon, delta) / np.sqrt(told.share)
    return first_directions(users, k, float(clip), noise, rng)


def multiplier(epsilon: float, delta: float) -> float:
    """Noise of one Gaussian release in units of its bound; none where epsilon is infinite."""
    return 0.0 if np.isinf(epsilon) else get_sigma_gaussian(epsilon, delta)


def fed_rep(users: Users, first: np.ndarray, epsilon, delta, told: Constants, rng) -> np.ndarray:
    """Rounds of clipped gradients for the directions, heads being fitted on other rows."""
    one, two = users.halves()
    directions, k = first, first.shape[1]
    noise = multiplier(epsilon, delta) * np.sqrt(told.rounds / (1 - told.share))
    for _ in range(told.rounds):
        found = least_squares(one, directions)
        residuals = in_fact(two, found @ directions.T) - two.y
        gradients = two.summed(two.X * residuals[:, None]) / np.maximum(two.sizes, 1)[:, None]
        norms = np.linalg.norm(gradients, axis=1) * np.linalg.norm(found, axis=1)
        clip = np.quantile(norms, told.level)
        gradients *= np.minimum(1, clip / np.maximum(norms, 1e-12))[:, None]
        total = gradients.T @ found + noise * clip * rng.normal(size=directions.shape)
        step = told.step * k  # heads of norm 1 in k directions have second moments 1 / k
        directions = np.linalg.qr(directions - step * total / users.count)[0]
    return directions


def alternating(
    users: Users, first: np.ndarray, epsilon, delta, told: Constants, rng
) -> np.ndarray:
    """Rounds of clipped second moments and moments of (x, v), which are solved for directions."""
    one, two = users.halves()
    directions, k = first, first.shape[1]
    noise = multiplier(epsilon, delta) * np.sqrt(2 * told.rounds / (1 - told.share))
    for _ in range(told.rounds):
        found = least_squares(one, directions)
        norms = _statistic_norms(two, found)
        clips = np.maximum(np.quantile(norms, told.level, axis=1), 1e-12)
        weights = np.min(np.minimum(1, clips[:, None] / np.maximum(norms, 1e-12)), axis=0)
        gram, moments = _statistics(two, found, weights)
        size = len(gram)
        gram += noise * clips[0] * symmetric(size, rng)
        moments += noise * clips[1] * rng.normal(size=size)
        gram += told.step * (noise * clips[0] * np.sqrt(2 * size) + 1e-6) * np.eye(size)
        directions = np.linalg.qr(np.linalg.solve(gram, moments).reshape(-1, k))[0]
    return directions


def _statistic_norms(users: Users, found: np.ndarray) -> np.ndarray:
    """Frobenius norms of each user's mean of (x, v)(x, v)', and norms of that of y (x, v)."""
    number = np.maximum(users.sizes, 1)
    norms, seconds = np.linalg.norm(found, axis=1), np.zeros(users.count)
    for some in users.padded():
        products = np.einsum("jia,jla->jil", some.X, some.X)
        seconds[some.users] = np.sqrt(np.sum(products**2, axis=(1, 2)))
    moments = np.linalg.norm(users.summed(users.X * users.y[:, None]), axis=1)
    return np.stack([seconds / number * norms**2, moments / number * norms])
