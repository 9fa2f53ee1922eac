"""Means and covariances of private rows.

Where to check the privacy claim: ``run`` of :class:`MeanPlan` and :class:`CovariancePlan` is all of
it. Rows are shortened by ``RowMap`` in ``_core/rows/records.py``; sums of them are bounded in
``_core/statistics/means.py`` and ``_core/statistics/moments.py``, norms and radii in ``counts.py``
and ``quantiles.py`` there; noise is added in ``_core/release/mechanisms.py``, and the event is made
by ``Budget.split`` in ``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.bounds import warn_of_largest
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.arrays import row_norms
from dpsubspace._core.ground.checks import check_bounds
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.rows.remote import for_each_part, rowwise
from dpsubspace._core.statistics.counts import SMALLEST, count_above_noise, noisy_range
from dpsubspace._core.statistics.means import searched_mean
from dpsubspace._core.statistics.moments import Rows, released_moment
from dpsubspace._core.statistics.quantiles import SEARCH
from dpsubspace.exceptions import PrivacyWarning, warn

# Releases of each plan, with their shares of the budget (of mu^2) that a bound on norms leaves.
_NORM_SHARE = 0.1
_RECENTRE = {"centre": Part(1 / 3), "radius": Part(1 / 3, SEARCH), "mean": Part(1 / 3)}
_MEAN = {"recentre": _RECENTRE, "gaussian": {"mean": Part(1.0)}}
_COVARIANCE = {
    "centre": Part(0.1),
    "radius": Part(0.1, SEARCH),
    "mean": Part(0.1),
    "moment": Part(0.7),
}


# Bounds -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """Public ranges of columns; entries count from the middle, in units of half the length."""

    low: np.ndarray  # (d,)
    high: np.ndarray

    @classmethod
    def of(cls, bounds: Any, rows: Any) -> Box | None:
        """Return checked bounds of the columns of some rows; None if there are no bounds."""
        if bounds is None:
            return None
        n_columns = rows.shape[1]
        check_bounds("bounds", bounds, n_columns, column="feature")
        if sparse.issparse(rows):
            raise ValueError("`bounds` would fill sparse rows: give `data_norm`.")
        return cls(*(np.broadcast_to(np.asarray(b, float), n_columns) for b in bounds))

    @property
    def middle(self) -> np.ndarray:
        return self.low / 2 + self.high / 2

    @property
    def half(self) -> np.ndarray:
        return np.maximum(self.high / 2 - self.low / 2, 1e-300)

    def __call__(self, rows: Any) -> Any:
        """Rows within the box, each entry from -1 to 1."""
        return np.clip((np.clip(rows, self.low, self.high) - self.middle) / self.half, -1.0, 1.0)


@dataclass(frozen=True)
class _BoundedPlan(FunctionPlan):
    """Releases from rows with a bound on their norm, which may be a release as well."""

    target: Target
    data_norm: float | None  # Public bound on the norm of rows
    box: Box | None  # Public ranges of the columns instead
    n_columns: int

    def assumed(self) -> tuple[str, ...]:
        if self.box is not None:
            return ("bounds of the features",)
        return ("bound on row norms",) if self.data_norm is not None else ()

    def _parts(self) -> dict[str, Part]:
        """Releases in addition to the release of the bound."""
        raise NotImplementedError

    def budget(self, n_samples: int) -> Budget:
        parts = self._parts()
        if self.data_norm is None and self.box is None:
            left = 1 - _NORM_SHARE
            shared = {name: replace(part, share=part.share * left) for name, part in parts.items()}
            parts = {"norm": Part(_NORM_SHARE)} | shared
        return Budget.split(self.target, parts, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        _warn_of_counts(budget, records.n, records.unit)

    def prepared(self, rows: Any) -> Any:
        return rows if self.box is None else self.box(rows)

    def bounded(self, rows: Any, records: Records, releases: Releases) -> tuple[Features, float]:
        """Return rows of bounded norm, and the bound."""
        norm = math.sqrt(self.n_columns) if self.box is not None else self.data_norm
        norm = _estimated_norm(rows, releases) if norm is None else norm
        return Features.of_rows(rows, RowMap(norm="clip", data_norm=norm), records=records), norm


# Plans ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanPlan(_BoundedPlan):
    name: ClassVar[str] = "private_mean"

    method: str  # A name of `_MEAN`

    def _parts(self) -> dict[str, Part]:
        return _MEAN[self.method]

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        super().warn_before(budget, guarantee, records)

        def ratio_of(budget: Budget, n: int) -> float:
            first = budget.scales.get("centre", budget.scales["mean"])
            return first * math.sqrt(self.n_columns) / n

        def enough(budget: Budget, n: int) -> bool:
            return ratio_of(budget, n) <= 1

        noise_ratio = ratio_of(budget, records.n)
        if noise_ratio > 1:
            warn(
                f"the noise of the sum is {noise_ratio:.2g} times what {records.n}"
                f" {records.unit}s of the largest norm add up to: expect a result that is mostly"
                " noise. More rows, fewer features or a larger epsilon help."
                f"{plan_takes(self, enough, records.n, records.unit)}",
                PrivacyWarning,
                about=("sum", guarantee.epsilon),
            )

    def run(self, ready: Any, records: Records, releases: Releases) -> np.ndarray:
        features, norm = self.bounded(ready, records, releases)
        mean = searched_mean(features, norm, releases)[0]
        if self.box is None:
            return mean
        return np.clip(mean, -1.0, 1.0) * self.box.half + self.box.middle


@dataclass(frozen=True)
class CovariancePlan(_BoundedPlan):
    name: ClassVar[str] = "private_covariance"

    centered: bool  # Whether the mean is subtracted from rows

    def _parts(self) -> dict[str, Part]:
        return _COVARIANCE

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        super().warn_before(budget, guarantee, records)

        def ratio_of(budget: Budget, n: int) -> float:
            return budget.scales["moment"] * math.sqrt(2 * self.n_columns) / n

        def enough(budget: Budget, n: int) -> bool:
            return ratio_of(budget, n) <= 1

        noise_ratio = ratio_of(budget, records.n)
        if noise_ratio > 1:
            warn(
                f"the noise of the matrix is {noise_ratio:.2g} times as strong as {records.n}"
                f" {records.unit}s in one direction: expect a result that is mostly noise. More"
                " rows, fewer features or a larger epsilon help."
                f"{plan_takes(self, enough, records.n, records.unit)}",
                PrivacyWarning,
                about=("matrix", guarantee.epsilon),
            )

    def run(self, ready: Any, records: Records, releases: Releases) -> np.ndarray:
        features, norm = self.bounded(ready, records, releases)
        mean, radius = searched_mean(features, norm, releases)
        near = features.shifted(Shift(mean, None)).clipped(radius, dense=True)
        values, vectors = np.linalg.eigh(released_moment(Rows(near, radius), releases)[0])
        moment = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if self.box is not None:
            moment = self.box.half[:, None] * moment * self.box.half
        if not self.centered:
            mean = mean if self.box is None else mean * self.box.half + self.box.middle
            moment = moment + np.outer(mean, mean)
        return (moment + moment.T) / 2


def _estimated_norm(rows: Any, releases: Releases) -> float:
    norms = rowwise(row_norms, rows)
    if releases.budget.private:
        largest = noisy_range(norms, releases, "norm")[1]
        warn_of_largest(largest, "the lengths of rows", "`data_norm` or `bounds`")
        return max(largest, SMALLEST)
    longest = for_each_part(partial(np.max, initial=0.0), norms)
    return max(*map(float, longest), SMALLEST)


def _warn_of_counts(budget: Budget, n_samples: int, unit_name: str) -> None:
    """Warn if public sizes show that a bound on norms will consist of noise."""
    if "norm" not in budget.parts or not budget.private:
        return
    unit = math.sqrt(0.5) if budget.target.neighboring_relation == "replace_one" else 1.0
    needed = 3 * count_above_noise(budget.scales["norm"] * unit)
    if n_samples < needed:
        warn(
            f"the noise of the counts that a bound on norms is read from hides {n_samples}"
            f" {unit_name}s: about {needed:.0f} are needed. Give `data_norm` or `bounds` from"
            " public knowledge, or expect a result that is mostly noise.",
            PrivacyWarning,
            about=("norms", needed),
        )
