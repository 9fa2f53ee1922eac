"""The privacy cost of fits, and the budget that is left."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("budget")  # pyright: ignore[reportUnsupportedDunderAll]
