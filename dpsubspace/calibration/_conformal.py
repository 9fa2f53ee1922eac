"""Private conformal prediction: sets of labels, and intervals, that hold the truth often enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import betaincinv, expit
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import ExactAccuracy, ExactR2, PrivateCall, PrivateEstimator
from dpsubspace._core.fits.held_out import (
    Frozen,
    FrozenForm,
    HeldOut,
    check_frozen,
    held_out_labels,
    held_out_targets,
    pure_target,
    rows_as_fitted,
)
from dpsubspace._core.fits.outputs import by_blocks_like
from dpsubspace._core.ground.checks import check_bounds, check_real
from dpsubspace._core.ground.forms import Form, LabelArray, Maybe, Number, Pair, Whole
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.seen_rows import note_rows
from dpsubspace._core.statistics.score_cells import counted, rank_scores
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn

# Fewest and most candidates for a threshold, as powers of 2. More are finer, and need a larger
# correction.
_FEWEST, _MOST = 6, 10

# Octaves of errors between public bounds, and to either side of 1 without any. A candidate in 16
# is a part of each octave.
_OCTAVES, _ALL_OCTAVES = 16, 64

# Log-odds of the first candidates for probabilities: there are as many up to its negative.
_LARGEST = 8.0

# Probability of sets that are far too large at which a fit warns.
_UNSURE = 0.1

# With this probability the coverage of one fit is below what is said of it.
_UNLUCKY = 0.05


@dataclass(frozen=True)
class _Rank:
    """Which rank to ask for, so that coverage holds with the noise of the choice."""

    n: int  # Records
    n_candidates: int  # Candidates
    # How much a distance of one rank makes a candidate less likely, as a power of e.
    strength: float
    grouped: bool  # Whether ranks may be no whole numbers

    def wanted(self, level: float) -> int | None:
        """Least rank at which coverage is at least `level` on average; None where there is none."""
        enough = np.flatnonzero(self._on_average() >= level)
        return int(enough[0]) + 1 if len(enough) else None

    def on_average(self, rank: int) -> float:
        """What coverage is at least, on average over rows and noise."""
        return float(self._on_average()[rank - 1])

    def _on_average(self) -> np.ndarray:
        """The same for each rank from 1 to n, of which the bounds are those of the last."""
        ranks = np.arange(1, self.n + 1)
        return (ranks - np.cumsum(self._below(self.n, ranks[::-1]))) / (self.n + 1)

    def nearly_always(self, rank: int) -> float:
        """What coverage is at least, but for a probability of `_UNLUCKY` over rows and noise."""
        reached = np.arange(1, rank + 1)
        left = _UNLUCKY - self._below(rank, reached)
        reached, left = reached[left > 0], left[left > 0]
        if not len(reached):
            return 0.0
        if self.grouped:
            least = reached / self.n - np.sqrt(np.log(1 / left) / (2 * self.n))
        else:
            least = betaincinv(reached, self.n + 1 - reached, left)
        return max(0.0, float(least.max()))

    def above_all(self, rank: int) -> float:
        """Bound on the probability that the choice is above all scores, however they lie."""
        return min(1.0, self.n_candidates * math.exp(-self.strength * (self.n - rank)))

    def _below(self, rank: int, reached: np.ndarray) -> np.ndarray:
        """Bound on the probability that the choice has fewer records up to it than `reached`."""
        if self.strength == math.inf:
            return np.zeros(len(reached))
        missed = rank - reached + (0 if self.grouped else 1)
        return np.minimum(1.0, (self.n_candidates - 1) * np.exp(-self.strength * missed))


@dataclass(frozen=True)
class _IntervalRequest:
    target: Target
    level: float
    bounds: tuple[float, float] | None = None

    def fineness(self, n_samples: int) -> int:
        """Number of candidates for which noise and steps cost about as much coverage."""
        scale = self.budget(n_samples).scales["threshold"]
        enough = math.log2(min(max(n_samples * scale / 8, 1.0), 2.0**_MOST))
        return 2 ** max(_FEWEST, math.floor(enough))

    def rank(self, budget: Budget, records: Records, n_candidates: int) -> _Rank:
        return _Rank(records.n, n_candidates, budget.scales["threshold"] / 2, records.grouped)

    def budget(self, n_samples: int | None) -> Budget:
        return Budget.split(self.target, {"threshold": Part(1.0, kind="range")}, n_samples)


class _Conformal(PrivateEstimator):
    """What both share: a threshold of scores that are the larger, the worse a prediction is."""

    _asks_fitted = True

    # Parameters that every subclass has.
    estimator: Any
    confidence_level: float

    # Set by `fit`.
    n_features_in_: int
    expected_coverage_: float
    likely_coverage_: float

    def _budget(self, sizes: Sizes) -> Budget:
        return self._plan().budget(sizes.n_samples)

    def _rows_as_fitted(self, X: Any) -> Any:
        return rows_as_fitted(self.estimator, X)

    def _plan(self) -> _IntervalRequest:
        level = check_real("confidence_level", self.confidence_level, low=0, high=1)
        return _IntervalRequest(pure_target(self), level)

    def _release_threshold(
        self,
        plan: _IntervalRequest,
        frozen: Frozen,
        rows: HeldOut,
        scores: Any,
        candidates: np.ndarray,
        public: tuple[str, ...],
    ) -> float:
        """Charge and release one of `candidates`, of which the last is above all scores.

        The private `scores` have one number a row.
        """
        noise, records = as_noise(self.random_state), rows.records
        budget = plan.budget(records.n)
        rank = plan.rank(budget, records, len(candidates))
        wanted = rank.wanted(plan.level)
        if wanted is None:  # nothing smaller than the last one would do, and that is public
            budget = Budget.split(plan.target, {}, records.n)
        call = PrivateCall(self, budget, noise, records, rows.X.shape[1], public)
        if wanted is None:
            _warn_of_few(plan, rank, records)
        elif rank.above_all(wanted) > _UNSURE:
            _warn_of_width(plan, rank, records)
        releases = call.open()
        self._frozen, self.n_features_in_ = frozen, rows.X.shape[1]
        self.expected_coverage_ = self.likely_coverage_ = 1.0
        if wanted is None:
            return float(candidates[-1])
        self.expected_coverage_ = rank.on_average(wanted)
        self.likely_coverage_ = rank.nearly_always(wanted)
        cells = _places(candidates, scores)
        counts = counted(cells, len(candidates), records).value
        return float(candidates[releases.choice("threshold", rank_scores(counts, wanted))])


_CONFORMAL: dict[str, Form] = {
    "n_features_in_": Whole(axis="features"),
    "_frozen": FrozenForm(),
    "expected_coverage_": Number(0, 1),
    "likely_coverage_": Number(0, 1),
}


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
        What the fit cost and what that rests on: nothing, where there are too few rows to
        leave out any label. What the estimator cost is not in it.
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
        **_CONFORMAL,
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
            Their labels, out of those of the estimator.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one together: each of ten rows counts for a tenth. None protects single rows.

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
        plan = self._plan()
        frozen = check_frozen(self.estimator, "predict_proba", "classifier")
        rows = held_out_labels(self, frozen, X, y, groups)
        note_rows(self, X, rows.X)
        scores = _missed(rows.said, rows.targets)
        public = (f"the estimator and its labels ({len(frozen.classes)})",)
        candidates = _probabilities(plan.fineness(rows.records.n))
        found = self._release_threshold(plan, frozen, rows, scores, candidates, public)
        self.classes_, self._largest = frozen.classes, found
        self.threshold_ = 1.0 - found  # last: now it can predict
        return self

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
            Labels out of ``classes_``.
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
        What the fit cost and what that rests on: nothing, where there are too few rows for an
        interval that is not all numbers. What the estimator cost is not in it.
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
        **_CONFORMAL,
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
            as one together: each of ten rows counts for a tenth. None protects single rows.

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
        plan = self._plan()
        frozen = check_frozen(self.estimator, "predict", "regressor")
        rows = held_out_targets(self, frozen, X, y, groups)
        note_rows(self, X, rows.X)
        candidates = _errors(plan.bounds, plan.fineness(rows.records.n))
        scores = _distances(rows.said, rows.targets, plan.bounds)
        public = ("the estimator", *([] if plan.bounds is None else ["range of the targets"]))
        found = self._release_threshold(plan, frozen, rows, scores, candidates, public)
        self._bounds = plan.bounds
        self.half_width_ = found  # last: now it can predict
        return self

    def _plan(self) -> _IntervalRequest:
        plan = super()._plan()
        if self.target_bounds is None:
            return plan
        check_bounds("target_bounds", self.target_bounds, 1, column="target")
        low, high = (float(np.reshape(bound, ())) for bound in self.target_bounds)
        return _IntervalRequest(plan.target, plan.level, (low, high))

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
        return _cut(ends, self._bounds)

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
        return _cut(self._frozen.predictions(X), self._bounds)

    @property
    def _no_intervals(self) -> np.ndarray:
        check_is_fitted(self, "half_width_")
        return np.empty((0, 2))


def _probabilities(n: int) -> np.ndarray:
    """Candidates for one less than the probability of a label, even in log-odds; the last is 1."""
    return np.append(expit(np.linspace(-_LARGEST, _LARGEST, n)[:-1]), 1.0)


def _missed(logs: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One less than the probability of the label of each row, of which all logarithms are given."""
    return -np.expm1(logs)[np.arange(len(codes)), codes]


