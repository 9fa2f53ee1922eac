"""Subspaces that gradients are embedded on, and the one that public rows span."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dpsubspace._array import EPS, Array, as_like, namespace
from dpsubspace._gradients.clipping import PerExampleGradients
from dpsubspace._gradients.dense import DenseGradients
from dpsubspace._gradients.linear import OuterGradients
from dpsubspace._public.anchors import DenseEmbedded, OuterEmbedded

__all__ = ["FeatureSubspace", "Subspace"]


class Embedded(Protocol):
    """Coordinates of gradients in a subspace."""

    def squares(self) -> Array:
        """Squared norm of each, (k,), as exact as float64 has it."""
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of `weights` times coordinates, flat, in float64. Weight zero adds zero."""
        ...


class Subspace(Protocol):
    """Orthonormal directions in the space of gradients, made of public data."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a gradient."""
        ...

    @property
    def n_components(self) -> int:
        """Number of directions."""
        ...

    @property
    def margin(self) -> float:
        """What rounding can hide of the energy of a gradient outside, as a share of it all."""
        ...

    @property
    def rounding(self) -> float:
        """What rounding can do to coordinates, or to a lift, in units of the vector's norm."""
        ...

    def embed(self, grads: PerExampleGradients) -> Embedded:
        """Coordinates of gradients."""
        ...

    def lift(self, coordinates: Array) -> Array:
        """Gradient with given coordinates, flat as they come."""
        ...

    def coordinates(self, gradient: Array) -> Array:
        """Coordinates of one gradient, flat."""
        ...


# Directions of features, the same for every column of scores --------------------------------


@dataclass(frozen=True)
class FeatureSubspace:
    """All gradients of a linear model by features in the span of some directions.

    That span has ``q c`` dimensions for q directions and c columns of scores. It does not
    depend on the parameters, and a gradient's part in it is an outer product as well.

    Parameters
    ----------
    basis : array of shape (q, width)
        Orthonormal directions of features, in float64.
    n_outputs : int
        Columns of scores.
    """

    basis: Array
    n_outputs: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(width, c)."""
        return (self.basis.shape[1], self.n_outputs)

    @property
    def n_components(self) -> int:
        """Q c."""
        return self.basis.shape[0] * self.n_outputs

    @property
    def margin(self) -> float:
        """Rounding of coordinates, and how far the basis is from orthonormal."""
        return 1.01 * (self._off + 4 * self.rounding)

    @cached_property
    def _off(self) -> float:  # every chunk asks, and the product is as large as those of a chunk
        """Distance of the basis from an orthonormal one."""
        off = self.basis @ self.basis.T
        off = off - as_like(np.eye(off.shape[0]), off)
        return math.sqrt(float(namespace(off).sum(off * off)))

    @property
    def rounding(self) -> float:
        """Products of a row with the basis, in float64."""
        q, width = self.basis.shape
        return (width + q + 16) * EPS * math.sqrt(max(q, 1))

    def embed(self, grads: Any) -> OuterEmbedded | DenseEmbedded:
        """Coordinates ``(V phi) r'``, kept as their factors where gradients are."""
        if isinstance(grads, DenseGradients):
            xp, (m, width, c) = namespace(grads.rows), grads.shape
            found = self.basis @ xp.reshape(grads.rows, (m, width, c))  # one product a gradient
            return DenseEmbedded(xp.reshape(found, (m, -1)))
        assert isinstance(grads, OuterGradients) and grads.products is not None
        return OuterEmbedded(grads.products, grads.residuals)

    def lift(self, coordinates: Array) -> Array:
        """``V' U``."""
        shape = (self.basis.shape[0], self.n_outputs)
        return self.basis.T @ namespace(coordinates).reshape(coordinates, shape)

    def coordinates(self, gradient: Array) -> Array:
        """``V G``."""
        return namespace(gradient).reshape(self.basis @ gradient, (-1,))
