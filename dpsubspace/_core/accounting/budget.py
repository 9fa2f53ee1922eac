"""Privacy budgets: the requested privacy, the releases that share it, their event and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq

from dpsubspace._core.accounting.cost import (
    SMALLEST_DELTA,
    Cost,
    check_smallest_delta,
    gaussian_epsilon,
    gaussian_sq_mu,
    searched_sq_mu,
)
from dpsubspace._core.accounting.events import (
    NEIGHBORING_RELATIONS,
    composed,
    doubling,
    mechanisms_of,
    non_private,
    rounded,
)
from dpsubspace._core.accounting.payer import payer_of
from dpsubspace._core.ground.checks import check_auto, check_choice, check_integer, check_real
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError, PrivacyWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._core.accounting.accountants import Mechanism


# Calibration of noise ---------------------------------------------------------------------------
# Least noise that a budget allows.


def calibrate(cost_at: Callable[[float], Cost], epsilon: float, delta: float) -> float:
    """Least noise multiplier at which ``cost_at(multiplier)`` is at most `epsilon`.

    For a composition of Gaussians, whose mu^2 is ``a + b / multiplier^2`` (a fixed part and a part
    that the multiplier scales), by a closed form. Otherwise by a search from the central-limit
    approximation, within one part in a thousand. Mechanisms without a delta (bounded ranges and
    Laplace mechanisms) are fixed parts. The result is inflated until the evaluated epsilon is at
    most the target, so rounding is always on the private side.

    PrivacyError if the fixed part alone costs more than `epsilon`.
    """
    at_one = cost_at(1.0)
    exact = at_one.sq_mu() is not None
    if not exact:
        pure, rest = at_one.split_pure()
        if pure > 0 and (at_one.adds_up or delta < SMALLEST_DELTA):
            if pure >= epsilon:
                raise _nothing_left(epsilon, delta)
            return calibrate(lambda m: cost_at(m).split_pure()[1], epsilon - pure, delta)
        if pure > 0 and rest.sq_mu(sampling="approximate") == 0:
            raise PrivacyError("only events with a Gaussian mechanism in them can be calibrated.")
    budget = searched_sq_mu(epsilon, delta)
    if not exact:
        check_smallest_delta(delta)
        multiplier = _search(cost_at, budget, epsilon, delta)
    else:
        one, two = (cost.sq_mu(sampling="ignore") for cost in (at_one, cost_at(2.0)))
        if one is None or two is None:
            raise PrivacyError("only events of (sampled) Gaussian mechanisms can be calibrated.")
        scaled = (one - two) * 4 / 3
        fixed = max(0.0, one - scaled)
        if fixed > 0 and fixed >= budget * (1 - 1e-9):
            raise _nothing_left(epsilon, delta)
        multiplier = math.sqrt(scaled / (budget - fixed))
    inflation = 1e-15 if exact else 1e-4
    while cost_at(multiplier).epsilon(delta) > epsilon:
        multiplier *= 1 + inflation
        inflation *= 2
    return multiplier


# Noise multiplier of batches where delta is so large that it allows any multiplier.
_IN_RARE_BATCHES = 0.3


def _warn_of_delta(delta: float) -> None:
    warn(
        f"epsilon is not used: a record is in any batch with a probability of at most"
        f" delta={delta:.3g}, which allows to publish it. The noise multiplier of batches is"
        f" {_IN_RARE_BATCHES} nevertheless. Use a smaller `delta`.",
        PrivacyWarning,
        about=("delta", delta),
    )


def _search(cost_at: Callable[[float], Cost], sq_mu: float, epsilon: float, delta: float) -> float:
    """Upper bound on the least multiplier, for events without a closed form."""

    def excess(log_multiplier: float) -> float:
        cost = cost_at(math.exp(log_multiplier))
        if pure or not cost.fits_a_grid(epsilon, delta):
            found = cost.epsilon(delta)
        else:
            found = cost.pld_epsilon(delta, cost.grid(epsilon))
        return math.log(max(found, 1e-300) / epsilon)

    pure = cost_at(1.0).split_pure()[0] > 0
    # The approximation gives too little noise, and the more so the fewer steps there are.
    low, less = _approximate_log_multiplier(cost_at, sq_mu), 0.1
    over = excess(low)
    while over <= 0:
        if low < math.log(1e-5):
            _warn_of_delta(delta)
            return _IN_RARE_BATCHES
        low, less = low - less, 2 * less
        over = excess(low)
    high = low + min(0.5, max(0.02, over))
    while excess(high) > 0:
        low, high = high, high + 2 * (high - low)
        if high > math.log(1e9):
            raise _nothing_left(epsilon, delta)
    root: Any = brentq(excess, low, high, xtol=5e-4)
    return math.exp(float(root) + 5e-4)


def _approximate_log_multiplier(cost_at: Callable[[float], Cost], sq_mu: float) -> float:
    """Logarithm of the multiplier at which the central-limit approximation costs `sq_mu`."""

    def excess(log_multiplier: float) -> float:
        at = cost_at(math.exp(log_multiplier))
        cost, whole = at.sq_mu(sampling="approximate"), at.sq_mu(sampling="ignore")
        if cost is None:
            raise PrivacyError("only events of (sampled) Gaussian mechanisms can be calibrated.")
        return math.log((cost if whole is None else min(cost, whole)) / sq_mu)

    low, high = math.log(1e-4), math.log(1e9)
    if excess(high) > 0 or excess(low) < 0:
        return low
    root: Any = brentq(excess, low, high, xtol=1e-3)
    return float(root)


def calibrate_range(cost_at: Callable[[float], Cost], epsilon: float, delta: float) -> float:
    """Largest x at which ``cost_at(x)``, with epsilons in proportion to x, is at most `epsilon`.

    For exponential and Laplace mechanisms that share a budget; other parts are fixed. With
    ``delta=0`` the epsilons add up to `epsilon`. With a larger delta their sum may be larger than
    `epsilon`, and is never smaller; they are found by a search within one part in ten thousand. The
    result is deflated until the evaluated epsilon is at most the target.

    PrivacyError if the fixed part alone costs more than `epsilon`, or there is nothing to scale.
    """
    at_one, rest = cost_at(1.0).split_pure()
    scaled = cost_at(2.0).split_pure()[0] - at_one
    if not scaled > 1e-9 * at_one:
        raise PrivacyError("nothing in the event is scaled: there is nothing to calibrate.")
    fixed = max(0.0, at_one - scaled) + rest.epsilon(delta)
    low = (epsilon - fixed) / scaled
    if not low > 0:  # the accountant's bound may be below the sum of epsilons and leave something
        low = 1e-6 * epsilon / scaled
        if cost_at(low).epsilon(delta) > epsilon:
            raise _nothing_left(epsilon, delta)
    if delta > 0:
        high = 2 * low
        while cost_at(high).epsilon(delta) <= epsilon:
            low, high = high, 2 * high
        while high > low * (1 + 1e-4):
            middle = math.sqrt(low * high)
            within = cost_at(middle).epsilon(delta) <= epsilon
            low, high = (middle, high) if within else (low, middle)
    deflation = 1e-15
    while cost_at(low).epsilon(delta) > epsilon:
        low *= 1 - deflation
        deflation *= 2
    return low


def _nothing_left(epsilon: float, delta: float) -> PrivacyBudgetError:
    return PrivacyBudgetError(
        f"nothing of epsilon={epsilon:.4g} at delta={delta:.3g} is left after what is"
        " spent already; use a larger epsilon."
    )


# Budgets ----------------------------------------------------------------------------------------

# Least epsilon that is accepted: below it accountants lose digits, and no use is known.
LEAST_EPSILON = 1e-4


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


@dataclass(frozen=True)
class Target:
    """Requested privacy."""

    # Budget; inf requests no privacy. None where noise multipliers are given instead.
    epsilon: float | None
    delta: float | str = "auto"  # Additive slack
    neighboring_relation: str = "zero_out"  # "zero_out" or "replace_one": what the guarantee hides
    # Noise multiplier of each release of the last part of a budget, where `epsilon` is None.
    noise_multiplier: float | None = None
    # Releases of the same fit that come first, with fixed noise: all others are calibrated to the
    # rest of the budget, and together they are one budget.
    first: Budget | None = None

    def checked(self, *, pure: bool = False, multipliers: bool = False) -> Target:
        """Checked copy of plain numbers; `pure` allows delta=0, `multipliers` no epsilon."""
        self._check(pure, multipliers)
        multiplier = self.noise_multiplier
        plain = Target(
            None if self.epsilon is None else float(self.epsilon),
            "auto" if isinstance(self.delta, str) else float(self.delta),
            str.__str__(self.neighboring_relation),
            None if multiplier is None else float(multiplier),
        )
        plain._check(pure, multipliers)  # converting a number of a custom class may change it
        return plain

    def _check(self, pure: bool, multipliers: bool) -> None:
        if self.epsilon is None and not multipliers:
            raise ValueError("`epsilon` must be a number, got None.")
        if self.epsilon is not None and (isinstance(self.epsilon, bool) or self.private):
            ends: dict[str, Any] = {"include_low": True, "include_high": True}
            check_real("epsilon", self.epsilon, low=LEAST_EPSILON, high=1e6, **ends)
        if not (pure and isinstance(self.delta, (int, float)) and self.delta == 0):
            check_auto("delta", self.delta, low=1e-100, high=1)
        check_choice("neighboring_relation", self.neighboring_relation, NEIGHBORING_RELATIONS)

    @property
    def private(self) -> bool:
        return self.epsilon != math.inf

    def delta_at(self, n_samples: int | None) -> float:
        """Delta for a number of records; ValueError where it depends on an unknown number.

        Within a ledger, "auto" is the delta of the ledger: a smaller delta would waste budget that
        was already paid.
        """
        if self.delta != "auto":
            return float(self.delta)
        if (payer := payer_of()) is not None and payer.delta is not None:
            return payer.delta
        if n_samples is None:
            raise ValueError("delta='auto' depends on `n_samples`: pass it.")
        return default_delta(check_integer("n_samples", n_samples, low=1))

    def cost(self, parts: Mapping[str, Part], scales: Mapping[str, float]) -> Cost:
        """Cost of `parts` with this noise, together with the releases that come first."""
        from dpsubspace._core.accounting.accountants import merged

        before = () if self.first is None else mechanisms_of(self.first.event)
        relation = self.neighboring_relation
        new = [part.mechanism(scales[name], relation) for name, part in parts.items()]
        return Cost(merged([*before, *new]), relation)

    def calibrated(self, cost_at: Callable[[float], Cost], n_samples: int | None) -> float:
        """Least multiplier at which ``cost_at(multiplier)`` is within the budget."""
        assert self.epsilon is not None
        return calibrate(cost_at, float(self.epsilon), self.delta_at(n_samples))

    def multiplier(self, n_samples: int | None) -> float:
        one = {"one": Part(share=1.0)}
        return self.calibrated(lambda m: self.cost(one, {"one": m}), n_samples)


@dataclass(frozen=True)
class Sizes:
    """Public sizes of a fit; None for sizes that are not known before the data are."""

    n_samples: int | None  # Records
    n_features: int | None = None
    n_outputs: int | None = None
    n_public: int = 0  # Public rows
    labelled: bool = False  # Whether public rows have targets
    persons: bool = False  # Whether a record may have several rows

    def known(self, name: str, why: str) -> int:
        """Return the size called `name`; ValueError that explains why it is needed if unknown."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{why} depends on `{name}`: pass it.")
        return check_integer(name, value, low=1)


