"""Private rows of persons, visited person by person, with sums that one person moves little.

A person's numbers are a function of that person's rows and of public or released numbers alone.
Persons with about equally many rows are visited together, each with rows of zeros behind their own,
up to a number that their own rows decide: so every product is over matrices whose shape and entries
are those of one person, and the rows of others do not change how theirs are rounded.

Design note. A person who leaves shifts all later ones to other chunks, so that each addition over
persons may round otherwise. Those sums are in float64, and their bound counts the rounding of all
of them (:meth:`PersonRows.slack`). That products of the same numbers in the same shape are the same
numbers is what ``_core/ground/arrays.py`` assumes as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsubspace._core.gradients.losses import Loss, Squared
from dpsubspace._core.ground.arrays import EPS, Total, changed, to_numpy
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.records import Records

# Number of a person's rows that are used, the first ones in their order. The limit is public; it
# keeps one person from using all of the memory, and a head of so many rows is known well.
MOST_ROWS = 4096

# Numbers of a chunk in float64 (8 MiB), and most persons of one, on which bounds on rounding rest.
_NUMBERS, _MOST_PERSONS = 1 << 20, 1 << 12

# Residuals are clipped to this number of standard deviations of the targets.
_FAR_RESIDUAL = 6.0

_SQUARED = Squared()

# Contributions with a norm below this count as zero: their unit vector would be rounding alone.
_FAINT = 1e-100


@dataclass(frozen=True)
class PersonChunk:
    """Persons with about equally many rows, with rows of zeros behind their own."""

    persons: np.ndarray  # (u,): numbers of the persons
    sizes: np.ndarray  # (u,): rows of each
    rows: np.ndarray  # (u, m, d): standardised rows
    targets: np.ndarray  # (u, m): standardised targets
    shared: np.ndarray  # (u, m): scores of the shared model
    residuals: np.ndarray  # (u, m): standardised targets less the shared model
    beyond: np.ndarray  # (u, m): the parts that were clipped from the residuals
    # (u, m): the constant entry of each row: 1, or 0 if there is no row or no intercept.
    ones: np.ndarray
    whitening: np.ndarray  # (d, d): W such that ``W^T u`` is about white

    @cached_property
    def white(self) -> np.ndarray:
        return self.rows @ self.whitening

    @cached_property
    def about_own_mean(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """White rows less the mean of each person's, these means (u, d), and mean squares (u,).

        If rows have no constant entry nothing is subtracted.
        """
        u, m, d = self.white.shape
        there = np.where(np.arange(m) < self.sizes[:, None], 1.0, 0.0)
        means = np.matmul(there[:, None, :], self.white)[:, 0] / self.sizes[:, None]
        if not self.ones.any():
            means = np.zeros_like(means)
        rows = self.white - means[:, None, :]
        if not there.all():
            rows = np.where(there[:, :, None] > 0, rows, 0.0)
        flat = rows.reshape(u, -1)
        return rows, means, products(flat, flat) / (self.sizes * d)

    @cached_property
    def gram(self) -> np.ndarray:
        """Products of the white rows of each person with each other, (u, m, m)."""
        return np.matmul(self.white, np.swapaxes(self.white, 1, 2))

    @cached_property
    def gram_about_mean(self) -> np.ndarray:
        rows = self.about_own_mean[0]
        return np.matmul(rows, np.swapaxes(rows, 1, 2))

    def scores(self, directions: np.ndarray) -> np.ndarray:
        """Products of constant entry and white rows with the columns of `directions` (d + 1, k)."""
        scores = self.ones[:, :, None] * directions[0]
        if directions[1:].any():  # most priors are of an intercept beside the own rows
            scores += self.rows @ (self.whitening @ directions[1:])
        return scores


class PersonRows:
    """Standardised private rows, by person.

    Rows are of location 0 and scale 1 by public or released numbers, without a constant entry, and
    so are targets. Each column is mapped by itself, so that a row becomes exactly the same numbers
    whatever its position. Rows of null records are never used. The shared `weights` (d,) of
    standardised rows, the shared constant and the whitening W (d, d), such that ``W^T u`` is about
    white, are public or released. With `intercept` persons have one of their own, and with
    `private` residuals are clipped to a few standard deviations. They are minus the derivative of
    `loss` by the scores of the shared model.
    """

    def __init__(
        self,
        rows: AffineRows,
        targets: np.ndarray,
        records: Records,
        *,
        weights: np.ndarray,
        constant: float,
        whitening: np.ndarray,
        intercept: bool = True,
        private: bool = True,
        loss: Loss = _SQUARED,
    ):
        if not rows.affine.diagonal:
            raise ValueError("rows by person need a map of each column by itself.")
        self._rows, self._targets, self.n_persons = rows, np.asarray(targets), records.n
        self.weights, self.constant = np.asarray(weights, float).reshape(-1), float(constant)
        self.whitening, self.intercept = np.ascontiguousarray(whitening, dtype=float), intercept
        self._cut, self._loss = _FAR_RESIDUAL if private else math.inf, loss
        index = np.arange(records.n) if records.index is None else records.index
        present = records.present
        kept = np.arange(len(index)) if present is None else np.flatnonzero(present)
        self._order = kept[np.argsort(index[kept], kind="stable")]
        counts = np.bincount(index[kept], minlength=records.n)
        self._starts = np.cumsum(counts) - counts
        self.sizes = np.minimum(counts, MOST_ROWS)

    @property
    def width(self) -> int:
        return self.whitening.shape[0]

    def sharing(self, weights: np.ndarray, constant: float) -> PersonRows:
        return changed(self, weights=np.asarray(weights, float), constant=float(constant))

    def as_they_are(self) -> PersonRows:
        rows = AffineRows(self._rows.X, Affine.identity(self.width), constant=False)
        shared = {"weights": np.zeros(self.width), "constant": 0.0}
        return changed(self, _rows=rows, whitening=np.eye(self.width), _cut=math.inf, **shared)

    # Persons, chunk by chunk --------------------------------------------------------------------

    def chunks(self, batch: np.ndarray | None = None, *, beside: int = 0) -> Iterator[PersonChunk]:
        """Yield persons with rows, all or those of `batch`, with room for `beside` numbers each."""
        persons = np.arange(self.n_persons) if batch is None else np.asarray(batch)
        persons = persons[self.sizes[persons] > 0]
        lengths = _lengths(self.sizes[persons])
        order = np.argsort(lengths, kind="stable")
        persons, lengths = persons[order], lengths[order]
        for length in np.unique(lengths):
            alike = persons[np.searchsorted(lengths, length) :][: np.sum(lengths == length)]
            room = int(length) * (2 * self.width + 2 * min(int(length), self.width) + 4) + beside
            step = max(1, min(_NUMBERS // room, _MOST_PERSONS))
            for start in range(0, len(alike), step):
                yield self._chunk(alike[start : start + step], int(length))

    def _chunk(self, persons: np.ndarray, length: int) -> PersonChunk:
        sizes, place = self.sizes[persons], np.arange(length)
        there = place < sizes[:, None]
        # Behind the last row stands the person's first one, and then zeros in its place.
        index = self._order[
            (self._starts[persons][:, None] + np.where(there, place, 0)).reshape(-1)
        ]
        taken = self._rows.taken(index)
        with np.errstate(over="ignore"):  # rows out of range are clipped
            rows = to_numpy(taken.at(slice(0, len(index))).dense())
        rows = np.ascontiguousarray(rows).reshape(len(persons), length, self.width)
        targets = np.asarray(self._targets[index], dtype=np.float64).reshape(there.shape)
        with np.errstate(over="ignore"):
            shared = rows @ self.weights + self.constant
            whole = np.where(there, -self._loss.residual(targets, shared), 0.0)
        residuals = np.clip(whole, -self._cut, self._cut)
        if not there.all():
            rows = np.where(there[:, :, None], rows, 0.0)
        ones = there.astype(np.float64) * self.intercept
        return PersonChunk(
            persons,
            sizes.astype(float),
            rows,
            targets,
            shared,
            residuals,
            whole - residuals,
            ones,
            self.whitening,
        )

    # Sums -------------------------------------------------------------------------------------

    def total(
        self,
        of_chunk: Callable[[PersonChunk], np.ndarray],
        shape: tuple[int, ...],
        batch: np.ndarray | None = None,
        *,
        beside: int = 0,
    ) -> np.ndarray:
        """Sum chunk totals `of_chunk` over persons, with room for `beside` numbers a person."""
        total = Total()
        total.add(np.zeros(shape))
        for chunk in self.chunks(batch, beside=beside):
            total.add(of_chunk(chunk))
        return np.asarray(total.value)

    def slack(self) -> float:
        """Return the rounding error of a sum over persons between neighbours, by its largest term.

        Proof: with a person less, others may be added in other chunks and another order, so count
        the whole error of both sums. A chunk of k terms of norm at most C, added in any
        order, is off by at most ``1.01 k u`` times the sum of its norms (Higham, 2002, section
        3.1 and 4.2), k at most 4096; its products with weights by 4 u. Over all chunks these are
        ``(k + 4) u n C``, and adding chunks up with compensation costs 2 u of a sum of norm
        ``n C`` and second-order terms. Twice that, since there are two sums, and
        ``2 u`` is ``EPS``.
        """
        most = min(self.n_persons, _MOST_PERSONS)
        return 1.02 * (most + 8) * self.n_persons * EPS


# Shapes and norms -----------------------------------------------------------------------------


def _lengths(sizes: np.ndarray) -> np.ndarray:
    """Return padded numbers of rows, from each person's own alone: 1 to 8, 10, ..., 16, 20, ..."""
    quarter = 2 ** np.maximum(np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64) - 3, 0)
    return -(-sizes // quarter) * quarter


def products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the inner product of the vectors of each person, (u, p) and (u, p)."""
    return np.matmul(left[:, None, :], right[:, :, None])[:, 0, 0]


def unit_weights(squares: np.ndarray, entries: int) -> np.ndarray:
    """Return factors that give contributions with such squared norms the norm 1; 0 for zero.

    A computed squared norm of p entries is off by at most p units of rounding, and the root, the
    quotient and the product by few more: the factor is smaller by four times as much, so that no
    contribution is longer than 1.
    """
    norms = np.sqrt(np.maximum(squares, 0.0))
    shrink = 1 - 4 * (entries + 16) * EPS
    return np.where(norms > _FAINT, shrink / np.maximum(norms, _FAINT), 0.0)
