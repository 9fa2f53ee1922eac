"""Features of encoded rows that are not stored: formed anew, or of several numbers at once.

Design note, about rows that are formed chunk by chunk, from a number and a code for each column. An
encoded row of 30 columns has hundreds of numbers, which take twenty times the memory of the table,
and a step reads all of them. Forming them anew in every step takes half as long again as reading
them (``benchmarks/pages/many_rows.md``), if no operation is on a single column, or on few rows:
columns of curves come in doublings, ``T_{k+i} = 2 T_k T_i - T_{k-i}``, and categories by one
comparison of all features with codes. So tables are stored encoded where that needs little memory,
and formed in every step otherwise. Public sizes decide.

Arithmetic is in float32, from the first curve of each number, rounded once. The encoding of
``_core/tables/encoding.py`` is in float64 and rounded at the end. The two differ by less than 2e-5
of the largest value of a curve, and by a few units of rounding nearly everywhere.

Privacy: features are made by products, differences and comparisons of single entries, each of which
is rounded according to IEEE 754. So a row has the same features whichever rows are formed with it
(:mod:`dpsubspace._core.rows.chunks`). The exception is the first curve, a cosine, on some scales of
a logarithm, which libraries may round differently. It is computed once and stored, so that a fit
has a single value for it, whatever that is. Only where a neighbour has fewer rows of a person, so
that later rows are in other places, must a number have the same cosine at any place of a vector.
NumPy's cosine has this property, on all processors on which it was tried, and a test compares them.

Design note, about interactions of several numbers, as random features of encoded rows
(:class:`Interactions`). There are as many pairs of curves as pairs of columns, and they cannot
represent a product of three. Random features (Rahimi and Recht, 2007) of all numbers at once can,
if their frequencies are right: those of a column without information should be 0. So they are drawn
during a descent, by what it has released about the columns so far, and appended to the stored rows.
Their frequencies have Cauchy distributions, whose kernel is ``exp(-sum_i a_i |u_i - v_i|)``: it is
not smooth, so that steps of a column are learned as well as slopes. No rows use both: features of
several numbers are only added to stored rows (:func:`is_formed`).

Privacy: the random features of a row are a function of the row itself and of released and public
numbers. Frequencies are drawn by public randomness. Rows become longer by a share of their norm;
gradients are clipped to the same norm for any rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dpsubspace._core.ground.arrays import Array, as_like, device, namespace, slices
from dpsubspace._core.ground.forms import INTEGERS, Number, NumberArray, Record
from dpsubspace._core.rows.chunks import FormedRows, Layout, lent
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace._core.tables.kinds import type_of_codes
from dpsubspace._core.tables.schema import Table, frequencies, middles

# Rows that are formed ---------------------------------------------------------------------------

# Bytes of encoded rows above which they are formed in every step (1 GiB).
_MOST_KEPT = 1 << 30

_CHUNK = 1 << 13  # number of rows whose first curves are computed at once


def is_formed(encoding: Encoding, n_records: int) -> bool:
    """Whether encoded rows are formed in every step, by public sizes alone.

    Features of several numbers, which are added during a fit, need more memory than encoded rows,
    and rows with texts are sparse.
    """
    stored = encoding.interacting or encoding.schema.texts
    return not stored and 4 * n_records * encoding.n_features >= _MOST_KEPT


def formed_rows(table: Table, encoding: Encoding) -> FormedRows:
    """Encoded rows of a table that are formed when they are used."""
    form = _Forming(encoding)
    codes = np.ascontiguousarray(encoding.codes(table.numbers.T, table.codes.T))
    return FormedRows([form.first(table.numbers.T), codes], form, form.layout)


class _Forming:
    """Function that forms entries of rows from the first curve of each number and from codes.

    The entries are in the order in which they are formed: curves 1, 2, ... of all numbers, gaps of
    numbers, features of categories and their gaps, and pairs. `layout` maps them to features.
    """

    def __init__(self, encoding: Encoding):
        schema, kinds = encoding.schema, [kind for *_, kind in encoding.flags]
        self._encoding, self._cosines = encoding, encoding.curves == "cosines"
        self._gaps = [schema.numbers.index(name) for name in encoding._with_gaps(schema.numbers)]
        # An entry of a category is an indicator of one value of one column, less the share of this
        # value among all values where the code is known.
        of, values, parts, self._blocks = [], [], [], []
        for i, kind in enumerate(kinds):
            own = range(len(encoding._values(kind)))
            self._blocks.append(slice(len(of), len(of) + len(own)))
            of += [i for _ in own]
            values += own
            parts += [1 / len(kind.values) for _ in own]
        for name in encoding._with_gaps(schema.categories):
            of.append(schema.categories.index(name))
            values.append(encoding._kinds[name]._gap)
            parts.append(0.0)
        self._of = np.array(of, dtype=np.intp)
        self._values = np.array(values, dtype=type_of_codes(kinds))[:, None]
        self._parts = np.array(parts, dtype=np.float32)[:, None]
        self._few = encoding._of_pair if encoding._pairs else 0
        end = len(schema.numbers) * encoding.n_curves
        self._ends = end, end + len(self._gaps), end + len(self._gaps) + len(of)
        self.layout = self._layout(encoding, np.array(parts))

    def _layout(self, encoding: Encoding, parts: np.ndarray) -> Layout:
        """Places and sizes of the entries, with `parts` for those of categories."""
        d, n_curves, sizes = len(encoding.schema.numbers), encoding.n_curves, encoding._sizes
        own, gaps, flags, pairs = np.split(np.arange(encoding.n_features), self._ends)
        places = [own.reshape(d, n_curves).T.ravel(), gaps, flags]
        factors = [np.repeat(sizes.curves, d), np.full(len(gaps), sizes.gap)]
        factors.append(sizes.category / np.sqrt(1 - parts))
        if self._few:  # pairs of each number with all later ones, curve by curve
            starts = np.cumsum([0, *range(d - 1, 0, -1)])
            by_pair = pairs.reshape(-1, sizes.pairs.size)
            places += [by_pair[i:j].T.ravel() for i, j in pairwise(starts)]
            factors += [np.repeat(sizes.pairs, j - i) for i, j in pairwise(starts)]
        return Layout(np.concatenate(places), np.concatenate(factors))

    def first(self, numbers: np.ndarray) -> np.ndarray:
        """First curve (d, n) of each number, NaN where it is missing."""
        found = np.empty(numbers.shape, dtype=np.float32)
        for some in slices(numbers.shape[1], _CHUNK):
            scaled = self._encoding._scaled(numbers[:, some])
            found[:, some] = np.cos(np.pi * scaled) if self._cosines else 2 * scaled - 1
        return found

    def __call__(self, held: Sequence[np.ndarray]) -> np.ndarray:
        """Entries (p, m) of rows whose first curves (d, m) and codes (c, m) are stored."""
        first, codes = held
        (d, m), n_curves, width = first.shape, self._encoding.n_curves, len(self.layout.places)
        whole = lent((2 * d + width, m), np.float32)
        zeroth, spare, entries = whole[:d], whole[d : 2 * d], whole[2 * d :]
        first_gap, first_flag, first_pair = self._ends
        curves = entries[:first_gap].reshape(n_curves, d, m)
        with _no_buffers():
            self._write_first(first, zeroth, curves[0], entries[first_gap:first_flag])
            (_write_cosines if self._cosines else _write_polynomials)(zeroth, curves, spare)
            if len(self._of):
                self._write_flags(codes, entries[first_flag:first_pair])
            if self._few:
                _write_pairs(curves[: self._few], entries[first_pair:])
        return entries

    def _write_first(
        self, first: np.ndarray, zeroth: np.ndarray, now: np.ndarray, gaps: np.ndarray
    ) -> None:
        """Write curve 0, which is 1, and curve 1 of each number: zeros where it is missing."""
        zeroth[...] = 1.0
        now[...] = first
        if self._gaps:
            own = first[self._gaps]
            missing = np.isnan(own)
            own[missing] = 0.0
            now[self._gaps], zeroth[self._gaps] = own, ~missing
            gaps[...] = missing

    def _write_flags(self, codes: np.ndarray, flags: np.ndarray) -> None:
        """Write centred indicators of the values of categories, and of gaps."""
        own = lent(flags.shape, codes.dtype)
        np.take(codes, self._of, axis=0, out=own, mode="clip")  # this mode needs no copy
        flags[...] = np.equal(own, self._values, out=lent(flags.shape, bool))
        flags -= self._parts
        strange = codes < 0
        for i in np.flatnonzero(strange.any(axis=1)):
            flags[self._blocks[i], strange[i]] = 0.0


@contextmanager
def _no_buffers() -> Iterator[None]:
    """Prevent NumPy from copying columns into its buffers where others are broadcast to them.

    It would do so where two or more fit into one buffer, and then take three times as long.
    """
    before = np.setbufsize(16)
    try:
        yield
    finally:
        np.setbufsize(before)


def _write_cosines(zeroth: np.ndarray, curves: np.ndarray, twice: np.ndarray) -> None:
    """Write curves (k, d, m), given the first of them: those of Chebyshev, in doublings."""
    k, number = 1, len(curves)
    while k < number:
        more = min(k, number - k)
        np.multiply(curves[k - 1], np.float32(2), out=twice)
        new = curves[k : k + more]
        np.multiply(curves[:more], twice, out=new)
        if more == k:
            new[-1] -= zeroth
            new = new[:-1]
        new -= curves[k - 1 - len(new) : k - 1][::-1]
        k += more


def _write_polynomials(zeroth: np.ndarray, curves: np.ndarray, spare: np.ndarray) -> None:
    """Write curves (k, d, m), given the first of them: polynomials of Legendre."""
    before = zeroth
    for j in range(1, len(curves)):
        new = curves[j]
        np.multiply(curves[0], curves[j - 1], out=new)
        new *= np.float32((2 * j + 1) / (j + 1))
        np.multiply(before, np.float32(j / (j + 1)), out=spare)
        new -= spare
        before = curves[j - 1]


def _write_pairs(few: np.ndarray, pairs: np.ndarray) -> None:
    """Write the products of all pairs of curves (k, d, m) of two different numbers."""
    (k, d, m), start = few.shape, 0
    for i in range(d - 1):
        later = d - 1 - i
        stop = start + k * k * later
        block = pairs[start:stop].reshape(k, k, later, m)
        np.multiply(few[:, None, i, None], few[None, :, i + 1 :], out=block)
        start = stop


# Features of several numbers --------------------------------------------------------------------

# Number of random frequencies, each of which gives a cosine and a sine; largest number of columns;
# and largest frequency, over pi divided by the range of a column.
_FREQUENCIES, _COLUMNS_MOST, _LARGEST = 300, 16, 60.0
# Scale of the frequencies if one column has all of it, and the ratio above which the scale grows
# with the square root of the ratio; the part of the scale that is the same for all columns, and the
# power of their shares that determines the rest. Chosen while looking at eight tables
# (benchmarks/pages/table_interactions.md), a few seeds each. On seven others the features do not
# pay.
_SCALE, _FINER_FROM = 6.0, 2000.0
_ALIKE, _POWER = 0.1, 1.25
_LEAST = 0.01  # Share of the norm of rows below which nothing is added
_PLACES = 48  # number of places of a column at which its distribution is estimated
_ENTRIES, _SCORED = 1 << 18, 1 << 12  # numbers of entries, and of rows, that are computed at once


@dataclass(frozen=True, eq=False)
class Interactions:
    """Random features of the numbers of encoded rows."""

    places: np.ndarray  # (k,): features that are first cosines of numbers
    size: float  # Largest value of these features
    frequencies: np.ndarray  # (k, m), in float32
    means: np.ndarray  # (2 m,): subtracted from the features, about their mean
    share: float  # Largest share of the squared norm of a row

    @property
    def width(self) -> int:
        return len(self.means)

    @property
    def longest(self) -> float:
        """Bound on the norm of the features of a row."""
        return 1.0 + float(np.linalg.norm(self.means))

    def scores(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Scores (n, c) of rows (n, p) by weights (2 m, c), for some rows at a time."""
        found = np.empty((len(rows), weights.shape[1]))
        for some in slices(len(rows), _SCORED):
            found[some] = self(rows[some]) @ weights
        return found

    def averaged(self, rows: np.ndarray, named: np.ndarray) -> np.ndarray:
        """Means (n, 2 m) of the features, given only some numbers of the rows.

        Numbers whose first feature is not among those `named` are uniform on their scales, and
        independent of each other.
        """
        own, root = np.isin(self.places, named), math.sqrt(self.frequencies.shape[1])
        first = np.clip(rows[:, self.places[own]] / self.size, -1.0, 1.0)
        angles = (np.arccos(first) / math.pi - 0.5) @ self.frequencies[own]
        others = np.sinc(self.frequencies[~own] / (2 * math.pi)).prod(axis=0) / root
        parts = [np.cos(angles) * others, np.sin(angles) * others]
        return np.concatenate(parts, axis=1) - self.means

    def __call__(self, rows: Array) -> Array:
        """Features (n, 2 m) of encoded rows (n, p), computed independently.

        Products are added up number by number, so that the features of a row do not depend on its
        place, as they would where BLAS adds up. Rows of persons may be in any place.
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

    `means` are released means of encoded rows, (p,); with None, numbers are assumed to be uniform
    on their scales. The result is None where the share of the numbers is negligible.
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
    """Places of a number about the middle of its scale, and the frequency of each place."""
    places = middles(_PLACES)
    if means is None:
        return places - 0.5, np.full(_PLACES, 1 / _PLACES)
    at = encoding.blocks[name][: encoding.n_curves]
    orders = np.arange(1, encoding.n_curves + 1)
    entries = encoding.curve_sizes * np.cos(np.pi * np.outer(places, orders))
    if encoding.schema[name].missing:  # has no curve, and no part in any angle
        places, entries = np.append(places, 0.5), np.vstack([entries, 0 * orders])
    return places - 0.5, frequencies(entries, means[at])
