"""Held-out rows of a score, in memory or in parts, and a model's outputs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.fits.outputs import NUMBERS, Outputs, by_record, check_types_for, threshold_of
from dpsubspace._core.ground.checks import is_collection, is_dataset, refuse_collection, unwrapped
from dpsubspace._core.plans.score_release import RowScores
from dpsubspace._core.plans.score_request import PublicGroups, ScoreRequest
from dpsubspace._core.rows.columns import as_rows
from dpsubspace._core.rows.elsewhere import load
from dpsubspace._core.rows.inputs import (
    check_classes,
    check_rows_and_labels,
    check_rows_and_targets,
    checked_by,
    named,
)
from dpsubspace._core.rows.records import Records, check_groups, check_order, split_groups
from dpsubspace._core.rows.remote import ROWS, RemoteRows

# Names of arrays in parts, beside labels or targets (under the name of rows) and numbers (under
# their own names).
_SCORES, _PREDICTED, _GROUP = "scores", "predicted", "group"


@dataclass(frozen=True)
class ScoredRows:
    """Checked rows, without outputs of a model yet."""

    says: Outputs
    asked: ScoreRequest
    by: PublicGroups | None
    X: Any
    y: np.ndarray  # indices of classes, or targets
    records: Records
    n_features: int

    @classmethod
    def checked(
        cls, says: Outputs, asked: ScoreRequest, by: Any, X: Any, y: Any, groups: Any
    ) -> ScoredRows:
        """Return checked rows; ValueError, which shows no entry, if the data cannot be scored."""
        X = checked_by(as_rows, unwrapped("X", X, read=False))
        refuse_collection("X", X)
        refuse_collection("y", y)
        check_order(X, y=y, groups=groups)
        if getattr(X, "shape", None) == ():
            raise ValueError("`X` must be rows, one a record, got a single value.")
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        blank, estimator = np.zeros((n, 1)), named("private_score")
        if len(says.classes):
            y = _codes(check_rows_and_labels(estimator, blank, y)[1], says.classes)
        else:
            y = check_rows_and_targets(estimator, blank, y)[1]
            if y.size != n:
                raise ValueError(f"`y` must be one target a row, got {y.shape[1]} columns.")
        records, y = check_groups(groups, blank), y.reshape(-1)
        apart = None if by is None else PublicGroups.of(by, says.model, X, len(y))
        return cls(says, asked, apart, X, y, records, _width(says.model, X))

    def compute(self) -> RowScores:
        check_model(self.says, self.asked)
        found = by_record(self.X, self.records, self._outputs)
        return _said(self.says, self.asked, self.by, self.y, self.records, found)

    def _outputs(self, X: Any, rows: Any) -> dict[str, np.ndarray]:
        """Return the outputs of the model for some of the rows."""
        asked, some = self.asked, self.says.of(X, self.y[rows])
        found = {_SCORES: some.scores} if asked.ranked else {}
        found |= {_PREDICTED: some.predicted} if asked.labels else {}
        return found | {name: NUMBERS[name].of(some) for name in _numbers(asked)}


def check_model(says: Outputs, asked: ScoreRequest) -> None:
    """Raise ValueError unless a model has the outputs that metrics need."""
    if "calibration_curve" in asked.plain and not hasattr(says.model, "predict_proba"):
        raise ValueError("metric='calibration_curve' needs a model with `predict_proba`.")


def _numbers(asked: ScoreRequest) -> list[str]:
    """Names of the numbers of each row that metrics need."""
    names = dict.fromkeys(name.partition("^")[0] for name in asked.sums)
    names |= {"error": None} if asked.regression else {}  # a bound on it is found first
    return [*names]


def _said(
    says: Outputs,
    asked: ScoreRequest,
    by: PublicGroups | None,
    y: Any,
    records: Records,
    found: Mapping[str, Any],
) -> RowScores:
    probabilities, threshold = hasattr(says.model, "predict_proba"), None
    if asked.ranked and asked.labels and len(says.classes) == 2:
        threshold = threshold_of(says.model, probabilities=probabilities)
    names = _numbers(asked)
    return RowScores(
        asked,
        y,
        says.classes,
        records,
        found.get(_SCORES),
        probabilities,
        threshold,
        found.get(_PREDICTED),
        {name: found[name] for name in names},
        {name: NUMBERS[name].unit(says) for name in names},
        by,
    )


def _width(model: Any, X: Any) -> int:
    width = X.shape[1] if len(getattr(X, "shape", ())) > 1 else 1
    return getattr(model, "n_features_in_", width)


def _codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    order = np.argsort(classes)
    try:
        return order[check_classes(labels, classes)[1]]
    except (TypeError, ValueError):
        pass
    # Raised outside the handler, so that no chained exception carries an entry.
    raise ValueError(
        "`y` has labels that are not in `model.classes_`: write labels as in the fit of the model,"
        " and drop rows with labels that it does not know."
    )


# Rows in parts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredParts:
    """Checked rows of Dask collections, with all outputs of the model made where blocks lie."""

    says: Outputs
    asked: ScoreRequest
    by: PublicGroups | None
    arrays: Mapping[str, RemoteRows]
    records: Records
    n_features: int

    @classmethod
    def checked(
        cls, says: Outputs, asked: ScoreRequest, by: Any, X: Any, y: Any, groups: Any
    ) -> ScoredParts:
        """Return checked rows; ValueError, which shows no entry, if the data cannot be scored."""
        check_model(says, asked)
        check_types_for(says.model, X)
        levels = None if by is None else PublicGroups.levels_in(by, says.model, X)
        block = _BlockOfScores(says, asked, by, alone=split_groups(groups)[0] is not None)
        arrays = load(X, y, block, *split_groups(groups))
        records = check_groups(groups, arrays[ROWS])
        apart = None if levels is None else PublicGroups(levels, arrays[_GROUP])  # type: ignore[arg-type]
        return cls(says, asked, apart, arrays, records, _width(says.model, X))

    def compute(self) -> RowScores:
        y = self.arrays[ROWS]
        return _said(self.says, self.asked, self.by, y, self.records, self.arrays)


@dataclass(frozen=True)
class _BlockOfScores:
    """Outputs of a model for a block of rows, with labels or targets, made where the block lies.

    A copy of the model is sent there. It is shown a block at a time, which is as public as the
    number of rows is: its output for a row must depend on that row alone, as in memory. Where rows
    belong to persons, how many of them are in a block is private, and one more row of a person may
    move others to another block. So the model is shown each row `alone`, and its output for a row
    is the same wherever the row lies (:func:`~dpsubspace._core.fits.outputs.by_record`).
    """

    says: Outputs
    asked: ScoreRequest
    by: Any
    alone: bool

    def __call__(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a block; ValueError if the block cannot be used."""
        kinds = self._kinds()
        if not len(y):
            return {name: np.empty((0, *shape), kind) for name, (kind, shape) in kinds.items()}
        each = np.arange(len(y)) if self.alone else None  # as if every row were a person
        rows = ScoredRows.checked(self.says, self.asked, self.by, X, y, each)
        found = {ROWS: rows.y} | by_record(X, rows.records, rows._outputs)
        if rows.by is not None:
            found[_GROUP] = rows.by.group
        return {name: found[name].astype(kind) for name, (kind, _) in kinds.items()}

    def _kinds(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Types of the arrays of a block, and their shapes beyond the rows, which are public."""
        n_classes, asked = len(self.says.classes), self.asked
        kinds: dict[str, tuple[Any, tuple[int, ...]]]
        kinds = {ROWS: (np.intp if n_classes else np.float64, ())}
        if asked.ranked:
            kinds[_SCORES] = np.float64, (1 if n_classes == 2 else n_classes,)
        if asked.labels:
            kinds[_PREDICTED] = np.intp, ()
        if self.by is not None:
            kinds[_GROUP] = np.intp, ()
        return kinds | {name: (np.float64, ()) for name in _numbers(asked)}


def refuse_exact_scores(target: Target, asked: ScoreRequest) -> None:
    """Raise ValueError if all scores would have to be in one place."""
    if asked.ranked and not target.private:
        raise ValueError(
            "`epsilon`=inf looks at all scores in one place: give a finite epsilon, or ask for"
            " metrics that do not depend on the ranking of the scores, such as 'accuracy'."
        )


_OF_DATASETS = (
    "{name} takes no dataset of PyArrow. Where its rows fit into memory, pass them as a"
    " table: table = X.to_table(), then {name}({models}, table.drop_columns(['y']),"
    " table['y'].to_numpy(), ...), with the name of your own column. Otherwise pass"
    " dask.dataframe.read_parquet(folder, dtype_backend='pyarrow') and a column of it."
)


def refuse_rows(function: str, X: Any, y: Any) -> None:
    """Raise ValueError if there are no rows, or if they are a dataset."""
    for name, given in (("X", X), ("y", y)):
        if given is None:
            raise ValueError(
                f"{function} needs rows with labels or targets: requires {name} to be passed."
            )
    if is_dataset(X):
        models = "model" if function == "private_score" else "model, other"
        raise ValueError(_OF_DATASETS.format(name=function, models=models))


def scored_rows(
    says: Outputs, asked: ScoreRequest, by: Any, X: Any, y: Any, groups: Any
) -> ScoredRows | ScoredParts:
    refuse_rows("private_score", X, y)
    kind = ScoredParts if is_collection(X) else ScoredRows
    return kind.checked(says, asked, by, X, y, groups)
