"""Subspace spanned by public gradients, stored as weights of those gradients.

Gradient embedding perturbation works in coordinates of the top directions of public gradients, the
anchors. A direction is a weighted sum of anchors: coordinates of a gradient follow from its inner
products with the anchors, and neither directions nor gradients of linear models are ever formed
(:meth:`~dpsubspace._core.gradients.linear.OuterGradients.inner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import optimize
from scipy.linalg import solve_triangular

from dpsubspace._core.gradients.clipping import DenseGradients, GradientSource, PerExampleGradients
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.gradients.modules import ModuleSource
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import (
    EPS,
    Array,
    as_like,
    device,
    namespace,
    row_product,
    to_numpy,
)
from dpsubspace._core.rows.chunks import over_chunks

# Initial weights --------------------------------------------------------------------------------
# Initial weights from public rows, and checks of whether they are useful.

# Kinds of targets -----------------------------------------------------------------------------


class Targets(Protocol):
    """Properties of targets that uses of public rows need: whether they are labels or values."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        """Function of targets and scores: whether scores are right, for each record."""
        ...

    def chance(self, targets: np.ndarray) -> float:
        """Share of public rows for which a constant prediction is right."""
        ...

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        """Random targets of public rows, in the form that the loss takes."""
        ...


@dataclass(frozen=True)
class _Labels:
    """Indices of classes: scores are right where the score of the label is largest."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        def right(scores: Array, y: Array) -> Array:
            if scores.shape[1] == 1:
                return (scores[:, 0] > 0) == (y == 1)
            return namespace(scores).argmax(scores, axis=1) == y

        return right

    def chance(self, targets: np.ndarray) -> float:
        return float(np.bincount(targets).max() / len(targets))

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        return rng.integers(max(2, n_outputs), size=n)


@dataclass(frozen=True)
class _Values:
    """Scaled values: scores are right where they are nearer than the mean of public targets."""

    def right(self, targets: np.ndarray) -> Callable[[Array, Array], Array]:
        mean = targets.mean(axis=0)

        def right(scores: Array, y: Array) -> Array:
            xp, constant = namespace(scores), as_like(mean, y)
            return xp.sum((scores - y) ** 2, axis=1) < xp.sum((constant - y) ** 2, axis=1)

        return right

    def chance(self, targets: np.ndarray) -> float:
        return 0.5

    def drawn(self, rng: np.random.Generator, n: int, n_outputs: int) -> np.ndarray:
        return rng.uniform(-1, 1, size=(n, n_outputs))


LABELS, VALUES = _Labels(), _Values()


# Initial weights ------------------------------------------------------------------------------


class Fittable(Protocol):
    """Public rows with targets, and a model whose loss on them can be minimised."""

    @property
    def targets(self) -> np.ndarray:
        """Targets in the form that the loss takes."""
        ...

    def fitted(self) -> np.ndarray:
        """Weights of the model that is fitted to all rows."""
        ...

    def minimum(self, rows: np.ndarray) -> Any:
        """Description of the model that is fitted to these rows."""
        ...

    def right(
        self, found: Any, rows: np.ndarray, is_right: Callable[[Array, Array], Array]
    ) -> float:
        """Number of these rows for which that model is right."""
        ...


def held_out(
    public: Fittable, is_right: Callable[[Array, Array], Array], n_folds: int = 5
) -> float:
    """Share of public rows for which a fit to other public rows is right."""
    rows, hits = np.arange(len(public.targets)), 0.0
    for out in (rows % n_folds == i for i in range(n_folds)):
        if 0 < out.sum() < len(out):
            hits += public.right(public.minimum(rows[~out]), rows[out], is_right)
    return hits / len(rows)


# Most iterations of a fit to public rows. A module is no better after 200.
_ITERATIONS, _MODULE_ITERATIONS = 200, 50


def _least(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], size: int, iterations: int
) -> np.ndarray:
    options, start = {"maxiter": iterations}, np.zeros(size)
    return optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x


