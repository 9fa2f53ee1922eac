"""Releases of where columns of unknown units lie, and how widely they are spread.

Design note. Two releases of counts find any column, wherever it is: cells of an octave, and then
equal cells about the place that these showed. A column is spread over many cells, of which
noise hides each. So no count is released as it is, but a public linear map of the counts, whose
entries add up nearby cells: a record still moves it by 1, while a column that is spread over a few
octaves shows three times as clearly. What comes out is compared with what each distribution of a
public list would have given. That is postprocessing: the likelihood of a distribution is known,
since that of the noise is. Two searches for quantiles take twenty releases for what is found here
by two, and moments need a range to begin with.

A scale that is too small is worse than one that is too large: entries that are far out in units
of it are cut, or have weights that noise decides. So scales are chosen above the median of what is
likely, and those of columns are no smaller than a cell, also where they are constant, or would be
but for a few rows. Columns of which no size is likely enough count as not found, and are best
left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpsubspace._array import EPS, Scratch, slices
from dpsubspace._release.mechanisms import BoundedSum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.records import Records
from dpsubspace._rows.remote import added
from dpsubspace._statistics.cells import TOGETHER, cell_counts, places
from dpsubspace._statistics.shapes import (
    Shapes,
    heaped_shapes,
    near_shapes,
    together,
    wide_shapes,
)

__all__ = ["LEAST", "SCALES", "Scales", "noisy_intervals", "noisy_scales", "scale_share"]

# Names of the releases and their shares of what they cost together: where columns lie, how widely
# they are spread, and how long rows are in these units.
SCALES = {"octaves": 0.5, "cells": 0.4, "lengths": 0.1}

# Octaves on either side of 1.
_OCTAVES = 64

# Equal cells are in the middle 6 units of a column, which is known to be about 1 wide.
_N_CELLS, _REACH = 256, 3.0

# Entries of a public map are whole multiples of this, so that sums of them are exact.
_GRAIN, _EXACT = 2.0**-20, 2**32

# By how much a column may differ from the nearest distribution of a list, for each entry of what
# is released of it.
_MISFIT = 0.01

# How far the middle of a column is taken to be from where octaves have it, in its own units, and
# how sizes are taken to spread over octaves that they were rounded to.
_OFF, _ROUNDED = 1.0, (0.25, 0.5, 0.25)

# Share of the prior of a column's size that is learned from all columns, and the width, in
# octaves, of the part that is not and of what one column tells of another.
_POOLED, _ANYWHERE, _ALIKE = 0.7, 12.0, 1.5

# A column is found where its size is in a window of 5 octaves with this probability. Its scale is
# at least so many cells: more of them where so much of it is in one cell that few rows make up the
# scale.
_SURE, _RESOLVED, _HEAPED, _BESIDE = 0.8, 1.05, 0.8, 8.0

# Standard deviation of a place in an octave over the middle of that, and the number of octaves
# at the low end that are those of columns with nothing but zeros, and at the high end of what may
# be any size beyond.
_IN_OCTAVE, _NOTHING, _OUTERMOST = 0.15, 3, 3


@dataclass(frozen=True)
class Scales:
    """Released centres and widths of columns, and whether they were found, of shape (c,)."""

    location: np.ndarray
    scale: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class _Aim:
    """Which of the likely values to choose for a group of columns.

    `coarse` and `fine` are the quantiles of size and of scale, and `window` the octaves about the
    former that tell where the column lies. Scales may be `narrow`, below what cells tell, or not.
    """

    coarse: float
    window: tuple[int, int]
    fine: float
    narrow: bool


# Scales of columns err to the side of those that are too large. Those of targets do not.
_COLUMNS, _TARGETS = _Aim(0.8, (-2, 0), 0.6, False), _Aim(0.5, (-1, 1), 0.5, True)


@dataclass(frozen=True)
class _Map:
    """Public linear map of the counts of cells: `matrix` has one row for each cell.

    Notes
    -----
    Proof of the bounds: a record that is in cell i of a column adds row i to what is released of
    that column. When it becomes null it takes that away, and when it is replaced, another row is
    there instead. The bounds are the largest norm of a row and the largest distance of two, of
    the matrix as it is used, a cell that counts for nothing among them. Entries are whole
    multiples of 2^-20, at most 1 in size, so that their sums over up to 2^32 records are exact.
    With more records, or where one has several rows and so parts in several cells, counts are
    exact as well, but their products with m cells are off by up to ``m u n`` for n records, an
    entry.
    """

    matrix: np.ndarray
    norm_bound: float
    replace_bound: float

    @classmethod
    def of_kernel(cls, kernel: np.ndarray) -> _Map:
        """Map whose rows have `kernel` as their products, but for what is too small to matter."""
        values, vectors = np.linalg.eigh(kernel)
        used = values > 1e-3
        matrix = np.rint(vectors[:, used] * np.sqrt(values[used]) / _GRAIN) * _GRAIN
        product = matrix @ matrix.T
        squares = np.diag(product)
        apart = squares[:, None] + squares - 2 * product
        rounding = 1 + 1e-9
        norm = math.sqrt(squares.max()) * rounding
        return cls(matrix, norm, max(norm, math.sqrt(apart.max()) * rounding))

    def of_counts(self, counts: np.ndarray, records: Records) -> BoundedSum:
        """Map the counts of columns, (c, n_cells), of which a record is in one cell a column."""
        root, (m, k) = math.sqrt(len(counts)), self.matrix.shape
        exact = records.n <= _EXACT and not records.grouped
        rounding = 0.0 if exact else math.sqrt(k) * m * EPS * records.n
        bounds = (root * (bound + rounding) for bound in (self.norm_bound, self.replace_bound))
        return BoundedSum(counts @ self.matrix, *bounds)


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

    Parameters
    ----------
    columns : ndarray of shape (n, c) or None
        Private columns, of float32 or float64. NaN counts for nothing.
    targets : ndarray of shape (n, t) or None
        Private targets, which have a share of their own: everything depends on them.
    releases : Releases
        With one of each name of :data:`SCALES`; without "lengths" where there are no columns.
    target_share : float, default=0.3
        Share of the targets in the releases that are about single columns.

    Returns
    -------
    columns, targets : Scales
        Of the columns and of the targets. Where noise is hidden by none, means and standard
        deviations as they are (not private), found unless the column is constant.

    Notes
    -----
    Privacy: with "octaves", public maps of the counts of all columns in cells, and with
    "cells", the same in cells that follow from the first. A record is in one cell of a column,
    so it moves what is released of c columns by sqrt(c) times the bounds of :class:`_Map`,
    both for columns and for targets, which are released jointly. With "lengths", the same of one
    number that is a function of a record and of earlier releases. What follows is
    postprocessing, with public sizes and lists. Events: three Gaussian mechanisms.
    """
    wanted = ((columns, _COLUMNS, 1 - target_share), (targets, _TARGETS, target_share))
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
    aims: Sequence[_Aim],
    shares: Sequence[float],
    records: Records,
    releases: Releases,
) -> list[Scales]:
    """Release scales of groups of columns, in two steps."""
    weights = records.weights_numpy
    counts = [_in_octaves(group, weights) for group in groups]
    octaves = _released(releases, "octaves", _octaves(), counts, shares, records)
    fits = _coarse(octaves, aims)
    pairs = zip(groups, fits, strict=True)
    counts = [_in_cells(group, weights, fit.location, fit.scale) for group, fit in pairs]
    cells = _released(releases, "cells", _cells(), counts, shares, records)
    return [_fine(fit, noisy, aim) for fit, noisy, aim in zip(fits, cells, aims, strict=True)]


