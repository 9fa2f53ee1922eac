"""Type checkers read the public names here."""

from dpsubspace._accounting.guarantee import (
    Released as Released,
)
from dpsubspace._estimators.coefficients import (
    PrivateCoefficients as PrivateCoefficients,
)
from dpsubspace._estimators.coefficients import (
    private_coefficients as private_coefficients,
)
from dpsubspace._estimators.diagnostics import (
    Spread as Spread,
)
from dpsubspace._estimators.diagnostics import (
    private_spread as private_spread,
)
from dpsubspace._estimators.functions import (
    private_covariance as private_covariance,
)
from dpsubspace._estimators.functions import (
    private_mean as private_mean,
)
from dpsubspace._estimators.functions import (
    private_quantile as private_quantile,
)
from dpsubspace._estimators.table_counts import (
    PrivateCounts as PrivateCounts,
)
from dpsubspace._estimators.table_counts import (
    private_counts as private_counts,
)
from dpsubspace._estimators.table_summary import (
    PrivateSummary as PrivateSummary,
)
from dpsubspace._estimators.table_summary import (
    private_summary as private_summary,
)
from dpsubspace._workflow.coefficient_display import (
    CoefficientDisplay as CoefficientDisplay,
)
from dpsubspace._workflow.counts_display import (
    PrivateCountsDisplay as PrivateCountsDisplay,
)
