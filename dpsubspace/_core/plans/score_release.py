"""Releases from a model's outputs on private rows, and the metrics that are read from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.plans.score_request import PublicGroups, ScoreRequest
from dpsubspace._core.release.mechanisms import BoundedL1Sum
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.statistics.score_cells import (
    ERRORS,
    FINE,
    ScoreCells,
    bounded_sums,
    counted,
    error_cells,
    fine_edges,
    grouped_sums,
    largest_error,
    n_cells,
    on_simplex,
    quantile_edges,
    spread_of_scores,
    typical_scores,
)
from dpsubspace._core.statistics.score_metrics import METRICS, Counted, Summed, Value, mean_area
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

# Shares of epsilon: for the grid on which edges are found, for the bound on errors of regressors,
# for sums beside counts, and for predicted labels beside scores of many classes.
_EDGES, _RANGE, _SUMS_BESIDE, _LABELS_BESIDE = 0.15, 0.1, 0.3, 0.3

# Share of decision values in one cell of the public grid, or in the two beside 0, above which their
# order is hidden.
_IN_ONE = 0.9


def parts_of(asked: ScoreRequest) -> dict[str, Part]:
    """Releases, with their shares of epsilon."""
    parts, left = {}, 1.0
    if asked.sums:
        share = _SUMS_BESIDE if asked.ranked or asked.confusion else 1.0
        if asked.regression:
            parts["range"] = Part(_RANGE, kind="laplace")
        parts["sums"] = Part(share - _RANGE * asked.regression, kind="laplace")
        left -= share
    if asked.confusion:
        share = _LABELS_BESIDE * left if asked.ranked else left
        parts["confusion"] = Part(share, kind="laplace")
        left -= share
    if asked.ranked:
        parts["edges"] = Part(left * _EDGES, kind="laplace")
        parts["cells"] = Part(left * (1 - _EDGES), kind="laplace")
    return parts


@dataclass(frozen=True)
class RowScores:
    """Arrays of rows that are counted: nothing of them is public yet."""

    asked: ScoreRequest  # Requested metrics
    # Arrays of rows, where these lie: everything computed from them goes through `rowwise`.
    y: Any  # (n_rows,): index of each label, or targets
    classes: np.ndarray  # (c,): labels; none for a regressor
    records: Records  # Privacy units of the rows
    # (n_rows, k): scores of the second class, or of each class; None if no scores are counted.
    scores: Any
    probabilities: bool  # Whether scores are probabilities
    # Score from which the second class is predicted, where labels are read from scores.
    threshold: float | None
    predicted: Any  # (n_rows,): index of each predicted label; None if not needed
    numbers: Mapping[str, Any]  # Numbers that are summed
    # Unit of each of these numbers; for errors, the width of the bounds of targets.
    units: Mapping[str, float]
    by: PublicGroups | None = None  # Groups, each of which has a score

    def released(self, releases: Releases, rng: np.random.Generator) -> list[ReleasedCounts]:
        """Release all that was requested: results of all records, and then of each group."""
        asked, some = self.asked, 1 if self.by is None else self.by.n_groups
        cells: list[list[Counted]] = [[] for _ in range(some)]
        labels: list[Counted | None] = [None] * some
        sums: list[Summed | None] = [None] * some
        if asked.ranked:
            cells = self._cells(releases, rng)
        if asked.confusion:
            labels = [*self._confusion(releases, rng)]
        elif self.threshold is not None:
            labels = [each[0] for each in cells]
        if asked.sums:
            sums = [*self._means(releases)]
        if asked.errors_together:
            sums = [None if each is None else each.in_order() for each in sums]
        return [ReleasedCounts(*each, rng) for each in zip(cells, labels, sums, strict=True)]

    def _counts(
        self, releases: Releases, name: str, cells: Any, size: int, *, apart: bool = False
    ) -> tuple[np.ndarray, float]:
        """Released counts of shape (n_groups, k, size), and the scale of their noise.

        Groups are counted `apart` or all rows in one.
        """
        groups = 1
        if apart and self.by is not None:
            groups = self.by.n_groups
            cells = cells[:, None] if cells.ndim == 1 else cells
            cells = cells + size * self.by.group[:, None]
        total = counted(cells, groups * size, self.records)
        found = releases.laplace(name, total).reshape(-1, groups, size)
        return found.swapaxes(0, 1), _scale(releases, name, total)

    def _parts(
        self, counts: np.ndarray, scale: float
    ) -> Iterator[tuple[np.ndarray, float, int, bool]]:
        """Counts of all records, whose number is public, and then of each group.

        Each comes with the scale of its noise, the number of records, and whether it is of a group.
        Noise of a sum over groups is not that of one Laplace variable, but has no longer tails than
        a Laplace variable of the same variance.
        """
        n = self.records.n
        yield counts.sum(axis=0), scale * math.sqrt(len(counts)), n, False
        for each in counts[:-1]:
            yield each, scale, max(round(float(each.sum())), 1), True

    def _cells(self, releases: Releases, rng: np.random.Generator) -> list[list[Counted]]:
        """Counts of scores and labels between edges that are released first."""
        fine, grids = self._grids(releases)
        k, private = self.scores.shape[1], releases.budget.private
        n = max(self.records.n // (1 if self.by is None else len(self.by.levels)), 1)
        few = n_cells(n, releases.budget.scales["cells"] / k) if private else 0
        edges = [self._edges(*each, few) for each in zip(fine, grids, strict=True)]
        size, first = 2 * (max(map(len, edges)) - 1), -1
        if self.threshold is not None:
            first = int(np.searchsorted(edges[0][1:-1], self.threshold)) + 1
        cells = self._cells_of_scores(edges, first)
        counts, scale = self._counts(releases, "cells", cells, size, apart=True)
        found = []
        for j in range(k):
            classes = self.classes if k == 1 else np.array(["others", str(self.classes[j])])
            held = counts[:, j, : 2 * len(edges[j]) - 2].reshape(len(counts), -1, 2)
            typical = typical_scores(fine[j], grids[j], edges[j], probabilities=self.probabilities)
            found.append([])
            for part, scaled, n, of_group in self._parts(held, scale):
                spread = np.zeros(len(part))
                if private:
                    spread = spread_of_scores(fine[j], grids[j], edges[j], part)
                each = ScoreCells(
                    edges[j], part, typical, scaled, n, classes, self.probabilities, first, spread
                )
                each = each.flipped() if self.asked.flipped else each
                about = (self.asked.flipped, of_group, self.asked.labels_together)
                found[j].append(Counted(each, None, scaled, n, rng, *about))
        return [[*each] for each in zip(*found, strict=True)]

    def _cells_of_scores(self, edges: list[np.ndarray], first: int) -> Any:
        """Cells of scores and labels, (n_rows, k).

        `first` is that of the second class, or -1: where it is known, rows are on the side that
        their predicted labels say, should these differ from scores by rounding or a rule of the
        model's own.
        """
        cells, predicted = [], self.predicted
        for j, each in enumerate(edges):
            places = np.searchsorted(each[1:-1], self.scores[:, j])
            if first >= 0:
                places = np.where(predicted == 1, np.maximum(places, first), places)
                places = np.where(predicted == 0, np.minimum(places, first - 1), places)
            cells.append(2 * places + (self.y == (1 if len(edges) == 1 else j)))
        return np.column_stack(cells)

    def _grids(self, releases: Releases) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Counts of scores on a grid, of which edges are found, and the grid."""
        if not releases.budget.private:
            columns = self.scores.T
            grids = [_between(each) for each in columns]
            pairs = [*zip(grids, columns, strict=True)]
            fine = [np.bincount(np.searchsorted(g, c), minlength=len(g) + 1) for g, c in pairs]
            return [each.astype(np.float64) for each in fine], grids
        grid = fine_edges(probabilities=self.probabilities)
        cells = np.searchsorted(grid, self.scores)
        counts, _ = self._counts(releases, "edges", cells, FINE)
        n = self.records.n
        fine = [on_simplex(each, n) for each in counts[0]]
        beside = slice(FINE // 2 - 1, FINE // 2 + 1)
        most = max(max(each.max(), each[beside].sum()) for each in fine)
        if not self.probabilities and most > _IN_ONE * n:
            _warn_of_scale()
        return fine, [grid] * len(fine)

    def _edges(self, fine: np.ndarray, grid: np.ndarray, k: int) -> np.ndarray:
        """Edges of `k` cells, or of one cell for each score if `k` is 0."""
        if k:
            return quantile_edges(fine, grid, k, self.threshold)
        inner = grid if self.threshold is None else np.unique([*grid, self.threshold])
        return np.concatenate([[-np.inf], inner, [np.inf]])

    def _confusion(self, releases: Releases, rng: np.random.Generator) -> Iterator[Counted]:
        """Counts of true and predicted labels."""
        c, flipped = len(self.classes), self.asked.flipped
        cells = self.y * c + self.predicted
        counts, scale = self._counts(releases, "confusion", cells, c * c, apart=True)
        for part, scaled, n, of_group in self._parts(counts.reshape(-1, c, c), scale):
            matrix = part[::-1, ::-1] if flipped else part
            yield Counted(
                None, matrix, scaled, n, rng, flipped, of_group, self.asked.labels_together
            )

    def _means(self, releases: Releases) -> Iterator[Summed]:
        """Means of bounded numbers, of errors between bounds that are released first."""
        records, asked = self.records, self.asked.sums
        shares, largest = np.array([*asked.values()]), 1.0
        if "range" in releases and releases.budget.private:
            cells = rowwise(error_cells, self.numbers["error"])
            counts, scale = self._counts(releases, "range", cells, ERRORS)
            largest = largest_error(counts[0, 0], scale, records.n)
        columns = [_column(self._base(name), name, largest) for name in asked]
        values = np.column_stack(columns)
        if self.by is None:
            total, groups = bounded_sums(values, shares, records), 1
        else:
            groups = self.by.n_groups
            total = grouped_sums(values, shares, records, self.by.group, groups)
        sums, scale = releases.laplace("sums", total), _scale(releases, "sums", total)
        whole, rows = sums.reshape(groups, -1, len(shares)), records.n
        means, spread = whole[:, 0].sum(axis=0) / rows, scale * math.sqrt(groups) / rows
        yield Summed.of(asked, means, spread, rows, self.units, largest)
        if self.by is not None:
            for pair in whole[:-1]:
                yield Summed.of_group(asked, pair, scale, self.units, largest)

    def _base(self, name: str) -> Any:
        """Numbers that a name such as "error^2" refers to."""
        return self.numbers[name.partition("^")[0]]


# What is made of single rows, where they are.


def _column(numbers: np.ndarray, name: str, largest: float) -> np.ndarray:
    """Numbers in [0, 1] that are added up under a name, such as "error^2"."""
    base, _, power = name.partition("^")
    exponent = int(power or 1)
    if base == "t":
        return numbers**exponent if exponent % 2 == 0 else (numbers**exponent + 1) / 2
    return np.clip(numbers / largest, 0.0, 1.0) ** exponent


@dataclass(frozen=True)
class ReleasedCounts:
    """Released numbers, from which metrics are read."""

    cells: list[Counted]  # Counts by score: of the second of two classes, or of each of several
    labels: Counted | None  # Counts from which metrics of labels are read
    sums: Summed | None  # Means
    rng: np.random.Generator  # For samples

    def value(self, metric: str, level: float) -> Value | PrivacyError:
        """Return a metric, or the reason why there is none."""
        asked = METRICS[metric]
        counts = self.cells if asked.cells else []
        if asked.formula is not None and self.labels is not None:
            counts = [self.labels]
        if counts:
            few = [each.too_few("roc_auc" if len(counts) > 1 else metric) for each in counts]
            hidden = [each for each in few if each is not None]
            if hidden:
                return _hidden(metric, min(hidden), whole=asked.of_all_rows)
            if len(counts) > 1:
                return mean_area([each.value("roc_auc", level) for each in counts])
            return counts[0].value(metric, level)
        assert self.sums is not None
        if self.sums.few is not None:
            return _hidden(metric, self.sums.few, whole=True)
        value = self.sums.value(metric, level, self.rng)
        return _hidden_variance() if value is None else value

    def cells_of(self, metric: str) -> ScoreCells | None:
        """Counts by score that a metric was read from."""
        asked = METRICS[metric]
        of_labels = asked.formula is not None
        if len(self.cells) != 1 or not (asked.cells or of_labels) or metric == "roc_auc_ovr":
            return None
        return None if of_labels and self.labels is None else self.cells[0].cells


def _hidden(metric: str, few: float, *, whole: bool = False) -> PrivacyError:
    if whole:  # a group, all of whose rows matter
        return PrivacyError(
            f"the noisy number of rows of the group is {max(few, 0.0):.0f}, which the noise hides:"
            f" {metric!r} would say nothing. What was released stays charged."
        )
    return PrivacyError(
        f"the noisy number of rows of the smallest class that {metric!r} depends on is"
        f" {max(few, 0.0):.0f}, which the noise hides: it would say nothing. More rows or"
        " a larger epsilon help; 'accuracy' needs no rows of each class. What was released"
        " stays charged."
    )


def _hidden_variance() -> PrivacyError:
    return PrivacyError(
        "the noise hides how much targets vary, which 'r2' depends on: tighter `target_bounds`,"
        " more rows or a larger epsilon help; 'root_mean_squared_error' does not depend"
        " on it. What was released stays charged."
    )


def _warn_of_scale() -> None:
    """Warn if released counts show decision values of another size than the grid is made for."""
    warn(
        "nearly all decision values of the model fall into one bin of the histogram from which"
        " scores are computed. (The bins next to 0 end at 0.0007, and the others are about as"
        " wide as they are far from 0.) So"
        " the order of the values is lost, and metrics that depend on it are useless, with their"
        " intervals. Use a model with `predict_proba`, or scale the features so that decision"
        " values are about 1 in size.",
        PrivacyWarning,
        about=("scale of scores",),
    )


def _scale(releases: Releases, name: str, total: BoundedL1Sum) -> float:
    """Scale of the Laplace noise of a release."""
    budget = releases.budget
    if not budget.private:
        return 0.0
    zero_out = budget.target.neighboring_relation == "zero_out"
    return (total.norm_bound if zero_out else total.replace_bound) / budget.scales[name]


def _between(scores: np.ndarray, most: int = 2048) -> np.ndarray:
    """Inner edges of cells with one score each, if there are at most `most` scores."""
    scores = np.unique(scores)
    if len(scores) > most:
        scores = np.unique(np.quantile(scores, np.linspace(0, 1, most)))
    finite = np.clip(scores, -1e300, 1e300)
    middles = finite[:-1] / 2 + finite[1:] / 2
    return np.unique(middles) if len(middles) > 1 else np.array([-1.0, 1.0])
