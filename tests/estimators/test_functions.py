"""Private quantiles and means: accuracy, what moves, and what they cost."""

import inspect
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers import RELATIONS, ScaledNoise, examples, groups_of, releases, some_releases
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from dpsubspace import PrivacyError, PrivacyLedger, PrivacyWarning, private_mean
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.statistics.quantiles import (
    SEARCH,
    _Doubles,
    _Line,
    noisy_quantiles,
    rank_noise,
)
from dpsubspace.audit import audit_epsilon
from dpsubspace.statistics import _functions as functions
from dpsubspace.statistics import private_covariance, private_quantile

quiet = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")

entries = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e300, -1e300, 1e-300, 5e-324, 1.0, -1e8, 2.0**64, -(2.0**64)]),
)


def exact_search(values, levels, n_levels=SEARCH, **options):
    levels = np.asarray(levels)
    return noisy_quantiles(values, levels, some_releases(0.0, n_levels), "it", **options)


# The grids ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_levels", [9, 14, SEARCH])
def test_grids_are_in_order_and_every_value_is_in_its_own_cell(n_levels):
    place = np.arange(2**n_levels)
    line = _Line(np.array([[-3.0]]), np.array([[7.0]]), n_levels)
    for grid in (_Doubles(n_levels), line):
        edges, values = grid.edge(place[1:]).ravel(), grid.value(place).ravel()
        assert (np.diff(edges) > 0).all() and np.isfinite(values).all()
        np.testing.assert_array_equal(np.searchsorted(edges, values, side="right"), place)
    assert values[0] == -3.0 and values[-1] == 7.0


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-9, 1e9, -1e15])
def test_without_noise_a_search_ends_within_a_step_of_the_quantile(scale, rng):
    values = scale * rng.lognormal(size=(999, 1))
    levels = [0.03, 0.5, 0.9]
    expected = np.quantile(values, levels, axis=0, method="inverted_cdf")
    np.testing.assert_allclose(exact_search(values, levels), expected, rtol=2.0**-12)
    bounds = (np.array([-abs(scale)]), np.array([abs(scale)]))
    np.testing.assert_allclose(
        exact_search(values, levels, bounds=bounds, n_levels=14),
        np.clip(expected, *bounds),
        atol=abs(scale) * 2.0**-13,
    )


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 7.0, 2026.0, -8191.0, 0.5])
def test_ties_are_found_exactly(value):
    values = np.full((100, 1), value)
    np.testing.assert_array_equal(exact_search(values, [0.1, 0.9]), [[value]] * 2)
    values[:20] = value + 1  # at the end of a public range
    bounds = (np.array([value - 3]), np.array([value + 1]))
    assert exact_search(values, [0.9], bounds=bounds) == value + 1


# How far a record moves the counts ------------------------------------------------------------


@given(
    values=hnp.arrays(np.float64, (9, 3), elements=entries),
    other=hnp.arrays(np.float64, 3, elements=entries),
    levels=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    bounded=st.booleans(),
    seed=st.integers(0, 9),
)
@examples(150)
def test_counts_move_within_their_bounds(values, other, levels, bounded, seed):
    changed = np.vstack([other, values[1:]])

    def search(values, outputs=None, present=None):
        with pytest.MonkeyPatch.context() as patch, releases(patch, outputs) as seen:
            noisy_quantiles(
                values,
                np.asarray(levels),
                some_releases(2.0, 12, seed=seed, present=present),
                "it",
                bounds=(np.full(3, -2.0), np.full(3, 1.0)) if bounded else None,
            )
        return seen

    here = search(values)
    without = search(values, here, np.arange(9) > 0)
    replaced = search(changed, here)
    assert len(here) == len(without) == len(replaced) == 12
    for (one, *_), (null, *_), (two, *_) in zip(here, without, replaced, strict=True):
        assert one.value.sum() == 27  # every value is counted once in its column
        move = np.linalg.norm(one.value - null.value)
        assert move == pytest.approx(one.norm_bound, rel=1e-14)  # tight
        assert np.linalg.norm(one.value - two.value) <= one.replace_bound * (1 + 1e-14)


# Quantiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, (-10, 10)])
@pytest.mark.parametrize("relation", RELATIONS)
def test_quantiles_hit_their_rank_within_the_noise(monkeypatch, relation, bounds):
    """Within a few standard deviations of a count's noise; with too much noise, they do not."""
    X = np.sort(np.random.default_rng(0).normal(size=(20_000, 2)), axis=0)
    levels = np.array([0.05, 0.5, 0.95])
    options = {"bounds": bounds, "neighboring_relation": relation, "delta": 1e-5}

    def misses(factor=1.0):
        monkeypatch.setattr(
            functions, "as_noise", lambda state: ScaledNoise(SeededNoise(state), factor)
        )
        worst = []
        for seed in range(20):
            found, privacy = private_quantile(X, levels, random_state=seed, **options)
            multiplier = privacy.event.event.noise_multiplier
            noise = rank_noise(multiplier, 2, 3, relation)
            ranks = [np.searchsorted(x, q) for x, q in zip(X.T, found.T, strict=True)]
            worst += list(np.abs(np.transpose(ranks) - levels[:, None] * len(X)).ravel() / noise)
        return np.array(worst)

    fair = misses()
    # Of 120 normal variables. The means of their sizes have a deviation of 7 % each.
    assert fair.max() < 7.5 and np.mean(fair < 3) > 0.9
    assert np.mean(misses(3.0)) > 1.4 * np.mean(fair)


def test_numbers_far_from_zero_have_quantiles_near_them():
    """Also where they are a million of their deviations away, which 20 stages cannot tell.

    The noise of a count has a deviation of 20 or so among 20,000 records. That it is 7 times as
    large at any of 28 stages has a chance below 1e-10, and 140 ranks are 0.02 deviations. The
    step of the grid is 0.5 there, and the median of the numbers is within 0.06 of 1e6.
    """
    numbers = 1e6 + np.random.default_rng(0).normal(size=20_000)
    assert abs(private_quantile(numbers, 0.5, epsilon=1.0).value - 1e6) < 0.6


@pytest.mark.parametrize("bounds", [None, (0, 100)])
def test_the_median_of_numbers_that_are_mostly_equal_is_theirs(bounds):
    """Where a gap between numbers is chosen by its length, that at the median has none.

    A count is 6,000 away from the middle on both sides of 37, and its noise has a deviation below
    100 at any of 30 stages: the chance of failing is below 1e-700.
    """
    numbers = np.repeat([3.0, 37.0, 90.0], [4_000, 12_000, 4_000])
    found, privacy = private_quantile(numbers, 0.5, epsilon=1.0, bounds=bounds)
    assert rank_noise(privacy.event.event.noise_multiplier, 1, 1, "zero_out") < 100
    assert abs(found - 37) < 0.01


def test_quantiles_have_numpys_shapes():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    options = {"epsilon": 5.0, "random_state": 0}
    for rows, level in ((X, 0.5), (X, [0.2, 0.5]), (X[:, 0], 0.5), (X[:, 0], [0.2, 0.5])):
        value = private_quantile(rows, level, **options).value
        assert np.shape(value) == np.quantile(rows, level, axis=0).shape
        np.testing.assert_allclose(value, np.quantile(rows, level, axis=0), atol=0.2)
    frame = pd.DataFrame(X, columns=["a", "b"])
    both = [private_quantile(rows, 0.5, **options).value for rows in (frame, X)]
    np.testing.assert_array_equal(*both)
    for column in (frame["a"], X[:, 0], list(X[:, 0])):
        assert isinstance(private_quantile(column, 0.5, **options).value, float)


