"""Private difference of a metric between two fitted models on the same rows.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``DifferencePlan`` of ``_core/plans/score_difference.py``, with the bounds of
``_core/statistics/score_cells.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult, footnote
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.fits.outputs import Outputs
from dpsubspace._core.ground.checks import check_real, is_collection, shown
from dpsubspace._core.plans.score_difference import (
    DifferencePlan,
    PairedMetric,
    PairedParts,
    PairedRows,
    refuse_hidden,
)
from dpsubspace._core.plans.score_request import ScoreRequest, as_paragraph, classes_of
from dpsubspace._core.plans.score_rows import ScoredRows, refuse_exact_scores, refuse_rows
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.statistics.score_metrics import METRICS
from dpsubspace._names import public
from dpsubspace.metrics._private_scores import bounds_for

# Default bound on the log loss of a row: larger losses count as this much.
_LOSS_BOUND = 5.0


@public
@dataclass(frozen=True, eq=False)
class PrivateScoreDifference(PrivateResult):
    """How much better one model is than another on private rows, with an interval.

    ``float(difference)`` is its value, and printing shows the interval and the guarantee. Of
    losses and errors a negative difference says that the first model is better.

    Parameters
    ----------
    metric : str
        Name of the metric.
    value : float
        The metric of the first model less that of the second, as released.
    low, high : float
        Ends of the interval.
    level : float
        How often such intervals cover the difference on all rows of the kind, at least about.
    n : int
        Number of records.
    models : tuple of str
        Names of both models.
    unit : str
        What a record is: ``"row"`` or ``"person"``.
    pos_label : object or None
        Class that the metric is about, of those metrics that are about one.
    privacy_ : PrivacyGuarantee or None
        What the call cost, and what its guarantee assumes.

    See Also
    --------
    private_score_difference : Returns one.

    Examples
    --------
    >>> from dpsubspace.metrics import PrivateScoreDifference
    >>> names = ("GEPClassifier", "DPSGDClassifier")
    >>> print(PrivateScoreDifference("accuracy", 0.02, 0.01, 0.03, 0.95, 2000, names))
    accuracy of GEPClassifier less that of DPSGDClassifier = 0.02 (95% interval 0.01 to 0.03)
    """

    metric: str
    value: float
    low: float
    high: float
    level: float
    n: int
    models: tuple[str, str]
    unit: str = "row"
    pos_label: Any = None
    privacy_: PrivacyGuarantee | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        about = "" if self.pos_label is None else f" for class {self.pos_label!r}"
        value, low, high = (f"{x:.4g}" for x in (self.value, self.low, self.high))
        line = (
            f"{self.metric} of {self.models[0]} less that of {self.models[1]}{about} = {value}"
            f" ({100 * self.level:g}% interval {low} to {high})"
        )
        return "\n".join(filter(None, [line, footnote(self.privacy_)]))

    def _repr_html_(self) -> str:
        return as_paragraph(str(self))


@private_function
def private_score_difference(
    model: Any,
    other: Any,
    X: Any,
    y: Any,
    *,
    metric: str = "accuracy",
    pos_label: Any = None,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    target_bounds: tuple[float, float] | None = None,
    loss_bound: float = _LOSS_BOUND,
    level: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PrivateScoreDifference:
    """Release how much better one fitted model is than another on the same private rows.

    Two private scores have intervals of their own, which mostly overlap. A difference on the same
    rows has a shorter one: rows about which both models say the same tell nothing, and only the
    others count. It costs one charge.

    Parameters
    ----------
    model : estimator
        Fitted classifier, regressor or Pipeline. What it says of a row must depend on that row
        alone; with `groups` that need not be so.
    other : estimator
        The model to compare it with, of the same classes.
    X : array-like of shape (n_samples, n_features), or Dask collection
        Private rows that neither model was fitted to, in a form that both take.
    y : array-like of shape (n_samples,), or Dask collection
        Their labels, all of which are in ``model.classes_``, or targets.
    metric : str, default="accuracy"
        One metric of :func:`private_score` that is a single number. With more than two classes
        there are no "precision_macro", "f1_macro" and "roc_auc_ovr".
    pos_label : int, float, bool or str, default=None
        Which of two classes "precision", "recall", "f1" and "specificity" are about, as
        :func:`private_score` takes it. "roc_auc" is the same for both.
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
        How often the interval is to cover the difference on all rows of the kind, of which these
        are a sample.
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
    PrivateScoreDifference
        The metric of `model` less that of `other`, with what the call cost as ``privacy_``.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.
    PrivacyError
        If noise hides what the metric is divided by: a class, or the variance of the targets. The
        release has happened and stays charged.

    See Also
    --------
    private_score : The metric of one model.
    PrivateSearch : Chooses among models and pays for their fits.

    Notes
    -----
    Released, with Laplace noise throughout. For "accuracy", losses and errors: the sum over rows of
    the difference of a number in [0, 1] between the models, with that of its square, from which
    the interval follows, and for "root_mean_squared_error" and "r2" the mean of both squared
    errors, or two moments of the targets. A null record takes away at most 1 in L1 norm
    (``"zero_out"``); a record that is replaced moves the difference by up to 2, for at most 1.84
    in all (``"replace_one"``). Of regressors a bound on the differences is found first, by counts
    of them by size (10 % of epsilon). For other metrics of labels: counts of rows by class and by
    which of the models are right. For "roc_auc": counts of both models' scores on a public grid
    (15 %), from which edges of a few cells are found, and counts of rows by class and by the pair
    of cells that their two scores are in. A row is in one cell, so that counts have the L1 bound 1
    (``"zero_out"``) and 2 (``"replace_one"``), and twice that on the two grids.
    Event: Laplace mechanisms, one for each, which need no delta: the guarantee is pure. The unit
    is one row.

    Assumed public: both models with their classes, the numbers of rows and features, all
    parameters, and that the data pass the checks. That a model says of a row what depends on that
    row alone is an assumption as well; with `groups`, each person's rows are shown in a call of
    their own, as :func:`private_score` does.

    Differences of errors beyond the bound that is found count as that bound. Intervals count the
    noise and that the rows are a sample, in which both models err on the same rows. With `groups`
    they take persons to be single rows.

    Which two models are compared must not depend on these rows, unless the choice was paid for.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpsubspace import DPSGDClassifier, DPSGDFClassifier
    >>> from dpsubspace.metrics import private_score_difference
    >>> X, y = make_classification(6000, random_state=0)
    >>> models = [DPSGDFClassifier(epsilon=1.0, random_state=0), DPSGDClassifier(epsilon=0.1)]
    >>> models = [model.set_params(random_state=0).fit(X[:4000], y[:4000]) for model in models]
    >>> gain = private_score_difference(*models, X[4000:], y[4000:], random_state=0)
    >>> gain.low < float(gain) < gain.high
    True
    >>> gain.privacy_.epsilon
    1.0
    """
    if isinstance(delta, str) and delta == "auto":
        delta = 0.0  # a delta hardly reduces Laplace noise
    target = Target(epsilon, delta, neighboring_relation).checked(pure=True)
    asked = _single(metric)
    check_real("level", level, low=0, high=1)
    check_real("loss_bound", loss_bound, low=0.01, high=1000)
    classes = np.empty(0) if asked.regression else _common_classes(model, other)
    asked = asked.about(classes, pos_label)
    _refuse_many(asked, len(classes))
    bounds = bounds_for(asked, target_bounds)
    if is_collection(X):
        refuse_exact_scores(target, asked)
    says = tuple(Outputs(each, classes, bounds, float(loss_bound)) for each in (model, other))
    paired = PairedMetric(asked, len(classes))
    rows = _checked_rows(paired, says, X, y, groups)
    refuse_hidden(paired, target, rows.records.n, rows.records.unit)
    facts = ["both models"] if target_bounds is None else ["both models", "bounds of the targets"]
    if not rows.records.grouped:
        facts.append("that what a model says of a row depends on that row alone")
    noise, unit = as_noise(random_state), paired.unit(says[0])
    plan = DifferencePlan(paired, target, (model, other), unit, float(level), noise, tuple(facts))
    found, guarantee = run_privately(plan, (X, rows), rows.records, rows.n_features, noise)
    sign = asked.sign(metric)
    low, high = (found.low, found.high) if sign > 0 else (-found.high, -found.low)
    about = classes.tolist()[asked.pos or 0] if asked.is_of_a_class(paired.plain) else None
    of_records = (float(level), rows.records.n, _names(model, other), rows.records.unit)
    return PrivateScoreDifference(
        metric, sign * found.value, low, high, *of_records, about, guarantee
    )


# Inputs ----------------------------------------------------------------------------------------


def _single(metric: Any) -> ScoreRequest:
    """Return the request for one metric; ValueError if it is none, or has several numbers."""
    if not isinstance(metric, str):
        raise ValueError(
            f"`metric` must be the name of one metric, such as 'accuracy', got {shown(metric)}:"
            " each difference is a call of its own."
        )
    asked = ScoreRequest.of(metric)
    if metric in ("confusion_matrix", "roc_curve", "calibration_curve"):
        raise ValueError(
            f"`metric`={metric!r} has several numbers, of which there is no single difference: ask"
            " for 'balanced_accuracy' or 'roc_auc'."
        )
    return asked


def _refuse_many(asked: ScoreRequest, n_classes: int) -> None:
    plain = asked.plain[0]
    if n_classes > 2 and (METRICS[plain].cells or plain in ("precision_macro", "f1_macro")):
        raise ValueError(
            f"`metric`={asked.names[0]!r} has no paired difference for {n_classes} classes: ask for"
            " 'balanced_accuracy' or 'log_loss', or score both models with private_score."
        )


def _common_classes(model: Any, other: Any) -> np.ndarray:
    classes = classes_of(model)
    if not np.array_equal(classes, classes_of(other)):
        raise ValueError(
            "`model` and `other` have different `classes_`: fit both to the same labels, with"
            " `classes` given where rows of one may be missing."
        )
    return classes


def _checked_rows(paired: PairedMetric, says: Any, X: Any, y: Any, groups: Any) -> Any:
    refuse_rows("private_score_difference", X, y)
    if is_collection(X):
        return PairedParts.checked(paired, says, X, y, groups)
    rows = ScoredRows.checked(says[0], paired.asked, None, X, y, groups)
    return PairedRows(rows, says[1], paired)


def _names(*models: Any) -> tuple[str, str]:
    first, second = (type(model).__name__ for model in models)
    return (first, second) if first != second else (f"{first} (model)", f"{second} (other)")
