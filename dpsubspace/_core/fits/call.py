"""Code around a fit, which may spend more than the model reports, or learn from the same rows."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast, dataclass_transform

from sklearn.pipeline import Pipeline

from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import (
    Address,
    Payer,
    carrying,
    in_worker,
    payer_of,
    warn_of_ledgers_elsewhere,
)
from dpsubspace._core.fits.composites import CHOOSES, FITS, descends, moved_by_others, opened
from dpsubspace._core.ground.checks import did_you_mean, learns_as_ours, told_of_changes
from dpsubspace._core.rows.records import ROW
from dpsubspace._names import PLACES, imported
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, PublicDataWarning, warn

# Parameters of scikit-learn -----------------------------------------------------------------------
# Parameters of scikit-learn that this package does not have, and what to use instead.

_C = TypeVar("_C", bound=type)
_F = TypeVar("_F", bound=Callable[..., Any])

_STOPPING = (
    "a rule that stops by private rows would cost privacy. The number of steps, `n_iter`, is set"
    " before the fit, and its default needs no tuning"
)
_STEPS = "every step has a cost, so that all of them are done: set `n_iter`, or leave it at 'auto'"
_NO_PENALTY = "there is no penalty to set: weights are shrunk by as much as the noise asks for"
_LEVEL = "pass the shares as `level`, such as level=[0.25, 0.75]"
_WEIGHT = (
    "a weight would change how much one row can move the model, which is the same for all rows."
    " Classifiers take public weights of classes as `class_weight`"
)
_INSTEAD = {
    **dict.fromkeys(["sample_weight", "weights"], _WEIGHT),
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
    "class_weight": "only classifiers have weights of classes",
    "axis": "a row is a record, and results have one entry for each column",
}

# The parameter that such advice is about, and the advice where the callable lacks it.
_ABOUT = {
    **dict.fromkeys(["early_stopping", "n_iter_no_change", "max_iter", "tol"], "n_iter"),
    **dict.fromkeys(["C", "penalty"], "alpha"),
}
_WITHOUT = {
    "n_iter": "the number of steps follows from public sizes and the budget, and cannot be set",
    "alpha": _NO_PENALTY,
}


def explain_unknown_parameters(
    function: _F, of_others: Callable[[str, Any], str] | None = None
) -> _F:
    """Make errors of `function` about unknown parameters say what to use instead.

    Python's own TypeError is extended after the call has failed: no call takes longer. `of_others`
    gets the unknown parameter and the first argument, and returns advice, or "".
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            message = str(error).partition(". Did you mean")[0]  # a guess of Python 3.13
            word = next((w for w in kwargs if message.endswith(f"keyword argument {w!r}")), "")
            known = inspect.signature(function).parameters
            # If `function` has this parameter, some call inside of it raised the error.
            if not word or word in known:
                raise
            text = of_others(word, next(iter(args), None)) if of_others else ""
            text = text or _instead_of(word, known)
            if not text:
                raise
        raise TypeError(f"{message}{text}")

    return cast(_F, called)


def _instead_of(word: str, known: Iterable[str]) -> str:
    """Return what to use for a parameter that is not `known`, or "" where nothing is near."""
    if word not in _INSTEAD:
        return f".{said}" if (said := did_you_mean(word, known)) else ""
    about = _ABOUT.get(word)
    return f": {_INSTEAD[word] if about is None or about in known else _WITHOUT[about]}."


# Our private functions by name, from those of their modules that are imported.
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def private_functions() -> dict[str, Callable[..., Any]]:
    """All functions of this package that release something, by name."""
    for name in PLACES:
        imported(name)
    return _FUNCTIONS


def private_function(function: _F) -> _F:
    """Charge the releases of `function` to a ledger, in which `epsilon` must be given.

    They are charged to the ledger of the models among its arguments: models carry the address of a
    ledger that this process may not know otherwise. In a ledger a default epsilon would spend
    budget that nobody requested, and is refused.
    """
    default = inspect.signature(function).parameters["epsilon"].default

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with carrying(_addresses([*args, *kwargs.values()])):
            payer, name = payer_of(), function.__name__
            if args and isinstance(args[0], type):
                name = f"{args[0].__name__}.{name}"
            if payer is None and warn_of_ledgers_elsewhere(name):
                pass
            elif payer is None and in_worker():
                warn(_ALONE.format(name=name), PrivacyWarning, about=("alone", name))
            elif payer is not None and "epsilon" not in kwargs:
                left = "" if payer.left is None else f" {payer.left()}"
                raise PrivacyError(
                    f"`epsilon` of {name} must be given inside of a ledger, whose budget its"
                    f" default of {default:g} would spend unasked.{left} Pass epsilon=..."
                    " Nothing was released or charged."
                )
            return function(*args, **kwargs)

    whole = explain_unknown_parameters(cast(_F, called))
    if "." not in function.__qualname__:  # methods call such a function themselves
        _FUNCTIONS[function.__name__] = whole
    return whole


