"""Views of private rows that public rows suggest, and the standards of columns and targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from dpsubspace._core.accounting.budget import Part, Sizes
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.public.tasks import (
    METHODS,
    TaskPrior,
    TaskSubspace,
    explained_elsewhere,
    label_task_prior,
    task_prior,
    task_subspace,
)
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.public import Data
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.solvers.regression import Level
from dpsubspace._core.statistics.scales import SCALES, Scales, noisy_scales, scale_share
from dpsubspace._core.statistics.shapes import Standard, noisy_standard

# Standards --------------------------------------------------------------------------------------
# Columns and targets are standardised by public ranges, or by what noisy counts show.

COLUMNS, TARGETS = "columns", "targets"

# Number of columns that is assumed where it is not known: any number costs the same.
_SOME = 10

# Scale where none is found: predictions are then about 0, whatever the noise is.
_NOTHING = 1e-100

# How far private rows may be from public rows that show their scale, in units of the usual limit.
_DIFFERENT = 2.5


@dataclass(frozen=True)
class Standardised:
    """Location and scale of columns and of targets, and for which of them these were found.

    Standardised entries of rows are clipped to `limit`.
    """

    columns: Standard
    targets: Standard
    found: Mapping[str, np.ndarray]
    limit: float


@dataclass(frozen=True)
class Standards:
    columns: Any  # Public ranges. With None, they are found, wherever they are.
    targets: Any
    reach: float  # Number of rows over the noise multiplier of the whole fit
    # Whether columns are assumed to have location 0 and scale 1 already: nothing is released then.
    trust_public_scale: bool = False
    importance: np.ndarray | None = None  # How much columns between public ranges count

    def parts(self, n_columns: int | None) -> dict[str, Part]:
        share, parts = self._share(n_columns), {}
        if share:
            names = [name for name in SCALES if self.columns is None or name != "lengths"]
            total = sum(SCALES[name].share for name in names)
            parts = {
                name: replace(SCALES[name], share=share * SCALES[name].share / total)
                for name in names
            }
        if self.columns is not None and not self.trust_public_scale:
            parts[COLUMNS] = Part(auto.STANDARD_SHARE)
        if self.targets is not None:
            parts[TARGETS] = Part(auto.TARGET_SHARE)
        return parts

    def _share(self, n_columns: int | None) -> float:
        if self.columns is None:
            return scale_share(1 / self.reach, n_columns or _SOME)
        return scale_share(1 / self.reach, 1) / 2 if self.targets is None else 0.0

    def __call__(self, seen: AffineRows, targets: Any, releases: Releases) -> Standardised:
        columns = None if self.columns is not None else to_numpy(seen.data)
        values = None if self.targets is not None else to_numpy(targets)
        estimated = noisy_scales(columns, values, releases)
        own, own_found = self._between(self.columns, estimated[0], seen, releases, COLUMNS)
        identity = Affine.identity(targets.shape[1])
        records = rowwise(getattr, seen, "records")  # where the rows are
        rows = rowwise(AffineRows, targets, identity, constant=False, records=records)
        theirs, found = self._between(self.targets, estimated[1], rows, releases, TARGETS)
        limit = auto.FAR * (_DIFFERENT if self.trust_public_scale else 1.0)
        all_found = {"bounds": own_found, "target_bounds": found}
        return Standardised(own, theirs, all_found, limit if releases.budget.private else math.inf)

    def _between(
        self, ranges: Any, estimated: Scales, rows: AffineRows, releases: Releases, name: str
    ) -> tuple[Standard, np.ndarray]:
        """Means and deviations, between ranges if these are known, and whether each was found."""
        if ranges is None:
            # A column not found may be anywhere, and must not decide how large predictions are.
            found = estimated.found if releases.budget.private else np.ones(rows.width, bool)
            scale = np.where(estimated.scale > 0, estimated.scale, 1.0)
            scale = np.where(found, scale, _NOTHING)
            return Standard(np.where(found, estimated.location, 0.0), scale), estimated.found
        known = np.ones(rows.width, bool)
        if self.trust_public_scale and name == COLUMNS:
            return Standard(np.zeros(rows.width), np.ones(rows.width)), known
        low, high = (np.broadcast_to(np.asarray(end, float), rows.width) for end in ranges)
        importance = self.importance if name == COLUMNS else None
        return noisy_standard(rows, low, high, releases, name, importance), known


# Public views -----------------------------------------------------------------------------------

# Margin for private rows on either side of the range of public rows, as a part of its width.
_MARGIN = 0.25

# Least width of such a range, in directions of about unit spread.
_FLAT = 1e-6

# Most directions that are searched for where no number is given.
_MOST = 64

# Expected error over the least error, up to which fewer directions are used.
_ALIKE = 1.05

# Shares of the variance of a target that directions and all others are assumed to explain, where
# public tasks do not show them.
_UNTOLD = 0.25, 0.25


@dataclass(frozen=True)
class View:
    affine: Affine  # The map
    # Ranges of mapped entries, where public rows show them: their scale is about 1 then.
    ranges: tuple[np.ndarray, np.ndarray] | None = None
    subspace: TaskSubspace | None = None  # The few directions that it sees
    tasks: TaskPrior | None = None  # Prior of models of public tasks, for rows after the map
    levels: tuple[Level, ...] = ()  # Expectations for the entries that the map gives

    @property
    def importance(self) -> np.ndarray | None:
        """Factors by which mapped entries should count; None if all count alike."""
        if not self.levels:
            return None
        return np.concatenate([np.full(level.size, level.importance) for level in self.levels])

    def about_zero(self, rows: np.ndarray) -> View:
        """Return this view for a model without a constant: nothing is subtracted from rows.

        Mapped entries have root mean square 1 on public `rows`, where public rows define the view.
        """
        if self.ranges is None or self.affine.diagonal:
            return self
        weights = self.affine.weights
        sizes = np.sqrt(((rows @ weights) ** 2).mean(axis=0))
        weights = weights / np.where(sizes > _FLAT, sizes, 1.0)
        affine = Affine(np.zeros(len(weights)), weights)
        return replace(self, affine=affine, ranges=_ranges(affine, rows))


class PublicView(Protocol):
    """Rule by which public rows define a view of private rows."""

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Return whether public rows show the ranges of mapped entries."""
        ...

    def width(self, sizes: Sizes) -> int | None:
        """Number of mapped entries of a row, or an upper bound; None if that is not known."""
        ...

    def __call__(self, data: Data, reach: float) -> View:
        """Return the view for some data; ValueError if their public rows cannot be used.

        `reach` is the number of records over the noise multiplier of the whole fit.
        """
        ...


