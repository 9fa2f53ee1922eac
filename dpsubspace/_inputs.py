"""Checks of parameters, rows and labels, with errors that name the way out.

No message here contains an entry of the data: errors end up in logs.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from dpsubspace.exceptions import PublicDataWarning, warn

__all__ = [
    "check_auto",
    "check_bool",
    "check_bounds",
    "check_choice",
    "check_classes",
    "check_integer",
    "check_public_labels",
    "check_public_rows",
    "check_public_values",
    "check_real",
    "check_rows",
    "check_rows_and_labels",
    "check_rows_and_targets",
    "log_class_weights",
    "shown",
]


# Parameters ---------------------------------------------------------------------------------

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 10
_SHORT.maxstring, _SHORT.maxother = 100, 200


def shown(value: Any) -> str:
    """`value` as a person would write it: 7 for ``np.uint8(7)``, and no thousand entries."""
    return _SHORT.repr(_plain_value(value))


def _plain_value(value: Any) -> Any:
    """`value` with Python's own numbers and lists in the place of NumPy's."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if type(value) in (list, tuple):
        return type(value)(map(_plain_value, value))
    if type(value) is dict:
        return {_plain_value(key): _plain_value(each) for key, each in value.items()}
    return value


def check_real(
    name: str,
    value: Any,
    *,
    low: float,
    high: float = math.inf,
    include_low: bool = False,
    include_high: bool = False,
    hint: str = "",
) -> float:
    """`value` as a float, or ValueError with its name and range."""
    if isinstance(value, (Real, np.floating)) and not isinstance(value, (bool, np.bool_)):
        value = float(value)
        above = value >= low if include_low else value > low
        below = value <= high if include_high else value < high
        if above and below:  # never true of NaN
            return value
    interval = f"{'[' if include_low else '('}{low:g}, {high:g}{']' if include_high else ')'}"
    raise ValueError(
        f"`{name}` must be a number in {interval}, got {shown(value)}.{hint and ' '}{hint}"
    )


def check_bool(name: str, value: Any) -> bool:
    """`value` if it is a bool, or ValueError with its name."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"`{name}` must be True or False, got {shown(value)}.")


def check_auto(name: str, value: Any, **interval: Any) -> None:
    """ValueError unless `value` is "auto" or a number that `check_real` takes."""
    if not (isinstance(value, str) and value == "auto"):
        check_real(name, value, hint="Or use 'auto'.", **interval)


def check_integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """`value` as an int from `low` to `high`, or ValueError with its name."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
        if value >= low and (high is None or value <= high):
            return value
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise ValueError(f"`{name}` must be an integer {limits}, got {shown(value)}.")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """`value` if it is one of `choices`, or ValueError that lists them."""
    if isinstance(value, (str, type(None))) and value in choices:
        return value
    raise ValueError(f"`{name}` must be one of {list(choices)}, got {shown(value)}.")


def check_bounds(
    name: str, value: Any, n_columns: int | None = None, *, column: str = "target"
) -> None:
    """ValueError unless `value` is (low, high), finite and in order, for `n_columns` columns."""
    try:
        ends = [np.asarray(bound) for bound in value]
        low, high = (end.astype(np.float64) for end in ends if end.dtype != np.bool_)
    except (TypeError, ValueError):
        low = high = np.asarray(np.nan)
    sizes = {end.size for end in (low, high) if end.ndim}
    fits = max(low.ndim, high.ndim) <= 1 and len(sizes) <= 1
    if n_columns is not None:
        fits = fits and sizes <= {n_columns}
    if isinstance(value, list) and value and all(np.shape(pair) == (2,) for pair in value):
        fits = False  # a pair a column, which two columns would take for the lows and the highs
    bounded = bool((np.abs(np.append(low, high)) <= 1e50).all())  # never true of NaN
    if not (fits and bounded and (low < high).all()):
        raise ValueError(
            f"`{name}` must be a tuple (low, high) with low < high: two finite numbers, or two"
            f" arrays of one number a {column} (not a pair for each), got {shown(value)}."
        )


