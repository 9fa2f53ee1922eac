"""Ranges of columns that are bought: where nearly all of the values of each lie.

Design note. There are two ways to buy a range. A search for quantiles takes twenty releases and
assumes nothing: it is used where public sizes and the budget say that its noise hides no more
rows than are to be left out, so that no turn of it is wrong but by an accident of 1 in 30,000.
With fewer rows it would leave out all that noise hides, most of the rows of a small table.
Counts in cells, ever closer, then take two to four releases, and the ends are those of
distributions that agree with all counts: the rows that noise hides are taken to lie
where those that can be seen suggest.
"""

from __future__ import annotations

import math

import numpy as np

from dpsubspace._accounting.budget import Budget, Part, Target
from dpsubspace._accounting.events import gaussian
from dpsubspace._release.releases import Releases
from dpsubspace._statistics.counts import SMALLEST, noisy_shares
from dpsubspace._statistics.intervals import LEAST, noisy_intervals
from dpsubspace._statistics.quantiles import SEARCH, noisy_quantiles, rank_noise, weighted_quantiles

__all__ = [
    "GAPS",
    "LEVEL",
    "exact_extents",
    "hidden_records",
    "noisy_extents",
    "range_part",
    "visible",
]

# Share of the values to leave out at either end.
LEVEL = 0.01

# Standard deviations of a rank that a search keeps away from either end to take no wrong turn.
_SAFE = 4.0

# Numbers of releases of counts, of which the first is taken that leaves a column visible that has
# this share of the records: more of them look closer, and each has more noise.
_COUNTS, _VISIBLE = (4, 3, 2), 0.25

# Part of what buys ranges that counts missing values first, where there may be any.
GAPS = 0.1


def range_part(
    target: Target,
    n_samples: int | None,
    n_columns: int | None,
    share: float = 1.0,
    *,
    level: float = LEVEL,
) -> Part:
    """Releases that buy the ranges of some columns with a `share` of the budget.

    A search for quantiles, where public sizes say that noise hides none of them; or counts.
    """
    if not target.private or n_samples is None or n_columns is None:
        return Part(share)
    relation = target.neighboring_relation
    whole = target.calibrated(gaussian, n_samples) / math.sqrt(share)
    searched = rank_noise(whole * math.sqrt(SEARCH), n_columns, 2, relation)
    if _SAFE * searched <= level * n_samples:
        return Part(share, SEARCH)
    hidden = [_hidden(whole * math.sqrt(count), n_columns, relation) for count in _COUNTS]
    visible = [c for c, rows in zip(_COUNTS, hidden, strict=True) if rows <= _VISIBLE * n_samples]
    return Part(share, max(visible, default=min(_COUNTS)))


def _hidden(multiplier: float, n_columns: int, relation: str) -> float:
    """Records of a column that the noise of counts hides."""
    return LEAST * multiplier * math.sqrt(n_columns * (0.5 if relation == "replace_one" else 1.0))


def hidden_records(budget: Budget, name: str, n_columns: int) -> tuple[float, bool]:
    """How many records noise hides at either end of each column; and if a search finds ranges."""
    multiplier, relation = budget.scales[name], budget.target.neighboring_relation
    if budget.parts[name].count == SEARCH:
        return _SAFE * rank_noise(multiplier, n_columns, 2, relation), True
    return _hidden(multiplier, n_columns, relation), False


def visible(budget: Budget, name: str, n_samples: int, n_columns: int) -> bool:
    """Whether noise leaves a column visible that has a quarter of the records."""
    return hidden_records(budget, name, n_columns)[0] <= _VISIBLE * n_samples


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
        False where noise has hidden the column. A search always finds it.

    Notes
    -----
    Privacy: that of :func:`~dpsubspace._statistics.quantiles.noisy_quantiles` or of
    :func:`~dpsubspace._statistics.intervals.noisy_intervals`, and before it that of
    :func:`~dpsubspace._statistics.counts.noisy_shares` for gaps. What follows is postprocessing.
    """
    there = None
    if gaps is not None:
        there = 1 - np.clip(noisy_shares(np.isnan(values).astype(np.float64), releases, gaps), 0, 1)
    if releases.budget.parts[name].count != SEARCH:
        return noisy_intervals(values, releases, name, level=level, there=there)
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
