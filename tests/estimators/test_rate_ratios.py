"""Poisson regression of `private_coefficients`: rate ratios, exposures, and what is refused."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import PoissonRegressor

from dpsubspace import Categories, PrivacyLedger, PrivateRange, Range, private_coefficients
from dpsubspace._core.solvers.families import FAMILIES
from dpsubspace._core.solvers.whitening import ReleasedRows
from dpsubspace.statistics import CoefficientDisplay

SCHEMA = {
    "age": Range(20, 80),
    "ward": ["A", "B", "C"],
    "days": Range(7, 365),
    "visits": Range(0, 60),
}
NO_DAYS = {name: kind for name, kind in SCHEMA.items() if name != "days"}


def counts(n, mean=0.5, seed=0, spread=0.0):
    """Visits of patients, which vary more than those of Poisson by a variance of rates."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 80, n), rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2])
    days = rng.uniform(7, 365, n)
    rates = mean / 186 * np.exp(0.02 * (age - 50) + 0.5 * (ward == "B"))
    rates *= rng.gamma(1 / spread, spread, n) if spread else 1.0
    return pd.DataFrame(
        {"age": age, "ward": ward, "days": days, "visits": rng.poisson(days * rates)}
    )


def truth(mean=0.5):
    return np.array([math.log(mean / 186) - 1.0, 0.02, 0.5, 0.0])


def rates(frame, **options):
    given = {"family": "poisson", "exposure": "days", "epsilon": math.inf, "random_state": 0}
    return private_coefficients(frame, SCHEMA, "visits", **(given | options))


@pytest.fixture(scope="module")
def found():
    return rates(counts(20_000), epsilon=3.0)


@pytest.mark.parametrize("mean", [0.02, 0.5, 20.0])
@pytest.mark.parametrize("exposure", [None, "days"])
def test_without_privacy_it_is_that_of_scikit_learn(mean, exposure):
    frame = counts(3000, mean)
    frame["visits"] = frame["visits"].clip(0, 60)
    schema = SCHEMA if exposure else NO_DAYS
    one = private_coefficients(
        frame, schema, "visits", family="poisson", exposure=exposure, epsilon=math.inf
    )
    X = np.stack([frame["age"], frame["ward"] == "B", frame["ward"] == "C"], axis=1).astype(float)
    days = frame["days"].to_numpy() if exposure else np.ones(len(X))
    other = PoissonRegressor(alpha=0, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    other.fit(X, frame["visits"] / days, sample_weight=days)
    expected = np.append(other.intercept_, other.coef_)
    np.testing.assert_allclose(one.estimate, expected, rtol=1e-6, atol=1e-6)
    assert one.terms == ("Intercept", "age", "ward[B]", "ward[C]")
    # Intervals are those of the sandwich.
    rows = np.column_stack([np.ones(len(X)), X])
    predicted = days * np.exp(rows @ expected)
    scores = rows * (frame["visits"].to_numpy() - predicted)[:, None]
    inverse = np.linalg.inv((rows * predicted[:, None]).T @ rows)
    deviations = np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse) * len(X) / (len(X) - 4))
    np.testing.assert_allclose((one.high - one.low) / 2, 1.959964 * deviations, rtol=1e-5)


@pytest.mark.parametrize("mean", [0.5, 20.0])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_with_next_to_no_noise_it_is_that_without(mean, spread):
    frame = counts(4000, mean, spread=spread)
    private, exact = rates(frame, epsilon=1e5), rates(frame)
    lengths = exact.high - exact.low
    assert np.all(np.abs(private.estimate - exact.estimate) < 0.05 * lengths)
    assert np.all(np.abs(private.high - private.low - lengths) < 0.1 * lengths)


FITS = 60


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.0), (5.0, 1.0)])
def test_intervals_cover(mean, spread):
    covered = np.zeros(4)
    for seed in range(FITS):
        one = rates(counts(4000, mean, seed, spread), epsilon=3.0, random_state=seed)
        covered += (one.low <= truth(mean)) & (truth(mean) <= one.high)
    # Intervals of 95 % that cover with 92 % at least: fewer of one of four do so once in 1e9.
    assert covered.min() >= binom.ppf(1e-9 / 4, FITS, 0.92)


def test_an_exposure_is_clipped_to_its_range_and_has_no_term():
    frame = counts(2000)
    wide = frame.assign(days=frame["days"] * 3)
    clipped = wide.assign(days=wide["days"].clip(7, 365))
    for epsilon in (math.inf, 30.0):
        one, other = (rates(x, epsilon=epsilon) for x in (wide, clipped))
        np.testing.assert_array_equal(one.estimate, other.estimate)
    # Rates per week, of the same rows.
    weeks = {**SCHEMA, "days": Range(1, 365 / 7)}
    per_week = private_coefficients(
        clipped.assign(days=clipped["days"] / 7),
        weeks,
        "visits",
        family="poisson",
        exposure="days",
        epsilon=math.inf,
    )
    per_day = rates(clipped)
    np.testing.assert_allclose(per_week.rate_ratio[0], 7 * per_day.rate_ratio[0], rtol=1e-6)
    np.testing.assert_allclose(per_week.estimate[1:], per_day.estimate[1:], rtol=1e-6, atol=1e-9)


