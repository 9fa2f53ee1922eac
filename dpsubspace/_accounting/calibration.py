"""How much noise a budget asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq

from dpsubspace._accounting.cost import (
    LARGEST_SAMPLED,
    LEAST_MULTIPLIER,
    SMALLEST_DELTA,
    check_smallest_delta,
    epsilon_of,
    epsilon_of_parts,
    epsilon_of_rest,
    grid_for,
    plain_sq_mu,
    pld_epsilon,
    pure_and_rest,
    searched_sq_mu,
)
from dpsubspace._accounting.events import counted, doubling
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["calibrate", "calibrate_range"]


def calibrate(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    neighboring_relation: str,
) -> float:
    """Least noise multiplier at which ``make_event(multiplier)`` costs at most `epsilon`.

    For a composition of Gaussians, of which mu^2 is ``a + b / multiplier^2`` (a fixed part and
    a part that the multiplier scales), by a closed form. Otherwise by a search from the
    central-limit approximation upwards, within one part in a thousand: at multipliers
    far below the answer the accountant would take minutes and gigabytes. Parts that have no
    delta, bounded ranges and Laplace mechanisms, are fixed ones. The result is inflated until
    the evaluated epsilon is at most the target, so rounding is always on the private side.

    Raises
    ------
    PrivacyError
        If the fixed part alone costs more than `epsilon`.
    """
    from dpsubspace._accounting.leaves import event_of

    pure, _, rest = pure_and_rest(counted(make_event(1.0)), neighboring_relation)
    if pure > 0 and (epsilon > LARGEST_SAMPLED or delta < SMALLEST_DELTA):
        if pure >= epsilon:
            raise _nothing_left(epsilon, delta)

        def of_rest(multiplier: float) -> DpEvent:
            parts = counted(make_event(multiplier))
            return event_of(pure_and_rest(parts, neighboring_relation)[2])

        return calibrate(of_rest, epsilon - pure, delta, neighboring_relation)
    if pure > 0 and plain_sq_mu(rest, sampling="approximate") == 0:
        raise PrivacyError("only events with a Gaussian mechanism in them can be calibrated.")
    budget = searched_sq_mu(epsilon, delta)
    budget /= doubling(neighboring_relation) ** 2
    sampled = plain_sq_mu(counted(make_event(1.0))) is None
    if sampled and epsilon <= LARGEST_SAMPLED:
        check_smallest_delta(delta)
        multiplier = _search(make_event, budget, epsilon, delta, neighboring_relation)
    else:
        parts = (counted(make_event(m)) for m in (1.0, 2.0))
        at_one, at_two = (plain_sq_mu(each, sampling="ignore") for each in parts)
        if at_one is None or at_two is None:
            raise PrivacyError("only events of (sampled) Gaussian mechanisms can be calibrated.")
        scaled = (at_one - at_two) * 4 / 3
        fixed = max(0.0, at_one - scaled)
        if fixed > 0 and fixed >= budget * (1 - 1e-9):
            raise _nothing_left(epsilon, delta)
        multiplier = math.sqrt(scaled / (budget - fixed))
    inflation = 1e-4 if sampled else 1e-15
    while epsilon_of(make_event(multiplier), delta, neighboring_relation) > epsilon:
        multiplier *= 1 + inflation
        inflation *= 2
    return multiplier


def _search(
    make_event: Callable[[float], DpEvent],
    sq_mu: float,
    epsilon: float,
    delta: float,
    neighboring_relation: str,
) -> float:
    """Multiplier of an event that only the PLD accountant can count, from above."""

    def excess(log_multiplier: float) -> float:
        parts = counted(make_event(math.exp(log_multiplier)))
        if pure:
            cost = epsilon_of_parts(parts, delta, neighboring_relation)
        else:
            cost = pld_epsilon(parts, delta, neighboring_relation, grid_for(epsilon, parts))
        return math.log(max(cost, 1e-300) / epsilon)

    pure = pure_and_rest(counted(make_event(1.0)), neighboring_relation)[0] > 0
    # The approximation says too little noise, and the less the fewer steps there are.
    least = math.log(0.3 if epsilon <= 10 else LEAST_MULTIPLIER * 1.01)
    low = max(least, _approximate_log_multiplier(make_event, sq_mu))
    over = excess(low)
    while over <= 0:
        if low <= least:  # less noise than this takes the accountant minutes and gigabytes
            return math.exp(low)
        low = max(least, low - 0.1)
        over = excess(low)
    high = low + min(0.5, max(0.02, over))
    while excess(high) > 0:
        low, high = high, high + 2 * (high - low)
        if high > math.log(1e9):
            raise _nothing_left(epsilon, delta)
    root: Any = brentq(excess, low, high, xtol=5e-4)
    return math.exp(float(root) + 5e-4)


def _approximate_log_multiplier(make_event: Callable[[float], DpEvent], sq_mu: float) -> float:
    """Logarithm of the multiplier at which the event costs `sq_mu` by its central limit."""

    def excess(log_multiplier: float) -> float:
        parts = counted(make_event(math.exp(log_multiplier)))
        cost = plain_sq_mu(parts, sampling="approximate")
        if cost is None:
            raise PrivacyError("only events of (sampled) Gaussian mechanisms can be calibrated.")
        return math.log(cost / sq_mu)

    low, high = math.log(1e-2), math.log(1e9)
    if excess(high) > 0 or excess(low) < 0:
        return low
    root: Any = brentq(excess, low, high, xtol=1e-3)
    return float(root)


def calibrate_range(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    neighboring_relation: str,
) -> float:
    """Largest x at which ``make_event(x)``, of epsilons in proportion to x, costs `epsilon`.

    For exponential and Laplace mechanisms that share a budget, such as
    ``lambda x: bounded_range(x, 8)``; other parts are fixed. With ``delta=0`` the epsilons add
    up to `epsilon`. With more they may be larger than that, never smaller, and are found
    by a search within one part in ten thousand. The result is deflated until the
    evaluated epsilon is at most the target.

    Raises
    ------
    PrivacyError
        If the fixed part alone costs more than `epsilon`, or there is nothing to scale.
    """

    def cost(x: float) -> float:
        return epsilon_of(make_event(x), delta, neighboring_relation)

    at_one, _, rest = pure_and_rest(counted(make_event(1.0)), neighboring_relation)
    scaled = pure_and_rest(counted(make_event(2.0)), neighboring_relation)[0] - at_one
    if not scaled > 1e-9 * at_one:
        raise PrivacyError("nothing in the event is scaled: there is nothing to calibrate.")
    fixed = max(0.0, at_one - scaled) + epsilon_of_rest(rest, delta, neighboring_relation)
    low = (epsilon - fixed) / scaled
    if not low > 0:  # only what the accountant saves may be left
        low = 1e-6 * epsilon / scaled
        if cost(low) > epsilon:
            raise _nothing_left(epsilon, delta)
    if delta > 0:
        high = 2 * low
        while cost(high) <= epsilon:
            low, high = high, 2 * high
        while high > low * (1 + 1e-4):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    deflation = 1e-15
    while cost(low) > epsilon:
        low *= 1 - deflation
        deflation *= 2
    return low


def _nothing_left(epsilon: float, delta: float) -> PrivacyBudgetError:
    return PrivacyBudgetError(
        f"nothing of epsilon={epsilon:.4g} at delta={delta:.3g} is left beside what is"
        " spent already; use a larger epsilon."
    )