# Scales that add no noise.
_NO_NOISE = {"gaussian": 0.0, "range": math.inf, "laplace": math.inf}


@dataclass(frozen=True)
class Part:
    """Releases of one name, which have the same noise.

    Privacy of disjoint blocks (parallel composition). The block of a record follows from its
    position and from public coins, so neighbours differ in one block, b. Releases before the
    release of b have the same distribution for both neighbours, and so have the releases after it,
    given what was released before: they are the same function of the same records. The privacy loss
    is the loss of the release of b. Earlier releases may have decided what that release is;
    whatever it is, it is a Gaussian mechanism with the multiplier of the part. Hence all releases
    together are no worse than one Gaussian mechanism, also where they are chosen one after another.
    If two parts are on blocks, each of them uses a record once, and they compose like two releases.
    """

    # Share of the budget: of mu^2, not of epsilon, so that the parts compose exactly to the whole.
    # A share of epsilon where all parts of a budget are "range" or "laplace".
    share: float
    count: int = 1  # Number of releases
    # Probability with which a record enters the Poisson batch of a release; 1 uses all records.
    rate: float = 1.0
    # "gaussian": Gaussian noise. "range": an exponential mechanism. "laplace": Laplace noise. The
    # last two need no delta.
    kind: str = "gaussian"
    # Whether each release is over its own block of records, with as many blocks as releases. All of
    # them together then cost as much as one.
    disjoint: bool = False

    def __post_init__(self) -> None:
        if not (self.share > 0 and self.count >= 1 and 0 < self.rate <= 1):
            raise ValueError(f"{self} must have a share above 0, a count, and a rate up to 1.")
        if self.kind not in _NO_NOISE or (self.rate < 1 and self.kind != "gaussian"):
            raise ValueError(f"{self} must be 'gaussian', or 'range' or 'laplace' on all records.")
        if self.disjoint and (self.kind != "gaussian" or self.rate < 1):
            raise ValueError(f"{self} must be 'gaussian' and of rate 1 to be on disjoint blocks.")

    @property
    def n_charged(self) -> int:
        """Number of releases that one record can affect."""
        return 1 if self.disjoint else self.count

    @property
    def fraction(self) -> float:
        """Expected share of the records that a release uses."""
        return 1 / self.count if self.disjoint else self.rate

    def mechanism(self, scale: float, neighboring_relation: str) -> Mechanism:
        """Mechanism of all releases; `scale` is a noise multiplier, or an epsilon.

        Like a Gaussian multiplier, the multiplier of Laplace noise is against the norm of one
        record, and accountants double it where a record is replaced.
        """
        from dpsubspace._core.accounting.accountants import Mechanism

        value = float(scale)
        if self.kind == "laplace":
            value = doubling(neighboring_relation) / value
        return Mechanism(self.kind, value, int(self.n_charged), float(self.rate))


