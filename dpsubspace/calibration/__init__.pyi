"""Type checkers read the public names here."""

from dpsubspace.calibration._calibrated import DPCalibratedClassifier as DPCalibratedClassifier
from dpsubspace.calibration._conformal import (
    DPConformalClassifier as DPConformalClassifier,
    DPConformalRegressor as DPConformalRegressor,
)
