"""From a raw table to a private model in one call, with one budget for all of it.

Where to check the privacy claim: ``TablePlan.run`` in ``_core/plans/table.py`` is the whole fit.
There is one budget: ranges that are estimated privately are its first parts, and all that the model
releases its others. A record's part in ranges is bounded in ``_core/statistics/quantiles.py`` or
``_core/statistics/cell_maps.py``, and its part in the model where the model says. Noise is added in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.call import explain_unknown_parameters
from dpsubspace._core.fits.copies import warn_of_copy
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.fits.outputs import r2_of_blocks
from dpsubspace._core.ground.checks import (
    did_you_mean,
    is_collection,
    is_dataset,
    is_elsewhere,
    shown,
)
from dpsubspace._core.ground.compat import gives_frames, nameless, run_inside, with_callbacks
from dpsubspace._core.ground.forms import Flag, Maybe, NumberArray, Pair, Sometimes
from dpsubspace._core.plans.regression import RegressionFit
from dpsubspace._core.plans.table import (
    RANGES_SHARE,
    FittedTable,
    PipelineNoise,
    RawRows,
    TablePlan,
    read_rows,
)
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_of_blocks
from dpsubspace._core.rows.public import check_order_of_sets
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.rows.same_rows import by_name, refuse_private
from dpsubspace._core.rows.seen_rows import note_rows
from dpsubspace._core.tables.encoding import LEARNED
from dpsubspace._core.tables.kinds import PrivateRange, Range
from dpsubspace._core.tables.schema import (
    Schema,
    Table,
    as_schema,
    is_reordered,
    no_rows,
    read_table,
)
from dpsubspace._names import public
from dpsubspace.linear_model._dpsgd import DPSGDFClassifier
from dpsubspace.linear_model._regression import DPLinearRegression
from dpsubspace.tables._column_importances import importances_of
from dpsubspace.tables._copies_in_tables import copying_column_of_table
from dpsubspace.tables._table_encoder import TableEncoder, warn_of_dropped, warn_of_target

if TYPE_CHECKING:
    from dpsubspace._core.accounting.payer import Address


# Public entries beyond this are clipped to it when they show what a range may be.
_FAR = 1e150

# Parameters of a budget that belong to both steps together.
_OF_BUDGET = ("epsilon", "delta", "neighboring_relation")

# Models that `tabular_pipeline` uses if only the task is given.
_MODELS = {"classification": DPSGDFClassifier, "regression": DPLinearRegression}


def _of_the_model(word: str, estimator: Any) -> str:
    """Return where to set a parameter that :func:`tabular_pipeline` does not have, or ""."""
    if word in ("target_bounds", "target_range", "y_range", "bounds"):
        return ": the range of the targets is `target`, as in target=Range(0, 60)."
    model = _MODELS.get(estimator, estimator) if isinstance(estimator, str) else estimator
    kind = model if isinstance(model, type) else type(model)
    if word not in inspect.signature(kind).parameters:
        return ""
    return (
        f": it is a parameter of the model. Write tabular_pipeline({kind.__name__}({word}=...),"
        " schema)."
    )


@partial(explain_unknown_parameters, of_others=_of_the_model)
def tabular_pipeline(
    estimator: Any,
    schema: Any,
    epsilon: float | None = None,
    target: Any = None,
    interactions: bool | str = "auto",
) -> TabularPipeline:
    """Build a pipeline from a raw table to a private model.

    The pipeline takes data frames of pandas, Polars, Arrow or Dask, encodes their columns by what
    is public about them, and fits the model. All that it releases shares one budget, and it carries
    one statement, ``privacy_``.

    Parameters
    ----------
    estimator : estimator, "classification" or "regression"
        A linear classifier or regressor of this package, not fitted. Its `delta`,
        `neighboring_relation` and `random_state` are those of the pipeline. "classification" is
        ``DPSGDFClassifier()``, and "regression" is ``DPLinearRegression()``.
    schema : Schema or dict
        What is public about each column, by its name: a :class:`Range`, a :class:`PrivateRange`,
        a :class:`Date`, a :class:`Categories` or a :class:`Text`. A pair of numbers is short for a
        range, and a list for categories. Columns that it does not name are dropped, and ``fit``
        says so.
    epsilon : float or None, default=None
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added. None takes that of
        `estimator`, which is 1.0 where nothing else was set.
    target : Range, PrivateRange, tuple (low, high) or None, default=None
        What is public about the target of a regression: its range, which predictions are cut to as
        well. ``Range(low, high, log=True)`` fits the logarithm of a positive target, for costs,
        incomes or lengths of stay: predictions are in the units of the target, and estimate its
        median rather than its mean. ``PrivateRange()`` estimates the range with a part of the
        budget, which costs accuracy. None is for classifiers, and for regressors that have
        `target_bounds` or labelled public rows.
    interactions : bool, "auto" or "learned", default="auto"
        Whether pairs of numbers get features of their own, so that the model can learn how two
        columns act together. "auto" gives them to tables of 2 to 16 numbers (20 in front of
        :class:`DPLinearRegression`) where the number of rows and the budget carry them. "learned"
        does the same, and lets :class:`DPSGDClassifier`, :class:`DPSGDFClassifier` and
        :class:`DPSGDRegressor` add features of several numbers while they train, chosen by what
        they have learned so far: see Notes of :class:`TableEncoder`.

    Returns
    -------
    TabularPipeline
        A pipeline of two steps, a :class:`TableEncoder` and a clone of `estimator`, which are
        named as by :func:`sklearn.pipeline.make_pipeline`.

    Raises
    ------
    TypeError
        If `estimator` is not one of this package, or is a class.
    ValueError
        If the schema or another parameter is out of its range, or if `epsilon` is given here and
        another one in `estimator`.

    See Also
    --------
    TabularPipeline : What is returned.
    TableEncoder : How columns are encoded.
    Schema : What is public about a table, to be read from a file or drafted from public rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import Categories, Range, tabular_pipeline
    >>> rng = np.random.default_rng(0)
    >>> ages, wards = rng.uniform(18, 95, 5000), rng.choice(["A", "B"], 5000)
    >>> frame = pd.DataFrame({"age": ages, "ward": wards})
    >>> readmitted = (abs(ages - 50) > 20) ^ (wards == "A")
    >>> schema = {"age": Range(18, 100), "ward": Categories(["A", "B", "C"])}
    >>> model = tabular_pipeline("classification", schema, epsilon=1.0)
    >>> model.fit(frame, readmitted).privacy_.epsilon
    1.0
    """
    model = _model_of(estimator)
    encoder = TableEncoder(schema, interactions=interactions)
    made = TabularPipeline(make_pipeline(encoder, model).steps, epsilon=epsilon, target=target)
    made._plan()
    return made


def _model_of(estimator: Any) -> Any:
    if isinstance(estimator, str) and estimator in _MODELS:
        return _MODELS[estimator]()
    if isinstance(estimator, type) or not isinstance(estimator, PrivateEstimator):
        raise TypeError(
            "`estimator` must be 'classification', 'regression' or a private estimator of this"
            " package, such as DPSGDFClassifier() or DPLinearRegression(), got"
            f" {_name(estimator)}.{_other_estimator(estimator)}"
        )
    return clone(estimator)


# What estimators are called elsewhere.
_MEANT = dict.fromkeys(["classifier", "class", "binary", "logistic"], "classification")
_MEANT |= dict.fromkeys(["regressor", "linear", "number"], "regression")


def _other_estimator(estimator: Any) -> str:
    """Return what to pass in place of a wrong estimator, or ""."""
    if isinstance(estimator, Mapping):
        return " A schema is the second argument: tabular_pipeline('classification', schema)."
    return did_you_mean(estimator, _MODELS, _MEANT)


def _name(estimator: Any) -> str:
    if isinstance(estimator, type):
        return f"the class {estimator.__name__}: pass an instance, {estimator.__name__}()"
    return shown(estimator) if isinstance(estimator, str) else type(estimator).__name__


@public
class TabularPipeline(PrivateEstimator, Pipeline):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A scikit-learn Pipeline from a raw table to a private model, with one budget.

    Its first step is a :class:`TableEncoder` and its last one a private estimator. Where ranges
    are estimated privately, a fifth of the budget pays for them, and the model is fitted with the
    rest. Use :func:`tabular_pipeline` to make one.

    Parameters
    ----------
    steps : list of tuple (name, estimator)
        A :class:`TableEncoder` and a linear classifier or regressor of this package.
    epsilon : float or None, default=None
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added. None takes that of
        the model, which is 1.0 where nothing else was set.
    delta : float, "auto" or None, default=None
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta. None takes that of the model.
    neighboring_relation : {"zero_out", "replace_one"} or None, default=None
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both. None
        takes that of the model.
    target : Range, PrivateRange, tuple (low, high) or None, default=None
        What is public about the target of a regression: its range, which predictions are cut to as
        well. ``Range(low, high, log=True)`` fits the logarithm of a positive target, for costs,
        incomes or lengths of stay: predictions are in the units of the target, and estimate its
        median rather than its mean. ``PrivateRange()`` estimates the range with a part of the
        budget, which costs accuracy. None is for classifiers, and for regressors that have
        `target_bounds` or labelled public rows.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    named_steps : Bunch
        The steps by name. What they have learned is public or released.
    target_range_ : tuple of two ndarrays of shape (n_targets,) or None
        Range that predictions are cut to: declared, estimated, or the part of it that noisy numbers
        say nearly all targets lie in. None for classifiers.
    privacy_ : PrivacyGuarantee
        What the whole fit cost, and what its guarantee assumes. A fit that fails keeps what it has
        spent.
    n_features_in_ : int
        Number of columns of the schema.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names.
    feature_importances_ : ndarray of shape (n_features_in_,)
        Share of the variance of the score that goes with each column of the schema, alone and
        together with others (its total Sobol index), without what noise has of it. They are
        computed from the released weights, which costs no privacy, and add up to 1 where no columns
        act together, and to more where some do. Columns of text have NaN, and those of the others
        are shares among these. See :class:`ImportanceDisplay` for their bands, and for what they do
        not tell.

    See Also
    --------
    tabular_pipeline : Makes one in a line.
    TableEncoder : How columns are encoded.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released, one after the other: ranges that are estimated privately, of columns and of the
    target, as by :class:`TableEncoder`, with a fifth of the budget (of mu^2); for regressors that
    take a range of targets as it is, a noisy mean and a noisy mean deviation of the targets on it,
    with a twentieth; and what the model releases. A row contributes each target z in [-1, 1], so
    that c sums of these move by at most sqrt(c) in L2 norm (``"zero_out"``) or 2 sqrt(c)
    (``"replace_one"``), and the sums of ``|z - m|``, with m the noisy mean, by at most the norm of
    ``1 + |m|``. Event: the composition of Gaussian mechanisms, which never costs more than
    `epsilon`. The unit is one row. Assumed public: the schema, the range of the target where it is
    declared, and what the model takes to be public.

    A classifier that predicts probabilities says after the fit if one column alone decides nearly
    every outcome, by what was released: such a column often copies the outcome, or was filled in
    after it. A copy with a few errors in a hundred, and any in few rows, may not be told, and a
    regression does not tell of it.

    The `alpha` of a classifier is the least penalty on weights: it penalises those of a column
    more where released weights show that rows would be fitted by chance. 0 turns this off.

    There is one budget. `epsilon`, `delta` and `neighboring_relation` may be set in the pipeline
    or in its model, and hold for both steps, whose parameters ``fit`` does not change. Where one
    is set in the pipeline, a step must have the same value, or the default of its class, which
    counts as not set; anything else is a ValueError. The same holds for the encoder and a value
    of the model. A step that has a `random_state` uses its own, and the encoder that of the model
    where neither it nor the pipeline has one. ``pipeline[:-1]`` is a scikit-learn Pipeline that
    encodes, and ``pipeline[-1]`` the fitted model. Both have the statement of the whole fit. A step
    that is fitted by itself afterwards has one of its own, which that of the pipeline leaves out.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import Range, tabular_pipeline
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"age": rng.uniform(18, 95, 5000)})
    >>> days = 5 + frame["age"].to_numpy() / 10 + rng.normal(size=5000)
    >>> model = tabular_pipeline("regression", {"age": (18, 100)}, target=Range(0, 30))
    >>> model.fit(frame, days).score(frame, days) > 0.6
    True
    """

    _canary = "table"

    # Defaults of scikit-learn's Pipeline. Other values would be wrong here: a cache of transformers
    # would reveal what another fit has estimated.
    transform_input = None
    memory = None
    verbose = False

    # None where the model has the value, unlike in other estimators.
    delta: Any
    neighboring_relation: Any

    _saved: ClassVar = {
        "target_range_": Maybe(Pair(NumberArray(("targets",)))),
        "_of_logarithms": Sometimes(Flag()),
    }

    def __init__(
        self,
        steps: list[tuple[str, Any]],
        *,
        epsilon: float | None = None,
        delta: float | str | None = None,
        neighboring_relation: str | None = None,
        target: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.steps = steps
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.target = target
        self.random_state = random_state

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the pipeline, or of a step of it.

        Parameters
        ----------
        **params : dict
            Parameters by their names, those of an estimator inside as ``<name>__<parameter>``.

        Returns
        -------
        self : object
            The same pipeline.

        Raises
        ------
        ValueError
            If there is no parameter of a name, or a step gets a budget that would not be used,
            since there is another in the pipeline.
        """
        self._check_nested(params)
        return super().set_params(**params)

    def __getitem__(self, ind: Any) -> Any:
        if isinstance(ind, slice):
            return Pipeline(self.steps[ind])
        return super().__getitem__(ind)

    # Public surface -------------------------------------------------------------------------

    @explain_unknown_parameters
    @with_callbacks
    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit encoder and model to a private table.

        Parameters
        ----------
        X : data frame of n_samples rows
            Private rows, of pandas, Polars, Arrow or Dask. Those of a dataset of PyArrow are read
            from its files in each step.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private labels or targets; of rows of Dask, a column or columns of the same data frame,
            of which `groups` is then a column as well, and of a dataset of PyArrow, the name of a
            column or a list of names.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : data frame or tuple of such, optional
            Public rows with the columns of `X`, for estimators that use them. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or tuple of such, optional
            Their labels or targets, in the form of `X_public`.

        Returns
        -------
        self : object
            The fitted pipeline.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        PrivacyError
            If noise hides a range that is to be estimated privately; the model was not paid for
            then.
        """
        plan = self._plan()
        given = {"groups": groups, "X_public": X_public, "y_public": y_public}
        noise = self._noise(plan)
        with _kept_if_refused(self, self._inner):
            run_inside(self, self._inner, lambda _: self._fit_by(plan, X, y, noise=noise, **given))
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        check_is_fitted(self)
        encoder, model = self._checked_steps()
        return importances_of(encoder.encoding_, model).values

    @nameless
    def predict(  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        self, X: Any
    ) -> np.ndarray:
        """Predict labels, or targets within the range of the targets.

        Parameters
        ----------
        X : data frame of n_rows rows
            Rows, of pandas, Polars, Arrow or Dask. Those of Dask give a lazy Dask array.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_targets)
            Predictions.
        """
        found = super().predict(X)
        limits = getattr(self, "target_range_", None)
        if limits is None:
            return found
        low, high = limits
        if found.ndim == 1:
            low, high = low.ravel()[0], high.ravel()[0]
        if getattr(self, "_of_logarithms", False):
            found = np.exp(np.clip(found, np.log(low), np.log(high)))
        return np.clip(found, low, high)

    @nameless
    def score(  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> float:
        """Return the accuracy of a classifier, or the R2 of a regressor; not private.

        Parameters
        ----------
        X : data frame of n_rows rows
            Rows. A score on private rows is not private: use :func:`private_score`.
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            True labels or targets.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows.

        Returns
        -------
        float
            Accuracy or R2.
        """
        if is_regressor(self):
            self._warn_of_score()
            if is_collection(X):
                return r2_of_blocks(self, X, y, sample_weight)
            return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
        return super().score(X, y, sample_weight=sample_weight)

    def _check_read(self) -> None:
        self._plan()
        encoder, model = self._checked_steps()
        if [*encoder.schema_.items()] != [*encoder.encoding_.schema.items()]:
            raise ValueError("its schemas differ.")
        if encoder.encoding_.n_features != model.n_features_in_:
            raise ValueError(
                f"its encoder gives {encoder.encoding_.n_features} features, and its model takes"
                f" {model.n_features_in_}."
            )

    # The budget -----------------------------------------------------------------------------

    @property
    def _whole(self) -> Any:
        encoder, model = self._checked_steps()
        budget = {name: self._agreed_value(name) for name in _OF_BUDGET}
        seeds = (self.random_state, model.random_state, encoder.random_state)
        seed = next((seed for seed in seeds if seed is not None), None)
        return _PipelineBudget(**budget, random_state=seed, _address=self._address)

    def _agreed_value(self, name: str) -> Any:
        own, model = getattr(self, name), self.steps[-1][1]
        whole = getattr(model, name) if own is None else own
        for step, part in self.steps:
            found, default = getattr(part, name), _default(part, name)
            if not (_same(found, whole) or _same(found, default)):
                given = own is not None
                raise ValueError(_two_values(name, step, found, whole, default, given=given))
        return whole

    def _set_whole(self, **budget: Any) -> None:
        """Set parameters of the budget in the pipeline, and wherever else they were set."""
        for name, value in budget.items():
            for _, part in self.steps:
                if not _same(getattr(part, name), _default(part, name)):
                    setattr(part, name, value)
            setattr(self, name, value)

    def _check_nested(self, params: Mapping[str, Any]) -> None:
        """Raise ValueError if a budget of a step is being set that would not be used.

        This includes the default of the step, which a grid may try like any other value; but not a
        value that is set together with that of the pipeline, as by ``set_params(**get_params())``.
        """
        steps = dict(self.steps)
        for key, value in params.items():
            step, _, name = key.partition("__")
            if name not in _OF_BUDGET or step not in steps or {name, "steps", step} & {*params}:
                continue
            own, last = getattr(self, name), self.steps[-1][0]
            if own is None and step == last:
                continue
            of_model = params.get(f"{last}__{name}", getattr(steps[last], name, None))
            whole = of_model if own is None else own
            if not _same(value, whole):
                default = _default(steps[step], name)
                given = own is not None
                raise ValueError(_two_values(name, step, value, whole, default, given=given))

    def _noise(self, plan: TablePlan) -> Any:
        """Noise of ranges and of the model: from a seed of their own, or from the seed of all."""
        encoder, model = self._checked_steps()
        own = self.random_state if model.random_state is None else model.random_state
        of_model = as_noise(own)
        if not plan.searches:
            return of_model
        seeds = [encoder.random_state, self.random_state, model.random_state]
        of_table = as_noise(next((seed for seed in seeds if seed is not None), None))
        return PipelineNoise(of_table.child("table"), of_model)

    # The fit --------------------------------------------------------------------------------

    @property
    def _inner(self) -> Any:
        """Model whose device and callbacks are those of the fit."""
        return self._checked_steps()[1]

    def _check(self, plan: TablePlan, given: FitData) -> CheckedFit:
        """Return the plan with checked data; ValueError if the data cannot be used."""
        X, y, groups, X_public, y_public = given
        model = self._inner
        self._check_target(plan, labelled=y_public is not None)
        _check_public(model, X_public, y_public)
        schema = plan.table.schema
        if schema.texts and gives_frames(self._checked_steps()[0]):
            raise ValueError(
                f"`schema` has the column {shown(schema.texts[0])} of Text, whose features are"
                " sparse, and no data frame: leave the output of the encoder as it is, with"
                " set_output(transform='default')."
            )
        check = check_of_blocks(model, y) if is_elsewhere(X) else None
        table, y = read_rows(X, schema, y, check, groups)
        warn_of_target(given.y, schema)
        note_rows(self, X, table)
        reordered = is_reordered(X, schema)
        sets = _read_public(X_public, schema, named=reordered)
        check_order_of_sets(X_public, y_public)
        refuse_private(given, table, sets)
        warn_of_dropped(X, schema)
        n_samples = check_groups(groups, table.numbers).n
        encoding = replace(plan.table, alike=bool(sets)).encoding(n_samples)
        if sets:  # ranges that are missing are those of public rows
            encoding = encoding.with_ranges(_ranges_of(sets, schema))
        encoded: Any = tuple(map(encoding, sets)) or X_public
        if sets and not isinstance(X_public, tuple):
            encoded = encoded[0]
        blank = rowwise(_blank, table, encoding.n_features)
        of_model = FitData(blank, y, groups, encoded, y_public)
        checked = model._check(plan.on(encoding), of_model)
        forming = not is_dataset(X)
        plan = replace(plan, encoding=encoding, fit=checked.plan, forming=forming)
        if plan.log_from is not None:
            targets = rowwise(_logarithms, checked.data.targets, plan.log_from)
            checked = checked._replace(data=replace(checked.data, targets=targets))
        raw = RawRows([table], sets, checked.data, (blank.shape[0], len(schema)))
        data = replace(checked.data, X=raw, public=None)
        assumed = ("schema of the table", *checked.public)
        return CheckedFit(plan, data, assumed, (checked, reordered))

    def _warn_before_fit(
        self, plan: TablePlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        """Warn if public quantities already show that the fit is a bad idea."""
        self._inner._warn_before_fit(plan.fit, guarantee, budget, plan.fit_sizes)

    def _store(self, found: FittedTable, about: tuple[CheckedFit, bool]) -> None:
        (encoder, model), (checked, reordered) = self._checked_steps(), about
        encoder._store(found.encoding, reordered)
        if gives_frames(encoder):  # a model of data frames knows names, in `predict` as well
            frame: Any = encoder.transform(no_rows(found.encoding.schema))
            validate_data(model, frame, skip_check_array=True)
        model._store(found.model, checked.about)
        self.target_range_: tuple[np.ndarray, ...] | None = None
        vars(self).pop("_of_logarithms", None)
        if is_regressor(model):
            limits = getattr(model, "target_bounds_", found.limits)
            self.target_range_ = None if limits is None else tuple(map(np.atleast_1d, limits))
        if self.target_range_ is not None and found.log_from is not None:
            self._of_logarithms = True
            self.target_range_ = tuple(map(_rounded_exp, self.target_range_))

    def _warn_after_fit(self, found: FittedTable, budget: Budget, checked: CheckedFit) -> None:
        """Warn if released numbers show that the fit is poor."""
        self._inner._warn_after_fit(found.model, budget, checked.about[0])
        warn_of_copy(self, copying_column_of_table(found.encoding, self._inner))

    def _checked_steps(self) -> tuple[TableEncoder, Any]:
        steps = [step for _, step in self.steps]
        if len(steps) != 2 or type(steps[0]) is not TableEncoder:
            raise TypeError(
                "a TabularPipeline has two steps, a TableEncoder and a private estimator: make it"
                " with tabular_pipeline(estimator, schema)."
            )
        model = steps[1]
        if not (
            isinstance(model, PrivateEstimator) and (is_classifier(model) or is_regressor(model))
        ):
            raise TypeError(
                "the last step of a TabularPipeline must be a linear classifier or regressor of"
                f" this package, got {type(model).__name__}."
            )
        return steps[0], model

    def _plan(self) -> TablePlan:
        encoder, model = self._checked_steps()
        if getattr(model, "noise_multiplier", None) is not None:
            raise ValueError(
                "the model has a `noise_multiplier`, which would have to give way to the epsilon of"
                " the pipeline: leave it None, and set `epsilon`."
            )
        target = checked_target(self._whole)
        plan = model._plan()
        if not hasattr(plan, "for_table"):
            raise TypeError(
                f"{type(model).__name__} does not take encoded tables: use a DPSGD or GEP"
                " estimator, or DPLinearRegression."
            )
        if encoder.interactions == LEARNED and not getattr(plan, "interacting", False):
            raise ValueError(
                f"{type(model).__name__} does not learn interactions: use DPSGDClassifier,"
                " DPSGDFClassifier or DPSGDRegressor, or interactions='auto'."
            )
        limits, estimated = _target_limits(self.target, model)
        logs = isinstance(self.target, Range) and self.target.log
        by_column = isinstance(plan, RegressionFit)
        if by_column:
            _refuse_texts(as_schema(encoder.schema), model)
        table = replace(encoder._encoding_plan(target), by_column=by_column, share=RANGES_SHARE)
        return TablePlan(
            target=target,
            table=table,
            model=replace(plan, target=target),
            limits=limits,
            estimates_target=estimated,
            log_from=float(self.target.low) if logs else None,
        )

    def _check_target(self, plan: TablePlan, *, labelled: bool) -> None:
        """Raise ValueError if nothing gives the range of the targets of a regression."""
        if labelled and plan.log_from is not None:
            raise ValueError(
                "`target` is on a logarithmic scale, and `y_public` is not: pass the logarithms of"
                " `y` and of `y_public`, and the range of the logarithms as `target`."
            )
        told = plan.limits is not None or plan.estimates_target or not is_regressor(self._inner)
        if not (told or (labelled and hasattr(self._inner, "directions"))):
            raise ValueError(
                f"{type(self._inner).__name__} needs the range of the targets: pass"
                " target=Range(low, high) from public knowledge, or target=PrivateRange() to"
                " estimate it with a part of the budget."
            )

    def _budget(self, sizes: Sizes) -> Budget:
        self._check_target(self._plan(), labelled=sizes.labelled)
        return super()._budget(sizes)

    def _rows_as_fitted(self, X: Any) -> Any:
        encoder = self.steps[0][1]
        return read_table(X, encoder.schema_, named=encoder._reordered)

    def _forget(self) -> None:
        for _, step in self.steps:
            step._forget()
        super()._forget()

    def _state(self, guarantee: PrivacyGuarantee) -> None:
        """Store `guarantee` in each step as well, since the steps are fitted together."""
        super()._state(guarantee)
        for _, step in self.steps:
            step._state(guarantee)


@contextmanager
def _kept_if_refused(pipeline: TabularPipeline, model: Any) -> Iterator[None]:
    """Leave an earlier fit as it was if this one ends before it is paid for."""
    before, said = dict(vars(model)), vars(pipeline).get("privacy_")
    try:
        yield
    except BaseException:
        if vars(pipeline).get("privacy_") is said:
            vars(model).clear()
            vars(model).update(before)
        raise


# The budget ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PipelineBudget:
    """Budget of a pipeline, wherever it was set; any of the seeds, if one makes the noise."""

    epsilon: Any
    delta: Any
    neighboring_relation: Any
    random_state: Any
    _address: Address | None


def _default(step: Any, name: str) -> Any:
    return inspect.signature(type(step)).parameters[name].default


def _same(one: Any, other: Any) -> bool:
    same = one is other or one == other
    return isinstance(same, (bool, np.bool_)) and bool(same)


def _two_values(name: str, step: str, own: Any, whole: Any, default: Any, *, given: bool) -> str:
    of = "that of the pipeline" if given else "that of the model"
    out = f"set_params({step}__{name}={shown(default)}) to keep {of}"
    if given:
        out += f", or set_params({name}=None) to take that of the model"
    return (
        f"step {step!r} has {name}={shown(own)}, but {name}={shown(whole)}, {of}, holds for the"
        f" whole pipeline. Set `{name}` in one place: use {out}."
    )


# Targets ------------------------------------------------------------------------------------


def _target_limits(target: Any, model: Any) -> tuple[tuple[Any, Any] | None, bool]:
    """Return the public range of the targets, or None, and whether to estimate it privately."""
    if target is None:
        return getattr(model, "target_bounds", None), False
    if is_classifier(model):
        raise ValueError(
            "`target` is the range of the target of a regression, and"
            f" {type(model).__name__} is a classifier: leave it None."
        )
    if isinstance(target, tuple) and len(target) == 2:
        target = Range(*target)
    if not isinstance(target, (Range, PrivateRange)):
        logs = ", with log=True to fit its logarithm" if target == "log" else ""
        raise ValueError(
            f"`target` must be Range(low, high){logs}, PrivateRange() or a pair of numbers, got"
            f" {shown(target) if isinstance(target, str) else type(target).__name__}."
        )
    if target.missing:
        raise ValueError("`target` cannot be missing: drop rows without a target.")
    if target.log and not (isinstance(target, Range) and target.low > 0):
        raise ValueError(
            f"`target`={shown(target)} has logarithms only if its low end is public and above 0:"
            " write Range(low, high, log=True), such as Range(1, 60, log=True). Where a target can"
            " be 0, take the least value that matters, as smaller ones count as that."
        )
    limits = None if isinstance(target, PrivateRange) else (float(target.low), float(target.high))
    if limits and target.log:
        limits = math.log(limits[0]), math.log(limits[1])
    own = getattr(model, "target_bounds", None)
    if own is not None and not (limits and all(map(np.array_equal, own, limits))):
        raise ValueError(
            f"the model has target_bounds={shown(own)}, and the pipeline target={shown(target)}."
            " Set one of them: set_params(target=None) takes the range of the model."
        )
    return limits, limits is None


def _logarithms(targets: np.ndarray, least: float) -> np.ndarray:
    return np.log(np.maximum(targets, least))


def _rounded_exp(logarithms: np.ndarray) -> np.ndarray:
    """Return the powers of e without the last digits, which rounding has made."""
    return np.array([float(f"{value:.12g}") for value in np.exp(logarithms)])


def _blank(table: Table, n_features: int) -> Any:
    # One zero for all entries, or none: rows that are only checked need no memory.
    if table.texts:
        return sparse.csr_array((len(table), n_features), dtype=np.float32)
    return np.broadcast_to(np.float32(0.0), (len(table), n_features))


def _refuse_texts(schema: Schema, model: Any) -> None:
    """Raise ValueError for columns of text before a model that takes no sparse rows."""
    if schema.texts:
        raise ValueError(
            f"`schema` has the column {shown(schema.texts[0])} of Text, and"
            f" {type(model).__name__} takes no sparse rows: use DPSGDRegressor, as in"
            " tabular_pipeline(DPSGDRegressor(), schema, target=Range(low, high)), or leave the"
            " column out of the schema."
        )


# Public rows --------------------------------------------------------------------------------


def _check_public(model: Any, X_public: Any, y_public: Any) -> None:
    if X_public is None and y_public is None:
        return
    if "X_public" not in inspect.signature(model.fit).parameters:
        raise ValueError(
            f"{type(model).__name__} does not use public rows: leave out `X_public` and `y_public`,"
            " or use a GEP estimator."
        )


def _read_public(X_public: Any, schema: Schema, *, named: bool) -> tuple[Table, ...]:
    """Return sets of public rows, of which there may be none."""
    if X_public is None:
        return ()
    sets = X_public if isinstance(X_public, tuple) else (X_public,)
    found = by_name("X_public", X_public, sets).items()
    return tuple(read_table(each, schema, name=name, named=named) for name, each in found)


def _ranges_of(sets: tuple[Table, ...], schema: Schema) -> dict[str, tuple[float, float]]:
    """Ranges of public rows, for columns whose range is to be estimated."""
    found = {}
    for name in schema.private_ranges:
        place = schema.numbers.index(name)
        values = np.concatenate([each.numbers[:, place] for each in sets])
        values = np.clip(values[~np.isnan(values)], -_FAR, _FAR)
        low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
        found[name] = low, high if high > low else low + 1 + abs(low)
    return found
