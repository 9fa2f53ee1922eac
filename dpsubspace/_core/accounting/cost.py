"""Cost of an event: its epsilon at a delta, its privacy curve, and the cost of a search.

Compositions of Gaussians have an exact answer: they are one Gaussian (Dong, Roth, Su, 2022,
Corollary 3.3). Every fit on full batches is of this kind. Compositions of mechanisms without a
delta cost at most the sum of their epsilons, for any delta. Private searches are counted by the
Renyi accountant of ``dp_accounting``, and everything else by its accountant of privacy loss
distributions. Releases that are chosen after looking at earlier results are counted by the ledger,
not here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from dpsubspace._core.accounting.events import doubling, gaussian, mechanisms_of, private_search
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._core.accounting.accountants import Mechanism

# Relative difference within which two squares of mu are equal but for rounding.
EQUAL = 1e-12

# Mechanisms without a delta are charged by the sum of their epsilons where one of them has a larger
# epsilon, or beside batches with a smaller noise multiplier: the sum is hardly more than their
# cost.
LARGEST_PURE = 100.0
LEAST_MULTIPLIER = 0.1

# The accountant of privacy loss distributions takes seconds where its grid has more points. Batches
# are then counted by ``batches``.
MOST_POINTS = 10_000

# Below this delta, rounding in the accountant would be a noticeable part of delta.
SMALLEST_DELTA = 1e-10


@dataclass(frozen=True)
class Cost:
    """Cost of mechanisms under a neighbouring relation."""

    parts: tuple[Mechanism, ...]  # Mechanisms that run, equal ones merged
    neighboring_relation: str  # "zero_out" or "replace_one": what the guarantee hides

    @classmethod
    def of(cls, event: DpEvent, neighboring_relation: str) -> Cost:
        """Cost of `event`; PrivacyError where it cannot be counted."""
        return cls(mechanisms_of(event), neighboring_relation)

    # Gaussian mechanisms ----------------------------------------------------------------------

    def sq_mu(self, *, sampling: str = "refuse") -> float | None:
        """Square of mu of Gaussian mechanisms, None for anything else; a replacement doubles mu.

        Sampled Gaussians are refused ("refuse"), counted as if every record were in every batch
        ("ignore": an upper bound), or counted by their central limit ("approximate": Bu, Dong,
        Long, Su, 2020), which is good enough only as the start of a search. Bounded ranges and
        Laplace mechanisms are counted by twice their largest mean loss, with "approximate" only.
        """
        total = [0.0]
        for part in self.parts:
            kind, value = part.kind, part.value  # multiplier against the norm of one record
            if kind == "gaussian" and (part.rate == 1 or sampling != "refuse"):
                once = math.inf if value == 0 else value**-2
                if part.rate < 1 and sampling == "approximate":
                    once = part.rate**2 * math.expm1(min(once, 700.0))
            elif kind == "range" and sampling == "approximate":
                once = 2 * min(value**2 / 8, value)
            elif kind == "laplace" and sampling == "approximate":
                once = 2 * (1 / value + math.expm1(-1 / value))
            else:
                return None
            total.append(part.count * once)
        return math.fsum(total) * doubling(self.neighboring_relation) ** 2

    def covers(self, other: Cost) -> bool:
        """Whether mechanisms of cost `other` may run in place of these, whatever was seen before.

        True for Gaussian mechanisms of the same mu or less: the pair of distributions that
        dominates the larger mechanism dominates the smaller one.
        """
        most, cost = self.sq_mu(), other.sq_mu()
        return most is not None and cost is not None and cost <= most * (1 + EQUAL)

    # Epsilon ----------------------------------------------------------------------------------

    @lru_cache(maxsize=256)  # noqa: B019 small public values, which many fits have in common
    def epsilon(self, delta: float) -> float:
        """Epsilon at `delta`.

        Exact for compositions of Gaussians; otherwise an upper bound, by the PLD accountant. A
        mechanism without a delta of its own adds at most its epsilon, and never makes the rest
        cheaper; such mechanisms alone have an epsilon at ``delta=0``.

        PrivacyError if no accountant here supports the parts under the relation.
        """
        sq_mu = self.sq_mu()
        if sq_mu is not None:
            return gaussian_epsilon(sq_mu, delta)
        pure, rest = self.split_pure()
        if rest == self:
            return self._epsilon_with_delta(delta)
        cost = rest.epsilon(delta)
        # A sum of epsilons holds for any delta, also where the accountant would not finish.
        summed, searched = pure + cost, any(part.kind == "search" for part in rest.parts)
        if pure == 0 or summed == math.inf or delta < SMALLEST_DELTA or searched:
            return summed
        approximate, about = self.sq_mu(sampling="approximate"), summed
        if approximate is not None:
            about = min(about, gaussian_epsilon(approximate, delta))
        if self.adds_up or self._least_sampled < LEAST_MULTIPLIER:
            return summed
        return min(summed, max(cost, self._refined(delta, about)))

    def split_pure(self) -> tuple[float, Cost]:
        """Sum of the epsilons of mechanisms without a delta, and the cost of the rest."""
        relation = self.neighboring_relation
        pure = (part.count * _pure_epsilon(part, relation) for part in self.parts if part.pure)
        rest = tuple(part for part in self.parts if not part.pure)
        return math.fsum(pure), replace(self, parts=rest)

    @property
    def adds_up(self) -> bool:
        """Whether mechanisms without a delta are counted by the sum of epsilons for any delta."""
        relation = self.neighboring_relation
        return any(
            part.pure and _pure_epsilon(part, relation) > LARGEST_PURE for part in self.parts
        )

    def _epsilon_with_delta(self, delta: float) -> float:
        """Epsilon of batches and searches, and of Gaussians beside them: all need a delta."""
        from dpsubspace._core.accounting.accountants import renyi_accountant, under_add_or_remove

        if any(part.kind == "search" for part in self.parts):
            parts = under_add_or_remove(self.parts, self.neighboring_relation)
            return float(renyi_accountant(parts).get_epsilon(delta))
        check_smallest_delta(delta)
        about = self.about(delta)
        if self.fits_a_grid(about, delta):
            return self._refined(delta, about)
        # A mechanism on every step reveals no less than one on some of the steps.
        whole = gaussian_epsilon(self.sq_mu(sampling="ignore") or 0.0, delta)
        # A record may be revealed entirely whenever it is in a batch, if delta has room for that.
        chance = sum(part.count * part.rate for part in self.parts if part.sampled)
        if chance < delta:
            rest = self._only(lambda part: not part.sampled)
            whole = min(whole, rest.epsilon(delta - chance))
        if whole in (0.0, math.inf):
            return whole
        from dpsubspace._core.accounting.batches import epsilon_of_batches

        return min(whole, epsilon_of_batches(self.parts, self.neighboring_relation, delta))

    def about(self, delta: float) -> float:
        """Epsilon by the central limit, but at least 1."""
        approximate = min(self.sq_mu(sampling="approximate") or 0.0, 1e9)
        return max(1.0, gaussian_epsilon(approximate, delta))

    def fits_a_grid(self, epsilon: float, delta: float) -> bool:
        """Whether a grid for this epsilon has few points for all losses, and rounding is small."""
        least = self._least_sampled
        points = (0.5 / least**2 + 8 / least + epsilon) / self.grid(epsilon)
        return points <= MOST_POINTS and self.rounding_error <= delta / 10

    @property
    def _least_sampled(self) -> float:
        return min((part.value for part in self.parts if part.sampled), default=math.inf)

    # The accountant of privacy loss distributions -----------------------------------------------

    def _refined(self, delta: float, about: float) -> float:
        """Epsilon by the PLD accountant, on a grid for `about`, then on finer grids."""
        grid = self.grid(about)
        cost = self.pld_epsilon(delta, grid)
        while (finer := self.grid(cost)) < grid / 2:  # small epsilons need a fine grid
            grid, cost = finer, self.pld_epsilon(delta, finer)
        return cost

    def grid(self, epsilon: float) -> float:
        """Discretisation of the PLD accountant; results are upper bounds at any value.

        A fraction of epsilon, and at most a fifth of the typical loss of one step, since rounding
        up adds a little at every step; no finer than 1e-5 of the largest loss of a step.
        """
        steps = sum(part.count for part in self.parts)
        sq_mu = self.sq_mu(sampling="approximate")
        sq_mu = sq_mu / doubling(self.neighboring_relation) ** 2 if sq_mu else 1.0
        typical = math.sqrt(min(sq_mu, 1e4) / steps)
        least = max(self._least_sampled, LEAST_MULTIPLIER)
        largest = 0.5 / least**2 + 8 / least
        finest = max(1e-9, 1e-5 * largest, epsilon / 1e4)
        coarsest = max(1e-2, epsilon / 1e4)
        return min(coarsest, max(finest, min(epsilon / 500, typical / 5)))

    @lru_cache(maxsize=256)  # noqa: B019
    def pld_epsilon(self, delta: float, grid: float) -> float:
        """Upper bound on epsilon, by privacy loss distributions on a grid."""
        error = self.rounding_error
        if error > delta / 10:
            raise PrivacyError(
                f"delta={delta:.3g} is too small to be computed for so many steps: rounding may"
                f" hide {error:.2g} of it. Use a larger delta, or fewer steps."
            )
        return float(self.accountant(grid).get_epsilon(delta - error))

    @property
    def rounding_error(self) -> float:
        """Bound on how far rounding can take the PLD accountant's divergences below the truth.

        The accountant composes by fast Fourier transforms, whose error grows with the number of
        steps. Against Gaussians of known divergence the largest found error was 3.9e-17 a step, for
        1 to 1e6 steps, all sizes and grids (``benchmarks/bench_ledger.py``), and 7e-14 without
        steps; this bound is ten times as much.
        """
        return 1e-12 + 4e-16 * sum(part.count for part in self.parts if part.sampled or part.pure)

    def accountant(self, grid: float) -> Any:
        """PLD accountant that holds the parts, none of which is a search, on a grid."""
        from dpsubspace._core.accounting.accountants import pld_accountant

        return pld_accountant(self.parts, self.neighboring_relation, grid)

    # What a ledger charges ----------------------------------------------------------------------

    @property
    def n_slacks(self) -> int:
        searches = sum(part.count for part in self.parts if part.kind == "search")
        return searches + any(part.sampled for part in self.parts)

    @lru_cache(maxsize=256)  # noqa: B019
    def price(self, slack: float) -> Price:
        """Price of the event, where each part that is not Gaussian may use `slack`.

        Parts are priced one by one, and batches together with the Gaussians beside them where that
        is less: mu^2 of either adds up with everything else. With a `slack` of 0 the price has no
        slack.
        """
        relation = self.neighboring_relation
        pure = [part for part in self.parts if part.pure]
        plain = self._only(lambda part: part.kind == "gaussian" and not part.sampled)
        sampled = self._only(lambda part: part.sampled)
        sq_mu, used = plain.sq_mu() or 0.0, 0.0
        if sampled.parts and sq_mu < math.inf:
            without = sampled.sq_mu(sampling="ignore") or math.inf
            choices = [(sq_mu + without, 0.0), (sq_mu + _sampled_sq_mu(sampled, slack), slack)]
            if plain.parts:
                both = replace(self, parts=plain.parts + sampled.parts)
                choices.append((_sampled_sq_mu(both, slack), slack))
            sq_mu, used = min(choices)
        rest, search_epsilon = sq_mu, 0.0
        for part in (part for part in self.parts if part.kind == "search"):
            epsilon, found = _search_price(part, slack, relation)
            sq_mu += part.count * found
            search_epsilon += part.count * epsilon
            used += part.count * slack
        return Price(
            epsilon=math.fsum(part.count * _pure_epsilon(part, relation) for part in pure),
            pure_sq_mu=math.fsum(_pure_sq_mu(part, relation) for part in pure),
            sq_mu=sq_mu,
            slack=used if sq_mu < math.inf else 0.0,
            rest_sq_mu=rest,
            search_epsilon=search_epsilon,
        )

    def _only(self, some: Callable[[Mechanism], bool]) -> Cost:
        return replace(self, parts=tuple(filter(some, self.parts)))


def _pure_epsilon(part: Mechanism, neighboring_relation: str) -> float:
    """Epsilon, at a delta of 0, of one run of a Laplace mechanism or a bounded range."""
    return part.value if part.kind == "range" else doubling(neighboring_relation) / part.value


def check_smallest_delta(delta: float) -> None:
    """Raise PrivacyError for a delta at which sampled batches cannot be counted."""
    if delta < SMALLEST_DELTA:
        raise PrivacyError(
            f"delta={delta:.3g} is below what can be computed for sampled batches"
            f" ({SMALLEST_DELTA:g}). Use a larger delta, or batch_size=None."
        )


# Epsilon and mu of one Gaussian -------------------------------------------------------------------


# Counterparts of get_epsilon_gaussian and get_sigma_gaussian of `dp_accounting`. They use the same
# operations in the same order and so have the same results, but on plain numbers: through
# ``scipy.stats`` every root takes forty times as long, and that is most of the time of fits and of
# charges of new budgets.

_XTOL = 1e-12  # Tolerance of a root


@lru_cache(maxsize=1024)  # public numbers, which many fits have in common
def gaussian_epsilon(sq_mu: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism of ``sqrt(sq_mu)``, under the relation of that mu."""
    if sq_mu == 0 or sq_mu == math.inf:
        return sq_mu
    if not 0 < delta < 1:
        import dp_accounting as dpa

        return float(dpa.get_epsilon_gaussian(sq_mu**-0.5, delta))
    sigma, log_delta, low, high = sq_mu**-0.5, float(np.log(delta)), 0.0, 1.0

    def excess(epsilon: float) -> float:
        return _log_divergence(sigma, epsilon) - log_delta

    with np.errstate(divide="ignore"):  # the logarithm of a divergence that rounds to 0
        if excess(0.0) < 0:
            return 0.0
        while excess(high) > 0:
            low, high = high, 10 * high
        root: Any = brentq(excess, low, high, xtol=_XTOL)
    return float(root)


