"""Intervals of coefficients, by tests that stay valid if noise hides most coefficients.

Nothing here sees a private number: all inputs are released, and there is no cost.

Design note. With released g and H, whose noise is known, the usual interval of weights
``b = a + H^{-1} g`` treats ``H^{-1}`` as if it were exact. If noise in H is not small beside its
smallest eigenvalue, that interval is far too short: it covered 86 % instead of 95 % with 10
columns, 10,000 rows and epsilon 0.3. The solution is that of weak instruments in econometrics. For
any b, ``g - H (b - a)`` is 0 up to noise whose covariance is known exactly, since the noise of H is
multiplied by a known vector. So a value b is tested by whether this difference is too far from 0
along the direction in which b moves it, and the interval has the values that the test does not
reject (Fieller, 1954; Anderson, Rubin, 1949). The direction itself is noisy, and its correlation
with the noise of the test is removed (Kleibergen, 2002), without which the test would be biased.

Beside one weight all others are unknown. Their distance from a has a normal prior of a wide scale:
without it, one column about which nothing is known would leave all others unknown too. A scale that
was estimated from how far weights had moved gave intervals that were up to seven times as short,
and that covered as little as 63 % if columns are correlated.

Several combinations of weights, such as all levels of a category, are tested at once in the same
way, with as many degrees of freedom. Where the variance of scores differs between the directions in
which these combinations move the score, the covariance of the test has these differences.

A test of one value has a matrix of its own, and intervals of 26 weights have thousands of them.
They differ from a matrix with known eigenvectors by a multiple of I and by a rank of four at most,
so that none of them is inverted (Sherman, Morrison, 1950; Woodbury, 1950).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, norm

# Places at which values are tested, on either side of the estimate and in units of its deviation.
# If the last of them is not rejected, the interval has no end there.
_PLACES = np.geomspace(0.3, 300.0, 26)
_PLACES = np.concatenate([-_PLACES[::-1], [0.0], _PLACES])

# Rounds to find the other weights for one that is fixed, and refinements of each end with the
# points of each.
_ROUNDS, _REFINED, _CLOSER = 8, 3, 12

# Probability that a value is rejected because nothing near it fits.
_MISFIT = 0.001

# Deviation of the variance of scores about that of a correct model, as a share of it, before
# anything is released; and the least share. Where residuals spread with a column, the variance is
# up to five times that of a correct model. With a deviation of 0.5 a noisy release of such a ratio
# was hardly believed: intervals of 95 % covered a slope of assets on income in 75 % of samples, and
# the fewer, the larger the budget was, since the noise fell that had hidden the fault.
_APART, _LEAST = 2.0, 0.3

# How much larger a variance that is off by little is taken to be, over the square of how much it is
# off: a test at z keeps its size, but for higher orders, if this is ``(1 + z^2) / 4``, which is 1.9
# for 99 %. A whole deviation made intervals up to a tenth longer.
_OFF = 2.0

# Mean squared uncertainty in the log-odds of rows from which on no interval is given: scores of a
# logistic regression are about linear only nearby.
_LOST = 1.5

# Square of a slope over the variance of its noise below which a coefficient is not identified, and
# the share of the variance of an estimate that may be that of other weights under their prior.
_WEAK, _OF_PRIOR = 10.0, 0.5

# Half of an interval over the prior deviation of its coefficient above which it has no ends: no
# coefficient is that large, and a column that does not vary gives such intervals.
_NOWHERE = 5.0

# Part of a combination along directions of separate classes that makes it one of these.
_TOUCHES = 1e-6

# How far an inverse of the slope may be from one, along a combination that can be estimated.
_ESTIMATED = 1e-6


@dataclass(frozen=True)
class Tally:
    """Records behind the p weights of a table, and events among them, with noise."""

    records: np.ndarray  # (p,): all for the constant, and those with each indicator; else NaN
    events: np.ndarray | None  # (p,): as above; None if the target is no event
    # (p,): sums of numbers and of their squares, in halves of their ranges; NaN for indicators. A
    # missing number is 0.
    sums: np.ndarray
    squares: np.ndarray
    noise: float  # Standard deviation of the noise of each number of records, and of each sum
    largest: float = 1.0  # Events of a record at most; their noise is as many times as large


@dataclass(frozen=True)
class Equations:
    """Released equations: ``score - slope (b - about)`` is noise and chance at the best b."""

    about: np.ndarray  # (p,): weights
    score: np.ndarray  # (p,): g
    slope: np.ndarray  # (p, p): H, symmetric
    # (p, p): second moment of what each record contributes to the score.
    moment: np.ndarray
    n: int  # Number of records
    score_noise: float = 0.0  # Variance of the noise of each entry of g
    slope_noise: float = 0.0  # Half of the noise variance of the diagonal of H
    moment_noise: float = 0.0  # Standard deviation of the noise of the diagonal of the moment
    length: float = 0.0  # About the square of the length of ``b - about``
    residual: float = 1.0  # Factor of H that gives the moment if the model is correct
    # (p, p): assumed covariance of the other weights about `about`, before scores are released: far
    # larger than theirs, so that it only counts if they are not identified.
    spread: np.ndarray | None = None
    # About the mean of ``(z (b - about))^2`` over rows z, as far as is known.
    moved: float = 0.0
    # (p, k): directions along which classes are separate.
    separate: np.ndarray | None = None
    # (p, p): the weights of the table are ``basis @ b``; None if they are b.
    basis: np.ndarray | None = None
    tally: Tally | None = None  # of the weights of the table; no test looks at it

    @property
    def exact(self) -> bool:
        return self.score_noise == 0

    def of_table(self, directions: np.ndarray) -> np.ndarray:
        """Return the combinations of b, in rows, that are these combinations of the table."""
        directions = np.asarray(directions, dtype=float)
        return directions if self.basis is None else directions @ self.basis

    def turned(self, turn: np.ndarray) -> Equations:
        """Return the equations of the weights ``turn.T @ b``, for an orthogonal matrix.

        Noise in g and H looks the same in every basis.
        """
        return replace(
            self,
            about=turn.T @ self.about,
            score=turn.T @ self.score,
            slope=turn.T @ self.slope @ turn,
            moment=turn.T @ self.moment @ turn,
            spread=None if self.spread is None else turn.T @ self.spread @ turn,
            separate=None if self.separate is None else turn.T @ self.separate,
            basis=None,
        )


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def intervals_along(equations: Equations, directions: np.ndarray, level: float) -> list[Interval]:
    """Estimate ``directions @ b`` (t,), with intervals that each cover with probability `level`.

    One call for all `directions` (t, p) takes far less time than one for each. Where noise is so
    many times as wide as is likely that a matrix has no inverse, no interval has ends.
    """
    try:
        with np.errstate(all="ignore"):
            return _intervals(equations, directions, level)
    except np.linalg.LinAlgError:
        return [_without_ends(math.nan)] * len(directions)


def _intervals(equations: Equations, directions: np.ndarray, level: float) -> list[Interval]:
    own = equations.of_table(directions)
    separate = _separate(equations, own)
    lengths, z = np.linalg.norm(own, axis=1), float(norm.ppf(0.5 + level / 2))
    own = own / lengths[:, None]
    if equations.moved > _LOST:
        found: Iterable[Interval] = (_without_ends(x) for x in own @ equations.about)
    elif equations.exact:
        found = (_exact(equations, first, z) for first in own)
    else:
        about = own @ equations.about
        closed = iter(_inverted(equations, own[~separate], z))
        found = [
            _without_ends(x) if no else next(closed) for x, no in zip(about, separate, strict=True)
        ]
    return [
        Interval(*(float(length * x) for x in each))
        for length, each in zip(lengths, found, strict=True)
    ]


def accepted_along(equations: Equations, direction: np.ndarray, value: float) -> float:
    """Return the least z at which the test accepts a value of ``direction @ b``.

    The interval of noisy equations has the accepted values about the estimate.
    """
    values = np.array([value], dtype=float)
    return math.sqrt(joint_statistic(equations, np.asarray(direction)[None], values)[0])


def joint_statistic(
    equations: Equations, directions: np.ndarray, values: np.ndarray | None = None
) -> tuple[float, int]:
    """Test whether combinations of weights, ``directions @ b``, have all of some values at once.

    Return a statistic and its degrees of freedom. If the combinations have these values, which are
    0 by default, the statistic is distributed like chi-square, or smaller where noise hides them.
    Combinations that follow from others, as the last one of a sum does, do not count. For exact
    equations it is the statistic of Wald's test with the sandwich covariance, and NaN if some
    combination cannot be estimated. For noisy ones it is infinite where no weights with these
    values fit, which has a probability of 0.001 if the values are right: a p value below that says
    no more than that it is below 0.001. It is NaN where a matrix has no inverse, as in
    :func:`intervals_along`.
    """
    directions = np.atleast_2d(directions)
    values = np.zeros(len(directions)) if values is None else np.asarray(values, dtype=float)
    try:
        with np.errstate(all="ignore"):
            return _tested_at_once(equations, directions, values)
    except np.linalg.LinAlgError:
        return math.nan, len(directions)


def _tested_at_once(
    equations: Equations, directions: np.ndarray, values: np.ndarray
) -> tuple[float, int]:
    own = equations.of_table(directions)
    left, sizes, right = np.linalg.svd(own, full_matrices=False)
    rank = int((sizes > 1e-10 * sizes.max(initial=0.0)).sum())
    fixed, held = right[:rank], left[:, :rank].T @ values / sizes[:rank]
    if equations.moved > _LOST or not rank:
        return 0.0, rank
    if equations.exact:
        return _wald(equations, fixed, held), rank
    tests = _Tests.of(equations, fixed.T[None])
    held = held - fixed @ equations.about
    statistic, misfit = (float(x[0, 0]) for x in tests.statistics(held[None, None]))
    return (math.inf if misfit > _most_misfit(len(equations.score)) else statistic), rank


def _separate(equations: Equations, own: np.ndarray) -> np.ndarray:
    """Return which combinations (t, p) go along directions in which classes are separate."""
    if equations.exact or equations.separate is None:  # exact slopes are 0 along these
        return np.zeros(len(own), dtype=bool)
    return np.abs(own @ equations.separate).max(axis=1, initial=0.0) > _TOUCHES


def _without_ends(value: float) -> Interval:
    return Interval(value, -math.inf, math.inf)


# Without noise -----------------------------------------------------------------------------------


def _estimated(own: Equations, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate combinations, the rows of `fixed` (q, p), with their sandwich covariance.

    All is NaN if one cannot be estimated, as columns are sums of others or classes are separate.
    """
    inverse = np.linalg.pinv(own.slope, rcond=1e-11, hermitian=True)
    back = fixed @ inverse
    if np.abs(back @ own.slope @ fixed.T - np.eye(len(fixed))).max() > _ESTIMATED:
        return np.full(len(fixed), math.nan), np.full((len(fixed), len(fixed)), math.nan)
    return fixed @ own.about + back @ own.score, back @ own.moment @ back.T / own.n


