"""Type checkers read the public names here."""

from dpsubspace.neural_network._torch_features import TorchFeatures as TorchFeatures
from dpsubspace.neural_network._torch_models import (
    DPModuleClassifier as DPModuleClassifier,
    DPModuleRegressor as DPModuleRegressor,
)
