"""Coefficients of Dask data frames and datasets of PyArrow: those of the same rows in memory."""

import math

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

from helpers import RELATIONS, assert_all_charged, assert_within_bounds, releases
from in_parts import UNEVEN, blocks, cluster_here, partitions
from test_coefficients import patients, schema

from dpsubspace import PrivacyLedger, private_coefficients
from dpsubspace._core.rows import dataset_parts
from dpsubspace._core.rows.records import NullRecords

pytestmark = pytest.mark.filterwarnings(
    "ignore:these coefficients have no:dpsubspace.PrivacyWarning"
)

N = 1201
ROWS = patients(N)
CUTS = {"one": (), "uneven and empty": UNEVEN, "empty first": (0.0, 0.3), "many": (0.05,) * 19}
ROWS["visits"] = np.random.default_rng(1).poisson(1 + 2 * (ROWS["ward"] == "B"))
ROWS["days"] = np.random.default_rng(2).uniform(5, 50, N)
TARGETS = {
    "linear": ("stay", "age", "ward"),
    "logistic": ("ill", "age", "ward"),
    "poisson": ("visits", "age", "ward", "days"),
}
COUNTS = {"visits": (0, 12), "days": (10, 40)}


def found_of(frame, family, **options):
    target, *others = TARGETS[family]
    options = {"epsilon": 3.0, "random_state": 0} | options
    if family == "poisson":
        listed = schema("age", "ward") | COUNTS
        options |= {"family": "poisson", "exposure": "days"}
        return private_coefficients(frame, listed, target, **options)
    return private_coefficients(frame, schema(*others, target), target, **options)


def assert_equal(here, there):
    """Sums over other blocks are rounded otherwise: no number moves by more than that."""
    assert here.terms == there.terms
    assert here.privacy_.event == there.privacy_.event
    assert here.privacy_.public == there.privacy_.public
    for name in ("estimate", "low", "high"):
        one, other = getattr(here, name), getattr(there, name)
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)
    one, other = (found.released.equations.tally for found in (here, there))
    np.testing.assert_allclose(other.records, one.records)
    assert (one.events is None) == (other.events is None) == (here.family == "linear")
    if one.events is not None and other.events is not None:
        np.testing.assert_allclose(other.events, one.events)


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_workers", [1, 2])
def test_coefficients_are_those_of_rows_in_memory(monkeypatch, family, relation, cuts, n_workers):
    options = {"neighboring_relation": relation}
    with cluster_here(monkeypatch, n_workers) as cluster:
        there = found_of(partitions(ROWS, CUTS[cuts]), family, **options)
    assert len(cluster.parts) == min(n_workers, 1 + len(CUTS[cuts]))
    assert_equal(found_of(ROWS, family, **options), there)


@pytest.mark.parametrize("family", TARGETS)
def test_without_noise(monkeypatch, family):
    with cluster_here(monkeypatch):
        there = found_of(partitions(ROWS), family, epsilon=math.inf)
    assert_equal(found_of(ROWS, family, epsilon=math.inf), there)


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_persons_whose_rows_lie_in_several_blocks(monkeypatch, family, epsilon):
    people = pd.Series(np.arange(N) * 7 % 600)
    with cluster_here(monkeypatch):
        rows = partitions(ROWS.assign(person=people))
        there = found_of(rows, family, groups=rows["person"], epsilon=epsilon)
    here = found_of(ROWS, family, groups=people, epsilon=epsilon)
    assert_equal(here, there)
    assert there.privacy_.unit == "person" and there.privacy_.n_samples == 600


