"""Second moments of bounded rows, and the mechanisms that find subspaces in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from scipy import linalg, optimize, sparse

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.linear import OuterGradients
from dpsubspace._core.ground.arrays import (
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
from dpsubspace._core.release.mechanisms import (
    BoundedSum,
    DisjointTotal,
    energy_sum,
    gram_sum,
    trace_sum,
)
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import AffineRows
from dpsubspace._core.rows.chunks import Chunks, over_chunks
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.remote import RemoteRows, rowwise

# Number of rows whose second moment is added up in the dtype of the data before float64 is used.
# Larger than in other sums: adding up the many entries of a moment costs more.
_BLOCK = 256

# Columns up to which the moments of many blocks are small, and those of several chunks (8 MiB).
_NARROW, _SHARED = 64, 1024

# Number of entries of rows that are formed at once in float32.
_FORMED = 1 << 17

# Rows whose block moments are added up in float64 before sums are compensated.
_SPAN = 1 << 16


@dataclass(frozen=True)
class Rows:
    """Private rows of bounded norm, and released or public facts about them."""

    # Rows, each of norm at most `norm_bound` already: bounded by a
    # :class:`~dpsubspace._core.rows.records.RowMap`, or shifted and clipped.
    features: Features | AffineRows
    norm_bound: float  # Bound c on their norm: public or released
    # Released mean of ``|phi_i|^2`` before clipping, to which the spectrum is scaled.
    spread: float | None = None
    # (p,): released mean whose outer product belongs to the spectrum.
    offset: np.ndarray | None = None
    public: np.ndarray | None = None  # (m, p): public rows, after the same maps

    def norms(self) -> Array:
        return rowwise(_counted_norms, self.features)


def _counted_norms(features: Features | AffineRows) -> Array:
    norms, present = features.norms(), features.records.present
    if present is None:
        return norms
    xp = namespace(norms)
    return xp.where(present, norms, xp.full_like(norms, xp.inf))


# Sums with low sensitivity --------------------------------------------------------------------


def second_moment(rows: Rows) -> BoundedSum:
    """Return the sum of ``phi_i phi_i^T``, of shape (p, p), without null records.

    Bounds: those of :func:`~dpsubspace._core.release.mechanisms.gram_sum`, with the slack of
    :func:`~dpsubspace._core.ground.arrays.sum_slack` for terms ``phi_i phi_i^T`` and their blocks.
    """
    features = rows.features.with_room(0, rows.features.width)
    eps = eps_of(features.at(slice(0, 1)).dense())
    together = max(1, _SPAN // features.chunk)

    def of_chunk(chunk: slice) -> Array:
        moment, step, weights = None, _piece(features), features.records.weights
        for start in range(chunk.start, chunk.stop, step):
            some = slice(start, min(start + step, chunk.stop))
            block = features.at(some).dense()
            if weights is not None:
                # A row times the root of its part of the record contributes that part of its
                # product.
                roots = namespace(weights).sqrt(weights[some])
                block = weighted(block, as_like(roots, block))
            moment = _gram(block, moment)
        return _gram(features.at(chunk).dense()) if moment is None else moment

    with _each(features) as each:
        total = each.total(of_chunk, partial(_InSpans, together))
    slack = features.records.slack(eps, together * features.chunk, _BLOCK, own=2 * features.width)
    return gram_sum(to_numpy(total.value), rows.norm_bound, slack)


class _InSpans(Total):
    """Sum of chunk sums: runs of them are added up plainly, and then added with compensation."""

    def __init__(self, together: int):
        super().__init__()
        self._together, self._span, self._count = together, None, 0

    def add(self, part: Array) -> None:
        self._span = part if self._span is None else self._span + part
        self._count += 1
        if self._count == self._together:
            self._end()

    def merge(self, other: Any) -> None:
        self._end()
        other._end()
        if other._sum is not None:
            super().add(other._sum)  # compensated: our own `add` would begin a span
            self._lost = self._lost + other._lost

    def _end(self) -> None:
        span, self._span, self._count = self._span, None, 0
        if span is not None:
            super().add(span)

    @property
    def value(self) -> Array:
        self._end()
        return super().value


def _each(features: Features | AffineRows) -> AbstractContextManager[Any]:
    """Visit chunks as :func:`over_chunks`, but one at a time if moments of several are large.

    Products of so many columns have work for all threads of BLAS.
    """
    if features.width <= _SHARED or isinstance(features, RemoteRows):
        return over_chunks(features)
    return nullcontext(Chunks(features, lambda function, batch: map(function, features.chunks())))


def _piece(features: Features | AffineRows) -> int:
    """Return how many rows of a chunk to form at once, a multiple of the block, to stay in cache.

    Products in float64 are not computed by blocks, and are the faster the more rows they have.
    """
    on_cpu = isinstance(features.data, np.ndarray) or sparse.issparse(features.data)
    if not on_cpu or features.dtype == np.float64:
        return features.chunk
    return max(1, _FORMED // (features.width * _BLOCK)) * _BLOCK


def _gram(rows: Array, total: Array = None) -> Array:
    """Add `rows`^T `rows` to `total` in place, in float64: float32 in blocks of `_BLOCK` rows."""
    xp, (k, p) = namespace(rows), rows.shape
    if total is None:
        total = xp.zeros((p, p), dtype=xp.float64, device=device(rows))
    whole = 0
    if rows.dtype != xp.float64 and p <= _NARROW:  # one call for all blocks
        whole = k - k % _BLOCK
        blocks = xp.reshape(rows[:whole, :], (-1, _BLOCK, p))
        products = xp.matmul(xp.permute_dims(blocks, (0, 2, 1)), blocks)
        total += xp.sum(products, axis=0, dtype=xp.float64)
    step = max(1, k) if rows.dtype == xp.float64 else _BLOCK  # a part may have no rows
    for start in range(whole, k, step):
        part = rows[start : start + step, :]
        total += part.T @ part
    return total


def product_with(rows: Rows, basis: np.ndarray, norms: Array) -> BoundedSum:
    """Return the sum of ``phi_i phi_i^T B`` for `basis` B (p, k) with orthonormal columns.

    The basis is public or released, and `norms` (n,) are those of the features, inf for null
    records.

    Proof of the bounds: record i contributes the outer product of ``phi_i`` and ``B^T phi_i``. Its
    norm is at most ``|phi_i| |B^T phi_i| <= c^2``, and it is clipped to that, so that rounding
    cannot make it longer. Replacing a record moves the sum by ``(phi phi^T - psi psi^T) B``, which
    is no longer than the first factor: ``sqrt(2) c^2``, by the proof of
    :func:`~dpsubspace._core.release.mechanisms.gram_sum`, and twice the rounding of ``B^T phi``
    more.
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
    """Return the second moment of ``z_i = B^T phi_i``, and the sum of ``|phi_i|^2 - |z_i|^2``.

    The basis B (p, k) has orthonormal columns, public or released, and `norms` (n,) are those of
    the features, inf for null records. The packed moment has k (k + 1) / 2 entries, and the sum
    comes after them.

    Proof of the bounds: record i contributes ``(z z^T, r)`` with ``|z|^2 + r <= c^2`` and
    ``r >= 0``, which is enforced after rounding. Its squared norm is
    ``|z|^4 + r^2 <= (|z|^2 + r)^2 <= c^4``. Between two records the first part moves by at most
    ``sqrt(|z|^4 + |w|^4)`` and the second by ``|r - s| <= sqrt(r^2 + s^2)``, which makes
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
    """Pack the upper triangle of symmetric matrices (..., p, p), row by row, with the same norm."""
    p = matrices.shape[-1]
    found = np.empty((*matrices.shape[:-2], p * (p + 1) // 2))
    for i, start in enumerate(_row_starts(p)):
        found[..., start] = matrices[..., i, i]
        found[..., start + 1 : start + p - i] = math.sqrt(2) * matrices[..., i, i + 1 :]
    return found


def symmetric(vector: np.ndarray) -> np.ndarray:
    p = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    matrix = np.empty((p, p))
    for i, start in enumerate(_row_starts(p)):
        matrix[i, i] = vector[start]
        matrix[i, i + 1 :] = vector[start + 1 : start + p - i] / math.sqrt(2)
        matrix[i + 1 :, i] = matrix[i, i + 1 :]
    return matrix


def _row_starts(p: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.arange(p, 1, -1))])


def released_moment(
    rows: Rows, releases: Releases, name: str = "moment"
) -> tuple[np.ndarray, float]:
    """Release the mean of ``phi_i phi_i^T``, a symmetric matrix (p, p), by its `name`.

    Return the mean, and the standard deviation s of the noise on its diagonal.

    Analyze Gauss. Noise of the packed triangle is a symmetric Gaussian matrix, of deviation s on
    the diagonal and s / sqrt(2) off it, which looks the same in every basis. Its spectral norm is
    about ``s sqrt(2 p)``, where the triangle of equal deviations of Dwork, Talwar, Thakurta, Zhang
    (2014, Algorithm 1) makes ``2 s sqrt(p)`` for the same privacy. Event: one Gaussian mechanism.
    """
    total = second_moment(rows)
    return noisy_moment(total, rows.features.n_samples, releases, name)


def noisy_moment(
    total: BoundedSum, n: int, releases: Releases, name: str
) -> tuple[np.ndarray, float]:
    """Release as :func:`released_moment`, from an existing sum over `n` records."""
    noisy = releases.gaussian(name, replace(total, value=packed(total.value)))
    return symmetric(to_numpy(noisy)) / n, releases.noise_of(name, total) / n


# Mechanisms -------------------------------------------------------------------------------------
# The mechanisms that find subspaces in second moments: rows of one table.
#
# All mechanisms answer one question, which directions hold most of ``S = sum phi_i phi_i^T``, where
# no row is longer than a bound c. One record moves S by a matrix of rank one or two; the docstrings
# of ``moments`` prove by how much. The result of a mechanism is a release.


@dataclass(frozen=True)
class Spectrum:
    components: np.ndarray  # (k, p): orthonormal rows, the strongest first
    # (k,): part of the mean of ``|phi_i|^2`` along each component; not negative.
    energies: np.ndarray
    total: float  # That mean, at least the sum of the energies


# Mechanisms -----------------------------------------------------------------------------------


class Mechanism(Protocol):
    @property
    def pure(self) -> bool:
        """Whether the mechanism spends epsilon and no delta."""
        ...

    @property
    def recentres(self) -> bool:
        """Whether rows should first be shifted by a mean and clipped to a radius about it."""
        ...

    @property
    def forms_rows(self) -> bool:
        """Whether the mechanism uses rows as :meth:`FeatureBlock.dense` and in no other way."""
        ...

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, Part]:
        """Return releases by name, with their shares of the mechanism's budget."""
        ...

    def memory(self, n_features: int, n_components: int, public: bool) -> float: ...

    def noise(self, scales: Mapping[str, float], n_features: int) -> float:
        """Return about the noise along the worst direction, in units of c^2, for these `scales`."""
        ...

    def __call__(self, rows: Rows, n_components: int, releases: Releases) -> Spectrum: ...


