"""What is released lies on a public lattice, so that the low bits of floats tell nothing."""

import itertools
import math

import numpy as np
import pytest
from cases import GAUSSIAN
from helpers import RARE, RELATIONS, blobs, examples, groups_of, pairs_first, releases, with_plan
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpsubspace import DPPCA, BoundedScaler, DPSGDClassifier, DPSGDFClassifier, private_mean
from dpsubspace._core.release import mechanisms
from dpsubspace._core.release import noise as noise_module
from dpsubspace._core.release.mechanisms import (
    BoundedL1Sum,
    BoundedSum,
    check_lattice,
    lattice_step,
    release,
    release_direction,
    release_laplace,
)
from dpsubspace._core.release.noise import (
    SecureNoise,
    SeededNoise,
    lattice_laplace,
    lattice_normals,
)

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

N = 1024  # a power of 2, so that dividing by it loses nothing


def finest_bit(values):
    """Least power of 2 that all of `values` are multiples of."""
    mantissas, exponents = np.frexp(np.asarray(values, dtype=np.float64).ravel())
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    lowest = whole & -whole
    return min(
        float(np.ldexp(1.0, int(e) - 53)) * float(low)
        for e, low in zip(exponents, lowest, strict=True)
        if low
    )


def indicator(carriers):
    """One column of zeros, and of ones for a few carriers: a sum that is small beside its noise."""
    X = np.zeros((N, 1))
    X[:carriers] = 1.0
    return X


# The attacks: what comes out of a public method, and the multiplier of the release behind it.


def mean_of_a_function(present):
    options = {"data_norm": 1.0, "method": "gaussian", "delta": 1e-5}
    value, guarantee = private_mean(indicator(1), groups=groups_of(present), **options)
    return value, guarantee.event.noise_multiplier


def mean_of_a_classifier(present):
    y = np.arange(N) % 2
    model = DPSGDFClassifier(n_iter=1, preprocessing="practical", delta=1e-5)
    model.fit(indicator(1), y, groups=groups_of(present))
    return model.mean_, model.privacy_.event.events[0].noise_multiplier


def coefficient_after_one_step(present):
    y = np.arange(N) % 2
    # With an intercept, scores would be multiplied by a number that other releases give.
    options = {"learning_rate": 1.0, "alpha": 0.0, "delta": 1e-5, "fit_intercept": False}
    model = DPSGDClassifier(n_iter=1, clip_norm=1.0, **options)
    with_plan(model, {"momentum": 0.0, "average": False})(
        indicator(1), y, groups=groups_of(present)
    )
    return model.coef_, model.privacy_.event.noise_multiplier


def mean_of_components(present):
    X = np.column_stack([indicator(1), np.zeros(N)])
    model = DPPCA(1, mechanism="gaussian", data_norm=1.0, delta=1e-5)
    model.fit(X, groups=groups_of(present))
    return model.mean_, model.privacy_.event.events[0].noise_multiplier


ATTACKED = [
    mean_of_a_function,
    mean_of_a_classifier,
    coefficient_after_one_step,
    mean_of_components,
]


@pytest.mark.parametrize(("attacked", "carrier"), pairs_first(ATTACKED, [True, False]))
def test_low_bits_do_not_tell_whether_a_record_is_there(attacked, carrier):
    """In plain arithmetic noise alone has bits that noise beside a number of about 1 has not."""
    present = np.arange(N) >= (0 if carrier else 1)
    found = [attacked(present) for _ in range(60)]
    multiplier = found[0][1]
    assert finest_bit([value for value, _ in found]) * N >= multiplier * 2.0**-26


def test_counts_of_a_scaler_lie_on_the_lattice(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 2))
    with releases(monkeypatch) as seen:
        BoundedScaler().fit(X)
    assert seen
    for total, out, multiplier in seen:
        step = lattice_step(multiplier * total.unit("zero_out"))
        np.testing.assert_array_equal(out / step, np.rint(out / step))


