"""Privacy curves from above, and the Gaussian mechanism above them: what a ledger charges.

The privacy curve of a mechanism is its hockey-stick divergence ``H_t(P || Q) = E_P[(1 - t / l)_+]``
as a function of ``t = e^a > 0``: the largest for neighbours P, Q in either order, where l is the
likelihood ratio. Epsilon at delta is the a at which it falls to delta. That of N(mu, 1) against
N(0, 1) is called G_mu.

A mechanism is charged as a pair (mu, s) for which ``H_t <= G_mu(t) + min(1, t) s`` for all t: the
Gaussian mechanism, but for a slack s. Why these pairs may be added up is proved in
:class:`~dpsubspace._workflow.plan.Plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpsubspace._accounting.cost import (
    SMALLEST_DELTA,
    accountant,
    hidden_by_noise,
    pure_epsilon,
    rounding_error,
    sq_mu_of,
)
from dpsubspace._accounting.events import counted
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._accounting.leaves import Leaf

__all__ = ["LEAST_SLACK", "Price", "dominating_mu", "price_of", "slack_parts"]

# No smaller slack is asked for: it is ten times what rounding may hide of a few thousand steps.
LEAST_SLACK = 1e-11

# Points of a curve. Between them nothing is guessed, and more of them gain less than 1e-4.
_POINTS = 2000

# Rounding of G_mu, which is a difference of numbers up to 1, and of the chords beside it.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Price:
    """What an event may be charged as.

    Parameters
    ----------
    epsilon : float
        Sum of the epsilons of what has no delta.
    pure_sq_mu : float
        Square of the mu that dominates the same, without slack.
    sq_mu : float
        Square of the mu that dominates the rest but for the slack.
    slack : float
        Slack of the rest.
    rest_sq_mu : float
        Part of `sq_mu` that is not of searches.
    search_epsilon : float
        Epsilon of all searches at their part of `slack`, where these are charged by that.
    """

    epsilon: float
    pure_sq_mu: float
    sq_mu: float
    slack: float
    rest_sq_mu: float = 0.0
    search_epsilon: float = 0.0

    @property
    def needs_delta(self) -> bool:
        """Whether there is more than what has no delta."""
        return self.sq_mu > 0 or self.slack > 0


def price_of(event: DpEvent, slack: float, neighboring_relation: str) -> Price:
    """Price of `event`, where each part that is no Gaussian may use `slack`, or none for 0.

    Parts are priced one by one, and batches beside Gaussians together with these where that is
    less: mu^2 of either adds up with everything else.
    """
    return _price(counted(event), float(slack), neighboring_relation)


def slack_parts(event: DpEvent) -> int:
    """Parts of `event` that each use a slack."""
    parts = counted(event)
    searches = sum(leaf.count for leaf in parts if leaf.kind == "search")
    return searches + any(leaf.sampled for leaf in parts)


@lru_cache(maxsize=256)
def _price(parts: tuple[Leaf, ...], slack: float, relation: str) -> Price:
    pure = [leaf for leaf in parts if leaf.pure]
    plain = tuple(leaf for leaf in parts if leaf.kind == "gaussian" and not leaf.sampled)
    sampled = tuple(leaf for leaf in parts if leaf.sampled)
    searches = [leaf for leaf in parts if leaf.kind == "search"]
    sq_mu, used = sq_mu_of(plain, relation) or 0.0, 0.0
    if sampled and sq_mu < math.inf:
        without = sq_mu_of(sampled, relation, sampling="ignore") or math.inf
        choices = [(sq_mu + without, 0.0)]
        sets = [(sampled, sq_mu), (plain + sampled, 0.0)] if plain else [(sampled, 0.0)]
        choices += [(beside + _sampled_sq_mu(s, slack, relation), slack) for s, beside in sets]
        sq_mu, used = min(choices)
    rest, search_epsilon = sq_mu, 0.0
    for leaf in searches:
        epsilon, found = _search_price(leaf, slack, relation)
        sq_mu, search_epsilon = sq_mu + leaf.count * found, search_epsilon + leaf.count * epsilon
        used += leaf.count * slack
    return Price(
        epsilon=math.fsum(leaf.count * pure_epsilon(leaf, relation) for leaf in pure),
        pure_sq_mu=math.fsum(_pure_sq_mu(leaf, relation) for leaf in pure),
        sq_mu=sq_mu,
        slack=used if sq_mu < math.inf else 0.0,
        rest_sq_mu=rest,
        search_epsilon=search_epsilon,
    )


# Curves of what is not Gaussian ---------------------------------------------------------------


def _sampled_sq_mu(parts: tuple[Leaf, ...], slack: float, relation: str) -> float:
    """Square of the mu that dominates Gaussians on batches (and others beside them)."""
    error = rounding_error(parts)
    usable = slack - error
    if usable < error or not hidden_by_noise(parts, SMALLEST_DELTA, relation):
        return math.inf  # what sampling saves is not counted then
    orders, divergences = _pld_curve(parts, relation)
    if not len(orders) or divergences[-1] > usable:
        return math.inf
    used = int(np.argmax(divergences <= usable)) + 1
    return dominating_mu(orders[:used], divergences[:used], usable) ** 2


@lru_cache(maxsize=64)
def _pld_curve(parts: tuple[Leaf, ...], relation: str) -> tuple[np.ndarray, np.ndarray]:
    """Orders a from 0 to where the least slack is reached, and divergences from above."""
    error = rounding_error(parts)
    least = max(LEAST_SLACK - error, error)
    counting = accountant(parts, relation, 1.0)
    reached, before = counting.get_epsilon(least), 1.0
    while 0 < reached < 0.5 * before:  # small epsilons need a fine grid
        before = reached
        counting = accountant(parts, relation, before)
        reached = counting.get_epsilon(least)
    if not reached < math.inf:
        return np.empty(0), np.empty(0)
    orders = np.linspace(0.0, reached * (1 + 1e-9) + 1e-12, _POINTS)
    divergences = np.maximum(counting.curve(orders), 0.0)
    divergences[-1] = min(divergences[-1], least)  # but for rounding, which is in the error
    return orders, divergences


def _search_price(leaf: Leaf, slack: float, relation: str) -> tuple[float, float]:
    """Epsilon of one private search at `slack`, and the square of the mu above it but for that.

    By Renyi divergences, which other accountants do not have (``renyi_curve``).
    """
    from dpsubspace._accounting.leaves import moved, renyi_curve

    (leaf,) = moved([leaf], relation)
    if not slack:
        return math.inf, math.inf
    last = 1.0
    while (renyi_curve([leaf], np.array([last])) > slack).any():
        last *= 1.5
        if last > 1e4:
            return math.inf, math.inf
    orders = np.linspace(0.0, last, _POINTS)
    divergences = renyi_curve([leaf], orders)
    epsilon = float(orders[np.argmax(divergences <= slack)])  # divergences fall
    return epsilon, dominating_mu(orders, divergences, slack) ** 2


def _pure_sq_mu(leaf: Leaf, relation: str) -> float:
    """Square of the mu that dominates all runs of a mechanism without a delta.

    Any mechanism of that epsilon is dominated by randomised response, and that by the Gaussian
    of the same total variation, ``2 Phi^-1(e^epsilon / (1 + e^epsilon))`` (Dong, Roth, Su, 2022):
    once with the sum of the epsilons, or each run by itself. The mechanism's own curve has
    less: ``1 - e^((a - epsilon) / 2)`` for Laplace noise, that of ``bounded_range_curve`` for
    bounded ranges, some runs at a time.
    """
    epsilon = pure_epsilon(leaf, relation)
    found = [_response_sq_mu(leaf.count * epsilon), leaf.count * _response_sq_mu(epsilon)]
    if epsilon <= 50:
        own = _laplace_sq_mu if leaf.kind == "laplace" else _range_sq_mu
        found.append(own(epsilon, leaf.count))
    return min(found)


def _response_sq_mu(epsilon: float) -> float:
    """For randomised response."""
    return float(2 * ndtri(1 / (1 + math.exp(min(epsilon, 700.0))))) ** 2


def _laplace_sq_mu(epsilon: float, count: int) -> float:
    orders = np.linspace(0.0, epsilon, _POINTS)
    return count * dominating_mu(orders, -np.expm1((orders - epsilon) / 2), 0.0) ** 2


def _range_sq_mu(epsilon: float, count: int) -> float:
    from dpsubspace._accounting.bounded_range import bounded_range_curve
    from dpsubspace._accounting.leaves import BLOCK

    def block(size: int) -> float:
        step, curve = bounded_range_curve(max(epsilon, 1e-6), size)
        curve = curve[len(curve) // 2 :]
        return dominating_mu(np.arange(len(curve)) * step, curve, 0.0) ** 2

    def blocks_of(size: int) -> float:
        blocks, rest = divmod(count, size)
        return blocks * block(size) + (block(rest) if rest else 0.0)

    # Small blocks lose in the middle of the curve, large ones in its tail.
    sizes = [2**i for i in range(BLOCK.bit_length()) if 2**i <= count]
    return min(map(blocks_of, sizes))


# The Gaussian mechanism above a curve -----------------------------------------------------------


def dominating_mu(orders: np.ndarray, divergences: np.ndarray, slack: float) -> float:
    """Least mu, nearly, with ``H_t <= G_mu(t) + min(1, t) slack`` for all t.

    Parameters
    ----------
    orders : ndarray of shape (n,)
        Rising values of ``a = log t``, the first 0; the divergence at the last one is at most
        `slack`.
    divergences : ndarray of shape (n,)
        Upper bounds on the divergences there, of neighbours in both orders.
    slack : float
        Slack, at least 0.

    Returns
    -------
    float
        For which the inequality is proved, not sampled.

    Notes
    -----
    Proof. *Orders below 1.* ``H_t(P || Q) = 1 - t + t H_{1/t}(Q || P)``, and G_mu has the same
    property. If ``H_t <= G_mu(t) + s`` for t of at least 1 and both orders of neighbours, then
    for t below 1 it is at most ``1 - t + t (G_mu(1 / t) + s) = G_mu(t) + t s``.

    *Between points.* H is convex in t, so that it is below the chord between upper bounds of
    it. G_mu is convex too, so that it is above its tangent in the middle of the interval. Both
    are straight, and the chord is below the tangent and the slack if it is so at both ends.

    *Beyond the last point* H is at most s, since it falls.
    """
    if divergences[-1] > slack + _ROUNDING:
        raise PrivacyError("a privacy curve ends above its slack, and cannot be charged.")
    middles = (orders[1:] + orders[:-1]) / 2
    needed = divergences - slack
    nothing = (needed[:-1] <= 0) & (needed[1:] <= 0)  # G_mu is never negative
    left, right = np.expm1(orders[:-1] - middles), np.expm1(orders[1:] - middles)

    def above(log_mu: float) -> bool:
        mu = math.exp(log_mu)
        upper, lower = log_ndtr(mu / 2 - middles / mu), middles + log_ndtr(-mu / 2 - middles / mu)
        value = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0)) - _ROUNDING
        slope = np.exp(lower)  # t times that of the tangent
        at_left, at_right = value - slope * left, value - slope * right
        below = (at_left >= needed[:-1]) & (at_right >= needed[1:])
        return bool(np.all(below | nothing))

    return _least(above)


def _least(enough: Callable[[float], bool]) -> float:
    """Exponential of the least number that is enough, from above; 0 where any is."""
    low, high = math.log(1e-9), math.log(1e-9)
    if enough(low):
        return math.exp(low)
    while not enough(high):
        low, high = high, high + 1.0
        if high > math.log(1e4):
            return math.inf
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.exp(high)
