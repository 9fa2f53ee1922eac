"""Spaces that represent gradients: coordinates of unit gradients, and directions of a set.

A space is made from public rows alone. For private rows it computes coordinates of each row, which
are a function of that row and of public numbers.

For a linear model with softmax or any other loss, the gradient by the weights is ``x r^T``, with r
the residual of the scores. Averaged over labels drawn at random, the second moment of such
gradients at zero weights is that of the rows times that of the labels: directions of gradients are
directions of features, each once for every contrast of labels. The share of the energy of a
gradient along directions U of features is ``|U x|^2 / |x|^2`` at any weights and for any label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from scipy import sparse
from scipy.linalg import eigh, svd, svdvals
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression

from dpsubspace._core.gradients.modules import ModuleGradients
from dpsubspace._core.ground.arrays import sampled, slices
from dpsubspace._core.ground.forms import Form, Maybe, NumberArray, Reading, Record, Whole
from dpsubspace._core.public.subspace import leading_weights, orthonormal, unit_rows
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap

# Whitened tasks ---------------------------------------------------------------------------------
# Public tasks in coordinates with equal weight of all features, directions and units of targets.
#
# Rows and targets are centred task by task, since intercepts of tasks differ. Columns are divided
# by their standard deviations, and then rotated and scaled so that their pooled covariance within
# tasks is the identity. Targets are divided by the standard deviation of their task: the part that
# a direction explains is then a share of the variance, whatever the unit.

# A task with at least this many rows has a mean of its own. With fewer no statistic of centred rows
# is unbiased (four different rows are needed), and all smaller tasks share a mean.
OWN_MEAN = 4

# Directions with less than this share of the variance of the strongest are rounding errors.
_FAINT = 1e-10


@dataclass(frozen=True)
class WhitenedTasks:
    rows: np.ndarray  # (m, r): centred and white; r is the rank of the public rows
    # (m, c): centred, and of variance 1 in each task that has any variance.
    targets: np.ndarray
    sizes: np.ndarray  # (T,): rows of each task
    # (d, r): factor that makes the difference of two rows in the users' columns white.
    unmixing: np.ndarray
    # (r,): variances of scaled columns along each coordinate, before they were made equal, in
    # descending order.
    variances: np.ndarray
    shrinkage: float  # Weight of the identity beside the covariance of scaled columns, in [0, 1]
    # (d,): standard deviation of each column within tasks; 0 where it is constant.
    scale: np.ndarray
    degrees: int  # Number of rows less the number of estimated means

    @property
    def slices(self) -> list[slice]:
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes.tolist(), strict=True)]

    @cached_property
    def weights(self) -> np.ndarray:
        """Weight of each task and output (T, c) in a sum over tasks: the share of its rows.

        Tasks with few rows carry little information, with much noise. A constant target carries
        none.
        """
        weights = np.stack([np.any(self.targets[task] != 0, axis=0) for task in self.slices])
        weights = weights * self.sizes[:, None]
        return weights / max(float(weights.sum()), 1.0)


def whitened_tasks(sets: Sequence[np.ndarray], targets: np.ndarray) -> WhitenedTasks:
    """Two or more tasks in white coordinates, with the targets (m, c) of all rows in this order."""
    sizes = np.array([len(rows) for rows in sets])
    rows, degrees = _centred(np.concatenate(sets).astype(np.float64), sizes)
    targets, _ = _centred(np.asarray(targets, dtype=np.float64), sizes)
    scale = np.sqrt(_mean_square(rows, degrees))
    live = scale > 0
    rows = rows[:, live] / scale[live]
    variances, vectors = _variances(rows, degrees)
    shrinkage = _shrinkage(variances, rows.shape[1], degrees)
    vectors = vectors / np.sqrt((1 - shrinkage) * variances + shrinkage)
    unmixing = np.zeros((len(scale), len(variances)))
    unmixing[live] = vectors / scale[live, None]
    return WhitenedTasks(
        rows=rows @ vectors,
        targets=_standardised(targets, sizes),
        sizes=sizes,
        unmixing=unmixing,
        variances=variances,
        shrinkage=shrinkage,
        scale=scale,
        degrees=degrees,
    )


def _centred(values: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows about the mean of their task, or of all small tasks, and their degrees of freedom.

    A row of the same task is subtracted first: constants are then 0 without rounding errors, and a
    large offset takes no digits from the variation.
    """
    starts = np.cumsum(sizes) - sizes
    shared = int(np.argmin(sizes >= OWN_MEAN))  # the first small task, if there is one
    groups = np.where(sizes >= OWN_MEAN, np.arange(len(sizes)), shared)
    each = np.repeat(groups, sizes)
    values = values - values[starts[each]]
    sums, counts = np.zeros((len(sizes), values.shape[1])), np.zeros(len(sizes))
    np.add.at(sums, groups, np.add.reduceat(values, starts, axis=0))
    np.add.at(counts, groups, sizes)
    means = sums / np.maximum(counts, 1)[:, None]
    return values - means[each], len(values) - len(np.unique(groups))


