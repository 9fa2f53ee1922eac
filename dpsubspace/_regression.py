"""Private linear regression by DP-SGD, on targets scaled to a public or released range."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._array import Array, as_like, row_norms, to_numpy
from dpsubspace._compat import with_callbacks
from dpsubspace._inputs import (
    check_auto,
    check_bounds,
    check_real,
    check_rows,
    check_rows_and_targets,
)
from dpsubspace._linear_model import Bounded, Budget, LinearModel, Releases, Sizes
from dpsubspace._losses import REGRESSOR_LOSSES
from dpsubspace._moments import count_above_noise, noisy_range
from dpsubspace._privacy import PrivacyGuarantee
from dpsubspace._scaling import RowMap
from dpsubspace.exceptions import PrivacyWarning

__all__ = ["DPSGDRegressor"]


class DPSGDRegressor(MultiOutputMixin, RegressorMixin, LinearModel):
    """Differentially private linear regression by DP-SGD.

    Each step sums the clipped gradients of all records and adds Gaussian noise. Gradients
    of a linear model are outer products, so they are clipped in closed form and a private
    step costs about as much as one without privacy. Several targets share one budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for the bounds and the training together.
        ``float("inf")`` trains without clipping and noise. None where `noise_multiplier` is
        given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record is a null record, or what it is. The
        second needs twice the noise. The number of records is public in both.
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the squared error of the scaled target, or one that grows linearly beyond 0.1,
        a twentieth of the range of the targets.
    alpha : float, default=1e-6
        Weight of the penalty on the squared norm of the scaled weights beside the mean
        loss. The intercept is not penalised.
    data_norm : float or None, default=None
        Public bound on row norms; longer rows are shrunk to it in ``fit``. None releases one:
        see `bounds_share`.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, which apply to every target, or two arrays
        of shape (n_targets,), the low ends and the high ends (not one pair a target).
        Targets outside are clipped to it in ``fit``. None releases one.
    bounds_share : float or "auto", default="auto"
        Share in (0, 1) of the budget (of mu^2) for the bounds that are not given; nothing
        where both are. "auto" is 0.1.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 (20 passes where that is more,
        with a `batch_size`), and without privacy as many as a stationary point takes, up
        to 5,000.
    learning_rate : float or "auto", default="auto"
        Step size for scaled rows and targets. "auto" follows from the ratio of noise to
        signal and the number of parameters, all public.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9, and without privacy grows and restarts.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Without privacy the last step is returned.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record, for scaled rows and targets. "auto" is 0.35
        times the bound on a scaled row, and a twentieth of it for the Huber loss.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows. Without it the constant is the middle of
        the range of the targets, and not 0.
    intercept_scaling : float, default=0.5
        The bias entry, in units of the bound on row norms.
    microbatch_size : int or None, default=None
        Records to have in memory at once, rounded up to a multiple of 128, 65,536 at most;
        no more than memory and time depend on it. None leaves it to the device.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy, anything else torch, with the same arithmetic and
        noise. "auto" takes a GPU if there is one. Fitted attributes are NumPy arrays.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`. That of the bounds follows from `bounds_share`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights in the units of the data: ``predict`` is ``X @ coef_.T + intercept_``.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant term.
    data_norm_ : float
        Bound on row norms that was used: `data_norm`, or released.
    target_bounds_ : tuple of two ndarrays of shape (n_targets,)
        Range of the targets that was used: `target_bounds`, or released.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged.
    learning_rate_ : float
        Step size used.
    clip_norm_ : float
        Clip norm used.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDClassifier : The same for classes.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released: for each bound that is not given, the counts of row norms (or of one target)
    in cells between half powers of 2, of L2 sensitivity 1 (``"zero_out"``) or sqrt(2)
    (``"replace_one"``), from which the bound is read; then the sum of clipped gradients of
    every step, of sensitivity C or 2C with C = `clip_norm`. Event: Gaussian mechanisms, those
    of the steps on Poisson batches where `batch_size` is set, calibrated together and
    never above `epsilon`. The unit is one row. Assumed public: the numbers of rows,
    features and targets, `data_norm`, `target_bounds` and all other parameters.

    Released bounds are coarse, lie within 2^40 of 0, and are worse the smaller ``n * epsilon``
    is; the fit warns where rows are too few for them. A target far from 0 beside its spread, a
    year say, ends in a range that is much too wide. Give both bounds where public knowledge
    has them. Columns in different units need public scaling first, since the largest decides
    the norm of a row, and columns far from 0 a public shift.

    A scaler fitted on the private rows, cross-validation scores and everything else
    computed from them are *not* covered; see ``docs/privacy.md``. The guarantee is for
    real numbers, floating-point attacks are not ruled out.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Dong, Roth, Su. "Gaussian differential privacy". JRSS-B 84(1), 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import DPSGDRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 4))
    >>> y = 20 + X @ [3.0, -2.0, 1.0, 0.0] + rng.normal(size=5000)
    >>> model = DPSGDRegressor(data_norm=2.0, target_bounds=(10, 30), random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.7
    True
    """

    _losses = REGRESSOR_LOSSES

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        loss: str = "squared_error",
        alpha: float = 1e-6,
        data_norm: float | None = None,
        target_bounds: tuple[Any, Any] | None = None,
        bounds_share: float | str = "auto",
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.loss = loss
        self.alpha = alpha
        self.data_norm = data_norm
        self.target_bounds = target_bounds
        self.bounds_share = bounds_share
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.clip_norm = clip_norm
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.microbatch_size = microbatch_size
        self.device = device
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any):
        """Fit the model to private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied (but to a GPU). Sparse matrices are used in CSR form and stay sparse.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        return self._fit(X, y)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, which may lie outside ``target_bounds_``.
        """
        check_is_fitted(self, "coef_")
        return check_rows(self, X, reset=False) @ self.coef_.T + self.intercept_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.regressor_tags.poor_score = True  # 200 rows and epsilon 1 in scikit-learn's checks
        return tags

    # The fit --------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, present: np.ndarray | None = None):
        """Fit with the records where `present` is False as null records.

        Only tests and audits pass `present`: it makes neighbours under ``"zero_out"``.
        """
        self._check_parameters()
        X, y = check_rows_and_targets(self, X, y)
        targets = y[:, None] if y.ndim == 1 else y
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds, targets.shape[1])
        public = [f"number of targets ({targets.shape[1]})"]
        public += [] if self.data_norm is None else [f"bound on row norms ({self.data_norm:g})"]
        public += [] if self.target_bounds is None else ["range of the targets"]
        trained = self._train(X, targets, targets.shape[1], tuple(public), present)
        row_map, (low, high) = trained.bounded.row_map, trained.bounded.target_bounds
        data_norm = float(row_map.data_norm or 0.0)  # never 0: given or released
        half, middle = (high - low) / 2, (high + low) / 2
        coef = (trained.weights[: X.shape[1]] * (half / data_norm)).T
        intercept = middle
        if row_map.bias is not None:
            intercept = middle + half * row_map.bias / data_norm * trained.weights[-1]
        self.data_norm_ = data_norm
        self.target_bounds_ = (low, high)
        self.n_iter_ = trained.plan.n_iter
        self.learning_rate_ = trained.plan.learning_rate
        self.clip_norm_ = trained.clip_norm
        self.intercept_ = float(intercept[0]) if y.ndim == 1 else intercept
        self.coef_ = (
            coef[0].copy() if y.ndim == 1 else np.ascontiguousarray(coef)
        )  # last: now it can predict
        return self

    def _row_bound(self) -> float:
        return math.hypot(1.0, self.intercept_scaling if self.fit_intercept else 0.0)

    def _bound(self, X: Array, targets: Array, releases: Releases) -> Bounded:
        """Bounds from public knowledge or noisy counts, and what is scaled by them."""
        values = to_numpy(targets)
        data_norm, bounds = self.data_norm, self.target_bounds
        if data_norm is None:
            norms = to_numpy(row_norms(X))
            # At least one cell above 0, where nearly all rows are zero.
            data_norm = max(self._range(norms, "norms", releases)[1], 2.0**-40)
        if bounds is None:
            names = (f"target {i}" for i in range(values.shape[1]))
            columns = zip(values.T, names, strict=True)
            bounds = zip(*(self._range(*column, releases) for column in columns), strict=True)
        low, high = (np.broadcast_to(np.asarray(b, float), values.shape[1:]) for b in bounds)
        scaled = 2 * (np.clip(values, low, high) - low) / (high - low) - 1
        bias = self.intercept_scaling * data_norm if self.fit_intercept else None
        row_map = RowMap(norm="ball", data_norm=float(data_norm), bias=bias)
        like = X.data if sparse.issparse(X) else X
        return Bounded(row_map, as_like(scaled, like), (low.copy(), high.copy()))

    def _range(self, values: np.ndarray, name: str, releases: Releases) -> tuple[float, float]:
        return noisy_range(
            values,
            releases.budget.before["bounds"],
            noise=releases.noise.child(name),
            neighboring_relation=releases.neighboring_relation,
            present=None if releases.present is None else to_numpy(releases.present),
        )

    # Parameters -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.data_norm is not None:
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50)
        check_auto("bounds_share", self.bounds_share, low=0, high=1)
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)

    def _warn(self, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes) -> None:
        super()._warn(guarantee, budget, sizes)
        if "bounds" not in budget.before:
            return
        unit = math.sqrt(0.5) if guarantee.neighboring_relation == "replace_one" else 1.0
        needed = 3 * count_above_noise(budget.before["bounds"] * unit)
        n_samples = sizes.known("n_samples", "the warning")
        if n_samples < needed:
            warnings.warn(
                f"the noise of the counts that bounds are read from hides {n_samples} rows: about"
                f" {needed:.0f} are needed. Give `data_norm` and `target_bounds` from public"
                " knowledge, or expect a poor model.",
                PrivacyWarning,
                stacklevel=6,
            )

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        if self.data_norm is not None and self.target_bounds is not None:
            return {}
        n_targets = 0
        if self.target_bounds is None:
            n_targets = sizes.known("n_outputs", "the number of target ranges to release")
        share = 0.1 if self.bounds_share == "auto" else float(self.bounds_share)
        return {"bounds": (share, n_targets + (self.data_norm is None))}
