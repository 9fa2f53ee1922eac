"""Importance of the columns of a table in a private model, from released numbers alone.

Design note. The total Sobol index of a column is the share of the variance of the score that goes
with it, alone and together with others: what would be left, on average, if all others were known.
Columns are assumed to be independent, and rows to be as the schema or public rows state, so that no
private row is used. A score is ``u W`` for released weights W, where u follows from the row. So
parts of its variance are quadratic in W, whatever features rows have. Known noise E of the weights
adds its own square to these parts, which is subtracted.

Bands subtract draws of the noise in place of its mean. Let q be a part of the variance that was
found, and q0 the same part without noise. Then q is ``q0 + 2 <W0, E> + <E, E>`` for a product that
belongs to the column, and ``<W, E>`` varies as ``<W0, E>`` does, once it is made smaller by the
share of noise in q. The index may be where the ratios of what is left are. A fit shrinks what noise
hides, which adding noise to weights does not do. So both ends also count the indices of ``W - E``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from dpsubspace._core.solvers.descent import WeightNoise
from dpsubspace._core.tables.encoding import Encoding
from dpsubspace._core.tables.schema import Table, middles
from dpsubspace.linear_model._base import LinearScores
from dpsubspace.tables._column_shapes import encoded, released_scores, several

# Most places of a column, rows in which they are tried, rows that show the whole variance, draws of
# the noise, and entries of rows that are made for all columns together.
_PLACES, _ROWS, _ALL_ROWS, _DRAWS, _ENTRIES = 32, 64, 512, 256, 3_000_000

# Factor of the noise in bands of a descent in the units of rows. A descent learns which columns
# matter, and is moved by more than the noise that its weights are left with: what chance has made
# large gets a larger share. Of 1, 1.15, 1.3 and 1.5 the least with which bands of 90 %
# covered the importance of every column of Adult (5,000 rows) and California (3,000 and 5,000),
# with two classes at epsilon 1, in 90 % of 60 to 80 fits. benchmarks/repro_shapes.py has other
# tables.
_CAUTION = 1.3

# Share of draws in which something of the whole variance is left, from which on there is a band.
_SEEN = 0.5

# Share of the variance that rounding may make.
_ROUNDING = 1e-12

# Where missing values are declared and nothing else is known, one in ten is assumed to be missing.
_MISSING = 0.1


@dataclass(frozen=True)
class ColumnImportances:
    """Total Sobol indices of the columns of a table, (d,), from 0 to 1; NaN for those of text."""

    values: np.ndarray
    # Ends of the bands; None if noise is not known, or there is none.
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def importances_of(
    encoding: Encoding,
    model: Any,
    *,
    level: float | None = None,
    public: Table | None = None,
    output: int | None = None,
) -> ColumnImportances:
    """Importances of the columns of the schema in a fitted linear model.

    With a `level` there are bands, which should cover the importances of the same fit without noise
    at this level. Columns are distributed as in `public` rows, and evenly on their scales without
    any. Texts have no scale and stay as they are: the importances are those of the other columns
    among each other. `output` is the number of the score to use, and None uses all of them
    together.
    """
    if len(encoding.schema.texts) == len(encoding.schema):
        return ColumnImportances(np.full(len(encoding.schema), np.nan))
    scores = released_scores(encoding, model)
    outputs = _Outputs.of(scores, classes=several(model), output=output, draws=level is not None)
    parts, whole = _variances(_Points(encoding, scores, public), outputs)
    clear = np.array([part.clear for part in parts])
    clear[clear <= _ROUNDING * whole.value] = 0.0
    values = clear / max(whole.clear, clear.max(), 1e-300)
    if level is None or scores.noise is None:
        return ColumnImportances(_with_texts(encoding, values))
    by_steps = model._linear_scores().noise.plan is not None
    caution = _CAUTION if by_steps else 1.0
    low, high = np.array([_band(part, whole, level, caution) for part in parts]).T
    ends = np.minimum(low, values), np.maximum(high, values)
    return ColumnImportances(*(_with_texts(encoding, each) for each in (values, *ends)))


def _with_texts(encoding: Encoding, values: np.ndarray) -> np.ndarray:
    """Numbers of all columns, NaN for those of text, from numbers of the others."""
    found = np.full(len(encoding.schema), np.nan)
    found[[name not in encoding.schema.texts for name in encoding.schema]] = values
    return found


# Variances ----------------------------------------------------------------------------------------


def scores_along(encoding: Encoding, model: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores (m, v, c) of values of one column, each beside possible values of others in m rows.

    Also the scores of the released mean row (c,), if there is one.
    """
    scores: LinearScores = model._linear_scores()
    used = _Points(encoding, scores, None).beside_others(name)
    flat, mean = used.reshape(-1, used.shape[-1]), getattr(model, "mean_", None)
    found = scores.scores(flat, np.arange(encoding.n_dense)) + model.offset_
    if mean is not None:
        row = scores.widened(mean, 0.0) if scores.bias else np.append(mean, 0.0)
        mean = row @ scores.weights + model.offset_
    return found.reshape(*used.shape[:2], -1), mean