def _mean_square(values: np.ndarray, count: int) -> np.ndarray:
    """Sums of squares of columns over `count`, without overflow in between."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    scaled = values / np.where(largest > 0, largest, 1.0)
    return largest**2 * np.sum(scaled**2, axis=0) / count


def _variances(rows: np.ndarray, degrees: int) -> tuple[np.ndarray, np.ndarray]:
    m, d = rows.shape
    if d == 0:
        return np.zeros(0), np.zeros((0, 0))
    if m < d:
        _, singular, vectors = svd(rows, full_matrices=False)
        values, vectors = singular**2 / degrees, vectors.T
    else:
        values, vectors = eigh(rows.T @ rows / degrees)
        values, vectors = values[::-1], vectors[:, ::-1]
    clear = values > _FAINT * values[0]
    return values[clear], vectors[:, clear]


def _shrinkage(variances: np.ndarray, d: int, degrees: int) -> float:
    """Weight of the identity in the estimate of a correlation matrix (d, d).

    The oracle approximating shrinkage of Chen, Wiesel, Eldar, Hero (2010), for a mean variance of
    1. It goes to 0 with the number of rows, unless columns are not correlated at all.
    """
    square = float(np.sum(variances**2)) / max(d, 1) ** 2
    excess = (degrees + 1) * (square - 1 / max(d, 1))
    return 1.0 if excess <= square + 1 else (square + 1) / excess


def _standardised(targets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Centred targets over their standard deviation, which small tasks share; zeros stay zeros."""
    starts = np.cumsum(sizes) - sizes
    largest = np.maximum.reduceat(np.abs(targets), starts, axis=0)
    small = sizes < OWN_MEAN
    if small.any():
        largest[small] = largest[small].max(axis=0)
    targets = targets / np.repeat(np.where(largest > 0, largest, 1.0), sizes, axis=0)
    squares = np.add.reduceat(targets**2, starts, axis=0)
    degrees = (sizes - 1.0)[:, None]
    if small.any():
        squares[small] = squares[small].sum(axis=0)
        degrees[small] = sizes[small].sum() - 1
    deviations = np.sqrt(squares / degrees)
    return targets / np.repeat(np.where(deviations > 0, deviations, 1.0), sizes, axis=0)


# Distances --------------------------------------------------------------------------------------
# Distances between sets of rows by which other methods rank public data.
#
# Functions of checked arrays. Nothing here adds noise: a distance from private rows is not private.

# Weight of the penalty of the probe, relative to the mean loss of rows scaled to one length.
_PENALTY = 1e-3


@dataclass(frozen=True)
class LabelledRows:
    X: Any  # ndarray or CSR array (n, d)
    codes: np.ndarray | None = None

    @property
    def scale(self) -> float:
        return float(abs(self.X).max())

    def sample(self, size: int, seed: int) -> LabelledRows:
        chosen = sampled(self.X.shape[0], size, np.random.default_rng(seed))
        return LabelledRows(self.X[chosen], None if self.codes is None else self.codes[chosen])

    def scaled(self, scale: float) -> LabelledRows:
        X = self.X.astype(np.float64, copy=True)
        if sparse.issparse(X):  # scipy would multiply by the inverse, which may be inf
            X.data /= scale
        else:
            X /= scale
        return LabelledRows(X, self.codes)


def _common_scale(first: LabelledRows, second: LabelledRows) -> float:
    return max(first.scale, second.scale) or 1.0


# Task2Vec (Achille et al., 2019) -------------------------------------------------------------