@lru_cache(maxsize=1024)
def searched_sq_mu(epsilon: float, delta: float) -> float:
    """Square of mu at which :func:`gaussian_epsilon` is about `epsilon`."""
    if not (0 <= epsilon < math.inf and 0 < delta < 1):
        import dp_accounting as dpa

        return float(dpa.get_sigma_gaussian(epsilon, delta)) ** -2
    log_delta, low, high = float(np.log(delta)), 0.1, 1.0

    def excess(sigma: float) -> float:
        return _log_divergence(sigma, epsilon) - log_delta

    with np.errstate(divide="ignore"):  # as above
        while excess(low) < 0:
            low, high = low / 10, low
        while excess(high) > 0:
            low, high = high, 10 * high
        root: Any = brentq(excess, low, high, xtol=_XTOL)
    return float(root) ** -2


def _log_divergence(sigma: float, epsilon: float) -> float:
    """Logarithm of the divergence at ``e^epsilon`` of N(1, sigma^2) against N(0, sigma^2).

    Balle, Wang (2018), Theorem 8.
    """
    middle = epsilon * sigma + 1 / (2 * sigma)
    upper, lower = log_ndtr(1 / sigma - middle), epsilon + log_ndtr(-middle)
    return float(upper + np.log1p(-np.exp(lower - upper))) if lower <= upper else -math.inf


