"""Cost of Gaussian mechanisms on Poisson batches, where ``dp_accounting`` would not finish.

With little noise, rare batches or large epsilons, privacy losses differ so much in size that a grid
for all of them takes minutes. Here losses are weighed first, so that the grid need only span the
losses that decide about delta. :func:`epsilon_of_batches` is an upper bound for any noise, rate and
number of steps, and its running time hardly depends on them.

*One step.* With u = 1 / multiplier, the record of norm 1 is in the batch with probability q.
Outputs divided by their noise have the distribution ``(1 - q) N(0, 1) + q N(u, 1)`` with the record
and ``N(0, 1)`` without it, or ``(1 - q) N(0, 1) + q N(-u, 1)`` where it is replaced. These pairs
dominate a step (Zhu, Dong, Wang, 2022), their products dominate adaptive compositions, and the
divergence of a product is ``E (1 - e^(epsilon - L))_+`` of the sum L of the losses, which are
independent.

*The grid.* Probability of a loss between the grid points a and a + h is moved to these two points,
so that the total probability under either neighbour does not change. The original pair is a
garbling (postprocessing) of the new pair: the divergence grows. Losses below the grid are raised to
its lowest point, and losses above it count as infinite, which adds their probability to delta.

*Weights.* With K the logarithm of ``E e^(x L)``, let L' have probabilities ``e^(x l - K)`` times
the probabilities of L. L' is the sum of equally many independent losses that are weighed in the
same way. Then ::

    E (1 - e^(epsilon - L))_+ = E e^(K - x L') (1 - e^(epsilon - L'))_+

and a sum over the tail of L is a sum over the middle of L': the rounding error of Fourier
transforms, which is absolute, is then relative to delta. A transform spans the losses in ``[(K - 9)
/ x, b)``, and probability beyond one end comes back at the other end. The probability of L' below
is at most ``e^-9`` (Chernoff's bound); it comes back as larger losses, which keeps the bound an
upper bound. b is at least ``(K + log(1 / delta) + 14) / x``, so that the probability of L above b
is at most ``e^-14 delta``, and ``e^(K - b x)`` is added for it. The probability of L' above b must
be small too, since the part that comes back as smaller losses must not be a noticeable part of
delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter
from scipy.special import logsumexp, ndtr, ndtri

if TYPE_CHECKING:
    from dpsubspace._core.accounting.accountants import Mechanism

# Points of the grid for up to _STEPS steps: more points change epsilon by less than a part in a
# hundred. The loss between points grows with the steps and falls with the square of the points.
_POINTS, _STEPS, _MOST_POINTS = 2**15, 200_000, 2**21

# Pairs of neighbours that are compared: the first of each pair has the record.
_WAYS = {"zero_out": ("there", "missing"), "replace_one": ("replaced",)}

_DELTAS = (1e-9, 1e-7, 1e-5, 1e-3, 0.03, 0.3)

_FAR = 10.0  # Standard deviations beyond which a normal distribution is ignored below

# Share of delta that losses above the grid may use.
_ABOVE = 1e-4


def epsilon_of_batches(parts: Sequence[Mechanism], relation: str, delta: float) -> float:
    """Upper bound on the epsilon of Gaussian mechanisms, any of which may be on batches."""
    return max(_first_below(*_curve(parts, way, delta), delta) for way in _WAYS[relation])


def curve_of_batches(
    parts: Sequence[Mechanism], relation: str, least: float, n_points: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return orders a and upper bounds on the divergences of orders e^a.

    The orders run from 0 to the order at which the divergence is `least`. Each weight gives a tight
    bound where the curve is near one delta. Since curves fall, a bound at one order holds at all
    larger orders; the least of these bounds counts. There are no orders where `least` is not
    reached.
    """
    deltas = [least, *(d for d in _DELTAS if d > least)]
    reached = epsilon_of_batches(parts, relation, least)
    if not reached < math.inf:
        return np.empty(0), np.empty(0)
    orders = np.linspace(0.0, reached * (1 + 1e-9) + 1e-12, n_points)
    worst = np.zeros(n_points)
    for way in _WAYS[relation]:
        best = np.ones(n_points)
        for delta in deltas:
            at, found = _curve(parts, way, delta)
            before = np.searchsorted(at, orders, side="right") - 1
            best = np.minimum(best, np.where(before < 0, 1.0, found[before]))
        worst = np.maximum(worst, best)
    worst[-1] = min(worst[-1], least)
    return orders, np.minimum.accumulate(worst)


