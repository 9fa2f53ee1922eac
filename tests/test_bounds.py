"""How far one record moves each released sum, by brute force against the stated bound."""

import numpy as np
import pytest
from helpers import CLASSIFIERS, RELATIONS, blobs, releases
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsubspace._gradients import LinearSource, OuterGradients, clipped_sum
from dpsubspace._losses import LogLoss
from dpsubspace._moments import bounded_row_sum
from dpsubspace._scaling import RowMap

# Tiny data sets are mostly noise, as the warning rightly says.
pytestmark = pytest.mark.filterwarnings("ignore:the noise of a step:dpsubspace.PrivacyWarning")

# Rounding of sums of a few hundred terms, relative to the bound.
SLACK = {np.float64: 1e-12, np.float32: 1e-5}

entries = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e300, -1e300, 1e-300, 5e-324, 1.0, -1e8, 3e38]),
)
matrices = hnp.arrays(np.float64, (6, 3), elements=entries)
row_maps = [
    RowMap(norm="l2", bias=0.5),
    RowMap(norm="l2"),
    RowMap(norm="clip", data_norm=2.0, bias=0.5),
    RowMap(norm="clip", data_norm=2.0),
]


def move(one, other):
    return float(np.linalg.norm(np.asarray(one.value - other.value, dtype=np.float64)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row_map", row_maps, ids=str)
@given(X=matrices, other=hnp.arrays(np.float64, 3, elements=entries))
@settings(max_examples=60, deadline=None)
def test_row_sum_moves_within_its_bounds(row_map, dtype, X, other):
    X = np.clip(X, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)
    changed = X.copy()
    changed[0] = np.clip(other, np.finfo(dtype).min, np.finfo(dtype).max)
    rows, changed = row_map(X), row_map(changed)
    total = bounded_row_sum(rows, row_map.bound)
    without = bounded_row_sum(rows, row_map.bound, present=np.arange(6) > 0)
    assert np.isfinite(rows).all()
    assert move(total, without) <= total.norm_bound * (1 + SLACK[dtype])
    assert move(total, bounded_row_sum(changed, row_map.bound)) <= total.replace_bound * (
        1 + SLACK[dtype]
    )


@pytest.mark.parametrize("row_map", row_maps, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_mapped_row_is_longer_than_the_bound(row_map, dtype, rng):
    X = (rng.normal(size=(2000, 7)) * 10.0 ** rng.integers(-30, 30, size=(2000, 1))).astype(dtype)
    norms = np.linalg.norm(row_map(X).astype(np.float64), axis=1)
    assert norms.max() <= row_map.bound
    assert norms.max() > 0.99 * row_map.bound  # and not shrunk for nothing


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(
    X=hnp.arrays(np.float64, (5, 3), elements=entries),
    R=hnp.arrays(
        np.float64, (5, 2), elements=st.one_of(entries, st.sampled_from([np.nan, np.inf, 1e-200]))
    ),
    clip_norm=st.sampled_from([1e-3, 0.5, 1.0, 40.0]),
)
@settings(max_examples=150, deadline=None)
def test_clipped_sum_moves_within_its_bounds(dtype, X, R, clip_norm):
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        X, R = X.astype(dtype), R.astype(dtype)
        X[~np.isfinite(X)] = 1.0  # rows are checked before; residuals are not
        norms = np.array([np.linalg.norm(x / max(1, abs(x).max())) for x in X.astype(float)])
        norms *= np.maximum(1, abs(X.astype(float)).max(axis=1))

        def total(rows, present=None):
            grads = OuterGradients(X[rows], norms[rows], R[rows])
            return clipped_sum(grads, clip_norm, present=present)

        whole = total([0, 1, 2, 3])
        assert np.isfinite(whole.value).all()
        slack = clip_norm * SLACK[dtype]
        assert move(whole, total([0, 1, 2, 3], np.arange(4) < 3)) <= whole.norm_bound + slack
        assert move(whole, total([0, 1, 2, 4])) <= whole.replace_bound + slack


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_clipped_gradient_is_never_longer_than_the_clip_norm(dtype, rng):
    for _ in range(300):
        x = (rng.normal(size=(1, 9)) * 10.0 ** rng.integers(-3, 12)).astype(dtype)
        r = rng.normal(size=(1, 4)).astype(dtype)
        norms = np.linalg.norm(x.astype(float), axis=1)
        total = clipped_sum(OuterGradients(x, norms, r), 0.3).value
        assert np.linalg.norm(total) <= 0.3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_cannot_amplify_a_record(dtype):
    """A sum just above a power of 2, where the first record decides how the rest rounds.

    Added up in one go in float32, the first record moves this sum by 17 times its size.
    """
    half, clip_norm = 2**16, 0.50001
    X = np.zeros((2 * half, 20), dtype)
    X[:half, 0], X[half, 0] = 1.0, 0.5
    ulp = half * np.finfo(dtype).eps / 2
    late = np.arange(half + 4, 2 * half, 8)
    X[late[0::2], 0], X[late[1::2], 0] = -0.9 * ulp, 0.4 * ulp
    grads = OuterGradients(X, np.abs(X[:, 0]).astype(float), np.full((2 * half, 1), 0.5, dtype))
    present = np.arange(2 * half) > 0
    whole, without = clipped_sum(grads, clip_norm), clipped_sum(grads, clip_norm, present=present)
    assert 0.49 < move(whole, without) <= whole.norm_bound


def test_the_allowance_for_rounding_is_small():
    one = OuterGradients(np.ones((60_000, 1), np.float32), np.ones(60_000), np.ones((60_000, 1)))
    assert clipped_sum(one, 1.0).norm_bound < 1.01
    assert bounded_row_sum(np.ones((60_000, 1)), 1.0).norm_bound < 1 + 1e-6


def test_a_present_mask_removes_a_record_exactly(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 3
    keep = np.arange(20) != 7
    weights = rng.normal(size=(3, 3))
    masked = clipped_sum(LinearSource(LogLoss(), X, y).at(weights), 0.2, present=keep)
    removed = clipped_sum(LinearSource(LogLoss(), X[keep], y[keep]).at(weights), 0.2)
    np.testing.assert_allclose(masked.value, removed.value, rtol=0, atol=1e-14)


def neighbours(X, y, relation, kind):
    """Second data set, and its present mask, that differs in the first record."""
    present = np.ones(len(X), dtype=bool)
    other_X, other_y = X.copy(), y.copy()
    if relation == "zero_out":
        present[0] = False
    elif kind == "opposite":
        other_X[0], other_y[0] = -X[0], (y[0] + 1) % 3
    elif kind == "huge":
        other_X[0] = 1e300
    elif kind == "zero":
        other_X[0] = 0.0
    elif kind == "duplicate":
        other_X[0], other_y[0] = X[5], y[5]
    return other_X, other_y, present


SETTINGS = [
    {},
    {"fit_intercept": False},
    {"row_norm": "clip", "data_norm": 2.0},
    {"clip_norm": 0.05},
    {"class_weight": {0: 100.0}},
    {"alpha": 0.1, "momentum": 0.0, "average": False},
]


def replay(monkeypatch, Classifier, X, y, relation, kind, **options):
    """Sums of a fit, and of a fit on a neighbour that is given the outputs of the first."""
    options = {"epsilon": 2.0, "n_iter": 8, "classes": [0, 1, 2], "random_state": 0, **options}
    model = Classifier(neighboring_relation=relation, **options)
    other_X, other_y, present = neighbours(X, y, relation, kind)
    with releases(monkeypatch) as here:
        model._fit(X, y)
    with releases(monkeypatch, outputs=here) as there:
        model._fit(other_X, other_y, present=present)
    assert len(here) == len(there) == 8 + (Classifier is CLASSIFIERS[1])
    return here, there


def assert_within_bounds(here, there, relation):
    for (one, _, multiplier), (other, _, _) in zip(here, there, strict=True):
        bound = one.norm_bound if relation == "zero_out" else one.replace_bound
        assert (one.norm_bound, one.replace_bound) == (other.norm_bound, other.replace_bound)
        assert move(one, other) <= bound * (1 + 1e-12)
        assert multiplier > 0


@pytest.mark.parametrize("kind", ["opposite", "huge", "zero", "duplicate"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_every_release_of_a_fit_moves_within_its_bound(
    monkeypatch, Classifier, options, relation, kind
):
    """Replay the outputs of one fit on a neighbour and compare all the sums between."""
    X, y = blobs(n=40)
    X[0] *= 30
    here, there = replay(monkeypatch, Classifier, X, y, relation, kind, **options)
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_bounds_hold_over_several_blocks(monkeypatch, Classifier, relation, dtype):
    X, y = blobs(n=700)
    here, there = replay(monkeypatch, Classifier, X.astype(dtype), y, relation, "opposite")
    assert_within_bounds(here, there, relation)


def test_the_neighbour_test_would_notice_a_bound_that_is_too_small(monkeypatch):
    """A huge row moves the sum of gradients by nearly its bound: the bound is tight."""
    X, y = blobs(n=40)
    model = CLASSIFIERS[0](n_iter=1, clip_norm=0.1, random_state=0)
    present = np.arange(40) > 0
    with releases(monkeypatch) as here:
        model._fit(X, y)
    with releases(monkeypatch, outputs=here) as there:
        model._fit(X, y, present=present)
    assert move(here[0][0], there[0][0]) > 0.99 * here[0][0].norm_bound
