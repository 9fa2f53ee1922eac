"""Per-example gradients that are never formed, and their clipped sum.

For a linear model the gradient of record i is an outer product ``phi_i r_i^T`` of its
features and its residual. Its norm is ``|phi_i| |r_i|`` and any weighted sum of gradients
is one matrix product, so clipping every record costs no more than the gradient that a
model without privacy needs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpsubspace._array import (
    EPS,
    Array,
    device,
    eps_of,
    namespace,
    row_norms,
    slices,
)
from dpsubspace._features import FeatureBlock, Features
from dpsubspace._losses import Loss
from dpsubspace._noise import BoundedSum, vector_sum

__all__ = [
    "DenseGradients",
    "GradientSource",
    "LinearSource",
    "OuterGradients",
    "PerExampleGradients",
    "clipped_sum",
    "shrink_factors",
]


# Bytes of inner products with public rows to keep.
_CACHE = 1 << 30

# Entries of rows that are converted to float64 at once (64 MiB), and rows that are added up
# before their sum joins the total.
_WIDE, _BLOCK = 1 << 23, 128

# Above this norm a float64 row cannot be weighed down without denormal numbers.
_LONGEST = 1e-6 * EPS / float(np.finfo(np.float64).smallest_normal)


class PerExampleGradients(Protocol):
    """Gradients of some records, one a record, in whatever form is cheap."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of records, then the shape of the parameters."""
        ...

    def norms(self) -> Array:
        """Euclidean norm of each gradient, float64 and never rounded down, (k,).

        Inf for a gradient that must not count: a null record's, or one out of range.
        """
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Sum of ``weights[i] * gradient[i]``, of the shape of the parameters."""
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

    def chunks(self, batch: np.ndarray | None) -> list[Array]:
        """Indices that together name every record once, or every record of `batch`."""
        ...

    def at(self, params: Array, rows: Array) -> PerExampleGradients:
        """Gradients at `params` of the records of a chunk."""
        ...


@dataclass(frozen=True)
class OuterGradients:
    """Gradients ``features[i] residuals[i]^T`` of shape (width, c), kept as their factors.

    Parameters
    ----------
    features : FeatureBlock
        Features of the records.
    feature_norms : array of shape (k,)
        Their norms in float64, inf for null records. They do not change between steps.
    residuals : array of shape (k, c)
        Derivatives of the loss by the scores.
    rounding : float
        Slack of a sum of such gradients over all records, or over a batch.
    products : array of shape (k, m), optional
        Inner products of the features with those of public rows, in float64.
    wide_rounding : float
        As `rounding`, for sums in float64.
    """

    features: FeatureBlock
    feature_norms: Array
    residuals: Array
    rounding: float
    products: Array | None = None
    wide_rounding: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """(k, width, c)."""
        return (self.residuals.shape[0], self.features.width, self.residuals.shape[1])

    def norms(self) -> Array:
        """|phi_i| |r_i|, rounded up by more than casts and products in the data's dtype err.

        Where a factor of the gradient or their product leaves the range in which that dtype
        can weigh it down without denormal numbers (1e25 in float32, 1e286 in float64), the
        norm is reported as inf.
        """
        xp = namespace(self.residuals)
        info = xp.finfo(self.residuals.dtype)
        eps, smallest = float(info.eps), float(info.smallest_normal)
        r, c = self.residuals, self.residuals.shape[1]
        # Squares below the smallest number may have vanished.
        r_norms = xp.astype(xp.sqrt(xp.sum(r * r, axis=1) + c * smallest), xp.float64)
        norms = self.feature_norms * (r_norms * (1 + (8 + c) * eps))
        largest = 1e-6 * eps / smallest
        scaled = r_norms * xp.astype(self.features.scale, xp.float64)
        fits = (self.feature_norms <= largest) & (norms <= largest) & (scaled <= largest)
        return xp.where(fits, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        """Features^T (weights * residuals), (width, c), in float64."""
        return self.features.product(self.residuals, weights)

    def slack(self) -> float:
        """Return that of the features."""
        return self.rounding

    def wide_slack(self) -> float:
        """Return that of the features where they are used in float64."""
        return self.wide_rounding

    def inner(self, anchors: Any) -> tuple[Array, float]:
        """``<phi_i, phi_j> <r_i, r_j>`` with other outer products, and no gradient is formed."""
        if isinstance(anchors, DenseGradients):
            rows = self.formed()
            return rows @ anchors.rows.T, (rows.shape[1] + 8) * EPS
        xp, c = namespace(self.residuals), self.residuals.shape[1]
        assert self.products is not None, "a source that knows the public rows"
        products = self.products * (
            xp.astype(self.residuals, xp.float64) @ xp.astype(anchors.residuals, xp.float64).T
        )
        return products, (self.features.width + c + 8) * EPS

    def dot(self, gradient: Array) -> Array:
        """``phi_i' G r_i`` for a gradient G of shape (width, c)."""
        return namespace(gradient).sum(self.features.scores(gradient) * self.residuals, axis=1)

    def part(self, group: Any) -> OuterGradients:
        """Gradients by some columns of the parameters."""
        return replace(self, residuals=self.residuals[:, group])

    def formed(self) -> Array:
        """Gradients as rows (k, width c) in float64."""
        xp = namespace(self.residuals)
        features = xp.astype(self.features.wide().formed(), xp.float64)
        residuals = xp.astype(self.residuals, xp.float64)
        k, width, c = self.shape
        return xp.reshape(features[:, :, None] * residuals[:, None, :], (k, width * c))


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
    """

    rows: Array
    params_shape: tuple[int, ...]
    present: Array | None = None
    rounding: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of records, then the shape of the parameters."""
        return (self.rows.shape[0], *self.params_shape)

    def norms(self) -> Array:
        """Norms of the rows, never rounded down; inf for null records and rows out of range."""
        xp = namespace(self.rows)
        if self.rows.shape[0] == 0:
            return xp.zeros(0, dtype=xp.float64, device=device(self.rows))
        norms = row_norms(self.rows)
        counts = norms <= _LONGEST  # never true of NaN
        if self.present is not None:
            counts = counts & self.present
        return xp.where(counts, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        """``weights @ rows`` in float64; weight zero adds zero, also of a row not finite."""
        xp = namespace(self.rows)
        k, p = self.rows.shape
        total = xp.zeros(p, dtype=xp.float64, device=device(self.rows))
        weights = xp.astype(weights, xp.float64)
        for some in slices(k, max(1, min(_BLOCK, _WIDE // p))):
            rows, absent = xp.astype(self.rows[some, :], xp.float64), weights[some] == 0
            if bool(xp.any(absent)):
                rows = xp.where(absent[:, None], xp.zeros_like(rows), rows)
            total += weights[some] @ rows
        return xp.reshape(total, self.params_shape)

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


class LinearSource:
    """Gradients of ``loss(y, features @ params)``.

    Parameters
    ----------
    loss : Loss
        Loss of the scores.
    features : Features
        Rows, bounded and with their bias entry.
    y : array of shape (n,) or (n, c)
        Targets as the loss takes them.
    present : boolean array of shape (n,), optional
        False makes a record a null record, whose gradient is zero at all parameters.
    public : array of shape (m, width), optional
        Features of public rows, in float64: gradients know their inner products with those of
        the rows, which are kept where they take no more than 1 GiB.
    """

    def __init__(
        self,
        loss: Loss,
        features: Features,
        y: Array,
        present: Array | None = None,
        public: Array | None = None,
    ):
        self.loss = loss
        self.features = features
        self.y = y
        self._norms = features.norms()
        self._set_public(public)
        self._slack, self._batch_slack = features.slack, features.batch_slack
        if present is not None:
            xp = namespace(self._norms)
            self._norms = xp.where(present, self._norms, xp.full_like(self._norms, xp.inf))

    @property
    def n_samples(self) -> int:
        """Number of records, public."""
        return self.features.n_samples

    def products(self, rows: Array) -> Array | None:
        """Inner products of the features of a chunk with those of public rows."""
        if self._products is not None:
            return self._products[rows, :]
        return None if self._public is None else self.features.inner(rows, self._public)

    def stable_step(self, alpha: float) -> float:
        """Step size for exact gradients, from the rows: for fits that are not private."""
        curvature = self.loss.curvature if self.loss.curvature < float("inf") else 1.0
        return 1 / (curvature * float((self.features.norms() ** 2).mean()) + alpha)

    def _set_public(self, public: Array | None) -> None:
        features = self.features
        self._public, self._products = public, None
        if public is not None and 8 * features.n_samples * public.shape[0] <= _CACHE:
            self._products = features.inner(slice(0, features.n_samples), public)

    def beside(self, public: Array | None) -> LinearSource:
        """The same records, with inner products with other features."""
        other = copy.copy(self)
        other._set_public(public)
        return other

    def relabelled(self, y: Array) -> LinearSource:
        """The same rows with other targets; what is known of rows is shared."""
        other = copy.copy(self)
        other.y = y
        return other

    def with_loss(self, loss: Loss) -> LinearSource:
        """The same records under another loss."""
        other = copy.copy(self)
        other.loss = loss
        return other

    def wide(self) -> LinearSource:
        """The same records, used in float64: for fits that are not private."""
        other = copy.copy(self)
        other.features = self.features.wide()
        return other

    @property
    def data(self) -> Array:
        """Return the rows."""
        return self.features.X

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Return those of the features."""
        return self.features.chunks(batch)

    def at(self, params: Array, rows: Array) -> OuterGradients:
        """Per-example gradients at `params` of shape (width, c)."""
        block = self.features.at(rows)
        residuals = self.loss.residual(self.y[rows], block.scores(params))
        slack = self._slack if isinstance(rows, slice) else self._batch_slack
        # A term itself is off by a few units of rounding, which few records do not hide.
        slack += (8 + residuals.shape[1]) * eps_of(residuals)
        return OuterGradients(
            block, self._norms[rows], residuals, slack, self.products(rows), self._batch_slack
        )

    def objective(self, params: Array, rows: Array) -> tuple[float, Array]:
        """Sum of the losses of a chunk and its gradient: not bounded, for fits without privacy."""
        block, y = self.features.at(rows), self.y[rows]
        scores, xp = block.scores(params), namespace(params)
        present = xp.isfinite(self._norms[rows])
        values = xp.astype(self.loss.value(y, scores), xp.float64)
        value = xp.sum(xp.where(present, values, xp.zeros_like(values)))
        weights = xp.astype(present, xp.float64)
        return float(value), block.product(self.loss.residual(y, scores), weights)


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
    factor = shrink_factors(norms, clip_norm)
    factor = xp.where(xp.isfinite(norms), factor, xp.zeros_like(factor))
    return vector_sum(grads.weighted_sum(factor), clip_norm, grads.slack())


def shrink_factors(norms: Array, bound: float) -> Array:
    """Factors that bring vectors of given norms to `bound` where they are longer."""
    xp = namespace(norms)
    if bound == float("inf"):
        return xp.ones_like(norms)
    return bound / xp.clip(norms, min=bound)
