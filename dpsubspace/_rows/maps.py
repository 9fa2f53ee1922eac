"""Maps that bound rows before anything is learned from them.

A :class:`RowMap` looks at one row at a time, so it costs no privacy: whatever a record
is, its image is bounded, and no other record is needed to compute it. A :class:`Shift`
is made of released values only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from dpsubspace._array import (
    EPS,
    Array,
    at_least,
    chunk_rows,
    eps_of,
    namespace,
    row_norms,
)
from dpsubspace._rows.chunks import Slices, over_chunks

__all__ = ["ROW_NORMS", "RowMap", "Shift"]

ROW_NORMS = ("l2", "clip", None)


@dataclass(frozen=True, kw_only=True)
class RowMap:
    """Append the bias entry to each row, then bound the two together by one factor.

    Scaling a row together with its bias entry multiplies every affine score
    ``w @ x + b`` of that row by one positive number, so each affine decision boundary
    of the original rows is a linear one of the mapped rows, and rows of one feature
    do not collapse to their sign.

    Parameters
    ----------
    norm : {"l2", "clip", "ball", None}
        ``"l2"`` divides (x, bias) by its norm; ``"clip"`` shrinks (x, bias) by the
        factor that brings the norm of x down to `data_norm`, where it is above;
        ``"ball"`` does that and divides by `data_norm`; None leaves rows as they are.
    data_norm : float or None
        Public or released bound on the norm of x, for ``"clip"`` and ``"ball"``.
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
        if self.norm == "clip":
            return float(np.hypot(self.data_norm or 0.0, self.bias or 0.0))
        if self.norm == "ball":
            return float(np.hypot(1.0, (self.bias or 0.0) / (self.data_norm or 1.0)))
        return np.inf

    def factors(self, X: Array) -> tuple[Array, Array]:
        """Factor of each row and norm of the mapped row, both float64 of shape (n,).

        A row too long for sums in its dtype (with its bias entry above 1e30 in float32, 1e290 in
        float64), or one whose factor would leave that range, counts as a row of zeros,
        its bias entry included; so do all rows where the bound itself is below that range.
        """
        norms = _all_norms(X)
        xp = namespace(norms)
        joint = xp.hypot(norms, xp.full_like(norms, self.bias or 0.0)) * (1 + 4 * EPS)
        # Rounded in the dtype of the rows, a factor grows by at most eps / 2: shrink first,
        # so that the bound holds for the numbers that are used.
        shrink = 1 - 4 * eps_of(X)
        if self.norm == "l2":
            factors = shrink / xp.where(joint > 0, joint, xp.ones_like(joint))
        elif self.norm == "clip":
            factors = shrink * (self.data_norm or 0.0) / at_least(norms, self.data_norm or 0.0)
        elif self.norm == "ball":
            factors = shrink / at_least(norms, self.data_norm or 0.0)
        else:
            factors = xp.ones_like(norms)
        limit = 1e30 if eps_of(X) > 1e-10 else 1e290
        usable = (factors > 1 / limit) & (factors < limit) & (joint > 0) & (joint < limit)
        usable = usable & (self.bound > 1 / limit)  # below, numbers have few digits left
        factors = xp.where(usable, factors, xp.zeros_like(factors))
        lengths = factors * xp.where(usable, joint, xp.zeros_like(joint))
        return factors, lengths


def _all_norms(X: Array) -> Array:
    """Norms of rows, by all threads."""
    if sparse.issparse(X):
        return row_norms(X)
    with over_chunks(Slices(X, chunk_rows(X))) as each:
        return namespace(X).concat(list(each(lambda rows: row_norms(X[rows, :]))))


@dataclass(frozen=True)
class Shift:
    """Subtract a released mean from mapped rows, and append a constant entry.

    Parameters
    ----------
    mean : ndarray of shape (width,)
        Released mean of the mapped rows.
    constant : float or None
        Public value of the constant entry; None appends none.
    """

    mean: np.ndarray
    constant: float | None

    def undo(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (width, c) and offset (c,) with the same scores on unshifted rows.

        ``W @ (r - m) + c k = W @ r + (c k - W @ m)`` (Sun, Suresh, Menon, 2024, Lemma 5).
        """
        width = len(self.mean)
        offset = -(self.mean @ weights[:width])
        if self.constant is not None:
            offset = offset + self.constant * weights[width]
        return weights[:width], offset
