"""Private second moments of rows, and the mechanisms that find subspaces in them.

All mechanisms answer one question, which directions hold most of ``S = sum phi_i phi_i^T``,
where no row is longer than a bound c. One record moves S by a matrix of rank one or
two; the docstrings below prove how far. What a mechanism returns is released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy import linalg, optimize

from dpsubspace._array import (
    EPS,
    Array,
    Total,
    as_like,
    chunk_map,
    eps_of,
    gram,
    namespace,
    slices,
    sum_slack,
    to_numpy,
)
from dpsubspace._features import Features
from dpsubspace._gradients import OuterGradients, clipped_sum
from dpsubspace._noise import (
    BoundedSum,
    DisjointTotal,
    NoiseSource,
    energy_sum,
    gram_sum,
    release,
    release_direction,
    release_laplace,
)

__all__ = ["MECHANISMS", "Mechanism", "Rows", "Spectrum", "released_moment"]

# Rows whose second moment is added up in the dtype of the data before float64 takes over.
# More than in other sums: adding up the many entries of a moment costs more.
_BLOCK = 256

# Rows of which the moments of blocks are added up in float64 before sums are compensated.
_SPAN = 1 << 16


@dataclass(frozen=True)
class Rows:
    """Private rows of bounded norm, and how whatever is learned from them is released.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already: bounded by a
        :class:`~dpsubspace._scaling.RowMap`, or shifted and clipped.
    norm_bound : float
        Bound c on their norm: public or released.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.
    spread : float, optional
        Released mean of ``|phi_i|^2`` before clipping, which the spectrum is scaled to.
    offset : ndarray of shape (p,), optional
        Released mean of which the outer product belongs to the spectrum.
    public : ndarray of shape (m, p), optional
        Public rows, after the same maps.
    """

    features: Features
    norm_bound: float
    noise: NoiseSource
    neighboring_relation: str
    present: Array | None = None
    spread: float | None = None
    offset: np.ndarray | None = None
    public: np.ndarray | None = None

    def released(self, total: BoundedSum, noise_multiplier: float, name: str) -> np.ndarray:
        """Noisy `total` as a NumPy array, the noise from the stream called `name`."""
        relation = self.neighboring_relation
        noise = self.noise.child(name)
        return to_numpy(release(total, noise_multiplier, noise, neighboring_relation=relation))

    def norms(self) -> Array:
        """Norms of the features, inf for null records."""
        norms = self.features.norms()
        if self.present is None:
            return norms
        xp = namespace(norms)
        return xp.where(self.present, norms, xp.full_like(norms, xp.inf))


@dataclass(frozen=True)
class Spectrum:
    """Released directions of a second moment, and how much of it lies along each.

    Parameters
    ----------
    components : ndarray of shape (k, p)
        Orthonormal rows, the strongest first.
    energies : ndarray of shape (k,)
        What lies along each of the mean of ``|phi_i|^2``; not negative.
    total : float
        That mean, at least the sum of the energies.
    """

    components: np.ndarray
    energies: np.ndarray
    total: float


# Sums that one record moves little ------------------------------------------------------------


def second_moment(rows: Rows) -> BoundedSum:
    """Sum of ``phi_i phi_i^T``, of shape (p, p).

    Notes
    -----
    Bounds: those of :func:`~dpsubspace._noise.gram_sum`, of which the slack is that of
    :func:`~dpsubspace._array.sum_slack` for terms ``phi_i phi_i^T`` and their blocks.
    """
    features, total, eps = rows.features, Total(), EPS
    chunks, together = features.chunks(), max(1, _SPAN // features.chunk)
    for some in slices(len(chunks), together):
        part = None
        for chunk in chunks[some]:
            block = features.at(chunk).formed()
            if rows.present is not None:
                xp = namespace(block)
                shown = as_like(rows.present[chunk], block)[:, None] > 0
                block = xp.where(shown, block, xp.zeros_like(block))
            eps = eps_of(block)
            part = gram(block, _BLOCK, part)
        total.add(part)
    slack = sum_slack(features.n_samples, eps, together * features.chunk, _BLOCK)
    return gram_sum(to_numpy(total.value), rows.norm_bound, slack)


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
    the proof of :func:`~dpsubspace._noise.gram_sum`, and twice the rounding of ``B^T phi`` more.
    """
    features, total = rows.features, DisjointTotal()
    k, like = basis.shape[1], features.lengths
    params = as_like(basis, like)

    def part(chunk: Any) -> BoundedSum:
        block = features.at(chunk)
        grads = OuterGradients(block, norms[chunk], block.scores(params), features.slack)
        return clipped_sum(grads, rows.norm_bound**2)

    chunks = features.chunks()
    with chunk_map(features.X, len(chunks)) as over_chunks:
        for bounded in over_chunks(part, chunks):
            total.add(bounded)
    summed = total.bounded_sum()
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
    features, total = rows.features, Total()
    xp, c = namespace(norms), rows.norm_bound
    params = as_like(basis, features.lengths)
    for chunk in features.chunks():
        z = xp.astype(features.at(chunk).scores(params), xp.float64)
        lengths = norms[chunk]
        absent = ~(xp.isfinite(lengths) & xp.all(xp.isfinite(z), axis=1))
        z = xp.where(absent[:, None], xp.zeros_like(z), z)
        squares = xp.where(absent, xp.zeros_like(lengths), xp.clip(lengths, max=c)) ** 2
        inside = xp.sum(z * z, axis=1) * (1 + (z.shape[1] + 4) * EPS)
        z = z * xp.where(inside > c**2, c / xp.sqrt(xp.clip(inside, min=c**2)), 1.0)[:, None]
        left = xp.clip(squares - inside, min=0.0)
        total.add(xp.concat([as_like(_packed(to_numpy(z.T @ z)), left), xp.sum(left)[None]]))
    slack = sum_slack(features.n_samples, EPS, features.chunk)
    return gram_sum(to_numpy(total.value), c, slack)


