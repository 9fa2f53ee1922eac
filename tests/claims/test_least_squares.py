"""Solvers of linear regression: what one record moves, and what the budget says of it."""

import math

import numpy as np
import pytest
from helpers import RELATIONS, pairs_first, who

from dpsubspace import DPLinearRegression
from dpsubspace._core.accounting.budget import Budget, Target
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import plain_arithmetic, to_numpy
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.solvers.descent import noise_of_mean
from dpsubspace._core.solvers.least_squares import (
    SOLVERS,
    OnePass,
    _n_blocks,
    _penalty,
    _plan,
    _statistics,
)
from dpsubspace._core.solvers.regression import Regression
from dpsubspace._core.statistics.moments import Rows

N, P = 400, 5


class Replayed(Releases):
    """Releases that keep the sums, and answer with what an earlier fit was answered."""

    def __init__(self, *args, answers=()):
        super().__init__(*args)
        self.answers, self.made, self.units = list(answers), [], []

    def jointly(self, name, totals, shares, *, stream=None):
        answer = super().jointly(name, totals, shares, stream=stream)
        if len(self.made) < len(self.answers):
            answer = self.answers[len(self.made)][1]
        self.made.append((name, answer, [to_numpy(total.value) for total in totals]))
        relation = self.budget.target.neighboring_relation
        self.units.append([total.unit(relation) for total in totals])
        return answer


def table(targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) @ (np.eye(P) + 0.3 * rng.standard_normal((P, P)))
    Y = X @ rng.standard_normal((P, targets)) / 3 + 0.5 * rng.standard_normal((N, targets))
    return X, Y


def problem(X, Y, present=None):
    records = who(present, len(X))
    if not isinstance(X, np.ndarray):
        records = records.on_device(X.device)
    rows = AffineRows(X, Affine.identity(X.shape[1]), constant=True, records=records)
    return Regression(rows, Y)


def solved(name, X, Y, *, relation="zero_out", present=None, answers=(), epsilon=1.0):
    solver = SOLVERS[name]
    budget = Budget.split(Target(epsilon, 1e-5, relation), solver.parts(100.0))
    releases = Replayed(budget, SeededNoise(0), answers=answers)
    with plain_arithmetic(None):
        solution = solver(problem(X, Y, present), releases, lambda: False)
    return solution, releases


def moves(here, there):
    """How far each release of one fit is from that of another, in multipliers of its noise."""
    found = []
    for (name, _, mine), (other, _, theirs), units in zip(
        here.made, there.made, here.units, strict=True
    ):
        assert name == other
        scale = here.budget.scales[name]
        ratios = [
            np.linalg.norm(a - b) / (scale * unit)
            for a, b, unit in zip(mine, theirs, units, strict=True)
        ]
        found.append((name, scale, max(ratios)))
    return found


ROWS = {
    "usual": (np.ones(P), 1.0),
    "long": (np.full(P, 30.0), -40.0),
    "huge": (np.full(P, 1e200), 1e200),
    "opposite": (-np.ones(P), -5.0),
    "zero": (np.zeros(P), 0.0),
    "large target": (np.zeros(P), 1e6),
}


@pytest.mark.parametrize(
    ("name", "targets", "kind"), pairs_first(SOLVERS, [1, 3], ROWS, together=(0, 1))
)
def test_a_null_record_moves_releases_by_no_more_than_is_charged(name, targets, kind):
    X, Y = table(targets)
    X[7], Y[7] = ROWS[kind]
    present = np.ones(N, dtype=bool)
    _, here = solved(name, X, Y, present=present)
    present[7] = False
    _, there = solved(name, X, Y, present=present, answers=here.made)
    spent = sum(ratio**2 for _, _, ratio in moves(here, there))
    whole = Budget.split(Target(1.0, 1e-5), SOLVERS[name].parts(100.0))
    allowed = sum(part.n_charged / whole.scales[n] ** 2 for n, part in whole.parts.items())
    assert spent <= allowed * (1 + 1e-9)
    for release, scale, ratio in moves(here, there):
        assert ratio <= 1 / scale * (1 + 1e-9), release


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", ROWS)
def test_a_replaced_record_moves_releases_by_no_more_than_is_charged(name, kind):
    """The unit is half of what a replacement may move, and accountants double it."""
    X, Y = table()
    X[7], Y[7] = ROWS["opposite"]
    _, here = solved(name, X, Y, relation="replace_one")
    X[7], Y[7] = ROWS[kind]
    _, there = solved(name, X, Y, relation="replace_one", answers=here.made)
    budget = here.budget
    allowed = sum(4 * part.n_charged / budget.scales[n] ** 2 for n, part in budget.parts.items())
    assert sum(ratio**2 for _, _, ratio in moves(here, there)) <= allowed * (1 + 1e-9)
    for release, scale, ratio in moves(here, there):
        assert ratio <= 2 / scale * (1 + 1e-9), release


