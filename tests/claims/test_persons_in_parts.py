"""Persons on several workers, of everything that takes Dask collections: see in_parts.py."""

import itertools

import numpy as np
import pytest

pytest.importorskip("distributed")

from cases import RECORDS, privacy_of
from helpers import RELATIONS, assert_within_bounds, blobs, groups_of, pairs_first, releases
from in_parts import TAKEN, TAKEN_FITS, assert_same, blocks, cluster_here
from test_dask_persons import NAMES, table
from test_dask_privacy import DENSE, FORMS, arrays
from test_persons import neighbours

from dpsubspace import BoundedScaler, DPSGDClassifier, select_public
from dpsubspace._core.rows import together
from dpsubspace.statistics import private_quantile

pytestmark = pytest.mark.filterwarnings(
    "ignore:(the noise of|class|the released mean shows):dpsubspace.PrivacyWarning"
)

# A batch has other persons than in memory, where they are in the order of their names.
WHOLE = [(case, setting) for case, setting in TAKEN_FITS if setting != "batches"]


def fits(*factors, cases=TAKEN):
    """Every setting with the other factors in turns, and every two of these."""
    rare = {"apart": {(0, 2), (0, 3), (0, 4)}, "turn": itertools.count()}
    for case in cases:
        settings = [setting for setting in case.settings if (case, setting) in WHOLE]
        yield from pairs_first(settings, *factors, prefix=(case,), **rare)


@pytest.mark.parametrize(
    ("case", "setting", "relation", "names", "n_workers"),
    fits(RELATIONS, NAMES, [1, 2, 3]),
    ids=str,
)
def test_a_fit_is_that_in_memory(monkeypatch, case, setting, relation, names, n_workers):
    """The same numbers and the same statement, over blocks of uneven lengths and of no rows."""
    X, y, who = table(case.n)
    who = NAMES[names](who)
    here = case.fit(X, y, setting, relation, groups=who)
    with cluster_here(monkeypatch, n_workers):
        there = case.fit(blocks(X), blocks(y), setting, relation, groups=blocks(who))
    assert_same(here, there, 1e-6)
    assert privacy_of(here) == privacy_of(there)
    assert (privacy_of(there).unit, privacy_of(there).n_samples) == ("person", case.n)


@pytest.mark.parametrize(
    ("case", "setting", "relation", "record", "form", "n_workers"),
    fits(RELATIONS, RECORDS, DENSE, [1, 2, 3], cases=[case for case in TAKEN if case.gaussian]),
    ids=str,
)
def test_every_release_moves_within_its_bound_with_all_rows_of_a_person(
    monkeypatch, case, setting, relation, record, form, n_workers
):
    """Which lie in all blocks; and the number of rows changes along."""
    here, there, present = neighbours(case.n, relation, record)
    found = []
    for (X, y, who), null in ((here, None), (there, present)):
        X, groups = blocks(FORMS[form](X)), groups_of(null, blocks(who))
        outputs = found[0] if found else None
        with cluster_here(monkeypatch, n_workers), releases(monkeypatch, outputs=outputs) as seen:
            case.fit(X, blocks(y), setting, relation, groups=groups)
        found.append(seen)
    assert len(found[0]) == len(found[1]) > 0
    assert all(np.isfinite(total.value).all() for fit in found for total, *_ in fit)
    assert_within_bounds(*found, relation)


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, case, setting):
    X, y, who = table(case.n)
    given = blocks(X), blocks(y), setting
    with cluster_here(monkeypatch):
        once = case.fit(*given, groups=blocks(who))

    def lose(cluster):
        if cluster.calls > 1:  # all rows are with their persons
            cluster.lose(-1 - cluster.calls % 3)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        again = case.fit(*given, groups=blocks(who))
    assert cluster.calls > 1
    assert_same(once, again, 0.0)


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_what_leaves_a_part_has_no_entry_for_a_row_or_a_person(monkeypatch, case, setting):
    n_persons = 1201  # of a part, more than anything else has entries
    X, y, who = table(n_persons)
    with cluster_here(monkeypatch) as cluster:
        case.fit(blocks(X), blocks(y), setting, groups=blocks(who))
    parts = [part.value for part in cluster.parts[-3:]]
    sizes = {len(who), n_persons, *(sum(part.lengths) for part in parts)}
    sizes |= {int(part.leaves[together.HELD][0]) for part in parts}
    seen, results = cluster.results[:3], cluster.results[3:]
    found = [array for result in results for array in arrays(result)]
    assert len(sizes) == 8 and results
    assert found or all(isinstance(result, (int, float)) for result in results)
    assert not [array.shape for array in found if sizes & set(array.shape)]
    for one in seen:
        assert set(one.kinds) <= {"rows", "targets", "persons", "held"}


def test_a_pipeline_of_two_private_steps(monkeypatch):
    """Each brings the rows of each person together, of what the step before it has made."""
    from sklearn.pipeline import make_pipeline

    X, y, who = table(300)
    found = []
    for given, groups in (((X, y), who), ((blocks(X), blocks(y)), blocks(who))):
        steps = BoundedScaler(epsilon=50.0, random_state=0), DPSGDClassifier(random_state=0)
        both = {"boundedscaler__groups": groups, "dpsgdclassifier__groups": groups}
        with cluster_here(monkeypatch):
            found.append(make_pipeline(*steps).fit(*given, **both))
    for here, there in zip(*found, strict=True):
        assert_same(here, there, 1e-6)
        assert here.privacy_ == there.privacy_


def test_one_column_of_persons(monkeypatch):
    X, _, who = table(300)
    here = private_quantile(X[:, 0], 0.5, random_state=0, groups=who)
    with cluster_here(monkeypatch):
        there = private_quantile(blocks(X[:, 0]), 0.5, random_state=0, groups=blocks(who))
    assert here.value == pytest.approx(there.value, rel=1e-9)
    assert privacy_of(here) == privacy_of(there)


def test_what_takes_no_collections_takes_none_of_persons(monkeypatch):
    """Refused by what it is, before anything is read."""
    X, _, who = table(30)
    rows = blobs(n=30)[0]
    with cluster_here(monkeypatch) as cluster:
        with pytest.raises(ValueError, match="does not take Dask collections"):
            select_public({"a": rows, "b": -rows}, blocks(X), groups=blocks(who))
        assert not cluster.sent
