"""Private linear classifiers: full-batch DP-SGD without per-example gradients.

Design note. Both estimators are one fit: bound the rows, release their mean or not,
train, map the weights back. They differ in the share of the budget that the mean gets
(zero or not), so they share every line that a privacy claim rests on.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._array import Array, row_norms
from dpsubspace._compat import CallbackSupportMixin, start_progress, with_callbacks
from dpsubspace._gradients import LinearSource
from dpsubspace._inputs import (
    check_auto,
    check_bool,
    check_choice,
    check_classes,
    check_integer,
    check_real,
    check_rows,
    check_rows_and_labels,
    log_class_weights,
)
from dpsubspace._losses import LOSSES
from dpsubspace._moments import noisy_mean
from dpsubspace._noise import NEIGHBORING_RELATIONS, NoiseSource, as_noise
from dpsubspace._privacy import (
    PrivacyGuarantee,
    calibrate,
    composed,
    default_delta,
    epsilon_of,
    gaussian,
    non_private,
    warn_about_delta,
)
from dpsubspace._scaling import ROW_NORMS, RowMap, Shift
from dpsubspace._training import FlatStep, TrainingPlan, train
from dpsubspace.exceptions import PrivacyWarning

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["DPSGDClassifier", "DPSGDFClassifier"]

# The constant entry of centred rows, in units of the clip norm. Its gradient is this times
# the residual, so that it alone does not fill what clipping lets through.
_CENTRED_BIAS = 0.6


@dataclass(frozen=True)
class _Budget:
    """Noise multipliers of one fit and the event that they add up to.

    A fit takes the number of its steps and whether it is private from here and not from
    its parameters, so that what runs is what is charged.
    """

    n_iter: int
    mean: float  # inf where there is no mean: a release that says nothing
    step: float
    event: DpEvent

    @property
    def private(self) -> bool:
        return self.step > 0

    @classmethod
    def shared(cls, multiplier: float, n_iter: int, mean_share: float) -> _Budget:
        """Split a Gaussian of `multiplier` between the mean and `n_iter` steps.

        Shares are shares of mu^2 = 1 / multiplier^2, so the parts compose to it exactly.
        """
        step = multiplier * math.sqrt(n_iter / (1 - mean_share))
        if not mean_share:
            return cls(n_iter, math.inf, step, gaussian(step, n_iter))
        mean = multiplier / math.sqrt(mean_share)
        return cls(n_iter, mean, step, composed([gaussian(mean), gaussian(step, n_iter)]))


class _LinearClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """What the private linear classifiers share: all but the private mean."""

    privacy_unit = "row"

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        loss: str = "log_loss",
        alpha: float = 1e-4,
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        row_norm: str | None = "l2",
        data_norm: float | None = None,
        class_weight: dict | None = None,
        classes: Any = None,
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
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.row_norm = row_norm
        self.data_norm = data_norm
        self.class_weight = class_weight
        self.classes = classes
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any):
        """Fit the model to private rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,)
            Private labels.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit(X, y)

    def privacy_event(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
    ) -> DpEvent:
        """Return what a fit would cost, before any data are seen.

        Parameters
        ----------
        n_samples : int, optional
            Number of private rows. Needed where ``delta="auto"``.
        n_features : int, optional
            Number of features. Not needed by this estimator.
        n_outputs : int, optional
            Number of outputs. Not needed by this estimator.

        Returns
        -------
        DpEvent
            The ``dp_accounting`` event that ``fit`` will store in ``privacy_.event``.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or a size that is needed was not given.
        """
        self._check_parameters()
        return self._budget(n_samples).event

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, positive where the second is predicted.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels out of ``classes_``.
        """
        scores = self._scores(X)
        best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes_[best.astype(np.intp)]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        with np.errstate(divide="ignore"):  # log 0 is -inf, as it should be
            return np.log(self.predict_proba(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        return LOSSES[self.loss].predict(self._scores(X))

    # The fit --------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, present: np.ndarray | None = None):
        """Fit with the records where `present` is False as null records.

        Only tests and audits pass `present`: it makes neighbours under ``"zero_out"``.
        """
        self._check_parameters()
        X, y = check_rows_and_labels(self, X, y)
        classes, codes = check_classes(y, self.classes)
        log_weights = log_class_weights(self.class_weight, classes)
        noise = as_noise(self.random_state)
        budget = self._budget(len(X))
        guarantee = self._guarantee(budget, noise, len(X), X.shape[1], len(classes))
        n_outputs = LOSSES[self.loss].n_outputs(len(classes))
        noise_ratio = budget.step * math.sqrt((X.shape[1] + 1) * n_outputs) / len(X)
        self._warn(guarantee, noise_ratio, len(X))
        row_map = self._row_map()
        clip_norm = self._clip_norm(row_map) if budget.private else math.inf
        # Whatever floating point has to say about single rows must not be heard.
        with np.errstate(all="ignore"):
            rows = row_map(X)
            plan = self._plan(budget, noise_ratio, row_map, rows)
            # From the first callback on, parameters may change: nothing that the noise
            # depends on is read from them below.
            after_step, finish = start_progress(self, budget.n_iter)
            self._start_spending(guarantee)  # from here on, failing costs what succeeding costs
            shift = self._shift(rows, row_map, budget, guarantee, noise, present)
            features = rows if shift is None else shift.apply(rows)
            penalised = np.zeros((features.shape[1], 1))
            penalised[: X.shape[1]] = 1.0  # not the bias entries
            weights = train(
                plan,
                FlatStep(clip_norm=clip_norm, present=present),
                LinearSource(LOSSES[self.loss], features, codes),
                np.zeros((features.shape[1], n_outputs)),
                penalised,
                noise=noise.child("steps"),
                after_step=after_step,
            )
        finish()

        offset = np.diff(log_weights) if n_outputs == 1 else log_weights
        if shift is not None:
            weights, constant = shift.undo(weights)
            offset = offset + constant
            self.mean_ = shift.mean
        self.classes_ = classes
        biased = row_map.bias is not None
        self.intercept_ = weights[-1].copy() if biased else np.zeros(n_outputs)
        self.offset_ = offset
        self.n_iter_ = plan.n_iter
        self.learning_rate_ = plan.learning_rate
        self.clip_norm_ = clip_norm
        self._fitted_row_map = row_map
        self.coef_ = np.ascontiguousarray(weights[: X.shape[1]].T)  # last: now it can predict
        return self

    def _start_spending(self, guarantee: PrivacyGuarantee) -> None:
        """Record the cost and forget an earlier fit, just before the first release."""
        for name in ("coef_", "intercept_", "offset_", "mean_", "classes_"):
            self.__dict__.pop(name, None)
        self.privacy_ = guarantee

    def _shift(
        self,
        rows: Array,
        row_map: RowMap,
        budget: _Budget,
        guarantee: PrivacyGuarantee,
        noise: NoiseSource,
        present: np.ndarray | None,
    ) -> Shift | None:
        """Shift by a released mean, if the estimator buys one."""
        return None

    def _mean_share(self) -> float:
        """Share of the budget (of mu^2) that a mean of the rows gets."""
        return 0.0

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        rows = self._fitted_row_map(check_rows(self, X, reset=False))
        n_features = self.coef_.shape[1]
        scores = rows[:, :n_features] @ self.coef_.T.astype(rows.dtype) + self.offset_
        if rows.shape[1] > n_features:
            scores += rows[:, n_features:] * self.intercept_
        return scores

    # Parameters and what follows from them --------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise ValueError for any parameter out of its range, before data are touched."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "set either `epsilon` or `noise_multiplier` and leave the other None, got"
                f" epsilon={self.epsilon!r} and noise_multiplier={self.noise_multiplier!r}."
            )
        # Beyond these limits accountants lose digits, and no use is known.
        if self.epsilon is None:
            check_real("noise_multiplier", self.noise_multiplier, low=1e-6, high=1e12)
        elif isinstance(self.epsilon, bool) or self.epsilon != math.inf:
            check_real("epsilon", self.epsilon, low=1e-4, high=1e6, include_low=True)
        check_auto("delta", self.delta, low=1e-100, high=1)
        check_choice("neighboring_relation", self.neighboring_relation, NEIGHBORING_RELATIONS)
        check_choice("loss", self.loss, list(LOSSES))
        check_bool("fit_intercept", self.fit_intercept)
        check_bool("average", self.average)
        check_choice("row_norm", self.row_norm, ROW_NORMS)
        if self.row_norm == "clip":
            hint = "row_norm='clip' needs it: a bound on row norms from public knowledge."
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50, hint=hint)
        elif self.data_norm is not None:
            raise ValueError(
                f"`data_norm`={self.data_norm!r} bounds rows with row_norm='clip' only, got"
                f" row_norm={self.row_norm!r}. Leave it None, or set row_norm='clip'."
            )
        check_real("intercept_scaling", self.intercept_scaling, low=1e-50, high=1e50)
        check_real("alpha", self.alpha, low=0, high=1e50, include_low=True)
        if self.n_iter != "auto":
            check_integer("n_iter", self.n_iter, low=1, high=10**9)
        check_auto("learning_rate", self.learning_rate, low=0, high=1e50)
        check_auto("clip_norm", self.clip_norm, low=1e-10, high=1e50)
        check_auto("momentum", self.momentum, low=0, high=1, include_low=True)

    def _row_map(self) -> RowMap:
        bias = float(self.intercept_scaling) if self.fit_intercept else None
        return RowMap(norm=self.row_norm, data_norm=self.data_norm, bias=bias)

    def _delta(self, n_samples: int | None) -> float:
        if self.delta != "auto":
            return float(self.delta)
        if n_samples is None:
            raise ValueError("delta='auto' depends on `n_samples`: pass it, or set `delta`.")
        return default_delta(check_integer("n_samples", n_samples, low=1))

    def _n_iter(self) -> int:
        if self.n_iter != "auto":
            return int(self.n_iter)
        # Without noise the run ends at a stationary point; the number is a safety net.
        return 5_000 if self.epsilon == math.inf else 100

    def _clip_norm(self, row_map: RowMap) -> float:
        """Half the bound on a row: half the noise, which outweighs the gradients it shortens."""
        return 0.5 * _scale(row_map) if self.clip_norm == "auto" else float(self.clip_norm)

    def _budget(self, n_samples: int | None) -> _Budget:
        """Noise multipliers from epsilon (or the expert's multiplier) and their event."""
        n_iter, share = self._n_iter(), self._mean_share()
        if self.epsilon == math.inf:
            return _Budget(n_iter, 0.0, 0.0, non_private())
        if self.epsilon is not None:
            multiplier = calibrate(
                lambda m: _Budget.shared(m, n_iter, share).event,
                epsilon=float(self.epsilon),
                delta=self._delta(n_samples),
                neighboring_relation=self.neighboring_relation,
            )
        else:
            step = float(self.noise_multiplier or 0.0)  # checked: one of the two is given
            multiplier = step * math.sqrt((1 - share) / n_iter)
        return _Budget.shared(multiplier, n_iter, share)

    def _guarantee(
        self, budget: _Budget, noise: NoiseSource, n_samples: int, n_features: int, n_classes: int
    ) -> PrivacyGuarantee:
        delta = self._delta(n_samples)
        relation = self.neighboring_relation
        epsilon = self.epsilon
        if epsilon is None:
            epsilon = epsilon_of(budget.event, delta, neighboring_relation=relation)
        public = [
            f"number of records ({n_samples})",
            f"number and names of features ({n_features})",
            f"set of labels ({n_classes}, {'read from y' if self.classes is None else 'given'})",
        ]
        if self.row_norm == "clip":
            public.append(f"bound on row norms ({self.data_norm:g})")
        if self.class_weight is not None:
            public.append("class weights")
        return PrivacyGuarantee(
            event=budget.event,
            epsilon=float(epsilon),
            delta=delta,
            neighboring_relation=relation,
            unit=self.privacy_unit,
            secure=noise.secure,
            public=(*public, "all parameters but random_state", "that the data pass the checks"),
        )

    def _plan(
        self, budget: _Budget, noise_ratio: float, row_map: RowMap, rows: Array
    ) -> TrainingPlan:
        """How to train; only without privacy is anything chosen from `rows`."""
        momentum = 0.9 if budget.private else None
        if self.momentum != "auto":
            momentum = float(self.momentum)
        if self.learning_rate != "auto":
            learning_rate = float(self.learning_rate)
        elif budget.private:
            # In units in which a clipped gradient moves a score by about 1. The noisier a
            # step (noise norm over the largest signal), the shorter the way worth going.
            units = self._clip_norm(row_map) * _scale(row_map)
            learning_rate = min(4.0, 0.6 / noise_ratio) / units
            if self.alpha:
                learning_rate = min(learning_rate, 1 / self.alpha)
        else:
            # A shift takes from the mean square of the rows, its constant adds to it.
            constant = _CENTRED_BIAS * self._clip_norm(row_map)
            sq_norm = float((row_norms(rows) ** 2).mean()) + constant**2
            learning_rate = 1 / (LOSSES[self.loss].curvature * sq_norm + self.alpha)
        return TrainingPlan(
            n_iter=budget.n_iter,
            noise_multiplier=budget.step,
            n_samples=rows.shape[0],
            learning_rate=learning_rate,
            momentum=momentum,
            alpha=float(self.alpha),
            average=bool(self.average) and budget.private,
            neighboring_relation=self.neighboring_relation,
            tolerance=0.0 if budget.private else 1e-6,
        )

    def _warn(self, guarantee: PrivacyGuarantee, noise_ratio: float, n_samples: int) -> None:
        """Warn of what public quantities already tell to be a bad idea."""
        if guarantee.epsilon == math.inf:
            return
        warn_about_delta(guarantee.delta, n_samples, stacklevel=5)
        if noise_ratio > 1:
            warnings.warn(
                f"the noise of a step is {noise_ratio:.2g} times the largest gradient that"
                f" {n_samples} rows can have: expect a poor model. More rows, fewer features"
                " or a larger epsilon help.",
                PrivacyWarning,
                stacklevel=5,
            )


def _scale(row_map: RowMap) -> float:
    """Public size of a mapped row; rows that nothing bounds are taken to be of size 1."""
    return row_map.bound if row_map.bound < math.inf else 1.0


class DPSGDClassifier(_LinearClassifier):
    """Differentially private logistic regression by full-batch DP-SGD.

    Each step sums the clipped gradients of all records and adds Gaussian noise. Gradients
    of a linear model are outer products, so they are clipped in closed form and a private
    step costs about as much as one without privacy. Several classes share one model and
    one budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6. ``float("inf")`` trains without clipping and noise.
        None where `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record is a null record, or what it is. The
        second needs twice the noise. The number of records is public in both.
    loss : {"log_loss"}, default="log_loss"
        Multinomial log loss, which for two classes is the logistic loss.
    alpha : float, default=1e-4
        Weight of the penalty ``alpha / 2 * ||coef_||^2`` beside the mean loss. The
        intercept is not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100, and without privacy as
        many as a stationary point takes, up to 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from `clip_norm` and from the ratio of noise to
        signal, both public.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9, and without privacy grows and restarts.
    average : bool, default=True
        Whether to return the mean of the last half of the steps, which averages noise out.
        Without privacy the last step is returned.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record. "auto" is half the bound on a row.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip", None}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`; None changes nothing. Every affine decision boundary is kept.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class; 1 where a class is missing. Predicted
        probabilities are multiplied by it (Elkan, 2001), which costs no noise, where
        weighted gradients would. "balanced" would count private labels and is refused.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights; they act on rows after the map of `row_norm`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry: without class weights, the boundary of two classes
        in the original rows is ``coef_ @ x + intercept_scaling * intercept_ = 0``.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: the logarithm of the class weights.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged.
    learning_rate_ : float
        Step size used.
    clip_norm_ : float
        Clip norm used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDFClassifier : The same on rows centred by their private mean.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released: the sum of clipped gradients of every step, which has L2 sensitivity C
    (``"zero_out"``) or 2C (``"replace_one"``) with C = `clip_norm`; the model is a
    function of these. Event: ``n_iter`` Gaussian mechanisms of one multiplier, calibrated
    exactly (Dong, Roth, Su, 2022) and never above `epsilon`. The unit is one row. Assumed
    public: the numbers of rows and features, the set of labels, `data_norm`,
    `class_weight` and all other parameters.

    Columns in different units need public scaling first: with ``row_norm="l2"`` the
    column with the largest numbers decides the direction of a row. Clipping and noise bias
    probabilities, most for rare classes, which mostly come out too low, often by more than
    half: use them to rank, and calibrate on public rows where absolute risks matter.

    A scaler fitted on the private rows, cross-validation scores and everything else
    computed from them are *not* covered; see ``docs/privacy.md``. The guarantee is for
    real numbers, floating-point attacks are not ruled out.

    ``fit`` makes one copy of `X`, mapped.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Dong, Roth, Su. "Gaussian differential privacy". JRSS-B 84(1), 2022.

    Elkan. "The foundations of cost-sensitive learning". IJCAI 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> model = DPSGDClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> model.score(X_test, y_test) > 0.87
    True
    """


class DPSGDFClassifier(_LinearClassifier):
    """DP-SGD with private feature preprocessing: rows are centred by their private mean.

    Rows that share a large common part have gradients that share it too; clipping then
    keeps the common part and drowns what tells the classes apart. A small share of the
    budget buys a noisy mean of the rows, training runs on rows shifted by it, and the
    weights are mapped back to unshifted rows.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for the mean and the training together.
        ``float("inf")`` trains without clipping and noise. None where
        `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record is a null record, or what it is. The
        second needs twice the noise. The number of records is public in both.
    mean_share : float or "auto", default="auto"
        Share in (0, 1) of the budget (of mu^2) that the mean gets. "auto" is 0.05.
    loss : {"log_loss"}, default="log_loss"
        Multinomial log loss, which for two classes is the logistic loss.
    alpha : float, default=1e-4
        Weight of the penalty ``alpha / 2 * ||coef_||^2`` beside the mean loss. The
        intercept is not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100, and without privacy as
        many as a stationary point takes, up to 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from `clip_norm` and from the ratio of noise to
        signal, both public.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9, and without privacy grows and restarts.
    average : bool, default=True
        Whether to return the mean of the last half of the steps, which averages noise out.
        Without privacy the last step is returned.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record. "auto" is half the bound on a row.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to the centred rows.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip"}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`. The mean needs one of them: without a bound it has no sensitivity.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class; 1 where a class is missing. Predicted
        probabilities are multiplied by it (Elkan, 2001), which costs no noise, where
        weighted gradients would. "balanced" would count private labels and is refused.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`. The mean's follows from `mean_share`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights; they act on rows after the map of `row_norm` (and before centring).
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry; zero without an intercept.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: what the shift leaves, the trained constant and the
        logarithm of the class weights.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Released mean of the mapped rows, with that of their bias entry.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged.
    learning_rate_ : float
        Step size used.
    clip_norm_ : float
        Clip norm used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDClassifier : The same without centring.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released: the sum of the mapped rows, of L2 sensitivity R (``"zero_out"``) or 2R
    (``"replace_one"``) with R = 1 for "l2" and ``hypot(data_norm, intercept_scaling)`` for
    "clip"; then, as in :class:`DPSGDClassifier`, the sum of clipped gradients of every
    step, of sensitivity C or 2C. Event: one Gaussian mechanism and ``n_iter`` more,
    calibrated together and exactly, never above `epsilon`. The unit is one row. Assumed
    public: the numbers of rows and features, the set of labels, `data_norm`,
    `class_weight` and all parameters.

    This is the practical version of the paper (its Algorithm 3). The paper leaves the
    neighbouring relation of the mean unstated and does not charge its grid search; here
    both relations are supported and the defaults need no search. A linear score of
    shifted rows and a constant is a linear score of the rows, their bias entry and a
    constant: ``W @ (r - m) + c = W @ r + (c - W @ m)``.

    Columns in different units need public scaling first, and probabilities are biased by
    clipping; see :class:`DPSGDClassifier`.

    Centring pays where rows share a common part (images, counts) and can cost a little
    where they do not.

    References
    ----------
    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import DPSGDFClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> model.score(X_test, y_test) > 0.87
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        mean_share: float | str = "auto",
        loss: str = "log_loss",
        alpha: float = 1e-4,
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        row_norm: str | None = "l2",
        data_norm: float | None = None,
        class_weight: dict | None = None,
        classes: Any = None,
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            loss=loss,
            alpha=alpha,
            n_iter=n_iter,
            learning_rate=learning_rate,
            momentum=momentum,
            average=average,
            clip_norm=clip_norm,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            row_norm=row_norm,
            data_norm=data_norm,
            class_weight=class_weight,
            classes=classes,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.mean_share = mean_share

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_auto("mean_share", self.mean_share, low=0, high=1)
        if self.row_norm is None:
            raise ValueError(
                "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
                " private. Use row_norm='l2', or 'clip' with a public data_norm."
            )

    def _mean_share(self) -> float:
        return 0.05 if self.mean_share == "auto" else float(self.mean_share)

    def _shift(
        self,
        rows: Array,
        row_map: RowMap,
        budget: _Budget,
        guarantee: PrivacyGuarantee,
        noise: NoiseSource,
        present: np.ndarray | None,
    ) -> Shift | None:
        mean = noisy_mean(
            rows,
            row_map.bound,
            budget.mean,
            noise=noise.child("mean"),
            neighboring_relation=guarantee.neighboring_relation,
            present=present,
        )
        constant = None if row_map.bias is None else _CENTRED_BIAS * self._clip_norm(row_map)
        return Shift(mean, constant)
