"""Attacks: how much what was fitted shows of each canary, in one run or in many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._workflow.canaries import Subject

__all__ = ["in_many_runs", "in_one_run", "mu_from_errors"]


def in_one_run(
    subject: Subject, X: Any, y: Any, coins: np.ndarray, seeds: Iterator[int | None]
) -> tuple[np.ndarray, PrivacyGuarantee]:
    """One fit with many canaries: one number of each, larger if it took part, and the claim."""
    tell = subject.design.own
    assert tell is not None, "checked before"
    planted = subject.design.many(X, y, subject, len(coins))
    fitted, guarantee = _run(subject.widened(len(coins)), planted.world(coins), next(seeds))
    return tell(fitted, planted), guarantee


def in_many_runs(
    subject: Subject,
    X: Any,
    y: Any,
    groups: Any,
    coins: np.ndarray,
    n_training: int,
    seeds: Iterator[int | None],
    check: Callable[[PrivacyGuarantee], None],
) -> tuple[np.ndarray, PrivacyGuarantee]:
    """One fit for each coin, after some that teach what to look at: the same.

    A number is above 0 where it says that the canary took part. `check` may refuse the claim of the
    first fit.
    """
    design = subject.design
    planted = design.planted(X, y, groups, subject)
    known = np.arange(n_training) % 2 == 0
    seen, guarantee = [], None
    for coin in np.concatenate([known, coins]):
        first = guarantee is None
        fitted, guarantee = _run(subject, planted.world(np.array([coin])), next(seeds))
        if first:
            check(guarantee)
        seen.append(design.seen(fitted, planted, subject))
    assert guarantee is not None, "there are coins"
    shown = np.nan_to_num(np.stack(seen))
    judge = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    rule = make_pipeline(StandardScaler(), judge).fit(shown[:n_training], known)
    return rule.decision_function(shown[n_training:]), guarantee


def _run(subject: Subject, world: tuple[Any, Any], seed: Any) -> tuple[Any, PrivacyGuarantee]:
    """What one fit gives, and its claim."""
    rows, present = world
    fitted = subject.fitted(rows, present, seed)
    return fitted, fitted.privacy_ if hasattr(fitted, "privacy_") else fitted.privacy


def mu_from_errors(
    wrong_in: int, n_out: int, wrong_out: int, n_in: int, *, confidence: float
) -> float:
    """Lower bound on the mu of Gaussian differential privacy from the errors of an attack."""
    most = [
        float(betaincinv(wrong + 1, n - wrong, (1 + confidence) / 2)) if wrong < n else 1.0
        for wrong, n in ((wrong_in, n_out), (wrong_out, n_in))
    ]
    return max(0.0, -float(ndtri(most[0]) + ndtri(most[1])))
