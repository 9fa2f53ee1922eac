"""What a ledger knows of Pipelines: which steps spend, which learn nothing, and what is planned.

Everything is trusted by its exact type. A subclass may do anything, whatever its base does: one
of ``Pipeline`` could store the means of the rows that pass through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from dpsubspace._estimators.composites import FROZEN, ROW_BY_ROW, Node, is_private, opened
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
    found = private_nodes(estimator, fitted=fitted, columns=columns)
    return [(node.name, node.model) for node in found]


def private_nodes(estimator: Any, *, fitted: bool = False, columns: bool = False) -> list[Node]:
    """The same with what is known of where they are; PrivacyError where something may learn."""
    if _spends(estimator):
        _check_methods(estimator)
        return [opened(estimator)]
    if isinstance(estimator, type):
        raise PrivacyError(
            f"{estimator.__name__} is a class: pass an instance, {estimator.__name__}()."
        )
    alone = columns and type(estimator) is ColumnTransformer
    if not (alone or type(estimator) is Pipeline):
        raise PrivacyError(
            f"{type(estimator).__name__} cannot say what its fit will spend. A ledger fits"
            " estimators of this package and Pipelines of them, but no subclasses, since these"
            " may do more with the rows. What fits clones (grid search, cross-validation,"
            " ensembles) is counted inside of `with ledger:`, fit by fit."
        )
    steps = [*_flat(opened(estimator, "columns" if alone else "", fitted=fitted))]
    for step in steps:
        if not (_spends(step.model) or fitted or step.kind in (ROW_BY_ROW, FROZEN)):
            raise PrivacyError(_refusal(step.name, step.model))
        if not fitted or _spends(step.model):  # the others were checked before
            _check_methods(step.model)
    parts = [step for step in steps if _spends(step.model)]
    last = opened(estimator).inside[-1].model
    inside = columns and parts and (alone or type(last) is ColumnTransformer)
    if not (_spends(last) or inside):
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
    steps = opened(estimator).inside if type(estimator) is Pipeline else ()
    inside = any(type(step.model) is ColumnTransformer for step in steps)
    return inside or getattr(estimator, "memory", None) is not None


def _flat(node: Node) -> Iterator[Node]:
    """Steps of a Pipeline, with those of a ColumnTransformer in its place."""
    _check_methods(node.model)
    for how in node.peeks():
        raise PrivacyError(f"step {node.name!r} {_PEEKS[how]}")
    for step in node.inside:
        yield from _flat(step) if type(step.model) is ColumnTransformer else [step]


_PEEKS = {
    "columns": (
        "chooses columns by a function, which may look at the private rows: give names, positions"
        " or a make_column_selector."
    ),
    "zeros": (
        "may count the zeros of the private rows to choose between a dense and a sparse matrix: set"
        " sparse_threshold=0 for a dense one."
    ),
}


def _spends(step: Any) -> bool:
    """Whether `step` is an estimator of this package itself that says what its fit costs."""
    return is_private(step) and hasattr(step, "privacy_event")


def _check_methods(estimator: Any) -> None:
    """PrivacyError if a method was replaced on the instance: it may do anything with the rows."""
    own = vars(estimator) if hasattr(estimator, "__dict__") else ()
    replaced = [name for name in own if callable(getattr(type(estimator), name, None))]
    if replaced:
        raise PrivacyError(
            f"{type(estimator).__name__} has another {replaced[0]!r} than its class: what that does"
            " with the rows is not known. Use a new estimator with the same parameters."
        )
