"""Private quantiles, means and covariances, as functions.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``MeanPlan`` or ``CovariancePlan`` of ``_core/plans/mean.py``, or ``QuantilePlan`` of
``_core/plans/quantile.py``, whose ``run`` is all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import Released
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.ground.checks import (
    check_bool,
    check_bounds,
    check_choice,
    check_real,
    is_collection,
    unwrapped,
)
from dpsubspace._core.plans.mean import Box, CovariancePlan, MeanPlan
from dpsubspace._core.plans.quantile import QuantilePlan
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows, checked_by, named
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.statistics.quantiles import refuse_exact_quantiles


@private_function
def private_quantile(
    X: Any,
    level: Any = 0.5,
    *,
    bounds: Any = None,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release quantiles of private columns.

    One binary search for each quantile, all side by side, by noisy counts of what lies below.
    No bounds need to be known: the search runs over numbers of all magnitudes.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        Private values, a row a record.
        Rows of Dask arrays and data frames stay on the workers of a cluster.
    level : float or array-like of shape (n_levels,), default=0.5
        Shares of the values that should lie below, in (0, 1).
    bounds : tuple (low, high) or None, default=None
        Public range: two numbers, or two arrays of shape (n_features,). It saves 3 tenths of
        the noise, and values outside count as the nearer end. None searches numbers up to 2^64
        in steps of a part in a million.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
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
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows.

    Returns
    -------
    Released
        ``(value, privacy)``: quantiles as ``numpy.quantile(X, level, axis=0)`` shapes them, and
        the :class:`PrivacyGuarantee` of this call, for a :class:`PrivacyLedger` to charge.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_mean : The mean of private rows.
    BoundedScaler : Scales columns by private quantiles.

    Notes
    -----
    Released: at each of 28 stages (14 with `bounds`) the counts of values between the
    midpoints of all searches of a column, for all columns at once. A record is in one cell a
    column, so the L2 sensitivity is sqrt(n_features) (``"zero_out"``) or sqrt(2 n_features)
    (``"replace_one"``), however many levels there are. Event: 28 (14) Gaussian mechanisms,
    for all columns and levels together. ``epsilon=float("inf")`` gives exact quantiles.
    The unit is one row. Assumed public: the numbers of rows and features, and all parameters.

    The rank of the result is off by a few standard deviations of the noise of a count. A level
    nearer to 0 or 1 than that cannot be told from the empty space beyond the data: the nearest
    one that can is searched for instead, with a warning. The grid holds 0 and integers
    up to 2^21, so that ties at them are found exactly; with `bounds`, both ends.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.statistics import private_quantile
    >>> incomes = np.random.default_rng(0).lognormal(10, 1, size=50000)
    >>> median, guarantee = private_quantile(incomes, 0.5, epsilon=0.5, random_state=0)
    >>> bool(abs(np.mean(incomes < median) - 0.5) < 0.01)
    True
    >>> guarantee.epsilon
    0.5
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    levels = np.asarray(level)
    column = hasattr(level, "to_list")  # perhaps of private rows: no message may have its values
    if levels.ndim > 1 or levels.size == 0 or (column and not np.all((levels > 0) & (levels < 1))):
        raise ValueError("`level` must be a number or a list of numbers in (0, 1).")
    for value in levels.ravel().tolist():
        check_real("level", value, low=0, high=1)
    if sparse.issparse(X):
        raise ValueError("sparse rows are not supported: use X.toarray().")
    flat = _is_column(X)
    values = _rows(
        "private_quantile", _column(X) if flat else X, groups, accept_sparse=False
    ).astype(np.float64)
    refuse_exact_quantiles(target, values)
    records, n_columns = check_groups(groups, values), values.shape[1]
    grid = None
    if bounds is not None:
        check_bounds("bounds", bounds, n_columns, column="feature")
        low, high = (np.broadcast_to(np.asarray(b, float), n_columns) for b in bounds)
        grid = (low, high)
    plan = QuantilePlan(target, np.atleast_1d(levels).astype(float), grid, n_columns)
    noise = as_noise(random_state)
    found, guarantee = run_privately(plan, values, records, n_columns, noise)
    found = found[:, 0] if flat else found
    found = found if levels.ndim else found[0]
    return Released(float(found) if found.ndim == 0 else found, guarantee)


@private_function
def private_mean(
    X: Any,
    *,
    data_norm: float | None = None,
    bounds: Any = None,
    method: str = "recentre",
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release the mean of private rows.

    Rows are shortened to a bound and added up, with noise in proportion to the bound. The bound
    may be far larger than the rows' distance from each other: "recentre" finds a rough mean
    and the distance of most rows from it first, and then adds up the differences.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows. Sparse matrices stay sparse. A column of numbers is one feature.
        Rows of Dask arrays and data frames stay on the workers of a cluster.
    data_norm : float or None, default=None
        Public bound on the L2 norm of rows; longer private rows are shrunk to it. None finds a
        coarse bound from noisy counts, which cost a tenth of the budget.
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns instead: two numbers, or two arrays of shape
        (n_features,). Values outside are clipped, and noise is in proportion to the ranges:
        columns in different units need them, or a :class:`BoundedScaler` before.
    method : {"recentre", "gaussian"}, default="recentre"
        "gaussian" spends everything on one sum of rows, "recentre" on three releases: far
        better where rows are far from 0 (from the middle of `bounds`) beside their spread. Where
        they are not, and where they are skewed, "gaussian" is up to twice as good. Both are the
        mean of the rows with ``epsilon=float("inf")``.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
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
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows.

    Returns
    -------
    Released
        ``(value, privacy)``: the mean, an array of shape (n_features,) (a float for `X` of
        one dimension), and the :class:`PrivacyGuarantee` of this call.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_quantile : Quantiles of private columns.
    DPSGDFClassifier : Buys the mean that it needs by itself.

    Notes
    -----
    Released: without `data_norm` and `bounds`, counts of row norms in cells, of L2
    sensitivity 1 (``"zero_out"``) or sqrt(2) (``"replace_one"``), with a tenth of the budget; the
    sum of bounded rows, of sensitivity R or 2 R; with "recentre" then counts of distances from
    that mean at 20 stages of a search for their quantile r, of sensitivity 1 or sqrt(2), and the
    sum of differences shortened to r, of sensitivity r or 2 r. Event: Gaussian mechanisms,
    calibrated together. The unit is one row. Assumed public: the numbers of rows and features,
    `data_norm`, `bounds` and all other parameters. ``epsilon=float("inf")`` gives the exact mean
    of the bounded rows.

    Rows beyond a bound are shortened, which biases the mean of a skew distribution: of incomes
    by two or three times the noise with "recentre", which shortens as many rows as Huang,
    Liang and Yi (2021) advise, and hardly with "gaussian" and bounds. A bound on norms that is
    estimated is at most 2^40; and noise is in proportion to the norm of whole rows, so that
    a column in small units drowns beside one in large ones.

    References
    ----------
    Huang, Liang, Yi. "Instance-optimal mean estimation under differential privacy".
    NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import private_mean
    >>> rows = np.random.default_rng(0).normal([100, -50], 1.0, size=(10000, 2))
    >>> mean, guarantee = private_mean(rows, data_norm=200, epsilon=1.0, random_state=0)
    >>> bool(np.abs(mean - rows.mean(axis=0)).max() < 0.05)
    True
    >>> guarantee.epsilon
    1.0
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    check_choice("method", method, ("recentre", "gaussian"))
    _check_bound(data_norm, bounds)
    flat = not sparse.issparse(X) and _is_column(X)
    rows = _rows("private_mean", _column(X) if flat else X, groups).astype(np.float64, copy=False)
    records, n_columns = check_groups(groups, rows), rows.shape[1]
    plan = MeanPlan(target, data_norm, Box.of(bounds, rows), n_columns, method)
    noise = as_noise(random_state)
    mean, guarantee = run_privately(plan, rows, records, n_columns, noise)
    return Released(float(mean[0]) if flat else mean, guarantee)


@private_function
def private_covariance(
    X: Any,
    *,
    data_norm: float | None = None,
    bounds: Any = None,
    centered: bool = True,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release the covariance matrix of private rows.

    A private mean and the distance of most rows from it come first; the noise of the matrix is
    then in proportion to the square of that distance.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows. Rows of Dask arrays and data frames stay on the workers of a cluster.
    data_norm : float or None, default=None
        Public bound on the L2 norm of rows; longer private rows are shrunk to it. None finds a
        coarse bound from noisy counts, which cost a tenth of the budget.
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns instead: two numbers, or two arrays of shape
        (n_features,). Values outside are clipped, and noise is in proportion to the ranges:
        columns in different units need them, or a :class:`BoundedScaler` before.
    centered : bool, default=True
        Whether second moments are those of rows less their private mean, as in scikit-learn, or of
        rows as they are, which is the mean of ``x x^T``.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
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
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows.

    Returns
    -------
    Released
        ``(value, privacy)``: a symmetric matrix of shape (n_features, n_features) without negative
        eigenvalues, divided by the number of rows, and the :class:`PrivacyGuarantee` of this call.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_mean : The mean of private rows.
    DPPCA : Finds the strongest directions alone, with less noise.

    Notes
    -----
    Released: what :func:`private_mean` releases, with a radius r for the rows about the mean,
    and the second moment of these rows, shortened to r, of sensitivity ``r^2``
    (``"zero_out"``) or ``sqrt(2) r^2`` (``"replace_one"``) in Frobenius norm. Its noise is a
    symmetric Gaussian matrix (Dwork, Talwar, Thakurta, Zhang, 2014, with noise that looks
    the same in every basis). Event: Gaussian mechanisms, calibrated together. The unit is one
    row. Assumed public: the numbers of rows and features, `data_norm` and all other parameters.
    ``epsilon=float("inf")`` gives the exact matrix of the bounded rows.

    Rows further out than r count as if they were at r, so that variances of distributions with
    heavy tails come out too low. Negative eigenvalues, which are noise, are set to zero.

    References
    ----------
    Dwork, Talwar, Thakurta, Zhang. "Analyze Gauss: optimal bounds for privacy-preserving
    principal component analysis". STOC 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.statistics import private_covariance
    >>> rows = np.random.default_rng(0).normal(50, [3.0, 1.0], size=(20000, 2))
    >>> covariance, guarantee = private_covariance(rows, data_norm=100, random_state=0)
    >>> bool(np.abs(covariance - np.cov(rows.T)).max() < 0.2)
    True
    >>> guarantee.epsilon
    1.0
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    check_bool("centered", centered)
    _check_bound(data_norm, bounds)
    rows = _rows("private_covariance", X, groups).astype(np.float64, copy=False)
    records, n_columns = check_groups(groups, rows), rows.shape[1]
    plan = CovariancePlan(target, data_norm, Box.of(bounds, rows), n_columns, centered)
    noise = as_noise(random_state)
    return Released(*run_privately(plan, rows, records, n_columns, noise))


def _check_bound(data_norm: float | None, bounds: Any) -> None:
    if data_norm is not None:
        check_real("data_norm", data_norm, low=1e-50, high=1e50)
        if bounds is not None:
            raise ValueError("give `data_norm` or `bounds`, not both.")


def _is_column(X: Any) -> bool:
    return checked_by(np.ndim, unwrapped("X", X)) == 1


def _column(X: Any) -> Any:
    if is_collection(X):
        return X.to_frame() if hasattr(X, "to_frame") else X[:, None]
    return np.reshape(np.asarray(X), (-1, 1))


def _rows(function: str, X: Any, groups: Any, *, accept_sparse: bool = True) -> Any:
    model = named(function, collections=True)
    return check_rows(model, X, reset=True, accept_sparse=accept_sparse, groups=groups)
