"""Per-example gradients that are formed: rows of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._array import BLOCK, EPS, Array, device, namespace, row_norms, run_sums, slices
from dpsubspace._gradients.clipping import LONGEST

__all__ = ["DenseGradients"]

# Entries of rows that are converted to float64 at once (64 MiB).
_WIDE = 1 << 23


@dataclass(frozen=True)
class DenseGradients:
    """Gradients as the rows of a matrix, added up in float64.

    Parameters
    ----------
    rows : array of shape (k, p)
        One gradient a row, in float32 or float64.
    params_shape : tuple of int
        Shape of the parameters, of p entries.
    present : boolean array of shape (k,), optional
        False for null records.
    rounding : float
        Slack of their sum over all records.
    shares : array of shape (k,), optional
        Part of its record that each row is; None where each is one.
    """

    rows: Array
    params_shape: tuple[int, ...]
    present: Array | None = None
    rounding: float = 0.0
    shares: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of the parameters."""
        return (self.rows.shape[0], *self.params_shape)

    def norms(self) -> Array:
        """Norms of the rows, never rounded down; inf for null records and rows out of range."""
        xp = namespace(self.rows)
        if self.rows.shape[0] == 0:
            return xp.zeros(0, dtype=xp.float64, device=device(self.rows))
        norms = row_norms(self.rows)
        counts = norms <= LONGEST  # never true of NaN
        if self.present is not None:
            counts = counts & self.present
        return xp.where(counts, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        """``weights @ rows`` in float64; weight zero adds zero, also of a row not finite."""
        xp = namespace(self.rows)
        k, p = self.rows.shape
        total = xp.zeros(p, dtype=xp.float64, device=device(self.rows))
        weights = xp.astype(weights, xp.float64)
        for some in slices(k, max(1, min(BLOCK, _WIDE // p))):
            rows, absent = xp.astype(self.rows[some, :], xp.float64), weights[some] == 0
            if bool(xp.any(absent)):
                rows = xp.where(absent[:, None], xp.zeros_like(rows), rows)
            total += weights[some] @ rows
        return xp.reshape(total, self.params_shape)

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        """Weighted sums of runs of rows."""
        return run_sums(self.rows, weights, counts)

    def slack(self) -> float:
        """Return what the source says."""
        return self.rounding

    def wide_slack(self) -> float:
        """Return the same: rows are added up in float64."""
        return self.rounding

    def inner(self, anchors: Any) -> tuple[Array, float]:
        """Products with the rows of `anchors` in float64, (k, m), and their relative error."""
        xp = namespace(self.rows)
        (k, p), m = self.rows.shape, anchors.rows.shape[0]
        total = xp.zeros((k, m), dtype=xp.float64, device=device(self.rows))
        for some in slices(p, max(1, _WIDE // max(1, k + m))):
            ours, theirs = self.rows[:, some], anchors.rows[:, some]
            total += xp.astype(ours, xp.float64) @ xp.astype(theirs, xp.float64).T
        return total, (p + 8) * EPS

    def dot(self, gradient: Array) -> Array:
        """Products with one gradient in float64, (k,)."""
        xp = namespace(self.rows)
        one = xp.reshape(xp.astype(gradient, xp.float64), (-1, 1))
        return self.inner(DenseGradients(one.T, self.params_shape))[0][:, 0]

    def part(self, group: Any) -> DenseGradients:
        """Gradients by some of the parameters of a flat vector."""
        rows = self.rows[:, group]
        return replace(self, rows=rows, params_shape=(rows.shape[1],))

    def formed(self) -> Array:
        """Return the rows in float64."""
        xp = namespace(self.rows)
        return xp.astype(self.rows, xp.float64)
