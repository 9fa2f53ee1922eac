"""Sums of clipped gradients in integers, which no rounding can move: what they would cost.

The package adds up rounded numbers and counts what rounding can do as sensitivity
(`sum_slack`). Here the same step is taken in integers: a row, with its bias entry, is rounded
once towards zero to integers of few bits, and clipped residuals are at each step, onto a public
step, so that every partial sum is an integer that the dtype holds exactly. Norms are those of the
rounded numbers. A side is the package, then the other, in turn, one whole step each (scores,
residuals, norms, clip weights, the weighted sum).

two limbs     products in float32, of blocks whose sums stay below 2^24; a residual has two parts
one limb      the same with one part, coarse
float64       products in float64, of which all sums stay below 2^53
exact scores  scores are integers as well, for weights that are rounded (they are public)
kept          rows are rounded once and kept, beside those that came; else at each step

`ratio` is the time of a step over that of the package; `slack` what rounding adds to the
sensitivity, 0 in integers; `largest` the longest part of a record over the bound, of the numbers
that are added; `off_in_noise` how far the sum is off that of the package, in norms of the
noise of a step (epsilon 1, 100 steps); `any_order` whether rows in another order give the same
sum, bit by bit. NumPy multiplies matrices of integers without BLAS: int16, which overflows, takes
220 ms for the second product alone, int32 and int64 over a second.

usage: python benchmarks/bench_exact_sums.py [--rows 60000] [--features 784] [--repeats 15]
           [--out benchmarks/results/exact_sums.json]

Found, 60,000 rows of 784 columns, one thread, medians of 15 pairs on a busy machine:

  rows     sum                                 10 classes  2 classes  copy of the rows
  float32  two limbs, 9-bit rows kept                1.14       1.12            188 MB
           two limbs, 8-bit rows kept                1.11       1.13            188 MB
           two limbs, rounded at each step           1.49       1.83                 -
           float64, kept                             1.86       2.18            188 MB
           float64, kept, exact scores               1.79       2.24            188 MB
  float64  float64, kept                             0.95       0.94            376 MB
           float64, kept, exact scores               0.96       0.94            376 MB
           float64, rounded at each step             1.22       1.87                 -

So they were not adopted. In float32 the gain is 0.2 % of noise (the slack of a sum of rows as they
come is 0.0020; of centred rows it is four times that, but there a term is a difference of two
products, which integers round apart). The price is above a tenth of a step even with a copy of the
rows, where a fit holds none, and 8 or 9 bits an entry; rows of a memory map would be rounded
at each step, for 1.5 to 1.8 times the time. And sums in any order need scores in any order:
24 bits have no room for these, so float32 would still assume that BLAS repeats itself. In float64
all of that is to be had for less time than now, for a copy of the rows, but the slack is 4e-9:
there is nothing to gain but the assumption. (The time comes from products of whole chunks
instead of blocks of 128 rows.)
"""

import tracemalloc
from dataclasses import dataclass

import numpy as np
from _run import in_turns, ms, ratios, run

from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground.arrays import EPS, by_columns, slices
from dpsubspace._core.release.mechanisms import DisjointTotal
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap

CLIP, BIAS, LOSS = 0.5, 0.5, LogLoss()
MULTIPLIER = 37.306  # of each of 100 steps at epsilon 1 and delta 1e-5

# The step as the package takes it ---------------------------------------------------------------


class Package:
    """Rows as they came; rounding is part of the sensitivity."""

    copy_mb = 0.0

    def __init__(self, X, y):
        self._source = LinearSource(LOSS, Features(X, RowMap(norm="l2", bias=BIAS)), y)

    def sum(self, weights):
        """Clipped sum at `weights`."""
        return self._total(weights).value

    def slack(self, weights):
        """Share of the bound that is there for rounding."""
        return self._total(weights).norm_bound / CLIP - 1

    def _total(self, weights):
        total = DisjointTotal()
        for rows in self._source.chunks():
            total.add(clipped_sum(self._source.at(weights, rows), CLIP))
        return total.bounded_sum()


