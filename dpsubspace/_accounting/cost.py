"""What an event costs: its epsilon at a delta, its privacy curve, and that of a search.

Compositions of Gaussians, which is what every full-batch fit is, have an exact answer:
they are one Gaussian (Dong, Roth, Su, 2022, Corollary 3.3). Compositions of mechanisms without
a delta cost at most the sum of their epsilons, for any delta. Private searches go to the Renyi
accountant of ``dp_accounting``, and everything else to that of privacy loss distributions. What
is chosen after earlier results were seen is counted by the ledger, not here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from dpsubspace._accounting.events import counted, doubling, gaussian, private_search
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._accounting.leaves import Leaf

# Rounding of squares of mu that are the same.
EQUAL = 1e-12


def pure_epsilon(leaf: Leaf, neighboring_relation: str) -> float:
    """Epsilon, without a delta, of one run of a Laplace mechanism or a bounded range."""
    if leaf.kind == "range":
        return leaf.value
    return doubling(neighboring_relation) / leaf.value


def plain_sq_mu(parts: Iterable[Leaf], *, sampling: str = "refuse") -> float | None:
    """Square of mu where all `parts` are Gaussian mechanisms.

    None for anything else. Multipliers are taken against the norm of one record. Sampled
    Gaussians are "refuse"d, counted as if every record were in every batch ("ignore": an
    upper bound), or by their central limit ("approximate": Bu, Dong, Long, Su, 2020), which
    is good enough to start a search from and nothing else. So are bounded ranges and
    Laplace mechanisms, by twice their largest mean loss, and by nothing but "approximate".
    """
    total = [0.0]
    for leaf in parts:
        if leaf.kind == "gaussian" and not (leaf.sampled and sampling == "refuse"):
            part = math.inf if leaf.value == 0 else leaf.value**-2
            if leaf.sampled and sampling == "approximate":
                part = leaf.rate**2 * math.expm1(min(part, 700.0))
        elif leaf.kind == "range" and sampling == "approximate":
            part = 2 * min(leaf.value**2 / 8, leaf.value)
        elif leaf.kind == "laplace" and sampling == "approximate":
            part = 2 * (1 / leaf.value + math.expm1(-1 / leaf.value))
        else:
            return None
        total.append(leaf.count * part)
    return math.fsum(total)


def sq_mu_of(
    parts: Iterable[Leaf], neighboring_relation: str, *, sampling: str = "refuse"
) -> float | None:
    """Square of mu of Gaussians under the relation: a replacement doubles mu."""
    found = plain_sq_mu(parts, sampling=sampling)
    return None if found is None else found * doubling(neighboring_relation) ** 2


def covers(planned: DpEvent, event: DpEvent, neighboring_relation: str) -> bool:
    """Whether `event` may run in place of `planned` at no cost, whatever was seen before.

    Gaussian mechanisms of the same mu or less: the pair of distributions that dominates
    the one dominates the other.
    """
    most, cost = (sq_mu_of(counted(each), neighboring_relation) for each in (planned, event))
    return most is not None and cost is not None and cost <= most * (1 + EQUAL)


def pure_and_rest(
    parts: Iterable[Leaf], neighboring_relation: str
) -> tuple[float, tuple[Leaf, ...], tuple[Leaf, ...]]:
    """Sum of the epsilons of what has no delta in `parts`, those parts, and the rest."""
    parts = tuple(parts)
    pure = tuple(leaf for leaf in parts if leaf.pure)
    epsilons = [leaf.count * pure_epsilon(leaf, neighboring_relation) for leaf in pure]
    return math.fsum(epsilons), pure, tuple(leaf for leaf in parts if not leaf.pure)


# Cost of an event ---------------------------------------------------------------------------


def epsilon_of(event: DpEvent, delta: float, neighboring_relation: str) -> float:
    """Epsilon of `event` at `delta`.

    Exact for compositions of Gaussians; from above, by the PLD accountant, otherwise. What
    has no delta of its own adds at most its epsilon, and never makes the rest cheaper; an
    event of such parts alone has an epsilon at ``delta=0``.

    Raises
    ------
    PrivacyError
        If no accountant here supports the event under the relation.
    """
    return epsilon_of_parts(counted(event), float(delta), neighboring_relation)


@lru_cache(maxsize=256)
def epsilon_of_parts(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    pure, _, rest = pure_and_rest(parts, neighboring_relation)
    cost = epsilon_of_rest(rest, delta, neighboring_relation)
    # A sum of epsilons holds for any delta, and where the accountant would not finish.
    searched = any(leaf.kind == "search" for leaf in rest)
    if pure == 0 or pure + cost == math.inf or delta < SMALLEST_DELTA or searched:
        return pure + cost
    approximate = plain_sq_mu(parts, sampling="approximate")
    about = pure + cost
    if approximate is not None:
        about = min(about, _gaussian_epsilon(approximate, delta, neighboring_relation))
    if about > LARGEST_SAMPLED or _least_sampled(parts) < LEAST_MULTIPLIER:
        return pure + cost
    return min(pure + cost, max(cost, _refined(parts, delta, neighboring_relation, about)))


def epsilon_of_rest(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    """Epsilon of parts that all need a delta."""
    sq_mu = plain_sq_mu(parts)
    if sq_mu is not None:
        return _gaussian_epsilon(sq_mu, delta, neighboring_relation)
    if any(leaf.kind == "search" for leaf in parts):
        return _search_epsilon(parts, delta, neighboring_relation)
    check_smallest_delta(delta)
    if hidden_by_noise(parts, delta, neighboring_relation):
        approximate = plain_sq_mu(parts, sampling="approximate") or 0.0
        about = max(1.0, _gaussian_epsilon(approximate, delta, neighboring_relation))
        return _refined(parts, delta, neighboring_relation, about)
    # Too little noise for the accountant to finish: what sampling saves is not counted.
    sq_mu = plain_sq_mu(parts, sampling="ignore") or 0.0
    return _gaussian_epsilon(sq_mu, delta, neighboring_relation)


def hidden_by_noise(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> bool:
    """Whether there is noise enough for the accountant of sampled Gaussians to finish."""
    approximate = plain_sq_mu(parts, sampling="approximate")
    if approximate is None or approximate >= 1e4 or _least_sampled(parts) < LEAST_MULTIPLIER:
        return False
    return _gaussian_epsilon(approximate, delta, neighboring_relation) <= 1e4


def _search_epsilon(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    """Epsilon of private searches, and of Gaussians beside them, by the Renyi accountant."""
    from dpsubspace._accounting.leaves import moved, renyi_accountant

    return float(renyi_accountant(moved(parts, neighboring_relation)).get_epsilon(delta))


@lru_cache(maxsize=1024)  # public numbers, which many fits have in common
def gaussian_epsilon(sq_mu: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism of ``sqrt(sq_mu)``, under the relation that it is for."""
    import dp_accounting as dpa

    if sq_mu == 0 or sq_mu == math.inf:
        return sq_mu
    with np.errstate(divide="ignore"):  # the logarithm of a delta that rounds to 0
        return float(dpa.get_epsilon_gaussian(sq_mu**-0.5, delta))


