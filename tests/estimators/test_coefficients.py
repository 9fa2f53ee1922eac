"""Coefficients with intervals: units, coverage, persons, and what is refused."""

import math
import re
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2, norm

from dpsubspace import (
    Categories,
    PrivacyLedger,
    PrivacyWarning,
    PrivateRange,
    Range,
    private_coefficients,
    private_counts,
    private_summary,
)
from dpsubspace._core.accounting.guarantee import footnote
from dpsubspace._core.plans.coefficients import Term
from dpsubspace._core.rows.records import Records, check_groups
from dpsubspace._core.solvers.design import (
    SIZES,
    Design,
    column_sum_of,
    curvature_sum,
    mass_sum,
    moment_of_scores,
    moment_sum,
    score_sum_of,
    size_counts,
)
from dpsubspace._core.solvers.equations import parts_of
from dpsubspace._core.solvers.families import FAMILIES
from dpsubspace._core.solvers.slopes import Slope
from dpsubspace._core.statistics.inverted_tests import Equations, accepted_along
from dpsubspace.statistics import CoefficientDisplay
from dpsubspace.statistics._coefficients import RawCoefficients, _cause, _causes
from dpsubspace.statistics._printed_tables import as_estimate

SCHEMA = {
    "age": Range(20, 80, missing=True),
    "ward": ["A", "B", "C"],
    "stay": Range(0, 30),
    "ill": ["no", "yes"],
}


def patients(n, seed=0):
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 80, n), rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2])
    score = -3 + 0.05 * age + 1.0 * (ward == "B")
    ill = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    stay = 2 + 0.2 * age + 3.0 * (ward == "C") + rng.normal(size=n)
    age[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"age": age, "ward": ward, "stay": stay, "ill": ill})


def schema(*names):
    return {name: SCHEMA[name] for name in names}


def plain(frame, reference="A"):
    """Design in the units of the table, without privacy."""
    gaps, values = frame["age"].isna(), frame["age"].fillna(50)
    others = [value for value in "ABC" if value != reference]
    columns = [np.ones(len(frame)), values, gaps, *(frame["ward"] == value for value in others)]
    return np.stack(columns, axis=1).astype(float)


def sandwich(X, y, weights, persons=None):
    """Deviations of least squares, clustered by person."""
    scores, n = X * (y - X @ weights)[:, None], len(X)
    if persons is not None:
        scores = np.stack([np.bincount(persons, column) for column in scores.T], axis=1)
        n = len(scores)
    inverse = np.linalg.inv(X.T @ X)
    return np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse) * n / (n - X.shape[1]))


def test_without_privacy_it_is_least_squares_in_the_units_of_the_table():
    frame = patients(2000)
    found = private_coefficients(
        frame, schema("age", "ward", "stay"), "stay", epsilon=math.inf, random_state=0
    )
    assert found.terms == ("Intercept", "age", "age[missing]", "ward[B]", "ward[C]")
    X, y = plain(frame), frame["stay"].to_numpy()
    weights = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(found.estimate, weights, rtol=1e-9, atol=1e-9)
    half = (found.high - found.low) / 2
    np.testing.assert_allclose(half, 1.959964 * sandwich(X, y, weights), rtol=1e-6)


def test_without_privacy_scores_of_a_logistic_regression_are_zero():
    frame = patients(2000)
    found = private_coefficients(
        frame, schema("age", "ward", "ill"), "ill", reference={"ward": "B"}, epsilon=math.inf
    )
    assert found.terms[-2:] == ("ward[A]", "ward[C]")
    assert found.target == "ill = yes"
    X = plain(frame, "B")
    odds = 1 / (1 + np.exp(-X @ found.estimate))
    np.testing.assert_allclose(X.T @ ((frame["ill"] == "yes") - odds) / len(X), 0, atol=1e-8)
    np.testing.assert_allclose(found.odds_ratio, np.exp(found.estimate))


def test_persons_count_once_and_their_rows_are_clustered():
    frame = patients(1500)
    persons = np.repeat(np.arange(500), 3)
    found = private_coefficients(
        frame, schema("age", "ward", "stay"), "stay", epsilon=math.inf, groups=persons
    )
    X, y = plain(frame), frame["stay"].to_numpy()
    weights = np.linalg.lstsq(X, y, rcond=None)[0]
    expected = 1.959964 * sandwich(X, y, weights, persons)
    np.testing.assert_allclose((found.high - found.low) / 2, expected, rtol=1e-6)
    assert found.privacy_.unit == "person" and found.privacy_.n_samples == 500


FITS = 40


@pytest.mark.parametrize(("target", "n"), [("stay", 400), ("ill", 8000)])
@pytest.mark.filterwarnings("ignore:these coefficients have no:dpsubspace.PrivacyWarning")
def test_intervals_cover(target, n):
    truth = np.array([2.0, 0.2, 0.0, 3.0] if target == "stay" else [-3.0, 0.05, 1.0, 0.0])
    covered, columns = np.zeros(4), schema("ward", target)
    for seed in range(FITS):
        rng = np.random.default_rng(seed)
        age, ward = rng.uniform(20, 80, n), rng.choice(["A", "B", "C"], n, p=[0.5, 0.3, 0.2])
        score = np.stack([np.ones(n), age, ward == "B", ward == "C"], axis=1) @ truth
        if target == "stay":
            y = score + rng.normal(size=n)
        else:
            y = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
        found = private_coefficients(
            pd.DataFrame({"age": age, "ward": ward, target: y}),
            {"age": (20, 80), **columns},
            target,
            epsilon=2.0,
            random_state=seed,
        )
        covered += (found.low <= truth) & (truth <= found.high)
    # Intervals of 95 % that cover with 92 % at least: fewer of one of four do so once in 1e9.
    assert covered.min() >= binom.ppf(1e-9 / 4, FITS, 0.92)


@pytest.mark.wide
def test_intervals_cover_where_nearly_all_residuals_are_small():
    """What noisy counts of residuals hide is counted: 53 % covered without that."""
    n, covered, truth = 5000, np.zeros(3), np.array([0.0, 1.0, 1.0])
    for seed in range(FITS):
        X = np.random.default_rng(seed).uniform(0, 1, size=(n, 2))
        found = private_coefficients(
            X,
            target=X.sum(axis=1),
            bounds=(0, 1),
            target_bounds=(0, 3),
            epsilon=0.3,
            random_state=seed,
        )
        covered += (found.low <= truth) & (truth <= found.high)
    # As above: one of three that covers with 92 % has fewer once in 1e9.
    assert covered.min() >= binom.ppf(1e-9 / 3, FITS, 0.92)


def test_nothing_is_known_where_there_are_too_few_rows():
    frame = patients(30)
    asked = (frame, schema("age", "ward", "stay"), "stay")
    with pytest.warns(PrivacyWarning) as told:
        found = private_coefficients(*asked, epsilon=0.01, random_state=0)
    assert np.isinf(found.low).any()
    assert "times as large as what 30 rows could show" in str(told[0].message)
    assert "these coefficients have no interval" in str(told[1].message)
    assert "Noise hides" in str(told[1].message)  # and no column is to blame
    ledger = PrivacyLedger(1.0, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match="could show"):  # by public sizes, before a charge
            ledger.run(private_coefficients, *asked, epsilon=0.01)
    assert len(ledger.entries) == 0


@pytest.mark.filterwarnings("ignore:the noise of the moments:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:these coefficients have no:dpsubspace.PrivacyWarning")
def test_noise_beyond_all_rows_leaves_nothing_known():
    """A mean that is not known to a half had no log-odds, and the fit failed after the charge."""
    found = private_coefficients(patients(50), schema("age", "ward", "ill"), "ill", epsilon=0.1)
    assert found.hidden.all()


