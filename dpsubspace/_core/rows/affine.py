"""Private rows after an affine map that is public or released, formed chunk by chunk.

Record i enters as ``u_i = ((x_i - mean) @ weights, 1)``, with other numbers of the record appended
if a solver needs them, and as ``z_i = W^T u_i`` if directions were released. A mapped row is a
function of that row, whatever the map is. Nothing of the size of the rows is kept, so that a memory
map stays on disk.

Design note. Rows in units of their spread are small differences of large numbers if a column is far
from 0. They are used in float64, in which sums over records round so little that no blocks are
needed, and in which errors that W magnifies stay far below the noise. Few of the passes that make
them are needed repeatedly: once directions are released, W includes the standardising
(:class:`_Folded`), and a step clips the entries of a row and does nothing else to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    Scratch,
    as_like,
    at_least,
    at_most,
    changed,
    chunk_rows,
    device,
    even_slices,
    namespace,
    products_by_row,
    run_sums,
    squares_of_rows,
    vanished,
)
from dpsubspace._core.ground.forms import NumberArray, Record
from dpsubspace._core.rows.chunks import SHARED, FormedRows, over_chunks
from dpsubspace._core.rows.records import RecordRows, Records

# Largest number that may be subtracted in float32, in units of the result.
_NEAR = 2.0**9

# Largest factor by which a row may be longer than the part of it that is used, if rows may have
# other positions in a chunk.
_FARTHEST = 2.0**12

# Numbers of a chunk in float64 (2 MiB): a few copies of them should stay in the cache.
_CHUNK = 1 << 18

# Entries of rows that are mapped or clipped together, in each pass.
_RUN = 1 << 11

# Largest size of records that are stored column by column: passes over rows as short as that take
# up to ten times as long.
_FEW = 32

# Largest slack of sums over rows that are not standardised one by one.
_MOST_SLACK = 1e-4

# Sizes of entries for which no product leaves the range of float32, or of float64.
_SMALL, _LARGE = 1e-30, 1e30


@dataclass(frozen=True)
class Affine:
    """The map ``(x - mean) @ weights - offset`` of rows x, made of public or released numbers."""

    mean: np.ndarray  # (d,): subtracted first
    weights: np.ndarray  # (d,): factors of the columns, or a matrix
    offset: np.ndarray | float = 0.0  # (k,): subtracted last

    @classmethod
    def identity(cls, n_features: int) -> Affine:
        """Return the map that leaves rows unchanged."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @property
    def width(self) -> int:
        return self.weights.shape[-1]

    @property
    def diagonal(self) -> bool:
        """Whether each column is mapped by itself."""
        return self.weights.ndim == 1

    @cached_property
    def shift(self) -> np.ndarray:
        """The part that is subtracted from products of the original rows with the weights."""
        return self.mean @ self.weights + self.offset

    @cached_property
    def most_subtracted(self) -> float:
        """The most that the mean subtracts from any of these products."""
        return float(np.abs(self.mean) @ np.abs(self.weights).max(axis=-1, initial=0.0))

    def scaled(self, location: np.ndarray, scale: np.ndarray) -> Affine:
        """Return this map, followed by: less `location` and over `scale`, both (width,)."""
        if self.diagonal:
            mean = self.mean + (self.offset + location) / self.weights
            return Affine(mean, self.weights / scale)
        return Affine(self.mean, self.weights / scale, (self.offset + location) / scale)

    def to_input_units(self, coef: np.ndarray) -> np.ndarray:
        """Return coefficients (d, c) of original rows, from those (width, c) of mapped ones."""
        return self.weights[:, None] * coef if self.diagonal else self.weights @ coef

    def constant(self, coef: np.ndarray) -> np.ndarray:
        """Return the constant of scores (c,) from coefficients (width, c) of mapped rows."""
        return (
            -(self.mean @ self.to_input_units(coef))
            - np.broadcast_to(self.offset, self.width) @ coef
        )


# A matrix gives rows other columns, and a diagonal does not.
AFFINE_FORM = Record(
    Affine,
    mean=NumberArray(("features",), low=-math.inf, high=math.inf),
    weights=NumberArray(("features",), ("features", "mapped"), low=-math.inf, high=math.inf),
    offset=NumberArray((), ("mapped",), ("features",), low=-math.inf, high=math.inf),
)


