"""The one loop over chunks of records.

Everything that is summed over records, or found for each of them, goes through
:func:`over_chunks`. Records say which chunks they have (``chunks``) and give one at a time
(``at``), so that rows may lie in memory, in a memory map, or wherever else chunks come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from threading import Lock
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from dpsubspace._array import Array, slices

__all__ = ["SHARED", "Chunked", "Slices", "over_chunks"]

# Work (see :meth:`Chunked.work`) from which on two threads are faster than one.
SHARED = 1 << 26


class Chunked(Protocol):
    """Records that can be visited chunk by chunk."""

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


@dataclass(frozen=True)
class Slices:
    """Dense rows in slices of at most `step`, of which a function makes so many passes."""

    data: Array
    step: int
    passes: int = 1

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Slices of rows, at least one; there are no batches."""
        return slices(self.data.shape[0], self.step) or [slice(0, 0)]

    def work(self, batch: np.ndarray | None = None) -> float:
        """Bytes of the rows, as often as they are passed over."""
        return float(self.passes * self.data.nbytes)


@contextmanager
def over_chunks(records: Chunked) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give ``each(function, batch=None)``: what `function` makes of every chunk, in order.

    As many chunks are worked on at once as BLAS would use threads, each on one of them. The
    products of a chunk are too small to share: threads of BLAS would mostly wait for each other,
    on a busy machine for long. So would ours where there is less work than :data:`SHARED`: they
    hand the interpreter to each other at every operation. Only a few results are kept at a time.
    """
    on_cpu = isinstance(records.data, np.ndarray) or sparse.issparse(records.data)
    if not on_cpu:
        yield lambda function, batch=None: map(function, records.chunks(batch))
        return
    threads = _blas_threads()
    with _ONE_THREAD, ThreadPoolExecutor(threads) as workers:

        def each(function: Callable[..., Any], batch: np.ndarray | None = None) -> Iterator[Any]:
            def quiet(rows: Any) -> Any:  # numpy's error state is that of a thread
                with np.errstate(all="ignore"):
                    return function(rows)

            chunks = records.chunks(batch)
            if threads == 1 or len(chunks) == 1 or records.work(batch) < SHARED:
                return map(function, chunks)
            parts = slices(len(chunks), 8 * threads)
            return chain.from_iterable(workers.map(quiet, chunks[some]) for some in parts)

        yield each


@cache
def _blas() -> Any:
    """The BLAS that NumPy uses, looked for once: that takes longer than a small chunk."""
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    """Threads that it would use now."""
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
