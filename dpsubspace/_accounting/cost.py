"""What an event costs: its epsilon at a delta.

Compositions of Gaussians, which is what every full-batch fit is, have an exact answer:
they are one Gaussian (Dong, Roth, Su, 2022, Corollary 3.3). Compositions of mechanisms without
a delta cost at most the sum of their epsilons, for any delta. Private searches go to the Renyi
accountant of ``dp_accounting``, and everything else to that of privacy loss distributions. What
is chosen after earlier results were seen is counted by the ledger, not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._accounting.events import counted, doubling
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._accounting.leaves import Leaf

__all__ = [
    "EQUAL",
    "SMALLEST_DELTA",
    "accountant",
    "covers",
    "epsilon_of",
    "gaussian_epsilon",
    "gaussian_sq_mu",
    "hidden_by_noise",
    "pure_epsilon",
    "rounding_error",
    "sq_mu_of",
]


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
