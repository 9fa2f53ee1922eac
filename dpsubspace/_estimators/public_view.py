"""How public rows say to look at private ones: all columns, whitened, or few directions."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

import numpy as np

from dpsubspace._accounting.budget import Sizes
from dpsubspace._public.tasks import TaskSubspace, task_subspace
from dpsubspace._rows.affine import Affine
from dpsubspace._rows.data import Data

__all__ = ["AsTheyAre", "ColumnsOfTasks", "FewDirections", "PublicView", "View", "Whitened"]

# Part of the width of the range of public rows that private ones may lie beyond it, either side.
_MARGIN = 0.25

# Least width of such a range, in directions of about unit spread.
_FLAT = 1e-6


@dataclass(frozen=True)
class View:
    """A public map of rows.

    Parameters
    ----------
    affine : Affine
        The map.
    ranges : tuple (low, high), optional
        Of what it gives, where public rows tell them: its scale is about 1 then.
    subspace : TaskSubspace, optional
        The few directions that it sees.
    """

    affine: Affine
    ranges: tuple[np.ndarray, np.ndarray] | None = None
    subspace: TaskSubspace | None = None

    def about_zero(self, rows: np.ndarray) -> View:
        """The same for a model without a constant: nothing is subtracted from rows.

        Of root mean square 1 on public `rows`, where these told how to look at private ones.
        """
        if self.ranges is None or self.affine.diagonal:
            return self
        weights = self.affine.weights
        sizes = np.sqrt(((rows @ weights) ** 2).mean(axis=0))
        weights = weights / np.where(sizes > _FLAT, sizes, 1.0)
        affine = Affine(np.zeros(len(weights)), weights)
        return View(affine, _ranges(affine, rows), self.subspace)


class PublicView(Protocol):
    """How public rows say to look at private ones."""

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Whether public rows tell the ranges of what is seen."""
        ...

    def width(self, sizes: Sizes) -> int | None:
        """Numbers that are seen of a row, or more; None where that is not known."""
        ...

    def __call__(self, data: Data) -> View:
        """How to look at these; ValueError where public rows are no good."""
        ...


@dataclass(frozen=True)
class AsTheyAre:
    """Rows as they are."""

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Nothing is known of them."""
        return False

    def width(self, sizes: Sizes) -> int | None:
        """All columns."""
        return sizes.n_features

    def __call__(self, data: Data) -> View:
        """All columns."""
        return View(Affine.identity(data.X.shape[1]))


@dataclass(frozen=True)
class Whitened:
    """All directions, each in units of its spread among public rows (Cao, Zhang, 2025)."""

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Public rows do, where there are any."""
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        """As many as there are columns."""
        return sizes.n_features

    def __call__(self, data: Data) -> View:
        """All directions, or all columns where there are no public rows."""
        if data.public is None:
            return AsTheyAre()(data)
        rows = data.public.X
        mean, deviations = rows.mean(axis=0), rows.std(axis=0)
        # A column that is constant among public rows is taken to be like the others.
        scale = np.where(deviations > 0, deviations, _usual(deviations))
        scaled = (rows - mean) / scale
        m, d = scaled.shape
        # Correlations of few rows are too large: as if as many uncorrelated rows came beside them.
        moment = (scaled.T @ scaled + d * np.eye(d)) / (m + d)
        values, vectors = np.linalg.eigh(moment)
        weights = vectors / np.sqrt(values) / scale[:, None]
        affine = Affine(mean, weights)
        return View(affine, _ranges(affine, rows))


@dataclass(frozen=True)
class FewDirections:
    """The directions that matter in public tasks.

    Parameters
    ----------
    method : str
        How they are found.
    n_components : int or "auto"
        How many they are.
    """

    method: str
    n_components: int | str

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Public rows do, where there are any."""
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        """Number of directions; as many as columns where public rows will tell it."""
        few = sizes.n_public > 0 and isinstance(self.n_components, Integral)
        return int(self.n_components) if few else sizes.n_features

    def __call__(self, data: Data) -> View:
        """The directions, or all columns where there are no public rows."""
        if data.public is None:
            return AsTheyAre()(data)
        found = task_subspace(
            data.public.sets,
            data.public.targets,
            subspace=self.method,
            n_components=self.n_components,
        )
        affine = Affine(found.mean, found.directions)
        return View(affine, _ranges(affine, data.public.X), found)


@dataclass(frozen=True)
class ColumnsOfTasks:
    """All columns, each in units of its spread in public tasks, and directions that matter there.

    Parameters
    ----------
    n_components : int or "auto"
        How many directions they are.
    """

    n_components: int | str

    def tells_ranges(self, sizes: Sizes) -> bool:
        """Public rows do, where there are any."""
        return sizes.n_public > 0

    def width(self, sizes: Sizes) -> int | None:
        """As many as there are columns."""
        return sizes.n_features

    def __call__(self, data: Data) -> View:
        """All columns, and directions where there are public rows."""
        view = AsTheyAre()(data)
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
        return View(affine, _ranges(affine, data.public.X), found)


def _usual(deviations: np.ndarray) -> float:
    """Deviation of a column of which nothing is known."""
    known = deviations[deviations > 0]
    return float(np.median(known)) if len(known) else 1.0


def _ranges(affine: Affine, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of what the map gives for public rows, and some room for private ones."""
    mapped = rows - affine.mean
    mapped = mapped * affine.weights if affine.diagonal else mapped @ affine.weights
    low, high = mapped.min(axis=0), mapped.max(axis=0)
    # A direction that public rows do not vary in has no range of theirs.
    wide = np.where(high - low > _FLAT, high - low, 1 / _MARGIN)
    return low - _MARGIN * wide, high + _MARGIN * wide
