"""Part of the gradients of private rows that directions of public rows miss.

Where to check the privacy claim: :meth:`ProjectionPlan.run` is all of it. The shares of a record
are bounded by ``noisy_parts`` in ``_core/statistics/counts.py``, noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.public.gradient_spaces import GradientSpace
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.counts import noise_of_parts, noisy_parts
from dpsubspace.exceptions import PrivacyWarning, warn

# Rows whose shares are computed together.
_ROWS = 4096

# Noise of an error, a number from 0 to 1, that hides most of what the error could show.
_NOISY = 0.2


@dataclass(frozen=True)
class ProjectionPlan(FunctionPlan):
    name: ClassVar[str] = "private_projection_error"

    target: Target
    space: GradientSpace  # Public directions
    counts: np.ndarray  # (q,): numbers of leading directions that are requested
    n_public: int

    def assumed(self) -> tuple[str, ...]:
        return (f"{self.n_public} rows of X_public",)

    def budget(self, n_samples: int) -> Budget:
        return Budget.split(self.target, {"shares": Part(1.0)}, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        relation = budget.target.neighboring_relation
        of_share = noise_of_parts(budget.scales["shares"], relation, records.n)
        spread = of_share * math.sqrt(len(self.counts))
        if spread > _NOISY and budget.private:
            warn(
                f"the noise of the last error, a number from 0 to 1, is {spread:.2g} with"
                f" {records.n} {records.unit}s. Fewer numbers of `n_components`, more rows or a"
                " larger epsilon help.",
                PrivacyWarning,
                about=("projection", guarantee.epsilon),
            )

    def run(self, ready: Any, records: Records, releases: Releases) -> tuple[np.ndarray, float]:
        """Mean shares (q,) along the directions that each count adds, and their noise."""
        found = shares_along(ready, self.space, self.counts)
        # A coordinate has an error of d units of rounding, so its square has one of twice that
        # times the coordinate, and k coordinates add up to at most sqrt(k).
        own = 2 * ready.shape[1] * math.sqrt(self.counts[-1])
        return noisy_parts(found, releases, "shares", own=own)


def shares_along(X: Any, space: GradientSpace, counts: np.ndarray) -> np.ndarray:
    """Share of each row's gradient along the directions that each count adds, (n, q)."""
    found = np.zeros((X.shape[0], len(counts)))
    starts = np.concatenate([[0], counts[:-1]])
    for rows in slices(X.shape[0], _ROWS):
        squares = space.embedded(X[rows])[:, : counts[-1]] ** 2
        found[rows] = np.add.reduceat(squares, starts, axis=1)
    return found