@dataclass(frozen=True)
class AnalyzeGauss:
    """Eigenvectors of a noisy second moment (Dwork, Talwar, Thakurta, Zhang, 2014).

    One release, whatever the number of components; all eigenvalues come along.
    """

    # Whether to request centred rows, nearly all of them clipped: then their common part costs
    # releases of vectors, and the noise of the moment falls with the square of the radius.
    recentres: bool
    pure = False
    forms_rows = True

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, Part]:
        return {"moment": Part(1.0)}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        return (112.0 if public else 48.0) * n_features**2

    def noise(self, scales: Mapping[str, float], n_features: int) -> float:
        return scales["moment"] * math.sqrt(2 * n_features)

    def __call__(self, rows: Rows, n_components: int, releases: Releases) -> Spectrum:
        moment, scale = released_moment(rows, releases)
        return _spectrum(moment, scale, rows, n_components, float(np.trace(moment)))


@dataclass(frozen=True)
class NoisyPower:
    """Block power iteration with noisy products (Hardt, Price, 2014), for many columns.

    No square matrix is formed. More directions than requested are iterated, and the noisy second
    moment of the rows within these, which is small, determines which to keep. Each product costs
    budget, so there are few: one for every factor of 10 in the columns.
    """

    pure = False
    recentres = True
    forms_rows = False

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, Part]:
        n_iter = 4 if n_features is None else _n_products(n_features)
        return {"product": Part(0.9, n_iter), "projection": Part(0.1)}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        return 2.0**28 + 8.0 * 40 * n_features * _width(n_features, n_components)

    def noise(self, scales: Mapping[str, float], n_features: int) -> float:
        return scales["product"] * math.sqrt(n_features)

    def __call__(self, rows: Rows, n_components: int, releases: Releases) -> Spectrum:
        n_features = rows.features.width
        norms, width = rows.norms(), _width(n_features, n_components)
        basis = _start(n_features, width, rows.public)
        for i in range(releases.budget.parts["product"].count):
            total = product_with(rows, basis, norms)
            noisy = releases.gaussian("product", total, stream=f"product {i}")
            basis = np.linalg.qr(to_numpy(noisy))[0]
        if rows.offset is not None:
            basis = np.linalg.qr(np.column_stack([rows.offset, basis[:, : n_features - 1]]))[0]
        total = projected_moment(rows, basis, norms)
        noisy = to_numpy(releases.gaussian("projection", total)) / rows.features.n_samples
        scale = releases.noise_of("projection", total)
        moment = symmetric(noisy[:-1])
        within = replace(
            rows,
            offset=None if rows.offset is None else basis.T @ rows.offset,
            public=None if rows.public is None else rows.public @ basis,
        )
        trace = float(np.trace(moment) + noisy[-1])
        spectrum = _spectrum(moment, scale / rows.features.n_samples, within, n_components, trace)
        return replace(spectrum, components=spectrum.components @ basis.T)


