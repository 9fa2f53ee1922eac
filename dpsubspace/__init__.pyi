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
from dpsubspace._estimators.choice import select_public as select_public
from dpsubspace._estimators.coefficients import private_coefficients as private_coefficients
from dpsubspace._estimators.dpsgd import (
    DPSGDClassifier as DPSGDClassifier,
    DPSGDFClassifier as DPSGDFClassifier,
    DPSGDRegressor as DPSGDRegressor,
)
from dpsubspace._estimators.functions import private_mean as private_mean
from dpsubspace._estimators.gep import GEPClassifier as GEPClassifier
from dpsubspace._estimators.pca import DPPCA as DPPCA
from dpsubspace._estimators.private_scores import private_score as private_score
from dpsubspace._estimators.regression import DPLinearRegression as DPLinearRegression
from dpsubspace._estimators.saved import load as load
from dpsubspace._estimators.scaler import BoundedScaler as BoundedScaler
from dpsubspace._estimators.table_counts import private_counts as private_counts
from dpsubspace._estimators.table_summary import private_summary as private_summary
from dpsubspace._estimators.tabular import tabular_pipeline as tabular_pipeline
from dpsubspace._tables.kinds import (
    Categories as Categories,
    PrivateRange as PrivateRange,
    Range as Range,
)
from dpsubspace._tables.schema import Schema as Schema
from dpsubspace._workflow.ledger import PrivacyLedger as PrivacyLedger
from dpsubspace._workflow.planner import privacy_cost as privacy_cost
from dpsubspace._workflow.report import privacy_report as privacy_report
from dpsubspace._workflow.search import PrivateSearch as PrivateSearch
from dpsubspace.exceptions import (
    PrivacyError as PrivacyError,
    PrivacyWarning as PrivacyWarning,
)

__version__: str
