"""Where most targets lie: how far one record moves what is released, for several targets."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dpsubspace._rows.records import Records
from dpsubspace._statistics.means import noisy_focus


class Answers:
    """Keeps the sums that are to be released, and answers with given numbers."""

    def __init__(self, n, answers, present=None):
        self._records, self._answers, self.seen = Records.of_rows(n, present), list(answers), []
        self.budget = SimpleNamespace(private=True)

    def records_of(self, values):
        return self._records

    def noise_of(self, name, total):
        return 1.0

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
