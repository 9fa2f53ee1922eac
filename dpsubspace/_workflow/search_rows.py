"""Rows of a private search: those that trials are fitted to, and those that they are scored on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from dpsubspace._accounting.permission import inside_ledger
from dpsubspace._checks import is_collection, refuse_collection, unwrapped
from dpsubspace._estimators.composites import opened
from dpsubspace._estimators.model_outputs import by_record, taken
from dpsubspace._estimators.table_encoder import TableEncoder
from dpsubspace._estimators.tabular import TabularPipeline
from dpsubspace._rows.blocks import ROWS
from dpsubspace._rows.columns import as_column, read_labels
from dpsubspace._rows.dask_parts import in_the_same_blocks
from dpsubspace._rows.elsewhere import load
from dpsubspace._rows.inputs import (
    check_of_blocks,
    check_rows_and_labels,
    check_rows_and_targets,
    checked_by,
)
from dpsubspace._rows.positions import at_positions, check_positions
from dpsubspace._rows.records import (
    Records,
    check_groups,
    check_order,
    groups_of_rows,
    split_groups,
)
from dpsubspace._rows.same_rows import named_sets, refuse_private_rows, refuse_shared
from dpsubspace._tables.schema import as_schema, read_table
from dpsubspace.exceptions import PrivacyError

# What a scoring says -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Says:
    """What a scoring says of a model by some rows: nothing that it does is released."""

    model: Any
    scoring: Callable[..., Any]
    delta: float
    by_row: bool  # Whether each row is a record

    def __call__(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        """One number a row, which is 0 where nothing can be said of it."""
        found = self._values(X, y)
        if found is None and self.by_row:
            found = self._of_those_that_can(X, y)
        return {ROWS: np.zeros(len(y)) if found is None else found}

    def _of_those_that_can(self, X: Any, y: np.ndarray) -> np.ndarray:
        """The same where some rows raise, which must change the scores of no others.

        A copy of a row that does not raise is shown in the place of each of these. So all others
        are shown in one call, as many together and each at its place, as if none had raised:
        BLAS rounds the product of a row by these, and so may a score be rounded.
        """
        each = [self._values(taken(X, np.array([i])), y[[i]]) for i in range(len(y))]
        fine = np.array([one is not None for one in each])
        shown = np.where(fine, np.arange(len(y)), np.argmax(fine))
        found = self._values(taken(X, shown), y[shown])
        if found is None:  # it compares rows, and has no say of any
            found = np.array([0.0 if one is None else one[0] for one in each])
        return np.where(fine, found, 0.0)

    def _values(self, X: Any, y: np.ndarray) -> np.ndarray | None:
        try:
            with inside_ledger(self.delta, _refused):
                found = np.asarray(self.scoring(self.model, X, y), dtype=np.float64)
        except Exception:
            return None
        return found if found.shape == (len(y),) else None


def _refused(guarantee: Any) -> None:
    """What scores a model has no budget to release anything: only the score itself was paid for."""
    raise PrivacyError("a `scoring` must not fit or release anything.")


@dataclass(frozen=True)
class _BlockOfValues:
    """The same of a block of rows, where it lies: the model and the scoring are copied there."""

    says: Says
    targets: Callable[[Any], np.ndarray]

    def __call__(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        return self.says(X, self.targets(y)) if len(X) else {ROWS: np.empty(0)}


# Rows of all trials -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    # What is passed to ``fit``: "X", "y", "groups", "X_public" and "y_public".
    train: Mapping[str, Any]
    X: Any  # Rows and targets to score
    y: Any
    # Whose those rows are; None where they are public, and their mean is not noisy.
    records: Records | None
    unit: str  # What a record is called

    def said(self, says: Says | None) -> tuple[Any, Records | None]:
        """What is said of each row to score, which is 0 by None, and whose they are."""
        if says is None:
            return np.zeros(len(self.y)), self.records
        records = Records.of_rows(len(self.y)) if self.records is None else self.records
        return by_record(self.X, records, lambda X, some: says(X, self.y[some]))[ROWS], self.records


@dataclass(frozen=True)
class _RowsInParts(Rows):
    """The same of Dask collections, which each trial reads, and scores where they lie."""

    targets: Callable[[Any], np.ndarray]  # What checks those of a block
    groups: Any  # Whose the rows to score are, as it was given

    def said(self, says: Says | None) -> tuple[Any, Records | None]:
        assert self.records is not None
        if says is None:
            return np.zeros(self.records.n), self.records
        values = load(self.X, self.y, _BlockOfValues(says, self.targets))[ROWS]
        return values, check_groups(self.groups, values)


# Rows as they are given --------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Checked rows and targets of a search, which are not yet shared out."""

    X: Any
    y: Any

    @classmethod
    def checked(
        cls, search: Any, X: Any, y: Any, groups: Any, *, table: bool
    ) -> tuple[Given, Any, Any]:
        """ValueError where they cannot be used. With what there is one of for each row and target.

        `table` leaves the rows of a data frame to the checks of the candidates.
        """
        if is_collection(X):
            if split_groups(groups)[0] is not None:
                raise ValueError(
                    "a search on Dask collections does not take `groups`, since persons would have"
                    " to be shared out as a whole: pass rows in memory, keep one row of each"
                    " person, or fit a single model."
                )
            return _GivenInParts.read(search, X, y, table=table)
        X, y = unwrapped("X", X), unwrapped("y", y)
        refuse_collection("X", X)
        refuse_collection("y", y)
        check_order(X, y=y, groups=groups)
        if table:
            read = as_column if is_regressor(search.estimator) else read_labels
            y = checked_by(np.asarray, read(y))
            if not hasattr(X, "columns") or len(X) != len(y):
                raise ValueError(
                    "a ColumnTransformer or a TableEncoder needs a data frame `X` with a `y` of its"
                    " length."
                )
            search.n_features_in_ = X.shape[1]
            return cls(X, y), X, y
        rows, y = _check_of(search)(search, X, y)
        X = X if hasattr(X, "iloc") else rows
        return cls(X, y), X, y

    def refuse_private(
        self, estimator: Any, checked: Any, name: str, X_public: Any, y_public: Any
    ) -> None:
        """ValueError where public rows or targets are those of the search, by all trials alike."""
        sets = named_sets(f"X_{name}", X_public)
        refuse_shared(self.X, sets)
        refuse_shared(self.y, named_sets(f"y_{name}", y_public), "y")
        found = _compared(estimator, {"X": self.X, **sets})
        refuse_private_rows(found.pop("X", None), found)

    def check_candidates(self, candidates: Iterable[Any]) -> None:
        """ValueError where one of them cannot be fitted to such rows, whatever these hold."""

    def shared_out(
        self, scored: np.ndarray, held: np.ndarray, records: Records, train: Mapping[str, Any]
    ) -> Rows:
        """Train on all rows but those `scored`, which are those of the records `held`."""
        rows, fitted = np.flatnonzero(scored), np.flatnonzero(~scored)
        groups = groups_of_rows(train["groups"], fitted)
        of_fit = {**train, "groups": groups, "X": taken(self.X, fitted), "y": self.y[fitted]}
        return Rows(of_fit, taken(self.X, rows), self.y[rows], records.taken(held), records.unit)


