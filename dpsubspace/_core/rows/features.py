"""Private rows as a linear model sees them: scaled, shifted, and never formed.

Record i enters as ``phi_i = h_i (f_i x_i - m_x, f_i s - m_s, k)``: its row times a factor, with a
bias entry s, less a released mean m, with a constant entry k, and all that shrunk to a radius by
another factor. Last, columns may be weighted by released numbers. Scores and gradient sums of such
features are matrix products with the original rows, plus terms of the size of the scores. No copy
of the rows is made, so a memory map stays on disk and a sparse matrix stays sparse although its
rows are centred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.arrays import (
    BLOCK,
    EPS,
    Array,
    as_like,
    at_least,
    at_most,
    cast_rows,
    changed,
    chunk_rows,
    column_sums,
    columns_of_product,
    device,
    eps_of,
    even_slices,
    namespace,
    piece_rows,
    products_by_row,
    row_norms,
    row_product,
    run_sums,
    slices,
    sparse_rows,
    squares_of_rows,
    vanished,
)
from dpsubspace._core.rows.chunks import SHARED, FormedRows, Layout, over_chunks
from dpsubspace._core.rows.records import RecordRows, Records, RowMap, Shift
from dpsubspace._core.rows.remote import RemoteRows, rowwise

# Bytes of the rows of a batch that are gathered at once, in float64, and the least number of rows:
# they should not leave the cache before they are used.
_GATHERED_BYTES, _FEWEST_GATHERED = 1 << 22, 1 << 10

# Entries of a chunk of rows that is converted to float64 (64 MiB).
_WIDE = 1 << 23


class Features(RecordRows):
    """All records, visited chunk by chunk.

    A CSR matrix must have no duplicate entries. The row map gives the factor of each row and its
    bias entry. Without `records` each row is a record.
    """

    # Values that follow from sizes and released numbers: see `RemoteRows` in _core/rows/remote.py.
    PUBLIC = frozenset(
        {"n_samples", "width", "bound", "bias", "row_map", "records", "chunk", "floor", "radius"}
        | {"zoom", "shift", "only_dense", "sum_dtype", "slack", "batch_slack", "of", "unscaled"}
    )

    def __init__(
        self,
        X: Array,
        row_map: RowMap,
        microbatch_size: int | None = None,
        records: Records | None = None,
    ):
        super().__init__(X, records)
        self.row_map, self.bias, self.bound = row_map, row_map.bias, row_map.bound
        self.factors, self.lengths = row_map.factors(X)
        self._microbatch_size = microbatch_size
        self.chunk, self._columns = chunk_rows(X, microbatch_size), 1
        if isinstance(X, FormedRows) and microbatch_size is None:
            self.chunk = X.chunk
        self.width = X.shape[1] + (self.bias is not None)
        self._whole = bool(namespace(self.factors).all(self.factors > 0))
        self.shift: Shift | None = None
        self.radius, self.zoom, self.only_dense = float("inf"), 1.0, False
        self.shrink: Array | None = None
        self.columns: Array | None = None  # (p,): factors of the columns, applied last
        # Arrays that every step needs again: see `_in` and `_block`.
        self._casts: dict[Any, tuple[Array, Array | None]] = {}
        self._blocks: dict[tuple[int, int, Any], FeatureBlock] = {}
        self._distances: Array | None = None
        # The dtype in which rows are used: those of one record may be in all blocks of a sum.
        self.dtype = namespace(self.factors).float64 if self.records.grouped else X.dtype
        if self.dtype != X.dtype:
            self.chunk = self._narrow(self.chunk)
        # Least reported norm of shifted features, over their length before the shift.
        self.floor = 0.25 if self._eps > 1e-10 else 1e-3

    @classmethod
    def of_rows(cls, X: Any, *args: Any, **options: Any) -> Any:
        """Return features of rows, made where these are: local, or in remote parts."""
        if isinstance(X, RemoteRows):
            return rowwise(cls, X, *args, **options)
        return cls(X, *args, **options)

    def of(self, X: Array) -> Features:
        """Return features of other rows, bounded and shifted as these are."""
        return Features(X, self.row_map).shifted(self.shift)

    def shifted(self, shift: Shift | None) -> Features:
        """Return the same records less a released mean; shares the rows."""
        whole = {"radius": float("inf"), "zoom": 1.0, "only_dense": False, "shrink": None}
        distances = self._distances_with(shift)
        other = changed(self, shift=shift, _distances=distances, _casts={}, _blocks={}, **whole)
        constant = shift is not None and shift.constant is not None
        other.width = self.X.shape[1] + (self.bias is not None) + constant
        return other

    def clipped(self, radius: float, zoom: float = 1.0, *, dense: bool = False) -> Features:
        """Return the same shifted records, shrunk to norm `radius` if longer, all times `zoom`.

        The constant entry shrinks too, so that directions are kept. If the radius is much below the
        bound on rows, what the shift leaves of them is small beside their rounding: they are used
        in float64 then.

        The radius is public or released. `dense` states that these features are only ever used as
        :meth:`FeatureBlock.dense`. Rounding then grows with the length before the shift over the
        radius; otherwise it would grow without bound if a row nearly equals the mean (see
        :meth:`norms`).
        """
        other = changed(self, radius=float("inf"), zoom=1.0, shrink=None, _casts={}, _blocks={})
        share = radius / self.bound if self.bound < float("inf") else 1.0
        reach = self.bound + (0.0 if self.shift is None else float(np.linalg.norm(self.shift.mean)))
        dense = dense and self.shift is not None
        small = radius < 0.02 * reach if dense else share < 0.5
        if (small or reach > 1e30) and self._eps > EPS:
            other.dtype, other._distances = namespace(self.factors).float64, None
            other.chunk = self._narrow(self.chunk)
        if dense:
            norms, longer = other.distances(), 2 + 2 * reach / radius
        else:
            other.floor = min(other.floor, max(share / 4, 1e-6))
            # The parts of a term are up to 1 / floor times as long as it, and round like that.
            norms, longer = other.norms(), 1 / other.floor
        # If a shift would leave nothing but rounding, nothing is left.
        margin = max(0.0, 1 - 16 * other._eps * longer)
        other.radius, other.zoom, other.only_dense = radius, zoom, dense
        other.shrink = margin * zoom * radius / at_least(norms, radius)
        other._casts, other._blocks = {}, {}
        return other

    def weighed(self, columns: np.ndarray) -> Features:
        """Return the same records with columns multiplied by these numbers (p,), last of all.

        The numbers are positive, and public or released: features remain functions of their record
        alone. They may be longer than before, so that only sums that clip them are bounded.
        """
        columns = as_like(columns, self.lengths)
        other = changed(self, columns=columns, _distances=None, _blocks={})
        zero = Shift(np.zeros(self.X.shape[1] + (self.bias is not None)), None)
        other.lengths = changed(other, shift=zero, _blocks={}).distances()
        return other

    def widened(self, more: Callable[[Array], Array]) -> Features:
        """Return the same records with columns appended that `more` makes of each row by itself.

        These columns are multiplied by the factor of the row as well, and nothing is subtracted
        from them. As for :meth:`weighed`, only sums that clip features are bounded.
        """
        xp, d = namespace(self.lengths), self.X.shape[1]
        X = xp.concat([self.X, more(self.X)], axis=1)
        k, shift = X.shape[1] - d, self.shift
        if shift is not None:
            mean = np.concatenate([shift.mean[:d], np.zeros(k), shift.mean[d:]])
            shift = replace(shift, mean=mean)
        fresh = {"_distances": None, "_casts": {}, "_blocks": {}, "columns": None}
        other = changed(self, X=X, data=X, shift=shift, width=self.width + k, **fresh)
        chunk = chunk_rows(X, self._microbatch_size)
        other.chunk = chunk if self.dtype == X.dtype else other._narrow(chunk)
        return other.weighed(np.ones(X.shape[1]))

    def _narrow(self, chunk: int) -> int:
        """Return rows of a chunk that is a copy in float64, small even if the chunk is wide."""
        return min(chunk, chunk_rows(self.X, max(1, _WIDE // self.width)))

    def with_room(self, beside: int, columns: int) -> Features:
        """Return the same records in chunks that leave room for so many numbers of each, or fewer.

        Products with the records have so many columns.
        """
        chunk = min(self.chunk, chunk_rows(self.X, self._microbatch_size, beside=beside))
        return changed(self, _columns=columns, chunk=chunk)

    def wide(self) -> Features:
        """Return the same records, used in float64."""
        return changed(self, dtype=namespace(self.factors).float64, _distances=None)

    def unscaled(self, params: np.ndarray) -> np.ndarray:
        """Return weights (width, c) that give features before their `zoom` the same scores."""
        return params * self.zoom

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        step = self.chunk
        if batch is None:
            # At least two if there is much to do, by the public size of dense rows alone.
            on_cpu = isinstance(self.X, (np.ndarray, FormedRows))
            if on_cpu and self.bytes_read() >= SHARED:
                step = min(step, chunk_rows(self.X, self.n_rows // 2 + 1))
            return even_slices(self.n_rows, step)
        step = self.gathered
        # An empty batch is one chunk without rows.
        rows = self.records.rows(batch)
        return [rows[part] for part in slices(len(rows), step) or [slice(0, 0)]]

    @property
    def gathered(self) -> int:
        """Return the most rows of a chunk gathered from anywhere: copies in float64, if dense."""
        if sparse.issparse(self.X):
            return self.chunk
        return min(self.chunk, max(_FEWEST_GATHERED, _GATHERED_BYTES // (8 * self.width)))

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        entries = self.X if not sparse.issparse(self.X) else self.X.data
        size = self._columns * float(entries.nbytes)
        return size if batch is None else size * len(batch) / max(1, self.n_samples)

    def at(self, rows: Array) -> FeatureBlock:
        """Return features of a chunk.

        Rows of a batch are used in float64: the batch determines which rows share a block of a sum,
        and rounding must not distinguish the batches.
        """
        if isinstance(rows, slice):
            return self._chunk(rows)
        if not (isinstance(self.X, np.ndarray) or sparse.issparse(self.X)):
            rows = namespace(self.X).asarray(rows, device=self.X.device)
        return self._block(rows, namespace(self.factors).float64)

    def inner(self, rows: Array, others: Array, *, by_row: bool = False) -> Array:
        """Return inner products of a chunk with other features (m, width): (k, m), in float64.

        `by_row` is as in :meth:`FeatureBlock.scores`.
        """
        xp = namespace(self.factors)
        step = max(1, _WIDE // max(self.width, others.shape[0]))
        start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        products = xp.empty(
            (stop - start, others.shape[0]), dtype=xp.float64, device=device(others)
        )
        for part in slices(stop - start, step):
            some = slice(start + part.start, start + part.stop)
            block = self._block(some if isinstance(rows, slice) else rows[some], xp.float64)
            products[part, :] = block.scores(others.T, by_row=by_row)
        return products

    def _chunk(self, rows: slice) -> FeatureBlock:
        """Return the block of a slice of rows; blocks without numbers of their own are cached."""
        place = (rows.start, rows.stop, self.dtype)
        if place in self._blocks:
            return self._blocks[place]
        block = self._block(rows, self.dtype)
        if not isinstance(self.X, FormedRows) and self.dtype == self.X.dtype:  # else a copy
            self._blocks[place] = block
        return block

    def _block(self, rows: Array, dtype: Array) -> FeatureBlock:
        layout, contiguous = None, isinstance(self.X, np.ndarray) and self.X.flags.c_contiguous
        if isinstance(self.X, FormedRows):
            X, layout = self.X.entries(rows), self.X.layout
        elif contiguous and not isinstance(rows, slice):
            X = self.X.take(rows, axis=0)  # faster than an index, but copies what is not contiguous
        elif isinstance(rows, slice) and sparse.issparse(self.X):
            X = sparse_rows(self.X, rows)
        else:
            X = self.X[rows] if sparse.issparse(self.X) else self.X[rows, :]
        if X.dtype != dtype:
            X = X.astype(np.float64) if sparse.issparse(X) else cast_rows(X, dtype)
        factors, shrink = self._in(namespace(self.factors).float64 if sparse.issparse(X) else dtype)
        shrink = None if shrink is None else shrink[rows]
        options = {"whole": self._whole, "layout": layout}
        return FeatureBlock(
            X, factors[rows], self.bias, self.shift, shrink, self.columns, **options
        )

    def _in(self, dtype: Any) -> tuple[Array, Array | None]:
        """Return factors and shrinkage in a dtype, cached since every step needs the same."""
        if dtype not in self._casts:
            xp = namespace(self.factors)
            shrink = self.shrink
            self._casts[dtype] = (
                xp.astype(self.factors, dtype, copy=False),
                None if shrink is None else xp.astype(shrink, dtype, copy=False),
            )
        return self._casts[dtype]

    def norms(self) -> Array:
        """Return norms of features in float64, (n,), too small by rounding of entries at most.

        Shifted features are reported as at least a public share of their length before the shift
        (`floor`): it bounds the effect of rounding, and clips a little more if a row nearly equals
        the mean, which costs no privacy.
        """
        if self.shift is None:
            return self.lengths
        xp = namespace(self.lengths)
        norms = xp.maximum(self.distances(), self.floor * self.lengths)
        # Factors of a batch are not rounded to the dtype of the rows, those of a chunk are.
        norms = norms * (1 + 2 * self._eps / self.floor)
        if self.columns is None:
            return at_most(norms, self.radius) * self.zoom
        return norms if self.shrink is None else norms * self.shrink * (1 + 4 * EPS)

    def distances(self) -> Array:
        """Return norms of features before they are shrunk, however small, in float64, (n,)."""
        if self.shift is None:
            return self.lengths
        if self._distances is None:
            with over_chunks(self) as each:
                parts = list(each(lambda rows: self.at(rows).norms(self.lengths[rows])))
            self._distances = namespace(self.lengths).concat(parts)
        return self._distances

    def _distances_with(self, shift: Shift | None) -> Array | None:
        """Return distances after another shift if they are known: by the same mean."""
        known, old = self._distances, self.shift
        if known is None or old is None or shift is None or old.mean is not shift.mean:
            return None
        if shift.constant == old.constant:
            return known
        if old.constant is not None or shift.constant is None:
            return None
        return namespace(known).sqrt(known**2 + shift.constant**2) * (1 + 4 * EPS)

    @property
    def sum_dtype(self) -> Any:
        """The dtype in which chunks of records are added up."""
        return namespace(self.factors).float64 if sparse.issparse(self.X) else self.dtype

    @property
    def _eps(self) -> float:
        """Machine epsilon of sums over records: sums of sparse ones are in float64."""
        wide = sparse.issparse(self.X) or self.dtype != self.X.dtype
        return EPS if wide else eps_of(self.X)

    @property
    def slack(self) -> float:
        """Return how far rounding can move a sum of weighted features between neighbours.

        The unit is the norm of one term. A shifted term is the difference of two parts: the first
        is up to ``1 / floor`` times as long as the term, and the second, added up in float64,
        longer by one term at most.
        """
        return self._longer(self._sum_slack(self._eps), self._eps)

    def _sum_slack(self, eps: float) -> float:
        """Return the slack of a sum over records: sparse rows are not added up by blocks."""
        by_block = not sparse.issparse(self.X)
        return self.records.slack(eps, self.chunk, own=self.X.shape[1], by_block=by_block)

    @property
    def batch_slack(self) -> float:
        """Return the slack of a batch, whose rows are used in float64.

        A record in the batch moves all later ones to other blocks and other chunks, whose products
        may round otherwise: the sum of n terms may lose up to ``n u' (block + chunk / block)`` of
        one, and scores ``d u'`` of themselves.
        """
        slack, regrouped = self._sum_slack(EPS), BLOCK + self.chunk / BLOCK + self.X.shape[1]
        if sparse.issparse(self.X):  # added up one after another, like scores, with few entries
            regrouped = self.chunk
        return self._longer(slack + 2 * self.n_samples * EPS * regrouped, EPS)

    @property
    def own_rounding(self) -> float:
        """Rounding of features that are formed in float64, in units of a norm.

        Less a mean, both parts are up to ``1 / floor`` times as long as their difference.
        """
        return 8 * EPS / (1.0 if self.shift is None else self.floor)

    def _longer(self, slack: float, eps: float) -> float:
        """Return the slack of shifted features from that of their first part."""
        if self.shift is None:
            return slack
        longer = 1 / self.floor
        own = 8 * eps * longer  # the two parts see the record's weight rounded differently
        return longer * slack + (1 + longer) * self._sum_slack(EPS) + own


class FeatureBlock:
    """Features of several records.

    Factors are float64, `bias` is the bias entry before them and `shift` the shift after them, with
    its constant entry. `shrink` are factors of the features after that, in float64, and `columns`
    those of their columns. `whole` states that no factor is 0, if that is known. With a `layout`,
    `X` has the entries of rows that are formed.
    """

    def __init__(
        self,
        X: Array,
        factors: Array,
        bias: float | None,
        shift: Shift | None,
        shrink: Array | None = None,
        columns: Array | None = None,
        *,
        whole: bool = False,
        layout: Layout | None = None,
    ):
        self.X = X
        self._layout = layout
        self.bias = bias
        self.shift = shift
        self.columns = columns
        self._whole = whole
        dtype, xp = factors.dtype if sparse.issparse(X) else X.dtype, namespace(factors)
        self.scale = xp.astype(factors, dtype, copy=False)
        self.shrink = None if shrink is None else xp.astype(shrink, dtype, copy=False)

    @cached_property
    def largest_scale(self) -> float:
        """Return the largest factor of the existing records."""
        return float(namespace(self.scale).max(self.scale))

    @property
    def width(self) -> int:
        constant = self.shift is not None and self.shift.constant is not None
        return self.X.shape[1] + (self.bias is not None) + constant

    def wide(self) -> FeatureBlock:
        xp = namespace(self.scale)

        def cast(x: Array) -> Array:
            return xp.astype(x, xp.float64, copy=False)

        X = self.X.astype(np.float64, copy=False) if sparse.issparse(self.X) else cast(self.X)
        shrink = None if self.shrink is None else cast(self.shrink)
        return changed(self, X=X, scale=cast(self.scale), shrink=shrink)

    def taken(self, rows: slice) -> FeatureBlock:
        """Return the chosen records, one after another."""
        X = sparse_rows(self.X, rows) if sparse.issparse(self.X) else self.X[rows, :]
        shrink = None if self.shrink is None else self.shrink[rows]
        return changed(self, X=X, scale=self.scale[rows], shrink=shrink)

    def scores(self, params: Array, *, by_row: bool = False) -> Array:
        """Return features times `params` of shape (width, c): (k, c).

        With `by_row` the scores of a row are the same to the last bit at any position. This is
        necessary if a record may move the rows of others and a function of the scores jumps: which
        score is the largest, or the slope of a loss with a kink.
        """
        xp, d, params = namespace(self.scale), self.X.shape[1], self._weighed(params)
        weights = params[:d, :]
        if self._layout is not None:
            weights = self._layout.inward(weights)
        if not sparse.issparse(self.X):
            weights = as_like(weights, self.X)
        scores = (products_by_row if by_row else columns_of_product)(self.X, weights)
        if self.bias is not None:
            scores += as_like(self.bias * params[d, :], scores)
        scores *= self.scale[:, None]
        if not self._whole:  # rows out of range, whose products may be too
            scores = xp.where((self.scale == 0)[:, None], xp.zeros_like(scores), scores)
        if self.shift is not None:
            mean = as_like(self.shift.mean, params)
            offset = -(mean @ params[: mean.shape[0], :])
            if self.shift.constant is not None:
                offset = offset + self.shift.constant * params[-1, :]
            scores += as_like(offset, scores)
        if self.shrink is not None:
            scores *= self.shrink[:, None]
        return scores

    def product(self, residuals: Array, weights: Array) -> Array:
        """Return the sum of features times `residuals` (k, c) times `weights` (k,): (width, c).

        The sum is in float64. A record of weight zero contributes zero, even if its residual is not
        finite.
        """
        xp = namespace(weights)
        if not bool(weights.all()):
            residuals = xp.where(weights[:, None] == 0, xp.zeros_like(residuals), residuals)
        weights = xp.astype(weights, residuals.dtype, copy=False)
        if self.shrink is not None:
            weights = weights * self.shrink
        scaled = residuals * (weights * self.scale)[:, None]
        sums = row_product(self.X, scaled)
        parts = [sums if self._layout is None else self._layout.outward(sums)]
        if self.bias is not None:
            parts.append(self.bias * column_sums(scaled)[None, :])
        total = xp.concat(parts, axis=0) if len(parts) > 1 else parts[0]
        if self.shift is not None:
            sums = column_sums(residuals * weights[:, None])[None, :]
            total = total - as_like(self.shift.mean, total)[:, None] * sums
            if self.shift.constant is not None:
                total = xp.concat([total, self.shift.constant * sums], axis=0)
        return self._weighed(total)

    def _weighed(self, entries: Array) -> Array:
        """Multiply entries (..., width, c) by the weights of the columns."""
        if self.columns is None:
            return entries
        xp, d = namespace(entries), self.X.shape[1]
        own = entries[..., :d, :] * as_like(self.columns, entries)[:, None]
        return xp.concat([own, entries[..., d:, :]], axis=-2)

    def sums(self, residuals: Array, weights: Array, counts: np.ndarray) -> Array:
        """Return :meth:`product`, (m, width, c), for runs of records; `counts` are the lengths."""
        xp = namespace(weights)
        weights = xp.astype(weights, xp.float64)[:, None]
        own = weights * xp.where(weights == 0, xp.zeros_like(residuals), residuals)
        if self.shrink is not None:
            own = own * self.shrink[:, None]
        scaled = own * self.scale[:, None]
        ones = xp.ones_like(scaled[:, :1])
        parts = [run_sums(self._rows(self.X), scaled, counts)]
        if self.bias is not None:
            parts.append(self.bias * run_sums(ones, scaled, counts))
        total = xp.concat(parts, axis=1) if len(parts) > 1 else parts[0]
        if self.shift is not None:
            sums = run_sums(ones, own, counts)
            total = total - as_like(self.shift.mean, total)[:, None] * sums
            if self.shift.constant is not None:
                total = xp.concat([total, self.shift.constant * sums], axis=1)
        return self._weighed(total)

    def dense(self) -> Array:
        """Return features as a dense matrix (k, width), for products among features."""
        if sparse.issparse(self.X):
            rows = self.X.toarray().astype(np.float64, copy=False) * self.scale[:, None]
        else:
            rows = self._rows(self.X) * self.scale[:, None]
        xp = namespace(rows)
        entries = [rows]
        if self.bias is not None:
            entries.append(self.bias * as_like(self.scale, rows)[:, None])
        if len(entries) > 1:
            rows = xp.concat(entries, axis=1)
        if self.shift is not None:
            rows -= as_like(self.shift.mean, rows)[None, :]
            if self.shift.constant is not None:
                constant = xp.full_like(rows[:, :1], self.shift.constant)
                rows = xp.concat([rows, constant], axis=1)
        if self.columns is not None:
            rows[:, : self.X.shape[1]] *= as_like(self.columns, rows)[None, :]
        if self.shrink is not None:
            rows *= self.shrink[:, None]
        return rows

    def norms(self, lengths: Array) -> Array:
        """Return norms of features of given `lengths` before the shift, and not shrunk after it."""
        xp = namespace(lengths)
        assert self.shift is not None
        d, X = self.X.shape[1], self.X
        mean = as_like(self.shift.mean, lengths)
        if self.columns is not None:
            mean = xp.concat([mean[:d] * self.columns, mean[d:]])
        if sparse.issparse(X):
            if self.columns is not None:
                X = sparse.csr_array(
                    (X.data * self.columns[X.indices], X.indices, X.indptr), shape=X.shape
                )
                lengths = np.hypot(row_norms(X), self.bias or 0.0) * self.scale
            # |u - m|^2 = |u|^2 - 2 <u, m> + |m|^2 cancels: a bound on the rounding error is added.
            center = float(np.linalg.norm(mean))
            dots = (X.astype(np.float64) @ (mean[:d] / (center or 1.0))) * self.scale
            dots = np.where(self.scale == 0, 0.0, dots) * center  # for a row out of range
            if self.bias is not None:
                dots += self.bias * self.scale * mean[d]
            squares = lengths**2 - 2 * dots + center**2
            squares = np.maximum(squares, 0) + 8 * (d + 8) * EPS * (lengths + center) ** 2
        else:
            scale = xp.astype(self.scale, xp.float64)
            pieces = slices(X.shape[0], piece_rows(X)) or [slice(0, 0)]
            squares = xp.concat([self._squares(some, scale, mean[:d]) for some in pieces])
            if self.bias is not None:
                squares = squares + (self.bias * scale - mean[d]) ** 2
        if self.shift.constant is not None:
            squares = squares + self.shift.constant**2
        return xp.sqrt(squares) * (1 + (d + 8) * EPS)

    def _rows(self, X: Array) -> Array:
        """Return the original rows, from their entries if they are formed."""
        return X if self._layout is None else self._layout.features(X)

    def _squares(self, some: slice, scale: Array, mean: Array) -> Array:
        """Return squared norms of features of dense rows, without those of the bias entry."""
        xp, columns = namespace(scale), self.columns
        rows = xp.astype(self.X[some, :], xp.float64) * scale[some, None]
        if self._layout is not None:  # a norm does not depend on order
            mean, places = mean[self._layout.places], self._layout.places
            columns = self._layout.sizes * (1.0 if columns is None else columns[places])
        if columns is not None:
            rows *= columns[None, :]
        rows -= mean[None, :]
        return squares_of_rows(rows, self.X) + vanished(rows)
