"""Spread of private rows about their mean.

Where to check the privacy claim: :meth:`SpreadPlan.run` is all of it. Rows are shortened by
``RowMap`` in ``_core/rows/records.py``, sums and counts are bounded in
``_core/statistics/means.py`` and ``_core/statistics/counts.py``, noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.statistics.counts import RADIUS_COUNTS, count_noise, noisy_radius
from dpsubspace._core.statistics.means import noisy_mean, recentred_mean
from dpsubspace._core.statistics.quantiles import weighted_quantiles
from dpsubspace.exceptions import PrivacyWarning, warn

# Share of the records that counts as "nearly all".
_NEARLY = 0.95

# Standard deviations of the noise of a count by which radii err to the larger side.
_COUNT_MARGIN = 3.0

# Shares of the budget (of mu^2), and the number of releases of each.
_SPREAD = {
    "coarse mean": Part(0.25),
    "coarse radius": Part(0.1, RADIUS_COUNTS),
    "mean": Part(0.35),
    "half": Part(0.15, RADIUS_COUNTS),
    "nearly all": Part(0.15, RADIUS_COUNTS),
}


@dataclass(frozen=True)
class SpreadPlan(FunctionPlan):
    name: ClassVar[str] = "private_spread"

    target: Target
    row_map: RowMap  # Map that bounds the norm of rows

    def assumed(self) -> tuple[str, ...]:
        return ("bound on row norms",) if self.row_map.norm == "clip" else ()

    def budget(self, n_samples: int) -> Budget:
        return Budget.split(self.target, _SPREAD, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        """Warn if public sizes show that noise hides the counts behind the radii."""
        if not budget.private:
            return

        def noise_of(budget: Budget) -> float:
            return count_noise(budget.scales["half"], budget.target.neighboring_relation)

        def needed_by(budget: Budget) -> int:
            # Rows beyond the larger radius must be at least as many as the margin of noise.
            return math.ceil(_COUNT_MARGIN * noise_of(budget) / (1 - _NEARLY))

        noise, needed = noise_of(budget), needed_by(budget)
        if records.n < needed:
            advice = plan_takes(
                self, lambda budget, n: n >= needed_by(budget), records.n, records.unit
            )
            warn(
                f"the noise of counts has a standard deviation of {noise:.2g}: with {records.n}"
                f" {records.unit}s, `radius` is likely to be the largest value that it can have,"
                f" which says nothing about the rows. Take more {records.unit}s or a larger"
                f" epsilon.{advice}",
                PrivacyWarning,
                about=("spread", needed),
            )

    def run(
        self, ready: Any, records: Records, releases: Releases
    ) -> tuple[float, float, float, float, float]:
        """Return the bound, the norm of the mean, radii of half and of nearly all, and an error."""
        features = Features.of_rows(ready, self.row_map, records=records)
        bound = features.bound
        if not releases.budget.private:
            mean, error = noisy_mean(features, bound, releases)
            distances = to_numpy(features.wide().shifted(Shift(mean, None)).distances())
            levels, weights = np.array([0.5, 1.0]), features.records.weights_numpy
            half, radius = map(float, weighted_quantiles(distances[:, None], weights, levels)[:, 0])
        else:
            mean, error = recentred_mean(features, bound, releases, furthest=bound)
            distances = features.wide().shifted(Shift(mean, None)).distances()
            # Two rows are at most twice the bound apart.
            half = noisy_radius(distances, 2 * bound, releases, "half")
            radius = noisy_radius(distances, 2 * bound, releases, "nearly all", within=_NEARLY)
        mean_norm = min(bound, float(np.linalg.norm(mean)))  # noise may bring it above the bound
        return bound, mean_norm, half, max(half, radius), error
