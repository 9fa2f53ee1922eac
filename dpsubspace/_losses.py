"""Losses of linear models: stateless values with the same four methods each.

Targets are what the estimators pass: class indices (n,). Scores are (n, n_outputs). A
loss is added as one frozen dataclass and one row of :data:`LOSSES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsubspace._array import Array, namespace

__all__ = ["LOSSES", "LogLoss", "Loss"]


class Loss(Protocol):
    """Per-record loss of a score, its derivative and the prediction it stands for."""

    curvature: float
    """Bound on the largest eigenvalue of the second derivative by scores."""

    def n_outputs(self, n_classes: int) -> int:
        """Columns of scores for `n_classes` classes."""
        ...

    def value(self, y: Array, scores: Array) -> Array:
        """Loss of each record, (n,)."""
        ...

    def residual(self, y: Array, scores: Array) -> Array:
        """Derivative of each record's loss by its scores, (n, n_outputs)."""
        ...

    def predict(self, scores: Array) -> Array:
        """Class probabilities, (n, n_classes)."""
        ...


@dataclass(frozen=True)
class LogLoss:
    """Negative log-likelihood: multinomial logistic, with one column for two classes.

    The residual is ``p - onehot(y)``, of norm below sqrt(2) (below 1 for two classes).
    """

    curvature = 0.5

    def n_outputs(self, n_classes: int) -> int:
        """One column for two classes, one a class for more."""
        return 1 if n_classes == 2 else n_classes

    def value(self, y: Array, scores: Array) -> Array:
        """-log p(y), without overflow."""
        xp = namespace(scores)
        if scores.shape[1] == 1:
            z = scores[:, 0]
            margin = xp.where(y == 1, z, -z)
            return xp.log1p(xp.exp(-xp.abs(margin))) + xp.clip(-margin, min=0.0)
        top = xp.max(scores, axis=1)
        log_total = top + xp.log(xp.sum(xp.exp(scores - top[:, None]), axis=1))
        return log_total - scores[xp.arange(y.shape[0]), y]

    def residual(self, y: Array, scores: Array) -> Array:
        """Probabilities less onehot(y)."""
        xp = namespace(scores)
        if scores.shape[1] == 1:
            return _sigmoid(xp, scores) - xp.astype(y, scores.dtype)[:, None]
        out = _softmax(xp, scores)
        out[xp.arange(y.shape[0]), y] -= 1
        return out

    def predict(self, scores: Array) -> Array:
        """Class probabilities, each row adding up to 1."""
        xp = namespace(scores)
        if scores.shape[1] == 1:
            positive = _sigmoid(xp, scores)
            return xp.concat([1 - positive, positive], axis=1)
        return _softmax(xp, scores)


def _sigmoid(xp, z: Array) -> Array:
    """1 / (1 + exp(-z)) without overflow."""
    small = xp.exp(-xp.abs(z))
    return xp.where(z >= 0, 1 / (1 + small), small / (1 + small))


def _softmax(xp, z: Array) -> Array:
    """Rows of exp(z) over their sums, without overflow; always a new array."""
    out = xp.exp(z - xp.max(z, axis=1)[:, None])
    out /= xp.sum(out, axis=1)[:, None]
    return out


LOSSES: dict[str, Loss] = {"log_loss": LogLoss()}
