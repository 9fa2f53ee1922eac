"""How the rows and targets of a linear model are bounded: by public or released numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from dpsubspace import _auto
from dpsubspace._accounting.budget import Part, Sizes
from dpsubspace._array import Array, as_like, row_norms, to_numpy
from dpsubspace._release.releases import Releases
from dpsubspace._rows.data import Data
from dpsubspace._rows.maps import RowMap
from dpsubspace._rows.remote import made
from dpsubspace._statistics.counts import LARGEST, SMALLEST, noisy_range
from dpsubspace._statistics.focus import FOCUS_RELEASES, noisy_focus
from dpsubspace.exceptions import PrivacyWarning, warn

__all__ = ["Bounded", "Bounds", "MappedRows", "ScaledRows", "scaled", "warn_of_largest"]


@dataclass(frozen=True)
class Bounded:
    """How rows are bounded, and targets as the loss takes them with the range they had.

    `found` says of each bound whether it is more than a placeholder.
    """

    row_map: RowMap
    targets: Array
    target_bounds: Any = None
    found: Mapping[str, Any] = field(default_factory=dict)

    def public_targets(self, targets: np.ndarray) -> np.ndarray:
        """Targets of public rows as the loss takes them."""
        return targets if self.target_bounds is None else scaled(targets, *self.target_bounds)


class Bounds(Protocol):
    """What bounds rows and targets."""

    @property
    def size(self) -> float:
        """Public bound on the norm of a mapped row; inf where nothing bounds rows."""
        ...

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """What it releases."""
        ...

    def for_table(self, bound: float, limits: Any) -> Any:
        """The same for encoded tables: rows of a known norm, and targets within `limits`."""
        ...

    def __call__(self, data: Data, releases: Releases) -> Bounded:
        """Bound rows and targets."""
        ...


@dataclass(frozen=True)
class MappedRows:
    """Rows that a public map bounds, and labels, which need no bound."""

    row_map: RowMap

    @property
    def size(self) -> float:
        """That of the map."""
        return self.row_map.bound

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """Nothing is released."""
        return {}

    def for_table(self, bound: float, limits: Any) -> MappedRows:
        """The same: rows of any norm are bounded by the map, and labels need no range."""
        return self

    def __call__(self, data: Data, releases: Releases) -> Bounded:
        """Return the map."""
        return Bounded(self.row_map, data.targets)


@dataclass(frozen=True)
class ScaledRows:
    """Rows in units of a bound on their norms, and targets on [-1, 1] by their range.

    Parameters
    ----------
    data_norm : float or None
        Public bound on row norms; None takes that of public rows, or releases one.
    target_bounds : tuple (low, high) or None
        Public range of the targets; None takes that of public targets, or releases one.
    bias : float or None
        Bias entry, in units of the bound on row norms.
    from_public : bool
        Whether public rows may tell.
    rows : bool
        Whether rows need a bound: not those of a module.
    share : float
        Of the budget, for what is released.
    focus : float
        Of the budget, for finding where in their range most targets lie; 0 takes the range.
    """

    data_norm: float | None
    target_bounds: Any
    bias: float | None
    from_public: bool = False
    rows: bool = True
    share: float = _auto.BOUNDS_SHARE
    focus: float = 0.0

    @property
    def size(self) -> float:
        """The bound on rows is 1 in its own units."""
        return math.hypot(1.0, self.bias or 0.0) if self.rows else math.inf

    def missing(self, sizes: Sizes) -> tuple[bool, bool]:
        """Whether the bound on rows and the range of targets have to be released."""
        norm = self.rows and self.data_norm is None and not (self.from_public and sizes.n_public)
        return norm, self.target_bounds is None and not (self.from_public and sizes.labelled)

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """One release of counts for the norms, and one for each target."""
        norm, targets = self.missing(sizes)
        count, parts = int(norm), {}
        if targets:
            count += sizes.known("n_outputs", "the number of target ranges to release")
        if count:
            parts["bounds"] = Part(self.share, count)
        if self.focus:
            parts["focus"] = Part(self.focus, FOCUS_RELEASES)
        return parts

    def for_table(self, bound: float, limits: Any) -> ScaledRows:
        """Bounds of rows whose norm is known, and of targets somewhere within `limits`."""
        data_norm = bound if self.data_norm is None else self.data_norm
        return replace(self, data_norm=data_norm, target_bounds=limits, focus=_auto.FOCUS_SHARE)

    def __call__(self, data: Data, releases: Releases) -> Bounded:
        """Bounds from public knowledge or noisy counts, and what is scaled by them."""
        values = to_numpy(data.targets)
        data_norm, norm_found = self._norm(data, releases)
        *bounds, targets_found = self._range(values, data, releases)
        found = {"data_norm": norm_found, "target_bounds": np.array(targets_found)}
        low, high = (np.broadcast_to(np.asarray(b, float), values.shape[1:]) for b in bounds)
        if "focus" in releases and releases.budget.private:
            low, high = self._focused(values, low, high, releases)
        bias = None if self.bias is None else self.bias * data_norm
        row_map = RowMap(norm="ball", data_norm=float(data_norm), bias=bias)
        like = data.X.data if sparse.issparse(data.X) else data.X
        targets = made(_scaled_like, values, low, high, like)
        return Bounded(row_map, targets, (low.copy(), high.copy()), found)

    def _focused(
        self, values: np.ndarray, low: np.ndarray, high: np.ndarray, releases: Releases
    ) -> tuple[np.ndarray, np.ndarray]:
        """Part of the range of every target that nearly all of its values are in."""
        share, scale = releases.budget.parts["focus"].share, releases.budget.scales["focus"]
        ratio = releases.records_of(values).n / (scale * math.sqrt(share / FOCUS_RELEASES))
        ends = noisy_focus(made(scaled, values, low, high), releases, "focus", ratio)
        start, end = (low + (high - low) * (place + 1) / 2 for place in ends)
        return start, end

    def _norm(self, data: Data, releases: Releases) -> tuple[float, bool]:
        """Bound on row norms, and whether it is one."""
        if self.data_norm is not None or not self.rows:
            return float(self.data_norm or 1.0), True
        if self.from_public and data.public is not None:
            return max(float(row_norms(data.public.X).max()), 1e-49), True
        norms = to_numpy(made(row_norms, data.X))
        *_, largest, found = noisy_range(norms, releases, "bounds", stream="norms")
        return max(largest, SMALLEST), found

    def _range(self, values: np.ndarray, data: Data, releases: Releases) -> tuple[Any, Any, Any]:
        """Ends of the range of every target, and whether they are."""
        known = np.ones(values.shape[1], bool)
        if self.target_bounds is not None:
            return (*self.target_bounds, known)
        if self.from_public and data.public is not None and data.public.targets is not None:
            return (*data.public.target_range, known)
        found = [
            noisy_range(values[:, i], releases, "bounds", stream=f"target {i}")
            for i in range(values.shape[1])
        ]
        low, high, clear = zip(*found, strict=True)
        return low, high, clear


def _scaled_like(targets: np.ndarray, low: np.ndarray, high: np.ndarray, like: Array) -> Array:
    """The same in the dtype of the rows, and where these are."""
    return as_like(scaled(targets, low, high), like)


def warn_of_largest(bound: float, what: str, parameter: str) -> None:
    """Warn where a released bound is the largest of all: what is beyond counts as so large."""
    if bound >= LARGEST:
        warn(
            f"the released bound on {what} is the largest that is looked for, 2^40 (about a"
            " million millions). What is larger counts as so large, and the result is then far"
            " off. Use larger units, such as days in place of nanoseconds, or give"
            f" {parameter} from public knowledge.",
            PrivacyWarning,
            about=("largest", what),
        )


def scaled(targets: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Targets clipped to a range, on [-1, 1]."""
    return 2 * (np.clip(targets, low, high) - low) / (high - low) - 1