NOISE = {"secure": None, "seeded": 0}


def fits():
    turn = itertools.count()
    for case in GAUSSIAN:
        yield from pairs_first(case.settings, NOISE, RELATIONS, prefix=(case,), turn=turn)


@pytest.mark.parametrize(("case", "setting", "noise", "relation"), fits(), ids=str)
def test_every_release_of_every_fit_lies_on_its_lattice(
    monkeypatch, case, setting, noise, relation
):
    with releases(monkeypatch) as seen:
        case.fit(*blobs(n=90, d=4), setting, relation, random_state=NOISE[noise])
    assert seen
    for total, out, multiplier in seen:
        # The largest step that the scale can stand for, batches included.
        step = lattice_step(multiplier * total.norm_bound / 2)
        np.testing.assert_array_equal(out / step, np.rint(out / step))


# Bounds and arithmetic --------------------------------------------------------------------------

entries = st.floats(-1e6, 1e6)
vectors = hnp.arrays(np.float64, 5, elements=entries)


@given(value=vectors, other=vectors, step=st.sampled_from([2.0**-20, 0.5, 64.0]))
@examples(200)
def test_rounding_to_the_lattice_is_in_the_bound(value, other, step):
    for kind, norm in ((BoundedSum, 2), (BoundedL1Sum, 1)):
        distance = max(np.linalg.norm(value - other, norm), 1e-9)
        here, there = (kind(v, distance, distance).on_lattice(step) for v in (value, other))
        moved = np.linalg.norm(here.value - there.value, norm)
        assert moved <= here.norm_bound * (1 + 1e-12)
        assert here.norm_bound == here.replace_bound


def test_the_rounding_of_many_entries_is_charged():
    """Two sums that a step of the lattice separates in every entry are apart by more."""
    half = np.full(10_000, 0.5)
    here, there = (BoundedSum(v, 0.02, 0.04).on_lattice(1.0) for v in (half * 0.999, half * 1.001))
    moved = float(np.linalg.norm(here.value - there.value))
    assert moved == 100.0 > 0.04
    assert moved <= here.norm_bound <= 100.03


@pytest.mark.parametrize("scale", [1e-300, 3e-5, 1.0, 1.999, 2.0, 7e40])
def test_a_step_is_a_power_of_2_that_follows_from_the_scale(scale):
    step = lattice_step(scale)
    assert math.frexp(step)[0] == 0.5
    assert 2.0**24 <= scale / step < 2.0**25


def test_numbers_beyond_the_lattice_are_cut_and_stay_bounded():
    total = BoundedSum(np.array([1e30, -1e30, np.inf]), 1.0, 2.0).on_lattice(1.0)
    np.testing.assert_array_equal(np.abs(total.value), 2.0**66)


@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 37.0])
def test_too_many_rows_for_so_little_noise_are_refused(multiplier):
    most = int(multiplier * 2**40)
    check_lattice(most, multiplier)
    with pytest.raises(ValueError, match="smaller `epsilon`"):
        check_lattice(most + 1, multiplier)
    # At the limit, the largest sum is not cut, and noise is wide for the digits that it has.
    assert most / lattice_step(multiplier * 0.5) <= 2.0**66
    assert multiplier * 0.5 >= 2.0**10 * np.spacing(float(most))


def test_a_fit_with_too_many_rows_for_its_noise_releases_nothing(monkeypatch):
    X, y = blobs(n=120)
    monkeypatch.setattr(mechanisms, "_LEAST", 2.0**-26)
    model = DPSGDClassifier(epsilon=None, noise_multiplier=1.1e-6, delta=1e-5)
    with pytest.raises(ValueError, match="120 rows need a noise multiplier of at least"):
        model.fit(X, y)
    assert not hasattr(model, "privacy_")


