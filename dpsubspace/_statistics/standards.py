"""Location and scale of columns within public ranges, released at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._array import (
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
from dpsubspace._release.mechanisms import BoundedSum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.affine import AffineRows
from dpsubspace._rows.chunks import over_chunks

__all__ = ["Standard", "noisy_standard"]

# Least scale of a column, over the scale that columns have in common and over half its range.
_FLAT, _FLATTEST = 0.1, 1e-6

# Mean square of the means of columns between -1 and 1, of which noise hides most.
_USUAL = 0.1


@dataclass(frozen=True)
class Standard:
    """Where columns lie and how far they spread: public or released.

    Parameters
    ----------
    location : ndarray of shape (c,)
        What to subtract.
    scale : ndarray of shape (c,)
        What to divide by; positive.
    fills : float
        Bound on the standard deviation that columns have in half ranges, as a root mean square:
        all but twice the noise of what is released says so. It is 1 where nothing does.
    """

    location: np.ndarray
    scale: np.ndarray
    fills: float = 1.0

    def without(self, lost: np.ndarray) -> Standard:
        """The same without some columns: nothing is left of them, in units of an infinite scale."""
        return replace(self, scale=np.where(lost, np.inf, self.scale))

    def about_zero(self) -> Standard:
        """The same for columns that must not be shifted: their root mean squares."""
        return Standard(np.zeros_like(self.scale), np.hypot(self.location, self.scale))


def noisy_standard(
    rows: AffineRows, low: np.ndarray, high: np.ndarray, releases: Releases, name: str
) -> Standard:
    """Release mean and standard deviation of columns that lie between public numbers.

    Parameters
    ----------
    rows : AffineRows
        Their records are what has these columns.
    low, high : ndarray of shape (c,)
        Ranges, public or released. Values outside are clipped.
    releases : Releases
        With one called `name`.
    name : str
        Its name.

    Notes
    -----
    Proof of the bounds: a record brings ``(v_j, v_j^2)`` with ``-1 <= v_j <= 1`` for each of c
    columns, which has norm at most ``sqrt(2 c)``. Replacing v by w moves a pair by
    ``(v - w)^2 (1 + (v + w)^2)``, squared. With ``s = |v + w|`` and ``t = |v - w|``, where
    ``s + t <= 2``, that is ``t^2 + (s t)^2 <= t^2 + t^2 (2 - t)^2``, which grows with t up to 4
    at t = 2: all columns together move by at most ``2 sqrt(c)``. Event: one Gaussian mechanism.

    What follows is postprocessing. Means, and then variances, are drawn together as far as noise
    explains that they differ (James and Stein, 1961, with the noise that is known), so that
    columns which noise hides get what columns have in common.
    """
    middle, half = low / 2 + high / 2, np.maximum(high / 2 - low / 2, 1e-300)
    boxed = rows.rescaled(middle, half)
    total = _moments(boxed)
    n, c = rows.n_samples, len(middle)
    noisy = to_numpy(releases.gaussian(name, total)) / n
    noise = releases.noise_of(name, total) / n
    common = float(noisy[:c].mean()) * _USUAL / (_USUAL + noise**2 / c)
    means = np.clip(_together(noisy[:c], noise, common), -1.0, 1.0)
    squares = noisy[c:]
    common = max(float(squares.mean() - (means**2).mean()), noise, _FLATTEST**2)
    errors = noise * np.sqrt(1 + 4 * means**2)
    # Squares of noisy means are too large by their noise.
    filled = float((squares - np.clip(noisy[:c], -1, 1) ** 2).mean()) + noise**2
    fills = math.sqrt(max(filled, 0.0) + 2 * float(np.sqrt((errors**2).mean() / max(c, 1))))
    variances = _together(squares - means**2, errors, common)
    scales = np.sqrt(np.clip(variances, max(_FLAT**2 * common, noise / 2), 1.0))
    if not releases.budget.private:
        exact = np.sqrt(np.maximum(squares - means**2, 0.0))
        scales = np.where(exact > _FLATTEST, exact, 1.0)
    return Standard(middle + half * means, half * scales, min(fills, 1.0))


def _moments(rows: AffineRows) -> BoundedSum:
    """Sums of values in [-1, 1], and of their squares."""
    c = rows.width

    def part(chunk: slice) -> Array:
        block, weights = rows.at(chunk).formed(), rows.records.weights
        xp = namespace(block)
        block = xp.where(xp.isnan(block), xp.zeros_like(block), block)
        block = at_most(at_least(block, -1.0), 1.0)
        if weights is None:
            return xp.concat([column_sums(block), column_sums(block * block)])
        own = as_like(weights[chunk], block)
        return xp.concat([column_sums(weighted(part, own)) for part in (block, block * block)])

    with over_chunks(rows) as each:
        total = each.total(part)
    slack = 2 * rows.records.slack(EPS, rows.chunk)
    if rows.records.grouped and not rows.affine.diagonal:
        slack += rows.slack  # that of values, which round otherwise elsewhere in a chunk
    norm, replaced = np.sqrt(2 * c), 2 * np.sqrt(c)
    return BoundedSum(to_numpy(total.value), norm * (1 + slack), replaced + 2 * norm * slack)


def _together(values: np.ndarray, noise: float | np.ndarray, centre: float) -> np.ndarray:
    """Values nearer to a centre, by what noise of known size has of their spread about it."""
    spread = max(float(((values - centre) ** 2 - noise**2).mean()), 0.0)
    variance = np.square(noise)
    kept = np.where(spread + variance > 0, spread / np.maximum(spread + variance, 1e-300), 1.0)
    return centre + kept * (values - centre)
