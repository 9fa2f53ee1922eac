"""Rows through a torch module, and groups of its parameters.

Torch is imported inside functions: the package works without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import eq
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._core.gradients.throwaway import LeakCheck, throwaway
from dpsubspace._core.ground.arrays import to_numpy
from dpsubspace._core.ground.checks import check_integer

if TYPE_CHECKING:
    import torch


# Groups of parameters ---------------------------------------------------------------------------
# Groups of a module's parameters.

# Groups of parameters -------------------------------------------------------------------------


def parameter_groups(module: torch.nn.Module, groups: Any) -> list[Any]:
    """Split the flat vector of trainable parameters into groups; each parameter is in one.

    None is one group; "layers" is one group for each child of the module with trainable parameters,
    and one for those of the module itself; an int is the number of consecutive groups of about
    equal size. A list has the names of the parameters of each group, or of layers that hold them
    (``["conv1", "head.weight"]``).

    Returns a slice for each consecutive group, and indices for others. ValueError if `groups` is
    none of these, or leaves a parameter out or names it twice.
    """
    places = places_of(module)
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
    return name.split(".")[0] if "." in name else ""


def _named_groups(places: dict[str, slice], groups: Sequence[Any]) -> list[Any]:
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


def places_of(module: torch.nn.Module) -> dict[str, slice]:
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
    if all(a.stop == b.start for a, b in pairwise(parts)):
        return slice(parts[0].start, parts[-1].stop)
    return np.concatenate([np.arange(part.start, part.stop) for part in parts])


# Rows through a module --------------------------------------------------------------------------

# Largest differences between two results for a row, relative to the largest output. In batches of
# one shape the same arithmetic is applied to a row whatever its neighbours are; in batches of
# different shapes sums may be computed in another order, at half precision in the worst case.
_SAME_SHAPE, _OTHER_SHAPE = 1e-4, 5e-2

# Fewest and most batches of random rows that are moved to other places, how many numbers of a row
# are enough, and how many numbers are compared in all.
_FEWEST_TRIED, _MOST_TRIED, _NUMBERS, _MOST_NUMBERS = 2, 32, 1 << 7, 1 << 28

# Processors handle up to this many numbers at once: batches of fewer rows may leave a remainder.
# They are tried more often, by the second factor.
_AT_ONCE, _MORE_OFTEN = 32, 4


def torch_package(user: str = "TorchFeatures") -> Any:
    """Import torch; ImportError that names what needs it and how to install it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f'{user} needs torch: pip install "dpsubspace[torch]".') from error
    return torch


def row_shape(input_shape: Any, width: int) -> tuple[int, ...]:
    if input_shape is None:
        return (width,)
    if not isinstance(input_shape, tuple):
        raise ValueError(f"`input_shape` must be None or a tuple of int, got {input_shape!r}.")
    sides = tuple(check_integer("input_shape[...]", side, low=1) for side in input_shape)
    if math.prod(sides) != width:
        raise ValueError(
            f"`input_shape`={sides} holds {math.prod(sides)} numbers, but rows have {width}"
            " features. Give the shape of one row, without the number of rows."
        )
    return sides


def mapped_batch(
    module: torch.nn.Module,
    rows: np.ndarray,
    device: str,
    watch: Callable[[torch.Tensor], None] | None = None,
) -> np.ndarray:
    torch = torch_package()
    with torch.inference_mode():
        # `tensor` copies: from_numpy warns about read-only arrays.
        batch = torch.tensor(np.ascontiguousarray(rows), dtype=dtype_of(module), device=device)
        if watch is not None:
            watch(batch)
        out = module(batch)
        if not isinstance(out, torch.Tensor) or out.is_complex():
            kind = str(out.dtype) if isinstance(out, torch.Tensor) else type(out).__name__
            raise ValueError(
                f"it must return one real tensor, got {kind}. Wrap it in a module that picks the"
                " features."
            )
        if out.ndim == 0 or len(out) != len(rows):
            raise ValueError(
                f"it must return one entry a row, got shape {tuple(out.shape)} for"
                f" {len(rows)} rows."
            )
        return out.reshape(len(rows), -1).to("cpu", torch.float32).numpy()


def dtype_of(module: torch.nn.Module) -> torch.dtype:
    dtypes = (tensor.dtype for tensor in floating_tensors(module) if tensor.is_floating_point())
    return next(dtypes, torch_package().float32)


def floating_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


# Places of rows ---------------------------------------------------------------------------------


