"""Weights of few rows without what chance has done to them, as the weights themselves tell.

Design note. Noise of privacy hides what single rows do to a model of a table with many features.
Where there is little noise, least squares would fit the rows by chance, and more budget would make
a worse model. Entries come in groups, such as straight lines, curves and products of two numbers.
Weights of a group are taken to be normal with a variance of its own, which is the one that makes
the weights that were found most likely (MacKay, 1992). Everything here is made of released numbers
and public ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Most rounds in which variances follow from weights and weights from variances, and the share of
# the weights that has to change for one more.
_ROUNDS, _SETTLED = 30, 3e-3

# Eigenvalue of a second moment of p columns, over p times the largest, up to which it is rounding.
_SINGULAR = 1e-12

# Least share of the variance of a target that is left, least share of all rows that weights leave
# free, and least variance by chance, beside that of noise, that is worth a look.
_LEFT, _FREE, _SEEN = 1e-6, 1e-2, 1e-2


@dataclass(frozen=True)
class WhiteWeights:
    """Weights of standardised targets as they were found, in coordinates where rows are white."""

    mixing: np.ndarray  # (p, q): from these coordinates to entries
    unmixing: np.ndarray  # (q, p): and back
    found: np.ndarray  # (q, c): weights, nothing of which was shrunk
    noise: np.ndarray  # (q, c): variance of the noise of privacy in them
    curvature: np.ndarray  # (q,): second moments of the coordinates, 1 where rows are white
    # (q,): variance that chance gives them, times the number of rows over what is left of targets.
    chance: np.ndarray
    # (c,): share of the variance of targets that steps have explained; None where the curvature
    # tells it exactly.
    explained: np.ndarray | None = None

    @classmethod
    def of_moment(
        cls, values: np.ndarray, vectors: np.ndarray, shared: np.ndarray, noise: np.ndarray
    ) -> WhiteWeights:
        """Those of least squares, by eigenvalues (p,) and eigenvectors (p, p) of a second moment.

        `shared` (p, c) are means of products of rows and targets along the eigenvectors, with noise
        of these variances, (c,). Directions that rows do not have are left out.
        """
        known = values > _SINGULAR * len(values) * values[-1]
        values, vectors, shared = values[known], vectors[:, known], shared[known]
        root, one = np.sqrt(values), np.ones(len(values))
        mixing, found = vectors / root, shared / root[:, None]
        return cls(mixing, (vectors * root).T, found, noise / values[:, None], one, one)


def without_chance(
    white: WhiteWeights, shrunk: np.ndarray, groups: np.ndarray, n_samples: int
) -> np.ndarray:
    """Weights (q, c) of white coordinates without what chance has done to them.

    `shrunk` (q, c) are those of which what noise has done was taken already. As far as chance is
    what hides weights, and not noise, the mean of what they may be takes their place. `groups` (p,)
    are numbers of the groups of entries.
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
    """Mean of the weights (q,) of target `k` by the likeliest variances, and variances by chance.

    A round counts the weights that the rows, and not the variances, decide: as many numbers have
    fitted rows by chance. What is left of the target follows from that and from what is explained.
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
    """Mean of weights (p,) that are normal with variances `prior`, and the share of these left.

    `found` (q,) are ``unmixing @ weights`` and noise of the variances `noise`.
    """
    rows = unmixing / np.sqrt(noise)[:, None] * np.sqrt(prior)
    precision = rows.T @ rows
    precision[np.diag_indices_from(precision)] += 1.0
    left = np.linalg.inv(precision)
    return np.sqrt(prior) * (left @ (rows.T @ (found / np.sqrt(noise)))), np.diag(left)
