"""Handling of the cost in every private estimator, and one private fit from start to end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes, Target, warn_about_delta
from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import is_free
from dpsubspace._core.accounting.guarantee import NO_PROTECTION, PrivacyGuarantee, package_version
from dpsubspace._core.accounting.payer import (
    DASK,
    Address,
    about_to_release,
    address_for,
    address_once_used,
    bring,
    observe,
    payer_of,
    remember_run,
    warn_of_ledgers_elsewhere,
)
from dpsubspace._core.fits.call import learners_around, warn_of_context
from dpsubspace._core.fits.outputs import exact_accuracy, r2_of_blocks
from dpsubspace._core.fits.saved import SavedModel
from dpsubspace._core.ground.arrays import check_device, plain_arithmetic
from dpsubspace._core.ground.checks import (
    check_auto,
    check_integer,
    check_real,
    did_you_mean,
    is_collection,
    shown,
)
from dpsubspace._core.ground.compat import nameless, start_progress
from dpsubspace._core.release.mechanisms import check_lattice
from dpsubspace._core.release.noise import NoiseSource, as_noise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.inputs import as_numbers
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.same_rows import refuse_private
from dpsubspace._core.rows.seen_rows import charged_elsewhere, keep_rows
from dpsubspace._core.solvers.descent import STEPS, Descent
from dpsubspace.exceptions import PrivacyWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._core.accounting.payer import Settle


class PrivateEstimator(SavedModel, BaseEstimator):
    """Estimators whose fit has a cost, stored in ``privacy_`` just before it is spent."""

    # scikit-learn passes on the owners of rows without a request.
    __metadata_request__fit: ClassVar = {"groups": True}

    # Parameters that every subclass has.
    epsilon: float | None
    delta: float | str
    neighboring_relation: str
    random_state: int | np.random.RandomState | None

    n_features_in_: int  # set by scikit-learn's validation

    # For walks over models: whether a transformer gives as many columns as it gets, and whether the
    # parameter `estimator` is a model that was fitted before, which `fit` leaves as it is.
    _keeps_columns = False
    _asks_fitted = False
    # Kind of canaries that audits plant among the rows (audit._canaries); None if it is not known.
    _canary: str | None = None

    @nameless
    def privacy_event(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
        *,
        n_public: int = 0,
        labelled: bool = False,
    ) -> DpEvent:
        """Return what a fit would cost, before any data are seen.

        Parameters
        ----------
        n_samples : int, optional
            Number of private rows. Needed where ``delta="auto"`` or a `batch_size` is set.
        n_features : int, optional
            Number of features. With ``n_iter="auto"`` the number of steps depends on it;
            without it the event has 100, which cost the same.
        n_outputs : int, optional
            Number of columns of scores: 1 for two classes, else that of classes or targets.
            Used as `n_features` is, and to count the ranges of targets to release.
        n_public : int, default=0
            Number of public rows. What is released before training depends on whether
            there are any; what all of it costs together does not.
        labelled : bool, default=False
            Whether they have labels.

        Returns
        -------
        DpEvent
            The ``dp_accounting`` event that ``fit`` will store in ``privacy_.event``.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or a size that is needed was not given.
        """
        return self._budget(Sizes(n_samples, n_features, n_outputs, n_public, labelled)).event

    def _plan(self) -> Any:
        """Parameters of a fit, which cannot change any more; ValueError if out of range."""
        raise NotImplementedError

    def _budget(self, sizes: Sizes) -> Budget:
        """Return the budget of a fit of these sizes; ValueError if parameters are out of range."""
        return self._plan().resolved(sizes).budget(sizes)

    # The fit --------------------------------------------------------------------------------

    # Whether a fit has parts that belong to the persons whose rows they are made of.
    _joint: ClassVar[bool] = False

    def _fit_by(
        self,
        plan: Any,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        X_public: Any = None,
        y_public: Any = None,
        noise: NoiseSource | None = None,
    ) -> Self:
        """Fit by a plan, with noise of `random_state` if none is given.

        Each estimator has its own `_plan`, `_check`, `_warn_before_fit`, `_store` and
        `_warn_after_fit`.
        """
        given = FitData(X, y, groups, X_public, y_public)
        checked = self._check(plan, given)
        data = checked.data
        if data.public is not None:
            refuse_private(given, data.X, data.public.sets)
        found, budget = fit_privately(self, checked, noise)
        self._store(found, checked.about)
        self._warn_after_fit(found, budget, checked)
        if NO_PROTECTION < self.privacy_.epsilon < np.inf:
            _warn_of_no_protection(self.privacy_)
        return self

    def _check(self, plan: Any, given: FitData) -> CheckedFit:
        """Return the plan with checked data; ValueError if the data cannot be used."""
        raise NotImplementedError

    def _warn_before_fit(
        self, plan: Any, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        """Warn if public quantities already show that the fit is a bad idea."""

    def _store(self, found: Any, about: Any, /) -> None:
        """Store the released results; what enables predictions is stored last."""
        raise NotImplementedError

    def _warn_after_fit(self, found: Any, budget: Budget, checked: CheckedFit) -> None:
        """Warn if released numbers show that the fit is poor."""

    def _start_spending(self, guarantee: PrivacyGuarantee) -> Settle | None:
        """Record the cost and forget an earlier fit, just before the first release."""
        payer, seen = payer_of(self._address), []
        if guarantee.epsilon > 0:
            # First, since a warning may be an error, and then nothing must be charged.
            seen = warn_of_context(self, guarantee, payer)
            if payer is None:
                warn_of_ledgers_elsewhere(type(self).__name__)
            elif charged_elsewhere(self, payer.ledger):
                warn(_TWO_LEDGERS, PrivacyWarning, about="two ledgers")
        settle = None
        if payer is not None or DASK in sys.modules:
            settle = about_to_release(guarantee, self._address)
        for kind, name in seen:
            observe(kind, name, self._address)
        ledger = payer.ledger if payer is not None and guarantee.epsilon > 0 else ""
        keep_rows(self, released=guarantee.epsilon > 0, ledger=ledger)
        if self._around:
            self._around = ()
        if self._address is not None:
            self._address = address_once_used(self._address)
        self._forget()
        self._state(guarantee)
        return settle

    def _state(self, guarantee: PrivacyGuarantee) -> None:
        """Store `guarantee` as the guarantee of what is or will be fitted here."""
        self.privacy_ = guarantee

    def _rows_as_fitted(self, X: Any) -> Any:
        """Return rows as a fit sees them, whatever container they come in."""
        return as_numbers(X)

    def _forget(self) -> None:
        """Forget an earlier fit, but not the form of the data that were just checked."""
        kept = {"n_features_in_", "feature_names_in_", *self.get_params(deep=False)}
        for name in [*vars(self)]:
            if name.endswith("_") and name not in kept:
                del self.__dict__[name]

    def _warn_of_score(self) -> None:
        """Inform the ledger that pays here that an exact score of this estimator is computed."""
        observe("score", type(self).__name__, self._address)

    # Parameters -----------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator, or of one inside it.

        Parameters
        ----------
        **params : dict
            Parameters by their names, those of an estimator inside as ``<name>__<parameter>``.

        Returns
        -------
        self : object
            The same estimator.

        Raises
        ------
        ValueError
            If there is no parameter of a name; the message has the names that there are.
        """
        with named_parameters(self, params):
            return super().set_params(**params)

    @property
    def _whole(self) -> Any:
        """Object that has the budget of a fit as its attributes, wherever parameters are set."""
        return self

    def _set_whole(self, **budget: Any) -> None:
        """Set parameters of the budget, wherever they stand."""
        self.set_params(**budget)

    def _check_read(self) -> None:
        self._plan()

    # Clones and pickles ---------------------------------------------------------------------

    # Address of the ledger that was open when this was cloned or pickled; public, and no parameter.
    _address: Address | None = None
    # Learners around the clone that no ledger counts: workers do not see what started them.
    _around: tuple[tuple[str, str], ...] = ()

    def __sklearn_clone__(self) -> Any:
        remember_run()
        copied: Any = super().__sklearn_clone__()  # type: ignore[misc]
        if (address := address_for(self._address)) is not None:
            copied._address = address
            copied._around = tuple(dict.fromkeys([*self._around, *learners_around()]))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        if (address := address_for(self._address, sent=True)) is not None:
            state["_address"] = address
        else:  # drop the address of a block that has ended
            state = {name: v for name, v in state.items() if name not in ("_address", "_around")}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._address is not None:
            bring(self._address)

    def __sklearn_tags__(self) -> Any:
        if DASK in sys.modules:
            remember_run()  # meta-estimators ask for tags before they send anything elsewhere
        return super().__sklearn_tags__()

    # Notebooks ------------------------------------------------------------------------------

    @property
    def _repr_html_(self) -> Callable[[], str]:
        """HTML of scikit-learn, with the guarantee of a fitted estimator below."""
        diagram = super()._repr_html_  # AttributeError if text is requested
        return lambda: diagram() + self._guarantee_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._guarantee_html()
        return bundle

    def _guarantee_html(self) -> str:
        return self.privacy_._repr_html_() if hasattr(self, "privacy_") else ""


