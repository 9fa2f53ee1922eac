"""Poisson batches: what they cost, against published figures and by brute force."""

import math
from fractions import Fraction

import dp_accounting as dpa
import numpy as np
import pytest
from helpers import (
    CLASSIFIERS,
    RELATIONS,
    blobs,
    calibrate,
    epsilon_of,
    pairs_first,
    releases,
    thinned,
)
from scipy import optimize, stats

from dpsubspace import DPSGDClassifier, DPSGDRegressor, GEPClassifier, PrivacyError, PrivacyLedger
from dpsubspace._core.accounting.events import composed, gaussian, sampled_gaussian
from dpsubspace._core.release import noise
from dpsubspace._core.release.noise import SecureNoise, SeededNoise, _Gaps, poisson_indices

TARGET = {"epsilon": 1.0, "delta": 1e-5}

# Multipliers at epsilon 1, delta 1e-5 and rate 0.01 by the PLD accountant, interval 1e-4.
TABLE = [
    (10, 0.7802, 0.7841),
    (100, 0.9029, 0.9540),
    (1000, 1.4146, 2.3654),
    (10_000, 3.8132, 7.4627),
]


@pytest.mark.parametrize(("n_iter", "zero_out", "replace_one"), thinned(TABLE, 2))
def test_multipliers_of_batches_are_the_published_ones(n_iter, zero_out, replace_one):
    for relation, expected in (("zero_out", zero_out), ("replace_one", replace_one)):
        found = calibrate(
            lambda m: sampled_gaussian(m, 0.01, n_iter), neighboring_relation=relation, **TARGET
        )
        assert found == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("n_iter", [1, 10, 100, 1000, 10_000])
def test_multipliers_of_full_batches_are_the_published_ones(n_iter):
    for relation, doubled in (("zero_out", 1), ("replace_one", 2)):
        found = calibrate(lambda m: gaussian(m, n_iter), neighboring_relation=relation, **TARGET)
        assert found == pytest.approx(3.73063 * doubled * np.sqrt(n_iter), rel=1e-4)


@pytest.mark.parametrize(("epsilon", "relation"), pairs_first([0.01, 1.0, 100.0, 1e4], RELATIONS))
@pytest.mark.parametrize(("rate", "n_iter"), thinned([(0.05, 300), (1e-4, 1)]))
def test_calibration_ends_and_is_never_above_the_target(rate, n_iter, epsilon, relation):
    def event(multiplier):
        return composed(
            [gaussian(40 / min(epsilon, 1.0)), sampled_gaussian(multiplier, rate, n_iter)]
        )

    target = {"delta": 1e-5, "neighboring_relation": relation}
    multiplier = calibrate(event, epsilon=epsilon, **target)
    cost = epsilon_of(event(multiplier), **target)
    assert cost <= epsilon
    if epsilon <= 1 and rate * n_iter > 1:
        assert cost > 0.98 * epsilon  # and not far below


@pytest.mark.parametrize("multiplier", [0.05, 1e-3, 1e-5])
def test_little_noise_is_charged_by_how_often_a_record_may_take_part(multiplier):
    """The noise shows which batches have the record, so that their number says what is lost.

    A batch with the record loses ``log q + u^2 / 2 + u z``, and one without it ``log(1 - q)``, with
    u = 1 / multiplier and a normal z. What is charged is never below what follows, hardly above it
    where any noise is left, and less than what as many releases on all records cost.
    """
    rate, count, delta, u = 0.1, 10, 1e-5, 1 / multiplier
    times = np.arange(count + 1)
    masses = stats.binom(count, rate).pmf(times)
    middles = times * (np.log(rate) + u**2 / 2) + (count - times) * np.log1p(-rate)

    def excess(epsilon):
        # A larger loss adds 1 - e^(epsilon - loss) of its probability to delta: all, if 40 larger.
        above = stats.norm.sf((epsilon + 40 - middles) / (u * np.sqrt(times + 1e-30)))
        return masses @ above - delta

    least = optimize.brentq(excess, 0.0, count * u**2)
    cost, full = (
        epsilon_of(event, delta, neighboring_relation="zero_out")
        for event in (sampled_gaussian(multiplier, rate, count), gaussian(multiplier, count))
    )
    assert least <= cost < full and (multiplier < 1e-4 or cost < 1.01 * (least + 40))


