"""Checks of private rows, labels and targets, with errors that suggest a way out.

No message here contains an entry of the data: errors end up in logs. Nor does a message contain the
number of rows, which is private if several are of one person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from dpsubspace._core.ground.arrays import native
from dpsubspace._core.ground.checks import (
    check_real,
    is_dataset,
    is_elsewhere,
    refuse_collection,
    shown,
    unwrapped,
)
from dpsubspace._core.rows.columns import as_column, read_labels
from dpsubspace._core.rows.dataset_parts import DatasetColumns
from dpsubspace._core.rows.elsewhere import load
from dpsubspace._core.rows.records import check_order, split_groups
from dpsubspace._core.rows.remote import ROWS, TARGETS, RemoteRows, for_each_part
from dpsubspace._core.rows.same_rows import named_sets
from dpsubspace._core.rows.seen_rows import note_rows

# Private rows, labels and targets ---------------------------------------------------------------

# Rows and labels ----------------------------------------------------------------------------


def named(function: str, *, collections: bool = False) -> BaseEstimator:
    """Return an estimator that checks the rows of a function; messages use the function's name."""
    return type(function, (BaseEstimator,), {"_takes_collections": collections})()


def check_rows(
    estimator: Any, X: Any, *, reset: bool, accept_sparse: bool = True, groups: Any = None
) -> Any:
    """Return rows of `X`: a float64 or float32 array, or CSR matrix, of finite numbers.

    Rows of collections stay where they are read: with `groups`, all of a person in one part.
    """
    if is_elsewhere(X):
        if not reset and is_dataset(X):  # nobody would get the result of each row
            refuse_collection("X", X)
        _check_taken(estimator, X)
        X = _named_columns(X)
        _check_names(estimator, X, reset=reset)
        return load(X, None, _BlockOfRows(), *split_groups(groups))[ROWS]
    check_order(X, groups=groups)
    form = "csr" if accept_sparse else False
    return _plain(_validated(estimator, _there(X), reset=reset, accept_sparse=form))


def check_rows_and_labels(
    estimator: Any, X: Any, y: Any, *, accept_sparse: bool = True, groups: Any = None
) -> tuple[Any, np.ndarray]:
    """Return rows of `X` as from `check_rows`, and one label per row."""
    if is_elsewhere(X) or isinstance(X, RemoteRows):
        return _collections(estimator, X, y, _labels, groups)
    check_order(X, y=y, groups=groups)
    form = "csr" if accept_sparse else False
    found, y = _validated(estimator, _there(X), read_labels(y), reset=True, accept_sparse=form)
    return _plain(found), _one_value_each(y)


def check_rows_and_targets(
    estimator: Any, X: Any, y: Any, *, accept_sparse: bool = True, groups: Any = None
) -> tuple[Any, np.ndarray]:
    """Return rows of `X` as from `check_rows`, and one or more float64 numbers per row."""
    if is_elsewhere(X) or isinstance(X, RemoteRows):
        return _collections(estimator, X, y, _values, groups)
    check_order(X, y=y, groups=groups)
    form = "csr" if accept_sparse else False
    options = {"accept_sparse": form, "multi_output": True, "y_numeric": True}
    found, y = _validated(estimator, _there(X), _numbers(y), reset=True, **options)
    return _plain(found), _finite(y)


def _finite(y: Any) -> np.ndarray:
    y = np.asarray(y, dtype=np.float64)
    if not np.isfinite(y).all():  # a long double may be finite when its float64 is not
        raise ValueError(_INFINITE)
    return y


def _numbers(y: Any) -> Any:
    """Return targets as float64 if they are objects or text; others unchanged."""
    kind, y = None, as_column(y)
    with suppress(ValueError):  # the message has the number of targets
        kind = np.asarray(y).dtype.kind
    if kind is None:
        raise ValueError("`y` must have one target a row, or as many in each row.")
    if y is None or kind not in "OSUMmgV":
        return y
    try:
        values = np.asarray(y, dtype=np.float64) if kind not in "MmV" else None
    except (TypeError, ValueError, OverflowError):
        values = None
    if values is None:  # raised here, so that no chained exception carries an entry
        raise ValueError(NO_NUMBERS)
    return values


_INFINITE = "Input y contains infinity: drop those rows."

NO_NUMBERS = (
    "`y` has entries that are not numbers, and this takes numbers: convert text with"
    " pandas.to_numeric and dates to a number of days. Labels are for classifiers."
)


# Blocks of Dask collections, where they lie ---------------------------------------------------


