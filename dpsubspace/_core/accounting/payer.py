"""Find the ledger that a release is charged to, and ask it for permission.

Design note. A fit finds the ledger that it runs in. Neither estimators nor callers pass a ledger
on, since scikit-learn clones estimators and sends them to threads and processes of its own. So
there are three ways to find a ledger, and the nearest counts: the code around the fit (``with
ledger``, ``ledger.fit``), which a context variable holds; the *address* that a clone or a pickle
got where it was made, which leads to the ledger from another process; and the only ledger that is
open in this process, for threads, which do not see context variables of others. Functions use the
address of the models that they are given. In a worker process the only ledger is the one whose
address estimators have brought there, as long as it is open. Where several ledgers are open and
neither of the first two ways identifies one, nothing is released.

A worker process cannot always be distinguished from a process that somebody started to use a saved
model. In such a process, and where the file of a ledger is not on the machine, an estimator that
carries the address of that ledger may use it to pay for its own releases only. Other releases are
not charged then, and a warning says so (`warn_of_ledgers_elsewhere`), unless the ledger is known to
be closed.

The first way counts only in the task of Dask that entered the block, or outside of any task if the
block was entered outside: Dask hands context variables from one task to the next. And it ends with
its block: a thread, a coroutine or a callback that keeps the context variables of a block finds the
ledger around that block.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import weakref
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
# Tasks that Dask runs again: the run of a task, and whether another run has released before.
#
# Design note. Dask runs a task again by itself where its worker died, where its result was lost,
# and where a retry was requested. Whatever the earlier run had released by then is spent. A ledger
# that outlives the worker charges every run by itself, and no run has to be refused. Without such a
# ledger, a run leaves a mark at the scheduler before its first release, in the metadata of its
# task, which are deleted when the scheduler forgets the task. Each run first writes its own mark
# and then reads the marks of all runs, so of two simultaneous runs at least one finds the other and
# is refused: never do both spend.
#
# A task may start others, as joblib does for an ensemble in a search. When the task runs again, it
# starts them under new names. So whatever is sent to them carries the runs of the tasks that it
# comes from, and these runs are marked and looked up as well.
#
# Dask starts a task in a copy of the context variables of one that makes room for it. So a context
# variable alone does not identify the task; the state of the thread does.


@dataclass(frozen=True)
class Run:
    key: Any  # Name of the task, the same when Dask runs it again; None where it is not known
    id: str  # Unique to the run


_UNKNOWN = Run(None, "")

# Where this module is not loaded, nothing belongs to a task.
DASK = "distributed.worker"

# For actions of a task outside of its own thread: joblib pickles in the thread of the event loop.
_LAST: ContextVar[Run | None] = ContextVar("run", default=None)


def in_task() -> bool:
    """Whether this code belongs to a task of Dask, or to an actor."""
    return _worker() is not None


def run_here() -> Run | None:
    """Run of the Dask task, or of the call of an actor, in this thread; None outside of any."""
    worker = _worker()
    if worker is None or (key := _of_thread("key")) is None:
        return None
    # A worker never runs a task twice at the same time, and no two workers have one id.
    run = f"{worker.id} {_of_thread('start_time')!r}"
    return Run(f"{key} {run}" if _of_thread("actor") else key, run)


def remember_run() -> None:
    """Remember the run for other threads of this task; call it before the task starts them."""
    if DASK in sys.modules and (run := run_here()) is not None:
        _LAST.set(run)


def runs_carried(carried: tuple[Run, ...], *, sent: bool) -> tuple[Run, ...]:
    """Runs that a copy of an object carries if the object carries `carried`.

    An object that a task sends carries the run of the task too. A scheduler, which is not a task,
    receives what is sent and sends it on unchanged. A clone outside of tasks carries no runs: the
    result of the task has arrived, whatever becomes of the task.
    """
    if not in_task():
        return carried if sent else ()
    remember_run()
    return tuple(dict.fromkeys([*carried, *([_LAST.get() or _UNKNOWN] if sent else [])]))


def only_once(carried: tuple[Run, ...] = ()) -> None:
    """Mark this run of a Dask task; PrivacyError if another run of it may have released.

    Called before a release that is not charged to a ledger that outlives the worker.
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
    """Mark a run as one that releases; PrivacyError where there is another one."""
    from distributed import get_client

    client: Any = get_client()
    place = [run.key, __name__]
    if client.get_metadata(place, {}).get(run.id):
        return  # marked by an earlier release of this run
    client.set_metadata([*place, run.id], False)
    if len(client.get_metadata(place)) > 1:
        raise PrivacyError(_AGAIN.format(key=run.key))
    client.set_metadata([*place, run.id], True)


