"""One-shot releases: means of bounded rows, ranges of values."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from dpsubspace._array import (
    EPS,
    Array,
    Total,
    as_like,
    chunk_rows,
    column_sums,
    namespace,
    slices,
    sum_slack,
    to_numpy,
)
from dpsubspace._features import Features
from dpsubspace._noise import BoundedSum, NoiseSource, release

__all__ = [
    "bounded_row_sum",
    "count_above_noise",
    "noisy_mean",
    "noisy_radius",
    "noisy_range",
    "noisy_spread",
]

# Radii that can be released: quarter powers of 2, 16 octaves of them, in 6 counts.
RADIUS_COUNTS = 6

# Edges of the cells in which values are counted: 0 and the half powers of 2 of either sign.
_POSITIVE = 2.0 ** (np.arange(-80, 81) / 2)
_EDGES = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])


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
            total.add(column_sums(whole * as_like(weights[rows], whole)[:, None]))
        else:
            total.add(block.product(xp.ones_like(block.scale)[:, None], weights[rows])[:, 0])
    slack = features.slack
    if features.only_formed:
        slack = sum_slack(features.n_samples, EPS, features.chunk)
    return BoundedSum(
        total.value,
        norm_bound=norm_bound * (1 + slack),
        replace_bound=norm_bound * (2 + slack),
    )


def noisy_mean(
    features: Features,
    norm_bound: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
    public: np.ndarray | None = None,
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


def count_above_noise(scale: float) -> float:
    """Noisy count that one cell in all passes by accident with a probability of 1 in 1000."""
    return scale * float(ndtri(1 - 1e-3 / (len(_EDGES) - 1)))


def noisy_range(
    values: np.ndarray,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
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
    weights = None if present is None else to_numpy(present).astype(float)
    counts = np.bincount(cells, weights=weights, minlength=len(_EDGES) - 1).astype(float)
    total = BoundedSum(counts, norm_bound=1.0, replace_bound=math.sqrt(2))
    noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    scale = noise_multiplier * total.unit(neighboring_relation)
    full = np.flatnonzero(noisy > max(0.5, count_above_noise(scale)))
    if not len(full):
        return -1.0, 1.0
    return float(_EDGES[full[0]]), float(_EDGES[full[-1] + 1])


def noisy_radius(
    norms: Array,
    largest: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
    level: float = 0.25,
) -> float:
    """Release a radius within which about a share `level` of the records lie.

    Parameters
    ----------
    norms : array of shape (n,)
        Private lengths.
    largest : float
        Largest radius to return: public or released.
    noise_multiplier : float
        Of each of `RADIUS_COUNTS` releases.
    noise : NoiseSource
        Source of the noise.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation of the guarantee.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which is counted nowhere.
    level : float, default=0.25
        Share of the records.

    Returns
    -------
    float
        ``largest * 2^(-j / 4)`` for the largest j from 0 to 63 at which that is so, up to noise.

    Notes
    -----
    Privacy: a binary search. Each count of lengths within a radius that earlier counts
    determine moves by at most 1 when a record becomes null or is replaced. Event:
    ``gaussian(noise_multiplier, RADIUS_COUNTS)``.
    """
    xp = namespace(norms)
    n_samples, stream = norms.shape[0], noise.child("radius")
    low, high = 0, 2**RADIUS_COUNTS - 1  # of j; the radius of `high` may be too small
    while low < high:
        middle = (low + high + 1) // 2
        inside = norms <= largest * 2.0 ** (-middle / 4)
        inside = inside if present is None else inside & present
        count = np.array([float(xp.sum(xp.astype(inside, xp.float64)))])
        noisy = release(
            BoundedSum(count, norm_bound=1.0, replace_bound=1.0),
            noise_multiplier,
            stream,
            neighboring_relation=neighboring_relation,
        )
        if noisy[0] >= level * n_samples:
            low = middle
        else:
            high = middle - 1
    return largest * 2.0 ** (-low / 4)


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