def gaussian_sq_mu(epsilon: float, delta: float) -> float:
    """Approximately largest square of mu with :func:`gaussian_epsilon` at most `epsilon`."""
    if epsilon <= 0 or delta <= 0:
        return 0.0
    sq_mu, deflation = searched_sq_mu(epsilon, delta), 1e-15
    while gaussian_epsilon(sq_mu, delta) > epsilon:
        sq_mu *= 1 - deflation
        deflation *= 2
    return sq_mu


# Privacy curves ---------------------------------------------------------------------------------
# Upper bounds on privacy curves, and the Gaussian mechanisms above them: what a ledger charges.
#
# The privacy curve of a mechanism is its hockey-stick divergence ``H_t(P || Q) = E_P[(1 - t /
# l)_+]`` as a function of ``t = e^a > 0``: the largest for neighbours P, Q in either order, where l
# is the likelihood ratio. Epsilon at delta is the a at which the curve falls to delta. The curve of
# N(mu, 1) against N(0, 1) is called G_mu.
#
# A mechanism is charged as a pair (mu, s) for which ``H_t <= G_mu(t) + min(1, t) s`` for all t: as
# the Gaussian mechanism, but for a slack s. The proof that these pairs may be added up is in
# :class:`~dpsubspace.budget._filter.BudgetSplit`.