def _collections(
    estimator: Any, X: Any, y: Any, targets: Callable[[Any], np.ndarray], groups: Any
) -> Any:
    """Return rows and targets of collections, checked where they lie: with `groups`, by person.

    Rows that lie there already were made from a table, with targets of :func:`check_of_blocks`.
    """
    _check_taken(estimator, X)
    _check_given(estimator, y)
    if isinstance(X, RemoteRows):
        _validated_part(estimator, _there(X.template), reset=True)
        return X, y
    X = _named_columns(X, y)
    _check_names(estimator, X, reset=True)
    found = load(X, y, _BlockOfRows(targets), *split_groups(groups))
    return found[ROWS], found[TARGETS]


def _named_columns(X: Any, y: Any = None) -> Any:
    """Return the source of columns: the collection, or a dataset's columns other than `y`."""
    return DatasetColumns.of(X, y) if is_dataset(X) else X


def check_of_blocks(estimator: Any, y: Any) -> Callable[[Any], np.ndarray]:
    """Return the check for blocks of labels or targets of `estimator`; ValueError without y."""
    _check_given(estimator, y)
    return _values if is_regressor(estimator) else _labels


def _check_given(estimator: Any, y: Any) -> None:
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y"
            " is None."
        )


def _check_taken(estimator: Any, X: Any) -> None:
    """Raise ValueError unless `_takes_collections` states that an estimator accepts collections."""
    if not getattr(estimator, "_takes_collections", False):
        if is_dataset(X):
            refuse_collection("X", X)
        both = "X.compute() and y.compute()" if hasattr(estimator, "fit") else "X.compute()"
        raise ValueError(
            f"{type(estimator).__name__} does not take Dask collections: pass {both} where they"
            " fit into memory. tabular_pipeline, the linear estimators,"
            " DPPCA, BoundedScaler and the private_ functions take them as they are."
        )


def refuse_collections(estimator: Any, **given: Any) -> None:
    """Raise ValueError if inputs `given` to an estimator, by parameter names, are not in memory.

    Nothing of them is read. Public sets may be tuples.
    """
    for name, value in given.items():
        for called, each in named_sets(name, split_groups(value)[0]).items():
            refuse_collection(called, each, type(estimator).__name__)


def _check_names(estimator: Any, X: Any, *, reset: bool) -> None:
    """Check number and names of a collection's columns, and set attributes of the estimator."""
    if X.ndim != 2:
        raise ValueError(without_values(X, "Expected 2D array"))
    if not hasattr(X, "columns") and np.isnan(X.shape[1]):
        raise ValueError("`X` must have a known number of columns: call compute_chunk_sizes().")
    template = X._meta if hasattr(X, "columns") else np.empty((0, X.shape[1]))
    _validated_part(estimator, template, reset=reset)


