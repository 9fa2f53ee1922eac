"""Where noise comes from, what a bounded sum is, and the one place that adds noise.

To check a privacy claim, read this file: a :class:`BoundedSum` says how far one record
can move it, :func:`release` adds Gaussian noise in proportion, and nothing else in the
package adds noise to anything.

Design note. Seeded and secure noise are two classes and not a flag, because the
guarantee reports which was used (`secure`) and must not be able to guess wrongly.
Noise is drawn in float64 by NumPy and then moved to the array library of the sum, so
that every library gives the same numbers for the same seed.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from dpsubspace._array import Array, Total, as_like

__all__ = [
    "NEIGHBORING_RELATIONS",
    "BoundedSum",
    "DisjointTotal",
    "NoiseSource",
    "SecureNoise",
    "SeededNoise",
    "as_noise",
    "release",
]

NEIGHBORING_RELATIONS = ("zero_out", "replace_one")


class NoiseSource(Protocol):
    """Source of privacy randomness."""

    @property
    def secure(self) -> bool:
        """Whether the noise is unpredictable: reported in the guarantee."""
        ...

    def gaussian(self, shape: tuple[int, ...], scale: float, like: Array) -> Array:
        """Independent N(0, scale^2) entries, as an array like `like`."""
        ...

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`."""
        ...

    def child(self, name: str) -> NoiseSource:
        """Independent stream called `name`; adding a name shifts no other stream."""
        ...


