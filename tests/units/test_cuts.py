"""Where sums are cut, by counts of sizes."""

import numpy as np
import pytest

from dpsubspace._core.solvers.cuts import best_cut, longest_excess, seen_counts
from dpsubspace._core.solvers.design import SIZES


def counted(sizes):
    places = np.minimum(np.searchsorted(SIZES, sizes), len(SIZES) - 1)
    return np.bincount(places, minlength=len(SIZES)).astype(float)


@pytest.fixture(scope="module")
def sizes():
    """Quantiles of a tail that falls by the power of 3, from 1 on."""
    return (1 - (np.arange(100_000) + 0.5) / 100_000) ** (-1 / 3)


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1])
def test_the_best_cut_has_the_least_noise_and_loss_together(sizes, noise):
    """By sizes themselves, of which the cells say enough."""
    counts = counted(sizes)

    def both(cut):
        return (noise * cut) ** 2 + np.maximum(sizes - cut, 0).mean() ** 2

    best = min(both(cut) for cut in np.geomspace(0.25, 100, 400))
    assert both(best_cut(counts, noise, len(sizes))) < 1.1 * best


def test_without_noise_nothing_is_cut(sizes):
    assert best_cut(counted(sizes), 0.0, len(sizes)) >= sizes.max() / (SIZES[1] / SIZES[0])


def test_what_is_beyond_the_longest_excess_is_little(sizes):
    excess = longest_excess(counted(sizes), 4.0, hidden=0.01 * len(sizes))
    assert np.maximum(sizes - 4.0 - excess, 0).mean() < 0.011
    assert longest_excess(counted(sizes), 4.0, hidden=0.1 * len(sizes)) < excess


def test_hidden_counts_go_on_falling_and_end_where_ranges_do():
    counts = np.zeros(len(SIZES))
    counts[8:12] = 8000, 4000, 2000, 1000
    seen = seen_counts(counts, noise=100.0, largest=SIZES[15], doubt=1.0)
    np.testing.assert_array_equal(seen[8:12], counts[8:12])
    np.testing.assert_allclose(seen[12:14], [100, 10])  # a deviation of the noise, and its fall
    assert not seen[16:].any()
    np.testing.assert_array_equal(seen_counts(counts, 100.0, largest=SIZES[15]), counts)


def test_a_few_beside_a_gap_are_seen_if_noise_does_not_make_so_many():
    counts = np.zeros(len(SIZES))
    counts[8:11], counts[15], counts[20] = (8000, 4000, 2000), 450, 350
    seen = seen_counts(counts, noise=100.0, largest=SIZES[-1])
    assert seen[15] == 450 and seen[20] == 0
