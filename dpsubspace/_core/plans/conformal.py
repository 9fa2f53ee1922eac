"""The plan of private conformal prediction: the rank to request, and the choice of a threshold.

Where to check the privacy claim: :meth:`ConformalPlan.run` is the whole fit. Scores of rows are
those of :class:`LabelSetPlan` and :class:`IntervalPlan`, of which each row has one of its own. How
far one record moves the scores of candidates is bounded by ``rank_scores`` in
``_core/statistics/score_cells.py``. The choice is drawn by ``release_choice`` in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import betaincinv, expit

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.fits.held_out import HeldOut
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import counted, rank_scores
from dpsubspace.exceptions import PrivacyWarning, warn

# Fewest and most candidates for a threshold, as powers of 2. More are finer, and need a larger
# correction.
_FEWEST, _MOST = 6, 10

# Octaves of errors between public bounds, and to either side of 1 without bounds. A candidate in 16
# is a part of each octave.
_OCTAVES, _ALL_OCTAVES = 16, 64

# Log-odds of the first candidates for probabilities; as many candidates go up to its negative.
_LARGEST = 8.0

# Public bounds of targets, where they are known.
Bounds = tuple[float, float] | None

# A fit warns if sets are far too large with more than this probability.
_UNSURE = 0.1

_THRESHOLD = {"threshold": Part(1.0, kind="range")}

# With this probability the coverage of one fit is below the coverage that is stated.
_UNLUCKY = 0.05


@dataclass(frozen=True)
class _Rank:
    """Ranks to request, so that coverage holds with the noise of the choice."""

    n: int  # Records
    n_candidates: int  # Candidates
    # How much a distance of one rank makes a candidate less likely, as a power of e.
    strength: float
    grouped: bool  # Whether ranks may be other than whole numbers

    def wanted(self, level: float) -> int | None:
        """Least rank at which coverage is at least `level` on average; None if there is none."""
        enough = np.flatnonzero(self._on_average() >= level)
        return int(enough[0]) + 1 if len(enough) else None

    def on_average(self, rank: int) -> float:
        """Lower bound on coverage, on average over rows and noise."""
        return float(self._on_average()[rank - 1])

    def _on_average(self) -> np.ndarray:
        """Lower bound on coverage for each rank from 1 to n, with the bounds of the last rank."""
        ranks = np.arange(1, self.n + 1)
        return (ranks - np.cumsum(self._below(self.n, ranks[::-1]))) / (self.n + 1)

    def nearly_always(self, rank: int) -> float:
        """Lower bound on coverage, but for a probability of `_UNLUCKY` over rows and noise."""
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
        """Bound on the probability that fewer than `reached` records are up to the choice."""
        if self.strength == math.inf:
            return np.zeros(len(reached))
        missed = rank - reached + (0 if self.grouped else 1)
        return np.minimum(1.0, (self.n_candidates - 1) * np.exp(-self.strength * missed))


@dataclass(frozen=True)
class Threshold:
    """Released threshold of scores, with lower bounds on its coverage."""

    value: float
    on_average: float = 1.0  # Over rows and noise
    nearly_always: float = 1.0


@dataclass(frozen=True)
class ConformalPlan(Plan):
    """Choice of a threshold among public candidates, the last of which is above all scores."""

    target: Target
    level: float
    rank: _Rank | None = None  # None if public sizes are not known yet

    def candidates(self, n_samples: int) -> np.ndarray:
        raise NotImplementedError

    def scores(self, rows: HeldOut) -> np.ndarray:
        """Return one number for each row, which is larger for a worse prediction."""
        raise NotImplementedError

    def fineness(self, n_samples: int) -> int:
        """Number of candidates for which noise and steps cost about as much coverage."""
        scale = Budget.split(self.target, _THRESHOLD, n_samples).scales["threshold"]
        enough = math.log2(min(max(n_samples * scale / 8, 1.0), 2.0**_MOST))
        return 2 ** max(_FEWEST, math.floor(enough))

    @cached_property
    def wanted(self) -> int | None:
        """Rank to request; None if no candidate below the last would do."""
        return None if self.rank is None else self.rank.wanted(self.level)

    def resolved(self, sizes: Sizes) -> Self:
        n = sizes.known("n_samples", "the rank")
        strength = self.budget(sizes).scales["threshold"] / 2
        return replace(self, rank=_Rank(n, len(self.candidates(n)), strength, sizes.persons))

    def budget(self, sizes: Sizes) -> Budget:
        enough = self.rank is None or self.wanted is not None  # otherwise the last, which is public
        return Budget.split(self.target, _THRESHOLD if enough else {}, sizes.n_samples)

    def prepared(self, data: Any, where: Any, budget: Budget) -> tuple[Any, Any, Records]:
        """Return candidates, and the least of them that is no less than the score of each row."""
        rank, records, candidates = self.rank, data.records, self.candidates(data.records.n)
        assert rank is not None
        if self.wanted is None:  # also without noise, where no warning comes before
            _warn_of_few(self, rank, records)
        elif rank.above_all(self.wanted) > _UNSURE:
            _warn_of_width(self, rank, records)
        cut_scores = np.minimum(self.scores(data), candidates[-1])
        return candidates, np.searchsorted(candidates, cut_scores), records

    def run(self, ready: Any, releases: Releases, rng: Any, after_step: Any) -> Threshold:
        candidates, cells, records = ready
        if self.rank is None or self.wanted is None:
            return Threshold(float(candidates[-1]))
        counts = counted(cells, len(candidates), records).value
        chosen = releases.choice("threshold", rank_scores(counts, self.wanted))
        coverage = self.rank.on_average(self.wanted), self.rank.nearly_always(self.wanted)
        return Threshold(float(candidates[chosen]), *coverage)


@dataclass(frozen=True)
class LabelSetPlan(ConformalPlan):
    """Sets of labels: the score of a row is one minus the probability of its label."""

    def candidates(self, n_samples: int) -> np.ndarray:
        return probabilities(self.fineness(n_samples))

    def scores(self, rows: HeldOut) -> np.ndarray:
        return -np.expm1(rows.said)[np.arange(len(rows.targets)), rows.targets]


@dataclass(frozen=True)
class IntervalPlan(ConformalPlan):
    """Intervals: the score is the distance of target and prediction, both cut to bounds."""

    bounds: Bounds = None

    def candidates(self, n_samples: int) -> np.ndarray:
        n = self.fineness(n_samples)
        parts = n // _OCTAVES
        if self.bounds is None:
            octaves = np.arange(-_ALL_OCTAVES * parts, _ALL_OCTAVES * parts) / parts
            return np.append(np.exp2(octaves), math.inf)
        return (self.bounds[1] - self.bounds[0]) * np.exp2(np.arange(1 - n, 1) / parts)

    def scores(self, rows: HeldOut) -> np.ndarray:
        with np.errstate(over="ignore"):  # a distance beyond the range of floats is infinite
            scores = np.abs(cut(rows.targets, self.bounds) - cut(rows.said, self.bounds))
        return np.where(np.isnan(scores), np.inf, scores)


def probabilities(n: int) -> np.ndarray:
    """Candidates for one minus the probability of a label, even in log-odds; the last is 1."""
    return np.append(expit(np.linspace(-_LARGEST, _LARGEST, n)[:-1]), 1.0)


def cut(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    return values if bounds is None else np.clip(values, *bounds)


def _warn_of_width(plan: ConformalPlan, rank: _Rank, records: Records) -> None:
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


def _warn_of_few(plan: ConformalPlan, rank: _Rank, records: Records) -> None:
    more = 0.0 if rank.strength == math.inf else (math.log(rank.n_candidates) + 1) / rank.strength
    needed = math.ceil((plan.level + more) / (1 - plan.level))
    warn(
        f"{records.n} {records.unit}s are too few for confidence_level={plan.level:g} at epsilon="
        f"{plan.target.epsilon:g}: each set or interval contains all possible values, and nothing"
        f" is released or charged. About {needed} {records.unit}s are enough.",
        PrivacyWarning,
        about=("conformal", plan.target.epsilon),
    )
