"""Type checkers read the public names here."""

from dpsubspace._workflow.audit import (
    AuditDisplay as AuditDisplay,
)
from dpsubspace._workflow.audit import (
    AuditResult as AuditResult,
)
from dpsubspace._workflow.audit import (
    audit_epsilon as audit_epsilon,
)
from dpsubspace._workflow.audit import (
    audit_estimator as audit_estimator,
)
