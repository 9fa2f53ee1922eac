"""Array namespace, dtype and the few sums that need care with either.

Arithmetic in this package is written once against the array API standard, so that
the same lines run on NumPy and on any library whose arrays follow it. Norms are computed
in float64 whatever the dtype of the data.

Design note. Rounding is part of a sum's sensitivity: in a float32 sum of a million
rows, one row can change how every later addition is rounded and so move the result by a
thousand times its own size. Sums over records are therefore taken in short blocks whose
results are added in float64. A changed record changes one block only, so rounding
can move the sum by no more than :func:`sum_slack`, which the bounds include. This assumes
that matrix products (of blocks, and of rows with weights) give the same result for the
same numbers, with one number of threads: OpenBLAS does, MKL where MKL_CBWR is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

__all__ = [
    "EPS",
    "Array",
    "as_like",
    "column_sums",
    "namespace",
    "row_chunks",
    "row_norms",
    "row_product",
    "sum_slack",
]

Array = Any

# Rows are visited in chunks of about this many entries (32 MiB of float64), so that
# float64 temporaries of float32 data stay small beside the data.
_CHUNK_ENTRIES = 1 << 22

EPS = float(np.finfo(np.float64).eps)

# Records that are added up in the dtype of the data before float64 takes over.
_BLOCK = 256


def namespace(x: Array) -> Any:
    """Array API namespace of `x`."""
    return array_namespace(x)


def as_like(values: np.ndarray, like: Array) -> Array:
    """Move NumPy `values` to the namespace, device and dtype of `like`."""
    xp = namespace(like)
    return xp.asarray(values, dtype=like.dtype, device=device(like))


def row_chunks(X: Array) -> list[slice]:
    """Slices that cover the rows of `X`, each of bounded size."""
    n, d = X.shape
    step = max(1, _CHUNK_ENTRIES // max(1, d))
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def row_norms(X: Array) -> Array:
    """Euclidean norms of the rows of `X` in float64, never too small.

    Each row is divided by its largest entry first: rows of 1e300 and of 1e-300 get their
    norm and not inf or 0.
    """
    xp = namespace(X)
    parts = []
    for rows in row_chunks(X):
        block = xp.astype(X[rows, :], xp.float64)
        largest = xp.max(xp.abs(block), axis=1)
        unit = xp.where(largest > 0, largest, xp.ones_like(largest))
        block = block / unit[:, None]
        # Rounded up by more than a sum of d squares, in any order, can lose.
        parts.append(unit * xp.sqrt(xp.sum(block * block, axis=1)) * (1 + X.shape[1] * EPS))
    return xp.concat(parts)


def row_product(X: Array, R: Array) -> Array:
    """X^T R of shapes (n, d) and (n, c) in float64, added up in blocks of rows.

    Within :func:`sum_slack` of the exact product in the sense given there.
    """
    xp = namespace(X)
    (n, d), c = X.shape, R.shape[1]
    whole = n - n % _BLOCK
    total = xp.zeros((c, d), dtype=xp.float64)
    step = _BLOCK * max(1, _CHUNK_ENTRIES // (c * d))
    for start in range(0, whole, step):
        rows = slice(start, min(start + step, whole))
        blocks_X = xp.reshape(X[rows, :], (-1, _BLOCK, d))
        blocks_R = xp.reshape(R[rows, :].T, (c, -1, _BLOCK))
        products = xp.matmul(xp.permute_dims(blocks_R, (1, 0, 2)), blocks_X)
        total = total + xp.sum(products, axis=0, dtype=xp.float64)
    if whole < n:
        total = total + xp.astype(R[whole:, :].T @ X[whole:, :], xp.float64)
    return total.T


def column_sums(X: Array) -> Array:
    """Sum of the rows of `X` in float64, added up in blocks of rows."""
    xp = namespace(X)
    n, d = X.shape
    whole = n - n % _BLOCK
    total = xp.zeros(d, dtype=xp.float64)
    step = _BLOCK * max(1, _CHUNK_ENTRIES // (_BLOCK * d))
    for start in range(0, whole, step):
        blocks = xp.reshape(X[start : min(start + step, whole), :], (-1, _BLOCK, d))
        total = total + xp.sum(xp.sum(blocks, axis=1, dtype=xp.float64), axis=0)
    return total + xp.sum(X[whole:, :], axis=0, dtype=xp.float64)


def sum_slack(n_rows: int, eps: float) -> float:
    """How far rounding can move a sum between neighbours, relative to its largest term.

    Parameters
    ----------
    n_rows : int
        Terms of the sum, public.
    eps : float
        Machine epsilon of the dtype in which blocks are added up.

    Notes
    -----
    Proof: a sum of k terms of norm at most C, added in any order with unit roundoff
    u = eps / 2, is off by at most ``k u / (1 - k u)`` times the sum of the norms, so by about
    ``k^2 u C`` (Higham, 2002, section 4.2, by columns). Neighbours share all blocks but
    one of k = 256 rows, which is off by that much in each of them; adding the blocks up in
    float64 is off by at most ``(n / k) u' n C`` more in each.
    """
    block = min(n_rows, _BLOCK) + 1
    # A percent on top covers the denominators 1 - k u and the products' own rounding.
    return 1.01 * (block**2 * eps + (n_rows / _BLOCK + 1) * n_rows * EPS)
