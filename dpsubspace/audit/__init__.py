"""Empirical checks of privacy claims."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("audit")  # pyright: ignore[reportUnsupportedDunderAll]
