"""Noise of fits on batches: what is claimed of it for any epsilon, rate and number of steps."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from helpers import RELATIONS
from scipy import stats
from scipy.special import log_ndtr

from dpsubspace import DPSGDClassifier, PrivacyWarning, privacy_cost
from dpsubspace._core.accounting.batches import curve_of_batches, epsilon_of_batches
from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.cost import Cost, gaussian_epsilon
from dpsubspace._core.accounting.events import mechanisms_of, sampled_gaussian

EPSILONS = (1e-4, 0.01, 1.0, 10.0, 90.0, 110.0, 1e3, 1e5, 1e6)
SOME = ((1e4, 64, "zero_out", (90.0, 110.0)), (1e9, 1, "replace_one", (1.0, 110.0)))


def grid():
    """A part of it, and all of it for .ci/run."""
    for n, batch, relation, epsilons in SOME:
        yield pytest.param(n, batch, relation, epsilons, id=f"{n:g}, {batch}, {relation}")
    for n, relation in itertools.product((100, 10**4, 10**7, 10**9), RELATIONS):
        for batch in (1, 64, n // 10, None):
            name = f"{n:g}, {batch}, {relation}, all"
            yield pytest.param(n, batch, relation, EPSILONS, id=name, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("n", "batch", "relation", "epsilons"), grid())
def test_more_epsilon_is_less_noise_and_all_of_it_is_used(n, batch, relation, epsilons):
    noise = []
    for epsilon in epsilons:
        model = DPSGDClassifier(epsilon=epsilon, batch_size=batch, neighboring_relation=relation)
        noise.append(mechanisms_of(model.privacy_event(n_samples=int(n), n_features=10))[-1].value)
        assert 0.95 * epsilon < privacy_cost(model, n_samples=int(n), n_features=10) <= epsilon
    assert all(after < before for before, after in itertools.pairwise(noise))


def log_tail(v, mean, rate):
    """Logarithm of the probability that ``(1 - rate) N(0, 1) + rate N(mean, 1)`` is above v."""
    if rate == 1:
        return log_ndtr(mean - v)
    return np.logaddexp(math.log1p(-rate) + log_ndtr(-v), math.log(rate) + log_ndtr(mean - v))


def divergence(noise, rate, relation, epsilon):
    """Of one step: the best threshold of outputs, in closed form, looked for on a line."""
    u = 1 / noise
    v = np.linspace(-40.0, u + 40.0, 20_001)
    nothing = log_ndtr(-v)
    with_it, without = log_tail(v, u, rate), log_tail(v, -u, rate)
    pairs = {"zero_out": [(with_it, nothing), (nothing, without)]}
    pairs["replace_one"] = [(with_it, without)]
    return max(
        float((np.exp(one) - np.exp(np.minimum(epsilon + other, 0.5))).max())
        for one, other in pairs[relation]
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_rare_batches_that_tell_all_take_their_chance_of_delta(relation):
    """Else what the Gaussian beside them tells. The chance is 1 - (1 - 1e-7)^50."""
    delta, told = 1e-5, -math.expm1(50 * math.log1p(-1e-7))
    event = ComposedDpEvent([GaussianDpEvent(2.0), sampled_gaussian(1e-3, 1e-7, 50)])
    sq_mu = 0.25 if relation == "zero_out" else 1.0
    exact = gaussian_epsilon(sq_mu, (delta - told) / (1 - told))
    assert exact * (1 - 1e-9) < Cost.of(event, relation).epsilon(delta) < 1.001 * exact


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", [0.03, 0.2, 1.0, 20.0])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.7, 1.0])
def test_one_step_is_counted_as_it_is(noise, rate, relation):
    for delta in (1e-9, 1e-4):
        (part,) = mechanisms_of(sampled_gaussian(noise, rate, 1))
        epsilon = epsilon_of_batches((part,), relation, delta)
        assert divergence(noise, rate, relation, epsilon) <= delta * (1 + 1e-6)
        if epsilon:
            assert divergence(noise, rate, relation, 0.99 * epsilon) > delta * (1 - 1e-3)


@pytest.mark.parametrize("steps", [1, 10_000, 10**7])
@pytest.mark.parametrize("delta", [1e-10, 1e-3])
def test_batches_of_nearly_all_records_are_gaussians(steps, delta):
    (part,) = mechanisms_of(sampled_gaussian(math.sqrt(steps) / 0.7, 1 - 1e-12, steps))
    for relation, times in zip(RELATIONS, (1, 4), strict=True):
        exact = gaussian_epsilon(times * 0.49, delta)
        assert exact < epsilon_of_batches((part,), relation, delta) < 1.01 * exact


@pytest.mark.parametrize("relation", RELATIONS)
def test_curve_is_above_each_order(relation):
    (part,) = mechanisms_of(sampled_gaussian(0.25, 0.05, 1))
    orders, found = curve_of_batches((part,), relation, 1e-10, 60)
    exact = np.array([divergence(0.25, 0.05, relation, a) for a in orders])
    assert np.all(found >= exact * (1 - 1e-9) - 1e-15)
    # Within 2 % of the order, as the curve falls steeply.
    assert np.all(np.interp(orders * 1.02 + 1e-3, orders, exact) <= found)
    assert found[-1] <= 1.0001e-10
    assert found[len(found) // 2] < 3 * exact[len(found) // 2]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("rate", "steps"), [(0.001, 100), (0.01, 100), (0.1, 50), (1e-3, 5000)])
@pytest.mark.parametrize("noise", [1e-3, 1e-4, 1e-5, 1e-7])
def test_next_to_no_noise_is_counted_by_the_batches_of_a_record(noise, rate, steps, relation):
    """With k batches of it losses are ``k u^2 / 2``, and five deviations ``u sqrt(k)`` about."""
    (part,) = mechanisms_of(sampled_gaussian(noise, rate, steps))
    k = int(stats.binom.isf(1e-5, steps, rate))  # more of them are at most as likely as delta
    loss, spread = k / noise**2 / 2, 5 * math.sqrt(k) / noise + 10 * steps
    epsilon = epsilon_of_batches((part,), relation, 1e-5)
    assert (loss - spread) * 0.999 < epsilon < (loss + spread) * 1.003


def test_ledgers_charge_batches_of_large_epsilons_as_what_they_are():
    """The Gaussian above a fit costs a little more than the fit, for little noise too."""
    for noise in (0.3, 0.2):
        cost = Cost.of(sampled_gaussian(noise, 0.01, 200), "zero_out")
        assert gaussian_epsilon(cost.price(1e-6).sq_mu, 1e-5) < 1.3 * cost.epsilon(1e-5)


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_stands_beside_batches_of_given_noise_costs_no_more_than_they_do(relation):
    before = 0.0
    for noise in (1.0, 0.2, 0.1, 0.01, 1e-5):
        given = {"noise_multiplier": noise, "n_iter": 300, "batch_size": 200}
        model = DPSGDClassifier(epsilon=None, neighboring_relation=relation, **given)
        epsilon = privacy_cost(model, n_samples=2000, n_features=4)
        steps = SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(noise)), 300)
        alone = Cost.of(steps, relation).epsilon(1e-5)
        assert max(before, alone) < epsilon < 1.1 * alone
        before = epsilon


def test_delta_that_allows_all_says_so():
    """Ten steps at a rate of 1e-7 show a record with probability 1e-6, and delta is more."""
    model = DPSGDClassifier(batch_size=1, n_iter=10, delta=1e-5)
    with pytest.warns(PrivacyWarning, match="epsilon is not used") as said:
        event = model.privacy_event(n_samples=10**7, n_features=3)
    assert "Use a smaller `delta`" in str(said[0].message)
    assert mechanisms_of(event)[-1].value == 0.3


def test_many_releases_without_delta_use_what_delta_saves_above_epsilon_100():
    """They were charged by the sum of their epsilons there, with as much noise as at 90."""
    before = 0.0
    for epsilon in (90.0, 110.0, 200.0):
        budget = Budget.split(Target(epsilon, 1e-5), {"": Part(1.0, 100, kind="laplace")}, 1000)
        assert 0.95 * epsilon < Cost.of(budget.event, "zero_out").epsilon(1e-5) <= epsilon
        assert before < budget.scales[""]
        before = budget.scales[""]
