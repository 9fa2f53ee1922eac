"""Models of persons who do without anybody else: ridge regression on their own rows alone.

Where a person has many rows, and noise has hidden what all persons share, that may be best. It uses
nothing that was released: not even where columns lie, which each person sees in the own rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsubspace._statistics.users import UserChunk, products

__all__ = ["Alone", "alone", "better_alone"]

# Penalties, over the number of rows of the person, of which the least leave-one-out error decides.
_PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)

# Fewest rows of a person who may do alone, and standard errors by which that must be better: more
# where rows are few, since their least leave-one-out error is lower by chance.
_FEWEST, _CLEARLY, _FEW = 8, 1.0, 6.0

# Share by which the squared error must be less, times the rows: among many persons with few rows,
# those that noise happens to favour alone have errors that are less, but rarely by that much.
_LESS = 7.0


class Alone(NamedTuple):
    """Own models of the persons of a chunk.

    Parameters
    ----------
    coef : ndarray of shape (u, d)
        Weights of rows as they are.
    constant : ndarray of shape (u,)
        Constants.
    left_out : ndarray of shape (u, m)
        Residual of each row by the model of the person's other rows.
    """

    coef: np.ndarray
    constant: np.ndarray
    left_out: np.ndarray


def alone(chunk: UserChunk, *, intercept: bool) -> Alone:
    """Ridge regression of each person's targets on the own rows, standardised by the own rows.

    Columns and targets are divided by their largest entries first, so that whatever a person's rows
    are, nothing is out of range.
    """
    there = np.arange(chunk.rows.shape[1]) < chunk.sizes[:, None]
    targets, unit = _in_range(chunk.residuals[:, :, None])
    rows, units = _in_range(chunk.rows)
    targets, sizes = targets[:, :, 0], chunk.sizes[:, None]
    means, level = np.zeros_like(rows[:, 0, :]), np.zeros_like(sizes)
    if intercept:
        means, level = rows.sum(axis=1) / sizes, targets.sum(axis=1, keepdims=True) / sizes
    rows = np.where(there[:, :, None], rows - means[:, None, :], 0.0)
    targets = np.where(there, targets - level, 0.0)
    scale = np.sqrt((rows**2).sum(axis=1) / sizes)
    flat = scale <= 1e-9 * np.abs(means)
    factors = np.where(flat, 0.0, 1 / np.where(flat, 1.0, np.maximum(scale, 1e-300)))
    rows = rows * factors[:, None, :]
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    inside = np.matmul(np.swapaxes(left, 1, 2), targets[:, :, None])[:, :, 0]
    base = 1 / sizes if intercept else np.zeros_like(sizes)
    best, coef, error = None, np.zeros_like(means), np.full(len(sizes), np.inf)
    for penalty in _PENALTIES:
        kept = values**2 / (values**2 + penalty * sizes)
        rest = targets - np.matmul(left, (kept * inside)[:, :, None])[:, :, 0]
        leverage = ((left**2) * kept[:, None, :]).sum(axis=2) + base
        found = np.where(there, rest / np.maximum(1 - leverage, 1e-9), 0.0)
        errors = products(found, found)
        wins = errors < error
        dual = np.where(values > 0, kept * inside / np.maximum(values, 1e-300), 0.0)
        weights = np.matmul(dual[:, None, :], right)[:, 0, :]
        best = found if best is None else np.where(wins[:, None], found, best)
        coef, error = np.where(wins[:, None], weights, coef), np.where(wins, errors, error)
    assert best is not None
    coef = coef * factors
    constant = (level[:, 0] - products(coef, means)) * unit[:, 0]
    with np.errstate(over="ignore"):
        coef = coef / units * unit
    return Alone(np.where(np.isfinite(coef), coef, 0.0), constant, best * unit)


def _in_range(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (u, m, d) over the largest entry of each column of each person, and these, (u, d)."""
    rows = np.where(np.isfinite(rows), rows, 0.0)
    largest = np.abs(rows).max(axis=1)
    largest = np.where(largest > 0, largest, 1.0)
    return rows / largest[:, None, :], largest


def better_alone(chunk: UserChunk, own: np.ndarray, together: np.ndarray) -> np.ndarray:
    """Whether each person does clearly better alone, by residuals (u, m) that were left out.

    Squared errors of the same rows are compared, so that what makes a row hard for both counts for
    nothing. The mean of their differences has to be clear, and a large share of what there is.
    """
    there = np.arange(own.shape[1]) < chunk.sizes[:, None]
    largest = np.maximum(np.abs(own), np.abs(together)).max(axis=1, keepdims=True)
    largest = np.where(largest > 0, largest, 1.0)  # squares stay in range
    mine, others = (np.where(there, left / largest, 0.0) ** 2 for left in (own, together))
    mean = (others - mine).sum(axis=1) / chunk.sizes
    spread = np.where(there, others - mine - mean[:, None], 0.0)
    error = np.sqrt(products(spread, spread)) / chunk.sizes
    clear = mean > (_CLEARLY + _FEW / chunk.sizes) * error
    large = mean > _LESS / chunk.sizes * (others.sum(axis=1) / chunk.sizes)
    return (chunk.sizes >= _FEWEST) & clear & large
