"""Plots of the effect of each column in a fitted model of a table."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("inspection")  # pyright: ignore[reportUnsupportedDunderAll]
