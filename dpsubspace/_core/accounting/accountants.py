"""Read events of ``dp_accounting`` as mechanisms; an event and accountants that it lacks.

:func:`each_mechanism` is the only place that checks the type of an event, and all code that
computes the cost of an event reads its mechanisms. It supports few events and raises for all
others, also for subclasses of those that it supports: an event of unknown cost must not count as
free.

Imports ``dp_accounting``, so it is itself imported inside functions only.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from dpsubspace._core.accounting.library import WITHOUT_LIBRARY
from dpsubspace.exceptions import PrivacyError

try:
    import attr
    import dp_accounting as dpa
    from dp_accounting.dp_event import RepeatAndSelectDpEvent
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.rdp import RdpAccountant
except ImportError as error:
    raise ImportError(WITHOUT_LIBRARY.format(error)) from error

# Mechanisms of bounded range --------------------------------------------------------------------
# Mechanisms whose privacy loss has a bounded range: an event that ``dp_accounting`` lacks.
#
# Imports ``dp_accounting``, so it is itself imported inside functions only.

# Smaller ranges count as this one: with them, differences would drown in rounding errors.
LEAST_RANGE = 1e-6


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(dpa.DpEvent):
    """A mechanism whose privacy loss lies in an interval of length `epsilon` for all outputs.

    The interval may differ between pairs of neighbours. It holds 0, so the mechanism is
    epsilon-differentially private; an example are exponential mechanisms (Dong, Durfee, Rogers,
    2020). `epsilon` refers to the neighbouring relation of the guarantee that the event is part of:
    no accountant doubles it.
    """

    epsilon: float


# Curves and accountants ----------------------------------------------------------------------


@lru_cache(maxsize=64)
def bounded_range_curve(epsilon: float, count: int) -> tuple[float, np.ndarray]:
    """Upper bounds on the hockey-stick divergences of `count` mechanisms of bounded range.

    Each range may be chosen after seeing the outputs before it. Memory and time grow with the
    square of `count`.

    Returns the step of a grid, which holds epsilon a whole number of times, and the divergences of
    orders ``e^a`` for a from ``-n step = -count epsilon`` to ``n step``. Below these the curve is
    ``1 - e^a`` and above them 0.

    Proof. Let H be the largest divergence of the mechanisms after the first one, for any output of
    the first, and P, Q be the first outputs of neighbours, with privacy loss L in ``[t - epsilon,
    t]``. The divergence of the composition is at most ``E_P[H(a - L)] = E_Q[phi(e^L)]`` with
    ``phi(x) = x H(a - log x)``. As H is convex in e^a, phi is convex (a perspective), and the mean
    of e^L under Q is 1: so the mean of phi is largest where L is t or t - epsilon only (generalised
    randomised response). A maximum over t in [0, epsilon] remains (Dong, Durfee, Rogers, 2020).
    Between points of the grid phi is replaced by its chord, which lies above it; with ``x = e^t``
    the mean is then ``u + v / x + w x`` between two of them, and its maximum has a closed form.

    For one mechanism the curve is ``(1 - e^((a - epsilon) / 2))^2 / (1 - e^-epsilon)``. No single
    mechanism attains the whole curve. As a maximum of hockey-stick curves it is itself convex and
    falling in e^a, 1 at 0 and never below ``1 - e^a``: hence it is the curve of a pair of
    distributions, which dominates the mechanisms for all neighbours. Products of dominating pairs
    dominate adaptive compositions (Zhu, Dong, Wang, 2022, Theorem 10), and concurrent compositions,
    in which queries to several mechanisms take turns (Vadhan, Zhang, 2023). Swapping P and Q
    negates L, so one curve serves both directions.
    """
    cells = min(64, max(16, math.ceil(10 * epsilon)))
    step, n, ratio = epsilon / cells, count * cells, math.exp(-epsilon)
    x = np.exp(np.arange(cells + 1) * step)
    # The curve of an empty composition, with margins for the losses of one mechanism.
    orders = np.arange(-n - cells, n + cells + 1) * step
    curve = -np.expm1(np.minimum(orders, 0.0))

    def phi(j: int) -> tuple[np.ndarray, np.ndarray]:
        """Phi at ``e^(j step)`` and at ``e^(j step - epsilon)``, for all orders of the grid."""
        high, low = curve[cells - j :][: 2 * n + 1], curve[2 * cells - j :][: 2 * n + 1]
        return x[j] * high, x[j] * ratio * low

    for _ in range(count):
        largest = np.zeros(2 * n + 1)
        for j in range(cells):
            (high, low), (next_high, next_low) = phi(j), phi(j + 1)
            width = x[j + 1] - x[j]
            slope_high, slope_low = (next_high - high) / width, (next_low - low) / width
            at_0_high, at_0_low = high - slope_high * x[j], low - slope_low * x[j]
            # Coefficients of (1 / x - ratio) phi(x) + (1 - 1 / x) phi(x ratio), with chords for
            # phi:
            u = slope_high - slope_low + at_0_low - ratio * at_0_high
            v, w = at_0_high - at_0_low, slope_low - ratio * slope_high
            # The maximum is inside the interval where v, w < 0, else at an end. The right end is
            # the next left end; at the last right end, t = epsilon, the loss is always 0, as at t =
            # 0.
            inside = (v < 0) & (w < 0)
            at = np.sqrt(np.divide(v, w, out=np.full_like(v, x[j] ** 2), where=inside))
            at = np.clip(at, x[j], x[j + 1])
            largest = np.maximum(largest, u + v / at + w * at)
        curve[cells:-cells] = largest / -math.expm1(-epsilon)
    found = curve[cells:-cells]
    found[:-1] += count * 1e-15 / epsilon  # differences of about epsilon lose that many digits
    return step, np.minimum.accumulate(np.clip(found, 0.0, 1.0))


# What events are made of ------------------------------------------------------------------------

# Number of draws that are composed exactly; blocks of this size are composed by dp_accounting. The
# time grows with the square of the block size, and composing blocks loses about a percent.
BLOCK = 32

# A smaller noise multiplier counts as no noise: its square is too small to divide by.
_LEAST_NOISE = 1e-150


@dataclass(frozen=True)
class Mechanism:
    """A mechanism that runs `count` times."""

    # Type of mechanism: "gaussian", "laplace", "range" or "search". A release without noise is a
    # Gaussian of multiplier 0.
    kind: str
    # Noise multiplier against the norm of one record, or the epsilon of a bounded range.
    value: float
    count: int = 1  # How often it runs
    rate: float = 1.0  # Probability with which a record takes part; below 1 for Gaussians only
    shape: float = 0.0  # Shape of the number of runs of a search; its mean is `value`
    inside: tuple[Mechanism, ...] = ()  # Mechanisms of each run of a search

    @property
    def pure(self) -> bool:
        """Whether the mechanism has an epsilon at a delta of 0."""
        return self.kind in ("laplace", "range")

    @property
    def sampled(self) -> bool:
        return self.rate < 1


def merged(parts: Iterable[Mechanism]) -> tuple[Mechanism, ...]:
    """Merge equal mechanisms into one each; the order in which they ran makes no difference."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for part in parts:
        counts[part.kind, part.value, part.rate, part.shape, part.inside] += part.count
    return tuple(
        Mechanism(kind, value, n, rate, shape, inside)
        for (kind, value, rate, shape, inside), n in counts.items()
    )


