"""The subject of a report: its releases, their total cost, and uses of the rows without a charge.

Everything is read from fitted models and their parameters, never from the rows. If they do not
show something, the report is refused, or names this as a reason why there is no guarantee: a report
errs on the side of the people whose records they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from dpsubspace._core.accounting.attacker import Attacker
from dpsubspace._core.accounting.budget import default_delta
from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import composed, non_private
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, guarantee_in
from dpsubspace._core.fits.composites import (
    CHOOSES,
    FITS,
    FROZEN,
    LEARNS,
    PRIVATE,
    Node,
    is_private,
    opened,
    told_of_transformed,
)
from dpsubspace._core.ground.checks import check_integer, shown
from dpsubspace.budget._filter import named
from dpsubspace.budget._journal import LedgerEntry
from dpsubspace.budget._ledger import PrivacyLedger
from dpsubspace.budget._planner import PublicSizes, guarantee_of
from dpsubspace.exceptions import PrivacyError

# Splitters whose number of splits determines how many records are in each split.
_FOLDS = (KFold, StratifiedKFold)


@dataclass(frozen=True)
class Item:
    name: str
    guarantee: PrivacyGuarantee
    count: int = 1
    date: str = ""
    what: str = ""  # one line about it, if its class is known


class LedgerBudget(NamedTuple):
    epsilon: float
    delta: float
    left: float  # epsilon, for one more fit


class Bound(NamedTuple):
    """The most that an attacker can learn from the past releases, or from a whole budget."""

    of: str
    epsilon: float
    attacker: Attacker


@dataclass
class Account:
    """The facts of a report about its subject; see :func:`account_of`."""

    subject: str  # Name of the subject
    # One of "fit", "release", "pipeline", "model", "search", "cross-validation", "ledger".
    kind: str
    items: list[Item]  # All fits and releases that were charged
    total: PrivacyGuarantee  # Guarantee of all of them together
    # Why there is no guarantee for the subject as a whole; empty if there is one.
    reasons: list[str] = field(default_factory=list)
    # Conditions of the guarantee that are easily overlooked.
    cautions: list[str] = field(default_factory=list)
    # Computations that used private rows, or may have, and are in no sum.
    uncharged: list[str] = field(default_factory=list)
    # Facts that the curator has to vouch for, since no program can see them.
    vouched: list[str] = field(default_factory=list)
    planned: bool = False  # Whether nothing has been fitted yet
    budget: LedgerBudget | None = None  # of a ledger
    # Observations of a ledger that no sum counts, and that are no reason against a guarantee.
    alarms: list[str] = field(default_factory=list)
    seen: tuple[tuple[str, str, int], ...] = ()  # All observations; see ``_workflow.seen``

    @property
    def bounded(self) -> bool:
        """Whether there is a bound on what all releases together reveal."""
        return not self.reasons and self.total.epsilon < math.inf

    @property
    def overspent(self) -> bool:
        """Whether more was recorded than a ledger's budget, which then guarantees nothing."""
        return self.budget is not None and self.total.epsilon > self.budget.epsilon * (1 + 1e-9)

    @property
    def holds(self) -> bool:
        return self.bounded and not self.overspent

    @property
    def promised(self) -> float:
        """Epsilon that a reader must assume: the budget, or the epsilon spent if it is larger."""
        spent = self.total.epsilon
        return spent if self.budget is None else max(spent, self.budget.epsilon)

    @cached_property
    def attacker(self) -> Attacker | None:
        """What an attacker may learn from the past releases; None if nothing bounds it."""
        if not self.bounded:
            return None
        total = self.total
        if self.overspent:  # same rule as for a budget: exceeding it must not look better
            return Attacker.of_promise(total.epsilon, total.delta)
        promised = (total.event, total.epsilon, total.delta, total.neighboring_relation)
        return Attacker.of(*promised, adaptive=self.budget is not None)

    @cached_property
    def at_budget(self) -> Attacker | None:
        """What an attacker may learn from a whole budget; None without one, or if it is broken."""
        if self.budget is None or not self.holds:
            return None
        return Attacker.of_promise(self.budget.epsilon, self.budget.delta)

    @property
    def attackers(self) -> list[Bound]:
        """Both bounds, as far as there is something to learn; the promised one comes last."""
        found = []
        if self.attacker is not None and self.total.epsilon:
            found.append(Bound("spent so far", self.total.epsilon, self.attacker))
        if self.budget is not None and self.at_budget is not None:
            found.append(Bound("whole budget", self.budget.epsilon, self.at_budget))
        return found


