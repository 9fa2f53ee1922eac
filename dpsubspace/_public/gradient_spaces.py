"""Spaces that gradients are seen in: coordinates of unit gradients, and of directions of a set.

A space is made of public rows alone. What it is asked about private rows are coordinates of each
of them, which are a function of that row and of public numbers.

Of a linear model with softmax or any other loss, the gradient by the weights is ``x r^T``, with r
the residual of the scores. Averaged over labels drawn at random, the second moment of such
gradients at zero weights is that of the rows times that of the labels: directions of gradients are
directions of features, each once for every contrast of labels. The share of the energy of a
gradient along directions U of features is ``|U x|^2 / |x|^2`` at any weights and for any label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from scipy import sparse

from dpsubspace._array import sampled, slices
from dpsubspace._gradients.layers import ModuleGradients
from dpsubspace._public.gram import leading_weights, orthonormal, unit_rows
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import RowMap

__all__ = [
    "COMPONENTS",
    "WIDEST",
    "FeatureSpace",
    "GradientSpace",
    "ModuleSpace",
    "few",
    "random_labels",
]

# Directions of gradients that are compared where nothing else is asked for, as in the paper.
COMPONENTS = 16

# Most directions of a public span. Noise of a second moment grows with their square root.
WIDEST = 200

# Rows of each public set whose gradients by a module span the space: a gradient costs a pass
# through the module for every block of others.
_ANCHORS = 256

# Rows that go through a module between two looks at their products with the anchors.
_ROWS = 4096


class GradientSpace(Protocol):
    """Directions that unit gradients have coordinates along: their inner products with them."""

    @property
    def width(self) -> int:
        """Number of directions."""
        ...

    def spanned(self, sets: Sequence[np.ndarray], count: int) -> tuple[Self, list[int]]:
        """The leading directions of each public set, one set after the other; how many of each."""
        ...

    def joined(self) -> Self:
        """Orthonormal directions of the same span, at most `WIDEST` of them."""
        ...

    def embedded(self, X: Any) -> Any:
        """Coordinates of the gradients of checked rows, each divided by its norm, (n, width)."""
        ...

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Coordinates (k, width) of the leading directions of gradients of public rows."""
        ...

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        """Share of each row's energy along directions (k, width), over all labels, (n, k)."""
        ...

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        """Directions (k, width) as those of features, where gradients have any."""
        ...


