"""Counts of the rows of a table in cells of its columns.

Where to check the privacy claim: :meth:`CountsPlan.run` is all of it. What a record contributes to
the counts is bounded in ``_core/statistics/table_cells.py``, noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import payer_of
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import sum_over_parts
from dpsubspace._core.statistics.table_cells import (
    CountNoise,
    around,
    cell_total,
    counts_l1_sum,
    counts_sum,
    holding,
    onto_margins,
    onto_total,
)
from dpsubspace._core.tables.cells import CellColumn, values_of
from dpsubspace._core.tables.schema import Schema, Table
from dpsubspace.exceptions import PrivacyWarning, warn


@dataclass(frozen=True)
class CountsPlan(FunctionPlan):
    name: ClassVar[str] = "private_counts"

    target: Target
    kind: str  # Kind of noise: "laplace" or "gaussian"
    schema: Schema  # Schema of the columns that are counted
    axes: Sequence[CellColumn]  # Cells of each of these columns
    level: float  # Level of the intervals

    def assumed(self) -> tuple[str, ...]:
        return ("schema of the table", "edges of the cells")

    def budget(self, n_samples: int) -> Budget:
        return Budget.split(self.target, {"counts": Part(1.0, kind=self.kind)}, n_samples)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.labels) for axis in self.axes)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        _warn_of_noise(self, budget, records)

    def run(self, ready: Table, records: Records, releases: Releases) -> tuple[Any, ...]:
        """Counts, both ends of their intervals, counts as they were released, and the noise."""
        cells: Any = 0
        for axis in self.axes:
            values = values_of(ready, self.schema, axis.name)
            cells = cells * len(axis.labels) + axis.cells(values)
        raw = sum_over_parts(cell_total, cells, math.prod(self.shape), records)
        noisy = _released(raw, releases, self.kind).reshape(self.shape)
        counts = _consistent(noisy, records.n) if releases.budget.private else noisy
        noise = _noise(releases.budget, self.kind)
        ends = interval_around(noisy, noise, self.level, 1, records.n)
        return counts, *holding(counts, *ends), noisy, noise


def least_noise(target: Target, n: int, level: float) -> tuple[Target, str]:
    """Return the target with a delta, and the kind of noise with the shortest intervals at it."""
    pure = replace(target, delta=0.0)
    payer = payer_of()
    of_ledger = None if payer is None else payer.delta
    if target.delta == 0 or (target.delta == "auto" and not of_ledger):
        return pure, "laplace"
    if of_ledger is not None or not target.private:
        return target, "gaussian"
    # Laplace noise needs no delta: what a delta would save is too little to search for.
    choices = [(pure, "laplace"), (target, "gaussian")]
    return min(choices, key=lambda each: _half_width(*each, n, level))


def _half_width(target: Target, kind: str, n: int, level: float) -> float:
    budget = Budget.split(target, {"counts": Part(1.0, kind=kind)}, n)
    return _noise(budget, kind).half_width(level)


def _noise(budget: Budget, kind: str) -> CountNoise:
    """Noise of each count, which follows from public numbers."""
    if not budget.private:
        return CountNoise("none", 0.0)
    relation, scale = budget.target.neighboring_relation, budget.scales["counts"]
    nothing = np.zeros(1)
    if kind == "gaussian":
        return CountNoise(kind, scale * counts_sum(nothing).unit(relation))
    total = counts_l1_sum(nothing)
    bound = total.norm_bound if relation == "zero_out" else total.replace_bound
    return CountNoise(kind, bound / scale)


def _released(raw: np.ndarray, releases: Releases, kind: str) -> np.ndarray:
    if kind == "laplace":
        return releases.laplace("counts", counts_l1_sum(raw))
    return releases.gaussian("counts", counts_sum(raw))


def interval_around(
    noisy: np.ndarray, noise: CountNoise, level: float, n_cells: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    return around(noisy, noise.half_width(level, n_cells), n)


def _consistent(noisy: np.ndarray, n: int) -> np.ndarray:
    """Counts that are not negative and add up to n, along each axis as well."""
    if noisy.ndim == 1:
        return onto_total(noisy, n)
    axes = range(noisy.ndim)
    margins = [noisy.sum(axis=tuple(set(axes) - {axis})) for axis in axes]
    return onto_margins(noisy, [onto_total(margin, n) for margin in margins])


def _warn_of_noise(plan: CountsPlan, budget: Budget, records: Records) -> None:
    noise, n_cells = _noise(budget, plan.kind), math.prod(plan.shape)
    n, unit = records.n, records.unit

    def enough(budget: Budget, n: int) -> bool:
        return n / n_cells >= _noise(budget, plan.kind).deviation

    if noise.scale == 0 or enough(budget, n):
        return
    made = n_cells * noise.positive(1.0)
    warn(
        f"the noise of each of {n_cells:,} counts has a standard deviation of"
        f" {noise.deviation:.2g}, and a cell has {n / n_cells:.2g} of {n:,} {unit}s on average."
        f" If nearly all cells are empty, about {made:,.0f} of them are released as 1 or more, and"
        " small counts mean nothing. Fewer columns, fewer `bins` or a larger epsilon help."
        f"{plan_takes(plan, enough, n, unit)}",
        PrivacyWarning,
        about=("cells", n_cells),
    )
