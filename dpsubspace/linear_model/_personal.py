"""Personal linear models: one per person, from a private shared part and the person's own rows.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.personal.PersonalFit`, whose ``run`` is the whole fit. The shared
model is released as that of ``DPLinearRegression`` with persons as records; directions and what
heads are like in ``_core/solvers/personal.py``. What a person contributes is bounded there, and in
``_core/statistics/persons.py``. Noise is added in ``_core/release/mechanisms.py``. The event is
made by ``Budget.split`` in ``_core/accounting/budget.py``.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.fits.call import estimator
from dpsubspace._core.fits.estimator import FitData
from dpsubspace._core.ground.checks import check_bounds, check_choice
from dpsubspace._core.ground.compat import with_callbacks
from dpsubspace._core.plans.personal import (
    FittedPersonal,
    NumberTargets,
    PersonalFit,
    SharedLinearModel,
    one_column,
)
from dpsubspace._core.rows.inputs import check_rows_and_targets
from dpsubspace._core.rows.public import check_public_values
from dpsubspace._names import public
from dpsubspace.linear_model._personal_models import PersonalModels, Persons

_METHODS = ("gradient", "moments")


@public
@estimator
class PersonalizedLinearRegression(RegressorMixin, PersonalModels):
    """A linear model for each person, with a shared part that protects all rows of a person.

    Many persons have a few rows each. What they have in common is learned with privacy for whole
    persons: one linear model, the directions in which persons differ from it, and how much they
    do. From this and from their own rows, persons get a model of their own, which may use
    all that their rows tell, since it is given to nobody else.

    Choose `epsilon`, and pass `groups`. Give `bounds` and `target_bounds` from public knowledge
    wherever there is any. Publish ``public_part()`` and nothing else.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_persons``. "auto" is ``min(1e-5, 1 / (10 n_persons))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a person's rows were used;
        "replace_one" hides what they say, and needs up to twice the noise. The number of persons is
        public in both.
    n_components : int or "auto", default="auto"
        Number of directions in which persons differ, beside their intercepts. "auto" takes those
        that stand out of the noise, at most ten, and maybe none. With public tasks it is at most
        their number, and "auto" those that stand out of permuted targets.
    method : {"gradient", "moments"}, default="gradient"
        What a round of improving the directions releases. "gradient" releases a matrix of as many
        numbers as the directions have. "moments" releases all products of these numbers, for
        comparison with Jain et al. (2021): far more noise for one exact step. Neither changes
        anything where a round finds no more than noise: mostly so without public tasks.
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns: two numbers, which apply to every column, or two arrays of
        shape (n_features,), the low ends and the high ends. Ranges that are much wider than the
        columns are spread cost accuracy. Where the fit is given public rows, their ranges are
        taken instead. None without public rows finds the place and the spread of each column from
        noisy counts, which cost a part of the budget.
    target_bounds : tuple (low, high) or None, default=None
        Public range of the targets, two numbers. Targets outside are clipped to it in ``fit``. None
        takes the range of `y_public`, a tenth wider on either side, where the fit is given public
        tasks. Else a coarse range is found from noisy counts, which cost a part of the budget.
    n_iter : int or "auto", default="auto"
        Number of rounds, all of them charged. "auto" takes two at most, and none where noise would
        hide what a round brings: directions from public tasks, or from one release, are hard to
        improve. Without privacy, too, a round that finds no more than noise changes nothing.
    batch_size : int or None, default=None
        Expected number of persons in the random (Poisson) batch of a round. None uses all persons
        in every round, which needs the least noise. Not used with ``epsilon=float("inf")``.
    missing_groups : {"raise", "each_row"}, default="raise"
        What ``fit`` and ``predict`` do without `groups`. "raise" refuses. "each_row" makes each row
        a person of its own in ``fit``, where the unit of the guarantee is then the row, and
        predicts by the shared model in ``predict``.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the shared model, in the units of the data.
    intercept_ : float
        Its constant.
    components_ : ndarray of shape (n_components, n_features)
        Directions, of length 1, along which weights of persons differ.
    n_components_ : int
        Their number.
    groups_ : ndarray of shape (n_persons,)
        Names of the persons. **Not for publication**, like everything that follows.
    personal_coef_ : ndarray of shape (n_persons, n_features)
        Weights of each person's model, in the units of the data.
    personal_intercept_ : ndarray of shape (n_persons,)
        Constants of each.
    choices_ : ndarray of shape (n_persons, n_kinds)
        How much each kind of head counts in a person's model; rows add up to 1.
    kinds_ : list of str
        What the kinds are: no head but the shared model, an own intercept, own weights in any
        direction, own weights along the shared directions, along those of public tasks, as
        models of public tasks are, some of these together, or all alone.
    bounds_ : tuple of two ndarrays of shape (n_features,)
        Ranges that entries of rows are cut to, in ``fit`` and ``predict`` alike.
    bounds_found_ : dict
        Whether the place and the spread of each column, "bounds", and of the targets,
        "target_bounds", were seen through the noise. ``fit`` warns where they were not.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. It is set just before the first release:
        a fit that fails later keeps it, since the budget is gone.
    n_iter_ : int
        Number of rounds charged.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    SharedLinearModel : What may be published.
    DPLinearRegression : One model for all; ``fit(X, y, groups=...)`` protects persons as well.
    PublicSubspaceLinearRegression : One model in the directions of public tasks.

    Notes
    -----
    The model of person j is ``y = a_j + x' (b + U v_j)``. The guarantee is *joint* differential
    privacy (Kearns, Pai, Roth, Ullman, 2014): whatever a person's rows are, they change the
    probability of anything that all others are told, together, by at most the factor that
    epsilon stands for. A person's own model is told to that person, and no bound is needed for what
    it says of the person's own rows. The shared part, ``public_part()``, is differentially
    private in the usual sense, with a person as the unit (the billboard lemma; Hsu et al., 2014).

    Released are, one after the other, by Gaussian mechanisms of persons:

    - location and scale of columns and targets, a noisy second moment and the gradients of the
      shared model, as for :class:`DPLinearRegression`; each row counts for its part of a person.
      A range in `target_bounds` is looked at as there, with persons in place of rows.
      Without public tasks no second moment is released where noise would hide it, which public
      sizes tell;
    - directions: the sum of each person's products of pairs of residuals,
      ``sum r_i r_l x_i x_l^T``, divided by its own norm, so that a person changes the sum by at
      most 1. Leading eigenvectors above the noise are kept. Public tasks' directions cost nothing;
    - rounds, if any: gradients of the directions at the persons' heads, a matrix of norm 1 for
      each person. Before rounds of public directions, whether heads along them do better than
      intercepts: a number from -1 to 1 of each person. If not, the first round releases the
      sum of products of pairs, which has the same bound, and directions are found from that;
    - the covariance of heads and the variance of what is left, of clipped numbers of each
      person; and how well each kind of head does for all persons, as logarithms of their
      leave-one-out errors, clipped to norm 1.

    A head is then a mean of several ridge regressions on the person's own rows: none at all, an
    intercept, weights in any direction, along the shared directions, along public directions.
    Each counts by how likely it makes the person's own targets and by how well it did for all.
    This needs no choice by the user, and costs no privacy: it is a function of what was released
    and of rows of the person who is told the result, which is all that the billboard lemma asks.
    What noise has hidden of scales, places and the noise of targets is taken from the person's own
    rows. A person whose rows say clearly that a ridge regression on them alone does better has
    that. Jain et al. (2021) have one kind of head and no shared model beside the directions.

    Public tasks tell location and scale of the columns, a shared model to start from, directions,
    and what models are like: their mean, covariance and noise (a mixed model; Laird, Ware, 1982).
    None of that costs privacy. A head by this prior uses nothing that was released, so that with
    good public tasks persons may do best without any of the others (Thaker, Setlur, Wu, Smith,
    2023), and then they do. Tasks that are unlike the persons count for little, and their
    directions are given up where private rows say so.

    The unit is one person. Public are the number of persons, the number and names of the features,
    public tasks, and all parameters but `random_state`. The number of rows of a person, and of all
    together, is private. Of a person with more than 4096 rows the first 4096 are used for
    directions and heads; the shared model uses all. Defaults follow from the number of persons.

    What a person's model predicts tells of that person. Scores, plots and pickles of this estimator
    are not covered by the guarantee; ``public_part()`` is. ``docs/personal_models.md`` says more.

    References
    ----------
    Jain, Rush, Smith, Song, Thakurta. "Differentially private model personalization". NeurIPS
    2021.

    Thaker, Setlur, Wu, Smith. "Leveraging public representations for private transfer learning".
    arXiv 2312.15551, 2023, section 5.

    Hsu, Huang, Roth, Roughgarden, Wu. "Private matchings and allocations". STOC 2014.

    Kearns, Pai, Roth, Ullman. "Mechanism design in large games: incentives and privacy". ITCS 2014.

    Laird, Ware. "Random-effects models for longitudinal data". Biometrics 38(4), 1982.

    Duchi, Feldman, Hu, Talwar. "Subspace recovery from heterogeneous data with non-isotropic
    noise". NeurIPS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import PersonalizedLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(1000), 10)
    >>> X, levels = rng.normal(size=(10000, 4)), rng.normal(size=1000)
    >>> slopes = rng.normal(size=1000)
    >>> y = levels[groups] + slopes[groups] * X[:, 0] + rng.normal(size=10000) / 3
    >>> model = PersonalizedLinearRegression(epsilon=1.0, random_state=0)
    >>> model = model.fit(X, y, groups=groups)
    >>> model.score(X, y, groups=groups) > 0.8
    True
    >>> model.public_part().coef_.shape
    (4,)
    """

    _canary = "shared model"

    # scikit-learn passes `groups` on without a request by the user.
    __metadata_request__predict: ClassVar = {"groups": True}
    _otherwise = "DPLinearRegression"

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    n_components: int | str = "auto"
    method: str = "gradient"
    bounds: tuple[Any, Any] | None = None
    target_bounds: tuple[Any, Any] | None = None
    n_iter: int | str = "auto"
    batch_size: int | None = None
    missing_groups: str = "raise"
    fit_intercept: bool = True
    random_state: int | np.random.RandomState | None = None

    # Public surface -------------------------------------------------------------------------

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, X_public: Any = None, y_public: Any = None
    ) -> Self:
        """Fit the shared part to private rows, and find every person's own.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,)
            Private targets.
        groups : array-like of shape (n_samples,)
            Who each row belongs to, in numbers or text.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Rows of public tasks, one array a task. A tuple is never sliced by cross-validation.
        y_public : array-like of shape (m,) or tuple of such, optional
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
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public, y_public=y_public)

    def predict(self, X: Any, *, groups: Any = None) -> np.ndarray:
        """Return what each row's own model predicts for it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,)
            Who each row belongs to. A person who was not in ``fit`` gets the shared model.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions. They tell of the rows that a person had in ``fit``, and belong to that
            person; those of ``public_part()`` do not.
        """
        return self._scores(X, groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Return R2 of ``predict(X, groups=groups)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            What each row counts for.
        groups : array-like of shape (n_samples,)
            Who each row belongs to.

        Returns
        -------
        float
            Coefficient of determination. Of private rows it is not covered by the guarantee.
        """
        self._warn_of_score()
        predicted = self.predict(X, groups=groups)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def add_user(self, group: Any, X: Any, y: Any) -> Self:
        """Give a person a model of their own: a deprecated name of `add_person`.

        Parameters
        ----------
        group : number or str
            Name of the person, as in `groups`.
        X : array-like of shape (n_samples, n_features)
            Rows of that person.
        y : array-like of shape (n_samples,)
            Targets.

        Returns
        -------
        self : object
            The estimator, which now knows the person.
        """
        warnings.warn(
            "`add_user` is called `add_person` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return self.add_person(group, X, y)

    def public_part(self) -> SharedLinearModel:
        """Return what may be published: the shared model, the directions, and the guarantee.

        Returns
        -------
        SharedLinearModel
            It predicts for people of whom nothing is known, and makes a personal model from a few
            rows of anybody. It holds nothing of the rows, the names or the models of persons.
        """
        check_is_fitted(self, "coef_")
        return cast(SharedLinearModel, self._shared_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> PersonalFit:
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds, 1)
        method = check_choice("method", self.method, list(_METHODS))
        plan = self._plan_by(NumberTargets(), self.target_bounds, method=method)
        return replace(plan, shared=plan.shared.looking())

    def _targets(self, given: FitData) -> tuple[Any, np.ndarray, list[str], np.ndarray | None]:
        rows = given.X, given.y
        X, y = check_rows_and_targets(self, *rows, accept_sparse=False, groups=given.groups)
        assumed = [] if self.target_bounds is None else ["range of the targets"]
        return X, one_column(y)[:, None], assumed, None

    def _public_targets(
        self, given: FitData, sets: tuple[np.ndarray, ...], classes: np.ndarray | None
    ) -> np.ndarray | None:
        return check_public_values(given.y_public, given.X_public, sets, 1)

    def _public_part(self, found: FittedPersonal, persons: Persons) -> SharedLinearModel:
        return found.public_part(self, SharedLinearModel)
