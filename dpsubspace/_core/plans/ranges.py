"""The plan of an encoded table: which ranges are estimated privately, and what follows from them.

Where to check the privacy claim: :meth:`RangeSearch.__call__` has the only releases. They are those
of ``noisy_extents`` in ``_core/statistics/quantiles.py``, where what one record moves is bounded.
Noise is added in ``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.ground.checks import is_elsewhere
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records, check_order
from dpsubspace._core.statistics.quantiles import (
    GAPS,
    exact_extents,
    hidden_records,
    noisy_extents,
    range_part,
    refuse_exact_quantiles,
)
from dpsubspace._core.tables.encoding import Encoding, encoding_for
from dpsubspace._core.tables.schema import Schema, read_table, table_in_parts
from dpsubspace.exceptions import PrivacyError

# Name of what is left of a budget that ranges take a part of.
_REST = "rest"

# Share of the records that noise may hide at either end of a range that is estimated privately.
_HIDDEN = 0.5


@dataclass(frozen=True)
class RangeSearch:
    names: tuple[str, ...]  # What the ranges are of
    gaps: bool  # Whether there may be missing values
    share: float = 1.0  # Of the budget; the rest is for others

    def budget(self, target: Target, n_samples: int | None) -> Budget:
        if not self.names:
            return Budget.split(target, {}, n_samples)
        share = self.share * (1 - GAPS if self.gaps else 1)
        parts = {"ranges": range_part(target, n_samples, len(self.names), share)}
        if self.gaps:
            parts["gaps"] = Part(self.share * GAPS)
        if self.share == 1:
            return Budget.split(target, parts, n_samples)
        whole = Budget.split(target, {**parts, _REST: Part(1 - self.share)}, n_samples)
        return whole.only(*parts)

    def check_found(self, target: Target, numbers: Any) -> None:
        """ValueError where ranges would be exact, and the rows lie in parts."""
        if self.names:
            refuse_exact_quantiles(target, numbers)

    def check_legible(self, budget: Budget, records: Records) -> None:
        """PrivacyError where public sizes say that noise would hide the ranges."""
        if not (self.names and budget.private):
            return
        hidden, _ = hidden_records(budget, "ranges", len(self.names))
        if hidden > _HIDDEN * records.n:
            several = len(self.names) > 1
            which = f"ranges of {len(self.names)} columns" if several else "range of one column"
            names = ", ".join(repr(name) for name in self.names[:10])
            raise PrivacyError(
                f"the {which} ({names}) cannot be estimated: at each end of a column, noise would"
                f" hide about {min(hidden, records.n):.0f} of the {records.n} {records.unit}s."
                " Nothing was released or charged. Declare ranges from public knowledge, as"
                " Range(low, high), leave fewer of them private, or use a larger epsilon."
            )

    def __call__(self, values: np.ndarray, releases: Releases) -> dict[str, tuple[float, float]]:
        """Estimate the ranges of columns (n, c), in which NaN is a missing value."""
        if releases.budget.private:
            gaps = "gaps" if self.gaps else None
            low, high, found = noisy_extents(values, releases, "ranges", gaps=gaps)
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


def read_rows(
    X: Any,
    schema: Schema,
    y: Any = None,
    targets: Callable[[Any], np.ndarray] | None = None,
    groups: Any = None,
) -> tuple[Any, Any]:
    """The table, here or in parts where the partitions of a collection are read; and targets.

    `targets` checks a block of a collection `y`. Those in memory are given back as they are.
    """
    if is_elsewhere(X):
        return table_in_parts(X, schema, y, targets, groups)
    check_order(X, y=y, groups=groups)
    return read_table(X, schema, kept=True), y


def _exact(values: np.ndarray, records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Exact ranges, column by column, of the values that are there; not private."""
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


@dataclass(frozen=True)
class EncodingPlan:
    schema: Schema
    interactions: bool | str
    by_column: bool = False  # for a model that scales every column by itself
    alike: bool = False  # which is not told by how much columns count

    def encoding(self, target: Target, n_samples: int | None) -> Encoding:
        ratio = math.inf
        if target.private and n_samples is not None:
            ratio = n_samples / target.multiplier(n_samples)
        return encoding_for(
            self.schema,
            ratio,
            interactions=self.interactions,
            by_column=self.by_column,
            alike=self.alike,
        )

    def purchase(self, share: float = 1.0, *, also: tuple[str, ...] = ()) -> RangeSearch:
        names = self.schema.private_ranges
        gaps = any(self.schema[name].missing for name in names)
        return RangeSearch((*names, *also), gaps, share)
