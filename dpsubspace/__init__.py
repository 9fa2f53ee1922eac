"""Differentially private learning for scikit-learn that knows how to use public data."""

from dpsubspace._linear import DPSGDClassifier, DPSGDFClassifier
from dpsubspace._privacy import PrivacyGuarantee, PrivacyLedger
from dpsubspace.exceptions import PrivacyBudgetError, PrivacyError, PrivacyWarning

__version__ = "0.1.0.dev0"

__all__ = [
    "DPSGDClassifier",
    "DPSGDFClassifier",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyGuarantee",
    "PrivacyLedger",
    "PrivacyWarning",
]
