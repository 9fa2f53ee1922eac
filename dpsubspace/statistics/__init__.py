"""Private means, counts, summaries and odds ratios."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("statistics")  # pyright: ignore[reportUnsupportedDunderAll]
