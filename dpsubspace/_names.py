"""Public names by their subjects, and the module that has each of them.

Modules are imported when one of their names is first asked for: few programs need them all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)

SUBJECTS = {
    "linear_model": {
        "_estimators.dpsgd": ["DPSGDClassifier", "DPSGDFClassifier", "DPSGDRegressor"],
        "_estimators.gep": ["GEPClassifier", "GEPRegressor"],
        "_estimators.guide": ["GradientDirections"],
        "_estimators.personal": ["PersonalizedLinearRegression"],
        "_estimators.personal_fit": ["SharedLinearModel", "SharedLogisticModel"],
        "_estimators.personal_logistic": ["PersonalizedLogisticRegression"],
        "_estimators.regression": ["DPLinearRegression", "PublicSubspaceLinearRegression"],
    },
    "neural_network": {
        "_estimators.torch_features": ["TorchFeatures"],
        "_estimators.torch_models": ["DPModuleClassifier", "DPModuleRegressor"],
    },
    "decomposition": {"_estimators.pca": ["DPPCA"]},
    "preprocessing": {"_estimators.scaler": ["BoundedScaler"]},
    "tables": {
        "_estimators.table_encoder": ["TableEncoder"],
        "_estimators.tabular": ["TabularPipeline", "tabular_pipeline"],
        "_tables.kinds": ["Categories", "PrivateRange", "Range"],
        "_tables.schema": ["Schema"],
    },
    "calibration": {
        "_estimators.calibrated": ["DPCalibratedClassifier"],
        "_estimators.conformal": ["DPConformalClassifier", "DPConformalRegressor"],
    },
    "statistics": {
        "_accounting.guarantee": ["Released"],
        "_estimators.coefficients": ["PrivateCoefficients", "private_coefficients"],
        "_estimators.diagnostics": ["Spread", "private_spread"],
        "_estimators.functions": ["private_covariance", "private_mean", "private_quantile"],
        "_estimators.table_counts": ["PrivateCounts", "private_counts"],
        "_estimators.table_summary": ["PrivateSummary", "private_summary"],
        "_workflow.coefficient_display": ["CoefficientDisplay"],
        "_workflow.counts_display": ["PrivateCountsDisplay"],
    },
    "metrics": {
        "_estimators.private_scores": ["private_score"],
        "_estimators.score_request": ["PrivateScore"],
        "_statistics.score_cells": ["ScoreCells"],
        "_workflow.evaluation": [
            "PrivacyUtilityDisplay",
            "PrivateCalibrationDisplay",
            "PrivateRocCurveDisplay",
        ],
    },
    "public_data": {
        "_estimators.choice": ["PublicChoice", "select_public"],
        "_estimators.diagnostics": ["ProjectionError", "private_projection_error"],
        "_estimators.distances": ["optimal_transport_distance", "task2vec_distance"],
        "_estimators.gsd": ["GSDScorer", "SubspaceDistance", "gradient_subspace_distance"],
        "_public.subspace": ["subspace_distance"],
        "_workflow.projection_display": ["ProjectionErrorDisplay"],
        "_workflow.ranking": ["GSDRankingDisplay"],
    },
    "inspection": {
        "_workflow.importance_display": ["ImportanceDisplay"],
        "_workflow.shape_display": ["ShapeDisplay"],
    },
    "model_selection": {"_workflow.search": ["PrivateSearch"]},
    "budget": {
        "_accounting.guarantee": ["PrivacyGuarantee"],
        "_workflow.budget_display": ["BudgetDisplay"],
        "_workflow.journal": ["LedgerEntry"],
        "_workflow.ledger": ["PrivacyLedger"],
        "_workflow.planner": ["privacy_cost", "privacy_event", "share_budget"],
    },
    "audit": {
        "_workflow.audit": ["AuditDisplay", "AuditResult", "audit_epsilon", "audit_estimator"],
    },
    "reports": {"_workflow.report": ["PrivacyReport", "privacy_report"]},
}

_OTHERS = {
    "exceptions": {
        "exceptions": [
            "ClusterError",
            "PrivacyBudgetError",
            "PrivacyError",
            "PrivacyWarning",
            "PublicDataWarning",
        ]
    },
    "": {"_estimators.saved": ["load"]},
}

# What a first hour needs, which is at the top of the package as well.
TOP = [
    *("tabular_pipeline", "Schema", "Range", "PrivateRange", "Categories"),
    *("DPSGDFClassifier", "DPSGDClassifier", "DPSGDRegressor", "GEPClassifier"),
    *("DPLinearRegression", "DPPCA", "BoundedScaler"),
    *("private_mean", "private_counts", "private_summary", "private_coefficients"),
    *("private_score", "PrivacyLedger", "privacy_cost", "privacy_report"),
    *("PrivateSearch", "select_public", "load", "PrivacyError", "PrivacyWarning"),
]

# Where each public name is imported from, and the module that has it.
PLACES, _MODULES = {}, {}
for _subject, _modules in {**SUBJECTS, **_OTHERS}.items():
    for _module, _names in _modules.items():
        PLACES |= dict.fromkeys(_names, ".".join(["dpsubspace", *filter(None, [_subject])]))
        _MODULES |= dict.fromkeys(_names, f"dpsubspace.{_module}")


def imported(name: str) -> Any:
    """What has a public name."""
    return getattr(importlib.import_module(_MODULES[name]), name)


def exported(subject: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a subject."""
    whole = f"dpsubspace.{subject}"
    names = sorted(name for name, place in PLACES.items() if place == whole)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {whole!r} has no attribute {name!r}")
        return imported(name)

    return names, get, lambda: names


def public(cls: _C) -> _C:
    """Let a public class say that it is of its subject, wherever its code stands.

    Saved models then name no file of the package, so that code can move.
    """
    place = PLACES[cls.__name__]
    importlib.import_module(place)  # cloudpickle takes a class of no module for one of a notebook
    cls.__module__ = place
    return cls
