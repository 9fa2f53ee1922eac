"""A small network for images whose gradients tell sets of images apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsubspace._checks import check_integer
from dpsubspace._gradients.losses import LogLoss

if TYPE_CHECKING:
    import torch

__all__ = ["probe_network"]

# Channels of the two convolutions, and places along each side of what the linear layer sees.
_CHANNELS, _PLACES = (32, 64), 4


def probe_network(
    input_shape: tuple[int, int, int], n_classes: int, random_state: int
) -> torch.nn.Module:
    """Two convolutional layers and a linear one, after Gu, Kamath and Wu (2022).

    With ten classes it has 29,642 parameters for images of 3 channels and 29,066 for those of 1,
    whatever their height and width.

    Parameters
    ----------
    input_shape : tuple of int
        Channels, height and width of an image.
    n_classes : int
        Number of classes; two of them share one output.
    random_state : int
        Seed of the parameters. The generators of torch are left alone.
    """
    import torch
    from torch.nn.utils import skip_init

    if not isinstance(input_shape, tuple) or len(input_shape) != 3:
        raise ValueError(
            "`input_shape` must be the channels, height and width of an image for the built-in"
            f" network, got {input_shape!r}. Give a `module` for rows of another shape."
        )
    channels, *_ = (check_integer("input_shape[...]", side, low=1) for side in input_shape)
    n_outputs = LogLoss().n_outputs(check_integer("n_classes", n_classes, low=2))
    first, second = _CHANNELS
    nn: Any = torch.nn
    convolution = {"kernel_size": 3, "stride": 2, "padding": 1}
    network = nn.Sequential(
        skip_init(nn.Conv2d, channels, first, **convolution),
        nn.ReLU(),
        skip_init(nn.Conv2d, first, second, **convolution),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(_PLACES),
        nn.Flatten(),
        skip_init(nn.Linear, second * _PLACES**2, n_outputs),
    )
    rng = np.random.default_rng(random_state)
    with torch.no_grad():
        for layer in (network[0], network[2], network[6]):
            # Uniform between bounds by the number of inputs, as torch has it.
            bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
            for parameter in (layer.weight, layer.bias):
                drawn = rng.uniform(-bound, bound, size=tuple(parameter.shape))
                parameter.copy_(torch.as_tensor(drawn))
    return network
