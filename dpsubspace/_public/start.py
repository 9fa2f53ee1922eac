"""Weights to start from that public rows give, and what tells whether they are of use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import optimize

from dpsubspace import _auto
from dpsubspace._array import Array, as_like, namespace
from dpsubspace._gradients.clipping import GradientSource
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Loss
from dpsubspace._rows.chunks import over_chunks

__all__ = [
    "LABELS",
    "VALUES",
    "Labelled",
    "Targets",
    "beside_each_other",
    "correct",
    "energy_outside",
    "mean_gradient",
    "nothing",
]


# What targets are -----------------------------------------------------------------------------


class Targets(Protocol):
    """What a use of public rows has to know of targets: whether they are labels or values."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        """Whether scores are right about targets, record by record, given those of public rows."""
        ...

    def chance(self, targets: np.ndarray) -> float:
        """Share of public rows that a constant gets right."""
        ...

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        """Random targets of public rows, as the loss takes them."""
        ...


@dataclass(frozen=True)
class _Labels:
    """Indices of classes: scores are right where the largest is that of the label."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        """Whether the most probable class is the label."""

        def right(scores: Array, y: Array) -> Array:
            if scores.shape[1] == 1:
                return (scores[:, 0] > 0) == (y == 1)
            return namespace(scores).argmax(scores, axis=1) == y

        return right

    def chance(self, targets: np.ndarray) -> float:
        """Share of the most frequent label."""
        return float(np.bincount(targets).max() / len(targets))

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        """Draw all classes alike."""
        return rng.integers(max(2, n_outputs), size=n)


@dataclass(frozen=True)
class _Values:
    """Scaled values: scores are right where they are nearer than the mean of public targets."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        """Whether scores are nearer to the targets than the public mean is."""
        mean = targets.mean(axis=0)

        def right(scores: Array, y: Array) -> Array:
            xp, constant = namespace(scores), as_like(mean, y)
            return xp.sum((scores - y) ** 2, axis=1) < xp.sum((constant - y) ** 2, axis=1)

        return right

    def chance(self, targets: np.ndarray) -> float:
        """Half, as if it were a coin."""
        return 0.5

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        """Draw from the scaled range."""
        return rng.uniform(-1, 1, size=(n, n_outputs))


LABELS, VALUES = _Labels(), _Values()


# Weights to start from ------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelled:
    """Labelled public rows, to fit a linear model to without privacy.

    Parameters
    ----------
    loss : Loss
        Loss of the scores.
    formed : ndarray of shape (m, width)
        Features.
    targets : ndarray of shape (m,) or (m, c)
        Targets as the loss takes them.
    n_outputs : int
        Columns of scores.
    """

    loss: Loss
    formed: np.ndarray
    targets: np.ndarray
    n_outputs: int

    def fitted(self) -> np.ndarray:
        """Weights (width, c) of least loss, lightly penalised."""
        rows, directions = self._turned
        return directions.T @ self._minimum(rows, self.targets)

    def held_out(self, is_right: Callable[[Array, Array], Array], n_folds: int = 5) -> float:
        """Share of the rows that fits to the others get right."""
        rows, fold, hits = self._turned[0], np.arange(len(self.formed)) % n_folds, 0.0
        for out in (fold == i for i in range(n_folds)):
            if 0 < out.sum() < len(out):
                weights = self._minimum(rows[~out], self.targets[~out])
                hits += float(np.sum(is_right(rows[out] @ weights, self.targets[out])))
        return hits / len(rows)

    @cached_property
    def _turned(self) -> tuple[np.ndarray, np.ndarray]:
        """Features in coordinates on their own directions, and these: no more than rows."""
        left, values, directions = np.linalg.svd(self.formed, full_matrices=False)
        return left * values, directions

    def _minimum(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Weights of least penalised loss, close enough."""
        alpha, shape = 1 / (_auto.PUBLIC_FIT * len(rows)), (rows.shape[1], self.n_outputs)

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            weights = flat.reshape(shape)
            scores = rows @ weights
            value = np.mean(self.loss.value(targets, scores)) + alpha / 2 * (flat @ flat)
            gradient = rows.T @ self.loss.residual(targets, scores) / len(rows) + alpha * weights
            return float(value), gradient.ravel()

        options = {"maxiter": 200}
        start = np.zeros(math.prod(shape))
        found = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(shape)


def energy_outside(source: LinearSource) -> Array:
    """Energy of each record of `source` off the directions it was given, (n,).

    In units of the bound on rows; shifted ones may have more than 1.
    """
    features, xp = source.features, namespace(source.features.lengths)
    whole = features.distances() / features.bound

    def part(rows: Any) -> Array:
        products = source.products(rows)
        assert products is not None, "a source that knows the directions"
        inside = products / features.bound
        return whole[rows] ** 2 - xp.vecdot(inside, inside)

    with over_chunks(source) as each:
        return xp.concat(list(each(part)))


def nothing(source: LinearSource) -> Array:
    """0 for each record of `source`, (n,)."""
    return namespace(source.features.lengths).zeros_like(source.features.lengths)


def beside_each_other(*columns: Array) -> Array:
    """Columns of shape (n,) as one array (n, k)."""
    return namespace(columns[0]).stack(columns, axis=1)


def correct(source: LinearSource, weights: Array, right: Callable[[Array, Array], Array]) -> Array:
    """1.0 for each record of `source` that `weights` get right, else 0.0, (n,)."""
    xp = namespace(source.features.lengths)

    def part(rows: Any) -> Array:
        return right(source.features.at(rows).scores(weights), source.y[rows])

    with over_chunks(source) as each:
        return xp.astype(xp.concat(list(each(part))), xp.float64)


def mean_gradient(public: GradientSource, params: Array) -> Array:
    """Mean gradient of labelled public rows."""

    def part(rows: Any) -> Array:
        grads = public.at(params, rows)
        norms = grads.norms()
        xp = namespace(norms)
        weights = xp.where(xp.isfinite(norms), xp.ones_like(norms), xp.zeros_like(norms))
        return grads.weighted_sum(weights)

    with over_chunks(public) as each:
        return sum(each(part)) / public.n_samples