def test_a_delta_that_batches_cannot_resolve_is_refused():
    with pytest.raises(PrivacyError, match=r"delta=1e-20.*batch_size=None"):
        epsilon_of(sampled_gaussian(1.0, 0.1, 10), 1e-20, neighboring_relation="zero_out")


@pytest.mark.exhaustive
def test_opposite_records_are_the_worst_to_tell_apart():
    """Replacement under sampling, in the plane: no angle beats 180 degrees.

    Densities of a release are (1 - q) N(0) + q N(g) and the same with h; the event that is
    charged stands for g = -h. Hockey-stick divergences on a grid.
    """
    rate, sigma = 0.3, 0.8
    x, y = np.meshgrid(np.linspace(-5, 5, 401), np.linspace(-5, 5, 401))
    area = (x[0, 1] - x[0, 0]) ** 2

    def density(angle, length=1.0):
        cx, cy = length * np.cos(angle), length * np.sin(angle)
        record = stats.norm.pdf(x, cx, sigma) * stats.norm.pdf(y, cy, sigma)
        nobody = stats.norm.pdf(x, 0, sigma) * stats.norm.pdf(y, 0, sigma)
        return (1 - rate) * nobody + rate * record

    for epsilon in (0.1, 0.5, 1.0):
        fixed = np.exp(epsilon) * density(0.0)

        def divergence(*record, fixed=fixed):
            return np.maximum(density(*record) - fixed, 0).sum() * area

        worst = divergence(np.pi)
        others = [divergence(a, s) for a in np.linspace(0, np.pi, 9) for s in (0.5, 1.0)]
        assert max(others) <= worst * (1 + 1e-9)
        event = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma))
        assert epsilon_of(event, worst, neighboring_relation="replace_one") == pytest.approx(
            epsilon, rel=1e-2
        )


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(0)], ids=["secure", "seeded"])
def test_records_enter_batches_independently(noise):
    batches = [noise.poisson_sample(200, 0.3) for _ in range(400)]
    member = np.array([np.isin(np.arange(200), batch) for batch in batches], float)
    assert all((np.diff(batch) > 0).all() for batch in batches)
    # Binomial tails, of all 80,000 and of 400 for each of 200 records: 1e-11 and 7e-11.
    assert abs(member.mean() - 0.3) < 0.011
    assert abs(member.mean(axis=0) - 0.3).max() < 0.17
    correlation = np.corrcoef(member.T) - np.eye(200)
    assert abs(correlation).max() < 0.4  # by Fisher's transform, of 19,900 pairs: 1e-12
    assert len(noise.poisson_sample(50, 1e-12)) == 0
    np.testing.assert_array_equal(noise.poisson_sample(50, 1 - 1e-15), np.arange(50))