@pytest.mark.parametrize(
    "changes",
    [
        {"slope": lambda old: old * math.nan},
        {"slope": lambda old: 1e80 * old, "score": lambda old: 1e80 + 0 * old},
        {"score": lambda old: 1e200 * old},
        {"about": lambda old: 1e200 + old},
        {"spread": np.zeros_like},
    ],
)
@pytest.mark.parametrize("target", ["ill", "stay"])
def test_what_absurd_noise_leaves_is_printed(with_nobody, target, changes):
    """Tests invert matrices while a table is printed, which ended with "Singular matrix"."""
    found = with_nobody[target]
    equations, terms = found.released
    absurd = {name: change(getattr(equations, name)) for name, change in changes.items()}
    equations = replace(equations, **absurd)
    found = replace(found, released=RawCoefficients(equations, terms))
    for one in (found, found.at_level(0.9), found.at_level(0.9).in_units({"age": 10})):
        assert "\nIntercept " in str(one) and "<table" in one._repr_html_()
        assert len(one.to_frame()) == len(found.to_frame())
        assert np.isnan(one.p_value[one.hidden]).all()
    assert _causes(equations, [terms[1]], found.family)


def test_levels_are_free_and_nested():
    frame = patients(20_000)
    with PrivacyLedger(2.0, 1e-6) as ledger:
        found = private_coefficients(frame, schema("age", "ward", "stay"), "stay", epsilon=1.0)
        narrow, wide = found.at_level(0.5), found.at_level(0.95, simultaneous=True)
    assert [entry.epsilon for entry in ledger.entries] == [1.0]
    assert (found.low <= narrow.low).all() and (narrow.high <= found.high).all()
    assert (wide.low <= found.low).all() and (found.high <= wide.high).all()


def test_arrays_are_tables_with_bounds():
    frame = patients(3000).fillna(50)
    X = frame[["age"]].to_numpy()
    options = {"epsilon": 1.0, "random_state": 0}
    by_array = private_coefficients(
        X, target=frame["stay"].to_numpy(), bounds=(20, 80), target_bounds=(0, 30), **options
    )
    by_name = private_coefficients(frame, {"age": (20, 80), "stay": (0, 30)}, "stay", **options)
    np.testing.assert_array_equal(by_array.low, by_name.low)


def test_values_that_are_not_listed_count_as_the_reference():
    frame = patients(3000)
    frame.loc[::7, "ward"] = "closed"
    options = {"target": "ill", "reference": {"ward": "B"}, "epsilon": 1.0, "random_state": 0}
    own = schema("age", "ward", "ill")
    found = private_coefficients(frame, own, **options)
    same = private_coefficients(frame.replace({"ward": {"closed": "B"}}), own, **options)
    np.testing.assert_array_equal(found.estimate, same.estimate)
    assert "not listed: ward[B]." in str(found)


def test_what_is_shown():
    found = private_coefficients(
        patients(20_000), schema("age", "ward", "ill"), "ill", epsilon=1.0, random_state=0
    )
    text, page = found.summary(), found._repr_html_()
    assert found.references == {"ward": "A"}
    assert "References, also for values not listed: ward[A]." in text
    assert text == str(found) and "odds ratio" in text and "ward[C]" in text
    assert "samples of independent rows, and n counts rows. P values are two-sided" in text
    assert "Each column is adjusted for the others." in text
    alone = private_coefficients(patients(2000), schema("age", "ill"), "ill", epsilon=math.inf)
    assert "adjusted" not in str(alone)
    together = found.at_level(0.9, simultaneous=True).summary()
    assert "with 90% for all together, p values for each by itself, over noise" in together
    assert "<table" in page and "ill = yes" in page
    frame = found.to_frame()
    assert list(frame["term"][~frame["is_reference"]]) == list(found.terms)
    np.testing.assert_allclose(frame["odds_ratio_low"][~frame["is_reference"]], np.exp(found.low))
    pytest.importorskip("matplotlib")
    display = CoefficientDisplay.from_coefficients(found)
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == ["age", "age[missing]", "ward[B] vs A", "ward[C] vs A"]
    assert display.ax_.get_xscale() == "log"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "stays"}, "Did you mean 'stay'"),
        ({"target": "ill"}, "The schema needs the target too"),
        ({"target": pd.Series(["no", "yes"])}, r"got a Series\. The schema"),
        ({"target": "ill", "schema": schema("age", "ward") | {"ill": ["No", "yes"]}}, "not among"),
        (
            {
                "target": "ill",
                "schema": schema("age") | {"ill": Categories(["no", "yes"], missing=True)},
            },
            "must not have missing values",
        ),
        ({"schema": {"age": PrivateRange(missing=True), "stay": (0, 30)}}, "a public one"),
        ({"schema": {"age": (20, 80), "stay": (0, 5e-324)}}, "too narrow to divide by"),
        ({"family": "logistic"}, "Categories of two values"),
        ({"reference": {"ward": "D"}}, r"one of its values \['A', 'B', 'C'\]"),
        ({"schema": {"stay": (0, 30)}}, "the target alone"),
        ({"bounds": (0, 1)}, "not both"),
        ({"schema": None}, "needs a `schema`|`schema` and the name"),
        (
            {"target": "ward", "schema": {"ward": Categories(["A", "B", "C"]), "stay": (0, 30)}},
            "two values",
        ),
        ({"level": 1.0}, "level"),
        ({"units": 10}, r"a dict .* got 10\."),
        ({"units": "deviations"}, r"must be 'deviation', or a dict .* got 'deviations'\."),
        ({"units": {"age": "deviations"}}, r"`units\['age'\]` .* or 'deviation'"),
        ({"units": {"ward": "deviation"}}, r"columns of numbers .* 'ward'\. They are \['age'\]"),
        ({"units": {"ages": 10}}, "Did you mean 'age'"),
        ({"units": {"ward": 10}}, r"columns of numbers .* 'ward'\. They are \['age'\]"),
        ({"units": {"stay": 10}}, "that explain the target, got 'stay'"),
        ({"units": {"age": 0}}, r"`units\['age'\]` must be a number in \(0, inf\), got 0\."),
        ({"units": {"age": math.inf}}, "got inf"),
        ({"units": {"age": True}}, "got True"),
        ({"target": "stay ~ age + ward"}, "`target` is the formula .* formulas are not read"),
        ({"schema": "stay ~ age"}, "`schema` is the formula 'stay ~ age'"),
        ({"schema": patients(50), "X": "stay ~ age"}, "`X` is the formula"),
    ],
)
def test_what_is_refused(changes, message):
    options = {"schema": schema("age", "ward", "stay"), "target": "stay", "epsilon": 1.0} | changes
    options = {"X": patients(50), **options}
    with PrivacyLedger(1.0, 1e-5) as ledger, pytest.raises(ValueError, match=message):
        private_coefficients(**options)
    assert ledger.epsilon() == 0


def test_a_linear_regression_has_no_odds():
    found = private_coefficients(
        patients(500), schema("age", "ward", "stay"), "stay", epsilon=math.inf
    )
    with pytest.raises(AttributeError, match="no odds ratios"):
        _ = found.odds_ratio


@pytest.mark.parametrize("word", ["weights", "sample_weight"])
def test_weights_are_explained(word):
    with pytest.raises(TypeError, match="how much one row can move the model"):
        private_coefficients(
            patients(50), schema("age", "stay"), "stay", epsilon=1.0, **{word: np.ones(50)}
        )


# Columns that say nothing ------------------------------------------------------------------------


