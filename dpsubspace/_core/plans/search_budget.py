"""Budgets of a private search: of candidates and of scores, under one event.

Lemma (a trial costs the larger of its two parts). Let public coins, or positions, assign each
record to training or to scoring. A trial fits a model to the records for training, and then
releases a score of it on the records for scoring, with noise. Neighbours differ in one record.

*In training*: the model is the output of a mechanism that has the divergences of the fit. The score
is computed from the model and from records that both neighbours share, so that model and score
together are a postprocessing of the model: no divergence grows. *In scoring*: the model has one
distribution for both neighbours, and given the model the score is a Gaussian mechanism, whatever
the model is. So the divergences of the pair are an average over models of the divergences of the
Gaussian mechanism.

Hence every Renyi divergence of a trial, and every hockey-stick divergence, is at most the larger
of the divergence of the fit and the divergence of the score. It is at most the divergence of one
event which is above both. For fits of Gaussian noise on all records this event is the Gaussian
mechanism of the same mu, exactly; for fits on Poisson batches, inside a search, it is the fit, with
a score whose Gaussian mechanism is below it at every order that the accountant uses. Several trials
on one split are likewise the larger of two compositions: of all fits, and of all scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from dpsubspace._core.accounting.budget import (
    LEAST_EPSILON,
    Budget,
    Part,
    SmallShareError,
    Target,
    share_of_parts,
)
from dpsubspace._core.accounting.cost import (
    Cost,
    excess_over,
    gaussian_epsilon,
    gaussian_sq_mu,
    least_sq_mu,
    search_multiplier,
    search_scale,
)
from dpsubspace._core.accounting.events import (
    composed,
    doubling,
    gaussian,
    is_free,
    non_private,
    private_search,
)
from dpsubspace._core.fits.composites import private_nodes, private_parts
from dpsubspace._core.fits.estimator import named_parameters
from dpsubspace._core.ground.checks import changed_in, shown
from dpsubspace._core.ground.compat import has_callbacks
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# Parameters that the search itself sets in every candidate.
REFUSED = ("epsilon", "delta", "noise_multiplier", "neighboring_relation", "random_state")

# Settings of Pipelines and ColumnTransformers in every candidate. Nothing is printed of a trial,
# and all of it runs in one thread, since other threads would not know that it is paid for, and a
# ledger around the search would count the trials.
_QUIET = {"verbose": False, "n_jobs": 1}


# Candidates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Fit that trials may run: a model with the parameters of one candidate, and a budget."""

    params: Mapping[str, Any]  # Parameters that define the candidate, or its name
    estimator: Any  # Estimator with these parameters, not fitted
    sizes: Mapping[str, Any]  # Public sizes of the rows that it will be fitted to

    @classmethod
    def of(
        cls, estimator: Any, params: Mapping[str, Any], target: Target, sizes: Mapping[str, Any]
    ) -> Candidate:
        for name in params:
            if name.split("__")[-1] in REFUSED:
                raise ValueError(
                    f"candidates must not set {name!r}, which the search sets itself: all of them"
                    " cost the same. Give `epsilon`, `delta`, `neighboring_relation` and"
                    " `random_state` to the search."
                )
        # Values that are estimators are fitted later, and must not be shared between trials.
        values = {name: clone(value, safe=False) for name, value in params.items()}
        model: Any = clone(estimator)
        with named_parameters(model, values):
            model.set_params(**values)
        if has_callbacks(model):
            raise ValueError(
                "a candidate has callbacks, which would be called in every trial and so reveal how"
                " many there were: take them off with set_callbacks()."
            )
        for name, part in private_parts(model):
            if part._joint:
                raise ValueError(
                    f"{type(part).__name__} has models that belong to single persons, which a"
                    " search cannot compare on other persons."
                )
            if changed := changed_in(part, answers=True):
                raise ValueError(
                    f"{type(part).__name__} has a {changed[0]!r} of its own, and what it says of a"
                    " held-out row might depend on others: search with the class that it is made"
                    " from, and set the best parameters of that."
                )
            if getattr(part._whole, "epsilon", None) is None:
                raise ValueError(
                    f"{name} has no `epsilon` that the search could set: give one in the place of"
                    " its noise multiplier."
                )
            _check_one_budget(name, part, target)
            part._set_whole(neighboring_relation=target.neighboring_relation)
        if getattr(model, "memory", None) is not None:
            raise ValueError(
                "`memory` would give later trials what an earlier one has released: leave it None."
            )
        names = [(name, name.split("__")[-1]) for name in model.get_params()]
        model.set_params(**{name: _QUIET[last] for name, last in names if last in _QUIET})
        return cls(params, model, sizes)

    def plan(self, part: Any) -> DpEvent:
        return part.privacy_event(**{**self.sizes, "n_features": self.columns_of(part)})

    def columns_of(self, part: Any) -> int | None:
        whole = {id(node.model) for node in private_nodes(self.estimator) if node.whole}
        return self.sizes["n_features"] if id(part) in whole else None

    @property
    def paying(self) -> list[tuple[Any, DpEvent]]:
        """Parts that release something, with the event of each."""
        planned = [(part, self.plan(part)) for _, part in private_parts(self.estimator)]
        return [(part, event) for part, event in planned if not is_free(event)]

    @property
    def event(self) -> DpEvent:
        return composed(event for _, event in self.paying)

    def set_budget(self, epsilon: float, delta: float) -> DpEvent:
        parts = [part for part, _ in self.paying]
        share_of_parts(parts, self.plan, epsilon=epsilon, delta=delta)
        return self.event