@dataclass(frozen=True)
class Bingham:
    """Directions drawn one after another by an exponential mechanism: no delta.

    Each draw is from the Bingham distribution (Chaudhuri, Sarwate, Sinha, 2013) on the
    complement of those before it (Amin, Dick, Kulesza, Munoz, Vassilvitskii, 2019), exactly.
    """

    pure = True
    recentres = False
    forms_rows = True

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, Part]:
        """Return one draw and one energy per component: shares of epsilon here."""
        draws = Part(0.9, n_components, kind="range")
        return {"direction": draws, "spectrum": Part(0.1, kind="laplace")}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        return 64.0 * n_features**2

    def noise(self, scales: Mapping[str, float], n_features: int) -> float:
        return n_features / (2 * scales["direction"])

    def __call__(self, rows: Rows, n_components: int, releases: Releases) -> Spectrum:
        """Release `n_components` directions and the energies along them.

        Privacy: rows projected to the complement of released directions are no longer than
        before, so every draw has the sensitivity of the first; energies are bounded by
        :func:`~dpsubspace._core.release.mechanisms.energy_sum`.
        """
        total = second_moment(rows)
        p = len(total.value)
        left, found = np.eye(p), np.empty((p, 0))  # an orthonormal basis of the complement
        for i in range(n_components):
            within = replace(total, value=left.T @ total.value @ left)
            drawn = releases.direction("direction", within, stream=f"direction {i}")
            found = np.column_stack([found, left @ drawn])
            left = np.linalg.qr(found, mode="complete")[0][:, i + 1 :]
        return _with_energies(found, total, rows, releases)


