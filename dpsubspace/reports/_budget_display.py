"""The plot of a budget: how much of it each fit or release used, and how much is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.accounting.cost import LEAST_SLACK, Cost, gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.ground.checks import check_choice, check_real
from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._names import public
from dpsubspace.budget._ledger import PrivacyLedger
from dpsubspace.budget._planner import PublicSizes
from dpsubspace.exceptions import PrivacyError
from dpsubspace.reports._report_subject import Account, account_of
from dpsubspace.reports._report_words import described

# Largest number of bars; further ones are drawn as one.
_MOST_BARS = 24

# A hue that differs from grey with any colour vision; the bar of the rest is hatched as well.
_TAKEN, _LEFT = "#0072b2", "#e6e6e6"

# Inches for a bar, for a letter of its name, and for everything else.
_BAR, _LETTER, _MARGIN = 0.36, 0.085, 2.5


@public
@dataclass(kw_only=True, eq=False, repr=False)
class BudgetDisplay(Display):
    """Waterfall chart of how a privacy budget was spent, with one bar for each part.

    Made by :meth:`from_ledger` (what was charged, and what is left) or :meth:`from_estimator` (the
    releases of one fit, the steps of a Pipeline, the fits of a search). The names stand at the
    bars, so that nothing has to be told by its colour.

    Parameters
    ----------
    names : sequence of str
        Names of the parts, in order.
    sq_mus : array-like of shape (n_parts,)
        What each takes: the square of mu of the Gaussian mechanism that it is charged as. Squares
        of mu add up, and epsilons do not.
    left : float, default=0.0
        What is left, likewise.
    delta : float, default=1e-5
        Delta that epsilons are stated at.
    title : str, default=""
        What stands above the picture.
    alone : array-like of shape (n_parts,) or None, default=None
        Epsilon of each by itself; None is that of the Gaussian mechanism of its mu.

    Attributes
    ----------
    names, sq_mus, left, delta, title, alone
        As given.
    shares : ndarray of shape (n_parts,)
        Part of the budget that each takes; with what is left they add up to 1.
    epsilons : ndarray of shape (n_parts,)
        Epsilon of each by itself; together they are more than all cost.
    ax_ : matplotlib Axes
        Axes with the bars.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : matplotlib BarContainer
        One bar a part, and one for what is left.
    text_ : ndarray of matplotlib Text
        Numbers at the bars.

    See Also
    --------
    PrivacyLedger : Keeps the accounts.
    privacy_report : The same in words, with what was not charged.
    PrivacyUtilityDisplay : Score against epsilon.

    Notes
    -----
    The picture is made of guarantees, which are public, and costs nothing.

    What is not Gaussian is drawn as the Gaussian mechanism that a ledger charges it as. What a
    ledger charges by its epsilon, since it has no delta, takes its part of what the budget would
    have in squares of mu without such releases, less what it has beside them.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier, PrivacyLedger
    >>> from dpsubspace.budget import BudgetDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> _ = ledger.fit(DPSGDClassifier(epsilon=1.0), X, y, label="first model")
    >>> display = BudgetDisplay.from_ledger(ledger)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['first model', 'left']
    >>> print(f"{display.shares[0]:.2f}")
    0.30
    """

    names: Sequence[str]
    sq_mus: Any
    left: float = 0.0
    delta: float = 1e-5
    title: str = ""
    alone: Any = None

    @property
    def shares(self) -> np.ndarray:
        """Part of the budget that each takes."""
        taken = np.asarray(self.sq_mus, dtype=np.float64)
        whole = taken.sum() + self.left
        return taken / whole if whole else taken

    @property
    def epsilons(self) -> np.ndarray:
        """Epsilon of each by itself."""
        if self.alone is not None:
            return np.asarray(self.alone, dtype=np.float64)
        return np.array([gaussian_epsilon(float(x), self.delta) for x in self.sq_mus])

    @classmethod
    def from_ledger(cls, ledger: PrivacyLedger, *, ax: Any = None, **plot_params: Any) -> Self:
        """Draw what was charged to a ledger, and what is left.

        Parameters
        ----------
        ledger : PrivacyLedger
            The ledger.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : BudgetDisplay
            The picture and its data.

        Raises
        ------
        PrivacyError
            If `ledger` is none, or something that is not private was recorded.
        ImportError
            If matplotlib is not installed.
        """
        if not isinstance(ledger, PrivacyLedger):
            raise PrivacyError(
                f"from_ledger draws a PrivacyLedger, not {type(ledger).__name__}: use"
                " from_estimator for a fitted model, a Pipeline or a search."
            )
        account = account_of(ledger, PublicSizes())
        spent, budget = account.total.epsilon, ledger.budget
        sq_mus, left = _charged(ledger, _sq_mus(account, ledger.delta))
        display = cls(
            names=[item.name for item in account.items],
            sq_mus=sq_mus,
            left=left,
            delta=ledger.delta,
            alone=[
                entry.epsilon if entry.charge.epsilon else gaussian_epsilon(sq_mu, ledger.delta)
                for entry, sq_mu in zip(ledger.entries, sq_mus, strict=True)
            ],
            title=f"epsilon {spent:.3g} of {budget:.3g} spent (delta = {ledger.delta:.3g})",
        )
        return display.plot(ax=ax, **plot_params)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_samples: int | None = None,
        n_features: int | None = None,
        n_outputs: int | None = None,
        n_train: int | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw the parts of what was fitted.

        Parameters
        ----------
        estimator : object
            What :func:`privacy_report` takes, but for a ledger: a fitted estimator, of which the
            releases are drawn, or something with several fits, of which the fits are.
        n_samples : int, optional
            Number of records, for a plan and for a search without a refit.
        n_features : int, optional
            Number of columns, for the same, where the cost depends on it.
        n_outputs : int, optional
            Number of columns of scores or targets, likewise.
        n_train : int, optional
            Least number of records that a search fitted in one split, where its splitter does not
            tell.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : BudgetDisplay
            The picture and its data.

        Raises
        ------
        PrivacyError
            If nothing states what `estimator` costs, or it was fitted without noise.
        ImportError
            If matplotlib is not installed.
        """
        if isinstance(estimator, PrivacyLedger):
            return cls.from_ledger(estimator, ax=ax, **plot_params)
        account = account_of(estimator, PublicSizes(n_samples, n_features, n_outputs, n_train))
        total = account.total
        delta = total.delta or 1e-5
        if len(account.items) == 1 and account.items[0].count == 1:
            guarantee = account.items[0].guarantee
            names, sq_mus = _of_one_fit(estimator, guarantee, delta)
        else:
            counts = [f" ({item.count} fits)" * (item.count > 1) for item in account.items]
            names = [item.name + n for item, n in zip(account.items, counts, strict=True)]
            sq_mus = _sq_mus(account, delta)
        title = f"{account.subject}: epsilon {total.epsilon:.3g} (delta = {total.delta:.3g})"
        if account.reasons:
            title = f"{account.subject}: what was charged (no guarantee for the whole)"
        display = cls(names=names, sq_mus=sq_mus, delta=delta, title=title)
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: str = "share",
        bar_kw: dict[str, Any] | None = None,
        left_kw: dict[str, Any] | None = None,
        text_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones in a figure that has room for all names.
        kind : {"share", "epsilon"}, default="share"
            What the axis measures. "share" is the part of the budget, in squares of mu, which is
            the same whatever the order. "epsilon" is how much epsilon grew by each part, in
            this order: the first part of a budget costs the most epsilon.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh`` for the parts.
        left_kw : dict or None, default=None
            Passed to ``ax.barh`` for what is left.
        text_kw : dict or None, default=None
            Passed to ``ax.text`` for the numbers.

        Returns
        -------
        display : BudgetDisplay
            This object, with the artists.

        Raises
        ------
        ValueError
            If `kind` is another, or the data do not fit together.
        ImportError
            If matplotlib is not installed.
        """
        check_choice("kind", kind, ("share", "epsilon"))
        names, sq_mus = self._bars()
        ends = np.cumsum(sq_mus)
        if kind == "share":
            ends = ends / ends[-1] if ends[-1] else ends
        else:
            ends = np.array([gaussian_epsilon(float(x), self.delta) for x in ends])
        starts = np.append(0.0, ends[:-1])
        letters = _LETTER * max(map(len, names))
        ax = self._draw_in(ax, (6 + letters, _MARGIN / 2 + _BAR * len(names)))
        places = np.arange(len(names))
        options = styled(bar_kw, color=_TAKEN, height=0.7)
        self.bars_: Any = ax.barh(places, ends - starts, left=starts, **options)
        if self.left > 0:
            options = styled(left_kw, facecolor=_LEFT, edgecolor="grey", hatch="///")
            self.bars_[-1].set(**options)
        self._write(self._alone(names, sq_mus), ends - starts, kind, text_kw)
        ax.set_yticks(places, names)
        ax.invert_yaxis()
        ax.set_xlim(0, ends[-1] or 1.0)
        if kind == "share":
            ax.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
            ax.set_xlabel("part of the budget (squares of mu, which add up)")
        else:
            ax.set_xlabel(f"epsilon at delta = {self.delta:.3g}, in this order")
        ax.set_title(self.title, loc="left")
        return self

    def _bars(self) -> tuple[list[str], np.ndarray]:
        names, sq_mus = [str(name) for name in self.names], np.asarray(self.sq_mus, np.float64)
        check_real("left", self.left, low=0, include_low=True)
        check_real("delta", self.delta, low=0, high=1)
        if sq_mus.shape != (len(names),) or not (np.isfinite(sq_mus) & (sq_mus >= 0)).all():
            raise ValueError(
                f"`sq_mus` must be one finite number of at least 0 for each of the {len(names)}"
                f" names, got {self.sq_mus!r}."
            )
        if len(names) > _MOST_BARS:
            rest = len(names) - _MOST_BARS + 1
            sq_mus = np.append(sq_mus[:-rest], sq_mus[-rest:].sum())
            names[-rest:] = [f"{rest} more"]
        if self.left > 0 or not names:
            names, sq_mus = [*names, "left"], np.append(sq_mus, self.left)
        return names, sq_mus

    def _alone(self, names: list[str], sq_mus: np.ndarray) -> np.ndarray:
        epsilons = np.array([gaussian_epsilon(float(x), self.delta) for x in sq_mus])
        if self.alone is not None and len(self.names) <= _MOST_BARS:
            epsilons[: len(self.names)] = self.epsilons
        return epsilons

    def _write(self, epsilons: np.ndarray, sizes: np.ndarray, kind: str, text_kw: Any) -> None:
        texts, form = [], "{:.1%}" if kind == "share" else "+{:.3g}"
        for i, (alone, size) in enumerate(zip(epsilons, sizes, strict=True)):
            words = f"{form.format(size)}  (epsilon {alone:.3g} alone)"
            options = styled(text_kw, va="center", transform=self.ax_.get_yaxis_transform())
            texts.append(self.ax_.text(1.02, i, words, **options))
        self.text_: np.ndarray = np.array(texts, dtype=object)


def _sq_mus(account: Account, delta: float) -> list[float]:
    return [item.count * _sq_mu(item.guarantee, delta) for item in account.items]


def _charged(ledger: PrivacyLedger, sq_mus: list[float]) -> tuple[list[float], float]:
    """Return bars of a ledger, and what is left, if some is charged or set apart by epsilon.

    `sq_mus` are squares of mu of the dominating Gaussian mechanisms. They are kept for entries that
    are charged by mu.
    """

    def beside(epsilon: float) -> float:
        return gaussian_sq_mu(max(ledger.budget - epsilon, 0.0), ledger.delta)

    charges = [entry.charge for entry in ledger.entries]
    pure = math.fsum(charge.epsilon for charge in charges)
    unit = (beside(0.0) - beside(pure)) / pure if pure else 0.0
    bars = [
        charge.sq_mu + unit * charge.epsilon if charge.epsilon else sq_mu
        for charge, sq_mu in zip(charges, sq_mus, strict=True)
    ]
    apart = beside(pure) - beside(max(pure, ledger.pure_epsilon))
    return bars, gaussian_sq_mu(ledger.remaining(), ledger.delta) + apart


def _sq_mu(guarantee: PrivacyGuarantee, delta: float, event: Any = None) -> float:
    event = guarantee.event if event is None else event
    slack = max(delta / 1e4, LEAST_SLACK)
    price = Cost.of(event, guarantee.neighboring_relation).price(slack)
    found = price.sq_mu + price.pure_sq_mu
    if found == math.inf:
        raise PrivacyError(
            "something without enough noise is among the parts: it takes more than any budget,"
            " and there is nothing to draw. See privacy_report."
        )
    return found


def _of_one_fit(
    estimator: Any, guarantee: PrivacyGuarantee, delta: float
) -> tuple[list[str], list[float]]:
    from dpsubspace._core.accounting.accountants import each_mechanism, event_of

    parts = list(each_mechanism(guarantee.event))
    events = [event_of([part]) for part in parts]
    names = _names_of_parts(estimator, guarantee)
    if names is None or len(names) != len(parts):
        names = [described(event) for event in events]
    return names, [_sq_mu(guarantee, delta, event) for event in events]


def _names_of_parts(estimator: Any, guarantee: PrivacyGuarantee) -> list[str] | None:
    """Return the names of a fit's releases if its plan follows from public sizes, else None."""
    if not hasattr(estimator, "_budget") or guarantee.n_samples is None:
        return None
    classes = len(getattr(estimator, "classes_", ()))
    outputs = None if not classes else 1 if classes == 2 else classes
    known = (guarantee.n_samples, guarantee.n_features, outputs)
    for n_public, labelled in ((0, False), (1, False), (1, True)):
        sizes = Sizes(*known, n_public, labelled, persons=guarantee.unit != "row")
        try:
            budget = estimator._budget(sizes)
        except (AttributeError, ValueError):  # no plan, or another size would be needed
            continue
        if budget.event == guarantee.event:
            return list(budget.parts)
    return None