def _validated_part(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Validate a part of a collection, perhaps of no rows, as scikit-learn does."""
    options = {"way_out": _OF_COLLECTIONS, "ensure_min_samples": 0}
    return _validated(estimator, X, reset=reset, **options)


@dataclass(frozen=True)
class _BlockOfRows:
    """Checks a block of rows, and makes `targets` of one beside it, where they lie."""

    targets: Callable[[Any], np.ndarray] | None = None

    def __call__(self, X: Any, y: Any = None) -> dict[str, np.ndarray]:
        """Return the arrays of a block; raise ValueError if it cannot be used."""
        if sparse.issparse(X):
            raise ValueError(
                "sparse blocks of Dask collections are not supported: use map_blocks to make them"
                " dense, or a matrix of scipy that is in memory."
            )
        check_order(X, y=y)
        rows = _plain(_validated_part(BaseEstimator(), X, reset=True))
        found = {ROWS: rows}
        if self.targets is not None:
            found[TARGETS] = self.targets(y)
        return found


def _labels(y: Any) -> np.ndarray:
    """Return labels of a block; text as objects, which have one type whatever their lengths.

    Objects of other types stay objects, since a block of no rows would not show their type.
    """
    y = _one_value_each(checked_by(column_or_1d, as_column(y)))
    checked_by(assert_all_finite, y, input_name="y")
    if y.dtype.kind == "O":
        _distinct(y)
    return y.astype(object) if y.dtype.kind in "US" else y


def _values(y: Any) -> np.ndarray:
    y = _numbers(y)
    options = {"ensure_2d": False, "dtype": "numeric", "ensure_min_samples": 0}
    return _finite(checked_by(check_array, y, input_name="y", **options))


def _one_value_each(y: np.ndarray) -> np.ndarray:
    """Return labels unchanged; ValueError for records of several fields, which have no order."""
    if y.dtype.kind == "V":
        raise ValueError(_NO_LABELS)
    return y


def checked_by(check: Callable[..., Any], data: Any, **options: Any) -> Any:
    """Run a check of scikit-learn or NumPy; its ValueError has no entries or their number."""
    try:
        return check(data, **options)
    except (ValueError, OverflowError) as error:
        message = without_values(data, str(error))
    raise ValueError(message)  # here, so that no chained exception carries an entry either


# Checks of scikit-learn -----------------------------------------------------------------------


def _validated(
    estimator: Any, X: Any, *y: Any, reset: bool, way_out: str | None = None, **options: Any
) -> Any:
    """Validate with scikit-learn; replace its messages that quote an entry or mislead."""
    for name, value in zip(("X", "y"), (X, *y), strict=False):
        refuse_collection(name, value)
    if _has_dates(X):
        raise ValueError(without_values(X, "convert", _OF_NUMBERS))
    dtypes = [np.float64, np.float32]
    try:
        # Its sum of all entries may overflow both ways: NumPy would warn, and so reveal a row.
        with np.errstate(all="ignore"):
            found = validate_data(estimator, X, *y, reset=reset, dtype=dtypes, **options)
        if reset:
            note_rows(estimator, X, found[0] if y else found)
        return found
    except (ValueError, OverflowError) as error:
        message = str(error)
    except TypeError as error:
        message = str(error)
        known = ["NA is ambiguous", "promoted", "Cannot cast"]
        # It names no entry of an array, and scikit-learn's checks expect this message as it is.
        known += ["float() argument"] if hasattr(X, "columns") else []
        if not any(word in message for word in known):
            raise
    # Raised here, so that no chained exception carries the entry either.
    if way_out is None:
        is_model = is_classifier(estimator) or is_regressor(estimator)
        way_out = _OF_TABLES if is_model else _OF_NUMBERS
    raise ValueError(without_values(X, message, way_out))


def _there(X: Any) -> Any:
    """Return rows to validate: dense if a sparse frame omits values other than zeros."""
    X = unwrapped("X", X)
    fills = [getattr(dtype, "fill_value", None) for dtype in getattr(X, "dtypes", ())]
    is_filled = bool(fills) and None not in fills and any(fill != 0 for fill in fills)
    return X.sparse.to_dense() if is_filled and hasattr(X, "sparse") else X


def as_numbers(X: Any) -> Any:
    """Return rows of any container as validation makes them, without other requirements."""
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    return check_array(_there(X), ensure_all_finite=False, **options)


def _plain(X: Any) -> Any:
    """`X` as a plain array (a memory map stays on disk), or as CSR without duplicates.

    Norms are computed entry by entry: two entries in one place would be bounded one by one and used
    as their sum. The statement of `X` about itself (`has_canonical_format`) is not trusted.
    """
    if not sparse.issparse(X):
        return native(np.asarray(X))
    wide = X.dtype if X.dtype in (np.float64, np.float32) else np.float64
    entries = X.data.astype(wide, copy=False)  # scikit-learn does not change those of frames
    X = sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if not np.isfinite(X.data).all():
            raise ValueError("Input X contains infinity: entries in one place add up to it.")
    return X


# What to do about columns of text, in memory and in Dask collections.
_OF_TABLES = (
    "Use tabular_pipeline(estimator, schema), which encodes columns of any type by what is public"
    " about them"
)
_OF_COLLECTIONS = (
    "Use tabular_pipeline(estimator, schema), which encodes columns of any type by what is public"
    " about them, or make columns of numbers of them, such as X['ward'].isin(['surgery'])"
)
_OF_NUMBERS = "Convert columns of text with pandas.to_numeric, and dates to a number of days"


def renamed(message: str, **names: str) -> str:
    """Replace `X` and `y` in a message by the names of the parameters of a function."""
    for old, new in names.items():
        message = re.sub(_NAMED.replace("NAME", old), new, message)
    return message


# Places where messages, scikit-learn's among them, name a parameter, not a column of this name.
_NAMED = (
    r"(?<=`)NAME(?=`)|(?<=\bInput )NAME\b|^NAME(?= has \d)"
    r"|(?<![\w'])NAME(?=\.(?:collect|compute|filled|reshape)\b)"
)


def without_values(X: Any, message: str, way_out: str = _OF_TABLES) -> str:
    """Return a message of scikit-learn that is safe to log, with the way out."""
    if message.startswith("Complex data not supported"):
        return "Complex data not supported: entries must be real numbers."
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
    missing = ("Input y contains NaN", "Input contains NaN")  # for X the message would name it
    if message.startswith(missing) or "NA is ambiguous" in message:
        return "Input y contains NaN or missing labels: drop those rows, or give them a label."
    if message.startswith("Input y contains infinity"):  # "or a value too large" is not about `X`
        return _INFINITE
    no_number = ["convert", "promoted", "Cannot cast", "too large"]
    no_number += ["float() argument", "with a sequence"] if hasattr(X, "columns") else []
    if any(word in message for word in no_number):
        bad = [str(name) for name, dtype in _types_of(X) if not _numeric(dtype)]
        return (
            f"`X` has entries that are not numbers{' in the columns ' if bad else ''}"
            f"{', '.join(bad[:10])}. {way_out}, or drop these columns."
        )
    if "inconsistent numbers of samples" in message:
        return (
            "Found input variables with inconsistent numbers of samples: `X` and `y` must have one"
            " entry for each row. Compare len(X) and len(y)."
        )
    message = _OF_NO_COLUMNS.sub(r"\1", message)
    return _FIRST_SIDE.sub(r"\1n_samples", message)


# The number of rows in a shape. If there are no columns it is left out: scikit-learn's checks of
# estimators accept no word in its place.
_FIRST_SIDE = re.compile(r"(shape(?: was)? ?=?\s*\()[1-9]\d*")
_OF_NO_COLUMNS = re.compile(r"(shape=\()\d+(?=, 0\))")


def _has_dates(X: Any) -> bool:
    """Return whether columns hold dates or times, by dtype: NumPy would count their ticks."""
    dtypes = [dtype for _, dtype in _types_of(X)] or [getattr(X, "dtype", None)]
    return any(
        dtype.is_temporal()
        if hasattr(dtype, "is_temporal")  # Polars
        else getattr(dtype, "kind", "O") in "mM" or str(dtype).startswith(_DATES)
        for dtype in dtypes
    )


# Prefixes of types of dates and times in Arrow.
_DATES = ("date", "time", "duration")


def _types_of(X: Any) -> Iterable[tuple[Any, Any]]:
    """Return names of columns of a data frame, and their types."""
    if hasattr(X, "schema") and hasattr(X.schema, "types"):  # Arrow
        return zip(X.schema.names, X.schema.types, strict=True)
    return zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False)


def _numeric(dtype: Any) -> bool:
    """Return whether a column of a data frame holds numbers, by its dtype."""
    if hasattr(dtype, "is_numeric"):  # Polars
        return dtype.is_numeric() or str(dtype) == "Boolean"
    if hasattr(dtype, "to_pandas_dtype"):  # Arrow
        return str(dtype).startswith(("int", "uint", "bool", "half", "float", "double", "decimal"))
    return getattr(dtype, "kind", "O") in "biuf"


def check_classes(
    y: np.ndarray, classes: Any, *, grouped: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted class labels and the index of each entry of `y` among them.

    Without `classes` they are read from `y`, which makes the set of labels that occur part of what
    the guarantee assumes to be public. `grouped` says that several rows may be of one person, so
    that their number is private.
    """
    if isinstance(y, RemoteRows):
        # Which labels occur is public where `classes` does not name them.
        found = [*for_each_part(np.unique, y)]
        labels, _ = check_classes(read_labels(_twice(np.concatenate(found))), classes)
        return labels, np.searchsorted(labels, y)
    if classes is None:
        try:
            check_classification_targets(_twice(y) if grouped else y)
        except (TypeError, ValueError) as error:
            if isinstance(error, ValueError) and "label type: unknown" not in str(error):
                raise
            raise ValueError(_NO_LABELS) from None
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
    codes = np.zeros(len(y), dtype=int)
    if _comparable(labels, y):
        with suppress(TypeError):  # objects of which none is like a label
            codes = np.searchsorted(labels, y)
    codes = np.clip(codes, 0, len(labels) - 1)
    if not np.array_equal(labels[codes], y):
        raise ValueError(
            "`y` has labels that are not in `classes`. Name every label that can occur in"
            " `classes`, or drop the rows with other labels."
        )
    return labels, codes


_NO_LABELS = (
    "Unknown label type: `y` has missing labels, or labels of types that cannot be ordered. Drop"
    " those rows, or give all of them a label of one type."
)


def _distinct(y: np.ndarray) -> np.ndarray:
    """Return the labels that occur, in order; raise ValueError if they have none."""
    try:
        return np.unique(y)
    except TypeError:
        raise ValueError(_NO_LABELS) from None


def _twice(y: np.ndarray) -> np.ndarray:
    """Return the labels that occur, twice each: scikit-learn warns if most of them occur once."""
    return np.tile(_distinct(y), 2)


def _comparable(labels: np.ndarray, y: np.ndarray) -> bool:
    """Return whether both arrays hold text or both numbers (or objects, unchanged)."""
    text = [array.dtype.kind in "US" for array in (labels, y)]
    return "O" in (labels.dtype.kind, y.dtype.kind) or text[0] == text[1]


def log_class_weights(class_weight: Any, classes: np.ndarray) -> np.ndarray:
    """Return the logarithm of the public weight of each class; zeros if none is given."""
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
            raise ValueError(
                f"`class_weight` has the label {shown(label)}, and the classes are"
                f" {shown(classes)}: name some of them, as they are written in `y`."
            )
        weights[match[0]] = check_real(f"class_weight[{shown(label)}]", weight, low=0.0)
    return np.log(weights)
