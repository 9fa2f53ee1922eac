"""What a budget is split into, and that nothing leaves but what it counts."""

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from helpers import RELATIONS, blobs, epsilon_of

from dpsubspace import DPSGDClassifier, DPSGDRegressor, PrivacyError, PrivacyLedger
from dpsubspace._core.accounting.accountants import BoundedRangeDpEvent
from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.release.mechanisms import BoundedL1Sum, BoundedSum
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.release.releases import Releases

TOTAL = BoundedSum(np.zeros(3), 1.0, 2.0)
L1_TOTAL = BoundedL1Sum(np.zeros(3), 1.0, 2.0)
MOMENT = BoundedSum(np.eye(3), 1.0, math.sqrt(2))


class CountedNoise:
    """Seeded noise that notes each draw; its children note theirs in the same list."""

    secure = False

    def __init__(self, source, draws):
        self._source, self._draws = source, draws

    def child(self, name):
        return CountedNoise(self._source.child(name), self._draws)

    def __getattr__(self, name):
        self._draws.append(name)
        return getattr(self._source, name)


@pytest.fixture
def draws():
    return []


@pytest.fixture
def gaussian(draws):
    """Releases of a budget of Gaussian parts."""
    parts = {"mean": Part(0.5), "counts": Part(0.5, 2)}
    budget = Budget.split(Target(1.0, 1e-5), parts)
    return Releases(budget, CountedNoise(SeededNoise(0), draws))


@pytest.fixture
def pure(draws):
    """Releases of a budget that needs no delta."""
    parts = {"direction": Part(0.9, 2, kind="range"), "spectrum": Part(0.1, kind="laplace")}
    budget = Budget.split(Target(1.0, 0.0), parts)
    return Releases(budget, CountedNoise(SeededNoise(0), draws))


# What is refused ------------------------------------------------------------------------------


def test_what_has_no_name_in_the_budget_is_not_released(gaussian, pure, draws):
    for call in (
        lambda: gaussian.gaussian("median", TOTAL),
        lambda: gaussian.gaussian("median", TOTAL, stream="mean"),
        lambda: gaussian.jointly("median", [TOTAL], [1.0]),
        lambda: pure.laplace("energies", L1_TOTAL),
        lambda: pure.direction("axis", MOMENT),
    ):
        with pytest.raises(RuntimeError, match="is not in the budget"):
            call()
    assert not draws
    assert "mean" in gaussian and "median" not in gaussian


def test_one_release_more_than_counted_is_refused(gaussian, pure, draws):
    for name, count in (("mean", 1), ("counts", 2)):
        for i in range(count):
            gaussian.gaussian(name, TOTAL, stream=f"{name} {i}")
        made = len(draws)
        for call in (
            lambda name=name: gaussian.gaussian(name, TOTAL),
            lambda name=name: gaussian.gaussian(name, TOTAL, stream="another"),
            lambda name=name: gaussian.jointly(name, [TOTAL], [1.0]),
        ):
            with pytest.raises(RuntimeError, match=f"has {count} releases '{name}'"):
                call()
        assert len(draws) == made > 0
    pure.laplace("spectrum", L1_TOTAL)
    for i in range(2):
        pure.direction("direction", MOMENT, stream=f"direction {i}")
    made = len(draws)
    with pytest.raises(RuntimeError, match="has 1 releases"):
        pure.laplace("spectrum", L1_TOTAL)
    with pytest.raises(RuntimeError, match="has 2 releases"):
        pure.direction("direction", MOMENT, stream="direction 2")
    assert len(draws) == made


def test_another_kind_than_was_charged_is_refused(gaussian, pure, draws):
    for call in (
        lambda: gaussian.laplace("mean", L1_TOTAL),
        lambda: gaussian.direction("mean", MOMENT),
        lambda: pure.gaussian("spectrum", TOTAL),
        lambda: pure.direction("spectrum", MOMENT),
        lambda: pure.laplace("direction", L1_TOTAL),
    ):
        with pytest.raises(RuntimeError, match="was charged as"):
            call()
    assert not draws
    gaussian.gaussian("mean", TOTAL)  # a refusal has used nothing up


def test_what_comes_first_is_released_alone(gaussian, draws):
    with gaussian.at_first("mean"):
        with pytest.raises(RuntimeError, match="'counts' has to wait for"):
            gaussian.gaussian("counts", TOTAL)
        assert not draws
        gaussian.gaussian("mean", TOTAL)
    gaussian.gaussian("counts", TOTAL)
    with pytest.raises(RuntimeError, match="were released before"), gaussian.at_first("mean"):
        pass


