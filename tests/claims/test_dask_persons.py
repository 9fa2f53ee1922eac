"""Persons whose rows lie on several workers: fits on Dask collections with `groups`."""

import itertools

import numpy as np
import pytest

pytest.importorskip("distributed")

from helpers import (
    RELATIONS,
    assert_within_bounds,
    blobs,
    groups_of,
    move,
    multipliers,
    pairs_first,
    releases,
)
from in_parts import UNEVEN, assert_same, blocks, cluster_here
from test_dask_privacy import arrays

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor
from dpsubspace._core.rows import together
from dpsubspace._core.rows.records import names_of_rows
from dpsubspace._core.rows.together import dealt, gathered, hashes_of, joined_names, name_array

pytestmark = pytest.mark.filterwarnings(
    "ignore:(the noise of|class|the released mean shows):dpsubspace.PrivacyWarning"
)

N_PERSONS = 120


def classifier(relation="zero_out", **options):
    return DPSGDClassifier(neighboring_relation=relation, random_state=0, **options)


def centred(relation="zero_out", **options):
    return DPSGDFClassifier(neighboring_relation=relation, random_state=0, **options)


def regressor(relation="zero_out", **options):
    how = {"neighboring_relation": relation, "target_bounds": (0, 3), "random_state": 0}
    return DPSGDRegressor(**how, **options)


MODELS = [classifier, centred, regressor]


def named(value):
    """A name that is the same in all processes of a run."""
    return getattr(value, "__name__", str(value))


EXACT = {"exact": {"epsilon": np.inf, "delta": 1e-5}, "private": {"epsilon": 3.0}}

# Names of persons, by their numbers.
NAMES = {
    "numbers": lambda i: i * 7919 - 300_000,
    "text": lambda i: np.array([f"patient {k}" * (1 + k % 3) for k in i]),
    "dates": lambda i: np.datetime64("1950-01-01") + i,
    "floats": lambda i: i + 0.5,
}


