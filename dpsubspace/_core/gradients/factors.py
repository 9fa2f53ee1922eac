"""Per-row gradients of a torch module, as inputs of layers and gradients by their outputs.

Design note. A linear layer or a convolution that maps inputs a_s to outputs at positions s has the
gradient ``sum_s d_s a_s^T``, where d_s is the gradient by the output. The two factors are much
smaller than the gradient where the layer is wide. Each row goes through the module by itself,
inside of ``torch.func.vmap``, as where gradients are formed; hooks record the inputs of a layer,
and add zeros to its outputs: the gradients by these zeros are the second factor. Which factors
belong to which parameter is read off the module and then compared with autograd on random rows. A
parameter for which that fails (a weight that is also used in another way), and a parameter of any
other layer, is taken apart: its gradient is formed, row by row.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsubspace._core.gradients.clipping import DenseGradients
from dpsubspace._core.gradients.throwaway import throwaway
from dpsubspace._core.gradients.vectorised import (
    SAME,
    RowByRow,
    not_vectorised,
    other_gradients,
    random_rows,
)
from dpsubspace._core.ground.arrays import BLOCK, EPS, slices

if TYPE_CHECKING:
    import torch


# Entries that are converted to float64, or formed, at once (64 MiB).
_WIDE = 1 << 23

# Products of positions that are added up at once, since they are read several times (2 MiB).
_CACHED = 1 << 18

# Larger entries do not count: products of four of them would leave the range of float64.
_LARGEST = 1e70

# Random rows whose gradients are compared with those of autograd, and with those of another
# computation where not all bits are the same.
_TRIED, _COMPARED = 3, 128


# Products of factors --------------------------------------------------------------------------


@dataclass(frozen=True)
class Outer:
    """Gradients by one weight, ``sum_s d_s a_s^T`` for every row, which are not formed."""

    layers: tuple[Any, ...]  # The layer of each call that uses the weight
    # (n, ...): the input of each call, and the gradients by its output.
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        d_out, d_in = self.layers[0].weight.shape[0], _d_in(self.layers[0])
        return sum(math.prod(D.shape[1:]) for D in self.outputs) // d_out, d_in, d_out

    def inner(self, other: Outer) -> torch.Tensor:
        t, d_in, d_out = self.sizes
        windows = self._windows()
        of_inputs = t * t * d_in if windows is None else windows.n_products
        if of_inputs + t * t * d_out > d_in * d_out:
            return self._inner_dense(other)
        if windows is not None:
            return self._inner_by_windows(other, windows)
        if t > 1:
            return self._inner_by_pairs(other)
        (A, D), (B, E) = self._flat(), other._flat()
        return _product(A, B) * _product(D, E)

    def squares(self) -> torch.Tensor:
        import torch

        return torch.cat([self._squares(A, D) for A, D in self._in_pieces()])

    def _squares(self, A: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
        if self._by_pairs:
            return ((A @ A.mT) * (D @ D.mT)).sum((1, 2))
        return (D.mT @ A).square().sum((1, 2))

    @property
    def _by_pairs(self) -> bool:
        """Whether there are fewer inner products of positions than entries of a gradient."""
        t, d_in, d_out = self.sizes
        return t * (d_in + d_out) <= d_in * d_out

    def lengths(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Squared norms of gradients (n,), never too small, and those of ``sum_s |d_s| |a_s|``.

        The latter may be much larger, where positions cancel. Inner products of positions have an
        error of ``d u |a_s| |a_t|``, and so has the sum of their products: less than the margin
        added here.
        """
        import torch

        t, d_in, d_out = self.sizes
        norm, more = torch.linalg.vector_norm, 1 + (d_in + d_out + t + 8) * EPS
        if t == 1:
            A, D = self._positions(slice(None))
            parts = (norm(part, dim=2, dtype=torch.float64)[:, 0] for part in (A, D))
            long = torch.stack([*parts]).prod(0).square() * more
            return long, long
        found = []
        for A, D in self._in_pieces():
            long = (norm(A, dim=2) * norm(D, dim=2)).sum(1).square() * more
            lost = (d_in * d_out + t * t + 16) * EPS * long
            found.append((self._squares(A, D) + lost, long))
        squares, longer = zip(*found, strict=True)
        return torch.cat(squares), torch.cat(longer)

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Sum of the gradients by these factors, (d_out, d_in) in float64.

        At most :data:`~dpsubspace._core.ground.arrays.BLOCK` rows are added up at once.
        """
        t, d_in, d_out = self.sizes
        total = weights.new_zeros((d_out, d_in))
        for rows in slices(len(weights), max(1, min(BLOCK, _WIDE // max(1, t * (d_in + d_out))))):
            A, D = self._wide(rows)
            weighted = (D * weights[rows, None, None]).flatten(0, 1)
            # Not addmm_, which may round the total at each position.
            total += weighted.T @ A.flatten(0, 1)
        return total

    def at(self, rows: slice) -> Outer:
        inputs, outputs = (tuple(part[rows] for part in x) for x in (self.inputs, self.outputs))
        return Outer(self.layers, inputs, outputs)

    def dense(self, channels: slice = slice(None)) -> torch.Tensor:
        """Gradients in float64, for all inputs or for some channels of them."""
        import torch

        t, d_in, d_out = self.sizes
        found = []
        for rows in self._pieces(t * (d_in + d_out)):
            A, D = self._wide_columns(rows, channels)
            found.append(D.mT @ A.mT)
        return torch.cat(found)

    def _inner_dense(self, other: Outer) -> torch.Tensor:
        """Inner products of gradients, formed for some channels at a time and read once."""
        _, d_in, d_out = self.sizes
        n, m, channels = len(self.inputs[0]), len(other.inputs[0]), self.layers[0].weight.shape[1]
        each = (n + m) * d_out * (d_in // channels)
        total: Any = 0.0
        for some in slices(channels, max(1, _WIDE // max(1, each))):
            ours = self.dense(some).flatten(1)
            theirs = ours if other is self else other.dense(some).flatten(1)
            total = total + ours @ theirs.T
        return total

    def _inner_by_pairs(self, other: Outer) -> torch.Tensor:
        import torch

        t, d_in, d_out = self.sizes
        found = []
        step = max(1, min(math.isqrt(_WIDE // 2) // t, _WIDE // (2 * t * (d_in + d_out))))
        for rows in slices(len(self.inputs[0]), step):
            A, D = (factor.flatten(0, 1) for factor in self._wide(rows))
            line = []
            for others in slices(len(other.inputs[0]), step):
                B, E = (factor.flatten(0, 1) for factor in other._wide(others))
                each = (A @ B.T).mul_(D @ E.T)
                line.append(each.reshape(len(A) // t, t, len(B) // t, t).sum((1, 3)))
            found.append(torch.cat(line, dim=1))
        return torch.cat(found)

    def _inner_by_windows(self, other: Outer, windows: _Windows) -> torch.Tensor:
        """Inner products by products of pixels, whose sums are the products of overlapping windows.

        For some rows at a time, so that their products are added up in the cache.
        """
        import torch

        t, d_in, d_out = self.sizes
        found = []
        step = math.isqrt(_CACHED) // max(t, windows.n_pixels)
        step = max(1, min(step, _WIDE // (2 * t * (d_in + d_out))))
        for rows in slices(len(self.inputs[0]), step):
            A, D = self._pixels(rows)
            line = []
            for others in slices(len(other.inputs[0]), step):
                B, E = other._pixels(others)
                each = windows.products(_between(A, B)).mul_(_between(D, E))
                line.append(each.sum((0, 2)))
            found.append(torch.cat(line, dim=1))
        return torch.cat(found)

    def _pixels(self, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels of images (pixels, n, channels), and gradients by outputs (t, n, d_out)."""
        layer, A, D = self.layers[0], self.inputs[0][rows], self.outputs[0][rows]
        pixels = A.reshape(len(A), layer.in_channels, -1).mT
        wide = pixels.double(), _outputs(layer, D).double()
        return wide[0].transpose(0, 1).contiguous(), wide[1].transpose(0, 1).contiguous()

    def _windows(self) -> _Windows | None:
        """Pixels that positions see, if their products are fewer than those of positions."""
        layer, t = self.layers[0], self.sizes[0]
        if len(self.layers) > 1 or not _convolves(layer) or layer.padding_mode != "zeros":
            return None
        sides = len(layer.kernel_size)
        sizes, window = self.inputs[0].shape[-sides:], math.prod(layer.kernel_size)
        n_pixels, one_image = math.prod(sizes), math.prod(self.inputs[0].shape[1 : -sides - 1]) == 1
        if not one_image or n_pixels**2 >= t * t * window:
            return None
        return _Windows.of(layer, tuple(sizes))

    def _pieces(self, entries: int) -> list[slice]:
        step = max(1, _WIDE // (2 * max(1, entries)))
        return slices(len(self.inputs[0]), step) or [slice(0, 0)]

    def _in_pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Factors in float64, in pieces that leave room for their products."""
        t, d_in, d_out = self.sizes
        beside = t * t if self._by_pairs else d_in * d_out
        for rows in self._pieces(t * (d_in + d_out) + beside):
            yield self._wide(rows)

    def _flat(self) -> tuple[torch.Tensor, torch.Tensor]:
        A, D = self._positions(slice(None))
        return A.flatten(1), D.flatten(1)

    def _wide(self, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        return self._positions(rows, wide=True)

    def _positions(self, rows: slice, *, wide: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors of some rows at all positions, (n, t, d_in) and (n, t, d_out)."""
        each = [
            (_inputs(layer, A), _outputs(layer, D)) for layer, A, D in self._of_calls(rows, wide)
        ]
        return _joined(each, 1, 1)

    def _wide_columns(self, rows: slice, channels: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors in float64, with inputs (n, d_in, t) of some channels; positions are adjacent.

        The pixels of an image are adjacent as well, so that windows are copied by whole lines.
        """
        each = [
            (_columns(layer, A, channels), _outputs(layer, D))
            for layer, A, D in self._of_calls(rows, True)
        ]
        return _joined(each, 2, 1)

    def _of_calls(self, rows: slice, wide: bool) -> Iterator[tuple[Any, Any, Any]]:
        for layer, A, D in zip(self.layers, self.inputs, self.outputs, strict=True):
            A, D = A[rows], D[rows]
            yield layer, A.double() if wide else A, D.double() if wide else D


class _Windows(NamedTuple):
    sides: list[torch.Tensor]
    """By side of the image: number of each pixel that each position sees, 0 where there is none."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    channels: int

    @classmethod
    def of(cls, layer: Any, sizes: tuple[int, ...]) -> _Windows:
        import torch

        padding, sides = layer._reversed_padding_repeated_twice[::-1], []
        windows = zip(sizes, layer.kernel_size, layer.stride, layer.dilation, strict=True)
        for side, (size, window, stride, dilation) in enumerate(windows):
            after, before = padding[2 * side : 2 * side + 2]
            numbers = torch.nn.functional.pad(torch.arange(1, size + 1), (before, after))
            whole = dilation * (window - 1) + 1
            sides.append(numbers.unfold(0, whole, stride)[:, ::dilation])
        return cls(sides, sizes, layer.stride, layer.in_channels)

    @property
    def n_pixels(self) -> int:
        return math.prod(self.sizes)

    @property
    def n_products(self) -> int:
        return self.n_pixels**2 * self.channels

    def products(self, each: torch.Tensor) -> torch.Tensor:
        """Inner products of windows at positions, (t, n, t, m), from those of pixels.

        One side of the images after the other: the products of a window are sums of those of its
        lines.
        """
        _, n, _, m = each.shape
        done, left = 1, self.n_pixels
        for size, seen, stride in zip(self.sizes, self.sides, self.strides, strict=True):
            left //= size
            each = each.reshape(done, size, left * n, done, size, left * m)
            t = len(seen)
            total = each.new_zeros((done, t, left * n, done, t, left * m))
            for pixels in seen.T:
                at = pixels.nonzero()[:, 0].tolist()
                if at:  # one after the other, since nothing is seen beyond the border of an image
                    places = slice(at[0], at[-1] + 1)
                    some = slice(int(pixels[at[0]]) - 1, int(pixels[at[-1]]), stride)
                    total[:, places, :, :, places] += each[:, some, :, :, some]
            each, done = total, done * t
        return each.reshape(done, n, done, m)


def _between(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Inner products of vectors (p, n, c) and (q, m, c), (p, n, q, m)."""
    products = A.flatten(0, 1) @ B.flatten(0, 1).T
    return products.reshape(*A.shape[:2], *B.shape[:2])


class FactoredGradients(NamedTuple):
    dense: torch.Tensor
    """Gradients that are formed, (n, q): those by few parameters."""

    outer: tuple[Outer, ...]

    def inner(self, other: FactoredGradients) -> torch.Tensor:
        total = _product(self.dense, other.dense)
        for ours, theirs in zip(self.outer, other.outer, strict=True):
            total += ours.inner(theirs)
        return total

    def squares(self) -> torch.Tensor:
        import torch

        n, q = self.dense.shape
        pieces = slices(n, max(1, _WIDE // max(1, q)))
        total = torch.cat([self.dense[rows].double().square().sum(1) for rows in pieces])
        for outer in self.outer:
            total += outer.squares()
        return total


def _product(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    one, other = (DenseGradients(rows, (rows.shape[1],)) for rows in (ours, theirs))
    return one.inner(other)[0]


def _in_range(parts: list[torch.Tensor]) -> torch.Tensor:
    """Whether all entries of a row are finite and not too large."""
    import torch

    found = []
    for part in (part for part in parts if math.prod(part.shape[1:])):
        # In float32 finite numbers are below 1e70, which converts to inf there, and inf > inf is
        # false.
        most = min(_LARGEST, torch.finfo(part.dtype).max)
        low, high = part.flatten(1).aminmax(dim=1)
        found.append((low >= -most) & (high <= most))
    return torch.stack(found).all(0)


def _beside(rows: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    return rows.reshape(-1, *(1 for _ in part.shape[1:]))


# Positions ------------------------------------------------------------------------------------


def _joined(each: list[tuple[Any, Any]], *dims: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Join the factors of several calls along these dimensions, which are those of positions."""
    import torch

    if len(each) == 1:
        return each[0]
    inputs, outputs = (
        torch.cat(parts, dim=dim) for parts, dim in zip(zip(*each, strict=True), dims, strict=True)
    )
    return inputs, outputs


def _inputs(layer: Any, A: torch.Tensor) -> torch.Tensor:
    """Vectors that a layer maps linearly at each of its positions, (n, positions, d_in)."""
    if not _convolves(layer):
        return _by_position(A, layer.in_features)
    sides = len(layer.kernel_size)
    images = _patches(layer, A.reshape(-1, *A.shape[-sides - 1 :]))
    positions = math.prod(A.shape[1 : -sides - 1]) * math.prod(images.shape[1 : 1 + sides])
    return images.reshape(len(A), positions, _d_in(layer))


def _columns(layer: Any, A: torch.Tensor, channels: slice) -> torch.Tensor:
    """Vectors of :func:`_inputs` for some channels (or features), as (n, d_in, positions)."""
    if not _convolves(layer):
        return _by_position(A, layer.in_features)[..., channels].mT
    sides = len(layer.kernel_size)
    A = A[(..., channels, *[slice(None)] * sides)]
    images = _windows(layer, A.reshape(-1, *A.shape[-sides - 1 :]))
    images = images.movedim(tuple(range(2, 2 + sides)), tuple(range(-sides, 0)))
    size = math.prod(A.shape[1 : -sides - 1]), *images.shape[1:]
    columns = images.reshape(len(A), *size).flatten(-sides).flatten(2, -2)
    return columns.movedim(1, 2).flatten(2)


def _patches(layer: Any, images: torch.Tensor) -> torch.Tensor:
    """Array of rows, places in the output, channels, places in the window."""
    return _windows(layer, images).movedim(1, 1 + len(layer.kernel_size))


def _windows(layer: Any, images: torch.Tensor) -> torch.Tensor:
    """Array of rows, channels, places in the output, places in the window."""
    from torch.nn.functional import pad

    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    images = pad(images, layer._reversed_padding_repeated_twice, mode=mode)
    windows = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for side, (size, stride, dilation) in enumerate(windows):
        whole = dilation * (size - 1) + 1
        images = images.unfold(2 + side, whole, stride)[..., ::dilation]
    return images


def _outputs(layer: Any, D: torch.Tensor) -> torch.Tensor:
    """Gradients by the outputs of a layer at each of its positions, (n, positions, d_out)."""
    if not _convolves(layer):
        return _by_position(D, layer.out_features)
    D = D.movedim(-len(layer.kernel_size) - 1, -1)
    return _by_position(D, layer.out_channels)


def _by_position(factor: torch.Tensor, size: int) -> torch.Tensor:
    return factor.reshape(len(factor), math.prod(factor.shape[1:]) // size, size)


def _d_in(layer: Any) -> int:
    return math.prod(layer.weight.shape[1:])


def _convolves(layer: Any) -> bool:
    return hasattr(layer, "kernel_size")


def _known(layer: Any) -> bool:
    """Whether a layer maps positions linearly, in a way that is supported here."""
    import torch

    nn = torch.nn
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    same = any(getattr(type(layer), "forward", None) is kind.forward for kind in kinds)
    return same and getattr(layer, "groups", 1) == 1


# Rows through the module ----------------------------------------------------------------------


class _Call(NamedTuple):
    path: str
    layer: Any
    given: tuple[int, ...]
    gave: tuple[int, ...]


class LayerByLayer(RowByRow):
    """A module as a function of its rows; gradients are kept as factors, except those `apart`."""

    def __init__(
        self,
        module: torch.nn.Module,
        shape: tuple[int, ...],
        device: torch.device,
        apart: frozenset[str] = frozenset(),
    ):
        super().__init__(module, shape, device)
        self._starts = {name: p.detach() for name, p in self._trainable.items()}
        self._calls: list[_Call] = []
        self._calls = self._recorded()
        # Calls that use each weight and each bias, by its name.
        self._weights, self._biases, self._apart = self._sorted(apart)
        self._formed_weights = [name for name in self._weights if self._short(name)]
        self._outer = [name for name in self._weights if name not in self._formed_weights]
        self._columns = self._dense_columns()

    def once(self) -> LayerByLayer:
        """Return the same with another copy of the module, for calls that it may keep data of."""
        other = copy.copy(self)
        other._used = throwaway(self.module)
        layers = dict(other._used.named_modules())
        other._calls = [call._replace(layer=layers[call.path]) for call in self._calls]
        return other

    @property
    def places(self) -> tuple[list[slice], list[slice]]:
        """Places in the vector of parameters: of gradients that are formed, and of the others."""
        return [self._places[name] for name in self._columns], [
            self._places[name] for name in self._outer
        ]

    @property
    def n_positions(self) -> int:
        """Largest number of products ``d_s a_s^T`` in the sum of a gradient that is not formed."""
        each = (sum(self._n_positions(i) for i in self._weights[name]) for name in self._outer)
        return max(1, *each, 1)

    def _n_positions(self, i: int) -> int:
        call = self._calls[i]
        return math.prod(call.gave) // call.layer.weight.shape[0]

    @property
    def layout(self) -> tuple[Any, ...]:
        calls = tuple((call.path, call.given, call.gave) for call in self._calls)
        return tuple(self._columns), tuple(self._outer), calls

    def held_bytes(self) -> int:
        calls = [self._calls[i] for name in self._outer for i in self._weights[name]]
        entries = sum(math.prod(call.given) + math.prod(call.gave) for call in calls)
        entries += sum(part.stop - part.start for part in self._columns.values())
        return max(1, entries) * next(iter(self._starts.values())).element_size()

    def held(
        self, batches: Iterable[Any], n_rows: int, weights: dict[str, torch.Tensor] | None = None
    ) -> FactoredGradients:
        """Stored factors of the gradients of `n_rows` rows, at `weights` or at the initial ones.

        The rows come in batches of one size, each with its number of rows that are not padding, and
        a function from scores to residuals.
        """
        kept: list[torch.Tensor] = []
        start, weights = 0, weights or self._starts
        for batch, k, residual in batches:
            found = [part[:k] for part in self._parts(weights, batch, residual)]
            absent = ~_in_range(found)
            if bool(absent.any()):
                found = [part.masked_fill(_beside(absent, part), 0) for part in found]
            if k == n_rows:
                return self._as_held(found)
            kept = kept or [part.new_empty((n_rows, *part.shape[1:])) for part in found]
            for part, whole in zip(found, kept, strict=True):
                whole[start : start + k] = part
            start += k
        return self._as_held(kept)

    def tried(self, watch: Callable[[torch.Tensor], None], seed: int) -> list[np.ndarray]:
        """Residuals and stored factors of random rows; ValueError if vmap fails."""
        batch = self.batch(random_rows(_TRIED, self.shape, seed), _TRIED)
        watch(batch)
        residuals: list[torch.Tensor] = []

        def residual(scores: torch.Tensor) -> torch.Tensor:
            residuals.append(scores + 1)
            return residuals[-1]

        try:
            found = self._parts(self._perturbed(), batch, residual)
        except Exception as error:  # about random rows, which an error may quote
            raise not_vectorised(error) from error
        return [part.cpu().numpy().copy() for part in (*residuals, *found)]

    def mismatched(self, tried: list[np.ndarray], seed: int) -> frozenset[str]:
        """Names of parameters for which autograd gives other gradients on random rows.

        ValueError if one of them was taken apart already.
        """
        import torch

        residual, *parts = (torch.tensor(part, device=self.device) for part in tried)
        batch = self.batch(random_rows(_TRIED, self.shape, seed), _TRIED)
        held, module, wrong = self._as_held(parts), self.loaded(self._perturbed()), set()
        for i in range(_TRIED):
            expected = self._alone(module, batch[i], residual[i])
            scale = max(float(one.abs().max()) for one in expected.values() if one.numel())
            for name, one in expected.items():
                gap = (self._row(held, name, i) - one.reshape(-1)).abs()
                if not bool((gap <= SAME * scale).all()):
                    wrong.add(name)
        if wrong & self._apart:
            raise other_gradients()
        return frozenset(wrong)

    def _row(self, held: FactoredGradients, name: str, i: int) -> torch.Tensor:
        if name in self._columns:
            return held.dense[i, self._columns[name]]
        outer = held.outer[self._outer.index(name)]
        return outer.at(slice(i, i + 1)).dense().reshape(-1)

    # What is computed for one batch

    def _formed(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Gradients of a sample of the rows at even distances."""
        import torch

        step = max(1, len(parts[0]) // _COMPARED)
        held = self._as_held([part[::step] for part in parts])
        return torch.cat([held.dense, *(outer.dense().flatten(1) for outer in held.outer)], dim=1)

    def _parts(
        self,
        weights: dict[str, torch.Tensor],
        batch: torch.Tensor,
        residual: Callable[[torch.Tensor], torch.Tensor],
    ) -> list[torch.Tensor]:
        import torch
        from torch.func import vjp, vmap

        k = len(batch)
        taps = tuple(batch.new_zeros(()).expand(k, *call.gave) for call in self._calls)

        def scores(taps: Any) -> Any:
            return vmap(self._tapped_one, in_dims=(None, 0, 0))(weights, taps, batch)

        pull: Any = lambda residual: [()]  # noqa: E731
        if taps:
            found: Any = vjp(scores, taps, has_aux=True)
            out, pull, inputs = found
        else:
            out, inputs = scores(taps)
        by_out = residual(out).to(self.dtype)
        outputs = pull(by_out)[0]
        by_own = self._taken_apart(weights, batch, by_out)
        dense = [batch.new_zeros((k, 0))]
        for name in self._columns:
            if name in self._apart:
                dense.append(by_own[name].reshape(k, -1))
            elif name in self._biases:
                parts = [_outputs(self._calls[i].layer, outputs[i]) for i in self._biases[name]]
                dense.append(torch.stack([part.sum(1) for part in parts]).sum(0))
            else:
                outer = self._outer_of(name, inputs, outputs)
                dense.append(outer.dense().flatten(1).to(self.dtype))
        calls = [i for name in self._outer for i in self._weights[name]]
        factors = [part for i in calls for part in (inputs[i], outputs[i])]
        return [torch.cat(dense, dim=1), *factors]

    def _taken_apart(
        self, weights: dict[str, torch.Tensor], batch: torch.Tensor, residual: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Gradients of each row by the parameters that are taken apart.

        All rows share these parameters: if each row had its own copy, torch would read an embedding
        whose index is out of range from the copy of another row, and move the gradient of that row.
        """
        from torch.func import grad, vmap

        if not self._apart:
            return {}

        def product(own: Any, row: Any, residual: Any) -> Any:
            return (self._one({**weights, **own}, row) * residual).sum()

        own = {name: weights[name] for name in self._apart}
        found: Any = vmap(grad(product), in_dims=(None, 0, 0))(own, batch, residual)
        return found

    def _as_held(self, parts: list[torch.Tensor]) -> FactoredGradients:
        dense, *factors = parts
        calls = [i for name in self._outer for i in self._weights[name]]
        inputs = dict(zip(calls, factors[::2], strict=True))
        outputs = dict(zip(calls, factors[1::2], strict=True))
        return FactoredGradients(
            dense, tuple(self._outer_of(name, inputs, outputs) for name in self._outer)
        )

    def _outer_of(self, name: str, inputs: Any, outputs: Any) -> Outer:
        calls = self._weights[name]
        return Outer(
            tuple(self._calls[i].layer for i in calls),
            tuple(inputs[i] for i in calls),
            tuple(outputs[i] for i in calls),
        )

    def _tapped_one(self, weights: Any, taps: Any, row: torch.Tensor) -> Any:
        """Scores of one row with `taps` added to outputs of layers, and the inputs of layers."""
        inputs: list[torch.Tensor] = []

        def tap(call: _Call, given: torch.Tensor, gave: torch.Tensor) -> torch.Tensor:
            i = len(inputs)
            if i >= len(self._calls) or self._calls[i] != call:
                raise RuntimeError("layers are called in another order or with other shapes")
            inputs.append(given)
            return gave + taps[i]

        with self._hooked(tap):
            return self._one(weights, row), tuple(inputs)

    @contextmanager
    def _hooked(self, tap: Callable[..., Any]) -> Iterator[None]:
        def hook(path: str, layer: Any, args: Any, kwargs: Any, gave: torch.Tensor) -> Any:
            given = args[0] if args else kwargs["input"]
            return tap(_Call(path, layer, tuple(given.shape), tuple(gave.shape)), given, gave)

        handles = [
            layer.register_forward_hook(
                lambda *called, path=path: hook(path, *called), with_kwargs=True, prepend=True
            )
            for path, layer in self._used.named_modules()
            if _known(layer) and any(p.requires_grad for p in layer.parameters(recurse=False))
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # Assignment of calls to parameters

    def _recorded(self) -> list[_Call]:
        from torch.func import vmap

        calls = []

        def tap(call: _Call, given: torch.Tensor, gave: torch.Tensor) -> None:
            calls.append(call)

        try:
            with self._hooked(tap):
                vmap(lambda row: self._one(self._starts, row))(
                    self.batch(random_rows(1, self.shape), 1)
                )
        except Exception as error:  # about a random row, which an error may quote
            raise not_vectorised(error) from error
        return calls

    def _sorted(
        self, apart: frozenset[str]
    ) -> tuple[dict[str, list[int]], dict[str, list[int]], frozenset[str]]:
        owners = dict(self._used.named_modules())
        kinds: dict[str, set[str]] = {name: set() for name in self._places}
        calls: dict[str, list[int]] = {name: [] for name in self._places}
        for alias, name in self._aliases.items():
            path, _, attribute = alias.rpartition(".")
            found = [i for i, call in enumerate(self._calls) if call.layer is owners[path]]
            # Parameters of a layer that is never called are used in some other way.
            kinds[name].add(attribute if _known(owners[path]) and found else "")
            calls[name] += found
        factored = {name: kind for name, kind in kinds.items() if name not in apart}
        weights = {name: calls[name] for name, kind in factored.items() if kind == {"weight"}}
        biases = {name: calls[name] for name, kind in factored.items() if kind == {"bias"}}
        return weights, biases, frozenset(self._places) - weights.keys() - biases.keys()

    def _short(self, name: str) -> bool:
        calls = [self._calls[i] for i in self._weights[name]]
        factors = sum(math.prod(call.given) + math.prod(call.gave) for call in calls)
        return self._starts[name].numel() <= factors

    def _dense_columns(self) -> dict[str, slice]:
        columns, stop = {}, 0
        for name in self._places:
            if name not in self._outer:
                size = self._starts[name].numel()
                columns[name] = slice(stop, stop + size)
                stop += size
        return columns

    def _dense_entries(self) -> int:
        positions = [self._n_positions(i) * _d_in(call.layer) for i, call in enumerate(self._calls)]
        formed = sum(part.stop - part.start for part in self._columns.values())
        return 2 * formed + sum(math.prod(call.gave) for call in self._calls) + max([0, *positions])
