"""A summary of the columns of a table, by group.

Where to check the privacy claim: :meth:`SummaryPlan.run` is all of it. Counts, sums and searches
are bounded in ``_core/statistics/table_cells.py``, noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.checks import shown, shown_first
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.statistics.table_cells import (
    STAGES,
    GroupedCounts,
    GroupSizes,
    Quantiles,
    Ratio,
    agreeing,
    around,
    cell_total,
    counts_sum,
    exact_quantiles,
    holding,
    onto_total_of_seen,
    searched_quantiles,
    unit_sums,
    unit_total,
)
from dpsubspace._core.tables.cells import (
    NO_GROUP,
    NO_VALUE,
    UNLISTED,
    cells_of_codes,
    in_unit,
    middle_of,
    scale_points,
    values_of,
)
from dpsubspace._core.tables.schema import Schema, Table, with_texts
from dpsubspace.exceptions import PrivacyWarning, warn

# Share of each release in the budget (of mu^2), for each of its columns. Counts, sums in units of
# half a range, and ranks then have about the same noise, in records: twelve stages share the four
# parts of a search, which looks at a rank through about one count at each.
_SHARES = {"counts": 1.0, "moments": 2.0, "quantiles": 4.0}

# Quantiles of numbers, with their names.
_LEVELS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}

# The one group of a table that is not split.
_ALL = "all"

# Standard deviations of a count that the average group should have, for its numbers to be of use.
_SEEN = 10.0


class SummaryEntry(NamedTuple):
    """One released number of a summary, with its interval."""

    column: str
    statistic: str
    category: Any  # None if the number is not about a category
    group: Any
    value: float
    low: float
    high: float


# Releases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SummaryPlan(FunctionPlan):
    """Public parameters of a summary, and how it is released."""

    name: ClassVar[str] = "private_summary"

    target: Target
    level: float  # Level of the intervals
    schema: Schema
    by: str | None
    groups: tuple[Any, ...]
    tables: dict[str, int]  # columns that are counted, and their numbers of cells

    @classmethod
    def of(cls, target: Target, schema: Schema, by: str | None, level: float) -> SummaryPlan:
        if schema.texts:
            raise with_texts(schema.texts, "a summary has numbers, dates and categories")
        if schema.private_ranges:
            raise ValueError(
                f"the columns {shown_first(schema.private_ranges)} have no public range, and means"
                " need one: write Range(low, high) from public knowledge, such as the limits of a"
                " device. private_quantile and private_mean do without."
            )
        tables: dict[str, int] = {}
        groups: tuple[Any, ...] = (_ALL,)
        if by is not None:
            if not isinstance(by, str) or by not in schema.categories:
                raise ValueError(
                    f"`by` must be a column of categories in the schema, one of"
                    f" {shown_first(schema.categories)}, got {shown(by)}."
                )
            groups = schema[by].values  # type: ignore[attr-defined]
            tables[by] = 1
        for name, kind in schema.items():
            if name == by:
                continue
            if kind._categorical:
                tables[name] = len(kind.values) + 1 + kind.missing  # type: ignore[attr-defined]
            elif kind.missing:
                tables[name] = 2
        return cls(target, level, schema, by, groups, tables)

    @property
    def n_groups(self) -> int:
        """Number of groups, including that of rows in no group."""
        return len(self.groups) + (self.by is not None)

    def unlisted(self, entries: Sequence[SummaryEntry], n: int) -> dict[str, float]:
        """Least share of values in each column that are not listed, by released counts."""
        found = dict.fromkeys(self.schema.categories, 0.0)
        for each in entries:
            if each.statistic == "count" and each.category == UNLISTED:
                found[each.column] += each.low / n
            elif each.group == NO_GROUP and not self.schema[str(self.by)].missing:
                found[str(self.by)] += each.low / n
        return found

    def assumed(self) -> tuple[str, ...]:
        return ("schema of the table",)

    def budget(self, n_samples: int) -> Budget:
        numbers = len(self.schema.numbers)
        sizes = {"counts": len(self.tables), "moments": numbers, "quantiles": numbers}
        whole = sum(_SHARES[name] * size for name, size in sizes.items())
        parts = {
            name: Part(_SHARES[name] * size / whole, STAGES if name == "quantiles" else 1)
            for name, size in sizes.items()
            if size
        }
        return Budget.split(self.target, parts, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        _warn_of_noise(budget, self, records)

    def run(self, ready: Table, records: Records, releases: Releases) -> ReleasedSummary:
        table, group = ready, rowwise(self._group, ready)
        noise: dict[str, float] = {}
        counts, deviation = self._counts(table, group, records, releases)
        n = float(records.n)
        if not releases.budget.private and counts:  # parts of persons add up to a little less
            n = float(next(iter(counts.values())).sum())
        sizes, agreed = GroupSizes(np.full(1, n), 0.0), []
        if counts:
            noise["counts"] = deviation
            sizes, agreed = agreeing([*counts.values()], deviation, n)
        sums, deviation = self._sums(table, group, records, releases)
        quantiles = None
        if sums is not None:
            noise["moments"] = deviation
            quantiles = self._quantiles(table, group, records, releases, self.level)
            empty = counts_sum(np.zeros(1), len(self.schema.numbers))
            noise["quantiles"] = releases.noise_of("quantiles", empty)
        cells = dict(zip(counts, agreed, strict=True))
        return ReleasedSummary(self, n, sizes, cells, sums, quantiles, noise)

    # Sums over rows, where these are ------------------------------------------------------------

    def _group(self, table: Table) -> np.ndarray:
        """Group of each row; rows in no group have the number of groups."""
        if self.by is None:
            return np.zeros(len(table), dtype=np.intp)
        group = values_of(table, self.schema, self.by)
        return np.where(group < 0, len(self.groups), group).astype(np.intp)

    def _raw_counts(self, table: Table, group: np.ndarray, records: Records) -> np.ndarray:
        """Counts of all tables, one after another."""
        raw = []
        for name, width in self.tables.items():
            cells = group * width + self._cells(table, name)
            raw.append(cell_total(cells, self.n_groups * width, records))
        return np.concatenate(raw)

    def _raw_sums(self, table: Table, group: np.ndarray, records: Records) -> np.ndarray:
        """Sums (columns, 2, groups) of numbers in units of half their range."""
        names = self.schema.numbers
        raw = np.empty((len(names), 2, self.n_groups))
        for place, name in enumerate(names):
            units = in_unit(table.numbers[:, place], self.schema[name])
            raw[place] = unit_sums(units, group, self.n_groups, records)
        return raw

    # Releases of these sums ---------------------------------------------------------------------

    def _counts(
        self, table: Table, group: np.ndarray, records: Records, releases: Releases
    ) -> tuple[dict[str, np.ndarray], float]:
        if not self.tables:
            return {}, 0.0
        raw = sum_over_parts(self._raw_counts, table, group, records)
        total = counts_sum(raw, len(self.tables))
        noisy = releases.gaussian("counts", total)
        widths = [self.n_groups * width for width in self.tables.values()]
        parts = np.split(noisy, np.cumsum(widths)[:-1])
        named = zip(self.tables, parts, strict=True)
        counts = {name: part.reshape(self.n_groups, -1) for name, part in named}
        return counts, releases.noise_of("counts", total)

    def _cells(self, table: Table, name: str) -> np.ndarray:
        kind = self.schema[name]
        if name == self.by:
            return np.zeros(len(table), dtype=np.intp)
        values = values_of(table, self.schema, name)
        if not kind._categorical:
            return np.isnan(values).astype(np.intp)
        return cells_of_codes(values, len(kind.values))  # type: ignore[attr-defined]

    def _sums(
        self, table: Table, group: np.ndarray, records: Records, releases: Releases
    ) -> tuple[np.ndarray | None, float]:
        names = self.schema.numbers
        if not names:
            return None, 0.0
        raw = sum_over_parts(self._raw_sums, table, group, records)
        total = unit_total(raw, len(names))
        noisy = releases.gaussian("moments", total)
        return noisy.reshape(raw.shape), releases.noise_of("moments", total)

    def _quantiles(
        self,
        table: Table,
        group: np.ndarray,
        records: Records,
        releases: Releases,
        confidence: float,
    ) -> Quantiles:
        levels = np.array([*_LEVELS.values()])
        if not releases.budget.private:
            return exact_quantiles(table.numbers, group, len(self.groups), levels, records)
        grid = [scale_points(self.schema[name], 2**STAGES) for name in self.schema.numbers]
        return searched_quantiles(
            table.numbers,
            group,
            len(self.groups),
            np.stack(grid),
            levels,
            releases,
            "quantiles",
            confidence=confidence,
        )


def _warn_of_noise(budget: Budget, plan: SummaryPlan, records: Records) -> None:
    if not budget.private:
        return
    relation = budget.target.neighboring_relation
    name, total = "moments", unit_total(np.zeros(1), max(1, len(plan.schema.numbers)))
    if plan.tables:
        name, total = "counts", counts_sum(np.zeros(1), len(plan.tables))

    def deviation_of(budget: Budget) -> float:
        return budget.scales[name] * total.unit(relation)

    def enough(budget: Budget, n: int) -> bool:
        return n / len(plan.groups) >= _SEEN * deviation_of(budget)

    if not enough(budget, records.n):
        deviation, size = deviation_of(budget), records.n / len(plan.groups)
        warn(
            f"the noise of each count has a standard deviation of {deviation:.3g}, and a group has"
            f" {size:.0f} {records.unit}s on average: expect wide intervals. More {records.unit}s,"
            " fewer columns or groups, or a larger epsilon help."
            f"{plan_takes(plan, enough, records.n, records.unit)}",
            PrivacyWarning,
            about=("summary", deviation),
        )


# Results ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleasedSummary:
    """Released numbers, and all results that are printed."""

    plan: SummaryPlan
    n: float
    sizes: GroupSizes
    cells: dict[str, GroupedCounts]
    sums: np.ndarray | None
    quantiles: Quantiles | None
    noise: dict[str, float]

    def entries(self, level: float) -> Iterator[SummaryEntry]:
        """Yield all numbers, which add up and have an order, within intervals that hold them."""
        for each in self._all(level):
            if math.isnan(each.value):
                yield each
                continue
            low, high = holding(each.value, each.low, each.high)
            yield each._replace(low=float(low), high=float(high))

    def _all(self, level: float) -> Iterator[SummaryEntry]:
        plan, sizes = self.plan, self.sizes.counts
        ends = [self._around(size, self.sizes.variance, level) for size in sizes]
        names = plan.groups if plan.by is None else (*plan.groups, NO_GROUP)
        unseen = None if plan.by is None or ends[-1][0] > 0 else len(plan.groups)
        totals = onto_total_of_seen(sizes, self.n, unseen)
        for group, total, (low, high) in zip(names, totals, ends, strict=True):
            yield SummaryEntry("", "count", None, group, float(total), low, high)
        for name in plan.schema:
            if name == plan.by:
                continue
            for place, group in enumerate(plan.groups):
                made = self._of_column(name, place, float(totals[place]), level)
                for statistic, category, value, low, high in made:
                    yield SummaryEntry(name, statistic, category, group, value, low, high)

    def _of_column(
        self, name: str, place: int, total: float, level: float
    ) -> Iterator[tuple[str, Any, float, float, float]]:
        kind = self.plan.schema[name]
        if not kind._categorical:
            yield from self._of_numbers(name, place, level)
        if name not in self.cells:
            return
        labels = [*kind.values, UNLISTED] if kind._categorical else [None]  # type: ignore[attr-defined]
        labels += [NO_VALUE] if kind.missing else []
        table = self.cells[name]
        counts = onto_total_of_seen(table.counts[place], total, self._unseen(name, level))
        there = counts.sum() - (counts[-1] if kind.missing else 0.0)
        for cell, label in enumerate(labels):
            if label is None:  # numbers that are not missing: all others
                continue
            ends = self._around(table.counts[place, cell], table.variance, level)
            yield ("count", label, float(counts[cell]), *ends)
            of = total if label == NO_VALUE and cell == len(labels) - 1 else there
            share = self._share(name, place, cell, missing=of is total and kind.missing)
            value = float(counts[cell] / of) if of > 0 else math.nan
            yield ("share", label, value, *share.interval(level, 0.0, 1.0))

    def _unseen(self, name: str, level: float) -> int | None:
        """Cell of values that are not listed, if noise hides all of them in every group."""
        kind, table = self.plan.schema[name], self.cells[name]
        if not kind._categorical:
            return None
        cell = len(kind.values)  # type: ignore[attr-defined]
        groups = table.counts[: len(self.plan.groups), cell]
        lowest = [self._around(count, table.variance, level)[0] for count in groups]
        return None if max(lowest) > 0 else cell

    def _around(self, count: float, variance: float, level: float) -> tuple[float, float]:
        half = float(ndtri((1 + level) / 2)) * math.sqrt(variance)
        low, high = around(np.asarray(count), half, self.n)
        return float(low), float(high)

    def _share(self, name: str, place: int, cell: int, *, missing: bool) -> Ratio:
        """Share of a cell among the present values of a group, or among all for missing values."""
        table, width = self.cells[name], self.plan.tables[name]
        above, size, of_size = (
            table.counts[place, cell],
            self.sizes.counts[place],
            self.sizes.variance,
        )
        shared = of_size / width  # covariance of a count with the size of its group
        if missing or not self.plan.schema[name].missing:
            return Ratio(float(above), float(size), table.variance, of_size, shared)
        there, variance = self._there(name, place)
        return Ratio(float(above), there, table.variance, variance, shared - table.common)

    def _there(self, name: str, place: int) -> tuple[float, float]:
        """Number of values of a column that are present in a group, and its variance."""
        size, of_size = float(self.sizes.counts[place]), self.sizes.variance
        if not self.plan.schema[name].missing:
            return size, of_size
        table, width = self.cells[name], self.plan.tables[name]
        variance = max(of_size + table.variance - 2 * of_size / width, 0.0)
        return size - float(table.counts[place, -1]), variance

    def _of_numbers(
        self, name: str, place: int, level: float
    ) -> Iterator[tuple[str, None, float, float, float]]:
        assert self.sums is not None and self.quantiles is not None
        column = self.plan.schema.numbers.index(name)
        middle, half = middle_of(self.plan.schema[name])
        first, second = self.sums[column, :, place]
        there, of_there = self._there(name, place)
        square = self.noise["moments"] ** 2
        mean, fold = (Ratio(float(s), there, square, of_there) for s in (first, second))
        value, ends = mean.value(-1, 1), mean.interval(level, -1, 1)
        low, high = (middle + half * end for end in ends)
        yield "mean", None, middle + half * value, low, high
        value, low, high = (half * each for each in _deviation(mean, fold, level))
        yield "standard deviation", None, value, low, high
        for at, statistic in enumerate(_LEVELS):
            cells = (self.quantiles.values, self.quantiles.low, self.quantiles.high)
            value, low, high = (float(part[column, place, at]) for part in cells)
            yield statistic, None, value, low, high


def _deviation(mean: Ratio, fold: Ratio, level: float) -> tuple[float, float, float]:
    """Standard deviation of numbers in [-1, 1] and its interval, from two means.

    `fold` is the mean of ``2 u^2 - 1``. The variance is the mean square less the square of the
    mean, two numbers with noise of their own, whose intervals are joined as Zou and Donner (2008)
    join those of a difference. Noise may make the variance negative: the ends are about 0 then,
    since about an impossible number the upper end would lie below most of what is possible.
    """
    mean_value, square = mean.value(-1, 1), (1 + fold.value(-1, 1)) / 2
    low, high = mean.interval(level, -1, 1)
    least = 0.0 if low <= 0 <= high else min(low**2, high**2)
    most = max(low**2, high**2)
    lower, upper = ((1 + end) / 2 for end in fold.interval(level, -1, 1))
    variance = max(square - mean_value**2, 0.0)
    down = math.hypot(square - lower, most - mean_value**2)
    up = math.hypot(upper - square, mean_value**2 - least)
    ends = (variance, variance - down, variance + up)
    value, low, high = (math.sqrt(min(max(each, 0.0), 1.0)) for each in ends)
    return value, low, high
