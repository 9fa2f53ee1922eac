"""Bounds on what an attacker can learn in spite of a guarantee, in numbers that can be explained.

The attacker knows everything but which of two neighbouring data sets was used, knows both
of them, and sees all that was released. *Privacy.* With the curve ``H_t`` of ``cost``, whose
pairs (mu, s) are proved to dominate it, and (epsilon, delta) of the guarantee:

- the true positive rate of any test is at most ``H_t + t a`` at false positive rate a, for every t.
  For ``H_t <= G_mu(t) + s`` that is ``Phi(Phi^-1(a) + mu) + s`` (Dong, Roth, Su, 2022), which is
  attained where all that was released is Gaussian, and then s is 0. By (epsilon, delta)
  it is at most ``e^epsilon a + delta`` and ``1 - e^-epsilon (1 - delta - a)`` (Kairouz, Oh,
  Viswanath, 2015). The least of these bounds holds.
- the advantage, the largest difference of both rates, is the total variation: at most
  ``2 Phi(mu / 2) - 1 + s`` and ``(e^epsilon - 1 + 2 delta) / (e^epsilon + 1)``.
- the odds of a belief change by the factor ``e^L``, where L is the privacy loss. With one Gaussian
  mechanism L exceeds epsilon with probability ``Phi(mu / 2 - epsilon / mu)``. For anything else
  ``P(L > epsilon) <= H_t / (1 - t e^-epsilon)`` at any ``t < e^epsilon``: outputs of a larger
  loss add at least ``1 - t / l > 1 - t e^-epsilon`` of their probability to ``H_t``.

Where all releases were fixed in advance, every pair (epsilon, delta) of the accountant holds, as
the stated pair does. For fits that were chosen after looking at results, only sums of mu, of slacks
and of epsilons are bounds (:class:`~dpsubspace.budget._filter.BudgetSplit`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from dpsubspace._core.accounting.cost import LEAST_SLACK, SMALLEST_DELTA, Cost, gaussian_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# A larger probability is no rare exception: then a larger belief is stated, which is rarely
# exceeded.
_RARE = 0.01

# Deltas at which the accountant is evaluated, as multiples of the stated delta.
_FACTORS = (2, 5, 10, 30, 100, 1000, 10_000)


@dataclass(frozen=True)
class Attacker:
    """Bounds on what can be learned about one record."""

    epsilon: float  # Epsilon of the guarantee
    delta: float
    # Mu of the Gaussian mechanism that dominates all releases but for the slack; inf where none is
    # known.
    mu: float
    slack: float  # Slack that is added to the curve of that mechanism
    exact: bool  # Whether all that was released is Gaussian, so that bounds by mu are attained
    points: tuple[tuple[float, float], ...] = ()  # Other pairs (epsilon, delta) that hold
    # Epsilon at the same delta for replacing a record; None where it is not known.
    replaced: float | None = None

    @classmethod
    def of(
        cls,
        event: DpEvent,
        epsilon: float,
        delta: float,
        neighboring_relation: str,
        *,
        adaptive: bool = False,
    ) -> Attacker:
        """Bounds for an event and its guarantee; if `adaptive`, parts were chosen by results."""
        cost = Cost.of(event, neighboring_relation)
        parts, sq_mu = cost.parts, cost.sq_mu()
        if sq_mu is not None:
            exact = delta > 0 and sq_mu < math.inf
            twice = gaussian_epsilon(4 * sq_mu, delta) if exact else None
            return cls(epsilon, delta, math.sqrt(sq_mu), 0.0, sq_mu < math.inf, replaced=twice)
        usable = max(delta / 100, LEAST_SLACK) if delta >= SMALLEST_DELTA else 0.0
        price = cost.price(usable)
        mu, points = math.sqrt(price.sq_mu + price.pure_sq_mu), []
        if all(part.pure for part in parts):
            points.append((price.epsilon, 0.0))
        elif not adaptive:
            deltas = [factor * delta for factor in _FACTORS if factor * delta < 0.1]
            points += [(cost.epsilon(d), d) for d in deltas]
        replaced = 2 * epsilon if delta == 0 else None
        if not adaptive and all(part.kind in ("gaussian", "laplace") for part in parts):
            replaced = Cost(parts, "replace_one").epsilon(delta)
        return cls(epsilon, delta, mu, price.slack, False, tuple(points), replaced)

    @classmethod
    def of_promise(cls, epsilon: float, delta: float) -> Attacker:
        """Bounds for any mechanism that keeps a guarantee of which nothing else is known."""
        return cls(epsilon, delta, math.inf, 0.0, False, replaced=None if delta else 2 * epsilon)

    @property
    def _all(self) -> tuple[tuple[float, float], ...]:
        return ((self.epsilon, self.delta), *self.points)

    @property
    def advantage(self) -> float:
        """Largest difference of true and false positive rates; 0 is a coin, 1 is certainty."""
        found = [1.0, 2 * float(ndtr(self.mu / 2)) - 1 + self.slack]
        for epsilon, delta in self._all:
            e = math.exp(-min(epsilon, 700.0))
            found.append((1 - e + 2 * delta * e) / (1 + e))
        return min(found)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Largest share of members that an attacker finds, at this share of false accusations."""
        a, found = false_positive_rate, [1.0]
        for epsilon, delta in self._all:
            e = math.exp(-min(epsilon, 700.0))
            found += [a / e + delta, 1 - e * (1 - delta - a)]
        if self.mu < math.inf:
            found.append(float(ndtr(ndtri(a) + self.mu)) + self.slack)
        return min(found)

    def posterior(self, prior: float) -> float:
        """Largest probability after the release of an event with the probability `prior` before.

        It holds except for a set of releases whose probability is at most :attr:`surprise`.
        """
        e = math.exp(-min(self._belief[0], 700.0))
        return prior / (prior + (1 - prior) * e)

    @property
    def surprise(self) -> float:
        """Probability of a release that reveals more than :meth:`posterior` states."""
        return self._belief[1]

    @property
    def _belief(self) -> tuple[float, float]:
        """Logarithm of the factor that odds change by, and the probability of a larger one."""
        always = [epsilon for epsilon, delta in self._all if delta == 0]
        if always or self.epsilon == math.inf:
            return min(always, default=math.inf), 0.0
        if self.mu == 0:
            return 0.0, 0.0
        if self.exact:
            return self.epsilon, float(ndtr(self.mu / 2 - self.epsilon / self.mu))
        found = [1.0]
        if self.mu < math.inf:
            a = np.linspace(0.0, self.epsilon, 2000, endpoint=False)
            upper = np.exp(log_ndtr(self.mu / 2 - a / self.mu))
            lower = np.exp(a + log_ndtr(-self.mu / 2 - a / self.mu))
            curve = np.maximum(upper - lower, 0.0) + 1e-14 + self.slack
            found.append(float((curve / -np.expm1(a - self.epsilon)).min()))
        below = [(e, d) for e, d in self.points if e < self.epsilon]
        found += [d / -math.expm1(e - self.epsilon) for e, d in below]
        if min(found) <= _RARE:
            return self.epsilon, min(found)
        return self.epsilon + math.log(2), min(1.0, 2 * self.delta)

    def of_several(self, count: int) -> float | None:
        """Epsilon at the same delta for a group of `count` records; None where it is not known.

        For such a group, a Gaussian mechanism of mu is one of ``count mu`` (Dong, Roth, Su, 2022,
        Theorem 2.14), and at a delta of 0 the epsilons of the records add up.
        """
        if self.exact and self.delta > 0:
            return gaussian_epsilon((count * self.mu) ** 2, self.delta)
        return count * self.epsilon if self.delta == 0 else None
