"""Releases of locations and scales of columns of unknown units, by their likelihood.

Design note. Releases of counts find any column, wherever it is: cells of an octave, and then equal
cells about the location that the octaves showed. Equal cells are counted several times. A column
that is far from 0, a year for example, is in one octave and in few of the cells: it is counted
again in smaller cells, at the location that was found. Any other column is counted again in the
same cells, and the mean of its releases has the noise of one release that costs as much as all of
them. So it pays nothing for the needs of other columns. The releases are maps of these counts
(``cell_maps.py``). Two searches for quantiles take twenty releases for what a few find here, and
moments need a range to begin with.

A scale that is too small is worse than one that is too large: entries that are far out in units of
it are clipped, or have weights that noise decides. So scales are chosen above the median of their
likely values, and those of columns are no smaller than a cell, also if the columns are constant, or
would be but for a few rows. Columns for which no size is likely enough count as not found, and are
best left out.

The likelihood is computed for a public list of distributions: how likely each is for columns whose
counts in cells were released. All of that is postprocessing. The list is long, and hardly any of it
agrees with the releases: other quantities of a distribution are computed only for the few that do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy import ndimage
from scipy.special import ndtr

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.ground.arrays import Scratch, slices
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import sum_over_parts
from dpsubspace._core.statistics.cell_maps import (
    CELL,
    COLUMNS,
    MISFIT,
    N_CELLS,
    OFF,
    REACH,
    ROUNDED,
    TARGETS,
    CellCounter,
    CellMap,
    CoarseFit,
    Expected,
    QuantileChoice,
    ReleasedMeans,
    cell_edges,
    cell_map,
    coarse,
    first_octave,
    half_smoothed,
    in_octaves,
    in_units,
    normalised,
    octave_map,
    released_maps,
)
from dpsubspace._core.statistics.counts import TOGETHER, cell_counts
from dpsubspace._core.statistics.shapes import Shapes, heaped_shapes, near_shapes

# Origin of these numbers: chosen by hand on tables of benchmarks/repro_regression.py, with other
# splits of 1,000 and 6,000 rows. No script varies them; that one shows how they perform together.

# The releases and their shares of the common budget: locations of columns, their spread, counted
# five times, and the length of rows in these units.
SCALES = {"octaves": Part(0.5), "cells": Part(0.4, 5), "lengths": Part(0.1)}

# Least scale of a column, in cells: larger if so much of the column is in one cell that few rows
# make up the scale.
_RESOLVED, _HEAPED, _BESIDE = 1.05, 0.8, 8.0

# If so large a part of a column is in one of the smaller cells, the first cells are used for it:
# the rest makes up its scale.
_LUMPED = 0.6

# A column is counted in smaller cells if, with this probability, it is so many times narrower than
# the width that the cells were made for: less would not make up for the information lost. Chosen by
# hand on columns that lie far from 0 (tests/units/test_scales.py).
_CERTAIN, _NEARER = 0.95, 4.0


@dataclass(frozen=True)
class Scales:
    location: np.ndarray
    scale: np.ndarray
    found: np.ndarray


def scale_share(noise: float, n_columns: int) -> float:
    """Return the share of the budget for scales, from the strength of all of it on these columns.

    `noise` is the multiplier of one release that uses all of the budget, over the number of rows.
    The rule was chosen on eight tables of 353 to 18,000 rows and 5 to 28 columns, at epsilon 0.3, 1
    and 3.
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

    NaN counts for nothing. Targets have a share of their own in the releases about single columns,
    `target_share`: everything depends on them. The budget has the releases of :data:`SCALES`;
    without "lengths" if there are no columns. There may be another number of "cells". Without
    noise, the results are exact means and standard deviations (not private), found unless the
    column is constant.

    Privacy: "octaves" releases public maps of the counts of all columns in cells, and each of
    "cells" the same in cells that follow from earlier releases. A record is in one cell of a
    column, so it moves the releases of c columns by sqrt(c) times the bounds of :class:`CellMap`,
    both for columns and for targets, which are released jointly. "lengths" does the same for one
    number that is a function of a record and of earlier releases. The rest is postprocessing, with
    public sizes and lists. Events: a Gaussian mechanism for each release.
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
    """Release scales of groups of columns: octaves, and then ever smaller cells."""
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


