"""Private linear models by DP-SGD, without per-example gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Sizes
from dpsubspace._accounting.legacy import LinearBudget
from dpsubspace._checks import check_auto, check_choice
from dpsubspace._compat import with_callbacks
from dpsubspace._estimators.classifier import LinearClassifier
from dpsubspace._estimators.linear_model import Releases
from dpsubspace._estimators.regressor import LinearRegressor
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import Shift
from dpsubspace._rows.public import PublicRows
from dpsubspace._statistics.centring import recentred_mean
from dpsubspace._statistics.counts import RADIUS_COUNTS, count_noise, noisy_radius
from dpsubspace._statistics.means import noisy_mean

__all__ = ["DPSGDClassifier", "DPSGDFClassifier", "DPSGDRegressor"]


class DPSGDClassifier(LinearClassifier):
    """Differentially private linear classifier by DP-SGD.

    Each step sums the clipped gradients of all records and adds Gaussian noise. Gradients
    of a linear model are outer products, so they are clipped in closed form and a private
    step costs about as much as one without privacy. Several classes share one model and
    one budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6. ``float("inf")`` is not private: it minimises the
        penalised mean loss by L-BFGS, without clipping and noise. None where
        `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
        second needs twice the noise. The number of records is public in both.
    loss : {"log_loss", "hinge"}, default="log_loss"
        Multinomial log loss (for two classes the logistic loss), or the margin loss of
        support vector machines (Crammer and Singer's for more than two), which gives
        no probabilities: there is no ``predict_proba`` then.
    alpha : float, default=1e-6
        Weight of the penalty ``alpha / 2 * ||coef_||^2`` beside the mean loss. The
        intercept is not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 to 400, by the sizes of the data
        and the budget, and with a `batch_size` 100 or 20 passes, whichever is more. Without
        privacy it is the most iterations of L-BFGS, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal and the numbers of
        parameters and classes, all public. Not used without privacy.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9. Not used without privacy.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Not used without privacy.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record. "auto" is half the bound on a row.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip", None}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`; None changes nothing. Every affine decision boundary is kept.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class; 1 where a class is missing. Predicted
        probabilities are multiplied by it (Elkan, 2001), which costs no noise, where
        weighted gradients would. "balanced" would count private labels and is refused.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    microbatch_size : int or None, default=None
        Records to have in memory at once, rounded up to a multiple of 128, 65,536 at most;
        no more than memory and time depend on it. None leaves it to the device.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy, anything else torch, with the same arithmetic and
        noise. "auto" takes a GPU if there is one. Fitted attributes are NumPy arrays.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights; they act on rows after the map of `row_norm`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry: without class weights, the boundary of two classes
        in the original rows is ``coef_ @ x + intercept_scaling * intercept_ = 0``.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: the logarithm of the class weights.
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
    DPSGDFClassifier : The same on rows centred by their private mean.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released: the sum of clipped gradients of every step, which has L2 sensitivity C
    (``"zero_out"``) or 2C (``"replace_one"``) with C = `clip_norm`; the model is a
    function of these. Event: ``n_iter`` Gaussian mechanisms of one multiplier, calibrated
    exactly (Dong, Roth, Su, 2022) and never above `epsilon`. The unit is one row. Assumed
    public: the numbers of rows and features, the set of labels, `data_norm`,
    `class_weight` and all other parameters.

    Columns in different units need public scaling first: with ``row_norm="l2"`` the
    column with the largest numbers decides the direction of a row. Noisy weights do not tell
    whether they had it, so that ``fit`` cannot warn (:class:`DPSGDFClassifier` does). Clipping
    and noise bias probabilities, most for rare classes, which mostly come out too low, often by
    more than half: use them to rank, and calibrate on public rows where absolute risks matter.

    A scaler fitted on the private rows, cross-validation scores and everything else
    computed from them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Dong, Roth, Su. "Gaussian differential privacy". JRSS-B 84(1), 2022.

    Elkan. "The foundations of cost-sensitive learning". IJCAI 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> model = DPSGDClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> model.score(X_test, y_test) > 0.87
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
        y : array-like of shape (n_samples,)
            Private labels.

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


