"""Least epsilon and least number of records that are enough, for messages before a charge.

Nothing here sees records: whether a budget does is asked of the same functions of public sizes that
raised the message. They are necessary: beyond them, noise may still be large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpsubspace._core.accounting.budget import Budget, Target

# Exponents of 10 between which numbers of records are looked for.
_RECORDS = (0, 9)


def two_digits(low: int, high: int) -> list[float]:
    """Return all numbers of two digits between two powers of 10."""
    decades = range(low, high)
    known = [float(f"{digits}e{power - 1}") for power in decades for digits in range(10, 100)]
    return [*known, 10.0**high]


def least(known: list[Any], enough: Callable[[Any], bool]) -> Any:
    """Return the least of some rising numbers that is enough; None if there is none."""
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(known[middle]) else (middle + 1, high)
    return known[low] if low < len(known) else None


def least_epsilon(target: Target, enough: Callable[[float], bool]) -> str:
    """Return the least epsilon of two digits, above that of `target`, that is enough, or ""."""
    known = [each for each in two_digits(-4, 6) if each > (target.epsilon or 0.0)]
    found = least(known, enough)
    return "" if found is None else f"{found:g}"


def least_records(n: int, enough: Callable[[int], bool]) -> str:
    """Return the least number of two digits, above `n`, that is enough, or ""."""
    found = least([int(each) for each in two_digits(*_RECORDS) if each > n], enough)
    return "" if found is None else f"{found:,}"


def it_takes(
    budget_of: Callable[[float | None, int], Budget],
    enough: Callable[[Budget, int], bool],
    target: Target,
    n: int,
    unit: str,
) -> str:
    """Return a sentence with the epsilon and the number of records that are enough, or "".

    `budget_of` gives the budget of an epsilon and a number of records.
    """

    def with_epsilon(epsilon: float) -> bool:
        return enough(budget_of(epsilon, n), n)

    def with_records(records: int) -> bool:
        return enough(budget_of(target.epsilon, records), records)

    epsilon = "" if target.epsilon is None else least_epsilon(target, with_epsilon)
    records = least_records(n, with_records)
    found = [f"{records} {unit}s"] * bool(records) + [f"an epsilon of {epsilon}"] * bool(epsilon)
    return f" It takes at least {' or '.join(found)}." if found else ""


def plan_takes(plan: Any, enough: Callable[[Budget, int], bool], n: int, unit: str) -> str:
    """Return the same sentence for the plan of a private function."""

    def budget_of(epsilon: float | None, n: int) -> Budget:
        return replace(plan, target=replace(plan.target, epsilon=epsilon)).budget(n)

    return it_takes(budget_of, enough, plan.target, n, unit)
