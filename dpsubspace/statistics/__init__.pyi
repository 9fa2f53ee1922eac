"""Type checkers read the public names here."""

from dpsubspace._accounting.guarantee import Released as Released
from dpsubspace._estimators.coefficients import (
    PrivateCoefficients as PrivateCoefficients,
    private_coefficients as private_coefficients,
)
from dpsubspace._estimators.diagnostics import (
    Spread as Spread,
    private_spread as private_spread,
)
from dpsubspace._estimators.functions import (
    private_covariance as private_covariance,
    private_mean as private_mean,
    private_quantile as private_quantile,
)
from dpsubspace._estimators.table_counts import (
    PrivateCounts as PrivateCounts,
    private_counts as private_counts,
)
from dpsubspace._estimators.table_summary import (
    PrivateSummary as PrivateSummary,
    private_summary as private_summary,
)
from dpsubspace._workflow.coefficient_display import CoefficientDisplay as CoefficientDisplay
from dpsubspace._workflow.counts_display import PrivateCountsDisplay as PrivateCountsDisplay
