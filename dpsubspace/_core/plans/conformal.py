"""The plan of private conformal prediction: which rank to ask for, and the choice of a threshold.

Where to check the privacy claim: :meth:`Conformal._release_threshold` charges and releases all
there is. Scores of rows are those of ``missed`` and ``distances``, of which each row has one of its
own. How far one record moves the scores of candidates is bounded by ``rank_scores`` in
``_core/statistics/score_cells.py``. The choice is drawn by ``release_choice`` in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, expit

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import PrivateCall, PrivateEstimator
from dpsubspace._core.fits.held_out import Frozen, HeldOut, pure_target, rows_as_fitted
from dpsubspace._core.ground.checks import check_real
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import counted, rank_scores
from dpsubspace.exceptions import PrivacyWarning, warn

# Fewest and most candidates for a threshold, as powers of 2. More are finer, and need a larger
# correction.
_FEWEST, _MOST = 6, 10

# Octaves of errors between public bounds, and to either side of 1 without any. A candidate in 16
# is a part of each octave.
_OCTAVES, _ALL_OCTAVES = 16, 64

# Log-odds of the first candidates for probabilities: there are as many up to its negative.
_LARGEST = 8.0

# Probability of sets that are far too large at which a fit warns.
_UNSURE = 0.1

# With this probability the coverage of one fit is below what is said of it.
_UNLUCKY = 0.05


@dataclass(frozen=True)
class _Rank:
    """Which rank to ask for, so that coverage holds with the noise of the choice."""

    n: int  # Records
    n_candidates: int  # Candidates
    # How much a distance of one rank makes a candidate less likely, as a power of e.
    strength: float
    grouped: bool  # Whether ranks may be no whole numbers

    def wanted(self, level: float) -> int | None:
        """Least rank at which coverage is at least `level` on average; None where there is none."""
        enough = np.flatnonzero(self._on_average() >= level)
        return int(enough[0]) + 1 if len(enough) else None

    def on_average(self, rank: int) -> float:
        """What coverage is at least, on average over rows and noise."""
        return float(self._on_average()[rank - 1])

    def _on_average(self) -> np.ndarray:
        """The same for each rank from 1 to n, of which the bounds are those of the last."""
        ranks = np.arange(1, self.n + 1)
        return (ranks - np.cumsum(self._below(self.n, ranks[::-1]))) / (self.n + 1)

    def nearly_always(self, rank: int) -> float:
        """What coverage is at least, but for a probability of `_UNLUCKY` over rows and noise."""
        reached = np.arange(1, rank + 1)
        left = _UNLUCKY - self._below(rank, reached)
        reached, left = reached[left > 0], left[left > 0]
        if not len(reached):
            return 0.0
        if self.grouped:
            least = reached / self.n - np.sqrt(np.log(1 / left) / (2 * self.n))
        else:
            least = betaincinv(reached, self.n + 1 - reached, left)
        return max(0.0, float(least.max()))

    def above_all(self, rank: int) -> float:
        """Bound on the probability that the choice is above all scores, however they lie."""
        return min(1.0, self.n_candidates * math.exp(-self.strength * (self.n - rank)))

    def _below(self, rank: int, reached: np.ndarray) -> np.ndarray:
        """Bound on the probability that the choice has fewer records up to it than `reached`."""
        if self.strength == math.inf:
            return np.zeros(len(reached))
        missed = rank - reached + (0 if self.grouped else 1)
        return np.minimum(1.0, (self.n_candidates - 1) * np.exp(-self.strength * missed))


@dataclass(frozen=True)
class IntervalRequest:
    target: Target
    level: float
    bounds: tuple[float, float] | None = None

    def fineness(self, n_samples: int) -> int:
        """Number of candidates for which noise and steps cost about as much coverage."""
        scale = self.budget(n_samples).scales["threshold"]
        enough = math.log2(min(max(n_samples * scale / 8, 1.0), 2.0**_MOST))
        return 2 ** max(_FEWEST, math.floor(enough))

    def rank(self, budget: Budget, records: Records, n_candidates: int) -> _Rank:
        return _Rank(records.n, n_candidates, budget.scales["threshold"] / 2, records.grouped)

    def budget(self, n_samples: int | None) -> Budget:
        return Budget.split(self.target, {"threshold": Part(1.0, kind="range")}, n_samples)


class Conformal(PrivateEstimator):
    """What both share: a threshold of scores that are the larger, the worse a prediction is."""

    _asks_fitted = True

    # Parameters that every subclass has.
    estimator: Any
    confidence_level: float

    # Set by `fit`.
    n_features_in_: int
    expected_coverage_: float
    likely_coverage_: float

    def _budget(self, sizes: Sizes) -> Budget:
        return self._plan().budget(sizes.n_samples)

    def _rows_as_fitted(self, X: Any) -> Any:
        return rows_as_fitted(self.estimator, X)

    def _plan(self) -> IntervalRequest:
        level = check_real("confidence_level", self.confidence_level, low=0, high=1)
        return IntervalRequest(pure_target(self), level)

    def _release_threshold(
        self,
        plan: IntervalRequest,
        frozen: Frozen,
        rows: HeldOut,
        scores: Any,
        candidates: np.ndarray,
        public: tuple[str, ...],
    ) -> float:
        """Charge and release one of `candidates`, of which the last is above all scores.

        The private `scores` have one number a row.
        """
        noise, records = as_noise(self.random_state), rows.records
        budget = plan.budget(records.n)
        rank = plan.rank(budget, records, len(candidates))
        wanted = rank.wanted(plan.level)
        if wanted is None:  # nothing smaller than the last one would do, and that is public
            budget = Budget.split(plan.target, {}, records.n)
        call = PrivateCall(self, budget, noise, records, rows.X.shape[1], public)
        if wanted is None:
            _warn_of_few(plan, rank, records)
        elif rank.above_all(wanted) > _UNSURE:
            _warn_of_width(plan, rank, records)
        releases = call.open()
        self._frozen, self.n_features_in_ = frozen, rows.X.shape[1]
        self.expected_coverage_ = self.likely_coverage_ = 1.0
        if wanted is None:
            return float(candidates[-1])
        self.expected_coverage_ = rank.on_average(wanted)
        self.likely_coverage_ = rank.nearly_always(wanted)
        cells = _places(candidates, scores)
        counts = counted(cells, len(candidates), records).value
        return float(candidates[releases.choice("threshold", rank_scores(counts, wanted))])


def probabilities(n: int) -> np.ndarray:
    """Candidates for one less than the probability of a label, even in log-odds; the last is 1."""
    return np.append(expit(np.linspace(-_LARGEST, _LARGEST, n)[:-1]), 1.0)


def missed(logs: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One less than the probability of the label of each row, of which all logarithms are given."""
    return -np.expm1(logs)[np.arange(len(codes)), codes]


