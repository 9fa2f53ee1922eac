"""Errors and warnings, each with what to do about it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable

__all__ = [
    "ClusterError",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyWarning",
    "PublicDataWarning",
]


class PrivacyError(RuntimeError):
    """Raised if a privacy guarantee that was asked for cannot be given.

    The message says which rule stands in the way and what can be done instead.
    """


class PrivacyBudgetError(PrivacyError):
    """A charge would overspend a :class:`~dpsubspace.PrivacyLedger`.

    Unless the message says otherwise, nothing has been recorded and nothing released:
    ask for a smaller epsilon, or open a ledger with a larger budget.
    """


class ClusterError(RuntimeError):
    """The workers of a Dask cluster are lost, and a fit on Dask collections has ended.

    The message says whether what the fit had reserved stays charged.
    """


class PrivacyWarning(UserWarning):
    """Warn that a fit is private but probably not what you want, or that a call is not private.

    Raised from public and released quantities only: sizes, the budget, parameters, and after
    a fit what it has released. A warning thus tells no more of the rows than the model does.
    """


class PublicDataWarning(UserWarning):
    """Warn that public rows may have been sliced or changed on the way, as by cross-validation.

    A meta-estimator may have sliced them together with the private rows. Pass a tuple,
    ``X_public=(rows,)``, which is never sliced.
    """


# Modules that call the code of a joblib worker, where there is no line of the caller's own code.
_OF_WORKERS = ("concurrent", "multiprocessing", "threading")


def warn(
    message: str, category: type[Warning], about: Hashable = None, *, once: bool = False
) -> None:
    """Warn at the line of the caller's own code that led here, once for all folds of a search.

    `about` identifies the subject of the message, without numbers that differ between folds. With
    `once`, it is told of once for all lines of a module, or of a cell of a notebook.

    Python shows a warning once per line and text. scikit-learn resets the filters for each fold,
    upon which Python forgets which warnings it has shown, and folds differ in their number of
    rows. So the warnings of a search are remembered here, beside the registry that Python keeps
    in the caller's module (notebooks clear that for each cell). A worker of joblib, which has no
    line of the caller, shows a warning once, with the place ``<worker>``. Filters are obeyed:
    "always" shows each warning (``pytest.warns`` sees it), and "error" raises.
    """
    frame, searching = sys._getframe(1), False
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("dpsubspace", "sklearn", "joblib", "pickle"):
            break
        searching = searching or name.startswith(("joblib", "sklearn.model_selection"))
        frame = frame.f_back
    file, line, module = (
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__", "<string>"),
    )
    known = frame.f_globals.setdefault("__warningregistry__", {})
    if module.partition(".")[0] in _OF_WORKERS:
        file, line = "<worker>", 1
    if not (searching or once):
        warnings.warn_explicit(message, category, file, line, module, known)
        return
    told, registry = ("dpsubspace", about, category, 0 if once else line), {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn_explicit(message, category, file, line, module, registry)
    if not caught:  # not remembered either: warnings that filters hide stay hidden
        return
    if told in known and (message, category, line) in registry:  # not so if filters say "always"
        return
    known[told] = True
    for each in caught:
        warnings.showwarning(each.message, each.category, each.filename, each.lineno)
