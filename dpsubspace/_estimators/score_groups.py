"""Public groups that scores are split by: which there are is given, and never read from rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._checks import shown
from dpsubspace._rows.fitted_to import models_inside
from dpsubspace._tables.columns import names_of
from dpsubspace._tables.frames import read_table
from dpsubspace._tables.kinds import Categories
from dpsubspace._tables.schema import Schema, as_schema

__all__ = ["PublicGroups"]


@dataclass(frozen=True, eq=False)
class PublicGroups:
    """Groups of rows by a public list of levels.

    Parameters
    ----------
    levels : tuple
        Values that groups have, public.
    group : ndarray of shape (n_rows,)
        Place of the value of each row among the levels, and their number where it is none of
        them: such rows are in no group. Private.
    """

    levels: tuple[Any, ...]
    group: np.ndarray

    @property
    def n_groups(self) -> int:
        """Number of groups, with that of all rows that are in none."""
        return len(self.levels) + 1

    @classmethod
    def of(cls, by: Any, model: Any, X: Any, n_rows: int) -> PublicGroups:
        """ValueError unless levels are known beforehand and there is a value for each row."""
        frame, name, kind = _column(by, model, X)
        kind = Categories(kind.values, missing=True)
        codes = read_table(frame, Schema({name: kind}), name="by").codes[:, 0]
        if len(codes) != n_rows:
            raise ValueError(
                "`by` must have one entry for each row of `X`, and has more or fewer: compare"
                " len(by[0]) and len(X)."
            )
        return cls(kind.values, np.where(codes < 0, len(kind.values), codes))


def _column(by: Any, model: Any, X: Any) -> tuple[Any, str, Categories]:
    """Where values are read from, the name of the column, and what is public about it."""
    if isinstance(by, tuple) and len(by) == 2 and not isinstance(by[0], str):
        entries, levels = by
        values = entries if hasattr(entries, "dtype") else np.array(entries, dtype=object)
        return np.asarray(values).reshape(-1, 1), "by", _levels(levels)
    if isinstance(by, Mapping) and len(by) == 1:
        ((name, levels),) = by.items()
        kind = _levels(levels)
    elif isinstance(by, str):
        name, kind = by, _of_schemas(by, model)
    else:
        raise ValueError(
            "`by` must be the name of a column of categories in the schema of the model, or a dict"
            " of a column and its levels such as {'sex': ['f', 'm']}, or a tuple (entries, levels)"
            f" with an entry for each row, got {shown(by) if not hasattr(by, 'shape') else 'an'}"
            f"{' array' if hasattr(by, 'shape') else ''}. Levels are public: they are never read"
            " from the rows."
        )
    if names_of(X) is None:
        raise ValueError(
            f"`by` names the column {shown(name)}, and the columns of `X` have no names: pass a"
            " data frame, or by=(entries, levels)."
        )
    return X, name, kind


def _levels(levels: Any) -> Categories:
    """Levels that were given."""
    try:
        return levels if isinstance(levels, Categories) else Categories(levels)
    except ValueError as error:
        raise ValueError(f"the levels of `by` cannot be used: {error}") from None


def _of_schemas(name: str, model: Any) -> Categories:
    """What the schema of a model says about a column."""
    schemas = (getattr(part, "schema", None) for part in models_inside(model))
    for schema in (as_schema(each) for each in schemas if isinstance(each, Mapping)):
        kind = schema.get(name)
        if isinstance(kind, Categories):
            return kind
        if kind is not None:
            raise ValueError(
                f"`by` names the column {shown(name)}, which is {shown(kind)} in the schema, and"
                " groups need categories: pass a column of groups with its levels, by=(entries,"
                " levels)."
            )
    raise ValueError(
        f"no schema of the model says which levels the column {shown(name)} of `by` has: pass them,"
        f" as in by={{{name!r}: ['a', 'b']}}. They are public, and never read from the rows."
    )
