"""What a fit costs: events, calibration, the guarantee on a model.

A mechanism is *described* by a ``dp_accounting`` event, read as leaves (``_events``) and
*counted* here (``dp_accounting`` is imported inside functions: the import is not free).
Compositions of Gaussians, which is what every full-batch fit is, have an exact answer:
they are one Gaussian (Dong, Roth, Su, 2022, Corollary 3.3). Compositions of mechanisms without
a delta cost at most the sum of their epsilons, for any delta. Private searches go to the Renyi
accountant of ``dp_accounting``, and everything else to that of privacy loss distributions. What
is chosen after earlier results were seen is counted by the ledger (``_ledger``), not here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq

from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError, PrivacyWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._events import Leaf

__all__ = [
    "RELATION_IN_WORDS",
    "SMALLEST_DELTA",
    "PrivacyGuarantee",
    "accountant",
    "bounded_range",
    "calibrate",
    "calibrate_range",
    "composed",
    "counted",
    "default_delta",
    "describe",
    "epsilon_of",
    "gaussian",
    "gaussian_epsilon",
    "gaussian_sq_mu",
    "hidden_by_noise",
    "is_free",
    "laplace",
    "non_private",
    "pure_epsilon",
    "rounded",
    "rounding_error",
    "sampled_gaussian",
    "sq_mu_of",
    "warn_about_delta",
]

RELATION_IN_WORDS = {
    "zero_out": "one record becomes a null record; their number is public",
    "replace_one": "one record is replaced by any other; their number is public",
}


# Events -------------------------------------------------------------------------------------


def gaussian(noise_multiplier: float, count: int = 1) -> DpEvent:
    """Event of `count` Gaussian releases of one noise multiplier each."""
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent

    event = GaussianDpEvent(float(noise_multiplier))
    return event if count == 1 else SelfComposedDpEvent(event, int(count))


def sampled_gaussian(noise_multiplier: float, sample_rate: float, count: int) -> DpEvent:
    """Event of `count` Gaussian releases, each on a Poisson batch (all records at rate 1)."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    if sample_rate == 1:
        return gaussian(noise_multiplier, count)
    step = GaussianDpEvent(float(noise_multiplier))
    event = PoissonSampledDpEvent(float(sample_rate), step)
    return event if count == 1 else SelfComposedDpEvent(event, int(count))


def bounded_range(epsilon: float, count: int = 1) -> DpEvent:
    """Event of `count` exponential mechanisms whose privacy loss has a range of `epsilon` each.

    `epsilon` is for the relation of the guarantee, whichever it is.
    """
    from dp_accounting import SelfComposedDpEvent

    from dpsubspace._events import BoundedRangeDpEvent

    event = BoundedRangeDpEvent(float(epsilon))
    return event if count == 1 else SelfComposedDpEvent(event, int(count))


def laplace(epsilon: float, *, neighboring_relation: str) -> DpEvent:
    """Event of a Laplace release of `epsilon` under the relation.

    Like a Gaussian multiplier, the event's is against the norm of one record, and accountants
    double what a replacement moves.
    """
    from dp_accounting import LaplaceDpEvent

    return LaplaceDpEvent(_doubling(neighboring_relation) / float(epsilon))


def composed(events: Iterable[DpEvent]) -> DpEvent:
    """Event of all `events` that cost something; a single one stays itself."""
    from dp_accounting import ComposedDpEvent, NoOpDpEvent

    events = [event for event in events if not is_free(event)]
    if not events:
        return NoOpDpEvent()
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def is_free(event: DpEvent) -> bool:
    """Whether `event` is that of a fit that takes nothing from the records."""
    from dp_accounting import NoOpDpEvent

    return type(event) is NoOpDpEvent


def non_private() -> DpEvent:
    """Event of a release without noise; no ledger takes it."""
    from dp_accounting import NonPrivateDpEvent

    return NonPrivateDpEvent()


def _doubling(neighboring_relation: str) -> int:
    """What a replacement moves a sum by, in norms of one record, for events that count so."""
    return 2 if neighboring_relation == "replace_one" else 1


