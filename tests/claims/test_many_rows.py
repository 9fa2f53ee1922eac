"""Sums over 10^9 rows and more: they have more digits than a float, and small noise still hides."""

import copy
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("distributed")

from helpers import RARE, assert_within_bounds, blobs, examples, move, multipliers, releases
from hypothesis import given
from hypothesis import strategies as st
from in_parts import blocks, cluster_here
from scipy import stats

from dpsubspace import DPLinearRegression, DPSGDFClassifier, private_mean
from dpsubspace._core.ground.arrays import Total, sum_slack
from dpsubspace._core.release import mechanisms
from dpsubspace._core.release.mechanisms import (
    BoundedL1Sum,
    BoundedSum,
    check_lattice,
    release,
    release_laplace,
)
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.rows import dask_parts, inputs
from dpsubspace._core.rows.records import exact_steps

# The largest number of rows that is written about.
MOST = 10**10


# What comes out is the float nearest to the exact noisy sum ---------------------------------------


class GivenNoise(SeededNoise):
    """Noise of these whole numbers."""

    def __init__(self, *values):
        super().__init__(0)
        self.values = np.array(values, dtype=np.float64)

    def gaussian(self, shape, scale):
        self.scale = scale
        return self.values

    laplace = gaussian


# Whole numbers that a float holds, of up to 2^66, and noise.
wholes = st.builds(
    lambda digits, power, sign: sign * digits * 2**power,
    st.integers(0, 2**53),
    st.integers(0, 13),
    st.sampled_from([-1, 1]),
)


@given(k=wholes, z=st.integers(-(2**46), 2**46))
@examples(500)
def test_what_comes_out_is_the_float_nearest_to_the_exact_noisy_sum(k, z):
    """So it is a function of that alone, whichever sum and noise it is made of."""
    how, value = {"neighboring_relation": "zero_out"}, np.array([float(k) * 2.0**-24])
    assert int(value[0] * 2.0**24) == k
    noise = GivenNoise(z)
    for out in (
        release(BoundedSum(value, 1.0, 2.0), 1.0, noise, **how),
        release_laplace(BoundedL1Sum(value, 1.0, 2.0), 1.0 + 1e-11, noise, **how),
    ):
        assert out[0] == float(k + z) * 2.0**-24


# A lattice so coarse that all of its noise can be tried.
_COARSE = 8.0

# Sums beside which floats are apart by 1 to 16 steps, and by what rounding makes of ties.
PLACES = [0, 2**53 - 40, 2**53 + 2, 2**54 - 40, 2**55 + 12, -(2**56) + 24, 2**57 - 16]


def probabilities(monkeypatch, value, bounds, relation):
    """Probability of each number that can come out, and by how much the noise is wider than 1."""
    with monkeypatch.context() as patch:
        patch.setattr(mechanisms, "_STEPS", _COARSE)
        found, noise = {}, GivenNoise(0)
        total = BoundedSum(np.array([value]), *bounds)
        for z in range(-90, 91):  # ten of its scales
            noise.values[:] = z
            out = float(release(total, 1.0, noise, neighboring_relation=relation)[0])
            chance = np.diff(stats.norm.cdf(np.array([z, z + 1]) / noise.scale))[0]
            found[out] = found.get(out, 0.0) + chance
    return found, noise.scale


def divergence(here, there, epsilon):
    """Largest excess of the probability of an event over ``e^epsilon`` times the other one."""
    return sum(max(0.0, p - math.exp(epsilon) * there.get(out, 0.0)) for out, p in here.items())


def allowed(mu, epsilon):
    """The same of a Gaussian mechanism (Balle, Wang, 2018)."""
    upper = stats.norm.cdf(mu / 2 - epsilon / mu)
    return upper - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("place", PLACES)
def test_no_event_is_likelier_than_a_gaussian_mechanism_allows(monkeypatch, place, relation):
    """All outputs of neighbouring sums that are as far apart as they may be, either way."""
    bounds, mu = (1.0, 2.0), {"zero_out": 1.0, "replace_one": 2.0}[relation]
    apart = {"zero_out": 1.0, "replace_one": 2.0}[relation]
    step, worst = 2.0**-3, 0.0
    for shift in range(4):
        value = float(place + shift) * step
        for sign in (-1, 1):
            there = value + sign * apart
            pair = [probabilities(monkeypatch, v, bounds, relation)[0] for v in (value, there)]
            moved = abs(pair_distance(value, there))
            for epsilon in (0.1, 0.5, 1.0, 2.0):
                limit = allowed(mu * moved / apart, epsilon)
                for here, other in (pair, pair[::-1]):
                    assert divergence(here, other, epsilon) <= limit + 1e-12
                    worst = max(worst, divergence(here, other, epsilon) / limit)
    # The bound counts a step of rounding, which is an eighth here: otherwise it is reached.
    assert worst > 0.3


