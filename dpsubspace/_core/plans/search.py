"""The plan of a private search: trials of candidates, and the scores that decide among them.

Where to check the privacy claim: :meth:`SearchPlan.run` is the whole fit. It releases nothing by
itself: each trial fits a candidate and releases a score (:class:`TrialScorePlan`), each with an
account of its own, and all of them have been paid for as one search. What they may cost together,
and why a trial costs the larger of its two parts, stands in ``_core/plans/search_budget.py``, where
``SearchTerms.budget`` makes the event. Noise of scores is added in ``_core/release/mechanisms.py``.
How far a record moves a score is bounded in ``_core/statistics/score_cells.py``, by the functions
that ``_core/plans/search_criteria.py`` names.
The number of trials is drawn, and hidden, by ``draw_trials`` in ``_core/release/releases.py``.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from dpsubspace._core.accounting.budget import Budget, Sizes, Target
from dpsubspace._core.accounting.payer import already_paid, inside_ledger, only_once
from dpsubspace._core.fits.call import refuse_moving_steps
from dpsubspace._core.fits.composites import opened, predictor, private_parts
from dpsubspace._core.fits.estimator import FunctionPlan, Plan, run_privately
from dpsubspace._core.fits.outputs import by_record, taken
from dpsubspace._core.plans.search_budget import Candidate, SearchTerms
from dpsubspace._core.plans.search_criteria import Criterion, OfAreas
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.release.releases import Releases, draw_trials
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records, groups_of_rows
from dpsubspace.exceptions import PrivacyError

# Rows and scores --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowScorer:
    """Scores that a scoring gives a model on some rows: nothing that it does is released."""

    model: Any
    criterion: Criterion
    delta: float
    by_row: bool  # Whether each row is a record

    def __call__(self, X: Any, y: Any) -> np.ndarray:
        """Return what each row says, which is the worst where the row cannot be scored."""
        found = self._values(X, y)
        if found is None and self.by_row:
            found = self._of_those_that_can(X, y)
        return self.criterion.worst(y) if found is None else found

    def _of_those_that_can(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Scores where some rows raise an error, which must not change the scores of other rows.

        Each row that raises is replaced by a copy of a row that does not. So all other rows are
        shown in one call, as many together and each at its place, as if none had raised. BLAS
        rounds the product of a row depending on these two, and so a score may be rounded.
        """
        each = [self._values(taken(X, np.array([i])), y[[i]]) for i in range(len(y))]
        fine = np.array([one is not None for one in each])
        shown = np.where(fine, np.arange(len(y)), np.argmax(fine))
        found, worst = self._values(taken(X, shown), y[shown]), self.criterion.worst(y)
        if found is None:  # the scoring compares rows, and has no scores of all together
            rows = zip(each, worst, strict=True)
            found = np.array([least if one is None else one[0] for one, least in rows])
        return np.where(fine.reshape(-1, *[1] * (found.ndim - 1)), found, worst)

    def _values(self, X: Any, y: np.ndarray) -> np.ndarray | None:
        try:
            with inside_ledger(self.delta, _refused):
                found = self.criterion.says(self.model, X, y)
        except Exception:
            return None
        return found if found.shape == self.criterion.worst(y).shape else None


def _refused(guarantee: Any) -> None:
    """Raise PrivacyError: a scoring has no budget to release anything beside the score itself."""
    raise PrivacyError("a `scoring` must not fit or release anything.")


@dataclass(frozen=True)
class TrialRows:
    """Rows of all trials."""

    # Arguments of ``fit``: "X", "y", "groups", "X_public" and "y_public".
    train: Mapping[str, Any]
    X: Any  # Rows and targets to score
    y: Any
    # Privacy units of the rows to score; None if these are public, and their mean has no noise.
    records: Records | None
    unit: str  # Name of a record

    def said(self, says: RowScorer | None, criterion: Criterion) -> np.ndarray:
        """Return what each row to score says; the worst if `says` is None."""
        if says is None:
            return criterion.worst(self.y)
        records = Records.of_rows(len(self.y)) if self.records is None else self.records
        return by_record(self.X, records, lambda X, some: {"": says(X, self.y[some])})[""]