# The same in integers ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Exact:
    """Sums of integers times integers, of which no partial sum leaves the range of the dtype.

    A row and its bias entry are integers q of at most `row_bits` bits, and its features q / |q|;
    a clipped residual over |q| is an integer m of at most `residual_bits` bits, times a public
    step, rounded towards zero.
    """

    row_bits: int
    residual_bits: int
    block: int  # rows of a product
    limbs: int = 0  # parts of a residual, for products in float32; 0: products in float64
    keep: str | None = None  # dtype of a copy of the rows; None rounds rows at each step
    exact_scores: bool = False

    def __post_init__(self):
        bits = self.row_bits + -(-self.residual_bits // max(1, self.limbs))
        assert 2**bits * self.block <= 2 ** (24 if self.limbs else 53), self

    def __call__(self, X, y):
        """Such sums of rows."""
        return ExactStep(self, X, y)


class ExactStep:
    """One clipped sum after the other, exact in any order."""

    def __init__(self, how, X, y):
        self._how, self._X, self._y, n = how, X, y, X.shape[0]
        assert 2 ** (how.row_bits + how.residual_bits) * n <= 2**53
        top = 2.0**how.row_bits - 1
        self._dtype = np.float32 if how.limbs else np.float64
        self._units, self._biases, self.squares = np.empty(n), np.empty(n), np.empty(n)
        copy = None if how.keep is None else np.empty(X.shape, how.keep)
        for rows in slices(n, 4096):
            self._units[rows] = top / np.maximum(np.abs(X[rows]).max(axis=1), BIAS)
            self._biases[rows] = np.trunc(BIAS * self._units[rows])
            q = self._rounded(rows).astype(np.float64)
            self.squares[rows] = np.vecdot(q, q) + self._biases[rows] ** 2  # integers: exact
            if copy is not None:
                copy[rows] = q
        self._copy = copy
        self._shrink = 1 / (np.sqrt(self.squares) * (1 + 4 * EPS))  # of q, to norm 1 or less
        self.unit = CLIP / (top * (2.0**how.residual_bits - 1))  # of a residual over |q|
        self.copy_mb = 0.0 if copy is None else copy.nbytes / 1e6

    def _rounded(self, rows):
        q = self._X[rows] * self._units[rows].astype(self._X.dtype)[:, None]
        return np.trunc(q, out=q)

    def _parts(self, weights):
        """Integer rows and residuals of chunks, in the dtype of the products."""
        how = self._how
        weights = exact_weights(weights, how.row_bits) if how.exact_scores else weights
        for rows in slices(self._X.shape[0], 4096 if how.limbs else how.block):
            q = self._rounded(rows) if self._copy is None else self._copy[rows]
            q = q.astype(self._dtype, copy=False)
            yield rows, q, self._residuals(weights, q, rows)

    def sum(self, weights):
        """Clipped sum at `weights`."""
        width, c = weights.shape
        total, biases = np.zeros((c, width - 1)), np.zeros(c)
        for rows, q, m in self._parts(weights):
            total += in_limbs(m, q, self._how) if self._how.limbs else m.T @ q
            biases += self._biases[rows] @ m.astype(np.float64, copy=False)
        return self.unit * np.concatenate([total, biases[:, None]], axis=1).T

    def largest(self, weights):
        """Largest norm of a record's part of the sum, over the bound."""
        norms = [
            np.sqrt(self.squares[rows] * np.sum(m.astype(np.float64) ** 2, axis=1)).max()
            for rows, _, m in self._parts(weights)
        ]
        return self.unit * max(norms) / CLIP

    def _residuals(self, weights, q, rows):
        """Clipped residuals over |q|, as integers in the dtype of the products."""
        shrink = self._shrink[rows]
        scores = by_columns(q @ weights[:-1].astype(q.dtype))
        scores += (self._biases[rows][:, None] * weights[-1]).astype(q.dtype)
        scores *= shrink.astype(q.dtype)[:, None]
        r = LOSS.residual(self._y[rows], scores)
        eps, c = np.finfo(r.dtype).eps, r.shape[1]
        norms = np.sqrt(np.sum(r * r, axis=1) + c * np.finfo(r.dtype).smallest_normal)
        norms = norms.astype(np.float64) * (1 + (8 + c) * eps)
        # Smaller by what the cast and the product of the next lines may add.
        factors = np.minimum(1.0, CLIP / norms) * shrink / self.unit * (1 - 2 * eps)
        r *= factors.astype(r.dtype)[:, None]
        return np.trunc(r, out=r)


def exact_weights(weights, row_bits):
    """Public weights on a lattice on which scores are exact sums."""
    bits = 53 - row_bits - int(np.ceil(np.log2(weights.shape[0])))
    unit = 2.0 ** (np.floor(np.log2(max(np.abs(weights).max(), 1e-300))) + 1 - bits)
    return np.rint(weights / unit) * unit


def in_limbs(m, q, how):
    """Sums of m' q by products of blocks in float32, each an exact integer, added up in float64."""
    k, d = q.shape
    parts, scales = [m], [1.0]
    if how.limbs == 2:
        base = 2.0 ** -(-how.residual_bits // 2)
        high = np.trunc(m * (1 / base))
        parts, scales = [high, m - base * high], [base, 1.0]
    columns = np.concatenate([part.T for part in parts])  # (limbs c, k)
    whole = k - k % how.block
    left = columns[:, :whole].reshape(len(columns), -1, how.block).transpose(1, 0, 2)
    right = q[:whole].reshape(-1, how.block, d)
    out = np.matmul(left, right).sum(axis=0, dtype=np.float64)
    out += columns[:, whole:] @ q[whole:]
    return sum(scale * part for scale, part in zip(scales, np.split(out, len(parts)), strict=True))


# What it costs and what it gains ----------------------------------------------------------------

IN_FLOAT32 = {
    "two limbs, 9-bit rows kept": Exact(9, 16, block=128, limbs=2, keep="float32"),
    "two limbs, 8-bit rows kept": Exact(8, 16, block=256, limbs=2, keep="float32"),
    "two limbs, 9-bit rows kept as int16": Exact(9, 16, block=128, limbs=2, keep="int16"),
    "two limbs, rows rounded at each step": Exact(9, 16, block=128, limbs=2),
    "one limb, 7-bit rows kept": Exact(7, 10, block=128, limbs=1, keep="float32"),
    "float64, rows kept as float32": Exact(15, 18, block=512, keep="float32"),
    "float64, rows kept as int16": Exact(15, 18, block=512, keep="int16"),
    "float64, rows kept as float32, exact scores": Exact(
        15, 18, block=512, keep="float32", exact_scores=True
    ),
}
IN_FLOAT64 = {
    "float64, rows kept": Exact(18, 18, block=1024, keep="float64"),
    "float64, rows kept, exact scores": Exact(
        18, 18, block=1024, keep="float64", exact_scores=True
    ),
    "float64, rows kept as float32": Exact(18, 18, block=512, keep="float32"),
    "float64, rows rounded at each step": Exact(18, 18, block=512),
}
VARIANTS = {"float32": IN_FLOAT32, "float64": IN_FLOAT64}


def step_rows(args):
    for dtype, variants in VARIANTS.items():
        for outputs in (10, 1):
            rng = np.random.default_rng(0)
            X = rng.random((args.rows, args.features), dtype=np.float32).astype(dtype)
            y = rng.integers(max(outputs, 2), size=args.rows)
            weights = rng.normal(size=(args.features + 1, outputs))
            for name, how in {"the package": Package, **variants}.items():
                case = {"rows": dtype, "outputs": outputs, "sum": name}
                yield case | measured(how, X, y, weights, args.repeats)


def measured(how, X, y, weights, repeats):
    package, other = Package(X, y), how(X, y)
    times = in_turns([lambda: package.sum(weights), lambda: other.sum(weights)], repeats)
    package_times, times = times[:, :, 0], times[:, :, 1]
    value, reference = other.sum(weights), package.sum(weights)
    order = np.random.default_rng(1).permutation(len(y))
    off = np.linalg.norm(value - reference) / (MULTIPLIER * CLIP * np.sqrt(value.size))
    return {
        "package_ms": ms(package_times),
        "this_ms": ms(times),
        **ratios(times, package_times),
        "copy_mb": round(other.copy_mb, 1),
        "temporaries_mb": round(peak_mb(lambda: other.sum(weights)), 1),
        "slack": float(f"{other.slack(weights):.2g}") if how is Package else 0.0,
        "largest": None if how is Package else round(other.largest(weights), 6),
        "off_in_noise": float(f"{off:.2g}"),
        "any_order": bool(np.array_equal(value, how(X[order], y[order]).sum(weights))),
    }


def peak_mb(function):
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


if __name__ == "__main__":
    run(__doc__, step_rows, {"rows": 60_000, "features": 784, "repeats": 15})
