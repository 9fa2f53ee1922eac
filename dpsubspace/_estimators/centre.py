"""What rows are centred by before a linear model is trained: released and public means.

Notes
-----
Privacy: a mean and a radius are constants once they are released, so a row that is shifted by
the one and clipped to the other is a function of its record alone. Releases and steps compose
adaptively. The mean of public rows costs nothing, and neither does weighing it with the
released one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Part, Sizes
from dpsubspace._release.releases import Releases
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import Shift
from dpsubspace._statistics.centring import recentred_mean
from dpsubspace._statistics.counts import RADIUS_COUNTS, count_noise, noisy_radius
from dpsubspace._statistics.means import noisy_mean

__all__ = ["AdaptiveCentre", "Centre", "OneMean"]


class Centre(Protocol):
    """How rows are centred."""

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """What it releases."""
        ...

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        """Features shifted by a mean, with a constant entry appended where there is one.

        `public` has the public rows after the map that bounds rows.
        """
        ...


@dataclass(frozen=True)
class OneMean:
    """The mean of the rows; where there are public rows, weighed with theirs.

    Parameters
    ----------
    share, public_share : float
        Share of the budget without and with public rows.
    """

    share: float = _auto.MEAN_SHARE
    public_share: float = _auto.PUBLIC_MEAN_SHARE

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """One mean."""
        return {"mean": Part(self.public_share if sizes.n_public else self.share)}

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        """Shift rows by the released mean, or by what both say."""
        mean = noisy_mean(features, features.bound, releases, "mean", public=public)
        return features.shifted(Shift(mean, constant))


@dataclass(frozen=True)
class AdaptiveCentre:
    """A mean in two stages, and a radius that rows are clipped to.

    Parameters
    ----------
    share : float
        Share of the budget of all of it.
    """

    share: float = _auto.MEAN_SHARE

    def parts(self, sizes: Sizes) -> Mapping[str, Part]:
        """A coarse mean and radius, and a mean and a radius."""
        counts = {"coarse radius": RADIUS_COUNTS, "radius": RADIUS_COUNTS}
        return {
            name: Part(self.share * part, counts.get(name, 1))
            for name, part in _auto.ADAPTIVE_PARTS.items()
        }

    def legible(self, budget: Budget, n_samples: int) -> bool:
        """Whether noise leaves the counts behind the radius legible, by public sizes."""
        noise = count_noise(budget.scales["radius"], budget.target.neighboring_relation)
        return noise <= _auto.ADAPTIVE_NOISE * n_samples

    def __call__(
        self,
        features: Features,
        releases: Releases,
        public: np.ndarray | None,
        constant: float | None,
    ) -> Features:
        """Shift rows by the second mean and clip them to the radius about it."""
        bound = features.bound
        if not releases.budget.private:  # nothing is clipped then
            mean = noisy_mean(features, bound, releases, "mean")
            return features.shifted(Shift(mean, constant))
        mean = recentred_mean(features, bound, releases)
        about = features.shifted(Shift(mean, None))
        radius = min(bound, 2 * noisy_radius(about.distances(), bound, releases, "radius"))
        # Rows that fill the radius as others fill the bound: all else stays as it is.
        zoom = bound / radius
        shift = Shift(mean, None if constant is None else constant / zoom)
        return about.shifted(shift).clipped(radius, zoom)
