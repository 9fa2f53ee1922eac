"""Exact draws from the Bingham distribution: a random direction that prefers large ``x' A x``.

Pure mathematics; what makes a draw private is said where it is used,
:func:`dpsubspace._core.release.mechanisms.release_direction`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Proposals of one batch, a constant: how many a draw looks at says something about the
# matrix, and whoever can time it should learn as little as possible.
_BATCH = 32

# At the worst matrix about 0.9 / sqrt(p) of all proposals are accepted (a single spike), so
# that a draw from any matrix that fits into memory fails with a probability below 1e-300.
_MOST_BATCHES = 10_000


def sample_bingham(
    matrix: np.ndarray,
    normals: Callable[[tuple[int, ...]], np.ndarray],
    uniforms: Callable[[tuple[int, ...]], np.ndarray],
) -> np.ndarray:
    """Draw a unit vector x with density proportional to ``exp(x' A x)`` on the sphere.

    A of shape (p, p) is finite, and only its symmetric part matters. `normals` and `uniforms` give
    independent standard normals, and uniforms on (0, 1), of a shape.

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

    since ``|z|^2 w = sum_j z_j^2 (1 + 2 a_j / b) = |g|^2``. The power of w multiplies; an
    acceptance probability that divides by it draws from ``exp(-sum_j a_j x_j^2) w^(-p)``, which
    is more concentrated and costs more privacy than it says. Nothing here overflows,
    however far apart the eigenvalues are.

    The draw is exact for any b: how well b is solved for decides only how many
    proposals are rejected.
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
    """The b in [1, p] with ``sum_j 1 / (b + 2 gaps_j) = 1``, at which most is accepted.

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
