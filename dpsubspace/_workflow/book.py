"""The accounts of a ledger: what is charged, what that adds up to, and what still fits.

Everything that changes them is a record: it is written first, into the journal of a ledger that has
one, and then read like those of other processes. So what a ledger knows is what its file says.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from dpsubspace._accounting.cost import (
    EQUAL,
    LEAST_SLACK,
    Cost,
    Price,
    gaussian_epsilon,
)
from dpsubspace._accounting.events import RELATION_IN_WORDS, is_free, rounded
from dpsubspace._estimators.surroundings import seeding_ensemble
from dpsubspace._workflow.journal import (
    Journal,
    LedgerEntry,
    broken,
    checked_record,
    entry_from,
    entry_record,
    header,
    new_id,
    plan_fields,
)
from dpsubspace._workflow.plan import MOST, SHARES, Charge, Plan, Sums, auto_slack
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# Part of what is left of the slack that one charge takes.
_SLACK_SHARE = 1 / 100


@dataclass(frozen=True)
class Terms:
    """What a ledger is about, and never changes; see :class:`~dpsubspace.PrivacyLedger`."""

    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str
    allow_seeded: bool
    slack: float
    pure_epsilon: float
    max_failures: int
    aside: float = 0.0  # part of delta of the sums beside the plan

    @classmethod
    def checked(cls, **fields: Any) -> Terms:
        """Terms in plain numbers; ValueError where one is out of its range."""
        check_number("epsilon", fields["epsilon"], math.inf)
        check_number("delta", fields["delta"], 1)
        epsilon, delta = float(fields["epsilon"]), float(fields["delta"])
        relation, slack = fields["neighboring_relation"], fields["slack"]
        if relation not in RELATION_IN_WORDS:
            raise ValueError(
                f"`neighboring_relation` must be one of {sorted(RELATION_IN_WORDS)},"
                f" got {relation!r}."
            )
        if not isinstance(fields["unit"], str):
            raise ValueError(f"`unit` must be a str, got {fields['unit']!r}.")
        if not isinstance(fields["allow_seeded"], bool):
            raise ValueError(
                f"`allow_seeded` must be True or False, got {fields['allow_seeded']!r}."
            )
        if slack != "auto":
            check_number("slack", slack, delta, include_zero=True)
        if automatic := fields["pure_epsilon"] == "auto":
            fields["pure_epsilon"] = 0.0
        check_number("pure_epsilon", fields["pure_epsilon"], epsilon, include_zero=True)
        most: Any = fields["max_failures"]
        whole = isinstance(most, Integral) and not isinstance(most, bool)
        if not (whole and int(most) >= 0):
            raise ValueError(f"`max_failures` must be an int of at least 0, got {most!r}.")
        slack = auto_slack(delta) if slack == "auto" else float(slack)
        aside = sum(SHARES) * (delta - slack) if automatic else float(fields.get("aside", 0.0))
        check_number("aside", aside, delta - slack, include_zero=True)
        plain = {
            "epsilon": epsilon,
            "delta": delta,
            "slack": slack,
            "aside": aside,
            "pure_epsilon": float(fields["pure_epsilon"]),
            "max_failures": int(most),
        }
        return cls(**{**fields, **plain})

    def given(self) -> dict[str, Any]:
        """Parameters that make such terms."""
        fields = asdict(self)
        if fields.pop("aside"):
            fields["pure_epsilon"] = "auto"
        return fields


@dataclass(frozen=True)
class About:
    """What is known of a release beside its event."""

    estimator: str = ""
    n_samples: int | None = None
    n_features: int | None = None


def now() -> str:
    """Date and time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Book:
    """Charges against one budget, its `terms`, in memory or in a journal."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self.created = now()
        self.entries: list[LedgerEntry] = []
        self.plan: Plan | None = None
        self.failures = 0
        self.seen: Counter[tuple[str, str]] = Counter()  # kinds and names of classes
        self.sessions: set[str] = set()  # blocks of `with` that are open
        self.journal: Journal | None = None
        self._lock, self._depth, self._process = threading.RLock(), 0, os.getpid()
        self._started = self._process

    # Records ----------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within it nobody else writes, and what others have written is known."""
        if os.getpid() != self._process:  # a fork has a lock that nobody will ever open
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
        """Go on in a new file. To be called while held."""
        journal.create(self.records())
        list(journal.news())
        self.journal = journal

    def note(self, kind: str, name: str, *, session: str | None = None) -> None:
        """Record what was seen that no sum counts, where `session` is open if one is given."""
        with self.held():
            if session is not None and session not in self.sessions:
                return
            if self.seen[kind, name] < MOST:
                self.write(_sighting(kind, name, 1))

    def check_process(self) -> None:
        """PrivacyError in a fork of the process of a ledger that no file keeps."""
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
        """Make a record true, and sync it where there is a journal. To be called while held."""
        record = {"id": new_id(), **record}
        checked = checked_record(record)
        if self.journal is not None and not self.journal.append(record):
            return
        self._apply(checked)

    def _apply(self, fields: dict[str, Any]) -> None:
        """Change what is known as a record says."""
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
            self.plan = self._plan_from(fields["plan"])

    def _plan_from(self, fields: dict[str, Any] | None) -> Plan | None:
        terms = self.terms
        if not fields:
            return None
        delta = terms.delta if fields["closed"] else terms.delta - terms.aside
        return Plan(terms.epsilon, delta, terms.slack, **fields)

    def _place(self, name: str) -> int:
        place = next((i for i, entry in enumerate(self.entries) if entry.id == name), None)
        if place is None:
            raise PrivacyError(f"there is no entry {name!r}")
        return place

    def records(self) -> list[dict[str, Any]]:
        """Records of a new file that says what is known now."""
        fields = {**asdict(self.terms), "created": self.created, "failures": self.failures}
        first = {"id": new_id(), **header(fields)}
        rest = [entry_record("charge", entry, self.plan) for entry in self.entries]
        rest += [_sighting(*key, count) for key, count in self.seen.items()]
        return [first, *({"id": new_id(), **record} for record in rest)]

    @classmethod
    def opened(cls, journal: Journal) -> Book:
        """What a file says, all of it checked; PrivacyError where it cannot be believed."""
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
            book = cls(Terms.checked(**{name: fields[name] for name in Terms.__dataclass_fields__}))
            book.created, book.failures = fields["created"], fields["failures"]
            for record in records[1:]:
                book._apply(checked_record(record))
            book._check_entries()
        except (PrivacyError, ValueError, RecursionError, OverflowError) as error:
            raise broken(journal.path, str(error)) from error
        book.journal = journal
        return book

    # What is charged ----------------------------------------------------------------------------

    def spent(self, but: LedgerEntry | None = None) -> Charge:
        """All charges together, without that of the entry `but`."""
        gone = but and but.id
        return Charge.total(entry.charge for entry in self.entries if entry.id != gone)

    def alone(self, event: DpEvent, delta: float) -> float:
        """Epsilon of `event` by its own accountant."""
        return self._cost(event).epsilon(delta)

    def _cost(self, event: DpEvent) -> Cost:
        """What `event` costs under the relation of the ledger."""
        return Cost.of(event, self.terms.neighboring_relation)

    def remaining(self) -> float:
        """Largest epsilon that one more full-batch fit can have."""
        spent, terms = self.spent(), self.terms
        if self.plan is None:
            return max(0.0, terms.epsilon - spent.epsilon - terms.pure_epsilon)
        parts = [(self.plan.sq_mu, spent.sq_mu, self.plan)]
        parts += [(sums.sq_mu, spent.sum_sq_mu, sums) for sums in self._sums(self.plan)]
        left = [
            whole - used
            for whole, used, account in parts
            if whole - used > 1e-12 * whole and account.takes(Charge(), spent)
        ]
        return gaussian_epsilon(max(left) * (1 - 1e-12), terms.delta) if left else 0.0

    def remaining_pure(self) -> float:
        """Largest epsilon that one more release without a delta can have."""
        spent, plan = self.spent(), self.plan
        if plan is None:
            return max(0.0, self.terms.epsilon - spent.epsilon)
        parts = [(plan.epsilon, spent.epsilon, plan)]
        parts += [(sums.epsilon, spent.sum_epsilon, sums) for sums in self._sums(plan)]
        return max(0.0, *(e - used for e, used, one in parts if one.takes(Charge(), spent)), 0.0)

    def _open_plan(self, spent: Charge, charge: Charge) -> Plan:
        """Plan that `charge` fixes, with what is meant for later releases without a delta."""
        return Plan(
            self.terms.epsilon,
            self.terms.delta - self.terms.aside,
            self.terms.slack,
            spent.epsilon + charge.epsilon + self.terms.pure_epsilon,
            first=charge.sum_sq_mu,
            before=spent.epsilon,
        )

    def _sums(self, plan: Plan | None) -> list[Sums]:
        """Accounts beside a plan."""
        return [] if plan is None else Sums.beside(plan, self.terms.delta)

    def _price(self, event: DpEvent, spent: Charge) -> Price:
        """Price of `event` beside what is `spent`, with a share of the slack that is left."""
        cost, left = self._cost(event), self.terms.slack - spent.slack
        share = max(LEAST_SLACK, left * _SLACK_SHARE)
        return cost.price(share if cost.n_slacks and cost.n_slacks * share <= left else 0.0)

    def _offers(self, event: DpEvent, spent: Charge) -> list[tuple[Plan | None, Charge]]:
        """Plans and charges under which `event` could be recorded, the best first."""
        price = self._price(event, spent)
        if self.plan is not None:
            offers = [(self.plan, charge) for charge in Charge.choices(price)]
            return sorted(offers, key=lambda o: Charge.total([spent, o[1]]).at(self.terms.delta))
        if not price.needs_delta:
            by_epsilon, *by_mu = Charge.choices(price)
            offers = [(None, by_epsilon), *((self._open_plan(spent, c), c) for c in by_mu)]
            return sorted(offers, key=lambda o: Charge.total([spent, o[1]]).at(self.terms.delta))
        choices = sorted(
            ((self._open_plan(spent, c), c) for c in Charge.choices(price)),
            key=lambda offer: offer[1].sq_mu - offer[0].sq_mu,  # so that most is left
        )
        return list(choices)

    def best(self, event: DpEvent, spent: Charge) -> tuple[Plan | None, Charge, bool]:
        """How to record `event` beside what is `spent`, and whether that fits."""
        try:
            alone, offers = self.alone(event, self.terms.delta), self._offers(event, spent)
        except (ValueError, OverflowError, MemoryError, RecursionError) as error:
            raise PrivacyError(f"{type(event).__name__} cannot be counted: {error}") from error
        for takes in (self._takes, self._summed):
            for plan, charge in offers:
                if takes(plan, charge, spent):
                    return plan, charge, True
        plan, charge = offers[0]
        if self.plan is None:
            # A first fit whose own cost is within the budget may have all that needs a delta.
            whole = self._open_plan(spent, Charge())
            if whole.covers(whole.epsilon + alone):
                left = max(whole.epsilon, self.terms.epsilon - alone)
                whole = Plan(
                    self.terms.epsilon, self.terms.delta, self.terms.slack, left, closed=True
                )
                return whole, min((c for _, c in offers), key=lambda c: c.epsilon), True
        return plan, charge, False

    def _takes(self, plan: Plan | None, charge: Charge, spent: Charge) -> bool:
        if plan is None:  # nothing that needs a delta: any plan may follow
            return spent.epsilon + charge.epsilon <= self.terms.epsilon * (1 + 1e-12)
        return plan.takes(charge, spent)

    def _summed(self, plan: Plan | None, charge: Charge, spent: Charge) -> bool:
        return any(sums.takes(charge, spent) for sums in self._sums(plan))

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

        `session` is that of a `with` block, which must be open. Returns the entry and whether it
        fits.
        """
        self.check_process()
        with self.held():
            if session is not None and session not in self.sessions:
                raise PrivacyError(CLOSED)
            spent = self.spent()
            plan, charge, fits = self.best(event, spent)
            if not (fits or force):
                raise self._over(label, event, spent, parts)
            entry = LedgerEntry(
                id=new_id(),
                date=now(),
                label=label,
                event=event,
                epsilon=self.alone(event, self.terms.delta),
                neighboring_relation=self.terms.neighboring_relation,
                unit=self.terms.unit,
                charge=charge,
                **asdict(about),
            )
            self.write({**entry_record("charge", entry, plan), "id": entry.id})
            return self.entries[-1], fits

    def restate(self, entry: LedgerEntry, event: DpEvent) -> LedgerEntry:
        """Charge `event` in place of an entry of which nothing has been released.

        Returns the new entry, or raises and changes nothing if that is over.
        """
        with self.held():
            if event == entry.event:
                return entry
            spent, before = self.spent(but=entry), self.plan
            try:
                if not spent.needs_delta:
                    self.plan = None
                plan, charge, fits = self.best(event, spent)
                if not fits:
                    raise self._over(entry.label, event, spent, ())
            finally:
                self.plan = before
            if spent.needs_delta:  # the epsilon that a plan was made with stays in it
                old = entry.charge
                if old.epsilon:
                    charge = replace(
                        charge,
                        epsilon=max(charge.epsilon, old.epsilon),
                        sum_epsilon=max(charge.sum_epsilon, old.sum_epsilon),
                    )
            return self._change(entry, event, charge, plan)

    def settle(self, entry: LedgerEntry, event: DpEvent) -> LedgerEntry:
        """Charge an entry for `event`, what ran of it, where that is less; return what it is then.

        Who may end a fit, or change what is left of it, after a look at a part of it has
        made a choice: the plan stays, and so does the charge, which holds for all that was
        planned. It is lowered where parts are charged one by one, by squares of mu that add up.
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
            return self._change(entry, event, lower, self.plan if needed else None)

    def _change(
        self, entry: LedgerEntry, event: DpEvent, charge: Charge, plan: Plan | None
    ) -> LedgerEntry:
        cost = self.alone(event, self.terms.delta)
        changed = replace(entry, event=event, charge=charge, epsilon=cost)
        self.write(entry_record("change", changed, plan))
        return self.entries[self._place(entry.id)]

    def drop(self, entry: LedgerEntry) -> None:
        """Give back an entry of which nothing was released."""
        with self.held():
            left = self.spent(but=entry)
            if entry.charge.epsilon and left.needs_delta:
                return  # a plan was made with its epsilon in the meantime
            plan = self.plan if left.needs_delta else None
            self.write({"type": "drop", "entry": entry.id, "plan": plan_fields(plan)})

    def given_back(self, error: BaseException) -> bool:
        """Count a failure before any release; False where there were too many already."""
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

    def _sq_mu(self, event: DpEvent) -> float | None:
        """Square of mu of full-batch Gaussian mechanisms; None for anything else."""
        return self._cost(event).sq_mu()

    def covers(self, planned: DpEvent, event: DpEvent) -> bool:
        """Whether `event` may run in place of `planned` at no cost, whatever was seen before."""
        return self._cost(planned).covers(self._cost(event))

    # Messages and checks ----------------------------------------------------------------------

    def _over(
        self, label: str, event: DpEvent, spent: Charge, parts: Iterable[tuple[str, DpEvent]]
    ) -> PrivacyBudgetError:
        message = [
            f"{label or 'this'} does not fit into the budget. {self._what_fits()}"
            f"{self._what_to_type(event, spent)}",
            self.sentence(event, self.plan, spent),
        ]
        parts = [(name, part) for name, part in parts if not is_free(part)]
        if len(parts) > 1:
            prices = [f"{name} {self.alone(e, self.terms.delta):.4g}" for name, e in parts]
            message.append(f"By themselves its steps cost {', '.join(prices)}.")
        if self.entries:
            last = self.entries[-1]
            kept = "an earlier charge" if len(self.entries) == 1 else "earlier charges, the last"
            message.append(
                f"Nothing was recorded for this one, and the ledger keeps {kept} of"
                f" {last.label or 'no name'} ({last.date})."
            )
        else:
            message.append("Nothing was recorded.")
        return PrivacyBudgetError(" ".join(message))

    def _what_fits(self) -> str:
        fit, pure = self.remaining(), self.remaining_pure()
        kinds = [(f"a full-batch fit of epsilon={{}} at delta={self.terms.delta:.3g}", fit)]
        kinds.append(("a release without a delta, such as a score, of epsilon={}", pure))
        words = [text.format(rounded(left, math.floor)) for text, left in kinds if left > 1e-9]
        if not words:
            return "Nothing is left."
        end = "" if fit <= 1e-9 else ": see remaining()"
        return f"What is left is enough for {', or for '.join(words)}{end}."

    def sentence(self, event: DpEvent, plan: Plan | None, spent: Charge) -> str:
        """Why `event` does not fit beside what is `spent`, with digits enough to see it."""
        text = f"It costs epsilon={self.alone(event, self.terms.delta):.4g} by itself,"
        price = self._price(event, spent)
        if price.sq_mu == math.inf:
            return "It is not private."
        if plan is not None and plan.closed:
            return (
                f"{text} and the first fit took all that the budget of {self.terms.epsilon:.4g} has"
                " for fits. The rest is for releases without a delta, such as scores."
            )
        if plan is None:
            plan = self._open_plan(spent, Charge())
        totals = [Charge.total([spent, charge]) for charge in Charge.choices(price)]
        if plan.covers(plan.cost(totals[-1])):  # what is short is the part for it
            rooms = [room for room in self._sums(plan) if room.takes(Charge(), spent)]
            most = max([plan.epsilon, *(room.epsilon for room in rooms)])
            text += f" and no more than epsilon={rounded(most, math.floor)} was set apart."
        else:
            found, most = _apart(plan.cost(totals[-1]), self.terms.epsilon)
            text += (
                f" and would bring the total to epsilon={found} at delta={plan.delta:.4g},"
                f" over the budget of {most}."
            )
        if self._cost(event).n_slacks and not price.slack:
            text += (
                " (What batches save is not counted: the part of delta that is set apart for"
                f" that, slack={self.terms.slack:.3g}, is used up.)"
            )
        return text

    def _what_to_type(self, event: DpEvent, spent: Charge) -> str:
        """Terms of a ledger that would have taken all of it, where some would."""
        price = self._price(event, spent)
        totals = [Charge.total([spent, charge]) for charge in Charge.choices(price)]
        summed, slack = totals[-1].summed, self.terms.slack
        apart = summed.epsilon - (self.plan.before if self.plan else 0.0)

        def fits(total: Charge) -> bool:
            whole = replace(total, slack=max(total.slack, slack)).at(self.terms.delta)
            return whole <= self.terms.epsilon * (1 + EQUAL)

        if self.terms.aside and any(fits(total) for total in totals if not total.epsilon):
            return (
                " With PrivacyLedger(..., pure_epsilon=0) from the start it would have fitted: all"
                " of delta is for fits then."
            )
        if summed.epsilon > spent.sum_epsilon and fits(summed):
            return (
                " With PrivacyLedger(..., pure_epsilon="
                f"{rounded(apart, math.ceil)}) from the start it would have fitted:"
                " releases without a delta and private searches are cheap where a part of epsilon"
                " is set apart for them, or where they come before everything else."
            )
        return ""

    def check_match(self, relation: str, unit: str, *, secure: bool) -> None:
        """Raise PrivacyError unless such a fit can be added to this ledger."""
        ours, theirs = (self.terms.neighboring_relation, self.terms.unit), (relation, unit)
        if theirs != ours:
            raise PrivacyError(
                f"the ledger counts {' per '.join(ours)}, and this fit or release is"
                f" {' per '.join(theirs)}: they do not add up. {_way_out(ours, theirs)}"
            )
        if not secure and not self.terms.allow_seeded:
            raise PrivacyError(seeding_ensemble() or SEEDED)

    def _check_entries(self) -> None:
        """Raise PrivacyError where the numbers of a loaded ledger contradict each other."""
        for entry in self.entries:
            event, charge = entry.event, entry.charge
            cost = self._cost(event)
            price = cost.price(charge.slack / max(cost.n_slacks, 1))
            # Accountants of another version may differ a little in what is not Gaussian.
            least = 1 - (1e-3 if charge.slack else 1e-9)
            if not any(
                charge.sq_mu >= c.sq_mu * least
                and charge.slack >= c.slack * (1 - 1e-9)
                and charge.epsilon >= c.epsilon * (1 - 1e-12)
                and (charge.sum_sq_mu >= c.sum_sq_mu * least or not self.terms.aside)
                and (charge.sum_epsilon >= c.sum_epsilon * (1 - 1e-12) or not self.terms.aside)
                for c in Charge.choices(price)
            ):
                raise PrivacyError(f"{entry.label!r} is charged less than what it costs")
            if not entry.epsilon >= self.alone(event, self.terms.delta) * (1 - 1e-3):
                raise PrivacyError(f"{entry.label!r} says that it costs less than it does")
            kind = (entry.neighboring_relation, entry.unit)
            if kind != (self.terms.neighboring_relation, self.terms.unit):
                raise PrivacyError(f"{entry.label!r} is for another relation or unit")
        first = next((i for i, e in enumerate(self.entries) if e.charge.needs_delta), None)
        if (first is None) != (self.plan is None):
            raise PrivacyError("it has a plan without a charge that needs one, or none with one")
        if self.plan is None or first is None:
            return
        event, charge = self.entries[first].event, self.entries[first].charge
        # Less than what was charged before would leave nothing at all; more may not be.
        before = sum(entry.charge.epsilon for entry in self.entries[:first])
        before = max(before, self.plan.before)  # an entry that was restated may be charged by mu
        high = before + charge.epsilon + self.terms.pure_epsilon
        if self.plan.closed:
            high = max(high, self.terms.epsilon - self.alone(event, self.terms.delta) * (1 - 1e-3))
        if not self.terms.pure_epsilon <= self.plan.epsilon <= high * (1 + 1e-9):
            raise PrivacyError("the plan sets apart another epsilon than its charges did")


