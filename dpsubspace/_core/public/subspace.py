"""Subspaces for gradient embeddings, the subspace that public rows span, and angles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh, get_blas_funcs, svd, svdvals
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from sklearn.utils.validation import check_array

from dpsubspace._core.gradients.clipping import DenseGradients, PerExampleGradients
from dpsubspace._core.gradients.linear import OuterGradients
from dpsubspace._core.ground.arrays import EPS, Array, as_like, namespace, to_numpy
from dpsubspace._core.public.anchors import DenseEmbedded, OuterEmbedded, by_products, signed
from dpsubspace._core.rows.features import Features

# Inner products ---------------------------------------------------------------------------------
# Leading directions of gradients and the angles between them, from inner products alone.
#
# Directions are stored as weights of the gradients that they are made of: with K the inner products
# of some gradients and u an eigenvector of K with eigenvalue l, the weights ``u / sqrt(l)`` give a
# unit vector, and two of different eigenvectors are orthogonal. The overlap of two sets of
# directions then follows from inner products of gradients of both sets, and no gradient is formed.

# Directions with less than this share of the energy of the strongest are rounding errors, and rows
# that are this near to the span of others, relative to the longest, add no direction to it.
_FAINT = 1e-10

# Up to this many gradients all eigenvectors are computed; for more, the leading ones by Lanczos
# iteration, which needs some products with K.
_ALL = 400


def leading_weights(gram: np.ndarray, count: int) -> np.ndarray:
    """Weights (k, m) of the leading directions of gradients with inner products (m, m)."""
    m = len(gram)
    count = min(count, m)
    values = vectors = None
    if m > _ALL and 4 * count < m:
        try:
            # The same start every time: the result must not be random.
            start = np.random.default_rng(0).standard_normal(m)
            values, vectors = eigsh(_symmetric(gram), k=count, v0=start, tol=0)
        except ArpackError:  # no convergence
            pass
    if values is None or vectors is None:
        values, vectors = eigh(gram, subset_by_index=(m - count, m - 1))
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    clear = values > _FAINT * max(float(values[0]), 1e-300)
    return vectors[:, clear].T / np.sqrt(values[clear])[:, None]


def _symmetric(matrix: np.ndarray) -> LinearOperator:
    """Products with a matrix, limited by the time to read it: only half of it is read."""
    (symv,) = get_blas_funcs(("symv",), (matrix,))
    matrix = np.asfortranarray(matrix.T)  # no copy where rows are contiguous
    product: dict[str, Any] = {"matvec": lambda x: symv(1.0, matrix, x), "dtype": matrix.dtype}
    return LinearOperator(matrix.shape, **product)


def orthonormal(gram: np.ndarray, most: int) -> np.ndarray:
    """Weights (q, k) of orthonormal directions in the span of k others, at most `most`.

    By the inner products (k, k) of the directions. Directions that many of them share come first.
    """
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    # A direction that two sets share remains once, and does not come again as rounding error.
    clear = values > 1e-8 * values[0]
    return vectors[:, clear].T / np.sqrt(values[clear])[:, None]


def cosines(products: np.ndarray) -> np.ndarray:
    return np.clip(np.linalg.svd(products, compute_uv=False), 0.0, 1.0)


def share_apart(cosines: np.ndarray, count: int) -> float:
    """Root mean square of the sines of `count` principal angles: 0 if equal, 1 if orthogonal."""
    return math.sqrt(max(0.0, 1 - float(np.sum(cosines**2)) / count))


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows over their norms, in float64; rows of zeros stay. Without overflow."""
    rows = np.asarray(rows, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(norms > 0, norms, 1.0)


# Angles -----------------------------------------------------------------------------------------
# Angles between subspaces of features.


def principal_angles(A: Any, B: Any) -> np.ndarray:
    """All of the angles, the largest first: a deprecated name, which goes in version 0.3."""
    larger, smaller = sorted(_bases(A, B), key=lambda basis: -basis.shape[1])
    # Sines have the digits of small angles, and cosines those of large angles.
    products = larger.T @ smaller
    sines = svdvals(smaller - larger @ products)
    return np.arctan2(sines, svdvals(products)[::-1])


def subspace_distance(A: Any, B: Any) -> float:
    """Sine of the largest principal angle between the spans of two sets of components.

    This is the error by which theorems on regression in a learnt subspace go: the largest part
    of a unit vector of the one span that lies outside of the other.

    Parameters
    ----------
    A : array-like of shape (n_components, n_features) or fitted estimator
        Components in rows, which need neither be orthogonal nor of one length; or an
        estimator with ``components_``, such as :class:`DPPCA` or scikit-learn's ``PCA``.
    B : array-like of shape (n_other_components, n_features) or fitted estimator
        The other ones, of the same features in the same units.

    Returns
    -------
    float
        From 0, where one span contains the other, to 1, where a direction of the smaller one is
        orthogonal to all of the larger one.

    Raises
    ------
    ValueError
        If components cannot be used, or are of different numbers of features.

    See Also
    --------
    scipy.linalg.subspace_angles : All of the angles, of transposed components.
    gradient_subspace_distance : By all angles between subspaces of gradients.

    Notes
    -----
    For orthonormal bases in columns it is the spectral norm of ``B - A A' B``, with B the smaller
    span, and it is computed from that residual, which keeps the digits of small distances.
    Among spans of as many dimensions it is a metric, and equals the spectral norm of the
    difference of the two orthogonal projections. Like the angles it changes with the units of the
    features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from dpsubspace.public_data import subspace_distance
    >>> X, _ = load_digits(return_X_y=True)
    >>> half, other = (PCA(3).fit(part) for part in (X[::2], X[1::2]))
    >>> round(subspace_distance(half, other), 2)
    0.17
    """
    larger, smaller = sorted(_bases(A, B), key=lambda basis: -basis.shape[1])
    residual = smaller - larger @ (larger.T @ smaller)
    return float(min(1.0, np.linalg.norm(residual, 2)))


def _bases(A: Any, B: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = _basis("A", A), _basis("B", B)
    if len(first) != len(second):
        raise ValueError(
            f"`A` has {len(first)} features and `B` has {len(second)}: components are rows, one"
            " column a feature, and both must be of the same features."
        )
    return first, second


def _basis(name: str, given: Any) -> np.ndarray:
    if hasattr(given, "get_params") and not hasattr(given, "components_"):
        raise ValueError(
            f"`{name}` is a {type(given).__name__} without `components_`: pass components in rows,"
            " or an estimator that learns them and has been fitted (of a Pipeline, the step)."
        )
    rows = check_array(getattr(given, "components_", given), dtype="float64", input_name=name)
    values, vectors = svd(unit_rows(rows), full_matrices=False)[1:]
    if values[0] == 0:
        raise ValueError(f"`{name}` has only components of length zero, which span no subspace.")
    return vectors[values > _FAINT * values[0]].T


# Directions of rows -----------------------------------------------------------------------------
# Principal directions of public rows.
#
# Nothing here sees a private row.


@dataclass(frozen=True)
class Directions:
    """Orthonormal directions (q, width) of features and the public energy along each.

    `outside` is the expected energy along any direction off their span, by public rows.
    """

    found: Callable[[int], Array]  # The first directions, computed on request
    energies: np.ndarray
    outside: float
    width: int

    def first(self, count: int) -> Directions:
        return replace(self, energies=self.energies[:count])

    @cached_property
    def vectors(self) -> Array:
        return self.found(len(self.energies))

    @property
    def total(self) -> float:
        """Public energy along all directions of the space."""
        others = self.width - len(self.energies)
        return float(self.energies.sum()) + self.outside * others

    @property
    def are_all(self) -> bool:
        return len(self.energies) == self.width


def principal_directions(rows: Features, features: Features) -> Directions:
    """Principal directions of public rows.

    The public rows are bounded but not shifted. Where the private `features` are shifted, public
    rows are centred at their own mean: otherwise the difference of the two means would dominate.

    Fewer rows than columns show nothing about most directions. The part of one row outside of the
    span of the others shows how much energy there is (leave one out, in closed form by the inverse
    of the Gram matrix): directions are assumed to have no less than that, spread evenly.

    They are computed by :func:`by_products`, and subspaces measure how orthogonal they are.
    """
    formed = rows.at(slice(0, rows.n_samples)).dense()
    xp = namespace(formed)
    rounding = 1e-28 * float(xp.sum(formed * formed)) / rows.n_samples  # rounding of equal rows
    if features.shift is not None:
        formed = formed - xp.mean(formed, axis=0)[None, :]
        if features.shift.constant is not None:
            constant = xp.full_like(formed[:, :1], features.shift.constant)
            formed = xp.concat([formed, constant], axis=1)
    m, width = formed.shape
    singular = by_products(formed)
    energies = singular.squares / m
    clear = energies > max(1e-10 * float(energies[0]), rounding, 1e-300)
    energies = energies[clear]
    outside = 0.0
    if m < width and len(energies) == m:  # the diagonal of the inverse of the inner products
        inverse = (1 / singular.squares) @ to_numpy(singular.vectors) ** 2
        outside = float(np.mean(1 / inverse)) / (width - m + 1)
    energies = np.maximum(energies, outside)
    return Directions(lambda count: signed(singular.right(count)), energies, outside, width)


# Subspaces of gradients -------------------------------------------------------------------------


class Embedded(Protocol):
    def squares(self) -> Array: ...

    def weighted_sum(self, weights: Array) -> Array: ...


class Subspace(Protocol):
    """Orthonormal directions in the space of gradients, made of public data."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def n_components(self) -> int: ...

    @property
    def margin(self) -> float:
        """Bound on the energy outside that rounding can hide, as a share of the gradient's."""
        ...

    @property
    def rounding(self) -> float:
        """Rounding error of coordinates, or of a lift, in units of the vector's norm."""
        ...

    def embed(self, grads: PerExampleGradients) -> Embedded: ...

    def lift(self, coordinates: Array) -> Array:
        """Gradient with given coordinates, which are flat."""
        ...

    def coordinates(self, gradient: Array) -> Array:
        """Coordinates of one gradient, flat."""
        ...


# Directions of features, the same for every column of scores --------------------------------


@dataclass(frozen=True)
class FeatureSubspace:
    """All gradients of a linear model by features in the span of some directions.

    The subspace has ``q c`` dimensions for q directions and c columns of scores. It does not depend
    on the parameters, and the part of a gradient in it is an outer product as well.
    """

    basis: Array  # (q, width): orthonormal directions of features, in float64
    n_outputs: int  # Columns of scores

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.basis.shape[1], self.n_outputs)

    @property
    def n_components(self) -> int:
        return self.basis.shape[0] * self.n_outputs

    @property
    def margin(self) -> float:
        return 1.01 * (self._off + 4 * self.rounding)

    @cached_property
    def _off(self) -> float:  # used by every chunk, and as large a product as those of a chunk
        off = self.basis @ self.basis.T
        off = off - as_like(np.eye(off.shape[0]), off)
        return math.sqrt(float(namespace(off).sum(off * off)))

    @property
    def rounding(self) -> float:
        q, width = self.basis.shape
        return (width + q + 16) * EPS * math.sqrt(max(q, 1))

    def embed(self, grads: Any) -> OuterEmbedded | DenseEmbedded:
        if isinstance(grads, DenseGradients):
            xp, (m, width, c) = namespace(grads.rows), grads.shape
            found = self.basis @ xp.reshape(grads.rows, (m, width, c))  # one product per gradient
            return DenseEmbedded(xp.reshape(found, (m, -1)))
        assert isinstance(grads, OuterGradients) and grads.products is not None
        return OuterEmbedded(grads.products, grads.residuals)

    def lift(self, coordinates: Array) -> Array:
        shape = (self.basis.shape[0], self.n_outputs)
        return self.basis.T @ namespace(coordinates).reshape(coordinates, shape)

    def coordinates(self, gradient: Array) -> Array:
        return namespace(gradient).reshape(self.basis @ gradient, (-1,))