def pair_distance(one, other):
    """How far two floats are apart: their difference is rounded on the way."""
    return float(Fraction(one) - Fraction(other))


def test_these_tests_would_notice_noise_that_is_too_narrow(monkeypatch):
    drawn = GivenNoise.gaussian

    def narrow(self, shape, scale):
        drawn(self, shape, scale)
        self.scale = 0.6 * scale
        return self.values

    monkeypatch.setattr(GivenNoise, "gaussian", narrow)
    value = float(2**54 + 4) * 2.0**-3
    here, there = (
        probabilities(monkeypatch, v, (1.0, 2.0), "zero_out")[0] for v in (value, value + 1)
    )
    assert divergence(here, there, 1.0) > 1.5 * allowed(1.0, 1.0)


# Rounding of sums -------------------------------------------------------------------------------


class PlainTotal:
    """A total that loses what additions lose."""

    value = 0.0

    def add(self, part):
        self.value = self.value + part


def total_of(chunks, kind=Total):
    total = kind()
    for chunk in chunks:
        total.add(chunk)
    return total.value


@pytest.mark.parametrize("seed", range(3))
def test_rounding_of_very_many_rows_is_in_the_bound(seed):
    """Chunks of 65,536 rows that bring up to 1 each, of which one becomes null."""
    rng = np.random.default_rng(seed)
    chunks = rng.uniform(0, 65536.0, size=(65536, 20)) / math.sqrt(20)
    row = rng.normal(size=20)
    others = chunks.copy()
    others[rng.integers(len(chunks))] -= row / np.linalg.norm(row)
    slack = sum_slack(65536**2, np.finfo(np.float64).eps, by_block=True)
    here, there = total_of(chunks), total_of(others)
    assert np.linalg.norm(here - there) <= 1 + slack
    exact = np.array([math.fsum(column) for column in chunks.T])
    assert (np.abs(here - exact) <= np.spacing(exact)).all()
    # Sums that carry nothing along err by 70 times as much: all of 20 columns are near the exact
    # sum with a chance below 1e-30.
    assert (np.abs(total_of(chunks, PlainTotal) - exact) > 4 * np.spacing(exact)).any()


def test_a_sum_over_so_many_rows_that_second_order_terms_count_has_them():
    eps = np.finfo(np.float64).eps
    for n in (1000, 2**30, 2**34):
        plain = 1.01 * 4 * n * eps
        assert sum_slack(n, eps, 1, 1) - plain == pytest.approx(1.01 * 8 * eps, rel=1e-3)
    chunks, n = 2.0**30, 2**37
    assert sum_slack(n, eps, 1, 1) >= 2 * (eps / 2 + (chunks * eps / 2) ** 2) * n


def test_sums_over_ten_billion_rows_are_bounded_as_those_over_few():
    assert sum_slack(MOST, np.finfo(np.float32).eps, by_block=True) < 0.01
    assert sum_slack(MOST, np.finfo(np.float64).eps, by_block=True) < 1e-4


# Parts of persons -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 2**29, 2**29 + 1, 2**33, MOST, 2**40])
def test_whole_steps_of_so_many_records_are_added_exactly(n):
    steps = exact_steps(n)
    assert math.frexp(steps)[0] == 0.5
    assert n * steps <= 2.0**53
    assert steps == 2.0**24 if n <= 2**29 else 2 * n * steps > 2.0**53


def test_parts_of_persons_are_added_in_any_order(rng):
    """The last of 10^10 persons: with steps of 2^-24, their order would move the sum."""
    counts = rng.integers(2, 50, size=3000)
    found = {}
    for steps in (exact_steps(MOST), 2.0**24):
        parts = np.floor(steps / counts) / steps
        begun = MOST - float(len(parts))
        orders = [np.arange(len(parts)), *(rng.permutation(len(parts)) for _ in range(5))]
        sums = {
            np.bincount(np.zeros(len(parts) + 1, int), [begun, *parts[order]])[0]
            for order in orders
        }
        exact = Fraction(begun) + sum(map(Fraction, parts))
        found[steps] = sums == {float(exact)} and Fraction(sums.pop()) == exact
    assert found == {exact_steps(MOST): True, 2.0**24: False}


# Whole fits -------------------------------------------------------------------------------------


def twofold(found):
    """A sum, or a total, of the same rows once more."""
    if not hasattr(found, "merge"):
        return found + found
    other = copy.deepcopy(found)
    other.merge(found)
    return other


