"""Difference of a metric between two fitted models on the same private rows.

Where to check the privacy claim: :meth:`DifferencePlan.run` is all of it. Both models are shown the
rows by :class:`PairedRows`, and ``_core/statistics/score_cells.py`` bounds what a record
contributes: ``difference_sums`` to means, ``counted`` to counts. Noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.fits.held_out import warn_of_training_rows
from dpsubspace._core.fits.outputs import NUMBERS, Outputs, by_record, check_types_for
from dpsubspace._core.plans.score_request import ScoreRequest
from dpsubspace._core.plans.score_rows import ScoredRows
from dpsubspace._core.release.mechanisms import BoundedL1Sum
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.elsewhere import load
from dpsubspace._core.rows.records import Records, check_groups, split_groups
from dpsubspace._core.rows.remote import ROWS, rowwise
from dpsubspace._core.statistics.score_cells import (
    ERRORS,
    FINE,
    counted,
    difference_sums,
    error_cells,
    fine_edges,
    largest_error,
    on_simplex,
    quantile_edges,
    spread_of_scores,
)
from dpsubspace._core.statistics.score_differences import (
    OUTCOMES,
    PAIRED,
    PairedCounts,
    PairedMeans,
    exact_areas,
)
from dpsubspace._core.statistics.score_metrics import (
    CLEAR,
    CLEAR_VARIANCE,
    METRICS,
    Value,
    clear_of_noise,
)
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, warn

# Shares of epsilon for a bound on differences, and for the grids on which edges are found.
_RANGE, _EDGES = 0.1, 0.15

_HARM = "the difference will be about the training rows, and not about new ones."


@dataclass(frozen=True)
class PairedMetric:
    """Requested metric of two models, and the releases that it needs."""

    asked: ScoreRequest
    n_classes: int  # 0 for regressors

    @property
    def plain(self) -> str:
        return self.asked.plain[0]

    @property
    def ranked(self) -> bool:
        return METRICS[self.plain].cells

    @property
    def counts(self) -> bool:
        """Whether it follows from counts of rows by class and by which model is right."""
        return not self.ranked and self.plain not in PAIRED

    def parts(self) -> dict[str, Part]:
        """Releases, with their shares of epsilon."""
        if self.ranked:
            shares = {"edges": _EDGES, "cells": 1 - _EDGES}
        elif self.counts:
            shares = {"counts": 1.0}
        elif PAIRED[self.plain].ranged:
            shares = {"range": _RANGE, "sums": 1 - _RANGE}
        else:
            shares = {"sums": 1.0}
        return {name: Part(share, kind="laplace") for name, share in shares.items()}

    def budget(self, target: Target, n: int) -> Budget:
        return Budget.split(target, self.parts(), n)

    def unit(self, says: Outputs) -> float:
        """Return the value of 1 of the metric in numbers."""
        if self.plain == "r2" or self.plain not in PAIRED:
            return 1.0
        base = PAIRED[self.plain].base
        if base != "square":
            return NUMBERS[base].unit(says)
        return says.width if METRICS[self.plain].root else says.width**2


# Rows -------------------------------------------------------------------------------------------

# Names of arrays with an entry for each row: of which both models' scores, of the cell by class and
# outcome, and of the difference of a number.
_SCORES, _CELL, _DIFFERENCE = "scores", "cell", "d"


@dataclass(frozen=True)
class PairedRows:
    """Checked rows, with two models that have no outputs for them yet."""

    rows: ScoredRows  # With the first model
    other: Outputs  # The second model
    paired: PairedMetric

    @property
    def records(self) -> Records:
        return self.rows.records

    @property
    def n_features(self) -> int:
        return self.rows.n_features

    def compute(self) -> Mapping[str, Any]:
        found = by_record(self.rows.X, self.records, self._outputs)
        return {**found, ROWS: self.rows.y}

    def _outputs(self, X: Any, places: Any) -> dict[str, np.ndarray]:
        """Return what is counted or added up of some of the rows."""
        y, paired = self.rows.y[places], self.paired
        first, second = (says.of(X, y) for says in (self.rows.says, self.other))
        if paired.ranked:
            return {_SCORES: np.column_stack([first.scores[:, 0], second.scores[:, 0]])}
        if paired.counts:
            classes = len(first.classes) - 1 - y if paired.asked.flipped else y
            wrong = [1 - NUMBERS["hit"].of(each).astype(np.intp) for each in (first, second)]
            # Both right, the first alone, the second alone, none: the first wrong counts two.
            return {_CELL: OUTCOMES * classes + 2 * wrong[0] + wrong[1]}
        return _numbers(paired.plain, first, second)


def _numbers(plain: str, first: Outputs, second: Outputs) -> dict[str, np.ndarray]:
    """Return the numbers of each row that are added up, by their names in PAIRED."""
    base = PAIRED[plain].base
    if base != "square":
        one, two = (NUMBERS[base].of(each) for each in (first, second))
        return {_DIFFERENCE: one - two}
    one, two = (NUMBERS["error"].of(each) ** 2 for each in (first, second))
    found, target = {_DIFFERENCE: one - two}, NUMBERS["t"].of(first)
    of_target = {"level": (one + two) / 2, "t": (target + 1) / 2, "t^2": target**2}
    return found | {name: of_target[name] for name in PAIRED[plain].beside}


@dataclass(frozen=True)
class PairedParts:
    """Checked rows of Dask collections, with all outputs of both models made where blocks lie."""

    arrays: Mapping[str, Any]
    records: Records
    n_features: int

    @classmethod
    def checked(
        cls, paired: PairedMetric, says: tuple[Outputs, Outputs], X: Any, y: Any, groups: Any
    ) -> PairedParts:
        """Return checked rows; ValueError, which shows no entry, if the data cannot be scored."""
        for each in says:
            check_types_for(each.model, X)
        alone = split_groups(groups)[0] is not None
        arrays = load(X, y, _PairedBlock(paired, says, alone), *split_groups(groups))
        width = X.shape[1] if len(getattr(X, "shape", ())) > 1 else 1
        return cls(arrays, check_groups(groups, arrays[ROWS]), width)

    def compute(self) -> Mapping[str, Any]:
        return self.arrays


@dataclass(frozen=True)
class _PairedBlock:
    """Arrays of a block of rows that are counted or added up, made where the block lies.

    With persons, each row is shown to the models `alone`, as ``_BlockOfScores`` of
    ``_core/plans/score_rows.py`` explains.
    """

    paired: PairedMetric
    says: tuple[Outputs, Outputs]
    alone: bool

    def __call__(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a block; ValueError if the block cannot be used."""
        kinds = self._kinds()
        if not len(y):
            return {name: np.empty((0, *shape), kind) for name, (kind, shape) in kinds.items()}
        each = np.arange(len(y)) if self.alone else None  # as if every row were a person
        first, second = self.says
        rows = ScoredRows.checked(first, self.paired.asked, None, X, y, each)
        found = PairedRows(rows, second, self.paired).compute()
        return {name: found[name].astype(kind) for name, (kind, _) in kinds.items()}

    def _kinds(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Types of the arrays of a block, and their shapes beyond the rows, which are public."""
        kinds: dict[str, tuple[Any, tuple[int, ...]]]
        kinds = {ROWS: (np.intp if self.paired.n_classes else np.float64, ())}
        if self.paired.ranked:
            return kinds | {_SCORES: (np.float64, (2,))}
        if self.paired.counts:
            return kinds | {_CELL: (np.intp, ())}
        names = (_DIFFERENCE, *PAIRED[self.paired.plain].beside)
        return kinds | {name: (np.float64, ()) for name in names}


# Releases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DifferencePlan(FunctionPlan):
    name: ClassVar[str] = "private_score_difference"

    paired: PairedMetric
    target: Target
    models: tuple[Any, Any]
    unit: float  # Value of 1 of the metric in numbers
    level: float
    noise: NoiseSource  # Source of noise, and of the public coins
    about: tuple[str, ...]  # Public facts about the models and the targets

    def assumed(self) -> tuple[str, ...]:
        return self.about

    def budget(self, n_samples: int) -> Budget:
        return self.paired.budget(self.target, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        warn_if_hidden(self.paired, budget, records)

    def prepared(self, rows: Any) -> Mapping[str, Any]:
        """Return what is counted or added up of each row."""
        given, paired = rows
        for model in self.models:
            warn_of_training_rows(model, given, _HARM, calibrated=False)
        return paired.compute()

    def run(self, ready: Mapping[str, Any], records: Records, releases: Releases) -> Value:
        """Return the difference with its interval; PrivacyError if noise hides it."""
        rng, metric = self.noise.public(), self.paired.plain
        if self.paired.ranked and not releases.budget.private:
            return exact_areas(np.asarray(ready[_SCORES]), np.asarray(ready[ROWS]), self.level)
        if self.paired.ranked or self.paired.counts:
            how = self._cells if self.paired.ranked else self._outcomes
            counts = how(ready, records, releases)
            few = counts.hidden(metric)
            if few is not None:
                raise _hidden(metric, few)
            return counts.value(metric, self.level, rng)
        found = self._means(ready, records, releases).value(metric, self.unit, self.level, rng)
        if math.isnan(found.value):
            raise _hidden_scale(metric)
        return found

    def _outcomes(
        self, ready: Mapping[str, Any], records: Records, releases: Releases
    ) -> PairedCounts:
        """Counts of rows by their class, and by which of the models say it."""
        c = self.paired.n_classes
        total = counted(ready[_CELL], OUTCOMES * c, records)
        counts = releases.laplace("counts", total).reshape(c, OUTCOMES)
        return PairedCounts(counts, _scale(releases, "counts", total), records.n)

    def _cells(self, ready: Mapping[str, Any], records: Records, releases: Releases) -> Any:
        """Counts of rows by the cells of both scores and by class, between released edges."""
        scores, k = ready[_SCORES], n_paired_cells(records.n, releases.budget.scales["cells"])
        grids = [fine_edges(probabilities=hasattr(m, "predict_proba")) for m in self.models]
        places = [np.searchsorted(grid, scores[:, j]) for j, grid in enumerate(grids)]
        fine = releases.laplace("edges", counted(np.column_stack(places), FINE, records))
        fine = [on_simplex(each, records.n) for each in fine.reshape(2, FINE)]
        edges = [quantile_edges(*each, k, None) for each in zip(fine, grids, strict=True)]
        first, second = (np.searchsorted(e[1:-1], scores[:, j]) for j, e in enumerate(edges))
        wide, high = (len(each) - 1 for each in edges)
        total = counted(2 * (high * first + second) + ready[ROWS], 2 * wide * high, records)
        counts = releases.laplace("cells", total).reshape(wide, high, 2)
        spreads = (
            spread_of_scores(fine[0], grids[0], edges[0], counts.sum(axis=1)),
            spread_of_scores(fine[1], grids[1], edges[1], counts.sum(axis=0)),
        )
        return PairedCounts(counts, _scale(releases, "cells", total), records.n, spreads)

    def _means(self, ready: Mapping[str, Any], records: Records, releases: Releases) -> PairedMeans:
        """Means of the difference, in parts of a bound that is released first, and of the rest."""
        paired, largest, moved = PAIRED[self.paired.plain], 1.0, ready[_DIFFERENCE]
        if "range" in releases and releases.budget.private:
            total = counted(rowwise(error_cells, np.abs(moved)), ERRORS, records)
            counts = releases.laplace("range", total)
            largest = largest_error(counts, _scale(releases, "range", total), records.n)
        inside = np.clip(moved / largest, -1.0, 1.0)
        columns = [inside, inside**2, *(ready[name] for name in paired.beside)]
        shares = paired.shares
        total = difference_sums(np.column_stack(columns), np.array([*shares.values()]), records)
        sums = releases.laplace("sums", total)
        return PairedMeans.of(shares, sums, _scale(releases, "sums", total), records.n, largest)


def n_paired_cells(n: int, epsilon: float) -> int:
    """Return a number of cells of each model's scores, of which all pairs are counted."""
    return int(np.clip(round(0.65 * (n * epsilon) ** 0.25), 3, 32))


def _scale(releases: Releases, name: str, total: BoundedL1Sum) -> float:
    """Scale of the Laplace noise of a release."""
    return _moved(releases.budget, total.norm_bound, total.replace_bound) / (
        releases.budget.scales[name] if releases.budget.private else math.inf
    )


def _moved(budget: Budget, zeroed: float, replaced: float) -> float:
    return zeroed if budget.target.neighboring_relation == "zero_out" else replaced


# What public sizes tell -------------------------------------------------------------------------


def needed_of_class(paired: PairedMetric, budget: Budget, n: int) -> float:
    """Records of each class that a metric needs; 0 if it needs none."""
    if paired.ranked:
        epsilon = budget.scales["cells"]
        merged = n_paired_cells(n, epsilon) ** 2
        return clear_of_noise(_moved(budget, 1.0, 2.0) / epsilon, merged)
    if paired.counts:
        return clear_of_noise(_moved(budget, 1.0, 2.0) / budget.scales["counts"], OUTCOMES)
    return 0.0


def refuse_hidden(paired: PairedMetric, target: Target, n: int, unit: str) -> None:
    """Raise ValueError if public sizes show that noise would hide the metric for any rows."""
    if not target.private:
        return
    budget, plain = paired.budget(target, n), paired.plain
    words = f"noise would hide {plain!r} of {n} {unit}s at epsilon={target.epsilon:g}"
    more = f"Use more {unit}s, a larger `epsilon` or"
    needed = needed_of_class(paired, budget, n)
    if needed > n / max(paired.n_classes, 1) and needed:
        raise ValueError(
            f"{words}, whatever they say: each of {paired.n_classes} classes needs about"
            f" {needed:.0f} {unit}s. {more} metric='accuracy' or 'log_loss', which need none."
            " Nothing was released."
        )
    if not PAIRED.get(plain) or not PAIRED[plain].beside:
        return
    shares = PAIRED[plain].shares
    scale = _moved(budget, 1.0, 1 + shares["d"]) / budget.scales["sums"]
    sums = PairedMeans.of(shares, np.zeros(len(shares)), scale, n, 1.0)
    if plain == "r2":
        hidden = CLEAR_VARIANCE * sums.noise_of_variance(0.0) > 1 / 3
    else:
        hidden = CLEAR * math.sqrt(2) * sums.scales["level"] > 1 / 4
    if hidden:
        raise ValueError(
            f"{words}, unless targets lie at the ends of `target_bounds`. {more} metric="
            "'mean_absolute_error'. Nothing was released."
        )


# Share of the records that a small class may well have.
_SMALL_CLASS = 0.05


def warn_if_hidden(paired: PairedMetric, budget: Budget, records: Records) -> None:
    """Warn if public sizes show that noise hides small classes."""
    if not budget.private:
        return
    n, epsilon, unit = records.n, budget.target.epsilon or 0.0, records.unit
    needed = needed_of_class(paired, budget, n)
    if needed > max(1.0, _SMALL_CLASS * n):
        warn(
            f"noise will hide {paired.plain!r} of {n} {unit}s at epsilon={epsilon:g} if a class has"
            f" fewer than about {needed:.0f} {unit}s ({100 * needed / n:.0f} %), or if fewer are"
            " predicted to be of it. The cost is the same then. 'accuracy' and 'log_loss' do not"
            " depend on that.",
            PrivacyWarning,
            about=("small classes", epsilon),
        )


def _hidden(metric: str, few: float) -> PrivacyError:
    return PrivacyError(
        f"the noisy number of rows of the smallest class that {metric!r} depends on is"
        f" {max(few, 0.0):.0f}, which the noise hides: the difference would say nothing. More rows"
        " or a larger epsilon help; 'accuracy' needs no rows of each class. What was released stays"
        " charged."
    )


def _hidden_scale(metric: str) -> PrivacyError:
    what = "how much targets vary" if metric == "r2" else "how large the errors are"
    return PrivacyError(
        f"the noise hides {what}, which the difference of {metric!r} depends on: tighter"
        " `target_bounds`, more rows or a larger epsilon help; 'mean_absolute_error' does not"
        " depend on it. What was released stays charged."
    )
