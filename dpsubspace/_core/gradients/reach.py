"""What a torch module can say at all, found on random rows: nothing here looks at private ones.

Design note. A module that ends in a Sigmoid or in a Softmax can be trained, and costs what any
other costs, but never says what its loss asks of it. No list of layers would know all of these, so
outputs are looked at: with weights drawn at random, those of a module that has no such end lie on
either side of 0. After a fit the weights are released, and so is everything that follows from
them: a class is looked for by following gradients from random rows of all sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsubspace._core.gradients.throwaway import throwaway
from dpsubspace._core.gradients.torch_rows import dtype_of
from dpsubspace._core.gradients.vectorised import as_tensor, exact_arithmetic, random_rows

if TYPE_CHECKING:
    import torch

# Sizes of random rows, how many there are of each, and draws of weights. A module whose last layer
# is as likely as not to have the opposite sign is taken for one of a single sign by as many draws
# once in four billion modules.
_SIZES, _EACH, _DRAWS = (0.01, 0.1, 1.0, 10.0, 100.0), 4, 32
_SMALL = 3  # sizes that are not large

# Weights are drawn as large as they are, and no smaller than this.
_LEAST = 0.05

# Most classes that are looked for, steps of such a search, and steps as shares of the rows' size.
# A search begins at some of more random rows, those that are nearest to being of the class.
_MOST, _STEPS, _SHARES = 8, 40, (0.03, 0.1, 0.3, 1.0)
_MORE, _BEGIN = 40, 16

# What outputs of all rows may have in common, the narrowest first.
_LIMITS = {
    "constant": lambda scores: bool((scores == scores[:1]).all()),
    "shares": lambda scores: bool(((scores >= 0) & (scores <= 1)).all()),
    "positive": lambda scores: bool((scores >= 0).all()),
    "negative": lambda scores: bool((scores <= 0).all()),
}


class OutputLimits(NamedTuple):
    """What all outputs of a module have in common, whatever the rows and the weights.

    "constant" where they do not depend on the row, "shares" where all lie in [0, 1], "positive" and
    "negative" where none lies on the other side of 0, and "" for nothing.
    """

    kind: str = ""
    zero: bool = False  # Whether some are exactly 0, of rows and weights that are not large

    @property
    def above(self) -> bool:
        """Whether all outputs are above 0, but for those that are too small for their type."""
        return self.kind in ("shares", "positive") and not self.zero


def limits_of(module: torch.nn.Module, shape: tuple[int, ...], device: Any) -> OutputLimits:
    """What outputs of a module, which has passed all checks, have in common; nothing if unknown."""
    import torch

    possible, zero = [*_LIMITS], False
    with exact_arithmetic(device), suppress(RuntimeError):  # a module may refuse such weights
        batch = _batch(module, shape, device, _EACH)
        for drawn in _redrawn(module):
            scores = torch.as_tensor(throwaway(drawn)(batch))
            possible = [name for name in possible if _LIMITS[name](scores)]
            zero = zero or bool((scores[: _SMALL * _EACH] == 0).any())
            if not possible:
                return OutputLimits()
        return OutputLimits(possible[0], zero)
    return OutputLimits()


def _redrawn(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The module as it is, and with other weights in the place of those that are trained."""
    yield module
    drawn, rng = copy.deepcopy(module), np.random.default_rng(5)
    trained = [p for p in drawn.parameters() if p.requires_grad]
    sizes = [max(float(p.detach().double().square().mean().sqrt()), _LEAST) for p in trained]
    for _ in range(_DRAWS):
        for parameter, size in zip(trained, sizes, strict=True):
            parameter.copy_(parameter.new_tensor(rng.normal(scale=size, size=parameter.shape)))
        yield drawn


def _batch(module: torch.nn.Module, shape: tuple[int, ...], device: Any, each: int) -> torch.Tensor:
    sizes = np.repeat(_SIZES, each)
    rows = random_rows(len(sizes), shape, seed=4) * sizes[:, None]
    return as_tensor(rows, len(rows), shape, dtype_of(module), device)


def unreached(
    module: torch.nn.Module, shape: tuple[int, ...], offset: np.ndarray, limits: OutputLimits
) -> np.ndarray:
    """Classes of a trained module on the CPU that no row is found to be predicted as; indices.

    Where nothing can be followed, since gradients by rows are 0 or there are none, no class is
    given, unless outputs are the same for all random rows.
    """
    import torch

    where = torch.device("cpu")
    with exact_arithmetic(where), suppress(Exception):  # code of others, about random rows
        search = _Search(throwaway(module), torch.as_tensor(offset), limits)
        batch = _batch(module, shape, where, _MORE)
        scores = search.scores(batch)
        missing = {c for c in range(scores.shape[1]) if not search.reached(scores, c)}
        if missing and _LIMITS["constant"](scores):
            return np.array(sorted(missing))
        fails = (c for c in sorted(missing)[:_MOST] if search.fails(batch, scores, c))
        return np.array([*fails], dtype=np.intp)
    return np.empty(0, dtype=np.intp)


class _Search:
    """Looks for rows of a class by the gradients of its lead over all others."""

    def __init__(self, module: torch.nn.Module, offset: torch.Tensor, limits: OutputLimits):
        self.module, self.offset, self.limits = module, offset, limits

    def scores(self, batch: torch.Tensor) -> torch.Tensor:
        """Scores of each class; of two, the first has 0."""
        import torch

        scores = self.module(batch).double() + self.offset
        if scores.shape[1] == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        return scores

    def reached(self, scores: torch.Tensor, label: int) -> bool:
        """Whether one of the rows is predicted to be of a class; the first of two takes ties."""
        lead = _lead(scores, label)
        # A score above 0 that is too small for its type is no tie.
        ties = label == 0 and not self.limits.above
        return bool((lead >= 0 if ties else lead > 0).any())

    def fails(self, batch: torch.Tensor, scores: torch.Tensor, label: int) -> bool:
        """Whether steps from some rows lead to none of a class, though there is a way to go.

        There need be no way where outputs are known to be limited.
        """
        import torch

        nearest = torch.argsort(_lead(scores, label), descending=True)[:_BEGIN]
        rows = batch[nearest].repeat_interleave(len(_SHARES), dim=0)
        moved = bool(self.limits.kind)
        sizes = rows.reshape(len(rows), -1).square().mean(dim=1).sqrt()
        sizes = sizes * sizes.new_tensor(_SHARES).repeat(len(nearest))
        sizes = sizes.reshape(-1, *[1] * (rows.ndim - 1))
        for _ in range(_STEPS):
            with torch.enable_grad():
                rows.requires_grad_()
                scores = self.scores(rows)
                if self.reached(scores, label):
                    return False
                (up,) = torch.autograd.grad(_lead(scores, label).sum(), rows)
            up = torch.nan_to_num(up, nan=0.0, posinf=0.0, neginf=0.0).sign()
            moved = moved or bool(up.any())
            rows = rows.detach() + sizes * up
        return moved


def _lead(scores: torch.Tensor, label: int) -> torch.Tensor:
    """How far the score of a class is above the largest of all others."""
    import torch

    others = torch.cat([scores[:, :label], scores[:, label + 1 :]], dim=1)
    return scores[:, label] - others.amax(dim=1)
