"""Private linear regression by DP-SGD, on targets scaled to a public or released range."""

from __future__ import annotations

from typing import Any

from dpsubspace._compat import with_callbacks
from dpsubspace._regressor import LinearRegressor

__all__ = ["DPSGDRegressor"]


class DPSGDRegressor(LinearRegressor):
    """Differentially private linear regression by DP-SGD.

    Each step sums the clipped gradients of all records and adds Gaussian noise. Gradients
    of a linear model are outer products, so they are clipped in closed form and a private
    step costs about as much as one without privacy. Several targets share one budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for the bounds and the training together.
        ``float("inf")`` is not private: it minimises the penalised mean loss by L-BFGS, without
        clipping and noise. None where `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
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
        Number of steps; all of them are charged. "auto" is 100 to 400, by the sizes of the data
        and the budget, and with a `batch_size` 100 or 20 passes, whichever is more. Without
        privacy it is the most iterations of L-BFGS, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size for scaled rows and targets. "auto" follows from the ratio of noise to
        signal and the number of parameters, all public. Not used without privacy.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9. Not used without privacy.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Not used without privacy.
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
        Bound on row norms that was used: `data_norm`, or released. 1 is a placeholder where
        noise has hidden it: ``predict`` then shrinks longer rows to it, as ``fit`` does.
    target_bounds_ : tuple of two ndarrays of shape (n_targets,)
        Range of the targets that was used: `target_bounds`, or released. -1 to 1 is a
        placeholder where noise has hidden it.
    bounds_found_ : dict
        Whether "data_norm" (a bool) and "target_bounds" (an ndarray of shape (n_targets,)) were
        given or found; False stands for a placeholder, of which ``fit`` warns.
    privacy_ : PrivacyGuarantee
        What the fit cost and what that rests on. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_iter_ : int
        Number of steps charged; without privacy, of the iterations that were needed.
    learning_rate_ : float or None
        Step size used; None for L-BFGS, which has none.
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
    (``"replace_one"``), from which the bound is read, off single cells or many together; then
    the sum of clipped gradients of every step, of sensitivity C or 2C with C = `clip_norm`.
    Event: Gaussian mechanisms, those of the steps on Poisson batches where `batch_size` is set,
    calibrated together and never above `epsilon`. The unit is one row. Assumed public: the
    numbers of rows, features and targets, `data_norm`, `target_bounds` and all other
    parameters.

    Released bounds are coarse, lie within 2^40 of 0, and are worse the smaller ``n * epsilon``
    is; the fit warns where rows are probably too few for them, and after it where they were. A
    target far from 0 beside its spread, a
    year say, ends in a range that is much too wide. Give both bounds where public knowledge
    has them. Columns in different units need public scaling first, since the largest decides
    the norm of a row, and columns far from 0 a public shift: no released number tells
    whether they had it, so that ``fit`` cannot warn.

    A scaler fitted on the private rows, cross-validation scores and everything else
    computed from them are *not* covered; see ``docs/privacy.md``.

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
