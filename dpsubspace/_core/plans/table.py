"""The plan of a table: ranges that are estimated privately, and a model of encoded rows.

Where to check the privacy claim: :meth:`TablePlan.run` is the whole fit. All that it releases
stands in one budget. Ranges are its first parts (:meth:`EncodingPlan.estimated`): what one record
moves there is bounded in ``_core/statistics/quantiles.py`` or, where there are few rows, in
``_core/statistics/intervals.py`` and ``cell_maps.py``. What the model's own plan releases are the
others. Noise is added in ``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.

Design note. Whatever may be refused is refused before anything is paid for. The model's own checks
and preparations see zeros in place of encoded rows: nothing is known of encoded rows before there
are ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.accounting.enough import it_takes
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.ground.checks import is_elsewhere
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.public import Data, PublicRows
from dpsubspace._core.rows.records import Records, check_order
from dpsubspace._core.rows.remote import rowwise
from dpsubspace._core.statistics.quantiles import (
    GAPS,
    exact_extents,
    hidden_records,
    noisy_extents,
    range_part,
    refuse_exact_quantiles,
)
from dpsubspace._core.tables.encoding import Encoding, encoding_for
from dpsubspace._core.tables.forming import formed_rows, is_formed
from dpsubspace._core.tables.schema import Schema, Table, read_table, table_in_parts
from dpsubspace.exceptions import PrivacyError

# Names of the releases that find ranges.
RANGES = ("ranges", "gaps")

# Name of the part of a budget that ranges leave.
_REST = "rest"

# Share of the records that noise may hide at either end of a range that is estimated privately.
_HIDDEN = 0.5

# Share of the budget (of mu^2) for ranges that are estimated privately.
RANGES_SHARE = 0.2

# Stands for a range that is estimated privately: its ends change nothing of what the model costs.
_SOME_RANGE = (-1.0, 1.0)


# The rows ---------------------------------------------------------------------------------------


def read_rows(
    X: Any,
    schema: Schema,
    y: Any = None,
    targets: Callable[[Any], np.ndarray] | None = None,
    groups: Any = None,
) -> tuple[Any, Any]:
    """Return the table and targets; the table is in parts if partitions of a collection are read.

    `targets` checks a block of a collection `y`. Targets in memory are returned as they are.
    """
    if is_elsewhere(X):
        return table_in_parts(X, schema, y, targets, groups)
    check_order(X, y=y, groups=groups)
    return read_table(X, schema, kept=True), y


# Ranges -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EncodingPlan(Plan):
    """Parameters of an encoding, and the ranges that are estimated for it."""

    target: Target  # Requested privacy
    schema: Schema
    interactions: bool | str
    by_column: bool = False  # for a model that scales every column by itself
    alike: bool = False  # for a model that does not know how much columns count
    share: float = 1.0  # Share of the budget for ranges; the rest is for others
    also: tuple[str, ...] = ()  # Names of targets whose ranges are estimated as well

    @property
    def names(self) -> tuple[str, ...]:
        """Names of columns and targets whose ranges are estimated."""
        return (*self.schema.private_ranges, *self.also)

    @property
    def gaps(self) -> bool:
        """Whether values may be missing in these columns."""
        return any(self.schema[name].missing for name in self.schema.private_ranges)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the releases, in their order."""
        return RANGES[: 1 + self.gaps] if self.names else ()

    def encoding(self, n_samples: int | None) -> Encoding:
        """Return the encoding of rows, without the ranges that are not known yet."""
        ratio = math.inf
        if self.target.private and n_samples is not None:
            ratio = n_samples / self.target.multiplier(n_samples)
        return encoding_for(
            self.schema,
            ratio,
            interactions=self.interactions,
            by_column=self.by_column,
            alike=self.alike,
        )

    def budget(self, sizes: Sizes) -> Budget:
        n = sizes.n_samples
        if not self.names:
            return Budget.split(self.target, {}, n)
        share = self.share * (1 - GAPS if self.gaps else 1)
        parts = {RANGES[0]: range_part(self.target, n, len(self.names), share)}
        if self.gaps:
            parts[RANGES[1]] = Part(self.share * GAPS)
        if self.share == 1:
            return Budget.split(self.target, parts, n)
        whole = Budget.split(self.target, {**parts, _REST: Part(1 - self.share)}, n)
        return whole.only(*parts)

    def check_ranges(self, budget: Budget, numbers: Any, records: Records) -> None:
        """Raise ValueError if ranges would be exact, and the rows lie in parts.

        Raise PrivacyError if public sizes show that noise would hide the ranges.
        """
        if not self.names:
            return
        refuse_exact_quantiles(budget.target, numbers)
        if not budget.private:
            return

        def hidden_by(budget: Budget) -> float:
            return hidden_records(budget, RANGES[0], len(self.names))[0]

        def budget_of(epsilon: float | None, n: int) -> Budget:
            plan = replace(self, target=replace(self.target, epsilon=epsilon))
            return plan.budget(Sizes(n))

        def enough(budget: Budget, n: int) -> bool:
            return hidden_by(budget) <= _HIDDEN * n

        hidden = hidden_by(budget)
        if not enough(budget, records.n):
            several = len(self.names) > 1
            which = f"ranges of {len(self.names)} columns" if several else "range of one column"
            names = ", ".join(repr(name) for name in self.names[:10])
            raise PrivacyError(
                f"the {which} ({names}) cannot be estimated: at each end of a column, noise would"
                f" hide about {min(hidden, records.n):.0f} of the {records.n} {records.unit}s."
                " Nothing was released or charged. Declare ranges from public knowledge, as"
                " Range(low, high), leave fewer of them private, or use a larger epsilon."
                f"{it_takes(budget_of, enough, self.target, records.n, records.unit)}"
            )

    def prepared(self, data: Data, where: Any, budget: Budget) -> Data:
        self.check_ranges(budget, data.X.numbers, data.records)
        return data

    def run(
        self, ready: Data, releases: Releases, rng: Any, after_step: Callable[[], bool]
    ) -> Encoding:
        return self.estimated(ready.X.numbers, releases)[0]

    def estimated(
        self, numbers: Any, releases: Releases, targets: Any = None
    ) -> tuple[Encoding, list[tuple[float, float]]]:
        """Return the encoding with all of its ranges, and the ranges of the targets in `also`.

        Numbers are private columns (n_rows, n_numbers) in the order of the schema, and targets
        (n_rows, n_targets) come after them.
        """
        schema, found = self.schema, {}
        if self.names:
            values = numbers[:, [schema.numbers.index(name) for name in schema.private_ranges]]
            if self.also:
                values = np.column_stack([values, targets])
            found = self._found(values, releases)
        encoding = self.encoding(releases.records_of(numbers).n)
        own = {name: found[name] for name in schema.private_ranges}
        return encoding.with_ranges(own), [found[name] for name in self.also]

    def _found(self, values: np.ndarray, releases: Releases) -> dict[str, tuple[float, float]]:
        """Estimate the ranges of columns (n, c), in which NaN is a missing value."""
        if releases.budget.private:
            gaps = RANGES[1] if self.gaps else None
            low, high, found = noisy_extents(values, releases, RANGES[0], gaps=gaps)
        else:
            low, high = _exact(values, releases.records_of(values))
            found = np.isfinite(low) & np.isfinite(high)
        found = found & (low < high)
        if not found.all():
            names = [repr(name) for name, there in zip(self.names, found, strict=True) if not there]
            raise PrivacyError(
                f"no range was found for {', '.join(names)}: noise has hidden it, or nearly all"
                " values are equal. The cost of the ranges has been charged; the model was"
                " neither fitted nor charged. Declare these ranges from public knowledge, as"
                " Range(low, high), or leave"
                " the columns out of the schema."
            )
        ends = zip(low.tolist(), high.tolist(), strict=True)
        return dict(zip(self.names, ends, strict=True))


