"""Bases in which rows vary about equally in all directions, and rows as if they were normal.

Nothing here sees a private number: all inputs are released, and there is no cost.

Design note. Noise that protects a vector is as long as the longest vector that a record may
contribute. On the public ranges that is the root of the number of columns, however little the
columns vary within them; in a basis in which the information matrix is about the identity, it is
about the length of a usual row, and noise is small beside chance wherever it can be. An indicator
of a rare category is not divided by its whole deviation: its few rows would be far longer than all
others, and noise grows with them. With shares q, the root of that deviation loses least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._core.solvers.families import Family

# Nodes and shares of a quadrature for a standard normal variable.
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(41)
_SHARES = _SHARES / _SHARES.sum()

# Share of the norm of the noise below which no eigenvalue of correlations counts.
_OF_NOISE = 0.5

# Steps to find an offset, the least slope there, and rounds to fit rows to a curvature.
_STEPS, _FLATTEST, _FITTED = 20, 1e-6, 4

# Curvature that no map makes a usual one.
_NO_CURVATURE = 1e-100

# Part of the slope of normal rows that those of categories do not have beside their own.
_TWICE = 0.9


@dataclass(frozen=True)
class Whitening:
    """A map after which released second moments are about the identity."""

    basis: np.ndarray  # (k, k)
    moment: np.ndarray  # (k, k): the released moment, without what is noise; positive definite

    @classmethod
    def of(
        cls, matrix: np.ndarray, noise: float, scales: np.ndarray, *, least: float, floor: float
    ) -> Whitening:
        """Return the map of a noisy moment (k, k) with `noise` as the deviation of its diagonal.

        Columns are divided by `scales` (k,), and their correlations removed as far as noise shows
        them. Diagonal entries are at least `floor`, and eigenvalues of correlations at least
        `least`.
        """
        k = len(matrix)
        diagonal = np.maximum(np.diag(matrix), max(2 * noise, floor))
        roots = np.sqrt(np.outer(diagonal, diagonal))
        correlations = matrix / roots
        np.fill_diagonal(correlations, 1.0)
        values, vectors = np.linalg.eigh(correlations)
        of_noise = noise / float(np.median(diagonal)) * math.sqrt(2 * k)
        values = np.maximum(values, min(1.0, max(_OF_NOISE * of_noise, least)))
        basis = (vectors / np.sqrt(values)) @ vectors.T / scales[:, None]
        return cls(basis, (vectors * values) @ vectors.T * roots)


@dataclass(frozen=True)
class ReleasedRows:
    """Rows as far as released numbers describe them: normal, but for those of rare categories.

    Those of a rare category all have about the same score, which is far from normal.
    """

    mean: np.ndarray  # (p,)
    covariance: np.ndarray  # (p, p)
    shares: np.ndarray  # (k,): of rows of categories, less those that are about normal
    centres: np.ndarray  # (k, p): their mean rows
    seen: np.ndarray  # (k,): shares of rows of categories, less what may be noise
    level: float = 0.0  # What offsets add to all scores: the logarithm of the mean exposure

    def within(self, basis: np.ndarray) -> ReleasedRows:
        return replace(
            self,
            mean=basis.T @ self.mean,
            covariance=basis.T @ self.covariance @ basis,
            centres=self.centres @ basis,
        )

    @property
    def moment(self) -> np.ndarray:
        return self.covariance + np.outer(self.mean, self.mean)

    def curvature(self, weights: np.ndarray, family: Family) -> np.ndarray:
        """Mean of ``m'(v b) v v^T`` over such rows v, for weights b, but for a constant matrix.

        Given the score, a normal row is normal about a line, so that a quadrature over scores is
        enough.
        """
        across = self.covariance @ weights
        spread = math.sqrt(max(float(weights @ across), 1e-12))
        middle = self.level + float(self.mean @ weights)
        slopes = family.slope(middle + spread * _NODES) * _SHARES
        level, tilt, bend = slopes.sum(), slopes @ _NODES, slopes @ (_NODES**2 - 1)
        across = across / spread
        mixed = np.outer(across, self.mean)
        found = level * self.moment + tilt * (mixed + mixed.T) + bend * np.outer(across, across)
        scores = self.scores_of(self.centres, weights)[:, None] + spread * _NODES
        heights = family.slope(scores) @ _SHARES
        if family.unbounded:  # normal rows have those of categories, with other slopes
            heights = heights - _TWICE * level
        heights = self.shares * heights
        return found + (self.centres.T * heights) @ self.centres

    def fitted(
        self, weights: np.ndarray, curvature: np.ndarray, family: Family
    ) -> ReleasedRows | FittedRows:
        """Return these rows, mapped so that their curvature at `weights` is a released one.

        The moment of rows was released with the noise of wide ranges, and shows less of columns
        that hardly vary within them. Where slopes have no bound, steps to such rows need not come
        to an end: scores are those of the rows as they were.
        """
        rows = self
        for _ in range(_FITTED):
            change = _change_between(rows.curvature(weights, family), curvature)
            if change is None:  # where the family is flat, nothing is to be fitted
                return self
            if family.unbounded:
                return FittedRows(self, change, weights)
            rows = rows.within(change)
        return rows

    @property
    def mapped(self) -> ReleasedRows:
        return self

    def squares_of(self, centres: np.ndarray) -> np.ndarray:
        """Mean squares of the lengths of rows about each of some centres (k, p)."""
        within = max(float(np.trace(self.covariance)), 0.0)
        return (centres**2).sum(axis=1) + within

    def scores_of(self, centres: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return self.level + centres @ weights

    def mean_and_slope(self, offset: float, spread: float, family: Family) -> tuple[float, float]:
        scores = self.level + offset + spread * _NODES
        return float(_SHARES @ family.mean(scores)), float(_SHARES @ family.slope(scores))

    def offset(self, mean: float, spread: float, family: Family) -> tuple[float, float]:
        """Return the offset at which the mean target is `mean`, and the mean slope there."""
        offset, slope = family.link(mean) - self.level, 0.0
        for _ in range(_STEPS):
            found, slope = self.mean_and_slope(offset, spread, family)
            offset -= float(np.clip((found - mean) / max(slope, _FLATTEST), -1, 1))
        return offset, max(slope, _FLATTEST)


@dataclass(frozen=True)
class FittedRows:
    """Rows that are mapped, with the scores that they had before at some weights."""

    rows: ReleasedRows
    change: np.ndarray  # (p, p)
    at: np.ndarray  # (p,)

    @property
    def mapped(self) -> ReleasedRows:
        return self.rows.within(self.change)

    def curvature(self, weights: np.ndarray, family: Family) -> np.ndarray:
        found = self.rows.curvature(self.at + self.change @ (weights - self.at), family)
        return self.change.T @ found @ self.change


def _change_between(found: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """Return a symmetric matrix C with ``C found C = other``; None if the first is about 0.

    Rows that are mapped may have scores at which the family is ever flatter: no C is finite then.
    """
    if not np.isfinite(found).all():
        return None
    values, vectors = np.linalg.eigh(found)
    if not values[-1] > _NO_CURVATURE:
        return None
    values = np.maximum(values, 1e-9 * values[-1])
    root, inverse = roots(values, vectors)
    shares, turns = np.linalg.eigh(root @ other @ root)
    middle = (turns * np.sqrt(np.maximum(shares, 0.0))) @ turns.T
    return inverse @ middle @ inverse


def roots(values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the symmetric root of a matrix, and its inverse, by positive eigenvalues."""
    deviations = np.sqrt(values)
    return (vectors * deviations) @ vectors.T, (vectors / deviations) @ vectors.T
