"""Exact draws from Bingham distributions of random directions and subspaces.

A direction x has a density proportional to ``exp(x' A x)``, and a subspace one proportional to
``exp(tr(X' A X))`` for any orthonormal basis X of it, which is drawn column by column.

Pure mathematics; the privacy proofs of a draw are where it is used,
:func:`dpsubspace._core.release.mechanisms.release_direction` and
:func:`dpsubspace._core.release.mechanisms.release_subspace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

# Proposals of one batch, a constant: the number of proposals of a draw reveals something about the
# matrix, and an attacker who can time it should learn as little as possible.
_BATCH = 32

# For the worst matrix (a single spike) about 0.9 / sqrt(p) of all proposals are accepted, so that a
# draw from any matrix that fits into memory fails with a probability below 1e-300.
_MOST_BATCHES = 10_000


def sample_bingham(
    matrix: np.ndarray,
    normals: Callable[[tuple[int, ...]], np.ndarray],
    uniforms: Callable[[tuple[int, ...]], np.ndarray],
) -> np.ndarray:
    """Draw a unit vector x with density proportional to ``exp(x' A x)`` on the sphere.

    A of shape (p, p) is finite, and only its symmetric part matters. `normals` and `uniforms` are
    functions that return independent standard normals, and uniforms on (0, 1), of a shape.

    ValueError if A is not square and finite. RuntimeError if no proposal of very many was accepted:
    `normals` or `uniforms` is broken.

    The rejection sampler of Kent, Ganeiber and Mardia (2018). Let ``a_j >= 0`` be the largest
    eigenvalue of A less the j-th, so that in the eigenbasis the density is
    ``exp(-sum_j a_j x_j^2)``. For any b in (0, p] and g a vector of standard normals,
    ``z_j = g_j sqrt(b / (b + 2 a_j))`` over its norm has the angular central Gaussian
    density, proportional to ``w^(-p/2)`` with ``w = 1 + 2 sum_j a_j x_j^2 / b``. Target over
    envelope is, up to a constant, ``exp(-b w / 2) w^(p/2)``, which is largest at
    ``w = p / b``. With ``y = b w / p`` the log of the probability to accept is therefore

        (p / 2) (1 - y + log y) <= 0,  where w = |g|^2 / |z|^2,

    since ``|z|^2 w = sum_j z_j^2 (1 + 2 a_j / b) = |g|^2``. The power of w multiplies: an
    acceptance probability that divides by it would draw from ``exp(-sum_j a_j x_j^2) w^(-p)``,
    which is more concentrated and costs more privacy than stated. Nothing here overflows, however
    far apart the eigenvalues are.

    The draw is exact for any b: the precision of b only affects the number of rejected proposals.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"a Bingham matrix must be square, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("a Bingham matrix must be finite.")
    values, vectors = np.linalg.eigh(matrix / 2 + matrix.T / 2)
    x = vectors @ draw_from_gaps(values[-1] - values, normals, uniforms)
    return x / np.linalg.norm(x)


def draw_from_gaps(
    gaps: np.ndarray,
    normals: Callable[[tuple[int, ...]], np.ndarray],
    uniforms: Callable[[tuple[int, ...]], np.ndarray],
) -> np.ndarray:
    """As :func:`sample_bingham`, in the eigenbasis: density ``exp(-sum_j gaps_j x_j^2)``."""
    p = len(gaps)
    b = _best_b(gaps)
    shrinkage = np.sqrt(b / (b + 2 * gaps))
    for _ in range(_MOST_BATCHES):
        g = normals((_BATCH, p))
        z = g * shrinkage
        y = (b / p) * (g**2).sum(axis=1) / (z**2).sum(axis=1)
        accepted = np.flatnonzero(np.log(uniforms((_BATCH,))) <= (p / 2) * (1 - y + np.log(y)))
        if len(accepted):
            x = z[accepted[0]]
            return x / np.linalg.norm(x)
    raise RuntimeError(
        f"none of {_BATCH * _MOST_BATCHES} proposals for a direction was accepted, which does not"
        " happen: the source of randomness is broken."
    )


def _best_b(gaps: np.ndarray) -> float:
    """The b in [1, p] with ``sum_j 1 / (b + 2 gaps_j) = 1``, which maximises acceptance.

    The sum falls with b, from at least 1 at b = 1 (the least gap is 0) to at most 1 at p.
    """
    low, high = 1.0, float(len(gaps))
    for _ in range(60):
        middle = (low + high) / 2
        if (1 / (middle + 2 * gaps)).sum() > 1:
            low = middle
        else:
            high = middle
    return high


Draws = Callable[[tuple[int, ...]], np.ndarray]

# Points of the contour integral of a normaliser: 400 give a precision of 1e-9 in 1,000 dimensions.
_POINTS = 400

# Largest error of the computed logarithms of an integral and of its bound, together.
_ERROR = 1e-8

# Rounds in which exponents and expected columns are adapted to each other.
_ROUNDS = 4


def sample_matrix_bingham(
    matrix: np.ndarray, n_components: int, normals: Draws, uniforms: Draws
) -> np.ndarray:
    """Draw a subspace of k dimensions with density proportional to ``exp(tr(X' A X))``.

    The density is against the uniform distribution of subspaces, and X is any orthonormal basis (p,
    k). A of shape (p, p) is finite, and only its symmetric part matters. The returned basis must
    not be published: it depends on A as well as on the subspace.

    The density of :func:`~dpsubspace._core.release.bingham.sample_bingham` for k = 1. For larger k,
    a rejection sampler draws proposals column by column, each from a vector Bingham distribution:

    1. *Coordinates.* In the eigenbasis of A, with the largest eigenvalues first, nearly every
       subspace has one basis whose first k rows are a positive definite matrix. The other
       rows U are of shape (n, k), n = p - k. For a uniform subspace they have a density
       proportional to ``|I - U'U|^(-1/2)`` where ``U'U < I`` (Eaton, 1989, Proposition 7.3, for
       the block of a uniform basis, which is U times a rotation that is independent of U). Up to
       a constant ``tr(X' A X)`` is ``-sum_ij D_ij U_ij^2``, with D_ij >= 0 the j-th eigenvalue
       less the (k + i)-th, since the first k rows times their transpose are ``I - U'U`` too.
    2. *Columns.* With ``R_1 = I``, ``u_j = R_j v_j`` and ``R_(j+1) = R_j (I - v_j v_j')^(1/2)``,
       ``R_j R_j' = I - sum_(l < j) u_l u_l'`` and ``|I - U'U| = prod_j (1 - |v_j|^2)``. As
       ``du_j = |R_j| dv_j``, the density of v is the product over j of
       ``(1 - |v_j|^2)^((k - j - 1) / 2) exp(-v_j' B_j v_j)`` on unit balls, with
       ``B_j = R_j' diag(D_j) R_j``.
    3. *Proposals.* v_j is drawn in proportion to
       ``(1 - |v|^2)^((r_j - 1) / 2) exp(-v' B_j v)``, with ``r_j = k - j - sum_(l > j) t_l`` for
       exponents t_l in [0, 1]. With c_j(B) the integral of this function, target over proposal is
       the product over j > 1 of ``c_j(B_j) |R_j|^t_j``: the remaining powers are those of
       ``|R_l|^2 = prod_(j < l) (1 - |v_j|^2)``.
    4. *Bounds.* Each of these factors has a bound that holds for all columns before it
       (:func:`_bounded`). So column j is kept with a probability of factor over bound; if a column
       is rejected, all columns are drawn anew.

    Any exponents give the same distribution; their choice only affects the number of rejected
    proposals. With the sum of ``x x'`` over 1,797 digits times epsilon for A, 0.67, 0.36, 0.24 and
    0.0025 of all proposals are accepted at k = 8 and epsilons of 0.1, 0.3, 1 and 3
    (``benchmarks/pages/regression.md``). The acceptance is far lower where more than k eigenvalues
    are equal and far above the others. The number of proposals is unlimited: to give up would be an
    event whose probability depends on A.

    ValueError if A is not square and finite, or k not between 1 and p.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"a Bingham matrix must be square, got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("a Bingham matrix must be finite.")
    p, k = len(matrix), n_components
    if not 1 <= k <= p:
        raise ValueError(f"a subspace of {p} dimensions has from 1 to {p}, got {k}.")
    values, vectors = np.linalg.eigh(matrix / 2 + matrix.T / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    if k == p:
        return vectors
    # Beyond 1e100 an axis is not in the subspace, up to rounding.
    gaps = np.clip(values[:k, None] - values[None, k:], 0.0, 1e100)
    # Below 1e-100 a gap does not change the density, and its square would be out of range.
    gaps[gaps < 1e-100] = 0.0
    columns = _fitted(gaps)
    while True:
        rows = _proposal(columns, normals, uniforms)
        if rows is not None:
            return vectors @ _basis(rows)


@dataclass(frozen=True)
class _Column:
    gaps: np.ndarray  # (n,): D_j, in ascending order
    power: float  # r_j
    exponent: float  # t_j
    log_bound: float  # bound on the factor c_j(B_j) |R_j|^t_j


def _proposal(columns: list[_Column], normals: Draws, uniforms: Draws) -> np.ndarray | None:
    """Return U (n, k) of a proposal if it is accepted, or None."""
    n = len(columns[0].gaps)
    root, log_root, rows = np.eye(n), 0.0, np.empty((n, len(columns)))
    for j, column in enumerate(columns):
        values, vectors = _of_column(root, column.gaps)
        if j:
            log_factor = _log_integral(values, column.power) + column.exponent * log_root
            if math.log(uniforms((1,))[0]) > log_factor - column.log_bound:
                return None
        v = vectors @ _in_ball(values, column.power, normals, uniforms)
        left = 1 - v @ v
        if not left > 0:  # so near to the edge that it rounds to 0
            return None
        rows[:, j] = root @ v
        root = root - np.outer(rows[:, j], v) / (1 + math.sqrt(left))
        log_root += math.log(left) / 2
    return rows


def _of_column(root: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh((root.T * gaps) @ root)
    return np.maximum(values, 0.0), vectors


def _in_ball(values: np.ndarray, power: float, normals: Draws, uniforms: Draws) -> np.ndarray:
    """Draw v in proportion to ``(1 - |v|^2)^((power - 1) / 2) exp(-sum_i values_i v_i^2)``.

    For a whole power r these are all but the first r + 1 coordinates of a unit vector from a
    Bingham distribution; the fractional part of a power becomes an acceptance probability.
    """
    more = math.floor(power) + 1
    gaps = np.concatenate([np.zeros(more), values])
    while True:
        x = draw_from_gaps(gaps, normals, uniforms)
        if uniforms((1,))[0] <= (x[:more] @ x[:more]) ** ((power + 1 - more) / 2):
            return x[more:]


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns (k + n, k) with given last n rows and positive definite first k rows."""
    inside, turned = np.linalg.eigh(np.eye(rows.shape[1]) - rows.T @ rows)
    top = (turned * np.sqrt(np.maximum(inside, 0.0))) @ turned.T
    return np.vstack([top, rows])


# Integrals and their bounds ---------------------------------------------------------------------


def _log_integral(values: np.ndarray, power: float) -> float:
    return _log_integral_and_squares(values, power)[0]


def _log_integral_and_squares(values: np.ndarray, power: float) -> tuple[float, np.ndarray]:
    """Logarithm of the integral c of ``(1 - |v|^2)^((power - 1) / 2) exp(-v' B v)``, and E v_i^2.

    `values` are the eigenvalues of B. With ``w = power + 1`` it is proportional to the inverse
    Laplace transform ``exp(s) s^(-w / 2) prod_i (s + b_i)^(-1/2)`` at 1, an integral along a
    parabola through the saddle point, by the trapezoidal rule, whose error falls exponentially.
    """
    n, w = len(values), power + 1
    gaps, counts = np.append(0.0, values), np.append(w, np.ones(n))
    low, high = w / 4, (n + w) / 2
    m = high
    for _ in range(25):  # approximate saddle point: sum counts / (m + gaps) = 2
        m = (low + high) / 2
        low, high = (m, high) if (counts / (m + gaps)).sum() > 2 else (low, m)
    focus = math.sqrt(m + min(gaps.max(), 2 * (n + w)))
    width = 1 / (math.sqrt(2) * focus * math.sqrt((counts / (m + gaps) ** 2).sum()))
    u = np.linspace(0, math.asinh(9 / width), _POINTS)
    v, dv = width * np.sinh(u), width * np.cosh(u) * u[1]
    dv[0] /= 2  # the other half is the mirror image
    s = (focus + 1j * v) ** 2 - focus**2  # relative to the saddle point
    weights = np.exp(s - 0.5 * np.log1p(s[:, None] / (m + gaps)) @ counts) * (focus + 1j * v) * dv
    total = float(weights.sum().real)
    squares = (weights @ (0.5 / (m + values + s[:, None]))).real / total
    log_density = m - 0.5 * float(counts @ np.log(m + gaps)) + math.log(2 * total / math.pi)
    return log_density + n / 2 * math.log(math.pi) + float(gammaln(w / 2)), squares


def _bounded(gaps: np.ndarray, j: int, power: float, log_det: float) -> tuple[float, float]:
    """Exponent t and the log of a bound on ``c(B) |R|^t``, for the j-th column of proposals.

    The bound is over ``B = R' diag(D) R`` with ``R R' = I - U'U`` for any j columns U, from 0 on,
    and D the sorted `gaps`. `log_det`, the expected ``log |R R'|``, decides which t is good.

    Proof. The eigenvalues b of B have ``D_(i - j) <= b_i <= D_i``, with 0 in place of indices
    before the first (Weyl: ``D^(1/2) U U' D^(1/2)`` has rank j). ``log |R|^2`` is at most ``sum_i
    log(b_i / D_i)`` over the D_i > 0 (with equality if all are, and by Fischer's inequality else).
    So the factor is at most ``log c + (t / 2) sum_i (y_i - log D_i)`` for ``y_i = log b_i`` in a
    box. For r >= 1 this is concave in y: in ``x_i = log |v_i|`` the integrand of c, ``exp(sum_i x_i
    - sum_i exp(y_i + 2 x_i))`` times the power of ``1 - |v|^2``, is log-concave in x and y
    together, and so is its integral over x (Prekopa, 1973). A concave function is below its tangent
    at any point, and a tangent is largest at a corner of the box. The gradient is ``t / 2 - b_i E
    v_i^2``; where the box has no lower end (b_i may be 0) it is not negative, so that the upper end
    is the corner.

    For r < 1, c is that of r = 1 times a factor that falls as any b_i rises, so that its value at
    the lower corner bounds it. Its logarithm has the derivative ``E_1 v_i^2 - E_r v_i^2``. These
    means fall with r, by induction over the number of coordinates. The density of ``q = v_i^2`` is
    proportional to ``q^(-1/2) exp(-b_i q) g_r(1 - q)``, with ``g_r(t)`` the integral over the other
    coordinates on a sphere of radius ``t^(1/2)``. For s > r, ``log(g_s / g_r)`` rises with t: its
    derivative is ``(s - r) / (2 t)`` plus the decrease of the mean of the exponent, which is zero
    for one coordinate and not negative for more, by the claim for one coordinate less. So the ratio
    of the densities of q falls with q, and so does the mean.
    """
    n = len(gaps)
    lowest = np.concatenate([np.zeros(min(j, n)), gaps[: max(n - j, 0)]])
    level = _level(gaps, lowest, log_det)
    b = np.clip(level, lowest, gaps)
    smooth = max(power, 1.0)
    log_c, squares = _log_integral_and_squares(b, smooth)
    slopes = 2 * b * squares
    free, open_ = (b > lowest) & (b < gaps), lowest == 0
    exponent = slopes[free].max() if free.any() else slopes.max(initial=0.0)
    exponent = min(1.0, max(exponent, slopes[open_].max(initial=0.0)))
    gradient = (exponent - slopes) / 2
    known = gaps > 0
    ends = np.where((gradient > 0) | open_, gaps, lowest)[known]
    log_bound = log_c + exponent / 2 * float(np.log(b[known] / gaps[known]).sum())
    log_bound += float((gradient[known] * np.log(ends / b[known])).sum())
    if power < 1:
        log_bound += _log_integral(lowest, power) - _log_integral(lowest, 1.0)
    return float(exponent), log_bound + _ERROR


def _level(gaps: np.ndarray, lowest: np.ndarray, log_det: float) -> float:
    """Level at or above `lowest` at which to cut gaps off, so that their logs fall by `log_det`.

    There the derivative by t of the bound equals that of the expected factor: t is optimal.
    """
    known = gaps > 0
    low, high = 1e-12 * float(gaps.max()), float(gaps.max())
    for _ in range(60):
        middle = math.sqrt(low * high)
        b = np.clip(middle, lowest, gaps)[known]
        low, high = (middle, high) if np.log(b / gaps[known]).sum() < log_det else (low, middle)
    return high


def _fitted(gaps: np.ndarray) -> list[_Column]:
    """Columns with exponents that suit the expected columns before them."""
    k, n = gaps.shape
    powers = np.arange(k - 1.0, -1.0, -1.0)
    columns: list[_Column] = []
    for _ in range(_ROUNDS):
        root, log_det, log_dets = np.eye(n), 0.0, []
        for own, power in zip(gaps, powers, strict=True):
            log_dets.append(log_det)
            values, vectors = _of_column(root, own)
            squares = _log_integral_and_squares(values, power)[1].clip(0.0, 1 - 1e-9)
            root = root @ (vectors * np.sqrt(1 - squares))
            log_det += math.log(max(1 - float(squares.sum()), 1e-12))
        columns, taken = [], 0.0
        for j in range(k - 1, -1, -1):
            powers[j] = max(k - 1 - j - taken, 0.0)
            at = (0.0, 0.0) if j == 0 else _bounded(gaps[j], j, powers[j], log_dets[j])
            columns.insert(0, _Column(gaps[j], powers[j], *at))
            taken += at[0]
    return columns
