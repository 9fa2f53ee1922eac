"""Counts of values in cells are those that comparing every value with every edge would give."""

import numpy as np
import pytest
from helpers import thinned

from dpsubspace._core.statistics import quantiles
from dpsubspace._core.statistics.counts import _CELLS, CountedRanks, _counts, cell_counts, places

DTYPES = [np.float32, np.float64]
DIGITS, OCTAVES = 12, 64


def hard_values(dtype, n=40_000, n_columns=3):
    """Random bits, denormal and infinite numbers and NaN among them; normal rows; all edges."""
    rng = np.random.default_rng(0)
    bits = np.int32 if dtype == np.float32 else np.int64
    size, limits = (n, n_columns), np.iinfo(bits)
    values = rng.integers(limits.min, limits.max, size, dtype=bits, endpoint=True).view(dtype)
    lost = np.isnan(values)  # some of which warn where they are cast
    values[lost] = np.copysign(dtype(np.nan), values[lost])
    with np.errstate(all="ignore"):
        powers = 2.0 ** np.arange(-1080, 1025)
        parts = np.ldexp(1 + np.arange(0, 2**DIGITS, 97) / 2**DIGITS, -3)
        special = [0.0, np.inf, np.nan, 5e-324, np.finfo(dtype).tiny, np.finfo(dtype).max]
        edges = np.concatenate([powers, np.sqrt(2) * powers, parts, special]).astype(dtype)
        near = [edges, np.nextafter(edges, dtype(np.inf)), np.nextafter(edges, dtype(-np.inf))]
    edges = np.concatenate(near)
    edges = np.concatenate([edges, -edges])
    values[: len(edges)] = edges[:, None]
    values[-8_000:] = rng.standard_normal((8_000, n_columns))
    return values


@pytest.fixture(params=DTYPES, ids=["float32", "float64"], scope="module")
def values(request):
    return hard_values(request.param)


def searched(edges, values):
    """How many values lie in each cell [a, b), those outside in the nearest."""
    cells = np.searchsorted(edges, values, side="right")
    n_cells = len(edges) - 1
    return np.bincount(np.clip(cells, 1, n_cells) - 1, minlength=n_cells)


@pytest.mark.parametrize("per_octave", [1, 2])
def test_every_value_counts_in_the_cell_that_a_search_finds(values, per_octave):
    there = [column[~np.isnan(column)] for column in values.T]  # NaN is in no cell
    plain = [searched(_CELLS[per_octave], column) for column in there]
    np.testing.assert_array_equal(_counts(values, per_octave), plain)
    alone = values[-20_000:]  # each by itself, where two wrong cells could make up for each other
    cells = np.searchsorted(_CELLS[1], alone, side="right")
    fast = places(alone, 0, 40, closed=True) + (len(_CELLS[1]) - 1) // 2
    np.testing.assert_array_equal(fast, np.clip(cells, 1, len(_CELLS[1]) - 1) - 1)


def wanted_places(n_columns):
    """Places near either end, near 0, at the ends of leading digits and anywhere."""
    ends = [0, 2**19, 2**20 - 1, *range(0, 2**20, 2**13)]
    near = np.concatenate([np.arange(end - 3, end + 4) for end in ends])
    anywhere = np.random.default_rng(1).integers(1, 2**20, 2_000)
    wanted = np.concatenate([near[(near > 0) & (near < 2**20)], anywhere])
    return np.tile(wanted, (n_columns, 1))


def test_ranks_are_those_of_sorted_values(values):
    grid, wanted = quantiles._Doubles(20), wanted_places(values.shape[1])
    columns = np.sort(values.T.astype(np.float64), axis=1)
    edges = grid.edge(wanted)
    plain = [column.searchsorted(edge) for column, edge in zip(columns, edges, strict=True)]
    ranks = CountedRanks(values, DIGITS, OCTAVES)
    np.testing.assert_array_equal(ranks.before(wanted), plain)
    few = ranks.before(wanted[:, :5])  # of leading digits that are counted already, and others
    np.testing.assert_array_equal(few, np.array(plain)[:, :5])


@pytest.mark.parametrize("number", [1, 2, 6, 7])
def test_ranks_of_few_places_are_those_of_sorted_values(values, number):
    """Values are compared with few places of a column; more are looked up."""
    n_columns = values.shape[1]
    wanted = np.linspace(2**18, 2**19 + 2**18, number, dtype=int) + 2**11 * np.arange(3)[:, None]
    wanted[:, 0] = wanted[0, 0]  # one that all columns have
    wanted += 5
    columns = np.sort(values.T.astype(np.float64), axis=1)
    edges = quantiles._Doubles(20).edge(wanted)
    plain = [columns[i].searchsorted(edges[i]) for i in range(n_columns)]
    np.testing.assert_array_equal(CountedRanks(values, DIGITS, OCTAVES).before(wanted), plain)