def _exact(values: np.ndarray, records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Exact ranges, column by column, of the values that are not missing; not private."""
    weights, ends = records.weights_numpy, []
    for column in values.T:
        there = ~np.isnan(column)
        if not there.any():
            ends.append((np.nan, np.nan))
            continue
        own = None if weights is None else weights[there]
        low, high = exact_extents(column[there][:, None], weights=own)
        ends.append((low[0], high[0]))
    low, high = np.array(ends).reshape(-1, 2).T
    return low, high


# Tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawRows:
    """Rows of a table, and public rows, which are encoded once their ranges are known."""

    # The private table alone: it is removed when it is encoded, so that nothing keeps it.
    held: list[Any]
    public: tuple[Table, ...]  # Sets of public rows
    # Data that the model has checked: zeros in place of private rows, and public rows in a
    # provisional encoding.
    checked: Data
    shape: tuple[int, int]  # Number of rows, and of columns of the schema

    def encoded_public(self, encoding: Encoding) -> PublicRows | None:
        """Return public rows as the model uses them, encoded anew."""
        before = self.checked.public
        if before is None:
            return None
        rows = [encoding(each) for each in self.public]
        dense = [each.toarray() if sparse.issparse(each) else each for each in rows]
        return PublicRows.of(dense, before.targets)


@dataclass(frozen=True)
class FittedTable:
    """Result of a fit of a table, released or public."""

    encoding: Encoding  # With ranges
    limits: Any  # Range of the targets, given or estimated; None where the model finds it
    model: Any  # Result of the model's plan
    log_from: float | None  # Least target, if the model was fitted to logarithms


@dataclass(frozen=True)
class PipelineNoise:
    """Noise of one fit from two seeds: one for ranges, and one for the model."""

    ranges: NoiseSource
    model: NoiseSource

    @property
    def secure(self) -> bool:
        return self.model.secure and self.ranges.secure

    def child(self, name: str) -> NoiseSource:
        return (self.ranges if name in RANGES else self.model).child(name)

    def public(self) -> Any:
        return self.model.public()


@dataclass(frozen=True, kw_only=True)
class TablePlan(Plan):
    """Parameters of a fit: later changes have no effect on it."""

    target: Target  # Requested privacy
    table: EncodingPlan  # How rows are encoded
    model: Any  # Plan of the model's own fit
    limits: tuple[Any, Any] | None  # Public range of the targets
    estimates_target: bool  # Whether this range is estimated privately
    # Least target, if the model is fitted to logarithms: smaller targets count as that.
    log_from: float | None = None
    # Whether rows may be formed where they are used: rows of a dataset are made anew in every pass
    # anyway.
    forming: bool = True
    # Encoding of rows: in a fit whose ranges are missing, it has the ranges of public rows.
    encoding: Encoding | None = None
    fit: Any = None  # The model's plan on rows in this encoding
    fit_sizes: Any = None  # Sizes of the model's own fit

    # Before the data are seen ---------------------------------------------------------------

    @property
    def searches(self) -> bool:
        """Whether ranges of columns or of targets are estimated privately."""
        return self.estimates_target or bool(self.table.schema.private_ranges)

    def sizes(self, data: Data) -> Sizes:
        return self.model.sizes(data.X.checked)

    def resolved(self, sizes: Sizes) -> TablePlan:
        """Return this plan with the model's plan, calibrated beside ranges that come first."""
        # Public rows show how columns are seen together, and not how much each of them counts.
        table = replace(self.table, alike=sizes.n_public > 0)
        encoding = self.encoding or table.encoding(sizes.n_samples)
        fit = self.fit or self.on(encoding)
        if self.searches:
            count = (sizes.n_outputs or 1) if self.estimates_target else 0
            names = ("target",) if count == 1 else tuple(f"target {i}" for i in range(count))
            table = replace(table, also=names)
            fit = replace(fit, target=replace(fit.target, first=table.budget(sizes)))
        if sizes.n_samples is not None:
            sizes = replace(sizes, n_features=encoding.n_features)
        fit = fit.resolved(sizes)
        return replace(self, table=table, encoding=encoding, fit=fit, fit_sizes=sizes)

    def on(self, encoding: Encoding, limits: Any = _SOME_RANGE) -> Any:
        """The model's plan on encoded rows, with targets in a range that was estimated."""
        limits = limits if self.estimates_target else self.limits
        return self.model.for_table(encoding, limits, estimated=self.estimates_target)

    def budget(self, sizes: Sizes) -> Budget:
        return self.fit.budget(self.fit_sizes)

    def prepared(self, data: Data, where: Any, budget: Budget) -> tuple[Data, Any]:
        if self.searches:
            self.table.check_ranges(budget, data.X.held[0].numbers, data.records)
        if self.table.schema.texts and where is not None:
            raise ValueError(
                "rows with texts are sparse, and sparse rows run on the CPU only: set device='cpu'."
            )
        self.fit.prepared(data.X.checked, None, budget)
        return data, where

    # The fit --------------------------------------------------------------------------------

    def run(
        self,
        ready: tuple[Data, Any],
        releases: Releases,
        rng: Any,
        after_step: Callable[[], bool],
    ) -> FittedTable:
        """Find ranges, encode rows, and fit the model to them."""
        data, where = ready
        raw, encoding, limits = data.X, self.encoding, self.limits
        table, checked, fit = raw.held.pop(), raw.checked, self.fit
        assert encoding is not None  # set by `resolved`
        if self.searches:
            encoding, limits = self.estimated(table, data, releases)
        rows = self.encoded(table, encoding, data.records.n, where)
        del table  # which may take as much memory as the rows
        checked = replace(checked, X=rows)
        if self.searches:
            checked = replace(checked, public=raw.encoded_public(encoding))
            own = self.on(encoding, limits).with_public_view(checked)
            fit = replace(own, target=fit.target).resolved(self.fit_sizes)
        model = fit.run(checked.on_device(where), releases, rng, after_step)
        return FittedTable(encoding, limits, model, self.log_from)

    def estimated(self, table: Any, data: Data, releases: Releases) -> tuple[Encoding, Any]:
        """The encoding with the ranges that noise has left, and the range of the targets."""
        with releases.at_first(*self.table.parts):
            encoding, found = self.table.estimated(table.numbers, releases, data.targets)
        if not self.estimates_target:
            return encoding, self.limits
        low, high = zip(*found, strict=True)
        return encoding, (np.array(low), np.array(high))

    def encoded(self, table: Any, encoding: Encoding, n_records: int, where: Any) -> Any:
        """Return encoded rows: all at once, or formed in every step where they are many."""
        forming = self.forming and where is None and is_formed(encoding, n_records)
        return rowwise(formed_rows, table, encoding) if forming else rowwise(encoding, table)
