"""Rows of a Dask collection by their positions, which are public: the same in each pass.

The position of a row is its number in the order of the blocks. It follows from the lengths of
blocks, which are public, and from nothing that rows hold: which rows are chosen is then the same
for two neighbours. A block of another length than before ends the pass, since its rows would be at
other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from dpsubspace.exceptions import ClusterError


def at_positions(collection: Any, lengths: Sequence[int], chosen: np.ndarray) -> Any:
    """The rows of a collection of which `chosen` (n_rows,) is True, in as many blocks.

    A lazy collection of the same kind. `lengths` has the rows of each block.
    """
    masks = np.split(np.asarray(chosen, dtype=bool), np.cumsum(lengths)[:-1])
    packed = [np.packbits(mask) for mask in masks]  # they are sent
    if hasattr(collection, "to_dask_array"):
        return _of_frame(collection, packed, lengths)
    return _of_array(collection, packed, lengths, [int(mask.sum()) for mask in masks])


def check_positions(name: str, collection: Any) -> None:
    """ValueError where rows of blocks of such a collection cannot be chosen, whatever they hold.

    pandas takes rows only of columns whose bytes are in the order of the machine, and NumPy of all.
    """
    if not hasattr(collection, "_meta_nonempty"):
        return
    example, message = collection._meta_nonempty, ""
    try:
        _chosen(example, _mask(np.array([128], np.uint8), len(example)))
    except ValueError as error:
        message = str(error)  # of rows that Dask has made up
    if message:
        raise ValueError(
            f"rows of `{name}` cannot be chosen one by one, as a search has to: {message}. Convert"
            f" its columns first, as {name}.astype('float64') does."
        )


def _of_frame(frame: Any, packed: Sequence[np.ndarray], lengths: Sequence[int]) -> Any:
    import dask.dataframe as dd

    masks: Any = dd.from_map(_mask, packed, lengths, meta=_mask(np.empty(0, np.uint8), 0))
    options = {"meta": frame._meta, "align_dataframes": False, "clear_divisions": True}
    return frame.map_partitions(_chosen, masks, **options)


def _of_array(
    array: Any, packed: Sequence[np.ndarray], lengths: Sequence[int], left: Sequence[int]
) -> Any:
    import dask.array
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph

    name, rest = f"chosen-{uuid4().hex}", (0,) * (array.ndim - 1)
    blocks = zip(flatten(array.__dask_keys__()), packed, lengths, strict=True)
    tasks: Any = {(name, i, *rest): (_chosen_by, *block) for i, block in enumerate(blocks)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[array])
    chunks = (tuple(left), *array.chunks[1:])
    made: Any = dask.array.Array  # of which stubs know another signature
    return made(graph, name, chunks, dtype=array.dtype)


def _mask(packed: np.ndarray, n: int) -> Any:
    import pandas as pd

    return pd.Series(np.unpackbits(packed, count=n).astype(bool))


def _chosen_by(block: Any, packed: np.ndarray, n: int) -> Any:
    return _chosen(block, _mask(packed, n))


def _chosen(block: Any, mask: Any) -> Any:
    """Rows of a block where it lies; ClusterError where it is not what it was."""
    if len(block) != len(mask):
        raise ClusterError(
            "a block was read again, and there were other numbers of rows in it. What it is read"
            " from must give the same each time."
        )
    return block[mask.to_numpy()]
