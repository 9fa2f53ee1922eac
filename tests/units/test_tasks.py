"""Subspaces of public tasks against brute force and known spans, and what is refused."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import thinned
from scipy.linalg import subspace_angles
from sklearn.covariance import oas
from sklearn.decomposition import PCA

import dpsubspace
from dpsubspace._core.public.gradient_spaces import WhitenedTasks, whitened_tasks
from dpsubspace._core.public.tasks import (
    METHODS,
    _Matrix,
    _pairs,
    explained_elsewhere,
    task_subspace,
)
from dpsubspace.public_data import subspace_distance

LABELLED = [name for name, method in METHODS.items() if not method.of_features]
every = pytest.mark.parametrize("subspace", METHODS)
labelled = pytest.mark.parametrize("subspace", LABELLED)


def tasks(seed=0, *, n_tasks=30, m=200, d=15, k=3, noise=0.5, n_outputs=1, scales=None, mix=None):
    """Sets, targets and the span (d, k) of the coefficients; intercepts and means differ."""
    rng = np.random.default_rng(seed)
    scales = np.ones(d) if scales is None else scales
    mix = np.eye(d) if mix is None else mix
    span = np.linalg.qr(rng.normal(size=(d, k)))[0] / scales[:, None]
    sets, targets = [], []
    for _ in range(n_tasks):
        weights = rng.normal(size=(k, n_outputs))
        weights /= np.linalg.norm(weights, axis=0)
        rows = (rng.normal(size=(m, d)) @ mix + rng.normal(size=d)) * scales
        signal = rows @ span @ weights + 5 * rng.normal(size=n_outputs)
        sets.append(rows)
        targets.append(signal + noise * rng.normal(size=signal.shape))
    return sets, np.concatenate(targets), span


def error(found, span, scales=1.0):
    """Sine of the largest angle, in columns of one unit."""
    directions = found.directions * np.reshape(scales, (-1, 1))
    return subspace_distance(directions.T, (span * np.reshape(scales, (-1, 1))).T)


# The pair statistic ---------------------------------------------------------------------------


def of_rows(rows, targets, sizes):
    """White tasks of rows and targets about means of tasks, as they are."""
    return WhitenedTasks(
        rows=rows,
        targets=targets,
        sizes=np.array(sizes),
        unmixing=np.eye(rows.shape[1]),
        variances=np.ones(rows.shape[1]),
        shrinkage=0.0,
        scale=np.ones(rows.shape[1]),
        degrees=len(rows) - len(sizes),
    )


def all_fours(rows, targets):
    """Mean over four different rows of the products of two slopes."""

    def slope(i, j):
        return (rows[i] - rows[j]) * (targets[i] - targets[j]) / 2

    fours = itertools.permutations(range(len(rows)), 4)
    return np.mean([np.outer(slope(i, j), slope(p, q)) for i, j, p, q in fours], axis=0)


def test_pair_statistic_is_the_mean_over_all_fours_of_rows():
    rng = np.random.default_rng(0)
    sizes, rows, targets, expected = [4, 5, 7], [], [], 0
    for m in sizes:
        x, y = rng.exponential(size=(m, 3)), rng.exponential(size=(m, 2))
        expected = expected + sum(m * all_fours(x, y[:, c]) for c in (0, 1))
        rows.append(x - x.mean(axis=0))
        targets.append(y - y.mean(axis=0))
    found = _pairs(of_rows(np.concatenate(rows), np.concatenate(targets), sizes))
    np.testing.assert_allclose(found.dense(), expected / (2 * sum(sizes)), atol=1e-12)


def test_pair_statistic_of_skewed_rows_has_the_exact_mean_and_simpler_forms_have_not():
    """Targets have noise that depends on rows; covariances are 1 and 0."""
    rng, m, repeats = np.random.default_rng(1), 6, 100_000
    x = rng.exponential(size=(repeats, m, 2))
    y = x[..., 0] + rng.normal(size=(repeats, m)) * x[..., 1]
    covariance = np.array([1.0, 0.0])
    a, b = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    sizes = np.full(repeats, m)
    found = _pairs(of_rows(a.reshape(-1, 2), b.reshape(-1, 1), sizes)).dense()
    sums, squares = np.einsum("tid,ti->td", a, b), np.einsum("tid,ti,tie->de", a, b**2, a)
    known = (sums.T @ sums - squares) / (repeats * m * (m - 1))
    plain = sums.T @ sums / (repeats * (m - 1) ** 2)
    expected = np.outer(covariance, covariance)
    assert abs(found - expected).max() < 0.1
    assert abs(known - expected).max() > 0.5 and abs(plain - expected).max() > 2


def test_matrix_that_is_not_formed_has_the_same_eigenvalue_and_trace():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 310))
    matrix = _Matrix(rng.normal(size=(5, 310)), rows, rng.normal(size=400))
    values = np.linalg.eigvalsh(matrix.dense())
    assert matrix.largest() == pytest.approx(values[-1], rel=1e-3)
    assert matrix.trace() == pytest.approx(values.sum())


# White coordinates ----------------------------------------------------------------------------


def test_rows_are_white_and_targets_of_variance_one_within_tasks():
    sets, targets, _ = tasks(n_outputs=2, scales=10.0 ** np.linspace(-6, 6, 15))
    white = whitened_tasks(sets, 1e6 * targets)
    gram = white.rows.T @ white.rows / white.degrees
    assert white.degrees == 30 * 199
    # But for the shrinkage, which is all of it where columns are not correlated.
    expected = white.variances / ((1 - white.shrinkage) * white.variances + white.shrinkage)
    np.testing.assert_allclose(gram, np.diag(expected), atol=1e-9)
    for task in white.slices:
        np.testing.assert_allclose(white.rows[task].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(white.targets[task].std(axis=0, ddof=1), 1)
    np.testing.assert_allclose(
        (sets[0] - sets[0].mean(axis=0)) @ white.unmixing, white.rows[:200], atol=1e-9
    )


def test_shrinkage_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 12)) @ rng.normal(size=(12, 12))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    white = whitened_tasks((rows,), np.zeros((80, 1)))
    # It does not count the mean that was taken as a row, and divides by all of them.
    assert white.shrinkage == pytest.approx(oas(rows, assume_centered=True)[1], rel=0.03)


def test_wide_rows_have_the_same_coordinates_by_either_decomposition():
    sets, targets, _ = tasks(n_tasks=2, m=20, d=60)
    wide = whitened_tasks(sets, targets)
    assert wide.rows.shape == (40, 38) and wide.unmixing.shape == (60, 38)
    double = [np.concatenate([rows, rows]) for rows in sets]
    both = whitened_tasks(double, np.zeros((80, 1)))
    assert both.rows.shape == (80, 38)
    # Other degrees of freedom, in deviations and in variances, cancel out.
    np.testing.assert_allclose(wide.variances, both.variances)
    np.testing.assert_allclose(subspace_angles(wide.unmixing, both.unmixing), 0, atol=1e-9)


def test_constant_columns_weigh_nothing_and_change_nothing():
    sets, targets, _ = tasks(n_tasks=5)
    plain = task_subspace(sets, targets, n_components=2)
    more = []
    for i, rows in enumerate(sets):  # one is constant in each task, and one in all
        columns = np.column_stack([np.full(len(rows), 0.1), np.full(len(rows), 0.1 * i)])
        more.append(np.hstack([columns, rows]))
    found = task_subspace(more, targets, n_components=2)
    assert (found.directions[:2] == 0).all() and (found.components[:, :2] == 0).all()
    np.testing.assert_allclose(found.components[:, 2:], plain.components, atol=1e-9)


# Models ---------------------------------------------------------------------------------------


@labelled
@pytest.mark.parametrize("units", ["equal", "wild"])
def test_span_is_found_whatever_units_and_correlations(subspace, units):
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-8, 8, 15) if units == "wild" else np.ones(15)
    mix = np.eye(15) + 0.5 * rng.normal(size=(15, 15)) / np.sqrt(15)
    sets, targets, span = tasks(m=800, scales=scales, mix=mix)
    found = task_subspace(sets, targets, subspace=subspace, n_components=3)
    # 6.5 deviations of the logarithm above its mean, over 40 draws; of random spans, 0.91 is least.
    most = {"moments": 0.7, "pairs": 0.26}.get(subspace, 0.12)
    assert error(found, span, scales) < most
    random = np.random.default_rng(1).normal(size=(15, 3))
    assert subspace_distance(random.T, span.T * scales) > 0.8


@labelled
def test_error_falls_with_the_number_of_rows(subspace):
    errors = []
    for m in (100, 1600):
        found = [
            error(task_subspace(sets, targets, subspace=subspace, n_components=3), span)
            for sets, targets, span in (tasks(seed, m=m) for seed in range(3))
        ]
        errors.append(np.mean(found))
    assert errors[1] < errors[0] / 2.5  # 4 is what the square root says


def test_without_noise_alternating_is_exact():
    sets, targets, span = tasks(m=100, noise=0.0)
    found = task_subspace(sets, targets, subspace="alternating", n_components=3)
    assert error(found, span) < 0.01


@every
@pytest.mark.parametrize("n_components", [1, 3, "auto"])
def test_directions_are_white_and_components_orthonormal(subspace, n_components):
    sets, targets, _ = tasks(mix=np.linspace(0.2, 2, 15) * np.eye(15))
    found = task_subspace(sets, targets, subspace=subspace, n_components=n_components)
    rows = np.concatenate(sets)
    k = found.directions.shape[1]
    scores = (rows - found.mean) @ found.directions
    np.testing.assert_allclose(scores.T @ scores / len(rows), np.eye(k), atol=0.02)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0))
    for j in range(1, k + 1):
        angles = subspace_angles(found.components[:j].T, found.directions[:, :j])
        assert angles.max() < 1e-6
    assert np.all(np.diff(found.spectrum) <= 0)


@every
def test_fewer_components_are_the_first_of_more(subspace):
    if subspace == "alternating":
        pytest.skip("it looks for all of them at once")
    sets, targets, _ = tasks()
    few = task_subspace(sets, targets, subspace=subspace, n_components=2)
    more = task_subspace(sets, targets, subspace=subspace, n_components=3)
    np.testing.assert_allclose(few.components, more.components[:2], atol=1e-6)


@every
def test_nothing_depends_on_chance_or_on_the_numbers_beside(subspace):
    """Intercepts, units of targets and one mean of all rows leave the span as it is."""
    sets, targets, _ = tasks()
    each = np.repeat(np.arange(30), 200)[:, None]
    first = task_subspace(sets, targets, subspace=subspace, n_components=3)
    again = task_subspace(sets, targets, subspace=subspace, n_components=3)
    assert (first.components == again.components).all()
    moved = task_subspace(
        [rows + 100 for rows in sets],
        1e3 ** (each % 4) * (targets - each),
        subspace=subspace,
        n_components=3,
    )
    np.testing.assert_allclose(moved.components, first.components, atol=1e-7)
    np.testing.assert_allclose(moved.mean, first.mean + 100)


def test_spectrum_is_the_share_of_variance_that_is_explained():
    sets, targets, _ = tasks(n_tasks=100, k=1, noise=1.0)  # half of the variance
    for subspace, tolerance in (("pairs", 0.05), ("alternating", 0.05)):
        found = task_subspace(sets, targets, subspace=subspace, n_components=1)
        assert found.spectrum[0] == pytest.approx(0.5, abs=tolerance), subspace


def test_alternating_does_not_follow_the_noise_of_small_tasks():
    """With more directions than there are, the one that matters is still among them."""
    for seed in range(3):
        sets, targets, span = tasks(seed, n_tasks=30, m=12, k=1, noise=1.0)
        one, four = (
            task_subspace(sets, targets, subspace="alternating", n_components=k) for k in (1, 4)
        )
        assert error(four, span) < error(one, span) + 0.15  # they differ by 0.02


def test_outputs_are_tasks_of_their_own():
    sets, targets, span = tasks(n_tasks=8, m=1000, n_outputs=3, k=4)
    found = task_subspace(sets, targets, n_components=4)
    assert error(found, span) < 0.3
    apart = np.concatenate([targets.reshape(8, -1, 3)[:, :, c] for c in range(3)]).reshape(-1, 1)
    same = task_subspace(sets * 3, apart, n_components=4)
    np.testing.assert_allclose(same.spectrum[:4], found.spectrum[:4], rtol=0.05)


def test_small_tasks_share_a_mean():
    """Tasks of two or three rows are of use where means and intercepts are the same."""
    rng = np.random.default_rng(0)
    span, n_tasks = np.eye(6)[:, :2], 3000
    sizes, angles = rng.integers(2, 4, n_tasks), rng.uniform(0, 2 * np.pi, n_tasks)
    heads = math.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    sets = [1 + rng.normal(size=(size, 6)) for size in sizes]
    signal = [7 + rows @ span @ head[:, None] for rows, head in zip(sets, heads, strict=True)]
    found = task_subspace(sets, np.concatenate(signal), n_components=2)
    # It is 0.12, with a deviation of 0.03; of two directions by chance 1 pair in 20,000 is as near.
    assert error(found, span) < 0.35


def test_rows_that_are_few_and_noisy_weigh_little():
    sets, targets, span = tasks()
    clean = error(task_subspace(sets, targets, n_components=3), span)
    rng = np.random.default_rng(0)
    more, extra = [rng.normal(size=(4, 15)) for _ in range(30)], rng.normal(size=(120, 1))
    found = task_subspace(sets + more, np.concatenate([targets, extra]), n_components=3)
    assert error(found, span) < 2 * clean  # the ratio is about 1, with a deviation of 0.1


def test_an_outlier_spoils_no_more_than_its_task():
    sets, targets, span = tasks()
    targets[7] = 1e9
    for subspace in LABELLED:
        found = task_subspace(sets, targets, subspace=subspace, n_components=3)
        plain = task_subspace(sets[1:], targets[200:], subspace=subspace, n_components=3)
        assert error(found, span) < 2 * error(plain, span) + 0.05, subspace


def test_features_are_principal_components_of_scaled_columns():
    sets, _, _ = tasks(mix=np.linspace(1, 2, 15) + np.eye(15))
    rows = np.concatenate(sets)
    found = task_subspace(sets, None, subspace="features", n_components=2)
    deviations = rows.std(axis=0)
    expected = PCA(2).fit(rows / deviations)
    np.testing.assert_allclose(
        subspace_angles(deviations[:, None] * found.directions, expected.components_.T),
        0,
        atol=1e-3,
    )
    np.testing.assert_allclose(found.spectrum[:2], expected.explained_variance_, rtol=1e-3)


# The number of directions ---------------------------------------------------------------------


@labelled
@pytest.mark.parametrize("k", thinned([2, 1, 5]))
def test_auto_finds_the_number_of_directions(subspace, k):
    found = [
        task_subspace(*tasks(seed, m=400, k=k)[:2], subspace=subspace).components.shape[0]
        for seed in range(15)
    ]
    # Another number comes in 11 of 400 draws where k is 1: in 9 of 15 once in 1e10.
    assert found.count(k) >= 7


def test_auto_keeps_one_direction_of_targets_that_are_noise():
    found = []
    for seed in range(10):
        sets, targets, _ = tasks(seed)
        noise = np.random.default_rng(seed).normal(size=targets.shape)
        found.append(len(task_subspace(sets, noise).components))
    assert sorted(found)[-2] == 1  # of ten, one may have another


def test_auto_keeps_no_more_than_there_are_tasks():
    sets, targets, _ = tasks(n_tasks=2, m=2000, k=5)
    assert len(task_subspace(sets, targets).components) == 2


def test_auto_of_features_leaves_out_what_is_chance():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 40))
    rows = 2 * factors + rng.normal(size=(500, 40))
    assert len(task_subspace((rows,), None, subspace="features").components) == 2
    alone = task_subspace((rng.normal(size=(500, 40)),), None, subspace="features")
    assert len(alone.components) <= 2


# Bad input ------------------------------------------------------------------------------------


def test_wide_and_collinear_and_huge_columns_are_taken():
    for subspace in METHODS:
        sets, targets, _ = tasks(n_tasks=3, m=10, d=80)
        found = task_subspace(sets, targets, subspace=subspace)
        assert found.directions.shape[0] == 80 and np.isfinite(found.directions).all()
        # So many tasks that the sine is 0.16 or less in the mean, and spreads by 0.03.
        sets, targets, span = tasks(n_tasks=100, m=100)
        doubled = [1e150 * np.hstack([rows, rows, rows[:, :1] + rows[:, 1:2]]) for rows in sets]
        found = task_subspace(doubled, 1e150 * targets, subspace=subspace, n_components=3)
        assert np.isfinite(found.directions).all() and np.isfinite(found.components).all()
        both = found.directions[:15] + found.directions[15:30]
        both[:2] += found.directions[30]
        if subspace != "features":
            assert subspace_distance(both.T, span.T) < 0.5


def wild(seed):
    """Small tasks of rows and targets that are alike, constant, far away or of wild units."""
    rng = np.random.default_rng(seed)
    sets, targets, d, c = [], [], 1 + seed % 8, rng.integers(1, 3)
    for _ in range(rng.integers(1, 6)):
        rows = rng.normal(size=(rng.integers(2, 12), d))
        rows = (
            rows,
            np.sign(rows),
            np.repeat(rows[:1], len(rows), axis=0),
            rows * 10.0 ** rng.integers(-150, 150, size=d),
            np.repeat(rows[:, :1], d, axis=1),
            rows + 1e12,
        )[rng.integers(6)]
        y = rng.normal(size=(len(rows), c))
        y = (y, 0 * y, y * 10.0 ** rng.integers(-150, 150), y + 1e9)[rng.integers(4)]
        y[0] += 1e100 * (rng.random() < 0.2)
        sets.append(rows)
        targets.append(y)
    return sets, np.concatenate(targets)


@every
def test_whatever_is_given_has_finite_directions_or_is_refused(subspace):
    refused = 0
    for seed in range(25):
        sets, targets = wild(seed)
        for k in ("auto", 2):
            try:
                found = task_subspace(sets, targets, subspace=subspace, n_components=k)
            except ValueError as error:
                assert str(error).startswith(("`n_components`", "`X_public`", "`y_public`"))
                refused += 1
                continue
            assert np.isfinite(found.directions).all() and np.isfinite(found.spectrum).all()
            gram = found.components @ found.components.T
            np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)
    # Four have one column, and no two directions. Of the others one in ten is refused with "auto",
    # of which all are once in 1e20.
    assert 4 <= refused < 50


def test_tasks_may_be_far_from_each_other():
    sets, targets, span = tasks()
    near = task_subspace(sets, targets, n_components=3)
    sets = [rows + 1e9 * i for i, rows in enumerate(sets)]
    found = task_subspace(sets, targets, n_components=3)
    assert error(found, span) == pytest.approx(error(near, span), rel=1e-3)
    scores = (np.concatenate(sets) - found.mean) @ found.directions
    np.testing.assert_allclose(scores.T @ scores / len(scores), np.eye(3), atol=0.02)


def test_identical_rows_and_constant_targets_of_some_tasks_are_taken():
    sets, targets, _ = tasks(n_tasks=4, m=50)
    sets[0][:] = sets[0][0]
    targets[50:100] = 3.0
    for subspace in METHODS:
        found = task_subspace(sets, targets, subspace=subspace)
        assert np.isfinite(found.directions).all()
        assert subspace == "features" or len(found.components) <= 3


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"subspace": "pca"}, r"`subspace` must be one of \['pairs'"),
        ({}, {"n_components": 0}, "`n_components` must be an integer of at least 1, got 0"),
        ({}, {"n_components": "all"}, "`n_components` must be an int or 'auto', got 'all'"),
        ({}, {"n_components": 16}, "`n_components`=16 is above 15, the rank of `X_public`"),
        (
            {},
            {"n_components": 16, "subspace": "features"},
            "`n_components`=16 is above 15, the rank of `X_public` about the mean:",
        ),
        ({}, {"n_components": 7}, "`n_components`=7 is above 6, the number of public tasks"),
        ({"targets": None}, {}, r"`y_public` is None.*pass y_public=\(y1, y2, ...\)"),
        ({"targets": np.ones((120, 1))}, {}, "`y_public` is constant in each public task"),
        ({"rows": 1}, {}, r"`X_public\[2\]` has 1 row, and a task needs at least 2"),
        ({"constant": True}, {}, "`X_public` has only columns that are constant within each task"),
        (
            {"constant": True},
            {"subspace": "features"},
            "`X_public` has only columns that are constant, so",
        ),
    ],
)
def test_what_is_refused_is_named(change, options, message):
    sets, targets, _ = tasks(n_tasks=6, m=20)
    if "rows" in change:
        sets[2] = sets[2][: change["rows"]]
        targets = np.delete(targets, slice(41, 60), axis=0)
    if "constant" in change:
        sets = [np.ones_like(rows) for rows in sets]
    with pytest.raises(ValueError, match=message):
        task_subspace(sets, change.get("targets", targets), **options)


def test_one_public_row_has_no_features():
    with pytest.raises(ValueError, match="`X_public` has 1 row"):
        task_subspace((np.ones((1, 3)),), None, subspace="features")


def test_constant_targets_have_no_weight():
    sets, targets, _ = tasks(n_tasks=3, m=20, n_outputs=2)
    targets[:20, 1] = 0.1
    white = whitened_tasks(sets, targets)
    np.testing.assert_allclose(white.weights, [[0.2, 0], [0.2, 0.2], [0.2, 0.2]])
    assert not replace(white, targets=0 * white.targets).weights.any()


# Angles ---------------------------------------------------------------------------------------


def turned_by(angles, d=9, seed=0):
    """Two sets of components (k, d) with known principal angles, mixed and of any length."""
    rng = np.random.default_rng(seed)
    k = len(angles)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    first, apart = basis[:, :k], basis[:, k : 2 * k]
    second = first * np.cos(angles) + apart * np.sin(angles)
    return (rng.normal(size=(k, k)) @ part.T for part in (first, second))


@pytest.mark.parametrize("small", [1e-12, 1e-8, 1e-3, 0.5, np.pi / 2])
def test_angles_are_exact_however_small(small):
    A, B = turned_by([small, small / 2, 0.0])
    assert subspace_distance(A, B) == pytest.approx(np.sin(small), rel=1e-6, abs=1e-13)
    assert subspace_distance(B, A) == pytest.approx(subspace_distance(A, B), abs=1e-13)


def test_distance_is_the_norm_of_the_difference_of_projections():
    A, B = np.random.default_rng(0).normal(size=(2, 3, 8))
    first, second = (np.linalg.pinv(part) @ part for part in (A, B))
    assert subspace_distance(A, B) == pytest.approx(np.linalg.norm(first - second, 2))


def test_a_span_within_another_is_at_distance_zero():
    A = np.random.default_rng(0).normal(size=(4, 8))
    assert subspace_distance(A, A[:2]) < 1e-14 and subspace_distance(A[:2], A) < 1e-14
    assert subspace_distance(np.vstack([A, A]), A) < 1e-14  # a span is a span


def test_lengths_of_components_do_not_matter():
    A, B = turned_by([0.3, 0.1])
    lengths = np.array([[1e-200], [1e200]])
    assert subspace_distance(A * lengths, B) == pytest.approx(np.sin(0.3))


def test_angles_are_those_of_scipy_and_their_old_name_says_so():
    A, B = (np.array([*part]) for part in turned_by([0.3, 0.1]))
    with pytest.warns(FutureWarning, match=r"scipy\.linalg\.subspace_angles"):
        angles = dpsubspace.principal_angles(A, B)
    np.testing.assert_allclose(angles, subspace_angles(A.T, B.T))


def test_angles_of_fitted_estimators():
    rng = np.random.default_rng(0)
    models = [PCA(2).fit(rng.normal(size=(50, 4))) for _ in range(2)]
    expected = subspace_distance(*(model.components_ for model in models))
    assert subspace_distance(*models) == expected


def test_angles_refuse_what_spans_nothing():
    with pytest.raises(ValueError, match="`A` has 4 features and `B` has 3"):
        subspace_distance(np.eye(4), np.eye(3))
    with pytest.raises(ValueError, match="`B` has only components of length zero"):
        subspace_distance(np.eye(4), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="Expected 2D array"):
        subspace_distance(np.ones(4), np.eye(4))
    with pytest.raises(ValueError, match="contains NaN"):
        subspace_distance(np.full((1, 2), np.nan), np.eye(2))


def test_tasks_that_were_left_out_tell_what_directions_explain_and_miss():
    """Weights of length 1 and noise of variance 1 / 4: 0.8 of the targets are explained."""
    sets, targets, _ = tasks(m=400)
    for subspace in LABELLED[:2]:
        found = explained_elsewhere(sets, targets, subspace, 5)
        assert found is not None and found.rank == 15 and len(found.inside) == 5
        assert found.inside[2] == pytest.approx(0.8, abs=0.1) and found.outside[2] < 0.05
        assert found.outside[0] > 0.2 > found.outside[1] - 0.2


def test_one_task_tells_nothing_of_others():
    sets, targets, _ = tasks(n_tasks=1)
    assert explained_elsewhere(sets, targets, "pairs", 5) is None


def test_other_directions_complete_the_span():
    sets, targets, _ = tasks()
    found = task_subspace(sets, targets, n_components=3, whole=True)
    assert found.others is not None and found.others.shape == (15, 12)
    alone = task_subspace(sets, targets, n_components=3)
    np.testing.assert_allclose(found.directions, alone.directions, rtol=1e-8, atol=1e-10)
    rows = np.concatenate(sets) - found.mean
    scores = rows @ np.hstack([found.directions, found.others])
    np.testing.assert_allclose(scores.T @ scores / len(rows), np.eye(15), atol=0.02)