def _distances(
    predicted: np.ndarray, targets: np.ndarray, bounds: tuple[float, float] | None
) -> np.ndarray:
    """How far each target is from what is predicted, both cut to bounds."""
    with np.errstate(over="ignore"):  # further apart than numbers go is infinitely far
        scores = np.abs(_cut(targets, bounds) - _cut(predicted, bounds))
    return np.where(np.isnan(scores), np.inf, scores)


def _places(candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Least candidate that each score is up to."""
    return np.searchsorted(candidates, np.minimum(scores, candidates[-1]))


def _errors(bounds: tuple[float, float] | None, n: int) -> np.ndarray:
    """Candidates for how far a target is from what is predicted; the last is above all."""
    parts = n // _OCTAVES
    if bounds is None:
        octaves = np.arange(-_ALL_OCTAVES * parts, _ALL_OCTAVES * parts) / parts
        return np.append(np.exp2(octaves), math.inf)
    return (bounds[1] - bounds[0]) * np.exp2(np.arange(1 - n, 1) / parts)


def _cut(values: np.ndarray, bounds: tuple[float, float] | None) -> np.ndarray:
    return values if bounds is None else np.clip(values, *bounds)


def _warn_of_width(plan: _IntervalRequest, rank: _Rank, records: Records) -> None:
    more = (2 * math.log(rank.n_candidates) + 1 - math.log(_UNSURE)) / rank.strength
    needed = math.ceil((plan.level + more) / (1 - plan.level))
    warn(
        f"{records.n} {records.unit}s are few for confidence_level={plan.level:g} at epsilon="
        f"{plan.target.epsilon:g}: sets and intervals contain the truth as often as you ask for,"
        f" but may be too wide to be of use. About {needed} {records.unit}s are enough. For"
        " intervals, `target_bounds` help.",
        PrivacyWarning,
        about=("conformal width", plan.target.epsilon),
    )


def _warn_of_few(plan: _IntervalRequest, rank: _Rank, records: Records) -> None:
    more = 0.0 if rank.strength == math.inf else (math.log(rank.n_candidates) + 1) / rank.strength
    needed = math.ceil((plan.level + more) / (1 - plan.level))
    warn(
        f"{records.n} {records.unit}s are too few for confidence_level={plan.level:g} at epsilon="
        f"{plan.target.epsilon:g}: each set or interval contains all possible values, and nothing"
        f" is released or charged. About {needed} {records.unit}s are enough.",
        PrivacyWarning,
        about=("conformal", plan.target.epsilon),
    )
