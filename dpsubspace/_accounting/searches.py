"""What the best of many private fits costs, and the noise that a budget for it asks for.

A search runs a mechanism a random number of times and tells the best outcome only. Papernot and
Steinke (2022) bound its Renyi divergences by those of one run: with a run that has at most
``e(x)`` at order x, and a number of runs of a logarithmic distribution of parameter g, whose mean
is ``m = (1 / g - 1) / log(1 / g)``, the search has at most ::

    e(x) + log(m) / (x - 1) + min_z [(1 - 1 / z) e(z) + log(1 / g) / z]

(Theorem 2, with the shape 0 of the truncated negative binomial distribution). Runs need not be
one mechanism, as long as *all of them are below one curve e at every order that is used*: to draw
which one runs, without looking at the records, gives a mixture whose divergences are at most the
largest of theirs. So all runs of a search here are below the curve of one event, its base.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from dpsubspace._accounting.cost import epsilon_of, gaussian_sq_mu
from dpsubspace._accounting.events import counted, doubling, gaussian, private_search
from dpsubspace.exceptions import PrivacyBudgetError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["excess_over", "least_sq_mu", "logarithmic_rate", "search_multiplier", "search_scale"]

# How far below a budget a search for noise may end, in its logarithm.
_TOLERANCE = 1e-6

# Rounding of divergences, which come from sums of many terms.
_ROUNDING = 1e-9


def logarithmic_rate(mean: float) -> float:
    """Parameter g of the logarithmic distribution of that mean: 1 for a mean of 1."""
    if mean <= 1 + 1e-9:
        return 1.0

    def excess(log_inverse: float) -> float:
        return math.expm1(log_inverse) / log_inverse - mean

    root: Any = brentq(excess, 1e-12, 2 * math.log(mean) + 2, xtol=1e-15)
    return math.exp(-float(root))


def search_multiplier(
    epsilon: float, delta: float, neighboring_relation: str, mean: float
) -> float:
    """Least multiplier of Gaussian runs of a search that costs at most `epsilon`.

    Raises
    ------
    PrivacyBudgetError
        If no noise is enough: searches have a least epsilon of their own.
    """
    about = math.log(doubling(neighboring_relation)) - math.log(gaussian_sq_mu(epsilon, delta)) / 2

    def event(log_scale: float) -> DpEvent:
        return private_search(gaussian(math.exp(about - log_scale)), mean)

    return math.exp(about - search_scale(event, epsilon, delta, neighboring_relation))


def search_scale(
    make_event: Callable[[float], DpEvent],
    epsilon: float,
    delta: float,
    neighboring_relation: str,
    tolerance: float = _TOLERANCE,
) -> float:
    """Largest number, nearly and about 0 or less, at which an event costs at most `epsilon`.

    The event costs more where the number is larger, and nearly `epsilon` at 0 if it were no
    search.
    """

    def excess(log_scale: float) -> float:
        cost = epsilon_of(make_event(log_scale), delta, neighboring_relation)
        return math.log(max(cost, 1e-300) / epsilon)

    high, low, step = 0.0, -0.5, 0.5
    while excess(high) < 0:
        low, high = high, high + step
    while excess(low) > 0:
        low, high, step = low - step, low, 2 * step
        if low < -15:
            raise PrivacyBudgetError(
                f"epsilon={epsilon:.4g} at delta={delta:.3g} is too little for a search, however"
                " much noise there is. Use a larger epsilon, or method='all' with few candidates."
            )
    root: Any = brentq(excess, low, high, xtol=tolerance)
    found, less = float(root) - tolerance, tolerance
    while excess(found) > 0:
        found -= less
        less *= 2
    return found


def excess_over(event: DpEvent, base: DpEvent) -> float:
    """Largest ratio of a Renyi divergence of `event` to that of `base`, at all orders used.

    Under "zero_out", which is the only relation for runs on batches. At most 1 where a search over
    `base` may run `event`. Divergences do not fall with their order: where the accountant finds
    none, the next one counts.
    """
    from dpsubspace._accounting.leaves import renyi_divergences

    ours, theirs = (renyi_divergences(counted(each))[1] for each in (event, base))
    ours = np.minimum.accumulate(ours[::-1])[::-1]
    used = theirs < math.inf
    return float((ours[used] / theirs[used]).max())


def least_sq_mu(base: DpEvent) -> float:
    """Largest square of mu of a Gaussian mechanism that is below `base`.

    Its divergence at order x is ``x mu^2 / 2``, so that the least ``2 e(x) / x`` is meant.
    """
    from dpsubspace._accounting.leaves import renyi_divergences

    orders, found = renyi_divergences(counted(base))
    return float((2 * found / orders).min()) * (1 - _ROUNDING)