def _exact(own: Equations, first: np.ndarray, z: float) -> Interval:
    """Return the interval of the sandwich covariance, if there is no noise."""
    value, covariance = (float(x.flat[0]) for x in _estimated(own, first[None]))
    if math.isnan(value):
        return _without_ends(value)
    return Interval(value, value - z * math.sqrt(covariance), value + z * math.sqrt(covariance))


def _wald(own: Equations, fixed: np.ndarray, values: np.ndarray) -> float:
    found, covariance = _estimated(own, fixed)
    off = found - values
    if np.isnan(found).any():
        return math.nan
    if not covariance.any():  # The fit is perfect.
        return math.inf if off.any() else 0.0
    return float(off @ np.linalg.pinv(covariance, hermitian=True) @ off)


# With noise --------------------------------------------------------------------------------------


def _inverted(own: Equations, directions: np.ndarray, z: float) -> list[Interval]:
    """Return the values of each combination, about its estimate, that a test at z accepts."""
    tests = _Tests.of(own, directions[:, :, None])
    estimates, units, weak, of_prior = tests.started()
    places = estimates[:, None] + units[:, None] * _PLACES
    accepted = tests.accepts(places, z) | (of_prior > _OF_PRIOR)[:, None]
    abouts = directions @ own.about
    found = [_without_ends(x) for x in abouts + estimates]
    around = [_around(row, all_parts) for row, all_parts in zip(accepted, weak, strict=True)]
    closed = [i for i, ends in enumerate(around) if ends is not None]
    if not closed:
        return found
    inside, outside = np.moveaxis(np.array([around[i] for i in closed]), 2, 0)
    inside, outside = (np.take_along_axis(places[closed], x, 1) for x in (inside, outside))
    ends = tests.only(closed).ends(inside, outside, z)
    farthest = _NOWHERE * np.sqrt(((directions @ own.spread) * directions).sum(axis=1))
    for i, (low, high) in zip(closed, ends, strict=True):
        if high - low < 2 * farthest[i]:
            value = min(max(estimates[i], low), high)
            found[i] = Interval(*(abouts[i] + x for x in (value, low, high)))
    return found


