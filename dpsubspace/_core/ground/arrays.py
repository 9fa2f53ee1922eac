"""Array namespace, device and dtype, and the sums for which rounding matters.

Arithmetic in this package is written once against the array API standard, so that the same lines
run on NumPy and on torch. Norms are computed in float64 whatever the dtype of the data.

Design note. Rounding is part of a sum's sensitivity: in a float32 sum of a million
rows, one row can change how every later addition is rounded and so move the result by a
thousand times its own size. Sums over records are therefore computed in short blocks, the
blocks of a chunk of rows are added in float64, and the chunks by :class:`Total`, which loses almost
nothing. A changed record changes one block of one chunk, so rounding can move the sum by no more
than :func:`sum_slack`, which the bounds include. This assumes that matrix products (of blocks, and
of rows with weights) give the same result for the same numbers, with one number of threads:
OpenBLAS does, and MKL does where MKL_CBWR is set.

Sums of integers would need neither this allowance nor this assumption. They were tried
(``benchmarks/bench_exact_sums.py``) and not adopted: in float32 a step takes 1.1 times as long with
a copy of the rows and 1.5 to 1.8 times without, for 0.2 % less noise, and scores would still rest
on BLAS. In float64 they need a copy, and the allowance that they would save is tiny.
"""

from __future__ import annotations

import copy
import importlib
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace, device
from scipy import sparse

Array = Any
T = TypeVar("T")
EPS = float(np.finfo(np.float64).eps)

# Records that are added up before their sum joins the total, in float64. Bounds on rounding depend
# on this number.
BLOCK = 128

# Number of rows in a chunk: rows, and the numbers that are computed from them, fill this many
# bytes. A chunk is small enough for the processor's cache and for memory, and large enough that the
# overhead of function calls is small. Products need a minimum number of rows to run at full speed,
# and bounds on rounding grow with the largest number; on a GPU chunks always have that number.
_CHUNK_BYTES, _FEWEST_ROWS, _MOST_ROWS, _SPARSE_ROWS = 1 << 23, 1 << 12, 1 << 16, 1 << 14

# Below _SHORT columns, BLAS is fast with transposed rows; from _LONG columns on, sums in float64
# are faster with the rows first.
_SHORT, _LONG = 32, 64

# Entries of rows that are converted to float64 at once: on the CPU, several passes over them should
# find them in the cache (512 KiB); a GPU is faster with more.
_PIECE, _PIECE_GPU = 1 << 16, 1 << 23


# Namespaces and devices ---------------------------------------------------------------------


_NUMPY = array_namespace(np.empty(0))


def changed(one: T, **values: Any) -> T:
    other = copy.copy(one)
    vars(other).update(values)
    return other


def namespace(x: Array) -> Any:
    """Array API namespace of `x`; for rows elsewhere, that of their empty template."""
    return _NUMPY if isinstance(x, np.ndarray) else array_namespace(getattr(x, "template", x))


def as_like(values: Any, like: Array) -> Array:
    like = getattr(like, "template", like)
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=like.dtype)
    return namespace(like).asarray(values, dtype=like.dtype, device=device(like))


def to_numpy(x: Array) -> np.ndarray:
    """Convert `x` to a NumPy array on the CPU; rows elsewhere stay where they are."""
    if isinstance(x, np.ndarray) or hasattr(x, "template"):
        return x
    return x.detach().cpu().numpy()


def eps_of(x: Array) -> float:
    numpy = isinstance(x, np.ndarray) or sparse.issparse(x)
    return float((np if numpy else namespace(x)).finfo(x.dtype).eps)


def rounded_up(x: Array, dtype: Any) -> Array:
    """Convert a nonnegative `x` to another dtype, rounding up."""
    xp = namespace(x)
    if x.dtype == dtype:
        return x
    return xp.astype(x * (1 + float(xp.finfo(dtype).eps)), dtype)


def at_least(x: Array, low: float) -> Array:
    """Maximum of each entry and `low`, NaN where the entry is NaN.

    It takes one pass; `clip` of the array API for NumPy takes several, with a mask.
    """
    return np.maximum(x, low) if isinstance(x, np.ndarray) else x.clip(min=low)


