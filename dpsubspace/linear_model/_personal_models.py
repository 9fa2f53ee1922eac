"""Base class of models with a part for each person: the fit, and the parts by person."""

from __future__ import annotations

import os
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.checks import (
    check_bool,
    check_bounds,
    check_choice,
    check_integer,
    copied_bounds,
)
from dpsubspace._core.ground.compat import CallbackSupportMixin
from dpsubspace._core.ground.forms import Fixed, NumberArray
from dpsubspace._core.plans.personal import (
    ClassTargets,
    FittedPersonal,
    PersonalFit,
    SharedModel,
    TargetModel,
)
from dpsubspace._core.plans.public_view import ColumnsOfTasks
from dpsubspace._core.plans.regression import RegressionFit
from dpsubspace._core.rows.inputs import check_rows, named
from dpsubspace._core.rows.public import Data, PublicRows, check_public_rows
from dpsubspace._core.rows.records import check_groups, group_index, names_of_records
from dpsubspace._core.solvers.heads import Heads
from dpsubspace.exceptions import PrivacyWarning, warn
from dpsubspace.linear_model._advice import warn_of_noise, warn_of_ranges, warn_of_wrong_range

# Attributes that belong to the persons.
_OF_PERSONS = ("groups_", "personal_coef_", "personal_intercept_", "choices_")

# Kinds of names of persons beside numbers.
_KINDS = {"U": "text", "M": "dates", "m": "times"}


_MATRIX, _VECTOR = NumberArray(("persons", None)), NumberArray(("persons",))


class Persons(NamedTuple):
    """Facts about the persons and their targets, beside the rows."""

    names: np.ndarray  # (n_persons,): sorted names
    classes: np.ndarray | None  # (2,): labels, if targets are labels


