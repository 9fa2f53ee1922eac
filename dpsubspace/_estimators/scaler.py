"""Columns brought to known ranges, and rows to a known norm, before a private estimator.

Design note. The map is the same wherever its bounds come from: public numbers, public rows, or
releases on the private rows. There are two ways to buy bounds. Counts in cells of an octave
are one release, and so need the fewest rows, but place a column far from 0, a year say, no
better than between two powers of 2. A search for quantiles finds any scale and any offset and
takes twenty releases. Sizes and the budget, all public, decide: a search whose noise would hide
a quarter of the rows at either end is left alone.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._accounting.events import composed, gaussian
from dpsubspace._accounting.guarantee import PrivacyGuarantee, warn_about_delta
from dpsubspace._accounting.legacy import Split
from dpsubspace._checks import check_auto, check_bounds, check_choice, check_integer
from dpsubspace._estimators.base import PrivateEstimator
from dpsubspace._release.mechanisms import check_lattice
from dpsubspace._release.noise import as_noise
from dpsubspace._rows.inputs import check_rows
from dpsubspace._rows.maps import RowMap
from dpsubspace._rows.public import check_public_rows
from dpsubspace._statistics.counts import count_above_noise, noisy_ranges
from dpsubspace._statistics.quantiles import SEARCH, noisy_quantiles, rank_noise
from dpsubspace.exceptions import PrivacyWarning, warn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpsubspace._release.noise import NoiseSource

__all__ = ["BoundedScaler"]

# Share of the values to leave out at either end, and the share that noise may hide there
# before a search is given up: from cancer (398 rows, 30 columns) and census data (5,000 and
# 32,561 rows, 5 columns) before a classifier, at epsilon 0.1 to 6.
_LEVEL, _HIDDEN = 0.01, 0.25

# Share of the rows that noise may hide at either end without a warning.
_WORTH_TELLING = 0.1

# What is nearer to 0 than this is 0, where the other bound is.
_ZERO = 2.0**-40

# Rows are made shorter than their bound by this, more than float32 rounds.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class _Purchase:
    """How bounds are bought: releases of one multiplier, and what they cost."""

    multiplier: float
    searched: bool
    event: DpEvent


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """Scale columns to a range by bounds that are public or paid for, and bound the rows.

    Columns in different units, or far from 0, need this before a private estimator, which
    bounds each row as a whole. Entries are clipped to the bounds of their column, which go
    to the ends of `feature_range`; then rows are divided by a constant, so that none is
    longer than 1. Bounds from public knowledge or public rows cost nothing; without any, they
    are bought from the private rows.

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
        Privacy budget of private bounds, from 1e-4 to 1e6, for all columns together. Not used
        and not spent where bounds are public. ``float("inf")`` takes exact ones, which is not
        private.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
        number of records is public in both.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

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
        What the fit cost and what that rests on: nothing, where bounds are public. Set just
        before the first release.
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
    Released: private bounds only. With many rows for the noise, counts at each of 20 stages
    of a search for two quantiles of every column; else the counts of all columns in cells
    between powers of 2, once. In either case a record is in one cell of a column, so
    that the L2 sensitivity is sqrt(n_features) (``"zero_out"``) or sqrt(2 n_features)
    (``"replace_one"``). Event: 20 Gaussian mechanisms, or one. The unit is one row. Assumed
    public: the numbers of rows and features, given bounds, `X_public` and all other
    parameters. The output for a private row is private; only the map is covered.

    Noise grows with the square root of the number of columns. Where it hides a column, the
    fit warns if sizes tell, and the column may end at a random scale: give bounds from public
    knowledge where there is any. A column of which all but a share of `level` has one value
    counts as constant, unless public rows say otherwise. From few rows, bounds end at powers of 2.

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

    # scikit-learn passes X_public on to this step without being asked.
    __metadata_request__fit = {"X_public": True}  # noqa: RUF012

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

    def fit(self, X: Any, y: Any = None, *, X_public: Any = None):
        """Find the bounds of the columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows. With public bounds, only their width and names are used.
        y : None
            Ignored.
        X_public : array-like of shape (m, n_features) or tuple of such, default=None
            Public rows, which ``bounds="auto"`` and "public" look at. A tuple is never
            sliced by cross-validation.

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
        return self._fit(X, X_public)

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

    def privacy_event(
        self,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
    ) -> DpEvent:
        """Return what a fit would cost, before any data are seen.

        Parameters
        ----------
        n_samples : int, optional
            Number of private rows. Needed where ``delta="auto"`` and bounds are private.
        n_features : int, optional
            Number of features. The number of releases depends on it; without it the event
            has one, which costs the same as all of them.
        n_outputs : int, optional
            Ignored.

        Returns
        -------
        DpEvent
            The ``dp_accounting`` event that ``fit`` will store in ``privacy_.event``. With
            ``bounds="auto"`` that of private bounds: a fit with `X_public` costs nothing.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or a size that is needed was not given.
        """
        self._check_parameters()
        if self._source(public=False) != "private":
            return composed([])
        return self._purchase(n_samples, n_features).event

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # The fit --------------------------------------------------------------------------------

    def _fit(self, X: Any, X_public: Any = None, present: np.ndarray | None = None):
        """Fit with the records where `present` is False as null records.

        Only tests and audits pass `present`: it makes neighbours under ``"zero_out"``.
        """
        self._check_parameters()
        X = _dense(self, X, reset=True)
        n_samples, n_features = X.shape
        public_sets = check_public_rows(self, X, X_public)
        source = self._source(public=bool(public_sets))
        if source == "given":
            check_bounds("bounds", self.bounds, n_features, column="feature")
        if source == "public" and not public_sets:
            raise ValueError(
                "bounds='public' needs public rows: fit(X, X_public=(rows,)), or give (low, high),"
                " or use bounds='auto' to buy bounds where there are no public rows."
            )
        noise = as_noise(self.random_state)
        purchase = None
        if source == "private":
            purchase = self._purchase(n_samples, n_features)
            if self._target().private:
                check_lattice(n_samples, purchase.multiplier)
        guarantee = self._target().guarantee(
            composed([]) if purchase is None else purchase.event,
            secure=noise.secure,
            n_samples=n_samples,
            n_features=n_features,
            public={"given": ("bounds of the features",), "public": ("X_public",)}.get(source, ()),
            unit=self.privacy_unit,
        )
        if purchase is not None:
            _warn(purchase, guarantee, n_samples, n_features)
        fixed = copy.copy(self)  # what is released depends on nothing that can change from here on
        self._start_spending(guarantee)
        if purchase is not None:
            low, high = fixed._bought(X, purchase, guarantee, noise, present)
        elif source == "public":
            low, high = _outer(np.concatenate(public_sets).astype(np.float64), fixed._level())
        else:
            low, high = (np.broadcast_to(np.asarray(b, float), n_features) for b in fixed.bounds)
        self._set(low.copy(), high.copy(), fixed.feature_range, fixed.row_norm)
        return self

    def _bought(
        self,
        X: np.ndarray,
        purchase: _Purchase,
        guarantee: PrivacyGuarantee,
        noise: NoiseSource,
        present: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds from the private rows, by releases that cost what `purchase` says."""
        level = self._level()
        if guarantee.epsilon == math.inf:
            return _outer((X if present is None else X[present]).astype(np.float64), level)
        options = {
            "noise": noise.child("bounds"),
            "neighboring_relation": guarantee.neighboring_relation,
            "present": present,
        }
        if purchase.searched:
            levels = np.array([level, 1 - level])
            found = noisy_quantiles(X, levels, purchase.multiplier, **options)
            low, high = found.min(axis=0), found.max(axis=0)
            # A search that ends beside a heap of zeros ends anywhere in the gap to the rest.
            beside = ((low == 0) & (high < _ZERO)) | ((high == 0) & (low > -_ZERO))
            return np.where(beside, 0.0, low), np.where(beside, 0.0, high)
        return noisy_ranges(X, purchase.multiplier, per_octave=1, **options)[:2]

    def _set(
        self, low: np.ndarray, high: np.ndarray, feature_range: Any, row_norm: str | None
    ) -> None:
        """Store the map that takes [low, high] to the feature range and bounds rows."""
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

    def _check_parameters(self) -> None:
        """Raise ValueError for any parameter out of its range, before data are touched."""
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
        self._target().check()

    def _level(self) -> float:
        return _LEVEL if self.level == "auto" else float(self.level)

    def _source(self, *, public: bool) -> str:
        """Where bounds come from, if there are public rows or not."""
        if not isinstance(self.bounds, str):
            return "given"
        if self.bounds == "auto":
            return "public" if public else "private"
        return self.bounds

    def _purchase(self, n_samples: int | None, n_features: int | None) -> _Purchase:
        """Search for quantiles where public sizes say that noise leaves enough of them."""
        target = self._target()
        searched = False
        if target.private and n_samples is not None and n_features is not None:
            n_features = check_integer("n_features", n_features, low=1)
            whole = target.calibrated(gaussian, n_samples) * math.sqrt(SEARCH)
            hidden = 2 * rank_noise(whole, n_features, 2, self.neighboring_relation)
            searched = hidden <= _HIDDEN * n_samples
        count = SEARCH if searched else 1
        split = Split.of(target, {"bounds": (1.0, count)}, n_samples)
        return _Purchase(split.multipliers["bounds"], searched, split.event)


