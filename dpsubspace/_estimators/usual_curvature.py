"""How strongly the loss of a private classifier of a table pulls weights back, as far as is known.

Design note. What noise leaves in the weights of a descent depends on the curvature of the loss,
which is a second moment of the private rows. The mean that rows are centred by is released, and it
tells how each column is distributed as finely as the encoding is: the mean of a cosine is a
coefficient of a Fourier series, and that of an indicator is a frequency. Rows are drawn column by
column by what it says, and the curvature is theirs, with labels as the model has them. How columns
go together is not known. Where they say nearly the same, curvature is smaller in some directions
than for columns by themselves, and so all of it is divided by a constant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from dpsubspace import _auto
from dpsubspace._estimators.linear_scores import LinearScores
from dpsubspace._gradients.losses import LogLoss
from dpsubspace._tables.encoding import Encoding
from dpsubspace._tables.frames import MISSING, Table

__all__ = ["Curvature", "alone", "table_of", "usual_curvature"]

# What curvature is divided by. Of 3, 5, 10 and 20 the least with which bands of 90 % covered at
# least 80 % of the points of every column of Adult, California and simulated patients (1,000 and
# 12,000 rows, epsilon 1). benchmarks/repro_shapes.py has other tables.
_CAUTION = 20.0

# Rows that are drawn, places of a number, and how strongly these are drawn to being as frequent.
_ROWS, _PLACES, _EVEN = 2_000, 48, 0.01


class Curvature(NamedTuple):
    """Second derivative of the mean loss: about ``by_output[k] * matrix`` for output k.

    `matrix` is for the entries of a row, its bias entry and the constant of centred rows.
    """

    matrix: np.ndarray
    by_output: np.ndarray


def usual_curvature(encoding: Encoding, model: Any, scores: LinearScores) -> Curvature | None:
    """Curvature at the weights of a fitted classifier; None where nothing tells it.

    That is without a released mean or an intercept, for rows that were clipped about the mean, and
    for losses other than the log loss.
    """
    if getattr(model, "mean_", None) is None or getattr(model, "loss", None) != "log_loss":
        return None
    clipped = np.isfinite(getattr(model, "radius_", np.inf))
    if clipped or scores.row_map is None or not scores.bias:
        return None
    shrunk = max(float(model.mean_[-1]) / scores.bias, 1e-6)  # by the map of rows, on average
    rows = _usual_rows(encoding, model.mean_[:-1] / shrunk)
    at = np.arange(rows.shape[1])
    used = scores.used(rows, at, (rows**2).sum(axis=1))
    chances = LogLoss().predict(scores.scores(used, at) + model.offset_)
    constant = np.full((len(rows), 1), _auto.CENTRED_BIAS * model.clip_norm_)
    centred = np.concatenate([used - model.mean_, constant], axis=1)
    lengths, pulling = np.linalg.norm(centred, axis=1), np.zeros(len(rows))
    for k in range(chances.shape[1]):  # gradients that are clipped stay as long as they are
        residual = np.linalg.norm(chances - np.eye(chances.shape[1])[k], axis=1)
        residual /= np.sqrt(2) if chances.shape[1] == 2 else 1.0  # one column of scores
        pulling += chances[:, k] * (residual * lengths < model.clip_norm_)
    pulls = pulling[:, None] * chances * (1 - chances)
    pulls = pulls[:, :1] if chances.shape[1] == 2 else pulls
    usual = pulls.mean(axis=1)
    matrix = (centred * usual[:, None]).T @ centred / (_CAUTION * len(rows))
    return Curvature(matrix, pulls.mean(axis=0) / max(float(usual.mean()), 1e-12))


def _usual_rows(encoding: Encoding, means: np.ndarray) -> np.ndarray:
    """Encoded rows with about these means of features, the same whenever they are asked for."""
    schema, rng = encoding.schema, np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {}
    for name in schema:
        kind: Any = schema[name]
        if name in schema.categories:
            values, gap = np.arange(float(len(kind.values))), float(MISSING)
        else:
            places = (np.arange(_PLACES) + 0.5) / _PLACES
            values, gap = encoding.numbers_at(name, places), np.nan
        values = np.append(values, gap) if kind.missing else values
        at = encoding.blocks[name]
        shares = _frequencies(alone(encoding, {name: values}, len(values))[:, at], means[at])
        counts = np.diff(np.round(np.cumsum(shares) * _ROWS).astype(int), prepend=0)
        columns[name] = rng.permutation(np.repeat(values, counts))
    return alone(encoding, columns, _ROWS)


def _frequencies(entries: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Frequencies (m,) of rows of entries (m, k) that have about this mean, and are even else."""
    m, size = len(entries), float(np.abs(entries).max())
    even = _EVEN * np.sqrt(m)
    rows = np.concatenate([entries.T / size, even * np.eye(m), 10 * np.ones((1, m))])
    shares = nnls(rows, np.concatenate([mean / size, np.full(m, even / m), [10.0]]))[0]
    return shares / shares.sum()


# Rows of some columns ---------------------------------------------------------------------------


def alone(encoding: Encoding, columns: dict[str, np.ndarray], n: int) -> np.ndarray:
    """Encoded rows with these numbers or codes of columns, and the first ones of all others."""
    schema = encoding.schema
    firsts = {name: encoding.numbers_at(name, np.zeros(1)) for name in schema.numbers}
    numbers = [np.broadcast_to(columns.get(name, firsts[name]), n) for name in schema.numbers]
    codes = [np.broadcast_to(columns.get(name, np.zeros(1)), n) for name in schema.categories]
    return encoding(table_of(numbers, codes, n)).astype(np.float64)


def table_of(numbers: list[Any], codes: list[Any], n: int) -> Table:
    """A table of these columns."""
    return Table(
        np.stack(numbers, axis=1) if numbers else np.zeros((n, 0)),
        np.stack(codes, axis=1).astype(np.intp) if codes else np.zeros((n, 0), np.intp),
    )
