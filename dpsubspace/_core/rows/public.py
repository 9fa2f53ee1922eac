"""Public rows: their checks, what a fit knows about them, and all inputs of a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.ground.arrays import Array, on_device
from dpsubspace._core.ground.checks import refuse_collection, shown, unwrapped
from dpsubspace._core.rows.columns import as_column
from dpsubspace._core.rows.inputs import check_classes
from dpsubspace._core.rows.records import Records, check_order
from dpsubspace.exceptions import PublicDataWarning, warn


def check_public_rows(
    estimator: Any, X: Any, X_public: Any, records: Records
) -> tuple[np.ndarray, ...]:
    """Return sets of public rows, with the width, column names and dtype of checked rows `X`.

    Only width and dtype of the private rows `X`, checked by `estimator`, are used. The number of
    rows of persons is private, and so is whether there are as many public rows.
    """
    if X_public is None:
        return ()
    several = isinstance(X_public, tuple)
    sets = []
    for i, given in enumerate(X_public if several else (X_public,)):
        name = f"X_public[{i}]" if several else "X_public"
        given = unwrapped(name, given)
        hint = _hint(given, several, labelled=hasattr(estimator, "fit"))
        sets.append(_checked_set(estimator, X, given, name, hint))
    if not sets:
        raise ValueError("`X_public` is an empty tuple: pass None where there are no public rows.")
    if not records.grouped and (len(sets) if several else len(sets[0])) == records.n:
        warn(
            "`X_public` is as long as `X`: cross-validation and bagging slice such an argument"
            " together with `X`. Pass a tuple, X_public=(X_public,), which is never sliced.",
            PublicDataWarning,
            about="sliced",
        )
    return tuple(sets)


def _hint(given: Any, several: bool, *, labelled: bool) -> str:
    """Return what was probably meant when a public set is refused."""
    if several:
        return " Labels go in `y_public`." if labelled and np.ndim(given) == 1 else ""
    parts = given if isinstance(given, list) else []
    if any(getattr(part, "ndim", 0) == 2 for part in parts):
        return " Pass several sets as a tuple, X_public=(X1, X2), and not as a list."
    return ""


def check_candidates(estimator: Any, X: Any, candidates: Any, name: str) -> dict[Any, np.ndarray]:
    """Return the rows of each candidate by its name; a tuple of sets is one candidate, their union.

    Only width and dtype of the private rows `X`, checked by `estimator`, are used. `name` is the
    name of the parameter.
    """
    if not isinstance(candidates, Mapping) or not candidates:
        raise ValueError(
            f"`{name}` must be a dict of public rows by name, such as {{'hospital': rows_1,"
            f" 'survey': rows_2}}, with at least one of them, got {type(candidates).__name__}"
            f" {'without entries' if isinstance(candidates, Mapping) else ''}".rstrip()
            + "."
        )
    found: dict[Any, np.ndarray] = {}
    for key, given in candidates.items():
        sets = given if isinstance(given, tuple) else (given,)
        if not sets:
            raise ValueError(f"`{name}[{key!r}]` is an empty tuple: leave that candidate out.")
        label = f"{name}[{key!r}]"
        rows = np.concatenate([_checked_set(estimator, X, each, label, "") for each in sets])
        for other, seen in found.items():
            if rows.shape == seen.shape and np.array_equal(rows, seen):
                warn(
                    f"`{name}` has the same rows as {other!r} and as {key!r}: leave out one.",
                    PublicDataWarning,
                    about=("duplicates", key),
                )
        found[key] = rows
    return found


def _checked_set(estimator: Any, X: Any, given: Any, name: str, hint: str) -> np.ndarray:
    """Return a set of public rows, checked against rows `X`; `hint` ends error messages."""
    given = unwrapped(name, given)
    refuse_collection(name, given)
    dense = given.toarray() if sparse.issparse(given) else given
    try:
        rows = check_array(dense, dtype=X.dtype, input_name=name)
        validate_data(estimator, dense, reset=False, skip_check_array=True)
    except (
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # public rows: the message may quote them
        raise ValueError(f"`{name}`: {error}{hint}") from error
    return rows


def check_public_labels(
    y_public: Any, X_public: Any, sets: tuple[np.ndarray, ...], classes: np.ndarray
) -> np.ndarray | None:
    """Return the index among `classes` of each public row's label, all sets in one; or None.

    The sets are those of :func:`check_public_rows`, and classes are sorted. None is for no labels.
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
    """Return targets of public rows (m, n_targets), all sets in one; None without any."""
    values = []
    for name, targets in _public_targets(y_public, X_public, sets):
        try:
            targets = check_array(targets, dtype="float64", ensure_2d=False, input_name=name)
        except (TypeError, ValueError, OverflowError) as error:
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
        got = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(y_public).__name__
        raise ValueError(
            f"`y_public` must be a tuple of {len(sets)} arrays, one for each set of `X_public`,"
            f" got {got}."
        )
    check_order_of_sets(X_public, y_public)
    for i, (targets, rows) in enumerate(zip(given, sets, strict=True)):
        name = f"y_public[{i}]" if several else "y_public"
        if targets is None:
            raise ValueError(
                f"`{name}` is None: all public sets have labels or none has. Leave the set out, or"
                " pass y_public=None."
            )
        targets = np.asarray(as_column(targets, name))
        if len(targets) != len(rows):
            raise ValueError(f"`{name}` has {len(targets)} targets for {len(rows)} public rows.")
        yield name, targets


