"""How far one record moves every release of whole fits, against the bound that each states."""

import itertools

import numpy as np
import pytest
from cases import CASES, FORMS, GAUSSIAN, OUTSIDE, RECORDS, gradients, privacy_of
from helpers import (
    CLASSIFIERS,
    ESTIMATORS,
    RELATIONS,
    assert_all_charged,
    assert_within_bounds,
    blobs,
    groups_of,
    move,
    pairs_first,
    public_rows,
    releases,
)
from scipy import sparse

from dpsubspace._core.fits.bounds import MappedRows
from dpsubspace._core.rows.records import RowMap

# Tiny data sets are mostly noise, as the warning rightly says, and columns may show in a mean.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the noise of|class|the released mean shows):dpsubspace.PrivacyWarning"
)

KINDS = {"dense": np.asarray, "sparse": sparse.csr_array}
NAMED = {case.name: case for case in CASES}


def replay(monkeypatch, case, here, there, present, **options):
    """Sums of a fit, and of a fit on a neighbour that is given the outputs of the first."""
    with releases(monkeypatch) as first:
        event = privacy_of(case.fit(*here, **options)).event
    with releases(monkeypatch, outputs=first) as second:
        case.fit(*there, present=present, **options)
    assert_all_charged(first, second, event)
    return first, second


def without(monkeypatch, name, X, y, **options):
    """Sums of a fit, and of a fit in which the first record is null."""
    data = (X, y)
    return replay(monkeypatch, NAMED[name], data, data, np.arange(len(y)) > 0, **options)


def neighbours(X, y, relation, record):
    """Two data sets that differ in the first record, and which records of the second are there."""
    X, y, other_X, other_y = X.copy(), y.copy(), X.copy(), y.copy()
    X[0], other_X[0] = RECORDS[record](X)
    other_y[0] = y[5] if record == "duplicate" else (y[0] + 1) % 3
    if relation == "zero_out":
        return (X, y), (X, y), np.arange(len(X)) > 0
    return (X, y), (other_X, other_y), None


def fits():
    """Every setting in both relations, with records and forms of rows in turns."""
    turn = itertools.count()
    for case in GAUSSIAN:
        forms = [form for form in FORMS if case.sparse or "sparse" not in form]
        factors = (case.settings, RELATIONS, RECORDS, forms)
        rare = {"apart": {(0, 2), (0, 3)}, "together": (0, 1), "turn": turn}
        yield from pairs_first(*factors, prefix=(case,), **rare)


@pytest.mark.parametrize(("case", "setting", "relation", "record", "form"), fits(), ids=str)
def test_every_release_of_a_fit_moves_within_its_bound(
    monkeypatch, case, setting, relation, record, form
):
    """Replay the outputs of one fit on a neighbour and compare all the sums between."""
    here, there, present = neighbours(*blobs(n=case.n), relation, record)
    here, there = ((FORMS[form](rows), y) for rows, y in (here, there))
    options = {"setting": setting, "relation": relation}
    replayed = replay(monkeypatch, case, here, there, present, **options)
    assert all(np.isfinite(total.value).all() for fit in replayed for total, *_ in fit)
    assert_within_bounds(*replayed, relation)


# Settings of which sums run over several blocks of rows.
BLOCKS = [
    *((name, "plain") for name in ("DPSGDClassifier", "DPSGDFClassifier", "DPSGDRegressor")),
    ("DPSGDFClassifier, adaptive", "plain"),
    ("GEPClassifier", "features"),
    ("GEPClassifier", "gradients"),
    ("GEPRegressor", "gradients"),
]


@pytest.mark.parametrize(
    ("fit", "relation", "form", "batch_size"),
    pairs_first(BLOCKS, RELATIONS, FORMS, [None, 300]),
    ids=str,
)
def test_bounds_hold_over_several_blocks(monkeypatch, fit, relation, form, batch_size):
    name, setting = fit
    X, y = blobs(n=700)
    if "adaptive" in name:
        X += 100.0  # the radius is a hundredth of the rows: in float32 that takes float64
    here, there, present = neighbours(X, y, relation, "opposite")
    here, there = ((FORMS[form](rows), y) for rows, y in (here, there))
    options = {"setting": setting, "relation": relation, "chunk": 256}
    options["batch_size"] = batch_size
    replayed = replay(monkeypatch, NAMED[name], here, there, present, **options)
    assert_within_bounds(*replayed, relation)


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
def test_the_neighbour_test_would_notice_a_bound_that_is_too_small(monkeypatch, as_rows):
    """A huge row moves the sum of gradients by nearly its bound: the bound is tight."""
    X, y = blobs(n=40)
    model = CLASSIFIERS[0](n_iter=1, clip_norm=0.1, random_state=0)
    present = np.arange(40) > 0
    with releases(monkeypatch) as here:
        model.fit(as_rows(X), y)
    with releases(monkeypatch, outputs=here) as there:
        model.fit(as_rows(X), y, groups=groups_of(present))
    assert move(here[0][0], there[0][0]) > 0.99 * here[0][0].norm_bound


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
def test_a_far_row_moves_the_second_mean_by_the_radius(monkeypatch, as_rows):
    X, y = blobs(n=400)
    X += 100.0
    X[0] *= -1
    here, there = without(monkeypatch, "DPSGDFClassifier, adaptive", as_rows(X), y)
    coarse, mean = here[0][0], here[7][0]
    # Over 40 seeds the log of the ratio is -3.3, with a deviation of 0.2.
    assert mean.norm_bound < coarse.norm_bound / 7
    assert 0.99 * mean.norm_bound < move(mean, there[7][0]) <= mean.norm_bound
    assert all(1 == total.norm_bound == total.replace_bound for total, *_ in here[1:7] + here[8:14])


