"""Distances between sets of rows by which others rank public data.

Functions of arrays that have been checked. Nothing here adds noise: a distance from private
rows is not private.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import svdvals
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression

from dpsubspace._array import sampled

__all__ = ["LabelledRows", "fisher_distance", "fisher_information", "label_costs", "transport_cost"]

# Weight of the penalty on the probe, beside the mean loss of rows that are scaled to one length.
_PENALTY = 1e-3


@dataclass(frozen=True)
class LabelledRows:
    """Finite rows, and the index of the class of each where classes are known."""

    X: Any  # ndarray or CSR array (n, d)
    codes: np.ndarray | None = None

    @property
    def scale(self) -> float:
        """Largest magnitude of an entry."""
        return float(abs(self.X).max())

    def sample(self, size: int, seed: int) -> LabelledRows:
        """At most `size` rows, the same ones for each set of as many rows."""
        chosen = sampled(self.X.shape[0], size, np.random.default_rng(seed))
        return LabelledRows(self.X[chosen], None if self.codes is None else self.codes[chosen])

    def scaled(self, scale: float) -> LabelledRows:
        """The rows in float64, divided by `scale`."""
        X = self.X.astype(np.float64, copy=True)
        if sparse.issparse(X):  # which scipy would multiply by the inverse, and that may be inf
            X.data /= scale
        else:
            X /= scale
        return LabelledRows(X, self.codes)


def _common_scale(first: LabelledRows, second: LabelledRows) -> float:
    """Factor that brings all entries of both sets to at most 1."""
    return max(first.scale, second.scale) or 1.0


# Task2Vec (Achille et al., 2019) -------------------------------------------------------------


def fisher_distance(first: LabelledRows, second: LabelledRows) -> float:
    """Cosine distance of the shares of two sets in the Fisher information of each feature."""
    scale = _common_scale(first, second)
    a, b = (fisher_information(rows.scaled(scale)) for rows in (first, second))
    known = a + b > 0
    a, b = a[known] / (a + b)[known], b[known] / (a + b)[known]
    if not (a.any() and b.any()):  # an empty set of features is like itself and like no other
        return 1.0 if a.any() or b.any() else 0.0
    difference = a / np.linalg.norm(a) - b / np.linalg.norm(b)
    return float(difference @ difference / 2)


def fisher_information(rows: LabelledRows) -> np.ndarray:
    """Fisher information of the weights of each feature in a linear softmax probe (d,).

    Summed over classes: the mean of ``x_a^2 sum_l p_l (1 - p_l)``, for labels that are drawn from
    the probe. Without labels the probe has zero weights, and the sum is the same for all rows.
    """
    spread = np.ones(rows.X.shape[0])
    if rows.codes is not None:
        probabilities = _probabilities(rows.X, rows.codes)
        spread = (probabilities * (1 - probabilities)).sum(axis=1)
    squares = rows.X.power(2) if sparse.issparse(rows.X) else rows.X**2
    return squares.T @ spread / len(spread)


def _probabilities(X: Any, codes: np.ndarray) -> np.ndarray:
    """Probability of each class at each row, from a head that is fitted to them (n, c).

    The intercept takes up a shift of all rows, so the fit is to rows about their mean.
    """
    mean = X.mean(axis=0)
    Z = X if sparse.issparse(X) else X - mean
    variance = _squares(Z).mean() - (mean @ mean if sparse.issparse(X) else 0.0)
    scale = max(float(variance), 0.0) ** 0.5 or 1.0
    strength: Any = {"C": 1 / (_PENALTY * len(codes))}
    head = LogisticRegression(**strength, solver="newton-cg", max_iter=1000, tol=1e-6)
    return head.fit(Z / scale, codes).predict_proba(Z / scale)


# Optimal transport (Alvarez-Melis and Fusi, 2020) --------------------------------------------


def transport_cost(first: LabelledRows, second: LabelledRows) -> float:
    """Mean cost of the cheapest pairing of the rows of two sets of one size.

    A pair costs the squared distance of its rows, and with labels the squared Wasserstein distance
    of the Gaussians of its two classes besides.
    """
    scale = _common_scale(first, second)
    first, second = first.scaled(scale), second.scaled(scale)
    if not (sparse.issparse(first.X) or sparse.issparse(second.X)):
        # Costs do not change if all rows are shifted, and rounding is least about their mean.
        middle = (first.X.mean(axis=0) + second.X.mean(axis=0)) / 2
        first, second = (replace(rows, X=rows.X - middle) for rows in (first, second))
    inner = _dense(first.X @ second.X.T)
    costs = _squares(first.X)[:, None] + _squares(second.X) - 2 * inner
    extra = np.zeros_like(costs)
    if first.codes is not None and second.codes is not None:
        extra = label_costs(first, second, inner)[first.codes][:, second.codes]
    chosen = linear_sum_assignment(costs + extra)
    # From differences, which are exactly zero for equal rows; costs were rounded.
    moved = _squares(first.X[chosen[0]] - second.X[chosen[1]]).mean() + extra[chosen].mean()
    return float(moved) * scale * scale


def label_costs(first: LabelledRows, second: LabelledRows, inner: np.ndarray) -> np.ndarray:
    """Squared 2-Wasserstein distance of the Gaussians of each two classes, one of each set.

    ``|m - m'|^2 + tr S + tr S' - 2 tr (S^1/2 S' S^1/2)^1/2``, where the last trace is the nuclear
    norm of ``S^1/2 S'^1/2``. With the centred rows A and B of both classes, ``S = A^T A / n`` and
    ``S' = B^T B / n'``, it is that of ``A B^T / sqrt(n n')`` (polar decompositions of A and
    B): a block of the inner products `inner` of all rows, centred both ways. So no
    covariance is formed, whatever the number of features.
    """
    (means, traces, members), (others, other_traces, other_members) = map(
        _gaussians, (first, second)
    )
    costs = _squares(means)[:, None] + _squares(others) - 2 * means @ others.T
    costs = costs + traces[:, None] + other_traces
    for i, rows in enumerate(members):
        for j, columns in enumerate(other_members):
            if min(len(rows), len(columns)) > 1:  # one row has no covariance
                block = inner[np.ix_(rows, columns)]
                block = block - block.mean(axis=0)
                block = block - block.mean(axis=1, keepdims=True)
                shared = float(np.sum(svdvals(block)))
                costs[i, j] -= 2 * shared / (len(rows) * len(columns)) ** 0.5
    return np.maximum(costs, 0.0)


def _gaussians(rows: LabelledRows) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Mean (c, d) and trace of the covariance (c,) of each class, and its rows.

    A class that no row has is of no cost to anyone: its numbers are never asked for.
    """
    codes = rows.codes
    assert codes is not None
    members = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    counts = np.array([max(len(each), 1) for each in members])
    indicator = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))))
    means = _dense(indicator @ rows.X) / counts[:, None]
    squares = np.bincount(codes, _squares(rows.X)) / counts
    return means, np.maximum(squares - _squares(means), 0.0), members


def _squares(X: Any) -> np.ndarray:
    """Squared norm of each row."""
    return X.power(2).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)


def _dense(X: Any) -> np.ndarray:
    """`X` as an array."""
    return X.toarray() if sparse.issparse(X) else X