def test_what_fails_at_first_costs_what_comes_first():
    parts, ends = {"mean": Part(0.2), "counts": Part(0.8, 2)}, []
    budget = Budget.split(Target(1.0, 1e-5), parts)
    releases = Releases(budget, SeededNoise(0), None, ends.append)
    with pytest.raises(KeyboardInterrupt), releases.at_first("mean"):
        raise KeyboardInterrupt
    (end,) = ends
    assert end == budget.only("mean") and [*end.parts] == ["mean"]
    assert epsilon_of(end.event, 1e-5, neighboring_relation="zero_out") < 0.5
    with pytest.raises(RuntimeError, match="has to wait"):
        releases.gaussian("counts", TOTAL)  # which nobody has paid for now


@pytest.mark.parametrize("shares", [(0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (1.1,), (math.nan,)])
def test_shares_of_one_release_add_up_to_one_at_most(gaussian, draws, shares):
    with pytest.raises(RuntimeError, match="shares"):
        gaussian.jointly("mean", [TOTAL] * len(shares), shares)
    assert not draws


def test_each_sum_has_a_share(gaussian, draws):
    for shares in ([1.0], [0.4, 0.3, 0.3]):
        with pytest.raises(RuntimeError, match="2 sums need as many shares"):
            gaussian.jointly("mean", [TOTAL, TOTAL], shares)
    assert not draws
    gaussian.jointly("mean", [TOTAL, TOTAL], [0.5, 0.5])  # a refusal has used nothing up


# What a budget is -----------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_gaussian_parts_have_their_shares_of_mu(relation):
    """Squares of mu add up: (1 / multiplier)^2 times the count is in proportion to shares."""
    parts = {"norms": Part(0.1, 20), "mean": Part(0.2), "moment": Part(0.7)}
    budget = Budget.split(Target(2.0, "auto", relation), parts, n_samples=1000)
    norms, mean, moment = budget.scales.values()
    assert list(budget.scales) == list(parts)
    square = 1 / moment**2 / 0.7
    assert 20 / norms**2 == pytest.approx(0.1 * square)
    assert 1 / mean**2 == pytest.approx(0.2 * square)
    assert budget.event == ComposedDpEvent(
        [
            SelfComposedDpEvent(GaussianDpEvent(norms), 20),
            GaussianDpEvent(mean),
            GaussianDpEvent(moment),
        ]
    )
    assert budget.multipliers == [norms, mean, moment]
    assert budget.per_record_multiplier("norms") == norms / math.sqrt(20)
    assert 1.99 < epsilon_of(budget.event, 1e-5, neighboring_relation=relation) <= 2.0
    # All together cost what one release of all of mu costs.
    alone = Budget.split(Target(2.0, 1e-5, relation), {"all": Part(1.0)})
    assert alone.scales["all"] == pytest.approx(1 / math.sqrt(square), rel=1e-6)


def test_batches_beside_full_sums():
    parts = {"mean": Part(0.2), "steps": Part(0.8, 50, rate=0.1)}
    budget = Budget.split(Target(1.0, 1e-5), parts)
    mean, steps = budget.scales["mean"], budget.scales["steps"]
    sampled = PoissonSampledDpEvent(0.1, GaussianDpEvent(steps))
    assert budget.event == ComposedDpEvent(
        [GaussianDpEvent(mean), SelfComposedDpEvent(sampled, 50)]
    )
    assert 0.99 < epsilon_of(budget.event, 1e-5, neighboring_relation="zero_out") <= 1.0
    full = Budget.split(Target(1.0, 1e-5), {"mean": Part(0.2), "steps": Part(0.8, 50)})
    assert mean == full.scales["mean"]
    assert steps < full.scales["steps"]  # a batch hides who is in it
    assert budget.per_record_multiplier("steps") == steps / (0.1 * math.sqrt(50))


def test_a_given_multiplier_is_that_of_the_last_part():
    target = Target(None, 1e-5, noise_multiplier=20.0)
    budget = Budget.split(target, {"mean": Part(0.2), "steps": Part(0.8, 50)})
    mean = 20.0 * math.sqrt(0.8 / 0.2 / 50)
    assert budget.scales == {"mean": pytest.approx(mean), "steps": 20.0}
    steps = SelfComposedDpEvent(GaussianDpEvent(20.0), 50)
    assert budget.event == ComposedDpEvent([GaussianDpEvent(budget.scales["mean"]), steps])
    assert budget.private


@pytest.mark.parametrize(("relation", "doubling"), [("zero_out", 1), ("replace_one", 2)])
def test_parts_without_delta_share_epsilon(relation, doubling):
    parts = {"direction": Part(0.9, 3, kind="range"), "spectrum": Part(0.1, kind="laplace")}
    budget = Budget.split(Target(1.5, 0.0, relation), parts)
    direction, spectrum = budget.scales.values()
    assert 3 * direction == pytest.approx(9 * spectrum)
    assert 3 * direction + spectrum == pytest.approx(1.5, rel=1e-6)
    assert budget.event == ComposedDpEvent(
        [
            SelfComposedDpEvent(BoundedRangeDpEvent(direction), 3),
            LaplaceDpEvent(doubling / spectrum),
        ]
    )
    assert budget.multipliers == [1 / spectrum]  # of sums: a direction is none
    assert epsilon_of(budget.event, 0.0, neighboring_relation=relation) <= 1.5


def test_a_budget_of_nothing_costs_nothing_and_one_without_bound_is_not_private():
    nothing = Budget.split(Target(1.0), {})  # delta is not asked for
    assert type(nothing.event) is NoOpDpEvent and nothing.multipliers == []
    parts = {"mean": Part(0.5), "counts": Part(0.5, 2)}
    budget = Budget.split(Target(math.inf), parts)
    assert type(budget.event) is NonPrivateDpEvent and not budget.private
    assert budget.scales == {"mean": 0.0, "counts": 0.0}
    releases = Releases(budget, SeededNoise(0))
    exact = BoundedSum(np.array([1.25, -3.5]), 1.0, 2.0)
    np.testing.assert_array_equal(releases.gaussian("mean", exact), exact.value)
    with pytest.raises(RuntimeError, match="has 1 releases"):  # counted all the same
        releases.gaussian("mean", exact)


# What is released -----------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_has_the_scale_of_its_part(relation):
    parts = {"mean": Part(0.2), "moment": Part(0.8, 2)}
    budget = Budget.split(Target(1.0, 1e-5, relation), parts)
    releases = Releases(budget, SeededNoise(0))
    total = BoundedSum(np.zeros(40_000), 3.0, 4.0)
    unit = 3.0 if relation == "zero_out" else 2.0  # half of what a replaced record moves
    for name in parts:
        assert releases.noise_of(name, total) == pytest.approx(budget.scales[name] * unit)
        assert releases.gaussian(name, total).std() == pytest.approx(
            releases.noise_of(name, total),
            rel=0.025,  # 7 deviations
        )
    one, other = releases.jointly("moment", [total, total], [0.25, 0.75])
    assert one.std() == pytest.approx(releases.noise_of("moment", total, 0.25), rel=0.025)
    assert other.std() == pytest.approx(releases.noise_of("moment", total, 0.75), rel=0.025)
    assert one.std() == pytest.approx(2 * releases.noise_of("moment", total), rel=0.025)


def test_every_name_and_every_release_has_its_own_noise():
    parts = {"a": Part(0.5, 2), "b": Part(0.5, 2)}
    budget = Budget.split(Target(1.0, 1e-5), parts)

    def outputs(order):
        releases = Releases(budget, SeededNoise(0))
        out = {}
        for name in order:
            out.setdefault(name, []).append(tuple(releases.gaussian(name, TOTAL)))
        return out

    here = outputs("aabb")
    assert len({*here["a"], *here["b"]}) == 4
    assert outputs("baba") == here  # whatever is released between


def test_batches_are_of_the_rate_that_is_charged():
    parts = {"mean": Part(0.2), "steps": Part(0.8, 50, rate=0.1)}
    releases = Releases(Budget.split(Target(1.0, 1e-5), parts), SeededNoise(0))
    assert releases.batch("mean", 100_000) is None
    one = releases.batch("steps", 100_000)
    with pytest.raises(RuntimeError, match="drawn before is not released yet"):
        releases.batch("steps", 100_000)  # a choice among batches would cost more
    releases.gaussian("steps", TOTAL)
    with pytest.raises(RuntimeError, match="charged on a batch: draw one first"):
        releases.gaussian("steps", TOTAL)
    other = releases.batch("steps", 100_000)
    for batch in (one, other):
        assert len(batch) == pytest.approx(10_000, rel=0.05)
    assert len(np.intersect1d(one, other)) == pytest.approx(1000, rel=0.2)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("count", [2, 7])
def test_releases_on_disjoint_blocks_cost_what_one_costs(relation, count):
    """A record is in one block, so it meets one release of each such part."""
    target = Target(1.0, 1e-5, relation)
    parts = {"mean": Part(0.5), "steps": Part(0.5, count, disjoint=True)}
    budget, plain = (
        Budget.split(target, parts),
        Budget.split(target, {"a": Part(0.5), "b": Part(0.5)}),
    )
    assert list(budget.scales.values()) == list(plain.scales.values())
    assert budget.event == plain.event
    # Their mean has the noise of so many blocks, each of a part of the records.
    assert budget.per_record_multiplier("steps") == pytest.approx(
        budget.scales["steps"] * math.sqrt(count)
    )
    given = Target(None, 1e-5, relation, noise_multiplier=3.0)
    assert Budget.split(given, parts).scales == {"mean": pytest.approx(3.0), "steps": 3.0}


def test_blocks_hold_every_record_once_and_are_public():
    parts = {"scale": Part(0.2, 4, disjoint=True), "steps": Part(0.8, 4, disjoint=True)}
    budget = Budget.split(Target(1.0, 1e-5), parts)
    found = []
    for seed in (0, 1):
        releases, blocks = Releases(budget, SeededNoise(seed)), []
        for _ in range(4):
            blocks.append(releases.batch("steps", 1003))
            releases.gaussian("steps", TOTAL)
        np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(1003))
        assert {len(block) for block in blocks} <= {250, 251}
        np.testing.assert_array_equal(releases.batch("scale", 1003), blocks[0])
        found.append(blocks)
    for one, other in zip(*found, strict=True):  # whatever the noise is
        np.testing.assert_array_equal(one, other)
    assert abs(np.corrcoef(np.arange(250), found[0][0][:250])[0, 1]) > 0.99  # in order
    assert 300 < found[0][0].mean() < 700  # and from all over the data