@lru_cache(maxsize=1024)
def searched_sq_mu(epsilon: float, delta: float) -> float:
    """Square of mu at which :func:`gaussian_epsilon` is about `epsilon`."""
    import dp_accounting as dpa

    with np.errstate(divide="ignore"):  # as above
        return float(dpa.get_sigma_gaussian(epsilon, delta)) ** -2


def gaussian_sq_mu(epsilon: float, delta: float) -> float:
    """Largest square of mu, nearly, with :func:`gaussian_epsilon` at most `epsilon`."""
    if epsilon <= 0 or delta <= 0:
        return 0.0
    sq_mu, deflation = searched_sq_mu(epsilon, delta), 1e-15
    while gaussian_epsilon(sq_mu, delta) > epsilon:
        sq_mu *= 1 - deflation
        deflation *= 2
    return sq_mu


def _gaussian_epsilon(sq_mu: float, delta: float, neighboring_relation: str) -> float:
    """Epsilon of a Gaussian mechanism; `sq_mu` is against the norm of one record."""
    # Under replace_one a record moves a sum by twice its norm: mu doubles.
    return gaussian_epsilon(sq_mu * doubling(neighboring_relation) ** 2, delta)


def _refined(
    parts: tuple[Leaf, ...], delta: float, neighboring_relation: str, about: float
) -> float:
    """Epsilon by the PLD accountant, on a grid for `about` that much and then finer ones."""
    grid = grid_for(about, parts)
    cost = pld_epsilon(parts, delta, neighboring_relation, grid)
    while (finer := grid_for(cost, parts)) < grid / 2:  # small epsilons need a fine grid
        grid, cost = finer, pld_epsilon(parts, delta, neighboring_relation, finer)
    return cost


# Above this epsilon, which protects nobody, and below this multiplier, batches are charged
# as if nothing were sampled, and mechanisms without a delta by the sum of their epsilons.
LARGEST_SAMPLED = 100.0
LEAST_MULTIPLIER = 0.1

# Below it, rounding in the accountant would be a noticeable part of delta.
SMALLEST_DELTA = 1e-10


def rounding_error(parts: Iterable[Leaf]) -> float:
    """How far rounding can take the PLD accountant's divergences below the truth.

    It composes by fast Fourier transforms, whose error grows with the number of steps. Against
    Gaussians of known divergence the largest found was 3.9e-17 a step, for 1 to 1e6 steps, all
    sizes and grids (``benchmarks/bench_ledger.py``), and 7e-14 without steps; here is ten times
    as much.
    """
    return 1e-12 + 4e-16 * sum(leaf.count for leaf in parts if leaf.sampled or leaf.pure)


