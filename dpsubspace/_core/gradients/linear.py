"""Per-example gradients that are never formed, and their clipped sum.

For a linear model the gradient of record i is an outer product ``phi_i r_i^T`` of its features and
its residual. Its norm is ``|phi_i| |r_i|`` and any weighted sum of gradients is one matrix product,
so clipping every record costs no more than the gradient that a model without privacy needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._core.gradients.clipping import DenseGradients
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    changed,
    eps_of,
    namespace,
    rounded_up,
    row_squares,
    slices,
    vanished,
)
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.remote import RemoteRows, rowwise, sum_over_parts

# Largest number of bytes of inner products with public rows to keep.
_CACHE = 1 << 30

# Bytes of products of features of persons to keep, and most rows of a person with kept products.
_KEPT, _MOST_KEPT = 1 << 28, 64

# Entries of features that are formed at once (8 MiB), and the least norm used as a divisor.
_WIDE, _SHORTEST = 1 << 20, 1e-280


@dataclass(frozen=True)
class OuterGradients:
    """Gradients ``features[i] residuals[i]^T`` of shape (width, c), kept as their factors."""

    features: Any  # Features of the records
    # (k,): their norms, inf for null records. They do not change between steps.
    feature_norms: Array
    residuals: Array  # (k, c): derivatives of the loss by the scores
    rounding: float  # Slack of a sum of such gradients over all records, or over a batch
    # (k, m): inner products of the features with those of public rows, in float64.
    products: Array | None = None
    wide_rounding: float = 0.0  # As `rounding`, for sums in float64
    # (k,): share of its record that each row is; None where each row is a whole record.
    shares: Array | None = None
    # Upper bound on `feature_norms`; None where it is not known.
    longest: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.residuals.shape[0], self.features.width, self.residuals.shape[1])

    def norms(self) -> Array:
        """|phi_i| |r_i|, rounded up by more than the error of casts and products in this dtype.

        The norm is inf where a factor of the gradient, or their product, leaves the range in which
        the dtype of the data can scale it down without denormal numbers (1e25 in float32, 1e286 in
        float64).
        """
        xp, r_norms = namespace(self.residuals), _rounded_up_norms(self.residuals)
        norms, scale = self.feature_norms * r_norms, self.features.scale
        info = xp.finfo(self.residuals.dtype)
        most = 1e-6 * float(info.eps) / float(info.smallest_normal)
        # Nearly always all of them are in range, which one pass over the largest shows. The
        # conditions below are for each record: whether a record counts must not depend on others.
        # NaN is never in range.
        if norms.shape[0]:
            longest = self.longest
            longest = float(self.feature_norms.max()) if longest is None else longest
            largest, half = float(r_norms.max()), most / 2  # the half is for rounding
            of_scale = largest * self.features.largest_scale
            if longest <= most and largest * longest <= half and of_scale <= half:
                return norms
        fits = (self.feature_norms <= most) & (norms <= most) & (r_norms * scale <= most)
        return xp.where(fits, norms, xp.full_like(norms, xp.inf))

    def weighted_sum(self, weights: Array) -> Array:
        return self.features.product(self.residuals, weights)

    def taken(self, rows: slice) -> OuterGradients:
        """Gradients of consecutive rows, without their products with public rows."""
        return replace(
            self,
            features=self.features.taken(rows),
            feature_norms=self.feature_norms[rows],
            residuals=self.residuals[rows, :],
            products=None,
            shares=None if self.shares is None else self.shares[rows],
        )

    def cosines(self, k: int) -> np.ndarray | None:
        """Products of features of unit norm within runs of `k` rows, (m, k, k), in float64.

        None where a norm is too small to divide by. Products of features that must not count are 0.
        """
        norms, features = self.feature_norms, self.features.wide()
        if bool(((norms < _SHORTEST) & (norms > 0)).any()):
            return None
        counts, found = (norms > 0) & (norms < np.inf), np.empty((len(norms) // k, k, k))
        lengths = np.where(counts, norms, 1.0)
        for some in slices(len(found), max(1, _WIDE // (k * features.width))):
            rows = slice(k * some.start, k * some.stop)
            units = features.taken(rows).dense() / lengths[rows, None]
            if not bool(counts[rows].all()):
                units = np.where(counts[rows, None], units, 0.0)
            units = units.reshape(-1, k, features.width)
            np.matmul(units, units.swapaxes(1, 2), out=found[some])
        return found

    def sums(self, weights: Array, counts: np.ndarray) -> Array:
        found = self.features.wide().sums(self.residuals, weights, counts)
        k, width, c = found.shape
        return namespace(found).reshape(found, (k, width * c))

    def slack(self) -> float:
        return self.rounding

    def wide_slack(self) -> float:
        return self.wide_rounding

    def inner(self, anchors: Any) -> tuple[Array, float]:
        if isinstance(anchors, DenseGradients):
            rows = self.dense()
            return rows @ anchors.rows.T, (rows.shape[1] + 8) * EPS
        xp, c = namespace(self.residuals), self.residuals.shape[1]
        assert self.products is not None, "a source that knows the public rows"
        products = self.products * (
            xp.astype(self.residuals, xp.float64) @ xp.astype(anchors.residuals, xp.float64).T
        )
        return products, (self.features.width + c + 8) * EPS

    def dot(self, gradient: Array) -> Array:
        return namespace(gradient).sum(self.features.scores(gradient) * self.residuals, axis=1)

    def part(self, group: Any) -> OuterGradients:
        return replace(self, residuals=self.residuals[:, group])

    def dense(self) -> Array:
        xp = namespace(self.residuals)
        features = xp.astype(self.features.wide().dense(), xp.float64)
        residuals = xp.astype(self.residuals, xp.float64)
        k, width, c = self.shape
        return xp.reshape(features[:, :, None] * residuals[:, None, :], (k, width * c))


def _rounded_up_norms(R: Array) -> Array:
    """Norms of rows in their dtype, never too small, even after a few more products."""
    xp, c = namespace(R), R.shape[1]
    info = xp.finfo(R.dtype)
    more = 1 + (8 + c) * float(info.eps)
    if c == 1:
        return xp.abs(R[:, 0]) * more
    return xp.sqrt(row_squares(R) + vanished(R)) * more


class LinearSource:
    """Gradients of ``loss(y, features @ params)``.

    Targets have the form that the loss takes, (n_rows,) or (n_rows, c). `public` (m, width) are
    features of public rows, in float64. Gradients have the inner products of these with the
    features of the rows, which are kept where they need at most 1 GiB. Chunks leave room for
    `n_outputs` columns of scores; None stands for a few.
    """

    # Attributes that depend on sizes and released numbers only: see `RemoteRows` in
    # _core/rows/remote.py.
    PUBLIC = frozenset({"loss", "n_outputs", "n_samples", "n_params", "width", "records"})

    def __init__(
        self,
        loss: Loss,
        features: Features,
        y: Array,
        public: Array | None = None,
        n_outputs: int | None = None,
    ):
        self.loss = loss
        self.n_outputs = n_outputs
        self._rows, self.data = features, features.data
        self.records, self.n_samples = features.records, features.n_samples
        self._shares = self.records.shares
        self.y = self._prepared(y)
        self._set_norms()
        self._set_public(public)

    @classmethod
    def of(cls, loss: Loss, features: Any, *args: Any, **options: Any) -> Any:
        """Make gradients of records where their features are stored."""
        if isinstance(features, RemoteRows):
            return rowwise(cls, loss, features, *args, **options)
        return cls(loss, features, *args, **options)

    @property
    def width(self) -> int:
        return self.features.width

    @property
    def n_params(self) -> int:
        return self.features.width * (self.n_outputs or 1)

    @property
    def formed(self) -> bool:
        """Whether gradients of persons are formed: on devices, and for embeddings."""
        return self._public is not None or not isinstance(self._norms, np.ndarray)

    @property
    def norm_slack(self) -> tuple[float, float]:
        """Bounds on the rounding of a sum of some gradients, in units of the norms of its terms.

        One for a sum that is formed, and one for its squared norm by products of terms with each
        other. See :class:`~dpsubspace._core.gradients.clipping.PersonSource`.
        """
        columns = self.width + (self.n_outputs or 1)
        products = 2 * self.features.own_rounding + EPS * (columns + _MOST_KEPT + 16)
        return self._slack / (2 * self.n_samples), products

    @property
    def longest_kept(self) -> int:
        """Most rows of a person for whom all products of features are kept.

        The products take up to 256 MiB, and no more memory than the features, with which norms are
        as fast.
        """
        return min(_MOST_KEPT, self.width, _KEPT // (8 * max(1, self.features.n_rows)))

    @property
    def gathered(self) -> int:
        """Most rows of a chunk that are gathered from arbitrary places."""
        return self.features.gathered

    def _set_norms(self) -> None:
        self.runs: dict[tuple[int, int], Any] = {}  # Stored products of the persons of a chunk
        norms, present = self._rows.norms(), self.records.present
        if present is not None:
            xp = namespace(norms)
            norms = xp.where(present, norms, xp.full_like(norms, xp.inf))
        self._norms = rounded_up(norms, self._rows.sum_dtype)
        self._longest = float(namespace(norms).max(self._norms)) if norms.shape[0] else 0.0

    def weighed(self, columns: np.ndarray) -> LinearSource:
        """Source of the same rows, columns times these numbers: see :meth:`Features.weighed`."""
        return self._of(self._rows.weighed(columns))

    def widened(self, more: Callable[[Array], Array]) -> LinearSource:
        """Source of the same rows with more columns: see :meth:`Features.widened`."""
        return self._of(self._rows.widened(more))

    def _of(self, features: Features) -> LinearSource:
        """Source with the same targets and other features of the rows."""
        other = changed(self, _rows=features, data=features.data)
        other._set_norms()
        other._set_public(None)
        return other

    def products(self, rows: Array, *, by_row: bool = False) -> Array | None:
        """Inner products with public rows, kept where there is room; `by_row` computes them anew.

        With `by_row` the products of a row are the same to the last bit wherever it is stored.
        """
        if self._products is not None and not by_row:
            return self._products[rows, :]
        if self._public is None:
            return None
        return self.features.inner(rows, self._public, by_row=by_row)

    def _set_public(self, public: Array | None) -> None:
        # Scores, residuals and two copies of them; products with public rows in float64.
        beside = 4 * (self.n_outputs or 1) + (0 if public is None else 4 * public.shape[0])
        self.features = features = self._rows.with_room(beside, self.n_outputs or 1)
        self._slack, self._batch_slack = features.slack, features.batch_slack
        self._public, self._products = public, None
        if public is not None and 8 * features.n_rows * public.shape[0] <= _CACHE:
            self._products = features.inner(slice(0, features.n_rows), public)

    def with_public(self, public: Array | None) -> LinearSource:
        other = changed(self)
        other._set_public(public)
        return other

    def relabelled(self, y: Array) -> LinearSource:
        """Source of the same rows with other targets; stored products of rows are shared."""
        return changed(self, y=self._prepared(y))

    def _prepared(self, y: Array) -> Array:
        if self.n_outputs != 1 or y is None:
            return y
        return namespace(y).astype(y, self._rows.sum_dtype, copy=False)

    def with_loss(self, loss: Loss) -> LinearSource:
        return changed(self, loss=loss)

    def wide(self) -> LinearSource:
        """Source of the same records in float64, for fits that are not private."""
        return changed(self, features=self.features.wide())

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        return self.features.chunks(batch)

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return self.features.bytes_read(batch)

    def at(self, params: Array, rows: Array) -> OuterGradients:
        block, batch = self.features.at(rows), not isinstance(rows, slice)
        # Another record may move a row of a batch or of a person. At a kink, rounding then causes a
        # jump.
        moves = self.loss.curvature == math.inf and (batch or self.records.grouped)
        residuals = self.loss.residual(self.y[rows], block.scores(params, by_row=moves))
        slack = self._batch_slack if batch else self._slack
        # The error of a term itself is a few units of rounding, which matters for few records.
        slack += (8 + residuals.shape[1]) * eps_of(residuals)
        return OuterGradients(
            block,
            self._norms[rows],
            residuals,
            slack,
            self.products(rows),
            self._batch_slack,
            None if self._shares is None else self._shares[rows],
            self._longest,
        )

    def scores_at(self, params: Array, rows: Array) -> Array:
        return self.features.at(rows).scores(params, by_row=self.records.grouped)

    def objective(self, params: Array, rows: Array) -> tuple[float, Array]:
        """Sum of the losses of a chunk and its gradient: no bound, for fits without privacy."""
        block, y = self.features.at(rows), self.y[rows]
        scores, xp = block.scores(params), namespace(params)
        present = xp.isfinite(self._norms[rows])
        values = xp.astype(self.loss.value(y, scores), xp.float64)
        weights = xp.astype(present, xp.float64)
        if self._shares is not None:
            weights = weights * self._shares[rows]
        value = xp.sum(xp.where(present, values, xp.zeros_like(values)) * weights)
        return float(value), block.product(self.loss.residual(y, scores), weights)


def stable_step(source: LinearSource, alpha: float) -> float:
    """Step size for exact gradients, by the rows: for fits that are not private."""
    curvature = source.loss.curvature if source.loss.curvature < float("inf") else 1.0
    return 1 / (curvature * sum_over_parts(_squares, source) / source.n_samples + alpha)


def _squares(source: LinearSource) -> float:
    squares, weights = source.features.norms() ** 2, source.features.records.weights
    return float(squares.sum() if weights is None else (squares * weights).sum())
