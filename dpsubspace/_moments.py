"""Releases of moments and quantiles: means of bounded rows, ranges and quantiles of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from dpsubspace._array import (
    EPS,
    Array,
    Total,
    as_like,
    chunk_rows,
    column_sums,
    eps_of,
    namespace,
    slices,
    sum_slack,
    to_numpy,
)
from dpsubspace._features import Features
from dpsubspace._noise import BoundedSum, NoiseSource, release, vector_sum
from dpsubspace._scaling import Shift

__all__ = [
    "RADIUS_COUNTS",
    "SEARCH",
    "bounded_row_sum",
    "count_above_noise",
    "count_noise",
    "noisy_mean",
    "noisy_quantiles",
    "noisy_radius",
    "noisy_range",
    "noisy_ranges",
    "noisy_shares",
    "noisy_spread",
    "rank_noise",
    "recentred_mean",
]

# Releases of a search for quantiles: a sign, 128 octaves, and 4096 steps in each.
SEARCH = 20

# How many standard deviations of the noise a search keeps away from the first and the last
# rank, while it chooses a magnitude and afterwards.
_COARSE, _FINE = 4.0, 2.0


def _cells(per_octave: int) -> np.ndarray:
    """Edges of cells in which values are counted: 0 and powers of 2 of either sign."""
    positive = 2.0 ** (np.arange(-40 * per_octave, 40 * per_octave + 1) / per_octave)
    return np.concatenate([-positive[::-1], [0.0], positive])


# Most cells next to each other that a range is looked for in.
_LONGEST = 32

_CELLS = {per_octave: _cells(per_octave) for per_octave in (1, 2)}

# Candidates for a radius over the largest, and how many bisections leave one of them.
_RADII = 2.0 ** (-np.arange(64) / 4)
RADIUS_COUNTS = 6


def bounded_row_sum(
    features: Features, norm_bound: float, *, present: Array | None = None
) -> BoundedSum:
    """Sum of features, each of norm at most `norm_bound` already.

    Parameters
    ----------
    features : Features
        Rows that a :class:`~dpsubspace._scaling.RowMap` has bounded, or that were shifted
        and then clipped.
    norm_bound : float
        The map's bound, or the radius.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.

    Notes
    -----
    Proof of the bound: a row is a function of its record alone and has norm at most
    `norm_bound`; removing it moves the sum by at most that, replacing it by at most
    twice that. The sums as computed differ from the real ones by at most
    ``slack * norm_bound`` more (:func:`~dpsubspace._array.sum_slack`).
    """
    xp = namespace(features.lengths)
    weights = xp.ones_like(features.lengths) if present is None else xp.astype(present, xp.float64)
    total = Total()
    for rows in features.chunks():
        block = features.at(rows)
        if features.only_formed:
            whole = block.formed()
            shown = as_like(weights[rows], whole)[:, None]
            total.add(column_sums(xp.where(shown > 0, whole, xp.zeros_like(whole))))
        else:
            total.add(block.product(xp.ones_like(block.scale)[:, None], weights[rows])[:, 0])
    slack = features.slack
    if features.only_formed:
        slack = sum_slack(features.n_samples, EPS, features.chunk)
    return vector_sum(total.value, norm_bound, slack)


def noisy_mean(
    features: Features,
    norm_bound: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
    public: np.ndarray | None = None,
    beyond: float = 0.0,
) -> np.ndarray:
    """Release the mean of bounded rows, in float64, shrunk towards zero or a public mean.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already.
    norm_bound : float
        Bound on their norms.
    noise_multiplier : float
        Of the one release.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.
    public : ndarray of shape (m, width), optional
        Public rows, bounded alike.
    beyond : float, default=0.0
        Standard deviations by which the square of the noisy mean must exceed that of noise;
        the mean is taken to be zero where it does not. 0 only shrinks.

    Notes
    -----
    Privacy: the sum is released with `noise_multiplier` and divided by the public number
    of rows. Event: ``gaussian(noise_multiplier)``. What follows is postprocessing: the
    positive-part estimator of James and Stein (1961), which has a smaller mean squared error
    than the noisy mean whatever the mean is, and is zero where noise outweighs it; or the
    mean with the public one, weighted by their variances.
    """
    total = bounded_row_sum(features, norm_bound, present=present)
    noisy = to_numpy(
        release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    )
    variance = (noise_multiplier * total.unit(neighboring_relation)) ** 2
    if public is not None:
        return _between(noisy / features.n_samples, variance / features.n_samples**2, public)
    excess = max(0, len(noisy) - 2) * variance
    square = float(noisy @ noisy)
    if beyond > 0 and square <= (len(noisy) + beyond * math.sqrt(2 * len(noisy))) * variance:
        return np.zeros_like(noisy)
    shrinkage = max(0.0, 1 - excess / square) if square > 0 else 0.0
    return shrinkage * noisy / features.n_samples


def _between(mean: np.ndarray, variance: float, public: np.ndarray) -> np.ndarray:
    """Released mean with noise of `variance` an entry, and that of `public` rows, weighted.

    The public mean has the variance of its sampling, and more where it is further from the
    released one than chance explains: the bias of rows from elsewhere.
    """
    p, m = len(mean), len(public)
    guess = public.mean(axis=0)
    # One row more than there are, of the same spread: a single row says nothing of its own.
    sampling = float(public.var(axis=0).sum() + (guess @ guess) / m) / m
    private = p * variance
    excess = float(((mean - guess) ** 2).sum()) - sampling - private
    bias = excess if excess > 3 * math.sqrt(2 / p) * (sampling + private) else 0.0
    total = sampling + bias + private
    return mean if total == 0 else guess + (sampling + bias) / total * (mean - guess)


def noisy_radius(
    distances: np.ndarray,
    largest: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
    within: float = 0.5,
    margin: float = 3.0,
) -> float:
    """Release a radius, `largest` over a power of 2^(1/4), that a share of distances is within.

    Parameters
    ----------
    distances : array of shape (n,)
        Private values.
    largest : float
        Public or released radius.
    noise_multiplier : float
        Of each of :data:`RADIUS_COUNTS` counts.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.
    within : float, default=0.5
        Share of the records.
    margin : float, default=3
        Standard deviations of the noise to add to that share, so that noise errs to the side
        of radii that are too large, and `largest` comes out where it hides the records.

    Notes
    -----
    Privacy: bisection asks how many records are outside of radii that its earlier answers
    determine. A record moves such a count by at most 1, whether it becomes null or is
    replaced. What follows is postprocessing. Event: ``gaussian(noise_multiplier,
    RADIUS_COUNTS)``.
    """
    values, shown = to_numpy(distances), None if present is None else to_numpy(present)
    spare = margin * count_noise(noise_multiplier, neighboring_relation)
    most = (1 - within) * len(values) - spare
    found, beyond = 0, len(_RADII)
    while beyond - found > 1:
        middle = (found + beyond) // 2
        outside = values > largest * _RADII[middle]
        if shown is not None:
            outside &= shown
        total = _count(outside)
        noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
        found, beyond = (middle, beyond) if noisy[0] <= most else (found, middle)
    return largest * float(_RADII[found])


def recentred_mean(
    features: Features,
    norm_bound: float,
    multipliers: Mapping[str, float],
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
    public: np.ndarray | None = None,
    **radius: Any,
) -> np.ndarray:
    """Release a mean, a radius about it, and the mean of the rows within it.

    The noise of the last is that of the distance of the rows from each other, and not of
    their distance from zero.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already.
    norm_bound : float
        Bound on their norms.
    multipliers : dict of str to float
        Of the "coarse mean", of each count for the "coarse radius", and of the "mean".
    noise : NoiseSource
        Parent of a source for each of them.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.
    public : ndarray of shape (m, width), optional
        Public rows, bounded alike.
    **radius : dict
        Options of :func:`noisy_radius`.

    Notes
    -----
    Privacy: the coarse mean and radius are constants once they are released, so a row that is
    shifted by the one and clipped to twice the other is a function of its record alone, of
    norm at most that. Event: that of :func:`noisy_mean`, :func:`noisy_radius` and
    :func:`noisy_mean` again, which compose adaptively.
    """

    def options(name: str) -> dict[str, Any]:
        return {
            "noise": noise.child(name),
            "neighboring_relation": neighboring_relation,
            "present": present,
        }

    first = multipliers["coarse mean"]
    coarse = noisy_mean(features, norm_bound, first, public=public, **options("coarse mean"))
    about = features.shifted(Shift(coarse, None))
    counts = multipliers["coarse radius"]
    near = 2 * noisy_radius(
        about.distances(), norm_bound, counts, **options("coarse radius"), **radius
    )
    single = not sparse.issparse(features.X) and eps_of(features.X) > EPS
    about = about.clipped(near, formed=single)  # in float64 products are as good, and sparse
    # A mean that public rows know well is not moved by what may be noise.
    beyond = 0.0 if public is None else 2.0
    move = noisy_mean(about, near, multipliers["mean"], beyond=beyond, **options("mean"))
    return coarse + move


def _count(records: np.ndarray) -> BoundedSum:
    """Count the records that are True; one moves it by 1, replaced or null."""
    return BoundedSum(np.array([float(records.sum())]), norm_bound=1.0, replace_bound=1.0)


def noisy_shares(
    values: Array,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
) -> np.ndarray:
    """Release the mean over records of some numbers in [0, 1] at once.

    Parameters
    ----------
    values : array of shape (n, k)
        Each in [0, 1]; what is outside is clipped, and NaN counts as 0.
    noise_multiplier : float
        Of the one release.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.

    Notes
    -----
    Privacy: a record moves each of the k sums by at most 1, whether it is replaced or becomes
    null, so their vector by at most sqrt(k). Event: ``gaussian(noise_multiplier)``.
    """
    xp = namespace(values)
    values = xp.where(values > 0, xp.clip(values, max=1.0), xp.zeros_like(values))
    if present is not None:
        values = xp.where(present[:, None], values, xp.zeros_like(values))
    n_samples = values.shape[0]  # all of them in one chunk
    bound = math.sqrt(values.shape[1]) * (1 + sum_slack(n_samples, EPS, n_samples))
    total = BoundedSum(to_numpy(column_sums(values)), norm_bound=bound, replace_bound=bound)
    noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    return to_numpy(noisy) / n_samples


def count_noise(noise_multiplier: float, neighboring_relation: str) -> float:
    """Standard deviation of each count that :func:`noisy_radius` releases."""
    return noise_multiplier * _count(np.zeros(0)).unit(neighboring_relation)


def count_above_noise(scale: float, per_octave: int = 2) -> float:
    """Noisy count that one cell in all passes by accident with a probability of 1 in 1000."""
    return scale * float(ndtri(1 - 1e-3 / (len(_CELLS[per_octave]) - 1)))


def noisy_range(
    values: np.ndarray,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
) -> tuple[float, float, bool]:
    """Release an interval for one column, of shape (n,), and whether it was found.

    See :func:`noisy_ranges`, of which this is the case of one column and two cells an octave.
    Where noise hides all of the column, the interval is a placeholder, -1 to 1.
    """
    low, high, found = noisy_ranges(
        values[:, None],
        noise_multiplier,
        noise=noise,
        neighboring_relation=neighboring_relation,
        present=present,
    )
    return (float(low[0]), float(high[0]), True) if found[0] else (-1.0, 1.0, False)


def noisy_ranges(
    values: np.ndarray,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: np.ndarray | None = None,
    per_octave: int = 2,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release for each column an interval with ends at 0 or powers of 2 that most of it is in.

    Parameters
    ----------
    values : ndarray of shape (n, c)
        Private columns. Values beyond 2^40 count as 2^40.
    noise_multiplier : float
        Of the one release.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.
    per_octave : {1, 2}
        Cells between one power of 2 and the next.

    Returns
    -------
    low, high : ndarray of shape (c,)
        Ends of the outermost cells, single or next to each other, that are too full for noise;
        without any, of those that stand out most.
    found : boolean ndarray of shape (c,)
        Whether any cells were.

    Notes
    -----
    Privacy: the counts of all cells of all columns are one release. A record is in one cell a
    column, so it moves the vector of counts by sqrt(c) when it becomes null, and by at most
    sqrt(2 c) when it is replaced, which takes 1 from one cell a column and adds it to another.
    What follows is postprocessing. Event: ``gaussian(noise_multiplier)``.
    """
    edges, n_columns = _CELLS[per_octave], values.shape[1]
    weights = None if present is None else to_numpy(present).astype(float)
    counts = np.empty((n_columns, len(edges) - 1))
    for count, column in zip(counts, values.T, strict=True):
        cells = np.clip(np.searchsorted(edges, column, side="right"), 1, len(count)) - 1
        count[:] = np.bincount(cells, weights=weights, minlength=len(count))
    total = BoundedSum(
        counts.ravel(), norm_bound=math.sqrt(n_columns), replace_bound=math.sqrt(2 * n_columns)
    )
    noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    noisy = noisy.reshape(counts.shape)
    scale = noise_multiplier * total.unit(neighboring_relation)
    full = noisy > max(0.5, count_above_noise(scale, per_octave))
    found = full.any(axis=1)
    last = full.shape[1] - 1 - full[:, ::-1].argmax(axis=1)
    low, high = edges[full.argmax(axis=1)], edges[last + 1]
    for i, column in enumerate(noisy):
        start, end, clear = _stretch(column, scale, edges)
        if clear and found[i]:
            low[i], high[i] = min(low[i], start), max(high[i], end)
        elif not found[i]:
            low[i], high[i], found[i] = start, end, clear
    return low, high, found


