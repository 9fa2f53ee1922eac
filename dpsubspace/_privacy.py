"""What a fit costs: events, calibration, the guarantee on a model, the caller's ledger.

A mechanism is *described* by a ``dp_accounting`` event and *interpreted* here, the only
module that imports ``dp_accounting`` (inside functions: the import is not free).
Compositions of Gaussians, which is what every full-batch fit is, have an exact answer:
they are one Gaussian (Dong, Roth, Su, 2022, Corollary 3.3). Compositions of mechanisms without
a delta cost at most the sum of their epsilons, for any delta. Everything else goes to the
privacy-loss-distribution accountant of ``dp_accounting``.
"""

from __future__ import annotations

import copy
import html
import inspect
import math
import os
import pickle
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import Binarizer, Normalizer

from dpsubspace._torch import TorchFeatures
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError, PrivacyWarning

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "PrivacyGuarantee",
    "PrivacyLedger",
    "bounded_range",
    "calibrate",
    "calibrate_range",
    "composed",
    "default_delta",
    "describe",
    "epsilon_of",
    "gaussian",
    "is_free",
    "laplace",
    "non_private",
    "sampled_gaussian",
    "warn_about_delta",
]

_ROW_BY_ROW = (Binarizer, Normalizer, TorchFeatures)