def even_bits(
    mapped: Callable[[np.ndarray], Sequence[Any]], width: int, size: int
) -> list[bytes] | None:
    """Results of `mapped` on random rows, if they are the same to the last bit at all places.

    None where they are not. `mapped` returns arrays with one entry for each of `size` flat rows.

    The place of a row in a batch can depend on other records: in a Poisson batch, which another
    record may be in or not, and behind persons, who have any number of rows. A product of matrices
    adds up some rows in another order than others, the last ones of an odd number for example.
    Functions such as the logistic one handle 16 or 32 numbers at once, and the remainder of a batch
    one by one, which changes the last bit of one in 40 numbers. Such a change can put a unit on the
    other side of the kink of a ReLU, which moves a whole gradient; or change the winner of two
    scores; or the side of an edge up to which rows are counted. No bound is wide enough for that.
    So such rows go through a module in batches of one public size, padded, at places for which this
    function finds no difference.

    Proof, given an assumption: the result for a row in a batch of one shape is computed from that
    row by arithmetic that depends on its place, and not on the contents of this or other rows.
    Random rows are moved on by some places, the last ones to the front, so that the results at two
    places differ only where their arithmetic does. The arithmetic is assumed to be the same where
    no bit differs in 32 moves, or in as many moves as give 128 numbers of a row. Batches of fewer
    than 32 rows are moved four times as often, or assumed to differ where that would take long. A
    row then has the same bits wherever it lies and whatever lies beside it.
    """
    rng, found, left = np.random.default_rng(width), list[bytes](), 1
    while left > 0:
        rows = rng.normal(size=(size, width))
        lines, narrowest = _lines(mapped(rows))
        if not found and size > 1:
            left = _moves(size, narrowest, sum(map(len, lines)))
            if not left:
                return None
        found += lines
        moves = rng.permutation(np.arange(1, size))[:left]
        for move in moves:
            moved, _ = _lines(mapped(np.roll(rows, move, axis=0)))
            if moved != lines[-move:] + lines[:-move]:
                return None
        left -= max(1, len(moves))
    return found