class PersonalModels(CallbackSupportMixin, PrivateEstimator):
    """Base class of models with a part for each person."""

    # scikit-learn passes public rows and `groups` on without a request by the user.
    __metadata_request__fit: ClassVar = {"X_public": True, "y_public": True}
    __metadata_request__score: ClassVar = {"groups": True}
    device: ClassVar[str] = "cpu"

    # Name of the estimator with one model for all rows.
    _otherwise: ClassVar[str]

    # Parameters that every subclass has.
    n_components: int | str
    bounds: tuple[Any, Any] | None
    n_iter: int | str
    batch_size: int | None
    missing_groups: str
    fit_intercept: bool

    # Set by `fit`.
    kinds_: list[str]
    n_iter_: int
    bounds_: tuple[np.ndarray, np.ndarray]
    bounds_found_: dict[str, np.ndarray]
    components_: np.ndarray
    n_components_: int
    intercept_: float
    coef_: np.ndarray

    _saved: ClassVar = {
        # Parts of persons: only pickles have them.
        "_heads_": Fixed(_MATRIX, _VECTOR, _MATRIX, _MATRIX, _VECTOR, made=Heads),
    }

    # Public surface -------------------------------------------------------------------------

    def add_person(self, group: Any, X: Any, y: Any) -> Self:
        """Give a person who was not in ``fit`` a model of their own; or another, with other rows.

        Nothing is released by that, and it costs no privacy: the model is made from the shared part
        and the person's own rows, and belongs to that person.

        Parameters
        ----------
        group : number or str
            Name of the person, as in `groups`.
        X : array-like of shape (n_samples, n_features)
            Rows of that person.
        y : array-like of shape (n_samples,)
            Their targets or labels.

        Returns
        -------
        self : object
            The estimator, which now knows the person.
        """
        check_is_fitted(self, "coef_")
        if np.ndim(group) != 0:
            raise ValueError("`group` must be the name of one person, a number or text.")
        found = self._shared_._head(self, named("add_person"), X, y)
        name = group_index([group], 1)[1]
        place = int(self._known(name)[0])
        if place >= 0:
            heads = Heads(*(part.copy() for part in self._heads_))
            for part, new in zip(heads, found, strict=True):
                part[place] = new[0]
            self._store_heads(self._groups_, heads)
            return self
        if "f" in (name.dtype.kind, self._groups_.dtype.kind) and (
            name.dtype.kind != self._groups_.dtype.kind
        ):  # in one array names would be rounded, and two could become one
            raise ValueError("`group` must be a whole number, as names of persons are in `fit`.")
        names = np.concatenate([self._groups_, name])
        order = np.argsort(names, kind="stable")
        parts = (np.concatenate(pair)[order] for pair in zip(self._heads_, found, strict=True))
        self._store_heads(names[order], Heads(*parts))
        return self

    def _scores(self, X: Any, groups: Any) -> np.ndarray:
        """Return the scores of rows, each by the model of its person."""
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False, accept_sparse=False)
        shared = self._shared_._scaled
        if groups is None:
            self._check_missing("predict", "or public_part().predict(X) for the shared model")
            return shared.scores(X, None, None)
        index, names, _ = group_index(groups, X.shape[0])
        return shared.scores(X, self._heads_, self._known(names)[index])

    # Parts of persons -------------------------------------------------------------------------

    @property
    def groups_(self) -> np.ndarray:
        """Names of the persons."""
        return self._of_persons("_groups_")

    @property
    def personal_coef_(self) -> np.ndarray:
        """Weights of each person's model."""
        return self._of_persons("_personal_coef_")

    @property
    def personal_intercept_(self) -> np.ndarray:
        """Constants of each."""
        return self._of_persons("_personal_intercept_")

    @property
    def choices_(self) -> np.ndarray:
        """How much each kind of head counts for each person."""
        return self._of_persons("_heads_").weights

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Return the fitted attributes that notebooks show, without the parts of persons."""
        shown = super()._get_fitted_attr_html(doc_link)  # pyright: ignore[reportAttributeAccessIssue]
        for name in _OF_PERSONS:
            shown.pop(name, None)
        return shown

    def _of_persons(self, name: str) -> Any:
        if name not in vars(self):
            raise AttributeError(f"{type(self).__name__} is not fitted: it knows no persons yet.")
        return vars(self)[name]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the shared part as JSON, which is read without running any code.

        It has no names and no models of persons, which belong to them.

        Parameters
        ----------
        path : path-like, optional
            File to write; an existing one is replaced. Without it nothing is written.

        Returns
        -------
        str
            What was written, as by ``public_part().to_json()``: a shared model, which
            :func:`load` and ``from_json`` of its class read.
        """
        check_is_fitted(self, "coef_")
        return self._shared_.to_json(path)

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "coef_") and self.privacy_.epsilon < float("inf"):
            warn(
                f"this copy of a {type(self).__name__} holds the models and the names of the"
                " persons, which belong to them and are not covered by the guarantee. Publish"
                " public_part() instead.",
                PrivacyWarning,
                about=("pickle", type(self).__name__),
            )
        return super().__getstate__()

    # The fit --------------------------------------------------------------------------------

    def _plan_by(self, targets: TargetModel, target_bounds: Any, *, method: str) -> PersonalFit:
        """Return the plan of the fit; ValueError if a parameter is out of its range."""
        check_choice("missing_groups", self.missing_groups, ["raise", "each_row"])
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, column="feature")
        k, n_iter, batch = self.n_components, self.n_iter, self.batch_size
        if not (isinstance(k, str) and k == "auto"):
            k = check_integer("n_components", k, low=1)
        if not (isinstance(n_iter, str) and n_iter == "auto"):
            n_iter = check_integer("n_iter", n_iter, low=0, high=10_000)
        if batch is not None:
            batch = check_integer("batch_size", batch, low=1)
        constant = check_bool("fit_intercept", self.fit_intercept)
        shared = RegressionFit(
            target=checked_target(self),
            bounds=copied_bounds(self.bounds),
            target_bounds=copied_bounds(target_bounds),
            public=ColumnsOfTasks(k, constant, isinstance(targets, ClassTargets)),
            solver="descent",
            trust_public_scale=True,
            constant=constant,
        )
        return PersonalFit(
            shared=shared,
            targets=targets,
            method=method,
            n_components=None if isinstance(k, str) else k,
            n_iter=n_iter,
            batch_size=batch,
        )

    _joint = True

    def _check(self, plan: PersonalFit, given: FitData) -> CheckedFit:
        if given.groups is None:
            self._check_missing("fit", f"or use {self._otherwise} for one model of all rows")
        X, y, assumed, classes = self._targets(given)
        records = check_groups(given.groups, X)
        names = names_of_records(given.groups, X.shape[0])
        if self.bounds is not None:
            check_bounds("bounds", self.bounds, X.shape[1], column="feature")
        if plan.n_components is not None and plan.n_components > X.shape[1]:
            raise ValueError(
                f"`n_components`={plan.n_components} is more than the {X.shape[1]} columns of `X`."
            )
        sets = check_public_rows(self, X, given.X_public, records)
        values = self._public_targets(given, sets, classes)
        public = PublicRows.of(sets, values)
        if public is not None and values is None:
            raise ValueError("`X_public` holds tasks here, which need targets: pass `y_public`.")
        data = Data(X, y, 1, records, public)
        bounded = [] if self.bounds is None else ["ranges of the features"]
        assumed = [*bounded, *assumed, *([] if public is None else [public.assumption])]
        persons = Persons(names, classes)
        return CheckedFit(plan.with_public_view(data), data, tuple(assumed), persons)

    def _targets(self, given: FitData) -> tuple[Any, np.ndarray, list[str], np.ndarray | None]:
        """Return rows, targets (n, 1), facts about them assumed to be public, and any classes."""
        raise NotImplementedError

    def _public_targets(
        self, given: FitData, sets: tuple[np.ndarray, ...], classes: np.ndarray | None
    ) -> np.ndarray | None:
        """Return targets (m, 1) of all public tasks in one array; None without any."""
        raise NotImplementedError

    def _public_part(self, found: FittedPersonal, persons: Persons) -> SharedModel:
        """Return the shared part, which may be published."""
        raise NotImplementedError

    def _warn_after_fit(self, found: FittedPersonal, budget: Budget, checked: CheckedFit) -> None:
        if budget.private:
            warn_of_ranges(self, self.bounds_found_, "the shared model")
            warn_of_wrong_range(self, found.prepared.focus)

    def _warn_before_fit(
        self, plan: PersonalFit, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        n, p = sizes.known("n_samples", "the warning"), sizes.known("n_features", "it") + 1
        warn_of_noise(self, budget, guarantee, n, p, auto.HIDING_ROWS)

    def _store(self, found: FittedPersonal, persons: Persons) -> None:
        self._shared_ = self._public_part(found, persons)
        self.kinds_ = [*found.personal.prior.names, "alone"]
        self._store_heads(persons.names, found.heads)
        self.n_iter_ = found.n_rounds
        affine, limit = found.prepared.affine, found.prepared.limit
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(affine.weights > 0, limit / affine.weights, np.inf)
        self.bounds_ = (affine.mean - half, affine.mean + half)
        self.bounds_found_ = dict(found.prepared.found)
        self.components_ = self._shared_.components_
        self.intercept_ = self._shared_.intercept_
        self.n_components_ = len(self.components_)
        self.coef_ = self._shared_.coef_  # last: now it can predict

    def _store_heads(self, names: np.ndarray, heads: Heads) -> None:
        self._groups_, self._heads_ = names, heads
        self._personal_coef_, self._personal_intercept_ = self._shared_._scaled.in_units(heads)

    def _known(self, names: np.ndarray) -> np.ndarray:
        """Return the numbers of persons by their names, -1 for unknown persons."""
        ours = self._groups_
        kinds = [_KINDS.get(some.dtype.kind, "numbers") for some in (ours, names)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"`groups` has {kinds[1]}, and in `fit` it had {kinds[0]}.")
        if "f" in (ours.dtype.kind, names.dtype.kind) and ours.dtype.kind != names.dtype.kind:
            # Whole numbers that are exact as floats are integers by now: no person has other ones.
            return np.full(len(names), -1)
        place = np.minimum(np.searchsorted(ours, names), len(ours) - 1)
        return np.where(ours[place] == names, place, -1)

    def _check_missing(self, method: str, otherwise: str) -> None:
        if self.missing_groups == "raise":
            raise ValueError(
                f"`groups` is missing: {method} needs to know who each row belongs to. Pass"
                f" `groups`, {otherwise}. Cross-validation passes them on with metadata routing"
                " only, and private_score does not: it takes public_part(). With"
                " missing_groups='each_row' each row is a person of its own."
            )
