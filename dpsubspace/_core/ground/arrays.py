"""Array namespace, device and dtype, and the few sums that need care with them.

Arithmetic in this package is written once against the array API standard, so that the same lines
run on NumPy and on torch. Norms are computed in float64 whatever the dtype of the data.

Design note. Rounding is part of a sum's sensitivity: in a float32 sum of a million
rows, one row can change how every later addition is rounded and so move the result by a
thousand times its own size. Sums over records are therefore taken in short blocks, the
blocks of a chunk of rows are added in float64, and the chunks by :class:`Total`, which
loses next to nothing. A changed record changes one block of one chunk, so rounding can
move the sum by no more than :func:`sum_slack`, which the bounds include. This assumes
that matrix products (of blocks, and of rows with weights) give the same result for the
same numbers, with one number of threads: OpenBLAS does, MKL where MKL_CBWR is set.

Sums of integers would need neither allowance nor assumption. They were tried
(``benchmarks/bench_exact_sums.py``) and not adopted: in float32 a step takes 1.1 times as long
with a copy of the rows and 1.5 to 1.8 times without, for 0.2 % less noise, and scores would
still rest on BLAS. In float64 they cost a copy, and there is next to no allowance to save.
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

# Records that are added up before their sum joins the total, in float64. Bounds on rounding rest
# on it.
BLOCK = 128

# Rows in a chunk: so many that they and what is computed of them take this many bytes. That is
# small enough for the processor's cache and for memory, and large enough that calls of functions
# count for little beside what they do. Products need some rows to run at full speed, and
# bounds on rounding grow with the most; a GPU always wants those.
_CHUNK_BYTES, _FEWEST_ROWS, _MOST_ROWS, _SPARSE_ROWS = 1 << 23, 1 << 12, 1 << 16, 1 << 14

# Columns below which BLAS is fast with transposed rows, and from which on sums in float64 are
# faster with the rows first.
_SHORT, _LONG = 32, 64

# Entries of rows that are converted to float64 at once: on the CPU, several passes over them
# should find them in the cache (512 KiB); a GPU wants more.
_PIECE, _PIECE_GPU = 1 << 16, 1 << 23


# Namespaces and devices ---------------------------------------------------------------------


_NUMPY = array_namespace(np.empty(0))


def changed(one: T, **values: Any) -> T:
    other = copy.copy(one)
    vars(other).update(values)
    return other


def namespace(x: Array) -> Any:
    """Array API namespace of `x`; of rows elsewhere, that of the same made of no rows."""
    return _NUMPY if isinstance(x, np.ndarray) else array_namespace(getattr(x, "template", x))


def as_like(values: Any, like: Array) -> Array:
    like = getattr(like, "template", like)
    if isinstance(like, np.ndarray):
        return np.asarray(values, dtype=like.dtype)
    return namespace(like).asarray(values, dtype=like.dtype, device=device(like))


def to_numpy(x: Array) -> np.ndarray:
    """`x` as a NumPy array on the CPU; rows elsewhere stay where they are."""
    if isinstance(x, np.ndarray) or hasattr(x, "template"):
        return x
    return x.detach().cpu().numpy()


def eps_of(x: Array) -> float:
    numpy = isinstance(x, np.ndarray) or sparse.issparse(x)
    return float((np if numpy else namespace(x)).finfo(x.dtype).eps)


def rounded_up(x: Array, dtype: Any) -> Array:
    """`x`, not negative, in another dtype and not below what it was."""
    xp = namespace(x)
    if x.dtype == dtype:
        return x
    return xp.astype(x * (1 + float(xp.finfo(dtype).eps)), dtype)


def at_least(x: Array, low: float) -> Array:
    """The larger of each entry and `low`, NaN where it is NaN.

    In one pass; `clip` of the array API for NumPy takes several, with a mask.
    """
    return np.maximum(x, low) if isinstance(x, np.ndarray) else x.clip(min=low)


def at_most(x: Array, high: float) -> Array:
    """The smaller of each entry and `high`, NaN where it is NaN."""
    return np.minimum(x, high) if isinstance(x, np.ndarray) else x.clip(max=high)


def row_squares(R: Array) -> Array:
    """Squared norms of the rows of `R` in its dtype, added up in any order."""
    if isinstance(R, np.ndarray):
        return np.einsum("ji,ji->i", R.T, R.T)  # in one pass, where columns are contiguous
    return (R * R).sum(axis=1)


def squares_of_rows(R: Array, of: Array = None) -> Array:
    """The same, whether rows or columns lie in one piece each, as they do in what `R` is made `of`.

    Those of a row do not depend on how many others there are: one that is alone, of which a copy
    has forgotten how columns lie, is added up as it is among others.
    """
    if not _by_column(R if of is None else of):
        return _dots(R, R)
    if R.shape[0] == 1:
        return row_squares(np.asfortranarray(np.repeat(R, 2, axis=0)))[:1]
    return row_squares(R)


def _dots(R: Array, other: Array) -> Array:
    """Inner products of rows of `R`, which lie in one piece each, with those of `other` or with it.

    Each is the same to the last bit however many rows there are. NumPy takes it by itself. torch
    adds up in another order where rows are few, so that halves of all rows are added here, entry by
    entry.
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
    """Whether columns of NumPy's lie in one piece each, and rows do not."""
    if not isinstance(R, np.ndarray):
        return False
    step, width = R.strides
    return step < width or (step == width and R.shape[0] == 1 < R.shape[1])


