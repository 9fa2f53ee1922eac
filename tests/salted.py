"""Seeds that a salt enters: ``pytest --salt TEXT``.

A seed that stands in a test makes one draw of data and noise permanent, and that draw may be a
lucky one. Under a salt, each seed gives the numbers of another: one that follows from the salt
and the seed alone, so that whatever has the same seed still draws the same numbers.
"""

import contextlib
import hashlib
import operator

import numpy as np

from dpsubspace._core.release import noise

__all__ = ["begin", "literally", "plain_states", "salted"]

_salts: list[str] = []  # the last one counts; "" is none

_Plain = np.random.RandomState
_default_rng, _seed_noise = np.random.default_rng, noise.SeededNoise.__init__


def salted(seed):
    """32 bits from the salt and a seed of one or more integers; other seeds as they are."""
    try:
        several = isinstance(seed, (tuple, list, np.ndarray))
        words = [operator.index(word) for word in (seed if several else (seed,))]
    except TypeError:
        return seed
    if not _salts or not _salts[-1] or not all(word >= 0 for word in words):
        return seed
    digest = hashlib.blake2b(repr((_salts[-1], words)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def begin(salt):
    """Have `salt` enter all seeds of this process, also of what is made at import."""
    if not _salts:
        np.random.default_rng = lambda seed=None: _default_rng(salted(seed))
        np.random.RandomState = np.random.mtrand.RandomState = _Salted
        noise.SeededNoise.__init__ = _begin_noise
        with contextlib.suppress(ImportError):
            import torch

            plain = torch.manual_seed
            torch.manual_seed = lambda seed: plain(salted(seed))
    _salts.append(salt)


@contextlib.contextmanager
def literally():
    """Have seeds mean what they say."""
    _salts.append("")
    try:
        yield
    finally:
        _salts.pop()


@contextlib.contextmanager
def plain_states():
    """Have seeds of a RandomState mean what they say, and no others.

    For what scikit-learn says of data that it draws by a literal seed: noise is still salted.
    """
    kept = np.random.RandomState
    np.random.RandomState = np.random.mtrand.RandomState = _Plain
    try:
        yield
    finally:
        np.random.RandomState = np.random.mtrand.RandomState = kept


class _AnyState(type):
    """What is a RandomState stays one, though the name has another meaning."""

    def __instancecheck__(cls, one):
        return isinstance(one, _Plain)


class _Salted(_Plain, metaclass=_AnyState):
    """A RandomState of a salted seed: what scikit-learn makes of an integer."""

    def __init__(self, seed=None):
        super().__init__(salted(seed))


def _begin_noise(self, *entropy):
    _seed_noise(self, *entropy)
    if (word := salted(entropy)) is not entropy:
        self._rng = np.random.Generator(np.random.PCG64DXSM(word))
