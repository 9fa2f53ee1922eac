"""The way to a ledger from another process: what clones and pickles of estimators carry."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache

from dpsubspace._accounting.events import is_free
from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._accounting.permission import Payer, open_here
from dpsubspace._workflow.book import CLOSED, About, Book
from dpsubspace._workflow.journal import Journal
from dpsubspace.exceptions import PrivacyError

__all__ = ["LedgerAddress", "payer_for"]


@dataclass(frozen=True)
class LedgerAddress:
    """Where the file of a ledger is, and which of its blocks is meant.

    Parameters
    ----------
    path : str
        File that keeps it while the block is open.
    session : str
        Id of the block.
    process : int
        Process that opened it.
    """

    path: str
    session: str
    process: int = field(default_factory=os.getpid)

    def payer(self) -> Payer | None:
        """Ledger that it leads to, by its file where it was opened elsewhere."""
        here = open_here(self.session)
        if here is not None or os.getpid() == self.process:
            return here
        if not os.path.isfile(self.path):
            raise PrivacyError(CLOSED)
        return _opened_elsewhere(self)


@lru_cache(maxsize=8)
def _opened_elsewhere(address: LedgerAddress) -> Payer:
    return payer_for(Book.opened(Journal(address.path)), address.session, address)


def payer_for(book: Book, session: str, address: LedgerAddress) -> Payer:
    """Payer that charges `book` for what runs inside of a block."""

    def spend(guarantee: PrivacyGuarantee) -> None:
        if is_free(guarantee.event):
            return
        book.check_match(guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure)
        about = About(guarantee.of, guarantee.n_samples, guarantee.n_features)
        book.add(guarantee.of, guarantee.event, about, session=session)

    return Payer(book.terms.delta, spend, address)