@dataclass(frozen=True)
class AsTheyAre:
    def tells_ranges(self, sizes: Sizes) -> bool:
        return False

    def width(self, sizes: Sizes) -> int | None:
        return sizes.n_features

    def __call__(self, data: Data, reach: float) -> View:
        return View(Affine.identity(data.X.shape[1]))


@dataclass(frozen=True)
class Whitened:
    """All directions, each in units of its spread among public rows (Cao, Zhang, 2025)."""

    def tells_ranges(self, sizes: Sizes) -> bool:
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        return sizes.n_features

    def __call__(self, data: Data, reach: float) -> View:
        if data.public is None:
            return AsTheyAre()(data, reach)
        rows = data.public.X
        mean, deviations = rows.mean(axis=0), rows.std(axis=0)
        # A column that is constant among public rows is assumed to be like the others.
        scale = np.where(deviations > 0, deviations, _usual(deviations))
        scaled = (rows - mean) / scale
        m, d = scaled.shape
        # Correlations of few rows are too large: as if d uncorrelated rows were added to them.
        moment = (scaled.T @ scaled + d * np.eye(d)) / (m + d)
        values, vectors = np.linalg.eigh(moment)
        weights = vectors / np.sqrt(values) / scale[:, None]
        affine = Affine(mean, weights)
        return View(affine, _ranges(affine, rows))


