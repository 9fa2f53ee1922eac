"""Where noise comes from, what a bounded sum is, and the one place that adds noise.

To check a privacy claim, read this file: a :class:`BoundedSum` says how far one record
can move it, :func:`release` adds Gaussian noise in proportion, :func:`release_laplace` and
:func:`release_direction` do the same for pure differential privacy, and nothing else in
the package makes anything noisy.

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

from dpsubspace._array import Array, Total, as_like, to_numpy
from dpsubspace._bingham import sample_bingham

__all__ = [
    "NEIGHBORING_RELATIONS",
    "BoundedL1Sum",
    "BoundedSum",
    "DisjointTotal",
    "NoiseSource",
    "SecureNoise",
    "SeededNoise",
    "as_noise",
    "energy_sum",
    "gram_sum",
    "release",
    "release_direction",
    "release_laplace",
    "vector_sum",
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

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Independent uniforms on (0, 1), never 0 or 1, in float64."""
        ...

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`."""
        ...

    def child(self, name: str) -> NoiseSource:
        """Independent stream called `name`; adding a name shifts no other stream."""
        ...

    def public(self) -> np.random.Generator:
        """Randomness that hides nothing (labels of public rows, say) and may be known."""
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

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Independent uniforms on (0, 1), never 0 or 1, in float64."""
        return _as_uniform(os.urandom(8 * math.prod(shape)), shape)

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`.

        What is in a batch must stay as unknown as the noise, so it comes from the same bits.
        """
        bits = np.frombuffer(os.urandom(8 * n), dtype=np.uint64)
        return np.flatnonzero((bits >> np.uint64(11)) * 2.0**-53 < rate)

    def child(self, name: str) -> SecureNoise:
        """Return itself: draws of a stateless source are independent already."""
        return self

    def public(self) -> np.random.Generator:
        """Randomness that hides nothing and may be known."""
        return np.random.default_rng()


def _system_normals(shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals by inverse CDF of operating-system bits, symmetric about 0."""
    bits = np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64).reshape(shape)
    # A lower-tail probability in (0, 1/2) with 52 bits, exactly representable, and a
    # sign: both tails reach as far (8.2 standard deviations) and no value is inf.
    tail = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53
    sign = 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)
    return sign * ndtri(tail)


