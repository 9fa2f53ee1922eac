"""Parts of a model: one walk over Pipelines, ColumnTransformers, ensembles and searches.

All code that has to know which steps are private, which learn without privacy and which learn
nothing uses this module: the warnings around a fit, ledgers, planners, reports, searches, scores
and audits. So none of them can miss a case that another one handles.

Classes are trusted by their exact type. A subclass may do anything, whatever its base does: a
subclass of ``Pipeline`` could store the means of the rows that pass through it. A subclass of a
class of this package counts as ours where it overrides nothing that rows of a fit reach.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from inspect import isfunction
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)
from sklearn.utils import get_tags

from dpsubspace._core.ground.checks import learns_as_ours, told_of_changes
from dpsubspace.exceptions import PrivacyError

# Kinds of models, by their class.
PRIVATE = "private"  # of this package, with a guarantee
ROW_BY_ROW = "row by row"  # maps each row independently
FROZEN = "frozen"  # a FrozenEstimator, which fits nothing
FITS = "fits others"  # and uses nothing of the rows but what the others release
CHOOSES = "chooses"  # fits others and chooses by exact scores
LEARNS = "learns"  # anything else: it may store whatever it sees

_ROW_BY_ROW = (Binarizer, Normalizer, PolynomialFeatures)
# Classes of modules that take long to import: where there is such a step, its module is loaded.
_OF_TEXT = {
    "sklearn.feature_extraction": "FeatureHasher",
    "sklearn.feature_extraction.text": "HashingVectorizer",
}
# Parameters that are functions of the user, which may store their arguments.
_FUNCTIONS = ("preprocessor", "tokenizer", "analyzer")

# Steps of scikit-learn that keep the number of columns.
_KEEP_COLUMNS = (Binarizer, Normalizer)

# Steps that learn nothing if all categories are given, unless they count rare ones.
_TOLD = (OneHotEncoder, OrdinalEncoder)

# Classes of scikit-learn that fit others and nothing else, by name since imports take time.
_FIT_OTHERS = {
    "Pipeline",
    "ColumnTransformer",
    "FeatureUnion",
    "VotingClassifier",
    "VotingRegressor",
    "TransformedTargetRegressor",
    "BaggingClassifier",
    "BaggingRegressor",
    "MultiOutputClassifier",
    "MultiOutputRegressor",
    "OneVsOneClassifier",
    "OneVsRestClassifier",
    "OutputCodeClassifier",
    "RFE",
}

# Steps of scikit-learn that compute each entry independently, or from entries of its own row in
# order, so that the result for a row does not depend on its place. A FunctionTransformer is assumed
# to be one: whoever gives the function is responsible for that.
_BY_ENTRY = {
    "Binarizer",
    "ColumnTransformer",
    "CountVectorizer",
    "FeatureHasher",
    "FeatureUnion",
    "FrozenEstimator",
    "FunctionTransformer",
    "HashingVectorizer",
    "KBinsDiscretizer",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MissingIndicator",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "Pipeline",
    "PolynomialFeatures",
    "PowerTransformer",
    "QuantileTransformer",
    "RobustScaler",
    "SelectKBest",
    "SimpleImputer",
    "StandardScaler",
    "TfidfTransformer",
    "TfidfVectorizer",
    "VarianceThreshold",
}

# Where models of any package store their parts: the parameter, and the fitted attributes in its
# place. A ColumnTransformer has rules of its own.
_PLACES = {
    "steps": (),
    "transformer_list": (),
    "estimator": ("best_estimator_", "estimator_", "estimators_", "calibrated_classifiers_"),
    "estimators": ("best_estimator_", "estimators_"),
    "regressor": ("regressor_",),
    "transformer": ("transformer_",),
    "final_estimator": ("final_estimator_",),
}
# For these parameters, None stands for an estimator that is not private, and not for nothing.
_DEFAULTS = ("estimator", "regressor")


@dataclass(frozen=True)
class Node:
    """A model, or a step or part of one."""

    name: str  # Name of the step; name of the class if it is no step
    model: Any  # Estimator, None, or a word such as "passthrough"
    # Whether fitted parts are used in place of the given ones, where there are any.
    fitted: bool = False
    whole: bool = True  # Whether it gets as many columns as the outermost model
    # Models that contain this one, the outermost first.
    above: tuple[Any, ...] = field(default=(), repr=False)

    @cached_property
    def kind(self) -> str:
        if is_private(self.model):
            return PRIVATE
        if works_row_by_row(self.model):
            return FROZEN if type(self.model) is FrozenEstimator else ROW_BY_ROW
        if descends(self.model, "BaseSearchCV"):
            return CHOOSES
        known = _is_theirs(type(self.model)) and type(self.model).__name__ in _FIT_OTHERS
        default = any(getattr(self.model, name, "") is None for name in _DEFAULTS)
        return FITS if known and not default else LEARNS

    @cached_property
    def inside(self) -> tuple[Node, ...]:
        if isinstance(self.model, (str, type)) or any(self.model is each for each in self.above):
            return ()
        above, found, whole = (*self.above, self.model), [], self.whole
        in_turn = type(self.model) is Pipeline
        for name, model in _held(self):
            found.append(Node(name, model, self.fitted, whole and in_turn, above))
            whole = whole and found[-1]._keeps_columns
        return tuple(found)

    @property
    def _keeps_columns(self) -> bool:
        if self.model is None or isinstance(self.model, str):
            return self.model != "drop"
        if type(self.model) is Pipeline:
            return all(each._keeps_columns for each in self.inside)
        ours = is_private(self.model) and getattr(self.model, "_keeps_columns", False)
        return ours or type(self.model) in _KEEP_COLUMNS

    def walk(self, *, frozen: bool = True) -> Iterator[Node]:
        """Yield this and all parts inside; `frozen` includes the parts of a FrozenEstimator."""
        yield self
        for each in self.inside if frozen or self.kind != FROZEN else ():
            yield from each.walk(frozen=frozen)

    def peeks(self) -> Iterator[str]:
        """Ways in which a ColumnTransformer itself may learn from the rows.

        "columns" are chosen by a function, or "zeros" of all rows are counted.
        """
        if type(self.model) is ColumnTransformer:
            chosen = [columns for *_, columns in self.model.transformers]
            if any(callable(c) and type(c) is not make_column_selector for c in chosen):
                yield "columns"
            if self.model.sparse_threshold != 0:
                yield "zeros"

    def learners(self) -> Iterator[Any]:
        """Known learners without privacy in a fit of this model."""
        if self.kind == LEARNS and _needs_rows(self.model):
            yield self.model
        elif self.kind in (FITS, CHOOSES):
            if "columns" in self.peeks():
                yield self.model
            for each in self.inside:
                yield from each.learners()


def opened(model: Any, name: str = "", *, fitted: bool = False) -> Node:
    return Node(name or type(model).__name__, model, fitted)


def predictor(model: Any, *, fitted: bool = True) -> Any:
    """The model that predicts: the last step of Pipelines, and the choice of a search."""
    if isinstance(model, Pipeline):
        return predictor(model.steps[-1][1], fitted=fitted)
    searches = is_private(model) and hasattr(model, "candidates")
    if not (searches or descends(model, "BaseSearchCV") or type(model) is FrozenEstimator):
        return model
    chosen = getattr(model, "best_estimator_", None) if fitted else None
    if chosen is None and searches:
        return predictor(model._first, fitted=fitted)
    return predictor(model.estimator if chosen is None else chosen, fitted=fitted)


# Classes ----------------------------------------------------------------------------------------


def is_private(thing: Any) -> bool:
    return learns_as_ours(thing) and (hasattr(thing, "privacy_event") or hasattr(thing, "privacy_"))


def works_row_by_row(step: Any) -> bool:
    """Whether `step` maps each row independently and uses nothing else of the rows.

    scikit-learn's tag `requires_fit` does not show this: a FunctionTransformer may scale by the
    columns that it receives.
    """
    if isinstance(step, str):
        return step in ("passthrough", "drop")
    if any(callable(getattr(step, name, None)) for name in _FUNCTIONS):
        return False
    of_text = [getattr(sys.modules.get(module), name, None) for module, name in _OF_TEXT.items()]
    if step is None or type(step) in (*_ROW_BY_ROW, FrozenEstimator, *of_text):
        return True
    return getattr(step, "_row_by_row", False) is True and learns_as_ours(step)


def descends(thing: Any, name: str) -> bool:
    """Whether `thing` is of a class of scikit-learn of this name, or of a subclass of it."""
    return any(kind.__name__ == name and _is_theirs(kind) for kind in type(thing).__mro__)


def _is_theirs(kind: type) -> bool:
    return kind.__module__.startswith("sklearn.")


def _needs_rows(step: Any) -> bool:
    if type(step) in _TOLD and not isinstance(step.categories, str):
        return step.min_frequency is not None or step.max_categories is not None
    return bool(get_tags(step).requires_fit)


def moved_by_others(model: Any) -> Node | None:
    """A step of a Pipeline whose rounding for a row may depend on the place of the row.

    Products of matrices do that: the last rows of an odd number are added up in another order.
    Where a person may have any number of rows, one more of them then changes the rows of others,
    and a later private step may count on which side of an edge they are. Steps of this package are
    exact, and so are those that compute each entry independently. None where all steps are exact.
    """
    steps = opened(model).inside if type(model) is Pipeline else ()
    nodes = (node for step in steps for node in step.walk() if not learns_as_ours(step.model))
    return next((node for node in nodes if not _by_entry(node.model)), None)


def _by_entry(step: Any) -> bool:
    if step is None or isinstance(step, str) or learns_as_ours(step):
        return True
    return _is_theirs(type(step)) and type(step).__name__ in _BY_ENTRY


# Parts of a model -------------------------------------------------------------------------------


def _held(node: Node) -> Iterator[tuple[str, Any]]:
    model = node.model
    if type(model) is ColumnTransformer:
        yield from _of_columns(model, node.fitted)
    elif type(model) is FrozenEstimator:  # it also has the attributes of the estimator inside
        yield node.name, model.estimator
    else:
        seen: list[Any] = []
        for given, learned in _PLACES.items():
            places = (*learned, given) if node.fitted else (given,)
            held = next(filter(_some, (getattr(model, place, None) for place in places)), None)
            if not any(held is each for each in seen):
                seen.append(held)
                yield from _named(given, held)


def _of_columns(model: ColumnTransformer, fitted: bool) -> Iterator[tuple[str, Any]]:
    found = {name: step for name, step, _ in getattr(model, "transformers_", ())} if fitted else {}
    given = [(name, step) for name, step, *_ in model.transformers]
    for name, step in [*given, ("remainder", model.remainder)]:
        # The estimator that scikit-learn puts in the place of a word is judged as that word.
        yield name, step if isinstance(step, str) else found.get(name, step)


def _some(held: Any) -> bool:
    return held is not None and not (isinstance(held, (list, tuple, np.ndarray)) and not len(held))


def _named(place: str, held: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(held, np.ndarray):
        held = held.ravel().tolist()
    if isinstance(held, (list, tuple)):
        for each in held:
            match each:
                case (str(name), inner, *_):
                    yield name, inner
                case _:
                    yield place, each
    elif held is not None and not isinstance(held, str):
        yield place, held


# Private parts --------------------------------------------------------------------------------


def private_parts(
    estimator: Any, *, fitted: bool = False, columns: bool = False
) -> list[tuple[str, Any]]:
    """Return names and estimators inside `estimator` that state what they will spend or have spent.

    `columns` allows a ColumnTransformer alone, or as the last step.
    """
    found = private_nodes(estimator, fitted=fitted, columns=columns)
    return [(node.name, node.model) for node in found]


def private_nodes(estimator: Any, *, fitted: bool = False, columns: bool = False) -> list[Node]:
    """Return the private parts as nodes; PrivacyError if another step may learn from the rows.

    A node also has what is known of the place of its part. Parameters as in `private_parts`.
    """
    if _spends(estimator):
        _check_methods(estimator)
        return [opened(estimator)]
    if isinstance(estimator, type):
        raise PrivacyError(
            f"{estimator.__name__} is a class: pass an instance, {estimator.__name__}()."
        )
    if isfunction(estimator):
        raise PrivacyError(
            f"{estimator.__name__} is a function, which cannot say what it will spend before it"
            " runs. In a plan, list in its place a full-batch fit of the same epsilon and delta,"
            " such as DPSGDClassifier(epsilon=0.5): a mean, a quantile, a covariance or a summary"
            " costs as much as that. The epsilons of scores and counts are added by hand. To run"
            " it, use ledger.run(function, ...) or call it in the block of a ledger."
        )
    alone = columns and type(estimator) is ColumnTransformer
    if not (alone or type(estimator) is Pipeline):
        raise PrivacyError(
            f"{type(estimator).__name__} cannot say what its fit will spend. A ledger fits"
            " estimators of this package and Pipelines of them, but no subclasses that may do more"
            f" with the rows.{told_of_changes(estimator)} What fits clones (grid search,"
            " cross-validation, ensembles) is counted inside of `with ledger:`, fit by fit."
        )
    steps = [*_flat(opened(estimator, "columns" if alone else "", fitted=fitted))]
    for step in steps:
        if not (_spends(step.model) or fitted or step.kind in (ROW_BY_ROW, FROZEN)):
            raise PrivacyError(_refusal(step.name, step.model))
        if not fitted or _spends(step.model):  # the others were checked before the fit
            _check_methods(step.model)
    parts = [step for step in steps if _spends(step.model)]
    last = opened(estimator).inside[-1].model
    inside = columns and parts and (alone or type(last) is ColumnTransformer)
    if not (_spends(last) or inside):
        raise PrivacyError("the last step of the Pipeline is not private: nothing to charge.")
    return parts


def _refusal(name: str, step: Any) -> str:
    if type(step) is Pipeline:
        return (
            f"step {name!r} is a Pipeline inside of another step, and a ledger does not look into"
            " it. Make its steps steps of the outer Pipeline, or fit all of it on public rows and"
            " wrap it in sklearn.frozen.FrozenEstimator."
        )
    return (
        f"step {name!r} ({type(step).__name__}) may learn from the private rows without any"
        f" privacy, and the Pipeline would have no guarantee.{told_of_changes(step)} Use a"
        " BoundedScaler to scale columns."
        " Fit any other transformer on public rows, or on a table of known categories or constants,"
        " and wrap it in sklearn.frozen.FrozenEstimator. Wrap a FunctionTransformer in the same"
        " way if you take responsibility that its function treats each row by itself."
    )


def _flat(node: Node) -> Iterator[Node]:
    """Yield the steps of a Pipeline, with the steps of a ColumnTransformer in its place."""
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
    """Return whether `step` is an estimator of this package itself that states its cost."""
    return is_private(step) and hasattr(step, "privacy_event")


def _check_methods(estimator: Any) -> None:
    """Raise PrivacyError if the instance has a replaced method, which may do anything with rows."""
    own = vars(estimator) if hasattr(estimator, "__dict__") else ()
    replaced = [name for name in own if callable(getattr(type(estimator), name, None))]
    if replaced:
        raise PrivacyError(
            f"{type(estimator).__name__} has another {replaced[0]!r} than its class: what that does"
            " with the rows is not known. Use a new estimator with the same parameters."
        )


def told_of_transformed(model: Any) -> str:
    """Return what takes the place of scikit-learn's logarithms of targets, "" for other models."""
    if type(model).__name__ != "TransformedTargetRegressor":
        return ""
    return (
        " In place of a TransformedTargetRegressor, pass target=Range(low, high, log=True) to"
        " tabular_pipeline, which keeps guarantee, report and shapes."
    )
