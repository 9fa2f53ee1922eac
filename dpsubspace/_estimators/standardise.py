"""What columns and targets are standardised by: public ranges, or what noisy counts tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Part
from dpsubspace._array import to_numpy
from dpsubspace._release.releases import Releases
from dpsubspace._rows.affine import Affine, AffineRows
from dpsubspace._rows.remote import made
from dpsubspace._statistics.scales import SCALES, Scales, noisy_scales, scale_share
from dpsubspace._statistics.standards import Standard, noisy_standard

__all__ = ["Standardised", "Standards"]

COLUMNS, TARGETS = "columns", "targets"

# Columns that are taken where their number is not known: any number costs the same.
_SOME = 10

# Scale of what is not found: predictions are then about 0, whatever the noise is.
_NOTHING = 1e-100

# How far private rows may be from public ones that tell their scale, in units of the usual limit.
_DIFFERENT = 2.5


@dataclass(frozen=True)
class Standardised:
    """Location and scale of columns and of targets, and of which of them these were found.

    `limit` is what standardised entries of rows are cut to.
    """

    columns: Standard
    targets: Standard
    found: Mapping[str, np.ndarray]
    limit: float


@dataclass(frozen=True)
class Standards:
    """How location and scale of columns and targets are found.

    Parameters
    ----------
    columns, targets : tuple (low, high) or None
        Public ranges. None finds them, wherever they are.
    reach : float
        Number of rows over the noise multiplier of the whole fit.
    as_seen : bool
        Whether columns are taken to be of location 0 and scale 1 already: nothing is released.
    """

    columns: Any
    targets: Any
    reach: float
    as_seen: bool = False

    def parts(self, n_columns: int | None) -> dict[str, Part]:
        """What is released, in its order: what has to be found, and means between ranges."""
        share, parts = self._share(n_columns), {}
        if share:
            names = [name for name in SCALES if self.columns is None or name != "lengths"]
            total = sum(SCALES[name].share for name in names)
            parts = {
                name: replace(SCALES[name], share=share * SCALES[name].share / total)
                for name in names
            }
        if self.columns is not None and not self.as_seen:
            parts[COLUMNS] = Part(_auto.STANDARD_SHARE)
        if self.targets is not None:
            parts[TARGETS] = Part(_auto.TARGET_SHARE)
        return parts

    def _share(self, n_columns: int | None) -> float:
        """Share of the budget for what has to be found."""
        if self.columns is None:
            return scale_share(1 / self.reach, n_columns or _SOME)
        return scale_share(1 / self.reach, 1) / 2 if self.targets is None else 0.0

    def __call__(self, seen: AffineRows, targets: Any, releases: Releases) -> Standardised:
        """Release location and scale of what is seen of rows, and of targets (n, c)."""
        columns = None if self.columns is not None else to_numpy(seen.data)
        values = None if self.targets is not None else to_numpy(targets)
        bought = noisy_scales(columns, values, releases)
        own, own_found = self._between(self.columns, bought[0], seen, releases, COLUMNS)
        identity = Affine.identity(targets.shape[1])
        records = made(getattr, seen, "records")  # where the rows are
        rows = made(AffineRows, targets, identity, constant=False, records=records)
        theirs, found = self._between(self.targets, bought[1], rows, releases, TARGETS)
        limit = _auto.FAR * (_DIFFERENT if self.as_seen else 1.0)
        all_found = {"bounds": own_found, "target_bounds": found}
        return Standardised(own, theirs, all_found, limit if releases.budget.private else math.inf)

    def _between(
        self, ranges: Any, bought: Scales, rows: AffineRows, releases: Releases, name: str
    ) -> tuple[Standard, np.ndarray]:
        """Means and deviations between ranges, where these are known, and whether they are."""
        if ranges is None:
            # What is not found is anywhere, and may not decide how large predictions are.
            found = bought.found if releases.budget.private else np.ones(rows.width, bool)
            scale = np.where(bought.scale > 0, bought.scale, 1.0)
            scale = np.where(found, scale, _NOTHING)
            return Standard(np.where(found, bought.location, 0.0), scale), bought.found
        known = np.ones(rows.width, bool)
        if self.as_seen and name == COLUMNS:
            return Standard(np.zeros(rows.width), np.ones(rows.width)), known
        low, high = (np.broadcast_to(np.asarray(end, float), rows.width) for end in ranges)
        return noisy_standard(rows, low, high, releases, name), known
