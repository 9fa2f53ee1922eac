"""Meaning of "auto": choices from public quantities, good enough that nobody has to tune.

Design note. Tuning on private rows costs privacy, so these defaults are part of the product.
They were set on sixteen real data sets (142 to 60,000 rows, 4 to 1,024 columns, 2 to 10
classes), on six of 20 to 100 classes, and epsilon from 0.3 to 10;
``benchmarks/repro_defaults.py`` compares them with a grid, and
``benchmarks/pages/defaults_chosen.md`` reports the results, and the alternatives that were tried
and dropped.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np

# Momentum, and its maximum in the last third of the steps.
MOMENTUM, CALM = 0.9, 0.95

# Bias entry of rows, in units of the bound on rows.
BIAS = 0.5

# Clip norms, in units of the bound on a row times the size of a residual.
CLIP, CENTRED_CLIP = 0.5, 0.25

# Clip norms for means of the gradients of a person's rows, which are shorter, and for modules.
PERSON_CLIP, PERSON_MODULE_CLIP = 0.125, 0.5

# Share of mu^2 for the mean of the rows, and how adaptive preprocessing splits it.
MEAN_SHARE = 0.1
ADAPTIVE_PARTS = {"coarse mean": 0.3, "coarse radius": 0.125, "mean": 0.45, "radius": 0.125}

# Noise of the counts behind a radius, over the number of records, above which there is no radius.
ADAPTIVE_NOISE = 0.1

# Share of mu^2 for the correction of the scores of classes after training, and the standard
# deviation of shifts about the usual one (benchmarks/repro_calibration.py rare). AUC falls in
# proportion to the share: by less than 0.1 points for 0.008 on Adult with 1,000 rows and epsilon
# 0.3, where it falls most.
INTERCEPT_SHARE, SHIFT_SPREAD = 0.012, 0.5

# Standard deviation of the logarithm of the factor that scores are multiplied by after training
# (benchmarks/repro_calibration.py slopes).
STRETCH_SPREAD = 0.4

# Share for the ranges of rows and targets that a regressor estimates privately.
BOUNDS_SHARE = 0.1

# Share for finding where in their range the targets of a table lie.
FOCUS_SHARE = 0.05

# The same share for a public range of other rows, which is right in most fits. The fit uses a part
# of the range only where the part is narrower by at least this factor: then the range is in a wrong
# unit, for example. With both, R2 of DPSGDRegressor with right ranges and 3,000 rows, six seeds on
# each of eight tables, changed by 0.0005, -0.0005 and -0.0004 on average at epsilon 0.3, 1 and 3:
# by -0.0015 to 0 on each table, but by 0.0085 with an error of 0.009 on the table of wine at 0.3.
# R2 with ranges 10 times too wide rose from -0.40, 0.22 and 0.39 to 0.36, 0.45 and 0.46, on seven
# tables.
RANGE_SHARE, RANGE_FOCUS = 0.02, 3.0

# Share for finding the columns that make up most of the length of the rows, and the shares of the
# squared length above which there is a warning: held by one column, or by two of many columns. In
# addition, all other columns hold on average at most the last number times the share of the first
# one: the mean square of columns within [-1, 1], beside a column of -1 and 1, is about a tenth. Of
# eleven tables, raw columns of eight get the warning, with R2 of -0.03 to 0.5 at epsilon 1 and 3
# where scaled columns have 0.14 to 0.96; scaled columns, and raw ones that do well, never get it.
LENGTHS_SHARE, ONE_COLUMN, TWO_COLUMNS, SHORT_COLUMNS = 0.01, 0.6, 0.9, 0.03
# Largest noise of such a share with which there is a warning: of many columns, one has much of it.
LENGTHS_SEEN = 0.1

# Mean deviation of targets, over half a range, at or below which there is a warning: where the
# noise is small enough to show a deviation, and where it hides any deviation.
RANGE_FILLED, RANGE_UNSEEN = 0.02, 0.1

# Where there are public rows: shares for the mean of the rows, and for the check whether the public
# rows are like the private ones.
PUBLIC_MEAN_SHARE, CHECK_SHARE = 0.05, 0.05

# Largest prior odds that labels of public rows are useful, before private rows are used.
TRUST = 2.0

# Directions of public features: this factor times the root of the number of rows over the noise
# multiplier of all steps, at least FEWEST_DIRECTIONS, and fewer for many classes
# (benchmarks/repro_components.py). None where that is more than a share of the columns, or where
# public rows are fewer than a share of them.
DIRECTIONS, FEWEST_DIRECTIONS = 2.0, 5
MOST_OF_COLUMNS, LEAST_ROWS = 1 / 4, 2 / 3

# Norm of the mean gradient over the clip norm, for the share of energy that these directions must
# hold. It was 0.04 to 0.34 at zero weights; a larger value is stricter where there are many rows.
DIRECTIONS_COHERENCE = 0.1

# Where they hold a smaller share: keep directions whose energy is above this many times the noise
# in their gradient, and at least as many as hold this share of all energy.
WORTH, LEAST_ENERGY = 6.7, 0.6

# Number of directions of public gradients; share of mu^2 for the embeddings; bound on residuals
# over the bound on embeddings.
ANCHOR_DIRECTIONS, EMBEDDING_SHARE, RESIDUAL_RATIO = 200, 0.8, 0.2

# The same for modules, whose gradients lie less in the span of those of public rows.
MODULE_SHARE, MODULE_RATIO = 0.5, 0.5

# Norm of the mean gradient over the clip norm, for the share of energy above which training on
# directions pays. On MNIST, Fashion-MNIST and chest x-rays at three budgets, measured break-even
# points of projection are within 0.14 of the resulting share, and those of GEP within 0.21
# (benchmarks/repro_gsd.py). No constant fits a quadratic error.
COHERENCE = 0.05

# Clip norm of a module's gradients, its walk for residuals of size 1, and its largest step.
MODULE_CLIP, MODULE_WALK, MODULE_LARGEST = 1.0, 0.975, 2.0

# Penalty of a fit to labelled public rows: 1 / (this * their number).
PUBLIC_FIT = 100.0

# Constant entry of centred rows, in units of the clip norm. Its gradient is this times the
# residual, so that it does not use up the clip norm by itself.
CENTRED_BIAS = 0.6

# Largest step, as learning rate times clip norm for rows of size 1.
LARGEST, CENTRED_LARGEST = 16.0, 32.0

# Clipping of a log loss moves its minimum, and most for rare classes. Clipping is given up
# gradually as the noise of privacy in a mean gradient becomes small beside sampling noise: squares
# of their ratio between which that happens; and noise multipliers of all steps together between
# which it may happen, which correspond to an epsilon of about 12 and of 90. Usual budgets keep the
# clipping that all other defaults were set with.
OPENING, OPENING_MULTIPLIER = (3e-3, 3e-4), (0.4, 0.1)

# Without any clipping left: the clip norm that no centred row with its constant exceeds, for
# residuals of at most 1; the step that is stable for any rows, times the curvature of the loss; and
# the factor by which the number of steps grows then, since the steps are short.
OPEN_CLIP, OPEN_STEP, OPEN_STEPS = 1.25, 4 / 3, 5.0

# Number of classes up to which the tolerable noise depends on the number of weights only.
FEW_CLASSES = 20

# Fewest steps; most steps with growing momentum; most steps with constant momentum.
_FEWEST, _MOST, _MOST_STEADY = 100, 160, 400


def travel(*, walk: float, noise_size: float, n_samples: float, multiplier: float) -> float:
    """Length of the descent, ``n_iter * learning_rate * clip_norm / (1 - momentum)``.

    `walk` is the tolerable noise in the weights, over the cube root of their number; it includes
    :func:`many_classes`. `noise_size` is the norm of the noise of a step, in units of the clip norm
    and of the multiplier: the square root of the number of weights where all weights get the same
    noise, otherwise its square acts as their number. The multiplier is that of all steps together.
    """
    return walk * noise_size ** (2 / 3) * n_samples / (multiplier * noise_size)


def opened(multiplier: float, n_params: int, n_samples: int) -> float:
    """Degree from 0 to 1 to which clipping is given up, by the multiplier of all steps together.

    In units of the clip norm, the squared noise of privacy in a mean gradient is ``(multiplier /
    n)^2`` for each of p weights, and the squared sampling noise is about ``1 / n`` for all of them.
    """
    multiplier = max(multiplier, 1e-100)
    noise = multiplier**2 * n_params / n_samples
    ways = ((noise, OPENING), (multiplier, OPENING_MULTIPLIER))
    shares = [math.log(first / x) / math.log(first / last) for x, (first, last) in ways]
    return min(max(min(shares), 0.0), 1.0)


def many_classes(n_classes: int) -> float:
    """Factor by which losses of many classes tolerate more noise in the weights: 1 up to twenty."""
    return max(1.0, n_classes / FEW_CLASSES) ** (1 / 3)


def clear_energy(n_outputs: int, noise: float) -> float:
    """Energy of a direction of features above which gradients along it exceed their noise.

    `noise` is the standard deviation of the noise of one entry of the mean gradient, by all steps.
    """
    return WORTH * (noise * n_outputs) ** 2


def n_directions(reach: float, n_outputs: int, *, n_public: int, width: int) -> int:
    """Number of directions of public rows to keep where they hold enough; 0 for no directions.

    `reach` is the number of rows over the noise multiplier of all steps. The more noise, the fewer
    weights can be trained, for any number of columns and for up to twenty classes.
    """
    wanted = DIRECTIONS * math.sqrt(reach) / many_classes(n_outputs) ** 2
    wanted = max(FEWEST_DIRECTIONS, wanted)
    if wanted > MOST_OF_COLUMNS * width or n_public < LEAST_ROWS * wanted:
        return 0
    return round(wanted)


def n_worth(energies: np.ndarray, clear: float) -> int:
    """Number of directions to keep: those of clear energy, or those with the least share of energy.

    Energies are mean squares of public features along each direction, in descending order.
    """
    held = np.cumsum(energies) / max(float(energies.sum()), 1e-300)
    least = 1 + int(np.searchsorted(held, LEAST_ENERGY))
    return min(len(energies), max(int(np.sum(energies > clear)), least))


def remaining(
    energies: np.ndarray,
    clear: float,
    *,
    n_public: int,
    n_outputs: int,
    n_samples: float,
    multiplier: float,
) -> float:
    """Share of the usual training length when starting at weights fitted to public rows.

    Energies are mean squares of public features along each direction that is trained. The
    multiplier is that of all steps together.

    A fit to m public rows has an error of about ``p / m`` in the loss, with p weights that matter;
    private training has an error of about ``(p sigma / n)^2``. The training is shorter the larger
    the second is beside the first.
    """
    free = n_outputs * float(np.sum(energies / (energies + clear)))
    return 1 / (1 + n_public * free * multiplier**2 / n_samples**2)


def break_even(
    n_weights: float,
    n_kept: float,
    *,
    n_samples: int,
    multiplier: float,
    coherence: float = COHERENCE,
) -> float:
    """Share of centred energy that directions must hold for training on them to pay off.

    `n_weights` are trained without directions, and `n_kept` on them. The multiplier is that of all
    steps together.

    Private training of q weights loses about ``z / (1 + z)`` of the possible improvement of the
    loss, with ``z = multiplier sqrt(q) / (n gamma)``: the rate of private empirical risk
    minimisation where that is small (Bassily, Smith, Thakurta, 2014), and no worse than a constant
    model where it is large. gamma is the norm of the mean gradient over the clip norm: `coherence`.
    On directions that hold a share u of the energy, only u can be learned: the error is ``1 - u /
    (1 + z_k)``, which equals the error of training all weights at ``u = (1 + z_k) / (1 + z_p)``.
    """
    noise = multiplier / (n_samples * coherence)
    return (1 + noise * math.sqrt(n_kept)) / (1 + noise * math.sqrt(n_weights))


def n_steps(length: float, largest: float, *, growing: bool = True) -> int:
    """Number of steps of at most `largest` (rate times clip norm) for a descent of `length`."""
    needed, most = length * (1 - MOMENTUM) / largest, _MOST if growing else _MOST_STEADY
    return min(max(math.ceil(min(needed, most)), _FEWEST), most)


@lru_cache(maxsize=256)  # public numbers, which many fits have in common
def momentum_for(length: float, largest: float, *, n_iter: int) -> float:
    """Least momentum with which `n_iter` steps of at most `largest` make a descent of `length`."""

    def momentum(remembered: int) -> float:
        return max(MOMENTUM, 1 - 1 / remembered)

    def reaches(remembered: int) -> bool:
        return _steps_remembered(momentum(remembered), n_iter) * largest >= length

    fewest = round(1 / (1 - MOMENTUM))
    return momentum(fewest + bisect_left(range(fewest, n_iter), True, key=reaches))


def momentum_at(t: int, momentum: float, *, n_iter: int) -> float:
    """Momentum of step `t`: it covers no more steps than there were, and fewer at the end."""
    grown = CALM if 3 * t >= 2 * n_iter else t / (t + 1)
    return min(momentum, max(MOMENTUM, grown))


def step_size(length: float, largest: float, *, n_iter: int, momentum: float) -> float:
    """Learning rate times clip norm for a descent of `length` in `n_iter` steps."""
    return min(length / _steps_remembered(momentum, n_iter), largest)


def _steps_remembered(momentum: float, n_iter: int) -> float:
    """Number of steps without momentum that go equally far."""
    if momentum <= MOMENTUM:
        return n_iter / (1 - momentum)
    return sum(1 / (1 - momentum_at(t, momentum, n_iter=n_iter)) for t in range(n_iter))


# Warnings: thresholds for warnings to users (benchmarks/repro_warnings.py) -----------------------

# A fit is expected to be poor where the noise multiplier of all steps together, times the square
# root of the number of weights of one column of scores, over the number of rows, is above this.
# Poor means that it loses more than half of what a model without privacy gains over a constant. On
# the sets on which it was chosen, warnings and silence are right in 0.90 and 0.92 of the cells of
# classifiers, in 0.83 and 0.88 of the cells of regressors; released weights add no information. For
# modules all weights count, and the threshold was not compared with fits.
HIDING, HIDING_TARGETS, HIDING_MODULES = 0.22, 0.1, 0.1

# Rows, in standard deviations of the noise of a count, below which a range is rarely found.
ROWS_FOR_BOUNDS = 8.0

# Columns are in different units where the squared mean of one of them, or of two among at least
# MANY_COLUMNS, is this share of the largest possible squared norm of a row. Rows of two such
# columns are long beside the bias entry (its mean is at most LONG_ROWS), unlike rows of categories.
DOMINANT, MANY_COLUMNS, LONG_ROWS = 0.6, 8, 0.1

# Rows hardly differ where their mean squared distance from their mean, over the largest possible
# squared norm of a row, cannot be distinguished from 0 and is at most this.
ALIKE = 0.05

# Rows are off centre where noise has moved their mean by at least this part of half the radius
# about it. Of the fits that lose a third of the accuracy or more through offsets, 85 to 100 % are
# above this. Seven data sets have 0.65 at most (benchmarks/repro_dpsgdf.py).
OFF_CENTRE = 0.8

# Ranges are too wide where the standard deviation of their values, in half ranges, is at most this:
# for a normal distribution whose 3 deviations fill a range it is 1 / 3.
FILLED = 0.2


# Linear regression ----------------------------------------------------------------------------

# Number of rows over the noise multiplier of a fit from which on steps are whitened: with fewer
# rows, noise hides their second moment. On three tables of 4 to 27 columns, R2 without whitening is
# higher by up to 29 points at 10, by 1 to 2 points at 20, and lower by up to 6 at 40.
WHITENING_FROM = 22

# Share of the budget for the second moment by which gradient steps are whitened, and the share of
# the iterates that are averaged.
WHITENING_SHARE, REGRESSION_AVERAGED = 0.2, 0.4

# Shares of the budget for location and scale of columns and of targets between given ranges.
STANDARD_SHARE, TARGET_SHARE = 0.08, 0.04

# Noise of all weights together over the size of standardised rows, above which a warning says that
# a fit is no better than a constant.
HIDING_ROWS = 1.0

# Entries are clipped to this many standard deviations about the mean of a column. Rare entries
# further out would have weights that noise alone decides.
FAR = 4.0

# Norm to which rows and targets are shrunk for their joint second moment, over the square root of
# the number of their entries.
REGRESSION_RADIUS = 1.3

# Error by the noise of a second moment over the sampling error, below which one pass over the rows
# is as good as many.
MOMENTS_ENOUGH = 0.05


def regression_steps(reach: float) -> int:
    """Number of steps on white rows, by the number of rows over the noise multiplier of the fit.

    Few where there is much noise, since then the progress of early steps is lost; more where there
    is little, since some tables are far from white when whitened by a noisy second moment.
    """
    return min(20, max(6, round(3.4 * math.log(max(reach, 1.0)) - 1)))


def regression_rate(reach: float) -> float:
    """Size of steps on white rows, by the number of rows over the noise multiplier of all steps.

    Smaller where there is much noise: the moment by which rows are whitened is noisy too, and steps
    must not overshoot in directions in which it is too small.
    """
    return min(0.4, max(0.2, 0.2 + 0.05 * math.log2(max(reach, 1.0) / 33)))


def _reach(noise: float) -> float:
    """Size beyond which a Gaussian entry is rare enough beside this noise."""
    return math.sqrt(math.log1p(1 / (4 * max(noise, 1e-12) ** 2)))


def regression_clip(noise: float) -> float:
    """Clip norm over the square root of the number of weights; wider where noise is small."""
    return 0.45 * _reach(noise)


def moments_suffice(n_samples: int, reach: float, n_weights: float) -> bool:
    """Whether the noise of one second moment is small beside the sampling error of least squares.

    The error of predictions by this noise, over the error by sampling, is about ``9 n_weights^2 /
    reach^2`` to ``1 / n_samples``.
    """
    return 9 * n_weights**2 * n_samples <= MOMENTS_ENOUGH * reach**2


# Regression in directions of public tasks -------------------------------------------------------

# Origin of the numbers: benchmarks/repro_transfer.py, with six other seeds of some cells of its
# section "tasks".

# Variance of the noise of a weight over the square of the size of rows and over the square of the
# reach, and the factor by which it is larger along columns of less importance: few steps along them
# reach their end.
WEIGHT_NOISE, WEIGHT_NOISE_OFF = 5.0, 3.0

# Least ratio of the noise of the other columns to the noise of the directions, if the others are
# used to check the directions; and the largest ratio of the noise of all columns to the explained
# variance with which that is done.
TELLING, LEARNED = 0.2, 0.5

# Squares of the candidate factors.
_SQUARES = np.append(0.0, np.geomspace(1e-3, 1.0, 121))


def importance_of_rest(
    inside: float, outside: float, k: int, rest: int, n_samples: float, reach: float
) -> tuple[float, float]:
    """Factor by which columns off k directions should count, and the error expected then.

    Weights along the k directions explain about the share `inside` of the variance of a target, and
    weights of the `rest` the share `outside`. The noise of gradients is in proportion to the size
    of rows, and the noise of a weight is in proportion to that size over the factor of its column.
    Best linear estimates of weights of variance t from numbers with noise of variance v have the
    error ``t v / (t + v)``. Where it is best to leave the rest out, the factor is 0; but where the
    noise would allow learning all columns, the factor is large enough for the rows to show whether
    the directions miss something.
    """
    noise = WEIGHT_NOISE * (k + rest * _SQUARES) / reach**2
    along = noise + 1 / n_samples
    off = WEIGHT_NOISE_OFF * noise / np.maximum(_SQUARES, 1e-300) + 1 / n_samples
    error = inside * along / (inside / k + along)
    if rest:
        error = error + outside * off / (outside / rest + off)
    best = int(np.argmin(error)) if math.isfinite(reach) else len(_SQUARES) - 1
    square = float(_SQUARES[best])
    if WEIGHT_NOISE * (k + rest) ** 2 / reach**2 < LEARNED * (inside + outside):
        square = max(square, min(TELLING * k / max(rest, 1), 1.0))
    return math.sqrt(square), float(error[best])