@dataclass(frozen=True)
class _Variance:
    """A part of the variance of scores, and what noise adds to it."""

    value: float  # with the released weights
    noise: float  # mean of what noise adds
    # (draws,): twice the product of weights and noise, and squares of noise.
    products: np.ndarray
    squares: np.ndarray
    hidden: np.ndarray  # (draws,): possible values of this part, with all that noise can hide

    @property
    def clear(self) -> float:
        return max(self.value - self.noise, 0.0)

    def __add__(self, other: _Variance) -> _Variance:
        return _Variance(
            self.value + other.value,
            self.noise + other.noise,
            self.products + other.products,
            self.squares + other.squares,
            self.hidden + other.hidden,
        )

    def without_noise(self, caution: float) -> np.ndarray:
        """Possible values without noise that is `caution` times the known noise, (draws,)."""
        kept = caution * np.sqrt(self.clear / max(self.value, 1e-300))
        left = self.value - self.noise - kept * self.products
        return left - caution**2 * (self.squares - self.noise)


def _band(part: _Variance, whole: _Variance, level: float, caution: float) -> tuple[float, float]:
    """Band of the ratio of two variances without noise; all of [0, 1] where noise hides it.

    A share of a variance has a value where there is a variance. Draws of more noise than there is
    variance in all are thus left out, unless they are the most.
    """
    tail = (1 - level) / 2
    some, every = part.without_noise(caution), whole.without_noise(caution)
    seen = every > 0
    if seen.mean() < _SEEN:
        return 0.0, 1.0
    ratios = np.clip(some[seen] / every[seen], 0.0, 1.0)
    hidden = part.hidden / np.maximum(whole.hidden, 1e-300)
    (low, high), ends = (np.quantile(each, [tail, 1 - tail]) for each in (hidden, ratios))
    return float(min(low, ends[0])), float(min(max(high, ends[1]), 1.0))


@dataclass(frozen=True)
class _Outputs:
    """Requested scores of rows: all, one of them, or those of classes less their mean."""

    scores: LinearScores
    mixing: np.ndarray  # (c, k): combinations of scores that these are
    # (p + 1, k, draws): draws of the noise in the weights, and of what noise may have hidden.
    noise: np.ndarray | None
    hidden: np.ndarray | None

    @classmethod
    def of(
        cls, scores: LinearScores, *, classes: bool, output: int | None, draws: bool
    ) -> _Outputs:
        c = scores.weights.shape[1]
        mixing = np.eye(c) - (1 / c if classes else 0.0)
        mixing = mixing if output is None else mixing[:, output : output + 1]
        noise = hidden = None
        if draws and scores.noise is not None:
            noise = hidden = _draws(scores.noise, len(scores.weights), mixing)
            if scores.hidden is not None:
                hidden = _draws(scores.hidden, len(scores.weights), mixing)
        return cls(scores, mixing, noise, hidden)

    def variance(self, rows: np.ndarray) -> _Variance:
        """Sum of the squares of scores of rows, (m, p + 1), to which weights are applied."""
        rows = rows if self.noise is None else _fewer(rows)  # draws of noise go through all rows
        at = np.arange(rows.shape[1] - 1)
        found = self.scores.scores(rows, at) @ self.mixing
        value, std = float((found**2).sum()), self.scores.std(rows, at)
        noise = 0.0 if std is None else float((std**2 @ self.mixing**2).sum())
        if self.noise is None or self.hidden is None:
            return _Variance(value, noise, *np.zeros((3, 1)))
        of_rows = self.scores.places(rows, at)  # those of texts are not among them
        products, squares = _products(rows, found, self.noise[of_rows])
        hidden = value - products + squares
        if self.hidden is not self.noise:
            moved, more = _products(rows, found, self.hidden[of_rows])
            hidden = value - moved + more
        return _Variance(value, noise, products, squares, np.maximum(hidden, 0.0))


def _fewer(rows: np.ndarray) -> np.ndarray:
    """Fewest rows for which all weights give scores with the same sum of squares."""
    if len(rows) > rows.shape[1]:
        return np.asarray(np.linalg.qr(rows, mode="r"))
    values, vectors = np.linalg.eigh(rows @ rows.T)
    return vectors[:, values >= _ROUNDING * values[-1]].T @ rows


