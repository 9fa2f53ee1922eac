"""Maps that bound rows before anything is learned from them.

A :class:`RowMap` looks at one row at a time, so it costs no privacy: whatever a record
is, its image is bounded, and no other record is needed to compute it. A :class:`Shift`
is made of released values only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsubspace._array import Array, as_like, namespace, row_chunks

__all__ = ["ROW_NORMS", "RowMap", "Shift"]

ROW_NORMS = ("l2", "clip", None)


@dataclass(frozen=True, kw_only=True)
class RowMap:
    """Append the bias entry to each row, then bound the two together.

    Scaling a row together with its bias entry multiplies every affine score
    ``w @ x + b`` of that row by one positive number, so each affine decision boundary
    of the original rows is a linear one of the mapped rows, and rows of one feature
    do not collapse to their sign.

    Parameters
    ----------
    norm : {"l2", "clip", None}
        ``"l2"`` divides (x, bias) by its norm; ``"clip"`` shrinks (x, bias) by the
        factor that brings the norm of x down to `data_norm`, where it is above;
        None leaves rows as they are.
    data_norm : float or None
        Public bound on the norm of x, for ``"clip"``.
    bias : float or None
        Public value of the bias entry; None appends no entry.
    """

    norm: str | None
    data_norm: float | None = None
    bias: float | None = None

    @property
    def bound(self) -> float:
        """Most that the norm of a mapped row can be (inf where rows are left alone)."""
        if self.norm == "l2":
            return 1.0
        if self.norm == "clip":  # the bias entry may round up in the dtype of the rows
            return float(np.hypot(self.data_norm or 0.0, (self.bias or 0.0) * (1 + 1e-6)))
        return np.inf

    def __call__(self, X: Array) -> Array:
        """Mapped rows of `X`, a new array of shape (n_samples, n_features [+ 1])."""
        xp = namespace(X)
        width = X.shape[1] + (self.bias is not None)
        out = xp.empty((X.shape[0], width), dtype=X.dtype)
        for rows in row_chunks(X):
            out[rows, :] = self._map(xp, X[rows, :], width)
        return out

    def _map(self, xp, X: Array, width: int) -> Array:
        block = xp.empty((X.shape[0], width), dtype=xp.float64)
        block[:, : X.shape[1]] = X
        if self.bias is not None:
            block[:, X.shape[1] :] = self.bias
        if self.norm is None:
            return xp.astype(block, X.dtype)
        # Norms are taken of what bounds the row: all of it, or (to clip) its features.
        measured = block if self.norm == "l2" else block[:, : X.shape[1]]
        largest = xp.max(xp.abs(measured), axis=1)[:, None]
        largest = xp.where(largest > 0, largest, xp.ones_like(largest))
        scaled = measured / largest  # entries in [-1, 1]: squares neither overflow nor vanish
        norms = xp.sqrt(xp.sum(scaled * scaled, axis=1))[:, None]
        # Casting rounds entries up by at most eps/2: shrink first, so that the bound
        # holds for the numbers that are actually summed.
        shrink = 1 - 2 * float(xp.finfo(X.dtype).eps)
        if self.norm == "l2":
            mapped = scaled * (shrink / xp.where(norms > 0, norms, xp.ones_like(norms)))
        else:
            limit = shrink * float(self.data_norm or 0.0)
            over = norms > limit / xp.clip(largest, min=1e-200)  # no overflow at denormals
            ones = xp.ones_like(norms)
            factor = limit / xp.where(over, norms, ones)
            mapped = xp.where(over, block / xp.where(over, largest, ones) * factor, block)
        return xp.astype(mapped, X.dtype)


@dataclass(frozen=True)
class Shift:
    """Rows less a released mean, with a constant entry appended.

    Parameters
    ----------
    mean : ndarray of shape (width,)
        Released mean of the mapped rows.
    constant : float or None
        Public value of the constant entry; None appends none.
    """

    mean: np.ndarray
    constant: float | None

    def apply(self, rows: Array) -> Array:
        """Shifted rows, a new array of shape (n_samples, width [+ 1])."""
        xp = namespace(rows)
        width = rows.shape[1]
        out = xp.empty((rows.shape[0], width + (self.constant is not None)), dtype=rows.dtype)
        mean = as_like(self.mean, rows)
        for chunk in row_chunks(rows):
            out[chunk, :width] = rows[chunk, :] - mean
        if self.constant is not None:
            out[:, width] = self.constant
        return out

    def undo(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (width, c) and offset (c,) with the same scores on unshifted rows.

        ``W @ (r - m) + c k = W @ r + (c k - W @ m)`` (Sun, Suresh, Menon, 2024, Lemma 5).
        """
        width = len(self.mean)
        offset = -(self.mean @ weights[:width])
        if self.constant is not None:
            offset = offset + self.constant * weights[width]
        return weights[:width], offset
