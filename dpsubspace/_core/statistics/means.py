"""Releases of sums of bounded rows: means, in one stage or two, and mean squares."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    Total,
    as_like,
    at_most,
    column_sums,
    namespace,
    row_norms,
    slices,
    to_numpy,
    weighted,
)
from dpsubspace._core.release.mechanisms import BoundedSum, vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, Shift
from dpsubspace._core.rows.remote import RemoteRows, sum_over_parts
from dpsubspace._core.statistics.counts import noisy_radius, record_sums
from dpsubspace._core.statistics.quantiles import noisy_quantiles

# Where targets lie ------------------------------------------------------------------------------
# The part of their public range that holds most targets: by a noisy mean and mean deviation.

# Name of the releases in a budget, and their number.
FOCUS, FOCUS_RELEASES = "focus", 2

# Half width of the interval in mean deviations, and the number of rows over the noise of the fit
# from which on it grows: with more rows, cutting tails costs more than the noise of a wider range
# does.
_DEVIATIONS, _FROM = 2.5, 300.0

# How far from an end, in half ranges, the mean of targets may be to count as at that end.
_NEAR_END = 0.05


class Focus(NamedTuple):
    """Released interval within [-1, 1] that holds most values of columns."""

    low: np.ndarray
    high: np.ndarray
    deviation: np.ndarray  # Mean deviations are at most this, up to twice the noise
    seen: np.ndarray  # Whether they are more than twice the noise
    # 1 if, up to noise, nearly all values are at the upper end or beyond, -1 if all are at the
    # lower end.
    end: np.ndarray
    away: np.ndarray  # Means are at most so far from an end, up to twice the noise
    taken: np.ndarray | None = None  # Whether the interval replaces the range


def noisy_focus(values: np.ndarray, releases: Releases, name: str, ratio: float) -> Focus:
    """Release for each column an interval within [-1, 1] that holds nearly all of its values.

    The columns (n, c) are private and on their public ranges, in [-1, 1]. There are
    :data:`FOCUS_RELEASES` called `name`, and `ratio` is the public number of records over the noise
    multiplier of the whole fit.

    Privacy: the first release is the sum of the values, of which a record contributes one in [-1,
    1] a column. It moves the vector by sqrt(c) when it becomes null and by 2 sqrt(c) when it is
    replaced. The mean m that follows is cut to [-1, 1]. The second is the sum of ``|z - m|``,
    which is in [0, 1 + |m|]; a record moves it by the norm of the vector ``1 + |m|``, whether it
    becomes null or is replaced. What follows is postprocessing. Event: two Gaussian mechanisms.
    """
    records, c = releases.records_of(values), values.shape[1]
    n, (total, slack) = records.n, record_sums(values, records)
    first = vector_sum(total, math.sqrt(c), slack)
    mean = np.clip(to_numpy(releases.gaussian(name, first)) / n, -1.0, 1.0)
    most = 1 + np.abs(mean)
    bound = float(np.linalg.norm(most)) * (1 + slack)
    second = BoundedSum(record_sums(np.abs(values - mean), records)[0], bound, bound)
    of_mean, own = (releases.noise_of(name, total) / n for total in (first, second))
    deviation = np.clip(to_numpy(releases.gaussian(name, second)) / n, 0.0, most)
    wide = _DEVIATIONS * max(1.0, (ratio / _FROM) ** (1 / 3))
    half = wide * (deviation + of_mean + own)  # by which the mean and the deviation may be off
    off, seen = 1 - np.abs(mean), deviation > 2 * own
    # If all but a few are at one place, the mean deviation is twice their mean distance from it.
    few_elsewhere = (mean > 0) & (deviation - own >= 1.5 * off)
    at_end = ((off <= 2 * of_mean) & (deviation <= 3 * own)) | few_elsewhere
    away = off + 2 * of_mean
    end = np.where(at_end & (away <= _NEAR_END), np.sign(mean), 0.0)
    ends = np.clip(mean - half, -1.0, 1.0), np.clip(mean + half, -1.0, 1.0)
    return Focus(*ends, deviation + 2 * own, seen, end, away)


# Columns by length ------------------------------------------------------------------------------
# Part of the squared length of rows in each column: in different units one has nearly all.

# About how many rows are used, and how many of them at once.
_LOOKED_AT, _AT_ONCE = 10_000, 1 << 12


class ColumnShares(NamedTuple):
    """Released mean parts of the squared length of rows that columns hold."""

    values: np.ndarray  # (d,)
    noise: float  # Standard deviation of the noise of each


def noisy_column_shares(X: Any, releases: Releases, name: str) -> ColumnShares:
    """Release the mean part of the squared length of a row that each column holds.

    `X` (n, d) are the private rows. If each is a record and more than :data:`_LOOKED_AT` are local,
    every second, third or so is used: only the public number of rows determines which ones.

    Privacy: a row x contributes the vector ``(x_j^2 / |x|^2)`` to the sum, of entries from 0 that
    add up to 1, or 0 for a row of zeros. Its norm is at most 1, the root of its largest entry times
    their sum. A record of several rows contributes a mean of such vectors, or less, which has the
    same bound. For two such vectors u and v, ``|u - v|^2 <= |u|^2 + |v|^2 <= 2``, since
    ``u @ v >= 0``. A record that is not used contributes nothing. Norms are rounded up, so that
    vectors that are divided by them are no longer than 1. Event: one Gaussian mechanism.
    """
    records = releases.records_of(X)
    can_be_picked = not (records.grouped or isinstance(X, RemoteRows))
    if can_be_picked and X.shape[0] >= 2 * _LOOKED_AT:
        some = slice(None, None, X.shape[0] // _LOOKED_AT)
        X, weights = X[some], None if records.weights is None else records.weights[some]
        records = Records(X.shape[0], weights)
    total = sum_over_parts(_column_shares, X, records).value
    slack = records.slack(EPS, _AT_ONCE, _AT_ONCE, own=2.0 * (X.shape[1] + 8))
    shares = BoundedSum(to_numpy(total), 1 + slack, math.sqrt(2) * (1 + slack))
    noisy = to_numpy(releases.gaussian(name, shares)) / records.n
    return ColumnShares(noisy, releases.noise_of(name, shares) / records.n)


def _column_shares(X: Any, records: Records) -> Total:
    total, weights = Total(), records.weights_numpy
    for rows in slices(X.shape[0], _AT_ONCE) or [slice(0, 0)]:
        block = X[rows]
        norms = row_norms(block)
        xp = namespace(norms)
        zeros, ones = xp.zeros_like(norms), xp.ones_like(norms)
        units = xp.where(norms > 0, 1 / xp.where(norms > 0, norms, ones), zeros)
        own = ones if weights is None else as_like(weights[rows], norms)
        if sparse.issparse(block):
            squares = block.astype(np.float64).multiply(units[:, None]).power(2)
            total.add(np.asarray(own @ squares).ravel())
            continue
        squares = (xp.astype(block, xp.float64, copy=False) * units[:, None]) ** 2
        total.add(column_sums(weighted(squares, own)))
    return total


# Means ------------------------------------------------------------------------------------------

# Number of lengths that are squared and added up at once.
_SPREAD = 1 << 14


def bounded_row_sum(features: Features, norm_bound: float) -> BoundedSum:
    """Return the sum of features, each of norm at most `norm_bound` already.

    A :class:`~dpsubspace._core.rows.records.RowMap` has bounded them, or they were shifted and then
    clipped to a radius.

    Proof of the bound: a row is a function of its record alone and has norm at most
    `norm_bound`; removing it moves the sum by at most that, replacing it by at most
    twice that. Records of several rows have the same bounds, by the lemma of
    ``_core/rows/records.py``. The sums as computed differ from the real ones by at most
    ``slack * norm_bound`` more (:func:`~dpsubspace._core.ground.arrays.sum_slack`).
    """

    def part(rows: Any) -> Array:
        block, weights = features.at(rows), features.records.weights
        xp = namespace(block.scale)
        own = xp.ones_like(features.lengths[rows]) if weights is None else weights[rows]
        if not features.only_dense:
            return block.product(xp.ones_like(block.scale)[:, None], own)[:, 0]
        whole = block.dense()
        return column_sums(weighted(whole, as_like(own, whole)))

    with over_chunks(features) as each:
        total = each.total(part)
    slack = features.slack
    if features.only_dense:
        slack = features.records.slack(EPS, features.chunk, own=features.width, by_block=True)
    return vector_sum(total.value, norm_bound, slack)


class NoisyMean(NamedTuple):
    """A released mean of rows, and its error by noise, estimated from released numbers."""

    mean: np.ndarray
    error: float


def noisy_mean(
    features: Features,
    norm_bound: float,
    releases: Releases,
    name: str = "mean",
    *,
    public: np.ndarray | None = None,
    beyond: float = 0.0,
) -> NoisyMean:
    """Release the mean of bounded rows, in float64, shrunk towards zero or a public mean.

    Rows have norms of at most `norm_bound` already, and so have the `public` ones (m, width).
    `beyond` is the number of standard deviations by which the square of the noisy mean must exceed
    that of noise; otherwise the mean is set to zero. 0 only shrinks.

    Privacy: the sum is released and divided by the public number of rows. Event: one Gaussian
    mechanism. The rest is postprocessing: the positive-part estimator of James and Stein (1961),
    which has a smaller mean squared error than the noisy mean whatever the mean is, and is zero if
    noise outweighs it; or the mean with the public one, weighted by their variances. The error is
    the root of the unbiased estimate of the mean squared error (Stein, 1981), but at most that of
    the noise.
    """
    total = bounded_row_sum(features, norm_bound)
    noisy = to_numpy(releases.gaussian(name, total))
    variance = releases.noise_of(name, total) ** 2
    if public is not None:
        return _between(noisy / features.n_samples, variance / features.n_samples**2, public)
    of_noise = math.sqrt(len(noisy) * variance) / features.n_samples
    excess = max(0, len(noisy) - 2) * variance
    square = float(noisy @ noisy)
    if beyond > 0 and square <= (len(noisy) + beyond * math.sqrt(2 * len(noisy))) * variance:
        return NoisyMean(np.zeros_like(noisy), of_noise)
    shrinkage = max(0.0, 1 - excess / square) if square > 0 else 0.0
    error = of_noise * math.sqrt(shrinkage) if shrinkage > 0 else of_noise
    return NoisyMean(shrinkage * noisy / features.n_samples, error)


def _between(mean: np.ndarray, variance: float, public: np.ndarray) -> NoisyMean:
    """Return the weighted mean of a released mean, with noise of `variance`, and of `public` rows.

    The public mean has the variance of its sampling, and more if it is further from the released
    one than chance explains: the bias of rows from elsewhere.
    """
    p, m = len(mean), len(public)
    guess = public.mean(axis=0)
    # One row more than there are, of the same spread: a single row has no spread of its own.
    sampling = float(public.var(axis=0).sum() + (guess @ guess) / m) / m
    private = p * variance
    excess = float(((mean - guess) ** 2).sum()) - sampling - private
    bias = excess if excess > 3 * math.sqrt(2 / p) * (sampling + private) else 0.0
    total = sampling + bias + private
    if total == 0:
        return NoisyMean(mean, 0.0)
    share = (sampling + bias) / total
    return NoisyMean(guess + share * (mean - guess), math.sqrt(share * private))


def _squares(norms: Array, largest: float, records: Records) -> Total:
    """Sum the squares of lengths over records; lengths above `largest` count as that."""
    xp, total, weights = namespace(norms), Total(), records.weights_numpy
    for rows in slices(norms.shape[0], _SPREAD) or [slice(0, 0)]:
        squares = (at_most(norms[rows], largest) ** 2)[:, None]
        if weights is not None:
            squares = weighted(squares, as_like(weights[rows], squares))
        total.add(xp.sum(squares)[None])
    return total


def noisy_spread(norms: Array, largest: float, releases: Releases, name: str = "spread") -> float:
    """Release the mean square of lengths; those above `largest` count as that; not below 0.

    Privacy: a record contributes a number in [0, B^2], B = `largest`, to the sum of squares, which
    moves by at most B^2 when it becomes null or is replaced. Event: one Gaussian mechanism.
    """
    records = releases.records_of(norms)
    total = sum_over_parts(_squares, norms, largest, records)
    bound = largest**2 * (1 + records.slack(EPS, _SPREAD))
    squared = BoundedSum(to_numpy(total.value), norm_bound=bound, replace_bound=bound)
    return max(0.0, float(releases.gaussian(name, squared)[0])) / records.n


# Means in two stages ----------------------------------------------------------------------------
# A mean in two stages: a rough one, and the mean of the rows near it.
#
# Design note. There are two recipes since they want different radii. Models are trained on rows
# clipped to twice their median distance, which six counts find, and shrink a mean that may be
# noise. A mean that is itself the result must not be biased, so that nearly all rows have to stay
# as they are: only a search over twenty stages finds that radius. With six counts the error of
# ``private_mean`` is 0.85 to 9 times as large, and larger in 38 of 39 cells
# (``benchmarks/bench_centring.py``).


def recentred_mean(
    features: Features,
    norm_bound: float,
    releases: Releases,
    *,
    public: np.ndarray | None = None,
    furthest: float = math.inf,
    **radius: Any,
) -> NoisyMean:
    """Release a mean, a radius about it, and the mean of the rows within it.

    The noise of the last mean is proportional to the distance of the rows from each other, and not
    to their distance from zero.

    Rows have norms of at most `norm_bound` already, and so have the `public` ones (m, width). The
    budget has a "coarse mean", the counts of a "coarse radius", and a "mean"; `radius` are options
    of :func:`noisy_radius`. Rows that are further from the coarse mean than `furthest`, a public
    number, count as at that distance.

    Privacy: the coarse mean and radius are constants once they are released, so a row that is
    shifted by the one and clipped to twice the other, or to `furthest`, is a function of its record
    alone, of norm at most that. Event: that of :func:`noisy_mean`, :func:`noisy_radius` and
    :func:`noisy_mean` again, which compose adaptively.
    """
    coarse = noisy_mean(features, norm_bound, releases, "coarse mean", public=public).mean
    # In float64 throughout: products are then as accurate as sums of rows that are formed.
    about = features.wide().shifted(Shift(coarse, None))
    near = 2 * noisy_radius(about.distances(), norm_bound, releases, "coarse radius", **radius)
    near = min(near, furthest)
    about = about.clipped(near)
    # A mean that public rows determine well is not moved by what may be noise.
    beyond = 0.0 if public is None else 2.0
    move = noisy_mean(about, near, releases, beyond=beyond)
    return NoisyMean(coarse + move.mean, move.error)


def searched_mean(
    features: Features, norm_bound: float, releases: Releases
) -> tuple[np.ndarray, float]:
    """Release a mean, search for the radius that holds nearly all rows, and the mean within.

    Rows have norms of at most `norm_bound` already. The budget has a "mean", and for recentring a
    "centre" and a "radius" beside it. Return the mean (width,) and the radius about it that holds
    nearly all rows; without recentring, twice the bound.

    Privacy: as for :func:`recentred_mean`. Event: a Gaussian mechanism for the first mean, one
    for each stage of the search and one for the second mean.
    """
    budget, n_samples, radius = releases.budget, features.n_samples, 2 * norm_bound

    def released(name: str, total: BoundedSum) -> np.ndarray:
        return to_numpy(releases.gaussian(name, total)) / n_samples

    total = bounded_row_sum(features, norm_bound)
    if "centre" not in releases or not budget.private:
        return released("mean", total), radius
    first = released("centre", total)
    about = features.shifted(Shift(first, None))
    # The share of rows at which a smaller radius would add as much bias as it saves in noise.
    doubled = 2 if budget.target.neighboring_relation == "replace_one" else 1
    outside = min(0.5, doubled * budget.scales["mean"] * math.sqrt(features.width) / n_samples)
    distances = to_numpy(about.distances())[:, None]
    found = noisy_quantiles(distances, np.array([1 - outside]), releases, "radius")
    radius = min(max(float(found[0, 0]), 2.0**-60), radius)
    near = about.clipped(radius)
    move = released("mean", bounded_row_sum(near, radius))
    return first + move, radius
