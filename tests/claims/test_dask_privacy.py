"""Fits on Dask collections: what a record moves over several parts, and what goes to and fro.

Most run on a cluster in this process, which runs each task at once: see in_parts.py. Real workers
are met in test_dask_workers.py.
"""

import itertools
import pickle
import re

import numpy as np
import pytest

pytest.importorskip("distributed")

from cases import FORMS, RECORDS, privacy_of
from helpers import (
    RELATIONS,
    assert_all_charged,
    assert_within_bounds,
    blobs,
    move,
    pairs_first,
    releases,
)
from in_parts import TAKEN, TAKEN_FITS, assert_same, blocks, cluster_here, lengths
from test_bounds import BLOCKS, NAMED

import dpsubspace
from dpsubspace import DPSGDClassifier, DPSGDRegressor
from dpsubspace._core.release import noise
from dpsubspace._core.rows import dask_parts
from dpsubspace._core.rows.dask_parts import load_collections
from dpsubspace._core.rows.remote import RowPart, is_remote
from dpsubspace.linear_model import GradientDirections

pytestmark = pytest.mark.filterwarnings(
    "ignore:(the noise of|class|the released mean shows):dpsubspace.PrivacyWarning"
)

# Where the record lies that changes: first of all, or among others in the middle of a part.
PLACES = {"first part": 0, "middle part": 0.4, "last part": 0.99}
SOME_RECORDS = ["opposite", "largest", "huge", "off public"]
DENSE = ["float64", "float32"]


def neighbours(X, y, relation, record, place):
    """Two data sets that differ in one record, and which records of the second are there."""
    i = int(PLACES[place] * len(X))
    X, other_X, other_y = X.copy(), X.copy(), y.copy()
    X[i], other_X[i] = RECORDS[record](X)
    other_y[i] = (y[i] + 1) % 3
    if relation == "zero_out":
        return (X, y), (X, y), np.arange(len(X)) != i
    return (X, y), (other_X, other_y), None


def in_parts(data, form):
    """Rows and targets in blocks."""
    X, y = data
    return blocks(FORMS[form](X)), blocks(y)


def replayed(monkeypatch, case, here, there, present, **options):
    """Sums of a fit in parts, and of one on a neighbour that is given the outputs of the first."""
    with cluster_here(monkeypatch) as cluster:
        with releases(monkeypatch) as first:
            event = privacy_of(case.fit(*here, **options)).event
        assert len(cluster.parts) == 3
        with releases(monkeypatch, outputs=first) as second:
            case.fit(*there, present=present, **options)
    assert_all_charged(first, second, event)
    return first, second


def fits():
    """Every setting in both relations, and every two of what else there is."""
    turn = itertools.count()
    for case in [case for case in TAKEN if case.gaussian]:
        factors = (case.settings, RELATIONS, SOME_RECORDS, DENSE, PLACES)
        apart = {(0, 2), (0, 3), (0, 4)}
        rare = {"apart": apart, "together": (0, 1), "turn": turn}
        yield from pairs_first(*factors, prefix=(case,), **rare)


@pytest.mark.parametrize(
    ("case", "setting", "relation", "record", "form", "place"), fits(), ids=str
)
def test_every_release_over_parts_moves_within_its_bound(
    monkeypatch, case, setting, relation, record, form, place
):
    here, there, present = neighbours(*blobs(n=case.n), relation, record, place)
    here, there = in_parts(here, form), in_parts(there, form)
    options = {"setting": setting, "relation": relation}
    pair = replayed(monkeypatch, case, here, there, present, **options)
    assert all(np.isfinite(total.value).all() for fit in pair for total, *_ in fit)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize(
    ("fit", "relation", "form", "place", "batch_size"),
    pairs_first(BLOCKS, RELATIONS, DENSE, PLACES, [None, 300]),
    ids=str,
)
def test_bounds_hold_over_several_chunks_of_several_parts(
    monkeypatch, fit, relation, form, place, batch_size
):
    name, setting = fit
    X, y = blobs(n=1500)
    if "adaptive" in name:
        X += 100.0  # the radius is a hundredth of the rows: in float32 that takes float64
    here, there, present = neighbours(X, y, relation, "opposite", place)
    here, there = in_parts(here, form), in_parts(there, form)
    options = {"setting": setting, "relation": relation, "chunk": 256, "batch_size": batch_size}
    pair = replayed(monkeypatch, NAMED[name], here, there, present, **options)
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize("form", DENSE)
def test_these_tests_would_notice_a_part_that_counts_twice(monkeypatch, form):
    """And the bound is tight: a huge row moves the sum by nearly all of it."""
    here, there, present = neighbours(*blobs(n=40), "zero_out", "opposite", "first part")
    here, there = in_parts(here, form), in_parts(there, form)
    options = {"clip_norm": 0.1, "n_iter": 1}
    fit = NAMED["DPSGDClassifier"]
    first, second = replayed(monkeypatch, fit, here, there, present, **options)
    assert 0.99 < move(first[0][0], second[0][0]) / first[0][0].norm_bound <= 1 + 1e-12

    def twice(parts, *call):
        found = run(parts, *call)
        return [found[0], *found]

    run = dask_parts._DaskParts.run
    monkeypatch.setattr(dask_parts._DaskParts, "run", twice)
    first, second = replayed(monkeypatch, fit, here, there, present, **options)
    assert move(first[0][0], second[0][0]) > 1.9 * first[0][0].norm_bound


