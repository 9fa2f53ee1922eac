"""Scales of columns in any units: what one record can move, and how close they come."""

import math

import numpy as np
import pytest
from helpers import RELATIONS, assert_within_bounds, move, pairs_first, releases, who
from scipy.special import ndtri

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.ground import auto
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics import cell_maps, counts, scales
from dpsubspace._core.statistics.intervals import noisy_intervals
from dpsubspace._core.statistics.quantiles import noisy_extents, range_part
from dpsubspace._core.statistics.scales import SCALES, noisy_scales, scale_share
from dpsubspace._core.statistics.shapes import heaped_shapes, near_shapes, wide_shapes

PARTS = dict(SCALES)
MAPS = {"octaves": cell_maps.octave_map, "cells": cell_maps.cell_map, "lengths": scales._lengths}


def some_scales(X, y, *, epsilon=1.0, relation="zero_out", seed=0, present=None, parts=PARTS):
    target = Target(epsilon, 1e-5, relation)
    budget = Budget.split(target, parts, len(X))
    records = who(present, len(y if X is None else X))
    return noisy_scales(X, y, Releases(budget, SeededNoise(seed), records))


def table(n=400, seed=0, dtype=np.float64):
    """Columns in all sorts of units, and a target in millions."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.integers(1960, 2021, n),
            rng.normal(290, 8, n),
            1e-5 * rng.exponential(size=n),
            rng.lognormal(12, 1, n),
            rng.integers(0, 2, n),
            -3e6 + 1e6 * rng.random(n),
            rng.poisson(3.0, n),
        ]
    )
    return X.astype(dtype), 2e6 + 4e5 * rng.standard_normal((n, 1))


# How far one record moves a release -----------------------------------------------------------

RECORDS = {
    "zero": 0.0,
    "nan": np.nan,
    "huge": 1.7e308,
    "opposite": -1e4,
    "tiny": 5e-324,
    "near": 3.0,
    "next octave": 2.0**11,
}


@pytest.mark.parametrize(
    ("record", "relation", "dtype"), pairs_first(RECORDS, RELATIONS, [np.float32, np.float64])
)
def test_a_record_moves_every_release_within_its_bound(monkeypatch, record, relation, dtype):
    X, y = table(60, dtype=dtype)
    other_X, other_y = X.copy(), y.copy()
    with np.errstate(over="ignore"):
        value = np.clip(RECORDS[record], *(np.finfo(dtype).max * np.array([-1, 1])))
        other_X[0], other_y[0] = value, RECORDS[record]
    present = np.arange(len(X)) > 0 if relation == "zero_out" else None
    with releases(monkeypatch) as here:
        some_scales(other_X, other_y, epsilon=20.0, relation=relation)
    there_X, there_y = (other_X, other_y) if relation == "zero_out" else (X, y)
    with releases(monkeypatch, outputs=here) as there:
        some_scales(there_X, there_y, epsilon=20.0, relation=relation, present=present)
    assert len(here) == len(there) == 3 + 2 * SCALES["cells"].count
    assert_within_bounds(here, there, relation)


def test_a_null_record_is_as_if_it_were_not_there_but_counted(monkeypatch):
    X, y = table(200)
    present = np.arange(len(X)) % 3 > 0
    with releases(monkeypatch) as masked:
        some_scales(X, y, present=present, epsilon=20.0)
    X[~present], y[~present] = np.nan, np.nan
    with releases(monkeypatch, outputs=masked) as lost:
        some_scales(X, y, epsilon=20.0)
    # A row without any value has a length, which is 0, while a null record has none.
    for (one, *_), (other, *_) in zip(masked[:-1], lost[:-1], strict=True):
        np.testing.assert_array_equal(one.value, other.value)


def test_the_bounds_are_tight(monkeypatch):
    X, y = table(60)
    X[0] = np.abs(X[0]) + 1  # a value of 0 moves nothing
    with releases(monkeypatch) as here:
        some_scales(X, y, epsilon=20.0)
    with releases(monkeypatch, outputs=here) as there:
        some_scales(X, y, epsilon=20.0, present=np.arange(len(X)) > 0)
    for (one, *_), (other, *_) in zip(here, there, strict=True):
        assert move(one, other) > 0.95 * one.norm_bound


@pytest.mark.parametrize("name", MAPS)
def test_bounds_of_a_public_map_are_those_of_its_rows(name):
    public = MAPS[name]()
    rows = public.matrix
    assert np.array_equal(rows, np.rint(rows * 2**20) / 2**20)  # so that sums are exact
    assert np.abs(rows).max() <= 1
    assert np.linalg.norm(rows, axis=1).max() <= public.norm_bound < 1.001
    apart = [np.linalg.norm(row - rows, axis=1).max() for row in rows]
    assert max(apart) <= public.replace_bound < math.sqrt(2) * 1.001


def test_sums_of_a_public_map_do_not_depend_on_their_order():
    rng = np.random.default_rng(0)
    matrix = cell_maps.octave_map().matrix
    counts = rng.integers(0, 2**25, (1, len(matrix))).astype(float)
    exact = (counts.astype(np.int64) @ (matrix * 2**20).astype(np.int64)) / 2**20
    order = rng.permutation(len(matrix))
    np.testing.assert_array_equal(counts @ matrix, exact)
    np.testing.assert_array_equal(counts[:, order] @ matrix[order], exact)


@pytest.mark.parametrize("found", [True, False])
def test_what_runs_is_what_was_charged(monkeypatch, found):
    X, y = table(4000)
    X = X if found else np.zeros((4000, 2))  # zeros have no scale, which noise does not hide here
    with releases(monkeypatch) as seen:
        columns, _ = some_scales(X, y, epsilon=100.0)
    assert columns.found.any() == found
    one = Budget.split(Target(100.0, 1e-5), {"all": Part(1.0)}, len(X)).scales["all"]
    assert math.fsum(multiplier**-2.0 for *_, multiplier in seen) == pytest.approx(one**-2.0)


# Rows in pieces, in single precision, with gaps -----------------------------------------------


def test_chunks_and_memory_maps_change_nothing(monkeypatch, tmp_path):
    X, y = table(3000, dtype=np.float32)
    whole = some_scales(X, y)
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    monkeypatch.setattr(counts, "_CHUNK", 700)
    monkeypatch.setattr(counts, "_PIECE", 100)
    monkeypatch.setattr(cell_maps, "TOGETHER", 2)
    for one, other in zip(whole, some_scales(mapped, y), strict=True):
        for field in ("location", "scale", "found"):
            np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-9)


def test_a_few_missing_values_change_little():
    X, y = table(20_000)
    X[::50] = np.nan
    columns, _ = some_scales(X, y, epsilon=10.0)
    mean, deviation = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    assert (np.abs(columns.location - mean) < deviation).all()


# What is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
# In thousands, years lie on both sides of 2: of 804 columns that narrow across a power of 2 the
# scale of 7 was 34 to 72 times too large.
@pytest.mark.parametrize("unit", [1.3e-3, 1.0, 1e4])
def test_columns_of_any_unit_and_offset_are_found(relation, unit):
    X, y = table(5000)
    columns, targets = some_scales(X * unit, y * unit, relation=relation, epsilon=10.0)
    for found, rows in ((columns, X * unit), (targets, y * unit)):
        assert found.found.all()
        ratio = found.scale / rows.std(axis=0)
        # Over 25 salts means from 0.63 to 1.24, and deviations of up to 0.21 of their logarithms:
        # the ends are 6.5 of these away.
        assert (ratio > 0.16).all() and (ratio < 4.2).all()
        assert (np.abs(found.location - rows.mean(axis=0)) < rows.std(axis=0)).all()


@pytest.mark.wide
def test_a_column_in_one_octave_is_found_though_noise_might_hide_a_far_tail(rng):
    """A tenth of such a column might lie anywhere, and its size has two modes: it is there anyway.

    The columns are the same in all draws, and the draws of the noise are independent. Something was
    lost in none of 1,000 draws, and in 98 of them where the size alone decided. With a chance of
    0.01 in each, more than 21 of 400 lose something with a chance below 1e-9.
    """
    deviations, noise = np.geomspace(1, 100, 6), 0.074
    X = 5 + ndtri((np.arange(2000) + 0.5) / 2000)[:, None] * deviations
    shares = cell_maps.in_octaves(X, None) / len(X) @ cell_maps.octave_map().matrix
    lost = 0
    for _ in range(400):
        noisy = shares + noise * rng.standard_normal(shares.shape)
        released = cell_maps.ReleasedMeans(noisy, np.full((6, 1), noise**2))
        (fit,) = cell_maps.coarse([released], [cell_maps.COLUMNS])
        lost += not fit.sure.all()
    assert lost <= 21


@pytest.mark.parametrize("spreads", [1e3, 1e4, 1e5, 1e6])
def test_the_width_of_a_column_does_not_depend_on_where_its_zero_is(spreads):
    """What is released tells a column apart from noise by far: 3,000 rows at epsilon 1e4.

    Noise has a deviation of about 1e-5, where 0.01 is what a column may differ from the nearest
    distribution.
    """
    rows = np.random.default_rng(0).normal(size=(3000, 3)) * [1.0, 1e-3, 1e4]
    far = rows + spreads * np.array([1.0, -1e-3, 1e4])
    columns, targets = some_scales(far, far[:, :1], epsilon=1e4)
    for found, own in ((columns, far), (targets, far[:, :1])):
        ratio = found.scale / own.std(axis=0)
        assert found.found.all() and (ratio > 0.4).all() and (ratio < 4).all()
        assert (np.abs(found.location - own.mean(axis=0)) < own.std(axis=0)).all()


def test_with_many_rows_scales_are_close():
    rng = np.random.default_rng(1)
    X = rng.normal([100.0, -3.0, 0.0], [30.0, 2.0, 1e-3], size=(100_000, 3))
    columns, targets = some_scales(X, X[:, :1])
    assert np.abs(np.log(columns.scale / X.std(axis=0))).max() < 0.25
    assert np.abs(columns.location - X.mean(axis=0)).max() < 0.2 * X.std(axis=0).max()
    assert abs(math.log(targets.scale[0] / 30)) < 0.25


@pytest.mark.parametrize("value", [0.0, 7.3, -1e6])
def test_a_column_that_is_constant_but_for_a_few_rows_is_not_taken_for_narrow(value):
    X, y = table(2000)
    X[:, 2], X[:, 4] = value, value
    X[:5, 4] = value + 1e4
    found = []
    for seed in range(10):
        columns, _ = some_scales(X, y, epsilon=3.0, seed=seed)
        assert (columns.scale[[2, 4]] > 1e-3 * abs(value)).all()
        assert columns.found[[0, 1, 3, 5, 6]].all()
        found.append(columns.found[[2, 4]].any())
    # Nothing tells the size of zeros. Noise does in 4 of 150 draws: in 8 of 10 once in 1e11.
    assert sum(found) < 8 if value == 0 else all(found)


def test_a_tail_is_part_of_the_scale():
    """A fifth of the rows far from a common value: a robust scale would be that of the others."""
    rng = np.random.default_rng(0)
    n = 4000
    tail = np.where(rng.random(n) < 0.2, rng.exponential(1000, n), 0.0)
    X = np.column_stack([tail, tail + 5, rng.standard_normal(n)])
    columns, _ = some_scales(X, X[:, 2:], epsilon=3.0)
    # The lengths of rows, of two kinds here, may take two fifths from all scales.
    assert (columns.scale[:2] > 0.15 * X.std(axis=0)[:2]).all()


def test_where_noise_hides_everything_nothing_breaks():
    X, y = table(20)
    for seed in range(5):
        columns, targets = some_scales(X, y, epsilon=0.01, seed=seed)
        for some in (columns, targets):
            assert np.isfinite(some.location).all() and np.isfinite(some.scale).all()
            assert (some.scale > 0).all()
        assert columns.found.sum() <= 2


def test_no_targets_and_one_column():
    X, _ = table(4000)
    columns, targets = some_scales(X[:, :1], None)
    assert columns.found.all() and len(targets.scale) == 0
    assert 0.3 < columns.scale[0] / X[:, 0].std() < 4


def test_without_privacy_scales_are_exact():
    X, y = table(500, dtype=np.float32)
    X[:, 3], X[3, 0] = 4.0, np.nan
    present = np.arange(500) % 7 > 0
    columns, targets = some_scales(X, y, epsilon=math.inf, present=present)
    rows = X[present].astype(float)
    np.testing.assert_allclose(columns.location, np.nanmean(rows, axis=0), rtol=1e-12)
    np.testing.assert_allclose(columns.scale, np.nanstd(rows, axis=0), rtol=1e-9)
    np.testing.assert_array_equal(columns.found, np.arange(7) != 3)
    np.testing.assert_allclose(targets.scale, y[present].std(axis=0), rtol=1e-12)


def test_the_share_grows_with_the_noise_and_has_ends():
    assert scale_share(1e-7, 3) == 0.1 < scale_share(0.004, 20) < 0.4
    assert scale_share(0.1, 20) == 0.4


def test_a_code_is_found_and_its_values_stay_apart_where_rows_are_cut():
    """A scale below the distance of the values cuts a code to a smaller step: the same column.

    Nothing here is left to chance. The shares are exact, and the noise has a deviation of about
    1e-5, where 0.01 is what a column may differ from the nearest distribution.
    """
    code = (np.arange(3000)[:, None] < 3000 * np.array([0.5, 0.2, 0.05])).astype(float)
    X = np.hstack([code, code - code.mean(axis=0), code - 40])
    columns, _ = some_scales(X, code[:, :1], epsilon=1e4)
    units = np.clip((X - columns.location) / columns.scale, -auto.FAR, auto.FAR)
    assert columns.found.all()
    assert (units.std(axis=0) > 0.2).all() and (units.std(axis=0) < 3).all()


# The lists of distributions -------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [wide_shapes, near_shapes, heaped_shapes])
def test_masses_are_those_of_distributions_with_the_stated_moments(shapes):
    shapes = shapes()
    some = shapes.at(np.linspace(0, len(shapes.prior) - 1, 97).astype(int))
    rng = np.random.default_rng(0)
    for i in range(0, 97, 4):
        one = some.at([i])
        edges = one.mean + one.deviation * np.linspace(-60, 60, 240_001)
        masses = one.masses(edges)[0]
        middle = np.r_[edges[0], (edges[1:] + edges[:-1]) / 2, edges[-1]]
        assert masses.min() >= -1e-12 and masses.sum() == pytest.approx(1)
        mean = masses @ middle
        assert abs(mean - one.mean[0]) < 2e-3 * one.deviation[0]
        deviation = math.sqrt(masses @ (middle - mean) ** 2)
        assert deviation == pytest.approx(one.deviation[0], rel=1e-2)
    moved = some.moved(3.0, 0.5)
    edges = np.sort(rng.normal(size=20))
    np.testing.assert_allclose(moved.masses(0.5 * edges + 3), some.masses(edges), atol=1e-9)


# Where nearly all of a column lies ------------------------------------------------------------


def some_intervals(X, *, epsilon=1.0, relation="zero_out", seed=0, present=None, count=4):
    target = Target(epsilon, 1e-5, relation)
    budget = Budget.split(target, {"it": Part(1.0, count)}, len(X))
    releases = Releases(budget, SeededNoise(seed), who(present, len(X)))
    return noisy_intervals(X, releases, "it", level=0.01)


@pytest.mark.parametrize(("record", "relation"), pairs_first(RECORDS, RELATIONS))
def test_a_record_moves_the_counts_of_an_interval_within_their_bound(monkeypatch, record, relation):
    """Cells follow from earlier releases alone: with these replayed, all else is the same."""
    X, _ = table(60)
    other = X.copy()
    other[0] = RECORDS[record]
    present = np.arange(len(X)) > 0 if relation == "zero_out" else None
    with releases(monkeypatch) as here:
        some_intervals(other, epsilon=20.0, relation=relation)
    with releases(monkeypatch, outputs=here) as there:
        first = other if relation == "zero_out" else X
        some_intervals(first, epsilon=20.0, relation=relation, present=present)
    assert len(here) == len(there) == 4
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("what", ["scales", "ranges"])
def test_a_person_in_several_cells_moves_no_more_than_a_row(monkeypatch, what, relation, rng):
    """Rows of a person lie in many cells, and a neighbour has other numbers of rows elsewhere."""
    (X, y), person = table(90), np.sort(rng.integers(0, 30, 90))
    person[:6] = 0
    X[:6, :3] = [[np.nan], [1.7e308], [-1e4], [5e-324], [2.0**11], [0.0]]
    kept = np.flatnonzero((person > 0) | (np.arange(90) == 3))
    there_X, there_y, there = X[kept], y[kept], person[kept]
    present = there > 0 if relation == "zero_out" else None
    order = rng.permutation(90)

    def released(X, y, person, present=None):
        records = Records.of_groups(person, 30, present)
        parts = PARTS if what == "scales" else {"it": Part(0.9, 4), "gaps": Part(0.1)}
        budget = Budget.split(Target(20.0, 1e-5, relation), parts, 30)
        of_persons = Releases(budget, SeededNoise(0), records)
        if what == "scales":
            return noisy_scales(X, y, of_persons)
        return noisy_extents(X, of_persons, "it", gaps="gaps")

    with releases(monkeypatch) as here:
        released(X[order], y[order], person[order])
    with releases(monkeypatch, outputs=here) as there_too:
        released(there_X, there_y, there, present)
    assert_within_bounds(here, there_too, relation)


def test_the_bounds_of_the_counts_of_an_interval_are_tight(monkeypatch):
    X, _ = table(60)
    X[0] = np.abs(X[0]) + 1  # a value of 0 moves nothing in octaves
    with releases(monkeypatch) as here:
        some_intervals(X, epsilon=20.0)
    with releases(monkeypatch, outputs=here) as there:
        some_intervals(X, epsilon=20.0, present=np.arange(len(X)) > 0)
    for (one, *_), (other, *_) in zip(here, there, strict=True):
        assert move(one, other) > 0.95 * one.norm_bound


def test_what_an_interval_takes_is_what_was_charged(monkeypatch):
    X, _ = table()
    with releases(monkeypatch) as seen:
        some_intervals(X, count=3)
    one = Budget.split(Target(1.0, 1e-5), {"all": Part(1.0)}, len(X)).scales["all"]
    assert math.fsum(multiplier**-2.0 for *_, multiplier in seen) == pytest.approx(one**-2.0)


FAR = {
    "years": lambda rng, n: rng.integers(1940, 2021, n),
    "milliseconds of a year": lambda rng, n: 1.7e12 + 365 * 864e5 * rng.random(n),
    "ages": lambda rng, n: np.clip(rng.normal(42, 17, n), 0, 100),
    "incomes": lambda rng, n: rng.lognormal(10.5, 0.8, n),
    "counts with zeros": lambda rng, n: np.where(rng.random(n) < 0.7, 0, rng.poisson(8, n)),
}


@pytest.mark.parametrize("name", FAR)
def test_ranges_of_few_rows_hold_them_and_are_not_much_wider(name, rng):
    """A range is a failure where it loses a tenth of the rows, or is wider than their extent by 3.

    Of 100 seeds each, 10 fail for years and at most 2 for the others. With 15 in 100, more than 24
    of 40 fail with a chance below 1e-10. A search for quantiles fails for nearly all.
    """
    failures = 0
    for seed in range(40):
        values = np.asarray(FAR[name](rng, 400), dtype=np.float64)[:, None]
        target = Target(1.0, 1e-5, "zero_out")
        budget = Budget.split(target, {"it": range_part(target, 400, 1)}, 400)
        releases = Releases(budget, SeededNoise(seed), who(None, 400))
        low, high, found = noisy_extents(values, releases, "it")
        lost = np.mean((values < low) | (values > high)) > 0.1
        failures += bool(lost or high - low > 3 * np.ptp(values) or not found)
    assert failures <= 24


def test_columns_of_one_or_two_values_have_ranges_that_end_there(rng):
    values = np.column_stack([np.full(5000, 7.0), rng.integers(0, 2, 5000)])
    low, high, found = some_intervals(values, epsilon=20.0)
    assert found.all() and low[0] == high[0] and abs(low[0] - 7) < 1e-3
    np.testing.assert_allclose([low[1], high[1]], [0, 1], atol=0.1)
    assert low[1] <= 0 and high[1] >= 1
