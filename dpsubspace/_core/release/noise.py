"""Sources of noise: draws of integers, seeded or from the operating system.

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

# Cells of the noise, in one scale of it, that are drawn first by their probability. Nearly all
# places in a cell are accepted, and after this many rounds a place is left with a probability below
# 1e-300.
_CELLS, _MOST_ROUNDS = 2.0**8, 300


# Draws of a batch that are made at once and should fit into the cache, and the most records that
# one draw passes over.
_AT_ONCE, _PASSED = 1 << 16, 255

# Integers that are drawn at once where the same request repeats: drawing this many takes two to
# three times as long as drawing a few.
_AHEAD = 1 << 9


class NoiseSource(Protocol):
    """Random numbers from a source of bits: seeded tests run the same code as secure draws."""

    secure: bool
    """Whether the noise is unpredictable: reported in the guarantee."""

    def _bits(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw 64 random bits for each entry, uint64."""
        ...

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """Draw independent N(0, scale^2) entries rounded down to integers, in float64."""
        ...

    def laplace(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """Draw independent integers k with probability in proportion to exp(-|k| / scale)."""
        return lattice_laplace(self._bits, shape, scale)

    def normals(self, shape: tuple[int, ...]) -> np.ndarray: ...

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw independent uniforms on (0, 1), never 0 or 1, in float64."""
        return _as_uniform(self._bits(shape))

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw independent exponential variables of mean 1, equally precise near 0, in float64."""
        return -np.log1p(-_fractions(self._bits, shape)[0])

    def poisson_sample(self, n: int, rate: float) -> np.ndarray:
        """Draw sorted indices of a batch that each of `n` records enters with probability `rate`.

        The members of a batch must stay as secret as the noise, so the draw uses the same bits.
        """
        return poisson_indices(self._bits, n, rate)

    def child(self, name: str) -> NoiseSource:
        """Independent stream called `name`; a further name does not shift any other stream."""
        ...

    def public(self) -> np.random.Generator:
        """Random generator for draws that may be known (labels of public rows, for example)."""
        ...


# Number of forks between the first process and this one.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_count_fork)


@dataclass(frozen=True)
class SecureNoise(NoiseSource):
    """Noise from the operating system's cryptographic generator.

    It holds no state, so a fork or a pickle has nothing to repeat. A child draws ahead; forks and
    pickles of it drop the draws that it has made ahead.
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
        """Stream for one name: its own buffer, since requests of one name are alike."""
        return _SecureStream()

    def public(self) -> np.random.Generator:
        return np.random.default_rng()


class _SecureStream(SecureNoise):
    """Secure noise that draws ahead where the same request repeats, as in the steps of a fit.

    Privacy: noise that waits was drawn from the same bits, by a shape and a scale alone, and is
    known to nobody. Each array of it is used once: to pop it from a list is an atomic operation,
    whichever threads call it. No other process uses it: a fork is one generation further from the
    first process, and has another process id if C code made it. The process id alone would not
    suffice, since it may be that of an ancestor that has ended. Pickles and copies are streams
    without waiting noise. Noise that was returned shares no buffer with waiting noise, so that
    nothing here keeps it alive.
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
        """NumPy's own normals, which are fast: whoever knows the seed could remove any noise."""
        return np.floor(self._rng.standard_normal(shape) * scale) + 0.0

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._rng.standard_normal(shape)

    def child(self, name: str) -> SeededNoise:
        """Independent stream called `name`, once.

        RuntimeError if this source has returned a stream of that name before. Both would draw the
        same noise, and the difference of the two results would have none.
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


class ZeroNoise(SeededNoise):
    """Draws of 0, the median of all noise: for public rows, and for widths of intervals alone.

    Everybody knows this noise, as that of a seed: a guarantee says that it is not secure.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def gaussian(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        return np.zeros(shape)

    def laplace(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        return np.zeros(shape)

    def child(self, name: str) -> SeededNoise:
        return self


def as_noise(random_state: int | np.random.RandomState | ZeroNoise | None) -> NoiseSource:
    """Noise source for a `random_state`: None is secure, anything else is reproducible."""
    if random_state is None:
        return SecureNoise()
    if isinstance(random_state, ZeroNoise):
        return random_state
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
    """Convert 64 bits each to uniforms: odd multiples of 2^-53, symmetric about 1/2."""
    return ((bits >> np.uint64(11)) | np.uint64(1)) * 2.0**-53


def poisson_indices(bits: _Bits, n: int, rate: float) -> np.ndarray:
    """Draw sorted indices, each of `n` included independently with probability `rate`.

    `rate` is rounded up to a multiple of 2^-53, and the probability is then exact. The draws are
    the numbers of records that are passed over before one enters: this needs bits for the records
    that enter, and not for all. No draw passes over more than 255. If none of 255 records enters,
    the next draw begins behind them: their not entering reveals nothing about the others. Where
    more than half of the records enter, the ones that do not enter are drawn.
    """
    chance = math.ceil(rate * 2**53)
    if chance <= 2**52:
        return _drawn_indices(bits, n, chance)
    inside = np.ones(n, dtype=bool)
    inside[_drawn_indices(bits, n, 2**53 - chance)] = False
    return np.flatnonzero(inside)


def _drawn_indices(bits: _Bits, n: int, chance: int) -> np.ndarray:
    """Draw indices as in :func:`poisson_indices`, by a probability times 2^53, at most a half."""
    if chance == 0:
        return np.empty(0, np.intp)
    gaps = _Gaps.of(chance)
    found, start = [np.empty(0, np.intp)], 0
    while start < n:
        number = (n - start) / gaps.mean
        number = min(math.ceil(number + 2 * math.sqrt(number)) + 8, _AT_ONCE)
        passed = gaps.drawn(bits, number)
        entered = passed < _PASSED
        ends = np.cumsum(passed + entered, dtype=np.intp)  # places behind the decided records
        ends += start - 1
        start = int(ends[-1]) + 1
        found.append(ends if entered.all() else ends[entered])
    batch = found[1] if len(found) == 2 else np.concatenate(found)
    return batch[: np.searchsorted(batch, n)]


class _Gaps:
    """Numbers of records that are passed over before one enters, with a probability of p each.

    At least s records are passed over with a probability of ``(1 - p)^s``, that is, where a uniform
    number is below ``(1 - p)^s``. Only as many of its infinitely many bits are drawn as the
    comparison needs: 16 for nearly all numbers, then 48 more, and after that as many as it takes,
    compared in integers. So all probabilities are exact.
    """

    def __init__(self, chance: int):
        self._powers = [1]  # powers of 1 - p, times 2^53 to the same power
        for _ in range(_PASSED):
            self._powers.append(self._powers[-1] * (2**53 - chance))
        whole = [(power << 64) >> (53 * s) for s, power in enumerate(self._powers)]
        self._limits = np.array(whole[:0:-1], np.uint64)  # to 64 bits, rounded down, ascending
        # Result by the first 16 bits; a number that cannot be drawn where they begin a limit.
        limits = np.bincount((self._limits >> np.uint64(48)).astype(np.intp), minlength=1 << 16)
        below = np.cumsum(limits) - limits
        self._told = np.where(limits > 0, _PASSED + 1, _PASSED - below).astype(np.uint16)
        # Mean number of records that a draw decides.
        self.mean = math.fsum(math.ldexp(t, -64) for t in [2**64, *whole[1:_PASSED]])

    @staticmethod
    @lru_cache(8)
    def of(chance: int) -> _Gaps:
        """Gaps by the probability times 2^53, which is public."""
        return _Gaps(chance)

    def drawn(self, bits: _Bits, number: int) -> np.ndarray:
        """Make at least `number` draws, uint16: records that are passed over, 255 at most."""
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
        """Records passed over by a uniform number that begins with these 64 bits."""
        size = 64
        while True:
            scaled = [(p << size, 53 * s) for s, p in enumerate(self._powers)][1:]
            least = sum((number + 1) << shift <= limit for limit, shift in scaled)
            if least == sum(number << shift < limit for limit, shift in scaled):
                return least
            number, size = number << 64 | int(bits((1,))[0]), size + 64


# For each pattern of 12 bits: 2 to the power of minus the zeros before its first one, 0 for none.
_FIRST_ONE = np.array([0.0, *(2.0 ** (i.bit_length() - 12) for i in range(1, 1 << 12))])


def _fractions(bits: _Bits, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Draw uniforms on (0, 1) with as many digits near 0 as near 1, and a random sign of each.

    An infinite sequence of random bits has j zeros before the first one with probability 2^-(j +
    1): j is the octave. Of 64 bits, 12 determine the octave, 51 the digits after the first one,
    exactly in float64, and one the sign; one draw in 4,096 needs more bits for its octave.
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
    """Draw 2 to the power of minus the zeros before the first one in `n` rows of bits."""
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
    """Draw one of the `width` integers of each cell, by rejection from the uniform distribution.

    ``log_kept(cells, places)`` is the log probability of each place less that of the likeliest
    place of its cell. It is near 0 for all places, so that few entries need a second round.
    """
    n_bits = width.bit_length() - 1
    places, left = np.empty(cells.shape), None  # None: all of them are left
    for _ in range(_MOST_ROUNDS):
        some = cells if left is None else cells[left]
        words = bits(some.shape)
        tried = (words & np.uint64(width - 1)).astype(np.float64)
        chances = (words >> np.uint64(n_bits)) * 2.0 ** (n_bits - 64)
        logs = log_kept(some, tried)
        kept = chances < 1 + logs  # which is below exp(logs)
        if left is None and kept.all():  # usually so where there are few
            return cells * width + tried
        unsure = ~kept
        kept[unsure] = chances[unsure] < np.exp(logs[unsure])
        left = np.ones(cells.shape, dtype=bool) if left is None else left
        places[left] = tried.ravel()  # rejected places are drawn again
        left[left] = ~kept.ravel()
        if not left.any():
            return cells * width + places
    raise _broken()


def _broken() -> RuntimeError:
    return RuntimeError(
        "the source of randomness is broken: it gave bits that do not occur. Nothing was released."
    )


def _cell_width(scale: float) -> int:
    """Number of integers in a cell: a power of 2, 2^16 for most scales."""
    if not 2.0**9 <= scale < 2.0**40:
        raise ValueError(f"noise on a lattice needs 512 to 2^40 steps in a scale, got {scale}.")
    return 2 ** math.floor(math.log2(scale / _CELLS))


def lattice_normals(bits: _Bits, shape: tuple[int, ...], scale: float) -> np.ndarray:
    """Draw integers that are distributed as normal variables rounded down.

    `bits` returns arrays of 64 random bits for each entry, and `scale`, the standard deviation, is
    in [2^9, 2^40). Returns whole numbers in float64, never -0.

    Probabilities are right up to a factor: no integer is missing and none is too frequent. A cell
    of about scale / 256 integers is found by inverse CDF from 51 random bits below the leading one,
    of which at least 2^40 values fall into each cell, however far out. Their discreteness and the
    rounding of ``ndtri`` change a cell's probability by a factor of about ``1 +- 1e-12`` (against
    40 digits: 6e-13 up to 7 scales, 1.4e-12 at 11). The place within the cell is drawn from the
    density at the middle of each unit interval, which is the integral over the interval up to ``1 /
    (12 scale^2)`` of it for all integers within 10 scales, compared with 48 random bits: a factor
    of ``1 +- 1e-14``. Where noise is shifted by less than a cell, the factors of most cells cancel.
    For p entries and a multiplier s, the log density of all entries together therefore has an
    error, between neighbours, of about ``1e-12 sqrt(p) 2^8 / s``: below 1e-6 for a million entries.
    The tail ends at 36 scales, beyond which there is a probability of 1e-280.
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

    `bits` and `scale` are as in :func:`lattice_normals`.

    The result is the difference of two geometric variables, each a cell of about scale / 256
    integers and a place in it, as in :func:`lattice_normals`. The probability of k has the same
    factor of ``1 +- 1e-12``, at most squared. The tail ends at 650 scales, beyond which there is a
    probability of 1e-280.
    """
    width = _cell_width(scale)
    cells = np.floor(-np.log(_fractions(bits, (2, *shape))[0]) * (scale / width))
    pair = _within_cells(bits, cells, width, lambda cells, places: places / -scale)
    return pair[0] - pair[1]