def each_mechanism(event: Any) -> Iterator[Mechanism]:
    """Yield the mechanisms of `event`, in order; PrivacyError for an event of unknown cost.

    Sampling at rate 1 counts as no sampling. Gaussians on the same batch count as one Gaussian.
    Only ``NoOpDpEvent`` has no mechanisms.
    """
    kind = type(event)
    if kind is dpa.NoOpDpEvent:
        return
    if kind is dpa.NonPrivateDpEvent:
        yield Mechanism("gaussian", 0.0)
    elif kind is dpa.GaussianDpEvent:
        yield Mechanism("gaussian", _multiplier(event))
    elif kind is dpa.LaplaceDpEvent:
        multiplier = _multiplier(event)
        yield Mechanism("laplace", multiplier) if multiplier else Mechanism("gaussian", 0.0)
    elif kind is BoundedRangeDpEvent:
        yield Mechanism("range", _number(event, "epsilon", low=0.0))
    elif kind is dpa.ComposedDpEvent:
        for part in event.events:
            yield from each_mechanism(part)
    elif kind is dpa.SelfComposedDpEvent:
        count: Any = event.count
        if not (isinstance(count, Integral) and not isinstance(count, bool) and int(count) >= 1):
            raise PrivacyError(
                f"{event} cannot be counted: an event must run a whole number of times, not"
                f" {count}."
            )
        for part in each_mechanism(event.event):
            yield replace(part, count=part.count * int(count))
    elif kind is dpa.PoissonSampledDpEvent:
        yield from _sampled(event)
    elif kind is RepeatAndSelectDpEvent:
        yield _search(event)
    else:
        raise PrivacyError(
            f"{event} cannot be counted: only (sampled) Gaussian mechanisms, Laplace mechanisms,"
            " bounded ranges and private searches over Gaussian ones can, and compositions of"
            " these."
        )


