"""Dask collections as rows in parts: one part per worker, and one task per part for each call.

Blocks of a collection are distributed to the workers in runs of similar size. One task per worker
reads its blocks one after another into one array, which stays there as long as the fit lasts. Each
call is then one task per worker, which gets that array and the input of
:class:`~dpsubspace._core.rows.remote.RowPart`, and returns a sum. Dask runs a task again if its
worker was lost, including the one that reads the blocks. A task that runs twice gives the same
result, and its result is used once.

If rows belong to persons, the tasks that read are followed by tasks that bring the rows of each
person together (``_core/rows/together.py``): a part is then what one of the workers has gathered.

Design note. Tasks have names that reveal nothing, and pickles in place of arguments: logs and the
dashboard of a scheduler show the names of tasks, how long they took, and how large results are.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn
from uuid import uuid4

import numpy as np

from dpsubspace._core.ground.checks import is_collection
from dpsubspace._core.rows.chunks import using_threads
from dpsubspace._core.rows.columns import as_column
from dpsubspace._core.rows.records import names_of_rows
from dpsubspace._core.rows.remote import (
    FIRST,
    ROWS,
    RemoteRows,
    RowPart,
    RowParts,
    dealt_out,
    joined,
    of_no_rows,
)
from dpsubspace._core.rows.together import HELD, NAMES, PRESENT, dealt, gathered, name_array
from dpsubspace.exceptions import ClusterError, warn

# Seconds between two checks for workers, and seconds for which there may be none.
_LOOK, _PATIENCE = 2.0, 30.0


def load_collections(
    rows: Any,
    targets: Any,
    checked: Callable[..., dict[str, np.ndarray]],
    groups: Any = None,
    not_null: Any = None,
) -> dict[str, RemoteRows]:
    """Return rows and arrays beside them, read and checked on the workers of the current client.

    `checked` makes the arrays of a part, by name, from a block of rows and one of targets if there
    are any, and raises ValueError if they cannot be used. With `groups` each part has all rows of
    its persons; `not_null` may mark which of them are present. The results are proxies of these
    arrays, by name.

    Raise ValueError if there is no client or the blocks are inconsistent, ClusterError if there are
    no workers.
    """
    client = _client()
    _check_holder(client, rows, targets, groups)
    beside = {"y": targets}
    if groups is not None:
        beside |= {"groups": groups, "present": not_null}
        checked = _Named(checked, targets is not None)
    parts = _DaskParts(client, _Blocks.of(rows, beside), checked, together=groups is not None)
    return {name: parts.leaf(name, here) for name, here in parts.template.items()}


@dataclass(frozen=True)
class _Named:
    """Checks a block of rows of persons: its last arrays have the person of each row."""

    checked: Callable[..., dict[str, np.ndarray]]  # Makes all other arrays
    targets: bool  # Whether there are targets

    def __call__(self, *block: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a block; raise ValueError if it cannot be used."""
        own = 1 + self.targets
        found, (groups, *not_null) = self.checked(*block[:own]), block[own:]
        _check_index(block[0], groups)
        found[NAMES] = name_array(names_of_rows(groups, len(found[ROWS])))
        if not_null:
            found[PRESENT] = np.asarray(not_null[0], dtype=bool)
        return found


def _check_index(X: Any, groups: Any) -> None:
    """Raise ValueError if blocks of data frames have other rows, or in another order.

    Dask moves rows if it has to align columns, and omits that if no such column is requested. A row
    would then have the name of another person.
    """
    if hasattr(X, "iloc") and hasattr(groups, "iloc") and not X.index.equals(groups.index):
        raise ValueError(
            "`X` and `groups` have other rows, or in another order, as their index says. Take both"
            " from one data frame, and call persist() on it, or write it to files first, where a"
            " column was made of another data frame or of an array."
        )


