"""Widths that are planned on public rows are those of calls, and planning spends nothing."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils import resample

from dpsubspace import (
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    PrivateRange,
    Range,
    private_coefficients,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.release.noise import ZeroNoise
from dpsubspace.budget import plan_accuracy
from dpsubspace.statistics import private_covariance, private_quantile, private_spread

rng = np.random.default_rng(0)
N = 20_000
SCHEMA = {"age": Range(0, 100), "ward": ["A", "B"], "sex": ["f", "m"]}
FRAME = pd.DataFrame(
    {
        "age": np.clip(rng.normal(50, 10, N), 0, 100),
        "ward": rng.choice(["A", "B"], N, p=[0.3, 0.7]),
        "sex": rng.choice(["f", "m"], N),
    }
)
X = rng.normal(size=(600, 3))
Y = (X[:, 0] > 0).astype(int)


# Computed widths -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"delta": 1e-5}, {"neighboring_relation": "replace_one"}])
def test_the_planned_width_of_a_count_is_that_of_its_interval(options):
    """An interval is widened if the counts that add up are outside of it, and never shortened.

    Counts are thousands of deviations of the noise away from 0 and n. The three cells are shifted
    by the mean of their noise, which is beyond the half width with a probability below 0.01: that
    20 of 40 are widened has one below ``2^40 0.01^20 < 1e-27``.
    """
    plan = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=N, epsilon=1.0, **options)
    said = plan.width("count").width
    found = [
        private_counts(FRAME, SCHEMA, "ward", epsilon=1.0, random_state=seed, **options)
        for seed in range(40)
    ]
    widths = np.array([(each.high - each.low)[1] for each in found])
    assert (widths >= said * (1 - 1e-9)).all() and np.isclose(widths, said).sum() > 20
    assert plan.width("share").width == pytest.approx(said / N)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_planned_widths_of_means_and_shares_are_those_of_intervals(epsilon):
    """The number of rows is public, and so these widths are the same for each noise."""
    plan = plan_accuracy(private_summary, FRAME, SCHEMA, epsilon=epsilon, n_repeats=1)
    found = [
        private_summary(FRAME, SCHEMA, epsilon=epsilon, random_state=seed) for seed in range(40)
    ]
    for of, where in [
        ("age, mean", ("age", "mean")),
        ("ward, share of A", ("ward", "share", "A")),
    ]:
        entries = [each.entry(*where[:2], category=[*where, None][2]) for each in found]
        widths = np.array([each.high - each.low for each in entries])
        said = plan.width(of)
        assert said.exact and np.isclose(widths, said.width, rtol=1e-6).sum() > 20
        assert (widths >= said.width * (1 - 1e-6)).all()  # widened as above


def test_planned_widths_by_group_are_near_those_of_intervals():
    """A group has 10,000 rows, and its size a noise below 40: 2 % are five times its deviation.

    The median of 20 widths is so far away with a probability below ``2^20 (6e-7)^10 < 1e-55``.
    """
    plan = plan_accuracy(private_summary, FRAME, SCHEMA, by="sex", epsilon=1.0, n_repeats=1)
    found = [
        private_summary(FRAME, SCHEMA, by="sex", epsilon=1.0, random_state=seed)
        for seed in range(20)
    ]
    for of, where in [
        ("age, mean, f", {"column": "age", "statistic": "mean", "group": "f"}),
        (
            "ward, share of B, m",
            {"column": "ward", "statistic": "share", "category": "B", "group": "m"},
        ),
    ]:
        entries = [each.entry(**where) for each in found]
        width = np.median([each.high - each.low for each in entries])
        assert width == pytest.approx(plan.width(of).width, rel=0.02)


def test_made_up_rows_have_the_widths_of_any_rows_with_these_sizes():
    """A mean in the middle of its range has the width that any other one has."""
    options = {"epsilon": [0.3, 1.0], "n_samples": N, "n_repeats": 1}
    made_up = plan_accuracy(private_summary, None, SCHEMA, **options)
    public = plan_accuracy(private_summary, FRAME, SCHEMA, **options)
    for epsilon in (0.3, 1.0):
        widths = [each.width("age, mean", epsilon=epsilon).width for each in (made_up, public)]
        assert widths[0] == pytest.approx(widths[1], rel=1e-6)
    assert made_up.rows == "Schema.example" and public.rows == "20,000 public rows"


# Simulated widths ------------------------------------------------------------------------------


def test_simulated_widths_are_medians_of_calls_with_fixed_seeds():
    """Rows are drawn with replacement where no more are needed than there are."""
    frame = FRAME[:3000]
    options = {"epsilon": 3.0, "target": "age", "schema": SCHEMA}
    plan = plan_accuracy(private_coefficients, frame, **options, n_repeats=5, random_state=7)
    found = [
        private_coefficients(resample(frame, random_state=seed), **options, random_state=seed)
        for seed in range(7, 12)
    ]
    assert plan.names == found[0].terms
    for place, of in enumerate(plan.names):
        widths = np.sort([each.high[place] - each.low[place] for each in found])
        said = plan.width(of)
        assert (said.low, said.width, said.high) == (widths[0], widths[2], widths[4])
        assert not said.exact


def test_rows_are_drawn_to_be_as_many_as_there_will_be():
    seen = []

    class Counting(LogisticRegression):
        def predict(self, X):
            seen.append(len(X))
            return super().predict(X)

    model = Counting().fit(X[:200], Y[:200])
    options = {"metric": "accuracy", "epsilon": 1.0, "n_repeats": 2, "n_samples": [300, 1000]}
    plan = plan_accuracy(private_score, model, X[200:], Y[200:], **options)
    assert {300, 1000} == {*seen} and plan.sizes == (300, 1000)


def test_a_function_without_intervals_has_widths_of_its_errors():
    options = {"bounds": (-5, 5), "epsilon": 1.0}
    plan = plan_accuracy(private_mean, X[:, 0], **options, n_repeats=1, random_state=3)
    rows = resample(X[:, 0], random_state=3)
    error = abs(private_mean(rows, **options, random_state=3).value - rows.mean())
    assert plan.width().width == pytest.approx(2 * 1.959964 / 0.6744898 * error)
    columns = plan_accuracy(private_quantile, X, 0.5, n_repeats=1, epsilon=1.0)
    assert columns.names == ("value[0]", "value[1]", "value[2]")


def test_what_noise_hides_is_infinitely_wide():
    model = LogisticRegression().fit(X[:300], Y[:300])
    options = {"metric": ["accuracy", "roc_auc", "roc_curve"], "n_repeats": 2}
    plan = plan_accuracy(private_score, model, X[300:], Y[300:], epsilon=[0.01, 100], **options)
    assert plan.names == ("accuracy", "roc_auc")  # and not the curve
    hidden, seen = (plan.width("roc_auc", epsilon=epsilon) for epsilon in (0.01, 100))
    assert math.isinf(hidden.width) and seen.width < 1
    options["metric"] = "roc_auc"
    with pytest.raises(ValueError, match="noise would hide 'roc_auc'"):
        plan_accuracy(private_score, model, X[300:], Y[300:], epsilon=[0.01], **options)


def test_the_width_of_a_model_is_the_score_that_privacy_costs():
    y = X @ [1.0, 2.0, -1.0]
    model = DPLinearRegression(target_bounds=(-9, 9))
    plan = plan_accuracy(model, X, y, epsilon=[0.1, 1.0], n_repeats=1)
    rows, X_test, y_rows, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0)
    drawn = resample(rows, y_rows, random_state=0)
    best = DPLinearRegression(target_bounds=(-9, 9), epsilon=math.inf).fit(*drawn)
    assert plan.names == ("R² lost",) and plan.sizes == (400,)
    for each in plan.widths:
        assert each.value + each.width == pytest.approx(best.score(X_test, y_test))
    assert model.epsilon == 1.0 and not hasattr(model, "privacy_")


def test_a_table_is_planned_with_its_pipeline_and_scorer():
    frame, y = FRAME[:900][["age", "ward"]], FRAME["sex"][:900]
    schema = {"age": SCHEMA["age"], "ward": SCHEMA["ward"]}
    model = tabular_pipeline("classification", schema)
    options = {"epsilon": 1.0, "n_samples": [100, 2000], "n_repeats": 1, "scoring": "roc_auc"}
    plan = plan_accuracy(model, frame, y, **options)
    assert plan.names == ("roc auc lost",)
    assert all(0 <= each.value <= 1 for each in plan.widths)


# What it costs ----------------------------------------------------------------------------------


def test_no_ledger_is_told():
    model = DPSGDClassifier()
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        plan_accuracy(model, X, Y, epsilon=5.0, n_repeats=1)
        plan_accuracy(private_summary, None, SCHEMA, n_samples=1000, epsilon=5.0, n_repeats=1)
        inside = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000, epsilon=0.5)
        assert ledger.epsilon() == 0 and len(ledger.entries) == 0
        found = private_counts(FRAME, SCHEMA, "ward", epsilon=0.5)
        assert len(ledger.entries) == 1
    # The noise in a ledger is that of its delta.
    assert found.mechanism == "gaussian"
    assert inside.width("count").width == pytest.approx(2 * found._noise.half_width(0.95))
    outside = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000, epsilon=0.5)
    assert outside.width("count").width < 0.6 * inside.width("count").width


def test_a_ledger_that_was_forgotten_is_still_told_of_later():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000)
    with pytest.warns(PrivacyWarning, match="is not charged to the PrivacyLedger"):
        private_counts(FRAME, SCHEMA, "ward", epsilon=0.5)
    assert ledger.epsilon() == 0


def test_zero_noise_is_not_called_secure():
    found = private_counts(FRAME, SCHEMA, "ward", epsilon=1.0, random_state=ZeroNoise())
    assert not found.privacy_.secure and "unless the seed is known" in str(found.privacy_)
    exact = private_counts(FRAME, SCHEMA, "ward", epsilon=math.inf)
    np.testing.assert_array_equal(found.noisy, exact.counts)


# What a width costs -----------------------------------------------------------------------------


def before(value):
    """The number of two digits before another one."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return value - (step if value > 10.5 * step else step / 10)


