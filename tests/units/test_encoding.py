"""Encodings of tables: against a dense formula, and their bounds by brute force."""

from datetime import date, timedelta
from itertools import combinations

import numpy as np
import pytest
from numpy.polynomial import legendre

from dpsubspace import Categories, PrivateRange, Range, Schema
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.kinds import MISSING, UNKNOWN, off_log, on_log
from dpsubspace._core.tables.schema import Table
from dpsubspace.tables import Date

SCHEMA = Schema(
    {
        "age": Range(17, 90),
        "ward": Categories(["A", "B", "C"], missing=True),
        "gain": Range(0, 99_999, log=True, missing=True),
        "area": Range(0.5, 300, log=True),
        "sex": Categories(["f", "m"]),
        "visit": Date("1968-03-05", "1971-11-20", missing=True),
    }
)
RATIOS = (30, 300, 1500, 1e4)
KINDS = [(ratio, by_column) for ratio in RATIOS for by_column in (False, True)]


def table(n=400, seed=0, schema=SCHEMA):
    """Random rows, with their ends, gaps, unknown values and values outside of the ranges."""
    rng = np.random.default_rng(seed)
    numbers, codes = [], []
    for name in schema.numbers:
        low, high = schema[name]._ends
        found = rng.uniform(low - (high - low) / 3, high + (high - low) / 3, n)
        found[rng.random(n) < 0.3] = rng.choice([low, high])
        found[rng.random(n) < 0.02] = rng.choice([-np.inf, np.inf])
        if isinstance(schema[name], Date):  # as they are read
            found = np.floor(np.clip(found, low, high))
        found[(rng.random(n) < 0.2) & schema[name].missing] = np.nan
        numbers.append(found)
    for name in schema.categories:
        known = schema[name].values
        found = rng.integers(MISSING if schema[name].missing else UNKNOWN, len(known), n)
        codes.append(found)
    rows = np.array(numbers).reshape(len(numbers), n).T
    return Table(rows, np.array(codes, dtype=np.intp).reshape(len(codes), n).T)


def on_range(value, kind):
    low, high = kind._ends
    value = min(max(value, low), high)
    if kind.log and low > 0 and high / low > 10:
        return np.log(value / low) / np.log(high / low)
    share = (value - low) / (high - low)
    return np.log(1 + 1000 * share) / np.log(1001) if kind.log else share


def curves(u, encoding):
    number = encoding.n_curves
    if np.isnan(u):
        return np.zeros(number)
    if encoding.curves == "cosines":
        return np.cos(np.pi * np.arange(1, number + 1) * u)
    return np.array([legendre.legval(2 * u - 1, np.eye(number + 1)[j + 1]) for j in range(number)])


