"""What a fitted model of a table makes of each column."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("inspection")  # pyright: ignore[reportUnsupportedDunderAll]