def _warn_of_no_protection(guarantee: PrivacyGuarantee) -> None:
    """Warn of an epsilon that is so large that it promises next to nothing."""
    warn(
        f"{guarantee.of} has epsilon={guarantee.epsilon:.3g}, which is no meaningful protection:"
        f" above {NO_PROTECTION:g}, a guess that is right once in {math.exp(NO_PROTECTION):,.0f}"
        " times may become as likely as not. Do not publish the result as private. Up to 1 is"
        " strong, and up to 10 reasonable.",
        PrivacyWarning,
        about=("no protection", guarantee.of),
    )


_TWO_LEDGERS = (
    "these rows were fitted before in another PrivacyLedger. Each ledger counts its own fits alone,"
    " and together they cost the sum: use one ledger for all fits to the same rows, made before"
    " them, and kept with PrivacyLedger(..., path='ledger.json') where they run one after the other"
    " in several scripts."
)


class ExactAccuracy(ClassifierMixin):
    """Accuracy of classifiers that predict by another model."""

    classes_: np.ndarray

    @nameless
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.
        y : array-like of shape (n_samples,), or Dask collection
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Accuracy. Of private rows it is private: :func:`private_score` gives one that may be
            published.
        """
        self._warn_of_score()  # type: ignore[attr-defined]
        return exact_accuracy(self, X, y, sample_weight)

    # Predictions for no rows.

    @property
    def _no_labels(self) -> np.ndarray:
        check_is_fitted(self, "classes_")
        return self.classes_[:0]

    @property
    def _no_probabilities(self) -> np.ndarray:
        check_is_fitted(self, "classes_")
        return np.empty((0, len(self.classes_)))


class ExactR2(RegressorMixin):
    """R2 of regressors that predict by another model."""

    @nameless
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of the variance of the targets that is predicted, R2.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or Dask collection
            Rows.
        y : array-like of shape (n_samples,), or Dask collection
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            R2. Of private rows it is private: :func:`private_score` gives one that may be
            published.
        """
        self._warn_of_score()  # type: ignore[attr-defined]
        if is_collection(X):
            return r2_of_blocks(self, X, y, sample_weight)
        return super().score(X, y, sample_weight)