# Trials -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialScorePlan(FunctionPlan):
    """The score of one trial on private rows, of sums over records.

    A criterion that needs two releases has them share mu^2: one Gaussian mechanism after another
    is together one of the mu whose square is the sum of theirs, also where the second depends on
    what the first released (Dong, Roth, Su, 2022, Corollary 3.3). That is what the trial has paid.
    """

    name: ClassVar[str] = "PrivateSearch"

    paid: Budget  # Budget that the search has paid for the score
    criterion: Criterion

    def budget(self, n_samples: int) -> Budget:
        return self.paid

    def run(self, ready: Any, records: Records, releases: Releases) -> float:
        (values, y), criterion, edges = ready, self.criterion, None
        if isinstance(criterion, OfAreas):
            fine = criterion.fine(values, records)
            counts = releases.gaussian("edges", fine)
            edges = criterion.edges(counts, records.n, releases.noise_of("edges", fine))
        total = criterion.total(values, y, records, edges)
        released, noise = releases.gaussian("score", total), releases.noise_of("score", total)
        return criterion.score(np.asarray(released), records.n, noise, edges)


def given_to(model: Any, train: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a fit beside `X` and `y`; ValueError if something could not be passed on."""
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


@dataclass(frozen=True)
class Trial:
    """A fit of one candidate, and the release of its score."""

    candidate: Candidate  # Candidate to fit, with its budget
    seed: int | None  # Source of the seeds of the private parts; None for secure noise
    score: Budget | None  # Budget for the release of the score; None for public rows
    noise: NoiseSource  # Noise of the score
    delta: float  # Value of ``delta="auto"``

    def run(self, rows: TrialRows, criterion: Criterion) -> tuple[float, Any]:
        """Fit, and return the score, with noise if the score is private, and the model or None.

        Warnings, errors or printed text of a trial might reveal how many trials there were, so none
        of them gets out; a trial without a model has the score of one that is always wrong. The
        only error raised here means that Dask has run a trial twice: the search has paid for each
        once.
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
                says = RowScorer(model, criterion, self.delta, by_row)
            values = rows.said(says, criterion)
            if records is None:
                return criterion.exact(values, rows.y), model
            assert self.score is not None
            kind = (self.score.target.neighboring_relation, records.unit)
            with already_paid(self.delta, [self.score.event], kind):
                plan, width = TrialScorePlan(self.score, criterion), rows.X.shape[1]
                said = (values, rows.y)
                return run_privately(plan, said, records, width, self.noise)[0], model

    @property
    def _private(self) -> bool:
        parts = [part for _, part in private_parts(self.candidate.estimator)]
        return any(part._whole.epsilon < math.inf for part in parts)

    def _fitted(self, rows: TrialRows) -> Any:
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


# The search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchData(Data):
    """Checked rows of a search, and how its trials divide them. Nothing is public yet."""

    trial_rows: Any = None  # TrialRows


class TrialResult(NamedTuple):
    """Result of a trial; there is no model if something went wrong."""

    model: Any
    params: Mapping[str, Any]
    score: float


class Tried(NamedTuple):
    """A model with parameters that trials may fit, and what is told of it if it is the best."""

    estimator: Any
    params: Mapping[str, Any]
    told: Mapping[str, Any]


@dataclass(frozen=True)
class SearchPlan(Plan):
    """Trials of candidates, of which only the best is revealed."""

    target: Target
    tried: Sequence[Tried]
    method: str
    n_trials: float
    fraction: float | None  # Share of records to score; None to score on public rows
    criterion: Criterion
    n_jobs: int | None
    public_val: tuple[Any, Any] = (None, None)  # Public rows and targets to score on
    labels: list[Any] | None = None  # Labels, one of which training rows may lack
    shared: Any = None  # SearchBudget, where public sizes are known

    def data(
        self, X: Any, y: np.ndarray, n_outputs: int, records: Records, train: Mapping[str, Any]
    ) -> SearchData:
        """Rows as trials get them; ValueError if candidates do not accept what is passed."""
        trial_rows = self.rows(X, y, records, train)
        for estimator in {id(each.estimator): each.estimator for each in self.tried}.values():
            given_to(estimator, trial_rows.train)
        return SearchData(X, y, n_outputs, records, trial_rows=trial_rows)

    def rows(self, X: Any, y: np.ndarray, records: Records, train: Mapping[str, Any]) -> TrialRows:
        """Rows to train on and rows to score, by public coins on the positions of records."""
        known = [value is not None for value in self.public_val]
        if self.fraction is None:
            if not all(known):
                raise ValueError(
                    "validation_fraction=None scores on public rows: pass `X_public_val` and"
                    " `y_public_val`."
                )
            X_val, y_val = (v[0] if isinstance(v, tuple) else v for v in self.public_val)
            of_fit = {"X": X, "y": y, **train}
            return TrialRows(of_fit, X_val, np.asarray(y_val), None, records.unit)
        if any(known):
            raise ValueError("`X_public_val` needs validation_fraction=None.")
        if records.grouped and self.target.neighboring_relation == "replace_one":
            raise ValueError(
                "neighboring_relation='replace_one' and `groups` need public rows to score on: set"
                " validation_fraction=None, since a person of another name would move others from"
                " training to scoring."
            )
        order = np.random.default_rng(0).permutation(records.n)
        held = np.sort(order[: self._held_out(records.n)])
        scored = np.zeros(records.n, dtype=bool)
        scored[held] = True
        scored = scored if records.index is None else scored[records.index]
        rows, fitted = np.flatnonzero(scored), np.flatnonzero(~scored)
        groups = groups_of_rows(train["groups"], fitted)
        of_fit = {**train, "groups": groups, "X": taken(X, fitted), "y": y[fitted]}
        return TrialRows(of_fit, taken(X, rows), y[rows], records.taken(held), records.unit)

    def _held_out(self, n: int) -> int:
        if self.fraction is None:
            return 0
        held_out = max(1, round(self.fraction * n))
        if held_out >= n:
            raise ValueError(
                f"validation_fraction={self.fraction:g} of {n} records leaves none to train on."
            )
        return held_out

    def sizes(self, data: Any) -> Sizes:
        train = data.trial_rows.train
        n_public, labelled = int(train["X_public"] is not None), train["y_public"] is not None
        return replace(super().sizes(data), n_public=n_public, labelled=labelled)

    def resolved(self, sizes: Sizes) -> Self:
        n = sizes.n_samples
        of_fits = vars(replace(sizes, n_samples=None if n is None else n - self._held_out(n)))
        of_fits = {name: size for name, size in of_fits.items() if name != "persons"}
        candidates = [
            replace(Candidate.of(model, params, self.target, of_fits), params=told)
            for model, params, told in self.tried
        ]
        for candidate in candidates if self.labels is not None else ():
            last = predictor(candidate.estimator, fitted=False)
            last.set_params(**({"classes": self.labels} if hasattr(last, "classes") else {}))
        scored = self.fraction is not None
        terms = SearchTerms(self.target, n, self.method, self.n_trials, scored)
        shared = terms.budget(candidates)
        for candidate in candidates if sizes.persons else ():
            refuse_moving_steps("the last step", candidate.estimator)
        return replace(self, shared=shared)

    def budget(self, sizes: Sizes) -> Budget:
        return self.shared.budget(self.target)

    def run(
        self, ready: SearchData, releases: Releases, rng: Any, after_step: Callable
    ) -> TrialResult:
        """Run all trials, and keep the first of those with the largest score.

        Trials are independent and of one distribution, so that keeping the first is drawing one.
        """
        trials = self._trials(releases, self.target.delta_at(ready.records.n))
        with warnings.catch_warnings():
            # Filters are set around all trials as well: threads that leave filters of their own
            # restore those of other threads, in any order.
            warnings.simplefilter("ignore")
            best = max(self._ran(trials, ready.trial_rows), key=lambda found: found.score)
        if best.model is None:
            raise RuntimeError(
                "the best trial has no model, and the budget is spent. The error is not shown,"
                " because it might reveal something about rows: fit the candidates to public or"
                " made-up rows to see it."
            )
        return best._replace(score=self.criterion.told(best.score))

    def _trials(self, releases: Releases, delta: float) -> list[Trial]:
        """Return all trials: each candidate once, or a number of trials that must stay hidden."""
        candidates, trials = self.shared.candidates, []
        drawn: Iterable[int] = range(len(candidates))
        if not self.shared.all:
            drawn = draw_trials(releases.noise_within("trials"), self.n_trials, len(candidates))
        score = (
            None
            if self.fraction is None
            else self.shared.score_budget(self.target, self.criterion.shares)
        )
        for i, chosen in enumerate(drawn):
            of_fit, of_score = (releases.noise_within(f"{name} {i}") for name in ("fit", "score"))
            seed = None if of_fit.secure else int(of_fit.public().integers(2**31))
            trials.append(Trial(candidates[chosen], seed, score, of_score, delta))
        return trials

    def _ran(self, trials: Sequence[Trial], rows: TrialRows) -> Iterator[TrialResult]:
        """Yield results of trials; run one after another, their models are never all in memory."""
        n_jobs: Any = self.n_jobs
        if effective_n_jobs(n_jobs) == 1:
            found: Iterable[Any] = (trial.run(rows, self.criterion) for trial in trials)
        else:  # nothing is printed, whatever a configuration asks for: it would count the trials
            parallel: Any = Parallel(n_jobs=n_jobs, verbose=0)
            found = parallel(delayed(trial.run)(rows, self.criterion) for trial in trials)
        for trial, (score, model) in zip(trials, found, strict=True):
            yield TrialResult(model, trial.candidate.params, score)
