"""Type checkers read the public names here."""

from dpsubspace._estimators.torch_features import TorchFeatures as TorchFeatures
from dpsubspace._estimators.torch_models import (
    DPModuleClassifier as DPModuleClassifier,
    DPModuleRegressor as DPModuleRegressor,
)