def _packed(matrix: np.ndarray) -> np.ndarray:
    """Upper triangle of a symmetric matrix, row by row, entries off the diagonal times sqrt(2).

    The norm of the vector is the Frobenius norm of the matrix.
    """
    p = len(matrix)
    packed = np.empty(p * (p + 1) // 2)
    for i, start in enumerate(_row_starts(p)):
        packed[start] = matrix[i, i]
        packed[start + 1 : start + p - i] = math.sqrt(2) * matrix[i, i + 1 :]
    return packed


def _symmetric(packed: np.ndarray) -> np.ndarray:
    """Matrix of which `packed` is the upper triangle."""
    p = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    matrix = np.empty((p, p))
    for i, start in enumerate(_row_starts(p)):
        matrix[i, i] = packed[start]
        matrix[i, i + 1 :] = packed[start + 1 : start + p - i] / math.sqrt(2)
        matrix[i + 1 :, i] = matrix[i, i + 1 :]
    return matrix


def _row_starts(p: int) -> np.ndarray:
    """Where the rows of a packed p x p triangle start."""
    return np.concatenate([[0], np.cumsum(np.arange(p, 1, -1))])


def released_moment(rows: Rows, noise_multiplier: float) -> tuple[np.ndarray, float]:
    """Release the mean of ``phi_i phi_i^T``, a symmetric matrix (p, p): Analyze Gauss.

    Returns
    -------
    moment : ndarray of shape (p, p)
        Noisy moment.
    scale : float
        Standard deviation s of the noise on its diagonal.

    Notes
    -----
    Noise of the packed triangle is a symmetric Gaussian matrix, of deviation s on the
    diagonal and s / sqrt(2) off it, which looks the same in every basis. Its spectral
    norm is about ``s sqrt(2 p)``, where the triangle of equal deviations of Dwork, Talwar,
    Thakurta, Zhang (2014, Algorithm 1) makes ``2 s sqrt(p)`` for the same privacy. Event:
    ``gaussian(noise_multiplier)``.
    """
    total, n = second_moment(rows), rows.features.n_samples
    noisy = rows.released(replace(total, value=_packed(total.value)), noise_multiplier, "moment")
    return _symmetric(noisy) / n, noise_multiplier * total.unit(rows.neighboring_relation) / n


# Mechanisms -----------------------------------------------------------------------------------


class Mechanism(Protocol):
    """How a subspace is found."""

    @property
    def pure(self) -> bool:
        """Whether it spends epsilon and no delta."""
        ...

    @property
    def recentres(self) -> bool:
        """Whether rows should be shifted by a mean and clipped to a radius about it first."""
        ...

    @property
    def forms_rows(self) -> bool:
        """Whether it uses rows as :meth:`FeatureBlock.formed` and in no other way."""
        ...

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, tuple[float, int]]:
        """Share of the budget and number of the releases of each name."""
        ...

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        """Bytes needed beside the rows, about, with or without public rows."""
        ...

    def noise(self, multipliers: Mapping[str, float], n_features: int) -> float:
        """Strength of the noise along its worst direction, about, in units of c^2."""
        ...

    def __call__(self, rows: Rows, n_components: int, multipliers: Mapping[str, float]) -> Spectrum:
        """Release a subspace with the multipliers of `parts`."""
        ...