CLOSED = (
    "the ledger that was open where this was cloned or pickled has been closed, and a fit would not"
    " be counted. Fit it inside of `with PrivacyLedger(...)`, or make a new estimator from its"
    " parameters. Nothing was released or charged."
)

SEEDED = (
    "a fit with a `random_state` cannot be counted: another fit with the same seed cancels its"
    " noise. Leave random_state=None, or open the ledger with allow_seeded=True for a"
    " demonstration."
)


def _sighting(kind: str, name: str, count: int) -> dict[str, Any]:
    return {"type": "seen", "kind": kind, "of": name, "count": count}


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Both with as many digits as it takes to tell them apart."""
    digits = 4
    while f"{value:.{digits}g}" == f"{limit:.{digits}g}" and digits < 17:
        digits += 1
    return f"{value:.{digits}g}", f"{limit:.{digits}g}"


def _way_out(ours: tuple[str, str], theirs: tuple[str, str]) -> str:
    """What to do where the (relation, unit) of a ledger and of a fit differ."""
    if ours[0] != theirs[0]:
        return f"Set neighboring_relation={ours[0]!r}, or open another ledger for {theirs[0]}."
    if ours[1] == "person":
        return "Pass `groups`, one entry for each row that says whose it is."
    return (
        'What is given `groups` needs a ledger of its own, PrivacyLedger(..., unit="person"), to'
        " which everything else from these records is charged as well."
    )


def check_number(name: str, value: Any, most: float, *, include_zero: bool = False) -> None:
    """ValueError unless `value` is a number from 0, or above it, to less than `most`."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    least = 0.0 if include_zero else math.nextafter(0.0, 1.0)
    if not (number and least <= float(value) < most):  # False for NaN
        opening = "[" if include_zero else "("
        raise ValueError(f"`{name}` must be a number in {opening}0, {most}), got {value!r}.")