def distances(
    predicted: np.ndarray, targets: np.ndarray, bounds: tuple[float, float] | None
) -> np.ndarray:
    """How far each target is from what is predicted, both cut to bounds."""
    with np.errstate(over="ignore"):  # further apart than numbers go is infinitely far
        scores = np.abs(cut(targets, bounds) - cut(predicted, bounds))
    return np.where(np.isnan(scores), np.inf, scores)


def _places(candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Least candidate that each score is up to."""
    return np.searchsorted(candidates, np.minimum(scores, candidates[-1]))


def errors(bounds: tuple[float, float] | None, n: int) -> np.ndarray:
    """Candidates for how far a target is from what is predicted; the last is above all."""
    parts = n // _OCTAVES
    if bounds is None:
        octaves = np.arange(-_ALL_OCTAVES * parts, _ALL_OCTAVES * parts) / parts
        return np.append(np.exp2(octaves), math.inf)
    return (bounds[1] - bounds[0]) * np.exp2(np.arange(1 - n, 1) / parts)


def cut(values: np.ndarray, bounds: tuple[float, float] | None) -> np.ndarray:
    return values if bounds is None else np.clip(values, *bounds)


def _warn_of_width(plan: IntervalRequest, rank: _Rank, records: Records) -> None:
    more = (2 * math.log(rank.n_candidates) + 1 - math.log(_UNSURE)) / rank.strength
    needed = math.ceil((plan.level + more) / (1 - plan.level))
    warn(
        f"{records.n} {records.unit}s are few for confidence_level={plan.level:g} at epsilon="
        f"{plan.target.epsilon:g}: sets and intervals contain the truth as often as you ask for,"
        f" but may be too wide to be of use. About {needed} {records.unit}s are enough. For"
        " intervals, `target_bounds` help.",
        PrivacyWarning,
        about=("conformal width", plan.target.epsilon),
    )


def _warn_of_few(plan: IntervalRequest, rank: _Rank, records: Records) -> None:
    more = 0.0 if rank.strength == math.inf else (math.log(rank.n_candidates) + 1) / rank.strength
    needed = math.ceil((plan.level + more) / (1 - plan.level))
    warn(
        f"{records.n} {records.unit}s are too few for confidence_level={plan.level:g} at epsilon="
        f"{plan.target.epsilon:g}: each set or interval contains all possible values, and nothing"
        f" is released or charged. About {needed} {records.unit}s are enough.",
        PrivacyWarning,
        about=("conformal", plan.target.epsilon),
    )