def _addresses(given: list[Any]) -> Iterator[Address]:
    """Addresses of ledgers that models among some arguments carry."""
    for model in given:
        if hasattr(model, "get_params") and not isinstance(model, type):
            for part in opened(model, fitted=True).walk():
                address = getattr(part.model, "__dict__", {}).get("_address")
                if address is not None:
                    yield address


_ALONE = (
    "{name} runs in a worker process that knows of no ledger. If one is open where the worker was"
    " started, this is not charged to it. Use threads, Parallel(..., prefer='threads'), or open the"
    " ledger by its `path` in the worker, PrivacyLedger.load(path)."
)


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: _C) -> _C:
    """Give a class of estimators a constructor by its parameters, keywords only."""
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__ = explain_unknown_parameters(made.__init__)
    if "fit" in vars(made):
        made.fit = explain_unknown_parameters(made.fit)
    return made


# Code around a fit ------------------------------------------------------------------------------

# Modules of scikit-learn that fit clones, and words for each.
_SEVERAL_FITS = {
    "sklearn.model_selection": "a search or a cross-validation",
    "sklearn.ensemble": "an ensemble",
    "sklearn.calibration": "a calibration",
    "sklearn.multiclass": "a classifier with a model for each class",
    "sklearn.multioutput": "an estimator with a model for each target",
    "sklearn.feature_selection": "a selection of features",
    "sklearn.semi_supervised": "a self-training classifier",
    "sklearn.inspection": "an inspection",
}

# Functions of sklearn.model_selection that fit and score in one call.
_SCORING = (
    "_fit_and_score",
    "_fit_and_score_over_thresholds",
    "_incremental_fit_estimator",
    "_permutation_test_score",
)

_FITS = ("fit", "fit_transform", "fit_predict", "partial_fit")
_PACKAGE = __name__.partition(".")[0]


# Calls around a fit -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Host:
    """One call around a fit, of code that fits estimators of others."""

    module: str  # Module of its code
    function: str  # Name of the function
    owner: Any  # Estimator whose method it is; None for a function
    scored: Any  # Estimator that is scored if the call scores, else None

    @property
    def scores(self) -> bool:
        return self.function in _SCORING and self.module.startswith("sklearn.model_selection")

    @property
    def several(self) -> str | None:
        """Words for fits of several clones here; None for any other call."""
        return next((s for m, s in _SEVERAL_FITS.items() if self.module.startswith(m)), None)


def _hosts(frame: FrameType | None) -> Iterator[_Host]:
    owners = set()
    while frame is not None:
        host = _host(frame)
        if host is not None and (host.owner is None or id(host.owner) not in owners):
            owners.add(id(host.owner))
            yield host
        frame = frame.f_back


def _host(frame: FrameType) -> _Host | None:
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
    several = any(module.startswith(known) for known in _SEVERAL_FITS)
    if not several and name not in _FITS:
        return None
    # Only this name of a caller is read, since others may be rows; workers of an ensemble hold it
    # too.
    owner = frame.f_locals.get("self", frame.f_locals.get("ensemble"))
    if learns_as_ours(owner) or not (hasattr(owner, "fit") and hasattr(owner, "get_params")):
        owner = None
    if not several and owner is None:
        return None
    host = _Host(module, name, owner, None)
    return replace(host, scored=frame.f_locals.get("estimator")) if host.scores else host


def _seen(name: str, hosts: list[_Host]) -> Iterator[tuple[str, str]]:
    """Uncounted uses of rows around a fit of `name`: kinds (``_workflow.seen``) and classes."""
    scored = False
    for host in hosts:
        if host.scores and not scored:
            scored = True
            yield "validation", name
        owner = host.owner
        if owner is None:
            continue
        of = type(owner).__name__
        around = opened(owner)
        if around.kind == CHOOSES:
            if not scored:  # the fit of the chosen estimator
                yield "choice", of
        elif around.kind != FITS or getattr(owner, "bootstrap", False):
            yield "unknown", of
        else:
            yield from (("step", type(x).__name__) for x in around.learners())


def learners_around() -> Iterator[tuple[str, str]]:
    """Known learners without privacy around the call: kinds and names of classes."""
    for kind, of in _seen("", [*_hosts(sys._getframe(1))]):
        if kind in ("step", "unknown"):
            yield kind, of


# Scores of what was fitted ------------------------------------------------------------------------


class _Waiting:
    """Fits in one call of scikit-learn whose scores are about to be computed."""

    def __init__(self) -> None:
        self.names: list[str] = []  # Names of fits that a ledger noted
        self.done: set[str] = set()  # Names of scorers that have released a score