# Releases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """What distributions of a public list give, of shape (h, k), and half of each square norm."""

    values: np.ndarray
    half_squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> _Given:
        """With their norms, which take longer than what is done with them."""
        return cls(values, 0.5 * (values**2).sum(axis=1))

    def at(self, some: np.ndarray) -> _Given:
        """Some of them."""
        return _Given(self.values[some], self.half_squares[some])


@dataclass(frozen=True)
class _Noisy:
    """Released means of a public map, of shape (c, k), and the deviation of their noise."""

    values: np.ndarray
    noise: Any

    def log_likelihoods(self, expected: _Given, columns: slice | int) -> np.ndarray:
        """Of distributions that give this, up to a constant: (columns, h)."""
        products = self.values[columns] @ expected.values.T
        return (products - expected.half_squares) / (self.noise**2 + _MISFIT**2)


def _released(
    releases: Releases,
    name: str,
    public: _Map,
    counts: Sequence[np.ndarray],
    shares: Sequence[float],
    records: Records,
) -> list[_Noisy]:
    """Release maps of the counts of groups of columns, over the public number of records."""
    totals, n = [public.of_counts(group, records) for group in counts], records.n
    noisy = releases.jointly(name, totals, shares)
    return [
        _Noisy(np.asarray(values) / n, releases.noise_of(name, total, share) / n)
        for values, total, share in zip(noisy, totals, shares, strict=True)
    ]


