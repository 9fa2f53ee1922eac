"""Array namespace, dtype and the few products that need care with either.

Arithmetic in this package is written once against the array API standard, so that
the same lines run on NumPy and on any library whose arrays follow it. What a
*bound* depends on (norms) is computed in float64 whatever the dtype of the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

__all__ = ["Array", "as_like", "namespace", "row_chunks", "row_norms"]

Array = Any

# Rows are visited in chunks of about this many entries (32 MiB of float64), so that
# float64 temporaries of float32 data stay small beside the data.
_CHUNK_ENTRIES = 1 << 22


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
    """Euclidean norms of the rows of `X` in float64, without overflow or underflow.

    Each row is divided by its largest entry first, so that rows of 1e300 and of
    1e-300 get their norm and not inf or 0.
    """
    xp = namespace(X)
    parts = []
    for rows in row_chunks(X):
        block = xp.astype(X[rows, :], xp.float64)
        largest = xp.max(xp.abs(block), axis=1)
        unit = xp.where(largest > 0, largest, xp.ones_like(largest))
        block = block / unit[:, None]
        parts.append(unit * xp.sqrt(xp.sum(block * block, axis=1)))
    return xp.concat(parts)