@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("seed", range(5))
def test_a_level_that_noise_hides_stays_within_the_data(n, seed):
    """It does not run off to where no value is, and a warning says so."""
    X = np.random.default_rng(seed).uniform(10, 20, size=n)
    with pytest.warns(PrivacyWarning, match="^the noise of"):
        found, _ = private_quantile(X, [1e-3, 0.999], epsilon=2.0, random_state=seed)
    assert 8 < found[0] < 21 and 9 < found[1] < 32


def test_infinite_epsilon_is_numpy_and_not_private():
    X = np.random.default_rng(0).normal(size=(50, 3))
    value, privacy = private_quantile(X, [0.1, 0.7], epsilon=math.inf)
    np.testing.assert_array_equal(value, np.quantile(X, [0.1, 0.7], axis=0))
    clipped, _ = private_quantile(X, 0.1, epsilon=math.inf, bounds=(0, 1))
    assert (clipped == 0).all()
    with pytest.raises(PrivacyError):
        PrivacyLedger(epsilon=1.0, delta=1e-5).charge(privacy)


# Means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_recentring_pays_where_rows_are_far_from_zero(as_rows):
    X = np.random.default_rng(0).normal(100, 1, size=(5000, 20))

    def error(method):
        errors = [
            private_mean(as_rows(X), data_norm=900, method=method, random_state=seed).value
            - X.mean(axis=0)
            for seed in range(5)
        ]
        return np.linalg.norm(errors, axis=1).mean()

    assert error("recentre") < 0.1 and error("gaussian") > 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"data_norm": 30}, {"bounds": ([-5, 15], [5, 25])}])
def test_means_of_any_kind_of_rows(options, dtype):
    X = np.random.default_rng(0).normal([0, 20], size=(4000, 2)).astype(dtype)
    X.setflags(write=False)
    for method in ("recentre", "gaussian"):
        value, privacy = private_mean(X, epsilon=5.0, random_state=0, method=method, **options)
        np.testing.assert_allclose(value, X.mean(axis=0, dtype=float), atol=0.06)
        assert privacy.epsilon == 5.0 and value.dtype == np.float64
    assert abs(private_mean(X[:, 1], epsilon=5.0, random_state=0).value - 20) < 0.1


def test_a_mean_that_is_mostly_noise_warns_by_public_sizes():
    for X in (np.ones((20, 30)), np.zeros((20, 30))):
        with pytest.warns(PrivacyWarning, match="^the noise of the sum"):
            private_mean(X, data_norm=1.0, epsilon=0.5)


def test_infinite_epsilon_is_the_mean_of_bounded_rows():
    X = np.random.default_rng(0).normal(size=(50, 3))
    for options in ({}, {"data_norm": 99}, {"bounds": (-9, 9)}):
        value, privacy = private_mean(X, epsilon=math.inf, **options)
        np.testing.assert_allclose(value, X.mean(axis=0), rtol=1e-12)
    assert privacy.epsilon == math.inf
    value, _ = private_mean(X, epsilon=math.inf, bounds=(0, 1))
    np.testing.assert_allclose(value, np.clip(X, 0, 1).mean(axis=0), rtol=1e-12)


# Covariances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_covariances_whatever_the_offset(as_rows, offset):
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 5))
    X = rng.normal(size=(20_000, 5)) @ mixing + offset
    exact = np.cov(X.T)
    options = {"data_norm": 3 * (offset + 3) * 2.3, "random_state": 0}
    found = private_covariance(as_rows(X), **options).value
    assert np.linalg.norm(found - exact) < 0.1 * np.linalg.norm(exact)
    moment = private_covariance(as_rows(X), centered=False, **options).value
    raw = X.T @ X / len(X)
    assert np.linalg.norm(moment - raw) < 0.1 * np.linalg.norm(exact) + 0.01 * np.linalg.norm(raw)
    for matrix in (found, moment):
        np.testing.assert_array_equal(matrix, matrix.T)
        assert np.linalg.eigvalsh(matrix).min() > -1e-9 * np.trace(matrix)


