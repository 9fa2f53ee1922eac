"""Counts and summaries of tables: what they say, how often intervals cover, what they refuse."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import releases
from scipy.stats import binom

from dpsubspace import (
    Categories,
    PrivacyLedger,
    PrivacyWarning,
    PrivateRange,
    Range,
    private_counts,
    private_summary,
)
from dpsubspace._core.accounting.guarantee import footnote
from dpsubspace._core.rows.records import NullRecords, check_groups
from dpsubspace._core.statistics.table_cells import (
    CountNoise,
    Ratio,
    around,
    cell_total,
    holding,
    in_order,
    onto_margins,
    onto_total,
    unit_sums,
)
from dpsubspace.exceptions import PrivacyBudgetError
from dpsubspace.statistics import PrivateCountsDisplay, PrivateSummary, private_quantile

INF = math.inf
SCHEMA = {
    "age": (18, 90),
    "lactate": Range(0, 30, log=True, missing=True),
    "ward": ["A", "B", "C"],
    "drug": Categories(["no", "yes"], missing=True),
    "sex": ["f", "m"],
}
PRIVATE_WARNINGS = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")


def table(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": np.clip(rng.normal(60, 12, n), 18, 90),
            "lactate": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(0.7, 0.5, n)),
            "ward": rng.choice(["A", "B", "C"], n, p=[0.7, 0.25, 0.05]),
            "drug": rng.choice(["no", "yes"], n),
            "sex": rng.choice(["f", "m", "?"], n, p=[0.5, 0.45, 0.05]),
        }
    )
    frame.loc[rng.random(n) < 0.1, "drug"] = None
    return frame


FRAME = table()


def assert_often(covered, level, *, exact=True):
    """As often as is said: the number is too small, or too large, once in 5e10."""
    covered = np.ravel(covered)
    assert covered.sum() >= binom.ppf(1e-11, len(covered), level)
    if exact:
        assert covered.sum() <= binom.ppf(1 - 1e-11, len(covered), level)


# Counts -----------------------------------------------------------------------------------------


def test_counts_without_noise_are_those_of_pandas():
    found = private_counts(FRAME, SCHEMA, ["sex", "drug"], epsilon=INF)
    filled = FRAME.replace({"sex": {"?": "not listed"}})
    filled["drug"] = filled["drug"].fillna("missing")
    exact = pd.crosstab(filled["sex"], filled["drug"]).reindex(
        index=found.labels[0], columns=found.labels[1], fill_value=0
    )
    np.testing.assert_array_equal(found.counts, exact)
    for ends in (found.low, found.high, found.noisy):
        np.testing.assert_array_equal(ends, exact)
    assert (found.mechanism, found.scale) == ("none", 0.0)
    np.testing.assert_array_equal(found.margin("drug").counts, exact.sum())
    np.testing.assert_array_equal(found.margin(["drug", "sex"]).counts, exact.T)


def test_numbers_are_counted_between_edges_and_beyond_the_last():
    values = pd.DataFrame({"x": [-5.0, 0.0, 0.5, 1.0, 1.5, 2.0, 9.0, np.nan]})
    schema = {"x": Range(-1, 3, missing=True)}
    found = private_counts(values, schema, "x", bins=[0, 1, 2], epsilon=INF)
    assert found.labels == (("(-inf, 1)", "[1, inf)", "missing"),)
    assert found.counts.tolist() == [3, 4, 1]
    narrow = private_counts(values, schema, "x", bins=[-1, 1, 3], epsilon=INF)
    assert narrow.labels == (("[-1, 1)", "[1, 3]", "missing"),)
    equal = private_counts(values, schema, "x", bins=4, epsilon=INF)
    assert equal.edges["x"].tolist() == [-1, 0, 1, 2, 3]
    assert equal.counts.tolist() == [1, 2, 2, 2, 1]
    private = private_counts(
        values, {"x": PrivateRange(missing=True)}, "x", bins={"x": [0, 1, 2]}, epsilon=INF
    )
    assert private.counts.tolist() == [3, 4, 1]
    assert private.labels == found.labels
    steep = private_counts(FRAME, SCHEMA, "lactate", bins=8, epsilon=INF).edges["lactate"]
    assert np.all(np.diff(steep, 2) > 0) and steep[[0, -1]].tolist() == [0, 30]


def test_every_library_gives_the_same_counts():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    kinds = [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME), FRAME.to_numpy()]
    options = {"epsilon": 1.0, "random_state": 0}
    counts = [private_counts(f, SCHEMA, ["drug", "age"], **options).noisy for f in kinds]
    found = [private_summary(f, SCHEMA, by="sex", **options).entries for f in kinds]
    assert all(np.array_equal(each, counts[0]) for each in counts)
    assert all(each == found[0] for each in found)


@PRIVATE_WARNINGS
@pytest.mark.parametrize("columns", ["age", ["ward", "drug"], ["sex", "lactate", "drug"]])
def test_counts_add_up_and_are_not_negative(columns):
    for seed in range(5):
        found = private_counts(FRAME[:300], SCHEMA, columns, epsilon=0.1, random_state=seed)
        assert found.counts.min() >= 0 and found.counts.sum() == pytest.approx(300)
        for each in (found, *map(found.margin, found.columns)):
            assert each.counts.sum() == pytest.approx(300)
            assert np.all((each.low <= each.counts) & (each.counts <= each.high))
            assert np.all((each.low >= 0) & (each.high <= 300 + 1e-6))
        for name in found.columns:
            margin = found.margin(name)
            nearest = onto_total(margin.noisy, 300)
            np.testing.assert_allclose(margin.counts, nearest, atol=0.01)
    assert found.to_frame()["share"].sum() == pytest.approx(1)


def many_cells(n_cells=600, each=100):
    rows = pd.DataFrame({"x": np.repeat(np.arange(n_cells), each)})
    return rows, {"x": Range(0, n_cells)}, np.arange(n_cells + 1) - 0.5


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_intervals_of_counts_cover_as_often_as_they_say(mechanism, relation):
    rows, schema, edges = many_cells()
    options = {"bins": edges, "level": 0.8, "neighboring_relation": relation}
    if mechanism == "gaussian":
        with PrivacyLedger(1.0, 1e-5, neighboring_relation=relation):
            found = private_counts(rows, schema, "x", epsilon=0.9, **options)
    else:
        found = private_counts(rows, schema, "x", epsilon=0.9, **options)
    assert found.mechanism == mechanism
    assert_often((found.low <= 100) & (found.high >= 100), 0.8)
    sums = found.noisy.reshape(-1, 4).sum(axis=1)
    half = CountNoise(mechanism, found.scale).half_width(0.8, 4)
    assert_often(np.abs(sums - 400) <= half, 0.8)


@pytest.mark.parametrize("exact", [0, 1, 59])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_intervals_of_small_counts_are_never_one_point_and_cover(mechanism, exact):
    noise, n, level = CountNoise(mechanism, 20.0), 60, 0.8
    rng = np.random.default_rng(exact)
    draw = rng.laplace if mechanism == "laplace" else rng.normal
    noisy, half = exact + draw(scale=noise.scale, size=20_000), noise.half_width(level)
    low, high = around(noisy, half, n)
    assert (low >= 0).all() and (high <= n).all() and (high - low >= half).all()
    covered = (low <= exact) & (exact <= high)
    assert_often(covered, level, exact=False)
    assert (covered >= (np.abs(noisy - exact) <= half)).all()


@PRIVATE_WARNINGS
def test_no_printed_interval_says_that_a_cell_is_surely_empty():
    rows, schema, edges = many_cells(n_cells=300, each=1)
    found = private_counts(rows, schema, "x", bins=edges, epsilon=0.2)
    assert (found.noisy < -found._noise.half_width(0.5)).any()  # but for once in 1e28
    assert (found.high > 1).all()
    assert (found.margin("x").high == found.high).all()
    labels = [f"{i}" for i in range(100)]
    summary = private_summary(pd.DataFrame({"x": labels}), {"x": labels}, epsilon=0.2)
    ends = summary.to_frame()
    ends = ends[ends["statistic"].isin(["count", "share"]) & (ends["column"] == "x")]
    assert len(ends) == 202 and (ends["high"] > ends["low"]).all()


def test_the_noise_of_sums_has_the_quantiles_that_are_said():
    draws = np.random.default_rng(0).laplace(size=(40_000, 6))
    for k in (1, 2, 6):
        for level in (0.5, 0.9, 0.99):
            half = CountNoise("laplace", 1.0).half_width(level, k)
            assert_often(np.abs(draws[:, :k].sum(axis=1)) <= half, level)


def test_outside_of_a_ledger_noise_has_no_delta_and_inside_it_is_gaussian():
    found = private_counts(FRAME, SCHEMA, "ward", epsilon=0.5)
    assert (found.mechanism, found.scale) == ("laplace", pytest.approx(2.0, rel=1e-6))
    assert found.privacy_.delta == 0 and found.privacy_.epsilon == 0.5
    replaced = private_counts(
        FRAME, SCHEMA, "ward", epsilon=0.5, neighboring_relation="replace_one"
    )
    assert replaced.scale == pytest.approx(4.0, rel=1e-6)
    ledger = PrivacyLedger(1.0, 1e-5)
    inside = ledger.run(private_counts, FRAME, SCHEMA, "ward", epsilon=0.5)
    assert inside.mechanism == "gaussian" and ledger.epsilon() == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(PrivacyBudgetError):
        ledger.run(private_summary, FRAME, SCHEMA, epsilon=0.9)
    # With a large delta, and far out, intervals of Gaussian noise are shorter.
    options = {"epsilon": 0.5, "delta": 0.01, "level": 1 - 1e-7}
    far = private_counts(FRAME[:60], SCHEMA, "ward", **options)
    assert far.mechanism == "gaussian" and far.privacy_.delta == 0.01


@PRIVATE_WARNINGS
def test_laplace_noise_takes_no_delta_of_a_user_either():
    """So nothing is searched for that is nearly nothing, and takes minutes for a small epsilon."""
    near = private_counts(FRAME, SCHEMA, "ward", epsilon=0.5, delta=1e-5)
    assert (near.mechanism, near.privacy_.delta) == ("laplace", 0)
    hidden = private_counts(FRAME[:60], SCHEMA, "ward", epsilon=1e-4, delta=0.01)
    assert hidden.mechanism == "gaussian" and hidden.privacy_.delta == 0.01


def test_many_cells_are_told_of_before_anything_is_charged():
    ledger = PrivacyLedger(1.0, 1e-5)
    options = {"bins": 300, "epsilon": 0.5}
    with (
        pytest.warns(PrivacyWarning, match="released as 1 or more"),
        pytest.raises(PrivacyBudgetError),
    ):
        ledger.run(private_counts, FRAME, SCHEMA, ["age", "lactate"], **options | {"epsilon": 2.0})
    assert ledger.epsilon() == 0
    with pytest.raises(ValueError, match="10,000,000 are counted"):
        private_counts(FRAME, SCHEMA, ["age", "lactate"], bins=4000)


def test_a_person_counts_as_one():
    frame = pd.DataFrame({"ward": ["A", "A", "B", "A", "C"]})
    whose = [1, 1, 1, 2, 3]
    found = private_counts(frame, {"ward": ["A", "B", "C"]}, "ward", epsilon=INF, groups=whose)
    np.testing.assert_allclose(found.counts, [5 / 3, 1 / 3, 1, 0], atol=1e-6)
    assert (found.n, found.unit) == (3, "person")


@pytest.mark.parametrize("heavy", [1, 1000])
def test_a_person_moves_counts_and_sums_within_their_bounds(heavy):
    rng, others = np.random.default_rng(0), 30
    groups = np.concatenate([np.arange(others), np.full(heavy, others)])
    for _ in range(20):
        shared = rng.integers(0, 6, others), rng.uniform(-1, 1, others)
        cells, units = [], []
        for _ in range(2):  # one person's rows, and others in their place
            cells.append(np.concatenate([shared[0], rng.integers(0, 6, heavy)]))
            ends = rng.choice([-1.0, 1.0, rng.uniform(-1, 1), np.nan], heavy)
            units.append(np.concatenate([shared[1], ends]))
        records = check_groups(groups, np.empty((len(groups), 1)))
        one, other = (cell_total(each, 6, records) for each in cells)
        assert np.abs(one - other).sum() <= 2 and np.linalg.norm(one - other) <= math.sqrt(2)
        pairs = zip(units, cells, strict=True)
        one, other = (np.stack(unit_sums(u, cell % 2, 2, records)) for u, cell in pairs)
        assert np.linalg.norm(one - other) <= 2 * math.sqrt(2)


@PRIVATE_WARNINGS
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_neighbours_move_every_release_of_a_table_by_its_bound_at_most(
    monkeypatch, relation, persons
):
    """And some by all of it: numbers at the ends, missing, and of no listed category or group."""
    rng, n = np.random.default_rng(0), 30
    whose = np.repeat(np.arange(n // 3), 3) if persons else np.arange(n)
    most = {}
    for turn in range(12):
        frame = table(n, seed=turn).astype({"ward": object, "sex": object})
        other, mine, extreme = frame.copy(), whose == 0, turn % 2 == 0
        for rows, age, sex in ((frame, -math.inf, "f"), (other, math.inf, "m")):
            rows.loc[mine, "age"] = age if extreme else rng.choice([1e300, 18, 60, 90], mine.sum())
            rows.loc[mine, "sex"] = sex if extreme else rng.choice(["f", "?"], mine.sum())
            rows.loc[mine, "lactate"] = 0.0 if extreme else rng.choice([math.nan, 9e9, 1e-9])
            rows.loc[mine, "ward"] = "A" if sex == "f" else "elsewhere"
            rows.loc[mine, "drug"] = None if sex == "m" else "no"
        groups = whose if persons else None
        one, two = groups, groups
        if relation == "zero_out":
            other, one = frame, NullRecords(groups, np.ones(n, dtype=bool))
            two = NullRecords(groups, ~mine)
        options = {"neighboring_relation": relation, "by": "sex", "random_state": 0}
        with releases(monkeypatch) as first:
            here = private_summary(frame, SCHEMA, groups=one, **options)
        with releases(monkeypatch, first) as second:
            there = private_summary(other, SCHEMA, groups=two, **options)
        assert here.entries == there.entries and here.privacy_.details() == there.privacy_.details()
        for place, ((total, _, _), (moved, _, _)) in enumerate(zip(first, second, strict=True)):
            name = ("counts", "moments", "quantiles")[min(place, 2)]
            bound = total.norm_bound if relation == "zero_out" else total.replace_bound
            most[name] = max(most.get(name, 0.0), np.linalg.norm(total.value - moved.value) / bound)
    assert max(most.values()) <= 1
    # Two rows of sums are nearer to each other than the triangle inequality says.
    least = {"counts": 0.99, "moments": 0.99 if relation == "zero_out" else 0.7, "quantiles": 0.99}
    assert all(most[name] >= least[name] for name in least), most


def test_counts_print_as_a_table():
    found = private_counts(FRAME, SCHEMA, ["ward", "sex"], epsilon=1.0, random_state=0)
    lines = repr(found).split("\n")
    assert lines[0] == "Rows by ward and sex (n = 4,000; 95% intervals, for noise alone)"
    assert lines[1].split() == ["ward", "sex", "count", "low", "high"] and len(lines) == 16
    assert lines[-2:] == ["", footnote(found.privacy_)]
    assert found._repr_html_().count("<tr>") == 13
    assert found._repr_html_().endswith(f"<p>{footnote(found.privacy_)}</p>")
    with pytest.warns(PrivacyWarning):
        long = private_counts(FRAME, SCHEMA, ["ward", "age"], bins=900, epsilon=0.01)
    assert "more cells: see to_frame()" in repr(long) and "more cells" in long._repr_html_()
    with pytest.raises(ValueError, match="margins of the whole table"):
        long.margin("age").margin("age")


@pytest.mark.parametrize("columns", ["age", ["ward", "sex"]])
def test_bars_are_drawn_with_intervals(columns):
    pytest.importorskip("matplotlib").use("Agg")
    found = private_counts(FRAME, SCHEMA, columns, epsilon=1.0)
    display = PrivateCountsDisplay.from_counts(found, bar_kw={"capsize": 5})
    heights = [[bar.get_height() for bar in bars] for bars in display.bars_]
    np.testing.assert_allclose(np.squeeze(np.transpose(heights)), found.counts)
    assert display.map_ is None


def test_a_large_table_is_drawn_as_a_map_and_no_more_than_two_columns():
    pytest.importorskip("matplotlib").use("Agg")
    found = private_counts(FRAME, SCHEMA, ["age", "lactate", "sex"], epsilon=1.0)
    display = PrivateCountsDisplay.from_counts(found.margin(["age", "lactate"]))
    assert display.map_ is not None and display.bars_ == []
    with pytest.raises(ValueError, match="one column or two"):
        PrivateCountsDisplay.from_counts(found)


@pytest.mark.parametrize(
    ("columns", "options", "match"),
    [
        ("age", {"bins": 0}, "bins"),
        ("age", {"bins": [3, 2]}, "edges that rise"),
        ("age", {"bins": [0, np.inf]}, "finite"),
        ("age", {"bins": {"ward": 3}}, "no columns of numbers"),
        ("estimated", {}, "no public range"),
        (["age", "age"], {}, "each once"),
        ([], {}, "one or more"),
        ("height", {}, "none of"),
        ("age", {"level": 1.0}, "level"),
        ("age", {"epsilon": 0.0}, "epsilon"),
    ],
)
def test_what_cannot_be_counted_is_refused_before_it_costs(columns, options, match):
    schema = SCHEMA | {"estimated": PrivateRange()}
    ledger = PrivacyLedger(1.0, 1e-5)
    with pytest.raises(ValueError, match=match):
        options = {"epsilon": 1.0} | options
        ledger.run(private_counts, FRAME.assign(estimated=1.0), schema, columns, **options)
    assert ledger.epsilon() == 0


# Summaries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [None, "sex"])
def test_a_summary_without_noise_is_that_of_pandas(by):
    found = private_summary(FRAME, SCHEMA, by=by, epsilon=INF)
    for group in found.groups:
        rows = FRAME if by is None else FRAME[FRAME["sex"] == group]

        def value(*what, group=group, **more):
            return found.entry(*what, group=group, **more).value

        assert value("", "count") == len(rows)
        for name in ("age", "lactate"):
            assert value(name, "mean") == pytest.approx(rows[name].mean(), abs=1e-5)
            assert value(name, "standard deviation") == pytest.approx(
                rows[name].std(ddof=0), rel=1e-5
            )
            levels = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
            for statistic, level in levels.items():
                assert value(name, statistic) == pytest.approx(rows[name].quantile(level))
        drug = rows["drug"]
        assert value("drug", "count", category="yes") == (drug == "yes").sum()
        assert value("drug", "share", category="yes") == pytest.approx(
            (drug.dropna() == "yes").mean()
        )
        assert value("drug", "share", category="missing") == pytest.approx(drug.isna().mean())
        assert value("lactate", "count", category="missing") == rows["lactate"].isna().sum()


@PRIVATE_WARNINGS
def test_the_counts_of_a_summary_agree():
    for seed in range(10):
        found = private_summary(FRAME[:200], SCHEMA, by="sex", epsilon=0.5, random_state=seed)
        frame = found.to_frame()
        sizes = frame[frame["column"] == ""].set_index("group")["value"]
        assert sizes.min() >= 0 and sizes.sum() <= 200 + 1e-9
        counts = frame[(frame["statistic"] == "count") & frame["column"].isin(["ward", "drug"])]
        sums = counts.groupby(["column", "group"])["value"].sum().unstack()
        for name in ("ward", "drug"):
            np.testing.assert_allclose(sums.loc[name], sizes[sums.columns], atol=1e-9)
        assert counts["value"].min() >= 0
        assert (frame["low"] <= frame["high"]).all()


def grouped(n, lost, seed=0):
    rng = np.random.default_rng(seed)
    frame = table(n, seed)
    frame["sex"] = frame["sex"].mask(rng.random(n) < lost, None)
    return frame, SCHEMA | {"sex": Categories(["f", "m"], missing=True)}


def assert_adds_up(found):
    """Groups, cells and shares add up; quartiles rise; each interval holds its value."""
    frame = found.to_frame()
    sizes = frame[frame["column"] == ""].set_index("group")["value"]
    assert sizes.min() >= 0 and sizes.sum() == pytest.approx(found.n)
    own = frame[frame["column"] != ""]
    counts, shares = (own[own["statistic"] == kind] for kind in ("count", "share"))
    for (column, group), cells in counts[counts["column"] != "lactate"].groupby(
        ["column", "group"]
    ):
        assert cells["value"].sum() == pytest.approx(sizes[group], abs=1e-6)
        parts = shares[(shares["column"] == column) & (shares["group"] == group)]
        parts = parts[parts["category"] != "missing"]["value"]
        assert parts.isna().all() or parts.sum() == pytest.approx(1)
    assert counts["value"].min() >= 0
    for group in found.groups:
        for column in ("age", "lactate"):
            names = ("lower quartile", "median", "upper quartile")
            each = np.array([found.entry(column, name, group=group)[4:] for name in names])
            assert (np.diff(each, axis=0) >= 0).all()
            kind = SCHEMA[column]
            low, high = kind._ends if isinstance(kind, Range) else kind
            mean, spread = (
                found.entry(column, name, group=group).value
                for name in ("mean", "standard deviation")
            )
            assert low <= each.min() and each.max() <= high
            assert low <= mean <= high and 0 <= spread <= (high - low) / 2
    numbers = frame[frame["value"].notna()]
    assert ((numbers["low"] <= numbers["value"]) & (numbers["value"] <= numbers["high"])).all()


@PRIVATE_WARNINGS
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize(("n", "lost"), [(60, 0.0), (60, 0.5), (600, 0.0), (600, 0.4)])
@pytest.mark.parametrize("by", [None, "sex"])
def test_numbers_of_a_summary_add_up_and_have_an_order(n, lost, by, epsilon):
    for seed in range(3):
        frame, schema = grouped(n, lost, seed)
        assert_adds_up(private_summary(frame, schema, by=by, epsilon=epsilon, random_state=seed))


@pytest.mark.parametrize("epsilon", [5.0, INF])
def test_rows_of_no_group_are_a_column_of_their_own(epsilon):
    frame, schema = grouped(2000, 0.4)
    found = private_summary(frame, schema, by="sex", epsilon=epsilon, random_state=0)
    outside = found.entry("", "count", group="no group")
    n = frame["sex"].isna().sum() + (frame["sex"] == "?").sum()
    assert outside.value == pytest.approx(n, abs=60) and outside.low > 0
    head, sizes = repr(found).split("\n")[1:3]
    assert head.split() == ["f", "m", "no", "group"] and f"{outside.value:,.0f}" in sizes
    assert found.groups == ("f", "m")
    # Where noise hides that there are any, the groups add up without them.
    whole = private_summary(FRAME[FRAME["sex"] != "?"], SCHEMA, by="sex", epsilon=epsilon)
    hidden = whole.entry("", "count", group="no group")
    if hidden.low == 0:  # but 1 time in 20
        assert hidden.value == 0 and "no group" not in repr(whole)


def test_a_share_of_no_rows_is_unknown_and_so_are_its_differences():
    entries = [
        ("", "count", None, "f", 40.0, 38.0, 42.0),
        ("", "count", None, "m", 0.0, 0.0, 2.0),
        ("drug", "count", "yes", "f", 10.0, 8.0, 12.0),
        ("drug", "share", "yes", "f", 0.25, 0.2, 0.3),
        ("drug", "count", "yes", "m", 0.0, 0.0, 2.0),
        ("drug", "share", "yes", "m", math.nan, 0.0, 1.0),
    ]
    found = PrivateSummary(entries, ("f", "m"), "sex", 40, "row", 0.95)
    assert "0 (share unknown)" in repr(found)
    for population in (False, True):
        apart = found.compare("drug", "f", "m", category="yes", population=population)
        assert math.isnan(apart.value)
        assert (apart.low, apart.high) == pytest.approx((-0.8, 0.3))


def test_an_interval_is_widened_to_its_value_and_no_further():
    low, high = holding(np.array([5.0, 1.0, 7.0]), [6.0, 0.0, 6.0], [8.0, 0.5, 8.0])
    assert (low.tolist(), high.tolist()) == ([5.0, 0.0, 6.0], [8.0, 1.0, 8.0])


def test_quantiles_in_order_cover_whenever_they_did_and_hold_their_values():
    rng = np.random.default_rng(0)
    exact = np.sort(rng.normal(size=(2000, 3)), axis=-1)
    low, high = exact - rng.normal(1, 1, exact.shape), exact + rng.normal(1, 1, exact.shape)
    low, high = np.minimum(low, high), np.maximum(low, high)
    values = rng.uniform(low, high)
    new, begin, end = in_order(values, low, high)
    for each in (new, begin, end):
        assert (np.diff(each, axis=-1) >= 0).all()
    covered = (low <= exact) & (exact <= high)
    assert ((begin <= exact) & (exact <= end))[covered].all()
    assert ((begin <= new) & (new <= end)).all()


@pytest.mark.parametrize("bounds", [None, (18, 90)])
@pytest.mark.filterwarnings("ignore:the noise of the counts hides:dpsubspace.PrivacyWarning")
def test_quantiles_rise_with_their_levels(bounds):
    levels = np.array([0.55, 0.48, 0.5, 0.52, 0.45])  # less than the noise of ranks apart
    for seed in range(10):
        rows = table(1500, seed)[["age", "lactate"]].fillna(2.0).to_numpy()
        options = {"epsilon": 0.5, "bounds": bounds, "random_state": seed}
        found = private_quantile(rows, levels, **options).value
        assert (np.diff(found[np.argsort(levels)], axis=0) >= 0).all()


def exact_quantile(values, level):
    return np.quantile(values, level, method="inverted_cdf")


@pytest.mark.wide
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_intervals_of_a_summary_cover_what_the_rows_give(relation):
    """Of 150 summaries; two groups and three columns have noise of their own."""
    exact = private_summary(FRAME, SCHEMA, by="sex", epsilon=INF).to_frame()
    for place, (column, statistic, _, group) in enumerate(
        exact.iloc[:, :4].itertuples(index=False)
    ):
        levels = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}
        if statistic in levels:
            own = FRAME[column][FRAME["sex"] == group].dropna()
            exact.loc[place, "value"] = exact_quantile(own, levels[statistic])
    options = {"by": "sex", "epsilon": 1.0, "level": 0.9, "neighboring_relation": relation}
    covered = []
    for seed in range(150):
        found = private_summary(FRAME, SCHEMA, **options, random_state=seed).to_frame()
        covered.append((found["low"] <= exact["value"]) & (exact["value"] <= found["high"]))
    covered = np.array(covered)
    assert_often(covered[:, (exact["statistic"] == "mean") & (exact["column"] == "age")], 0.9)
    share = (exact["statistic"] == "share") & (exact["group"] == "f")
    for category in ("A", "yes"):
        assert_often(covered[:, share & (exact["category"] == category)], 0.9)
    sizes = exact["column"] == ""
    assert_often(covered[:, sizes & (exact["group"] == "f")], 0.9)
    wide = exact["statistic"].isin(["standard deviation", "median", "lower quartile"])
    for place in np.flatnonzero(wide):
        assert_often(covered[:, place], 0.9, exact=False)


@PRIVATE_WARNINGS
def test_intervals_of_deviations_cover_where_noise_is_all_there_is():
    """Numbers at both ends of their range deviate the most, and a few of them are hidden."""
    values = np.resize([0.0, 10.0], 20)
    covered = []
    for seed in range(100):
        options = {"epsilon": 0.1, "level": 0.9, "random_state": seed}
        found = private_summary(pd.DataFrame({"x": values}), {"x": (0, 10)}, **options)
        entry = found.entry("x", "standard deviation")
        covered.append(entry.low <= 5.0 <= entry.high)
    assert_often(covered, 0.9, exact=False)


def test_a_summary_has_the_noise_that_its_docstring_says():
    noise = private_summary(FRAME, SCHEMA, by="sex").noise
    assert noise["counts"] == pytest.approx(noise["moments"])
    assert noise["quantiles"] == pytest.approx(math.sqrt(3) * noise["counts"])
    found = private_summary(FRAME, SCHEMA, epsilon=1.0, delta=1e-6).privacy_
    assert (found.epsilon, found.delta, found.of) == (1.0, 1e-6, "private_summary")


@PRIVATE_WARNINGS
@pytest.mark.parametrize("column", ["age", "ward"])
def test_a_summary_of_one_column(column):
    found = private_summary(FRAME[:100], {column: SCHEMA[column]}, epsilon=0.5)
    assert len(found.to_frame()) == {"age": 6, "ward": 9}[column]
    assert found.entry("", "count")[4:] == (100, 100, 100)


@PRIVATE_WARNINGS
def test_groups_without_rows_and_columns_without_values_are_described_too():
    frame = FRAME[:50].assign(sex="f", lactate=np.nan)
    for epsilon in (0.1, 1e4, INF):
        found = private_summary(frame, SCHEMA, by="sex", epsilon=epsilon, random_state=0)
        known = [e for e in found.entries if e.statistic != "share" or e.value == e.value]
        assert np.isfinite([e[4:] for e in known]).all() or epsilon == INF
        nobody = found.entry("lactate", "mean", group="m")
        assert (nobody.low, nobody.high) == (0, 30)
        assert repr(found) and found._repr_html_()


def test_persons_of_a_summary():
    whose = np.arange(4000) // 4
    found = private_summary(FRAME, SCHEMA, by="sex", epsilon=INF, groups=whose)
    assert (found.n, found.unit) == (1000, "person")
    assert found.entry("", "count", group="f").value == pytest.approx(
        (FRAME["sex"] == "f").sum() / 4, abs=0.01
    )
    assert "persons" in repr(found)
    with PrivacyLedger(1.0, 1e-5, unit="person") as ledger:
        private_summary(FRAME, SCHEMA, epsilon=0.3, groups=whose)
    assert ledger.epsilon() == pytest.approx(0.3, rel=1e-3)


def test_a_small_sample_is_warned_of_by_public_numbers():
    with pytest.warns(PrivacyWarning, match="expect wide intervals"):
        private_summary(FRAME[:20], SCHEMA, by="sex", epsilon=0.1)


def test_summaries_print_as_a_table():
    found = private_summary(FRAME, SCHEMA, by="sex", epsilon=1.0, random_state=0)
    text = repr(found)
    assert text.startswith("Summary of 4,000 rows by sex (95% intervals, for noise alone)\n")
    for name in ("age, mean", "lactate, missing", "ward, B", "drug, missing"):
        assert f"\n{name} " in text
    assert text.endswith(f"\n\n{footnote(found.privacy_)}")
    assert found._repr_html_().endswith(f"<p>{footnote(found.privacy_)}</p>")
    assert found._repr_html_().count("<th ") == 4  # a name, two groups, and rows of no group
    exact = repr(private_summary(FRAME, SCHEMA, epsilon=INF))
    assert f"\nward, A{'':20}" in exact and "(" not in exact.split("\n")[3]


@pytest.mark.parametrize(
    ("schema", "by", "match"),
    [
        (SCHEMA, "age", "column of categories"),
        (SCHEMA, "height", "column of categories"),
        ({"age": PrivateRange()}, None, "no public range"),
        ({"hgt": (0, 1)}, None, "lacks the columns"),
        (SCHEMA, FRAME["ward"], "got a Series"),
    ],
)
def test_what_cannot_be_summarised_is_refused(schema, by, match):
    with pytest.raises(ValueError, match=match):
        private_summary(FRAME, schema, by=by)


@pytest.mark.parametrize("by", [None, "sex"])
def test_many_values_that_are_not_listed_are_told_by_released_counts(by):
    """A blank before the text of half of the rows; noise of 3 and 30 of 4,000 rows."""
    frame = FRAME.assign(drug=FRAME["drug"].where(FRAME["drug"] != "yes", " yes"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        private_counts(frame, SCHEMA, ["ward", "drug"] if by else "drug", epsilon=1.0)
        private_summary(frame, SCHEMA, by=by, epsilon=1.0)
        private_summary(FRAME, SCHEMA, by=by, epsilon=1.0)  # 5 % of one column are not listed
    texts = [str(each.message) for each in told]
    assert len(texts) == 2 and all("'drug' are not listed" in text for text in texts)
    assert all("blank before them" in text and "Schema.check" in text for text in texts)


def test_lists_of_a_schema_that_are_long_are_told_by_their_first_values():
    many = {"ward": [f"{i}" for i in range(200)], "sex": ["f", "m"]}
    with pytest.warns(PrivacyWarning, match=r"are none of \['0', '1', .*, \.\.\.\]\. Does"):
        private_counts(FRAME, many, "ward", epsilon=1.0)
    wide = {f"column {i}": (0, 1) for i in range(60)} | {"age": (18, 90)}
    for call in (private_counts, private_summary):
        options = {"columns": "hgt"} if call is private_counts else {"by": "age"}
        categories = {f"column {i}": ["a", "b"] for i in range(60)}
        with pytest.raises(ValueError, match=r"one of \['column 0'|none of \['column 0'"):
            call(FRAME, wide | categories, **options)


# Comparisons ------------------------------------------------------------------------------------


def test_groups_are_compared_without_another_release():
    ledger = PrivacyLedger(1.0, 1e-5)
    found = ledger.run(private_summary, FRAME, SCHEMA, by="sex", epsilon=0.5)
    difference = found.compare("age", "m", "f")
    f, m = (found.entry("age", "mean", group=group).value for group in "fm")
    assert difference.value == pytest.approx(m - f)
    assert difference.low < difference.value < difference.high
    wider = found.compare("age", "m", "f", population=True)
    assert wider.low < difference.low and wider.high > difference.high
    share = found.compare("ward", "m", "f", category="A")
    assert share.name == "ward, share of A" and "noise alone" in repr(share)
    assert "sampling" in repr(wider)
    assert found.compare("age", "f", "m", statistic="median").low < 20
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(ValueError, match="means and shares"):
        found.compare("age", "f", "m", statistic="median", population=True)
    with pytest.raises(ValueError, match="column='ward', statistic='mean'"):
        found.compare("ward", "f", "m")


def test_intervals_of_differences_cover():
    """Of 150 summaries: those for noise what these rows give, and others what they are drawn of."""
    means = FRAME.groupby("sex")["age"].mean()
    shares = (FRAME["ward"] == "A").groupby(FRAME["sex"]).mean()
    schema = {name: SCHEMA[name] for name in ("age", "ward", "sex")}
    covered, of_all = [], []
    for seed in range(150):
        options = {"by": "sex", "level": 0.9, "random_state": seed}
        found = private_summary(FRAME, schema, **options)
        age, ward = found.compare("age", "m", "f"), found.compare("ward", "m", "f", category="A")
        covered.append(
            (
                age.low <= means["m"] - means["f"] <= age.high,
                ward.low <= shares["m"] - shares["f"] <= ward.high,
            )
        )
        drawn = private_summary(table(2000, seed=(seed, 1)), schema, **options)
        of_all.append([drawn.compare("age", "m", "f", population=True)])
    for both in np.transpose(covered):
        assert_often(both, 0.9, exact=False)
    # Means of both groups are the same in the population.
    assert_often([each.low <= 0 <= each.high for (each,) in of_all], 0.9, exact=False)


# Parts ------------------------------------------------------------------------------------------


def test_projections_keep_what_adds_up():
    rng = np.random.default_rng(0)
    for _ in range(20):
        noisy = rng.normal(0, 3, size=(4, 5, 3))
        noisy[0, 0] += 100
        total = 300.0
        margins = [onto_total(noisy.sum(axis=axes), total) for axes in ((1, 2), (0, 2), (0, 1))]
        found = onto_margins(noisy, margins)
        assert found.min() >= 0
        for axes, margin in zip(((1, 2), (0, 2), (0, 1)), margins, strict=True):
            np.testing.assert_allclose(found.sum(axis=axes), margin, atol=0.01)
    assert onto_total(np.array([3.0, -1.0]), 4.0).tolist() == [4.0, 0.0]
    assert onto_total(np.array([3.0, -1.0]), 0.0).tolist() == [0.0, 0.0]


def test_a_quotient_that_noise_hides_may_be_anything():
    assert Ratio(1.0, 0.5, 1.0, 1.0).interval(0.9, -1, 1) == (-1, 1)
    assert Ratio(1.0, -3.0).interval(0.9, -1, 1) == (-1, 1)
    assert Ratio(1.0, 2.0).interval(0.9, 0, 1) == (0.5, 0.5)
    assert Ratio(1.0, 0.0).value(0, 1) == 0.5


@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
def test_an_interval_of_a_quotient_at_its_end_is_never_one_point_and_covers(share):
    rng, size, deviation = np.random.default_rng(1), 300.0, 20.0
    above = size * share + rng.normal(scale=deviation, size=4000)
    below = size + rng.normal(scale=deviation, size=4000)
    square = deviation**2
    made = [Ratio(a, b, square, square) for a, b in zip(above, below, strict=True)]
    low, high = np.array([each.interval(0.8, 0, 1) for each in made]).T
    assert (high - low > 0.01).all()
    assert_often((low <= share) & (share <= high), 0.8, exact=False)