_WAITING: weakref.WeakKeyDictionary[Any, _Waiting] = weakref.WeakKeyDictionary()


def _wait_for_scores(name: str, hosts: list[_Host]) -> None:
    scored = next((host.scored for host in hosts if host.scores), None)
    with suppress(TypeError):  # for None, or an object without weak references
        _WAITING.setdefault(scored, _Waiting()).names.append(name)


def fits_with_released_scores(model: Any) -> list[str]:
    """Names of fits that were noted to have exact scores, but have only released ones.

    To be called after the release of a score of `model`. The released scores are all scores of
    these fits if a scorer of the user is running, as each scorer of the search or cross-validation
    has run.
    """
    with suppress(TypeError):
        if _WAITING.get(model) is None:
            return []
        scorers, running = _scorers_of(model, sys._getframe(1))
        _WAITING[model].done.update(running)
        if scorers and scorers <= _WAITING[model].done:
            return _WAITING.pop(model).names
    return []


def _scorers_of(model: Any, frame: FrameType | None) -> tuple[set[str], set[str]]:
    """Names of all scorers of the call that scores `model`, and of the one that is running."""
    running = set()
    while frame is not None:
        local, module = frame.f_locals, frame.f_globals.get("__name__", "")
        if module == "sklearn.metrics._scorer" and isinstance(local.get("name"), str):
            running = running or {local["name"]}
        host = _host(frame) if module.startswith("sklearn.model_selection") else None
        if host is not None and host.scores:
            scorer = local.get("scorer")
            several = getattr(scorer, "_scorers", None)
            theirs = type(scorer).__module__.startswith("sklearn.")
            if host.scored is not model or (several is None and theirs):
                return set(), set()
            return ({""}, {""}) if several is None else ({*several}, running)
        frame = frame.f_back
    return set(), set()


# Warnings about the calls around a fit ------------------------------------------------------------


def warn_of_context(
    estimator: Any, guarantee: PrivacyGuarantee, payer: Payer | None
) -> list[tuple[str, str]]:
    """Warn where the code around a fit does more than the guarantee of the fit covers.

    The cases are steps that learn, and a fit that is one of several. What a ledger does not count
    in the latter case are scores. They are recognised by the running code, so that this works in
    workers as well. In a ledger a step that learns is refused, but is still listed in its report:
    it has already learned. Returns the notes to give to `payer` once the fit may run.
    """
    name, hosts = type(estimator).__name__, [*_hosts(sys._getframe(1))]
    if payer is None and not hosts:  # no ledger, and no known call around the fit
        return []
    if guarantee.unit != ROW:
        for host in hosts:
            refuse_moving_steps(name, host.owner)
    note, seen = None if payer is None else payer.note, []
    if note is not None:
        seen = [*dict.fromkeys([*estimator._around, *_seen(name, hosts)])]
        _wait_for_scores(name, hosts)
        steps = [of for kind, of in seen if kind == "step"]
        for of in steps:
            note("refused", of)
        if steps:
            text, _ = _learning(name, hosts) or (_ELSEWHERE.format(step=steps[0], name=name), ())
            raise PrivacyError(f"{text} Inside of a ledger nothing was released or charged.")
    if (learning := _learning(name, hosts)) is not None:
        warn(learning[0], PrivacyWarning, about=learning[1])
    several = next((host for host in hosts if host.several), None)
    if several is not None and payer is not None:
        _warn_of_scores(name, several.module)
    elif several is not None:
        _warn_of_several(name, guarantee, several)
    if payer is None and not guarantee.secure:
        _warn_of_seeds(name, hosts)
    return seen


_ELSEWHERE = (
    "{step}, which is fitted together with {name}, learns from the rows without any noise. Use"
    " something public, such as a BoundedScaler, or fit it on public rows and wrap it in"
    " sklearn.frozen.FrozenEstimator."
)


def refuse_moving_steps(name: str, model: Any) -> None:
    """Raise PrivacyError for a step before `name` with which `groups` would not protect persons.

    See :func:`~dpsubspace._core.fits.composites.moved_by_others`.
    """
    found = moved_by_others(model)
    if found is not None:
        raise PrivacyError(
            f"step {found.name!r} ({type(found.model).__name__}) before {name} may round the"
            " features of a row by where the row lies, so that with `groups` one more row of a"
            " person moves the features of others, which no bound covers. Map the rows of each"
            " person by themselves before the fit, and leave this step out of the Pipeline, or"
            " use TorchFeatures, DPPCA, or steps that compute each entry by itself, such as a"
            " StandardScaler that was fitted on public rows."
        )


