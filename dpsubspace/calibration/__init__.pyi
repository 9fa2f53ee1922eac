"""Type checkers read the public names here."""

from dpsubspace._estimators.calibrated import DPCalibratedClassifier as DPCalibratedClassifier
from dpsubspace._estimators.conformal import (
    DPConformalClassifier as DPConformalClassifier,
    DPConformalRegressor as DPConformalRegressor,
)
