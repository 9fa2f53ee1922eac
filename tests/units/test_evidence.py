"""Weights of few rows without what chance has done to them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from dpsubspace._core.plans import regression
from dpsubspace._core.solvers.evidence import WhiteWeights, posterior, without_chance
from dpsubspace._core.solvers.regression import Path
from dpsubspace.tables import Range, tabular_pipeline

RNG = np.random.default_rng(0)


def white(rows, targets, noise=0.0):
    """Weights of least squares of some rows."""
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    shared = vectors.T @ (rows.T @ targets / len(rows))
    return WhiteWeights.of_moment(values, vectors, shared, np.full(targets.shape[1], noise))


def test_posterior_is_that_of_a_joint_normal_distribution():
    unmixing, found = RNG.normal(size=(4, 6)), RNG.normal(size=4)
    noise, prior = RNG.uniform(0.1, 1, 4), RNG.uniform(0.1, 1, 6)
    gain = (prior[:, None] * unmixing.T) @ np.linalg.inv(
        (unmixing * prior) @ unmixing.T + np.diag(noise)
    )
    mean, left = posterior(unmixing, found, noise, prior)
    np.testing.assert_allclose(mean, gain @ found)
    np.testing.assert_allclose(left, np.diag(np.eye(6) - gain @ unmixing))


def test_variances_are_those_that_make_values_likely():
    """Of two groups, by the marginal likelihood of the targets on a grid about what was found."""
    n, sizes = 60, (10, 25)
    groups = np.repeat([0, 1], sizes)
    rows = RNG.normal(size=(n, sum(sizes)))
    truth = RNG.normal(size=(sum(sizes), 1)) * np.where(groups, 0.05, 0.25)[:, None]
    targets = rows @ truth + 0.5 * RNG.normal(size=(n, 1))
    targets /= np.sqrt(np.mean(targets**2))
    some = white(rows, targets)
    found = some.mixing @ without_chance(some, some.found, groups, n)

    def ridge(variances, left):
        covariance = (rows * variances) @ rows.T + left * np.eye(n)
        solved = np.linalg.solve(covariance, targets)
        likelihood = -np.linalg.slogdet(covariance)[1] - float((targets * solved).sum())
        return likelihood, variances[:, None] * (rows.T @ solved)

    grid = np.geomspace(1e-5, 1, 26)
    tried = [ridge(np.array([a, b])[groups], c) for a in grid for b in grid for c in grid[10:]]
    best = max(tried, key=lambda one: one[0])[1]
    assert np.linalg.norm(found - best) < 0.1 * np.linalg.norm(best)
    least = np.linalg.lstsq(rows, targets, rcond=None)[0]
    assert np.linalg.norm(found - truth) < 0.8 * np.linalg.norm(least - truth)


def test_what_noise_hides_stays_what_it_was():
    rows, targets = RNG.normal(size=(500, 8)), RNG.normal(size=(500, 2))
    some = white(rows, targets / np.sqrt(np.mean(targets**2, axis=0)), noise=10.0)
    shrunk = 0.1 * some.found
    kept = without_chance(some, shrunk, np.zeros(8, dtype=int), 500)
    np.testing.assert_array_equal(kept, shrunk)


def test_a_group_that_tells_nothing_is_left_out():
    n, groups = 200, np.repeat([0, 1], [2, 50])
    rows = RNG.normal(size=(n, 52))
    targets = rows[:, :1] - rows[:, 1:2] + 0.1 * RNG.normal(size=(n, 1))
    some = white(rows, targets / np.sqrt(np.mean(targets**2)))
    found = some.mixing @ without_chance(some, some.found, groups, n)
    assert np.abs(found[2:]).max() < 0.02 < 0.6 < np.abs(found[:2]).min()


def test_what_a_path_has_explained():
    """Twice the fall of a quadratic loss, on average over the noise of gradients."""
    moment, shared = np.diag([1.0, 0.7, 0.4]), np.array([[0.5], [-0.4], [0.3]])
    noise, rate, explained = 0.02, 0.4, []
    for _ in range(400):
        points, gradients = [np.zeros((3, 1))], []
        for _ in range(12):
            gradients.append(moment @ points[-1] - shared + noise * RNG.normal(size=(3, 1)))
            points.append(points[-1] - rate * gradients[-1])
        last = points[-2]
        fall = float((2 * last * shared).sum() - (last * (moment @ last)).sum())
        path = Path(np.stack(points[:-1]), np.stack(gradients), rate, noise)
        explained.append(path.explained()[0] - fall)
    # 9 standard errors: a chance far below 1e-9
    assert abs(np.mean(explained)) < 9 * np.std(explained) / np.sqrt(len(explained))
    assert np.std(explained) < 0.1


def few_rows(n, columns):
    """A straight line of two columns, and others that tell nothing."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (n + 3000, columns))
    y = 3 * X[:, 0] + 2 * X[:, 1] + rng.normal(0, 4, len(X))
    X = pd.DataFrame(X, columns=[f"c{i}" for i in range(columns)])
    return (X[:n], y[:n]), (X[n:], y[n:])


@pytest.mark.parametrize("epsilon", [100.0, 1e3, 1e5, np.inf])
def test_much_budget_does_not_fit_rows_by_chance(epsilon):
    """R2 of 150 rows; it was .69 to .74, and is .82 at epsilon 3. Its noise is below .02."""
    train, test = few_rows(150, 5)
    schema = {name: Range(0, 10) for name in train[0]}
    model = tabular_pipeline("regression", schema, epsilon=epsilon, target=Range(-10, 60))
    assert r2_score(test[1], model.fit(*train).predict(test[0])) > 0.78


def test_columns_that_public_rows_mix_have_no_groups(monkeypatch):
    """Groups are of columns as they are: taken for mixtures of these, they cost accuracy."""
    train, test = few_rows(150, 5)
    schema = {name: Range(0, 10) for name in train[0]}
    seen = []
    exact = regression.exact_solution

    def noted(data, releases):
        seen.append(data.groups)
        return exact(data, releases)

    monkeypatch.setattr(regression, "exact_solution", noted)
    model = tabular_pipeline("regression", schema, epsilon=np.inf, target=Range(-10, 60))
    model.fit(*train)
    model.fit(*train, X_public=test[0][:500])
    assert len(seen[0]) == len(model[0].encoding_.names) + 1 and seen[1] is None