@dataclass(frozen=True)
class Labelled:
    """Labelled public rows and a linear model."""

    loss: Loss  # Loss of the scores
    dense: np.ndarray  # (m, width): features
    targets: np.ndarray  # (m,): targets in the form that the loss takes
    n_outputs: int  # Columns of scores

    def fitted(self) -> np.ndarray:
        return self._turned[1].T @ self.minimum(np.arange(len(self.targets)))

    def minimum(self, rows: np.ndarray) -> np.ndarray:
        return self._minimum(self._turned[0][rows], self.targets[rows])

    def right(
        self, found: np.ndarray, rows: np.ndarray, is_right: Callable[[Array, Array], Array]
    ) -> float:
        return float(np.sum(is_right(self._turned[0][rows] @ found, self.targets[rows])))

    @cached_property
    def _turned(self) -> tuple[np.ndarray, np.ndarray]:
        """Features in coordinates along their own directions, and these: no more than rows."""
        directions = by_products(self.dense).right()
        return self.dense @ directions.T, directions

    def _minimum(self, rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
        alpha, shape = 1 / (auto.PUBLIC_FIT * len(rows)), (rows.shape[1], self.n_outputs)

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            weights = flat.reshape(shape)
            scores = rows @ weights
            value = np.mean(self.loss.value(targets, scores)) + alpha / 2 * (flat @ flat)
            gradient = rows.T @ self.loss.residual(targets, scores) / len(rows) + alpha * weights
            return float(value), gradient.ravel()

        return _least(objective, math.prod(shape), _ITERATIONS).reshape(shape)


@dataclass(frozen=True)
class LabelledModule:
    """Labelled public rows and a torch module, whose fit starts at its present weights."""

    source: ModuleSource  # Public rows and their targets

    @property
    def targets(self) -> np.ndarray:
        return to_numpy(self.source.y)

    def fitted(self) -> np.ndarray:
        return self.minimum(np.arange(len(self.targets)))

    def minimum(self, rows: np.ndarray) -> np.ndarray:
        start, alpha = to_numpy(self.source.start()), 1 / (auto.PUBLIC_FIT * len(rows))

        def objective(moved: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.source.mean_loss(start + moved, rows)
            return value + alpha / 2 * float(moved @ moved), gradient + alpha * moved

        return start + _least(objective, len(start), _MODULE_ITERATIONS)

    def right(
        self, found: np.ndarray, rows: np.ndarray, is_right: Callable[[Array, Array], Array]
    ) -> float:
        return float(is_right(self.source.scores_at(found, rows), self.source.y[rows]).sum())


def share_inside(source: LinearSource, most: float) -> Array:
    """Share of the energy of each record along the directions of `source`, over `most`, (n,).

    A record without energy has a share of 0. The share of a row of a person is the same to the last
    bit wherever other rows place it: for a row that is nearly the mean, only rounding may be left.
    """
    whole, xp = source.features.distances(), namespace(source.features.lengths)

    def part(rows: Any) -> Array:
        products = source.products(rows, by_row=source.records.grouped)
        of_rows = whole[rows]
        assert products is not None, "a source that knows the directions"
        inside = products / xp.where(of_rows > 0, of_rows, xp.ones_like(of_rows))[:, None]
        return xp.vecdot(inside, inside) / most

    with over_chunks(source) as each:
        return xp.concat(list(each(part)))


def nothing(source: LinearSource) -> Array:
    return namespace(source.features.lengths).zeros_like(source.features.lengths)


def beside_each_other(*columns: Array) -> Array:
    return namespace(columns[0]).stack(columns, axis=1)


def correct(source: Any, weights: Array, right: Callable[[Array, Array], Array]) -> Array:
    """Return 1 for each row whose scores at `weights` are right, and 0 for others, (n_rows,)."""
    xp = namespace(source.y)

    def part(rows: Any) -> Array:
        return right(source.scores_at(weights, rows), source.y[rows])

    with over_chunks(source) as each:
        return xp.astype(xp.concat(list(each(part))), xp.float64)


def mean_gradient(public: GradientSource, params: Array) -> Array:
    def part(rows: Any) -> Array:
        grads = public.at(params, rows)
        norms = grads.norms()
        xp = namespace(norms)
        weights = xp.where(xp.isfinite(norms), xp.ones_like(norms), xp.zeros_like(norms))
        return grads.weighted_sum(weights)

    with over_chunks(public) as each:
        return sum(each(part)) / public.n_samples


# Anchors ----------------------------------------------------------------------------------------

# Directions with less than this share of the top one's energy are mostly rounding.
_FAINT = 1e-8

# Squares of singular values up to this share of the largest are hidden by rounding.
_HIDDEN = 1e-13

# Most that rounding may hide of the energy of a gradient outside of the subspace.
_MARGIN = 1e-5


@dataclass(frozen=True)
class OuterEmbedded:
    features: Array  # (k, q), float64
    residuals: Array  # (k, c)

    def squares(self) -> Array:
        xp = namespace(self.features)
        residuals = xp.astype(self.residuals, xp.float64)
        return xp.vecdot(self.features, self.features) * xp.vecdot(residuals, residuals)

    def weighted_sum(self, weights: Array) -> Array:
        xp = namespace(self.features)
        residuals = xp.astype(self.residuals, xp.float64) * weights[:, None]
        residuals = xp.where((weights == 0)[:, None], xp.zeros_like(residuals), residuals)
        return xp.reshape(row_product(self.features, residuals), (-1,))


# Directions of public gradients --------------------------------------------------------------


@dataclass(frozen=True)
class DenseEmbedded:
    rows: Array  # (k, n_components), float64

    def squares(self) -> Array:
        return namespace(self.rows).vecdot(self.rows, self.rows)

    def weighted_sum(self, weights: Array) -> Array:
        rows, absent = self.rows, weights == 0
        xp = namespace(rows)
        if bool(xp.any(absent)):
            rows = xp.where(absent[:, None], xp.zeros_like(rows), rows)
        return weights @ rows


@dataclass(frozen=True)
class _Part:
    """Orthonormal directions ``weights @ anchors`` within one group of parameters."""

    group: Any  # Index of its columns in a gradient, or None for all of them
    anchors: PerExampleGradients
    weights: Array  # (k, m), float64
    rounding: float  # Rounding of one coordinate vector, in units of the norm of its gradient
    margin: float  # |g - B'Bg|^2 <= |g|^2 - |Bg|^2 + margin |g|^2, with Bg as computed
    sound: Array  # (m,): False for anchors that are not used, whose products may be anything

    def embed(self, grads: PerExampleGradients) -> Array:
        own = grads if self.group is None else grads.part(self.group)
        return self._shown(own.inner(self.anchors)[0]) @ self.weights.T

    def lift(self, coordinates: Array) -> Array:
        return self.anchors.weighted_sum(self.weights.T @ coordinates)

    def coordinates(self, gradient: Array) -> Array:
        own = gradient if self.group is None else gradient[..., self.group]
        return self.weights @ self._shown(self.anchors.dot(own))

    def _shown(self, products: Array) -> Array:
        """Products with anchors, zero for anchors that are not used (0 times inf is NaN)."""
        xp = namespace(products)
        return xp.where(self.sound, products, xp.zeros_like(products))


@dataclass(frozen=True)
class AnchorSubspace:
    """Orthonormal directions in the span of public gradients, group by group."""

    parts: tuple[_Part, ...]  # Directions of each group of parameters; groups share no parameter
    shape: tuple[int, ...]  # Shape of the parameters

    @property
    def n_components(self) -> int:
        return sum(part.weights.shape[0] for part in self.parts)

    @property
    def margin(self) -> float:
        return max(part.margin for part in self.parts)

    @property
    def rounding(self) -> float:
        return math.fsum(part.rounding for part in self.parts)

    def embed(self, grads: PerExampleGradients) -> DenseEmbedded:
        coordinates = [part.embed(grads) for part in self.parts]
        xp = namespace(coordinates[0])
        whole = coordinates[0] if len(coordinates) == 1 else xp.concat(coordinates, axis=1)
        return DenseEmbedded(whole)

    def lift(self, coordinates: Array) -> Array:
        if len(self.parts) == 1 and self.parts[0].group is None:
            return self.parts[0].lift(coordinates)
        xp, start = namespace(coordinates), 0
        total = xp.zeros(self.shape, dtype=coordinates.dtype, device=device(coordinates))
        for part in self.parts:
            stop = start + part.weights.shape[0]
            total[..., part.group] = part.lift(coordinates[start:stop])
            start = stop
        return total

    def coordinates(self, gradient: Array) -> Array:
        values = [part.coordinates(gradient) for part in self.parts]
        return values[0] if len(values) == 1 else namespace(gradient).concat(values)


def group_sizes(n_components: int, sizes: Sequence[int], n_anchors: int) -> list[int]:
    """Number of directions of each group: in proportion to the square root of its parameters.

    At least one, and at most as many as the group has parameters or anchors (Yu et al., 2021,
    section 4).
    """
    roots = [math.sqrt(size) for size in sizes]
    return [
        max(1, min(math.floor(n_components * root / sum(roots)), size, n_anchors))
        for root, size in zip(roots, sizes, strict=True)
    ]


def anchor_subspace(
    anchors: PerExampleGradients,
    counts: Sequence[int],
    groups: Sequence[Any] = (None,),
    *,
    power_iterations: int | None,
    rng: np.random.Generator,
) -> AnchorSubspace:
    """Top directions of public gradients.

    `counts` are the numbers of directions of each group; the result has fewer where the anchors
    span fewer. `groups` are indices of the last axis of a gradient, or None for all of it. A random
    start goes through `power_iterations` products with the anchors' second moment (Yu et al., 2021,
    Algorithm 2, use 1); None computes the exact eigenvectors. Randomness is public.
    """
    return AnchorSubspace(
        tuple(
            _part(anchors, count, group, power_iterations, rng)
            for count, group in zip(counts, groups, strict=True)
        ),
        tuple(anchors.shape[1:]),
    )


def _part(
    anchors: PerExampleGradients, count: int, group: Any, power: int | None, rng: Any
) -> _Part:
    """Directions within one group.

    Rounding, with g a gradient, B the directions as their weights M define them, K the exact inner
    products of g with the anchors A, and u their relative error: the computed coordinates differ
    from ``B g = K M'`` by at most ``e |g|`` with ``e = (u + m eps) |A| |M|`` (by rows,
    Cauchy-Schwarz), and ``H = B B'`` differs from the identity by the computed difference and at
    most ``e |A| |M|`` more. So ``|g - B'E|^2 = |g|^2 - 2 E.Bg + E H E' <= |g|^2 - |E|^2 + |E|^2 |H
    - I| + 2 e |E| |g|``, where the last two terms are the margin. Where the margin is large, the
    faintest directions are left out.
    """
    own = anchors if group is None else anchors.part(group)
    n_anchors, *shape = own.shape
    if math.prod(shape) <= n_anchors:
        own = _dense_rows(own, count)
        weights = namespace(own.rows).eye(own.shape[0], dtype=own.rows.dtype)
        gram, error = own.inner(own)
        xp = namespace(gram)
        sound = xp.ones_like(xp.linalg.diagonal(gram)) > 0
    else:
        gram, error = own.inner(own)
        xp, sound = namespace(gram), _sound(gram)
        gram = xp.where(sound[:, None] & sound[None, :], gram, xp.zeros_like(gram))
        count = min(count, n_anchors)
        if power is not None:
            start = as_like(rng.standard_normal((n_anchors, count)), gram)
            weights, check = _power(gram, start, power, error)
        else:
            weights, check = _exact(gram, count), None
        # Exactly zero: rounding errors there would be multiplied by anchors out of range.
        weights = xp.where(sound[None, :], weights, xp.zeros_like(weights))
        if check is not None:
            return _Part(group, own, weights, check.rounding, check.margin, sound)
    check = _Check.of(gram, weights, error)
    while not check.margin <= _MARGIN and weights.shape[0] > 0:
        weights = weights[: weights.shape[0] * 3 // 4, :]
        check = _Check.of(gram, weights, error)
    return _Part(group, own, weights, check.rounding, check.margin, sound)


@dataclass(frozen=True)
class _Check:
    """Quality of directions, see :func:`_part`."""

    product: Array  # Computed inner products of the directions
    off: float  # Distance of these from the identity, in Frobenius norm
    condition: float
    rounding: float
    margin: float

    @classmethod
    def of(cls, gram: Array, weights: Array, error: float) -> _Check:
        xp = namespace(gram)
        energy = float(xp.sum(xp.linalg.diagonal(gram)))
        condition = math.sqrt(energy) * math.sqrt(float(xp.sum(weights * weights)))
        rounding = 1.01 * (error + (sum(weights.shape) + 16) * EPS) * condition
        product = weights @ gram @ weights.T
        difference = product - as_like(np.eye(weights.shape[0]), product)
        off = math.sqrt(float(xp.sum(difference * difference)))
        hidden = off + rounding * max(condition, 1.0)
        margin = 1.01 * (hidden * (1 + rounding) ** 2 + 3 * rounding + 8 * EPS)
        return cls(product, off, condition, rounding, margin)

    @property
    def good(self) -> bool:
        """Whether the deviation is within possible rounding, and no direction can be faint.

        The least energy of a direction over the largest is at least ``1 / condition^2``.
        """
        bounded = self.margin <= _MARGIN and self.condition**2 < 1 / _FAINT
        return bounded and 2 * self.off <= self.margin


def _sound(gram: Array) -> Array:
    xp = namespace(gram)
    energies = xp.linalg.diagonal(gram)
    # An anchor that is not finite spoils its products with all others: the others are kept.
    finite = xp.isfinite(energies) & (energies < 1e200)
    return finite & xp.isfinite(xp.sum(xp.where(finite[:, None], gram * 0.0, 0.0), axis=0))


def _dense_rows(anchors: PerExampleGradients, count: int) -> DenseGradients:
    rows = anchors.dense()
    xp = namespace(rows)
    sound = xp.isfinite(xp.sum(rows * 0.0, axis=1)) & (xp.max(xp.abs(rows), axis=1) < 1e100)
    rows = xp.where(sound[:, None], rows, xp.zeros_like(rows))
    values, vectors = xp.linalg.eigh(rows.T @ rows)
    n_clear = _n_clear(xp.flip(values)[:count])
    directions = signed(xp.flip(vectors, axis=1)[:, :n_clear].T)
    return DenseGradients(directions, tuple(anchors.shape[1:]))


def _exact(gram: Array, count: int) -> Array:
    xp = namespace(gram)
    values, vectors = xp.linalg.eigh(gram)
    return _normalised(xp.flip(values)[:count], xp.flip(vectors, axis=1)[:, :count])


def _power(gram: Array, start: Array, iterations: int, error: float) -> tuple[Array, _Check | None]:
    """Weights for the span of a random start (m, k) after some power iterations, with a check.

    Cholesky factors make directions orthonormal at half the cost of a QR decomposition and
    eigenvectors. Where the deviation is larger than rounding may hide, eigenvectors identify the
    faint directions, which may have to be removed: then no check is returned.
    """
    xp = namespace(gram)
    for _ in range(iterations - 1):
        start = xp.linalg.qr(gram @ start)[0]
    start = gram @ start
    # Scaled so that products stay in range, whatever the size of the anchors.
    size = float(xp.max(xp.abs(start))) * math.sqrt(float(xp.sum(xp.linalg.diagonal(gram))))
    weights = start.T / max(size, 1e-300)
    for _ in range(3):
        check = _Check.of(gram, weights, error)
        if check.good:
            return weights, check
        try:
            weights = _solved(xp.linalg.cholesky(check.product), weights)
        except (ValueError, RuntimeError):  # not positive definite, in NumPy and in torch
            break
    start = xp.linalg.qr(start)[0]
    values, vectors = xp.linalg.eigh(start.T @ gram @ start)
    return _normalised(xp.flip(values), start @ xp.flip(vectors, axis=1)), None


def _solved(lower: Array, values: Array) -> Array:
    if isinstance(lower, np.ndarray):
        return solve_triangular(lower, values, lower=True, check_finite=False)
    return namespace(lower).linalg.solve_triangular(lower, values, upper=False)


def _normalised(values: Array, vectors: Array) -> Array:
    n_clear = _n_clear(values)
    return signed((vectors[:, :n_clear] / namespace(values).sqrt(values[:n_clear])[None, :]).T)


@dataclass(frozen=True, eq=False)
class Singular:
    """Squares of singular values of rows, in descending order, and singular vectors."""

    squares: np.ndarray  # (q,)
    rows: Array  # (m, width), in float64
    # (q, m): left singular vectors, for few rows. Otherwise right ones, (q, width).
    vectors: Array

    def right(self, count: int | None = None) -> Array:
        """The first right singular vectors, or all of them: for few rows each needs a product."""
        xp, vectors = namespace(self.rows), self.vectors[:count, :]
        if self.rows.shape[0] >= self.rows.shape[1]:
            return vectors
        right = vectors @ self.rows
        lengths = xp.linalg.vector_norm(right, axis=1)[:, None]
        return right / xp.where(lengths > 0, lengths, xp.ones_like(lengths))


def by_products(rows: Array) -> Singular:
    """Singular values and vectors of rows.

    By inner products in float64, of rows or of columns, whichever are fewer: this needs a third of
    the time. Rounding moves a vector by about 1e-16 times the largest square over the square of its
    own singular value; vectors whose square is hidden by rounding are left out.
    """
    xp, few = namespace(rows), rows.shape[0] < rows.shape[1]
    rows = xp.astype(rows, xp.float64, copy=False)
    values, vectors = xp.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    squares = np.maximum(to_numpy(values)[::-1], 0.0)
    count = max(1, int(np.sum(squares > _HIDDEN * squares[0])))
    return Singular(squares[:count], rows, xp.flip(vectors, axis=1)[:, :count].T)


def signed(directions: Array) -> Array:
    """Directions in rows, with signs (and so noise) that do not depend on rounding."""
    xp = namespace(directions)
    cubes = directions * directions * directions  # takes a fifth of the time of a power
    negative = xp.sum(cubes, axis=1) < 0
    return xp.where(negative[:, None], -directions, directions)


def _n_clear(values: Array) -> int:
    top = float(values[0]) if values.shape[0] else 0.0
    return int(namespace(values).sum(values > _FAINT * top)) if top > 0 else 0
