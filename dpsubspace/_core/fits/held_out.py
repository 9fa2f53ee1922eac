"""Fitted models that stay as they are, and their outputs for private rows that are held out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.fits.composites import opened
from dpsubspace._core.fits.estimator import FitData, PrivateEstimator
from dpsubspace._core.fits.outputs import answer, shown_to
from dpsubspace._core.ground.checks import unwrapped
from dpsubspace._core.ground.forms import Form, Maybe, Reading, Whole
from dpsubspace._core.rows.columns import as_column, as_rows
from dpsubspace._core.rows.inputs import NO_NUMBERS, as_numbers, checked_by, refuse_collections
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import check_groups, check_order
from dpsubspace._core.rows.seen_rows import has_seen, note_rows
from dpsubspace.exceptions import PrivacyWarning, warn

# Probabilities below this count as this (scikit-learn's calibrators do the same).
_LEAST = float(np.finfo(np.float64).eps)


# Frozen models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frozen:
    """A fitted model of which only predictions are used."""

    model: Any  # Estimator or Pipeline
    n_features: int | None  # Number of columns that it takes, if it reports that

    @property
    def classes(self) -> np.ndarray:
        return np.asarray(self.model.classes_)

    def log_probabilities(self, X: Any) -> np.ndarray:
        """Return finite logarithms of the probabilities of rows."""
        with np.errstate(all="ignore"):
            found = np.asarray(answer(self.model, "predict_proba", X), dtype=np.float64)
            return np.log(np.clip(np.nan_to_num(found), _LEAST, 1.0))

    def predictions(self, X: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(answer(self.model, "predict", X), dtype=np.float64)
            return found if found.ndim == 1 else column_or_1d(found)  # slow for one person's rows


class FrozenForm(Form):
    """The fitted model of the parameter `estimator`; files have only its number of columns."""

    def plain(self, value: Frozen) -> int | None:
        return value.n_features

    def pickled(self, value: Frozen) -> list[Any]:
        return [value.model, value.n_features]

    def read(self, plain: Any, here: Reading) -> Frozen:
        if not here.bounded:  # from a pickle
            return Frozen(*plain)
        return Frozen(here.params["estimator"], Maybe(Whole()).read(plain, here))


class HeldOutEstimator(PrivateEstimator):
    """Estimators that learn from outputs of a fitted model for rows that it was not fitted to."""

    _asks_fitted = True

    estimator: Any  # Parameter of every subclass

    # Set by `fit`.
    n_features_in_: int
    _frozen: Frozen

    _saved: ClassVar = {"n_features_in_": Whole(axis="features"), "_frozen": FrozenForm()}

    def _rows_as_fitted(self, X: Any) -> Any:
        """Return rows as the first part inside of the fitted model sees them."""
        parts = (part.model for part in opened(self.estimator, fitted=True).walk())
        part = next((part for part in parts if hasattr(part, "_rows_as_fitted")), None)
        return as_numbers(X) if part is None else part._rows_as_fitted(X)

    def _store(self, found: Any, about: Any) -> None:
        self._frozen, self.n_features_in_, *_ = about


def pure_target(estimator: Any) -> Target:
    """Return the privacy that `estimator` requests, without a delta unless one is given.

    A choice gains next to nothing from a delta, and without one a ledger of exactly its epsilon has
    room for it.
    """
    auto = isinstance(estimator.delta, str) and estimator.delta == "auto"
    delta = 0.0 if auto else estimator.delta
    return Target(estimator.epsilon, delta, estimator.neighboring_relation).checked(pure=True)


def check_frozen(estimator: Any, method: str, what: str) -> Frozen:
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


# Held-out rows ----------------------------------------------------------------------------------


def warn_of_training_rows(model: Any, X: Any, harm: str, *, calibrated: bool = True) -> None:
    """Warn if rows that should be held out are known to be rows of the fit of a model.

    This includes fits of parts inside of the model. Calibrations among them count only if
    `calibrated` is set: one or two numbers make no score too good. `harm` states the consequence.
    """
    parts = [part.model for part in opened(model, fitted=True).walk()]
    if not calibrated:
        parts = [part for part in parts if not getattr(part, "_asks_fitted", False)]
    if any(has_seen(part, X) for part in parts):
        warn(
            f"`X` has rows that this {type(model).__name__} was fitted to: {harm} Hold out some"
            " rows before the fit, and pass those.",
            PrivacyWarning,
            about=("seen", type(model).__name__),
        )


_HARM = (
    "it is right about them more often than about new rows, so that probabilities, sets and"
    " intervals will claim too much."
)


@dataclass(frozen=True)
class HeldOut(Data):
    """Held-out rows, with their targets and a model's output for each. Nothing is public yet."""

    said: Any = None  # (n_rows, ...)


