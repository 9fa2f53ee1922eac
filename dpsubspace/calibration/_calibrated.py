"""Private recalibration: one or two numbers that make the probabilities of a fitted model right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import (
    CheckedFit,
    ExactAccuracy,
    FitData,
    Plan,
    PrivateEstimator,
)
from dpsubspace._core.fits.held_out import (
    Frozen,
    FrozenForm,
    HeldOut,
    check_frozen,
    held_out_labels,
    pure_target,
    rows_as_fitted,
)
from dpsubspace._core.fits.outputs import by_blocks_like
from dpsubspace._core.ground.checks import check_choice
from dpsubspace._core.ground.forms import LabelArray, Number, Whole
from dpsubspace._core.release.mechanisms import BoundedScores
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import ROW, Records
from dpsubspace._core.rows.seen_rows import note_rows
from dpsubspace._core.statistics.score_cells import counted, root_scores, sums_of_records
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn

# Binary logarithms of slopes, in steps of 1 / _STEPS for the temperature and 1 / 8 beside
# intercepts.
_LEAST, _MOST, _STEPS = -5, 3, 16
_INTERCEPTS = np.arange(-48, 49) / 8

# Log-odds are counted in cells of this width, up to this size.
_WIDTH, _LARGEST = 1 / 16, 16.0

# What is far from the mark is cut, which few rows need because of noise: to `_CUT` at least, for a
# slope alone and beside an intercept. It counts for too little then, so that many rows cut less, by
# a root: of how much all records tell, over `_FINE`. At the end it is log loss that is least.
_CUT = {"temperature": 3.0, "sigmoid": 1.0}
_FINE = {"temperature": 16.0, "sigmoid": 100.0}
_WHOLE = 300.0

# Distances from "no change" over which the prior falls by a factor of e: for slopes above 1, whose
# harm has no bound, for those below, and for intercepts. All constants here were chosen on models
# of the data sets that benchmarks/repro_calibration.py says were seen, their test rows included.
_ABOVE, _BELOW, _SHIFT = 0.12, 0.25, 0.25

# What a record usually tells of a slope, for what is taken off the result because of noise.
_USUAL, _SPREAD = 0.1, 0.2

# Product of epsilon and the number of records below which noise hides what there is to find.
_FEWEST = 50.0


@dataclass(frozen=True)
class _Map:
    """What is done to log-probabilities; "no change" as it comes."""

    slope: float = 1.0
    intercept: float = 0.0


@dataclass(frozen=True)
class CalibrationPlan(Plan):
    target: Target
    method: str

    def worth_it(self, n_samples: int) -> bool:
        """Whether so many records can tell anything above the noise, by public sizes."""
        epsilon = self.target.epsilon
        assert epsilon is not None
        apart = 1 if self.target.neighboring_relation == "zero_out" else 2
        return epsilon * n_samples >= _FEWEST * apart

    def budget(self, sizes: Sizes) -> Budget:
        n_samples = sizes.n_samples
        enough = n_samples is None or self.worth_it(n_samples)
        parts = {"map": Part(1.0, kind="range")} if enough else {}
        return Budget.split(self.target, parts, n_samples)

    def run(self, ready: HeldOut, releases: Releases, rng: Any, after_step: Any) -> _Map:
        if not releases.budget.parts:
            return _Map()
        n = ready.records.n
        find = _temperature_sums if self.method == "temperature" else _sigmoid_sums
        scale, doubled = releases.budget.scales["map"], 1 + (not self._zero_out)
        strength = scale / (2 * doubled)  # of what one candidate is better by than another
        cut = self._cut(n * strength)
        slopes, intercepts, totals, slack = find(ready.said, ready.targets, ready.records, cut)
        public = np.zeros(len(slopes))
        if self.target.private:
            public -= _penalties(slopes, intercepts) / strength
        scores: BoundedScores = root_scores(totals, slack, public)
        best = releases.choice("map", scores)
        kept = 1.0
        if self.target.private:
            # Noise and prior alone would give about so much, which is taken off.
            off = 1 / (1 / _SPREAD + _USUAL / cut * n * strength)
            length = math.hypot(slopes[best], intercepts[best])
            kept = max(0.0, 1 - off / length) if length else 0.0
        return _Map(math.exp(kept * slopes[best]), kept * intercepts[best])

    def _cut(self, evidence: float) -> float:
        """Where to cut, by how much all records together can tell."""
        wide = max(_CUT[self.method], math.sqrt(evidence / _FINE[self.method]))
        return min(wide, _WHOLE)

    @property
    def _zero_out(self) -> bool:
        return self.target.neighboring_relation == "zero_out"


@public
class DPCalibratedClassifier(ExactAccuracy, PrivateEstimator):
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
        What the fit cost and what that rests on: nothing, where there are too few rows to
        tell anything. What the estimator cost is not in it.
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
    _asks_fitted = True

    # Set by `fit`.
    n_features_in_: int
    classes_: np.ndarray
    intercept_: float
    slope_: float

    _saved: ClassVar = {
        "n_features_in_": Whole(axis="features"),
        "_frozen": FrozenForm(),
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
            Labels out of ``classes_``.
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
        data = held_out_labels(self, frozen, given.X, given.y, given.groups)
        note_rows(self, given.X, data.X)
        public = (f"the estimator and its labels ({n_classes})",)
        return CheckedFit(plan, data, public, (frozen, data.X.shape[1]))

    def _rows_as_fitted(self, X: Any) -> Any:
        return rows_as_fitted(self.estimator, X)

    def _warn_before_fit(
        self, plan: CalibrationPlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        if not budget.parts:
            _warn_of_few(plan.target, sizes.known("n_samples", "the warning"), guarantee.unit)

    def _store(self, found: _Map, about: tuple[Frozen, int]) -> None:
        self._frozen, self.n_features_in_ = about
        self.classes_, self.intercept_ = self._frozen.classes, found.intercept
        self.slope_ = found.slope  # last: now it can predict


# What records bring to candidates -----------------------------------------------------------


def _temperature_sums(
    logs: Any, codes: Any, records: Records, cut: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Logarithms of slopes, intercepts of 0, and the sum of each slope with its slack.

    A row contributes ``(E T - T_y) / c``, where T are logarithms of probabilities less the largest,
    cut to [-c, 0], and the mean is over labels that are drawn by the probabilities themselves.
    Cutting does not bias the root: where they are right, the mean is 0 at any cut.
    """
    slopes = np.arange(_LEAST * _STEPS, _MOST * _STEPS + 1) / _STEPS * math.log(2)
    totals, slack = sums_of_records(_too_sure(logs, codes, slopes, cut), records)
    return slopes, np.zeros(len(slopes)), totals[:, None], slack


