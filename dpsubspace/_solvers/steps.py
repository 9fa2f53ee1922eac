"""Steps of training: which sums of gradients are released and how they become an update.

A step is added here and nowhere else. It clips and sums; :func:`~dpsubspace._solvers.descent.train`
has the sums released, so that a step can neither forget it nor add it twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsubspace._array import EPS, Array, at_least, namespace, to_numpy
from dpsubspace._gradients.clipping import (
    PerExampleGradients,
    clipped_sum,
    in_parts,
    shrink_factors,
)
from dpsubspace._public.subspace import Embedded, Subspace
from dpsubspace._release.mechanisms import BoundedSum, vector_sum

__all__ = ["FlatStep", "GEPStep", "MirrorStep", "RecordedStep"]

# Least length of an embedding that is reported, over that of its gradient.
_EMBEDDING_FLOOR = 0.05


@dataclass(frozen=True, kw_only=True)
class FlatStep:
    """DP-SGD (Abadi et al., 2016): one clipped sum of gradients.

    Parameters
    ----------
    clip_norm : float
        Bound on one gradient.
    budget_shares : tuple of float
        One sum, one share.
    """

    clip_norm: float
    budget_shares: tuple[float, ...] = (1.0,)

    def begin(self, params: Array, t: int) -> None:
        """Nothing public is needed."""

    def sums(self, state: None, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        """Return the clipped sum."""
        return (clipped_sum(grads, self.clip_norm),)

    def combine(self, state: None, noisy: tuple[Array, ...]) -> Array:
        """Return the noisy sum itself."""
        return noisy[0]

    def noise_size(self, n_params: int) -> float:
        """The same in every direction."""
        return math.sqrt(n_params)


@dataclass(frozen=True, kw_only=True)
class RecordedStep(FlatStep):
    """The same, which keeps the points that it was taken at and what was released there."""

    points: list[np.ndarray] = field(default_factory=list)
    gradients: list[np.ndarray] = field(default_factory=list)

    def begin(self, params: Array, t: int) -> None:
        """Keep the point."""
        self.points.append(to_numpy(params))

    def combine(self, state: None, noisy: tuple[Array, ...]) -> Array:
        """Keep the noisy sum, and return it."""
        self.gradients.append(to_numpy(noisy[0]))
        return noisy[0]


@dataclass(frozen=True, kw_only=True)
class GEPStep:
    """Gradient embedding perturbation (Yu, Zhang, Chen, Liu, 2021).

    A gradient g is split into its embedding ``E = B g``, k coordinates on the top directions B
    of public gradients at the same parameters, and its residual ``g - B' E``. What the
    two add up to is released with noise in proportion to how long each may be.

    Parameters
    ----------
    subspace : callable
        Directions at given parameters, for a step of given number.
    clip_norm : float
        Bound on an embedding, of all groups together.
    residual_norm : float
        Bound on a residual.
    residual : bool
        False releases embeddings only (B-GEP).
    embedding_share : float
        Share of the budget (of mu^2) of the embedding.
    n_samples : int
        Number of records, public.
    n_components : int
        Number of directions, for the size of the noise.

    Notes
    -----
    Proof of the bounds. B depends on public rows, public or drawn labels and on parameters
    that earlier releases determine: given those it is a constant. A record's parts are
    functions of its own gradient. ``min(1, S1 / |E|) E`` has norm at most S1 and
    ``min(1, S2 / |g - B'E|) (g - B'E)`` at most S2; removing the record moves the two sums by
    that, replacing it by twice that. With shares s and 1 - s of mu^2 the two are one
    Gaussian of the step's multiplier, since they are released on one batch.

    Norms are never rounded down. That of the residual is ``|g|^2 - |E|^2`` plus what
    rounding can hide (:class:`~dpsubspace._public.subspace.Subspace`) and at least a floor, a
    public share of ``|g|``: residuals are summed as whole gradients less a lift of summed
    embeddings, whose terms are up to ``1 / floor`` times as long, and round like that. A
    floor clips a little more where a residual is nearly nothing, which costs no privacy.

    Embeddings with B not quite orthonormal are as good: nothing above needs it to be.
    """

    subspace: Callable[[Array, int], Subspace]
    clip_norm: float
    residual_norm: float
    residual: bool = True
    embedding_share: float = 0.5
    n_samples: int
    n_components: int

    def __getstate__(self) -> dict[str, Any]:
        # For rows elsewhere directions are found here, and sent with the state of a step.
        return {**vars(self), "subspace": None}

    @property
    def budget_shares(self) -> tuple[float, ...]:
        """One sum, or embedding and residual."""
        if self.residual:
            return (self.embedding_share, 1 - self.embedding_share)
        return (1.0,)

    def begin(self, params: Array, t: int) -> Subspace:
        """Return the directions at `params`."""
        return self.subspace(params, t)

    def sums(self, state: Subspace, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        """Sums of clipped embeddings and residuals."""
        parts = _Parts.of(state, grads)
        weights = shrink_factors(parts.lengths, self.clip_norm) * parts.counts
        embedding = vector_sum(
            parts.embedded.weighted_sum(weights),
            self.clip_norm,
            (grads.wide_slack() + self._regrouped(state)) / _EMBEDDING_FLOOR,
        )
        if not self.residual:
            return (embedding,)
        weights = shrink_factors(parts.rests, self.residual_norm) * parts.counts
        residual = parts.residual_sum(state, grads, weights)
        return embedding, vector_sum(residual, self.residual_norm, self._slack(state, grads))

    def combine(self, state: Subspace, noisy: tuple[Array, ...]) -> Array:
        """Lift the embedding; add the residual without the noise it has along the directions."""
        if not self.residual:
            return state.lift(noisy[0])
        embedding, residual = noisy
        return residual + state.lift(embedding - state.coordinates(residual))

    def noise_size(self, n_params: int) -> float:
        """That of the embedding, and off the directions that of the residual."""
        inside, outside = float(self.n_components), float(max(0, n_params - self.n_components))
        if not self.residual:
            return math.sqrt(inside)
        ratio = self.residual_norm / self.clip_norm if self.clip_norm < math.inf else 1.0
        inside, outside = inside / self.embedding_share, outside / (1 - self.embedding_share)
        return math.sqrt(inside + ratio**2 * outside)

    def _regrouped(self, state: Subspace) -> float:
        """What rounding of all coordinates can do to a sum of them, in units of a gradient.

        A batch without one record has the others elsewhere, where products may round otherwise.
        """
        return 2 * self.n_samples * state.rounding

    def _slack(self, state: Subspace, grads: PerExampleGradients) -> float:
        """Slack of a sum of residuals, with that of the lift of their embeddings."""
        return (grads.slack() + 2 * self._regrouped(state)) / _residual_floor(grads)


@dataclass(frozen=True)
class _Parts:
    """Embeddings of gradients, and how long they and the residuals are."""

    embedded: Embedded
    lengths: Array  # of embeddings, never too small
    rests: Array  # of residuals, likewise
    counts: Array  # 0 for rows that do not count, else the part of its record that each is

    @classmethod
    def of(cls, space: Subspace, grads: PerExampleGradients) -> _Parts:
        norms, embedded = grads.norms(), space.embed(grads)
        xp, squares = namespace(norms), embedded.squares()
        norms = xp.astype(norms, xp.float64)
        counts = xp.isfinite(norms) & (norms < 1e140) & xp.isfinite(squares)
        norms, squares = (xp.where(counts, x, xp.zeros_like(x)) for x in (norms, squares))
        lengths = xp.sqrt(squares) * (1 + (space.n_components + 8) * EPS)
        rests = xp.sqrt(at_least(norms**2 - squares, 0.0) + space.margin * norms**2)
        return cls(
            embedded,
            xp.maximum(lengths, _EMBEDDING_FLOOR * norms),
            xp.maximum(rests * (1 + 8 * EPS), _residual_floor(grads) * norms),
            in_parts(grads, xp.astype(counts, xp.float64)),
        )

    def residual_sum(self, space: Subspace, grads: PerExampleGradients, weights: Array) -> Array:
        """Weighted sum of the residuals."""
        return grads.weighted_sum(weights) - space.lift(self.embedded.weighted_sum(weights))


def _residual_floor(grads: PerExampleGradients) -> float:
    """The same for a residual: so that its rounding adds no more than about a hundredth."""
    return min(0.25, max(0.01, 100 * grads.slack()))


@dataclass(frozen=True, kw_only=True)
class MirrorStep:
    """A step mixed with the gradient of labelled public rows (PDA-DPMD).

    The first-order form of mirror descent with the public loss for a mirror map (Amid et
    al., 2022): ``a_t g + (1 - a_t) g_public`` with ``a_t = cos(pi t / (2 n_iter))``, so that
    private gradients decide at first and public ones at last.

    Parameters
    ----------
    step : Step
        How private gradients are released. Mixing is postprocessing and costs nothing.
    public_gradient : callable
        Mean gradient of the public rows at given parameters.
    batch_size : float
        Expected number of private records in a batch.
    n_iter : int
        Steps of the run.
    """

    step: Any
    public_gradient: Callable[[Array], Array]
    batch_size: float
    n_iter: int

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "public_gradient": None}  # that is taken here

    @property
    def budget_shares(self) -> tuple[float, ...]:
        """Return those of the step."""
        return self.step.budget_shares

    def begin(self, params: Array, t: int) -> tuple[Any, float, Array]:
        """Begin the step; the weight of its outcome and the public gradient."""
        weight = math.cos(math.pi * t / (2 * self.n_iter))
        return self.step.begin(params, t), weight, self.public_gradient(params)

    def sums(self, state: Any, grads: PerExampleGradients) -> tuple[BoundedSum, ...]:
        """Return those of the step."""
        return self.step.sums(state[0], grads)

    def combine(self, state: Any, noisy: tuple[Array, ...]) -> Array:
        """Mix what the step makes of its sums with the public gradient."""
        inner, weight, public = state
        return weight * self.step.combine(inner, noisy) + (1 - weight) * self.batch_size * public

    def noise_size(self, n_params: int) -> float:
        """Return that of the step."""
        return self.step.noise_size(n_params)
