"""Private conformal prediction: sets of labels, and intervals, that hold the truth often enough.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.conformal.ConformalPlan`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes, Target
from dpsubspace._core.fits.estimator import CheckedFit, ExactAccuracy, ExactR2, FitData
from dpsubspace._core.fits.held_out import (
    HeldOutEstimator,
    check_frozen,
    held_out_labels,
    held_out_targets,
    pure_target,
)
from dpsubspace._core.fits.outputs import by_blocks_like
from dpsubspace._core.ground.checks import check_bounds, check_real
from dpsubspace._core.ground.forms import LabelArray, Maybe, Number, Pair
from dpsubspace._core.plans.conformal import IntervalPlan, LabelSetPlan, Threshold, cut
from dpsubspace._names import public


class _Conformal(HeldOutEstimator):
    """Base of both estimators: a threshold of scores, which are larger for worse predictions."""

    confidence_level: float  # Parameter of every subclass

    # Set by `fit`.
    expected_coverage_: float
    likely_coverage_: float

    _saved: ClassVar = {
        **HeldOutEstimator._saved,
        "expected_coverage_": Number(0, 1),
        "likely_coverage_": Number(0, 1),
    }

    def _asked(self) -> tuple[Target, float]:
        level = check_real("confidence_level", self.confidence_level, low=0, high=1)
        return pure_target(self), level

    def _budget(self, sizes: Sizes) -> Budget:  # budget for enough rows; no other costs more
        return self._plan().budget(sizes)

    def _store(self, found: Threshold, about: Any) -> None:
        super()._store(found, about)
        self.expected_coverage_, self.likely_coverage_ = found.on_average, found.nearly_always


@public
class DPConformalClassifier(ExactAccuracy, _Conformal):
    """Conformal prediction sets with a chosen coverage, calibrated privately on held-out rows.

    A label is in the set of a row if its probability is above a threshold. The threshold is found
    on private rows that were held out, so that sets hold the right label with at least the
    wanted probability, noise included, whatever the classifier is worth: a bad one has large sets.

    Parameters
    ----------
    estimator : object
        Fitted estimator or Pipeline, of which nothing changes. It is public, or private
        itself and paid for, and was not fitted on the rows that are given here. Wrap it in
        ``sklearn.frozen.FrozenEstimator`` where clones are made.
    confidence_level : float, default=0.9
        Probability with which what is predicted for a new row holds the truth, at least, on
        average over rows and noise.
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
    threshold_ : float
        Labels of at least this probability are in a set; 0 puts all of them in.
    expected_coverage_ : float
        What coverage is at least, on average over rows and noise; 1 where sets have all labels.
    likely_coverage_ : float
        What the coverage of this fit is at least, with a probability of 0.95 over the held-out
        rows and the noise.
    privacy_ : PrivacyGuarantee
        What the fit cost (nothing, where there are too few rows to
        leave out any label), and what its guarantee assumes. What the estimator cost is not in it.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DPConformalRegressor : Intervals for numbers.
    DPCalibratedClassifier : Probabilities that are right on average.
    private_quantile : Quantiles of private columns.

    Notes
    -----
    Released: one of K public thresholds, 64 to 1024 by ``epsilon * n``, by the exponential
    mechanism. The score of a row is one less the probability of its label, rounded up to a
    threshold. The score of a threshold is minus the distance of a public rank t from its own
    ranks, which go from the number of rows below it to that with those at it. Both numbers move by
    at most 1 with a row in either relation, so that two scores move apart by at most 2. Event: a
    bounded range of epsilon, without delta. The unit is one row. Assumed public: the numbers
    of rows and features, the estimator, that it treats each row by itself, and all parameters.

    Coverage. Let n rows and a new one be exchangeable, and ``q_r`` be the least threshold with r of
    the n rows up to it. Then a new row has a score up to ``q_r`` with a probability of at least
    ``r / (n + 1)``: of the n + 1 rows each is as likely to be the new one, and r of them
    have a score up to the r-th smallest of all, which is at most ``q_r``. The threshold that holds
    rank t has a score of 0. A threshold with less than r rows up to it has a score of at most
    ``-(t - r + 1)``, and so one of them is released, *whatever the rows are*, with a probability
    of at most ``b_r = min(1, (K - 1) exp(-(epsilon / 2) (t - r + 1)))``; with several rows of
    a person it is t - r. What is released is at least ``q_r`` otherwise. So coverage is, on
    average over rows and noise, at least that of ``q_t`` less the sum over r up to t of
    ``b_r`` times what ``q_r`` has more than ``q_(r-1)``; since b grows with r, summation by parts
    makes this at least ``(t - b_1 - ... - b_t) / (n + 1)``. The rank t is the least for which it is
    `confidence_level`: about ``(2 / epsilon) (log(K) + 1)`` rows more than without noise. With
    probability 0.95, coverage is also at least the quantile of a beta distribution
    with parameters r and n + 1 - r at ``0.05 - b_r``, the best r taken (``likely_coverage_``),
    for independent rows; for persons, ``r / n - sqrt(log(1 / (0.05 - b_r)) / (2 n))``.

    With `groups`, persons take the place of rows, and each row of a person counts for its part of
    the person. Coverage is then of *a new person*, at a row of theirs that is drawn at random, and
    not of persons who are there already. The proof is the same with shares of a person.
    Nothing is said of coverage within one class or kind of rows. Sets can be empty: where no label
    is as probable as those of nearly all rows are, the row is unlike them.

    Angelopoulos et al. (2022) release a noisy quantile too, whose correction holds for one bound on
    the noise at a time. Here the probabilities of all errors in rank are summed, which saves about
    ``(2 / epsilon) log(epsilon n)`` rows of correction, ties need no noise on scores, and
    persons may have several rows.

    References
    ----------
    Angelopoulos, Bates, Zrnic, Jordan. "Private prediction sets". Harvard Data Science Review,
    2022.

    Sadinle, Lei, Wasserman. "Least ambiguous set-valued classifiers with bounded error levels".
    JASA 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.utils import shuffle
    >>> from dpsubspace import DPSGDFClassifier
    >>> from dpsubspace.calibration import DPConformalClassifier
    >>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:800], y[:800])
    >>> conformal = DPConformalClassifier(model, epsilon=0.5, random_state=0)
    >>> sets = conformal.fit(X[800:1400], y[800:1400]).predict_set(X[1400:])
    >>> bool(sets[range(len(sets)), y[1400:]].mean() > 0.9)
    True
    """

    _canary = "held-out labels"

    # Set by `fit`.
    classes_: np.ndarray
    threshold_: float

    _saved: ClassVar = {
        **_Conformal._saved,
        "classes_": LabelArray("classes"),
        "_largest": Number(0, 1),
        "threshold_": Number(0, 1),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        confidence_level: float = 0.9,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Find the threshold.

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

    def _plan(self) -> LabelSetPlan:
        return LabelSetPlan(*self._asked())

    def _check(self, plan: LabelSetPlan, given: FitData) -> CheckedFit:
        frozen = check_frozen(self.estimator, "predict_proba", "classifier")
        data = held_out_labels(self, frozen, given)
        public = (f"the estimator and its labels ({len(frozen.classes)})",)
        return CheckedFit(plan, data, public, (frozen, data.X.shape[1]))

    def _store(self, found: Threshold, about: Any) -> None:
        super()._store(found, about)
        self.classes_, self._largest = self._frozen.classes, found.value
        self.threshold_ = 1.0 - found.value  # last: now it can predict

    @by_blocks_like(lambda self: self._no_probabilities.astype(bool))
    def predict_set(self, X: Any) -> np.ndarray:
        """Return which labels may be those of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            True where a label is in the set of a row; columns in the order of ``classes_``.
        """
        check_is_fitted(self, "threshold_")
        return -np.expm1(self._frozen.log_probabilities(X)) <= self._largest

    @by_blocks_like(lambda self: self._no_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of rows, which are those of the estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; each row adds up to 1.
        """
        check_is_fitted(self, "threshold_")
        return np.asarray(self._frozen.model.predict_proba(X))

    @by_blocks_like(lambda self: self._no_labels)
    def predict(self, X: Any) -> np.ndarray:
        """Return what the estimator predicts for rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels, each from ``classes_``.
        """
        check_is_fitted(self, "threshold_")
        return np.asarray(self._frozen.model.predict(X))


