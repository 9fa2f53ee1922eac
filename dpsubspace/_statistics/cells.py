"""Counts of the values of columns in cells, chunk by chunk: columns are not copied or sorted.

Design note. The bits of a floating-point number tell its octave and, after that, which equal
part of the octave it is in. A shift of these bits says exactly which cell a value is in, where a
search among the edges would compare it with ten of them. Counts are exact: they do not
depend on the order of chunks, or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsubspace._array import Scratch, slices
from dpsubspace._rows.chunks import Slices, over_chunks

__all__ = ["TOGETHER", "CountedRanks", "cell_counts", "places"]

# Entries of a chunk of columns, and of a part of it that stays in the cache.
_CHUNK, _PIECE = 1 << 18, 1 << 15

# Columns whose counts are kept in the cache together.
TOGETHER = 128

# Binary digits of a place that are counted in a second pass, of the few places in question.
_LATER = 10


def places(values: np.ndarray, digits: int, octaves: int, *, closed: bool = False) -> np.ndarray:
    """Integers in the order of `values`, for cells that are equal parts of octaves.

    Parameters
    ----------
    values : ndarray
        Of any shape. NaN counts as inf.
    digits : int
        An octave has 2^digits parts, [a, b) above 0 and their mirror images, (-b, -a], below.
    octaves : int
        Octaves on either side of 1. Values between 2^-octaves and its negative are in place 0.
    closed : bool, default=False
        Whether all places are [a, b). Then those below 0 start at -1, of [-2^-octaves, 0).

    Returns
    -------
    ndarray
        From -m to m (closed: from -1 - m), where m is the last part of an octave, which holds
        larger values as well.
    """
    if values.dtype != np.float32 or digits > 23:
        values = values.astype(np.float64, copy=False)
    single = values.dtype == np.float32
    integer, mantissa, bias = (np.int32, 23, 127) if single else (np.int64, 52, 1023)
    place = np.bitwise_and(values.view(integer), np.iinfo(integer).max)  # of the absolute value
    below = (values < 0).astype(integer)  # not of -0.0, and not of NaN
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
    """How many of the numbers that `cells` makes of rows of `columns` are 0, ..., n_cells - 1.

    Where there are `weights` of rows, what they add up to: exactly, since these are multiples of
    2^-24 (see :class:`~dpsubspace._rows.records.Records`).
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
    """Counts, added up exactly."""

    counts: Any = None

    def add(self, counts: np.ndarray) -> None:
        """Add those of a chunk, in place."""
        if self.counts is None:
            self.counts = counts
        else:
            self.counts += counts

    def merge(self, other: _Counts) -> None:
        """Add those of other chunks."""
        self.counts = other.counts if self.counts is None else self.counts + other.counts


class CountedRanks:
    """How many values of each column lie before some places.

    Two passes over the columns, whatever is asked for in a search: one counts what has the same
    leading digits of the place, and one, when it is needed, the last ten digits of what has the
    leading digits in question.

    Parameters
    ----------
    columns : ndarray of shape (n, c)
        Values.
    digits, octaves : int
        As :func:`places` takes them; octaves times 2^digits is at least 2^10.
    weights : ndarray of shape (n,), optional
        What the rows count for, as :func:`cell_counts` takes them.
    """

    def __init__(
        self, columns: np.ndarray, digits: int, octaves: int, weights: np.ndarray | None = None
    ):
        self._columns, self._digits, self._octaves = columns, digits, octaves
        self._weights = weights
        self._first = -(octaves << (digits + 1))  # of the places
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
        """Column and leading digits of each value, as one number."""
        place = places(part, self._digits, self._octaves)
        place >>= _LATER
        place += self._shift
        return place

    def before(self, wanted: np.ndarray) -> np.ndarray:
        """Values of the columns before the places `wanted`, an integer array (c, k).

        Places count from 0 here.
        """
        leading, last = wanted >> _LATER, wanted & ((1 << _LATER) - 1)
        ranks = np.take_along_axis(self._before, leading, axis=1)
        if not last.any():
            return ranks
        cells = leading + self._offset[:, None]
        if not np.isin(cells, self._known).all():
            self._count_last(np.unique(cells))
        return ranks + self._last[np.searchsorted(self._known, cells), last]

    def _count_last(self, known: np.ndarray) -> None:
        """Count the last digits of values with known leading ones."""
        slot = np.full(self._before.size, -1, dtype=np.int32)
        slot[known] = np.arange(len(known))

        def cells(part: np.ndarray) -> np.ndarray:
            place = places(part, self._digits, self._octaves)
            leading = place >> _LATER
            leading += self._shift
            found = slot.take(leading)
            if self._weights is not None:  # one number for each value, to be weighted by its row
                numbers = (found.astype(np.intp) << _LATER) + (place & ((1 << _LATER) - 1))
                return np.where(found >= 0, numbers, n_cells)
            inside = np.flatnonzero(found >= 0)
            last = place.take(inside) & ((1 << _LATER) - 1)
            return (found.take(inside).astype(np.intp) << _LATER) + last

        n_cells = len(known) << _LATER
        counts = cell_counts(self._columns, cells, n_cells + 1, self._weights)
        counts = counts[:-1].reshape(len(known), -1)
        self._known, self._last = known, np.cumsum(counts, axis=1) - counts