@dataclass(frozen=True)
class _Folded:
    """Standardising and mixing in one matrix M: ``z_i = M^T (c_i, 1)``.

    Clipping a row takes no rounding, so that its record is M^T c with the numbers that are actually
    stored. Let ``m`` be the means in units of the columns and ``u = (w c - m, 1)`` the standardised
    row. Then ``z = W^T u`` but for the rounding of M, and ``|z| >= |u| / |W^-1|``. Entries of c are
    added up before they are mixed, and entry j of the sum rounds in proportion to ``|c_j|``: that
    moves z by a share of ``sum_j |c_j| |M_j|``, over the rows of M, and so does the rounding of the
    product with M. Of these, ``|w_j c_j| <= |u_j| + |m_j|``, the last row is no longer than
    ``|W_last| + sum_j |m_j| |W_j|``, and 1 is at most ``|u|``. Together that is at most
    ``(|W|_F + 2 sum_j |m_j| |W_j|) |u|``, and so at most `condition` times ``|z|``, of which a
    percent is for the rounding of M. If there is no constant entry, m is 0, and the same holds.
    """

    # (d,): limits that the entries of ``c_i`` are clipped to, where standardised ones would reach
    # the limit.
    low: np.ndarray
    high: np.ndarray
    matrix: np.ndarray  # (width, q): M
    condition: float  # How much longer terms may be before they are mixed

    @classmethod
    def of(cls, rows: AffineRows, weights: np.ndarray, least: float) -> _Folded | None:
        """Return the folded map of rows and released W; None if that would lose digits.

        `least` is the least singular value of W. Only public and released numbers decide, and no
        row.
        """
        affine, k, xp = rows.affine, rows.affine.width, namespace(rows.X)
        if not affine.diagonal or rows.beside or rows.limit == math.inf or rows.records.grouped:
            return None
        if not xp.isdtype(rows.X.dtype, "real floating"):
            return None
        used, offset = affine.weights != 0, np.broadcast_to(affine.offset, k)
        factors = np.where(used, affine.weights, 1.0)
        shifts = affine.mean * affine.weights + offset
        half = rows.limit / np.abs(factors)
        middle = np.where(used, affine.mean + offset / factors, 0.0)
        most, lengths = np.abs(middle) + half, np.linalg.norm(weights, axis=1)
        sizes = np.concatenate([half[used], most[used], lengths])
        if (sizes < _SMALL).any() or (sizes > _LARGE).any() or offset[~used].any():
            return None
        if len(weights) == k and shifts.any():  # and no constant entry that would absorb it
            return None
        matrix = weights.copy()
        matrix[:k] *= affine.weights[:, None]
        if len(weights) > k:
            matrix[k] -= shifts @ weights[:k]
        moved = float(np.abs(shifts) @ lengths[:k])
        condition = 1.01 * (float(np.linalg.norm(lengths)) + 2 * moved) / least
        half[~used] = 0.0
        return cls(middle - half, middle + half, matrix, condition)

    def cut(self, X: Array, out: Array) -> None:
        """Copy original rows into `out`, with entries that are too large or too small clipped."""
        low, high = as_like(self.low, X), as_like(self.high, X)
        if not isinstance(X, np.ndarray):
            out[...] = at_most(at_least(X, low), high)
            return
        kept = Scratch(X.shape, X.dtype)
        for rows, times in _runs(X.shape):
            own = _flat(kept.array[rows], times)
            np.maximum(_flat(X[rows], times), np.tile(low, times), out=own)
            np.minimum(own, np.tile(high, times), out=own)
        out[...] = kept.array


