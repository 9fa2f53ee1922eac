"""What fits cost, and what is left."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("budget")  # pyright: ignore[reportUnsupportedDunderAll]
