"""Public lists of distributions, and standards of columns within public ranges.

The releases about a column are compared with what each of these distributions would have given. The
distributions are guesses about columns of tables at large, made without looking at any private row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr

from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    as_like,
    at_least,
    at_most,
    column_sums,
    namespace,
    to_numpy,
    weighted,
)
from dpsubspace._core.ground.forms import Number, NumberArray, Record
from dpsubspace._core.release.mechanisms import BoundedSum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import AffineRows
from dpsubspace._core.rows.chunks import over_chunks

# Standards within public ranges -----------------------------------------------------------------
# Location and scale of columns within public ranges, released at once.

# Origin of these numbers: chosen by hand, those of standards on tables of
# benchmarks/repro_regression.py with public ranges, and those of distributions as guesses about
# columns of tables at large. No script varies them.

# Least scale of a column, over the common scale of columns and over half its range.
_FLAT, _FLATTEST = 0.1, 1e-6

# Mean square of the means of columns between -1 and 1, most of which noise hides.
_USUAL = 0.1


@dataclass(frozen=True)
class Standard:
    """Location and scale of columns: public or released."""

    location: np.ndarray  # (c,): what to subtract
    scale: np.ndarray  # (c,): what to divide by; positive
    # Upper bound, up to twice the noise of the releases, on the root mean square of the columns'
    # standard deviations in half ranges. It is 1 if nothing is released.
    fills: float = 1.0

    def without(self, lost: np.ndarray) -> Standard:
        return replace(self, scale=np.where(lost, np.inf, self.scale))

    def about_zero(self) -> Standard:
        """Return the standard of columns that must not be shifted: their root mean squares."""
        return Standard(np.zeros_like(self.scale), np.hypot(self.location, self.scale))


STANDARD_FORM = Record(
    Standard,
    location=NumberArray(("targets",)),
    scale=NumberArray(("targets",), low=0, high=math.inf),
    fills=Number(0),
)


def noisy_standard(
    rows: AffineRows,
    low: np.ndarray,
    high: np.ndarray,
    releases: Releases,
    name: str,
    importance: np.ndarray | None = None,
) -> Standard:
    """Release mean and standard deviation of columns that lie between public numbers.

    They are columns of the records. Ranges are public or released, and values outside are clipped.
    `importance`, public numbers from 0 to 1, sets how exactly columns are to be known: 1 for all of
    them if it is None.

    Proof of the bounds: a record contributes ``a_j (v_j, v_j^2)`` with ``-1 <= v_j <= 1`` for each
    of c columns of importance a, which has norm at most ``sqrt(2) |a|``. Replacing v by w moves a
    pair by ``a^2 (v - w)^2 (1 + (v + w)^2)``, squared. With ``s = |v + w|`` and ``t = |v - w|``,
    where ``s + t <= 2``, that is ``t^2 + (s t)^2 <= t^2 + t^2 (2 - t)^2``, which grows with t up to
    4 at t = 2: all columns together move by at most ``2 |a|``. Event: one Gaussian mechanism.

    The rest is postprocessing. Means, and then variances, of columns that count equally are drawn
    together as far as noise explains that they differ (James and Stein, 1961, with the noise that
    is known), so that columns that noise hides get the value that columns have in common.
    """
    middle, half = low / 2 + high / 2, np.maximum(high / 2 - low / 2, 1e-300)
    total = _moments(rows.rescaled(middle, half), importance)
    n, c = rows.n_samples, len(middle)
    noisy = to_numpy(releases.gaussian(name, total)) / n
    noise = releases.noise_of(name, total) / n
    means, variances, filled = np.empty(c), np.empty(c), 0.0
    each = np.ones(c) if importance is None else importance
    for one in np.unique(each):
        alike = each == one
        first, second = noisy[:c][alike] / one, noisy[c:][alike] / one
        means[alike], variances[alike], own = _standard_of(
            first, second, noise / one, releases.budget.private
        )
        filled += alike.mean() * own
    scales, filled = np.sqrt(variances), min(math.sqrt(filled), 1.0)
    return Standard(middle + half * means, half * scales, filled)


def _standard_of(
    first: np.ndarray, second: np.ndarray, noise: float, private: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return means and variances of columns from noisy moments, and how far they fill ranges."""
    c = len(first)
    common = float(first.mean()) * _USUAL / (_USUAL + noise**2 / c)
    means = np.clip(_together(first, noise, common), -1.0, 1.0)
    common = max(float(second.mean() - (means**2).mean()), noise, _FLATTEST**2)
    errors = noise * np.sqrt(1 + 4 * means**2)
    # Squares of noisy means are too large by their noise.
    filled = float((second - np.clip(first, -1, 1) ** 2).mean()) + noise**2
    filled = max(filled, 0.0) + 2 * float(np.sqrt((errors**2).mean() / c))
    variances = _together(second - means**2, errors, common)
    variances = np.clip(variances, max(_FLAT**2 * common, noise / 2), 1.0)
    if not private:
        exact = np.sqrt(np.maximum(second - means**2, 0.0))
        variances = np.where(exact > _FLATTEST, exact, 1.0) ** 2
    return means, variances, filled


