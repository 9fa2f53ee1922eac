"""Second moments of bounded rows, and how far one record moves them."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._array import (
    EPS,
    Array,
    Total,
    as_like,
    at_least,
    at_most,
    device,
    eps_of,
    namespace,
    to_numpy,
    weighted,
)
from dpsubspace._gradients.clipping import clipped_sum
from dpsubspace._gradients.linear import OuterGradients
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotal, gram_sum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.affine import AffineRows
from dpsubspace._rows.chunks import Chunks, over_chunks
from dpsubspace._rows.features import Features
from dpsubspace._rows.remote import is_remote, made

__all__ = ["Rows", "packed", "released_moment", "symmetric"]

# Rows whose second moment is added up in the dtype of the data before float64 takes over.
# More than in other sums: adding up the many entries of a moment costs more.
_BLOCK = 256

# Columns up to which the moments of many blocks are small, and those of several chunks (8 MiB).
_NARROW, _SHARED = 64, 1024

# Entries of rows to form at once in float32.
_FORMED = 1 << 17

# Rows of which the moments of blocks are added up in float64 before sums are compensated.
_SPAN = 1 << 16


@dataclass(frozen=True)
class Rows:
    """Private rows of bounded norm, and what has been released or is public about them.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already: bounded by a
        :class:`~dpsubspace._rows.maps.RowMap`, or shifted and clipped.
    norm_bound : float
        Bound c on their norm: public or released.
    spread : float, optional
        Released mean of ``|phi_i|^2`` before clipping, which the spectrum is scaled to.
    offset : ndarray of shape (p,), optional
        Released mean of which the outer product belongs to the spectrum.
    public : ndarray of shape (m, p), optional
        Public rows, after the same maps.
    """

    features: Features | AffineRows
    norm_bound: float
    spread: float | None = None
    offset: np.ndarray | None = None
    public: np.ndarray | None = None

    def norms(self) -> Array:
        """Norms of the features, inf for null records."""
        return made(_counted_norms, self.features)


def _counted_norms(features: Features | AffineRows) -> Array:
    """Norms of features, inf for null records."""
    norms, present = features.norms(), features.records.present
    if present is None:
        return norms
    xp = namespace(norms)
    return xp.where(present, norms, xp.full_like(norms, xp.inf))


# Sums that one record moves little ------------------------------------------------------------


def second_moment(rows: Rows) -> BoundedSum:
    """Sum of ``phi_i phi_i^T``, of shape (p, p), without null records.

    Notes
    -----
    Bounds: those of :func:`~dpsubspace._release.mechanisms.gram_sum`, of which the slack is that of
    :func:`~dpsubspace._array.sum_slack` for terms ``phi_i phi_i^T`` and their blocks.
    """
    features = rows.features.with_room(0, rows.features.width)
    eps = eps_of(features.at(slice(0, 1)).formed())
    together = max(1, _SPAN // features.chunk)

    def of_chunk(chunk: slice) -> Array:
        moment, step, weights = None, _piece(features), features.records.weights
        for start in range(chunk.start, chunk.stop, step):
            some = slice(start, min(start + step, chunk.stop))
            block = features.at(some).formed()
            if weights is not None:
                # A row times the root of its part of the record brings that part of its product.
                roots = namespace(weights).sqrt(weights[some])
                block = weighted(block, as_like(roots, block))
            moment = _gram(block, moment)
        return _gram(features.at(chunk).formed()) if moment is None else moment

    with _each(features) as each:
        total = each.total(of_chunk, partial(_InSpans, together))
    slack = features.records.slack(eps, together * features.chunk, _BLOCK, own=2 * features.width)
    return gram_sum(to_numpy(total.value), rows.norm_bound, slack)


class _InSpans(Total):
    """Sum of sums of chunks, so many of which are added up plainly before the next is carried."""

    def __init__(self, together: int):
        super().__init__()
        self._together, self._span, self._count = together, None, 0

    def add(self, part: Array) -> None:
        """Add the sum of a chunk."""
        self._span = part if self._span is None else self._span + part
        self._count += 1
        if self._count == self._together:
            self._end()

    def merge(self, other: Any) -> None:
        """Add the sum of other chunks."""
        self._end()
        other._end()
        if other._sum is not None:
            super().add(other._sum)  # carried: this of ours would begin a span with it
            self._lost = self._lost + other._lost

    def _end(self) -> None:
        span, self._span, self._count = self._span, None, 0
        if span is not None:
            super().add(span)

    @property
    def value(self) -> Array:
        """The sum."""
        self._end()
        return super().value


def _each(features: Features | AffineRows) -> AbstractContextManager[Any]:
    """As :func:`over_chunks`, but one chunk after another where moments of several are much.

    Products of so many columns have work for all threads of BLAS.
    """
    if features.width <= _SHARED or is_remote(features):
        return over_chunks(features)
    return nullcontext(Chunks(features, lambda function, batch: map(function, features.chunks())))


def _piece(features: Features | AffineRows) -> int:
    """Rows of a chunk to form at once, a multiple of the block: few stay in the cache.

    Products in float64 are not taken by blocks, and are the faster the more rows they have.
    """
    on_cpu = isinstance(features.data, np.ndarray) or sparse.issparse(features.data)
    if not on_cpu or features.dtype == np.float64:
        return features.chunk
    return max(1, _FORMED // (features.width * _BLOCK)) * _BLOCK


def _gram(rows: Array, total: Array = None) -> Array:
    """`rows`^T `rows` in float64, added to `total` in place: float32 in blocks of `_BLOCK` rows."""
    xp, (k, p) = namespace(rows), rows.shape
    if total is None:
        total = xp.zeros((p, p), dtype=xp.float64, device=device(rows))
    whole = 0
    if rows.dtype != xp.float64 and p <= _NARROW:  # one call for all blocks
        whole = k - k % _BLOCK
        blocks = xp.reshape(rows[:whole, :], (-1, _BLOCK, p))
        products = xp.matmul(xp.permute_dims(blocks, (0, 2, 1)), blocks)
        total += xp.sum(products, axis=0, dtype=xp.float64)
    step = k if rows.dtype == xp.float64 else _BLOCK
    for start in range(whole, k, step):
        part = rows[start : start + step, :]
        total += part.T @ part
    return total


def product_with(rows: Rows, basis: np.ndarray, norms: Array) -> BoundedSum:
    """Sum of ``phi_i phi_i^T B`` for `basis` B of shape (p, k) with orthonormal columns.

    Parameters
    ----------
    rows : Rows
        Private rows.
    basis : ndarray of shape (p, k)
        Public or released.
    norms : array of shape (n,)
        Norms of the features, inf for null records.

    Notes
    -----
    Proof of the bounds: record i brings the outer product of ``phi_i`` and ``B^T phi_i``. Its
    norm is at most ``|phi_i| |B^T phi_i| <= c^2``, and it is clipped to that, so that rounding
    cannot make it longer. Replacing a record moves the sum by
    ``(phi phi^T - psi psi^T) B``, which is no longer than the first factor: ``sqrt(2) c^2``, by
    the proof of :func:`~dpsubspace._release.mechanisms.gram_sum`, and twice the rounding of
    ``B^T phi`` more.
    """
    k = basis.shape[1]
    features, like = rows.features.with_room(2 * k, k), rows.features.lengths
    params = as_like(basis, like)

    def part(chunk: Any) -> BoundedSum:
        block = features.at(chunk)
        shares = features.records.shares
        shares = None if shares is None else shares[chunk]
        scores = block.scores(params)
        grads = OuterGradients(block, norms[chunk], scores, features.slack, shares=shares)
        return clipped_sum(grads, rows.norm_bound**2)

    with over_chunks(features) as each:
        summed = each.total(part, DisjointTotal).bounded_sum()
    eps = max(EPS, eps_of(features.X))
    longer = 1.0 if features.shift is None else 1 + 2 / features.floor  # than a feature, its parts
    rounding = 2 * (math.sqrt(k) * (features.width + 8) + 8) * eps * longer
    return BoundedSum(
        summed.value,
        summed.norm_bound,
        max(summed.norm_bound, rows.norm_bound**2 * (math.sqrt(2) + rounding + features.slack)),
    )


def projected_moment(rows: Rows, basis: np.ndarray, norms: Array) -> BoundedSum:
    """Second moment of ``z_i = B^T phi_i``, and the sum of what is left, ``|phi_i|^2 - |z_i|^2``.

    Parameters
    ----------
    rows : Rows
        Private rows.
    basis : ndarray of shape (p, k)
        With orthonormal columns, public or released.
    norms : array of shape (n,)
        Norms of the features, inf for null records.

    Returns
    -------
    BoundedSum
        The packed moment, of k (k + 1) / 2 entries, and the sum.

    Notes
    -----
    Proof of the bounds: record i brings ``(z z^T, r)`` with ``|z|^2 + r <= c^2`` and
    ``r >= 0``, which is made sure of after rounding. Its squared norm is
    ``|z|^4 + r^2 <= (|z|^2 + r)^2 <= c^4``. Between two records the first part moves by at
    most ``sqrt(|z|^4 + |w|^4)`` and the second by ``|r - s| <= sqrt(r^2 + s^2)``, which makes
    ``sqrt(2) c^2``.
    """
    features, c = rows.features, rows.norm_bound
    params = as_like(basis, features.lengths)

    def part(chunk: Any) -> Array:
        xp = namespace(norms)
        z = xp.astype(features.at(chunk).scores(params), xp.float64)
        lengths = norms[chunk]
        absent = ~(xp.isfinite(lengths) & xp.all(xp.isfinite(z), axis=1))
        z = xp.where(absent[:, None], xp.zeros_like(z), z)
        squares = xp.where(absent, xp.zeros_like(lengths), at_most(lengths, c)) ** 2
        inside = xp.sum(z * z, axis=1) * (1 + (z.shape[1] + 4) * EPS)
        z = z * xp.where(inside > c**2, c / xp.sqrt(at_least(inside, c**2)), 1.0)[:, None]
        left = at_least(squares - inside, 0.0)
        shares = features.records.shares
        shares = xp.ones_like(left) if shares is None else shares[chunk]
        moment = packed(to_numpy(z.T @ (z * shares[:, None])))
        return xp.concat([as_like(moment, left), xp.sum(left * shares)[None]])

    with over_chunks(features) as each:
        total = each.total(part)
    slack = features.records.slack(EPS, features.chunk, own=2 * features.width)
    return gram_sum(to_numpy(total.value), c, slack)


def packed(matrices: np.ndarray) -> np.ndarray:
    """Upper triangle of symmetric matrices (..., p, p), entries off the diagonal times sqrt(2).

    Row by row. The norm of a vector is the Frobenius norm of its matrix.
    """
    p = matrices.shape[-1]
    found = np.empty((*matrices.shape[:-2], p * (p + 1) // 2))
    for i, start in enumerate(_row_starts(p)):
        found[..., start] = matrices[..., i, i]
        found[..., start + 1 : start + p - i] = math.sqrt(2) * matrices[..., i, i + 1 :]
    return found


def symmetric(vector: np.ndarray) -> np.ndarray:
    """Matrix of which `vector` is the packed upper triangle."""
    p = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    matrix = np.empty((p, p))
    for i, start in enumerate(_row_starts(p)):
        matrix[i, i] = vector[start]
        matrix[i, i + 1 :] = vector[start + 1 : start + p - i] / math.sqrt(2)
        matrix[i + 1 :, i] = matrix[i, i + 1 :]
    return matrix


def _row_starts(p: int) -> np.ndarray:
    """Where the rows of a packed p x p triangle start."""
    return np.concatenate([[0], np.cumsum(np.arange(p, 1, -1))])


def released_moment(
    rows: Rows, releases: Releases, name: str = "moment"
) -> tuple[np.ndarray, float]:
    """Release the mean of ``phi_i phi_i^T``, a symmetric matrix (p, p), by its `name`.

    Returns
    -------
    moment : ndarray of shape (p, p)
        Noisy moment.
    scale : float
        Standard deviation s of the noise on its diagonal.

    Notes
    -----
    Analyze Gauss. Noise of the packed triangle is a symmetric Gaussian matrix, of deviation
    s on the diagonal and s / sqrt(2) off it, which looks the same in every basis. Its spectral
    norm is about ``s sqrt(2 p)``, where the triangle of equal deviations of Dwork, Talwar,
    Thakurta, Zhang (2014, Algorithm 1) makes ``2 s sqrt(p)`` for the same privacy. Event: one
    Gaussian mechanism.
    """
    total = second_moment(rows)
    return noisy_moment(total, rows.features.n_samples, releases, name)


def noisy_moment(
    total: BoundedSum, n: int, releases: Releases, name: str
) -> tuple[np.ndarray, float]:
    """As :func:`released_moment`, of a sum over `n` records that was taken already."""
    noisy = releases.gaussian(name, replace(total, value=packed(total.value)))
    return symmetric(to_numpy(noisy)) / n, releases.noise_of(name, total) / n