@dataclass(frozen=True)
class Budget:
    """Releases that share the requested privacy, the noise of each, and their composed event.

    A fit reads the number of its releases, the rate of its batches and whether it is private from
    here and not from its parameters, so that the charged releases are those that run.
    """

    target: Target  # Requested privacy
    parts: Mapping[str, Part]  # Releases, by name and in the order of the event
    # Noise multiplier of each release of that name (0 adds no noise), or its epsilon where it needs
    # no delta (inf adds no noise).
    scales: Mapping[str, float]
    event: DpEvent  # Composed event of all releases: calibrated, charged and printed
    private: bool  # Whether noise is added at all

    @classmethod
    def split(
        cls, target: Target, parts: Mapping[str, Part], n_samples: int | None = None
    ) -> Budget:
        """Share `target` out among `parts`, at most one of which is sampled.

        Releases that come first in `target` are parts of the result as well.
        """
        private = target.private
        if not private or not parts:
            nothing = {name: _NO_NOISE[part.kind] for name, part in parts.items()}
            event = non_private() if parts else composed([])
            return cls(target, parts, nothing, event, private)._after(target.first)
        if all(part.kind != "gaussian" for part in parts.values()):
            scales = _of_epsilon(target, parts, n_samples)
        elif target.epsilon is None:
            scales = _beside_multiplier(target, parts, n_samples)
        else:
            scales = _of_mu(target, parts, n_samples)
        event = _event(target, parts, scales)
        return cls(target, parts, scales, event, private)._after(target.first)

    def _after(self, first: Budget | None) -> Budget:
        """Return this budget preceded by the releases that come first."""
        if first is None:
            return self
        if both := first.parts.keys() & self.parts.keys():
            raise RuntimeError(f"two releases of one fit must not share the names {both}.")
        event = composed([first.event, self.event]) if self.private else self.event
        parts, scales = {**first.parts, **self.parts}, {**first.scales, **self.scales}
        return replace(self, parts=parts, scales=scales, event=event)

    def only(self, *names: str) -> Budget:
        """Return a budget of some parts, with their present noise and the cost of these parts."""
        parts = {name: self.parts[name] for name in names}
        scales = {name: self.scales[name] for name in names}
        if not self.private:
            return replace(self, parts=parts, scales=scales)
        target = replace(self.target, epsilon=None)  # the guarantee is the cost of these parts
        return Budget(target, parts, scales, _event(target, parts, scales), True)

    def per_record_multiplier(self, name: str) -> float:
        """Noise multiplier of all releases of a name together, on batches and blocks or not."""
        part = self.parts[name]
        return self.scales[name] / (part.fraction * math.sqrt(part.count))

    @property
    def multipliers(self) -> list[float]:
        """Least noise of each released sum, over what one record contributes to it."""
        return [
            scale if self.parts[name].kind == "gaussian" else 1 / scale
            for name, scale in self.scales.items()
            if self.parts[name].kind != "range"
        ]


