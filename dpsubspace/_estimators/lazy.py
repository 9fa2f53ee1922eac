"""Predictions and transformed rows of Dask collections: lazy, block by block.

A fitted model is public, so that its copies may go to any worker. Nothing is read before somebody
asks for the result.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial, wraps
from typing import Any
from uuid import uuid4

import numpy as np

from dpsubspace._checks import is_collection
from dpsubspace._rows.dask_parts import whole


def by_blocks(method: Callable[[Any, Any], np.ndarray]) -> Callable[[Any, Any], Any]:
    """`method` of a fitted estimator that takes rows; of Dask collections it makes Dask arrays."""

    @wraps(method)
    def called(self: Any, X: Any) -> Any:
        return _lazily(method, self, X) if is_collection(X) else method(self, X)

    return called


def _lazily(method: Callable[[Any, Any], np.ndarray], estimator: Any, X: Any) -> Any:
    """Dask array of what `method` makes of the blocks of `X`."""
    nothing = method(estimator, _one_row(X))[:0]  # raises where the estimator is not fitted
    estimator = _without_seed(estimator)
    of_block = partial(_of_block, method, estimator, nothing)
    X = _blocks_of(X) if hasattr(X, "columns") else whole(X)
    # A name of its own: Dask warns where a name that it knows comes with another graph.
    options = {"name": f"{method.__name__}-{uuid4().hex}", "dtype": nothing.dtype, "meta": nothing}
    if nothing.ndim == 1:
        return X.map_blocks(of_block, drop_axis=list(range(1, X.ndim)), **options)
    options["new_axis"] = None if X.ndim > 1 else 1
    return X.map_blocks(of_block, chunks=(X.chunks[0], (nothing.shape[1],)), **options)


def _without_seed(estimator: Any) -> Any:
    """A copy that does not have the seed: who has it can take the noise off what was released."""
    copied = copy(estimator)
    copied.random_state = None
    return copied


def _one_row(X: Any) -> Any:
    """A row like those of a collection, of zeros."""
    if not hasattr(X, "columns"):
        return np.zeros((1, X.shape[1]), dtype=X.dtype)
    import pandas as pd

    # What is no number stays text, which the estimator refuses in its own words.
    numbers = {name: pd.api.types.is_numeric_dtype(kind) for name, kind in X.dtypes.items()}
    zeros = {
        name: pd.Series([0], dtype=X.dtypes[name]) if number else pd.Series(["text"])
        for name, number in numbers.items()
    }
    return pd.DataFrame(zeros, columns=list(X.columns))


def _of_block(method: Any, estimator: Any, nothing: np.ndarray, block: Any) -> np.ndarray:
    """What `method` makes of a block, which may be empty."""
    return method(estimator, block) if len(block) else nothing


def _blocks_of(frame: Any) -> Any:
    """Dask array whose blocks are the partitions of a data frame or series as they are.

    Its ``values`` may join small partitions, and those of one column otherwise than those of
    another, upon which rows and targets of one data frame would not go together.
    """
    import dask.array
    from dask.highlevelgraph import HighLevelGraph

    frame = frame.simplify()  # reads no column that is not asked for
    keys = frame.__dask_keys__()
    name = keys[0][0]
    graph = HighLevelGraph.from_collections(name, frame.__dask_graph__())
    chunks = ((np.nan,) * len(keys),)
    meta = np.empty(0, dtype=object)
    return dask.array.Array(graph, name, chunks, meta=meta)  # pyright: ignore[reportCallIssue]


# Scores ---------------------------------------------------------------------------------------


def accuracy_of_blocks(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Share of the rows whose label is predicted; computes it."""
    right = estimator.predict(X) == _array(y)
    if sample_weight is None:
        return float(right.mean().compute())
    weights = _array(sample_weight)
    total, weight = _computed((right * weights).sum(), weights.sum())
    return float(total / weight)


def r2_of_blocks(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Share of the variance of the targets that is predicted, their mean; computes it."""
    y, predicted = _array(y).astype(np.float64), estimator.predict(X)
    weights = y * 0 + 1 if sample_weight is None else _array(sample_weight)
    weights = weights[:, None] if weights.ndim < y.ndim else weights
    mean = (weights * y).sum(axis=0) / (y * 0 + weights).sum(axis=0)
    left, spread = _computed(
        (weights * (y - predicted) ** 2).sum(axis=0), (weights * (y - mean) ** 2).sum(axis=0)
    )
    left, spread = np.atleast_1d(left), np.atleast_1d(spread)
    constant = np.where(left == 0, 1.0, 0.0)  # as in scikit-learn, of targets that do not vary
    return float(
        np.mean(np.where(spread > 0, 1 - left / np.where(spread > 0, spread, 1), constant))
    )


def _array(values: Any) -> Any:
    """Dask array of a collection, or of an array that lies here."""
    if hasattr(values, "to_dask_array"):
        nothing = np.asarray(values._meta)
        new_axis = 1 if nothing.ndim > 1 else None
        return _blocks_of(values).map_blocks(np.asarray, meta=nothing, new_axis=new_axis)
    return values if is_collection(values) else np.asarray(values)


def _computed(*lazy: Any) -> tuple[Any, ...]:
    from dask.base import compute

    return compute(*lazy)