@cache
def _octaves() -> _Map:
    """Map of octaves of either sign: near ones count for each other, of the other sign for half.

    0 and what is next to it count for nothing: a column that has nothing else has no scale.
    """
    octave = np.arange(-2 * _OCTAVES, 2 * _OCTAVES + 1)
    size, sign = np.abs(octave), np.sign(octave)
    alike = 0.5 + 0.5 * sign[:, None] * sign
    kernel = alike * np.exp(-0.5 * ((size[:, None] - size) / 2) ** 2)
    return _Map.of_kernel(np.where((sign[:, None] * sign) == 0, 0.0, kernel))


@cache
def _cells() -> _Map:
    """Map of equal cells, those beyond them, and a last one for what counts for nothing."""
    edges = _edges()
    middle = np.concatenate([[-1.2 * _REACH], (edges[1:] + edges[:-1]) / 2, [1.2 * _REACH]])
    return _half_smoothed(middle)


def _half_smoothed(middle: np.ndarray) -> _Map:
    """Map of cells, half of it each for itself and half with those within about 1 of it."""
    apart = middle[:, None] - middle
    kernel = np.zeros((len(middle) + 1, len(middle) + 1))
    kernel[:-1, :-1] = 0.5 * np.eye(len(middle)) + 0.5 * np.exp(-0.5 * apart**2)
    return _Map.of_kernel(kernel)


def _edges() -> np.ndarray:
    return np.linspace(-_REACH, _REACH, _N_CELLS + 1)


def _counted(
    columns: np.ndarray,
    weights: np.ndarray | None,
    cells: Callable[..., np.ndarray],
    n_cells: int,
) -> np.ndarray:
    """Counts of columns in cells, (c, n_cells); ``cells(part, some)`` has some of the columns."""
    counts = [np.zeros((0, n_cells))]
    for some in slices(columns.shape[1], TOGETHER):
        part = columns[:, some]
        offset = np.arange(part.shape[1]) * n_cells

        def numbered(rows: np.ndarray, some: slice = some, offset: np.ndarray = offset):
            return cells(rows, some) + offset

        counted = cell_counts(part, numbered, part.shape[1] * n_cells, weights)
        counts.append(counted.reshape(-1, n_cells).astype(float))
    return np.concatenate(counts)


