"""The plan of a private recalibration: from its parameters to the map of probabilities.

Where to check the privacy claim: :meth:`CalibrationPlan.run` is the whole fit. What a row
contributes to a candidate is in ``_temperature_sums`` and ``_sigmoid_sums``. How far one record
moves the scores of candidates is bounded by ``root_scores`` in
``_core/statistics/score_cells.py``. The choice is drawn by ``release_choice`` in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.fits.held_out import HeldOut
from dpsubspace._core.release.mechanisms import BoundedScores
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import ROW, Records
from dpsubspace._core.statistics.score_cells import counted, root_scores, sums_of_records
from dpsubspace.exceptions import PrivacyWarning, warn

# Binary logarithms of slopes: in steps of 1 / _STEPS for the temperature, and of 1 / 8 together
# with intercepts.
_LEAST, _MOST, _STEPS = -5, 3, 16
_INTERCEPTS = np.arange(-48, 49) / 8

# Log-odds are counted in cells of this width, up to this size.
_WIDTH, _LARGEST = 1 / 16, 16.0

# Contributions far from the mark are clipped, since noise requires that for few rows: to `_CUT` at
# least, for a slope alone and beside an intercept. They count for too little then, so with many
# rows they are clipped less: at the root of the evidence of all records, over `_FINE`. In the end,
# log loss is minimised.
_CUT = {"temperature": 3.0, "sigmoid": 1.0}
_FINE = {"temperature": 16.0, "sigmoid": 100.0}
_WHOLE = 300.0

# Distances from "no change" over which the prior falls by a factor of e: for slopes above 1, whose
# harm has no bound, for slopes below 1, and for intercepts. All constants here were chosen on
# models of the data sets that benchmarks/repro_calibration.py reports as seen, their test rows
# included.
_ABOVE, _BELOW, _SHIFT = 0.12, 0.25, 0.25

# Usual evidence of a record about a slope, used to shrink the result because of noise.
_USUAL, _SPREAD = 0.1, 0.2

# Product of epsilon and the number of records below which noise hides the correction.
_FEWEST = 50.0


@dataclass(frozen=True)
class CalibrationMap:
    """Slope and intercept of a map of log-probabilities; the defaults mean "no change"."""

    slope: float = 1.0
    intercept: float = 0.0


@dataclass(frozen=True)
class CalibrationPlan(Plan):
    target: Target
    method: str

    def worth_it(self, n_samples: int) -> bool:
        """Return whether this many records can show anything above the noise, by public sizes."""
        epsilon = self.target.epsilon
        assert epsilon is not None
        apart = 1 if self.target.neighboring_relation == "zero_out" else 2
        return epsilon * n_samples >= _FEWEST * apart

    def budget(self, sizes: Sizes) -> Budget:
        n_samples = sizes.n_samples
        enough = n_samples is None or self.worth_it(n_samples)
        parts = {"map": Part(1.0, kind="range")} if enough else {}
        return Budget.split(self.target, parts, n_samples)

    def run(self, ready: HeldOut, releases: Releases, rng: Any, after_step: Any) -> CalibrationMap:
        if not releases.budget.parts:
            return CalibrationMap()
        n = ready.records.n
        find = _temperature_sums if self.method == "temperature" else _sigmoid_sums
        scale, doubled = releases.budget.scales["map"], 1 + (not self._zero_out)
        strength = scale / (2 * doubled)  # strength of the lead of one candidate over another
        cut = self._cut(n * strength)
        slopes, intercepts, totals, slack = find(ready.said, ready.targets, ready.records, cut)
        public = np.zeros(len(slopes))
        if self.target.private:
            public -= _penalties(slopes, intercepts) / strength
        scores: BoundedScores = root_scores(totals, slack, public)
        best = releases.choice("map", scores)
        kept = 1.0
        if self.target.private:
            # Noise and prior alone would give about this length, which is subtracted.
            off = 1 / (1 / _SPREAD + _USUAL / cut * n * strength)
            length = math.hypot(slopes[best], intercepts[best])
            kept = max(0.0, 1 - off / length) if length else 0.0
        return CalibrationMap(math.exp(kept * slopes[best]), kept * intercepts[best])

    def _cut(self, evidence: float) -> float:
        """Return where to clip, by the evidence of all records together."""
        wide = max(_CUT[self.method], math.sqrt(evidence / _FINE[self.method]))
        return min(wide, _WHOLE)

    @property
    def _zero_out(self) -> bool:
        return self.target.neighboring_relation == "zero_out"


# Contributions of records to candidates -----------------------------------------------------


def _temperature_sums(
    logs: Any, codes: Any, records: Records, cut: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return logarithms of slopes, intercepts of 0, and the sum of each slope with its slack.

    A row contributes ``(E T - T_y) / c``, where T are logarithms of probabilities less the largest,
    cut to [-c, 0], and the mean is over labels that are drawn by the probabilities themselves.
    Cutting does not bias the root: where the probabilities are right, the mean is 0 at any cut.
    """
    slopes = np.arange(_LEAST * _STEPS, _MOST * _STEPS + 1) / _STEPS * math.log(2)
    totals, slack = sums_of_records(_too_sure(logs, codes, slopes, cut), records)
    return slopes, np.zeros(len(slopes)), totals[:, None], slack


