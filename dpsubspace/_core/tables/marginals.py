"""How values of a column are distributed, as far as a released mean of its features tells."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

# How strongly places of a column are drawn to being as frequent.
_EVEN = 0.01


def middles(number: int) -> np.ndarray:
    """So many places from 0 to 1, each in the middle of its part."""
    return (np.arange(number) + 0.5) / number


def frequencies(entries: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Frequencies (m,) of rows of entries (m, k) that have about this mean, and are even else."""
    m, size = len(entries), float(np.abs(entries).max())
    even = _EVEN * np.sqrt(m)
    rows = np.concatenate([entries.T / size, even * np.eye(m), 10 * np.ones((1, m))])
    shares = nnls(rows, np.concatenate([mean / size, np.full(m, even / m), [10.0]]))[0]
    return shares / shares.sum()