def _event(target: Target, parts: Mapping[str, Part], scales: Mapping[str, float]) -> DpEvent:
    """Event of ``dp_accounting`` for `parts` with this noise."""
    from dpsubspace._core.accounting.accountants import event_of

    relation = target.neighboring_relation
    return event_of(part.mechanism(scales[name], relation) for name, part in parts.items())


def _of_mu(target: Target, parts: Mapping[str, Part], n_samples: int | None) -> dict[str, float]:
    """Multipliers of Gaussian parts: first as if not sampled, then of the sampled part."""
    full = {name: replace(part, rate=1.0) for name, part in parts.items()}
    weights = {name: math.sqrt(part.n_charged / part.share) for name, part in parts.items()}

    def cost_at(multiplier: float) -> Cost:
        return target.cost(full, {name: multiplier * weight for name, weight in weights.items()})

    whole = target.calibrated(cost_at, n_samples)
    found = {name: whole * weight for name, weight in weights.items()}
    for name in (name for name, part in parts.items() if part.rate < 1):
        others = dict(found)

        def sampled(multiplier: float, name: str = name, others: dict = others) -> Cost:
            return target.cost(parts, {**others, name: multiplier})

        found[name] = target.calibrated(sampled, n_samples)
    return found


def _beside_multiplier(
    target: Target, parts: Mapping[str, Part], n_samples: int | None
) -> dict[str, float]:
    """Multipliers where that of the last part is given: the others get their share of mu^2.

    For sampled batches, mu^2 of the last part is that of their central limit, or that of one
    Gaussian with the epsilon of the batches where that is less, as with little noise. This is only
    a choice of shares; the event is counted exactly.
    """
    given, last = float(target.noise_multiplier or 0.0), [*parts.values()][-1]
    sq_mu = last.n_charged / given**2
    if last.rate < 1:
        relation, delta = target.neighboring_relation, target.delta_at(n_samples)
        alone = Cost((last.mechanism(given, relation),), relation).epsilon(delta)
        sq_mu = last.count * last.rate**2 * math.expm1(min(given**-2, 700.0))
        sq_mu = min(sq_mu, searched_sq_mu(alone, delta) / doubling(relation) ** 2)
    found = {
        name: math.sqrt(part.n_charged * last.share / (part.share * sq_mu))
        for name, part in parts.items()
    }
    return {**found, [*parts][-1]: given}


