"""Choice of public rows, and their distances to the private rows."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("public_data")  # pyright: ignore[reportUnsupportedDunderAll]
