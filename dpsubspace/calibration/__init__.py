"""Probabilities, prediction sets and intervals that hold, calibrated privately."""

from dpsubspace._names import exported

__all__, __getattr__, __dir__ = exported("calibration")  # pyright: ignore[reportUnsupportedDunderAll]
