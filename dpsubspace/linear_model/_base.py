"""Base classes of private classifiers and regressors: labels, targets, predictions, linear fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.bounds import MappedRows, ScaledRows
from dpsubspace._core.fits.estimator import (
    CheckedFit,
    FitData,
    PrivateEstimator,
    checked_descent,
    checked_target,
)
from dpsubspace._core.fits.outputs import by_blocks, exact_accuracy, r2_of_blocks
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES, Loss, NumberLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import row_norms, to_numpy
from dpsubspace._core.ground.checks import (
    check_bool,
    check_bounds,
    check_choice,
    check_real,
    copied_bounds,
    is_collection,
    shown,
)
from dpsubspace._core.ground.compat import CallbackSupportMixin, nameless
from dpsubspace._core.ground.forms import (
    FlagArray,
    Form,
    LabelArray,
    Maybe,
    Number,
    NumberArray,
    Pair,
    Record,
    Sometimes,
    Text,
    Whole,
)
from dpsubspace._core.plans.linear import Fitted, LinearFit
from dpsubspace._core.rows.features import FeatureBlock
from dpsubspace._core.rows.inputs import (
    check_classes,
    check_rows,
    check_rows_and_labels,
    check_rows_and_targets,
    log_class_weights,
)
from dpsubspace._core.rows.public import (
    Data,
    PublicRows,
    check_public_labels,
    check_public_rows,
    check_public_values,
)
from dpsubspace._core.rows.records import ROW_MAP_FORM, RowMap, check_groups
from dpsubspace._core.solvers.descent import WEIGHT_NOISE_FORM, WeightNoise
from dpsubspace._core.solvers.intercepts import DOUBT_FORM
from dpsubspace._core.tables.forming import INTERACTIONS_FORM, Interactions
from dpsubspace.linear_model._advice import (
    warn_of_bounds,
    warn_of_classifier,
    warn_of_noise,
    warn_of_regressor,
)

# Saved attributes -------------------------------------------------------------------------------

# For targets: the range that they are clipped to, and which ranges were found.
TARGETS_SAVED: dict[str, Form] = {
    "target_bounds_": Pair(NumberArray(("targets",))),
    "bounds_found_": Record(dict, data_norm=FlagArray(()), target_bounds=FlagArray(("targets",))),
}

# For linear models: how they were trained, and the mean that rows are shifted by.
_TRAINED: dict[str, Form] = {
    "n_iter_": Whole(),
    "learning_rate_": Maybe(Number(0)),
    "clip_norm_": Number(0, math.inf),
    "mean_": Sometimes(NumberArray(("mapped",))),
    # Only of GEP estimators.
    "init_": Sometimes(Text(("zero", "public"))),
    "n_components_": Sometimes(Maybe(Whole())),
    # Noise in the weights, and features of several numbers with their weights.
    "_weight_noise": Maybe(WEIGHT_NOISE_FORM),
    "_interactions": Maybe(INTERACTIONS_FORM),
    "_interaction_weights": NumberArray(("interactions", "outputs")),
}

# Scores -----------------------------------------------------------------------------------------
# How a fitted linear model scores rows and single columns: weights, norms, limits of entries.


@dataclass(frozen=True)
class LinearScores:
    """The scores of a fitted linear model for a row x: ``s (x W + bias w) + constant``.

    The factor s follows from the norm of the row. Entries are clipped to limits before, if any.
    """

    weights: np.ndarray  # (p + 1, c): W, and last w
    bias: float  # Entry that the last weights multiply
    row_map: RowMap | None  # Map that bounds rows; None leaves them as they are
    limits: Any  # (p,): limits that entries are clipped to
    noise: WeightNoise | None  # Noise in the weights; None if it is not known, or there is none
    # How far weights may be from those without noise, if shrinking adds to the noise.
    hidden: WeightNoise | None = None
    # Map from whole rows to further entries, whose weights come after the first p.
    interactions: Interactions | None = None

    @classmethod
    def of_columns(cls, coef: np.ndarray, noise: Any, **options: Any) -> LinearScores:
        """Return the scores of a model with one constant for all rows; `coef` is (p,) or (c, p)."""
        coef = np.atleast_2d(coef)
        weights = np.concatenate([coef.T, np.zeros((1, len(coef)))])
        return cls(weights, 0.0, **{"row_map": None, "limits": None, "noise": noise} | options)

    def used(
        self,
        entries: np.ndarray,
        at: np.ndarray,
        sq_norms: np.ndarray,
        more: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the entries that weights multiply, (m, k + 1), of rows (m, k) at places `at`.

        Other entries count as zeros, but `sq_norms`, the squared norms of rows, include them. If
        interactions make further entries, k counts them: they are computed from whole rows, or are
        given as `more`.
        """
        factors = np.ones(len(entries))
        if self.row_map is not None:
            factors = self.row_map.factors(np.sqrt(sq_norms)[:, None])[0]
        if self.limits is not None:
            entries = np.clip(entries, self.limits[0][at], self.limits[1][at])
        parts = [entries, np.full((len(entries), 1), self.bias)]
        if self.interactions is not None:
            parts.insert(1, self.interactions(entries) if more is None else more)
        return factors[:, None] * np.concatenate(parts, axis=1)

    def averaged(self, rows: np.ndarray, named: np.ndarray) -> np.ndarray | None:
        """Return further entries of rows, averaged over numbers whose entries are not `named`."""
        return None if self.interactions is None else self.interactions.averaged(rows, named)

    def widened(self, entries: np.ndarray, value: float | None = None) -> np.ndarray:
        """Return whole rows with `value` inserted for each further entry.

        None is the factor that multiplies further entries, but not the others, in training.
        """
        if self.interactions is None:
            return entries
        value = math.sqrt(self.interactions.share) if value is None else value
        return np.insert(entries, [self.n_own] * self.interactions.width, value)

    @property
    def n_own(self) -> int:
        """Number of entries of a row, without the further entries of interactions."""
        added = 0 if self.interactions is None else self.interactions.width
        return len(self.weights) - 1 - added

    def scores(self, used: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the scores (m, c) of the result of :meth:`used` for entries at places `at`."""
        return used @ self.weights[self.places(used, at)]

    def std(self, used: np.ndarray, at: np.ndarray) -> np.ndarray | None:
        """Return the standard deviation (m, c) of the noise in these scores; None if unknown."""
        if self.noise is None:
            return None
        at = self.places(used, at)
        return self.noise.std(used, at) if self.bias else self.noise.std(used[:, :-1], at[:-1])

    def places(self, used: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the places of the weights for the result of :meth:`used`."""
        last = len(self.weights) - 1
        behind = np.arange(self.n_own, self.n_own + used.shape[1] - len(at) - 1)
        return np.concatenate([at, behind, [last]])


# Regressors -------------------------------------------------------------------------------------
# Base classes of private regressors: ranges of targets, predictions, and the fit of linear ones.


@dataclass(frozen=True)
class Values:
    """Facts about the targets of a fit."""

    single: bool  # Whether they came as one column without a second axis
    assumed: tuple[str, ...]  # Facts about them that the guarantee assumes to be public


class PrivateRegressor(MultiOutputMixin, RegressorMixin, CallbackSupportMixin, PrivateEstimator):
    """Base class of private regressors: targets and their range."""

    # Parameters that every subclass has.
    loss: str
    target_bounds: tuple[Any, Any] | None
    device: Any

    target_bounds_: tuple[np.ndarray, np.ndarray]
    bounds_found_: dict[str, Any]

    @nameless
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of the variance of the targets that is predicted, R2.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            The mean over targets. Of private rows it is private: :func:`private_score` gives one
            that may be published.
        """
        self._warn_of_score()
        if is_collection(X):
            return r2_of_blocks(self, X, y, sample_weight)
        return super().score(X, y, sample_weight)

    def _valued(self, given: FitData, *, accept_sparse: bool = True) -> tuple[Data, Values]:
        """Return checked data, and facts about the targets."""
        X, y, groups, X_public, y_public = given
        X, y = check_rows_and_targets(self, X, y, accept_sparse=accept_sparse, groups=groups)
        records = check_groups(groups, X)
        targets = y[:, None] if y.ndim == 1 else y
        n_targets = targets.shape[1]
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds, n_targets)
        public = None
        if X_public is not None or y_public is not None:
            sets = check_public_rows(self, X, X_public, records)
            public = PublicRows.of(sets, check_public_values(y_public, X_public, sets, n_targets))
        data_norm = getattr(self, "data_norm", None)
        assumed = [f"number of targets ({n_targets})"]
        assumed += [] if data_norm is None else [f"bound on row norms ({data_norm:g})"]
        bounded = getattr(self, "bounds", None) is not None
        assumed += ["ranges of the features"] if bounded else []
        assumed += [] if self.target_bounds is None else ["range of the targets"]
        assumed += [] if public is None else [public.assumption]
        return Data(X, targets, n_targets, records, public), Values(y.ndim == 1, tuple(assumed))

    def _checked_loss(self) -> NumberLoss:
        """Return the loss; ValueError if it, or the range of targets, is not valid."""
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)
        return REGRESSOR_LOSSES[check_choice("loss", self.loss, list(REGRESSOR_LOSSES))]


class LinearRegressor(PrivateRegressor):
    """Base class of linear regressors: the bound on rows, the weights, and the fit."""

    _takes_collections = True

    # Parameters that every subclass has.
    data_norm: float | None
    fit_intercept: bool

    # Set by `fit`.
    target_bounds_: tuple[np.ndarray, np.ndarray]
    bounds_found_: dict[str, Any]
    n_iter_: int
    learning_rate_: float | None
    clip_norm_: float
    mean_: np.ndarray
    intercept_: float | np.ndarray
    coef_: np.ndarray

    _saved: ClassVar = {
        **FEATURES,
        **TARGETS_SAVED,
        **_TRAINED,
        "data_norm_": Number(0),
        "intercept_": NumberArray((), ("outputs",)),
        "coef_": NumberArray(("features",), ("outputs", "features")),
    }

    # Public surface -------------------------------------------------------------------------

    @nameless
    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, which may lie outside ``target_bounds_``.
        """
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False)
        scores = X @ self.coef_.T
        if self._interactions is not None:
            more = self._interactions.scores(X, self._interaction_weights)
            scores = scores + (more[:, 0] if scores.ndim == 1 else more)
        if not self.bounds_found_["data_norm"]:
            # Weights were learned from rows of this norm: for longer rows they are useless.
            shrink = self.data_norm_ / np.maximum(to_numpy(row_norms(X)), self.data_norm_)
            scores = scores * (shrink if scores.ndim == 1 else shrink[:, None])
        return REGRESSOR_LOSSES[self.loss].predict(scores + self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.regressor_tags.poor_score = True  # 200 rows and epsilon 1 in scikit-learn's checks
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> LinearFit:
        """Return the plan of the fit; ValueError if a parameter is out of its range."""
        target, loss = checked_target(self), self._checked_loss()
        if self.data_norm is not None:
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50)
        constant = check_bool("fit_intercept", self.fit_intercept)
        return LinearFit(
            target=target,
            loss=loss,
            bounds=self._bounds(),
            descent=checked_descent(self),
            interacting=True,
            constant=constant,
        )

    def _bounds(self, *, from_public: bool = False) -> ScaledRows:
        """Return bounds of rows and targets; with `from_public`, public rows give missing ones."""
        bias = auto.BIAS if self.fit_intercept else None
        data_norm = None if self.data_norm is None else float(self.data_norm)
        found = ScaledRows(data_norm, copied_bounds(self.target_bounds), bias, from_public)
        return found.looking()

    def _check(self, plan: LinearFit, given: FitData) -> CheckedFit:
        """Return the checked plan and data of the fit; ValueError if the data cannot be used."""
        data, values = self._valued(given)
        if plan.guide is not None:
            plan.guide.check_public(self, data.public)
        return CheckedFit(plan, data, values.assumed, values)

    def _warn_after_fit(self, found: Fitted, budget: Budget, checked: CheckedFit) -> None:
        """Warn if released numbers show that the fit is poor."""
        warn_of_regressor(self, found, budget, checked)

    def _warn_before_fit(
        self, plan: LinearFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        """Warn if public quantities already show that the fit will probably be poor."""
        assert isinstance(plan.bounds, ScaledRows)
        hidden = warn_of_bounds(self, plan.bounds, budget, guarantee, sizes)
        if hidden or plan.decides_weights(sizes):
            return
        n_samples, n_weights = guarantee.n_samples, self.n_features_in_ + 1
        assert n_samples is not None  # the guarantee of a fit has it
        warn_of_noise(self, budget, guarantee, n_samples, n_weights, auto.HIDING_TARGETS)

    def _store(self, found: Fitted, values: Values) -> None:
        """Store the attributes that predictions need."""
        limits = found.limits
        row_map, (low, high) = limits.row_map, limits.target_bounds
        self.target_bounds_, self.bounds_found_ = (low, high), dict(limits.found)
        self.n_iter_, self.learning_rate_ = found.n_iter, found.learning_rate
        self.clip_norm_ = found.clip_norm
        data_norm = float(row_map.data_norm or 0.0)  # never 0: given or released
        slope, middle = REGRESSOR_LOSSES[self.loss].units(low, high)
        weights, constant = found.weights, np.zeros(len(slope))
        if found.shift is not None:
            weights, constant = found.shift.undo(weights)
            self.mean_ = found.shift.mean
        coef = (weights[: self.n_features_in_] * (slope / data_norm)).T
        self._interactions = found.interactions
        self._interaction_weights = found.interaction_weights * (slope / data_norm)
        if row_map.bias is not None:
            constant = constant + row_map.bias / data_norm * weights[-1]
        intercept = middle + slope * constant
        noise = found.noise
        self._weight_noise = None if noise is None else noise.times(slope / data_norm)
        self.data_norm_ = data_norm
        self.intercept_ = float(intercept[0]) if values.single else intercept
        # Last: now it can predict.
        self.coef_ = coef[0].copy() if values.single else np.ascontiguousarray(coef)

    def _linear_scores(self) -> LinearScores:
        found = self.bounds_found_["data_norm"]
        row_map = None if found else RowMap(norm="clip", data_norm=self.data_norm_)
        coef = np.concatenate([np.atleast_2d(self.coef_), self._interaction_weights.T], axis=1)
        more = self._interactions
        return LinearScores.of_columns(coef, self._weight_noise, row_map=row_map, interactions=more)


# Classifiers ------------------------------------------------------------------------------------


def _has_probabilities(estimator: PrivateClassifier) -> bool:
    loss = CLASSIFIER_LOSSES.get(estimator.loss)
    if loss is not None and not loss.probabilistic:
        raise AttributeError(
            f"loss={estimator.loss!r} gives no probabilities: use decision_function, or"
            " loss='log_loss'."
        )
    return True


class PrivateClassifier(ClassifierMixin, CallbackSupportMixin, PrivateEstimator):
    """Base class of private classifiers that predict by scores: labels and predictions."""

    # Parameters that every subclass has.
    loss: str
    class_weight: dict[Any, float] | None
    classes: Any
    device: Any

    classes_: np.ndarray

    # Public surface -------------------------------------------------------------------------

    @nameless
    @by_blocks
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, positive where the second is predicted.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @nameless
    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels, each from ``classes_``.
        """
        scores = self._scores(X)
        best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[best.astype(np.intp)]

    @available_if(_has_probabilities)
    @nameless
    @by_blocks
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        with np.errstate(divide="ignore"):  # log 0 is -inf, as it should be
            return np.log(self.predict_proba(X))

    @available_if(_has_probabilities)
    @nameless
    @by_blocks
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        return CLASSIFIER_LOSSES[self.loss].predict(self._scores(X))

    @nameless
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Accuracy. Of private rows it is private: :func:`private_score` gives one that may be
            published.
        """
        self._warn_of_score()
        return exact_accuracy(self, X, y, sample_weight)

    def _scores(self, X: Any) -> np.ndarray:
        """Return scores of rows: one column for two classes, else one per class."""
        raise NotImplementedError

    # Labels ---------------------------------------------------------------------------------

    def _labelled(self, given: FitData) -> tuple[Data, Labels]:
        """Return checked data, and facts about the labels."""
        X, y, groups, X_public, y_public = given
        X, y = check_rows_and_labels(self, X, y, groups=groups)
        records = check_groups(groups, X)
        classes, codes = check_classes(y, self.classes, grouped=records.grouped)
        log_weights = log_class_weights(self.class_weight, classes)
        public = None
        if X_public is not None or y_public is not None:
            sets = check_public_rows(self, X, X_public, records)
            public = PublicRows.of(sets, check_public_labels(y_public, X_public, sets, classes))
        how = "read from y" if self.classes is None else "given"
        assumed = [f"set of labels ({len(classes)}, {how})"]
        assumed += [] if self.class_weight is None else ["class weights"]
        offset = np.diff(log_weights) if len(classes) == 2 else log_weights
        labels = Labels(classes, offset, tuple(assumed))
        return Data(X, codes, len(classes), records, public), labels

    def _checked_loss(self) -> Loss:
        """Return the loss; ValueError if it is not valid, or does not allow class weights."""
        loss = CLASSIFIER_LOSSES[check_choice("loss", self.loss, list(CLASSIFIER_LOSSES))]
        if self.class_weight is not None and not loss.probabilistic:
            raise ValueError(
                f"`class_weight` multiplies probabilities, which loss={self.loss!r} does not"
                " give. Use loss='log_loss', or shift the scores by a public threshold."
            )
        return loss


@dataclass(frozen=True)
class Labels:
    """Facts about the labels of a fit."""

    classes: np.ndarray  # (n_classes,): sorted labels
    offset: np.ndarray  # (1,): added to the scores by class weights
    assumed: tuple[str, ...]  # Facts about them that the guarantee assumes to be public


class LinearClassifier(PrivateClassifier):
    """Base class of linear classifiers: maps of rows, the weights, and the fit."""

    _takes_collections = True

    # Parameters that every subclass has.
    fit_intercept: bool
    row_norm: str | float | None

    # Set by `fit`.
    classes_: np.ndarray
    n_iter_: int
    learning_rate_: float | None
    clip_norm_: float
    mean_: np.ndarray
    mean_error_: float
    radius_: float
    intercept_: np.ndarray
    coef_: np.ndarray

    _saved: ClassVar = {
        **FEATURES,
        "classes_": LabelArray("classes"),
        **_TRAINED,
        "mean_error_": Sometimes(Number(0, math.inf)),
        "radius_": Sometimes(Number(0, math.inf)),
        "offset_": NumberArray(("outputs",), low=-math.inf, high=math.inf),
        "_doubt": Maybe(DOUBT_FORM),
        "_fitted_row_map": ROW_MAP_FORM,
        "intercept_": NumberArray(("outputs",)),
        "coef_": NumberArray(("outputs", "features")),
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> LinearFit:
        """Return the plan of the fit; ValueError if a parameter is out of its range."""
        target, loss = checked_target(self), self._checked_loss()
        constant = check_bool("fit_intercept", self.fit_intercept)
        bias = auto.BIAS if constant else None
        return LinearFit(
            target=target,
            loss=loss,
            bounds=MappedRows(_row_map(self.row_norm, bias)),
            descent=checked_descent(self),
            interacting=True,
            constant=constant,
        )

    def _check(self, plan: LinearFit, given: FitData) -> CheckedFit:
        """Return the checked plan and data of the fit; ValueError if the data cannot be used."""
        data, labels = self._labelled(given)
        if plan.guide is not None:
            plan.guide.check_public(self, data.public)
        public = [*labels.assumed[:1]]
        if isinstance(self.row_norm, Real):
            public.append(f"bound on row norms ({self.row_norm:g})")
        public += labels.assumed[1:]
        public += [] if data.public is None else [data.public.assumption]
        return CheckedFit(plan, data, tuple(public), labels)

    def _warn_after_fit(self, found: Fitted, budget: Budget, checked: CheckedFit) -> None:
        """Warn if released numbers show that the fit is poor."""
        warn_of_classifier(self, found, budget, checked)

    def _warn_before_fit(
        self, plan: LinearFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        """Warn if public quantities already show that the fit will probably be poor."""
        if plan.decides_weights(sizes):
            return  # released numbers decide how many weights there are
        n_samples, n_weights = guarantee.n_samples, self.n_features_in_ + 1
        assert n_samples is not None  # the guarantee of a fit has it
        warn_of_noise(self, budget, guarantee, n_samples, n_weights, auto.HIDING)

    def _store(self, found: Fitted, labels: Labels) -> None:
        """Store the attributes that predictions need."""
        self.classes_ = labels.classes
        self.n_iter_, self.learning_rate_ = found.n_iter, found.learning_rate
        self.clip_norm_ = found.clip_norm
        weights, offset = found.weights, labels.offset
        if found.shift is not None:
            weights, constant = found.shift.undo(weights)
            offset = offset + constant
            self.mean_, self.mean_error_ = found.shift.mean, found.shift.error
            self.radius_ = found.radius
        if found.intercept is not None:
            offset = offset + found.intercept
        row_map = found.limits.row_map
        self.intercept_ = np.zeros(weights.shape[1])
        if row_map.bias is not None:
            self.intercept_ = weights[-1].copy()
        self.offset_, self._doubt = offset, found.doubt
        self._fitted_row_map, self._weight_noise = row_map, found.noise
        self._interactions = found.interactions
        self._interaction_weights = found.interaction_weights
        self.coef_ = np.ascontiguousarray(weights[: self.n_features_in_].T)  # last: can predict

    def _linear_scores(self) -> LinearScores:
        row_map, noise = self._fitted_row_map, self._weight_noise
        weights = [self.coef_.T, self._interaction_weights, self.intercept_[None]]
        bias, more = row_map.bias or 0.0, self._interactions
        return LinearScores(np.concatenate(weights), bias, row_map, None, noise, interactions=more)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False)
        row_map = self._fitted_row_map
        with np.errstate(all="ignore"):
            factors = row_map.factors(X)[0]
            weights = self.coef_.T
            if row_map.bias is not None:
                weights = np.concatenate([weights, self.intercept_[None, :]])
            scores = FeatureBlock(X, factors, row_map.bias, None).scores(weights) + self.offset_
            if self._interactions is not None:
                scores += factors[:, None] * self._interactions.scores(X, self._interaction_weights)
            return scores


def _row_map(row_norm: Any, bias: float | None) -> RowMap:
    """Return the map of rows; ValueError if `row_norm` names none."""
    if isinstance(row_norm, Real) and not isinstance(row_norm, bool):
        data_norm = check_real("row_norm", row_norm, low=1e-50, high=1e50)
        return RowMap(norm="clip", data_norm=float(data_norm), bias=bias)
    if row_norm not in ("l2", None):
        raise ValueError(
            "`row_norm` must be 'l2', a number (a public bound on the norm of rows) or None, got"
            f" {shown(row_norm)}."
        )
    return RowMap(norm=row_norm, bias=bias)


def refuse_unbounded(row_norm: Any) -> None:
    """Raise ValueError if rows have no bound, since their mean is to be released."""
    if row_norm is None:
        raise ValueError(
            "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
            " private. Use row_norm='l2', or a number that is a public bound on their norm."
        )