def dense(encoding, rows):
    """Features by name, one row and one number at a time."""
    schema, of_rows = encoding.schema, not encoding.by_column
    j = np.arange(1.0, encoding.n_curves + 1)
    weights = j**-encoding.decay if of_rows else np.ones(encoding.n_curves)
    few = 1 / j[:2] if of_rows else weights[:2]
    if of_rows:
        weights, few = weights / np.linalg.norm(weights), few / np.linalg.norm(few)
    dates = [name for name in schema if isinstance(schema[name], Date)]
    d, c = len(schema.numbers), len(schema.categories) + 2 * len(dates)
    share = 0.3 if encoding.pairs else 0.0
    unit = np.sqrt((1 - share) / (4 * d + c)) if of_rows else 1.0
    number = 2 * unit if of_rows else 1.0
    part = np.sqrt(share / max(1, d * (d - 1) // 2)) if of_rows else 1.0
    found = []
    for numbers, codes in zip(rows.numbers, rows.codes, strict=True):
        row, own = [], {}
        for name, value in zip(schema.numbers, numbers, strict=True):
            u = value if np.isnan(value) else on_range(value, schema[name])
            own[name] = curves(u, encoding)
            row += list(number * weights * own[name])
        gaps = zip(schema.numbers, numbers, strict=True)
        row += [number * np.isnan(value) for name, value in gaps if schema[name].missing]
        for name, code in zip(schema.categories, codes, strict=True):
            k = len(schema[name].values)
            onehot = np.eye(k)[code] - 1 / k if code >= 0 else np.zeros(k)
            onehot = onehot * unit / np.sqrt(1 - 1 / k)
            row += list(onehot[:1] if encoding.by_column and k == 2 else onehot)
        for day in (numbers[schema.numbers.index(name)] for name in dates):
            calendar = date(1970, 1, 1) + timedelta(0 if np.isnan(day) else day)
            for k, place in ((12, calendar.month - 1), (7, calendar.weekday())):
                onehot = (np.eye(k)[place] - 1 / k) * unit / np.sqrt(1 - 1 / k)
                row += list(onehot * (not np.isnan(day)))
        gaps = zip(schema.categories, codes, strict=True)
        row += [unit * (code == MISSING) for name, code in gaps if schema[name].missing]
        if encoding.pairs:
            for a, b in combinations(schema.numbers, 2):
                row += list(part * np.outer(few * own[a][:2], few * own[b][:2]).ravel())
        found.append(row)
    return np.array(found)


@pytest.mark.parametrize(("ratio", "by_column"), KINDS)
def test_encoding_is_the_dense_formula(ratio, by_column):
    encoding, rows = encoding_for(SCHEMA, ratio, by_column=by_column), table()
    found = encoding(rows)
    assert found.dtype == np.float32 and found.shape == (400, encoding.n_features)
    np.testing.assert_allclose(found, dense(encoding, rows), atol=2e-6)
    np.testing.assert_array_equal(found, encoding(rows))
    one = encoding(Table(rows.numbers[7:8], rows.codes[7:8]))  # a row does not know of others
    np.testing.assert_array_equal(one[0], found[7])


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_longer_than_the_bound_nor_beyond_its_extent(seed, by_column, pairs):
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: Range(0, float(10.0 ** rng.integers(-8, 8)), log=rng.random() < 0.5, missing=True),
        lambda: Categories(list(range(rng.integers(2, 40))), missing=rng.random() < 0.5),
        lambda: Date("1900-01-01", f"{rng.integers(1901, 2100)}-12-31", missing=rng.random() < 0.5),
    ]
    schema = Schema({f"c{i}": kinds[rng.integers(3)]() for i in range(rng.integers(1, 9))})
    encoding = encoding_for(schema, 1e5 * rng.random(), by_column=by_column, interactions=pairs)
    found = encoding(table(2000, seed, schema)).astype(np.float64)
    low, high = encoding.extent
    assert np.linalg.norm(found, axis=1).max() <= encoding.bound  # of what float32 holds
    assert (found >= low - 1e-6 * high.max()).all() and (found <= high + 1e-6 * high.max()).all()


def test_longest_rows_reach_the_bound():
    """So the bound is not larger than it has to be."""
    for ratio in RATIOS:
        schema = Schema({"a": (0, 1), "b": (0, 1), "c": ["x", "y", "z"]})
        row = encoding_for(schema, ratio)(Table(np.zeros((1, 2)), np.array([[2]])))
        assert 1 - 1e-6 < np.linalg.norm(row.astype(np.float64)) <= 1


def test_names_are_distinct_and_say_what_a_feature_is():
    encoding = encoding_for(SCHEMA, 1500)
    assert len(set(encoding.names)) == encoding.n_features
    own = ("age:cos8", "gain:missing", "ward=B", "sex=m", "ward:missing")
    for name in (*own, "visit:cos1", "visit:missing", "visit:month=Jan", "visit:weekday=Sun"):
        assert name in encoding.names
    assert "age:cos1*gain:cos2" in encoding.names
    assert encoding_for(SCHEMA, 30, by_column=True).names[:3] == ("age", "gain", "area")
    clash = Schema({"a": ["b=c", "d"], "a=b": ["c", "d"]})
    assert encoding_for(clash, 30).names == ("a=b=c", "a=d", "a=b=c~2", "a=b=d")


@pytest.mark.parametrize(("ratio", "by_column"), KINDS)
def test_blocks_hold_what_depends_on_a_column(ratio, by_column):
    encoding, rows = encoding_for(SCHEMA, ratio, by_column=by_column), table()
    before = encoding(rows)
    for place, name in enumerate(SCHEMA.numbers):
        numbers = rows.numbers.copy()
        numbers[:, place] = np.where(np.isnan(numbers[:, place]), 20.0, 1.0)
        changed = np.flatnonzero((encoding(Table(numbers, rows.codes)) != before).any(axis=0))
        alone = [i for i in changed if "*" not in encoding.names[i]]
        assert set(alone) <= set(encoding.blocks[name]) and len(alone) >= encoding.n_curves
    assert sum(map(len, encoding.blocks.values())) == sum("*" not in a for a in encoding.names)


def test_how_fine_it_is_follows_from_rows_and_budget():
    few = Schema({f"x{i}": (0, 1) for i in range(4)})
    many = Schema({f"x{i}": (0, 1) for i in range(30)})

    def shape(schema, ratio, **options):
        found = encoding_for(schema, ratio, **options)
        assert found.by_column == options.get("by_column", False)
        assert found.by_column or found.decay == (1.25 if ratio < 100 else 1)
        return found.curves, found.n_curves, found.pairs

    assert shape(few, 100) == ("cosines", 8, False)
    assert shape(few, 1200) == ("cosines", 8, True)
    assert shape(few, 1200, interactions=False) == ("cosines", 8, False)
    assert shape(few, 100, interactions=True) == ("cosines", 8, True)
    assert shape(many, np.inf) == ("cosines", 16, False)
    assert shape(Schema({"x": (0, 1)}), np.inf, interactions=True) == ("cosines", 16, False)
    fine = {1: (1, False), 24: (1, False), 25: (2, False), 48: (2, False), 49: (4, False)}
    fine |= {96: (4, False), 97: (8, False), 115: (8, False), 116: (8, True)}
    for ratio, expected in fine.items():
        assert shape(few, ratio, by_column=True) == ("polynomials", *expected)
    assert shape(few, 120, by_column=True, interactions=False) == ("polynomials", 8, False)
    assert shape(few, 10, by_column=True, interactions=True) == ("polynomials", 1, True)
    assert shape(many, np.inf, by_column=True) == ("polynomials", 8, False)
    # A model that is not told what counts how much gets what counts for half or more.
    assert shape(few, 14 * 8 - 1, by_column=True, alike=True) == ("polynomials", 1, False)
    assert shape(few, 14 * 8, by_column=True, alike=True) == ("polynomials", 2, False)
    assert shape(few, 14 * 38, by_column=True, alike=True) == ("polynomials", 8, True)


def importance(schema, ratio, **options):
    found = encoding_for(schema, ratio, by_column=True, **options)
    return dict(zip(found.names, found.importance, strict=True))


def test_finer_columns_count_less_and_all_alike_in_the_end():
    schema = Schema({"a": (0, 1), "b": Range(0, 1, missing=True), "c": ["u", "v", "w"]})
    before = None
    for ratio in np.geomspace(20, 1e6, 30):
        found = importance(schema, ratio, interactions=True)
        named = [*(f"a:poly{j}" for j in (2, 4, 8)), "a*b"]
        of_level = [found["a"], *(found[name] for name in named if name in found)]
        assert found["b:missing"] == found["c=u"] == found["a"] == found["b"] == 1
        assert (np.diff(of_level) <= 0).all() and found.get("a*b:poly2", 0) <= found["a*b"]
        if before is not None:  # with more rows little by little, and never less
            assert all(0 <= found[name] - one < 0.35 for name, one in before.items())
        before = found
    assert min(before.values()) > 0.999
    assert encoding_for(schema, np.inf, by_column=True).importance is None
    assert encoding_for(schema, 100, by_column=True, alike=True).importance is None
    assert encoding_for(schema, 100).importance is None


def test_a_level_counts_by_half_where_rows_are_a_multiple_of_the_columns_up_to_it():
    schema = Schema({"a": (0, 1), "b": (0, 1), "c": ["u", "v", "w"]})  # 5, 7, 11, 19, 20, 23
    for name, columns in {"a:poly2": 7, "a:poly3": 11, "a:poly8": 19, "a*b": 20}.items():
        found = importance(schema, 14.0 * columns, interactions=True)
        assert found[name] ** 2 == pytest.approx(0.5)
    assert importance(schema, 14.0 * 23)["a:poly2*b"] ** 2 == pytest.approx(0.5)


def test_what_counts_is_the_same_number_in_both_types():
    found = encoding_for(SCHEMA, 200, by_column=True, interactions=True).importance
    np.testing.assert_array_equal(found, found.astype(np.float32))


def test_bought_ranges_come_later_and_change_no_feature():
    schema = Schema({"age": Range(0, 100), "dose": PrivateRange(log=True), "ward": ["A", "B"]})
    encoding = encoding_for(schema, 100)
    rows = Table(np.array([[50.0, 2.0], [20.0, 900.0]]), np.array([[0], [UNKNOWN]]))
    with pytest.raises(ValueError, match="dose"):
        encoding(rows)
    whole = encoding.with_ranges({"dose": (1, 1000)})
    public = encoding_for(Schema({**schema, "dose": Range(1, 1000, log=True)}), 100)
    assert whole.names == encoding.names == public.names
    np.testing.assert_array_equal(whole(rows), public(rows))
    assert not whole(rows)[1, encoding.blocks["ward"]].any()  # unknown: as if it were not there


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        (1e-300, 1e50),
        (5e-324, 1e50),
        (0, 5e-324),
        (-1e50, 1e50),
        (1, 1 + 2**-52),
        (-1e-320, 1e-320),
    ],
)
def test_ranges_of_any_ends_give_finite_rows_within_the_bound(ends, log, by_column):
    low, high = ends
    schema = Schema({name: Range(low, high, log=log, missing=True) for name in "ab"})
    values = [np.nan, low, high, np.nextafter(low, high), np.nextafter(high, low), 0.0, -0.0]
    values += [low + (high - low) * share for share in np.linspace(0, 1, 50)]
    numbers = np.array([values, values[::-1]]).T
    encoding = encoding_for(schema, 5000, by_column=by_column, interactions=True)
    found = encoding(Table(numbers, np.zeros((len(numbers), 0), np.intp))).astype(np.float64)
    assert np.isfinite(found).all() and np.linalg.norm(found, axis=1).max() <= encoding.bound
    assert np.isfinite(encoding.numbers_at("a", np.linspace(0, 1, 9))).all()


