"""Gradient embedding perturbation: private linear and deep models that know public rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsubspace._accounting.budget import Sizes
from dpsubspace._array import Array, as_like, namespace, row_norms, to_numpy
from dpsubspace._compat import with_callbacks
from dpsubspace._estimators.classifier import LinearClassifier
from dpsubspace._estimators.embedding import GradientEmbedding
from dpsubspace._estimators.linear_model import Bounded, Releases, Trained
from dpsubspace._estimators.regressor import LinearRegressor
from dpsubspace._rows.public import PublicRows

__all__ = ["GEPClassifier", "GEPRegressor"]


class GEPClassifier(GradientEmbedding, LinearClassifier):
    """Private classifier that spends its noise where public rows say that gradients live.

    Gradient embedding perturbation splits every gradient into its part along a few directions
    that public rows give, and a small rest, and adds noise to each in proportion to
    what it is allowed to be. Public rows further give a mean to centre by and, with labels,
    weights to start from. They cost no privacy, whatever they are; bad ones cost accuracy.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for everything that is released.
        ``float("inf")`` is not private: it minimises the penalised mean loss by L-BFGS, without
        clipping and noise (a `module`, ``mirror=True`` and "gradients" without a `residual` are
        trained by descent). None where `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
        second needs twice the noise. The number of records is public in both.
    directions : {"auto", "features", "gradients"}, default="auto"
        What the directions are made of. "features": principal directions of the public
        rows, the same for every column of scores; they need no labels and stay as they are.
        "gradients": top directions of public gradients at the current parameters (Yu
        et al., 2021). "auto" is "features" for linear models and "gradients" for modules.
    n_components : int or "auto", default="auto"
        Number of directions: of features (each holds one parameter for every column of
        scores) or of gradients; fewer where public rows span fewer. 0 embeds nothing: DP-SGD.
        "auto" takes the directions of features that stand out of the noise, at least those with
        0.6 of the public rows' energy, and the whole space where all do or where private
        rows turn out to have much outside (a released number); 200 directions of gradients,
        and half as many as public rows for modules.
    residual : bool or "auto", default="auto"
        Whether what lies off the directions is released as well, with its own bound. False
        is B-GEP. "auto" is True for directions of gradients.
    clipping : {"separate", "joint"}, default="separate"
        Bound embedding and residual each on its own, or both by one factor. This and the
        next four parameters are of no effect where there is no residual or no directions of
        gradients, as by default for linear models.
    residual_norm : float or "auto", default="auto"
        Bound on the residual of one gradient. "auto" is a fifth of the clip norm, and half of it
        for modules.
    embedding_share : float or "auto", default="auto"
        Share in (0, 1) of a step's budget (of mu^2) for the embedding, where the two are
        clipped separately. "auto" is 0.8, and 0.5 for modules.
    anchor_labels : {"redrawn", "fixed", "public"}, default="redrawn"
        Labels of the public rows for directions of gradients: random ones, drawn at
        every step or once, or `y_public`.
    power_iterations : int or None, default=1
        Of the search for directions of gradients, from a random start; None takes the exact
        ones.
    center : bool, default=True
        Whether rows are shifted by their mean before a linear model is trained (see
        :class:`DPSGDFClassifier`).
    mean_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for the mean of the private rows, which is
        combined with that of the public ones, each weighted by what it is worth. 0 takes the
        public mean as it is; "auto" is 0.05, and 0.1 without public rows.
    checks_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for asking the private rows what public
        ones are good for, where `n_components` or `init` is "auto". 0 takes it on trust; "auto"
        is 0.05.
    init : {"auto", "zero", "public"}, default="auto"
        Where a linear model starts: from zero, or from a fit to the labelled public rows,
        which shortens the way that is left. "auto" is "public" where `y_public` is given and
        the fit turns out to be of use on private rows (a released number). A module starts
        from its own parameters: train it on public rows first.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight
        that grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    module : torch.nn.Module or None, default=None
        What to train instead of a linear model: from a batch of rows to scores, one column
        for two classes and else one a class.
        It is copied, and its copy put into evaluation mode; parameters without
        ``requires_grad`` stay as they are. Row maps, intercept and centring do not apply.
    input_shape : tuple of int or None, default=None
        Shape to give to each row before the module sees it, ``(1, 28, 28)`` say.
    groups : None, "outputs", "layers", int or list of lists of str, default=None
        Groups of parameters with directions of their own, shared out by the square roots
        of their sizes. "outputs": a column of scores each, for linear models; the others are
        for modules: top-level layers, so many consecutive parts, or names of parameters.
    loss : {"log_loss", "hinge"}, default="log_loss"
        Multinomial log loss (for two classes the logistic loss), or the margin loss of
        support vector machines, which gives no probabilities.
    alpha : float, default=1e-6
        Weight of the squared norm of the weights, halved, beside the mean loss. The intercept is
        not penalised.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 to 400, by the sizes of the data
        and the budget, and with a `batch_size` 100 or 20 passes, whichever is more. Without
        privacy it is the most iterations, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal, all public. L-BFGS uses
        none.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9; descent without privacy lets it
        grow and restarts it, and L-BFGS uses none.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Not used without privacy.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record, or on its embedding. "auto" is a quarter
        of the bound on a row (half without centring), and 1 for modules.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to centred ones.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in the units of the rows.
    row_norm : {"l2", "clip", None}, default="l2"
        Map of each row x with its bias entry s, in ``fit`` and ``predict`` alike.
        "l2" divides (x, s) by its norm; "clip" shrinks (x, s) where ||x|| is above
        `data_norm`; None changes nothing, and needs ``center=False``.
    data_norm : float or None, default=None
        Public bound on row norms for ``row_norm="clip"``.
    class_weight : dict or None, default=None
        Public positive weight of each class, by which predicted probabilities are multiplied.
    classes : array-like or None, default=None
        Public list of all labels. None reads it from `y`, and the guarantee then assumes
        that the set of labels is public.
    microbatch_size : int or None, default=None
        Records to have in memory at once; no more than memory and time depend on it. None
        leaves it to the device. Lower it where gradients of a module run out of memory.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy (torch for modules), anything else torch, with the
        same arithmetic and noise. "auto" takes a GPU if there is one.
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
        Weights of a linear model; they act on rows after the map of `row_norm`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Weight of the mapped bias entry.
    offset_ : ndarray of shape (1,) or (n_classes,)
        Constant added to the scores.
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean that mapped rows were shifted by, of released and public values.
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    n_components_ : int or None
        Number of directions that gradients were embedded on (for "gradients" at most); None where
        all of the space was trained.
    init_ : {"zero", "public", "module"}
        Where training started.
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
    DPSGDFClassifier : The same without public rows.
    GEPRegressor : The same for numbers.
    TorchFeatures : Frozen modules in front of a linear model, cheaper than training them.

    Notes
    -----
    Released: the mean of the mapped rows (unless ``mean_share=0``), as by
    :class:`DPSGDFClassifier`; where ``n_components="auto"`` or
    ``init="auto"`` ask for it, with `checks_share` up to two means of numbers in [0, 1], of
    sensitivity sqrt(2) together as sums: how much of a row is off the directions, and whether
    the public fit is right about it (more often than half-way from chance to what it gets right
    of held-out public rows, or it is not used); then at every step the sum of clipped embeddings
    and that of clipped residuals, of L2 sensitivity C and R (``"zero_out"``) or twice that
    (``"replace_one"``), with C = `clip_norm` and R = `residual_norm`; or with joint clipping both
    as one vector in units of their bounds. Event: the two sums of a step are *one* Gaussian
    mechanism, inside the sampling where `batch_size` is set, so that a step costs what one
    of DP-SGD costs. Counting two sampled mechanisms instead, as the code published with the
    paper does, is wrong: at its settings for SVHN and epsilon 8 the true cost is 21.4. The
    unit is one row. Assumed public: the numbers of rows and features, the set of labels,
    `X_public` and `y_public`, `module` and all other parameters.

    Directions depend on public rows, random or public labels, and parameters that earlier
    releases determine. That fails if public rows were *chosen* or scaled by looking at
    private ones: then the choice is a release to pay for.

    No gradient of a linear model is ever formed: inner products of rows with public
    rows are computed once, those of gradients follow from them. A module's gradients are formed
    chunk by chunk, each from its own row (``torch.func``), with dropout off. That a record's
    gradient depends on no other is by construction, but for a ``torch.autograd.Function`` with
    a vmap rule of its own, which is taken to keep records apart. Full batches of many rows
    are slow to train modules on: set `batch_size`.

    Without public rows this is :class:`DPSGDFClassifier` (:class:`DPSGDClassifier` with
    ``center=False``), or DP-SGD for a module, and ``fit`` warns.

    What to expect. Public rows help where noise outweighs the signal: few rows, small
    epsilon. Labelled ones from the same source help most, and the model fitted to them alone
    is what to beat. On linear models, directions of gradients with random labels are no
    better than those of features, cost more time, and lose more where public rows come from
    elsewhere; ``benchmarks/repro_gep.py`` has the tables.

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

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        directions: str = "auto",
        n_components: int | str = "auto",
        residual: bool | str = "auto",
        clipping: str = "separate",
        residual_norm: float | str = "auto",
        embedding_share: float | str = "auto",
        anchor_labels: str = "redrawn",
        power_iterations: int | None = 1,
        center: bool = True,
        mean_share: float | str = "auto",
        checks_share: float | str = "auto",
        init: str = "auto",
        mirror: bool = False,
        module: Any = None,
        input_shape: tuple[int, ...] | None = None,
        groups: Any = None,
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
        self.directions = directions
        self.n_components = n_components
        self.residual = residual
        self.clipping = clipping
        self.residual_norm = residual_norm
        self.embedding_share = embedding_share
        self.anchor_labels = anchor_labels
        self.power_iterations = power_iterations
        self.center = center
        self.mean_share = mean_share
        self.checks_share = checks_share
        self.init = init
        self.mirror = mirror
        self.module = module
        self.input_shape = input_shape
        self.groups = groups

    @with_callbacks
    def fit(self, X: Any, y: Any, *, X_public: Any = None, y_public: Any = None):
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,)
            Private labels.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or tuple of such, optional
            Their labels, in the form of `X_public`.

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
        return self._fit(X, y, X_public=X_public, y_public=y_public)

    def _drawn(self, rng: np.random.Generator, n_public: int, n_outputs: int) -> np.ndarray:
        return rng.integers(max(2, n_outputs), size=n_public)

    def _right(self, targets: Any) -> Callable[[Array, Array], Array]:
        def right(scores: Array, y: Array) -> Array:
            if scores.shape[1] == 1:
                return (scores[:, 0] > 0) == (y == 1)
            return namespace(scores).argmax(scores, axis=1) == y

        return right

    def _chance(self, targets: Any) -> float:
        return float(np.bincount(to_numpy(targets)).max() / len(targets))

    def _keep(self, trained: Trained, offset: np.ndarray) -> None:
        self._say(trained)
        if self.module is None:
            return super()._keep(trained, offset)
        self.offset_ = offset
        self.module_ = trained.problem.source.loaded(trained.weights)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        if not hasattr(self, "module_"):
            return super()._scores(X)
        return self._module_scores(X) + self.offset_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._centres and self.row_norm is None:
            raise ValueError(
                "`row_norm`=None leaves rows unbounded, and the mean of unbounded rows cannot be"
                " private. Use row_norm='l2', 'clip' with a public data_norm, or center=False."
            )


class GEPRegressor(GradientEmbedding, LinearRegressor):
    """Private regression that spends its noise where public rows say that gradients live.

    Gradient embedding perturbation splits every gradient into its part along a few directions
    that public rows give, and a small rest, and adds noise to each in proportion to
    what it is allowed to be. Public rows further give a mean to centre by and, with targets,
    weights to start from. They cost no privacy, whatever they are; bad ones cost accuracy.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Privacy budget, from 1e-4 to 1e6, for everything that is released.
        ``float("inf")`` is not private: it minimises the penalised mean loss by L-BFGS, without
        clipping and noise (a `module`, ``mirror=True`` and "gradients" without a `residual` are
        trained by descent). None where `noise_multiplier` is given.
    delta : float or "auto", default="auto"
        Additive slack of the guarantee, in (0, 1), far below 1/n_samples.
        "auto" is ``min(1e-5, 1 / (10 n_samples))``, and in a ledger the ledger's.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides: whether a record was used, or what it says. The
        second needs twice the noise. The number of records is public in both.
    directions : {"auto", "features", "gradients"}, default="auto"
        What the directions are made of. "features": principal directions of the public
        rows, the same for every column of scores; they need no labels and stay as they are.
        "gradients": top directions of public gradients at the current parameters (Yu
        et al., 2021). "auto" is "features" for linear models and "gradients" for modules.
    n_components : int or "auto", default="auto"
        Number of directions: of features (each holds one parameter for every column of
        scores) or of gradients; fewer where public rows span fewer. 0 embeds nothing: DP-SGD.
        "auto" takes the directions of features that stand out of the noise, at least those with
        0.6 of the public rows' energy, and the whole space where all do or where private
        rows turn out to have much outside (a released number); 200 directions of gradients,
        and half as many as public rows for modules.
    residual : bool or "auto", default="auto"
        Whether what lies off the directions is released as well, with its own bound. False
        is B-GEP. "auto" is True for directions of gradients.
    clipping : {"separate", "joint"}, default="separate"
        Bound embedding and residual each on its own, or both by one factor. This and the
        next four parameters are of no effect where there is no residual or no directions of
        gradients, as by default for linear models.
    residual_norm : float or "auto", default="auto"
        Bound on the residual of one gradient. "auto" is a fifth of the clip norm, and half of it
        for modules.
    embedding_share : float or "auto", default="auto"
        Share in (0, 1) of a step's budget (of mu^2) for the embedding, where the two are
        clipped separately. "auto" is 0.8, and 0.5 for modules.
    anchor_labels : {"redrawn", "fixed", "public"}, default="redrawn"
        Targets of the public rows for directions of gradients: random ones, drawn at
        every step or once, or `y_public`.
    power_iterations : int or None, default=1
        Of the search for directions of gradients, from a random start; None takes the exact
        ones.
    center : bool, default=True
        Whether rows are shifted by their mean before a linear model is trained (see
        :class:`DPSGDFClassifier`).
    mean_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for the mean of the private rows, which is
        combined with that of the public ones, each weighted by what it is worth. 0 takes the
        public mean as it is; "auto" is 0.05, and 0.1 without public rows.
    checks_share : float or "auto", default="auto"
        Share in [0, 1) of the budget (of mu^2) for asking the private rows what public
        ones are good for, where `n_components` or `init` is "auto". 0 takes it on trust; "auto"
        is 0.05.
    init : {"auto", "zero", "public"}, default="auto"
        Where a linear model starts: from zero, or from a fit to the labelled public rows,
        which shortens the way that is left. "auto" is "public" where `y_public` is given and
        the fit turns out to be of use on private rows (a released number). A module starts
        from its own parameters: train it on public rows first.
    mirror : bool, default=False
        Whether to mix the gradient of the labelled public rows into every step, with a weight
        that grows from 0 to 1 (PDA-DPMD; Amid et al., 2022).
    module : torch.nn.Module or None, default=None
        What to train instead of a linear model: from a batch of rows to scores, one column
        a target, for targets scaled to [-1, 1].
        It is copied, and its copy put into evaluation mode; parameters without
        ``requires_grad`` stay as they are. Row maps, intercept and centring do not apply.
    input_shape : tuple of int or None, default=None
        Shape to give to each row before the module sees it, ``(1, 28, 28)`` say.
    groups : None, "outputs", "layers", int or list of lists of str, default=None
        Groups of parameters with directions of their own, shared out by the square roots
        of their sizes. "outputs": a column of scores each, for linear models; the others are
        for modules: top-level layers, so many consecutive parts, or names of parameters.
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the squared error of the scaled target, or one that grows linearly beyond 0.1,
        a twentieth of the range of the targets.
    alpha : float, default=1e-6
        Weight of the squared norm of the weights, halved, beside the mean loss. The intercept is
        not penalised.
    data_norm : float or None, default=None
        Public bound on row norms; longer rows are shrunk to it in ``fit``. None takes the
        largest norm of the public rows, or without any releases one: see `bounds_share`. A
        module needs none.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, or two arrays of shape (n_targets,).
        Targets outside are clipped to it in ``fit``. None takes that of `y_public`, a tenth wider
        on either side, or without any releases one.
    bounds_share : float or "auto", default="auto"
        Share in (0, 1) of the budget (of mu^2) for the bounds that are not given. "auto" is 0.1.
    n_iter : int or "auto", default="auto"
        Number of steps; all of them are charged. "auto" is 100 to 400, by the sizes of the data
        and the budget, and with a `batch_size` 100 or 20 passes, whichever is more. Without
        privacy it is the most iterations, and "auto" is 5,000.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" follows from the ratio of noise to signal, all public. L-BFGS uses
        none.
    momentum : float or "auto", default="auto"
        Nesterov momentum in [0, 1). "auto" is 0.9; descent without privacy lets it
        grow and restarts it, and L-BFGS uses none.
    average : bool, default=True
        Whether to return the mean of the last quarter of the steps, which averages noise out.
        Not used without privacy.
    clip_norm : float or "auto", default="auto"
        Bound on the gradient of one record, or on its embedding. "auto" is 0.175
        times the bound on a scaled row (0.35 without centring), less for the Huber loss, and 1
        for modules.
    batch_size : int or None, default=None
        Expected size of the Poisson batch of a step; None takes all records at every step,
        which needs the least noise. Smaller batches make steps cheaper.
    fit_intercept : bool, default=True
        Whether to append a bias entry to the rows, and a constant to centred ones.
    intercept_scaling : float, default=0.5
        The bias entry, a public number in units of the bound on row norms.
    microbatch_size : int or None, default=None
        Records to have in memory at once; no more than memory and time depend on it. None
        leaves it to the device. Lower it where gradients of a module run out of memory.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to train. "cpu" uses NumPy (torch for modules), anything else torch, with the
        same arithmetic and noise. "auto" takes a GPU if there is one.
    noise_multiplier : float or None, default=None
        For experts, with ``epsilon=None``: noise standard deviation of a step over
        `clip_norm`.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything
        else is reproducible, and whoever knows it can remove the noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights of a linear model: ``predict`` is ``X @ coef_.T + intercept_``.
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
    mean_ : ndarray of shape (n_features,) or (n_features + 1,)
        Mean that scaled rows were shifted by, of released and public values.
    module_ : torch.nn.Module
        The trained copy of `module`, on the CPU.
    n_components_ : int or None
        Number of directions that gradients were embedded on (for "gradients" at most); None where
        all of the space was trained.
    init_ : {"zero", "public", "module"}
        Where training started.
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
    DPSGDRegressor : The same without public rows.
    GEPClassifier : The same for classes, with more on what is released.

    Notes
    -----
    Released: the bounds that are not given, as by :class:`DPSGDRegressor`; the mean of
    the scaled rows (unless ``mean_share=0``); what tells whether public rows are of use (here
    a fit is right about a record if it is closer than the mean of the public targets);
    at every step the sums of clipped embeddings and
    residuals, as by :class:`GEPClassifier`. Event: Gaussian mechanisms, those of the steps on
    Poisson batches where `batch_size` is set, calibrated together and never above
    `epsilon`. The unit is one row. Assumed public: the numbers of rows, features and targets,
    `data_norm`, `target_bounds`, `X_public` and `y_public`, `module` and all other parameters.

    Without public rows this is private regression by DP-SGD on centred rows
    (:class:`DPSGDRegressor` itself with ``center=False``), and ``fit`` warns.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import GEPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 4))
    >>> y = 20 + X @ [3.0, -2.0, 1.0, 0.0] + rng.normal(size=5000)
    >>> model = GEPRegressor(epsilon=0.3, data_norm=2.0, target_bounds=(10, 30), random_state=0)
    >>> model.fit(X[100:], y[100:], X_public=(X[:100],), y_public=(y[:100],)).score(X, y) > 0.7
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        directions: str = "auto",
        n_components: int | str = "auto",
        residual: bool | str = "auto",
        clipping: str = "separate",
        residual_norm: float | str = "auto",
        embedding_share: float | str = "auto",
        anchor_labels: str = "redrawn",
        power_iterations: int | None = 1,
        center: bool = True,
        mean_share: float | str = "auto",
        checks_share: float | str = "auto",
        init: str = "auto",
        mirror: bool = False,
        module: Any = None,
        input_shape: tuple[int, ...] | None = None,
        groups: Any = None,
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
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            loss=loss,
            alpha=alpha,
            data_norm=data_norm,
            target_bounds=target_bounds,
            bounds_share=bounds_share,
            n_iter=n_iter,
            learning_rate=learning_rate,
            momentum=momentum,
            average=average,
            clip_norm=clip_norm,
            batch_size=batch_size,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            microbatch_size=microbatch_size,
            device=device,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.directions = directions
        self.n_components = n_components
        self.residual = residual
        self.clipping = clipping
        self.residual_norm = residual_norm
        self.embedding_share = embedding_share
        self.anchor_labels = anchor_labels
        self.power_iterations = power_iterations
        self.center = center
        self.mean_share = mean_share
        self.checks_share = checks_share
        self.init = init
        self.mirror = mirror
        self.module = module
        self.input_shape = input_shape
        self.groups = groups

    @with_callbacks
    def fit(self, X: Any, y: Any, *, X_public: Any = None, y_public: Any = None):
        """Fit the model to private rows, with the help of public ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Public rows: one set, or several, of which all rows are used alike. A tuple is never
            sliced by cross-validation.
        y_public : array-like of shape (m,) or (m, n_targets), or tuple of such, optional
            Their targets, in the form of `X_public`.

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
        return self._fit(X, y, X_public=X_public, y_public=y_public)

    def _drawn(self, rng: np.random.Generator, n_public: int, n_outputs: int) -> np.ndarray:
        return rng.uniform(-1, 1, size=(n_public, n_outputs))

    def _with_bounds(self, data_norm: float | None, target_bounds: Any) -> GEPRegressor:
        """Copy with bounds that are public, where none are given."""
        other = copy.copy(self)
        if self.data_norm is None:  # rows of a module need none
            other.data_norm = data_norm if self.module is None else 1.0
        if self.target_bounds is None:
            other.target_bounds = target_bounds
        return other

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        public = 1.0 if sizes.n_public else None, (-1.0, 1.0) if sizes.labelled else None
        return super(GEPRegressor, self._with_bounds(*public))._before(sizes)

    def _bound(
        self, X: Array, targets: Array, releases: Releases, public: PublicRows | None
    ) -> Bounded:
        data_norm = target_bounds = None
        if public is not None:
            data_norm = max(float(row_norms(public.X).max()), 1e-49)
            if public.targets is not None:
                low, high = public.targets.min(axis=0), public.targets.max(axis=0)
                margin = 0.1 * (high - low) + 1e-9 * (1 + np.abs(high))
                target_bounds = low - margin, high + margin
        known = self._with_bounds(data_norm, target_bounds)
        return super(GEPRegressor, known)._bound(X, targets, releases, public)

    def _right(self, targets: Any) -> Callable[[Array, Array], Array]:
        mean = to_numpy(targets).mean(axis=0)

        def right(scores: Array, y: Array) -> Array:
            xp, constant = namespace(scores), as_like(mean, y)
            return xp.sum((scores - y) ** 2, axis=1) < xp.sum((constant - y) ** 2, axis=1)

        return right

    def _chance(self, targets: Any) -> float:
        return 0.5

    def _keep(self, trained: Trained, *, single: bool) -> None:
        self._say(trained)
        if self.module is None:
            return super()._keep(trained, single=single)
        self._single = single
        self.module_ = trained.problem.source.loaded(trained.weights)

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
        check_is_fitted(self)
        if not hasattr(self, "module_"):
            return super().predict(X)
        low, high = self.target_bounds_
        scores = (low + high) / 2 + (high - low) / 2 * self._module_scores(X)
        return scores[:, 0] if self._single else scores
