"""How likely distributions of a public list are for columns of which counts in cells were released.

All of it is postprocessing. The list is long, and hardly any of it agrees with what was released:
what a distribution is worth apart from that is computed for the few that do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy import ndimage

from dpsubspace._core.statistics.cell_maps import (
    CELL,
    MISFIT,
    N_CELLS,
    OFF,
    REACH,
    ROUNDED,
    Expected,
    Noisy,
    cell_edges,
    cell_map,
    first_octave,
)
from dpsubspace._core.statistics.shapes import Shapes, heaped_shapes, near_shapes

# Distributions whose logarithm is below the largest by more are left out: all of them together
# weigh less than rounding.
_UNLIKELY = 45.0

# The list ---------------------------------------------------------------------------------------


@cache
def near_columns() -> tuple[Shapes, np.ndarray, Expected]:
    """Distributions near a column, their shares of equal cells, and what is released of those."""
    shapes = near_shapes()
    masses = shapes.masses(cell_edges())
    return shapes, masses, Expected.of(masses @ cell_map().matrix[:-1])


@cache
def single_values() -> Expected:
    """What a column gives that has one value, in the middle of each of the cells."""
    return Expected.of(cell_map().matrix[1:-2])


def likely_heaps(cells: Noisy) -> np.ndarray:
    """The cell that a value of many records would be in, of each column."""
    return cells.log_likelihoods(single_values(), slice(None)).argmax(axis=1)


@cache
def _beside_a_heap() -> np.ndarray:
    """Shares below edges of cells to both sides of one with a shared value in its middle."""
    return heaped_shapes().below((np.arange(-N_CELLS, N_CELLS + 1) + 0.5) * CELL)


def _places(heaps: np.ndarray) -> np.ndarray:
    return (heaps + 0.5) * CELL - REACH


def _edges_beside(heaps: np.ndarray) -> np.ndarray:
    """Where the edges of all cells are among those beside a heap, (c, e)."""
    return N_CELLS - 1 - heaps[:, None] + np.arange(N_CELLS + 1)


def heaped_columns(cell: int) -> tuple[Shapes, np.ndarray]:
    """Distributions with a value in a cell that many records share, and their shares of cells."""
    shapes = heaped_shapes().moved(float(_places(np.array(cell))), 1.0)
    below = _beside_a_heap()[:, _edges_beside(np.array([cell]))[0]]
    masses = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return replace(shapes, prior=shapes.prior / N_CELLS), masses


@cache
def _heaped_half_squares(cell: int) -> np.ndarray:
    """Half of the square norms of what these give, which is too much to keep."""
    return Expected.of(heaped_columns(cell)[1] @ cell_map().matrix[:-1]).half_squares


def heaped_log_likelihoods(cells: Noisy, heaps: np.ndarray) -> np.ndarray:
    """Log likelihoods of these, up to a constant, for columns with a heap in some cell, (c, h).

    What was released is projected, and sums over cells are taken by parts: they are then sums over
    edges, of shares below, which are the same for all heaps but for their place.
    """
    released = cells.values @ cell_map().matrix[:-1].T
    moved = np.zeros((len(heaps), _beside_a_heap().shape[1]))
    np.put_along_axis(moved, _edges_beside(heaps), released[:, :-1] - released[:, 1:], axis=1)
    products = moved @ _beside_a_heap().T + released[:, -1:]
    half_squares = [np.empty((0, products.shape[1]))]
    half_squares += [_heaped_half_squares(heap)[None] for heap in heaps.tolist()]
    return (products - np.concatenate(half_squares)) / (cells.variance + MISFIT**2)


# What agrees with a release ---------------------------------------------------------------------


@dataclass(frozen=True)
class Posterior:
    """How likely distributions are for each of some columns: those that are not are left out.

    Those of a column are next to each other, in the order of their deviations.
    """

    weights: np.ndarray  # (q,): those of a column add up to 1
    columns: np.ndarray  # (q,): number of the column
    shapes: np.ndarray  # (q,): number of the distribution: those near a column, then with a heap
    means: np.ndarray  # (q,)
    deviations: np.ndarray  # (q,)
    starts: np.ndarray  # (c,): where those of each column begin
    heaps: np.ndarray  # (c,): cell of the heap

    @classmethod
    def of(
        cls, cells: Noisy, location: np.ndarray, unit: np.ndarray, sizes: np.ndarray
    ) -> Posterior:
        """About a location, in a unit, with octaves of size that are as likely as `sizes` say."""
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
        """Means over the distributions of each column, of a number (q,) of each."""
        return np.add.reduceat(self.weights * values, self.starts)

    def deviation(self, level: float) -> np.ndarray:
        """Quantile of the deviations of each column."""
        total, ends = np.cumsum(self.weights), np.append(self.starts[1:], len(self.weights))
        before = total[self.starts] - self.weights[self.starts]
        rank = np.searchsorted(total, before + level * (1 - 1e-9))
        return self.deviations[np.clip(rank, self.starts, ends - 1)]

    @cached_property
    def shares(self) -> np.ndarray:
        """Shares of cells on average, (c, cells)."""
        masses, beside = near_columns()[1], _beside_a_heap()
        weights = np.zeros((len(self.heaps), len(masses) + len(beside)))
        weights[self.columns, self.shapes] = self.weights
        near, heaped = weights[:, : len(masses)], weights[:, len(masses) :]
        below = np.take_along_axis(heaped @ beside, _edges_beside(self.heaps), axis=1)
        below = np.column_stack([below, heaped.sum(axis=1)])
        return near @ masses + np.diff(below, axis=1, prepend=0.0)


def _between(values: np.ndarray, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Linear interpolation between entries next to each other of rows, (q,) of each."""
    last = values.shape[1] - 1
    np.clip(place, 0.0, last, out=place)
    entry = place.astype(np.intp)
    place -= entry
    entry += rows * (last + 1)
    return values.take(entry) + np.diff(values, axis=1, append=0.0).take(entry) * place


@dataclass(frozen=True)
class _Every:
    """All distributions of the list: those near a column, and then those with a heap."""

    means: np.ndarray  # of those with a heap, about its place
    deviations: np.ndarray
    order: np.ndarray  # by deviation
    # Logarithms of priors, of size apart: less likely where the mean is not where octaves have it.
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
