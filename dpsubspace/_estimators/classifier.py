"""What private classifiers share: labels, predictions, and the fit of the linear ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Sizes
from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._checks import check_bool, check_choice, check_real, shown
from dpsubspace._compat import CallbackSupportMixin, nameless
from dpsubspace._estimators.advice import (
    noise_hides,
    tell_of_classes,
    tell_of_noise,
    tell_of_offset,
    tell_of_units,
    warn_of_noise,
)
from dpsubspace._estimators.base import PrivateEstimator, checked_target
from dpsubspace._estimators.bounds import MappedRows
from dpsubspace._estimators.fitting import checked_descent, fit_privately
from dpsubspace._estimators.lazy import accuracy_of_blocks, by_blocks
from dpsubspace._estimators.linear_fit import Fitted, LinearFit
from dpsubspace._gradients.losses import CLASSIFIER_LOSSES, Loss
from dpsubspace._release.noise import NoiseSource
from dpsubspace._rows.dask_parts import is_collection
from dpsubspace._rows.data import Data
from dpsubspace._rows.features import FeatureBlock
from dpsubspace._rows.inputs import (
    check_classes,
    check_rows,
    check_rows_and_labels,
    log_class_weights,
)
from dpsubspace._rows.maps import RowMap
from dpsubspace._rows.public import PublicRows, check_public_labels, check_public_rows
from dpsubspace._rows.records import check_groups

__all__ = ["Labels", "LinearClassifier", "PrivateClassifier", "refuse_unbounded"]


def _has_probabilities(estimator: PrivateClassifier) -> bool:
    loss = CLASSIFIER_LOSSES.get(estimator.loss)
    if loss is not None and not loss.probabilistic:
        raise AttributeError(
            f"loss={estimator.loss!r} gives no probabilities: use decision_function, or"
            " loss='log_loss'."
        )
    return True


class PrivateClassifier(ClassifierMixin, CallbackSupportMixin, PrivateEstimator):
    """What classifiers share that predict by scores: labels and predictions."""

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
            Labels out of ``classes_``.
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
        self._tell_of_score()
        if is_collection(X):
            return accuracy_of_blocks(self, X, y, sample_weight)
        return super().score(X, y, sample_weight)

    def _scores(self, X: Any) -> np.ndarray:
        """Scores of rows, a column for two classes and else one a class."""
        raise NotImplementedError

    # Labels ---------------------------------------------------------------------------------

    def _labelled(
        self,
        X: Any,
        y: Any,
        groups: Any,
        X_public: Any,
        y_public: Any,
        present: np.ndarray | None,
    ) -> tuple[Data, Labels]:
        """Checked data, and what is known of the labels."""
        X, y = check_rows_and_labels(self, X, y)
        records = check_groups(groups, X, present)
        classes, codes = check_classes(y, self.classes, grouped=records.grouped)
        log_weights = log_class_weights(self.class_weight, classes)
        sets = check_public_rows(self, X, X_public, records)
        public = PublicRows.of(sets, check_public_labels(y_public, X_public, sets, classes))
        how = "read from y" if self.classes is None else "given"
        assumed = [f"set of labels ({len(classes)}, {how})"]
        assumed += [] if self.class_weight is None else ["class weights"]
        offset = np.diff(log_weights) if len(classes) == 2 else log_weights
        labels = Labels(classes, offset, tuple(assumed))
        return Data(X, codes, len(classes), records, public), labels

    def _checked_loss(self) -> Loss:
        """The loss; ValueError where it, or class weights beside it, cannot be."""
        loss = CLASSIFIER_LOSSES[check_choice("loss", self.loss, list(CLASSIFIER_LOSSES))]
        if self.class_weight is not None and not loss.probabilistic:
            raise ValueError(
                f"`class_weight` multiplies probabilities, which loss={self.loss!r} does not"
                " give. Use loss='log_loss', or shift the scores by a public threshold."
            )
        return loss


@dataclass(frozen=True)
class Labels:
    """What a fit knows of its labels.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    offset : ndarray of shape (1,) or (n_classes,)
        What class weights add to the scores.
    assumed : tuple of str
        What the guarantee assumes to be public of them.
    """

    classes: np.ndarray
    offset: np.ndarray
    assumed: tuple[str, ...]


class LinearClassifier(PrivateClassifier):
    """What the linear ones share: maps of rows, weights, and the one fit."""

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
    radius_: float
    intercept_: np.ndarray
    coef_: np.ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> LinearFit:
        """Parameters of the fit; ValueError where one is out of its range."""
        target, loss = checked_target(self), self._checked_loss()
        constant = check_bool("fit_intercept", self.fit_intercept)
        bias = _auto.BIAS if constant else None
        return LinearFit(
            target=target,
            loss=loss,
            bounds=MappedRows(_row_map(self.row_norm, bias)),
            descent=checked_descent(self),
            constant=constant,
        )

    def _fit(
        self,
        X: Any,
        y: Any,
        present: np.ndarray | None = None,
        *,
        groups: Any = None,
        X_public: Any = None,
        y_public: Any = None,
        plan: LinearFit | None = None,
        noise: NoiseSource | None = None,
    ):
        """Fit with the records where `present` is False as null records, or by another plan.

        Only tests, audits and benchmarks pass `present`, which makes neighbours under
        ``"zero_out"``. A pipeline around this passes `plan` and `noise`.
        """
        plan = self._plan() if plan is None else plan
        data, labels = self._labelled(X, y, groups, X_public, y_public, present)
        if plan.guide is not None:
            plan.guide.check_public(self, data.public)
        public = [*labels.assumed[:1]]
        if isinstance(self.row_norm, Real):
            public.append(f"bound on row norms ({self.row_norm:g})")
        public += labels.assumed[1:]
        public += [] if data.public is None else [data.public.statement]
        advise = partial(self._advise, plan)
        found, budget = fit_privately(self, plan, data, tuple(public), advise, noise=noise)
        self._store(found, labels)
        told = tell_of_units(self, found, budget)
        if plan.decides_weights(data.sizes(1)):
            tell_of_noise(self, found, budget, _auto.HIDING)
        n_weights = self.n_features_in_ + 1
        if budget.private and not noise_hides(budget, data.records.n, n_weights, _auto.HIDING):
            # A fit that is mostly noise has been told of, and so is what it does.
            if not told and data.public is None:
                tell_of_offset(self, found, budget)
            tell_of_classes(self)
        return self

    def _advise(
        self, plan: LinearFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        """Warn of what public quantities already tell to be a bad idea."""
        if plan.decides_weights(sizes):
            return  # what is released tells how many there are
        n_weights = sizes.known("n_features", "the warning") + 1
        n_samples = sizes.known("n_samples", "the warning")
        warn_of_noise(self, budget, guarantee, n_samples, n_weights, _auto.HIDING)

    def _store(self, found: Fitted, labels: Labels) -> None:
        """Store what predictions need."""
        self.classes_ = labels.classes
        self.n_iter_, self.learning_rate_ = found.n_iter, found.learning_rate
        self.clip_norm_ = found.clip_norm
        weights, offset = found.weights, labels.offset
        if found.shift is not None:
            weights, constant = found.shift.undo(weights)
            offset = offset + constant
            self.mean_ = found.shift.mean
            self.radius_ = found.radius
        row_map = found.bounded.row_map
        self.intercept_ = np.zeros(weights.shape[1])
        if row_map.bias is not None:
            self.intercept_ = weights[-1].copy()
        self.offset_ = offset
        self._fitted_row_map, self._weight_noise = row_map, found.noise
        self.coef_ = np.ascontiguousarray(weights[: self.n_features_in_].T)  # last: can predict

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False)
        row_map = self._fitted_row_map
        with np.errstate(all="ignore"):
            factors = row_map.factors(X)[0]
            weights = self.coef_.T
            if row_map.bias is not None:
                weights = np.concatenate([weights, self.intercept_[None, :]])
            return FeatureBlock(X, factors, row_map.bias, None).scores(weights) + self.offset_


def _row_map(row_norm: Any, bias: float | None) -> RowMap:
    """Map of rows; ValueError where `row_norm` names none."""
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
    """ValueError where rows have no bound, and a mean of them is to be released."""
    if row_norm is None:
        raise ValueError(
            "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
            " private. Use row_norm='l2', or a number that is a public bound on their norm."
        )
