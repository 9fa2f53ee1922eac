"""Public names by their subjects, and the module that defines each of them.

A module is imported when one of its names is first used: few programs need all modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)

SUBJECTS = {
    "linear_model": {
        "linear_model._dpsgd": ["DPSGDClassifier", "DPSGDFClassifier", "DPSGDRegressor"],
        "linear_model._gep": ["GEPClassifier", "GEPRegressor"],
        "_core.plans.guide": ["GradientDirections"],
        "linear_model._personal": ["PersonalizedLinearRegression"],
        "_core.plans.personal": ["SharedLinearModel", "SharedLogisticModel"],
        "linear_model._personal_logistic": ["PersonalizedLogisticRegression"],
        "linear_model._regression": ["DPLinearRegression", "PublicSubspaceLinearRegression"],
    },
    "neural_network": {
        "neural_network._torch_features": ["TorchFeatures"],
        "neural_network._torch_models": ["DPModuleClassifier", "DPModuleRegressor"],
    },
    "decomposition": {"decomposition._pca": ["DPPCA"]},
    "preprocessing": {"preprocessing._scaler": ["BoundedScaler"]},
    "tables": {
        "tables._table_encoder": ["TableEncoder"],
        "tables._tabular": ["TabularPipeline", "tabular_pipeline"],
        "_core.tables.kinds": ["Categories", "Date", "PrivateRange", "Range", "Text"],
        "_core.tables.schema": ["Schema"],
    },
    "calibration": {
        "calibration._calibrated": ["DPCalibratedClassifier"],
        "calibration._conformal": ["DPConformalClassifier", "DPConformalRegressor"],
    },
    "statistics": {
        "_core.accounting.guarantee": ["Released"],
        "statistics._coefficients": ["PrivateCoefficients", "private_coefficients"],
        "public_data._diagnostics": ["Spread", "private_spread"],
        "statistics._functions": ["private_covariance", "private_mean", "private_quantile"],
        "statistics._table_counts": ["PrivateCounts", "private_counts"],
        "statistics._table_summary": ["PrivateSummary", "private_summary"],
        "statistics._coefficient_display": ["CoefficientDisplay"],
        "statistics._counts_display": ["PrivateCountsDisplay"],
    },
    "metrics": {
        "metrics._private_scores": ["private_score"],
        "metrics._score_difference": ["PrivateScoreDifference", "private_score_difference"],
        "_core.plans.score_request": ["PrivateScore"],
        "_core.statistics.score_cells": ["ScoreCells"],
        "metrics._evaluation": [
            "PrivacyUtilityDisplay",
            "PrivateCalibrationDisplay",
            "PrivateRocCurveDisplay",
        ],
    },
    "public_data": {
        "public_data._choice": ["PublicChoice", "select_public"],
        "public_data._diagnostics": ["ProjectionError", "private_projection_error"],
        "public_data._distances": ["optimal_transport_distance", "task2vec_distance"],
        "public_data._gsd": ["GSDScorer", "SubspaceDistance", "gradient_subspace_distance"],
        "_core.public.subspace": ["subspace_distance"],
        "public_data._projection_display": ["ProjectionErrorDisplay"],
        "public_data._ranking": ["GSDRankingDisplay"],
    },
    "inspection": {
        "inspection._importance_display": ["ImportanceDisplay"],
        "inspection._shape_display": ["ShapeDisplay"],
    },
    "model_selection": {"model_selection._search": ["PrivateSearch"]},
    "budget": {
        "_core.accounting.guarantee": ["PrivacyGuarantee"],
        "reports._budget_display": ["BudgetDisplay"],
        "budget._journal": ["LedgerEntry"],
        "budget._ledger": ["PrivacyLedger"],
        "budget._planner": ["privacy_cost", "privacy_event", "share_budget"],
        "metrics._planned_accuracy": ["AccuracyPlan", "plan_accuracy"],
    },
    "audit": {
        "audit._audit": ["AuditDisplay", "AuditResult", "audit_epsilon", "audit_estimator"],
    },
    "reports": {"reports._report": ["PrivacyReport", "privacy_report"]},
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
    "": {"_core.fits.saved": ["load"]},
}

# Names for a first hour with the package, which the top level has as well.
TOP = [
    *("tabular_pipeline", "Schema", "Range", "PrivateRange", "Categories"),
    *("DPSGDFClassifier", "DPSGDClassifier", "DPSGDRegressor", "GEPClassifier"),
    *("DPLinearRegression", "DPPCA", "BoundedScaler"),
    *("private_mean", "private_counts", "private_summary", "private_coefficients"),
    *("private_score", "PrivacyLedger", "privacy_cost", "privacy_report"),
    *("PrivateSearch", "select_public", "load", "PrivacyError", "PrivacyWarning"),
]

# The package that each public name is imported from, and the module that defines it.
PLACES, _MODULES = {}, {}
for _subject, _modules in {**SUBJECTS, **_OTHERS}.items():
    for _module, _names in _modules.items():
        PLACES |= dict.fromkeys(_names, ".".join(["dpsubspace", *filter(None, [_subject])]))
        _MODULES |= dict.fromkeys(_names, f"dpsubspace.{_module}")


def imported(name: str) -> Any:
    """Import and return the object with a public name."""
    return getattr(importlib.import_module(_MODULES[name]), name)


def exported(subject: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a subject."""
    whole = f"dpsubspace.{subject}"
    names = sorted(name for name, place in PLACES.items() if place == whole)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {whole!r} has no attribute {name!r}")
        return imported(name)

    return names, get, lambda: names


def public(cls: _C) -> _C:
    """Set ``__module__`` of a public class to its subject, wherever its code is.

    Saved models then name no file of the package, so that code can move.
    """
    place = PLACES[cls.__name__]
    importlib.import_module(place)  # cloudpickle treats a class of no module as a notebook's
    cls.__module__ = place
    return cls