def _curve(parts: Sequence[Mechanism], way: str, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Orders, and upper bounds on divergences that are tight where these are near `delta`."""
    losses = [_Loss(part, way, delta / len(parts)) for part in parts]
    x, first, last = _span(losses, delta)
    runs = sum(loss.count for loss in losses)
    n = min(_POINTS * 2 ** max(0, math.ceil(math.log2(runs / _STEPS) / 2)), _MOST_POINTS)
    step = (last - first) / n
    exponent, log_mass, infinite, place, others = np.zeros(n // 2 + 1), 0.0, 0.0, 0, 0.0
    for loss in losses:
        places, masses, above = loss.on_grid(step, x)
        logs = np.log(masses, out=np.full_like(masses, -np.inf), where=masses > 0)
        logs += x * step * places
        total = _log_sum(logs)
        weighed, most = np.exp(logs - total), int(np.argmax(logs))
        weighed[most] = 0.0
        rest = float(weighed.sum())
        line = np.bincount((places - places[most]) % n, weighed, minlength=n)
        exponent = exponent + loss.count * _log1p(np.asarray(rfft(line)) - rest)
        log_mass += loss.count * total
        infinite += loss.count * above
        place += loss.count * int(places[most])
        others += loss.count * rest
    start = math.floor(first / step)
    line = np.roll(np.asarray(irfft(np.exp(exponent), n)), (place - start) % n)
    orders = (start + np.arange(n)) * step
    scale = np.exp(np.minimum(log_mass - x * orders, 600.0))
    # Sums over the losses above each order, of their probability and of e^(order - loss) times it.
    tail = (scale * np.maximum(line, 0.0))[::-1]
    every, less = np.cumsum(tail), lfilter([1.0], [1.0, -math.exp(-step)], tail)
    rounding = np.finfo(float).eps * math.sqrt(n) * (others + 40)
    divergences = (every - less)[::-1] + scale * rounding + infinite + float(scale[-1])
    return orders, divergences


def _log_sum(logs: np.ndarray, weights: np.ndarray | None = None) -> float:
    found: Any = logsumexp(logs, b=weights)
    return float(found)


def _log1p(z: np.ndarray) -> np.ndarray:
    """Logarithm of ``1 + z``; NumPy's function loses the digits of a small z."""
    real, imaginary = np.real(z), np.imag(z)
    size = np.log1p(np.maximum(2 * real + real**2 + imaginary**2, 1e-15 - 1)) / 2
    return size + 1j * np.arctan2(imaginary, 1 + real)


def _first_below(orders: np.ndarray, divergences: np.ndarray, delta: float) -> float:
    """Order >= 0 at which a curve falls to `delta`, by a chord in e^order above the curve."""
    below = np.flatnonzero(divergences <= delta)
    if not len(below):
        return math.inf
    at = int(below[0])
    if at == 0 or orders[at] <= 0:
        return max(0.0, float(orders[at]))
    step, high, low = orders[at] - orders[at - 1], divergences[at - 1], divergences[at]
    if step > 30:
        return float(orders[at])
    share = (high - delta) / (high - low)
    return max(0.0, float(orders[at - 1]) + math.log1p(share * math.expm1(step)))


def _span(losses: Sequence[_Loss], delta: float) -> tuple[float, float, float]:
    """Return the x of the weights, and the first and last loss of the transform."""

    def log_moment(x: float) -> float:
        return sum(loss.log_moment(x) for loss in losses)

    def bound(log_x: float) -> float:  # on epsilon: Canonne, Kamath, Steinke (2020), Corollary 13
        x = math.exp(log_x)
        over = math.log1p(x) + x * math.log1p(1 / x)
        return (log_moment(x) - math.log(delta) - over) / x

    # x is about log(1 / delta) / epsilon, and epsilon about the losses of usual batches.
    usual = max(float(loss.losses[-1]) * max(loss.count * loss.q, 1.0) for loss in losses)
    least = min(-18.0, -6.0 - math.log(max(usual, 1.0)))
    found: Any = minimize_scalar(
        bound, bounds=(least, 25.0), method="bounded", options={"xatol": 1e-2}
    )
    grid = math.exp(float(found.x)) * 1.25 ** np.arange(-16.0, 9.0)
    moments, small, spans = np.array([log_moment(x) for x in grid]), math.log(1 / delta), []
    for x, about, i in zip(grid[:17], moments, range(1, 18), strict=False):
        further = (moments[i:] - about + small + 18) / (grid[i:] - x)
        last = max((about + small + 14) / x, float(further.min()))
        spans.append((float(x), (about - 9) / x, last))
    return min(spans, key=lambda span: span[2] - span[1])


class _Loss:
    """Privacy loss of each of the runs of a (sampled) Gaussian mechanism."""

    def __init__(self, part: Mechanism, way: str, delta: float) -> None:
        self.u, self.q, self.count, self.way = 1 / part.value, part.rate, part.count, way
        tail = min(0.01, _ABOVE * delta / (self.count * self.q))
        most = (self.u - ndtri(tail), -ndtri(min(0.01, _ABOVE * delta / self.count)))
        self.most = float(max(most if self.q < 1 else most[:1]))  # larger outputs: an infinite loss
        if self.way == "missing":
            self.most = _FAR
        outputs = np.linspace(-_FAR, self.most, 2000)
        if self.u > 2 * _FAR and self.way != "missing":  # two clusters, with nothing between
            far = np.linspace(self.u - _FAR, self.most, 1000)
            outputs = np.concatenate([np.linspace(-_FAR, _FAR, 1000), far])
        self.losses, edges = self.loss(outputs), (outputs[1:] + outputs[:-1]) / 2
        self.weights = self._masses(np.concatenate([[-np.inf], edges, [np.inf]]), 1)[0]

    def loss(self, v: np.ndarray) -> np.ndarray:
        """Privacy loss of the outputs v; it rises with v."""
        if self.way == "missing":
            return -self._mixture(-v)
        return self._mixture(v) - (self._mixture(-v) if self.way == "replaced" else 0.0)

    def _mixture(self, v: np.ndarray) -> np.ndarray:
        """Logarithm of ``1 - q + q e^(u v - u^2 / 2)``."""
        rest = math.log1p(-self.q) if self.q < 1 else -math.inf
        return np.logaddexp(rest, math.log(self.q) + self.u * v - self.u**2 / 2)

    def output(self, loss: np.ndarray) -> np.ndarray:
        """Outputs at which the privacy loss is `loss`; infinite where there is no such output."""
        if self.way == "missing":
            return -self._of_mixture(-loss)
        if self.way == "there":
            return self._of_mixture(loss)
        # With w = e^(u v - loss / 2): w - 1 / w = 2 (1 - q) sinh(loss / 2) / (q e^(-u^2 / 2)).
        if self.q == 1:
            return loss / (2 * self.u)
        half = np.abs(loss) / 2
        with np.errstate(divide="ignore"):
            logs = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        logs += math.log1p(-self.q) - math.log(self.q) + self.u**2 / 2
        large = logs + np.log1p(np.sqrt(1 + np.exp(-2 * np.maximum(logs, 0.0))))
        w = np.where(logs > 0, large, np.arcsinh(np.exp(np.minimum(logs, 0.0))))
        return (loss / 2 + np.sign(loss) * w) / self.u

    def _of_mixture(self, loss: np.ndarray) -> np.ndarray:
        """Output at which :meth:`_mixture` is `loss`."""
        if self.q == 1:
            return loss / self.u + self.u / 2
        least = math.log1p(-self.q)
        with np.errstate(divide="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / self.q, -1.0))
        large = loss - math.log(self.q) + np.log1p(-(1 - self.q) * np.exp(-np.maximum(loss, 1.0)))
        found = np.where(loss < 30, small, large)
        return np.where(loss <= least, -np.inf, found / self.u + self.u / 2)

    def log_moment(self, x: float) -> float:
        """Approximate logarithm of the mean of ``e^(x loss)`` over all runs."""
        return self.count * _log_sum(x * self.losses, self.weights)

    def on_grid(self, step: float, x: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Places on a grid, upper bounds on their probabilities, and that of an infinite loss."""
        below = np.log(np.maximum(np.cumsum(self.weights), 1e-300)) + x * self.losses
        lost = below < _log_sum(x * self.losses, self.weights) + math.log(1e-8 / self.count)
        low = math.floor(self.losses[max(0, np.count_nonzero(lost) - 1)] / step)
        high = min(math.ceil(self.losses[-1] / step), low + 16 * _POINTS)
        places = np.arange(low, high + 1)
        edges = self.output(places * step)
        (one, first), (other, second) = (self._masses(edges, sign) for sign in (1, -1))
        # Probability of the larger loss, plus a margin for digits that are lost in subtractions.
        ratio, whole = np.exp(np.minimum(places[:-1] * step, 700.0)), -math.expm1(-step)
        up = (one - other * ratio + 1e-15 * (first + second * ratio)) / whole
        up = np.clip(up, 0.0, one)
        masses = np.zeros(len(places))
        masses[1:] += up
        masses[:-1] += one - up
        (_, below), (above, _) = self._ends(edges[0]), self._ends(edges[-1])
        masses[0] += below
        return places, masses, above

    def _shares(self, sign: int) -> tuple[float, float]:
        """Return the probability of a batch with the record, and by how much it moves outputs."""
        with_it = {"there": (1,), "missing": (-1,), "replaced": (1, -1)}[self.way]
        return (self.q if sign in with_it else 0.0), sign * self.u

    def _masses(self, edges: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
        """Probability between edges under one neighbour (1) or the other, and rounding."""
        share, moved = self._shares(sign)
        found, rounding = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
        for weight, mean in ((1 - share, 0.0), (share, moved)):
            if weight > 0:
                below, above = ndtr(edges - mean), ndtr(mean - edges)
                right = edges[:-1] > mean
                found += weight * np.where(right, above[:-1] - above[1:], np.diff(below))
                rounding += weight * np.where(right, above[:-1], below[1:])
        return found, rounding

    def _ends(self, edge: float) -> tuple[float, float]:
        """Return the probabilities above and below an edge, with the record."""
        share, moved = self._shares(1)
        above = (1 - share) * ndtr(-edge) + share * ndtr(moved - edge)
        return float(above), float((1 - share) * ndtr(edge) + share * ndtr(edge - moved))