@dataclass(frozen=True)
class MatrixBingham:
    """All directions drawn at once by an exponential mechanism over subspaces: no delta.

    The matrix Bingham distribution (Chaudhuri, Sarwate, Sinha, 2013), drawn exactly. A subspace of
    any number of dimensions costs as much as one direction. Its directions are a basis that has no
    order but that of the noisy energies along them.
    """

    pure = True
    recentres = False
    forms_rows = True

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, Part]:
        """Return one draw, and the energies along all directions: shares of epsilon here."""
        return {"subspace": Part(0.9, kind="range"), "spectrum": Part(0.1, kind="laplace")}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        return 96.0 * n_features**2 + 2.0**15 * n_features  # a contour of 400 complex points

    def noise(self, scales: Mapping[str, float], n_features: int) -> float:
        return n_features / (2 * scales["subspace"])

    def __call__(self, rows: Rows, n_components: int, releases: Releases) -> Spectrum:
        """Release a subspace by :meth:`Releases.subspace`, and the energies along a basis of it.

        Privacy: bounds are those of :func:`~dpsubspace._core.release.mechanisms.trace_sum` and
        :func:`~dpsubspace._core.release.mechanisms.energy_sum`.
        """
        total = second_moment(rows)
        traces = trace_sum(total, rows.norm_bound, n_components)
        found = releases.subspace("subspace", traces, n_components)
        return _with_energies(found, total, rows, releases)


