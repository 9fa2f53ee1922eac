"""Events of releases as objects of ``dp_accounting``, and in English.

A release is *described* by an event. The event is read as its mechanisms (``accountants``), and the
mechanisms are *counted* elsewhere (``cost``). ``dp_accounting`` is imported inside functions: the
import is not free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dpsubspace._core.accounting.library import library

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._core.accounting.accountants import Mechanism

NEIGHBORING_RELATIONS = ("zero_out", "replace_one")

RELATION_IN_WORDS = {
    "zero_out": "one record is used or not; the number of records is public",
    "replace_one": "one record is replaced by any other; the number of records is public",
}

# The same relations where a record is all rows of one person, or of another unit.
RELATION_OF_PERSONS = {
    "zero_out": "all rows of one {unit} are used or not; the number of {unit}s is public",
    "replace_one": "all rows of one {unit} are replaced by any other rows, however many; the number"
    " of {unit}s is public",
}


# Events -------------------------------------------------------------------------------------


def gaussian(noise_multiplier: float, count: int = 1) -> DpEvent:
    dpa = library()
    event = dpa.GaussianDpEvent(float(noise_multiplier))
    return event if count == 1 else dpa.SelfComposedDpEvent(event, int(count))


def sampled_gaussian(noise_multiplier: float, sample_rate: float, count: int) -> DpEvent:
    """Event of `count` Gaussian releases, each on a Poisson batch (all records at rate 1)."""
    dpa = library()
    if sample_rate == 1:
        return gaussian(noise_multiplier, count)
    step = dpa.GaussianDpEvent(float(noise_multiplier))
    event = dpa.PoissonSampledDpEvent(float(sample_rate), step)
    return event if count == 1 else dpa.SelfComposedDpEvent(event, int(count))


def bounded_range(epsilon: float, count: int = 1) -> DpEvent:
    """Event of `count` exponential mechanisms of range `epsilon` each, under any relation."""
    dpa = library()
    from dpsubspace._core.accounting.accountants import BoundedRangeDpEvent

    event = BoundedRangeDpEvent(float(epsilon))
    return event if count == 1 else dpa.SelfComposedDpEvent(event, int(count))


def laplace(epsilon: float, neighboring_relation: str, count: int = 1) -> DpEvent:
    """Event of `count` Laplace releases of `epsilon` each under the relation.

    Like a Gaussian multiplier, the multiplier of the event is against the norm of one record, and
    accountants double it where a record is replaced.
    """
    dpa = library()
    event = dpa.LaplaceDpEvent(doubling(neighboring_relation) / float(epsilon))
    return event if count == 1 else dpa.SelfComposedDpEvent(event, int(count))


def private_search(event: DpEvent, mean: float) -> DpEvent:
    """Event of the best of several runs of `event`; their logarithmic number stays hidden."""
    dpa = library()
    return dpa.dp_event.RepeatAndSelectDpEvent(event, float(mean), 0.0)


def composed(events: Iterable[DpEvent]) -> DpEvent:
    dpa = library()
    events = [event for event in events if not is_free(event)]
    if not events:
        return dpa.NoOpDpEvent()
    return events[0] if len(events) == 1 else dpa.ComposedDpEvent(events)


def is_free(event: DpEvent) -> bool:
    """Whether `event` is the event of a fit that uses no records."""
    dpa = library()
    return type(event) is dpa.NoOpDpEvent


def non_private() -> DpEvent:
    """Event of a release without noise; every ledger refuses it."""
    dpa = library()
    return dpa.NonPrivateDpEvent()


def doubling(neighboring_relation: str) -> int:
    """Sensitivity of a sum, in norms of one record, for events with a multiplier against them."""
    return 2 if neighboring_relation == "replace_one" else 1


def mechanisms_of(event: DpEvent) -> tuple[Mechanism, ...]:
    """Mechanisms that `event` is made of; PrivacyError for what cannot be counted."""
    from dpsubspace._core.accounting.accountants import each_mechanism, merged

    return merged(each_mechanism(event))


def describe(event: DpEvent) -> str:
    from dpsubspace._core.accounting.accountants import each_mechanism

    return (
        " + ".join(map(_in_words, each_mechanism(event))) or "nothing that depends on the records"
    )


def _in_words(part: Mechanism) -> str:
    if part.kind == "gaussian" and part.value == 0:
        return "without noise: not private"
    if part.kind == "range":
        words = f"exponential mechanism, epsilon {rounded(part.value, math.ceil)}"
    elif part.kind == "search":
        inside = " + ".join(map(_in_words, part.inside))
        words = f"best of about {part.value:.4g} runs of {inside}"
    else:
        kind = "Laplace" if part.kind == "laplace" else "Gaussian"
        words = f"{kind} noise, multiplier {rounded(part.value, math.floor)}"
    if part.sampled:
        words = f"on a Poisson batch of rate {part.rate:.4g}: {words}"
    return words if part.count == 1 else f"{part.count} x ({words})"


def rounded(value: float, towards: Callable[[float], int], digits: int = 4) -> str:
    """Round `value` to a few digits by `math.floor` or `math.ceil` (beyond 1e-9 of it)."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    slack = 1e-9 if towards is math.floor else -1e-9
    return f"{towards(value / step * (1 + slack)) * step:.{digits}g}"