_RELATION_IN_WORDS = {
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

    return isinstance(event, NoOpDpEvent)


def non_private() -> DpEvent:
    """Event of a release without noise; no ledger takes it."""
    from dp_accounting import NonPrivateDpEvent

    return NonPrivateDpEvent()


def _doubling(neighboring_relation: str) -> int:
    """What a replacement moves a sum by, in norms of one record, for events that count so."""
    return 2 if neighboring_relation == "replace_one" else 1


def _leaves(event: DpEvent, count: int = 1) -> Iterator[tuple[DpEvent, int]]:
    """Parts of a composition, each with the number of times that it runs."""
    import dp_accounting as dpa

    if isinstance(event, dpa.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    elif isinstance(event, dpa.SelfComposedDpEvent):
        if not (isinstance(event.count, Integral) and event.count >= 1):
            raise PrivacyError(f"an event must run a whole number of times, not {event.count}.")
        yield from _leaves(event.event, count * event.count)
    else:
        yield event, count


def _sq_mu(event: DpEvent, *, sampling: str = "refuse") -> float | None:
    """Square of mu where `event` is a Gaussian mechanism composed any number of times.

    None for anything else. Multipliers are taken against the norm of one record. Sampled
    Gaussians are "refuse"d, counted as if every record were in every batch ("ignore": an
    upper bound), or by their central limit ("approximate": Bu, Dong, Long, Su, 2020), which
    is good enough to start a search from and nothing else. So are bounded ranges and
    Laplace mechanisms, by twice their largest mean loss, and by nothing but "approximate".
    """
    import dp_accounting as dpa

    from dpsubspace._events import BoundedRangeDpEvent

    total = [0.0]
    for leaf, count in _leaves(event):
        rate = 1.0
        if isinstance(leaf, dpa.PoissonSampledDpEvent) and sampling != "refuse":
            rate, leaf = leaf.sampling_probability, leaf.event
        if isinstance(leaf, dpa.NoOpDpEvent):
            continue
        if isinstance(leaf, dpa.NonPrivateDpEvent):
            return math.inf
        if sampling == "approximate" and rate == 1:
            if isinstance(leaf, BoundedRangeDpEvent):
                total.append(count * 2 * min(leaf.epsilon**2 / 8, leaf.epsilon))
                continue
            if isinstance(leaf, dpa.LaplaceDpEvent) and leaf.noise_multiplier > 0:
                loss = 1 / leaf.noise_multiplier
                total.append(count * 2 * (loss + math.expm1(-loss)))
                continue
        if not isinstance(leaf, dpa.GaussianDpEvent):
            return None
        multiplier = leaf.noise_multiplier
        if not multiplier >= 0:  # negative or NaN
            raise PrivacyError(f"a noise multiplier must not be {multiplier}.")
        part = math.inf if multiplier < 1e-150 else multiplier**-2
        if rate < 1 and sampling == "approximate":
            part = rate**2 * math.expm1(min(part, 700.0))
        total.append(count * part)
    return math.fsum(total)


def _split(event: DpEvent, neighboring_relation: str) -> tuple[float, DpEvent, DpEvent]:
    """Sum of the epsilons of what has no delta in `event`, the event of that, and of the rest.

    What has no delta is counted together where it is equal: what ran in between, and
    what was chosen after seeing which output, makes no difference (Vadhan, Zhang, 2023).
    """
    import dp_accounting as dpa

    from dpsubspace._events import BoundedRangeDpEvent

    def repeated(leaf: DpEvent, count: int) -> DpEvent:
        return leaf if count == 1 else dpa.SelfComposedDpEvent(leaf, count)

    pure: Counter[DpEvent] = Counter()
    rest, epsilons = [], []
    for leaf, count in _leaves(event):
        if isinstance(leaf, BoundedRangeDpEvent):
            epsilon = leaf.epsilon
        elif isinstance(leaf, dpa.LaplaceDpEvent):
            multiplier = leaf.noise_multiplier
            epsilon = _doubling(neighboring_relation) / multiplier if multiplier else math.inf
        else:
            rest.append(repeated(leaf, count))
            continue
        if not epsilon >= 0:  # negative or NaN
            raise PrivacyError(f"{leaf} makes no sense: its epsilon must not be {epsilon}.")
        pure[leaf] += count
        epsilons.append(count * epsilon)
    parts = [repeated(leaf, count) for leaf, count in pure.items()]
    return math.fsum(epsilons), composed(parts), composed(rest)


def describe(event: DpEvent) -> str:
    """`event` in a line of English."""
    import dp_accounting as dpa

    from dpsubspace._events import BoundedRangeDpEvent

    if isinstance(event, BoundedRangeDpEvent):
        return f"exponential mechanism, epsilon {_rounded(event.epsilon, math.ceil)}"
    if isinstance(event, dpa.LaplaceDpEvent):
        return f"Laplace noise, multiplier {_rounded(event.noise_multiplier, math.floor)}"
    if isinstance(event, dpa.GaussianDpEvent):
        return f"Gaussian noise, multiplier {_rounded(event.noise_multiplier, math.floor)}"
    if isinstance(event, dpa.PoissonSampledDpEvent):
        return (
            f"on a Poisson batch of rate {event.sampling_probability:.4g}: {describe(event.event)}"
        )
    if isinstance(event, dpa.SelfComposedDpEvent):
        return f"{event.count} x ({describe(event.event)})"
    if isinstance(event, dpa.ComposedDpEvent):
        return " + ".join(describe(part) for part in event.events)
    if isinstance(event, dpa.NonPrivateDpEvent):
        return "without noise: not private"
    if isinstance(event, dpa.NoOpDpEvent):
        return "nothing that depends on the records"
    return str(event)


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
    pure, pure_event, rest = _split(event, neighboring_relation)
    cost = _rest_epsilon(rest, delta, neighboring_relation)
    # A sum of epsilons holds for any delta, and where the accountant would not finish.
    if pure == 0 or pure + cost == math.inf or delta < _SMALLEST_DELTA:
        return pure + cost
    event = composed([pure_event, rest])
    approximate = _sq_mu(event, sampling="approximate")
    about = pure + cost
    if approximate is not None:
        about = min(about, _gaussian_epsilon(approximate, delta, neighboring_relation))
    if about > _LARGEST_SAMPLED or _least_sampled(event) < _LEAST_MULTIPLIER:
        return pure + cost
    return min(pure + cost, max(cost, _refined(event, delta, neighboring_relation, about)))


def _rest_epsilon(event: DpEvent, delta: float, neighboring_relation: str) -> float:
    """Epsilon of an event of which every part needs a delta."""
    sq_mu = _sq_mu(event)
    if sq_mu is not None:
        return _gaussian_epsilon(sq_mu, delta, neighboring_relation)
    approximate = _sq_mu(event, sampling="approximate")
    about = 1.0
    if approximate is not None:
        _check_delta(delta)
        about = math.inf
        if approximate < 1e4:
            about = max(1.0, _gaussian_epsilon(approximate, delta, neighboring_relation))
        if about > 1e4 or _least_sampled(event) < _LEAST_MULTIPLIER:
            # Too little noise for the accountant to finish: what sampling saves is not counted.
            sq_mu = _sq_mu(event, sampling="ignore") or 0.0
            return _gaussian_epsilon(sq_mu, delta, neighboring_relation)
    return _refined(event, delta, neighboring_relation, about)


def _gaussian_epsilon(sq_mu: float, delta: float, neighboring_relation: str) -> float:
    """Epsilon of a Gaussian mechanism; `sq_mu` is against the norm of one record."""
    import dp_accounting as dpa

    # Under replace_one a record moves a sum by twice its norm: mu doubles.
    mu = math.sqrt(sq_mu) * _doubling(neighboring_relation)
    return mu if mu == 0 or mu == math.inf else float(dpa.get_epsilon_gaussian(1 / mu, delta))


def _refined(event: DpEvent, delta: float, neighboring_relation: str, about: float) -> float:
    """Epsilon by the PLD accountant, on a grid for `about` that much and then finer ones."""
    grid = _grid_for(about, event)
    cost = _pld_epsilon(event, delta, neighboring_relation, grid)
    while (finer := _grid_for(cost, event)) < grid / 2:  # small epsilons need a fine grid
        grid, cost = finer, _pld_epsilon(event, delta, neighboring_relation, finer)
    return cost


# Above this epsilon, which protects nobody, and below this multiplier, batches are charged
# as if nothing were sampled, and mechanisms without a delta by the sum of their epsilons.
_LARGEST_SAMPLED = 100.0
_LEAST_MULTIPLIER = 0.1

# The accountant cuts off probabilities of about a tenth of this.
_SMALLEST_DELTA = 1e-14


def _least_sampled(event: DpEvent) -> float:
    """Least multiplier of a sampled Gaussian in `event`."""
    import dp_accounting as dpa

    sampled = (leaf for leaf, _ in _leaves(event) if isinstance(leaf, dpa.PoissonSampledDpEvent))
    multipliers = (getattr(leaf.event, "noise_multiplier", math.inf) for leaf in sampled)
    return min(multipliers, default=math.inf)


def _check_delta(delta: float) -> None:
    if delta < _SMALLEST_DELTA:
        raise PrivacyError(
            f"delta={delta:.3g} is below what can be computed for sampled batches"
            f" ({_SMALLEST_DELTA:g}). Use a larger delta, or batch_size=None."
        )


def _grid_for(epsilon: float, event: DpEvent) -> float:
    """Discretisation of the PLD accountant; results are upper bounds at any value.

    A part of epsilon, and a fifth of the typical loss of one step: rounding up adds a
    little at every step. No finer than 1e-5 of the largest loss of a step.
    """
    steps = sum(count for _, count in _leaves(event))
    sq_mu = _sq_mu(event, sampling="approximate") or 1.0
    typical = math.sqrt(min(sq_mu, 1e4) / steps)
    least = max(_least_sampled(event), _LEAST_MULTIPLIER)
    largest = 0.5 / least**2 + 8 / least
    finest = max(1e-9, 1e-5 * largest, epsilon / 1e4)
    return min(1e-2, max(finest, min(epsilon / 500, typical / 5)))


def _pld_epsilon(event: DpEvent, delta: float, neighboring_relation: str, grid: float) -> float:
    """Upper bound on the epsilon of `event` by privacy loss distributions."""
    import dp_accounting as dpa

    from dpsubspace._events import Accountant

    relation = {
        "zero_out": dpa.NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[neighboring_relation]
    try:
        accountant = Accountant(relation, value_discretization_interval=grid)
        return float(accountant.compose(event).get_epsilon(delta))
    except dpa.UnsupportedEventError as error:
        raise PrivacyError(
            f"the PLD accountant does not support {event} under {neighboring_relation!r};"
            " charge an event made of Gaussian mechanisms instead."
        ) from error


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

    pure, _, rest = _split(make_event(1.0), neighboring_relation)
    if pure > 0 and (epsilon > _LARGEST_SAMPLED or delta < _SMALLEST_DELTA):
        if pure >= epsilon:
            raise _nothing_left(epsilon, delta)
        return calibrate(
            lambda m: _split(make_event(m), neighboring_relation)[2],
            epsilon=epsilon - pure,
            delta=delta,
            neighboring_relation=neighboring_relation,
        )
    if pure > 0 and _sq_mu(rest, sampling="approximate") == 0:
        raise PrivacyError("only events with a Gaussian mechanism in them can be calibrated.")
    budget = float(dpa.get_sigma_gaussian(epsilon, delta)) ** -2
    budget /= _doubling(neighboring_relation) ** 2
    sampled = _sq_mu(make_event(1.0)) is None
    if sampled and epsilon <= _LARGEST_SAMPLED:
        _check_delta(delta)
        multiplier = _search(make_event, budget, epsilon, delta, neighboring_relation)
    else:
        at_one, at_two = (_sq_mu(make_event(m), sampling="ignore") for m in (1.0, 2.0))
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
        event = make_event(math.exp(log_multiplier))
        if pure:
            cost = epsilon_of(event, delta, neighboring_relation=neighboring_relation)
        else:
            cost = _pld_epsilon(event, delta, neighboring_relation, _grid_for(epsilon, event))
        return math.log(max(cost, 1e-300) / epsilon)

    pure = _split(make_event(1.0), neighboring_relation)[0] > 0
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
        cost = _sq_mu(make_event(math.exp(log_multiplier)), sampling="approximate")
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

    at_one, at_two = (_split(make_event(x), neighboring_relation)[0] for x in (1.0, 2.0))
    scaled = at_two - at_one
    if not scaled > 1e-9 * at_one:
        raise PrivacyError("nothing in the event is scaled: there is nothing to calibrate.")
    rest = _split(make_event(1.0), neighboring_relation)[2]
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


def warn_about_delta(delta: float, n_samples: int, *, stacklevel: int) -> None:
    """Warn if `delta` allows publishing a record outright with noticeable probability."""
    if delta * n_samples > 1:
        warnings.warn(
            f"delta={delta:.3g} is above 1/n_samples={1 / n_samples:.3g}: publishing one record"
            " at random would satisfy it. Use delta='auto' or a value far below 1/n_samples.",
            PrivacyWarning,
            stacklevel=stacklevel + 1,
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
            ("neighbours", f"{relation}: {_RELATION_IN_WORDS[relation]}"),
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
        epsilon, delta = (_rounded(value, math.ceil) for value in (self.epsilon, self.delta))
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


def _rounded(value: float, towards: Callable[[float], int], digits: int = 4) -> str:
    """`value` with a few digits, rounded by `math.floor` or `math.ceil` (beyond 1e-9 of it)."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    slack = 1e-9 if towards is math.floor else -1e-9
    return f"{towards(value / step * (1 + slack)) * step:.{digits}g}"


# The ledger ---------------------------------------------------------------------------------


class PrivacyLedger:
    """Budget for one set of private records, owned by whoever answers for them.

    Every fit on those records is charged here; a charge that would overspend is refused
    and leaves no trace. Estimators hold no ledger, so ``clone`` and cross-validation
    cannot multiply it unseen.

    Parameters
    ----------
    epsilon : float
        Budget, greater than 0.
    delta : float
        Delta of the budget, in (0, 1).
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        Relation of every guarantee charged here.
    unit : str, default="row"
        Unit of every guarantee charged here.
    allow_seeded : bool, default=False
        Whether to take fits with a `random_state`, for tests and teaching. Two fits with
        one seed have one noise, which their difference cancels: no ledger can count that.

    Attributes
    ----------
    entries : tuple of (str, DpEvent)
        What has been charged, in order.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    See Also
    --------
    PrivacyGuarantee : What one fitted model promises.

    Notes
    -----
    Composition is exact for Gaussian mechanisms and numerical (privacy loss
    distributions) for others; a sum of epsilons only where that is less. A ledger cannot be
    copied, pickled or charged from a forked process: two copies would spend one budget twice.
    ``save`` and ``load`` keep the spend between sessions.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier, PrivacyLedger
    >>> X, y = load_digits(return_X_y=True)
    >>> ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="first model")
    >>> print(f"{ledger.epsilon():.3f}")
    1.000
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="second model")
    >>> print(f"{ledger.epsilon():.3f}")
    1.465
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        neighboring_relation: str = "zero_out",
        unit: str = "row",
        allow_seeded: bool = False,
    ):
        for name, value, most in (("epsilon", epsilon, math.inf), ("delta", delta, 1)):
            real = isinstance(value, Real) and not isinstance(value, bool)
            if not (real and 0 < value < most):
                raise ValueError(f"`{name}` must be a number in (0, {most}), got {value!r}.")
        if neighboring_relation not in _RELATION_IN_WORDS:
            raise ValueError(
                f"`neighboring_relation` must be one of {sorted(_RELATION_IN_WORDS)},"
                f" got {neighboring_relation!r}."
            )
        self.budget = float(epsilon)
        self.delta = float(delta)
        self.neighboring_relation = neighboring_relation
        self.unit = unit
        self.allow_seeded = allow_seeded
        self._entries: list[tuple[str, DpEvent]] = []
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def entries(self) -> tuple[tuple[str, DpEvent], ...]:
        """What has been charged, in order: (label, event)."""
        return tuple(copy.deepcopy(self._entries))

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all charges together.

        Parameters
        ----------
        delta : float, optional
            Delta to state it at; the ledger's by default.

        Returns
        -------
        float
            At most the budget where `delta` is the ledger's.
        """
        return self._cost([event for _, event in self._entries], delta)

    def remaining(self) -> float:
        """Return the largest epsilon that one more Gaussian fit can have.

        Returns
        -------
        float
            At the ledger's delta; 0 when nothing is left. More than the budget less
            ``epsilon()``, since guarantees do not simply add up.

        Raises
        ------
        PrivacyError
            If an entry has a part that no accountant here supports.
        """
        if self.epsilon() >= self.budget:
            return 0.0
        spent = [event for _, event in self._entries]
        target = {"delta": self.delta, "neighboring_relation": self.neighboring_relation}
        try:
            multiplier = calibrate(
                lambda m: composed([*spent, gaussian(m)]), epsilon=self.budget, **target
            )
        except PrivacyBudgetError:
            return 0.0
        return epsilon_of(gaussian(multiplier), **target)

    def charge(
        self,
        event: DpEvent | PrivacyGuarantee,
        label: str = "",
        *,
        already_released: bool = False,
    ) -> None:
        """Record `event`, or refuse it and record nothing.

        Parameters
        ----------
        event : DpEvent, PrivacyGuarantee or Released
            What ran or is about to run on the records of this ledger.
        label : str, default=""
            Name of the entry in the ledger's printed form.
        already_released : bool, default=False
            Record it even over budget: what is out cannot be refused. Nothing then remains. A
            seeded fit is recorded as not private at all, unless `allow_seeded`.

        Raises
        ------
        PrivacyBudgetError
            If all entries with this one would cost more than the budget.
        PrivacyError
            If a guarantee is for another relation or unit, or its noise is seeded, or the
            event is one that cannot be counted, or another process than the ledger's asks.
        """
        import dp_accounting as dpa

        if not isinstance(label, str):
            raise ValueError(f"`label` must be a str, got {type(label).__name__}.")
        event = getattr(event, "privacy", event)  # what a private function returned
        if isinstance(event, PrivacyGuarantee):
            known = event.secure or already_released
            if not is_free(event.event):
                self._check_match(event.neighboring_relation, event.unit, known)
            event = event.event if event.secure or self.allow_seeded else non_private()
        elif not isinstance(event, dpa.DpEvent):
            raise PrivacyError(
                f"a ledger counts events and guarantees, not {type(event).__name__}: pass"
                " model.privacy_ or model.privacy_event(...)."
            )
        if os.getpid() != self._process:
            raise PrivacyError(
                "a forked process has a copy of the ledger, and what it charges would be lost."
                " Fit in the process that made the ledger."
            )
        event = copy.deepcopy(event)  # a composed event holds a list, which could change
        with self._lock:
            try:
                total = self._cost([*(entry for _, entry in self._entries), event])
            except (ValueError, OverflowError) as error:
                raise PrivacyError(f"{event} cannot be counted: {error}") from error
            if not (already_released or self._covers(total)):
                raise PrivacyBudgetError(
                    f"charging {label or 'this'} would bring the total to"
                    f" epsilon={total:.4g} at delta={self.delta:.3g}, over the budget of"
                    f" {self.budget:.4g}. Nothing was recorded. remaining() tells what a fit with"
                    f" delta={self.delta:.3g} may cost; if this has been released already, record"
                    " it with already_released=True."
                )
            self._entries.append((label, event))

    def fit(self, estimator: Any, X: Any, y: Any = None, *, label: str = "", **fit_params: Any):
        """Fit `estimator` on the ledger's records and charge what it releases.

        The cost is reserved before the fit sees any data. A fit that fails before its
        first release is given back; one that fails after it stays charged.

        Parameters
        ----------
        estimator : estimator or Pipeline
            One with ``privacy_event``, or a Pipeline that ends in one and whose other steps
            have it too, work row by row, or are a ColumnTransformer of such (see
            ``docs/privacy.md``).
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,), default=None
            Private targets.
        label : str, default=""
            Name of the entry; the class name if empty.
        **fit_params : dict
            Passed to ``estimator.fit``.

        Returns
        -------
        estimator
            The fitted `estimator` itself.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not suffice; nothing was fitted, released or recorded (unless
            the message says that the fit cost more than planned).
        PrivacyError
            If `estimator` cannot say what it will spend, or spends in another relation or
            unit, or with a seed.
        """
        label = label or type(estimator).__name__
        parts = _private_parts(estimator)
        n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
        plans = [
            part.privacy_event(n_samples, **_targets(part, y), **_public(part, fit_params))
            for part in parts
        ]
        for part, plan in zip(parts, plans, strict=True):
            unit = getattr(part, "privacy_unit", "row")
            if not is_free(plan):  # what releases nothing has no relation and no noise
                self._check_match(part.neighboring_relation, unit, part.random_state is None)
        planned = composed(plans)
        warn_about_delta(self.delta, n_samples, stacklevel=2)
        before = [getattr(part, "privacy_", None) for part in parts]
        with self._lock:
            self.charge(planned, label)
            entry = self._entries[-1]
        try:
            estimator.fit(X, y, **fit_params)
        except BaseException:
            if not _fits_clones(estimator):  # their releases are not seen here
                now = [getattr(part, "privacy_", None) for part in parts]
                ran = [new is not old for new, old in zip(now, before, strict=True)]
                if not any(ran):
                    self._replace(entry)
                else:
                    spent = [
                        guarantee.event if guarantee else plan
                        for guarantee, plan, released in zip(now, plans, ran, strict=True)
                        if released
                    ]
                    self._replace(entry, (label, copy.deepcopy(composed(spent))))
            raise
        fitted = _private_parts(estimator, fitted=True)
        # A ColumnTransformer leaves a part unfitted that gets no column.
        ran = composed([part.privacy_.event for part in fitted if hasattr(part, "privacy_")])
        if ran != planned:  # rows were dropped on the way, say
            self._replace(entry, (label, copy.deepcopy(ran)))
            if not self._covers(self.epsilon()):
                raise PrivacyBudgetError(
                    f"{label} cost more than planned, and more than the budget:"
                    f" epsilon={self.epsilon():.4g} of {self.budget:.4g} is spent and recorded."
                )
        return estimator

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger to a file.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        """
        with self._lock:
            private = {"_lock", "_process"}
            state = pickle.dumps({k: v for k, v in self.__dict__.items() if k not in private})
        # Written beside and moved into place: a full disk must not cost the old record.
        target = Path(path)
        beside = target.with_name(target.name + ".new")
        beside.write_bytes(state)
        os.replace(beside, target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """Read a ledger that `save` wrote.

        Parameters
        ----------
        path : path-like
            File to read, from a source that is trusted: it is a pickle.

        Returns
        -------
        PrivacyLedger
            With the spend at the time it was saved. It is on the caller to go on with one
            ledger only.
        """
        ledger = cls.__new__(cls)
        ledger.__dict__.update(pickle.loads(Path(path).read_bytes()))
        ledger._lock = threading.RLock()
        ledger._process = os.getpid()
        return ledger

    def _check_match(self, relation: str, unit: str, secure: bool) -> None:
        """Raise PrivacyError unless such a fit can be added to this ledger."""
        ours, theirs = (self.neighboring_relation, self.unit), (relation, unit)
        if theirs != ours:
            raise PrivacyError(
                f"the ledger counts {ours} and the fit is for {theirs}: they do not add up."
                " Set `neighboring_relation`, or open a ledger for that relation and unit."
            )
        if not secure and not self.allow_seeded:
            raise PrivacyError(
                "a fit with a `random_state` cannot be counted: another fit with the same seed"
                " cancels its noise. Leave random_state=None, or open the ledger with"
                " allow_seeded=True for a demonstration."
            )

    def __repr__(self) -> str:
        return str(self)

    def _replace(self, entry: tuple[str, DpEvent], *by: tuple[str, DpEvent]) -> None:
        with self._lock:
            place = next(i for i, kept in enumerate(self._entries) if kept is entry)
            self._entries[place : place + 1] = by

    def _covers(self, epsilon: float) -> bool:
        """Whether the budget does, up to rounding; never for NaN."""
        return epsilon <= self.budget * (1 + 1e-12)

    def _cost(self, events: list[DpEvent], delta: float | None = None) -> float:
        return epsilon_of(
            composed(events),
            self.delta if delta is None else delta,
            neighboring_relation=self.neighboring_relation,
        )

    def __str__(self) -> str:
        lines = [
            f"PrivacyLedger: epsilon {self.epsilon():.4g} of {self.budget:.4g} spent"
            f" at delta = {self.delta:.3g} per {self.unit}, {self.neighboring_relation}"
        ]
        lines += [f"  {label or '(no label)'}: {describe(event)}" for label, event in self._entries]
        return "\n".join(lines)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "a PrivacyLedger cannot be copied, pickled or sent to another process: two copies"
            " would spend one budget twice. Pass the ledger itself; save() and load() keep it"
            " between sessions."
        )