@dataclass(frozen=True)
class PrivateCall:
    """A fit or a function call that is about to release something: each opens the rows here.

    Privacy: the constructor refuses a budget whose noise would be too small for its lattice, and
    warns if delta is not small beside one record. All other refusals and warnings come between that
    and `open`, which asks the ledger that pays, sets ``privacy_``, and only then returns the
    :class:`Releases`. Nothing else in this package makes an object of that class.
    """

    whose: PrivateEstimator | str  # The estimator whose fit it is, or the name of the function
    budget: Budget  # Releases, with their noise and their cost
    noise: NoiseSource  # Source of noise
    records: Records  # Privacy units of the rows
    n_features: int  # Number of columns, public
    # Facts that the guarantee assumes to be public, beside the sizes and the parameters.
    public: tuple[str, ...] = ()
    # Whether the result has parts that belong to the persons whose rows they are made of.
    joint: bool = False

    def __post_init__(self) -> None:
        adds_noise = self.budget.private and bool(self.budget.parts)
        if adds_noise:
            check_lattice(self.records.n, *self.budget.multipliers)
        delta = self.guarantee.delta
        if adds_noise:
            warn_about_delta(delta, self.records.n)

    @cached_property
    def guarantee(self) -> PrivacyGuarantee:
        """Guarantee of what is about to be released."""
        target, event = self.budget.target, self.budget.event
        n_samples, n_features, unit = self.records.n, self.n_features, self.records.unit
        epsilon, delta, free = target.epsilon, target.delta_at(n_samples), is_free(event)
        if free:
            epsilon, delta = 0.0, 0.0
        elif epsilon is None:
            epsilon = Cost.of(event, target.neighboring_relation).epsilon(delta)
        return PrivacyGuarantee(
            event=event,
            epsilon=float(epsilon),
            delta=delta,
            neighboring_relation=target.neighboring_relation,
            unit=unit,
            joint=self.joint,
            of=self.whose if isinstance(self.whose, str) else type(self.whose).__name__,
            n_samples=int(n_samples),
            n_features=int(n_features),
            version=package_version(),
            secure=self.noise.secure or free,  # no noise is as good as any where none is needed
            public=(
                f"number of {'records' if unit == 'row' else unit + 's'} ({n_samples})",
                f"number and names of features ({n_features})",
                *self.public,
                "all parameters but random_state",
                "that the data pass the checks",
            ),
        )

    def open(self) -> Releases:
        """Pay for the budget, and return its releases: from here on, failing costs as much."""
        if isinstance(self.whose, str):
            settle = about_to_release(self.guarantee)
        else:
            settle = self.whose._start_spending(self.guarantee)
        return Releases(self.budget, self.noise, self.records, partial(self._end_with, settle))

    def _end_with(self, settle: Settle | None, budget: Budget) -> None:
        """Reduce the cost to that of `budget`, some of the parts: nothing else was released."""
        said = replace(self, budget=budget).guarantee
        if settle is not None:
            settle(said.event)
        if not isinstance(self.whose, str):
            self.whose._state(said)


