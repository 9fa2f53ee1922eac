"""Where noise comes from: draws of integers, seeded or from the operating system.

Design note. Seeded and secure noise are two classes and not a flag, because the
guarantee reports which was used (`secure`) and must not be able to guess wrongly.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri

# Cells of the noise whose probability is found first, in one scale of it. Of the places of a
# cell nearly all are kept, and so many rounds leave none but with a probability below 1e-300.
_CELLS, _MOST_ROUNDS = 2.0**8, 300


# Draws of a batch that are made at once, which should not leave the cache, and the most records
# that one of them passes over.
_AT_ONCE, _PASSED = 1 << 16, 255

# Integers that are drawn at once where the same is asked for again: a draw of so many takes two to
# three times as long as one of a few.
_AHEAD = 1 << 9


class NoiseSource(Protocol):
    """Random numbers from a source of bits: what is tested with a seed is what is drawn without."""

    secure: bool
    """Whether the noise is unpredictable: reported in the guarantee."""

    def _bits(self, shape: tuple[int, ...]) -> np.ndarray:
        """64 random bits an entry, uint64."""
        ...

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """Independent N(0, scale^2) entries rounded down to integers, in float64."""
        ...

    def laplace(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """Independent integers k with probability in proportion to exp(-|k| / scale), float64."""
        return lattice_laplace(self._bits, shape, scale)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray: ...

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Independent uniforms on (0, 1), never 0 or 1, in float64."""
        return _as_uniform(self._bits(shape))

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Independent exponential variables of mean 1, as precise near 0 as elsewhere, float64."""
        return -np.log1p(-_fractions(self._bits, shape)[0])

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Sorted indices of a batch that each of `n` records enters with probability `rate`.

        What is in a batch must stay as unknown as the noise, so it comes from the same bits.
        """
        return poisson_indices(self._bits, n, rate)

    def child(self, name: str) -> NoiseSource:
        """Independent stream called `name`; adding a name shifts no other stream."""
        ...

    def public(self) -> np.random.Generator:
        """Randomness that hides nothing (labels of public rows, say) and may be known."""
        ...


# How many forks lie between the first process and this one.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_count_fork)


@dataclass(frozen=True)
class SecureNoise(NoiseSource):
    """Noise from the operating system's cryptographic generator.

    It holds no state, so there is nothing that a fork or a pickle could repeat. A child draws
    ahead, and forgets that in a fork and a pickle.
    """

    secure = True

    def _bits(self, shape: tuple[int, ...]) -> np.ndarray:
        return _system_bits(shape)

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        return lattice_normals(_system_bits, shape, scale)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        below, signs = _fractions(_system_bits, shape)
        return signs * ndtri(below / 2)

    def child(self, name: str) -> SecureNoise:
        """Stream for one name: it is its own only so that what is asked for again is alike."""
        return _SecureStream()

    def public(self) -> np.random.Generator:
        return np.random.default_rng()


