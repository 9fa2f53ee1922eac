"""Base of all displays, which keep data and draw them with ``plot`` (matplotlib on demand)."""

from __future__ import annotations

from typing import Any

import numpy as np


class Display:
    """Base of displays, which are dataclasses of the data to draw, as in scikit-learn."""

    # Set by `plot`.
    ax_: Any
    figure_: Any

    @classmethod
    def _pyplot(cls) -> Any:
        """The pyplot module of matplotlib; ImportError with instructions if it is missing."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                f'{cls.__name__} needs matplotlib: pip install "dpsubspace[plot]".'
            ) from error
        return plt

    def _draw_in(self, ax: Any, size: Any = None) -> Any:
        """Axes to draw in: `ax`, or new ones in a figure of `size` inches."""
        plt = self._pyplot()
        if ax is None:
            options = {} if size is None else {"figsize": size, "layout": "constrained"}
            _, ax = plt.subplots(**options)
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    def _write_legend(self, **options: Any) -> None:
        if self.ax_.get_legend_handles_labels()[1]:
            self.ax_.legend(**options)


def styled(given: dict[str, Any] | None, **usual: Any) -> dict[str, Any]:
    """Options of an artist: the usual ones, updated by the given ones."""
    return usual | (given or {})


def drawn_band(ax: Any, x: Any, low: Any, high: Any, color: Any, given: Any) -> Any:
    ends = np.asarray(x), np.asarray(low), np.asarray(high)
    return ax.fill_between(*ends, **styled(given, color=color, alpha=0.2, linewidth=0))