def test_noise_that_leaves_nothing_is_refused_before_anything_is_spent():
    """Rounding of many entries widens the noise beyond what one draw covers at some point."""
    check_lattice(100, 1.0, 1e9)
    with pytest.raises(ValueError, match="at most 1e9"):
        check_lattice(100, 1.0, 2e9)
    noise = SecureNoise().gaussian((1000,), 2.0**39.9) / 2.0**39.9
    assert stats.kstest(noise, "norm").pvalue > RARE
    X, y = blobs(n=60)
    model = DPSGDClassifier(epsilon=None, noise_multiplier=5e7, n_iter=1).fit(X, y)
    assert np.isfinite(model.coef_).all()


class _NoNoise(SeededNoise):
    def gaussian(self, shape, scale):
        return np.zeros(shape)

    laplace = gaussian


def test_zero_has_no_sign():
    """A sum just below 0 is not -0, which a sum just above it could not be."""
    total = BoundedL1Sum(np.array([-1e-12, 1e-12]), 1.0, 2.0)
    for released in (
        release(total, 1.0, _NoNoise(0), neighboring_relation="zero_out"),
        release_laplace(total, 1.0, _NoNoise(0), neighboring_relation="zero_out"),
    ):
        assert not np.signbit(released).any()
    for source in (SecureNoise(), SeededNoise(0)):
        for draw in (source.gaussian, source.laplace):
            noise = draw((20_000,), 512.0)
            assert not np.signbit(noise[noise == 0]).any()


def test_a_direction_has_no_low_bits():
    matrix = BoundedSum(np.diag([3.0, 1.0, 0.5]), 1.0, math.sqrt(2))
    v = release_direction(matrix, 1.0, SeededNoise(0), neighboring_relation="zero_out")
    largest = v / np.abs(v).max()
    assert np.linalg.norm(v) == pytest.approx(1, abs=1e-15)
    # Ratios of integers below 2^26.
    again = np.rint(v * 2.0**26)
    np.testing.assert_allclose(again / np.abs(again).max(), largest, rtol=1e-7)
    np.testing.assert_array_equal(v, again / np.linalg.norm(again))


# Noise ------------------------------------------------------------------------------------------


def bits_of(seed):
    rng = np.random.default_rng(seed)
    return lambda shape: rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def p_value_of_counts(drawn, probability):
    """Chi-square p-value of integers between -600 and 600 against their probabilities.

    More than 100 are expected of each, so that it is right up to a factor of 2 where it is small.
    """
    values = np.arange(-600, 600)
    counts = np.array([(drawn == k).sum() for k in values] + [0])
    counts[-1] = len(drawn) - counts.sum()
    expected = np.append(probability(values), 0)
    expected[-1] = 1 - expected.sum()
    return stats.chisquare(counts, len(drawn) * expected).pvalue


def test_lattice_normals_have_the_probabilities_of_normals_rounded_down():
    scale, drawn = 600.0, lattice_normals(bits_of(0), (400_000,), 600.0)

    def probability(k, scale=scale):
        return stats.norm.cdf((k + 1) / scale) - stats.norm.cdf(k / scale)

    assert p_value_of_counts(drawn, probability) > RARE
    assert p_value_of_counts(drawn, lambda k: probability(k, 540.0)) < RARE
    assert p_value_of_counts(drawn, lambda k: probability(k + 60)) < RARE


def test_lattice_laplace_has_probabilities_that_fall_by_a_constant_factor():
    scale, drawn = 600.0, lattice_laplace(bits_of(0), (400_000,), 600.0)

    def probability(k, scale=scale):
        return math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)

    assert p_value_of_counts(drawn, probability) > RARE
    assert p_value_of_counts(drawn, lambda k: probability(k, 540.0)) < RARE
    assert p_value_of_counts(drawn, lambda k: probability(k + 60)) < RARE