@public
class DPConformalRegressor(ExactR2, _Conformal):
    """Prediction intervals with a chosen coverage, calibrated privately on held-out rows.

    All intervals are as wide: what the estimator predicts, plus or minus a number that is found
    on private rows that were held out, so that intervals hold the target with at least the
    wanted probability, noise included, whatever the estimator is worth.

    Parameters
    ----------
    estimator : object
        Fitted estimator or Pipeline, of which nothing changes. It is public, or private
        itself and paid for, and was not fitted on the rows that are given here. Wrap it in
        ``sklearn.frozen.FrozenEstimator`` where clones are made.
    confidence_level : float, default=0.9
        Probability with which what is predicted for a new row holds the truth, at least, on
        average over rows and noise.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets. Predictions and intervals are cut to it, and targets outside
        count as the nearer end. It saves a quarter of the correction for noise, and with few rows
        intervals are as wide as the range and not infinite.
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
    half_width_ : float
        Half of the width of an interval.
    expected_coverage_ : float
        What coverage is at least, on average over rows and noise; 1 where intervals hold
        everything.
    likely_coverage_ : float
        What the coverage of this fit is at least, with a probability of 0.95 over the held-out
        rows and the noise.
    privacy_ : PrivacyGuarantee
        What the fit cost (nothing, where there are too few rows for an interval that is not all
        numbers), and what its guarantee assumes. What the estimator cost is not in it.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DPConformalClassifier : Sets of labels, with the proof of coverage.
    DPLinearRegression : A private regression to put into it.

    Notes
    -----
    Released: one of a grid of numbers by the exponential mechanism, as by
    :class:`DPConformalClassifier`, where the proof of coverage is. The score of a row is the
    distance of its target from what is predicted. The grid has 4 to 64 numbers an octave, by
    ``epsilon * n``: of 128 octaves up to 2^64, and infinity, or of 16 up to the distance of
    `target_bounds`. Two scores move apart by at most 2 with a row, in either relation.
    Event: a bounded range of epsilon, without delta. The unit is one row. Assumed public: the
    numbers of rows and features, the estimator, that it treats each row by itself, `target_bounds`
    and all other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from dpsubspace.calibration import DPConformalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2))
    >>> y = X @ [1.0, 2.0] + rng.normal(size=3000)
    >>> public = LinearRegression().fit(X[:1000], y[:1000])
    >>> conformal = DPConformalRegressor(public, epsilon=0.5, random_state=0)
    >>> low, high = conformal.fit(X[1000:2000], y[1000:2000]).predict_interval(X[2000:]).T
    >>> bool(np.mean((low <= y[2000:]) & (y[2000:] <= high)) > 0.9)
    True
    """

    _canary = "held-out numbers"

    _saved: ClassVar = {
        **_Conformal._saved,
        "_bounds": Maybe(Pair(Number())),
        "half_width_": Number(0, math.inf),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        confidence_level: float = 0.9,
        target_bounds: tuple[float, float] | None = None,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.estimator = estimator
        self.confidence_level = confidence_level
        self.target_bounds = target_bounds
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Find the width of intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows that the estimator was not fitted on, as it takes them.
        y : array-like of shape (n_samples,)
            Their targets.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

        Returns
        -------
        self : object
            The fitted regressor.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit_by(self._plan(), X, y, groups=groups)

    def _plan(self) -> IntervalPlan:
        plan = IntervalPlan(*self._asked())
        if self.target_bounds is None:
            return plan
        check_bounds("target_bounds", self.target_bounds, 1, column="target")
        low, high = (float(np.reshape(bound, ())) for bound in self.target_bounds)
        return replace(plan, bounds=(low, high))

    def _check(self, plan: IntervalPlan, given: FitData) -> CheckedFit:
        frozen = check_frozen(self.estimator, "predict", "regressor")
        data = held_out_targets(self, frozen, given)
        public = ("the estimator", *([] if plan.bounds is None else ["range of the targets"]))
        return CheckedFit(plan, data, public, (frozen, data.X.shape[1], plan.bounds))

    def _store(self, found: Threshold, about: Any) -> None:
        super()._store(found, about)
        self._bounds = about[2]
        self.half_width_ = found.value  # last: now it can predict

    @by_blocks_like(lambda self: self._no_intervals)
    def predict_interval(self, X: Any) -> np.ndarray:
        """Return between which numbers the targets of rows may be.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Low and high ends.
        """
        middle = self.predict(X)
        ends = np.stack([middle - self.half_width_, middle + self.half_width_], axis=1)
        return cut(ends, self._bounds)

    @by_blocks_like(lambda self: self._no_intervals[:, 0])
    def predict(self, X: Any) -> np.ndarray:
        """Return what the estimator predicts for rows, cut to `target_bounds`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers.
        """
        check_is_fitted(self, "half_width_")
        return cut(self._frozen.predictions(X), self._bounds)

    @property
    def _no_intervals(self) -> np.ndarray:
        check_is_fitted(self, "half_width_")
        return np.empty((0, 2))
