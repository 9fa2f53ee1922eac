"""Releases of where columns of unknown units lie, and how widely they are spread.

Design note. Releases of counts find any column, wherever it is: cells of an octave, and then
equal cells about the place that these showed. Equal cells are counted several times. A column that
is far from 0, a year say, is in one octave and in few of the cells: it is counted again in smaller
cells, where it was found. Any other column is counted again in the same cells, and the mean of
what is released of it has the noise of one release that costs as much as all of them. So it pays
nothing for what others need. What is released are maps of these counts (``cell_maps.py``). Two
searches for quantiles take twenty releases for what is found here by a few, and moments need a
range to begin with.

A scale that is too small is worse than one that is too large: entries that are far out in units
of it are cut, or have weights that noise decides. So scales are chosen above the median of what is
likely, and those of columns are no smaller than a cell, also where they are constant, or would be
but for a few rows. Columns of which no size is likely enough count as not found, and are best
left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.ground.arrays import Scratch, slices
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import sum_over_parts
from dpsubspace._core.statistics.cell_maps import (
    CELL,
    COLUMNS,
    TARGETS,
    CellCounter,
    CellMap,
    CoarseFit,
    Expected,
    Noisy,
    QuantileChoice,
    cell_map,
    coarse,
    half_smoothed,
    in_octaves,
    in_units,
    normalised,
    octave_map,
    released_maps,
)
from dpsubspace._core.statistics.counts import TOGETHER, cell_counts
from dpsubspace._core.statistics.posteriors import Posterior, single_values

# Where the numbers come from: chosen by hand on tables of benchmarks/repro_regression.py, with
# other splits of 1,000 and 6,000 rows. No script varies them; that one shows what they do together.

# The releases and their shares of what they cost together: where columns lie, how widely they are
# spread, looked at five times, and how long rows are in these units.
SCALES = {"octaves": Part(0.5), "cells": Part(0.4, 5), "lengths": Part(0.1)}

# The scale of a column is at least so many cells: more of them where so much of it is in one cell
# that few rows make up the scale.
_RESOLVED, _HEAPED, _BESIDE = 1.05, 0.8, 8.0

# A column of which so much is in one cell from nearer counts as it was seen first: the rest makes
# up its scale.
_LUMPED = 0.6

# A column is looked at from nearer where, with this probability, it is so many times narrower than
# the cells were made for: less would not make up for what is known already. Chosen by hand on
# columns that lie far from 0 (tests/units/test_scales.py).
_CERTAIN, _NEARER = 0.95, 4.0


@dataclass(frozen=True)
class Scales:
    location: np.ndarray
    scale: np.ndarray
    found: np.ndarray


def scale_share(noise: float, n_columns: int) -> float:
    """Share of the budget for scales, from what its whole is worth on these columns.

    `noise` is the multiplier of one release that takes all of the budget, over the number of rows.
    The rule was chosen on eight tables of 353 to 18,000 rows and 5 to 28 columns, at epsilon
    0.3, 1 and 3.
    """
    return min(0.4, max(0.1, 8 * noise * math.sqrt(n_columns)))


def noisy_scales(
    columns: np.ndarray | None,
    targets: np.ndarray | None,
    releases: Releases,
    *,
    target_share: float = 0.3,
) -> tuple[Scales, Scales]:
    """Release a centre and a width of each column and of each target, in any units.

    NaN counts for nothing. Targets have a share of their own in the releases that are about single
    columns, `target_share`: everything depends on them. The budget has the releases of
    :data:`SCALES`; without "lengths" where there are no columns. There may be another number of
    "cells". Without noise, means and standard deviations come out as they are (not private), found
    unless the column is constant.

    Privacy: with "octaves", public maps of the counts of all columns in cells, and with each of
    "cells", the same in cells that follow from what was released before. A record is in one cell
    of a column, so it moves what is released of c columns by sqrt(c) times the bounds of
    :class:`CellMap`, both for columns and for targets, which are released jointly. With "lengths",
    the same of one number that is a function of a record and of earlier releases. What follows is
    postprocessing, with public sizes and lists. Events: a Gaussian mechanism for each release.
    """
    wanted = ((columns, COLUMNS, 1 - target_share), (targets, TARGETS, target_share))
    given = [one for one in wanted if one[0] is not None]
    empty = Scales(np.empty(0), np.empty(0), np.empty(0, dtype=bool))
    if not given:
        return empty, empty
    groups, aims, shares = (list(part) for part in zip(*given, strict=True))
    records = releases.records_of(groups[0])
    if not releases.budget.private:
        found = [_exact(group, records.weights_numpy) for group in groups]
    else:
        shares = [share / sum(shares) for share in shares]
        found = _found(groups, aims, shares, records, releases)
        if columns is not None:
            found[0] = _of_common_length(columns, found[0], records, releases)
    first = empty if columns is None else found[0]
    return first, empty if targets is None else found[-1]


def _found(
    groups: Sequence[np.ndarray],
    aims: Sequence[QuantileChoice],
    shares: Sequence[float],
    records: Records,
    releases: Releases,
) -> list[Scales]:
    """Release scales of groups of columns: octaves, and then cells from nearer and nearer."""
    weights = records.weights_numpy
    counts = [in_octaves(group, weights) for group in groups]
    octaves = released_maps(releases, "octaves", octave_map(), counts, shares, records)
    looks = [_ColumnView.of(fit) for fit in coarse(octaves, aims)]
    in_cells = [CellCounter(group, weights) for group in groups]
    for _ in range(releases.budget.parts["cells"].count):
        looks = [_nearer(look) for look in looks]
        pairs = zip(in_cells, looks, strict=True)
        counts = [cells.about(look.location, look.unit) for cells, look in pairs]
        cells = released_maps(releases, "cells", cell_map(), counts, shares, records)
        looks = [look.with_more(more) for look, more in zip(looks, cells, strict=True)]
    return [_fine(look, aim) for look, aim in zip(looks, aims, strict=True)]


# How widely they are spread -------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnView:
    """What cells show of columns: about which location, for which unit, and what was released.

    `first` is what was known before a column was looked at from nearer, None where none was.
    """

    fit: CoarseFit
    location: np.ndarray
    unit: np.ndarray
    cells: Noisy
    first: Noisy

    @classmethod
    def of(cls, fit: CoarseFit) -> _ColumnView:
        """The first: about where octaves have columns, for the widths that they tell."""
        nothing = Noisy.nothing(len(fit.location))
        return cls(fit, fit.location, fit.scale, nothing, nothing)

    @property
    def near(self) -> np.ndarray:
        return self.unit < self.fit.scale

    def with_more(self, cells: Noisy) -> _ColumnView:
        cells = self.cells.with_more(cells)
        return replace(self, cells=cells, first=self.first.or_other(cells, ~self.near))

    def as_first(self, chosen: np.ndarray) -> _ColumnView:
        return replace(
            self,
            location=np.where(chosen, self.fit.location, self.location),
            unit=np.where(chosen, self.fit.scale, self.unit),
            cells=self.cells.or_other(self.first, chosen),
        )

    def posterior(self, columns: np.ndarray) -> Posterior:
        sizes, cells = self.fit.sizes[columns], self.cells.at(columns)
        return Posterior.of(cells, self.location[columns], self.unit[columns], sizes)


def _nearer(look: _ColumnView) -> _ColumnView:
    """Look from nearer at columns that are surely much narrower than the unit."""
    location, unit = look.location.copy(), look.unit.copy()
    # Only they can be that one cell explains better than nothing does.
    alone = look.cells.log_likelihoods(single_values(), slice(None)).max(axis=1, initial=-np.inf)
    for columns in _some(np.flatnonzero(alone > 0)):
        likely = look.posterior(columns)
        mean = likely.average(likely.means)
        variance = likely.average((likely.means - mean[likely.columns]) ** 2)
        off = np.sqrt(variance) + CELL / 2  # anywhere in one
        wide = np.hypot(off, likely.deviation(_CERTAIN))
        nearer = wide * _NEARER < 1
        location[columns] += np.where(nearer, unit[columns] * mean, 0.0)
        unit[columns] *= np.where(nearer, wide, 1.0)
    moved = unit < look.unit
    cells = look.cells.or_other(Noisy.nothing(len(unit)), moved)
    return replace(look, location=location, unit=unit, cells=cells)


def _fine(look: _ColumnView, aim: QuantileChoice) -> Scales:
    """Fit equal cells by distributions of a size that octaves allow; choose a scale by its rank.

    Distributions with a value that many records share have it where a single value fits best.
    From nearer there may be nothing but such a value, or not even that: then the first look
    counts, since what else there is makes up the scale.
    """
    heap, there = np.zeros(len(look.unit)), np.ones(len(look.unit))
    for columns in _some(np.flatnonzero(look.near)):
        shares = look.posterior(columns).shares[:, 1:-1]
        heap[columns], there[columns] = shares.max(axis=1), shares.sum(axis=1)
    look = look.as_first((heap > _LUMPED) | (there < 0.5))
    location, scale = look.location.copy(), look.unit.copy()
    for columns in _some(np.arange(len(scale))):
        likely = look.posterior(columns)
        location[columns] += look.unit[columns] * likely.average(likely.means)
        scale[columns] *= likely.deviation(aim.fine)
        heap[columns] = likely.shares[:, 1:-1].max(axis=1)
    least = np.where(heap > _HEAPED, _BESIDE, _RESOLVED) * CELL
    least = math.sqrt(1 / 12) * CELL if aim.narrow else least  # that of any values in one cell
    return Scales(location, np.maximum(scale, least * look.unit), look.fit.sure)


def _some(columns: np.ndarray) -> list[np.ndarray]:
    """As many as are looked at together."""
    return [columns[some] for some in slices(len(columns), TOGETHER)]


# How long rows are ----------------------------------------------------------------------------


def _of_common_length(
    columns: np.ndarray, found: Scales, records: Records, releases: Releases
) -> Scales:
    """Multiply the scales of columns by what makes rows as long as normal ones are.

    One number of each record tells that, whatever the number of columns, so that noise hardly
    hides it, while all scales that err to one side do so together.
    """
    used = np.flatnonzero(found.found)
    if not len(used):  # what is paid for is released, though all columns are left out
        used = np.arange(len(found.found))
    location, scale = found.location[used], found.scale[used]
    edges = np.arange(-6, 3.1, 0.5)
    public = _lengths()

    def cells(rows: np.ndarray) -> np.ndarray:
        rows = rows if len(used) == rows.shape[1] else rows[:, used]
        kept = Scratch(rows.shape, np.float64)
        units = np.nan_to_num(in_units(rows, location, scale, kept.array), copy=False)
        with np.errstate(over="ignore", divide="ignore"):
            octave = 0.5 * np.log2(np.mean(np.square(units, out=units), axis=1))
        return np.searchsorted(edges, octave, side="right")

    n_cells = len(edges) + 2  # the last one for what counts for nothing, which is no row here
    counts = cell_counts(columns, cells, n_cells, records.weights_numpy).astype(float)
    noisy = released_maps(releases, "lengths", public, [counts[None]], [1.0], records)[0]
    middle, width = (grid.ravel() for grid in np.meshgrid(np.arange(-6, 3.1, 0.125), _WIDTHS))
    below = ndtr((edges - middle[:, None]) / width[:, None])
    expected = np.diff(below, axis=1, prepend=0.0, append=1.0) @ public.matrix[:-1]
    log = noisy.log_likelihoods(Expected.of(expected), 0) - 0.5 * (middle + 0.5) ** 2
    # Root mean square of a number whose logarithm is normal.
    factor = 2.0 ** float(normalised(log) @ (middle + math.log(2) * width**2))
    return Scales(found.location, found.scale * factor, found.found)


# Standard deviations of the lengths of rows, in octaves.
_WIDTHS = (0.15, 0.3, 0.6, 1.2)


@cache
def _lengths() -> CellMap:
    return half_smoothed(np.arange(-6.25, 3.5, 0.5))


# Without privacy ------------------------------------------------------------------------------


def _exact(columns: np.ndarray, weights: np.ndarray | None) -> Scales:
    """Means and standard deviations over what is not NaN; two passes, chunk by chunk."""
    location, _ = _means(columns, weights, np.zeros(columns.shape[1]), 1)
    square, known = _means(columns, weights, location, 2)
    scale = np.sqrt(square)
    found = known & (scale > 1e-12 * np.abs(location)) & (scale > 0)
    return Scales(location, scale, found)


def _means(
    columns: np.ndarray, weights: np.ndarray | None, origin: np.ndarray, power: int
) -> tuple[np.ndarray, np.ndarray]:
    total, count = sum_over_parts(_powers, columns, weights, origin, power)
    return total / np.where(count > 0, count, 1.0), count > 0


def _powers(
    columns: np.ndarray, weights: np.ndarray | None, origin: np.ndarray, power: int
) -> np.ndarray:
    total, count = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
    for some in slices(len(columns), max(1, (1 << 18) // max(1, columns.shape[1]))):
        part = columns[some].astype(np.float64) - origin
        there = (~np.isnan(part)).astype(float)
        if weights is not None:
            there *= weights[some, None]
        total += (np.where(there > 0, part, 0.0) ** power * there).sum(axis=0)
        count += there.sum(axis=0)
    return np.stack([total, count])
