"""Private linear models by DP-SGD, without per-example gradients.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.linear.LinearFit`, whose ``run`` is the whole fit. Rows are
shortened in ``_core/rows/records.py``, and about a mean by ``Features.clipped``. The gradient of
one row is shortened in ``_core/gradients/clipping.py`` (``clipped_sum``, ``shrink_factors``). Steps
are released by ``train`` in ``_core/solvers/descent.py``, and the length of scores with intercepts
by ``noisy_map`` in ``_core/solvers/intercepts.py``. Means, radii, norms and ranges come before, by
``_core/fits/bounds.py``, with the bounds of ``means.py``, ``counts.py`` and ``intervals.py`` in
``_core/statistics``. Noise is added in ``_core/release/mechanisms.py``. The event is made by
``Budget.split`` in ``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the
noise from the same budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from dpsubspace._core.fits.bounds import AdaptiveCentre, OneMean
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.ground.checks import check_choice
from dpsubspace._core.ground.compat import with_callbacks
from dpsubspace._core.plans.linear import LinearFit
from dpsubspace._names import public
from dpsubspace.linear_model._base import LinearClassifier, LinearRegressor, refuse_unbounded


@public
@estimator
class DPSGDClassifier(LinearClassifier):
    """Differentially private linear classifier by DP-SGD.

    Noise is added during the fit, so that the model tells little on whether any one row was used
    to train it. Each step sums the gradients of all rows, each shrunk to a bounded length, adds
    Gaussian noise to the sum, and moves the weights along the result. Several classes share one
    model and one budget.

    Choose `epsilon`, and look at `neighboring_relation`, `row_norm` and `classes`: they decide
    what is protected and what is taken to be public. All parameters from `alpha` on can be left
    alone. Their defaults follow from public sizes and the budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    row_norm : "l2", float or None, default="l2"
        How the length of rows is bounded, in ``fit`` and ``predict`` alike. "l2" divides each row,
        together with the constant entry of 0.5 that gives the intercept, by its L2 norm. A number
        is a public bound on the L2 norm: longer rows are shrunk to it, with their constant entry.
        None leaves rows as they are.
    classes : array-like or None, default=None
        All labels that can occur, from public knowledge. None reads them from `y`, and the
        guarantee then takes the set of labels to be public.
    class_weight : dict or None, default=None
        Public positive weight of each class, 1 where a class is missing. Predicted probabilities
        are multiplied by it (Elkan, 2001), which adds no noise; "hinge" has no probabilities and
        refuses it. "balanced" would count private labels and is refused.
    loss : {"log_loss", "hinge"}, default="log_loss"
        "log_loss" is logistic regression (multinomial for more than two classes). "hinge" is the
        loss of support vector machines (that of Crammer and Singer for more than two classes); it
        gives no probabilities, and there is no ``predict_proba`` then.
    batch_size : int or None, default=None
        Expected number of rows in the random (Poisson) batch of a step. None uses all rows in
        every step, which needs the least noise. Batches make steps faster and the model less
        accurate. Not used with ``epsilon=float("inf")``: every step then uses all rows.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    alpha : float, default=1e-6
        Strength of the L2 penalty, 0 or more: ``alpha / 2`` times the squared norm of the weights
        is added to the mean loss. Intercepts of linear models are not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps, each of which costs privacy. "auto" is 100 to 160, or up to 400 for a
        module, by public sizes and the budget. With a `batch_size` it is 20 passes over the rows,
        but at least 100 and at most 10,000 steps. Without privacy it is the largest number of
        iterations, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the noise and the numbers of rows, weights and classes, all
        public. L-BFGS, which fits linear models without privacy, uses none.
    clip_norm : float or "auto", default="auto"
        Bound on the L2 norm of what one row adds to the sum of gradients of a step; longer
        gradients are shrunk to it. Noise is in proportion to it, so that a smaller bound means
        less noise and more bias. "auto" is a public number: see Notes. Nothing is clipped with
        ``epsilon=float("inf")``.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    noise_multiplier : float or None, default=None
        For experts, together with ``epsilon=None``: standard deviation of the noise of a step in
        units of `clip_norm`, from 1e-6 to 1e9. The fit then computes its epsilon. What is released
        beside the steps gets noise by its usual share of the budget.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights. They act on rows after the map of `row_norm`, so that
        ``X @ coef_.T + intercept_``, which some tools compute by themselves, is not the score:
        :meth:`decision_function` is. Nor are they effects of columns, which
        :func:`private_coefficients` estimates with intervals.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the constant entry after the map of `row_norm`. But for `offset_`, the score of a
        row x is in proportion to ``coef_ @ x + 0.5 * intercept_``, by a factor of that row.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: the released shift (see Notes), and the logarithm of the class
        weights.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of steps charged; without privacy, number of iterations that were needed.
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
    DPSGDFClassifier : The same on rows centred by their private mean, and often more accurate.
    GEPClassifier : The same with the help of public rows.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    What is released is the noisy sum of clipped gradients of every step; the model is computed
    from these sums. One row changes the sum by at most C in L2 norm (``"zero_out"``) or 2C
    (``"replace_one"``), with C = `clip_norm`. Three more noisy sums correct the scores, see below.
    The cost is that of ``n_iter`` Gaussian mechanisms of one noise multiplier, each on a Poisson
    batch where `batch_size` is set, and of three more. Together they never cost more than
    `epsilon`, and the cost of full batches is computed exactly (Dong, Roth, Su, 2022). The unit is
    one row. Public are the number of rows, the number and names of the features, the set of labels,
    and all parameters but `random_state`.

    The length of the gradient of one row follows from the lengths of the row and of its error, so
    that gradients are clipped without forming them, and a private step costs about as much as one
    without privacy. Steps use Nesterov momentum of 0.9 or more, and the model is the mean of the
    last quarter of the steps, which averages noise out. ``clip_norm="auto"`` is half the bound on a
    row with its constant entry, which is 1 with "l2", and which is taken to be 1 with None. The map
    of `row_norm` keeps every affine decision boundary. With ``epsilon=float("inf")`` the penalised
    mean loss is minimised by L-BFGS, without clipping.

    Columns in different units need public scaling first (:class:`BoundedScaler`): with
    ``row_norm="l2"`` the column with the largest numbers decides the direction of a row. Noisy
    weights do not tell whether columns were scaled, so that ``fit`` cannot warn of it, as
    :class:`DPSGDFClassifier` does.

    Clipping shrinks the gradients of rows with large residuals. These are rows of rare classes,
    which are left with scores that are too low, and rows on the wrong side, so that scores of two
    classes become too long and their probabilities too near 0 and 1. So scores are shifted after
    training, and those of two classes are multiplied by one number, for 1.2 % of the budget (of
    mu^2). Released are three noisy sums over the rows, each where the one before has led: of the
    probabilities of each class, less the number of its rows, and their derivatives; of two classes
    also of how much nearer to 0 and 1 probabilities are than they should be. Of two classes a row
    changes such a sum by at most ``sqrt(1.5)`` in L2 norm (``"zero_out"``) or twice that
    (``"replace_one"``), and of more by ``sqrt(2)`` or twice that. The shift brings the mean
    probability of a class to the share of its rows, and the factor makes log-odds about as large as
    the labels say that they are. Where noise hides that, the factor is near 1 and the shift near a
    usual one, which is 0 where rows are not centred or belong to persons: probabilities of rare
    classes then stay too low, often by more than a third. Nothing is changed with "hinge", without
    an intercept, and with ``epsilon=float("inf")``; nor by :class:`GEPClassifier`, where there are
    public rows. With few rows or a small epsilon, single probabilities are biased in any case:
    calibrate on public rows where absolute risks matter.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

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

    _canary = "linear labels"

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    row_norm: str | float | None = "l2"
    classes: Any = None
    class_weight: dict[Any, float] | None = None
    loss: str = "log_loss"
    batch_size: int | None = None
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None
    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    fit_intercept: bool = True
    noise_multiplier: float | None = None

    @with_callbacks
    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the model to private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied (but to a GPU). Sparse matrices are used in CSR form and stay sparse.
            Rows of Dask arrays and data frames stay on the workers of a cluster. Those of a dataset
            of PyArrow are read from its files in each step, and `y` is then the name of a column.
        y : array-like of shape (n_samples,)
            Private labels.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

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
        return self._fit_by(self._plan(), X, y, groups=groups)


