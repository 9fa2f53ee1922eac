"""A torch module applied row by row, and the trials on random rows that show that this works.

Design note. Gradients are computed by ``torch.func.vmap`` of the gradient of one record, and so are
the scores they start from: inside, a module only ever sees a batch of one, so that no layer can
carry anything from one record to another. This holds by construction (a ``torch.autograd.Function``
with its own vmap rule is assumed to keep records apart, and modules that use data stored by an
earlier call are found by the trials); the trials on random rows are for prediction, which uses
batches, and for messages that name a remedy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._core.gradients.throwaway import public_copy, throwaway, versions
from dpsubspace._core.gradients.torch_rows import (
    check_layers,
    dtype_of,
    even_bits,
    fewer,
    lookups,
    places_of,
    try_out,
)
from dpsubspace._core.ground.arrays import BLOCK, Array, plain_arithmetic

if TYPE_CHECKING:
    import torch

# Gradients of a chunk and its activations take this many bytes, unless a single row takes more.
_GRADIENT_BYTES = 1 << 28

# Most rows that go through a module together: a larger number is no faster.
ROWS, _ROWS_GPU = 128, 4096

# Least share of its norm by which a gradient is assumed to move when it is computed again, if it
# moves at all; and safety factor over the difference on random rows.
_LEAST_SPREAD, _SAFETY = 2.0**-20, 16

# Rows and their gradients may differ between vmap and one at a time by this much, by rounding.
SAME = 1e-4


# One row at a time ----------------------------------------------------------------------------


class RowByRow:
    """A module as a function of its trainable parameters, applied to each row independently."""

    def __init__(self, module: torch.nn.Module, shape: tuple[int, ...], device: torch.device):
        self.module, self.shape, self.device = module, shape, device
        # The module that is kept is never called: rows go through a copy with the same parameters.
        self._used, self.versions = throwaway(module), versions(module)
        self._places = places_of(module)
        self._trainable = {name: dict(module.named_parameters())[name] for name in self._places}
        used = dict(self._used.named_parameters())
        self._aliases = _aliases(self._used, {id(used[name]): name for name in self._places})
        self.dtype = next(iter(self._trainable.values())).dtype
        self.n_params = sum(part.stop - part.start for part in self._places.values())

    def start(self) -> torch.Tensor:
        import torch

        return torch.cat([p.detach().double().reshape(-1) for p in self._trainable.values()])

    def named(self, params: Array) -> dict[str, torch.Tensor]:
        import torch

        flat = torch.as_tensor(params, dtype=self.dtype, device=self.device).detach()
        return {
            name: flat[part].reshape(self._trainable[name].shape)
            for name, part in self._places.items()
        }

    def loaded(self, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
        import torch

        with torch.no_grad():
            module = copy.deepcopy(self.module)
            trainable = dict(module.named_parameters())
            for name, value in weights.items():
                trainable[name].copy_(value)
        return module

    def batch(self, rows: np.ndarray, size: int) -> torch.Tensor:
        return as_tensor(rows, size, self.shape, self.dtype, self.device)

    def scores(self, weights: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        from torch.func import vmap

        return vmap(self._one, in_dims=(None, 0))(weights, batch)

    def summed(
        self,
        weights: dict[str, torch.Tensor],
        batch: torch.Tensor,
        residual: Callable[[torch.Tensor], torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores, and the sum of the gradients of the rows, without forming any of these."""
        import torch
        from torch.func import vjp

        pulled: Any = vjp(lambda own: self.scores(own, batch), weights)
        scores, pull = pulled
        total = pull(residual(scores).to(self.dtype))[0]
        return scores, torch.cat([total[name].reshape(-1) for name in self._places]).double()

    def gradients(
        self, weights: dict[str, torch.Tensor], batch: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
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
        entries = self._dense_entries() + self._activations() + math.prod(self.shape)
        size = self.start().new_zeros(1, dtype=self.dtype).element_size()
        most = ROWS if self.device.type == "cpu" else _ROWS_GPU
        rows = min(most, max(1, _GRADIENT_BYTES // (size * entries)))
        return rows - rows % BLOCK if rows > BLOCK else rows

    def _dense_entries(self) -> int:
        return self.n_params

    def _activations(self) -> int:
        count = 0

        def add(layer: Any, inputs: Any, output: Any) -> None:
            nonlocal count
            outputs = output if isinstance(output, tuple) else (output,)
            count += sum(out.numel() for out in outputs if hasattr(out, "numel"))

        layers = [layer for layer in self._used.modules() if not list(layer.children())]
        handles = [layer.register_forward_hook(add) for layer in layers]
        try:
            self._used(self.batch(random_rows(1, self.shape), 1))
        finally:
            for handle in handles:
                handle.remove()
        return count

    def check(self, watch: Callable[[torch.Tensor], None], seed: int) -> None:
        """Raise ValueError unless gradients of random rows are those of autograd, row by row."""
        rows, weights = random_rows(3, self.shape, seed), self._perturbed()
        batch = self.batch(rows, len(rows))
        watch(batch)
        try:
            scores = self.scores(weights, batch)
            residual = scores + 1
            found = self.gradients(weights, batch, residual)
        except Exception as error:  # about random rows, which an error may quote
            raise not_vectorised(error) from error
        expected = self._one_at_a_time(weights, batch, residual)
        scale = expected.abs().amax(dim=1, keepdim=True)
        if not bool(((found - expected).abs() <= SAME * scale).all()):
            raise other_gradients()

    def _perturbed(self) -> dict[str, torch.Tensor]:
        rng, perturbed = np.random.default_rng(1), {}
        for name, parameter in self._trainable.items():
            start = parameter.detach().double()
            noise = start.new_tensor(rng.normal(size=start.shape))
            perturbed[name] = (start + 0.05 * noise).to(self.dtype)
        return perturbed

    def _one_at_a_time(
        self, weights: dict[str, torch.Tensor], batch: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        import torch

        module = self.loaded(weights)
        each = (self._alone(module, *row) for row in zip(batch, residual, strict=True))
        return torch.stack([torch.cat([g.reshape(-1) for g in one.values()]) for one in each])

    def _alone(
        self, module: torch.nn.Module, row: torch.Tensor, residual: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        import torch

        leaves = dict(module.named_parameters())
        with torch.enable_grad():
            product = (module(row[None])[0] * residual).sum()
            parts = torch.autograd.grad(
                product,
                [leaves[name] for name in self._places],
                allow_unused=True,
                materialize_grads=True,
            )
        return dict(zip(self._places, parts, strict=True))

    def spread(self, size: int) -> float:
        """Share of its norm by which a gradient moves when it is computed again.

        It uses random rows and targets, and the squared error; zero where every bit is the same.
        """
        weights, batch = self._perturbed(), self.batch(random_rows(size, self.shape), size)
        targets = batch.new_tensor(np.random.default_rng(3).normal(size=(size, 1)))
        one, two = (self._parts(weights, batch, lambda scores: scores - targets) for _ in range(2))
        return self._spread(one, two)

    def even_size(self, most: int, residual: Callable[[torch.Tensor], torch.Tensor]) -> int:
        """Largest batch size up to `most` at which a row has the same bits at any place.

        `residual` maps scores to residuals, with the same target for each row. See
        :func:`~dpsubspace._core.gradients.torch_rows.even_bits`; a batch of one row has only one
        place.
        """
        weights = self._perturbed()

        def mapped(rows: np.ndarray) -> list[torch.Tensor]:
            batch, found = self.batch(rows, len(rows)), []

            def of_scores(scores: torch.Tensor) -> torch.Tensor:
                found.extend([scores, residual(scores)])
                return found[-1]

            return [*self._parts(weights, batch, of_scores), *found, self.scores(weights, batch)]

        width = math.prod(self.shape)
        sizes = (size for size in fewer(most) if even_bits(mapped, width, size) is not None)
        return next(sizes, 1)

    def _spread(self, first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
        if all(bool((one == other).all()) for one, other in zip(first, second, strict=True)):
            return 0.0
        return _spread(self._formed(first), self._formed(second))

    def _parts(
        self,
        weights: dict[str, torch.Tensor],
        batch: torch.Tensor,
        residual: Callable[[torch.Tensor], torch.Tensor],
    ) -> list[torch.Tensor]:
        """Stored parts of the gradients of a batch: here all gradients, one for each row."""
        return [self.gradients(weights, batch, residual(self.scores(weights, batch)))]

    def _formed(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return parts[0]


def not_vectorised(error: Exception) -> ValueError:
    return ValueError(
        "`module` has no per-example gradients, since torch.func.vmap cannot run it:"
        f" {error} Take out what depends on values (`if x.sum() > 0`, .item(), boolean"
        " indexing), what changes buffers or new tensors in place, and recurrent layers"
        " of torch.nn (write them with nn.Linear); torch.where and out-of-place"
        " operations work. Or freeze that part and put it before, with TorchFeatures."
    )


def other_gradients() -> ValueError:
    return ValueError(
        "`module` has other gradients for a random row by itself (torch.autograd) than by"
        " torch.func.vmap. Are its outputs finite, and does it take its parameters by"
        " their names in the module (not from a list of its own)?"
    )


def _aliases(module: torch.nn.Module, names: dict[int, str]) -> dict[str, str]:
    """Map the path of every place of a parameter in the module to the name of the parameter.

    A layer in two places counts as one place: functional_call also ties those by itself, and then
    leaves the parameters that it was called with in the module (torch 2.13).
    """
    return {
        f"{path}.{attribute}".lstrip("."): names[id(parameter)]
        for path, layer in module.named_modules()
        for attribute, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in names
    }


def _spread(first: torch.Tensor, second: torch.Tensor) -> float:
    import torch

    differs = (first != second) & ~(torch.isnan(first) & torch.isnan(second))
    if not bool(differs.any()):
        return 0.0
    norms = torch.linalg.vector_norm(first, dim=1)
    moves = torch.linalg.vector_norm(first - second, dim=1) / norms.clip(min=norms.median())
    return max(_LEAST_SPREAD, _SAFETY * float(moves.nanmedian()))


def random_rows(n: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, math.prod(shape)))


def as_tensor(
    rows: np.ndarray,
    size: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    import torch

    padded = torch.tensor(np.ascontiguousarray(rows), dtype=dtype)
    if len(rows) < size:
        padded = torch.cat([padded, padded.new_zeros((size - len(rows), math.prod(shape)))])
    return padded.reshape(len(padded), *shape).to(device)


# Checks and the state of torch ----------------------------------------------------------------


def checked_copy(
    module: Any, shape: tuple[int, ...], n_outputs: int, device: torch.device
) -> torch.nn.Module:
    """Copy of `module` in evaluation mode on the device, checked on random rows."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"`module` must be a torch.nn.Module, got {type(module).__name__}.")
    copied = public_copy(module)
    copied.eval()
    check_layers(copied)
    _check_normalisation(module)
    _check_dtypes(copied)
    places_of(copied)
    if lookups(copied):  # on a GPU, an invalid index ends all later computations
        with exact_arithmetic(torch.device("cpu")):
            try_out(copied, shape, "cpu")
    copied.to(device)
    for parameter in copied.parameters():
        parameter.grad = None
    with exact_arithmetic(device):
        try_out(copied, shape, str(device))
        rows = as_tensor(random_rows(3, shape), 3, shape, dtype_of(copied), device)
        found = tuple(throwaway(copied)(rows).shape)
    if found != (3, n_outputs):
        raise ValueError(
            f"`module` gives outputs of shape {found} for 3 rows, but (3, {n_outputs}) is needed:"
            " a classifier of two classes needs 1 output (a column), of more classes one for"
            " each, and a regressor one for each target."
        )
    return copied


def _check_normalisation(module: torch.nn.Module) -> None:
    """Raise ValueError for running statistics beside parameters that are trained.

    The statistics would not be updated, and in training mode they would be those of private
    batches.
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
    import torch

    tensors = [*module.parameters(), *module.buffers()]
    dtypes = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        raise ValueError(
            "`module` must have all weights in float32, or all in float64, got"
            f" {sorted(str(dtype) for dtype in dtypes)}. Use module.float()."
        )


@contextmanager
def exact_arithmetic(device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Use arithmetic that gives the same bits for the same numbers, and keep no graphs.

    No autocast, no choice of convolutions by timing, no convolutions in TF32 (10 bits), and
    attention without fused kernels, for which vmap has no rules. With this number of `threads`, or
    the present number.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = torch.backends.mha.get_fastpath_enabled()
    cudnn: Any = torch.backends.cudnn
    flags = cudnn.flags(
        enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    )
    before = torch.get_num_threads()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        if threads not in (None, before):
            torch.set_num_threads(threads)
        with plain_arithmetic(device), flags, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        if threads not in (None, before):
            torch.set_num_threads(before)


def guarded(function: Callable[[int], Any], n_rows: int) -> Any:
    """Call ``function(n_rows)``; if that fails, raise an error that quotes no entry of the rows."""
    try:
        return function(n_rows)
    except Exception as error:
        failure = _failure(error, n_rows)
    raise failure  # outside of `except`, so that no chained exception carries an entry either


def _failure(error: Exception, n_rows: int) -> Exception:
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