def fisher_distance(first: LabelledRows, second: LabelledRows) -> float:
    scale = _common_scale(first, second)
    a, b = (fisher_information(rows.scaled(scale)) for rows in (first, second))
    known = a + b > 0
    a, b = a[known] / (a + b)[known], b[known] / (a + b)[known]
    if not (a.any() and b.any()):  # an empty set of features equals itself and no other
        return 1.0 if a.any() or b.any() else 0.0
    difference = a / np.linalg.norm(a) - b / np.linalg.norm(b)
    return float(difference @ difference / 2)


def fisher_information(rows: LabelledRows) -> np.ndarray:
    """Fisher information of the weights of each feature in a linear softmax probe (d,).

    Summed over classes: the mean of ``x_a^2 sum_l p_l (1 - p_l)``, for labels that are drawn from
    the probe. Without labels the probe has zero weights, and the sum is the same for all rows.
    """
    spread = np.ones(rows.X.shape[0])
    if rows.codes is not None:
        probabilities = _probabilities(rows.X, rows.codes)
        spread = (probabilities * (1 - probabilities)).sum(axis=1)
    squares = rows.X.power(2) if sparse.issparse(rows.X) else rows.X**2
    return squares.T @ spread / len(spread)


def _probabilities(X: Any, codes: np.ndarray) -> np.ndarray:
    mean = X.mean(axis=0)
    Z = X if sparse.issparse(X) else X - mean
    variance = _squares(Z).mean() - (mean @ mean if sparse.issparse(X) else 0.0)
    scale = max(float(variance), 0.0) ** 0.5 or 1.0
    strength: Any = {"C": 1 / (_PENALTY * len(codes))}
    head = LogisticRegression(**strength, solver="newton-cg", max_iter=1000, tol=1e-6)
    return head.fit(Z / scale, codes).predict_proba(Z / scale)


# Optimal transport (Alvarez-Melis and Fusi, 2020) --------------------------------------------


def transport_cost(first: LabelledRows, second: LabelledRows) -> float:
    """Mean cost of the cheapest pairing of the rows of two sets of one size.

    A pair costs the squared distance of its rows; with labels, also the squared Wasserstein
    distance of the Gaussians of its two classes.
    """
    scale = _common_scale(first, second)
    first, second = first.scaled(scale), second.scaled(scale)
    if not (sparse.issparse(first.X) or sparse.issparse(second.X)):
        # Costs do not change if all rows are shifted, and rounding is smallest about their mean.
        middle = (first.X.mean(axis=0) + second.X.mean(axis=0)) / 2
        first, second = (replace(rows, X=rows.X - middle) for rows in (first, second))
    inner = _dense(first.X @ second.X.T)
    costs = _squares(first.X)[:, None] + _squares(second.X) - 2 * inner
    extra = np.zeros_like(costs)
    if first.codes is not None and second.codes is not None:
        extra = label_costs(first, second, inner)[first.codes][:, second.codes]
    chosen = linear_sum_assignment(costs + extra)
    # From differences, which are exactly zero for equal rows; the costs above have rounding errors.
    moved = _squares(first.X[chosen[0]] - second.X[chosen[1]]).mean() + extra[chosen].mean()
    return float(moved) * scale * scale


def label_costs(first: LabelledRows, second: LabelledRows, inner: np.ndarray) -> np.ndarray:
    """Squared 2-Wasserstein distances of the Gaussians of two classes, one from each set.

    ``|m - m'|^2 + tr S + tr S' - 2 tr (S^1/2 S' S^1/2)^1/2``, where the last trace is the nuclear
    norm of ``S^1/2 S'^1/2``. With the centred rows A and B of both classes, ``S = A^T A / n`` and
    ``S' = B^T B / n'``, it is that of ``A B^T / sqrt(n n')`` (polar decompositions of A and
    B): a block of the inner products `inner` of all rows, centred both ways. So no
    covariance is formed, whatever the number of features.
    """
    (means, traces, members), (others, other_traces, other_members) = map(
        _gaussians, (first, second)
    )
    costs = _squares(means)[:, None] + _squares(others) - 2 * means @ others.T
    costs = costs + traces[:, None] + other_traces
    for i, rows in enumerate(members):
        for j, columns in enumerate(other_members):
            if min(len(rows), len(columns)) > 1:  # one row has no covariance
                block = inner[np.ix_(rows, columns)]
                block = block - block.mean(axis=0)
                block = block - block.mean(axis=1, keepdims=True)
                shared = float(np.sum(svdvals(block)))
                costs[i, j] -= 2 * shared / (len(rows) * len(columns)) ** 0.5
    return np.maximum(costs, 0.0)


