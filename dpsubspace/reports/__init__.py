"""Privacy reports for a data protection officer."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("reports")  # pyright: ignore[reportUnsupportedDunderAll]