def _draws(noise: WeightNoise, width: int, mixing: np.ndarray) -> np.ndarray:
    """Draws of the noise in weights of outputs, (width, k, draws): zeros where there is none."""
    found = np.zeros((width, len(mixing), _DRAWS))
    drawn = noise.drawn(np.random.default_rng(0), len(mixing), width, _DRAWS)
    found[: len(drawn)] = drawn[:width]
    return np.einsum("pcb,ck->pkb", found, mixing)


def _products(
    rows: np.ndarray, scores: np.ndarray, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Twice the products of scores with scores of draws, and squares of these, (draws,) each."""
    drawn = np.tensordot(rows, draws, 1)
    return 2 * np.einsum("mk,mkb->b", scores, drawn), np.einsum("mkb,mkb->b", drawn, drawn)


def _variances(points: _Points, outputs: _Outputs) -> tuple[list[_Variance], _Variance]:
    """Return the part of the variance that goes with each column, and the whole variance.

    The whole is the variance of what columns add to scores alone, which a few rows show nearly
    exactly, and of what is left of scores in many rows.
    """
    parts, alone, rest = [], [], points.everywhere()
    for name in points.columns:
        rows, shares = points.along(name)
        mean = rows.mean(axis=0)
        rest -= mean[points.places[name]]
        weights = np.sqrt(shares)[:, None]
        alone.append(outputs.variance(weights * mean))
        rows *= weights / np.sqrt(len(rows))
        parts.append(outputs.variance(rows.reshape(-1, rows.shape[-1])))
    return parts, sum(alone, outputs.variance(rest / np.sqrt(len(rest))))


# Rows ---------------------------------------------------------------------------------------------


class _Points:
    """Rows of independent columns."""

    def __init__(self, encoding: Encoding, scores: LinearScores, public: Table | None):
        self._encoding, self._scores, schema = encoding, scores, encoding.schema
        names = [name for name in schema if name not in schema.texts]
        self.columns = {name: _values(encoding, name, public) for name in names}
        width = len(names) * encoding.n_dense * _PLACES
        self._few = 2 ** int(np.log2(np.clip(_ENTRIES // width, 1, _ROWS)))
        few, self.places = self._even(self._few), self._even(_ALL_ROWS)
        self._rows = {name: self.columns[name][0][at] for name, at in few.items()}

    def _even(self, number: int) -> dict[str, np.ndarray]:
        """Index of the value of each column in `number` rows, 2^k, which are as even as can be."""
        points = qmc.Sobol(len(self.columns), scramble=False).random(number)
        points += np.random.default_rng(0).random(points.shape) / number  # one in each part
        return {
            name: np.searchsorted(np.cumsum(shares)[:-1], at)
            for (name, (_, shares)), at in zip(self.columns.items(), points.T, strict=True)
        }

    def along(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Rows (few, v, p) in which one column varies, less their mean while the others stay.

        The second array is how often each of the v values of the column occurs.
        """
        used, shares = self.beside_others(name), self.columns[name][1]
        return used - np.einsum("v,rvp->rp", shares, used)[:, None], shares

    def beside_others(self, name: str) -> np.ndarray:
        """Rows (few, v, p) in which one column has each of its values, and others stay."""
        values, _ = self.columns[name]
        rows = {other: np.repeat(at, len(values)) for other, at in self._rows.items()}
        used = self._used(rows | {name: np.tile(values, self._few)}, self._few * len(values))
        return used.reshape(self._few, len(values), -1)

    def everywhere(self) -> np.ndarray:
        """Rows of all columns, less their mean."""
        rows = {name: self.columns[name][0][at] for name, at in self.places.items()}
        used = self._used(rows, _ALL_ROWS)
        return used - used.mean(axis=0)

    def _used(self, columns: dict[str, np.ndarray], n: int) -> np.ndarray:
        rows = encoded(self._encoding, columns, n)
        squares = (rows**2).sum(axis=1) + self._encoding.text_square
        return self._scores.used(rows, np.arange(rows.shape[1]), squares)


def _values(encoding: Encoding, name: str, public: Table | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers or codes of a column, and how often each of them occurs."""
    schema = encoding.schema
    kind: Any = schema[name]
    if public is not None:
        numbers, codes = dict(zip(schema.numbers, public.numbers.T, strict=True)), public.codes.T
        found = numbers | dict(zip(schema.categories, codes, strict=True))
        ordered = np.sort(found[name])
        return ordered[(middles(_PLACES) * len(ordered)).astype(int)], np.full(_PLACES, 1 / _PLACES)
    if kind._categorical:
        values = np.arange(len(kind.values), dtype=float)
    else:
        values = encoding.numbers_at(name, middles(_PLACES))
    shares = np.full(len(values), 1 / len(values))
    if kind.missing:
        values, shares = np.append(values, kind._gap), np.append((1 - _MISSING) * shares, _MISSING)
    return values, shares
