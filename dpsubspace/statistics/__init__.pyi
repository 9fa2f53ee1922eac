"""Type checkers read the public names here."""

from dpsubspace._core.accounting.guarantee import Released as Released
from dpsubspace.statistics._coefficients import (
    PrivateCoefficients as PrivateCoefficients,
    private_coefficients as private_coefficients,
)
from dpsubspace.public_data._diagnostics import (
    Spread as Spread,
    private_spread as private_spread,
)
from dpsubspace.statistics._functions import (
    private_covariance as private_covariance,
    private_mean as private_mean,
    private_quantile as private_quantile,
)
from dpsubspace.statistics._table_counts import (
    PrivateCounts as PrivateCounts,
    private_counts as private_counts,
)
from dpsubspace.statistics._table_summary import (
    PrivateSummary as PrivateSummary,
    private_summary as private_summary,
)
from dpsubspace.statistics._coefficient_display import CoefficientDisplay as CoefficientDisplay
from dpsubspace.statistics._counts_display import PrivateCountsDisplay as PrivateCountsDisplay