def account_of(subject: Any, sizes: PublicSizes) -> Account:
    if isinstance(subject, PrivacyLedger):
        return _of_ledger(subject)
    alone = subject if isinstance(subject, PrivacyGuarantee) else guarantee_in(subject)
    if alone is not None:
        name = alone.of or "a release"
        return _summed(name, "release", [Item(name, alone)])
    if isinstance(subject, Mapping):
        return _of_folds(subject)
    if isinstance(subject, (GridSearchCV, RandomizedSearchCV)):
        return _of_search(subject, sizes)
    if isinstance(subject, type):
        raise PrivacyError(
            f"{subject.__name__} is a class: pass an instance, {subject.__name__}(), that was"
            " fitted."
        )
    return _of_model(subject, sizes)


# Models and Pipelines ---------------------------------------------------------------------------


def _of_model(model: Any, sizes: PublicSizes) -> Account:
    steps = [*_steps(opened(model, fitted=True))]
    private = [step for step in steps if step.kind == PRIVATE]
    if not private:
        raise PrivacyError(
            f"{type(model).__name__} has no privacy guarantee: pass an estimator of this"
            " package, a Pipeline with one, a fitted GridSearchCV or RandomizedSearchCV, what"
            " cross_validate returned, what a private function returned, or a PrivacyLedger. Where"
            " other classes fit clones, fit inside `with PrivacyLedger(...) as ledger:` and report"
            f" the ledger.{told_of_transformed(model)}"
        )
    private += [each for step in steps if _learns(step) for each in step.walk() if _paid(each)]
    fitted = [step for step in private if hasattr(step.model, "privacy_")]
    planned = not fitted or (is_private(model) and not hasattr(model, "privacy_"))
    items = [
        Item(s.name, guarantee_of(s, sizes), what=_what(s.model))
        for s in (private if planned else fitted)
    ]
    whole = "pipeline" if isinstance(model, Pipeline) else "fit" if len(items) == 1 else "model"
    account = _summed(type(model).__name__, whole, items)
    unfitted = [] if planned else [step.name for step in private if step not in fitted]
    inside = [_FITTED_BEFORE] if any(_asked(step) for step in private) else []
    notes = [f"step {name!r} was given no columns and released nothing" for name in unfitted]
    account.planned = planned
    account.cautions += inside
    account.reasons += dict.fromkeys(reason for step in steps for reason in _reasons(step))
    account.uncharged += notes
    account.vouched += dict.fromkeys(what for step in steps for what in _vouched(step))
    return account


def _steps(node: Node) -> Iterator[Node]:
    """Yield Pipelines and ColumnTransformers with all of their steps, and models fitted before."""
    if node.kind == FROZEN and any(each.kind == PRIVATE for each in node.walk()):
        yield from _steps(node.inside[0])
        return
    yield node
    if _is_open(node):
        for each in node.inside:
            yield from _steps(each)
    for each in _asked(node):
        yield from _steps(replace(each, name=f"{node.name}, model inside"))
    for each in _refitted(node):
        yield from _steps(each)


def _is_open(node: Node) -> bool:
    """Return whether a node uses rows only by its steps, and in ways that a ledger checks."""
    return type(node.model) in (Pipeline, ColumnTransformer)


def _asked(node: Node) -> tuple[Node, ...]:
    return node.inside if getattr(node.model, "_asks_fitted", False) else ()


def _refitted(node: Node) -> Iterator[Node]:
    """Yield steps that were fitted by themselves, in a pipeline that has one guarantee.

    Such a step has a guarantee of its own.
    """
    if node.kind == PRIVATE and isinstance(node.model, Pipeline):
        whole = getattr(node.model, "privacy_", None)
        yield from (s for s in node.inside if getattr(s.model, "privacy_", whole) is not whole)


def _learns(node: Node) -> bool:
    """Return whether a node may have learned from the rows without privacy."""
    return node.kind in (FITS, CHOOSES, LEARNS) and not _is_open(node)


