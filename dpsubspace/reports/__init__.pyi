"""Type checkers read the public names here."""

from dpsubspace._workflow.report import (
    PrivacyReport as PrivacyReport,
)
from dpsubspace._workflow.report import (
    privacy_report as privacy_report,
)
