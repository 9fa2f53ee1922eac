"""Which rows an estimator was fitted to, as far as objects in memory can tell.

Kept are weak references to estimators and to what owns the memory of their rows, and where in it
they lie: no row, nothing that is written to a file or a pickle, and nothing that keeps rows alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["has_seen", "models_inside", "remember"]

# Owner of the rows of the last fit of each estimator, and where its rows lie in it.
_SEEN: weakref.WeakKeyDictionary[Any, tuple[weakref.ref[Any], dict[str, Any] | None]] = (
    weakref.WeakKeyDictionary()
)

# Steps that an exact comparison of two regions of memory may take; they are few for plain slices.
_WORK = 10_000


def remember(estimator: Any, X: Any) -> None:
    """Remember that `estimator` is being fitted to `X`."""
    owner = _owner(X)
    try:
        _SEEN[estimator] = weakref.ref(owner), _region(X, owner)
    except TypeError:  # a list has no weak references
        _SEEN.pop(estimator, None)


def has_seen(model: Any, X: Any) -> bool:
    """Whether `X` has rows that a model, or one that it is made of, is known to be fitted to."""
    return any(_overlaps(part, X) for part in models_inside(model))


def _overlaps(model: Any, X: Any) -> bool:
    try:
        known, region = _SEEN[model]
    except (KeyError, TypeError):  # or no estimator that can be referred to
        return False
    owner = known()
    if owner is None or owner is not _owner(X):
        return False
    if region is None or X is owner:
        return True
    try:
        whole = owner if owner.flags.c_contiguous else owner.T
        seen = np.ndarray(buffer=whole, **region)
        return np.shares_memory(seen, X, max_work=_WORK)  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError, np.exceptions.TooHardError):
        return False


def models_inside(model: Any) -> Iterator[Any]:
    """A model, its steps, and what it wraps."""
    yield model
    for _, step in getattr(model, "steps", None) or []:
        yield from models_inside(step)
    for name in ("best_estimator_", "estimator_", "estimator"):
        inner = getattr(model, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from models_inside(inner)


def _owner(X: Any) -> Any:
    """What owns the memory of an array; anything else is its own owner."""
    while isinstance(X, np.ndarray) and isinstance(X.base, np.ndarray):
        X = X.base
    return X


def _region(X: Any, owner: Any) -> dict[str, Any] | None:
    """Where the rows of an array lie in what owns them; None for all of it."""
    if X is owner or not isinstance(X, np.ndarray):
        return None
    offset = X.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return {"shape": X.shape, "dtype": X.dtype, "offset": offset, "strides": X.strides}
