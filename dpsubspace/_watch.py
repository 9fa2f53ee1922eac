"""One fit inside a ledger: what was planned is compared with what runs, before it is released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpsubspace._privacy import PrivacyGuarantee, composed, is_free, non_private
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Watch", "copied"]


class Watch:
    """One fit inside a ledger: what was planned, and what it has released."""

    def __init__(self, ledger: Any, label: str, plans: list[tuple[str, DpEvent]]):
        self._ledger = ledger
        self._left = [plan for _, plan in plans if not is_free(plan)]
        self._released: list[DpEvent] = []
        self._entry, _ = ledger._add(label, composed(self._left), plans)

    def spend(self, guarantee: PrivacyGuarantee) -> None:
        """Give leave for a release, or raise: what differs from the plan must fit as well."""
        ledger, event = self._ledger, guarantee.event
        ledger._check_process()
        if is_free(event):
            return
        ledger._check_match(guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure)
        left = list(self._left)
        if left:  # another event than was planned takes the place of the next one
            left.pop(left.index(event) if event in left else 0)
        whole = composed([*self._released, event, *left])
        self._entry, _ = ledger._restate(self._entry, whole, released=bool(self._released))
        self._released.append(copied(event))
        self._left = left

    @contextmanager
    def failures(self, *, unseen: bool) -> Iterator[None]:
        """Charge a fit that fails for what it has released, and for all where that is unseen."""
        try:
            yield
        except BaseException as error:
            ledger = self._ledger
            if self._released or (unseen and self._left):
                error.add_note(
                    "The ledger stays charged for what this fit may have released before it failed."
                )
            if self._released:
                ran = composed([*self._released, *(self._left if unseen else [])])
                ledger._restate(self._entry, ran, released=True, force=True)
            elif not unseen and ledger._given_back(error):
                ledger._drop(self._entry)
            raise

    def finish(self, guarantees: list[PrivacyGuarantee]) -> None:
        """Charge what ran, seen or told by the parts: elsewhere, or earlier and kept in a cache."""
        ledger, problem = self._ledger, None
        unseen = []
        known = list(self._released)
        for guarantee in guarantees:
            event = guarantee.event
            if is_free(event):
                continue
            if event in known:
                known.remove(event)
                continue
            unseen.append(copied(event))
            try:
                ledger._check_match(
                    guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure
                )
            except PrivacyError as error:
                unseen[-1], problem = non_private(), error
        ran = composed([*self._released, *unseen])
        self._entry, fits = ledger._restate(self._entry, ran, released=True, force=True)
        if problem is not None:
            raise problem
        if not fits:
            raise PrivacyBudgetError(
                f"{self._entry[0]} cost more than planned, and more than the budget:"
                f" epsilon={ledger.epsilon():.4g} of {ledger.budget:.4g} is spent and recorded."
            )


def copied(event: DpEvent) -> DpEvent:
    """Equal event of plain numbers: a composition holds a list, which could change."""
    from dpsubspace._events import event_from, plain

    return event_from(plain(event))
