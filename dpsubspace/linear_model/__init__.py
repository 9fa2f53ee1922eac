"""Private linear models, and a model for each person."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("linear_model")  # pyright: ignore[reportUnsupportedDunderAll]
