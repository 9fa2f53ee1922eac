"""Per-example gradients that are never formed, and their clipped sum.

For a linear model the gradient of record i is an outer product ``x_i r_i^T`` of its
features and its residual. Its norm is ``|x_i| |r_i|`` and any weighted sum of gradients
is one matrix product, so clipping every record costs no more than the gradient that a
model without privacy needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsubspace._array import Array, namespace, row_norms, row_product, sum_slack
from dpsubspace._losses import Loss
from dpsubspace._noise import BoundedSum

__all__ = ["GradientSource", "LinearSource", "OuterGradients", "PerExampleGradients", "clipped_sum"]

# Added to a sum of squares before its root: squares below it may have underflowed, and a
# norm that is rounded up clips more, which costs no privacy.
_TINY_SQUARE = 1e-300


class PerExampleGradients(Protocol):
    """Gradients of a batch, one a record, in whatever form is cheap."""

    def norms(self) -> Array:
        """Euclidean norm of each gradient, float64 and never rounded down, (n,)."""
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of ``weights[i] * gradient[i]``, of the shape of the parameters."""
        ...

    def slack(self) -> float:
        """How far rounding can move that sum between neighbours, in units of a term."""
        ...


class GradientSource(Protocol):
    """Gradients of a model at given parameters, on the records it holds."""

    def at(self, params: Array) -> PerExampleGradients:
        """Per-example gradients at `params`."""
        ...


@dataclass(frozen=True)
class OuterGradients:
    """Gradients ``features[i] residuals[i]^T`` of shape (d, c), kept as their factors.

    Parameters
    ----------
    features : array of shape (n, d)
        Rows.
    feature_norms : array of shape (n,)
        Their norms in float64, which do not change between steps.
    residuals : array of shape (n, c)
        Derivatives of the loss by the scores.
    """

    features: Array
    feature_norms: Array
    residuals: Array

    def norms(self) -> Array:
        """|x_i| |r_i|, rounded up by more than casts and products in the data's dtype err.

        Beyond the range in which that dtype can weigh a gradient down without denormal
        numbers (1e25 in float32, 1e286 in float64), the norm is reported as inf.
        """
        xp = namespace(self.residuals)
        info = xp.finfo(self.residuals.dtype)
        r = xp.astype(self.residuals, xp.float64, copy=False)
        r_norms = xp.sqrt(xp.sum(r * r, axis=1) + _TINY_SQUARE)
        norms = self.feature_norms * (r_norms * (1 + 8 * float(info.eps)))
        largest = 1e-6 * float(info.eps) / float(info.smallest_normal)
        fits = (self.feature_norms <= largest) & (norms <= largest)
        return xp.where(fits, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        """X^T (weights * R), (d, c), in float64."""
        xp = namespace(self.residuals)
        weighted = xp.astype(weights, self.residuals.dtype)[:, None] * self.residuals
        # A record of weight zero contributes zero even where its residual is not finite.
        weighted = xp.where((weights == 0)[:, None], xp.zeros_like(weighted), weighted)
        return row_product(self.features, weighted)

    def slack(self) -> float:
        """That of :func:`~dpsubspace._array.row_product`."""
        eps = float(namespace(self.features).finfo(self.features.dtype).eps)
        return sum_slack(self.features.shape[0], eps)


class LinearSource:
    """Gradients of ``loss(y, features @ params)``.

    Parameters
    ----------
    loss : Loss
        Loss of the scores.
    features : array of shape (n, d)
        Rows, bounded and with their bias entry.
    y : array of shape (n,)
        Targets as the loss takes them.
    """

    def __init__(self, loss: Loss, features: Array, y: Array):
        self.loss = loss
        self.features = features
        self.y = y
        self._norms = row_norms(features)

    def at(self, params: Array) -> OuterGradients:
        """Per-example gradients at `params` of shape (d, c)."""
        xp = namespace(self.features)
        # Column by column in memory: what follows reduces over the few columns of many rows,
        # which is several times faster that way.
        scores = (xp.astype(params, self.features.dtype).T @ self.features.T).T
        return OuterGradients(self.features, self._norms, self.loss.residual(self.y, scores))


def clipped_sum(
    grads: PerExampleGradients, clip_norm: float, *, present: Array | None = None
) -> BoundedSum:
    """Sum of gradients, each shrunk to norm `clip_norm` where it is longer.

    Parameters
    ----------
    grads : PerExampleGradients
        Gradients of the records.
    clip_norm : float
        Bound on one gradient; inf clips nothing and bounds nothing.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.

    Returns
    -------
    BoundedSum
        With ``norm_bound = clip_norm * (1 + slack)`` and ``replace_bound = clip_norm *
        (2 + slack)``; the slack is for rounding (0.8 % in float32; in float64 below 1e-6 up
        to a million rows).

    Notes
    -----
    Proof of the bound: record i contributes ``min(1, C / |g_i|) g_i``, which depends on
    record i alone and has norm at most C. Removing it moves the sum by at most C,
    replacing it by at most 2C (triangle inequality). The sums as computed differ from
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
    norms = grads.norms()
    xp = namespace(norms)
    factor = xp.ones_like(norms)
    if clip_norm < float("inf"):
        factor = clip_norm / xp.clip(norms, min=clip_norm)
    counts = xp.isfinite(norms) if present is None else xp.isfinite(norms) & present
    factor = xp.where(counts, factor, xp.zeros_like(factor))
    total, slack = grads.weighted_sum(factor), grads.slack()
    return BoundedSum(
        total, norm_bound=clip_norm * (1 + slack), replace_bound=clip_norm * (2 + slack)
    )