@pytest.mark.parametrize("of", ["count", "share"])
def test_the_epsilon_of_a_width_is_enough_and_no_less_is(of):
    plan = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000)
    wanted = 4 if of == "count" else 0.01
    epsilon = plan.epsilon_for(wanted, of)
    assert plan.width(of, epsilon=epsilon).width <= wanted
    assert plan.width(of, epsilon=before(epsilon)).width > wanted


def test_the_rows_of_a_width_are_enough_and_no_fewer_are():
    options = {"n_samples": [1000, 2000], "n_repeats": 2}
    plan = plan_accuracy(private_summary, None, SCHEMA, **options)
    n = plan.rows_for(2.0, "age, mean", epsilon=0.3)
    assert plan.width("age, mean", epsilon=0.3, n_samples=n).width <= 2.0
    fewer = plan.width("age, mean", epsilon=0.3, n_samples=round(before(n)))
    assert fewer.width > 2.0 and plan.width("age, mean", epsilon=0.3, n_samples=1000).width > 2.0


def test_widths_that_cannot_be_had_are_refused():
    plan = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000, epsilon=1.0)
    with pytest.raises(ValueError, match=r"1,000,000 rows do not make the width of 'count' 1 at"):
        plan.rows_for(1.0, "count")
    with pytest.raises(ValueError, match=r"no epsilon makes the width of 'count' 0\.0001"):
        plan.epsilon_for(0.0001, "count")