def _dense(scaler: BoundedScaler, X: Any, *, reset: bool | None) -> np.ndarray:
    """Rows of `X` as a float64 or float32 array; `reset` None looks at no names."""
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
    return check_rows(scaler, X, reset=reset, accept_sparse=False)


def _middle_and_half(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middles and half widths of ranges, without overflow."""
    return low / 2 + high / 2, high / 2 - low / 2


def _outer(rows: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact quantiles, rounded outwards; the extremes of a column where they coincide."""
    low = np.quantile(rows, level, axis=0, method="lower")
    high = np.quantile(rows, 1 - level, axis=0, method="higher")
    same = low == high
    return np.where(same, rows.min(axis=0), low), np.where(same, rows.max(axis=0), high)


def _warn(
    purchase: _Purchase, guarantee: PrivacyGuarantee, n_samples: int, n_features: int
) -> None:
    """Warn of what public quantities already tell to be a bad idea."""
    if guarantee.epsilon == math.inf:
        return
    warn_about_delta(guarantee.delta, n_samples)
    if purchase.searched:
        hidden = 2 * rank_noise(purchase.multiplier, n_features, 2, guarantee.neighboring_relation)
    else:
        relation = guarantee.neighboring_relation
        unit = math.sqrt(n_features * (0.5 if relation == "replace_one" else 1.0))
        hidden = count_above_noise(purchase.multiplier * unit, per_octave=1)
    # Cells that stand out of the noise are rarely all but a few; ranks are as far off as that.
    if hidden > (_WORTH_TELLING if purchase.searched else 0.5) * n_samples:
        warn(
            "the noise of the counts that bounds are read from hides about"
            f" {min(hidden, n_samples):.0f} of {n_samples} rows at either end of each of"
            f" {n_features} features. So many rows may lie outside of the bounds that are found."
            " Give `bounds` from public knowledge or public rows, buy the bounds of fewer"
            " features, or use a larger epsilon.",
            PrivacyWarning,
            about=("bounds", n_features, guarantee.epsilon),
        )