def _number(event: Any, name: str, *, low: float, high: float = math.inf) -> float:
    """Read a field of an event; PrivacyError unless it is finite and from `low` to `high`."""
    value: Any = getattr(event, name)
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= float(value) <= high):  # False for NaN
        most = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
        raise PrivacyError(
            f"{event} cannot be counted: its `{name}` must be a number {most}, not {value!r}."
        )
    return float(value)


def _multiplier(event: Any) -> float:
    multiplier = _number(event, "noise_multiplier", low=0.0)
    return 0.0 if multiplier < _LEAST_NOISE else multiplier


def _sampled(event: Any) -> Iterator[Mechanism]:
    """Yield one Gaussian for all mechanisms on a Poisson batch; the mechanisms, at rate 1."""
    rate = _number(event, "sampling_probability", low=0.0, high=1.0)
    if rate == 0:
        raise PrivacyError(f"{event} cannot be counted: a rate must be in (0, 1], not {rate:g}.")
    inside = list(each_mechanism(event.event))
    if rate == 1 or not inside:
        yield from inside
        return
    if any(part.kind != "gaussian" or part.sampled for part in inside):
        raise PrivacyError(
            f"{event} cannot be counted: only Gaussian mechanisms on Poisson batches can."
        )
    if any(part.value == 0 for part in inside):
        yield Mechanism("gaussian", 0.0)
        return
    alone = len(inside) == inside[0].count == 1  # keeps its last digit
    value = inside[0].value
    if not alone:
        value = math.fsum(part.count / part.value**2 for part in inside) ** -0.5
    yield Mechanism("gaussian", value, rate=rate)


def _search(event: Any) -> Mechanism:
    """Private search over (sampled) Gaussians (Papernot, Steinke, 2022)."""
    mean, shape = _number(event, "mean", low=1.0), event.shape
    shape = math.inf if shape == math.inf else _number(event, "shape", low=0.0)
    inside = merged(each_mechanism(event.event))
    if not inside or any(part.kind != "gaussian" for part in inside):
        raise PrivacyError(f"{event} cannot be counted: only a search over Gaussians can.")
    if any(part.value == 0 for part in inside):
        return Mechanism("gaussian", 0.0)
    return Mechanism("search", mean, shape=shape, inside=inside)


def event_of(parts: Iterable[Mechanism]) -> dpa.DpEvent:
    """Build an event of mechanisms, in a form that every accountant accepts."""
    events = []
    for part in parts:
        if part.kind == "gaussian":
            event = dpa.GaussianDpEvent(part.value) if part.value else dpa.NonPrivateDpEvent()
            event = dpa.PoissonSampledDpEvent(part.rate, event) if part.sampled else event
        elif part.kind == "laplace":
            event = dpa.LaplaceDpEvent(part.value)
        elif part.kind == "range":
            event = BoundedRangeDpEvent(part.value)
        else:
            event = RepeatAndSelectDpEvent(event_of(part.inside), part.value, part.shape)
        events.append(event if part.count == 1 else dpa.SelfComposedDpEvent(event, part.count))
    if not events:
        return dpa.NoOpDpEvent()
    return events[0] if len(events) == 1 else dpa.ComposedDpEvent(events)


# Types of events that a file may hold, with the fields of each type.
_WRITTEN = {
    kind.__name__: (kind, tuple(field.name for field in attr.fields(kind)))
    for kind in (
        dpa.NoOpDpEvent,
        dpa.NonPrivateDpEvent,
        dpa.GaussianDpEvent,
        dpa.LaplaceDpEvent,
        BoundedRangeDpEvent,
        dpa.ComposedDpEvent,
        dpa.SelfComposedDpEvent,
        dpa.PoissonSampledDpEvent,
        RepeatAndSelectDpEvent,
    )
}


