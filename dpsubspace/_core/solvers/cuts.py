"""Cuts of sums, by released counts of how large what rows contribute is.

Nothing here sees a private number: all inputs are released, and there is no cost. Noise is in
proportion to the cut, and what is cut is lost: the best cut has the least of both together.
"""

from __future__ import annotations

import math

import numpy as np

from dpsubspace._core.solvers.design import SIZES

# Width of a cell of sizes as a factor, and the steepest fall of a density within.
_CELL, _STEEPEST = SIZES[1] / SIZES[0], 12.0

# Deviations of their noise that cells must have to be seen, beside others and behind a gap.
_SEEN, _SEEN_ALONE = 2.2, 4.0

# What is cut counts at most as this share of the cut, or as what visible cells have beyond it.
_MASS = 0.25

# The slowest fall of counts that noise hides, from cell to cell.
_SLOWEST = 0.8


def seen_counts(counts: np.ndarray, noise: float, largest: float, doubt: float = 0.0) -> np.ndarray:
    """Return counts, and those that noise hides, up to the `largest` size, by the fall of others.

    Behind a gap, cells need more to be seen. Those that are hidden go on falling by a power, as the
    last that are seen, and have no more than the released counts and `doubt` deviations of their
    noise.
    """
    good, end = counts > _SEEN * noise, int(np.argmax(counts))
    while end + 1 < len(counts) and good[end + 1]:
        end += 1
    end = max([end, *np.flatnonzero(counts > _SEEN_ALONE * noise)])
    seen = np.where(good & (np.arange(len(counts)) <= end), counts, 0.0)
    if end < 2 or not seen[end - 2 : end].all():
        return seen
    fall = min(math.sqrt(seen[end] / seen[end - 2]), _SLOWEST)
    for i in range(end + 1, min(int(np.searchsorted(SIZES, largest)) + 1, len(counts))):
        seen[i] = min(fall * seen[i - 1], max(counts[i], 0.0) + doubt * noise)
        if seen[i] == 0:
            break
        fall = min(fall, seen[i] / seen[i - 1])
    return seen


def _lost(cuts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return how much of all sizes is above each of the `cuts`, by counts in cells.

    Within a cell, sizes are taken to have a density that falls by a power, as from the cell before.
    """
    before = np.concatenate([counts[:1], counts[:-1]])
    powers = np.log(np.maximum(before, 1e-9) / np.maximum(counts, 1e-9)) / math.log(_CELL)
    powers = np.clip(powers, 0.01, _STEEPEST)[:, None]
    high = SIZES[:, None]
    low = high / _CELL
    inside = np.clip(cuts, low, high)
    share_of = 1 / (low**-powers - high**-powers)
    there = (inside**-powers - high**-powers) * share_of
    over = powers / (powers - 1 + 1e-9) * (inside ** (1 - powers) - high ** (1 - powers)) * share_of
    return np.maximum(over - cuts * there, 0.0).T @ counts


def best_cut(counts: np.ndarray, noise: float, n: int, share: float = 1.0) -> float:
    """Return the cut at which squares of its noise and of a share of the mass cut are least."""
    cuts = 2.0 ** np.arange(-2.0, math.log2(SIZES[-1]) + 0.01, 0.25)
    lost = _lost(cuts, counts) / n
    return float(cuts[np.argmin((noise * cuts) ** 2 + (share * lost) ** 2)])


def longest_excess(counts: np.ndarray, cut: float, hidden: float) -> float:
    """Return how far sizes above the cut are counted: the rest adds up to `hidden` or less."""
    ends = cut * (1 + _MASS * 2.0 ** np.arange(0.0, 6.01, 0.5))
    enough = np.flatnonzero(_lost(ends, counts) <= hidden)
    return float(ends[enough[0] if len(enough) else -1]) - cut
