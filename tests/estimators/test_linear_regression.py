"""Private linear regression of tables, and in the directions of public tasks."""

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
from helpers import RARE, RELATIONS, assert_within_bounds, groups_of, move, multipliers, releases
from scipy import stats
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from dpsubspace import DPLinearRegression, PrivacyWarning
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.linear_model import PublicSubspaceLinearRegression

BOUNDS = {"bounds": (-4, 4), "target_bounds": (-12, 12)}


def table(n=2000, d=4, c=None, seed=0, noise=1.0):
    """Normal rows, and targets that are linear in them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    weights = np.linspace(2, -1, d if c is None else d * c).reshape((d,) if c is None else (d, c))
    y = 1 + X @ weights
    return X, y + noise * rng.normal(size=y.shape)


def tasks(n_tasks=12, m=100, d=30, k=2, seed=0, noise=0.5):
    """Tasks whose coefficients lie in k directions; the last one is to be private."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, k)))[0]
    sizes = [*[m] * (n_tasks - 1), 3000]
    X = [rng.normal(size=(size, d)) for size in sizes]
    y = [x @ directions @ rng.normal(size=k) + noise * rng.normal(size=len(x)) for x in X]
    return X, y, directions


# Without privacy ------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("c", [None, 3])
@pytest.mark.parametrize("public", [False, True])
def test_without_privacy_it_is_least_squares(c, fit_intercept, public):
    X, y = table(c=c)
    X = 5 + 3 * X
    options = {"X_public": (X[:50] + 1,)} if public else {}
    model = DPLinearRegression(epsilon=np.inf, fit_intercept=fit_intercept).fit(X, y, **options)
    exact = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert np.allclose(model.coef_, exact.coef_, rtol=1e-8, atol=1e-8)
    assert np.allclose(model.intercept_, exact.intercept_, rtol=1e-8, atol=1e-8)
    assert not np.any(model.coef_std_)


def test_without_privacy_collinear_columns_predict_like_least_squares():
    X, y = table(n=200)
    X = np.column_stack([X, X[:, 0] + X[:, 1], np.ones(200)])
    model = DPLinearRegression(epsilon=np.inf).fit(X, y)
    assert np.allclose(model.predict(X), LinearRegression().fit(X, y).predict(X), atol=1e-6)