def at_most(x: Array, high: float) -> Array:
    """Minimum of each entry and `high`, NaN where the entry is NaN."""
    return np.minimum(x, high) if isinstance(x, np.ndarray) else x.clip(max=high)


def row_squares(R: Array) -> Array:
    """Squared norms of the rows of `R` in its dtype, added up in any order."""
    if isinstance(R, np.ndarray):
        return np.einsum("ji,ji->i", R.T, R.T)  # in one pass, where columns are contiguous
    return (R * R).sum(axis=1)


def squares_of_rows(R: Array, of: Array = None) -> Array:
    """Squared norms of the rows of `R`, whose rows or columns are contiguous as in the array `of`.

    The result for a row does not depend on the number of other rows. A copy of a single row no
    longer shows whether its columns are contiguous; with `of`, it is added up as it would be among
    others.
    """
    if not _by_column(R if of is None else of):
        return _dots(R, R)
    if R.shape[0] == 1:
        return row_squares(np.asfortranarray(np.repeat(R, 2, axis=0)))[:1]
    return row_squares(R)


def _dots(R: Array, other: Array) -> Array:
    """Inner products of the contiguous rows of `R` with rows of `other`, or with `other` itself.

    Each result is the same to the last bit for any number of rows. With NumPy this holds by itself.
    torch adds up in another order where there are few rows, so here halves of all rows are added
    entry by entry.
    """
    if isinstance(R, np.ndarray):
        return namespace(R).vecdot(R, other)
    terms, width = R * other, R.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms.sum(axis=1) if width == 0 else terms[:, 0]


def _by_column(R: Array) -> bool:
    """Whether the columns, and not the rows, of a NumPy array are contiguous."""
    if not isinstance(R, np.ndarray):
        return False
    step, width = R.strides
    return step < width or (step == width and R.shape[0] == 1 < R.shape[1])


def cast_rows(X: Array, dtype: Any) -> Array:
    """Copy of another dtype with the same memory order of columns, also for a single row."""
    if _by_column(X):
        return X.astype(dtype, order="F")
    return namespace(X).astype(X, dtype)


def native(x: np.ndarray) -> np.ndarray:
    """Array in the byte order of this machine; scikit-learn's checks keep the byte order of frames.

    PyTorch refuses other byte orders, and BLAS makes a copy at every product.
    """
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def vanished(R: Array) -> float:
    """Bound on the underflow in the squared norm of a row of `R`.

    A row whose computed norm is 0 is never clipped, but its product with a large enough residual is
    not 0.
    """
    return R.shape[1] * float(namespace(R).finfo(R.dtype).smallest_normal)


class Scratch:
    """Uninitialised array that no other scratch array shares as long as this object lives.

    A chunk uses its MiB of memory for less than a millisecond. Where the allocator returns such
    memory to the system at once, as on the workers of Dask, the system clears it again and again,
    which takes longer than the computation. So each thread keeps its array, one for each dtype.
    """

    _here = threading.local()
    _flat: np.ndarray | None = None

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        size, dtype = math.prod(shape), np.dtype(dtype)
        flat = self._free().pop(dtype, None)  # a second scratch array finds none, and is new
        if flat is None or flat.size < size:
            flat = np.empty(size, dtype)
        self._flat, self.array = flat, flat[:size].reshape(shape)

    def __del__(self) -> None:
        if self._flat is not None:
            self._free()[self._flat.dtype] = self._flat

    @classmethod
    def _free(cls) -> dict[Any, np.ndarray]:
        return cls._here.__dict__.setdefault("free", {})

    def __reduce__(self) -> Any:
        raise TypeError("scratch memory has numbers of other chunks: it is not copied or pickled.")


def sampled(n: int, most: int, rng: np.random.Generator) -> Any:
    """Index of `n` rows: all of them, or a random sample of `most` in their order."""
    return slice(None) if n <= most else np.sort(rng.permutation(n)[:most])


def record_index(y: Array) -> Array:
    """Indices 0, 1, ... of the records of `y`, on its device."""
    return namespace(y).arange(y.shape[0], device=device(y))


