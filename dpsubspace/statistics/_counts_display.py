"""The plot of released counts: bars with intervals, or a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._names import public
from dpsubspace.statistics._table_counts import PrivateCounts

# Largest number of categories of a second column for bars side by side; more make a map.
_SIDE_BY_SIDE = 6


@public
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateCountsDisplay(Display):
    """Bars of released counts with their intervals, or a map of a cross table.

    One column is drawn as bars, two as bars side by side, and two of many cells as a map, which has
    no intervals. Nothing is released. Made by :meth:`from_counts`.

    Parameters
    ----------
    counts : PrivateCounts
        What is drawn: counts of one column or of two.

    Attributes
    ----------
    counts : PrivateCounts
        As given.
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : list of matplotlib Container
        Bars of each category of the second column, or all bars; empty for a map.
    map_ : matplotlib Artist or None
        The map.

    See Also
    --------
    private_counts : Releases the counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpsubspace import private_counts
    >>> from dpsubspace.statistics import PrivateCountsDisplay
    >>> table = pd.DataFrame({"ward": ["A", "B"] * 500})
    >>> counts = private_counts(table, {"ward": ["A", "B"]}, "ward", epsilon=1.0)
    >>> display = PrivateCountsDisplay.from_counts(counts)
    >>> len(display.bars_[0])  # A, B, and not listed
    3
    """

    counts: PrivateCounts

    @classmethod
    def from_counts(cls, counts: PrivateCounts, *, ax: Any = None, **plot_params: Any) -> Self:
        """Draw released counts.

        Parameters
        ----------
        counts : PrivateCounts
            Counts of one column or of two: see :meth:`PrivateCounts.margin`.
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivateCountsDisplay
            The picture.

        Raises
        ------
        ValueError
            If there are more than two columns.
        ImportError
            If matplotlib is not installed.
        """
        return cls(counts=counts).plot(ax=ax, **plot_params)

    def plot(self, ax: Any = None, *, bar_kw: dict[str, Any] | None = None) -> Self:
        """Draw the counts.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        bar_kw : dict or None, default=None
            Passed to ``ax.bar``.

        Returns
        -------
        display : PrivateCountsDisplay
            This object, with the artists.

        Raises
        ------
        ValueError
            If there are more than two columns.
        ImportError
            If matplotlib is not installed.
        """
        found: Any = self.counts
        if len(found.columns) > 2:
            raise ValueError("a plot has one column or two: draw counts.margin([...]).")
        ax = self._draw_in(ax)
        self.bars_, self.map_ = [], None
        ax.set_xlabel(found.columns[0])
        ax.set_title(f"{found.unit.capitalize()}s (n = {found.n:,})")
        if len(found.columns) == 2 and len(found.labels[1]) > _SIDE_BY_SIDE:
            return self._draw_map(ax)
        of_both = len(found.columns) == 2
        names: Any = found.labels[-1] if of_both else [None]
        width, places = 0.8 / len(names), np.arange(len(found.labels[0]))
        for i, name in enumerate(names):
            arrays = (found.counts, found.low, found.high)
            counts, low, high = (a[:, i] if of_both else a for a in arrays)
            # Counts in objects that a user has built may lie outside of their intervals.
            whiskers = np.maximum([counts - low, high - counts], 0.0)
            label = f"{found.columns[-1]} {name}" if of_both else None
            usual = {"yerr": whiskers, "label": label, "alpha": 0.75, "capsize": 2}
            moved = places + (i - (len(names) - 1) / 2) * width
            self.bars_.append(ax.bar(moved, counts, width, **styled(bar_kw, **usual)))
        ax.set_xticks(places, [str(label) for label in found.labels[0]], rotation=30, ha="right")
        ax.set_ylabel(f"count (whiskers: {100 * found.level:g}% intervals, for noise)")
        self._write_legend()
        return self

    def _draw_map(self, ax: Any) -> Self:
        found: Any = self.counts
        self.map_ = ax.imshow(found.counts.T, origin="lower", aspect="auto")
        ax.set_ylabel(found.columns[1])
        for axis, labels in ((ax.xaxis, found.labels[0]), (ax.yaxis, found.labels[1])):
            step = max(1, len(labels) // 10)
            axis.set_ticks(range(0, len(labels), step), [str(x) for x in labels[::step]])
        ax.figure.colorbar(self.map_, ax=ax, label="count")
        return self
