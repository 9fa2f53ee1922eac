"""The one loop over chunks of records.

Everything that is summed over records, or found for each of them, goes through
:func:`over_chunks`. Records say which chunks they have (``chunks``) and give one at a time
(``at``), so that rows may lie in memory, in a memory map, or wherever else chunks come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from dpsubspace._array import Array, slices

__all__ = ["Chunked", "over_chunks"]


class Chunked(Protocol):
    """Records that can be visited chunk by chunk."""

    @property
    def data(self) -> Array:
        """What holds the records: tells where they are."""
        ...

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Indices that together name every record once, or every record of `batch`."""
        ...


@contextmanager
def over_chunks(records: Chunked) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give ``each(function, batch=None)``: what `function` makes of every chunk, in order.

    As many chunks are worked on at once as BLAS would use threads, each on one of them. The
    products of a chunk are too small to share: threads of BLAS would mostly wait for each other,
    on a busy machine for long. Only a few results are kept at a time.
    """
    on_cpu = isinstance(records.data, np.ndarray) or sparse.issparse(records.data)
    if not on_cpu:
        yield lambda function, batch=None: map(function, records.chunks(batch))
        return
    threads = min(_blas_threads(), len(records.chunks()))
    with ExitStack() as stack:
        stack.enter_context(_blas().limit(limits=1))
        if threads == 1:
            yield lambda function, batch=None: map(function, records.chunks(batch))
            return
        workers = stack.enter_context(ThreadPoolExecutor(threads))

        def each(function: Callable[..., Any], batch: np.ndarray | None = None) -> Iterator[Any]:
            def quiet(rows: Any) -> Any:  # numpy's error state is that of a thread
                with np.errstate(all="ignore"):
                    return function(rows)

            chunks = records.chunks(batch)
            for some in slices(len(chunks), 8 * threads):
                yield from workers.map(quiet, chunks[some])

        yield each


@cache
def _blas() -> Any:
    """The BLAS that NumPy uses, looked for once: that takes longer than a small chunk."""
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    """Threads that it would use now."""
    return max((library["num_threads"] for library in _blas().info()), default=1)
