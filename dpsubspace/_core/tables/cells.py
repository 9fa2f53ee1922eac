"""Public cells of the columns of a table, and the cell of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dpsubspace._core.ground.checks import check_integer, shown, shown_first
from dpsubspace._core.tables.dates import day_of
from dpsubspace._core.tables.frames import names_of
from dpsubspace._core.tables.kinds import MISSING, Kind, off_log
from dpsubspace._core.tables.schema import Schema, Table, read_anywhere, with_texts
from dpsubspace.exceptions import PrivacyWarning, warn

# Names of the cells of rows without a value, and of rows whose value is none of the categories.
NO_VALUE, UNLISTED = "missing", "not listed"

# Group of rows whose value is missing or none of the groups, in a split by a column.
NO_GROUP = "no group"


@dataclass(frozen=True, eq=False)
class CellColumn:
    """Cells of one column, which are public."""

    name: str
    labels: tuple[Any, ...]  # Labels of the cells, in order
    edges: np.ndarray | None  # Edges of the cells of numbers; None for categories
    n_values: int  # Number of cells that stand for values; they come first

    @classmethod
    def of(cls, name: str, kind: Kind, bins: Any) -> CellColumn:
        """Make the cells of a column; ValueError where its edges are not known."""
        gap = (NO_VALUE,) if kind.missing else ()
        if kind._categorical:
            values = kind.values  # type: ignore[attr-defined]
            return cls(name, (*values, UNLISTED, *gap), None, len(values))
        edges = edges_of(name, kind, bins)
        ends = [kind._said(edge) for edge in edges]
        if len(set(ends)) < len(ends):
            ends = [repr(float(edge)) for edge in edges]
        # The first and the last cell hold all numbers beyond them too, so their names have to show
        # that.
        range_low, range_high = (-np.inf, np.inf) if kind._ends is None else kind._ends
        left, right = "[", "]"
        if edges[0] > range_low:
            left, ends[0] = "(", "-inf"
        if edges[-1] < range_high:
            right, ends[-1] = ")", "inf"
        labels = [f"[{low}, {high})" for low, high in pairwise(ends)]
        labels[0] = left + labels[0][1:]
        labels[-1] = labels[-1][:-1] + right
        return cls(name, (*labels, *gap), edges, len(labels))

    def cells(self, values: np.ndarray) -> np.ndarray:
        """Cell of each row, by the numbers or codes that :func:`read_table` returns."""
        if self.edges is None:
            return cells_of_codes(values, self.n_values)
        found = np.searchsorted(self.edges[1:-1], values, side="right")
        return np.where(np.isnan(values), self.n_values, found).astype(np.intp)


# Share of all records that are not listed, by released counts, from which on there is a warning.
_MANY_UNLISTED = 0.1


def warn_of_unlisted(shares: Mapping[str, float], schema: Schema) -> None:
    """Warn about columns with many values that are none of their categories, by released counts."""
    for name, share in shares.items():
        if share >= _MANY_UNLISTED:
            warn(
                f"at least {share:.0%} of the values of column {shown(name)} are not listed, as the"
                f" released counts show: they are none of {shown_first(schema[name].values)}. Does"  # type: ignore[attr-defined]
                " the table write them otherwise, such as with a blank before them or in capitals?"
                " Schema.check tells whoever may see the rows.",
                PrivacyWarning,
                about=("not listed", name),
            )


def cells_of_codes(codes: np.ndarray, n_values: int) -> np.ndarray:
    """Cells of codes of categories: unlisted values get the next cell, missing ones the last."""
    return np.where(codes < 0, n_values + (codes == MISSING), codes).astype(np.intp)


def edges_of(name: str, kind: Kind, bins: Any) -> np.ndarray:
    """Edges of cells of numbers: equally spaced on the scale of the column, or as given."""
    if np.ndim(bins) == 0:
        check_integer("bins", bins, low=1, high=100_000)
        if kind._ends is None:
            raise ValueError(
                f"the column {shown(name)} has no public range, so that its cells are not known:"
                f" give their edges, bins={{{shown(name)}: [0, 10, 20]}}, from public knowledge, or"
                " write Range(low, high) in the schema."
            )
        points = scale_points(kind, int(bins) + 1)
        return np.unique(np.round(points)) if kind._parts else points
    try:
        days = [day_of(edge) for edge in bins] if kind._parts else bins
        edges = np.array(days, dtype=np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    if edges.ndim != 1 or len(edges) < 2 or not np.all(np.diff(edges) > 0):
        hint = " Its edges are dates, such as '2024-05-31'." if kind._parts else ""
        raise ValueError(
            "`bins` must be a number of cells, or two or more edges that rise, and is"
            f" {shown(bins)} for the column {shown(name)}.{hint}"
        )
    if not np.isfinite(edges).all():
        raise ValueError(
            f"`bins` of the column {shown(name)} must be finite: the first and the last cell hold"
            " all smaller and larger numbers anyway."
        )
    return edges


def scale_points(kind: Kind, n_points: int) -> np.ndarray:
    """Numbers from one end of a public range to the other, in equal steps on the column's scale."""
    assert kind._ends is not None
    low, high = map(float, kind._ends)
    shares = np.linspace(0.0, 1.0, n_points)
    if kind.log:
        shares = np.clip(off_log(shares, low, high), 0.0, 1.0)
    points = low * (1 - shares) + high * shares
    points[0], points[-1] = low, high
    return points


def middle_of(kind: Kind) -> tuple[float, float]:
    """Middle of a public range, and half of its width."""
    assert kind._ends is not None
    low, high = kind._ends
    return low / 2 + high / 2, high / 2 - low / 2


def in_unit(values: np.ndarray, kind: Kind) -> np.ndarray:
    """Map numbers of a column from its public range to [-1, 1], clipped to the ends."""
    middle, half = middle_of(kind)
    return np.clip((values - middle) / half, -1.0, 1.0)


def cells_of_columns(schema: Schema, columns: Sequence[str], bins: Any) -> list[CellColumn]:
    """Public cells of some columns of a schema; ValueError if `bins` name another column."""
    if texts := tuple(name for name in columns if schema[name]._textual):
        raise with_texts(texts, "texts have no cells to count")
    each = bins if isinstance(bins, Mapping) else dict.fromkeys(columns, bins)
    others = [name for name in each if name not in columns or schema[name]._categorical]
    if isinstance(bins, Mapping) and others:
        raise ValueError(f"`bins` names {shown(others)}, which are no columns of numbers here.")
    return [CellColumn.of(name, schema[name], each.get(name, 10)) for name in columns]


def read_columns(
    frame: Any, schema: Schema, columns: Sequence[str], groups: Any = None
) -> tuple[Table, Schema]:
    """Read some columns of a frame; returns the rows and the schema of these columns."""
    part = Schema({name: schema[name] for name in columns})
    if names_of(frame) is not None:
        return read_anywhere(frame, part, name="frame", groups=groups), part
    # Without names, the array must have all columns of the schema.
    table = read_anywhere(frame, schema, name="frame", groups=groups)
    numbers = [schema.numbers.index(name) for name in part.numbers]
    codes = [schema.categories.index(name) for name in part.categories]
    return Table(table.numbers[:, numbers], table.codes[:, codes]), part


def values_of(table: Table, schema: Schema, name: str) -> np.ndarray:
    """Numbers or codes of one column."""
    if schema[name]._categorical:
        return table.codes[:, schema.categories.index(name)]
    return table.numbers[:, schema.numbers.index(name)]
