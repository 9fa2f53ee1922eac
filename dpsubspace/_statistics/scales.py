"""Releases of where columns of unknown units lie, and how widely they are spread.

Design note. Releases of counts find any column, wherever it is: cells of an octave, and then
equal cells about the place that these showed. Equal cells are counted several times. A column that
is far from 0, a year say, is in one octave and in few of the cells: it is counted again in smaller
cells, where it was found. Any other column is counted again in the same cells, and the mean of
what is released of it has the noise of one release that costs as much as all of them. So it pays
nothing for what others need. A column is spread over many cells, of which
noise hides each. So no count is released as it is, but a public linear map of the counts, whose
entries add up nearby cells: a record still moves it by 1, while a column that is spread over a few
octaves shows three times as clearly. What comes out is compared with what each distribution of a
public list would have given. That is postprocessing: the likelihood of a distribution is known,
since that of the noise is. Two searches for quantiles take twenty releases for what is found here
by a few, and moments need a range to begin with.

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

import numpy as np
from scipy.special import logsumexp, ndtr

from dpsubspace._accounting.budget import Part
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

__all__ = ["SCALES", "Scales", "noisy_scales", "scale_share"]

# The releases and their shares of what they cost together: where columns lie, how widely they are
# spread, looked at five times, and how long rows are in these units.
SCALES = {"octaves": Part(0.5), "cells": Part(0.4, 5), "lengths": Part(0.1)}

# Octaves on either side of 1.
_OCTAVES = 40

# Equal cells are in the middle 6 units of a column, which is known to be about 1 wide.
_N_CELLS, _REACH = 256, 3.0
_CELL = 2 * _REACH / _N_CELLS

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

# A column is looked at from nearer where, with this probability, it is so many times narrower than
# the cells were made for: less would not make up for what is known already.
_CERTAIN, _NEARER = 0.95, 4.0

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
        With those of :data:`SCALES`; without "lengths" where there are no columns. There may be
        another number of "cells".
    target_share : float, default=0.3
        Share of the targets in the releases that are about single columns.

    Returns
    -------
    columns, targets : Scales
        Of the columns and of the targets. Where noise is hidden by none, means and standard
        deviations as they are (not private), found unless the column is constant.

    Notes
    -----
    Privacy: with "octaves", public maps of the counts of all columns in cells, and with each of
    "cells", the same in cells that follow from what was released before. A record is in one cell
    of a column, so it moves what is released of c columns by sqrt(c) times the bounds of
    :class:`_Map`, both for columns and for targets, which are released jointly. With "lengths",
    the same of one number that is a function of a record and of earlier releases. What follows is
    postprocessing, with public sizes and lists. Events: a Gaussian mechanism for each release.
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
    """Release scales of groups of columns: octaves, and then cells from nearer and nearer."""
    weights = records.weights_numpy
    counts = [_in_octaves(group, weights) for group in groups]
    octaves = _released(releases, "octaves", _octaves(), counts, shares, records)
    looks = [_Look.of(fit) for fit in _coarse(octaves, aims)]
    for _ in range(releases.budget.parts["cells"].count):
        looks = [_nearer(look) for look in looks]
        pairs = zip(groups, looks, strict=True)
        counts = [_in_cells(group, weights, look.location, look.unit) for group, look in pairs]
        cells = _released(releases, "cells", _cells(), counts, shares, records)
        looks = [look.with_more(more) for look, more in zip(looks, cells, strict=True)]
    return [_fine(look, aim) for look, aim in zip(looks, aims, strict=True)]


# Releases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Noisy:
    """Released means of a public map, (c, k), and the variance of the noise of each, (c, 1)."""

    values: np.ndarray
    variance: np.ndarray

    @classmethod
    def nothing(cls, n_columns: int) -> _Noisy:
        """Of equal cells of columns of which nothing is known: all is as likely."""
        return cls(np.zeros((n_columns, _cells().matrix.shape[1])), np.full((n_columns, 1), np.inf))

    def log_likelihoods(self, expected: np.ndarray, columns: slice | int) -> np.ndarray:
        """Of distributions that give `expected`, (h, k), up to a constant: (columns, h)."""
        squares = 0.5 * (expected**2).sum(axis=1)
        variance = self.variance[columns] + _MISFIT**2
        return (self.values[columns] @ expected.T - squares) / variance

    def with_more(self, more: _Noisy) -> _Noisy:
        """Weighted means with what was released of the same again."""
        share = more.variance / (more.variance + self.variance)  # of what was known
        return _Noisy(share * self.values + (1 - share) * more.values, (1 - share) * more.variance)

    def or_other(self, other: _Noisy, chosen: np.ndarray) -> _Noisy:
        """That of `other` for the chosen columns."""
        chosen = chosen[:, None]
        values = np.where(chosen, other.values, self.values)
        return _Noisy(values, np.where(chosen, other.variance, self.variance))


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
        _Noisy(
            np.asarray(values) / n,
            np.full((len(values), 1), (releases.noise_of(name, total, share) / n) ** 2),
        )
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

    expected: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    octave: np.ndarray
    log_prior: np.ndarray  # given the octave


@cache
def _wide() -> _Wide:
    shapes = wide_shapes()
    expected = shapes.masses(_octave_edges()) @ _octaves().matrix
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
        log = octaves.log_likelihoods(wide.expected[some], column)
        weights = _normalised(log + wide.log_prior[some] + np.log(prior)[wide.octave[some]])
        location[column] = weights @ wide.mean[some]
        scale[column] = math.sqrt(weights @ wide.square[some] - location[column] ** 2)
    # A column in one octave may be anywhere in it.
    scale = np.hypot(scale, _IN_OCTAVE * location)
    within = (mode > _NOTHING) & (mode < n_octaves - _OUTERMOST)
    return _Fit(location, scale, sizes, sure & within)


def _normalised(logs: np.ndarray) -> np.ndarray:
    """Probabilities from their logarithms up to a constant, along the last axis."""
    return np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))


# How widely they are spread -------------------------------------------------------------------


@cache
def _near() -> tuple[Shapes, np.ndarray, np.ndarray]:
    """Distributions near a column, their shares of equal cells, and what is released of those."""
    shapes = near_shapes()
    masses = shapes.masses(_edges())
    return shapes, masses, masses @ _cells().matrix[:-1]


@cache
def _heaps() -> tuple[np.ndarray, np.ndarray]:
    """Middles of the cells, and what a column gives that has one value there."""
    edges = _edges()
    return (edges[1:] + edges[:-1]) / 2, _cells().matrix[1:-2]


@dataclass(frozen=True)
class _Look:
    """What cells show of columns: about which location, for which unit, and what was released.

    `first` is what was known before a column was looked at from nearer, None where none was.
    """

    fit: _Fit
    location: np.ndarray
    unit: np.ndarray
    cells: _Noisy
    first: _Noisy

    @classmethod
    def of(cls, fit: _Fit) -> _Look:
        """The first: about where octaves have columns, for the widths that they tell."""
        nothing = _Noisy.nothing(len(fit.location))
        return cls(fit, fit.location, fit.scale, nothing, nothing)

    @property
    def near(self) -> np.ndarray:
        """Whether columns are looked at from nearer than octaves say."""
        return self.unit < self.fit.scale

    def with_more(self, cells: _Noisy) -> _Look:
        """The same after one more release."""
        cells = self.cells.with_more(cells)
        return replace(self, cells=cells, first=self.first.or_other(cells, ~self.near))

    def as_first(self, chosen: np.ndarray) -> _Look:
        """The same, with the first look at the chosen columns."""
        return replace(
            self,
            location=np.where(chosen, self.fit.location, self.location),
            unit=np.where(chosen, self.fit.scale, self.unit),
            cells=self.cells.or_other(self.first, chosen),
        )

    def posterior(self, column: int) -> tuple[Shapes, np.ndarray, np.ndarray]:
        """Distributions in units about the location, their shares of cells, how likely they are."""
        shapes, masses, expected = _nearby(self.cells, column)
        unit, place = self.unit[column], self.location[column]
        size = np.log2(unit * np.hypot(shapes.mean + place / unit, shapes.deviation))
        known = np.convolve(self.fit.sizes[column], _ROUNDED, "same") + 1e-9
        octave = np.arange(len(known)) + _first_octave()
        log = self.cells.log_likelihoods(expected, column) - 0.5 * (shapes.mean / _OFF) ** 2
        prior = shapes.prior * np.interp(size, octave, known)
        return shapes, masses, _normalised(log + np.log(prior))


def _nearer(look: _Look) -> _Look:
    """Look from nearer at columns that are surely much narrower than the unit."""
    location, unit = look.location.copy(), look.unit.copy()
    # Only they can be that one cell explains better than nothing does.
    alone = look.cells.log_likelihoods(_heaps()[1], slice(None)).max(axis=1, initial=-np.inf)
    for column in np.flatnonzero(alone > 0).tolist():
        shapes, _, weights = look.posterior(column)
        mean = weights @ shapes.mean
        off = math.sqrt(weights @ (shapes.mean - mean) ** 2) + _CELL / 2  # anywhere in one
        wide = math.hypot(off, _quantile(shapes.deviation, weights, _CERTAIN))
        if wide * _NEARER < 1:
            location[column] += unit[column] * mean
            unit[column] *= wide
    moved = unit < look.unit
    cells = look.cells.or_other(_Noisy.nothing(len(unit)), moved)
    return replace(look, location=location, unit=unit, cells=cells)


def _fine(look: _Look, aim: _Aim) -> Scales:
    """Fit equal cells by distributions of a size that octaves allow; choose a scale by its rank.

    Distributions with a value that many records share have it where a single value fits best.
    From nearer there may be nothing but such a value, or not even that: then the first look
    counts, since what else there is makes up the scale.
    """
    heap, there = np.zeros(len(look.unit)), np.ones(len(look.unit))
    for column in np.flatnonzero(look.near).tolist():
        _, masses, weights = look.posterior(column)
        shares = (weights @ masses)[1:-1]
        heap[column], there[column] = shares.max(), shares.sum()
    look = look.as_first((heap > _HEAPED) | (there < 0.5))
    location, scale = look.location.copy(), look.unit.copy()
    for column, unit in enumerate(look.unit):
        shapes, masses, weights = look.posterior(column)
        location[column] += unit * (weights @ shapes.mean)
        scale[column] *= _quantile(shapes.deviation, weights, aim.fine)
        heap[column] = (weights @ masses)[1:-1].max()
    least = np.where(heap > _HEAPED, _BESIDE, _RESOLVED) * _CELL
    least = math.sqrt(1 / 12) * _CELL if aim.narrow else least  # that of any values in one cell
    return Scales(location, np.maximum(scale, least * look.unit), look.fit.sure)


def _nearby(cells: _Noisy, column: int) -> tuple[Shapes, np.ndarray, np.ndarray]:
    """Distributions, with those of a shared value, which might have been in any of the cells."""
    shapes, masses, expected = _near()
    places, alone = _heaps()
    heap = places[cells.log_likelihoods(alone, column).argmax()]
    heaped = heaped_shapes().moved(heap, 1.0)
    heaped = replace(heaped, prior=heaped.prior / _N_CELLS)
    more = heaped.masses(_edges())
    return (
        together([shapes, heaped]),
        np.concatenate([masses, more]),
        np.concatenate([expected, more @ _cells().matrix[:-1]]),
    )


def _quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    order = np.argsort(values)
    rank = np.searchsorted(np.cumsum(weights[order]), level * (1 - 1e-9))
    return float(values[order[min(rank, len(order) - 1)]])


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
    log = noisy.log_likelihoods(expected, 0) - 0.5 * (middle + 0.5) ** 2
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