def _stretch(cells: np.ndarray, scale: float, edges: np.ndarray) -> tuple[float, float, bool]:
    """Ends of the stretch of noisy cells that stands out most, and if noise rarely does so.

    A stretch is of one sign, or the same cells of both. It is found where values are spread
    over so many cells that noise hides each: `k` cells have the noise of one times sqrt(k).
    """
    n_cells = len(cells) // 2
    below, above, outer = cells[:n_cells][::-1], cells[n_cells:], edges[n_cells:]
    best, n_tried, low, high = -math.inf, 0, 0.0, 0.0
    for counts, has_low, has_high in ((above, 0, 1), (below, 1, 0), (below + above, 1, 1)):
        total = np.concatenate([[0.0], np.cumsum(counts)])
        for length in range(1, _LONGEST + 1):
            sums = total[length:] - total[:-length]
            place, n_tried = int(sums.argmax()), n_tried + len(sums)
            score = sums[place] / (max(scale, 0.1) * math.sqrt(length * (has_low + has_high)))
            if score > best:
                near, far = float(outer[place]), float(outer[place + length])
                low = -far if has_low else near
                high = far if has_high else -near
                best = score
    return low, high, bool(best > ndtri(1 - 1e-3 / n_tried))


@dataclass(frozen=True)
class _Line:
    """Grid of 2^n_levels equal steps from `low` to `high`, arrays of shape (c, 1)."""

    low: np.ndarray
    high: np.ndarray
    n_levels: int

    def edge(self, place: np.ndarray) -> np.ndarray:
        """Least value that belongs to a place or to a later one."""
        return self._at(place - 0.5)

    def value(self, place: np.ndarray) -> np.ndarray:
        """Value of a place; both ends of the range are values."""
        return self._at(place)

    def _at(self, place: np.ndarray) -> np.ndarray:
        share = place / (2**self.n_levels - 1)
        return self.low * (1 - share) + self.high * share


