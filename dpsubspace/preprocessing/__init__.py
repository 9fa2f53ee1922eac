"""Private scaling of columns."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("preprocessing")  # pyright: ignore[reportUnsupportedDunderAll]
