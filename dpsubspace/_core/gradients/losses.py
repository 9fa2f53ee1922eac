"""Losses of linear models: stateless objects with the same members.

Targets are class indices (n,) for losses of classifiers, and for losses of regressors the targets
of the data after a transformation by the loss, (n, n_outputs). Scores are (n, n_outputs). To add a
loss, add one frozen dataclass and one row of :data:`CLASSIFIER_LOSSES` or :data:`REGRESSOR_LOSSES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpsubspace._core.ground.arrays import (
    Array,
    as_like,
    at_least,
    at_most,
    namespace,
    record_index,
)
from dpsubspace._core.ground.auto import many_classes


class Loss(Protocol):
    """Loss of one record by its score, its derivative, and the prediction for a score."""

    curvature: float
    """Bound on the largest eigenvalue of the second derivative by scores; inf where it jumps."""

    probabilistic: bool = False
    """Whether `predict` gives class probabilities."""

    largest_step: float = math.inf
    """Bound on the step size for rows of norm 1; inf where bounded residuals hold it."""

    adds_to: str = "score"
    """What a column of the data adds to, in words."""

    @property
    def size(self) -> float:
        """Size of residuals that the clip norm should let through."""
        return 1.0

    def walk(self, n_outputs: int) -> float:
        """Noise in the weights that training bears (see :mod:`dpsubspace._core.ground.auto`)."""
        ...

    @property
    def smooth(self) -> tuple[Loss, ...]:
        """Losses without kinks to minimise one after the other; the last approximates this one."""
        return (self,)

    def n_outputs(self, n_targets: int) -> int:
        """Number of columns of scores for this many classes (or columns of targets)."""
        return n_targets

    def value(self, y: Array, scores: Array) -> Array:
        """Loss of each record, (n,)."""
        ...

    def residual(self, y: Array, scores: Array) -> Array:
        """Derivative of each record's loss by its scores, (n, n_outputs), a new array."""
        ...

    def predict(self, scores: Array) -> Array:
        """Class probabilities (n, n_classes), or predictions of numbers; otherwise the scores."""
        return scores


class _OfClasses(Loss, Protocol):
    def n_outputs(self, n_targets: int) -> int:
        return 1 if n_targets == 2 else n_targets


