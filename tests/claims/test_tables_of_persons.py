"""Tables of persons with several rows, on Dask collections: see in_parts.py.

Fits are those in memory, and all rows of a person, wherever they lie, move every release within its
bound.
"""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

from helpers import (
    RELATIONS,
    assert_all_charged,
    assert_within_bounds,
    groups_of,
    move,
    pairs_first,
    releases,
)
from in_parts import (
    READ,
    SCHEMA,
    UNEVEN,
    assert_same,
    cluster_here,
    mixed,
    partitions,
    read_by_columns,
)
from sklearn.base import clone
from test_dask_privacy import arrays
from test_tables_in_parts import ESTIMATED, FITS, OTHERS

from dpsubspace import (
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateRange,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.rows import records, together
from dpsubspace._core.tables import forming
from dpsubspace.tables import TableEncoder

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:columns that the schema does not name"),
]

N_PERSONS, HEAVY = 210, 37  # and the rows of the person who changes
NAMES = {"numbers": lambda i: i * 7919 - 300_000, "text": lambda i: f"patient {i}" * (1 + i % 3)}

CUTS = {"uneven and empty": UNEVEN, "one": (), "many": (0.05,) * 19, "empty first": (0.0, 0.3)}

# A batch has other persons than in memory, where they are in the order of their names.
WHOLE = [name for name in FITS if name != "batches"]