def _check_one_budget(name: str, part: Any, target: Target) -> None:
    """Raise ValueError if a private part sets something that holds for the whole search."""
    for of_budget, default in (("delta", "auto"), ("neighboring_relation", "zero_out")):
        own, whole = getattr(part._whole, of_budget), getattr(target, of_budget)
        if own not in (default, whole):
            raise ValueError(
                f"{name} has {of_budget}={shown(own)}, and the search {shown(whole)}, which holds"
                f" for all that is fitted in it: give `{of_budget}` to the search alone."
            )


# Budgets of a search ----------------------------------------------------------------------------

# Largest number of candidates on batches with which all of them are fitted.
_FEW = 3

# Share of mu^2 of a score that is composed with fits on batches.
_SCORE_SHARE = 0.1

# This share of mu^2 is not used, so that rounding in calibrations stays below it.
_SPARE = 1e-9

# Part of epsilon that a search over fits on batches may leave unused.
_TOLERANCE = 2e-3

# Largest factor by which one step lowers the epsilon of a candidate until it is below the base,
# and the most steps.
_LOWER, _MOST_TIMES = 0.995, 40


@dataclass(frozen=True)
class SearchBudget:
    """Cost of all trials together, and the budget of each trial."""

    event: DpEvent  # Event of all trials
    all: bool  # Whether each candidate is fitted once; otherwise the number of trials is hidden
    multiplier: float  # Noise multiplier of a score on private records
    candidates: Sequence[Candidate]  # With budgets set

    def score_budget(self, target: Target, shares: Mapping[str, float]) -> Budget:
        """Return the budget of a score whose releases have these shares of mu^2, 1 in all."""
        event = gaussian(self.multiplier) if target.private else non_private()
        scales = {name: self.multiplier / math.sqrt(share) for name, share in shares.items()}
        parts = {name: Part(share) for name, share in shares.items()}
        return Budget(target, parts, scales, event, target.private)

    def budget(self, target: Target) -> Budget:
        return replace(self.score_budget(target, {"score": 1.0}), event=self.event)


def _batches(candidate: Candidate) -> list[int]:
    parts = [part for _, part in private_parts(candidate.estimator)]
    sizes = [getattr(part, "batch_size", None) for part in parts]
    return [int(size) for size in sizes if size is not None]