# No smaller slack is requested: it is ten times what rounding may hide of a few thousand steps.
LEAST_SLACK = 1e-11

# Points of a curve. Nothing is interpolated between them, and more points gain less than 1e-4.
_POINTS = 2000

# Rounding of G_mu, which is a difference of numbers up to 1, and of the chords beside it.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class Price:
    """Price at which an event may be charged."""

    epsilon: float  # Sum of the epsilons of mechanisms without a delta
    pure_sq_mu: float  # Square of the mu that dominates the same mechanisms, without slack
    sq_mu: float  # Square of the mu that dominates the rest but for the slack
    slack: float  # Slack of the rest
    rest_sq_mu: float = 0.0  # Part of `sq_mu` that does not come from searches
    # Epsilon of all searches at their part of `slack`, where searches are charged by epsilon.
    search_epsilon: float = 0.0

    @property
    def needs_delta(self) -> bool:
        """Whether the price has a part that needs a delta."""
        return self.sq_mu > 0 or self.slack > 0


# Curves of mechanisms that are not Gaussian ---------------------------------------------------


def _sampled_sq_mu(cost: Cost, slack: float) -> float:
    """Square of the mu that dominates Gaussians on batches (and others beside them)."""
    error = cost.rounding_error
    usable = slack - error
    if usable < error:
        return math.inf  # then the saving by sampling is not counted
    orders, divergences = _pld_curve(cost)
    if not len(orders) or divergences[-1] > usable:
        return math.inf
    used = int(np.argmax(divergences <= usable)) + 1
    return dominating_mu(orders[:used], divergences[:used], usable) ** 2


