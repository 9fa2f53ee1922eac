"""Type checkers read the public names here."""

from dpsubspace.tables._table_encoder import TableEncoder as TableEncoder
from dpsubspace.tables._tabular import (
    TabularPipeline as TabularPipeline,
    tabular_pipeline as tabular_pipeline,
)
from dpsubspace._core.tables.kinds import (
    Categories as Categories,
    Date as Date,
    PrivateRange as PrivateRange,
    Range as Range,
    Text as Text,
)
from dpsubspace._core.tables.schema import Schema as Schema
