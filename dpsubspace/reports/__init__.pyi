"""Type checkers read the public names here."""

from dpsubspace.reports._report import (
    PrivacyReport as PrivacyReport,
    privacy_report as privacy_report,
)
