"""Outputs of a fitted model: for private rows, unit by unit, and for Dask collections.

Outputs for private rows never depend on labels, and no output of a model raises an error: each
method states how it replaces values that are not numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from typing import Any
from uuid import uuid4

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from dpsubspace._core.fits.composites import opened, predictor
from dpsubspace._core.ground.checks import is_collection, is_ours, refuse_collection
from dpsubspace._core.rows.columns import read_labels
from dpsubspace._core.rows.dask_parts import whole
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records
from dpsubspace._core.tables.schema import Schema, check_types


def by_record(
    X: Any, records: Records, says: Callable[[Any, Any], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Outputs for all rows, where the model sees the rows of each person alone.

    `says` returns arrays, with one entry for each row, from some rows and their places in `X`,
    which may have any form.

    Proof that a person moves nothing but what that person contributes: `says` is called once for
    each person, with that person's rows in their order, copied, and with nothing else. So its
    result for these rows is the same whoever the others are, however many rows they have and
    wherever in `X` they lie. This holds for any model that returns the same for the same rows at
    every call, also for one that compares rows with each other. A single call for all rows would
    not be enough, for any model that computes products: BLAS rounds the product of a row by its
    place and by the number of rows, which is private here, so that one more row of one person can
    move the rows of all later persons from one cell to another. Neither padding nor rounding of the
    outputs changes that: some row is always nearest to a border.

    Where each row is a record, all rows are passed in one call. Their number is public, and so is
    the place of each: a neighbour has the same rows at the same places but for one. It is assumed
    that the output of a model for a row then depends on that row and its place alone.
    """
    if records.index is None:
        return dict(says(X, slice(None)))
    rows, counts = records.rows_by_record(np.arange(records.n))
    people = np.split(rows, np.cumsum(counts)[:-1])
    parts = [says(taken(X, some), some) for some in people]
    place = np.argsort(rows)
    return {name: np.concatenate([part[name] for part in parts])[place] for name in parts[0]}


def check_types_for(model: Any, X: Any) -> None:
    """Raise ValueError where, by its types, Dask may change categories before a model sees them."""
    for part in opened(model, fitted=True).walk() if hasattr(X, "columns") else ():
        schema = getattr(part.model, "schema_", None)
        if isinstance(schema, Schema) and not set(schema) - set(X.columns):
            check_types(X._meta, schema, "X")


def shown_to(says: Callable[[Any], np.ndarray], data: Data) -> np.ndarray:
    """Outputs for private rows, computed for each person alone."""
    return by_record(data.X, data.records, lambda X, _: {"": says(X)})[""]


def taken(X: Any, rows: np.ndarray) -> Any:
    """Some rows of any container; ValueError without the container's own message if that fails."""
    try:
        return _taken(X, rows)
    except Exception:  # of other libraries, whose messages may quote rows or their number
        pass
    raise ValueError(
        f"no rows can be picked out of `X` as it is, a {type(X).__module__}.{type(X).__name__} with"
        " entries of a type, or in a layout, that its library does not pick rows of: pass a NumPy"
        " array, a CSR matrix or a frame of pandas."
    )


