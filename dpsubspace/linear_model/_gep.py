"""Private linear models that use public rows: gradient embedding perturbation and its variants.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.linear.LinearFit`, whose ``run`` is the whole fit. Rows are
shortened in ``_core/rows/records.py``; a released mean shifts them, and nothing shortens them about
it. The gradient of one row is shortened in ``_core/gradients/clipping.py`` (``clipped_sum``,
``shrink_factors``) or, on directions, in ``_core/solvers/descent.py`` (``GEPStep.sums``). The mean
is bounded in ``_core/statistics/means.py``, checks of public rows (``_core/plans/guide.py``) in
``_core/statistics/counts.py``, and the sums that correct scores in ``_core/solvers/intercepts.py``.
Noise is added in ``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from dpsubspace._core.fits.bounds import OneMean
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.ground.checks import check_bool, check_choice
from dpsubspace._core.ground.compat import with_callbacks
from dpsubspace._core.plans.guide import PublicGuide, check_components, linear_anchors
from dpsubspace._core.plans.linear import Fitted, LinearFit
from dpsubspace._core.public.anchors import LABELS, VALUES, Targets
from dpsubspace._names import public
from dpsubspace.linear_model._base import (
    Labels,
    LinearClassifier,
    LinearRegressor,
    Values,
    refuse_unbounded,
)


@public
@estimator
class GEPClassifier(LinearClassifier):
    """Differentially private linear classifier that uses public rows.

    Public rows tell where the gradients of private rows mostly lie, so that noise is spent on a few
    directions and not on all. They also help to centre the rows and, with labels, give weights to
    start from. They are passed to ``fit`` as `X_public` and `y_public`. Nothing protects them, and
    the model may show them. So they must really be public, and must not have been chosen by looking
    at the private rows. Then they cost no privacy, and bad ones cost at most accuracy: a small part
    of the budget checks what they are good for.

    Choose `epsilon`, and look at `neighboring_relation`, `row_norm` and `classes`: they decide
    what is protected and what is taken to be public. All parameters from `alpha` on can be left
    alone. Their defaults follow from public sizes, public rows, released numbers and the budget.

    Parameters
    ----------
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
    n_components : int or "auto", default="auto"
        Number of directions of features; each has one weight for every column of scores. Fewer are
        used where public rows span fewer, and 0 is plain DP-SGD. "auto" is ``2 * sqrt(r)`` where
        public rows have enough on so few, with r the number of rows over the noise multiplier of
        all steps. Else it keeps every direction that is stronger than the noise, and at least as
        many as hold 60 % of the sum of squares of the public rows. It takes the whole space where
        all stand out, or where a released number tells that private rows have too little on the
        directions. Leave it at "auto" with a :class:`GradientDirections`, which has a number of its
        own. Without public rows it has no effect.
    directions : {"auto", "features"} or GradientDirections, default="auto"
        Along which directions the noise is concentrated. "features" takes the principal directions
        of the public rows, for linear models; they need no labels and stay the same during the
        fit. A :class:`GradientDirections` takes the top directions of public gradients at every
        step. "auto" is "features" for linear models and ``GradientDirections()`` for modules.
        Without public rows it has no effect, nor with ``epsilon=float("inf")`` where a residual
        leaves nothing out.
    init : {"auto", "zero", "public"}, default="auto"
        Where training starts: from zero ("zero"), or from a fit to the labelled public rows
        ("public"), which shortens the way. "auto" is "public" where `y_public` is given and a
        released number tells that this fit is of use on the private rows, and else "zero".
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight that
        grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).

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
        Constant added to the scores. It holds what centring leaves, the trained constant and the
        logarithm of the class weights.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean by which mapped rows were shifted, made of released and public values.
    mean_error_ : float
        About how far noise has moved ``mean_``, in L2 norm.
    n_components_ : int or None
        Number of directions that gradients were embedded on (the most, for directions of
        gradients). None where the whole space was trained.
    init_ : {"zero", "public"}
        Where training started.
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
    DPSGDFClassifier : The same without public rows.
    GEPRegressor : The same for numbers.
    GradientDirections : Directions of gradients, as in the paper.
    DPModuleClassifier : The same for torch modules.

    Notes
    -----
    What is released first is the noisy sum of the mapped rows, as by :class:`DPSGDFClassifier`,
    with a twentieth of the budget, or a tenth without public rows (of mu^2: see "Shares of a
    budget" in ``docs/privacy_details.md``). It is combined with the mean of the public rows, each
    weighted by what it is worth. With another twentieth, noisy checks are released: up to two means
    of numbers in [0, 1], which together a row changes as sums by at most sqrt(2) in L2 norm. One is
    the share of a row's square that is on the directions, cut off at twice what makes them of use,
    which is a public number. It is asked where ``n_components="auto"`` with directions of features.
    The other is whether the fit to the public rows is right about the row, and is asked where
    `y_public` is given with ``init="auto"`` or ``mirror=True``. Without noise, that fit is used
    where it is right more often than half-way from chance to what it gets right of held-out public
    rows. The more noise there is, the more weight has how clearly labels of held-out public rows
    are told from chance. Gradients of public rows are then not mixed in either. Nothing is spent on
    checks where neither is asked.

    Then the noisy sum of clipped embeddings of every step is released, an embedding being what a
    gradient has on the directions. One row changes it by at most C (``"zero_out"``) or 2C
    (``"replace_one"``), with C = `clip_norm`; where the
    whole space is trained, whole gradients are clipped and released instead, with the same bound.
    With a :class:`GradientDirections` residuals may be released as well. The cost is that of one
    Gaussian mechanism for each of the first releases and ``n_iter`` more, those of the steps on
    Poisson batches where `batch_size` is set. Together they never cost more than `epsilon`. The
    unit is one row. Public are the number of rows, the number and names of the features, the set
    of labels, `X_public` and `y_public`, and all parameters but `random_state`.

    Directions depend on public rows, random or public labels, and parameters that earlier releases
    determine. That fails if public rows were *chosen* or scaled by looking at private ones: then
    the choice is a release to pay for.

    Without public rows this is :class:`DPSGDFClassifier` with ``preprocessing="practical"``, and
    ``fit`` warns. ``clip_norm="auto"`` is a quarter of the bound on a row. How steps are made is
    said in :class:`DPSGDClassifier`. Scores are shifted as there where there are no public rows.
    With them they are not, and clipping and noise bias probabilities: those of rare classes are
    mostly too low. Columns in different units need public scaling first (:class:`BoundedScaler`),
    public rows like the private ones. ``fit`` warns where the released mean shows that one or two
    columns make up most of the length of the rows. With ``epsilon=float("inf")`` the penalised mean
    loss is minimised by L-BFGS, without clipping; with ``mirror=True``, or a
    :class:`GradientDirections` without residuals, it is trained by descent.

    Public rows help where noise outweighs the signal: few rows, small epsilon. Labelled ones from
    the same source help most, and the model fitted to them alone is what to beat. No gradient is
    ever formed: inner products of rows with public rows are computed once, and those of gradients
    follow from them.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta. "Public
    data-assisted mirror descent for private model training". ICML 2022.

    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Elkan. "The foundations of cost-sensitive learning". IJCAI 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import GEPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> X, X_public, y, y_public = train_test_split(X, y, test_size=100, random_state=0)
    >>> model = GEPClassifier(epsilon=1.0, random_state=0)
    >>> model.fit(X, y, X_public=(X_public,), y_public=(y_public,)).score(X_test, y_test) > 0.87
    True
    """

    _canary = "linear labels"
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

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
    n_components: int | str = "auto"
    directions: Any = "auto"
    init: str = "auto"
    mirror: bool = False

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the model to private rows, with the help of public ones.

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
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation. With ``epsilon=float("inf")`` the fit needs no help of
            theirs, and ends where it would without them, but for `mirror` and directions without a
            residual.
        y_public : array-like of shape (m,), or tuple of such, optional
            Their labels, in the form of `X_public`. With ``init="zero"`` only `mirror` and
            directions of public labels look at them.

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
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public, y_public=y_public)

    def _plan(self) -> LinearFit:
        plan = super()._plan()
        refuse_unbounded(self.row_norm)
        return replace(plan, centre=OneMean(), guide=_guide(self, LABELS), interacting=False)

    def _store(self, found: Fitted, labels: Labels) -> None:
        self.init_: str = found.init
        self.n_components_: int | None = found.n_components
        super()._store(found, labels)


@public
@estimator
class GEPRegressor(LinearRegressor):
    """Differentially private linear regression that uses public rows.

    Public rows tell where the gradients of private rows mostly lie, so that noise is spent on a
    few directions and not on all. They also help to centre the rows, give a bound on their length
    and, with targets, a range of the targets and weights to start from. They are passed to ``fit``
    as `X_public` and `y_public`. Nothing protects them, and the model may show
    them. So they must really be public, and must not have been chosen by looking at the private
    rows. Then they cost no privacy, and bad ones cost at most accuracy.

    Choose `epsilon`, and give `data_norm` and `target_bounds` from public knowledge where public
    rows do not tell them. Look at `neighboring_relation` too. All parameters from `alpha` on can
    be left alone. Their defaults follow from public sizes, public rows, released numbers and the
    budget.

    Parameters
    ----------
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
    n_components : int or "auto", default="auto"
        Number of directions of features; each has one weight for every column of scores. Fewer are
        used where public rows span fewer, and 0 is plain DP-SGD. "auto" is ``2 * sqrt(r)`` where
        public rows have enough on so few, with r the number of rows over the noise multiplier of
        all steps. Else it keeps every direction that is stronger than the noise, and at least as
        many as hold 60 % of the sum of squares of the public rows. It takes the whole space where
        all stand out, or where a released number tells that private rows have too little on the
        directions. Leave it at "auto" with a :class:`GradientDirections`, which has a number of its
        own. Without public rows it has no effect.
    directions : {"auto", "features"} or GradientDirections, default="auto"
        Along which directions the noise is concentrated. "features" takes the principal directions
        of the public rows, for linear models; they need no labels and stay the same during the
        fit. A :class:`GradientDirections` takes the top directions of public gradients at every
        step. "auto" is "features" for linear models and ``GradientDirections()`` for modules.
        Without public rows it has no effect, nor with ``epsilon=float("inf")`` where a residual
        leaves nothing out.
    init : {"auto", "zero", "public"}, default="auto"
        Where training starts: from zero ("zero"), or from a fit to the labelled public rows
        ("public"), which shortens the way. "auto" is "public" where `y_public` is given and a
        released number tells that this fit is of use on the private rows, and else "zero".
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight that
        grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).

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
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean by which scaled rows were shifted, made of released and public values.
    n_components_ : int or None
        Number of directions that gradients were embedded on (the most, for directions of
        gradients). None where the whole space was trained.
    init_ : {"zero", "public"}
        Where training started.
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
    DPSGDRegressor : The same without public rows and without centring.
    GEPClassifier : The same for classes, with more on what to expect.
    GradientDirections : Directions of gradients, as in the paper.
    DPModuleRegressor : The same for torch modules.

    Notes
    -----
    What is released are noisy counts for the bounds that neither parameters nor public rows give,
    as by :class:`DPSGDRegressor`, with a tenth of the budget (of mu^2); the noisy sum of the
    scaled rows, with a twentieth, or a tenth without public rows; with a twentieth, noisy checks
    of what public rows are good for; and at every step the noisy sum of clipped embeddings, all
    three as by :class:`GEPClassifier`. Here a fit to the public rows is right about a row if it is
    closer to the target than the mean of the public targets. A range in `target_bounds` is looked
    at with a fiftieth of the budget, and the columns with a hundredth, as by
    :class:`DPSGDRegressor`. The cost is that of eight
    Gaussian mechanisms for targets and one for each of the others, those of the steps on Poisson
    batches where `batch_size` is set. Together they never cost more than `epsilon`. The unit is one
    row.
    Public are the number of rows, the number and names of the features, the number of targets,
    `X_public` and `y_public`, and all parameters but `random_state`. Public rows must not be
    *chosen* or scaled by looking at private ones: then the choice is a release to pay for.

    Without public rows this is private regression by DP-SGD on centred rows, and ``fit`` warns.
    ``clip_norm="auto"`` is 0.175 times the bound on a scaled row, and a fortieth of it for the
    Huber loss. In which units that is, how steps are made and what ``fit_intercept=False`` means
    is said in :class:`DPSGDRegressor`. Columns in different units need public scaling first
    (:class:`BoundedScaler`), public rows like the private ones. ``fit`` warns where released
    numbers show that a bound was not found, or that one or two columns make up most of the length
    of the rows. With ``epsilon=float("inf")`` the penalised mean loss is minimised by L-BFGS,
    without clipping; with ``mirror=True``, or a :class:`GradientDirections` without residuals, it
    is trained by descent.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta. "Public
    data-assisted mirror descent for private model training". ICML 2022.

    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially
    private linear optimization". ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import GEPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 4))
    >>> y = 20 + X @ [3.0, -2.0, 1.0, 0.0] + rng.normal(size=5000)
    >>> model = GEPRegressor(epsilon=0.3, data_norm=2.0, target_bounds=(10, 30), random_state=0)
    >>> model.fit(X[100:], y[100:], X_public=(X[:100],), y_public=(y[:100],)).score(X, y) > 0.7
    True
    """

    _canary = "linear numbers"
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

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
    n_components: int | str = "auto"
    directions: Any = "auto"
    init: str = "auto"
    mirror: bool = False

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the model to private rows, with the help of public ones.

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
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or (m, n_targets), or tuple of such, optional
            Their targets, in the form of `X_public`. With ``init="zero"`` only `mirror`,
            directions of public labels and, where no `target_bounds` are given, the range of the
            targets look at them.

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
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public, y_public=y_public)

    def _plan(self) -> LinearFit:
        plan = super()._plan()
        guide, bounds = _guide(self, VALUES), self._bounds(from_public=True)
        return replace(plan, bounds=bounds, centre=OneMean(), guide=guide, interacting=False)

    def _store(self, found: Fitted, values: Values) -> None:
        self.init_: str = found.init
        self.n_components_: int | None = found.n_components
        super()._store(found, values)


def _guide(estimator: GEPClassifier | GEPRegressor, targets: Targets) -> PublicGuide:
    n_components, directions, anchors = estimator.n_components, estimator.directions, None
    if n_components != "auto":
        n_components = check_components("n_components", n_components)
    if not (isinstance(directions, str) and directions in ("auto", "features")):
        anchors = linear_anchors(directions)
        if n_components != "auto":
            raise ValueError(
                f"`n_components`={n_components} counts directions of features. Set the number of"
                " directions of gradients where they are: GradientDirections(n_components=...)."
            )
    check_choice("init", estimator.init, ("auto", "zero", "public"))
    return PublicGuide(
        targets,
        n_components,
        anchors,
        estimator.init,
        check_bool("mirror", estimator.mirror),
    )
