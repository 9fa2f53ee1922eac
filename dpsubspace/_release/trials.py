"""How often a private search tries, and what: draws that must stay hidden."""

from __future__ import annotations

import math

import numpy as np

from dpsubspace._accounting.searches import logarithmic_rate
from dpsubspace._release.noise import NoiseSource

__all__ = ["draw_trials"]


def draw_trials(noise: NoiseSource, mean: float, n_candidates: int) -> np.ndarray:
    """Candidate of each trial: a random number of them, each drawn with replacement.

    Parameters
    ----------
    noise : NoiseSource
        Where the draws come from: who knows how many trials there were knows more than was paid.
    mean : float
        Mean of the number of trials, at least 1.
    n_candidates : int
        Number of candidates, each as likely as any other in every trial.

    Returns
    -------
    ndarray of int
        Of random length, at least 1.

    Notes
    -----
    The number is k with probability ``(1 - g)^k / (k log(1 / g))`` (a logarithmic distribution, of
    the parameter g that has this mean), by inversion: the least k whose distribution function is
    above a uniform number. The uniform has 52 bits, so that probabilities are off by 2^-52 at most.
    """
    uniform = float(noise.uniform((1,))[0])
    trials = _inverse(uniform, logarithmic_rate(mean))
    drawn = np.floor(noise.uniform((trials,)) * n_candidates).astype(np.intp)
    return np.minimum(drawn, n_candidates - 1)


def _inverse(uniform: float, rate: float) -> int:
    """Least k at which the distribution function is at least `uniform`."""
    if rate == 1:
        return 1
    k, term = 1, (1 - rate) / -math.log(rate)
    total = term
    while total < uniform and term > 1e-18:
        term *= (1 - rate) * k / (k + 1)
        k, total = k + 1, total + term
    return k