def counted(event: DpEvent) -> tuple[Leaf, ...]:
    """Mechanisms that `event` is made of; PrivacyError for what cannot be counted."""
    from dpsubspace._events import leaves, merged

    return merged(leaves(event))


def pure_epsilon(leaf: Leaf, neighboring_relation: str) -> float:
    """Epsilon, without a delta, of one run of a Laplace mechanism or a bounded range."""
    if leaf.kind == "range":
        return leaf.value
    return _doubling(neighboring_relation) / leaf.value


def _sq_mu(parts: Iterable[Leaf], *, sampling: str = "refuse") -> float | None:
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
    found = _sq_mu(parts, sampling=sampling)
    return None if found is None else found * _doubling(neighboring_relation) ** 2


def _split(
    parts: Iterable[Leaf], neighboring_relation: str
) -> tuple[float, tuple[Leaf, ...], tuple[Leaf, ...]]:
    """Sum of the epsilons of what has no delta in `parts`, those parts, and the rest."""
    parts = tuple(parts)
    pure = tuple(leaf for leaf in parts if leaf.pure)
    epsilons = [leaf.count * pure_epsilon(leaf, neighboring_relation) for leaf in pure]
    return math.fsum(epsilons), pure, tuple(leaf for leaf in parts if not leaf.pure)


def describe(event: DpEvent) -> str:
    """`event` in a line of English."""
    from dpsubspace._events import leaves

    return " + ".join(map(_in_words, leaves(event))) or "nothing that depends on the records"


def _in_words(leaf: Leaf) -> str:
    if leaf.kind == "gaussian" and leaf.value == 0:
        return "without noise: not private"
    if leaf.kind == "range":
        words = f"exponential mechanism, epsilon {rounded(leaf.value, math.ceil)}"
    elif leaf.kind == "search":
        inside = " + ".join(map(_in_words, leaf.inside))
        words = f"best of about {leaf.value:.4g} runs of {inside}"
    else:
        kind = "Laplace" if leaf.kind == "laplace" else "Gaussian"
        words = f"{kind} noise, multiplier {rounded(leaf.value, math.floor)}"
    if leaf.sampled:
        words = f"on a Poisson batch of rate {leaf.rate:.4g}: {words}"
    return words if leaf.count == 1 else f"{leaf.count} x ({words})"


# Cost of an event ---------------------------------------------------------------------------


def epsilon_of(event: DpEvent, delta: float, *, neighboring_relation: str) -> float:
    """Epsilon of `event` at `delta`.

    Exact for compositions of Gaussians; from above, by the PLD accountant, otherwise. What
    has no delta of its own adds at most its epsilon, and never makes the rest cheaper; an
    event of such parts alone has an epsilon at ``delta=0``.

    Raises
    ------
    PrivacyError
        If no accountant here supports the event under the relation.
    """
    return _epsilon_of(counted(event), float(delta), neighboring_relation)