@pytest.mark.parametrize("family", TARGETS)
def test_files_that_are_read_in_each_pass(monkeypatch, tmp_path, family):
    dataset = pytest.importorskip("pyarrow.dataset")
    monkeypatch.setattr(dataset_parts, "_FEWEST", 90)
    monkeypatch.setattr(dataset_parts, "_MOST", 90)
    for i in range(3):
        ROWS.iloc[401 * i : 401 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
    assert_equal(found_of(ROWS, family), found_of(dataset.dataset(tmp_path), family))


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("place", [0, 500, N - 1])
def test_one_row_moves_each_release_within_its_bound(monkeypatch, family, relation, place):
    other, present = ROWS.copy(), np.ones(N, dtype=bool)
    if relation == "zero_out":
        present[place] = False
    else:
        row = {"age": 80.0, "ward": "C", "stay": -9.0, "ill": "no"}
        row["ill"] = "yes" if other.loc[place, "ill"] == "no" else "no"
        for name, value in row.items():
            other.loc[place, name] = value
    options = {"neighboring_relation": relation, "random_state": None}
    with cluster_here(monkeypatch):
        with releases(monkeypatch) as first:
            here = found_of(partitions(ROWS), family, **options)
        with releases(monkeypatch, outputs=first) as second:
            groups = NullRecords(None, present)
            found_of(partitions(other), family, groups=groups, **options)
    assert_all_charged(first, second, here.privacy_.event)
    assert_within_bounds(first, second, relation)
    moved = [np.any(one[0].value != two[0].value) for one, two in zip(first, second, strict=True)]
    assert sum(moved) > len(moved) / 2  # of most rows, nothing is cut from residuals


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_one_person_moves_each_release_within_its_bound(monkeypatch, family, relation):
    people, other, present = np.arange(N) * 7 % 300, ROWS.copy(), np.ones(N, dtype=bool)
    theirs = people == 21
    if relation == "zero_out":
        present = ~theirs
    else:
        other.loc[theirs, ["age", "ward", "stay", "ill"]] = [80.0, "C", -9.0, "no"]
    options = {"neighboring_relation": relation, "random_state": None}

    def run(frame, present):
        rows = partitions(frame.assign(person=people, there=present))
        found_of(rows, family, groups=NullRecords(rows["person"], rows["there"]), **options)

    with cluster_here(monkeypatch):
        with releases(monkeypatch) as first:
            run(ROWS, np.ones(N, dtype=bool))
        with releases(monkeypatch, outputs=first) as second:
            run(other, present)
    assert len(first) == len(second) > 5 and theirs.sum() > 3
    assert_within_bounds(first, second, relation)


@pytest.mark.parametrize("family", TARGETS)
def test_only_sums_come_back_and_parts_may_be_read_again(monkeypatch, family):
    def lose(cluster):
        if cluster.calls > 1:
            cluster.lose(cluster.calls % 3)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        there = found_of(partitions(ROWS), family)
    assert_equal(found_of(ROWS, family), there)
    assert cluster.calls > 5
    for result in cluster.results:
        assert not isinstance(result, np.ndarray) or N not in result.shape


BAD = {
    "persons": ({"groups": np.arange(N)}, "`groups` is in memory and the lengths"),
    "an array": ({"frame": blocks(ROWS[["age", "stay"]])}, "is a Dask array or series"),
    "outcomes": (
        {"frame": partitions(ROWS.replace({"ill": {"yes": "perhaps"}})), "family": "logistic"},
        "values of the target 'ill' that are not among",
    ),
    "missing": (
        {"frame": partitions(ROWS.assign(stay=np.where(ROWS["stay"] > 20, np.nan, 3.0)))},
        "'stay' of `X` has missing values.* partition 0",
    ),
    "columns": ({"frame": partitions(ROWS[["age", "stay"]])}, "lacks the columns"),
}


@pytest.mark.parametrize(("given", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_and_costs_nothing(monkeypatch, given, match):
    given = {"frame": partitions(ROWS), "family": "linear", "random_state": None} | given
    refused = pytest.raises(ValueError, match=match)
    with cluster_here(monkeypatch), PrivacyLedger(5.0, 1e-5) as ledger, refused:
        found_of(**given)
    assert len(ledger) == 0


def test_arrays_with_bounds_are_in_memory(monkeypatch):
    X, y = ROWS[["stay"]].to_numpy(), ROWS["stay"].to_numpy()
    options = {"bounds": (0, 30), "target_bounds": (0, 30)}
    with cluster_here(monkeypatch) as cluster:
        for given, name in (((blocks(X), y), "X"), ((X, partitions(pd.Series(y))), "target")):
            with pytest.raises(ValueError, match=f"`{name}` is a Dask collection"):
                private_coefficients(given[0], target=given[1], **options)
    assert not cluster.sent