def _worker() -> Any:
    """Worker of Dask whose task or actor this code belongs to, or None."""
    if DASK not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _of_thread(name: str) -> Any:
    """Attribute that Dask stores for the task, or the call of an actor, in this thread."""
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


# Payers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Payer:
    """Ledger that gives permission for releases, as code inside of it has to know it."""

    # Value of ``delta="auto"``; None for that outside of ledgers.
    delta: float | None
    # Takes the guarantee of the coming release, and raises where that must not be released. It may
    # return a callable. Where a fit fails before it has released everything, the callable takes the
    # event of what was released in the end.
    spend: Callable[[PrivacyGuarantee], Settle | None]
    # Leads to the same ledger from another process, where that is possible.
    address: Address | None = None
    # Whether its charges are still known where Dask runs a task again: False for a ledger that a
    # task opened by itself and that is not kept in a file.
    lasting: bool = True
    # Takes a kind and the name of a class: uses other than releases, for reports. None where the
    # code around the release was noted already.
    note: Note | None = None
    # Returns the rest of the budget, for errors; None where only planned releases may be charged.
    left: Callable[[], str] | None = None
    ledger: str = ""  # Tells ledgers of this process apart; "" where it is not known


class Address(Protocol):
    """Picklable way to a ledger: estimators that are sent elsewhere carry one."""

    @property
    def lasting(self) -> bool:
        """Whether its charges are known where Dask runs a task again; see :class:`Payer`."""
        ...

    def payer(self) -> Payer | None:
        """Payer at the address; PrivacyError where it cannot pay.

        None where the ledger was closed in the process that had opened it.
        """
        ...

    def is_open(self) -> bool | None:
        """Whether the ledger is open; None where it cannot be reached from this machine."""
        ...

    def has_ended(self) -> bool:
        """Whether the ledger was opened in this process and has ended: copies need no address."""
        ...


@dataclass(frozen=True)
class _AmbiguousLedger:
    """Address of an object that was pickled where several ledgers were open."""

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
    """Address of an object that a task of Dask sends to the tasks that it starts."""

    runs: tuple[Run, ...]  # Runs of that task, and of those that started it
    ledger: Address | None  # Address of a ledger that a task opened by itself, if there is one
    lasting = False

    def payer(self) -> Payer | None:
        return None if self.ledger is None else self.ledger.payer()

    def is_open(self) -> bool | None:
        return False if self.ledger is None else self.ledger.is_open()

    def has_ended(self) -> bool:
        return False


@dataclass(eq=False)
class _Block:
    """Code block whose releases a payer pays for."""

    payer: Payer  # Pays for releases in the block
    run: Run | None  # Run of Dask that entered it
    around: _Block | None  # Enclosing block
    # Whether the block has been left: copies of the context, which nobody tracks, see that here.
    ended: bool = False


_AROUND: ContextVar[_Block | None] = ContextVar("payer", default=None)
_OPEN: dict[str, Payer] = {}  # of this process, by the block that opened them
_ARRIVED: dict[Address, None] = {}  # of other processes, by the addresses of estimators
# Addresses that may have nothing to do with this process, or that cannot be reached from it.
_HEARD_OF: dict[Address, None] = {}
_CARRIED: ContextVar[Address | None] = ContextVar(
    "carried", default=None
)  # from the arguments of a call


@contextmanager
def inside_payer(payer: Payer) -> Iterator[None]:
    """Ask `payer` before any release in this block; other threads are outside of it."""
    block = _Block(payer, run_here(), _AROUND.get())
    _AROUND.set(block)
    try:
        yield
    finally:  # no reset by a token, which belongs to one context: a notebook may leave in another
        block.ended = True
        _AROUND.set(block.around)


def open_to_all(session: str, payer: Payer) -> None:
    """Let `payer` pay for releases in any thread of this process that has no other payer."""
    _OPEN[session] = payer


def close_to_all(session: str) -> None:
    _OPEN.pop(session, None)


def open_here(session: str) -> Payer | None:
    """Payer that was opened under this name here, or in the process that this was forked from."""
    return _OPEN.get(session)


def in_worker() -> bool:
    """Whether this is a process that another one started as its worker, or a task of Dask."""
    return multiprocessing.parent_process() is not None or in_task()


def bring(address: Address) -> None:
    """Register the ledger of an estimator that has come to this process; see the module."""
    found = address_once_used(address)
    if found is not None:
        known = _ARRIVED if in_worker() else _HEARD_OF
        known[found] = None


