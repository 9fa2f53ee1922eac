"""Releases of sums of bounded rows: means and mean squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsubspace._array import (
    EPS,
    Array,
    Total,
    as_like,
    at_most,
    column_sums,
    namespace,
    slices,
    to_numpy,
    weighted,
)
from dpsubspace._release.mechanisms import BoundedSum, vector_sum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.chunks import over_chunks
from dpsubspace._rows.features import Features
from dpsubspace._rows.records import Records
from dpsubspace._rows.remote import added

__all__ = ["bounded_row_sum", "noisy_mean", "noisy_spread"]

# Lengths that are squared and added up at once.
_SPREAD = 1 << 14


def bounded_row_sum(features: Features, norm_bound: float) -> BoundedSum:
    """Sum of features, each of norm at most `norm_bound` already.

    Parameters
    ----------
    features : Features
        Rows that a :class:`~dpsubspace._rows.maps.RowMap` has bounded, or that were shifted
        and then clipped.
    norm_bound : float
        The map's bound, or the radius.

    Notes
    -----
    Proof of the bound: a row is a function of its record alone and has norm at most
    `norm_bound`; removing it moves the sum by at most that, replacing it by at most
    twice that. Records of several rows have the same bounds, by the lemma of
    ``_rows/records.py``. The sums as computed differ from the real ones by at most
    ``slack * norm_bound`` more (:func:`~dpsubspace._array.sum_slack`).
    """

    def part(rows: Any) -> Array:
        block, weights = features.at(rows), features.records.weights
        xp = namespace(block.scale)
        own = xp.ones_like(features.lengths[rows]) if weights is None else weights[rows]
        if not features.only_formed:
            return block.product(xp.ones_like(block.scale)[:, None], own)[:, 0]
        whole = block.formed()
        return column_sums(weighted(whole, as_like(own, whole)))

    with over_chunks(features) as each:
        total = each.total(part)
    slack = features.slack
    if features.only_formed:
        slack = features.records.slack(EPS, features.chunk, own=features.width, by_block=True)
    return vector_sum(total.value, norm_bound, slack)


def noisy_mean(
    features: Features,
    norm_bound: float,
    releases: Releases,
    name: str = "mean",
    *,
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
    releases : Releases
        With one called `name`.
    name : str, default="mean"
        Its name.
    public : ndarray of shape (m, width), optional
        Public rows, bounded alike.
    beyond : float, default=0.0
        Standard deviations by which the square of the noisy mean must exceed that of noise;
        the mean is taken to be zero where it does not. 0 only shrinks.

    Notes
    -----
    Privacy: the sum is released and divided by the public number of rows. Event: one
    Gaussian mechanism. What follows is postprocessing: the positive-part estimator of James
    and Stein (1961), which has a smaller mean squared error than the noisy mean whatever the
    mean is, and is zero where noise outweighs it; or the mean with the public one, weighted by
    their variances.
    """
    total = bounded_row_sum(features, norm_bound)
    noisy = to_numpy(releases.gaussian(name, total))
    variance = releases.noise_of(name, total) ** 2
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


def _squares(norms: Array, largest: float, records: Records) -> Total:
    """Sum of the squares of lengths, those above `largest` taken as that, over records."""
    xp, total, weights = namespace(norms), Total(), records.weights_numpy
    for rows in slices(norms.shape[0], _SPREAD) or [slice(0, 0)]:
        squares = (at_most(norms[rows], largest) ** 2)[:, None]
        if weights is not None:
            squares = weighted(squares, as_like(weights[rows], squares))
        total.add(xp.sum(squares)[None])
    return total


def noisy_spread(norms: Array, largest: float, releases: Releases, name: str = "spread") -> float:
    """Release the mean square of lengths, those above `largest` taken as that; not below 0.

    Notes
    -----
    Privacy: a record brings a number in [0, B^2], B = `largest`, to the sum of squares, which
    moves by at most B^2 when it becomes null or is replaced. Event: one Gaussian mechanism.
    """
    records = releases.records_of(norms)
    total = added(_squares, norms, largest, records)
    bound = largest**2 * (1 + records.slack(EPS, _SPREAD))
    squared = BoundedSum(to_numpy(total.value), norm_bound=bound, replace_bound=bound)
    return max(0.0, float(releases.gaussian(name, squared)[0])) / records.n
