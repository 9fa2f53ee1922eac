"""Encoding of a table as rows from which a linear model learns a curve of every column.

Nothing here uses private rows for a decision. An encoded row is a function of the row itself and of
public quantities: the schema, the number of rows and the budget.

Design note. For a model that takes rows of bounded norm, the features are ``cos(pi j u) / j`` for j
= 1, 2, ... of a number u on its range from 0 to 1, a centred one-hot vector of a category, zeros
and an indicator of a declared gap, and hashed words of a text. Rows have a norm of at most 1,
however many features they have, and the noise of a score does not depend on that number. So
decaying weights let a model learn the coarse shape of a column where noise is large, and its
details where the budget allows, without any tuning. Bins of equal weight lose up to 8 points of AUC
in the first case.

A model that scales every column independently would undo such weights, and its noise grows with the
number of columns. It gets Legendre polynomials of each number and products of two, and weights for
them after scaling (:attr:`Encoding.importance`): all alike where the budget carries them, and
smaller for finer features where it does not. So there is no ratio at which a model changes
abruptly. ``benchmarks/repro_tables.py`` has the figures, and ``benchmarks/pages/tables.md`` lists
the tables on which the constants below were chosen.

Proof that rows have a norm of at most 1. A row is made of blocks: one for each number, of norm at
most 2 w (the squares of its decaying weights add up to 4 w^2, cosines are at most 1, and where the
value is missing there is the indicator alone); one for each category and each part of a date, of
norm w or 0; one for each text, of norm 4 w (1 + 2^-30) or 0; and all pairs together, of squared
norm at most s. With d numbers, c categories and parts and t texts, ``w^2 = S^2 (1 - s) / (4 d + c +
16 t)``, so that all squares add up to S^2 (1 + 2^-28) at most, for S = 1 - 2^-22. Rounding to
float32 adds at most 2^-24 of an entry, and (1 - 2^-22) (1 + 2^-29) (1 + 2^-24) is below 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.ground.forms import Flag, Form, Maybe, Number, Reading, Record, Whole
from dpsubspace._core.tables.kinds import UNKNOWN, Categories, off_log, on_log
from dpsubspace._core.tables.schema import SCHEMA_FORM

if TYPE_CHECKING:
    from dpsubspace._core.tables.schema import Schema, Table


Pair = tuple[float, float]

# Value of `interactions` with which a model adds features of several numbers, by what it has
# learned about the numbers.
LEARNED = "learned"

# Resolution of the encoding, by r = n_samples / sigma of the whole fit as one Gaussian release. For
# rows of bounded norm: the number of cosines of a number, and the decay of their weights.
_COSINES, _MORE_COSINES, _MORE_FROM = 8, 16, 4000
_DECAY, _FASTER, _FASTER_BELOW = 1.0, 1.25, 100
_PAIRS_FROM, _PAIRS_MOST, _PAIRS_SHARE = 1200, 16, 0.3
_OF_PAIR = 2  # number of curves of each of two numbers
# Share of the norm that random features of several numbers may have where the ratio is large, and
# the ratio at which the share is half of that.
_TOGETHER, _TOGETHER_FROM = 0.25, 1200
# Columns that are scaled independently come in levels: numbers and categories, polynomials up to
# these degrees, products of two numbers, and those with one of degree 2. A level has weight 1/2
# where r is `_CARRIED` times the number of columns up to it. The odds of the weight change with r
# to the power `_STEEPNESS`. Levels of a weight below `_LEAST` are left out.
_DEGREES = (1, 2, 4, 8)
_CARRIED, _STEEPNESS, _LEAST = 14, 3, 0.01
_COLUMNS_MOST = 20  # most numbers for which there are pairs

# Norms of their blocks, before rows are divided by their bound. That of texts was chosen on
# sentences of the documentation of Python packages beside four numbers (1,000 and 6,000 rows,
# epsilon 1 and 4): with 4 in place of 2, AUC is higher by 0.1 to 3.3 points, and lower by 0.2 at
# most where the texts say nothing.
_NUMBER, _CATEGORY, _TEXT = 2.0, 1.0, 4.0
# float32 rounds an entry up by at most half of 2^-23 of it; rows are shrunk by more.
_SHRUNK = 1 - 2.0**-22
_CHUNK = 1 << 17  # entries that are encoded at once: they should fit into the cache


@dataclass(frozen=True)
class Encoding:
    """Map from rows of a table to rows of numbers: public, or released where ranges are private."""

    schema: Schema  # Public facts about the columns
    n_curves: int  # Curves of a number, from j = 1 on
    pairs: bool  # Whether products of curves of two numbers are features as well
    # Curve j has a weight in proportion to ``j**-decay``, and rows have a norm of at most 1. None
    # maps each column to [-1, 1] independently.
    decay: float | None
    # Number of rows over the noise of the fit, which determines the weights of independent columns.
    ratio: float
    # Ranges of numbers. Public ranges of the schema are known from the start; private ones are
    # added by :meth:`with_ranges`.
    ranges: tuple[tuple[str, Pair], ...]
    # Share of the squared norm of a row that random features of several numbers may have, where a
    # model adds any (:mod:`dpsubspace._core.tables.forming`).
    interacting: float = 0.0

    # Properties of encoded rows ---------------------------------------------------------------

    @property
    def by_column(self) -> bool:
        """Whether each column is mapped to [-1, 1] independently."""
        return self.decay is None

    @property
    def curves(self) -> str:
        """Features of a number u: ``cos(pi j u)``, or Legendre polynomials of ``2 u - 1``."""
        return "polynomials" if self.by_column else "cosines"

    @property
    def n_features(self) -> int:
        return len(self.names)

    @property
    def n_dense(self) -> int:
        """Number of features without those of texts, which come last and are sparse."""
        return self.n_features - sum(self._text_sizes)

    @property
    def text_square(self) -> float:
        """Squared norm that texts with words add to a row."""
        return len(self._text_sizes) * self._sizes.text**2

    @cached_property
    def _text_sizes(self) -> list[int]:
        return [self._kinds[name].n_features for name in self.schema.texts]

    @cached_property
    def bound(self) -> float:
        """Largest norm that an encoded row can have."""
        if self.decay is None:
            return float(np.linalg.norm(np.maximum(*np.abs(self.extent))))
        return 1.0

    @cached_property
    def importance(self) -> np.ndarray | None:
        """Factors of scaled columns, (n_features,); None where all have the same weight."""
        if self.decay is not None or self.ratio == math.inf:
            return None
        counts = np.append(_carried(_level_sizes(self.schema), self.ratio), 1.0)
        found = np.sqrt(counts[self.levels])
        return found.astype(np.float32).astype(np.float64)  # the same value in both types

    @cached_property
    def levels(self) -> np.ndarray:
        """Number of the level of each feature, (n_features,); -1 for categories and gaps."""
        curves = np.searchsorted(_DEGREES, np.arange(1, self.n_curves + 1))
        degree = np.arange(1, self._of_pair + 1)
        pairs = len(_DEGREES) + (np.maximum.outer(degree, degree) > 1).ravel()
        own = np.tile(curves, len(self.schema.numbers))
        n_others = self.n_features - len(own) - len(self._pairs) * len(pairs)
        return np.concatenate([own, np.full(n_others, -1), np.tile(pairs, len(self._pairs))])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of features: "age:cos1", "age:missing", "ward=A", "age:cos1*hours:cos2"."""
        schema, few = self.schema, range(1, self._of_pair + 1)
        names = [self._curve(a, j) for a in schema.numbers for j in range(1, self.n_curves + 1)]
        names += [f"{a}:missing" for a in self._with_gaps(schema.numbers)]
        names += [f"{a}={value}" for a, _, kind in self.flags for value in self._values(kind)]
        names += [f"{a}:missing" for a in self._with_gaps(schema.categories)]
        pairs = [(a, b, j, k) for a, b in self._pairs for j in few for k in few]
        names += [f"{self._curve(a, j)}*{self._curve(b, k)}" for a, b, j, k in pairs]
        for name, size in zip(schema.texts, self._text_sizes, strict=True):
            names += [f"{name}:hash{j}" for j in range(size)]
        return _distinct(names)

    @cached_property
    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest possible value of each feature, of shape (n_features,)."""
        schema, sizes = self.schema, self._sizes
        curves = np.tile(sizes.curves, len(schema.numbers))
        gaps = np.full(len(self._with_gaps(schema.numbers)), sizes.gap)
        counts = np.array([len(kind.values) for *_, kind in self.flags for _ in self._values(kind)])
        shares = 1 / counts if len(counts) else np.zeros(0)
        unit = sizes.category / np.sqrt(1 - shares)
        others = np.full(len(self._with_gaps(schema.categories)), sizes.category)
        pairs = np.tile(sizes.pairs.ravel(), len(self._pairs))
        texts = np.full(sum(self._text_sizes), sizes.text)
        least = [-curves, 0 * gaps, -unit * shares, 0 * others, -pairs, -texts]
        most = [curves, gaps, unit * (1 - shares), others, pairs, texts]
        return np.concatenate(least), np.concatenate(most)

    @cached_property
    def blocks(self) -> dict[str, np.ndarray]:
        """Indices of the features of each column alone and of its parts, without its pairs."""
        schema, at = self.schema, 0
        found: dict[str, list[int]] = {name: [] for name in schema}
        sizes = [(name, self.n_curves) for name in schema.numbers]
        sizes += [(name, 1) for name in self._with_gaps(schema.numbers)]
        sizes += [(name, len(self._values(kind))) for _, name, kind in self.flags]
        sizes += [(name, 1) for name in self._with_gaps(schema.categories)]
        for name, size in sizes:
            found[name] += range(at, at := at + size)
        at = self.n_dense
        for name, size in zip(schema.texts, self._text_sizes, strict=True):
            found[name] += range(at, at := at + size)
        return {name: np.array(places, dtype=np.intp) for name, places in found.items()}

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Group of each feature, a column or pair of columns, (n_features,); and shares of groups.

        The shares are those of each group in the largest squared norm of a row. Parts of dates are
        the last groups.
        """
        sizes, kinds = self._sizes, self._kinds
        of = np.empty(self.n_features, dtype=np.intp)
        for i, at in enumerate(self.blocks.values()):
            of[at] = i
        alone = [self._size_of(kind) for kind in kinds.values()]
        pairs = np.full(len(self._pairs), np.linalg.norm(sizes.pairs))
        of[self.n_dense - pairs.size * sizes.pairs.size : self.n_dense] = len(alone) + np.repeat(
            np.arange(pairs.size), sizes.pairs.size
        )
        parts = self.parts.values()
        for i, at in enumerate(parts, start=len(alone) + pairs.size):
            of[at] = i
        squares = np.concatenate([alone, pairs, np.full(len(parts), sizes.category)]) ** 2
        return of, squares / squares.sum()

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """Indices of the features of each part of a date, which are those of its column too."""
        first = self.n_curves * len(self.schema.numbers)
        first += len(self._with_gaps(self.schema.numbers))
        ends = first + np.cumsum([len(self._values(kind)) for *_, kind in self.flags])
        own = zip(self.flags, np.append(first, ends), ends, strict=False)
        return {a: np.arange(i, j) for (a, column, _), i, j in own if a != column}

    def _size_of(self, kind: Any) -> float:
        """Largest norm of the block of a column, without parts of dates."""
        if kind._textual:
            return self._sizes.text
        return self._sizes.category if kind._categorical else self._sizes.gap

    def shares_of_columns(self, shares: np.ndarray) -> dict[str, float]:
        """Shares of the single columns in their sum, for shares of columns and pairs (g,).

        Those of parts of dates are left out.
        """
        found = dict(zip(self.schema, shares.tolist(), strict=False))
        for pair, share in zip(self._pairs, shares[len(found) :].tolist(), strict=False):
            for name in pair:
                found[name] += share / 2
        total = sum(found.values())
        return {name: share / total for name, share in found.items()}

    @property
    def curve_sizes(self) -> np.ndarray:
        """Largest values of the curves of a number, (n_curves,)."""
        return self._sizes.curves

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        return dict(self.schema)

    @cached_property
    def flags(self) -> list[tuple[str, str, Any]]:
        """Name, column and kind of each category, and of each part of a date after these."""
        return [(a, a, self._kinds[a]) for a in self.schema.categories] + _parts(self.schema)

    def codes(self, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Codes of categories and of parts of dates, of rows with numbers (d, m) and codes (c, m).

        A missing date has unknown parts.
        """
        own = dict(zip(self.schema.numbers, numbers, strict=True))
        more = []
        for name in self.schema.numbers:
            for _, code_of in self._kinds[name]._parts.values():
                there = ~np.isnan(own[name])
                days = np.floor(np.where(there, own[name], 0)).astype(np.int64)
                more.append(np.where(there, code_of(days), UNKNOWN))
        return np.concatenate([codes, more], dtype=codes.dtype, casting="unsafe") if more else codes

    def _with_gaps(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if self._kinds[name].missing)

    def _curve(self, name: str, j: int) -> str:
        if self.curves == "cosines":
            return f"{name}:cos{j}"
        return name if j == 1 else f"{name}:poly{j}"

    def _values(self, kind: Any) -> tuple[Any, ...]:
        """Values of a category that have a feature: of two values, one determines the other."""
        values = kind.values
        return values[:1] if self.decay is None and len(values) == 2 else values

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.schema.numbers, 2)) if self.pairs else []

    @property
    def _of_pair(self) -> int:
        return min(_OF_PAIR, self.n_curves)

    @cached_property
    def _sizes(self) -> _Sizes:
        few = self._of_pair
        if self.decay is None:
            return _Sizes(np.ones(self.n_curves), 1.0, 1.0, 1.0, np.ones((few, few)))
        d, c, t = len(self.schema.numbers), len(self.flags), len(self.schema.texts)
        share = _PAIRS_SHARE if self._pairs else 0.0
        parts = _NUMBER**2 * d + _CATEGORY**2 * c + _TEXT**2 * t
        unit = _SHRUNK * np.sqrt((1 - share) / parts)
        part = _SHRUNK * np.sqrt(share / max(1, len(self._pairs)))
        of_pair = _decaying(few, _DECAY)
        pairs = part * np.outer(of_pair, of_pair)
        return _Sizes(
            _NUMBER * unit * _decaying(self.n_curves, self.decay),
            _NUMBER * unit,
            _CATEGORY * unit,
            _TEXT * unit,
            pairs,
        )

    # Ranges -----------------------------------------------------------------------------------

    def with_ranges(self, ranges: Mapping[str, Pair]) -> Encoding:
        """Return the encoding with released private ranges, by column."""
        known = dict(self.ranges)
        known |= {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
        return replace(self, ranges=tuple((a, known[a]) for a in self.schema.numbers if a in known))

    # The map ----------------------------------------------------------------------------------

    def __call__(self, table: Table) -> Any:
        """Return the encoded rows of `table`, of shape (n, n_features), in float32.

        They are a CSR array if there are texts.
        """
        rows = self.dense(table)
        if not self.schema.texts:
            return rows
        texts = [self._sizes.text * each for each in table.texts]
        parts = [sparse.csr_array(rows), *(each.astype(np.float32) for each in texts)]
        return sparse.csr_array(sparse.hstack(parts, format="csr"))

    def dense(self, table: Table) -> np.ndarray:
        """Return the features of `table` without those of texts, (n, n_dense), in float32."""
        if unknown := [a for a in self.schema.numbers if a not in dict(self.ranges)]:
            raise ValueError(f"the ranges of {unknown} have not been estimated yet: fit first.")
        rows = np.empty((len(table.numbers), self.n_dense), dtype=np.float32)
        # Columns are written one after the other, which is fast, and transposed in the cache.
        chunk = max(64, _CHUNK // max(self.n_dense, 1))
        columns = np.empty((self.n_dense, chunk), dtype=np.float32)
        for some in slices(len(rows), chunk):
            part = columns[:, : some.stop - some.start]
            self._write(table.numbers[some].T, table.codes[some].T, part)
            rows[some] = part.T
        return rows

    def _write(self, numbers: np.ndarray, codes: np.ndarray, columns: np.ndarray) -> None:
        """Write the features (n_dense, m) of rows with numbers (d, m) and codes (c, m)."""
        schema, sizes, d = self.schema, self._sizes, len(self.schema.numbers)
        end, gaps = d * self.n_curves, np.isnan(numbers)
        block = columns[:end].reshape(d, self.n_curves, columns.shape[1])
        few = self._write_curves(self._scaled(numbers), gaps, block)
        for name in self._with_gaps(schema.numbers):
            columns[end] = sizes.gap * gaps[schema.numbers.index(name)]
            end += 1
        for (*_, kind), own in zip(self.flags, self.codes(numbers, codes), strict=True):
            start, end = end, end + len(self._values(kind))
            _write_category(own, len(kind.values), sizes.category, columns[start:end])
        for name in self._with_gaps(schema.categories):
            own = codes[schema.categories.index(name)]
            columns[end] = sizes.category * (own == self._kinds[name]._gap)
            end += 1
        if self._pairs:
            _write_pairs(few, sizes.pairs, columns[end:])

    def _write_curves(
        self, scaled: np.ndarray, gaps: np.ndarray, block: np.ndarray
    ) -> list[np.ndarray]:
        """Write the curves of every number, zeros where it is missing; returns the first few."""
        cosines = self.curves == "cosines"
        first = np.cos(np.pi * scaled) if cosines else 2 * scaled - 1
        first[gaps] = 0.0
        before, now, twice, few = (~gaps).astype(float), first, 2 * first, []
        for j, size in enumerate(self._sizes.curves):
            np.multiply(now, size, out=block[:, j], casting="same_kind")
            few += [now] if self.pairs and j < self._of_pair else []
            if cosines:  # the recurrences of Chebyshev and of Legendre
                after = twice * now
                after -= before
                before, now = now, after
            else:
                before, now = now, ((2 * j + 3) * first * now - (j + 1) * before) / (j + 2)
        return few

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        """Map numbers (d, m) from their ranges to [0, 1]."""
        known = dict(self.ranges)
        ends = np.array([known[a] for a in self.schema.numbers]).reshape(-1, 2)
        low, high = ends[:, :1], ends[:, 1:]
        scaled = (np.clip(numbers, low, high) - low) / (high - low)
        for i, name in enumerate(self.schema.numbers):
            if self._kinds[name].log:
                scaled[i] = on_log(scaled[i], *ends[i])
        return scaled

    def numbers_at(self, name: str, places: np.ndarray) -> np.ndarray:
        """Numbers of a column at places from 0 to 1 on its scale, whole ones for days."""
        low, high = dict(self.ranges)[name]
        if self._kinds[name].log:
            places = off_log(places, low, high)
        found = np.clip(low + (high - low) * places, low, high)
        return np.round(found) if self._kinds[name]._parts else found


def _parts(schema: Schema) -> list[tuple[str, str, Any]]:
    """Name, column and kind of all that follows from dates: "visit:month" of "visit"."""
    return [
        (f"{name}:{part}", name, Categories(tuple(values)))
        for name in schema.numbers
        for part, (values, _) in schema[name]._parts.items()
    ]


class _Ranges(Form):
    """Ranges of numbers by the names of their columns."""

    def plain(self, value: Any) -> dict[str, list[float]]:
        return {name: [float(low), float(high)] for name, (low, high) in value}

    def read(self, plain: Any, here: Reading) -> tuple[tuple[str, Pair], ...]:
        if not isinstance(plain, dict):
            here.wrong("an object of ranges by the names of columns", plain)
        found = []
        for name, ends in plain.items():
            if not isinstance(ends, list) or len(ends) != 2:
                here.at(name).wrong("a list of two numbers", ends)
            low, high = (Number(-1e60, 1e60).read(end, here.at(name)) for end in ends)
            if not low < high:
                here.at(name).wrong("a list of two numbers, the lower one first", ends)
            found.append((name, (low, high)))
        return tuple(found)


def _read_encoding(**parts: Any) -> Encoding:
    """Build an encoding of parts that were read; ValueError where they do not fit each other."""
    found = Encoding(**parts)
    if [name for name, _ in found.ranges] != [*found.schema.numbers]:
        raise ValueError("`ranges` must have all columns of numbers of the schema, in its order.")
    if found.decay is None and found.schema.texts:
        raise ValueError("`decay` must be a number where the schema has texts.")
    if found.pairs and len(found.schema.numbers) < 2:
        raise ValueError("`pairs` needs two columns of numbers.")
    return found


ENCODING_FORM = Record(
    _read_encoding,
    schema=SCHEMA_FORM,
    n_curves=Whole(1, max(_MORE_COSINES, *_DEGREES)),
    pairs=Flag(),
    decay=Maybe(Number(0, 100)),
    ratio=Number(0, math.inf),
    ranges=_Ranges(),
    interacting=Number(0, 1),
)


@dataclass(frozen=True)
class _Sizes:
    """Largest values of features: curves, gaps, categories, texts, and pairs of curves."""

    curves: np.ndarray
    gap: float
    category: float
    text: float
    pairs: np.ndarray


def _decaying(number: int, decay: float) -> np.ndarray:
    """Weights in proportion to ``j**-decay``, whose squares add up to 1."""
    weights = np.arange(1.0, number + 1) ** -decay
    return weights / np.linalg.norm(weights)


def _write_category(codes: np.ndarray, count: int, size: float, block: np.ndarray) -> None:
    """Write a centred one-hot vector of norm `size`; zeros where a value is unknown or missing.

    Only its first entries are written where `block` has fewer rows than the `count` values.
    """
    unit = size / np.sqrt(1 - 1 / count)
    block[:] = np.where(codes >= 0, -unit / count, 0.0)
    there = np.flatnonzero((codes >= 0) & (codes < len(block)))
    block[codes[there], there] = unit * (1 - 1 / count)


def _write_pairs(few: list[np.ndarray], sizes: np.ndarray, block: np.ndarray) -> None:
    """Write the products of every pair of first curves of two different numbers."""
    places = np.triu_indices(len(few[0]), 1)
    of_one, of_other = ([curve[own] for curve in few] for own in places)
    for place, ((j, k), size) in enumerate(np.ndenumerate(sizes)):
        products = of_one[j] * of_other[k]
        np.multiply(products, size, out=block[place :: sizes.size], casting="same_kind")


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Make names distinct by a number after those that occurred before."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return tuple(found)


# Choice of the encoding -------------------------------------------------------------------------


def encoding_for(
    schema: Schema,
    ratio: float,
    *,
    interactions: bool | str = "auto",
    by_column: bool = False,
    alike: bool = False,
) -> Encoding:
    """Return the encoding of a table, as fine as the budget allows.

    The ratio is the number of rows over the noise multiplier of the whole fit as one Gaussian
    release, inf without privacy. With `interactions` pairs of numbers get features of their own;
    "auto" adds them where the ratio is large and the table has not too many numbers, and "learned"
    lets a model add features of several numbers as well. `by_column` means that the model scales
    every column independently, and that rows need no bound on their norm. With `alike` the model
    cannot use weights of columns: those of a weight below 1/2 are left out.
    """
    kinds: dict[str, Any] = dict(schema)
    known = [(a, kinds[a]._ends) for a in schema.numbers if kinds[a]._ends is not None]
    ranges = tuple((name, (float(low), float(high))) for name, (low, high) in known)
    if by_column:
        found = _of_columns(Encoding(schema, 1, False, None, ratio, ranges), interactions, alike)
    else:
        coarse = Encoding(schema, _COSINES, False, _DECAY, ratio, ranges)
        found = _of_rows(coarse, ratio)
    if interactions == LEARNED:
        return replace(found, interacting=_TOGETHER / (1 + (_TOGETHER_FROM / ratio) ** 2))
    if interactions != "auto":
        found = replace(found, pairs=bool(interactions) and len(schema.numbers) >= 2)
    return found


def _of_rows(coarse: Encoding, ratio: float) -> Encoding:
    """Refine an encoding for rows of bounded norm."""
    return replace(
        coarse,
        n_curves=_MORE_COSINES if ratio >= _MORE_FROM else _COSINES,
        decay=_FASTER if ratio < _FASTER_BELOW else _DECAY,
        pairs=ratio >= _PAIRS_FROM and 2 <= len(coarse.schema.numbers) <= _PAIRS_MOST,
    )


def _of_columns(coarse: Encoding, interactions: bool | str, alike: bool) -> Encoding:
    """Refine an encoding for independent columns: all levels with a noticeable weight."""
    allowed = interactions is not False and 2 <= len(coarse.schema.numbers) <= _COLUMNS_MOST
    counts = _carried(_level_sizes(coarse.schema), coarse.ratio) >= (0.5 if alike else _LEAST)
    n_curves = max(most for most, here in zip(_DEGREES, counts, strict=False) if here)
    found = replace(coarse, n_curves=n_curves, pairs=allowed and bool(counts[len(_DEGREES)]))
    return replace(found, ratio=math.inf) if alike else found


def _level_sizes(schema: Schema) -> np.ndarray:
    """Number of columns of each level, the coarsest first."""
    kinds: dict[str, Any] = dict(schema)
    d = len(schema.numbers)
    others = sum(kind.missing for kind in kinds.values())
    others += sum(len(kinds[name].values) for name in schema.categories)
    others += sum(len(kind.values) for *_, kind in _parts(schema))
    pairs = d * (d - 1) // 2
    sizes = np.diff(_DEGREES, prepend=0) * d
    return np.array([sizes[0] + others, *sizes[1:], pairs, (_OF_PAIR**2 - 1) * pairs])


def _carried(sizes: np.ndarray, ratio: float) -> np.ndarray:
    """Weight of each level, from 0 to 1; always 1 for the coarsest."""
    counts = 1 / (1 + (_CARRIED * np.cumsum(sizes) / ratio) ** _STEEPNESS)
    return np.concatenate([[1.0], counts[1:]])
