"""The one loop over chunks of records, and rows that are formed in small groups within it.

Every sum over records, and every result for each record, goes through :func:`over_chunks`. Records
define their chunks (``chunks``) and give one at a time (``at``), so that rows may lie in memory, in
a memory map, or in parts on the workers of a cluster: the loop then runs on each part, and the
totals of the parts are added up here.

Rows of many numbers may be formed from a few stored numbers each (:class:`FormedRows`). Privacy:
the numbers of a row follow from the stored numbers of that row alone, and are the same to the bit
whichever rows are formed with it. So norms that were computed once bound all later sums, and a
record that changes moves no number of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import chain
from threading import Lock
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from dpsubspace._core.ground.arrays import (
    BLOCK,
    Array,
    Scratch,
    Total,
    as_like,
    cast_rows,
    piece_rows,
    row_norms,
    slices,
)
from dpsubspace._core.rows.remote import RemoteRows

# Work (see :meth:`Chunked.bytes_read`) from which on two threads are faster than one.
SHARED = 1 << 26


class Chunked(Protocol):
    """Records that can be visited chunk by chunk."""

    @property
    def data(self) -> Array: ...

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Return indices that together name every record once, or every record of `batch`."""
        ...

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        """Return the bytes that a product with all records (or a batch) reads, times columns."""
        ...


@dataclass(frozen=True)
class Slices:
    """Dense rows in slices of at most `step`, over which a function makes so many passes."""

    data: Array
    step: int
    passes: int = 1

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        return slices(self.data.shape[0], self.step) or [slice(0, 0)]

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return float(self.passes * self.data.nbytes)


class Chunks:
    """Operations on the chunks of records, while :func:`over_chunks` lasts.

    ``visit(function, batch)`` gives the result of `function` for every chunk.
    """

    def __init__(self, records: Chunked, visit: Callable[..., Iterator[Any]]):
        self._records, self._visit = records, visit

    def __call__(
        self, function: Callable[..., Any], batch: np.ndarray | None = None
    ) -> Iterator[Any]:
        """Yield the result of `function` for every chunk, in order: for local records."""
        return self._visit(function, batch)

    def total(
        self,
        function: Callable[..., Any],
        new: Callable[[], Any] = Total,
        batch: np.ndarray | None = None,
    ) -> Any:
        """Add up the results of `function` for every chunk, in a total that `new` gives.

        If `function` holds objects that are made of remote rows, they are made of the rows of a
        part where the function is called. `new` gives an object that can ``add`` the result of a
        chunk, and ``merge`` the total of other chunks. With a `batch` only these records are used,
        in their order.
        """
        total = new()
        for part in self._visit(function, batch):
            total.add(part)
        return total


class _ChunksElsewhere(Chunks):
    """Chunks of remote records in parts, of which only totals are transferred."""

    def total(
        self,
        function: Callable[..., Any],
        new: Callable[[], Any] = Total,
        batch: np.ndarray | None = None,
    ) -> Any:
        parts = self._records.data.parts
        own = None if batch is None else parts.split(batch)
        found = iter(parts.call(_total_of_part, self._records, function, new, own=own))
        total = next(found)
        for other in found:
            total.merge(other)
        return total


def _total_of_part(
    records: Chunked, function: Callable[..., Any], new: Callable[[], Any], *batch: np.ndarray
) -> Any:
    """Return the total of one part, computed where the part lies."""
    with over_chunks(records) as each:
        return each.total(function, new, *batch)


def _not_here(*_: Any) -> Iterator[Any]:
    raise RuntimeError("of rows elsewhere only totals come here.")


@contextmanager
def over_chunks(records: Chunked) -> Iterator[Chunks]:
    """Yield an object that visits every chunk of the records, and adds up the results.

    As many chunks are processed at once as BLAS would use threads, each on one of them. The
    products of a chunk are too small to share: threads of BLAS would mostly wait for each other, on
    a busy machine for long. So would our threads if there is less work than :data:`SHARED`: they
    hand the interpreter to each other at every operation. Only a few results are kept at a time.
    """
    if isinstance(records.data, RemoteRows):
        yield _ChunksElsewhere(records, _not_here)
        return
    on_cpu = isinstance(records.data, (np.ndarray, FormedRows)) or sparse.issparse(records.data)
    if not on_cpu:
        yield Chunks(records, lambda function, batch: map(function, records.chunks(batch)))
        return
    _keep_memory()
    threads = _THREADS.get() or blas_threads()
    with _ONE_THREAD, ThreadPoolExecutor(threads) as workers:
        whole = cache(records.chunks)  # every step requests the same chunks

        def visit(function: Callable[..., Any], batch: np.ndarray | None = None) -> Iterator[Any]:
            def quiet(rows: Any) -> Any:  # numpy's error state belongs to a thread
                with np.errstate(all="ignore"):
                    return function(rows)

            chunks = whole() if batch is None else records.chunks(batch)
            if threads == 1 or len(chunks) == 1 or records.bytes_read(batch) < SHARED:
                return map(function, chunks)
            parts = slices(len(chunks), 8 * threads)
            return chain.from_iterable(workers.map(quiet, chunks[some]) for some in parts)

        yield Chunks(records, visit)


# Longest array that is freed before there are chunks: see below.
_KEPT = 1 << 24


