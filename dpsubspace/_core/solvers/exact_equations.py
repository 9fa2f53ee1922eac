"""Equations of coefficients without privacy: least squares and maximum likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.rows.remote import sum_over_parts
from dpsubspace._core.solvers.design import Design, column_sum_of, tally_of
from dpsubspace._core.statistics.inverted_tests import Equations

# Largest number of Newton steps, and the size of a step that ends them. Classes are separate along
# a direction if its slope is below this share of the squares of its rows. A direction of the rows
# has at least this share of the largest square.
_STEPS, _CLOSE, _SEPARATE, _NONE = 100, 1e-12, 1e-10, 1e-11


def exact_equations(design: Design) -> Equations:
    """The same at the weights that fit best, of all rows and without noise: not private.

    Where some direction tells classes apart without an error, there are none that fit best: each
    step moves weights on along it, and the slope falls by a factor of e. It counts as 0 then, as it
    does along directions in which no row goes.
    """
    p, n = design.rows.shape[1], design.n
    weights, own = np.zeros(p), _own_directions(_slope(design, None))
    along, shares = own, np.ones(own.shape[1])
    fixed = shares > 0
    for _ in range(1 if design.family == "linear" else _STEPS):
        score = sum_over_parts(np.sum, design.by_record(design.residuals(weights)), 0)
        at = None if design.family == "linear" else design.slopes(weights)
        shares, turns = np.linalg.eigh(own.T @ _slope(design, at) @ own)
        along, fixed = own @ turns, shares > _SEPARATE
        move = along[:, fixed] @ (along[:, fixed].T @ score / shares[fixed])
        weights = weights + move
        if np.abs(move).max() < _CLOSE:
            break
    found, whole = design.by_record(design.residuals(weights)), _slope(design, None)
    back = whole @ along[:, fixed]
    return Equations(
        about=weights,
        score=np.zeros(p),
        slope=(back * shares[fixed]) @ back.T / n,
        moment=sum_over_parts(_product, found, found) / max(1, n - p),
        n=n,
        separate=along[:, ~fixed],
        tally=tally_of(design, to_numpy(column_sum_of(design).value), 0.0),
    )


def _own_directions(squares: np.ndarray) -> np.ndarray:
    """Return directions (p, k) of the rows, in which mean squares are 1 and mixed means 0."""
    values, vectors = np.linalg.eigh(squares)
    there = values > _NONE * values.max()
    return vectors[:, there] / np.sqrt(values[there])


def _slope(design: Design, own: Any) -> np.ndarray:
    parts = design.records.weights_numpy
    own = 1.0 if own is None else own[:, None]
    own = own if parts is None else own * parts[:, None]
    return sum_over_parts(_product, design.rows * own, design.rows)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.T @ right
