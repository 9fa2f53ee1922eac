"""What several numbers of a table do together, as random features of encoded rows.

Design note. Pairs of curves are as many as pairs of columns, and cannot tell a product of three.
Random features (Rahimi and Recht, 2007) of all numbers at once can, if their frequencies are
right: those of a column that tells nothing should be 0. So they are drawn during a descent, by what
it has released of the columns so far, and added to rows that are there. Their frequencies have
Cauchy distributions, of which the kernel is ``exp(-sum_i a_i |u_i - v_i|)``: it is not smooth, so
that steps of a column are learned as well as slopes.

Privacy: the features of a row follow from the row itself and from released and public numbers.
Frequencies are drawn by public randomness. Rows become longer by a share of their norm; gradients
are clipped to the same norm, whatever rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsubspace._core.ground.arrays import Array, as_like, device, namespace, slices
from dpsubspace._core.ground.forms import INTEGERS, Number, NumberArray, Record
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace._core.tables.marginals import frequencies, middles

# Random frequencies, each of which gives a cosine and a sine; of how many columns, at most; and the
# largest frequency, over pi of the range of a column.
_FREQUENCIES, _COLUMNS_MOST, _LARGEST = 300, 16, 60.0
# Scale of the frequencies of one column that has all, and the ratio from which on it grows with its
# square root; what columns have of it alike, and the power of their shares that decides the rest.
# Chosen while looking at eight tables (benchmarks/pages/table_interactions.md), a few seeds each.
# On seven others the features do not pay.
_SCALE, _FINER_FROM = 6.0, 2000.0
_ALIKE, _POWER = 0.1, 1.25
_LEAST = 0.01  # Share of the norm of rows below which nothing is added
_PLACES = 48  # of a column, where its distribution is told
_ENTRIES, _SCORED = 1 << 18, 1 << 12  # entries that are computed at once, and rows


@dataclass(frozen=True, eq=False)
class Interactions:
    """Random features of the numbers of encoded rows."""

    places: np.ndarray  # (k,): features that are first cosines of numbers
    size: float  # Largest value of these
    frequencies: np.ndarray  # (k, m), in float32
    means: np.ndarray  # (2 m,): what is subtracted, about the mean of the features
    share: float  # Of the squared norm of a row, at most

    @property
    def width(self) -> int:
        return len(self.means)

    @property
    def longest(self) -> float:
        """Bound on the norm of the features of a row."""
        return 1.0 + float(np.linalg.norm(self.means))

    def scores(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Scores (n, c) of rows (n, p) by weights (2 m, c), some rows at a time."""
        found = np.empty((len(rows), weights.shape[1]))
        for some in slices(len(rows), _SCORED):
            found[some] = self(rows[some]) @ weights
        return found

    def averaged(self, rows: np.ndarray, named: np.ndarray) -> np.ndarray:
        """Means (n, 2 m) of the features, where only some numbers are those of the rows.

        Numbers whose first feature is not among those `named` are even on their scales, and
        independent of each other.
        """
        own, root = np.isin(self.places, named), math.sqrt(self.frequencies.shape[1])
        first = np.clip(rows[:, self.places[own]] / self.size, -1.0, 1.0)
        angles = (np.arccos(first) / math.pi - 0.5) @ self.frequencies[own]
        others = np.sinc(self.frequencies[~own] / (2 * math.pi)).prod(axis=0) / root
        parts = [np.cos(angles) * others, np.sin(angles) * others]
        return np.concatenate(parts, axis=1) - self.means

    def __call__(self, rows: Array) -> Array:
        """Features (n, 2 m) of encoded rows (n, p), each by itself.

        Products are added up number by number: what a row becomes does not depend on where it
        lies, as it does where BLAS adds up. Rows of persons may lie anywhere.
        """
        xp, m = namespace(rows), len(self.means) // 2
        found = xp.empty((rows.shape[0], 2 * m), dtype=rows.dtype, device=device(rows))
        waves, means = as_like(self.frequencies, rows), as_like(self.means, rows)
        for some in slices(rows.shape[0], max(1, _ENTRIES // max(m, 1))):
            angles = xp.zeros_like(found[some, :m])
            for place, wave in zip(self.places.tolist(), waves, strict=True):
                first = xp.clip(rows[some, place] / self.size, -1.0, 1.0)
                angles += (xp.acos(first) / math.pi - 0.5)[:, None] * wave[None, :]
            found[some, :m] = xp.cos(angles) / math.sqrt(m)
            found[some, m:] = xp.sin(angles) / math.sqrt(m)
            found[some, :] -= means[None, :]
        return found


INTERACTIONS_FORM = Record(
    Interactions,
    places=NumberArray(("places",), types=INTEGERS, low=0, below="features"),
    size=Number(0),
    frequencies=NumberArray(("places", "frequencies")),
    means=NumberArray(("interactions",)),
    share=Number(0, 1),
)


def drawn(
    encoding: Encoding,
    shares: np.ndarray,
    means: np.ndarray | None,
    rng: np.random.Generator,
) -> Interactions | None:
    """Random features by shares of columns and pairs, (g,), as in :attr:`Encoding.groups`.

    `means` are released means of encoded rows, (p,); None takes numbers to be even on their
    scales. None is returned where the numbers have next to no share.
    """
    numbers = encoding.schema.numbers
    found = encoding.shares_of_columns(shares)
    own = np.array([found[name] for name in numbers])
    share = encoding.interacting * float(own.sum())
    if len(own) < 2 or share < _LEAST:
        return None
    kept = np.sort(np.argsort(-own, kind="stable")[:_COLUMNS_MOST])
    scales = _ALIKE / len(numbers) + (1 - _ALIKE) * own**_POWER / (own**_POWER).sum()
    scales = _SCALE * math.sqrt(max(1.0, min(encoding.ratio / _FINER_FROM, 100.0))) * scales[kept]
    waves = rng.standard_cauchy((len(kept), _FREQUENCIES)) * scales[:, None]
    waves = np.clip(waves, -_LARGEST, _LARGEST).astype(np.float32)
    places = np.array([encoding.blocks[numbers[i]][0] for i in kept])
    usual: np.ndarray = np.ones(_FREQUENCIES, dtype=np.complex128)
    for i, wave in zip(kept, waves, strict=True):
        at, often = _distribution(encoding, numbers[i], means)
        usual = usual * (np.exp(1j * np.outer(wave, at)) @ often)
    means = np.concatenate([np.real(usual), np.imag(usual)]) / math.sqrt(_FREQUENCIES)
    return Interactions(places, float(encoding.curve_sizes[0]), waves, means, share)


def _distribution(
    encoding: Encoding, name: str, means: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Places of a number about the middle of its scale, and how often each of them is."""
    places = middles(_PLACES)
    if means is None:
        return places - 0.5, np.full(_PLACES, 1 / _PLACES)
    at = encoding.blocks[name][: encoding.n_curves]
    orders = np.arange(1, encoding.n_curves + 1)
    entries = encoding.curve_sizes * np.cos(np.pi * np.outer(places, orders))
    if encoding.schema[name].missing:  # no curve, and no part in any angle
        places, entries = np.append(places, 0.5), np.vstack([entries, 0 * orders])
    return places - 0.5, frequencies(entries, means[at])
