"""Scaling of columns to known ranges, and of rows to a known norm, before a private estimator.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.scaler.ScalerPlan`, whose ``run`` is the whole fit.

Design note. The map is the same wherever its bounds come from: public numbers, public rows, or
releases on the private rows, for which see ``_core/statistics/quantiles.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.fits.outputs import by_blocks
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.ground.checks import check_auto, check_bounds, check_choice
from dpsubspace._core.ground.forms import Flag, Number, NumberArray
from dpsubspace._core.plans.scaler import ScalerPlan
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._core.rows.public import Data, PublicRows, check_public_rows
from dpsubspace._core.rows.records import RowMap, check_groups, check_order
from dpsubspace._core.statistics.quantiles import LEVEL, hidden_records, refuse_exact_quantiles
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn

# Share of the rows that noise may hide at either end without a warning.
_WORTH_TELLING = 0.1

# Public facts beside the sizes, by the source of the bounds.
_PUBLIC = {"given": ("bounds of the features",), "public": ("X_public",)}

# Rows are made shorter than their bound by this, which is more than the rounding of float32.
_ROUNDING = 1e-6


@public
class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """Scale columns by public or privately estimated ranges, and limit the norm of each row.

    Columns in different units, or far from 0, need this before a private estimator, which
    bounds each row as a whole. Entries are clipped to the bounds of their column, which go
    to the ends of `feature_range`; then rows are divided by a constant, so that none is
    longer than 1. Bounds from public knowledge or public rows cost nothing; without any, they
    are estimated from the private rows with noise.

    Parameters
    ----------
    bounds : {"auto", "public", "private"} or tuple (low, high), default="auto"
        Two public numbers, or two arrays of shape (n_features,), the low ends and the high ends;
        "public" takes them from `X_public` and "private" from noisy counts of the private rows.
        "auto" is "public" where `X_public` is given and "private" elsewhere.
    feature_range : tuple (low, high), default=(-1, 1)
        Range of the columns, before rows are bounded.
    row_norm : {"ball", "l2", None}, default="ball"
        "ball" divides all rows by the greatest norm that the range allows; "l2" divides each
        by its own norm, and cannot be undone; None leaves them.
    level : float or "auto", default="auto"
        Share of the values to leave out at each end of a column, in (0, 0.5), where bounds are
        not given. Private bounds leave out more where noise hides so few. "auto" is 0.01.
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
    data_min_ : ndarray of shape (n_features,)
        Low ends of the columns that were used: public or released.
    data_max_ : ndarray of shape (n_features,)
        High ends.
    scale_ : ndarray of shape (n_features,)
        What clipped columns are multiplied by (before rows are normalised); 0 for a column
        with one value, which goes to the middle of the range.
    min_ : ndarray of shape (n_features,)
        What is added then.
    data_norm_ : float
        Bound on the norm of a transformed row, as `data_norm` of an estimator takes it.
    privacy_ : PrivacyGuarantee
        What the fit cost (nothing, where bounds are public), and what its guarantee assumes. Set
        just before the first release.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    private_quantile : Quantiles of columns for their own sake.
    DPSGDClassifier : A private classifier to put behind it.
    PrivacyLedger : Fits Pipelines of both and charges both.

    Notes
    -----
    Released: private bounds only, of all columns together. Public ones neither use nor spend
    `epsilon`, and ``epsilon=float("inf")`` takes exact ones. With many rows for the noise, counts
    at each of 20 stages of a search for two quantiles of every column; else the counts of all
    columns in cells between powers of 2, and then up to three times in closer cells, as public
    sums of neighbouring cells. In either case a record is in one cell of a column, so that the L2
    sensitivity is sqrt(n_features) (``"zero_out"``) or sqrt(2 n_features) (``"replace_one"``).
    Event: 20 Gaussian mechanisms, or 2 to 4. The unit is one row. Assumed public: the numbers of
    rows and features, given bounds, `X_public` and all other parameters. The output for a private
    row is private; only the map is covered.

    Noise grows with the square root of the number of columns. Where it hides a column, the
    fit warns if sizes tell, and the column may end at a random scale: give bounds from public
    knowledge where there is any. A column of which all but a share of `level` has one value
    counts as constant, unless public rows say otherwise. From few rows, bounds are those of common
    distributions that agree with the counts, and leave out about `level` as well.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import BoundedScaler, DPSGDClassifier, PrivacyLedger
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(1980, 10, size=20000), rng.exponential(5e4, size=20000)])
    >>> y = X[:, 0] > 1982
    >>> model = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(epsilon=0.7))
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> ledger.fit(model, X, y).score(X, y) > 0.9
    True
    >>> ledger.epsilon() < 0.8
    True
    """

    _canary = "ranges"
    _takes_collections = True
    _keeps_columns = True

    # scikit-learn passes X_public on to this step without a request by the user.
    __metadata_request__fit = {"X_public": True}  # noqa: RUF012

    # Set by `fit`.
    scale_: np.ndarray
    min_: np.ndarray
    data_min_: np.ndarray
    data_max_: np.ndarray
    data_norm_: float

    _saved: ClassVar = {
        **FEATURES,
        "_middle": Number(),
        "_half_range": Number(0),
        "_unit_rows": Flag(),
        "scale_": NumberArray(("features",), low=0, high=math.inf),
        "min_": NumberArray(("features",), low=-math.inf, high=math.inf),
        "data_min_": NumberArray(("features",)),
        "data_max_": NumberArray(("features",)),
        "data_norm_": Number(0),
    }

    def __init__(
        self,
        bounds: Any = "auto",
        *,
        feature_range: tuple[float, float] = (-1, 1),
        row_norm: str | None = "ball",
        level: float | str = "auto",
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.bounds = bounds
        self.feature_range = feature_range
        self.row_norm = row_norm
        self.level = level
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, X_public: Any = None) -> Self:
        """Find the bounds of the columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows. With public bounds, only their width and names are used.
            Rows of Dask arrays and data frames stay on the workers of a cluster. Those of a dataset
            of PyArrow are read from its files in each pass.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : array-like of shape (m, n_features) or tuple of such, default=None
            Public rows, which ``bounds="auto"`` and "public" look at, and bounds that are given do
            not. A tuple is never sliced by cross-validation.

        Returns
        -------
        self : object
            The fitted scaler.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        check_order(X, y=y)  # which a Pipeline passes to its next step
        return self._fit_by(self._plan(), X, groups=groups, X_public=X_public)

    @by_blocks
    def transform(self, X: Any) -> np.ndarray:
        """Clip and scale columns, then bound rows; each row by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows of norm at most ``data_norm_``, float32 where `X` is.
        """
        check_is_fitted(self, "data_norm_")
        X = _dense(self, X, reset=False)
        middle, half = _middle_and_half(self.data_min_, self.data_max_)
        # Not X * scale_ + min_, which loses digits where a column is far from 0.
        unit = np.clip(X, self.data_min_, self.data_max_) - middle
        unit /= np.where(half > 0, half, 1.0)
        np.clip(unit, -1.0, 1.0, out=unit)
        unit *= self._half_range
        unit += self._middle
        if self._unit_rows:
            unit *= (1 - _ROUNDING) * RowMap(norm="l2").factors(unit)[0][:, None]
        return unit.astype(X.dtype, copy=False)

    @by_blocks
    def inverse_transform(self, X: Any) -> np.ndarray:
        """Undo the scaling; what was clipped comes back as the bound that it was clipped to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Transformed rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows in the units of the data.
        """
        check_is_fitted(self, "data_norm_")
        if self._unit_rows:
            raise ValueError(
                "row_norm='l2' forgets the length of each row and cannot be undone: fit with"
                " row_norm='ball' or None."
            )
        # Transformed rows may have lost their names, or have others.
        X = _dense(self, X.to_numpy() if hasattr(X, "to_numpy") else X, reset=None)
        middle, half = _middle_and_half(self.data_min_, self.data_max_)
        return ((X - self._middle) / self._half_range * half + middle).astype(X.dtype, copy=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # The fit --------------------------------------------------------------------------------

    def _budget(self, sizes: Sizes) -> Budget:
        # Public rows of a Pipeline may be those of another step: then bounds are estimated
        # privately.
        return super()._budget(replace(sizes, n_public=0))

    def _check(self, plan: ScalerPlan, given: FitData) -> CheckedFit:
        X = _dense(self, given.X, reset=True, groups=given.groups)
        if plan.source == "private" or (plan.source == "auto" and given.X_public is None):
            refuse_exact_quantiles(plan.target, X)
        records = check_groups(given.groups, X)
        public = PublicRows.of(check_public_rows(self, X, given.X_public, records), None)
        data = Data(X, None, 1, records, public)
        plan = plan.resolved(plan.sizes(data))
        if plan.source == "given":
            check_bounds("bounds", plan.given, X.shape[1], column="feature")
        if plan.source == "public" and public is None:
            raise ValueError(
                "bounds='public' needs public rows: fit(X, X_public=(rows,)), or give (low, high),"
                " or use bounds='auto' to estimate bounds where there are no public rows."
            )
        return CheckedFit(plan, data, _PUBLIC.get(plan.source, ()), plan)

    def _warn_before_fit(
        self, plan: ScalerPlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        if not budget.parts:
            return
        n_samples, n_features = (sizes.known(x, "it") for x in ("n_samples", "n_features"))
        unit = guarantee.unit
        hidden, searched = hidden_records(budget, "bounds", n_features)
        # Cells that stand out of the noise are rarely all but a few; ranks are as far off as that.
        if hidden > (_WORTH_TELLING if searched else 0.5) * n_samples:
            warn(
                "the noise of the counts that bounds are read from hides about"
                f" {min(hidden, n_samples):.0f} of {n_samples} {unit}s at either end of each of"
                f" {n_features} features. So many {unit}s may lie outside of the bounds that are"
                " found. Give `bounds` from public knowledge or public rows, estimate the bounds of"
                " fewer features, or use a larger epsilon.",
                PrivacyWarning,
                about=("bounds", n_features, budget.target.epsilon),
            )

    def _store(self, found: tuple[np.ndarray, np.ndarray], plan: ScalerPlan) -> None:
        (low, high), row_norm, feature_range = found, plan.row_norm, plan.feature_range
        start, end = (float(value) for value in feature_range)
        longest = max(abs(start), abs(end)) * math.sqrt(len(low))
        shrink = (1 - _ROUNDING) / longest if row_norm == "ball" else 1.0
        self._middle, self._half_range = (start + end) / 2 * shrink, (end - start) / 2 * shrink
        self._unit_rows = row_norm == "l2"
        middle, half = _middle_and_half(low, high)
        with np.errstate(over="ignore"):
            self.scale_ = np.where(half > 0, self._half_range / np.where(half > 0, half, 1.0), 0.0)
            self.min_ = self._middle - middle * self.scale_
        self.data_min_, self.data_max_ = low, high
        self.data_norm_ = longest if row_norm is None else 1.0  # last: now it can transform

    # Parameters and what follows from them --------------------------------------------------

    def _plan(self) -> ScalerPlan:
        if isinstance(self.bounds, str) or self.bounds is None:
            if self.bounds not in ("auto", "public", "private"):
                raise ValueError(
                    "`bounds` must be 'auto', 'public', 'private' or a tuple (low, high),"
                    f" got {self.bounds!r}."
                )
        else:
            check_bounds("bounds", self.bounds, column="feature")
        check_bounds("feature_range", self.feature_range, 1, column="feature")
        check_choice("row_norm", self.row_norm, ("ball", "l2", None))
        check_auto("level", self.level, low=0, high=0.5)
        named = isinstance(self.bounds, str)
        return ScalerPlan(
            target=checked_target(self),
            source=self.bounds if named else "given",
            given=None if named else self.bounds,
            level=LEVEL if self.level == "auto" else float(self.level),
            feature_range=self.feature_range,
            row_norm=self.row_norm,
        )


def _dense(scaler: BoundedScaler, X: Any, *, reset: bool | None, groups: Any = None) -> np.ndarray:
    """Return rows of `X` as a float64 or float32 array; `reset` None checks no names."""
    if sparse.issparse(X):
        raise ValueError(
            "sparse rows are not supported: scaling shifts columns, which would fill them. Use"
            " X.toarray(), or leave sparse rows to the row_norm or data_norm of the estimator."
        )
    if reset is None:
        X = check_rows(BaseEstimator(), X, reset=True, accept_sparse=False)
        expected = len(scaler.data_min_)
        if X.shape[1] != expected:
            raise ValueError(
                f"X has {X.shape[1]} features, but BoundedScaler is expecting {expected} features"
                " as input."
            )
        return X
    return check_rows(scaler, X, reset=reset, accept_sparse=False, groups=groups)


def _middle_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return middles and half widths of ranges, without overflow."""
    return low / 2 + high / 2, high / 2 - low / 2
