"""Private linear regression of raw columns, and in few directions, learned from public tasks.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.regression.RegressionFit`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.fits.estimator import CheckedFit, FitData, checked_target
from dpsubspace._core.fits.outputs import by_blocks
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.checks import check_bool, check_bounds, check_choice, copied_bounds
from dpsubspace._core.ground.compat import nameless, with_callbacks
from dpsubspace._core.ground.forms import (
    Fixed,
    FlagArray,
    Maybe,
    Number,
    NumberArray,
    Pair,
    Record,
    Sometimes,
    Whole,
)
from dpsubspace._core.plans.public_view import FewDirections, PublicView, Whitened
from dpsubspace._core.plans.regression import FittedRegression, RegressionFit
from dpsubspace._core.public.tasks import METHODS
from dpsubspace._core.rows.affine import AFFINE_FORM, AffineRows
from dpsubspace._core.rows.chunks import over_chunks
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._core.solvers.descent import WEIGHT_NOISE_FORM
from dpsubspace._core.solvers.least_squares import SOLVERS
from dpsubspace._names import public
from dpsubspace.exceptions import PublicDataWarning, warn
from dpsubspace.linear_model._advice import (
    warn_of_noise,
    warn_of_ranges,
    warn_of_wide_ranges,
    warn_of_wrong_range,
)
from dpsubspace.linear_model._base import LinearScores, PrivateRegressor, Values


class _LinearRegression(PrivateRegressor):
    _takes_collections = True

    # Parameters that every subclass has.
    bounds: tuple[Any, Any] | None
    solver: str
    fit_intercept: bool

    # Set by `fit`.
    n_iter_: int
    bounds_found_: dict[str, Any]
    bounds_: tuple[np.ndarray, np.ndarray] | None
    components_: np.ndarray
    n_components_: int
    spectrum_: np.ndarray
    coef_std_: np.ndarray
    intercept_: float | np.ndarray
    coef_: np.ndarray

    _saved: ClassVar = {
        **FEATURES,
        "n_iter_": Whole(),
        "bounds_found_": Record(
            dict, bounds=FlagArray(("mapped",)), target_bounds=FlagArray(("targets",))
        ),
        "bounds_": Maybe(Pair(NumberArray(("features",), low=-math.inf, high=math.inf))),
        # The map of rows, the limit of mapped entries, and their weights and constants.
        "_model": Fixed(
            AFFINE_FORM,
            Number(0, math.inf),
            NumberArray(("mapped", "outputs"), ("features", "outputs")),
            NumberArray(("outputs",)),
        ),
        "_weight_noise": Maybe(WEIGHT_NOISE_FORM),
        "_weight_hidden": Maybe(WEIGHT_NOISE_FORM),
        "coef_std_": NumberArray(
            ("features",), ("outputs", "features"), high=math.inf, missing=True
        ),
        # Only with public subspaces.
        "components_": Sometimes(NumberArray(("components", "features"))),
        "n_components_": Sometimes(Whole(axis="components")),
        "spectrum_": Sometimes(NumberArray(("spectrum",), high=math.inf)),
        "intercept_": NumberArray((), ("outputs",)),
        "coef_": NumberArray(("features",), ("outputs", "features")),
    }

    # Public surface -------------------------------------------------------------------------

    @nameless
    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions: ``X @ coef_.T + intercept_``, of rows whose entries are cut to
            ``bounds_`` as they were in ``fit``.
        """
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False, accept_sparse=False)
        affine, limit, weights, constant = self._model
        rows = AffineRows(X, affine, constant=False, limit=limit)
        with over_chunks(rows) as each:
            scores = np.concatenate([*each(lambda some: rows.at(some).scores(weights) + constant)])
        return scores[:, 0] if self.coef_.ndim == 1 else scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # 200 rows and epsilon 1 in scikit-learn's checks
        return tags

    def _linear_scores(self) -> LinearScores:
        scores = LinearScores.of_columns(self.coef_, self._weight_noise, limits=self.bounds_)
        return replace(scores, hidden=self._weight_hidden)

    # The fit --------------------------------------------------------------------------------

    def _view(self) -> PublicView:
        raise NotImplementedError

    def _plan(self) -> RegressionFit:
        target = checked_target(self)
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, column="feature")
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)
        return RegressionFit(
            target=target,
            bounds=copied_bounds(self.bounds),
            target_bounds=copied_bounds(self.target_bounds),
            public=self._view(),
            solver=check_choice("solver", self.solver, ["auto", *SOLVERS]),
            constant=check_bool("fit_intercept", self.fit_intercept),
        ).looking()

    def _check(self, plan: RegressionFit, given: FitData) -> CheckedFit:
        data, values = self._valued(given, accept_sparse=False)
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, data.X.shape[1], column="feature")
        return CheckedFit(plan.with_public_view(data), data, values.assumed, values)

    def _warn_after_fit(self, found: FittedRegression, budget: Budget, checked: CheckedFit) -> None:
        if budget.private:
            warn_of_ranges(self, self.bounds_found_)
            if self.bounds is not None:
                warn_of_wide_ranges(self, found.fills)
            warn_of_wrong_range(self, found.focus)

    def _warn_before_fit(
        self, plan: RegressionFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        if sizes.n_public:  # public rows decide how many numbers are learned
            return
        n_samples, p = sizes.known("n_samples", "the warning"), sizes.known("n_features", "it")
        p = plan.counting(p) + 1
        last = [*budget.parts][-1]  # noise of the p weights of p columns, all together
        warn_of_noise(self, budget, guarantee, n_samples, p**2, auto.HIDING_ROWS, last)

    def _store(self, found: FittedRegression, values: Values) -> None:
        self.n_iter_ = found.n_iter
        self.bounds_found_, self.bounds_ = dict(found.found), found.bounds
        self._model = (found.affine, found.limit, found.weights, found.constant)
        self._weight_noise, self._weight_hidden = found.noise, found.hidden
        if found.view.subspace is not None:
            self.components_ = found.view.subspace.components
            self.n_components_ = len(self.components_)
            self.spectrum_ = found.view.subspace.spectrum.copy()
        first = 0 if values.single else slice(None)
        self.coef_std_ = found.coef_std[first].copy()
        intercept = found.intercept
        self.intercept_ = float(intercept[0]) if values.single else intercept
        # Last: now it can predict.
        self.coef_ = np.ascontiguousarray(found.coef[first])


@public
@estimator
class DPLinearRegression(_LinearRegression):
    """Differentially private linear regression of numeric tables, without scaling or known ranges.

    Noise is added during the fit, so that the model tells little on whether any one row was used
    to train it. Columns may be in any units and need no scaling: where nothing is known of them,
    a part of the budget finds out where each column lies and how far it spreads. Weights come
    back in the units of the data. Nothing has to be tuned, and a fit from too few rows ends near
    a constant.

    Choose `epsilon`, and give `bounds` and `target_bounds` from public knowledge wherever there is
    any: what is known need not be estimated. Look at `neighboring_relation` too.

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
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns: two numbers, which apply to every column, or two arrays of
        shape (n_features,), the low ends and the high ends. Ranges that are much wider than the
        columns are spread cost accuracy. Where the fit is given public rows, their ranges are
        taken instead. None without public rows finds the place and the spread of each column from
        noisy counts, which cost a part of the budget.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, which apply to every target, or two arrays of
        shape (n_targets,), the low ends and the high ends (not one pair for each target). Targets
        outside are clipped to it in ``fit``. None takes the range of `y_public`, a tenth wider on
        either side, where the fit is given targets of public rows. Else a coarse range is found
        from noisy counts, which cost a part of the budget.
    solver : {"auto", "descent", "moments", "adassp", "plain", "ambssgd"}, default="auto"
        How the weights are found. "descent" takes 6 to 20 noisy gradient steps in coordinates that
        a noisy second moment has made white. "moments" reads the weights off one noisy second
        moment of rows and targets, which needs one pass over the rows, and more noise. "auto"
        takes "moments" where public sizes say that its noise is far below the error of a finite
        sample; "plain", which is noisy descent without the second moment, where no public rows are
        given and there are fewer rows than 22 times the noise multiplier of the fit, about 250 at
        ``epsilon=0.3`` and 80 at ``epsilon=1``; and "descent" otherwise. The others are for
        comparison: "adassp" is the method of Wang (2018), and "ambssgd" uses other rows in each
        step (Varshney, Thakurta, Jain, 2022). Not used with ``epsilon=float("inf")``, where weights
        are exact.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights in the units of the data.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant term.
    coef_std_ : ndarray of the shape of `coef_`
        Rough standard deviation of what the noise of the last releases adds to each weight. It is
        *not* a standard error, and leaves out much: see Notes.
    bounds_ : tuple of two ndarrays of shape (n_features,) or None
        Ranges that entries of rows are cut to, in ``fit`` and ``predict`` alike: 4 standard
        deviations on either side of the mean, as far as these are known. They are infinite for
        columns that are left out, and wider for features of a tabular pipeline that count less.
        None where there are public rows: mixtures of columns are cut then, and not columns.
    bounds_found_ : dict
        Whether the place and the spread of each column, "bounds" (an ndarray of shape
        (n_features,)), and of each target, "target_bounds" (of shape (n_targets,)), were seen
        through the noise. ``fit`` warns where they were not, and such columns are left out, with a
        weight of 0.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of gradient steps charged; 1 for one second moment.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    PublicSubspaceLinearRegression : The same in few directions, learned from public tasks.
    DPSGDRegressor : Linear regression by DP-SGD, for sparse rows and for batches.
    PrivacyLedger : Adds up the cost of many fits.

    Notes
    -----
    Three things are released, one after the other, each by Gaussian mechanisms. Where in a range
    in `target_bounds` the targets lie is looked at before, with a fiftieth of the budget, as by
    :class:`DPSGDRegressor`: what is said there of ranges in a wrong unit is true here too.

    *Location and scale* of columns and targets. Where ranges are known these are noisy means and
    mean squares within them: a row contributes values in [-1, 1] and their squares, and changes the
    sums of c columns by at most ``sqrt(2 c)`` in L2 norm (``"zero_out"``) or ``2 sqrt(c)``
    (``"replace_one"``). Where nothing is known they are read off noisy counts, first in octaves
    and then five times in equal cells about what was shown before, which are smaller for columns
    that lie far from 0, and off one count of the lengths of rows: a row is in one cell of a
    column, and changes what is released of c columns by at most ``sqrt(c)`` or ``sqrt(2 c)``.
    Columns and targets are then standardised, and entries of rows beyond 4
    standard deviations are cut to these.

    *A second moment* of standardised rows, each shrunk to a public norm R. A row changes it by at
    most ``R^2`` or ``sqrt(2) R^2``.

    *Gradients* of the squared error, one noisy sum for each of 6 to 20 steps. The gradient of each
    row is shrunk to a public norm C, and a row changes the sum by at most C or 2C. The steps are
    taken in coordinates in which the second moment is the identity, up to its noise. There, steps
    of one size fit all directions, and few of them are enough. With ``solver="moments"`` one
    second moment of rows and targets together takes the place of the last two.

    Together they never cost more than `epsilon`, computed exactly (Dong, Roth, Su, 2022). The unit
    is one row. Public are the number of rows, the number and names of the features, the number of
    targets, `X_public`, and all parameters but `random_state`.

    A second moment holds all that least squares needs. But with p columns noise in it costs about
    sqrt(p) times as much as noise in gradients does, and the more the larger the weights are. That
    is why "auto" takes "descent" unless there are very many rows. The weights are then multiplied
    by the factor of James and Stein (1961), so that noise alone gives weights near zero. Rows and
    gradients that are longer than R or C are shrunk to that, which biases little and protects from
    outliers. Entries are cut because noisy weights cannot be trusted with entries that hardly any
    private row has. For rows with all entries within `bounds_`, ``predict`` is
    ``X @ coef_.T + intercept_``.

    `coef_std_` is what the noise of the last releases would do to the weights if it were drawn
    again on the same rows, with location, scale and the factor of shrinking taken as known. It
    leaves out the error of a finite sample, which a standard error of statistics is about, the
    bias of clipping and shrinking, and the noise of location and scale. In columns with a long
    tail or with close relatives this noise can be several times larger than the rest. An interval
    made of `coef_std_` alone is too narrow.

    Public rows (`X_public`) tell the ranges, and rows are seen in the coordinates in which public
    ones are white (Cao, Zhang, 2025). They need no labels. Public rows that are unlike the private
    ones cost accuracy and no privacy. With ``epsilon=float("inf")`` this is ordinary least squares.

    Missing values are refused: fill them by a public constant, and not by a mean of the private
    rows. A ``StandardScaler`` that was fitted on the private rows would not be covered by the
    guarantee, and is not needed. ``docs/linear_regression.md`` says more on all of this.

    References
    ----------
    Dong, Roth, Su. "Gaussian differential privacy". JRSS-B 84(1), 2022.

    James, Stein. "Estimation with quadratic loss". Fourth Berkeley Symposium, 1961.

    Wang. "Revisiting differentially private linear regression: optimal and adaptive prediction
    and estimation in unbounded domain". UAI 2018.

    Varshney, Thakurta, Jain. "(Nearly) optimal private linear regression via adaptive clipping".
    COLT 2022.

    Cao, Zhang. "Improved differentially private linear regression with public second moment".
    arXiv 2508.18037, 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> year, income = rng.normal(1980, 10, size=20000), rng.exponential(5e4, size=20000)
    >>> y = 300 + 2 * (year - 1980) + 1e-3 * income + rng.normal(0, 10, size=20000)
    >>> X = np.column_stack([year, income])
    >>> model = DPLinearRegression(epsilon=1.0, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _canary = "regression"

    # scikit-learn passes public rows on without a request by the user.
    __metadata_request__fit: ClassVar = {"X_public": True}

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    bounds: tuple[Any, Any] | None = None
    target_bounds: tuple[Any, Any] | None = None
    solver: str = "auto"
    fit_intercept: bool = True
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None

    @with_callbacks
    def fit(self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None) -> Self:
        """Fit the model to private rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not copied
            (but to a GPU). Rows of Dask arrays and data frames stay on the workers of a cluster.
            Those of a dataset of PyArrow are read from its files in each step, and `y` is then the
            name of a column.
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
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public)

    def _view(self) -> PublicView:
        return Whitened()