def cast_rows(X: Array, dtype: Any) -> Array:
    """A copy in another dtype whose columns lie as before, also those of one row."""
    if _by_column(X):
        return X.astype(dtype, order="F")
    return namespace(X).astype(X, dtype)


def native(x: np.ndarray) -> np.ndarray:
    """An array in the byte order of this machine; scikit-learn's checks leave that of frames.

    PyTorch refuses another one, and BLAS copies it at every product.
    """
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def vanished(R: Array) -> float:
    """Most that squares below the smallest number may lack of the squared norm of a row of `R`.

    What has a norm of 0 is never clipped, and is no 0 times a residual that is large enough.
    """
    return R.shape[1] * float(namespace(R).finfo(R.dtype).smallest_normal)


class Scratch:
    """An array of any numbers, which no other one of these has as long as this lives.

    A chunk takes its MiB for less than a millisecond. Where the allocator hands such memory back
    at once, as on the workers of Dask, the system clears it again and again, which takes longer
    than what is computed. So a thread keeps what it has had, once for each dtype.
    """

    _here = threading.local()
    _flat: np.ndarray | None = None

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        size, dtype = math.prod(shape), np.dtype(dtype)
        flat = self._free().pop(dtype, None)  # a second one finds none, and is new
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
    """0, 1, ... for the records of `y`, on its device."""
    return namespace(y).arange(y.shape[0], device=device(y))


