"""Scores of a fitted model on private rows that it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._accounting.budget import Budget, Part, Target
from dpsubspace._accounting.guarantee import Released
from dpsubspace._accounting.permission import about_to_release
from dpsubspace._checks import check_bounds, check_real, shown
from dpsubspace._estimators.base import guarantee_of
from dpsubspace._estimators.model_outputs import (
    losses,
    predicted_codes,
    residuals,
    scores_of,
    squared_errors,
    threshold_of,
)
from dpsubspace._release.noise import as_noise
from dpsubspace._release.releases import Releases
from dpsubspace._rows.inputs import (
    check_classes,
    check_rows_and_labels,
    check_rows_and_targets,
    named,
)
from dpsubspace._rows.records import Records, check_groups
from dpsubspace._statistics.score_cells import (
    ERRORS,
    FINE,
    ScoreCells,
    bounded_sums,
    counted,
    error_cells,
    fine_edges,
    largest_error,
    n_cells,
    on_simplex,
    quantile_edges,
    spread_of_scores,
    typical_scores,
)
from dpsubspace._statistics.score_metrics import (
    FROM_CELLS,
    FROM_LABELS,
    SUMS,
    Counted,
    Summed,
    Value,
    needed_sums,
)
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

__all__ = ["PrivateScore", "private_score"]

# Scorers of scikit-learn that are something else with another sign or name.
_SAME = {
    "neg_log_loss": ("log_loss", -1),
    "neg_brier_score": ("brier_score_loss", -1),
    "neg_mean_absolute_error": ("mean_absolute_error", -1),
    "neg_mean_squared_error": ("mean_squared_error", -1),
    "neg_root_mean_squared_error": ("root_mean_squared_error", -1),
    "brier": ("brier_score_loss", 1),
}
_REGRESSION = (
    "mean_absolute_error",
    "mean_squared_error",
    "root_mean_squared_error",
    "r2",
)
_LOSSES = ("log_loss", "brier_score_loss")
_BINARY = (*FROM_CELLS, "f1", "precision", "recall")
_KNOWN = tuple(dict.fromkeys([*FROM_LABELS, *FROM_CELLS, *SUMS, *_SAME]))

# Shares of epsilon: of the grid that edges are found on, of the bound on errors of regressors, and
# of sums beside counts.
_EDGES, _RANGE, _SUMS_BESIDE = 0.15, 0.1, 0.3

# Share of decision values in one cell of the public grid above which their order is hidden.
_IN_ONE = 0.9

# Log loss above which no row counts for more, unless the caller knows better.
_LOSS_BOUND = 5.0


@dataclass(frozen=True, eq=False)
class PrivateScore:
    """A metric of a model on private rows, with an interval for noise and sampling.

    ``float(score)`` is its value, and printing shows the interval.

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
    n : int
        Number of records.
    unit : str
        What a record is: ``"row"`` or ``"person"``.
    at : ndarray or None
        Where the values of a curve lie: false positive rates of "roc_curve" and mean predicted
        probabilities of "calibration_curve".
    cells : ScoreCells or None
        Released counts that it was read from, where these are of scores.

    See Also
    --------
    private_score : Returns one.

    Examples
    --------
    >>> from dpsubspace import PrivateScore
    >>> score = PrivateScore("accuracy", 0.91, 0.89, 0.93, 0.95, 2000)
    >>> print(score)
    accuracy = 0.91 (95% interval 0.89 to 0.93)
    >>> float(score)
    0.91
    """

    metric: str
    value: Any
    low: Any
    high: Any
    level: float
    n: int
    unit: str = "row"
    at: np.ndarray | None = None
    cells: ScoreCells | None = None

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        if np.ndim(self.value):
            return f"{self.metric} of {np.size(self.value)} values, with intervals"
        value, low, high = (f"{float(x):.4g}" for x in (self.value, self.low, self.high))
        return f"{self.metric} = {value} ({100 * self.level:g}% interval {low} to {high})"


@dataclass(frozen=True)
class _Asked:
    """Metrics as they were asked for, and what has to be released for them."""

    names: tuple[str, ...]
    one: bool  # whether a single one was asked for
    counts: str | None  # "cells", "confusion" or None
    sums: dict[str, float]

    @classmethod
    def of(cls, metric: Any) -> _Asked:
        """ValueError unless all are known and of one kind of model."""
        one = isinstance(metric, str)
        names = (metric,) if one else tuple(metric) if isinstance(metric, Sequence) else ()
        unknown = [name for name in names if not (isinstance(name, str) and name in _KNOWN)]
        if not names or unknown or len(set(names)) < len(names):
            raise ValueError(
                f"`metric` must be one of {sorted(_KNOWN)}, or a list of different ones, got"
                f" {shown(metric)}."
            )
        plain = [_plain(name)[0] for name in names]
        numbers = [name for name in plain if name in _REGRESSION]
        if numbers and len(numbers) < len(plain):
            raise ValueError(
                f"`metric` has metrics of classifiers and of regressors, got {shown(metric)}: ask"
                " for them one by one."
            )
        counts = None
        if any(name in FROM_CELLS for name in plain):
            counts = "cells"
        elif any(name in FROM_LABELS and name != "accuracy" for name in plain):
            counts = "confusion"
        summed = [name for name in plain if name in SUMS]
        if counts is not None:
            summed = [name for name in summed if name != "accuracy"]
        return cls(names, one, counts, needed_sums(summed) if summed else {})

    @property
    def plain(self) -> list[str]:
        """Names without those of scorers."""
        return [_plain(name)[0] for name in self.names]

    @property
    def regression(self) -> bool:
        """Whether targets are numbers."""
        return self.plain[0] in _REGRESSION

    @property
    def labels(self) -> bool:
        """Whether predicted labels are needed."""
        return any(name in FROM_LABELS for name in self.plain)

    def parts(self) -> dict[str, Part]:
        """Releases, with their shares of epsilon."""
        parts, left = {}, 1.0
        if self.sums:
            share = _SUMS_BESIDE if self.counts else 1.0
            if self.regression:
                parts["range"] = Part(_RANGE, kind="laplace")
            parts["sums"] = Part(share - _RANGE * self.regression, kind="laplace")
            left -= share
        if self.counts == "cells":
            parts["edges"] = Part(left * _EDGES, kind="laplace")
            parts["cells"] = Part(left * (1 - _EDGES), kind="laplace")
        elif self.counts == "confusion":
            parts["confusion"] = Part(left, kind="laplace")
        return parts


def _power(name: str) -> tuple[str, int]:
    """What is added up under a name, and to which power."""
    base, _, power = name.partition("^")
    return base, int(power or 1)


def _plain(name: str) -> tuple[str, int]:
    """Name of what a scorer is made of, and its sign."""
    return _SAME.get(name, (name, 1))


def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    metric: Any = "accuracy",
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    target_bounds: tuple[float, float] | None = None,
    loss_bound: float = _LOSS_BOUND,
    level: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release how good a fitted model is on private rows.

    The model is any of scikit-learn's form, private or not, and the rows are such as it was not
    fitted on. Several metrics of a classifier are read from the same released counts, so that
    they cost together about what one of them costs.

    Parameters
    ----------
    model : estimator
        Fitted classifier, regressor or Pipeline. What it says of a row must depend on that row
        alone.
    X : array-like of shape (n_samples, n_features)
        Private rows, in whatever form the model takes.
    y : array-like of shape (n_samples,)
        Their labels, all of which are in ``model.classes_``, or targets.
    metric : str or list of str, default="accuracy"
        By scikit-learn's names. Classifiers: "accuracy", "balanced_accuracy", "precision",
        "recall", "f1", the last three with "_macro" for more than two classes, "confusion_matrix",
        "log_loss" and "brier_score_loss" ("neg_log_loss", "neg_brier_score"); with two classes
        also "roc_auc", "roc_curve" and "calibration_curve". Regressors:
        "r2", "mean_absolute_error", "mean_squared_error" and "root_mean_squared_error" (or as
        "neg_...").
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
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
        it. 5 is the loss of a probability of 0.0067.
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
        as one together: each of ten rows counts for a tenth. None protects single rows.

    Returns
    -------
    Released
        ``(value, privacy)``: a :class:`PrivateScore`, or for a list of metrics a dict of them by
        name, and the :class:`PrivacyGuarantee` of this call. A metric of a list that the noise
        hides is NaN, with a warning.

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
    and counts of rows of each class in these; for metrics of labels alone, the confusion matrix;
    for "accuracy" alone, log loss, Brier loss and metrics of regressors, sums over rows of numbers
    in [0, 1] (30 % of epsilon beside counts; of regressors after counts of errors by size, with
    10 %, from which a bound on them is found). A row is in one cell: counts have the L1 (and L2)
    bound 1 (``"zero_out"``), and 2 in L1 and sqrt(2) in L2 (``"replace_one"``). Sums, with
    shares of noise that add up to 1, have the bound 1 in both. Event: Laplace mechanisms, one
    for each, which need no delta: the guarantee is pure. The unit is one row.

    Assumed public: the model with its classes, the numbers of rows and features, all parameters,
    and that the data pass the checks, one of which is that the model knows all labels. That the
    model says of a row what depends on that row alone is an assumption as well: scores that
    are ranks among the rows given, say, are not covered. A score that is not a number counts
    as 0, a loss that is not as the largest, and a predicted label that is not a class as wrong.
    Whether a class is missing in `y` shows in nothing but released counts.

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
    but score and interval are then about these rows, on which the model is too good. A model
    that was fitted on them without privacy is not public: its score has no guarantee.

    With `groups` a metric is that of a row drawn from a person drawn at random; intervals take
    persons to be single rows, and are wider than they need be.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpsubspace import DPSGDFClassifier, private_score
    >>> X, y = make_classification(6000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:4000], y[:4000])
    >>> score, guarantee = private_score(
    ...     model, X[4000:], y[4000:], metric="roc_auc", epsilon=0.5, random_state=0
    ... )
    >>> score.low < score.value < score.high
    True
    >>> guarantee.epsilon
    0.5
    """
    options = {
        "metric": metric,
        "target_bounds": target_bounds,
        "loss_bound": loss_bound,
        "level": level,
        "groups": groups,
    }
    target = Target(epsilon, delta, neighboring_relation)
    return _score(X, target, random_state, model=model, y=y, **options)


