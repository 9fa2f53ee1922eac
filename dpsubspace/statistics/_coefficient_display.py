"""The plot of coefficients with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._names import public
from dpsubspace.statistics._coefficients import PrivateCoefficients


@public
@dataclass(kw_only=True, eq=False, repr=False)
class CoefficientDisplay(Display):
    """Coefficients of a regression with their intervals: a forest plot.

    A point for each coefficient, and a line for its interval. Of a coefficient without an interval
    that has two ends there is the name alone. Ratios of odds or rates are on a logarithmic axis.

    Made by :meth:`from_coefficients`, of what :func:`private_coefficients` released. It costs
    nothing more.

    Parameters
    ----------
    terms : sequence of str
        Names of the coefficients.
    estimate : array-like of shape (n_terms,)
        Coefficients, or ratios of odds or rates.
    low, high : array-like of shape (n_terms,)
        Ends of the intervals.
    score_name : str, default="coefficient"
        What is drawn, at the axis.
    odds : bool, default=False
        Whether these are ratios of odds or rates: the axis is then logarithmic, with a line at 1.

    Attributes
    ----------
    terms, estimate, low, high, score_name, odds
        As given.
    ax_ : matplotlib Axes
        Axes with the points.
    figure_ : matplotlib Figure
        Their figure.
    points_ : matplotlib Artist
        Points of the coefficients.
    lines_ : matplotlib Artist
        Lines of the intervals.

    See Also
    --------
    private_coefficients : Releases what is drawn here.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import private_coefficients
    >>> from dpsubspace.statistics import CoefficientDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(20_000, 2))
    >>> y = X[:, 0] + rng.normal(scale=5, size=20_000) > X[:, 1]
    >>> found = private_coefficients(X, target=y, bounds=(0, 10), random_state=0)
    >>> CoefficientDisplay.from_coefficients(found).terms
    ('x0', 'x1')
    """

    terms: Sequence[str]
    estimate: Any
    low: Any
    high: Any
    score_name: str = "coefficient"
    odds: bool = False

    @classmethod
    def from_coefficients(
        cls,
        coefficients: PrivateCoefficients,
        *,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw released coefficients but for the intercept, those of odds and rates as ratios.

        Categories are named with their reference, as "ward[B] vs A".

        Parameters
        ----------
        coefficients : PrivateCoefficients
            What :func:`private_coefficients` returned.
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : CoefficientDisplay
            The picture and its data.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        cls._pyplot()
        names, columns = coefficients._ratio_columns, coefficients._columns()
        odds = bool(names)
        estimate, low, high = (columns[name][1:] for name in names or ("estimate", "low", "high"))
        name = coefficients._ratio_name or "coefficient"
        whose = zip(coefficients.terms[1:], columns["variable"][1:], strict=True)
        references = {key: f" vs {value}" for key, value in coefficients.references.items()}
        display = cls(
            terms=tuple(f"{term}{references.get(column, '')}" for term, column in whose),
            estimate=estimate,
            low=low,
            high=high,
            score_name=f"{name} ({coefficients.level:.0%} interval)",
            odds=odds,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the coefficients.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        line_kw : dict or None, default=None
            Passed to ``ax.hlines`` for the intervals.

        Returns
        -------
        display : CoefficientDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        estimate, low, high = (
            np.asarray(x, dtype=float) for x in (self.estimate, self.low, self.high)
        )
        ax = self._draw_in(ax, (6.4, 1.0 + 0.3 * len(estimate)))
        places, none = np.arange(len(estimate)), 1.0 if self.odds else 0.0
        if self.odds:
            ax.set_xscale("log")
        there = np.isfinite(estimate) & np.isfinite(low) & np.isfinite(high)
        there &= (low > 0) | (not self.odds)
        estimate, low, high = estimate[there], low[there], high[there]
        shown = np.concatenate([[none], low, high])
        if self.odds:
            left, right = shown.min() / 1.2, shown.max() * 1.2
        else:
            margin = 0.05 * float(np.ptp(shown)) or 1.0
            left, right = shown.min() - margin, shown.max() + margin
        ax.set_xlim(left, right)
        if self.odds:  # plain numbers, not powers of ten
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter("{x:g}" if right < 10 * left else "")
        self.lines_ = ax.hlines(places[there], low, high, **styled(line_kw, color="#0072b2"))
        self.points_ = ax.plot(estimate, places[there], "o", color="#0072b2")[0]
        ax.axvline(none, color="#666666", linewidth=0.8, linestyle=":")
        ax.set_yticks(places, [str(term) for term in self.terms])
        ax.set_ylim(len(places) - 0.5, -0.5)
        ax.set_xlabel(self.score_name)
        return self
