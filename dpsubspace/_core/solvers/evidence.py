"""Weights from few rows without effects of chance, estimated from the weights themselves.

Design note. Noise of privacy hides the effect of single rows on a model of a table with many
features. If there is little noise, least squares would fit the rows by chance, and more budget
would make a worse model. Entries come in groups, such as straight lines, curves and products of two
numbers. The weights of a group are assumed to be normal with a variance of their own: the one that
makes the estimated weights most likely (MacKay, 1992). Everything here is made of released numbers
and public ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Largest number of rounds in which variances follow from weights and weights from variances, and
# the change of the weights, as a share, that requires one more round.
_ROUNDS, _SETTLED = 30, 3e-3

# Largest eigenvalue of a second moment of p columns, over p times the largest, that is rounding.
_SINGULAR = 1e-12

# Least remaining share of the variance of a target, least share of all rows that weights leave
# free, and least variance by chance, relative to that of noise, that is corrected for.
_LEFT, _FREE, _SEEN = 1e-6, 1e-2, 1e-2


@dataclass(frozen=True)
class WhiteWeights:
    """Estimated weights of standardised targets, in coordinates where rows are white."""

    mixing: np.ndarray  # (p, q): maps these coordinates to entries
    unmixing: np.ndarray  # (q, p): maps entries to these coordinates
    found: np.ndarray  # (q, c): weights before any shrinking
    noise: np.ndarray  # (q, c): variance of their privacy noise
    curvature: np.ndarray  # (q,): second moments of the coordinates, 1 where rows are white
    # (q,): their variance by chance, times the number of rows over the unexplained part of targets.
    chance: np.ndarray
    # (c,): share of the variance of targets that steps have explained; None if the curvature
    # determines it exactly.
    explained: np.ndarray | None = None

    @classmethod
    def of_moment(
        cls, values: np.ndarray, vectors: np.ndarray, shared: np.ndarray, noise: np.ndarray
    ) -> WhiteWeights:
        """Return least-squares weights by eigenvalues (p,) and eigenvectors (p, p) of a moment.

        `shared` (p, c) are means of products of rows and targets along the eigenvectors, with noise
        of the variances `noise`, (c,). Directions that rows do not have are left out.
        """
        known = values > _SINGULAR * len(values) * values[-1]
        values, vectors, shared = values[known], vectors[:, known], shared[known]
        root, one = np.sqrt(values), np.ones(len(values))
        mixing, found = vectors / root, shared / root[:, None]
        return cls(mixing, (vectors * root).T, found, noise / values[:, None], one, one)


def without_chance(
    white: WhiteWeights, shrunk: np.ndarray, groups: np.ndarray, n_samples: int
) -> np.ndarray:
    """Return weights (q, c) of white coordinates without the effects of chance.

    `shrunk` (q, c) are weights from which the effect of noise was removed already. As far as chance
    hides weights, and not noise, their posterior mean replaces them. `groups` (p,) are the numbers
    of the groups of entries.
    """
    kept = shrunk.copy()
    for k in range(shrunk.shape[1]):
        noise = white.noise[:, k]
        if np.any(white.chance / n_samples > _SEEN * noise):
            mean, chance = _likely(white, k, groups, n_samples)
            kept[:, k] += chance / (noise + chance) * (mean - shrunk[:, k])
    return kept


def _likely(
    white: WhiteWeights, k: int, groups: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean weights (q,) of target `k` by the likeliest variances, and chance variances.

    Each round counts the weights that the rows decide, and not the variances: so many numbers have
    fitted rows by chance. The unexplained part of the target follows from that count and from the
    explained part.
    """
    found, noise = white.found[:, k], white.noise[:, k]
    sizes, left, size = np.bincount(groups), 1.0, white.curvature @ white.unmixing**2
    variances = np.full(len(sizes), 0.5 / float(size.sum()))
    mean, chance = np.zeros_like(found), white.chance / n
    for _ in range(_ROUNDS):
        before, prior = mean, variances[groups]
        chance = white.chance * left / n
        weights, unsure = posterior(white.unmixing, found, noise + chance, prior)
        mean = white.unmixing @ weights
        decided = np.maximum(np.bincount(groups, 1 - unsure), 1e-9)
        variances = np.maximum(np.bincount(groups, weights**2) / decided, 1e-300)
        share = white.curvature * float(decided.sum()) / len(found)
        if white.explained is None:
            explained = float((white.curvature * mean) @ (2 * found - mean)) - float(share @ noise)
        else:
            explained = float(white.explained[k])
        left = (1 - explained) / max(1 - float(share @ white.chance) / n, _FREE)
        left = min(max(left, _LEFT), 1.0)
        moved, whole = (float(white.curvature @ each**2) for each in (mean - before, mean))
        if moved <= _SETTLED**2 * whole:
            break
    return mean, chance


def posterior(
    unmixing: np.ndarray, found: np.ndarray, noise: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of normal weights (p,) with variances `prior`, and the variance shares left.

    `found` (q,) are ``unmixing @ weights`` with noise of the variances `noise`.
    """
    rows = unmixing / np.sqrt(noise)[:, None] * np.sqrt(prior)
    precision = rows.T @ rows
    precision[np.diag_indices_from(precision)] += 1.0
    left = np.linalg.inv(precision)
    return np.sqrt(prior) * (left @ (rows.T @ (found / np.sqrt(noise)))), np.diag(left)
