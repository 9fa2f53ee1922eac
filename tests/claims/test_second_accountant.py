"""Events of all kinds of fits, counted a second time by code that shares nothing with the first.

The pair of output distributions of each mechanism is cut into cells, and the privacy loss of a cell
is rounded to a grid: down for a lower bound on delta, and up for an upper one, with what is beyond
the grid dropped or counted as lost. Distributions of sums of losses are products of Fourier
transforms. So the two deltas enclose the true one, but for 1e-12 of rounding in the transforms; the
grid is so fine that epsilons are enclosed within 1 %.

Of mechanisms of a bounded range there is a lower bound alone: randomised responses have the
range, and no more of it is lost than in the worst case that is charged.
"""

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from cases import CASES
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from helpers import RELATIONS, blobs, epsilon_of
from scipy.special import ndtr

from dpsubspace._core.accounting.accountants import BoundedRangeDpEvent
from dpsubspace._core.fits.estimator import PrivateCall

SHARE = 0.004  # of epsilon, which all rounding of losses may add up to
CELLS = 50_000  # of the outputs of a mechanism
ROUNDING = 1e-12  # of transforms


# The second accountant -------------------------------------------------------------------------


def leaves(event, count=1):
    """Mechanisms (kind, value, rate) of an event, with how often they run."""
    if type(event) is ComposedDpEvent:
        for part in event.events:
            yield from leaves(part, count)
    elif type(event) is SelfComposedDpEvent:
        yield from leaves(event.event, count * event.count)
    elif type(event) is GaussianDpEvent:
        yield ("gaussian", event.noise_multiplier, 1.0), count
    elif type(event) is PoissonSampledDpEvent:
        yield ("gaussian", event.event.noise_multiplier, event.sampling_probability), count
    elif type(event) is LaplaceDpEvent:
        yield ("laplace", event.noise_multiplier, 1.0), count
    elif type(event) is BoundedRangeDpEvent:
        yield ("range", event.epsilon, 1.0), count
    else:
        assert type(event) is NoOpDpEvent


def ends_of_cells(kind, noise):
    """Outputs between which a mechanism is looked at; beyond are 1e-19 of its probability."""
    most = 10.0 if kind == "gaussian" else 45.0
    return np.linspace(-most * noise - 2, most * noise + 2, CELLS + 1)


def tail(kind, x):
    """Distribution function of the noise, at a scale of 1."""
    return ndtr(x) if kind == "gaussian" else np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-x) / 2)


def log_density(kind, x):
    return -(x**2) / 2 if kind == "gaussian" else -np.abs(x)


@cache
def cells(kind, value, rate, relation, way):
    """Probability of each cell, and the losses at its two ends, of which one is the larger.

    Neighbours have sums of 1 and 0, or of 1 and -1 where a record is replaced. `way` says which of
    the two is the truth. A record that a batch has missed leaves 0.
    """
    if kind == "range":  # two outputs, and `way` is the share of the range that is the larger loss
        high = way * value
        often = (math.exp(value) - math.exp(high)) / math.expm1(value)
        losses = np.array([high - value, high])
        return np.array([1 - often, often]), losses, losses
    sums = (1.0, 0.0) if relation == "zero_out" else (1.0, -1.0)
    here, there = sums[::way]
    x = ends_of_cells(kind, value)

    def mixed(where, function, combine):
        parts = [function(kind, (x - s) / value) for s in (where, 0.0)]
        return combine(parts) if rate < 1 else parts[0]

    weights = np.log([rate, 1 - rate]) if rate < 1 else None
    mass = np.diff(mixed(here, tail, lambda both: rate * both[0] + (1 - rate) * both[1]))
    logs = [
        mixed(
            s,
            log_density,
            lambda both: np.logaddexp(*(b + w for b, w in zip(both, weights, strict=True))),
        )
        for s in (here, there)
    ]
    losses = logs[0] - logs[1]
    return mass, np.minimum(losses[1:], losses[:-1]), np.maximum(losses[1:], losses[:-1])