# Spread of columns ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnView:
    """Released counts of columns in cells: the location and unit of the cells, and the values.

    `first` are the released values in the first cells, before a column moved to smaller ones.
    """

    fit: CoarseFit
    location: np.ndarray
    unit: np.ndarray
    cells: ReleasedMeans
    first: ReleasedMeans

    @classmethod
    def of(cls, fit: CoarseFit) -> _ColumnView:
        """Return the first view: at the locations and with the widths that octaves show."""
        nothing = ReleasedMeans.nothing(len(fit.location))
        return cls(fit, fit.location, fit.scale, nothing, nothing)

    @property
    def near(self) -> np.ndarray:
        return self.unit < self.fit.scale

    def with_more(self, cells: ReleasedMeans) -> _ColumnView:
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
    """Choose smaller cells for columns that are surely much narrower than the unit."""
    location, unit = look.location.copy(), look.unit.copy()
    # Only columns for which one cell explains the values better than nothing does can be so narrow.
    alone = look.cells.log_likelihoods(single_values(), slice(None)).max(axis=1, initial=-np.inf)
    for columns in _some(np.flatnonzero(alone > 0)):
        likely = look.posterior(columns)
        mean = likely.average(likely.means)
        variance = likely.average((likely.means - mean[likely.columns]) ** 2)
        off = np.sqrt(variance) + CELL / 2  # anywhere in a cell
        wide = np.hypot(off, likely.deviation(_CERTAIN))
        nearer = wide * _NEARER < 1
        location[columns] += np.where(nearer, unit[columns] * mean, 0.0)
        unit[columns] *= np.where(nearer, wide, 1.0)
    moved = unit < look.unit
    cells = look.cells.or_other(ReleasedMeans.nothing(len(unit)), moved)
    return replace(look, location=location, unit=unit, cells=cells)