def test_a_null_record_is_found_in_its_part_whatever_the_blocks(monkeypatch):
    """`present` is dealt out to the parts in the order of the rows."""
    X, y = blobs(n=90)
    for shares in [(0.5,), (0.0, 0.1, 0.0), (0.1,) * 9]:
        for i in (0, 8, 9, 45, 89):
            present = np.arange(90) != i
            case, options = NAMED["DPSGDClassifier"], {"n_iter": 2}
            one = case.fit(X, y, present=present, **options)
            with cluster_here(monkeypatch):
                other = case.fit(blocks(X, shares), y, present=present, **options)
            assert_same(one, other, 1e-12)


# What is drawn where --------------------------------------------------------------------------


@pytest.fixture
def no_noise_at_work(monkeypatch):
    """A cluster on whose workers nothing can be drawn that hides something; what drew is counted.

    Randomness from a seed that is written down in the code is public, and draws nothing.
    """
    draws = []

    def guarded(cluster):
        def guard(owner, name, *, secret=lambda *args: True):
            function = getattr(owner, name)

            def drawn(*args, **options):
                if secret(*args):
                    assert not cluster.at_work, f"{name} is called on a worker"
                    draws.append(name)
                return function(*args, **options)

            monkeypatch.setattr(owner, name, drawn)

        for kind in (noise.SeededNoise, noise.SecureNoise):
            for name in ("gaussian", "laplace", "normals", "uniform", "exponentials"):
                guard(kind, name)
            for name in ("poisson_sample", "child"):
                guard(kind, name)
        guard(noise, "_system_bits")
        guard(noise.os, "urandom")
        guard(np.random, "SeedSequence", secret=lambda *seed: not seed or seed[0] is None)
        guard(np.random, "default_rng", secret=lambda *seed: not seed or seed[0] is None)
        return draws

    return guarded


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")  # as the noise falls
def test_workers_draw_no_noise_and_no_batch(monkeypatch, no_noise_at_work, case, setting, seed):
    X, y = blobs(n=case.n)
    with cluster_here(monkeypatch) as cluster:
        draws = no_noise_at_work(cluster)
        case.fit(blocks(X), y, setting, random_state=seed)
    assert draws and cluster.calls
    if "batches" in setting:
        assert "poisson_sample" in draws


def test_these_tests_would_notice_noise_on_a_worker(monkeypatch, no_noise_at_work):
    """Each of the sources is guarded, and `random_state` makes no difference."""
    with cluster_here(monkeypatch) as cluster:
        no_noise_at_work(cluster)
        cluster.at_work = True
        for draw in (
            lambda: noise.SeededNoise(0).gaussian((1,), 1.0),
            lambda: noise.SecureNoise().gaussian((1,), 1.0),
            lambda: noise.SecureNoise().poisson_sample(3, 0.5),
            lambda: noise._system_bits((1,)),
            lambda: np.random.default_rng(),
        ):
            with pytest.raises(AssertionError, match="on a worker"):
                draw()