@public
@estimator
class DPSGDFClassifier(LinearClassifier):
    """Differentially private linear classifier by DP-SGD on centred rows.

    Rows that have much in common (the grey of all images, say) have gradients that have it in
    common too. Clipping then keeps the common part and drowns what tells the classes apart. So a
    tenth of the budget pays for a noisy mean of the rows, and :class:`DPSGDClassifier` trains on
    rows less that mean. Where rows are many enough, it also pays for a radius about the mean that
    rows are clipped to, so that noise does not hide rows that are far from the origin and near each
    other. The weights are mapped back, and ``predict`` takes rows as they are.

    Choose `epsilon`, and look at `neighboring_relation`, `preprocessing`, `row_norm` and
    `classes`. All parameters from `alpha` on can be left alone. Their defaults follow from public
    sizes and the budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    preprocessing : {"practical", "adaptive", "auto"}, default="auto"
        What is released before training. "practical" releases a mean of the rows. "adaptive"
        releases a mean, a radius around it, and then a better mean and radius; training runs on
        rows clipped to that radius, with less noise. It is for rows that are far from the origin
        compared with their spread. "auto" is "adaptive" where `n_samples` and the noise, both
        public, say that a radius can be found (about ``n_samples * epsilon > 800``), and else
        "practical". Not used with ``epsilon=float("inf")``: rows are then centred by their mean.
    row_norm : "l2" or float, default="l2"
        How the length of rows is bounded, in ``fit`` and ``predict`` alike. "l2" divides each row,
        together with the constant entry of 0.5 that gives the intercept, by its L2 norm. A number
        is a public bound on the L2 norm: longer rows are shrunk to it, with their constant entry.
        None is refused here, since the mean of unbounded rows cannot be private.
    classes : array-like or None, default=None
        All labels that can occur, from public knowledge. None reads them from `y`, and the
        guarantee then takes the set of labels to be public.
    class_weight : dict or None, default=None
        Public positive weight of each class, 1 where a class is missing. Predicted probabilities
        are multiplied by it (Elkan, 2001), which adds no noise; "hinge" has no probabilities and
        refuses it. "balanced" would count private labels and is refused.
    loss : {"log_loss", "hinge"}, default="log_loss"
        "log_loss" is logistic regression (multinomial for more than two classes). "hinge" is the
        loss of support vector machines (that of Crammer and Singer for more than two classes); it
        gives no probabilities, and there is no ``predict_proba`` then.
    batch_size : int or None, default=None
        Expected number of rows in the random (Poisson) batch of a step. None uses all rows in
        every step, which needs the least noise. Batches make steps faster and the model less
        accurate. Not used with ``epsilon=float("inf")``: every step then uses all rows.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    alpha : float, default=1e-6
        Strength of the L2 penalty, 0 or more: ``alpha / 2`` times the squared norm of the weights
        is added to the mean loss. Intercepts of linear models are not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps, each of which costs privacy. "auto" is 100 to 160, or up to 400 for a
        module, by public sizes and the budget. With a `batch_size` it is 20 passes over the rows,
        but at least 100 and at most 10,000 steps. Without privacy it is the largest number of
        iterations, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the noise and the numbers of rows, weights and classes, all
        public. L-BFGS, which fits linear models without privacy, uses none.
    clip_norm : float or "auto", default="auto"
        Bound on the L2 norm of what one row adds to the sum of gradients of a step; longer
        gradients are shrunk to it. Noise is in proportion to it, so that a smaller bound means
        less noise and more bias. "auto" is a public number: see Notes. Nothing is clipped with
        ``epsilon=float("inf")``.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    noise_multiplier : float or None, default=None
        For experts, together with ``epsilon=None``: standard deviation of the noise of a step in
        units of `clip_norm`, from 1e-6 to 1e9. The fit then computes its epsilon. What is released
        beside the steps gets noise by its usual share of the budget.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights. They act on rows after the map of `row_norm`, and before centring, so that
        ``X @ coef_.T + intercept_``, which some tools compute by themselves, is not the score:
        :meth:`decision_function` is. Nor are they effects of columns, which
        :func:`private_coefficients` estimates with intervals.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the constant entry after the map of `row_norm`; zero without an intercept.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores. It holds what centring leaves, the trained constant, the
        released shift and the logarithm of the class weights.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Released mean of the mapped rows, with that of their constant entry. It is shrunk towards
        zero (a second mean: towards the first) by the estimator of James and Stein: where noise
        outweighs it, it is zero.
    mean_error_ : float
        About how far noise has moved ``mean_``, in L2 norm. Half of ``radius_`` or more means that
        rows are not centred: noise hides where they are.
    radius_ : float
        Released radius around the mean to which mapped rows were clipped. Where it is below their
        bound, about half of them are within half of it. It is inf where rows were not clipped: with
        practical preprocessing, or without privacy.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of steps charged; without privacy, number of iterations that were needed.
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
    GEPClassifier : The same with the help of public rows.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    What practical preprocessing releases is the noisy sum of the mapped rows. One row changes it by
    at most R in L2 norm (``"zero_out"``) or 2R (``"replace_one"``), with R = 1 for "l2" and
    ``hypot(row_norm, 0.5)`` for a number (`row_norm` itself without an intercept). Then, as in
    :class:`DPSGDClassifier`, the noisy sum of clipped gradients of every step is released, which a
    row changes by at most C or 2C with C = `clip_norm`, and the three noisy sums that correct
    scores. The cost is that of four Gaussian mechanisms and ``n_iter`` more, those of the steps on
    Poisson batches where `batch_size` is set. Together they never cost more than `epsilon`, and the
    cost of full batches is computed exactly. The unit is one row. Public are the number of rows,
    the number and names of the features, the set of labels, and all parameters but `random_state`.

    Adaptive preprocessing releases more before training, for the same tenth of the budget (of
    mu^2): the sum of mapped rows as above; six counts of rows outside of radii around their mean,
    each of which a row changes by at most 1 in both relations, and from which twice the median
    distance is read, up to a factor of 2^(1/4); the sum of rows less that mean, clipped to that
    radius or to R, which a row changes by at most that or twice it; and six counts around the new
    mean. Each of these is one Gaussian mechanism. Rows are then zoomed in on until `radius_` is
    the bound on a row: the penalty, `learning_rate` and `clip_norm` are in units of the zoomed
    rows. Where the radius is below half the bound on rows, rows of float32 are used in float64,
    which takes about twice the time. Where ``mean_error_`` is about half of ``radius_``, ``fit``
    warns that rows are still off centre.

    ``clip_norm="auto"`` is a quarter of the bound on a row. Where public sizes say that noise of
    privacy is small beside chance, and steps are left to "auto" too, the log loss is clipped less
    and less, at last next to nothing, with up to five times as many and shorter steps. How steps
    are made, what ``epsilon=float("inf")`` does and how scores are corrected is said in
    :class:`DPSGDClassifier`. The usual shift of rows of one length (``row_norm="l2"``) follows from
    their mean and the weights. Columns in different units need public scaling first
    (:class:`BoundedScaler`). ``fit`` warns where the released mean shows that one or two columns
    make up most of the length of the rows.

    The practical version is Algorithm 3 of the paper. The paper leaves the neighbouring relation
    of the mean unstated and does not charge its grid search. Here both relations are supported and
    the defaults need no search. The adaptive version is its Algorithm 2 with a mean that is
    centred twice instead of rotated rows and coordinate medians, the median in place of a high
    quantile, clipped gradients, and the budget composed exactly. A linear score of shifted rows
    and a constant is a linear score of the rows, their constant entry and a constant:
    ``W @ (r - m) + c = W @ r + (c - W @ m)``.

    Centring pays where rows share a common part (images, counts) and can cost a little where they
    do not. Where the noise of the mean outweighs it, the mean is shrunk to zero, which costs no
    more privacy. Rows that are far from the origin compared with their spread need the adaptive
    version: on the paper's counter-example (its Theorem 3) the practical one is no better than
    chance. It does harm where rows are too few for a radius, and "auto" does not take it there.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Dong, Roth, Su. "Gaussian differential privacy". JRSS-B 84(1), 2022.

    Elkan. "The foundations of cost-sensitive learning". IJCAI 2001.

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

    _canary = "linear labels"

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    preprocessing: str = "auto"
    row_norm: str | float | None = "l2"
    classes: Any = None
    class_weight: dict[Any, float] | None = None
    loss: str = "log_loss"
    batch_size: int | None = None
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None
    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    fit_intercept: bool = True
    noise_multiplier: float | None = None

    @with_callbacks
    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the model to private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied (but to a GPU). Sparse matrices are used in CSR form and stay sparse.
            Rows of Dask arrays and data frames stay on the workers of a cluster. Those of a dataset
            of PyArrow are read from its files in each step, and `y` is then the name of a column.
        y : array-like of shape (n_samples,)
            Private labels.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

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
        return self._fit_by(self._plan(), X, y, groups=groups)

    def _plan(self) -> LinearFit:
        plan = super()._plan()
        refuse_unbounded(self.row_norm)
        check_choice("preprocessing", self.preprocessing, ("practical", "adaptive", "auto"))
        if self.preprocessing == "adaptive":
            return replace(plan, centre=AdaptiveCentre())
        readable = AdaptiveCentre() if self.preprocessing == "auto" else None
        return replace(plan, centre=OneMean(), centre_if=readable)


@public
@estimator
class DPSGDRegressor(LinearRegressor):
    """Differentially private linear regression by DP-SGD.

    Noise is added during the fit, so that the model tells little on whether any one row was used
    to train it. Each step sums the gradients of all rows, each shrunk to a bounded length, adds
    Gaussian noise to the sum, and moves the weights along the result. Several targets share one
    model and one budget.

    Choose `epsilon`, and give `data_norm` and `target_bounds` from public knowledge wherever there
    is any: bounds that are not given cost a part of the budget, and are coarse. Look at
    `neighboring_relation` too. All parameters from `alpha` on can be left alone. Their defaults
    follow from public sizes and the budget.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    data_norm : float or None, default=None
        Public bound on the L2 norm of rows; longer private rows are shrunk to it. None takes the
        largest norm of the public rows where those tell it. Else a coarse bound is found from noisy
        counts, which cost a part of the budget.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, which apply to every target, or two arrays of
        shape (n_targets,), the low ends and the high ends (not one pair for each target). Targets
        outside are clipped to it in ``fit``. None takes the range of `y_public`, a tenth wider on
        either side, where the fit is given targets of public rows. Else a coarse range is found
        from noisy counts, which cost a part of the budget.
    loss : {"squared_error", "huber"}, default="squared_error"
        "squared_error" is half the squared error of the scaled target. "huber" grows only linearly
        where the error is above 0.1, which is a twentieth of the range of the targets.
    batch_size : int or None, default=None
        Expected number of rows in the random (Poisson) batch of a step. None uses all rows in
        every step, which needs the least noise. Batches make steps faster and the model less
        accurate. Not used with ``epsilon=float("inf")``: every step then uses all rows.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    alpha : float, default=1e-6
        Strength of the L2 penalty, 0 or more: ``alpha / 2`` times the squared norm of the weights
        is added to the mean loss. Intercepts of linear models are not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps, each of which costs privacy. "auto" is 100 to 160, or up to 400 for a
        module, by public sizes and the budget. With a `batch_size` it is 20 passes over the rows,
        but at least 100 and at most 10,000 steps. Without privacy it is the largest number of
        iterations, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the noise and the numbers of rows, weights and classes, all
        public. L-BFGS, which fits linear models without privacy, uses none.
    clip_norm : float or "auto", default="auto"
        Bound on the L2 norm of what one row adds to the sum of gradients of a step; longer
        gradients are shrunk to it. Noise is in proportion to it, so that a smaller bound means
        less noise and more bias. "auto" is a public number: see Notes. Nothing is clipped with
        ``epsilon=float("inf")``.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    noise_multiplier : float or None, default=None
        For experts, together with ``epsilon=None``: standard deviation of the noise of a step in
        units of `clip_norm`, from 1e-6 to 1e9. The fit then computes its epsilon. What is released
        beside the steps gets noise by its usual share of the budget.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights in the units of the data: ``predict`` is ``X @ coef_.T + intercept_``.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant term.
    data_norm_ : float
        Bound on the L2 norm of rows that was used: given, public or released. 1 is a placeholder
        where noise has hidden it: ``predict`` then shrinks longer rows to it, as ``fit`` does.
    target_bounds_ : tuple of two ndarrays of shape (n_targets,)
        Range of the targets that was used: given, public or released, or the part of a given one
        that targets were seen in. -1 to 1 is a placeholder where noise has hidden it.
    bounds_found_ : dict
        Whether "data_norm" (a bool) and "target_bounds" (an ndarray of shape (n_targets,)) were
        given or found. False stands for a placeholder, and ``fit`` warns of it.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of steps charged; without privacy, number of iterations that were needed.
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
    DPLinearRegression : Linear regression of columns in any units, without bounds.
    DPSGDClassifier : The same for classes.
    GEPRegressor : The same with the help of public rows.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    What is released for each bound that is not given, with a tenth of the budget for all of them
    (of mu^2: see "Shares of a budget" in ``docs/privacy_details.md``), are noisy counts. Row norms
    are counted once, in cells between half powers of 2. All targets are counted eight times: in
    cells between powers of 2, and then in equal cells about the place that was found, closer each
    time, as public sums of neighbouring cells. Ranges leave out about a hundredth of the values at
    either end. One row changes the counts of t columns by at most sqrt(t) in L2 norm
    (``"zero_out"``) or sqrt(2 t) (``"replace_one"``). Then the noisy sum of clipped gradients of
    every step is released, which a row changes by at most C or 2C with C = `clip_norm`. The cost
    is that of one Gaussian mechanism for row norms, eight for targets and ``n_iter`` more, those
    of the steps on Poisson batches where `batch_size` is set. Together they never cost more than
    `epsilon`, and the cost of full batches is computed exactly. The unit is one row. Public are the
    number of rows, the number and names of the features, the number of targets, and all parameters
    but `random_state`.

    Where in `target_bounds` the targets lie is looked at with a fiftieth of the budget: their mean
    and their mean deviation from it are released, of which a record contributes one number each, at
    most 1 and 2 on the scale of half the range. Only where that shows a part of the range that is
    three times narrower does this part take its place: a range in a wrong unit, a hundred times too
    wide, then costs little. ``fit`` warns of it, and of targets at an end of the range or beyond
    it. With fewer rows than about 2,000 divided by `epsilon`, noise hides either: no released
    number tells such a range from one that fits, and a model of it is far worse than a constant in
    silence.

    Released bounds are coarse, and are worse the smaller ``n_samples * epsilon`` is. The bound on
    row norms is at most 2^40. The fit warns where rows are probably too few for them, and after it
    where they were. A target that is far from 0 compared with its spread, a year say, needs more
    rows than others, about a thousand at ``epsilon=1``. With fewer rows its range may be much too
    wide, and ``fit`` warns of it. Columns in different units need public scaling first
    (:class:`BoundedScaler`), since the largest decides the norm of a row, and columns far from 0
    need a public shift. With `target_bounds`, a hundredth of the budget looks at it: what part of
    the squared length of a row each column holds, on average, of which a record contributes numbers
    from 0 that add up to 1 at most. A row changes their sum by at most 1 or sqrt(2). ``fit`` warns
    where one column, or two of many, make up most of the length. Without `target_bounds` nothing is
    looked at, and no released number tells. :class:`DPLinearRegression` needs none of this.

    Rows are divided by the bound on their norm, and targets are mapped from their range to [-1,
    1]: `alpha`, `learning_rate` and `clip_norm` are for these. ``clip_norm="auto"`` is 0.35 times
    the bound on a scaled row with its constant entry, and a twentieth of that bound for the Huber
    loss. The constant entry is 0.5 times `data_norm`. Steps use Nesterov momentum of 0.9 or more,
    and the model is the mean of the last quarter of the steps, which averages noise out. With
    ``fit_intercept=False`` the constant is the middle of the range of the targets, and not 0. With
    ``epsilon=float("inf")`` the penalised mean loss is minimised by L-BFGS, without clipping.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

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

    _canary = "linear numbers"

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    data_norm: float | None = None
    target_bounds: tuple[Any, Any] | None = None
    loss: str = "squared_error"
    batch_size: int | None = None
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None
    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    fit_intercept: bool = True
    noise_multiplier: float | None = None

    @with_callbacks
    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit the model to private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied (but to a GPU). Sparse matrices are used in CSR form and stay sparse.
            Rows of Dask arrays and data frames stay on the workers of a cluster. Those of a dataset
            of PyArrow are read from its files in each step, and `y` is then the name of a column.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.

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
        return self._fit_by(self._plan(), X, y, groups=groups)
