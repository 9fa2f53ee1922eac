"""Effects of the columns in a private linear model of a table, from released numbers alone.

Design note. A score of a linear model is a sum over the columns of the table, with a part for each
pair of numbers if the encoding has pairs. The part of a column is found by encoding values of the
column, from one end of its range to the other. All that depends on other columns is replaced by its
average over their public ranges, where every number of a range is as likely as any other on the
scale on which it is read, and every category as any other. On this average the cosines of a number
are zero, and so are pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.plans.linear import mean_of_rows
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace._core.tables.schema import Table, frequencies, middles
from dpsubspace.linear_model._base import LinearScores

# Curvature --------------------------------------------------------------------------------------
# How strongly the loss of a private classifier of a table pulls weights back, as far as is known.
#
# Design note. The noise that is left in the weights of a descent depends on the curvature of the
# loss, which is a second moment of the private rows. The mean by which rows are centred is
# released, and it shows how each column is distributed as finely as the encoding is: the mean of a
# cosine is a coefficient of a Fourier series, and that of an indicator is a frequency. Rows are
# drawn column by column from these distributions, and the curvature is that of the drawn rows, with
# labels as the model has them. How columns depend on each other is not known. Where they show
# nearly the same, curvature is smaller in some directions than for independent columns, and so all
# of it is divided by a constant.

# Divisor of the curvature. Of 3, 5, 10 and 20 the least with which bands of 90 % covered at
# least 80 % of the points of every column of Adult, California and simulated patients (1,000 and
# 12,000 rows, epsilon 1). benchmarks/repro_shapes.py has other tables.
_CAUTION = 20.0

# Rows that are drawn, and places of a number.
_CURVATURE_ROWS, _PLACES = 2_000, 48


class Curvature(NamedTuple):
    """Second derivative of the mean loss: about ``by_output[k] * matrix`` for output k.

    `matrix` is for the entries of a row, its bias entry and the constant of centred rows.
    """

    matrix: np.ndarray
    by_output: np.ndarray


def usual_curvature(encoding: Encoding, model: Any, scores: LinearScores) -> Curvature | None:
    """Curvature at the weights of a fitted classifier; None if nothing shows it.

    Nothing does without a released mean or an intercept, for losses other than the log loss, and of
    texts, whose mean does not show which words occur together.
    """
    if getattr(model, "mean_", None) is None or getattr(model, "loss", None) != "log_loss":
        return None
    if encoding.schema.texts or scores.row_map is None or not scores.bias:
        return None
    rows = _usual_rows(encoding, mean_of_rows(model.mean_, scores.bias))
    at = np.arange(rows.shape[1])
    used = scores.used(rows, at, (rows**2).sum(axis=1))
    chances = LogLoss().predict(scores.scores(used, at) + model.offset_)
    bound, radius = scores.row_map.bound, getattr(model, "radius_", np.inf)
    zoom = max(1.0, bound / radius)  # for rows that were clipped about the mean
    constant = np.full((len(rows), 1), auto.CENTRED_BIAS * model.clip_norm_ / zoom)
    centred = np.concatenate([used - scores.widened(model.mean_, 0.0), constant], axis=1)
    distances = np.linalg.norm(centred, axis=1, keepdims=True)
    centred *= zoom * np.minimum(1.0, radius / np.maximum(distances, 1e-300))
    weighed = centred * np.append(scores.widened(np.ones_like(model.mean_)), 1.0)
    lengths, pulling = np.linalg.norm(weighed, axis=1), np.zeros(len(rows))
    for k in range(chances.shape[1]):  # clipped gradients keep their length
        residual = np.linalg.norm(chances - np.eye(chances.shape[1])[k], axis=1)
        residual /= np.sqrt(2) if chances.shape[1] == 2 else 1.0  # one column of scores
        pulling += chances[:, k] * (residual * lengths < model.clip_norm_)
    pulls = pulling[:, None] * chances * (1 - chances)
    pulls = pulls[:, :1] if chances.shape[1] == 2 else pulls
    usual = pulls.mean(axis=1)
    matrix = (centred * usual[:, None]).T @ centred / (_CAUTION * len(rows))
    return Curvature(matrix, pulls.mean(axis=0) / max(float(usual.mean()), 1e-12))


def _usual_rows(encoding: Encoding, means: np.ndarray) -> np.ndarray:
    """Encoded rows with about these means of features, the same in every call."""
    schema, rng = encoding.schema, np.random.default_rng(0)
    columns: dict[str, np.ndarray] = {}
    for name in schema:
        kind: Any = schema[name]
        if kind._categorical:
            values = np.arange(float(len(kind.values)))
        else:
            values = encoding.numbers_at(name, middles(_PLACES))
        values = np.append(values, kind._gap) if kind.missing else values
        at = encoding.blocks[name]
        shares = frequencies(encoded(encoding, {name: values}, len(values))[:, at], means[at])
        counts = np.diff(np.round(np.cumsum(shares) * _CURVATURE_ROWS).astype(int), prepend=0)
        columns[name] = rng.permutation(np.repeat(values, counts))
    return encoded(encoding, columns, _CURVATURE_ROWS)


# Rows of some columns ---------------------------------------------------------------------------


def encoded(encoding: Encoding, columns: dict[str, np.ndarray], n: int) -> np.ndarray:
    """Encoded rows with these numbers or codes of columns, and the first values of all others.

    Features of texts are left out.
    """
    schema = encoding.schema
    others = {a: encoding.numbers_at(a, np.zeros(1)) for a in schema.numbers if a not in columns}
    known = columns | others
    numbers = [np.broadcast_to(known[name], n) for name in schema.numbers]
    codes = [np.broadcast_to(columns.get(name, np.zeros(1)), n) for name in schema.categories]
    return encoding.dense(table_of(numbers, codes, n)).astype(np.float64)


def table_of(numbers: list[Any], codes: list[Any], n: int) -> Table:
    """A table of these columns."""
    return Table(
        np.stack(numbers, axis=1) if numbers else np.zeros((n, 0)),
        np.stack(codes, axis=1).astype(np.intp) if codes else np.zeros((n, 0), np.intp),
    )


# Shapes -----------------------------------------------------------------------------------------

# Points at which a column is averaged over its public range, and rows that stand for all others.
_MIDDLES, _ROWS = 64, 512


@dataclass(frozen=True)
class ColumnShape:
    """Effect of one column in a model, or of two numbers together."""

    # (n,): values of the column: numbers of its range, dates, or the categories. Two arrays for
    # a pair.
    at: Any
    values: np.ndarray  # (n, n_outputs): what each adds to the score
    # Standard deviation that noise leaves in `values`; None if it is not known, or there is none.
    std: np.ndarray | None = None
    # (n_outputs,): what a missing value adds; None if missing values were not declared.
    missing: np.ndarray | None = None
    missing_std: np.ndarray | None = None  # (n_outputs,): its standard deviation
    categorical: bool = False  # Whether `at` are categories
    # Whether numbers are read on a logarithmic scale; one for each column.
    log: tuple[bool, ...] = (False,)

    def of_output(self, index: int) -> ColumnShape:
        """Return the shape for one output."""
        names = ("values", "std", "missing", "missing_std")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(self, **{name: x[..., index : index + 1] for name, x in found.items()})


class ColumnShapes:
    """Shapes of the columns of a fitted model behind an encoding.

    With `classes` there is one score for each of several classes, of which only differences
    count.
    """

    def __init__(self, encoding: Encoding, scores: LinearScores, *, classes: bool):
        self._encoding, self._scores, self._classes = encoding, scores, classes
        rng, schema = np.random.default_rng(0), encoding.schema
        evenly = [rng.permutation(middles(_ROWS)) for _ in schema.numbers]
        numbers = [
            encoding.numbers_at(name, places)
            for name, places in zip(schema.numbers, evenly, strict=True)
        ]
        codes = [
            rng.permutation(_ROWS) % len(self._said(name).values) for name in schema.categories
        ]
        squares = encoding.dense(table_of(numbers, codes, _ROWS)).astype(np.float64) ** 2
        self._sq_norm = float(squares.sum(axis=1).mean()) + encoding.text_square
        self._sq_blocks = {
            name: float(squares[:, at].sum(axis=1).mean())
            for name, at in encoding.blocks.items()
            if name not in schema.texts
        }

    def of(self, name: str, resolution: int) -> ColumnShape:
        """Shape of one column, at `resolution` points of its range."""
        said = self._said(name)
        at = self._values(name, np.linspace(0, 1, resolution))
        centre = self._used(name, self._values(name, middles(_MIDDLES))).mean(axis=0)
        block = self._encoding.blocks[name]
        values, std = self._drawn(block, self._apart(name, at, centre))
        missing = missing_std = None
        if said.missing:
            gap = np.array([said._gap])
            of_gap, std_of_gap = self._drawn(block, self._apart(name, gap, centre))
            missing, missing_std = of_gap[0], None if std_of_gap is None else std_of_gap[0]
        at = np.array(said.values, dtype=object) if said._categorical else said._shown(at)
        return ColumnShape(at, values, std, missing, missing_std, said._categorical, (said.log,))

    def of_pair(self, names: tuple[str, str], resolution: int) -> ColumnShape:
        """Joint effect of two numbers: the sum of their shapes, and what their pair adds."""
        first, second = (self.of(name, resolution) for name in names)
        places = np.linspace(0, 1, resolution)
        used = self._together(names, places, places)
        used -= self._together(names, middles(_MIDDLES), places).mean(axis=0)
        used -= self._together(names, places, middles(_MIDDLES)).mean(axis=1)[:, None]
        used += self._together(names, middles(_MIDDLES), middles(_MIDDLES)).mean(axis=(0, 1))
        for name, alone in zip(names, (used, used.swapaxes(0, 1)), strict=True):
            centre = self._used(name, self._values(name, middles(_MIDDLES))).mean(axis=0)
            found = self._apart(name, self._values(name, places), centre)
            at = self._scores.places(found, self._encoding.blocks[name])
            alone[:, :, at] += found[:, None]
        flat = used.reshape(resolution**2, -1)
        values, std = self._drawn(np.arange(flat.shape[1] - 1), flat)
        values = values.reshape(resolution, resolution, -1)
        std = None if std is None else std.reshape(values.shape)
        log = tuple(self._said(name).log for name in names)
        return ColumnShape((first.at, second.at), values, std, log=log)

    def _said(self, name: str) -> Any:
        """Return the description of a column in the schema."""
        return self._encoding.schema[name]

    def _values(self, name: str, places: np.ndarray) -> np.ndarray:
        """Numbers of a column at places of its range, or the codes of all its categories."""
        if self._said(name)._categorical:
            return np.arange(len(self._said(name).values))
        return self._encoding.numbers_at(name, places)

    def _used(self, name: str, values: np.ndarray) -> np.ndarray:
        """Input of the weights where a column has these values and all others are average."""
        at = self._encoding.blocks[name]
        rows = encoded(self._encoding, {name: values}, len(values))
        entries, rest = rows[:, at], self._sq_norm - self._sq_blocks[name]
        sq_norms = (entries**2).sum(axis=1) + rest
        return self._scores.used(entries, at, sq_norms, self._scores.averaged(rows, at))

    def _apart(self, name: str, values: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """Input of the weights less its centre; dates are averaged over weekdays."""
        found = self._used(name, values) - centre
        weekdays = self._encoding.parts.get(f"{name}:weekday", [])
        found[:, np.flatnonzero(np.isin(self._encoding.blocks[name], weekdays))] = 0.0
        return found

    def _together(self, names: tuple[str, str], first: Any, second: Any) -> np.ndarray:
        """Input of the weights, (m, k, p + 1), over a grid of places of two numbers."""
        a, b = (self._values(name, at) for name, at in zip(names, (first, second), strict=True))
        grid = {names[0]: np.repeat(a, len(b)), names[1]: np.tile(b, len(a))}
        rows = encoded(self._encoding, grid, len(a) * len(b))
        at, named = np.arange(rows.shape[1]), [self._encoding.blocks[name] for name in names]
        more = self._scores.averaged(rows, np.concatenate(named))
        used = self._scores.used(rows, at, np.full(len(rows), self._sq_norm), more)
        return used.reshape(len(a), len(b), -1)

    def _drawn(self, at: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of entries at these places, and their standard deviations."""
        std = self._scores.std(used, at)
        if std is not None and self._classes:
            std = std * np.sqrt(1 - 1 / std.shape[-1])
        return self._differences(self._scores.scores(used, at)), std

    def _differences(self, scores: np.ndarray) -> np.ndarray:
        """Return scores, or those of several classes less their mean over the classes."""
        return scores - scores.mean(axis=-1, keepdims=True) if self._classes else scores


def shapes_of(encoding: Encoding, model: Any) -> ColumnShapes:
    """Shapes of the columns of a fitted linear model."""
    scores = released_scores(encoding, model)
    scores = replace(scores, noise=scores.hidden or scores.noise)
    return ColumnShapes(encoding, scores, classes=several(model))


def released_scores(encoding: Encoding, model: Any) -> LinearScores:
    """Scoring of rows by a fitted linear model, with the noise that is left in its weights."""
    scores: LinearScores = model._linear_scores()
    if scores.noise is not None:
        curvature = usual_curvature(encoding, model, scores)
        if curvature is not None:
            scores = replace(scores, noise=scores.noise.pulled_back(*curvature))
    return scores


def several(model: Any) -> bool:
    """Return whether each of several classes has a score, of which only differences count."""
    return is_classifier(model) and len(np.atleast_2d(model.coef_)) > 1
