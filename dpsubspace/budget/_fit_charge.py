"""One fit inside a ledger: each release is compared with the plan before it happens."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from dpsubspace._core.accounting.events import composed, is_free, non_private
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import Payer, open_here
from dpsubspace.budget._journal import About, Journal
from dpsubspace.budget._ledger_state import LedgerState
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# Addresses --------------------------------------------------------------------------------------
# The way to a ledger from another process, which clones and pickles of estimators carry.

# Id of this process: its number alone is not unique across containers and machines.
_IMPORTED = uuid.uuid4().hex


def this_process() -> str:
    return f"{_IMPORTED}-{os.getpid()}"


@dataclass(frozen=True)
class LedgerAddress:
    """The path of the file of a ledger, and the id of one of its blocks."""

    path: str  # File of the ledger while the block is open
    session: str  # Id of the block
    process: str = field(default_factory=this_process)  # Name of the process that opened it
    # False if a task of Dask opened the block for a ledger in memory: the file ends with the task.
    lasting: bool = True

    def payer(self) -> Payer | None:
        """Return the payer of the ledger, through its file if the block was opened elsewhere."""
        here = open_here(self.session)
        if here is not None or self.process == this_process():
            return here
        if not os.path.isfile(self.path):
            raise PrivacyError(_NO_FILE.format(path=self.path))
        return payer_for(_opened_elsewhere(self), self.session, self)

    def has_ended(self) -> bool:
        """Return whether the block was opened by this process and is closed now."""
        return self.process == this_process() and open_here(self.session) is None

    def is_open(self) -> bool | None:
        """Return whether the block is open; None if its file is not on this machine."""
        here = open_here(self.session) is not None
        if here or self.process == this_process():
            return here
        if not os.path.isfile(self.path):
            return None
        state = _opened_elsewhere(self)
        with state.held():
            return self.session in state.sessions


@lru_cache(maxsize=8)
def _opened_elsewhere(address: LedgerAddress) -> LedgerState:
    return LedgerState.opened(Journal(address.path))


def payer_for(
    state: LedgerState,
    session: str,
    address: LedgerAddress,
    ledger: str = "",
    paid: list[PrivacyGuarantee] | None = None,
) -> Payer:
    """Return a payer that charges `state` for everything inside a block, and notes it in `paid`."""

    def spend(guarantee: PrivacyGuarantee) -> Callable[[DpEvent], None] | None:
        entry = state.charge(guarantee, guarantee.of, session)
        if paid is not None:
            paid.append(guarantee)
        if entry is None:
            return None

        def settle(event: DpEvent) -> None:
            state.settle(entry, event)

        return settle

    note = partial(state.note, session=session)
    left = state.what_fits
    return Payer(state.terms.delta, spend, address, address.lasting, note, left, ledger)


_NO_FILE = (
    "the ledger that was open where this was cloned or pickled has been closed, or its file"
    " {path!r} is not on this machine, and a fit would not be counted. For workers on other"
    " machines open the ledger with a `path` on a drive that all of them share. Else fit inside of"
    " `with PrivacyLedger(...)`, or make a new estimator from its parameters. Nothing was"
    " released or charged."
)


# One fit ----------------------------------------------------------------------------------------


class FitCharge:
    """One fit inside a ledger: its plan, and its releases so far.

    Before its first release a fit may be charged anew, as any other. After it, whoever saw that
    release may have influenced the later releases, but releases that are charged together must
    have been fixed together. So the plan stays charged as a whole, and a release beyond the plan
    is an entry of its own: to release all that was planned, and then the chosen release, would
    reveal no less.
    """

    def __init__(
        self,
        state: LedgerState,
        label: str,
        plans: list[tuple[str, DpEvent]],
        about: About,
        *,
        unseen: bool,
    ):
        self._state, self._label, self._about, self._unseen = state, label, about, unseen
        self._left = [plan for _, plan in plans if not is_free(plan)]
        self._released: list[DpEvent] = []  # all releases seen here
        self._ran: list[DpEvent] = []  # releases of the plan, or in place of planned ones
        self._entry, _ = state.add(label, composed(self._left), about, plans)

    def spend(self, guarantee: PrivacyGuarantee) -> Callable[[DpEvent], None] | None:
        """Permit a release, or raise: a release that differs from the plan must fit as well."""
        state, event = self._state, guarantee.event
        state.check_process()
        if is_free(event):
            return None
        state.check_match(guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure)
        if not (self._released or self._unseen) and event not in self._left:
            # Nothing was released yet: this event replaces the one that was planned next.
            left = self._left[1:]
            self._entry = state.replace_entry(self._entry, composed([event, *left]))
            self._left = [event, *left]
        self._count(event)
        if not guarantee.secure:
            state.note("seed", guarantee.of)
        self._released.append(copied(event))

        def settle(less: DpEvent) -> None:
            """Count only `less`, the part of this release that ran before the fit failed."""
            for counted in (self._released, self._ran):
                if event in counted:
                    counted[counted.index(event)] = copied(less)

        return settle

    def _count(self, event: DpEvent, *, force: bool = False) -> bool:
        """Count `event` as planned, or charge it as an extra entry; with `force` in any case.

        Returns whether it fits.
        """
        state = self._state
        fitting = [plan for plan in self._left if plan == event]
        fitting += [plan for plan in self._left if state.covers(plan, event)]
        if not fitting:
            return state.add(self._label, event, self._about, force=force)[1]
        self._left.remove(fitting[0])
        self._ran.append(copied(event))
        return True

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Charge a fit that fails for its releases, or for its whole plan if they are not seen."""
        try:
            yield
        except BaseException as error:
            state = self._state
            if self._released or (self._unseen and self._left):
                error.add_note(
                    "The ledger stays charged for what this fit may have released before it failed."
                )
            if self._released:
                left = self._left if self._unseen else []
                state.settle(self._entry, composed([*self._ran, *left]))
            elif not self._unseen and state.given_back(error):
                state.drop(self._entry)
            raise

    def finish(self, guarantees: list[PrivacyGuarantee]) -> None:
        """Charge all releases: those seen here, and others that the parts report.

        The others ran elsewhere, or earlier and were kept in a cache.
        """
        state, problem, fits = self._state, None, True
        known = list(self._released)
        for guarantee in guarantees:
            event = guarantee.event
            if is_free(event):
                continue
            if event in known:
                known.remove(event)
                continue
            try:
                state.check_match(
                    guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure
                )
            except PrivacyError as error:
                event, problem = non_private(), error
            fits = self._count(event, force=True) and fits
        self._entry = state.settle(self._entry, composed(self._ran))
        if problem is not None:
            raise problem
        if not fits:
            raise PrivacyBudgetError(
                f"{self._label} cost more than planned, and more than the budget:"
                f" {state.sentence(self._entry.event, state.split, state.spent(but=self._entry))}"
                " All of it is recorded."
            )


def copied(event: DpEvent) -> DpEvent:
    from dpsubspace._core.accounting.accountants import event_from, plain

    return event_from(plain(event))
