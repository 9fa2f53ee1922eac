"""Private choice among candidates: features, encodings, estimators, parameters.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.search.SearchPlan`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.fits.call import explain_unknown_parameters
from dpsubspace._core.fits.composites import opened, predictor, private_parts
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.fits.saved import FEATURES, Parameter
from dpsubspace._core.ground.checks import check_bounds, check_choice, check_real, shown, unwrapped
from dpsubspace._core.ground.compat import nameless
from dpsubspace._core.ground.forms import LabelArray, Number, Sometimes
from dpsubspace._core.plans.search import SearchPlan, TrialResult, Tried
from dpsubspace._core.plans.search_criteria import (
    check_scoring,
    criterion_of,
    refuse_labels,
    refuse_targets,
)
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.columns import as_column, read_labels
from dpsubspace._core.rows.inputs import (
    check_classes,
    check_rows_and_labels,
    check_rows_and_targets,
    checked_by,
    refuse_collections,
)
from dpsubspace._core.rows.records import Records, check_groups, check_order
from dpsubspace._core.rows.same_rows import named_sets, refuse_private_rows, refuse_shared
from dpsubspace._core.tables.schema import as_schema, read_table
from dpsubspace._names import public
from dpsubspace.tables._table_encoder import TableEncoder

# Number of candidates drawn from distributions, for each trial that is expected: two trials are
# rarely of the same candidate.
_DRAWS = 10


def _has(name: str) -> Callable[[Any], bool]:
    """Check that the best model, or the estimator before a fit, has a method of that name."""

    def check(search: PrivateSearch) -> bool:
        tried = search._tried if not hasattr(search, "best_estimator_") else {}
        for model in tried.values() if tried else [search.best_estimator_]:
            getattr(model, name)  # or AttributeError
        return True

    return check


@public
class PrivateSearch(MetaEstimatorMixin, PrivateEstimator):
    """Choose among candidates by private rows, and pay for the choice.

    Every candidate that is fitted to private rows to find the best one costs privacy, which a grid
    search does not count. Here `epsilon` is what everything costs together: fits, scores and the
    choice. Training all of K candidates costs ``sqrt(K)`` times the noise; a hidden random number
    of trials, of which only the best is told, costs less than twice the noise whatever the number
    of candidates. It pays for choices that are worth points, such as features, encodings or kinds
    of estimators; parameters of which defaults are nearly as good cost more than they bring.

    Parameters
    ----------
    estimator : estimator or Pipeline, default=None
        What is fitted: an estimator of this package, or a Pipeline whose steps are private, work
        row by row or are frozen. It is cloned. Its own `epsilon` counts only for the ratio in
        which private steps of a Pipeline share what a trial costs, and its `random_state` is not
        used. Its `delta` and `neighboring_relation` are left at their defaults, or are those of
        the search.
    candidates : dict or list of dict, default=None
        From names of parameters to lists of values, of which all combinations are candidates, or
        to distributions with a method ``rvs``, of which a public list is drawn before any data are
        seen. A list of dicts joins their candidates. Values may be estimators: steps of a Pipeline
        can be exchanged.
    estimators : list of estimators, or of tuple (name, estimator), default=None
        Different models, in the place of `estimator` and `candidates`: each is one candidate, as it
        is. All of them are classifiers, or all are regressors. The name of a model is that of its
        class in lower case, with a number where there are several.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    method : {"auto", "random", "all"}, default="auto"
        "random" runs a random number of trials, each of a candidate drawn anew, and tells the best
        alone. "all" fits each candidate once, with a share of the budget. "auto" takes the one
        with less noise, which is "all" for up to three candidates, or two where epsilon is large.
    n_trials : float, default=10
        Mean of the number of trials of "random", at least 1. The number itself stays hidden. More
        trials find better candidates and cost little more noise. "all" has no use for it.
    scoring : str, callable or None, default=None
        What models are compared by. A name is a metric of :func:`private_score` that is a single
        number, such as "roc_auc", "balanced_accuracy", "log_loss" or "r2"; of losses and errors
        the smallest is best, and "neg_..." are their negatives. Errors of more than half the range
        of `target_bounds` count as that. Metrics of one class are about the class 1. None is
        "roc_auc" for two classes, "balanced_accuracy" for more, and for regressors 1 less the
        absolute error in halves of the range of `target_bounds`, at least 0. In a function,
        ``scoring(model, X, y)`` returns one number in [0, 1] for each row, larger for better ones,
        that depends on this row and the model alone. Other numbers are cut to that range.
    validation_fraction : float or None, default=0.2
        Share of the records that are not trained on, but scored. None trains on all of them and
        scores on public rows, `X_public_val`.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets, which scores of regressors need; two numbers, or two arrays of
        shape (n_targets,). It is not passed to candidates. Classifiers have no use for it, nor has
        a function as `scoring`.
    n_jobs : int or None, default=None
        Number of trials that run at once, by joblib; None is 1 unless a ``parallel_config`` says
        otherwise.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    best_estimator_ : estimator
        Model of the best trial, fitted to the records that were not held out. Its own ``privacy_``
        is that of the search: no smaller cost is true of it.
    best_params_ : dict
        Its candidate; with `estimators` its name, as ``{"estimator": name}``.
    best_score_ : float
        Its score, with the noise that was paid for, or exact on public rows. It is the largest of
        several: too good on average.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels, of classifiers.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    privacy_cost : What a grid search would cost: its fits listed, without the scores.
    select_public : Chooses public data, without a fit.
    share_budget : Shares a budget among the steps of one Pipeline.

    Notes
    -----
    A trial draws a candidate, fits it to the training records and releases sums over held-out
    records, of which the score is made, with Gaussian noise of the mu of the fit: the sum of one
    number in [0, 1] for each record (L2 bound 1) for "accuracy", losses, errors and functions;
    counts of labels by whether they are predicted, or of pairs of true and predicted labels (L2
    bound 1 for a null record, and sqrt(2) for one that is replaced); for "r2", the sums of three
    such numbers, times roots of shares (1); and for areas, counts of scores on a public grid (15 %
    of mu^2), and then of scores and labels between edges found by these (1 and sqrt(2), for more
    classes sqrt(k) times that). What is divided by, such as the size of a class, is at least three
    deviations of its noise. Records are held out by their position and public coins, persons as a
    whole. A record is in one of the two, so that a trial costs the larger of the two and not the
    sum: a Gaussian mechanism of that mu.

    "random": the event is ``RepeatAndSelectDpEvent`` over that Gaussian, with the mean `n_trials`
    and the shape 0 (Papernot, Steinke, 2022, Theorem 2): the number of trials has a logarithmic
    distribution, ``P(k) = (1 - g)^k / (k log(1 / g))``. At epsilon 1, delta 1e-5 and 10 trials its
    noise is 1.88 times that of a single fit. The theorem needs all trials below one Renyi curve,
    which equal mu are, and the number of trials hidden: nothing that is stored or shown tells
    it, and lost trials are forgotten. **The time that a fit takes tells it roughly**, and so do the
    load and the memory of the machine: keep those to yourself. "all": the event is one Gaussian
    mechanism, of mu^2 the sum over candidates.

    Candidates with a `batch_size`: "random" takes the Renyi curve of the candidate of the smallest
    batches as the common one, and the others get as much noise as it takes to stay below it;
    "all" composes all fits and scores one after another. The event says which.

    Everything that can be wrong with parameters of candidates is found before anything is spent.
    A trial that fails later scores as if it were always wrong, and what went wrong is not told,
    nor are warnings of trials, since these might tell of rows.

    Assumed public: the numbers of rows and features, the set of labels if it is read from `y`, the
    candidates, and all parameters but `random_state`. The best score is biased upwards. Scores of
    ``score`` on other private rows are not protected.

    References
    ----------
    Papernot, Steinke. "Hyperparameter tuning with Renyi differential privacy". ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDFClassifier, PrivateSearch
    >>> X, y = load_digits(return_X_y=True)
    >>> candidates = {"row_norm": ["l2", 60.0], "loss": ["log_loss", "hinge"]}
    >>> search = PrivateSearch(DPSGDFClassifier(), candidates, epsilon=3.0, random_state=0)
    >>> _ = search.fit(X, y)
    >>> search.best_params_["row_norm"]
    'l2'
    >>> search.privacy_.epsilon
    3.0
    """

    # scikit-learn passes these on without a request.
    __metadata_request__fit: ClassVar = {
        "X_public": True,
        "y_public": True,
        "X_public_val": True,
        "y_public_val": True,
    }

    n_features_in_: int

    # Set by `fit`.
    best_estimator_: Any
    best_params_: Mapping[str, Any]
    best_score_: float

    _saved: ClassVar = {
        **FEATURES,
        "classes_": Sometimes(LabelArray("classes")),
        "best_estimator_": Parameter(),
        "best_params_": Parameter(),
        "best_score_": Number(-math.inf, math.inf),
    }

    @explain_unknown_parameters
    def __init__(
        self,
        estimator: Any = None,
        candidates: Any = None,
        *,
        estimators: Any = None,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        method: str = "auto",
        n_trials: float = 10,
        scoring: Callable[..., Any] | None = None,
        validation_fraction: float | None = 0.2,
        target_bounds: Any = None,
        n_jobs: int | None = None,
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.estimator = estimator
        self.candidates = candidates
        self.estimators = estimators
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.n_trials = n_trials
        self.scoring = scoring
        self.validation_fraction = validation_fraction
        self.target_bounds = target_bounds
        self.n_jobs = n_jobs
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        X_public: Any = None,
        y_public: Any = None,
        X_public_val: Any = None,
        y_public_val: Any = None,
    ) -> Self:
        """Fit candidates to private rows, and keep the best.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their labels or targets.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows, passed to candidates that take them. A tuple is never sliced by
            cross-validation.
        y_public : array-like of shape (m,), or tuple of such, optional
            Their labels, in the form of `X_public`.
        X_public_val : array-like of shape (m, n_features) or tuple of one, optional
            Public rows to score on, with ``validation_fraction=None``: rows like the private ones.
        y_public_val : array-like of shape (m,), or tuple of one, optional
            Their labels or targets.

        Returns
        -------
        self : object
            The fitted search.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has been
            released then and no privacy spent.
        PrivacyError
            If a candidate cannot be counted inside of a search.
        RuntimeError
            If the best trial has no model; the budget is spent then.
        """
        plan = replace(self._plan(), public_val=(X_public_val, y_public_val))
        public = {"X_public": X_public, "y_public": y_public}
        return self._fit_by(plan, X, y, groups=groups, **public)

    def _check(self, plan: SearchPlan, given: FitData) -> CheckedFit:
        X, y, groups = given.X, given.y, given.groups
        train = {"groups": groups, "X_public": given.X_public, "y_public": given.y_public}
        public = dict(zip(("X_public_val", "y_public_val"), plan.public_val, strict=True))
        refuse_collections(self, X=X, y=y, **train, **public)
        X, y = _checked(self, X, y, groups)
        records = check_groups(groups, X)
        outputs, labels = self._outputs(y, records)
        refuse_targets(plan.criterion, outputs if labels is None else 1)
        for name in ("public", "public_val"):
            _refuse_private(self._first, X, y, name, {**train, **public})
        data = plan.data(X, y, outputs, records, train)
        read = () if labels is None else (f"set of labels ({len(labels)})",)
        held_out = "public rows to score" if plan.fraction is None else "which records are scored"
        assumed = (*read, f"{len(plan.tried)} candidates", held_out)
        criterion = plan.criterion.about(labels)
        refuse_labels(criterion)
        _refuse_other_labels(plan.public_val[1], labels)
        listed = None if labels is None else labels.tolist()
        plan = replace(plan, labels=listed, criterion=criterion)
        return CheckedFit(plan, data, assumed, labels)

    def _store(self, found: TrialResult, about: np.ndarray | None) -> None:
        for _, part in private_parts(found.model, fitted=True):
            if hasattr(part, "privacy_"):  # a part without columns was not fitted
                part._state(self.privacy_)
        if about is not None:
            self.classes_ = about
        self.best_estimator_, self.best_params_, self.best_score_ = found

    def _outputs(self, y: np.ndarray, records: Records) -> tuple[int, np.ndarray | None]:
        if not is_classifier(self._first):
            return (y.shape[1] if is_regressor(self._first) and y.ndim == 2 else 1), None
        last = predictor(self._first, fitted=False)
        labels = check_classes(y, getattr(last, "classes", None), grouped=records.grouped)[0]
        return (1 if len(labels) == 2 else len(labels)), labels

    # Cost -------------------------------------------------------------------------------------

    def _plan(self) -> SearchPlan:
        target = checked_target(self)
        check_choice("method", self.method, ("auto", "random", "all"))
        check_real("n_trials", self.n_trials, low=1, high=1e4, include_low=True, include_high=True)
        if self.validation_fraction is not None:
            check_real("validation_fraction", self.validation_fraction, low=0, high=1)
        candidates = self._candidates()
        kinds = {"classifier": is_classifier, "regressor": is_regressor}
        check_scoring(self.scoring, **{k: test(self._first) for k, test in kinds.items()})
        if not callable(self.scoring) and is_regressor(self._first):
            if self.target_bounds is None:
                raise ValueError(
                    "`target_bounds` of the search must be given for a regressor, since errors"
                    " are scored in parts of them: pass the range of the targets that the"
                    " estimator has, such as PrivateSearch(..., target_bounds=(0, 100))."
                )
            check_bounds("target_bounds", self.target_bounds)
        as_noise(self.random_state if isinstance(self.random_state, int) else None)
        return SearchPlan(
            target,
            candidates,
            self.method,
            float(self.n_trials),
            self.validation_fraction,
            criterion_of(self.scoring, self._first, self.target_bounds),
            self.n_jobs,
        )

    def _candidates(self) -> tuple[Tried, ...]:
        """Return what trials may fit; ValueError if it is given in no way or in two."""
        if self.estimators is None:
            if self.estimator is None:
                raise ValueError(
                    "`estimator` must be given, with its `candidates`, or `estimators`: a list of"
                    " models to compare, such as PrivateSearch(estimators=[DPSGDFClassifier(),"
                    " GEPClassifier()])."
                )
            listed = _listed(self.candidates, float(self.n_trials))
            return tuple(Tried(self.estimator, params, params) for params in listed)
        if self.estimator is not None or self.candidates is not None:
            raise ValueError(
                "`estimators` are compared as they are: leave `estimator` and `candidates` out. To"
                " try parameters of several models, list each model with its parameters, or search"
                " over the steps of a Pipeline by `candidates`."
            )
        _check_kinds(self._tried)
        return tuple(Tried(each, {}, {"estimator": name}) for name, each in self._tried.items())

    @property
    def _tried(self) -> dict[str, Any]:
        """Models to compare by their names, or the one whose parameters are searched."""
        if self.estimators is None:
            return {"": self.estimator}
        return _named(self.estimators)

    @property
    def _first(self) -> Any:
        return next(iter(self._tried.values()))

    # Methods of the best model ------------------------------------------------------------------

    @available_if(_has("predict"))
    @nameless
    def predict(self, X: Any) -> np.ndarray:
        """Return predictions of the best model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Labels or numbers.
        """
        return self._best.predict(X)

    @available_if(_has("predict_proba"))
    @nameless
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities by the best model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        return self._best.predict_proba(X)

    @available_if(_has("predict_log_proba"))
    @nameless
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return logarithms of class probabilities by the best model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._best.predict_log_proba(X)

    @available_if(_has("decision_function"))
    @nameless
    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores of rows by the best model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, positive where the second is predicted.
        """
        return self._best.decision_function(X)

    @available_if(_has("transform"))
    @nameless
    def transform(self, X: Any) -> np.ndarray:
        """Return rows as the best model transforms them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_columns)
            Transformed rows.
        """
        return self._best.transform(X)

    @available_if(_has("score"))
    @nameless
    def score(self, X: Any, y: Any = None) -> float:
        """Return the score of the best model on rows; an exact number, which is not private.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Their labels or targets.

        Returns
        -------
        float
            Accuracy of classifiers, R^2 of regressors.
        """
        return self._best.score(X, y)

    @property
    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self._first)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.transformer_tags, tags.target_tags = inner.transformer_tags, inner.target_tags
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.non_deterministic = True
        return tags


