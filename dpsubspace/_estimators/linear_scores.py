"""What a fitted linear model makes of single columns, in its own words: weights, norms, cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._estimators.classifier import LinearClassifier
from dpsubspace._estimators.regression import DPLinearRegression, PublicSubspaceLinearRegression
from dpsubspace._estimators.regressor import LinearRegressor
from dpsubspace._rows.maps import RowMap
from dpsubspace._solvers.weight_noise import WeightNoise

__all__ = ["LinearScores"]


@dataclass(frozen=True)
class LinearScores:
    """How a fitted linear model scores a row x: ``s (x W + bias w) + constant``.

    The factor s follows from the norm of the row, and entries are cut to limits before, if any.

    Parameters
    ----------
    weights : ndarray of shape (p + 1, c)
        W, and last w.
    bias : float
        Entry that the last weights are of.
    row_map : RowMap or None
        What rows are bounded by; None leaves them as they are.
    limits : tuple of two ndarrays of shape (p,) or None
        What entries are cut to.
    noise : WeightNoise or None
        Noise in the weights; None where it is not known, or there is none.
    """

    weights: np.ndarray
    bias: float
    row_map: RowMap | None
    limits: Any
    noise: WeightNoise | None

    @classmethod
    def of(cls, model: Any) -> LinearScores | None:
        """Those of a fitted model; None where it is not a linear model of this package."""
        if isinstance(model, LinearClassifier):
            row_map = model._fitted_row_map
            weights = np.concatenate([model.coef_.T, model.intercept_[None]])
            return cls(weights, row_map.bias or 0.0, row_map, None, model._weight_noise)
        if not isinstance(
            model, (LinearRegressor, DPLinearRegression, PublicSubspaceLinearRegression)
        ):
            return None
        coef = np.atleast_2d(model.coef_)
        weights = np.concatenate([coef.T, np.zeros((1, len(coef)))])
        row_map, limits = None, None
        if not isinstance(model, LinearRegressor):
            limits = model.bounds_
        elif not model.bounds_found_["data_norm"]:
            row_map = RowMap(norm="clip", data_norm=model.data_norm_)
        return cls(weights, 0.0, row_map, limits, model._weight_noise)

    def used(self, entries: np.ndarray, at: np.ndarray, sq_norms: np.ndarray) -> np.ndarray:
        """What weights act on, (m, k + 1), of rows with entries (m, k) at places `at`.

        Other entries count as zeros, but for what they add to the squares of the norms of rows.
        """
        factors = np.ones(len(entries))
        if self.row_map is not None:
            factors = self.row_map.factors(np.sqrt(sq_norms)[:, None])[0]
        if self.limits is not None:
            entries = np.clip(entries, self.limits[0][at], self.limits[1][at])
        last = np.full((len(entries), 1), self.bias)
        return factors[:, None] * np.concatenate([entries, last], axis=1)

    def scores(self, used: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Scores (m, c) of what :meth:`used` has made of entries at places `at`."""
        return used @ self.weights[np.append(at, len(self.weights) - 1)]

    def std(self, used: np.ndarray, at: np.ndarray) -> np.ndarray | None:
        """Standard deviation (m, c) that noise leaves in such scores, where it is known."""
        if self.noise is None:
            return None
        if self.bias:
            at = np.append(at, len(self.weights) - 1)
        else:
            used = used[:, :-1]
        return self.noise.std(used, at)
