"""Per-example gradients of a torch module: rows of numbers, inner products, or layer factors.

Design note. The module that is returned after training has never seen a row: rows go through a
throwaway copy of it (:mod:`dpsubspace._core.gradients.throwaway`). A loss enters by its residual
alone, the derivative by the scores, which is multiplied into the module's Jacobian: any loss of
:mod:`dpsubspace._core.gradients.losses` works.

Every call of a module has the same number of rows, with padding at the end, since other shapes may
run other algorithms, which round differently. Clipped rows are added up in float64: they are long,
so that this costs little beside the gradients themselves, and a sum in float32 would need 0.8 %
more noise. Torch is imported inside functions.

Few gradients are formed where they are only added up (:class:`LayeredSource`). The gradient of a
row by the weight of a linear layer or a convolution is ``sum_s d_s a_s^T`` over positions s
(:mod:`dpsubspace._core.gradients.factors`). Its norm follows from inner products of positions
(Goodfellow, 2015; Li et al., 2022), and the sum of shrunk gradients is one matrix product of all
positions of all rows. A step of DP-SGD then takes about as long as one of SGD. Where gradients
themselves are needed, for public directions or persons, they are formed (:class:`ModuleSource`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._core.gradients.clipping import DenseGradients, FormedIfNeeded, PerExampleGradients
from dpsubspace._core.gradients.factors import FactoredGradients, LayerByLayer
from dpsubspace._core.gradients.losses import Loss
from dpsubspace._core.gradients.throwaway import LeakCheck, emptied, throwaway, versions
from dpsubspace._core.gradients.torch_rows import dtype_of, row_shape
from dpsubspace._core.gradients.vectorised import (
    ROWS,
    RowByRow,
    as_tensor,
    checked_copy,
    exact_arithmetic,
    guarded,
)
from dpsubspace._core.ground.arrays import (
    BLOCK,
    EPS,
    Array,
    changed,
    check_device,
    slices,
    sum_slack,
    to_numpy,
)
from dpsubspace._core.ground.checks import check_integer, check_real
from dpsubspace._core.rows.records import Records

if TYPE_CHECKING:
    import torch


# Inner products by layers -----------------------------------------------------------------------
# Inner products of gradients by a torch module, without forming any whole gradient.
#
# Design note. Inner products add up over the parameters, so each layer contributes its own matrix
# of them (:mod:`dpsubspace._core.gradients.factors`). The memory for a row is a small multiple of
# its activations, whatever the number of parameters; rows whose factors do not fit into memory go
# through the module again, block against block.

# Stored factors of the rows on both sides of a product take this many bytes, unless a single row
# takes more: 640 MiB.
_HELD_BYTES = 5 << 27


class ModuleGradients:
    """Gradients of ``loss(y, module(X))`` by the trainable parameters, for inner products.

    Parameters and errors are those of :class:`ModuleSource`. The number of rows that go through the
    module together is such that their activations take 512 MiB, with the same limits.

    Products are computed in float64, from factors in the dtype of the module.

    Gradients that are not finite, or start from scores that are not, count as zero, and so do those
    with a factor beyond 1e70, whose products might not be finite. Exceptions about private rows
    report their type only, and running out of memory is a MemoryError.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        X: np.ndarray,
        y: np.ndarray,
        *,
        n_targets: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        device: Any = None,
        microbatch_size: int | None = None,
    ):
        import torch

        where = None if device is None else check_device(device)
        where = where or torch.device("cpu")
        if microbatch_size is not None:
            check_integer("microbatch_size", microbatch_size, low=1)
        columns: Any = n_targets
        if columns is None:
            columns = int(y.max()) + 1 if y.ndim == 1 else y.shape[1]
        shape = row_shape(input_shape, X.shape[1])
        checked = checked_copy(module, shape, loss.n_outputs(columns), where)
        with exact_arithmetic(where):
            self._rows = layers_of(checked, shape, where)
            self._most = microbatch_size or self._rows.default_rows()
        self.loss, self.X, self.y = loss, X, y
        self._made = (n_targets, shape, device, microbatch_size)

    def __reduce__(self) -> Any:
        """Check the module anew after unpickling: stored facts depend on where its tensors are."""
        return _rebuilt, (self._rows.module, self.loss, self.X, self.y, *self._made)

    @property
    def n_samples(self) -> int:
        return self.X.shape[0]

    @property
    def n_params(self) -> int:
        return self._rows.n_params

    def relabelled(self, y: np.ndarray) -> ModuleGradients:
        return self.of_rows(self.X, y)

    def of_rows(self, X: np.ndarray, y: np.ndarray) -> ModuleGradients:
        row_shape(self._rows.shape, X.shape[1])
        other = object.__new__(type(self))  # copy.copy would use the methods for pickles
        vars(other).update(vars(self), X=X, y=y)
        return other

    def inner(self, other: ModuleGradients) -> np.ndarray:
        """Inner products with the gradients of `other`, (n, m) in float64.

        MemoryError if memory runs out; RuntimeError if the module fails on some of the rows, or
        writes to its parameters.
        """
        if other is self:
            return self.gram()
        if self._rows.layout != other._rows.layout:
            raise ValueError("gradients by other modules have no inner products with these")
        if other.n_samples < self.n_samples:  # fewer rows go through the module again
            return other.inner(self).T
        # All others go through the module once for every block of ours, so our blocks are large.
        most = self._n_held
        ours = self._blocks(4 * most // 5)
        theirs = other._blocks(most - max([0, *(rows.stop - rows.start for rows in ours)]))
        products = np.zeros((self.n_samples, other.n_samples))
        kept: Any = None
        last: slice | None = None
        for rows in ours:
            held = self._held(rows)
            for others in theirs:
                if others != last:
                    kept = None  # free these before others are kept
                    kept, last = other._held(others), others
                products[rows, others] = to_numpy(held.inner(kept))
            theirs = theirs[::-1]  # the last block is still in memory
        return products

    def gram(self) -> np.ndarray:
        products = np.zeros((self.n_samples, self.n_samples))
        blocks = self._blocks(self._n_held // 2)
        kept: Any = None
        for i, rows in enumerate(blocks):
            held, kept = self._held(rows) if kept is None else kept, None
            own = to_numpy(held.inner(held))
            products[rows, rows] = (own + own.T) / 2
            for others in blocks[:i:-1]:  # the last one is the next of `rows`
                kept = None
                kept = self._held(others)
                products[rows, others] = to_numpy(held.inner(kept))
                products[others, rows] = products[rows, others].T
        return products

    def squares(self) -> np.ndarray:
        blocks = self._blocks(self._n_held // 2)
        parts = [to_numpy(self._held(rows).squares()) for rows in blocks]
        return np.concatenate([np.zeros(0), *parts])

    @property
    def _n_held(self) -> int:
        return _HELD_BYTES // self._rows.held_bytes()

    def _blocks(self, most: int) -> list[slice]:
        return slices(self.n_samples, _even(self.n_samples, most))

    def _held(self, rows: slice) -> FactoredGradients:
        with exact_arithmetic(self._rows.device):
            n_rows = len(range(*rows.indices(self.n_samples)))
            # By a throwaway copy: data that a module stores during a call must not be kept.
            once = self._rows.once()
            held = guarded(lambda n: once.held(self._batches(rows), n), n_rows)
        failure = emptied(self._rows.module, self._rows.versions)
        if failure:
            raise RuntimeError(failure)
        return held

    def _batches(self, rows: slice) -> Iterator[tuple[torch.Tensor, int, Callable]]:
        """Batches of one size, with the number of rows that are not padding, and residuals."""
        size = _even(rows.stop - rows.start, self._most)
        for part in slices(rows.stop - rows.start, size):
            some = slice(rows.start + part.start, rows.start + part.stop)
            k = some.stop - some.start
            batch = self._rows.batch(self.X[some], size)
            yield batch, k, self._residual(self.y[some])

    def _residual(self, y: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
        """Function from padded scores to residuals, zero for padding and where not finite."""
        import torch

        def residual(scores: torch.Tensor) -> torch.Tensor:
            counted = scores[: len(y)]
            targets = torch.as_tensor(np.array(y), device=scores.device)
            if targets.is_floating_point():
                targets = targets.to(scores.dtype)
            found = self.loss.residual(targets, counted)
            finite = torch.isfinite(counted).all(1) & torch.isfinite(found).all(1)
            padded = found.new_zeros(scores.shape)
            padded[: len(y)] = torch.where(finite[:, None], found, 0)
            return padded

        return residual


def _even(n: int, most: int) -> int:
    """Size of the fewest parts of `n` rows with at most `most` rows, all of about equal size."""
    return max(1, math.ceil(n / max(1, math.ceil(n / max(1, most)))))


def _rebuilt(
    module: Any, loss: Loss, X: np.ndarray, y: np.ndarray, n: Any, shape: Any, where: Any, most: Any
) -> ModuleGradients:
    options = {"n_targets": n, "input_shape": shape, "device": where, "microbatch_size": most}
    return ModuleGradients(module, loss, X, y, **options)


def layers_of(
    module: torch.nn.Module, shape: tuple[int, ...], device: torch.device
) -> LayerByLayer:
    """The module, where every parameter that does not work by factors is taken apart."""
    trial, apart, agreed = LeakCheck(module), frozenset(), 0
    while agreed < 2:
        with trial.round() as watch:
            tried = LayerByLayer(module, shape, device, apart).tried(watch, agreed)
        # Outside of a round, in which memory that is released stays unused until its end.
        wrong = LayerByLayer(module, shape, device, apart).mismatched(tried, agreed)
        apart, agreed = apart | wrong, agreed + (not wrong)
    return LayerByLayer(module, shape, device, apart)


# Gradients of modules ---------------------------------------------------------------------------

# The source -----------------------------------------------------------------------------------


class ModuleSource:
    """Gradients of ``loss(y, module(X))`` by the trainable parameters of a torch module.

    The module makes scores (rows, c) of a batch of rows, each of `input_shape` (None leaves them
    flat). It is copied, and the copy put into evaluation mode: dropout is off, since gradients must
    not be random. Parameters with ``requires_grad=False`` do not change. Flat rows (n, d) stay
    where they are, such as in a memory map on disk, and go to the device chunk by chunk, in the
    dtype of the parameters. The number of classes, or of columns of targets, is inferred from `y`
    where `n_targets` is None.

    `microbatch_size` is the most rows that go through the module together. It bounds memory and
    does not change the result, up to rounding. With None, gradients and activations take 256 MiB,
    with at most 128 rows (4096 on a GPU, where it is a multiple of 128). `sample_rate` affects the
    rounding of batches, and how many of their rows go through the module together.

    ValueError if the module has nothing to train, mixes rows, is random, keeps data of rows where
    they would outlive a call, cannot be copied, cannot be vectorised or gives scores of another
    shape. All of these checks use random rows.

    Rounding. A record that changes affects its own row of its own chunk only, since others are
    computed by the same arithmetic whatever it holds. For a full batch without persons, chunks are
    fixed: the clipped sum then moves by :func:`~dpsubspace._core.ground.arrays.sum_slack` beyond
    the bound, at the epsilon of float64.

    If a record joins or leaves a Poisson batch, the rows of all later records move to other places;
    so they do for a person, who may have any number of rows. Chunks are then padded to one public
    size at which a row has the same bits at any place, as found on random rows
    (:func:`~dpsubspace._core.gradients.torch_rows.even_bits`): the largest such size among
    multiples of 32 and powers of two that are at most the requested size. So scores, residuals and
    gradients of a row depend on that row alone, also at the kink of a ReLU or a hinge. Differences
    between places depend on the number of threads too: the number at the start is kept to the end.
    The remaining effects are in float64: norms, with a relative error of ``p u'``, and which rows
    share a block of a sum, ``n u' (block + chunk / block)``. Both are in the slack of a batch,
    where norms are those of the records in it.

    Whether the same chunk gives the same bits again is measured as well. It does on the CPU; on a
    GPU some layers add up by atomic operations in any order. Where it does not, each record of the
    data, or of the batch, may move by a share delta of its clipped norm, and `slack` is larger by
    their number times delta. Delta is 16 times the median difference on random rows, and at least
    2^-20: an *assumption*, with a margin, and not a proof, which leaves out records that lie within
    rounding of a kink. A batch counts as ``m + 10 sqrt(m) + 100`` records for an expected m: the
    probability of more records is below 1e-20.

    Gradients that are not finite, or start from scores that are not, count as zero. Exceptions
    about private rows report their type only, and running out of memory is a MemoryError.
    """

    formed = True  # gradients of persons are formed

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        X: np.ndarray,
        y: np.ndarray,
        *,
        n_targets: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        records: Records | None = None,
        microbatch_size: int | None = None,
        sample_rate: float = 1.0,
        device: Any = None,
    ):
        import torch

        where = None if device is None else check_device(device)
        self.device: torch.device = where or torch.device("cpu")
        self.sample_rate = check_real("sample_rate", sample_rate, low=0, high=1, include_high=True)
        if microbatch_size is not None:
            check_integer("microbatch_size", microbatch_size, low=1)
        self.loss, self.X = loss, X
        self.records = Records.of_rows(X.shape[0]) if records is None else records
        columns: Any = n_targets
        if columns is None:
            columns = int(y.max()) + 1 if y.ndim == 1 else y.shape[1]
        n_outputs, shape = loss.n_outputs(columns), row_shape(input_shape, X.shape[1])
        self.module = checked_copy(module, shape, n_outputs, self.device)
        self._threads = torch.get_num_threads()
        with self._exact_arithmetic():
            self._rows = self._row_by_row(shape)
            self.chunk = self._chunk(microbatch_size)
            self._again = guarded(self._rows.spread, self.chunk)
            if self._moves and self._again == 0:
                self.chunk = guarded(lambda n: self._even_size(n, y, columns), self.chunk)
        self.y = self._targets(y)
        self._weights: torch.Tensor | None = None
        if (weights := self.records.weights_numpy) is not None:
            self._weights = torch.tensor(weights, device=self.device)

    def _exact_arithmetic(self) -> AbstractContextManager[None]:
        """Use as many threads as when sizes were found, even if the number was changed since."""
        return exact_arithmetic(self.device, self._threads)

    @property
    def _moves(self) -> bool:
        """Whether one record may move the rows of others to other places of a chunk."""
        return self.records.grouped or self.sample_rate < 1

    def _even_size(self, most: int, y: Array, columns: int) -> int:
        """Number of rows of a chunk at any place of which a row has the same bits."""
        own = np.zeros(1, y.dtype) if y.ndim == 1 else np.full((1, columns), 0.5, y.dtype)
        target = self._targets(own)

        def residual(scores: torch.Tensor) -> torch.Tensor:
            each = target.expand(len(scores), *target.shape[1:])
            return self.loss.residual(each, scores)

        return self._rows.even_size(most, residual)

    @property
    def n_samples(self) -> int:
        return self.records.n

    @property
    def width(self) -> int:
        return self.X.shape[1] + self.n_params

    @property
    def n_params(self) -> int:
        return self._rows.n_params

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as the module sees it."""
        return self._rows.shape

    @property
    def data(self) -> Array:
        """Return the targets, which are where gradients are computed; rows may be elsewhere."""
        return self.y

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        if batch is None:
            return slices(len(self.X), self.chunk)
        # An empty batch is one chunk without rows.
        rows = self.records.rows(batch)
        return [rows[part] for part in slices(len(rows), self.chunk) or [slice(0, 0)]]

    def bytes_read(self, batch: np.ndarray | None = None) -> float:
        return math.inf

    def start(self) -> torch.Tensor:
        return self._rows.start()

    def at(self, params: Array, rows: Array) -> PerExampleGradients:
        """Per-example gradients at the flat `params`, of any number of rows.

        MemoryError if memory runs out; RuntimeError if the module fails on some of the rows.
        """
        with self._exact_arithmetic():
            gradients, counted = guarded(lambda n: self._at(params, rows), self.chunk)
        full = isinstance(rows, slice) and not self.records.grouped
        slack = self._slack if full else self._batch_slack
        shares = None
        if self.records.grouped and self._weights is not None:
            some = rows if isinstance(rows, slice) else self._weights.new_tensor(rows).long()
            shares = self._weights[some]
        return DenseGradients(gradients, (self.n_params,), counted, slack, shares)

    def relabelled(self, y: Array) -> ModuleSource:
        return changed(self, y=self._targets(y))

    def scores_at(self, params: Array, rows: Array) -> torch.Tensor:
        """Scores of any number of rows, computed independently, in the same chunks as gradients.

        MemoryError if memory runs out; RuntimeError if the module fails on some of the rows.
        """
        with self._exact_arithmetic():
            return guarded(lambda n: self._scores_at(params, rows), self.chunk)

    def mean_loss(self, params: Array, rows: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean loss of some rows and its gradient: no bound, for public rows."""
        with self._exact_arithmetic():
            return guarded(lambda n: self._mean_loss(params, rows), self.chunk)

    def scores(self, params: Array, X: np.ndarray) -> np.ndarray:
        shape = self._rows.shape
        return module_scores(self.loaded(params), X, shape, batch_size=self.chunk)

    def loaded(self, params: Array) -> torch.nn.Module:
        """Copy on the CPU with `params` set; RuntimeError if a frozen parameter was written to."""
        failure = emptied(self.module, self._rows.versions)
        if failure:
            raise RuntimeError(failure)
        return self._rows.loaded(self._rows.named(params)).cpu()

    def _row_by_row(self, shape: tuple[int, ...]) -> RowByRow:
        trial = LeakCheck(self.module)
        for seed in (0, 1):
            with trial.round() as watch:
                RowByRow(self.module, shape, self.device).check(watch, seed)
        return RowByRow(self.module, shape, self.device)

    def _default_rows(self) -> int:
        return self._rows.default_rows()

    def _targets(self, y: Array) -> torch.Tensor:
        import torch

        y = torch.as_tensor(np.array(y) if isinstance(y, np.ndarray) else y, device=self.device)
        return y.to(self._rows.dtype) if y.is_floating_point() else y

    def _at(self, params: Array, rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of `rows`, and a mask of those that count; zero for others."""
        import torch

        rows, weights = self._index(rows), self._rows.named(params)
        if 0 < len(rows) <= self.chunk:
            return self._at_chunk(weights, rows)
        gradients = self.y.new_empty((len(rows), self.n_params), dtype=self._rows.dtype)
        counted = self.y.new_empty(len(rows), dtype=torch.bool)
        for part in slices(len(rows), self.chunk):
            gradients[part], counted[part] = self._at_chunk(weights, rows[part])
        return gradients, counted

    def _index(self, rows: Array) -> np.ndarray:
        return np.arange(*rows.indices(len(self.X))) if isinstance(rows, slice) else rows

    def _scores_at(self, params: Array, rows: Array) -> torch.Tensor:
        import torch

        index, weights, found = self._index(rows), self._rows.named(params), []
        for some in (index[part] for part in slices(len(index), self.chunk) or [slice(0, 0)]):
            batch = self._rows.batch(self.X[some], self.chunk)
            found.append(self._rows.scores(weights, batch)[: len(some)])
        return torch.cat(found)

    def _mean_loss(self, params: Array, rows: np.ndarray) -> tuple[float, np.ndarray]:
        weights, value, total = self._rows.named(params), 0.0, np.zeros(self.n_params)
        for some in (rows[part] for part in slices(len(rows), self.chunk)):
            batch = self._rows.batch(self.X[some], self.chunk)
            scores, gradient = self._rows.summed(
                weights, batch, lambda scores, some=some: self.residuals(scores, some)[0]
            )
            own = self.loss.value(self.y[some], scores[: len(some)].double())
            value, total = value + float(own.sum()), total + to_numpy(gradient)
        return value / len(rows), total / len(rows)

    def _at_chunk(
        self, weights: dict[str, torch.Tensor], rows: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        k, batch = len(rows), self._rows.batch(self.X[rows], self.chunk)
        residual, counted = self.residuals(self._rows.scores(weights, batch), rows)
        gradients = self._rows.gradients(weights, batch, residual)[:k]
        counted = counted & torch.isfinite(gradients).all(1)
        gradients[~counted] = 0
        return gradients, counted

    def residuals(
        self, scores: torch.Tensor, rows: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Residuals of a padded batch of `rows`, zero for rows that do not count, and a mask."""
        import torch

        k, index = len(rows), torch.as_tensor(rows, device=self.device)
        # For as many rows as scores: a row then has the same bits as in any other batch.
        own = torch.nn.functional.pad(index, (0, len(scores) - k))
        found = self.loss.residual(self.y[own], scores)
        counted = torch.isfinite(scores[:k]).all(1) & torch.isfinite(found[:k]).all(1)
        if self._weights is not None:
            counted = counted & (self._weights[index] > 0)
        padded = torch.zeros_like(found)
        padded[:k] = torch.where(counted[:, None], found[:k], 0)
        return padded, counted

    def _chunk(self, microbatch_size: int | None) -> int:
        most = self._default_rows() if microbatch_size is None else microbatch_size
        if self.sample_rate < 1:
            # Chunks are padded: if they were much larger than a batch, most computations would be
            # wasted.
            quarter = math.ceil(self.sample_rate * self.n_samples / 4)
            most = min(most, max(16, -(-quarter // 16) * 16))
        return most if self.records.grouped else min(most, self.n_samples)

    @property
    def _units(self) -> float:
        """Number of roundings in the sum of a block, relative to a sum of as many rows."""
        return 1.0

    @property
    def _own_units(self) -> float:
        """Number of roundings in the norm of one gradient, which may differ at other places."""
        return self.n_params + 8.0

    @property
    def _slack(self) -> float:
        slack = sum_slack(self.n_samples, EPS * self._units, self.chunk) + 16 * EPS
        return slack + self.n_samples * self._again

    @property
    def _batch_slack(self) -> float:
        expected = self.sample_rate * self.n_samples
        most = min(float(self.n_samples), expected + 10 * math.sqrt(expected) + 100)
        regrouped = 2 * self.n_samples * EPS * (BLOCK * self._units + self.chunk / BLOCK)
        slack = self.records.slack(EPS, self.chunk) + 16 * EPS
        return slack + regrouped + most * (self._again + 2 * EPS * self._own_units)


def module_scores(
    module: torch.nn.Module,
    X: np.ndarray,
    input_shape: tuple[int, ...] | None = None,
    *,
    batch_size: int = ROWS,
    device: Any = None,
) -> np.ndarray:
    """Scores (n, c) of flat rows in float64, by a throwaway copy of a trained module."""
    import torch

    where = (None if device is None else check_device(device)) or torch.device("cpu")
    shape, before = row_shape(input_shape, X.shape[1]), versions(module)
    used = throwaway(module).to(where)  # the module that is kept is never called

    def scores(rows: np.ndarray) -> torch.Tensor:
        return used(as_tensor(rows, len(rows), shape, dtype_of(used), where))

    def in_batches(step: int) -> np.ndarray:
        # Without any rows, a call with an empty batch shows the number of columns.
        parts = slices(len(X), step) or [slice(0, 0)]
        return np.concatenate([scores(X[part]).double().cpu().numpy() for part in parts])

    try:
        with exact_arithmetic(where):
            return guarded(in_batches, batch_size)
    finally:
        failure = emptied(module, before)
        if failure:
            raise RuntimeError(failure)


# Gradients that are added up layer by layer -----------------------------------------------------

# Factors of a chunk take this many bytes, to fit into the cache; and most rows of a chunk.
_CHUNK_BYTES, _ROWS = 1 << 23, 1 << 12

# The norm of a gradient counts as at least this share of ``sum_s |d_s| |a_s|``.
_CANCELLED = 2.0**-8


@dataclass(frozen=True)
class LayeredGradients(FormedIfNeeded):
    """Gradients of some rows, kept as factors by layer.

    A gradient that must not count has factors of zero.
    """

    held: FactoredGradients
    # Places in the vector of parameters of gradients that are formed, and of each other weight.
    formed: list[slice]
    weights: list[slice]
    params_shape: tuple[int, ...]
    rounding: float  # Slack of their sum over all records, or over a batch
    shares: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.held.dense), *self.params_shape)

    def norms(self) -> Array:
        """Norms in float64, each of which is at least 1/256 of ``sum_s |d_s| |a_s|``.

        The rounding of a sum is in proportion to the latter. A gradient whose positions cancel to
        less than that counts as longer than it is, so that it is shrunk more.
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
    """Gradients of ``loss(y, module(X))``, few of which are formed, for rows that are records.

    Parameters and errors are those of :class:`~dpsubspace._core.gradients.modules.ModuleSource`.
    Chunks have as many rows as have factors of 8 MiB, at most 4,096.

    Rounding. As there, with sums over positions of rows in place of sums over rows: a block has t
    times as many terms, and the norms of a record's terms add up to at most 256 times the norm to
    which it is shrunk (:meth:`LayeredGradients.norms`). Both multiply the unit roundoff of a block.
    With one position, as in linear layers of flat rows, nothing cancels and both factors are 1. The
    effect of rounding on the square of a norm is in proportion to the square of ``sum_s |d_s|
    |a_s|``, which is up to 256^2 times as large
    (:meth:`~dpsubspace._core.gradients.factors.Outer.lengths`).
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
        """Units of rounding of the sum of a block, relative to those of a sum of its rows."""
        t = self._rows.n_positions
        return 1.0 if t == 1 else t / _CANCELLED
