"""The charges of a ledger, their total, and the charges that still fit into the budget.

Nothing here changes the charges: :class:`~dpsubspace.budget._ledger_state.LedgerState` does that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpsubspace._core.accounting.cost import (
    EQUAL,
    LEAST_SLACK,
    Cost,
    Price,
    gaussian_epsilon,
    response_epsilon,
)
from dpsubspace._core.accounting.events import is_free, rounded
from dpsubspace._core.fits.call import seeding_ensemble
from dpsubspace.budget._filter import BudgetSplit, Charge, Sums, Terms
from dpsubspace.budget._journal import LedgerEntry, readable
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# Share of the remaining slack that one charge uses.
_SLACK_SHARE = 1 / 100

# Largest number of charges that are recounted to see if they would fit with another split.
_REPLAYED = 100


class ChargedEvents:
    """Charges against one budget, its `terms`."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self.entries: list[LedgerEntry] = []
        self.split: BudgetSplit | None = None

    def spent(self, but: LedgerEntry | None = None) -> Charge:
        gone = but and but.id
        return Charge.total(entry.charge for entry in self.entries if entry.id != gone)

    def cost_of(self, event: DpEvent, delta: float) -> float:
        return self._cost(event).epsilon(delta)

    def _cost(self, event: DpEvent) -> Cost:
        return Cost.of(event, self.terms.neighboring_relation)

    def remaining(self) -> float:
        spent, terms = self.spent(), self.terms
        if self.split is None:
            return max(0.0, terms.epsilon - max(spent.epsilon, terms.pure_epsilon))
        parts = [(self.split.sq_mu, spent.sq_mu, self.split)]
        parts += [(sums.sq_mu, spent.sum_sq_mu, sums) for sums in self._sums(self.split)]
        left = [
            whole - used
            for whole, used, account in parts
            if whole - used > 1e-12 * whole and account.takes(Charge(), spent)
        ]
        return gaussian_epsilon(max(left) * (1 - 1e-12), terms.delta) if left else 0.0

    def remaining_pure(self) -> float:
        """Return the largest epsilon that fits for one release without a delta.

        Such a release is charged by its epsilon or by its mu.
        """
        spent, split = self.spent(), self.split
        if split is None:
            return max(0.0, self.terms.epsilon - spent.epsilon)
        parts = [(split.epsilon, spent.epsilon, split)]
        parts += [(sums.epsilon, spent.sum_epsilon, sums) for sums in self._sums(split)]
        left = [whole - used for whole, used, one in parts if one.takes(Charge(), spent)]
        sq_mu = split.sq_mu - spent.sq_mu
        if sq_mu > 1e-12 * split.sq_mu and split.takes(Charge(), spent):
            left.append(response_epsilon(sq_mu * (1 - 1e-12)))
        return max(0.0, *left, 0.0)

    def _open_split(self, spent: Charge, charge: Charge) -> BudgetSplit:
        # The epsilon set apart is for all releases without a delta, earlier and later ones.
        return BudgetSplit(
            self.terms.epsilon,
            self.terms.delta - self.terms.aside,
            self.terms.slack,
            max(spent.epsilon + charge.epsilon, self.terms.pure_epsilon),
            first=charge.sum_sq_mu,
            before=spent.epsilon,
        )

    def _sums(self, split: BudgetSplit | None) -> list[Sums]:
        return [] if split is None else Sums.of_split(split, self.terms.delta)

    def _price(self, cost: Cost, spent: Charge) -> Price:
        left = self.terms.slack - spent.slack
        share = max(LEAST_SLACK, left * _SLACK_SHARE)
        return cost.price(share if cost.n_slacks and cost.n_slacks * share <= left else 0.0)

    def _offers(self, cost: Cost, spent: Charge) -> list[tuple[BudgetSplit | None, Charge]]:
        """Return splits and charges by which this cost could be recorded, the best first."""
        price = self._price(cost, spent)
        if self.split is not None:
            return self._cheapest([(self.split, c) for c in Charge.choices(price)], spent)
        if not price.needs_delta:
            by_epsilon, *by_mu = Charge.choices(price)
            opened = [(self._open_split(spent, charge), charge) for charge in by_mu]
            return self._cheapest([(None, by_epsilon), *opened], spent)
        choices = sorted(
            ((self._open_split(spent, c), c) for c in Charge.choices(price)),
            key=lambda offer: offer[1].sq_mu - offer[0].sq_mu,  # the most room left comes first
        )
        return list(choices)

    def _cheapest(
        self, offers: list[tuple[BudgetSplit | None, Charge]], spent: Charge
    ) -> list[tuple[BudgetSplit | None, Charge]]:
        """Sort `offers` by the total epsilon of all charges: nearly always there is only one."""
        if len(offers) == 1:
            return offers
        return sorted(offers, key=lambda o: Charge.total([spent, o[1]]).at(self.terms.delta))

    def best(self, event: DpEvent, spent: Charge) -> tuple[BudgetSplit | None, Charge, bool]:
        """Return the split and charge to record `event` beside `spent`, and whether that fits."""
        try:
            cost = self._cost(event)
            alone, offers = cost.epsilon(self.terms.delta), self._offers(cost, spent)
        except (ValueError, OverflowError, MemoryError, RecursionError) as error:
            raise PrivacyError(f"{type(event).__name__} cannot be counted: {error}") from error
        for takes in (self._takes, self._summed):
            for split, charge in offers:
                if takes(split, charge, spent):
                    return split, charge, True
        split, charge = offers[0]
        if self.split is None:
            # A first fit whose own cost is within the budget may use the whole part of the budget
            # that is for charges with a delta.
            whole = self._open_split(spent, Charge())
            if whole.covers(whole.epsilon + alone):
                left = max(whole.epsilon, self.terms.epsilon - alone)
                whole = BudgetSplit(
                    self.terms.epsilon, self.terms.delta, self.terms.slack, left, closed=True
                )
                return whole, min((c for _, c in offers), key=lambda c: c.epsilon), True
        return split, charge, False

    def _takes(self, split: BudgetSplit | None, charge: Charge, spent: Charge) -> bool:
        if split is None:  # no charge needs a delta: any split may follow
            return spent.epsilon + charge.epsilon <= self.terms.epsilon * (1 + 1e-12)
        return split.takes(charge, spent)

    def _summed(self, split: BudgetSplit | None, charge: Charge, spent: Charge) -> bool:
        return any(sums.takes(charge, spent) for sums in self._sums(split))

    def _sq_mu(self, event: DpEvent) -> float | None:
        """Return the square of mu of full-batch Gaussian mechanisms; None for other events."""
        return self._cost(event).sq_mu()

    def covers(self, planned: DpEvent, event: DpEvent) -> bool:
        """Return whether `event` may run in place of `planned` at no cost.

        If so, it may whatever was released before.
        """
        return self._cost(planned).covers(self._cost(event))

    def epsilon_of(self, entries: Sequence[LedgerEntry], delta: float) -> float:
        """Return the epsilon of several entries together, at `delta`."""
        if not entries:
            return 0.0
        # Charges without a delta need no accountant of their own, which would be slow.
        alone = [
            self.cost_of(entry.event, delta) if entry.charge.needs_delta else 0.0
            for entry in entries
        ]
        charges = [entry.charge for entry in entries]
        found = _total(charges, alone, delta)
        if not self.terms.aside:
            return found
        return min(found, _total([charge.summed for charge in charges], alone, delta))

    # Messages and checks ----------------------------------------------------------------------

    def _over(
        self, label: str, event: DpEvent, spent: Charge, parts: Iterable[tuple[str, DpEvent]]
    ) -> PrivacyBudgetError:
        message = [
            f"{label or 'this'} does not fit into the budget. {self._what_fits()}"
            f"{self._what_to_type(event, spent)}",
            self.sentence(event, self.split, spent),
        ]
        parts = [(name, part) for name, part in parts if not is_free(part)]
        if len(parts) > 1:
            prices = [f"{name} {self.cost_of(e, self.terms.delta):.4g}" for name, e in parts]
            message.append(f"By themselves its steps cost {', '.join(prices)}.")
        if self.entries:
            last = self.entries[-1]
            kept = "an earlier charge" if len(self.entries) == 1 else "earlier charges, the last"
            message.append(
                f"Nothing was recorded for this one, and the ledger keeps {kept} of"
                f" {last.label or 'no name'} ({readable(last.date)})."
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
        either = "either for" if len(words) > 1 else "for"
        return f"What is left is enough {either} {', or for '.join(words)}{end}."

    def what_is_left(self) -> str:
        """Return what is left of the budget for fits and for scores, as a ledger prints it."""
        kinds = [("fit", self.remaining()), ("score", self.remaining_pure())]
        left = [
            f"up to epsilon {rounded(epsilon, math.floor)} for one more {kind}"
            for kind, epsilon in kinds
            if epsilon > 1e-9
        ]
        return ", or ".join(left) or "nothing"

    def sentence(self, event: DpEvent, split: BudgetSplit | None, spent: Charge) -> str:
        """Return why `event` does not fit beside `spent`, with enough digits to see it."""
        text = f"It costs epsilon={self.cost_of(event, self.terms.delta):.4g} by itself"
        price = self._price(self._cost(event), spent)
        if price.sq_mu == math.inf:
            return "It is not private."
        pure = price.epsilon > 0 and price.sq_mu == 0
        if split is not None and split.closed and pure:
            return (
                f"{text}, which is more than the first fit has left of the budget of"
                f" {self.terms.epsilon:.4g}. Use a larger `epsilon` for the ledger, or a smaller"
                " one for the first fit."
            )
        if split is not None and split.closed:
            rest = " What is left is for releases without a delta, such as scores."
            return (
                f"{text}, and the first fit took all that the budget of {self.terms.epsilon:.4g}"
                f" has for fits.{rest if self.remaining_pure() > 1e-9 else ''}"
            )
        if split is None:
            split = self._open_split(spent, Charge())
        totals = [Charge.total([spent, charge]) for charge in Charge.choices(price)]
        if split.covers(split.cost(totals[-1])):  # the part for such releases is too small
            rooms = [room for room in self._sums(split) if room.takes(Charge(), spent)]
            most = max([split.epsilon, *(room.epsilon for room in rooms)])
            text += (
                f", and no more than epsilon={rounded(most, math.floor)} was set aside for such"
                " releases."
            )
        else:
            found, most = _apart(split.cost(totals[-1]), self.terms.epsilon)
            if pure:
                text += ", which is more than is left for such releases. If charged like a fit, it"
            else:
                text += ", and"
            text += (
                f" would bring the total to epsilon={found} at delta={split.delta:.4g}"
                f"{_SHARE if self.terms.aside else ''}, over the budget of {most}."
            )
        if self._cost(event).n_slacks and not price.slack:
            text += (
                " (What batches save is not counted: the part of delta that is set aside for"
                f" that, slack={self.terms.slack:.3g}, is used up.)"
            )
        return text

    def _what_to_type(self, event: DpEvent, spent: Charge) -> str:
        price = self._price(self._cost(event), spent)
        totals = [Charge.total([spent, charge]) for charge in Charge.choices(price)]
        summed, slack = totals[-1].summed, self.terms.slack

        def fits(total: Charge) -> bool:
            whole = replace(total, slack=max(total.slack, slack)).at(self.terms.delta)
            return whole <= self.terms.epsilon * (1 + EQUAL)

        if self.terms.aside and any(fits(total) for total in totals if not total.epsilon):
            return (
                " With PrivacyLedger(..., pure_epsilon=0) from the start it would have fitted: all"
                " of delta is for fits then."
            )
        needed = rounded(summed.epsilon, math.ceil)
        if summed.epsilon > spent.sum_epsilon and (fits(summed) or self._fits_with(needed, event)):
            return (
                f" With PrivacyLedger(..., pure_epsilon={needed}) from the start it would have"
                " fitted: releases without a delta and private searches cost little if a part of"
                " epsilon is set aside for them, or if they come before everything else."
            )
        return ""

    def _fits_with(self, pure_epsilon: str, event: DpEvent) -> bool:
        """Return whether all charges and `event` would fit if `pure_epsilon` had been set apart."""
        if not 0 <= float(pure_epsilon) < self.terms.epsilon or len(self.entries) > _REPLAYED:
            return False
        other = ChargedEvents(replace(self.terms, pure_epsilon=float(pure_epsilon), aside=0.0))
        spent = Charge()
        for each in [*(entry.event for entry in self.entries), event]:
            split, charge, fits = other.best(each, spent)
            if not fits:
                return False
            other.split, spent = other.split or split, Charge.total([spent, charge])
        return True

    def check_match(self, relation: str, unit: str, *, secure: bool) -> None:
        ours, theirs = (self.terms.neighboring_relation, self.terms.unit), (relation, unit)
        if theirs != ours:
            raise PrivacyError(
                f"the ledger is for guarantees {_kind(*ours)}, and this fit or release has one"
                f" {_kind(*theirs)}: the two cannot be added up. {_way_out(ours, theirs)}"
            )
        if not secure and not self.terms.allow_seeded:
            raise PrivacyError(seeding_ensemble() or SEEDED)

    def _check_entries(self) -> None:
        for entry in self.entries:
            event, charge = entry.event, entry.charge
            cost = self._cost(event)
            price = cost.price(charge.slack / max(cost.n_slacks, 1))
            # Accountants of another version may differ a little for events that are not Gaussian.
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
            if not entry.epsilon >= self.cost_of(event, self.terms.delta) * (1 - 1e-3):
                raise PrivacyError(f"{entry.label!r} says that it costs less than it does")
            kind = (entry.neighboring_relation, entry.unit)
            if kind != (self.terms.neighboring_relation, self.terms.unit):
                raise PrivacyError(f"{entry.label!r} is for another relation or unit")
        first = next((i for i, e in enumerate(self.entries) if e.charge.needs_delta), None)
        if (first is None) != (self.split is None):
            raise PrivacyError("it has a split without a charge that needs one, or none with one")
        if self.split is None or first is None:
            return
        event, charge = self.entries[first].event, self.entries[first].charge
        # The split must have at least the epsilon charged before it, or else nothing would be
        # left. More than `high` is not allowed.
        before = sum(entry.charge.epsilon for entry in self.entries[:first])
        before = max(before, self.split.before)  # a changed entry may be charged by mu
        # Files of 0.1.0 may have both: the charged epsilon, and `pure_epsilon` beside it.
        high = before + charge.epsilon + self.terms.pure_epsilon
        if self.split.closed:
            high = max(
                high, self.terms.epsilon - self.cost_of(event, self.terms.delta) * (1 - 1e-3)
            )
        if not self.terms.pure_epsilon <= self.split.epsilon <= high * (1 + 1e-9):
            raise PrivacyError("the split sets apart another epsilon than its charges did")


_SHARE = " (the part of the ledger's delta that this account has)"

SEEDED = (
    "a fit with a `random_state` cannot be counted: another fit with the same seed cancels its"
    " noise. Leave random_state=None, or open the ledger with allow_seeded=True for a"
    " demonstration."
)


def _total(charges: list[Charge], alone: list[float], delta: float) -> float:
    """Return the epsilon of charges; `alone` has the cost of each by its own accountant.

    The cost in `alone` may be lower, and is used if a single charge needs a delta.
    """
    spent = Charge.total(charges)
    # A single charge that needs a delta, beside others without, is counted by its own accountant.
    others = [
        spent.epsilon - charge.epsilon + own
        for charge, own in zip(charges, alone, strict=True)
        if charge.needs_delta
    ]
    if not others:
        return spent.epsilon
    return max(others) if len(others) == 1 else max(*others, spent.at(delta))


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Format both numbers with as many digits as it takes to distinguish them."""
    digits = 4
    while f"{value:.{digits}g}" == f"{limit:.{digits}g}" and digits < 17:
        digits += 1
    return f"{value:.{digits}g}", f"{limit:.{digits}g}"


def _kind(relation: str, unit: str) -> str:
    return f"per {unit} ({relation})"


def _way_out(ours: tuple[str, str], theirs: tuple[str, str]) -> str:
    if ours[0] != theirs[0]:
        return f"Set neighboring_relation={ours[0]!r}, or open another ledger for {theirs[0]}."
    if ours[1] == "person":
        return "Pass `groups`, one entry for each row that says whose it is."
    return (
        'What is given `groups` needs a ledger of its own, PrivacyLedger(..., unit="person"), to'
        " which everything else from these records is charged as well."
    )
