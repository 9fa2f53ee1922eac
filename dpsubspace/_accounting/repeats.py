"""Tasks that Dask runs again: which run this is, and whether another one has spent before.

Design note. Dask runs a task again by itself where its worker died, where its result was lost, and
where it was told to retry. What the earlier run had released by then is spent. A ledger that
outlives the worker charges every run by itself, and nothing has to be refused. Where there is none,
a run leaves a mark at the scheduler before its first release, in the metadata of its task, which
go when the scheduler forgets the task. Each run first writes a mark of its own and then reads those
of all, so of two runs at once at least one finds the other and is refused: never do both spend.

A task may start others, as joblib does for an ensemble in a search. Run again, it starts them
under new names. So what is sent to them carries the runs that it comes from, and they are
marked and looked up as well.

Dask starts a task in a copy of the context variables of one that makes room for it. So a
context variable alone never tells which task this is; what the thread is running does.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from dpsubspace.exceptions import PrivacyError

__all__ = ["Run", "in_task", "only_once", "remember_run", "run_here", "runs_carried"]


@dataclass(frozen=True)
class Run:
    """One run of a task of Dask.

    Parameters
    ----------
    key : str, tuple or None
        Of the task, and so the same where Dask runs it again; None where that is not known.
    id : str
        Which no other run has.
    """

    key: Any
    id: str


_UNKNOWN = Run(None, "")

# For what a task does outside of its own thread: joblib pickles in that of the event loop.
_LAST: ContextVar[Run | None] = ContextVar("run", default=None)


def in_task() -> bool:
    """Whether this belongs to a task of Dask, or to an actor."""
    return _worker() is not None


def run_here() -> Run | None:
    """Run of the task that this thread works on; None outside of tasks and where that is hidden.

    A call of an actor, which Dask does not repeat, is a task by itself.
    """
    worker = _worker()
    if worker is None or (key := _of_thread("key")) is None:
        return None
    # A worker starts no task twice at one time, and no two workers have one id.
    run = f"{worker.id} {_of_thread('start_time')!r}"
    return Run(f"{key} {run}" if _of_thread("actor") else key, run)


def remember_run() -> None:
    """Let what this task does in other threads know it. To be called before it starts others."""
    if (run := run_here()) is not None:
        _LAST.set(run)


def runs_carried(carried: tuple[Run, ...], *, sent: bool) -> tuple[Run, ...]:
    """Runs that a copy carries of what carries `carried`; what a task sends carries its own too.

    A scheduler, which is no task, takes in what is sent and sends it on. A clone outside of
    tasks carries none: what a task returned has arrived, whatever becomes of its task.
    """
    if not in_task():
        return carried if sent else ()
    remember_run()
    return tuple(dict.fromkeys([*carried, *([_LAST.get() or _UNKNOWN] if sent else [])]))


def only_once(carried: tuple[Run, ...] = ()) -> None:
    """PrivacyError in a task of Dask of which another run may have spent; marks this one.

    To be called before a release that no ledger pays for which outlives the worker.
    """
    if not in_task() or _of_thread("actor"):
        return
    here = run_here()
    runs = [run for run in carried if here is None or run.key != here.key]
    for run in [*runs, here or _UNKNOWN]:
        if run.key is None:
            raise PrivacyError(_HIDDEN)
        _mark(run)


def _mark(run: Run) -> None:
    """Mark a run as one that spends; PrivacyError where there is another."""
    from distributed import get_client

    client: Any = get_client()
    place = [run.key, __name__]
    if client.get_metadata(place, {}).get(run.id):
        return  # by an earlier release of this run
    client.set_metadata([*place, run.id], False)
    if len(client.get_metadata(place)) > 1:
        raise PrivacyError(_AGAIN.format(key=run.key))
    client.set_metadata([*place, run.id], True)


def _worker() -> Any:
    """Worker of Dask whose task or actor this belongs to, or None."""
    if "distributed.worker" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _of_thread(name: str) -> Any:
    """What Dask knows of the task or the call of an actor that runs in this thread."""
    return getattr(sys.modules["distributed.utils"].thread_state, name, None)


_WAY_OUT = (
    " Fit inside of `with PrivacyLedger(..., path=...)`, with a file on a drive that all workers"
    " share: it charges each run, and so none has to be refused."
)

_AGAIN = (
    "Dask is running the task {key!r} again, since its worker died, its result was lost or it was"
    " told to retry. An earlier run of it may have released something, which is spent, and no"
    " ledger that outlives a worker would count this run beside it. This run released nothing."
    + _WAY_OUT
    + " Or start anew, and count what was started before as spent."
)

_HIDDEN = (
    "this fit or release belongs to a task of Dask, and nothing tells which one: it runs in a"
    " coroutine or in a thread that the task started, or the task was started by another one that"
    " does not tell. So it cannot be told either whether Dask is running it again, and no ledger"
    " that outlives a worker would count that. Nothing was released." + _WAY_OUT
)
