"""What "auto" stands for: choices from public quantities, good enough that nobody tunes.

Design note. Tuning on private rows costs privacy, so these defaults are part of the product.
They were set on sixteen real data sets (142 to 60,000 rows, 4 to 1,024 columns, 2 to 10
classes) and epsilon from 0.3 to 10; ``benchmarks/repro_defaults.py`` holds them against a
grid. What was found:

* Descent is a walk whose length, ``n_iter * learning_rate / (1 - momentum)``, decides. At one
  length, 30 to 400 steps and momentum from 0 to 0.95 give the same accuracy. The noise in
  the weights after it has a norm of ``sqrt(p) sigma C length / n``, with p parameters and
  sigma the multiplier of all steps together, and the best such norm hardly depends on n or
  epsilon: it grows like the cube root of p. The optimum is flat, within a factor of 2.
* Clipping keeps steps from diverging, so they may be far longer than without it, until
  gradients are no longer clipped: hence `largest`. More steps only where that binds.
* A clip norm of half the bound on a row is better than the bound: less noise, for gradients
  that point the same way. Centred rows are shorter, and half of that again is better. Smaller
  ones win a little on some sets and lose much on others.
* The mean of the last quarter of the iterates beats the last iterate, the last half, and
  decaying steps, each by little.
* The mean of the rows is worth a tenth of the budget. Shrinking it by its noise (James and
  Stein, 1961) is better than any rule for when to leave it out.
* Twice the median distance from the mean stands in for the bound on a row, so that rows of
  which the median is beyond half the bound (most images) train as they would without it.
  Smaller radii win on some sets (a point on X-ray images) and lose as much on others. A
  second mean within the first radius is worth its part where the offset is large; clipping
  rows at 2, 3 or 8 medians makes no difference, since gradients are clipped as well. All of it
  fits in the share of the one mean; three hundredths more cost 0.1 points on most sets and
  help at offsets only that are out of reach for 1,000 rows anyway.

Tried and dropped: preconditioning by a private second moment (DP-FC; between 0.6 points
worse and better everywhere, at the price of a release), objective perturbation (1 to 4 points
worse even with its constants chosen on the test set), Adam (within half a point, worse at
epsilon 0.3), step sizes that decay.
"""

from __future__ import annotations

import math

__all__ = [
    "ADAPTIVE_NOISE",
    "ADAPTIVE_PARTS",
    "CENTRED_BIAS",
    "CENTRED_CLIP",
    "CENTRED_LARGEST",
    "CLIP",
    "LARGEST",
    "MEAN_SHARE",
    "MOMENTUM",
    "n_steps",
    "step_size",
    "travel",
]

MOMENTUM = 0.9

# Clip norms in units of the bound on a row, and of the size of a residual.
CLIP, CENTRED_CLIP = 0.5, 0.25

# Share of the mean of the rows in mu^2, and how adaptive preprocessing splits it.
MEAN_SHARE = 0.1
ADAPTIVE_PARTS = {"coarse mean": 0.3, "coarse radius": 0.125, "mean": 0.45, "radius": 0.125}

# Noise of the counts behind a radius, over the number of records, that is too much for it.
ADAPTIVE_NOISE = 0.1

# The constant entry of centred rows, in units of the clip norm. Its gradient is this times
# the residual, so that it alone does not fill what clipping lets through.
CENTRED_BIAS = 0.6

# Largest step, as learning rate times clip norm for rows of size 1.
LARGEST, CENTRED_LARGEST = 16.0, 32.0

_FEWEST, _MOST = 100, 400


def travel(
    *, walk: float, n_params: int, noise_size: float, n_samples: float, multiplier: float
) -> float:
    """Length of the descent, ``n_iter * learning_rate * clip_norm / (1 - momentum)``.

    Parameters
    ----------
    walk : float
        Noise in the weights that the loss bears, over the cube root of their number.
    n_params : int
        Number of weights.
    noise_size : float
        Norm of the noise of a step, in units of the clip norm and of the multiplier: the
        square root of the number of weights, where all of them get the same.
    n_samples : int
        Number of records.
    multiplier : float
        Noise multiplier of all steps together.
    """
    return walk * n_params ** (1 / 3) * n_samples / (multiplier * noise_size)


def n_steps(length: float, largest: float, *, momentum: float = MOMENTUM) -> int:
    """Steps of at most `largest` (learning rate times clip norm) for a descent of `length`."""
    needed = length * (1 - momentum) / largest
    return min(max(math.ceil(min(needed, _MOST)), _FEWEST), _MOST)


def step_size(length: float, largest: float, *, n_iter: int, momentum: float) -> float:
    """Learning rate times clip norm for a descent of `length` in `n_iter` steps."""
    return min(length * (1 - momentum) / n_iter, largest)