def test_a_huge_bound_on_rows_does_not_overflow_the_mean(monkeypatch):
    """Where the noise of the mean is out of the range of float32, a null record must not show."""
    X, y = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32), np.arange(300) % 3
    options = {"row_norm": 9e49, "epsilon": 1.0}
    here, there = without(monkeypatch, "DPSGDFClassifier, adaptive", X, y, **options)
    assert all(np.isfinite(total.value).all() for total, _, _ in here)
    assert_within_bounds(here, there, "zero_out")


def test_duplicate_entries_of_a_sparse_row_are_added_up_before_they_are_bounded(monkeypatch):
    """Entry by entry, 50 times 1 in one place has norm 7; used as their sum, it is 50."""
    data, indices = np.ones(50 + 39), np.zeros(89, np.int32)
    indptr = np.r_[0, np.arange(50, 90)].astype(np.int32)
    twice = sparse.csr_array((data, indices, indptr), shape=(40, 2))
    twice.has_canonical_format = True  # a lie
    options = {"epsilon": 5.0, "row_norm": None, "n_iter": 3, "random_state": 0}
    y = np.arange(40) % 2
    models = [CLASSIFIERS[0](**options).fit(rows, y) for rows in (twice, twice.toarray())]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-12)


def test_sparse_entries_that_add_up_to_infinity_are_refused():
    """Each is finite, and so passes the usual check; their sum would reach every release."""
    data, indices = np.r_[1.7e308, 1.7e308, np.ones(39)], np.zeros(41, np.int32)
    indptr = np.r_[0, np.arange(2, 42)].astype(np.int32)
    X = sparse.csr_array((data, indices, indptr), shape=(40, 2))
    for Estimator in ESTIMATORS:
        model = Estimator()
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="infinity"):
            model.fit(X, np.arange(40) % 2)
        assert not hasattr(model, "privacy_")


def test_long_rows_cannot_overflow_the_mean(monkeypatch):
    """Where a large bound leaves rows of 1e38 alone, their float32 sum would be inf."""
    X, y = np.full((200, 3), 1e24, np.float32), np.arange(200) % 3
    X[:3] = 1.2e38
    options = {"row_norm": 1e49}
    here, there = without(monkeypatch, "DPSGDFClassifier", X, y, **options)
    assert np.isfinite(here[0][0].value).all()
    assert_within_bounds(here, there, "zero_out")


def test_short_rows_with_large_residuals_cannot_overflow(monkeypatch, rng):
    X = (rng.normal(size=(200, 3)) * 1e-30).astype(np.float32)
    X[0] = 1e-40
    options = {"data_norm": 2e-30, "target_bounds": (0, 1), "alpha": 0.0, "learning_rate": 1e22}
    options |= {"fit_intercept": False}
    y = rng.random(200)
    here, there = without(monkeypatch, "DPSGDRegressor", X, y, **options)
    assert all(np.isfinite(total.value).all() for total, *_ in (*here, *there))
    assert_within_bounds(here, there, "zero_out")


@pytest.mark.parametrize("record", [0.0, -1e6, 1e300, 1e6 + 1])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_target_moves_what_finds_a_range_far_from_zero_within_its_bound(
    monkeypatch, relation, record
):
    """Each look is where those before it have found the targets."""
    X, y = blobs(n=40)
    here, other = 1e6 + y, 1e6 + y
    other[0] = record
    present = np.arange(len(y)) > 0 if relation == "zero_out" else None
    there = here if relation == "replace_one" else other
    options = {"relation": relation, "epsilon": 300.0, "data_norm": 1.0}
    pair = replay(monkeypatch, NAMED["DPSGDRegressor"], (X, other), (X, there), present, **options)
    assert sum(len(total.value.shape) == 2 for total, *_ in pair[0]) >= 8
    assert_within_bounds(*pair, relation)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("residual", [True, False])
def test_rows_that_overflow_count_as_nothing(monkeypatch, residual, dtype):
    """Without a row map gradients themselves may leave the range of numbers."""
    X, y = blobs(n=40)
    X = X.astype(dtype)
    X[0] = np.finfo(dtype).max
    options = {"centre": None, "bounds": MappedRows(RowMap(norm=None)), "n_iter": 3}
    options |= gradients(residual=residual)
    replayed = without(monkeypatch, "GEPClassifier", X, y, **options)
    assert all(np.isfinite(total.value).all() for total, *_ in (*replayed[0], *replayed[1]))
    assert_within_bounds(*replayed, "zero_out")


def test_the_neighbour_test_would_notice_a_bound_on_parts_that_is_too_small(monkeypatch):
    """One row along the public directions and one off them: both bounds are tight."""
    options = {"fit_intercept": False, "clip_norm": 0.1, "n_iter": 2, "centre": None}
    options |= gradients(60, residual_norm=0.1)  # as many as public gradients span
    X, y = blobs(n=40)
    tight = []
    for row in (np.linalg.svd(public_rows(5)[0])[2][0], OUTSIDE):
        X[0] = row
        here, there = without(monkeypatch, "GEPClassifier", X, y, **options)
        moved = [
            move(one, other) / one.norm_bound
            for (one, *_), (other, *_) in zip(here, there, strict=True)
        ]
        tight.append(np.array(moved) > 0.98)
    np.testing.assert_array_equal(tight, [[True, False] * 2, [False, True] * 2])
