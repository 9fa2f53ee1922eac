"""What is trained: gradients of the records, and parameters to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._array import Array, as_like
from dpsubspace._gradients.linear import LinearSource
from dpsubspace._gradients.losses import Loss
from dpsubspace._rows.features import Features
from dpsubspace._rows.remote import made

__all__ = ["Problem", "linear_problem"]


@dataclass(frozen=True)
class Problem:
    """Gradients of the records, and parameters to start from.

    `features` are those of a linear model. `public` gives gradients of public rows at the same
    parameters, and `directions` are those of their features, where gradients are embedded on
    them. `remaining` is how long training should be from this start, beside one from zero;
    `n_outputs` the columns of scores; `init` says what start that is.
    """

    source: Any
    start: Array
    penalised: Array
    n_outputs: int
    features: Features | None = None
    public: Any = None
    directions: Array | None = None
    remaining: float = 1.0
    init: str = "zero"


def linear_problem(
    loss: Loss,
    features: Features,
    targets: Array,
    n_outputs: int,
) -> Problem:
    """A linear model that starts from zero."""
    penalised = np.zeros((features.width, 1))
    penalised[: features.X.shape[1]] = 1.0  # not the bias entries
    return Problem(
        made(LinearSource, loss, features, targets, n_outputs=n_outputs),
        as_like(np.zeros((features.width, n_outputs)), features.lengths),
        as_like(penalised, features.lengths),
        n_outputs,
        features,
    )