@pytest.mark.parametrize("low, high", [(-1e6, 0.0), (-1e6, -1.0), (-1e6, 5.0)])
def test_a_logarithmic_scale_resolves_the_end_nearer_to_0(low, high):
    shares = np.linspace(0, 1, 101)
    mirrored = on_log(1 - shares, -high, -low)
    np.testing.assert_allclose(on_log(shares, low, high), 1 - mirrored)
    near, far = np.diff(on_log(np.array([0.0, 0.01, 0.99, 1.0]), low, high))[[2, 0]]
    assert near > 20 * far
    places = on_log(shares, low, high)
    np.testing.assert_allclose(off_log(places, low, high), shares, atol=1e-9)


@pytest.mark.parametrize("low, high", [(-1e6, 1e6), (-1e6, 1e3), (-1e3, 1e6), (-5, 100)])
def test_a_logarithmic_scale_resolves_both_sides_of_0(low, high):
    numbers = np.array([-0.1, -0.001, 0.0, 0.001, 0.1, 0.11]) * max(-low, high)
    numbers = numbers[(numbers >= low) & (numbers <= high)]
    places = on_log((numbers - low) / (high - low), low, high)
    # A thousandth of the farther end is told apart from 0, and so are both signs.
    assert (np.diff(places[:-1]) > 0.04).all()
    np.testing.assert_allclose(
        on_log(np.array([0.0, 1.0]), low, high), [0.0, 1.0], rtol=0, atol=1e-12
    )
    shares = np.linspace(0, 1, 101)
    np.testing.assert_allclose(off_log(on_log(shares, low, high), low, high), shares, atol=1e-9)
