"""The accounts of a ledger: how they are charged, and the file that keeps them.

Every change of the accounts is a record: it is written first, into the journal if the ledger has
one, and then applied like the records of other processes. So the accounts in memory are those of
the file.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsubspace._core.accounting.cost import EQUAL
from dpsubspace._core.accounting.events import is_free, non_private
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import in_task
from dpsubspace.budget._accounts import SEEDED, ChargedEvents
from dpsubspace.budget._filter import MOST, BudgetSplit, Charge, Terms
from dpsubspace.budget._journal import (
    About,
    Journal,
    LedgerEntry,
    broken,
    checked_record,
    entry_from,
    entry_record,
    header,
    new_id,
    split_fields,
)
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class LedgerState(ChargedEvents):
    """The accounts of a ledger in memory or in a journal, and the methods that change them."""

    def __init__(self, terms: Terms):
        super().__init__(terms)
        self.created = now()
        self.failures = 0
        self.seen: Counter[tuple[str, str]] = Counter()  # kinds and names of classes
        self.sessions: set[str] = set()  # blocks of `with` that are open
        self.journal: Journal | None = None
        self._lock, self._depth, self._process = threading.RLock(), 0, os.getpid()
        self._started = self._process

    # Records ----------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context in which nobody else writes, after all records of others have been read."""
        if os.getpid() != self._process:  # a fork has a copy of the lock that may never be released
            self._lock, self._depth, self._process = threading.RLock(), 0, os.getpid()
        with self._lock:
            if self._depth or self.journal is None:
                yield
                return
            with self.journal.held():
                self._depth = 1
                try:
                    self._read_news()
                    yield
                finally:
                    self._depth = 0

    def keep(self, journal: Journal) -> None:
        """Continue in a new file. To be called while held."""
        journal.create(self.records())
        list(journal.news())
        self.journal = journal

    def note(self, kind: str, name: str, *, session: str | None = None) -> None:
        """Record an observation that no sum counts; not if a given `session` is closed."""
        with self.held():
            if session is not None and session not in self.sessions:
                return
            if self.seen[kind, name] < MOST:
                self.write(_sighting(kind, name, 1))

    def check_process(self) -> None:
        """Raise PrivacyError in a forked process if the ledger has no file."""
        if self.journal is None and os.getpid() != self._started:
            raise PrivacyError(
                "a forked process has a copy of the ledger, and what it charges would be lost."
                " Fit in the process that made the ledger, inside of `with ledger:`, or give the"
                " ledger a `path`."
            )

    def _read_news(self) -> None:
        assert self.journal is not None
        for record in self.journal.news():
            try:
                self._apply(checked_record(record))
            except (PrivacyError, ValueError, RecursionError, OverflowError) as error:
                raise broken(self.journal.path, str(error)) from error

    def write(self, record: dict[str, Any]) -> None:
        """Write a record to the journal, if there is one, and apply it. To be called while held."""
        record = {"id": new_id(), **record}
        checked = checked_record(record)
        if self.journal is not None and not self.journal.append(record):
            return
        self._apply(checked)

    def _apply(self, fields: dict[str, Any]) -> None:
        kind = fields["type"]
        if kind == "ledger":
            raise PrivacyError("there is a second first record")
        if kind == "open":
            self.sessions.add(fields["session"])
        elif kind == "close":
            self.sessions.discard(fields["session"])
        elif kind == "failure":
            self.failures += 1
        elif kind == "seen":
            self.seen[fields["kind"], fields["of"]] += fields["count"]
        elif kind == "charge":
            if any(entry.id == fields["entry"] for entry in self.entries):
                raise PrivacyError(f"the entry {fields['entry']!r} is charged twice")
            self.entries.append(entry_from(fields))
        else:
            place = self._place(fields["entry"])
            self.entries[place : place + 1] = [entry_from(fields)] if kind == "change" else []
        if "plan" in fields:
            self.split = self._split_from(fields["plan"])

    def _split_from(self, fields: dict[str, Any] | None) -> BudgetSplit | None:
        terms = self.terms
        if not fields:
            return None
        delta = terms.delta if fields["closed"] else terms.delta - terms.aside
        return BudgetSplit(terms.epsilon, delta, terms.slack, **fields)

    def _place(self, name: str) -> int:
        place = next((i for i, entry in enumerate(self.entries) if entry.id == name), None)
        if place is None:
            raise PrivacyError(f"there is no entry {name!r}")
        return place

    def records(self) -> list[dict[str, Any]]:
        fields = {**asdict(self.terms), "created": self.created, "failures": self.failures}
        first = {"id": new_id(), **header(fields)}
        rest = [entry_record("charge", entry, self.split) for entry in self.entries]
        rest += [_sighting(*key, count) for key, count in self.seen.items()]
        return [first, *({"id": new_id(), **record} for record in rest)]

    @classmethod
    def opened(cls, journal: Journal) -> LedgerState:
        """Return the accounts in a file, all of them checked; PrivacyError if a check fails."""
        if journal.path.is_dir():
            raise IsADirectoryError(
                f"`path` must be a file, and {str(journal.path)!r} is a folder."
            )
        if not journal.path.is_file():
            raise FileNotFoundError(f"there is no file {str(journal.path)!r}.")
        with journal.held():
            records = list(journal.news())
        try:
            if not records:
                raise PrivacyError("it is empty")
            fields = checked_record(records[0])
            if fields["type"] != "ledger":
                raise PrivacyError("it does not start with what the ledger is about")
            state = cls(
                Terms.checked(**{name: fields[name] for name in Terms.__dataclass_fields__})
            )
            state.created, state.failures = fields["created"], fields["failures"]
            for record in records[1:]:
                state._apply(checked_record(record))
            state._check_entries()
        except (PrivacyError, ValueError, RecursionError, OverflowError) as error:
            raise broken(journal.path, str(error)) from error
        state.journal = journal
        return state

    @classmethod
    def in_file(cls, path: Path, terms: Terms) -> LedgerState:
        """Return the accounts in a file; create the file with new accounts if there is none."""
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"`path` is in a folder that does not exist: {str(path)!r}.")
        journal = Journal(path)
        with journal.held():
            if not journal.path.exists():
                if in_task():
                    raise PrivacyError(_NEW_IN_TASK.format(path=str(path)))
                journal.create(cls(terms).records())
        state = cls.opened(journal)
        known = state.terms.given()
        for name, asked in terms.given().items():
            if name == "pure_epsilon" and asked == "auto":  # files of 0.1.0 have 0.0 by default
                continue
            if (found := known[name]) != asked:
                raise ValueError(
                    f"`{name}` of the ledger in {str(path)!r} is {found!r}, got {asked!r}. Open it"
                    " with PrivacyLedger.load, or give another `path` for other records."
                )
        return state

    def what_fits(self) -> str:
        """Return a sentence on what is left of the budget."""
        with self.held():
            return self._what_fits()

    # Charges ----------------------------------------------------------------------------------

    def add(
        self,
        label: str,
        event: DpEvent,
        about: About,
        parts: Iterable[tuple[str, DpEvent]] = (),
        *,
        force: bool = False,
        session: str | None = None,
    ) -> tuple[LedgerEntry, bool]:
        """Record `event`, or raise and record nothing; with `force` record it in any case.

        `session` is the id of a `with` block, which must be open. Returns the entry and whether it
        fits.
        """
        self.check_process()
        with self.held():
            if session is not None and session not in self.sessions:
                raise PrivacyError(CLOSED)
            spent = self.spent()
            split, charge, fits = self.best(event, spent)
            if not (fits or force):
                raise self._over(label, event, spent, parts)
            entry = LedgerEntry(
                id=new_id(),
                date=now(),
                label=label,
                event=event,
                epsilon=self.cost_of(event, self.terms.delta),
                neighboring_relation=self.terms.neighboring_relation,
                unit=self.terms.unit,
                charge=charge,
                **vars(about),
            )
            self.write({**entry_record("charge", entry, split), "id": entry.id})
            return self.entries[-1], fits

    def charge(
        self, guarantee: PrivacyGuarantee, label: str, session: str | None = None
    ) -> LedgerEntry | None:
        """Charge a fit or release before it runs, or raise; return None for a free one."""
        if is_free(guarantee.event):
            return None
        self.check_match(guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure)
        entry, _ = self.add(label, guarantee.event, About.of(guarantee), session=session)
        if not guarantee.secure:
            self.note("seed", guarantee.of or label, session=session)
        return entry

    def replace_entry(self, entry: LedgerEntry, event: DpEvent) -> LedgerEntry:
        """Charge `event` in place of an entry of which nothing has been released.

        Returns the new entry, or raises and changes nothing if that would exceed the budget.
        """
        with self.held():
            if event == entry.event:
                return entry
            spent, before = self.spent(but=entry), self.split
            try:
                if not spent.needs_delta:
                    self.split = None
                split, charge, fits = self.best(event, spent)
                if not fits:
                    raise self._over(entry.label, event, spent, ())
            finally:
                self.split = before
            if spent.needs_delta:  # the split was made with this epsilon, which must stay in it
                old = entry.charge
                if old.epsilon:
                    charge = replace(
                        charge,
                        epsilon=max(charge.epsilon, old.epsilon),
                        sum_epsilon=max(charge.sum_epsilon, old.sum_epsilon),
                    )
            return self._change(entry, event, charge, split)

    def settle(self, entry: LedgerEntry, event: DpEvent) -> LedgerEntry:
        """Charge an entry for `event`, the part of it that ran, if that is less; return the entry.

        An analyst who may end a fit, or change the rest of it, after seeing a part of it has
        made a choice: the split stays, and so does the charge, which holds for all that was
        planned. The charge is lowered only if its parts are charged one by one, by squares of mu
        that add up.
        """
        with self.held():
            old, new = (self._sq_mu(e) for e in (entry.event, event))
            charge = entry.charge
            if old is None or new is None or new > old * (1 + EQUAL):
                return entry
            if charge.slack or charge.sum_epsilon or event == entry.event:
                return entry
            lower = Charge(min(new, charge.sq_mu), sum_sq_mu=min(new, charge.sum_sq_mu))
            needed = lower.needs_delta or self.spent(but=entry).needs_delta
            return self._change(entry, event, lower, self.split if needed else None)

    def _change(
        self, entry: LedgerEntry, event: DpEvent, charge: Charge, split: BudgetSplit | None
    ) -> LedgerEntry:
        cost = self.cost_of(event, self.terms.delta)
        changed = replace(entry, event=event, charge=charge, epsilon=cost)
        self.write(entry_record("change", changed, split))
        return self.entries[self._place(entry.id)]

    def drop(self, entry: LedgerEntry) -> None:
        with self.held():
            left = self.spent(but=entry)
            if entry.charge.epsilon and left.needs_delta:
                return  # a split was made with its epsilon meanwhile
            split = self.split if left.needs_delta else None
            self.write({"type": "drop", "entry": entry.id, "plan": split_fields(split)})

    def check_failures(self) -> None:
        with self.held():
            failures = self.failures
        if failures >= self.terms.max_failures:
            raise PrivacyError(
                f"{failures} fits and calls have failed before they released anything, and a"
                " failure reveals something about the records. Find out what is wrong with them on"
                " other rows, or open the ledger with a larger `max_failures`."
            )

    def given_back(self, error: BaseException) -> bool:
        """Count a failure before any release; return False if there were too many already."""
        with self.held():
            most = self.terms.max_failures
            if self.failures >= most:
                error.add_note(
                    f"The ledger has given back {self.failures} failed fits, as many as"
                    " `max_failures` allows. This one stays charged as if it had run."
                )
                return False
            self.write({"type": "failure"})
            error.add_note(
                "Nothing was released, and the ledger was not charged"
                f" ({self.failures} of {most} such failures)."
            )
            return True

    def record(
        self,
        event: DpEvent,
        kind: tuple[str, str],
        secure: bool,
        label: str,
        known: bool,
        about: About,
    ) -> None:
        """Record a past release with its relation and unit; then raise an error if it is refused.

        `known` means that the caller knows of a seed, or that the budget is exceeded.
        """
        problem = None
        with self.held():
            before, split = self.spent(), self.split
            if not is_free(event):
                try:
                    self.check_match(*kind, secure=True)
                    self.best(event, before)
                    if not (secure or self.terms.allow_seeded):
                        event, problem = non_private(), None if known else SEEDED
                except PrivacyError as error:
                    event, problem = non_private(), str(error)
            _, fits = self.add(label, event, about, force=True)
            if not secure:
                self.note("seed", about.estimator or "a release")
        if problem is not None:
            raise PrivacyError(
                f"{problem} It has been released all the same, so {label or 'it'} is recorded as"
                " not private at all, and nothing is left of the budget."
            )
        if not (fits or known):
            raise PrivacyBudgetError(
                f"{label or 'this'} has been released already and is recorded."
                f" {self.sentence(event, split, before)} Nothing more can be charged."
                " already_released=True records it without this error; run() and fit() reserve"
                " what they need before anything is released."
            )


CLOSED = (
    "the ledger that was open where this was cloned or pickled has been closed, and a fit would not"
    " be counted. Fit it inside of `with PrivacyLedger(...)`, or make a new estimator from its"
    " parameters. Nothing was released or charged."
)


_NEW_IN_TASK = (
    "there is no file {path!r} on the machine of this worker of Dask, and a task must not start a"
    " new ledger: one that exists elsewhere would not be charged, and another run of the task would"
    " start from nothing again. Make the ledger before, PrivacyLedger(..., path=...) in the process"
    " of your Client, with a `path` on a drive that all workers share. Nothing was released or"
    " charged."
)


def _sighting(kind: str, name: str, count: int) -> dict[str, Any]:
    return {"type": "seen", "kind": kind, "of": name, "count": count}