@dataclass(frozen=True)
class _Doubles:
    """Grid of numbers of few binary digits, from -2^64 to 2^64 and in their order.

    A place is 0, or a sign, an octave and an equal part of the octave. Its value is the end
    that is nearer to 0, so that integers up to ``2^(n_levels - 7)`` are values themselves.
    """

    n_levels: int

    def edge(self, place: np.ndarray) -> np.ndarray:
        """Least value that belongs to a place or to a later one."""
        code = place - 2 ** (self.n_levels - 1)
        return np.where(code > 0, self._size(code), np.nextafter(-self._size(1 - code), np.inf))

    def value(self, place: np.ndarray) -> np.ndarray:
        """Value of a place: its end that is nearer to 0."""
        code = place - 2 ** (self.n_levels - 1)
        return np.where(code == 0, 0.0, np.sign(code) * self._size(np.abs(code)))

    def _size(self, code: np.ndarray) -> np.ndarray:
        """Size of a value from its place after 0."""
        digits = self.n_levels - 8
        octave, part = np.divmod(np.maximum(code, 1) - 1, 2**digits)
        return np.ldexp(1 + part / 2**digits, octave - 64)


def rank_noise(
    noise_multiplier: float, n_columns: int, n_wanted: int, neighboring_relation: str
) -> float:
    """Standard deviation of an outer rank as a search sees it, at each of its stages."""
    doubled = 2 if neighboring_relation == "replace_one" else 1
    unit = math.sqrt(n_columns) if doubled == 1 else math.sqrt(2 * n_columns) / 2
    return noise_multiplier * unit * math.sqrt(n_wanted / (n_wanted + 1))


