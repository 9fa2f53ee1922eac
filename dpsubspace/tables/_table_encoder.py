"""Raw tables as rows of numbers that a private linear model learns curves from.

Where to check the privacy claim: the encoding of a row (``_core/tables/encoding.py``) follows from
the row itself and from public quantities. The only releases are ranges that are estimated
privately, by :class:`~dpsubspace._core.plans.table.EncodingPlan`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.fits.estimator import (
    CheckedFit,
    FitData,
    PrivateEstimator,
    checked_target,
)
from dpsubspace._core.fits.outputs import lazily
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.ground.checks import check_bool, check_choice, is_collection, shown
from dpsubspace._core.ground.forms import ByName, Fixed, Flag, Number, Sometimes
from dpsubspace._core.plans.table import EncodingPlan, read_rows
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.tables.encoding import ENCODING_FORM, LEARNED, Encoding
from dpsubspace._core.tables.frames import names_of
from dpsubspace._core.tables.schema import (
    SCHEMA_FORM,
    Schema,
    Table,
    as_schema,
    columns_of,
    is_reordered,
    read_table,
    unnamed_columns,
)
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn


@public
class TableEncoder(TransformerMixin, PrivateEstimator):
    """Encode a raw table for a private linear model, by a schema of what is public about it.

    Every number becomes a few cosines of it, from which a linear model learns a curve; every
    category becomes a column of its own; a date becomes a number of days, a month and a weekday; a
    text becomes hashed words; and a declared missing value becomes an indicator. Rows
    come out with a norm of at most 1. Nothing is learned from the rows, and nothing is spent,
    unless the schema has columns whose range is to be estimated (:class:`PrivateRange`). Then all
    of `epsilon` is. It also decides how fine the encoding is: more rows and a larger budget carry
    more detail.

    :func:`tabular_pipeline` puts it in front of a model, with one budget for both.

    Parameters
    ----------
    schema : Schema or dict
        What is public about each column, by its name: a :class:`Range`, a :class:`PrivateRange`,
        a :class:`Date`, a :class:`Categories` or a :class:`Text`. A pair of numbers is short for a
        range, and a list for categories. Columns that it does not name are dropped, and ``fit``
        says so.
    interactions : bool, "auto" or "learned", default="auto"
        Whether pairs of numbers get features of their own, so that the model can learn how two
        columns act together. "auto" gives them to tables of 2 to 16 numbers (20 in front of
        :class:`DPLinearRegression`) where the number of rows and the budget carry them. "learned"
        does the same, and lets :class:`DPSGDClassifier`, :class:`DPSGDFClassifier` and
        :class:`DPSGDRegressor` add features of several numbers while they train, chosen by what
        they have learned so far: see Notes of :class:`TableEncoder`.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    encoding_ : Encoding
        How rows are encoded: all of it is public or released.
    schema_ : Schema
        The schema, in its long form.
    ranges_ : dict
        Range (low, high) of each number, declared or estimated, by the name of the column. That of
        dates is in days since 1970-01-01.
    privacy_ : PrivacyGuarantee
        What the fit cost (nothing, where no range is estimated privately), and what its guarantee
        assumes. Set just before the first release.
    n_features_in_ : int
        Number of columns of the schema.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names.

    See Also
    --------
    tabular_pipeline : This encoder and a model, with one budget.
    Schema : What is public about a table.
    BoundedScaler : Scales columns of numbers, with one feature for each.

    Notes
    -----
    Released: estimated ranges only, of all such columns together: noisy counts at each of 20 stages
    of a search for two quantiles of every column, or, where there are few rows, counts in cells
    between powers of 2, and up to three times in closer cells, as public sums of neighbouring
    cells; and before it, where values may be missing, the number of those. A record
    is in one cell of a column, so that the L2 sensitivity for c columns is sqrt(c)
    (``"zero_out"``) or sqrt(2 c) (``"replace_one"``); that of the numbers of missing values is
    sqrt(c). Event: 20 Gaussian mechanisms, or 2 to 4, and one more for missing values. The unit is
    one row. Assumed public: the schema, the number of rows and all other parameters, and that
    the data pass the checks. Values outside of a range count as its ends; how many there are is
    not told. The output for a private row is private; only the map is covered.

    A number u on its range, from 0 to 1, becomes ``cos(pi j u)`` with weights that fall like
    ``1 / j``, for j up to 8, or 16 where ``n_samples`` is above 4,000 times the noise multiplier of
    `epsilon`; below 100 times, weights fall a little faster. A category becomes a centred indicator
    for each value; one that the schema does not name becomes zeros. Month and weekday of a date are
    such categories; those of a missing date are zeros. Because rows keep a norm of at
    most 1, more features do not mean more noise in the scores, and the fine features only begin to
    matter where the budget lets them. Each column has a share of the squared norm of a row: four
    parts for a number, and one for a category. A date has six, four of its days and one each of its
    month and its weekday, and a text has 16, so that d numbers, c categories, t dates and x texts
    are divided by ``sqrt(4 d + c + 6 t + 16 x)``, the largest norm that they could have; pairs of
    numbers take a part of it. Texts are rows of norm 1, or zeros, before: see :class:`Text`.
    :class:`DPSGDClassifier`, :class:`DPSGDFClassifier` and :class:`DPSGDRegressor` in a
    :func:`tabular_pipeline` begin with these shares and change them four times, after 15, 25, 40
    and 55 % of their steps. A column keeps at least 15 % of its share, and the rest goes to columns
    in proportion to the norm of the weights that were released so far, less their noise.

    With ``interactions="learned"`` these three models add 600 random features of up to 16 numbers
    after a quarter of their steps: cosines and sines of sums of these numbers, each times a random
    frequency. Frequencies have Cauchy distributions, which are wider for columns whose released
    weights are larger. They are drawn by public randomness. The features have at most a quarter of
    the squared norm of a row: half of that where ``n_samples`` is 1,200 times the noise multiplier
    of `epsilon`, and none where it is far below. Steps, noise and cost are those of a fit without
    them. `coef_` has the weights of the encoded columns alone, and predictions use all. Fits take
    about three times as long, and memory for 2,400 bytes a row more. Without privacy nothing is
    added.

    In a :func:`tabular_pipeline` with :class:`DPLinearRegression`, which brings columns to one
    scale by itself, features come one by one instead, each in [-1, 1]: Legendre polynomials of a
    number up to degree 8, and products of two numbers and of their second polynomials. The model
    multiplies scaled features by public factors. The square of such a factor is a half where
    ``n_samples`` is 14 times the noise multiplier times the number of features that are no finer;
    it goes to 1 with more rows or budget, and what has less than a hundredth is left out.

    Inside of a :class:`TabularPipeline` the budget is that of the pipeline. `epsilon`, `delta` and
    `neighboring_relation` are left at their defaults there: any other value must be equal to that
    of the pipeline, which raises otherwise.

    References
    ----------
    Rahimi, Recht. "Random features for large-scale kernel machines". NeurIPS 2007.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpsubspace import Categories, Range
    >>> from dpsubspace.tables import TableEncoder
    >>> frame = pd.DataFrame({"age": [30, 70], "ward": ["A", "B"], "id": [1, 2]})
    >>> schema = {"age": Range(0, 100), "ward": Categories(["A", "B", "C"])}
    >>> encoder = TableEncoder(schema).fit(frame[["age", "ward"]])
    >>> encoder.transform(frame).shape
    (2, 11)
    >>> encoder.privacy_.epsilon
    0.0
    """

    _canary = "estimated ranges"

    _reordered = False  # whether the rows of the fit had names, in another order than the schema

    _saved: ClassVar = {
        **FEATURES,
        "schema_": SCHEMA_FORM,
        "ranges_": ByName(Fixed(Number(), Number())),
        "_reordered": Sometimes(Flag()),
        "encoding_": ENCODING_FORM,
    }

    def __init__(
        self,
        schema: Any,
        *,
        interactions: bool | str = "auto",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.schema = schema
        self.interactions = interactions
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Find the ranges that are to be estimated privately, if there are any.

        Parameters
        ----------
        X : data frame of n_samples rows
            Private rows, of pandas, Polars, Arrow or Dask. Without ranges to estimate, only the
            names and types of their columns and the number of rows are used.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

        Returns
        -------
        self : object
            The fitted encoder.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        PrivacyError
            If noise would hide a range that is to be estimated privately.
        """
        noise = as_noise(self.random_state).child("table")
        return self._fit_by(self._plan(), X, groups=groups, noise=noise)

    def transform(self, X: Any) -> Any:
        """Encode rows, each by itself.

        Parameters
        ----------
        X : data frame of n_rows rows
            Rows, of pandas, Polars, Arrow or Dask. Those of Dask give a lazy Dask array.

        Returns
        -------
        {ndarray, sparse array} of shape (n_rows, n_features_out)
            Rows of norm at most 1, in float32, as a CSR array where the schema has texts.
        """
        check_is_fitted(self, "encoding_")
        if is_collection(X):
            nothing = np.empty((0, self.encoding_.n_features), dtype=np.float32)
            rows = columns_of(X, self.schema_, named=self._reordered)
            return lazily(TableEncoder._encoded, self, rows, nothing)
        return self._encoded(X)

    def _encoded(self, X: Any) -> Any:
        # A pipeline has read the table already.
        if not isinstance(X, Table):
            X = read_table(X, self.schema_, named=self._reordered)
        return self.encoding_(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features that rows become.

        Parameters
        ----------
        input_features : None
            Ignored: the schema has the names.

        Returns
        -------
        ndarray of shape (n_features_out,)
            Such as "age:cos1", "age:missing", "ward=A" and "admitted:month=Jan".
        """
        check_is_fitted(self, "encoding_")
        return np.array(self.encoding_.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> EncodingPlan:
        return self._encoding_plan(checked_target(self))

    def _encoding_plan(self, target: Target) -> EncodingPlan:
        """Parameters of the encoding, which is as fine as the budget of a whole fit allows."""
        if not isinstance(self.interactions, str):
            check_bool("interactions", self.interactions)
        else:
            check_choice("interactions", self.interactions, (True, False, "auto", LEARNED))
        schema = as_schema(self.schema)
        if self.interactions == LEARNED and schema.texts:
            raise ValueError(
                f"`interactions`='learned' goes through dense rows, and `schema` has the column"
                f" {shown(schema.texts[0])} of Text, whose rows are sparse: use"
                " interactions='auto', or leave the column out of the schema."
            )
        return EncodingPlan(target=target, schema=schema, interactions=self.interactions)

    def _check(self, plan: EncodingPlan, given: FitData) -> CheckedFit:
        table, _ = read_rows(given.X, plan.schema, groups=given.groups)
        warn_of_dropped(given.X, plan.schema)
        data = Data(table, np.empty(0), 0, check_groups(given.groups, table.numbers))
        return CheckedFit(plan, data, ("schema of the table",), is_reordered(given.X, plan.schema))

    def _store(self, found: Encoding, reordered: bool) -> None:
        self.schema_: Schema = found.schema
        self.ranges_: dict[str, Any] = dict(found.ranges)
        self.n_features_in_ = len(found.schema)
        self.feature_names_in_: np.ndarray = np.array([*found.schema], dtype=object)
        self._reordered = reordered
        self.encoding_ = found  # last: now it can transform


def warn_of_dropped(X: Any, schema: Schema) -> None:
    if names := unnamed_columns(X, schema):
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        warn(
            "columns that the schema does not name are dropped:"
            f" {', '.join(repr(name) for name in names[:10])}{more}. To end this"
            " warning, add to the schema the columns that the model may learn from, and drop the"
            " others from the table, such as the names of persons and the label.",
            UserWarning,
            about=("dropped", tuple(names)),
        )


def warn_of_target(y: Any, schema: Schema) -> None:
    """Warn if a series or frame of targets has the name of a column of the schema: by names."""
    names = names_of(y) or [getattr(y, "name", None)]
    if both := [name for name in names if isinstance(name, str) and name in schema]:
        warn(
            f"the schema has {', '.join(map(repr, both))}, which is also the name of the target. A"
            " model that learns from its own target is of no use for rows whose target is not"
            " known. Leave this column out of the schema. If it is not the target, rename the"
            " target to end this warning.",
            PrivacyWarning,
            about=("target", tuple(both)),
        )