def persons(n_persons, names="text", seed=0):
    """A table with rows of persons, one to four each, which lie all over it."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(n_persons), rng.integers(1, 5, size=n_persons)))
    frame = mixed(len(who), seed).astype({"ward": object, "age": float})
    return frame.assign(who=[NAMES[names](i) for i in who.tolist()])


TABLE = persons(N_PERSONS)


def fitted(name, relation, frame, present=None):
    """A fit of a table in memory or in partitions; False in `present` makes null persons."""
    made, target, others = FITS[name]
    made = clone(made).set_params(neighboring_relation=relation)
    return made.fit(frame, frame[target], groups=groups_of(present, frame["who"]), **others)


def assert_same_ranges(here, there):
    assert here.ranges_.keys() == there.ranges_.keys()
    for name, ends in here.ranges_.items():
        assert there.ranges_[name] == pytest.approx(ends, rel=1e-12)


# The same as in memory --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "relation", "n_workers", "cuts", "names", "formed"),
    pairs_first(WHOLE, RELATIONS, [2, 1], CUTS, NAMES, [False, True]),
)
def test_a_fit_is_that_in_memory(monkeypatch, name, relation, n_workers, cuts, names, formed):
    """Rows may be formed in every step, as those of large tables are."""
    monkeypatch.setattr(forming, "_MOST_KEPT", 0 if formed else forming._MOST_KEPT)
    frame = persons(N_PERSONS, names)
    here = fitted(name, relation, frame)
    with cluster_here(monkeypatch, n_workers):
        there = fitted(name, relation, partitions(frame, CUTS[cuts]))
    assert_same(here[-1], there[-1], 1e-6)
    assert_same_ranges(here[0], there[0])
    assert here[0].encoding_.names == there[0].encoding_.names
    assert here.privacy_ == there.privacy_ == there[0].privacy_ == there[-1].privacy_
    assert (there.privacy_.unit, there.privacy_.n_samples) == ("person", N_PERSONS)


def test_batches_of_persons_do_not_depend_on_the_number_of_workers(monkeypatch):
    found = []
    for n_workers, cuts in ((1, "many"), (2, "uneven and empty"), (3, "empty first")):
        with cluster_here(monkeypatch, n_workers):
            found.append(fitted("batches", "zero_out", partitions(TABLE, CUTS[cuts])))
    assert_same(found[0][-1], found[1][-1], 1e-6)
    assert_same(found[0][-1], found[2][-1], 1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
def test_an_encoder_alone(monkeypatch, relation):
    schema = {"age": PrivateRange(), "dose": PrivateRange(log=True)}
    schema |= {"lab": PrivateRange(missing=True), "ward": SCHEMA["ward"]}
    options = {"epsilon": 60.0, "neighboring_relation": relation, "random_state": 0}
    here = TableEncoder(schema, **options).fit(TABLE, groups=TABLE["who"])
    frame = partitions(TABLE)
    with cluster_here(monkeypatch, 2):
        there = TableEncoder(schema, **options).fit(frame, groups=frame["who"])
    assert_same_ranges(here, there)
    assert here.privacy_ == there.privacy_ and there.privacy_.unit == "person"


def summed_up(frame, groups, relation, **options):
    options |= {"neighboring_relation": relation, "groups": groups}
    return private_summary(frame, SCHEMA, by="flag", **options)


def counted(frame, groups, relation, **options):
    options |= {"neighboring_relation": relation, "groups": groups}
    return private_counts(frame, SCHEMA, ["age", "ward", "sex"], **options)


CALLS = {"summary": summed_up, "counts": counted}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_workers", [1, 2])
def test_tables_of_results_are_those_in_memory(monkeypatch, call, relation, cuts, n_workers):
    """To the last bit: what persons count for in a cell adds up without rounding."""
    frame = partitions(TABLE, CUTS[cuts])
    here = CALLS[call](TABLE, TABLE["who"], relation, random_state=0)
    with cluster_here(monkeypatch, n_workers):
        there = CALLS[call](frame, frame["who"], relation, random_state=0)
    assert here.privacy_ == there.privacy_ and (there.n, there.unit) == (N_PERSONS, "person")
    pd.testing.assert_frame_equal(here.to_frame(), there.to_frame(), check_exact=True)


# Bounds -----------------------------------------------------------------------------------------


def neighbours(relation, record):
    """Tables in which one person has many rows, or one instead, and which rows are there."""
    rng = np.random.default_rng(1)
    base = persons(N_PERSONS - 1)
    places = rng.integers(0, len(base) + 1, size=HEAVY) - 0.5

    def with_rows(row, n):
        row = row.assign(who="who changes")
        order = np.argsort(np.concatenate([np.arange(len(base)), places[:n]]), kind="stable")
        return pd.concat([base, *[row] * n], ignore_index=True).iloc[order].reset_index(drop=True)

    row = base[:1].assign(**OTHERS[record])
    here = with_rows(row, HEAVY)
    if relation == "zero_out":
        there = with_rows(row, 1)
        return here, there, partitions(there["who"] != "who changes")
    other = base[:1].assign(label="yes" if base["label"][0] == "no" else "no", days=1e9, other=1e9)
    return here, with_rows(other, 1), None


def replayed(monkeypatch, name, relation, record, n_workers=2):
    """Sums of a fit, and of one on a neighbour that is given the outputs of the first."""
    here, there, present = neighbours(relation, record)
    with cluster_here(monkeypatch, n_workers):
        with releases(monkeypatch) as first:
            event = fitted(name, relation, partitions(here)).privacy_.event
        with releases(monkeypatch, outputs=first) as second:
            fitted(name, relation, partitions(there), present)
    assert_all_charged(first, second, event)
    return first, second


@pytest.mark.parametrize(
    ("name", "relation", "record", "n_workers", "formed"),
    pairs_first(FITS, RELATIONS, OTHERS, [2, 1, 3], [False, True], together=(0, 1)),
)
def test_all_rows_of_a_person_move_every_release_within_its_bound(
    monkeypatch, name, relation, record, n_workers, formed
):
    """Ranges that are estimated among them: a person counts once in all cells of a column."""
    monkeypatch.setattr(forming, "_MOST_KEPT", 0 if formed else forming._MOST_KEPT)
    pair = replayed(monkeypatch, name, relation, record, n_workers)
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("record", OTHERS)
def test_so_does_every_release_of_a_table_of_results(monkeypatch, call, relation, record):
    """In a ledger with a delta, where noise is Gaussian."""
    here, there, present = neighbours(relation, record)
    ledger = PrivacyLedger(9.0, 1e-5, neighboring_relation=relation, unit="person")
    found = []
    with cluster_here(monkeypatch, 2), ledger:
        for frame, null in ((here, None), (there, present)):
            frame, outputs = partitions(frame), found[0] if found else None
            with releases(monkeypatch, outputs=outputs) as seen:
                CALLS[call](frame, groups_of(null, frame["who"]), relation, epsilon=1.0)
            found.append(seen)
    assert len(found[0]) == len(found[1]) == {"counts": 1, "summary": 14}[call]
    assert_within_bounds(*found, relation)


def test_these_tests_would_notice_rows_that_count_in_full(monkeypatch):
    """Without weights the first sum, that of rows, moves by nearly as many rows as there are."""

    def moved():
        (first, *_), (second, *_) = replayed(monkeypatch, "classes", "zero_out", "gaps")
        return move(first[0], second[0]) / first[0].norm_bound

    assert 0.9 < moved() <= 1 + 1e-12  # the bound is tight
    in_parts = records.parts_of_persons
    monkeypatch.setattr(records, "parts_of_persons", lambda *given: np.sign(in_parts(*given)))
    assert moved() > 0.9 * (HEAVY - 1)


# What goes to and fro ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, name):
    with cluster_here(monkeypatch):
        once = fitted(name, "zero_out", partitions(TABLE))

    def lose(cluster):
        if cluster.calls > 1:  # all rows are with their persons
            cluster.lose(-1 - cluster.calls % 3)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        again = fitted(name, "zero_out", partitions(TABLE))
    assert cluster.calls > 3
    assert_same(once[-1], again[-1], 0.0)


@pytest.mark.parametrize("name", FITS)
def test_what_leaves_a_part_has_no_entry_for_a_row_or_a_person(monkeypatch, name):
    frame = persons(1201)  # of a part, more than anything else has entries
    with cluster_here(monkeypatch) as cluster:
        fitted(name, "zero_out", partitions(frame))
    parts = [part.value for part in cluster.parts[-3:]]
    sizes = {len(frame), 1201, *(sum(part.lengths) for part in parts)}
    sizes |= {int(part.leaves[together.HELD][0]) for part in parts}
    seen, results = cluster.results[:3], cluster.results[3:]
    found = [array for result in results for array in arrays(result)]
    assert len(sizes) == 8 and found
    assert not [array.shape for array in found if sizes & set(array.shape)]
    for one in seen:
        assert set(one.kinds) == {"rows", "codes", "targets", "persons", "held"}


def test_rows_travel_as_the_schema_reads_them_and_not_encoded(monkeypatch):
    """Parts of a wide encoding are as narrow as the columns of the schema, codes of one byte."""
    with cluster_here(monkeypatch, 2) as cluster:
        model = fitted("classes", "zero_out", partitions(TABLE))
    width = len(model[0].encoding_.names)
    leaves = [part.value.leaves for part in cluster.parts[-2:]]
    assert width > 200 and {some["rows"].shape[1] for some in leaves} == {5}
    assert {some["codes"].dtype for some in leaves} == {np.dtype(np.int16)}
    before, after = cluster.sent[:2], cluster.sent[2:]
    assert any(b"patient 17" in sent for _, sent in before)  # in the graph that rows are read from
    assert not any(b"patient 17" in sent for _, sent in after)


def test_only_columns_of_the_schema_and_that_of_persons_are_read(monkeypatch):
    """Each by itself, of a source that can be read by columns."""
    frame = read_by_columns(TABLE, [200, 200, 200])
    schema = {name: SCHEMA[name] for name in ("age", "ward")}
    with cluster_here(monkeypatch):
        model = tabular_pipeline(DPSGDClassifier(n_iter=2), schema)
        model.fit(frame, frame["label"], groups=frame["who"])
        private_counts(frame, schema, "ward", groups=frame["who"])
    kinds = [{"age", "ward"}, {"label"}, {"who"}, {"ward"}]
    assert sorted(map(len, READ)) == [1] * 12 + [2] * 3
    assert all({*some} in kinds for some in READ)


# Refusals ---------------------------------------------------------------------------------------


def refused(monkeypatch, match, frame, groups, error=ValueError, **options):
    model = tabular_pipeline(DPSGDClassifier(), SCHEMA, **options)
    ledger = PrivacyLedger(9.0, 1e-5, unit="person")
    with cluster_here(monkeypatch, 2), ledger, pytest.raises(error, match=match) as caught:
        model.fit(frame, frame["label"], groups=groups)
    assert not ledger.entries and not hasattr(model, "privacy_")
    return str(caught.value)


def test_what_cannot_be_is_refused_before_anything_is_spent(monkeypatch):
    frame = partitions(TABLE)
    missing = TABLE.assign(who=TABLE["who"].where(TABLE.index != 17, None))
    refused(monkeypatch, "missing entries.*partition 0", frame, partitions(missing)["who"])
    refused(monkeypatch, "one column.*2 columns", frame, frame[["who", "sex"]])
    refused(monkeypatch, "`groups` is in memory and the lengths", frame, TABLE["who"])
    other = partitions(TABLE, (0.5,))["who"]
    refused(monkeypatch, "`X` has 7 blocks and `groups` has 2", frame, other)
    bad = partitions(TABLE.assign(age=TABLE["age"].where(TABLE.index != 17, np.nan)))
    refused(monkeypatch, "'age' of `X` has missing values.*partition", bad, bad["who"])


def test_persons_of_other_rows_are_noticed(monkeypatch):
    """Blocks of the same lengths, of which Dask has moved rows: none gets another one's name."""
    frame = partitions(TABLE)
    moved = frame["who"].map_partitions(lambda some: some[::-1], meta=("who", object))
    refused(monkeypatch, "other rows, or in another order, as their index says", frame, moved)
    numbers = frame[["age", "dose"]]
    for groups in (moved, partitions(TABLE[:-1], UNEVEN)["who"]):
        error = pytest.raises(ValueError, match=r"another order.*This is about partition \d")
        with cluster_here(monkeypatch), error:
            DPSGDClassifier().fit(numbers, frame["label"], groups=groups)


def test_no_message_tells_planning_there_are(monkeypatch):
    """Neither of a partition: of persons they are private."""
    frame, shorter = partitions(TABLE), partitions(TABLE[:-1], UNEVEN)
    shorter = shorter["who"].map_partitions(np.asarray)
    said = refused(monkeypatch, "one entry for each row", frame, shorter)
    cuts = [int(share * len(TABLE)) for share in UNEVEN]
    sizes = {len(TABLE), len(TABLE) - 1, len(TABLE) - sum(cuts), *cuts} - {0, 1}
    assert not any(str(size) in said for size in sizes)


def test_ranges_that_noise_hides_of_persons_are_not_paid_for(monkeypatch):
    """Though there are rows enough: the number of persons decides."""
    many = pd.concat([TABLE] * 30, ignore_index=True)
    frame, schema = partitions(many), ESTIMATED
    model = tabular_pipeline(DPSGDClassifier(classes=["no", "yes"]), schema, epsilon=0.1)
    hidden = pytest.raises(PrivacyError, match=f"of the {N_PERSONS} persons.*Nothing was released")
    with cluster_here(monkeypatch, 2), hidden:
        model.fit(frame, frame["label"], groups=frame["who"])
    assert not hasattr(model, "privacy_")
