"""The few directions of features that matter for regression in all public tasks.

The model is ``y = x' B a_t + noise`` in task t, with one B (d, k) for all tasks: a private task
then needs k numbers instead of d. No private row is used here.

Design note. Everything is estimated in white coordinates (`whitened`), where the method of moments
and the pair statistic depend on B and not on the shape of the rows. The pair statistic of Duchi,
Feldman, Hu, Talwar (2022) is for rows and targets of mean zero. Rows about the mean of their task
are no longer independent, and the correction that makes the mean exact again is in :func:`_pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, null_space, solve, solve_triangular, svd
from scipy.sparse.linalg import ArpackError, LinearOperator, cg, eigsh

from dpsubspace._core.ground.checks import check_choice, check_integer
from dpsubspace._core.public.gradient_spaces import OWN_MEAN, WhitenedTasks, whitened_tasks
from dpsubspace._core.rows.affine import Affine

# Distribution of models of tasks ----------------------------------------------------------------
# Distribution of models of tasks, by public tasks: their mean, their covariance, and the noise.
#
# A mixed model: the coefficients of each task are drawn from one normal distribution. It is fitted
# by expectation and maximisation (Laird, Ware, 1982). No private row is used here.

# Number of rounds, and least variance of every coefficient, over that of the noise.
_PRIOR_ROUNDS, _LEAST_PRIOR = 50, 1e-6

# Initial variance of coefficients, over that of the targets.
_START = 0.1


@dataclass(frozen=True)
class TaskPrior:
    """Distribution of the models of tasks, for rows after a map of columns."""

    mean: np.ndarray  # (d + 1,): mean constant, and mean weights
    covariance: np.ndarray  # (d + 1, d + 1): of constants and weights
    noise: float  # Variance of targets about the models

    def in_units(self, location: float, scale: float) -> TaskPrior:
        mean = self.mean / scale
        mean[0] -= location / scale
        return TaskPrior(mean, self.covariance / scale**2, self.noise / scale**2)


def task_prior(
    sets: Sequence[np.ndarray], targets: Sequence[np.ndarray], affine: Affine, *, intercept: bool
) -> TaskPrior:
    """Fit the distribution to public tasks, with rows that `affine` maps column by column."""
    first = 0 if intercept else 1
    rows = [_rows(part, affine)[:, first:] for part in sets]
    grams = np.stack([part.T @ part for part in rows])
    products = np.stack([part.T @ y for part, y in zip(rows, targets, strict=True)])
    squares, n = sum(float(y @ y) for y in targets), sum(map(len, targets))
    width = grams.shape[1]
    mean = np.linalg.solve(grams.sum(axis=0) + 1e-6 * n * np.eye(width), products.sum(axis=0))
    variance = _left(mean[None], grams.sum(axis=0)[None], products.sum(axis=0)[None], squares, n)
    covariance = _START * variance * np.eye(width)
    for _ in range(_PRIOR_ROUNDS):
        inner = np.linalg.inv(covariance)
        spread = np.linalg.inv(grams / variance + inner)
        own = (spread @ (products / variance + inner @ mean)[:, :, None])[:, :, 0]
        mean = own.mean(axis=0)
        apart = own - mean
        covariance = spread.mean(axis=0) + apart.T @ apart / len(own)
        covariance += _LEAST_PRIOR * variance * np.eye(width)
        left = _left(own, grams, products, squares, n) + float((grams * spread).sum()) / n
        variance = max(left, 1e-12 * squares / n, 1e-300)
    return _embedded(mean, covariance, variance, first)


def label_task_prior(
    sets: Sequence[np.ndarray], labels: Sequence[np.ndarray], affine: Affine, *, intercept: bool
) -> TaskPrior:
    """Fit the prior of logistic models of labels 0 and 1, in log-odds; its noise is set to 1.

    Each round replaces the labels by targets of least squares about the models of the previous
    round (penalised quasi-likelihood; Breslow, Clayton, 1993), with weights that give a parabola
    above the loss, so that models are finite also where a task has only one class.
    """
    first = 0 if intercept else 1
    rows = [_rows(part, affine)[:, first:] for part in sets]
    width = rows[0].shape[1]
    mean, covariance = np.zeros(width), np.eye(width) / width
    own = np.zeros((len(rows), width))
    for _ in range(_PRIOR_ROUNDS):
        inner, spread = np.linalg.inv(covariance), np.empty((len(rows), width, width))
        for j, (part, y) in enumerate(zip(rows, labels, strict=True)):
            half = np.maximum(np.abs(part @ own[j]) / 2, 1e-6)
            weighed = part.T * (np.tanh(half) / (4 * half))
            spread[j] = np.linalg.inv(weighed @ part + inner)
            own[j] = spread[j] @ (part.T @ (y - 0.5) + inner @ mean)
        mean = own.mean(axis=0)
        apart = own - mean
        covariance = spread.mean(axis=0) + apart.T @ apart / len(own)
        covariance += _LEAST_PRIOR * np.eye(width)
    return _embedded(mean, covariance, 1.0, first)


def _embedded(mean: np.ndarray, covariance: np.ndarray, noise: float, first: int) -> TaskPrior:
    """A prior with a constant, from one whose models have no constant where `first` is 1."""
    width = len(mean) + first
    whole, embedded = np.zeros(width), np.zeros((width, width))
    whole[first:], embedded[first:, first:] = mean, covariance
    return TaskPrior(whole, embedded, noise)


def _rows(rows: np.ndarray, affine: Affine) -> np.ndarray:
    mapped = (np.asarray(rows, dtype=np.float64) - affine.mean) * affine.weights
    return np.concatenate([np.ones((len(mapped), 1)), mapped], axis=1)


def _left(
    coef: np.ndarray, grams: np.ndarray, products: np.ndarray, squares: float, n: int
) -> float:
    """Mean squared residual of tasks by their models, from sums over their rows."""
    fitted = np.einsum("ti,tij,tj->", coef, grams, coef) - 2 * np.einsum("ti,ti->", coef, products)
    return max(squares + float(fitted), 0.0) / n


# Directions of tasks ----------------------------------------------------------------------------

# Matrices up to this size are formed to find their largest eigenvalue.
_FORMED = 300

# Permutations of targets with which the spectrum is compared: the largest eigenvalue of 19 exceeds
# a further one with probability 0.95.
_PERMUTATIONS = 19

# For the method of moments, targets are clipped to this quantile of their magnitudes.
_WINSORISED = 0.95

# Rounds of the alternating method, and the sine of the angle between rounds below which it ends.
_ROUNDS, _SETTLED = 20, 1e-3


@dataclass(frozen=True)
class TaskSubspace:
    # (d, k): ``(X - mean) @ directions`` has about unit second moment on public rows. The
    # first j directions span the j leading ones.
    directions: np.ndarray
    components: np.ndarray  # (k, d): orthonormal rows of the same span, in the same order
    # (q,): eigenvalues of the method's matrix in descending order; the leading k belong to the
    # directions. With tasks, about the mean share of the variance of a target that each explains
    # ("moments" and "ridge": less than that). With features, variances of scaled columns.
    spectrum: np.ndarray
    mean: np.ndarray  # (d,): mean of all public rows
    # (d, q): the other directions in which public rows vary, where they are requested; they also
    # have about unit second moment, and are uncorrelated with the first ones.
    others: np.ndarray | None = None


def task_subspace(
    sets: Sequence[np.ndarray],
    targets: np.ndarray | None,
    *,
    subspace: str = "pairs",
    n_components: int | str = "auto",
    whole: bool = False,
) -> TaskSubspace:
    """Estimate the span of the coefficients of public tasks, and with `whole` other directions.

    Each set of checked rows is a task, and so is each column of `targets` (m, c), whose rows are in
    the order of the sets. `subspace` is a row of `METHODS`. With "auto" for `n_components`, the
    directions that explain more of the targets than any direction explains of targets permuted
    within tasks are kept ("features": those of more variance than uncorrelated columns would have
    by chance), and at least one.
    """
    method = METHODS[check_choice("subspace", subspace, list(METHODS))]
    wanted = _wanted(n_components)
    mean = np.concatenate(sets).mean(axis=0, dtype=np.float64)
    tasks = _features_of(sets) if method.of_features else _tasks_of(sets, targets, subspace)
    most = _most(tasks, wanted, of_features=method.of_features)
    count = wanted or method.number(tasks, most)
    spectrum, vectors = method.directions(tasks, most, count)
    vectors = vectors[:, :count]
    if whole:
        vectors = np.hstack([vectors, null_space(vectors.T)])
    scaled = _unit_directions(sets, mean, tasks, vectors)
    scaled, others = scaled[:, :count], scaled[:, count:] if whole else None
    components, signs = _orthonormal(scaled)
    return TaskSubspace(scaled * signs, components, spectrum, mean, others)


def _wanted(n_components: int | str) -> int | None:
    """Requested number of directions; None where tasks decide."""
    if n_components == "auto":
        return None
    if isinstance(n_components, str):
        raise ValueError(f"`n_components` must be an int or 'auto', got {n_components!r}.")
    return check_integer("n_components", n_components, low=1)


def _features_of(sets: Sequence[np.ndarray]) -> WhitenedTasks:
    rows = np.concatenate(sets)
    if len(rows) < 2:
        raise ValueError(
            "`X_public` has 1 row, which has no directions about its mean: pass more rows."
        )
    return whitened_tasks((rows,), np.zeros((len(rows), 1)))


def _tasks_of(
    sets: Sequence[np.ndarray], targets: np.ndarray | None, subspace: str
) -> WhitenedTasks:
    if targets is None:
        raise ValueError(
            f"`y_public` is None, and subspace={subspace!r} learns directions from the targets of"
            " public tasks: pass y_public=(y1, y2, ...) with X_public=(X1, X2, ...), or"
            " subspace='features', which looks at public rows only."
        )
    for i, rows in enumerate(sets):
        if len(rows) < 2:
            raise ValueError(
                f"`X_public[{i}]` has 1 row, and a task needs at least 2 for a slope: leave the"
                " set out of X_public and y_public, or put it together with another."
            )
    tasks = whitened_tasks(sets, targets)
    if not tasks.weights.any():
        raise ValueError(
            "`y_public` is constant in each public task, which says nothing of directions: pass"
            " tasks whose targets vary, or subspace='features'."
        )
    return tasks


def _most(tasks: WhitenedTasks, wanted: int | None, *, of_features: bool) -> int:
    rank, told = tasks.rows.shape[1], int(np.count_nonzero(tasks.weights))
    if rank == 0:
        raise ValueError(
            "`X_public` has only columns that are constant"
            f"{'' if of_features else ' within each task'}, so it has no directions: pass rows"
            " that vary, or fit in the full space (DPLinearRegression)."
        )
    if wanted is not None and wanted > rank:
        raise ValueError(
            f"`n_components`={wanted} is above {rank}, the rank of `X_public` about the"
            f" {'mean' if of_features else 'means of its tasks'}: use at most {rank}, pass more"
            " public rows, or n_components='auto'."
        )
    if of_features:
        return rank
    if wanted is not None and wanted > told:
        raise ValueError(
            f"`n_components`={wanted} is above {told}, the number of public tasks whose"
            " targets vary (each output counts), and so many span no more directions: use at most"
            f" {told}, pass more tasks, or subspace='features'."
        )
    return min(rank, told)


def _unit_directions(
    sets: Sequence[np.ndarray], mean: np.ndarray, tasks: WhitenedTasks, vectors: np.ndarray
) -> np.ndarray:
    """The span of white `vectors` (r, k) in users' columns (d, k), with about unit second moment.

    The second moment is about the mean of all rows, so differences between means of tasks are part
    of it. The moment of uncorrelated columns counts as one more row for each coordinate: where rows
    are few, the chosen directions vary more along these rows than along others.
    """
    directions = tasks.unmixing @ vectors
    more = tasks.rows.shape[1]
    scores = [(rows - mean) @ directions for rows in sets]
    spread = np.sqrt(more) * tasks.scale[:, None] * directions
    # Without squares, which would lose small numbers beside the distances of far tasks.
    triangle = np.linalg.qr(np.concatenate([*scores, spread]), mode="r")
    triangle = triangle / np.sqrt(sum(map(len, sets)) + more)
    return solve_triangular(triangle.T, directions.T, lower=True).T


def _orthonormal(directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal rows (k, d) of the span of some columns (d, k), and signs for the columns.

    The largest weight of each component is positive, so that the sign does not depend on rounding.
    """
    # Rows in descending order: units of columns may differ so much that all directions seem to be
    # that of the smallest unit, and Householder's method finds the others only in this order.
    order = np.argsort(-np.abs(directions).max(axis=1), kind="stable")
    order = order[: np.count_nonzero(np.any(directions != 0, axis=1))]  # zeros stay zeros
    basis, triangle = np.linalg.qr(directions[order] / np.abs(directions).max(axis=0))
    components = np.zeros(directions.T.shape)
    components[:, order] = np.where(np.diag(triangle) < 0, -basis, basis).T
    largest = np.argmax(np.abs(components), axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * signs[:, None], signs


# The pair statistic ---------------------------------------------------------------------------


class _Matrix(NamedTuple):
    """``factors' factors + rows' diag(diagonal) rows``, which need not be formed."""

    factors: np.ndarray
    rows: np.ndarray
    diagonal: np.ndarray

    def dense(self) -> np.ndarray:
        return self.factors.T @ self.factors + (self.rows.T * self.diagonal) @ self.rows

    def trace(self) -> float:
        squares = np.einsum("ij,ij->i", self.rows, self.rows)
        return float(np.sum(self.factors**2) + self.diagonal @ squares)

    def largest(self) -> float:
        r = self.rows.shape[1]
        if r > _FORMED:
            start = np.random.default_rng(0).standard_normal(r)
            options: Any = {"which": "LA", "v0": start, "tol": 1e-3}
            try:
                return float(eigsh(_operator(r, self._times), k=1, **options)[0][0])
            except ArpackError:  # no convergence
                pass
        return float(eigh(self.dense(), eigvals_only=True, subset_by_index=(r - 1, r - 1))[0])

    def _times(self, vector: np.ndarray) -> np.ndarray:
        vector = vector.reshape(-1)
        first = self.factors.T @ (self.factors @ vector)
        return first + self.rows.T @ (self.diagonal * (self.rows @ vector))


def _pairs(tasks: WhitenedTasks) -> _Matrix:
    """Weighted mean over tasks of unbiased estimates of ``b b'``, b the covariances with y.

    Let a_i and b_i be a row and a target about the means of a task of m rows, s the sum of a_i b_i,
    Q that of b_i^2 a_i a_i', G that of a_i a_i' and v that of b_i^2. For a pair of rows ``h(i, j) =
    (x_i - x_j) (y_i - y_j) / 2`` has the covariance as its mean, for any intercept, and so ``h(i,
    j) h(k, l)'`` has the mean ``b b'`` for four different rows. Its mean over all sets of four is
    ::

        ((m - 1) (m - 2) s s' - m (m - 1) Q + v G) / (m (m - 1) (m - 2) (m - 3))

    This holds for any distribution. With the form for known means, ``(s s' - Q) / (m (m - 1))``,
    the bias of the mean is ``-2 b b' / m``, which does not turn directions, and ``(2 V - w I) /
    m^2``, V the covariance of the products a_i b_i and w the variance of y, for large m: harmless
    for normal rows or large tasks, but not for small ones of skewed columns. Without Q the bias is
    ``V / m``. Tasks with fewer than four rows have no exact estimate: they are centred at a mean
    that they share, and the form for known means is used for them.
    """
    m, weights = tasks.sizes[:, None].astype(np.float64), tasks.weights
    own = m >= OWN_MEAN
    far = np.where(own, m, OWN_MEAN)  # avoids division by zero
    crossed = weights / np.where(own, far * (far - 3), m * (m - 1))
    squared = weights / np.where(own, (far - 2) * (far - 3), m * (m - 1))
    even = np.where(own, weights / (far * (far - 1) * (far - 2) * (far - 3)), 0.0)
    starts = np.cumsum(tasks.sizes) - tasks.sizes
    even = even * np.add.reduceat(tasks.targets**2, starts, axis=0)
    each = np.repeat(np.arange(len(tasks.sizes)), tasks.sizes)
    diagonal = np.sum(even[each] - squared[each] * tasks.targets**2, axis=1)
    factors = np.sqrt(crossed)[:, :, None] * _sums(tasks)
    return _Matrix(factors.reshape(-1, tasks.rows.shape[1]), tasks.rows, diagonal)


def _operator(size: int, times: Callable[[np.ndarray], np.ndarray]) -> Any:
    made: Any = LinearOperator  # pyright sees another signature
    return made((size, size), matvec=times, dtype=np.float64)


def _sums(tasks: WhitenedTasks) -> np.ndarray:
    return np.stack([tasks.targets[task].T @ tasks.rows[task] for task in tasks.slices])


def _leading(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    r = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(r - count, r - 1))
    return values[::-1], vectors[:, ::-1]


# Numbers of directions ------------------------------------------------------------------------


def _above_permuted(tasks: WhitenedTasks, most: int) -> int:
    """Number of eigenvalues of the pair statistic above all those of permuted targets.

    Targets are permuted within tasks, where rows that explain nothing could have any of them.
    (Permuting leaves the explained variance in the noise. That is where it belongs: the noise of
    ``x y`` along other directions has the variance of y, explained or not.)
    """
    rng = np.random.default_rng(0)  # the same each time: the result must not be random
    largest = []
    for _ in range(_PERMUTATIONS):
        order = np.concatenate([task.start + rng.permutation(size) for task, size in _sized(tasks)])
        largest.append(_pairs(replace(tasks, targets=tasks.targets[order])).largest())
    values = _leading(_pairs(tasks).dense(), most)[0]
    return max(1, int(np.count_nonzero(values > max(largest))))


def _sized(tasks: WhitenedTasks) -> zip[tuple[slice, int]]:
    return zip(tasks.slices, tasks.sizes.tolist(), strict=True)


def _above_uncorrelated(tasks: WhitenedTasks, most: int) -> int:
    """Number of variances above those of uncorrelated columns (Marchenko and Pastur, 1967)."""
    edge = (1 + np.sqrt(np.count_nonzero(tasks.scale) / tasks.degrees)) ** 2
    return max(1, int(np.count_nonzero(tasks.variances > edge)))


# Explained variance of tasks that were left out -----------------------------------------------

# Number of parts of the tasks that are left out in turn.
_PARTS = 4


@dataclass(frozen=True)
class Explained:
    """Shares of the variance of a target that weights explain, in tasks that were left out."""

    inside: np.ndarray  # (q,): by weights along the first j + 1 directions of other tasks
    outside: np.ndarray  # (q,): by weights along all other directions
    rank: int  # Number of all directions


def explained_elsewhere(
    sets: Sequence[np.ndarray], targets: np.ndarray | None, subspace: str, most: int
) -> Explained | None:
    """Shares that directions of some tasks explain, and miss, in other tasks; None for one task.

    Tasks are left out in turn, and the pair statistic of the tasks that are left out estimates
    without bias how much of the variance of their targets is explained along given directions. So
    the shares include that directions are estimated with errors, and that a task may have weights
    that others do not have. Directions are those of `subspace`, up to `most` of them.
    """
    tasks = _tasks_of(sets, targets, subspace)
    told = np.flatnonzero(tasks.weights.any(axis=1))
    parts, total = min(_PARTS, len(told)), 0.0
    if parts < 2:
        return None
    most = min(most, tasks.rows.shape[1], len(told) - -(-len(told) // parts))
    inside = np.zeros(most)
    for part in range(parts):
        out = np.isin(np.arange(len(tasks.sizes)), told[part::parts])
        vectors = METHODS[subspace].directions(_some(tasks, ~out), most, most)[1][:, :most]
        left_out, weight = _some(tasks, out), tasks.weights[out].sum()
        pairs = _pairs(left_out).dense()
        total += weight * float(np.trace(pairs))
        inside += weight * np.einsum("ij,ik,kj->j", vectors, pairs, vectors)
    inside = np.clip(np.cumsum(inside), 0.0, 1.0)
    return Explained(inside, np.clip(total - inside, 0.0, 1.0 - inside), tasks.rows.shape[1])


def _some(tasks: WhitenedTasks, which: np.ndarray) -> WhitenedTasks:
    rows = np.repeat(which, tasks.sizes)
    return replace(
        tasks, rows=tasks.rows[rows], targets=tasks.targets[rows], sizes=tasks.sizes[which]
    )


# Methods --------------------------------------------------------------------------------------


def _by_pairs(tasks: WhitenedTasks, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return _leading(_pairs(tasks).dense(), most)


def _by_moments(tasks: WhitenedTasks, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors of the mean of ``y^2 x x'`` (Tripuraneni, Jin, Jordan 2021).

    The identity times the mean of y^2 is subtracted, which does not turn directions; half of the
    rest is ``b b'`` for normal rows.
    """
    magnitudes = np.abs(tasks.targets)
    squares = np.minimum(magnitudes, np.quantile(magnitudes, _WINSORISED, axis=0)) ** 2
    varies = np.repeat(tasks.weights > 0, tasks.sizes, axis=0)
    squares = squares.sum(axis=1) / np.count_nonzero(varies)
    offset = np.eye(tasks.rows.shape[1]) * squares.sum()
    return _leading(((tasks.rows.T * squares) @ tasks.rows - offset) / 2, most)


def _by_ridge(tasks: WhitenedTasks, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Principal directions of ridge estimates of each task.

    The penalty is the best one for coefficients that point in any direction and explain as much of
    the targets as the pair statistic estimates.
    """
    explained = _explained(tasks, _pairs(tasks).trace())
    penalty = tasks.rows.shape[1] * (1 - explained) / explained
    estimates = np.stack(
        [_ridge(tasks.rows[task], tasks.targets[task], penalty) for task in tasks.slices]
    )
    estimates = (np.sqrt(tasks.weights)[:, :, None] * estimates).reshape(-1, tasks.rows.shape[1])
    singular, vectors = svd(estimates, full_matrices=False)[1:]
    return singular[:most] ** 2, vectors[:most].T


def _explained(tasks: WhitenedTasks, trace: float) -> float:
    return float(np.clip(trace, 1 / len(tasks.rows), 0.99))


def _ridge(rows: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    m, r = rows.shape
    if m < r:
        inner = rows @ rows.T + penalty * np.eye(m)
        return solve(inner, targets, assume_a="pos").T @ rows
    inner = rows.T @ rows + penalty * np.eye(r)
    return solve(inner, rows.T @ targets, assume_a="pos").T


def _by_alternating(tasks: WhitenedTasks, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions of maximum likelihood, in turn with the coefficients of tasks.

    Coefficients are normal, with the second moment of the pair statistic in the subspace. Their
    posterior covariance is part of the fit of directions as well (as in expectation maximisation):
    alternating least squares would follow the noise of small tasks.
    """
    pairs = _pairs(tasks).dense()
    basis, added = _leading(pairs, count)[1], _Added.of(tasks)
    for _ in range(_ROUNDS):
        given = _coefficients(tasks, added, basis, pairs)
        turned, _ = np.linalg.qr(_refitted(tasks, added, basis, given))
        apart = np.linalg.norm(turned - basis @ (basis.T @ turned), 2)
        basis = turned
        if apart < _SETTLED:
            break
    found = _coefficients(tasks, added, basis, pairs)
    values, vectors = eigh(found.moment)
    return values[::-1], basis @ vectors[:, ::-1]


class _Added(NamedTuple):
    """Sums over the rows of each task, computed once for all rounds."""

    sums: np.ndarray  # (T, c, r): sums of rows times targets
    # (T, r, r): products of rows with each other; None where these have more numbers than the rows.
    grams: np.ndarray | None

    @classmethod
    def of(cls, tasks: WhitenedTasks) -> _Added:
        m, r = tasks.rows.shape
        grams = None
        if len(tasks.sizes) * r <= m:
            grams = np.stack([tasks.rows[task].T @ tasks.rows[task] for task in tasks.slices])
        return cls(_sums(tasks), grams)

    def along(self, tasks: WhitenedTasks, basis: np.ndarray) -> np.ndarray:
        """Products of scores along a basis (r, k) with each other, (T, k, k)."""
        if self.grams is not None:
            return basis.T @ (self.grams @ basis)
        scores = tasks.rows @ basis
        return np.stack([scores[task].T @ scores[task] for task in tasks.slices])

    def fitted(
        self, tasks: WhitenedTasks, directions: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """Sums (r, k) of rows times predictions by weights (T, c, k) along directions (r, k)."""
        (r, k), across = directions.shape, weights.swapaxes(1, 2)
        if self.grams is not None:
            rows = self.grams @ (directions @ across)
            return rows.swapaxes(0, 1).reshape(r, -1) @ weights.reshape(-1, k)
        each = weights[np.repeat(np.arange(len(tasks.sizes)), tasks.sizes)]
        scores = np.einsum("ik,ick->ic", tasks.rows @ directions, each)
        return tasks.rows.T @ np.einsum("ic,ick->ik", scores, each)


class _Coefficients(NamedTuple):
    """Coefficients of tasks in a subspace, under a normal prior.

    Means (T, c, k); the weighted mean of their second moments (k, k); and the part of it that comes
    from posterior covariances (k, k).
    """

    means: np.ndarray
    moment: np.ndarray
    unknown: np.ndarray


def _coefficients(
    tasks: WhitenedTasks, added: _Added, basis: np.ndarray, pairs: np.ndarray
) -> _Coefficients:
    noise = 1 - _explained(tasks, float(np.trace(pairs)))
    values, vectors = eigh(basis.T @ pairs @ basis)
    values = np.maximum(values, 1 / len(tasks.rows))
    penalty = noise * (vectors / values) @ vectors.T
    inverses = np.linalg.inv(added.along(tasks, basis) + penalty)
    means = added.sums @ basis @ inverses
    unknown = noise * np.einsum("tc,tij->ij", tasks.weights, inverses)
    known = np.einsum("tc,tci,tcj->ij", tasks.weights, means, means)
    return _Coefficients(means, known + unknown, unknown)


def _refitted(
    tasks: WhitenedTasks, added: _Added, basis: np.ndarray, given: _Coefficients
) -> np.ndarray:
    """Directions (r, k) of least expected squares for given coefficients of tasks.

    Coefficients are first made uncorrelated over tasks, which does not change the span, so that few
    rounds of conjugate gradients are enough. For the posterior covariance of its coefficients, the
    rows of each task are assumed to be white.
    """
    r, k = basis.shape
    values, vectors = eigh(given.moment)
    roots = np.sqrt(np.maximum(values, 1e-8 * values[-1]))
    turn = vectors / roots
    weights = given.means @ turn  # (T, c, k)
    unknown = (
        np.count_nonzero(tasks.weights, axis=1) @ tasks.sizes * (turn.T @ given.unknown @ turn)
    )

    def times(flat: np.ndarray) -> np.ndarray:
        directions = flat.reshape(r, k)
        return (added.fitted(tasks, directions, weights) + directions @ unknown).reshape(-1)

    right = added.sums.reshape(-1, r).T @ weights.reshape(-1, k)
    right, start = right.reshape(-1), (basis @ (vectors * roots)).reshape(-1)
    found, _ = cg(_operator(r * k, times), right, x0=start, rtol=1e-3, maxiter=50)
    return found.reshape(r, k)


def _by_features(tasks: WhitenedTasks, most: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return tasks.variances, np.eye(tasks.rows.shape[1], count)


@dataclass(frozen=True)
class Method:
    # Function of tasks, the largest number of directions and the requested number. It returns a
    # spectrum and orthonormal directions (r, at least that many) in white coordinates.
    directions: Callable[[WhitenedTasks, int, int], tuple[np.ndarray, np.ndarray]]
    # Number of directions that stand out from noise, by tasks and the largest allowed number.
    number: Callable[[WhitenedTasks, int], int] = _above_permuted
    of_features: bool = False  # Whether the method ignores targets


METHODS = {
    "pairs": Method(_by_pairs),
    "moments": Method(_by_moments),
    "ridge": Method(_by_ridge),
    "alternating": Method(_by_alternating),
    "features": Method(_by_features, _above_uncorrelated, of_features=True),
}
