"""The way to a ledger from another process: what clones and pickles of estimators carry."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from dpsubspace._accounting.events import is_free
from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._accounting.permission import Payer, open_here
from dpsubspace._workflow.book import About, Book
from dpsubspace._workflow.journal import Journal
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

__all__ = ["LedgerAddress", "payer_for"]

# Of the process that imported this: containers and machines give one number to many processes.
_IMPORTED = uuid.uuid4().hex


def this_process() -> str:
    """Name of this process, which no other has, its forks included."""
    return f"{_IMPORTED}-{os.getpid()}"


@dataclass(frozen=True)
class LedgerAddress:
    """Where the file of a ledger is, and which of its blocks is meant.

    Parameters
    ----------
    path : str
        File that keeps it while the block is open.
    session : str
        Id of the block.
    process : str
        Name of the process that opened it.
    lasting : bool, default=True
        False for the file of a block that a task of Dask opened for a ledger in memory: it goes
        with the task.
    """

    path: str
    session: str
    process: str = field(default_factory=this_process)
    lasting: bool = True

    def payer(self) -> Payer | None:
        """Ledger that it leads to, by its file where it was opened elsewhere."""
        here = open_here(self.session)
        if here is not None or self.process == this_process():
            return here
        if not os.path.isfile(self.path):
            raise PrivacyError(_NO_FILE.format(path=self.path))
        return _opened_elsewhere(self)


@lru_cache(maxsize=8)
def _opened_elsewhere(address: LedgerAddress) -> Payer:
    return payer_for(Book.opened(Journal(address.path)), address.session, address)


def payer_for(book: Book, session: str, address: LedgerAddress) -> Payer:
    """Payer that charges `book` for what runs inside of a block."""
    note = partial(book.note, session=session)

    def spend(guarantee: PrivacyGuarantee) -> Callable[[DpEvent], None] | None:
        if is_free(guarantee.event):
            return None
        book.check_match(guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure)
        about = About(guarantee.of, guarantee.n_samples, guarantee.n_features)
        entry, _ = book.add(guarantee.of, guarantee.event, about, session=session)
        if not guarantee.secure:
            note("seed", guarantee.of)

        def settle(event: DpEvent) -> None:
            book.settle(entry, event)

        return settle

    return Payer(book.terms.delta, spend, address, address.lasting, note)


_NO_FILE = (
    "the ledger that was open where this was cloned or pickled has been closed, or its file"
    " {path!r} is not on this machine, and a fit would not be counted. For workers on other"
    " machines open the ledger with a `path` on a drive that all of them share. Else fit inside of"
    " `with PrivacyLedger(...)`, or make a new estimator from its parameters. Nothing was"
    " released or charged."
)