def _named(estimators: Any) -> dict[str, Any]:
    """Return models by their names; ValueError unless it is a list of models, or of pairs."""
    if not isinstance(estimators, (list, tuple)) or len(estimators) < 2:
        raise ValueError(
            "`estimators` must be a list of at least two models, or of pairs (name, model), got"
            f" {shown(estimators)}. With one model, search over its parameters by `candidates`."
        )
    pairs = [each if isinstance(each, tuple) else (None, each) for each in estimators]
    kinds = Counter(type(p[-1]).__name__.lower() for p in pairs if p and p[0] is None)
    found, seen = {}, Counter()
    for pair in pairs:
        name, model = pair if len(pair) == 2 else (None, None)
        if isinstance(model, type) or not hasattr(model, "fit"):
            raise ValueError(
                "`estimators` must hold models that are not fitted, or pairs (name, model), got"
                f" {shown(pair if len(pair) != 2 else model)}."
            )
        if name is None:
            kind = type(model).__name__.lower()
            seen[kind] += 1
            name = kind if kinds[kind] == 1 else f"{kind}-{seen[kind]}"
        if not isinstance(name, str) or name in found:
            raise ValueError(
                f"`estimators` must have names that are strings, each once, got {shown(name)}."
            )
        found[name] = model
    return found


