"""One trial of a private search: a candidate with its budget, a fit, and a score with noise."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from dpsubspace._accounting.budget import Budget, Target
from dpsubspace._accounting.events import composed, is_free
from dpsubspace._accounting.permission import already_paid, inside_ledger
from dpsubspace._accounting.repeats import only_once
from dpsubspace._checks import shown
from dpsubspace._compat import has_callbacks
from dpsubspace._estimators.base import named_parameters
from dpsubspace._estimators.model_outputs import by_record, taken
from dpsubspace._estimators.personal import PersonalizedLinearRegression
from dpsubspace._release.noise import NoiseSource
from dpsubspace._release.releases import Releases
from dpsubspace._rows.records import PERSON, ROW, Records
from dpsubspace._statistics.scores import score_total
from dpsubspace._workflow.pipelines import private_parts
from dpsubspace._workflow.planner import intact_parts, share_of_parts
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Candidate", "Rows", "Trial", "given_to", "scoring_of"]

# What the search itself sets in every candidate.
REFUSED = ("epsilon", "delta", "noise_multiplier", "neighboring_relation", "random_state")

# What Pipelines and ColumnTransformers have for it in every candidate: nothing is printed of a
# trial, and all of it runs in one thread, since other threads would not know that it is paid for,
# and a ledger around the search would count the trials.
_QUIET = {"verbose": False, "n_jobs": 1}

# Candidates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """An estimator with the parameters of one candidate, whose budget can be set.

    Parameters
    ----------
    params : dict
        Parameters that make the candidate.
    estimator : estimator or Pipeline
        With these parameters, not fitted.
    sizes : dict
        Public sizes of the rows that it will be fitted to.
    """

    params: Mapping[str, Any]
    estimator: Any
    sizes: Mapping[str, Any]

    @classmethod
    def of(
        cls, estimator: Any, params: Mapping[str, Any], target: Target, sizes: Mapping[str, Any]
    ) -> Candidate:
        """Candidate of some parameters; ValueError or PrivacyError for one that cannot be."""
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
                "a candidate has callbacks, which would be called in every trial and so tell how"
                " many there were: take them off with set_callbacks()."
            )
        for name, part in private_parts(model):
            if isinstance(part, PersonalizedLinearRegression):
                raise ValueError(
                    "PersonalizedLinearRegression has models that belong to single persons, which a"
                    " search cannot compare on other persons."
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
        """What the fit of a private part costs."""
        return part.privacy_event(**{**self.sizes, "n_features": self.columns_of(part)})

    def columns_of(self, part: Any) -> int | None:
        """Number of columns that a private part gets, where that is known before the data are."""
        return self.sizes["n_features"] if id(part) in intact_parts(self.estimator) else None

    @property
    def paying(self) -> list[Any]:
        """Private parts that release something."""
        parts = [part for _, part in private_parts(self.estimator)]
        return [part for part in parts if not is_free(self.plan(part))]

    @property
    def event(self) -> DpEvent:
        """What a fit costs with the budget that it has."""
        return composed(self.plan(part) for part in self.paying)

    def set_budget(self, epsilon: float, delta: float) -> DpEvent:
        """Let a fit cost `epsilon` at `delta`, in the parts' own ratio, and say what it costs."""
        share_of_parts(self.paying, self.plan, epsilon=epsilon, delta=delta)
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


# Rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows to fit and rows to score, which belong to different records.

    Parameters
    ----------
    train : dict
        What is passed to ``fit``: "X", "y", "groups", "X_public", "y_public" and, in tests,
        "present", each where it is given.
    X, y : array
        Rows and targets to score.
    records : Records or None
        Whose those rows are; None where they are public, and their mean is not noisy.
    """

    train: Mapping[str, Any]
    X: Any
    y: Any
    records: Records | None


def scoring_of(scoring: Any, estimator: Any, target_bounds: Any) -> Callable[..., Any]:
    """What a row says of a model: a function of a model, rows and targets."""
    if callable(scoring):
        return scoring
    if not is_regressor(estimator):
        return _right
    return _Close(*(np.asarray(end, dtype=np.float64) for end in target_bounds))


def _right(model: Any, X: Any, y: Any) -> np.ndarray:
    """Whether each row is predicted right."""
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
    """Arguments of ``fit`` of a model beside rows and targets, as scikit-learn takes them."""
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
    inside = any(type(step) is ColumnTransformer for _, step in model.steps)
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
class Trial:
    """All that one trial needs, so that it can run in another thread or process.

    Parameters
    ----------
    candidate : Candidate
        What is fitted, with its budget.
    seed : int or None
        What seeds of the private parts are made of; None for secure noise.
    score : Budget or None
        What the release of the score may be; None for public rows.
    noise : NoiseSource
        Noise of the score.
    delta : float
        What ``delta="auto"`` stands for.
    """

    candidate: Candidate
    seed: int | None
    score: Budget | None
    noise: NoiseSource
    delta: float

    def run(self, rows: Rows, scoring: Callable[..., Any]) -> tuple[float, Any]:
        """Fit, and return the score, with noise if that is private, and the model or None.

        What is warned of, raised or printed by a trial might tell how many there were, so nothing
        is; a trial without a model has the score of one that is always wrong. What is raised here
        tells of Dask alone: the search has paid for each trial once.
        """
        if self._private:
            only_once()
        paying = self.candidate.paying
        planned = [self.candidate.plan(part) for part in paying]
        relation = paying[0]._whole.neighboring_relation if paying else ""
        kind = (relation, ROW if rows.train.get("groups") is None else PERSON)
        with warnings.catch_warnings(), already_paid(self.delta, planned, kind):
            warnings.simplefilter("ignore")
            model, values = self._fitted(rows), np.zeros(len(rows.y))
            if model is not None:
                values = self._values(model, rows, scoring)
            if rows.records is None:
                return float(np.nan_to_num(np.clip(values, 0.0, 1.0)).mean()), model
            assert self.score is not None
            total = score_total(values, rows.records)
            releases = Releases(self.score, self.noise)
            return float(releases.gaussian("score", total)[0]) / rows.records.n, model

    @property
    def _private(self) -> bool:
        """Whether any part adds noise."""
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
            if rows.train.get("present") is not None:  # tests of neighbours alone
                given["present"] = rows.train["present"]
                return model._fit(rows.train["X"], rows.train["y"], **given)
            return model.fit(rows.train["X"], rows.train["y"], **given)
        except Exception:
            return None

    def _values(self, model: Any, rows: Rows, scoring: Callable[..., Any]) -> np.ndarray:
        by_row = rows.records is not None and not rows.records.grouped

        def values(X: Any, y: np.ndarray) -> np.ndarray | None:
            try:
                with inside_ledger(self.delta, _refused):
                    found = np.asarray(scoring(model, X, y), dtype=np.float64)
            except Exception:
                return None
            return found if found.shape == (len(y),) else None

        def says(X: Any, some: Any) -> dict[str, np.ndarray]:
            y = rows.y[some]
            found = values(X, y)
            if found is None and by_row:  # what one row raises must change the scores of no others
                each = [values(taken(X, np.array([i])), y[[i]]) for i in range(len(y))]
                found = np.array([0.0 if one is None else one[0] for one in each])
            return {"": np.zeros(len(y)) if found is None else found}

        records = Records.of_rows(len(rows.y)) if rows.records is None else rows.records
        return by_record(rows.X, records, says)[""]


def _refused(guarantee: Any) -> None:
    """What scores a model has no budget to release anything: only the score itself was paid for."""
    raise PrivacyError("a `scoring` must not fit or release anything.")