def with_useless(kind, n, target):
    """Two useful columns and a useless one, with its schema; coefficients that it takes along."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.normal(size=(n, 2)), -3, 3)
    score = 0.5 * x[:, 0] - 0.3 * x[:, 1] - 1
    frame = pd.DataFrame({"x": x[:, 0], "z": x[:, 1]})
    useless = {"constant": 1.0, "at an end": 0.0, "repeated": x[:, 0], "nobody": "a"}[kind]
    frame["useless"] = useless
    asked: dict = {"x": (-3, 3), "z": (-3, 3)}
    asked["useless"] = {"repeated": (-3, 3), "nobody": ["a", "b"]}.get(kind, (0, 2))
    if target == "linear":
        frame["y"], asked["y"] = np.clip(score + rng.normal(size=n), -6, 6), (-6, 6)
    else:
        happened = rng.random(n) < 1 / (1 + np.exp(-score))
        frame["y"], asked["y"] = np.where(happened, "yes", "no"), ["no", "yes"]
    return frame, asked


USELESS = ["constant", "at an end", "repeated", "nobody"]


@pytest.mark.parametrize("target", ["logistic", "linear"])
@pytest.mark.parametrize("kind", USELESS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_not_identified_is_hidden_with_a_large_budget_as_without_privacy(kind, target):
    """A constant had an interval of two million, and a repeated column that of the prior."""
    frame, asked = with_useless(kind, 20_000, target)
    found = private_coefficients(frame, asked, "y", epsilon=1e5)
    exact = private_coefficients(frame, asked, "y", epsilon=math.inf)
    hidden = dict(zip(exact.terms, exact.hidden, strict=True))
    assert hidden["useless[b]" if kind == "nobody" else "useless"] and not hidden["z"]
    np.testing.assert_array_equal(found.hidden, exact.hidden)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_useless_columns_do_not_add_to_the_noise_of_others():
    """Four constants made its variance eight times as large, in the median.

    It is more than five times as large in one of a hundred releases or fewer (none of 40): in six
    of eleven once in 2e9.
    """
    frame, asked = with_useless("constant", 20_000, "logistic")
    without = {name: asked[name] for name in asked if name != "useless"}
    more = without | {name: (0, 2) for name in "abcd"}
    frame = frame.assign(**dict.fromkeys("abcd", 1.0))

    def noise(schema):
        found = private_coefficients(frame[list(schema)], schema, "y", epsilon=1.0)
        return found.released.equations.score_noise

    assert np.median([noise(more) / noise(without) for _ in range(11)]) < 5


def test_the_few_events_of_one_half_of_the_rows_are_not_cut():
    """Risks of 2 % and 50 %: estimates were too large by 0.36, as the rare events were cut.

    The median of 41 has a standard deviation of about 0.03.
    """
    exposed = np.arange(10_000) < 5_000
    ill = np.arange(10_000) % 5_000 < np.where(exposed, 2500, 100)
    frame = pd.DataFrame({"exposed": exposed, "ill": ill})
    asked = {"exposed": [False, True], "ill": [False, True]}
    found = [private_coefficients(frame, asked, "ill", epsilon=1.0).estimate[1] for _ in range(41)]
    assert abs(np.median(found) - np.log(49)) < 0.2


def test_steps_come_to_an_end_where_noise_makes_curvatures_too_small():
    """Forty levels: half of the fits had intervals of 2 to 4 times the length, the more budget.

    The score noise of 60 fits, which differ in their rows as well, makes intervals longer by 6 % at
    most.
    """
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 41)
    level, effects = rng.choice(40, p=shares / shares.sum(), size=60_000), rng.normal(size=40)
    ill = rng.random(60_000) < 1 / (1 + np.exp(1 - 0.5 * effects[level]))
    frame = pd.DataFrame({"level": level, "ill": ill})
    asked = {"level": list(range(40)), "ill": [False, True]}
    exact = private_coefficients(frame, asked, "ill", epsilon=math.inf)
    for _ in range(6):
        found = private_coefficients(frame, asked, "ill", epsilon=10.0)
        longer = (found.high - found.low) / (exact.high - exact.low)
        assert np.median(longer) < 1.5


# What users see ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odds():
    return private_coefficients(
        patients(20_000), schema("age", "ward", "ill"), "ill", epsilon=3.0, random_state=0
    )


@pytest.fixture(scope="module")
def with_nobody():
    """Coefficients with a category that no row has, by target, and the warning about it.

    One in ten releases or fewer has an interval, which is long: none of 20 once in 1e20.
    """
    frame, found = patients(20_000), {}
    for target in ("ill", "stay"):
        asked = schema("age", target) | {"ward": ["A", "B", "C", "nobody"]}
        for _ in range(20):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found[target] = private_coefficients(frame, asked, target, epsilon=3.0)
            if told:
                break
        (found[target, "told"],) = (str(one.message) for one in told)
    return found


@pytest.mark.parametrize("target", ["ill", "stay"])
def test_a_number_without_an_interval_is_hidden(with_nobody, target):
    found = with_nobody[target]
    hidden = np.array([term == "ward[nobody]" for term in found.terms])
    np.testing.assert_array_equal(found.hidden, hidden)
    np.testing.assert_array_equal(np.isnan(found.estimate), hidden)
    np.testing.assert_array_equal(np.isnan(found.p_value), hidden)
    frame = found.to_frame().set_index("term")
    assert frame.loc["ward[nobody]", ["estimate", "std_error", "p_value"]].isna().all()
    if target == "ill":
        assert np.isnan(found.odds_ratio[hidden]).all()
        assert math.isnan(frame.loc["ward[nobody]", "odds_ratio"])
    # What was released is still there.
    raw = found.released.estimate
    assert np.isfinite(raw).all()
    np.testing.assert_array_equal(raw[~hidden], found.estimate[~hidden])
    line = next(line for line in str(found).splitlines() if line.startswith("ward[nobody]"))
    n_counts = 2 if target == "ill" else 1
    assert all(count.replace(",", "").isdigit() for count in line.split()[1 : 1 + n_counts])
    assert set(line.split()[1 + n_counts :]) == {"–"} and "without an interval" in str(found)
    assert "<td style='text-align:right'>–</td>" in found._repr_html_()
    assert "inf" not in str(found)


@pytest.mark.parametrize("target", ["ill", "stay"])
def test_a_warning_names_what_is_hidden_and_why(with_nobody, target):
    told = with_nobody[target, "told"]
    assert "no interval, and no estimate: ward[nobody]. Few rows have ward[nobody]" in told
    assert "oise" not in told and ("one outcome" in told) == (target == "ill")


def moments(few=0.0, z=0.1, noise=1e-4):
    """Equations of a constant, a category with a share of rows, and a number, with their terms."""
    slope = np.array([[1.0, few, 0.5], [few, few, 0.5 * few], [0.5, 0.5 * few, 0.25 + z]])
    made = Equations(
        *(np.zeros(3), np.zeros(3), slope, slope),
        n=1000,
        score_noise=1e-6,
        slope_noise=noise**2 / 2,
        moment_noise=noise,
        spread=np.eye(3),
        basis=np.eye(3),
    )
    names = [("Intercept", None), ("ward", "C"), ("z", None)]
    terms = (
        Term(f"{a}[{b}]" if b else a, np.eye(3)[i], 1.0, 0.0, a, b)
        for i, (a, b) in enumerate(names)
    )
    return made, list(terms)


@pytest.mark.parametrize(
    ("options", "causes"),
    [
        ({}, ["noise", "few", "noise"]),
        ({"few": 0.3}, ["noise", "noise", "noise"]),
        ({"few": 0.3, "z": 0.001}, ["noise", "noise", "still"]),
        ({"z": 0.001}, ["noise", "few", "still"]),
        # Noise that may hide all of it is to blame.
        ({"z": 0.001, "noise": 0.1}, ["noise", "noise", "noise"]),
        ({"few": -0.5, "z": -0.5, "noise": 0.1}, ["noise", "noise", "noise"]),
    ],
)
def test_causes_are_those_that_released_numbers_show(options, causes):
    made, terms = moments(**options)
    assert [_cause(made, term) for term in terms] == causes
    told = " ".join(_causes(made, terms, "linear"))
    assert ("Few rows have ward[C]: merge" in told) == ("few" in causes)
    assert ("Rows hardly vary in z within" in told) == ("still" in causes)
    assert ("Noise hides" in told) == ("noise" in causes[1:])


def test_log_odds_that_are_not_known_are_not_blamed_on_noise_alone(odds):
    equations, terms = odds.released
    (told,) = _causes(replace(equations, moved=9.0), [*terms], "logistic")
    assert "tell the classes apart nearly always" in told and "Noise hides" not in told


def test_a_category_that_no_row_has_is_named_without_privacy():
    asked = schema("age", "stay") | {"ward": ["A", "B", "C", "nobody"]}
    with pytest.warns(UserWarning, match=r"no row has ward\[nobody\]") as told:
        found = private_coefficients(patients(2000), asked, "stay", epsilon=math.inf)
    assert len(told) == 1 and found.hidden.sum() == 1


@pytest.mark.parametrize("target", ["ill", "stay"])
def test_a_forest_has_the_name_alone_of_what_is_hidden(with_nobody, target):
    pytest.importorskip("matplotlib")
    found = with_nobody[target]
    display = found.plot()
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert [name.removesuffix(" vs A") for name in names] == list(found.terms[1:])
    drawn = np.flatnonzero(~found.hidden[1:])
    np.testing.assert_array_equal(display.points_.get_ydata(), drawn)
    segments = display.lines_.get_segments()
    assert [segment[0, 1] for segment in segments] == drawn.tolist()
    low, high = sorted(display.ax_.get_ylim())
    assert low < 0 and high > len(names) - 1


def test_a_forest_of_hidden_numbers_has_names_alone():
    pytest.importorskip("matplotlib")
    ends = {"low": [-np.inf] * 2, "high": [np.inf] * 2}
    display = CoefficientDisplay(terms=["a", "b"], estimate=[np.nan] * 2, **ends).plot()
    assert len(display.points_.get_xdata()) == 0 and len(display.ax_.get_yticks()) == 2


def test_a_frame_has_references_and_what_each_row_is_about(odds):
    frame = odds.to_frame()
    assert list(frame) == [
        *("term", "variable", "level", "is_reference", "n", "n_std", "events", "events_std"),
        *("estimate", "low", "high", "std_error", "p_value", "p_value_joint"),
        *("odds_ratio", "odds_ratio_low", "odds_ratio_high"),
    ]
    assert list(frame["term"]) == [
        *("Intercept", "age", "age[missing]", "ward[A]", "ward[B]", "ward[C]")
    ]
    assert list(frame["variable"]) == ["Intercept", "age", "age", "ward", "ward", "ward"]
    assert list(frame["level"]) == [None, None, "missing", "A", "B", "C"]
    assert list(np.flatnonzero(frame["is_reference"])) == [3]
    assert (frame.loc[3, "estimate"], frame.loc[3, "odds_ratio"]) == (0, 1)
    assert frame.loc[3, ["low", "std_error", "p_value", "odds_ratio_high"]].isna().all()


def test_levels_that_are_numbers_stay_what_they_are():
    frame = patients(2000)
    frame["sex"] = np.arange(2000) % 2
    asked = schema("age", "stay") | {"sex": Categories([0, 1])}
    found = private_coefficients(frame, asked, "stay", epsilon=math.inf).to_frame()
    assert list(found["level"]) == [None, None, "missing", 0, 1]
    assert type(found["level"][4]) is int


def test_p_values_say_what_intervals_say(odds):
    """A value below 1 - level, and an interval without 0, but for what is at the edge of it."""
    for level in (0.5, 0.8, 0.95, 0.999):
        found = odds.at_level(level)
        np.testing.assert_array_equal(found.p_value, odds.p_value)
        excluded = (found.low > 0) | (found.high < 0)
        clear = np.abs(found.p_value - (1 - level)) > 0.02 * (1 - level)
        np.testing.assert_array_equal((found.p_value < 1 - level)[clear], excluded[clear])


def test_without_privacy_p_values_and_errors_are_those_of_the_sandwich():
    frame = patients(2000)
    found = private_coefficients(frame, schema("age", "ward", "stay"), "stay", epsilon=math.inf)
    X, y = plain(frame), frame["stay"].to_numpy()
    weights = np.linalg.lstsq(X, y, rcond=None)[0]
    errors = sandwich(X, y, weights)
    expected = 2 * norm.sf(np.abs(weights) / errors)
    np.testing.assert_allclose(found.p_value, expected, rtol=1e-4, atol=1e-12)
    told = found.at_level(0.8, simultaneous=True).to_frame()
    told = told[~told["is_reference"]]["std_error"]
    np.testing.assert_allclose(told, errors, rtol=1e-6)


def test_numbers_are_printed_as_papers_do(odds):
    lines = {line[:13].strip(): line[13:].split() for line in str(odds).splitlines()[2:]}
    assert lines["ward[A]"][2:] == ["0", "1", "(reference)", "<0.001"]
    assert lines["Intercept"][0] == lines["Intercept"][0].strip() == "20,000"
    assert lines["ward[B]"][-1] == "<0.001" and 0 <= float(lines["ward[C]"][-1].strip("<>")) <= 1
    for term, at in (("ward[B]", 6), ("ward[C]", 6)):
        numbers = [lines[term][at], lines[term][at + 1], lines[term][at + 3]]
        assert all(len(number.partition(".")[2]) >= 2 for number in numbers)
        assert len(set(numbers)) == 3


@pytest.mark.parametrize(
    ("numbers", "ratio", "printed"),
    [
        ((1.0023, 0.9961, 1.0108), True, ["1.00", "1.00 to 1.01"]),
        ((1.0023, 1.0021, 1.0025), True, ["1.0023", "1.0021 to 1.0025"]),
        ((0.0213, 0.0001, 0.5), True, ["0.02", "<0.01 to 0.50"]),
        ((150.0, 20.0, 2500.4), True, ["150.00", "20.00 to 2,500"]),
        ((2.7, 0.0, math.inf), True, ["–", "–"]),
        ((0.0002, 0.00011, 0.00029), False, ["0.00020", "0.00011 to 0.00029"]),
        ((-0.001, -3.2, 3.1), False, ["0.0", "-3.2 to 3.1"]),
        ((1234.5, 1100.0, 1369.0), False, ["1234", "1100 to 1369"]),
        ((math.nan, -math.inf, math.inf), False, ["–", "–"]),
        ((math.nan, -math.inf, 3.0), False, ["–", "-inf to 3"]),
        ((2.0, 2.0, 2.0), False, ["2", "2 to 2"]),
        ((2e12, 1e12, 3e12), False, ["2e+12", "1e+12 to 3e+12"]),
    ],
)
def test_an_interval_is_never_rounded_to_a_point(numbers, ratio, printed):
    assert as_estimate(*numbers, ratio=ratio) == printed


def behind(records):
    """Which rows of a table each row of a frame of coefficients is about."""
    gap, ward = records["age"].isna(), records["ward"]
    groups = {"Intercept": gap | ~gap, "age": ~gap, "age[missing]": gap}
    return groups | {f"ward[{value}]": ward == value for value in "ABC"}


@pytest.mark.parametrize("target", ["ill", "stay"])
def test_counts_without_privacy_are_those_of_the_table(target):
    records = patients(2000)
    found = private_coefficients(records, schema("age", "ward", target), target, epsilon=math.inf)
    frame, groups = found.to_frame().set_index("term"), behind(records)
    assert list(frame.index) == list(groups)
    for term, rows in groups.items():
        assert frame.loc[term, "n"] == rows.sum()
        if target == "ill":
            assert frame.loc[term, "events"] == (rows & (records["ill"] == "yes")).sum()
    assert "noise of about" not in str(found) and (frame["n_std"] == 0).all()
    assert ("events" in frame) == (" events " in str(found)) == (target == "ill")


def test_persons_are_counted_by_the_parts_of_their_rows():
    """Each of 500 persons has a row in ward A and two in ward B: a third of a person in A."""
    records = patients(1500)
    records["ward"] = ["A", "B", "B"] * 500
    asked = {"ward": ["A", "B"]} | schema("ill")
    persons = np.repeat(np.arange(500), 3)
    events = (records["ill"] == "yes").groupby(records["ward"]).sum() / 3
    for epsilon in (math.inf, 1e5):
        found = private_coefficients(records, asked, "ill", epsilon=epsilon, groups=persons)
        frame, noise = found.to_frame(), 7 * found.released.equations.tally.noise
        assert frame["n"][0] == 500 and frame["n"][1:].sum() == 500
        np.testing.assert_allclose(frame["n"][1:], [500 / 3, 1000 / 3], atol=0.5 + noise)
        np.testing.assert_allclose(frame["events"][1:], events, atol=1.5 + 2 * noise)
    assert " n and events, in persons, have noise of about 0." in str(found)


def test_counts_are_as_near_as_their_deviations_say():
    """Squares over their variance are chi-square: one release in 1e9 is beyond."""
    rng, values = np.random.default_rng(0), [f"w{i}" for i in range(60)]
    chances = [0.5, *[0.5 / 59] * 59]
    frame = pd.DataFrame({"w": rng.choice(values, 6000, p=chances)})
    frame["ill"] = rng.choice(["no", "yes"], 6000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        found = private_coefficients(frame, {"w": values, "ill": ["no", "yes"]}, "ill", epsilon=3.0)
    tally, told = found.released.equations.tally, found.to_frame()
    true = frame.groupby("w")["ill"].agg(["size", lambda of_one: (of_one == "yes").sum()])
    true = true.loc[values[1:]].to_numpy()
    for noisy, exact in zip((tally.records, tally.events), true.T, strict=True):
        square = (((noisy[1:] - exact) / tally.noise) ** 2).sum()
        assert chi2.ppf(1e-10, 59) < square < chi2.isf(1e-10, 59)
    deviations = told[["n_std", "events_std"]].to_numpy() / tally.noise
    np.testing.assert_allclose(deviations[:2], [[0, 1], [math.sqrt(59), math.sqrt(60)]])
    np.testing.assert_allclose(deviations[2:], 1)
    assert f"noise of about {tally.noise:.0f} (one standard deviation; more for" in str(found)
    # As printed, all add up, and no part is larger than its whole.
    assert told["n"][1:].sum() == 6000 and (told["events"] <= told["n"]).all()
    assert told["events"][1:].sum() == told["events"][0]


def test_counts_are_within_their_range_whatever_noise_is():
    """Noise of about 300 for 100 rows, where a table is released all the same."""
    records = patients(100)
    for _ in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            found = private_coefficients(records, schema("age", "ward", "ill"), "ill", epsilon=0.1)
        told = found.to_frame()
        assert ((told["events"] >= 0) & (told["events"] <= told["n"]) & (told["n"] <= 100)).all()
        assert told["n"][0] == 100 and str(found).splitlines()[3].split()[:2] == [
            "Intercept",
            "100",
        ]


def test_numbers_alone_have_all_records():
    X = np.random.default_rng(0).uniform(size=(5000, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        line = private_coefficients(X[:, :1], target=X[:, 0], bounds=(0, 1), target_bounds=(0, 2))
        found = private_coefficients(X[:, :1], target=X.sum(axis=1) > 1, bounds=(0, 1))
    assert list(line.to_frame()["n"]) == [5000, 5000] and "noise of about" not in str(line)
    assert " events have noise of about " in str(found) and "references)" not in str(found)


def test_a_joint_test_without_privacy_is_that_of_wald():
    frame = patients(2000)
    frame["ward"] = np.random.default_rng(1).permutation(frame["ward"])
    asked = (frame, schema("age", "ward", "stay"), "stay")
    found = private_coefficients(*asked, epsilon=math.inf)
    X, y = plain(frame), frame["stay"].to_numpy()
    weights = np.linalg.lstsq(X, y, rcond=None)[0]
    scores, inverse = X * (y - X @ weights)[:, None], np.linalg.inv(X.T @ X)
    covariance = inverse @ scores.T @ scores @ inverse * 2000 / (2000 - X.shape[1])
    square = weights[3:] @ np.linalg.solve(covariance[3:, 3:], weights[3:])
    expected = pytest.approx(chi2.sf(square, 2), rel=1e-6)
    assert found.joint_p_value("ward") == expected
    other = private_coefficients(*asked, epsilon=math.inf, reference={"ward": "C"})
    assert other.joint_p_value("ward") == expected


def test_joint_tests_are_of_columns_and_free(odds):
    with PrivacyLedger(3.0, 1e-5) as ledger:
        # Ward B has log-odds of 1 with a deviation near 0.05.
        assert odds.joint_p_value("ward") < 0.001
        assert odds.at_level(0.5).joint_p_value("ward") == odds.joint_p_value("ward")
        assert odds.in_units({"age": 10}).joint_p_value("age") == odds.joint_p_value("age")
    assert ledger.epsilon() == 0
    frame = odds.to_frame()
    assert frame["p_value_joint"][3] == odds.joint_p_value("ward")
    assert frame["p_value_joint"].isna().sum() == len(frame) - 1
    assert "p of a reference is for all levels of its column together." in str(odds)
    for name, message in {
        "wards": "the target, got 'wards'. Did you mean 'ward'?",
        "ill": "got 'ill'. They are ['age', 'ward'].",
        "Intercept": "must name one of the columns",
        3: "got 3. They are",
    }.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            odds.joint_p_value(name)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_joint_test_of_two_levels_is_that_of_their_coefficient(epsilon):
    frame = patients(20_000)
    frame["ward"] = np.random.default_rng(0).choice(["A", "B"], 20_000)
    found = private_coefficients(
        frame, schema("stay") | {"ward": ["A", "B"]}, "stay", epsilon=epsilon
    )
    assert found.joint_p_value("ward") == pytest.approx(found.p_value[1], rel=1e-6)
    assert "p of a reference" not in str(found)
    assert str(found).splitlines()[4].endswith("(reference)")
    assert found.to_frame()["p_value_joint"].isna().all()


def test_what_is_hidden_has_no_joint_test(with_nobody):
    """Nor has a column of which no rows are left; beside levels that are seen, there is a test."""
    for target in ("ill", "stay"):
        assert with_nobody[target].joint_p_value("ward") < 0.001
    found = with_nobody["ill"]
    hidden = replace(found, estimate=np.full(len(found.terms), math.nan))
    assert math.isnan(hidden.joint_p_value("ward"))
    line = next(line for line in str(hidden).splitlines() if line.startswith("ward[A]"))
    assert re.search(r"\(reference\) +–$", line)


def test_units_scale_coefficients_and_cost_nothing(odds):
    with PrivacyLedger(3.0, 1e-5) as ledger:
        asked = (patients(20_000), schema("age", "ward", "ill"), "ill")
        at_once = private_coefficients(*asked, epsilon=3.0, units={"age": 10})
        plain = at_once.in_units({})
        again = plain.in_units({"age": 10})
    assert len(ledger.entries) == 1
    assert plain.terms[1] == "age" and again.terms == at_once.terms
    assert at_once.terms == ("Intercept", "age, per 10", "age[missing]", "ward[B]", "ward[C]")
    assert (at_once.units, plain.units) == ({"age": 10}, {})
    for name in ("estimate", "low", "high"):
        ratio = getattr(at_once, name) / getattr(plain, name)
        np.testing.assert_allclose(ratio, [1, 10, 1, 1, 1])
        np.testing.assert_array_equal(getattr(at_once, name), getattr(again, name))
    np.testing.assert_allclose(at_once.odds_ratio[1], plain.odds_ratio[1] ** 10)
    np.testing.assert_allclose(at_once.p_value, plain.p_value)
    assert at_once.at_level(0.5).terms == at_once.terms
    assert at_once.at_level(0.5).in_units({}).level == 0.5
    assert list(at_once.to_frame()["variable"][:2]) == ["Intercept", "age"]
    assert "\nage, per 10 " in str(at_once)
    with pytest.raises(ValueError, match="Did you mean 'age'"):
        odds.in_units({"Age": 10})


@pytest.mark.parametrize("epsilon", [math.inf, 1e5])
@pytest.mark.parametrize(
    ("target", "family"), [("stay", "auto"), ("ill", "auto"), ("visits", "poisson")]
)
def test_a_unit_may_be_a_standard_deviation(target, family, epsilon):
    """That of values that are there, clipped to their range, in the units of the column."""
    frame, columns = patients(20_000), schema("age", "ward")
    frame["visits"] = np.random.default_rng(0).poisson(2, 20_000)
    frame["height"] = np.random.default_rng(1).normal(1.7, 0.1, 20_000)
    columns |= {"height": (1.4, 1.9), target: {**SCHEMA, "visits": (0, 20)}[target]}
    plain = private_coefficients(frame, columns, target, family=family, epsilon=epsilon)
    found = plain.in_units("deviation")
    expected = {"age": frame["age"].std(ddof=0), "height": frame["height"].clip(1.4, 1.9).std()}
    assert found.units == pytest.approx(expected, rel=1e-4)
    factors = [1, found.units["age"], 1, 1, 1, found.units["height"]]
    for name in ("estimate", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), factors * getattr(plain, name))
    np.testing.assert_allclose(found.p_value, plain.p_value)
    assert found.terms[1] == f"age, per {expected['age']:.1f} (1 SD)"
    assert " SD: the standard deviation of a column, as it was released." in str(found)
    assert " SD: " not in str(plain)
    # In numbers of units, and beside them, the same; and at another level.
    assert found.at_level(0.5).terms == plain.in_units(found.units).terms == found.terms
    mixed = plain.in_units({"age": "deviation", "height": 0.1})
    assert mixed.terms == (*found.terms[:-1], "height, per 0.1")


def test_a_deviation_costs_nothing_and_is_there_at_once():
    asked = (patients(20_000), schema("age", "ward", "ill"), "ill")
    with PrivacyLedger(3.0, 1e-5) as ledger:
        found = private_coefficients(*asked, epsilon=3.0, units={"age": "deviation"})
        again = found.in_units({}).in_units("deviation")
    assert len(ledger.entries) == 1 and found.units == again.units
    np.testing.assert_array_equal(found.estimate, again.estimate)
    # The noise of a sum is about 50: ten deviations of that of the mean square are 0.03 of 0.33.
    assert found.units["age"] == pytest.approx(60 / math.sqrt(12), rel=0.1)


def test_persons_have_a_standard_deviation_in_which_they_count_once():
    frame = patients(1500).fillna(50)
    persons = np.minimum(np.arange(1500), 1000)  # one has 500 rows
    parts = 1 / np.bincount(persons)[persons]
    mean = np.average(frame["age"], weights=parts)
    expected = math.sqrt(np.average((frame["age"] - mean) ** 2, weights=parts))
    found = private_coefficients(
        frame,
        {"age": (20, 80), "stay": (0, 30)},
        "stay",
        units="deviation",
        groups=persons,
        epsilon=math.inf,
    )
    assert found.units["age"] == pytest.approx(expected)


def test_a_deviation_that_noise_hides_is_hidden_with_its_coefficient():
    """Values have a hundredth of the range: the slope is known, and what it is for is not.

    Noise alone is six deviations above 0 once in 1e9 releases.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.uniform(50, 51, 20_000), "stay": rng.uniform(0, 1, 20_000)})
    frame["stay"] += 20 * (frame["dose"] - 50)
    asked = (frame, {"dose": (0, 100), "stay": (0, 30)}, "stay")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = private_coefficients(*asked, units="deviation", epsilon=1.0)
    (message,) = (str(one.message) for one in told)
    assert message.startswith("the standard deviation of dose is not known, as noise hides it")
    assert "in_units({'dose': 10})" in message
    assert math.isnan(found.units["dose"]) and list(found.hidden) == [False, True]
    line = next(line for line in str(found).splitlines() if line.startswith("dose, per SD "))
    assert re.search(r"20,000 +– +– +–$", line)
    assert not found.in_units({"dose": 1}).hidden.any()
    assert found.at_level(0.5).terms == found.terms
    constant = frame.assign(dose=50.0)
    with pytest.warns(UserWarning) as told:
        private_coefficients(constant, *asked[1:], units="deviation", epsilon=math.inf)
    assert "dose is not known, as values hardly vary" in str(told[-1].message)
    assert "columns are sums of others" in str(told[0].message)


