"""The plan of a private scaler: from its parameters to the bounds of the columns.

Where to check the privacy claim: :meth:`ScalerPlan.run` is the whole fit. Bounds that are given or
read from public rows release nothing. Others are released by ``noisy_extents`` in
``_core/statistics/quantiles.py``, where what one record moves is bounded. Noise is added in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.ground.checks import check_integer
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.public import Data
from dpsubspace._core.statistics.quantiles import exact_extents, noisy_extents, range_part


@dataclass(frozen=True)
class ScalerPlan(Plan):
    """Parameters that a fit needs: later changes have no effect on it.

    `source` states where bounds come from: "auto", "given", "public" or "private".
    """

    target: Target
    source: str
    given: Any
    level: float
    feature_range: tuple[float, float]
    row_norm: str | None

    def resolved(self, sizes: Sizes) -> ScalerPlan:
        if self.source != "auto":
            return self
        return replace(self, source="public" if sizes.n_public else "private")

    def budget(self, sizes: Sizes) -> Budget:
        parts = self.parts(sizes.n_samples, sizes.n_features)
        return Budget.split(self.target, parts, sizes.n_samples)

    def parts(self, n_samples: int | None, n_features: int | None) -> dict[str, Part]:
        """Search for quantiles, if public sizes show that noise leaves enough; otherwise counts."""
        if self.source != "private":
            return {}
        if n_features is not None:
            n_features = check_integer("n_features", n_features, low=1)
        return {"bounds": range_part(self.target, n_samples, n_features, level=self.level)}

    def run(
        self, ready: Data, releases: Releases, rng: Any, after_step: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        X = ready.X
        if self.source == "given":
            low, high = (np.broadcast_to(np.asarray(b, float), X.shape[1]) for b in self.given)
            return low.copy(), high.copy()
        if self.source == "public" and ready.public is not None:
            return exact_extents(ready.public.X, self.level)
        if not releases.budget.private:
            weights = releases.records_of(X).weights_numpy
            return exact_extents(X.astype(np.float64), self.level, weights)
        return noisy_extents(X, releases, "bounds", level=self.level)[:2]