@public
@estimator
class PublicSubspaceLinearRegression(_LinearRegression):
    """Differentially private linear regression in few directions, learned from public tasks.

    Public tasks are regressions with the same columns, for other targets or in other places:
    schools that have published their results, say. Where the coefficients of all tasks lie in few
    common directions, the private task needs to learn one number for each direction, and not one
    for each column. The directions cost no privacy.

    Choose `epsilon`, and look at `neighboring_relation`. Without public rows this is
    :class:`DPLinearRegression`, and ``fit`` warns.

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
    n_components : int or "auto", default="auto"
        Number of directions, at most the number of public tasks. Of a number, weights lie in the
        directions. "auto" chooses it, and learns along all others as well, by how much directions
        of some public tasks explain in other ones, for as many rows and as much noise as there
        are: few rows learn along the directions only, and many rows along all. Where there is one
        task, and for "features", it keeps the directions that stand out of chance. Without public
        rows it has no effect.
    subspace : {"alternating", "pairs", "moments", "ridge", "features"}, default="alternating"
        How directions are found. "alternating" fits directions, and the coefficients of the tasks
        in them, in turn. "pairs" takes the leading directions of products of pairs of rows of a
        task (Duchi, Feldman, Hu, Talwar, 2022). "moments" is the method of moments (Tripuraneni,
        Jin, Jordan, 2021). "ridge" takes principal directions of one ridge estimate for each task,
        and "features" those of the public rows, for which there need be no targets. Without public
        rows it has no effect.
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns: two numbers, which apply to every column, or two arrays of
        shape (n_features,), the low ends and the high ends. Ranges that are much wider than the
        columns are spread cost accuracy. Where the fit is given public rows, their ranges are
        taken instead. None without public rows finds the place and the spread of each column from
        noisy counts, which cost a part of the budget.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets: two numbers, which apply to every target, or two arrays of
        shape (n_targets,), the low ends and the high ends (not one pair for each target). Targets
        outside are clipped to it in ``fit``. None takes the range of `y_public`, a tenth wider on
        either side, where the fit is given targets of public rows. Else a coarse range is found
        from noisy counts, which cost a part of the budget.
    solver : {"auto", "descent", "moments", "adassp", "plain", "ambssgd"}, default="auto"
        How the weights are found. "descent" takes 6 to 20 noisy gradient steps in coordinates that
        a noisy second moment has made white. "moments" reads the weights off one noisy second
        moment of rows and targets, which needs one pass over the rows, and more noise. "auto"
        takes "moments" where public sizes say that its noise is far below the error of a finite
        sample; "plain", which is noisy descent without the second moment, where no public rows are
        given and there are fewer rows than 22 times the noise multiplier of the fit, about 250 at
        ``epsilon=0.3`` and 80 at ``epsilon=1``; and "descent" otherwise. The others are for
        comparison: "adassp" is the method of Wang (2018), and "ambssgd" uses other rows in each
        step (Varshney, Thakurta, Jain, 2022). Not used with ``epsilon=float("inf")``, where weights
        are exact.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Weights in the units of the data.
    intercept_ : float or ndarray of shape (n_targets,)
        Constant term.
    coef_std_ : ndarray of the shape of `coef_`
        Rough standard deviation of what the noise of the last releases adds to each weight. It is
        *not* a standard error, and leaves out much: see the Notes of
        :class:`DPLinearRegression`.
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal directions in the units of the data. There are none without public rows.
    n_components_ : int
        Their number.
    spectrum_ : ndarray of shape (n,)
        What directions explain of the public targets, largest first: the directions are the first
        `n_components_` of them.
    bounds_ : tuple of two ndarrays of shape (n_features,) or None
        Ranges that entries of rows are cut to, in ``fit`` and ``predict`` alike: 4 standard
        deviations on either side of the mean, as far as these are known. They are infinite for
        columns that are left out. None where there are public rows: mixtures of columns are cut
        then, and not columns.
    bounds_found_ : dict
        Whether the place and the spread of each column or direction, "bounds" (an ndarray), and of
        each target, "target_bounds" (of shape (n_targets,)), were seen through the noise. ``fit``
        warns where they were not.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of gradient steps charged; 1 for one second moment.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPLinearRegression : The same in all directions.
    GEPRegressor : Gradients in few directions of public rows, and what they leave.
    subspace_distance : How far two subspaces are apart.

    Notes
    -----
    What is released is what :class:`DPLinearRegression` releases, but of rows seen along the
    directions: ``(x - mean) @ directions``, in which public rows have unit second moment. Ranges
    are those of public rows and targets. Public are the directions, their ranges, `X_public` and
    `y_public`, the number of rows, the number and names of the features, the number of targets,
    and all parameters but `random_state`. The unit is one row. Public tasks must not be *chosen*
    by looking at private rows: then the choice is a release to pay for (:func:`select_public`).

    With a number of directions, what they miss is lost, however much is spent. For white rows this
    error is at most the square of :func:`subspace_distance` times the squared length of the
    coefficients (Thaker, Setlur, Wu, Smith, 2023, Theorem 4.2). What is gained is that noise is in
    k numbers and not in d. With "auto" columns off the directions count by a factor, which is 0
    where rows are few, and noise is mostly in them. The first 3 of 10 gradients also tell whether
    the rest explains much more than expected: then it counts more in the others. All of that
    follows from public rows, from sizes, and from what is released in any case.
    ``docs/public_data.md`` has figures.

    Rows and targets of a task are centred by their own means, so that intercepts may differ.
    Directions do not change with the units of columns or of targets.

    References
    ----------
    Thaker, Setlur, Wu, Smith. "Leveraging public representations for private transfer learning".
    arXiv 2312.15551, 2023.

    Duchi, Feldman, Hu, Talwar. "Subspace recovery from heterogeneous data with non-isotropic
    noise". NeurIPS 2022.

    Tripuraneni, Jin, Jordan. "Provable meta-learning of linear representations". ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import PublicSubspaceLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> directions, tasks = rng.normal(size=(40, 2)), rng.normal(size=(2, 12))
    >>> X = rng.normal(size=(12, 500, 40))
    >>> y = [x @ directions @ task + rng.normal(size=500) for x, task in zip(X, tasks.T)]
    >>> model = PublicSubspaceLinearRegression(n_components=2, random_state=0)
    >>> model = model.fit(X[0], y[0], X_public=tuple(X[1:]), y_public=tuple(y[1:]))
    >>> model.score(X[0], y[0]) > 0.7
    True
    """

    _canary = "regression"

    # scikit-learn passes public rows on without a request by the user.
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    n_components: int | str = "auto"
    subspace: str = "alternating"
    bounds: tuple[Any, Any] | None = None
    target_bounds: tuple[Any, Any] | None = None
    solver: str = "auto"
    fit_intercept: bool = True
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the model to private rows, in directions of public tasks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not copied
            (but to a GPU). Rows of Dask arrays and data frames stay on the workers of a cluster.
            Those of a dataset of PyArrow are read from its files in each step, and `y` is then the
            name of a column.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private targets.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Rows of public tasks, one array a task. A tuple is never sliced by cross-validation.
        y_public : array-like of shape (m,) or (m, n_targets), or tuple of such, optional
            Their targets, in the form of `X_public`. Each column is a task of its own. None is for
            ``subspace="features"``.

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
        if X_public is None and y_public is None:
            warn(
                f"{type(self).__name__} got no public rows and fits all columns, as"
                " DPLinearRegression does. Pass public tasks, fit(X, y, X_public=(X1, X2),"
                " y_public=(y1, y2)), to fit in the directions that matter for them.",
                PublicDataWarning,
                about=("none", type(self).__name__),
            )
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public, y_public=y_public)

    def _view(self) -> PublicView:
        method = check_choice("subspace", self.subspace, list(METHODS))
        return FewDirections(method, self.n_components)
