"""The model that public and private rows are compared by: a linear one, or a torch module."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpsubspace._gradients.layers import ModuleGradients
from dpsubspace._gradients.losses import CLASSIFIER_LOSSES
from dpsubspace._gradients.probe import probe_network
from dpsubspace._gradients.torch_rows import torch_package
from dpsubspace._public.gradient_spaces import FeatureSpace, GradientSpace, ModuleSpace

__all__ = ["gradient_space", "probe_gradients", "refuse_groups"]


def gradient_space(
    module: Any, shape: tuple[int, ...], n_classes: int, seed: int, device: Any = "cpu"
) -> GradientSpace:
    """Space of the gradients of a model: all of it for a linear one, without any direction else.

    Parameters
    ----------
    module : None, "cnn" or torch.nn.Module
        As users give it.
    shape : tuple of int
        Shape of one row as the module sees it.
    n_classes : int
        Labels to draw from.
    seed : int
        Of the labels, and of the weights of a network that is built in; public.
    device : object
        Where a module runs.
    """
    if module is None:
        return FeatureSpace(int(np.prod(shape)))
    gradients = probe_gradients(module, shape, n_classes, seed, device=device)
    return ModuleSpace(gradients, n_classes, seed)


def refuse_groups(module: Any, groups: Any) -> None:
    """ValueError where a module is to see rows of which several belong to a person.

    Rows of a person who has another number of them move all later ones to other places. Labels
    are drawn by place there, and modules round otherwise.
    """
    if module is not None and groups is not None:
        raise ValueError(
            "`groups` cannot be used with a `module`: gradients of other persons would depend on"
            " how many rows a person has. Leave out `module`, or pass one row of each person."
        )


def probe_gradients(
    module: Any,
    shape: tuple[int, ...],
    n_classes: int,
    seed: int,
    *,
    params: Any = None,
    device: Any = "cpu",
) -> ModuleGradients:
    """Gradients of a checked module, of no rows yet.

    Raises
    ------
    ValueError
        If `module` is none, `params` are not its own, or it cannot be taken row by row.
    """
    torch_package("A `module`")
    network: Any = module
    if isinstance(module, str) and module == "cnn":
        shape = _image_shape(shape)
        network = probe_network(shape, n_classes, seed)
    if params is not None:
        network = _with_params(network, params)
    return ModuleGradients(
        network,
        CLASSIFIER_LOSSES["log_loss"],
        np.zeros((0, int(np.prod(shape)))),
        np.zeros(0, dtype=np.int64),
        n_targets=n_classes,
        input_shape=shape,
        device=None if isinstance(device, str) and device == "cpu" else device,
    )


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 3 and not (shape[2] <= 4 < shape[0]):
        return shape
    raise ValueError(
        "module='cnn' is for images of shape (height, width) or (channels, height, width), got rows"
        f" of shape {shape}. Reshape the rows; channels that come last are moved by"
        " numpy.moveaxis(X, -1, 1)."
    )


def _with_params(module: Any, params: Any) -> Any:
    """Copy of a module with other weights."""
    if not isinstance(params, Mapping):
        raise ValueError(
            "`params` must be the weights of the module by name, in the form of its state_dict(),"
            f" got {type(params).__name__}."
        )
    copied = copy.deepcopy(module)
    try:
        copied.load_state_dict(params)
    except (RuntimeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"`params` are not weights of `module`: {error}") from error
    return copied
