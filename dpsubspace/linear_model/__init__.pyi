"""Type checkers read the public names here."""

from dpsubspace._estimators.dpsgd import (
    DPSGDClassifier as DPSGDClassifier,
    DPSGDFClassifier as DPSGDFClassifier,
    DPSGDRegressor as DPSGDRegressor,
)
from dpsubspace._estimators.gep import (
    GEPClassifier as GEPClassifier,
    GEPRegressor as GEPRegressor,
)
from dpsubspace._estimators.guide import GradientDirections as GradientDirections
from dpsubspace._estimators.personal import (
    PersonalizedLinearRegression as PersonalizedLinearRegression,
)
from dpsubspace._estimators.personal_fit import (
    SharedLinearModel as SharedLinearModel,
    SharedLogisticModel as SharedLogisticModel,
)
from dpsubspace._estimators.personal_logistic import (
    PersonalizedLogisticRegression as PersonalizedLogisticRegression,
)
from dpsubspace._estimators.regression import (
    DPLinearRegression as DPLinearRegression,
    PublicSubspaceLinearRegression as PublicSubspaceLinearRegression,
)