def test_bounds_of_columns_keep_large_units_from_drowning_small_ones():
    """Noise is in proportion to the range of each column, and means stay within it."""
    rng = np.random.default_rng(0)
    columns = [rng.normal(50, 15, 5000), rng.lognormal(10, 1, 5000), rng.integers(0, 2, 5000)]
    X, bounds = np.column_stack(columns), ([0, 0, 0], [110, 1e6, 1])
    mean, _ = private_mean(X, bounds=bounds, epsilon=0.5, random_state=0)
    assert (np.abs(mean - X.mean(axis=0)) < 0.02 * np.array(bounds[1])).all()
    tiny, _ = private_mean(X[:200], bounds=bounds, epsilon=0.05, random_state=0)
    assert (tiny >= 0).all() and (tiny <= bounds[1]).all()
    found, _ = private_covariance(X, bounds=bounds, epsilon=2.0, random_state=0)
    scale = np.outer(bounds[1], bounds[1])
    assert (np.abs(found - np.cov(X.T)) < 0.02 * scale).all()
    raw, _ = private_covariance(X, bounds=bounds, centered=False, epsilon=math.inf)
    inside = np.clip(X, *bounds)
    np.testing.assert_allclose(raw, inside.T @ inside / 5000, rtol=1e-9)


@pytest.mark.parametrize("function", [private_mean, private_covariance])
def test_a_bound_on_norms_that_noise_would_make_is_warned_of(function):
    with pytest.warns(PrivacyWarning, match="^the noise of the counts that a bound"):
        function(np.ones((3000, 2)), epsilon=0.01)


@quiet
def test_audit_stays_below_the_claim_and_catches_a_tenth_of_the_noise(monkeypatch):
    """Canaries along a column each: a variance tells whether one took part."""
    n_canaries = 400
    coins = np.random.default_rng(0).random(n_canaries) < 0.5
    options = {"data_norm": 1.0, "centered": False, "delta": 1e-5, "groups": groups_of(coins)}

    def lower_bound():
        released = private_covariance(np.eye(n_canaries), random_state=0, **options).value
        order = np.argsort(np.diag(released))
        right = int(coins[order[-100:]].sum() + (~coins[order[:100]]).sum())
        return audit_epsilon(n_canaries, 200, right, delta=1e-5)

    assert lower_bound() <= 1.0
    noise = lambda state: ScaledNoise(SeededNoise(state), 0.1)  # noqa: E731
    monkeypatch.setattr(functions, "as_noise", noise)
    assert lower_bound() > 1.2


def test_exact_covariances():
    X = np.random.default_rng(0).normal(3, 1, size=(50, 3))
    found = private_covariance(X, epsilon=math.inf).value
    np.testing.assert_allclose(found, np.cov(X.T, bias=True), atol=1e-12)
    found = private_covariance(X, centered=False, epsilon=math.inf).value
    np.testing.assert_allclose(found, X.T @ X / 50, atol=1e-12)


def test_a_covariance_that_is_mostly_noise_warns_by_public_sizes():
    with pytest.warns(PrivacyWarning, match="^the noise of the matrix"):
        private_covariance(np.ones((20, 30)), data_norm=1.0, epsilon=0.5)


# All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_what_a_function_returns_can_be_charged(function):
    book = PrivacyLedger(epsilon=1.0, delta=1e-5)
    book.charge(function(np.ones((4000, 2)), epsilon=0.5, delta=1e-5), "all of it")
    assert 0.49 < book.epsilon() <= 0.5


@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_guarantees_can_be_charged(function):
    X = np.random.default_rng(0).normal(size=(4000, 2))
    book = PrivacyLedger(epsilon=1.0, delta=1e-5)
    value, guarantee = released = function(X, epsilon=0.5, delta=1e-5)
    book.charge(guarantee, function.__name__)
    assert released.value is value and released.privacy is guarantee
    assert 0.5 * (1 - 1e-9) < book.epsilon() <= 0.5
    other, _ = function(X, epsilon=0.5)
    assert not np.array_equal(value, other)  # fresh noise