def _check_kinds(tried: Mapping[str, Any]) -> None:
    """Raise ValueError unless all models are classifiers, or all are regressors, say."""
    kinds = {name: (is_classifier(each), is_regressor(each)) for name, each in tried.items()}
    tables = {_of_tables(each) for each in tried.values()}
    if len({*kinds.values()}) > 1 or len(tables) > 1:
        raise ValueError(
            f"`estimators` {[*tried]} must be of one kind: all classifiers or all regressors, and"
            " all for data frames that are encoded, or none. Others cannot be compared by one score"
            " of the same rows."
        )


def _listed(candidates: Any, n_trials: float) -> Iterator[dict[str, Any]]:
    spaces = [candidates] if isinstance(candidates, Mapping) else candidates
    if not isinstance(spaces, (list, tuple)) or not spaces:
        raise ValueError(
            "`candidates` must be a dict from names of parameters to lists of values or to"
            f" distributions, or a list of such dicts, got {shown(candidates)}."
        )
    for space in spaces:
        if not isinstance(space, Mapping):
            raise ValueError(f"`candidates` must hold dicts, got {shown(space)}.")
        for name, values in space.items():
            many = isinstance(values, (list, tuple, np.ndarray)) and len(values)
            if not (many or hasattr(values, "rvs")):
                raise ValueError(
                    f"candidates[{name!r}] must be a list of values, which is not empty, or a"
                    f" distribution, got {shown(values)}."
                )
        if any(hasattr(values, "rvs") for values in space.values()):
            draws = max(1, round(_DRAWS * n_trials / len(spaces)))
            yield from ParameterSampler(dict(space), n_iter=draws, random_state=0)
        else:
            yield from ParameterGrid(dict(space))