def _with_energies(
    found: np.ndarray, total: BoundedSum, rows: Rows, releases: Releases
) -> Spectrum:
    """Sort released directions (p, k) by the energies along them, which are released here."""
    energies = np.einsum("ij,ik,kj->j", found, total.value, found)
    energies = np.append(energies, np.trace(total.value) - energies.sum())
    rounding = total.norm_bound / rows.norm_bound**2 - 1
    bounded = energy_sum(energies, rows.norm_bound, math.sqrt(len(found)) * rounding)
    noisy = releases.laplace("spectrum", bounded)
    noisy = np.maximum(to_numpy(noisy), 0.0) / rows.features.n_samples
    order = np.argsort(-noisy[:-1], kind="stable")
    return Spectrum(found.T[order], noisy[:-1][order], float(noisy.sum()))


def _n_products(n_features: int) -> int:
    return min(max(math.ceil(math.log10(n_features)), 2), 6)


def _width(n_features: int, n_components: int) -> int:
    return min(n_features, 2 * n_components)


def _start(p: int, width: int, public: np.ndarray | None) -> np.ndarray:
    """Return the initial directions: of public rows, then public random ones."""
    directions = np.random.default_rng(0).standard_normal((p, width))
    if public is not None:
        strongest = np.linalg.svd(public, full_matrices=False)[2][:width]
        directions[:, : len(strongest)] = strongest.T
    return np.linalg.qr(directions)[0]


def _spectrum(moment: np.ndarray, scale: float, rows: Rows, k: int, trace: float) -> Spectrum:
    """Return the strongest directions of a moment with noise of `scale`: postprocessing.

    The energies are increased by the length that clipping removed from the rows, but the moment is
    not: its noise would grow along.
    """
    p = len(moment)
    if rows.public is not None:
        moment, scale = _with_public(moment, scale, rows.public), 0.0
    offset = np.zeros(p) if rows.offset is None else rows.offset
    moment = moment + np.outer(offset, offset)
    subset = (p - k, p - 1) if 4 * k < p else None
    values, vectors = linalg.eigh(moment, subset_by_index=subset)
    vectors = vectors[:, ::-1][:, :k]
    energies = np.maximum(_without_noise(values[::-1][:k], scale, p), 0.0)
    if rows.spread is not None:
        common = np.minimum(energies, (offset @ vectors) ** 2)
        shape = _of_directions(energies - common, trace, rows.features.width)
        energies = common + max(rows.spread, 0.0) * shape
        trace = rows.spread
    total = trace + float(offset @ offset)
    return Spectrum(vectors.T, energies, max(total, float(energies.sum())))


def _of_directions(energies: np.ndarray, trace: float, p: int) -> np.ndarray:
    """Return shares of the variance along axes, from energies of rows shrunk to one length.

    Unit vectors in the directions of normal rows with variances t_j, which add up to 1, have the
    energies ``t_j E[z_j^2 / sum_i t_i z_i^2]`` for standard normal z: nearer to each other than the
    variances are, and the more so the fewer axes there are. This is solved for t by iteration
    (Duerre, Vogel, Fried, 2015, for spatial sign covariance matrices). Variance along no known axis
    is assumed to be spread over the others evenly.
    """
    total = max(trace, float(energies.sum()))
    if total <= 0:
        return np.zeros_like(energies)
    k, shares = len(energies), energies / total
    others = max(p - k, 0)
    rest = max(0.0, 1 - float(shares.sum())) / others if others else 0.0
    seen = np.append(shares, rest)
    count = np.append(np.ones(k), others)
    # E[z_j^2 / S] is the integral of exp(-u S) z_j^2 over u > 0, here with u = e^x.
    u = np.exp(np.linspace(-12.0, 30.0, 400))
    step, t = 42.0 / 399, np.maximum(seen, 1e-12)
    for _ in range(200):
        t = t / (count @ t)
        logs = np.log1p(2 * np.outer(u, t))
        weight = u * np.exp(-0.5 * logs @ count) * step
        expected = weight @ np.exp(-logs)
        t = np.where(seen > 0, seen / expected, 0.0) if seen.any() else t
    t = t / max(count @ t, 1e-300)
    return t[:k]