@dataclass(frozen=True)
class SecureNoise:
    """Noise from the operating system's cryptographic generator.

    It holds no state, so there is nothing that a fork or a pickle could repeat. Each
    draw is the sum of two independent draws over sqrt(2): the low bits of a single
    inverse-CDF draw are too regular to hide those of the sum they are added to.
    """

    secure = True

    def gaussian(self, shape: tuple[int, ...], scale: float, like: Array) -> Array:
        """Independent N(0, scale^2) entries, as an array like `like`."""
        pair = _system_normals((2, *shape))
        return as_like((pair[0] + pair[1]) * (scale / math.sqrt(2)), like)

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`.

        What is in a batch must stay as unknown as the noise, so it comes from the same bits.
        """
        bits = np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
        return np.flatnonzero((bits >> np.uint64(11)) * 2.0**-53 < rate)

    def child(self, name: str) -> SecureNoise:
        """Return itself: draws of a stateless source are independent already."""
        return self


def _system_normals(shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals by inverse CDF of operating-system bits, symmetric about 0."""
    bits = np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)
    # A lower-tail probability in (0, 1/2) with 52 bits, exactly representable, and a
    # sign: both tails reach as far (8.2 standard deviations) and no value is inf.
    tail = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    return sign * ndtri(tail)


class SeededNoise:
    """Reproducible noise for tests, papers and teaching; anyone with the seed can remove it.

    Parameters
    ----------
    *entropy : int
        Non-negative integers that name the stream.
    """

    secure = False

    def __init__(self, *entropy: int):
        self._entropy = entropy
        self._rng = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(entropy)))

    def gaussian(self, shape: tuple[int, ...], scale: float, like: Array) -> Array:
        """Independent N(0, scale^2) entries, as an array like `like`."""
        return as_like(self._rng.standard_normal(shape) * scale, like)

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`."""
        return np.flatnonzero(self._rng.random(n) < rate)

    def child(self, name: str) -> SeededNoise:
        """Independent stream called `name`, the same whenever it is asked for."""
        word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        return SeededNoise(*self._entropy, word)


def as_noise(random_state: int | np.random.RandomState | None) -> NoiseSource:
    """Noise source for a `random_state`: None is secure, anything else reproducible."""
    if random_state is None:
        return SecureNoise()
    if isinstance(random_state, np.random.RandomState):
        return SeededNoise(int(random_state.randint(2**31 - 1)))
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"`random_state` must not be negative, got {random_state}.")
        return SeededNoise(int(random_state))
    raise ValueError(
        "`random_state` must be None (secure noise), an int or a numpy RandomState (reproducible),"
        f" got {type(random_state).__name__}."
    )


@dataclass(frozen=True)
class BoundedSum:
    """A sum over records that carries how far one record can move it; not yet released.

    Parameters
    ----------
    value : array
        The sum. Private.
    norm_bound : float
        Most that one record contributes, in L2 norm. This is how far the sum moves when
        a record becomes a null record (``"zero_out"``).
    replace_bound : float
        Most that the sum moves when one record is replaced by another (``"replace_one"``):
        twice `norm_bound` for vectors, less for some other shapes.
    """

    value: Array
    norm_bound: float
    replace_bound: float

    def __post_init__(self) -> None:
        if not 0 < self.norm_bound <= self.replace_bound:
            raise ValueError(
                "a bounded sum needs 0 < norm_bound <= replace_bound,"
                f" got {self.norm_bound} and {self.replace_bound}."
            )

    def unit(self, neighboring_relation: str, *, sampled: bool = False) -> float:
        """Noise standard deviation that a multiplier of 1 stands for.

        Accountants take a Gaussian event's multiplier against the norm of a record and
        double the sensitivity themselves under ``"replace_one"``: the unit is therefore
        half of `replace_bound` there, so that one event is right under both relations. For
        a batch that a record may have missed, the norm of what it brings counts as well.
        """
        if neighboring_relation == "zero_out":
            return self.norm_bound
        half = self.replace_bound / 2
        return max(self.norm_bound, half) if sampled else half


class DisjointTotal:
    """Total of sums over disjoint records, as they come: a record is in one, whose bounds hold."""

    def __init__(self) -> None:
        self._total = Total()
        self._bounds = (0.0, 0.0)

    def add(self, part: BoundedSum) -> None:
        """Add a sum over records that no other part holds."""
        self._total.add(part.value)
        self._bounds = (
            max(self._bounds[0], part.norm_bound),
            max(self._bounds[1], part.replace_bound),
        )

    def bounded_sum(self) -> BoundedSum:
        """Return what has been added, with the bounds that hold for all of it."""
        return BoundedSum(self._total.value, *self._bounds)


def release(
    total: BoundedSum,
    noise_multiplier: float,
    noise: NoiseSource,
    *,
    neighboring_relation: str,
    sampled: bool = False,
) -> Array:
    """Add the noise that makes `total` a Gaussian mechanism of `noise_multiplier`.

    Parameters
    ----------
    total : BoundedSum
        What to release, with its sensitivity.
    noise_multiplier : float
        Noise standard deviation in units of ``total.unit(neighboring_relation, ...)``. Zero
        adds nothing: the result is then *not private* (``epsilon=inf`` runs so).
    noise : NoiseSource
        Where the noise is drawn.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation that the guarantee is for.
    sampled : bool, default=False
        Whether the sum is over a Poisson batch.

    Returns
    -------
    array
        ``total.value + N(0, (noise_multiplier * unit)^2)``, safe to publish.

    Notes
    -----
    Privacy: one record moves ``total.value`` by at most ``norm_bound`` (zero_out) or
    ``replace_bound`` (replace_one) in L2 norm, so the output is 1/noise_multiplier-GDP
    or 2/noise_multiplier-GDP respectively (Dong, Roth, Su, 2022, Theorem 2.7). Event:
    ``GaussianDpEvent(noise_multiplier)``, inside a ``PoissonSampledDpEvent`` for a batch.
    Under replace_one that event stands for a record whose contributions in the two data sets
    are opposite and as long as they can be, which is the worst case (Lebeda, Regehr,
    Kamath, Steinke, 2024); hence the larger unit there.
    """
    if noise_multiplier == 0:
        return total.value
    scale = noise_multiplier * total.unit(neighboring_relation, sampled=sampled)
    if not (0 < scale < math.inf):
        raise ValueError(f"the noise scale must be positive and finite, got {scale}.")
    return total.value + noise.gaussian(total.value.shape, scale, total.value)
