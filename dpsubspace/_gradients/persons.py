"""Gradients of persons: the mean over the rows of each.

Design note. Rows of one person have gradients in many directions, and their mean is several times
shorter than they are. A bound on the mean may therefore be smaller than one on each row, for the
same bias, and noise is in proportion to the bound. Gradients of persons are formed, which those of
rows of a linear model never are: there are fewer of them, and each costs one pass over the
person's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._array import EPS, Array, slices
from dpsubspace._gradients.clipping import in_parts, shrink_factors
from dpsubspace._gradients.dense import DenseGradients
from dpsubspace._rows.records import Records

__all__ = ["PersonSource", "of_records"]

# A row's gradient is shrunk to this many clip norms before the mean is taken: one row far out
# should not decide the direction of it, and rounding is in proportion to the longest.
_LONGEST_ROW = 8.0

# Numbers of the gradients of a chunk of persons (8 MiB), and of the rows that are used at once.
_FORMED, _PIECE = 1 << 20, 1 << 20


@dataclass(frozen=True)
class PersonSource:
    """Gradients of records that have several rows, one gradient a record.

    Parameters
    ----------
    source : LinearSource or ModuleSource
        Gradients of the rows.
    records : Records
        Whose the rows are.
    clip_norm : float
        What the gradients of records will be clipped to.

    Notes
    -----
    Proof of the bounds: the gradient of a record is a function of its rows alone, whatever they
    are, and is clipped as that of any record. Rounding: rows of other records may lie elsewhere in
    a chunk, where what is computed of them rounds otherwise, which
    :meth:`~dpsubspace._rows.records.Records.slack` counts for rows as long as a clip norm. Rows
    are up to 8 times as long here. They are added up in their own order, whatever comes before.
    """

    source: Any
    records: Records
    clip_norm: float

    @property
    def n_samples(self) -> int:
        """Number of records, public."""
        return self.records.n

    @property
    def data(self) -> Array:
        """Return that of the rows."""
        return self.source.data

    def work(self, batch: np.ndarray | None = None) -> float:
        """Return that of the rows."""
        return self.source.work(batch)

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Numbers of records, each in one chunk: few enough for their gradients and rows."""
        records = np.arange(self.records.n) if batch is None else np.asarray(batch)
        ends = np.cumsum(self.records.counts[records])
        most, chunks, start, before = self._most, [], 0, 0
        while start < len(records):
            stop = int(np.searchsorted(ends, before + self._piece, side="right"))
            stop = min(max(stop, start + 1), start + most)
            chunks.append(records[start:stop])
            start, before = stop, int(ends[stop - 1])
        return chunks or [records]

    def at(self, params: Array, records: np.ndarray) -> DenseGradients:
        """Gradients of the records of a chunk at `params`."""
        rows, counts = self.records.rows_by_record(records)
        if len(rows) <= self._piece or len(records) > 1:
            gradients, slack = self._means(params, rows, counts)
        else:  # a record of very many rows, a piece of them after another
            gradients, slack = 0.0, 0.0
            for some in slices(len(rows), self._piece):
                part, slack = self._means(params, rows[some], np.array([len(rows[some])]))
                gradients = gradients + part
        shape = tuple(params.shape)
        return DenseGradients(gradients, shape, None, slack)

    def _means(self, params: Array, rows: np.ndarray, counts: np.ndarray) -> tuple[Array, float]:
        """Sums of the rows' gradients, each in its part of the record, and their slack."""
        grads = self.source.at(params, rows)
        weights = in_parts(grads, shrink_factors(grads.norms(), _LONGEST_ROW * self.clip_norm))
        slack = _LONGEST_ROW * grads.slack() + self.records.slack(EPS, self._most)
        return grads.sums(weights, counts), slack

    @property
    def _most(self) -> int:
        """Records of a chunk."""
        return max(1, _FORMED // max(1, self.source.n_params))

    @property
    def _piece(self) -> int:
        """Rows of a chunk, but for a record that has more."""
        return max(1 << 10, _PIECE // max(1, self.source.width))


def of_records(source: Any, clip_norm: float) -> Any:
    """Gradients of what one record is: of the rows themselves, or of persons."""
    records = source.records
    return PersonSource(source, records, clip_norm) if records.grouped else source