def _without_noise(values: np.ndarray, scale: float, p: int) -> np.ndarray:
    """Return energies along eigenvectors of a noisy p x p matrix from eigenvalues; signs are kept.

    With symmetric Gaussian noise of `scale` a value t of a matrix of low rank shows as
    ``t + p s^2 / (2 t)`` if it is above the edge of the noise, ``s sqrt(2 p)``, and not at all
    below (Capitaine, Donati-Martin, Feral, 2009). Its vector is off by as much, so that
    ``t - p s^2 / (2 t)`` lies along it: the square root below (Gavish, Donoho, 2017).
    """
    return np.sign(values) * np.sqrt(np.maximum(values**2 - 2 * p * scale**2, 0.0))


def _with_public(moment: np.ndarray, scale: float, public: np.ndarray) -> np.ndarray:
    """Return the moment of private rows, given a noisy one and that of public rows: postprocessing.

    A random-effects model in the basis of the public moment, where its entries are about
    independent: each has the variance of its sampling, plus a variance common to all, for rows that
    are not drawn alike (Paule, Mandel, 1982), which counts if the released moment shows it beyond
    chance. Entries are weighted by these variances and that of the noise. The part that the weights
    remove from the private moment is restored as far as it stands out of the noise.
    """
    m, p = public.shape
    values, vectors = np.linalg.eigh(public.T @ public / m)
    values = np.maximum(values, 0.0)
    # As with one row more, which has all directions: a few rows span few directions.
    known = (m * values + values.mean()) / (m + 1)
    shape = np.full((p, p), 0.5)  # variances of symmetric Gaussian noise
    np.fill_diagonal(shape, 1.0)
    sampling, noise = 2 * shape * np.outer(known, known) / m, scale**2 * shape
    difference = vectors.T @ moment @ vectors
    np.fill_diagonal(difference, np.diag(difference) - values)
    upper = np.triu_indices(p)
    squares, expected = difference[upper] ** 2, (sampling + noise)[upper]
    beyond = _common_variance(squares, expected, shape[upper])
    weight = sampling + beyond * shape
    total = weight + noise
    weight = np.divide(weight, total, out=np.ones_like(weight), where=total > 0)
    edge, directions = np.linalg.eigh((1 - weight) * difference)
    # The edge of noise in few dimensions is blurred.
    edge = _without_noise(edge, scale * (1 + p ** (-2 / 3)), p)
    combined = np.diag(values) + weight * difference + (directions * edge) @ directions.T
    return vectors @ combined @ vectors.T


def _common_variance(squares: np.ndarray, expected: np.ndarray, shape: np.ndarray) -> float:
    """Return the variance beta for which ``sum squares / (expected + beta shape)`` is their number.

    Zero if that sum, at beta = 0, is not above their number by three standard deviations.
    """
    count = len(squares)
    used = expected > 0
    squares, expected, shape = squares[used], expected[used], shape[used]

    def excess(beta: float) -> float:
        return float((squares / (expected + beta * shape)).sum()) - count

    if excess(0.0) <= 3 * math.sqrt(2 * count):
        return 0.0
    high = float(expected.max())
    while excess(high) > 0:
        high *= 4
    root: Any = optimize.brentq(excess, 0.0, high, xtol=1e-6 * high)
    return float(root)


MECHANISMS: Mapping[str, Mechanism] = {
    "adaptive": AnalyzeGauss(recentres=True),
    "gaussian": AnalyzeGauss(recentres=False),
    "power": NoisyPower(),
    "bingham": Bingham(),
    "matrix_bingham": MatrixBingham(),
}