def _paid(node: Node) -> bool:
    return node.kind == PRIVATE and hasattr(node.model, "privacy_")


def _reasons(step: Node) -> Iterator[str]:
    if _learns(step):
        yield (
            f"step {step.name!r} ({type(step.model).__name__}) may have learned from the"
            " private rows without any noise, and what it learned is stored in the model."
            f"{_learned(step.model)} The guarantees of the other steps do not cover it. (If it"
            " was fitted on public rows, wrap it in sklearn.frozen.FrozenEstimator to say so)"
        )
    yield from (_PEEKED[how] for how in step.peeks())


_PEEKED = {
    "columns": "a ColumnTransformer chose its columns by a function, which may look at the rows",
    "zeros": (
        "a ColumnTransformer may have counted the zeros of the private rows to choose a"
        " sparse or a dense form (its sparse_threshold is not 0)"
    ),
}


def _what(step: Any) -> str:
    line = (type(step).__doc__ or "").strip().partition("\n")[0].replace("`", "")
    return f"{type(step).__name__}: {line}"


def _learned(step: Any) -> str:
    try:
        stateless = not get_tags(step).requires_fit
    except (AttributeError, TypeError):
        stateless = False
    if stateless:
        return " Whether it treats each row separately depends on the function that it was given."
    found = [name for name in vars(step) if name.endswith("_") and not name.startswith("_")]
    found = [name for name in found if name not in ("n_features_in_", "feature_names_in_")]
    return f" It shows {', '.join(found[:6])}." if found else ""


_FITTED_BEFORE = (
    "the model inside was fitted before, and both count here as if on the same records. If no"
    " person is in both sets of rows, each person is protected by the guarantee of their own set"
)


def _vouched(step: Node) -> Iterator[str]:
    if step.kind == FROZEN:
        name = type(step.inside[0].model).__name__
        yield f"that the frozen step {step.name!r} ({name}) was fitted on public rows only"
    if _is_open(step) and getattr(step.model, "memory", None) is not None:
        yield "that nobody sees the folder in which the Pipeline keeps transformed private rows"
    if any(callable(chosen) for *_, chosen in getattr(step.model, "transformers", ())):
        yield "that the column types by which a ColumnTransformer chose columns are public"


# Several fits -------------------------------------------------------------------------------------


def _of_folds(result: Mapping[str, Any]) -> Account:
    models = result.get("estimator")
    if models is None:
        raise PrivacyError(
            "a dict is reported on if it is what cross_validate(..., return_estimator=True)"
            " returned. Without the estimators nothing says what they cost."
        )
    accounts = [account_of(model, PublicSizes()) for model in models]
    items = [
        replace(item, name=f"fold {i}, {item.name}")
        for i, account in enumerate(accounts, 1)
        for item in account.items
    ]
    name = type(models[0]).__name__
    account = _summed(f"cross-validation of {name}", "cross-validation", items)
    account.reasons += dict.fromkeys(reason for each in accounts for reason in each.reasons)
    account.uncharged += [_scores(len(models)), _SPLITS]
    account.vouched += dict.fromkeys([_HELD_OUT, *(v for each in accounts for v in each.vouched)])
    return account


