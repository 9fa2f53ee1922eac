"""Tables of Dask data frames: read by partition, where these lie, as numbers and codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dpsubspace._checks import is_collection
from dpsubspace._rows.dask_parts import ROWS, load_arrays
from dpsubspace._tables.schema import Schema, Table, check_columns, read_table

# What parts hold beside numbers, which have the name of rows.
CODES = "codes"


def read_anywhere(frame: Any, schema: Schema, *, name: str) -> Table:
    """Rows as :func:`~dpsubspace._tables.schema.read_table` gives them, of Dask data frames too.

    A table of such a frame has columns in parts, which stay on the workers. Only the columns of the
    schema are read. What becomes of a row follows from that row alone, so that it is the same
    however rows are cut into partitions.
    """
    if not is_collection(frame):
        return read_table(frame, schema, name=name)
    if not hasattr(frame, "columns") or frame.ndim != 2:
        raise ValueError(
            f"`{name}` is a Dask array or series, and columns are found by name: pass a Dask data"
            " frame."
        )
    check_columns(frame, schema, name)
    chosen = frame[list(schema)].simplify()  # reads no other column of a file
    arrays = load_arrays(chosen, None, _PartitionOfTable(schema, name))
    numbers, codes = (cast(np.ndarray, arrays[name]) for name in (ROWS, CODES))
    return Table(numbers, codes)


@dataclass(frozen=True)
class _PartitionOfTable:
    """Reads a partition where it lies: ValueError that holds no value where it cannot be used."""

    schema: Schema
    name: str

    def __call__(self, frame: Any) -> dict[str, np.ndarray]:
        shapes = ((0, len(names)) for names in (self.schema.numbers, self.schema.categories))
        table = Table(*map(np.empty, shapes))
        if len(frame):
            table = read_table(frame, self.schema, name=self.name)
        return {ROWS: table.numbers, CODES: table.codes.astype(self._codes_as)}

    @property
    def _codes_as(self) -> np.dtype:
        """Narrowest integers that hold all codes, which the schema tells."""
        kinds = (self.schema[name] for name in self.schema.categories)
        most = max((len(kind.values) for kind in kinds), default=0)  # type: ignore[attr-defined]
        return np.promote_types(np.int8, np.min_scalar_type(-max(most, 2)))