def _moments(rows: AffineRows, importance: np.ndarray | None) -> BoundedSum:
    c = rows.width

    def part(chunk: slice) -> Array:
        block, weights = rows.at(chunk).dense(), rows.records.weights
        xp = namespace(block)
        block = xp.where(xp.isnan(block), xp.zeros_like(block), block)
        block = at_most(at_least(block, -1.0), 1.0)
        squares = block * block
        if importance is not None:
            factors = as_like(importance, block)[None, :]
            block, squares = block * factors, squares * factors
        if weights is None:
            return xp.concat([column_sums(block), column_sums(squares)])
        own = as_like(weights[chunk], block)
        return xp.concat([column_sums(weighted(part, own)) for part in (block, squares)])

    with over_chunks(rows) as each:
        total = each.total(part)
    slack = 2 * rows.records.slack(EPS, rows.chunk)
    if rows.records.grouped and not rows.affine.diagonal:
        slack += rows.slack  # values round otherwise at another position in a chunk
    # Products with importance round, at most as float32 does.
    size = c if importance is None else float(importance @ importance) * (1 + 2.0**-21)
    norm, replaced = np.sqrt(2 * size), 2 * np.sqrt(size)
    return BoundedSum(to_numpy(total.value), norm * (1 + slack), replaced + 2 * norm * slack)


def _together(values: np.ndarray, noise: float | np.ndarray, centre: float) -> np.ndarray:
    """Shrink values to a centre, by the share that noise has of their spread about it."""
    spread = max(float(((values - centre) ** 2 - noise**2).mean()), 0.0)
    variance = np.square(noise)
    kept = np.where(spread + variance > 0, spread / np.maximum(spread + variance, 1e-300), 1.0)
    return centre + kept * (values - centre)


# Distributions ----------------------------------------------------------------------------------

# Powers of 2 among which the root mean squares of columns are searched.
_SIZES = range(-34, 62)

# A value that many records share is spread by this part of the distance to the others; if it is 0,
# by so little that its spread is negligible.
_HEAP, _ZERO = 0.01, 2.0**-80

# Frequency of tails whose mean is at least 10 times as far out as their heap, relative to nearer
# ones. Noise hides a tenth of the rows. With the same frequency as the others, such tails made the
# scale of a target 37 times too large in a fit to 600 persons at epsilon 1 (R2 -7.7, and alike in
# another of 60 fits; the case is one of tests/estimators/test_personalized.py).
_FAR_TAIL = 0.1


@dataclass(frozen=True)
class Shapes:
    """Mixtures of a normal heap and a tail to one side of it, as arrays of shape (k,)."""

    place: np.ndarray  # Mean and standard deviation of the heap
    spread: np.ndarray
    tail: np.ndarray  # Mean distance of the tail from the heap; below 0 to its left
    share: np.ndarray  # Share of the tail
    # Whether the tail is a second value, like that of a code; otherwise it is exponential.
    point: np.ndarray
    prior: np.ndarray  # Prior probability of each

    @property
    def mean(self) -> np.ndarray:
        return self.place + self.share * self.tail

    @property
    def deviation(self) -> np.ndarray:
        moment = np.where(self.point, 1.0, 2.0) - self.share
        return np.sqrt((1 - self.share) * self.spread**2 + self.share * moment * self.tail**2)

    def masses(self, edges: np.ndarray) -> np.ndarray:
        """Return shares of each distribution between adjacent `edges` and beyond, (k, e + 1)."""
        return np.diff(self.below(edges), axis=1, prepend=0.0, append=1.0)

    def below(self, edges: np.ndarray) -> np.ndarray:
        beyond = edges - self.place[:, None]
        below = ndtr(beyond / self.spread[:, None])
        tailed = self.share > 0
        left = (self.tail < 0)[tailed, None]
        far = beyond[tailed] / self.tail[tailed, None]  # 1 is the mean of the tail
        within = np.where(self.point[tailed, None], far >= 1, -np.expm1(-np.maximum(far, 0)))
        share = self.share[tailed, None]
        below[tailed] = (1 - share) * below[tailed] + share * np.where(left, 1 - within, within)
        return below

    def at(self, some: np.ndarray) -> Shapes:
        return Shapes(*(values[some] for values in self._arrays()))

    def moved(self, place: float, unit: float) -> Shapes:
        return replace(
            self, place=self.place * unit + place, spread=self.spread * unit, tail=self.tail * unit
        )

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.place, self.spread, self.tail, self.share, self.point, self.prior