@lru_cache(maxsize=64)
def _pld_curve(cost: Cost) -> tuple[np.ndarray, np.ndarray]:
    """Return orders a from 0 to where the curve reaches the least slack, and upper bounds there."""
    error = cost.rounding_error
    least = max(LEAST_SLACK - error, error)
    if not cost.fits_a_grid(cost.about(least), 10 * error):
        from dpsubspace._core.accounting.batches import curve_of_batches

        return curve_of_batches(cost.parts, cost.neighboring_relation, least, _POINTS)
    counting = cost.accountant(cost.grid(1.0))
    reached, before = counting.get_epsilon(least), 1.0
    while 0 < reached < 0.5 * before:  # small epsilons need a fine grid
        before = reached
        counting = cost.accountant(cost.grid(before))
        reached = counting.get_epsilon(least)
    if not reached < math.inf:
        return np.empty(0), np.empty(0)
    orders = np.linspace(0.0, reached * (1 + 1e-9) + 1e-12, _POINTS)
    divergences = np.maximum(counting.curve(orders), 0.0)
    divergences[-1] = min(divergences[-1], least)  # rounding is part of the error
    return orders, divergences


def _search_price(part: Mechanism, slack: float, relation: str) -> tuple[float, float]:
    """Epsilon of one private search at `slack`, and the square of the mu that dominates it then.

    It uses Renyi divergences (``renyi_curve``): no other accountant supports searches.
    """
    from dpsubspace._core.accounting.accountants import renyi_curve, under_add_or_remove

    (part,) = under_add_or_remove([part], relation)
    if not slack:
        return math.inf, math.inf
    last = 1.0
    while (renyi_curve([part], np.array([last])) > slack).any():
        last *= 1.5
        if last > 1e4:
            return math.inf, math.inf
    orders = np.linspace(0.0, last, _POINTS)
    divergences = renyi_curve([part], orders)
    epsilon = float(orders[np.argmax(divergences <= slack)])  # divergences fall
    return epsilon, dominating_mu(orders, divergences, slack) ** 2


