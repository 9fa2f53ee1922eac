"""Rows that are not in memory here, by what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsubspace._core.rows.dask_parts import load_collections
from dpsubspace._core.rows.dataset_parts import DatasetColumns, load_dataset
from dpsubspace._core.rows.remote import RemoteRows


def load(
    rows: Any,
    targets: Any,
    checked: Callable[..., dict[str, np.ndarray]],
    groups: Any = None,
    not_null: Any = None,
) -> dict[str, RemoteRows]:
    """Return rows and arrays beside them, checked where they are read: in parts, by name.

    `rows` is a Dask collection, or columns of a dataset of PyArrow. `checked` makes the arrays of a
    block, by name, from a block of rows and one of targets if there are any, and raises ValueError
    if they cannot be used. With `groups`, for which `not_null` may mark who is present, all rows of
    a person are brought together in one part.
    """
    if isinstance(rows, DatasetColumns):
        if groups is not None:
            raise ValueError(
                "`groups` does not work with datasets of PyArrow, of which a part has some rows of"
                " a person and not all: pass a Dask data frame, rows in memory, or one row of each"
                " person."
            )
        return load_dataset(rows, targets, checked)
    return load_collections(rows, targets, checked, groups, not_null)
