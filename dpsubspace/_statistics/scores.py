"""Scores of candidates, added up over records without rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpsubspace._release.mechanisms import BoundedScores, BoundedSum, score_sum
from dpsubspace._rows.records import Records

__all__ = ["ScoreTotal", "score_total"]

# Scores are whole multiples of one over this: sums of 2^29 of them are exact in float64.
_STEPS = 2.0**24

# Where records may move by rounding, a step is larger than that.
_FINEST = 2.0**40

# Sums of so many steps are exact, with some to spare for scores that are public.
_EXACT = 2.0**51


class ScoreTotal:
    """Sum over records of one number in [0, 1] for each of some candidates.

    Parameters
    ----------
    n_candidates : int
        Number of candidates.
    present : boolean array of shape (n,) or None
        False makes a record a null record, which brings exactly 0 to all candidates.
    n_moving : int, default=0
        Number of records, public, where what one brings may be rounded otherwise because of the
        rows of another.

    Notes
    -----
    Bounds: those of :func:`~dpsubspace._release.mechanisms.score_sum`. What a record brings is
    rounded to a multiple of 2^-24, of which the sum is exact in whatever order it is taken. Where
    other records may move by rounding, each moves by one step at most, and two of its scores by
    two steps apart. Steps are as small as exact sums of so many allow.
    """

    def __init__(self, n_candidates: int, present: np.ndarray | None = None, n_moving: int = 0):
        self._total = np.zeros(n_candidates)
        self._present = present
        self._steps = _STEPS
        if n_moving:
            self._steps = min(2.0 ** np.floor(np.log2(_EXACT / n_moving)), _FINEST)
        self._slack = 2 * n_moving / self._steps

    def add(self, rows: Any, scores: np.ndarray) -> None:
        """Add what the records of a slice bring, of shape (k, n_candidates).

        What is outside of [0, 1] counts as the nearer end, and what is not a number as 0.
        """
        whole = np.rint(np.nan_to_num(np.clip(scores, 0.0, 1.0)) * self._steps)
        if self._present is not None:
            whole = np.where(self._present[rows, None], whole, 0.0)
        self._total += whole.sum(axis=0)

    def bounded_sum(self, *public: float) -> BoundedScores:
        """Return the total, with scores of further candidates that are public.

        These are rounded as well, so that differences of scores are exact.
        """
        steps = self._steps
        total = score_sum(np.append(self._total, np.rint(np.multiply(public, steps))) / steps)
        norm, apart = (b + self._slack for b in (total.norm_bound, total.replace_bound))
        return replace(total, norm_bound=norm, replace_bound=apart)


def score_total(values: np.ndarray, records: Records) -> BoundedSum:
    """Sum over records of one number in [0, 1] each, of which their rows have parts.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        What each row says; what is outside of [0, 1] counts as the nearer end, and what is not a
        number as 0.
    records : Records
        Whose the rows are.

    Notes
    -----
    Proof of the bounds: what a record brings is an average of such numbers, and 0 for a null
    record, rounded to a multiple of 2^-24, of which sums are exact in whatever order they are
    taken. So a record that becomes null takes away a number in [0, 1], and one that is replaced
    moves the sum by a number in [-1, 1]: by at most 1 either way.
    """
    values = np.nan_to_num(np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0))
    weights = records.weights_numpy
    values = values if weights is None else values * weights
    if records.index is not None:
        values = np.minimum(np.bincount(records.index, values, minlength=records.n), 1.0)
    total = np.rint(values * _STEPS).sum() / _STEPS
    return BoundedSum(np.array([total]), 1.0, 1.0)