def deltas(event, relation, epsilon, way):
    """Lower and upper bound on delta at `epsilon`, for one direction of the relation."""
    parts = Counter()
    for mechanism, count in leaves(event):
        parts[mechanism] += count
    step = SHARE * epsilon / sum(parts.values())
    found = []
    for (kind, value, rate), count in parts.items():
        side = way if kind == "range" else 1 if way > 0 else -1
        found.append((cells(kind, value, rate, relation, side), count))
    centre = sum(count * float(mass @ high) for (mass, _, high), count in found)
    square = sum(
        count * float(mass @ high**2) - count * float(mass @ high) ** 2
        for (mass, _, high), count in found
    )
    half = 1.1 * epsilon + abs(centre) + 14 * math.sqrt(max(square, 0.0)) + 20 * step
    size = 2 ** math.ceil(math.log2(2 * half / step))
    bounds = []
    for rounded, end in ((np.floor, 1), (np.ceil, 2)):
        product, kept = 1.0, 0.0
        for losses, count in found:
            mass, place = losses[0], rounded(losses[end] / step)
            inside = np.abs(place) < size // 2
            if end == 2:  # what is below the grid may be at its end
                inside, place = place < size // 2, np.maximum(place, 1 - size // 2)
            at = place[inside].astype(np.int64) % size
            line = np.bincount(at, mass[inside], minlength=size)
            product = product * np.fft.rfft(line) ** count
            kept += count * math.log(min(1.0, line.sum()))
        line = np.fft.fftshift(np.fft.irfft(product, size))
        loss = (np.arange(size) - size // 2) * step
        above = loss > epsilon
        lost = -math.expm1(kept) if end == 2 else 0.0
        bounds.append(float(line[above] @ -np.expm1(epsilon - loss[above])) + lost)
    return bounds


def both_ways(event, relation, epsilon):
    """Bounds on delta of the worse direction; of ranges, of the worst of some responses."""
    ranges = any(kind == "range" for (kind, *_), _ in leaves(event))
    ways = (0.3, 0.5, 0.7) if ranges else (1, -1)
    found = np.array([deltas(event, relation, epsilon, way) for way in ways])
    return found.max(axis=0)


# Events of fits --------------------------------------------------------------------------------


class PlannedError(BaseException):
    """What a fit would have paid for, raised in place of it: nothing catches this."""


def planned(monkeypatch, case, setting, relation):
    """Statement of a fit that ends before anything is released."""

    def stop(self):
        raise PlannedError(self.guarantee)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateCall, "open", stop)
        with pytest.raises(PlannedError) as caught:
            case.fit(*blobs(n=case.n), setting, relation)
    return caught.value.args[0]


def fits():
    """Every setting in both relations, and often those that are plain, by turns."""
    for turn, case in enumerate(CASES):
        for setting, relation in itertools.product(case.settings, RELATIONS):
            often = setting in ("plain", "batches") and relation == RELATIONS[turn % 2]
            marks = () if often else pytest.mark.exhaustive
            yield pytest.param(case, setting, relation, marks=marks)


SEEN = {}


def check(event, delta, relation):
    """The epsilon that an event is charged is enclosed by the second accountant, within 1 %."""
    epsilon = epsilon_of(event, delta, relation)
    low, _ = both_ways(event, relation, epsilon)
    assert low <= delta + ROUNDING
    kinds = {kind for (kind, *_), _ in leaves(event)}
    if kinds == {"gaussian"}:
        assert both_ways(event, relation, 0.99 * epsilon)[0] > delta
        assert both_ways(event, relation, 1.01 * epsilon)[1] < delta
    elif "range" not in kinds:
        assert both_ways(event, relation, 1.01 * epsilon)[1] < delta + ROUNDING
    return epsilon


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(("case", "setting", "relation"), fits(), ids=str)
def test_a_second_accountant_agrees(monkeypatch, case, setting, relation):
    said = planned(monkeypatch, case, setting, relation)
    if (key := (repr(said.event), said.delta, relation)) not in SEEN:
        SEEN[key] = check(said.event, said.delta, relation)
    assert SEEN[key] <= said.epsilon * (1 + 1e-9)


STEPS = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(0.8)), 60)
EVENTS = {
    "one Gaussian": GaussianDpEvent(2.0),
    "batches": STEPS,
    "large batches": SelfComposedDpEvent(PoissonSampledDpEvent(0.5, GaussianDpEvent(8.0)), 30),
    "a mean and batches": ComposedDpEvent([GaussianDpEvent(5.0), STEPS]),
    "a fit and counts": ComposedDpEvent([GaussianDpEvent(4.0), LaplaceDpEvent(3.0)]),
    "batches and a choice": ComposedDpEvent([STEPS, BoundedRangeDpEvent(0.5)]),
    "choices": SelfComposedDpEvent(BoundedRangeDpEvent(0.3), 12),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", EVENTS)
def test_a_second_accountant_agrees_on_what_ledgers_add_up(name, relation):
    check(EVENTS[name], 1e-5, relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_multiplier_that_is_too_small_by_two_percent_is_noticed(relation):
    """What is charged for a little more noise than there is, the second accountant refutes."""
    for name in ("one Gaussian", "batches", "a mean and batches"):
        event = EVENTS[name]
        epsilon = epsilon_of(event, 1e-5, relation)
        low, high = both_ways(event, relation, epsilon / 1.02)
        assert 1e-5 < low < high
