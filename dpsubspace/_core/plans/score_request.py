"""Requested metrics, their groups, and the results of scoring."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult, footnote
from dpsubspace._core.fits.composites import opened
from dpsubspace._core.ground.checks import did_you_mean, shown
from dpsubspace._core.rows.records import check_order
from dpsubspace._core.statistics.score_cells import ScoreCells
from dpsubspace._core.statistics.score_metrics import METRICS, Metric, needed_sums
from dpsubspace._core.tables.frames import names_of
from dpsubspace._core.tables.kinds import Categories
from dpsubspace._core.tables.schema import Schema, as_schema, check_columns, check_types, read_table
from dpsubspace._names import imported, public
from dpsubspace.exceptions import warn

# Results ----------------------------------------------------------------------------------------
# Results of scoring: metrics with intervals, each with the cost of the call.


def _warn_of_pairs() -> None:
    """Warn that a score is used as the pair that `private_score` returned before."""
    warn(
        "private_score gives the score itself and no pair (value, privacy) any more: write score ="
        " private_score(...), and take its cost from score.privacy_. The pair goes in version 0.3.",
        FutureWarning,
    )


# Displays of the curves of metrics.
_DISPLAYS = {
    "roc_auc": "PrivateRocCurveDisplay",
    "roc_curve": "PrivateRocCurveDisplay",
    "calibration_curve": "PrivateCalibrationDisplay",
}


@public
@dataclass(frozen=True, eq=False)
class PrivateScore(PrivateResult):
    """A metric of a model on private rows, with an interval for noise and sampling.

    ``float(score)`` is its value, and printing shows the interval and the guarantee. A function
    that returns one can be the `scoring` of scikit-learn, which takes the larger score for the
    better one: of losses and errors ask for the negative, such as "neg_log_loss".

    Parameters
    ----------
    metric : str
        Name of the metric.
    value : float or ndarray
        The metric as released: a curve by its values, a confusion matrix by its entries.
    low, high : float or ndarray
        Ends of the interval, of each value by itself.
    level : float
        How often such intervals cover the metric on all rows of the kind, at least about.
    n : int or None
        Number of records; None for a group, of which it is private.
    unit : str
        What a record is: ``"row"`` or ``"person"``.
    at : ndarray or None
        Where the values of a curve lie: false positive rates of "roc_curve" and mean predicted
        probabilities of "calibration_curve".
    cells : ScoreCells or None
        Released counts that it was read from, where these are of scores.
    pos_label : object or None
        Class that the metric is about, of those metrics that are about one.
    curve : PrivateScore or None
        The ROC curve of which "roc_auc" is the area: it is read from the same counts.
    by : dict of object to PrivateScore, or None
        The same metric of each public group, by its level.
    privacy_ : PrivacyGuarantee or None
        What the call cost, and what its guarantee assumes. Scores of one call have it in common.

    See Also
    --------
    private_score : Returns one.

    Examples
    --------
    >>> from dpsubspace.metrics import PrivateScore
    >>> score = PrivateScore("recall", 0.91, 0.89, 0.93, 0.95, 2000, pos_label="ill")
    >>> print(score)
    recall of class 'ill' = 0.91 (95% interval 0.89 to 0.93)
    >>> float(score)
    0.91
    """

    metric: str
    value: Any
    low: Any
    high: Any
    level: float
    n: int | None
    unit: str = "row"
    at: np.ndarray | None = None
    cells: ScoreCells | None = field(default=None, repr=False)
    pos_label: Any = None
    curve: PrivateScore | None = field(default=None, repr=False)
    by: Mapping[Any, PrivateScore] | None = field(default=None, repr=False)
    privacy_: PrivacyGuarantee | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return self.item()

    def item(self) -> float:
        """Return the value as a number, as scikit-learn asks scores for it.

        Returns
        -------
        float
            The value.

        Raises
        ------
        ValueError
            If there are several, as of a curve or a confusion matrix.
        """
        if np.size(self.value) != 1:
            raise ValueError(
                f"{self.metric!r} has {np.size(self.value)} values, and no single number: ask"
                " private_score for another `metric`, such as 'roc_auc'."
            )
        return float(np.asarray(self.value).item())

    def plot(self, ax: Any = None, **plot_params: Any) -> Any:
        """Draw the released curve with its band; this costs nothing more.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to the method ``plot`` of the display.

        Returns
        -------
        PrivateRocCurveDisplay or PrivateCalibrationDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If the metric has no curve, or noise hid it.
        ImportError
            If matplotlib is not installed.
        """
        display = _DISPLAYS.get(self.metric)
        if display is None:
            raise ValueError(
                f"{self.metric!r} has no curve to draw: ask private_score for one of the metrics"
                f" {sorted(_DISPLAYS)}."
            )
        return imported(display).from_released(self, ax=ax, **plot_params)

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._lines, footnote(self.privacy_)]))

    def _repr_html_(self) -> str:
        return as_paragraph(str(self))

    @property
    def _lines(self) -> str:
        """The score, and a line for each group."""
        about = "" if self.pos_label is None else f" of class {self.pos_label!r}"
        groups = (f"  {level!r}: {score._words}" for level, score in (self.by or {}).items())
        between = " of " if np.ndim(self.value) else " = "
        return "\n".join([f"{self.metric}{about}{between}{self._words}", *groups])

    @property
    def _words(self) -> str:
        """Text of the value, with its interval."""
        if np.ndim(self.value):
            return f"{np.size(self.value)} values: see `value`, with intervals in `low` and `high`"
        value, low, high = (f"{float(x):.4g}" for x in (self.value, self.low, self.high))
        return f"{value} ({100 * self.level:g}% interval {low} to {high})"

    # The former pair of a value and its cost ------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        _warn_of_pairs()
        return iter((self, self.privacy_))

    def __getitem__(self, place: int) -> Any:
        _warn_of_pairs()
        return (self, self.privacy_)[place]

    @property
    def privacy(self) -> PrivacyGuarantee | None:
        """What the call cost, as the pair had it."""
        _warn_of_pairs()
        return self.privacy_


class PrivateScores(dict[str, PrivateScore], PrivateResult):
    """Scores of one call by metric, with what it cost as ``privacy_``."""

    def __init__(self, scores: Mapping[str, PrivateScore], privacy: PrivacyGuarantee):
        super().__init__(scores)
        self.privacy_ = privacy

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (dict(self.items()), self.privacy_)

    def __str__(self) -> str:
        return "\n".join([*(score._lines for score in self.values()), footnote(self.privacy_)])

    def _repr_html_(self) -> str:
        return as_paragraph(str(self))


def as_paragraph(text: str) -> str:
    return f"<p>{html.escape(text).replace(chr(10), '<br>')}</p>"


# Groups -----------------------------------------------------------------------------------------
# Public groups that scores are split by: their levels are given, and never read from rows.


@dataclass(frozen=True, eq=False)
class PublicGroups:
    """Groups of rows by a public list of levels."""

    levels: tuple[Any, ...]  # Values that groups have, public
    # (n_rows,): index of the value of each row among the levels. It is their number for a value
    # that is none of them: such rows are in no group. Private.
    group: Any  # np.ndarray, or arrays in parts

    @property
    def n_groups(self) -> int:
        """Number of groups, including that of all rows in no group."""
        return len(self.levels) + 1

    @classmethod
    def of(cls, by: Any, model: Any, X: Any, n_rows: int) -> PublicGroups:
        """Return groups of rows; ValueError unless levels are known and each row has a value."""
        frame, name, kind = _column(by, model, X)
        check_order(X, by=by[0] if isinstance(by, tuple) else None)
        kind = Categories(kind.values, missing=True)
        codes = read_table(frame, Schema({name: kind}), name="by").codes[:, 0]
        if len(codes) != n_rows:
            raise ValueError(
                "`by` must have one entry for each row of `X`, and has more or fewer: compare"
                " len(by[0]) and len(X)."
            )
        return cls(kind.values, np.where(codes < 0, len(kind.values), codes).astype(np.intp))

    @staticmethod
    def levels_in(by: Any, model: Any, X: Any) -> tuple[Any, ...]:
        """Levels of groups in a column of a Dask data frame; ValueError if the column has none."""
        if isinstance(by, tuple):
            raise ValueError(
                "`by` must name a column where `X` is a Dask collection: put the entries in a"
                " column of `X`, and pass the column with its levels, as in by={'sex': ['f', 'm']}."
            )
        frame, name, kind = _column(by, model, X)
        schema = Schema({name: Categories(kind.values, missing=True)})
        check_columns(frame, schema, "X")
        check_types(frame._meta, schema, "X")
        return kind.values


def _column(by: Any, model: Any, X: Any) -> tuple[Any, str, Categories]:
    """Return the source of values, the name of the column, and its public categories."""
    if isinstance(by, tuple) and len(by) == 2 and not isinstance(by[0], str):
        entries, levels = by
        values = entries if hasattr(entries, "dtype") else np.array(entries, dtype=object)
        return np.asarray(values).reshape(-1, 1), "by", _levels(levels)
    if isinstance(by, Mapping) and len(by) == 1:
        ((name, levels),) = by.items()
        kind = _levels(levels)
    elif isinstance(by, str):
        name, kind = by, _of_schemas(by, model)
    else:
        raise ValueError(
            "`by` must be the name of a column of categories in the schema of the model, or a dict"
            " of a column and its levels such as {'sex': ['f', 'm']}, or a tuple (entries, levels)"
            f" with an entry for each row, got {shown(by) if not hasattr(by, 'shape') else 'an'}"
            f"{' array' if hasattr(by, 'shape') else ''}. Levels are public: they are never read"
            " from the rows."
        )
    if names_of(X) is None:
        raise ValueError(
            f"`by` names the column {shown(name)}, and the columns of `X` have no names: pass a"
            " data frame, or by=(entries, levels)."
        )
    return X, name, kind


def _levels(levels: Any) -> Categories:
    """Return the given levels as categories."""
    try:
        return levels if isinstance(levels, Categories) else Categories(levels)
    except ValueError as error:
        raise ValueError(f"the levels of `by` cannot be used: {error}") from None


def _of_schemas(name: str, model: Any) -> Categories:
    """Return the categories of a column in the schema of a model."""
    inside = opened(model, fitted=True).walk()
    schemas = (getattr(part.model, "schema", None) for part in inside)
    for schema in (as_schema(each) for each in schemas if isinstance(each, Mapping)):
        kind = schema.get(name)
        if isinstance(kind, Categories):
            return kind
        if kind is not None:
            raise ValueError(
                f"`by` names the column {shown(name)}, which is {shown(kind)} in the schema, and"
                " groups need categories: pass a column of groups with its levels, by=(entries,"
                " levels)."
            )
    raise ValueError(
        f"no schema of the model says which levels the column {shown(name)} of `by` has: pass them,"
        f" as in by={{{name!r}: ['a', 'b']}}. They are public, and never read from the rows."
    )


# Requests ---------------------------------------------------------------------------------------

# Metric behind each name, and its sign under that name.
_NAMES = {name: (name, 1) for name in METRICS} | {
    other: (name, sign) for name, metric in METRICS.items() for other, sign in metric.others.items()
}

# What is asked for elsewhere, and has another name here.
_MEANT = {word: name for name, metric in METRICS.items() for word in metric.words}
_OF_PRECISION = ("average_precision", "average_precision_score", "auprc", "pr_auc", "prauc")


def _advice(unknown: Any) -> str:
    """Return what to ask for in place of an unknown metric, or ""."""
    if unknown in _OF_PRECISION:
        return (
            f" There is no {unknown!r}: ask for 'roc_auc', or for ['precision', 'recall', 'f1'] at"
            " the threshold of the model."
        )
    return did_you_mean(unknown, _NAMES, _MEANT)


# The area under the ROC curve is about no class, but its curve is.
_WITH_CURVE = "roc_auc"


@dataclass(frozen=True)
class ScoreRequest:
    """Requested metrics, and what has to be released for them."""

    names: tuple[str, ...]  # Names as they were requested
    plain: tuple[str, ...]  # Names of the metrics behind them
    one: bool  # Whether a single metric was requested
    # Which of two classes metrics are about; None if there are not two, or no metric needs one.
    pos: int | None = None

    @classmethod
    def of(cls, metric: Any) -> ScoreRequest:
        """Return the request; ValueError unless all metrics are known and of one kind of model."""
        one = isinstance(metric, str)
        names = (metric,) if one else tuple(metric) if isinstance(metric, Sequence) else ()
        unknown = [name for name in names if not (isinstance(name, str) and name in _NAMES)]
        if not names or unknown or len(set(names)) < len(names):
            raise ValueError(
                f"`metric` must be one of {sorted(_NAMES)}, or a list of different ones, got"
                f" {shown(metric)}.{''.join(map(_advice, unknown))}"
            )
        plain = tuple(_NAMES[name][0] for name in names)
        numbers = [name for name in plain if METRICS[name].regression]
        if numbers and len(numbers) < len(plain):
            raise ValueError(
                f"`metric` has metrics of classifiers and of regressors, got {shown(metric)}: ask"
                " for them one by one."
            )
        return cls(names, plain, one)

    def only(self, plain: set[str]) -> ScoreRequest:
        """Return the request for some of the metrics, by their names in METRICS."""
        pairs = [each for each in zip(self.names, self.plain, strict=True) if each[1] in plain]
        names, left = zip(*pairs, strict=True)
        return replace(self, names=names, plain=left)

    def without(self, plain: set[str]) -> ScoreRequest | None:
        """Return the request without some metrics; None if no other is left."""
        left = {*self.plain} - plain
        return self.only(left) if left else None

    def about(self, classes: np.ndarray, pos_label: Any) -> ScoreRequest:
        """Return the request for a model of these classes; ValueError if they do not fit."""
        if len(classes) == 2:
            plain = tuple("roc_auc" if name == "roc_auc_ovr" else name for name in self.plain)
            asked = replace(self, plain=plain)
            return replace(asked, pos=asked._positive(classes.tolist(), pos_label))
        few = next((name for name in self.plain if METRICS[name].for_many), None)
        if few is not None and len(classes):
            instead = METRICS[few].for_many
            raise ValueError(
                f"metric={few!r} is for two classes, and the model has {len(classes)}: ask for"
                f" {instead!r}. There are also 'balanced_accuracy', 'precision_macro',"
                " 'recall_macro', 'f1_macro', 'roc_auc_ovr', 'log_loss' and 'confusion_matrix'."
            )
        self._check_needs_no(pos_label)
        return self

    def _positive(self, classes: list[Any], pos_label: Any) -> int | None:
        """Index of the class that metrics are about, by the rules of scikit-learn."""
        needed = next((name for name in self.plain if METRICS[name].of_class), None)
        if needed is None and _WITH_CURVE not in self.plain:
            self._check_needs_no(pos_label)
            return None
        if pos_label is None:
            usual = sorted(classes) in ([0, 1], [-1, 1]) if _are_numbers(classes) else False
            if needed is not None and not usual:
                raise ValueError(
                    f"`pos_label` is not specified, and the classes are {classes}: metric="
                    f"{needed!r} is about one of them. Pass it, for example"
                    f" pos_label={classes[1]!r}. (Of models that are fitted to 0 and 1, or to -1"
                    " and 1, the positive class is 1.)"
                )
            return classes.index(1) if usual else 1
        if np.ndim(pos_label) or pos_label not in classes:
            raise ValueError(
                f"pos_label={shown(pos_label)} is not a valid label: It should be one of {classes}."
            )
        return classes.index(pos_label)

    def _check_needs_no(self, pos_label: Any) -> None:
        if pos_label is not None:
            of_class = [name for name, metric in METRICS.items() if metric.of_class]
            raise ValueError(
                f"pos_label={shown(pos_label)} has no effect on metric={shown(self.names)}, which"
                f" do not have a positive class: leave it out. Metrics that do: {of_class}."
            )

    def sign(self, name: str) -> int:
        """Return -1 for scorers that turn an error into a score, and 1 for others."""
        return _NAMES[name][1]

    @property
    def regression(self) -> bool:
        """Whether targets are numbers."""
        return METRICS[self.plain[0]].regression

    @property
    def flipped(self) -> bool:
        """Whether metrics are about the first of two classes."""
        return self.pos == 0

    @property
    def _metrics(self) -> list[Metric]:
        return [METRICS[name] for name in self.plain]

    @property
    def labels(self) -> bool:
        """Whether predicted labels are needed."""
        return any(metric.formula is not None for metric in self._metrics)

    @property
    def labels_together(self) -> bool:
        """Whether several metrics belong to one confusion matrix."""
        return sum(metric.formula is not None for metric in self._metrics) > 1

    @property
    def errors_together(self) -> bool:
        """Whether there are means of errors and of their squares, which have an order."""
        means = {metric.mean[0] for metric in self._metrics if metric.error}
        return means == {"error", "error^2"}

    @property
    def ranked(self) -> bool:
        """Whether scores are counted in cells: of the second class, or of each of many classes."""
        return any(metric.cells for metric in self._metrics)

    @property
    def confusion(self) -> bool:
        """Whether predicted labels are counted by themselves."""
        if self._in_cells:
            return False
        return any(metric.formula is not None and not metric.sums for metric in self._metrics)

    @property
    def _in_cells(self) -> bool:
        """Whether predicted labels are counted with scores, of two classes."""
        return any(METRICS[name].cells and name != "roc_auc_ovr" for name in self.plain)

    @property
    def sums(self) -> dict[str, float]:
        """Sums over rows, with shares of their noise."""
        counted = self.confusion or self._in_cells
        summed = [name for name in self.plain if METRICS[name].sums]
        summed = [name for name in summed if not (counted and METRICS[name].formula is not None)]
        return needed_sums(summed) if summed else {}

    def is_of_a_class(self, plain: str) -> bool:
        """Whether a metric is about one class."""
        return self.pos is not None and METRICS[plain].of_class


def classes_of(model: Any) -> np.ndarray:
    """Classes of a model, in its order."""
    if not hasattr(model, "classes_"):
        _refuse_unfitted(model)
        raise ValueError(
            f"{type(model).__name__} has no `classes_`, so that it is no classifier: ask for a"
            " metric of regressors, such as 'root_mean_squared_error', and pass `target_bounds`."
        )
    classes = np.asarray(model.classes_)
    if classes.ndim != 1 or len(classes) < 2:
        raise ValueError("the model must know one list of at least two classes.")
    return classes


def _refuse_unfitted(model: Any) -> None:
    """Raise an error for a class of models, and for a model that was not fitted."""
    if isinstance(model, type):
        raise TypeError(
            f"`model` is the class {model.__name__}: pass a fitted model, as"
            f" {model.__name__}(...).fit(X, y) is."
        )
    if hasattr(model, "fit"):
        check_is_fitted(model, msg=_UNFITTED)


_UNFITTED = (
    "this %(name)s is not fitted: call fit(X, y) first, with other rows than those that score it."
    " Nothing was released or charged."
)


def _are_numbers(classes: list[Any]) -> bool:
    return all(isinstance(each, (bool, int, float)) for each in classes)
