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

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

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
from dpsubspace._core.accounting.permission import already_paid, inside_ledger, only_once
from dpsubspace._core.fits.composites import opened, private_nodes, private_parts
from dpsubspace._core.fits.estimator import PrivateCall, named_parameters
from dpsubspace._core.fits.outputs import by_record, taken
from dpsubspace._core.ground.checks import changed_in, shown
from dpsubspace._core.ground.compat import has_callbacks
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import score_total
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# Trials -----------------------------------------------------------------------------------------
# One trial of a private search: a candidate with its budget, a fit, and a score with noise.

# What the search itself sets in every candidate.
REFUSED = ("epsilon", "delta", "noise_multiplier", "neighboring_relation", "random_state")

# What Pipelines and ColumnTransformers have for it in every candidate: nothing is printed of a
# trial, and all of it runs in one thread, since other threads would not know that it is paid for,
# and a ledger around the search would count the trials.
_QUIET = {"verbose": False, "n_jobs": 1}

# Candidates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    params: Mapping[str, Any]  # Parameters that make the candidate
    estimator: Any  # With these parameters, not fitted
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
    """ValueError where a private part was given something that holds for the whole search."""
    for of_budget, default in (("delta", "auto"), ("neighboring_relation", "zero_out")):
        own, whole = getattr(part._whole, of_budget), getattr(target, of_budget)
        if own not in (default, whole):
            raise ValueError(
                f"{name} has {of_budget}={shown(own)}, and the search {shown(whole)}, which holds"
                f" for all that is fitted in it: give `{of_budget}` to the search alone."
            )


# Scores ----------------------------------------------------------------------------------------


def scoring_of(scoring: Any, estimator: Any, target_bounds: Any) -> Callable[..., Any]:
    if callable(scoring):
        return scoring
    if not is_regressor(estimator):
        return _right
    return _Close(*(np.asarray(end, dtype=np.float64) for end in target_bounds))


def _right(model: Any, X: Any, y: Any) -> np.ndarray:
    return np.asarray(model.predict(X)) == np.asarray(y)


@dataclass(frozen=True)
class _Close:
    """How near the prediction of each row is, in halves of the range of the targets."""

    low: np.ndarray
    high: np.ndarray

    def __call__(self, model: Any, X: Any, y: Any) -> np.ndarray:
        found, y = (np.clip(each, self.low, self.high) for each in (model.predict(X), y))
        off = np.minimum(
            1.0, np.abs(found - np.reshape(y, found.shape)) * 2 / (self.high - self.low)
        )
        return 1.0 - (off if off.ndim == 1 else off.mean(axis=1))


def given_to(model: Any, train: Mapping[str, Any]) -> dict[str, Any]:
    given = {k: v for k, v in train.items() if k not in ("X", "y") and v is not None}
    if type(model) is not Pipeline:
        taken = inspect.signature(model.fit).parameters
        if unknown := sorted({"X_public", "y_public"} & {*given} - {*taken}):
            raise ValueError(
                f"{type(model).__name__} takes no `{unknown[0]}`: leave it out, or search over an"
                " estimator that learns from public rows, such as GEPClassifier."
            )
        return {k: v for k, v in given.items() if k in taken}
    if not given or get_config()["enable_metadata_routing"]:
        return given
    inside = any(type(step.model) is ColumnTransformer for step in opened(model).inside)
    if {*given} - {"groups"} or inside:
        raise ValueError(
            f"{', '.join(sorted(given))} of a Pipeline must reach its steps, transformed by those"
            " before: switch on sklearn.set_config(enable_metadata_routing=True), and make the"
            " Pipeline with transform_input=['X_public'] where it has public rows."
        )
    steps = [name for name, _ in private_parts(model)]
    return {f"{name}__groups": given["groups"] for name in steps}


# Trials -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Says:
    """What a scoring says of a model by some rows: nothing that it does is released."""

    model: Any
    scoring: Callable[..., Any]
    delta: float
    by_row: bool  # Whether each row is a record

    def __call__(self, X: Any, y: Any) -> np.ndarray:
        """One number a row, which is 0 where nothing can be said of it."""
        found = self._values(X, y)
        if found is None and self.by_row:
            found = self._of_those_that_can(X, y)
        return np.zeros(len(y)) if found is None else found

    def _of_those_that_can(self, X: Any, y: np.ndarray) -> np.ndarray:
        """The same where some rows raise, which must change the scores of no others.

        A copy of a row that does not raise is shown in the place of each of these. So all others
        are shown in one call, as many together and each at its place, as if none had raised:
        BLAS rounds the product of a row by these, and so may a score be rounded.
        """
        each = [self._values(taken(X, np.array([i])), y[[i]]) for i in range(len(y))]
        fine = np.array([one is not None for one in each])
        shown = np.where(fine, np.arange(len(y)), np.argmax(fine))
        found = self._values(taken(X, shown), y[shown])
        if found is None:  # it compares rows, and has no say of any
            found = np.array([0.0 if one is None else one[0] for one in each])
        return np.where(fine, found, 0.0)

    def _values(self, X: Any, y: np.ndarray) -> np.ndarray | None:
        try:
            with inside_ledger(self.delta, _refused):
                found = np.asarray(self.scoring(self.model, X, y), dtype=np.float64)
        except Exception:
            return None
        return found if found.shape == (len(y),) else None


def _refused(guarantee: Any) -> None:
    """What scores a model has no budget to release anything: only the score itself was paid for."""
    raise PrivacyError("a `scoring` must not fit or release anything.")


