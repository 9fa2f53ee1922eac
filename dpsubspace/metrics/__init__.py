"""Private scores and curves of models."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("metrics")  # pyright: ignore[reportUnsupportedDunderAll]