def _around(accepted: np.ndarray, all_parts: bool) -> list[tuple[int, int]] | None:
    """Return an accepted place and the rejected one that follows it, for both ends, or None.

    The accepted values may have several parts. Far from a coefficient that is identified, the test
    has no power, so that the part nearest to the estimate counts; if it is not identified, any part
    may be the right one.
    """
    places = np.flatnonzero(accepted)
    if not len(places):
        return None
    nearest = places[np.abs(places - len(_PLACES) // 2).argmin()]
    starts = places[[0, -1]] if all_parts else (nearest, nearest)
    ends = []
    for side, start in zip((-1, 1), starts, strict=True):
        rejected = np.flatnonzero(~accepted[start::side])
        if not len(rejected):
            return None
        at = int(start + side * rejected[0])
        ends.append((at - side, at))
    return ends


@cache
def _most_misfit(p: int) -> float:
    return float(chi2.ppf(1 - _MISFIT, p))


@dataclass(frozen=True)
class _Tests:
    """Tests of values of t sets of q combinations; other weights have the values that fit best.

    All is in the basis of the eigenvectors of H, where the covariance `base` of the score at
    `about` is diagonal as well. If the combinations F of a set have given values, the weights have
    the mean ``M values`` under their prior, and the covariance S, of which ``F^T S`` is 0.
    """

    own: Equations  # in this basis
    slope: np.ndarray  # (p,): eigenvalues of H
    moves: np.ndarray  # (t, p, q): M
    ways: np.ndarray  # (t, p, q): directions in which the combinations alone move the score
    base: np.ndarray  # (t, p)
    # (t, p, q), (t, q): vectors, and factors of their squares. These are the part of the variance
    # of scores that differs between the ways, which `base` does not have.
    apart: np.ndarray
    factors: np.ndarray
    prior: np.ndarray  # (p, p): inverse of S where ``F^T x`` is 0
    # (t, p), (t, p, p): eigenvalues and eigenvectors of ``base + H S H``, here called U.
    values: np.ndarray
    turn: np.ndarray
    reach: np.ndarray  # (t, p, p): ``S H U``
    maps: np.ndarray  # (t, p, 3 p): U, S H U and S, side by side

    @classmethod
    def of(cls, own: Equations, fixed: np.ndarray) -> _Tests:
        slope, turn = np.linalg.eigh(own.slope)
        own, fixed = own.turned(turn), turn.T @ fixed
        moves, root = _others(own, fixed)
        far = slope[:, None] * root
        right = own.residual * np.maximum(slope, math.sqrt(own.slope_noise))
        # Before any test: the covariance of the score, whatever the other weights are.
        noise = own.score_noise + own.slope_noise * own.length
        whole = np.diag(right / own.n + noise) + far @ _t(far)
        ways, ratios = _heterogeneity(own, np.linalg.solve(whole, slope[:, None] * moves), right)
        mean = ratios.mean(axis=1, keepdims=True)
        base = mean * right / own.n + own.score_noise
        # Singular values keep the digits of small eigenvalues beside large ones.
        both = np.concatenate([np.sqrt(base)[:, :, None] * np.eye(len(slope)), far], axis=2)
        vectors, roots, _ = np.linalg.svd(both, full_matrices=False)
        apart = right[:, None] * ways / math.sqrt(own.n)
        spread = root @ _t(root)
        reach = spread @ (slope[:, None] * vectors)
        return cls(
            own=own,
            slope=slope,
            moves=moves,
            ways=ways,
            base=base,
            apart=apart,
            factors=ratios - mean,
            prior=np.linalg.inv(np.asarray(own.spread)),
            values=roots**2,
            turn=vectors,
            reach=reach,
            maps=np.concatenate([vectors, reach, spread], axis=2),
        )

    def only(self, chosen: list[int]) -> _Tests:
        """Return some of the tests."""
        common = ("own", "slope", "prior")
        each = [field.name for field in fields(self) if field.name not in common]
        return replace(self, **{name: getattr(self, name)[chosen] for name in each})

    def started(self) -> tuple[np.ndarray, ...]:
        """Return estimates of single combinations, and about their deviations.

        The third result is which are weak, and the last the share of the variance that is the
        prior's: a column that another one repeats has hardly anything else.
        """
        own, c = self.own, self.own.slope_noise
        first, way = self.moves[:, :, 0], self.ways[:, :, 0]
        way = way / np.linalg.norm(way, axis=1, keepdims=True)
        move = (way * self.slope * first).sum(axis=1)
        turned = (way[:, None] @ self.turn)[:, 0]
        variance = (self.values * turned**2).sum(axis=1) + c * own.length
        variance = np.maximum(variance, 1e-300)
        weak = move**2 < _WEAK * c * (1 + (way * first).sum(axis=1) ** 2)
        of_prior = 1 - ((self.base * way**2).sum(axis=1) + c * own.length) / variance
        return way @ own.score / move, np.sqrt(variance) / abs(move), weak, of_prior

    def accepts(self, values: np.ndarray, z: float) -> np.ndarray:
        """Return whether values (t, k) of single combinations are not rejected: (t, k)."""
        statistic, misfit = self.statistics(values[:, :, None])
        # NaN counts as accepted.
        beyond = (statistic > z**2) | (misfit > _most_misfit(len(self.slope)))
        return ~beyond

    def ends(self, inside: np.ndarray, outside: np.ndarray, z: float) -> np.ndarray:
        """Return the ends of accepted values (t, s), between accepted and rejected ones."""
        for _ in range(_REFINED):
            places = np.linspace(inside, outside, _CLOSER, axis=2)
            between = places[:, :, 1:-1]
            accepted = self.accepts(between.reshape(len(places), -1), z).reshape(between.shape)
            last = np.zeros((*inside.shape, 1), dtype=bool)
            first = np.argmin(np.concatenate([accepted, last], axis=2), axis=2)[:, :, None]
            inside = np.take_along_axis(places, first, 2)[:, :, 0]
            outside = np.take_along_axis(places, first + 1, 2)[:, :, 0]
        return outside

    def statistics(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return statistics with q degrees of freedom, and with as many as there are equations.

        Values are (t, k, q), and results (t, k). With ``m = g - H d``, its covariance
        ``V = base + c (|d|^2 I + d d^T)`` and ``u = V^{-1} m``, the best guess of H is
        ``D = H + c (u d^T + d u^T)``, which is independent of m. Here ``d = M values + x``, and
        other weights x solve ``x = S D^T u``, by rounds. The statistic is that of ``M^T D^T u``,
        without the part that the others may move, with its covariance.
        """
        held = values @ _t(self.moves)
        goal, x = (self.own.score - self.slope * held) @ self.turn, np.zeros_like(held)
        now = self._round(held, x, goal)
        for turn in range(_ROUNDS - 1):
            x = x + (1.0 if turn < 2 else 0.5) * (now.x - x)
            now = self._round(held, x, goal)
        return self._tested(held, x + 0.5 * (now.x - x), goal, now)

    def _round(self, held: np.ndarray, x: np.ndarray, goal: np.ndarray) -> _Round:
        """Return u for some x, with the x that solves its equation for this u.

        This is ``S D^T w`` for the w with ``(V + H S D^T) w = goal``, where the goal is
        ``m + H x``. The matrix is ``base + H S H`` but for a multiple of I and a rank of two.
        """
        own, c, k = self.own, self.own.slope_noise, held.shape[1]
        d = held + x
        square = np.maximum((d**2).sum(axis=2), (held**2).sum(axis=2) + own.length)
        more, d = c * square[:, :, None], d[:, :, None]
        m = own.score - self.slope * d
        u = _solved(self.base[:, None] + more, c * d, d, m)
        both = np.concatenate([u[:, :, 0], d[:, :, 0]], axis=1) @ self.maps
        both = np.stack([both[:, :k], both[:, k:]], axis=2)
        turned, reached, spread = np.split(both, 3, axis=3)
        left = c * reached[:, :, ::-1]
        left[:, :, 1] += c * turned[:, :, 1]
        diagonal = self.values[:, None] + more
        w = _solved(diagonal, left, turned, goal[:, :, None])
        found = w[:, :, 0] @ _t(self.reach)
        found += c * (w @ _t(turned) @ spread[:, :, ::-1])[:, :, 0]
        return _Round(found, np.concatenate([u, d], axis=2), diagonal, turned, reached, spread)

    def _tested(
        self, held: np.ndarray, x: np.ndarray, goal: np.ndarray, now: _Round
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both statistics for other weights x, with V and D of a round.

        The part that others may move is left out if m has the covariance ``V + D S D^T``. This is
        ``base + H S H`` but for a multiple of I and a rank of four.
        """
        c, q = self.own.slope_noise, self.moves.shape[2]
        m = self.own.score - self.slope * (held + x)
        misfit = (now.pair[:, :, 0] * m).sum(axis=2) + (x @ self.prior * x).sum(axis=2)
        four = np.concatenate([now.turned, now.reached], axis=2)
        factor = c * np.broadcast_to(np.eye(4)[::-1], (*x.shape[:2], 4, 4))
        factor[:, :, :2, :2] = c**2 * (now.pair @ _t(now.spread))[:, :, ::-1, ::-1]
        factor[:, :, 1, 1] += c
        # Rows are D M and ``m + D x``: those of H first, then what D has beside it.
        moved = (_t(self.slope[:, None] * self.moves) @ self.turn)[:, None]
        moved = moved + c * _t(now.pair[:, :, ::-1] @ self.moves[:, None]) @ now.turned
        rest = c * (x[:, :, None] @ _t(now.pair[:, :, ::-1])) @ now.turned
        rows = np.concatenate([moved, goal[:, :, None] + rest], axis=2)
        solved = _solved(now.diagonal, factor @ four, four, rows)
        both = moved @ _t(solved)
        along, variance = both[..., q:], both[..., :q]
        more = solved[:, :, :q] @ (_t(self.turn) @ self.apart)[:, None]
        variance = variance + (more * self.factors[:, None, None]) @ _t(more) + 1e-300 * np.eye(q)
        statistic = (along * np.linalg.solve(variance, along)).sum(axis=(2, 3))
        return np.maximum(statistic, 0.0), misfit


class _Round(NamedTuple):
    """Result of one round of t tests of k values."""

    x: np.ndarray  # (t, k, p): other weights that solve the equation for this u
    pair: np.ndarray  # (t, k, 2, p): u and d
    diagonal: np.ndarray  # (t, k, p): eigenvalues of ``base + H S H + c |d|^2 I``
    # (t, k, 2, p): u and d in the basis of these eigenvectors, the same of H S u and H S d, and S u
    # and S d.
    turned: np.ndarray
    reached: np.ndarray
    spread: np.ndarray


def _solved(
    diagonal: np.ndarray, left: np.ndarray, right: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Return the rows (..., m, p) that ``diagonal + left.T @ right`` maps to `rows`.

    There are r rows in `left` and `right`, so that a system of r equations is solved (Woodbury).
    """
    scaled, rows = left / diagonal[..., None, :], rows / diagonal[..., None, :]
    small = np.eye(left.shape[-2]) + right @ _t(scaled)
    return rows - _t(np.linalg.solve(small, right @ _t(rows))) @ scaled


def _t(matrices: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrices, -1, -2)


def _others(own: Equations, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how weights follow values of combinations `fixed` (t, p, q), and a root of the rest.

    These are the regression of all weights on the combinations by their prior covariance, (t, p,
    q), and a root of the covariance of what is left, (t, p, p).
    """
    if own.spread is None:
        raise RuntimeError("the test of noisy equations needs the spread of weights.")
    root = np.linalg.cholesky(own.spread)
    seen = np.linalg.qr(root.T @ fixed)
    moves = root @ (seen[0] @ np.linalg.inv(_t(seen[1])))
    return moves, root - (root @ seen[0]) @ _t(seen[0])


def _heterogeneity(
    own: Equations, ways: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of scores along ways (t, p, q) over that of a correct model: (t, q).

    The first result has ways with the same span, along which scores have no correlation and have
    a variance of 1 if the model is correct, where `right` is their variance in the basis of own.
    The released ratio is shrunk to 1 by its noise, and something is added for the uncertainty that
    remains, at most a deviation of it: a test with a ratio that is as often too small as too large
    would reject too often, as a normal quantile in place of Student's does.
    """
    ways = np.linalg.qr(ways)[0]
    root = np.linalg.cholesky(_t(ways) @ (right[:, None] * ways))
    ways = _t(np.linalg.solve(root, _t(ways)))
    ratios, turn = np.linalg.eigh(_t(ways) @ own.moment @ ways)
    ways = ways @ turn
    noise = (own.moment_noise * (ways**2).sum(axis=1)) ** 2
    share = _APART**2 / (_APART**2 + noise)
    doubt = np.minimum(np.sqrt(share * noise), _OFF * share * noise)
    return ways, np.maximum(_LEAST, 1 + share * (ratios - 1) + doubt)