def _of_epsilon(
    target: Target, parts: Mapping[str, Part], n_samples: int | None
) -> dict[str, float]:
    def scales(whole: float) -> dict[str, float]:
        return {name: whole * part.share / part.count for name, part in parts.items()}

    assert target.epsilon is not None
    epsilon, delta = float(target.epsilon), target.delta_at(n_samples)
    return scales(calibrate_range(lambda x: target.cost(parts, scales(x)), epsilon, delta))


# Shares ---------------------------------------------------------------------------------------
# One budget for several fits.

# Share of a budget that may stay unused if shares can only be found by a search.
_TOLERANCE = 2e-4


class SmallShareError(ValueError):
    """Raised if the part with the smallest `share` of a budget would be below the least epsilon."""

    def __init__(self, epsilon: float, delta: float, n_parts: int, share: float):
        needed = gaussian_epsilon(gaussian_sq_mu(LEAST_EPSILON, delta) / share, delta)
        among = "" if n_parts == 1 else f" to be shared among {n_parts} private steps"
        super().__init__(
            f"`epsilon`={epsilon:.4g} is too small{among}: each of them needs {LEAST_EPSILON:g} or"
            f" more. Pass an epsilon of {rounded(needed, math.ceil, 2)} or more."
        )


def share_of_parts(
    parts: Sequence[Any],
    plan: Callable[[Any], DpEvent],
    *,
    epsilon: float,
    delta: float,
    weights: Sequence[float] | None = None,
) -> None:
    """Set `epsilon` and `delta` of `parts` so that all events ``plan(part)`` cost that together.

    If `weights` is None, shares follow from the parts' own epsilons. On failure nothing is changed.
    """
    before = [_budget_params(part) for part in parts]
    _check_epsilons(parts)
    try:
        if epsilon == math.inf or len(parts) == 1:
            if epsilon < LEAST_EPSILON:
                raise SmallShareError(epsilon, delta, 1, 1.0)
            for part in parts:
                part._set_whole(epsilon=epsilon, delta=delta)
        elif parts:
            weights = _own_weights(parts, delta) if weights is None else weights
            _share(parts, plan, epsilon, delta, [w / math.fsum(weights) for w in weights])
    except BaseException:
        for part, own in zip(parts, before, strict=True):
            part.set_params(**own)
        raise