def _score(
    X: Any,
    target: Target,
    random_state: Any,
    *,
    model: Any,
    y: Any,
    metric: Any = "accuracy",
    target_bounds: Any = None,
    loss_bound: float = _LOSS_BOUND,
    level: float = 0.95,
    groups: Any = None,
    present: np.ndarray | None = None,
) -> Released:
    """Release metrics, with the records where `present` is False as null records."""
    if isinstance(target.delta, str) and target.delta == "auto":
        target = replace(target, delta=0.0)  # Laplace noise gains next to nothing from one
    target = target.checked(pure=True)
    asked = _Asked.of(metric)
    check_real("level", level, low=0, high=1)
    check_real("loss_bound", loss_bound, low=0.01, high=1000)
    rows = _Rows.checked(model, X, y, asked, target_bounds, float(loss_bound), groups, present)
    records = rows.records
    noise = as_noise(random_state)
    budget = Budget.split(target, asked.parts(), records.n)
    public = ["the model"] if target_bounds is None else ["the model", "bounds of the targets"]
    guarantee = guarantee_of(
        budget,
        secure=noise.secure,
        n_samples=records.n,
        n_features=rows.n_features,
        public=(*public, "that the model says of a row what depends on that row alone"),
        unit=records.unit,
        of="private_score",
    )
    prepared = rows.prepared(asked)
    about_to_release(guarantee)
    releases = Releases(budget, noise, records)
    found = prepared.released(releases, noise.public())
    values = {name: found.value(_plain(name)[0], float(level)) for name in asked.names}
    first = values[asked.names[0]]
    if asked.one and isinstance(first, PrivacyError):
        raise first
    scores = {
        name: _as_score(name, value, found, float(level), records) for name, value in values.items()
    }
    return Released(scores[asked.names[0]] if asked.one else scores, guarantee)


# What is counted ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Checked rows, and the model that they are shown to."""

    model: Any
    X: Any
    y: np.ndarray  # indices of classes, or targets
    classes: np.ndarray  # none for a regressor
    records: Records
    n_features: int
    bounds: tuple[float, float]
    loss_bound: float

    @classmethod
    def checked(
        cls,
        model: Any,
        X: Any,
        y: Any,
        asked: _Asked,
        bounds: Any,
        loss_bound: float,
        groups: Any,
        present: np.ndarray | None,
    ) -> _Rows:
        """ValueError where the data cannot be scored, in words that hold no entry of them."""
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        width = X.shape[1] if len(getattr(X, "shape", ())) > 1 else 1
        width = getattr(model, "n_features_in_", width)
        blank, estimator = np.zeros((n, 1)), named("private_score")
        if asked.regression:
            ends = _checked_bounds(bounds)
            y = check_rows_and_targets(estimator, blank, y)[1]
            if y.size != n:
                raise ValueError(f"`y` must be one target a row, got {y.shape[1]} columns.")
            records = check_groups(groups, blank, present)
            y = y.reshape(-1)
            return cls(model, X, y, np.empty(0), records, width, ends, loss_bound)
        if bounds is not None:
            raise ValueError(
                "`target_bounds` are for metrics of regressors, such as 'r2', and"
                f" {asked.names[0]!r} is one of classifiers: pass another `metric`, or leave them"
                " out."
            )
        classes = _classes_of(model, asked)
        labels = check_rows_and_labels(estimator, blank, y)[1]
        codes = _codes(labels, classes)
        records = check_groups(groups, blank, present)
        return cls(model, X, codes, classes, records, width, (0.0, 1.0), loss_bound)

    def prepared(self, asked: _Asked) -> _Said:
        """What the model says of the rows, as far as it is asked for."""
        scores, probabilities, predicted, threshold = np.empty(0), False, None, None
        if asked.counts == "cells":
            scores, probabilities = scores_of(self.model, self.X, len(self.y))
            if "calibration_curve" in asked.plain and not probabilities:
                raise ValueError("metric='calibration_curve' needs a model with `predict_proba`.")
        if asked.labels:
            predicted = predicted_codes(self.model, self.X, self.y, self.classes)
        if asked.counts == "cells" and asked.labels:
            threshold = threshold_of(self.model, probabilities=probabilities)
        numbers: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(base for base, _ in map(_power, asked.sums)):
            numbers |= {} if name in numbers else self._numbers(name, predicted)
        return _Said(self, asked, scores, probabilities, threshold, predicted, numbers)

    def units(self, largest: float) -> dict[str, float]:
        """What 1 stands for in means, by metric, with the largest error a part of the bounds."""
        width = largest * (self.bounds[1] - self.bounds[0])
        return {
            "log_loss": self.loss_bound,
            "brier_score_loss": 1.0 if len(self.classes) == 2 else 2.0,
            "mean_absolute_error": width,
            "mean_squared_error": width**2,
            "root_mean_squared_error": width,
            "r2": 4 * largest**2,  # errors are parts of the width of the bounds, targets of half
        }

    def _numbers(self, name: str, predicted: np.ndarray | None) -> dict[str, np.ndarray]:
        """Numbers of the rows, from 0 to 1 but for targets, of which sums are taken."""
        if name == "hit":
            return {name: (predicted == self.y).astype(np.float64)}
        if name == "loss":
            every = losses(self.model, self.X, self.y, len(self.classes))
            return {name: np.minimum(every / self.loss_bound, 1.0)}
        if name == "brier":
            every = squared_errors(self.model, self.X, self.y, len(self.classes))
            return {name: every / self.units(1.0)["brier_score_loss"]}
        errors, targets = residuals(self.model, self.X, self.y, *self.bounds)
        return {"error": errors, "t": targets}


@dataclass(frozen=True)
class _Said:
    """What is counted of the rows: nothing of it is public yet."""

    rows: _Rows
    asked: _Asked
    scores: np.ndarray
    probabilities: bool
    threshold: float | None
    predicted: np.ndarray | None
    numbers: dict[str, np.ndarray]

    def released(self, releases: Releases, rng: np.random.Generator) -> _Found:
        """Release all that was asked for."""
        counts, summed = None, None
        if self.asked.counts == "cells":
            cells = self._cells(releases)
            counts = Counted(cells, None, cells.noise, self.rows.records.n, rng)
        elif self.asked.counts == "confusion":
            counts = self._confusion(releases, rng)
        if self.asked.sums:
            summed = self._means(releases)
        return _Found(counts, summed, rng)

    def _released(self, releases: Releases, name: str, cells: np.ndarray, n: int) -> np.ndarray:
        return releases.laplace(name, counted(cells, n, self.rows.records))

    def _cells(self, releases: Releases) -> ScoreCells:
        """Counts of scores and labels between edges that are released first."""
        budget, n = releases.budget, self.rows.records.n
        if budget.private:
            grid = fine_edges(probabilities=self.probabilities)
            fine = self._released(releases, "edges", np.searchsorted(grid, self.scores), FINE)
            fine = on_simplex(fine, n)
            if not self.probabilities and fine.max() > _IN_ONE * n:
                _tell_of_scale()
            k = n_cells(n, budget.scales["cells"])
        else:
            grid = _between(self.scores)
            fine = np.bincount(np.searchsorted(grid, self.scores), minlength=len(grid) + 1)
            fine, k = fine.astype(np.float64), 0
        if k:
            edges = quantile_edges(fine, grid, k, self.threshold)
        else:
            inner = grid if self.threshold is None else np.unique([*grid, self.threshold])
            edges = np.concatenate([[-np.inf], inner, [np.inf]])
        cells, first = np.searchsorted(edges[1:-1], self.scores), -1
        if self.threshold is not None:
            # A row is where its predicted label says, should that differ by rounding or a rule
            # of the model's own.
            first = int(np.searchsorted(edges[1:-1], self.threshold)) + 1
            cells = np.where(self.predicted == 1, np.maximum(cells, first), cells)
            cells = np.where(self.predicted == 0, np.minimum(cells, first - 1), cells)
        k = len(edges) - 1
        counts = self._released(releases, "cells", 2 * cells + self.rows.y, 2 * k).reshape(k, 2)
        return ScoreCells(
            edges,
            counts,
            typical_scores(fine, grid, edges, probabilities=self.probabilities),
            _scale(releases, "cells", 2.0),
            n,
            self.rows.classes,
            self.probabilities,
            first,
            spread_of_scores(fine, grid, edges, counts) if budget.private else np.zeros(k),
        )

    def _confusion(self, releases: Releases, rng: np.random.Generator) -> Counted:
        """Counts of true and predicted labels."""
        c = len(self.rows.classes)
        assert self.predicted is not None
        cells = self.rows.y * c + self.predicted
        matrix = self._released(releases, "confusion", cells, c * c).reshape(c, c)
        return Counted(None, matrix, _scale(releases, "confusion", 2.0), self.rows.records.n, rng)

    def _means(self, releases: Releases) -> Summed:
        """Means of bounded numbers, of errors between bounds that are released first."""
        records, names = self.rows.records, [*self.asked.sums]
        shares = np.array([*self.asked.sums.values()])
        largest = 1.0
        if "range" in releases and releases.budget.private:
            counts = self._released(releases, "range", error_cells(self.numbers["error"]), ERRORS)
            largest = largest_error(counts, _scale(releases, "range", 2.0), records.n)
        columns = [self._column(name, largest) for name in names]
        sums = releases.laplace("sums", bounded_sums(np.stack(columns, axis=1), shares, records))
        scale = _scale(releases, "sums", 1.0)
        means = dict(zip(names, (sums / shares / records.n).tolist(), strict=True))
        scales = {name: scale / share / records.n for name, share in self.asked.sums.items()}
        return Summed(means, scales, records.n, self.rows.units(largest))

    def _column(self, name: str, largest: float) -> np.ndarray:
        """Numbers in [0, 1] that are added up under a name."""
        base, power = _power(name)
        numbers = self.numbers[base]
        if base == "t":
            return numbers**power if power % 2 == 0 else (numbers**power + 1) / 2
        return np.clip(numbers / largest if base == "error" else numbers, 0.0, 1.0) ** power


