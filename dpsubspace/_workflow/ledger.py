"""The ledger: a budget for one set of records, which holds however fits are chosen."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from dpsubspace._accounting.cost import epsilon_of, gaussian_epsilon, sq_mu_of
from dpsubspace._accounting.curves import LEAST_SLACK, price_of, slack_parts
from dpsubspace._accounting.events import (
    RELATION_IN_WORDS,
    composed,
    counted,
    describe,
    is_free,
    non_private,
    rounded,
)
from dpsubspace._accounting.guarantee import PrivacyGuarantee, Released, warn_about_delta
from dpsubspace._accounting.permission import inside_ledger
from dpsubspace._workflow import ledger_file
from dpsubspace._workflow.ledger_file import Entry
from dpsubspace._workflow.pipelines import fits_unseen, plan_of, private_parts, records_of
from dpsubspace._workflow.plan import Charge, Plan, auto_slack
from dpsubspace._workflow.watch import Watch, copied
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["PrivacyLedger"]

# Part of what is left of the slack that one charge takes.
_SLACK_SHARE = 1 / 100

# Rounding of squares of mu that are the same.
_EQUAL = 1e-12


class PrivacyLedger:
    """Budget for one set of private records, owned by whoever answers for them.

    Every fit on those records is charged here; one that would overspend is refused before it
    sees the records. Estimators hold no ledger, so ``clone`` and cross-validation cannot multiply
    it unseen.

    Parameters
    ----------
    epsilon : float
        Budget, greater than 0.
    delta : float
        Delta of the budget, in (0, 1), far below one in the number of records: 1e-5, say.
        Inside of ``fit`` and ``run``, the ``delta="auto"`` of estimators stands for this number.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        Relation of every guarantee charged here.
    unit : str, default="row"
        Unit of every guarantee charged here: "row", or "person" for fits that are given `groups`.
    allow_seeded : bool, default=False
        Whether to take fits with a `random_state`, for tests and teaching. Two fits with
        one seed have one noise, which their difference cancels: no ledger can count that.
    slack : float or "auto", default="auto"
        Part of `delta` that is set apart for fits on batches and private searches, whose cost is
        that of full-batch fits but for a little of it. "auto" is a hundredth of `delta` (more
        where that is below 2e-10), and costs about 0.07 % of epsilon. With 0 the whole
        budget is for full-batch fits, and others cost as much as if they used no batches.
    pure_epsilon : float, default=0.0
        Part of `epsilon` that is set apart for releases without a delta, such as those of
        ``DPPCA(mechanism="bingham", delta=0)``, after the first fit that has one.
    max_failures : int, default=10
        How many fits may fail before their first release and not be charged. What such a
        failure tells of the records (that a label occurs, say) is not counted.

    Attributes
    ----------
    entries : tuple of (str, DpEvent)
        What has been charged, in order.
    failures : int
        Fits that failed before they released anything and were given back.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    See Also
    --------
    PrivacyGuarantee : What one fitted model promises.

    Notes
    -----
    The budget holds even where each fit is chosen after seeing the results of earlier ones,
    whatever is mixed. Full-batch fits add up exactly: their mu^2 do, where mu is the distance of
    two records in units of noise. What is not Gaussian is charged as the Gaussian mechanism
    that is at least as bad for privacy in all respects, and so costs a little more than by
    itself; ``epsilon_if_planned()`` is what all would cost together had they been fixed in
    advance. A release without a delta is charged by its epsilon or as such a Gaussian mechanism,
    whichever is less.

    The first charge that needs a delta fixes how much of the budget is for what: `slack`,
    `pure_epsilon` beside what was charged by its epsilon before, and the rest for Gaussian
    mechanisms. A first fit that does not fit the rest, but by itself is within the budget, takes
    all of it, and leaves room for releases without a delta only. ``epsilon()`` says what has
    been spent; the promise that no choice can break is the budget.

    A ledger cannot be copied, pickled or charged from a forked process: two copies would spend
    one budget twice. ``save`` and ``load`` keep the spend between sessions.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier, PrivacyLedger
    >>> X, y = load_digits(return_X_y=True)
    >>> ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="first model")
    >>> print(f"{ledger.epsilon():.3f}")
    1.000
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="second model")
    >>> print(ledger)
    PrivacyLedger: epsilon 1.466 of 2 spent at delta = 1e-05 per row, zero_out
      first model: 100 x (Gaussian noise, multiplier 37.3)
      second model: 100 x (Gaussian noise, multiplier 37.3)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        neighboring_relation: str = "zero_out",
        unit: str = "row",
        allow_seeded: bool = False,
        slack: float | str = "auto",
        pure_epsilon: float = 0.0,
        max_failures: int = 10,
    ):
        _check_number("epsilon", epsilon, math.inf)
        _check_number("delta", delta, 1)
        if neighboring_relation not in RELATION_IN_WORDS:
            raise ValueError(
                f"`neighboring_relation` must be one of {sorted(RELATION_IN_WORDS)},"
                f" got {neighboring_relation!r}."
            )
        if not isinstance(unit, str):
            raise ValueError(f"`unit` must be a str, got {unit!r}.")
        if not isinstance(allow_seeded, bool):
            raise ValueError(f"`allow_seeded` must be True or False, got {allow_seeded!r}.")
        if slack != "auto":
            _check_number("slack", slack, float(delta), include_zero=True)
        _check_number("pure_epsilon", pure_epsilon, float(epsilon), include_zero=True)
        whole = isinstance(max_failures, Integral) and not isinstance(max_failures, bool)
        if not (whole and max_failures >= 0):
            raise ValueError(f"`max_failures` must be an int of at least 0, got {max_failures!r}.")
        self.budget = float(epsilon)
        self.delta = float(delta)
        self.neighboring_relation = neighboring_relation
        self.unit = unit
        self.allow_seeded = allow_seeded
        self.slack = auto_slack(self.delta) if slack == "auto" else float(slack)
        self.pure_epsilon = float(pure_epsilon)
        self.max_failures = int(max_failures)
        self.failures = 0
        self._entries: list[Entry] = []
        self._plan: Plan | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    # What is spent and what is left ---------------------------------------------------------

    @property
    def entries(self) -> tuple[tuple[str, DpEvent], ...]:
        """What has been charged, in order: (label, event)."""
        return tuple((label, copied(event)) for label, event, _ in self._entries)

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all charges together.

        It adds up what has been spent, and holds if that was the plan from the start. What
        holds whatever is done next, and whenever it ends, is the budget.

        Parameters
        ----------
        delta : float, optional
            Delta to state it at; the ledger's by default.

        Returns
        -------
        float
            At most the budget where `delta` is the ledger's, unless something was recorded that
            had been released already. Never below what any entry costs by itself.
        """
        delta = self._delta(delta)
        spent = self._spent()
        if not self._entries:
            return 0.0
        # One entry that needs a delta, beside others without, is counted by its own accountant.
        others = [
            spent.epsilon - charge.epsilon + self._alone(event, delta)
            for _, event, charge in self._entries
            if charge.needs_delta
        ]
        if not others:
            return spent.epsilon
        return max(others) if len(others) == 1 else max(*others, spent.at(delta))

    def epsilon_if_planned(self, delta: float | None = None) -> float:
        """Return the epsilon that all charges would have together had they been planned.

        Less than ``epsilon()`` where not all of them are full-batch fits: privacy loss
        distributions add up with no loss where everything that was to run was fixed before
        anything was seen. It is no bound for fits that were chosen after looking at results.

        Parameters
        ----------
        delta : float, optional
            Delta to state it at; the ledger's by default.

        Returns
        -------
        float
            Epsilon of the composition of all entries.
        """
        delta = self._delta(delta)
        events = [event for _, event, _ in self._entries]
        each = max((self._alone(event, delta) for event in events), default=0.0)
        return min(max(each, self._alone(composed(events), delta)), self.epsilon(delta))

    def remaining(self) -> float:
        """Return the largest epsilon that one more full-batch fit can have.

        Returns
        -------
        float
            At the ledger's delta; 0 when nothing is left. More than the budget less
            ``epsilon()``, since guarantees do not simply add up.
        """
        spent = self._spent()
        if self._plan is None:
            return max(0.0, self.budget - spent.epsilon - self.pure_epsilon)
        left = self._plan.sq_mu - spent.sq_mu
        if not left > 1e-12 * self._plan.sq_mu or not self._plan.takes(Charge(), spent):
            return 0.0
        return gaussian_epsilon(left * (1 - 1e-12), self.delta)

    # Charging -------------------------------------------------------------------------------

    def charge(
        self,
        event: DpEvent | PrivacyGuarantee,
        label: str = "",
        *,
        neighboring_relation: str | None = None,
        unit: str | None = None,
        already_released: bool = False,
    ) -> None:
        """Record what has run on the records, or reserve what is about to run.

        Parameters
        ----------
        event : PrivacyGuarantee, Released or DpEvent
            ``model.privacy_`` and what private functions return describe a release that has
            happened: it is recorded in any case, as not private at all where it cannot be
            counted, and what is wrong with it is raised after that. An event, such as that of
            ``model.privacy_event(n_samples)``, is a plan: if it does not fit, it is refused and
            nothing is recorded.
        label : str, default=""
            Name of the entry in the ledger's printed form.
        neighboring_relation : {"zero_out", "replace_one"}, optional
            Relation that an event is for. It must be given, since an event does not say it.
        unit : str, optional
            Unit that an event is for; that of the ledger by default.
        already_released : bool, default=False
            Whether it is known that this has been released already: it is recorded, and what is
            over the budget or seeded is not raised.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not suffice.
        PrivacyError
            If a guarantee is for another relation or unit, or its noise is seeded, or the
            event is one that cannot be counted, or another process than the ledger's asks.
        """
        import dp_accounting as dpa

        if not isinstance(label, str):
            raise ValueError(f"`label` must be a str, got {type(label).__name__}.")
        self._check_process()
        what = getattr(event, "privacy", event)  # what a private function returned
        if isinstance(what, PrivacyGuarantee):
            relation, unit = what.neighboring_relation, what.unit
            self._record(what.event, (relation, unit), what.secure, label, already_released)
            return
        if not isinstance(what, dpa.DpEvent):
            raise PrivacyError(
                f"a ledger counts events and guarantees, not {type(what).__name__}: pass"
                " model.privacy_ or model.privacy_event(...)."
            )
        if neighboring_relation is None and not is_free(what):
            raise PrivacyError(
                "an event does not say which neighbouring relation it is for, and its cost depends"
                " on that. Pass neighboring_relation='zero_out' (or 'replace_one'), as it is set on"
                " the estimator that the event comes from. Or charge model.privacy_, which says it."
            )
        relation, unit = neighboring_relation or self.neighboring_relation, unit or self.unit
        if already_released:
            self._record(what, (relation, unit), True, label, already_released)
            return
        self._check_match(relation, unit, secure=True)
        try:
            self._add(label, what)
        except PrivacyBudgetError as error:
            hint = "If this has been released already, record it with already_released=True."
            raise PrivacyBudgetError(f"{error} {hint}") from None

    def run(self, function: Callable[..., Released], /, *args: Any, label: str = "", **kwargs: Any):
        """Call a private function on the ledger's records and charge what it releases.

        The cost is reserved after the function has checked its arguments and before it releases
        anything. If it does not fit, nothing is released.

        Parameters
        ----------
        function : callable
            :func:`private_mean`, :func:`private_quantile` or :func:`private_covariance`.
        *args : object
            Passed to `function`.
        label : str, default=""
            Name of the entry; that of the function if empty.
        **kwargs : object
            Passed to `function`. Leave its `delta` at "auto": it is the ledger's then.

        Returns
        -------
        Released
            What `function` returned.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not suffice; nothing was released or recorded.
        PrivacyError
            If the call is for another relation than the ledger's, or seeded, or `function` is
            none of this package, or too many calls have failed.

        Examples
        --------
        >>> from dpsubspace import PrivacyLedger, private_quantile
        >>> ages = [18 + i % 70 for i in range(5000)]
        >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        >>> median, guarantee = ledger.run(private_quantile, ages, 0.5, epsilon=0.3)
        >>> print(f"{ledger.epsilon():.2f}")
        0.30
        """
        if isinstance(function, Released):
            raise PrivacyError(
                "run takes a function and its arguments, as in run(private_mean, X), and calls it"
                " itself. This value has been released already: record it with"
                " charge(released.privacy)."
            )
        name = getattr(function, "__name__", type(function).__name__)
        module = getattr(function, "__module__", None) or ""
        if module.partition(".")[0] != __name__.partition(".")[0]:
            raise PrivacyError(
                f"{name} is no private function of this package: what it tells of the records"
                " could not be counted. Call private_mean, private_quantile or private_covariance."
            )
        if self.failures >= self.max_failures:
            raise PrivacyError(
                f"{self.failures} fits and calls have failed before they released anything, and a"
                " failure tells something of the records. Find out what is wrong with them on"
                " other rows, or open the ledger with a larger `max_failures`."
            )
        charged: list[DpEvent] = []

        def spend(guarantee: PrivacyGuarantee) -> None:
            self._check_process()
            if not is_free(guarantee.event):
                self._check_match(
                    guarantee.neighboring_relation, guarantee.unit, secure=guarantee.secure
                )
                self._add(label or name, guarantee.event)
            charged.append(guarantee.event)

        try:
            with inside_ledger(self.delta, spend):
                released = function(*args, **kwargs)
        except BaseException as error:
            if not charged and not isinstance(error, PrivacyError):
                self._given_back(error)
            raise
        if not (isinstance(released, Released) and released.privacy.event in charged):
            raise PrivacyError(f"{name} released nothing that was charged: its result is withheld.")
        return released

    def fit(self, estimator: Any, X: Any, y: Any = None, *, label: str = "", **fit_params: Any):
        """Fit `estimator` on the ledger's records and charge what it releases.

        The cost is reserved before the fit sees any data, and what each part is about to
        release is compared with it. A fit that fails before its first release is given back,
        up to `max_failures` times; one that fails after it stays charged.

        Parameters
        ----------
        estimator : estimator or Pipeline
            One of this package, or a Pipeline that ends in one and whose other steps are
            private too, work row by row, or are a ColumnTransformer of such (see
            ``docs/privacy.md``). No subclasses, which may do more with the rows. Leave `delta`
            at "auto": it is the ledger's then.
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,), default=None
            Private targets.
        label : str, default=""
            Name of the entry; the class name if empty.
        **fit_params : dict
            Passed to ``estimator.fit``.

        Returns
        -------
        estimator
            The fitted `estimator` itself.

        Raises
        ------
        PrivacyBudgetError
            If the budget does not suffice; nothing was fitted, released or recorded (unless
            the message says that the fit cost more than planned).
        PrivacyError
            If `estimator` cannot say what it will spend, or spends in another relation or
            unit, or with a seed.
        """
        if not isinstance(label, str):
            raise ValueError(f"`label` must be a str, got {type(label).__name__}.")
        self._check_process()
        label = label or type(estimator).__name__
        parts = private_parts(estimator)
        sizes = {name: records_of(X, fit_params, name) for name, _ in parts}
        if not all(n for n, _ in sizes.values()):
            raise ValueError("`X` has no rows: n_samples=0, and a fit needs at least 1.")
        with inside_ledger(self.delta, _refuse):
            plans = [(name, part, plan_of(part, X, y, fit_params, name)) for name, part in parts]
        for name, part, plan in plans:
            if not is_free(plan):  # what releases nothing has no relation and no noise
                unit, secure = sizes[name][1], part.random_state is None
                self._check_match(part.neighboring_relation, unit, secure=secure)
        warn_about_delta(self.delta, min(n for n, _ in sizes.values()))
        planned = [(name, plan) for name, _, plan in plans]
        watch = Watch(self, label, planned, unseen=fits_unseen(estimator))
        with watch.failures(), inside_ledger(self.delta, watch.spend):
            estimator.fit(X, y, **fit_params)
        fitted = [part for _, part in private_parts(estimator, fitted=True)]
        # A ColumnTransformer leaves a part unfitted that gets no column.
        watch.finish([part.privacy_ for part in fitted if hasattr(part, "privacy_")])
        return estimator

    # Keeping it -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger to a file, as JSON.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        """
        with self._lock:
            plan = self._plan
            fields = {
                "epsilon": self.budget,
                "delta": self.delta,
                "neighboring_relation": self.neighboring_relation,
                "unit": self.unit,
                "allow_seeded": self.allow_seeded,
                "slack": self.slack,
                "pure_epsilon": self.pure_epsilon,
                "max_failures": self.max_failures,
                "failures": self.failures,
                "plan": plan and {"epsilon": plan.epsilon, "closed": plan.closed},
            }
            ledger_file.write(path, fields, self._entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """Read a ledger that `save` wrote.

        Everything in the file is checked, and what its entries cost is computed again. That
        finds damage and careless changes; it cannot find an entry that was taken out.

        Parameters
        ----------
        path : path-like
            File to read.

        Returns
        -------
        PrivacyLedger
            With the spend at the time it was saved. It is on the caller to go on with one
            ledger only.

        Raises
        ------
        PrivacyError
            If the file is anything but a ledger, or its numbers contradict each other.
        """
        fields, entries = ledger_file.read(path)
        plan, failures = fields.pop("plan"), fields.pop("failures")
        try:
            ledger = cls(**fields)
            ledger.failures = failures
            ledger._entries = entries
            if plan:
                ledger._plan = Plan(ledger.budget, ledger.delta, ledger.slack, **plan)
            ledger._check_entries()
        except (ValueError, PrivacyError) as error:
            raise ledger_file.broken(path, str(error)) from error
        return ledger

    # Inside -----------------------------------------------------------------------------------

    def _spent(self, but: Entry | None = None) -> Charge:
        """All charges together, without that of the entry `but`."""
        return Charge.total(entry[2] for entry in self._entries if entry is not but)

    def _alone(self, event: DpEvent, delta: float) -> float:
        """Epsilon of `event` by its own accountant."""
        return epsilon_of(event, delta, self.neighboring_relation)

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            _check_number("delta", delta, 1)
        return self.delta if delta is None else float(delta)

    def _open_plan(self, epsilon: float) -> Plan:
        """Plan that sets so much epsilon apart, and what is meant for later releases."""
        return Plan(self.budget, self.delta, self.slack, epsilon + self.pure_epsilon)

    def _slack_for(self, event: DpEvent, spent: Charge) -> float:
        """Slack that each part of `event` may use; 0 where there is none left."""
        parts, left = slack_parts(event), self.slack - spent.slack
        share = max(LEAST_SLACK, left * _SLACK_SHARE)
        return share if parts and parts * share <= left else 0.0

    def _offers(self, event: DpEvent, spent: Charge) -> list[tuple[Plan | None, Charge]]:
        """Plans and charges under which `event` could be recorded, the best first."""
        price = price_of(event, self._slack_for(event, spent), self.neighboring_relation)
        if self._plan is not None:
            offers = [(self._plan, charge) for charge in Charge.choices(price)]
            return sorted(offers, key=lambda o: Charge.total([spent, o[1]]).at(self.delta))
        if not price.needs_delta:
            by_epsilon, *by_mu = Charge.choices(price)
            offers = [(None, by_epsilon), *((self._open_plan(spent.epsilon), c) for c in by_mu)]
            return sorted(offers, key=lambda o: Charge.total([spent, o[1]]).at(self.delta))
        choices = sorted(
            ((self._open_plan(spent.epsilon + c.epsilon), c) for c in Charge.choices(price)),
            key=lambda offer: offer[1].sq_mu - offer[0].sq_mu,  # so that most is left
        )
        return list(choices)

    def _best(self, event: DpEvent, spent: Charge) -> tuple[Plan | None, Charge, bool]:
        """How to record `event` beside what is `spent`, and whether that fits."""
        try:
            alone, offers = self._alone(event, self.delta), self._offers(event, spent)
        except (ValueError, OverflowError, MemoryError, RecursionError) as error:
            raise PrivacyError(f"{type(event).__name__} cannot be counted: {error}") from error
        for plan, charge in offers:
            if self._takes(plan, charge, spent):
                return plan, charge, True
        plan, charge = offers[0]
        if self._plan is None:
            # A first fit whose own cost is within the budget may have all that needs a delta.
            whole = self._open_plan(spent.epsilon)
            if whole.covers(whole.epsilon + alone):
                left = max(whole.epsilon, self.budget - alone)
                whole = Plan(self.budget, self.delta, self.slack, left, closed=True)
                return whole, min((c for _, c in offers), key=lambda c: c.epsilon), True
        return plan, charge, False

    def _add(
        self,
        label: str,
        event: DpEvent,
        parts: Iterable[tuple[str, DpEvent]] = (),
        *,
        force: bool = False,
    ) -> tuple[Entry, bool]:
        """Record `event`, or raise and record nothing; with `force` record it in any case.

        Returns the entry and whether it fits.
        """
        with self._lock:
            spent = self._spent()
            plan, charge, fits = self._best(event, spent)
            if not (fits or force):
                raise self._over(label, event, spent, parts)
            entry = (label, copied(event), charge)
            self._entries.append(entry)
            self._plan = plan
            return entry, fits

    def _takes(self, plan: Plan | None, charge: Charge, spent: Charge) -> bool:
        if plan is None:  # nothing that needs a delta: any plan may follow
            return spent.epsilon + charge.epsilon <= self.budget * (1 + 1e-12)
        return plan.takes(charge, spent)

    def _record(
        self, event: DpEvent, kind: tuple[str, str], secure: bool, label: str, known: bool
    ) -> None:
        """Record what has been released, of a relation and unit; then raise what is wrong.

        `known` says that the caller knows of a seed or of what is over.
        """
        problem = None
        if not is_free(event):
            try:
                self._check_match(*kind, secure=True)
                self._best(event, self._spent())
                if not (secure or self.allow_seeded):
                    event, problem = non_private(), None if known else _SEEDED
            except PrivacyError as error:
                event, problem = non_private(), str(error)
        with self._lock:
            before, plan = self._spent(), self._plan
            _, fits = self._add(label, event, force=True)
        if problem is not None:
            raise PrivacyError(
                f"{problem} It has been released all the same, so {label or 'it'} is recorded as"
                " not private at all, and nothing is left of the budget."
            )
        if not (fits or known):
            raise PrivacyBudgetError(
                f"{label or 'this'} has been released already and is recorded."
                f" {self._sentence(event, plan, before)} Nothing more can be charged."
                " already_released=True records it without this error; run() and fit() reserve"
                " what they need before anything is released."
            )

    def _restate(self, entry: Entry, event: DpEvent) -> Entry:
        """Charge `event` in place of an entry of which nothing has been released.

        Returns the new entry, or raises and changes nothing if that is over.
        """
        with self._lock:
            if event == entry[1]:
                return entry
            place = self._place(entry)
            old = self._plan
            del self._entries[place]
            self._reopen()
            spent = self._spent()
            plan, charge, fits = self._best(event, spent)
            if not fits:
                error = self._over(entry[0], event, spent, ())
                self._entries.insert(place, entry)
                self._plan = old
                raise error
            if spent.needs_delta:  # the epsilon that a plan was made with stays in it
                kept = max(charge.epsilon, entry[2].epsilon)
                charge = Charge(charge.sq_mu, charge.slack, kept)
            new = (entry[0], copied(event), charge)
            self._entries.insert(place, new)
            self._plan = plan
            return new

    def _settle(self, entry: Entry, event: DpEvent) -> Entry:
        """Charge an entry for `event`, what ran of it, where that is less; return what it is then.

        Notes
        -----
        Who may end a fit, or change what is left of it, after a look at a part of it has
        made a choice: the plan stays, and so does the charge, which holds for all that was
        planned. It is lowered where parts are charged one by one, by squares of mu that add up.
        """
        with self._lock:
            old, new = (self._sq_mu(e) for e in (entry[1], event))
            charge = entry[2]
            if old is None or new is None or new > old * (1 + _EQUAL):
                return entry
            if charge.slack or charge.epsilon:
                return entry
            settled = (entry[0], copied(event), Charge(sq_mu=min(new, charge.sq_mu)))
            self._entries[self._place(entry)] = settled
            return settled

    def _place(self, entry: Entry) -> int:
        return next(i for i, kept in enumerate(self._entries) if kept is entry)

    def _sq_mu(self, event: DpEvent) -> float | None:
        """Square of mu of full-batch Gaussian mechanisms; None for anything else."""
        return sq_mu_of(counted(event), self.neighboring_relation)

    def _covers(self, planned: DpEvent, event: DpEvent) -> bool:
        """Whether `event` may run in place of `planned` at no cost, whatever was seen before.

        Gaussian mechanisms of the same mu or less: the pair of distributions that dominates
        the one dominates the other.
        """
        most, cost = self._sq_mu(planned), self._sq_mu(event)
        return most is not None and cost is not None and cost <= most * (1 + _EQUAL)

    def _drop(self, entry: Entry) -> None:
        """Give back an entry of which nothing was released."""
        with self._lock:
            if entry[2].epsilon and self._spent(but=entry).needs_delta:
                return  # a plan was made with its epsilon in the meantime
            self._entries = [kept for kept in self._entries if kept is not entry]
            self._reopen()

    def _reopen(self) -> None:
        """Forget the plan where nothing is charged that needs a delta."""
        if not self._spent().needs_delta:
            self._plan = None

    def _given_back(self, error: BaseException) -> bool:
        """Count a failure before any release; False where there were too many already."""
        with self._lock:
            if self.failures >= self.max_failures:
                error.add_note(
                    f"The ledger has given back {self.failures} failed fits, as many as"
                    " `max_failures` allows. This one stays charged as if it had run."
                )
                return False
            self.failures += 1
            error.add_note(
                "Nothing was released, and the ledger was not charged"
                f" ({self.failures} of {self.max_failures} such failures)."
            )
            return True

    # Messages and checks ----------------------------------------------------------------------

    def _over(
        self, label: str, event: DpEvent, spent: Charge, parts: Iterable[tuple[str, DpEvent]]
    ) -> PrivacyBudgetError:
        message = [
            f"{label or 'this'} does not fit into the budget.",
            self._sentence(event, self._plan, spent),
        ]
        parts = [(name, part) for name, part in parts if not is_free(part)]
        if len(parts) > 1:
            prices = [f"{name} {self._alone(e, self.delta):.4g}" for name, e in parts]
            message.append(f"By themselves its steps cost {', '.join(prices)}.")
        left = self.remaining()
        message.append(
            f"What is left is enough for a full-batch fit of epsilon={rounded(left, math.floor)}"
            f" at delta={self.delta:.3g}: see remaining()."
            if left > 0
            else "Nothing is left for what needs a delta."
        )
        message.append("Nothing was recorded.")
        return PrivacyBudgetError(" ".join(message))

    def _sentence(self, event: DpEvent, plan: Plan | None, spent: Charge) -> str:
        """Why `event` does not fit beside what is `spent`, with digits enough to see it."""
        text = f"It costs epsilon={self._alone(event, self.delta):.4g} by itself,"
        price = price_of(event, self._slack_for(event, spent), self.neighboring_relation)
        if price.sq_mu == math.inf:
            return "It is not private."
        if plan is not None and plan.closed:
            return (
                f"{text} and the first fit took all of the budget of {self.budget:.4g} that is not"
                " for releases without a delta: its cost does not add up like that of full-batch"
                " fits."
            )
        if plan is None:
            plan = self._open_plan(spent.epsilon)
        totals = [Charge.total([spent, charge]) for charge in Charge.choices(price)]
        found, most = _apart(plan.cost(totals[-1]), self.budget)
        text += (
            f" and would bring the total to epsilon={found} at delta={self.delta:.3g}, over the"
            f" budget of {most}."
        )
        if slack_parts(event) and not price.slack:
            text += (
                " (What batches save is not counted: the part of delta that is set apart for"
                f" that, slack={self.slack:.3g}, is used up.)"
            )
        return text

    def _check_match(self, relation: str, unit: str, *, secure: bool) -> None:
        """Raise PrivacyError unless such a fit can be added to this ledger."""
        ours, theirs = (self.neighboring_relation, self.unit), (relation, unit)
        if theirs != ours:
            raise PrivacyError(
                f"the ledger counts {' per '.join(ours)} and the fit is for"
                f" {' per '.join(theirs)}: they do not add up. Set `neighboring_relation` to that"
                " of the ledger, pass `groups` to the fit if its unit is the person and not"
                " otherwise, or open another ledger for that relation and unit."
            )
        if not secure and not self.allow_seeded:
            raise PrivacyError(_SEEDED)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise PrivacyError(
                "a forked process has a copy of the ledger, and what it charges would be lost."
                " Fit in the process that made the ledger."
            )

    def _check_entries(self) -> None:
        """Raise PrivacyError where the numbers of a loaded ledger contradict each other."""
        for label, event, charge in self._entries:
            parts = slack_parts(event)
            price = price_of(event, charge.slack / max(parts, 1), self.neighboring_relation)
            # Accountants of another version may differ a little in what is not Gaussian.
            least = 1 - (1e-3 if charge.slack else 1e-9)
            if not any(
                charge.sq_mu >= c.sq_mu * least
                and charge.slack >= c.slack * (1 - 1e-9)
                and charge.epsilon >= c.epsilon * (1 - 1e-12)
                for c in Charge.choices(price)
            ):
                raise PrivacyError(f"{label!r} is charged less than what it costs")
        first = next((i for i, e in enumerate(self._entries) if e[2].needs_delta), None)
        if (first is None) != (self._plan is None):
            raise PrivacyError("it has a plan without a charge that needs one, or none with one")
        if self._plan is None or first is None:
            return
        _, event, charge = self._entries[first]
        # Less than what was charged before would leave nothing at all; more may not be.
        before = sum(entry[2].epsilon for entry in self._entries[:first])
        high = before + charge.epsilon + self.pure_epsilon
        if self._plan.closed:
            high = max(high, self.budget - self._alone(event, self.delta) * (1 - 1e-3))
        if not self.pure_epsilon <= self._plan.epsilon <= high * (1 + 1e-9):
            raise PrivacyError("the plan sets apart another epsilon than its charges did")

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        spent = self.epsilon()
        lines = [
            f"PrivacyLedger: epsilon {rounded(spent, math.ceil)} of {self.budget:.4g} spent"
            f" at delta = {self.delta:.3g} per {self.unit}, {self.neighboring_relation}"
        ]
        planned = self.epsilon_if_planned()
        if planned < spent * (1 - 1e-4):
            lines.append(f"  ({rounded(planned, math.ceil)} had all of it been planned in advance)")
        lines += [
            f"  {label or '(no label)'}: {describe(event)}" for label, event, _ in self._entries
        ]
        if self.failures:
            lines.append(
                f"  failed fits that were not charged: {self.failures} of at most"
                f" {self.max_failures}"
            )
        return "\n".join(lines)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "a PrivacyLedger cannot be copied, pickled or sent to another process: two copies"
            " would spend one budget twice. Pass the ledger itself; save() and load() keep it"
            " between sessions."
        )


_SEEDED = (
    "a fit with a `random_state` cannot be counted: another fit with the same seed cancels its"
    " noise. Leave random_state=None, or open the ledger with allow_seeded=True for a"
    " demonstration."
)


def _refuse(guarantee: PrivacyGuarantee) -> None:
    raise PrivacyError("an estimator released something while it was asked what it costs.")


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Both with as many digits as it takes to tell them apart."""
    digits = 4
    while f"{value:.{digits}g}" == f"{limit:.{digits}g}" and digits < 17:
        digits += 1
    return f"{value:.{digits}g}", f"{limit:.{digits}g}"


def _check_number(name: str, value: Any, most: float, *, include_zero: bool = False) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    least = 0.0 if include_zero else math.nextafter(0.0, 1.0)
    if not (number and least <= float(value) < most):  # False for NaN
        opening = "[" if include_zero else "("
        raise ValueError(f"`{name}` must be a number in {opening}0, {most}), got {value!r}.")
