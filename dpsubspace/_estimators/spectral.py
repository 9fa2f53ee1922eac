"""Directions in which bounded rows vary most: what private PCA and gradient subspaces share.

Where to check the privacy claim: ``SpectralPlan.bounded`` releases what comes before the subspace,
and shortens rows by ``_rows/maps.py`` and ``Features.clipped``; the mechanisms of
``_statistics/spectra.py`` release the rest, with the bounds of ``_statistics/moments.py``. Noise
is added in ``_release/mechanisms.py``. The event is made by ``Budget.split`` in
``_accounting/budget.py``, and ``_release/releases.py`` takes the noise from the same budget.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from dpsubspace._accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._array import Array, check_device, on_device, plain_arithmetic, row_norms, to_numpy
from dpsubspace._estimators.base import guarantee_of
from dpsubspace._public.gradient_spaces import GradientSpace
from dpsubspace._release.noise import as_noise
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import RowMap, Shift
from dpsubspace._rows.records import Records
from dpsubspace._rows.remote import made
from dpsubspace._statistics.centring import recentred_mean
from dpsubspace._statistics.counts import RADIUS_COUNTS, SMALLEST, noisy_radius
from dpsubspace._statistics.means import noisy_mean, noisy_spread
from dpsubspace._statistics.moments import Rows
from dpsubspace._statistics.quantiles import SEARCH, noisy_quantiles
from dpsubspace._statistics.spectra import MECHANISMS, Mechanism, Spectrum
from dpsubspace.exceptions import PrivacyWarning, warn

__all__ = ["SpectralPlan", "fit_spectrum"]

# Shares of the budget (of mu^2) for what comes before the subspace.
_BOUND_SHARE, _MEAN_SHARE, _RADIUS_SHARE, _SPREAD_SHARE = 0.05, 0.1, 0.02, 0.02
_COARSE_SHARE, _FINE_SHARE = 0.08, 0.04

# Share of the rows that a radius should leave as they are, more or less.
_NEAR = {"within": 0.25, "margin": 0.0}

# Share of the rows that a bound on norms that is bought should leave as they are.
_BOUND_LEVEL = 0.9

# Columns up to which a square matrix is taken for granted.
_SQUARE = 4096


@dataclass(frozen=True, kw_only=True)
class SpectralPlan:
    """What a fit needs of the parameters: nothing that is changed later has an effect on it.

    Parameters
    ----------
    target : Target
        Privacy that is asked for.
    name : str
        Of the mechanism, or "auto".
    n_components : int, float or None
        Directions, or a share of the variance, or as many as there are.
    centered : bool
        Whether second moments are about the mean.
    data_norm : float or None
        Public bound on the norms of rows.
    unit : bool
        Whether rows are divided by their norms, so that 1 is the bound.
    microbatch_size : int or None
        Rows to have in memory at once.
    device, random_state : object
        As the estimator has them.
    """

    target: Target
    name: str
    n_components: int | float | None
    centered: bool
    data_norm: float | None
    unit: bool = False
    microbatch_size: int | None = None
    device: Any
    random_state: Any

    @property
    def fraction(self) -> float | None:
        """Share of the variance to explain, where `n_components` is one."""
        k = self.n_components
        return None if k is None or isinstance(k, Integral) else float(k)

    def mechanism(self, n_features: int | None) -> Mechanism:
        """How the subspace of so many columns is found."""
        if self.name != "auto":
            return MECHANISMS[self.name]
        # Not known before the data are: both cost the same.
        square = n_features is None or n_features <= _SQUARE
        return MECHANISMS["adaptive" if square else "power"]

    def n_released(self, n_samples: int | None, n_features: int) -> int:
        """Components to release; all of them where a share of the variance is asked for."""
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
        """All that a fit releases, in the order of its event."""
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
        """All releases of a fit of these sizes, and what they cost together."""
        parts = self.parts(sizes.n_samples, sizes.n_features)
        return Budget.split(self.target, parts, sizes.n_samples)

    def bounded(
        self, X: Array, records: Records, public: tuple[np.ndarray, ...], releases: Releases
    ) -> tuple[Rows, float, np.ndarray | None]:
        """Bounded rows in units of the bound on their norms, that bound, and their mean.

        In these units nothing overflows, whatever the bound is.

        Notes
        -----
        Privacy: norms, mean, distances from the mean and their spread are released one after
        another, each with the bound that earlier ones determine, so they compose
        adaptively, and with the subspace to the event of the fit.
        """
        private = releases.budget.private
        bound = self.data_norm
        if bound is None:
            norms = to_numpy(made(row_norms, X))[:, None]
            level = _BOUND_LEVEL if private else 1.0
            found = noisy_quantiles(norms, np.array([level]), releases, "norms")
            # A place of the search stands for an octave over 4,096.
            bound = max(1.001 * float(found[0, 0]), SMALLEST)
        row_map = RowMap(norm="l2" if self.unit else "ball", data_norm=float(bound))
        features = made(Features, X, row_map, self.microbatch_size, records)
        shown = [Features(rows.astype(np.float64), row_map) for rows in public]
        mechanism, radius, spread, shift = self.mechanism(X.shape[1]), 1.0, None, None
        if self.centered or mechanism.recentres:
            if private and mechanism.recentres:
                mean = recentred_mean(features, radius, releases, public=_formed(shown), **_NEAR)
                # Nearly all rows are clipped: their directions tell of the subspace, at the
                # price of the shortest rows and not of the longest.
                features = features.shifted(Shift(mean, None))
                distances = features.distances()
                quartile = noisy_radius(distances, 2.0, releases, "radius", **_NEAR)
                radius = quartile / math.sqrt(2)
                far = noisy_radius(distances, 2.0, releases, "far", within=0.9, margin=0.0)
                spread = noisy_spread(distances, 2 * far, releases)
            else:
                mean = noisy_mean(features, radius, releases, public=_formed(shown))
                features, radius = features.shifted(Shift(mean, None)), 1.0 if private else 2.0
            shift = features.shift
            features = features.clipped(radius, formed=mechanism.forms_rows)
            shown = [part.shifted(shift).clipped(radius, formed=True) for part in shown]
        offset = None if shift is None or self.centered else shift.mean
        rows = Rows(features, radius, spread=spread, offset=offset, public=_formed(shown))
        return rows, float(bound), shift.mean if shift is not None and self.centered else None

    def n_kept(self, spectrum: Spectrum) -> int:
        """Components that are kept of those that were released."""
        if self.fraction is None:
            return len(spectrum.components)
        explained = np.cumsum(spectrum.energies) / (spectrum.total or 1.0)
        enough = explained >= self.fraction * (1 - 1e-12)
        if enough.any():
            return int(np.argmax(enough)) + 1
        k = max(1, int(np.count_nonzero(spectrum.energies)))
        warn(
            f"`n_components`={self.n_components} of the variance cannot be told from noise: the"
            f" {k} components that stand out of it explain {explained[-1]:.2g}, and are kept.",
            PrivacyWarning,
            about=("n_components", self.n_components),
        )
        return k


def fit_spectrum(
    estimator: Any,
    plan: SpectralPlan,
    X: Array,
    records: Records,
    budget: Budget,
    known: tuple[str, ...],
    *,
    space: GradientSpace | None = None,
    public: tuple[np.ndarray, ...] = (),
) -> tuple[Spectrum, float, np.ndarray | None]:
    """Directions of checked rows, the unit they are in, and their mean; sets ``privacy_`` first.

    Parameters
    ----------
    estimator : PrivateEstimator
        Whose fit it is.
    plan : SpectralPlan
        What to do.
    X : array or CSR matrix of shape (n_samples, n_features)
        Private rows.
    records : Records
        Whose the rows are.
    budget : Budget
        What is released, and what it costs.
    known : tuple of str
        What the guarantee assumes to be public.
    space : GradientSpace, optional
        What rows are seen in: their coordinates take their place.
    public : tuple of ndarray
        Public rows.

    Notes
    -----
    Privacy: `plan` was read from the parameters before anything else runs, and all that is
    released is in the budget that is charged. Whatever may be refused is refused before
    ``_start_spending``; from there on, failing costs what succeeding costs. Coordinates are
    computed after it, since a module may fail on a row.
    """
    n_samples, width = records.n, X.shape[1] if space is None else space.width
    where, noise = check_device(plan.device), as_noise(plan.random_state)
    mechanism, k = plan.mechanism(width), plan.n_released(n_samples, width)
    _check_memory(mechanism, width, k, bool(public))
    guarantee = guarantee_of(
        budget,
        secure=noise.secure,
        n_samples=n_samples,
        n_features=estimator.n_features_in_,
        public=known,
        unit=records.unit,
    )
    _warn(mechanism, budget, n_samples, width, records.unit)
    with plain_arithmetic(where):
        X = X if space is not None else on_device(X, where)
        releases, own = Releases(budget, noise, records), records.on_device(where)
        estimator._start_spending(guarantee)
        X = X if space is None else on_device(space.embedded(X), where)
        rows, unit, mean = plan.bounded(X, own, public, releases)
        return mechanism(rows, k, releases), unit, mean


def _warn(mechanism: Mechanism, budget: Budget, n_samples: int, n_features: int, unit: str) -> None:
    """Warn of what public quantities already tell to be a bad idea."""
    if not budget.private:
        return
    ratio = mechanism.noise(budget.scales, n_features) / n_samples
    if ratio > 0.5:
        warn(
            f"the noise of the second moment is {ratio:.2g} times as strong as all of"
            f" {n_samples} {unit}s in one direction: expect components that are mostly noise."
            f" More {unit}s, fewer columns or a larger epsilon help.",
            PrivacyWarning,
            about=("second moment", budget.target.epsilon),
        )


def _formed(sets: list[Features]) -> np.ndarray | None:
    """Public rows after their maps; None where there are none."""
    blocks = [part.at(slice(0, part.n_samples)).formed() for part in sets]
    return np.concatenate(blocks) if blocks else None


def _check_memory(mechanism: Mechanism, n_features: int, k: int, public: bool) -> None:
    """MemoryError where the machine does not have what a mechanism needs beside the rows."""
    needed, there = mechanism.memory(n_features, k, public), _machine_memory()
    if needed > there:
        least = MECHANISMS["power"].memory(n_features, k, public)
        raise MemoryError(
            f"{n_features} columns and {k} components need about {needed / 2**30:.1f} GiB beside"
            f" the rows, and the machine has {there / 2**30:.1f} GiB. mechanism='power' needs"
            f" {least / 2**30:.1f} GiB for as many components, and less for fewer."
        )


def _machine_memory() -> float:
    """Bytes of memory of this machine; inf where that is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf
