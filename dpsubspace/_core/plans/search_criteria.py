"""Criteria of a private search: what a row says of a model, and what is released of all rows.

Every criterion is a function of sums over records, which are released with the Gaussian noise of
the trial: what a criterion is made of costs the same for all of them. How far a record moves these
sums is bounded in ``_core/statistics/score_cells.py``, by ``score_total``, ``count_sum`` and
``share_sums``. A criterion that divides by the size of a class or the variance of the targets
divides by the released one, and by three deviations of its noise where that is larger: then it is
near that of a guess, and never a lucky ratio of noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import is_regressor

from dpsubspace._core.fits.outputs import NUMBERS, Outputs
from dpsubspace._core.ground.checks import did_you_mean, shown
from dpsubspace._core.plans.score_request import ScoreRequest
from dpsubspace._core.release.mechanisms import BoundedSum
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import (
    FINE,
    area,
    count_sum,
    fine_edges,
    n_cells,
    on_simplex,
    quantile_edges,
    score_total,
    share_sums,
    spread_of_scores,
)
from dpsubspace._core.statistics.score_metrics import CLEAR, METRICS, matrix_of_recalls

# Largest log loss of a row: larger ones count as this.
_LOSS_BOUND = 5.0

# Shares of mu^2 for the counts of which edges of cells are found, and of the sums of R2.
_EDGES = 0.15
_R2 = np.array([0.8, 0.1, 0.1])

# Score of a row that is on the wrong side of all others.
_FAR = 1e300


@dataclass(frozen=True)
class Criterion:
    """The mean of one number in [0, 1] that a function gives each row of a model."""

    scoring: Callable[..., Any]
    labels: Any = None  # Sorted labels of classifiers, once these are known

    shares: ClassVar[Mapping[str, float]] = {"score": 1.0}  # Releases, with shares of mu^2
    ranked: ClassVar[bool] = False

    def about(self, labels: Any) -> Self:
        """Return the criterion for these labels; ValueError if it is none of them."""
        return replace(self, labels=None if labels is None else np.asarray(labels))

    def says(self, model: Any, X: Any, y: Any) -> np.ndarray:
        """Return what each row says of a model, of the shape of `worst`."""
        return np.asarray(self.scoring(model, X, y), dtype=np.float64)

    def worst(self, y: np.ndarray) -> np.ndarray:
        """Return what rows say of a model that is always wrong."""
        return np.zeros(len(y))

    def total(self, values: np.ndarray, y: np.ndarray, records: Records, edges: Any) -> BoundedSum:
        """Return the sums over records that are released."""
        return score_total(values, records)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        """Return a number that is larger for better models, of sums with noise of a deviation."""
        return float(released[0]) / n

    def exact(self, values: np.ndarray, y: np.ndarray) -> float:
        """Return the score on public rows, which are all the rows there are."""
        records = Records.of_rows(len(y))
        total = self.total(np.nan_to_num(values), y, records, None)
        return self.score(np.asarray(total.value), len(y), 0.0, None)

    def told(self, score: float) -> float:
        """Return the score in the units and with the sign of its name."""
        return score


@dataclass(frozen=True)
class _Named(Criterion):
    """A metric of :func:`private_score`, by its name."""

    scoring: Any = None
    name: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)  # Public range of targets

    @property
    def plain(self) -> str:
        return ScoreRequest.of(self.name).plain[0]

    def told(self, score: float) -> float:
        asked = ScoreRequest.of(self.name)
        smaller = METRICS[self.plain].error or self.plain in ("log_loss", "brier_score_loss")
        return asked.sign(self.name) * (-score if smaller else score)

    def codes(self, y: np.ndarray) -> np.ndarray:
        """Return the index of each label."""
        return np.clip(np.searchsorted(self.labels, y), 0, len(self.labels) - 1)

    def outputs(self, model: Any, X: Any, y: np.ndarray) -> Outputs:
        """Return the outputs of a model that knows the labels of the search."""
        known = self.labels is not None
        if known and not np.array_equal(model.classes_, self.labels):
            raise ValueError("the model has other classes.")
        classes = self.labels if known else np.empty(0)
        given = self.codes(y) if known else np.asarray(y, dtype=np.float64)
        return Outputs(model, classes, self.bounds, _LOSS_BOUND).of(X, given)


@dataclass(frozen=True)
class OfLabels(_Named):
    """A metric of predicted labels, of released counts of true and predicted labels."""

    @cached_property
    def request(self) -> ScoreRequest:
        return ScoreRequest.of(self.name).about(self.labels, None)

    def says(self, model: Any, X: Any, y: Any) -> np.ndarray:
        said = self.outputs(model, X, y)
        return (len(self.labels) * said.y + said.predicted).astype(np.float64)

    def worst(self, y: np.ndarray) -> np.ndarray:
        c, codes = len(self.labels), self.codes(y)
        return (c * codes + (codes + 1) % c).astype(np.float64)

    def total(self, values: np.ndarray, y: np.ndarray, records: Records, edges: Any) -> BoundedSum:
        return count_sum(values.astype(np.intp), len(self.labels) ** 2, records)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        c, metric = len(self.labels), METRICS[self.request.plain[0]]
        matrix = on_simplex(released.reshape(c, c), n)
        matrix = matrix[::-1, ::-1] if self.request.flipped else matrix
        axis, least = 0 if metric.of_predicted else 1, CLEAR * noise * math.sqrt(c)
        missing = np.maximum(least - matrix.sum(axis=axis, keepdims=True), 0.0)
        assert metric.formula is not None
        return float(np.nan_to_num(metric.formula(matrix + missing / c, n)))


@dataclass(frozen=True)
class OfRecalls(OfLabels):
    """A metric that follows from how many rows of each class are right: it needs fewer counts."""

    def says(self, model: Any, X: Any, y: Any) -> np.ndarray:
        said = self.outputs(model, X, y)
        return 2.0 * said.y + (said.predicted != said.y)

    def worst(self, y: np.ndarray) -> np.ndarray:
        return 2.0 * self.codes(y) + 1

    def total(self, values: np.ndarray, y: np.ndarray, records: Records, edges: Any) -> BoundedSum:
        return count_sum(values.astype(np.intp), 2 * len(self.labels), records)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        counts = on_simplex(released.reshape(-1, 2), n)
        least = CLEAR * noise * math.sqrt(2)
        missing = np.maximum(least - counts.sum(axis=1, keepdims=True), 0.0)
        right, wrong = (counts + missing * [1 / len(counts), 1 - 1 / len(counts)]).T
        matrix = matrix_of_recalls(right, wrong)
        matrix = matrix[::-1, ::-1] if self.request.flipped else matrix
        if self.plain not in ("balanced_accuracy", "recall_macro"):
            formula = METRICS[self.plain].formula
            assert formula is not None
            return float(np.nan_to_num(formula(matrix, n)))
        seen = right + wrong > 0  # a class without rows counts for nothing
        return float((right[seen] / (right + wrong)[seen]).mean())


@dataclass(frozen=True)
class OfLosses(_Named):
    """A mean loss or error; errors of more than half the range of targets count as that."""

    @property
    def _square(self) -> bool:
        return self.plain in ("mean_squared_error", "root_mean_squared_error", "r2")

    def says(self, model: Any, X: Any, y: Any) -> np.ndarray:
        said = self.outputs(model, X, y)
        if not METRICS[self.plain].regression:
            base = METRICS[self.plain].mean[0]
            return 1.0 - NUMBERS[base].of(said)
        halves = np.minimum(2 * NUMBERS["error"].of(said), 1.0)
        return 1.0 - (halves**2 if self._square else halves)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        mean, half = 1.0 - float(released[0]) / n, (self.bounds[1] - self.bounds[0]) / 2
        if METRICS[self.plain].root:
            return -half * math.sqrt(max(mean, 0.0))
        units = {"log_loss": _LOSS_BOUND, "mean_absolute_error": half}
        units |= {"mean_squared_error": half**2}
        units |= {"brier_score_loss": 1.0 if self.labels is None or len(self.labels) == 2 else 2.0}
        return -units[self.plain] * mean


@dataclass(frozen=True)
class OfVariance(OfLosses):
    """R2: beside squared errors, two moments of the targets are released."""

    def total(self, values: np.ndarray, y: np.ndarray, records: Records, edges: Any) -> BoundedSum:
        target = NUMBERS["t"].of(Outputs(None, np.empty(0), self.bounds, 1.0).of(None, y))
        columns = np.column_stack([values, (target + 1) / 2, target**2])
        return share_sums(columns, _R2, records)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        right, middle, second = (released / np.sqrt(_R2) / n).tolist()
        mean = 2 * middle - 1
        spread = noise / n * math.sqrt((1 + 16 * mean**2) / _R2[1])
        variance = max(second - mean**2, CLEAR * spread, 1e-12)
        return min(1.0 - (1.0 - right) / variance, 1.0)


@dataclass(frozen=True)
class OfAreas(_Named):
    """The area under the ROC curve, of counts of scores in cells with edges found before."""

    shares: ClassVar[Mapping[str, float]] = {"edges": _EDGES, "score": 1.0 - _EDGES}
    ranked: ClassVar[bool] = True

    @property
    def _positive(self) -> np.ndarray:
        """Classes that have a list of cells: the second of two, or each of many."""
        return np.arange(1, 2) if len(self.labels) == 2 else np.arange(len(self.labels))

    def says(self, model: Any, X: Any, y: Any) -> np.ndarray:
        scores = self.outputs(model, X, y).scores
        if hasattr(model, "predict_proba"):
            return scores
        # Decision values of any size, in the cells of log-odds that they have on their own grid.
        wide, narrow = (fine_edges(probabilities=p)[-1] for p in (False, True))
        share = np.arcsinh(scores / 1e-3) / np.arcsinh(wide / 1e-3)
        return 0.5 * np.sinh(share * np.arcsinh(narrow / 0.5))

    def worst(self, y: np.ndarray) -> np.ndarray:
        return np.where(self.codes(y)[:, None] == self._positive, -_FAR, _FAR)

    def fine(self, values: np.ndarray, records: Records) -> BoundedSum:
        """Return counts of scores on a public grid, of all classes."""
        cells = np.searchsorted(fine_edges(probabilities=True), np.nan_to_num(values))
        return count_sum(cells, FINE, records)

    def edges(self, released: np.ndarray, n: int, noise: float) -> list[Any]:
        """Return released counts on the grid, and edges of cells of about equal counts."""
        k = n_cells(n, math.sqrt(2) / noise if noise else math.inf)
        fine = [on_simplex(each, n) for each in released.reshape(-1, FINE)]
        grid = fine_edges(probabilities=True)
        return [(each, quantile_edges(each, grid, k, None)) for each in fine]

    def total(self, values: np.ndarray, y: np.ndarray, records: Records, edges: Any) -> BoundedSum:
        codes, cells = self.codes(y), []
        for j, (_, inner) in enumerate(edges):
            places = np.searchsorted(inner[1:-1], np.nan_to_num(values[:, j]))
            cells.append(2 * places + (codes == self._positive[j]))
        return count_sum(np.column_stack(cells), self._size(edges), records)

    @staticmethod
    def _size(edges: Any) -> int:
        return 2 * (max(len(inner) for _, inner in edges) - 1)

    def score(self, released: np.ndarray, n: int, noise: float, edges: Any) -> float:
        areas, grid = [], fine_edges(probabilities=True)
        for counts, (fine, inner) in zip(released.reshape(len(edges), -1, 2), edges, strict=True):
            held = counts[: len(inner) - 1]
            missing = CLEAR * noise * math.sqrt(len(held)) - held.sum(axis=0)
            pooled = on_simplex(held.sum(axis=1), 1.0)
            spread = spread_of_scores(fine, grid, inner, held) if noise else np.zeros(len(held))
            areas.append(area(held + pooled[:, None] * np.maximum(missing, 0.0), spread))
        return float(np.clip(np.nan_to_num(np.mean(areas), nan=0.5), 0.0, 1.0))

    def exact(self, values: np.ndarray, y: np.ndarray) -> float:
        codes, areas = self.codes(y), []
        for j, positive in enumerate(self._positive):
            low, high = (values[(codes == positive) == side, j] for side in (False, True))
            if not len(low) * len(high):
                return 0.5
            low = np.sort(low)
            below = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
            areas.append(below.mean() / (2 * len(low)))
        return float(np.mean(areas))


# Choice of a criterion --------------------------------------------------------------------------


def right(model: Any, X: Any, y: Any) -> np.ndarray:
    return np.asarray(model.predict(X)) == np.asarray(y)


@dataclass(frozen=True)
class Close:
    """Closeness of each prediction to its target, in halves of the range of the targets."""

    low: np.ndarray
    high: np.ndarray

    def __call__(self, model: Any, X: Any, y: Any) -> np.ndarray:
        found, y = (np.clip(each, self.low, self.high) for each in (model.predict(X), y))
        off = np.minimum(
            1.0, np.abs(found - np.reshape(y, found.shape)) * 2 / (self.high - self.low)
        )
        return 1.0 - (off if off.ndim == 1 else off.mean(axis=1))


@dataclass(frozen=True)
class Default(Criterion):
    """Criterion of classifiers if none is asked for.

    The area under the ROC curve of two classes, else the mean of recalls: with rare outcomes a
    model that never predicts one of them is right nearly always, and worth nothing.
    """

    scores: bool = True  # Whether models have scores, and not only labels

    def about(self, labels: Any) -> Any:
        if self.scores and len(labels) == 2:
            return OfAreas(name="roc_auc").about(labels)
        return OfRecalls(name="balanced_accuracy").about(labels)


# Metrics that follow from how many rows of each class are right.
_RECALLS = ("balanced_accuracy", "recall_macro", "recall", "specificity")

_SEVERAL = ("confusion_matrix", "roc_curve", "calibration_curve")


def criterion_of(scoring: Any, estimator: Any, target_bounds: Any) -> Criterion:
    """Return the criterion of a `scoring` that :func:`check_scoring` takes."""
    if callable(scoring):
        return Criterion(scoring)
    if scoring is None and is_regressor(estimator):
        return Criterion(Close(*(np.asarray(end, dtype=np.float64) for end in target_bounds)))
    if scoring is None:
        scores = any(hasattr(estimator, each) for each in ("predict_proba", "decision_function"))
        return Default(right, scores=scores)
    name, plain = scoring, ScoreRequest.of(scoring).plain[0]
    if plain == "accuracy":
        return Criterion(right)
    metric = METRICS[plain]
    kind = OfAreas if metric.cells else OfLosses if metric.sums else OfLabels
    kind = OfRecalls if plain in _RECALLS else kind
    if not metric.regression:
        return kind(name=name)
    ends = [float(np.asarray(end).reshape(-1)[0]) for end in target_bounds]
    kind = OfVariance if plain == "r2" else OfLosses
    return kind(name=name, bounds=(ends[0], ends[1]))


def check_scoring(scoring: Any, *, classifier: bool, regressor: bool) -> None:
    """Raise ValueError unless a search knows a `scoring`, for a kind of estimator."""
    of_all_rows = hasattr(scoring, "_score_func")  # a scorer of scikit-learn
    if (callable(scoring) and not of_all_rows) or (scoring is None and (classifier or regressor)):
        return
    if scoring is None:
        raise ValueError(
            "`scoring` must be given for an estimator that is neither a classifier nor a regressor."
        )
    names = criteria(regression=regressor) if classifier or regressor else []
    if isinstance(scoring, str) and scoring in names:
        return
    kind = "regressor" if regressor else "classifier"
    advice = did_you_mean(scoring, names, {}) if isinstance(scoring, str) else ""
    raise ValueError(
        f"`scoring` must be None, a name of a metric or a function (model, X, y) that returns a"
        f" number in [0, 1] for each row, got {shown(scoring)}. Metrics for a {kind} are {names}."
        f" Scorers of scikit-learn return one number for all rows, which a single row can change a"
        f" lot.{advice}"
    )


def criteria(*, regression: bool) -> list[str]:
    """Names of all metrics that a search can choose by."""
    found = []
    for name, metric in METRICS.items():
        if metric.regression == regression and name not in _SEVERAL:
            found += [name, *metric.others]
    return found


def refuse_labels(criterion: Criterion) -> None:
    """Raise ValueError if a named metric is not for the labels of a search."""
    if not isinstance(criterion, _Named) or criterion.labels is None:
        return
    metric, n = METRICS[criterion.plain], len(criterion.labels)
    if n > 2 and metric.for_many is not None:
        raise ValueError(
            f"`scoring`={criterion.name!r} is for two classes, and there are {n}: use"
            f" scoring={metric.for_many!r}."
        )
    usual = criterion.labels.tolist() in ([0, 1], [-1, 1])
    if metric.of_class and not usual:
        raise ValueError(
            f"`scoring`={criterion.name!r} is about the class 1 of labels 0 and 1, or -1 and 1, and"
            " the labels are others: write them so, or use scoring='balanced_accuracy' or"
            " 'roc_auc', which are about both."
        )


def refuse_targets(criterion: Criterion, n_targets: int) -> None:
    """Raise ValueError if a named metric would have several targets."""
    if isinstance(criterion, _Named) and n_targets > 1:
        raise ValueError(
            f"`scoring`={criterion.name!r} is for one target, and `y` has {n_targets} columns:"
            " leave it None, or give a function."
        )
