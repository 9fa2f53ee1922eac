"""AdaSSP: least squares from noisy moments, with a penalty that the least eigenvalue decides.

The method of Wang (2018), whose constants compose three releases of (epsilon/3, delta/3). Here they
are three shares of one Gaussian budget, which is exact, and the penalty is the size that the noise
of the moment really has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Part
from dpsubspace._array import EPS, to_numpy
from dpsubspace._release.mechanisms import BoundedSum
from dpsubspace._release.releases import Releases
from dpsubspace._solvers.regression import MOMENT, Regression, Solution
from dpsubspace._statistics.moments import Rows, noisy_moment, second_moment

__all__ = ["AdaSSP"]

EIGENVALUE, PRODUCTS = "least eigenvalue", "products with targets"

# Chance with which noise is larger than the penalty allows for, as Wang (2018) has it.
_RARE = 0.05


@dataclass(frozen=True)
class AdaSSP:
    """Adaptive sufficient statistics perturbation (Wang, 2018).

    Three numbers of the rows are released in equal shares: the least eigenvalue of their second
    moment, that moment, and their products with the targets. The penalty is what the noise of the
    moment may take from its eigenvalues, less what the least of them has to spare.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        """A third each."""
        return {name: Part(1 / 3) for name in (EIGENVALUE, MOMENT, PRODUCTS)}

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release the three; the rest is postprocessing.

        Notes
        -----
        Privacy: a record is its row, constant entry and targets, shrunk together to a public norm.
        Events: three Gaussian mechanisms, on the sums of :func:`_statistics`.
        """
        p, c, n = data.rows.width, data.n_targets, data.rows.n_samples
        tau = max(1.0, math.sqrt(p / c) / 2)
        radius = math.sqrt(p + c * tau**2)
        radius *= _auto.REGRESSION_RADIUS
        rows = Rows(data.rows.with_beside(data.targets * tau).clipped(radius), radius)
        least, own, shared = _statistics(rows, p, releases)
        least_noise = releases.noise_of(EIGENVALUE, least) / n
        lowest = float(releases.gaussian(EIGENVALUE, least)[0]) / n
        moment, noise = noisy_moment(own, n, releases, MOMENT)
        shared_noise = releases.noise_of(PRODUCTS, shared) / (n * tau)
        products = to_numpy(releases.gaussian(PRODUCTS, shared)) / (n * tau)
        after_step()
        penalty = _penalty(lowest, least_noise, noise, p)
        values, vectors = np.linalg.eigh(moment)
        inverse = vectors / np.maximum(values + penalty, max(noise, 1e-12))
        weights = inverse @ (vectors.T @ products)
        sizes = np.sqrt(shared_noise**2 + noise**2 * (weights**2).sum(axis=0) / 2)
        return Solution(weights, inverse, sizes)


def _statistics(rows: Rows, p: int, releases: Releases) -> tuple[BoundedSum, ...]:
    """Least eigenvalue and whole of the moment of the first p entries; their products with others.

    Notes
    -----
    Proof of the bounds, for records (u, v) of norm at most R, without rounding.

    - The moment of u is a sum of outer products of vectors of norm at most R: the bounds of
      :func:`~dpsubspace._release.mechanisms.gram_sum`.
    - Its least eigenvalue moves by at most the largest absolute eigenvalue of the change (Weyl).
      That of ``u u^T`` is ``|u|^2 <= R^2``. A replacement changes the moment by ``u u^T - w w^T``,
      whose eigenvalues lie between ``-|w|^2`` and ``|u|^2``: R^2 again.
    - ``|u v^T| = |u| |v| <= R^2 / 2``, since ``|u|^2 + |v|^2 <= R^2``. A null record moves the
      products by at most that, a replaced one by twice that (triangle inequality).

    Rounding moves the whole matrix by what its bound has beyond R^2, and so each of its blocks; an
    eigenvalue as it is computed is off by at most a small multiple of p units of rounding of
    the largest one, which is at most n R^2.
    """
    total, square = second_moment(rows), rows.norm_bound**2
    rounded = total.norm_bound - square
    own = replace(total, value=total.value[:p, :p])
    shared = BoundedSum(total.value[:p, p:], square / 2 + rounded, square + 2 * rounded)
    computed = 32 * p * rows.features.n_samples * EPS * square
    bound = square + rounded + computed
    value = np.linalg.eigvalsh(own.value)[:1]
    return BoundedSum(value, bound, bound), own, shared


def _penalty(lowest: float, lowest_noise: float, noise: float, p: int) -> float:
    """What keeps every eigenvalue of the noisy moment above zero, nearly always.

    The norm of symmetric Gaussian noise of scale s is about ``s sqrt(2 p)`` and no more than
    ``s sqrt(2 log(2 / a))`` above that with probability 1 - a, by concentration of a Lipschitz
    function; Wang (2018) has ``s sqrt(p log(2 p^2 / a))`` for noise of another shape.
    """
    edge = noise * (math.sqrt(2 * p) + math.sqrt(2 * math.log(2 / _RARE)))
    sure = lowest - lowest_noise * math.sqrt(2 * math.log(2 / _RARE))
    return max(0.0, edge - max(0.0, sure))
