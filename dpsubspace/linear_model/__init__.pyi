"""Type checkers read the public names here."""

from dpsubspace.linear_model._dpsgd import (
    DPSGDClassifier as DPSGDClassifier,
    DPSGDFClassifier as DPSGDFClassifier,
    DPSGDRegressor as DPSGDRegressor,
)
from dpsubspace.linear_model._gep import (
    GEPClassifier as GEPClassifier,
    GEPRegressor as GEPRegressor,
)
from dpsubspace._core.plans.guide import GradientDirections as GradientDirections
from dpsubspace.linear_model._personal import (
    PersonalizedLinearRegression as PersonalizedLinearRegression,
)
from dpsubspace._core.plans.personal import (
    SharedLinearModel as SharedLinearModel,
    SharedLogisticModel as SharedLogisticModel,
)
from dpsubspace.linear_model._personal_logistic import (
    PersonalizedLogisticRegression as PersonalizedLogisticRegression,
)
from dpsubspace.linear_model._regression import (
    DPLinearRegression as DPLinearRegression,
    PublicSubspaceLinearRegression as PublicSubspaceLinearRegression,
)
