"""Type checkers read the public names here."""

from dpsubspace._estimators.table_encoder import TableEncoder as TableEncoder
from dpsubspace._estimators.tabular import (
    TabularPipeline as TabularPipeline,
    tabular_pipeline as tabular_pipeline,
)
from dpsubspace._tables.kinds import (
    Categories as Categories,
    PrivateRange as PrivateRange,
    Range as Range,
)
from dpsubspace._tables.schema import Schema as Schema
