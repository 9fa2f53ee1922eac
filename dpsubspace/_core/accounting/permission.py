"""Who has to be asked before anything is released: whoever pays for it, which is a ledger.

Design note. A fit finds the ledger that it runs in, and neither estimators nor callers hand one
on, since scikit-learn clones estimators and sends them to threads and processes of its own. So
there are three ways to find one, and the nearest counts: the code around the fit (``with ledger``,
``ledger.fit``), which a context variable tells; the *address* that a clone or a pickle was given
where it was made, which leads there from another process; and the one ledger that is open in
this process, for threads, which context variables do not reach. Functions have the address of the
models that they are given. In a worker process the one ledger is that of which estimators have
brought an address there, as long as it is open. Where several ledgers are open and
neither of the first two ways tells which, nothing is released.

Not every process that works for another one can be told from one that somebody started to use a
saved model. There, and where the file of a ledger is not on the machine, an estimator that was
given by that ledger may pay for nothing but itself. What else is released is not charged then, and
a warning says so (`warn_of_ledgers_elsewhere`), unless the ledger is known to be closed.

The first way counts only in the task of Dask that entered it, or outside of any as it did: Dask
hands context variables from one task to the next. And it ends with its block: a thread, a coroutine
or a callback that keeps the context variables of a block finds what was around that.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import is_free, non_private
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

    Settle = Callable[[DpEvent], None]
    Note = Callable[[str, str], None]


# Tasks that run again ---------------------------------------------------------------------------
# Tasks that Dask runs again: which run this is, and whether another one has spent before.
#
# Design note. Dask runs a task again by itself where its worker died, where its result was lost,
# and where it was told to retry. What the earlier run had released by then is spent. A ledger that
# outlives the worker charges every run by itself, and nothing has to be refused. Where there is
# none, a run leaves a mark at the scheduler before its first release, in the metadata of its task,
# which go when the scheduler forgets the task. Each run first writes a mark of its own and then
# reads those of all, so of two runs at once at least one finds the other and is refused: never do
# both spend.
#
# A task may start others, as joblib does for an ensemble in a search. Run again, it starts them
# under new names. So what is sent to them carries the runs that it comes from, and they are marked
# and looked up as well.
#
# Dask starts a task in a copy of the context variables of one that makes room for it. So a context
# variable alone never tells which task this is; what the thread is running does.


@dataclass(frozen=True)
class Run:
    key: Any  # Of the task, and so the same where Dask runs it again; None where that is not known
    id: str  # Which no other run has


_UNKNOWN = Run(None, "")

# Where this is not loaded, nothing belongs to a task.
DASK = "distributed.worker"

# For what a task does outside of its own thread: joblib pickles in that of the event loop.
_LAST: ContextVar[Run | None] = ContextVar("run", default=None)


def in_task() -> bool:
    """Whether this belongs to a task of Dask, or to an actor."""
    return _worker() is not None


def run_here() -> Run | None:
    """Run of the task, or the call of an actor, that this thread works on; None for none."""
    worker = _worker()
    if worker is None or (key := _of_thread("key")) is None:
        return None
    # A worker starts no task twice at one time, and no two workers have one id.
    run = f"{worker.id} {_of_thread('start_time')!r}"
    return Run(f"{key} {run}" if _of_thread("actor") else key, run)


def remember_run() -> None:
    """Let what this task does in other threads know it: called before it starts them."""
    if DASK in sys.modules and (run := run_here()) is not None:
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

    Called before a release that no ledger pays for and that outlives the worker.
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
    if DASK not in sys.modules:
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
    "Dask is running the task {key!r} again, because its worker died, its result was lost or it"
    " was set to retry. An earlier run of it may have released something, which is spent, and"
    " there is no ledger outside of the workers that would count both runs. This run released"
    " nothing." + _WAY_OUT + " Or start anew, and count what was started before as spent."
)

_HIDDEN = (
    "this fit or release belongs to a task of Dask, and it is not known which one: it runs in a"
    " coroutine or in a thread that the task started, or another task started the task. So it is"
    " not known either whether Dask is running it again, and there is no ledger outside of the"
    " workers that would count it. Nothing was released." + _WAY_OUT
)


# Who pays ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Payer:
    """Who is asked for leave: a ledger, as what runs inside of it has to know it."""

    delta: float  # What ``delta="auto"`` stands for
    # Takes the guarantee of what is about to be released, and raises where that must not be. It may
    # return a callable, which takes the event of what was released in the end where a fit failed
    # before it had released all of that.
    spend: Callable[[PrivacyGuarantee], Settle | None]
    # Leads to the same ledger from another process, where there is a way.
    address: Address | None = None
    # Whether what it has charged is known where Dask runs a task again: False for a ledger that a
    # task opened by itself and no file keeps.
    lasting: bool = True
    # Takes a kind and the name of a class: what was seen beside releases, for reports. None where
    # what is around the release was noted already.
    note: Note | None = None
    # Says what is left of a budget, for errors; None where nobody may spend more than was planned.
    left: Callable[[], str] | None = None


class Address(Protocol):
    """Way to a ledger that can be pickled: estimators that are sent elsewhere carry one."""

    @property
    def lasting(self) -> bool:
        """Whether a charge there is known where Dask runs a task again; see :class:`Payer`."""
        ...

    def payer(self) -> Payer | None:
        """Whom it leads to, or PrivacyError.

        None where the ledger was closed in the process that had opened it.
        """
        ...

    def is_open(self) -> bool | None:
        """Whether the ledger is open; None where there is no way to it from this machine."""
        ...

    def has_ended(self) -> bool:
        """Whether it was opened in this process, and has ended: copies need it no more."""
        ...


@dataclass(frozen=True)
class _AmbiguousLedger:
    """Address of what was pickled where several ledgers were open."""

    lasting = True  # nothing is released

    def payer(self) -> Payer | None:
        raise PrivacyError(_SEVERAL)

    def is_open(self) -> bool | None:
        return True

    def has_ended(self) -> bool:
        return False


_SEVERAL = (
    "several ledgers are open in this process, and it is not clear which of them pays for this."
    " Open one at a time, or fit with ledger.fit(...). Nothing was released or charged."
)


@dataclass(frozen=True)
class _FromTask:
    """Address of what a task of Dask sends to those that it starts."""

    runs: tuple[Run, ...]  # That task, and those that it was started by
    ledger: Address | None  # Of a ledger that a task opened by itself, if there is one
    lasting = False

    def payer(self) -> Payer | None:
        return None if self.ledger is None else self.ledger.payer()

    def is_open(self) -> bool | None:
        return False if self.ledger is None else self.ledger.is_open()

    def has_ended(self) -> bool:
        return False


@dataclass(eq=False)
class _Block:
    """Code in which somebody pays."""

    payer: Payer  # Who does
    run: Run | None  # Run of Dask that entered it
    around: _Block | None  # Block that it is in
    # Whether it has been left: copies of the context, which nobody counts, see that here.
    ended: bool = False


_AROUND: ContextVar[_Block | None] = ContextVar("payer", default=None)
_OPEN: dict[str, Payer] = {}  # of this process, by the block that opened them
_ARRIVED: dict[Address, None] = {}  # of other processes, by what estimators brought along
# The same where this process may have nothing to do with them, or has no way to them.
_HEARD_OF: dict[Address, None] = {}
_CARRIED: ContextVar[Address | None] = ContextVar(
    "carried", default=None
)  # by what a call is given


@contextmanager
def inside_payer(payer: Payer) -> Iterator[None]:
    """Within it `payer` is asked before anything is released; other threads are outside."""
    block = _Block(payer, run_here(), _AROUND.get())
    _AROUND.set(block)
    try:
        yield
    finally:  # no reset by a token, which is of one context: a notebook may leave in another
        block.ended = True
        _AROUND.set(block.around)


def open_to_all(session: str, payer: Payer) -> None:
    """Let `payer` pay for what runs in any thread of this process, and is of no other."""
    _OPEN[session] = payer


def close_to_all(session: str) -> None:
    _OPEN.pop(session, None)


def open_here(session: str) -> Payer | None:
    """Who was opened under this name in this process, or in the one that it was forked from."""
    return _OPEN.get(session)


def in_worker() -> bool:
    """Whether this process was started by another one to work for it, or this is a task of Dask."""
    return multiprocessing.parent_process() is not None or in_task()


def bring(address: Address) -> None:
    """Let this process know the ledger of an estimator that has come to it; see the module."""
    found = address_once_used(address)
    if found is not None:
        known = _ARRIVED if in_worker() else _HEARD_OF
        known[found] = None


def _open_elsewhere() -> list[Address]:
    """Ledgers of other processes that are known here and open."""
    for address in [*_ARRIVED]:
        if not (is_open := address.is_open()):
            _ARRIVED.pop(address, None)
            if is_open is None:
                _HEARD_OF[address] = None
    return [*_ARRIVED]


def warn_of_ledgers_elsewhere(name: str) -> bool:
    """Warn that what `name` is about to release is not charged to a ledger that may be open.

    To be called where nobody pays. It is said once of each ledger. Returns whether it was.
    """
    for address in [*_HEARD_OF]:
        del _HEARD_OF[address]  # said once: whoever has seen it need not see it at every fit
        if (is_open := address.is_open()) is False:
            continue
        state = "is open" if is_open else "was open, and whose file cannot be reached from here"
        warn(
            f"{name} is not charged to any ledger: this process has got an estimator that was"
            f" cloned or pickled in the block of a ledger that {state}. If this process works for"
            " the one with the block (as those of Ray do, or a subprocess), let the ledger have a"
            " `path` on a drive that both reach, and open it here by `with"
            " PrivacyLedger.load(path):` around this call. If that block has ended, nothing is"
            " missed: pickle models after the block, and this is not said.",
            PrivacyWarning,
            about=("elsewhere", name, is_open),
        )
        return True
    return False


@contextmanager
def carrying(addresses: Iterable[Address]) -> Iterator[None]:
    """Within it what releases something is charged where these lead, if there is an open ledger.

    Of a model that was saved in a block, and is used long after that, nothing is left but a number.
    In a task of Dask the ledger may be open on a machine whose files are not here: PrivacyError.
    """
    found = dict.fromkeys(addresses)
    for address in [*found]:
        is_open = address.is_open()
        if is_open is None and in_task():
            address.payer()
        if not is_open:
            del found[address]
    one = next(iter(found), None) if len(found) < 2 else _AmbiguousLedger()
    token = _CARRIED.set(one)
    try:
        yield
    finally:
        _CARRIED.reset(token)


def payer_around() -> Payer | None:
    """Who pays by the code around the call; None where that does not say."""
    payer, run = _around()
    return payer if run == run_here() else None


def _around() -> tuple[Payer | None, Run | None]:
    """Who pays by the context variable, and the run of Dask that said so.

    What a block started, a cluster of Dask for one, keeps its context variables when it is left.
    """
    block = _AROUND.get()
    while block is not None and block.ended:
        block = block.around
    return (None, None) if block is None else (block.payer, block.run)


@contextmanager
def inside_ledger(
    delta: float,
    spend: Callable[[PrivacyGuarantee], Settle | None],
    *,
    lasting: bool = True,
    note: Note | None = None,
    left: Callable[[], str] | None = None,
) -> Iterator[None]:
    """Within it "auto" is `delta`, and `spend` is asked before anything is released."""
    with inside_payer(Payer(delta, spend, lasting=lasting, note=note, left=left)):
        yield


@contextmanager
def already_paid(
    delta: float,
    planned: Iterable[DpEvent],
    kind: tuple[str, str],
    note: Note | None = None,
) -> Iterator[None]:
    """Within it the `planned` events were charged before, as those of the trials of a search are.

    Each may be released once, or Gaussian mechanisms of no more mu in its place, and nothing
    else may. `kind` is their neighbouring relation and their unit: an event means another thing
    for another relation, or of rows than of persons. To be entered by whatever thread or process
    releases them. `note` is told what is around them.
    """
    left, turn = [event for event in planned if not is_free(event)], threading.Lock()

    def spend(guarantee: PrivacyGuarantee) -> None:
        event, relation = guarantee.event, guarantee.neighboring_relation
        if is_free(event):
            return
        with turn:
            fitting = [plan for plan in left if plan == event]
            cost = Cost.of(event, relation)
            fitting = fitting or [p for p in left if Cost.of(p, relation).covers(cost)]
            if not fitting or (relation, guarantee.unit) != kind:
                raise PrivacyError(_UNPLANNED)
            left.remove(fitting[0])

    with inside_payer(Payer(delta, spend, note=note)):
        yield


_UNPLANNED = (
    "this is inside of a fit that was charged as a whole (a trial of a private search, or the fit"
    " of a TabularPipeline), and was not planned as a part of it: nothing would count it. Fit or"
    " release it outside. Nothing was released."
)


def payer_of(address: Address | None = None) -> Payer | None:
    """Who pays for a release here, by what carries `address`; None outside of any ledger."""
    if _AROUND.get() is not None and (around := payer_around()) is not None:
        return around
    address = _CARRIED.get() if address is None else address
    found = None if address is None else address.payer()
    if found is not None or not (_OPEN or _ARRIVED):
        return found
    addresses = [] if _OPEN else _open_elsewhere()
    if len(_OPEN) + len(addresses) > 1:
        raise PrivacyError(_SEVERAL)
    return next(iter(_OPEN.values())) if _OPEN else addresses[0].payer() if addresses else None


def observe(kind: str, name: str, address: Address | None = None) -> None:
    """Tell whoever pays here, by what carries `address`, what was seen that no sum counts.

    The kind is one of ``dpsubspace.budget._filter.KINDS``, or "released". The name is that of a
    class or function, and never anything that depends on the rows.

    It refuses nothing. Where several ledgers are open and none is known to be meant, each is told.
    """
    try:
        payer = payer_of(address)
        told = [] if payer is None else [payer]
    except PrivacyError:  # closed, or one of several
        told = list(_OPEN.values())
    for payer in told:
        if payer.note is not None:
            payer.note(kind, name)


def address_for(address: Address | None = None, *, sent: bool = False) -> Address | None:
    """Address that a copy carries of what is here and carries `address`; None for none.

    What is `sent` to another process may be so by a task of Dask, and carries that.
    """
    runs: tuple[Run, ...] = ()
    if isinstance(address, _FromTask):
        runs, address = address.runs, address.ledger
    ledger = _ledger_for(address)
    if ledger is not None and ledger.lasting:
        return ledger
    runs = runs_carried(runs, sent=sent)
    return _FromTask(runs, ledger) if runs else ledger


def address_once_used(address: Address | None) -> Address | None:
    """What is left of an address after a release: the tasks that it comes from are marked then."""
    return address.ledger if isinstance(address, _FromTask) else address


def _ledger_for(address: Address | None) -> Address | None:
    """Address of the ledger that pays here, by what carries `address`; None for none."""
    payer, run = _around()
    here = run_here()
    if payer is not None and (here is None or here == run):  # a task pickles in other threads
        return payer.address
    if address is not None and not address.has_ended():
        return address
    known = [payer.address for payer in _OPEN.values()]
    if not known and _ARRIVED:
        known = _open_elsewhere()
    return _AmbiguousLedger() if len(known) > 1 else next(iter(known), None)


def about_to_release(guarantee: PrivacyGuarantee, address: Address | None = None) -> Settle | None:
    """Ask who pays for leave, if anybody does; the last thing before a release.

    Returns what takes the event of less than that, where a fit ends early and it may be given.
    """
    payer = payer_of(address)
    if DASK in sys.modules:
        spends = not is_free(guarantee.event) and guarantee.event != non_private()
        if spends and not (payer is not None and payer.lasting):
            only_once(address.runs if isinstance(address, _FromTask) else ())
    return None if payer is None else payer.spend(guarantee)