def _private_parts(estimator: Any, *, fitted: bool = False) -> list[Any]:
    """Estimators inside `estimator` that can say what they will spend, or have spent."""
    if _is_private(estimator):
        return [estimator]
    steps = getattr(estimator, "steps", None)
    if steps is None:
        raise PrivacyError(
            f"{type(estimator).__name__} cannot say what its fit will spend. A ledger fits"
            " private estimators and Pipelines of them; for anything that fits clones"
            " (grid search, cross-validation, ensembles) charge each clone's"
            " privacy_event() yourself, or use public data."
        )
    parts = []
    for name, step in _flat_steps(steps, fitted):
        if _is_private(step):
            parts.append(step)
        elif not (fitted or _works_row_by_row(step)):  # fitted steps were checked before
            raise PrivacyError(
                f"step {name!r} ({type(step).__name__}) may learn from the private rows without"
                " any privacy, and the Pipeline would have no guarantee. Scale columns by a"
                " BoundedScaler; fit anything else on public rows and wrap it in"
                " sklearn.frozen.FrozenEstimator; freeze a FunctionTransformer if you vouch for"
                " its function to look at one row at a time."
            )
    if not _is_private(steps[-1][1]):
        raise PrivacyError("the last step of the Pipeline is not private: nothing to charge.")
    return parts


