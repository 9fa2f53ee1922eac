"""Encoded rows that are formed where they are used, against those that are kept."""

import numpy as np
import pytest
from test_encoding import KINDS, SCHEMA, table

from dpsubspace import Categories, Range, Schema
from dpsubspace._core.ground.arrays import BLOCK, Scratch
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.chunks import FormedRows, lent
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.tables import forming
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.forming import formed_rows, is_formed
from dpsubspace._core.tables.kinds import type_of_codes
from dpsubspace._core.tables.schema import Table

ALL = slice(None)
SCHEMAS = {
    "all kinds": SCHEMA,
    "numbers": Schema({f"x{i}": Range(-1, 1, missing=i % 2 == 0) for i in range(4)}),
    "categories": Schema({"a": Categories(("x", "y", "z")), "b": Categories((0, 1), missing=True)}),
    "many values": Schema({"a": Categories(tuple(range(300)), missing=True)}),
}


def both(name="all kinds", ratio=1e4, by_column=False, pairs=True, n=700):
    schema = SCHEMAS[name]
    encoding = encoding_for(schema, ratio, by_column=by_column, interactions=pairs)
    rows = table(n, schema=schema)
    rows = Table(rows.numbers, rows.codes.astype(type_of_codes(schema.values()), order="F"))
    return encoding, encoding(rows), formed_rows(rows, encoding)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(("ratio", "by_column"), KINDS)
def test_formed_rows_are_the_encoded_ones_but_for_rounding(name, ratio, by_column, pairs):
    encoding, kept, formed = both(name, ratio, by_column, pairs)
    assert formed.shape == kept.shape and formed.dtype == kept.dtype and len(formed) == len(kept)
    assert formed.nbytes == kept.nbytes and formed.shape == kept.shape
    most = np.maximum(*np.abs(encoding.extent))
    np.testing.assert_array_less(np.abs(formed[ALL, ALL] - kept) / most, 2e-5)
    np.testing.assert_array_equal(formed[ALL, 3:4], formed[ALL, ALL][:, 3:4])
    assert formed[:0, ALL].shape == (0, encoding.n_features)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("by_column", [False, True])
def test_a_row_is_the_same_to_the_bit_whichever_rows_are_formed_with_it(name, by_column, rng):
    """Persons have rows anywhere: bounds of their sums rest on it."""
    encoding, _, formed = both(name, by_column=by_column)
    whole, some = formed.entries(ALL).copy(), rng.permutation(700)[:150]
    read = table(700, schema=SCHEMAS[name])
    moved = Table(read.numbers[some], read.codes[some])
    np.testing.assert_array_equal(formed_rows(moved, encoding).entries(ALL), whole[some])
    for rows in (some, some[:1], slice(3, 4), slice(130, 700), slice(1, 600, 7)):
        np.testing.assert_array_equal(formed.entries(rows), whole[rows])
        np.testing.assert_array_equal(formed[rows, ALL], formed[ALL, ALL][rows])


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("ends", [(0, 1), (1e-3, 1e5), (-40, 1e5)])
@pytest.mark.parametrize("log", [False, True])
def test_a_number_has_the_same_first_curve_in_any_place_of_a_vector(by_column, ends, log, rng):
    """Rows move where a person of a neighbouring table has fewer of them."""
    schema = Schema({"x": Range(*ends, log=log, missing=True)})
    encoding, numbers = encoding_for(schema, 1e4, by_column=by_column), rng.uniform(*ends, 90)
    numbers[::7] = np.nan

    def first(some):
        codes = np.empty((len(some), 0), dtype=np.int8)
        return formed_rows(Table(some[:, None], codes), encoding)._held[0][0]

    whole = first(numbers)
    for start in range(20):
        for size in range(1, 70, 3):
            some = slice(start, start + size)
            np.testing.assert_array_equal(first(numbers[some]), whole[some])


def brought(features):
    """What each row contributes to a sum: features as they are added up, (n, width)."""
    blocks = (features.at(slice(i, i + 1)) for i in range(features.n_rows))
    one = np.ones((1, 1), dtype=features.dtype)
    return np.array([block.product(one, np.ones(1))[:, 0] for block in blocks])


SHIFTS = {
    "none": lambda width: None,
    "mean": lambda width: Shift(np.linspace(-0.1, 0.1, width), None),
    "constant": lambda width: Shift(np.linspace(-0.1, 0.1, width), 0.25),
}