# Blocks of collections ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blocks:
    """Blocks of rows, and of targets beside them, before they are read."""

    # Keys of each block of rows and the block of targets that goes with it.
    keys: list[tuple[Any, ...]]
    graph: dict[Any, Any]  # The tasks that make them
    held: bool  # Whether workers hold some of it already

    @classmethod
    def of(cls, rows: Any, beside: dict[str, Any]) -> _Blocks:
        """Join collections' blocks, all columns in one; raise ValueError if they differ."""
        from dask.core import flatten
        from distributed import futures_of

        rows = whole(rows)
        others = {name: other for name, other in beside.items() if other is not None}
        private = "groups" in others  # the number of rows
        given = [rows, *(_beside(rows, other, name, private) for name, other in others.items())]
        keys = [list(flatten(collection.__dask_keys__())) for collection in given]
        for name, some in zip(others, keys[1:], strict=True):
            if len(some) != len(keys[0]):
                raise ValueError(
                    f"`X` has {len(keys[0])} blocks and `{name}` has {len(some)}, of which the"
                    " lengths are not known. Take both from one data frame, or call"
                    " compute_chunk_sizes() on both arrays."
                )
        graph = {}
        for collection in given:
            graph.update(collection.__dask_graph__())
        if not all(key in graph for some in keys for key in some):
            # Dask joins small partitions of Parquet files if it persists some columns of them.
            raise ValueError(
                "Dask has joined partitions when it persisted some columns of a data frame, and"
                " does not find them any more. Pass the data frame without persist(), or persist"
                " all of it and take the columns of `X` and `y` afterwards."
            )
        return cls(list(zip(*keys, strict=True)), graph, bool(futures_of(given)))

    def culled(self, some: slice) -> tuple[dict[Any, Any], list[tuple[Any, ...]]]:
        from dask.optimization import cull

        keys = self.keys[some]
        return cull(self.graph, [key for block in keys for key in block])[0], keys

    @property
    def apart(self) -> bool:
        """Return whether each block is made by itself, by tasks that no other block needs.

        A task that several blocks need might run once for each of them. If it then gave its rows in
        another order, a row could be counted twice.
        """
        used = Counter(
            key for i in range(len(self.keys)) for key in self.culled(slice(i, i + 1))[0]
        )
        # An array in memory is no task, and blocks are cut from it.
        return all(n == 1 or _is_data(self.graph[key]) for key, n in used.items())


def whole(rows: Any) -> Any:
    """Return rows with all columns in one block."""
    if hasattr(rows, "rechunk") and rows.ndim == 2 and len(rows.chunks[1]) > 1:
        return rows.rechunk({1: -1})
    return rows


def _beside(rows: Any, targets: Any, name: str, private: bool) -> Any:
    """Return targets, or others, in the blocks of the rows, as far as their lengths are known.

    No message contains the lengths if they are private.
    """
    if not is_collection(targets):
        import dask.array

        if not has_lengths(rows):
            raise ValueError(
                f"`{name}` is in memory and the lengths of the blocks of `X` are not known. Pass"
                f" `{name}` as a Dask collection too, or call compute_chunk_sizes() on the array"
                " `X`."
            )
        # One chunk: Dask does not choose any for objects, which text is.
        one: Any = -1
        targets = dask.array.from_array(np.asarray(as_column(targets)), chunks=one)
    if not (has_lengths(rows) and has_lengths(targets)):
        return targets
    if rows.shape[0] != targets.shape[0]:
        of = "" if private else f": [{rows.shape[0]}, {targets.shape[0]}]"
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples{of}: `X` and `{name}` must"
            " have the same rows."
        )
    return targets.rechunk({0: rows.chunks[0], **({1: -1} if targets.ndim > 1 else {})})


def _is_data(node: Any) -> bool:
    """Return whether a node of a graph holds data, and is no task, in old and new graphs."""
    if isinstance(node, tuple):
        return not (node and callable(node[0]))
    return type(node).__name__ == "DataNode" or isinstance(node, np.ndarray)


def has_lengths(collection: Any) -> bool:
    """Return whether a collection is an array whose lengths of blocks are known."""
    return hasattr(collection, "chunks") and not np.isnan(sum(collection.chunks[0]))


# Parts on workers -----------------------------------------------------------------------------