@dataclass(frozen=True)
class AnalyzeGauss:
    """Eigenvectors of a noisy second moment (Dwork, Talwar, Thakurta, Zhang, 2014).

    One release, whatever the number of components; all eigenvalues come along.

    Parameters
    ----------
    recentres : bool
        Whether to ask for rows about their mean, nearly all of them clipped: what they have
        in common costs releases of vectors then, and the noise of the moment falls with the
        square of the radius.
    """

    recentres: bool
    pure = False
    forms_rows = True

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, tuple[float, int]]:
        """One release."""
        return {"moment": (1.0, 1)}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        """Six square matrices, or fourteen."""
        return (112.0 if public else 48.0) * n_features**2

    def noise(self, multipliers: Mapping[str, float], n_features: int) -> float:
        """Norm of a symmetric Gaussian matrix."""
        return multipliers["moment"] * math.sqrt(2 * n_features)

    def __call__(self, rows: Rows, n_components: int, multipliers: Mapping[str, float]) -> Spectrum:
        """Release the second moment; its spectrum is postprocessing."""
        moment, scale = released_moment(rows, multipliers["moment"])
        return _spectrum(moment, scale, rows, n_components, float(np.trace(moment)))


@dataclass(frozen=True)
class NoisyPower:
    """Block power iteration with noisy products (Hardt, Price, 2014), for many columns.

    No square matrix is formed. More directions than asked for are iterated, and the
    noisy second moment of the rows within these, which is small, tells which to keep. Each
    product is paid for, so there are few: one for every factor of 10 in the columns.
    """

    pure = False
    recentres = True
    forms_rows = False

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, tuple[float, int]]:
        """Products, and the moment within the subspace that they lead to."""
        n_iter = 4 if n_features is None else _n_products(n_features)
        return {"product": (0.9, n_iter), "projection": (0.1, 1)}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        """A few bases, and chunks of rows."""
        return 2.0**28 + 8.0 * 40 * n_features * _width(n_features, n_components)

    def noise(self, multipliers: Mapping[str, float], n_features: int) -> float:
        """Norm of a column of noise."""
        return multipliers["product"] * math.sqrt(n_features)

    def __call__(self, rows: Rows, n_components: int, multipliers: Mapping[str, float]) -> Spectrum:
        """Release some products and a small moment."""
        n_features = rows.features.width
        norms, width = rows.norms(), _width(n_features, n_components)
        basis = _start(n_features, width, rows.public)
        for i in range(_n_products(n_features)):
            total = product_with(rows, basis, norms)
            basis = np.linalg.qr(rows.released(total, multipliers["product"], f"product {i}"))[0]
        if rows.offset is not None:
            basis = np.linalg.qr(np.column_stack([rows.offset, basis[:, : n_features - 1]]))[0]
        total = projected_moment(rows, basis, norms)
        noisy = rows.released(total, multipliers["projection"], "projection")
        noisy = noisy / rows.features.n_samples
        scale = multipliers["projection"] * total.unit(rows.neighboring_relation)
        moment = _symmetric(noisy[:-1])
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

    def parts(self, n_components: int, n_features: int | None) -> Mapping[str, tuple[float, int]]:
        """One draw a component, and what lies along each: shares of epsilon here."""
        return {"direction": (0.9, n_components), "spectrum": (0.1, 1)}

    def memory(self, n_features: int, n_components: int, public: bool) -> float:
        """Eight square matrices."""
        return 64.0 * n_features**2

    def noise(self, multipliers: Mapping[str, float], n_features: int) -> float:
        """Expected loss of score of a draw."""
        return n_features / (2 * multipliers["direction"])

    def __call__(self, rows: Rows, n_components: int, multipliers: Mapping[str, float]) -> Spectrum:
        """Release `n_components` directions and the energies along them.

        Notes
        -----
        Privacy: rows projected to the complement of released directions are no longer than
        before, so every draw has the sensitivity of the first; energies are bounded by
        :func:`~dpsubspace._noise.energy_sum`.
        """
        total = second_moment(rows)
        p = len(total.value)
        options = {"neighboring_relation": rows.neighboring_relation}
        left, found = np.eye(p), np.empty((p, 0))  # an orthonormal basis of what is left
        for i in range(n_components):
            within = replace(total, value=left.T @ total.value @ left)
            noise = rows.noise.child(f"direction {i}")
            drawn = release_direction(within, multipliers["direction"], noise, **options)
            found = np.column_stack([found, left @ drawn])
            left = np.linalg.qr(found, mode="complete")[0][:, i + 1 :]
        energies = np.einsum("ij,ik,kj->j", found, total.value, found)
        energies = np.append(energies, np.trace(total.value) - energies.sum())
        rounding = total.norm_bound / rows.norm_bound**2 - 1
        noisy = release_laplace(
            energy_sum(energies, rows.norm_bound, math.sqrt(p) * rounding),
            multipliers["spectrum"],
            rows.noise.child("spectrum"),
            **options,
        )
        noisy = np.maximum(noisy, 0.0) / rows.features.n_samples
        order = np.argsort(-noisy[:-1], kind="stable")
        return Spectrum(found.T[order], noisy[:-1][order], float(noisy.sum()))