def noisy_quantiles(
    values: np.ndarray,
    levels: np.ndarray,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
    n_levels: int = SEARCH,
    present: Array | None = None,
) -> np.ndarray:
    """Release quantiles of several columns, by as many noisy binary searches side by side.

    Parameters
    ----------
    values : ndarray of shape (n, c)
        Private columns.
    levels : ndarray of shape (k,)
        Shares of the values that should lie below, the same for all columns.
    noise_multiplier : float
        Of each of the `n_levels` releases.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    bounds : tuple of two ndarrays of shape (c,), optional
        Public ranges of the columns, to search with equal steps; values outside count as the
        nearer end. None searches from -2^64 to 2^64 in steps of a constant share.
    n_levels : int
        Public number of releases, each of which halves what is left to search; above 8.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.

    Returns
    -------
    ndarray of shape (k, c)
        Values of the grid: the quantile, where many values are tied at it, or one of a rank
        that noise cannot tell from the one asked for.

    Notes
    -----
    Privacy: at each stage, every search of a column has one midpoint, which is a function of
    earlier releases. The midpoints of a column cut the line into cells, and the counts
    of all cells of all columns are one release. A record is in one cell a column, however
    many quantiles are searched for, so it moves the vector by sqrt(c) when it becomes null and
    by at most sqrt(2 c) when it is replaced. Event: ``gaussian(noise_multiplier, n_levels)``.

    The rank of a midpoint is estimated from the cells below it and, since the number of
    records is public, from those above it. A search whose rank lies within the noise of 0 or of
    n would run off into the empty space beyond the data, where it cannot turn around: ranks
    are kept away from both ends by a public number of standard deviations. It is larger
    in the first two fifths of the stages, where a wrong turn costs orders of magnitude.
    """
    n, n_columns = values.shape
    kept = values if present is None else values[to_numpy(present)]
    ordered = np.sort(kept, axis=0).astype(np.float64)
    grid = _Doubles(n_levels)
    if bounds is not None:
        low, high = (np.reshape(bound, (-1, 1)) for bound in bounds)
        grid = _Line(low, high, n_levels)
    levels = np.asarray(levels, dtype=np.float64)
    spread = rank_noise(noise_multiplier, n_columns, len(levels), neighboring_relation)
    place = np.zeros((n_columns, len(levels)), dtype=np.int64)
    for stage in range(n_levels):
        margin = min(n / 2, spread * (_COARSE if 5 * stage < 2 * n_levels else _FINE))
        wanted = np.clip(levels * n, margin, n - margin)
        middle = place + 2 ** (n_levels - 1 - stage)
        edges = [np.unique(row, return_inverse=True) for row in grid.edge(middle)]
        ranks = [
            np.searchsorted(column, edge, side="left")
            for column, (edge, _) in zip(ordered.T, edges, strict=True)
        ]
        cells = [np.diff(rank, prepend=0, append=len(ordered)) for rank in ranks]
        total = BoundedSum(
            np.concatenate(cells).astype(np.float64),
            norm_bound=math.sqrt(n_columns),
            replace_bound=math.sqrt(2 * n_columns),
        )
        noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
        ends = np.cumsum([len(cell) for cell in cells])[:-1]
        for row, column, (_, search) in zip(place, np.split(noisy, ends), edges, strict=True):
            below = _ranks(column, n)[search] < wanted
            row[below] += 2 ** (n_levels - 1 - stage)
    return grid.value(place).T


