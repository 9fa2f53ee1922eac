"""The ledger: a privacy budget for one set of records, which holds however fits are chosen."""

from __future__ import annotations

import html
import json
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dpsubspace._core.accounting.budget import warn_about_delta
from dpsubspace._core.accounting.events import composed, describe, is_free, rounded
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, guarantee_in
from dpsubspace._core.accounting.payer import (
    Payer,
    close_to_all,
    in_task,
    inside_ledger,
    inside_payer,
    made,
    open_to_all,
    payer_around,
    used,
)
from dpsubspace._core.fits.call import failed_fit, private_functions
from dpsubspace._core.fits.composites import private_parts
from dpsubspace._core.fits.saved import SavedModel, save_models
from dpsubspace._core.ground.checks import finite, is_elsewhere
from dpsubspace._core.rows.dask_parts import has_lengths
from dpsubspace._core.rows.records import check_order
from dpsubspace._names import imported, public
from dpsubspace.budget._filter import (
    UNWATCHED,
    Terms,
    beside,
    check_number,
    vouched_scores,
    without_released,
)
from dpsubspace.budget._fit_charge import FitCharge, LedgerAddress, payer_for
from dpsubspace.budget._journal import (
    COLUMNS,
    About,
    Journal,
    LedgerEntry,
    fresh,
    html_table,
    in_short,
    new_id,
    row_of,
)
from dpsubspace.budget._ledger_state import LedgerState
from dpsubspace.budget._planner import fits_unseen, plan_of, records_of
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@public
class PrivacyLedger:
    """Keep account of one privacy budget for everything that is computed from some records.

    Every fit on those records is charged here; one that would overspend is refused before it
    releases anything. ``with ledger:`` charges every fit inside of it, however it comes about:
    through Pipelines, grid searches and cross-validation, in threads, and in other processes for
    estimators that were made in the block.
    ``ledger.fit`` charges one fit, and refuses what it cannot count before it sees the records.

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
    pure_epsilon : float or "auto", default="auto"
        Part of `epsilon` that is set apart for releases without a delta, such as scores, whether
        they come before or after the first fit that has one. With "auto" it need not be known in
        advance: the ledger keeps several accounts, and takes what fits into one of them. One counts
        everything like fits, as ``pure_epsilon=0`` does. The others count releases without a
        delta by their epsilon: three tenths of `epsilon` in all, or what the first fit leaves. The
        accounts share `delta`, which costs about 3 % of epsilon where there are fits only.
    path : path-like, optional
        File that keeps the ledger. Every charge is written to it and synced to the disk before
        anything is released, so that nothing is forgotten when a process is killed. Several
        processes may use one file. A file that exists is read and continued, and must be of the
        same budget; a symbolic link leads to its file, and a file with several hard links is
        refused. If an error ends a ``with`` block, fitted models among the variables around it
        are saved beside this file, so that no budget is spent on them again. None keeps the
        ledger in memory.
    max_failures : int, default=10
        How many fits may fail before their first release and not be charged. What such a
        failure tells of the records (that a label occurs, say) is not counted. In a ``with``
        block this does not limit failures. Those that end the block are noted in `seen`.

    Attributes
    ----------
    entries : tuple of LedgerEntry
        What has been charged, in order; ``len(ledger)`` counts them.
    failures : int
        Fits that failed before they released anything and were given back.
    seen : tuple of (str, str, int)
        What was seen that no sum counts, such as exact scores and choices by them: a kind, the
        name of a class, and how often, up to 1,000 times.
        :func:`privacy_report` says it in words.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or another than that of the file at `path`.
    PrivacyError
        If the file at `path` cannot be trusted. It is left as it is. Also in a task of Dask
        where there is no file at `path`.

    See Also
    --------
    PrivacyGuarantee : What one fitted model promises.
    LedgerEntry : One charge.

    Notes
    -----
    The budget holds even where each fit is chosen after seeing the results of earlier ones,
    whatever is mixed. Full-batch fits add up exactly: their mu^2 do, where mu is the distance of
    two records in units of noise. What is not Gaussian is charged as the Gaussian mechanism
    that is at least as bad for privacy in all respects, and so costs a little more than by
    itself; ``epsilon_if_planned()`` is what all would cost together had they been fixed in
    advance, which ``details()`` says too. A release without a delta is charged by its epsilon or as
    such a Gaussian mechanism, whichever is less.

    The first charge that needs a delta fixes how much of the budget is for what: `slack`,
    `pure_epsilon`, or what was charged by its epsilon before where that is more, and the rest for
    Gaussian mechanisms. With ``pure_epsilon="auto"`` it fixes this once for each account. Every
    account counts all that ran, and one that has once been too full has no say any more. A
    first fit that does not fit the rest, but by itself is within the budget, takes all of it,
    and leaves room for releases without a delta only. ``epsilon()`` says what has been spent;
    the promise that no choice can break is the budget.

    A ledger cannot be copied or pickled: two copies would spend one budget twice. Inside of a
    ``with`` block clones and pickles of estimators carry the address of its file (a temporary
    one where there is no `path`), and workers of joblib charge there. Threads that did not open
    a ledger themselves charge the one that is open in their process; where several are, they
    are refused. A worker process knows of a ledger from the first estimator that was made in the
    block and has come to it: from there on, also what the worker makes itself is charged, and
    private functions that are called there. **A worker that has not got such an estimator knows of
    no ledger**, unless it is a fork: ``delayed(private_mean)(X)`` warns there, and is not charged.
    Use threads for such calls, or let the worker open the ledger by its `path`. A task that
    Dask runs again is charged again, and a task of Dask makes no new file at a `path`.

    Inside of a ledger functions such as :func:`private_score` must be given their `epsilon`.
    A step that learns from private rows without noise, next to a private one, is refused there and
    by ``fit``, and noted in `seen`. What other libraries fit by themselves is not seen, nor what
    ``sklearn.metrics`` computes from predictions: the last line of a ledger and of its report says
    so. Exact scores by ``score`` of estimators of this package are noted in
    `seen`, and not counted: :func:`private_score` gives scores that are.

    The file has one JSON record a line, each with the hash of the one before. What was changed
    in it is found when it is read. That its last lines were cut off is not, nor that somebody wrote
    all of it anew with hashes that fit: keep copies where others cannot write.
    It is locked while it is written to, which some network drives do not support.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier, PrivacyLedger
    >>> X, y = load_digits(return_X_y=True)
    >>> ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="first")
    >>> print(f"{ledger.epsilon():.3f}")
    1.000
    >>> model = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="second")
    >>> print(ledger)  # doctest: +ELLIPSIS
    PrivacyLedger: epsilon 1.466 of 2 spent at delta = 1e-05, per row (zero_out)
      first (DPSGDClassifier) on 1,797 rows, ... UTC: epsilon 1 by itself
      second (DPSGDClassifier) on 1,797 rows, ... UTC: epsilon 1 by itself
      left: up to epsilon ... for one more fit, or up to epsilon ... for one more score
      how each was computed: .details()
      Not watched: what other libraries compute from the rows, such as scikit-learn's own metrics...

    Whatever is fitted inside of a ``with`` block is charged:

    >>> with PrivacyLedger(epsilon=2.0, delta=1e-5) as ledger:
    ...     model = DPSGDClassifier(epsilon=1.0).fit(X, y)
    >>> len(ledger)
    1
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
        pure_epsilon: float | str = "auto",
        path: str | os.PathLike[str] | None = None,
        max_failures: int = 10,
    ):
        terms = Terms.checked(
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            unit=unit,
            allow_seeded=allow_seeded,
            slack=slack,
            pure_epsilon=pure_epsilon,
            max_failures=max_failures,
        )
        self._start(LedgerState(terms) if path is None else LedgerState.in_file(Path(path), terms))
        made(self)

    def _start(self, state: LedgerState) -> None:
        self._state, self._terms = state, state.terms
        self._turn, self._depth, self._blocks = threading.Lock(), 0, threading.local()
        self._payer: Payer | None = None  # set while a block is open
        self._folder: str | None = None  # folder of the file that the block uses
        # Tells this ledger from others of the process: one that is opened twice is the same.
        self._name = new_id() if state.journal is None else str(state.journal.path)
        self._entries_before = 0  # before the block
        self._paid: list[PrivacyGuarantee] = []  # what the block has charged in this process

    # Terms ----------------------------------------------------------------------------------

    @property
    def budget(self) -> float:
        """Epsilon of the budget."""
        return self._terms.epsilon

    @property
    def delta(self) -> float:
        """Delta of the budget."""
        return self._terms.delta

    @property
    def neighboring_relation(self) -> str:
        """Relation of every guarantee charged here."""
        return self._terms.neighboring_relation

    @property
    def unit(self) -> str:
        """What a record is."""
        return self._terms.unit

    @property
    def allow_seeded(self) -> bool:
        """Whether fits with a `random_state` are taken."""
        return self._terms.allow_seeded

    @property
    def slack(self) -> float:
        """Part of delta that is set apart."""
        return self._terms.slack

    @property
    def pure_epsilon(self) -> float:
        """Part of epsilon that is set apart; 0 where that was "auto"."""
        return self._terms.pure_epsilon

    @property
    def max_failures(self) -> int:
        """How many fits may fail and not be charged."""
        return self._terms.max_failures

    @property
    def path(self) -> Path | None:
        """File that keeps the ledger; None for one in memory."""
        journal = self._state.journal
        return None if journal is None or self._folder is not None else journal.path

    @property
    def failures(self) -> int:
        """Fits that failed before they released anything and were given back."""
        with self._state.held():
            return self._state.failures

    @property
    def seen(self) -> tuple[tuple[str, str, int], ...]:
        """What was seen that no sum counts: a kind, the name of a class, and how often."""
        with self._state.held():
            left = without_released(self._state.seen)
            return tuple((kind, name, count) for (kind, name), count in left.items())

    @property
    def _vouched(self) -> list[str]:
        """Sentences of reports on what the user vouches for, from the observations."""
        with self._state.held():
            return vouched_scores(self._state.seen)

    # Spent and left -------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What has been charged, in order."""
        with self._state.held():
            return tuple(map(fresh, self._state.entries))

    def __len__(self) -> int:
        """Return the number of charges."""
        with self._state.held():
            return len(self._state.entries)

    def __bool__(self) -> bool:
        return True  # true even without charges

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
        with self._state.held():
            entries = list(self._state.entries)
        return self._state.epsilon_of(entries, delta)

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
        with self._state.held():
            events = [entry.event for entry in self._state.entries]
        each = [self._state.cost_of(event, delta) for event in [composed(events), *events]]
        return min(max(each), self.epsilon(delta))

    def remaining(self) -> float:
        """Return the largest epsilon that one more full-batch fit can have.

        Returns
        -------
        float
            At the ledger's delta; 0 when nothing is left. More than the budget less
            ``epsilon()``, since guarantees do not simply add up.
        """
        with self._state.held():
            return self._state.remaining()

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
        event : PrivacyGuarantee, Released, PrivateScore or DpEvent
            ``model.privacy_`` and what private functions return describe a release that has
            happened: unless a parameter contradicts it, it is recorded, as not private at all
            where it cannot be counted, and what is wrong with it is raised after that. An event,
            such as that of ``model.privacy_event(n_samples)``, is a plan: if it does not fit, it
            is refused and nothing is recorded.
        label : str, default=""
            Name of the entry in the ledger's printed form.
        neighboring_relation : {"zero_out", "replace_one"}, optional
            Relation that an event is for. It must be given, since an event does not say it. A
            guarantee says its own.
        unit : str, optional
            Unit that an event is for; that of the ledger by default. A guarantee says its own.
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
        ValueError
            If a parameter is not what a guarantee says; nothing is recorded then.
        """
        import dp_accounting as dpa

        if not isinstance(label, str):
            raise ValueError(f"`label` must be a str, got {type(label).__name__}.")
        used(self)
        self._state.check_process()
        what = guarantee_in(event) or getattr(event, "privacy", event)
        if isinstance(what, PrivacyGuarantee):
            given = {"neighboring_relation": neighboring_relation, "unit": unit}
            _check_agrees(what, given)
            relation, unit = what.neighboring_relation, what.unit
            about = About.of(what)
            self._state.record(
                what.event, (relation, unit), what.secure, label, already_released, about
            )
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
            self._state.record(what, (relation, unit), True, label, already_released, About())
            return
        self._state.check_match(relation, unit, secure=True)
        try:
            self._state.add(label, what, About())
        except PrivacyBudgetError as error:
            hint = "If this has been released already, record it with already_released=True."
            raise PrivacyBudgetError(f"{error} {hint}") from None

    def run(
        self, function: Callable[..., Any], /, *args: Any, label: str = "", **kwargs: Any
    ) -> Any:
        """Call a private function on the ledger's records and charge what it releases.

        The cost is reserved after the function has checked its arguments and before it releases
        anything. If it does not fit, nothing is released.

        Parameters
        ----------
        function : callable
            One of this package, such as :func:`private_mean` or :func:`private_score`.
        *args : object
            Passed to `function`.
        label : str, default=""
            Name of the entry; that of the function if empty.
        **kwargs : object
            Passed to `function`. Leave its `delta` at "auto": it is the ledger's then.

        Returns
        -------
        object
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
        >>> from dpsubspace import PrivacyLedger
        >>> from dpsubspace.statistics import private_quantile
        >>> ages = [18 + i % 70 for i in range(5000)]
        >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        >>> median, guarantee = ledger.run(private_quantile, ages, 0.5, epsilon=0.3)
        >>> print(f"{ledger.epsilon():.2f}")
        0.30
        """
        if guarantee_in(function) is not None:
            raise PrivacyError(
                "run takes a function and its arguments, as in run(private_mean, X), and calls it"
                " itself. This value has been released already: record it with"
                " charge(released)."
            )
        name = getattr(function, "__name__", type(function).__name__)
        module = getattr(function, "__module__", None) or ""
        if module.partition(".")[0] != __name__.partition(".")[0]:
            raise PrivacyError(
                f"{name} is no private function of this package: what it reveals about the records"
                f" could not be counted. Call one of {', '.join(sorted(private_functions()))}."
            )
        self._state.check_failures()
        self._check_other()
        charged: list[DpEvent] = []

        def spend(guarantee: PrivacyGuarantee) -> None:
            self._state.check_process()
            self._state.charge(guarantee, label or name)
            charged.append(guarantee.event)

        try:
            note, left = self._state.note, self._state.what_fits
            with inside_ledger(self.delta, spend, lasting=self._lasts, note=note, left=left):
                released = function(*args, **kwargs)
        except BaseException as error:
            if not charged and not isinstance(error, PrivacyError):
                self._state.given_back(error)
            raise
        found = guarantee_in(released)
        if found is None or found.event not in charged:
            raise PrivacyError(f"{name} released nothing that was charged: its result is withheld.")
        return released

    def fit(
        self, estimator: Any, X: Any, y: Any = None, *, label: str = "", **fit_params: Any
    ) -> Any:
        """Fit `estimator` on the ledger's records and charge what it releases.

        The cost is reserved before the fit sees any data, and what each part is about to
        release is compared with it. A fit that fails before its first release is given back,
        up to `max_failures` times; one that fails after it stays charged.

        Parameters
        ----------
        estimator : estimator or Pipeline
            One of this package, or a Pipeline that ends in one and whose other steps are
            private too, work row by row, or are a ColumnTransformer of such (see
            ``docs/columns.md``). A subclass of one of this package is taken where it changes
            nothing that rows of a fit get to, such as `fit` or `transform`. Leave `delta` at
            "auto": it is the ledger's then.
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
        if any(is_elsewhere(given) and not has_lengths(given) for given in (X, y)):
            raise ValueError(
                "ledger.fit needs to know how many rows there are, and of Dask data frames and"
                " datasets that would have to be computed first. Open the ledger around the fit,"
                " `with ledger: model.fit(X, y)`: the fit is charged all the same."
            )
        whose = {name: given for name, given in fit_params.items() if name.endswith("groups")}
        check_order(X, y=y, **whose)  # a step may pass on rows without labels
        self._state.check_process()
        self._check_other()
        label = label or type(estimator).__name__
        parts = private_parts(estimator)
        sizes = {name: records_of(X, fit_params, name) for name, _ in parts}
        n_samples = min(n for n, _ in sizes.values())
        if not n_samples:
            raise ValueError("`X` has no rows: n_samples=0, and a fit needs at least 1.")
        with inside_ledger(self.delta, _refuse):
            plans = [(name, part, plan_of(part, X, y, fit_params, name)) for name, part in parts]
        for name, part, plan in plans:
            if not is_free(plan):  # a step that releases nothing has no relation and no noise
                asked, unit = part._whole, sizes[name][1]
                secure = asked.random_state is None
                self._state.check_match(asked.neighboring_relation, unit, secure=secure)
        warn_about_delta(self.delta, n_samples)
        planned = [(name, plan) for name, _, plan in plans]
        n_features = X.shape[1] if len(getattr(X, "shape", ())) == 2 else None
        about = About(type(estimator).__name__, n_samples, n_features)
        charge = FitCharge(self._state, label, planned, about, unseen=fits_unseen(estimator))
        note, left = self._state.note, self._state.what_fits
        payer = Payer(
            self.delta,
            charge.spend,
            lasting=self._lasts,
            note=note,
            left=left,
            ledger=self._name,
        )
        with charge.failures(), inside_payer(payer):
            estimator.fit(X, y, **fit_params)
        fitted = [part for _, part in private_parts(estimator, fitted=True)]
        # A ColumnTransformer does not fit a part that gets no column.
        charge.finish([part.privacy_ for part in fitted if hasattr(part, "privacy_")])
        return estimator

    # Everything inside of a block -------------------------------------------------------------

    def __enter__(self) -> PrivacyLedger:
        """Charge every fit of this package from here to the end of the block."""
        self._state.check_process()
        self._check_other()
        with self._turn:
            payer = self._payer or self._open()
            self._payer, self._depth = payer, self._depth + 1
        block = inside_payer(payer)
        block.__enter__()
        self._blocks.stack = [*getattr(self._blocks, "stack", ()), block]
        return self

    def __exit__(self, *error: Any) -> None:
        *self._blocks.stack, block = self._blocks.stack
        block.__exit__(None, None, None)
        try:
            if not self._blocks.stack and (name := failed_fit(error)) is not None:
                self._state.note("failure", name)
            elif error[1] is not None and len(self._state.entries) > self._entries_before:
                error[1].add_note(self._note_after(error[2]))
        finally:
            with self._turn:
                self._depth -= 1
                if not self._depth:
                    self._close()

    def _note_after(self, traceback: TracebackType | None) -> str:
        """Say what is left of a block that an error ended, with files of its models by then.

        Without a `path` the ledger is in memory alone, and so are its models. Those that were not
        charged in this block, or whose seed would be in the file, are not saved.
        """
        files: dict[str, Path] = {}
        if self.path is not None and traceback is not None:
            paid = {id(each) for each in self._paid if each.secure}
            held = traceback.tb_frame.f_locals.items()
            models = {name: each for name, each in held if isinstance(each, SavedModel)}
            found = {k: v for k, v in models.items() if id(getattr(v, "privacy_", None)) in paid}
            files = save_models(found, self.path)
        saved = ", ".join(f"{name} in {str(file)!r}" for name, file in files.items())
        return _SAVED.format(models=saved) if saved else _KEPT

    def _open(self) -> Payer:
        state, session = self._state, new_id()
        with state.held():
            if state.journal is None:
                self._folder = tempfile.mkdtemp(prefix="dpsubspace-")
                state.keep(Journal(Path(self._folder) / "ledger"))
            state.write({"type": "open", "session": session})
        assert state.journal is not None
        address = LedgerAddress(str(state.journal.path), session, lasting=self._lasts)
        self._paid = []
        payer = payer_for(state, session, address, self._name, self._paid)
        self._entries_before = len(state.entries)
        open_to_all(session, payer)
        return payer

    def _close(self) -> None:
        assert self._payer is not None and isinstance(self._payer.address, LedgerAddress)
        session, folder = self._payer.address.session, self._folder
        close_to_all(session)
        self._payer = self._folder = None
        with self._state.held():
            self._state.write({"type": "close", "session": session})
            if folder is not None:
                self._state.journal = None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    # Keeping and showing it -------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of the ledger to a file.

        The ledger does not go on there; ``PrivacyLedger(..., path=...)`` does.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.

        Raises
        ------
        ValueError
            If it is the file that keeps the ledger.
        """
        target = Journal(path)
        with self._state.held():
            own = self._state.journal
            if own is not None and own.path.resolve() == target.path.resolve():
                raise ValueError(f"`path` is the file that keeps this ledger, {str(own.path)!r}.")
            target.create(self._state.records())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """Read a ledger from its file, and go on in that file.

        Everything in the file is checked, and what its entries cost is computed again. That
        finds damage and changes; it cannot find that the last entries were cut off.

        Parameters
        ----------
        path : path-like
            File to read.

        Returns
        -------
        PrivacyLedger
            With everything that was charged. What it is charged from here on is written to the
            same file.

        Raises
        ------
        PrivacyError
            If the file is anything but a ledger, or its numbers contradict each other. It is
            left as it is.
        """
        ledger = cls.__new__(cls)
        ledger._start(LedgerState.opened(Journal(path)))
        return ledger

    def to_json(self) -> str:
        """Return the ledger as JSON, for a report or a program to read.

        Returns
        -------
        str
            Budget, totals and entries. It is no file to go on with: see `save`.
        """
        whole = {
            **asdict(self._terms),
            "spent": finite(self.epsilon()),
            "spent_if_planned": finite(self.epsilon_if_planned()),
            "remaining": self.remaining(),
            "failures": self.failures,
            "seen": [{"kind": k, "of": name, "count": count} for k, name, count in self.seen],
            "beside": self._beside(),
            "not_watched": UNWATCHED,
            "entries": [{**row, "own_epsilon": finite(row["own_epsilon"])} for row in self._rows()],
        }
        return json.dumps(whole, indent=1, allow_nan=False)

    def to_frame(self) -> Any:
        """Return the entries as a pandas DataFrame, a row each; pandas must be installed.

        Returns
        -------
        pandas.DataFrame
            Date, label, estimator, sizes, event in words and own epsilon of each entry.
        """
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=list(COLUMNS))

    def plot(self, ax: Any = None, **plot_params: Any) -> Any:
        """Draw what was charged, and what is left.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`BudgetDisplay.plot`.

        Returns
        -------
        BudgetDisplay
            The picture and its data.

        Raises
        ------
        PrivacyError
            If something that is not private was recorded.
        ImportError
            If matplotlib is not installed.
        """
        return imported("BudgetDisplay").from_ledger(self, ax=ax, **plot_params)

    def to_diffprivlib(self, accountant: Any = None) -> Any:
        """Return an accountant of diffprivlib that has spent what this ledger has.

        The total is spent there at once: diffprivlib composes by bounds that are far larger for
        many releases. diffprivlib must be installed (``pip install dpsubspace[diffprivlib]``).

        Parameters
        ----------
        accountant : diffprivlib.BudgetAccountant, optional
            One to charge; a new one without limits by default.

        Returns
        -------
        diffprivlib.BudgetAccountant
            `accountant`, charged with the epsilon and the delta of this ledger, once.

        Raises
        ------
        PrivacyError
            If something here is not private, or diffprivlib cannot be imported.
        """
        try:
            from diffprivlib.accountant import BudgetAccountant  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise PrivacyError(
                f"diffprivlib cannot be imported ({error}). Its last release needs"
                " scikit-learn 1.7 or older: pip install dpsubspace[diffprivlib]."
            ) from error
        accountant = BudgetAccountant() if accountant is None else accountant
        spent = self.epsilon()
        if spent == math.inf:
            raise PrivacyError("what is in this ledger is not private: there is no epsilon.")
        if spent > 0:
            pure = not any(entry.charge.needs_delta for entry in self.entries)
            accountant.spend(spent, 0.0 if pure else self.delta)
        return accountant

    def _rows(self) -> list[dict[str, Any]]:
        return [row_of(entry) for entry in self.entries]

    def _repr_html_(self) -> str:
        caption, *_ = self.details().splitlines()
        loud = "".join(
            f"<p style='color:#8a1c1c'>{html.escape(each)}</p>" for each in self._beside()
        )
        end = f"<p>{html.escape(UNWATCHED)}</p>"
        return f"{html_table(caption, self._rows())}{loud}{end}"

    # Inside -----------------------------------------------------------------------------------

    @property
    def _lasts(self) -> bool:
        """Whether charges are still known if this is a task of Dask, and Dask runs it again."""
        return self.path is not None or not in_task()

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            check_number("delta", delta, 1)
        return self.delta if delta is None else float(delta)

    def _check_other(self) -> None:
        used(self)
        around = payer_around()
        if around is not None and around is not self._payer:
            raise PrivacyError(
                "another ledger is open here, and one fit has one set of records: it would be"
                " charged to one of them only. Leave the block of the other ledger first. Nothing"
                " was released or charged."
            )

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        spent = rounded(self.epsilon(), math.ceil)
        with self._state.held():
            left = self._state.what_is_left()
        return "\n".join(
            [
                f"PrivacyLedger: epsilon {spent} of {self.budget:.4g} spent"
                f" at delta = {self.delta:.3g}, per {self.unit} ({self.neighboring_relation})",
                *(f"  {in_short(entry)}" for entry in self.entries),
                f"  left: {left}",
                "  how each was computed: .details()",
                *self._last_lines(),
            ]
        )

    def details(self) -> str:
        """Return the ledger in words, with what each entry released and how much noise it had.

        Returns
        -------
        str
            The total, also as it would be if all had been planned in advance, which is no
            guarantee; each entry with its releases and their noise multipliers; and what no sum
            counts.

        Examples
        --------
        >>> from dpsubspace import PrivacyLedger
        >>> from dpsubspace.statistics import private_quantile
        >>> with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        ...     median = private_quantile([18 + i % 70 for i in range(5000)], epsilon=0.3)
        >>> print(ledger.details())  # doctest: +ELLIPSIS
        PrivacyLedger: epsilon 0.3 of 1 spent at delta = 1e-05 (unit: row, relation: zero_out)
          private_quantile: ...
          Not watched: what other libraries compute from the rows...
        """
        spent = self.epsilon()
        lines = [
            f"PrivacyLedger: epsilon {rounded(spent, math.ceil)} of {self.budget:.4g} spent"
            f" at delta = {self.delta:.3g} (unit: {self.unit}, relation:"
            f" {self.neighboring_relation})"
        ]
        planned = self.epsilon_if_planned()
        if planned < spent * (1 - 1e-4):
            lines.append(
                "  (for comparison, and no guarantee: if everything had been planned in advance,"
                f" the same releases would have cost {rounded(planned, math.ceil)})"
            )
        lines += [
            f"  {entry.label or '(no label)'}: {describe(entry.event)}" for entry in self.entries
        ]
        return "\n".join([*lines, *self._last_lines()])

    def _last_lines(self) -> list[str]:
        """Return the lines on what no sum counts, with which both printed forms end."""
        failures, most = self.failures, self._terms.max_failures
        failed = f"failed fits that were not charged: {failures} of at most {most}"
        lines = [*([failed] if failures else []), *self._beside(), UNWATCHED]
        return [f"  {each}" for each in lines]

    def _beside(self) -> list[str]:
        """Return notes that a reader of the total must know, as in the verdict of its report."""
        spent, found = self.epsilon(), []
        if spent == math.inf:
            found.append("NO PRIVACY GUARANTEE: something in it is not private")
        elif spent > self.budget * (1 + 1e-9):
            found.append("THE BUDGET HAS BEEN EXCEEDED and does not hold")
        if self.allow_seeded:
            found.append("NO PRIVACY GUARANTEE for seeded fits, which this ledger allows")
        return [*found, *beside(self.seen)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "a PrivacyLedger cannot be copied, pickled or sent to another process: two copies"
            " would spend one budget twice. Pass the ledger itself, open it by its `path` in the"
            " other process, or fit inside of `with ledger:`, which workers of joblib find."
        )


_KEPT = (
    "The ledger stays charged for what its block has released. To fit it again would cost as much"
    " again: save each model inside of the block, right after its fit, with"
    " model.to_json('model.json'), and go on from there with dpsubspace.load."
)

_SAVED = (
    "The ledger stays charged for what its block has released. To lose nothing, it has saved"
    " {models}: read it with dpsubspace.load, which costs nothing, in place of fitting again."
)


def _refuse(guarantee: PrivacyGuarantee) -> None:
    raise PrivacyError("an estimator released something while it was asked what it costs.")


def _check_agrees(guarantee: PrivacyGuarantee, given: dict[str, str | None]) -> None:
    for name, value in given.items():
        own = getattr(guarantee, name)
        if value not in (None, own):
            raise ValueError(
                f"`{name}`={value!r} is not that of this guarantee, which is {own!r}: leave it out,"
                " a guarantee says it itself. Nothing was recorded."
            )