def _as_uniform(random_bytes: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Uniforms from 8 bytes each: odd multiples of 2^-53, symmetric about 1/2."""
    bits = np.frombuffer(random_bytes, dtype=np.uint64).reshape(shape)
    return ((bits >> np.uint64(11)) | np.uint64(1)) * 2.0**-53


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

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Independent uniforms on (0, 1), never 0 or 1, in float64."""
        return _as_uniform(self._rng.bytes(8 * math.prod(shape)), shape)

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`."""
        return np.flatnonzero(self._rng.random(n) < rate)

    def child(self, name: str) -> SeededNoise:
        """Independent stream called `name`, the same whenever it is asked for."""
        word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        return SeededNoise(*self._entropy, word)

    def public(self) -> np.random.Generator:
        """Randomness that hides nothing and may be known."""
        return self.child("public")._rng


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


class BoundedL1Sum(BoundedSum):
    """A sum whose bounds hold in L1 norm, and so in L2 norm, which is never larger."""


def vector_sum(value: Array, norm_bound: float, slack: float) -> BoundedSum:
    """Sum of vectors over records, each of norm at most `norm_bound`.

    A null record moves it by that, a replaced one by twice that (triangle inequality), and
    rounding by `slack` more, in units of the bound.
    """
    return BoundedSum(value, norm_bound * (1 + slack), norm_bound * (2 + slack))


def gram_sum(value: Array, norm_bound: float, slack: float = 0.0) -> BoundedSum:
    """Sum of ``g g'`` over records of norm at most `norm_bound`, bounded in Frobenius norm.

    Parameters
    ----------
    value : array of shape (p, p)
        The sum. Private.
    norm_bound : float
        c, with ``|g| <= c`` for every record.
    slack : float, default=0.0
        How far rounding moves the sum between neighbours, in Frobenius norm and in units
        of c^2.

    Notes
    -----
    Proof, without rounding: ``|g g'| = |g|^2 <= c^2``, and
    ``|g g' - h h'|^2 = |g|^4 + |h|^4 - 2 (g' h)^2 <= 2 c^4``. Rounding adds a matrix E of norm
    at most ``slack c^2``. It counts with a factor sqrt(2) for the sake of
    :func:`release_direction`, whose score may move both ways because of it: the largest and
    the least eigenvalue of a symmetric E are apart by at most sqrt(2) times its norm.
    """
    square = norm_bound**2
    widened = 1 + math.sqrt(2) * slack
    return BoundedSum(value, square * widened, square * math.sqrt(2) * widened)


def energy_sum(value: Array, norm_bound: float, slack: float = 0.0) -> BoundedL1Sum:
    """Energy of records along orthonormal directions and in what is left, bounded in L1 norm.

    Parameters
    ----------
    value : array of shape (k + 1,)
        ``sum (v_j' g)^2`` over records for each of k directions, and
        ``sum |g|^2 - sum_j (v_j' g)^2``. Private.
    norm_bound : float
        c, with ``|g| <= c`` for every record.
    slack : float, default=0.0
        How far rounding moves the sum between neighbours, in L1 norm and in units of c^2. An
        error E of the matrix ``sum g g'`` makes up to ``sqrt(p) |E|`` of it.

    Notes
    -----
    Proof: what a record adds has no negative entry (the last one by Bessel's inequality) and
    adds up to ``|g|^2 <= c^2``, so a null record moves the sum by at most c^2. A replaced one
    moves it by at most twice that, which two orthogonal records along two directions reach.
    The directions may be released ones: they are fixed when the sum is taken.
    """
    square = norm_bound**2
    return BoundedL1Sum(value, square * (1 + slack), square * (2 + slack))


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


def release_laplace(
    total: BoundedL1Sum, epsilon: float, noise: NoiseSource, *, neighboring_relation: str
) -> Array:
    """Add the noise that makes `total` a Laplace mechanism of `epsilon`, with no delta.

    Parameters
    ----------
    total : BoundedL1Sum
        What to release, with how far one record moves it in L1 norm.
    epsilon : float
        Privacy loss of this release; inf adds nothing, and the result is *not private*.
    noise : NoiseSource
        Where the noise is drawn.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation that the guarantee is for.

    Returns
    -------
    array
        `total.value` with independent Laplace noise of scale `bound / epsilon`, bound being
        ``norm_bound`` (zero_out) or ``replace_bound`` (replace_one).

    Notes
    -----
    Privacy: log densities of the output differ by at most the L1 distance of the sums over
    the scale (Dwork, McSherry, Nissim, Smith, 2006). Event: ``laplace(epsilon)``, which stands
    for one number that moves by the whole bound. That is the worst case. Proof, for two
    entries that move by ``r >= s >= 0`` in units of the scale: the privacy loss is
    ``l_r + l_s`` where, with a noise that is as likely to go with the move as against it and
    with e an exponential, ``l_r`` is ``-r`` or ``2 min(e, r) - r``. Let r grow and s shrink by
    as much. The hockey-stick divergence, a maximum over events that is reached by
    ``{l_r + l_s > a}``, then changes in proportion to ``P(2 min(e, r) > a + r + s)``, of
    noise with s and against r, less ``P(2 min(e, s) > a + r + s)``, of the reverse; the
    first is larger. So all of the move is worst in one entry, whatever further entries do
    to a, and the more the worse by the same argument.

    Every entry is the difference of two exponentials, that is of two independent draws: the
    low bits of a single one are too regular to hide those of the sum (Holohan, Braghin, 2021).
    Uniforms of 53 bits reach 36 scales: what lies beyond has a probability of 1e-16.
    """
    _check_epsilon(epsilon)
    if epsilon == math.inf:
        return total.value
    bound = {"zero_out": total.norm_bound, "replace_one": total.replace_bound}[neighboring_relation]
    scale = bound / epsilon
    if not (0 < scale < math.inf):
        raise ValueError(f"the noise scale must be positive and finite, got {scale}.")
    pair = np.log(noise.uniform((2, *total.value.shape)))
    return total.value + as_like((pair[0] - pair[1]) * scale, total.value)


def release_direction(
    total: BoundedSum, epsilon: float, noise: NoiseSource, *, neighboring_relation: str
) -> np.ndarray:
    """Draw a direction along which a sum of ``g g'`` is large: an exponential mechanism.

    Parameters
    ----------
    total : BoundedSum
        ``S = sum g g'`` over records with ``|g| <= c``, from :func:`gram_sum`: the bounds are
        c^2 and sqrt(2) c^2, and a record that becomes null takes away a matrix without
        negative eigenvalues, which no type can check.
    epsilon : float
        Privacy loss of this release. At inf the direction is the top eigenvector, which
        is *not private*.
    noise : NoiseSource
        Where the randomness is drawn.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation that the guarantee is for.

    Returns
    -------
    ndarray of shape (p,)
        Unit vector v with density proportional to ``exp(lambda v' S v)`` on the sphere, with
        `lambda = epsilon / c^2` (zero_out) or `epsilon / (2 c^2)` (replace_one), in float64.
        Its sign is random.

    Notes
    -----
    Privacy: epsilon-differential privacy with no delta, and more: a *bounded range* of epsilon.
    Event: ``bounded_range(epsilon)``. Proof: for neighbours with sums S and T,

        log p_S(v) - log p_T(v) = lambda v' (S - T) v - (log Z_S - log Z_T),

    in which the normalisers Z are constants. Over all v the left side therefore lies in an
    interval as long as lambda times the *spread* of ``v' (S - T) v``: its largest value less
    its least. That is the bounded range (Dong, Durfee, Rogers, 2020). Both densities have
    integral 1, so neither is above the other everywhere: the interval holds 0, and the left
    side is at most epsilon in absolute value. This covers the normalisers, which can use
    up none to all of epsilon. Swapping S and T negates the left side and keeps the length of
    the interval, so that both directions of a relation cost the same.

    The spread is largest eigenvalue less least eigenvalue of the symmetric S - T.

    * zero_out: ``S - T = g g'``, whichever of the two has the null record, up to a sign. The
      spread is at most ``|g|^2 <= c^2``, as the score can only rise with a record. Rounding adds
      at most sqrt(2) times its Frobenius norm, which `norm_bound` includes.
    * replace_one: the spread of any symmetric matrix is at most sqrt(2) times its Frobenius
      norm, so at most ``sqrt(2) replace_bound = 2 c^2``. It is reached by a record that is
      replaced by an orthogonal one.

    A sum with rounding may be asymmetric; its symmetric part has the same scores and moves
    no further. What follows the sum is taken to be in real numbers, although `eigh` is off
    by about ``p |S|`` units of rounding; and the number of proposals, which depends on S, shows in
    the time that a draw takes, if only in batches of a constant size.
    """
    _check_epsilon(epsilon)
    matrix = to_numpy(total.value).astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    if epsilon == math.inf:
        return np.linalg.eigh(matrix)[1][:, -1]
    spread = {
        "zero_out": total.norm_bound,
        "replace_one": math.sqrt(2) * total.replace_bound,
    }[neighboring_relation]
    if not spread < math.inf:
        raise ValueError("a sum without bounds cannot be released.")
    like = np.empty(0)
    return sample_bingham(
        matrix * (epsilon / spread),
        normals=lambda shape: noise.gaussian(shape, 1.0, like),
        uniforms=noise.uniform,
    )


def _check_epsilon(epsilon: float) -> None:
    if not epsilon > 0:  # negative, zero or NaN
        raise ValueError(f"`epsilon` of a release must be positive, got {epsilon}.")
