"""Bounds on the rows and targets of a linear model, and centres of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from dpsubspace._core.accounting.budget import Budget, Part, Sizes
from dpsubspace._core.gradients.losses import NumberLoss, on_unit
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import Array, as_like, row_norms, to_numpy
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.rows.remote import for_each_part, rowwise
from dpsubspace._core.statistics.counts import (
    LARGEST,
    RADIUS_COUNTS,
    SMALLEST,
    count_noise,
    noisy_radius,
    noisy_range,
)
from dpsubspace._core.statistics.intervals import noisy_intervals
from dpsubspace._core.statistics.means import (
    FOCUS,
    FOCUS_RELEASES,
    ColumnShares,
    Focus,
    noisy_column_shares,
    noisy_focus,
    noisy_mean,
    recentred_mean,
)
from dpsubspace._core.statistics.quantiles import LEVEL
from dpsubspace.exceptions import PrivacyWarning, warn

# Centres ----------------------------------------------------------------------------------------
# Centres that are subtracted from rows before a linear model is trained: released or public means.
#
# Notes
# -----
# Privacy: a mean and a radius are constants once they are released, so a row that is shifted by the
# mean and clipped to the radius is a function of its record alone. Releases and steps compose
# adaptively. The mean of public rows costs nothing, and neither does its weighted average with the
# released one.


class Centre(Protocol):
    """Method by which rows are centred."""

    def parts(self, sizes: Sizes) -> Mapping[str, Part]: ...

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        """Features shifted by a mean, with a constant entry appended where there is one.

        `public` has the public rows after the map that bounds rows.
        """
        ...


@dataclass(frozen=True)
class OneMean:
    """The mean of the rows; where there are public rows, averaged with theirs."""

    share: float = auto.MEAN_SHARE  # Share of the budget without and with public rows
    public_share: float = auto.PUBLIC_MEAN_SHARE

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        return {"mean": Part(self.public_share if sizes.n_public else self.share)}

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        mean, error = noisy_mean(features, features.bound, releases, "mean", public=public)
        return features.shifted(Shift(mean, constant, error))


@dataclass(frozen=True)
class AdaptiveCentre:
    share: float = auto.MEAN_SHARE  # Share of the budget for all of it

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        counts = {"coarse radius": RADIUS_COUNTS, "radius": RADIUS_COUNTS}
        return {
            name: Part(self.share * part, counts.get(name, 1))
            for name, part in auto.ADAPTIVE_PARTS.items()
        }

    def legible(self, budget: Budget, n_samples: int) -> bool:
        """Whether the counts behind the radius stand out from noise, by public sizes."""
        noise = count_noise(budget.scales["radius"], budget.target.neighboring_relation)
        return noise <= auto.ADAPTIVE_NOISE * n_samples

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        bound = features.bound
        if not releases.budget.private:  # then nothing is clipped
            mean = noisy_mean(features, bound, releases, "mean").mean
            return features.shifted(Shift(mean, constant))
        # Few rows are further from the mean than the bound, and they matter less than more noise
        # would.
        mean, error = recentred_mean(features, bound, releases, furthest=bound)
        about = features.shifted(Shift(mean, None))
        radius = min(bound, 2 * noisy_radius(about.distances(), bound, releases, "radius"))
        # Scaled so that the radius becomes the bound: everything else stays the same.
        zoom = bound / radius
        shift = Shift(mean, None if constant is None else constant / zoom, error)
        return about.shifted(shift).clipped(radius, zoom)


# Bounds -----------------------------------------------------------------------------------------

# Name of the release of the lengths of columns.
LENGTHS = "lengths of columns"

# Releases of counts that find the ranges of targets: octaves, and cells that are narrower each
# time. A target whose distance from 0 is a million of its deviations needs all of them. A target
# near 0 is counted in the same cells again, and loses little.
_LOOKS = 8


@dataclass(frozen=True)
class Limits:
    """Bounds on rows, and the range of targets: public or released, so both may be published.

    `found` shows for each bound whether it is more than a placeholder.
    """

    row_map: RowMap
    target_bounds: Any = None
    found: Mapping[str, Any] = field(default_factory=dict)
    focus: Focus | None = None  # Location of targets within a public range, as released
    shares: ColumnShares | None = None  # Shares of the columns in the squared length of rows


@dataclass(frozen=True)
class Bounded:
    limits: Limits
    targets: Array
    loss: NumberLoss | None = None  # Loss that the targets are for; None for labels

    def public_targets(self, targets: np.ndarray) -> np.ndarray:
        if self.loss is None:
            return targets
        return self.loss.targets(targets, *self.limits.target_bounds)


class Bounds(Protocol):
    """Method that bounds rows and targets."""

    @property
    def size(self) -> float:
        """Public bound on the norm of a mapped row; inf where rows are not bounded."""
        ...

    def parts(self, sizes: Sizes) -> Mapping[str, Part]: ...

    def for_table(self, bound: float, limits: Any, *, estimated: bool) -> Any:
        """Bounds for encoded tables: rows of a known norm, and targets within `limits`.

        `estimated` is true if the limits are estimated privately, and not public.
        """
        ...

    def __call__(self, data: Data, releases: Releases, loss: Any) -> Bounded:
        """Bound rows and targets; `loss` transforms the targets."""
        ...


@dataclass(frozen=True)
class MappedRows:
    """Rows that a public map bounds, and labels, which need no bound."""

    row_map: RowMap

    @property
    def size(self) -> float:
        return self.row_map.bound

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        return {}

    def for_table(self, bound: float, limits: Any, *, estimated: bool) -> MappedRows:
        return self

    def __call__(self, data: Data, releases: Releases, loss: Any) -> Bounded:
        return Bounded(Limits(self.row_map), data.targets)


@dataclass(frozen=True)
class ScaledRows:
    """Rows in units of a bound on their norms, and targets clipped to their range."""

    # Public bound on row norms; with None it is that of public rows, or released.
    data_norm: float | None
    # Public range of the targets; with None it is that of public targets, or released.
    target_bounds: Any
    bias: float | None  # Bias entry, in units of the bound on row norms
    from_public: bool = False  # Whether public rows may be used for the bounds
    rows: bool = True  # Whether rows need a bound: false for rows of a module
    share: float = auto.BOUNDS_SHARE  # Share of the budget for released bounds
    # Share of the budget for finding where in their range most targets lie; 0 uses the whole range.
    focus: float = 0.0
    narrower: float = 1.0  # Least factor by which that part is narrower if it replaces the range
    lengths: float = 0.0  # Share of the budget for finding the columns that dominate the row norms
    telling: bool = True  # Whether the range is public, so that users can be warned about it

    @property
    def size(self) -> float:
        """The bound on rows, which is 1 in its own units."""
        return math.hypot(1.0, self.bias or 0.0) if self.rows else math.inf

    def missing(self, sizes: Sizes) -> tuple[bool, bool]:
        """Whether the bound on rows, and the range of targets, have to be released."""
        norm = self.rows and self.data_norm is None and not (self.from_public and sizes.n_public)
        return norm, self.target_bounds is None and not (self.from_public and sizes.labelled)

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """Counts of the norms, and counts of all targets, with equal parts of the share."""
        norm, targets = self.missing(sizes)
        n_targets = targets and sizes.known("n_outputs", "the number of target ranges to release")
        one, parts = self.share / max(1, norm + n_targets), {}
        if norm:
            parts["bounds"] = Part(one)
        if n_targets:
            parts["targets"] = Part(n_targets * one, _LOOKS)
        if self.focus:
            parts[FOCUS] = Part(self.focus, FOCUS_RELEASES)
        if self.lengths:
            parts[LENGTHS] = Part(self.lengths)
        return parts

    def noise(self, budget: Budget, sizes: Sizes) -> float:
        """Noise of all counts of one bound together, over their sensitivity; 0 without noise."""
        noise = budget.scales.get("bounds", 0.0)
        if "targets" in budget.parts:
            n_targets = sizes.known("n_outputs", "the noise of target ranges")
            noise = max(noise, budget.per_record_multiplier("targets") * math.sqrt(n_targets))
        return noise

    def looking(self) -> ScaledRows:
        """Copy that also finds where targets lie in a given range, and which columns dominate."""
        if self.target_bounds is None:
            return self
        lengths = auto.LENGTHS_SHARE if self.rows else 0.0
        return replace(self, focus=auto.RANGE_SHARE, narrower=auto.RANGE_FOCUS, lengths=lengths)

    def for_table(self, bound: float, limits: Any, *, estimated: bool) -> ScaledRows:
        data_norm = bound if self.data_norm is None else self.data_norm
        own = {"focus": auto.FOCUS_SHARE, "narrower": 1.0, "telling": not estimated}
        return replace(self, data_norm=data_norm, target_bounds=limits, lengths=0.0, **own)

    def __call__(self, data: Data, releases: Releases, loss: NumberLoss) -> Bounded:
        values = to_numpy(data.targets)
        data_norm, norm_found = self._norm(data, releases)
        *bounds, targets_found = self._range(values, data, releases)
        found = {"data_norm": norm_found, "target_bounds": np.array(targets_found)}
        low, high = (np.broadcast_to(np.asarray(b, float), values.shape[1:]) for b in bounds)
        focus = None
        if FOCUS in releases and releases.budget.private:
            low, high, focus = focused(values, low, high, releases, self.narrower)
            focus = focus if self.telling else None
        shares = None
        if LENGTHS in releases and releases.budget.private:
            shares = noisy_column_shares(data.X, releases, LENGTHS)
        bias = None if self.bias is None else self.bias * data_norm
        row_map = RowMap(norm="ball", data_norm=float(data_norm), bias=bias)
        like = data.X.data if sparse.issparse(data.X) else data.X
        targets = rowwise(as_like, loss.targets(values, low, high), like)
        limits = Limits(row_map, (low.copy(), high.copy()), found, focus, shares)
        return Bounded(limits, targets, loss)

    def _norm(self, data: Data, releases: Releases) -> tuple[float, bool]:
        if self.data_norm is not None or not self.rows:
            return float(self.data_norm or 1.0), True
        if self.from_public and data.public is not None:
            return max(float(row_norms(data.public.X).max()), 1e-49), True
        norms = to_numpy(rowwise(row_norms, data.X))
        *_, largest, found = noisy_range(norms, releases, "bounds", stream="norms")
        return max(largest, SMALLEST), found

    def _range(self, values: np.ndarray, data: Data, releases: Releases) -> tuple[Any, Any, Any]:
        known = np.ones(values.shape[1], bool)
        if self.target_bounds is not None:
            return (*self.target_bounds, known)
        if self.from_public and data.public is not None and data.public.targets is not None:
            return (*data.public.target_range, known)
        if not releases.budget.private:
            low, high = _extremes(values, releases.records_of(values).weights_numpy)
        else:
            low, high, known = noisy_intervals(values, releases, "targets", level=LEVEL)
            low, high = np.where(known, low, -1.0), np.where(known, high, 1.0)
        # The range has a positive width also where a target has only one value.
        middle = low / 2 + high / 2
        half = np.maximum(high / 2 - low / 2, SMALLEST * np.maximum(np.abs(middle), 1.0))
        return middle - half, middle + half, known


def focused(
    values: np.ndarray, low: np.ndarray, high: np.ndarray, releases: Releases, narrower: float
) -> tuple[np.ndarray, np.ndarray, Focus]:
    """Part of the range of every target with nearly all of its values, and the release behind it.

    It is the whole range where that part is not narrower by the factor `narrower`.
    """
    share, scale = releases.budget.parts[FOCUS].share, releases.budget.scales[FOCUS]
    ratio = releases.records_of(values).n / (scale * math.sqrt(share / FOCUS_RELEASES))
    found = noisy_focus(on_unit(values, low, high), releases, FOCUS, ratio)
    start, end = (low + (high - low) * (place + 1) / 2 for place in (found.low, found.high))
    taken = (found.high - found.low) * narrower <= 2
    return np.where(taken, start, low), np.where(taken, end, high), found._replace(taken=taken)


def _extremes(values: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest value of every target, not private."""
    ends = np.stack([*for_each_part(_ends, values, weights)])
    return ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)


def _ends(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The least and largest value for some rows, of shape (2, t); inf and -inf without rows."""
    values = values if weights is None else values[weights > 0]
    low, high = values.min(axis=0, initial=math.inf), values.max(axis=0, initial=-math.inf)
    return np.stack([low, high])


def warn_of_largest(bound: float, what: str, parameter: str) -> None:
    """Warn where a released bound is the largest possible: values beyond it are clipped to it."""
    if bound >= LARGEST:
        warn(
            f"the released bound on {what} is 2^40 (about a million millions), the largest"
            " possible one. Larger values count as 2^40, and the result is then far off. Use"
            " larger units, such as days in place of nanoseconds, or give"
            f" {parameter} from public knowledge.",
            PrivacyWarning,
            about=("largest", what),
        )
