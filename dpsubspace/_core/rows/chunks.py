"""The one loop over chunks of records, and rows that are formed some at a time within it.

Everything that is summed over records, or found for each of them, goes through
:func:`over_chunks`. Records say which chunks they have (``chunks``) and give one at a time
(``at``), so that rows may lie in memory, in a memory map, or in parts on the workers of a cluster:
the loop then runs on each part, and the totals of the parts are added up here.

Rows of many numbers may be formed of the few that are held of each (:class:`FormedRows`). Privacy:
the numbers of a row follow from what is held of that row alone, and are the same to the bit
whichever rows are formed with it. So norms that were taken once bound whatever is added up later,
and a record that changes moves no number of another one.
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
        """Indices that together name every record once, or every record of `batch`."""
        ...

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        """Bytes that a product with all records reads, or with a batch, times its columns."""
        ...


@dataclass(frozen=True)
class Slices:
    """Dense rows in slices of at most `step`, of which a function makes so many passes."""

    data: Array
    step: int
    passes: int = 1

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        return slices(self.data.shape[0], self.step) or [slice(0, 0)]

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return float(self.passes * self.data.nbytes)


class Chunks:
    """What can be done with the chunks of some records, while :func:`over_chunks` lasts.

    ``visit(function, batch)`` gives what `function` makes of every chunk.
    """

    def __init__(self, records: Chunked, visit: Callable[..., Iterator[Any]]):
        self._records, self._visit = records, visit

    def __call__(
        self, function: Callable[..., Any], batch: np.ndarray | None = None
    ) -> Iterator[Any]:
        """What `function` makes of every chunk, in order: of records that lie here."""
        return self._visit(function, batch)

    def total(
        self,
        function: Callable[..., Any],
        new: Callable[[], Any] = Total,
        batch: np.ndarray | None = None,
    ) -> Any:
        """Add up what `function` makes of every chunk, in a total that `new` gives.

        Whatever `function` holds that is made of rows elsewhere is, where it is called, made of
        those of a part. `new` gives an object that can ``add`` what was found in a chunk, and
        ``merge`` the total of other chunks. A `batch` takes only these records, in their order.
        """
        total = new()
        for part in self._visit(function, batch):
            total.add(part)
        return total


class _ChunksElsewhere(Chunks):
    """The same of records that lie in parts elsewhere, of which only totals come here."""

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
    """Total of one part, where it lies."""
    with over_chunks(records) as each:
        return each.total(function, new, *batch)


def _not_here(*_: Any) -> Iterator[Any]:
    raise RuntimeError("of rows elsewhere only totals come here.")


@contextmanager
def over_chunks(records: Chunked) -> Iterator[Chunks]:
    """Give what visits every chunk of the records, and adds up what is found there.

    As many chunks are worked on at once as BLAS would use threads, each on one of them. The
    products of a chunk are too small to share: threads of BLAS would mostly wait for each other,
    on a busy machine for long. So would ours where there is less work than :data:`SHARED`: they
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
        whole = cache(records.chunks)  # every step asks for the same

        def visit(function: Callable[..., Any], batch: np.ndarray | None = None) -> Iterator[Any]:
            def quiet(rows: Any) -> Any:  # numpy's error state is that of a thread
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
    """Have the allocator keep the memory of one chunk for the next.

    That of the GNU C library hands memory back to the system where more is free than twice the
    longest array that it has freed so far. To get it again, page by page and cleared, takes up to
    twice as long as what is computed: so one longer than those of chunks is freed first. It is not
    written to, and takes no memory itself; others do the same where it changes nothing.
    """
    np.empty(_KEPT, np.uint8)


# Threads to use in place of those that BLAS would.
_THREADS: ContextVar[int | None] = ContextVar("threads", default=None)


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Loops over chunks use so many threads, as long as this lasts."""
    token = _THREADS.set(n)
    try:
        yield
    finally:
        _THREADS.reset(token)


@cache
def _blas() -> Any:
    """The BLAS that NumPy uses, looked for once: that takes longer than a small chunk."""
    return ThreadpoolController().select(user_api="blas")


def blas_threads() -> int:
    return max((library["num_threads"] for library in _blas().info()), default=1)


class _OneThread:
    """BLAS on one thread while anybody asks for it: fits side by side may end in any order."""

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
    """How features (p,) of a row are made of entries that are cheap to form.

    Feature ``places[k]`` is ``sizes[k]`` times entry k. A product with features is one with
    entries, of weights that are multiplied by sizes first, or of sums that are multiplied by them
    in float64 at the end. Rounding is then in proportion to each feature, as without sizes.
    """

    places: np.ndarray  # (p,)
    sizes: np.ndarray  # (p,)

    def inward(self, weights: np.ndarray) -> np.ndarray:
        """Weights (p, c) of entries, for those of features."""
        return weights[self.places] * as_like(self.sizes, weights)[:, None]

    def outward(self, sums: np.ndarray) -> np.ndarray:
        """Sums (p, c) of features, from those of entries."""
        found = np.empty_like(sums)
        found[self.places] = sums * self.sizes[:, None]
        return found

    def features(self, entries: np.ndarray) -> np.ndarray:
        """Features (m, p) of rows of entries, in their dtype."""
        found = np.empty(entries.T.shape, dtype=entries.dtype)  # columns in one piece each
        found[self.places] = entries.T
        found *= self.outward(np.ones((len(found), 1), dtype=entries.dtype))
        return found.T


class FormedRows:
    """Rows (n, p) in float32, of which only those that are asked for are formed.

    `held` are arrays of columns (k, n), and `form` makes entries (p, m) of m of their columns, of
    which `layout` makes features. In all else they are like an array, but in two dimensions.
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
        self.template = np.empty((0, self.shape[1]), dtype=self.dtype)  # the same of no rows

    def entries(self, rows: Any) -> np.ndarray:
        """Entries (m, p) of some rows, in memory that is lent as long as anybody has the array.

        Columns lie in one piece each.
        """
        return self._form([held[:, rows] for held in self._held]).T

    def taken(self, rows: Any) -> FormedRows:
        """Some of the rows, which are formed as they are here."""
        return FormedRows([held[:, rows] for held in self._held], self._form, self.layout)

    def norms(self, rows: Any) -> np.ndarray:
        """Norms of the features of some rows in float64, never too small."""
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
        """Rows to form at once, by public sizes: all operations of a chunk go over its entries."""
        row = self.dtype.itemsize * max(1, self.shape[1])
        few = min(_FEWEST, _MOST_BYTES // row)
        return max(few, _CHUNK_BYTES // row, BLOCK) // BLOCK * BLOCK

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, if they were there."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize


def lent(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of scratch memory, which goes back where nobody has a view of it any more."""
    return np.asarray(_Lent(Scratch(shape, dtype)))


class _Lent:
    """What an array keeps alive that lies in scratch memory."""

    def __init__(self, kept: Scratch):
        self._kept, self.__array_interface__ = kept, kept.array.__array_interface__
