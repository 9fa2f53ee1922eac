"""The privacy filter of a ledger: its budget, fixed before any release, and the charges so far.

Design note. A budget that holds however fits are chosen is a *filter*: it needs a bound that can
be added up while the analyst looks at results. The composed privacy loss distributions of the
mechanisms that ran are no such bound. Nor is the region of all charges whose epsilon is within the
budget: an analyst who may choose, after seeing a loss, whether the rest goes to mechanisms without
a delta or to Gaussian ones, gains by this choice. So there is one triple, the split, and a charge
must fit into what the split leaves. Beside the split there may be a few other triples, each with
its own part of delta that is never shared: that is the cost of the choice among them
(:class:`Sums`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from numbers import Integral, Real
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr

from dpsubspace._core.accounting.cost import (
    LEAST_SLACK,
    SMALLEST_DELTA,
    Price,
    gaussian_epsilon,
    gaussian_sq_mu,
)
from dpsubspace._core.accounting.events import RELATION_IN_WORDS
from dpsubspace._core.ground.checks import did_you_mean

# Observations that no sum counts ----------------------------------------------------------------
# Events inside a ledger that none of its charges covers, and the words of its report about them.
#
# An observation is a kind, the name of a class and a count: never a value, an error's text, a
# score, or anything else that depends on the rows. A ledger writes it into its journal before
# anything is raised, so that the report has it even if the fit fails.

# Largest count of an observation, so that scores in a loop do not fill a file.
MOST = 1000


@dataclass(frozen=True)
class Observation:
    """One kind of observation."""

    short: str  # In the printed form of a ledger
    words: str  # In a report; `{name}` is the class, and `{times}` how often it was seen
    breaks: bool = False  # Whether the guarantee of the ledger as a whole is lost


KINDS = {
    "step": Observation(
        "step without noise",
        "a {name} learned from the private rows without any noise, next to private fits ({times}),"
        " and what it learned is stored in the model. No charge of this ledger covers it. Fit it on"
        " public rows, or use a BoundedScaler or a DPPCA",
        breaks=True,
    ),
    "refused": Observation(
        "refused step without noise",
        "a {name} had learned from the private rows without any noise before the fit beside it was"
        " refused ({times}). What it learned is not protected: it must not be published or used",
    ),
    "unknown": Observation(
        "fit of unknown parts",
        "private fits ran inside {name} ({times}), which may itself have learned from the private"
        " rows without noise, or altered them beforehand. No charge of this ledger covers that",
        breaks=True,
    ),
    "choice": Observation(
        "choice by exact scores",
        "a {name} chose parameters by exact scores on held-out rows, and fitted a model with"
        " them ({times}). Which parameters it chose may reveal something about a single row. Use"
        " PrivateSearch to choose parameters in a protected way",
        breaks=True,
    ),
    "validation": Observation(
        "fit with exact scores",
        "{name} was fitted in a search or cross-validation ({times}) whose scores on held-out rows"
        " are exact. Unless all of those rows are public, the scores are not protected: no epsilon"
        " covers them. Use PrivateSearch to choose parameters in a protected way, or a function"
        " with private_score as `scoring`",
    ),
    "score": Observation(
        "exact score",
        "exact scores of {name} were computed ({times}). Unless all of those rows are public, the"
        " scores are not protected: no epsilon covers them. private_score gives scores with noise"
        " that a guarantee covers",
    ),
    "look": Observation(
        "exact look",
        "{name} displayed exact facts about the rows ({times}). What was changed because of them"
        " reveals something about private rows, and no epsilon covers it",
    ),
    "seed": Observation(
        "seeded fit",
        "the noise of {name} was made from a seed ({times}). Whoever knows the seed, or sees it"
        " used twice, can remove the noise",
    ),
    "failure": Observation(
        "failed fit",
        "{name} ended in an error ({times}). That it failed may reveal something about the rows,"
        " and is not counted",
    ),
}

# Kind of fits that were noted as "validation", and whose scores were released after that.
RELEASED = "released"
_VOUCHED = (
    "that the `scoring` of the search or cross-validation in which {name} was fitted ({times})"
    " gave what private_score released, which is charged, and computed nothing else"
)


def without_released(seen: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return `seen` without fits in a search or cross-validation whose scores were all released.

    Such a fit was noted before its scores were known. If no other fit had exact scores, every
    choice by scores was a choice by released scores.
    """
    left = {key: count for key, count in seen.items() if key[0] != RELEASED}
    released = {name: count for (kind, name), count in seen.items() if kind == RELEASED}
    for name, count in released.items():
        noted = left.pop(("validation", name), 0)
        if rest := noted if noted >= MOST else noted - count:  # counts stop at MOST
            left["validation", name] = rest
    if released and not any(kind == "validation" for kind, _ in left):
        return {key: count for key, count in left.items() if key[0] != "choice"}
    return left