@pytest.mark.parametrize("replaced", [False, True])
def test_the_least_eigenvalue_moves_by_its_bound(replaced):
    """One record that alone looks in its direction decides the least eigenvalue.

    Its bound is that of the norm squared for both relations. Without rounding it is reached here.
    """
    found = []
    for record in ([0.0, 0.0, 50.0], [50.0 * replaced, 0.0, 0.0]):
        X = np.vstack([10.0 * np.eye(3)[:2], record])
        affine = Affine.identity(3)
        features = AffineRows(X, affine, constant=False).clipped(2.0)
        releases = solved("adassp", *table())[1]
        found.append(_statistics(Rows(features, 2.0), 3, releases)[0])
    moved = abs(float(found[0].value[0]) - float(found[1].value[0]))
    for bound in (found[0].norm_bound, found[0].replace_bound):
        assert 0.99 * bound < moved <= bound


@pytest.mark.parametrize("name", SOLVERS)
def test_bounds_are_nearly_reached(name):
    """A test that could not fail would pass with bounds of any size."""
    X, Y = table()
    X[7], Y[7] = 50.0 * np.ones(P), 80.0
    present = np.ones(N, dtype=bool)
    _, here = solved(name, X, Y, present=present)
    present[7] = False
    _, there = solved(name, X, Y, present=present, answers=here.made)
    reached = max(ratio * scale for _, scale, ratio in moves(here, there))
    assert 0.5 < reached <= 1 + 1e-9


@pytest.mark.parametrize("name", SOLVERS)
def test_a_null_record_contributes_exactly_nothing(name):
    X, Y = table()
    present = np.ones(N, dtype=bool)
    present[7] = False
    one, _ = solved(name, X, Y, present=present)
    X[7], Y[7] = 1e3, -1e3
    other, _ = solved(name, X, Y, present=present)
    np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SOLVERS)
def test_torch_gives_the_weights_of_numpy(name, dtype):
    torch = pytest.importorskip("torch")
    X, Y = (part.astype(dtype) for part in table(2))
    present = np.arange(N) != 7
    here, _ = solved(name, X, Y, present=present)
    X, Y = map(torch.from_numpy, (X, Y))
    there, _ = solved(name, X, Y, present=present)
    assert isinstance(there.weights, np.ndarray)
    np.testing.assert_allclose(there.weights, here.weights, rtol=1e-6, atol=1e-6)


def test_a_record_meets_one_block():
    X, Y = table()
    present = np.ones(N, dtype=bool)
    _, here = solved("ambssgd", X, Y, present=present, epsilon=100.0)
    present[7] = False
    _, there = solved("ambssgd", X, Y, present=present, answers=here.made, epsilon=100.0)
    met = [name for name, _, ratio in moves(here, there) if ratio > 0]
    assert len(here.made) > 10
    assert sorted(met) == ["second moment", "sizes of residuals", "steps"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", SOLVERS)
def test_parts_are_the_whole_budget(name, relation):
    parts = SOLVERS[name].parts(100.0)
    assert math.fsum(part.share for part in parts.values()) == pytest.approx(1.0)
    budget = Budget.split(Target(1.0, 1e-5, relation), parts)
    alone = Budget.split(Target(1.0, 1e-5, relation), SOLVERS["moments"].parts(100.0))
    mu = sum(part.n_charged / budget.scales[n] ** 2 for n, part in parts.items())
    assert mu == pytest.approx(1 / alone.scales["second moment"] ** 2, rel=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("targets", [1, 2])
def test_weights_are_those_of_least_squares_where_noise_is_small(name, targets):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4))
    Y = X @ rng.uniform(-1, 1, (4, targets)) + 0.3 * rng.standard_normal((20_000, targets))
    X, Y = X / X.std(axis=0), Y / Y.std(axis=0)
    exact = np.linalg.lstsq(X, Y, rcond=None)[0]
    solution, _ = solved(name, X, Y, epsilon=5.0)
    np.testing.assert_allclose(solution.weights[:4], exact, atol=0.05)
    assert np.abs(solution.weights[4]).max() < 0.05


