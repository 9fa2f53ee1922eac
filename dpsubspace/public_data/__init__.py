"""How to choose public rows, and how near they are to the private ones."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("public_data")  # pyright: ignore[reportUnsupportedDunderAll]
