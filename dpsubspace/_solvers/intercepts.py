"""Intercepts of classifiers that were trained by clipped gradients, from one release.

Design note. Rows of a rare class are those with large residuals, and clipping shrinks their
gradients and not those of the others. So training ends where too little is added to the scores of
that class: on a table with 4 % of positives, probabilities come out a third too low, however many
steps there are and with next to no noise. Clipping the constant entry by itself would mend it,
and cost 3 to 11 points of AUC: weights are then moved by the many rows of the other class, whose
sum is no longer balanced. Shifting the scores once, after training, costs its share alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._array import Array, namespace, to_numpy
from dpsubspace._gradients.clipping import in_parts, shrink_factors
from dpsubspace._gradients.linear import OuterGradients
from dpsubspace._gradients.losses import Shifted
from dpsubspace._release.mechanisms import BoundedSum, DisjointTotals, vector_sum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.chunks import over_chunks

# Name of the release.
INTERCEPT = "intercept"

# How often sums of residuals are released, each where the one before has led.
TIMES = 2

# Moves of a score that are looked at.
_MOVES = np.linspace(-3.0, 3.0, 1201)


def noisy_shift(source: Any, params: Array, usual: np.ndarray, releases: Releases) -> np.ndarray:
    """Release what to add to the scores, (c,), so that probabilities add up to counts of classes.

    `source` has the gradients of the log loss of rows at released `params`. `usual` (c,) is the
    shift that public and released numbers suggest; what is returned is it where noise hides all.

    Privacy: each of the :data:`TIMES` releases is of the sums of :func:`residual_sum`, at scores
    that `params` and a shift give. Both are made of released numbers by then: the first shift is
    the usual one, and the next follows from the release before. The rest is postprocessing.
    Events: as many Gaussian mechanisms.

    Sums of probabilities less counts, and their first two derivatives by a move d of the shift,
    tell for every d how far the sum would be off: by ``r + v (exp(g d) - 1) / g`` with
    ``g = u / v``. That is exact to second order, and to all orders where probabilities are small.
    The further the move, the more the noise of v counts: hence the sums are taken again where the
    first move led. A move is the one that is most likely beside a normal prior: about the
    usual shift, and then about what was found, as wide as noise left it.
    """
    shift = usual if len(usual) == 1 else usual - usual.mean()
    spread = np.full(len(usual), _auto.SHIFT_SPREAD)
    for _ in range(TIMES):
        total = _sums(source.with_loss(Shifted(source.loss, shift)), params)
        noisy = to_numpy(releases.gaussian(INTERCEPT, total))
        noise = releases.noise_of(INTERCEPT, total)
        off, slopes, bends = noisy.reshape(3, -1) / [[1.0], [math.sqrt(2)], [math.sqrt(2)]]
        slopes = np.maximum(slopes, max(noise, 1e-9))
        columns = zip(off, slopes, bends / slopes, spread, strict=True)
        moves, spread = np.transpose([_likely(*column, noise) for column in columns])
        # Of several classes, each against the others: all are moved, and add up to no move.
        shift = shift + moves * (1.0 if len(moves) == 1 else 1 - slopes / slopes.sum())
    return shift


def _sums(source: Any, params: Array) -> BoundedSum:
    with over_chunks(source) as each:
        totals = each.total(lambda rows: (residual_sum(source.at(params, rows)),), DisjointTotals)
    return totals.bounded_sums()[0]


def _likely(
    off: float, slope: float, bend: float, spread: float, noise: float
) -> tuple[float, float]:
    """Most likely move of a column by noisy sums, and its standard deviation, about.

    The prior is normal about no move, with the deviation `spread`. The slope is noisy as well: for
    each move the slope that is most likely with it is taken, which divides the square of what is
    left by ``1 + f^2 / 2``, with f for ``(exp(g d) - 1) / g``.
    """
    rate = min(max(bend, -1.0), 1.0)
    rate = rate if abs(rate) > 1e-6 else 1e-6
    noise = max(noise, 1e-9)
    by = np.expm1(rate * _MOVES) / rate
    left = (off + slope * by) / noise / np.sqrt(1 + by**2 / 2)
    best = np.argmin(left**2 + (_MOVES / spread) ** 2)
    told = slope * np.exp(rate * _MOVES[best]) / noise / np.sqrt(1 + by[best] ** 2 / 2)
    return float(_MOVES[best]), float(1 / np.hypot(told, 1 / spread))


def residual_sum(grads: OuterGradients) -> BoundedSum:
    """Sum over records of residuals r, and of their derivatives v and u by the scores, (3 c,).

    Derivatives are times sqrt(2). The private gradients are those of the log loss.

    Proof of the bound. A row of class k has the residuals ``r = p - e_k`` of c columns, of sizes
    a: ``1 - p_k`` in that column, and ``p_j`` in others. Its derivatives are ``v = a (1 - a)`` and
    ``u = v (1 - 2 p)``. A column adds to the square of the norm of (r, sqrt(2) v, sqrt(2) u) at
    most ``a^2 + 4 a^2 (1 - a)^2 <= a``, since ``4 a (1 - a) <= 1``. All a together are at most 2,
    and at most 1 where there is one column: the norm is at most sqrt(2), or 1. A null record moves
    the sum by that, a replaced one by twice that. Where a record has several rows, the lemma of
    ``_rows/records.py`` holds. A row whose gradient does not count brings nothing here either.
    """
    xp, r = namespace(grads.residuals), grads.residuals
    counts = in_parts(grads, shrink_factors(grads.norms(), math.inf))[:, None]
    r = xp.astype(xp.where(counts > 0, r, xp.zeros_like(r)), xp.float64)
    sizes = xp.abs(r)
    p = xp.where(r < 0, 1 - sizes, sizes)
    v = math.sqrt(2) * sizes * (1 - sizes)
    terms = xp.concat([r, v, v * (1 - 2 * p)], axis=1) * xp.astype(counts, xp.float64)
    bound = 1.0 if r.shape[1] == 1 else math.sqrt(2)
    return vector_sum(xp.sum(terms, axis=0), bound, grads.slack())


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
