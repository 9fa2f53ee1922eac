"""Auditing: a lower bound on epsilon from the behaviour of a fit, to compare with its claim.

A proof shows an upper bound on epsilon, an audit a lower bound.
An implementation that forgets a clip or scales noise wrongly shows up as a lower bound
above the claim.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtrc, betaincinv, ndtri
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace._core.accounting.cost import Cost, gaussian_epsilon
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.accounting.payer import payer_of
from dpsubspace._core.ground.checks import check_choice, check_integer, check_real
from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._names import public
from dpsubspace.audit._canaries import Planted, Subject, subject_of
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, PublicDataWarning

# Attacks ----------------------------------------------------------------------------------------
# Attacks measure how much a fitted model shows of each canary, in one run or in many.


def in_one_run(
    subject: Subject, X: Any, y: Any, coins: np.ndarray, seeds: Iterator[int | None]
) -> tuple[np.ndarray, PrivacyGuarantee]:
    """Fit once with many canaries; return a number for each, and the claim.

    The number of a canary is larger if it took part.
    """
    tell = subject.design.own
    assert tell is not None, "checked before"
    planted = subject.design.many(X, y, subject, len(coins))
    fitted, guarantee = _run(subject.widened(len(coins)), planted.world(coins), next(seeds))
    return tell(fitted, planted), guarantee


def in_one_run_of_rows(
    subject: Subject, X: Any, y: Any, coins: np.ndarray, seeds: Iterator[int | None]
) -> tuple[np.ndarray, PrivacyGuarantee]:
    """Fit once to the rows, the last of which are the canaries; return as :func:`in_one_run`."""
    tell = subject.design.traced
    assert tell is not None, "checked before"
    planted = subject.design.themselves(X, y, subject, len(coins))
    fitted, guarantee = _run(subject, planted.world(coins), next(seeds))
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
    """Fit once for each coin, after some fits that train the attack; return as `in_one_run`.

    A number above 0 means that the canary probably took part. `check` may refuse the claim of the
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


def _run(subject: Subject, world: Planted, seed: Any) -> tuple[Any, PrivacyGuarantee]:
    fitted = subject.fitted(world, seed)
    return fitted, fitted.privacy_ if hasattr(fitted, "privacy_") else fitted.privacy


def mu_from_errors(
    wrong_in: int, n_out: int, wrong_out: int, n_in: int, *, confidence: float
) -> float:
    """Return a lower bound on mu of Gaussian differential privacy from errors of an attack."""
    most = [
        float(betaincinv(wrong + 1, n - wrong, (1 + confidence) / 2)) if wrong < n else 1.0
        for wrong, n in ((wrong_in, n_out), (wrong_out, n_in))
    ]
    return max(0.0, -float(ndtri(most[0]) + ndtri(most[1])))


# Audits -----------------------------------------------------------------------------------------

# Default numbers of canaries.
_DEFAULT = {"one_run": 500, "many_runs": 200}


def audit_epsilon(
    n_canaries: int, n_guesses: int, n_correct: int, *, delta: float, confidence: float = 0.95
) -> float:
    """Compute a lower bound on epsilon from guesses about which planted rows a run used.

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
    audit_estimator : Fit with canaries and bound epsilon.

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
    >>> from dpsubspace.audit import audit_epsilon
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
    return max(0.0, float(root) - 1e-9)  # a lower bound must err downwards


def _p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of `v` or more right guesses of `r` under (epsilon, delta)-DP.

    There are `m` canaries in all.
    """
    success = 1 / (1 + math.exp(-epsilon))
    below = np.arange(v, v - m - 1, -1) - 1
    at_least = np.where(below < 0, 1.0, bdtrc(np.maximum(below, 0), r, success))  # v, ..., v-m
    worst = np.max((at_least[1:] - at_least[0]) / np.arange(1, m + 1))
    return min(1.0, float(at_least[0] + 2 * m * delta * worst))


