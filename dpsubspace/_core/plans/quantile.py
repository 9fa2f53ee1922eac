"""Quantiles of private columns.

Where to check the privacy claim: :meth:`QuantilePlan.run` is all of it. Counts are bounded in
``_core/statistics/quantiles.py``, noise is added in ``_core/release/mechanisms.py``, and the event
is made by ``Budget.split`` in ``_core/accounting/budget.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.quantiles import noisy_quantiles, rank_noise, weighted_quantiles
from dpsubspace.exceptions import PrivacyWarning, warn

# Releases of a search between public bounds, which leaves 16,384 values to a result, and of a
# search over numbers of all magnitudes. The latter distinguishes numbers that differ by 2^-20 of
# their size: with the 20 releases that find the range of a column, the median of numbers a million
# of their deviations from 0 would be off by 64 of these deviations, at any epsilon.
BETWEEN_BOUNDS, WITHOUT_BOUNDS = 14, 28


@dataclass(frozen=True)
class QuantilePlan(FunctionPlan):
    name: ClassVar[str] = "private_quantile"

    target: Target
    levels: np.ndarray  # (k,): shares of the values that should lie below
    bounds: tuple[np.ndarray, np.ndarray] | None  # Public ranges of the columns
    n_columns: int

    def assumed(self) -> tuple[str, ...]:
        return () if self.bounds is None else ("bounds of the features",)

    def budget(self, n_samples: int) -> Budget:
        count = WITHOUT_BOUNDS if self.bounds is None else BETWEEN_BOUNDS
        return Budget.split(self.target, {"search": Part(1.0, count)}, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        relation, n_samples = budget.target.neighboring_relation, records.n

        def hidden_by(budget: Budget) -> float:
            scale = budget.scales["search"]
            return 2 * rank_noise(scale, self.n_columns, len(self.levels), relation)

        def enough(budget: Budget, n: int) -> bool:
            return min(self.levels.min(), 1 - self.levels.max()) * n >= hidden_by(budget)

        hidden = hidden_by(budget)
        if enough(budget, n_samples):
            return
        nearest = min(0.5, hidden / n_samples)
        replaced = f"levels below {nearest:.2g} or above {1 - nearest:.2g} are replaced by these"
        if nearest == 0.5:
            replaced = "every level is replaced by 0.5, which is the median"
        warn(
            f"the noise of the counts hides about {min(hidden, n_samples):.0f} of {n_samples}"
            f" {records.unit}s: {replaced}. More rows, fewer columns or a larger epsilon help."
            f"{plan_takes(self, enough, n_samples, records.unit)}",
            PrivacyWarning,
            about=("levels", guarantee.epsilon),
        )

    def run(self, ready: Any, records: Records, releases: Releases) -> np.ndarray:
        if releases.budget.private:
            return noisy_quantiles(ready, self.levels, releases, "search", bounds=self.bounds)
        values = ready if self.bounds is None else np.clip(ready, *self.bounds)
        return weighted_quantiles(values, records.weights_numpy, self.levels)
