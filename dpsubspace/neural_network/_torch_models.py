"""Private training of torch modules: DP-SGD, gradient embedding, partial fine-tuning.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.modules.ModuleFit`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.bounds import Bounds, MappedRows, ScaledRows
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.fits.estimator import CheckedFit, FitData, checked_descent, checked_target
from dpsubspace._core.gradients.losses import REGRESSOR_LOSSES
from dpsubspace._core.gradients.modules import module_scores
from dpsubspace._core.gradients.reach import OutputLimits, unreached
from dpsubspace._core.gradients.torch_rows import row_shape
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import check_device
from dpsubspace._core.ground.checks import check_bool, check_integer, copied_bounds
from dpsubspace._core.ground.compat import with_callbacks
from dpsubspace._core.plans.guide import (
    GradientDirections,
    check_labelled,
    module_anchors,
    warn_of_few,
)
from dpsubspace._core.plans.modules import FittedModule, ModuleFit
from dpsubspace._core.public.anchors import LABELS, VALUES, Targets
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.records import RowMap
from dpsubspace._names import public
from dpsubspace.linear_model._advice import (
    warn_of_bounds,
    warn_of_found_bounds,
    warn_of_noise,
    warn_of_unreached,
    warn_of_wrong_range,
)
from dpsubspace.linear_model._base import Labels, PrivateClassifier, PrivateRegressor, Values


def _advise_on_module(
    self: Any, plan: ModuleFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
) -> None:
    n_samples = sizes.known("n_samples", "the warning")
    bounds = plan.bounds
    if isinstance(bounds, ScaledRows) and warn_of_bounds(self, bounds, budget, guarantee, sizes):
        return
    bearable = auto.HIDING_MODULES
    warn_of_noise(self, budget, guarantee, n_samples, plan.n_params, bearable)


@public
@estimator
class DPModuleClassifier(PrivateClassifier):
    """Differentially private classifier that trains a torch module.

    Noise is added during the fit, so that the trained module tells little on whether any one row
    was used to train it. Without public rows it is trained by DP-SGD. With public rows, passed to
    ``fit`` as `X_public`, noise is spent where their gradients lie (gradient embedding
    perturbation; Yu et al., 2021). Public rows cost no privacy.

    Choose `module`, `epsilon` and, for many rows, `batch_size`. Look at `neighboring_relation` and
    `classes`: they decide what is protected and what is taken to be public. All parameters from
    `alpha` on can be left alone. Their defaults follow from public sizes and the budget.

    Parameters
    ----------
    module : torch.nn.Module
        What to train, an instance: from a batch of rows to scores, with one column for each class
        or target, and a single column for two classes. Scores of a regressor are for targets
        scaled to [-1, 1]. The module is copied, and its copy put into evaluation mode, without
        dropout. Parameters without ``requires_grad`` stay as they are.
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
    microbatch_size : int or None, default=None
        Number of rows to have in memory at once; only memory and time depend on it. None leaves it
        to the device. Lower it where memory runs out.
    input_shape : tuple of int or None, default=None
        Shape of one row as the module sees it, for example ``(1, 28, 28)``. None leaves rows flat.
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
    directions : "auto" or GradientDirections, default="auto"
        Along which directions the noise is concentrated. "features" takes the principal directions
        of the public rows, for linear models; they need no labels and stay the same during the
        fit. A :class:`GradientDirections` takes the top directions of public gradients at every
        step. "auto" is "features" for linear models and ``GradientDirections()`` for modules.
        Without public rows it has no effect, nor with ``epsilon=float("inf")`` where a residual
        leaves nothing out.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight that
        grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    noise_multiplier : float or None, default=None
        For experts, together with ``epsilon=None``: standard deviation of the noise of a step in
        units of `clip_norm`, from 1e-6 to 1e9. The fit then computes its epsilon. What is released
        beside the steps gets noise by its usual share of the budget.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores: the logarithm of the class weights.
    n_components_ : int or None
        Number of directions that gradients were embedded on (the most, for directions of
        gradients). None where the whole space was trained.
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
    DPModuleRegressor : The same for numbers.
    TorchFeatures : A frozen module in front of a linear model, cheaper and mostly better.
    GEPClassifier : The same for linear models.

    Notes
    -----
    What is released is the noisy sum of clipped gradients of every step. One row changes it by at
    most C in L2 norm (``"zero_out"``) or 2C (``"replace_one"``), with C = `clip_norm`. With public
    rows it is the sum of clipped embeddings, of the same bound, and that of clipped residuals: see
    :class:`GradientDirections`. With ``mirror=True``, a noisy share is released first, with a
    twentieth of the budget (of mu^2): that of the private rows about which the module is right
    when it is fitted to the public rows alone. One row changes it, as a sum, by at most 1. The
    fit is tried on public rows that are held out. Where it is not clearly better there than a
    constant, or private rows speak against it, gradients of public rows are not mixed in. The cost
    is that of ``n_iter`` Gaussian mechanisms, on Poisson batches where `batch_size` is set, and of
    one more where that share is released. Together they never cost more than `epsilon`. The unit is
    one row. Public are the number of rows, the number and names of the features, the set of
    labels, `X_public` and `y_public`, the module with its parameters and what they were trained
    on, and all parameters of this class but `random_state`.

    Gradients are formed chunk by chunk, each from its own row (``torch.func``), with dropout off.
    That the gradient of a row depends on no other row is by construction, but for a
    ``torch.autograd.Function`` with a vmap rule of its own, which is taken to keep rows apart.
    Modules that mix rows, are random, or keep something of the rows where it would outlive a call
    are refused before anything is released, as far as that shows on random rows. Rows must be
    dense. Full batches of many rows are slow: set `batch_size`. A frozen module in front of a
    linear model (:class:`TorchFeatures`) is cheaper and mostly better.

    A module starts from its own parameters: train it on public rows first where there are some,
    and freeze what need not change, since noise grows with the number of trained parameters.
    ``clip_norm="auto"`` is 1. Steps use Nesterov momentum of 0.9, and the model is the mean of the
    last quarter of the steps, which averages noise out. ``epsilon=float("inf")`` trains by descent
    without clipping, and needs a given `learning_rate`, since "auto" follows from the noise.

    Clipping and noise bias probabilities, most for rare classes, which mostly come out too low,
    often by more than half. Use probabilities to rank, and calibrate on public rows where absolute
    risks matter.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta. "Public
    data-assisted mirror descent for private model training". ICML 2022.

    Elkan. "The foundations of cost-sensitive learning". IJCAI 2001.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace.neural_network import DPModuleClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X / 16, y, test_size=360, random_state=0)
    >>> _ = torch.manual_seed(0)  # for the parameters that the module starts from
    >>> module = torch.nn.Sequential(
    ...     torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    ... )
    >>> model = DPModuleClassifier(module, epsilon=3.0, n_iter=20, random_state=0).fit(X, y)
    >>> model.score(X_test, y_test) > 0.8
    True
    """

    _canary = "module labels"
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

    module: Any = field(default=None, kw_only=False)
    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    classes: Any = None
    class_weight: dict[Any, float] | None = None
    loss: str = "log_loss"
    batch_size: int | None = None
    microbatch_size: int | None = None
    input_shape: tuple[int, ...] | None = None
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None
    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    directions: Any = "auto"
    mirror: bool = False
    noise_multiplier: float | None = None

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, flat; a memory map is read chunk by chunk.
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
            Their labels, in the form of `X_public`. Only `mirror` and directions of public labels
            look at them.

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

    def _plan(self) -> ModuleFit:
        return _module_fit(self, MappedRows(RowMap(norm=None)), LABELS)

    def _check(self, plan: ModuleFit, given: FitData) -> CheckedFit:
        data, labels = self._labelled(given)
        _check_public(self, plan, data)
        public = () if data.public is None else (data.public.assumption,)
        return CheckedFit(plan, data, labels.assumed + public, labels)

    _warn_before_fit = _advise_on_module

    def _warn_after_fit(self, found: FittedModule, budget: Budget, checked: CheckedFit) -> None:
        n_samples, n_weights = checked.data.records.n, checked.plan.n_params
        find = partial(_unreached, self, found.outputs)
        limited = bool(found.outputs.kind)
        warn_of_unreached(self, budget, n_samples, n_weights, find, limited=limited)

    def _store(self, found: FittedModule, labels: Labels) -> None:
        self.classes_: np.ndarray = labels.classes
        self.offset_: np.ndarray = labels.offset
        _store_training(self, found)

    def _scores(self, X: Any) -> np.ndarray:
        return _scores(self, X) + self.offset_


@public
@estimator
class DPModuleRegressor(PrivateRegressor):
    """Differentially private regression that trains a torch module.

    Noise is added during the fit, so that the trained module tells little on whether any one row
    was used to train it. Without public rows it is trained by DP-SGD. With public rows, passed to
    ``fit`` as `X_public`, noise is spent where their gradients lie (gradient embedding
    perturbation; Yu et al., 2021). Public rows cost no privacy.

    Choose `module`, `epsilon` and, for many rows, `batch_size`. Give `target_bounds` from public
    knowledge where public rows do not tell them, and look at `neighboring_relation`. All parameters
    from `alpha` on can be left alone. Their defaults follow from public sizes and the budget.

    Parameters
    ----------
    module : torch.nn.Module
        What to train, an instance: from a batch of rows to scores, with one column for each class
        or target, and a single column for two classes. Scores of a regressor are for targets
        scaled to [-1, 1]. The module is copied, and its copy put into evaluation mode, without
        dropout. Parameters without ``requires_grad`` stay as they are.
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
    microbatch_size : int or None, default=None
        Number of rows to have in memory at once; only memory and time depend on it. None leaves it
        to the device. Lower it where memory runs out.
    input_shape : tuple of int or None, default=None
        Shape of one row as the module sees it, for example ``(1, 28, 28)``. None leaves rows flat.
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
    directions : "auto" or GradientDirections, default="auto"
        Along which directions the noise is concentrated. "features" takes the principal directions
        of the public rows, for linear models; they need no labels and stay the same during the
        fit. A :class:`GradientDirections` takes the top directions of public gradients at every
        step. "auto" is "features" for linear models and ``GradientDirections()`` for modules.
        Without public rows it has no effect, nor with ``epsilon=float("inf")`` where a residual
        leaves nothing out.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight that
        grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    noise_multiplier : float or None, default=None
        For experts, together with ``epsilon=None``: standard deviation of the noise of a step in
        units of `clip_norm`, from 1e-6 to 1e9. The fit then computes its epsilon. What is released
        beside the steps gets noise by its usual share of the budget.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    target_bounds_ : tuple of two ndarrays of shape (n_targets,)
        Range of the targets that was used: given, public or released. -1 to 1 is a placeholder
        where noise has hidden it.
    bounds_found_ : dict
        Whether the range of each target was given or found, under "target_bounds": an ndarray of
        bools of shape (n_targets,). False stands for a placeholder, and ``fit`` warns of it.
    n_components_ : int or None
        Number of directions that gradients were embedded on (the most, for directions of
        gradients). None where the whole space was trained.
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
    DPModuleClassifier : The same for classes.
    TorchFeatures : A frozen module in front of a linear model, cheaper and mostly better.
    GEPRegressor : The same for linear models.

    Notes
    -----
    What is released, for targets of which neither `target_bounds` nor `y_public` gives the range,
    are noisy counts as by :class:`DPSGDRegressor`, with a tenth of the budget (of mu^2). A range in
    `target_bounds` is looked at as there, with a fiftieth. Then the noisy sum of clipped gradients
    of every step is released. One row changes it by at most C in L2 norm (``"zero_out"``) or 2C
    (``"replace_one"``), with C = `clip_norm`. With public rows it is the sum of
    clipped embeddings, of the same bound, and that of clipped residuals: see
    :class:`GradientDirections`. With ``mirror=True``, a noisy share is released before the steps,
    with a twentieth of the budget: that of the private rows about which the module, fitted to the
    public rows alone, is nearer than the mean of `y_public`. One row changes it, as a sum, by at
    most 1. The fit is tried on public rows that are held out. Where it is not clearly better there
    than a constant, or private rows speak against it, gradients of public rows are not mixed in.
    The cost is that of eight Gaussian mechanisms for the ranges, or two for one that is given, one
    where that share is released
    and ``n_iter`` more, those of the steps on Poisson batches where `batch_size` is set. Together
    they never cost more than `epsilon`. The unit is one row. Public are the number of rows, the
    number and names of the features, the number of targets, `X_public` and `y_public`, the module
    with its parameters and what they were trained on, and all parameters of this class but
    `random_state`.

    Gradients are formed chunk by chunk, each from its own row (``torch.func``), with dropout off.
    That the gradient of a row depends on no other row is by construction, but for a
    ``torch.autograd.Function`` with a vmap rule of its own, which is taken to keep rows apart.
    Modules that mix rows, are random, or keep something of the rows where it would outlive a call
    are refused before anything is released, as far as that shows on random rows. Rows must be
    dense. Full batches of many rows are slow: set `batch_size`. A frozen module in front of a
    linear model (:class:`TorchFeatures`) is cheaper and mostly better.

    A module starts from its own parameters: train it on public rows first where there are some,
    and freeze what need not change, since noise grows with the number of trained parameters.
    ``clip_norm="auto"`` is 1. Steps use Nesterov momentum of 0.9, and the model is the mean of the
    last quarter of the steps, which averages noise out. ``epsilon=float("inf")`` trains by descent
    without clipping, and needs a given `learning_rate`, since "auto" follows from the noise.

    A scaler fitted on the private rows, cross-validation scores and everything else computed from
    them are *not* covered; see ``docs/privacy.md``.

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. "Deep learning with
    differential privacy". CCS 2016.

    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta. "Public
    data-assisted mirror descent for private model training". ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from dpsubspace.neural_network import DPModuleRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> y = np.abs(X[:, 0]) + rng.normal(scale=0.1, size=2000)
    >>> _ = torch.manual_seed(0)  # for the parameters that the module starts from
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> model = DPModuleRegressor(
    ...     module, epsilon=3.0, target_bounds=(-1, 2), n_iter=60, random_state=0
    ... )
    >>> model.fit(X, y).score(X, y) > 0.5
    True
    """

    _canary = "module numbers"
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

    module: Any = field(default=None, kw_only=False)
    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    target_bounds: tuple[Any, Any] | None = None
    loss: str = "squared_error"
    batch_size: int | None = None
    microbatch_size: int | None = None
    input_shape: tuple[int, ...] | None = None
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None
    alpha: float = 1e-6
    n_iter: int | str = "auto"
    learning_rate: float | str = "auto"
    clip_norm: float | str = "auto"
    directions: Any = "auto"
    mirror: bool = False
    noise_multiplier: float | None = None

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, flat; a memory map is read chunk by chunk.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.
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
        y_public : array-like of shape (m,) or (m, n_targets), or tuple of such, optional
            Their targets, in the form of `X_public`. Only `mirror`, directions of public labels
            and, where no `target_bounds` are given, the range of the targets look at them.

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

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, which may lie outside ``target_bounds_``.
        """
        check_is_fitted(self, "module_")
        loss = REGRESSOR_LOSSES[self.loss]
        slope, constant = loss.units(*self.target_bounds_)
        found = loss.predict(constant + slope * _scores(self, X))
        return found[:, 0] if self._single else found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # 200 rows and epsilon 1 in scikit-learn's checks
        return tags

    def _plan(self) -> ModuleFit:
        return _module_fit(self, None, VALUES)

    def _check(self, plan: ModuleFit, given: FitData) -> CheckedFit:
        data, values = self._valued(given)
        _check_public(self, plan, data)
        return CheckedFit(plan, data, values.assumed, values)

    _warn_before_fit = _advise_on_module

    def _warn_after_fit(self, found: FittedModule, budget: Budget, checked: CheckedFit) -> None:
        warn_of_found_bounds(self, self.bounds_found_, budget, checked.data.records.n)
        warn_of_wrong_range(self, found.limits.focus)

    def _store(self, found: FittedModule, values: Values) -> None:
        self.target_bounds_: tuple[np.ndarray, np.ndarray] = found.limits.target_bounds
        self.bounds_found_: dict[str, Any] = {"target_bounds": found.limits.found["target_bounds"]}
        self._single = values.single
        _store_training(self, found)


