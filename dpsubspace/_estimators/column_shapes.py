"""What a private linear model of a table has learned of each column, from released numbers alone.

Design note. A score of a linear model is a sum over the columns of the table, and a part for each
pair of numbers where the encoding has them. What a column adds is read off by encoding values of
it, from one end of its range to the other. All that depends on other columns is taken at its
average over their public ranges, where every number of a range is as likely as any other on the
scale that it is read on, and every category as any other. There the cosines of a number are zero
on average, and so are pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dpsubspace._estimators.linear_scores import LinearScores
from dpsubspace._estimators.usual_curvature import alone, table_of, usual_curvature
from dpsubspace._tables.encoding import Encoding
from dpsubspace._tables.frames import MISSING

__all__ = ["ColumnShape", "ColumnShapes", "shapes_of"]

# Points at which a column is averaged over its public range, and rows that stand for all others.
_MIDDLES, _ROWS = 64, 512


@dataclass(frozen=True)
class ColumnShape:
    """What a model has learned of one column, or of two numbers together.

    Parameters
    ----------
    at : ndarray of shape (n,), or tuple of two of them
        Values of the column: numbers of its range, or the categories. Two arrays for a pair.
    values : ndarray of shape (n, n_outputs), or (n, m, n_outputs) for a pair
        What each adds to the score.
    std : ndarray of the shape of `values` or None, default=None
        Standard deviation that noise leaves in it; None where that is not known, or there is none.
    missing : ndarray of shape (n_outputs,) or None, default=None
        What a missing value adds; None where none was declared.
    missing_std : ndarray of shape (n_outputs,) or None, default=None
        Its standard deviation.
    categorical : bool, default=False
        Whether `at` are categories.
    log : tuple of bool, default=(False,)
        Whether numbers are read on a logarithmic scale; one for each column.
    """

    at: Any
    values: np.ndarray
    std: np.ndarray | None = None
    missing: np.ndarray | None = None
    missing_std: np.ndarray | None = None
    categorical: bool = False
    log: tuple[bool, ...] = (False,)

    def of_output(self, index: int) -> ColumnShape:
        """The same of one output."""
        names = ("values", "std", "missing", "missing_std")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(self, **{name: x[..., index : index + 1] for name, x in found.items()})


class ColumnShapes:
    """Shapes of the columns of a fitted model behind an encoding.

    Parameters
    ----------
    encoding : Encoding
        What turns columns into features.
    scores : LinearScores
        What the model makes of these.
    classes : bool
        Whether there is one score for each of several classes, of which only differences count.
    """

    def __init__(self, encoding: Encoding, scores: LinearScores, *, classes: bool):
        self._encoding, self._scores, self._classes = encoding, scores, classes
        rng, schema = np.random.default_rng(0), encoding.schema
        evenly = [(rng.permutation(_ROWS) + 0.5) / _ROWS for _ in schema.numbers]
        numbers = [
            encoding.numbers_at(name, places)
            for name, places in zip(schema.numbers, evenly, strict=True)
        ]
        codes = [
            rng.permutation(_ROWS) % len(self._said(name).values) for name in schema.categories
        ]
        squares = encoding(table_of(numbers, codes, _ROWS)).astype(np.float64) ** 2
        self._sq_norm = float(squares.sum(axis=1).mean())
        self._sq_blocks = {
            name: float(squares[:, at].sum(axis=1).mean()) for name, at in encoding.blocks.items()
        }

    def of(self, name: str, resolution: int) -> ColumnShape:
        """Shape of one column, at so many points of its range."""
        said, categorical = self._said(name), name in self._encoding.schema.categories
        at = self._values(name, np.linspace(0, 1, resolution))
        used, evenly = self._used(name, at), self._values(name, _middles())
        centre = self._used(name, evenly).mean(axis=0)
        values, std = self._drawn(name, used - centre)
        missing = missing_std = None
        if said.missing:
            gap = np.array([MISSING if categorical else np.nan])
            of_gap, std_of_gap = self._drawn(name, self._used(name, gap) - centre)
            missing, missing_std = of_gap[0], None if std_of_gap is None else std_of_gap[0]
        log = (False,) if categorical else (said.log,)
        at = np.array(said.values, dtype=object) if categorical else at
        return ColumnShape(at, values, std, missing, missing_std, categorical, log)

    def of_pair(self, names: tuple[str, str], resolution: int) -> ColumnShape:
        """What two numbers do together: the sum of their shapes, and what their pair adds."""
        first, second = (self.of(name, resolution) for name in names)
        places = np.linspace(0, 1, resolution)
        added = self._together(names, places, places)
        added -= self._together(names, _middles(), places).mean(axis=0)
        added -= self._together(names, places, _middles()).mean(axis=1)[:, None]
        added += self._together(names, _middles(), _middles()).mean(axis=(0, 1))
        values = first.values[:, None] + second.values[None] + self._differences(added)
        log = tuple(self._said(name).log for name in names)
        return ColumnShape((first.at, second.at), values, log=log)

    def _said(self, name: str) -> Any:
        """What the schema says about a column."""
        return self._encoding.schema[name]

    def _values(self, name: str, places: np.ndarray) -> np.ndarray:
        """Numbers of a column at places of its range, or the codes of all its categories."""
        if name in self._encoding.schema.categories:
            return np.arange(len(self._said(name).values))
        return self._encoding.numbers_at(name, places)

    def _used(self, name: str, values: np.ndarray) -> np.ndarray:
        """What weights act on where a column has these values and all others are average."""
        at = self._encoding.blocks[name]
        entries = alone(self._encoding, {name: values}, len(values))[:, at]
        rest = self._sq_norm - self._sq_blocks[name]
        return self._scores.used(entries, at, (entries**2).sum(axis=1) + rest)

    def _together(self, names: tuple[str, str], first: Any, second: Any) -> np.ndarray:
        """Scores (m, k, c) of rows of usual norm, over a grid of places of two numbers."""
        a, b = (self._values(name, at) for name, at in zip(names, (first, second), strict=True))
        grid = {names[0]: np.repeat(a, len(b)), names[1]: np.tile(b, len(a))}
        rows = alone(self._encoding, grid, len(a) * len(b))
        at = np.arange(rows.shape[1])
        used = self._scores.used(rows, at, np.full(len(rows), self._sq_norm))
        return self._scores.scores(used, at).reshape(len(a), len(b), -1)

    def _drawn(self, name: str, used: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores and their standard deviations."""
        at = self._encoding.blocks[name]
        std = self._scores.std(used, at)
        if std is not None and self._classes:
            std = std * np.sqrt(1 - 1 / std.shape[-1])
        return self._differences(self._scores.scores(used, at)), std

    def _differences(self, scores: np.ndarray) -> np.ndarray:
        """Scores as they are, or those of several classes less their mean over the classes."""
        return scores - scores.mean(axis=-1, keepdims=True) if self._classes else scores


def shapes_of(encoding: Encoding, model: Any) -> ColumnShapes | None:
    """Shapes of the columns of a fitted model; None where it is not linear."""
    scores = LinearScores.of(model)
    if scores is None:
        return None
    if scores.noise is not None:
        curvature = usual_curvature(encoding, model, scores)
        if curvature is not None:
            scores = replace(scores, noise=scores.noise.pulled_back(*curvature))
    several = is_classifier(model) and scores.weights.shape[1] > 1
    return ColumnShapes(encoding, scores, classes=several)


def _middles() -> np.ndarray:
    return (np.arange(_MIDDLES) + 0.5) / _MIDDLES
