"""What a private search may spend: budgets of candidates and scores under one event.

Lemma (a trial costs the larger of its two parts). Let public coins, or positions, assign each
record to training or to scoring. A trial fits a model to the first and then releases a score of it
on the second with noise. Neighbours differ in one record.

*In training*: the model is the output of a mechanism that has the divergences of the fit. The score
is computed from the model and from records that both neighbours share, so that model and score are
the model, postprocessed: no divergence grows. *In scoring*: the model has one distribution for
both neighbours, and given the model the score is a Gaussian mechanism, whatever the model is. So
the divergences of the pair are an average over models of those of the Gaussian mechanism.

Hence every Renyi divergence of a trial, and every hockey-stick divergence, is at most the larger
of that of the fit and that of the score. It is at most that of one event which is above both. For
fits of Gaussian noise on all records this is the Gaussian mechanism of the same mu, exactly; for
fits on Poisson batches, inside a search, it is the fit, with a score whose Gaussian mechanism is
below it at every order that the accountant uses. Several trials on one split are likewise the
larger of two compositions: of all fits, and of all scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpsubspace._accounting.budget import Budget, Part, Target
from dpsubspace._accounting.cost import gaussian_epsilon, gaussian_sq_mu, sq_mu_of
from dpsubspace._accounting.events import (
    composed,
    counted,
    doubling,
    gaussian,
    non_private,
    private_search,
)
from dpsubspace._accounting.searches import (
    excess_over,
    least_sq_mu,
    search_multiplier,
    search_scale,
)
from dpsubspace._workflow.pipelines import private_parts
from dpsubspace._workflow.planner import share_of_parts
from dpsubspace._workflow.trials import Candidate
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Spending"]

# Candidates on batches up to which all of them are fitted.
_FEW = 3

# Share of mu^2 of a score that is composed with fits on batches.
_SCORE_SHARE = 0.1

# So much of mu^2 is not used, so that rounding in calibrations stays below it.
_SPARE = 1e-9

# How much of epsilon a search over fits on batches may leave unused.
_TOLERANCE = 2e-3

# By how much the epsilon of a candidate falls until it is below the base, and how often.
_LOWER, _MOST_TIMES = 0.995, 40


@dataclass(frozen=True)
class Spending:
    """What a search releases in all, and the noise of each score.

    Parameters
    ----------
    event : DpEvent
        Of all of it.
    all : bool
        Whether each candidate is fitted once; else a hidden number of trials.
    multiplier : float
        Noise multiplier of a score on private records.
    candidates : sequence of Candidate
        With budgets set.
    """

    event: DpEvent
    all: bool
    multiplier: float
    candidates: Sequence[Candidate]

    @classmethod
    def of(
        cls,
        candidates: Sequence[Candidate],
        target: Target,
        n_samples: int | None,
        *,
        method: str,
        n_trials: float,
        scored: bool,
    ) -> Spending:
        """Share a budget; `scored` says that scores are of private records."""
        if not target.private:
            for candidate in candidates:
                candidate.set_budget(math.inf, target.delta_at(n_samples))
            whole = method == "all" or (method == "auto" and len(candidates) <= _FEW)
            return cls(non_private(), whole, 0.0, candidates)
        one = _Share(target, target.delta_at(n_samples), method, n_trials, scored)
        if any(_batches(candidate) for candidate in candidates):
            return one.on_batches(candidates)
        return one.on_all_records(candidates)

    def score_budget(self, target: Target) -> Budget:
        """What one score may release."""
        score = {"score": Part(1.0)}
        return Budget(
            target,
            score,
            {"score": self.multiplier},
            gaussian(self.multiplier) if target.private else non_private(),
            target.private,
        )

    def budget(self, target: Target) -> Budget:
        """All of it, for the guarantee."""
        return replace(self.score_budget(target), event=self.event)


def _batches(candidate: Candidate) -> list[int]:
    """Batch sizes of the private parts."""
    parts = [part for _, part in private_parts(candidate.estimator)]
    sizes = [getattr(part, "batch_size", None) for part in parts]
    return [int(size) for size in sizes if size is not None]


@dataclass(frozen=True)
class _Share:
    """How the budget of a search is shared."""

    target: Target
    delta: float
    method: str
    n_trials: float
    scored: bool

    @property
    def relation(self) -> str:
        return self.target.neighboring_relation

    @property
    def epsilon(self) -> float:
        return float(self.target.epsilon or 0.0)

    # Gaussian noise on all records ------------------------------------------------------------

    def on_all_records(self, candidates: Sequence[Candidate]) -> Spending:
        """Fits of one mu each, and scores of the same."""
        moved, k = doubling(self.relation), len(candidates)
        once = moved / math.sqrt(gaussian_sq_mu(self.epsilon, self.delta))
        multiplier, whole = once * math.sqrt(k), True
        if self.method != "all":
            try:
                best = search_multiplier(self.epsilon, self.delta, self.relation, self.n_trials)
            except PrivacyBudgetError:
                if self.method != "auto":
                    raise
                best = math.inf
            if self.method == "random" or best < multiplier:
                multiplier, whole = best, False
        sq_mu = (moved / multiplier) ** 2
        epsilon = gaussian_epsilon(sq_mu * (1 - _SPARE), self.delta)
        for candidate in candidates:
            event = candidate.set_budget(epsilon, self.delta)
            cost = sq_mu_of(counted(event), self.relation)
            if cost is None:
                raise PrivacyError(
                    "a candidate releases something without Gaussian noise, by an exponential"
                    " mechanism, say: a search can be counted over Gaussian noise only."
                )
            if not cost <= sq_mu:
                raise RuntimeError(f"a candidate costs mu^2={cost!r}, more than {sq_mu!r}.")
        event = gaussian(once) if whole else private_search(gaussian(multiplier), self.n_trials)
        return Spending(event, whole, multiplier, candidates)

    # Batches ----------------------------------------------------------------------------------

    def on_batches(self, candidates: Sequence[Candidate]) -> Spending:
        """Fits below the Renyi curve of one of them, or all of them one after another."""
        for candidate in candidates:
            _check_steps(candidate)
        if self.method == "all" or (self.method == "auto" and len(candidates) <= _FEW):
            return self._one_after_another(candidates)
        if self.relation != "zero_out":
            raise PrivacyError(
                "a private search under neighboring_relation='replace_one' can be counted for"
                " Gaussian mechanisms on all records only: use batch_size=None, or 'zero_out'."
            )
        rates = [min(_batches(candidate), default=math.inf) for candidate in candidates]
        base = candidates[rates.index(min(rates))]  # whose curve rises most: others fit below it

        def search(log_scale: float) -> DpEvent:
            event = base.set_budget(self.epsilon * math.exp(log_scale), self.delta)
            return private_search(event, self.n_trials)

        found = search_scale(search, self.epsilon, self.delta, self.relation, _TOLERANCE)
        event = search(found).event  # pyright: ignore[reportAttributeAccessIssue]
        sq_mu = least_sq_mu(event)
        for candidate in (each for each in candidates if each is not base):
            epsilon = self.epsilon * math.exp(found)
            if not _batches(candidate):
                epsilon = min(epsilon, gaussian_epsilon(sq_mu * (1 - _SPARE), self.delta))
            for _ in range(_MOST_TIMES):
                over = excess_over(candidate.set_budget(epsilon, self.delta), event)
                if over <= 1:
                    break
                epsilon *= min(_LOWER, over**-0.5)
            else:
                raise PrivacyError(
                    "candidates on batches differ so much that no common bound of what they tell"
                    " was found: give them one batch_size and n_iter, or batch_size=None."
                )
        return Spending(private_search(event, self.n_trials), False, sq_mu**-0.5, candidates)

    def _one_after_another(self, candidates: Sequence[Candidate]) -> Spending:
        score = _Score(self.relation, len(candidates))
        parts, plans, weights = [], {}, []
        for candidate in candidates:
            own = candidate.paying
            squares = [gaussian_sq_mu(float(part._whole.epsilon), self.delta) for part in own]
            parts += own
            plans |= {id(part): candidate.plan for part in own}
            weights += [square / math.fsum(squares) / len(candidates) for square in squares]
        if self.scored:
            parts.append(score)
            plans[id(score)] = score.plan
            weights.append(_SCORE_SHARE)

        def plan(part: Any) -> DpEvent:
            return plans[id(part)](part)

        share_of_parts(parts, plan, epsilon=self.epsilon, delta=self.delta, weights=weights)
        event = composed(map(plan, parts))
        return Spending(event, True, score.multiplier, candidates)


def _check_steps(candidate: Candidate) -> None:
    """ValueError where the number of steps of a fit on batches is not known before the data."""
    for part in candidate.paying:
        unknown = candidate.columns_of(part) is None
        if unknown and getattr(part, "batch_size", None) and part.n_iter == "auto":
            raise ValueError(
                "n_iter='auto' depends on how many columns a step gets, and what batches tell on"
                " the number of steps: set `n_iter` of the step that has a `batch_size`."
            )


class _Score:
    """All scores of a search as one part of its budget."""

    def __init__(self, neighboring_relation: str, count: int):
        self.neighboring_relation = neighboring_relation
        self.count = count
        self.epsilon, self.delta = 1.0, 1e-5

    def get_params(self) -> dict[str, Any]:
        """`epsilon` and `delta` of all scores together."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def set_params(self, **params: Any) -> None:
        """Set them."""
        vars(self).update(params)

    _set_whole = set_params

    @property
    def _whole(self) -> _Score:
        return self

    @property
    def multiplier(self) -> float:
        """Noise multiplier of each score."""
        sq_mu = gaussian_sq_mu(self.epsilon, self.delta) / self.count
        return doubling(self.neighboring_relation) / math.sqrt(sq_mu)

    def plan(self, part: _Score) -> DpEvent:
        """What all scores cost."""
        return gaussian(part.multiplier, part.count)
