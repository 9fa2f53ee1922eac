"""Scores of candidates, added up over records without rounding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dpsubspace._release.mechanisms import BoundedScores, score_sum

__all__ = ["total_scores"]

# Scores are whole multiples of one over this: sums of 2^29 of them are exact in float64.
_STEPS = 2.0**24


def total_scores(
    parts: Iterable[tuple[Any, np.ndarray]], n_candidates: int, present: np.ndarray | None
) -> BoundedScores:
    """Sum over records of one number in [0, 1] for each candidate.

    Parameters
    ----------
    parts : iterable of (slice, ndarray of shape (k, n_candidates))
        Records, and what each of them brings. What is outside of [0, 1] counts as the nearer end,
        and what is not a number as 0.
    n_candidates : int
        Number of candidates.
    present : boolean array of shape (n,) or None
        False makes a record a null record, which brings exactly 0 to all candidates.

    Notes
    -----
    Bounds: those of :func:`~dpsubspace._release.mechanisms.score_sum`. What a record brings is
    rounded to a multiple of 2^-24, of which the sum is exact in whatever order it is taken.
    """
    total = np.zeros(n_candidates)
    for rows, scores in parts:
        whole = np.rint(np.nan_to_num(np.clip(scores, 0.0, 1.0)) * _STEPS)
        if present is not None:
            whole = np.where(present[rows, None], whole, 0.0)
        total += whole.sum(axis=0)
    return score_sum(total / _STEPS)