def with_copies(monkeypatch, doublings):
    """All parts but the last hold their rows ``2 ** doublings`` times, as far as a fit can tell."""
    begin, run = dask_parts._DaskParts.__init__, dask_parts._DaskParts.run
    each, once = inputs.for_each_part, []

    def begun(self, *given, **options):
        begin(self, *given, **options)
        self.n = sum(self._sizes[:-1]) * 2**doublings + self._sizes[-1]

    def ran(self, task, own):
        assert own is None
        *many, last = run(self, task, own)
        for _ in range(0 if once else doublings):
            many = [twofold(found) for found in many]
        return [*many, last]

    def labels(*given):  # which there are, and not a sum
        once.append(True)
        try:
            return each(*given)
        finally:
            once.clear()

    monkeypatch.setattr(inputs, "for_each_part", labels)
    monkeypatch.setattr(dask_parts._DaskParts, "__init__", begun)
    monkeypatch.setattr(dask_parts._DaskParts, "run", ran)


SIZES = {"10^9": 20, "10^10": 24}
ROWS = 2000


def classifier(X, y, relation):
    options = {"neighboring_relation": relation, "n_iter": 3}
    return DPSGDFClassifier(epsilon=3.0, **options).fit(blocks(X), blocks(y))


def regression(X, y, relation):
    options = {"neighboring_relation": relation, "target_bounds": (0, 3)}
    return DPLinearRegression(epsilon=3.0, **options).fit(blocks(X), blocks(y * 1.0))


def p_value(seen, relation):
    """That noise is as wide as multipliers say."""
    drawn = []
    for total, out, multiplier in seen:
        unit = multiplier * total.unit(relation)
        drawn.append((out - total.value).ravel() / unit)
    square, law = np.sum(np.concatenate(drawn) ** 2), stats.chi2(sum(map(len, drawn)))
    return 2 * min(law.cdf(square), law.sf(square))


FITS = [classifier, regression]
EACH = list(itertools.product(FITS, SIZES, ["zero_out", "replace_one"]))


@pytest.mark.parametrize(("fit", "size", "relation"), EACH)
def test_fits_of_very_many_rows_have_the_noise_that_they_say(monkeypatch, fit, size, relation):
    """And learn what there is to learn: each of the rows counts a million times."""
    X, y = blobs(n=ROWS)
    with_copies(monkeypatch, SIZES[size])
    with cluster_here(monkeypatch, 2), releases(monkeypatch) as seen:
        model = fit(X, y, relation)
    said = model.privacy_
    assert said.n_samples > 0.95 * float(size.replace("10^", "1e")) and said.epsilon <= 3.0
    seen.sort(key=lambda one: -one[2])  # the intercept comes last, and is described before steps
    assert sorted(multipliers(said.event))[::-1] == pytest.approx([m for *_, m in seen])
    assert p_value(seen, relation) > RARE
    largest = max(np.abs(total.value).max() / total.norm_bound for total, *_ in seen)
    assert largest > 2.0**26  # more than there was room for beside noise of a multiplier of 1
    score = model.score(X, y)
    assert score > {classifier: 0.9, regression: 0.5}[fit]


@pytest.mark.parametrize(("fit", "size"), list(itertools.product(FITS, SIZES)))
@pytest.mark.parametrize("record", [1e6, -1e6, 0.0])
def test_a_row_among_very_many_moves_sums_within_their_bounds(monkeypatch, fit, size, record):
    """A row of the part that is counted once is replaced by another."""
    X, y = blobs(n=ROWS)
    other_X, other_y = X.copy(), y.copy()
    other_X[-1], other_y[-1] = record, (y[-1] + 1) % 3
    with_copies(monkeypatch, SIZES[size])
    with cluster_here(monkeypatch, 2):
        with releases(monkeypatch) as first:
            fit(X, y, "replace_one")
        with releases(monkeypatch, outputs=first) as second:
            fit(other_X, other_y, "replace_one")
    assert len(first) == len(second) > 2
    assert_within_bounds(first, second, "replace_one")
    assert (
        max(move(a[0], b[0]) / a[0].replace_bound for a, b in zip(first, second, strict=True)) > 0.1
    )


def test_a_mean_of_ten_billion_rows_is_refused_where_noise_would_be_lost(monkeypatch):
    check_lattice(MOST, 0.01)
    X, _ = blobs(n=ROWS)
    with_copies(monkeypatch, SIZES["10^10"])
    options = {"data_norm": 1.0, "method": "gaussian", "delta": 1e-12}
    with cluster_here(monkeypatch, 2):
        private_mean(blocks(X), epsilon=100.0, **options)
        with pytest.raises(ValueError, match="noise is lost"):
            private_mean(blocks(X), epsilon=1e6, **options)