def _share(
    parts: Sequence[Any],
    plan: Callable[[Any], DpEvent],
    epsilon: float,
    delta: float,
    weights: Sequence[float],
) -> None:
    relation, whole = parts[0]._whole.neighboring_relation, gaussian_sq_mu(epsilon, delta)

    def cost(log_factor: float) -> float:
        sq_mu = whole * math.exp(log_factor)
        if gaussian_epsilon(min(weights) * sq_mu, delta) < LEAST_EPSILON:
            raise SmallShareError(epsilon, delta, len(parts), min(weights))
        for part, weight in zip(parts, weights, strict=True):
            part._set_whole(epsilon=gaussian_epsilon(weight * sq_mu, delta), delta=delta)
        return Cost.of(composed(map(plan, parts)), relation).epsilon(delta)

    def excess(log_factor: float) -> float:
        return math.log(max(cost(log_factor), 1e-300) / epsilon)

    found, step = 0.0, 1e-12
    if abs(excess(0.0)) > 1e-9:  # not everything is Gaussian noise on all rows
        low, high = -0.1, 0.1
        while excess(low) > 0:
            low *= 2
        while excess(high) < 0:
            high *= 2
        root: Any = brentq(excess, low, high, xtol=_TOLERANCE / 8)
        found, step = float(root), _TOLERANCE / 8
    while cost(found) > epsilon:  # rounding errs on the private side
        found -= step
        step *= 2


def _budget_params(part: Any) -> dict[str, Any]:
    params = part.get_params().items()
    return {name: own for name, own in params if name.split("__")[-1] in ("epsilon", "delta")}


def _own_weights(parts: Sequence[Any], delta: float) -> list[float]:
    asked = [part._whole.epsilon for part in parts]
    if math.inf in asked:
        raise ValueError(
            "a private step has epsilon=inf, of which there is no fraction: give all steps finite"
            " ones, whose ratio is kept, or `shares`."
        )
    return [gaussian_sq_mu(float(epsilon), delta) for epsilon in asked]


def _check_epsilons(parts: Iterable[Any]) -> None:
    for part in parts:
        if getattr(part._whole, "epsilon", None) is None:
            raise ValueError(
                f"{type(part).__name__} has no `epsilon` that could be set: give one in the place"
                " of its noise multiplier."
            )
