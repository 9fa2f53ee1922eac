"""Moves of weights by noisy slopes of scores. All inputs are released or public."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Deviations of noise that may remain in a score, over the root of the logarithm of its length: of
# many directions, some have as much noise.
_FAR = 1.0


@dataclass(frozen=True)
class Slope:
    """A released mean of ``m' z z^T``, and half of the noise variance of its diagonal."""

    matrix: np.ndarray
    noise: float

    def solved(self, score: np.ndarray, variance: float) -> tuple[np.ndarray, float]:
        """Return the move of weights to a score of 0, shrunk for noise, and its mean square.

        In the basis of the eigenvectors the score is ``a b``, for the eigenvalue a and the move b,
        with noise of the `variance` and that of the matrix times moves. Moves under a normal prior
        of each variance in a grid are averaged by the likelihood of the score. The second result is
        the mean squared length of the move, and shows how much the noise of the matrix counts. One
        prior for all directions would hide one direction with a large move among many with small
        ones: the rest of the score is at most its noise in each (Efron, Morris, 1972), unless the
        eigenvalue is below the largest that noise has, whose square is ``4 p`` times its variance.
        Noise makes small eigenvalues smaller, and with such steps weights would swing ever wider.
        """
        values, vectors = np.linalg.eigh(self.matrix)
        values, seen, p = np.maximum(values, 0.0), vectors.T @ score, len(score)
        prior = np.exp(np.linspace(-12, 3, 46))[:, None]
        noise = np.maximum(variance + self.noise * prior * (p + 1), 1e-300)
        total = prior * values**2 + noise
        log = -0.5 * (np.log(total) + seen**2 / total).sum(axis=1)
        chances = np.exp(log - log.max())
        chances /= chances.sum()
        moves = prior * values / total * seen
        square = (moves**2 + prior * noise / total).sum(axis=1)
        move, square = chances @ moves, float(chances @ square)
        left = seen - values * move
        room = _FAR * math.sqrt(math.log(p) * (variance + self.noise * square))
        more = np.sign(left) * np.maximum(np.abs(left) - room, 0.0)
        move = move + more * values / np.maximum(values**2 + 4 * self.noise * (p + 1), 1e-300)
        return vectors @ move, square

    def squared_moves(
        self, score: np.ndarray, variance: float, moment: np.ndarray, spread: np.ndarray
    ) -> float:
        """Return about the mean of ``(z d)^2`` over rows z, for the move d to a score of 0.

        Moves have a normal prior with the covariance `spread`, so that moves that the score does
        not inform about count as well.
        """
        within = self.matrix @ spread @ self.matrix + (variance + self.noise) * np.eye(len(score))
        gain = spread @ self.matrix @ np.linalg.inv(within)
        move, left = gain @ score, spread - gain @ self.matrix @ spread
        values, vectors = np.linalg.eigh(moment)
        moment = (vectors * np.maximum(values, math.sqrt(self.noise))) @ vectors.T
        return max(0.0, float(move @ moment @ move + np.trace(moment @ left)))
