"""Private recalibration: one or two numbers that make the probabilities of a fitted model right.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.calibration.CalibrationPlan`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import CheckedFit, ExactAccuracy, FitData
from dpsubspace._core.fits.held_out import (
    HeldOutEstimator,
    check_frozen,
    held_out_labels,
    pure_target,
)
from dpsubspace._core.fits.outputs import by_blocks_like
from dpsubspace._core.ground.checks import check_choice
from dpsubspace._core.ground.forms import LabelArray, Number
from dpsubspace._core.plans.calibration import CalibrationMap, CalibrationPlan, warn_of_few
from dpsubspace._names import public


@public
class DPCalibratedClassifier(ExactAccuracy, HeldOutEstimator):
    """Calibrate probabilities of a fitted classifier, privately, on rows that were held out.

    Private training biases probabilities: mostly they are too near to each other. One number
    (or two) sets that right, which little privacy and few rows are enough for. Where they
    are not, the probabilities stay as they are.

    Parameters
    ----------
    estimator : object
        Fitted estimator or Pipeline, of which nothing changes. It is public, or private
        itself and paid for, and was not fitted on the rows that are given here. Wrap it in
        ``sklearn.frozen.FrozenEstimator`` where clones are made.
    method : {"temperature", "sigmoid"}, default="temperature"
        "temperature" multiplies the logarithms of the probabilities by one number, whatever the
        number of classes, and changes no prediction. "sigmoid" is for two classes: it multiplies
        the log-odds by one number and adds another (Platt's method), which also sets right how
        often the second class occurs, and may change predictions.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`. None is needed here: "auto" is
        0, and with another one there is next to no less noise.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the estimator.
    slope_ : float
        What logarithms of probabilities are multiplied by: 1 over the temperature. 1 leaves
        them as they are, less brings probabilities nearer to each other.
    intercept_ : float
        What is added to the log-odds of the second class; 0 for "temperature".
    privacy_ : PrivacyGuarantee
        What the fit cost (nothing, where there are too few rows to
        tell anything), and what its guarantee assumes. What the estimator cost is not in it.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DPConformalClassifier : Prediction sets that contain the true label as often as is asked for.
    DPSGDFClassifier : A private classifier, whose probabilities are biased.
    PrivacyLedger : Adds up what this and other fits cost.

    Notes
    -----
    Released: one candidate out of a public grid of slopes (129, from 1/32 to 8), or of slopes and
    intercepts (65 times 97), by the exponential mechanism on how near to right each makes the
    probabilities. A row says of a candidate how far the logarithm of the probability of its label
    is from what it should be on average if the probabilities were right, with logarithms cut to
    what is at most c below the largest, over c: a number in [-1, 1], whose mean is 0 where they
    are right. For "sigmoid" it is the pair ``(p - y) (s, 1) / sqrt(c^2 + s^2)``, with s the
    estimator's log-odds, of a norm up to 1. The cut c is public: 3, and more from
    ``epsilon * n = 300`` on (for "sigmoid" 1, and more from 200 on). The score of a candidate is
    minus the length of the sum over rows. A row moves each length by at most 1 (``"zero_out"``)
    or 2 (``"replace_one"``), so that two scores move apart by at most 2 or 4.
    Event: a bounded range of epsilon, without delta.
    Such sums find the best slope to within a constant times ``c / (epsilon n)``, where the
    exponential mechanism on clipped losses comes within ``1 / sqrt(epsilon n)`` only.

    Scores have a public part that prefers small changes, and what noise alone would bring about is
    taken off the result by a public rule. With ``epsilon * n_samples`` below 50
    (``"replace_one"``: 100) noise would hide the answer: nothing is released or charged, and
    probabilities stay as they are, with a warning. A slope repairs neither wrong labels
    nor a model that is right in one region of the features and wrong in another, and held-out rows
    that are unlike those that come later make it worse.

    The unit is one row. Assumed public: the numbers of rows and features, the estimator, that it
    treats each row by itself, and all parameters. The rows must be others than those of the
    estimator's fit: on those, probabilities look better than they are, and both fits add up. A
    warning says so as that of :func:`private_score` does.

    References
    ----------
    Asi, Duchi. "Instance-optimality in differential privacy via approximate inverse sensitivity
    mechanisms". NeurIPS 2020.

    Guo, Pleiss, Sun, Weinberger. "On calibration of modern neural networks". ICML 2017.

    Platt. "Probabilistic outputs for support vector machines". 1999.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.metrics import log_loss
    >>> from sklearn.utils import shuffle
    >>> from dpsubspace import DPSGDFClassifier
    >>> from dpsubspace.calibration import DPCalibratedClassifier
    >>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:800], y[:800])
    >>> right = DPCalibratedClassifier(model, epsilon=0.5, random_state=0)
    >>> _ = right.fit(X[800:1400], y[800:1400])
    >>> X, y = X[1400:], y[1400:]
    >>> log_loss(y, right.predict_proba(X)) < log_loss(y, model.predict_proba(X))
    True
    """

    _canary = "held-out labels"

    # Set by `fit`.
    classes_: np.ndarray
    intercept_: float
    slope_: float

    _saved: ClassVar = {
        **HeldOutEstimator._saved,
        "classes_": LabelArray("classes"),
        "intercept_": Number(),
        "slope_": Number(),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        method: str = "temperature",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.estimator = estimator
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Find the map of probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows that the estimator was not fitted on, as it takes them.
        y : array-like of shape (n_samples,)
            Their labels, from the classes of the estimator.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit_by(self._plan(), X, y, groups=groups)

    @by_blocks_like(lambda self: self._no_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        check_is_fitted(self, "slope_")
        if self.slope_ == 1.0 and self.intercept_ == 0.0:
            return np.asarray(self._frozen.model.predict_proba(X))
        logs = self._frozen.log_probabilities(X)
        if self.method == "temperature":
            return softmax(self.slope_ * logs, axis=1)
        odds = self.slope_ * (logs[:, 1] - logs[:, 0]) + self.intercept_
        return np.column_stack([expit(-odds), expit(odds)])

    @by_blocks_like(lambda self: self._no_labels)
    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels, each from ``classes_``.
        """
        check_is_fitted(self, "slope_")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> CalibrationPlan:
        method = check_choice("method", self.method, ("temperature", "sigmoid"))
        return CalibrationPlan(pure_target(self), method)

    def _check(self, plan: CalibrationPlan, given: FitData) -> CheckedFit:
        frozen = check_frozen(self.estimator, "predict_proba", "classifier")
        n_classes = len(frozen.classes)
        if plan.method == "sigmoid" and n_classes != 2:
            raise ValueError(
                f"method='sigmoid' is for two classes, and the estimator has {n_classes}: use"
                " method='temperature'."
            )
        data = held_out_labels(self, frozen, given)
        public = (f"the estimator and its labels ({n_classes})",)
        return CheckedFit(plan, data, public, (frozen, data.X.shape[1]))

    def _warn_before_fit(
        self, plan: CalibrationPlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        if not budget.parts:
            warn_of_few(plan.target, sizes.known("n_samples", "the warning"), guarantee.unit)

    def _store(self, found: CalibrationMap, about: Any) -> None:
        super()._store(found, about)
        self.classes_, self.intercept_ = self._frozen.classes, found.intercept
        self.slope_ = found.slope  # last: now it can predict
