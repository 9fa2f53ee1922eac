"""Private scores of a fitted model on rows that it was not fitted on.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``ScorePlan`` of ``_core/plans/score.py``. Rows are read in ``_core/plans/score_rows.py``
and counted in ``_core/plans/score_release.py``, with the bounds of
``_core/statistics/score_cells.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import observe
from dpsubspace._core.fits.call import fits_with_released_scores, private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.fits.outputs import NUMBERS, Outputs
from dpsubspace._core.ground.checks import check_bounds, check_real, is_collection
from dpsubspace._core.plans.score import ScorePlan
from dpsubspace._core.plans.score_noise import ScoreSizes, settled
from dpsubspace._core.plans.score_release import ReleasedCounts
from dpsubspace._core.plans.score_request import (
    PrivateScore,
    PrivateScores,
    ScoreRequest,
    classes_of,
)
from dpsubspace._core.plans.score_rows import refuse_exact_scores, scored_rows
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_metrics import METRICS, Value
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

# Default bound on the log loss of a row: larger losses count as this much.
_LOSS_BOUND = 5.0


@private_function
def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    metric: Any = "accuracy",
    pos_label: Any = None,
    by: Any = None,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    target_bounds: tuple[float, float] | None = None,
    loss_bound: float = _LOSS_BOUND,
    level: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Any:
    """Release how good a fitted model is on private rows.

    The model is any of scikit-learn's form, private or not, and the rows are such as it was not
    fitted on. Several metrics of a classifier are read from the same released counts, so that
    they cost together about what one of them costs.

    Parameters
    ----------
    model : estimator
        Fitted classifier, regressor or Pipeline. What it says of a row must depend on that row
        alone; with `groups` that need not be so.
    X : array-like of shape (n_samples, n_features), or Dask collection
        Private rows, in whatever form the model takes. Of a Dask array or data frame the model is
        shown one block at a time, where that lies, and with `groups` one row at a time.
    y : array-like of shape (n_samples,), or Dask collection
        Their labels, all of which are in ``model.classes_``, or targets.
    metric : str or list of str, default="accuracy"
        By scikit-learn's names. Classifiers: "accuracy", "balanced_accuracy", "confusion_matrix",
        "precision_macro", "recall_macro", "f1_macro", "roc_auc_ovr" (the mean of the areas of each
        class against all others), "log_loss" and "brier_score_loss" ("neg_log_loss",
        "neg_brier_score"); with two classes also "precision", "recall", "f1", "specificity" (the
        recall of the other class), "roc_auc", "roc_curve" and "calibration_curve". Regressors:
        "r2", "mean_absolute_error", "mean_squared_error" and "root_mean_squared_error" (or as
        "neg_...").
    pos_label : int, float, bool or str, default=None
        Which of two classes "precision", "recall", "f1", "specificity", "roc_curve" and
        "calibration_curve" are about; "roc_auc" takes it for its curve. None is the class 1 where
        the classes are 0 and 1, or -1 and 1, and an error where they are others. It must be None
        where no metric is about a class.
    by : str, dict of str to list, or tuple (entries, levels), default=None
        Public groups of which each has a score as well. The name of a column of categories in the
        schema of the model; or a column and its levels, such as ``{"sex": ["f", "m"]}``; or one
        entry a row, and the levels. Levels are never read from the rows: a row of another level is
        in no group.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`. None is needed here: "auto" is
        0, and with another one there is next to no less noise.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    target_bounds : tuple (low, high) or None, default=None
        Public range of targets, which metrics of regressors need: targets and predictions outside
        count as the nearer end.
    loss_bound : float, default=5.0
        Public bound on the log loss of a row: larger ones count as that. Noise is in proportion to
        it. 5 is the loss of a probability of 0.0067. Other metrics do not use it.
    level : float, default=0.95
        How often intervals are to cover the metric on all rows of the kind, of which these are a
        sample.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows.

    Returns
    -------
    PrivateScore or dict of str to PrivateScore
        The score, or for a list of metrics a dict of them by name, with what the call cost as
        ``privacy_``. A metric of a list that the noise hides is NaN, with a warning; where public
        sizes alone tell that it will be, it takes no share of the budget. Until
        version 0.3 a score can be unpacked as ``(value, privacy)``, with a FutureWarning.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.
    PrivacyError
        If the released number of rows of a class is so small beside its noise that the one metric
        asked for would say nothing. The release has happened and stays charged.

    See Also
    --------
    PrivateScore : What is released, with its interval.
    PrivacyLedger : Adds up what scores and fits cost.

    Notes
    -----
    Released, with Laplace noise throughout: for scores of two classes, counts of all scores on a
    public grid (15 % of epsilon), from which edges of about ``2 (n epsilon)^0.18`` cells are found,
    and counts of rows of each class in these, and with more classes the same for each of them, with
    a share of epsilon each; for metrics of labels alone, the confusion matrix;
    for "accuracy" alone, log loss, Brier loss and metrics of regressors, sums over rows of numbers
    in [0, 1] (30 % of epsilon beside counts; of regressors after counts of errors by size, with
    10 %, from which a bound on them is found). A row is in one cell: counts have the L1 (and L2)
    bound 1 (``"zero_out"``), and 2 in L1 and sqrt(2) in L2 (``"replace_one"``). Sums, with
    shares of noise that add up to 1, have the bound 1 in both. With `by` the groups are counted
    apart in the same releases: a row is in one cell of one group, so that counts keep their bounds,
    and sums have 1 and, since a row that is replaced may leave one group for another, 2. A
    person's rows may be in several groups, each with its part of the person, for the same bounds.
    The size of a group is private: what is divided by it is divided by noisy counts, and the
    groups, with the rows that are in none, add up to the score of all. Event: Laplace mechanisms,
    one for each, which need no delta: the guarantee is pure. The unit is one row.

    Assumed public: the model with its classes, the numbers of rows and features, all parameters,
    and that the data pass the checks, one of which is that the model knows all labels. That the
    model says of a row what depends on that row alone is an assumption as well: scores that are
    ranks among the rows given, say, are not covered. With `groups` the rows of each person are
    shown to the model in a call of their own, so that what they bring depends on that person alone
    whatever the model does; that takes a call for each person. Of Dask collections, each row is
    shown in a call of its own, since blocks have some rows of a person and not all. A model without
    a schema is shown what Dask has read: of Parquet files it makes floats of whole numbers in a
    part with a missing value, which changes those beyond 2^53 in other rows of the part. Read such
    files with ``dtype_backend="pyarrow"``. A score that is
    not a number counts as 0, a loss that is not as the largest, and a predicted label that is not a
    class as wrong. Whether a class is missing in `y` shows in nothing but released counts.

    The area under the ROC curve has a part from pairs of rows of one cell, which are taken to
    be ordered as the shares of the classes in neighbouring cells suggest.

    Errors of a regressor beyond the bound that is found count as that bound: the few largest, which
    makes metrics of errors with heavy tails a little too good. "r2" needs the variance of the
    targets, whose noise grows with the square of the width of `target_bounds`: where the bounds are
    wide for most targets it is NaN or refused, at the full price. It is released only where the
    variance is six times as large as its noise. Prefer errors elsewhere.

    Intervals count the noise and that the rows are a sample, by drawing samples from what was
    released. They are about rows that the model has not seen. If it was fitted on these rows by a
    private estimator, the guarantee holds as it does otherwise, charged beside that of the fit;
    but score and interval are then about these rows, on which the model is too good. A warning says
    so where an estimator of this package was fitted in this process to the same object or memory,
    or to equal rows in another container (half of them, and more than are equal by chance); of
    Dask collections and datasets, to the same object. Whether it was is taken to be public. A model
    that was fitted on them without privacy is not public: its score has no guarantee.

    With `groups` a metric is that of a row drawn from a person drawn at random; intervals take
    persons to be single rows, and are wider than they need be.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpsubspace import DPSGDFClassifier, private_score
    >>> X, y = make_classification(6000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:4000], y[:4000])
    >>> score = private_score(
    ...     model, X[4000:], y[4000:], metric="roc_auc", epsilon=0.5, random_state=0
    ... )
    >>> score.low < score.value < score.high
    True
    >>> score.privacy_.epsilon
    0.5
    """
    if isinstance(delta, str) and delta == "auto":
        delta = 0.0  # a delta hardly reduces Laplace noise
    target = Target(epsilon, delta, neighboring_relation).checked(pure=True)
    asked = ScoreRequest.of(metric)
    check_real("level", level, low=0, high=1)
    check_real("loss_bound", loss_bound, low=0.01, high=1000)
    classes = np.empty(0) if asked.regression else classes_of(model)
    asked = asked.about(classes, pos_label)
    bounds = bounds_for(asked, target_bounds)
    if is_collection(X):
        refuse_exact_scores(target, asked)
    says = Outputs(model, classes, bounds, float(loss_bound))
    rows = scored_rows(says, asked, by, X, y, groups)
    records, noise, apart = rows.records, as_noise(random_state), rows.by
    by_n = 1 if apart is None else apart.n_groups
    units = {name: number.unit(says) for name, number in NUMBERS.items()}
    sizes = ScoreSizes(target, records, len(classes), by_n, units)
    whole_request, (asked, left_out) = asked, settled(asked, sizes)
    if left_out:
        rows = scored_rows(says, asked, by, X, y, groups)
    public = ["the model"] if target_bounds is None else ["the model", "bounds of the targets"]
    if not records.grouped:  # the model gets each person's rows separately
        public.append("that what the model says of a row depends on that row alone")
    if apart is not None:
        public.append(f"levels of groups ({len(apart.levels)})")
    plan, n_features = ScorePlan(asked, sizes, noise, tuple(public)), rows.n_features
    (whole, *parts), guarantee = run_privately(plan, (X, rows), records, n_features, noise)
    for name in fits_with_released_scores(model):
        observe("released", name)
    by_level = {} if apart is None else dict(zip(apart.levels, parts, strict=True))
    given = (whole_request, classes, float(level), records, guarantee, by_level, left_out)
    return _Scores(*given).of(whole)


@dataclass(frozen=True)
class _Scores:
    """Scores from released counts, with the public facts about all of them."""

    asked: ScoreRequest
    classes: np.ndarray
    level: float
    records: Records
    guarantee: PrivacyGuarantee
    groups: Mapping[Any, ReleasedCounts]
    left_out: Mapping[str, str]  # Metrics that were not released, and why

    def of(self, found: ReleasedCounts) -> PrivateScore | PrivateScores:
        values = [self._value(plain, found) for plain in self.asked.plain]
        if self.asked.one and isinstance(values[0], PrivacyError):
            raise values[0]
        names = self.asked.names
        scores = {
            name: self._with_groups(name, plain, self._score(name, plain, value, found))
            for name, plain, value in zip(names, self.asked.plain, values, strict=True)
        }
        return scores[names[0]] if self.asked.one else PrivateScores(scores, self.guarantee)

    def _value(self, plain: str, found: ReleasedCounts) -> Value | PrivacyError:
        if plain in self.left_out:
            return Value(math.nan, math.nan, math.nan)
        return found.value(plain, self.level)

    def _with_groups(self, name: str, plain: str, score: PrivateScore) -> PrivateScore:
        if not self.groups:
            return score
        by = {
            level: self._score(name, plain, self._value(plain, found), found, level)
            for level, found in self.groups.items()
        }
        return replace(score, by=by)

    def _score(
        self,
        name: str,
        plain: str,
        value: Value | PrivacyError,
        found: ReleasedCounts,
        group: Any = None,
    ) -> PrivateScore:
        curve, whose = None, "" if group is None else f" of group {group!r}"
        if isinstance(value, PrivacyError):
            warn(f"{name}{whose} is NaN: {value}", PrivacyWarning, about=("score", name, group))
            value = Value(math.nan, math.nan, math.nan)
        elif plain in self.left_out:
            pass  # the user was warned before the charge
        elif plain == "roc_auc":
            of_curve = found.value("roc_curve", self.level)
            assert isinstance(of_curve, Value)  # noise hides the curve only with the area
            curve = self._score("roc_curve", "roc_curve", of_curve, found, group)
        elif METRICS[plain].error and found.sums is not None and found.sums.hides(plain):
            warn(
                f"noise hides {name}{whose}: the release shows only that {plain} is at most"
                f" {value.high:.3g}, the upper end of its interval. Tighter"
                f" `target_bounds`, more {self.records.unit}s, a larger epsilon, or fewer metrics"
                " in one call help.",
                PrivacyWarning,
                about=("score", name, group),
            )
        sign = self.asked.sign(name)
        low, high = (value.low, value.high) if sign > 0 else (-value.high, -value.low)
        about = None
        if self.asked.is_of_a_class(plain):
            about = self.classes.tolist()[self.asked.pos or 0]
        return PrivateScore(
            name,
            sign * value.value,
            low,
            high,
            self.level,
            self.records.n if group is None else None,
            self.records.unit,
            at=value.at,
            cells=None if plain in self.left_out else found.cells_of(plain),
            pos_label=about,
            curve=curve,
            privacy_=self.guarantee,
        )


# Bounds of targets ----------------------------------------------------------------------------


def bounds_for(asked: ScoreRequest, bounds: Any) -> tuple[float, float]:
    if asked.regression:
        return _checked_bounds(bounds)
    if bounds is not None:
        raise ValueError(
            "`target_bounds` are for metrics of regressors, such as 'r2', and"
            f" {asked.names[0]!r} is one of classifiers: pass another `metric`, or leave them"
            " out."
        )
    return 0.0, 1.0


def _checked_bounds(bounds: Any) -> tuple[float, float]:
    if bounds is None:
        raise ValueError(
            "metrics of regressors need the public range of targets: pass `target_bounds`, such as"
            " (0, 100). Of a classifier ask for another `metric`, such as 'accuracy'."
        )
    check_bounds("target_bounds", bounds, 1)
    low, high = (float(np.asarray(end).reshape(-1)[0]) for end in bounds)
    return low, high
