"""Datasets of PyArrow as rows in parts, on one machine: files are read again for each call.

A part is a run of consecutive rows, in the order of the files. It is read, checked and encoded, the
requested result is computed, and the part is discarded. A few parts are in memory at a time: one
for each thread that works on them, and those that Arrow reads ahead. So a pass over all rows takes
the time that it takes to read and encode them, and memory does not grow with their number.

Privacy: a part holds the same rows in every pass, as long as nobody writes to the files. It behaves
like a part on a worker that was lost before each call (``_core/rows/dask_parts.py``), and the same
proofs hold: the numbers of a row follow from this row and from public or released numbers. A record
that was read with two values, or twice, would have no guarantee. So sizes and times of all files
are compared before and after each pass, and a fit stops if they differ.

The value that a row gets depends on that row and on the types in the schema of the dataset alone:
Arrow reads a part by that schema, and the part is read column by column like a table of Arrow that
is in memory. pandas would choose types by the values of a part. Whole numbers beside a missing one
become floats there, where 2^53 and 2^53 + 1 are one and the same, so that one row would move all
others of its part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, pairwise, repeat
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np

from dpsubspace._core.ground.checks import shown
from dpsubspace._core.rows.chunks import blas_threads, using_threads
from dpsubspace._core.rows.remote import (
    FIRST,
    RemoteRows,
    RowPart,
    RowParts,
    dealt_out,
    joined,
    of_no_rows,
)
from dpsubspace.exceptions import PrivacyError

# Bytes of a part as features in float32, of which a column of a table has about 20, and the fewest
# and the most rows of one.
_PART_BYTES, _COLUMN_BYTES, _FEWEST, _MOST = 1 << 26, 80, 1 << 12, 1 << 16

# Number of batches, of at most the rows of a part, and of files that Arrow reads ahead.
_BATCHES_AHEAD, _FILES_AHEAD = 2, 1

# Results of Arrow so far, in one file or several.
_Piece = list[tuple[str, Any]]


@dataclass(frozen=True)
class DatasetColumns:
    """Columns of a dataset, with the attributes of a data frame that is not read yet."""

    dataset: Any
    columns: list[str]
    ndim = 2

    @classmethod
    def of(cls, dataset: Any, but: Any = None) -> DatasetColumns:
        """Return all columns that pandas would have, without those of the target."""
        left = set() if but is None else set(_named(dataset, but))
        left |= {name for name in _index_of(dataset.schema) if isinstance(name, str)}
        return cls(dataset, [name for name in dataset.schema.names if name not in left])

    def __getitem__(self, columns: list[str]) -> DatasetColumns:
        return DatasetColumns(self.dataset, columns)

    @property
    def _meta(self) -> Any:
        """A table of Arrow with no rows."""
        import pyarrow

        # Not schema.empty_table(), which old versions do not have for columns encoded by runs.
        nothing = pyarrow.Table.from_batches([], schema=self.dataset.schema)
        places = {name: [] for name in self.columns}
        for place, name in enumerate(nothing.column_names):
            places.get(name, []).append(place)
        return nothing.select([*chain(*places.values())])  # a name may occur twice


def _index_of(schema: Any) -> list[Any]:
    """Return the columns that were the index, in files that pandas has written."""
    return (schema.pandas_metadata or {}).get("index_columns", [])


def load_dataset(
    rows: DatasetColumns, y: Any, checked: Callable[..., dict[str, np.ndarray]]
) -> dict[str, RemoteRows]:
    """Return columns of a dataset, and the columns named by `y`, read and checked once.

    Raise ValueError if they cannot be used, with the name of the file.
    """
    targets = None if y is None else _named(rows.dataset, y)
    if targets and (both := [name for name in targets if name in rows.columns]):
        raise ValueError(f"`y` names {shown(both)}, which the schema has among the features too.")
    parts = _DatasetParts(_Reading(rows.dataset, rows.columns, targets, y, checked))
    return {name: parts.leaf(name, here) for name, here in parts.template.items()}


def _named(dataset: Any, y: Any) -> list[str]:
    """Return the columns of the target; raise ValueError if names do not exist."""
    names = [y] if isinstance(y, str) else y
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise ValueError(
            "beside a dataset of PyArrow, `y` is the name of a column of it, such as 'label', or a"
            f" list of names. Got {type(y).__name__}."
        )
    if absent := [name for name in names if name not in dataset.schema.names]:
        raise ValueError(
            f"`y` names {shown(absent)}, and the dataset has the columns"
            f" {shown(dataset.schema.names)}."
        )
    return names


# Reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    """The instructions to read parts from a dataset."""

    dataset: Any
    columns: list[str]
    targets: list[str] | None
    y: Any
    checked: Callable[..., dict[str, np.ndarray]]

    def files(self) -> list[tuple[str, int, int]]:
        """Return name, size and time of each file; nothing for a dataset in memory."""
        return [found for each in _leaves(self.dataset) for found in _states(each)]

    def pieces(self) -> Iterator[_Piece]:
        """Return the pieces of each part, in the order of the files.

        Raise ValueError if a file cannot be read by the schema of the dataset.
        """
        rows = max(_FEWEST, min(_MOST, _PART_BYTES // (_COLUMN_BYTES * len(self.columns))))
        piece, room = [], rows
        for file, batch in self._batches(rows):
            while batch.num_rows:
                piece.append((file, some := batch.slice(0, room)))
                batch, room = batch.slice(room), room - some.num_rows
                if not room:
                    yield piece
                    piece, room = [], rows
        if piece:
            yield piece

    def _batches(self, rows: int) -> Iterator[tuple[str, Any]]:
        import pyarrow

        scanner = self.dataset.scanner(
            columns=[*self.columns, *(self.targets or ())],
            batch_size=rows,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        )
        batches, failed = iter(scanner.scan_batches()), None
        while failed is None:
            try:
                tagged = next(batches, None)
            except pyarrow.ArrowException as error:  # its message may have an entry
                failed = type(error).__name__
                continue
            if tagged is None:
                return
            file = getattr(tagged.fragment, "path", None)
            yield "the dataset" if file is None else f"the file {file}", tagged.record_batch
        why = self._why()
        raise ValueError(f"PyArrow could not read the dataset by its schema ({failed}). {why}")

    def _why(self) -> str:
        """Explain how types in files differ from the schema, and what to do about it."""
        import pyarrow

        wanted = {*self.columns, *(self.targets or ())}
        for each in _leaves(self.dataset):
            for file in each.get_fragments():
                own: Any = None
                with suppress(pyarrow.ArrowException, OSError):  # messages may have an entry
                    own = file.physical_schema
                if own is None:
                    continue
                for name in wanted.intersection(own.names):
                    kind, asked = own.field(name).type, self.dataset.schema.field(name).type
                    if kind != asked:
                        return (
                            f"The file {getattr(file, 'path', None)} has {kind} in the column"
                            f" {shown(name)}, and dataset.schema says {asked}: pass a `schema` to"
                            " pyarrow.dataset.dataset in which the column is of a type that holds"
                            " the values of all files, as float64 does of whole numbers and halves."
                        )
        return (
            "Compare the types of dataset.schema with those of each file: a column of text may be"
            " one of numbers in another file, or have other entries than the first rows of a CSV"
            " file show."
        )

    def part(self, number: int, piece: _Piece) -> RowPart:
        """Return the part with this number; raise ValueError if it cannot be used."""
        import pyarrow

        def blocks() -> Iterator[tuple[str, list[Any]]]:
            for file, batches in groupby(piece, itemgetter(0)):
                table = pyarrow.Table.from_batches([batch for _, batch in batches])
                y = [] if self.targets is None else [self._of_targets(table)]
                yield file, [table.select(self.columns), *y]

        arrays, lengths = joined(blocks(), self.checked)
        return RowPart(arrays | {FIRST: np.array([number])}, [sum(lengths)])

    def _of_targets(self, table: Any) -> Any:
        return table.column(self.y) if isinstance(self.y, str) else table.select(self.y)


def _leaves(dataset: Any) -> list[Any]:
    """Return a dataset, or the datasets that it is a union of."""
    inner = getattr(dataset, "children", None)
    return [dataset] if inner is None else [leaf for each in inner for leaf in _leaves(each)]


def _states(dataset: Any) -> list[tuple[str, int, int]]:
    if not hasattr(dataset, "files"):
        return []
    found = dataset.filesystem.get_file_info(dataset.files)
    return [(info.path, info.size, info.mtime_ns) for info in found]


# Parts ------------------------------------------------------------------------------------------


class _DatasetParts(RowParts):
    """Rows of a dataset, in parts that are read again for each call."""

    keeps = False

    def __init__(self, reading: _Reading):
        super().__init__(0)
        self._reading, self._files = reading, reading.files()
        self._released = False  # what fails in the first pass has cost nothing
        seen = list(self._each(lambda part, _: (part.kinds(), part.lengths[0]), repeat(None)))
        if not seen:
            raise ValueError("`X` has no rows, and at least one is needed.")
        self._kinds, self._sizes = [kinds for kinds, _ in seen], [n for _, n in seen]
        self.template = of_no_rows(self._kinds)
        self._starts = np.cumsum([0, *self._sizes])
        self.n = int(self._starts[-1])
        self._released = True

    def run(self, task: bytes, own: Sequence[Any] | None) -> Iterator[Any]:
        def result(part: RowPart, given: tuple[Any, Any, int]) -> Any:
            mine, *known = given
            return part.run(task, mine) if [part.kinds(), part.lengths[0]] == known else _CHANGED

        mine = [None] * len(self._sizes) if own is None else own
        known = zip(mine, self._kinds, self._sizes, strict=True)
        n, none_such = 0, (None, {}, -1)
        for found in self._each(result, chain(known, repeat(none_such))):
            if found is _CHANGED:
                self._end("a file")
            yield found
            n += 1
        if n != len(self._sizes):
            self._end("a file")

    def _each(self, function: Callable[..., Any], given: Iterator[Any]) -> Iterator[Any]:
        """Yield ``function(part, its own)`` of each part in turn, a few of them at once."""

        def made(number: int, piece: _Piece, own: Any) -> Any:
            with using_threads(1), np.errstate(all="ignore"):
                return function(self._reading.part(number, piece), own)

        self._check_files()
        threads, begun = blas_threads(), deque[Future[Any]]()
        with ThreadPoolExecutor(threads) as workers:
            try:
                for number, piece in enumerate(self._reading.pieces()):
                    begun.append(workers.submit(made, number, piece, next(given)))
                    if len(begun) > threads:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            except (ValueError, OSError):
                self._check_files()
                raise
        self._check_files()

    def _check_files(self) -> None:
        """Raise PrivacyError if files differ from those of the first pass."""
        found = self._reading.files()
        if changed := [name for name, *_ in set(self._files) - set(found)]:
            self._end(f"the file {min(changed)}")

    def _end(self, what: str) -> NoReturn:
        kept = (
            "What it had reserved stays charged, since noisy sums may have been released."
            if self._released
            else "It had not begun to release anything, and nothing was charged."
        )
        raise PrivacyError(
            f"the fit has ended, since {what} has changed while it ran. Rows may have been read"
            f" with different values, for which there is no guarantee. {kept} Fit to files that"
            " nobody writes to."
        )

    def split(self, batch: np.ndarray) -> list[np.ndarray]:
        cuts = np.searchsorted(batch, self._starts)
        return [
            batch[first:last] - start
            for (first, last), start in zip(pairwise(cuts), self._starts, strict=False)
        ]

    def scattered(self, values: np.ndarray) -> RemoteRows:
        return dealt_out(self, values, self._starts)


# Stands for the result of a part that has changed.
_CHANGED = object()