@cache
def _keep_memory() -> None:
    """Make the allocator keep the memory of one chunk for the next.

    The allocator of the GNU C library returns memory to the system if more is free than twice the
    longest array that it has freed so far. To get it again, page by page and cleared, takes up to
    twice as long as the computation itself: so an array longer than those of chunks is freed first.
    It is not written to, and takes no memory itself; other allocators do the same, and nothing
    changes.
    """
    np.empty(_KEPT, np.uint8)


# Number of threads that replaces the number of BLAS.
_THREADS: ContextVar[int | None] = ContextVar("threads", default=None)


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Use so many threads in loops over chunks, as long as this context lasts."""
    token = _THREADS.set(n)
    try:
        yield
    finally:
        _THREADS.reset(token)


@cache
def _blas() -> Any:
    """Return the BLAS that NumPy uses, searched once: that takes longer than a small chunk."""
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    return max((library["num_threads"] for library in _blas().info()), default=1)


class _OneThread:
    """BLAS on one thread while anybody requests it: parallel fits may end in any order."""

    def __init__(self) -> None:
        self._lock, self._users, self._limit = Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit = _blas().limit(limits=1)
            self._users += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._limit is not None:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


# Rows that are formed ---------------------------------------------------------------------------

# Bytes of the entries that are formed at once, which should stay in the cache of a processor, and
# the fewest rows: calls of functions should count for little. Each thread has a chunk, so that rows
# of very many features are fewer where they would take more bytes than a chunk may at most.
_CHUNK_BYTES, _FEWEST, _MOST_BYTES = 3 << 21, 1 << 10, 1 << 26


@dataclass(frozen=True, eq=False)
class Layout:
    """Map from entries that are cheap to form to the features (p,) of a row.

    Feature ``places[k]`` is ``sizes[k]`` times entry k. A product with features is one with
    entries, of weights that are multiplied by sizes first, or of sums that are multiplied by them
    in float64 at the end. Rounding is then in proportion to each feature, as without sizes.
    """

    places: np.ndarray  # (p,)
    sizes: np.ndarray  # (p,)

    def inward(self, weights: np.ndarray) -> np.ndarray:
        """Return weights (p, c) of entries, from those of features."""
        return weights[self.places] * as_like(self.sizes, weights)[:, None]

    def outward(self, sums: np.ndarray) -> np.ndarray:
        """Return sums (p, c) of features, from those of entries."""
        found = np.empty_like(sums)
        found[self.places] = sums * self.sizes[:, None]
        return found

    def features(self, entries: np.ndarray) -> np.ndarray:
        """Return features (m, p) of rows of entries, in their dtype."""
        found = np.empty(entries.T.shape, dtype=entries.dtype)  # contiguous columns
        found[self.places] = entries.T
        found *= self.outward(np.ones((len(found), 1), dtype=entries.dtype))
        return found.T


class FormedRows:
    """Rows (n, p) in float32, of which only the requested ones are formed.

    `held` are arrays of columns (k, n), and `form` makes entries (p, m) of m of their columns, from
    which `layout` makes features. Otherwise they behave like an array, but in two dimensions.
    """

    ndim, dtype, device = 2, np.dtype(np.float32), "cpu"

    def __init__(
        self,
        held: Sequence[np.ndarray],
        form: Callable[[Sequence[np.ndarray]], np.ndarray],
        layout: Layout,
    ):
        self._held, self._form, self.layout = tuple(held), form, layout
        self.shape = (held[0].shape[1], len(layout.places))
        self.template = np.empty((0, self.shape[1]), dtype=self.dtype)  # the same for no rows

    def entries(self, rows: Any) -> np.ndarray:
        """Return entries (m, p) of the rows, in memory that is lent as long as the array is used.

        Columns are contiguous.
        """
        return self._form([held[:, rows] for held in self._held]).T

    def taken(self, rows: Any) -> FormedRows:
        """Return these rows, still to be formed."""
        return FormedRows([held[:, rows] for held in self._held], self._form, self.layout)

    def norms(self, rows: Any) -> np.ndarray:
        """Return norms of the features of these rows in float64, never too small."""
        entries, found = self.entries(rows), []
        for some in slices(len(entries), piece_rows(entries)) or [slice(0, 0)]:
            wide = cast_rows(entries[some], np.float64)
            wide *= self.layout.sizes
            found.append(row_norms(wide))
        return np.concatenate(found)

    def __getitem__(self, key: tuple[Any, Any]) -> np.ndarray:
        rows, columns = key
        return self.layout.features(self.entries(rows))[:, columns]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return "<rows>"  # ends up in messages

    @property
    def chunk(self) -> int:
        """Rows formed at once, by public sizes: all operations of a chunk go over its entries."""
        row = self.dtype.itemsize * max(1, self.shape[1])
        few = min(_FEWEST, _MOST_BYTES // row)
        return max(few, _CHUNK_BYTES // row, BLOCK) // BLOCK * BLOCK

    @property
    def nbytes(self) -> int:
        """The bytes of all rows, if they were formed."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize


def lent(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array of scratch memory, which is returned when no view of it is left."""
    return np.asarray(_Lent(Scratch(shape, dtype)))


class _Lent:
    """Owner of an array in scratch memory, which the array keeps alive."""

    def __init__(self, kept: Scratch):
        self._kept, self.__array_interface__ = kept, kept.array.__array_interface__
