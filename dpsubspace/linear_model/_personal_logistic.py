"""Personal logistic models: one for each person, for labels of two classes.

Where to check the privacy claim: in the same places as that of personal linear models
(``linear_model/_personal.py``). What differs is public, or a function of one person's rows and of
released numbers: what residuals are (``StandardLogLoss`` in ``_core/gradients/losses.py``), and how
heads are found from them (``_core/solvers/logistic_heads.py``).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.fits.call import estimator
from dpsubspace._core.fits.estimator import FitData
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground.compat import with_callbacks
from dpsubspace._core.plans.personal import (
    ClassTargets,
    FittedPersonal,
    PersonalFit,
    SharedLogisticModel,
)
from dpsubspace._core.rows.columns import read_labels
from dpsubspace._core.rows.inputs import check_classes, check_rows_and_labels
from dpsubspace._core.rows.public import check_public_labels
from dpsubspace._core.rows.records import check_groups
from dpsubspace._names import public
from dpsubspace.linear_model._personal_models import PersonalModels, Persons

# Public ends of labels 0 and 1.
_ENDS = (0.0, 1.0)


@public
@estimator
class PersonalizedLogisticRegression(ClassifierMixin, PersonalModels):
    """A logistic model for each person, with a shared part that protects all rows of a person.

    Many persons have a few rows each, with labels of two classes: what they liked, whether they
    came back. What they have in common is learned with privacy for whole persons: one logistic
    model, the directions in which persons differ from it, and how much they do. From this and from
    their own rows, persons get a model of their own, which may use all that their rows tell,
    since it is given to nobody else.

    Choose `epsilon`, and pass `groups`. Give `bounds` from public knowledge wherever there is any.
    Publish ``public_part()`` and nothing else.

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
    bounds : tuple (low, high) or None, default=None
        Public ranges of the columns: two numbers, which apply to every column, or two arrays of
        shape (n_features,), the low ends and the high ends. Ranges that are much wider than the
        columns are spread cost accuracy. Where the fit is given public rows, their ranges are
        taken instead. None without public rows finds the place and the spread of each column from
        noisy counts, which cost a part of the budget.
    classes : array-like or None, default=None
        All labels that can occur, from public knowledge. None reads them from `y`, and the
        guarantee then takes the set of labels to be public.
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
    classes_ : ndarray of shape (2,)
        Labels.
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
        Whether the place and the spread of each column, "bounds", were seen through the noise.
        ``fit`` warns where they were not. Labels have public ends: "target_bounds" is True.
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
    SharedLogisticModel : What may be published.
    PersonalizedLinearRegression : The same for numbers, with the details of what is released.
    DPSGDClassifier : One model for all; ``fit(X, y, groups=...)`` protects persons as well.

    Notes
    -----
    The log-odds of person j for a row x are ``a_j + x' (b + U v_j)``. The guarantee is *joint*
    differential privacy, and the unit, what is public and what is released are those of
    :class:`PersonalizedLinearRegression`, with these differences:

    - the range of the labels is public. Their noisy mean is released, as that of targets is. With p
      the mean, cut to 0.1 to 0.9, labels count as ``(y - p) / sqrt(p (1 - p))``, and residuals are
      differences of labels and probabilities over the same root. Each person contributes functions
      of these to the same sums, with the same bounds, which hold whatever residuals are;
    - the shared model minimises the log loss by the same steps, each a noisy sum of clipped
      gradients of persons;
    - residuals show less of how persons differ, the more all scores vary (MacKay, 1992): what is
      released of heads is corrected for that, which needs released numbers only.

    A head is a mean of several logistic models of the person's own rows, with a normal prior each:
    of no head at all, an intercept, weights in any direction, along the shared directions, along
    public directions. It is the mode, found by a fixed number of steps (Jaakkola, Jordan, 2000),
    and finite also where a person has rows of one class alone. Each kind counts by how likely it
    makes the person's own labels, by Laplace's approximation, and by how well it did for all,
    as leave-one-out losses say that have a closed form at the mode. Scores are shrunk by what is
    not known of them, so that probabilities of persons with few rows are not too sure. A
    head is a function of what was released and of rows of the person who is told the result.

    Public tasks tell what models are like by penalised quasi-likelihood (Breslow, Clayton, 1993).

    Two classes only: of more, fit one model for each class, each with its part of the budget.

    References
    ----------
    Hsu, Huang, Roth, Roughgarden, Wu. "Private matchings and allocations". STOC 2014.

    Jaakkola, Jordan. "Bayesian parameter estimation via variational methods". Statistics and
    Computing 10, 2000.

    MacKay. "The evidence framework applied to classification networks". Neural Computation 4(5),
    1992.

    Breslow, Clayton. "Approximate inference in generalized linear mixed models". Journal of the
    American Statistical Association 88, 1993.

    Duchi, Feldman, Hu, Talwar. "Subspace recovery from heterogeneous data with non-isotropic
    noise". NeurIPS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.linear_model import PersonalizedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(1000), 20)
    >>> X, levels = rng.normal(size=(20000, 4)), 2 * rng.normal(size=1000)
    >>> slopes = 2 * rng.normal(size=1000)
    >>> y = levels[groups] + slopes[groups] * X[:, 0] + rng.logistic(size=20000) > 0
    >>> model = PersonalizedLogisticRegression(epsilon=1.0, random_state=0)
    >>> model = model.fit(X, y, groups=groups)
    >>> model.score(X, y, groups=groups) > 0.75
    True
    >>> model.public_part().coef_.shape
    (4,)
    """

    _canary = "shared logistic model"

    # scikit-learn passes `groups` on without a request by the user.
    __metadata_request__predict: ClassVar = {"groups": True}
    __metadata_request__predict_proba: ClassVar = {"groups": True}
    __metadata_request__predict_log_proba: ClassVar = {"groups": True}
    __metadata_request__decision_function: ClassVar = {"groups": True}
    _otherwise = "DPSGDClassifier"

    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    n_components: int | str = "auto"
    bounds: tuple[Any, Any] | None = None
    classes: Any = None
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
            Private labels, of two classes.
        groups : array-like of shape (n_samples,)
            Who each row belongs to, in numbers or text.
        X_public : array-like of shape (m, n_features) or tuple of such, optional
            Rows of public tasks, one array a task. A tuple is never sliced by cross-validation.
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
        return self._fit_by(self._plan(), X, y, groups=groups, X_public=X_public, y_public=y_public)

    def decision_function(self, X: Any, *, groups: Any = None) -> np.ndarray:
        """Return the log-odds of the second class, by each row's own model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,)
            Who each row belongs to. A person who was not in ``fit`` gets the shared model.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive where the second class is predicted. They tell of the rows that a person had
            in ``fit``, and belong to that person; those of ``public_part()`` do not.
        """
        return self._scores(X, groups)

    def predict(self, X: Any, *, groups: Any = None) -> np.ndarray:
        """Return the label that each row's own model predicts for it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,)
            Who each row belongs to. A person who was not in ``fit`` gets the shared model.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels, each from ``classes_``. They tell of the rows that a person had
            in ``fit``, and belong to that person; those of ``public_part()`` do not.
        """
        positive = self._scores(X, groups) > 0
        return self.classes_[positive.astype(np.intp)]

    def predict_proba(self, X: Any, *, groups: Any = None) -> np.ndarray:
        """Return class probabilities by each row's own model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,)
            Who each row belongs to. A person who was not in ``fit`` gets the shared model.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Columns in the order of ``classes_``. They tell of the rows that a person had
            in ``fit``, and belong to that person; those of ``public_part()`` do not.
        """
        return LogLoss().predict(self._scores(X, groups)[:, None])

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> np.ndarray:
        """Return the logarithm of class probabilities by each row's own model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        groups : array-like of shape (n_samples,)
            Who each row belongs to. A person who was not in ``fit`` gets the shared model.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Columns in the order of ``classes_``. They tell of the rows that a person had
            in ``fit``, and belong to that person; those of ``public_part()`` do not.
        """
        with np.errstate(divide="ignore"):  # log 0 is -inf, as it should be
            return np.log(self.predict_proba(X, groups=groups))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Return the accuracy of ``predict(X, groups=groups)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            What each row counts for.
        groups : array-like of shape (n_samples,)
            Who each row belongs to.

        Returns
        -------
        float
            Share of rows whose label is predicted. Of private rows it is not covered by the
            guarantee.
        """
        self._warn_of_score()
        predicted = self.predict(X, groups=groups)
        return float(accuracy_score(read_labels(y), predicted, sample_weight=sample_weight))

    def public_part(self) -> SharedLogisticModel:
        """Return what may be published: the shared model, the directions, and the guarantee.

        Returns
        -------
        SharedLogisticModel
            It predicts for people of whom nothing is known, and makes a personal model from a few
            rows of anybody. It holds nothing of the rows, the names or the models of persons.
        """
        check_is_fitted(self, "coef_")
        return cast(SharedLogisticModel, self._shared_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    # The fit --------------------------------------------------------------------------------

    def _plan(self) -> PersonalFit:
        return self._plan_by(ClassTargets(), _ENDS, method="gradient")

    def _targets(self, given: FitData) -> tuple[Any, np.ndarray, list[str], np.ndarray | None]:
        rows = given.X, given.y
        X, y = check_rows_and_labels(self, *rows, accept_sparse=False, groups=given.groups)
        grouped = check_groups(given.groups, X).grouped
        classes, codes = check_classes(y, self.classes, grouped=grouped)
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported: labels are of more than two classes."
                " Fit one model for each class, each with its part of the budget."
            )
        how = "read from y" if self.classes is None else "given"
        assumed = [f"set of labels (2, {how})"]
        return X, codes.astype(np.float64)[:, None], assumed, classes

    def _public_targets(
        self, given: FitData, sets: tuple[np.ndarray, ...], classes: np.ndarray | None
    ) -> np.ndarray | None:
        assert classes is not None
        codes = check_public_labels(given.y_public, given.X_public, sets, classes)
        return None if codes is None else codes.astype(np.float64)[:, None]

    def _public_part(self, found: FittedPersonal, persons: Persons) -> SharedLogisticModel:
        return found.public_part(self, SharedLogisticModel, classes_=persons.classes)

    def _store(self, found: FittedPersonal, persons: Persons) -> None:
        assert persons.classes is not None
        self.classes_: np.ndarray = persons.classes
        super()._store(found, persons)
