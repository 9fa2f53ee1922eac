"""What private linear classifiers share: labels, row maps, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsubspace import _auto
from dpsubspace._array import Array
from dpsubspace._checks import check_choice, check_real, shown
from dpsubspace._compat import nameless
from dpsubspace._estimators.linear_model import Bounded, LinearModel, Releases, Trained
from dpsubspace._gradients.losses import CLASSIFIER_LOSSES
from dpsubspace._rows.features import FeatureBlock
from dpsubspace._rows.inputs import (
    check_classes,
    check_rows,
    check_rows_and_labels,
    log_class_weights,
)
from dpsubspace._rows.maps import ROW_NORMS, RowMap
from dpsubspace._rows.public import PublicRows, check_public_labels, check_public_rows

__all__ = ["LinearClassifier"]


def _has_probabilities(estimator: LinearClassifier) -> bool:
    loss = CLASSIFIER_LOSSES.get(estimator.loss)
    if loss is not None and not loss.probabilistic:
        raise AttributeError(
            f"loss={estimator.loss!r} gives no probabilities: use decision_function, or"
            " loss='log_loss'."
        )
    return True


class LinearClassifier(ClassifierMixin, LinearModel):
    """What the private linear classifiers share: all but the private mean."""

    _losses = CLASSIFIER_LOSSES

    @nameless
    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        loss: str = "log_loss",
        alpha: float = 1e-6,
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        row_norm: str | None = "l2",
        data_norm: float | None = None,
        class_weight: dict | None = None,
        classes: Any = None,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.loss = loss
        self.alpha = alpha
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.clip_norm = clip_norm
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.row_norm = row_norm
        self.data_norm = data_norm
        self.class_weight = class_weight
        self.classes = classes
        self.microbatch_size = microbatch_size
        self.device = device
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    @nameless
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        present: np.ndarray | None = None,
        *,
        X_public: Any = None,
        y_public: Any = None,
    ):
        """Fit with the records where `present` is False as null records.

        Only tests and audits pass `present`: it makes neighbours under ``"zero_out"``.
        """
        self._check_parameters()
        X, y = check_rows_and_labels(self, X, y)
        classes, codes = check_classes(y, self.classes)
        log_weights = log_class_weights(self.class_weight, classes)
        sets = check_public_rows(self, X, X_public)
        labels = check_public_labels(y_public, X_public, sets, classes)
        public = self._public(sets, labels)
        how = "read from y" if self.classes is None else "given"
        assumed = [f"set of labels ({len(classes)}, {how})"]
        if self.row_norm == "clip":
            assumed.append(f"bound on row norms ({self.data_norm:g})")
        if self.class_weight is not None:
            assumed.append("class weights")
        assumed += [] if public is None else [public.statement]
        trained = self._train(X, codes, len(classes), tuple(assumed), present, public)
        self.classes_ = classes
        self.n_iter_ = trained.n_iter
        self.learning_rate_ = trained.learning_rate
        self.clip_norm_ = trained.clip_norm
        offset = np.diff(log_weights) if len(classes) == 2 else log_weights
        self._keep(trained, offset)  # last: now it can predict
        self._tell(trained)
        return self

    def _keep(self, trained: Trained, offset: np.ndarray) -> None:
        """Store what predictions need, with a constant to add to the scores."""
        weights, n_outputs = trained.weights, trained.weights.shape[1]
        if trained.shift is not None:
            weights, constant = trained.shift.undo(weights)
            offset = offset + constant
            self.mean_ = trained.shift.mean
            self.radius_ = trained.radius
        biased = trained.bounded.row_map.bias is not None
        self.intercept_ = weights[-1].copy() if biased else np.zeros(n_outputs)
        self.offset_ = offset
        self._fitted_row_map = trained.bounded.row_map
        self.coef_ = np.ascontiguousarray(weights[: self.n_features_in_].T)

    def _row_map(self) -> RowMap:
        bias = float(self.intercept_scaling) if self.fit_intercept else None
        return RowMap(norm=self.row_norm, data_norm=self.data_norm, bias=bias)

    def _row_bound(self) -> float:
        return self._row_map().bound

    def _bound(
        self, X: Array, targets: Array, releases: Releases, public: PublicRows | None
    ) -> Bounded:
        return Bounded(self._row_map(), targets)

    def _bearable(self) -> float:
        return _auto.HIDING

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

    # Parameters -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("row_norm", self.row_norm, ROW_NORMS)
        if self.row_norm == "clip":
            hint = "row_norm='clip' needs it: a bound on row norms from public knowledge."
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50, hint=hint)
        elif self.data_norm is not None:
            raise ValueError(
                f"`data_norm`={shown(self.data_norm)} bounds rows with row_norm='clip' only, got"
                f" row_norm={self.row_norm!r}. Leave it None, or set row_norm='clip'."
            )
        if self.class_weight is not None and not self._losses[self.loss].probabilistic:
            raise ValueError(
                f"`class_weight` multiplies probabilities, which loss={self.loss!r} does not"
                " give. Use loss='log_loss', or shift the scores by a public threshold."
            )
