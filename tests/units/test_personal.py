"""Personal linear models: what persons bring to a release, and heads against closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.linear_model import Ridge

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.records import Records
from dpsubspace._core.solvers.heads import NUMBERS, Candidate, HeadPrior, own_model, ridge, ridges
from dpsubspace._core.solvers.personal import (
    CHECK,
    COMPARISON,
    DIRECTIONS,
    PRIOR,
    ROUNDS,
    PersonalSolver,
    default_rounds,
    gradient_round,
    head_moments,
    moments_round,
    pair_statistics,
    released_comparison,
    released_doubt,
    released_heads,
    released_pairs,
    slope_whitening,
)
from dpsubspace._core.statistics import persons as persons_module
from dpsubspace._core.statistics.moments import packed, symmetric
from dpsubspace._core.statistics.persons import MOST_ROWS, PersonRows
from dpsubspace.linear_model import PersonalizedLinearRegression

J, D, K = 30, 5, 2
SIZES = (np.arange(J) * 7) % 23  # from no row to 22
WHITE = np.linalg.qr(np.random.default_rng(5).normal(size=(D, K)))[0]


def table(sizes=SIZES, d=D, seed=0, spread=0.7, noise=0.6):
    """Rows, targets and person numbers in a random order, with heads along `WHITE`."""
    rng, n_persons = np.random.default_rng(seed), len(sizes)
    index = rng.permutation(np.repeat(np.arange(n_persons), sizes))
    X = rng.normal(size=(len(index), d))
    basis = WHITE if d == D else np.linalg.qr(rng.normal(size=(d, K)))[0]
    own = rng.normal(size=(n_persons, K)) * spread / math.sqrt(K)
    y = np.sum((X @ basis) * own[index], axis=1) + 0.3 * rng.normal(size=n_persons)[index]
    return X, y + noise * rng.normal(size=len(y)), index, basis


def persons_of(X, y, index, n_persons, *, present=None, weights=None, **options):
    d = X.shape[1]
    rows = AffineRows(X, Affine(np.full(d, 0.01), np.full(d, 1.1)), constant=False, limit=4.0)
    weights = np.linspace(-0.1, 0.1, d) if weights is None else weights
    given = {"weights": weights, "constant": 0.05, "whitening": whitening(d), **options}
    return PersonRows(rows, y, Records.of_groups(np.asarray(index), n_persons, present), **given)


def whitening(d):
    return np.eye(d) + 0.1 * np.random.default_rng(9).normal(size=(d, d))


def naive(X, y, index, person, cut=6.0, d=D):
    """White rows and residuals of one person, as the formulas say."""
    mine = np.flatnonzero(index == person)[:MOST_ROWS]
    rows = np.clip((X[mine] - 0.01) * 1.1, -4, 4)
    residuals = np.clip(y[mine] - rows @ np.linspace(-0.1, 0.1, d) - 0.05, -cut, cut)
    return rows @ whitening(d), residuals


NAMES = (DIRECTIONS, CHECK, ROUNDS, PRIOR, COMPARISON)


class Kept:
    """Releases that keep the sums they are asked for, and add no noise."""

    def __init__(self, private=True, batch=None):
        parts = {name: Part(0.2) for name in NAMES}
        self.budget = Budget.split(Target(1.0 if private else math.inf), parts, J)
        self.sums, self._batch = [], batch

    def batch(self, name, n):
        return self._batch

    def noise_of(self, name, total):
        return 0.0

    def gaussian(self, name, total):
        self.sums.append(total)
        return total.value


PRIOR_OF_HEADS = HeadPrior.of(WHITE, np.diag([0.1, 0.2, 0.1]), 0.5, public=WHITE[:, :1])
SUMS = {
    "pairs": lambda persons, releases: released_pairs(persons, releases),
    "pairs in a round": lambda persons, releases: released_pairs(persons, releases, ROUNDS),
    "check": lambda persons, releases: released_doubt(persons, releases, WHITE),
    "gradient": lambda persons, releases: gradient_round(persons, releases, WHITE),
    "moments": lambda persons, releases: moments_round(persons, releases, WHITE),
    "heads": lambda persons, releases: released_heads(persons, releases, WHITE),
    "comparison": lambda persons, releases: released_comparison(persons, releases, PRIOR_OF_HEADS),
}


def sum_of(name, persons, private=True, batch=None):
    releases = Kept(private, batch)
    SUMS[name](persons, releases)
    return releases.sums[0]


# Neighbours -----------------------------------------------------------------------------------


def adversaries(d=D):
    """Rows and targets of a person who wants to move a sum far."""
    rng = np.random.default_rng(3)
    one, signs = np.ones((1, d)), rng.choice([-1.0, 1.0], size=(60, 1))
    whitened = np.linalg.solve(whitening(d).T, 3 * WHITE[:, 0])  # white, it is along them
    return {
        "one row": (one, np.ones(1)),
        "huge": (rng.choice([-1e308, 1e308, 1e300], size=(7, d)), np.full(7, -1e308)),
        "tiny": (rng.normal(size=(7, d)) * 1e-300, np.full(7, 1e-300)),
        "zero": (np.zeros((4, d)), np.zeros(4)),
        "all alike": (np.repeat(3 * one, 40, axis=0), np.full(40, 5.0)),
        "opposite": (np.repeat(3 * one, 40, axis=0), np.where(np.arange(40) % 2, 5.0, -5.0)),
        "many": (rng.normal(size=(MOST_ROWS + 300, d)), 5 * rng.normal(size=MOST_ROWS + 300)),
        "along": (
            rng.normal(size=(60, K)) @ WHITE.T,
            6 * np.sign(rng.normal(size=60)),
        ),
        "told by directions": (signs * whitened, 6 * signs[:, 0]),
    }


def with_user(X, y, index, person, rows, targets):
    """The table with other rows of one person, put at random places."""
    rest = index != person
    X, y = np.concatenate([X[rest], rows]), np.concatenate([y[rest], targets])
    index = np.concatenate([index[rest], np.full(len(targets), person)])
    order = np.random.default_rng(1).permutation(len(y))
    return X[order], y[order], index[order]


@pytest.mark.parametrize("name", SUMS)
def test_a_user_moves_no_sum_by_more_than_its_bounds(name):
    X, y, index, _ = table()
    base, person = sum_of(name, persons_of(X, y, index, J)), 11
    moved, replaced, sums = [], [], [base]
    for rows, targets in adversaries().values():
        other = with_user(X, y, index, person, rows, targets)
        assert np.all(np.isfinite(other[0]))
        sums.append(sum_of(name, persons_of(*other, J)))
        zeroed = persons_of(*other, J, present=other[2] != person)
        null = sum_of(name, zeroed)
        moved.append(np.linalg.norm(sums[-1].value - null.value) / null.norm_bound)
        assert (null.norm_bound, null.replace_bound) == (base.norm_bound, base.replace_bound)
    for one in sums:
        assert np.all(np.isfinite(one.value))
        replaced += [np.linalg.norm(one.value - s.value) / s.replace_bound for s in sums]
    assert max(moved) <= 1 and max(replaced) <= 1
    if name != "heads":  # a bound far above what happens would hide a mistake here
        assert max(moved) > 0.9


@pytest.mark.parametrize("name", SUMS)
def test_a_null_user_brings_exactly_nothing(name):
    """Whatever the rows of the null person are, also none at all."""
    X, y, index, _ = table()
    values = []
    for rows, targets in [(np.full((50, D), np.nan), np.full(50, np.inf)), (X[:1], y[:1])]:
        other = with_user(X, y, index, 4, rows, targets)
        persons = persons_of(*other, J, present=other[2] != 4)
        values.append(sum_of(name, persons).value)
    rest = with_user(X, y, index, 4, X[:0], y[:0])
    values.append(sum_of(name, persons_of(*rest, J)).value)
    # The order of rows differs between the tables, and so does the rounding of sums.
    np.testing.assert_allclose(values[0], values[2], atol=1e-9 * np.abs(values[2]).max())
    np.testing.assert_allclose(values[1], values[2], atol=1e-9 * np.abs(values[2]).max())


PER_USER = {
    "pairs": pair_statistics,
    "moments of heads": lambda chunk: head_moments(chunk, WHITE, private=True),
    "losses": PRIOR_OF_HEADS.losses,
}


@pytest.mark.parametrize("name", PER_USER)
def test_what_a_user_brings_is_of_his_own_rows_bit_by_bit(name, monkeypatch):
    X, y, index, _ = table()

    def brought(persons):
        found = {}
        for chunk in persons.chunks():
            found.update(zip(chunk.persons, PER_USER[name](chunk), strict=True))
        return found

    together = brought(persons_of(X, y, index, J))
    assert set(together) == set(np.flatnonzero(SIZES))
    for person in (1, 5, 9, 16):
        mine = index == person
        alone = brought(persons_of(X[mine], y[mine], np.zeros(mine.sum(), int), 1))
        np.testing.assert_array_equal(alone[0], together[person])
    monkeypatch.setattr(persons_module, "_MOST_PERSONS", 3)
    for person, value in brought(persons_of(X, y, index, J)).items():
        np.testing.assert_array_equal(value, together[person])


def test_no_contribution_is_longer_than_one_in_exact_arithmetic():
    X, y, index, _ = table()
    for chunk in persons_of(X, y, index, J).chunks():
        for row in pair_statistics(chunk):
            assert math.fsum(float(x) ** 2 for x in row) <= 1


# What is summed, against loops -------------------------------------------------------------------


def expected_pairs(x, r):
    r = r - r.sum() / (len(r) + 4)
    matrix = sum(
        (
            r[i] * r[k] * np.outer(x[i], x[k])
            for i in range(len(r))
            for k in range(len(r))
            if i != k
        ),
        np.zeros((D, D)),
    )
    return matrix / np.linalg.norm(matrix) if len(r) > 1 else matrix


def test_pair_statistics_are_those_of_a_loop_over_pairs():
    X, y, index, _ = table()
    found = sum_of("pairs", persons_of(X, y, index, J)).value
    expected = sum(expected_pairs(*naive(X, y, index, j)) for j in range(J) if SIZES[j])
    np.testing.assert_allclose(symmetric(found), expected, atol=1e-9)


def head_of(x, r):
    """Head along `WHITE`, gradient across it and rows left, by the definition of a round."""
    F = np.concatenate([np.ones((len(r), 1)), x @ WHITE], axis=1)
    penalty = np.diag([0.7 / 0.17, 0.7 * K / 0.2, 0.7 * K / 0.2])
    hat = np.linalg.solve(F.T @ F + penalty, F.T)
    v = hat @ r
    g = x.T @ (r - F @ v)
    return v[1:], g - WHITE @ (WHITE.T @ g), len(r) - np.trace(F @ hat)


def test_rounds_are_those_of_a_loop_over_users():
    X, y, index, _ = table()
    persons = persons_of(X, y, index, J)
    gradient = np.zeros((D + K, K))
    moments, across = np.zeros((D * K, D * K)), np.zeros((D, K))
    for j in np.flatnonzero(SIZES):
        x, r = naive(X, y, index, j)
        v, g, rows = head_of(x, r)
        one = np.outer(np.concatenate([g, 0.5 * rows * v]), v)
        gradient += one / np.linalg.norm(one)
        h = 0.5 / math.sqrt(D) * rows * np.kron(x.T @ x / len(r), np.outer(v, v))
        c = np.outer(g, v)
        size = math.hypot(np.linalg.norm(h), np.linalg.norm(c))
        moments, across = moments + h / size, across + c / size
    np.testing.assert_allclose(sum_of("gradient", persons).value, gradient, atol=1e-9)
    found = sum_of("moments", persons).value
    np.testing.assert_allclose(found[: D * K].reshape(D, K), across, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(symmetric(found[D * K :]), moments, rtol=1e-8, atol=1e-9)


def clipped(vector, bound, private):
    norm = np.linalg.norm(vector)
    return vector * min(1, bound / norm) if private and norm else vector


@pytest.mark.parametrize("private", [True, False])
def test_moments_of_heads_are_those_of_a_loop_over_users(private):
    X, y, index, _ = table(spread=2.0)  # some are clipped
    found = sum_of("heads", persons_of(X, y, index, J, private=private), private).value
    expected, q = np.zeros_like(found), K + 1
    for j in np.flatnonzero(SIZES):
        x, r = naive(X, y, index, j, 6.0 if private else math.inf)
        m, F = len(r), np.concatenate([np.ones((len(r), 1)), x @ WHITE], axis=1)
        A = np.outer(F.T @ r, F.T @ r) - (F.T * r**2) @ F
        parts = [
            clipped(packed(A) / (m * (m - 1)) if m > 1 else np.zeros(6), 1.5, private),
            clipped(F.T @ r / m, 1.0, private),
            clipped(packed(F.T @ F / m) / (2 * math.sqrt(q)), 1.0, private),
            [min(np.mean(r**2) / 2, 1.0) if private else np.mean(r**2) / 2, 0.5 * (m > 1)],
        ]
        expected += np.concatenate(parts)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_round_over_a_batch_is_over_its_users():
    X, y, index, _ = table()
    batch = np.array([3, 8, 21])
    found = sum_of("gradient", persons_of(X, y, index, J), batch=batch).value
    expected = np.zeros_like(found)
    for j in batch:
        v, g, rows = head_of(*naive(X, y, index, j))
        one = np.outer(np.concatenate([g, 0.5 * rows * v]), v)
        expected += one / np.linalg.norm(one)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    nobody = sum_of("gradient", persons_of(X, y, index, J), batch=np.zeros(0, int))
    assert not nobody.value.any()


def test_packed_matrices_keep_their_norms(rng):
    matrix = rng.normal(size=(4, 4))
    matrix = matrix + matrix.T
    assert np.linalg.norm(packed(matrix)) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(symmetric(packed(matrix)), matrix)


def test_rows_beyond_the_most_are_not_looked_at():
    sizes = np.array([MOST_ROWS + 50, 3])
    X, y, index, _ = table(sizes)
    found = sum_of("pairs", persons_of(X, y, index, 2)).value
    late = np.flatnonzero(index == 0)[MOST_ROWS:]
    X[late], y[late] = 100.0, -100.0
    np.testing.assert_array_equal(sum_of("pairs", persons_of(X, y, index, 2)).value, found)


# Heads ------------------------------------------------------------------------------------------


def candidates(d=D):
    rng = np.random.default_rng(2)
    constant = np.eye(d + 1)[:, :1] * 0.4
    root = np.concatenate([constant, rng.normal(size=(d + 1, 2))], axis=1)
    return [
        Candidate("none", np.zeros((d + 1, 0))),
        Candidate("low rank", root),
        Candidate("anywhere", constant, 0.3),
        Candidate("both", root, 0.3),
        Candidate("both, about the own mean", root, 0.3, about_mean=True),
    ]


@pytest.mark.parametrize("prior", candidates(), ids=lambda prior: prior.name)
def test_heads_are_those_of_the_normal_posterior(prior):
    """With few rows and with many, where another system is solved."""
    X, y, index, _ = table()
    covariance = prior.root @ prior.root.T
    for chunk in persons_of(X, y, index, J).chunks():
        found = ridge(chunk, prior)
        for i, person in enumerate(chunk.persons):
            x, r = naive(X, y, index, person)
            F = np.concatenate([np.ones((len(r), 1)), x], axis=1)
            mean, single = x.mean(axis=0), len(r) == 1
            own = prior.own / (1.0 if single else np.mean((x - mean) ** 2))
            mean = mean if prior.about_mean else 0.0 * mean
            apart = x - mean
            explained = F @ covariance @ F.T + own * apart @ apart.T
            total = explained + np.eye(len(r))
            dual = np.linalg.solve(total, r)
            expected = covariance @ F.T @ dual
            expected[1:] += own * apart.T @ dual
            expected[0] -= own * mean @ apart.T @ dual
            np.testing.assert_allclose(found.coef[i], expected, atol=1e-9)
            density = multivariate_normal.logpdf(r, np.zeros(len(r)), total)
            ours = -(found.fit[i] + found.volume[i] + len(r) * math.log(2 * math.pi)) / 2
            assert ours == pytest.approx(density)
            for out in range(len(r)):
                kept = np.arange(len(r)) != out
                part = explained[np.ix_(kept, kept)] + np.eye(len(r) - 1)
                predicted = explained[out, kept] @ np.linalg.solve(part, r[kept])
                assert found.left_out[i, out] == pytest.approx(r[out] - predicted, abs=1e-9)
            assert not found.left_out[i, len(r) :].any()


def test_fits_that_share_own_rows_are_those_of_each_prior_alone():
    X, y, index, _ = table()
    priors = [replace(prior, own=own) for prior in candidates() for own in (0.0, 0.3, 2.0)]
    priors += [replace(prior, centre=np.full(D + 1, 0.2)) for prior in candidates()]
    for chunk in persons_of(X, y, index, J).chunks():
        for prior, found in zip(priors, ridges(chunk, priors, NUMBERS), strict=True):
            alone = ridge(chunk, prior)
            for name in ("coef", "left_out", "fit", "volume"):
                np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("own", [1e-6, 1.0, 1e9])
def test_scores_of_any_size_beside_own_rows_are_told_by_one_matrix(size, own):
    """However near to each other they are: an inverse of own rows alone would lose them."""
    X, y, index, _ = table(np.full(J, 3))
    X[:] = X[:1]  # of all persons along one line, as the scores are
    X *= np.linspace(1, 2, len(X))[:, None]
    root = size * np.vstack([np.zeros(D), np.eye(D)])
    (chunk,) = persons_of(X, y, index, J).chunks()
    found = ridge(chunk, Candidate("both", root, own))
    assert all(np.isfinite(part).all() for part in (*found[:3], found.own, found.volume))
    usual = found.own[:, :, None] * np.ones(1)
    assert (found.own > 0).all() and (usual <= 1 + 1e-3).all()
    assert (found.volume > 0).all()


def test_a_head_anywhere_is_ridge_regression_of_scikit_learn():
    X, y, index, _ = table()
    persons = persons_of(X, y, index, J, intercept=False)
    prior = HeadPrior((Candidate("anywhere", np.zeros((D + 1, 1)), 0.5),), 0.5, np.zeros(1))
    found = prior.heads(persons)
    for j in np.flatnonzero((SIZES > 0) & ~found.uses_own):
        x, r = naive(X, y, index, j)
        alpha = 2.0 * np.mean(x**2)
        expected = Ridge(alpha=alpha, fit_intercept=False).fit(x, r).coef_
        np.testing.assert_allclose(found.coef[j], whitening(D) @ expected, atol=1e-9)
    assert not found.constant.any()


def test_a_head_is_the_mean_of_those_of_all_priors_by_their_densities():
    X, y, index, _ = table()
    persons, noise = persons_of(X, y, index, J), 0.4
    prior = HeadPrior(tuple(candidates()), noise, np.log([0.1, 0.2, 0.3, 0.4, 0.5]))
    found = prior.heads(persons)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1)
    chunk = next(iter(persons.chunks(np.array([9]))))
    scores, coefs = [], []
    for one, weight in zip(prior.candidates, prior.log_weights, strict=True):
        head, m = ridge(chunk, one), SIZES[9]
        scores.append(weight - ((m + 4) * np.log(4 * noise + head.fit[0]) + head.volume[0]) / 2)
        coefs.append(head.coef[0])
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(found.weights[9], [*weights, 0], rtol=1e-9)
    np.testing.assert_allclose(found.coef[9], whitening(D) @ (weights @ coefs)[1:], atol=1e-12)
    assert found.constant[9] == pytest.approx((weights @ coefs)[0])


@pytest.mark.parametrize(
    ("units", "offset", "about_mean"), [(10.0, 0.0, False), (0.1, 0.0, True), (0.1, 3.0, True)]
)
def test_heads_anywhere_do_not_depend_on_where_noise_has_put_columns(units, offset, about_mean):
    """Released scales and places are far off where budgets are small; own rows tell both."""
    X, y, index, _ = table(np.maximum(SIZES, 2))
    prior = Candidate("anywhere", np.zeros((D + 1, 0)), 0.3, about_mean)
    cut = {"weights": np.zeros(D), "constant": 0.0}

    def left_out(scale, place):
        rows = AffineRows(X, Affine(np.full(D, place), np.full(D, scale)), constant=False)
        records = Records.of_groups(index, J)
        persons = PersonRows(rows, y, records, whitening=whitening(D), **cut)
        return np.concatenate([ridge(chunk, prior).left_out.ravel() for chunk in persons.chunks()])

    np.testing.assert_allclose(left_out(units, offset), left_out(1.0, 0.0), atol=1e-9)


@pytest.mark.parametrize("size", [1e5, 1e8, 1e160])
def test_no_rows_make_a_fit_fail_however_much_weights_may_vary(size):
    """As public tasks without noise say: penalties are then lost in rounding of long rows."""
    X, y, index, _ = table()
    root = size * np.vstack([np.ones((1, D)), np.eye(D)])
    own = Candidate("both", root, 0.3, centre=np.ones(D + 1))
    prior = HeadPrior((*candidates()[:2], Candidate("tasks", root), own), 1e-12, np.zeros(4))
    for rows, targets in adversaries().values():
        persons = persons_of(*with_user(X, y, index, 11, rows, targets), J)
        assert all(np.isfinite(prior.losses(chunk)).all() for chunk in persons.chunks())
        found = prior.heads(persons)
        assert all(np.isfinite(x).all() for x in (found.coef, found.constant, found.weights))


def test_units_of_targets_do_not_matter_where_the_noise_is_not_known():
    X, y, index, _ = table()
    prior = HeadPrior(tuple(candidates()), 0.5, np.zeros(5), known=False)
    small, large = (
        prior.heads(persons_of(X, factor * y, index, J, weights=np.zeros(D), constant=0.0))
        for factor in (1e-3, 1.0)
    )
    some = ~large.uses_own
    np.testing.assert_allclose(small.weights[some], large.weights[some], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(small.coef[some], 1e-3 * large.coef[some], rtol=1e-6, atol=1e-9)
    known = replace(prior, known=True)
    other = known.heads(persons_of(X, 1e-3 * y, index, J, weights=np.zeros(D), constant=0.0))
    assert np.abs(other.weights - large.weights).max() > 0.1


def test_users_without_rows_have_the_shared_model():
    X, y, index, _ = table()
    prior = PRIOR_OF_HEADS.compared(np.linspace(-0.2, 0.1, len(PRIOR_OF_HEADS.names)), 0.01)
    found = prior.heads(persons_of(X, y, index, J))
    assert SIZES[0] == 0 and not found.coef[0].any() and found.constant[0] == 0
    expected = np.exp(prior.log_weights) / np.exp(prior.log_weights).sum()
    np.testing.assert_allclose(found.weights[0], [*expected, 0])


# Persons who do alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(9, 4), (5, 12)])
def test_who_does_alone_has_the_best_ridge_regression_of_the_own_rows(rows, columns, intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, columns)) * np.geomspace(1, 1e6, columns) + 3.0 * intercept
    X[:, 1] = 7.0  # which tells nothing beside an intercept
    y = X[:, 0] + rng.normal(size=rows)
    raw = PersonRows(
        AffineRows(X, Affine.identity(columns), constant=False),
        y,
        Records.of_groups(np.zeros(rows, int), 1),
        weights=np.zeros(columns),
        constant=0.0,
        whitening=np.eye(columns),
        intercept=intercept,
    ).as_they_are()
    found = own_model(next(iter(raw.chunks())), intercept=intercept)
    spread = X - X.mean(axis=0) * intercept
    scaled = spread / np.where(spread.any(axis=0), np.sqrt((spread**2).mean(axis=0)), 1.0)
    errors, models = [], []
    for penalty in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        model = Ridge(alpha=penalty * rows, fit_intercept=intercept, solver="svd")
        gone = []
        for i in range(rows):
            model.fit(np.delete(scaled, i, 0), np.delete(y, i))
            gone.append(y[i] - model.predict(scaled[i : i + 1])[0])
        errors.append(np.square(gone).sum())
        models.append(model.fit(scaled, y).predict(scaled))
    best = int(np.argmin(errors))
    predicted = X @ found.coef[0] + found.constant[0]
    np.testing.assert_allclose(predicted, models[best], rtol=1e-6, atol=1e-6)
    assert (found.left_out[0, :rows] ** 2).sum() == pytest.approx(errors[best], rel=1e-6)


def test_a_user_does_alone_where_noise_has_hidden_what_is_shared():
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(20), 30)
    X = rng.normal(size=(600, D))
    own = rng.normal(size=(20, D))
    y = np.einsum("ij,ij->i", X, own[index]) + 0.1 * rng.normal(size=600)
    nothing = HeadPrior((Candidate("shared", np.zeros((D + 1, 0))),), 0.5, np.zeros(1))
    found = nothing.heads(persons_of(X, y, index, 20))
    assert found.uses_own.all() and np.abs(found.own_coef - own).max() < 0.2
    noise = nothing.heads(persons_of(X, rng.normal(size=600), index, 20))
    assert noise.uses_own.mean() < 0.2


def test_hardly_anybody_with_few_rows_does_alone_by_chance():
    """Persons differ by levels and along one direction: own models of 8 rows are far off."""
    rng = np.random.default_rng(0)
    index, new = (np.repeat(np.arange(1000), each) for each in (8, 4))
    common, direction = rng.normal(size=6), np.ones(6)
    levels, slopes = rng.normal(size=(2, 1000))

    def visits(index):
        X = rng.normal(size=(len(index), 6))
        own = levels[index] + slopes[index] * (X @ direction)
        return X, X @ common + own + rng.normal(size=len(index))

    (X, y), (X_new, y_new) = visits(index), visits(new)
    model = PersonalizedLinearRegression(epsilon=8.0, delta=1e-5, random_state=0)
    model.fit(X, y, groups=index)
    # The last kind is a model of the own rows alone: 0.021, with a deviation of 0.0034.
    assert model.choices_[:, -1].mean() < 0.05
    error = np.mean((y_new - model.predict(X_new, groups=new)) ** 2)
    # 1.3 where all of this is known, 4.6 alone; it is 1.5, with a deviation of 0.05.
    assert error < 1.85


def test_a_user_who_comes_later_has_the_head_of_one_who_was_there():
    X, y, index, _ = table()
    persons = persons_of(X, y, index, J)
    there = PRIOR_OF_HEADS.heads(persons)
    mine = index == 13
    late = persons_of(X[mine], y[mine], np.zeros(mine.sum(), int), 1)
    np.testing.assert_allclose(PRIOR_OF_HEADS.heads(late).coef[0], there.coef[13], atol=1e-12)


def test_what_all_users_say_counts_the_more_the_less_noise_there_is():
    losses = np.full(len(PRIOR_OF_HEADS.names), 0.2)
    losses[3] = -0.1
    clear = PRIOR_OF_HEADS.compared(losses, 0.0).log_weights
    # A logarithm of squared errors counts as half of a hundred rows.
    assert np.argmax(clear) == 3 and clear[0] == pytest.approx(-50 * 0.3)
    vague = PRIOR_OF_HEADS.compared(losses, 10.0).log_weights
    assert np.ptp(vague) < 0.05


# Shared parts ------------------------------------------------------------------------------------


def fitted(solver, persons, epsilon, public=None, seed=0):
    budget = Budget.split(Target(epsilon), solver.parts(), persons.n_persons)
    return solver(persons, Releases(budget, as_noise(seed), None), public)


def white(d):
    return {"whitening": np.eye(d) / 1.1}


def missed(found, basis):
    """Share of the energy of directions that was not found."""
    return 1 - np.linalg.norm(np.linalg.qr(found)[0].T @ basis) ** 2 / basis.shape[1]


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_directions_are_found_and_their_number(epsilon):
    n_persons, d = 1500, 8
    X, y, index, basis = table(np.full(n_persons, 8), d)
    persons = persons_of(
        X, y, index, n_persons, weights=np.zeros(d), **white(d), private=epsilon < math.inf
    )
    found = fitted(PersonalSolver(None, n_iter=1), persons, epsilon)
    assert found.directions.shape == (d, K)
    assert missed(found.directions, basis) < 0.03
    heads = found.heads(persons)
    scores = np.sum(X * 1.1 * heads.coef[index], axis=1) + heads.constant[index]
    assert np.mean((y - scores) ** 2) < 0.5 * np.mean(y**2)


def test_the_mean_of_heads_mends_a_shared_model_that_noise_has_hidden():
    n_persons, d = 1500, 8
    X, y, index, _ = table(np.full(n_persons, 8), d)
    y = y + X @ np.linspace(-0.4, 0.4, d)
    persons = persons_of(X, y, index, n_persons, weights=np.zeros(d), **white(d))
    found = fitted(PersonalSolver(None), persons, 4.0)

    def error(weights, constant):
        return np.mean((y - (X - 0.01) * 1.1 @ weights - constant) ** 2)

    own = found.heads(persons)
    # Heads are beside the mended model, whichever one the rows came with.
    again = found.heads(persons.sharing(np.ones(d), 7.0))
    np.testing.assert_array_equal(again.coef, own.coef)
    shared = error(found.weights, found.constant)
    assert shared < error(np.zeros(d), 0.0) - 0.8 * np.sum(np.linspace(-0.4, 0.4, d) ** 2)
    scores = np.sum((X - 0.01) * 1.1 * (found.weights + own.coef[index]), axis=1)
    assert np.mean((y - scores - found.constant - own.constant[index]) ** 2) < 0.75 * shared


def test_without_personal_directions_none_is_taken_and_nothing_is_lost():
    n_persons, d = 1000, 8
    X, y, index, _ = table(np.full(n_persons, 6), d, spread=0.0)
    y -= np.bincount(index, y)[index] / 6  # no intercepts either
    persons = persons_of(X, y, index, n_persons, weights=np.zeros(d), **white(d))
    found = fitted(PersonalSolver(None), persons, 4.0)
    assert found.directions.shape == (d, 0)
    heads = found.heads(persons)
    scores = np.sum(X * 1.1 * heads.coef[index], axis=1) + heads.constant[index]
    assert np.mean(scores**2) < 0.01 * np.mean(y**2)


@pytest.mark.parametrize("method", ["gradient", "moments"])
def test_a_round_mends_public_directions(method):
    n_persons, d = 1500, 8
    X, y, index, basis = table(np.full(n_persons, 8), d)
    persons = persons_of(X, y, index, n_persons, weights=np.zeros(d), **white(d))
    away = np.random.default_rng(0).normal(size=basis.shape)
    away = np.linalg.qr(away - basis @ (basis.T @ away))[0]
    start = math.sqrt(0.7) * basis + math.sqrt(0.3) * away  # it misses 0.3
    solver = PersonalSolver(K, method, n_iter=1, public=True)
    assert DIRECTIONS not in solver.parts()
    found = fitted(solver, persons, 4.0, start)
    # What noise makes it miss is a sum of about 10 squares, with means of 0.005 and 0.014 over 40
    # salts: more than 6.8 times that has a chance of 1e-10.
    assert missed(found.directions, basis) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_round_of_noise_alone_leaves_directions_as_they_are(seed):
    X, y, index, _ = table()
    solver = PersonalSolver(K, n_iter=2, rate=0.5, public=True)
    budget = Budget.split(Target(0.1), solver.parts(), J)
    how = Releases(budget, as_noise(seed), None)
    found = gradient_round(persons_of(X, y, index, J), how, WHITE)
    assert missed(found, WHITE) < 1e-12


@pytest.mark.parametrize("said", [-1e-9, 1e-9])
def test_what_is_released_alone_decides_whether_directions_are_given_up(said):
    X, y, index, _ = table()

    class Said(Kept):
        def gaussian(self, name, total):
            return np.full_like(super().gaussian(name, total), said)

    for targets in (y, X[:, 0], np.zeros_like(y)):
        releases = Said()
        assert released_doubt(persons_of(X, targets, index, J), releases, WHITE) == (said > 0)
        assert len(releases.sums) == 1


@pytest.mark.parametrize("n_iter", [1, 2])
def test_public_directions_that_persons_are_across_to_are_given_up(n_iter):
    """Their first round then releases what directions are found from where none are public."""
    n_persons, d = 1500, 8
    X, y, index, basis = table(np.full(n_persons, 8), d)
    persons = persons_of(X, y, index, n_persons, weights=np.zeros(d), **white(d))
    across = np.linalg.svd(basis, full_matrices=True)[0][:, K : 2 * K]
    solver = PersonalSolver(K, n_iter=n_iter, public=True)
    found = fitted(solver, persons, 10.0, across)
    assert missed(found.directions, basis) < 0.1 and len(found.spectrum) == d
    kept = fitted(solver, persons, 10.0, basis)
    assert missed(kept.directions, basis) < 0.1 and len(kept.spectrum) == 0


def test_moments_of_too_many_unknowns_are_refused():
    d = 2501
    X, y, index = np.ones((2, d)), np.ones(2), np.zeros(2, int)
    persons = persons_of(X, y, index, 1, whitening=np.eye(d))
    with pytest.raises(ValueError, match="method='gradient'"):
        moments_round(persons, Kept(), np.eye(d)[:, :2])


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("n_iter", [0, 2])
def test_shares_add_up(public, n_iter):
    parts = PersonalSolver(None, n_iter=n_iter, rate=0.3, public=public).parts()
    assert math.fsum(part.share for part in parts.values()) == pytest.approx(1)
    assert (ROUNDS in parts) == (n_iter > 0) and (DIRECTIONS in parts) == (not public)
    assert (CHECK in parts) == (public and n_iter > 0)
    if n_iter:
        assert (parts[ROUNDS].count, parts[ROUNDS].rate) == (n_iter, 0.3)


def test_the_number_of_rounds_follows_from_public_sizes():
    assert [default_rounds(reach, 20, public=True) for reach in (10, 100, 5000)] == [0, 1, 2]
    assert [default_rounds(reach, 20, public=False) for reach in (10, 100, 5000)] == [0, 0, 1]
    assert default_rounds(math.inf, 20, public=False) == 10


def test_whitening_of_slopes_is_that_of_their_block(rng):
    A = rng.normal(size=(50, 4))
    moment = A.T @ A
    values, vectors = np.linalg.eigh(moment)
    found = slope_whitening(vectors / np.sqrt(values), 3)
    np.testing.assert_allclose(found.T @ moment[:3, :3] @ found, np.eye(3), atol=1e-10)


def test_a_prior_is_a_plain_object_without_rows():
    prior = PRIOR_OF_HEADS
    assert prior.names[0] == "shared" and len(set(prior.names)) == len(prior.names)
    wide = replace(prior, candidates=prior.candidates[:1], log_weights=np.zeros(1))
    assert not wide.heads(persons_of(*table()[:3], J)).coef.any()
