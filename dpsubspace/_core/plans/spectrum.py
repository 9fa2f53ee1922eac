"""The plan of directions in which bounded rows vary most, from its parameters to the spectrum.

Private PCA releases such directions of rows, and a gradient subspace those of gradients of rows.

Where to check the privacy claim: ``SpectralPlan.bounded`` releases what comes before the subspace
(norms in ``_core/statistics/quantiles.py``, means and spread in ``means.py``, radii in
``counts.py`` there), and shortens rows by ``_core/rows/records.py`` and ``Features.clipped``; the
mechanisms of ``_core/statistics/moments.py`` release the rest, with the bounds of
``_core/statistics/moments.py``. Noise is added in ``_core/release/mechanisms.py``. The event is
made by ``Budget.split`` in ``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes
the noise from the same budget.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.ground.arrays import Array, on_device, row_norms, to_numpy
from dpsubspace._core.public.gradient_spaces import GradientSpace
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.statistics.counts import RADIUS_COUNTS, SMALLEST, noisy_radius
from dpsubspace._core.statistics.means import noisy_mean, noisy_spread, recentred_mean
from dpsubspace._core.statistics.moments import MECHANISMS, Mechanism, Rows, Spectrum
from dpsubspace._core.statistics.quantiles import SEARCH, noisy_quantiles
from dpsubspace.exceptions import PrivacyWarning, warn

# Shares of the budget (of mu^2) for the releases before the subspace.
_BOUND_SHARE, _MEAN_SHARE, _RADIUS_SHARE, _SPREAD_SHARE = 0.05, 0.1, 0.02, 0.02
_COARSE_SHARE, _FINE_SHARE = 0.08, 0.04

# Approximate share of the rows that a radius should leave as they are.
_NEAR = {"within": 0.25, "margin": 0.0}

# Share of the rows that a bound on norms that is estimated privately should leave as they are.
_BOUND_LEVEL = 0.9

# Number of columns up to which a square matrix is always used.
_SQUARE = 4096


@dataclass(frozen=True, kw_only=True)
class SpectralPlan(Plan):
    """Parameters that a fit needs: later changes have no effect on it."""

    target: Target  # Requested privacy
    name: str  # Name of the mechanism, or "auto"
    # Number of directions, or a share of the variance; None for as many as there are.
    n_components: int | float | None
    centered: bool  # Whether second moments are about the mean
    data_norm: float | None  # Public bound on the norms of rows
    unit: bool = False  # Whether rows are divided by their norms, so that 1 is the bound
    microbatch_size: int | None = None  # Rows to have in memory at once
    space: GradientSpace | None = None  # Space whose coordinates take the place of rows

    @property
    def fraction(self) -> float | None:
        k = self.n_components
        return None if k is None or isinstance(k, Integral) else float(k)

    def mechanism(self, n_features: int | None) -> Mechanism:
        if self.name != "auto":
            return MECHANISMS[self.name]
        # The number of columns is not known before the data are: both mechanisms cost the same.
        square = n_features is None or n_features <= _SQUARE
        return MECHANISMS["adaptive" if square else "power"]

    def n_released(self, n_samples: int | None, n_features: int) -> int:
        if self.fraction is not None:
            mechanism = self.mechanism(n_features)
            if mechanism.pure or not mechanism.forms_rows:
                raise ValueError(
                    f"`n_components`={self.n_components} is a share of the variance, which"
                    f" mechanism={self.name!r} does not know for {n_features} columns. Give"
                    " the number of components, or use mechanism='adaptive'."
                )
            return n_features
        most = n_features if n_samples is None else min(n_samples, n_features)
        k = most if self.n_components is None else int(self.n_components)
        if k > most:
            raise ValueError(
                f"`n_components`={k} is more than the {most} that {n_samples} rows of {n_features}"
                " columns have. Use at most as many, or None for all."
            )
        return k

    def parts(self, n_samples: int | None, n_features: int | None) -> dict[str, Part]:
        mechanism = self.mechanism(n_features)
        before: dict[str, Part] = {}
        if self.data_norm is None:
            before["norms"] = Part(_BOUND_SHARE, SEARCH)
        if mechanism.recentres:
            counts = Part(_RADIUS_SHARE, RADIUS_COUNTS)
            before["mean"] = Part(_FINE_SHARE)
            before["coarse mean"] = Part(_COARSE_SHARE)
            before |= dict.fromkeys(("coarse radius", "radius", "far"), counts)
            before["spread"] = Part(_SPREAD_SHARE)
        elif self.centered:
            before["mean"] = Part(_MEAN_SHARE)
        rest = 1 - sum(part.share for part in before.values())
        k = self.n_components if isinstance(self.n_components, Integral) else None
        if mechanism.pure and k is None:
            if n_features is None:
                raise ValueError("the number of directions depends on `n_features`: pass it.")
            k = self.n_released(n_samples, n_features)
        own = mechanism.parts(int(k or 1), n_features)
        return before | {name: replace(p, share=rest * p.share) for name, p in own.items()}

    def budget(self, sizes: Sizes) -> Budget:
        parts = self.parts(sizes.n_samples, sizes.n_features)
        return Budget.split(self.target, parts, sizes.n_samples)

    def width(self, n_features: int) -> int:
        return n_features if self.space is None else self.space.width

    def check_size(self, data: Data) -> None:
        width = self.width(data.X.shape[1])
        k = self.n_released(data.records.n, width)
        _check_memory(self.mechanism(width), width, k, data.public is not None)

    def prepared(self, data: Data, where: Any, budget: Budget) -> tuple[Data, Any]:
        # Coordinates are computed once they are paid for, since a module may fail on a row.
        X = on_device(data.X, where) if self.space is None else data.X
        return replace(data, X=X, records=data.records.on_device(where)), where

    def run(
        self, ready: tuple[Data, Any], releases: Releases, rng: Any, after_step: Any
    ) -> FittedSpectrum:
        data, where = ready
        X, sets = data.X, [] if data.public is None else data.public.sets
        if self.space is not None:
            X = on_device(self.space.embedded(X), where)
        rows, unit, mean = self.bounded(X, data.records, sets, releases)
        n, width = data.records.n, X.shape[1]
        spectrum = self.mechanism(width)(rows, self.n_released(n, width), releases)
        return FittedSpectrum(spectrum, unit, mean, n)

    def bounded(
        self, X: Array, records: Records, public: list[np.ndarray], releases: Releases
    ) -> tuple[Rows, float, np.ndarray | None]:
        """Bounded rows in units of the bound on their norms, that bound, and their mean.

        In these units nothing overflows, whatever the bound is.

        Privacy: norms, mean, distances from the mean and their spread are released one after
        another, each with the bound that earlier ones determine, so they compose
        adaptively, and with the subspace to the event of the fit.
        """
        private = releases.budget.private
        bound = self.data_norm
        if bound is None:
            norms = to_numpy(rowwise(row_norms, X))[:, None]
            level = _BOUND_LEVEL if private else 1.0
            found = noisy_quantiles(norms, np.array([level]), releases, "norms")
            # A place of the search stands for an octave over 4,096.
            bound = max(1.001 * float(found[0, 0]), SMALLEST)
        row_map = RowMap(norm="l2" if self.unit else "ball", data_norm=float(bound))
        features = Features.of_rows(X, row_map, self.microbatch_size, records)
        shown = [Features(rows, row_map) for rows in public]
        mechanism, radius, spread, shift = self.mechanism(X.shape[1]), 1.0, None, None
        if self.centered or mechanism.recentres:
            if private and mechanism.recentres:
                mean = recentred_mean(
                    features, radius, releases, public=_dense_rows(shown), **_NEAR
                ).mean
                # Nearly all rows are clipped: their directions show the subspace, at the
                # price of the shortest rows and not of the longest.
                features = features.shifted(Shift(mean, None))
                distances = features.distances()
                quartile = noisy_radius(distances, 2.0, releases, "radius", **_NEAR)
                radius = quartile / math.sqrt(2)
                far = noisy_radius(distances, 2.0, releases, "far", within=0.9, margin=0.0)
                spread = noisy_spread(distances, 2 * far, releases)
            else:
                mean = noisy_mean(features, radius, releases, public=_dense_rows(shown)).mean
                features, radius = features.shifted(Shift(mean, None)), 1.0 if private else 2.0
            shift = features.shift
            features = features.clipped(radius, dense=mechanism.forms_rows)
            shown = [part.shifted(shift).clipped(radius, dense=True) for part in shown]
        offset = None if shift is None or self.centered else shift.mean
        rows = Rows(features, radius, spread=spread, offset=offset, public=_dense_rows(shown))
        return rows, float(bound), shift.mean if shift is not None and self.centered else None

    def n_kept(self, spectrum: Spectrum) -> int:
        if self.fraction is None:
            return len(spectrum.components)
        explained = np.cumsum(spectrum.energies) / (spectrum.total or 1.0)
        enough = explained >= self.fraction * (1 - 1e-12)
        if enough.any():
            return int(np.argmax(enough)) + 1
        k = max(1, int(np.count_nonzero(spectrum.energies)))
        warn(
            f"`n_components`={self.n_components} of the variance is hidden by noise: the"
            f" {k} components that stand out of it explain {explained[-1]:.2g}, and are kept.",
            PrivacyWarning,
            about=("n_components", self.n_components),
        )
        return k


@dataclass(frozen=True)
class FittedSpectrum:
    spectrum: Spectrum
    unit: float
    mean: np.ndarray | None
    n_samples: int


def warn_of_spectrum(plan: SpectralPlan, budget: Budget, sizes: Sizes, unit: str) -> None:
    width, n_samples = (sizes.known(x, "the warning") for x in ("n_features", "n_samples"))
    width = plan.width(width)
    ratio = plan.mechanism(width).noise(budget.scales, width) / n_samples
    if ratio > 0.5:
        warn(
            f"the noise of the second moments is {ratio:.2g} times as large as the largest signal"
            f" that {n_samples} {unit}s can give: expect components that are mostly noise."
            f" More {unit}s, fewer columns or a larger epsilon help.",
            PrivacyWarning,
            about=("second moment", budget.target.epsilon),
        )


def _dense_rows(sets: list[Features]) -> np.ndarray | None:
    """Public rows after their maps; None where there are none."""
    blocks = [part.at(slice(0, part.n_samples)).dense() for part in sets]
    return np.concatenate(blocks) if blocks else None


def _check_memory(mechanism: Mechanism, n_features: int, k: int, public: bool) -> None:
    needed, there = mechanism.memory(n_features, k, public), _machine_memory()
    if needed > there:
        least = MECHANISMS["power"].memory(n_features, k, public)
        raise MemoryError(
            f"{n_features} columns and {k} components need about {needed / 2**30:.1f} GiB on"
            f" top of the rows, and the machine has {there / 2**30:.1f} GiB. mechanism='power'"
            f" needs {least / 2**30:.1f} GiB for as many components, and less for fewer."
        )


def _machine_memory() -> float:
    """Bytes of memory of this machine; inf where that is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf
