"""Mechanisms whose privacy loss has a bounded range: an event that ``dp_accounting`` lacks.

Imports ``dp_accounting``, so it is itself imported inside functions only.
"""

from __future__ import annotations

import math
from functools import lru_cache

import attr
import dp_accounting as dpa
import numpy as np

__all__ = ["BoundedRangeDpEvent", "bounded_range_curve"]

# A smaller range counts as this one: differences would drown in rounding.
LEAST_RANGE = 1e-6


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(dpa.DpEvent):
    """A mechanism whose privacy loss lies in an interval of length `epsilon` for all outputs.

    For any two neighbours the interval may be another one. It holds 0, so the mechanism is
    epsilon-differentially private; exponential mechanisms are the example (Dong, Durfee,
    Rogers, 2020). `epsilon` is for the relation of the guarantee that the event is part of:
    no accountant doubles it.
    """

    epsilon: float


# Curves and accountants ----------------------------------------------------------------------


@lru_cache(maxsize=64)
def bounded_range_curve(epsilon: float, count: int) -> tuple[float, np.ndarray]:
    """Largest hockey-stick divergences of `count` mechanisms of bounded range, from above.

    Parameters
    ----------
    epsilon : float
        Range of each mechanism, which may be chosen after seeing the outputs before it.
    count : int
        Number of mechanisms; memory and time grow with its square.

    Returns
    -------
    step : float
        Distance of the grid, which holds epsilon a whole number of times.
    curve : ndarray of shape (2 n + 1,)
        Divergences of orders ``e^a`` for a from ``-n step = -count epsilon`` to ``n step``.
        Below these it is ``1 - e^a`` and above them 0.

    Notes
    -----
    Proof. Let H be the largest divergence of what comes after the first mechanism, for any
    output of that, and P, Q be the first outputs of neighbours, with privacy loss L in
    ``[t - epsilon, t]``. The divergence of all is at most ``E_P[H(a - L)] = E_Q[phi(e^L)]`` with
    ``phi(x) = x H(a - log x)``. As H is convex in e^a, phi is convex (a perspective), and the
    mean of e^L under Q is 1: so the mean of phi is largest where L is t or t - epsilon only
    (generalised randomised response). Left is a maximum over t in [0, epsilon] (Dong, Durfee,
    Rogers, 2020). Between points of the grid phi is replaced by its chord, which lies above it;
    with ``x = e^t`` the mean is then ``u + v / x + w x`` between two of them, and its
    maximum in closed form.

    For one mechanism the curve is ``(1 - e^((a - epsilon) / 2))^2 / (1 - e^-epsilon)``. No single
    mechanism has all of it. As a maximum of hockey-stick curves it is itself convex and falling
    in e^a, 1 at 0 and never below ``1 - e^a``: hence the curve of a pair of distributions, which
    dominates the mechanisms for all neighbours. Products of dominating pairs dominate
    adaptive compositions (Zhu, Dong, Wang, 2022, Theorem 10), and compositions in which
    the outputs of one group and another's take turns (Vadhan, Zhang, 2023). Swapping P and
    Q negates L, so one curve serves both ways.
    """
    cells = min(64, max(16, math.ceil(10 * epsilon)))
    step, n, ratio = epsilon / cells, count * cells, math.exp(-epsilon)
    x = np.exp(np.arange(cells + 1) * step)
    # The curve of no mechanism at all, with margins for the losses of one.
    orders = np.arange(-n - cells, n + cells + 1) * step
    curve = -np.expm1(np.minimum(orders, 0.0))

    def phi(j: int) -> tuple[np.ndarray, np.ndarray]:
        """Phi at ``e^(j step)`` and at ``e^(j step - epsilon)``, for all orders of the grid."""
        high, low = curve[cells - j :][: 2 * n + 1], curve[2 * cells - j :][: 2 * n + 1]
        return x[j] * high, x[j] * ratio * low

    for _ in range(count):
        largest = np.zeros(2 * n + 1)
        for j in range(cells):
            (high, low), (next_high, next_low) = phi(j), phi(j + 1)
            width = x[j + 1] - x[j]
            slope_high, slope_low = (next_high - high) / width, (next_low - low) / width
            at_0_high, at_0_low = high - slope_high * x[j], low - slope_low * x[j]
            # Of (1 / x - ratio) phi(x) + (1 - 1 / x) phi(x ratio), with chords for phi:
            u = slope_high - slope_low + at_0_low - ratio * at_0_high
            v, w = at_0_high - at_0_low, slope_low - ratio * slope_high
            # Largest inside where v, w < 0, else at an end; the right one is the next left one,
            # and at the last t = epsilon, as at t = 0, the loss is always 0.
            inside = (v < 0) & (w < 0)
            at = np.sqrt(np.divide(v, w, out=np.full_like(v, x[j] ** 2), where=inside))
            at = np.clip(at, x[j], x[j + 1])
            largest = np.maximum(largest, u + v / at + w * at)
        curve[cells:-cells] = largest / -math.expm1(-epsilon)
    found = curve[cells:-cells]
    found[:-1] += count * 1e-15 / epsilon  # differences of about epsilon lose that many digits
    return step, np.minimum.accumulate(np.clip(found, 0.0, 1.0))
