"""One-shot releases: means of bounded rows, ranges of values, radii."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from dpsubspace._array import Array, Total, namespace, to_numpy
from dpsubspace._features import Features
from dpsubspace._noise import BoundedSum, NoiseSource, release

__all__ = [
    "RADIUS_COUNTS",
    "bounded_row_sum",
    "count_above_noise",
    "count_noise",
    "noisy_mean",
    "noisy_radius",
    "noisy_range",
]

# Edges of the cells in which values are counted: 0 and the half powers of 2 of either sign.
_POSITIVE = 2.0 ** (np.arange(-80, 81) / 2)
_EDGES = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])

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
        total.add(block.product(xp.ones_like(block.scale)[:, None], weights[rows]))
    return BoundedSum(
        total.value[:, 0],
        norm_bound=norm_bound * (1 + features.slack),
        replace_bound=norm_bound * (2 + features.slack),
    )


def noisy_mean(
    features: Features,
    norm_bound: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
) -> np.ndarray:
    """Release the mean of bounded rows, in float64, shrunk towards zero.

    Notes
    -----
    Privacy: the sum is released with `noise_multiplier` and divided by the public number
    of rows. Event: ``gaussian(noise_multiplier)``. What follows is postprocessing: the
    positive-part estimator of James and Stein (1961), which has a smaller mean squared error
    than the noisy mean whatever the mean is, and is zero where noise outweighs it.
    """
    total = bounded_row_sum(features, norm_bound, present=present)
    noisy = to_numpy(
        release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    )
    variance = (noise_multiplier * total.unit(neighboring_relation)) ** 2
    excess = max(0, len(noisy) - 2) * variance
    square = float(noisy @ noisy)
    shrinkage = max(0.0, 1 - excess / square) if square > 0 else 0.0
    return shrinkage * noisy / features.n_samples


def noisy_radius(
    distances: np.ndarray,
    largest: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: np.ndarray | None = None,
) -> float:
    """Release a radius, `largest` over a power of 2^(1/4), that half of the distances are within.

    Parameters
    ----------
    distances : ndarray of shape (n,)
        Private values.
    largest : float
        Public radius, and what comes out where noise hides the records.
    noise_multiplier : float
        Of each of :data:`RADIUS_COUNTS` counts.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.

    Notes
    -----
    Privacy: bisection asks how many records are outside of radii that its earlier answers
    determine. A record moves such a count by at most 1, whether it becomes null or is
    replaced. What follows is postprocessing. Event: ``gaussian(noise_multiplier,
    RADIUS_COUNTS)``. Three standard deviations are taken off the half, so that noise errs to
    the side of radii that are too large.
    """
    within, beyond = 0, len(_RADII)
    half = len(distances) / 2 - 3 * count_noise(noise_multiplier, neighboring_relation)
    while beyond - within > 1:
        middle = (within + beyond) // 2
        outside = distances > largest * _RADII[middle]
        if present is not None:
            outside &= present
        total = _count(outside)
        noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
        within, beyond = (middle, beyond) if noisy[0] <= half else (within, middle)
    return largest * float(_RADII[within])


def _count(records: np.ndarray) -> BoundedSum:
    """Count the records that are True; one moves it by 1, replaced or null."""
    return BoundedSum(np.array([float(records.sum())]), norm_bound=1.0, replace_bound=1.0)


def count_noise(noise_multiplier: float, neighboring_relation: str) -> float:
    """Standard deviation of each count that :func:`noisy_radius` releases."""
    return noise_multiplier * _count(np.zeros(0)).unit(neighboring_relation)


def count_above_noise(scale: float) -> float:
    """Noisy count that one cell in all passes by accident with a probability of 1 in 1000."""
    return scale * float(ndtri(1 - 1e-3 / (len(_EDGES) - 1)))


def noisy_range(
    values: np.ndarray,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: np.ndarray | None = None,
) -> tuple[float, float]:
    """Release an interval, with ends at 0 or half powers of 2, that most of `values` are in.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Private values. Those beyond 2^40 count as 2^40.
    noise_multiplier : float
        Of the one release.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.

    Returns
    -------
    low, high : float
        Ends of the outermost cells that are too full for noise; -1 and 1 where none is.

    Notes
    -----
    Privacy: the counts of all cells are one release. A record is in one cell, so it moves
    the vector of counts by 1 when it becomes null, and by sqrt(2) when it is replaced. What
    follows is postprocessing. Event: ``gaussian(noise_multiplier)``.
    """
    cells = np.clip(np.searchsorted(_EDGES, values, side="right"), 1, len(_EDGES) - 1) - 1
    weights = None if present is None else present.astype(float)
    counts = np.bincount(cells, weights=weights, minlength=len(_EDGES) - 1).astype(float)
    total = BoundedSum(counts, norm_bound=1.0, replace_bound=math.sqrt(2))
    noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    scale = noise_multiplier * total.unit(neighboring_relation)
    full = np.flatnonzero(noisy > max(0.5, count_above_noise(scale)))
    if not len(full):
        return -1.0, 1.0
    return float(_EDGES[full[0]]), float(_EDGES[full[-1] + 1])
