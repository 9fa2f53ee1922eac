"""What draws noise, and the one function that adds it."""

import copy
import math
import multiprocessing
import os
import pickle
from unittest import mock

import joblib
import numpy as np
import pytest
from helpers import RARE, RELATIONS, ScaledNoise
from scipy import stats

from dpsubspace import DPSGDClassifier
from dpsubspace._core.release import mechanisms
from dpsubspace._core.release.mechanisms import BoundedSum, release, release_direction
from dpsubspace._core.release.noise import SecureNoise, SeededNoise, as_noise

SOURCES = [SecureNoise(), SeededNoise(1)]


def p_value_of_scale(source, relation, multiplier=1.7, bound=2.5, n=5000):
    """KS p-value that a release adds N(0, (multiplier * unit)^2), unit as documented."""
    total = BoundedSum(np.zeros(n), norm_bound=bound, replace_bound=1.6 * bound)
    unit = {"zero_out": bound, "replace_one": 0.8 * bound}[relation]
    noise = release(total, multiplier, source, neighboring_relation=relation)
    return stats.kstest(noise / (multiplier * unit), "norm").pvalue


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_release_adds_gaussian_noise_of_the_stated_scale(source, relation):
    assert p_value_of_scale(source, relation) > RARE


@pytest.mark.parametrize("factor", [2 / 3, 3 / 2])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_a_wrong_scale_would_be_noticed(source, relation, factor):
    assert p_value_of_scale(ScaledNoise(source, factor), relation) < RARE


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_tails_are_symmetric_and_finite(source):
    z = source.gaussian((400_000,), 2.0**24) / 2.0**24
    assert np.isfinite(z).all()
    for beyond in (2.0, 3.0):
        expected = len(z) * stats.norm.sf(beyond)
        for tail in ((z > beyond).sum(), (z < -beyond).sum()):
            # By Chernoff's bound of 540 or more expected draws, once in 5e9.
            assert abs(tail - expected) < 7 * math.sqrt(expected)


@pytest.mark.system_bits
@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
@pytest.mark.parametrize("draw", ["gaussian", "laplace"])
def test_a_source_of_constant_bits_is_noticed(monkeypatch, byte, draw):
    monkeypatch.setattr("os.urandom", lambda n: byte * n)
    with pytest.raises(RuntimeError, match="source of randomness is broken"):
        getattr(SecureNoise(), draw)((3,), 2.0**24)


def test_children_are_reproducible_distinct_and_unmoved_by_siblings():
    def first(source):
        return source.gaussian((3,), 2.0**24)

    a = first(SeededNoise(5).child("a"))
    parent = SeededNoise(5)
    parent.child("b")
    np.testing.assert_array_equal(a, first(parent.child("a")))
    for other in (SeededNoise(5).child("b"), SeededNoise(6).child("a"), SeededNoise(5)):
        assert not np.allclose(a, first(other))


def _coefficients(X, y):
    return DPSGDClassifier(epsilon=8.0).fit(X, y).coef_


def _put_coefficients(queue, X, y):
    queue.put(_coefficients(X, y))