class NumberLoss(Loss, Protocol):
    """Loss of numbers, with a transformation of targets and units of scores.

    A model holds its scores in the units of the data: times the slope and plus the constant that
    `units` returns. `predict` turns these into predictions, including the inverse of the link.
    """

    adds_to: str = "change"

    def targets(self, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Targets, clipped to their range, in the form that `value` and `residual` take."""
        return on_unit(values, low, high)

    def units(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope and constant of each target, by its range."""
        return (high - low) / 2, (high + low) / 2


@dataclass(frozen=True)
class LogLoss(_OfClasses):
    """Negative log-likelihood: multinomial logistic, with one column for two classes.

    The residual is ``p - onehot(y)``, of norm below sqrt(2) (below 1 for two classes).
    """

    curvature = 0.5
    probabilistic = True
    adds_to = "log-odds"

    def walk(self, n_outputs: int) -> float:
        return 7.5 * many_classes(n_outputs)

    def value(self, y: Array, scores: Array) -> Array:
        xp = namespace(scores)
        if scores.shape[1] == 1:
            margin = _binary_margin(xp, y, scores)
            return xp.log1p(xp.exp(-xp.abs(margin))) + at_least(-margin, 0.0)
        top = xp.max(scores, axis=1)
        log_total = top + xp.log(xp.sum(xp.exp(scores - top[:, None]), axis=1))
        return log_total - _of_class(scores, y)

    def residual(self, y: Array, scores: Array) -> Array:
        xp = namespace(scores)
        if scores.shape[1] == 1:
            # p - y = tanh(z / 2) / 2 - (y - 1/2): few passes, and never too large.
            residual = xp.tanh(0.5 * scores)
            residual *= 0.5
            residual -= xp.astype(y, scores.dtype, copy=False)[:, None] - 0.5
            return residual
        return _less_onehot(_softmax(xp, scores), y)

    def predict(self, scores: Array) -> Array:
        xp = namespace(scores)
        if scores.shape[1] == 1:
            positive = _sigmoid(xp, scores)
            return xp.concat([1 - positive, positive], axis=1)
        return _softmax(xp, scores)


@dataclass(frozen=True)
class Rescaled:
    """Residuals of a loss at scores times a factor plus a shift of each column."""

    loss: Loss
    factor: float
    shift: np.ndarray  # (n_outputs,)

    @property
    def curvature(self) -> float:
        return self.factor * self.loss.curvature

    def residual(self, y: Array, scores: Array) -> Array:
        return self.loss.residual(y, self.factor * scores + as_like(self.shift, scores))


@dataclass(frozen=True)
class Hinge(_OfClasses):
    """Margin loss of support vector machines; for more than two classes Crammer and Singer's.

    ``max(0, 1 - margin)`` with the margin ``y z`` of two classes, or ``z_y`` less the highest
    other score. The residual is 0, or of norm 1 (two classes) or sqrt(2).
    """

    curvature = math.inf

    def walk(self, n_outputs: int) -> float:
        return 3.0 * many_classes(n_outputs)

    @property
    def smooth(self) -> tuple[Loss, ...]:
        """Losses with the kinks of this one rounded off, less and less."""
        return tuple(SoftHinge(temperature) for temperature in (0.1, 0.01, 0.001))

    def value(self, y: Array, scores: Array) -> Array:
        return at_least(1 - self._margin_and_rival(y, scores)[0], 0.0)

    def residual(self, y: Array, scores: Array) -> Array:
        """Within the margin, the onehot of the best rival less that of y; otherwise 0."""
        xp = namespace(scores)
        margin, rival = self._margin_and_rival(y, scores)
        inside = xp.astype(margin < 1, scores.dtype)[:, None]
        if scores.shape[1] == 1:
            return inside * (1 - 2 * xp.astype(y, scores.dtype, copy=False))[:, None]
        out = xp.zeros_like(scores)
        out[record_index(y), rival] = 1
        return inside * _less_onehot(out, y)

    def _margin_and_rival(self, y: Array, scores: Array) -> tuple[Array, Array | None]:
        xp = namespace(scores)
        if scores.shape[1] == 1:
            return _binary_margin(xp, y, scores), None
        own = _of_class(scores, y)
        others = xp.where(_onehot(xp, y, scores) > 0, xp.full_like(scores, -xp.inf), scores)
        return own - xp.max(others, axis=1), xp.argmax(others, axis=1)


@dataclass(frozen=True)
class SoftHinge(Hinge):
    """Hinge loss with rounded kinks, above it by at most ``temperature * log(n_classes)``.

    The hinge is the maximum over the classes of their scores less the score of the right class,
    where the margin is first subtracted from the right class. The log loss of these numbers over
    the temperature has the log of a sum of exponentials in place of the maximum.
    """

    temperature: float = 0.001  # In units of the margin

    @property
    def smooth(self) -> tuple[Loss, ...]:
        return (self,)

    def value(self, y: Array, scores: Array) -> Array:
        return self.temperature * LogLoss().value(y, self._left(y, scores))

    def residual(self, y: Array, scores: Array) -> Array:
        return LogLoss().residual(y, self._left(y, scores))

    def _left(self, y: Array, scores: Array) -> Array:
        xp = namespace(scores)
        if scores.shape[1] == 1:
            left = scores - (2 * xp.astype(y, scores.dtype, copy=False) - 1)[:, None]
        else:
            left = _less_onehot(xp.asarray(scores, copy=True), y)
        return left / self.temperature


@dataclass(frozen=True)
class Squared(NumberLoss):
    """Half the squared error, summed over columns of targets. Residuals are unbounded."""

    curvature = 1.0
    largest_step = 1.3

    @property
    def size(self) -> float:
        return 0.7

    def walk(self, n_outputs: int) -> float:
        return 0.9

    def value(self, y: Array, scores: Array) -> Array:
        return namespace(scores).sum((scores - y) ** 2, axis=1) / 2

    def residual(self, y: Array, scores: Array) -> Array:
        return scores - y


@dataclass(frozen=True)
class Huber(NumberLoss):
    """Squared error that grows linearly beyond `threshold`, column by column."""

    threshold: float = 0.1  # In units of the scaled targets, whose range is [-1, 1]
    curvature = 1.0
    largest_step = 1.3

    def walk(self, n_outputs: int) -> float:
        return 0.9

    @property
    def size(self) -> float:
        return self.threshold

    def value(self, y: Array, scores: Array) -> Array:
        """e^2 / 2 up to the threshold h, h (|e| - h / 2) beyond."""
        xp = namespace(scores)
        error = xp.abs(scores - y)
        small = at_most(error, self.threshold)
        return xp.sum(small * (error - small / 2), axis=1)

    def residual(self, y: Array, scores: Array) -> Array:
        return at_least(at_most(scores - y, self.threshold), -self.threshold)


@dataclass(frozen=True)
class StandardLogLoss(NumberLoss):
    """Negative log-likelihood of labels 0 and 1 that were standardised, with scores in their units.

    From labels a public or released `share` p of ones is subtracted, and the result is divided by
    ``sqrt(p (1 - p))``. A score of 0 represents the probability p. Residuals there are minus the
    standardised labels, and the curvature is 1: defaults that were chosen for the squared error of
    standardised targets fit this loss too.
    """

    share: float  # Share of ones: strictly between 0 and 1
    probabilistic = True
    adds_to = "log-odds"

    @property
    def scale(self) -> float:
        return math.sqrt(self.share * (1 - self.share))

    @property
    def origin(self) -> float:
        """Log-odds of a score of 0."""
        return math.log(self.share / (1 - self.share))

    @property
    def curvature(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 / (4 * self.scale**2)

    def walk(self, n_outputs: int) -> float:
        return 0.9

    def log_odds(self, scores: Array) -> Array:
        return self.origin + scores / self.scale

    def value(self, y: Array, scores: Array) -> Array:
        return namespace(scores).sum(self.values(y, scores), axis=1)

    def values(self, y: Array, scores: Array) -> Array:
        """Loss of each entry."""
        xp, odds = namespace(scores), self.log_odds(scores)
        margin = xp.where(y > 0, odds, -odds)
        return xp.log1p(xp.exp(-xp.abs(margin))) + at_least(-margin, 0.0)

    def residual(self, y: Array, scores: Array) -> Array:
        xp = namespace(scores)
        return (_sigmoid(xp, self.log_odds(scores)) - self.share) / self.scale - y

    def curvatures(self, scores: Array) -> Array:
        """Second derivative of each entry by its score."""
        xp, odds = namespace(scores), self.log_odds(scores)
        return _sigmoid(xp, odds) * _sigmoid(xp, -odds) / self.scale**2

    def predict(self, scores: Array) -> Array:
        return _sigmoid(namespace(scores), self.log_odds(scores))


@dataclass(frozen=True)
class BesideScores(NumberLoss):
    """A loss of scores that are added to known ones, which are the last columns of the targets."""

    loss: Any  # Loss of the sums

    @property
    def curvature(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.loss.curvature

    def walk(self, n_outputs: int) -> float:
        return self.loss.walk(n_outputs)

    def value(self, y: Array, scores: Array) -> Array:
        c = scores.shape[1]
        return self.loss.value(y[:, :c], scores + y[:, c:])

    def residual(self, y: Array, scores: Array) -> Array:
        c = scores.shape[1]
        return self.loss.residual(y[:, :c], scores + y[:, c:])


def on_unit(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Clip numbers to a range and map the range to [-1, 1]."""
    return 2 * (np.clip(values, low, high) - low) / (high - low) - 1


def _binary_margin(xp, y: Array, scores: Array) -> Array:
    return xp.where(y == 1, scores[:, 0], -scores[:, 0])


def _of_class(scores: Array, y: Array) -> Array:
    return scores[record_index(y), y]


def _less_onehot(out: Array, y: Array) -> Array:
    """Subtract 1, in place, from `out` in the column of each record's class."""
    if isinstance(out, np.ndarray) and out.flags.f_contiguous:  # by one index, twice as fast
        places = y * np.intp(len(out))
        places += np.arange(len(out))
        out.T.reshape(-1)[places] -= 1
    else:
        out[record_index(y), y] -= 1
    return out


def _onehot(xp, y: Array, scores: Array) -> Array:
    return -_less_onehot(xp.zeros_like(scores), y)


def _sigmoid(xp, z: Array) -> Array:
    small = xp.exp(-xp.abs(z))
    return xp.where(z >= 0, 1 / (1 + small), small / (1 + small))


def _softmax(xp, z: Array) -> Array:
    """Rows of exp(z) over their sums, without overflow; always a new array."""
    out = xp.exp(z - xp.max(z, axis=1)[:, None])
    out *= (1 / xp.sum(out, axis=1))[:, None]
    return out


CLASSIFIER_LOSSES: dict[str, Loss] = {"log_loss": LogLoss(), "hinge": Hinge()}
REGRESSOR_LOSSES: dict[str, NumberLoss] = {"squared_error": Squared(), "huber": Huber()}