def _runs(shape: tuple[int, ...]) -> tuple[tuple[slice, int], tuple[slice, int]]:
    """Yield rows of NumPy in runs of many rows, and the remaining ones one by one.

    NumPy takes up to twice as long for the entries of one row after the other.
    """
    together = max(1, _RUN // shape[1])
    whole = shape[0] - shape[0] % together
    return (slice(whole), together), (slice(whole, None), 1)


def _flat(rows: np.ndarray, times: int) -> np.ndarray:
    return rows.reshape(-1, times * rows.shape[1])


def _standardise(own: Array, mean: Array, weights: Array) -> None:
    """Subtract `mean` from rows, and multiply them by `weights`, in place."""
    if not isinstance(own, np.ndarray) or not own.flags.c_contiguous:
        own -= mean
        own *= weights
        return
    for rows, times in _runs(own.shape):
        run = _flat(own[rows], times)
        run -= np.tile(mean, times)
        run *= np.tile(weights, times)


@dataclass(frozen=True)
class Mixing:
    """Mixing of records: decided once, for all parts of the rows."""

    weights: np.ndarray  # (width, width): W of ``z_i = W^T u_i``, released
    # How much longer terms may be before they are mixed, and the parts that mixing adds up.
    condition: float
    folded: _Folded | None = None  # Standardising and mixing in one, if no digits are lost


class AffineRows(RecordRows):
    """All records after an affine map, visited chunk by chunk.

    Has the attributes of rows that :class:`~dpsubspace._core.gradients.linear.LinearSource` and the
    second moments of ``_core/statistics/moments.py`` need.

    With `constant` an entry of 1 follows the mapped row, and `beside` (n, c) are other numbers of
    the rows, which follow that. Entries of mapped rows are clipped to `limit` on either side of 0.
    Without `records` each row is a record.
    """

    # Values that follow from sizes and released numbers: see `RemoteRows` in _core/rows/remote.py.
    PUBLIC = frozenset(
        {"n_samples", "width", "affine", "records", "chunk", "floor", "radius", "shift", "mixing"}
        | {"only_dense", "sum_dtype", "slack", "batch_slack", "mixing_by"}
    )

    def __init__(
        self,
        X: Array,
        affine: Affine,
        *,
        constant: bool,
        limit: float = math.inf,
        beside: Array | None = None,
        records: Records | None = None,
    ):
        super().__init__(X, records)
        self.affine, self.limit, self._beside = affine, limit, beside
        self._constant = constant
        self.mixing: Mixing | None = None
        self.radius = math.inf
        self._lengths: Array | None = None
        xp = namespace(X)
        self.dtype = self.sum_dtype = xp.float64
        self.shift, self.floor, self.only_dense = None, 1.0, False
        # A product reads original rows once; its few columns are visited repeatedly.
        read = X.shape[1] // (1 if affine.diagonal or self.records.grouped else 4)
        self.chunk = chunk_rows(X, max(1, _CHUNK // max(read, self.width)))

    # Other views of the same records --------------------------------------------------------

    def mixing_by(self, weights: np.ndarray) -> Mixing:
        """Return the mixing of records by released `weights` W of shape (width, width)."""
        assert weights.shape == (self.width, self.width)
        least = float(np.linalg.svd(weights, compute_uv=False)[-1])
        if not least > 0:
            return Mixing(weights, math.inf)
        folded = _Folded.of(self, weights, least)
        if folded is not None:
            mixing = Mixing(weights, folded.condition, folded)
            if self.mixed(mixing).slack < _MOST_SLACK:
                return mixing
        return Mixing(weights, float(np.linalg.norm(weights)) / least)

    def mixed(self, mixing: Mixing) -> AffineRows:
        """Return the records as ``W^T u_i``."""
        return changed(self, mixing=mixing, radius=math.inf, _lengths=None)

    def with_columns(self, beside: Array) -> AffineRows:
        """Return the records with other numbers (n, c) appended to their entries."""
        return changed(self, _beside=beside, _lengths=None)

    def clipped(self, radius: float) -> AffineRows:
        """Return the records, shrunk to norm `radius` if they are longer."""
        return changed(self, radius=radius)

    def taken(self, batch: np.ndarray) -> AffineRows:
        """Return a batch of the records, with the same maps; copies their rows or their sources."""
        rows, other = self.records.rows(batch), changed(self, _lengths=None)
        X = self.X.taken(rows) if isinstance(self.X, FormedRows) else self.X[rows, :]
        RecordRows.__init__(other, X, self.records.taken(batch))
        other._beside = None if self._beside is None else self._beside[rows, :]
        return other

    def materialised(self) -> AffineRows:
        """Return the records formed once and kept, if a matrix makes them shorter than the rows.

        A product with another number of rows may round otherwise, and norms must be those of the
        records that are added up.
        """
        if self.affine.diagonal:
            return self
        xp, k, at = namespace(self.X), self.affine.width, 0
        Z = xp.empty((self.n_rows, k), dtype=xp.float64, device=device(self.X))
        with over_chunks(self) as each:
            for part in each(self._mapped):
                Z[at : (at := at + len(part)), :] = part
        return AffineRows(
            Z,
            Affine.identity(self.affine.width),
            constant=self._constant,
            limit=self.limit,
            beside=self._beside,
            records=self.records,
        )

    def with_room(self, beside: int, columns: int) -> AffineRows:
        """Return these records: chunks already have room for a few copies."""
        return self

    def wide(self) -> AffineRows:
        return self

    def rescaled(self, location: np.ndarray, scale: np.ndarray) -> AffineRows:
        """Return mapped rows less `location` and over `scale`, without appended numbers."""
        affine = self.affine.scaled(location, scale)
        return AffineRows(self.X, affine, constant=False, records=self.records)

    # Sizes and chunks -----------------------------------------------------------------------

    @property
    def width(self) -> int:
        """The number of entries of a record, which mixing does not change."""
        return self.affine.width + self._constant + self.beside

    @property
    def beside(self) -> int:
        return 0 if self._beside is None else self._beside.shape[1]

    def chunks(self, batch: np.ndarray | None = None) -> list[slice]:
        """Return slices that together name every record once; there are no batches."""
        assert batch is None
        step = self.chunk
        if self.bytes_read() >= SHARED:  # at least two if there is much to do
            step = min(step, chunk_rows(self.X, self.n_rows // 2 + 1))
        return even_slices(self.n_rows, step)

    @property
    def gathered(self) -> int:
        return self.chunk

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return 8.0 * self.n_rows * max(self.X.shape[1], self.width)

    # Records --------------------------------------------------------------------------------

    def at(self, rows: slice) -> AffineBlock:
        block = self._block(rows)
        if self.radius == math.inf:
            return block
        U, norms = block.U, self._norms_of(block)
        xp = namespace(U)
        shrink = self.radius * (1 - 16 * EPS) / at_least(norms, self.radius)
        if not bool(xp.all(shrink > 0)):  # a record out of range is a null record
            U = xp.where((shrink > 0)[:, None], U, xp.zeros_like(U))
        return AffineBlock(U, block.W, shrink, block.kept)

    def _block(self, rows: slice) -> AffineBlock:
        """Return records of a chunk in float64, and the matrix that mixes them."""
        mixing = self.mixing
        if mixing is None or mixing.folded is None:
            U = self._formed(rows)
            return AffineBlock(U, None if mixing is None else as_like(mixing.weights, U))
        X, kept = self.X[rows, :], None
        if isinstance(X, np.ndarray):
            kept = Scratch((X.shape[0], self.width), np.float64)
        U = self._completed(rows, self._empty(rows) if kept is None else kept.array)
        mixing.folded.cut(X, U[:, : self.affine.width])
        return AffineBlock(U, as_like(mixing.folded.matrix, U), kept=kept)

    def _formed(self, rows: slice) -> Array:
        """Return records of a chunk before they are mixed, in float64."""
        if self.width == self.affine.width and not self._by_column:
            return self._mapped(rows)
        U = self._completed(rows, self._empty(rows))
        self._mapped(rows, U[:, : self.affine.width])
        return U

    def _completed(self, rows: slice, U: Array) -> Array:
        """Append constant and other numbers to the mapped rows `U` of a chunk."""
        k = self.affine.width
        if self._constant:
            U[:, k] = 1.0
        if self._beside is not None:
            U[:, k + self._constant :] = self._beside[rows, :]
        return U

    def _empty(self, rows: Any) -> Array:
        # Rows may have to be formed, so their number is not requested from them.
        xp, some = namespace(self.X), isinstance(rows, slice)
        n = len(range(*rows.indices(self.n_rows))) if some else len(rows)
        if self._by_column:
            return np.empty((n, self.width), order="F")
        return xp.empty((n, self.width), dtype=xp.float64, device=device(self.X))

    @property
    def _by_column(self) -> bool:
        """Whether columns of a chunk are contiguous: for products with few columns."""
        few = not self.affine.diagonal and self.width <= _FEW
        return few and isinstance(self.X, (np.ndarray, FormedRows))

    def _mapped(self, rows: slice, out: Array | None = None) -> Array:
        """Map rows of a chunk in float64; the result is in `out` if that is given."""
        X, affine = self.X[rows, :], self.affine
        if not affine.diagonal:
            own = self._product(X, out)
        else:
            xp = namespace(X)
            if out is None or not isinstance(X, np.ndarray):
                own = xp.astype(X, xp.float64)  # a copy, even of float64
            else:
                kept = Scratch(X.shape, np.float64)
                own = kept.array
                own[...] = X
            _standardise(own, _wide(affine.mean, X), _wide(affine.weights, X))
            if np.any(affine.offset):
                own -= _wide(affine.offset, X)
        if self.limit < math.inf and isinstance(own, np.ndarray):  # in one pass
            np.clip(own, -self.limit, self.limit, out=own)
        elif self.limit < math.inf:
            own = at_most(at_least(own, -self.limit), self.limit)
        if out is None or own is out:
            return own
        out[...] = own
        return out

    def _product(self, X: Array, out: Array | None) -> Array:
        """Multiply rows by a matrix, in float64: in `out` if that is as good as any place."""
        xp, affine = namespace(X), self.affine
        if not self._near:
            X = self._within_reach(xp.astype(X, xp.float64) - _wide(affine.mean, X))
            return X @ _wide(affine.weights, X) - _wide(affine.offset, X)
        # A matrix is applied to the original rows: their dtype has enough digits for it.
        own = X @ as_like(affine.weights, X)
        if out is not None and isinstance(own, np.ndarray):
            out[...] = own
            own = out
        own = xp.astype(own, xp.float64, copy=False)
        own -= _wide(affine.shift, X)
        return own

    @property
    def _near(self) -> bool:
        """Whether the subtracted numbers are small beside the result."""
        if self.records.grouped:  # positions in a chunk may differ, and float32 rounds much
            return False
        return self.affine.most_subtracted < _NEAR

    def _within_reach(self, X: Array) -> Array:
        """Subtract the mean; shrink absurdly long rows if a record may have several rows.

        A row may then have another position in a chunk, where the product with a matrix rounds
        otherwise. Rounding is in proportion to the row, and the product may be small beside it.
        """
        if not self.records.grouped:
            return X
        xp, reach = namespace(X), self._reach
        return X * (reach / at_least(xp.sqrt(xp.vecdot(X, X)), reach))[:, None]

    @property
    def _reach(self) -> float:
        """The length of a row whose product with the matrix is far beyond the limit."""
        usual = self.limit if self.limit < math.inf else 1.0
        return _FARTHEST * usual / float(np.linalg.norm(self.affine.weights, 2) or 1.0)

    def _norms_of(self, block: AffineBlock) -> Array:
        """Return norms of the records of a chunk, never too small; inf if one is out of range."""
        U, W, xp = block.U, block.W, namespace(block.U)
        Z = U if W is None else U @ W
        norms = _at_least_lengths(Z) * (1 + (Z.shape[1] + 8) * EPS)
        if W is not None:  # each product rounds in proportion to itself
            lengths = xp.sqrt(xp.vecdot(W, W))
            norms = norms + (U.shape[1] + 8) * EPS * (xp.abs(U) @ lengths)
        return xp.where(xp.isnan(norms), xp.inf, norms)

    def norms(self) -> Array:
        """Return norms of the records, (n,), in float64; inf if one is out of range."""
        if self._lengths is None:

            def of_chunk(rows: slice) -> Array:
                return self._norms_of(self._block(rows))

            with over_chunks(self) as each:
                self._lengths = namespace(self.X).concat([*each(of_chunk)])
        return self._lengths

    @property
    def lengths(self) -> Array:
        return self.norms()

    @property
    def slack(self) -> float:
        """Return how far rounding can move a sum of weighted records between neighbours.

        The unit is the norm of one term. Terms are added up before they are mixed; an unmixed term
        may be longer, by a factor of at most ``|W|_F |W^-1|``. The sum of a chunk is then mixed,
        which adds up parts that are together longer than it by no more than the same factor.
        """
        own = 4.0 * (self.width + 8)
        if not self.affine.diagonal:  # of rows at other positions in a chunk
            own += 4.0 * _FARTHEST * (self.X.shape[1] + 8)
        terms = self.records.slack(EPS, self.chunk, own=own)
        together = min(self.chunk, self.n_samples) + 4
        condition = 1.0 if self.mixing is None else self.mixing.condition
        return condition * (terms + together * (self.width + 8) * EPS)

    batch_slack = slack

    @property
    def own_rounding(self) -> float:
        """Rounding of a record that is mixed by itself, in units of its norm."""
        return (self.width + 8) * EPS * (1.0 if self.mixing is None else self.mixing.condition)


class AffineBlock:
    """Several records: ``shrink_i W^T u_i``.

    The numbers of `U` are valid as long as the block exists: the next one may use their memory.
    """

    largest_scale = 1.0

    def __init__(
        self,
        U: Array,
        W: Array | None,
        shrink: Array | None = None,
        kept: Scratch | None = None,
    ):
        self.U, self.W, self.shrink, self.kept = U, W, shrink, kept

    @property
    def scale(self) -> Array:
        return namespace(self.U).ones_like(self.U[:, 0])

    @property
    def width(self) -> int:
        return self.U.shape[1] if self.W is None else self.W.shape[1]

    def scores(self, params: Array, *, by_row: bool = False) -> Array:
        """Return records times `params` of shape (width, c): (k, c).

        With `by_row` the scores of a record are the same to the last bit at any position, as in
        :meth:`~dpsubspace._core.rows.features.FeatureBlock.scores`.
        """
        weights = params if self.W is None else self.W @ params
        scores = products_by_row(self.U, weights) if by_row else self.U @ weights
        return scores if self.shrink is None else scores * self.shrink[:, None]

    def product(self, residuals: Array, weights: Array) -> Array:
        """Return the sum of ``weights[i] * record[i] residuals[i]^T``, (width, c)."""
        xp = namespace(self.U)
        if self.shrink is not None:
            weights = weights * self.shrink
        U, weighted, counts = self.U, residuals * weights[:, None], weights > 0
        if not bool(xp.all(counts)):
            # A record that does not count may be out of range, and 0 times inf is not 0.
            weighted = xp.where(counts[:, None], weighted, xp.zeros_like(weighted))
            U = xp.where(counts[:, None], U, xp.zeros_like(U))
        total = U.T @ weighted
        return total if self.W is None else self.W.T @ total

    def sums(self, residuals: Array, weights: Array, counts: np.ndarray) -> Array:
        """Return :meth:`product`, (m, width, c), for runs of records; `counts` are the lengths."""
        xp = namespace(self.U)
        weights = (weights if self.shrink is None else weights * self.shrink)[:, None]
        own = weights * xp.where(weights == 0, xp.zeros_like(residuals), residuals)
        total = run_sums(self.U, own, counts)
        if self.W is None:
            return total
        return xp.permute_dims(xp.tensordot(total, self.W, axes=([1], [0])), (0, 2, 1))

    def taken(self, rows: slice) -> AffineBlock:
        """Return the chosen records, one after another."""
        shrink = None if self.shrink is None else self.shrink[rows]
        return AffineBlock(self.U[rows, :], self.W, shrink, self.kept)

    def dense(self) -> Array:
        Z = self.U if self.W is None else self.U @ self.W
        return Z if self.shrink is None else Z * self.shrink[:, None]

    def wide(self) -> AffineBlock:
        return self


def _at_least_lengths(U: Array) -> Array:
    """Return norms of rows in float64, not too small but for rounding."""
    xp = namespace(U)
    return xp.sqrt(squares_of_rows(U) + vanished(U))


def _wide(values: Any, like: Array) -> Array:
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=np.float64)
    return namespace(like).asarray(values, dtype=namespace(like).float64, device=device(like))
