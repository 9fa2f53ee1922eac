"""Heads of persons whose targets are two classes: logistic models of their own rows.

A head is the mode of a logistic model with a normal prior, beside the scores of the shared model.
The mode is found by few steps of least squares. A bound on the loss makes each step safe (Jaakkola,
Jordan, 2000), so that the mode is finite for any rows, even if a person has one class alone.
Laplace's approximation at the mode gives the likelihood of the labels under a prior, and the
prediction of a row by the person's other rows.

Design note. A score with large uncertainty must not be predicted with as much confidence as one
that is well known. Scores are therefore shrunk by their uncertainty (MacKay, 1992), by one factor
for all of a prior's model of a person, so that the model stays linear. Left-out errors are
expressed as deviance residuals, whose squares are twice the loss: code that compares squared errors
then compares losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._core.gradients.losses import StandardLogLoss
from dpsubspace._core.solvers.heads import (
    PENALTIES,
    Design,
    OwnModel,
    Ridge,
    in_own_units,
    penalised,
)
from dpsubspace._core.statistics.persons import PersonChunk, products

# Origin of these numbers: chosen by hand on the persons that benchmarks/repro_personal.py makes. No
# script varies them.

# Steps to the mode. Their number is fixed, since a number that follows from rows reveals rows.
_STEPS = 10

# Least second derivative of the loss by log-odds that Laplace's approximation uses.
_LEAST_CURVATURE = 1e-3

# Effect of the variance of log-odds on probabilities: that of normal log-odds (MacKay, 1992).
_SURE = math.pi / 8

# Share of that effect by which a model is shrunk. The mode of log-odds is nearer to zero than their
# mean, which makes up for the rest.
_UNSURE = 0.25

# Least share of their variance by which heads are assumed to move probabilities.
_LEAST_MOVED = 0.2

# Variance of the intercept of an own model, in standardised scores.
_OWN_INTERCEPT = 4.0


@dataclass(frozen=True)
class TwoClasses:
    """Labels 0 and 1, standardised, with a logistic model."""

    loss: StandardLogLoss

    @property
    def origin(self) -> float:
        return self.loss.origin * self.loss.scale

    def units(self, scale: float, location: float) -> tuple[float, float]:
        return 1 / self.loss.scale, self.loss.origin

    def moved(self, chunk: PersonChunk, scores: np.ndarray) -> PersonChunk:
        return replace(chunk, shared=chunk.shared + scores)

    def penalised(self, chunk: PersonChunk, design: Design) -> Ridge:
        """Return the mode of the coefficients, with Laplace's approximation there.

        In the last step a row has the leverage h and the weight w. Without the row its score has
        the variance ``h / (w (1 - h))``, and is lower by that variance times the derivative of its
        loss.
        """
        B = design.dense()
        there = np.arange(B.shape[1]) < chunk.sizes[:, None]
        coef, inside = self._mode(chunk, B, there)
        scores = chunk.shared + inside
        weights = np.maximum(self.loss.curvatures(scores), _LEAST_CURVATURE / self.loss.scale**2)
        roots = np.sqrt(np.where(there, weights, 0.0))
        last = penalised(np.zeros_like(roots), Design(roots[:, :, None] * B))
        unsure = np.where(there, (1 - last.own) / (weights * np.maximum(last.own, 1e-9)), 0.0)
        alone = scores + unsure * self.loss.residual(chunk.targets, scores)
        loss = np.where(there, self.loss.values(chunk.targets, scores), 0.0).sum(axis=1)
        factors = self._sure(unsure)
        factor = self._sure(_UNSURE * unsure.sum(axis=1) / chunk.sizes)
        left_out = (self.origin + alone) * factors - self.origin
        return Ridge(
            coef * factor[:, None],
            self._deviances(chunk, left_out, there),
            2 * loss + products(coef, coef),
            last.systems,
            last.own,
            factor,
        )

    def _mode(
        self, chunk: PersonChunk, B: np.ndarray, there: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (u, f), and the scores (u, m) that they add to the shared ones.

        Each step minimises a parabola that touches the loss at the step's start and is above it
        elsewhere: the loss never grows.
        """
        inside = np.zeros(B.shape[:2])
        coef = np.zeros((len(B), B.shape[2]))
        for _ in range(_STEPS):
            scores = chunk.shared + inside
            half = np.maximum(np.abs(self.loss.log_odds(scores)) / 2, 1e-6)
            roots = np.sqrt(np.tanh(half) / half) / (2 * self.loss.scale)
            slopes = self.loss.residual(chunk.targets, scores)
            targets = np.where(there, roots * inside - slopes / roots, 0.0)
            weighted = Design(np.where(there, roots, 0.0)[:, :, None] * B)
            coef = penalised(targets, weighted).coef
            inside = np.matmul(B, coef[:, :, None])[:, :, 0]
        return coef, inside

    def _sure(self, variances: np.ndarray) -> np.ndarray:
        """Return the shrinking factors of scores with such variances."""
        return 1 / np.sqrt(1 + _SURE * variances / self.loss.scale**2)

    def _deviances(self, chunk: PersonChunk, scores: np.ndarray, there: np.ndarray) -> np.ndarray:
        values = np.where(there, self.loss.values(chunk.targets, scores), 0.0)
        return np.sign(chunk.targets) * np.sqrt(2 * values)

    def log_density(self, found: Ridge, rows: np.ndarray, beside: np.ndarray) -> np.ndarray:
        """Return the density; the logistic model knows the noise of labels: there is no other."""
        return -(found.fit + found.volume) / 2

    def own_model(self, chunk: PersonChunk, *, intercept: bool) -> OwnModel:
        """Return a logistic ridge regression on rows standardised by the own rows.

        Among all penalties, the one with the least leave-one-out loss is chosen.
        """
        own = in_own_units(chunk, intercept=intercept)
        u, m, d = own.rows.shape
        constant = chunk.ones[:, :, None] * math.sqrt(_OWN_INTERCEPT)
        best = OwnModel(np.zeros((u, d)), np.zeros(u), np.zeros((u, m)))
        least = np.full(u, np.inf)
        for penalty in PENALTIES:
            unit = 1 / np.sqrt(penalty * chunk.sizes)
            found = self.penalised(
                chunk, Design(np.concatenate([constant, unit[:, None, None] * own.rows], axis=2))
            )
            loss = products(found.left_out, found.left_out)
            level = math.sqrt(_OWN_INTERCEPT) * found.coef[:, 0]
            level += (found.stretch - 1) * self.origin
            wins = loss < least
            least = np.where(wins, loss, least)
            one = OwnModel(unit[:, None] * found.coef[:, 1:], level, found.left_out)
            best = OwnModel(
                *(
                    np.where(wins.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                    for new, old in zip(one, best, strict=True)
                )
            )
        coef = best.coef * own.factors
        constant = best.constant - products(coef, own.means)
        with np.errstate(over="ignore"):
            coef = coef / own.largest
        return OwnModel(np.where(np.isfinite(coef), coef, 0.0), constant, best.left_out)

    def behind(self, seen: float, shared: float, noise: float) -> tuple[float, float]:
        """Return the noise variance, and a factor of the variance of heads that residuals show.

        Heads move probabilities less, the more all scores vary: by the root of ``1 + c v``, for
        normal scores of variance v (MacKay, 1992). Standardised labels have the noise variance 1 in
        standardised scores.
        """
        c = _SURE / self.loss.scale**2
        return 1.0, (1 + c * shared) / max(1 - c * seen, _LEAST_MOVED)
