"""What a ledger may spend, fixed before anything is seen, and what has been spent of it.

Design note. A cap that holds however fits are chosen is a *filter*: it needs a bound that can
be added up while the analyst looks at results. Sums of the privacy loss distributions of what ran
are no such bound. Nor is the region of all charges whose epsilon is within the budget: who may
choose, after seeing a loss, whether the rest goes to mechanisms without a delta or to Gaussian
ones, gains by choosing. So there is one triple, the plan, and the region is what it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dpsubspace._accounting.cost import SMALLEST_DELTA, gaussian_epsilon, gaussian_sq_mu
from dpsubspace._accounting.curves import LEAST_SLACK, Price

__all__ = ["Charge", "Plan", "auto_slack"]

# Rounding of sums, as a part of what they may be.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Charge:
    """What an entry takes of a plan.

    Parameters
    ----------
    sq_mu : float
        Square of the mu of the Gaussian mechanism that it is charged as; inf for what is not
        private.
    slack : float
        What of delta it may take beside.
    epsilon : float
        Epsilon of what is charged without a delta.
    """

    sq_mu: float = 0.0
    slack: float = 0.0
    epsilon: float = 0.0

    @property
    def needs_delta(self) -> bool:
        """Whether anything was charged that has no epsilon without a delta."""
        return self.sq_mu > 0 or self.slack > 0

    @classmethod
    def total(cls, charges: Iterable[Charge]) -> Charge:
        """All of them; sums are rounded once."""
        charges = list(charges)
        return cls(
            math.fsum(c.sq_mu for c in charges),
            math.fsum(c.slack for c in charges),
            math.fsum(c.epsilon for c in charges),
        )

    @classmethod
    def choices(cls, price: Price) -> list[Charge]:
        """Ways to charge a price: what has no delta, and searches, by their epsilon or by mu."""
        pure = {(0.0, price.epsilon), (price.pure_sq_mu, 0.0)} if price.epsilon else {(0.0, 0.0)}
        found = [cls(price.sq_mu + mu, price.slack, epsilon) for mu, epsilon in sorted(pure)]
        if 0 < price.search_epsilon < math.inf and price.slack:
            found += [
                cls(price.rest_sq_mu + mu, price.slack, epsilon + price.search_epsilon)
                for mu, epsilon in sorted(pure)
            ]
        return found

    def at(self, delta: float) -> float:
        """Epsilon at `delta`."""
        if self.slack >= delta:
            return math.inf if self.slack > delta or self.sq_mu else self.epsilon
        return self.epsilon + gaussian_epsilon(self.sq_mu, delta - self.slack)


@dataclass(frozen=True)
class Plan:
    """All that may ever be charged: B of mu^2, S of slack and E of epsilon, fixed in advance.

    Parameters
    ----------
    budget, delta : float
        What everything together must keep to.
    slack : float
        S, the part of delta for what is not exactly Gaussian.
    epsilon : float
        E, the part of epsilon for what has no delta.
    closed : bool
        Whether one fit took B and S as a whole, at its own cost.

    Notes
    -----
    *Claim.* Let mechanisms be chosen one after the other, each after seeing all outputs before it.
    On every path let the sum of mu_i^2 be at most B, that of slacks s_i at most S and that of
    epsilons e_i, of mechanisms charged by their epsilon, at most E. Then for neighbours P, Q in
    both orders and all ``t > 0`` ::

        H_t(P || Q) <= V(t; B, S, E) = G_sqrt(B)(u) + min(1, u) S   with   u = t e^-E,

    so that epsilon at delta is at most E plus that of the Gaussian of ``sqrt(B)`` at ``delta - S``.

    *Proof*, from the last mechanism backwards. With nothing left to run ``H_t = (1 - t)_+``, which
    is at most V for any B, S and E. Otherwise let l be the likelihood ratio of the next
    mechanism's output, and B', S', E' what is left after it. By the induction hypothesis (what
    comes after depends on the output, but the bound only on what is left) the divergence
    is at most ``E_Q[l V(t / l; B', S', E')]``; outputs that Q never gives count fully on both
    sides.

    *A mechanism charged as (mu, s).* ``B' = B - mu^2, S' = S - s, E' = E``. First,
    ``phi(l) = l G_sqrt(B')(u / l)`` is a perspective of a convex function, hence convex, with
    ``phi(0) = phi'(0) = 0`` and ``phi(l) - l`` going to -u. So it is a mixture of
    ``(l - r)_+`` over a probability measure nu(r) of mean u, and ``E_Q[phi]`` is one of
    ``E_Q[(l - r)_+] = H_r <= G_mu(r) + min(1, r) s``. The first term of this, mixed, is what it is
    for the Gaussian mechanism of mu followed by that of ``sqrt(B')``: ``G_sqrt(mu^2 + B')(u)``. The
    second is at most ``min(1, u) s`` by Jensen's inequality, min(1, .) being concave. Second,
    ``E_Q[l min(1, u / l)] S' = E_Q[min(l, u)] S' <= min(1, u) S'``. The sum is V.

    *A mechanism charged as e*, whose l is at most ``e^e``. For each output the divergence of what
    comes after falls in its order, so that at ``t / l`` it is at most that at ``t e^-e``, and so
    at most ``V(t e^-e; B, S, E - e) = V(t; B, S, E)``.

    *A mechanism charged as (e, s)*, whose divergence at ``e^e`` is at most s in both orders, as
    that of a private search is. It is a postprocessing of randomised response that with
    probability s says everything, and says that it does (Kairouz, Oh, Viswanath, 2015): of a coin
    that has nothing to do with the records, and of a mechanism with l up to ``e^e``. To show the
    coin as well can only tell more. So H is at most ``(1 - s) (G(u) + min(1, u) S') + s``, by the
    case of e and since no divergence is above 1. For ``u >= 1`` that is at most ``G + S' + s``.
    For less, it is at most ``G + u (S' + s)`` if ``1 - G(u) <= u``, and G(u) is at least
    ``1 - u``, the divergence of what tells nothing.

    *When the plan is fixed.* As long as everything charged was charged by its epsilon, e_0 in
    all, any plan may follow whose E is at least e_0, chosen by whatever was seen: by the last
    step the divergence is at most the largest V of such plans, and each of them keeps the budget.
    From the first charge by a mu on, the plan stays.

    *A closed plan* holds one fit of the curve H, at epsilon_1 by its own accountant, beside
    epsilons: the same last step bounds the divergence by H at ``t e^-E``, and
    ``epsilon_1 + E`` is within the budget.
    """

    budget: float
    delta: float
    slack: float
    epsilon: float
    closed: bool = False

    @property
    def sq_mu(self) -> float:
        """B: what fits beside E and S into the budget; 0 for a closed plan."""
        if self.closed:
            return 0.0
        return gaussian_sq_mu(self.budget - self.epsilon, self.delta - self.slack)

    def cost(self, total: Charge) -> float:
        """Epsilon at the delta of the budget of all that is set apart, with so much of B."""
        slack, epsilon = max(self.slack, total.slack), max(self.epsilon, total.epsilon)
        return Charge(total.sq_mu, slack, epsilon).at(self.delta)

    def takes(self, charge: Charge, spent: Charge) -> bool:
        """Whether `charge` fits beside what is `spent`."""
        if self.closed and charge.needs_delta:
            return False
        total = Charge.total([spent, charge])
        if total.slack > self.slack * (1 + _ROUNDING) or total.epsilon > self.epsilon + _ROUNDING:
            return False
        return self.closed or self.covers(self.cost(total))

    def covers(self, epsilon: float) -> bool:
        """Whether the budget does, up to rounding; never for NaN."""
        return epsilon <= self.budget * (1 + _ROUNDING)


def auto_slack(delta: float) -> float:
    """Slack that a ledger sets apart: a hundredth of delta, and enough for a few charges."""
    if delta < SMALLEST_DELTA:  # no accountant would use it
        return 0.0
    return min(delta / 10, max(delta / 100, 20 * LEAST_SLACK))
