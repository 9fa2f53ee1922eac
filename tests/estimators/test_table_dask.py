"""Counts and summaries of Dask data frames: those of the same rows in memory, to the last bit."""

import math

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
import dask.dataframe as dd
from helpers import RELATIONS, assert_within_bounds, releases
from in_parts import READ, UNEVEN, cluster_here, partitions, read_by_columns
from test_table_counts import FRAME, PRIVATE_WARNINGS, SCHEMA

from dpsubspace import PrivacyLedger, private_counts, private_summary
from dpsubspace._core.rows.records import NullRecords, exact_steps

pytestmark = PRIVATE_WARNINGS

N = 1201
ROWS = FRAME[:N].reset_index(drop=True)
CUTS = {
    "one": (),
    "uneven and empty": UNEVEN,
    "empty first": (0.0, 0.3),
    "many": (0.05,) * 19,
}
SEEDED = {"epsilon": 1.0, "random_state": 0}


def counted(frame, **options):
    return private_counts(frame, SCHEMA, ["age", "drug"], **(SEEDED | options))


def summed_up(frame, **options):
    return private_summary(frame, SCHEMA, by="sex", **(SEEDED | options))


CALLS = {"counts": counted, "summary": summed_up}


def assert_equal(one, other):
    assert one.privacy_.event == other.privacy_.event and one.n == other.n
    if hasattr(one, "noisy"):
        for name in ("noisy", "counts", "low", "high"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    else:
        assert one.entries == other.entries and one.noise == other.noise


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_workers", [1, 3])
def test_the_release_is_that_of_rows_in_memory(monkeypatch, call, relation, cuts, n_workers):
    options = {"neighboring_relation": relation}
    with cluster_here(monkeypatch, n_workers) as cluster:
        found = CALLS[call](partitions(ROWS, CUTS[cuts]), **options)
    assert len(cluster.parts) == min(n_workers, 1 + len(CUTS[cuts]))
    assert_equal(CALLS[call](ROWS, **options), found)


@pytest.mark.parametrize("delta", ["auto", 0.0, 1e-5])
def test_the_kind_of_noise_does_not_depend_on_where_rows_are(monkeypatch, delta):
    with cluster_here(monkeypatch):
        assert_equal(counted(ROWS, delta=delta), counted(partitions(ROWS), delta=delta))


@pytest.mark.parametrize(
    "schema", [{"ward": ["A", "B"]}, {"age": (18, 90)}, {"ward": [f"{i}" for i in range(200)]}]
)
@pytest.mark.filterwarnings("ignore:.*'ward' are not listed:dpsubspace.PrivacyWarning")
def test_tables_of_one_kind_of_columns(monkeypatch, schema):
    with cluster_here(monkeypatch):
        found = private_summary(partitions(ROWS), schema, **SEEDED)
    assert_equal(private_summary(ROWS, schema, **SEEDED), found)


def test_counts_without_noise_and_text_of_other_types_in_each_partition(monkeypatch):
    """Codes of a partition are those of the schema, whatever categories the partition has."""
    kinds = [str, object, "category"]
    pieces = [ROWS[i::3].astype({"ward": kind}) for i, kind in enumerate(kinds)]
    rows = dd.from_map(lambda piece: piece, pieces, meta=ROWS[:0])
    with cluster_here(monkeypatch):
        found = private_counts(rows, SCHEMA, ["ward", "sex"], epsilon=math.inf)
    exact = private_counts(ROWS, SCHEMA, ["ward", "sex"], epsilon=math.inf)
    np.testing.assert_array_equal(found.counts, exact.counts)
    assert found.counts.sum() == N


# Bounds over partitions -------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("place", [0, 500, N - 1])
def test_one_row_moves_each_release_within_its_bound(monkeypatch, call, relation, place):
    """The neighbour gets the outputs of the first call, so that its searches go the same way."""
    other, present = ROWS.copy(), np.ones(N, dtype=bool)
    if relation == "zero_out":
        present[place] = False
    else:
        row = {"age": 18.0, "lactate": 30.0, "ward": "C", "drug": None, "sex": "m"}
        for name, value in row.items():
            other.loc[place, name] = value
    first, second = replayed(monkeypatch, call, relation, partitions(other), present)
    assert len(first) == len(second) == {"counts": 1, "summary": 14}[call]
    assert_within_bounds(first, second, relation)


def replayed(monkeypatch, call, relation, other, present):
    """Releases of a call in a ledger, whose noise is Gaussian, and of one on a neighbour."""
    options = {"neighboring_relation": relation, "random_state": None}
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5, neighboring_relation=relation)
    with cluster_here(monkeypatch), ledger:
        with releases(monkeypatch) as first:
            CALLS[call](partitions(ROWS), **options)
        with releases(monkeypatch, outputs=first) as second:
            CALLS[call](other, groups=NullRecords(None, present), **options)
    return first, second


def test_a_partition_that_counts_twice_would_be_noticed(monkeypatch):
    from dpsubspace._core.rows import dask_parts

    run = dask_parts._DaskParts.run

    def twice(parts, *call):
        found = run(parts, *call)
        return [found[0], *found]

    monkeypatch.setattr(dask_parts._DaskParts, "run", twice)
    present = np.arange(N) != 0
    first, second = replayed(monkeypatch, "counts", "zero_out", partitions(ROWS), present)
    with pytest.raises(AssertionError):
        assert_within_bounds(first, second, "zero_out")


