"""Leading directions of gradients and the angles between them, from inner products alone.

Directions are kept as weights of the gradients that they are made of: with K the inner products of
some gradients and u an eigenvector of K with eigenvalue l, the weights ``u / sqrt(l)`` give a unit
vector, and two of different eigenvectors are orthogonal. What two sets of directions have in
common then follows from inner products of gradients of both sets, and no gradient is formed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

__all__ = ["cosines", "leading_weights", "orthonormal", "share_apart", "unit_rows"]

# Directions with less than this share of the energy of the strongest are rounding.
_FAINT = 1e-10

# Up to so many gradients all eigenvectors are found; of more, the leading ones by Lanczos
# iteration, which takes some products with K.
_ALL = 400


def leading_weights(gram: np.ndarray, count: int) -> np.ndarray:
    """Weights (k, m) of the `count` leading directions of m gradients, fewer where they span fewer.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Inner products of the gradients.
    count : int
        Directions that are asked for.
    """
    m = len(gram)
    count = min(count, m)
    values = vectors = None
    if m > _ALL and 4 * count < m:
        try:
            # The same start every time: randomness has no place here.
            start = np.random.default_rng(0).standard_normal(m)
            values, vectors = eigsh(gram, k=count, v0=start, tol=0)
        except ArpackError:  # it has not converged
            pass
    if values is None or vectors is None:
        values, vectors = eigh(gram, subset_by_index=(m - count, m - 1))
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    clear = values > _FAINT * max(float(values[0]), 1e-300)
    return vectors[:, clear].T / np.sqrt(values[clear])[:, None]


def orthonormal(gram: np.ndarray, most: int) -> np.ndarray:
    """Weights (q, k) of orthonormal directions that k others span, at most so many.

    Parameters
    ----------
    gram : ndarray of shape (k, k)
        Inner products of the directions. What many of them have in common comes first.
    most : int
        Largest number to keep.
    """
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    # What two sets have in common twice is left once, and not as rounding.
    clear = values > 1e-8 * values[0]
    return vectors[:, clear].T / np.sqrt(values[clear])[:, None]


def cosines(products: np.ndarray) -> np.ndarray:
    """Cosines of the principal angles between two subspaces, the largest first.

    Parameters
    ----------
    products : ndarray of shape (k, l)
        Inner products of orthonormal directions of the one and of the other.
    """
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