@pytest.mark.parametrize("name", SOLVERS)
def test_noise_of_weights_is_about_what_is_said(name):
    """Where columns are no close relatives, of whose weights "plain" says too little."""
    rng, n = np.random.default_rng(3), 10 * N
    X = rng.standard_normal((n, P)) @ (np.eye(P) + 0.3 * np.eye(P, k=1))
    Y = X.sum(axis=1, keepdims=True) / 3 + 0.5 * rng.standard_normal((n, 1))
    X, Y = X / X.std(axis=0), Y / Y.std()
    found, said = [], []
    for seed in range(30):
        solver = SOLVERS[name]
        budget = Budget.split(Target(1.0, 1e-5), solver.parts(1000.0))
        solution = solver(problem(X, Y), Releases(budget, SeededNoise(seed)), lambda: False)
        found.append(solution.weights[:, 0])
        said.append(np.linalg.norm(solution.noise, axis=1) * solution.sizes[0])
    ratio = np.std(found, axis=0) / np.mean(said, axis=0)
    # The logarithm has a deviation of 0.08, of draws of rows and noise, about -0.2 for "descent",
    # 0.2 for "plain" and 0 for the others: an end is at 7.7 of these or more.
    assert 1 / 2 < np.exp(np.log(ratio).mean()) < 5 / 2


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_what_a_fit_costs_is_known_before_it(name, relation):
    X, Y = table()
    model = DPLinearRegression(
        epsilon=2.0,
        solver=name,
        neighboring_relation=relation,
        bounds=(-5.0, 5.0),
        target_bounds=(-5.0, 5.0),
        random_state=0,
    ).fit(X, Y[:, 0])
    assert model.privacy_.event == model.privacy_event(n_samples=N, n_features=P)
    assert model.privacy_.epsilon <= 2.0
    assert np.isfinite(model.coef_).all() and (model.coef_std_ > 0).all()


# Parts of solvers -------------------------------------------------------------------------------


def test_the_penalty_of_adassp_outweighs_noise_nearly_always():
    rng, p, below = np.random.default_rng(0), 20, 0
    for _ in range(300):
        noise = rng.standard_normal((p, p)) / math.sqrt(2)
        noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.standard_normal(p))
        lowest = rng.standard_normal()  # of a moment without any eigenvalue above 0
        below += np.linalg.eigvalsh(noise)[0] + _penalty(lowest, 1.0, 1.0, p) <= 0
    assert below <= 15
    assert _penalty(100.0, 1.0, 1.0, p) == 0  # an eigenvalue that is safe needs none


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_the_noise_of_a_mean_of_iterates(rate):
    scales = np.array([2.0, 1.0, 0.5, 0.7, 0.7])
    rng = np.random.default_rng(0)
    iterates, errors = [], np.zeros(100_000)
    for scale in scales:
        errors = errors - rate * (errors + scale * rng.standard_normal(100_000))
        iterates.append(errors)
    spread = np.mean(iterates[2:], axis=0).std()
    weights = noise_of_mean(5, rate, 0.0, 2)
    assert np.linalg.norm(weights * scales) == pytest.approx(spread, rel=0.02)


def test_the_noise_of_descent_with_momentum():
    plan = _plan(0.05, 10)
    rng = np.random.default_rng(0)
    weights = velocity = total = np.zeros(20_000)
    for t in range(plan.n_iter):
        momentum = auto.momentum_at(t, plan.momentum, n_iter=plan.n_iter)
        gradient = weights + momentum * velocity + rng.standard_normal(20_000)
        velocity = momentum * velocity - plan.learning_rate * gradient
        weights = weights + velocity
        if t >= plan.first_averaged:
            total = total + weights
    spread = total.std() / (plan.n_iter - plan.first_averaged)
    assert np.linalg.norm(plan.noise_of_mean) == pytest.approx(spread, rel=0.035)  # 7 deviations


def test_blocks_grow_with_the_noise():
    def blocks(epsilon, n):
        budget = Budget.split(Target(epsilon, 1e-5), OnePass().parts(100.0))
        return _n_blocks(Releases(budget, SeededNoise(0)), n, 5)

    assert blocks(0.1, 1000) == 2 < blocks(3.0, 1000) <= blocks(3.0, 100_000) == 20
    assert blocks(1.0, 1) == 1