def test_a_block_is_released_once_and_before_the_next():
    budget = Budget.split(Target(1.0, 1e-5), {"steps": Part(1.0, 2, disjoint=True)})
    releases = Releases(budget, SeededNoise(0))
    with pytest.raises(RuntimeError, match="draw one first"):
        releases.gaussian("steps", TOTAL)
    for _ in range(2):
        releases.batch("steps", 10)
        with pytest.raises(RuntimeError, match="drawn before is not released yet"):
            releases.batch("steps", 10)
        releases.gaussian("steps", TOTAL)
        with pytest.raises(RuntimeError, match=r"draw one first|has 2 releases"):
            releases.gaussian("steps", TOTAL)  # twice on one block
    with pytest.raises(RuntimeError, match="all blocks of 'steps' are released"):
        releases.batch("steps", 10)


def test_a_part_that_no_event_describes_is_refused():
    for options in ({"share": 0.0}, {"share": 1.0, "count": 0}, {"share": 1.0, "rate": 1.5}):
        with pytest.raises(ValueError, match="must have a share above 0"):
            Part(**options)
    for options in ({"kind": "uniform"}, {"kind": "laplace", "rate": 0.5}):
        with pytest.raises(ValueError, match="must be 'gaussian'"):
            Part(1.0, **options)
    for options in ({"kind": "laplace"}, {"rate": 0.5}):
        with pytest.raises(ValueError, match="to be on disjoint blocks"):
            Part(1.0, 3, disjoint=True, **options)


