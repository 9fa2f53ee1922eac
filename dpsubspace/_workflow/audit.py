"""Auditing: a lower bound on epsilon from the behaviour of a fit, to hold beside its claim.

A proof says that epsilon is at most something, an audit that it is at least something.
An implementation that forgets a clip or scales noise wrongly shows up as a lower bound
above the claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtrc
from sklearn.base import clone

from dpsubspace._checks import check_integer, check_real
from dpsubspace.exceptions import PrivacyError

__all__ = ["AuditResult", "audit_epsilon", "one_run_audit"]


def audit_epsilon(
    n_canaries: int, n_guesses: int, n_correct: int, *, delta: float, confidence: float = 0.95
) -> float:
    """Lower bound on epsilon from guesses which of many canaries took part in one run.

    The better such guesses are, the more the run has leaked.

    Parameters
    ----------
    n_canaries : int
        Records that were included with probability 1/2 each, independently.
    n_guesses : int
        Canaries that a guess was made about; how many must not depend on the outcome.
    n_correct : int
        Guesses that were right.
    delta : float
        Delta of the claim, in [0, 1).
    confidence : float, default=0.95
        Probability, in [0.5, 1), that the bound holds.

    Returns
    -------
    float
        Largest epsilon that the guesses refute; 0 if they refute none.

    Raises
    ------
    ValueError
        If a number is out of its range.

    See Also
    --------
    one_run_audit : Run a fit with canaries and bound its epsilon.

    Notes
    -----
    Under (epsilon, delta)-differential privacy the number of correct guesses is
    dominated by a binomial with success probability ``e^epsilon / (1 + e^epsilon)``, up to a
    term in delta (Steinke, Nasr, Jagielski, 2023, Theorem 5.2).

    References
    ----------
    Steinke, Nasr, Jagielski. "Privacy auditing with one (1) training run". NeurIPS 2023.

    Examples
    --------
    >>> from dpsubspace import audit_epsilon
    >>> round(audit_epsilon(1000, 100, 75, delta=1e-4), 3)
    0.673
    """
    check_integer("n_canaries", n_canaries, low=1)
    check_integer("n_guesses", n_guesses, low=1)
    check_integer("n_correct", n_correct, low=0)
    if not n_correct <= n_guesses <= n_canaries:
        raise ValueError(
            "`n_correct` <= `n_guesses` <= `n_canaries` must hold, got"
            f" {n_correct}, {n_guesses} and {n_canaries}."
        )
    delta = check_real("delta", delta, low=0, high=1, include_low=True)
    confidence = check_real("confidence", confidence, low=0.5, high=1, include_low=True)

    def excess(epsilon: float) -> float:
        p = _p_value(n_canaries, n_guesses, n_correct, epsilon, delta)
        return math.log(max(p, 1e-300)) - math.log(1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    root: Any = brentq(excess, 0.0, high, xtol=1e-9)
    return max(0.0, float(root) - 1e-9)  # a lower bound errs downwards


def _p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Most probable way to get `v` of `r` guesses right under (epsilon, delta)-DP."""
    success = 1 / (1 + math.exp(-epsilon))
    below = np.arange(v, v - m - 1, -1) - 1
    at_least = np.where(below < 0, 1.0, bdtrc(np.maximum(below, 0), r, success))  # v, ..., v-m
    worst = np.max((at_least[1:] - at_least[0]) / np.arange(1, m + 1))
    return min(1.0, float(at_least[0] + 2 * m * delta * worst))


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What an audit found, beside what the fit claimed.

    An audit can refute a claim and cannot prove one: the proof is the reason to believe
    it, the audit a test of the program.

    Parameters
    ----------
    epsilon_lower_bound : float
        Epsilon is at least this, with probability `confidence`.
    epsilon_claimed : float
        Epsilon of the guarantee; the claim is refuted where it is below the bound.
    delta : float
        Delta of the guarantee.
    confidence : float
        Probability that the bound holds.
    n_canaries, n_guesses, n_correct : int
        Canaries, guesses about them, and guesses that were right.

    See Also
    --------
    one_run_audit : Makes such a result.

    Examples
    --------
    >>> from dpsubspace import AuditResult
    >>> result = AuditResult(epsilon_lower_bound=0.3, epsilon_claimed=1.0, delta=1e-5,
    ...                      confidence=0.95, n_canaries=500, n_guesses=250, n_correct=160)
    >>> result.refuted
    False
    """

    epsilon_lower_bound: float
    epsilon_claimed: float
    delta: float
    confidence: float
    n_canaries: int
    n_guesses: int
    n_correct: int

    @property
    def refuted(self) -> bool:
        """Whether the audit contradicts the claim."""
        return self.epsilon_lower_bound > self.epsilon_claimed

    def __str__(self) -> str:
        verdict = "REFUTES" if self.refuted else "does not refute"
        return (
            f"epsilon is at least {self.epsilon_lower_bound:.3g} (confidence"
            f" {self.confidence:.0%}; {self.n_correct} of {self.n_guesses} guesses right, "
            f"{self.n_canaries} canaries): {verdict} the claim of {self.epsilon_claimed:.3g}"
        )


def one_run_audit(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_canaries: int = 500,
    n_guesses: int | None = None,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> AuditResult:
    """Audit a private linear classifier by one fit with canaries among its rows.

    Each canary is a row along a feature of its own, as long as the row map allows. A coin
    decides whether it takes part or is a null record; the fitted weight of its feature
    then tells which, up to the noise.

    Parameters
    ----------
    estimator : DPSGDClassifier or DPSGDFClassifier
        What to audit; it is cloned. Its relation must be ``"zero_out"``.
    X : array-like of shape (n_samples, n_features)
        Rows to train on beside the canaries.
    y : array-like of shape (n_samples,)
        Labels.
    n_canaries : int, default=500
        Number of canaries. Each adds a row and a feature.
    n_guesses : int, optional
        How many of the canaries with the most telling weights are guessed about: half
        to have taken part and half not (an odd number is rounded down). Default: half
        of `n_canaries`.
    confidence : float, default=0.95
        Probability that the bound holds.
    random_state : int, optional
        Seed of the coins. The noise is the estimator's own affair.

    Returns
    -------
    AuditResult
        The bound beside the claim.

    Raises
    ------
    PrivacyError
        If the estimator is another one, its relation is not ``"zero_out"``, or its fit is
        not private.

    See Also
    --------
    audit_epsilon : The statistics behind it.

    Notes
    -----
    An audit is a test of an implementation and not a private computation: its result
    depends on the rows without noise. Run it on public or synthetic rows, and do not
    publish an audited model's canary weights.

    References
    ----------
    Steinke, Nasr, Jagielski. "Privacy auditing with one (1) training run". NeurIPS 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from dpsubspace import DPSGDClassifier, one_run_audit
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=8.0, delta=1e-5, random_state=0)
    >>> one_run_audit(model, X, y, random_state=0).refuted
    False
    """
    n_canaries = check_integer("n_canaries", n_canaries, low=2)
    n_guesses = n_canaries // 2 if n_guesses is None else n_guesses
    half = check_integer("n_guesses", n_guesses, low=2) // 2
    if 2 * half > n_canaries:
        raise ValueError(f"`n_guesses` must be at most {n_canaries} (n_canaries), got {n_guesses}.")
    check_real("confidence", confidence, low=0.5, high=1, include_low=True)
    model: Any = clone(estimator)
    if not hasattr(model, "_fit") or not hasattr(model, "row_norm"):
        raise PrivacyError(
            f"{type(model).__name__} cannot be audited: pass a DPSGDClassifier or a"
            " DPSGDFClassifier itself, outside of any Pipeline."
        )
    if model.epsilon == math.inf:
        raise PrivacyError("a fit with epsilon=inf claims nothing that an audit could refute.")
    if model.neighboring_relation != "zero_out":
        raise PrivacyError(
            "a one-run audit includes records or leaves them out, which is the relation"
            f" 'zero_out', got neighboring_relation={model.neighboring_relation!r}."
        )
    coins = np.random.default_rng(random_state).random(n_canaries) < 0.5
    rows, labels, carried = _with_canaries(
        np.asarray(X, dtype=float), np.asarray(y), model, n_canaries
    )
    present = np.concatenate([np.ones(len(rows) - n_canaries, dtype=bool), coins])
    model._fit(rows, labels, present=present)

    order = np.argsort(_telling(model, carried))
    n_correct = int(coins[order[n_canaries - half :]].sum() + (~coins[order[:half]]).sum())
    guarantee = model.privacy_
    bound = audit_epsilon(
        n_canaries, 2 * half, n_correct, delta=guarantee.delta, confidence=confidence
    )
    return AuditResult(
        epsilon_lower_bound=bound,
        epsilon_claimed=guarantee.epsilon,
        delta=guarantee.delta,
        confidence=confidence,
        n_canaries=n_canaries,
        n_guesses=2 * half,
        n_correct=n_correct,
    )


def _telling(model: Any, carried: np.ndarray) -> np.ndarray:
    """One number a canary from released values only, larger if it took part.

    `carried` is the index of the class that each canary carries.
    """
    n_canaries = len(carried)
    weights = model.coef_[:, -n_canaries:]
    if hasattr(model, "mean_"):
        # Every row is shifted by the noise of the mean, which drags each weight along in
        # proportion to it; the mean is released, so an attacker can take that out again.
        means = model.mean_[model.n_features_in_ - n_canaries : model.n_features_in_]
        design = np.column_stack([np.ones(n_canaries), means])
        weights = weights - (design @ np.linalg.lstsq(design, weights.T, rcond=None)[0]).T
    if len(weights) == 1:
        return weights[0] * (2 * carried - 1)
    return weights[carried, np.arange(n_canaries)]


def _with_canaries(
    X: np.ndarray, y: np.ndarray, model: Any, n_canaries: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels with canaries below them, and the class index of each canary.

    Canaries lie along a new feature each. They take turns in their classes, so that no
    class becomes easier to predict and every canary keeps its pull to the end.
    """
    # Where the row map normalises, a long canary leaves almost nothing to the bias entry.
    length = float(model.row_norm) if isinstance(model.row_norm, Real) else 5e5
    canaries = np.hstack([np.zeros((n_canaries, X.shape[1])), length * np.eye(n_canaries)])
    rows = np.vstack([np.hstack([X, np.zeros((len(X), n_canaries))]), canaries])
    classes = np.unique(y if model.classes is None else model.classes)
    carried = np.arange(n_canaries) % len(classes)
    return rows, np.concatenate([y, classes[carried]]), carried