def test_what_is_shown(found):
    assert found.family == "poisson" and found.target == "visits"
    np.testing.assert_allclose(found.rate_ratio, np.exp(found.estimate))
    with pytest.raises(AttributeError, match="a Poisson regression has no odds ratios"):
        _ = found.odds_ratio
    frame = found.to_frame()
    assert list(frame.columns)[-3:] == ["rate_ratio", "rate_ratio_low", "rate_ratio_high"]
    terms = ~frame["is_reference"]
    np.testing.assert_allclose(frame["rate_ratio_low"][terms], np.exp(found.low))
    np.testing.assert_allclose(frame["rate_ratio_high"][terms], np.exp(found.high))
    assert frame["rate_ratio"][~terms].tolist() == [1.0]
    text = str(found)
    assert text.startswith("Poisson regression of visits\n") and "rate ratio" in text
    assert "odds" not in text and "rate ratio" in found._repr_html_()
    np.testing.assert_allclose(found.in_units({"age": 10}).rate_ratio[1], found.rate_ratio[1] ** 10)


def test_a_linear_regression_has_no_rates():
    frame = counts(500)
    one = private_coefficients(frame, SCHEMA, "visits", epsilon=math.inf)
    assert one.family == "linear"  # of a range, unless the family says otherwise
    with pytest.raises(AttributeError, match="a linear regression has no rate ratios"):
        _ = one.rate_ratio
    assert "rate_ratio" not in one.to_frame()


def test_a_forest_of_rates_has_a_line_at_one(found):
    pytest.importorskip("matplotlib")
    display = CoefficientDisplay.from_coefficients(found)
    assert display.odds and display.ax_.get_xscale() == "log"
    assert display.ax_.get_xlabel() == "rate ratio (95% interval)"
    np.testing.assert_allclose(display.estimate, found.rate_ratio[1:])
    assert any(list(line.get_xdata()) == [1.0, 1.0] for line in display.ax_.get_lines())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"visits": Range(-1, 60)}, r"must not begin below 0, got .*Range\(0, high\)"),
        ({"visits": Categories([0, 1])}, "one of Poisson; the family is 'poisson' and"),
        ({"family": "linear"}, r"`exposure` is for family='poisson', got 'days' for .* 'linear'"),
        ({"family": "auto"}, "write family='poisson'"),
        ({"exposure": "day"}, r"must name a column of numbers .* got 'day'\. .*\['age', 'days'\]"),
        ({"exposure": "ward"}, "must name a column of numbers"),
        ({"exposure": "visits"}, "that is not the target"),
        ({"exposure": ["days"]}, "must name a column of numbers"),
        ({"days": Range(0, 365)}, r"`exposure` 'days' needs a public range that begins above 0"),
        ({"days": PrivateRange()}, "needs a public range that begins above 0"),
        ({"days": Range(1, 365, missing=True)}, "the `exposure` 'days' must not have missing"),
        ({"age": None, "ward": None}, "the target alone"),
        ({"family": "Poisson"}, "family"),
    ],
)
def test_what_is_refused(changes, message):
    schema = {name: changes.get(name, kind) for name, kind in SCHEMA.items()}
    schema = {name: kind for name, kind in schema.items() if kind is not None}
    options = {"family": "poisson", "exposure": "days", "epsilon": 1.0}
    options |= {name: value for name, value in changes.items() if name not in SCHEMA}
    with PrivacyLedger(1.0, 1e-5) as ledger, pytest.raises(ValueError, match=message):
        private_coefficients(counts(50), schema, "visits", **options)
    assert ledger.epsilon() == 0


def test_categories_without_counts_have_no_estimate_without_privacy():
    frame = counts(2000)
    frame.loc[frame["ward"] == "C", "visits"] = 0
    with pytest.warns(UserWarning, match="counts of 0 alone, so that ward.C. cannot"):
        one = rates(frame)
    np.testing.assert_array_equal(np.isnan(one.estimate), [False, False, False, True])


def test_persons_count_once():
    frame = pd.concat([counts(500)] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = rates(frame, groups=np.tile(np.arange(500), 3))
    other = rates(counts(500))
    np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.high, other.high, rtol=1e-9, atol=1e-9)


# The mean of counts ------------------------------------------------------------------------------