def _warn_of_several(name: str, guarantee: PrivacyGuarantee, several: _Host) -> None:
    warn(
        f"{several.several} is fitting copies of {name}, and each fit costs"
        f" epsilon={guarantee.epsilon:.3g}: all of them together cost more than the"
        " guarantee of any one of them says, and scores on private rows are not covered"
        " at all. Run it inside of `with PrivacyLedger(...)`, which counts every fit, or"
        " use PrivateSearch, or public rows.",
        PrivacyWarning,
        about=("several fits", name),
    )


def _learning(name: str, hosts: list[_Host]) -> tuple[str, tuple[str, ...]] | None:
    """Message about a step or part that learns beside a fit of `name`, and its subject."""
    pipelines = [host.owner for host in hosts if type(host.owner) is Pipeline]
    steps = [step for pipeline in pipelines for step in opened(pipeline).inside]
    step = next((step for step in steps if [*step.learners()]), None)
    if step is not None:
        own = told_of_changes(step.model)
        text = (
            f"step {step.name!r} ({type(step.model).__name__}) before {name}"
            f" {'may learn' if own else 'learns'} from the rows without any noise.{own}"
            " What it learns is stored in the Pipeline and is not protected: the"
            f" guarantee covers {name} only. Use a BoundedScaler or a DPPCA, or fit the step on"
            " public rows and wrap it in sklearn.frozen.FrozenEstimator."
        )
        return text, ("learning step", name, step.name)
    owners = [host.owner for host in hosts if host.owner is not None]
    known = (around for around in map(opened, owners) if around.kind in (CHOOSES, FITS))
    learners = ((around.name, learner) for around in known for learner in around.learners())
    whole, found = next(learners, ("", None))
    if found is None:
        return None
    text = (
        f"{type(found).__name__}, which is in {whole} together with {name}, learns from the"
        " rows or targets without any privacy, and what it has learned is part of the"
        f" {whole}: the guarantee covers {name} alone. Replace it by something public, such as"
        " a function, or fit it to public rows and wrap it in sklearn.frozen.FrozenEstimator."
    )
    return text, ("learning part", name, whole)


def _warn_of_seeds(name: str, hosts: list[_Host]) -> None:
    """Warn about seeds that the caller has not set, and that are stored in the model."""
    ensemble = next((host.owner for host in hosts if _sets_seeds(host.owner)), None)
    if ensemble is None:
        return
    of = type(ensemble).__name__
    again = (
        " It also draws rows with replacement (bootstrap=True), and a row that is drawn twice"
        " counts twice as much as the guarantee of a copy says."
        if getattr(ensemble, "bootstrap", False)
        else ""
    )
    warn(
        f"{of} sets the `random_state` of its copies of {name}, even if you leave it as None, and"
        " stores it in the model. Anybody who has the model can use this seed to remove the noise."
        f" {_WITHOUT_SEEDS}{again}",
        PrivacyWarning,
        about=("seeds", of, name),
    )


def _sets_seeds(owner: Any) -> bool:
    return descends(owner, "BaseEnsemble") or descends(owner, "RANSACRegressor")


def seeding_ensemble() -> str | None:
    """Refusal of a seed that an ensemble around the call has set; None where there is none."""
    owners = (host.owner for host in _hosts(sys._getframe(1)))
    of = next((type(owner).__name__ for owner in owners if _sets_seeds(owner)), None)
    return of and (
        f"{of} sets the `random_state` of its copies, also where you leave it None, and keeps it"
        f" in the model. With it the noise can be removed, and a ledger cannot count that."
        f" {_WITHOUT_SEEDS}"
    )


_WITHOUT_SEEDS = (
    "Use VotingClassifier([(str(i), model) for i in range(10)], voting='soft'), or VotingRegressor,"
    " which set no seeds: their copies are fitted to all rows, with noise of their own."
)


def _warn_of_scores(name: str, module: str) -> None:
    if module.startswith("sklearn.model_selection"):
        warn(
            f"the ledger counts each fit of {name} in this search or cross-validation, but its"
            " scores, and what it chooses by them, are computed from the private rows without any"
            " privacy, unless `scoring` is a function that gives what private_score released. Use"
            " PrivateSearch to choose and private_score to publish, or public rows.",
            PrivacyWarning,
            about=("scores", name),
        )


def failed_fit(error: tuple[Any, ...]) -> str | None:
    """Name of the class or function of this package that ended with `error`; None for none.

    Refusals and warnings depend on public and released numbers only, and do not count as failures.
    """
    kind, _, traceback = error
    if kind is None or issubclass(kind, (PrivacyError, PrivacyWarning, PublicDataWarning)):
        return None
    while isinstance(traceback, TracebackType):
        frame, traceback = traceback.tb_frame, traceback.tb_next
        if frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            continue
        name, owner = frame.f_code.co_name, frame.f_locals.get("self")
        if name in _FITS and hasattr(owner, "privacy_event"):
            return type(owner).__name__
        if name in _FUNCTIONS:
            return name
    return None
