"""A private fit of personal linear models, from its parameters to the heads, in one place.

Where to check the privacy claim: :meth:`PersonalFit.run` is the whole fit. Its releases are bounded
where ``linear_model/_personal.py`` says.

Design note. A :class:`PersonalFit` holds parameters and nothing else. Its ``run`` releases what all
persons share: location and scale, one linear model, directions in which persons differ from it, and
a prior of their own models. It returns that, a :class:`SharedLinearModel`, and the persons' own
parts, which each person could have found alone from the shared ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from sklearn.utils.validation import column_or_1d

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.fits.saved import SavedModel
from dpsubspace._core.gradients.losses import BesideScores, LogLoss, Loss, Squared, StandardLogLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.ground.forms import (
    Flag,
    LabelArray,
    Maybe,
    Names,
    Number,
    NumberArray,
    OneOf,
    Record,
    Several,
    Text,
    Whole,
)
from dpsubspace._core.plans.regression import RegressionFit, StandardisedProblem
from dpsubspace._core.public.tasks import TaskPrior
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import AFFINE_FORM, Affine, AffineRows
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.rows.inputs import (
    check_classes,
    check_rows,
    check_rows_and_labels,
    check_rows_and_targets,
    named,
)
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records
from dpsubspace._core.solvers.heads import Candidate, HeadPrior, Heads, Numbers, Outcome
from dpsubspace._core.solvers.least_squares import SOLVERS
from dpsubspace._core.solvers.logistic_heads import TwoClasses
from dpsubspace._core.solvers.personal import (
    ROUNDS,
    Personal,
    PersonalSolver,
    check_unknowns,
    default_rounds,
    slope_whitening,
)
from dpsubspace._core.solvers.regression import (
    Regression,
    Solution,
    exact_minimum,
    exact_solution,
    released_whitening,
)
from dpsubspace._core.statistics.persons import PersonRows
from dpsubspace._core.statistics.shapes import STANDARD_FORM, Standard
from dpsubspace._names import public

# Share of the one model for all persons in the budget that standardising leaves.
_SHARED = 0.45

# Solvers of that model: the usual one, and one for fits where noise hides the second moment of
# rows. The number is that of persons for each column, over the noise multiplier of all releases of
# the model, from which on noise does not hide the moment.
_DESCENT, _PLAIN, _WHITENING_FROM = "descent", "plain", 2.0

# Number of columns that is assumed where it is not known: rounds cost the same for any number.
_SOME = 10


# Range of the share of ones by which labels are standardised: for other shares the loss is too
# steep somewhere for the steps of the shared model.
_SHARES = 0.1, 0.9


# The shared part ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SharedModel(SavedModel):
    """The shared part of a personal model, of any kind."""

    coef_: np.ndarray
    intercept_: float
    components_: np.ndarray
    privacy_: PrivacyGuarantee = field(repr=False)
    n_features_in_: int
    feature_names_in_: np.ndarray | None
    _scaled: _SharedModel = field(repr=False)
    _personal: Personal = field(repr=False)

    def personal(self, X: Any, y: Any) -> tuple[np.ndarray, float]:
        """Return a model for the person that some rows belong to, made from these alone.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of one person.
        y : array-like of shape (n_samples,)
            Their targets or labels.

        Returns
        -------
        coef : ndarray of shape (n_features,)
            Weights of the person's model. They belong to the person: they tell of `X` and `y`, and
            no guarantee covers them.
        intercept : float
            Its constant.
        """
        head = self._head(self._checker(), named(type(self).__name__), X, y)
        coef, constants = self._scaled.in_units(head)
        return coef[0], float(constants[0])

    def _head(self, checker: Any, who: Any, X: Any, y: Any) -> Heads:
        """Return a person's own part of the model; rows are checked against those of a fit."""
        X = check_rows(checker, X, reset=False, accept_sparse=False)
        return self._scaled.head(self._personal, *self._values(who, X, y))

    def _values(self, who: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Return rows, and numbers that stand for their targets."""
        X, y = check_rows_and_targets(who, X, y, accept_sparse=False)
        return X, one_column(y)

    def _scores(self, X: Any) -> np.ndarray:
        X = check_rows(self._checker(), X, reset=False, accept_sparse=False)
        return self._scaled.scores(X, None, None)

    def _checker(self) -> Any:
        model: Any = named(type(self).__name__)
        model.n_features_in_ = self.n_features_in_
        if self.feature_names_in_ is not None:
            model.feature_names_in_ = self.feature_names_in_
        return model


@public
@dataclass(frozen=True, kw_only=True)
class SharedLinearModel(SharedModel):
    """The shared part of a personal linear model, the only part that may be published.

    It is made by :meth:`PersonalizedLinearRegression.public_part`, and whoever has it can predict
    for people of whom nothing is known, and make a model of their own from a few rows of their own.

    Parameters
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the shared model, in the units of the data.
    intercept_ : float
        Its constant.
    components_ : ndarray of shape (n_components, n_features)
        Directions, of length 1, along which weights of persons differ.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,) or None
        Names of the features, where the rows of the fit had names that are strings.
    _scaled : object
        What rows and targets are scaled by, and the model of these: public or released numbers.
    _personal : object
        Directions, and what models of persons are like: public or released numbers.

    See Also
    --------
    PersonalizedLinearRegression : Makes one.

    Notes
    -----
    It predicts and is no estimator of scikit-learn: there is nothing to fit, and no ``score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import PersonalizedLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 10)
    >>> X, levels = rng.normal(size=(5000, 3)), rng.normal(size=500)
    >>> y = X @ [1.0, 2.0, 0.0] + levels[groups] + rng.normal(size=5000) / 3
    >>> model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    >>> shared = model.public_part()
    >>> own_rows = rng.normal(size=(8, 3))  # of somebody new, whose level is 2
    >>> coef, intercept = shared.personal(own_rows, own_rows @ [1.0, 2.0, 0.0] + 2.0)
    >>> bool(1.5 < intercept < 2.5)
    True
    """

    def predict(self, X: Any) -> np.ndarray:
        """Return the targets that the shared model predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions.
        """
        return self._scores(X)


@public
@dataclass(frozen=True, kw_only=True)
class SharedLogisticModel(SharedModel):
    """The shared part of a personal logistic model, the only part that may be published.

    It is made by :meth:`PersonalizedLogisticRegression.public_part`, and whoever has it can predict
    for people of whom nothing is known, and make a model of their own from a few rows of their own.

    Parameters
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the shared model, in the units of the data.
    intercept_ : float
        Its constant.
    components_ : ndarray of shape (n_components, n_features)
        Directions, of length 1, along which weights of persons differ.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,) or None
        Names of the features, where the rows of the fit had names that are strings.
    _scaled : object
        What rows and targets are scaled by, and the model of these: public or released numbers.
    _personal : object
        Directions, and what models of persons are like: public or released numbers.
    classes_ : ndarray of shape (2,)
        Labels.

    See Also
    --------
    PersonalizedLogisticRegression : Makes one.

    Notes
    -----
    It predicts and is no estimator of scikit-learn: there is nothing to fit, and no ``score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import PersonalizedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(500), 10)
    >>> X, levels = rng.normal(size=(5000, 3)), 2 * rng.normal(size=500)
    >>> y = X @ [1.0, 2.0, 0.0] + levels[groups] + rng.logistic(size=5000) > 0
    >>> model = PersonalizedLogisticRegression(random_state=0).fit(X, y, groups=groups)
    >>> shared = model.public_part()
    >>> own_rows = rng.normal(size=(8, 3))  # of somebody new, who says yes
    >>> coef, intercept = shared.personal(own_rows, np.ones(8, dtype=bool))
    >>> intercept > shared.intercept_
    True
    """

    classes_: np.ndarray

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the log-odds of the second class that the shared model predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive where the second class is predicted.
        """
        return self._scores(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels that the shared model predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels, each from ``classes_``.
        """
        return self.classes_[(self._scores(X) > 0).astype(np.intp)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities that the shared model predicts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        return LogLoss().predict(self._scores(X)[:, None])

    def _values(self, who: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        X, y = check_rows_and_labels(who, X, y, accept_sparse=False)
        return X, check_classes(y, self.classes_)[1].astype(np.float64)


def one_column(y: np.ndarray) -> np.ndarray:
    if y.ndim == 2 and y.shape[1] > 1:
        raise ValueError(f"`y` must be one column, got {y.shape[1]}: fit one model for each.")
    return column_or_1d(y, warn=True)


@dataclass(frozen=True)
class _SharedModel:
    """The shared model of standardised rows and targets: public or released numbers."""

    outcome: Outcome  # Kind of the targets

    affine: Affine  # Map of rows, each column by itself
    limit: float  # Mapped entries are clipped to this
    targets: Standard  # Location and scale of targets
    weights: np.ndarray  # (d,): weights
    constant: float  # Constant
    whitening: np.ndarray  # (d, d): map that makes rows white
    intercept: bool  # Whether persons have intercepts of their own
    private: bool  # Whether residuals are cut

    def persons(self, X: Any, targets: np.ndarray, records: Records) -> PersonRows:
        return PersonRows(
            AffineRows(X, self.affine, constant=False, limit=self.limit),
            targets,
            records,
            weights=self.weights,
            constant=self.constant,
            whitening=self.whitening,
            intercept=self.intercept,
            private=self.private,
            loss=self.outcome.loss,
        )

    def head(self, personal: Personal, X: Any, y: np.ndarray) -> Heads:
        with np.errstate(all="ignore"):
            scaled = (y - self.targets.location[0]) / self.targets.scale[0]
            one = Records(1, index=np.zeros(len(scaled), dtype=np.intp))
            return personal.heads(self.persons(X, scaled, one))

    def in_units(self, heads: Heads | None) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n, d) and constants (n,) of whole models, in the units of the data."""
        with np.errstate(all="ignore"):  # warnings would reveal something about rows
            return self._in_units(heads)

    def _in_units(self, heads: Heads | None) -> tuple[np.ndarray, np.ndarray]:
        coef, constant = self.weights[None, :], np.array([self.constant])
        if heads is not None:
            coef, constant = coef + heads.coef, constant + heads.constant
        coef, constant = (
            self.affine.to_input_units(coef.T).T,
            constant + self.affine.constant(coef.T),
        )
        if heads is not None:
            coef[heads.uses_own] = heads.own_coef[heads.uses_own]
            constant[heads.uses_own] = heads.own_constant[heads.uses_own]
        slope, level = self.units
        return slope * coef, level + slope * constant

    @property
    def units(self) -> tuple[float, float]:
        """Factor and constant that turn scores into the units of the data."""
        return self.outcome.units(float(self.targets.scale[0]), float(self.targets.location[0]))

    def scores(self, X: Any, heads: Heads | None, index: np.ndarray | None) -> np.ndarray:
        """Scores of rows; `index` holds the person of each row, or -1 for an unknown person.

        Scores are targets, or log-odds.
        """
        rows = AffineRows(X, self.affine, constant=False, limit=self.limit)

        def scores(some: slice) -> np.ndarray:
            mapped = to_numpy(rows.at(some).dense())
            found = mapped @ self.weights + self.constant
            if heads is None or index is None:
                return found
            own = index[some]
            known = np.flatnonzero(own >= 0)
            heads_of = heads.coef[own[known]]
            found[known] += np.einsum("ij,ij->i", mapped[known], heads_of)
            found[known] += heads.constant[own[known]]
            alone = known[heads.uses_own[own[known]]]
            theirs = own[alone]
            rows_of = X[some][alone].astype(np.float64)
            found[alone] = np.einsum("ij,ij->i", rows_of, heads.own_coef[theirs])
            found[alone] += heads.own_constant[theirs]
            return found

        with np.errstate(all="ignore"), over_chunks(rows) as each:
            every = np.concatenate([*each(scores)])
            slope, level = self.units
            return level + slope * every


# Form of these classes in files: priors have features and a constant.
_OUTCOME_FORM = OneOf(
    numbers=Record(Numbers),
    two_classes=Record(TwoClasses, loss=Record(StandardLogLoss, share=Number(0, 1))),
)
_SCALED_FORM = Record(
    _SharedModel,
    outcome=_OUTCOME_FORM,
    affine=AFFINE_FORM,
    limit=Number(0, math.inf),
    targets=STANDARD_FORM,
    weights=NumberArray(("features",)),
    constant=Number(),
    whitening=NumberArray(("features", "features")),
    intercept=Flag(),
    private=Flag(),
)
_PRIOR_FORM = Record(
    HeadPrior,
    candidates=Several(
        Record(
            Candidate,
            name=Text(),
            root=NumberArray(("coefficients", None)),
            own=Number(0),
            about_mean=Flag(),
            centre=Maybe(NumberArray(("coefficients",))),
        )
    ),
    noise=Number(0),
    log_weights=NumberArray(("candidates",), low=-math.inf),
    known=Flag(),
    outcome=_OUTCOME_FORM,
)
_PERSONAL_FORM = Record(
    Personal,
    weights=NumberArray(("features",)),
    constant=Number(),
    whitening=NumberArray(("features", "features")),
    directions=NumberArray(("features", "components")),
    white=NumberArray(("features", "components")),
    prior=_PRIOR_FORM,
    spectrum=NumberArray(("spectrum",), high=math.inf),
)
SharedModel._saved = {
    "n_features_in_": Whole(axis="features"),
    "feature_names_in_": Maybe(Names()),
    "components_": NumberArray(("components", "features")),
    "_scaled": _SCALED_FORM,
    "_personal": _PERSONAL_FORM,
    "intercept_": Number(),
    "coef_": NumberArray(("features",)),
}
SharedLogisticModel._saved = {**SharedModel._saved, "classes_": LabelArray("classes")}


@dataclass(frozen=True)
class FittedPersonal:
    """Result of a fit: the shared part, and what belongs to the persons."""

    scaled: _SharedModel
    personal: Personal
    heads: Heads
    prepared: StandardisedProblem
    n_rounds: int

    def public_part(self, estimator: Any, kind: Any, **about: Any) -> Any:
        """Return the part that may be published, as an object of a class of shared models."""
        coef, constant = self.scaled.in_units(None)
        directions = self.scaled.affine.to_input_units(self.personal.directions)
        lengths = np.linalg.norm(directions, axis=0)
        components = (directions / np.where(lengths > 0, lengths, 1.0)).T
        return kind(
            **about,
            coef_=coef[0],
            intercept_=float(constant[0]),
            components_=components,
            privacy_=estimator.privacy_,
            n_features_in_=estimator.n_features_in_,
            feature_names_in_=getattr(estimator, "feature_names_in_", None),
            _scaled=self.scaled,
            _personal=self.personal,
        )


# Kinds of targets ---------------------------------------------------------------------------


def _public_scores(problem: Regression, model: np.ndarray) -> np.ndarray:
    """Scores (n, 1) of a public model (constant, weights) of the rows."""
    coef = np.concatenate([model[1:], model[:1]])[: problem.rows.width, None]
    with over_chunks(problem.rows) as each:
        return np.concatenate([*each(lambda some: problem.rows.at(some).scores(coef))])


class TargetModel(Protocol):
    """Kind of targets: how they are standardised, and how the one model for all is found."""

    def standardised(
        self, prepared: StandardisedProblem, targets: Any, *, intercept: bool
    ) -> tuple[StandardisedProblem, Outcome]:
        """Return standardised targets and their outcome; `targets` are those of the data."""
        ...

    def beside(self, problem: Regression, model: np.ndarray) -> Regression:
        """Problem of what is added to a public model (constant, weights) of the rows."""
        ...

    def tasks(self, tasks: TaskPrior) -> TaskPrior:
        """Prior of models of public tasks, in units of standardised scores."""
        ...

    def exact(self, problem: Regression, releases: Releases) -> Solution:
        """The one model without privacy."""
        ...


@dataclass(frozen=True)
class NumberTargets:
    def standardised(
        self, prepared: StandardisedProblem, targets: Any, *, intercept: bool
    ) -> tuple[StandardisedProblem, Outcome]:
        return prepared, Numbers()

    def beside(self, problem: Regression, model: np.ndarray) -> Regression:
        if not model.any():
            return problem
        return replace(problem, targets=problem.targets - _public_scores(problem, model))

    def tasks(self, tasks: TaskPrior) -> TaskPrior:
        return tasks

    def exact(self, problem: Regression, releases: Releases) -> Solution:
        return exact_solution(problem, releases)


@dataclass(frozen=True)
class ClassTargets:
    """Labels 0 and 1, standardised by the share of ones, which the released mean shows."""

    def standardised(
        self, prepared: StandardisedProblem, targets: Any, *, intercept: bool
    ) -> tuple[StandardisedProblem, Outcome]:
        # Without an intercept a score of zero stands for even odds.
        share = float(np.clip(prepared.targets.location[0], *_SHARES)) if intercept else 0.5
        loss = StandardLogLoss(share)
        standard = Standard(np.array([share]), np.array([loss.scale]))
        problem = replace(prepared.problem, targets=(targets - share) / loss.scale, loss=loss)
        return replace(prepared, problem=problem, targets=standard), TwoClasses(loss)

    def beside(self, problem: Regression, model: np.ndarray) -> Regression:
        if not model.any():
            return problem
        both = np.concatenate([problem.targets, _public_scores(problem, model)], axis=1)
        return replace(problem, targets=both, loss=BesideScores(problem.loss), n_beside=1)

    def tasks(self, tasks: TaskPrior) -> TaskPrior:
        return replace(tasks, noise=1.0)  # noise of standardised labels

    def exact(self, problem: Regression, releases: Releases) -> Solution:
        return exact_minimum(problem)


# The fit ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PersonalFit(Plan):
    shared: RegressionFit  # How rows are standardised, and the one model for all persons is found
    method: str  # "gradient", "moments": what rounds release.
    n_components: int | None  # Number of directions if there are no public tasks; None chooses it
    n_iter: int | str  # Number of rounds
    hidden: bool = False  # Whether noise hides the second moment of rows, by public sizes
    batch_size: int | None  # Expected number of persons in the Poisson batch of a round
    targets: TargetModel = NumberTargets()
    loss: Loss = field(default_factory=Squared)  # Loss of the predictions

    @property
    def target(self) -> Target:
        return self.shared.target

    # Before the data are seen ---------------------------------------------------------------

    def with_public_view(self, data: Data) -> PersonalFit:
        return replace(self, shared=self.shared.with_public_view(data))

    def resolved(self, sizes: Sizes) -> PersonalFit:
        d = sizes.n_features or _SOME
        shared = self.shared.resolved(sizes)
        reach = shared.reach if self.target.private else float("inf")
        least = max(auto.WHITENING_FROM, _WHITENING_FROM * d)
        hidden = math.sqrt(_SHARED) * reach < least
        plain = hidden and not sizes.n_public  # a start from public tasks needs few steps
        shared = replace(shared, solver=_PLAIN if plain else _DESCENT)
        fit = replace(self, shared=shared, hidden=hidden)
        if self.n_iter != "auto":
            return fit
        return replace(fit, n_iter=default_rounds(reach, d, public=sizes.n_public > 0))

    def solver(self, sizes: Sizes) -> PersonalSolver:
        rate = 1.0
        if self.batch_size is not None and self.target.private:
            n = sizes.known("n_samples", f"`batch_size`={self.batch_size}")
            if self.batch_size > n:
                raise ValueError(
                    f"`batch_size`={self.batch_size} is larger than the number of persons ({n})."
                    " Use None for all of them in each round, or a smaller number."
                )
            rate = self.batch_size / n
        rounds = 0 if isinstance(self.n_iter, str) else int(self.n_iter)
        return PersonalSolver(
            self.n_components, self.method, rounds, rate, public=sizes.n_public > 0
        )

    def budget(self, sizes: Sizes) -> Budget:
        before = self.shared.beside_solver(sizes)
        rest = 1 - sum(part.share for part in before.values())
        of_all = SOLVERS[self.shared.solver].parts(self.shared.reach)
        own = self.solver(sizes).parts()
        parts: dict[str, Part] = dict(before)
        for share, some in ((_SHARED * rest, of_all), ((1 - _SHARED) * rest, own)):
            for name, part in some.items():
                parts[name] = replace(part, share=share * part.share)
        return Budget.split(self.target, parts, sizes.n_samples)

    def prepared(self, data: Data, where: Any, budget: Budget) -> Data:
        if self.method == "moments" and ROUNDS in budget.parts:
            view, k = self.shared.view, self.n_components
            if view is not None and view.subspace is not None:
                k = view.subspace.directions.shape[1]
            if k is not None:  # where noise decides, it finds no more directions than supported
                check_unknowns(data.X.shape[1], k)
        return data

    # The fit --------------------------------------------------------------------------------

    def run(
        self, ready: Data, releases: Releases, rng: Any, after_step: Callable[[], bool]
    ) -> FittedPersonal:
        """Standardise, find the one model for all, then the shared part of the persons' own models.

        Privacy: every release is a release of persons, with the bound that each function states.
        Heads are found last, each from the rows of its own person and from what was released. What
        all others see is differentially private, and each person's own part follows from that and
        from the person's own rows: joint differential privacy, by the billboard lemma (Hsu, Huang,
        Roth, Roughgarden, Wu, 2014).
        """
        data = ready
        prepared, outcome = self.targets.standardised(
            self.shared.standardised(data, releases), data.targets, intercept=self.shared.constant
        )
        problem, d = prepared.problem, prepared.affine.width
        slope, level = outcome.units(prepared.targets.scale[0], prepared.targets.location[0])
        tasks = prepared.view.tasks
        tasks = None if tasks is None else self.targets.tasks(tasks.in_units(level, slope))
        start = np.zeros(d + 1) if tasks is None else tasks.mean
        problem = self.targets.beside(problem, start)
        if releases.budget.private:
            solution = SOLVERS[self.shared.solver](problem, releases, after_step)
            mixing = solution.noise
        else:
            solution = self.targets.exact(problem, releases)
            mixing = released_whitening(problem.rows, problem, releases).weights
        weights, constant = solution.weights[:d, 0] + start[1:], 0.0
        if self.shared.constant:
            constant = float(solution.weights[d, 0] + start[0])
        scaled = _SharedModel(
            outcome,
            prepared.affine,
            prepared.limit,
            prepared.targets,
            weights,
            constant,
            np.eye(d) if self.hidden else slope_whitening(mixing, d),
            self.shared.constant,
            releases.budget.private,
        )
        persons = scaled.persons(data.X, prepared.problem.targets[:, 0], data.records)
        sizes = data.sizes(1)
        subspace = prepared.view.subspace
        public = None
        if subspace is not None:
            # Weights of standardised columns are weights of columns over the factors of the map.
            factors = prepared.affine.weights
            used = np.where(factors > 0, factors, np.inf)
            public = subspace.directions / used[:, None]
        solver = replace(self.solver(sizes), outcome=outcome)
        personal = solver(persons, releases, public, tasks=tasks)
        scaled = replace(scaled, weights=personal.weights, constant=personal.constant)
        heads = personal.heads(persons)
        rounds = releases.budget.parts.get(ROUNDS)
        n_rounds = 0 if rounds is None else rounds.count
        return FittedPersonal(scaled, personal, heads, prepared, n_rounds)
