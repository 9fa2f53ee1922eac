"""Scores of candidates by how near a sum over records is to zero there, or a rank to one asked for.

Either finds in one release, with no delta, what a search would take many releases for: the
exponential mechanism on how far a candidate misses its mark (the inverse sensitivity mechanism of
Asi and Duchi, 2020).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsubspace._release.mechanisms import BoundedScores
from dpsubspace._rows.records import Records

__all__ = ["rank_scores", "root_scores", "sums_of_records"]

# Finest multiples that are added up, and how many steps a sum may have to be exact.
_FINEST, _EXACT = 2.0**40, 2.0**51


def sums_of_records(columns: Iterable[np.ndarray], records: Records) -> tuple[np.ndarray, float]:
    """Sums over records of numbers in [-1, 1], one for each of `columns`, and their slack.

    Parameters
    ----------
    columns : iterable of ndarray of shape (n_rows,)
        What rows bring. What is outside of [-1, 1] counts as the nearer end, and what is not a
        number as 0.
    records : Records
        Whose the rows are: a record brings the mean of its rows, and nothing if it is null.

    Notes
    -----
    What a record brings is rounded to a multiple of a public step, so that sums are exact in any
    order. Where the rows of one record lie elsewhere because of another, what it brings may be
    rounded otherwise, by one step. The slack is that for all records: a sum moves between
    neighbours by what their one record brings, and at most as much more.
    """
    steps = min(2.0 ** np.floor(np.log2(_EXACT / records.n)), _FINEST)
    weights, found = records.weights_numpy, []
    for column in columns:
        brought = np.nan_to_num(np.clip(column, -1.0, 1.0))
        if records.index is not None:
            brought = np.bincount(records.index, brought * weights, minlength=records.n)
        elif weights is not None:
            brought = brought * weights
        found.append(np.rint(np.clip(brought, -1.0, 1.0) * steps).sum() / steps)
    return np.array(found), records.n / steps


def root_scores(totals: np.ndarray, slack: float, public: np.ndarray) -> BoundedScores:
    """Score of each candidate by how near the sum that it gives is to zero.

    Parameters
    ----------
    totals : ndarray of shape (n_candidates, p)
        Sum over records at each candidate, of vectors of norm at most 1. Private.
    slack : float
        How far rounding moves a sum between neighbours, in L2 norm.
    public : ndarray of shape (n_candidates,)
        What else a candidate is given, by public knowledge.

    Notes
    -----
    Proof: the score is minus the length of the sum. A record that becomes null takes a vector of
    norm at most 1 out of each, which changes each length by a number in [-1, 1], and one that is
    replaced by a number in [-2, 2]. The moves of two candidates differ by at most 2, and 4.
    """
    scores = public - np.sqrt((totals**2).sum(axis=1))
    return BoundedScores(scores, 2 * (1 + slack), 2 * (2 + slack))


def rank_scores(counts: np.ndarray, rank: float) -> BoundedScores:
    """Score of each candidate by how near it is to the value of a rank.

    Parameters
    ----------
    counts : ndarray of shape (n_candidates,)
        Number of records at each candidate, in their order; of a record of several rows, parts
        that add up to at most 1. Private.
    rank : float
        The rank, public.

    Notes
    -----
    Score: minus the distance of `rank` from the ranks that a candidate has, which go from the
    number of records below it to that with those at it. The value of the rank has a score of 0,
    however many records are tied there. Proof of the bounds: whether a record becomes null or is
    replaced, both numbers move by at most 1 each, and so does the distance, which is the largest
    of 0, one of them less `rank`, and `rank` less the other. The moves of two candidates differ by
    at most 2 in either relation.
    """
    up_to = np.cumsum(counts)
    missed = np.maximum(np.maximum(up_to - counts - rank, rank - up_to), 0.0)
    return BoundedScores(-missed, 2.0, 2.0)