def _compared(estimator: Any, sets: Mapping[str, Any]) -> dict[str, Any]:
    """Sets of rows as they can be compared before a fit reads them; none where they cannot.

    They are read by the schema of a table if there is one, and else as columns of numbers. A Dask
    collection of public rows is refused here, before all of it would be read.
    """
    for name, rows in sets.items():
        refuse_collection(name, rows)
    inside = (node.model for node in opened(estimator).walk(frozen=False))
    encoder = next((each for each in inside if type(each) is TableEncoder), None)
    found: dict[str, Any] = {}
    with suppress(ValueError, TypeError):  # the fits say what is wrong, in their own words
        for name, rows in sets.items():
            if encoder is not None:
                found[name] = read_table(rows, as_schema(encoder.schema))
            elif sparse.issparse(rows):
                found[name] = sparse.csr_array(rows)
            else:
                is_frame = hasattr(rows, "select_dtypes")
                numbers = rows.select_dtypes("number") if is_frame else rows
                found[name] = np.asarray(numbers, dtype=np.float64)
    widths = {rows.shape[1:] for rows in found.values() if encoder is None}
    return found if len(found) == len(sets) and len(widths) < 2 else {}


@dataclass(frozen=True)
class _GivenInParts(Given):
    """The same of Dask collections, which each trial reads again.

    Rows are chosen by their positions. These follow from the lengths of blocks, which are public
    here: a record has the same one in two neighbours, and so has each other record. So it is
    trained on or scored, in all trials alike.
    """

    lengths: Sequence[int]  # Rows of each block, public
    targets: Callable[[Any], np.ndarray]  # What checks those of a block

    def refuse_private(
        self, estimator: Any, checked: Any, name: str, X_public: Any, y_public: Any
    ) -> None:
        found = _compared(estimator, named_sets(f"X_{name}", X_public))
        if all(rows.shape[1:] == checked.shape[1:] for rows in found.values()):
            refuse_private_rows(checked, found)  # of a table these are targets, of no such shape

    @classmethod
    def read(cls, search: Any, X: Any, y: Any, *, table: bool) -> tuple[Given, Any, Any]:
        if effective_n_jobs(search.n_jobs) != 1:
            raise ValueError(
                "`n_jobs` must be 1 for Dask collections, also in a parallel_config: each trial"
                " uses all workers of the cluster."
            )
        targets = check_of_blocks(search.estimator, y)
        check_positions("X", X)
        check_positions("y", y)
        if table:
            rows: Any = load(X, y, _BlockOfTargets(targets))[ROWS]
            found = rows
            search.n_features_in_ = X.shape[1]
        else:
            rows, found = _check_of(search)(search, X, y)
        return cls(X, y, rows.parts.lengths, targets), rows, found

    def check_candidates(self, candidates: Iterable[Any]) -> None:
        for candidate in candidates:
            for node in opened(candidate.estimator).walk():
                if not _takes_collections(node.model):
                    raise ValueError(
                        f"{type(node.model).__name__}, which a candidate has, does not take Dask"
                        " collections: pass X.compute() and y.compute() where they fit into"
                        " memory, or leave these candidates out."
                    )

    def shared_out(
        self, scored: np.ndarray, held: np.ndarray, records: Records, train: Mapping[str, Any]
    ) -> Rows:
        blocks = in_the_same_blocks(self.X, self.y)
        X, y = (at_positions(each, self.lengths, ~scored) for each in blocks)
        X_val, y_val = (at_positions(each, self.lengths, scored) for each in blocks)
        of_fit, of_score = (groups_of_rows(train["groups"], rows) for rows in (~scored, scored))
        of_fit = {**train, "groups": of_fit, "X": X, "y": y}
        whose = Records.of_rows(len(held))
        return _RowsInParts(of_fit, X_val, y_val, whose, records.unit, self.targets, of_score)


@dataclass(frozen=True)
class _BlockOfTargets:
    """Checks the targets of a block of a table, whose columns the candidates check."""

    targets: Callable[[Any], np.ndarray]

    def __call__(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        check_order(X, y=y)
        found = self.targets(y)
        if len(found) != len(X):
            raise ValueError("`X` and `y` must have one entry for each row: compare their lengths.")
        return {ROWS: found}


def _check_of(search: Any) -> Callable[..., Any]:
    return check_rows_and_targets if is_regressor(search.estimator) else check_rows_and_labels


def _takes_collections(model: Any) -> bool:
    """Whether a model, apart from what is inside of it, works on Dask collections."""
    if model is None or isinstance(model, str):
        return True
    known = (Pipeline, TabularPipeline, TableEncoder, FrozenEstimator)
    return type(model) in known or getattr(model, "_takes_collections", False)
