"""Counts of values in cells, and releases of counts: radii and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    Scratch,
    Total,
    as_like,
    at_most,
    column_sums,
    namespace,
    slices,
    to_numpy,
    weighted,
)
from dpsubspace._core.release.mechanisms import BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.chunks import Slices, over_chunks
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise, sum_over_parts

# Cells ------------------------------------------------------------------------------------------
# Counts of the values of columns in cells, chunk by chunk: columns are not copied or sorted.
#
# Design note. The bits of a floating-point number give its octave, followed by the equal part of
# the octave that it is in. A shift of these bits gives the exact cell of a value, while a search
# among the edges would compare the value with ten of them. Counts are exact: they do not depend on
# the order of chunks, or on the number of threads.

# Entries of a chunk of columns, and of a part of it that stays in the cache.
_CHUNK, _PIECE = 1 << 19, 1 << 16

# Columns whose counts are kept in the cache together.
TOGETHER = 128

# Up to this number of wanted places per column, comparing with each is faster than a lookup.
_COMPARED = 6

# Binary digits of a place that a second pass counts, for the few wanted places.
_LATER = 10


def places(values: np.ndarray, digits: int, octaves: int, *, closed: bool = False) -> np.ndarray:
    """Return integers in the order of `values`, for cells that are equal parts of octaves.

    NaN counts as inf. An octave has 2^digits parts, [a, b) above 0 and their mirror images below.
    There are `octaves` of them on either side of 1, and values between 2^-octaves and its negative
    are in place 0. With `closed` all places are [a, b); those below 0 then start at -1, for
    [-2^-octaves, 0).

    Places go from -m to m (closed: from -1 - m), where m is the last part of an octave, which holds
    larger values as well.
    """
    if values.dtype != np.float32 or digits > 23:
        values = values.astype(np.float64, copy=False)
    single = values.dtype == np.float32
    integer, mantissa, bias = (np.int32, 23, 127) if single else (np.int64, 52, 1023)
    place = np.bitwise_and(values.view(integer), np.iinfo(integer).max)  # of absolute values
    below = (values < 0).astype(integer)  # false for -0.0 and NaN
    if closed:
        place -= below  # the next number: [-b, -a) has the sizes (a, b]
    place >>= mantissa - digits
    place -= ((bias - octaves) << digits) - 1
    np.clip(place, 0, 2 * octaves << digits, out=place)
    place ^= np.negative(below, out=below)  # a number m of a value below 0 becomes -1 - m
    return place if closed else np.subtract(place, below, out=place)


def cell_counts(
    columns: np.ndarray,
    cells: Callable[[np.ndarray], np.ndarray],
    n_cells: int,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Count the numbers 0, ..., n_cells - 1 among those that `cells` makes of rows of `columns`.

    If rows have `weights`, return the sums of weights: exactly, since these are whole numbers of
    steps (see :func:`~dpsubspace._core.rows.records.exact_steps`).
    """

    def of_chunk(rows: slice) -> np.ndarray:
        part = columns[rows]
        pieces = slices(len(part), max(1, _PIECE // part.shape[1])) or [slice(0, 0)]
        found = [cells(part[piece]).ravel() for piece in pieces]
        kept = Scratch((sum(map(len, found)),), np.intp)  # what `bincount` counts without a copy
        numbers = np.concatenate(found, out=kept.array)
        each_row = len(numbers) // max(1, len(part))
        own = None if weights is None else np.repeat(weights[rows], each_row)
        return np.bincount(numbers, own, minlength=n_cells)

    step = max(1, _CHUNK // columns.shape[1])
    with over_chunks(Slices(columns, step, passes=8)) as each:
        return each.total(of_chunk, _Counts).counts


class _Counts:
    counts: Any = None

    def add(self, counts: np.ndarray) -> None:
        if self.counts is None:
            self.counts = counts
        else:
            self.counts += counts

    def merge(self, other: _Counts) -> None:
        self.counts = other.counts if self.counts is None else self.counts + other.counts


class CountedRanks:
    """Ranks of places: how many values of each column lie before them.

    There are two passes over the columns for each request of a search: one counts values with the
    same leading digits as a place, and the other, if it is needed, counts the last ten digits of
    the values that have these leading digits.

    Columns are (n, c). `digits` and `octaves` are as in :func:`places`; octaves times 2^digits is
    at least 2^10. Weights of rows are as in :func:`cell_counts`.
    """

    def __init__(
        self, columns: np.ndarray, digits: int, octaves: int, weights: np.ndarray | None = None
    ):
        self._columns, self._digits, self._octaves = columns, digits, octaves
        self._weights = weights
        self._first = -(octaves << (digits + 1))  # first place
        # The last place has a cell of its own.
        self._n_leading = (-2 * self._first >> _LATER) + 1
        n_columns = columns.shape[1]
        self._offset = np.arange(n_columns, dtype=np.int32) * self._n_leading
        self._shift = self._offset - (self._first >> _LATER)
        counts = cell_counts(columns, self._leading, n_columns * self._n_leading, weights)
        counts = counts.reshape(n_columns, -1)
        self._before = np.cumsum(counts, axis=1) - counts
        self._known, self._last = np.empty(0, dtype=np.intp), np.empty((0, 0), dtype=np.int64)

    def _leading(self, part: np.ndarray) -> np.ndarray:
        place = places(part, self._digits, self._octaves)
        place >>= _LATER
        place += self._shift
        return place

    def before(self, wanted: np.ndarray) -> np.ndarray:
        """Count values before the places `wanted`, an integer array (c, k) that counts from 0."""
        leading, last = wanted >> _LATER, wanted & ((1 << _LATER) - 1)
        ranks = np.take_along_axis(self._before, leading, axis=1)
        if not last.any():
            return ranks
        cells = leading + self._offset[:, None]
        if not np.isin(cells, self._known).all():
            self._count_last(np.unique(cells))
        return ranks + self._last[np.searchsorted(self._known, cells), last]

    def _count_last(self, known: np.ndarray) -> None:
        slot = np.full(self._before.size, -1, dtype=np.int32)
        slot[known] = np.arange(len(known))
        of_columns = self._by_column(known)

        def cells(part: np.ndarray) -> np.ndarray:
            place = places(part, self._digits, self._octaves)
            leading = place >> _LATER
            if self._weights is not None:  # one number for each value, weighted by its row
                found = slot.take(leading + self._shift)
                numbers = (found.astype(np.intp) << _LATER) + (place & ((1 << _LATER) - 1))
                return np.where(found >= 0, numbers, n_cells)
            if len(of_columns) <= _COMPARED:
                inside = leading == of_columns[0]
                for others in of_columns[1:]:
                    inside |= leading == others
            else:
                inside = slot.take(leading + self._shift) >= 0
            few = np.flatnonzero(inside)
            found = slot.take(leading.take(few) + self._shift.take(few % part.shape[1]))
            return (found.astype(np.intp) << _LATER) + (place.take(few) & ((1 << _LATER) - 1))

        n_cells = len(known) << _LATER
        counts = cell_counts(self._columns, cells, n_cells + 1, self._weights)
        counts = counts[:-1].reshape(len(known), -1)
        self._known, self._last = known, np.cumsum(counts, axis=1) - counts

    def _by_column(self, known: np.ndarray) -> np.ndarray:
        """Return leading digits of wanted places, (k, c), repeated for columns that have fewer."""
        columns = known // self._n_leading
        starts = np.searchsorted(columns, np.arange(len(self._shift)))
        counts = np.diff(starts, append=len(known))
        which = starts + np.minimum(np.arange(counts.max())[:, None], counts - 1)
        return (known[which] - self._shift).astype(np.int32)


# Releases of counts -----------------------------------------------------------------------------

# Octaves on either side of 1 in which values are counted. Values nearer to 0 than the last octave
# count as 0, and no released bound is smaller than that, or larger than the other end.
_OCTAVES = 40
SMALLEST, LARGEST = 2.0**-_OCTAVES, 2.0**_OCTAVES


def _cells(per_octave: int) -> np.ndarray:
    positive = 2.0 ** (np.arange(-_OCTAVES * per_octave, _OCTAVES * per_octave + 1) / per_octave)
    return np.concatenate([-positive[::-1], [0.0], positive])


# Largest number of adjacent cells in which a range is searched.
_LONGEST = 32
_CELLS = {per_octave: _cells(per_octave) for per_octave in (1, 2)}

# Number of rows that are added up together.
_TOGETHER = 1 << 16

# Candidates for a radius, relative to the largest, and the number of counts to select one.
_RADII = 2.0 ** (-np.arange(64) / 4)
RADIUS_COUNTS = 6


def noisy_radius(
    distances: np.ndarray,
    largest: float,
    releases: Releases,
    name: str,
    *,
    within: float = 0.5,
    margin: float = 3.0,
) -> float:
    """Release a radius, `largest` over a power of 2^(1/4), that a share of distances is within.

    The distances (n,) are private, and `largest` is public or released. There are
    :data:`RADIUS_COUNTS` releases called `name`. To the share `within` of the records, `margin`
    standard deviations of the noise are added, so that noise errs to the side of radii that are too
    large, and `largest` comes out where it hides the records.

    Privacy: bisection asks how many records are outside of radii that its earlier answers
    determine. A record moves such a count by at most 1, whether it becomes null or is
    replaced. What follows is postprocessing. Event: :data:`RADIUS_COUNTS` Gaussian mechanisms.
    """
    values, records = to_numpy(distances), releases.records_of(distances)
    spare = margin * releases.noise_of(name, _count(0.0))
    most = (1 - within) * records.n - spare
    found, beyond = 0, len(_RADII)
    while beyond - found > 1:
        middle = (found + beyond) // 2
        outside = sum_over_parts(records.count, values > largest * _RADII[middle])
        noisy = releases.gaussian(name, _count(outside))
        found, beyond = (middle, beyond) if noisy[0] <= most else (found, middle)
    return largest * float(_RADII[found])


def _count(count: float) -> BoundedSum:
    """Make a bounded sum of a number of records; a record moves it by 1, replaced or null."""
    return BoundedSum(np.array([count]), norm_bound=1.0, replace_bound=1.0)


def noisy_shares(values: Array, releases: Releases, name: str = "checks") -> np.ndarray:
    """Release the mean over records of k numbers in [0, 1] at once.

    Entries of `values` (n, k) outside of [0, 1] are clipped, and NaN counts as 0. The values of a
    row must be the same to the last bit, whatever its position among the rows.

    Privacy: a record moves each of the k sums by at most 1, whether it is replaced or becomes null,
    so their vector by at most sqrt(k). The values of other records stay unchanged, even if a person
    with more rows moves theirs to other positions, and rounding of the sums alone is in the slack
    of :meth:`~dpsubspace._core.rows.records.Records.slack`. Event: one Gaussian mechanism.
    """
    values, records = rowwise(_in_unit, values), releases.records_of(values)
    total, slack = record_sums(values, records)
    bound = math.sqrt(values.shape[1]) * (1 + slack)
    released = BoundedSum(total, norm_bound=bound, replace_bound=bound)
    return to_numpy(releases.gaussian(name, released)) / records.n


def noise_of_shares(noise_multiplier: float, k: int, n_records: int) -> float:
    """Return the standard deviation of each of the k means from :func:`noisy_shares`."""
    return noise_multiplier * math.sqrt(k) / n_records


def noisy_parts(
    values: np.ndarray, releases: Releases, name: str, *, own: float = 0.0
) -> tuple[np.ndarray, float]:
    """Release the mean over records of parts of a whole: numbers that add up to at most 1.

    In `values` (n, k), numbers below 0 and NaN count as 0, and a row that adds up to more than 1 is
    divided by its sum. `own` is the number of units of rounding by which a row may differ, in L2
    norm, at another position among the rows. Return the means and the standard deviation of their
    noise.

    Privacy: a record contributes a vector of numbers from 0 on that add up to at most 1. No norm is
    larger than that sum, so the vector has an L2 norm of at most 1, by which the total moves when
    the record becomes null. Two such vectors a and b have ``a @ b >= 0``, so that
    ``|a - b|^2 <= |a|^2 + |b|^2 <= 2``: a replaced record moves it by at most sqrt(2). A division
    and a sum of k numbers in float64 are right to ``k + 1`` units of rounding. Event: one Gaussian
    mechanism.
    """
    values, records = _in_unit(values), releases.records_of(values)
    values = values / np.maximum(values.sum(axis=1), 1.0)[:, None]
    total = to_numpy(sum_over_parts(_sums, values, records, None).value)
    slack = records.slack(EPS, _TOGETHER, own=own)
    most = 1 + 2 * (values.shape[1] + 1) * EPS
    released = BoundedSum(total, most + slack, math.sqrt(2) * most + slack)
    means = to_numpy(releases.gaussian(name, released)) / records.n
    return means, releases.noise_of(name, released) / records.n


def noise_of_parts(noise_multiplier: float, neighboring_relation: str, n_records: int) -> float:
    """Return about the standard deviation of the noise of each mean from :func:`noisy_parts`."""
    unit = BoundedSum(np.zeros(1), 1.0, math.sqrt(2)).unit(neighboring_relation)
    return noise_multiplier * unit / n_records


def _in_unit(values: Array) -> Array:
    xp = namespace(values)
    return xp.where(values > 0, at_most(values, 1.0), xp.zeros_like(values))


def record_sums(values: Array, records: Records, factors: Any = None) -> tuple[np.ndarray, float]:
    """Sum rows (n_rows, k) over records, with slack; `factors` (n_rows,) multiply rows."""
    total = sum_over_parts(_sums, values, records, factors)
    return to_numpy(total.value), records.slack(EPS, _TOGETHER)


def _sums(values: Array, records: Records, factors: Array | None) -> Total:
    weights, total = records.weights_numpy, Total()
    weights = None if weights is None else as_like(weights, values)
    for rows in slices(values.shape[0], _TOGETHER) or [slice(0, 0)]:
        block = values[rows, :]
        block = block if factors is None else block * factors[rows, None]
        total.add(column_sums(block if weights is None else weighted(block, weights[rows])))
    return total


def count_noise(noise_multiplier: float, neighboring_relation: str) -> float:
    """Return the standard deviation of each count that :func:`noisy_radius` releases."""
    return noise_multiplier * _count(0.0).unit(neighboring_relation)


def count_above_noise(scale: float, per_octave: int = 2) -> float:
    """Return a noisy count that empty cells together pass with a probability of 1 in 1000."""
    return scale * float(ndtri(1 - 1e-3 / (len(_CELLS[per_octave]) - 1)))


def noisy_range(
    values: np.ndarray, releases: Releases, name: str, *, stream: str | None = None
) -> tuple[float, float, bool]:
    """Release an interval for one column, of shape (n,), and whether it was found.

    This is :func:`noisy_ranges` for one column and two cells an octave. If noise hides all of the
    column, the interval is a placeholder, -1 to 1.
    """
    low, high, found = noisy_ranges(values[:, None], releases, name, stream=stream)
    return (float(low[0]), float(high[0]), True) if found[0] else (-1.0, 1.0, False)


def noisy_ranges(
    values: np.ndarray,
    releases: Releases,
    name: str,
    *,
    per_octave: int = 2,
    stream: str | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release an interval for each column, with ends at 0 or powers of 2, that holds most of it.

    The columns (n, c) are private. Values beyond 2^40 count as 2^40, and NaN is in no cell. There
    are `per_octave` cells, 1 or 2, between one power of 2 and the next. `stream` names the stream
    of noise, if several releases have one name.

    Return the low and the high ends of the outermost cells, single or adjacent, with counts that
    noise does not explain (if there are none, of the cells that stand out most), and whether any
    cells were found.

    Privacy: the counts of all cells of all columns are one release. A record is in one cell per
    column, so it moves the vector of counts by sqrt(c) when it becomes null, and by at most sqrt(2
    c) when it is replaced, which takes 1 from one cell per column and adds it to another. The rest
    is postprocessing. Event: one Gaussian mechanism.
    """
    edges, n_columns = _CELLS[per_octave], values.shape[1]
    counts = _counts(values, per_octave, releases.records_of(values).weights_numpy)
    total = BoundedSum(
        counts.ravel(), norm_bound=math.sqrt(n_columns), replace_bound=math.sqrt(2 * n_columns)
    )
    noisy = releases.gaussian(name, total, stream=stream).reshape(counts.shape)
    scale = releases.noise_of(name, total)
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


def _counts(columns: np.ndarray, per_octave: int, weights: np.ndarray | None = None) -> np.ndarray:
    edges, n_columns = _CELLS[per_octave], columns.shape[1]
    n_cells = len(edges) - 1
    offset = np.arange(n_columns, dtype=np.intp) * n_cells

    def cells(part: np.ndarray) -> np.ndarray:
        if per_octave == 1:
            found = places(part, 0, _OCTAVES, closed=True) + (offset + n_cells // 2)
        else:
            found = np.searchsorted(edges, part, side="right")
            found = np.clip(found, 1, n_cells) - 1 + offset
        missing = np.isnan(part)
        return np.where(missing, n_columns * n_cells, found) if missing.any() else found

    counts = cell_counts(columns, cells, n_columns * n_cells + 1, weights)[:-1]
    return counts.reshape(n_columns, -1).astype(float)


def _stretch(cells: np.ndarray, scale: float, edges: np.ndarray) -> tuple[float, float, bool]:
    """Return the ends of the stretch of noisy cells that stands out most, and if it is significant.

    A stretch is of one sign, or the same cells of both. It is found if values are spread over so
    many cells that noise hides each: the sum of `k` cells has the noise of one times sqrt(k).
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