def _too_sure(
    logs: np.ndarray, codes: np.ndarray, slopes: np.ndarray, cut: float
) -> Iterator[np.ndarray]:
    """What rows bring to each slope."""
    behind = logs - logs.max(axis=1, keepdims=True)
    rows = np.arange(len(codes))
    for slope in np.exp(slopes):
        scores = slope * behind
        weights = np.exp(scores)
        near = np.maximum(scores, -cut)
        mean = (weights * near).sum(axis=1) / weights.sum(axis=1)
        yield (mean - near[rows, codes]) / cut


def _sigmoid_sums(
    logs: Any, codes: Any, records: Records, cut: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Logarithms of slopes, intercepts, and the sum of each pair with its slack.

    A row contributes ``(p - y) (s, 1) / sqrt(c^2 + s^2)``, with s its log-odds before the map and p
    its probability after it: the gradient of a log loss with weights that are the same for each
    pair, so that it is convex and only one pair gives nearly 0, however small a slope is.
    Counts of labels in narrow cells of log-odds say all that is needed, and are exact; a sum over
    the cells that are not empty is then off by rounding of as many terms or fewer.
    """
    centres = np.arange(-_LARGEST, _LARGEST + _WIDTH, _WIDTH)
    n_cells = len(centres)
    cells = _cells_of_odds(logs, codes, n_cells)
    counts = counted(cells, 2 * n_cells, records).value.reshape(2, n_cells)
    some = counts.any(axis=0)
    (first, second), centres = counts[:, some, None], centres[some, None]
    logs_of_slopes, totals = np.arange(8 * _LEAST, 8 * _MOST + 1) / 8 * math.log(2), []
    for slope in np.exp(logs_of_slopes):
        scores = slope * centres + _INTERCEPTS
        excess = (first * expit(scores) - second * expit(-scores)) / np.sqrt(cut**2 + centres**2)
        totals.append(np.stack([(excess * centres).sum(axis=0), excess.sum(axis=0)], axis=1))
    slopes, intercepts = np.meshgrid(logs_of_slopes, _INTERCEPTS, indexing="ij")
    slack = 8 * n_cells * float(np.finfo(np.float64).eps) * records.n
    return slopes.ravel(), intercepts.ravel(), np.concatenate(totals), slack


def _cells_of_odds(logs: np.ndarray, codes: np.ndarray, n_cells: int) -> np.ndarray:
    """Cell of the log-odds and the label of each row."""
    odds = np.clip(logs[:, 1] - logs[:, 0], -_LARGEST, _LARGEST)
    return np.rint((odds + _LARGEST) / _WIDTH).astype(np.intp) + n_cells * codes


def _penalties(slopes: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Minus the logarithm of what a candidate is held to be worth before any rows are seen."""
    return np.hypot(slopes / np.where(slopes > 0, _ABOVE, _BELOW), intercepts / _SHIFT)


def _warn_of_few(target: Target, n: int, unit: str) -> None:
    apart = 1 if target.neighboring_relation == "zero_out" else 2
    few = _FEWEST * apart
    of_persons = "" if unit == ROW else f" (n_samples: {unit}s)"
    warn(
        f"{n} {unit}s at epsilon={target.epsilon:g} are too few to correct probabilities, because"
        " noise would hide the correction. Probabilities are not changed, and nothing is released"
        f" or charged. epsilon * n_samples{of_persons} should be at least {few:g}.",
        PrivacyWarning,
        about=("calibration", target.epsilon),
    )