# Rows and labels ----------------------------------------------------------------------------


def check_rows(estimator: Any, X: Any, *, reset: bool, accept_sparse: bool = True) -> Any:
    """Rows of `X`: a float64 or float32 array, or CSR matrix, of finite numbers."""
    form = "csr" if accept_sparse else False
    return _plain(_validated(estimator, X, reset=reset, accept_sparse=form))


def check_rows_and_labels(estimator: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Rows of `X` as `check_rows` gives them, and one label a row."""
    X, y = _validated(estimator, X, y, reset=True, accept_sparse="csr")
    return _plain(X), y


def check_rows_and_targets(estimator: Any, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Rows of `X` as `check_rows` gives them, and one or more numbers a row, float64."""
    options = {"accept_sparse": "csr", "multi_output": True, "y_numeric": True}
    X, y = _validated(estimator, X, _numbers(y), reset=True, **options)
    y = np.asarray(y, dtype=np.float64)
    if not np.isfinite(y).all():  # a long double may be finite and this not
        raise ValueError("Input y contains infinity: drop those rows.")
    return _plain(X), y


def check_public_rows(estimator: Any, X: Any, X_public: Any) -> tuple[np.ndarray, ...]:
    """Sets of public rows, of the width, column names and dtype of the checked rows `X`.

    Parameters
    ----------
    estimator : estimator
        One that has checked `X`.
    X : array or CSR matrix of shape (n_samples, n_features)
        Private rows; only their number, width and dtype are looked at.
    X_public : None, array-like or tuple of array-like
        One set of public rows, or several.
    """
    if X_public is None:
        return ()
    several = isinstance(X_public, tuple)
    sets = []
    for i, given in enumerate(X_public if several else (X_public,)):
        name = f"X_public[{i}]" if several else "X_public"
        dense = given.toarray() if sparse.issparse(given) else given
        try:
            sets.append(check_array(dense, dtype=X.dtype, input_name=name))
            validate_data(estimator, dense, reset=False, skip_check_array=True)
        except (TypeError, ValueError) as error:  # public rows: the message may quote them
            hint = " Labels go in `y_public`." if several and np.ndim(dense) == 1 else ""
            raise ValueError(f"`{name}`: {error}{hint}") from error
    if not sets:
        raise ValueError("`X_public` is an empty tuple: pass None where there are no public rows.")
    if (len(sets) if several else len(sets[0])) == X.shape[0]:
        warn(
            "`X_public` is as long as `X`: cross-validation and bagging slice such an argument"
            " together with `X`. Pass a tuple, X_public=(X_public,), which is never sliced.",
            PublicDataWarning,
            about="sliced",
        )
    return tuple(sets)


def check_public_labels(
    y_public: Any, X_public: Any, sets: tuple[np.ndarray, ...], classes: np.ndarray
) -> np.ndarray | None:
    """Index among `classes` of the label of each public row, all sets in one; None without any.

    Parameters
    ----------
    y_public : None, array-like or tuple of array-like
        Labels, in the form of `X_public`.
    X_public : None, array-like or tuple of array-like
        As given.
    sets : tuple of array
        As `check_public_rows` gives them.
    classes : ndarray
        Sorted labels.
    """
    codes = []
    for name, labels in _public_targets(y_public, X_public, sets):
        labels = column_or_1d(labels)
        try:
            codes.append(check_classes(labels, classes)[1])
        except ValueError:
            strange = [label for label in np.unique(labels) if label not in set(classes.tolist())]
            raise ValueError(
                f"`{name}` has labels that are no classes of the model, {shown(strange[:5])}: the"
                f" classes are {shown(classes)}. Drop those public rows, name every label that can"
                " occur in `classes`, or leave y_public out: rows without labels are of use too."
            ) from None
    return np.concatenate(codes) if codes else None


def check_public_values(
    y_public: Any, X_public: Any, sets: tuple[np.ndarray, ...], n_targets: int
) -> np.ndarray | None:
    """Targets of public rows (m, n_targets), all sets in one; None without any."""
    values = []
    for name, targets in _public_targets(y_public, X_public, sets):
        try:
            targets = check_array(targets, dtype="float64", ensure_2d=False, input_name=name)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`{name}`: {error}") from error
        targets = targets.reshape(len(targets), -1)
        if targets.shape[1] != n_targets:
            raise ValueError(
                f"`{name}` has {targets.shape[1]} targets a row, but `y` has {n_targets}."
            )
        values.append(targets)
    return np.concatenate(values) if values else None


def _public_targets(
    y_public: Any, X_public: Any, sets: tuple[np.ndarray, ...]
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and targets of each public set."""
    if y_public is None:
        return
    if not sets:
        raise ValueError("`y_public` was given without `X_public`: pass the rows that it labels.")
    several = isinstance(X_public, tuple)
    given = y_public if several else (y_public,)
    if not several and isinstance(y_public, tuple):
        raise ValueError(
            "`y_public` is a tuple and `X_public` is not: pass both as tuples, one array a set."
        )
    if not isinstance(given, tuple) or len(given) != len(sets):
        raise ValueError(
            f"`y_public` must be a tuple of {len(sets)} arrays, one for each set of `X_public`,"
            f" got {type(y_public).__name__}."
        )
    for i, (targets, rows) in enumerate(zip(given, sets, strict=True)):
        name = f"y_public[{i}]" if several else "y_public"
        if targets is None:
            raise ValueError(
                f"`{name}` is None: all public sets have labels or none has. Leave the set out, or"
                " pass y_public=None."
            )
        targets = np.asarray(targets)
        if len(targets) != len(rows):
            raise ValueError(f"`{name}` has {len(targets)} targets for {len(rows)} public rows.")
        yield name, targets


def _numbers(y: Any) -> Any:
    """Targets as float64 where they came as objects or text; others as they are."""
    kind = np.asarray(y).dtype.kind
    if y is None or kind not in "OSUMmg":
        return y
    try:
        values = np.asarray(y, dtype=np.float64) if kind not in "Mm" else None
    except (TypeError, ValueError, OverflowError):
        values = None
    if values is None:  # raised out here, so that no chained exception carries an entry
        raise ValueError("`y` has entries that are not numbers: drop those rows.")
    return values


def _validated(estimator: Any, X: Any, *y: Any, reset: bool, **options: Any) -> Any:
    """scikit-learn's validation, with our words where its own quote an entry or mislead."""
    dtypes = [np.float64, np.float32]
    try:
        # Its sum of all entries may overflow both ways: NumPy would warn, and so tell of a row.
        with np.errstate(all="ignore"):
            return validate_data(estimator, X, *y, reset=reset, dtype=dtypes, **options)
    except ValueError as error:
        message = str(error)
    except TypeError as error:
        message = str(error)
        known = ["NA is ambiguous", "promoted", "Cannot cast"]
        # Of an array it names no entry, and scikit-learn's checks ask for it as it is.
        known += ["float() argument"] if hasattr(X, "columns") else []
        if not any(word in message for word in known):
            raise
    # Raised out here, so that no chained exception carries the entry either.
    raise ValueError(_without_values(X, message))


def _plain(X: Any) -> Any:
    """`X` as a plain array (a memory map stays on disk), or as CSR without duplicates.

    Norms are taken entry by entry: two entries in one place would be bounded one by one
    and used as their sum. What `X` says about itself (`has_canonical_format`) is not believed.
    """
    if not sparse.issparse(X):
        return np.asarray(X)
    X = sparse.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if not np.isfinite(X.data).all():
            raise ValueError("Input X contains infinity: entries in one place add up to it.")
    return X


def _without_values(X: Any, message: str) -> str:
    """A message of scikit-learn that is safe to log, with the way out."""
    if message.startswith("Complex data not supported"):
        return "Complex data not supported: `X` and `y` must be real."
    if message.startswith("Expected 2D array"):
        return (
            "Expected 2D array for `X`, one row a record. Reshape your data: X.reshape(1, -1) if"
            " it is one record, X.reshape(-1, 1) if it is one feature."
        )
    if message.startswith("Input X contains"):
        return (
            f"{message.splitlines()[0]} Fill such entries with a constant that is known in"
            " advance, or drop the rows or columns. An imputer fitted on these rows would not be"
            " private."
        )
    missing = ("Input y contains NaN", "Input contains NaN")  # of X it would say so
    if message.startswith(missing) or "NA is ambiguous" in message:
        return "Input y contains NaN or missing labels: drop those rows, or give them a label."
    no_number = ["convert", "promoted", "Cannot cast"]
    no_number += ["float() argument", "with a sequence"] if hasattr(X, "columns") else []
    if any(word in message for word in no_number):
        columns = zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False)
        bad = [str(name) for name, dtype in columns if not _numeric(dtype)]
        return (
            f"`X` has entries that are not numbers{' in the columns ' if bad else ''}"
            f"{', '.join(bad[:10])}. Drop them, or encode them with a transformer that was fitted"
            " on public categories and frozen: see the recipe for mixed columns in docs/privacy.md."
        )
    return message


def _numeric(dtype: Any) -> bool:
    """Whether a column of a data frame of pandas or Polars holds numbers, by its dtype."""
    if hasattr(dtype, "is_numeric"):  # of Polars
        return dtype.is_numeric() or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


def check_classes(y: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sorted class labels and the index of each entry of `y` among them.

    Parameters
    ----------
    y : array of shape (n,)
        Private labels.
    classes : array-like or None
        Public labels; None reads them from `y`, which makes the set of labels that
        occur part of what the guarantee assumes to be public.
    """
    if classes is None:
        try:
            check_classification_targets(y)
        except (TypeError, ValueError) as error:
            if isinstance(error, ValueError) and "label type: unknown" not in str(error):
                raise
            raise ValueError(
                "Unknown label type: `y` has missing labels, or labels of types that cannot be"
                " ordered. Drop those rows, or give all of them a label of one type."
            ) from None
        labels, codes = np.unique(y, return_inverse=True)
        if len(labels) < 2:
            raise ValueError(
                "`y` has fewer than two classes and a classifier needs two: got 1 class. If"
                " other labels exist but did not occur, name all of them in `classes`."
            )
        return labels, codes
    labels = np.unique(column_or_1d(np.asarray(classes)))
    if len(labels) < 2:
        raise ValueError(f"`classes` must name at least two classes, got {len(labels)}.")
    codes = np.searchsorted(labels, y) if _comparable(labels, y) else np.zeros(len(y), dtype=int)
    codes = np.clip(codes, 0, len(labels) - 1)
    if not np.array_equal(labels[codes], y):
        raise ValueError(
            "`y` has labels that are not in `classes`. Name every label that can occur in"
            " `classes`, or drop the rows with other labels."
        )
    return labels, codes


def _comparable(labels: np.ndarray, y: np.ndarray) -> bool:
    """Whether both arrays hold text or both hold numbers (or objects, as they come)."""
    text = [array.dtype.kind in "US" for array in (labels, y)]
    return "O" in (labels.dtype.kind, y.dtype.kind) or text[0] == text[1]


def log_class_weights(class_weight: Any, classes: np.ndarray) -> np.ndarray:
    """Logarithm of the public weight of each class; zeros where none is given."""
    weights = np.ones(len(classes))
    if class_weight is None:
        return np.log(weights)
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"`class_weight` must be None or a dict, got {shown(class_weight)}."
            " 'balanced' would count the private labels: pass weights from public knowledge,"
            " for example {0: 1.0, 1: 9.0} for a condition known to affect one in ten."
        )
    for label, weight in class_weight.items():
        match = np.flatnonzero(classes == label)
        if len(match) != 1:
            raise ValueError(f"`class_weight` has the label {shown(label)}, which is not a class.")
        weights[match[0]] = check_real(f"class_weight[{shown(label)}]", weight, low=0.0)
    return np.log(weights)