def _pure_sq_mu(part: Mechanism, relation: str) -> float:
    """Square of the mu that dominates all runs of a mechanism without a delta.

    Any mechanism of some epsilon is dominated by randomised response, and that is dominated by the
    Gaussian of the same total variation, ``2 Phi^-1(e^epsilon / (1 + e^epsilon))`` (Dong, Roth, Su,
    2022): once with the sum of the epsilons, or for each run by itself. The mechanism's own curve
    gives a smaller mu: ``1 - e^((a - epsilon) / 2)`` for Laplace noise, and the curve of
    ``bounded_range_curve`` for bounded ranges, for some runs at a time.
    """
    epsilon = _pure_epsilon(part, relation)
    found = [_response_sq_mu(part.count * epsilon), part.count * _response_sq_mu(epsilon)]
    if epsilon <= 50:
        own = _laplace_sq_mu if part.kind == "laplace" else _range_sq_mu
        found.append(own(epsilon, part.count))
    return min(found)


def _response_sq_mu(epsilon: float) -> float:
    return float(2 * ndtri(1 / (1 + math.exp(min(epsilon, 700.0))))) ** 2


def response_epsilon(sq_mu: float) -> float:
    """Epsilon of the randomised response that a square of mu dominates."""
    half = math.sqrt(sq_mu) / 2
    return float(log_ndtr(half) - log_ndtr(-half))


def _laplace_sq_mu(epsilon: float, count: int) -> float:
    orders = np.linspace(0.0, epsilon, _POINTS)
    return count * dominating_mu(orders, -np.expm1((orders - epsilon) / 2), 0.0) ** 2