def check_device(value: Any, *, exact: bool = True) -> Any:
    """None for NumPy or a torch.device, from a `device` parameter; ValueError with its name.

    "cpu" is NumPy; torch on the CPU takes ``torch.device("cpu")`` itself, for tests. `exact`
    refuses reduced precision, which bounds of sums do not count.
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
    """NumPy `x` on a device of :func:`check_device`; itself where either is None."""
    if x is None or where is None:
        return x
    if hasattr(x, "template"):
        raise ValueError("rows of Dask and of PyArrow datasets are used on CPUs: set device='cpu'.")
    if sparse.issparse(x):
        raise ValueError("sparse rows run on the CPU only: set device='cpu'.")
    import torch

    # A read-only array (a memory map, say) is copied: torch has no such thing.
    return torch.tensor(x, device=where)


# Rows in chunks -----------------------------------------------------------------------------


def chunk_rows(x: Array, microbatch_size: int | None = None, *, beside: int = 0) -> int:
    """Rows to visit at once, a multiple of the block, by public sizes alone.

    None leaves `microbatch_size`, which is rounded up to a multiple, to the size of a row and to
    the device. `beside` is how many numbers are computed of each row, beside its own.
    """
    if microbatch_size is not None:
        return -(-min(microbatch_size, _MOST_ROWS) // BLOCK) * BLOCK
    if getattr(getattr(x, "device", None), "type", "cpu") != "cpu":
        return _MOST_ROWS
    width = 1 if len(x.shape) == 1 else x.shape[1]
    if sparse.issparse(x):  # sums are not by blocks, so that rounding grows with the chunk
        return _SPARSE_ROWS
    rows = _CHUNK_BYTES // (x.dtype.itemsize * (width + beside))
    return max(_FEWEST_ROWS, min(rows, _MOST_ROWS)) // BLOCK * BLOCK


def piece_rows(X: Array) -> int:
    piece = _PIECE if isinstance(X, np.ndarray) else _PIECE_GPU
    return max(1, piece // max(1, X.shape[1]))


def even_slices(n: int, step: int) -> list[slice]:
    """Slices of at most `step` that cover `n` rows: one, or an even number of like size.

    Two that work side by side are then done at once. `step` is a multiple of the block, and so
    is every slice but the last.
    """
    if n <= step:
        return slices(n, step) or [slice(0, 0)]
    pairs = -(-n // (2 * step))
    return slices(n, -(-n // (2 * pairs * BLOCK)) * BLOCK)


def slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


@contextmanager
def plain_arithmetic(where: Any) -> Iterator[None]:
    """Arithmetic on a device as it is written: no warnings that tell of rows, no autocast.

    Automatic mixed precision would take sums in half precision, which the bounds on
    their rounding do not cover.
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

    Rows of float64 of which squares are out of range are divided by their largest entry first:
    rows of 1e300 and of 1e-300 get their norm and not inf or 0. Squares of float32 are within
    the range of float64.
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
            # What squares below 1e-308 lose is nothing beside a sum that is in range.
            out = ~((squares >= 1e-280) & (squares <= 1e280))
            if bool(xp.any(out)):
                norms[out] = _scaled_row_norms(block[out, :])
        # Rounded up by more than a sum of d squares, in any order, can lose.
        parts.append(norms * (1 + (X.shape[1] + 8) * EPS))
    return xp.concat(parts)


def _scaled_row_norms(rows: Array) -> Array:
    xp = namespace(rows)
    largest = xp.max(xp.abs(rows), axis=1)
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    rows = rows / unit[:, None]
    return unit * xp.sqrt(_dots(rows, rows))


def _sparse_row_norms(X: Any) -> np.ndarray:
    """The same for a CSR matrix without duplicate entries."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, row, np.abs(X.data))
    unit = np.where(largest > 0, largest, 1.0)
    entries = X.data / unit[row]
    squares = np.bincount(row, weights=entries * entries, minlength=X.shape[0])
    return unit * np.sqrt(squares) * (1 + X.shape[1] * EPS)


def sparse_rows(X: Any, rows: slice) -> Any:
    """A slice of the rows of a CSR matrix, of whose entries no copy is made."""
    starts = X.indptr[rows.start : rows.stop + 1]
    entries = slice(starts[0], starts[-1])
    found = type(X)((len(starts) - 1, X.shape[1]), dtype=X.dtype)
    return _with_entries(found, X.data[entries], X.indices[entries], starts - starts[0])


def _transposed(X: Any) -> Any:
    """The transpose of a CSR matrix, of whose entries no copy is made."""
    found = sparse.csc_array((X.shape[1], X.shape[0]), dtype=X.dtype)
    return _with_entries(found, X.data, X.indices, X.indptr)


def _with_entries(found: Any, data: np.ndarray, indices: np.ndarray, starts: np.ndarray) -> Any:
    """An empty matrix with these entries, which its class would copy where they are views."""
    found.data, found.indices, found.indptr = data, indices, starts
    return found


def columns_of_product(X: Array, W: Array) -> Array:
    """``X @ W`` of shape (k, c), with its columns one after another in memory.

    What follows a product with many rows reduces over its few columns, which is several
    times faster that way. For short rows the transposed product is faster than a copy.
    """
    if not (isinstance(X, np.ndarray) or sparse.issparse(X)):
        return (X @ W).T.contiguous().T
    if isinstance(X, np.ndarray) and (X.shape[1] < _SHORT or W.shape[1] == 1):
        return (W.T @ X.T).T
    return np.ascontiguousarray((X @ W).T).T


def products_by_row(X: Array, W: Array) -> Array:
    """The same, of which those of a row are the same to the last bit wherever it lies in `X`.

    A product of matrices is not: it may add up the last rows of an odd number in another order.
    Here each entry is an inner product of its own, and one of a sparse row is a sum of its own
    anyway. For few columns that takes up to twice as long.
    """
    if sparse.issparse(X):
        return columns_of_product(X, W)
    xp, numpy = namespace(X), isinstance(X, np.ndarray)
    scores = xp.empty((W.shape[1], X.shape[0]), dtype=X.dtype, device=device(X))
    columns = np.ascontiguousarray(W.T) if numpy else W.T.contiguous()
    for rows in slices(X.shape[0], piece_rows(X)):
        # Of entries that lie apart, sums are taken in another order.
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
    if X.dtype == np.float64 and d >= _LONG and c > 1:  # in up to half of the time
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
    """Rows of `R` times `weights`; weight zero gives zero, also of a row that is not finite."""
    xp = namespace(R)
    weights = weights[:, None]
    return xp.where(weights > 0, R * weights, xp.zeros_like(R))


def run_sums(rows: Array, R: Array, counts: np.ndarray) -> Array:
    """Sums (m, d, c) of ``rows[i] R[i]^T`` over runs of rows in float64, `counts` long.

    A row of which all of `R` is 0 adds exactly 0. Each run is added up as :func:`row_product` adds
    up a chunk: by blocks, whatever lies beside it.
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
    """One product for runs of one length that lie side by side, and for each that is long."""
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
    # With m blocks, one of them is rows i, i + m, i + 2 m, ...: rows that lie side by side belong
    # to different blocks, and are added to all of them in one pass.
    if whole:
        blocks = R[:whole, :].reshape(BLOCK, -1, R.shape[1])
        total = blocks.sum(axis=0, dtype=wide).sum(axis=0) + total
    return total


