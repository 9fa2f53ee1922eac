"""Who has to be asked before anything is released: the ledger that a fit runs in, if any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsubspace._accounting.guarantee import PrivacyGuarantee

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["about_to_release", "inside_ledger", "ledger_delta"]


@dataclass(frozen=True)
class _Ledger:
    """What runs inside a ledger has to know of it: its delta, and whom to ask for leave."""

    delta: float
    spend: Callable[[PrivacyGuarantee], None]


_LEDGER: ContextVar[_Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def inside_ledger(delta: float, spend: Callable[[PrivacyGuarantee], None]) -> Iterator[None]:
    """Within it "auto" is `delta`, and `spend` is asked before anything is released.

    What `spend` refuses, by raising, is not released. Other threads and processes are outside.
    """
    token = _LEDGER.set(_Ledger(delta, spend))
    try:
        yield
    finally:
        _LEDGER.reset(token)


def ledger_delta() -> float | None:
    """Delta of the ledger that this runs in; None outside of one."""
    ledger = _LEDGER.get()
    return None if ledger is None else ledger.delta


def about_to_release(guarantee: PrivacyGuarantee) -> None:
    """Ask the ledger that this runs in, if it runs in one; the last thing before a release."""
    ledger = _LEDGER.get()
    if ledger is not None:
        ledger.spend(guarantee)