def _taken(X: Any, rows: np.ndarray) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "take") and hasattr(X, "column_names"):  # a table of Arrow
        return X.take(rows)
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def answer(model: Any, method: str, X: Any) -> Any:
    """Result of a method of a model for rows; ValueError without the message of a foreign model.

    Such messages may quote entries of the rows, as NumPy's do where a text is not a number.
    """
    try:
        return getattr(model, method)(X)
    except Exception as error:
        if is_ours(model):
            raise
        kind = type(error).__name__
    name = type(model).__name__  # raised out here, so that no chained exception has an entry either
    raise ValueError(
        f"`{method}` of the model, a {name}, ended in {kind} on these rows, with a message that may"
        f" have entries of them. Pass rows as {name} takes them: {name}.{method} of public rows of"
        " the same form shows the message."
    )


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for some rows. Each method of the model is called at most once."""

    model: Any
    classes: np.ndarray  # Labels of the model; empty for a regressor
    bounds: tuple[float, float]  # Public range of targets
    loss_bound: float  # Public bound on the log loss
    X: Any = None  # Rows
    y: np.ndarray = field(default_factory=lambda: np.empty(0))  # Index of each label, or targets

    def of(self, X: Any, y: np.ndarray) -> Outputs:
        """Outputs for some rows and their labels or targets."""
        return replace(self, X=X, y=y)

    @property
    def width(self) -> float:
        """Distance of the bounds of targets."""
        return self.bounds[1] - self.bounds[0]

    @cached_property
    def predicted(self) -> np.ndarray:
        """Index of each predicted label; a wrong one where it is not among the classes."""
        predicted, classes = (
            np.asarray(answer(self.model, "predict", self.X)).reshape(-1),
            self.classes,
        )
        _check_length(predicted, self.y, "predict")
        order = np.argsort(classes)
        found = order[np.clip(np.searchsorted(classes[order], predicted), 0, len(classes) - 1)]
        return np.where(classes[found] == predicted, found, (self.y + 1) % len(classes))

    @cached_property
    def scores(self) -> np.ndarray:
        """Scores of each row (n, k): log-odds of probabilities, else decision values.

        One score for the second of two classes; for more classes, one for each against all others.
        Values that are not numbers become 0.
        """
        model, n, n_classes = self.model, len(self.y), len(self.classes)
        if hasattr(model, "predict_proba"):
            chances = np.clip(self.probabilities, 0.0, 1.0)
            others = chances[:, :1] if n_classes == 2 else 1.0 - chances
            chances = chances[:, 1:] if n_classes == 2 else chances
            with np.errstate(divide="ignore", invalid="ignore"):
                scores = np.log(chances) - np.log(others)
            return np.nan_to_num(scores, nan=0.0)
        if not hasattr(model, "decision_function"):
            raise ValueError(
                f"{type(model).__name__} has neither `predict_proba` nor `decision_function`, from"
                " which scores are read: ask for metrics of labels, such as metric='accuracy'."
            )
        scores, each = np.asarray(answer(model, "decision_function", self.X), dtype=np.float64), 1
        if n_classes > 2:
            each = n_classes
        if scores.size != n * each:
            numbers = "one number" if each == 1 else f"{each} numbers"
            raise ValueError(
                f"`decision_function` must give {numbers} a row, and gave more or fewer."
            )
        return np.nan_to_num(scores.reshape(n, each), nan=0.0)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Probabilities as returned by the model, one column for each class."""
        if not hasattr(self.model, "predict_proba"):
            raise ValueError(
                f"{type(self.model).__name__} has no `predict_proba`, which this metric needs:"
                " calibrate the model, or ask for another metric, such as 'accuracy'."
            )
        chances = np.asarray(answer(self.model, "predict_proba", self.X), dtype=np.float64)
        if chances.shape != (len(self.y), len(self.classes)):
            raise ValueError(
                f"`predict_proba` must give {len(self.classes)} probabilities a row, and gave more"
                " or fewer."
            )
        return chances

    @cached_property
    def numbers(self) -> np.ndarray:
        """Predicted numbers."""
        predicted = np.asarray(answer(self.model, "predict", self.X), dtype=np.float64).reshape(-1)
        _check_length(predicted, self.y, "predict")
        return predicted


def threshold_of(model: Any, *, probabilities: bool) -> float:
    """Score above which a classifier predicts the second class, by its parameters."""
    model, found = predictor(model), "auto"
    if isinstance(model, TunedThresholdClassifierCV):
        found = model.best_threshold_
    elif isinstance(model, FixedThresholdClassifier):
        found = model.threshold
    if isinstance(found, str):
        return 0.0
    if not probabilities:
        return float(found)
    chance = min(max(float(found), 1e-9), 1 - 1e-9)
    return math.log(chance / (1 - chance))


def _hit(said: Outputs) -> np.ndarray:
    """Whether the predicted labels are right."""
    return (said.predicted == said.y).astype(np.float64)