@dataclass(frozen=True)
class _Found:
    """What was released, from which metrics are read."""

    counts: Counted | None
    sums: Summed | None
    rng: np.random.Generator

    def value(self, metric: str, level: float) -> Value | PrivacyError:
        """A metric, or why there is none."""
        of_labels = metric in FROM_LABELS or metric in FROM_CELLS
        if self.counts is not None and of_labels:
            few = self.counts.too_few(metric)
            if few is None:
                return self.counts.value(metric, level)
            return PrivacyError(
                f"the noisy number of rows of the smallest class that {metric!r} depends on is"
                f" {max(few, 0.0):.0f}, which the noise hides: it would say nothing. More rows or"
                " a larger epsilon help; 'accuracy' needs no rows of each class. What was released"
                " stays charged."
            )
        assert self.sums is not None
        value = self.sums.value(metric, level, self.rng)
        if value is not None:
            return value
        return PrivacyError(
            "the noise hides how much targets vary, which 'r2' depends on: tighter `target_bounds`,"
            " more rows or a larger epsilon help; 'root_mean_squared_error' does not depend"
            " on it. What was released stays charged."
        )


def _tell_of_scale() -> None:
    """Warn of decision values of another size than the grid is made for, as it was released."""
    warn(
        "nearly all decision values of the model lie in one cell of the public grid, which is 0.25"
        " wide near 0 and wider beyond: their order is hidden, and what depends on it is worth"
        " nothing, intervals included. Use a model with `predict_proba`, or scale the features so"
        " that decision values are about 1 in size.",
        PrivacyWarning,
        about=("scale of scores",),
    )


