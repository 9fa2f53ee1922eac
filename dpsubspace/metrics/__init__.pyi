"""Type checkers read the public names here."""

from dpsubspace._estimators.private_scores import private_score as private_score
from dpsubspace._estimators.score_request import PrivateScore as PrivateScore
from dpsubspace._statistics.score_cells import ScoreCells as ScoreCells
from dpsubspace._workflow.evaluation import (
    PrivacyUtilityDisplay as PrivacyUtilityDisplay,
    PrivateCalibrationDisplay as PrivateCalibrationDisplay,
    PrivateRocCurveDisplay as PrivateRocCurveDisplay,
)