def _loss(said: Outputs) -> np.ndarray:
    """Log loss; the largest possible where the probability of a label is 0 or not a number."""
    true = said.probabilities[np.arange(len(said.y)), said.y]
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.nan_to_num(-np.log(true), nan=np.inf, posinf=np.inf)
    return np.minimum(losses / said.loss_bound, 1.0)


def _brier(said: Outputs) -> np.ndarray:
    """Brier loss: for the second class where there are two, else for all classes."""
    n_classes = len(said.classes)
    errors = (np.clip(said.probabilities, 0.0, 1.0) - np.eye(n_classes)[said.y]) ** 2
    return (errors[:, 1] if n_classes == 2 else errors.sum(axis=1)) / _brier_unit(said)


def _brier_unit(said: Outputs) -> float:
    return 1.0 if len(said.classes) == 2 else 2.0


def _error(said: Outputs) -> np.ndarray:
    """Errors, clipped to the bounds."""
    low, high = said.bounds
    inside, guess = (np.clip(values, low, high) for values in (said.y, said.numbers))
    errors = np.where(np.isnan(guess), 1.0, np.abs(inside - guess) / said.width)
    return np.clip(errors, 0.0, 1.0)


def _target(said: Outputs) -> np.ndarray:
    """Targets, clipped to the bounds and mapped to [-1, 1]."""
    inside = np.clip(said.y, *said.bounds)
    return np.clip(2 * (inside - said.bounds[0]) / said.width - 1, -1.0, 1.0)


@dataclass(frozen=True)
class Number:
    """A number of each row whose means are metrics."""

    of: Callable[[Outputs], np.ndarray]  # From 0 to 1; "t" alone is from -1 to 1
    unit: Callable[[Outputs], float] = lambda said: 1.0  # Size of a 1, by public numbers


# By the names in METRICS of _core/statistics/score_metrics.py. Those of regressors, except "t", are
# errors: relative to the largest "error", which is found first, they are clipped to 1.
NUMBERS: dict[str, Number] = {
    "hit": Number(_hit),
    "loss": Number(_loss, lambda said: said.loss_bound),
    "brier": Number(_brier, _brier_unit),
    "error": Number(_error, lambda said: said.width),
    "t": Number(_target),
}


def _check_length(predicted: np.ndarray, rows: np.ndarray, method: str) -> None:
    if len(predicted) != len(rows):
        raise ValueError(f"`{method}` must give one value a row, and gave more or fewer.")


# Blocks -----------------------------------------------------------------------------------------
# Predictions and transformed rows of Dask collections: lazy, block by block. A fitted model is
# public, so its copies may go to any worker. Nothing is read before the result is requested.


def by_blocks(method: Callable[[Any, Any], np.ndarray]) -> Callable[[Any, Any], Any]:
    return by_blocks_like(lambda _: None)(method)


def by_blocks_like(nothing: Callable[[Any], np.ndarray | None]) -> Callable[[Callable], Callable]:
    """Decorator of methods for Dask collections; `nothing` returns their result for no rows.

    Without it, a model would be called on made-up rows, which it may refuse.
    """

    def decorated(method: Callable[[Any, Any], np.ndarray]) -> Callable[[Any, Any], Any]:
        @wraps(method)
        def called(self: Any, X: Any) -> Any:
            if is_collection(X):
                return lazily(method, self, X, nothing(self))
            return method(self, X)

        return called

    return decorated


def lazily(
    method: Callable[[Any, Any], np.ndarray],
    estimator: Any,
    X: Any,
    nothing: np.ndarray | None = None,
) -> Any:
    """Dask array of the results of `method` for each block; `nothing` is that of no rows.

    With None, the method itself is called to find that, which raises where the estimator is not
    fitted.
    """
    if nothing is None:
        nothing = method(estimator, _one_row(X))[:0]
    estimator = _without_seed(estimator)
    of_block = partial(_of_block, method, estimator, nothing)
    X = _blocks_of(X) if hasattr(X, "columns") else whole(X)
    # A unique name: Dask warns where a name that it knows comes with another graph.
    options = {"name": f"{method.__name__}-{uuid4().hex}", "dtype": nothing.dtype, "meta": nothing}
    if nothing.ndim == 1:
        return X.map_blocks(of_block, drop_axis=list(range(1, X.ndim)), **options)
    options["new_axis"] = None if X.ndim > 1 else 1
    return X.map_blocks(of_block, chunks=(X.chunks[0], (nothing.shape[1],)), **options)


