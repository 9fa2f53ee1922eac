"""Type checkers read the public names here: `__init__.py` imports them when they are asked for."""

from dpsubspace._accounting.guarantee import (
    PrivacyGuarantee as PrivacyGuarantee,
    Released as Released,
)
from dpsubspace._estimators.calibrated import DPCalibratedClassifier as DPCalibratedClassifier
from dpsubspace._estimators.choice import (
    PublicChoice as PublicChoice,
    select_public as select_public,
)
from dpsubspace._estimators.coefficients import (
    PrivateCoefficients as PrivateCoefficients,
    private_coefficients as private_coefficients,
)
from dpsubspace._estimators.conformal import (
    DPConformalClassifier as DPConformalClassifier,
    DPConformalRegressor as DPConformalRegressor,
)
from dpsubspace._estimators.diagnostics import (
    ProjectionError as ProjectionError,
    Spread as Spread,
    private_projection_error as private_projection_error,
    private_spread as private_spread,
)
from dpsubspace._estimators.distances import (
    optimal_transport_distance as optimal_transport_distance,
    task2vec_distance as task2vec_distance,
)
from dpsubspace._estimators.dpsgd import (
    DPSGDClassifier as DPSGDClassifier,
    DPSGDFClassifier as DPSGDFClassifier,
    DPSGDRegressor as DPSGDRegressor,
)
from dpsubspace._estimators.functions import (
    private_covariance as private_covariance,
    private_mean as private_mean,
    private_quantile as private_quantile,
)
from dpsubspace._estimators.gep import GEPClassifier as GEPClassifier, GEPRegressor as GEPRegressor
from dpsubspace._estimators.gsd import (
    GSDScorer as GSDScorer,
    SubspaceDistance as SubspaceDistance,
    gradient_subspace_distance as gradient_subspace_distance,
)
from dpsubspace._estimators.guide import GradientDirections as GradientDirections
from dpsubspace._estimators.pca import DPPCA as DPPCA
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
from dpsubspace._estimators.private_scores import private_score as private_score
from dpsubspace._estimators.regression import (
    DPLinearRegression as DPLinearRegression,
    PublicSubspaceLinearRegression as PublicSubspaceLinearRegression,
)
from dpsubspace._estimators.saved import load as load
from dpsubspace._estimators.scaler import BoundedScaler as BoundedScaler
from dpsubspace._estimators.score_request import PrivateScore as PrivateScore
from dpsubspace._estimators.table_counts import (
    PrivateCounts as PrivateCounts,
    private_counts as private_counts,
)
from dpsubspace._estimators.table_encoder import TableEncoder as TableEncoder
from dpsubspace._estimators.table_summary import (
    PrivateSummary as PrivateSummary,
    private_summary as private_summary,
)
from dpsubspace._estimators.tabular import (
    TabularPipeline as TabularPipeline,
    tabular_pipeline as tabular_pipeline,
)
from dpsubspace._estimators.torch_features import TorchFeatures as TorchFeatures
from dpsubspace._estimators.torch_models import (
    DPModuleClassifier as DPModuleClassifier,
    DPModuleRegressor as DPModuleRegressor,
)
from dpsubspace._public.subspace import subspace_distance as subspace_distance
from dpsubspace._statistics.score_cells import ScoreCells as ScoreCells
from dpsubspace._tables.kinds import (
    Categories as Categories,
    PrivateRange as PrivateRange,
    Range as Range,
)
from dpsubspace._tables.schema import Schema as Schema
from dpsubspace._workflow.audit import (
    AuditDisplay as AuditDisplay,
    AuditResult as AuditResult,
    audit_epsilon as audit_epsilon,
    audit_estimator as audit_estimator,
)
from dpsubspace._workflow.budget_display import BudgetDisplay as BudgetDisplay
from dpsubspace._workflow.coefficient_display import CoefficientDisplay as CoefficientDisplay
from dpsubspace._workflow.counts_display import PrivateCountsDisplay as PrivateCountsDisplay
from dpsubspace._workflow.evaluation import (
    PrivacyUtilityDisplay as PrivacyUtilityDisplay,
    PrivateCalibrationDisplay as PrivateCalibrationDisplay,
    PrivateRocCurveDisplay as PrivateRocCurveDisplay,
)
from dpsubspace._workflow.importance_display import ImportanceDisplay as ImportanceDisplay
from dpsubspace._workflow.journal import LedgerEntry as LedgerEntry
from dpsubspace._workflow.ledger import PrivacyLedger as PrivacyLedger
from dpsubspace._workflow.planner import (
    privacy_cost as privacy_cost,
    privacy_event as privacy_event,
    share_budget as share_budget,
)
from dpsubspace._workflow.projection_display import ProjectionErrorDisplay as ProjectionErrorDisplay
from dpsubspace._workflow.ranking import GSDRankingDisplay as GSDRankingDisplay
from dpsubspace._workflow.report import (
    PrivacyReport as PrivacyReport,
    privacy_report as privacy_report,
)
from dpsubspace._workflow.search import PrivateSearch as PrivateSearch
from dpsubspace._workflow.shape_display import ShapeDisplay as ShapeDisplay
from dpsubspace.exceptions import (
    ClusterError as ClusterError,
    PrivacyBudgetError as PrivacyBudgetError,
    PrivacyError as PrivacyError,
    PrivacyWarning as PrivacyWarning,
    PublicDataWarning as PublicDataWarning,
)

__version__: str
