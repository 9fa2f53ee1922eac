"""One pass over disjoint blocks of records, with a clip norm that follows the residuals.

DP-AMBSSGD of Varshney, Thakurta, Jain (2022). Each block of records is used in one step, so that
all steps together cost what one costs: without amplification by shuffling, of which the bounds are
poor where blocks are few.

Design note. Under exact accounting blocks are no gain: with T of them the noise of a step, beside
the sum over its records, is sqrt(T) times that of a step over all records at a T-th of the budget.
The method is here because theory speaks of it, and to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Part
from dpsubspace._array import as_like, row_norms, to_numpy
from dpsubspace._gradients.clipping import clipped_sum
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Squared
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotal
from dpsubspace._release.releases import Releases
from dpsubspace._rows.affine import AffineRows
from dpsubspace._rows.chunks import over_chunks
from dpsubspace._solvers.descent import STEPS, noise_of_mean
from dpsubspace._solvers.regression import (
    MOMENT,
    Regression,
    Solution,
    james_stein,
    released_whitening,
)

__all__ = ["OnePass"]

RESIDUALS = "sizes of residuals"

# Most blocks, and the fewest.
_MOST, _FEWEST = 20, 2

# Size of the steps on white rows.
_STEP = 0.6

# Sizes of residuals that are told apart, in units of the scale of a target, and the share of
# them that is not clipped. Larger ones would be noise in the counts.
_SIZES, _WITHIN = 2.0 ** np.arange(-6, 2), 0.8


@dataclass(frozen=True)
class OnePass:
    """DP-AMBSSGD (Varshney, Thakurta, Jain, 2022) on rows that a rough second moment whitens.

    Each step asks a new block how large its residuals are, clips gradients accordingly, and steps
    along their noisy mean. The iterates of the second half are averaged. Blocks are so large that
    the noise of a step is small beside its gradient, or there are three of them.
    """

    def parts(self, reach: float) -> Mapping[str, Part]:
        """The second moment of all rows; sizes of residuals and gradients of blocks."""
        share = _auto.WHITENING_SHARE
        return {
            MOMENT: Part(share),
            RESIDUALS: Part(0.2 * (1 - share), _MOST, disjoint=True),
            STEPS: Part(0.8 * (1 - share), _MOST, disjoint=True),
        }

    def __call__(
        self, data: Regression, releases: Releases, after_step: Callable[[], bool]
    ) -> Solution:
        """Release a second moment, then sizes of residuals and a gradient of each block.

        Notes
        -----
        Privacy: the second moment as in
        :class:`~dpsubspace._solvers.regression.WhitenedDescent`. Blocks are disjoint and public
        (:meth:`~dpsubspace._release.releases.Releases.batch`), so a record meets one release
        of sizes and one of gradients, at weights and with a clip norm that earlier
        releases determine. Events: three Gaussian mechanisms, whatever the number of blocks.
        """
        rows = data.rows.kept()
        p, c, n = rows.width, data.n_targets, rows.n_samples
        mixing = released_whitening(rows, releases)
        blocks = _n_blocks(releases, n, p * c)
        rate = _STEP if blocks > 1 else 1.0
        weights, size = np.zeros((p, c)), 1.0
        found, scales = [], []
        for _ in range(blocks):
            block = _Block.of(data, rows, mixing, releases, blocks)
            size = block.residual_size(weights, size, releases)
            gradient, scale = block.gradient(weights, size * math.sqrt(p * c), releases)
            weights = weights - rate * gradient
            found.append(weights)
            scales.append(scale)
            if after_step():
                break
        first = len(found) // 2
        mean = np.mean(found[first:], axis=0)
        weights_of_noise = noise_of_mean(len(found), rate, 0.0, first)
        each = float(np.linalg.norm(weights_of_noise * scales))
        factors = james_stein(mean, each)
        return Solution(mixing @ (mean * factors), mixing, each * factors, len(found))


def _n_blocks(releases: Releases, n: int, n_weights: int) -> int:
    """Blocks of which each has so many records that noise does not hide what they tell."""
    scales = releases.budget.scales
    least = max(20 * n_weights * scales[STEPS], 10 * scales[RESIDUALS] * math.sqrt(len(_SIZES)), 1)
    return int(min(max(n // least, _FEWEST), _MOST, math.ceil(2 * math.log(n + 1)), max(n, 1)))


@dataclass(frozen=True)
class _Block:
    """Records that one step is over, and no other."""

    source: LinearSource

    @classmethod
    def of(
        cls,
        data: Regression,
        rows: AffineRows,
        mixing: np.ndarray,
        releases: Releases,
        blocks: int,
    ) -> _Block:
        """The next block, of both releases of a step."""
        index = releases.batch(STEPS, rows.n_samples, blocks=blocks)
        same = releases.batch(RESIDUALS, rows.n_samples, blocks=blocks)
        assert index is not None and same is not None and np.array_equal(index, same)
        taken = rows.taken(index)
        own: Any = taken.mixed(taken.mixing_by(mixing))  # has what is asked of Features here
        targets = data.targets[rows.records.rows(index), :]
        return cls(LinearSource(Squared(), own, targets, n_outputs=data.n_targets))

    def residual_size(self, weights: np.ndarray, before: float, releases: Releases) -> float:
        """Release how long most residuals are, for one target; `before` where noise hides it.

        Notes
        -----
        Proof of the bounds: a record that is there adds 1 to the count of one size. If it becomes
        null one count falls by 1; if it is replaced, one falls and another rises: sqrt(2).
        Counts are exact in float64.
        """
        params = as_like(weights, self.source.features.lengths)
        with over_chunks(self.source) as each:
            lengths = np.concatenate(
                [*each(lambda rows: to_numpy(row_norms(self.source.at(params, rows).residuals)))]
            )
        lengths = lengths / math.sqrt(weights.shape[1])
        bins = np.searchsorted(_SIZES[:-1], np.where(np.isnan(lengths), np.inf, lengths))
        weights_of_rows = self.source.features.records.weights_numpy
        counts = np.bincount(bins, weights_of_rows, minlength=len(_SIZES)).astype(np.float64)
        noisy = to_numpy(releases.gaussian(RESIDUALS, BoundedSum(counts, 1.0, math.sqrt(2))))
        enough = np.flatnonzero(np.cumsum(noisy) >= _WITHIN * self.source.n_samples)
        return float(_SIZES[enough[0]]) if len(enough) else before

    def gradient(
        self, weights: np.ndarray, clip_norm: float, releases: Releases
    ) -> tuple[np.ndarray, float]:
        """Release the mean gradient, and say how large its noise is.

        Bounds: those of :func:`~dpsubspace._gradients.clipping.clipped_sum`.
        """
        params, total = as_like(weights, self.source.features.lengths), DisjointTotal()
        with over_chunks(self.source) as each:
            for part in each(lambda rows: clipped_sum(self.source.at(params, rows), clip_norm)):
                total.add(part)
        bounded, n = total.bounded_sum(), self.source.n_samples
        noisy = to_numpy(releases.gaussian(STEPS, bounded)) / n
        return noisy, releases.noise_of(STEPS, bounded) / n