@pytest.mark.parametrize("name", ["patient_id", "PatientID", "Subject no.", "USUBJID"])
def test_names_of_persons_without_groups_are_told_before_the_charge(name):
    """By names alone: one row of each person, or all rows of one, say the same."""
    frame, asked = patients(50), (schema("age", "ward", "stay"), "stay")
    frame[name] = 1
    with PrivacyLedger(2.0, 1e-5) as ledger, warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        message = f"the table has {name!r}, .* pass {name!r} as `groups`, and all rows of a person"
        for table in (frame, frame.set_index(name), frame.set_index([name, "ill"])):
            with pytest.raises(PrivacyWarning, match=message):
                private_coefficients(table, *asked, epsilon=1.0)
    assert ledger.epsilon() == 0


@pytest.mark.parametrize("name", ["patient_age", "student", "ids", "person-years", "paid", "users"])
def test_other_names_are_no_names_of_persons(name):
    frame, asked = patients(2000), (schema("age", "stay"), "stay")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        private_coefficients(frame.assign(**{name: 1}), *asked, epsilon=math.inf)
        persons = frame.assign(person=np.arange(2000) // 2)
        found = private_coefficients(*(persons, *asked), epsilon=math.inf, groups=persons["person"])
        explaining = {"person": (0, 999), "stay": (0, 30)}  # in the schema: meant as it is
        private_coefficients(persons, explaining, "stay", epsilon=math.inf)
    assert "samples of independent persons, and n counts persons." in str(found)
    assert "; 1,000 persons." in str(found)


@pytest.mark.parametrize("released", ["summary", "counts"])
def test_names_of_persons_are_told_of_by_summaries_and_counts(released):
    frame = patients(50).assign(patient_id=1)

    def release(**groups):
        if released == "summary":
            return private_summary(frame, schema("ward"), epsilon=1.0, **groups)
        return private_counts(frame, schema("ward"), "ward", epsilon=1.0, **groups)

    with PrivacyLedger(2.0, 1e-5) as ledger:
        with pytest.warns(PrivacyWarning, match="the table has 'patient_id'"):
            release()
        assert ledger.epsilon() > 0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the table has")
        release(groups=np.arange(50))


def test_names_of_persons_are_seen_in_files(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    patients(2000).assign(patient=1).to_parquet(tmp_path / "rows.parquet")
    files = dataset.dataset(tmp_path)
    with pytest.warns(PrivacyWarning, match="the table has 'patient'"):
        private_coefficients(files, schema("age", "stay"), "stay", epsilon=math.inf)


def test_a_linear_probability_model_is_called_so():
    """By the range of the target, which is public: values themselves are not looked at."""
    X = np.random.default_rng(0).uniform(size=(5000, 1))
    for high, told in ((1, True), (2, False)):
        found = private_coefficients(
            X, target=X[:, 0] > 0.5, bounds=(0, 1), target_bounds=(0, high), epsilon=1.0
        )
        assert ("this is a linear probability model" in str(found)) == told


def test_the_guarantee_is_below_in_the_same_words(odds):
    line = footnote(odds.privacy_)
    assert line.startswith("(epsilon = 3, delta = 5e-06)-differentially private per row")
    assert line.endswith("; 20,000 rows.")
    assert str(odds).endswith(f"\n{line}") and odds._repr_html_().endswith(f"<p>{line}</p>")


# Sums that one record moves little ---------------------------------------------------------------


def rows_of_tables(rng, n):
    """Rows of a constant, three numbers and two categories, and the columns that are numbers."""
    numbers = rng.choice([-1.0, 1.0, 0.2], size=(n, 3))
    values = np.eye(3)[rng.integers(0, 3, n)][:, :2], np.eye(2)[rng.integers(0, 2, n)][:, :1]
    is_number = np.array([False, True, True, True, False, False, False])
    return np.column_stack([np.ones(n), numbers, *values]), is_number, 6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("persons", [False, True])
def test_one_record_moves_sums_by_no_more_than_their_bounds(family, persons):
    """A record is taken out or replaced, by far longer rows and residuals than any cut."""
    rng = np.random.default_rng(0)
    table, _, size = rows_of_tables(rng, 40)
    basis = rng.normal(size=(7, 7)) * np.array([0.01, 1.0, 1.0, 3.0, 3.0, 10.0, 100.0])
    rows, e = table @ basis, rng.choice([-2.5, -1.0, 0.0, 0.03, 0.9, 2.5], size=40)
    of_record = np.repeat(np.arange(20), 2) if persons else np.arange(40)
    other_rows, other_e = np.concatenate([rows[:3], -rows[3:6], 0 * rows[:1]]), [-2.5, 0.0, 2.5]

    def records(present):
        of_persons = persons and Records.of_groups(of_record, 20, present)
        return of_persons or Records.of_rows(40, present)

    for most in (0.05, 1.0, 30.0, 1e4):
        for sum_of in SUMS:

            def total(rows, e, present=None, sum_of=sum_of, most=most):
                known = records(present), np.ones(7, bool)
                return sum_of(Design(rows, np.zeros(40), size, family, *known), e, most)

            whole = total(rows, e)
            for record in range(3):
                theirs = of_record == record
                assert moved(whole, total(rows, e, ~theirs)) <= whole.norm_bound
                for z in other_rows:
                    for residual in other_e:
                        rows_then, e_then = rows.copy(), e.copy()
                        rows_then[theirs], e_then[theirs] = z, residual
                        assert moved(whole, total(rows_then, e_then)) <= whole.replace_bound


def moved(one, other):
    return np.linalg.norm(np.ravel(one.value - other.value))


SUMS = [
    lambda design, e, most: score_sum_of(design, design.cut(e, most), most),
    lambda design, e, most: mass_sum(design, e, most, 0.7 * most),
    lambda design, e, most: curvature_sum(design, np.abs(e), most),
    lambda design, e, most: moment_of_scores(design, design.cut(e, most), most),
    lambda design, e, most: size_counts(design, e, np.abs(e), most),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_sums_of_columns_reach_their_bound_and_no_more(family):
    """The longest contribution is that of numbers at an end, of listed values and a target of 1.

    With counts there is an exposure of 1 as well.
    """
    table, numbers, size = rows_of_tables(np.random.default_rng(0), 500)
    y = np.random.default_rng(1).choice([-1.0, 1.0] if family == "linear" else [0.0, 1.0], 500)
    design = Design(table, y, size, family, Records.of_rows(500), numbers)
    if family == "poisson":
        design = replace(design, offsets=np.zeros(500))
    whole, longest = column_sum_of(design), 0.0
    for row in range(500):
        present = np.arange(500) != row
        gone = column_sum_of(replace(design, records=Records.of_rows(500, present)))
        longest = max(longest, moved(whole, gone))
    assert longest <= whole.norm_bound
    assert longest == pytest.approx(whole.norm_bound)
    assert whole.replace_bound == pytest.approx(2 * whole.norm_bound)


def test_a_cut_reaches_its_bound_and_leaves_what_is_within():
    """Bounds that are loose would hide a wrong one."""
    rows = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    records, e = check_groups(None, rows), np.array([0.9, 0.3, 0.5])
    design = Design(rows, rows[:, 0], 3, "linear", records, np.ones(3, bool))
    cut = design.cut(e, 0.6)
    np.testing.assert_allclose(cut, [0.6 / math.sqrt(3), 0.3, 0.5])
    longest = np.linalg.norm(rows[0] * cut[0])
    assert longest == pytest.approx(score_sum_of(design, cut, 0.6).norm_bound)
    lost = mass_sum(design, e, 0.6, 2.0)
    assert float(lost.value[0]) == pytest.approx(0.9 * math.sqrt(3) - 0.6)
    shortened = rows * design.shortened(np.array([1.0, 0.5, 1.0]), 0.75)[:, None]
    np.testing.assert_allclose((shortened**2).sum(axis=1), [0.75, 0.25, 0.0])


@pytest.mark.filterwarnings("ignore:these coefficients have no:dpsubspace.PrivacyWarning")
def test_the_test_accepts_what_intervals_have():
    """Benchmarks ask the test, and users see the interval."""
    columns = schema("ward", "ill")
    found = private_coefficients(
        patients(20_000), columns, "ill", epsilon=3.0, level=0.9, random_state=0
    )
    released, terms = found.released
    z = 1.6448536
    for term, low, high in zip(terms, found.low, found.high, strict=True):
        if np.isfinite([low, high]).all():
            ends = (np.array([low, high]) - term.shift) / term.factor
            inside = accepted_along(released, term.direction, ends.mean())
            outside = [
                accepted_along(
                    released, term.direction, ends.mean() + 1.05 * side * np.ptp(ends) / 2
                )
                for side in (-1, 1)
            ]
            assert inside < z < min(outside)
    assert np.isfinite(found.low).any()


def test_a_weight_that_is_far_off_moves_though_all_others_are_at_rest():
    """One prior for all directions would hide it: ten of eleven have a score of 0."""
    noise, slope = 1e-4, Slope(np.diag(np.full(11, 0.1)), 0.0)
    score = np.zeros(11)
    score[-1] = 10 * noise
    move, _ = slope.solved(score, noise**2)
    assert abs(score - 0.1 * move).max() <= 1.0001 * noise
    assert (move[:-1] == 0).all()


def test_an_odds_ratio_of_a_rare_category_is_covered():
    """Log-odds of 3 in 1 % of rows. The estimate is off by a twentieth of the interval, about.

    Newton steps had stopped far below it once, with intervals a quarter as long as the distance.
    """
    rng, n = np.random.default_rng(0), 60_000
    rare, x = rng.random(n) < 0.01, rng.uniform(-1, 1, n)
    happened = rng.random(n) < 1 / (1 + np.exp(-(0.4 + 3.0 * rare + 0.3 * x)))
    frame = pd.DataFrame({"rare": rare, "x": x, "y": happened})
    schema = {"rare": [False, True], "x": (-1, 1), "y": [False, True]}
    exact = private_coefficients(frame, schema, "y", epsilon=np.inf)
    found = private_coefficients(frame, schema, "y", epsilon=3.0, level=0.95)
    at = next(i for i, name in enumerate(found.terms) if "rare" in str(name))
    assert found.low[at] < exact.estimate[at] < found.high[at]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_more_row_of_a_person_moves_no_other_one_to_another_cell(family, rng):
    """BLAS rounds products of the last rows otherwise: others may be last then.

    What all of them leave is at the edge of a cell.
    """
    for p in rng.integers(4, 40, 50):
        row, weights = np.append(1.0, rng.uniform(-1, 1, p - 1)), rng.normal(size=p) / p
        alone = design_of_persons(np.tile(row, (1, 1)), [0.0], family, p)
        scores = -alone.residuals(weights)
        edge = float(rng.choice(SIZES[:-1])) / float(alone.lengths[0])
        target = float(scores[0]) + edge
        found = []
        for counts in ([1] * 8, *([m, *[1] * 7] for m in (2, 3, 4))):
            rows, people = np.tile(row, (sum(counts), 1)), np.repeat(np.arange(8), counts)
            design = design_of_persons(rows, np.full(len(rows), target), family, p, people)
            residuals = design.residuals(weights)
            assert len(set(residuals.tolist())) == 1
            slopes = design.slopes(weights)
            assert len(set(slopes.tolist())) == 1
            found.append(size_counts(design, residuals, slopes, 1.0).value)
        np.testing.assert_allclose(found[1:], found[:1] * 3, rtol=0, atol=1e-6)


def design_of_persons(rows, targets, family, size, people=(0,)):
    records = check_groups(np.asarray(people), rows)
    numbers = np.ones(rows.shape[1], bool)
    return Design(rows, np.asarray(targets), size, family, records, numbers)


N_APART = 600
APART = np.random.default_rng(0).uniform(0, 1, N_APART)
MIXED = (np.random.default_rng(1).random(N_APART) < APART).astype(int)
KIND = np.random.default_rng(2).choice(["A", "B", "C"], N_APART)
# Outcomes, and what has no finite estimate then.
SEPARATE = {
    "a border": (APART > 0.5, ["Intercept", "z", "kind[B]", "kind[C]"]),
    "one class": (np.zeros(N_APART), ["Intercept", "z", "kind[B]", "kind[C]"]),
    "a category": (np.where(KIND == "C", 1, MIXED), ["kind[C]"]),
    "the reference": (np.where(KIND == "A", 0, MIXED), ["Intercept", "kind[B]", "kind[C]"]),
    "none": (MIXED, []),
}


@pytest.mark.parametrize("case", SEPARATE)
@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "persons"])
def test_separate_classes_have_no_estimate_without_privacy(case, grouped):
    y, without = SEPARATE[case]
    frame = pd.DataFrame({"z": APART, "kind": KIND, "y": np.asarray(y).astype(int)})
    says = {"z": Range(0, 1), "kind": Categories(["A", "B", "C"]), "y": Categories([0, 1])}
    groups = np.arange(N_APART) if grouped else None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = private_coefficients(frame, says, target="y", epsilon=math.inf, groups=groups)
    apart = np.isin(found.terms, without)
    np.testing.assert_array_equal(np.isnan(found.estimate), apart)
    np.testing.assert_array_equal(np.isinf(found.low) & np.isinf(found.high), apart)
    assert (found.high - found.low)[~apart].max(initial=0) < 5
    words = " ".join(str(one.message) for one in told)
    assert "noise" not in words and ("the classes are separate" in words) == bool(without)
    assert all(term in words for term in without)
    # A range that is far too wide is no separation.
    if case == "none":
        wide = {**says, "z": Range(0, 1e4)}
        again = private_coefficients(frame, wide, target="y", epsilon=math.inf)
        np.testing.assert_allclose(again.estimate[1:], found.estimate[1:], rtol=1e-6)


def test_columns_that_are_sums_of_others_are_named_without_privacy():
    frame = pd.DataFrame({"z": APART, "twice": 2 * APART, "kind": KIND, "y": MIXED})
    says = {"z": Range(0, 1), "twice": Range(0, 2), "kind": Categories(["A", "B", "C"])}
    with pytest.warns(UserWarning, match="sums of others, so that z, twice cannot"):
        found = private_coefficients(
            frame, says | {"y": Categories([0, 1])}, target="y", epsilon=math.inf
        )
    np.testing.assert_array_equal(np.isnan(found.estimate), [False, True, True, False, False])


def test_sums_make_no_second_copy_of_all_rows(rng):
    rows = rng.uniform(-1, 1, (250_000, 10))
    of_rows = check_groups(None, rows)
    design = Design(rows, rng.random(250_000), 10, "linear", of_rows, np.ones(10, bool))
    residuals = design.targets - 0.5
    calls = {
        "lengths": lambda: design.lengths,
        "score": lambda: score_sum_of(design, residuals, 1.0),
        "moment": lambda: moment_sum(rows, 7.0, of_rows),
        "scores": lambda: moment_of_scores(design, residuals, 1.0),
        "curvature": lambda: curvature_sum(design, 1.0, 7.0),
    }
    for name, call in calls.items():
        tracemalloc.start()
        try:
            call()
            assert tracemalloc.get_traced_memory()[1] < 0.5 * rows.nbytes, name
        finally:
            tracemalloc.stop()


# Strong effects, and next to no noise ------------------------------------------------------------


@pytest.mark.parametrize("width", [3.5, 10.0])
def test_odds_with_next_to_no_noise_are_those_without(width):
    """Two steps from weights of 0 left strong effects a tenth too small, with long intervals.

    Noise moves a coefficient by less than a thousandth of its standard error.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2)) * [1.0, 2.0]
    y = (rng.random(4000) < 1 / (1 + np.exp(-X[:, 0] - 0.5 * X[:, 1]))).astype(int)
    frame = pd.DataFrame(np.clip(X, [-width, -2 * width], [width, 2 * width]), columns=["a", "b"])
    schema = {"a": Range(-width, width), "b": Range(-2 * width, 2 * width)}
    schema |= {"y": Categories([0, 1])}
    private, exact = (
        private_coefficients(frame.assign(y=y), schema, "y", epsilon=epsilon, random_state=0)
        for epsilon in (1e5, float("inf"))
    )
    lengths = exact.high - exact.low
    assert np.all(np.abs(private.estimate - exact.estimate) < 0.05 * lengths)
    assert np.all(np.abs(private.high - private.low - lengths) < 0.1 * lengths)


def test_middle_scores_are_more_where_that_adds_little_noise():
    """Sides of the switch, which is by public numbers alone, and what it costs."""
    often, once = parts_of("logistic", 1.0, 4, 100_000), parts_of("logistic", 100.0, 4, 1000)
    assert often["middle score"].count == 6 and once["middle score"].count == 1
    assert {name: part.share for name, part in often.items()} == {
        name: part.share for name, part in once.items()
    }
    assert all(part.count == 1 for part in parts_of("linear", 1e-6, 4, 1000).values())
