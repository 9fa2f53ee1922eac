"""Slopes and intercepts of classifiers that were trained by clipped gradients, from two releases.

Design note. Rows of a rare class are those with large residuals, and clipping shrinks their
gradients and not those of the others. So training ends where too little is added to the scores of
that class: on a table with 4 % of positives, probabilities come out a third too low, however many
steps there are and with next to no noise. Clipping the constant entry by itself would mend it,
and cost 3 to 11 points of AUC: weights are then moved by the many rows of the other class, whose
sum is no longer balanced. Clipping also makes all scores too long: a row that is far on the wrong
side hardly counts, so that probabilities come out too near 0 and 1. Multiplying all scores by one
number and shifting them, once after training, mends both and costs its share alone. Which class of
two is the more probable changes near the boundary at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._array import Array, at_least, at_most, namespace, to_numpy
from dpsubspace._gradients.clipping import in_parts, shrink_factors
from dpsubspace._gradients.linear import OuterGradients
from dpsubspace._gradients.losses import Rescaled
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotals, vector_sum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.chunks import over_chunks

# Name of the releases.
INTERCEPT = "intercept"

# How often sums of residuals are released, each where the one before has led.
TIMES = 3

# Moves of a score that are looked at.
_MOVES = np.linspace(-3.0, 3.0, 1201)

# Part of a move by which what sums tell of it may be off, beside their noise.
_UNSURE = 0.1

# Rounds in which the slope and the shifts follow each other, and the farthest logarithm of a slope.
_ROUNDS, _FARTHEST = 2, 0.6

# Most that the ends of moves of several classes count: longer ones are shortened.
_LONGEST = 0.5, 0.25, 0.25


def noisy_map(
    source: Any, params: Array, usual: np.ndarray, releases: Releases
) -> tuple[float, np.ndarray]:
    """Release what to multiply scores by, and what to add then, (c,), for right probabilities.

    Probabilities add up to the counts of classes then, and on average they are as large as the
    share of the rows that are of their class. `source` has the gradients of the log loss of rows at
    released `params`. `usual` (c,) is the shift that public and released numbers suggest; where
    noise hides all, it is what is returned, with a slope of 1.

    Privacy: each of the :data:`TIMES` releases is of the sums of :func:`residual_sum`, at scores
    that `params`, a slope and a shift give. All are made of released numbers by then: the first
    shift is the usual one, and the next follows from the release before. The rest is
    postprocessing. Events: as many Gaussian mechanisms.

    What sums tell is for moves near the scores that they were taken at, and the further the move,
    the more the noise of derivatives counts: hence they are taken again where the last move led.
    The first only moves scores, as the sums tell little of a slope where shifts are far off. A move
    is the one that is most likely beside a normal prior: about a slope of 1 and the usual shift,
    and then about what was found, as wide as noise left it.
    """
    slope, shift = 1.0, usual if len(usual) == 1 else usual - usual.mean()
    spread, spreads = 0.0, np.full(len(usual), _auto.SHIFT_SPREAD)  # none of the slope, at first
    for _ in range(TIMES):
        total = _sums(source.with_loss(Rescaled(source.loss, slope, shift)), params)
        sums = _Sums.of(releases.gaussian(INTERCEPT, total), releases.noise_of(INTERCEPT, total))
        longer, moves, left, spreads = sums.moves(spread, spreads)
        spread, factor = left or _auto.SLOPE_SPREAD, math.exp(longer)
        # Of several classes, each against the others: all are moved, and add up to no move.
        if len(moves) > 1:
            moves = moves * (1 - sums.slopes / sums.slopes.sum())
        slope, shift = slope * factor, shift * factor + moves
    return slope, shift


def _sums(source: Any, params: Array) -> BoundedSum:
    with over_chunks(source) as each:
        totals = each.total(lambda rows: (residual_sum(source.at(params, rows)),), DisjointTotals)
    return totals.bounded_sums()[0]


@dataclass(frozen=True)
class _Sums:
    """Noisy sums of :func:`residual_sum` in units of a record, of c columns of scores."""

    noise: float  # Standard deviation of the noise of a sum that was released as it is
    off: np.ndarray  # (c,): of probabilities less counts
    slopes: np.ndarray  # (c,): what a move of the column adds to that, and its own derivative
    bends: np.ndarray
    longer: np.ndarray  # (c,): what a longer score adds to `off`, by the logarithm of the slope
    sure: float  # More than 0 where probabilities are too near 0 and 1
    by_slope: float  # What a longer score adds to that
    by_move: np.ndarray  # (c,): what a move of the column adds to it

    @classmethod
    def of(cls, released: Array, noise: float) -> _Sums:
        noisy, noise = to_numpy(released), max(noise, 1e-9)
        columns, (sure, by_slope) = noisy[:-2].reshape(5, -1), noisy[-2:]
        off, slopes, bends, longer, by_move = columns
        slopes = np.maximum(slopes / math.sqrt(2), noise)
        bends = bends / math.sqrt(2)
        return cls(
            noise, off, slopes, bends, longer, sure * math.sqrt(2), float(by_slope), by_move
        )

    def moves(
        self, spread: float, spreads: np.ndarray
    ) -> tuple[float, np.ndarray, float, np.ndarray]:
        """Most likely logarithm of a slope, moves (c,), and what noise leaves of their spreads.

        With a `spread` of 0 the slope stays as it is.

        Scores are made longer by the slope first, and moved then. Shifts that follow the slope make
        up for what it does to sums of probabilities; columns of which noise hides that are left
        out.
        """
        clear, noise = self.slopes > 4 * self.noise, math.sqrt(2) * self.noise
        followed = np.where(clear, self.longer / self.slopes, 0.0)
        told = max(self.by_slope - float(self.by_move @ followed), 0.0) / noise
        longer, moves = 0.0, np.zeros(len(self.off))
        width = spread / math.hypot(told * spread, 1.0)
        for _ in range(_ROUNDS if spread else 1):
            # What would be left of it if shifts followed the slope back to 1.
            sure = self.sure + float(self.by_move @ (moves + followed * longer))
            longer = min(max(-sure / noise * told * width**2, -_FARTHEST), _FARTHEST)
            columns = zip(
                self.off + self.longer * longer,
                self.slopes,
                self.bends / self.slopes,
                -followed * longer,
                spreads,
                strict=True,
            )
            moves, left = np.transpose([_likely(*column, self.noise) for column in columns])
        left = np.hypot(left, _UNSURE * moves)
        return longer, moves, width, left

def _likely(
    off: float, slope: float, bend: float, usual: float, spread: float, noise: float
) -> tuple[float, float]:
    """Most likely move of a column by noisy sums, and its standard deviation, about.

    The prior is normal about the move `usual`, with the deviation `spread`. The slope is noisy as
    well: for each move the slope that is most likely with it is taken, which divides the square of
    what is left by ``1 + f^2 / 2``, with f for ``(exp(g d) - 1) / g``.
    """
    rate = min(max(bend, -1.0), 1.0)
    rate = rate if abs(rate) > 1e-6 else 1e-6
    noise = max(noise, 1e-9)
    by = np.expm1(rate * _MOVES) / rate
    left = (off + slope * by) / noise / np.sqrt(1 + by**2 / 2)
    best = np.argmin(left**2 + ((_MOVES - usual) / spread) ** 2)
    told = slope * np.exp(rate * _MOVES[best]) / noise / np.sqrt(1 + by[best] ** 2 / 2)
    return float(_MOVES[best]), float(1 / np.hypot(told, 1 / spread))


def residual_sum(grads: OuterGradients) -> BoundedSum:
    """Sum over records of residuals r of c columns and of what scores do to them, (5 c + 2,).

    The private gradients are those of the log loss, of probabilities p. What follows r is

    - v and u, its first two derivatives by a move of its column, times sqrt(2);
    - x, its derivative by the logarithm of a factor of all scores;
    - y, the derivative of t by a move of the column;
    - ``t = sum_j p_j h_j - h_k`` of a row of class k, over sqrt(2), with ``h = l / (1 - l)`` of
      ``l = log p``: more than 0 on average where probabilities are too near 0 and 1;
    - w, the derivative of t by the logarithm of a factor.

    The h are held in derivatives of t.

    Proof of the bound. A row of class k has the residuals ``r = p - e_k`` of c columns, of sizes
    a: ``1 - p_k`` in that column, and ``p_j`` in others. Its derivatives are ``v = a (1 - a)`` and
    ``u = v (1 - 2 p)``. A column adds to the square of the norm of (r, sqrt(2) v, sqrt(2) u) at
    most ``a^2 + 4 a^2 (1 - a)^2 <= a``, since ``4 a (1 - a) <= 1``. All a together are at most 2,
    and at most 1 where there is one column.

    All h are between -1 and 0, and so t is between -1 and 1. Of several columns ``t^2 / 2`` adds at
    most 1 / 2, and x, y and w, which are shortened to norms of 1/2, 1/4 and 1/4 where they are
    longer, add 3 / 8: the norm is below sqrt(3).

    Of one column, with ``q = min(a, 1 - a)`` and ``L = log(1 / q)``, ``|x| <= q L``, ``|w| <= |x|``
    and ``|y| <= q``, and ``q L^2 <= 4 / e^2 < 0.542``: ``x^2 + w^2 + y^2 <= 1.084 q + q^2``. With a
    above 1/2, ``t <= L / (1 + L)``, so that ``2 t^2 <= 2 - 2 / (1 + L)``: the square of the norm is
    at most ``1 - q + 1 / 2 - 1 / (2 + 2 L) + 1.084 q + q^2 <= 3 / 2``, since
    ``(0.084 q + q^2) (2 + 2 L) < 0.99`` for q up to 1/2. With a up to 1/2 it is at most
    ``a + a^2 / 2 + 1.084 a + a^2 < 3 / 2``.

    A null record moves the sum by the norm, a replaced one by twice that. Where a record has
    several rows, the lemma of ``_rows/records.py`` holds. A row whose gradient does not count
    brings nothing here either.
    """
    xp, r = namespace(grads.residuals), grads.residuals
    counts = in_parts(grads, shrink_factors(grads.norms(), math.inf))[:, None]
    r = xp.astype(xp.where(counts > 0, r, xp.zeros_like(r)), xp.float64)
    sizes = xp.abs(r)
    p = xp.where(r < 0, 1 - sizes, sizes)
    v = sizes * (1 - sizes)
    parts = [r, math.sqrt(2) * v, math.sqrt(2) * v * (1 - 2 * p)]
    parts += _of_one(r, p, v) if r.shape[1] == 1 else _of_several(r, p)
    terms = xp.concat(parts, axis=1) * xp.astype(counts, xp.float64)
    bound = math.sqrt(1.5) if r.shape[1] == 1 else math.sqrt(3)
    return vector_sum(xp.sum(terms, axis=0), bound, grads.slack())


def _of_one(r: Array, p: Array, v: Array) -> list[Array]:
    """x, y, t over sqrt(2) and w of one column."""
    (logs, h), (others, h_other) = _logs(p), _logs(1 - p)
    x, apart = (1 - p) * p * (logs - others), h - h_other
    return [x, v * apart, r * apart / math.sqrt(2), x * apart]


def _of_several(r: Array, p: Array) -> list[Array]:
    """The same of several columns, of which some are shortened."""
    xp, (logs, h) = namespace(p), _logs(p)
    x, y = (p * (part - xp.sum(p * part, axis=1)[:, None]) for part in (logs, h))
    own = xp.sum(xp.where(r < 0, h, xp.zeros_like(h)), axis=1)[:, None]
    t = at_most(at_least(xp.sum(p * h, axis=1)[:, None] - own, -1.0), 1.0)
    x, y, w = (
        part * (most / at_least(xp.sqrt(xp.sum(part * part, axis=1)), most))[:, None]
        for part, most in zip((x, y, xp.sum(x * h, axis=1)[:, None]), _LONGEST, strict=True)
    )
    return [x, y, t / math.sqrt(2), w]


def _logs(p: Array) -> tuple[Array, Array]:
    """Logarithms l of probabilities, or 0 of none, and ``l / (1 - l)``, which ends at -1."""
    xp = namespace(p)
    logs = xp.log(xp.where(p > 0, p, xp.ones_like(p)))
    return logs, xp.where(p > 0, logs / (1 - logs), -xp.ones_like(p))


def usual_shift(scores: np.ndarray, length: float) -> np.ndarray:
    """Half of what clipping takes from the scores of a usual row, (c,).

    The gradient of a row of class k is ``x (p - e_k)'``. Clipping multiplies it by
    ``c_k = 1 / max(1, length |p - e_k|)``, with `length` that of the row in clip norms, and
    training ends where what is left adds up to zero. Where labels have the probabilities q,
    ``sum_k q_k c_k (p - e_k) = 0`` says that ``q_k c_k`` is in proportion to ``p_k``: scores are
    too low by ``-log c_k``. Half of that is between what it takes from rare and from other classes.
    """
    if len(scores) == 1:
        p = np.exp(-np.logaddexp(0.0, [-scores[0], scores[0]]))  # of the second and first class
        shrunk = np.log(np.maximum(1.0, length * p))
        return (shrunk[1:] - shrunk[:1]) / 2
    p = np.exp(scores - scores.max())
    p /= p.sum()
    apart = np.sqrt(np.maximum(p @ p + 1 - 2 * p, 0.0))
    return np.log(np.maximum(1.0, length * apart)) / 2