def table(n_persons=N_PERSONS, seed=0):
    """Rows of persons, one to four each, which lie all over the table."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(n_persons), rng.integers(1, 5, size=n_persons)))
    X, y = blobs(n=len(who))
    return X, y, who


# The same as in memory ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "setting", "names", "n_workers", "relation"),
    pairs_first(MODELS, EXACT, NAMES, [1, 2, 3], RELATIONS),
    ids=named,
)
def test_a_fit_is_that_in_memory(monkeypatch, model, setting, names, n_workers, relation):
    X, y, who = table()
    who = NAMES[names](who)
    here = model(relation, **EXACT[setting]).fit(X, y, groups=who)
    with cluster_here(monkeypatch, n_workers):
        there = model(relation, **EXACT[setting]).fit(blocks(X), blocks(y), groups=blocks(who))
    assert_same(here, there, 1e-6)
    assert here.privacy_ == there.privacy_
    assert (there.privacy_.unit, there.privacy_.n_samples) == ("person", N_PERSONS)


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_parts_of_no_rows_are_nothing(monkeypatch, model):
    """Fewer persons than workers, and blocks of no rows."""
    X, y = blobs(n=90)
    who = np.arange(90) % 3
    here = model(epsilon=3.0).fit(X, y, groups=who)
    with cluster_here(monkeypatch, 7) as cluster:
        there = model(epsilon=3.0).fit(blocks(X, (0.1,) * 9), y, groups=who)
    sizes = [part.value.lengths for part in cluster.parts[-7:]]
    assert sum(map(sum, sizes)) == 90 and [0] in sizes
    assert_same(here, there, 1e-6)


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_batches_of_persons_do_not_depend_on_the_number_of_workers(monkeypatch, model):
    X, y, who = table()
    found = []
    for n_workers, shares in ((1, UNEVEN), (2, (0.5,)), (3, UNEVEN)):
        with cluster_here(monkeypatch, n_workers):
            fitted = model(epsilon=3.0, batch_size=30)
            found.append(fitted.fit(blocks(X, shares), y, groups=blocks(who, shares)))
    assert_same(found[0], found[1], 1e-6)
    assert_same(found[0], found[2], 1e-6)


# Bounds -------------------------------------------------------------------------------------------

HEAVY = 37  # rows of the person who changes
RECORDS = {"large": 1e6, "opposite": -1e6, "zero": 0.0}


def neighbours(relation, record):
    """Tables in which one person has many rows, or one, and who is null in the second."""
    X, y, who = table()
    rng = np.random.default_rng(1)
    places = rng.integers(0, len(y) + 1, size=HEAVY)
    row = X[0] + RECORDS[record]

    def with_person(rows, label):
        places_of = places[: len(rows)]
        return (
            np.insert(X, places_of, rows, axis=0),
            np.insert(y, places_of, label),
            np.insert(who, places_of, N_PERSONS),
        )

    here = with_person(np.tile(row, (HEAVY, 1)), y[0])
    if relation == "zero_out":
        there = with_person(row[None], y[0])
        return here, there, there[2] != N_PERSONS
    return here, with_person(-row[None], (y[0] + 1) % 3), None


def replayed(monkeypatch, model, relation, record, n_workers, **options):
    """Sums of a fit, and of one on the neighbour that has the outputs of the first."""
    here, there, present = neighbours(relation, record)

    def fit(data, present=None):
        X, y, who = data
        groups = groups_of(present, blocks(who))
        return model(relation, epsilon=3.0, **options).fit(blocks(X), blocks(y), groups=groups)

    with cluster_here(monkeypatch, n_workers):
        with releases(monkeypatch) as first:
            event = fit(here).privacy_.event
        with releases(monkeypatch, outputs=first) as second:
            fit(there, present)
    assert len(first) == len(second) == len(multipliers(event))
    return first, second


@pytest.mark.parametrize(
    ("model", "relation", "record", "n_workers"),
    pairs_first(MODELS, RELATIONS, RECORDS, [1, 2, 3]),
    ids=named,
)
def test_all_rows_of_a_person_move_sums_within_their_bounds(
    monkeypatch, model, relation, record, n_workers
):
    pair = replayed(monkeypatch, model, relation, record, n_workers, n_iter=5)
    assert_within_bounds(*pair, relation)
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)


@pytest.mark.parametrize("relation", RELATIONS)
def test_batches_of_persons_move_within_their_bounds(monkeypatch, relation):
    here, there, present = neighbours(relation, "large")
    found = []
    for (X, y, who), null in ((here, None), (there, present)):
        groups = groups_of(null, blocks(who))
        model = classifier(relation, epsilon=3.0, batch_size=60, n_iter=8)
        outputs = found[0] if found else None
        with cluster_here(monkeypatch, 3), releases(monkeypatch, outputs=outputs) as seen:
            model.fit(blocks(X), blocks(y), groups=groups)
        found.append(seen)
    assert_within_bounds(*found, relation)
    # A batch that the person is in moves; that it is in none of 8 has a chance of 2^-8: not asked.


def test_these_tests_would_notice_a_person_who_is_in_two_parts(monkeypatch):
    """Where names are not looked at, a person of 37 rows counts once in each part."""
    place = itertools.count()

    def anywhere(names):
        rng = np.random.default_rng(next(place))
        return rng.integers(0, 2**63, size=len(names)).astype(np.uint64)

    options = {"n_iter": 1, "clip_norm": 0.05}
    pair = replayed(monkeypatch, classifier, "zero_out", "large", 3, **options)
    moved = move(pair[0][0][0], pair[1][0][0]) / pair[0][0][0].norm_bound
    assert 0.9 < moved <= 1 + 1e-12
    monkeypatch.setattr(together, "hashes_of", anywhere)
    here, there, present = neighbours("zero_out", "large")
    totals = []
    for (X, y, who), null in ((here, None), (there, present)):
        place = itertools.count()
        model = classifier(epsilon=3.0, **options)
        outputs = totals[0] if totals else None
        with cluster_here(monkeypatch, 3), releases(monkeypatch, outputs=outputs) as seen:
            model.fit(blocks(X), blocks(y), groups=groups_of(null, blocks(who)))
        totals.append(seen)
    assert move(totals[0][0][0], totals[1][0][0]) > 1.9 * totals[0][0][0].norm_bound


# What goes to and fro -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_nothing_but_sums_comes_back(monkeypatch, model):
    """No array has an entry for each row or person of a part, nor one for all."""
    X, y, who = table()
    with cluster_here(monkeypatch, 3) as cluster:
        model(epsilon=3.0, n_iter=3).fit(blocks(X), blocks(y), groups=blocks(who))
    parts = [part.value for part in cluster.parts[-3:]]
    sizes = {len(who), N_PERSONS, *(sum(part.lengths) for part in parts)}
    sizes |= {int(part.leaves[together.HELD][0]) for part in parts}
    seen, results = cluster.results[:3], cluster.results[3:]
    assert len(sizes) == 8 and results
    found = [array for result in results for array in arrays(result)]
    assert found and not [array.shape for array in found if sizes & set(array.shape)]
    for one in seen:
        assert set(one.kinds) == {"rows", "targets", "persons", "held"}


def test_parts_have_all_rows_of_their_persons(monkeypatch):
    X, y, who = table()
    X[:, 0] = who
    with cluster_here(monkeypatch, 3) as cluster:
        classifier(epsilon=3.0, n_iter=1).fit(blocks(X), blocks(y), groups=blocks(who))
    held = [set(part.value.leaves["rows"][:, 0]) for part in cluster.parts[-3:]]
    assert sum(map(len, held)) == N_PERSONS == len(set.union(*held))
    assert all(len(some) > 10 for some in held)
    for part in cluster.parts[-3:]:
        rows, persons = part.value.leaves["rows"][:, 0], part.value.leaves["persons"]
        pairs = set(zip(rows, persons, strict=True))
        assert len(pairs) == len(set(rows)) == int(part.value.leaves["held"][0])


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_equal_names_meet_in_one_part(rng, names, n_parts):
    """Whatever the blocks that they come from, and in the same order for any number of parts."""
    who = NAMES[names](rng.integers(0, 40, size=200))
    rows = np.arange(200.0)
    given = [
        dealt({"rows": rows[some], "names": joined_names([who[some]])}, n_parts)
        for some in (slice(0, 10), slice(10, 10), slice(10, 150), slice(150, 200))
    ]
    parts = [gathered([pieces[i] for pieces in given]) for i in range(n_parts)]
    together_again = np.concatenate([part["rows"] for part in parts]).astype(int)
    assert sorted(together_again) == list(range(200))
    found = who[together_again]
    assert (found[1:] != found[:-1]).sum() + 1 == len(set(who.tolist()))
    once = gathered([dealt({"rows": rows, "names": who}, 1)[0]])
    np.testing.assert_array_equal(together_again, once["rows"])


def test_hashes_are_of_names_and_spread():
    wide, narrow = np.array(["a", "bc", "longer"]), np.array(["a", "bc"])
    np.testing.assert_array_equal(hashes_of(wide)[:2], hashes_of(narrow))
    for names in (np.arange(4096), np.array([f"{i:05d}" for i in range(4096)])):
        hashes = hashes_of(names)
        assert len(set(hashes.tolist())) == 4096
        counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
        assert counts.min() > 150 and counts.max() < 370  # known: the hash has no seed


# Refusals -----------------------------------------------------------------------------------------


def refused(monkeypatch, match, X, y, groups, model=None):
    model = classifier(epsilon=3.0) if model is None else model
    with cluster_here(monkeypatch, 2), pytest.raises(ValueError, match=match) as caught:
        model.fit(X, y, groups=groups)
    assert not hasattr(model, "privacy_")
    return str(caught.value)


def test_blocks_of_other_types_are_refused(monkeypatch):
    """1 and "1" would be two persons."""
    X, y, who = table()
    some = blocks(who).map_blocks(
        lambda block, block_info=None: (
            block.astype(str) if block_info[0]["chunk-location"][0] % 2 else block
        ),
        dtype=object,
    )
    refused(monkeypatch, "`groups` has blocks of int64 and text", blocks(X), blocks(y), some)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_of_nobody_are_refused(monkeypatch, missing):
    X, y, who = table()
    who = who.astype(object)
    who[17] = missing
    refused(monkeypatch, "`groups` has missing entries", blocks(X), blocks(y), blocks(who))


def test_messages_do_not_tell_planning_there_are(monkeypatch):
    X, y, who = table()
    for bad in ((X, y, who[:-1]), (X, y[:-1], who)):
        said = refused(monkeypatch, "must have the same rows", *map(blocks, bad))
        assert not any(str(len(who) - i) in said for i in (0, 1))
    with pytest.raises(ValueError, match="text"):
        together.name_array(np.array([2**63], dtype=np.uint64))


def test_a_number_is_one_person_whatever_lies_beside_it():
    """Blocks of one column of floats: whole in one of them, and not all whole in the other."""
    for whole in np.arange(1.0, 40.0):
        names = [
            joined_names([name_array(names_of_rows(block, len(block)))])
            for block in (np.array([whole]), np.array([whole, 0.5]))
        ]
        given = [dealt({"names": some, "rows": some + 0.0}, 2) for some in names]
        parts = [gathered([pieces[i] for pieces in given]) for i in range(2)]
        assert sum(int(part["held"][0]) for part in parts) == 2
        rows = [len(part["rows"]) for part in parts]
        assert sorted(rows) in ([0, 3], [1, 2])