class _DaskParts(RowParts):
    """Rows in one part per worker of a cluster, as long as this object exists."""

    def __init__(
        self, client: Any, blocks: _Blocks, checked: Callable[..., Any], *, together: bool = False
    ):
        super().__init__(0)
        self._client = client
        self._charged = False  # a failure before the first sum has cost nothing
        workers = self._started()
        self._first = set(workers)
        self._refs = self._read(blocks, workers, checked)
        self._pinned = [ref.key for ref in self._refs]
        if together:
            self._refs = self._by_person(list(workers))
        seen = self._results(self._submit(_seen, self._refs))
        for refusal in seen:
            if isinstance(refusal, str):
                raise ValueError(refusal)
        self.template = of_no_rows([one.kinds for one in seen])
        self._kinds = [one.kinds for one in seen]
        self._sizes = [sum(one.lengths) for one in seen]
        lengths = [length for one in seen for length in one.lengths]
        self.n = sum(lengths)
        if not self.n:
            raise ValueError("`X` has no rows, and at least one is needed.")
        self._starts = np.cumsum([0, *self._sizes])
        self._block_starts = np.cumsum([0, *lengths])
        if together:  # a batch has numbers of persons
            self._starts = np.cumsum([0, *(one.persons for one in seen)])
            self.n_persons = int(self._starts[-1])
        else:  # the size of rows of persons is private
            _warn_of_memory(max(seen, key=lambda one: one.size / one.room))
        self._unpin()
        self._charged = True

    def _read(self, blocks: _Blocks, workers: dict[str, int], checked: Any) -> list[Any]:
        """Return one future per part: a task that reads all its blocks, or joins held ones."""
        import cloudpickle

        body, runs = cloudpickle.dumps(checked), _runs(len(blocks.keys), [*workers.values()])
        placed = list(zip(runs, workers, strict=False))
        if not blocks.held and blocks.apart:
            return [
                self._client.submit(
                    _read, cloudpickle.dumps(blocks.culled(some)), body, some.start, **_on(worker)
                )
                for some, worker in placed
            ]
        # Shared inputs of blocks are made once, by Dask, before blocks are joined.
        held = self._held(blocks)
        return [
            self._client.submit(
                _join,
                [[held[key] for key in block] for block in blocks.keys[some]],
                body,
                some.start,
                **_on(worker),
            )
            for some, worker in placed
        ]

    def _by_person(self, workers: list[str]) -> list[Any]:
        """Return one future per part: a task that gathers all rows of its persons."""
        n = len(self._refs)

        def sent(function: Any, *args: Any, to: str) -> Any:
            future = self._client.submit(function, *args, **_on(to))
            self._pinned.append(future.key)
            return future

        pieces = [sent(_dealt, self._refs[i], n, to=workers[i]) for i in range(n)]
        shares = [[sent(_share, pieces[j], i, to=workers[j]) for j in range(n)] for i in range(n)]
        return [sent(_gathered, shares[i], to=workers[i]) for i in range(n)]

    def _held(self, blocks: _Blocks) -> dict[Any, Any]:
        """Return futures of all blocks by their keys: existing and new ones."""
        from distributed import Future

        flat = [key for block in blocks.keys for key in block]
        held = {key: blocks.graph[key] for key in flat if isinstance(blocks.graph[key], Future)}
        others = [key for key in flat if key not in held]
        found = self._client.get(blocks.graph, others, sync=False) if others else []
        return held | dict(zip(others, found, strict=True))

    # Calls ----------------------------------------------------------------------------------

    def run(self, task: bytes, own: Sequence[Any] | None) -> list[Any]:
        """Return the results of a call, one task per part; ClusterError if a part has changed."""
        given = [None] * len(self._refs) if own is None else own
        known = (self._kinds, self._sizes)
        tasks = [task] * len(self._refs)
        found = self._results(self._submit(_run, self._refs, *known, given, tasks))
        if any(isinstance(result, _Changed) for result in found):
            self._give_up(
                "The blocks of a worker that was lost were read again, and there were other"
                " numbers of rows or columns, or other types, in them. What they are read from"
                " must give the same each time."
            )
        return found

    def _unpin(self) -> None:
        """Let any worker read the parts again.

        If a task prefers a lost worker, and all workers are lost, Dask gives it to none of the new
        ones.
        """
        free = {key: [] for key in self._pinned}
        self._soon(self._client.scheduler.set_restrictions(worker=free)).result(_PATIENCE)

    def split(self, batch: np.ndarray) -> list[np.ndarray]:
        cuts = np.searchsorted(batch, self._starts)
        pairs = zip(pairwise(cuts), self._starts, strict=False)
        return [_short(batch[first:last] - start) for (first, last), start in pairs]

    def scattered(self, values: np.ndarray) -> RemoteRows:
        """Distribute a local array to the parts: for tests, since each part gets all of it."""
        return dealt_out(self, values, self._block_starts)

    def _submit(self, function: Any, *given: Sequence[Any]) -> list[Any]:
        from dask import config  # pyright: ignore[reportPrivateImportUsage]

        if self._client.status in ("closing", "closed"):
            self._give_up("Its client was closed.")
        names = [f"dpsubspace-{uuid4().hex}" for _ in self._refs]
        # Weights and batches are sent with a task: scattered data would be lost with a worker. Dask
        # warns about graphs that are so large. They are no keyword arguments: Dask gives those
        # above 100 kB a key that is their name, which the next call would have as well.
        with config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self._client.map(function, *given, key=names, pure=False)

    def _results(self, futures: list[Any]) -> list[Any]:
        """Return results of tasks; raise ClusterError if no worker is left to run them."""
        from distributed.scheduler import KilledWorker

        async def gathered() -> list[Any]:
            return await self._client.gather(futures, asynchronous=True)

        waiting, seen = self._soon(gathered()), time.monotonic()
        while True:
            try:
                return waiting.result(_LOOK)
            except NotYet:
                if waiting.done():  # the task itself raised this
                    raise
            except KilledWorker as error:
                self._give_up(
                    "The workers that ran a part of it were lost one after another, perhaps for"
                    " want of memory: use more workers, or workers with more memory.",
                    error,
                )
            except (asyncio.CancelledError, CancelledError) as error:
                self._give_up("Its tasks were cancelled, or the client was closed.", error)
            if self._of_use():
                seen = time.monotonic()
            elif time.monotonic() - seen > _patience():
                self._give_up(f"The cluster has had no worker for {_patience():.0f} seconds.")

    def _give_up(self, why: str, cause: BaseException | None = None) -> NoReturn:
        kept = (
            "What it had reserved stays charged, since noisy sums may have been released."
            if self._charged
            else "It had not begun to release anything, and nothing was charged."
        )
        raise ClusterError(f"the fit on Dask collections has ended. {why} {kept}") from cause

    def _started(self) -> dict[str, int]:
        """Return the threads of each worker, once there is one."""
        since = time.monotonic()
        while not (workers := self._workers()):
            if time.monotonic() - since > _patience():
                self._give_up(f"The cluster has had no worker for {_patience():.0f} seconds.")
            time.sleep(0.1)
        return workers

    def _of_use(self) -> set[str]:
        """Return workers that can do the work: until parts are read, one of the first workers."""
        # Dask gives tasks that should read at lost workers to none of those that come later.
        workers = set(self._workers())
        return workers if self._charged else workers & self._first

    def _workers(self) -> dict[str, int]:
        async def asked() -> dict[str, int]:
            return await asyncio.wait_for(self._client.nthreads(), 5)

        if self._client.status != "running":
            return {}
        try:
            return self._soon(asked()).result(10)
        except (TimeoutError, NotYet, OSError):
            return {}

    def _soon(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the future result of a coroutine on the loop of the client."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)


def _client() -> Any:
    """Return the current client; raise ValueError if there is none, or it cannot be used."""
    from distributed import get_client, get_worker

    try:
        get_worker()
    except ValueError:
        pass
    else:
        raise ValueError(
            "a fit on Dask collections cannot run inside a Dask task, whose worker it would wait"
            " for. Call it outside, or pass arrays."
        )
    try:
        client = get_client()
    except ValueError:
        raise ValueError(
            "Dask collections need the workers of a cluster, and there is no client. Start one:"
            " from dask.distributed import Client; client = Client()."
        ) from None
    if client.asynchronous:
        raise ValueError(
            "a fit needs a client that is not asynchronous: Client(asynchronous=False)."
        )
    return client


def _check_holder(client: Any, *collections: Any) -> None:
    """Raise ValueError if workers of another cluster hold the data of a collection."""
    from distributed import futures_of

    held = futures_of([each for each in collections if is_collection(each)])
    where = {future.client.scheduler.address for future in held if future.client is not client}
    if where and where != {client.scheduler.address}:
        raise ValueError(
            "a Dask collection was persisted on another cluster than that of the current client."
            " Fit with the client of that cluster, inside of client.as_current(), or persist the"
            " collection here."
        )


def _patience() -> float:
    """Return the seconds for which a cluster may have no worker."""
    from dask import config  # pyright: ignore[reportPrivateImportUsage]

    return float(config.get("dpsubspace.no-worker-timeout", _PATIENCE))


def _on(worker: str) -> dict[str, Any]:
    """Return where a part should be read, if that worker lasts."""
    name = f"dpsubspace-{uuid4().hex}"
    return {"workers": [worker], "allow_other_workers": True, "key": name, "pure": False}


def _runs(n_blocks: int, threads: Sequence[int]) -> list[slice]:
    """Return runs of blocks, at most one per worker, by their threads, none empty."""
    ends = np.rint(np.cumsum(threads) / sum(threads) * n_blocks).astype(int)
    return [slice(a, b) for a, b in pairwise([0, *ends.tolist()]) if b > a]


def _short(places: np.ndarray) -> np.ndarray:
    """Return positions in as few bytes as they need: they are sent."""
    return places.astype(np.int32) if len(places) and places[-1] < 2**31 else places


def _warn_of_memory(fullest: _Seen) -> None:
    """Warn if Dask will write a part to disk after each call and read it before the next."""
    if fullest.size > fullest.room:
        warn(
            f"a part of the rows takes {fullest.size / 2**30:.2g} GiB, and Dask keeps at most"
            f" {fullest.room / 2**30:.2g} GiB of results in the memory of its worker: it will move"
            " the part to disk and back at every step. Use more workers, workers with more memory"
            " (memory_limit), or rows of float32.",
            UserWarning,
            about="memory of workers",
        )


# Tasks ----------------------------------------------------------------------------------------


def _read(source: bytes, checked: bytes, first: int) -> RowPart | str:
    """Read blocks one after another: never more than one is in memory beside the part."""
    from dask.local import get_sync
    from dask.optimization import cull

    graph, keys = pickle.loads(source)

    def blocks() -> Any:
        for i, block in enumerate(keys, first):
            try:
                found = get_sync(cull(graph, list(block))[0], list(block))
            except KeyError as error:  # from the code of the collection, of a file for example
                raise ValueError(
                    f"partition {i}, counted from 0, cannot be computed: KeyError({error}). If its"
                    " file lacks a column that the others have, give all files the same columns."
                ) from None
            yield found

    return _part(blocks(), checked, first)


def _join(blocks: list[list[Any]], checked: bytes, first: int) -> RowPart | str:
    return _part(blocks, checked, first)


def _part(blocks: Any, checked: bytes, first: int) -> RowPart | str:
    """Return the part that blocks make, or a message if they cannot be used.

    An error of a task would fill the logs of a worker.
    """
    named = ((f"partition {i}, counted from 0", block) for i, block in enumerate(blocks, first))
    try:
        arrays, lengths = joined(named, pickle.loads(checked))
    except ValueError as error:
        return str(error)
    return RowPart(arrays | {FIRST: np.array([first])}, lengths)


def _dealt(part: RowPart | str, n_parts: int) -> list[Any]:
    """Return the rows that a part gives to each of all parts."""
    if isinstance(part, str):
        return [part] * n_parts
    rows = {name: array for name, array in part.leaves.items() if name != FIRST}
    return dealt(rows, n_parts)


def _share(pieces: list[Any], number: int) -> Any:
    return pieces[number]


def _gathered(shares: list[Any]) -> RowPart | str:
    """Return the part of all rows of some persons, or why there is none."""
    for share in shares:
        if isinstance(share, str):
            return share
    try:
        arrays = gathered(shares)
    except ValueError as error:
        return str(error)
    return RowPart(arrays, [len(arrays[ROWS])])


@dataclass(frozen=True)
class _Seen:
    """Public facts about a part, and about its worker."""

    kinds: dict[str, tuple[Any, tuple[int, ...]]]  # Types and widths of its arrays
    lengths: list[int]  # Rows of its blocks
    size: int  # Bytes of its arrays
    room: float  # Bytes of results that Dask keeps in the memory of the worker
    persons: int  # Persons of a part that has all rows of its persons; else 0


def _seen(part: RowPart | str) -> _Seen | str:
    """Return the public facts about a part, or why there is none."""
    from dask import config  # pyright: ignore[reportPrivateImportUsage]
    from distributed import get_worker

    if isinstance(part, str):
        return part
    limit = get_worker().memory_manager.memory_limit
    target = config.get("distributed.worker.memory.target")
    room = limit * target if limit and target else np.inf
    persons = int(part.leaves[HELD][0]) if HELD in part.leaves else 0
    return _Seen(part.kinds(), part.lengths, part.__sizeof__(), room, persons)


class _Changed:
    """Error for a part that was read again, from a source that has changed."""


def _run(part: RowPart | str, kinds: dict[str, Any], n: int, own: Any, task: bytes) -> Any:
    from distributed import get_worker

    if isinstance(part, str) or part.kinds() != kinds or sum(part.lengths) != n:
        return _Changed()
    with using_threads(get_worker().state.nthreads), np.errstate(all="ignore"):
        return part.run(task, own)