def plain(event: dpa.DpEvent) -> dict[str, Any]:
    """Convert an event of known cost to types that JSON supports; infinity becomes a string."""

    def value(field: Any) -> Any:
        if isinstance(field, dpa.DpEvent):
            return plain(field)
        if isinstance(field, (list, tuple)):
            return [plain(part) for part in field]
        if isinstance(field, Integral):
            return int(field)
        return "inf" if field == math.inf else float(field)

    name = type(event).__name__
    return {"type": name, **{field: value(getattr(event, field)) for field in _WRITTEN[name][1]}}


def event_from(written: Any) -> dpa.DpEvent:
    """Rebuild the event that :func:`plain` wrote; PrivacyError for anything else."""

    def value(field: Any) -> Any:
        if isinstance(field, dict):
            return built(field)
        if isinstance(field, list):
            return [built(part) for part in field]
        return math.inf if field == "inf" else field

    def built(written: Any) -> dpa.DpEvent:
        name = written.get("type") if isinstance(written, dict) else None
        kind, fields = _WRITTEN.get(name, (None, ())) if isinstance(name, str) else (None, ())
        if kind is None or written.keys() != {"type", *fields}:
            raise PrivacyError(f"{written!r} is not an event.")
        return kind(**{field: value(written[field]) for field in fields})

    event = built(written)
    try:
        list(each_mechanism(event))
    except (AttributeError, TypeError) as error:  # for example, a number in place of an event
        raise PrivacyError(f"{written!r} is not an event.") from error
    return event


class Accountant(PLDAccountant):
    """Accountant of privacy loss distributions that also knows a bounded range.

    It supports Laplace events under replace-one too, in the same way as Gaussian ones: their
    multiplier is against the norm of one record, and replacing a record moves the sum by twice that
    norm.
    """

    def _maybe_compose(self, event: dpa.DpEvent, count: int, do_compose: bool) -> Any:
        replace_one = self.neighboring_relation == dpa.NeighboringRelation.REPLACE_ONE
        if isinstance(event, BoundedRangeDpEvent):
            if do_compose:
                blocks, rest = divmod(count, BLOCK)
                if blocks:
                    self._add(self._bounded_range(event.epsilon, BLOCK).self_compose(blocks))
                if rest:
                    self._add(self._bounded_range(event.epsilon, rest))
        elif isinstance(event, dpa.LaplaceDpEvent) and replace_one:
            if do_compose:
                one = pld.from_laplace_mechanism(
                    event.noise_multiplier / 2,
                    value_discretization_interval=self._value_discretization_interval,
                )
                self._add(one.self_compose(count))
        else:
            return super()._maybe_compose(event, count, do_compose)
        return None

    def curve(self, orders: np.ndarray) -> np.ndarray:
        """Hockey-stick divergences of orders ``e^a`` for rising a >= 0, the larger of both ways."""
        return np.asarray(self._pld.get_delta_for_epsilon(orders.tolist()))

    def _add(self, new: pld.PrivacyLossDistribution) -> None:
        self._pld = self._pld.compose(new)

    def _bounded_range(self, epsilon: float, count: int) -> pld.PrivacyLossDistribution:
        """Privacy loss distribution on the accountant's grid that dominates `count` mechanisms."""
        interval, epsilon = self._value_discretization_interval, max(epsilon, LEAST_RANGE)
        step, curve = bounded_range_curve(epsilon, count)
        most = math.ceil(count * epsilon / interval)
        orders = np.arange(-most, most + 1) * interval
        place = orders / step + len(curve) // 2
        left = np.clip(np.floor(place).astype(int), 0, len(curve) - 2)
        # Chords in e^a lie above the curve. At the ends of the grid the curve is known.
        share = np.clip(np.expm1((place - left) * step) / math.expm1(step), 0.0, 1.0)
        divergences = curve[left] * (1 - share) + curve[left + 1] * share
        divergences = np.where(place < 0, -np.expm1(np.minimum(orders, 0.0)), divergences)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            interval, -most, most, np.minimum.accumulate(divergences)
        )
        return pld.PrivacyLossDistribution(pmf)


