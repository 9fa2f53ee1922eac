"""Differentially private learning for scikit-learn."""

from dpsubspace._audit import AuditResult, audit_epsilon, one_run_audit
from dpsubspace._display import PrivacyUtilityDisplay
from dpsubspace._gep import GEPClassifier, GEPRegressor
from dpsubspace._ledger import PrivacyLedger
from dpsubspace._linear import DPSGDClassifier, DPSGDFClassifier
from dpsubspace._pca import DPPCA
from dpsubspace._privacy import PrivacyGuarantee
from dpsubspace._private import Released
from dpsubspace._regression import DPSGDRegressor
from dpsubspace._scaler import BoundedScaler
from dpsubspace._statistics import private_covariance, private_mean, private_quantile
from dpsubspace._torch import TorchFeatures
from dpsubspace.exceptions import (
    PrivacyBudgetError,
    PrivacyError,
    PrivacyWarning,
    PublicDataWarning,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "DPPCA",
    "AuditResult",
    "BoundedScaler",
    "DPSGDClassifier",
    "DPSGDFClassifier",
    "DPSGDRegressor",
    "GEPClassifier",
    "GEPRegressor",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PrivacyUtilityDisplay",
    "PrivacyWarning",
    "PublicDataWarning",
    "Released",
    "TorchFeatures",
    "audit_epsilon",
    "one_run_audit",
    "private_covariance",
    "private_mean",
    "private_quantile",
]
