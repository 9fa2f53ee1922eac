"""Ranges of columns that are bought: where nearly all of the values of each lie.

Design note. There are two ways to buy a range. Counts in cells of an octave are one release, and
so need the fewest rows, but place a column far from 0, a year say, no better than between two
powers of 2. A search for quantiles finds any scale and any offset and takes twenty releases.
Sizes and the budget, all public, decide: a search whose noise would hide a quarter of the rows at
either end is left alone.
"""

from __future__ import annotations

import math

import numpy as np

from dpsubspace._accounting.budget import Budget, Part, Target
from dpsubspace._accounting.events import gaussian
from dpsubspace._release.releases import Releases
from dpsubspace._statistics.counts import SMALLEST, count_above_noise, noisy_ranges, noisy_shares
from dpsubspace._statistics.quantiles import SEARCH, noisy_quantiles, rank_noise, weighted_quantiles

__all__ = ["GAPS", "LEVEL", "exact_extents", "hidden_records", "noisy_extents", "range_part"]

# Share of the values to leave out at either end, and the share that noise may hide there
# before a search is given up: from cancer (398 rows, 30 columns) and census data (5,000 and
# 32,561 rows, 5 columns) before a classifier, at epsilon 0.1 to 6.
LEVEL, _HIDDEN = 0.01, 0.25

# Part of what buys ranges that counts missing values first, where there may be any.
GAPS = 0.1


def range_part(
    target: Target, n_samples: int | None, n_columns: int | None, share: float = 1.0
) -> Part:
    """Releases that buy the ranges of some columns with a `share` of the budget.

    A search for quantiles, where public sizes say that noise leaves enough; or counts, once.
    """
    if not target.private or n_samples is None or n_columns is None:
        return Part(share)
    whole = target.calibrated(gaussian, n_samples) * math.sqrt(SEARCH / share)
    hidden = 2 * rank_noise(whole, n_columns, 2, target.neighboring_relation)
    return Part(share, SEARCH if hidden <= _HIDDEN * n_samples else 1)


def hidden_records(budget: Budget, name: str, n_columns: int) -> tuple[float, bool]:
    """How many records noise hides at either end of each column; and if a search finds ranges."""
    multiplier, relation = budget.scales[name], budget.target.neighboring_relation
    searched = budget.parts[name].count > 1
    if searched:
        return 2 * rank_noise(multiplier, n_columns, 2, relation), True
    unit = math.sqrt(n_columns * (0.5 if relation == "replace_one" else 1.0))
    return count_above_noise(multiplier * unit, per_octave=1), False


def noisy_extents(
    values: np.ndarray,
    releases: Releases,
    name: str,
    *,
    level: float = LEVEL,
    gaps: str | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Release for each column an interval that leaves out a share of its values at either end.

    Parameters
    ----------
    values : ndarray of shape (n, c)
        Private columns; NaN is a missing value.
    releases : Releases
        With those of :func:`range_part` called `name`.
    name : str
        Their name.
    level : float
        Share of the values to leave out at each end.
    gaps : str, optional
        Name of one more release, which counts missing values. Without it there are none.

    Returns
    -------
    low, high : ndarray of shape (c,)
        Ends of the intervals.
    found : boolean ndarray of shape (c,)
        False where noise has hidden the column. A search always comes to an end.

    Notes
    -----
    Privacy: that of :func:`~dpsubspace._statistics.quantiles.noisy_quantiles` or of
    :func:`~dpsubspace._statistics.counts.noisy_ranges`, and before it that of
    :func:`~dpsubspace._statistics.counts.noisy_shares` for gaps. What follows is postprocessing.
    """
    there = None
    if gaps is not None:
        there = 1 - np.clip(noisy_shares(np.isnan(values).astype(np.float64), releases, gaps), 0, 1)
    if releases.budget.parts[name].count == 1:
        return noisy_ranges(values, releases, name, per_octave=1)
    levels = np.array([level, 1 - level])
    found = noisy_quantiles(values, levels, releases, name, there=there)
    low, high = found.min(axis=0), found.max(axis=0)
    # A search that ends beside a heap of zeros ends anywhere in the gap to the rest.
    beside = ((low == 0) & (high < SMALLEST)) | ((high == 0) & (low > -SMALLEST))
    low, high = np.where(beside, 0.0, low), np.where(beside, 0.0, high)
    return low, high, np.ones(len(low), dtype=bool)


def exact_extents(
    rows: np.ndarray, level: float = LEVEL, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Exact quantiles, rounded outwards; the extremes of a column where they coincide."""
    levels = np.array([level, 1 - level])
    if weights is not None:
        rows, weights = rows[weights > 0], weights[weights > 0]
    if weights is None or np.all(weights == 1):
        low = np.quantile(rows, level, axis=0, method="lower")
        high = np.quantile(rows, 1 - level, axis=0, method="higher")
    else:
        low, high = weighted_quantiles(rows, weights, levels)
    same = low == high
    return np.where(same, rows.min(axis=0), low), np.where(same, rows.max(axis=0), high)