class Total:
    """Sum of the sums of chunks, with what each addition loses carried along (Neumaier)."""

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
        """The sum; None where nothing was added."""
        return None if self._sum is None else self._sum + self._lost


def sum_slack(
    n_rows: int,
    eps: float,
    chunk: int = _MOST_ROWS,
    block: int = BLOCK,
    *,
    by_block: bool = False,
) -> float:
    """How far rounding can move a sum between neighbours, relative to its largest term.

    The number of rows is public, and `eps` is that of the dtype in which blocks are added up.
    `chunk` and `block` are the most rows of either. With `by_block` a chunk adds up its blocks in
    float64, and not its rows.

    Proof: a sum of k terms of norm at most C, added in any order with unit roundoff
    u = eps / 2, is off by at most ``k u / (1 - k u)`` times the sum of the norms, so by about
    ``k^2 u C`` (Higham, 2002, section 4.2, by columns). Neighbours share all chunks but one,
    and in that all blocks but one. The block is off by that much in each; adding up the
    m blocks (or rows) of the chunk in float64, whose norms add up to at most ``chunk C``, by at
    most ``m u' chunk C``; adding up M chunks with compensation by at most ``(u' + (M u')^2) n C``
    (Ogita, Rump, Oishi, 2005, proposition 4.5). In both sums together that is less than ``8 u' n
    C`` up to 2^27 chunks, and so up to 2^34 rows in chunks of a block each, the shortest. Beyond,
    ``(4 u' + 2 (M u')^2) n C`` counts.

    Where rows lie in parts, each part has chunks and blocks of its own, none longer than here, and
    neighbours still share all of them but one. Totals of parts are merged with what their additions
    have lost (:meth:`Total.merge`), so that the whole is one sum with compensation, of as many
    chunks as all parts have.
    """
    block, chunk = min(n_rows, block) + 1, min(n_rows, chunk) + 1
    added = chunk / block + 2 if by_block else chunk  # the last block may be a part of one
    compensated = max(4 * EPS, 2 * EPS + (n_rows / BLOCK * EPS) ** 2 / 2)
    # A percent on top covers the denominators 1 - k u and the products' own rounding.
    return 1.01 * (block**2 * eps + added * chunk * EPS + n_rows * compensated)
