"""What a ledger knows of Pipelines: which steps spend, which learn nothing, and what is planned.

Everything is trusted by its exact type. A subclass may do anything, whatever its base does: one
of ``Pipeline`` could store the means of the rows that pass through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import Pipeline

from dpsubspace._estimators.surroundings import works_row_by_row
from dpsubspace._rows.records import PERSON, ROW, group_index
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def private_parts(
    estimator: Any, *, fitted: bool = False, columns: bool = False
) -> list[tuple[str, Any]]:
    """Estimators inside `estimator` that can say what they will spend or have spent, by name.

    `columns` allows a ColumnTransformer alone, or as the last step.
    """
    if _is_private(estimator):
        _check_methods(estimator)
        return [(type(estimator).__name__, estimator)]
    if isinstance(estimator, type):
        raise PrivacyError(
            f"{estimator.__name__} is a class: pass an instance, {estimator.__name__}()."
        )
    if columns and type(estimator) is ColumnTransformer:
        estimator = Pipeline([("columns", estimator)])
    if type(estimator) is not Pipeline:
        raise PrivacyError(
            f"{type(estimator).__name__} cannot say what its fit will spend. A ledger fits"
            " estimators of this package and Pipelines of them, but no subclasses, since these"
            " may do more with the rows. What fits clones (grid search, cross-validation,"
            " ensembles) is counted inside of `with ledger:`, fit by fit."
        )
    parts = []
    for name, step in _flat_steps(estimator.steps, fitted):
        if _is_private(step):
            _check_methods(step)
            parts.append((name, step))
        elif not (fitted or works_row_by_row(step)):  # fitted steps were checked before
            raise PrivacyError(_refusal(name, step))
    last = estimator.steps[-1][1]
    inside = columns and parts and type(last) is ColumnTransformer
    if not (_is_private(last) or inside):
        raise PrivacyError("the last step of the Pipeline is not private: nothing to charge.")
    return parts


def _refusal(name: str, step: Any) -> str:
    """Why a step cannot be in a Pipeline of a ledger, and what can."""
    if type(step) is Pipeline:
        return (
            f"step {name!r} is a Pipeline inside of another step, and a ledger does not look into"
            " it. Make its steps steps of the outer Pipeline, or fit all of it on public rows and"
            " wrap it in sklearn.frozen.FrozenEstimator."
        )
    return (
        f"step {name!r} ({type(step).__name__}) may learn from the private rows without any"
        " privacy, and the Pipeline would have no guarantee. Use a BoundedScaler to scale columns."
        " Fit any other transformer on public rows, or on a table of known categories or constants,"
        " and wrap it in sklearn.frozen.FrozenEstimator. Freeze a FunctionTransformer in the same"
        " way if you vouch that its function looks at one row at a time."
    )


def records_of(X: Any, fit_params: dict[str, Any], name: str = "") -> tuple[int, str]:
    """Number of records that a step of a `name`, if any, is fitted to, and what a record is."""
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    groups = _given(fit_params, name).get("groups")
    if groups is None or not n_rows:
        return n_rows, ROW
    return group_index(groups, n_rows)[2], PERSON


def _given(fit_params: dict[str, Any], name: str) -> dict[str, Any]:
    """What a step is given beside rows and targets; what has no name of a step may reach any."""
    given = {key: value for key, value in fit_params.items() if value is not None}
    if name:
        return {key.removeprefix(f"{name}__"): value for key, value in given.items()}
    return {key.split("__")[-1]: value for key, value in given.items()}


def plan_of(part: Any, X: Any, y: Any, fit_params: dict[str, Any], name: str = "") -> DpEvent:
    """What a fit of `part` will cost, by public sizes; `name` is that of its step, if any."""
    sizes: dict[str, Any] = {}
    if is_regressor(part):
        shape = np.shape(y)
        sizes["n_outputs"] = shape[1] if len(shape) == 2 else 1
    given = _given(fit_params, name)
    sizes |= {"n_public": int("X_public" in given), "labelled": "y_public" in given}
    return part.privacy_event(records_of(X, fit_params, name)[0], **sizes)


def fits_unseen(estimator: Any) -> bool:
    """Whether parts may release something where nobody sees it: elsewhere, or as clones."""
    if getattr(estimator, "memory", None) is not None:
        return True
    steps = getattr(estimator, "steps", ())
    return any(type(step) is ColumnTransformer for _, step in steps)


def _flat_steps(steps: Iterable[tuple[Any, ...]], fitted: bool) -> Iterator[tuple[str, Any]]:
    """Steps with the transformers of a ColumnTransformer in its place."""
    for name, step, *_ in steps:
        if type(step) is ColumnTransformer:
            _check_columns(name, step)
            inner = step.transformers_ if fitted else step.transformers
            yield from _flat_steps(inner, fitted)
            if not fitted:
                yield "remainder", step.remainder
        else:
            yield name, step


def _check_columns(name: str, step: ColumnTransformer) -> None:
    """PrivacyError if `step` itself would learn from the rows."""
    columns = [chosen for *_, chosen in step.transformers]
    if any(callable(c) and type(c) is not make_column_selector for c in columns):
        raise PrivacyError(
            f"step {name!r} chooses columns by a function, which may look at the private rows:"
            " give names, positions or a make_column_selector."
        )
    if step.sparse_threshold != 0:
        raise PrivacyError(
            f"step {name!r} may count the zeros of the private rows to choose between a dense and"
            " a sparse matrix: set sparse_threshold=0 for a dense one."
        )


def _is_private(step: Any) -> bool:
    """Whether `step` is an estimator of this package itself that has a cost."""
    ours = type(step).__module__.partition(".")[0] == __name__.partition(".")[0]
    return ours and hasattr(step, "privacy_event")


def _check_methods(estimator: Any) -> None:
    """PrivacyError if a method was replaced on the instance: it may do anything with the rows."""
    replaced = [name for name in vars(estimator) if callable(getattr(type(estimator), name, None))]
    if replaced:
        raise PrivacyError(
            f"{type(estimator).__name__} has another {replaced[0]!r} than its class: what that does"
            " with the rows is not known. Use a new estimator with the same parameters."
        )