@dataclass(frozen=True)
class FewDirections:
    """Directions of public tasks; with "auto" for their number, also others, by what they explain.

    Their number, and the factor by which the others count, should make the error of predictions
    least: the more rows there are for the noise, the more is learned.
    """

    method: str  # How directions are found
    n_components: int | str  # Number of directions

    def tells_ranges(self, sizes: Sizes) -> bool:
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        few = sizes.n_public > 0 and isinstance(self.n_components, Integral)
        return int(self.n_components) if few else sizes.n_features

    def __call__(self, data: Data, reach: float) -> View:
        if data.public is None:
            return AsTheyAre()(data, reach)
        public, number = data.public, self.n_components
        expected = None
        if number == "auto" and not METHODS[self.method].of_features:
            number, expected = self._number(data, reach)
        found = task_subspace(
            public.sets,
            public.targets,
            subspace=self.method,
            n_components=number,
            whole=self.n_components == "auto",
        )
        if found.others is None:
            affine = Affine(found.mean, found.directions)
            return View(affine, _ranges(affine, public.X), found)
        k, rest = found.directions.shape[1], found.others.shape[1]
        inside, outside = _UNTOLD if expected is None else expected
        factor, _ = auto.importance_of_rest(
            inside, outside, k, rest, n_samples=data.records.n, reach=reach
        )
        levels, directions = (), found.directions
        if factor > 0 and rest:
            levels = Level(k, inside), Level(rest, outside, factor)
            directions = np.hstack([directions, found.others])
        affine = Affine(found.mean, directions)
        return View(affine, _ranges(affine, public.X), found, levels=levels)

    def _number(self, data: Data, reach: float) -> tuple[int | str, tuple[float, float] | None]:
        """Best number of directions, and the shares of targets that they and the others explain."""
        assert data.public is not None
        sets, targets = data.public.sets, data.public.targets
        usual = explained_elsewhere(sets, targets, "pairs", _MOST)
        if usual is None:
            return "auto", None
        errors = [
            auto.importance_of_rest(one, off, k, usual.rank - k, data.records.n, reach)[1]
            for k, (one, off) in enumerate(zip(usual.inside, usual.outside, strict=True), start=1)
        ]
        k = 1 + int(np.argmax(np.array(errors) <= _ALIKE * min(errors)))
        own = explained_elsewhere(sets, targets, self.method, k) or usual
        return k, (float(own.inside[-1]), float(own.outside[-1]))


@dataclass(frozen=True)
class ColumnsOfTasks:
    """All columns, each in units of its spread in public tasks; directions that matter there."""

    n_components: int | str  # Number of these directions
    intercept: bool = True  # Whether models have a constant
    labels: bool = False  # Whether targets are labels 0 and 1

    def tells_ranges(self, sizes: Sizes) -> bool:
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        return sizes.n_features

    def __call__(self, data: Data, reach: float) -> View:
        view = AsTheyAre()(data, reach)
        if data.public is None:
            return view
        found = task_subspace(
            data.public.sets,
            data.public.targets,
            subspace="alternating",
            n_components=self.n_components,
        )
        mean, deviations = data.public.X.mean(axis=0), data.public.X.std(axis=0)
        scale = np.where(deviations > 0, deviations, _usual(deviations))
        affine = Affine(mean, 1 / scale)
        sets, targets = data.public.sets, data.public.targets
        assert targets is not None
        ends = np.cumsum([len(rows) for rows in sets])[:-1]
        each = np.split(np.reshape(targets, -1), ends)
        prior = label_task_prior if self.labels else task_prior
        tasks = prior(sets, each, affine, intercept=self.intercept)
        return View(affine, _ranges(affine, data.public.X), found, tasks)


def _usual(deviations: np.ndarray) -> float:
    known = deviations[deviations > 0]
    return float(np.median(known)) if len(known) else 1.0


def _ranges(affine: Affine, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of mapped public rows, with some room for private rows."""
    mapped = rows - affine.mean
    mapped = mapped * affine.weights if affine.diagonal else mapped @ affine.weights
    low, high = mapped.min(axis=0), mapped.max(axis=0)
    # Public rows give no range along a direction in which they do not vary.
    wide = np.where(high - low > _FLAT, high - low, 1 / _MARGIN)
    return low - _MARGIN * wide, high + _MARGIN * wide