def _gaussians(rows: LabelledRows) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Mean (c, d) and trace of the covariance (c,) of each class, and its rows.

    A class without rows has no cost: its numbers are never used.
    """
    codes = rows.codes
    assert codes is not None
    members = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    counts = np.array([max(len(each), 1) for each in members])
    indicator = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))))
    means = _dense(indicator @ rows.X) / counts[:, None]
    squares = np.bincount(codes, _squares(rows.X)) / counts
    return means, np.maximum(squares - _squares(means), 0.0), members


def _squares(X: Any) -> np.ndarray:
    return X.power(2).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if sparse.issparse(X) else X


# Spaces of gradients ----------------------------------------------------------------------------

# Default number of directions of gradients that are compared, as in the paper.
COMPONENTS = 16

# Most directions of a public span. The noise of a second moment grows with their square root.
WIDEST = 200

# Rows of each public set whose gradients by a module span the space: a gradient needs a pass
# through the module for every block of others.
_ANCHORS = 256

# Rows that go through a module before their products with the anchors are used.
_ROWS = 4096


class GradientSpace(Protocol):
    @property
    def width(self) -> int: ...

    @property
    def dimension(self) -> int:
        """Number of dimensions of gradients, or of rows in their place."""
        ...

    def spanned(self, sets: Sequence[np.ndarray], count: int) -> tuple[Self, list[int]]:
        """The leading directions of all public sets in turn, and the number of each set."""
        ...

    def joined(self) -> Self:
        """Orthonormal directions of the same span, at most `WIDEST`."""
        ...

    def embedded(self, X: Any) -> Any:
        """Coordinates of the gradients of checked rows, each divided by its norm, (n, width)."""
        ...

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Coordinates (k, width) of the leading directions of gradients of public rows."""
        ...

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        """Share of each row's energy along directions (k, width), over all labels, (n, k)."""
        ...

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        """Directions (k, width) as directions of features, where that is possible."""
        ...


# Linear models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureSpace:
    n_features: int  # Columns of the rows
    # (q, n_features): directions of features, of length 1; None stands for the whole space.
    axes: np.ndarray | None = None

    @property
    def width(self) -> int:
        return self.n_features if self.axes is None else len(self.axes)

    @property
    def dimension(self) -> int:
        return self.n_features

    def spanned(
        self, sets: Sequence[np.ndarray], count: int, *, centered: bool = False
    ) -> tuple[FeatureSpace, list[int]]:
        found = [_leading_features(rows, count, centered=centered) for rows in sets]
        return FeatureSpace(self.n_features, np.concatenate(found)), [*map(len, found)]

    def joined(self) -> FeatureSpace:
        if self.axes is None:
            return self
        weights = orthonormal(self.axes @ self.axes.T, WIDEST)
        return FeatureSpace(self.n_features, weights @ self.axes)

    def embedded(self, X: Any) -> Any:
        return X if self.axes is None else _coordinates(X, self.axes)

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        found = _leading_features(rows, count)
        return found if self.axes is None else found @ self.axes.T

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        return _coordinates(X, self.in_features(directions)) ** 2

    def apart(self, X: Any, others: Any) -> np.ndarray:
        """Coordinates of differences of unit rows, over their lengths; zero for equal rows."""
        assert self.axes is not None
        first, second = (
            unit_rows(rows.toarray() if sparse.issparse(rows) else rows) for rows in (X, others)
        )
        return unit_rows(first - second) @ self.axes.T

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        return directions if self.axes is None else directions @ self.axes


_FEATURE_SPACE = Record(
    FeatureSpace, n_features=Whole(axis="features"), axes=Maybe(NumberArray(("axes", "features")))
)


class _SpaceForm(Form):
    def plain(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, FeatureSpace):
            raise ValueError("gradients of a module of torch have no form there.")
        return _FEATURE_SPACE.plain(value)

    def read(self, plain: Any, here: Reading) -> FeatureSpace:
        return _FEATURE_SPACE.read(plain, here)


SPACE_FORM = _SpaceForm()