@dataclass(frozen=True)
class SearchTerms:
    """Allowed cost of a search by public sizes, and how its candidates are to be tried."""

    target: Target
    n_samples: int | None
    method: str
    n_trials: float
    scored: bool  # Whether private records are scored

    @property
    def delta(self) -> float:
        return self.target.delta_at(self.n_samples)

    @property
    def relation(self) -> str:
        return self.target.neighboring_relation

    @property
    def epsilon(self) -> float:
        return float(self.target.epsilon or 0.0)

    def budget(self, candidates: Sequence[Candidate]) -> SearchBudget:
        """Share the budget; raise ValueError if a candidate would get too little."""
        if not self.target.private:
            for candidate in candidates:
                candidate.set_budget(math.inf, self.delta)
            whole = self.method == "all" or (self.method == "auto" and len(candidates) <= _FEW)
            return SearchBudget(non_private(), whole, 0.0, candidates)
        try:
            return self.among(candidates)
        except SmallShareError:
            enough = self.enough_for(candidates)
        raise ValueError(
            f"`epsilon`={self.epsilon:.4g} is too small to be shared among {len(candidates)}"
            f" candidates and their scores: each fit needs {LEAST_EPSILON:g} or more. An epsilon of"
            f" {enough:.4g} is enough."
        )

    def among(self, candidates: Sequence[Candidate]) -> SearchBudget:
        """Return budgets of all candidates; SmallShareError if one of them would be too small."""
        if any(_batches(candidate) for candidate in candidates):
            return self.on_batches(candidates)
        return self.on_all_records(candidates)

    def enough_for(self, candidates: Sequence[Candidate]) -> float:
        """Find an epsilon that leaves no part too small, by doubling."""
        larger = replace(self, target=replace(self.target, epsilon=2 * self.epsilon))
        try:
            larger.among(candidates)
        except (SmallShareError, PrivacyBudgetError):
            return larger.enough_for(candidates)
        return larger.epsilon

    # Gaussian noise on all records ------------------------------------------------------------

    def on_all_records(self, candidates: Sequence[Candidate]) -> SearchBudget:
        """Fits that all have one mu, and scores of the same mu."""
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
            cost = Cost.of(event, self.relation).sq_mu()
            if cost is None:
                raise PrivacyError(
                    "a candidate releases something without Gaussian noise, by an exponential"
                    " mechanism, say: a search can be counted over Gaussian noise only."
                )
            if not cost <= sq_mu:
                raise RuntimeError(f"a candidate costs mu^2={cost!r}, more than {sq_mu!r}.")
        event = gaussian(once) if whole else private_search(gaussian(multiplier), self.n_trials)
        return SearchBudget(event, whole, multiplier, candidates)

    # Batches ----------------------------------------------------------------------------------

    def on_batches(self, candidates: Sequence[Candidate]) -> SearchBudget:
        """Fits below the Renyi curve of one of them, or all fits one after another."""
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
        base = candidates[rates.index(min(rates))]  # its curve rises most: other fits stay below it

        def search(log_scale: float) -> DpEvent:
            event = base.set_budget(self.epsilon * math.exp(log_scale), self.delta)
            return private_search(event, self.n_trials)

        def cost_at(log_scale: float) -> Cost:
            return Cost.of(search(log_scale), self.relation)

        found = search_scale(cost_at, self.epsilon, self.delta, _TOLERANCE)
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
                    "candidates on batches differ so much that no common bound on their cost was"
                    " found: give them one batch_size and n_iter, or batch_size=None."
                )
        return SearchBudget(private_search(event, self.n_trials), False, sq_mu**-0.5, candidates)

    def _one_after_another(self, candidates: Sequence[Candidate]) -> SearchBudget:
        score = _Score(self.relation, len(candidates))
        parts, plans, weights = [], {}, []
        for candidate in candidates:
            own = [part for part, _ in candidate.paying]
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
        return SearchBudget(event, True, score.multiplier, candidates)


def _check_steps(candidate: Candidate) -> None:
    for part, _ in candidate.paying:
        unknown = candidate.columns_of(part) is None
        if unknown and getattr(part, "batch_size", None) and part.n_iter == "auto":
            raise ValueError(
                "n_iter='auto' depends on how many columns a step gets, and the cost of batches on"
                " the number of steps: set `n_iter` of the step that has a `batch_size`."
            )


class _Score:
    def __init__(self, neighboring_relation: str, count: int):
        self.neighboring_relation = neighboring_relation
        self.count = count
        self.epsilon, self.delta = 1.0, 1e-5

    def get_params(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta}

    def set_params(self, **params: Any) -> None:
        vars(self).update(params)

    _set_whole = set_params

    @property
    def _whole(self) -> _Score:
        return self

    @property
    def multiplier(self) -> float:
        sq_mu = gaussian_sq_mu(self.epsilon, self.delta) / self.count
        return doubling(self.neighboring_relation) / math.sqrt(sq_mu)

    def plan(self, part: _Score) -> DpEvent:
        return gaussian(part.multiplier, part.count)
