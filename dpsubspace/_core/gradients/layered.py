"""Gradients of a torch module that are added up layer by layer, of which few are formed.

Design note. The gradient of a row by the weight of a linear layer or a convolution is ``sum_s d_s
a_s^T`` over positions s (:mod:`dpsubspace._core.gradients.factors`). Its norm follows from inner
products of positions (Goodfellow, 2015; Li et al., 2022), and the sum of shrunk gradients is one
matrix product of all positions of all rows. A step of DP-SGD takes then about as long as one of
SGD. Where gradients themselves are needed, for public directions or persons, they are formed
(:class:`~dpsubspace._core.gradients.modules.ModuleSource`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.gradients.clipping import DenseGradients, FormedIfNeeded
from dpsubspace._core.gradients.factors import FactoredGradients, LayerByLayer
from dpsubspace._core.gradients.modules import ModuleSource, layers_of
from dpsubspace._core.gradients.vectorised import guarded
from dpsubspace._core.ground.arrays import BLOCK, EPS, Array, slices

# Factors of a chunk take this many bytes, which should stay in the cache, and most of its rows.
_CHUNK_BYTES, _ROWS = 1 << 23, 1 << 12

# Share of ``sum_s |d_s| |a_s|`` that the norm of a gradient is taken to be at least.
_CANCELLED = 2.0**-8


@dataclass(frozen=True)
class LayeredGradients(FormedIfNeeded):
    """Gradients of some rows, kept as factors by layer.

    A gradient that must not count has factors of zero.
    """

    held: FactoredGradients
    # Places in the vector of parameters of what is formed, and of each weight that is not.
    formed: list[slice]
    weights: list[slice]
    params_shape: tuple[int, ...]
    rounding: float  # Slack of their sum over all records, or over a batch
    shares: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.held.dense), *self.params_shape)

    def norms(self) -> Array:
        """Norms in float64, of which each is at least 1/256 of ``sum_s |d_s| |a_s|``.

        Rounding of a sum is in proportion to the latter. A gradient of which the positions cancel
        to less than that is taken to be longer than it is, so that it is shrunk more.
        """
        import torch

        squares = longer = self._formed().norms() ** 2
        for outer in self.held.outer:
            own, other = outer.lengths()
            squares, longer = squares + own, longer + other
        rounded = torch.sqrt(squares) * (1 + 8 * EPS)
        return torch.maximum(rounded, _CANCELLED * torch.sqrt(longer))

    def weighted_sum(self, weights: Array) -> Array:
        weights = weights.double()
        total = weights.new_zeros(self.params_shape)
        found, at = self._formed().weighted_sum(weights), 0
        for place in self.formed:
            total[place] = found[at : (at := at + place.stop - place.start)]
        for place, outer in zip(self.weights, self.held.outer, strict=True):
            total[place] = outer.weighted_sum(weights).reshape(-1)
        return total

    def _formed(self) -> DenseGradients:
        return DenseGradients(self.held.dense, (self.held.dense.shape[1],))

    def dense(self) -> Array:
        k, formed = len(self.held.dense), self.held.dense.double()
        rows, at = formed.new_zeros((k, *self.params_shape)), 0
        for place in self.formed:
            rows[:, place] = formed[:, at : (at := at + place.stop - place.start)]
        for place, outer in zip(self.weights, self.held.outer, strict=True):
            rows[:, place] = outer.dense().flatten(1)
        return rows


class LayeredSource(ModuleSource):
    """Gradients of ``loss(y, module(X))`` of which few are formed, of rows that are records.

    Parameters and errors are those of :class:`~dpsubspace._core.gradients.modules.ModuleSource`.
    Chunks have as many rows as have factors of 8 MiB, 4,096 at most.

    Rounding. As there, with sums over positions of rows in the place of sums over rows: a block has
    t times as many terms, and the norms of a record's terms add up to at most 256 times the norm
    to which it is shrunk (:meth:`LayeredGradients.norms`). Both are factors of the unit roundoff of
    a block. With one position, as in linear layers of flat rows, nothing cancels and both are 1.
    What rounding does to the square of a norm is in proportion to that of ``sum_s |d_s| |a_s|``,
    which is up to 256^2 times as large (:meth:`~dpsubspace._core.gradients.factors.Outer.lengths`).
    """

    _rows: LayerByLayer

    def at(self, params: Array, rows: Array) -> LayeredGradients:
        slack = self._slack if isinstance(rows, slice) else self._batch_slack
        X, index = self.X[rows], rows
        if isinstance(rows, slice):
            index = np.arange(*rows.indices(len(self.X)))
        weights = self._rows.named(params)
        with self._exact_arithmetic():
            held = guarded(lambda n: self._rows.held(self._batches(X, index), n, weights), len(X))
        formed, others = self._rows.places
        return LayeredGradients(held, formed, others, (self.n_params,), slack)

    def _batches(self, X: np.ndarray, index: Any) -> Iterator[Any]:
        for part in slices(len(X), self.chunk) or [slice(0, 0)]:
            batch, some = self._rows.batch(X[part], self.chunk), index[part]
            yield batch, len(some), lambda scores, some=some: self.residuals(scores, some)[0]

    def _row_by_row(self, shape: tuple[int, ...]) -> LayerByLayer:
        return layers_of(self.module, shape, self.device)

    def _default_rows(self) -> int:
        more = _CHUNK_BYTES // self._rows.held_bytes()
        return max(self._rows.default_rows(), min(more - more % BLOCK, _ROWS))

    @property
    def _own_units(self) -> float:
        t = self._rows.n_positions
        return super()._own_units if t == 1 else (self.n_params + t * t + 16) / _CANCELLED**2

    @property
    def _units(self) -> float:
        """Units of rounding of the sum of a block, over those of a sum of its rows."""
        t = self._rows.n_positions
        return 1.0 if t == 1 else t / _CANCELLED