def pld_accountant(
    parts: Iterable[Mechanism], neighboring_relation: str, grid: float
) -> Accountant:
    relation = {
        "zero_out": dpa.NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[neighboring_relation]
    return Accountant(relation, value_discretization_interval=grid).compose(event_of(parts))


def under_add_or_remove(
    parts: Iterable[Mechanism], neighboring_relation: str
) -> tuple[Mechanism, ...]:
    """Restate mechanisms for Renyi accountants, which support the add-or-remove relation only.

    A Gaussian mechanism on all records is a Gaussian mechanism of some mu under either relation: a
    replacement moves its sum by twice the norm of a record, so that under replacement it is a
    mechanism of half the multiplier. Theorems on Renyi divergences, including the theorem on
    private searches, hold for any pair of neighbours and apply unchanged. On a Poisson batch,
    replacing a record gives another pair of mixtures, whose divergence these accountants do not
    compute.
    """
    parts = tuple(parts)
    if neighboring_relation == "zero_out":
        return parts
    inside = [each for part in parts for each in (part.inside or (part,))]
    if any(each.kind != "gaussian" or each.sampled for each in inside):
        raise PrivacyError(
            "a private search under neighboring_relation='replace_one' can be counted for Gaussian"
            " mechanisms on all records only: use batch_size=None, or 'zero_out'."
        )
    return tuple(
        replace(part, inside=under_add_or_remove(part.inside, neighboring_relation))
        if part.inside
        else replace(part, value=part.value / 2)
        for part in parts
    )


def renyi_divergences(parts: Iterable[Mechanism]) -> tuple[np.ndarray, np.ndarray]:
    """Return the orders of the Renyi accountant, and divergences of `parts` under add-or-remove."""
    accountant = renyi_accountant(parts)
    orders, found = (np.asarray(each, float) for each in (accountant._orders, accountant._rdp))
    return orders, np.maximum(found, 0.0)


def renyi_accountant(parts: Iterable[Mechanism]) -> RdpAccountant:
    """Renyi accountant that holds `parts`, under add-or-remove.

    The accountant leaves out orders at which its series do not converge, and logs that. The log
    message can be ignored: with fewer orders the results are larger, and still upper bounds.
    """
    log, quiet = logging.getLogger("absl"), logging.Filter("nothing at all")
    log.addFilter(quiet)
    try:
        relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
        return RdpAccountant(neighboring_relation=relation).compose(event_of(parts))
    finally:
        log.removeFilter(quiet)


def renyi_curve(parts: Sequence[Mechanism], orders: np.ndarray) -> np.ndarray:
    """Hockey-stick divergences of orders ``e^a``, from the Renyi divergences of mechanisms.

    An upper bound for each of `orders`, values of a of at least 0. The parts run under
    add-or-remove: Renyi accountants do not double a replacement.

    With l the likelihood ratio of P to Q under Q and ``t = e^a``, the divergence is ``E (l -
    t)_+``, and Renyi divergences bound ``E l^x`` by ``e^((x - 1) r(x))``. Three bounds follow, and
    the least of them counts. The largest value of ``(l - t) / l^x`` is at ``l = t x / (x - 1)``, so
    the divergence is at most ``e^((x - 1) (r(x) - a)) (1 - 1 / x)^(x - 1) / x`` (Balle et al.,
    2020). It is at most that at t = 1, the total variation, for which Pinsker and Bretagnolle and
    Huber have bounds by the Kullback-Leibler divergence, no larger than any r(x). And of ratios
    with mean 1 and variance at most ``v = e^r(2) - 1`` it is at most ``(sqrt(v + (t - 1)^2) - (t -
    1)) / 2`` (Scarf, 1958).
    """
    x, r = renyi_divergences(parts)
    x, r = x[np.isfinite(r)], r[np.isfinite(r)]
    if not len(x):
        return np.ones_like(orders)
    logs = (x - 1) * (r - orders[:, None]) + (x - 1) * np.log1p(-1 / x) - np.log(x)
    least = r.min()
    total = min(math.sqrt(least / 2), math.sqrt(-math.expm1(-least)), 1.0)
    found = np.minimum(np.exp(np.minimum(logs.min(axis=1), 0.0)), total)
    second = r[x >= 2].min(initial=math.inf)
    if second < 700:
        excess = np.expm1(np.minimum(orders, 350.0))
        variance = math.expm1(second)
        scarf = variance / (np.sqrt(variance + excess**2) + excess) / 2
        found = np.minimum(found, scarf)
    return np.minimum.accumulate(found) * (1 + 1e-9)
