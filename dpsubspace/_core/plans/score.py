"""Scores of a fitted model on private rows.

Where to check the privacy claim: :meth:`ScorePlan.run` is all of it. ``_core/plans/score_rows.py``
shows the model the rows, ``_core/plans/score_release.py`` releases what it says of them, and
``_core/statistics/score_cells.py`` bounds what a record contributes. Noise is added in
``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dpsubspace._core.accounting.budget import Budget
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.fits.held_out import warn_of_training_rows
from dpsubspace._core.plans.score_noise import ScoreSizes, warn_if_hidden
from dpsubspace._core.plans.score_release import ReleasedCounts, RowScores, parts_of
from dpsubspace._core.plans.score_request import ScoreRequest
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records

_HARM = "the score will be about the training rows, and will be too optimistic for new rows."


@dataclass(frozen=True)
class ScorePlan(FunctionPlan):
    name: ClassVar[str] = "private_score"

    asked: ScoreRequest
    sizes: ScoreSizes  # Public sizes, and the requested privacy
    noise: NoiseSource  # Source of noise, and of the public coins
    about: tuple[str, ...]  # Public facts about the model, the targets and the groups

    def assumed(self) -> tuple[str, ...]:
        return self.about

    def budget(self, n_samples: int) -> Budget:
        return Budget.split(self.sizes.target, parts_of(self.asked), n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        warn_if_hidden(self.asked, budget, self.sizes)

    def prepared(self, rows: Any) -> RowScores:
        """Return rows, which come as given and checked, with the outputs of the model for them."""
        given, scored = rows
        warn_of_training_rows(scored.says.model, given, _HARM, calibrated=False)
        return scored.compute()

    def run(self, ready: RowScores, records: Records, releases: Releases) -> list[ReleasedCounts]:
        """Return counts and sums of all rows, and of the rows of each group."""
        return ready.released(releases, self.noise.public())
