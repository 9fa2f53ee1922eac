"""The cost of fits, and one budget shared among several fits, before any data are seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from dpsubspace._core.accounting.budget import Target, share_of_parts
from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import composed, is_free, mechanisms_of
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, guarantee_in
from dpsubspace._core.fits.composites import Node, opened, private_nodes
from dpsubspace._core.ground.checks import check_integer, check_real, shown
from dpsubspace._core.rows.records import PERSON, ROW, group_index
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def privacy_event(
    what: Any,
    *,
    n_samples: int | None = None,
    n_features: int | None = None,
    n_outputs: int | None = None,
    n_public: int | Mapping[str, int] = 0,
    labelled: bool = False,
) -> DpEvent:
    """Return what several fits on the same rows will release together, before any data are seen.

    A Pipeline with two private steps costs more than either and less than the sum of their
    epsilons; the event is what accountants and ledgers add up.

    Parameters
    ----------
    what : estimator, Pipeline, ColumnTransformer or list
        What will be fitted: an estimator of this package, or a Pipeline or ColumnTransformer whose
        steps are private, work row by row or are frozen. A list may hold any of these, steps
        ``(name, estimator)``, and what was released before: guarantees, what private functions
        return, and events.
    n_samples : int, optional
        Number of private rows, or of persons. Needed where ``delta="auto"`` or a `batch_size` is
        set.
    n_features : int, optional
        Number of features, as in the method of that name of an estimator.
    n_outputs : int, optional
        Number of columns of scores: 1 for two classes, else that of classes or targets.
    n_public : int or dict, default=0
        Number of public rows. Where there are several private steps, a dict from the names of the
        steps that get public rows to their number.
    labelled : bool, default=False
        Whether the public rows have labels.

    Returns
    -------
    DpEvent
        The ``dp_accounting`` event of everything together, which a ledger can charge.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or a size that is needed was not given.
    PrivacyError
        If a step learns from its rows without privacy, so that nothing can be promised.

    See Also
    --------
    privacy_cost : The epsilon of the same.
    share_budget : Sets the budgets of all steps so that they cost a given epsilon together.

    Notes
    -----
    Nothing is released. The event is the composition of the events of all private steps: each is
    what the step's ``privacy_.event`` will be (or costs the same, where the step does not know how
    many columns it will get). All steps are taken to see the same records, which is never less
    than what they cost if they do not. A fit that is done twice is to be listed twice.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import BoundedScaler, DPSGDClassifier, privacy_cost
    >>> from dpsubspace.budget import privacy_event
    >>> model = make_pipeline(BoundedScaler(epsilon=0.2), DPSGDClassifier(epsilon=0.9))
    >>> event = privacy_event(model, n_samples=5000)
    >>> round(privacy_cost([event], delta=1e-5, neighboring_relation="zero_out"), 2)
    0.93
    """
    sizes = {"n_samples": n_samples, "n_features": n_features, "n_outputs": n_outputs}
    planned = [*_planned(what, _Sizes(sizes, n_public, labelled))]
    return composed(plan.event for plan in planned)


def privacy_cost(
    what: Any,
    *,
    n_samples: int | None = None,
    delta: float | str = "auto",
    n_features: int | None = None,
    n_outputs: int | None = None,
    n_public: int | Mapping[str, int] = 0,
    labelled: bool = False,
    neighboring_relation: str | None = None,
) -> float:
    """Return the epsilon of several fits on the same rows together, before any data are seen.

    It says what a Pipeline promises as a whole, and what is left for more, without fitting.

    Parameters
    ----------
    what : estimator, Pipeline, ColumnTransformer or list
        What will be fitted: an estimator of this package, or a Pipeline or ColumnTransformer whose
        steps are private, work row by row or are frozen. A list may hold any of these, steps
        ``(name, estimator)``, and what was released before: guarantees, what private functions
        return, and events.
    n_samples : int, optional
        Number of private rows, or of persons. Needed where ``delta="auto"`` or a `batch_size` is
        set.
    delta : float or "auto", default="auto"
        Additive slack at which all of it is counted. "auto" is ``min(1e-5, 1 / (10 n_samples))``,
        or that of the ledger inside of one.
    n_features : int, optional
        Number of features, as in the method ``privacy_event`` of an estimator.
    n_outputs : int, optional
        Number of columns of scores: 1 for two classes, else that of classes or targets.
    n_public : int or dict, default=0
        Number of public rows. Where there are several private steps, a dict from the names of the
        steps that get public rows to their number.
    labelled : bool, default=False
        Whether the public rows have labels.
    neighboring_relation : {"zero_out", "replace_one"} or None, default=None
        What the guarantee hides. None is that of the estimators and guarantees in `what`, which
        must agree; events alone do not tell theirs.

    Returns
    -------
    float
        Epsilon at `delta`: exact where everything is Gaussian noise on all rows, and an upper
        bound otherwise.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or a size that is needed was not given.
    PrivacyError
        If a step learns from its rows without privacy, if relations or units differ, or if no
        accountant supports the combination.

    See Also
    --------
    privacy_event : What is counted here.
    PrivacyLedger : Counts fits as they come, also where each is chosen after seeing the last.

    Notes
    -----
    Nothing is released. The epsilon is that of a plan: fits that are all decided on before the
    first of them runs. A ledger, which allows to decide later, may count a little more where there
    are batches or mechanisms without a delta. Fits that are seeded are counted by what they
    claim.

    Examples
    --------
    Nine tenths and two tenths are not eleven tenths:

    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import BoundedScaler, DPSGDClassifier, privacy_cost
    >>> model = make_pipeline(BoundedScaler(epsilon=0.2), DPSGDClassifier(epsilon=0.9))
    >>> round(privacy_cost(model, n_samples=5000), 2)
    0.93
    >>> round(privacy_cost([model, model], n_samples=5000), 2)
    1.36
    """
    given = {"n_samples": n_samples, "n_features": n_features, "n_outputs": n_outputs}
    planned = [*_planned(what, _Sizes(given, n_public, labelled))]
    relation = _agreed_relation(planned, neighboring_relation)
    event = composed(plan.event for plan in planned)
    if is_free(event):
        return 0.0
    target = Target(1.0, delta, relation).checked(pure=True)
    return Cost.of(event, relation).epsilon(target.delta_at(n_samples))


def share_budget(
    pipeline: Any,
    epsilon: float,
    delta: float | str = "auto",
    *,
    shares: Mapping[str, float] | None = None,
    n_samples: int | None = None,
    n_features: int | None = None,
    n_outputs: int | None = None,
    n_public: int | Mapping[str, int] = 0,
    labelled: bool = False,
) -> Any:
    """Set the budgets of the private steps so that together they cost exactly one budget.

    Each private step of a Pipeline has an `epsilon` of its own, and these do not simply add up.

    Parameters
    ----------
    pipeline : estimator, Pipeline, ColumnTransformer or list
        What will be fitted, as :func:`privacy_event` takes it, but nothing that was released
        before. The parameters `epsilon` and `delta` of its private steps are set.
    epsilon : float
        Privacy budget of everything together, from 1e-4 to 1e6; inf for no privacy.
    delta : float or "auto", default="auto"
        Additive slack of everything together. "auto" is ``min(1e-5, 1 / (10 n_samples))``, or that
        of the ledger inside of one. Steps get the number.
    shares : dict or None, default=None
        From the name of each private step to its share of the budget, in any unit: squares of mu
        are shared, not epsilons, since those add up. None keeps the ratio that the steps' own
        epsilons say.
    n_samples : int, optional
        Number of private rows, or of persons. Needed where ``delta="auto"`` or a `batch_size` is
        set.
    n_features : int, optional
        Number of features, as in the method ``privacy_event`` of an estimator.
    n_outputs : int, optional
        Number of columns of scores: 1 for two classes, else that of classes or targets.
    n_public : int or dict, default=0
        Number of public rows. Where there are several private steps, a dict from the names of the
        steps that get public rows to their number.
    labelled : bool, default=False
        Whether the public rows have labels.

    Returns
    -------
    pipeline : estimator, Pipeline, ColumnTransformer or list
        What was given, and not a copy of it.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or a size that is needed was not given; no step is
        changed then.
    PrivacyError
        If a step learns from its rows without privacy.

    See Also
    --------
    privacy_cost : What all steps cost together now.

    Notes
    -----
    A Gaussian mechanism of noise multiplier s has ``mu = 1 / s``, and mechanisms one after another
    are one whose square of mu is the sum (Dong, Roth, Su, 2022, Corollary 3.3). With the share w_i
    of step i, its epsilon is that of ``sqrt(w_i) mu`` at `delta`, with mu that of `epsilon` and
    `delta`: exactly the budget together, whatever each step releases, as long as that is
    Gaussian noise on all rows. Where it is not (batches, exponential mechanisms, private
    searches), the whole is counted by its accountant, and one factor on all squares of mu is
    found by bisection, from the private side and within 2e-4 of `epsilon`. A step that
    releases nothing gets nothing.

    References
    ----------
    Dong, Roth, Su. "Gaussian differential privacy". Journal of the Royal Statistical Society B,
    2022.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import BoundedScaler, DPSGDClassifier, privacy_cost
    >>> from dpsubspace.budget import share_budget
    >>> model = make_pipeline(BoundedScaler(), DPSGDClassifier())
    >>> shares = {"boundedscaler": 1, "dpsgdclassifier": 9}
    >>> model = share_budget(model, 1.0, shares=shares, n_samples=5000)
    >>> [round(step.epsilon, 2) for _, step in model.steps]
    [0.28, 0.94]
    >>> round(privacy_cost(model, n_samples=5000), 6)
    1.0
    """
    given = {"n_samples": n_samples, "n_features": n_features, "n_outputs": n_outputs}
    planned = [*_planned(pipeline, _Sizes(given, n_public, labelled))]
    if any(plan.part is None for plan in planned):
        raise ValueError(
            "`pipeline` holds something that was released before, whose cost cannot be changed:"
            " share what is left of the budget among what will be fitted."
        )
    paying = [plan for plan in planned if not is_free(plan.event)]
    target = Target(epsilon, delta, _agreed_relation(planned, None)).checked()
    weights = _weights([plan.name for plan in paying], shares)
    sizes = {id(plan.part): plan.sizes for plan in paying}
    if len(sizes) < len(paying):
        raise ValueError("`pipeline` lists one estimator twice: list clones of it.")
    share_of_parts(
        [plan.part for plan in paying],
        lambda part: part.privacy_event(**sizes[id(part)]),
        epsilon=float(epsilon),
        delta=target.delta_at(n_samples),
        weights=weights,
    )
    return pipeline


def _weights(names: Sequence[str], shares: Mapping[str, float] | None) -> list[float] | None:
    if shares is None:
        return None
    if not isinstance(shares, Mapping) or {*shares} != {*names} or len(shares) < len(names):
        raise ValueError(
            f"`shares` must be a dict with one number for each private step, whose names must"
            f" differ, {sorted(names)}, got {shown(shares)}."
        )
    return [check_real(f"shares[{name!r}]", shares[name], low=0) for name in names]


# Plans ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PlannedFit:
    """A future fit, or (without a `part`) an earlier release."""

    name: str
    event: DpEvent
    relation: str | None
    unit: str | None = None
    part: Any = None
    sizes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sizes:
    given: Mapping[str, int | None]
    n_public: int | Mapping[str, int]
    labelled: bool

    def of(self, name: str, *, alone: bool, columns: bool) -> dict[str, Any]:
        """Return sizes for the part `name`; `columns` if it sees the given number of columns."""
        known = dict(self.given) if columns else {**self.given, "n_features": None}
        n_public = self.n_public
        if isinstance(n_public, Mapping):
            n_public = n_public.get(name, 0)
        elif n_public and not alone:
            raise ValueError(
                f"`n_public`={shown(n_public)} does not say which of several private steps gets"
                " public rows: give a dict from names of steps to numbers."
            )
        n_public = check_integer("n_public", n_public, low=0)
        return {**known, "n_public": n_public, "labelled": self.labelled and n_public > 0}


def _planned(what: Any, sizes: _Sizes) -> Iterator[_PlannedFit]:
    found = [*_items(what)]
    parts = [item for item in found if not isinstance(item, _PlannedFit)]
    names = {name for name, *_ in parts}
    if isinstance(sizes.n_public, Mapping) and (unknown := {*sizes.n_public} - names):
        raise ValueError(
            f"`n_public` has {sorted(unknown)}, but the private steps are {sorted(names)}."
        )
    for item in found:
        if isinstance(item, _PlannedFit):
            yield item
            continue
        name, part, columns = item
        own = sizes.of(name, alone=len(parts) == 1, columns=columns)
        event = part.privacy_event(**own)
        mechanisms_of(event)  # PrivacyError for an impossible event
        relation = part._whole.neighboring_relation
        yield _PlannedFit(name, event, relation, part=part, sizes=own)


def _items(what: Any) -> Iterator[_PlannedFit | tuple[str, Any, bool]]:
    """Yield plans of earlier releases, and (name, estimator, "sees all columns") of future fits."""
    what = guarantee_in(what) or what
    if isinstance(what, PrivacyGuarantee):
        yield _PlannedFit("released before", what.event, what.neighboring_relation, what.unit)
    elif type(what).__name__.endswith("DpEvent"):
        mechanisms_of(what)
        yield _PlannedFit("event", what, None)
    elif isinstance(what, (list, tuple)):
        if len(what) == 2 and isinstance(what[0], str):
            yield from ((what[0], part, all_) for _, part, all_ in _fitted(what[1], alone=True))
            return
        if not what:
            raise ValueError("nothing to plan: the list is empty.")
        for each in what:
            yield from _items(each)
    else:
        yield from _fitted(what)


def _fitted(estimator: Any, *, alone: bool = False) -> Iterator[tuple[str, Any, bool]]:
    parts = private_nodes(estimator, columns=True)
    if alone and len(parts) > 1:
        raise ValueError("a step of a list must be one estimator: give a Pipeline without a name.")
    yield from ((node.name, node.model, node.whole) for node in parts)


def _agreed_relation(planned: Iterable[_PlannedFit], given: str | None) -> str:
    """Return the relation of all plans; PrivacyError if there are two, or two units."""
    planned = [plan for plan in planned if not is_free(plan.event)]
    relations = {plan.relation for plan in planned if plan.relation is not None}
    relations |= set() if given is None else {given}
    units = {plan.unit for plan in planned if plan.unit is not None}
    for name, found in (("neighboring_relation", relations), ("unit", units)):
        if len(found) > 1:
            raise PrivacyError(
                f"{' and '.join(map(repr, sorted(found)))} cannot be added up: what is counted"
                f" together needs one `{name}`."
            )
    if planned and not relations:
        raise PrivacyError("an event does not say its relation: give `neighboring_relation`.")
    return relations.pop() if relations else "zero_out"


# Sizes of given rows ---------------------------------------------------------------------------


def records_of(X: Any, fit_params: dict[str, Any], name: str = "") -> tuple[int, str]:
    """Return the number of records that a step is fitted to, and the unit of a record.

    `name` is the name of the step, if it has one.
    """
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    groups = _given(fit_params, name).get("groups")
    if groups is None or not n_rows:
        return n_rows, ROW
    return group_index(groups, n_rows)[2], PERSON


def _given(fit_params: dict[str, Any], name: str) -> dict[str, Any]:
    given = {key: value for key, value in fit_params.items() if value is not None}
    if name:
        return {key.removeprefix(f"{name}__"): value for key, value in given.items()}
    return {key.split("__")[-1]: value for key, value in given.items()}


def plan_of(part: Any, X: Any, y: Any, fit_params: dict[str, Any], name: str = "") -> DpEvent:
    """Return the event of a future fit of `part` from public sizes; `name` is that of its step."""
    sizes: dict[str, Any] = {}
    if is_regressor(part):
        shape = np.shape(y)
        sizes["n_outputs"] = shape[1] if len(shape) == 2 else 1
    given = _given(fit_params, name)
    sizes |= {"n_public": int("X_public" in given), "labelled": "y_public" in given}
    return part.privacy_event(records_of(X, fit_params, name)[0], **sizes)


def fits_unseen(estimator: Any) -> bool:
    """Return whether parts may make releases that nobody sees: elsewhere, or as clones."""
    steps = opened(estimator).inside if type(estimator) is Pipeline else ()
    inside = any(type(step.model) is ColumnTransformer for step in steps)
    return inside or getattr(estimator, "memory", None) is not None


# Guarantees -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublicSizes:
    """Public sizes that only the caller may know."""

    n_samples: int | None = None
    n_features: int | None = None
    n_outputs: int | None = None
    n_train: int | None = None


def guarantee_of(step: Node, sizes: PublicSizes) -> PrivacyGuarantee:
    """Return the guarantee of a private step after its fit, or the one it would have."""
    part, name = step.model, type(step.model).__name__
    if hasattr(part, "privacy_"):
        return part.privacy_
    if sizes.n_samples is None:
        raise PrivacyError(
            f"{name} is not fitted. Report what a fit would cost, before any rows are seen, with"
            f" privacy_report({name}(...), n_samples=1000), or call fit first."
        )
    n_samples = check_integer("n_samples", sizes.n_samples, low=1)
    n_features = sizes.n_features if step.whole else None
    event = part.privacy_event(n_samples, n_features, sizes.n_outputs)
    asked = part._whole
    delta = Target(1.0, asked.delta).delta_at(n_samples)
    epsilon = getattr(asked, "epsilon", None)
    if epsilon is None:
        epsilon = Cost.of(event, asked.neighboring_relation).epsilon(delta)
    return PrivacyGuarantee(
        event=event,
        epsilon=float(epsilon),
        delta=delta,
        neighboring_relation=asked.neighboring_relation,
        unit="row",
        secure=asked.random_state is None,
        public=(f"number of records ({n_samples})", "all parameters but random_state"),
        of=name,
        n_samples=n_samples,
        n_features=n_features,
    )
