"""Type checkers read the public names here."""

from dpsubspace.audit._audit import (
    AuditDisplay as AuditDisplay,
    AuditResult as AuditResult,
    audit_epsilon as audit_epsilon,
    audit_estimator as audit_estimator,
)
