"""Blocks of rows that are read one after another, and the one array that they make.

Whatever reads rows in parts makes each of them here: the workers of a cluster, of partitions of a
collection, and this process, of batches of a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dpsubspace._core.rows.remote import RemoteRows, RowParts, rowwise
from dpsubspace._core.rows.together import HELD, NAMES, joined_names

# What parts hold from the beginning. Tables have codes of categories beside their numbers.
ROWS, CODES, TARGETS = "rows", "codes", "targets"

# The number of the first block of a part.
FIRST = "first"


def joined(
    blocks: Iterable[tuple[str, Sequence[Any]]], check: Callable[..., dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], list[int]]:
    """Arrays of all blocks, which `check` makes of each, and how many rows each of them has.

    A block comes with what messages call it. ValueError where one cannot be used.
    """
    found, lengths, names = {}, [], []
    for called, block in blocks:
        try:
            arrays = check(*block)
            if len({len(array) for array in arrays.values()}) > 1:
                of = " and ".join(str(len(array)) for array in arrays.values())
                of = "other numbers of" if NAMES in arrays else of  # these are private
                raise ValueError(f"a block of `X` and its block of `y` have {of} rows.")
            if NAMES in arrays:
                names.append(arrays.pop(NAMES))
            for name, array in arrays.items():
                _append(found, name, array)
        except ValueError as error:
            raise ValueError(f"{error} This is about {called}.") from None
        lengths.append(len(arrays[ROWS]))
    return found | ({NAMES: joined_names(names)} if names else {}), lengths


def _append(found: dict[str, np.ndarray], name: str, array: np.ndarray) -> None:
    """Add a block to an array, in place: that moves pages of memory and copies no row."""
    if name not in found:
        found[name] = np.array(array, order="C")  # its own, since it grows
        return
    known = found[name]
    _check_alike(name, (known.dtype, known.shape[1:]), (array.dtype, array.shape[1:]))
    before = len(known)
    known.resize((before + len(array), *known.shape[1:]), refcheck=False)
    known[before:] = array


def of_no_rows(kinds: list[dict[str, tuple[Any, tuple[int, ...]]]]) -> dict[str, np.ndarray]:
    """Arrays of no rows like those of the parts; ValueError where these differ."""
    for other in kinds[1:]:
        for name, kind in kinds[0].items():
            _check_alike(name, kind, other[name])
    shapes = {name: kind for name, kind in kinds[0].items() if name not in (FIRST, HELD)}
    return {name: np.empty((0, *shape), dtype) for name, (dtype, shape) in shapes.items()}


def _check_alike(name: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    """ValueError where blocks of a collection have different types or widths."""
    if one != other:
        called = {ROWS: "X", CODES: "X", TARGETS: "y"}.get(name, name)
        of = [f"{dtype} with {shape[0] if shape else 1} columns" for dtype, shape in (one, other)]
        raise ValueError(
            f"`{called}` has blocks of different types or widths: {of[0]}, and {of[1]}. Give all"
            " blocks the same columns and one type, by astype or map_partitions for example."
        )


# Entries that lie here ------------------------------------------------------------------------


def dealt_out(parts: RowParts, values: np.ndarray, starts: np.ndarray) -> RemoteRows:
    """Entries of rows that lie here, of each part its own: see :meth:`RowParts.scattered`.

    `starts` has the number of the first row of each block, by the number of the block.
    """
    rows, first = parts.leaf(ROWS, parts.template[ROWS]), parts.leaf(FIRST, np.zeros(1, dtype=int))
    return rowwise(_taken, np.asarray(values, dtype=np.float64), starts, first, rows)


def _taken(values: np.ndarray, starts: np.ndarray, first: np.ndarray, rows: Any) -> np.ndarray:
    """Entries of the rows of a part, by the number of its first block."""
    start = starts[first[0]]
    return values[start : start + len(rows)]