def test_fork_workers_draw_different_noise(rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_put_coefficients, args=(queue, X, y)) for _ in range(2)]
    for worker in workers:
        worker.start()
    first, second = (queue.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert not np.allclose(first, second)


def test_threads_draw_different_noise(rng):
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    tasks = [joblib.delayed(_coefficients)(X, y) for _ in range(2)]
    first, second = joblib.Parallel(n_jobs=2, backend="threading")(tasks)
    assert not np.allclose(first, second)


# Noise that is drawn ahead ---------------------------------------------------------------------

WIDE = 2.0**24  # three integers of this scale are the same twice with a probability below 1e-22


def drawn(stream, times=400):
    """So many draws of the same shape and scale, one after another."""
    return np.array([stream.gaussian((3,), WIDE) for _ in range(times)])


def n_different(draws):
    return len(np.unique(np.concatenate([*draws]), axis=0))


def test_noise_drawn_ahead_has_the_stated_scale_and_shape():
    stream = SecureNoise().child("steps")
    for scale in (WIDE, 3 * WIDE, WIDE):
        for shape in ((4,), (2, 2), ()):
            draws = [np.asarray(stream.gaussian(shape, scale)) for _ in range(1000)]
            assert {draw.shape for draw in draws} == {shape}
            assert stats.kstest(np.ravel(draws) / scale, "norm").pvalue > RARE


def test_noise_drawn_ahead_is_given_once():
    assert n_different([drawn(SecureNoise().child("steps"))]) == 400


def test_threads_that_share_noise_drawn_ahead_get_different_noise():
    stream = SecureNoise().child("steps")
    tasks = [joblib.delayed(drawn)(stream) for _ in range(4)]
    assert n_different(joblib.Parallel(n_jobs=4, backend="threading")(tasks)) == 1600


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_hold_no_noise_drawn_ahead(copied):
    stream = SecureNoise().child("steps")
    begun = drawn(stream, 3)  # others wait
    other = copied(stream)
    assert other.secure
    assert n_different([begun, drawn(stream, 10), drawn(other, 10)]) == 23


def test_noise_that_was_given_is_not_held_by_what_waits():
    stream = SecureNoise().child("steps")
    draws = [stream.gaussian((3,), WIDE) for _ in range(10)]
    assert all(draw.base is None for draw in draws[2:])  # those that have waited


def _put_draws(queue, stream, number):
    with mock.patch.object(os, "getpid", return_value=number or os.getpid()):
        found = drawn(stream, 10)
    queue.put(found)


def test_a_forked_process_holds_no_noise_drawn_ahead():
    """Nor does one with the number of an ancestor, which may have ended."""
    context = multiprocessing.get_context("fork")
    queue, stream = context.Queue(), SecureNoise().child("steps")
    begun = drawn(stream, 3)
    tasks = [(queue, stream, number) for number in (None, os.getpid())]
    workers = [context.Process(target=_put_draws, args=task) for task in tasks]
    for worker in workers:
        worker.start()
    found = [begun, drawn(stream, 10), *(queue.get(timeout=60) for _ in workers)]
    for worker in workers:
        worker.join()
    assert n_different(found) == 33


def test_random_state():
    assert as_noise(None).secure
    assert not as_noise(3).secure
    assert not as_noise(np.random.RandomState(0)).secure
    for wrong in (-1, 1.5, "seed", np.random.default_rng(0), True):
        with pytest.raises(ValueError, match="random_state"):
            as_noise(wrong)


@pytest.mark.parametrize("multiplier", [-1.0, math.inf, math.nan])
def test_a_senseless_scale_is_refused(multiplier):
    total = BoundedSum(np.zeros(2), norm_bound=1.0, replace_bound=2.0)
    with pytest.raises(ValueError, match="noise scale"):
        release(total, multiplier, SeededNoise(0), neighboring_relation="zero_out")


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (2.0, 1.0), (math.nan, 1.0)])
def test_senseless_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="norm_bound"):
        BoundedSum(np.zeros(2), *bounds)


def test_an_unbounded_sum_cannot_be_released_with_noise():
    total = BoundedSum(np.zeros(2), norm_bound=math.inf, replace_bound=math.inf)
    with pytest.raises(ValueError, match="noise scale"):
        release(total, 1.0, SeededNoise(0), neighboring_relation="zero_out")


def test_noise_of_a_batch_is_that_of_the_larger_bound():
    """A record that a batch has missed and one that it has are neighbours, too."""
    square = BoundedSum(np.zeros(1), norm_bound=1.0, replace_bound=math.sqrt(2))
    assert square.unit("zero_out", sampled=True) == square.unit("zero_out") == 1.0
    assert square.unit("replace_one", sampled=True) == 1.0
    assert square.unit("replace_one") == math.sqrt(2) / 2
    vector = BoundedSum(np.zeros(1), norm_bound=1.0, replace_bound=2.0)
    assert vector.unit("replace_one", sampled=True) == vector.unit("replace_one") == 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_direction_is_drawn_at_the_temperature_that_is_charged(monkeypatch, relation):
    """Energies of rows of norm c are in [0, c^2]: one replaced moves them by 2 c^2 in range."""
    seen, c = [], 3.0
    draw = mechanisms.sample_bingham
    monkeypatch.setattr(
        mechanisms,
        "sample_bingham",
        lambda matrix, *rest: seen.append(matrix) or draw(matrix, *rest),
    )
    moment = np.diag([5.0, 2.0, 1.0])
    total = BoundedSum(moment, norm_bound=c**2, replace_bound=math.sqrt(2) * c**2)
    release_direction(total, 0.7, SeededNoise(0), neighboring_relation=relation)
    spread = {"zero_out": c**2, "replace_one": 2 * c**2}[relation]
    np.testing.assert_allclose(seen[0], moment * 0.7 / spread, rtol=1e-15)