# Inputs ----------------------------------------------------------------------------------------


def _checked(search: PrivateSearch, X: Any, y: Any, groups: Any) -> tuple[Any, np.ndarray]:
    """Return rows and targets; ValueError if they cannot be used.

    The rows of a data frame that is encoded are left to the checks of the candidates.
    """
    X, y = unwrapped("X", X), unwrapped("y", y)
    check_order(X, y=y, groups=groups)
    if not _of_tables(search._first):
        check = check_rows_and_targets if is_regressor(search._first) else check_rows_and_labels
        rows, y = check(search, X, y)
        return (X if hasattr(X, "iloc") else rows), y
    read = as_column if is_regressor(search._first) else read_labels
    y = checked_by(np.asarray, read(y))
    if not hasattr(X, "columns") or len(X) != len(y):
        raise ValueError(
            "a ColumnTransformer or a TableEncoder needs a data frame `X` with a `y` of its length."
        )
    search.n_features_in_ = X.shape[1]
    return X, y


def _of_tables(estimator: Any) -> bool:
    inside = (type(node.model) for node in opened(estimator).walk(frozen=False))
    return any(kind in (ColumnTransformer, TableEncoder) for kind in inside)


def _refuse_private(
    estimator: Any, X: Any, y: np.ndarray, name: str, public: Mapping[str, Any]
) -> None:
    """Raise ValueError if public rows or targets are those of the search, for all trials alike."""
    sets = named_sets(f"X_{name}", public[f"X_{name}"])
    refuse_shared(X, sets)
    refuse_shared(y, named_sets(f"y_{name}", public[f"y_{name}"]), "y")
    found = _compared(estimator, {"X": X, **sets})
    refuse_private_rows(found.pop("X", None), found)


