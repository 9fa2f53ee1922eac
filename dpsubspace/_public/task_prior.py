"""What models of tasks are like, by public tasks: their mean, their covariance, and the noise.

A mixed model: the coefficients of each task are drawn from one normal distribution. It is found by
expectation and maximisation (Laird, Ware, 1982). Nothing here sees a private row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsubspace._rows.affine import Affine

__all__ = ["TaskPrior", "task_prior"]

# Rounds, and the variance that every coefficient has at least, over that of the noise.
_ROUNDS, _LEAST = 50, 1e-6

# Variance of coefficients to start from, over that of the targets.
_START = 0.1


@dataclass(frozen=True)
class TaskPrior:
    """Distribution of the models of tasks, for rows after a map of columns.

    Parameters
    ----------
    mean : ndarray of shape (d + 1,)
        Mean constant, and mean weights.
    covariance : ndarray of shape (d + 1, d + 1)
        Of constants and weights.
    noise : float
        Variance of targets about the models.
    """

    mean: np.ndarray
    covariance: np.ndarray
    noise: float

    def in_units(self, location: float, scale: float) -> TaskPrior:
        """The same for targets less `location` and over `scale`."""
        mean = self.mean / scale
        mean[0] -= location / scale
        return TaskPrior(mean, self.covariance / scale**2, self.noise / scale**2)


def task_prior(
    sets: Sequence[np.ndarray], targets: Sequence[np.ndarray], affine: Affine, *, intercept: bool
) -> TaskPrior:
    """Fit the distribution to public tasks.

    Parameters
    ----------
    sets : sequence of ndarray of shape (m_t, d)
        Rows of the tasks.
    targets : sequence of ndarray of shape (m_t,)
        Their targets.
    affine : Affine
        Map of each column by itself.
    intercept : bool
        Whether models have a constant.
    """
    first = 0 if intercept else 1
    rows = [_rows(part, affine)[:, first:] for part in sets]
    grams = np.stack([part.T @ part for part in rows])
    products = np.stack([part.T @ y for part, y in zip(rows, targets, strict=True)])
    squares, n = sum(float(y @ y) for y in targets), sum(map(len, targets))
    width = grams.shape[1]
    mean = np.linalg.solve(grams.sum(axis=0) + 1e-6 * n * np.eye(width), products.sum(axis=0))
    variance = _left(mean[None], grams.sum(axis=0)[None], products.sum(axis=0)[None], squares, n)
    covariance = _START * variance * np.eye(width)
    for _ in range(_ROUNDS):
        inner = np.linalg.inv(covariance)
        spread = np.linalg.inv(grams / variance + inner)
        own = (spread @ (products / variance + inner @ mean)[:, :, None])[:, :, 0]
        mean = own.mean(axis=0)
        apart = own - mean
        covariance = spread.mean(axis=0) + apart.T @ apart / len(own)
        covariance += _LEAST * variance * np.eye(width)
        left = _left(own, grams, products, squares, n) + float((grams * spread).sum()) / n
        variance = max(left, 1e-12 * squares / n, 1e-300)
    whole, embedded = np.zeros(width + first), np.zeros((width + first, width + first))
    whole[first:], embedded[first:, first:] = mean, covariance
    return TaskPrior(whole, embedded, variance)


def _rows(rows: np.ndarray, affine: Affine) -> np.ndarray:
    """Mapped rows behind a constant entry."""
    mapped = (np.asarray(rows, dtype=np.float64) - affine.mean) * affine.weights
    return np.concatenate([np.ones((len(mapped), 1)), mapped], axis=1)


def _left(
    coef: np.ndarray, grams: np.ndarray, products: np.ndarray, squares: float, n: int
) -> float:
    """Mean squared residual of tasks by their models, from sums over their rows."""
    fitted = np.einsum("ti,tij,tj->", coef, grams, coef) - 2 * np.einsum("ti,ti->", coef, products)
    return max(squares + float(fitted), 0.0) / n
