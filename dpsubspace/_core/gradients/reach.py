"""Range of the outputs of a torch module, found on random rows: no private row is used here.

Design note. A module that ends in a Sigmoid or in a Softmax can be trained, and costs as much as
any other, but never gives the scores that its loss needs. No list of layers would be complete, so
outputs are examined: with weights drawn at random, outputs of a module without such an end are on
both sides of 0. After a fit the weights are released, and so is everything that follows from them:
to find a row of a class, gradients are followed from random rows of all sizes.
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

# Sizes of random rows, number of rows of each size, and draws of weights. If the last layer of a
# module has either sign with equal probability, this many draws mistake the module for one of a
# single sign once in four billion modules.
_SIZES, _EACH, _DRAWS = (0.01, 0.1, 1.0, 10.0, 100.0), 4, 32
_SMALL = 3  # number of sizes that are not large

# Weights are drawn at the size that they have, but at least at this size.
_LEAST = 0.05

# Most classes that are searched for, steps of such a search, and step sizes over the size of rows.
# A search starts at those rows of a larger random sample that are nearest to being of the class.
_MOST, _STEPS, _SHARES = 8, 40, (0.03, 0.1, 0.3, 1.0)
_MORE, _BEGIN = 40, 16

# Properties that the outputs of all rows may have in common, the narrowest first.
_LIMITS = {
    "constant": lambda scores: bool((scores == scores[:1]).all()),
    "shares": lambda scores: bool(((scores >= 0) & (scores <= 1)).all()),
    "positive": lambda scores: bool((scores >= 0).all()),
    "negative": lambda scores: bool((scores <= 0).all()),
}


class OutputLimits(NamedTuple):
    """Property that all outputs of a module have in common, for any rows and weights.

    "constant" where they do not depend on the row, "shares" where all lie in [0, 1], "positive" and
    "negative" where none lies on the other side of 0, and "" for nothing.
    """

    kind: str = ""
    zero: bool = False  # Whether some are exactly 0, for rows and weights that are not large

    @property
    def above(self) -> bool:
        """Whether all outputs are above 0, except those too small for their type."""
        return self.kind in ("shares", "positive") and not self.zero


def limits_of(module: torch.nn.Module, shape: tuple[int, ...], device: Any) -> OutputLimits:
    """Common property of the outputs of a module that has passed all checks; none if unknown."""
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
    """Yield the module as it is, and with other values of its trainable weights."""
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
    """Indices of classes that a trained module on the CPU was not found to predict for any row.

    Where the search is not possible, since gradients by rows are 0 or do not exist, no class is
    returned, unless outputs are the same for all random rows.
    """
    import torch

    where = torch.device("cpu")
    with exact_arithmetic(where), suppress(Exception):  # foreign code, on random rows
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
    """Search for rows of a class by the gradients of its lead over all others."""

    def __init__(self, module: torch.nn.Module, offset: torch.Tensor, limits: OutputLimits):
        self.module, self.offset, self.limits = module, offset, limits

    def scores(self, batch: torch.Tensor) -> torch.Tensor:
        """Scores of each class; with two classes, the first has 0."""
        import torch

        scores = self.module(batch).double() + self.offset
        if scores.shape[1] == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        return scores

    def reached(self, scores: torch.Tensor, label: int) -> bool:
        """Whether one of the rows is predicted to be of a class; the first of two wins ties."""
        lead = _lead(scores, label)
        # A score above 0 that is too small for its type does not count as a tie.
        ties = label == 0 and not self.limits.above
        return bool((lead >= 0 if ties else lead > 0).any())

    def fails(self, batch: torch.Tensor, scores: torch.Tensor, label: int) -> bool:
        """Whether steps from some rows reach no row of a class, although gradients show a way.

        Gradients need not show a way where outputs are known to be limited.
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
    """Score of a class less the largest score of all others."""
    import torch

    others = torch.cat([scores[:, :label], scores[:, label + 1 :]], dim=1)
    return scores[:, label] - others.amax(dim=1)
