"""Principal directions of public rows.

Nothing here sees a private row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsubspace._array import Array, namespace, to_numpy
from dpsubspace._public.anchors import signed
from dpsubspace._rows.features import Features

__all__ = ["Directions", "principal_directions"]


@dataclass(frozen=True)
class Directions:
    """Orthonormal directions (q, width) of features and the public energy along each.

    `outside` is what public rows let expect of any direction off their span.
    """

    vectors: Array
    energies: np.ndarray
    outside: float

    def first(self, count: int) -> Directions:
        """Those with most energy."""
        return Directions(self.vectors[:count, :], self.energies[:count], self.outside)

    @property
    def are_all(self) -> bool:
        """Whether nothing is left outside."""
        return self.vectors.shape[0] == self.vectors.shape[1]


def principal_directions(rows: Features, features: Features) -> Directions:
    """Principal directions of public rows.

    Parameters
    ----------
    rows : Features
        Public rows, bounded but not shifted.
    features : Features
        The private ones. Where they are shifted, public rows are by their own mean: from
        another they would first of all be apart by the difference of the two.

    Notes
    -----
    Fewer rows than columns know nothing of most directions. What one row has outside of the
    others' span tells how much there is (leave one out, in closed form by the inverse of
    the Gram matrix): directions are taken to have no less than that, spread evenly.
    """
    formed = rows.at(slice(0, rows.n_samples)).formed()
    xp = namespace(formed)
    rounding = 1e-28 * float(xp.sum(formed * formed)) / rows.n_samples  # what equal rows may leave
    if features.shift is not None:
        formed = formed - xp.mean(formed, axis=0)[None, :]
        if features.shift.constant is not None:
            constant = xp.full_like(formed[:, :1], features.shift.constant)
            formed = xp.concat([formed, constant], axis=1)
    m, width = formed.shape
    values, vectors = xp.linalg.svd(formed, full_matrices=False)[1:]
    energies, vectors = to_numpy(values) ** 2 / m, signed(vectors)
    clear = energies > max(1e-10 * float(energies[0]), rounding, 1e-300)
    energies, vectors = energies[clear], vectors[: int(clear.sum()), :]
    outside = 0.0
    if m < width and len(energies) == m:
        gram = to_numpy(formed @ formed.T)
        outside = float(np.mean(1 / np.diag(np.linalg.inv(gram)))) / (width - m + 1)
    return Directions(vectors, np.maximum(energies, outside), outside)
