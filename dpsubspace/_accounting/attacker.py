"""What a guarantee leaves to an attacker, in numbers that can be said in words.

The attacker knows everything but which of two neighbouring data sets was used, knows both
of them, and sees all that was released. *Privacy.* With the curve ``H_t`` of ``curves``, whose
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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from dpsubspace._accounting.cost import SMALLEST_DELTA, gaussian_epsilon, sq_mu_of
from dpsubspace._accounting.curves import LEAST_SLACK, price_of
from dpsubspace._accounting.events import counted

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Attacker"]


@dataclass(frozen=True)
class Attacker:
    """Bounds on what can be learnt of one record.

    Parameters
    ----------
    epsilon, delta : float
        What is promised.
    mu : float
        Of the Gaussian mechanism that is at least as bad in all respects but for the slack; inf
        where none is known.
    slack : float
        What is added to its curve.
    exact : bool
        Whether all that was released is Gaussian, so that bounds by mu are attained.
    """

    epsilon: float
    delta: float
    mu: float
    slack: float
    exact: bool

    @classmethod
    def of(
        cls, event: DpEvent, epsilon: float, delta: float, neighboring_relation: str
    ) -> Attacker:
        """For what ran, and what is promised of it."""
        parts = counted(event)
        sq_mu = sq_mu_of(parts, neighboring_relation)
        if sq_mu is not None:
            return cls(epsilon, delta, math.sqrt(sq_mu), 0.0, sq_mu < math.inf)
        usable = max(delta / 100, LEAST_SLACK) if delta >= SMALLEST_DELTA else 0.0
        price = price_of(event, usable, neighboring_relation)
        mu = math.sqrt(price.sq_mu + price.pure_sq_mu)
        return cls(epsilon, delta, mu, price.slack, False)

    @property
    def advantage(self) -> float:
        """Largest difference of true and false positive rates; 0 is a coin, 1 is certainty."""
        e = math.exp(-min(self.epsilon, 700.0))
        found = (1 - e + 2 * self.delta * e) / (1 + e)
        return min(1.0, found, 2 * float(ndtr(self.mu / 2)) - 1 + self.slack)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Largest share of those used that are found, where so many others are named too."""
        a, e = false_positive_rate, math.exp(-min(self.epsilon, 700.0))
        found = [1.0, a / e + self.delta, 1 - e * (1 - self.delta - a)]
        if self.mu < math.inf:
            found.append(float(ndtr(ndtri(a) + self.mu)) + self.slack)
        return min(found)

    def posterior(self, prior: float) -> float:
        """Largest probability after the release of what had the probability `prior` before.

        But for releases whose probability is at most that of :attr:`surprise`.
        """
        e = math.exp(-min(self.epsilon, 700.0))
        return prior / (prior + (1 - prior) * e)

    @property
    def surprise(self) -> float:
        """Probability of a release that tells more than :meth:`posterior` says."""
        if self.delta == 0 or self.epsilon == math.inf:  # then it is true of every release
            return 0.0
        if self.exact and self.mu > 0:
            return float(ndtr(self.mu / 2 - self.epsilon / self.mu))
        if not 0 < self.mu < math.inf:
            return 0.0 if self.mu == 0 else 1.0
        a = np.linspace(0.0, self.epsilon, 2000, endpoint=False)
        upper = np.exp(log_ndtr(self.mu / 2 - a / self.mu))
        lower = np.exp(a + log_ndtr(-self.mu / 2 - a / self.mu))
        curve = np.maximum(upper - lower, 0.0) + 1e-14 + self.slack
        return float(min(1.0, (curve / -np.expm1(a - self.epsilon)).min()))

    def of_several(self, count: int) -> float | None:
        """Epsilon at the same delta for `count` records together; None where it is not known.

        The Gaussian mechanism of mu is one of ``count mu`` for them (Dong, Roth, Su, 2022,
        Theorem 2.14), and a sum of epsilons is one without a delta.
        """
        if self.exact and self.delta > 0:
            return gaussian_epsilon((count * self.mu) ** 2, self.delta)
        return count * self.epsilon if self.delta == 0 else None