def _open_elsewhere() -> list[Address]:
    """Open ledgers of other processes that are known here."""
    for address in [*_ARRIVED]:
        if not (is_open := address.is_open()):
            _ARRIVED.pop(address, None)
            if is_open is None:
                _HEARD_OF[address] = None
    return [*_ARRIVED]


# Ledgers that were made in this process and have not been used yet.
_UNUSED: weakref.WeakSet[Any] = weakref.WeakSet()


def made(ledger: Any) -> None:
    """Remember that a ledger was made, until :func:`used`."""
    _UNUSED.add(ledger)


def used(ledger: Any) -> None:
    _UNUSED.discard(ledger)


def warn_of_ledgers_elsewhere(name: str) -> bool:
    """Warn that `name` is about to release without a charge to a ledger that may be meant.

    To be called where there is no payer. It warns once for each ledger. Returns whether it warned.
    """
    if _UNUSED:
        _UNUSED.clear()
        warn(
            f"{name} is not charged to the PrivacyLedger that was made before, which counts what"
            " happens inside of its block: write `with PrivacyLedger(...) as ledger:` and put fits"
            " and scores under it, or use ledger.fit(...). What has run outside of the block can be"
            " added by ledger.charge(model.privacy_, already_released=True).",
            PrivacyWarning,
            about=("unused", name),
        )
        return True
    for address in [*_HEARD_OF]:
        del _HEARD_OF[address]  # once per ledger: the warning is not repeated at every fit
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
    """Charge releases in this block to the ledger of `addresses`, if one is open.

    Once a block has ended for long, all that a model saved in it carries of its ledger is a number.
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
    """Payer of the code around the call; None where there is none."""
    payer, run = _around()
    return payer if run == run_here() else None


def _around() -> tuple[Payer | None, Run | None]:
    """Payer by the context variable, and the run of Dask that set it.

    Whatever a block started, such as a cluster of Dask, keeps its context variables after the
    block.
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
    """Use `delta` for "auto" in this block, and ask `spend` before any release."""
    with inside_payer(Payer(delta, spend, lasting=lasting, note=note, left=left)):
        yield


@contextmanager
def nothing_charged() -> Iterator[None]:
    """Charge nothing in this block, which uses public rows alone: no ledger is told of it.

    ``delta="auto"`` is what it is outside of the block.
    """
    payer = payer_of()
    delta = None if payer is None else payer.delta
    with inside_payer(Payer(delta, spend=lambda guarantee: None)):
        yield


@contextmanager
def already_paid(
    delta: float,
    planned: Iterable[DpEvent],
    kind: tuple[str, str],
    note: Note | None = None,
) -> Iterator[None]:
    """Allow only `planned` events in this block, which are charged already (such as search trials).

    Each of them may be released once, or Gaussian mechanisms of at most the same mu in its place,
    and nothing else. `kind` is their neighbouring relation and their unit: an event has another
    meaning for another relation, or for rows than for persons. To be entered by the thread or
    process that releases them. `note` receives the names of the code around them.
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
    """Payer of a release here, by an object with `address`; None outside of any ledger."""
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
    """Report to the payer, for an object with `address`, a use of the records that no sum counts.

    The kind is one of ``dpsubspace.budget._filter.KINDS``, or "released". The name is that of a
    class or function, and never anything that depends on the rows.

    It refuses nothing. Where several ledgers are open and it is not known which is meant, it
    reports to all of them.
    """
    try:
        payer = payer_of(address)
        told = [] if payer is None else [payer]
    except PrivacyError:  # the ledger is closed, or one of several
        told = list(_OPEN.values())
    for payer in told:
        if payer.note is not None:
            payer.note(kind, name)


def address_for(address: Address | None = None, *, sent: bool = False) -> Address | None:
    """Address for a copy, made here, of an object with `address`; None for none.

    An object that is `sent` to another process may be sent by a task of Dask, and carries its run.
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
    """Rest of an address after a release, by which the runs of its tasks have been marked."""
    return address.ledger if isinstance(address, _FromTask) else address


def _ledger_for(address: Address | None) -> Address | None:
    """Address of the ledger that pays here, for an object with `address`; None for none."""
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
    """Ask the payer for permission, if there is one; the last step before a release.

    Returns a callable for the event of a smaller release where a fit may end early.
    """
    payer = payer_of(address)
    if DASK in sys.modules:
        spends = not is_free(guarantee.event) and guarantee.event != non_private()
        if spends and not (payer is not None and payer.lasting):
            only_once(address.runs if isinstance(address, _FromTask) else ())
    return None if payer is None else payer.spend(guarantee)