def _of_search(search: Any, sizes: PublicSizes) -> Account:
    name = type(search).__name__
    if not hasattr(search, "cv_results_"):
        raise PrivacyError(
            f"{name} is not fitted: what it costs depends on the candidates that it tries. Fit it,"
            " or report what one fit costs: privacy_report(search.estimator, n_samples=1000)."
        )
    best = getattr(search, "best_estimator_", None)
    refit = None if best is None else account_of(best, PublicSizes())
    n_train, delta = _training_rows(search, refit, sizes)
    items, failed, refused = [], 0, 0
    results = search.cv_results_
    for i, params in enumerate(results["params"]):
        missing = [results[key][i] != results[key][i] for key in results if _is_score(key)]
        failed += sum(missing)
        try:
            plans = _plans_of(search, params, replace(sizes, n_samples=n_train), delta)
        except ValueError:  # parameters that every fit refuses release nothing
            if not all(missing):
                raise
            refused += 1
            continue
        what = ", ".join(f"{name}={shown(value)}" for name, value in params.items())
        items += [
            Item(f"candidate {i + 1}, {name}", plan, search.n_splits_, what=what)
            for name, plan in plans
        ]
    if refit is not None:
        items += [replace(item, name=f"refit, {item.name}") for item in refit.items]
        unit = refit.total.unit
        items = [replace(x, guarantee=replace(x.guarantee, unit=unit)) for x in items]
    account = _summed(name, "search", items)
    candidates = len(results["params"])
    account.cautions.append(
        f"the search made {candidates} x {search.n_splits_} fits"
        f"{'' if refit is None else ' and the refit'}: the guarantee of best_estimator_ is about"
        " the refit alone, and the cost of the whole search is the one stated here"
    )
    if refused:
        account.cautions.append(
            f"{refused} candidates had invalid settings, were never fitted and released nothing"
        )
    if failed := failed - refused * search.n_splits_:
        account.cautions.append(
            f"{failed} scores are missing: those fits count here as if they had run, since a fit"
            " may fail after its first release"
        )
    account.uncharged += [_scores(candidates * search.n_splits_), _SPLITS]
    account.vouched.append(_HELD_OUT)
    if refit is not None:
        public, n_samples = refit.total.public, refit.total.n_samples
        account.total = replace(account.total, public=public, n_samples=n_samples)
        account.reasons += [_CHOICE, *refit.reasons]
        account.vouched += refit.vouched
    return account


def _is_score(key: str) -> bool:
    return key.startswith("split") and "_test_" in key


def _plans_of(
    search: Any, params: Mapping[str, Any], sizes: PublicSizes, delta: float | None
) -> list[tuple[str, PrivacyGuarantee]]:
    candidate: Any = clone(search.estimator)
    candidate.set_params(**{name: clone(value, safe=False) for name, value in params.items()})
    found = []
    for step in _steps(opened(candidate)):
        if step.kind == PRIVATE:
            if delta is not None and step.model._whole.delta == "auto":
                step.model._set_whole(delta=delta)
            found.append((step.name, guarantee_of(step, sizes)))
    return found


def _training_rows(
    search: Any, refit: Account | None, sizes: PublicSizes
) -> tuple[int, float | None]:
    """Return the least number of records of a fit in a split, and the delta of "auto" there."""
    n = sizes.n_samples if refit is None else refit.total.n_samples
    delta = None
    if refit is not None and n is not None and refit.total.delta != default_delta(n):
        delta = refit.total.delta  # from a ledger around the search, or a given one
    if sizes.n_train is not None:
        return check_integer("n_train", sizes.n_train, low=1), delta
    # Repeated folds have more splits than folds, and other splitters any number.
    folds = search.cv is None or isinstance(search.cv, int) or type(search.cv) in _FOLDS
    grouped = "Group" in type(search.cv).__name__ or (
        refit is not None and refit.total.unit != "row"
    )
    if n is None or not folds or grouped:
        raise PrivacyError(
            f"{type(search).__name__} does not say how many records its fits in the splits had,"
            " and what they cost depends on that. Pass the least such number: privacy_report("
            "search, n_train=800)" + (" and n_samples." if n is None else ".")
        )
    # Folds of a stratified splitter may be larger by one for each class.
    labels = len(getattr(search, "classes_", ())) if refit is not None else 0
    return max(1, n - math.ceil(n / search.n_splits_) - labels), delta


_CHOICE = (
    "the best candidate was chosen by exact scores on private held-out rows, and which one it is"
    " may reveal something about a single row, whatever noise is in the fits. Use"
    " PrivateSearch to choose parameters in a protected way; or search on public rows, and fit"
    " once. If its `scoring` gave what private_score released, only the report of a ledger around"
    " the search can tell"
)
_HELD_OUT = "that the scores of the splits are shown only to people who are allowed to see the rows"
_SPLITS = (
    "how the rows were split, if the splits are stratified by private labels (scikit-learn's"
    " default for classifiers)"
)


def _scores(count: int) -> str:
    return (
        f"{count} scores on private held-out rows, and what they say about single rows: they are"
        " exact numbers, and no epsilon covers them"
    )


# Ledgers ------------------------------------------------------------------------------------------


