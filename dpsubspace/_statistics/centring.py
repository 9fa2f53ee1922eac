"""A mean in two stages: a rough one, and the mean of what is near it.

Design note. There are two recipes since they want different radii. Models are trained on rows
clipped to twice their median distance, which six counts find, and shrink a mean that may be
noise. A mean that is itself the result must not be biased, so that nearly all rows have to stay
as they are: only a search over twenty stages finds that radius. With six counts the error of
``private_mean`` is 0.85 to 9 times as large, and larger in 38 of 39 cells
(``benchmarks/bench_centring.py``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsubspace._array import to_numpy
from dpsubspace._release.mechanisms import BoundedSum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import Shift
from dpsubspace._statistics.counts import noisy_radius
from dpsubspace._statistics.means import bounded_row_sum, noisy_mean
from dpsubspace._statistics.quantiles import noisy_quantiles

__all__ = ["recentred_mean", "searched_mean"]


def recentred_mean(
    features: Features,
    norm_bound: float,
    releases: Releases,
    *,
    public: np.ndarray | None = None,
    **radius: Any,
) -> np.ndarray:
    """Release a mean, a radius about it, and the mean of the rows within it.

    The noise of the last is that of the distance of the rows from each other, and not of
    their distance from zero.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already.
    norm_bound : float
        Bound on their norms.
    releases : Releases
        With a "coarse mean", the counts of a "coarse radius", and a "mean".
    public : ndarray of shape (m, width), optional
        Public rows, bounded alike.
    **radius : dict
        Options of :func:`noisy_radius`.

    Notes
    -----
    Privacy: the coarse mean and radius are constants once they are released, so a row that is
    shifted by the one and clipped to twice the other is a function of its record alone, of
    norm at most that. Event: that of :func:`noisy_mean`, :func:`noisy_radius` and
    :func:`noisy_mean` again, which compose adaptively.
    """
    coarse = noisy_mean(features, norm_bound, releases, "coarse mean", public=public)
    # In float64 throughout: products are as good then as sums of rows that are formed.
    about = features.wide().shifted(Shift(coarse, None))
    near = 2 * noisy_radius(about.distances(), norm_bound, releases, "coarse radius", **radius)
    about = about.clipped(near)
    # A mean that public rows know well is not moved by what may be noise.
    beyond = 0.0 if public is None else 2.0
    return coarse + noisy_mean(about, near, releases, beyond=beyond)


def searched_mean(
    features: Features, norm_bound: float, releases: Releases
) -> tuple[np.ndarray, float]:
    """Release a mean, search for the radius that holds nearly all rows, and the mean within.

    Parameters
    ----------
    features : Features
        Rows, each of norm at most `norm_bound` already.
    norm_bound : float
        Bound on their norms.
    releases : Releases
        Has a "mean", and for recentring a "centre" and a "radius" beside it.

    Returns
    -------
    mean : ndarray of shape (width,)
        Released mean.
    radius : float
        Radius about it of nearly all rows, released; or twice the bound, without recentring.

    Notes
    -----
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
    # Of the rows, the share at which a smaller radius would bias as much as it saves in noise.
    doubled = 2 if budget.target.neighboring_relation == "replace_one" else 1
    outside = min(0.5, doubled * budget.scales["mean"] * math.sqrt(features.width) / n_samples)
    distances = to_numpy(about.distances())[:, None]
    found = noisy_quantiles(distances, np.array([1 - outside]), releases, "radius")
    radius = min(max(float(found[0, 0]), 2.0**-60), radius)
    near = about.clipped(radius)
    move = released("mean", bounded_row_sum(near, radius))
    return first + move, radius
