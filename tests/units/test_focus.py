"""Where most targets lie, and how long columns are: how far one record moves what is released."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.means import noisy_column_shares, noisy_focus


class Answers:
    """Keeps the sums that are to be released, and answers with given numbers."""

    def __init__(self, n, answers, present=None, noise=1.0):
        self._noise = noise
        self._records, self._answers, self.seen = Records.of_rows(n, present), list(answers), []
        self.budget = SimpleNamespace(private=True)

    def records_of(self, values):
        return self._records

    def noise_of(self, name, total):
        return self._noise

    def gaussian(self, name, total):
        self.seen.append(total)
        return self._answers[len(self.seen) - 1]


def released(values, mean, present=None):
    n, c = values.shape
    answers = Answers(n, [n * np.full(c, mean), np.zeros(c)], present)
    low, high, *_ = noisy_focus(values, answers, "focus", 100.0)
    assert (low >= -1).all() and (low < high).all() and (high <= 1).all()
    return answers.seen


@pytest.mark.parametrize("mean", [-7.0, -1.0, -0.3, 0.0, 0.5, 1.0, 40.0])
@pytest.mark.parametrize("c", [1, 3])
def test_a_record_moves_both_sums_by_their_bounds_and_not_less(c, mean):
    """The furthest records reach the bounds, whatever noise has made of the mean before."""
    n, middle = 50, min(max(mean, -1.0), 1.0)
    values = np.random.default_rng(0).uniform(-1, 1, (n, c))
    far = -1.0 if middle > 0 else 1.0
    moved = {"null": [], "replaced": []}
    for record in (1.0, -1.0, far, middle):
        values[0] = record
        moved["replaced"].append(released(values, mean))
        moved["null"].append(released(values, mean, np.arange(n) > 0))
    for i, most, twice in ((0, 1.0, 2.0), (1, 1 + abs(middle), 1 + abs(middle))):
        sums = [seen[i] for seen in moved["replaced"]]
        null = moved["null"][0][i].value
        norms = [float(np.linalg.norm(total.value - null)) for total in sums]
        apart = [float(np.linalg.norm(a.value - b.value)) for a in sums for b in sums]
        assert max(norms) <= sums[0].norm_bound and max(apart) <= sums[0].replace_bound
        assert max(norms) == pytest.approx(most * math.sqrt(c))
        assert max(apart) == pytest.approx(twice * math.sqrt(c))
        assert sums[0].norm_bound == pytest.approx(most * math.sqrt(c))
        assert sums[0].replace_bound == pytest.approx(twice * math.sqrt(c))


def told_of(mean, deviation, noise=0.01, n=50):
    """Where one target is said to lie, by what is released of its mean and deviation."""
    answers = Answers(n, [np.array([n * mean]), np.array([n * deviation])], noise=n * noise)
    return noisy_focus(np.zeros((n, 1)), answers, "focus", 100.0)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_targets_are_said_to_be_at_an_end_where_noise_hides_that_they_are_not(side):
    """Means are at it within two deviations of noise, and mean deviations within three."""
    for mean, deviation, at in [
        (1.0, 0.0, True),
        (1.3, -0.1, True),
        (0.985, 0.029, True),
        (0.975, 0.01, False),  # the mean is seen to be away from it
        (1.0, 0.035, side > 0),  # a few are elsewhere: many of what is cut, or events that are rare
        (0.0, 0.0, False),
    ]:
        found = told_of(side * mean, deviation)
        assert found.end == (side if at else 0.0)
        assert found.away == pytest.approx(1 - min(mean, 1.0) + 0.02)
    assert told_of(side, 0.0, noise=0.024).end == side
    assert told_of(side, 0.0, noise=0.026).end == 0.0  # so far from it they may be


def test_deviations_are_seen_beyond_twice_their_noise():
    assert told_of(0.0, 0.021).seen and not told_of(0.0, 0.019).seen
    assert told_of(0.0, 0.019).deviation == pytest.approx(0.039)


# Columns by length ----------------------------------------------------------------------------


def shares_of(X, present=None, records=None, make=np.asarray):
    answers = Answers(len(X), [np.zeros(X.shape[1])], present)
    answers._records = answers._records if records is None else records
    noisy_column_shares(make(X), answers, "lengths")
    return answers.seen[0]


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_record_moves_what_columns_hold_of_its_length_by_the_bound_and_not_more(make, dtype):
    """Rows of one column reach the bounds, however long they are, and rows of zeros count 0."""
    n, huge = 50, 1e300 if dtype == np.float64 else 1e30
    rows = np.random.default_rng(0).normal(size=(n, 3)).astype(dtype)
    found = []
    for record in ([huge, 0, 0], [0, -1 / huge, 0], [1, 1, 1], [3, 0.1, 0], [0, 0, 0]):
        rows[0] = record
        found.append(shares_of(rows, make=make))
    null = shares_of(rows, np.arange(n) > 0)
    norms = [float(np.linalg.norm(total.value - null.value)) for total in found]
    apart = [float(np.linalg.norm(a.value - b.value)) for a in found for b in found]
    assert max(norms) <= null.norm_bound and max(apart) <= null.replace_bound
    assert norms[-1] == pytest.approx(0, abs=1e-9)
    assert max(norms) == pytest.approx(1) and null.norm_bound == pytest.approx(1)
    assert max(apart) == pytest.approx(math.sqrt(2)) == pytest.approx(null.replace_bound)
    assert null.value.sum() == pytest.approx(n - 1)


def test_a_person_of_many_rows_brings_one_at_most():
    index = np.repeat(np.arange(20), np.arange(1, 21))
    X = np.random.default_rng(0).normal(size=(len(index), 2))
    X[index == 19] = [1, 0]
    sums = [
        shares_of(X, records=Records.of_groups(index, 20, index != person)).value
        for person in (-1, 19)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) <= 1 and sums[0].sum() <= 20


def test_of_many_rows_some_are_looked_at_and_all_count_for_no_more_than_themselves():
    X = np.zeros((45_000, 2))
    X[:, 0], X[::4] = 1, [0, 1]
    total = shares_of(X)
    np.testing.assert_allclose(total.value, [0, 45_000 / 4])  # every fourth row is looked at