def test_slopes_are_derivatives_of_means_and_nothing_overflows():
    scores = np.concatenate([np.linspace(-30, 30, 2001), [-1e300, -800.0, 800.0, 1e200]])
    for family in FAMILIES.values():
        with np.errstate(all="raise", under="ignore"):
            means, slopes = family.mean(scores), family.slope(scores)
        assert np.isfinite(means).all() and np.all(slopes >= 0)
        step = 1e-4
        numeric = (family.mean(scores[:2001] + step) - family.mean(scores[:2001] - step)) / 2 / step
        np.testing.assert_allclose(slopes[:2001], numeric, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("unit", [1.0, 0.2, 0.01])
def test_two_values_of_residuals_have_the_mean_and_variance_of_counts(unit):
    predicted = np.array([1e-6, 0.01, 0.4, 1.0])
    (one, small), (other, large) = FAMILIES["poisson"].residuals(predicted, unit)
    np.testing.assert_allclose(one + other, 1)
    np.testing.assert_allclose(one * small, other * large)
    # The variance of counts over B is their mean over B, here in the square of the unit.
    np.testing.assert_allclose(one * small**2 + other * large**2, predicted)


# Rare categories ---------------------------------------------------------------------------------


def test_a_rare_category_with_a_high_rate_is_not_cut_away():
    """Its rows have far more information than any cut leaves: intervals were short, far off.

    The estimate is off by a tenth of the length without privacy, about, and the length 1.2 of it.
    """
    off, longer = [], []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        rare, x = rng.random(20_000) < 0.01, rng.uniform(-1, 1, 20_000)
        y = rng.poisson(0.5 * np.exp(2.3 * rare + 0.3 * x))
        frame = pd.DataFrame({"x": x, "rare": np.where(rare, "yes", "no"), "y": y})
        schema = {"x": (-1, 1), "rare": ["no", "yes"], "y": (0, 20)}
        exact, private = (
            private_coefficients(
                frame, schema, "y", family="poisson", epsilon=epsilon, random_state=seed
            )
            for epsilon in (math.inf, 3.0)
        )
        length = exact.high[2] - exact.low[2]
        off.append(abs(private.released.estimate[2] - exact.estimate[2]) / length)
        longer.append((private.high[2] - private.low[2]) / length)
    assert np.median(off) < 2 and np.median(longer) < 4


def test_a_category_of_half_of_the_rows_has_an_interval():
    """Its rows are counted as they are where no events are expected, and not as rare ones."""
    frame = counts(4000)
    frame["arm"] = np.repeat(["x", "y"], 2000)
    found = private_coefficients(
        frame,
        {**NO_DAYS, "arm": ["x", "y"]},
        "visits",
        family="poisson",
        epsilon=1e5,
        random_state=0,
    )
    assert not found.hidden.any()


# Events behind rates -----------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [math.inf, 1e6])
def test_events_are_sums_of_counts(epsilon):
    frame = counts(3000)
    told = rates(frame, epsilon=epsilon).to_frame().set_index("term")
    for ward in "ABC":
        rows = frame["ward"] == ward
        assert told.loc[f"ward[{ward}]", "n"] == rows.sum()
        visits = frame["visits"][rows].sum()
        assert abs(told.loc[f"ward[{ward}]", "events"] - visits) <= 1
    assert abs(told.loc["Intercept", "events"] - frame["visits"].sum()) <= 1


def test_noise_of_events_is_that_of_rows_times_the_largest_count(found):
    tally, told = found.released.equations.tally, found.to_frame()
    np.testing.assert_allclose(tally.largest, 60)
    np.testing.assert_allclose(told["events_std"][3:], 60 * told["n_std"][3:])
    said = f"n and events have noise of about {tally.noise:.0f} and {60 * tally.noise:,.0f} (one"
    assert said in str(found)


# Rows as released numbers say they are ------------------------------------------------------------


def test_fitted_rows_have_a_released_curvature_and_stay_finite():
    rng = np.random.default_rng(0)
    root, other = rng.normal(size=(2, 4, 4))
    mean, centres = np.eye(4)[0], np.concatenate([np.ones((2, 1)), rng.normal(size=(2, 3))], axis=1)
    covariance = root @ root.T
    covariance[0], covariance[:, 0] = 0.0, 0.0
    shares = np.array([0.02, 0.1])
    rows = ReleasedRows(mean, covariance, shares, centres, shares, -1.0)
    released = other @ other.T + np.eye(4)
    for weights in (np.array([-9.0, 0.3, 0.1, 0.2]), np.full(4, 1e3), np.full(4, -1e3)):
        fitted = rows.fitted(weights, released, FAMILIES["poisson"])
        if weights.max() < 1:
            found = fitted.curvature(weights, FAMILIES["poisson"])
            np.testing.assert_allclose(found, released, rtol=1e-6, atol=1e-9)
        for step in (-1e4, 1.0, 1e4):
            away = fitted.curvature(weights + step, FAMILIES["poisson"])
            assert np.isfinite(away).all()


def test_rows_that_cannot_have_a_released_curvature_stay_as_they_are():
    """Noise may show more curvature than rows of a logistic regression can have.

    Longer rows have scores at which slopes are smaller, and the next map makes them longer still.
    """
    mean, shares, centres = np.eye(4)[0], np.array([0.1]), np.array([[1.0, 0.5, 0.5, 0.5]])
    rows = ReleasedRows(mean, np.diag([0.0, 1, 1, 1]), shares, centres, shares, 0.0)
    for size in np.arange(-60, 60, 0.5):  # at -43, -37, -17 and 31 all ended in a LinAlgError
        weights = np.full(4, size)
        fitted = rows.fitted(weights, 9 * np.eye(4), FAMILIES["logistic"])
        assert np.isfinite(fitted.curvature(weights, FAMILIES["logistic"])).all()
