"""Bounded sums, and the only code that adds noise.

To check a privacy claim, read this file: a :class:`BoundedSum` holds how far one record can move
it, :func:`release` adds Gaussian noise in proportion, :func:`release_laplace`,
:func:`release_direction` and :func:`release_choice` do the same for pure differential privacy, and
nothing else in the package adds noise.

Design note. The proofs are about noise in real numbers, and floating-point numbers are not real:
the last bits of a float show at which magnitude it was rounded, so that ``sum + noise`` in plain
arithmetic can have values that only one of two neighbouring sums can produce (Mironov, 2012; Haney
et al., 2022). Sum and noise are therefore whole multiples of one public *step*, a power of 2 that
follows from the noise scale alone (:func:`lattice_step`). They are added as integers, exactly, and
the result is such a multiple for any records. Rounding a sum to the lattice moves it; the bound
that is charged includes this (:meth:`BoundedSum.on_lattice`).

A float has room for 53 bits, and a sum over 10^9 records beside small noise has more steps than
that. It needs no more room. The sum of two floats is the float nearest to their exact sum (IEEE
754): where both are whole numbers of steps, it is a function of the exact noisy sum, and so reveals
nothing beyond it (:func:`release`). The rounding of a large sum before the noise is added is
rounding like any other, and in the bound (:func:`~dpsubspace._core.ground.arrays.sum_slack`). Two
alternatives were rejected. Integers in two words would be exact, for more time in each step and no
less noise. A step that grows with the number of records, so that all sums stay below 2^53, would
widen the noise of all sums by the rounding to such a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpsubspace._core.ground.arrays import Array, Total, as_like, to_numpy
from dpsubspace._core.release.bingham import sample_bingham, sample_matrix_bingham
from dpsubspace._core.release.noise import NoiseSource

# A lattice has at least this many steps in one scale of the noise, and less than twice as many.
_STEPS = 2.0**24

# _LEAST: least noise multiplier for each record: noise is then 2^11 times as wide as the last bit
# of a sum. Such a sum has fewer steps than _LARGEST, and larger numbers are clipped to it.
_LEAST, _LARGEST = 2.0**-40, 2.0**66


# Bounded sums -------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundedSum:
    """Sum over records with its sensitivity: how far one record can move it. Not yet released."""

    value: Array  # The sum. Private.
    # Most that one record contributes, in L2 norm. This is how far the sum moves when a record
    # becomes a null record (``"zero_out"``).
    norm_bound: float
    # Most that the sum moves when one record is replaced by another (``"replace_one"``): twice
    # `norm_bound` for vectors, less for some other shapes.
    replace_bound: float

    def __post_init__(self) -> None:
        if not 0 < self.norm_bound <= self.replace_bound:
            raise ValueError(
                "a bounded sum needs 0 < norm_bound <= replace_bound,"
                f" got {self.norm_bound} and {self.replace_bound}."
            )

    def unit(self, neighboring_relation: str, *, sampled: bool = False) -> float:
        """Standard deviation of the noise at a multiplier of 1.

        Accountants define the multiplier of a Gaussian event against the norm of a record and
        double the sensitivity themselves under ``"replace_one"``. The unit is therefore half of
        `replace_bound` there, so that one event is right under both relations. For a Poisson batch,
        in which a record may be missing, the unit is at least the norm of a record's contribution.
        """
        if neighboring_relation == "zero_out":
            return self.norm_bound
        half = self.replace_bound / 2
        return max(self.norm_bound, half) if sampled else half

    def on_lattice(self, step: float) -> Self:
        """Return the sum in units of `step`, rounded to integers, with bounds in these units.

        The result is in NumPy, wherever the sum is, since that is where noise is drawn.

        Proof of the bounds: rounding moves each of the p entries by at most half a step in either
        of two neighbouring sums, so their distance grows by at most one step an entry, ``sqrt(p)``
        steps in L2 norm. A float of more than 2^52 steps is a whole number of them and is not
        moved. Entries beyond 2^66 steps, which :func:`check_lattice` prevents, are clipped to that:
        this moves no two numbers further apart.
        """
        whole = np.rint(to_numpy(self.value) / np.float64(step))
        whole = np.minimum(np.maximum(whole, -_LARGEST), _LARGEST)
        moved = self._rounding(whole.size)
        return type(self)(whole, self.norm_bound / step + moved, self.replace_bound / step + moved)

    @staticmethod
    def _rounding(n_entries: int) -> float:
        """Bound on how much rounding to integers adds to the distance of two sums."""
        return math.sqrt(n_entries)


class BoundedL1Sum(BoundedSum):
    """Bounded sum whose bounds hold in L1 norm, and so in L2 norm, which is never larger."""

    @staticmethod
    def _rounding(n_entries: int) -> float:
        return float(n_entries)


def lattice_step(scale: float) -> float:
    """Distance of the possible results with noise of `scale`: a power of 2, about 2^-24 of it."""
    if not (0 < scale < math.inf):
        raise ValueError(f"the noise scale must be positive and finite, got {scale}.")
    step = math.ldexp(1.0, math.frexp(scale)[1] - 1) / _STEPS
    if not step > 0:
        raise ValueError(f"the noise scale must be at least 1e-300, got {scale}.")
    return step


def check_lattice(n_samples: int, *noise_multipliers: float) -> None:
    """Raise ValueError for noise that is lost in sums over so many records, or hides any data.

    An entry of a sum is at most n times the bound on a record's contribution, and adjacent floats
    of that size differ by at most ``n 2^-52`` of the bound. Noise of a multiplier s is at least ``s
    / 2`` of that bound wide, in both relations: with ``s >= n 2^-40`` it is 2^11 times as wide as
    the gap between floats. The noise then has the distribution that the multiplier states, for all
    who use it. No privacy depends on that. A step is more than 2^-26 of s times the bound, so that
    the sum has less than ``n 2^26 / s <= 2^66`` steps.

    Rounding of p entries widens noise of a multiplier s by ``s sqrt(p)`` steps, which must stay
    below 2^40.
    """
    if not noise_multipliers:  # choices, unlike sums, use no lattice
        return
    least, most = min(noise_multipliers), max(noise_multipliers)
    if most > 1e9:
        raise ValueError(
            f"a noise multiplier of {most:.2g} would hide any data and is not"
            " supported: it must be at most 1e9. Use a larger `epsilon`, or a smaller `n_iter`."
        )
    if 0 < least < n_samples * _LEAST:
        raise ValueError(
            f"{n_samples} rows need a noise multiplier of at least {n_samples * _LEAST:.2g}, got"
            f" {least:.2g}: smaller noise is lost when large sums are rounded. Use a smaller"
            " `epsilon`, or epsilon=inf for a model that is not private."
        )


def vector_sum(value: Array, norm_bound: float, slack: float) -> BoundedSum:
    """Sum of vectors over records, each of norm at most `norm_bound`.

    A record that becomes a null record moves it by at most that, a replaced record by at most twice
    that (triangle inequality), and rounding by `slack` more, in units of the bound.
    """
    return BoundedSum(value, norm_bound * (1 + slack), norm_bound * (2 + slack))


def gram_sum(value: Array, norm_bound: float, slack: float = 0.0) -> BoundedSum:
    """Sum of ``g g'`` over records of norm at most `norm_bound`, bounded in Frobenius norm.

    The sum (p, p) is private, and ``|g| <= norm_bound = c`` holds for every record. `slack` is how
    far rounding moves the sum between neighbours, in Frobenius norm and in units of c^2.

    Proof, without rounding: ``|g g'| = |g|^2 <= c^2``, and ``|g g' - h h'|^2 = |g|^4 + |h|^4 - 2
    (g' h)^2 <= 2 c^4``. Rounding adds a matrix E of norm at most ``slack c^2``. It counts with a
    factor sqrt(2) because of :func:`release_direction`, whose score may move both ways by rounding:
    the largest and the least eigenvalue of a symmetric E differ by at most sqrt(2) times its norm.
    """
    square = norm_bound**2
    widened = 1 + math.sqrt(2) * slack
    return BoundedSum(value, square * widened, square * math.sqrt(2) * widened)


def energy_sum(value: Array, norm_bound: float, slack: float = 0.0) -> BoundedL1Sum:
    """Energy of records along orthonormal directions and off them, bounded in L1 norm.

    The private `value` (k + 1,) is ``sum (v_j' g)^2`` over records for each of k directions, and
    then ``sum |g|^2 - sum_j (v_j' g)^2``, with ``|g| <= norm_bound = c`` for every record. `slack`
    is how far rounding moves the sum between neighbours, in L1 norm and in units of c^2. An error E
    of the matrix ``sum g g'`` contributes up to ``sqrt(p) |E|`` to that.

    Proof: the contribution of a record has no negative entry (the last one by Bessel's inequality)
    and adds up to ``|g|^2 <= c^2``, so a null record moves the sum by at most c^2. A replaced
    record moves it by at most twice that, and two orthogonal records along two directions reach
    this bound. The directions may be released ones: they are fixed when the sum is computed.
    """
    square = norm_bound**2
    return BoundedL1Sum(value, square * (1 + slack), square * (2 + slack))


def trace_sum(total: BoundedSum, norm_bound: float, n_components: int) -> BoundedSum:
    """Sum of :func:`gram_sum` with bounds for scores ``tr(X' S X)`` of k-dimensional X.

    Proof: the rounding error E moves ``tr(X' E X)`` by at least the sum of the k least eigenvalues
    of E and at most the sum of the k largest, and these sums differ by at most ``sqrt(2 k)`` times
    the norm of E. In `total` rounding counts ``sqrt(2)`` times: its part grows by ``sqrt(k)``.
    """
    square = norm_bound**2
    spread = square + math.sqrt(n_components) * (total.norm_bound - square)
    return BoundedSum(total.value, spread, math.sqrt(2) * spread)


class BoundedScores(BoundedSum):
    """Scores of candidates, one number each, with bounds on *differences of moves*.

    The move of a candidate is how far one record moves its score. `norm_bound` is the most by which
    the moves of two candidates differ if the record becomes null, and `replace_bound` if it is
    replaced.
    """


def score_sum(value: np.ndarray) -> BoundedScores:
    """Sum over records of scores in [0, 1], computed without rounding.

    The private `value` is what records contribute to each candidate, plus a public part.

    Proof: a record that becomes null takes away from each candidate a number in [0, 1], so that two
    moves differ by at most 1. A record that is replaced moves each score by a number in [-1, 1], so
    that two moves differ by at most 2, for example where a record with all its score on one
    candidate is replaced by one with all its score on another. Adding a constant to a score does
    not change its moves.
    """
    return BoundedScores(np.asarray(value, dtype=np.float64), 1.0, 2.0)


class DisjointTotal:
    """Total of sums over disjoint sets of records: a record is in one sum, whose bounds hold."""

    def __init__(self) -> None:
        self._total = Total()
        self._bounds = (0.0, 0.0)

    def add(self, part: BoundedSum) -> None:
        self._total.add(part.value)
        self._bounds = (
            max(self._bounds[0], part.norm_bound),
            max(self._bounds[1], part.replace_bound),
        )

    def merge(self, other: DisjointTotal) -> None:
        self._total.merge(other._total)
        self._bounds = (
            max(self._bounds[0], other._bounds[0]),
            max(self._bounds[1], other._bounds[1]),
        )

    def bounded_sum(self) -> BoundedSum:
        return BoundedSum(self._total.value, *self._bounds)


class DisjointTotals:
    def __init__(self) -> None:
        self._totals: list[DisjointTotal] = []

    def add(self, parts: tuple[BoundedSum, ...]) -> None:
        self._totals = self._totals or [DisjointTotal() for _ in parts]
        for total, part in zip(self._totals, parts, strict=True):
            total.add(part)

    def merge(self, other: DisjointTotals) -> None:
        for total, part in zip(self._totals, other._totals, strict=True):
            total.merge(part)

    def bounded_sums(self) -> tuple[BoundedSum, ...]:
        return tuple(total.bounded_sum() for total in self._totals)


def release(
    total: BoundedSum,
    noise_multiplier: float,
    noise: NoiseSource,
    *,
    neighboring_relation: str,
    sampled: bool = False,
) -> Array:
    """Add the noise that makes `total` a Gaussian mechanism of `noise_multiplier`.

    The multiplier is the standard deviation of the noise in units of
    ``total.unit(neighboring_relation, ...)``. Zero adds nothing: the result is then *not private*
    (this is how ``epsilon=inf`` runs). `sampled` is true for a sum over a Poisson batch.

    The result is ``total.value + N(0, (noise_multiplier * unit)^2)`` in whole multiples of a public
    step, safe to publish.

    Privacy: one record moves ``total.value`` by at most ``norm_bound`` (zero_out) or
    ``replace_bound`` (replace_one) in L2 norm, so the output is 1/noise_multiplier-GDP or
    2/noise_multiplier-GDP respectively (Dong, Roth, Su, 2022, Theorem 2.7). Event:
    ``GaussianDpEvent(noise_multiplier)``, inside a ``PoissonSampledDpEvent`` for a batch. Under
    replace_one that event covers a record whose contributions in the two data sets are opposite and
    as long as possible, which is the worst case (Lebeda, Regehr, Kamath, Steinke, 2024); hence the
    larger unit there.

    Floating point: the sum is rounded to a lattice, with bounds that include this, and the noise is
    a normal variable rounded down to the same lattice. With k an integer vector, ``k + floor(z) =
    floor(k + z)``: the exact noisy sum is the result of a Gaussian mechanism on the rounded sum,
    rounded down, which is postprocessing. Floats represent k and the noise, which is below 2^46,
    exactly. Where their sum is below 2^53 it is added exactly. Where it is not, the result is ``R(k
    + floor(z))`` with R the rounding of a number to the nearest float: IEEE 754 guarantees this for
    the sum of any two floats. So the output is a function of the exact noisy sum alone, which is
    postprocessing again, for sums of any size: no bit of it reveals from which k and noise it was
    made. The same holds for products with the step, a power of 2, and for conversions. The
    remaining deviation is that of :func:`lattice_normals`.
    """
    if noise_multiplier == 0:
        return total.value
    step = lattice_step(noise_multiplier * total.unit(neighboring_relation, sampled=sampled))
    raw = total.on_lattice(step)
    scale = noise_multiplier * raw.unit(neighboring_relation, sampled=sampled)
    noisy = raw.value + noise.gaussian(raw.value.shape, scale)
    return as_like(noisy * step, total.value)


def release_laplace(
    total: BoundedL1Sum, epsilon: float, noise: NoiseSource, *, neighboring_relation: str
) -> Array:
    """Add the noise that makes `total` a Laplace mechanism of `epsilon`, with no delta.

    The result is ``total.value`` with independent Laplace noise of scale ``bound / epsilon``, where
    the bound is ``norm_bound`` (zero_out) or ``replace_bound`` (replace_one), in L1 norm. An
    epsilon of inf adds nothing, and the result is *not private*.

    Privacy: log densities of the output differ by at most the L1 distance of the sums over the
    scale (Dwork, McSherry, Nissim, Smith, 2006). Event: ``laplace(epsilon)``, which is the event of
    a single number that moves by the whole bound. That is the worst case. Proof, for two entries
    that move by ``r >= s >= 0`` in units of the scale: the privacy loss is ``l_r + l_s``. As the
    noise is as likely to go with the move as against it, and with e an exponential variable,
    ``l_r`` is ``-r`` or ``2 min(e, r) - r``. Let r grow and s shrink by the same amount. The
    hockey-stick divergence, a maximum over events that is reached by ``{l_r + l_s > a}``, then
    changes in proportion to ``P(2 min(e, r) > a + r + s)``, for noise with s and against r, less
    ``P(2 min(e, s) > a + r + s)``, for the reverse; the first is larger. So a move is worst if all
    of it is in one entry, for any contribution of further entries to a, and by the same argument a
    larger move is worse.

    Floating point: sum and noise are whole multiples of a public step, as in :func:`release`. The
    noise consists of integers whose probabilities fall by ``e^(1 / scale)`` from one to the next
    (the discrete Laplace distribution of Ghosh, Roughgarden, Sundararajan, 2012). They hide a shift
    of d steps in L1 norm with ``epsilon = d / scale`` and no delta, except for the end of the tail,
    beyond which a probability of 1e-280 is left. The factors of :func:`lattice_laplace` cost 1e-11
    of epsilon an entry, which is set apart here.
    """
    _check_epsilon(epsilon)
    if epsilon == math.inf:
        return total.value

    def scale_of(some: BoundedL1Sum) -> float:
        bounds = {"zero_out": some.norm_bound, "replace_one": some.replace_bound}
        return bounds[neighboring_relation] / (epsilon - 1e-11 * math.prod(some.value.shape))

    step = lattice_step(scale_of(total))
    raw = total.on_lattice(step)
    noisy = raw.value + noise.laplace(raw.value.shape, scale_of(raw))
    return as_like(noisy * step, total.value)


def release_direction(
    total: BoundedSum, epsilon: float, noise: NoiseSource, *, neighboring_relation: str
) -> np.ndarray:
    """Draw a direction along which a sum of ``g g'`` is large: an exponential mechanism.

    `total` is ``S = sum g g'`` over records with ``|g| <= c``, from :func:`gram_sum`: the bounds
    are c^2 and sqrt(2) c^2, and a record that becomes null takes away a matrix without negative
    eigenvalues. No type can check the latter.

    The result is a unit vector v (p,) in float64 with density proportional to ``exp(lambda v' S
    v)`` on the sphere, with ``lambda = epsilon / c^2`` (zero_out) or ``epsilon / (2 c^2)``
    (replace_one). Its sign is random. At an epsilon of inf it is the top eigenvector, which is *not
    private*.

    Privacy: epsilon-differential privacy with no delta, and more: a *bounded range* of epsilon.
    Event: ``bounded_range(epsilon)``. Proof: for neighbours with sums S and T,

        log p_S(v) - log p_T(v) = lambda v' (S - T) v - (log Z_S - log Z_T),

    in which the normalisers Z are constants. Over all v the left side therefore lies in an interval
    as long as lambda times the *spread* of ``v' (S - T) v``: its largest value less its least. That
    is the bounded range (Dong, Durfee, Rogers, 2020). Both densities have integral 1, so neither is
    above the other everywhere: the interval holds 0, and the left side is at most epsilon in
    absolute value. This covers the normalisers, which can use up any part of epsilon. Swapping S
    and T negates the left side and keeps the length of the interval, so that both directions of a
    relation cost the same.

    The spread is the largest eigenvalue less the least eigenvalue of the symmetric S - T.

    * zero_out: ``S - T = g g'``, whichever of the two has the null record, up to a sign. The
      spread is at most ``|g|^2 <= c^2``, as the score can only rise with a record. Rounding adds
      at most sqrt(2) times its Frobenius norm, which `norm_bound` includes.
    * replace_one: the spread of any symmetric matrix is at most sqrt(2) times its Frobenius
      norm, so at most ``sqrt(2) replace_bound = 2 c^2``. A record that is replaced by an orthogonal
      one reaches this bound.

    Floating point: a sum with rounding may be asymmetric; its symmetric part has the same scores
    and moves no further. The computations after the sum are treated as exact, although `eigh` has
    an error of about ``p |S|`` units of rounding; and the number of proposals, which depends on S,
    shows in the time of a draw, if only in batches of a constant size. The direction is rounded to
    multiples of 2^-26, which removes the bits that hold most of that rounding. What remains is that
    the probability of a direction deviates by a factor as near to 1 as rounding errors are to 0:
    unlike for sums, there is no proof that this costs nothing.
    """
    _check_epsilon(epsilon)
    matrix = to_numpy(total.value).astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    if epsilon == math.inf:
        return np.linalg.eigh(matrix)[1][:, -1]
    spread = _score_spread(total, neighboring_relation)
    direction = sample_bingham(matrix * (epsilon / spread), noise.normals, noise.uniform)
    rounded = np.rint(direction * 2.0**26) + 0.0  # no -0
    return rounded / np.linalg.norm(rounded)


def release_subspace(
    total: BoundedSum,
    epsilon: float,
    noise: NoiseSource,
    *,
    n_components: int,
    neighboring_relation: str,
) -> np.ndarray:
    """Draw a subspace that holds much of a sum of ``g g'``: an exponential mechanism.

    `total` is ``S = sum g g'`` over records with ``|g| <= c``, from :func:`trace_sum`: the bounds
    are c^2 and sqrt(2) c^2 but for rounding, as for :func:`release_direction`.

    The result is an orthonormal basis X (p, k) of a subspace whose density against the uniform
    distribution is proportional to ``exp(lambda tr(X' S X))``, with ``lambda = epsilon / c^2``
    (zero_out) or ``epsilon / (2 c^2)`` (replace_one): the matrix Bingham distribution of Chaudhuri,
    Sarwate, Sinha (2013), drawn exactly. At an epsilon of inf it is the subspace of the k largest
    eigenvalues, which is *not private*.

    Privacy: epsilon-differential privacy with no delta, and a *bounded range* of epsilon, for any
    k. Event: ``bounded_range(epsilon)``. The proof is that of :func:`release_direction`, with
    ``tr(X' (S - T) X)`` in place of ``v' (S - T) v``. It remains to bound the spread.

    * zero_out: ``S - T = g g'`` up to a sign, and ``tr(X' g g' X) = |X' g|^2`` lies between 0 and
      ``|g|^2 <= c^2``, since the columns of X are orthonormal. The score can only rise with a
      record, so that no factor 2 is due.
    * replace_one: ``|X' g|^2 - |X' h|^2`` lies between -c^2 and c^2. A record that is
      replaced by an orthogonal one reaches this where k is less than p.

    Floating point: the draw is a subspace; its basis in the sampler depends on S as well. The
    release is the projection on the subspace, rounded to multiples of 2^-26, and a basis that is
    computed from the rounded projection alone. As for a direction, arithmetic between the sum and
    the draw is treated as exact, apart from a share of 1e-6 of epsilon that is set apart. The
    number of proposals, which has no bound, shows in the time of a draw.
    """
    _check_epsilon(epsilon)
    matrix = to_numpy(total.value).astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    if epsilon == math.inf:
        return np.linalg.eigh(matrix)[1][:, ::-1][:, :n_components]
    spread = _score_spread(total, neighboring_relation)
    scaled = matrix * (epsilon * (1 - 1e-6) / spread)
    drawn = sample_matrix_bingham(scaled, n_components, noise.normals, noise.uniform)
    projection = np.rint(drawn @ drawn.T * 2.0**26) / 2.0**26 + 0.0  # no -0
    start = np.random.default_rng(0).standard_normal(drawn.shape)  # public
    return np.linalg.qr(projection @ start)[0]


def _score_spread(total: BoundedSum, neighboring_relation: str) -> float:
    """Bound on how far one record moves the scores of two draws apart."""
    spread = {
        "zero_out": total.norm_bound,
        "replace_one": math.sqrt(2) * total.replace_bound,
    }[neighboring_relation]
    if not spread < math.inf:
        raise ValueError("a sum without bounds cannot be released.")
    return spread


def release_choice(
    scores: BoundedScores, epsilon: float, noise: NoiseSource, *, neighboring_relation: str
) -> int:
    """Choose a candidate with a large score: the exponential mechanism.

    The result is an index j, with a probability in proportion to ``exp(epsilon u_j / d)`` for
    scores u and d the bound of the relation. At an epsilon of inf it is the first candidate of the
    largest score, which is *not private*.

    Privacy: epsilon-differential privacy with no delta, and more: a *bounded range* of epsilon.
    Event: ``bounded_range(epsilon)``. Proof: for neighbours with scores u and v,

        log P_u(j) - log P_v(j) = (epsilon / d) (u_j - v_j) - (log Z_u - log Z_v),

    in which the normalisers Z are constants. Over all j the left side lies in an interval as long
    as epsilon times the largest difference of two moves over d, which is at most 1. Both
    probabilities add up to 1, so that the interval holds 0, and the left side is at most
    epsilon in absolute value (McSherry, Talwar, 2007; Dong, Durfee, Rogers, 2020). The number
    of candidates has no part in it.

    Where scores can only rise with a record, like those of :func:`score_sum` under zero_out, d is
    half of the textbook's value for arbitrary scores: the same epsilon then chooses as well as with
    twice the records.

    Floating point: only the index is released. It is the winner of a race of exponential variables,
    which are drawn with all digits near 0, at rates ``exp(epsilon u_j / d)``: the first to arrive
    is j with the probability above. Logarithms of arrival times have an error of a few units of
    rounding of numbers below 1e3, so that every probability is right up to a factor of ``1 +-
    1e-11``, for which the same part of epsilon is set apart. A candidate whose probability is below
    1e-280 is never chosen.
    """
    _check_epsilon(epsilon)
    if epsilon == math.inf:
        return int(np.argmax(scores.value))
    bounds = {"zero_out": scores.norm_bound, "replace_one": scores.replace_bound}
    behind = np.max(scores.value) - scores.value
    lost = behind * ((epsilon - min(1e-10, epsilon / 2)) / bounds[neighboring_relation])
    arrivals = np.log(noise.exponentials(lost.shape)) + lost
    return int(np.argmin(arrivals))


def _check_epsilon(epsilon: float) -> None:
    if not epsilon > 0:  # negative, zero or NaN
        raise ValueError(f"`epsilon` of a release must be positive, got {epsilon}.")