# How it looks -----------------------------------------------------------------------------------


def test_a_plan_prints_a_line_for_each_number_and_size():
    options = {"epsilon": [0.3, 1.0], "n_repeats": 1}
    sizes = [1000, 2000]
    plan = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=sizes, **options)
    lines = repr(plan).splitlines()
    assert lines[0].startswith("Widths of what private_counts would release") and "~" not in lines
    assert [line.split()[:2] for line in lines[2:]] == [
        [of, n] for of in ("count", "share") for n in ("1,000", "2,000")
    ]
    assert plan.to_frame().shape == (8, 8) and len(plan.widths) == 8
    assert "~" in repr(plan_accuracy(private_summary, None, SCHEMA, n_samples=500, **options))


def test_widths_are_drawn_against_epsilon_and_rows():
    pytest.importorskip("matplotlib").use("Agg")
    options = {"epsilon": [0.3, 1.0], "n_samples": [500, 1000, 2000], "n_repeats": 2}
    plan = plan_accuracy(private_summary, None, SCHEMA, **options)
    assert plan.plot(of="age, median") is plan
    left, right = plan.ax_
    assert [len(each.lines) for each in (left, right)] == [3, 2]
    assert [len(each.collections) for each in (left, right)] == [3, 2]  # bands
    shown = right.lines[1].get_ydata()
    said = [plan.width("age, median", epsilon=1.0, n_samples=n).width for n in (500, 1000, 2000)]
    np.testing.assert_array_equal(shown, said)
    assert plan.plot(of="age, mean", ax=plan.ax_).ax_[0].get_ylabel() == "width of age, mean"
    with pytest.raises(ValueError, match="`ax` must hold 2 axes"):
        plan.plot(ax=left)
    one = plan_accuracy(private_counts, None, SCHEMA, "ward", n_samples=1000).plot()
    assert one.ax_.get_xscale() == "log" and len(one.ax_.lines) == 1


