"""Fitted models that stay as they are, and the private rows that are held out from them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dpsubspace._accounting.budget import Target
from dpsubspace._estimators.model_outputs import by_record
from dpsubspace._rows.inputs import NO_NUMBERS, without_values
from dpsubspace._rows.records import Records, check_groups

__all__ = [
    "Frozen",
    "HeldOut",
    "check_frozen",
    "held_out_labels",
    "held_out_targets",
    "pure_target",
]

# Probabilities below this count as this (scikit-learn's calibrators do the same).
_LEAST = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Frozen:
    """A fitted model, of which nothing but predictions is used.

    Parameters
    ----------
    model : object
        Estimator or Pipeline.
    n_features : int or None
        Number of columns that it takes, where it says so.
    """

    model: Any
    n_features: int | None

    @property
    def classes(self) -> np.ndarray:
        """Its labels."""
        return np.asarray(self.model.classes_)

    def log_probabilities(self, X: Any) -> np.ndarray:
        """Logarithm of the probabilities of rows, finite."""
        with np.errstate(all="ignore"):
            found = np.asarray(self.model.predict_proba(X), dtype=np.float64)
            return np.log(np.clip(np.nan_to_num(found), _LEAST, 1.0))

    def predictions(self, X: Any) -> np.ndarray:
        """Numbers that it predicts for rows."""
        with np.errstate(all="ignore"):
            found = np.asarray(self.model.predict(X), dtype=np.float64)
            return found if found.ndim == 1 else column_or_1d(found)  # slow for one person's rows


@dataclass(frozen=True)
class HeldOut:
    """Private rows, checked, and what is public of them.

    Parameters
    ----------
    X : array-like
        Rows.
    y : ndarray of shape (n_rows,)
        Targets, or the index of each label.
    records : Records
        Whose the rows are.
    n_features : int
        Number of columns.
    """

    X: Any
    y: np.ndarray
    records: Records
    n_features: int

    def shown_to(self, says: Callable[[Any], np.ndarray]) -> np.ndarray:
        """What is said of the rows, of those of each person by themselves."""
        return by_record(self.X, self.records, lambda X, _: {"": says(X)})[""]


def pure_target(estimator: Any) -> Target:
    """Privacy that the parameters of `estimator` ask for, without a delta unless one is given.

    A choice gains next to nothing from one, and a ledger of exactly its epsilon has room for it.
    """
    auto = isinstance(estimator.delta, str) and estimator.delta == "auto"
    delta = 0.0 if auto else estimator.delta
    return Target(estimator.epsilon, delta, estimator.neighboring_relation).checked(pure=True)


def check_frozen(estimator: Any, method: str, what: str) -> Frozen:
    """A fitted model with the method `method`, or ValueError."""
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise ValueError(f"`estimator` must be a fitted {what}, got {estimator!r}.")
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise ValueError(
            f"`estimator` must be fitted before, on other rows, got a {type(estimator).__name__}"
            " that is not. Where clones are made, wrap it: FrozenEstimator(estimator), from"
            " sklearn.frozen, which clones keep as it is."
        ) from None
    if is_classifier(estimator) != (what == "classifier"):
        raise ValueError(f"`estimator` must be a {what}, got a {type(estimator).__name__}.")
    if not hasattr(estimator, method):
        raise ValueError(
            f"`estimator` must have {method}, which this {type(estimator).__name__} does not: use"
            " one that gives probabilities, as with loss='log_loss'."
        )
    try:
        n_features = getattr(estimator, "n_features_in_", None)
    except Exception:  # a Pipeline asks its first step, which may not know
        n_features = None
    return Frozen(estimator, None if n_features is None else int(n_features))


def held_out_labels(
    frozen: Frozen, X: Any, y: Any, groups: Any, present: np.ndarray | None
) -> HeldOut:
    """Rows and labels, which must be those of the model."""
    rows = _rows(frozen, X, y, groups, present)
    labels, classes = rows.y, frozen.classes
    known = {label: code for code, label in enumerate(classes.tolist())}
    try:
        codes = np.array([known[label] for label in labels.tolist()], dtype=np.intp)
    except (KeyError, TypeError):
        codes = None
    if codes is None:  # raised out here, so that no chained exception carries a label
        raise ValueError(
            "`y` has labels that are not in `classes_` of the estimator: drop those rows, or fit"
            " the estimator with all labels that can occur."
        )
    return HeldOut(X, codes, rows.records, rows.n_features)


def held_out_targets(
    frozen: Frozen, X: Any, y: Any, groups: Any, present: np.ndarray | None
) -> HeldOut:
    """Rows and one finite number each."""
    rows, targets = _rows(frozen, X, y, groups, present), None
    with suppress(TypeError, ValueError):  # whose messages may have entries
        targets = np.asarray(rows.y, dtype=np.float64)
    if targets is None:
        raise ValueError(NO_NUMBERS)
    if not np.isfinite(targets).all():
        raise ValueError("Input y contains NaN or infinity: drop those rows.")
    return HeldOut(X, targets, rows.records, rows.n_features)


def _without_sizes(check: Callable[..., np.ndarray], data: Any, **options: Any) -> np.ndarray:
    """Checked data; ValueError that does not tell how many rows there are."""
    try:
        return check(data, **options)
    except ValueError as error:
        message = without_values(data, str(error))
    raise ValueError(message)


def _rows(frozen: Frozen, X: Any, y: Any, groups: Any, present: np.ndarray | None) -> HeldOut:
    """Rows, as many targets, and whose they are; the model checks what is in the rows."""
    if not (hasattr(X, "shape") and len(X.shape) == 2):
        X = _without_sizes(np.asarray, X)
    if X.ndim != 2 or X.shape[0] < 1:
        raise ValueError(f"Expected 2D array for `X`, one row a record, got {X.ndim}D, or no rows.")
    if y is None:
        raise ValueError("this needs the targets of the held-out rows: requires y to be passed.")
    y = _without_sizes(column_or_1d, y, warn=True)
    if len(y) != X.shape[0]:
        raise ValueError("`X` and `y` must have one entry for each row: compare their lengths.")
    n_features = int(X.shape[1])
    if frozen.n_features not in (None, n_features):
        raise ValueError(
            f"X has {n_features} features, but the estimator is expecting {frozen.n_features}"
            " features as input."
        )
    return HeldOut(X, y, check_groups(groups, X, present), n_features)
