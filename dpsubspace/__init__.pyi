"""Type checkers read the public names here: `__init__.py` imports them when they are asked for."""

from dpsubspace import (
    audit as audit,
    budget as budget,
    calibration as calibration,
    decomposition as decomposition,
    exceptions as exceptions,
    inspection as inspection,
    linear_model as linear_model,
    metrics as metrics,
    model_selection as model_selection,
    neural_network as neural_network,
    preprocessing as preprocessing,
    public_data as public_data,
    reports as reports,
    statistics as statistics,
    tables as tables,
)
from dpsubspace.public_data._choice import select_public as select_public
from dpsubspace.statistics._coefficients import private_coefficients as private_coefficients
from dpsubspace.linear_model._dpsgd import (
    DPSGDClassifier as DPSGDClassifier,
    DPSGDFClassifier as DPSGDFClassifier,
    DPSGDRegressor as DPSGDRegressor,
)
from dpsubspace.statistics._functions import private_mean as private_mean
from dpsubspace.linear_model._gep import GEPClassifier as GEPClassifier
from dpsubspace.decomposition._pca import DPPCA as DPPCA
from dpsubspace.metrics._private_scores import private_score as private_score
from dpsubspace.linear_model._regression import DPLinearRegression as DPLinearRegression
from dpsubspace._core.fits.saved import load as load
from dpsubspace.preprocessing._scaler import BoundedScaler as BoundedScaler
from dpsubspace.statistics._table_counts import private_counts as private_counts
from dpsubspace.statistics._table_summary import private_summary as private_summary
from dpsubspace.tables._tabular import tabular_pipeline as tabular_pipeline
from dpsubspace._core.tables.kinds import (
    Categories as Categories,
    PrivateRange as PrivateRange,
    Range as Range,
)
from dpsubspace._core.tables.schema import Schema as Schema
from dpsubspace.budget._ledger import PrivacyLedger as PrivacyLedger
from dpsubspace.budget._planner import privacy_cost as privacy_cost
from dpsubspace.reports._report import privacy_report as privacy_report
from dpsubspace.model_selection._search import PrivateSearch as PrivateSearch
from dpsubspace.exceptions import (
    PrivacyError as PrivacyError,
    PrivacyWarning as PrivacyWarning,
)

__version__: str