def _moves(size: int, narrowest: int, n_bytes: int) -> int:
    """Number of moves of the rows of a batch; 0 if there is no time for the fewest moves.

    `narrowest` is the least number of values for a row in any part of the results.
    """
    tried = max(_FEWEST_TRIED, min(_MOST_TRIED, _NUMBERS // max(1, narrowest)))
    affordable = 4 * _MOST_NUMBERS // max(1, n_bytes)
    if size >= _AT_ONCE:
        return max(_FEWEST_TRIED, min(tried, affordable))
    return _MORE_OFTEN * tried if _MORE_OFTEN * tried <= affordable else 0


def _lines(parts: Sequence[Any]) -> tuple[list[bytes], int]:
    """The bytes of each row, and the least number of values for a row in any part."""
    arrays = [np.ascontiguousarray(to_numpy(part)) for part in parts]
    flat = [array.reshape(len(array), -1) for array in arrays]
    return [b"".join(map(bytes, row)) for row in zip(*flat, strict=True)], min(
        array.shape[1] for array in flat
    )


def alike_sizes(
    module: torch.nn.Module, shape: tuple[int, ...], most: int, device: str
) -> tuple[int, ...]:
    """Batch sizes, in descending order, at which `module` gives a row the same bits everywhere.

    Each size is at most a quarter of the one before; sizes with other bits are left out.
    """
    used, known = throwaway(module), dict[int, list[bytes]]()

    def mapped(rows: np.ndarray) -> list[np.ndarray]:
        return [mapped_batch(used, rows.reshape(-1, *shape), device)]

    for size in fewer(most):
        if known and (size == 1 or 4 * size > min(known)):
            continue
        found = even_bits(mapped, math.prod(shape), size)
        if found is not None and all(map(eq, found, next(iter(known.values()), found))):
            known[size] = found
    return (*known,)


def fewer(most: int) -> list[int]:
    """Batch sizes to try one after another: at most `most`, and powers of two at the end.

    Above 32 rows only multiples of 32, which leave no remainder.
    """
    largest = [most - most % _AT_ONCE] if most > _AT_ONCE else []
    powers = [2**k for k in reversed(range(most.bit_length()))]
    return [*dict.fromkeys([*largest, *powers])]


# Whether a module works row by row ------------------------------------------------------------


def check_layers(module: torch.nn.Module) -> None:
    """Raise ValueError for layers that are known to mix rows or to be unfinished."""
    nn = torch_package().nn
    lazy = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    if any(isinstance(tensor, lazy) for tensor in floating_tensors(module)):
        raise ValueError(
            "`module` has lazy layers without weights, and every fit would draw others. Call it"
            " once on public rows, before training it."
        )
    batch_norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    for name, layer in module.named_modules():
        if isinstance(layer, batch_norms) and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"the layer {name!r} of `module` ({type(layer).__name__}) normalises by the"
                " statistics of the batch, so that rows are not mapped one by one. Train it on"
                " public data with track_running_stats=True and let eval() take effect, or use"
                " GroupNorm or LayerNorm."
            )


def try_out(module: torch.nn.Module, shape: tuple[int, ...], device: str) -> int:
    """Number of features that `module` returns, found on random rows with copies of it.

    ValueError if the module cannot map rows of `shape`, if its result for a row depends on anything
    but that row, or if a call leaves data behind.
    """
    rng, trial = np.random.default_rng(0), LeakCheck(module)
    pixels = rng.uniform(size=(5, *shape))
    for rows in (pixels, rng.normal(size=pixels.shape)):
        # The row in the middle has neighbours on both sides; theirs change, in size too.
        others = rng.normal(size=rows.shape) * 100
        others[2] = rows[2]
        with trial.round() as watch:
            n_features = _row_by_row(module, rows, others, device, watch)
    return n_features


def _row_by_row(
    module: torch.nn.Module, rows: np.ndarray, others: np.ndarray, device: str, watch: Any
) -> int:
    """Number of features; ValueError unless those of a row depend on that row alone."""

    def mapped(rows: np.ndarray, module: torch.nn.Module) -> np.ndarray:
        """As :func:`mapped_batch`, for random rows, which an error may quote."""
        try:
            return mapped_batch(module, rows, device, watch)
        except Exception as error:
            reason = str(error).rstrip(".")
            cure = _of_lookups(module) or "If it takes rows of another shape, set `input_shape`."
            raise ValueError(
                f"`module` cannot map {len(rows)} random rows of shape {rows.shape[1:]}: {reason}."
                f" {cure}"
            ) from error

    used = throwaway(module)
    first = mapped(rows, used)
    if not np.isfinite(first).any():  # nothing could be compared
        raise ValueError(
            "`module` maps random rows to nothing but NaN and infinity. Are its weights finite?"
        )
    # With a new copy too: a module may set itself up by the first rows that it sees.
    beside_others = [mapped(others, copied) for copied in (used, throwaway(module))]
    if not _close(mapped(rows, used), first, _SAME_SHAPE):
        raise ValueError(
            "`module` maps the same random rows to different features in two calls, though"
            " it is in evaluation mode. Take out what draws random numbers (dropout called"
            " with training=True, say) or keeps state between calls."
        )
    if not (
        all(_close(out[2:3], first[2:3], _SAME_SHAPE) for out in beside_others)
        and _close(mapped(rows[2:3], throwaway(module)), first[2:3], _OTHER_SHAPE)
    ):
        raise ValueError(
            "`module` maps a random row to other features when other rows of the batch change, so"
            " a private estimator behind it would not be private. Take out what computes"
            " across the batch (its first axis): statistics, softmax(dim=0), attention"
            " without batch_first, dynamic quantisation, scales set by the first rows seen."
        )
    return first.shape[1]


def lookups(module: torch.nn.Module) -> dict[str, Any]:
    """Layers that look up rows of a table (such as embeddings), by name."""
    nn = torch_package().nn
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, kinds)}


def _of_lookups(module: torch.nn.Module) -> str:
    """Advice about layers that look up rows of a table; "" where there are none."""
    found = lookups(module)
    if not found:
        return ""
    name, layer = next(iter(found.items()))
    return (
        f"It looks up entries ({type(layer).__name__} {name!r}), and random rows of numbers are no"
        " indices of them. Turn rows into such in `forward`, which any row has to survive:"
        f" x.long().clamp(0, {layer.num_embeddings - 1})."
    )


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether columns differ by at most a share of their largest entry; equal where not finite.

    This is checked column by column, so that a large column does not hide changes of others.
    Columns that are tiny beside most others are compared by the size of those, since they may be
    rounding alone.
    """
    if a.shape != b.shape:
        return False
    largest = np.abs(np.where(np.isfinite(b), b, 0.0)).max(axis=0)
    scale = np.maximum(largest, 1e-3 * np.median(largest))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * scale
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