def _fine(look: _ColumnView, aim: QuantileChoice) -> Scales:
    """Fit equal cells by distributions of a size that octaves allow; choose a scale by its rank.

    Distributions with a value that many records share have it where a single value fits best.
    Smaller cells may hold nothing but such a value, or not even that: then the first cells are
    used, since the other values make up the scale.
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
    least = math.sqrt(1 / 12) * CELL if aim.narrow else least  # that of values in one cell
    return Scales(location, np.maximum(scale, least * look.unit), look.fit.sure)


def _some(columns: np.ndarray) -> list[np.ndarray]:
    """Split columns into slices that are processed together."""
    return [columns[some] for some in slices(len(columns), TOGETHER)]


# Lengths of rows ------------------------------------------------------------------------------


def _of_common_length(
    columns: np.ndarray, found: Scales, records: Records, releases: Releases
) -> Scales:
    """Multiply the scales of columns by the factor that makes rows as long as normal ones.

    One number of each record determines the factor, whatever the number of columns, so that noise
    hardly hides it, while all scales that err to one side do so together.
    """
    used = np.flatnonzero(found.found)
    if not len(used):  # the release is paid for, so it is made even if all columns are left out
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

    n_cells = len(edges) + 2  # a last cell counts for nothing: no row is in it
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
    """Return means and standard deviations of entries that are not NaN; two passes, by chunks."""
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


# Likelihood of distributions --------------------------------------------------------------------

# Distributions whose logarithm is smaller than the largest by more than this are left out: all of
# them together weigh less than rounding.
_UNLIKELY = 45.0

# The list of distributions ----------------------------------------------------------------------


@cache
def near_columns() -> tuple[Shapes, np.ndarray, Expected]:
    """Return distributions near a column, their shares of equal cells, and the expected maps."""
    shapes = near_shapes()
    masses = shapes.masses(cell_edges())
    return shapes, masses, Expected.of(masses @ cell_map().matrix[:-1])


@cache
def single_values() -> Expected:
    """Return the expected map of a column with one value in the middle of a cell, for each cell."""
    return Expected.of(cell_map().matrix[1:-2])


def likely_heaps(cells: ReleasedMeans) -> np.ndarray:
    """Return the cell of each column that most likely holds a value of many records."""
    return cells.log_likelihoods(single_values(), slice(None)).argmax(axis=1)


@cache
def _beside_a_heap() -> np.ndarray:
    """Return shares below the edges on both sides of a cell with a shared value in its middle."""
    return heaped_shapes().below((np.arange(-N_CELLS, N_CELLS + 1) + 0.5) * CELL)


def _places(heaps: np.ndarray) -> np.ndarray:
    return (heaps + 0.5) * CELL - REACH


def _edges_beside(heaps: np.ndarray) -> np.ndarray:
    """Return the positions of all edges of cells among those beside a heap, (c, e)."""
    return N_CELLS - 1 - heaps[:, None] + np.arange(N_CELLS + 1)


def heaped_columns(cell: int) -> tuple[Shapes, np.ndarray]:
    """Return distributions with a value in a cell that many records share; their cell shares."""
    shapes = heaped_shapes().moved(float(_places(np.array(cell))), 1.0)
    below = _beside_a_heap()[:, _edges_beside(np.array([cell]))[0]]
    masses = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return replace(shapes, prior=shapes.prior / N_CELLS), masses


@cache
def _heaped_half_squares(cell: int) -> np.ndarray:
    """Return half of the square norms of their expected maps, which are too large to keep."""
    return Expected.of(heaped_columns(cell)[1] @ cell_map().matrix[:-1]).half_squares


def heaped_log_likelihoods(cells: ReleasedMeans, heaps: np.ndarray) -> np.ndarray:
    """Return log likelihoods of distributions with a heap, up to a constant, (c, h).

    The columns have their heap in the cells `heaps`. The release is projected, and sums over cells
    are computed by parts: they are then sums over edges, of shares below, which are the same for
    all heaps up to a shift.
    """
    released = cells.values @ cell_map().matrix[:-1].T
    moved = np.zeros((len(heaps), _beside_a_heap().shape[1]))
    np.put_along_axis(moved, _edges_beside(heaps), released[:, :-1] - released[:, 1:], axis=1)
    products = moved @ _beside_a_heap().T + released[:, -1:]
    half_squares = [np.empty((0, products.shape[1]))]
    half_squares += [_heaped_half_squares(heap)[None] for heap in heaps.tolist()]
    return (products - np.concatenate(half_squares)) / (cells.variance + MISFIT**2)


# Agreement with a release -----------------------------------------------------------------------


@dataclass(frozen=True)
class Posterior:
    """Probabilities of distributions for each of several columns, without unlikely ones.

    The distributions of a column are next to each other, in the order of their deviations.
    """

    weights: np.ndarray  # (q,): weights of one column add up to 1
    columns: np.ndarray  # (q,): number of the column
    shapes: np.ndarray  # (q,): number of the distribution: those near a column, then with a heap
    means: np.ndarray  # (q,)
    deviations: np.ndarray  # (q,)
    starts: np.ndarray  # (c,): where the distributions of each column begin
    heaps: np.ndarray  # (c,): cell of the heap

    @classmethod
    def of(
        cls, cells: ReleasedMeans, location: np.ndarray, unit: np.ndarray, sizes: np.ndarray
    ) -> Posterior:
        """Return the posterior at a location, in a unit, with probabilities `sizes` of octaves."""
        heaps, every = likely_heaps(cells), _every()
        known = ndimage.convolve1d(sizes, ROUNDED, axis=1, mode="constant") + 1e-9
        near = cells.log_likelihoods(near_columns()[2], slice(None)) + every.near_log_prior
        heaped = heaped_log_likelihoods(cells, heaps) + every.heaped_log_prior[heaps]
        logs = np.concatenate([near, heaped], axis=1)
        spread = np.log(known.max(axis=1) / known.min(axis=1))
        likely = logs > (logs.max(axis=1) - spread - _UNLIKELY)[:, None]
        columns, rank = np.nonzero(likely[:, every.order])
        shapes = every.order[rank]
        means = every.means[shapes]
        means += np.where(shapes < near.shape[1], 0.0, _places(heaps)[columns])
        deviations, unit = every.deviations[shapes], unit[columns]
        square = (unit * means + location[columns]) ** 2 + (unit * deviations) ** 2
        octave = 0.5 * np.log2(square) - first_octave()
        logs = logs.take(columns * logs.shape[1] + shapes)
        logs += np.log(_between(known, columns, octave))
        starts = np.searchsorted(columns, np.arange(len(heaps)))
        weights = np.exp(logs - np.maximum.reduceat(logs, starts)[columns])
        weights /= np.add.reduceat(weights, starts)[columns]
        return cls(weights, columns, shapes, means, deviations, starts, heaps)

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the distributions of each column, of a number (q,) of each."""
        return np.add.reduceat(self.weights * values, self.starts)

    def deviation(self, level: float) -> np.ndarray:
        """Return the quantile of the deviations of each column."""
        total, ends = np.cumsum(self.weights), np.append(self.starts[1:], len(self.weights))
        before = total[self.starts] - self.weights[self.starts]
        rank = np.searchsorted(total, before + level * (1 - 1e-9))
        return self.deviations[np.clip(rank, self.starts, ends - 1)]

    @cached_property
    def shares(self) -> np.ndarray:
        """Mean shares of cells, (c, cells)."""
        masses, beside = near_columns()[1], _beside_a_heap()
        weights = np.zeros((len(self.heaps), len(masses) + len(beside)))
        weights[self.columns, self.shapes] = self.weights
        near, heaped = weights[:, : len(masses)], weights[:, len(masses) :]
        below = np.take_along_axis(heaped @ beside, _edges_beside(self.heaps), axis=1)
        below = np.column_stack([below, heaped.sum(axis=1)])
        return near @ masses + np.diff(below, axis=1, prepend=0.0)


