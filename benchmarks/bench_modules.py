"""A full-batch step of DP-SGD for torch modules, over one forward and backward pass of torch alone.

A step is what `train` sums: scores, residuals, norms and the clipped sum of all rows. `layers` is
the way that fits take; `rows` forms the gradient of each row, as fits with public directions or
persons do. Each is timed in turn with torch in one process. Rows are noise of 784 numbers, with
ten classes.

usage: python benchmarks/bench_modules.py [--threads 1] [--repeats 9]
           [--out benchmarks/results/modules.json]
"""

import numpy as np
import torch
from _run import in_turns, ms, ratios, run
from torch import nn

from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.gradients.modules import LayeredSource, ModuleSource

WAYS = {"layers": LayeredSource, "rows": ModuleSource}


def perceptron():
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions():
    """The network for MNIST of Papernot et al. (2021), of 26,010 weights."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


MODULES = {"perceptron": (perceptron, None), "convolutions": (convolutions, (1, 28, 28))}


def plain(module, X, y):
    """One forward and backward pass over all rows."""

    def step():
        module.zero_grad()
        nn.functional.cross_entropy(module(X), y, reduction="sum").backward()

    return step


def private(source):
    """The clipped sum over all rows."""
    start = source.start()

    def step():
        with torch.no_grad():
            for rows in source.chunks():
                clipped_sum(source.at(start, rows), 1.0)

    return step


def sides(name, kind, n):
    """Steps of torch alone and private ones, of one module."""
    build, shape = MODULES[name]
    torch.manual_seed(0)
    module, rng = build(), np.random.default_rng(0)
    X, y = rng.normal(size=(n, 784)).astype(np.float32), rng.integers(10, size=n)
    alone = plain(module, torch.tensor(X).reshape(-1, *(shape or (784,))), torch.tensor(y))
    return alone, private(kind(module, LogLoss(), X, y, input_shape=shape))


def steps(args):
    for name in MODULES:
        for way, kind in WAYS.items():
            times = in_turns(sides(name, kind, args.rows), args.repeats, limit=60)
            yield {
                "module": name,
                "way": way,
                "rows": args.rows,
                "torch_ms": ms(times[..., 0]),
                "step_ms": ms(times[..., 1]),
                **ratios(times[..., 1], times[..., 0]),
            }


if __name__ == "__main__":
    run(__doc__, steps, {"rows": 2000, "repeats": 9, "threads": 1})
