"""Labels, targets and names of persons as one column of NumPy, and rows of lists.

Privacy: the entry that a row gets depends on that row and on the type of the container alone. Lists
and arrays of objects have no common type. NumPy would choose one from all entries, so that one text
would turn all numbers into text, and one float would make one number of 2^53 and 2^53 + 1. So they
are checked entry by entry, and entries of incompatible types are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from dpsubspace._core.ground.checks import unwrapped

# Whole numbers below this are floats as well.
_EXACT = 2**53

_FLOAT = (float, np.floating)
_NUMBERS = (bool, int, np.bool_, np.integer, *_FLOAT)


def as_column(values: Any, name: str = "y") -> Any:
    """Return entries in the container's type, and as objects if it has none.

    scikit-learn would make 0.0 and 1.0 of False and True in types of pandas. Columns of those types
    with missing entries stay unchanged, and all functions that read them refuse them. Raise
    ValueError for a lazy frame; messages call it `name`.
    """
    values = unwrapped(name, values)
    if isinstance(values, (list, tuple)):
        return np.array(values, dtype=object)
    dtype = getattr(values, "dtype", None)
    own = hasattr(dtype, "categories") or hasattr(dtype, "numpy_dtype")
    if not (own and hasattr(values, "isna")) or values.isna().any():
        return values
    return np.asarray(values, dtype=getattr(dtype, "numpy_dtype", None))


def as_rows(values: Any) -> Any:
    """Return rows unchanged, and rows of lists as an array of their numbers and texts.

    The array has floats if all entries are numbers that are exact as floats, and objects otherwise:
    each entry is the same in both, and one row changes no other.
    """
    if not isinstance(values, (list, tuple)):
        return values
    found = np.array(values, dtype=object)
    entries = found.ravel().tolist()
    return found.astype(np.float64) if _are_numbers(entries) and are_floats_too(entries) else found


def read_labels(y: Any) -> Any:
    """Return labels of one type: truth values, numbers of 64 bits, or text.

    Values that are not a column, and labels without a common type or with missing entries, stay
    unchanged, and are refused where classes are made of them.
    """
    found = as_column(y)
    if getattr(getattr(found, "dtype", None), "kind", "") != "O":
        return found
    found = np.asarray(found)
    values = found.ravel().tolist()
    if _are_numbers(values):
        typed = _of_one_type(values)
        return found if typed is None else typed.reshape(found.shape)
    # A list of text, or of other things of one type, is of that type for NumPy as well.
    return y if isinstance(y, (list, tuple)) and len(set(map(type, y))) == 1 else found


def _are_numbers(values: list[Any]) -> bool:
    return bool(values) and all(issubclass(each, _NUMBERS) for each in set(map(type, values)))


def _of_one_type(values: list[Any]) -> np.ndarray | None:
    """Return the numbers in one type of NumPy; None if they have none."""
    types = set(map(type, values))
    if all(issubclass(each, (bool, np.bool_)) for each in types):
        return np.array(values, dtype=bool)
    if any(issubclass(each, _FLOAT) for each in types):
        return np.array(values, dtype=np.float64) if are_floats_too(values) else None
    with suppress(OverflowError):
        return np.array(values, dtype=np.int64)
    return None


def are_floats_too(values: Iterable[Any]) -> bool:
    """Return whether all whole numbers among the entries are exact as floats."""
    return all(abs(value) < _EXACT for value in values if isinstance(value, (int, np.integer)))