def _coordinates(X: Any, axes: np.ndarray) -> np.ndarray:
    """Coordinates of unit rows along axes (k, n_features), (n, k); zero for a row of zeros."""
    features = Features(X, RowMap(norm="l2"))
    return features.inner(slice(0, features.n_samples), axes)


def _leading_features(rows: np.ndarray, count: int, *, centered: bool = False) -> np.ndarray:
    unit = unit_rows(rows)
    if centered:
        unit = unit - unit.mean(axis=0)
    if len(unit) > unit.shape[1]:
        weights = leading_weights(unit.T @ unit, count)
        return weights / np.linalg.norm(weights, axis=1, keepdims=True)
    return leading_weights(unit @ unit.T, count) @ unit


# Modules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleSpace:
    """Gradients of a module at its weights, in coordinates of directions of public gradients.

    Labels are drawn uniformly from all classes, as in the paper.
    """

    # Gradients of the anchors, the public rows that define directions; no rows at first.
    gradients: ModuleGradients
    n_classes: int  # Number of labels to draw from
    seed: int  # Seed of the labels; public
    # (q, m): directions, as weights of the gradients of m anchors; none at first.
    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def width(self) -> int:
        return len(self.weights)

    @property
    def dimension(self) -> int:
        return self.gradients.n_params

    def spanned(self, sets: Sequence[np.ndarray], count: int) -> tuple[ModuleSpace, list[int]]:
        own = [_some(rows) for rows in sets]
        found = [leading_weights(self._of(rows).gram(), count) for rows in own]
        weights = np.zeros((sum(map(len, found)), sum(map(len, own))))
        start, column = 0, 0
        for part in found:
            weights[start : start + len(part), column : column + part.shape[1]] = part
            start, column = start + len(part), column + part.shape[1]
        labels = np.concatenate([self._labels(len(rows)) for rows in own])
        anchors = self.gradients.of_rows(np.concatenate(own), labels)
        return replace(self, gradients=anchors, weights=weights), [*map(len, found)]

    def joined(self) -> ModuleSpace:
        gram = self.weights @ self.gradients.gram() @ self.weights.T
        return replace(self, weights=orthonormal(gram, WIDEST) @ self.weights)

    def embedded(self, X: Any) -> np.ndarray:
        labels, found = self._labels(X.shape[0]), np.zeros((X.shape[0], self.width))
        for rows in slices(X.shape[0], _ROWS):
            of_rows = self.gradients.of_rows(X[rows], labels[rows])
            norms = np.sqrt(of_rows.squares())[:, None]
            products = of_rows.inner(self.gradients) @ self.weights.T
            np.divide(products, norms, out=found[rows], where=norms > 0)
        return found

    def leading(self, rows: np.ndarray, count: int) -> np.ndarray:
        of_rows = self._of(_some(rows))
        found = leading_weights(of_rows.gram(), count)
        return found @ of_rows.inner(self.gradients) @ self.weights.T

    def shares(self, X: Any, directions: np.ndarray) -> np.ndarray:
        found, c = np.zeros((X.shape[0], len(directions))), self.n_classes
        weights = (directions @ self.weights).T
        for rows in slices(X.shape[0], max(1, _ROWS // c)):
            some = X[rows]
            labels = np.tile(np.arange(c), len(some))
            of_rows = self.gradients.of_rows(np.repeat(some, c, axis=0), labels)
            along = (of_rows.inner(self.gradients) @ weights) ** 2
            along = along.reshape(len(some), c, -1).sum(axis=1)
            whole = of_rows.squares().reshape(len(some), c).sum(axis=1)[:, None]
            np.divide(along, whole, out=found[rows], where=whole > 0)
        return found

    def in_features(self, directions: np.ndarray) -> np.ndarray:
        return directions

    def _of(self, rows: np.ndarray) -> ModuleGradients:
        return self.gradients.of_rows(rows, self._labels(len(rows)))

    def _labels(self, n: int) -> np.ndarray:
        return random_labels(self.seed, self.n_classes, n)


def few(most: int, n_features: int) -> int:
    return min(most, max(1, n_features // 2))


def random_labels(seed: int, n_classes: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(n_classes, size=n)


def _some(rows: np.ndarray) -> np.ndarray:
    return rows[sampled(len(rows), _ANCHORS, np.random.default_rng(0))]