def held_out_labels(estimator: Any, frozen: Frozen, given: FitData) -> HeldOut:
    """Return rows with indices of labels, and logarithms of the probabilities of all classes."""
    n_classes = len(frozen.classes)
    asked = f"`estimator` must give {n_classes} probabilities a row."
    reader = _Reader(estimator, frozen, frozen.log_probabilities, _codes, (n_classes,), asked)
    return reader.read(given.X, given.y, given.groups)


def held_out_targets(estimator: Any, frozen: Frozen, given: FitData) -> HeldOut:
    """Return rows with their targets, and the predictions for them."""
    asked = "`estimator` must predict one number a row."
    reader = _Reader(estimator, frozen, frozen.predictions, _numbers, (), asked)
    return reader.read(given.X, given.y, given.groups)


@dataclass(frozen=True)
class _Reader:
    """Checks held-out rows and shows them to a model."""

    estimator: Any  # Estimator that is fitted to the rows, for messages
    frozen: Frozen
    says: Callable[[Any], np.ndarray]
    targets: Callable[[Frozen, Any], np.ndarray]  # Numbers for labels or targets
    shape: tuple[int, ...]  # Shape of the output for a row
    asked: str  # Message if it has another shape

    def read(self, X: Any, y: Any, groups: Any) -> HeldOut:
        """Return checked rows; ValueError, which shows no entry, if they cannot be used."""
        refuse_collections(self.estimator, X=X, y=y, groups=groups)
        given, X = X, checked_by(as_rows, unwrapped("X", X, read=False))
        check_order(X, y=y, groups=groups)
        if not (hasattr(X, "shape") and len(X.shape) == 2):
            X = checked_by(np.asarray, X)
        if len(X.shape) != 2 or X.shape[0] < 1:
            raise ValueError(
                f"Expected 2D array for `X`, one row a record, got {len(X.shape)}D, or no rows."
            )
        self._check_columns(X.shape[1], y)
        y = checked_by(column_or_1d, as_column(y), warn=True)
        if len(y) != X.shape[0]:
            raise ValueError("`X` and `y` must have one entry for each row: compare their lengths.")
        rows = Data(X, self.targets(self.frozen, y), 1, check_groups(groups, X))
        said = shown_to(self.says, rows)
        if said.shape != (len(y), *self.shape):
            raise ValueError(self.asked)
        warn_of_training_rows(self.frozen.model, given, _HARM)
        note_rows(self.estimator, given, X)
        return HeldOut(X, rows.targets, 1, rows.records, said=said)

    def _check_columns(self, n_features: int, y: Any) -> None:
        if y is None:
            raise ValueError(
                "this needs the targets of the held-out rows: requires y to be passed."
            )
        if self.frozen.n_features not in (None, n_features):
            raise ValueError(
                f"X has {n_features} features, but the estimator is expecting"
                f" {self.frozen.n_features} features as input."
            )


def _codes(frozen: Frozen, labels: np.ndarray) -> np.ndarray:
    known = {label: code for code, label in enumerate(frozen.classes.tolist())}
    try:
        return np.array([known[label] for label in labels.tolist()], dtype=np.intp)
    except (KeyError, TypeError):
        pass
    # Raised outside the handler, so that no chained exception carries a label.
    raise ValueError(
        "`y` has labels that are not in `classes_` of the estimator: drop those rows, or fit"
        " the estimator with all labels that can occur."
    )


def _numbers(_: Frozen, y: np.ndarray) -> np.ndarray:
    targets = None
    with suppress(TypeError, ValueError, OverflowError):  # their messages may have entries
        targets = np.asarray(y, dtype=np.float64)
    if targets is None:
        raise ValueError(NO_NUMBERS)
    if not np.isfinite(targets).all():
        raise ValueError("Input y contains NaN or infinity: drop those rows.")
    return targets
