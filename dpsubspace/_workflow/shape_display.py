"""What a private model of a table has learned of each column, with the band that noise leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpsubspace._checks import check_integer, check_real, shown
from dpsubspace._estimators.linear_scores import LinearScores
from dpsubspace._tables.encoding import Encoding
from dpsubspace._tables.frames import MISSING, Table
from dpsubspace._workflow.display import pyplot

__all__ = ["ColumnShape", "ShapeDisplay"]

# Points at which a column is averaged over its public range, and rows that stand for all others.
_MIDDLES, _ROWS = 128, 512

# The first is told from grey with any colour vision, as are all of them from each other.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

# Inches of a panel, and letters of the name of a category that are shown.
_WIDTH, _HEIGHT, _LETTERS = 3.2, 2.5, 20


@dataclass(frozen=True)
class ColumnShape:
    """What a model has learned of one column, or of two numbers together.

    Parameters
    ----------
    at : ndarray of shape (n,), or tuple of two of them
        Values of the column: numbers of its range, or the categories. Two arrays for a pair.
    values : ndarray of shape (n, n_outputs), or (n, m, n_outputs) for a pair
        What each adds to the score.
    std : ndarray of the shape of `values` or None
        Standard deviation that noise leaves in it; None where that is not known, or there is none.
    missing : ndarray of shape (n_outputs,) or None, default=None
        What a missing value adds; None where none was declared.
    missing_std : ndarray of shape (n_outputs,) or None, default=None
        Its standard deviation.
    categorical : bool, default=False
        Whether `at` are categories.
    scales : tuple of (low, high, log), default=()
        Range of each column of numbers, and whether it is read on a logarithmic scale.
    """

    at: Any
    values: np.ndarray
    std: np.ndarray | None
    missing: np.ndarray | None = None
    missing_std: np.ndarray | None = None
    categorical: bool = False
    scales: tuple[tuple[float, float, bool], ...] = ()

    def largest(self, factor: float) -> float:
        """Largest size of what is drawn, with `factor` standard deviations."""
        found = 0.0
        for values, std in ((self.values, self.std), (self.missing, self.missing_std)):
            if values is not None:
                reach = 0.0 if std is None or values.ndim == 3 else factor * std
                found = max(found, float(np.max(np.abs(values) + reach)))
        return found