def _as_score(
    name: str, value: Value | PrivacyError, found: _Found, level: float, records: Records
) -> PrivateScore:
    """A metric by the name and with the sign that it was asked for."""
    plain, sign = _plain(name)
    cells = None if found.counts is None or plain in SUMS else found.counts.cells
    if isinstance(value, PrivacyError):
        nothing = Value(math.nan, math.nan, math.nan)
        warn(f"{name} is NaN: {value}", PrivacyWarning, about=("score", name))
        value = nothing
    ends = (value.low, value.high) if sign > 0 else (-value.high, -value.low)
    unit = records.unit
    return PrivateScore(name, sign * value.value, *ends, level, records.n, unit, value.at, cells)


def _scale(releases: Releases, name: str, replaced: float) -> float:
    """Scale of the Laplace noise of a release that a record moves by 1, or by `replaced`."""
    budget = releases.budget
    if not budget.private:
        return 0.0
    moved = 1.0 if budget.target.neighboring_relation == "zero_out" else replaced
    return moved / budget.scales[name]


def _between(scores: np.ndarray, most: int = 2048) -> np.ndarray:
    """Inner edges of cells with one score each, where there are no more scores than `most`."""
    scores = np.unique(scores)
    if len(scores) > most:
        scores = np.unique(np.quantile(scores, np.linspace(0, 1, most)))
    finite = np.clip(scores, -1e300, 1e300)
    middles = finite[:-1] / 2 + finite[1:] / 2
    return np.unique(middles) if len(middles) > 1 else np.array([-1.0, 1.0])


def _checked_bounds(bounds: Any) -> tuple[float, float]:
    """Public range of targets."""
    if bounds is None:
        raise ValueError(
            "metrics of regressors need the public range of targets: pass `target_bounds`, such as"
            " (0, 100). Of a classifier ask for another `metric`, such as 'accuracy'."
        )
    check_bounds("target_bounds", bounds, 1)
    low, high = (float(np.asarray(end).reshape(-1)[0]) for end in bounds)
    return low, high


def _classes_of(model: Any, asked: _Asked) -> np.ndarray:
    """Classes of a model, two where a metric needs that."""
    if not hasattr(model, "classes_"):
        raise ValueError(
            f"{type(model).__name__} has no `classes_`: fit a classifier first, or ask for a metric"
            " of regressors, such as 'root_mean_squared_error'."
        )
    classes = np.asarray(model.classes_)
    if classes.ndim != 1 or len(classes) < 2:
        raise ValueError("the model must know one list of at least two classes.")
    binary = [name for name in asked.plain if name in _BINARY]
    if binary and len(classes) != 2:
        raise ValueError(
            f"metric={binary[0]!r} is for two classes, and the model has {len(classes)}: ask for"
            " 'balanced_accuracy', 'f1_macro' or 'log_loss'."
        )
    return classes


def _codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Index of each label among the classes of the model."""
    order = np.argsort(classes)
    try:
        return order[check_classes(labels, classes)[1]]
    except (TypeError, ValueError):
        pass
    # Raised out here, so that no chained exception carries an entry.
    raise ValueError(
        "`y` has labels that are not in `model.classes_`: write labels as in the fit of the model,"
        " and drop rows with labels that it does not know."
    )
