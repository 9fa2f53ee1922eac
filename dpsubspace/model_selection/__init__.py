"""Search for parameters, with one budget."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("model_selection")  # pyright: ignore[reportUnsupportedDunderAll]
