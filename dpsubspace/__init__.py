"""Differentially private learning for scikit-learn."""

import importlib
import warnings
from typing import Any

from dpsubspace.exceptions import (
    ClusterError,
    PrivacyBudgetError,
    PrivacyError,
    PrivacyWarning,
    PublicDataWarning,
)

__version__ = "0.1.0"

# Public names by the module that has them, which is imported when one of them is first asked for:
# few programs need them all. `__init__.pyi` has the same for type checkers.
_NAMES = {
    "_accounting.guarantee": ["PrivacyGuarantee", "Released"],
    "_estimators.calibrated": ["DPCalibratedClassifier"],
    "_estimators.choice": ["PublicChoice", "select_public"],
    "_estimators.coefficients": ["PrivateCoefficients", "private_coefficients"],
    "_estimators.conformal": ["DPConformalClassifier", "DPConformalRegressor"],
    "_estimators.diagnostics": [
        "ProjectionError",
        "Spread",
        "private_projection_error",
        "private_spread",
    ],
    "_estimators.distances": ["optimal_transport_distance", "task2vec_distance"],
    "_estimators.dpsgd": ["DPSGDClassifier", "DPSGDFClassifier", "DPSGDRegressor"],
    "_estimators.functions": ["private_covariance", "private_mean", "private_quantile"],
    "_estimators.gep": ["GEPClassifier", "GEPRegressor"],
    "_estimators.gsd": ["GSDScorer", "SubspaceDistance", "gradient_subspace_distance"],
    "_estimators.guide": ["GradientDirections"],
    "_estimators.pca": ["DPPCA"],
    "_estimators.personal": ["PersonalizedLinearRegression"],
    "_estimators.personal_fit": ["SharedLinearModel", "SharedLogisticModel"],
    "_estimators.personal_logistic": ["PersonalizedLogisticRegression"],
    "_estimators.private_scores": ["private_score"],
    "_estimators.regression": ["DPLinearRegression", "PublicSubspaceLinearRegression"],
    "_estimators.scaler": ["BoundedScaler"],
    "_estimators.score_request": ["PrivateScore"],
    "_estimators.table_counts": ["PrivateCounts", "private_counts"],
    "_estimators.table_encoder": ["TableEncoder"],
    "_estimators.table_summary": ["PrivateSummary", "private_summary"],
    "_estimators.tabular": ["TabularPipeline", "tabular_pipeline"],
    "_estimators.torch_features": ["TorchFeatures"],
    "_estimators.torch_models": ["DPModuleClassifier", "DPModuleRegressor"],
    "_public.subspace": ["subspace_distance"],
    "_statistics.score_cells": ["ScoreCells"],
    "_tables.kinds": ["Categories", "PrivateRange", "Range"],
    "_tables.schema": ["Schema"],
    "_workflow.audit": ["AuditDisplay", "AuditResult", "audit_epsilon", "audit_estimator"],
    "_workflow.budget_display": ["BudgetDisplay"],
    "_workflow.coefficient_display": ["CoefficientDisplay"],
    "_workflow.counts_display": ["PrivateCountsDisplay"],
    "_workflow.evaluation": [
        "PrivacyUtilityDisplay",
        "PrivateCalibrationDisplay",
        "PrivateRocCurveDisplay",
    ],
    "_workflow.importance_display": ["ImportanceDisplay"],
    "_workflow.journal": ["LedgerEntry"],
    "_workflow.ledger": ["PrivacyLedger"],
    "_workflow.planner": ["privacy_cost", "privacy_event", "share_budget"],
    "_workflow.projection_display": ["ProjectionErrorDisplay"],
    "_workflow.ranking": ["GSDRankingDisplay"],
    "_workflow.report": ["PrivacyReport", "privacy_report"],
    "_workflow.search": ["PrivateSearch"],
    "_workflow.shape_display": ["ShapeDisplay"],
}
_MODULES = {name: f"dpsubspace.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "ClusterError",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyWarning",
    "PublicDataWarning",
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    """Import what is asked for; give what has another name now, with a warning."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name == "Buy":
        warnings.warn(
            "`dpsubspace.Buy` is called `PrivateRange` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return __getattr__("PrivateRange")
    if name == "principal_angles":
        warnings.warn(
            "`dpsubspace.principal_angles` goes in version 0.3: `scipy.linalg.subspace_angles` of"
            " transposed components gives the same angles, to about 1e-8.",
            FutureWarning,
            stacklevel=2,
        )
        return importlib.import_module("dpsubspace._public.subspace").principal_angles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
