"""Groups of a module's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._checks import check_integer

if TYPE_CHECKING:
    import torch

__all__ = ["parameter_groups"]

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


def places_of(module: torch.nn.Module) -> dict[str, slice]:
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
