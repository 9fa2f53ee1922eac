"""Words of scikit-learn that nothing here takes, with what takes their place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, dataclass_transform

__all__ = ["estimator", "with_words"]

_C = TypeVar("_C", bound=type)
_F = TypeVar("_F", bound=Callable[..., Any])

_STOPPING = (
    "a rule that stops by private rows would cost privacy. The number of steps, `n_iter`, is set"
    " before the fit, and its default needs no tuning"
)
_STEPS = "every step has a cost, so that all of them are done: set `n_iter`, or leave it at 'auto'"
_NO_PENALTY = "there is no penalty to set: weights are shrunk by as much as the noise asks for"
_LEVEL = "pass the shares as `level`, such as level=[0.25, 0.75]"
_INSTEAD = {
    "sample_weight": (
        "a weight would change how much one row can move the model, which is the same for all rows."
        " Classifiers take public weights of classes as `class_weight`"
    ),
    "early_stopping": _STOPPING,
    "validation_fraction": _STOPPING,
    "n_iter_no_change": _STOPPING,
    "max_iter": _STEPS,
    "tol": _STEPS,
    "alpha": _NO_PENALTY,
    "C": "the penalty is `alpha`, and alpha = 1 / (n_samples * C) is the same",
    "penalty": "the penalty is that of L2 norm, and its strength is `alpha`",
    "n_jobs": "a fit runs in one process, and BLAS uses its own threads",
    "verbose": "scikit-learn's callbacks show the progress of a fit, from version 1.9 on",
    "quantiles": _LEVEL,
    "q": _LEVEL,
    "scoring": "name the metric, or a list of several, as `metric`",
    "cv": "a part of the rows is held out once, and `validation_fraction` says how large it is",
    "y_public": "PublicSubspaceLinearRegression and GEP estimators learn from public targets",
    "axis": "a row is a record, and results have one entry for each column",
}

# The parameter that such a sentence is about, and what is said where there is none.
_ABOUT = {
    **dict.fromkeys(["early_stopping", "n_iter_no_change", "max_iter", "tol"], "n_iter"),
    **dict.fromkeys(["C", "penalty"], "alpha"),
}
_WITHOUT = {
    "n_iter": "the number of steps follows from public sizes and the budget, and cannot be set",
    "alpha": _NO_PENALTY,
}


def with_words(function: _F) -> _F:
    """`function`, which says what takes the place of scikit-learn's words that it does not know.

    Python's own TypeError is extended after the call has failed: no call takes longer.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            message = str(error)
            word = next((w for w in kwargs if message.endswith(f"keyword argument {w!r}")), "")
            # A word that it takes was refused by something else, inside of it.
            if word not in _INSTEAD or word in inspect.signature(function).parameters:
                raise
        text, about = _INSTEAD[word], _ABOUT.get(word)
        if about is not None and about not in inspect.signature(function).parameters:
            text = _WITHOUT[about]
        raise TypeError(f"{message}: {text}.")

    return cast(_F, called)


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: _C) -> _C:
    """Give a class of estimators the constructor that its parameters say, keywords only."""
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__ = with_words(made.__init__)
    if "fit" in vars(made):
        made.fit = with_words(made.fit)
    return made
