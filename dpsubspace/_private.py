"""What is asked of privacy, and what every private estimator does about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.base import BaseEstimator

from dpsubspace._inputs import check_auto, check_choice, check_integer, check_real
from dpsubspace._noise import NEIGHBORING_RELATIONS, NoiseSource, check_lattice
from dpsubspace._privacy import (
    PrivacyGuarantee,
    bounded_range,
    calibrate,
    calibrate_range,
    composed,
    default_delta,
    epsilon_of,
    gaussian,
    is_free,
    laplace,
    non_private,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

__all__ = [
    "PrivateEstimator",
    "Released",
    "Split",
    "Target",
    "about_to_release",
    "inside_ledger",
    "pure_split",
]


@dataclass(frozen=True)
class _Ledger:
    """What runs inside a ledger has to know of it: its delta, and whom to ask for leave."""

    delta: float
    spend: Callable[[PrivacyGuarantee], None]


_LEDGER: ContextVar[_Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def inside_ledger(delta: float, spend: Callable[[PrivacyGuarantee], None]) -> Iterator[None]:
    """Within it "auto" is `delta`, and `spend` is asked before anything is released.

    What `spend` refuses, by raising, is not released. Other threads and processes are outside.
    """
    token = _LEDGER.set(_Ledger(delta, spend))
    try:
        yield
    finally:
        _LEDGER.reset(token)


def about_to_release(guarantee: PrivacyGuarantee) -> None:
    """Ask the ledger that this runs in, if it runs in one; the last thing before a release."""
    ledger = _LEDGER.get()
    if ledger is not None:
        ledger.spend(guarantee)


class Released(NamedTuple):
    """What a private function gives: a value, and what it cost.

    A pair, to be unpacked as ``value, guarantee = private_mean(...)``. The value is safe to
    publish with the statement beside it.

    Parameters
    ----------
    value : object
        What was released: a number or an array.
    privacy : PrivacyGuarantee
        What the call cost and what that rests on; :meth:`PrivacyLedger.charge` takes it.

    See Also
    --------
    private_mean : Returns one.
    private_quantile : Returns one.

    Examples
    --------
    >>> from dpsubspace import PrivacyLedger, private_quantile
    >>> ages = [18 + i % 70 for i in range(5000)]
    >>> released = private_quantile(ages, 0.5, bounds=(0, 110), epsilon=0.3)
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> ledger.charge(released.privacy, "median age")
    >>> 45 < released.value < 60
    True
    """

    value: Any
    privacy: PrivacyGuarantee


@dataclass(frozen=True)
class Target:
    """Privacy that is asked for.

    Parameters
    ----------
    epsilon : float or None
        Budget; inf asks for none. None where noise multipliers are given instead.
    delta : float or "auto"
        Additive slack.
    neighboring_relation : {"zero_out", "replace_one"}
        What the guarantee hides.
    """

    epsilon: float | None
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"

    def check(self, *, pure: bool = False, multipliers: bool = False) -> None:
        """ValueError unless all of it is within limits.

        `pure` lets delta be 0, and `multipliers` that are given instead let epsilon be None.
        """
        if self.epsilon is None and not multipliers:
            raise ValueError("`epsilon` must be a number, got None.")
        # Beyond these limits accountants lose digits, and no use is known.
        if self.epsilon is not None and (isinstance(self.epsilon, bool) or self.private):
            check_real("epsilon", self.epsilon, low=1e-4, high=1e6, include_low=True)
        if not (pure and isinstance(self.delta, (int, float)) and self.delta == 0):
            check_auto("delta", self.delta, low=1e-100, high=1)
        check_choice("neighboring_relation", self.neighboring_relation, NEIGHBORING_RELATIONS)

    @property
    def private(self) -> bool:
        """Whether any is asked for."""
        return self.epsilon != math.inf

    def delta_at(self, n_samples: int | None) -> float:
        """Delta for a number of records; ValueError where it depends on that and is unknown.

        "auto" is the ledger's inside of one: a smaller delta would waste what was bought.
        """
        if self.delta != "auto":
            return float(self.delta)
        if (ledger := _LEDGER.get()) is not None:
            return ledger.delta
        if n_samples is None:
            raise ValueError("delta='auto' depends on `n_samples`: pass it.")
        return default_delta(check_integer("n_samples", n_samples, low=1))

    def calibrated(self, make_event: Callable[[float], DpEvent], n_samples: int | None) -> float:
        """Least multiplier at which ``make_event(multiplier)`` is within the budget."""
        assert self.epsilon is not None
        return calibrate(
            make_event,
            epsilon=float(self.epsilon),
            delta=self.delta_at(n_samples),
            neighboring_relation=self.neighboring_relation,
        )

    def guarantee(
        self,
        event: DpEvent,
        *,
        noise: NoiseSource,
        n_samples: int,
        n_features: int,
        public: tuple[str, ...],
        unit: str = "row",
    ) -> PrivacyGuarantee:
        """Statement about `event` on `n_samples` records."""
        delta, relation = self.delta_at(n_samples), self.neighboring_relation
        epsilon, free = self.epsilon, is_free(event)
        if free:
            epsilon, delta = 0.0, 0.0
        elif epsilon is None:
            epsilon = epsilon_of(event, delta, neighboring_relation=relation)
        return PrivacyGuarantee(
            event=event,
            epsilon=float(epsilon),
            delta=delta,
            neighboring_relation=relation,
            unit=unit,
            secure=noise.secure or free,  # no noise is as good as any where none is needed
            public=(
                f"number of records ({n_samples})",
                f"number and names of features ({n_features})",
                *public,
                "all parameters but random_state",
                "that the data pass the checks",
            ),
        )


@dataclass(frozen=True)
class Split:
    """Gaussian releases that share one budget, and the event that they add up to.

    Parameters
    ----------
    multipliers : dict of str to float
        Noise multiplier of each release called so; 0 adds no noise.
    event : DpEvent
        What all of them cost together.
    """

    multipliers: Mapping[str, float]
    event: DpEvent

    @classmethod
    def of(
        cls, target: Target, parts: Mapping[str, tuple[float, int]], n_samples: int | None
    ) -> Split:
        """Split the budget of `target`.

        Parameters
        ----------
        target : Target
            Budget.
        parts : dict of str to (float, int)
            Share of the budget (of mu^2, not of epsilon, so that parts compose to the
            whole exactly) and number of the releases called so. Shares add up to 1.
        n_samples : int or None
            Number of records, where delta depends on it.

        Raises
        ------
        ValueError
            If there are too many records for so little noise.
        """
        if not target.private and parts:
            return cls(dict.fromkeys(parts, 0.0), non_private())

        def multipliers(whole: float) -> dict[str, float]:
            return {
                name: whole * math.sqrt(count / share) for name, (share, count) in parts.items()
            }

        def event(whole: float) -> DpEvent:
            each = multipliers(whole)
            return composed(gaussian(each[name], count) for name, (_, count) in parts.items())

        if not parts:
            return cls({}, composed([]))
        whole = target.calibrated(event, n_samples)
        if n_samples is not None:
            check_lattice(n_samples, *multipliers(whole).values())
        return cls(multipliers(whole), event(whole))


def pure_split(
    target: Target, draws: tuple[float, int], sums: float, n_samples: int | None
) -> Split:
    """Split the budget of `target` between exponential mechanisms and a Laplace release.

    Parameters
    ----------
    target : Target
        Budget; its delta may be 0.
    draws : tuple of float and int
        Share of the epsilons that all draws have, and their number.
    sums : float
        Share of the Laplace release.
    n_samples : int or None
        Number of records, where delta depends on it.

    Returns
    -------
    Split
        With the epsilons of a "direction" and of the "spectrum" for multipliers.
    """
    share, count = draws

    def event(whole: float) -> DpEvent:
        relation = target.neighboring_relation
        last = laplace(whole * sums, neighboring_relation=relation)
        return composed([bounded_range(whole * share / count, count), last])

    if not target.private:
        return Split({"direction": math.inf, "spectrum": math.inf}, non_private())
    assert target.epsilon is not None
    whole = calibrate_range(
        event,
        epsilon=float(target.epsilon),
        delta=target.delta_at(n_samples),
        neighboring_relation=target.neighboring_relation,
    )
    if n_samples is not None:
        check_lattice(n_samples, 1 / (whole * sums))
    return Split({"direction": whole * share / count, "spectrum": whole * sums}, event(whole))


class PrivateEstimator(BaseEstimator):
    """Estimators whose fit has a cost, stored in ``privacy_`` just before it is spent."""

    privacy_unit = "row"

    # Parameters that every subclass has; they store them in their own __init__.
    epsilon: float | None
    delta: float | str
    neighboring_relation: str

    @property
    def _repr_html_(self) -> Callable[[], str]:
        """HTML of scikit-learn, with the guarantee of a fitted estimator below."""
        diagram = super()._repr_html_  # AttributeError where text is asked for
        return lambda: diagram() + self._guarantee_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._guarantee_html()
        return bundle

    def _guarantee_html(self) -> str:
        return self.privacy_._repr_html_() if hasattr(self, "privacy_") else ""

    def _target(self) -> Target:
        return Target(self.epsilon, self.delta, self.neighboring_relation)

    def _start_spending(self, guarantee: PrivacyGuarantee) -> None:
        """Record the cost and forget an earlier fit, just before the first release."""
        about_to_release(guarantee)
        kept = {"n_features_in_", "feature_names_in_", *self.get_params(deep=False)}
        for name in [*vars(self)]:
            if name.endswith("_") and name not in kept:
                del self.__dict__[name]
        self.privacy_ = guarantee
