"""Per-example gradients: what is asked of them, and the one clipped sum."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dpsubspace._array import EPS, Array, at_least, namespace
from dpsubspace._release.mechanisms import BoundedSum, vector_sum

__all__ = ["GradientSource", "PerExampleGradients", "clipped_sum", "in_parts", "shrink_factors"]

# Above this norm a float64 row cannot be weighed down without denormal numbers.
LONGEST = 1e-6 * EPS / float(np.finfo(np.float64).smallest_normal)


class PerExampleGradients(Protocol):
    """Gradients of some rows, one a row, in whatever form is cheap."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of the parameters."""
        ...

    @property
    def shares(self) -> Array | None:
        """Part of its record that each row is, (k,); None where each is one."""
        ...

    def norms(self) -> Array:
        """Euclidean norm of each gradient, never rounded down, (k,).

        In the dtype in which gradients are added up, above which it may be by a few units of
        rounding of that dtype.

        Inf for a gradient that must not count: a null record's, or one out of range.
        """
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of ``weights[i] * gradient[i]``, of the shape of the parameters."""
        ...

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        """Weighted sums of runs of rows, as long as `counts` says: (m, p), in float64."""
        ...

    def slack(self) -> float:
        """How far rounding can move the sum over all records, in units of a term."""
        ...

    def wide_slack(self) -> float:
        """The same for sums of what is computed of them in float64, in units of a gradient."""
        ...

    def inner(self, anchors: Any) -> tuple[Array, float]:
        """Inner products with the gradients of public rows, (k, m), in float64.

        And how far rounding moves one, in units of the product of the two norms. Gradients
        that must not count may have any.
        """
        ...

    def dot(self, gradient: Array) -> Array:
        """Inner products with one gradient of the shape of the parameters, (k,)."""
        ...

    def part(self, group: Any) -> PerExampleGradients:
        """Gradients by the parameters at an index of the last axis."""
        ...

    def formed(self) -> Array:
        """Gradients as rows (k, p) in float64, for so few that this is cheap."""
        ...


class GradientSource(Protocol):
    """Gradients of a model on the records that it holds."""

    @property
    def n_samples(self) -> int:
        """Number of records, public."""
        ...

    @property
    def data(self) -> Array:
        """What holds the records: tells where they are."""
        ...

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Indices that together name every record once, or every record of `batch`."""
        ...

    def work(self, batch: np.ndarray | None = None) -> float:
        """Bytes that a product with all records reads, or with a batch, times its columns."""
        ...

    def at(self, params: Array, rows: Array) -> PerExampleGradients:
        """Gradients at `params` of the records of a chunk."""
        ...


def clipped_sum(grads: PerExampleGradients, clip_norm: float) -> BoundedSum:
    """Sum of gradients, each shrunk to norm `clip_norm` where it is longer.

    Parameters
    ----------
    grads : PerExampleGradients
        Gradients of the records.
    clip_norm : float
        Bound on one gradient; inf clips nothing and bounds nothing.

    Returns
    -------
    BoundedSum
        With ``norm_bound = clip_norm * (1 + slack)`` and ``replace_bound = clip_norm *
        (2 + slack)``; the slack is for rounding of this sum and of its addition to those of
        other records (0.8 % in float32; in float64 below 1e-6 up to a million rows, or
        a thousand times that where rows are centred).

    Notes
    -----
    Proof of the bound: record i contributes ``min(1, C / |g_i|) g_i``, which depends on
    record i alone and has norm at most C. Removing it moves the sum by at most C,
    replacing it by at most 2C (triangle inequality). Where a record has several rows, each is
    clipped and counts for its part of the record, and the same holds by the lemma of
    ``_rows/records.py``. The sums as computed differ from
    the real ones by at most ``slack * C`` more (:func:`~dpsubspace._array.sum_slack`).

    ===========================  =====================================
    gradient                     contribution
    ===========================  =====================================
    norm at most `clip_norm`     itself
    norm above it                same direction, norm `clip_norm`
    norm inf or NaN              zero
    zero                         zero
    ===========================  =====================================
    """
    weights = in_parts(grads, shrink_factors(grads.norms(), clip_norm))
    return vector_sum(grads.weighted_sum(weights), clip_norm, grads.slack())


def in_parts(grads: PerExampleGradients, weights: Array) -> Array:
    """Weights of rows, times the part of its record that each is."""
    if grads.shares is None:
        return weights
    return namespace(weights).astype(grads.shares, weights.dtype, copy=False) * weights


def shrink_factors(norms: Array, bound: float) -> Array:
    """Factors that bring vectors of given norms to `bound` where they are longer, 0 at inf."""
    xp = namespace(norms)
    if bound > 1e-3 * float(xp.finfo(norms.dtype).max):  # longer than any that counts
        return xp.astype(xp.isfinite(norms), norms.dtype)
    return bound / at_least(norms, bound)
