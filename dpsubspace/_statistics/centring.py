"""A mean in two stages: a rough one, and the mean of what is near it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._array import EPS, eps_of
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import Shift
from dpsubspace._statistics.counts import noisy_radius
from dpsubspace._statistics.means import noisy_mean

__all__ = ["recentred_mean"]


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
    about = features.shifted(Shift(coarse, None))
    near = 2 * noisy_radius(about.distances(), norm_bound, releases, "coarse radius", **radius)
    single = not sparse.issparse(features.X) and eps_of(features.X) > EPS
    about = about.clipped(near, formed=single)  # in float64 products are as good, and sparse
    # A mean that public rows know well is not moved by what may be noise.
    beyond = 0.0 if public is None else 2.0
    return coarse + noisy_mean(about, near, releases, beyond=beyond)
