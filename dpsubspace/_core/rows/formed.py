"""Rows of many numbers that are formed, some at a time, of the few that are held of each.

Privacy: the numbers of a row follow from what is held of that row alone, and are the same to the
bit whichever rows are formed with it. So norms that were taken once bound whatever is added up
later, and a record that changes moves no number of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.ground.arrays import (
    BLOCK,
    Scratch,
    as_like,
    cast_rows,
    piece_rows,
    row_norms,
    slices,
)

# Bytes of the entries that are formed at once, which should stay in the cache of a processor, and
# the fewest rows: calls of functions should count for little. Each thread has a chunk, so that rows
# of very many features are fewer where they would take more bytes than a chunk may at most.
_CHUNK_BYTES, _FEWEST, _MOST_BYTES = 3 << 21, 1 << 10, 1 << 26


@dataclass(frozen=True, eq=False)
class Layout:
    """How features (p,) of a row are made of entries that are cheap to form.

    Feature ``places[k]`` is ``sizes[k]`` times entry k. A product with features is one with
    entries, of weights that are multiplied by sizes first, or of sums that are multiplied by them
    in float64 at the end. Rounding is then in proportion to each feature, as without sizes.
    """

    places: np.ndarray  # (p,)
    sizes: np.ndarray  # (p,)

    def inward(self, weights: np.ndarray) -> np.ndarray:
        """Weights (p, c) of entries, for those of features."""
        return weights[self.places] * as_like(self.sizes, weights)[:, None]

    def outward(self, sums: np.ndarray) -> np.ndarray:
        """Sums (p, c) of features, from those of entries."""
        found = np.empty_like(sums)
        found[self.places] = sums * self.sizes[:, None]
        return found

    def features(self, entries: np.ndarray) -> np.ndarray:
        """Features (m, p) of rows of entries, in their dtype."""
        found = np.empty(entries.T.shape, dtype=entries.dtype)  # columns in one piece each
        found[self.places] = entries.T
        found *= self.outward(np.ones((len(found), 1), dtype=entries.dtype))
        return found.T


class FormedRows:
    """Rows (n, p) in float32, of which only those that are asked for are formed.

    `held` are arrays of columns (k, n), and `form` makes entries (p, m) of m of their columns, of
    which `layout` makes features. In all else they are like an array, but in two dimensions.
    """

    ndim, dtype, device = 2, np.dtype(np.float32), "cpu"

    def __init__(
        self,
        held: Sequence[np.ndarray],
        form: Callable[[Sequence[np.ndarray]], np.ndarray],
        layout: Layout,
    ):
        self._held, self._form, self.layout = tuple(held), form, layout
        self.shape = (held[0].shape[1], len(layout.places))
        self.template = np.empty((0, self.shape[1]), dtype=self.dtype)  # the same of no rows

    def entries(self, rows: Any) -> np.ndarray:
        """Entries (m, p) of some rows, in memory that is lent as long as anybody has the array.

        Columns lie in one piece each.
        """
        return self._form([held[:, rows] for held in self._held]).T

    def taken(self, rows: Any) -> FormedRows:
        """Some of the rows, which are formed as they are here."""
        return FormedRows([held[:, rows] for held in self._held], self._form, self.layout)

    def norms(self, rows: Any) -> np.ndarray:
        """Norms of the features of some rows in float64, never too small."""
        entries, found = self.entries(rows), []
        for some in slices(len(entries), piece_rows(entries)) or [slice(0, 0)]:
            wide = cast_rows(entries[some], np.float64)
            wide *= self.layout.sizes
            found.append(row_norms(wide))
        return np.concatenate(found)

    def __getitem__(self, key: tuple[Any, Any]) -> np.ndarray:
        rows, columns = key
        return self.layout.features(self.entries(rows))[:, columns]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return "<rows>"  # ends up in messages

    @property
    def chunk(self) -> int:
        """Rows to form at once, by public sizes: all operations of a chunk go over its entries."""
        row = self.dtype.itemsize * max(1, self.shape[1])
        few = min(_FEWEST, _MOST_BYTES // row)
        return max(few, _CHUNK_BYTES // row, BLOCK) // BLOCK * BLOCK

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, if they were there."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def blank(self) -> np.ndarray:
        """Rows of zeros of the same shape, which need no memory: for checks."""
        return np.broadcast_to(self.dtype.type(0), self.shape)


def lent(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of scratch memory, which goes back where nobody has a view of it any more."""
    return np.asarray(_Lent(Scratch(shape, dtype)))


class _Lent:
    """What an array keeps alive that lies in scratch memory."""

    def __init__(self, kept: Scratch):
        self._kept, self.__array_interface__ = kept, kept.array.__array_interface__