def _range_sq_mu(epsilon: float, count: int) -> float:
    from dpsubspace._core.accounting.accountants import BLOCK, bounded_range_curve

    def block(size: int) -> float:
        step, curve = bounded_range_curve(max(epsilon, 1e-6), size)
        curve = curve[len(curve) // 2 :]
        return dominating_mu(np.arange(len(curve)) * step, curve, 0.0) ** 2

    def blocks_of(size: int) -> float:
        blocks, rest = divmod(count, size)
        return blocks * block(size) + (block(rest) if rest else 0.0)

    # Small blocks lose in the middle of the curve, large blocks in its tail.
    sizes = [2**i for i in range(BLOCK.bit_length()) if 2**i <= count]
    return min(map(blocks_of, sizes))


# The Gaussian mechanism above a curve -----------------------------------------------------------


def dominating_mu(orders: np.ndarray, divergences: np.ndarray, slack: float) -> float:
    """Approximately least mu with ``H_t <= G_mu(t) + min(1, t) slack`` for all t.

    The orders are rising values of ``a = log t``, the first 0. The divergences are upper bounds at
    these orders, for neighbours in either order, and the last one is at most `slack`. The
    inequality is proved for the returned mu, not only checked at the orders.

    Proof. *Orders below 1.* ``H_t(P || Q) = 1 - t + t H_{1/t}(Q || P)``, and G_mu has the same
    property. If ``H_t <= G_mu(t) + s`` for t of at least 1 and both orders of neighbours, then
    for t below 1 it is at most ``1 - t + t (G_mu(1 / t) + s) = G_mu(t) + t s``.

    *Between points.* H is convex in t, so it is below the chord between upper bounds of it. G_mu is
    convex too, so it is above its tangent in the middle of the interval. Both are straight lines,
    so the chord is below the tangent plus the slack if it is so at both ends.

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
        slope = np.exp(lower)  # t times the slope of the tangent
        at_left, at_right = value - slope * left, value - slope * right
        below = (at_left >= needed[:-1]) & (at_right >= needed[1:])
        return bool(np.all(below | nothing))

    return _least(above)


def _least(enough: Callable[[float], bool]) -> float:
    """Exponential of the least sufficient number, from above; about 0 where every number is."""
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


# The best of many fits --------------------------------------------------------------------------
# Cost of the best of many private fits, and the noise that a budget for it needs.
#
# A search runs a mechanism a random number of times and releases the best outcome only. Papernot
# and Steinke (2022) bound its Renyi divergences by the divergences of one run. With a divergence of
# a run of at most ``e(x)`` at order x, and a number of runs that has a logarithmic distribution of
# parameter g, whose mean is ``m = (1 / g - 1) / log(1 / g)``, the divergence of the search is at
# most ::
#
# e(x) + log(m) / (x - 1) + min_z [(1 - 1 / z) e(z) + log(1 / g) / z]
#
# (Theorem 2, with the shape 0 of the truncated negative binomial distribution). The runs need not
# be of one mechanism, as long as *all of them are below one curve e at every order that is used*:
# if the mechanism of a run is drawn without looking at the records, the result is a mixture whose
# divergences are at most the largest of theirs. So all runs of a search here are below the curve of
# one event, its base.

# Tolerance of a search for noise, in the logarithm of its result: it ends at most so far below a
# budget.
_TOLERANCE = 1e-6

# Relative rounding error of divergences, which are sums of many terms.
_SEARCH_ROUNDING = 1e-9


def logarithmic_rate(mean: float) -> float:
    """Parameter g of the logarithmic distribution of the given mean: 1 for a mean of 1."""
    if mean <= 1 + 1e-9:
        return 1.0

    def excess(log_inverse: float) -> float:
        return math.expm1(log_inverse) / log_inverse - mean

    root: Any = brentq(excess, 1e-12, 2 * math.log(mean) + 2, xtol=1e-15)
    return math.exp(-float(root))


def search_multiplier(
    epsilon: float, delta: float, neighboring_relation: str, mean: float
) -> float:
    """Least multiplier of Gaussian runs of a search of `epsilon`, or PrivacyBudgetError."""
    about = math.log(doubling(neighboring_relation)) - math.log(gaussian_sq_mu(epsilon, delta)) / 2

    def cost_at(log_scale: float) -> Cost:
        event = private_search(gaussian(math.exp(about - log_scale)), mean)
        return Cost.of(event, neighboring_relation)

    return math.exp(about - search_scale(cost_at, epsilon, delta))


def search_scale(
    cost_at: Callable[[float], Cost], epsilon: float, delta: float, tolerance: float = _TOLERANCE
) -> float:
    """Approximately largest number, about 0 or less, at which a cost is at most `epsilon`.

    The cost grows with the number, and at 0 it would be nearly `epsilon` if there were no search.
    """

    def excess(log_scale: float) -> float:
        return math.log(max(cost_at(log_scale).epsilon(delta), 1e-300) / epsilon)

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
    """Largest ratio of a Renyi divergence of `event` to that of `base`, over all orders used.

    Under "zero_out", which is the only relation for runs on batches. The ratio is at most 1 where a
    search over `base` may run `event`. Divergences do not fall with their order: where the
    accountant has no divergence at an order, that of the next order counts.
    """
    from dpsubspace._core.accounting.accountants import renyi_divergences

    ours, theirs = (renyi_divergences(mechanisms_of(each))[1] for each in (event, base))
    ours = np.minimum.accumulate(ours[::-1])[::-1]
    used = theirs < math.inf
    return float((ours[used] / theirs[used]).max())


def least_sq_mu(base: DpEvent) -> float:
    """Largest square of mu of a Gaussian mechanism below the curve of `base`.

    The divergence of the Gaussian at order x is ``x mu^2 / 2``, so this is the least ``2 e(x) /
    x``.
    """
    from dpsubspace._core.accounting.accountants import renyi_divergences

    orders, found = renyi_divergences(mechanisms_of(base))
    return float((2 * found / orders).min()) * (1 - _SEARCH_ROUNDING)
