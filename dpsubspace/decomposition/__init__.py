"""Private principal components."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("decomposition")  # pyright: ignore[reportUnsupportedDunderAll]