def _n_products(n_features: int) -> int:
    """Products with the second moment that find a subspace of so many columns."""
    return min(max(math.ceil(math.log10(n_features)), 2), 6)


def _width(n_features: int, n_components: int) -> int:
    """Directions to iterate for some components."""
    return min(n_features, 2 * n_components)


def _start(p: int, width: int, public: np.ndarray | None) -> np.ndarray:
    """Directions to start from: of public rows, then public random ones."""
    directions = np.random.default_rng(0).standard_normal((p, width))
    if public is not None:
        strongest = np.linalg.svd(public, full_matrices=False)[2][:width]
        directions[:, : len(strongest)] = strongest.T
    return np.linalg.qr(directions)[0]


def _spectrum(moment: np.ndarray, scale: float, rows: Rows, k: int, trace: float) -> Spectrum:
    """Strongest directions of a released moment with noise of `scale`: postprocessing.

    What clipping took from the lengths of the rows is given back to the energies, and not
    to the moment: its noise would grow along.
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
    """Shares of the variance along axes, from those of rows that were shrunk to one length.

    Unit vectors in the directions of normal rows with variances t_j, which add up to 1, have the
    energies ``t_j E[z_j^2 / sum_i t_i z_i^2]`` for standard normal z: nearer to each other than
    the variances are, and the more so the fewer axes there are. This is solved for t by
    iteration (Duerre, Vogel, Fried, 2015, of spatial sign covariance matrices). What lies
    along no known axis is taken to be spread over the others evenly.
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
    """Energies along eigenvectors of a noisy p x p matrix, from its eigenvalues; signs are kept.

    With symmetric Gaussian noise of `scale` a value t of a matrix of low rank shows as
    ``t + p s^2 / (2 t)`` where it is above the edge of the noise, ``s sqrt(2 p)``, and not at all
    below (Capitaine, Donati-Martin, Feral, 2009). Its vector is off by as much, so that
    ``t - p s^2 / (2 t)`` lies along it: the square root below (Gavish, Donoho, 2017).
    """
    return np.sign(values) * np.sqrt(np.maximum(values**2 - 2 * p * scale**2, 0.0))


def _with_public(moment: np.ndarray, scale: float, public: np.ndarray) -> np.ndarray:
    """Moment of private rows, given a noisy one and that of public rows: postprocessing.

    A random-effects model in the basis of the public moment, where its entries are about
    independent: each has the variance of its sampling, and all a common one more for
    rows that are not drawn alike (Paule, Mandel, 1982), which counts where the released moment
    tells of it beyond chance. Entries are weighted by these variances and that of the
    noise. Of what the weights take from the private moment, what stands out of the noise comes
    back.
    """
    m, p = public.shape
    values, vectors = np.linalg.eigh(public.T @ public / m)
    values = np.maximum(values, 0.0)
    # As with one row more, which has all directions: few rows know of few.
    known = (m * values + values.mean()) / (m + 1)
    shape = np.full((p, p), 0.5)  # of symmetric Gaussian noise
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
    """Variance beta for which ``sum squares / (expected + beta shape)`` is their number.

    Zero where that sum, at beta = 0, is not above their number by three standard deviations.
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
}