# Tasks that run twice, and parts that are read again ------------------------------------------


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_tasks_may_run_twice_and_parts_be_read_again(monkeypatch, case, setting):
    """Each task gives the same twice, to the last bit, and the fit is that of tasks run once.

    Before every call one of the parts has lost all that was made of its rows.
    """
    X, y = blobs(n=case.n)
    with cluster_here(monkeypatch) as kept:
        once = case.fit(blocks(X), y, setting)
    lost = []

    def lose(cluster):
        if cluster.calls > 1:  # all parts are there
            cluster.lose(cluster.calls % 3)
            lost.append(cluster.calls)

    with cluster_here(monkeypatch, before=lose, twice=True) as cluster:
        again = case.fit(blocks(X), y, setting)
    assert len(lost) == cluster.calls - 1 >= kept.calls - 1 >= 1
    assert_same(once, again, 0.0)


def test_a_part_in_two_places_may_lag_behind(monkeypatch):
    """Dask may copy a part to another worker, which then lacks what came later, and gets it."""
    X, y = blobs(n=300)
    copies = {}

    def elsewhere(cluster):
        for i, part in enumerate(cluster.parts):
            copies.setdefault(i, pickle.loads(pickle.dumps(part.value)))
            part.value, copies[i] = copies[i], part.value

    case = NAMED["DPSGDFClassifier, adaptive"]
    with cluster_here(monkeypatch):
        once = case.fit(blocks(X), y)
    with cluster_here(monkeypatch, before=elsewhere):
        again = case.fit(blocks(X), y)
    assert_same(once, again, 0.0)


# What goes to and fro -------------------------------------------------------------------------

N = 397  # as many rows as no other thing has entries


def arrays(value):
    """All arrays in something that came back."""
    if isinstance(value, np.ndarray):
        yield value
        value = value.ravel().tolist() if value.dtype == object else ()
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "__dict__"):
        value = vars(value).values()
    if not isinstance(value, (str, bytes, float, int)) and np.iterable(value):
        for entry in value:
            yield from arrays(entry)


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_what_leaves_a_part_has_no_entry_for_a_row(monkeypatch, case, setting):
    X, y = blobs(n=N)
    with cluster_here(monkeypatch) as cluster:
        case.fit(blocks(X), y, setting)
    sizes = {N} | {sum(part.value.lengths) for part in cluster.parts}
    sizes |= set(lengths(N)) - {0, 1}
    first, *results = cluster.results
    assert len(sizes) > 4 and results
    found = [array for result in results for array in arrays(result)]
    assert found or all(isinstance(result, (int, float)) for result in results)
    assert not [array.shape for array in found if sizes & set(array.shape)]
    # Of rows and targets the first call tells types and widths, and lengths of blocks.
    kinds, of_blocks = first.kinds, first.lengths
    assert not [*arrays(first)] and of_blocks == list(lengths(N)[: len(of_blocks)])
    assert set(kinds) <= {"rows", "targets", "first"}


def test_a_row_that_leaves_a_part_would_be_noticed():
    """Wherever it is held."""
    total = dpsubspace._core.ground.arrays.Total()
    total.add(np.ones(N))
    for held in (total, [total], {"it": (1, total)}, np.array([np.ones(N)], dtype=object)):
        assert any(N in array.shape for array in arrays(held))


def test_tasks_have_names_that_tell_nothing(monkeypatch):
    """The same fit on the same rows has other names each time, all of one form."""
    X, y = blobs(n=60)
    names = []
    for _ in range(2):
        with cluster_here(monkeypatch) as cluster:
            DPSGDClassifier(n_iter=3, random_state=0).fit(blocks(X), y)
        names.append([key for key, _ in cluster.sent])
    assert len(names[0]) == len(names[1]) > 9
    assert len({*names[0], *names[1]}) == 2 * len(names[0])
    assert all(re.fullmatch("dpsubspace-[0-9a-f]{32}", key) for key in names[0] + names[1])


def test_what_parts_are_sent_has_no_row_of_theirs(monkeypatch):
    """No more than the numbers that are released: a row stays in the graph that it came from."""
    X, y = blobs(n=N)
    X[:, 0] += 1234.5  # a value that nothing else has
    with cluster_here(monkeypatch) as cluster:
        DPSGDRegressor(n_iter=3, random_state=0).fit(blocks(X), y.astype(float))
    rows = [row.tobytes() for row in X[:, :1]]
    read, sums = cluster.sent[:3], cluster.sent[3:]
    assert any(row in sent for _, sent in read for row in rows)  # such a leak would be noticed
    assert not any(row in sent for _, sent in sums for row in rows)