@pytest.mark.parametrize("draw", [lattice_normals, lattice_laplace])
def test_low_digits_of_noise_are_uniform_and_independent_of_high_ones(draw):
    drawn = draw(bits_of(1), (200_000,), 2.0**24 * 1.7)
    far = np.abs(drawn) > 2.0**24 * 2
    assert np.abs(drawn).max() > 2.0**25
    for some in (drawn, drawn[far], drawn[~far]):
        counts = np.bincount(np.mod(some, 64).astype(int), minlength=64)
        assert stats.chisquare(counts).pvalue > RARE


def test_zeros_before_the_first_one_are_counted_beyond_one_word():
    """Noise that ends somewhere tells for certain what could not have made it."""
    words = iter([0, 0, 0, 1 << 63])

    def zeros_first(shape):
        return np.full(shape, next(words), dtype=np.uint64)

    fractions, _ = noise_module._fractions(zeros_first, (4,))
    np.testing.assert_allclose(fractions, 2.0 ** -(12 + 106 + 1), rtol=1e-15)
    fractions, signs = noise_module._fractions(bits_of(4), (200_000,))
    octaves = -np.frexp(fractions)[1]
    assert octaves.max() > 12  # but for a chance of exp(-200,000 / 2^13)
    counts = np.append(np.bincount(octaves)[:9], (octaves > 8).sum())
    expected = len(octaves) * np.append(0.5 ** (1.0 + np.arange(9)), 0.5**9)
    assert stats.chisquare(counts, expected).pvalue > RARE
    assert stats.kstest(fractions, "uniform").pvalue > RARE
    assert abs(np.corrcoef(fractions, signs)[0, 1]) < 0.02  # 9 deviations
    assert abs(signs.sum()) < 7 * math.sqrt(len(signs))


def _far_out(power):
    """Fractions near ``2 ** -power``, that is noise of the tail."""

    def fractions(bits, shape):
        rng = np.random.default_rng(5)
        return 2.0**-power * rng.uniform(0.5, 1, size=shape), rng.choice([-1.0, 1.0], size=shape)

    return fractions


@pytest.mark.parametrize(
    ("draw", "size"),
    [(lattice_normals, -stats.norm.ppf(2.0**-107.5)), (lattice_laplace, 106 * math.log(2))],
)
def test_noise_reaches_as_far_as_its_bits_say(monkeypatch, draw, size):
    def fractions(bits, shape):
        first, signs = _far_out(106)(bits, shape)
        if draw is lattice_laplace:  # the difference of two: the other one is near 0
            first[1] = 0.99
        return first, signs

    monkeypatch.setattr(noise_module, "_fractions", fractions)
    drawn = np.abs(draw(bits_of(2), (10,), 2.0**24)) / 2.0**24
    np.testing.assert_allclose(drawn, size, rtol=0.02)


@pytest.mark.parametrize("draw", [lattice_normals, lattice_laplace])
def test_every_place_is_reached_far_out(monkeypatch, draw):
    """Inverses of uniforms of 53 bits leave out most steps beyond 6 standard deviations."""
    monkeypatch.setattr(noise_module, "_fractions", _far_out(40))
    drawn = draw(bits_of(3), (100_000,), 2.0**24)
    counts = np.bincount(np.mod(drawn, 256).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > RARE
    assert draw is lattice_laplace or np.abs(drawn).min() > 2.0**24 * 6.9


# Streams ----------------------------------------------------------------------------------------


def test_two_streams_of_one_fit_cannot_have_one_name():
    source = SeededNoise(7)
    source.child("steps")
    with pytest.raises(RuntimeError, match="'steps'"):
        source.child("steps")
    source.child("batches").child("steps")  # a stream of a stream is another one


def test_a_loop_that_takes_one_stream_for_noise_and_batches_is_noticed(monkeypatch):
    X, y = blobs(n=60)
    child = SeededNoise.child
    monkeypatch.setattr(
        SeededNoise, "child", lambda self, name: child(self, name.replace("batches", "steps"))
    )
    with pytest.raises(RuntimeError, match="must not share the name 'steps'"):
        DPSGDClassifier(n_iter=2, batch_size=20, random_state=0).fit(X, y)