# Mistakes ---------------------------------------------------------------------------------------

MODEL = LogisticRegression().fit(X[:300], Y[:300])
WARD = (private_counts, None, SCHEMA, "ward")


@pytest.mark.parametrize(
    ("args", "options", "error", "match"),
    [
        ((private_spread, X), {}, ValueError, "`what` must be one of the functions"),
        (("private_mean", X), {}, ValueError, "`what` must be one of the functions"),
        ((DPSGDClassifier, X, Y), {}, ValueError, "`what` must be one of the functions"),
        ((LogisticRegression(), X, Y), {}, ValueError, "cannot be drawn"),
        ((DPSGDClassifier(),), {}, ValueError, "a model is planned on public rows with targets"),
        ((DPSGDClassifier(), X, Y), {"groups": Y}, ValueError, "rows are drawn one by one"),
        ((private_mean, None), {}, ValueError, "neither public rows nor a `schema`"),
        ((private_mean, X), {"groups": Y}, ValueError, "rows are drawn one by one"),
        ((private_counts, FRAME), {}, TypeError, "missing a required argument"),
        ((private_mean, X), {"scale": 3}, TypeError, "unexpected keyword argument"),
        (WARD, {}, ValueError, "`n_samples` must be given"),
        (WARD, {"n_samples": 0}, ValueError, "`n_samples` must be an integer"),
        (WARD, {"n_samples": []}, ValueError, "`n_samples` must be a number or several"),
        (WARD, {"n_samples": 9, "epsilon": math.inf}, ValueError, "`epsilon` must be"),
        (WARD, {"n_samples": 9, "epsilon": [1, 0]}, ValueError, r"`epsilon\[...\]` must be"),
        (WARD, {"n_samples": 9, "n_repeats": 0}, ValueError, "`n_repeats` must be"),
        (WARD, {"n_samples": 9, "random_state": None}, ValueError, "`random_state` must be"),
    ],
)
def test_mistakes_are_told(args, options, error, match):
    with pytest.raises(error, match=match):
        plan_accuracy(*args, **options)