@pytest.mark.parametrize("order", thinned(["F", "C"]))
def test_counts_do_not_depend_on_order_chunks_or_read_only_rows(values, order, monkeypatch):
    whole, wanted = _counts(values, 1), wanted_places(values.shape[1])
    ranks = CountedRanks(values, DIGITS, OCTAVES).before(wanted)
    monkeypatch.setattr("dpsubspace._core.statistics.counts._CHUNK", 1_000)
    monkeypatch.setattr("dpsubspace._core.statistics.counts._PIECE", 100)
    other = np.array(values, order=order)
    other.flags.writeable = False
    np.testing.assert_array_equal(_counts(other, 1), whole)
    np.testing.assert_array_equal(CountedRanks(other, DIGITS, OCTAVES).before(wanted), ranks)


def test_no_rows_are_counted_as_none():
    assert not _counts(np.zeros((0, 2)), 1).any()
    assert not cell_counts(np.zeros((0, 2)), lambda part: part.astype(int), 3).any()


@pytest.mark.parametrize("n_wanted", [1, 2, 5])
def test_a_search_by_counts_is_that_of_sorted_columns(n_wanted, monkeypatch):
    """More columns than are counted together; ties, and searches that end at one place."""
    rng = np.random.default_rng(2)
    values = rng.lognormal(0, 3, (600, 130)).astype(np.float32) * rng.choice([-1, 1], 130)
    values[:, :40], values[:300, 40:60] = 1980.0, 0.0
    grid, found = quantiles._Doubles(20), []
    for few in (1 << 14, 0):
        monkeypatch.setattr(quantiles, "_FEW", few)
        before = quantiles._before(values, None, grid, n_wanted)
        place, ranks = np.zeros((130, n_wanted), dtype=np.int64), []
        for stage in range(20):  # an exact search
            middle = place + 2 ** (19 - stage)
            ranks.append(before(middle))
            levels = np.linspace(0.01, 0.99, n_wanted) * len(values)
            place = np.where(ranks[-1] < levels, middle, place)
        found.append(np.array(ranks))
    np.testing.assert_array_equal(*found)


def test_cells_between_edges_are_those_of_unique_edges():
    """Counts and ranks, of edges in any order of which some are equal, column by column."""
    rng = np.random.default_rng(3)
    edges, values = rng.integers(0, 6, (50, 4)).astype(float), rng.integers(0, 7, (50, 90))
    ranks = np.array([[(v < e).sum() for e in es] for v, es in zip(values, edges, strict=True)])
    cells = quantiles._Cells(edges)
    counts = cells.counts(ranks, 90)
    plain = [
        np.histogram(v, [-1, *np.unique(es), 99])[0] for v, es in zip(values, edges, strict=True)
    ]
    np.testing.assert_array_equal(counts, np.concatenate(plain))
    # Without noise both sides agree, so that any weights give the rank; with some, the mean.
    np.testing.assert_allclose(cells.ranks(counts, 90), ranks, atol=1e-9)
    noisy = counts + rng.normal(size=len(counts))
    ends = np.cumsum([len(count) for count in plain])[:-1]
    for row, es, cell in zip(cells.ranks(noisy, 90), edges, np.split(noisy, ends), strict=True):
        unique, inverse = np.unique(es, return_inverse=True)
        share = np.arange(1, len(cell)) / len(cell)
        below, above = np.cumsum(cell)[:-1], np.cumsum(cell[::-1])[-2::-1]
        assert len(unique) == len(cell) - 1
        np.testing.assert_array_equal(row, (below * (1 - share) + (90 - above) * share)[inverse])


@pytest.mark.parametrize("weights", [None, np.full(6, 0.5)], ids=["rows", "persons"])
@pytest.mark.parametrize("per_octave", [1, 2])
def test_what_is_missing_is_in_no_cell_of_an_octave(per_octave, weights):
    values = np.array([[np.nan, 3.0], [5.0, -np.nan], [np.nan, np.inf]] * 2)
    counts = _counts(values, per_octave, weights)
    each = 1.0 if weights is None else 0.5
    assert counts.sum(axis=1).tolist() == [2 * each, 4 * each]
    assert counts[0, -1] == 0 and counts[1, -1] == 2 * each  # the last cell holds infinity