def _in_octaves(columns: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Counts of columns in octaves of either sign; NaN counts as 0."""

    def cells(rows: np.ndarray, _: slice) -> np.ndarray:
        place = places(rows, 0, _OCTAVES)
        return np.where(np.isnan(rows), 0, place) + 2 * _OCTAVES

    return _counted(columns, weights, cells, 4 * _OCTAVES + 1)


def _in_cells(
    columns: np.ndarray, weights: np.ndarray | None, location: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Counts of columns in equal cells about a location, and beyond them."""

    def cells(rows: np.ndarray, some: slice) -> np.ndarray:
        kept = Scratch(rows.shape, np.float64)
        place = _in_units(rows, location[some], scale[some], kept.array)
        lost = np.isnan(place)
        place[lost] = 0.0
        np.clip(place, -2 * _REACH, 2 * _REACH, out=place)
        place += _REACH
        place *= _N_CELLS / (2 * _REACH)
        np.floor(place, out=place)
        place += 1
        np.clip(place, 0, _N_CELLS + 1, out=place)
        place[lost] = _N_CELLS + 2
        return place.astype(np.intp)

    return _counted(columns, weights, cells, _N_CELLS + 3)


def _in_units(
    rows: np.ndarray, location: np.ndarray, scale: np.ndarray, out: np.ndarray
) -> np.ndarray:
    """Rows less `location` and over `scale`, in float64, put into `out`."""
    with np.errstate(over="ignore"):
        np.subtract(rows, location, out=out)
        return np.divide(out, scale, out=out)


# Where columns lie ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fit:
    """What octaves tell of columns: location, scale, the octaves of size, and if one is sure."""

    location: np.ndarray
    scale: np.ndarray
    sizes: np.ndarray
    sure: np.ndarray


@dataclass(frozen=True)
class _Wide:
    """Distributions of all sizes: what they give in octaves, and the octave of each."""

    expected: _Given
    mean: np.ndarray
    square: np.ndarray
    octave: np.ndarray
    log_prior: np.ndarray  # given the octave


@cache
def _wide() -> _Wide:
    shapes = wide_shapes()
    expected = _Given.of(shapes.masses(_octave_edges()) @ _octaves().matrix)
    mean, square = shapes.mean, shapes.mean**2 + shapes.deviation**2
    octave = np.rint(0.5 * np.log2(square)).astype(int)
    octave -= octave.min()
    total = np.bincount(octave, weights=shapes.prior)
    return _Wide(expected, mean, square, octave, np.log(shapes.prior / total[octave]))


@cache
def _first_octave() -> int:
    """Octave of the smallest distribution."""
    shapes = wide_shapes()
    return int(np.rint(0.5 * np.log2(shapes.mean**2 + shapes.deviation**2)).min())


def _octave_edges() -> np.ndarray:
    powers = 2.0 ** np.arange(-_OCTAVES, _OCTAVES)
    return np.concatenate([-powers[::-1], powers])


def _coarse(octaves: Sequence[_Noisy], aims: Sequence[_Aim]) -> list[_Fit]:
    """Fit all columns to distributions of any size, which is more likely to be that of others."""
    evidence = [_evidence(group) for group in octaves]
    together = np.concatenate(evidence)
    prior = _size_prior(None)
    for _ in range(15):  # expectation and maximisation
        posterior = _normalised(together + np.log(prior))
        prior = _size_prior(posterior.mean(axis=0))
    return [
        _located(group, known, prior, aim)
        for group, known, aim in zip(octaves, evidence, aims, strict=True)
    ]


def _evidence(octaves: _Noisy) -> np.ndarray:
    """Log likelihood of each octave of size, (c, n_octaves)."""
    wide = _wide()
    order = np.argsort(wide.octave, kind="stable")
    starts = np.flatnonzero(np.diff(wide.octave[order], prepend=-1))
    known = [np.zeros((0, len(starts)))]
    for some in slices(len(octaves.values), TOGETHER):
        log = (octaves.log_likelihoods(wide.expected, some) + wide.log_prior)[:, order]
        top = np.maximum.reduceat(log, starts, axis=1)
        counts = np.diff(starts, append=len(order))
        sums = np.add.reduceat(np.exp(log - np.repeat(top, counts, axis=1)), starts, axis=1)
        known.append(top + np.log(sums))
    return np.concatenate(known)


def _size_prior(average: np.ndarray | None) -> np.ndarray:
    """Prior of the octave of a column's size, from what all columns look like on average."""
    n_octaves = int(_wide().octave.max()) + 1
    octave = np.arange(n_octaves) + _first_octave()
    anywhere = np.exp(-0.5 * ((octave - 2) / _ANYWHERE) ** 2)
    anywhere /= anywhere.sum()
    if average is None:
        return anywhere
    near = np.exp(-0.5 * (np.arange(-6, 7) / _ALIKE) ** 2)
    pooled = np.convolve(average, near / near.sum(), "same")
    prior = (1 - _POOLED) * anywhere + _POOLED * pooled
    return prior / prior.sum()


def _located(octaves: _Noisy, evidence: np.ndarray, prior: np.ndarray, aim: _Aim) -> _Fit:
    """Location and scale of each column, given an octave of its size at a quantile."""
    wide, sizes = _wide(), _normalised(evidence + np.log(prior))
    n_columns, n_octaves = sizes.shape
    chosen = np.minimum((np.cumsum(sizes, axis=1) < aim.coarse).sum(axis=1), n_octaves - 1)
    mode = sizes.argmax(axis=1)
    octave = np.arange(n_octaves)
    sure = np.where(np.abs(octave - mode[:, None]) <= 2, sizes, 0).sum(axis=1) > _SURE
    location, scale = np.empty(n_columns), np.empty(n_columns)
    for column in range(n_columns):
        first, last = (chosen[column] + step for step in aim.window)
        some = (wide.octave >= first) & (wide.octave <= last)
        log = octaves.log_likelihoods(wide.expected.at(some), column)
        weights = _normalised(log + wide.log_prior[some] + np.log(prior)[wide.octave[some]])
        location[column] = weights @ wide.mean[some]
        scale[column] = math.sqrt(weights @ wide.square[some] - location[column] ** 2)
    # A column in one octave may be anywhere in it.
    scale = np.hypot(scale, _IN_OCTAVE * location)
    within = (mode > _NOTHING) & (mode < n_octaves - _OUTERMOST)
    return _Fit(location, scale, sizes, sure & within)


def _normalised(logs: np.ndarray) -> np.ndarray:
    """Probabilities from their logarithms up to a constant, along the last axis."""
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


# How widely they are spread -------------------------------------------------------------------


@cache
def _near() -> tuple[Shapes, np.ndarray, _Given]:
    """Distributions near a column, their shares of equal cells, and what is released of those."""
    shapes = near_shapes()
    masses = shapes.masses(_edges())
    return shapes, masses, _Given.of(masses @ _cells().matrix[:-1])


@cache
def _alone() -> _Given:
    """What a column gives that has one value, in the middle of each of the cells."""
    return _Given.of(_cells().matrix[1:-2])


@cache
def _beside_a_heap() -> np.ndarray:
    """Shares below edges of cells to both sides of one with a shared value in its middle."""
    width = 2 * _REACH / _N_CELLS
    return heaped_shapes().below((np.arange(-_N_CELLS, _N_CELLS + 1) + 0.5) * width)


def _heaped(cell: int) -> tuple[Shapes, np.ndarray]:
    """Distributions with a value in a cell that many records share, and their shares of cells."""
    place = (cell + 0.5) * (2 * _REACH / _N_CELLS) - _REACH
    shapes = heaped_shapes().moved(place, 1.0)
    below = _beside_a_heap()[:, _N_CELLS - 1 - cell :][:, : _N_CELLS + 1]
    masses = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return replace(shapes, prior=shapes.prior / _N_CELLS), masses


@cache
def _heaped_half_squares(cell: int) -> np.ndarray:
    """Half of the square norms of what these give, which is too much to keep."""
    return _Given.of(_heaped(cell)[1] @ _cells().matrix[:-1]).half_squares


def _fine(fit: _Fit, cells: _Noisy, aim: _Aim) -> Scales:
    """Fit equal cells by distributions of a size that octaves allow; choose a scale by its rank.

    Distributions with a value that many records share have it where a single value fits best.
    """
    n_columns = len(fit.location)
    location, scale, heap = np.empty(n_columns), np.empty(n_columns), np.empty(n_columns)
    octave = np.arange(fit.sizes.shape[1]) + _first_octave()
    for column, (place, unit) in enumerate(zip(fit.location, fit.scale, strict=True)):
        shapes, masses, log = _nearby(cells, column)
        size = np.log2(unit * np.hypot(shapes.mean + place / unit, shapes.deviation))
        known = np.convolve(fit.sizes[column], _ROUNDED, "same") + 1e-9
        log = log - 0.5 * (shapes.mean / _OFF) ** 2
        weights = _normalised(log + np.log(shapes.prior * np.interp(size, octave, known)))
        location[column] = place + unit * (weights @ shapes.mean)
        scale[column] = unit * _quantile(shapes.deviation, weights, aim.fine)
        near, heaped = np.split(weights, [len(masses[0])])
        heap[column] = (near @ masses[0] + heaped @ masses[1])[1:-1].max()
    least = np.where(heap > _HEAPED, _BESIDE, _RESOLVED) * (2 * _REACH / _N_CELLS) * fit.scale
    return Scales(location, scale if aim.narrow else np.maximum(scale, least), fit.sure)


def _nearby(cells: _Noisy, column: int) -> tuple[Shapes, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Distributions, with those of a shared value, which might have been in any of the cells.

    Their shares of cells, in two parts, and their log likelihoods.
    """
    shapes, masses, expected = _near()
    cell = int(cells.log_likelihoods(_alone(), column).argmax())
    heaped, more = _heaped(cell)
    # What is released is projected, and not what each of them gives.
    released = _Noisy(cells.values[[column]] @ _cells().matrix[:-1].T, cells.noise)
    of_heaped = released.log_likelihoods(_Given(more, _heaped_half_squares(cell)), 0)
    log = np.concatenate([cells.log_likelihoods(expected, column), of_heaped])
    return together([shapes, heaped]), (masses, more), log


def _quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    order = np.argsort(values)
    rank = np.searchsorted(np.cumsum(weights[order]), level * (1 - 1e-9))
    return float(values[order[min(rank, len(order) - 1)]])


# Where nearly all of a column lies ------------------------------------------------------------

# Deviations of the noise of a count that make a column of so many records visible: nearby cells
# count for each other, so that there are few places where noise may look like a column.
LEAST = 3.0

# Half of an interval in units of the next cells, and by how much these have to be smaller than
# those before, for which what was released then is given up.
_WITHIN, _CLOSER = 1.5, 0.5

# A column that has one value is taken to be so many cells wide.
_POINT = 2.0

# How likely a column is taken to have two values, shares of the second, and a probability that
# changes no result.
_TWO = 0.02
_PAIRED = np.array([0.12, 0.25, 0.4, 0.5])[:, None]
_NEGLIGIBLE = 1e-9

# Deviations of noise that hardly any of the shares beyond edges is off by.
_BEYOND_DOUBT = 3.5


@dataclass
class _Window:
    """Where columns are looked at, (c,), and what all releases there say of them together.

    `total` is the sum of what was released, of shape (c, k), and `times` how often.
    """

    location: np.ndarray
    unit: np.ndarray
    total: np.ndarray
    times: np.ndarray

    def add(self, values: np.ndarray) -> None:
        """Add what is released."""
        self.total += values
        self.times += 1

    def move(self, low: np.ndarray, high: np.ndarray) -> None:
        """Look closer at columns that turned out to be narrow, and forget what was seen of them."""
        least = _POINT * (2 * _REACH / _N_CELLS) * self.unit
        unit = np.maximum((high - low) / 2, least) / _WITHIN
        closer = unit < _CLOSER * self.unit
        self.location = np.where(closer, low / 2 + high / 2, self.location)
        self.unit = np.where(closer, unit, self.unit)
        self.total[closer], self.times[closer] = 0.0, 0


def noisy_intervals(
    columns: np.ndarray,
    releases: Releases,
    name: str,
    *,
    level: float,
    there: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release for each column an interval that probably leaves out a share of it at either end.

    Parameters
    ----------
    columns : ndarray of shape (n, c)
        Private columns. NaN counts for nothing.
    releases : Releases
        With two or more called `name`: octaves, and then cells that are closer each time.
    name : str
        Their name.
    level : float
        Share of the values to leave out at either end.
    there : ndarray of shape (c,), optional
        Public or released share of the records that have a value in each column.

    Returns
    -------
    low, high : ndarray of shape (c,)
        Ends of the intervals.
    found : boolean ndarray of shape (c,)
        Whether noise has left a column's size to be seen.

    Notes
    -----
    Privacy: as for :func:`noisy_scales`. First a public map of the counts of all columns in
    octaves, and then the same in cells that are functions of earlier releases alone. A record is
    in one cell of a column, so it moves what is released of c columns by at most sqrt(c) times the
    bounds of :class:`_Map`. What follows is postprocessing. Events: a Gaussian mechanism for each.

    The interval is that of the average of all distributions of the public list, weighted by how
    well each agrees with what was released. So it tells of the few values at either end
    what the others suggest where noise hides them, and is wider where less is known. Cells
    that are not given up for closer ones are counted again, which adds to what is known.
    """
    records, weights = releases.records_of(columns), releases.records_of(columns).weights_numpy
    share = np.ones(columns.shape[1]) if there is None else np.maximum(there, _GRAIN)

    def released(public: _Map, counts: np.ndarray) -> _Noisy:
        noisy = _released(releases, name, public, [counts], [1.0], records)[0]
        # Shares of the values that are there; the noise is that of the column with fewest.
        return _Noisy(noisy.values / share[:, None], noisy.noise / float(share.min()))

    octaves = released(_octaves(), _in_octaves(columns, weights))
    (fit,) = _coarse([octaves], [_COLUMNS])
    shape = (columns.shape[1], _cells().matrix.shape[1])
    window = _Window(fit.location, fit.scale, np.zeros(shape), np.zeros(shape[0], dtype=np.int64))
    low, high = fit.location, fit.location
    single = np.zeros(shape[0], dtype=bool)
    for _ in range(releases.budget.parts[name].count - 1):
        cells = released(_cells(), _in_cells(columns, weights, window.location, window.unit))
        window.add(cells.values)
        low, high = _intervals(window, cells.noise, fit, level)
        single = (high - low) / 2 <= _POINT / 2 * (2 * _REACH / _N_CELLS) * window.unit
        window.move(low, high)
    # All in one cell, again and again: one value, as far as can be told.
    middle = np.where(single, low / 2 + high / 2, 0.0)
    return np.where(single, middle, low), np.where(single, middle, high), fit.sure


def _intervals(
    window: _Window, noise: float, fit: _Fit, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the averages of what agrees with all releases of the present cells."""
    edges = np.concatenate([_edges(), [2 * _REACH]])
    low, high = np.empty(len(window.unit)), np.empty(len(window.unit))
    for some in slices(len(window.unit), TOGETHER):
        times = window.times[some, None]
        seen = _Noisy(window.total[some] / times, noise / np.sqrt(times))
        masses = _agreeing(seen, window, fit, some)
        for side, ends in ((1, high), (-1, low)):
            beyond = _beyond(seen, masses, side)
            # The edge beyond which no more than the level lies: a value is somewhere in its cell.
            place = edges[np.argmax(beyond <= level, axis=1)]
            ends[some] = window.location[some] + side * window.unit[some] * place
    return low, high


def _beyond(seen: _Noisy, masses: np.ndarray, side: int) -> np.ndarray:
    """Shares beyond edges on a side, never rising outwards: as released, and as it is likely.

    What is likely may be wrong by as much as it is itself, and what is released by its noise. Where
    fewer were released by more than a deviation of that, they are averaged by these variances; and
    no fewer than are released beyond all doubt are taken to be there.
    """
    inverse, spread = _tails(side)
    likely = np.cumsum(masses[:, ::-side], axis=1)[:, ::-side]
    likely = likely[:, 1:] if side > 0 else likely[:, -2::-1]
    shown, deviation = seen.values @ inverse, seen.noise * spread
    share = likely**2 / (likely**2 + deviation**2 + 1e-300)
    both = likely + share * np.minimum(shown + deviation - likely, 0.0)
    both = np.maximum(np.maximum(both, shown - _BEYOND_DOUBT * deviation), 0.0)
    outermost = np.zeros((len(both), 1))
    return np.column_stack([np.maximum.accumulate(both[:, ::-1], axis=1)[:, ::-1], outermost])


@cache
def _tails(side: int) -> tuple[np.ndarray, np.ndarray]:
    """What makes shares beyond the edges of cells from a release of the map, and its deviation.

    Edges are in the order of their distance from the far end of the other side.
    """
    cells = np.linalg.pinv(_cells().matrix[:-1])
    sums = np.cumsum(cells[:, ::-side], axis=1)
    inverse = sums[:, ::-1][:, 1:]
    return inverse, np.linalg.norm(inverse, axis=0)


def _agreeing(seen: _Noisy, window: _Window, fit: _Fit, some: slice) -> np.ndarray:
    """Shares of cells, (columns, cells), on average over distributions as likely as each is."""
    shapes, masses, expected = _near()
    near = seen.log_likelihoods(expected, slice(None))
    places, alone = _heaps()
    heaps = seen.log_likelihoods(alone, slice(None)).argmax(axis=1)
    averages = np.empty((len(heaps), masses.shape[1]))
    for column, heap in enumerate(heaps):
        own = _Noisy(seen.values[[column]], seen.noise[[column]])
        prior = _SizePrior.of(window, fit, some.start + column)
        heaped, more = _heaped_at(int(heap))
        log = _pairs(own, int(heap))
        pair = places[heap] * (1 - _PAIRED) + places * _PAIRED, np.abs(places - places[heap])
        likely = [
            near[column] + prior.log(shapes.mean, shapes.deviation) + np.log(shapes.prior),
            own.log_likelihoods(more @ _cells().matrix[:-1], slice(None))[0]
            + prior.log(heaped.mean, heaped.deviation)
            + np.log(heaped.prior),
            (log + prior.log(pair[0], np.sqrt(_PAIRED * (1 - _PAIRED)) * pair[1])).ravel(),
        ]
        weights = _normalised(np.concatenate(likely))
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
    """How likely sizes are by what octaves showed of a column in some units about a place."""

    place: float
    unit: float
    octave: np.ndarray
    known: np.ndarray

    @classmethod
    def of(cls, window: _Window, fit: _Fit, column: int) -> _SizePrior:
        octave = np.arange(fit.sizes.shape[1]) + _first_octave()
        known = np.log(np.convolve(fit.sizes[column], _ROUNDED, "same") + 1e-9)
        return cls(float(window.location[column]), float(window.unit[column]), octave, known)

    def log(self, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """Logarithm of that of distributions, which are also about where the cells are."""
        square = (self.unit * mean + self.place) ** 2 + (self.unit * deviation) ** 2
        known = np.interp(0.5 * np.log2(square + 1e-300), self.octave, self.known)
        return known - 0.5 * (mean / _OFF) ** 2


def _pairs(seen: _Noisy, heap: int) -> np.ndarray:
    """Log likelihoods, with the prior, of a second value in each cell that a share has, (q, cells).

    The first is in the cell `heap`. A column may have one value only, which is the same cell twice.
    """
    alone = _heaps()[1]
    shown = alone @ seen.values[0]
    squares = np.einsum("ij,ij->i", alone, alone)
    q = _PAIRED
    size = (1 - q) ** 2 * squares[heap] + q**2 * squares + 2 * q * (1 - q) * (alone @ alone[heap])
    fit = (1 - q) * shown[heap] + q * shown - 0.5 * size
    log = fit / (float(seen.noise[0, 0]) ** 2 + _MISFIT**2)
    return log + math.log(_TWO / (_N_CELLS**2 * len(q)))


@cache
def _heaped() -> tuple[Shapes, np.ndarray]:
    """Distributions with a shared value at 0 and a tail, in cells over twice the width."""
    shapes = heaped_shapes()
    shapes = shapes.at(~shapes.point)
    step = _edges()[1] - _edges()[0]
    return shapes, shapes.masses(step * (np.arange(-_N_CELLS, _N_CELLS + 1) - 0.5))


def _heaped_at(heap: int) -> tuple[Shapes, np.ndarray]:
    """The same with the shared value in a cell, and their shares of the cells."""
    shapes, wide = _heaped()
    first = _N_CELLS - heap + 1
    last = first + _N_CELLS
    left, right = wide[:, :first].sum(axis=1), wide[:, last:].sum(axis=1)
    masses = np.column_stack([left, wide[:, first:last], right])
    moved = shapes.moved(float(_heaps()[0][heap]), 1.0)
    return replace(moved, prior=moved.prior / _N_CELLS), masses


# How long rows are ----------------------------------------------------------------------------


def _of_common_length(
    columns: np.ndarray, found: Scales, records: Records, releases: Releases
) -> Scales:
    """Multiply the scales of columns by what makes rows as long as normal ones are.

    One number of each record tells that, whatever the number of columns, so that noise hardly
    hides it, while all scales that err to one side do so together.
    """
    used = np.flatnonzero(found.found)
    if not len(used):
        return found
    location, scale = found.location[used], found.scale[used]
    edges = np.arange(-6, 3.1, 0.5)
    public = _lengths()

    def cells(rows: np.ndarray) -> np.ndarray:
        rows = rows if len(used) == rows.shape[1] else rows[:, used]
        kept = Scratch(rows.shape, np.float64)
        units = np.nan_to_num(_in_units(rows, location, scale, kept.array), copy=False)
        with np.errstate(over="ignore", divide="ignore"):
            octave = 0.5 * np.log2(np.mean(np.square(units, out=units), axis=1))
        return np.searchsorted(edges, octave, side="right")

    n_cells = len(edges) + 2  # the last one for what counts for nothing, which is no row here
    counts = cell_counts(columns, cells, n_cells, records.weights_numpy).astype(float)
    noisy = _released(releases, "lengths", public, [counts[None]], [1.0], records)[0]
    middle, width = (grid.ravel() for grid in np.meshgrid(np.arange(-6, 3.1, 0.125), _WIDTHS))
    below = ndtr((edges - middle[:, None]) / width[:, None])
    expected = np.diff(below, axis=1, prepend=0.0, append=1.0) @ public.matrix[:-1]
    log = noisy.log_likelihoods(_Given.of(expected), 0) - 0.5 * (middle + 0.5) ** 2
    # Root mean square of a number whose logarithm is normal.
    factor = 2.0 ** float(_normalised(log) @ (middle + math.log(2) * width**2))
    return Scales(found.location, found.scale * factor, found.found)


# Standard deviations of the lengths of rows, in octaves.
_WIDTHS = (0.15, 0.3, 0.6, 1.2)


@cache
def _lengths() -> _Map:
    """Map of half octaves of lengths."""
    return _half_smoothed(np.arange(-6.25, 3.5, 0.5))


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
    """Mean power of the distance from an origin, and whether a column has any value."""
    total, count = added(_powers, columns, weights, origin, power)
    return total / np.where(count > 0, count, 1.0), count > 0


def _powers(
    columns: np.ndarray, weights: np.ndarray | None, origin: np.ndarray, power: int
) -> np.ndarray:
    """Sums of powers of the distance from an origin, and numbers of values, (2, c)."""
    total, count = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
    for some in slices(len(columns), max(1, (1 << 18) // max(1, columns.shape[1]))):
        part = columns[some].astype(np.float64) - origin
        there = (~np.isnan(part)).astype(float)
        if weights is not None:
            there *= weights[some, None]
        total += (np.where(there > 0, part, 0.0) ** power * there).sum(axis=0)
        count += there.sum(axis=0)
    return np.stack([total, count])