# What stands for rows -------------------------------------------------------------------------


def remote(monkeypatch):
    """Rows that lie elsewhere."""
    X, _ = blobs(n=40)
    return X, load_collections(blocks(X), None, lambda block: {"rows": np.asarray(block)})["rows"]


def test_what_stands_for_rows_shows_none_of_them(monkeypatch):
    with cluster_here(monkeypatch) as cluster:
        _, rows = remote(monkeypatch)
        assert is_remote(rows) and rows.shape == (40, 5) and len(rows) == 40
        assert repr(rows) == str(rows) == f"{rows}" == "<rows elsewhere>"
        assert repr(rows * 2 + 1) == "<rows elsewhere>"
        assert repr(cluster.parts[0].value) == str(cluster.parts[0].value) == "<rows>"
        rows.parts.call(np.sum, rows)
        assert repr(cluster.parts[0].value) == "<rows>"


@pytest.mark.parametrize(
    "use",
    [
        np.asarray,
        np.array,
        list,
        iter,
        float,
        pickle.dumps,
        lambda rows: np.add.reduce(rows),
        lambda rows: np.ones((40, 5)) + rows,
        lambda rows: rows[0],
        lambda rows: rows[:3],
        lambda rows: rows[0, :],
        lambda rows: rows[[True] * 40],
        lambda rows: [row for row in rows],
    ],
)
def test_what_stands_for_rows_is_not_brought_here(monkeypatch, use):
    with cluster_here(monkeypatch) as cluster:
        _, rows = remote(monkeypatch)
        before = len(cluster.sent)
        with pytest.raises(TypeError):
            use(rows)
        assert len(cluster.sent) == before


def test_what_stands_for_rows_is_added_up_where_they_are(monkeypatch):
    with cluster_here(monkeypatch):
        X, rows = remote(monkeypatch)
        found = [rows * 2 + 1, rows - X.mean(axis=0), rows[:, 1:] / 3]
        expected = [X * 2 + 1, X - X.mean(axis=0), X[:, 1:] / 3]
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            total = sum(rows.parts.call(column_sums, one))
            np.testing.assert_allclose(total, other.sum(axis=0), atol=1e-12)


def column_sums(rows):
    return rows.sum(axis=0)


def test_a_copy_of_a_part_is_made_of_its_rows_alone(monkeypatch):
    """What was made of them is not copied, since it can be made again."""
    with cluster_here(monkeypatch) as cluster:
        _, rows = remote(monkeypatch)
        doubled = rows * 2
        rows.parts.call(column_sums, doubled)
        part = cluster.parts[1].value
        copy = pickle.loads(pickle.dumps(part))
        assert len(part._made) == len(copy._made) + 1
        assert isinstance(copy, RowPart) and copy.lengths == part.lengths
        assert part.__sizeof__() == sum(leaf.nbytes for leaf in part._leaves.values())


def test_parts_forget_what_is_used_no_more(monkeypatch):
    with cluster_here(monkeypatch) as cluster:
        _, rows = remote(monkeypatch)
        part = cluster.parts[0].value
        before = len(part._made)
        for _ in range(5):
            rows.parts.call(column_sums, rows * 2)
        assert len(part._made) <= before + 1


def test_rows_of_two_collections_do_not_go_together(monkeypatch):
    with cluster_here(monkeypatch):
        (_, one), (_, other) = remote(monkeypatch), remote(monkeypatch)
        with pytest.raises(RuntimeError, match="different rows"):
            one + other


def test_directions_of_gradients_go_to_parts_without_public_rows(monkeypatch):
    """They are found here at every step; only what they are now is sent."""
    rows, labels = blobs(n=90, seed=3)
    X, y = blobs(n=N)
    model = dpsubspace.GEPClassifier(
        n_iter=3, random_state=0, directions=GradientDirections(n_components=3)
    )
    with cluster_here(monkeypatch) as cluster:
        model.fit(blocks(X), y, X_public=rows, y_public=labels)
    assert not any(rows.tobytes() in sent for _, sent in cluster.sent)