def _of_ledger(ledger: PrivacyLedger) -> Account:
    items = [_item(ledger, entry) for entry in ledger.entries]
    event = composed([item.guarantee.event for item in items])
    spent = ledger.epsilon()
    total = PrivacyGuarantee(
        event=event,
        epsilon=spent,
        delta=ledger.delta if spent else 0.0,
        neighboring_relation=ledger.neighboring_relation,
        unit=ledger.unit,
        secure=not ledger.allow_seeded,
        public=(_TAKEN_AS_PUBLIC,) if items else (),
        of="PrivacyLedger",
    )
    account = Account(
        "PrivacyLedger",
        "ledger",
        items,
        total,
        reasons=[*named(ledger.seen, breaks=True)],
        uncharged=[
            "anything that was done with the same rows outside this ledger, which the program"
            " cannot see"
        ],
        vouched=[
            "that everything computed from the records of these people was charged to this ledger",
            *ledger._vouched,
        ],
        budget=LedgerBudget(ledger.budget, ledger.delta, ledger.remaining()),
        alarms=[*named(ledger.seen, breaks=False)],
        seen=ledger.seen,
    )
    if spent == math.inf:
        account.reasons.append(
            "the ledger contains an entry that is not private, or whose cost cannot be determined"
        )
    elif account.overspent:
        account.cautions.append(
            "more was recorded than the budget allows, because something had been released already"
            " (already_released=True): decide whether the epsilon that was spent can be justified"
        )
    if ledger.allow_seeded:
        account.cautions.append(_SEEDED_LEDGER)
    if ledger.failures:
        account.alarms.append(
            f"{ledger.failures} fits failed before their first release and were not charged; that"
            " they failed may reveal something about the rows"
        )
    return account


# A charge keeps its cost, but not the quantities that its release assumed to be public.
_TAKEN_AS_PUBLIC = (
    "what each fit or release took to be public, such as the number of records, the names of the"
    " columns, all settings but the seed, and labels, which may have been read from the private"
    " rows: the ledger does not keep this list, but the guarantee of each model or release has it"
    " (print(model.privacy_.details()))"
)
_SEEDED_LEDGER = (
    "the ledger allows fits with predictable noise (allow_seeded=True), which is meant for"
    " demonstrations only: whoever knows the seed can remove the noise"
)


def _item(ledger: PrivacyLedger, entry: LedgerEntry) -> Item:
    guarantee = PrivacyGuarantee(
        event=entry.event,
        epsilon=entry.epsilon,
        delta=ledger.delta,
        neighboring_relation=entry.neighboring_relation,
        unit=entry.unit,
        secure=not ledger.allow_seeded,
        of=entry.estimator,
        n_samples=entry.n_samples,
        n_features=entry.n_features,
    )
    return Item(entry.label or entry.estimator or "(no label)", guarantee, date=entry.date)


# Sums ---------------------------------------------------------------------------------------------


def _summed(subject: str, kind: str, items: list[Item]) -> Account:
    """Return the account of all items together, with the reasons if they do not compose."""
    guarantees = [item.guarantee for item in items]
    first, reasons = guarantees[0], []
    paid = [g for g in guarantees if g.epsilon > 0] or [first]
    event: Any = composed([g.event for item in items for g in [item.guarantee] * item.count])
    for name, what in (("neighboring_relation", "neighbouring relations"), ("unit", "units")):
        found = sorted({getattr(g, name) for g in paid})
        if len(found) > 1:
            reasons.append(
                f"its parts are for different {what} ({', '.join(found)}), and their guarantees"
                " cannot be combined"
            )
    delta = max(g.delta for g in guarantees)
    if any(g.epsilon == math.inf for g in guarantees):
        reasons.append("a part was fitted without noise (epsilon=inf)")
    if reasons:
        event, epsilon = non_private(), math.inf
    elif len(items) == 1 and items[0].count == 1:
        epsilon = first.epsilon
    else:
        epsilon = Cost.of(event, paid[0].neighboring_relation).epsilon(delta)
    total = replace(
        paid[-1],
        event=event,
        epsilon=epsilon,
        delta=delta,
        secure=all(g.secure for g in guarantees),
        joint=any(g.joint for g in guarantees),
        public=tuple(dict.fromkeys(p for g in guarantees for p in g.public)),
        of=subject,
        n_samples=max((g.n_samples or 0 for g in guarantees), default=0) or None,
        n_features=first.n_features,
    )
    return Account(subject, kind, items, total, reasons)
