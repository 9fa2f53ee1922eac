"""What "auto" stands for: choices from public quantities, good enough that nobody tunes.

Design note. Tuning on private rows costs privacy, so these defaults are part of the product.
They were set on sixteen real data sets (142 to 60,000 rows, 4 to 1,024 columns, 2 to 10
classes), on six of 20 to 100 classes, and epsilon from 0.3 to 10;
``benchmarks/repro_defaults.py`` holds them against a grid, and
``benchmarks/pages/defaults_chosen.md`` tells what was found and what was tried and dropped.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache

import numpy as np

# Momentum, and the most of it in the last third of the steps.
MOMENTUM, CALM = 0.9, 0.95

# The bias entry of rows, in units of the bound on them.
BIAS = 0.5

# Clip norms in units of the bound on a row, and of the size of a residual.
CLIP, CENTRED_CLIP = 0.5, 0.25

# The same for means of the gradients of a person's rows, which are shorter, and of modules.
PERSON_CLIP, PERSON_MODULE_CLIP = 0.125, 0.5

# Share of the mean of the rows in mu^2, and how adaptive preprocessing splits it.
MEAN_SHARE = 0.1
ADAPTIVE_PARTS = {"coarse mean": 0.3, "coarse radius": 0.125, "mean": 0.45, "radius": 0.125}

# Noise of the counts behind a radius, over the number of records, that is too much for it.
ADAPTIVE_NOISE = 0.1

# Share of what corrects the scores of classes after training, and the standard deviation of shifts
# about the usual one (benchmarks/repro_calibration.py rare). AUC falls in proportion to the share:
# by less than 0.1 points for 0.008 on Adult with 1,000 rows and epsilon 0.3, where it falls most.
INTERCEPT_SHARE, SHIFT_SPREAD = 0.012, 0.5

# Standard deviation of the logarithm of the number that scores are multiplied by after training
# (benchmarks/repro_calibration.py slopes).
STRETCH_SPREAD = 0.4

# Share of the ranges of rows and targets that a regressor estimates privately.
BOUNDS_SHARE = 0.1

# Share of what finds where in their range the targets of a table lie.
FOCUS_SHARE = 0.05

# The same for a public range of other rows, which is right in most fits. It is left for a part of
# it only where that is so many times narrower: then the range is in a wrong unit, say. With both,
# R2 of DPSGDRegressor with right ranges and 3,000 rows, six seeds on each of eight tables, changed
# by 0.0005, -0.0005 and -0.0004 on average at epsilon 0.3, 1 and 3: by -0.0015 to 0 on each table,
# but by 0.0085 with an error of 0.009 on that of wine at 0.3. That with ranges 10 times too wide
# rose from -0.40, 0.22 and 0.39 to 0.36, 0.45 and 0.46, on seven tables.
RANGE_SHARE, RANGE_FOCUS = 0.02, 3.0

# Share of what tells which columns make up the length of the rows, and what they hold of it where
# that is told: one of them, or two of many columns. All others hold at most so much of what the
# first one holds, on average: the mean square of columns within [-1, 1], beside one of -1 and 1, is
# about a tenth. Of eleven tables, raw columns of eight are told of, with R2 of -0.03 to 0.5 at
# epsilon 1 and 3 where scaled ones have 0.14 to 0.96; scaled ones, and raw ones that do well, of
# none.
LENGTHS_SHARE, ONE_COLUMN, TWO_COLUMNS, SHORT_COLUMNS = 0.01, 0.6, 0.9, 0.03
# Largest noise of such a share beside which it is told: of many columns, one has much of it.
LENGTHS_SEEN = 0.1

# Share of half a range that the mean deviation of targets in it is at most where that is told:
# where noise lets a deviation be seen, and where it hides that there is any.
RANGE_FILLED, RANGE_UNSEEN = 0.02, 0.1

# Where public rows are at hand: shares of the mean of the rows, and of what tells whether the
# public rows are like the private ones.
PUBLIC_MEAN_SHARE, CHECK_SHARE = 0.05, 0.05

# How many times as often labels of public rows are taken to be of use as not, at most, before
# private rows are asked.
TRUST = 2.0

# Directions of public features: this times the root of the rows over the noise multiplier of all
# steps, at least so many, and fewer for many classes (benchmarks/repro_components.py). Not where
# they are more than a share of the columns, or where public rows are fewer than a share of them.
DIRECTIONS, FEWEST_DIRECTIONS = 2.0, 5
MOST_OF_COLUMNS, LEAST_ROWS = 1 / 4, 2 / 3

# Norm of the mean gradient over the clip norm, for the share of energy that these directions must
# hold. It was 0.04 to 0.34 at zero weights; more is stricter where there are many rows.
DIRECTIONS_COHERENCE = 0.1

# Where they hold less: directions whose energy is above this many times the noise in their
# gradient, and at least so many that they hold this share of all energy.
WORTH, LEAST_ENERGY = 6.7, 0.6

# Directions of public gradients; the share of embeddings in mu^2, and the bound on residuals
# over that on embeddings.
ANCHOR_DIRECTIONS, EMBEDDING_SHARE, RESIDUAL_RATIO = 200, 0.8, 0.2

# The same for modules, whose gradients lie less in the span of those of public rows.
MODULE_SHARE, MODULE_RATIO = 0.5, 0.5

# Norm of the mean gradient over the clip norm, for the share of energy from which on directions are
# worth it. On MNIST, Fashion-MNIST and chest x-rays at three budgets, crossings of projection are
# within 0.14 of what follows from it, and those of GEP within 0.21 (benchmarks/repro_gsd.py). No
# constant fits an error that is quadratic.
COHERENCE = 0.05

# Clip norm of a module's gradients, its walk for residuals of size 1, and its largest step.
MODULE_CLIP, MODULE_WALK, MODULE_LARGEST = 1.0, 0.975, 2.0

# Penalty of a fit to labelled public rows: 1 / (this * their number).
PUBLIC_FIT = 100.0

# The constant entry of centred rows, in units of the clip norm. Its gradient is this times
# the residual, so that it alone does not fill what clipping lets through.
CENTRED_BIAS = 0.6

# Largest step, as learning rate times clip norm for rows of size 1.
LARGEST, CENTRED_LARGEST = 16.0, 32.0

# Clipping of a log loss moves its minimum, and most for rare classes. It is given up by and by as
# the noise of privacy in a mean gradient falls beside that of chance: squares of their quotient
# between which that happens; and noise multipliers of all steps together between which it may, of
# an epsilon of about 12 and of 90. Usual budgets keep what all else was set with.
OPENING, OPENING_MULTIPLIER = (3e-3, 3e-4), (0.4, 0.1)

# With no clipping left: the clip norm, for residuals of at most 1, that no centred row with its
# constant passes; the step that is stable whatever the rows are, times the curvature of the loss;
# and how many times as many steps there are then, since those are short.
OPEN_CLIP, OPEN_STEP, OPEN_STEPS = 1.25, 4 / 3, 5.0

# Classes up to which the noise that is borne depends on the number of weights only.
FEW_CLASSES = 20

# Fewest steps, and most with momentum that grows and with the same momentum all along.
_FEWEST, _MOST, _MOST_STEADY = 100, 160, 400


def travel(*, walk: float, noise_size: float, n_samples: float, multiplier: float) -> float:
    """Length of the descent, ``n_iter * learning_rate * clip_norm / (1 - momentum)``.

    `walk` is the noise in the weights that the loss bears, over the cube root of their number; it
    includes :func:`many_classes`. `noise_size` is the norm of the noise of a step, in units of the
    clip norm and of the multiplier: the square root of the number of weights where all of them get
    the same, else its square stands for their number. The multiplier is that of all steps together.
    """
    return walk * noise_size ** (2 / 3) * n_samples / (multiplier * noise_size)


def opened(multiplier: float, n_params: int, n_samples: int) -> float:
    """How far clipping is given up, from 0 to 1, by the multiplier of all steps together.

    The noise of privacy in a mean gradient has the square ``(multiplier / n)^2`` for each of p
    weights, and that of chance about ``1 / n`` for all of them, in units of the clip norm.
    """
    multiplier = max(multiplier, 1e-100)
    noise = multiplier**2 * n_params / n_samples
    ways = ((noise, OPENING), (multiplier, OPENING_MULTIPLIER))
    shares = [math.log(first / x) / math.log(first / last) for x, (first, last) in ways]
    return min(max(min(shares), 0.0), 1.0)


def many_classes(n_classes: int) -> float:
    """How much more noise in the weights losses of so many classes bear: 1 up to twenty."""
    return max(1.0, n_classes / FEW_CLASSES) ** (1 / 3)


def clear_energy(n_outputs: int, noise: float) -> float:
    """Energy of a direction of features above which gradients along it outdo their noise.

    `noise` is the standard deviation of the noise of one entry of the mean gradient, by all steps.
    """
    return WORTH * (noise * n_outputs) ** 2


def n_directions(reach: float, n_outputs: int, *, n_public: int, width: int) -> int:
    """Directions of public rows to keep where they hold enough; 0 where they cannot be told.

    `reach` is the number of rows over the noise multiplier of all steps. The more noise, the fewer
    weights can be trained, whatever the number of columns, and with up to twenty classes.
    """
    wanted = DIRECTIONS * math.sqrt(reach) / many_classes(n_outputs) ** 2
    wanted = max(FEWEST_DIRECTIONS, wanted)
    if wanted > MOST_OF_COLUMNS * width or n_public < LEAST_ROWS * wanted:
        return 0
    return round(wanted)


def n_worth(energies: np.ndarray, clear: float) -> int:
    """Directions to keep: of clear energy, or among those that hold the least share of it all.

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
    """Share of the usual way to go from weights that public rows were fitted to.

    Energies are mean squares of public features along each direction that is trained. The
    multiplier is that of all steps together.

    A fit to m public rows errs by about ``p / m`` in the loss, with p weights that matter;
    private training errs by about ``(p sigma / n)^2``. The shorter the way, the larger the
    second beside the first.
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
    """Share of centred energy that directions must hold for training on them to be worth it.

    Without directions `n_weights` are trained, and on them `n_kept`. The multiplier is that of all
    steps together.

    Private training of q weights errs in the loss by about ``z / (1 + z)`` of what there is to
    learn, with ``z = multiplier sqrt(q) / (n gamma)``: the rate of private empirical risk
    minimisation where that is small (Bassily, Smith, Thakurta, 2014), and no more than a constant
    model where it is large. gamma is how much of the clip norm the mean gradient has: `coherence`.
    On directions that hold a share u of the energy, only u can be learned: the error is
    ``1 - u / (1 + z_k)``, which is that of all weights at ``u = (1 + z_k) / (1 + z_p)``.
    """
    noise = multiplier / (n_samples * coherence)
    return (1 + noise * math.sqrt(n_kept)) / (1 + noise * math.sqrt(n_weights))


def n_steps(length: float, largest: float, *, growing: bool = True) -> int:
    """Steps of at most `largest` (learning rate times clip norm) for a descent of `length`."""
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
    """Momentum of step `t`: it remembers no more steps than there were, and fewer at the end."""
    grown = CALM if 3 * t >= 2 * n_iter else t / (t + 1)
    return min(momentum, max(MOMENTUM, grown))


def step_size(length: float, largest: float, *, n_iter: int, momentum: float) -> float:
    """Learning rate times clip norm for a descent of `length` in `n_iter` steps."""
    return min(length / _steps_remembered(momentum, n_iter), largest)


def _steps_remembered(momentum: float, n_iter: int) -> float:
    """Steps without momentum that go as far."""
    if momentum <= MOMENTUM:
        return n_iter / (1 - momentum)
    return sum(1 / (1 - momentum_at(t, momentum, n_iter=n_iter)) for t in range(n_iter))


# Warnings: thresholds of what a user is told (benchmarks/repro_warnings.py) ----------------------

# A fit is expected to be poor, which is to lose more than half of what a model without privacy
# gains over a constant, where the noise multiplier of all steps together, times the square root
# of the weights of one column of scores, over the number of rows, is above this. On the sets it was
# chosen on, warnings and silence are right in 0.90 and 0.92 of the cells of classifiers, in 0.83
# and 0.88 of those of regressors; released weights add nothing. For modules it is all weights,
# and the threshold was not held against fits.
HIDING, HIDING_TARGETS, HIDING_MODULES = 0.22, 0.1, 0.1

# Rows, in standard deviations of the noise of a count, below which a range is rarely found.
ROWS_FOR_BOUNDS = 8.0

# Columns are in different units where the square of the mean of one of them, or from so many
# columns on of two, is this share of the largest square that a row can have. Rows of two such
# columns are long beside the bias entry (its mean is at most this), as those of categories are not.
DOMINANT, MANY_COLUMNS, LONG_ROWS = 0.6, 8, 0.1

# Rows hardly differ where their mean square distance from their mean, over the largest square that
# a row can have, cannot be told from 0 and is at most this.
ALIKE = 0.05

# Rows are off centre where noise has moved their mean by at least this part of half the radius
# about it. Of fits that offsets cost a third of the accuracy or more, 85 to 100 % have that. Seven
# data sets have 0.65 at most (benchmarks/repro_dpsgdf.py).
OFF_CENTRE = 0.8

# Ranges are too wide where the standard deviation of what they are of is at most this in half
# ranges: that of a normal distribution whose 3 deviations fill a range is 1 / 3.
FILLED = 0.2


# Linear regression ----------------------------------------------------------------------------

# Rows over the noise multiplier of a fit from which on steps are whitened: of fewer rows, noise
# hides their second moment. On three tables of 4 to 27 columns, R2 without it is higher by up to 29
# points at 10, by 1 to 2 points at 20, and lower by up to 6 at 40.
WHITENING_FROM = 22

# Share of the budget for the second moment that gradient steps are whitened by, and the share of
# the iterates that are averaged.
WHITENING_SHARE, REGRESSION_AVERAGED = 0.2, 0.4

# Shares of the budget for location and scale of columns and of targets between given ranges.
STANDARD_SHARE, TARGET_SHARE = 0.08, 0.04

# Noise of all weights together beside that of standardised rows, above which a fit is told to
# be no better than a constant.
HIDING_ROWS = 1.0

# Standard deviations of a column about its mean that entries are cut to. Rare entries further out
# would have weights that noise alone decides.
FAR = 4.0

# Norm that rows and targets are shrunk to for their joint second moment, over the root of the
# number of their entries.
REGRESSION_RADIUS = 1.3

# Error by the noise of a second moment beside that by chance, below which one pass over the rows
# is as good as many.
MOMENTS_ENOUGH = 0.05


def regression_steps(reach: float) -> int:
    """Steps on white rows, by the number of rows over the noise multiplier of the fit.

    Few where there is much noise, since those of the beginning are lost; more where there is
    little, since some tables are far from white behind a noisy second moment.
    """
    return min(20, max(6, round(3.4 * math.log(max(reach, 1.0)) - 1)))


def regression_rate(reach: float) -> float:
    """Size of these steps, by the number of rows over the noise multiplier of all of them.

    Smaller ones where there is much noise: the moment that rows are whitened by has it too, and
    directions in which it is too small must not make steps overshoot.
    """
    return min(0.4, max(0.2, 0.2 + 0.05 * math.log2(max(reach, 1.0) / 33)))


def _reach(noise: float) -> float:
    """Size beyond which a Gaussian entry is rare enough beside such noise."""
    return math.sqrt(math.log1p(1 / (4 * max(noise, 1e-12) ** 2)))


def regression_clip(noise: float) -> float:
    """Clip norm over the root of the number of weights, wider where noise is small."""
    return 0.45 * _reach(noise)


def moments_suffice(n_samples: int, reach: float, n_weights: float) -> bool:
    """Whether the noise of one second moment is small beside what chance does to least squares.

    Its part of the error of predictions is about ``9 n_weights^2 / reach^2`` to ``1 / n_samples``.
    """
    return 9 * n_weights**2 * n_samples <= MOMENTS_ENOUGH * reach**2


# Regression in directions of public tasks -------------------------------------------------------

# Where the numbers come from: benchmarks/repro_transfer.py, with six other seeds of some cells of
# its section "tasks".

# Variance of the noise of a weight over the square of the size of rows and that of the reach, and
# by how much it is larger along columns that count less: few steps along them reach their end.
WEIGHT_NOISE, WEIGHT_NOISE_OFF = 5.0, 3.0

# Least share of noise beside that of the directions which the rest is looked at with, and the
# share of what weights explain that the noise of all columns may have where it is.
TELLING, LEARNED = 0.2, 0.5

# Squares of factors that are tried.
_SQUARES = np.append(0.0, np.geomspace(1e-3, 1.0, 121))


def importance_of_rest(
    inside: float, outside: float, k: int, rest: int, n_samples: float, reach: float
) -> tuple[float, float]:
    """Factor by which columns off k directions should count, and the error that is expected then.

    Weights along the k directions explain about the share `inside` of the variance of a target, and
    those of the `rest` the share `outside`. The noise of gradients is in proportion to the size of
    rows, and that of a weight to it over the factor of its column. Best linear estimates of weights
    of variance t by numbers with noise of variance v have the error ``t v / (t + v)``. Where it is
    best to leave the rest out, the factor is 0; but where noise would let all columns be learned,
    it is so large that the rows can tell whether the directions miss something.
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
