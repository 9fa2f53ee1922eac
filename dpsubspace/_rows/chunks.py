"""The one loop over chunks of records.

Everything that is summed over records, or found for each of them, goes through
:func:`over_chunks`. Records say which chunks they have (``chunks``) and give one at a time
(``at``), so that rows may lie in memory, in a memory map, or wherever else chunks come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

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
    threads = _threads(records)
    if threads == 1:
        yield lambda function, batch=None: map(function, records.chunks(batch))
        return
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as workers:

        def each(function: Callable[..., Any], batch: np.ndarray | None = None) -> Iterator[Any]:
            def quiet(rows: Any) -> Any:  # numpy's error state is that of a thread
                with np.errstate(all="ignore"):
                    return function(rows)

            chunks = records.chunks(batch)
            for some in slices(len(chunks), 8 * threads):
                yield from workers.map(quiet, chunks[some])

        yield each


def _threads(records: Chunked) -> int:
    """Chunks to work on at once."""
    on_cpu = isinstance(records.data, np.ndarray) or sparse.issparse(records.data)
    n_chunks = len(records.chunks())
    if n_chunks == 1 or not on_cpu:  # asking BLAS takes longer than a small chunk
        return 1
    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return min(max(pools, default=1), n_chunks)
