"""Public maps of counts in cells: releases for columns of unknown units.

Design note. A column is spread over many cells, and noise hides each of them. So no count is
released directly, but a public linear map of the counts, whose entries add up nearby cells: a
record still moves it by 1, while a column that is spread over a few octaves shows three times as
clearly. The released map is compared with what each distribution of a public list would have given.
That is postprocessing: the likelihood of a distribution is known, since that of the noise is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import EPS, Scratch, slices
from dpsubspace._core.release.mechanisms import BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.counts import TOGETHER, cell_counts, places
from dpsubspace._core.statistics.shapes import Shapes, wide_shapes

# Origin of these numbers: those on which bounds or exactness rest follow from the text beside them.
# All others were chosen by hand, like those of scales.py.

# Octaves on either side of 1.
_OCTAVES = 64

# Equal cells are in the middle 6 units of a column, which is known to be about 1 wide.
N_CELLS, REACH = 256, 3.0
CELL = 2 * REACH / N_CELLS

# Entries of a public map are whole multiples of this, so that sums of them are exact.
GRAIN, _EXACT = 2.0**-20, 2**32

# Allowed difference between a column and the nearest distribution of a list, for each released
# entry.
MISFIT = 0.01

# Assumed distance of a column's middle from the location that octaves give, in its own units, and
# assumed spread of sizes over the octaves that they were rounded to.
OFF, ROUNDED = 1.0, (0.25, 0.5, 0.25)

# Share of the prior of a column's size that is learned from all columns; and the width, in octaves,
# of the other part and of the information that one column gives about another.
_POOLED, _ANYWHERE, _ALIKE = 0.7, 12.0, 1.5

# A column is found if its size, or that of most of its values, is in a window of 5 octaves with
# this probability. A few values far out, which noise hides, may leave only the size of most values
# visible; a size that is too large is corrected in smaller cells, and a column that is not found is
# lost. Of 320 made-up columns, 500 to 1,000 rows at epsilon 0.3 and 1, the window of the size alone
# left out 40 to 50, and this rule 29 to 41: codes and tails beside zeros, which noise hides.
_SURE = 0.8

# Standard deviation of a position in an octave over the octave's middle; the number of octaves at
# the low end that stand for columns of nothing but zeros; and the number at the high end that stand
# for any larger size.
_IN_OCTAVE, _NOTHING, _OUTERMOST = 0.15, 3, 3


@dataclass(frozen=True)
class QuantileChoice:
    """Choice among the likely values for a group of columns.

    `coarse` and `fine` are the quantiles of size and of scale, and `window` the octaves about the
    chosen size that determine the location of the column. Scales may be `narrow`, below the
    resolution of cells, or not.
    """

    coarse: float
    window: tuple[int, int]
    fine: float
    narrow: bool


# Scales of columns err to the side of too large. Those of targets do not.
COLUMNS, TARGETS = QuantileChoice(0.8, (-2, 0), 0.6, False), QuantileChoice(0.5, (-1, 1), 0.5, True)


@dataclass(frozen=True)
class CellMap:
    """Public linear map of the counts of cells: `matrix` has one row for each cell.

    Proof of the bounds: a record that is in cell i of a column adds row i to the release of that
    column. When it becomes null this row is removed, and when it is replaced, another row is there
    instead. The bounds are the largest norm of a row and the largest distance of two, of the matrix
    as it is used, including a cell that counts for nothing. Entries are whole multiples of 2^-20,
    at most 1 in size, so that their sums over up to 2^32 records are exact. With more records, or
    if one has several rows and so parts in several cells, counts are exact as well, but each entry
    of their products with m cells is off by up to ``m u n`` for n records.
    """

    matrix: np.ndarray
    norm_bound: float
    replace_bound: float

    @classmethod
    def of_kernel(cls, kernel: np.ndarray) -> CellMap:
        """Return a map whose rows have `kernel` as their products, up to negligible eigenvalues."""
        values, vectors = np.linalg.eigh(kernel)
        used = values > 1e-3
        matrix = np.rint(vectors[:, used] * np.sqrt(values[used]) / GRAIN) * GRAIN
        product = matrix @ matrix.T
        squares = np.diag(product)
        apart = squares[:, None] + squares - 2 * product
        rounding = 1 + 1e-9
        norm = math.sqrt(squares.max()) * rounding
        return cls(matrix, norm, max(norm, math.sqrt(apart.max()) * rounding))

    def of_counts(self, counts: np.ndarray, records: Records) -> BoundedSum:
        """Map the counts of columns, (c, n_cells); a record is in one cell per column.

        Proof of the bounds: in each of the c columns a record moves the release by at most the
        bound of this map, so for all of them by ``sqrt(c)`` times that. If products are rounded, a
        column has k of them, which adds ``sqrt(k)`` times the error of one.
        """
        root, (m, k) = math.sqrt(len(counts)), self.matrix.shape
        exact = records.n <= _EXACT and not records.grouped
        rounding = 0.0 if exact else math.sqrt(k) * m * EPS * records.n
        bounds = (root * (bound + rounding) for bound in (self.norm_bound, self.replace_bound))
        return BoundedSum(counts @ self.matrix, *bounds)


# Releases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    values: np.ndarray
    half_squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Expected:
        return cls(values, 0.5 * (values**2).sum(axis=1))

    def at(self, some: slice) -> Expected:
        return Expected(self.values[some], self.half_squares[some])


@dataclass(frozen=True)
class ReleasedMeans:
    """Released means of a public map, (c, k), and the variance of the noise of each, (c, 1)."""

    values: np.ndarray
    variance: np.ndarray

    @classmethod
    def nothing(cls, n_columns: int) -> ReleasedMeans:
        """Return the state before a release of equal cells: all distributions fit equally well."""
        return cls(
            np.zeros((n_columns, cell_map().matrix.shape[1])), np.full((n_columns, 1), np.inf)
        )

    def log_likelihoods(self, expected: Expected, columns: slice | int) -> np.ndarray:
        """Return log likelihoods of these distributions, up to a constant: (columns, h)."""
        logs = self.values[columns] @ expected.values.T
        logs -= expected.half_squares
        logs /= self.variance[columns] + MISFIT**2
        return logs

    def at(self, some: Any) -> ReleasedMeans:
        return ReleasedMeans(self.values[some], self.variance[some])

    def with_more(self, more: ReleasedMeans) -> ReleasedMeans:
        """Return means weighted by variances with another release of the same map."""
        share = more.variance / (more.variance + self.variance)  # weight of the earlier values
        return ReleasedMeans(
            share * self.values + (1 - share) * more.values, (1 - share) * more.variance
        )

    def or_other(self, other: ReleasedMeans, chosen: np.ndarray) -> ReleasedMeans:
        chosen = chosen[:, None]
        values = np.where(chosen, other.values, self.values)
        return ReleasedMeans(values, np.where(chosen, other.variance, self.variance))


def released_maps(
    releases: Releases,
    name: str,
    public: CellMap,
    counts: Sequence[np.ndarray],
    shares: Sequence[float],
    records: Records,
) -> list[ReleasedMeans]:
    """Release maps of the counts of groups of columns, over the public number of records."""
    totals, n = [public.of_counts(group, records) for group in counts], records.n
    noisy = releases.jointly(name, totals, shares)
    return [
        ReleasedMeans(
            np.asarray(values) / n,
            np.full((len(values), 1), (releases.noise_of(name, total, share) / n) ** 2),
        )
        for values, total, share in zip(noisy, totals, shares, strict=True)
    ]


@cache
def octave_map() -> CellMap:
    """Map of signed octaves: near ones count for each other, and less so across signs.

    0 and values next to it count for nothing: a column that has nothing else has no scale.
    """
    octave = np.arange(-2 * _OCTAVES, 2 * _OCTAVES + 1)
    size, sign = np.abs(octave), np.sign(octave)
    alike = 0.5 + 0.5 * sign[:, None] * sign
    kernel = alike * np.exp(-0.5 * ((size[:, None] - size) / 2) ** 2)
    return CellMap.of_kernel(np.where((sign[:, None] * sign) == 0, 0.0, kernel))


@cache
def cell_map() -> CellMap:
    """Map of equal cells, the cells beyond them, and a last one that counts for nothing."""
    edges = cell_edges()
    middle = np.concatenate([[-1.2 * REACH], (edges[1:] + edges[:-1]) / 2, [1.2 * REACH]])
    return half_smoothed(middle)


def half_smoothed(middle: np.ndarray) -> CellMap:
    """Map of cells: half of each counts for itself and half with those within about 1 of it."""
    apart = middle[:, None] - middle
    kernel = np.zeros((len(middle) + 1, len(middle) + 1))
    kernel[:-1, :-1] = 0.5 * np.eye(len(middle)) + 0.5 * np.exp(-0.5 * apart**2)
    return CellMap.of_kernel(kernel)


def cell_edges() -> np.ndarray:
    return np.linspace(-REACH, REACH, N_CELLS + 1)


def in_octaves(columns: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return counts of columns in octaves of either sign; NaN counts as 0."""
    n_cells, counts = 4 * _OCTAVES + 1, [np.zeros((0, 4 * _OCTAVES + 1))]

    def cells(rows: np.ndarray) -> np.ndarray:
        place = places(rows, 0, _OCTAVES)
        np.copyto(place, 0, where=np.isnan(rows))
        place += 2 * _OCTAVES + np.arange(rows.shape[1], dtype=place.dtype) * n_cells
        return place

    for some in slices(columns.shape[1], TOGETHER):
        part = columns[:, some]
        found = cell_counts(part, cells, part.shape[1] * n_cells, weights)
        counts.append(found.reshape(-1, n_cells).astype(float))
    return np.concatenate(counts)