@pytest.mark.parametrize("norm", [{"norm": "l2"}, {"norm": "clip", "data_norm": 0.8}])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("persons", [False, True])
def test_features_are_those_of_kept_rows_and_no_longer_than_their_norms(
    norm, shift, weighed, persons, rng
):
    _, kept, formed = both(n=300)
    # As if they had been kept as they are formed, for once.
    X = formed[ALL, ALL]
    records = Records.of_groups(np.repeat(np.arange(100), 3), 100) if persons else None
    columns, pair = rng.uniform(0.5, 2, kept.shape[1]), []
    for rows in (X, formed):
        features = Features(rows, RowMap(bias=0.3, **norm), records=records)
        features = features.shifted(SHIFTS[shift](features.width))
        pair.append(features.weighed(columns) if weighed else features)
    there, own = pair
    np.testing.assert_allclose(own.norms(), there.norms(), rtol=1e-6)
    rows = brought(own)
    # A term may be off by a few units of rounding of its dtype, which the slack of sums holds.
    eps = np.finfo(own.dtype).eps
    assert (np.linalg.norm(rows, axis=1) <= own.norms() * (1 + 4 * eps)).all()
    np.testing.assert_allclose(rows, brought(there), atol=2e-7)
    params = rng.normal(size=(own.width, 2)).astype(own.dtype)
    weights, residuals = np.ones(128), rng.normal(size=(128, 2))
    for some in (slice(0, 128), rng.permutation(300)[:128]):
        here, other = own.at(some), there.at(some)
        np.testing.assert_allclose(here.scores(params), other.scores(params), atol=2e-5)
        np.testing.assert_allclose(here.dense(), other.dense(), atol=2e-7)
        given = (residuals.astype(here.scale.dtype), weights)
        np.testing.assert_allclose(here.product(*given), other.product(*given), atol=2e-5)
        runs = (*given, np.array([3, 0, 125]))
        np.testing.assert_allclose(here.sums(*runs), other.sums(*runs), atol=2e-5)


def test_formed_rows_go_through_an_affine_map():
    _, _, formed = both(by_column=True)
    affine = Affine(np.full(formed.shape[1], 0.1), np.full(formed.shape[1], 2.0))
    pair = [AffineRows(X, affine, constant=True) for X in (formed[ALL, ALL], formed)]
    here, other = (rows.at(slice(100, 300)) for rows in pair)
    np.testing.assert_array_equal(here.dense(), other.dense())


@pytest.mark.parametrize("persons", [False, True])
def test_some_records_stay_formed_and_are_the_same(persons, rng):
    _, _, formed = both(by_column=True)
    records = Records.of_groups(np.repeat(np.arange(100), 7), 100) if persons else None
    affine = Affine(np.full(formed.shape[1], 0.1), np.full(formed.shape[1], 2.0))
    batch = np.sort(rng.permutation(100)[:40])
    pair = [
        AffineRows(X, affine, constant=True, records=records).taken(batch)
        for X in (formed[ALL, ALL], formed)
    ]
    assert isinstance(pair[1].X, FormedRows)
    assert sum(array.nbytes for array in pair[1].X._held) < pair[0].X.nbytes / 10
    here, other = (rows.at(slice(0, rows.n_rows)).dense() for rows in pair)
    np.testing.assert_array_equal(here, other)
    np.testing.assert_array_equal(pair[0].norms(), pair[1].norms())


def test_public_sizes_decide_and_tables_to_which_columns_are_added_are_kept():
    encoding = encoding_for(SCHEMA, 1e4)
    most = forming._MOST_KEPT // (4 * encoding.n_features)
    assert is_formed(encoding, most + 1) and not is_formed(encoding, most - 1)
    learned = encoding_for(SCHEMA, 1e4, interactions="learned")
    assert learned.interacting and not is_formed(learned, 10**9)


def test_a_table_needs_little_more_than_its_numbers_and_codes():
    _, kept, formed = both()
    held = sum(array.nbytes for array in formed._held)
    assert held == 700 * (4 * 4 + 4) and held < kept.nbytes / 15
    assert repr(formed) == "<rows>"


@pytest.mark.wide
@pytest.mark.parametrize("n_values", [10, 3000, 40_000, 400_000])
def test_a_chunk_takes_little_memory_however_many_features_there_are(n_values):
    schema = Schema({"a": Categories(tuple(range(n_values)))})
    codes = np.zeros((5000, 1), dtype=type_of_codes(schema.values()))
    formed = formed_rows(Table(np.empty((5000, 0)), codes), encoding_for(schema, 1e4))
    assert formed.chunk % BLOCK == 0
    assert formed.chunk == BLOCK or 4 * formed.chunk * n_values <= 1 << 26
    records = Features(formed, RowMap(norm="l2", bias=0.3)) if n_values == 10 else formed
    assert records.chunk == formed.chunk


def test_memory_is_lent_for_as_long_as_somebody_has_a_view_of_it():
    first = lent((10, 20), np.float32)
    view = first[3:5].T
    first[...] = 1.0
    del first
    second = lent((10, 20), np.float32)
    second[...] = 2.0
    assert (view == 1.0).all() and not np.shares_memory(view, second)
    place = second.__array_interface__["data"]
    del second
    assert lent((10, 20), np.float32).__array_interface__["data"] == place
    assert Scratch._free()[np.dtype(np.float32)].size >= 200


@pytest.mark.parametrize("kinds", [{"x": (0, 1)}, {"c": ["a", "b"]}], ids=["number", "category"])
def test_tables_of_one_column(kinds):
    schema = Schema(kinds)
    rows, encoding = table(50, schema=schema), encoding_for(schema, 1e4)
    np.testing.assert_allclose(formed_rows(rows, encoding)[ALL, ALL], encoding(rows), atol=2e-5)
