"""Differences between versions of scikit-learn; no other file depends on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sklearn import get_config

try:
    from sklearn.callback import (
        CallbackSupportMixin,  # pyright: ignore[reportAssignmentType]
        with_callbacks,
    )
except ImportError:  # scikit-learn < 1.9: fits run without callbacks

    class CallbackSupportMixin:  # pyright: ignore[reportRedeclaration]
        """Stand-in that supports no callback."""

    def with_callbacks(method):
        """Wrap `method` in a frame of its own, as scikit-learn does: warnings count frames."""

        @functools.wraps(method)
        def called(*args, **kwargs):
            return method(*args, **kwargs)

        return called


def nameless(method):
    """Hide a base class that users do not know from Python's errors about `method`."""
    method.__qualname__ = method.__name__
    return method


def has_callbacks(estimator: Any) -> bool:
    inside = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    return any(getattr(each, "_skl_callbacks", None) for each in (estimator, *inside))


def gives_frames(transformer: Any) -> bool:
    """Whether `transform` gives data frames, by ``set_output`` or the configuration."""
    own = getattr(transformer, "_sklearn_output_config", {}).get("transform")
    return (own or get_config()["transform_output"]) != "default"


def start_progress(estimator: Any, n_iter: int) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Notify the callbacks of `estimator` that a fit of `n_iter` steps begins.

    Returns a function to call after each step, which returns True to request an early end, and a
    function to call at the end of the fit.

    Privacy: hooks get neither rows nor targets nor a half-trained model. A callback that
    scored them would publish a private number at every step.
    """
    if not getattr(estimator, "_skl_callbacks", None):  # no callbacks
        return (lambda: False), (lambda: None)
    context = estimator._init_callback_context(max_subtasks=n_iter)
    context.call_on_fit_task_begin(estimator=estimator)

    def after_step() -> bool:
        step = context.subcontext(task_name="step")
        step.call_on_fit_task_begin(estimator=estimator)
        return bool(step.call_on_fit_task_end(estimator=estimator))

    def finish() -> None:
        context.call_on_fit_task_end(estimator=estimator)

    return after_step, finish


def run_inside(outer: Any, inner: Any, run: Callable[[Any], Any]) -> None:
    """Call ``run(inner)`` as a part of the fit of `outer`, so that its callbacks follow."""
    if not hasattr(outer, "_init_callback_context"):
        run(inner)
        return
    context = outer._init_callback_context(max_subtasks=1)
    context.call_on_fit_task_begin(estimator=outer)
    part = context.subcontext(task_name="model")
    with part.propagate_callback_context(inner):
        part.call_on_fit_task_begin(estimator=outer)
        with_callbacks(run)(inner)
        part.call_on_fit_task_end(estimator=outer)
    context.call_on_fit_task_end(estimator=outer)