class _SecureStream(SecureNoise):
    """Secure noise of which some is drawn ahead where the same is asked for again, as by steps.

    Privacy: noise that waits was drawn from the same bits, of a shape and a scale alone, and is
    known to nobody. Each array of it is given once: to take it from a list is one operation,
    whichever threads ask. No other process takes it: a fork is one generation further from the
    first process, and has another number where C code made it. The number alone would not do, since
    it may be that of an ancestor that has ended. Pickles and copies are streams without it. Noise
    that was given is in no buffer with what waits, so that nothing here holds it on.
    """

    def __init__(self) -> None:
        self._waiting: tuple[Any, list[np.ndarray]] = (None, [])

    def __reduce__(self) -> Any:
        return _SecureStream, ()

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        asked, (last, waiting) = (_forks, os.getpid(), shape, scale), self._waiting
        number = 1
        if asked == last:
            with suppress(IndexError):
                return waiting.pop()
            number = max(1, _AHEAD // max(1, math.prod(shape)))
        found, *others = lattice_normals(_system_bits, (number, *shape), scale)
        self._waiting = asked, [each.copy() for each in others]
        return found


class SeededNoise(NoiseSource):
    """Reproducible noise for tests, papers and teaching; anyone with the seed can remove it."""

    secure = False

    def __init__(self, *entropy: int):
        self._entropy = entropy
        self._rng = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(entropy)))
        self._names: set[str] = set()

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """NumPy's own normals, which are fast: whoever knows the seed needs no low bits."""
        return np.floor(self._rng.standard_normal(shape) * scale) + 0.0

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._rng.standard_normal(shape)

    def child(self, name: str) -> SeededNoise:
        """Independent stream called `name`, once.

        RuntimeError if this source has given a stream of that name before. Both would draw the same
        noise, and the difference of what they are added to would have none.
        """
        if name in self._names:
            raise RuntimeError(f"two streams of noise of one fit must not share the name {name!r}.")
        self._names.add(name)
        return self._stream(name)

    def public(self) -> np.random.Generator:
        return self._stream("public")._rng

    def _stream(self, name: str) -> SeededNoise:
        word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        return SeededNoise(*self._entropy, word)

    def _bits(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.frombuffer(self._rng.bytes(8 * math.prod(shape)), np.uint64).reshape(shape)


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


# Draws of integers from random bits ---------------------------------------------------------

_Bits = Callable[[tuple[int, ...]], np.ndarray]  # 64 random bits an entry, uint64


def _system_bits(shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64).reshape(shape)


def _as_uniform(bits: np.ndarray) -> np.ndarray:
    """Uniforms from 64 bits each: odd multiples of 2^-53, symmetric about 1/2."""
    return ((bits >> np.uint64(11)) | np.uint64(1)) * 2.0**-53


def poisson_indices(bits: _Bits, n: int, rate: float) -> np.ndarray:
    """Sorted indices that each of `n` enters by itself, with a probability of `rate`.

    Rounded up to a multiple of 2^-53, and then exactly so. What is drawn is how many records are
    passed over before one that enters: bits are needed for those that enter, and not for all. No
    draw passes over more than 255. If none of so many enters, the next draw begins behind them:
    that they did not enter tells nothing of the others. Where more than half enter, those that do
    not are drawn.
    """
    chance = math.ceil(rate * 2**53)
    if chance <= 2**52:
        return _drawn_indices(bits, n, chance)
    inside = np.ones(n, dtype=bool)
    inside[_drawn_indices(bits, n, 2**53 - chance)] = False
    return np.flatnonzero(inside)


def _drawn_indices(bits: _Bits, n: int, chance: int) -> np.ndarray:
    """The same by a probability times 2^53, of at most a half."""
    if chance == 0:
        return np.empty(0, np.intp)
    gaps = _Gaps.of(chance)
    found, start = [np.empty(0, np.intp)], 0
    while start < n:
        number = (n - start) / gaps.mean
        number = min(math.ceil(number + 2 * math.sqrt(number)) + 8, _AT_ONCE)
        passed = gaps.drawn(bits, number)
        entered = passed < _PASSED
        ends = np.cumsum(passed + entered, dtype=np.intp)  # places behind those that are decided
        ends += start - 1
        start = int(ends[-1]) + 1
        found.append(ends if entered.all() else ends[entered])
    batch = found[1] if len(found) == 2 else np.concatenate(found)
    return batch[: np.searchsorted(batch, n)]


class _Gaps:
    """How many records are passed over before one that enters, with a probability of p each.

    At least s of them with a probability of ``(1 - p)^s``, which is where a uniform number is below
    that. Of its endless bits no more are drawn than tell so: 16 for nearly all, then 48 more, and
    after that as many as it takes, compared in integers. So all probabilities are exact.
    """

    def __init__(self, chance: int):
        self._powers = [1]  # of 1 - p, times 2^53 to the same power
        for _ in range(_PASSED):
            self._powers.append(self._powers[-1] * (2**53 - chance))
        whole = [(power << 64) >> (53 * s) for s, power in enumerate(self._powers)]
        self._limits = np.array(whole[:0:-1], np.uint64)  # to 64 bits, rounded down, from the least
        # What the first 16 bits tell; no number that can be drawn where a limit begins with them.
        limits = np.bincount((self._limits >> np.uint64(48)).astype(np.intp), minlength=1 << 16)
        below = np.cumsum(limits) - limits
        self._told = np.where(limits > 0, _PASSED + 1, _PASSED - below).astype(np.uint16)
        # Records that a draw decides, in the mean.
        self.mean = math.fsum(math.ldexp(t, -64) for t in [2**64, *whole[1:_PASSED]])

    @staticmethod
    @lru_cache(8)
    def of(chance: int) -> _Gaps:
        """By the probability times 2^53, which is public."""
        return _Gaps(chance)

    def drawn(self, bits: _Bits, number: int) -> np.ndarray:
        """At least so many draws, uint16: of records that are passed over, 255 at most."""
        words = bits((-(-number // 4),)).view(np.uint16)
        passed = self._told.take(words)
        unsure = np.flatnonzero(passed > _PASSED)
        if len(unsure):
            more = words[unsure].astype(np.uint64) << np.uint64(48)
            more |= bits(unsure.shape) >> np.uint64(16)
            below = np.searchsorted(self._limits, more, side="right")
            passed[unsure] = _PASSED - below
            for i in np.flatnonzero(self._limits[below - 1] == more):
                passed[unsure[i]] = self._exact(bits, int(more[i]))
        return passed

    def _exact(self, bits: _Bits, number: int) -> int:
        """Records that a number passes over which begins with these 64 bits."""
        size = 64
        while True:
            scaled = [(p << size, 53 * s) for s, p in enumerate(self._powers)][1:]
            least = sum((number + 1) << shift <= limit for limit, shift in scaled)
            if least == sum(number << shift < limit for limit, shift in scaled):
                return least
            number, size = number << 64 | int(bits((1,))[0]), size + 64


# For each 12 bits, 2 to the power of minus the zeros before the first one; 0 where there is none.
_FIRST_ONE = np.array([0.0, *(2.0 ** (i.bit_length() - 12) for i in range(1, 1 << 12))])


def _fractions(bits: _Bits, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Uniforms on (0, 1) with as many digits near 0 as near 1, and a random sign of each.

    Endless random bits have j zeros before the first one with probability 2^-(j + 1): that is
    the octave. Of 64 bits, 12 tell which it is, 51 what comes after the first one, exactly in
    float64, and one the sign; one draw in 4,096 takes more bits for its octave.
    """
    words = bits(shape)
    odd = (words >> np.uint64(13) << np.uint64(1)) | np.uint64(1)
    octaves = _FIRST_ONE[words & np.uint64(0xFFF)]
    missing = octaves == 0
    if missing.any():
        octaves[missing] = 2.0**-12 * _octaves(bits, int(missing.sum()))
    signs = 1.0 - 2.0 * (words >> np.uint64(12) & np.uint64(1)).astype(np.float64)
    return (odd | np.uint64(1 << 52)) * (octaves * 2.0**-53), signs


def _octaves(bits: _Bits, n: int) -> np.ndarray:
    """2 to the power of minus the zeros before the first one in `n` endless rows of bits."""
    found = np.zeros(n)
    for zeros in range(0, 950, 53):  # beyond, numbers would be out of range
        missing = found == 0
        words = (bits((int(missing.sum()),)) >> np.uint64(11)).astype(np.float64)
        first = np.ldexp(1.0, np.frexp(words)[1] - 53 - zeros)
        found[missing] = np.where(words > 0, first, 0.0)
        if (found > 0).all():  # nearly always after the first round
            return found
    raise _broken()


def _within_cells(
    bits: _Bits,
    cells: np.ndarray,
    width: int,
    log_kept: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """One of the `width` integers of each cell, by rejection from the uniform distribution.

    ``log_kept(cells, places)`` is the log probability of each place less that of the likeliest of
    its cell: near 0 for all, so that a second round is for few.
    """
    n_bits = width.bit_length() - 1
    places, left = np.empty(cells.shape), None  # all of them
    for _ in range(_MOST_ROUNDS):
        some = cells if left is None else cells[left]
        words = bits(some.shape)
        tried = (words & np.uint64(width - 1)).astype(np.float64)
        chances = (words >> np.uint64(n_bits)) * 2.0 ** (n_bits - 64)
        logs = log_kept(some, tried)
        kept = chances < 1 + logs  # which is below exp(logs)
        if left is None and kept.all():  # mostly so where there are few
            return cells * width + tried
        unsure = ~kept
        kept[unsure] = chances[unsure] < np.exp(logs[unsure])
        left = np.ones(cells.shape, dtype=bool) if left is None else left
        places[left] = tried.ravel()  # those that are not kept are drawn again
        left[left] = ~kept.ravel()
        if not left.any():
            return cells * width + places
    raise _broken()


def _broken() -> RuntimeError:
    return RuntimeError(
        "the source of randomness is broken: it gave bits that do not occur. Nothing was released."
    )


def _cell_width(scale: float) -> int:
    """Integers in a cell: a power of 2, 2^16 for most scales."""
    if not 2.0**9 <= scale < 2.0**40:
        raise ValueError(f"noise on a lattice needs 512 to 2^40 steps in a scale, got {scale}.")
    return 2 ** math.floor(math.log2(scale / _CELLS))


def lattice_normals(bits: _Bits, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Draw integers that are distributed as normal variables rounded down.

    `bits` gives arrays of 64 random bits an entry, and `scale`, the standard deviation, is in [2^9,
    2^40). Gives whole numbers in float64, never -0.

    Probabilities are right up to a factor: no integer is missing and none is too
    frequent. A cell of about scale / 256 integers is found by inverse CDF from 51 random bits
    below the leading one, of which at least 2^40 fall into each cell, however far out. Their
    discreteness and the rounding of ``ndtri`` change a cell's probability by a factor of about
    ``1 +- 1e-12`` (against 40 digits: 6e-13 up to 7 scales, 1.4e-12 at 11). The place within the
    cell is drawn from the density at the middle of each unit interval, which is the integral over
    it up to ``1 / (12 scale^2)`` of it for all that is within 10 scales, compared with 48 random
    bits: a factor of ``1 +- 1e-14``. Where noise is shifted by less than a cell, the factors of
    most cells cancel. For p entries and a multiplier s, the log density of all entries together
    is therefore off, between neighbours, by about ``1e-12 sqrt(p) 2^8 / s``: below 1e-6 for a
    million entries. The tail ends at 36 scales, beyond which there is a probability of 1e-280.
    """
    width = _cell_width(scale)
    below, signs = _fractions(bits, shape)
    cells = np.floor(-ndtri(below / 2) * (scale / width))

    def log_kept(cells: np.ndarray, places: np.ndarray) -> np.ndarray:
        return places * (places + (2 * width) * cells + 1) / (-2 * scale**2)

    sizes = _within_cells(bits, cells, width, log_kept)
    # Rounded down: x in [k, k + 1) or, mirrored, in (-k - 1, -k].
    return np.where(signs > 0, sizes, -1 - sizes)


def lattice_laplace(bits: _Bits, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Draw integers k with probability in proportion to ``exp(-|k| / scale)``.

    Of `bits` and a `scale` as :func:`lattice_normals` takes them.

    The difference of two geometric variables, each a cell of about scale / 256 integers and a
    place in it, as in :func:`lattice_normals`. The probability of k has the same
    factor of ``1 +- 1e-12``, at most squared. The tail ends at 650 scales, beyond which there is a
    probability of 1e-280.
    """
    width = _cell_width(scale)
    cells = np.floor(-np.log(_fractions(bits, (2, *shape))[0]) * (scale / width))
    pair = _within_cells(bits, cells, width, lambda cells, places: places / -scale)
    return pair[0] - pair[1]