FITS = {
    "linear": lambda **options: DPSGDClassifier(**options),
    "regression": lambda **options: DPSGDRegressor(target_bounds=(0, 1), data_norm=9.0, **options),
    "gradients": lambda **options: GEPClassifier(n_components=2, **options),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("fit", FITS)
def test_a_batch_of_more_rows_than_expected_is_not_cut(monkeypatch, fit):
    """What is charged is for batches that records enter independently, of any size."""
    X, y = blobs(n=300)
    options = {"n_iter": 1, "clip_norm": 1.0, "random_state": 0, "epsilon": 1.0, "delta": 1e-5}
    sums = []
    monkeypatch.setattr(noise, "poisson_indices", lambda bits, n, rate: np.arange(n))
    for batch_size in (10, None):
        with releases(monkeypatch) as seen:
            FITS[fit](batch_size=batch_size, **options).fit(X, y)
        sums.append(seen[0][0].value)
    assert np.linalg.norm(sums[1]) > 11  # of no batch of 10 rows
    np.testing.assert_allclose(*sums, rtol=1e-5)


@pytest.mark.wide
@pytest.mark.parametrize("rate", [0.5, 1 / 3, 1 / 15, 2.0**-9, 1e-12])
def test_bits_tell_how_many_records_are_passed_over(rate):
    """A number below ``(1 - rate)^s`` passes over s records: near all of these, and anywhere."""
    chance = math.ceil(rate * 2**53)
    gaps, limits = _Gaps(chance), [(1 - Fraction(chance, 2**53)) ** s for s in range(1, 256)]
    whole = [math.floor(limit * 2**64) for limit in limits]
    near = {limit + j for limit in whole for j in (-2, -1, 1, 2)} - set(whole)
    rng = np.random.default_rng(0)
    anywhere = rng.integers(0, 2**64, 1000, dtype=np.uint64)
    numbers = np.array([*(number for number in near if number >= 0), *anywhere], np.uint64)
    numbers = numbers[: len(numbers) // 4 * 4]
    first, asked = (numbers >> np.uint64(48)).astype(np.uint16), []

    def bits(shape):
        asked.append(shape)
        if len(asked) == 1:
            return first.view(np.uint64)
        return numbers[gaps._told[first] > 255] << np.uint64(16)

    found = gaps.drawn(bits, len(numbers))
    expected = [sum(Fraction(int(number), 2**64) < limit for limit in limits) for number in numbers]
    np.testing.assert_array_equal(found, expected)
    assert len(asked) == 2

    for s in (1, 2, 7):  # where 64 bits do not tell
        number, left = whole[s - 1], limits[s - 1] * 2**64 - whole[s - 1]
        for more in {0, 1} if left == 0 else {math.floor(left * 2**64) + j for j in (-1, 1)}:
            passed = sum(Fraction((number << 64) + more, 2**128) < limit for limit in limits)
            first = np.full(4, number >> 48, np.uint16).view(np.uint64)
            then = np.full(4, number << 16 & (2**64 - 1), np.uint64)
            pieces = iter([first, then, *[np.array([more])] * 4])
            assert gaps.drawn(lambda shape, pieces=pieces: next(pieces), 4).tolist() == [passed] * 4


def test_a_draw_that_passes_over_many_records_is_followed_by_another():
    """255 that do not enter, then the next; and a draw that goes beyond the last record."""
    gaps = _Gaps.of(math.ceil(2**53 / 100))
    words = {passed: np.flatnonzero(gaps._told == passed)[0] for passed in (0, 3, 255)}
    drawn = [words[passed] for passed in (255, 0, 3, 255, 255, 0, 3, 3)]

    def bits(shape):
        return np.resize(np.array(drawn, np.uint16).view(np.uint64), shape)

    found = poisson_indices(bits, 776, 0.01)
    np.testing.assert_array_equal(found, [255, 259, 770, 774])
    np.testing.assert_array_equal(poisson_indices(bits, 774, 0.01), [255, 259, 770])
    assert (
        poisson_indices(bits, 255, 0.01).tolist() == poisson_indices(bits, 0, 0.01).tolist() == []
    )


def test_more_than_half_of_the_records_are_those_that_are_not_drawn():
    few, many = (SeededNoise(0).poisson_sample(1000, rate) for rate in (0.25, 0.75))
    np.testing.assert_array_equal(np.sort([*few, *many]), np.arange(1000))
    np.testing.assert_array_equal(SeededNoise(0).poisson_sample(1000, 1.0), np.arange(1000))


def test_ledger_counts_sampled_fits_beside_others():
    X, y = blobs(n=400)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    for Classifier in CLASSIFIERS:
        ledger.fit(Classifier(epsilon=1.0, batch_size=200, n_iter=20), X, y)
    assert 1.0 < ledger.epsilon() < 2.0
    left = ledger.remaining()
    assert 0 < left < 2.0
    ledger.fit(CLASSIFIERS[0](epsilon=0.99 * left, delta=1e-5), X, y)
    assert 0.95 * 2.0 < ledger.epsilon() <= 2.0