def _ranks(cells: np.ndarray, n: int) -> np.ndarray:
    """Ranks of the edges between noisy cells of equal noise, of `n` values in all.

    The sums from either side, weighted by their variances.
    """
    count = len(cells)
    share = np.arange(1, count) / count
    below, above = np.cumsum(cells)[:-1], np.cumsum(cells[::-1])[-2::-1]
    return below * (1 - share) + (n - above) * share


def noisy_spread(
    norms: Array,
    largest: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
) -> float:
    """Release the mean square of lengths, those above `largest` taken as that; not below 0.

    Notes
    -----
    Privacy: a record brings a number in [0, B^2], B = `largest`, to the sum of squares, which
    moves by at most B^2 when it becomes null or is replaced. Event:
    ``gaussian(noise_multiplier)``.
    """
    xp = namespace(norms)
    squares = xp.clip(norms, max=largest) ** 2
    if present is not None:
        squares = xp.where(present, squares, xp.zeros_like(squares))
    total = Total()
    for rows in slices(len(squares), chunk_rows(squares)):
        total.add(xp.sum(squares[rows])[None])
    bound = largest**2 * (1 + sum_slack(len(squares), EPS))
    noisy = release(
        BoundedSum(to_numpy(total.value), norm_bound=bound, replace_bound=bound),
        noise_multiplier,
        noise,
        neighboring_relation=neighboring_relation,
    )
    return max(0.0, float(noisy[0])) / len(squares)
