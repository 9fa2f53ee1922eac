"""Picture of audits: what attacks have shown, beside what is claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from dpsubspace._workflow.audit import AuditResult, audit_estimator
from dpsubspace._workflow.display import pyplot

__all__ = ["AuditDisplay"]

# Inches that a figure has around its names, and for each audit.
_MARGIN, _ROW = 1.4, 0.4


class AuditDisplay:
    """Lower bounds of audits beside the claims: one line for each.

    A bar ends at the bound that the attack has shown. The claim is a vertical mark, and a bar
    that crosses it refutes the claim. An open circle is the bound that guesses would have given
    which are all right: where it lies to the left of the claim, the audit could not have refuted
    it.

    Made by :meth:`from_results`, which takes what :func:`audit_estimator` gives, or
    :meth:`from_estimators`, which runs the audits.

    Parameters
    ----------
    results : sequence of AuditResult
        Audits, the first one at the top.
    names : sequence of str
        Their names.

    Attributes
    ----------
    results, names
        As given.
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : matplotlib BarContainer
        Lower bounds.
    claims_ : matplotlib Artist
        Claims.
    reachable_ : matplotlib Artist
        Bounds that perfect guesses would give.

    See Also
    --------
    audit_estimator : One audit.
    PrivacyUtilityDisplay : Score against epsilon.

    Notes
    -----
    A bar that ends below its claim proves nothing: the attack has found no more.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import AuditDisplay, DPSGDRegressor, private_mean
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> display = AuditDisplay.from_estimators(
    ...     {"mean": private_mean, "regression": DPSGDRegressor()}, X, X.sum(axis=1), random_state=0
    ... )
    >>> [result.refuted for result in display.results]
    [False, False]
    >>> display.ax_.get_xlabel()
    'epsilon'
    """

    # Set by `plot`.
    bars_: Any
    claims_: Any
    reachable_: Any
    ax_: Any
    figure_: Any

    def __init__(self, *, results: Sequence[AuditResult], names: Sequence[str]):
        self.results = results
        self.names = names

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any],
        X: Any,
        y: Any = None,
        *,
        audit_params: dict[str, Any] | None = None,
        random_state: int | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Audit estimators and functions on the same rows, and draw what was found.

        Parameters
        ----------
        estimators : dict of estimator or function
            What to audit, by name.
        X : array-like of shape (n_samples, n_features)
            Rows beside the canaries, public or synthetic ones.
        y : array-like of shape (n_samples,), optional
            Their targets. What is fitted to rows alone does not look at them.
        audit_params : dict or None, default=None
            Passed to :func:`audit_estimator`, but for `random_state`.
        random_state : int or None, default=None
            Seed of the coins and of the noise of all fits. None draws secure noise.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : AuditDisplay
            The picture and its data.

        Raises
        ------
        PrivacyError
            If one cannot be audited.
        ValueError
            If a parameter is out of its range, or `audit_params` has a `random_state`.
        ImportError
            If matplotlib is not installed; nothing was fitted then.
        """
        pyplot("AuditDisplay")
        options = dict(audit_params or {})
        if "random_state" in options:
            raise ValueError(
                "`audit_params` has a `random_state`, which is a parameter of its own here: pass"
                " AuditDisplay.from_estimators(..., random_state=...)."
            )
        options["random_state"] = random_state
        found = [audit_estimator(each, X, y, **options) for each in estimators.values()]
        return cls.from_results(found, names=[*estimators], ax=ax, **plot_params)

    @classmethod
    def from_results(
        cls,
        results: Sequence[AuditResult],
        *,
        names: Sequence[str] | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw audits that were run elsewhere.

        Parameters
        ----------
        results : sequence of AuditResult
            Audits, the first one at the top.
        names : sequence of str or None, default=None
            Their names; None takes those of the results.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : AuditDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If there is no result, or not a name for each.
        """
        results = list(results)
        names = [result.name for result in results] if names is None else list(names)
        if not results or len(names) != len(results):
            raise ValueError(
                f"`results` must hold an audit at least, and `names` a name for each, got"
                f" {len(results)} results and {len(names)} names."
            )
        return cls(results=results, names=names).plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        bar_kw: dict[str, Any] | None = None,
        claim_kw: dict[str, Any] | None = None,
        reachable_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the bounds.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh`` for the bounds.
        claim_kw : dict or None, default=None
            Passed to ``ax.plot`` for the claims.
        reachable_kw : dict or None, default=None
            Passed to ``ax.plot`` for the bounds that perfect guesses would give.

        Returns
        -------
        display : AuditDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        plt = pyplot("AuditDisplay")
        if ax is None:
            size = (plt.rcParams["figure.figsize"][0], _MARGIN + _ROW * len(self.results))
            _, ax = plt.subplots(figsize=size, layout="constrained")
        places = np.arange(len(self.results))
        bounds = [result.epsilon_lower_bound for result in self.results]
        confidence = {f"{result.confidence:.0%}" for result in self.results}
        label = f"shown (confidence {', '.join(sorted(confidence))})"
        colors = ["tab:red" if result.refuted else "tab:blue" for result in self.results]
        options = {"color": colors, "alpha": 0.6, "label": label} | (bar_kw or {})
        self.bars_ = ax.barh(places, bounds, **options)
        claimed = [result.epsilon_claimed for result in self.results]
        options = {"color": "black", "marker": "|", "markersize": 16, "markeredgewidth": 2.5}
        options |= {"linestyle": "", "label": "claimed"} | (claim_kw or {})
        (self.claims_,) = ax.plot(claimed, places, **options)
        reachable = [result.epsilon_reachable for result in self.results]
        options = {"color": "grey", "marker": "o", "markerfacecolor": "none", "linestyle": ""}
        options |= {"label": "if all guesses were right"} | (reachable_kw or {})
        (self.reachable_,) = ax.plot(reachable, places, **options)
        ax.set(yticks=places, yticklabels=self.names, xlabel="epsilon")
        ax.set_xlim(left=0.0)
        ax.invert_yaxis()
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
