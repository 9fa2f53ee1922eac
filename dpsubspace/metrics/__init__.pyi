"""Type checkers read the public names here."""

from dpsubspace.metrics._private_scores import private_score as private_score
from dpsubspace.metrics._score_difference import (
    PrivateScoreDifference as PrivateScoreDifference,
    private_score_difference as private_score_difference,
)
from dpsubspace._core.plans.score_request import PrivateScore as PrivateScore
from dpsubspace._core.statistics.score_cells import ScoreCells as ScoreCells
from dpsubspace.metrics._evaluation import (
    PrivacyUtilityDisplay as PrivacyUtilityDisplay,
    PrivateCalibrationDisplay as PrivateCalibrationDisplay,
    PrivateRocCurveDisplay as PrivateRocCurveDisplay,
)