@contextmanager
def named_parameters(estimator: Any, params: Mapping[str, Any]) -> Iterator[None]:
    """Within this context, the error for an unknown parameter lists the valid parameters."""
    try:
        yield
    except ValueError:
        if said := _unknown_name(estimator, params):
            raise ValueError(said) from None
        raise


def _unknown_name(estimator: Any, params: Mapping[str, Any]) -> str:
    """Error message for the first of `params` that an estimator does not have, or "".

    The message never has the text of the estimator: that of a schema has a line for each column.
    """
    valid = sorted(estimator.get_params())
    name = next((name for name in params if name.partition("__")[0] not in valid), None)
    if name is None:
        return ""
    near = [each for each in valid if each.split("__")[-1] == name]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else did_you_mean(name, valid)
    return (
        f"Invalid parameter {name!r} for estimator {type(estimator).__name__}.{hint} Valid"
        f" parameters are: {valid}."
    )


def checked_target(estimator: Any, *, pure: bool = False) -> Target:
    """Return the privacy that the parameters of `estimator` request; ValueError if invalid.

    With `pure`, delta may be 0.
    """
    epsilon, multiplier = estimator.epsilon, getattr(estimator, "noise_multiplier", None)
    expert = hasattr(estimator, "noise_multiplier")
    if expert and (epsilon is None) == (multiplier is None):
        raise ValueError(
            "set either `epsilon` or `noise_multiplier` and leave the other None, got epsilon="
            f"{shown(epsilon)} and noise_multiplier={shown(multiplier)}."
        )
    if multiplier is not None:
        check_real("noise_multiplier", multiplier, low=1e-6, high=1e9)
    delta = estimator.delta
    if isinstance(delta, str) and delta == "auto":
        # A clone in another process has no other way to know the ledger in which it was made.
        payer = payer_of(getattr(estimator, "_address", None))
        delta = delta if payer is None else payer.delta or delta
    target = Target(epsilon, delta, estimator.neighboring_relation, multiplier)
    return target.checked(pure=pure, multipliers=expert)


# Fitting ----------------------------------------------------------------------------------------
# One private fit, from checked parameters to its result.


class Plan:
    """Parameters of a fit, which cannot change any more, and the steps of the fit."""

    def sizes(self, data: Data) -> Sizes:
        """Public sizes of a fit."""
        return data.sizes(data.n_targets)

    def resolved(self, sizes: Sizes) -> Self:
        """Return this plan without any "auto" that public sizes decide."""
        return self

    def with_public_view(self, data: Data) -> Self:
        """Return this plan with rows seen as public rows suggest."""
        return self

    def budget(self, sizes: Sizes) -> Budget:
        """Return the releases, with their noise and their cost."""
        raise NotImplementedError

    def prepared(self, data: Data, where: Any, budget: Budget) -> Any:
        """Return data for `run`, where they are used. Raise errors that training would raise."""
        return data.on_device(where)

    def run(self, ready: Any, releases: Releases, rng: Any, after_step: Callable) -> Any:
        """Fit; `rng` is public randomness, and `after_step` is called after each step."""
        raise NotImplementedError


class FitData(NamedTuple):
    """Data of a fit as they come, before anything is checked."""

    X: Any
    y: Any = None
    groups: Any = None
    X_public: Any = None
    y_public: Any = None


