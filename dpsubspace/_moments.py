"""One-shot releases: means of bounded rows."""

from __future__ import annotations

from dpsubspace._array import EPS, Array, column_sums, namespace, sum_slack
from dpsubspace._noise import BoundedSum, NoiseSource, release

__all__ = ["bounded_row_sum", "noisy_mean"]


def bounded_row_sum(rows: Array, norm_bound: float, *, present: Array | None = None) -> BoundedSum:
    """Sum of `rows`, each of norm at most `norm_bound` already.

    Parameters
    ----------
    rows : array of shape (n, d)
        Rows that a :class:`~dpsubspace._scaling.RowMap` has bounded.
    norm_bound : float
        The map's bound.
    present : boolean array of shape (n,), optional
        False makes a record a null record, which contributes exactly zero.

    Notes
    -----
    Proof of the bound: a row is a function of its record alone and has norm at most
    `norm_bound`; removing it moves the sum by at most that, replacing it by at most
    twice that. The sums as computed differ from the real ones by at most
    ``slack * norm_bound`` more (:func:`~dpsubspace._array.sum_slack`).
    """
    if present is not None:
        xp = namespace(rows)
        rows = xp.where(present[:, None], rows, xp.zeros_like(rows))
    slack = sum_slack(rows.shape[0], EPS)
    return BoundedSum(
        column_sums(rows),
        norm_bound=norm_bound * (1 + slack),
        replace_bound=norm_bound * (2 + slack),
    )


def noisy_mean(
    rows: Array,
    norm_bound: float,
    noise_multiplier: float,
    *,
    noise: NoiseSource,
    neighboring_relation: str,
    present: Array | None = None,
) -> Array:
    """Release the mean of bounded rows, in float64.

    Notes
    -----
    Privacy: the sum is released with `noise_multiplier` and divided by the public number
    of rows. Event: ``gaussian(noise_multiplier)``.
    """
    total = bounded_row_sum(rows, norm_bound, present=present)
    noisy = release(total, noise_multiplier, noise, neighboring_relation=neighboring_relation)
    return noisy / rows.shape[0]
