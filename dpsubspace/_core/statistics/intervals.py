"""Releases of intervals that hold nearly all of a column of unknown units.

Design note. The counts are like those of ``scales.py``, in cells that are smaller each time, but
the results are ends of intervals. So each column gets an average of all distributions that agree
with the releases, and its tails are compared with the counts beyond each edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.statistics.cell_maps import (
    CELL,
    COLUMNS,
    GRAIN,
    MISFIT,
    N_CELLS,
    OFF,
    REACH,
    ROUNDED,
    CellCounter,
    CellMap,
    CoarseFit,
    ReleasedMeans,
    cell_edges,
    cell_map,
    coarse,
    first_octave,
    in_octaves,
    normalised,
    octave_map,
    released_maps,
)
from dpsubspace._core.statistics.counts import TOGETHER
from dpsubspace._core.statistics.scales import (
    heaped_columns,
    heaped_log_likelihoods,
    likely_heaps,
    near_columns,
    single_values,
)

# Intervals of columns -------------------------------------------------------------------------

# Origin of these numbers: chosen by hand on made-up columns (tests/units/test_scales.py). No script
# varies them; "estimated ranges" in benchmarks/repro_regression.py shows how well ranges perform.

# A column with this many records, in deviations of the noise of a count, is visible: nearby cells
# count for each other, so that there are few places where noise may look like a column.
LEAST = 3.0

# Half of an interval in units of the next cells, and the factor by which these have to be smaller
# than the previous cells before the previous release is discarded.
_WITHIN, _CLOSER = 1.5, 0.5

# Assumed width of a column with a single value, in cells.
_POINT = 2.0

# Prior probability that a column has two values, shares of the second value, and a probability that
# changes no result.
_TWO = 0.02
_PAIRED = np.array([0.12, 0.25, 0.4, 0.5])[:, None]
_NEGLIGIBLE = 1e-9

# Deviations of noise that almost no share beyond an edge exceeds.
_BEYOND_DOUBT = 3.5


@dataclass
class _Window:
    location: np.ndarray
    unit: np.ndarray
    seen: ReleasedMeans

    def move(self, low: np.ndarray, high: np.ndarray) -> None:
        unit = np.maximum((high - low) / 2, _POINT * CELL * self.unit) / _WITHIN
        closer = unit < _CLOSER * self.unit
        self.location = np.where(closer, low / 2 + high / 2, self.location)
        self.unit = np.where(closer, unit, self.unit)
        self.seen = self.seen.or_other(ReleasedMeans.nothing(len(unit)), closer)


def noisy_intervals(
    columns: np.ndarray,
    releases: Releases,
    name: str,
    *,
    level: float,
    there: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release an interval for each column that probably leaves out a share of it at either end.

    The columns (n, c) are private, and NaN counts for nothing. There are two or more releases
    called `name`: octaves, and then cells that are smaller each time. `level` is the share of the
    values to leave out at either end, and `there` (c,) the public or released share of the records
    that have a value in each column.

    Return low and high ends, and whether noise has left a column's size visible.

    Privacy: as for :func:`noisy_scales`. First a public map of the counts of all columns in octaves
    is released, and then the same in cells that are functions of earlier releases alone. A record
    is in one cell of a column, so it moves the releases of c columns by at most sqrt(c) times the
    bounds of :class:`CellMap`. The rest is postprocessing. Events: a Gaussian mechanism each.

    The interval is that of the average of all distributions of the public list, weighted by how
    well each agrees with the releases. So if noise hides the few values at either end, the interval
    follows what the other values suggest, and is wider if less is known. Cells that are not
    replaced by smaller ones are counted again, which adds information.
    """
    records, weights = releases.records_of(columns), releases.records_of(columns).weights_numpy
    share = np.ones(columns.shape[1]) if there is None else np.maximum(there, GRAIN)

    def released(public: CellMap, counts: np.ndarray) -> ReleasedMeans:
        noisy = released_maps(releases, name, public, [counts], [1.0], records)[0]
        # Shares of the values that are present.
        return ReleasedMeans(noisy.values / share[:, None], noisy.variance / share[:, None] ** 2)

    octaves = released(octave_map(), in_octaves(columns, weights))
    (fit,) = coarse([octaves], [COLUMNS])
    window = _Window(fit.location, fit.scale, ReleasedMeans.nothing(len(fit.location)))
    low, high = fit.location, fit.location
    single, in_cells = np.zeros(len(low), dtype=bool), CellCounter(columns, weights)
    for _ in range(releases.budget.parts[name].count - 1):
        cells = released(cell_map(), in_cells.about(window.location, window.unit))
        window.seen = window.seen.with_more(cells)
        low, high = _intervals(window, fit, level)
        single = (high - low) / 2 <= _POINT / 2 * CELL * window.unit
        window.move(low, high)
    # All in one cell, again and again: one value, as far as the releases show.
    middle = np.where(single, low / 2 + high / 2, 0.0)
    return np.where(single, middle, low), np.where(single, middle, high), fit.sure


def _intervals(window: _Window, fit: CoarseFit, level: float) -> tuple[np.ndarray, np.ndarray]:
    edges = np.concatenate([cell_edges(), [2 * REACH]])
    low, high = np.empty(len(window.unit)), np.empty(len(window.unit))
    for some in slices(len(window.unit), TOGETHER):
        seen = window.seen.at(some)
        masses = _agreeing(seen, window, fit, some)
        for side, ends in ((1, high), (-1, low)):
            beyond = _beyond(seen, masses, side)
            # The edge with a share of at most the level beyond it: a value is somewhere in its
            # cell.
            place = edges[np.argmax(beyond <= level, axis=1)]
            ends[some] = window.location[some] + side * window.unit[some] * place
    return low, high