@lru_cache(maxsize=256)
def _epsilon_of(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    pure, _, rest = _split(parts, neighboring_relation)
    cost = _rest_epsilon(rest, delta, neighboring_relation)
    # A sum of epsilons holds for any delta, and where the accountant would not finish.
    searched = any(leaf.kind == "search" for leaf in rest)
    if pure == 0 or pure + cost == math.inf or delta < SMALLEST_DELTA or searched:
        return pure + cost
    approximate = _sq_mu(parts, sampling="approximate")
    about = pure + cost
    if approximate is not None:
        about = min(about, _gaussian_epsilon(approximate, delta, neighboring_relation))
    if about > _LARGEST_SAMPLED or _least_sampled(parts) < _LEAST_MULTIPLIER:
        return pure + cost
    return min(pure + cost, max(cost, _refined(parts, delta, neighboring_relation, about)))


def _rest_epsilon(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    """Epsilon of parts that all need a delta."""
    sq_mu = _sq_mu(parts)
    if sq_mu is not None:
        return _gaussian_epsilon(sq_mu, delta, neighboring_relation)
    if any(leaf.kind == "search" for leaf in parts):
        return _search_epsilon(parts, delta, neighboring_relation)
    _check_delta(delta)
    if hidden_by_noise(parts, delta, neighboring_relation):
        approximate = _sq_mu(parts, sampling="approximate") or 0.0
        about = max(1.0, _gaussian_epsilon(approximate, delta, neighboring_relation))
        return _refined(parts, delta, neighboring_relation, about)
    # Too little noise for the accountant to finish: what sampling saves is not counted.
    sq_mu = _sq_mu(parts, sampling="ignore") or 0.0
    return _gaussian_epsilon(sq_mu, delta, neighboring_relation)


def hidden_by_noise(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> bool:
    """Whether there is noise enough for the accountant of sampled Gaussians to finish."""
    approximate = _sq_mu(parts, sampling="approximate")
    if approximate is None or approximate >= 1e4 or _least_sampled(parts) < _LEAST_MULTIPLIER:
        return False
    return _gaussian_epsilon(approximate, delta, neighboring_relation) <= 1e4


def _search_epsilon(parts: tuple[Leaf, ...], delta: float, neighboring_relation: str) -> float:
    """Epsilon of private searches, and of Gaussians beside them, by the Renyi accountant."""
    from dp_accounting.rdp import RdpAccountant

    from dpsubspace._events import event_of

    if neighboring_relation != "zero_out":
        raise PrivacyError(
            "a private search can be counted for neighboring_relation='zero_out' only, not for"
            f" {neighboring_relation!r}."
        )
    return float(RdpAccountant().compose(event_of(parts)).get_epsilon(delta))


def gaussian_epsilon(sq_mu: float, delta: float) -> float:
    """Epsilon of the Gaussian mechanism of ``sqrt(sq_mu)``, under the relation that it is for."""
    import dp_accounting as dpa

    if sq_mu == 0 or sq_mu == math.inf:
        return sq_mu
    return float(dpa.get_epsilon_gaussian(sq_mu**-0.5, delta))


def gaussian_sq_mu(epsilon: float, delta: float) -> float:
    """Largest square of mu, nearly, with :func:`gaussian_epsilon` at most `epsilon`."""
    import dp_accounting as dpa

    if epsilon <= 0 or delta <= 0:
        return 0.0
    sq_mu, deflation = float(dpa.get_sigma_gaussian(epsilon, delta)) ** -2, 1e-15
    while gaussian_epsilon(sq_mu, delta) > epsilon:
        sq_mu *= 1 - deflation
        deflation *= 2
    return sq_mu


def _gaussian_epsilon(sq_mu: float, delta: float, neighboring_relation: str) -> float:
    """Epsilon of a Gaussian mechanism; `sq_mu` is against the norm of one record."""
    # Under replace_one a record moves a sum by twice its norm: mu doubles.
    return gaussian_epsilon(sq_mu * _doubling(neighboring_relation) ** 2, delta)


def _refined(
    parts: tuple[Leaf, ...], delta: float, neighboring_relation: str, about: float
) -> float:
    """Epsilon by the PLD accountant, on a grid for `about` that much and then finer ones."""
    grid = _grid_for(about, parts)
    cost = _pld_epsilon(parts, delta, neighboring_relation, grid)
    while (finer := _grid_for(cost, parts)) < grid / 2:  # small epsilons need a fine grid
        grid, cost = finer, _pld_epsilon(parts, delta, neighboring_relation, finer)
    return cost


# Above this epsilon, which protects nobody, and below this multiplier, batches are charged
# as if nothing were sampled, and mechanisms without a delta by the sum of their epsilons.
_LARGEST_SAMPLED = 100.0
_LEAST_MULTIPLIER = 0.1

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


def _check_delta(delta: float) -> None:
    if delta < SMALLEST_DELTA:
        raise PrivacyError(
            f"delta={delta:.3g} is below what can be computed for sampled batches"
            f" ({SMALLEST_DELTA:g}). Use a larger delta, or batch_size=None."
        )


def _grid_for(epsilon: float, parts: tuple[Leaf, ...]) -> float:
    """Discretisation of the PLD accountant; results are upper bounds at any value.

    A part of epsilon, and a fifth of the typical loss of one step: rounding up adds a
    little at every step. No finer than 1e-5 of the largest loss of a step.
    """
    steps = sum(leaf.count for leaf in parts)
    sq_mu = _sq_mu(parts, sampling="approximate") or 1.0
    typical = math.sqrt(min(sq_mu, 1e4) / steps)
    least = max(_least_sampled(parts), _LEAST_MULTIPLIER)
    largest = 0.5 / least**2 + 8 / least
    finest = max(1e-9, 1e-5 * largest, epsilon / 1e4)
    return min(1e-2, max(finest, min(epsilon / 500, typical / 5)))


def accountant(parts: tuple[Leaf, ...], neighboring_relation: str, epsilon: float) -> Any:
    """Accountant that holds `parts`, which are no search, on a grid for that epsilon."""
    return _composed(parts, neighboring_relation, _grid_for(epsilon, parts))


def _composed(parts: tuple[Leaf, ...], neighboring_relation: str, grid: float) -> Any:
    import dp_accounting as dpa

    from dpsubspace._events import Accountant, event_of

    relation = {
        "zero_out": dpa.NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[neighboring_relation]
    counting = Accountant(relation, value_discretization_interval=grid)
    return counting.compose(event_of(parts))


def _pld_epsilon(
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


def calibrate(
    make_event: Callable[[float], DpEvent],
    *,
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
    import dp_accounting as dpa

    from dpsubspace._events import event_of

    pure, _, rest = _split(counted(make_event(1.0)), neighboring_relation)
    if pure > 0 and (epsilon > _LARGEST_SAMPLED or delta < SMALLEST_DELTA):
        if pure >= epsilon:
            raise _nothing_left(epsilon, delta)
        return calibrate(
            lambda m: event_of(_split(counted(make_event(m)), neighboring_relation)[2]),
            epsilon=epsilon - pure,
            delta=delta,
            neighboring_relation=neighboring_relation,
        )
    if pure > 0 and _sq_mu(rest, sampling="approximate") == 0:
        raise PrivacyError("only events with a Gaussian mechanism in them can be calibrated.")
    budget = float(dpa.get_sigma_gaussian(epsilon, delta)) ** -2
    budget /= _doubling(neighboring_relation) ** 2
    sampled = _sq_mu(counted(make_event(1.0))) is None
    if sampled and epsilon <= _LARGEST_SAMPLED:
        _check_delta(delta)
        multiplier = _search(make_event, budget, epsilon, delta, neighboring_relation)
    else:
        at_one, at_two = (_sq_mu(counted(make_event(m)), sampling="ignore") for m in (1.0, 2.0))
        if at_one is None or at_two is None:
            raise PrivacyError("only events of (sampled) Gaussian mechanisms can be calibrated.")
        scaled = (at_one - at_two) * 4 / 3
        fixed = max(0.0, at_one - scaled)
        if fixed > 0 and fixed >= budget * (1 - 1e-9):
            raise _nothing_left(epsilon, delta)
        multiplier = math.sqrt(scaled / (budget - fixed))
    inflation = 1e-4 if sampled else 1e-15
    while (
        epsilon_of(make_event(multiplier), delta, neighboring_relation=neighboring_relation)
        > epsilon
    ):
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
            cost = _epsilon_of(parts, delta, neighboring_relation)
        else:
            cost = _pld_epsilon(parts, delta, neighboring_relation, _grid_for(epsilon, parts))
        return math.log(max(cost, 1e-300) / epsilon)

    pure = _split(counted(make_event(1.0)), neighboring_relation)[0] > 0
    # The approximation says too little noise, and the less the fewer steps there are.
    least = math.log(0.3 if epsilon <= 10 else _LEAST_MULTIPLIER * 1.01)
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
        cost = _sq_mu(parts, sampling="approximate")
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
    *,
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
        return epsilon_of(make_event(x), delta, neighboring_relation=neighboring_relation)

    at_one, at_two = (_split(counted(make_event(x)), neighboring_relation)[0] for x in (1.0, 2.0))
    scaled = at_two - at_one
    if not scaled > 1e-9 * at_one:
        raise PrivacyError("nothing in the event is scaled: there is nothing to calibrate.")
    rest = _split(counted(make_event(1.0)), neighboring_relation)[2]
    fixed = max(0.0, at_one - scaled) + _rest_epsilon(rest, delta, neighboring_relation)
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


def default_delta(n_samples: int) -> float:
    """Policy for ``delta="auto"``: min(1e-5, 1 / (10 n_samples))."""
    return min(1e-5, 1 / (10 * n_samples))


def warn_about_delta(delta: float, n_samples: int) -> None:
    """Warn if `delta` allows publishing a record outright with noticeable probability."""
    if delta * n_samples > 1:
        warn(
            f"delta={delta:.3g} is above 1/n_samples={1 / n_samples:.3g}. Such a promise would be"
            " kept even by publishing one whole record, drawn at random. Use delta='auto' or a"
            " value far below 1/n_samples.",
            PrivacyWarning,
            about=("delta", delta),
        )


# The statement on a fitted model ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrivacyGuarantee:
    """Differential privacy of a fitted model, with everything that it rests on.

    Found on every fitted estimator as ``privacy_``. It holds public values only.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        What ran (what was planned, where a callback ended the fit early); compose it
        with other events, or charge it to a ledger.
    epsilon : float
        Privacy loss bound at `delta`; inf for a fit that is not private.
    delta : float
        Additive slack of the bound (not the probability that it fails, which is larger);
        0 for pure differential privacy.
    neighboring_relation : {"zero_out", "replace_one"}
        Which data sets the guarantee cannot tell apart.
    unit : str
        What a record is, for example ``"row"``.
    secure : bool
        Whether the noise came from a cryptographic source. The noise of a seeded fit can
        be removed by anyone who knows the seed, or who sees another fit with that seed.
    public : tuple of str
        What the guarantee assumes to be public knowledge.

    See Also
    --------
    PrivacyLedger : Adds up the guarantees of many fits on the same records.

    Notes
    -----
    ``print(model.privacy_)`` is the statement in words; notebooks show it as a table.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> print(model.privacy_)  # doctest: +NORMALIZE_WHITESPACE
    (epsilon = 1, delta = 1e-05)-differentially private per row
      neighbours  zero_out: one record becomes a null record; their number is public
      released    100 x (Gaussian noise, multiplier 37.3)
      randomness  seeded: whoever knows the seed, or sees it used twice, can remove the noise
      public      number of records (1797), number and names of features (64),
                  set of labels (10, read from y), all parameters but random_state,
                  that the data pass the checks
      covers      this fit only: no other step, score or fit on the same records
    """

    event: DpEvent
    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str
    secure: bool
    public: tuple[str, ...] = ()

    def _rows(self) -> list[tuple[str, str]]:
        relation = self.neighboring_relation
        randomness = (
            "secure: drawn from the operating system"
            if self.secure
            else "seeded: whoever knows the seed, or sees it used twice, can remove the noise"
        )
        rows = [
            ("neighbours", f"{relation}: {RELATION_IN_WORDS[relation]}"),
            ("released", describe(self.event)),
            ("randomness", randomness),
            ("public", ", ".join(self.public)),
            ("covers", "this fit only: no other step, score or fit on the same records"),
        ]
        return rows if self.epsilon < math.inf else rows[1:2]

    def _headline(self) -> str:
        if self.epsilon == math.inf:
            return "NOT private (epsilon = inf)"
        # Rounded up, and multipliers down: a printed statement never claims more than is true.
        epsilon, delta = (rounded(value, math.ceil) for value in (self.epsilon, self.delta))
        slack = f", delta = {delta}" if self.delta else ""  # 0: differential privacy as such
        return f"(epsilon = {epsilon}{slack})-differentially private per {self.unit}"

    def __str__(self) -> str:
        return "\n".join([self._headline(), *(f"  {k:<11} {v}" for k, v in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'>{html.escape(v)}</td></tr>"
            for k, v in self._rows()
        )
        return f"<table><caption><b>{html.escape(self._headline())}</b></caption>{rows}</table>"


def rounded(value: float, towards: Callable[[float], int], digits: int = 4) -> str:
    """`value` with a few digits, rounded by `math.floor` or `math.ceil` (beyond 1e-9 of it)."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    slack = 1e-9 if towards is math.floor else -1e-9
    return f"{towards(value / step * (1 + slack)) * step:.{digits}g}"
