"""A budget: what is asked for, the releases that share it, and the event they add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsubspace._accounting.calibration import calibrate, calibrate_range
from dpsubspace._accounting.cost import epsilon_of
from dpsubspace._accounting.events import (
    NEIGHBORING_RELATIONS,
    bounded_range,
    composed,
    gaussian,
    is_free,
    laplace,
    non_private,
    sampled_gaussian,
)
from dpsubspace._accounting.guarantee import PrivacyGuarantee, default_delta
from dpsubspace._accounting.permission import _LEDGER
from dpsubspace._checks import check_auto, check_choice, check_integer, check_real

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_accounting import DpEvent

__all__ = ["Budget", "Sizes", "Split", "Target", "pure_split"]


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
        secure: bool,
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
            secure=secure or free,  # no noise is as good as any where none is needed
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
    return Split({"direction": whole * share / count, "spectrum": whole * sums}, event(whole))


@dataclass(frozen=True)
class Sizes:
    """Public sizes of a fit; None where they are not known before the data are.

    Parameters
    ----------
    n_samples, n_features, n_outputs : int or None
        Records, columns, columns of scores.
    n_public : int
        Public rows.
    labelled : bool
        Whether those have targets.
    """

    n_samples: int | None
    n_features: int | None = None
    n_outputs: int | None = None
    n_public: int = 0
    labelled: bool = False

    def known(self, name: str, why: str) -> int:
        """Size called `name`, or ValueError that says why it is needed."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{why} depends on `{name}`: pass it.")
        return check_integer(name, value, low=1)


@dataclass(frozen=True)
class Budget:
    """Noise multipliers of one fit and the event that they add up to.

    A fit takes the number of its steps, the rate of its batches and whether it is private
    from here and not from its parameters, so that what runs is what is charged.
    """

    n_iter: int
    sample_rate: float
    before: Mapping[str, float]  # of each release before training that is called so
    step: float
    event: DpEvent

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.step > 0

    @property
    def multiplier(self) -> float:
        """What all steps together leave of their noise, so that batches compare to full ones."""
        return self.step / (self.sample_rate * math.sqrt(self.n_iter))

    @classmethod
    def of(
        cls, step: float, before: Mapping[str, tuple[float, int]], n_iter: int, rate: float
    ) -> Budget:
        """Budget of given multipliers: `before` has one and a number for each name."""
        parts = [gaussian(*each) for each in before.values()]
        event = composed([*parts, sampled_gaussian(step, rate, n_iter)])
        return cls(n_iter, rate, {name: each[0] for name, each in before.items()}, step, event)