@pytest.mark.parametrize("relation", RELATIONS)
def test_several_laplace_releases_cost_as_many(relation):
    budget = Budget.split(Target(1.5, 0.0, relation), {"sums": Part(1.0, 3, kind="laplace")})
    assert budget.scales["sums"] == pytest.approx(0.5, rel=1e-3)
    assert epsilon_of(budget.event, 0.0, relation) == pytest.approx(1.5, rel=1e-3)
    releases = Releases(budget, SeededNoise(0))
    for _ in range(3):
        releases.laplace("sums", L1_TOTAL)
    with pytest.raises(RuntimeError, match="has 3 releases 'sums'"):
        releases.laplace("sums", L1_TOTAL)


def test_threads_get_no_release_more_than_counted():
    budget = Budget.split(Target(1.0, 1e-5), {"sums": Part(1.0, 3)})
    releases, made = Releases(budget, SeededNoise(0)), []

    def ask(_):
        with suppress(RuntimeError):
            made.append(releases.gaussian("sums", TOTAL))

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(ask, range(64)))
    assert len(made) == 3


class Fickle(float):
    """A number that is another one once it has been asked for a while."""

    def __ne__(self, other):
        return False  # "I am infinite": asks for no privacy

    __hash__ = float.__hash__


def test_a_number_that_changes_its_mind_is_taken_by_its_value():
    X, y = blobs()
    fickle = DPSGDClassifier(epsilon=Fickle(0.5), random_state=0).fit(X, y)
    plain = DPSGDClassifier(epsilon=0.5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(fickle.coef_, plain.coef_)
    assert fickle.privacy_.epsilon == plain.privacy_.epsilon == 0.5


def test_bounds_that_change_after_the_plan_are_those_of_the_plan():
    low, high = np.array([-5.0]), np.array([5.0])
    plan = DPSGDRegressor(target_bounds=(low, high), data_norm=1.0)._plan()
    low[:], high[:] = 0, 0
    assert [float(end[0]) for end in plan.bounds.target_bounds] == [-5, 5]


def test_a_ledger_refuses_methods_that_are_not_those_of_the_class():
    X, y = blobs()
    model, ledger = DPSGDClassifier(), PrivacyLedger(epsilon=2.0, delta=1e-5)
    model.fit = lambda X, y: model
    with pytest.raises(PrivacyError, match="has another 'fit' than its class"):
        ledger.fit(model, X, y)
    assert ledger.epsilon() == 0