def _least_sampled(parts: Iterable[Leaf]) -> float:
    """Least multiplier of a sampled Gaussian in `parts`."""
    return min((leaf.value for leaf in parts if leaf.sampled), default=math.inf)


def check_smallest_delta(delta: float) -> None:
    if delta < SMALLEST_DELTA:
        raise PrivacyError(
            f"delta={delta:.3g} is below what can be computed for sampled batches"
            f" ({SMALLEST_DELTA:g}). Use a larger delta, or batch_size=None."
        )


def grid_for(epsilon: float, parts: tuple[Leaf, ...]) -> float:
    """Discretisation of the PLD accountant; results are upper bounds at any value.

    A part of epsilon, and a fifth of the typical loss of one step: rounding up adds a
    little at every step. No finer than 1e-5 of the largest loss of a step.
    """
    steps = sum(leaf.count for leaf in parts)
    sq_mu = plain_sq_mu(parts, sampling="approximate") or 1.0
    typical = math.sqrt(min(sq_mu, 1e4) / steps)
    least = max(_least_sampled(parts), LEAST_MULTIPLIER)
    largest = 0.5 / least**2 + 8 / least
    finest = max(1e-9, 1e-5 * largest, epsilon / 1e4)
    return min(1e-2, max(finest, min(epsilon / 500, typical / 5)))


def accountant(parts: tuple[Leaf, ...], neighboring_relation: str, epsilon: float) -> Any:
    """Accountant that holds `parts`, which are no search, on a grid for that epsilon."""
    return _composed(parts, neighboring_relation, grid_for(epsilon, parts))


def _composed(parts: tuple[Leaf, ...], neighboring_relation: str, grid: float) -> Any:
    import dp_accounting as dpa

    from dpsubspace._accounting.leaves import Accountant, event_of

    relation = {
        "zero_out": dpa.NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[neighboring_relation]
    counting = Accountant(relation, value_discretization_interval=grid)
    return counting.compose(event_of(parts))


@lru_cache(maxsize=256)
def pld_epsilon(
    parts: tuple[Leaf, ...], delta: float, neighboring_relation: str, grid: float
) -> float:
    """Upper bound on the epsilon of `parts` by privacy loss distributions."""
    error = rounding_error(parts)
    if error > delta / 10:
        raise PrivacyError(
            f"delta={delta:.3g} is too small to be computed for so many steps: rounding may"
            f" hide {error:.2g} of it. Use a larger delta, or fewer steps."
        )
    return float(_composed(parts, neighboring_relation, grid).get_epsilon(delta - error))


# Privacy curves ---------------------------------------------------------------------------------
# Privacy curves from above, and the Gaussian mechanism above them: what a ledger charges.
#
# The privacy curve of a mechanism is its hockey-stick divergence ``H_t(P || Q) = E_P[(1 - t /
# l)_+]`` as a function of ``t = e^a > 0``: the largest for neighbours P, Q in either order, where l
# is the likelihood ratio. Epsilon at delta is the a at which it falls to delta. That of N(mu, 1)
# against N(0, 1) is called G_mu.
#
# A mechanism is charged as a pair (mu, s) for which ``H_t <= G_mu(t) + min(1, t) s`` for all t: the
# Gaussian mechanism, but for a slack s. Why these pairs may be added up is proved in
# :class:`~dpsubspace._workflow.plan.Plan`.

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
    from dpsubspace._accounting.leaves import BLOCK, bounded_range_curve

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


# The best of many fits --------------------------------------------------------------------------
# What the best of many private fits costs, and the noise that a budget for it asks for.
#
# A search runs a mechanism a random number of times and tells the best outcome only. Papernot and
# Steinke (2022) bound its Renyi divergences by those of one run: with a run that has at most
# ``e(x)`` at order x, and a number of runs of a logarithmic distribution of parameter g, whose mean
# is ``m = (1 / g - 1) / log(1 / g)``, the search has at most ::
#
# e(x) + log(m) / (x - 1) + min_z [(1 - 1 / z) e(z) + log(1 / g) / z]
#
# (Theorem 2, with the shape 0 of the truncated negative binomial distribution). Runs need not be
# one mechanism, as long as *all of them are below one curve e at every order that is used*: to draw
# which one runs, without looking at the records, gives a mixture whose divergences are at most the
# largest of theirs. So all runs of a search here are below the curve of one event, its base.

# How far below a budget a search for noise may end, in its logarithm.
_TOLERANCE = 1e-6

# Rounding of divergences, which come from sums of many terms.
_SEARCH_ROUNDING = 1e-9


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
    return float((2 * found / orders).min()) * (1 - _SEARCH_ROUNDING)