def test_without_privacy_all_directions_are_those_of_least_squares():
    X, y, _ = tasks(d=5, k=5)
    model = PublicSubspaceLinearRegression(epsilon=np.inf, n_components=5)
    model.fit(X[-1], y[-1], X_public=tuple(X[:-1]), y_public=tuple(y[:-1]))
    assert np.allclose(model.coef_, LinearRegression().fit(X[-1], y[-1]).coef_, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_privacy_constants_are_no_trouble(fit_intercept):
    X, y = table(n=100)
    X[:, 1] = 0.0
    model = DPLinearRegression(epsilon=np.inf, fit_intercept=fit_intercept)
    exact = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert np.allclose(model.fit(X, y).predict(X), exact.predict(X), rtol=1e-8, atol=1e-8)
    assert np.allclose(model.fit(X, np.zeros(100)).predict(X), 0.0)


# What it does to tables -----------------------------------------------------------------------


def test_units_of_columns_and_targets_change_nothing():
    X, y = table()
    units, origin = np.array([1e-6, 1.0, 1e3, 1e7]), np.array([0.0, -5.0, 2e4, 1e9])
    low, high = origin - 4 * units, origin + 4 * units
    model = DPLinearRegression(**BOUNDS, random_state=0).fit(X, y)
    other = DPLinearRegression(
        bounds=(low, high), target_bounds=(-12e3 + 7, 12e3 + 7), random_state=0
    )
    other.fit(origin + units * X, 1e3 * y + 7)
    atol = 1e-5 * np.abs(1e3 * model.coef_).max()  # of rounding, which one coefficient may be near
    np.testing.assert_allclose(other.coef_ * units, 1e3 * model.coef_, atol=atol, rtol=0.0)
    predicted = other.predict(origin + units * X)
    assert np.allclose(predicted, 1e3 * model.predict(X) + 7, rtol=1e-5, atol=0.1)


@pytest.mark.parametrize("solver", ["descent", "moments"])
@pytest.mark.parametrize("c", [None, 3])
def test_many_rows_come_near_to_least_squares(solver, c):
    X, y = table(n=40_000, c=c)
    model = DPLinearRegression(**BOUNDS, solver=solver, random_state=0).fit(X, y)
    exact = LinearRegression().fit(X, y)
    assert np.abs(model.coef_ - exact.coef_).max() < 0.06
    assert np.abs(model.intercept_ - exact.intercept_).max() < 0.06
    assert model.score(X, y) > exact.score(X, y) - 0.002


def test_raw_columns_in_any_units_just_work():
    X, y = table(n=20_000)
    X = np.array([1980.0, 0.0, 3e5, -40.0]) + X * [10, 1e-4, 1e5, 3.0]
    model = DPLinearRegression(random_state=0).fit(X, 2e6 + 1e5 * y)
    assert model.score(X, 2e6 + 1e5 * y) > LinearRegression().fit(X, y).score(X, y) - 0.05
    assert all(found.all() for found in model.bounds_found_.values())


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("bounds", [BOUNDS, {}])
def test_few_rows_end_near_a_constant_and_not_far_from_it(bounds):
    scores = []
    for seed in range(20):
        X, y = table(n=50, d=20, seed=seed, noise=5.0)
        model = DPLinearRegression(epsilon=0.3, random_state=seed, **bounds).fit(X, y)
        X, y = table(n=1000, d=20, seed=100 + seed, noise=5.0)
        scores.append(model.score(X, y))
    assert np.median(scores) > -0.3


def test_outliers_of_targets_and_rows_are_shrunk():
    X, y = table(n=5000)
    wild, far = X.copy(), y.copy()
    wild[:20] *= 1e6
    far[20:40] = -1e9
    model = DPLinearRegression(**BOUNDS, random_state=0).fit(wild, far)
    assert model.score(X, y) > 0.6


def test_entries_far_out_are_cut_in_fit_and_predict():
    X, y = table(n=20_000)
    model = DPLinearRegression(**BOUNDS, random_state=0).fit(X, y)
    low, high = model.bounds_
    # At 4, and of 25 fits of 5000 rows the worst was off by 0.3: four times less is left here.
    assert np.all(low < -3) and np.all(high > 3)
    cut = model.predict(np.clip(1e6 * X, low, high))
    np.testing.assert_allclose(model.predict(1e6 * X), cut, rtol=1e-9, atol=1e-9)
    inside = np.all((low < X) & (high > X), axis=1)
    exact = X[inside] @ model.coef_ + model.intercept_
    assert np.allclose(model.predict(X[inside]), exact)


@pytest.mark.filterwarnings("ignore:`bounds` are about:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("column", [0.0, 7.0])
def test_a_constant_column_has_no_say(column):
    X, y = table(n=5000)
    X = np.column_stack([X, np.full(len(X), column)])
    model = DPLinearRegression(bounds=(-4, 9), target_bounds=(-12, 12), random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


def test_a_constant_target_is_predicted():
    X, _ = table(n=5000)
    model = DPLinearRegression(bounds=(-4, 4), target_bounds=(0, 10), random_state=0)
    with pytest.warns(PrivacyWarning, match="times as wide as needed"):
        model.fit(X, np.full(len(X), 3.0))
    assert np.abs(model.predict(X) - 3).max() < 0.5


# Noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["descent", "moments"])
def test_the_spread_of_weights_is_what_is_said_of_it(solver):
    X, y = table(n=3000)
    model = DPLinearRegression(**BOUNDS, solver=solver)
    fits = [clone(model).set_params(random_state=seed).fit(X, y) for seed in range(60)]
    spread = np.std([fit.coef_ for fit in fits], axis=0)
    said = np.mean([fit.coef_std_ for fit in fits], axis=0)
    # Of 60 fits, the logarithm of a deviation has one of 0.09.
    assert np.all((spread / said > 0.5) & (spread / said < 2))


def test_the_event_is_what_runs():
    X, y = table()
    model = DPLinearRegression(**BOUNDS, solver="descent", random_state=0).fit(X, y)
    focus, columns, targets, moment, steps = model.privacy_.event.events
    sq_mu = sum(e.noise_multiplier**-2 for e in (columns, targets, moment))
    sq_mu += sum(e.count * e.event.noise_multiplier**-2 for e in (focus, steps))
    assert isinstance(model.privacy_.event, ComposedDpEvent)
    assert isinstance(steps, SelfComposedDpEvent) and steps.count == model.n_iter_
    assert columns.noise_multiplier**-2 / sq_mu == pytest.approx(0.08)
    assert isinstance(moment, GaussianDpEvent)
    assert moment.noise_multiplier**-2 / sq_mu == pytest.approx(0.2 * 0.86)
    assert focus.count * focus.event.noise_multiplier**-2 / sq_mu == pytest.approx(0.02)


@pytest.mark.parametrize("n", [100, 3000, 10**7])
@pytest.mark.parametrize("bounds", [BOUNDS, {}])
def test_the_cost_before_the_data_does_not_depend_on_what_is_not_told(n, bounds):
    model = DPLinearRegression(delta=1e-6, **bounds)
    told = model.privacy_event(n_samples=n, n_features=5, n_outputs=1)
    assert model.privacy_event(n_samples=n, n_features=5, n_outputs=1) == told
    model.privacy_event()  # cost alone needs no size


def test_one_pass_is_enough_where_rows_are_many():
    model = DPLinearRegression(**BOUNDS)
    few = model.privacy_event(n_samples=3000, n_features=4)
    many = model.privacy_event(n_samples=10**6, n_features=4)
    assert len(few.events) == 5 and len(many.events) == 4


# Public rows ----------------------------------------------------------------------------------


def test_few_directions_of_public_tasks_beat_all_columns():
    X, y, directions = tasks()
    public = {"X_public": tuple(X[:-1]), "y_public": tuple(y[:-1])}
    rows, targets = X[-1][:400], y[-1][:400]
    held_out = X[-1][400:], y[-1][400:]
    few, all_of_them = [], []
    for seed in range(5):
        options = {"epsilon": 0.5, "random_state": seed, "target_bounds": (-5, 5)}
        model = PublicSubspaceLinearRegression(n_components=2, **options)
        few.append(model.fit(rows, targets, **public).score(*held_out))
        model = DPLinearRegression(bounds=(-4, 4), **options)
        all_of_them.append(model.fit(rows, targets).score(*held_out))
    # Over 12 tables they are 0.64 apart, with a deviation of 0.12; over 40, the angle is 0.13, with
    # a deviation of its logarithm of 0.19.
    assert np.median(few) > np.median(all_of_them)
    model = PublicSubspaceLinearRegression(n_components=2).fit(rows, targets, **public)
    assert subspace_angles(model.components_.T, directions)[0] < 0.5


def test_one_pass_over_columns_far_from_0_predicts_what_its_weights_say():
    X, y, _ = tasks(noise=1.0)
    X, n = [x + 20 for x in X], 10_000
    rows = np.random.default_rng(1).normal(size=(n, X[0].shape[1])) + 20
    model = PublicSubspaceLinearRegression(epsilon=10.0, n_components=2)
    model.fit(rows, np.resize(y[-1], n), X_public=tuple(X[:-1]), y_public=tuple(y[:-1]))
    assert model.n_iter_ == 1  # scales are those of public rows
    assert np.allclose(model.predict(rows), rows @ model.coef_ + model.intercept_)


@pytest.mark.parametrize("subspace", ["alternating", "pairs", "moments", "ridge", "features"])
def test_weights_lie_in_the_directions(subspace):
    X, y, _ = tasks()
    model = PublicSubspaceLinearRegression(n_components=3, subspace=subspace, random_state=0)
    model.fit(X[-1], y[-1], X_public=tuple(X[:-1]), y_public=tuple(y[:-1]))
    assert model.components_.shape == (3, 30) and model.n_components_ == 3
    assert np.allclose(model.components_ @ model.components_.T, np.eye(3))
    left = model.coef_ - model.components_.T @ (model.components_ @ model.coef_)
    assert np.abs(left).max() < 1e-10 * np.abs(model.coef_).max()


def across_tasks():
    """6,000 rows and targets whose weights are orthogonal to those of all public tasks."""
    X, y, directions = tasks(d=12)
    public = {"X_public": tuple(X[:-1]), "y_public": tuple(y[:-1])}
    rng = np.random.default_rng(1)
    rows, apart = rng.normal(size=(6000, 12)), rng.normal(size=12)
    apart = apart - directions @ (directions.T @ apart)
    targets = rows @ (2 * apart / np.linalg.norm(apart)) + rng.normal(size=6000)
    return rows, targets, public


def test_what_directions_miss_is_learned_where_rows_are_many():
    """In the directions there is nothing."""
    rows, targets, public = across_tasks()
    options = {"epsilon": 3.0, "random_state": 0, "target_bounds": (-10, 10)}
    found = [
        PublicSubspaceLinearRegression(n_components=number, **options)
        .fit(rows, targets, **public)
        .score(rows, targets)
        for number in (2, "auto")
    ]
    # 0.8 is explained. Over 40 seeds of all of it 0.00 to 0.01 and 0.79 to 0.81 are found, and the
    # deviation of the second is 0.005.
    assert found[0] < 0.3 and found[1] > 0.6


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rows_each", [1, 5])
def test_steps_with_another_clip_norm_move_within_it(monkeypatch, relation, rows_each):
    """Released gradients alone decide that columns count more, and noise is of the new norm."""
    rows, targets, public = across_tasks()
    person = np.arange(6000) // rows_each
    rows[person == 0], targets[person == 0] = 1e3, 1e3
    others, present = (rows.copy(), targets.copy()), None
    if relation == "zero_out":
        present = person > 0
    else:
        others[1][person == 0] = -1e3
    options = {"neighboring_relation": relation, "target_bounds": (-10, 10), "random_state": 0}
    model = PublicSubspaceLinearRegression(epsilon=10.0, **options)
    with releases(monkeypatch) as first:
        found = model.fit(rows, targets, groups=person, **public).coef_
    with releases(monkeypatch, outputs=first) as second:
        model.fit(*others, groups=groups_of(present, person), **public)
    assert_within_bounds(first, second, relation)
    np.testing.assert_array_equal(model.coef_, found)
    assert len(first) == len(multipliers(model.privacy_.event))
    steps = slice(-model.n_iter_, None)
    bounds = [one.unit(relation) for one, *_ in first[steps]]
    began = round(0.3 * len(bounds))
    assert len(set(bounds[:began])) == len(set(bounds[began:])) == 1
    assert bounds[-1] > 1.1 * bounds[0]
    factor = 1 if relation == "zero_out" else 2
    moves = [move(one[0], other[0]) for one, other in zip(first, second, strict=True)][steps]
    assert all(moves > 0.9 * factor * np.array(bounds))
    # The noise of the last steps is of the size that their own norm asks for.
    told = multipliers(model.privacy_.event)[steps]
    noise = [
        (out - one.value).ravel() / unit / m
        for (one, out, _), unit, m in zip(first[steps], bounds, told, strict=True)
    ]
    for part in (noise[:began], noise[began:]):
        squares, law = np.sum(np.concatenate(part) ** 2), stats.chi2(sum(map(len, part)))
        assert 2 * min(law.cdf(squares), law.sf(squares)) > RARE


def test_few_rows_learn_along_the_directions_only():
    X, y, _ = tasks()
    public = {"X_public": tuple(X[:-1]), "y_public": tuple(y[:-1])}
    model = PublicSubspaceLinearRegression(epsilon=0.5, random_state=0, target_bounds=(-5, 5))
    model.fit(X[-1][:200], y[-1][:200], **public)
    left = model.coef_ - model.components_.T @ (model.components_ @ model.coef_)
    assert np.abs(left).max() < 1e-10 * np.abs(model.coef_).max()
    model.fit(X[-1], y[-1], **public)
    left = model.coef_ - model.components_.T @ (model.components_ @ model.coef_)
    assert np.abs(left).max() > 1e-3 * np.abs(model.coef_).max()


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("n", [40, 3000])
@pytest.mark.parametrize("number", [2, "auto"])
def test_public_sizes_tell_the_cost(n, number):
    """Also of few rows, of which those without public ones take another solver."""
    X, y, _ = tasks()
    model = PublicSubspaceLinearRegression(epsilon=0.3, delta=1e-5, n_components=number)
    model.fit(X[-1][:n], y[-1][:n], X_public=tuple(X[:-1]), y_public=tuple(y[:-1]))
    sizes = {"n_samples": n, "n_features": 30, "n_outputs": 1}
    told = model.privacy_event(**sizes, n_public=1100, labelled=True)
    assert model.privacy_.event == told
    alone = DPLinearRegression(epsilon=0.3, delta=1e-5)
    assert model.privacy_event(**sizes) == alone.privacy_event(**sizes)


def test_without_privacy_other_columns_count_by_what_public_tasks_tell():
    X, y, _ = tasks()
    public = {"X_public": tuple(X[:-1]), "y_public": tuple(y[:-1])}
    errors = []
    for number in (2, "auto"):
        model = PublicSubspaceLinearRegression(n_components=number, epsilon=np.inf)
        model.fit(X[-1][:40], y[-1][:40], **public)
        errors.append(np.mean((model.predict(X[-1]) - y[-1]) ** 2))
    exact = LinearRegression().fit(X[-1][:40], y[-1][:40])
    assert errors[1] < 1.1 * errors[0]
    assert errors[1] < np.mean((exact.predict(X[-1]) - y[-1]) ** 2)


def test_without_public_rows_it_is_regression_on_all_columns():
    X, y = table()
    with pytest.warns(PublicDataWarning, match="no public rows"):
        model = PublicSubspaceLinearRegression(**BOUNDS, random_state=0).fit(X, y)
    other = DPLinearRegression(**BOUNDS, random_state=0).fit(X, y)
    assert np.array_equal(model.coef_, other.coef_)
    assert model.privacy_.event == other.privacy_.event


def test_public_rows_that_are_no_good_cost_accuracy_and_nothing_else():
    X, y = table(n=5000)
    for public in (np.ones((3, 4)), 1e3 * X[:2], X[:100] * [1, 0, 1, 0]):
        model = DPLinearRegression(target_bounds=(-12, 12), random_state=0)
        assert model.fit(X, y, X_public=(public,)).score(X, y) > -0.1


# Bad input ------------------------------------------------------------------------------------


def public(n=20, **changes):
    X, y = table(n=n)
    return {"X_public": (X, X + 1), "y_public": (y, y)} | changes


@pytest.mark.parametrize(
    ("options", "public_data", "message"),
    [
        ({"n_components": 9}, public(), "n_components"),
        ({"n_components": 0}, public(), "n_components"),
        ({"n_components": "many"}, public(), "n_components"),
        ({"subspace": "magic"}, public(), "subspace"),
        ({}, public(y_public=None), "y_public"),
        ({}, public(X_public=(np.ones((1, 4)),), y_public=(np.ones(1),)), "X_public"),
        ({}, public(X_public=None), "without `X_public`"),
        ({"solver": "magic"}, public(), "solver"),
        ({"bounds": (4, -4)}, public(), "bounds"),
        ({"bounds": ([0, 0], [1, 1])}, public(), "bounds"),
        ({"target_bounds": (1, 1)}, public(), "target_bounds"),
        ({"epsilon": None}, public(), "epsilon"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(options, public_data, message):
    X, y = table(n=100)
    model = PublicSubspaceLinearRegression(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **public_data)
    assert not hasattr(model, "privacy_")


def test_missing_values_are_refused():
    X, y = table(n=100)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DPLinearRegression().fit(X, y)


def test_a_range_that_noise_has_hidden_is_told():
    X, y = table(n=30)
    with pytest.warns(PrivacyWarning):
        model = DPLinearRegression(epsilon=0.1, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_scores_of_a_float32_memory_map_are_those_of_an_array(tmp_path):
    X, y = table(n=3000)
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    fits = [DPLinearRegression(**BOUNDS, random_state=0).fit(rows, y) for rows in (mapped, X)]
    assert np.allclose(fits[0].coef_, fits[1].coef_, atol=1e-4)
    assert r2_score(y, fits[0].predict(mapped)) > 0.8


def test_few_rows_are_not_whitened():
    """Their second moment would be noise: the choice follows from public sizes."""
    bounds = {"bounds": (np.zeros(3), np.ones(3)), "target_bounds": (0.0, 1.0), "delta": 1e-5}
    usual = DPLinearRegression(**bounds)
    for n, solver in ((70, "plain"), (90, "descent"), (10**6, "moments")):
        chosen = clone(usual).set_params(solver=solver)
        assert usual.privacy_event(n, 3, 1) == chosen.privacy_event(n, 3, 1)
    assert usual.privacy_event(70, 3, 1) != clone(usual).set_params(solver="descent").privacy_event(
        70, 3, 1
    )
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(70, 3))
    fitted = clone(usual).set_params(random_state=0).fit(X, X[:, 0])
    plain = clone(usual).set_params(random_state=0, solver="plain").fit(X, X[:, 0])
    np.testing.assert_array_equal(fitted.coef_, plain.coef_)
