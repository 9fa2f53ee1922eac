"""Inner products of gradients by a torch module, of which none is formed as a whole.

Design note. Inner products add up over the parameters, so each layer brings its own matrix of them
(:mod:`dpsubspace._gradients.factors`). What is kept of a row is a small multiple of its
activations, whatever the number of parameters; rows for which it does not fit into memory go
through the module again, block against block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._array import check_device, slices, to_numpy
from dpsubspace._checks import check_integer
from dpsubspace._gradients.factors import Held, LayerByLayer
from dpsubspace._gradients.losses import Loss
from dpsubspace._gradients.throwaway import Trial, emptied
from dpsubspace._gradients.torch_rows import row_shape
from dpsubspace._gradients.vectorised import checked_copy, exact_arithmetic, guarded

if TYPE_CHECKING:
    import torch

__all__ = ["ModuleGradients"]

# What is kept of the rows of both sides of a product takes this many bytes, unless a row alone
# takes more.
_HELD_BYTES = 1 << 28


class ModuleGradients:
    """Gradients of ``loss(y, module(X))`` by the trainable parameters, for inner products.

    Parameters
    ----------
    module : torch.nn.Module
        From a batch of rows to scores (rows, c), at the parameters that it has. It is copied,
        and the copy put into evaluation mode: dropout is off, since gradients must not be
        random. Parameters with ``requires_grad=False`` do not count.
    loss : Loss
        Loss of the scores.
    X : ndarray of shape (n, d)
        Flat rows. They stay where they are, a memory map on disk, and go to the device
        chunk by chunk, in the dtype of the parameters.
    y : ndarray of shape (n,) or (n, c)
        Class indices or targets, as the loss takes them.
    n_targets : int, optional
        Number of classes, or of columns of targets. None takes it from `y`.
    input_shape : tuple of int, optional
        Shape of one row as the module sees it. None leaves rows flat.
    device : torch.device or str, optional
        Where the module runs. None is the CPU.
    microbatch_size : int, optional
        Most rows that go through the module together. It bounds memory and does not change
        the result, up to rounding. None takes as many as have activations of 256 MiB, but 128
        at most (4096 on a GPU, where a multiple of 128 is taken).

    Raises
    ------
    ValueError
        If the module has nothing to train, mixes rows, is random, keeps something of them
        where it would outlive a call, cannot be copied, cannot be vectorised or gives scores
        of another shape. All of that is found on random rows.

    Notes
    -----
    Products are taken in float64, of factors in the dtype of the module.

    Gradients that are not finite, or start from scores that are not, count as zero, and so do
    those with a factor beyond 1e70, whose products might not be finite. Exceptions at private
    rows tell their type only, and out of memory is a MemoryError.
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
            self._rows = _layers_of(checked, shape, where)
            self._most = microbatch_size or self._rows.default_rows()
        self.loss, self.X, self.y = loss, X, y
        self._made = (n_targets, shape, device, microbatch_size)

    def __reduce__(self) -> Any:
        """A pickle checks the module anew: what is known of it rests on where its tensors lie."""
        return _rebuilt, (self._rows.module, self.loss, self.X, self.y, *self._made)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    def relabelled(self, y: np.ndarray) -> ModuleGradients:
        """The same rows with other targets of the same kind, without new checks."""
        return self.beside(self.X, y)

    def beside(self, X: np.ndarray, y: np.ndarray) -> ModuleGradients:
        """Other rows through the same module, without new checks of it."""
        row_shape(self._rows.shape, X.shape[1])
        other = object.__new__(type(self))  # copy.copy would go the way of a pickle
        vars(other).update(vars(self), X=X, y=y)
        return other

    def inner(self, other: ModuleGradients) -> np.ndarray:
        """Inner products with the gradients of `other`, (n, m) in float64.

        Raises
        ------
        MemoryError
            If memory runs out.
        RuntimeError
            If the module fails on some of the rows, or writes to its parameters.
        """
        if other is self:
            return self.gram()
        if self._rows.layout != other._rows.layout:
            raise ValueError("gradients by other modules have no inner products with these")
        ours, theirs = self._blocks(), other._blocks()
        if len(theirs) < len(ours):  # fewer rows go through the module again
            return other.inner(self).T
        products = np.zeros((self.n_samples, other.n_samples))
        for rows in ours:
            held = self._held(rows)
            for others in theirs:
                products[rows, others] = to_numpy(held.inner(other._held(others)))
        return products

    def gram(self) -> np.ndarray:
        """Inner products with each other, (n, n) in float64, symmetric."""
        products, blocks = np.zeros((self.n_samples, self.n_samples)), self._blocks()
        for i, rows in enumerate(blocks):
            held = self._held(rows)
            own = to_numpy(held.inner(held))
            products[rows, rows] = (own + own.T) / 2
            for others in blocks[i + 1 :]:
                products[rows, others] = to_numpy(held.inner(self._held(others)))
                products[others, rows] = products[rows, others].T
        return products

    def squares(self) -> np.ndarray:
        """Squared norms, (n,) in float64: the diagonal of `gram`, up to rounding."""
        parts = [to_numpy(self._held(rows).squares()) for rows in self._blocks()]
        return np.concatenate([np.zeros(0), *parts])

    def _blocks(self) -> list[slice]:
        """Rows of which two blocks can be kept at once."""
        most = max(1, _HELD_BYTES // (2 * self._rows.held_bytes()))
        chunk = self._chunk
        return slices(self.n_samples, most - most % chunk if most > chunk else most)

    @property
    def _chunk(self) -> int:
        """Rows of every call of the module."""
        return max(1, min(self._most, self.n_samples))

    def _held(self, rows: slice) -> Held:
        """What is kept of the gradients of some rows."""
        with exact_arithmetic(self._rows.device):
            n_rows = len(range(*rows.indices(self.n_samples)))
            # Of a copy that is thrown away: what a module stores of a call must not be kept.
            once = self._rows.once()
            held = guarded(lambda n: once.held(self._batches(rows), n), n_rows)
        failure = emptied(self._rows.module, self._rows.versions)
        if failure:
            raise RuntimeError(failure)
        return held

    def _batches(self, rows: slice) -> Iterator[tuple[torch.Tensor, int, Callable]]:
        """Batches of one size, how many rows of each are no padding, and their residuals."""
        for part in slices(rows.stop - rows.start, self._chunk):
            some = slice(rows.start + part.start, rows.start + part.stop)
            k = some.stop - some.start
            batch = self._rows.batch(self.X[some], self._chunk)
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


def _rebuilt(
    module: Any, loss: Loss, X: np.ndarray, y: np.ndarray, n: Any, shape: Any, where: Any, most: Any
) -> ModuleGradients:
    """What a pickle held."""
    options = {"n_targets": n, "input_shape": shape, "device": where, "microbatch_size": most}
    return ModuleGradients(module, loss, X, y, **options)


def _layers_of(
    module: torch.nn.Module, shape: tuple[int, ...], device: torch.device
) -> LayerByLayer:
    """The module with every parameter for which factors do not work taken apart."""
    trial, apart, agreed = Trial(module), frozenset(), 0
    while agreed < 2:
        with trial.round() as watch:
            tried = LayerByLayer(module, shape, device, apart).tried(watch, agreed)
        # Out here: in a round, memory that is let go of has no use until its end.
        wrong = LayerByLayer(module, shape, device, apart).mismatched(tried, agreed)
        apart, agreed = apart | wrong, agreed + (not wrong)
    return LayerByLayer(module, shape, device, apart)