def check_device(value: Any, *, exact: bool = True) -> Any:
    """Convert a `device` parameter to None for NumPy, or a torch.device; ValueError with its name.

    "cpu" is NumPy; for tests, ``torch.device("cpu")`` itself selects torch on the CPU. `exact`
    refuses reduced precision, which the bounds of sums do not include.
    """
    if isinstance(value, str) and value == "cpu":
        return None
    found: Any
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.device):
        found = value
    elif isinstance(value, str) and (value in ("auto", "cuda") or value.startswith("cuda:")):
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            if value == "auto":
                return None
            raise ImportError(
                f"`device`={value!r} needs torch: pip install 'dpsubspace[torch]'."
            ) from None
        if value == "auto":
            return torch.device("cuda") if torch.cuda.is_available() else None
        found = torch.device(value)
    else:
        raise ValueError(
            "`device` must be 'cpu', 'cuda', 'cuda:<index>', 'auto' or a torch.device,"
            f" got {value!r}."
        )
    if found.type == "cuda":
        count = torch.cuda.device_count()
        if (found.index or 0) >= count:
            raise ValueError(
                f"`device`={value!r} is not there: torch sees {count} CUDA devices."
                " Use device='cpu' or 'auto'."
            )
        if exact and torch.get_float32_matmul_precision() != "highest":
            raise ValueError(
                "torch.get_float32_matmul_precision() must be 'highest' on a GPU: rounding is"
                " part of a sum's sensitivity. Call torch.set_float32_matmul_precision('highest')."
            )
    elif found.type != "cpu":
        raise ValueError(f"`device`={value!r} is not supported: sums need float64. Use 'cpu'.")
    return found


def on_device(x: Any, where: Any) -> Any:
    """Move NumPy `x` to a device of :func:`check_device`; `x` itself where either is None."""
    if x is None or where is None:
        return x
    if hasattr(x, "template"):
        raise ValueError("rows of Dask and of PyArrow datasets are used on CPUs: set device='cpu'.")
    if sparse.issparse(x):
        raise ValueError("sparse rows run on the CPU only: set device='cpu'.")
    import torch

    # A read-only array (a memory map, say) is copied: torch has no read-only tensors.
    return torch.tensor(x, device=where)


# Rows in chunks -----------------------------------------------------------------------------