def test_a_number_and_a_size_must_be_named_where_there_are_several():
    plan = plan_accuracy(*WARD, n_samples=[100, 200], epsilon=1.0)
    with pytest.raises(ValueError, match="`of` must be given, as 2 were planned"):
        plan.epsilon_for(3.0)
    with pytest.raises(ValueError, match=r"`of` must be one of .*, got 'counts'. Did you mean"):
        plan.epsilon_for(3.0, "counts", n_samples=100)
    with pytest.raises(ValueError, match="`n_samples` must be given"):
        plan.epsilon_for(3.0, "count")
    for width in (0, -1, math.nan, "1"):
        with pytest.raises(ValueError, match="`width` must be"):
            plan.rows_for(width, "share")


# Messages before a charge -----------------------------------------------------------------------


def few(n):
    return FRAME[:n] if n <= N else FRAME.sample(n, replace=True, random_state=0)


def rows(n):
    return np.zeros((n, 6)) + np.arange(n)[:, None] % 2


RANGE = {"age": PrivateRange(), "ward": ["A", "B"]}
CALLS = {
    "summary": (60, lambda n, e: private_summary(few(n), SCHEMA, epsilon=e)),
    "counts": (60, lambda n, e: private_counts(few(n), SCHEMA, ["age", "ward"], epsilon=e)),
    "coefficients": (60, lambda n, e: private_coefficients(few(n), SCHEMA, "age", epsilon=e)),
    "mean": (20, lambda n, e: private_mean(rows(n), bounds=(0, 1), epsilon=e)),
    "covariance": (20, lambda n, e: private_covariance(rows(n), bounds=(0, 1), epsilon=e)),
    "quantile": (99, lambda n, e: private_quantile(rows(n), [0.25, 0.5], epsilon=e)),
    "spread": (99, lambda n, e: private_spread(rows(n), epsilon=e)),
    "range": (
        60,
        lambda n, e: tabular_pipeline("classification", RANGE, epsilon=e).fit(
            few(n)[["age", "ward"]], few(n)["sex"]
        ),
    ),
    "roc_auc": (20, lambda n, e: private_score(MODEL, X[:n], Y[:n], metric="roc_auc", epsilon=e)),
    "r2": (
        20,
        lambda n, e: private_score(
            LinearRegression().fit(X, X[:, 0]),
            np.resize(X, (n, 3)),
            np.resize(X[:, 0], n),
            metric="r2",
            epsilon=e,
            target_bounds=(-5, 5),
        ),
    ),
}
TAKES = r"(?:It takes|Use) at least ([\d,]+\d) rows,? or an epsilon of ([\d.]*\d)"


def told(name, n, epsilon):
    """Rows and epsilon that a refusal or a warning before the charge of a call names, or None."""
    with PrivacyLedger(epsilon=1e6, delta=1e-5), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            CALLS[name][1](n, epsilon)
            refused = ""
        except (PrivacyError, ValueError) as error:
            refused = str(error)
    texts = [refused, *(str(each.message) for each in caught)]
    found = [match for text in texts if (match := re.search(TAKES, text))]
    return (int(found[0][1].replace(",", "")), float(found[0][2])) if found else None


@pytest.mark.parametrize("name", CALLS)
def test_the_rows_and_the_epsilon_that_a_message_names_are_enough(name):
    """All of it follows from public sizes, whatever the noise is."""
    n, epsilon = CALLS[name][0], 0.1
    more, larger = told(name, n, epsilon)
    assert more > n and larger > epsilon
    assert told(name, n, larger) is None and told(name, more, epsilon) is None
    if name not in ("roc_auc", "r2"):  # of which more is said, to be enough 99 of 100 times
        assert told(name, n, before(larger)) is not None
        assert told(name, max(round(before(more)), n), epsilon) is not None


def test_categories_of_a_target_are_planned_like_others():
    schema = {"age": Range(0, 100), "sex": Categories(["f", "m"])}
    options = {"n_samples": 2000, "epsilon": 3.0, "n_repeats": 2}
    plan = plan_accuracy(private_coefficients, None, schema, "sex", **options)
    assert plan.names == ("Intercept", "age")