def _refuse_other_labels(y_public_val: Any, labels: np.ndarray | None) -> None:
    """Raise ValueError if public rows to score have labels that no candidate can predict."""
    if y_public_val is None or labels is None:
        return
    y = y_public_val[0] if isinstance(y_public_val, tuple) else y_public_val
    others = sorted({*np.ravel(np.asarray(y)).tolist()} - {*labels.tolist()}, key=str)
    if others:
        raise ValueError(
            f"`y_public_val` has the labels {shown(others)}, which are none of those of the search,"
            f" {shown(labels.tolist())}: leave out these rows, or pass `classes` to the estimator."
            " Nothing was released or charged."
        )


def _compared(estimator: Any, sets: Mapping[str, Any]) -> dict[str, Any]:
    """Sets of rows in a form that can be compared before a fit reads them; none if impossible.

    They are read by the schema of a table if there is one, and else as columns of numbers.
    """
    inside = (node.model for node in opened(estimator).walk(frozen=False))
    encoder = next((each for each in inside if type(each) is TableEncoder), None)
    found: dict[str, Any] = {}
    with suppress(ValueError, TypeError):  # fits report the error, in their own words
        for name, rows in sets.items():
            if encoder is not None:
                found[name] = read_table(rows, as_schema(encoder.schema))
            elif sparse.issparse(rows):
                found[name] = sparse.csr_array(rows)
            else:
                is_frame = hasattr(rows, "select_dtypes")
                numbers = rows.select_dtypes("number") if is_frame else rows
                found[name] = np.asarray(numbers, dtype=np.float64)
    widths = {rows.shape[1:] for rows in found.values() if encoder is None}
    return found if len(found) == len(sets) and len(widths) < 2 else {}