@dataclass(frozen=True)
class Rows:
    """Rows of all trials."""

    # What is passed to ``fit``: "X", "y", "groups", "X_public" and "y_public".
    train: Mapping[str, Any]
    X: Any  # Rows and targets to score
    y: Any
    # Whose those rows are; None where they are public, and their mean is not noisy.
    records: Records | None
    unit: str  # What a record is called

    def said(self, says: Says | None) -> np.ndarray:
        """What is said of each row to score, which is 0 by None."""
        if says is None:
            return np.zeros(len(self.y))
        records = Records.of_rows(len(self.y)) if self.records is None else self.records
        return by_record(self.X, records, lambda X, some: {"": says(X, self.y[some])})[""]


@dataclass(frozen=True)
class Trial:
    candidate: Candidate  # What is fitted, with its budget
    seed: int | None  # What seeds of the private parts are made of; None for secure noise
    score: Budget | None  # What the release of the score may be; None for public rows
    noise: NoiseSource  # Noise of the score
    delta: float  # What ``delta="auto"`` stands for

    def run(self, rows: Rows, scoring: Callable[..., Any]) -> tuple[float, Any]:
        """Fit, and return the score, with noise if that is private, and the model or None.

        What is warned of, raised or printed by a trial might tell how many there were, so nothing
        is; a trial without a model has the score of one that is always wrong. What is raised here
        tells alone that Dask has run a trial twice: the search has paid for each once.
        """
        if self._private:
            only_once()
        paying = self.candidate.paying
        planned = [event for _, event in paying]
        relation = paying[0][0]._whole.neighboring_relation if paying else ""
        kind = (relation, rows.unit)
        with warnings.catch_warnings(), already_paid(self.delta, planned, kind):
            warnings.simplefilter("ignore")
            model, says, records = self._fitted(rows), None, rows.records
            if model is not None:
                by_row = records is not None and not records.grouped
                says = Says(model, scoring, self.delta, by_row)
            values = rows.said(says)
            if records is None:
                return float(np.nan_to_num(np.clip(values, 0.0, 1.0)).mean()), model
            assert self.score is not None
            total = score_total(values, records)
            kind = (self.score.target.neighboring_relation, records.unit)
            with already_paid(self.delta, [self.score.event], kind):
                width = rows.X.shape[1]
                call = PrivateCall("PrivateSearch", self.score, self.noise, records, width)
                releases = call.open()
                score = float(releases.gaussian("score", total)[0])
            return score / records.n, model

    @property
    def _private(self) -> bool:
        parts = [part for _, part in private_parts(self.candidate.estimator)]
        return any(part._whole.epsilon < math.inf for part in parts)

    def _fitted(self, rows: Rows) -> Any:
        model: Any = clone(self.candidate.estimator)
        parts = [part for _, part in private_parts(model)]
        seeds = np.random.SeedSequence(self.seed or 0).generate_state(len(parts))
        for part, seed in zip(parts, seeds, strict=True):
            part._set_whole(random_state=None if self.seed is None else int(seed))
        try:
            given = given_to(model, rows.train)
            return model.fit(rows.train["X"], rows.train["y"], **given)
        except Exception:
            return None


# Budgets of a search ----------------------------------------------------------------------------

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
    event: DpEvent  # Of all of it
    all: bool  # Whether each candidate is fitted once; else a hidden number of trials
    multiplier: float  # Noise multiplier of a score on private records
    candidates: Sequence[Candidate]  # With budgets set

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
        try:
            return one.among(candidates)
        except SmallShareError:
            enough = one.enough_for(candidates)
        raise ValueError(
            f"`epsilon`={target.epsilon:.4g} is too small to be shared among {len(candidates)}"
            f" candidates and their scores: each fit needs {LEAST_EPSILON:g} or more. An epsilon of"
            f" {enough:.4g} is enough."
        )

    def score_budget(self, target: Target) -> Budget:
        score = {"score": Part(1.0)}
        return Budget(
            target,
            score,
            {"score": self.multiplier},
            gaussian(self.multiplier) if target.private else non_private(),
            target.private,
        )

    def budget(self, target: Target) -> Budget:
        return replace(self.score_budget(target), event=self.event)


def _batches(candidate: Candidate) -> list[int]:
    parts = [part for _, part in private_parts(candidate.estimator)]
    sizes = [getattr(part, "batch_size", None) for part in parts]
    return [int(size) for size in sizes if size is not None]


@dataclass(frozen=True)
class _Share:
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

    def among(self, candidates: Sequence[Candidate]) -> Spending:
        """Budgets of all candidates; SmallShareError where one of them would be too small."""
        if any(_batches(candidate) for candidate in candidates):
            return self.on_batches(candidates)
        return self.on_all_records(candidates)

    def enough_for(self, candidates: Sequence[Candidate]) -> float:
        """An epsilon of which no part is too small, by doubling."""
        larger = replace(self, target=replace(self.target, epsilon=2 * self.epsilon))
        try:
            larger.among(candidates)
        except (SmallShareError, PrivacyBudgetError):
            return larger.enough_for(candidates)
        return larger.epsilon

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
            cost = Cost.of(event, self.relation).sq_mu()
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
        return Spending(private_search(event, self.n_trials), False, sq_mu**-0.5, candidates)

    def _one_after_another(self, candidates: Sequence[Candidate]) -> Spending:
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
        return Spending(event, True, score.multiplier, candidates)


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
