"""Columns of tables that alone decide an outcome, by released numbers: see ``copies.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsubspace._core.fits.copies import DECIDED, MOST_OF_SCORES, OTHERS, SURE, USUALLY
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.solvers.intercepts import Doubt
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace.tables._column_importances import importances_of, scores_along


def copying_column_of_table(encoding: Encoding, model: Any) -> Any:
    """Return the name of a column that alone decides the outcome of a classifier; or None."""
    doubt: Doubt | None = getattr(model, "_doubt", None)
    if doubt is None:
        return None
    n_classes = len(model.classes_)
    of_one = (n_classes - 1) / n_classes / (2 if n_classes == 2 else 1)  # largest for a constant
    if not doubt.is_below(DECIDED * of_one):
        return None
    importances = np.nan_to_num(importances_of(encoding, model).values)  # texts have none
    found = int(np.argmax(importances))
    name = list(encoding.schema)[found]
    if (
        importances[found] < MOST_OF_SCORES
        or np.delete(importances, found).max(initial=0.0) > OTHERS
    ):
        return None  # if others count too, they may decide together
    along, mean = scores_along(encoding, model, name)
    chances = LogLoss().predict(along.reshape(-1, along.shape[2])).reshape(*along.shape[:2], -1)
    alone = np.mean(chances.max(axis=1).min(axis=1) >= SURE)
    shares = _shares(along.mean(axis=0), mean)
    if alone < USUALLY or not doubt.is_below(DECIDED * float(shares @ (1 - shares))):
        return None
    return name


def _shares(along: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
    """Approximate frequencies of outcomes, by the place of the mean score among those of a column.

    `along` are the scores (v, c) of the values of the column, and `mean` (c,) those of the mean
    row, or None: then the mean over the values is used. A column that decides takes scores as far
    to one side of 0 as to the other, or farther where its range is wider than it needs to be. The
    nearer side counts: for a rare outcome that is not decided, the mean is beyond it, and the share
    is 0. For several classes, all shares are returned; for two, that of the second.
    """
    if several := along.shape[1] > 1:  # each class against the others
        along = along - along.mean(axis=1, keepdims=True)
        mean = None if mean is None else mean - mean.mean()
    middle = along.mean(axis=0) if mean is None else mean
    side = np.minimum(along.max(axis=0), -along.min(axis=0))
    shares = np.clip((middle / np.maximum(side, 1e-300) + 1) / 2, 0.0, 1.0)
    return shares / max(float(shares.sum()), 1.0) if several else shares