def _between(values: np.ndarray, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Interpolate linearly between adjacent entries of `values`, at (q,) rows and places."""
    last = values.shape[1] - 1
    np.clip(place, 0.0, last, out=place)
    entry = place.astype(np.intp)
    place -= entry
    entry += rows * (last + 1)
    return values.take(entry) + np.diff(values, axis=1, append=0.0).take(entry) * place


@dataclass(frozen=True)
class _Every:
    """All distributions of the list: those near a column, and then those with a heap."""

    means: np.ndarray  # for those with a heap, about its place
    deviations: np.ndarray
    order: np.ndarray  # by deviation
    # Logarithms of priors, without that of the size: lower if the mean is not where octaves have
    # it.
    near_log_prior: np.ndarray
    heaped_log_prior: np.ndarray  # (cells, h): for a heap in any cell


@cache
def _every() -> _Every:
    near, heaped = near_shapes(), heaped_shapes()
    deviations = np.concatenate([near.deviation, heaped.deviation])
    moved = _places(np.arange(N_CELLS))[:, None] + heaped.mean
    return _Every(
        np.concatenate([near.mean, heaped.mean]),
        deviations,
        np.argsort(deviations, kind="stable"),
        np.log(near.prior) - 0.5 * (near.mean / OFF) ** 2,
        np.log(heaped.prior / N_CELLS) - 0.5 * (moved / OFF) ** 2,
    )
