"""Tables of Dask collections, read by a schema partition by partition, where the workers are.

Privacy: what becomes of a row follows from that row and from the schema, which is public
(:func:`~dpsubspace._core.tables.schema.read_table`): the value that a row gets depends on that row
and on the types of the columns alone. So it does not matter in which partition a row lies, and a
record that changes moves nothing but what stands for its own row. Dask itself makes floats of whole
numbers in a partition where one is missing, which moves no number below 2^53, and is the same for a
range as the float that a number becomes there anyway. Categories beyond that are refused by type
(:func:`check_types`). Where rows belong to persons, a record is all rows of one. They are brought
to one part by the name of the person (``_core/rows/together.py``), as the schema has read them, and
what is made of them there is what is made of them in memory: ranges that are estimated, counts and
the model have the bounds for persons that they have there (``_core/rows/records.py``).

Design note. Rows are brought together before they are encoded. How finely is decided by the number
of persons, which is known only then, and by ranges, which are estimated of persons. And numbers
and codes of a row take a few times less room than its features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dpsubspace._core.ground.checks import is_dataset, is_elsewhere, shown
from dpsubspace._core.rows.dataset_parts import DatasetColumns
from dpsubspace._core.rows.elsewhere import load
from dpsubspace._core.rows.records import check_order, split_groups
from dpsubspace._core.rows.remote import CODES, ROWS, TARGETS, rowwise
from dpsubspace._core.tables.frames import column_of, holds_floats
from dpsubspace._core.tables.kinds import check_told_apart
from dpsubspace._core.tables.schema import Schema, Table, read_table


def table_in_parts(
    frame: Any,
    schema: Schema,
    y: Any = None,
    targets: Callable[[Any], np.ndarray] | None = None,
    groups: Any = None,
) -> tuple[Any, Any]:
    """A collection of rows as `schema` reads them, in parts on the workers; and targets beside it.

    The table is what stands for a :class:`Table` on each worker. `targets` checks a block of `y`;
    without it there are none. With `groups`, all rows of a person lie in one part. Columns that the
    schema does not name are not read.

    ValueError as by :func:`read_table`, which also says in which partition. Nothing of a value.
    """
    rows, whose = columns_of(frame, schema), map(_alone, split_groups(groups))
    found = load(rows, _alone(y), _BlockOfTable(schema, targets), *whose)
    return rowwise(Table, found[ROWS], found[CODES]), found.get(TARGETS)


def read_anywhere(frame: Any, schema: Schema, *, name: str, groups: Any = None) -> Table:
    """Rows as :func:`~dpsubspace._core.tables.schema.read_table` gives them, in memory or not.

    A table of a Dask data frame has columns in parts, which stay on the workers: with `groups`, all
    rows of a person in one part.
    """
    if not is_elsewhere(frame):
        check_order(frame, name, groups=groups)
        return read_table(frame, schema, name=name)
    if not is_dataset(frame) and (not hasattr(frame, "columns") or frame.ndim != 2):
        raise ValueError(
            f"`{name}` is a Dask array or series, and columns are found by name: pass a Dask data"
            " frame."
        )
    rows, whose = columns_of(frame, schema, name), map(_alone, split_groups(groups))
    found = load(rows, None, _BlockOfTable(schema, None, name), *whose)
    return Table(cast(np.ndarray, found[ROWS]), cast(np.ndarray, found[CODES]))


def _alone(column: Any) -> Any:
    """What is not read with the rows: it may come from elsewhere, and has one column."""
    return column.simplify() if hasattr(column, "simplify") else column


def columns_of(frame: Any, schema: Schema, name: str = "X", *, named: bool = False) -> Any:
    """The columns of a schema alone; ValueError where names or types show that there is none.

    Dask then reads no other ones from files that can be read by columns.
    """
    frame = DatasetColumns.of(frame) if is_dataset(frame) else frame
    if hasattr(frame, "columns"):
        read_table(frame._meta, schema, name=name, empty=True)
        check_types(frame._meta, schema, name)
        chosen = frame[list(schema)]
        return chosen.simplify() if hasattr(chosen, "simplify") else chosen
    if np.isnan(frame.shape[1:]).any():
        raise ValueError("`X` must have a known number of columns: call compute_chunk_sizes().")
    read_table(np.empty((0, *frame.shape[1:]), dtype=object), schema, empty=True, named=named)
    return frame


def check_types(meta: Any, schema: Schema, name: str) -> None:
    """ValueError where categories are numbers that a column, by its type, may not tell apart.

    Whole numbers of NumPy cannot be missing: Dask makes floats of them in a partition where one
    is, before the partition is seen here.
    """
    for column, kind in schema.items():
        values, label = column_of(meta, column), f"Column {shown(column)} of `{name}`"
        dtype = getattr(values, "dtype", None)
        if holds_floats(values):
            check_told_apart(kind, label)
        elif kind.missing and isinstance(dtype, np.dtype) and dtype.kind in "iu":
            check_told_apart(kind, label, whole=True)


@dataclass(frozen=True)
class _BlockOfTable:
    """Reads a partition of a table, and makes `targets` of a block beside it, where they lie."""

    schema: Schema
    targets: Callable[[Any], np.ndarray] | None
    name: str = "X"

    def __call__(self, X: Any, y: Any = None) -> dict[str, np.ndarray]:
        """Arrays of a partition; ValueError where it cannot be used."""
        check_order(X, self.name, y=y)
        table = read_table(X, self.schema, name=self.name, empty=True, kept=True)
        found = {ROWS: table.numbers, CODES: table.codes}
        return found if self.targets is None else found | {TARGETS: self.targets(y)}
