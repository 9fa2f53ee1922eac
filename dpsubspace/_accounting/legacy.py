"""What is about to go: budgets before parts had names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsubspace._accounting.budget import Target
from dpsubspace._accounting.events import composed, gaussian, non_private, sampled_gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["LinearBudget", "Split"]


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


@dataclass(frozen=True)
class LinearBudget:
    """Noise multipliers of one fit and the event that they add up to.

    A fit takes the number of its steps, the rate of its batches and whether it is private
    from here and not from its parameters, so that what runs is what is charged.
    """

    n_iter: int
    sample_rate: float
    before: Mapping[str, float]  # of each release before training that is called so
    counts: Mapping[str, int]  # of these releases
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
    ) -> LinearBudget:
        """Budget of given multipliers: `before` has one and a number for each name."""
        parts = [gaussian(*each) for each in before.values()]
        event = composed([*parts, sampled_gaussian(step, rate, n_iter)])
        multipliers = {name: each[0] for name, each in before.items()}
        counts = {name: each[1] for name, each in before.items()}
        return cls(n_iter, rate, multipliers, counts, step, event)