def vouched_scores(seen: Mapping[tuple[str, str], int]) -> list[str]:
    """Return what the user vouches for if scores of a search or cross-validation were released."""
    return [
        _VOUCHED.format(name=name, times=_times(count))
        for (kind, name), count in seen.items()
        if kind == RELEASED
    ]


def named(seen: Iterable[tuple[str, str, int]], *, breaks: bool) -> tuple[str, ...]:
    """Return sentences on the observations that break the guarantee, or on the other ones."""
    return tuple(
        KINDS[kind].words.format(name=name, times=_times(count))
        for kind, name, count in seen
        if KINDS[kind].breaks is breaks
    )


def in_words(seen: Iterable[tuple[str, str, int]]) -> str:
    """Return all observations in one line."""
    return ", ".join(f"{KINDS[kind].short} {name} ({_times(count)})" for kind, name, count in seen)


def beside(seen: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return the notes beside a total: whether its guarantee is broken, and what is not counted."""
    seen = [*seen]
    found = [_BROKEN] if any(KINDS[kind].breaks for kind, *_ in seen) else []
    return [*found, *([f"NOT COUNTED: {in_words(seen)}"] if seen else [])]


_BROKEN = "NO PRIVACY GUARANTEE for this ledger as a whole, because of what is not counted"

# The last line of a report and of a printed ledger.
UNWATCHED = (
    "Not watched: what other libraries compute from the rows, such as scikit-learn's own metrics,"
    " scalers and models, and choices made by them; and what is released in worker processes that"
    " have been given no estimator of the ledger."
)


def _times(count: int) -> str:
    if count >= MOST:
        return f"{MOST:,} times or more"
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


# Terms ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """The terms of a ledger, which never change; see :class:`~dpsubspace.PrivacyLedger`."""

    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str
    allow_seeded: bool
    slack: float
    pure_epsilon: float
    max_failures: int
    aside: float = 0.0  # part of delta of the sums beside the split

    @classmethod
    def checked(cls, **fields: Any) -> Terms:
        """Return terms with plain numbers; ValueError if one is out of its range."""
        check_number("epsilon", fields["epsilon"], math.inf)
        check_number("delta", fields["delta"], 1)
        epsilon, delta = float(fields["epsilon"]), float(fields["delta"])
        relation, slack = fields["neighboring_relation"], fields["slack"]
        if relation not in RELATION_IN_WORDS:
            raise ValueError(
                f"`neighboring_relation` must be one of {sorted(RELATION_IN_WORDS)},"
                f" got {relation!r}.{did_you_mean(relation, RELATION_IN_WORDS)}"
            )
        if not isinstance(fields["unit"], str):
            raise ValueError(f"`unit` must be a str, got {fields['unit']!r}.")
        if not isinstance(fields["allow_seeded"], bool):
            raise ValueError(
                f"`allow_seeded` must be True or False, got {fields['allow_seeded']!r}."
            )
        if slack != "auto":
            check_number("slack", slack, delta, include_zero=True)
        if automatic := fields["pure_epsilon"] == "auto":
            fields["pure_epsilon"] = 0.0
        check_number("pure_epsilon", fields["pure_epsilon"], epsilon, include_zero=True)
        most: Any = fields["max_failures"]
        whole = isinstance(most, Integral) and not isinstance(most, bool)
        if not (whole and int(most) >= 0):
            raise ValueError(f"`max_failures` must be an int of at least 0, got {most!r}.")
        slack = auto_slack(delta) if slack == "auto" else float(slack)
        aside = sum(SHARES) * (delta - slack) if automatic else float(fields.get("aside", 0.0))
        check_number("aside", aside, delta - slack, include_zero=True)
        plain = {
            "epsilon": epsilon,
            "delta": delta,
            "slack": slack,
            "aside": aside,
            "pure_epsilon": float(fields["pure_epsilon"]),
            "max_failures": int(most),
        }
        return cls(**{**fields, **plain})

    def given(self) -> dict[str, Any]:
        fields = asdict(self)
        if fields.pop("aside"):
            fields["pure_epsilon"] = "auto"
        return fields


def check_number(name: str, value: Any, most: float, *, include_zero: bool = False) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    least = 0.0 if include_zero else math.nextafter(0.0, 1.0)
    if not (number and least <= float(value) < most):  # False for NaN
        opening = "[" if include_zero else "("
        raise ValueError(f"`{name}` must be a number in {opening}0, {most}), got {value!r}.")


# Plans ------------------------------------------------------------------------------------------

# Relative tolerance for the rounding of sums.
_ROUNDING = 1e-12

# Shares of delta of the two `Sums` beside a split; and the share of epsilon for releases without a
# delta in the first of them (less if the first fit leaves less). In the second of them these
# releases may use all epsilon that the first fit leaves.
SHARES = (0.3, 0.05)
_APART = 0.3


@dataclass(frozen=True)
class Charge:
    """The part of a split that an entry uses."""

    # Square of mu of the Gaussian mechanism that the entry is charged as; inf if it is not private.
    sq_mu: float = 0.0
    slack: float = 0.0  # Part of delta that it may use as well
    epsilon: float = 0.0  # Epsilon of all that is charged without a delta
    # The same in the sums beside the split, where releases without a delta are not charged by mu.
    sum_sq_mu: float = 0.0
    sum_epsilon: float = 0.0

    @property
    def needs_delta(self) -> bool:
        """Whether any part of the charge has no epsilon without a delta."""
        return self.sq_mu > 0 or self.slack > 0

    @classmethod
    def total(cls, charges: Iterable[Charge]) -> Charge:
        """Return the sum of charges; each number is rounded once."""
        return cls(*map(math.fsum, zip(*map(_AMOUNTS, charges), strict=True)))

    @property
    def summed(self) -> Charge:
        """The part of the sums beside the split that this charge uses."""
        sums = (self.sum_sq_mu, self.sum_epsilon)
        return Charge(sums[0], self.slack, sums[1], *sums)

    @classmethod
    def choices(cls, price: Price) -> list[Charge]:
        """Return the ways to charge a price.

        Mechanisms without a delta, and searches, are charged by their epsilon or by their mu.
        """
        pure = {(0.0, price.epsilon), (price.pure_sq_mu, 0.0)} if price.epsilon else {(0.0, 0.0)}
        rests = [(price.sq_mu, 0.0)]
        if 0 < price.search_epsilon < math.inf and price.slack:
            rests.append((price.rest_sq_mu, price.search_epsilon))
        sums = (rests[-1][0], price.epsilon + rests[-1][1])
        return [
            cls(rest + mu, price.slack, epsilon + searches, *sums)
            for rest, searches in rests
            for mu, epsilon in sorted(pure)
        ]

    def at(self, delta: float) -> float:
        if self.slack >= delta:
            return math.inf if self.slack > delta or self.sq_mu else self.epsilon
        return self.epsilon + gaussian_epsilon(self.sq_mu, delta - self.slack)


# Gets all numbers of a charge at once.
_AMOUNTS = attrgetter(*Charge.__dataclass_fields__)


@dataclass(frozen=True)
class BudgetSplit:
    """The most that may ever be charged: B of mu^2, S of slack and E of epsilon, fixed in advance.

    *Claim.* Let mechanisms be chosen one after the other, each after seeing all outputs before it.
    On every path let the sum of mu_i^2 be at most B, that of slacks s_i at most S and that of
    epsilons e_i, of mechanisms charged by their epsilon, at most E. Then for neighbours P, Q in
    both orders and all ``t > 0`` ::

        H_t(P || Q) <= V(t; B, S, E) = G_sqrt(B)(u) + min(1, u) S   with   u = t e^-E,

    so that epsilon at delta is at most E plus that of the Gaussian of ``sqrt(B)`` at ``delta - S``.

    *Proof*, from the last mechanism backwards. With nothing left to run ``H_t = (1 - t)_+``, which
    is at most V for any B, S and E. Otherwise let l be the likelihood ratio of the next
    mechanism's output, and B', S', E' what is left after it. By the induction hypothesis (later
    mechanisms depend on the output, but the bound depends only on what is left) the divergence
    is at most ``E_Q[l V(t / l; B', S', E')]``; outputs that Q never gives count fully on both
    sides.

    *A mechanism charged as (mu, s).* ``B' = B - mu^2, S' = S - s, E' = E``. First,
    ``phi(l) = l G_sqrt(B')(u / l)`` is a perspective of a convex function, hence convex, with
    ``phi(0) = phi'(0) = 0`` and ``phi(l) - l`` going to -u. So it is a mixture of
    ``(l - r)_+`` over a probability measure nu(r) of mean u, and ``E_Q[phi]`` is a mixture of
    ``E_Q[(l - r)_+] = H_r <= G_mu(r) + min(1, r) s``. The mixture of the first terms is the same as
    for the Gaussian mechanism of mu followed by that of ``sqrt(B')``: ``G_sqrt(mu^2 + B')(u)``. The
    mixture of the second terms is at most ``min(1, u) s`` by Jensen's inequality, since min(1, .)
    is concave. Second,
    ``E_Q[l min(1, u / l)] S' = E_Q[min(l, u)] S' <= min(1, u) S'``. The sum is V.

    *A mechanism charged as e*, whose l is at most ``e^e``. For each output the divergence of the
    later mechanisms falls in its order, so that at ``t / l`` it is at most its value at
    ``t e^-e``, and so at most ``V(t e^-e; B, S, E - e) = V(t; B, S, E)``.

    *A mechanism charged as (e, s)*, whose divergence at ``e^e`` is at most s in both orders, as
    that of a private search is. It is a postprocessing of randomised response that with
    probability s reveals everything, and reveals that it does (Kairouz, Oh, Viswanath, 2015): of a
    coin that is independent of the records, and of a mechanism with l up to ``e^e``. To show the
    coin as well can only reveal more. So H is at most ``(1 - s) (G(u) + min(1, u) S') + s``, by the
    case of e and since no divergence is above 1. For ``u >= 1`` that is at most ``G + S' + s``.
    For ``u < 1``, it is at most ``G + u (S' + s)`` if ``1 - G(u) <= u``, and G(u) is at least
    ``1 - u``, the divergence of a mechanism that reveals nothing.

    *When the split is fixed.* As long as everything was charged by its epsilon, e_0 in all, any
    split may follow whose E is at least e_0, chosen by any results so far: by the last
    step the divergence is at most the largest V of such splits, and each of them keeps the budget.
    From the first charge by a mu on, the split stays.

    *A closed split* holds one fit of the curve H, at epsilon_1 by its own accountant, beside
    epsilons: the same last step bounds the divergence by H at ``t e^-E``, and
    ``epsilon_1 + E`` is within the budget.
    """

    budget: float  # Epsilon that all charges together must keep to
    delta: float
    slack: float  # S, the part of delta for mechanisms that are not exactly Gaussian
    epsilon: float  # E, the part of epsilon for mechanisms without a delta
    closed: bool = False  # Whether one fit used all of B and S, at its own cost
    # The part of B, in the sums beside this split, of the charge that fixed it; and the epsilon
    # that had been charged by epsilon until then.
    first: float = 0.0
    before: float = 0.0

    @property
    def sq_mu(self) -> float:
        """B: the mu^2 that fits into the budget beside E and S; 0 for a closed split."""
        if self.closed:
            return 0.0
        return gaussian_sq_mu(self.budget - self.epsilon, self.delta - self.slack)

    def cost(self, total: Charge) -> float:
        """Return epsilon, at the budget's delta, of all of E and S with the mu^2 of `total`."""
        slack, epsilon = max(self.slack, total.slack), max(self.epsilon, total.epsilon)
        return Charge(total.sq_mu, slack, epsilon).at(self.delta)

    def takes(self, charge: Charge, spent: Charge) -> bool:
        if self.closed and charge.needs_delta:
            return False
        total = Charge.total([spent, charge])
        if total.slack > self.slack * (1 + _ROUNDING) or total.epsilon > self.epsilon + _ROUNDING:
            return False
        apart = total.slack <= self.slack and total.epsilon <= self.epsilon
        if apart and 0 < total.sq_mu <= self.sq_mu:
            return True  # E, S and all of B keep to the budget, and less costs less
        return self.closed or self.covers(self.cost(total))

    def covers(self, epsilon: float) -> bool:
        """Return whether `epsilon` is within the budget, up to rounding; False for NaN."""
        return epsilon <= self.budget * (1 + _ROUNDING)


@dataclass(frozen=True)
class Sums:
    """An account beside the split, where epsilons of mechanisms without a delta add to the fits'.

    *Claim.* Let mechanisms be chosen as for a :class:`BudgetSplit`, with sums of at most B, S and
    E. Then ``H_t(P || Q) <= R(t; B, E) + S``, where R is the divergence of the Gaussian mechanism
    of ``sqrt(B)`` composed with randomised response at E::

        R(t; B, E) = (e^E G_sqrt(B)(t e^-E) + G_sqrt(B)(t e^E)) / (1 + e^E).

    *Proof*, from the last mechanism backwards. With nothing left to run ``H_t = (1 - t)_+``, which
    no divergence is below. Otherwise the divergence is at most ``E_Q[l R(t / l; B', E')] + S'``,
    where l is the likelihood ratio of the next mechanism's output and B', S', E' are left after it.
    As a function of l the first term is a mixture of ``(l - r)_+`` over a probability measure, as
    in the proof of the split, and its mean is that of the ``H_r`` of the mechanism.
    *Charged as (mu, s)*: ``H_r <= G_mu(r) + s``, so that the mean is at most s plus its value for
    the Gaussian mechanism, which composes with that of ``sqrt(B')`` to a Gaussian mechanism of
    ``sqrt(mu^2 + B')``: it is ``R(t; B, E') + s``.
    *Charged as e*: H is at most that of randomised response at e. This composed with randomised
    response at E' is a mechanism of epsilon ``e + E'``, which is a postprocessing of randomised
    response at E (Kairouz, Oh, Viswanath, 2015), also beside a Gaussian mechanism. So the mean is
    at most ``R(t; B, E)``. *Charged as (e, s)*: with probability s everything is revealed, and else
    the mechanism is one charged as e: that adds s. The sum is the claim.

    *When the sums are fixed.* Like the split, by results of mechanisms charged by their epsilon,
    e_0 in all. Their likelihood ratio is at most ``e^e_0``, so that it is enough if the mechanisms
    that follow keep epsilon less e_0, for every split that could follow.

    *Several accounts.* Give each account j a delta_j, all of which add up to delta, and let a
    mechanism run if at least one account has room for it and for all that ran before. Let T_j be
    the event that in the end account j has room for all that ran. Charges are not negative, so that
    on T_j it had room at any time: the outputs in T_j have the same probabilities as if
    account j alone decided and everything stopped at the first mechanism that it refuses. Those
    probabilities keep ``P_j(O) <= e^epsilon Q_j(O) + delta_j``. Every output is in some T_j. Assign
    each output in O to the first T_j that it is in, ``O = O_1 + ... + O_k``. Then ::

        P(O) = sum_j P_j(O_j) <= sum_j (e^epsilon Q_j(O_j) + delta_j) = e^epsilon Q(O) + delta.

    Each account counts all that ran, whichever had room for it. If less than a charge ran, or
    nothing, the charge may be lowered to what ran: T_j is about what ran. The accounts do need
    separate parts of delta: with one delta for all, an analyst who spends the mu of fits in small
    steps, and all that is left by epsilon as soon as the loss is large, reaches several times delta
    (``benchmarks/bench_ledger.py``).
    """

    sq_mu: float  # The most that may ever be charged to it: B, S and E, fixed with the split
    slack: float
    epsilon: float

    @classmethod
    def of_split(cls, split: BudgetSplit, delta: float) -> list[Sums]:
        """Return the sums beside `split`, which have the part of the whole `delta` it leaves."""
        if split.closed or not delta > split.delta:
            return []
        left, found = split.budget - split.before, []
        for share, least in zip(SHARES, (_APART, 0.0), strict=True):
            part = share / sum(SHARES) * (delta - split.delta)
            found.append(_room(left, part, min(split.slack, part / 10), split.first, least))
        return [
            replace(sums, epsilon=split.before + sums.epsilon) for sums in found if sums.epsilon > 0
        ]

    def takes(self, charge: Charge, spent: Charge) -> bool:
        total = Charge.total([spent, charge]).summed
        return (
            total.sq_mu <= self.sq_mu * (1 + _ROUNDING)
            and total.slack <= self.slack * (1 + _ROUNDING)
            and total.epsilon <= self.epsilon * (1 + _ROUNDING)
        )


def response_divergence(sq_mu: float, epsilon: float, order: float) -> float:
    """Return the divergence at ``e^order`` of a Gaussian mechanism and randomised response."""

    def gaussian(a: float) -> float:
        mu = math.sqrt(sq_mu)
        upper, lower = log_ndtr(mu / 2 - a / mu), a + log_ndtr(-mu / 2 - a / mu)
        return float(np.exp(upper) * -np.expm1(min(lower - upper, 0.0)))

    if sq_mu == 0:
        return max(0.0, -math.expm1(min(order - epsilon, 0.0))) * float(expit(epsilon))
    likely, other = gaussian(order - epsilon), gaussian(order + epsilon)
    return likely * float(expit(epsilon)) + other * float(expit(-epsilon))


@lru_cache(maxsize=256)
def _room(budget: float, delta: float, slack: float, first: float, least: float = 0.0) -> Sums:
    """Return sums with the share `least` of `budget` for mechanisms without a delta.

    If the first fit leaves less, or `least` is 0, their epsilon is what the first fit leaves.
    """

    def fits(sq_mu: float, epsilon: float) -> bool:
        return response_divergence(sq_mu, epsilon, budget) <= delta - slack

    if not (budget > 0 and first < math.inf):
        return Sums(first, slack, 0.0)
    epsilon, most = least * budget, gaussian_sq_mu(budget, delta - slack)
    if epsilon and fits(first, epsilon):
        return Sums(_largest(lambda sq_mu: fits(sq_mu, epsilon), most), slack, epsilon)
    return Sums(first, slack, _largest(lambda epsilon: fits(first, epsilon), budget))


def _largest(fits: Callable[[float], bool], most: float) -> float:
    """Return the largest number up to `most` that fits, rounded down; 0 if none does."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * (1 - 1e-9)


def auto_slack(delta: float) -> float:
    if delta < SMALLEST_DELTA:  # no accountant would use it
        return 0.0
    return min(delta / 10, max(delta / 100, 20 * LEAST_SLACK))