# Linear models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureSpace:
    """Gradients of a linear model, in coordinates of features.

    Parameters
    ----------
    n_features : int
        Columns of the rows.
    axes : ndarray of shape (q, n_features) or None
        Directions of features, of length 1; None is all of the space.
    """

    n_features: int
    axes: np.ndarray | None = None

    @property
    def width(self) -> int:
        """Number of directions."""
        return self.n_features if self.axes is None else len(self.axes)

    def spanned(
        self, sets: Sequence[np.ndarray], count: int, *, centered: bool = False
    ) -> tuple[FeatureSpace, list[int]]:
        """The leading directions of each public set, one set after the other; how many of each.

        About zero, or about the mean of the unit rows of a set.
        """
        found = [_leading_features(rows, count, centered=centered) for rows in sets]
        return FeatureSpace(self.n_features, np.concatenate(found)), [*map(len, found)]

    def joined(self) -> FeatureSpace:
        """Orthonormal directions of the same span, at most `WIDEST` of them."""
        if self.axes is None:
            return self
        weights = orthonormal(self.axes @ self.axes.T, WIDEST)
        return FeatureSpace(self.n_features, weights @ self.axes)

    def embedded(self, X: Any) -> Any:
        """Coordinates of unit rows; all of the space takes rows as they come."""
        return X if self.axes is None else _coordinates(X, self.axes)

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Leading directions of unit rows: shorter than 1 where they are partly outside."""
        found = _leading_features(rows, count)
        return found if self.axes is None else found @ self.axes.T

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        """Squared coordinates of unit rows: a label makes no difference."""
        return _coordinates(X, self.in_features(directions)) ** 2

    def apart(self, X: Any, others: Any) -> np.ndarray:
        """Coordinates of differences of unit rows, over their lengths; zero where these are."""
        assert self.axes is not None
        first, second = (
            unit_rows(rows.toarray() if sparse.issparse(rows) else rows) for rows in (X, others)
        )
        return unit_rows(first - second) @ self.axes.T

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        """Directions (k, width) as those of features, (k, n_features)."""
        return directions if self.axes is None else directions @ self.axes


def _coordinates(X: Any, axes: np.ndarray) -> np.ndarray:
    """Coordinates of unit rows along axes (k, n_features), (n, k); zero for a row of zeros."""
    features = Features(X, RowMap(norm="l2"))
    return features.inner(slice(0, features.n_samples), axes)


def _leading_features(rows: np.ndarray, count: int, *, centered: bool = False) -> np.ndarray:
    """Leading directions (k, d) of unit rows about zero: fewer where they span fewer."""
    unit = unit_rows(rows)
    if centered:
        unit = unit - unit.mean(axis=0)
    if len(unit) > unit.shape[1]:
        weights = leading_weights(unit.T @ unit, count)
        return weights / np.linalg.norm(weights, axis=1, keepdims=True)
    return leading_weights(unit @ unit.T, count) @ unit


# Modules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleSpace:
    """Gradients of a module at its weights, in coordinates of directions of public gradients.

    Labels are drawn at random, alike for all classes, as those of the paper are.

    Parameters
    ----------
    gradients : ModuleGradients
        Of the anchors, the public rows that directions are made of; no rows at first.
    n_classes : int
        Labels to draw from.
    seed : int
        Of the labels; public.
    weights : ndarray of shape (q, m)
        Directions, as weights of the gradients of m anchors; none at first.
    """

    gradients: ModuleGradients
    n_classes: int
    seed: int
    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def width(self) -> int:
        """Number of directions."""
        return len(self.weights)

    def spanned(self, sets: Sequence[np.ndarray], count: int) -> tuple[ModuleSpace, list[int]]:
        """The leading directions of each public set, one set after the other; how many of each."""
        own = [_some(rows) for rows in sets]
        found = [leading_weights(self._of(rows).gram(), count) for rows in own]
        weights = np.zeros((sum(map(len, found)), sum(map(len, own))))
        start, column = 0, 0
        for part in found:
            weights[start : start + len(part), column : column + part.shape[1]] = part
            start, column = start + len(part), column + part.shape[1]
        labels = np.concatenate([self._labels(len(rows)) for rows in own])
        anchors = self.gradients.beside(np.concatenate(own), labels)
        return replace(self, gradients=anchors, weights=weights), [*map(len, found)]

    def joined(self) -> ModuleSpace:
        """Orthonormal directions of the same span, at most `WIDEST` of them."""
        gram = self.weights @ self.gradients.gram() @ self.weights.T
        return replace(self, weights=orthonormal(gram, WIDEST) @ self.weights)

    def embedded(self, X: Any) -> np.ndarray:
        """Coordinates of unit gradients at random labels; zero where a gradient is."""
        labels, found = self._labels(X.shape[0]), np.zeros((X.shape[0], self.width))
        for rows in slices(X.shape[0], _ROWS):
            of_rows = self.gradients.beside(X[rows], labels[rows])
            norms = np.sqrt(of_rows.squares())[:, None]
            products = of_rows.inner(self.gradients) @ self.weights.T
            np.divide(products, norms, out=found[rows], where=norms > 0)
        return found

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Leading directions: shorter than 1 where they are partly outside."""
        of_rows = self._of(_some(rows))
        found = leading_weights(of_rows.gram(), count)
        return found @ of_rows.inner(self.gradients) @ self.weights.T

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        """Energy along directions over all energy, each added up over all labels."""
        found, c = np.zeros((X.shape[0], len(directions))), self.n_classes
        weights = (directions @ self.weights).T
        for rows in slices(X.shape[0], max(1, _ROWS // c)):
            some = X[rows]
            labels = np.tile(np.arange(c), len(some))
            of_rows = self.gradients.beside(np.repeat(some, c, axis=0), labels)
            along = (of_rows.inner(self.gradients) @ weights) ** 2
            along = along.reshape(len(some), c, -1).sum(axis=1)
            whole = of_rows.squares().reshape(len(some), c).sum(axis=1)[:, None]
            np.divide(along, whole, out=found[rows], where=whole > 0)
        return found

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        """Directions as they are: those of a module are of no features."""
        return directions

    def _of(self, rows: np.ndarray) -> ModuleGradients:
        return self.gradients.beside(rows, self._labels(len(rows)))

    def _labels(self, n: int) -> np.ndarray:
        return random_labels(self.seed, self.n_classes, n)


def few(most: int, n_features: int) -> int:
    """Directions of features to compare: `most`, or half of few columns, as all say nothing."""
    return min(most, max(1, n_features // 2))


def random_labels(seed: int, n_classes: int, n: int) -> np.ndarray:
    """Index of a class for each of `n` rows, all classes alike."""
    return np.random.default_rng(seed).integers(n_classes, size=n)


def _some(rows: np.ndarray) -> np.ndarray:
    """Public rows to take gradients of: all, or a random sample, always the same."""
    return rows[sampled(len(rows), _ANCHORS, np.random.default_rng(0))]
