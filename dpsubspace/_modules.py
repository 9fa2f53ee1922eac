"""Per-example gradients of a torch module, one row of numbers a record.

Design note. Gradients are taken by ``torch.func.vmap`` of the gradient of one record, and
so are the scores they start from: inside, a module only ever sees a batch of one, so that
no layer can carry anything from one record to another. That is by construction (a
``torch.autograd.Function`` with a vmap rule of its own is taken to keep records apart, and
modules that use what they stored of an earlier call are found by the try-outs); the
try-outs on random rows below are for prediction, which uses batches, and for messages that
name a remedy. The module that is handed over after training has never seen a row: rows go
through a copy of it that is thrown away (:mod:`dpsubspace._throwaway`). A loss enters by its
residual alone, the derivative by the scores, which is multiplied into the module's Jacobian:
any loss of :mod:`dpsubspace._losses` works.

Every call of a module has the same number of rows, the last ones padded, since other
shapes may run other algorithms, which round otherwise. Clipped rows are added up in
float64: they are long, so that this costs little beside the gradients themselves, and a
sum in float32 would need 0.8 % more noise. Torch is imported inside functions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._array import (
    EPS,
    Array,
    check_device,
    plain_arithmetic,
    slices,
    sum_slack,
)
from dpsubspace._gradients import DenseGradients
from dpsubspace._inputs import check_integer, check_real
from dpsubspace._losses import Loss
from dpsubspace._throwaway import Trial, emptied, public_copy, throwaway, versions
from dpsubspace._torch import _check_layers, _dtype, _row_shape, _try_out

if TYPE_CHECKING:
    import torch

__all__ = ["ModuleSource", "module_scores", "parameter_groups"]

# Records that are added up before their sum joins the total.
_BLOCK = 128

# Gradients of a chunk and its activations take this many bytes, unless a row alone takes more.
_GRADIENT_BYTES = 1 << 28

# Most rows that go through a module together: more are no faster.
_ROWS, _ROWS_GPU = 128, 4096

# Least share of its norm by which a gradient is taken to move among other records, where
# it moves at all; and how much more than on random rows.
_LEAST_SPREAD, _SAFETY = 2.0**-20, 16

# Rows and their gradients may differ by rounding only between vmap and one at a time.
_SAME = 1e-4


# The source -----------------------------------------------------------------------------------


class ModuleSource:
    """Gradients of ``loss(y, module(X))`` by the trainable parameters of a torch module.

    Parameters
    ----------
    module : torch.nn.Module
        From a batch of rows to scores (rows, c). It is copied, and the copy put into
        evaluation mode: dropout is off, since gradients must not be random. Parameters
        with ``requires_grad=False`` stay as they are.
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
    present : boolean array of shape (n,), optional
        False makes a record a null record, whose gradient is zero at all parameters.
    microbatch_size : int, optional
        Most rows that go through the module together. It bounds memory and does not change
        the result, up to rounding. None takes as many as have gradients and activations of
        256 MiB, but 128 at most (4096 on a GPU, where a multiple of 128 is taken).
    sample_rate : float, default=1.0
        Probability with which each record enters a batch: for the rounding of batches, and
        for how many of their rows to take together.
    device : torch.device or str, optional
        Where the module runs. None is the CPU.

    Raises
    ------
    ValueError
        If the module has nothing to train, mixes rows, is random, keeps something of them
        where it would outlive a call, cannot be copied, cannot be vectorised or gives scores
        of another shape. All of that is found on random rows.

    Notes
    -----
    Rounding. A record that changes changes its own row of its own chunk, since others are
    computed by the same arithmetic whatever it holds. Of a full batch, chunks are fixed:
    the clipped sum then moves by :func:`~dpsubspace._array.sum_slack` beyond the bound,
    at the epsilon of float64. Two things are measured on random rows at the start, because
    no reading of a module can tell them:

    - Whether the same chunk gives the same bits again. It does on the CPU; on a GPU some
      layers add up by atomic operations in any order.
    - Whether a record has the same bits at another place of a chunk. A record that is in a
      Poisson batch or not moves all later ones to other places. All chunks have the same
      shape, so that this often holds, and then a batch needs no margin either: which rows
      share a block of a sum in float64 costs ``n u' (block + chunk / block)``.

    Where they do not hold, each record of the data (first case) or of the batch may move by
    a share delta of its clipped norm, and `slack` has their number times delta on top. A
    batch counts ``m + 10 sqrt(m) + 100`` records for an expected m: more come with a
    probability below 1e-20. Delta is 16 times the median difference on random rows, and
    2^-20 at least: an *assumption*, with a margin, and not a proof. It leaves out records
    that lie within rounding of a kink (ReLU at zero, the hinge at its margin), whose
    gradient jumps. Their number is small where parameters carry noise.

    Gradients that are not finite, or start from scores that are not, count as zero.
    Exceptions at private rows tell their type only, and out of memory is a MemoryError.
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
        present: np.ndarray | None = None,
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
        columns: Any = n_targets
        if columns is None:
            columns = int(y.max()) + 1 if y.ndim == 1 else y.shape[1]
        n_outputs, shape = loss.n_outputs(columns), _row_shape(input_shape, X.shape[1])
        self.module = _checked_copy(module, shape, n_outputs, self.device)
        with _arithmetic(self.device):
            trial = Trial(self.module)
            for seed in (0, 1):
                with trial.round() as watch:
                    _RowByRow(self.module, shape, self.device).check(watch, seed)
            self._rows = _RowByRow(self.module, shape, self.device)
            self.chunk = self._chunk(microbatch_size)
            self._again, self._elsewhere = _told(self._rows.spreads, self.chunk)
        self.y = self._targets(y)
        self._present: torch.Tensor | None = None
        if present is not None:
            self._present = torch.tensor(present, dtype=torch.bool, device=self.device)

    @property
    def n_samples(self) -> int:
        """Number of records, public."""
        return self.X.shape[0]

    @property
    def n_params(self) -> int:
        """Number of trainable parameters."""
        return self._rows.n_params

    @property
    def data(self) -> Array:
        """Return the targets, which lie where gradients are computed; rows may not."""
        return self.y

    def chunks(self, batch: np.ndarray | None = None) -> list[Array]:
        """Indices that together name every record once, or every record of `batch`."""
        if batch is None:
            return slices(self.n_samples, self.chunk)
        # An empty batch is one chunk without records.
        return [batch[part] for part in slices(len(batch), self.chunk) or [slice(0, 0)]]

    def start(self) -> torch.Tensor:
        """Parameters of the module as they came, one flat float64 vector on the device."""
        return self._rows.start()

    def at(self, params: Array, rows: Array) -> DenseGradients:
        """Per-example gradients at the flat `params`, of any number of rows.

        Raises
        ------
        MemoryError
            If memory runs out.
        RuntimeError
            If the module fails on some of the rows.
        """
        with _arithmetic(self.device):
            gradients, counted = _told(lambda n: self._at(params, rows), self.chunk)
        slack = self._slack if isinstance(rows, slice) else self._batch_slack
        return DenseGradients(gradients, (self.n_params,), counted, slack)

    def relabelled(self, y: Array) -> ModuleSource:
        """The same rows with other targets of the same kind, without new checks."""
        other = copy.copy(self)
        other.y = self._targets(y)
        return other

    def scores(self, params: Array, X: np.ndarray) -> np.ndarray:
        """Scores of other rows at the flat `params`, (n, c) in float64."""
        shape = self._rows.shape
        return module_scores(self.loaded(params), X, shape, batch_size=self.chunk)

    def loaded(self, params: Array) -> torch.nn.Module:
        """Copy of the module on the CPU, in evaluation mode, with the flat `params` set.

        Raises
        ------
        RuntimeError
            If rows were written to parameters that are not trained.
        """
        failure = emptied(self.module, self._rows.versions)
        if failure:
            raise RuntimeError(failure)
        return self._rows.loaded(self._rows.named(params)).cpu()

    def _targets(self, y: Array) -> torch.Tensor:
        """Targets on the device, real ones in the dtype of the parameters."""
        import torch

        y = torch.as_tensor(np.array(y) if isinstance(y, np.ndarray) else y, device=self.device)
        return y.to(self._rows.dtype) if y.is_floating_point() else y

    def _at(self, params: Array, rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of `rows`, and which of them count; zero for others."""
        import torch

        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self.n_samples))
        weights = self._rows.named(params)
        if 0 < len(rows) <= self.chunk:
            return self._at_chunk(weights, rows)
        gradients = self.y.new_empty((len(rows), self.n_params), dtype=self._rows.dtype)
        counted = self.y.new_empty(len(rows), dtype=torch.bool)
        for part in slices(len(rows), self.chunk):
            gradients[part], counted[part] = self._at_chunk(weights, rows[part])
        return gradients, counted

    def _at_chunk(
        self, weights: dict[str, torch.Tensor], rows: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same for as many rows as go through the module together, or fewer."""
        import torch

        k, index = len(rows), torch.as_tensor(rows, device=self.device)
        batch = self._rows.batch(self.X[rows], self.chunk)
        scores = self._rows.scores(weights, batch)[:k]
        residual = self.loss.residual(self.y[index], scores)
        counted = torch.isfinite(scores).all(1) & torch.isfinite(residual).all(1)
        padded = residual.new_zeros((self.chunk, residual.shape[1]))
        padded[:k] = torch.where(counted[:, None], residual, 0)
        if self._present is not None:
            counted = counted & self._present[index]
        gradients = self._rows.gradients(weights, batch, padded)[:k]
        counted = counted & torch.isfinite(gradients).all(1)
        gradients[~counted] = 0
        return gradients, counted

    def _chunk(self, microbatch_size: int | None) -> int:
        """Rows of every call of the module."""
        most = self._rows.default_rows() if microbatch_size is None else microbatch_size
        if self.sample_rate < 1:
            # Chunks are padded: much larger than a batch, they would compute for nothing.
            quarter = math.ceil(self.sample_rate * self.n_samples / 4)
            most = min(most, max(16, -(-quarter // 16) * 16))
        return min(most, self.n_samples)

    @property
    def _slack(self) -> float:
        """Slack of the sum over all records."""
        slack = sum_slack(self.n_samples, EPS, self.chunk) + 8 * EPS
        return slack + self.n_samples * self._again

    @property
    def _batch_slack(self) -> float:
        """Slack of the sum over a batch."""
        expected = self.sample_rate * self.n_samples
        most = min(float(self.n_samples), expected + 10 * math.sqrt(expected) + 100)
        regrouped = 2 * self.n_samples * EPS * (_BLOCK + self.chunk / _BLOCK)
        slack = sum_slack(self.n_samples, EPS, self.chunk) + 8 * EPS
        return slack + regrouped + most * self._elsewhere


def module_scores(
    module: torch.nn.Module,
    X: np.ndarray,
    input_shape: tuple[int, ...] | None = None,
    *,
    batch_size: int = _ROWS,
    device: Any = None,
) -> np.ndarray:
    """Scores of flat rows by a trained module in evaluation mode, (n, c) in float64.

    Parameters
    ----------
    module : torch.nn.Module
        As :meth:`ModuleSource.loaded` returns it. A copy of it is called, and thrown away.
    X : ndarray of shape (n, d)
        Flat rows.
    input_shape : tuple of int, optional
        Shape of one row as the module sees it. None leaves rows flat.
    batch_size : int, default=128
        Rows to give to the module at once.
    device : torch.device or str, optional
        Where the module runs. None is the CPU.
    """
    import torch

    where = (None if device is None else check_device(device)) or torch.device("cpu")
    shape, before = _row_shape(input_shape, X.shape[1]), versions(module)
    used = throwaway(module).to(where)  # the module that is kept is never called

    def scores(rows: np.ndarray) -> torch.Tensor:
        return used(_tensor(rows, len(rows), shape, _dtype(used), where))

    def in_batches(step: int) -> np.ndarray:
        # A call without rows tells the width where there are no rows at all.
        parts = slices(len(X), step) or [slice(0, 0)]
        return np.concatenate([scores(X[part]).double().cpu().numpy() for part in parts])

    try:
        with _arithmetic(where):
            return _told(in_batches, batch_size)
    finally:
        failure = emptied(module, before)
        if failure:
            raise RuntimeError(failure)


# Groups of parameters -------------------------------------------------------------------------


def parameter_groups(module: torch.nn.Module, groups: Any) -> list[Any]:
    """Parts of the flat vector of trainable parameters that together name each once.

    Parameters
    ----------
    module : torch.nn.Module
        As :class:`ModuleSource` takes it.
    groups : None, "layers", int or list of lists of str
        None is one group; "layers" one for each child of the module with trainable
        parameters, and one for those of the module itself; an int so many consecutive parts
        of about equal size. A list has the names of the parameters of each group, or of
        layers that hold them (``["conv1", "head.weight"]``).

    Returns
    -------
    list of slice or ndarray of int
        Slices where a group is consecutive, else indices.

    Raises
    ------
    ValueError
        If `groups` is none of these, or leaves a parameter out or names it twice.
    """
    places = _places(module)
    n_params = sum(part.stop - part.start for part in places.values())
    if groups is None:
        return [slice(0, n_params)]
    if isinstance(groups, str) and groups == "layers":
        heads = dict.fromkeys(_head(name) for name in places)
        return [
            _joined([part for name, part in places.items() if _head(name) == head])
            for head in heads
        ]
    if isinstance(groups, (list, tuple)):
        return _named_groups(places, groups)
    count = check_integer("groups", groups, low=1, high=n_params)
    ends = [round(n_params * i / count) for i in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def _head(name: str) -> str:
    """Child of the module that holds a parameter; empty for the module itself."""
    return name.split(".")[0] if "." in name else ""


def _named_groups(places: dict[str, slice], groups: Sequence[Any]) -> list[Any]:
    """Groups from lists of names of parameters or of layers."""
    taken: dict[str, int] = {}
    for i, names in enumerate(groups):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"`groups` must be a list of lists of names, got {names!r} in it.")
        for prefix in names:
            found = [name for name in places if name == prefix or name.startswith(prefix + ".")]
            if not found:
                raise ValueError(
                    f"`groups` names {prefix!r}, which holds no trainable parameter. There are"
                    f" {list(places)}."
                )
            twice = [name for name in found if name in taken]
            if twice:
                raise ValueError(f"`groups` names the parameter {twice[0]!r} twice.")
            taken.update(dict.fromkeys(found, i))
    left = [name for name in places if name not in taken]
    if left:
        raise ValueError(f"`groups` must name every trainable parameter: {left} are in none.")
    if not all(i in taken.values() for i in range(len(groups))):
        raise ValueError("`groups` has an empty group. Take it out.")
    return [
        _joined([part for name, part in places.items() if taken[name] == i])
        for i in range(len(groups))
    ]


def _places(module: torch.nn.Module) -> dict[str, slice]:
    """Where each trainable parameter lies in the flat vector, by name."""
    places, stop = {}, 0
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            places[name] = slice(stop, stop + parameter.numel())
            stop += parameter.numel()
    if not places:
        raise ValueError(
            "`module` has no parameter to train: none has requires_grad=True. Set it for those"
            " to train, or use TorchFeatures and a linear classifier behind it."
        )
    return places


def _joined(parts: list[slice]) -> Any:
    """One slice where the parts are consecutive, else their indices."""
    if all(a.stop == b.start for a, b in pairwise(parts)):
        return slice(parts[0].start, parts[-1].stop)
    return np.concatenate([np.arange(part.start, part.stop) for part in parts])


# One row at a time ----------------------------------------------------------------------------


class _RowByRow:
    """A module as a function of its trainable parameters, applied to each row by itself."""

    def __init__(self, module: torch.nn.Module, shape: tuple[int, ...], device: torch.device):
        self.module, self.shape, self.device = module, shape, device
        # What is kept is never called: rows go through a copy with the same parameters.
        self._used, self.versions = throwaway(module), versions(module)
        self._places = _places(module)
        self._trainable = {name: dict(module.named_parameters())[name] for name in self._places}
        used = dict(self._used.named_parameters())
        self._aliases = _aliases(self._used, {id(used[name]): name for name in self._places})
        self.dtype = next(iter(self._trainable.values())).dtype
        self.n_params = sum(part.stop - part.start for part in self._places.values())

    def start(self) -> torch.Tensor:
        """Trainable parameters as they came, in one float64 vector."""
        import torch

        return torch.cat([p.detach().double().reshape(-1) for p in self._trainable.values()])

    def named(self, params: Array) -> dict[str, torch.Tensor]:
        """The parts of a flat vector by name, in the shape and dtype of the parameters."""
        import torch

        flat = torch.as_tensor(params, dtype=self.dtype, device=self.device).detach()
        return {
            name: flat[part].reshape(self._trainable[name].shape)
            for name, part in self._places.items()
        }

    def loaded(self, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
        """Copy of the module that holds these parameters."""
        import torch

        with torch.no_grad():
            module = copy.deepcopy(self.module)
            trainable = dict(module.named_parameters())
            for name, value in weights.items():
                trainable[name].copy_(value)
        return module

    def batch(self, rows: np.ndarray, size: int) -> torch.Tensor:
        """Rows as the module sees them, padded to `size` rows of zeros."""
        return _tensor(rows, size, self.shape, self.dtype, self.device)

    def scores(self, weights: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        """Scores of each row by itself, (k, c)."""
        from torch.func import vmap

        return vmap(self._one, in_dims=(None, 0))(weights, batch)

    def gradients(
        self, weights: dict[str, torch.Tensor], batch: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        """Gradients of each row's scores times its residual, (k, p)."""
        import torch
        from torch.func import grad, vmap

        def product(weights: Any, row: Any, residual: Any) -> Any:
            return (self._one(weights, row) * residual).sum()

        each = vmap(grad(product), in_dims=(None, 0, 0))(weights, batch, residual.to(self.dtype))
        return torch.cat([each[name].reshape(len(batch), -1) for name in self._places], dim=1)

    def _one(self, weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        from torch.func import functional_call

        named = {alias: weights[name] for alias, name in self._aliases.items()}
        return functional_call(self._used, named, (row[None],), tie_weights=False)[0]

    def default_rows(self) -> int:
        """Rows whose gradients and activations fit into `_GRADIENT_BYTES`."""
        entries = self.n_params + self._activations() + math.prod(self.shape)
        size = self.start().new_zeros(1, dtype=self.dtype).element_size()
        most = _ROWS if self.device.type == "cpu" else _ROWS_GPU
        rows = min(most, max(1, _GRADIENT_BYTES // (size * entries)))
        return rows - rows % _BLOCK if rows > _BLOCK else rows

    def _activations(self) -> int:
        """Entries of what the layers give for one row."""
        count = 0

        def add(layer: Any, inputs: Any, output: Any) -> None:
            nonlocal count
            outputs = output if isinstance(output, tuple) else (output,)
            count += sum(out.numel() for out in outputs if hasattr(out, "numel"))

        layers = [layer for layer in self._used.modules() if not list(layer.children())]
        handles = [layer.register_forward_hook(add) for layer in layers]
        try:
            self._used(self.batch(_random(1, self.shape), 1))
        finally:
            for handle in handles:
                handle.remove()
        return count

    def check(self, watch: Callable[[torch.Tensor], None], seed: int) -> None:
        """ValueError unless gradients of random rows are those of autograd, one at a time."""
        rows, weights = _random(3, self.shape, seed), self._perturbed()
        batch = self.batch(rows, len(rows))
        watch(batch)
        try:
            scores = self.scores(weights, batch)
            residual = scores + 1
            found = self.gradients(weights, batch, residual)
        except Exception as error:  # of random rows, which an error may speak of
            raise ValueError(
                "`module` has no per-example gradients, since torch.func.vmap cannot run it:"
                f" {error} Take out what depends on values (`if x.sum() > 0`, .item(), boolean"
                " indexing), what changes buffers or new tensors in place, and recurrent layers"
                " of torch.nn (write them with nn.Linear); torch.where and out-of-place"
                " operations work. Or freeze that part and put it before, with TorchFeatures."
            ) from error
        expected = self._one_at_a_time(weights, batch, residual)
        scale = expected.abs().amax(dim=1, keepdim=True)
        if not bool(((found - expected).abs() <= _SAME * scale).all()):
            raise ValueError(
                "`module` has other gradients for a random row by itself (torch.autograd) than by"
                " torch.func.vmap. Are its outputs finite, and does it take its parameters by"
                " their names in the module (not from a list of its own)?"
            )

    def _perturbed(self) -> dict[str, torch.Tensor]:
        """Parameters near those as they came: zeros, of adapters say, would hide gradients."""
        start = self.start()
        noise = np.random.default_rng(1).normal(size=len(start))
        return self.named(start + 0.05 * start.new_tensor(noise))

    def _one_at_a_time(
        self, weights: dict[str, torch.Tensor], batch: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        """Gradients by autograd, of a module that holds the weights as its own."""
        import torch

        module, gradients = self.loaded(weights), []
        leaves = dict(module.named_parameters())
        leaves = [leaves[name] for name in self._places]
        with torch.enable_grad():
            for row, weight in zip(batch, residual, strict=True):
                product = (module(row[None])[0] * weight).sum()
                parts = torch.autograd.grad(
                    product, leaves, allow_unused=True, materialize_grads=True
                )
                gradients.append(torch.cat([part.reshape(-1) for part in parts]))
        return torch.stack(gradients)

    def spreads(self, size: int) -> tuple[float, float]:
        """Share of its norm by which a gradient moves: computed again, and at other places.

        Random rows and targets, and the squared error; zero where every bit is the same.
        """
        import torch

        weights, rows = self._perturbed(), _random(size, self.shape)
        order = np.random.default_rng(2).permutation(size)
        targets = np.random.default_rng(3).normal(size=(size, 1))

        def gradients(order: np.ndarray) -> torch.Tensor:
            batch = self.batch(rows[order], size)
            scores = self.scores(weights, batch)
            return self.gradients(weights, batch, scores - scores.new_tensor(targets[order]))

        first = gradients(np.arange(size))
        again = _spread(first, gradients(np.arange(size)))
        moved = gradients(order)[torch.as_tensor(np.argsort(order), device=self.device)]
        return again, max(again, _spread(first, moved))


def _aliases(module: torch.nn.Module, names: dict[int, str]) -> dict[str, str]:
    """Every place of a parameter in the module, by its path, and the name of the parameter.

    One layer in two places is one place: functional_call ties those by itself too, and then
    leaves in the module what it was called with (torch 2.13).
    """
    return {
        f"{path}.{attribute}".lstrip("."): names[id(parameter)]
        for path, layer in module.named_modules()
        for attribute, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in names
    }


def _spread(first: torch.Tensor, second: torch.Tensor) -> float:
    """Share of its norm by which a gradient may move, from two computations of some."""
    import torch

    differs = (first != second) & ~(torch.isnan(first) & torch.isnan(second))
    if not bool(differs.any()):
        return 0.0
    norms = torch.linalg.vector_norm(first, dim=1)
    moves = torch.linalg.vector_norm(first - second, dim=1) / norms.clip(min=norms.median())
    return max(_LEAST_SPREAD, _SAFETY * float(moves.nanmedian()))


def _random(n: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """The same random flat rows every time."""
    return np.random.default_rng(seed).normal(size=(n, math.prod(shape)))


def _tensor(
    rows: np.ndarray,
    size: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """Flat rows on the device as the module sees them, padded to `size` rows of zeros."""
    import torch

    padded = torch.zeros((size, math.prod(shape)), dtype=dtype)
    padded[: len(rows)] = torch.tensor(np.ascontiguousarray(rows))
    return padded.reshape(size, *shape).to(device)


# Checks and the state of torch ----------------------------------------------------------------


def _checked_copy(
    module: Any, shape: tuple[int, ...], n_outputs: int, device: torch.device
) -> torch.nn.Module:
    """Copy of `module` in evaluation mode on the device, found fit to train on random rows."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"`module` must be a torch.nn.Module, got {type(module).__name__}.")
    copied = public_copy(module)
    copied.eval()
    _check_layers(copied)
    _check_normalisation(module)
    _check_dtypes(copied)
    _places(copied)
    copied.to(device)
    for parameter in copied.parameters():
        parameter.grad = None
    with _arithmetic(device):
        _try_out(copied, shape, str(device))
        rows = _tensor(_random(3, shape), 3, shape, _dtype(copied), device)
        found = tuple(throwaway(copied)(rows).shape)
    if found != (3, n_outputs):
        raise ValueError(
            f"`module` gives outputs of shape {found} for 3 rows, but (3, {n_outputs}) is needed:"
            " a classifier of two classes needs 1 output (a column), of more classes one for"
            " each, and a regressor one for each target."
        )
    return copied


def _check_normalisation(module: torch.nn.Module) -> None:
    """ValueError for running statistics beside parameters that are trained.

    They would not follow, and in training mode they would be statistics of private batches.
    """
    import torch

    nn = torch.nn
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    kinds += (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
    for name, layer in module.named_modules():
        if not isinstance(layer, kinds) or layer.running_mean is None:
            continue
        parameters = list(layer.parameters())
        if any(p.requires_grad for p in parameters) or (layer.training and not parameters):
            raise ValueError(
                f"the layer {name!r} of `module` ({type(layer).__name__}) has running statistics,"
                " which private training cannot update. Use GroupNorm, LayerNorm or InstanceNorm"
                " without track_running_stats, or freeze the layer (requires_grad_(False) and"
                " eval()) with its statistics from public data."
            )


def _check_dtypes(module: torch.nn.Module) -> None:
    """ValueError unless all weights are float32, or all are float64."""
    import torch

    tensors = [*module.parameters(), *module.buffers()]
    dtypes = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        raise ValueError(
            "`module` must have all weights in float32, or all in float64, got"
            f" {sorted(str(dtype) for dtype in dtypes)}. Use module.float()."
        )


@contextmanager
def _arithmetic(device: torch.device) -> Iterator[None]:
    """Arithmetic that gives the same bits for the same numbers, and keeps no graphs.

    No autocast, no choice of convolutions by timing, no convolutions in TF32 (10 bits), and
    attention without fused kernels, for which vmap has no rules.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = torch.backends.mha.get_fastpath_enabled()
    cudnn: Any = torch.backends.cudnn
    flags = cudnn.flags(
        enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with plain_arithmetic(device), flags, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _told(function: Callable[[int], Any], n_rows: int) -> Any:
    """``function(n_rows)``; where that fails, an exception that quotes no entry of the rows."""
    try:
        return function(n_rows)
    except Exception as error:
        failure = _failure(error, n_rows)
    raise failure  # out here, so that no chained exception carries an entry either


def _failure(error: Exception, n_rows: int) -> Exception:
    """What to tell of an error on private rows."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in text or "allocate memory" in text:
        return MemoryError(
            f"memory ran out for the gradients or scores of {n_rows} rows at once. Set a"
            " smaller `microbatch_size`."
        )
    return RuntimeError(
        f"`module` failed with {type(error).__name__} on some of the rows. Its message may quote"
        " them and is withheld: try the module on public rows."
    )