@pytest.mark.parametrize("call", CALLS)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, call):
    lost = []

    def lose(cluster):
        if cluster.calls > 1:
            cluster.lose(cluster.calls % 3)
            lost.append(cluster.calls)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        found = CALLS[call](partitions(ROWS))
    assert len(lost) == cluster.calls - 1 >= 1
    assert_equal(CALLS[call](ROWS), found)


@pytest.mark.parametrize("n", [1, 1000, 2**29, 2**29 + 1, 10**9, 10**11])
def test_sums_of_so_many_numbers_are_exact(n):
    steps = exact_steps(n)
    assert math.log2(steps) % 1 == 0 and n * steps <= 2.0**53
    assert steps == 2.0**24 or (n + 1) * 2 * steps > 2.0**53


# What is read, and what goes to and fro ---------------------------------------------------------


def arrays(value):
    """Arrays in something that came back."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from arrays(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from arrays(each)
    elif hasattr(value, "__dict__"):
        yield from arrays(vars(value))


@pytest.mark.parametrize("call", CALLS)
def test_what_leaves_a_partition_has_no_entry_for_a_row(monkeypatch, call):
    with cluster_here(monkeypatch) as cluster:
        CALLS[call](partitions(ROWS))
    sizes = {N} | {sum(part.value.lengths) for part in cluster.parts}
    sizes |= {length for part in cluster.parts for length in part.value.lengths if length > 20}
    first, *results = cluster.results
    found = [array for result in results for array in arrays(result)]
    assert found and not [array.shape for array in found if sizes & set(array.shape)]
    assert set(first.kinds) == {"rows", "codes", "first"}


def test_codes_take_a_byte_and_other_columns_are_not_read(monkeypatch, tmp_path):
    pieces = [ROWS.iloc[some] for some in np.array_split(np.arange(N), 4)]
    rows = read_by_columns(ROWS, [len(piece) for piece in pieces])
    with cluster_here(monkeypatch) as cluster:
        counted(rows)
    assert len(READ) == 4 and all(sorted(columns) == ["age", "drug"] for columns in READ)
    kinds = cluster.parts[0].value.kinds()
    assert kinds["codes"] == (np.int8, (1,)) and kinds["rows"] == (np.float64, (1,))
    for i, piece in enumerate(pieces):
        piece.to_parquet(tmp_path / f"{i}.parquet")
    with cluster_here(monkeypatch):
        assert_equal(counted(ROWS), counted(dd.read_parquet(tmp_path)))


# Errors -----------------------------------------------------------------------------------------


def test_a_bad_value_is_told_by_column_and_partition(monkeypatch):
    bad = ROWS.astype({"age": object})
    bad.loc[N - 3, "age"] = "Mrs Smith"
    pieces = [bad[:-10], bad[-10:]]  # Dask makes text of columns of objects, unless it is told to
    with (
        cluster_here(monkeypatch),
        PrivacyLedger(epsilon=3.0, delta=1e-5) as ledger,
        dask.config.set({"dataframe.convert-string": False}),
    ):
        rows = dd.from_map(lambda piece: piece, pieces, meta=bad[:0])
        with pytest.raises(ValueError, match=r"'age' of `frame`.* partition 1, counted") as e:
            counted(rows)
        missing = ROWS.copy()
        missing.loc[0, "age"] = np.nan
        with pytest.raises(ValueError, match=r"'age' of `frame` .*missing.* partition 0, counted"):
            summed_up(partitions(missing))
    assert "Smith" not in str(e.value) and "Smith" not in str(e.value.__context__ or "")
    assert len(ledger) == 0


def test_what_cannot_be_counted_is_refused_before_anything_is_read(monkeypatch):
    with cluster_here(monkeypatch) as cluster:
        with pytest.raises(ValueError, match="`frame` lacks the columns \\['ward'\\]"):
            summed_up(partitions(ROWS.drop(columns="ward")))
        with pytest.raises(ValueError, match="columns are found by name: pass a Dask data frame"):
            summed_up(partitions(ROWS)["age"])
        assert not cluster.sent
        with pytest.raises(ValueError, match="`groups` is in memory and the lengths of the blocks"):
            summed_up(partitions(ROWS), groups=np.arange(N))
        with pytest.raises(ValueError, match="`epsilon`=inf takes exact quantiles"):
            summed_up(partitions(ROWS), epsilon=math.inf)
        with pytest.raises(ValueError, match="no rows"):
            counted(partitions(ROWS[:0]))


def test_one_ledger_counts_both(monkeypatch):
    options = {"epsilon": 0.5, "random_state": None}
    with cluster_here(monkeypatch), PrivacyLedger(epsilon=2.0, delta=1e-5) as ledger:
        summed_up(partitions(ROWS), **options)
        counted(partitions(ROWS), **options)
    with PrivacyLedger(epsilon=2.0, delta=1e-5) as other:
        summed_up(ROWS, **options)
        counted(ROWS, **options)
    assert len(ledger) == 2 and ledger.details() == other.details()