class CheckedFit(NamedTuple):
    """Plan of a fit and its data, with the public facts that it relies on."""

    plan: Any  # Plan of the fit
    data: Data  # Data to fit
    public: tuple[str, ...]  # Facts that the guarantee assumes to be public
    about: Any = None  # Values that `_store` takes beside the result, of which it keeps public ones


def fit_privately(
    estimator: Any,
    checked: CheckedFit,
    noise: NoiseSource | None = None,
) -> tuple[Any, Budget]:
    """Run a plan on checked data, after setting ``privacy_``; return the result and its budget.

    Noise comes from the estimator's `random_state`, if no `noise` is given.

    Privacy: the plan was read from the parameters before anything else runs, and all that is
    released is in the budget that is charged. Whatever may be refused is refused before
    it is paid for; from there on, failing costs what succeeding costs.
    """
    inner = getattr(estimator, "_inner", estimator)  # for a pipeline, the model
    where = check_device(getattr(inner, "device", "cpu"))
    noise = as_noise(estimator.random_state) if noise is None else noise
    plan, data, public, _ = checked
    sizes = plan.sizes(data)
    plan = plan.resolved(sizes)
    budget, n_features = plan.budget(sizes), data.X.shape[1]
    joint = estimator._joint
    call = PrivateCall(estimator, budget, noise, data.records, n_features, public, joint)
    with plain_arithmetic(where):
        ready = plan.prepared(data, where, budget)
        if budget.private:
            estimator._warn_before_fit(plan, call.guarantee, budget, sizes)
        steps = budget.parts.get(STEPS)
        after_step, finish = start_progress(inner, 1 if steps is None else steps.count)
        result = plan.run(ready, call.open(), noise.public(), after_step)
    finish()
    return result, budget


# Functions --------------------------------------------------------------------------------------
# One call of a private function, from checked parameters to its result.


class FunctionPlan:
    """Releases of a private function, by its checked parameters; a frozen dataclass."""

    name: ClassVar[str]  # Name of the function

    def assumed(self) -> tuple[str, ...]:
        """Facts that the guarantee assumes to be public, beside the sizes and the parameters."""
        return ()

    def budget(self, n_samples: int) -> Budget:
        """Return the releases from this many records, with their noise and their cost."""
        raise NotImplementedError

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        """Warn if public quantities already show that the result will be poor."""

    def prepared(self, rows: Any) -> Any:
        """Return the input of `run`. Raise the errors that releasing would raise."""
        return rows

    def run(self, ready: Any, records: Records, releases: Releases) -> Any:
        """Release the parts of the budget, and return a result made from the released values."""
        raise NotImplementedError


def run_privately(
    plan: FunctionPlan, rows: Any, records: Records, n_features: int, noise: NoiseSource
) -> tuple[Any, PrivacyGuarantee]:
    """Run a private function on checked rows; return the result and its guarantee.

    Privacy: all that is released is in the budget that is charged. Whatever may be refused is
    refused before it is paid for; from there on, failing costs what succeeding costs.
    """
    budget = plan.budget(records.n)
    call = PrivateCall(plan.name, budget, noise, records, n_features, plan.assumed())
    plan.warn_before(budget, call.guarantee, records)
    with plain_arithmetic(None):
        ready = plan.prepared(rows)
        found = plan.run(ready, records, call.open())
    if NO_PROTECTION < call.guarantee.epsilon < np.inf:
        _warn_of_no_protection(call.guarantee)
    return found, call.guarantee


def checked_descent(estimator: Any) -> Descent:
    """Return the training parameters of `estimator`; ValueError if one is out of range."""
    check_real("alpha", estimator.alpha, low=0, high=1e50, include_low=True)
    if estimator.n_iter != "auto":
        check_integer("n_iter", estimator.n_iter, low=1, high=10**9)
    check_auto("learning_rate", estimator.learning_rate, low=0, high=1e50)
    check_auto("clip_norm", estimator.clip_norm, low=1e-10, high=1e50)
    if estimator.batch_size is not None:
        check_integer("batch_size", estimator.batch_size, low=1)
    batch_size = estimator.batch_size
    return Descent(
        alpha=float(estimator.alpha),
        n_iter=_plain(estimator.n_iter, int),
        learning_rate=_plain(estimator.learning_rate, float),
        clip_norm=_plain(estimator.clip_norm, float),
        batch_size=None if batch_size is None else int(batch_size),
    )


def _plain(value: Any, number: Callable[[Any], float]) -> Any:
    """Return a number of a plain type, which cannot change, or "auto"."""
    return "auto" if isinstance(value, str) else number(value)