class CellCounter:
    """Repeated counts of columns in equal cells; only moved columns are counted anew."""

    def __init__(self, columns: np.ndarray, weights: np.ndarray | None):
        self._columns, self._weights = columns, weights
        self._counts = np.zeros((columns.shape[1], N_CELLS + 3))
        self._location = self._unit = np.full(columns.shape[1], np.nan)

    def about(self, location: np.ndarray, unit: np.ndarray) -> np.ndarray:
        moved = (location != self._location) | (unit != self._unit)
        self._location, self._unit, self._counts = location, unit, self._counts.copy()
        for some in slices(len(moved), TOGETHER):
            if moved[some].any():
                self._count(some, some.start + np.flatnonzero(moved[some]))
        return self._counts

    def _count(self, some: slice, moved: np.ndarray) -> None:
        part, chosen, n_cells = self._columns[:, some], moved - some.start, N_CELLS + 3
        location, unit = self._location[moved], self._unit[moved]
        # The cells of the next column follow the last cell of a column.
        first = np.arange(len(moved)) * float(n_cells)

        def cells(rows: np.ndarray) -> np.ndarray:
            rows = rows if len(chosen) == rows.shape[1] else rows[:, chosen]
            kept = Scratch(rows.shape, np.float64)
            place = in_units(rows, location, unit, kept.array)
            np.maximum(place, -2 * REACH, out=place)
            np.minimum(place, 2 * REACH, out=place)
            place *= N_CELLS / (2 * REACH)
            place += N_CELLS / 2 + 1
            np.maximum(place, 0.0, out=place)
            np.minimum(place, N_CELLS + 1.0, out=place)
            np.fmin(place, N_CELLS + 2.0, out=place)  # for NaN
            place += first
            return place.astype(np.intp)

        found = cell_counts(part, cells, len(moved) * n_cells, self._weights)
        self._counts[moved] = found.reshape(-1, n_cells)