def check_order_of_sets(X_public: Any, y_public: Any) -> None:
    """Raise ValueError if targets have the labels of their public rows in another order."""
    if not (isinstance(X_public, tuple) and isinstance(y_public, tuple)):
        check_order(X_public, "X_public", y_public=y_public)
        return
    for i, (rows, targets) in enumerate(zip(X_public, y_public, strict=False)):
        check_order(rows, f"X_public[{i}]", **{f"y_public[{i}]": targets})


@dataclass(frozen=True)
class PublicRows:
    """Public rows of a fit, and their targets as the loss uses them, if they have any.

    `sizes` are the sizes of the sets that they came in; all rows are one set if it is not given.
    """

    X: np.ndarray
    targets: np.ndarray | None = None
    sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, sets: Sequence[np.ndarray], targets: np.ndarray | None) -> PublicRows | None:
        """Return all sets in one, in float64; None without any."""
        if not sets:
            return None
        sizes = tuple(len(rows) for rows in sets)
        return cls(np.concatenate(sets).astype(np.float64), targets, sizes)

    @property
    def sets(self) -> list[np.ndarray]:
        return np.split(self.X, np.cumsum(self.sizes[:-1])) if self.sizes else [self.X]

    @property
    def target_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of each column of targets, a tenth wider on either side."""
        assert self.targets is not None
        low, high = self.targets.min(axis=0), self.targets.max(axis=0)
        margin = 0.1 * (high - low) + 1e-9 * (1 + np.abs(high))
        return low - margin, high + margin

    @property
    def assumption(self) -> str:
        labelled = "" if self.targets is None else " and of y_public"
        return f"{len(self.X)} rows of X_public{labelled}"


# Inputs of a fit --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Checked rows and targets of a fit."""

    X: Any  # (n_rows, d): private rows
    targets: Array  # (n_rows,): private targets: indices of classes, or columns of values
    n_targets: int  # Number of classes, or of columns of values
    records: Records  # Records of the rows
    public: PublicRows | None = None  # Public rows

    def sizes(self, n_outputs: int) -> Sizes:
        """Return the public sizes, if scores have so many columns."""
        n_public, labelled = 0, False
        if self.public is not None:
            n_public, labelled = len(self.public.X), self.public.targets is not None
        n, persons = self.records.n, self.records.grouped
        return Sizes(n, self.X.shape[1], n_outputs, n_public, labelled, persons)

    def on_device(self, where: Any) -> Data:
        """Return a copy with private arrays on a device; public rows follow where they are used."""
        if where is None:
            return self
        X, targets = (on_device(x, where) for x in (self.X, self.targets))
        return replace(self, X=X, targets=targets, records=self.records.on_device(where))