def _flat_steps(steps: Iterable[tuple[Any, ...]], fitted: bool) -> Iterator[tuple[str, Any]]:
    """Steps with the transformers of a ColumnTransformer in its place."""
    for name, step, *_ in steps:
        if type(step) is ColumnTransformer:
            _check_columns(name, step)
            inner = step.transformers_ if fitted else step.transformers
            yield from _flat_steps(inner, fitted)
            if not fitted:
                yield "remainder", step.remainder
        else:
            yield name, step


def _check_columns(name: str, step: ColumnTransformer) -> None:
    """PrivacyError if `step` itself would learn from the rows."""
    if any(callable(c) and not isinstance(c, make_column_selector) for *_, c in step.transformers):
        raise PrivacyError(
            f"step {name!r} chooses columns by a function, which may look at the private rows:"
            " give names, positions or a make_column_selector."
        )
    if step.sparse_threshold != 0:
        raise PrivacyError(
            f"step {name!r} may count the zeros of the private rows to choose between a dense and"
            " a sparse matrix: set sparse_threshold=0 for a dense one."
        )


def _fits_clones(estimator: Any) -> bool:
    """Whether the fit of a Pipeline may leave the steps that it was given unfitted."""
    if getattr(estimator, "memory", None) is not None:
        return True
    steps = getattr(estimator, "steps", ())
    return any(type(step) is ColumnTransformer for _, step in steps)


def _targets(part: Any, y: Any) -> dict[str, int]:
    """Number of targets of a regressor, which its cost may depend on."""
    if not is_regressor(part):
        return {}
    shape = np.shape(y)
    return {"n_outputs": shape[1] if len(shape) == 2 else 1}


def _public(part: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
    """Whether there are public rows and labels, which the cost may depend on."""
    if "n_public" not in inspect.signature(part.privacy_event).parameters:
        return {}
    given = {name.split("__")[-1] for name, value in fit_params.items() if value is not None}
    return {"n_public": int("X_public" in given), "labelled": "y_public" in given}


def _is_private(step: Any) -> bool:
    return hasattr(step, "privacy_event") and not isinstance(step, FrozenEstimator)


def _works_row_by_row(step: Any) -> bool:
    """Whether `step` maps each row by itself and takes nothing else from the rows.

    scikit-learn's tag `requires_fit` does not tell: a FunctionTransformer may scale by
    the columns that it is given.
    """
    if isinstance(step, FrozenEstimator) or step is None:
        return True
    if isinstance(step, str):
        return step in ("passthrough", "drop")
    return type(step) in _ROW_BY_ROW  # a subclass may do anything