def _beyond(seen: ReleasedMeans, masses: np.ndarray, side: int) -> np.ndarray:
    """Return shares beyond edges on a side, never rising outwards: released and likely ones merged.

    The likely share may be wrong by as much as its own size, and the released one by its noise. If
    the released share is lower by more than a deviation of its noise, the two are averaged by these
    variances; and the result is never below what the release shows beyond all doubt.
    """
    inverse, spread = _tails(side)
    likely = np.cumsum(masses[:, ::-side], axis=1)[:, ::-side]
    likely = likely[:, 1:] if side > 0 else likely[:, -2::-1]
    shown, deviation = seen.values @ inverse, np.sqrt(seen.variance) * spread
    share = likely**2 / (likely**2 + deviation**2 + 1e-300)
    both = likely + share * np.minimum(shown + deviation - likely, 0.0)
    both = np.maximum(np.maximum(both, shown - _BEYOND_DOUBT * deviation), 0.0)
    outermost = np.zeros((len(both), 1))
    return np.column_stack([np.maximum.accumulate(both[:, ::-1], axis=1)[:, ::-1], outermost])


@cache
def _tails(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the map from a release to shares beyond the edges of cells, and its deviation.

    Edges are in the order of their distance from the far end of the other side.
    """
    cells = np.linalg.pinv(cell_map().matrix[:-1])
    sums = np.cumsum(cells[:, ::-side], axis=1)
    inverse = sums[:, ::-1][:, 1:]
    return inverse, np.linalg.norm(inverse, axis=0)


def _agreeing(seen: ReleasedMeans, window: _Window, fit: CoarseFit, some: slice) -> np.ndarray:
    """Return mean shares of cells, (columns, cells), over distributions by their likelihoods."""
    shapes, masses, expected = near_columns()
    near = seen.log_likelihoods(expected, slice(None))
    heaps = likely_heaps(seen)
    of_heaps = heaped_log_likelihoods(seen, heaps)
    edges = cell_edges()
    places = (edges[1:] + edges[:-1]) / 2
    averages = np.empty((len(heaps), masses.shape[1]))
    for column, (heap, own_heap) in enumerate(zip(heaps, of_heaps, strict=True)):
        own = seen.at([column])
        prior = _SizePrior.of(window, fit, some.start + column)
        heaped, more = heaped_columns(int(heap))
        tailed = ~heaped.point  # distributions with two values are in the pairs
        heaped, more = heaped.at(tailed), more[tailed]
        log = _pairs(own, int(heap))
        pair = places[heap] * (1 - _PAIRED) + places * _PAIRED, np.abs(places - places[heap])
        likely = [
            near[column] + prior.log(shapes.mean, shapes.deviation) + np.log(shapes.prior),
            own_heap[tailed] + prior.log(heaped.mean, heaped.deviation) + np.log(heaped.prior),
            (log + prior.log(pair[0], np.sqrt(_PAIRED * (1 - _PAIRED)) * pair[1])).ravel(),
        ]
        weights = normalised(np.concatenate(likely))
        ends = np.cumsum([len(part) for part in likely])
        # The list is long, and hardly any of it agrees.
        used = np.flatnonzero(weights[: ends[0]] > _NEGLIGIBLE)
        average = weights[used] @ masses[used] + weights[ends[0] : ends[1]] @ more
        paired = weights[ends[1] :].reshape(log.shape)
        average[1:-1] += (_PAIRED * paired).sum(axis=0)
        average[1 + heap] += ((1 - _PAIRED) * paired).sum()
        averages[column] = average
    return averages


@dataclass(frozen=True)
class _SizePrior:
    """Likelihood of sizes from the octaves of a column, in some units about a location."""

    place: float
    unit: float
    octave: np.ndarray
    known: np.ndarray

    @classmethod
    def of(cls, window: _Window, fit: CoarseFit, column: int) -> _SizePrior:
        octave = np.arange(fit.sizes.shape[1]) + first_octave()
        known = np.log(np.convolve(fit.sizes[column], ROUNDED, "same") + 1e-9)
        return cls(float(window.location[column]), float(window.unit[column]), octave, known)

    def log(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        square = (self.unit * mean + self.place) ** 2 + (self.unit * deviation) ** 2
        known = np.interp(0.5 * np.log2(square + 1e-300), self.octave, self.known)
        return known - 0.5 * (mean / OFF) ** 2


def _pairs(seen: ReleasedMeans, heap: int) -> np.ndarray:
    """Return log posteriors of a second value in each cell with each of its shares, (q, cells).

    The first value is in the cell `heap`. A column may have one value only, which is the same cell
    twice.
    """
    alone, squares, q = single_values().values, 2 * single_values().half_squares, _PAIRED
    shown = alone @ seen.values[0]
    size = (1 - q) ** 2 * squares[heap] + q**2 * squares + 2 * q * (1 - q) * (alone @ alone[heap])
    fit = (1 - q) * shown[heap] + q * shown - 0.5 * size
    log = fit / (float(seen.variance[0, 0]) + MISFIT**2)
    return log + math.log(_TWO / (N_CELLS**2 * len(q)))