# Shared by both -------------------------------------------------------------------------------


def _module_fit(estimator: Any, bounds: Bounds | None, targets: Targets) -> ModuleFit:
    """Return the plan of a fit; ValueError if a parameter is out of its range.

    Without `bounds`, the bounds of the targets are given, public or estimated.
    """
    target, loss, descent = (
        checked_target(estimator),
        estimator._checked_loss(),
        checked_descent(estimator),
    )
    module = estimator.module
    if isinstance(module, type) or not hasattr(module, "named_parameters"):
        raise ValueError(
            "`module` must be a torch.nn.Module (an instance, not its class), got"
            f" {module.__name__ if isinstance(module, type) else type(module).__name__}."
        )
    if estimator.microbatch_size is not None:
        check_integer("microbatch_size", estimator.microbatch_size, low=1)
    directions = estimator.directions
    if isinstance(directions, str) and directions == "auto":
        directions = GradientDirections()
    if not target.private and descent.learning_rate == "auto":
        raise ValueError(
            "learning_rate='auto' of a `module` follows from the noise, and epsilon=inf adds"
            " none: give `learning_rate`, and `n_iter`."
        )
    if bounds is None:
        given = copied_bounds(estimator.target_bounds)
        bounds = ScaledRows(None, given, None, from_public=True, rows=False).looking()
    return ModuleFit(
        target=target,
        loss=loss,
        bounds=bounds,
        targets=targets,
        descent=descent,
        module=module,
        n_params=sum(p.numel() for p in module.parameters() if p.requires_grad),
        input_shape=estimator.input_shape,
        microbatch_size=estimator.microbatch_size,
        anchors=module_anchors(directions, module),
        mirror=check_bool("mirror", estimator.mirror),
    )


def _check_public(estimator: Any, plan: ModuleFit, data: Data) -> None:
    # Without public rows there are no directions, and so no labels are needed for them.
    asked = data.public is not None and plan.anchors.needs_labels
    needing = {"mirror=True": plan.mirror, "labels='public' of GradientDirections": asked}
    check_labelled(needing, data.public)
    if data.public is not None:
        warn_of_few(estimator, data.public, plan.anchors.n_components)


def _store_training(estimator: Any, found: FittedModule) -> None:
    estimator.n_iter_, estimator.learning_rate_ = found.n_iter, found.learning_rate
    estimator.clip_norm_, estimator.n_components_ = found.clip_norm, found.n_components
    estimator.module_ = found.module


def _unreached(estimator: Any, limits: OutputLimits) -> np.ndarray:
    shape = row_shape(estimator.input_shape, estimator.n_features_in_)
    return unreached(estimator.module_, shape, estimator.offset_, limits)


def _scores(estimator: Any, X: Any) -> np.ndarray:
    check_is_fitted(estimator, "module_")
    X = check_rows(estimator, X, reset=False, accept_sparse=False)
    where = check_device(estimator.device)
    return module_scores(estimator.module_, X, estimator.input_shape, device=where)