def _too_sure(
    logs: np.ndarray, codes: np.ndarray, slopes: np.ndarray, cut: float
) -> Iterator[np.ndarray]:
    """Contributions of rows to each slope."""
    behind = logs - logs.max(axis=1, keepdims=True)
    rows = np.arange(len(codes))
    for slope in np.exp(slopes):
        scores = slope * behind
        weights = np.exp(scores)
        near = np.maximum(scores, -cut)
        mean = (weights * near).sum(axis=1) / weights.sum(axis=1)
        yield (mean - near[rows, codes]) / cut


def _sigmoid_sums(
    logs: Any, codes: Any, records: Records, cut: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return logarithms of slopes, intercepts, and the sum of each pair with its slack.

    A row contributes ``(p - y) (s, 1) / sqrt(c^2 + s^2)``, with s its log-odds before the map and p
    its probability after the map: the gradient of a log loss with weights that are the same for
    each pair. So this loss is convex, and only one pair gives nearly 0, however small a slope is.
    Counts of labels in narrow cells of log-odds are all that is needed, and are exact; a sum over
    the cells that are not empty is then off by rounding of as many terms or fewer.
    """
    centres = np.arange(-_LARGEST, _LARGEST + _WIDTH, _WIDTH)
    n_cells = len(centres)
    cells = _cells_of_odds(logs, codes, n_cells)
    counts = counted(cells, 2 * n_cells, records).value.reshape(2, n_cells)
    some = counts.any(axis=0)
    (first, second), centres = counts[:, some, None], centres[some, None]
    logs_of_slopes, totals = np.arange(8 * _LEAST, 8 * _MOST + 1) / 8 * math.log(2), []
    for slope in np.exp(logs_of_slopes):
        scores = slope * centres + _INTERCEPTS
        excess = (first * expit(scores) - second * expit(-scores)) / np.sqrt(cut**2 + centres**2)
        totals.append(np.stack([(excess * centres).sum(axis=0), excess.sum(axis=0)], axis=1))
    slopes, intercepts = np.meshgrid(logs_of_slopes, _INTERCEPTS, indexing="ij")
    slack = 8 * n_cells * float(np.finfo(np.float64).eps) * records.n
    return slopes.ravel(), intercepts.ravel(), np.concatenate(totals), slack


def _cells_of_odds(logs: np.ndarray, codes: np.ndarray, n_cells: int) -> np.ndarray:
    """Cell of the log-odds and the label of each row."""
    odds = np.clip(logs[:, 1] - logs[:, 0], -_LARGEST, _LARGEST)
    return np.rint((odds + _LARGEST) / _WIDTH).astype(np.intp) + n_cells * codes


def _penalties(slopes: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Minus the logarithm of the prior weight of a candidate, before any rows are seen."""
    return np.hypot(slopes / np.where(slopes > 0, _ABOVE, _BELOW), intercepts / _SHIFT)


def warn_of_few(target: Target, n: int, unit: str) -> None:
    apart = 1 if target.neighboring_relation == "zero_out" else 2
    few = _FEWEST * apart
    of_persons = "" if unit == ROW else f" (n_samples: {unit}s)"
    warn(
        f"{n} {unit}s at epsilon={target.epsilon:g} are too few to correct probabilities, because"
        " noise would hide the correction. Probabilities are not changed, and nothing is released"
        f" or charged. epsilon * n_samples{of_persons} should be at least {few:g}.",
        PrivacyWarning,
        about=("calibration", target.epsilon),
    )