def _without_seed(estimator: Any) -> Any:
    """Copy without the seed: with the seed, the noise of releases could be removed."""
    copied = copy(estimator)
    copied.random_state = None
    return copied


def _one_row(X: Any) -> Any:
    if not hasattr(X, "columns"):
        return np.zeros((1, X.shape[1]), dtype=X.dtype)
    import pandas as pd

    # Columns that are not numbers stay text, for which the estimator raises its own error.
    numbers = {name: pd.api.types.is_numeric_dtype(kind) for name, kind in X.dtypes.items()}
    zeros = {
        name: pd.Series([0], dtype=X.dtypes[name]) if number else pd.Series(["text"])
        for name, number in numbers.items()
    }
    return pd.DataFrame(zeros, columns=list(X.columns))


def _of_block(method: Any, estimator: Any, nothing: np.ndarray, block: Any) -> np.ndarray:
    return method(estimator, block) if len(block) else nothing


def _blocks_of(frame: Any) -> Any:
    """Dask array whose blocks are the unchanged partitions of a data frame or series.

    Its ``values`` may join small partitions, and those of one column differently from those of
    another, so that rows and targets of one data frame would not match.
    """
    import dask.array
    from dask.highlevelgraph import HighLevelGraph

    frame = frame.simplify()  # reads only the requested columns
    keys = frame.__dask_keys__()
    name = keys[0][0]
    graph = HighLevelGraph.from_collections(name, frame.__dask_graph__())
    chunks = ((np.nan,) * len(keys),)
    meta = np.empty(0, dtype=object)
    return dask.array.Array(graph, name, chunks, meta=meta)  # pyright: ignore[reportCallIssue]


# Scores of blocks -------------------------------------------------------------------------------


def exact_accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the share of rows whose label is predicted, also of Dask collections."""
    if is_collection(X):
        return _accuracy_of_blocks(estimator, X, y, sample_weight)
    refuse_collection("X", X)  # before labels, which a dataset has by their name
    return float(accuracy_score(read_labels(y), estimator.predict(X), sample_weight=sample_weight))


def _accuracy_of_blocks(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    right = estimator.predict(X) == _array(y)
    if sample_weight is None:
        return float(right.mean().compute())
    weights = _array(sample_weight)
    total, weight = _computed((right * weights).sum(), weights.sum())
    return float(total / weight)


def r2_of_blocks(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    y, predicted = _array(y).astype(np.float64), estimator.predict(X)
    weights = y * 0 + 1 if sample_weight is None else _array(sample_weight)
    weights = weights[:, None] if weights.ndim < y.ndim else weights
    mean = (weights * y).sum(axis=0) / (y * 0 + weights).sum(axis=0)
    left, spread = _computed(
        (weights * (y - predicted) ** 2).sum(axis=0), (weights * (y - mean) ** 2).sum(axis=0)
    )
    left, spread = np.atleast_1d(left), np.atleast_1d(spread)
    constant = np.where(left == 0, 1.0, 0.0)  # as in scikit-learn, for targets that do not vary
    return float(
        np.mean(np.where(spread > 0, 1 - left / np.where(spread > 0, spread, 1), constant))
    )


def _array(values: Any) -> Any:
    if hasattr(values, "to_dask_array"):
        nothing = np.asarray(values._meta)
        new_axis = 1 if nothing.ndim > 1 else None
        return _blocks_of(values).map_blocks(np.asarray, meta=nothing, new_axis=new_axis)
    return values if is_collection(values) else np.asarray(values)


def _computed(*lazy: Any) -> tuple[Any, ...]:
    from dask.base import compute

    return compute(*lazy)
