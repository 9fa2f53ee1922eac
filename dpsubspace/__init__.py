"""Differentially private learning for scikit-learn."""

import warnings
from typing import Any

from dpsubspace._accounting.guarantee import PrivacyGuarantee, Released
from dpsubspace._estimators.calibrated import DPCalibratedClassifier
from dpsubspace._estimators.choice import PublicChoice, select_public
from dpsubspace._estimators.coefficients import PrivateCoefficients, private_coefficients
from dpsubspace._estimators.conformal import DPConformalClassifier, DPConformalRegressor
from dpsubspace._estimators.diagnostics import (
    ProjectionError,
    Spread,
    private_projection_error,
    private_spread,
)
from dpsubspace._estimators.distances import optimal_transport_distance, task2vec_distance
from dpsubspace._estimators.dpsgd import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor
from dpsubspace._estimators.functions import private_covariance, private_mean, private_quantile
from dpsubspace._estimators.gep import GEPClassifier, GEPRegressor
from dpsubspace._estimators.gsd import GSDScorer, SubspaceDistance, gradient_subspace_distance
from dpsubspace._estimators.guide import GradientDirections
from dpsubspace._estimators.pca import DPPCA
from dpsubspace._estimators.personal import PersonalizedLinearRegression
from dpsubspace._estimators.personal_fit import SharedLinearModel, SharedLogisticModel
from dpsubspace._estimators.personal_logistic import PersonalizedLogisticRegression
from dpsubspace._estimators.private_scores import private_score
from dpsubspace._estimators.regression import (
    DPLinearRegression,
    PublicSubspaceLinearRegression,
)
from dpsubspace._estimators.scaler import BoundedScaler
from dpsubspace._estimators.score_request import PrivateScore
from dpsubspace._estimators.table_counts import PrivateCounts, private_counts
from dpsubspace._estimators.table_encoder import TableEncoder
from dpsubspace._estimators.table_summary import PrivateSummary, private_summary
from dpsubspace._estimators.tabular import TabularPipeline, tabular_pipeline
from dpsubspace._estimators.torch_features import TorchFeatures
from dpsubspace._estimators.torch_models import DPModuleClassifier, DPModuleRegressor
from dpsubspace._public.subspace import principal_angles as _principal_angles
from dpsubspace._public.subspace import subspace_distance
from dpsubspace._statistics.score_cells import ScoreCells
from dpsubspace._tables.kinds import Categories, PrivateRange, Range
from dpsubspace._tables.schema import Schema
from dpsubspace._workflow.audit import AuditDisplay, AuditResult, audit_epsilon, audit_estimator
from dpsubspace._workflow.budget_display import BudgetDisplay
from dpsubspace._workflow.coefficient_display import CoefficientDisplay
from dpsubspace._workflow.counts_display import PrivateCountsDisplay
from dpsubspace._workflow.evaluation import (
    PrivacyUtilityDisplay,
    PrivateCalibrationDisplay,
    PrivateRocCurveDisplay,
)
from dpsubspace._workflow.importance_display import ImportanceDisplay
from dpsubspace._workflow.journal import LedgerEntry
from dpsubspace._workflow.ledger import PrivacyLedger
from dpsubspace._workflow.planner import privacy_cost, privacy_event, share_budget
from dpsubspace._workflow.projection_display import ProjectionErrorDisplay
from dpsubspace._workflow.ranking import GSDRankingDisplay
from dpsubspace._workflow.report import PrivacyReport, privacy_report
from dpsubspace._workflow.search import PrivateSearch
from dpsubspace._workflow.shape_display import ShapeDisplay
from dpsubspace.exceptions import (
    ClusterError,
    PrivacyBudgetError,
    PrivacyError,
    PrivacyWarning,
    PublicDataWarning,
)

__version__ = "0.1.0"

__all__ = [
    "DPPCA",
    "AuditDisplay",
    "AuditResult",
    "BoundedScaler",
    "BudgetDisplay",
    "Categories",
    "ClusterError",
    "CoefficientDisplay",
    "DPCalibratedClassifier",
    "DPConformalClassifier",
    "DPConformalRegressor",
    "DPLinearRegression",
    "DPModuleClassifier",
    "DPModuleRegressor",
    "DPSGDClassifier",
    "DPSGDFClassifier",
    "DPSGDRegressor",
    "GEPClassifier",
    "GEPRegressor",
    "GSDRankingDisplay",
    "GSDScorer",
    "GradientDirections",
    "ImportanceDisplay",
    "LedgerEntry",
    "PersonalizedLinearRegression",
    "PersonalizedLogisticRegression",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PrivacyReport",
    "PrivacyUtilityDisplay",
    "PrivacyWarning",
    "PrivateCalibrationDisplay",
    "PrivateCoefficients",
    "PrivateCounts",
    "PrivateCountsDisplay",
    "PrivateRange",
    "PrivateRocCurveDisplay",
    "PrivateScore",
    "PrivateSearch",
    "PrivateSummary",
    "ProjectionError",
    "ProjectionErrorDisplay",
    "PublicChoice",
    "PublicDataWarning",
    "PublicSubspaceLinearRegression",
    "Range",
    "Released",
    "Schema",
    "ScoreCells",
    "ShapeDisplay",
    "SharedLinearModel",
    "SharedLogisticModel",
    "Spread",
    "SubspaceDistance",
    "TableEncoder",
    "TabularPipeline",
    "TorchFeatures",
    "audit_epsilon",
    "audit_estimator",
    "gradient_subspace_distance",
    "optimal_transport_distance",
    "privacy_cost",
    "privacy_event",
    "privacy_report",
    "private_coefficients",
    "private_counts",
    "private_covariance",
    "private_mean",
    "private_projection_error",
    "private_quantile",
    "private_score",
    "private_spread",
    "private_summary",
    "select_public",
    "share_budget",
    "subspace_distance",
    "tabular_pipeline",
    "task2vec_distance",
]


def __getattr__(name: str) -> Any:
    """Give what has another name now, with a warning."""
    if name == "Buy":
        warnings.warn(
            "`dpsubspace.Buy` is called `PrivateRange` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return PrivateRange
    if name == "principal_angles":
        warnings.warn(
            "`dpsubspace.principal_angles` goes in version 0.3: `scipy.linalg.subspace_angles` of"
            " transposed components gives the same angles, to about 1e-8.",
            FutureWarning,
            stacklevel=2,
        )
        return _principal_angles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