@public
@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """What an audit found, and what the fit had claimed.

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
    name : str, default=""
        What was audited.
    method : {"one_run", "many_runs"}, default="one_run"
        Whether all canaries were in one fit, or each in one of its own.
    statistic : {"guesses", "gaussian", "tracing"}, default="guesses"
        How the bound follows from the guesses, or "tracing" where rows themselves were traced.

    See Also
    --------
    audit_estimator : Makes such a result.
    AuditDisplay : Draws results beside their claims.

    Examples
    --------
    >>> from dpsubspace.audit import AuditResult
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
    name: str = ""
    method: str = "one_run"
    statistic: str = "guesses"

    @property
    def epsilon_reachable(self) -> float:
        """The bound that guesses would give which are all right: more cannot be shown."""
        if self.statistic == "gaussian":
            half = self.n_canaries // 2
            mu = mu_from_errors(0, half, 0, half, confidence=self.confidence)
            return gaussian_epsilon(mu**2, self.delta)
        counts = self.n_canaries, self.n_guesses, self.n_guesses
        return audit_epsilon(*counts, delta=self.delta, confidence=self.confidence)

    @property
    def refuted(self) -> bool:
        """Whether the audit contradicts the claim."""
        return self.epsilon_lower_bound > self.epsilon_claimed

    def __str__(self) -> str:
        verdict = "REFUTES" if self.refuted else "does not refute"
        name = f"{self.name}: " if self.name else ""
        return (
            f"{name}epsilon is at least {self.epsilon_lower_bound:.3g} (confidence"
            f" {self.confidence:.0%}; {self.n_correct} of {self.n_guesses} guesses right, "
            f"{self.n_canaries} canaries): {verdict} the claim of {self.epsilon_claimed:.3g}"
        )


def audit_estimator(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    method: str = "auto",
    statistic: str = "guesses",
    n_canaries: int | None = None,
    n_guesses: int | None = None,
    n_training: int = 100,
    confidence: float = 0.95,
    groups: Any = None,
    fit_params: dict[str, Any] | None = None,
    random_state: int | None = None,
) -> AuditResult:
    """Attack an estimator or a function of this package, and bound its epsilon from below.

    Records are planted among the rows: canaries. A coin decides of each whether it takes part,
    and from what was released an attacker guesses how the coin fell. A guarantee says how often
    guesses can be right, so that guesses which are right more often refute it.

    Parameters
    ----------
    estimator : estimator or function
        What to audit: any private estimator of this package, which is cloned, or
        :func:`private_mean`, :func:`private_quantile`, :func:`private_covariance`,
        :func:`private_spread`, :func:`private_projection_error` or :func:`select_public`. Its own
        `random_state` is not used.
    X : array-like of shape (n_samples, n_features)
        Rows beside the canaries, public or synthetic ones. Where a canary is told better among
        other rows, as of quantiles and components, only their numbers are used.
    y : array-like of shape (n_samples,), optional
        Their targets. What is fitted to rows alone does not look at them.
    method : {"auto", "one_run", "many_runs"}, default="auto"
        "one_run" is one fit with all canaries at once, each along a feature of its own: fast, for
        estimators that are linear in features, and for means and covariances. "many_runs" is a
        game of two worlds, for all others too: many fits with one canary, which some have and
        others have not. "auto" is "one_run" where that can be.
    statistic : {"guesses", "gaussian", "tracing"}, default="guesses"
        How the bound follows from guesses. "guesses" counts those about the canaries that show
        the most, and holds for whatever was released. "gaussian" takes the rates of both errors and
        is far closer to the truth, but holds only for what the claim says to be Gaussian
        noise without sampling; it needs "many_runs". "tracing" counts guesses, but plants nothing:
        the last rows of `X` are the canaries of one fit. It tells what such a fit shows of real
        rows, is for linear regression, and needs "one_run".
    n_canaries : int, optional
        Number of canaries. Default: 500 in one run, and 200 in many. Where `statistic` is
        "tracing" it is at most the number of rows.
    n_guesses : int, optional
        How many of the canaries that show the most are guessed about: half to have taken part and
        half not (an odd number is rounded down). It is fixed before anything is seen. Default:
        half of `n_canaries`; all of them where `statistic` is "gaussian".
    n_training : int, default=100
        Fits with a canary that the attacker knows to be there, or not: they teach what to look at,
        and nothing is guessed about them. Of "many_runs" only.
    confidence : float, default=0.95
        Probability that the bound holds.
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to. A canary is then a person with three rows.
    fit_params : dict, optional
        What ``fit`` is given beside rows, targets and groups, such as ``{"X_public": (rows,)}``;
        all parameters of a function.
    random_state : int, optional
        Seed of the coins and of the noise of all fits. None draws secure noise.

    Returns
    -------
    AuditResult
        The bound beside the claim.

    Raises
    ------
    PrivacyError
        If `estimator` cannot be audited, or claims nothing; the message says what can be. Inside of
        a :class:`PrivacyLedger`.
    ValueError
        If a parameter is out of its range or the data cannot be used.

    See Also
    --------
    audit_epsilon : The statistics behind it.
    AuditDisplay : Draws results beside their claims.

    Notes
    -----
    An audit is a test of an implementation and not a private computation: its result
    depends on the rows without noise. Run it on public or synthetic rows, and do not
    publish what it fits. It looks at final results only; a bound that is far below the claim
    says that this attack found no more, and not that there is nothing to be found.

    Under ``"zero_out"`` a canary whose coin falls otherwise is a null record. Under
    ``"replace_one"`` it is replaced by another record.

    In many runs each canary has a fit of its own. Together they are one mechanism in which each
    canary has part in one run, so that the bound for many canaries in one run holds for them
    (Steinke, Nasr, Jagielski, 2023, Theorem 5.2), with whatever the attacker has learned from
    other runs. The same bound holds for "tracing", whatever the rows are, since their coins are
    tossed after they are known. Rows are ranked by the product of what a fit has learned beyond a
    ridge regression with the gradient of the row, as in the proofs of lower bounds for private
    linear regression (Cai, Wang, Zhang, 2021; Thaker, Setlur, Wu, Smith, 2024, section 4). It shows
    much only where there are more columns, or directions of a subspace, than canaries.

    The "gaussian" bound is that of Nasr et al. (2023): Clopper-Pearson intervals of
    both errors, at half of ``1 - confidence`` each, and the mu of Gaussian differential privacy
    that they refute.

    References
    ----------
    Cai, Wang, Zhang. "The cost of privacy: optimal rates of convergence for parameter estimation
    with differential privacy". Annals of Statistics 49, 2021.

    Steinke, Nasr, Jagielski. "Privacy auditing with one (1) training run". NeurIPS 2023.

    Thaker, Setlur, Wu, Smith. "On the benefits of public representations for private transfer
    learning under distribution shift". NeurIPS 2024.

    Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini, Terzis. "Tight auditing of
    differentially private machine learning". USENIX Security 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from dpsubspace import DPSGDClassifier
    >>> from dpsubspace.audit import audit_estimator
    >>> from dpsubspace.statistics import private_quantile
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=8.0, delta=1e-5)
    >>> audit_estimator(model, X, y, random_state=0).refuted
    False
    >>> median = {"level": 0.5, "bounds": (0, 50), "epsilon": 2.0}
    >>> audit_estimator(private_quantile, X[:, 0], fit_params=median, random_state=0).refuted
    False
    """
    check_choice("method", method, ("auto", "one_run", "many_runs"))
    check_choice("statistic", statistic, ("guesses", "gaussian", "tracing"))
    confidence = check_real("confidence", confidence, low=0.5, high=1, include_low=True)
    n_training = check_integer("n_training", n_training, low=10)
    if payer_of() is not None:
        raise PrivacyError(
            "an audit reveals more of its rows than a ledger could charge: run it outside of the"
            " ledger, on public or synthetic rows."
        )
    subject = subject_of(estimator, y, fit_params)
    method = _method(subject, method, statistic, groups)
    most = np.shape(X)[0] if statistic == "tracing" else math.inf
    n_canaries = int(min(_DEFAULT[method], most)) if n_canaries is None else n_canaries
    n_canaries = check_integer("n_canaries", n_canaries, low=2)
    if n_canaries > most:
        raise ValueError(
            f"`n_canaries` must be at most {most} (the rows of X), since statistic='tracing' plants"
            f" none, got {n_canaries}."
        )
    if statistic == "gaussian":
        if n_guesses not in (None, n_canaries):
            raise ValueError(
                "statistic='gaussian' guesses about all canaries: leave out `n_guesses`, got"
                f" {n_guesses}."
            )
        n_guesses = n_canaries
    n_guesses = n_canaries // 2 if n_guesses is None else n_guesses
    n_guesses = check_integer("n_guesses", n_guesses, low=2) // 2 * 2
    if n_guesses > n_canaries:
        raise ValueError(f"`n_guesses` must be at most {n_canaries} (n_canaries), got {n_guesses}.")
    if random_state is not None:
        check_integer("random_state", random_state, low=0)
    source = np.random.default_rng(random_state)
    coins = source.random(n_canaries) < 0.5
    with warnings.catch_warnings():
        # These warnings are about accuracy, which does not matter for an audit.
        for category in (PrivacyWarning, PublicDataWarning):
            warnings.simplefilter("ignore", category)
        seeds = _seeds(source, random_state)
        if method == "one_run":
            attack = in_one_run_of_rows if statistic == "tracing" else in_one_run
            shown, guarantee = attack(subject, X, y, coins, seeds)
        else:
            many = (subject, X, y, groups, coins, n_training, seeds)
            check = _check_gaussian if statistic == "gaussian" else lambda guarantee: None
            shown, guarantee = in_many_runs(*many, check)
    result = AuditResult(
        epsilon_lower_bound=0.0,
        epsilon_claimed=guarantee.epsilon,
        delta=guarantee.delta,
        confidence=confidence,
        n_canaries=n_canaries,
        n_guesses=n_guesses,
        n_correct=0,
        name=subject.name,
        method=method,
        statistic=statistic,
    )
    if statistic == "gaussian":
        return _by_both_errors(result, shown, coins)
    half, order = n_guesses // 2, np.argsort(shown, kind="stable")
    n_correct = int(coins[order[n_canaries - half :]].sum() + (~coins[order[:half]]).sum())
    bound = audit_epsilon(
        n_canaries, n_guesses, n_correct, delta=guarantee.delta, confidence=confidence
    )
    return replace(result, epsilon_lower_bound=bound, n_correct=n_correct)


def _method(subject: Subject, method: str, statistic: str, groups: Any) -> str:
    reason = ""
    if statistic == "tracing":
        if method == "many_runs" or groups is not None or subject.design.traced is None:
            raise PrivacyError(
                "statistic='tracing' is for linear regression, in one run and without `groups`:"
                " leave it out."
            )
        return "one_run"
    if subject.design.own is None:
        reason = f"{subject.name} does not treat features alike and apart"
    elif groups is not None:
        reason = "a canary is a person where there are `groups`"
    elif statistic == "gaussian":
        reason = "statistic='gaussian' needs independent guesses"
    if method == "one_run" and reason:
        raise PrivacyError(f"method='one_run' cannot be: {reason}. Use method='many_runs'.")
    return ("many_runs" if reason else "one_run") if method == "auto" else method


def _seeds(source: np.random.Generator, random_state: int | None) -> Iterator[int | None]:
    while True:
        seed = int(source.integers(2**31))
        yield None if random_state is None else seed


def _check_gaussian(guarantee: PrivacyGuarantee) -> None:
    if Cost.of(guarantee.event, guarantee.neighboring_relation).sq_mu() is None:
        raise PrivacyError(
            "statistic='gaussian' is for Gaussian noise without sampling, and the claim is about"
            " something else: use statistic='guesses'."
        )


def _by_both_errors(result: AuditResult, shown: np.ndarray, coins: np.ndarray) -> AuditResult:
    """Add the bound of Nasr et al. (2023) from guesses about all canaries; `shown` > 0 is "in"."""
    guessed = shown > 0
    wrong_in, wrong_out = int((guessed & ~coins).sum()), int((~guessed & coins).sum())
    n_in, n_out = int(coins.sum()), int((~coins).sum())
    mu = mu_from_errors(wrong_in, n_out, wrong_out, n_in, confidence=result.confidence)
    return replace(
        result,
        epsilon_lower_bound=gaussian_epsilon(mu**2, result.delta),
        n_correct=len(coins) - wrong_in - wrong_out,
    )


# Display ----------------------------------------------------------------------------------------
# Plot of audits: lower bounds from attacks, beside the claims.

# Inches of a figure around its names, and for each audit.
_MARGIN, _ROW = 1.4, 0.4


@public
@dataclass(kw_only=True, eq=False, repr=False)
class AuditDisplay(Display):
    """Lower bounds of audits and the claims that they test: one line for each.

    A bar ends at the bound that the attack has shown. The claim is a vertical mark, and a bar that
    crosses it refutes the claim. An open circle is the bound that guesses would have given which
    are all right: where it lies to the left of the claim, the audit could not have refuted it.

    Made by :meth:`from_results`, which takes what :func:`audit_estimator` gives, or
    :meth:`from_estimators`, which runs the audits.

    Parameters
    ----------
    results : sequence of AuditResult
        Audits, the first one at the top.
    names : sequence of str
        Their names.

    Attributes
    ----------
    results, names
        As given.
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : matplotlib BarContainer
        Lower bounds.
    claims_ : matplotlib Artist
        Claims.
    reachable_ : matplotlib Artist
        Bounds that perfect guesses would give.

    See Also
    --------
    audit_estimator : One audit.
    PrivacyUtilityDisplay : Score against epsilon.

    Notes
    -----
    A bar that ends below its claim proves nothing: the attack has found no more.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import DPSGDRegressor, private_mean
    >>> from dpsubspace.audit import AuditDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> display = AuditDisplay.from_estimators(
    ...     {"mean": private_mean, "regression": DPSGDRegressor()}, X, X.sum(axis=1), random_state=0
    ... )
    >>> [result.refuted for result in display.results]
    [False, False]
    >>> display.ax_.get_xlabel()
    'epsilon'
    """

    results: Sequence[AuditResult]
    names: Sequence[str]

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any],
        X: Any,
        y: Any = None,
        *,
        audit_params: dict[str, Any] | None = None,
        random_state: int | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Audit estimators and functions on the same rows, and draw what was found.

        Parameters
        ----------
        estimators : dict of estimator or function
            What to audit, by name.
        X : array-like of shape (n_samples, n_features)
            Rows beside the canaries, public or synthetic ones.
        y : array-like of shape (n_samples,), optional
            Their targets. What is fitted to rows alone does not look at them.
        audit_params : dict or None, default=None
            Passed to :func:`audit_estimator`, but for `random_state`.
        random_state : int or None, default=None
            Seed of the coins and of the noise of all fits. None draws secure noise.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : AuditDisplay
            The picture and its data.

        Raises
        ------
        PrivacyError
            If one cannot be audited.
        ValueError
            If a parameter is out of its range, or `audit_params` has a `random_state`.
        ImportError
            If matplotlib is not installed; nothing was fitted then.
        """
        cls._pyplot()
        options = dict(audit_params or {})
        if "random_state" in options:
            raise ValueError(
                "`audit_params` has a `random_state`, which is a parameter of its own here: pass"
                " AuditDisplay.from_estimators(..., random_state=...)."
            )
        options["random_state"] = random_state
        found = [audit_estimator(each, X, y, **options) for each in estimators.values()]
        return cls.from_results(found, names=[*estimators], ax=ax, **plot_params)

    @classmethod
    def from_results(
        cls,
        results: Sequence[AuditResult],
        *,
        names: Sequence[str] | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw audits that were run elsewhere.

        Parameters
        ----------
        results : sequence of AuditResult
            Audits, the first one at the top.
        names : sequence of str or None, default=None
            Their names; None takes those of the results.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : AuditDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If there is no result, or not a name for each.
        """
        results = list(results)
        names = [result.name for result in results] if names is None else list(names)
        if not results or len(names) != len(results):
            raise ValueError(
                f"`results` must hold an audit at least, and `names` a name for each, got"
                f" {len(results)} results and {len(names)} names."
            )
        return cls(results=results, names=names).plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        bar_kw: dict[str, Any] | None = None,
        claim_kw: dict[str, Any] | None = None,
        reachable_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the bounds.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh`` for the bounds.
        claim_kw : dict or None, default=None
            Passed to ``ax.plot`` for the claims.
        reachable_kw : dict or None, default=None
            Passed to ``ax.plot`` for the bounds that perfect guesses would give.

        Returns
        -------
        display : AuditDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        width = self._pyplot().rcParams["figure.figsize"][0]
        ax = self._draw_in(ax, (width, _MARGIN + _ROW * len(self.results)))
        places = np.arange(len(self.results))
        bounds = [result.epsilon_lower_bound for result in self.results]
        confidence = {f"{result.confidence:.0%}" for result in self.results}
        label = f"shown (confidence {', '.join(sorted(confidence))})"
        colors = ["tab:red" if result.refuted else "tab:blue" for result in self.results]
        options = styled(bar_kw, color=colors, alpha=0.6, label=label)
        self.bars_: Any = ax.barh(places, bounds, **options)
        claimed = [result.epsilon_claimed for result in self.results]
        marks = {"marker": "|", "markersize": 16, "markeredgewidth": 2.5, "linestyle": ""}
        options = styled(claim_kw, color="black", label="claimed", **marks)
        self.claims_: Any = ax.plot(claimed, places, **options)[0]
        reachable = [result.epsilon_reachable for result in self.results]
        marks = {"marker": "o", "markerfacecolor": "none", "linestyle": ""}
        label = "if all guesses were right"
        options = styled(reachable_kw, color="grey", label=label, **marks)
        self.reachable_: Any = ax.plot(reachable, places, **options)[0]
        ax.set(yticks=places, yticklabels=self.names, xlabel="epsilon")
        ax.set_xlim(left=0.0)
        ax.invert_yaxis()
        ax.legend()
        return self