def chunk_rows(x: Array, microbatch_size: int | None = None, *, beside: int = 0) -> int:
    """Number of rows to visit at once, a multiple of the block; it uses public sizes only.

    With a `microbatch_size` of None it depends on the size of a row and on the device; other values
    are rounded up to a multiple. `beside` is the number of values computed for each row, in
    addition to its entries.
    """
    if microbatch_size is not None:
        return -(-min(microbatch_size, _MOST_ROWS) // BLOCK) * BLOCK
    if getattr(getattr(x, "device", None), "type", "cpu") != "cpu":
        return _MOST_ROWS
    width = 1 if len(x.shape) == 1 else x.shape[1]
    if sparse.issparse(x):  # sums are not added by blocks, so that rounding grows with the chunk
        return _SPARSE_ROWS
    rows = _CHUNK_BYTES // (x.dtype.itemsize * (width + beside))
    return max(_FEWEST_ROWS, min(rows, _MOST_ROWS)) // BLOCK * BLOCK


def piece_rows(X: Array) -> int:
    piece = _PIECE if isinstance(X, np.ndarray) else _PIECE_GPU
    return max(1, piece // max(1, X.shape[1]))


def even_slices(n: int, step: int) -> list[slice]:
    """Slices of at most `step` that cover `n` rows: one, or an even number of similar length.

    Two threads that work side by side then finish together. `step` is a multiple of the block, and
    so is every slice but the last.
    """
    if n <= step:
        return slices(n, step) or [slice(0, 0)]
    pairs = -(-n // (2 * step))
    return slices(n, -(-n // (2 * pairs * BLOCK)) * BLOCK)


def slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


@contextmanager
def plain_arithmetic(where: Any) -> Iterator[None]:
    """Turn off autocast, and warnings that reveal something about rows, on a device.

    Automatic mixed precision would compute sums in half precision, which the bounds on their
    rounding do not cover.
    """
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        if where is not None:
            torch = importlib.import_module("torch")
            stack.enter_context(torch.autocast(where.type, enabled=False))
        yield


# Norms and sums -----------------------------------------------------------------------------


def row_norms(X: Array) -> Array:
    """Euclidean norms of the rows of `X` in float64, never too small.

    Rows in float64 whose squares are out of range are divided by their largest entry first: rows of
    1e300 and of 1e-300 get their norm and not inf or 0. Squares of float32 numbers are within the
    range of float64.
    """
    if sparse.issparse(X):
        return _sparse_row_norms(X)
    xp, parts = namespace(X), []
    for rows in slices(X.shape[0], piece_rows(X)) or [slice(0, 0)]:
        block = xp.astype(X[rows, :], xp.float64, copy=False)
        with np.errstate(over="ignore"):
            squares = squares_of_rows(block, X)
        norms = xp.sqrt(squares)
        if X.dtype == xp.float64:
            # Squares below 1e-308 lose digits, which is negligible in a sum that is in range.
            out = ~((squares >= 1e-280) & (squares <= 1e280))
            if bool(xp.any(out)):
                norms[out] = _scaled_row_norms(block[out, :])
        # Rounded up by more than the possible error of a sum of d squares, in any order.
        parts.append(norms * (1 + (X.shape[1] + 8) * EPS))
    return xp.concat(parts)


def _scaled_row_norms(rows: Array) -> Array:
    xp = namespace(rows)
    largest = xp.max(xp.abs(rows), axis=1)
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    rows = rows / unit[:, None]
    return unit * xp.sqrt(_dots(rows, rows))


def _sparse_row_norms(X: Any) -> np.ndarray:
    """Norms of the rows of a CSR matrix without duplicate entries, as in :func:`row_norms`."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    largest, held = np.zeros(X.shape[0]), np.diff(X.indptr) > 0
    largest[held] = np.maximum.reduceat(np.abs(X.data), X.indptr[:-1][held])
    unit = np.where(largest > 0, largest, 1.0)
    entries = X.data / unit[row]
    squares = np.bincount(row, weights=entries * entries, minlength=X.shape[0])
    return unit * np.sqrt(squares) * (1 + X.shape[1] * EPS)


def sparse_rows(X: Any, rows: slice) -> Any:
    """Slice the rows of a CSR matrix without a copy of its entries."""
    starts = X.indptr[rows.start : rows.stop + 1]
    entries = slice(starts[0], starts[-1])
    found = type(X)((len(starts) - 1, X.shape[1]), dtype=X.dtype)
    return _with_entries(found, X.data[entries], X.indices[entries], starts - starts[0])


def _transposed(X: Any) -> Any:
    """Transpose a CSR matrix without a copy of its entries."""
    found = sparse.csc_array((X.shape[1], X.shape[0]), dtype=X.dtype)
    return _with_entries(found, X.data, X.indices, X.indptr)


def _with_entries(found: Any, data: np.ndarray, indices: np.ndarray, starts: np.ndarray) -> Any:
    """Put entries into an empty matrix; its constructor would copy them where they are views."""
    found.data, found.indices, found.indptr = data, indices, starts
    return found


def columns_of_product(X: Array, W: Array) -> Array:
    """``X @ W`` of shape (k, c), with its columns one after another in memory.

    A product with many rows is usually followed by a reduction over its few columns, which is
    several times faster in this memory order. For short rows the transposed product is faster than
    a copy.
    """
    if not (isinstance(X, np.ndarray) or sparse.issparse(X)):
        return (X @ W).T.contiguous().T
    if isinstance(X, np.ndarray) and (X.shape[1] < _SHORT or W.shape[1] == 1):
        return (W.T @ X.T).T
    return np.ascontiguousarray((X @ W).T).T


def products_by_row(X: Array, W: Array) -> Array:
    """``X @ W``, where the last bit for a row does not depend on its position in `X` either.

    A plain product of matrices depends on it: it may add up the last rows of an odd number in
    another order. Here each entry is an inner product of its own; for a sparse row it is a separate
    sum anyway. For few columns this takes up to twice as long.
    """
    if sparse.issparse(X):
        return columns_of_product(X, W)
    xp, numpy = namespace(X), isinstance(X, np.ndarray)
    scores = xp.empty((W.shape[1], X.shape[0]), dtype=X.dtype, device=device(X))
    columns = np.ascontiguousarray(W.T) if numpy else W.T.contiguous()
    for rows in slices(X.shape[0], piece_rows(X)):
        # Entries that are not contiguous would be added up in another order.
        piece = np.ascontiguousarray(X[rows, :]) if numpy else X[rows, :].contiguous()
        for column in range(W.shape[1]):
            scores[column, rows] = _dots(piece, columns[column, :])
    return scores.T


def row_product(X: Array, R: Array) -> Array:
    """X^T R in float64 for the rows of one chunk: dense rows in blocks, sparse ones at once."""
    if sparse.issparse(X):
        return _transposed(X) @ R.astype(np.float64, copy=False)
    xp = namespace(X)
    (k, d), c = X.shape, R.shape[1]
    whole = k - k % BLOCK
    if X.dtype == np.float64 and d >= _LONG and c > 1:  # in half of the time, at best
        total = X[whole:, :].T @ R[whole:, :]
        if whole:
            blocks = X[:whole, :].reshape(-1, BLOCK, d).swapaxes(1, 2)
            total = (blocks @ R[:whole, :].reshape(-1, BLOCK, c)).sum(axis=0) + total
        return total
    total = xp.astype(R[whole:, :].T @ X[whole:, :], xp.float64, copy=False)
    if whole:  # methods and operators take half as long as functions of the namespace
        blocks = R[:whole, :].reshape(-1, BLOCK, c)
        if _by_column(X):
            columns = X[:whole, :].T.reshape(d, -1, BLOCK).swapaxes(0, 1)
            parts = (columns @ blocks).swapaxes(1, 2)
        else:
            parts = blocks.swapaxes(1, 2) @ X[:whole, :].reshape(-1, BLOCK, d)
        total = parts.sum(axis=0, dtype=xp.float64) + total
    return total.T


def weighted(R: Array, weights: Array) -> Array:
    """Rows of `R` times `weights`; a zero weight gives zero, also for rows that are not finite."""
    xp = namespace(R)
    weights = weights[:, None]
    return xp.where(weights > 0, R * weights, xp.zeros_like(R))


def run_sums(rows: Array, R: Array, counts: np.ndarray) -> Array:
    """Sums (m, d, c) of ``rows[i] R[i]^T`` in float64, over runs of rows of lengths `counts`.

    A row for which all of `R` is 0 adds exactly 0. Each run is added up as :func:`row_product` adds
    up a chunk: by blocks, independently of its neighbours.
    """
    xp, c = namespace(R), R.shape[1]
    if sparse.issparse(rows):
        return np.stack([_sparse_run_sums(rows, column, counts) for column in R.T], axis=2)
    absent = ~(R != 0).any(axis=1)
    if bool(absent.any()):
        rows = xp.where(absent[:, None], xp.zeros_like(rows), rows)
    rows, R = xp.astype(rows, xp.float64, copy=False), xp.astype(R, xp.float64, copy=False)
    if isinstance(R, np.ndarray):
        return _dense_run_sums(rows, R, counts)
    run = as_like(np.repeat(np.arange(len(counts)), counts), R).long()
    total = xp.zeros((len(counts), rows.shape[1], c), dtype=xp.float64, device=R.device)
    for k in range(c):
        total[:, :, k].index_add_(0, run, rows * R[:, k : k + 1])
    return total


def _sparse_run_sums(rows: Any, weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    used = np.flatnonzero(weights)
    starts = np.searchsorted(used, np.concatenate([[0], np.cumsum(counts)]))
    runs = sparse.csr_array((weights[used], used, starts), shape=(len(counts), rows.shape[0]))
    return (runs @ rows).toarray()


def _dense_run_sums(rows: np.ndarray, R: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """One product for all adjacent runs of one length, and one for each long run."""
    (d, c), m = (rows.shape[1], R.shape[1]), len(counts)
    total, ends = np.zeros((m, d, c)), np.concatenate([[0], np.cumsum(counts)])
    begins = np.flatnonzero((np.diff(counts, prepend=-1) != 0) | (counts > BLOCK))
    for i, j in zip(begins, [*begins[1:], m], strict=True):
        some, k = slice(ends[i], ends[j]), counts[i]
        if k > BLOCK:
            total[i] = row_product(rows[some, :], R[some, :])
        elif k:
            ours = rows[some, :].reshape(-1, k, d).swapaxes(1, 2)
            np.matmul(ours, R.T[:, some].reshape(c, -1, k).transpose(1, 2, 0), out=total[i:j])
    return total


def column_sums(R: Array) -> Array:
    wide, whole = namespace(R).float64, R.shape[0] - R.shape[0] % BLOCK
    total = R[whole:, :].sum(axis=0, dtype=wide)
    # With m blocks, a block consists of the rows i, i + m, i + 2 m, ...: adjacent rows belong to
    # different blocks, and are added to all blocks in one pass.
    if whole:
        blocks = R[:whole, :].reshape(BLOCK, -1, R.shape[1])
        total = blocks.sum(axis=0, dtype=wide).sum(axis=0) + total
    return total


class Total:
    """Sum of the sums of chunks, compensated for the error of each addition (Neumaier)."""

    def __init__(self) -> None:
        self._sum: Array = None
        self._lost: Array = 0.0

    def add(self, part: Array) -> None:
        if self._sum is None:
            self._sum = part
            return
        xp = namespace(part)
        total = self._sum + part
        swap = xp.abs(self._sum) >= xp.abs(part)
        larger, smaller = xp.where(swap, self._sum, part), xp.where(swap, part, self._sum)
        self._lost = self._lost + ((larger - total) + smaller)
        self._sum = total

    def merge(self, other: Total) -> None:
        if other._sum is not None:
            self.add(other._sum)
            self._lost = self._lost + other._lost

    @property
    def value(self) -> Array:
        """The sum; None if nothing was added."""
        return None if self._sum is None else self._sum + self._lost


def sum_slack(
    n_rows: int,
    eps: float,
    chunk: int = _MOST_ROWS,
    block: int = BLOCK,
    *,
    by_block: bool = False,
) -> float:
    """Bound on how far rounding can move a sum between neighbours, relative to its largest term.

    The number of rows is public, and `eps` is that of the dtype in which blocks are added up.
    `chunk` and `block` are the largest numbers of rows in a chunk and in a block. With `by_block`
    the sums of blocks, and not the rows, of a chunk are added up in float64.

    Proof: a sum of k terms of norm at most C, added in any order with unit roundoff
    u = eps / 2, is off by at most ``k u / (1 - k u)`` times the sum of the norms, so by about
    ``k^2 u C`` (Higham, 2002, section 4.2, by columns). Neighbours share all chunks but one,
    ``k^2 u C`` (Higham, 2002, section 4.2, by columns). Neighbours share all chunks but one, and in
    that chunk all blocks but one. In each sum, the block is off by that much; adding up the m
    blocks (or rows) of the chunk in float64, whose norms add up to at most ``chunk C``, is off by
    at most ``m u' chunk C``; adding up M chunks with compensation is off by at most ``(u' + (M
    u')^2) n C`` (Ogita, Rump, Oishi, 2005, proposition 4.5). In both sums together the last error
    is less than ``8 u' n C`` up to 2^27 chunks, and so up to 2^34 rows in chunks of one block each,
    the shortest. Beyond, ``(4 u' + 2 (M u')^2) n C`` is used.

    Where rows are stored in parts, each part has its own chunks and blocks, none longer than here,
    and neighbours still share all of them but one. Totals of parts are merged together with the
    carried errors of their additions (:meth:`Total.merge`), so that the whole is one compensated
    sum over the chunks of all parts.
    """
    block, chunk = min(n_rows, block) + 1, min(n_rows, chunk) + 1
    added = chunk / block + 2 if by_block else chunk  # the last block may be incomplete
    compensated = max(4 * EPS, 2 * EPS + (n_rows / BLOCK * EPS) ** 2 / 2)
    # One percent more covers the denominators 1 - k u and the products' own rounding.
    return 1.01 * (block**2 * eps + added * chunk * EPS + n_rows * compensated)