def in_units(
    rows: np.ndarray, location: np.ndarray, scale: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """Subtract `location` from rows and divide by `scale`, in float64, into `out`."""
    with np.errstate(over="ignore"):
        np.subtract(rows, location, out=out)
        return np.divide(out, scale, out=out)


# Locations of columns -------------------------------------------------------------------------


@dataclass(frozen=True)
class CoarseFit:
    location: np.ndarray
    scale: np.ndarray
    sizes: np.ndarray
    sure: np.ndarray


@dataclass(frozen=True)
class _Wide:
    """Distributions of all sizes, in the order of their octaves, and their expected octave maps."""

    expected: Expected
    mean: np.ndarray
    square: np.ndarray
    octave: np.ndarray
    log_prior: np.ndarray  # given the octave
    heap: np.ndarray  # the octave of most of its values


@cache
def _wide() -> _Wide:
    shapes = wide_shapes()
    octave = _octaves_of(shapes)
    # Zeros are in no octave: the other values have about the size of the whole.
    apart = (shapes.share > 0) & (shapes.place != 0)
    heap = octave.copy()
    heap[apart] = np.rint(np.log2(np.abs(shapes.place[apart])))
    heap = np.clip(heap, octave.min(), octave.max()) - octave.min()
    octave -= octave.min()
    order = np.lexsort((heap, octave))
    shapes, octave, heap = shapes.at(order), octave[order], heap[order]
    expected = Expected.of(shapes.masses(_octave_edges()) @ octave_map().matrix)
    total = np.bincount(octave, weights=shapes.prior)
    mean, square = shapes.mean, shapes.mean**2 + shapes.deviation**2
    return _Wide(expected, mean, square, octave, np.log(shapes.prior / total[octave]), heap)


def _octaves_of(shapes: Shapes) -> np.ndarray:
    return np.rint(0.5 * np.log2(shapes.mean**2 + shapes.deviation**2)).astype(int)


@dataclass(frozen=True)
class _Pairs:
    """Runs of distributions with an octave of size and one of most of their values."""

    starts: np.ndarray
    octave: np.ndarray
    heap: np.ndarray
    sizes: np.ndarray  # where the pairs of each octave of size begin


@cache
def _pairs() -> _Pairs:
    octave, heap = _wide().octave, _wide().heap
    starts = np.flatnonzero((np.diff(octave, prepend=-1) != 0) | (np.diff(heap, prepend=-1) != 0))
    octave, heap = octave[starts], heap[starts]
    return _Pairs(starts, octave, heap, np.flatnonzero(np.diff(octave, prepend=-1)))


@cache
def first_octave() -> int:
    return int(_octaves_of(wide_shapes()).min())


def _octave_edges() -> np.ndarray:
    powers = 2.0 ** np.arange(-_OCTAVES, _OCTAVES)
    return np.concatenate([-powers[::-1], powers])


def coarse(octaves: Sequence[ReleasedMeans], aims: Sequence[QuantileChoice]) -> list[CoarseFit]:
    """Fit distributions of any size to all columns; sizes of other columns are more likely."""
    evidence = [_evidence(group) for group in octaves]
    together = np.concatenate([_added(pairs, _pairs().sizes) for pairs in evidence])
    prior = _size_prior(None)
    for _ in range(15):  # expectation and maximisation
        posterior = normalised(together + np.log(prior))
        prior = _size_prior(posterior.mean(axis=0))
    return [
        _located(group, known, prior, aim)
        for group, known, aim in zip(octaves, evidence, aims, strict=True)
    ]


def _evidence(octaves: ReleasedMeans) -> np.ndarray:
    wide, pairs = _wide(), _pairs()
    known = [np.zeros((0, len(pairs.starts)))]
    for some in slices(len(octaves.values), TOGETHER):
        log = octaves.log_likelihoods(wide.expected, some) + wide.log_prior
        known.append(_added(log, pairs.starts))
    return np.concatenate(known)


def _added(logs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    top = np.maximum.reduceat(logs, starts, axis=1)
    counts = np.diff(starts, append=logs.shape[1])
    return top + np.log(
        np.add.reduceat(np.exp(logs - np.repeat(top, counts, axis=1)), starts, axis=1)
    )


def _size_prior(average: np.ndarray | None) -> np.ndarray:
    """Return the prior of the octave of a column's size, from the average over columns."""
    n_octaves = int(_wide().octave.max()) + 1
    octave = np.arange(n_octaves) + first_octave()
    anywhere = np.exp(-0.5 * ((octave - 2) / _ANYWHERE) ** 2)
    anywhere /= anywhere.sum()
    if average is None:
        return anywhere
    near = np.exp(-0.5 * (np.arange(-6, 7) / _ALIKE) ** 2)
    pooled = np.convolve(average, near / near.sum(), "same")
    prior = (1 - _POOLED) * anywhere + _POOLED * pooled
    return prior / prior.sum()


def _located(
    octaves: ReleasedMeans, evidence: np.ndarray, prior: np.ndarray, aim: QuantileChoice
) -> CoarseFit:
    wide, pairs = _wide(), _pairs()
    sizes = normalised(_added(evidence, pairs.sizes) + np.log(prior))
    n_columns, n_octaves = sizes.shape
    chosen = np.minimum((np.cumsum(sizes, axis=1) < aim.coarse).sum(axis=1), n_octaves - 1)
    mode = sizes.argmax(axis=1)
    likely = normalised(evidence + np.log(prior)[pairs.octave])
    heaps = likely @ (pairs.heap[:, None] == np.arange(n_octaves)).astype(float)
    sure = np.maximum(_in_window(sizes), _in_window(heaps)) > _SURE
    location, scale = np.empty(n_columns), np.empty(n_columns)
    for column in range(n_columns):
        first, last = (chosen[column] + step for step in aim.window)
        some = slice(*np.searchsorted(wide.octave, [first, last + 1]))
        log = octaves.log_likelihoods(wide.expected.at(some), column)
        weights = normalised(log + wide.log_prior[some] + np.log(prior)[wide.octave[some]])
        location[column] = weights @ wide.mean[some]
        scale[column] = math.sqrt(weights @ wide.square[some] - location[column] ** 2)
    # A column in one octave may be anywhere in it.
    scale = np.hypot(scale, _IN_OCTAVE * location)
    within = (mode > _NOTHING) & (mode < n_octaves - _OUTERMOST)
    return CoarseFit(location, scale, sizes, sure & within)


def _in_window(sizes: np.ndarray) -> np.ndarray:
    octave = np.arange(sizes.shape[1])
    near = np.abs(octave - sizes.argmax(axis=1)[:, None]) <= 2
    return np.where(near, sizes, 0).sum(axis=1)


def normalised(logs: np.ndarray) -> np.ndarray:
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