BAD = [
    *(("epsilon", e) for e in (0, -1.0, None, True, "1", math.nan)),
    *(("delta", d) for d in (0, 1, "small")),
    ("neighboring_relation", "add_remove"),
    ("random_state", -1),
    *(("bounds", b) for b in (3, (1, 0), (0, math.nan), ([0] * 4, [1] * 4), (False, True))),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_parameters_out_of_range(function, name, value):
    if name not in inspect.signature(function).parameters:
        return
    with pytest.raises(ValueError, match=name):
        function(np.ones((50, 2)), **{name: value})


@pytest.mark.parametrize(
    ("function", "options"),
    [
        *((private_quantile, {"level": v}) for v in (0, 1, -0.1, [0.5, 2], [], [[0.5]], True, "a")),
        *((private_mean, {"data_norm": v}) for v in (0, -1.0, math.inf, "a", True)),
        (private_mean, {"method": "median"}),
        (private_covariance, {"centered": 1}),
        (private_covariance, {"data_norm": -1.0}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_own_parameters_out_of_range(function, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        function(np.ones((50, 2)), **options)


@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_dates_are_refused_as_they_are_in_tables(function):
    days = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=50)})
    columns = [] if function is private_covariance else [days["day"], days["day"].to_numpy()]
    for rows in (days, days.to_numpy(), days - days.iloc[0], pl.from_pandas(days), *columns):
        with pytest.raises(ValueError, match="dates to a number of days"):
            function(rows)


@pytest.mark.parametrize("function", [private_mean, private_covariance])
def test_a_bound_at_the_end_of_what_is_looked_for_is_told_of(function):
    """A mean of microseconds since 1970 was that of 2^40, and nothing said so."""
    ticks = np.linspace(1.4e15, 1.5e15, 4000)[:, None]
    with pytest.warns(PrivacyWarning, match=r"is 2\^40"):
        function(ticks, epsilon=1e6)
    function(ticks / 1e6, epsilon=1e6)  # noise is hundreds of times too small to fill a cell


@pytest.mark.parametrize("function", [private_covariance, private_mean, private_quantile])
def test_unusable_rows_are_not_quoted(function):
    X = np.full((50, 2), 741.0)
    X[0, 0] = np.nan
    for rows in (X, X[:, 0], np.array(["seven"] * 9), np.zeros((0, 2)), np.zeros((3, 2, 2))):
        with pytest.raises(ValueError) as caught:
            function(rows)
        assert "741" not in str(caught.value) and "seven" not in str(caught.value)
    with pytest.raises(ValueError, match="not both"):
        private_mean(np.ones((50, 2)), data_norm=1.0, bounds=(0, 1))
    with pytest.raises(ValueError, match="sparse"):
        private_quantile(sparse.csr_array(np.ones((5, 2))))
    with pytest.raises(ValueError, match="data_norm"):
        private_mean(sparse.csr_array(np.ones((5, 2))), bounds=(0, 1))


def test_a_column_in_place_of_levels_is_refused_without_its_values():
    pd = pytest.importorskip("pandas")
    with pytest.raises(
        ValueError, match=r"^`level` must be a number or a list of numbers in .0, 1"
    ):
        private_quantile(0.5, pd.Series([49.0, 30.0]))
    released = private_quantile(np.arange(1000.0), pd.Series([0.25, 0.75]), bounds=(0, 1000))
    assert np.shape(released.value) == (2,)


@pytest.mark.parametrize("function", [private_mean, private_quantile, private_covariance])
def test_no_rows_are_refused_in_the_name_of_the_function(function):
    with pytest.raises(ValueError, match=rf"0 sample.* required by {function.__name__}\.$"):
        function(np.empty((0, 3)))
