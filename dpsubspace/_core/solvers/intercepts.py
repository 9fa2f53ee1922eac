"""Length of scores, and their intercepts, after training by clipped gradients.

Design note. Rows of a rare class are the ones with large residuals, and clipping shrinks their
gradients and not those of other classes. So training ends with too little added to the scores of
that class: on a table with 4 % of positives, probabilities come out a third too low, however many
steps there are and even with almost no noise. Clipping the constant entry by itself would mend it,
and cost 3 to 11 points of AUC: weights are then moved by the many rows of the other class, whose
sum is no longer balanced. Clipping also makes all scores too long: a row that is far on the wrong
side hardly counts, so that probabilities come out too near 0 and 1. Multiplying all scores by one
number and shifting them, once after training, mends both and costs its share alone. With more than
two classes, scores are only shifted: their length is about right, and the noise of more sums would
cost 0.2 points of accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpsubspace._core.gradients.clipping import in_parts, shrink_factors
from dpsubspace._core.gradients.linear import OuterGradients
from dpsubspace._core.gradients.losses import Rescaled
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import Array, namespace, to_numpy
from dpsubspace._core.ground.forms import Number, NumberArray, Record
from dpsubspace._core.release.mechanisms import BoundedSum, DisjointTotals, vector_sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.chunks import over_chunks

# Name of the releases.
INTERCEPT = "intercept"

# Number of releases of the sums of residuals, each at the scores that the previous one suggests.
TIMES = 3

# Moves of a score that are considered.
_MOVES = np.linspace(-3.0, 3.0, 1201)

# Part of a move by which the estimate from the sums may be off, beside their noise.
_UNSURE = 0.1

# Rounds in which the stretch and the shifts follow each other, and the largest value of one
# release: a stretch is the logarithm of the factor of the scores.
_ROUNDS, _FARTHEST = 2, 0.6


class Doubt(NamedTuple):
    """Distance of the probabilities of rows from 0 and 1, by released numbers."""

    means: np.ndarray  # (c,): mean of p (1 - p) of each column of scores, and noise
    error: float  # Standard deviation of that noise

    def is_below(self, bound: float) -> bool:
        """Return whether the sum of the means is below a bound, allowing for its noise."""
        noise = 2 * self.error * math.sqrt(len(self.means))
        return noise <= bound and max(float(self.means.sum()), 0.0) + noise <= bound


DOUBT_FORM = Record(Doubt, means=NumberArray(("outputs",)), error=Number(0))


class Remap(NamedTuple):
    """Factor of the scores, the shift that is added then, and the remaining doubt."""

    factor: float
    shift: np.ndarray  # (c,)
    doubt: Doubt


def noisy_map(source: Any, params: Array, usual: np.ndarray, releases: Releases) -> Remap:
    """Release the factor of the scores, and the shift (c,) that is added to them then.

    Probabilities then add up to the counts of classes, and those of two classes are no longer too
    near 0 and 1; with more classes, the factor is 1. `source` has the gradients of the log loss of
    rows at released `params`. `usual` (c,) is the shift that public and released numbers suggest.
    If noise hides everything, the usual shift is returned, with a factor of 1.

    Privacy: each of the :data:`TIMES` releases is of the sums of :func:`residual_sum`, at scores
    that `params`, a factor and a shift give. All of these are made of released numbers by then: the
    first shift is the usual one, and the next follows from the release before. The rest is
    postprocessing. Events: as many Gaussian mechanisms.

    The sums inform about moves near the scores at which they were computed, and the further the
    move, the more the noise of derivatives counts: hence they are computed again at the scores
    after the last move. The first release only shifts scores, as sums show little of the factor if
    shifts are far off. A move is the most likely one given a normal prior: about a factor of 1 and
    the usual shift, and then about the last estimate, as wide as noise left it.
    """
    factor, shift = 1.0, usual if len(usual) == 1 else usual - usual.mean()
    spread, spreads, doubts = 0.0, np.full(len(usual), auto.SHIFT_SPREAD), []
    noise = 0.0
    for _ in range(TIMES):
        total = _sums(source.with_loss(Rescaled(source.loss, factor, shift)), params)
        noise = max(releases.noise_of(INTERCEPT, total), 1e-9)
        released = to_numpy(releases.gaussian(INTERCEPT, total))
        sums = _Sums.of(released, len(usual), noise)
        doubts.append(released[len(usual) : 2 * len(usual)] / math.sqrt(2))
        (stretch, spread), (moves, spreads) = sums.moves(spread, spreads)
        spread = spread or auto.STRETCH_SPREAD
        # With several classes, each against the others: all are moved, and add up to no move.
        if len(moves) > 1:
            moves = moves * (1 - sums.slopes / sums.slopes.sum())
        factor, shift = factor * math.exp(stretch), shift * math.exp(stretch) + moves
    # At scores that are nearly the final ones; the first scores were only shifted as usual.
    last, n = doubts[1:], source.n_samples
    error = noise / math.sqrt(2 * len(last)) / n
    return Remap(factor, shift, Doubt(np.mean(last, axis=0) / n, error))


def _sums(source: Any, params: Array) -> BoundedSum:
    with over_chunks(source) as each:
        totals = each.total(lambda rows: (residual_sum(source.at(params, rows)),), DisjointTotals)
    return totals.bounded_sums()[0]


@dataclass(frozen=True)
class _Sums:
    """Noisy sums of :func:`residual_sum`, and the deviation of the noise."""

    noise: float
    off: np.ndarray  # (c,): sum of r
    slopes: np.ndarray  # (c,): sum of v, and at least the noise
    bends: np.ndarray  # (c,): sum of u
    off_by_stretch: np.ndarray  # (c,): sum of x
    sure_by_move: np.ndarray  # (c,): sum of y
    sure: float  # sum of t: above 0 if probabilities are too near 0 and 1
    sure_by_stretch: float  # sum of w

    @classmethod
    def of(cls, released: np.ndarray, c: int, noise: float) -> _Sums:
        sums, root = np.zeros(5 * c + 2), math.sqrt(2)
        sums[: len(released)] = released  # with several columns no sum informs about the stretch
        off, slopes, bends, x, y = sums[:-2].reshape(5, c)
        slopes = np.maximum(slopes / root, noise)
        return cls(noise, off, slopes, bends / root, x, y, root * sums[-2], sums[-1])

    def moves(
        self, spread: float, spreads: np.ndarray
    ) -> tuple[tuple[float, float], tuple[np.ndarray, np.ndarray]]:
        """Return the most likely stretch and the shifts (c,) after it, each with its deviation.

        Priors have the deviations `spread` and `spreads`; with a `spread` of 0 nothing is
        stretched. The prior of a shift is centred at the shift that keeps a sum of probabilities
        unchanged under the stretch, or at 0 if noise hides that shift.
        """
        noise = math.sqrt(2) * self.noise  # noise of t
        clear = self.slopes > 4 * self.noise
        undone = np.where(clear, -self.off_by_stretch / self.slopes, 0.0)
        told = max(self.sure_by_stretch + float(self.sure_by_move @ undone), 0.0) / noise
        left = spread / math.hypot(told * spread, 1.0)
        stretch, moves, spreads_left = 0.0, np.zeros(len(self.off)), spreads
        for _ in range(_ROUNDS if spread else 1):
            beside = moves - undone * stretch  # shifts beyond those that make up for the stretch
            sure = self.sure + float(self.sure_by_move @ beside)
            stretch = min(max(-sure / noise * told * left**2, -_FARTHEST), _FARTHEST)
            off, bends = self.off + self.off_by_stretch * stretch, self.bends / self.slopes
            columns = zip(off, self.slopes, bends, undone * stretch, spreads, strict=True)
            found = [_likely(*column, self.noise) for column in columns]
            moves, spreads_left = np.transpose(found)
        return (stretch, left), (moves, np.hypot(spreads_left, _UNSURE * moves))


def _likely(
    off: float, slope: float, bend: float, usual: float, spread: float, noise: float
) -> tuple[float, float]:
    """Return the most likely move of a column by noisy sums, and about its standard deviation.

    The prior is normal about the move `usual`, with the deviation `spread`. The slope is noisy as
    well: for each move the slope that is most likely with it is used, which divides the square of
    the remaining sum by ``1 + f^2 / 2``, with f for ``(exp(g d) - 1) / g``.
    """
    rate = min(max(bend, -1.0), 1.0)
    rate = rate if abs(rate) > 1e-6 else 1e-6
    by = np.expm1(rate * _MOVES) / rate
    left = (off + slope * by) / noise / np.sqrt(1 + by**2 / 2)
    best = np.argmin(left**2 + ((_MOVES - usual) / spread) ** 2)
    told = slope * np.exp(rate * _MOVES[best]) / noise / np.sqrt(1 + by[best] ** 2 / 2)
    return float(_MOVES[best]), float(1 / np.hypot(told, 1 / spread))


def residual_sum(grads: OuterGradients) -> BoundedSum:
    """Return the sum over records of residuals r, and of their derivatives by moves and factors.

    The private gradients are those of the log loss, of probabilities p. The sum is of shape (3 c,),
    or (7,) if there is one column of scores. After r it has

    - v and u, its first two derivatives by a move of the column, times sqrt(2);
    - and for one column: x, its derivative by the logarithm of a factor;
    - y, the derivative of t by a move;
    - ``t = sum_j p_j h_j - h_k`` of a row of class k, over sqrt(2), with ``h = l / (1 - l)`` of
      ``l = log p``: more than 0 on average where probabilities are too near 0 and 1;
    - w, the derivative of t by the logarithm of a factor.

    The h are constant in derivatives of t.

    Proof of the bound. A row of class k has the residuals ``r = p - e_k`` of c columns, of sizes
    a: ``1 - p_k`` in that column, and ``p_j`` in others. Its derivatives are ``v = a (1 - a)`` and
    ``u = v (1 - 2 p)``. A column adds to the square of the norm of (r, sqrt(2) v, sqrt(2) u) at
    most ``a^2 + 4 a^2 (1 - a)^2 <= a``, since ``4 a (1 - a) <= 1``. All a of several columns
    together are at most 2: the norm is at most sqrt(2).

    For one column, all h are between -1 and 0, so that ``|t| <= a``. With ``q = min(a, 1 - a)`` and
    ``L = log(1 / q)``, ``|x| <= q L``, ``|w| <= |x|`` and ``|y| <= q``, and as
    ``q L^2 <= 4 / e^2 < 0.542``, ``x^2 + w^2 + y^2 <= 1.084 q + q^2``. With a above 1/2,
    ``t <= L / (1 + L)``, so that ``2 t^2 <= 2 - 2 / (1 + L)``: the square of the norm is at most
    ``1 - q + 1 / 2 - 1 / (2 + 2 L) + 1.084 q + q^2 <= 3 / 2``, since
    ``(0.084 q + q^2) (2 + 2 L) < 0.99`` for q up to 1/2. With a up to 1/2 it is at most
    ``a + a^2 / 2 + 1.084 a + a^2 < 3 / 2``.

    A null record moves the sum by the norm, a replaced one by twice that. If a record has several
    rows, the lemma of ``_core/rows/records.py`` holds. A row whose gradient does not count
    contributes nothing here either.
    """
    xp, r = namespace(grads.residuals), grads.residuals
    counts = in_parts(grads, shrink_factors(grads.norms(), math.inf))[:, None]
    r = xp.astype(xp.where(counts > 0, r, xp.zeros_like(r)), xp.float64)
    sizes = xp.abs(r)
    p = xp.where(r < 0, 1 - sizes, sizes)
    v = sizes * (1 - sizes)
    parts = [r, math.sqrt(2) * v, math.sqrt(2) * v * (1 - 2 * p)]
    if one := r.shape[1] == 1:
        parts += _of_one(r, p, v)
    terms = xp.concat(parts, axis=1) * xp.astype(counts, xp.float64)
    return vector_sum(xp.sum(terms, axis=0), math.sqrt(1.5 if one else 2), grads.slack())


def _of_one(r: Array, p: Array, v: Array) -> list[Array]:
    """Return x, y, t over sqrt(2) and w of one column."""
    (logs, h), (others, h_other) = _logs(p), _logs(1 - p)
    x, apart = (1 - p) * p * (logs - others), h - h_other
    return [x, v * apart, r * apart / math.sqrt(2), x * apart]


def _logs(p: Array) -> tuple[Array, Array]:
    """Return logarithms l of probabilities (0 for p = 0), and ``l / (1 - l)``, which ends at -1."""
    xp = namespace(p)
    logs = xp.log(xp.where(p > 0, p, xp.ones_like(p)))
    return logs, xp.where(p > 0, logs / (1 - logs), -xp.ones_like(p))


def usual_shift(scores: np.ndarray, length: float) -> np.ndarray:
    """Return half of what clipping removes from the scores of a usual row, (c,).

    The gradient of a row of class k is ``x (p - e_k)'``. Clipping multiplies it by
    ``c_k = 1 / max(1, length |p - e_k|)``, with the `length` of the row in clip norms, and training
    ends where the clipped gradients add up to zero. If labels have the probabilities q,
    ``sum_k q_k c_k (p - e_k) = 0`` implies that ``q_k c_k`` is in proportion to ``p_k``: scores are
    too low by ``-log c_k``. Half of that is between what clipping removes from rare and from other
    classes.
    """
    if len(scores) == 1:
        p = np.exp(-np.logaddexp(0.0, [-scores[0], scores[0]]))  # of the second and first class
        shrunk = np.log(np.maximum(1.0, length * p))
        return (shrunk[1:] - shrunk[:1]) / 2
    p = np.exp(scores - scores.max())
    p /= p.sum()
    apart = np.sqrt(np.maximum(p @ p + 1 - 2 * p, 0.0))
    return np.log(np.maximum(1.0, length * apart)) / 2