class DPSGDFClassifier(LinearClassifier):
    """DP-SGD with private feature preprocessing: rows are centred by their private mean.

    Rows that share a large common part have gradients that share it too; clipping then
    keeps the common part and drowns what tells the classes apart. A small share of the
    budget buys a noisy mean of the rows, training runs on rows shifted by it, and the
    weights are mapped back to unshifted rows.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for the mean and the training together.
        ``float("inf")`` is not private: it minimises the penalised mean loss by L-BFGS, without
        clipping and noise. None where `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
        second needs twice the noise. The number of records is public in both.
    preprocessing : {"practical", "adaptive", "auto"}, default="practical"
        What is released before training. "practical" is the mean. "adaptive" is a mean,
        a radius around it, the mean of the rows clipped to that and a radius around the
        second mean; training then runs on rows clipped to it, with noise in proportion to
        it and not to the bound on rows. "auto" is "adaptive" where `n_samples` and the
        noise, both public, say that the radius can be read (about ``n_samples * epsilon >
        800``), and else "practical".
    mean_share : float or "auto", default="auto"
        Share in (0, 1) of the budget (of mu^2) for everything before training. "auto" is 0.1.
    loss : {"log_loss", "hinge"}, default="log_loss"
        Multinomial log loss (for two classes the logistic loss), or the margin loss of
        support vector machines (Crammer and Singer's for more than two), which gives
        no probabilities: there is no ``predict_proba`` then.
    alpha : float, default=1e-6
        Weight of the penalty ``alpha / 2 * ||coef_||^2`` beside the mean loss. The
        intercept is not penalised. Adaptive preprocessing zooms in on the rows until
        `radius_` is the bound on a row: there, penalty, `learning_rate` and `clip_norm` are
        in units of the zoomed rows.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 to 400, by the sizes of the data
        and the budget, and with a `batch_size` 100 or 20 passes, whichever is more. Without
        privacy it is the most iterations of L-BFGS, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal and the numbers of
        parameters and classes, all public. Not used without privacy.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9. Not used without privacy.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Not used without privacy.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record. "auto" is a quarter of the bound on a row.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to the centred rows.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip"}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`. The mean needs one of them: without a bound it has no sensitivity.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class; 1 where a class is missing. Predicted
        probabilities are multiplied by it (Elkan, 2001), which costs no noise, where
        weighted gradients would. "balanced" would count private labels and is refused.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    microbatch_size : int or None, default=None
        Records to have in memory at once, rounded up to a multiple of 128, 65,536 at most;
        no more than memory and time depend on it. None leaves it to the device.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy, anything else torch, with the same arithmetic and
        noise. "auto" takes a GPU if there is one. Fitted attributes are NumPy arrays.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`. The mean's follows from `mean_share`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights; they act on rows after the map of `row_norm` (and before centring).
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry; zero without an intercept.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: what the shift leaves, the trained constant and the
        logarithm of the class weights.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Released mean of the mapped rows, with that of their bias entry, shrunk towards zero
        (a second mean: towards the first) by the estimator of James and Stein: where noise
        outweighs it, it is zero.
    radius_ : float
        Released radius around the mean to which mapped rows were clipped; inf where they
        were not, with practical preprocessing or without privacy.
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
    DPSGDClassifier : The same without centring.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Released: the sum of the mapped rows, of L2 sensitivity R (``"zero_out"``) or 2R
    (``"replace_one"``) with R = 1 for "l2" and ``hypot(data_norm, intercept_scaling)`` for
    "clip"; then, as in :class:`DPSGDClassifier`, the sum of clipped gradients of every
    step, of sensitivity C or 2C. Event: one Gaussian mechanism and ``n_iter`` more,
    calibrated together and exactly, never above `epsilon`. The unit is one row. Assumed
    public: the numbers of rows and features, the set of labels, `data_norm`,
    `class_weight` and all parameters.

    Adaptive preprocessing releases more before training: the sum of mapped rows as above;
    six counts of rows outside of radii around their mean, each of sensitivity 1 in both
    relations, from which twice the median distance is read, up to a factor of 2^(1/4); the
    sum of rows less that mean, clipped to that radius, of sensitivity the radius or twice
    it; six counts around the new mean. Where the radius is below half the bound on rows,
    those of float32 are used in float64, in about twice the time. Event: one Gaussian
    mechanism for each of these and of the steps.

    The practical version is Algorithm 3 of the paper. The paper leaves the
    neighbouring relation of the mean unstated and does not charge its grid search; here
    both relations are supported and the defaults need no search. The adaptive version is
    its Algorithm 2 with a mean that is centred twice instead of rotated rows and coordinate
    medians, the median in place of a high quantile, clipped gradients, and the budget
    composed exactly. A linear score of
    shifted rows and a constant is a linear score of the rows, their bias entry and a
    constant: ``W @ (r - m) + c = W @ r + (c - W @ m)``.

    Columns in different units need public scaling first, and probabilities are biased by
    clipping; see :class:`DPSGDClassifier`.

    Centring pays where rows share a common part (images, counts) and can cost a little
    where they do not. Where the noise of the mean outweighs it, the mean is shrunk to zero,
    which costs no more privacy.

    Which version: rows far from the origin beside their spread need the adaptive one. With
    epsilon 1 and 1,000 rows in 20 columns that are 100 standard deviations from zero, the
    practical one learns next to nothing and the adaptive one nearly what can be learned
    (accuracy 0.39 and 0.84, of 0.857, in three classes). On thirteen real data sets at
    epsilon 0.3, 1 and 3, where public scaling had taken most of the offset, it gained 0.6 to
    1.4 points on X-ray images. Elsewhere, where "auto" takes it, it was within 0.1 points
    of the practical one (once 0.35 above, within noise). Where rows are too few for a radius
    it lost up to 10 points. ``benchmarks/repro_adaptive.py`` has the table.

    References
    ----------
    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import DPSGDFClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> model.score(X_test, y_test) > 0.87
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        preprocessing: str = "practical",
        mean_share: float | str = "auto",
        loss: str = "log_loss",
        alpha: float = 1e-6,
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        row_norm: str | None = "l2",
        data_norm: float | None = None,
        class_weight: dict | None = None,
        classes: Any = None,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            loss=loss,
            alpha=alpha,
            n_iter=n_iter,
            learning_rate=learning_rate,
            momentum=momentum,
            average=average,
            clip_norm=clip_norm,
            batch_size=batch_size,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            row_norm=row_norm,
            data_norm=data_norm,
            class_weight=class_weight,
            classes=classes,
            microbatch_size=microbatch_size,
            device=device,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.preprocessing = preprocessing
        self.mean_share = mean_share

    @with_callbacks
    def fit(self, X: Any, y: Any):
        """Fit the model to private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied (but to a GPU). Sparse matrices are used in CSR form and stay sparse.
        y : array-like of shape (n_samples,)
            Private labels.

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("preprocessing", self.preprocessing, ("practical", "adaptive", "auto"))
        check_auto("mean_share", self.mean_share, low=0, high=1)
        if self.row_norm is None:
            raise ValueError(
                "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
                " private. Use row_norm='l2', or 'clip' with a public data_norm."
            )

    def _scale(self) -> tuple[float, float]:
        return _auto.CENTRED_CLIP, _auto.CENTRED_LARGEST

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        share = _auto.MEAN_SHARE if self.mean_share == "auto" else float(self.mean_share)
        parts = _auto.ADAPTIVE_PARTS if self.preprocessing == "adaptive" else {"mean": 1.0}
        counts = {"coarse radius": RADIUS_COUNTS, "radius": RADIUS_COUNTS}
        return {name: (share * part, counts.get(name, 1)) for name, part in parts.items()}

    def _budget(self, sizes: Sizes) -> LinearBudget:
        if self.preprocessing != "auto":
            return super()._budget(sizes)
        n_samples = sizes.known("n_samples", "preprocessing='auto'")
        version = copy.copy(self)
        version.preprocessing = "adaptive"
        budget = version._budget(sizes)
        noise = count_noise(budget.before["radius"], self.neighboring_relation)
        if noise > _auto.ADAPTIVE_NOISE * n_samples:
            version.preprocessing = "practical"
            budget = version._budget(sizes)
        return budget

    def _prepared(
        self, features: Features, releases: Releases, public: PublicRows | None
    ) -> Features:
        """Shift rows by a released mean; where the budget has a radius, clip them to it.

        Notes
        -----
        Privacy: the mean and the radius are constants once they are released, so a row that is
        shifted by the one and clipped to the other is a function of its record alone.
        Releases and steps compose adaptively.
        """
        budget, bound = releases.budget, features.bound
        constant = _auto.CENTRED_BIAS * self._clip_norm(bound) if self.fit_intercept else None
        if "radius" not in releases or not budget.private:
            return features.shifted(Shift(noisy_mean(features, bound, releases), constant))
        mean = recentred_mean(features, bound, releases)
        distances = features.shifted(Shift(mean, None)).distances()
        radius = min(bound, 2 * noisy_radius(distances, bound, releases, "radius"))
        # Rows that fill the radius as others fill the bound: all else stays as it is.
        zoom = bound / radius
        shift = Shift(mean, None if constant is None else constant / zoom)
        return features.shifted(shift).clipped(radius, zoom)


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