def _shapes(weight: float, rows: Sequence[tuple[float, ...]]) -> Shapes:
    """Return shapes of rows (place, spread, tail, share, point, prior), of `weight` in all."""
    columns = np.array(rows, dtype=np.float64).T
    prior = columns[5] * (weight / columns[5].sum())
    place, spread, tail, share, point = columns[:5]
    return Shapes(place, spread, tail, share, point > 0, prior)


def together(parts: list[Shapes]) -> Shapes:
    return Shapes(
        *(np.concatenate(some) for some in zip(*(p._arrays() for p in parts), strict=True))
    )


@cache
def wide_shapes() -> Shapes:
    """Return distributions of any size, with and without a tail; positive values are likelier."""
    normal = [
        (sign * r / np.hypot(1, r), 1 / np.hypot(1, r), 0, 0, 0, (1.0 if sign > 0 else 0.3))
        for r in (0.5, 1, 2, 4, 8, 16)
        for sign in (1, -1)
    ]
    normal += [(0, 1, 0, 0, 0, 1.5)]
    zeros = [
        (0, _ZERO, sign / np.sqrt(2 * q), q, 0, (0.7 if sign > 0 else 0.2))
        for q in (1, 0.5, 0.25, 0.1, 0.05)
        for sign in (1, -1)
    ]
    heaps = [
        (1.4 * heap, 1.4 * _HEAP, sign * 2.0**t, q, 0, likely * (_FAR_TAIL if t > 3 else 1.0))
        for heap, sign, likely in ((-1, 1, 1.0), (1, 1, 0.5), (1, -1, 0.3), (-1, -1, 0.15))
        for t in (1, 2, 3, 4, 6, 8)
        for q in (0.5, 0.3, 0.18, 0.1)
    ]
    halves = [2.0 ** (k / 2) for k in range(2 * _SIZES.start, 2 * _SIZES.stop)]
    wholes = [2.0**k for k in _SIZES]
    plain, heaped = _shapes(0.6, normal + zeros), _shapes(0.4, heaps)
    parts = [plain.moved(0, size) for size in halves] + [heaped.moved(0, size) for size in wholes]
    return together(parts)


@cache
def near_shapes() -> Shapes:
    """Return distributions in a column's own units: it is known to lie within a few of them.

    Its spread may still be 32 times less than 1, if it was only known to be far from 0.
    """
    normal: list[tuple[float, ...]] = []
    for spread in 2.0 ** np.arange(-6.5, 2.6, 0.5):
        step = 0.4 * spread
        most = int(np.ceil(min(3.2, 2.2 + 20 * spread) / step))
        normal += [(i * step, spread, 0, 0, 0, step) for i in range(-most, most + 1)]
    exponential = [
        (place, _HEAP * tail, sign * tail, 1, 0, 1)
        for place in np.linspace(-3.2, 3.2, 33)
        for tail in 2.0 ** np.arange(-3, 4)
        for sign in (1, -1)
    ]
    tailed = [
        (place, spread, sign * times * spread, q, 0, 1)
        for place in np.linspace(-1, 1, 11)
        for spread in 2.0 ** np.arange(-4, 1)
        for times in (4, 8, 16, 32)
        for q in (0.25, 0.12, 0.06)
        for sign in (1, -1)
    ]
    return together([_shapes(0.5, normal), _shapes(0.1, exponential), _shapes(0.1, tailed)])


@cache
def heaped_shapes() -> Shapes:
    """Return distributions in own units with a value at 0 that many or all records share."""
    tails = [
        (0, _HEAP * tail, sign * tail, q, 0, 1)
        for tail in 2.0 ** np.arange(-3, 4, 0.5)
        for q in (0.6, 0.4, 0.25, 0.12, 0.06)
        for sign in (1, -1)
    ]
    codes = [
        (0, _HEAP * apart, sign * apart, q, 1, 1)
        for apart in np.linspace(0.1, 5, 50)
        for q in (0.05, 0.12, 0.25, 0.4, 0.5)
        for sign in (1, -1)
    ]
    alone = [(0, 0.1 * _HEAP, 0, 0, 0, 1)]
    return together([_shapes(0.2, tails), _shapes(0.1, codes), _shapes(0.05, alone)])
