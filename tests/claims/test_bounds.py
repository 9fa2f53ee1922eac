"""How far one record moves each released sum, by brute force against the stated bound."""

import numpy as np
import pytest
from helpers import (
    CLASSIFIERS,
    ESTIMATORS,
    INFORMED,
    PLAIN,
    RELATIONS,
    InformedClassifier,
    InformedRegressor,
    assert_within_bounds,
    blobs,
    mapped,
    move,
    multipliers,
    neighbours,
    public_rows,
    releases,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import is_classifier

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor
from dpsubspace._gradients.clipping import clipped_sum
from dpsubspace._gradients.dense import DenseGradients
from dpsubspace._gradients.linear import LinearSource, OuterGradients
from dpsubspace._gradients.losses import LogLoss
from dpsubspace._public.anchors import anchor_subspace
from dpsubspace._public.subspace import FeatureSubspace
from dpsubspace._release.noise import SeededNoise
from dpsubspace._rows.features import Features
from dpsubspace._rows.maps import RowMap, Shift
from dpsubspace._solvers.steps import GEPStep, _Parts
from dpsubspace._statistics.counts import noisy_radius, noisy_range
from dpsubspace._statistics.means import bounded_row_sum

# Tiny data sets are mostly noise, as the warning rightly says.
pytestmark = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")

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
    RowMap(norm="ball", data_norm=2.0, bias=0.5),
]
KINDS = {"dense": np.asarray, "sparse": sparse.csr_array}


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row_map", row_maps, ids=str)
@given(X=matrices, other=hnp.arrays(np.float64, 3, elements=entries))
@settings(max_examples=40, deadline=None)
def test_row_sum_moves_within_its_bounds(row_map, dtype, as_rows, X, other):
    X = np.clip(X, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)
    changed = X.copy()
    changed[0] = np.clip(other, np.finfo(dtype).min, np.finfo(dtype).max)
    with np.errstate(all="ignore"):
        here, there = (Features(as_rows(rows), row_map) for rows in (X, changed))
        total = bounded_row_sum(here, row_map.bound)
        without = bounded_row_sum(here, row_map.bound, present=np.arange(6) > 0)
        replaced = bounded_row_sum(there, row_map.bound)
    assert np.isfinite(total.value).all()
    assert move(total, without) <= total.norm_bound * (1 + SLACK[dtype])
    assert move(total, replaced) <= total.replace_bound * (1 + SLACK[dtype])


@pytest.mark.parametrize("row_map", row_maps, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_mapped_row_is_longer_than_the_bound(row_map, dtype, rng):
    X = (rng.normal(size=(2000, 7)) * 10.0 ** rng.integers(-20, 20, size=(2000, 1))).astype(dtype)
    factors, lengths = row_map.factors(X)
    rows = X * factors.astype(dtype)[:, None]
    if row_map.bias is not None:
        rows = np.column_stack([rows, row_map.bias * factors.astype(dtype)])
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert norms.max() <= row_map.bound
    assert norms.max() > 0.99 * row_map.bound  # and not shrunk for nothing
    assert (norms <= lengths * (1 + 2 * np.finfo(dtype).eps)).all()


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e30), (np.float64, 1e290)])
def test_rows_beyond_the_range_of_their_dtype_count_as_zeros(dtype, limit):
    X = np.array([[limit * 100, 0.0], [1.0, 0.0], [limit / 100, 0.0]], dtype)
    rows = mapped(X, norm="l2", bias=0.5)
    assert not rows[0].any()
    np.testing.assert_allclose(np.linalg.norm(rows[1:], axis=1), 1.0, rtol=1e-5)


def test_bounds_where_numbers_have_few_digits_leave_nothing():
    rows = mapped(np.full((2, 3), 1e-44, np.float32), norm="clip", data_norm=1e-44)
    assert not rows.any()


def test_a_huge_bound_on_rows_does_not_overflow_the_mean(monkeypatch):
    """Where the noise of the mean is out of the range of float32, a null record must not show."""
    X, y = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32), np.arange(300) % 3
    options = {"row_norm": "clip", "data_norm": 9e49, "epsilon": 1.0, "preprocessing": "adaptive"}
    here, there = replay(monkeypatch, DPSGDFClassifier, X, y, "zero_out", "", **options)
    assert all(np.isfinite(total.value).all() for total, _, _ in here)
    assert_within_bounds(here, there, "zero_out")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("constant", [None, 0.3])
@given(
    X=hnp.arrays(np.float64, (5, 3), elements=entries),
    R=hnp.arrays(
        np.float64, (5, 2), elements=st.one_of(entries, st.sampled_from([np.nan, np.inf, 1e-200]))
    ),
    mean=st.one_of(st.none(), hnp.arrays(np.float64, 3, elements=st.floats(-3, 3))),
    clip_norm=st.sampled_from([1e-3, 0.5, 1.0, 40.0]),
)
@settings(max_examples=150, deadline=None)
def test_clipped_sum_moves_within_its_bounds(dtype, constant, X, R, mean, clip_norm):
    with np.errstate(all="ignore"):
        X, R = X.astype(dtype), R.astype(dtype)
        X[~np.isfinite(X)] = 1.0  # rows are checked before; residuals are not
        row_map = PLAIN if mean is None else RowMap(norm="clip", data_norm=3.0)

        def total(rows, present=None):
            features = Features(X[rows], row_map)
            features = features.shifted(None if mean is None else Shift(mean, constant))
            norms = features.norms()
            if present is not None:
                norms = np.where(present, norms, np.inf)
            block = features.at(slice(None))
            return clipped_sum(OuterGradients(block, norms, R[rows], features.slack), clip_norm)

        whole = total([0, 1, 2, 3])
        assert np.isfinite(whole.value).all()
        slack = clip_norm * SLACK[dtype]
        assert move(whole, total([0, 1, 2, 3], np.arange(4) < 3)) <= whole.norm_bound + slack
        assert move(whole, total([0, 1, 2, 4])) <= whole.replace_bound + slack


def outer(X, R, slack=0.0):
    """Gradients of given rows and residuals."""
    features = Features(X, PLAIN, 1 << 16)
    return OuterGradients(features.at(slice(None)), features.norms(), R, features.slack)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_clipped_gradient_is_never_longer_than_the_clip_norm(dtype, rng):
    for _ in range(300):
        x = (rng.normal(size=(1, 9)) * 10.0 ** rng.integers(-3, 12)).astype(dtype)
        r = rng.normal(size=(1, 4)).astype(dtype)
        total = clipped_sum(outer(x, r), 0.3).value
        assert np.linalg.norm(total) <= 0.3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_cannot_amplify_a_record(dtype):
    """A sum just above a power of 2, where the first record decides how the rest rounds.

    Added up in one go in float32, the first record moves this sum by 17 times its size.
    """
    half, clip_norm = 2**15, 0.50001
    X = np.zeros((2 * half, 20), dtype)
    X[:half, 0], X[half, 0] = 1.0, 0.5
    ulp = half * np.finfo(dtype).eps / 2
    late = np.arange(half + 4, 2 * half, 8)
    X[late[0::2], 0], X[late[1::2], 0] = -0.9 * ulp, 0.4 * ulp
    grads = outer(X, np.full((2 * half, 1), 0.5, dtype))
    norms = grads.feature_norms.copy()
    norms[0] = np.inf
    others = OuterGradients(grads.features, norms, grads.residuals, grads.rounding)
    whole, without = clipped_sum(grads, clip_norm), clipped_sum(others, clip_norm)
    assert 0.49 < move(whole, without) <= whole.norm_bound


def test_the_allowance_for_rounding_is_small():
    X = np.ones((60_000, 1), np.float32)
    for dtype, plain, shifted in ((np.float32, 0.003, 0.01), (np.float64, 1e-8, 1e-4)):
        features = Features(X.astype(dtype), RowMap(norm="l2"))
        assert features.slack < plain
        assert features.shifted(Shift(np.zeros(1), None)).slack < shifted
        assert Features(sparse.csr_array(X.astype(dtype)), RowMap(norm="l2")).slack < 1e-8


def test_a_null_record_is_removed_exactly(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 3
    keep = np.arange(20) != 7
    weights = rng.normal(size=(3, 3))
    everything = slice(None)
    masked = LinearSource(LogLoss(), Features(X, PLAIN), y, keep).at(weights, everything)
    removed = LinearSource(LogLoss(), Features(X[keep], PLAIN), y[keep]).at(weights, everything)
    np.testing.assert_allclose(
        clipped_sum(masked, 0.2).value, clipped_sum(removed, 0.2).value, rtol=0, atol=1e-14
    )


@given(
    values=hnp.arrays(np.float64, 9, elements=entries),
    other=st.one_of(entries, st.sampled_from([2.0, -2.0, 2.0**40, -(2.0**40)])),
)
@settings(max_examples=100, deadline=None)
def test_counts_move_within_their_bounds(values, other):
    changed = np.append(other, values[1:])

    def counts(values, present=None):
        with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
            options = {"noise": SeededNoise(0), "neighboring_relation": "zero_out"}
            noisy_range(values, 1.0, present=present, **options)
        return seen[0][0]

    total = counts(values)
    assert total.value.sum() == 9  # every value is counted, wherever it lies
    assert move(total, counts(values, np.arange(9) > 0)) == 1.0 == total.norm_bound
    assert move(total, counts(changed)) <= total.replace_bound * (1 + 1e-15)


@given(
    X=hnp.arrays(np.float64, (6, 3), elements=st.floats(-3, 3)),
    other=hnp.arrays(np.float64, 3, elements=entries),
    mean=hnp.arrays(np.float64, 3, elements=st.floats(-1, 1)),
    radius=st.sampled_from([1e-4, 0.01, 0.3, 1.0, 3.0]),
)
@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=60, deadline=None)
def test_sums_of_clipped_rows_move_within_their_bounds(dtype, as_rows, X, other, mean, radius):
    X = X.astype(dtype)
    X[1:3] = mean  # as near as rounding lets them be
    changed = X.copy()
    changed[0] = np.clip(other, np.finfo(dtype).min, np.finfo(dtype).max)

    def total(rows, present=None, zoom=1.0):
        features = Features(as_rows(rows), RowMap(norm="clip", data_norm=2.0))
        clipped = features.shifted(Shift(mean, 0.1)).clipped(radius, zoom)
        assert clipped.norms().max() <= radius * zoom
        return bounded_row_sum(clipped, radius * zoom, present=present)

    for zoom in (1.0, 1e3):
        whole = total(X, zoom=zoom)
        slack = radius * zoom * 1e-9
        assert move(whole, total(X, np.arange(6) > 0, zoom)) <= whole.norm_bound + slack
        assert move(whole, total(changed, zoom=zoom)) <= whole.replace_bound + slack


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_radius_holds_half_of_the_rows_and_noise_makes_it_larger(relation, rng):
    values = rng.exponential(size=4000) / 100
    options = {"noise": SeededNoise(0), "neighboring_relation": relation}
    radius = noisy_radius(values, 1.0, 1.0, **options)
    assert 1 <= radius / np.median(values) < 1.25
    assert radius <= noisy_radius(values, 1.0, 300.0, **options) < 4 * radius
    assert noisy_radius(values, 1.0, 1e4, **options) == 1.0  # noise hides all of them
    assert noisy_radius(0 * values, 1.0, 1.0, **options) == 2.0**-15.75
    assert noisy_radius(values, 1.0, 1.0, present=values > 0.02, **options) < radius / 100


SETTINGS = [
    {},
    {"fit_intercept": False},
    {"clip_norm": 0.05},
    {"alpha": 0.1, "momentum": 0.0, "average": False},
    {"batch_size": 10},
]
CLASSIFIER_SETTINGS = [
    {"row_norm": "clip", "data_norm": 2.0},
    {"class_weight": {0: 100.0}},
    {"loss": "hinge"},
]
REGRESSOR_SETTINGS = [
    {"loss": "huber"},
    {"data_norm": 2.0},
    {"data_norm": 2.0, "target_bounds": (-1, 3)},
]
CASES = [
    (Estimator, options)
    for Estimator in ESTIMATORS
    for options in SETTINGS
    + (CLASSIFIER_SETTINGS if Estimator in CLASSIFIERS else REGRESSOR_SETTINGS)
]
# Forty rows are enough for a radius at this epsilon only.
ADAPTIVE = {"preprocessing": "adaptive", "epsilon": 200.0}
CASES += [(DPSGDFClassifier, ADAPTIVE | options) for options in SETTINGS + CLASSIFIER_SETTINGS]


def replay(monkeypatch, Estimator, X, y, relation, kind, as_rows=np.asarray, **options):
    """Sums of a fit, and of a fit on a neighbour that is given the outputs of the first."""
    options = {"epsilon": 2.0, "n_iter": 8, "random_state": 0, **options}
    model = Estimator(neighboring_relation=relation, **options)
    if is_classifier(model):
        model.set_params(classes=[0, 1, 2])
    other_X, other_y, present = neighbours(X, y, relation, kind)
    with releases(monkeypatch) as here:
        model._fit(as_rows(X), y)
    with releases(monkeypatch, outputs=here) as there:
        model._fit(as_rows(other_X), other_y, present=present)
    bounds = sum(options.get(name) is None for name in ("data_norm", "target_bounds"))
    means = 14 if options.get("preprocessing") == "adaptive" else 1
    before = {
        DPSGDClassifier: 0,
        DPSGDFClassifier: means,
        DPSGDRegressor: bounds,
    }.get(Estimator)
    if before is None:  # what public rows say is not released: the event tells what is
        before = len(multipliers(model.privacy_.event)) - options["n_iter"]
    assert len(here) == len(there) == options["n_iter"] * parts_of_a_step(model) + before
    return here, there


def parts_of_a_step(model):
    """Sums that each step releases."""
    return 2 if isinstance(model, tuple(INFORMED)) and releases_residuals(model) else 1


def releases_residuals(model):
    """Whether residuals are released, in a sum of their own."""
    residual = model.directions == "gradients" if model.residual == "auto" else model.residual
    return residual and model.clipping == "separate"


@pytest.mark.parametrize("kind", ["opposite", "huge", "zero", "duplicate"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("Estimator", "options"), CASES, ids=str)
def test_every_release_of_a_fit_moves_within_its_bound(
    monkeypatch, Estimator, options, relation, kind
):
    """Replay the outputs of one fit on a neighbour and compare all the sums between."""
    X, y = blobs(n=40)
    X[0] *= 30
    here, there = replay(monkeypatch, Estimator, X, y, relation, kind, **options)
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("batch_size", [None, 300])
@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("Estimator", "options"),
    [
        *((E, {}) for E in ESTIMATORS),
        (DPSGDFClassifier, ADAPTIVE),
        (InformedClassifier, {"n_components": 2, "residual": True}),
        (InformedClassifier, {"directions": "gradients", "n_components": 6}),
        (InformedRegressor, {"directions": "gradients", "n_components": 3, "clipping": "joint"}),
    ],
    ids=str,
)
def test_bounds_hold_over_several_blocks(
    monkeypatch, Estimator, options, relation, dtype, as_rows, batch_size
):
    X, y = blobs(n=700)
    if "preprocessing" in options:
        X += 100.0  # the radius is a hundredth of the rows: in float32 that takes float64
    options = {**options, "batch_size": batch_size, "microbatch_size": 256, "as_rows": as_rows}
    X = X.astype(dtype)
    here, there = replay(monkeypatch, Estimator, X, y, relation, "opposite", **options)
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
def test_the_neighbour_test_would_notice_a_bound_that_is_too_small(monkeypatch, as_rows):
    """A huge row moves the sum of gradients by nearly its bound: the bound is tight."""
    X, y = blobs(n=40)
    model = CLASSIFIERS[0](n_iter=1, clip_norm=0.1, random_state=0)
    present = np.arange(40) > 0
    with releases(monkeypatch) as here:
        model._fit(as_rows(X), y)
    with releases(monkeypatch, outputs=here) as there:
        model._fit(as_rows(X), y, present=present)
    assert move(here[0][0], there[0][0]) > 0.99 * here[0][0].norm_bound


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
def test_a_far_row_moves_the_second_mean_by_the_radius(monkeypatch, as_rows):
    X, y = blobs(n=400)
    X += 100.0
    X[0] *= -1
    here, there = replay(
        monkeypatch, DPSGDFClassifier, X, y, "zero_out", "", as_rows=as_rows, **ADAPTIVE
    )
    coarse, mean = here[0][0], here[7][0]
    assert mean.norm_bound < coarse.norm_bound / 20
    assert 0.99 * mean.norm_bound < move(mean, there[7][0]) <= mean.norm_bound
    assert all(1 == total.norm_bound == total.replace_bound for total, *_ in here[1:7] + here[8:14])


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
    """Where "clip" leaves rows of 1e38 alone, their float32 sum would be inf."""
    X, y = np.full((200, 3), 1e24, np.float32), np.arange(200) % 3
    X[:3] = 1.2e38
    options = {"row_norm": "clip", "data_norm": 1e49}
    here, there = replay(monkeypatch, CLASSIFIERS[1], X, y, "zero_out", "", **options)
    assert np.isfinite(here[0][0].value).all()
    assert_within_bounds(here, there, "zero_out")


def test_short_rows_with_large_residuals_cannot_overflow(monkeypatch, rng):
    X = (rng.normal(size=(200, 3)) * 1e-30).astype(np.float32)
    X[0] = 1e-40
    options = {"data_norm": 2e-30, "target_bounds": (0, 1), "alpha": 0.0, "learning_rate": 1e22}
    options |= {"fit_intercept": False}
    y = rng.random(200)
    here, there = replay(monkeypatch, DPSGDRegressor, X, y, "zero_out", "", **options)
    assert all(np.isfinite(total.value).all() for total, *_ in (*here, *there))
    assert_within_bounds(here, there, "zero_out")


# Public directions -------------------------------------------------------------------------

FEATURES = {"directions": "features", "n_components": 2}
GRADIENTS = {"directions": "gradients", "n_components": 4}
INFORMED_SETTINGS = [
    FEATURES,
    FEATURES | {"residual": True},
    FEATURES | {"residual": True, "clipping": "joint"},
    GRADIENTS,
    GRADIENTS | {"clipping": "joint", "embedding_share": 0.3, "fit_intercept": False},
    GRADIENTS | {"residual": False},
    GRADIENTS | {"groups": "outputs", "n_components": 9, "anchor_labels": "fixed"},
    GRADIENTS | {"mirror": True, "init": "public", "anchor_labels": "public"},
    GRADIENTS | {"power_iterations": None, "center": False, "microbatch_size": 128},
    GRADIENTS | {"n_components": 60, "clip_norm": 0.01, "residual_norm": 3.0},
    {"n_components": "auto"},  # asks what directions miss
    {"n_components": "auto", "anchor_labels": "public"},  # and whether a public fit is right
]
INFORMED_CASES = [(Estimator, o) for Estimator in INFORMED for o in INFORMED_SETTINGS]
INFORMED_CASES += [(InformedClassifier, GRADIENTS | o) for o in CLASSIFIER_SETTINGS]
INFORMED_CASES += [(InformedRegressor, GRADIENTS | o) for o in REGRESSOR_SETTINGS]
OUTSIDE = np.array([0.0, 0.0, 0.0, 0.0, 3.0])  # orthogonal to all public rows
HOSTILE = {
    "huge": np.full(5, 1e300),
    "tiny": np.full(5, 1e-300),
    "public": public_rows(5)[0][7],
    "orthogonal": OUTSIDE,
    "nearly public": public_rows(5)[0][7] + 1e-9 * OUTSIDE,
}


@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("Estimator", "options"), INFORMED_CASES, ids=str)
def test_every_release_on_public_directions_moves_within_its_bound(
    monkeypatch, Estimator, options, relation, row
):
    """The first record is hostile, and is taken out or replaced by its opposite."""
    X, y = blobs(n=40)
    X[0] = row
    here, there = replay(monkeypatch, Estimator, X, y, relation, "opposite", n_iter=2, **options)
    assert all(np.isfinite(total.value).all() for total, *_ in (*here, *there))
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"clipping": "joint"}, {"residual": False}], ids=str)
def test_rows_that_overflow_count_as_nothing(monkeypatch, options, dtype):
    """Without a row map gradients themselves may leave the range of numbers."""
    X, y = blobs(n=40)
    X = X.astype(dtype)
    X[0] = np.finfo(dtype).max
    options = {"row_norm": None, "center": False, **GRADIENTS, **options}
    replayed = replay(monkeypatch, InformedClassifier, X, y, "zero_out", "", n_iter=3, **options)
    assert all(np.isfinite(total.value).all() for total, *_ in (*replayed[0], *replayed[1]))
    assert_within_bounds(*replayed, "zero_out")


def test_the_neighbour_test_would_notice_a_bound_on_parts_that_is_too_small(monkeypatch):
    """One row along the public directions and one off them: both bounds are tight."""
    options = {"center": False, "fit_intercept": False, "clip_norm": 0.1, "residual_norm": 0.1}
    options |= FEATURES | {"residual": True, "n_iter": 2}
    X, y = blobs(n=40)
    tight = []
    for row in (np.linalg.svd(public_rows(5)[0])[2][0], OUTSIDE):
        X[0] = row
        here, there = replay(monkeypatch, InformedClassifier, X, y, "zero_out", "", **options)
        moved = [
            move(one, other) / one.norm_bound
            for (one, *_), (other, *_) in zip(here, there, strict=True)
        ]
        tight.append(np.array(moved) > 0.98)
    np.testing.assert_array_equal(tight, [[True, False] * 2, [False, True] * 2])


STEPS = [
    {"clipping": "separate"},
    {"clipping": "joint"},
    {"residual": False},
    {"clip_norm": 1e-3},
    {"residual_norm": 40.0},
]
hostile = st.one_of(entries, st.sampled_from([np.nan, np.inf, -np.inf, 1e-200, 1e-9]))


def parts(space, grads, **options):
    """Sums of a step along given directions."""
    options = {"clip_norm": 1.0, "residual_norm": 0.2, "n_samples": 4, **options}
    step = GEPStep(subspace=lambda params, t: space, n_components=space.n_components, **options)
    return step.sums(step.begin(None, 0), grads)


def assert_parts_within_bounds(dtype, sums):
    """`sums` gives those of some records, of which some are present."""
    whole, without = sums([0, 1, 2, 3]), sums([0, 1, 2, 3], np.arange(4) < 3)
    replaced = sums([0, 1, 2, 4])
    for one, absent, other in zip(whole, without, replaced, strict=True):
        assert np.isfinite(one.value).all()
        slack = one.norm_bound * SLACK[dtype]
        assert move(one, absent) <= one.norm_bound + slack
        assert move(one, other) <= one.replace_bound + slack


PUBLIC = np.random.default_rng(4).normal(size=(9, 3)) * [1.0, 1.0, 1e-6]
LABELLED = np.random.default_rng(5).normal(size=(9, 2))


def outer_space(kind, features):
    """Directions of nine public rows of which the last column is faint, and what is kept of them.

    Of their features or of their gradients, exact or by iteration, and formed where parameters
    are fewer than rows.
    """
    rows = Features(PUBLIC, features.row_map).shifted(features.shift).at(slice(0, 9))
    if kind == "features":
        basis = np.linalg.svd(rows.formed(), full_matrices=False)[2][:2]
        return FeatureSubspace(basis, 2), features.inner(slice(0, len(features.X)), basis)
    m = 4 if kind == "implicit" else 9
    formed = rows.formed()[:m]
    block = type(rows)(rows.X[:m], rows.scale[:m], rows.bias, rows.shift)
    norms = np.linalg.norm(formed, axis=1)
    anchors = OuterGradients(block, norms, LABELLED[:m], 0.0, formed @ formed.T)
    power = None if kind == "exact" else 1
    space = anchor_subspace(anchors, (3,), power_iterations=power, rng=np.random.default_rng(0))
    return space, features.inner(slice(0, len(features.X)), formed)


@pytest.mark.parametrize("options", STEPS, ids=str)
@pytest.mark.parametrize("kind", ["features", "implicit", "exact"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(
    X=hnp.arrays(np.float64, (5, 3), elements=entries),
    R=hnp.arrays(np.float64, (5, 2), elements=hostile),
    copied=st.integers(0, 3),
    mean=st.one_of(st.none(), hnp.arrays(np.float64, 3, elements=st.floats(-3, 3))),
)
@settings(max_examples=25, deadline=None)
def test_parts_of_outer_products_move_within_their_bounds(dtype, kind, options, X, R, copied, mean):
    with np.errstate(all="ignore"):
        X, R = X.astype(dtype), R.astype(dtype)
        X[~np.isfinite(X)] = 1.0
        X[4 - copied :], R[4 - copied :] = PUBLIC[3], LABELLED[3]  # residuals that are rounding
        row_map = PLAIN if mean is None else RowMap(norm="clip", data_norm=3.0)

        def sums(rows, present=None):
            features = Features(X[rows], row_map)
            features = features.shifted(None if mean is None else Shift(mean, 0.3))
            norms = features.norms()
            if present is not None:
                norms = np.where(present, norms, np.inf)
            space, products = outer_space(kind, features)
            block = features.at(slice(None))
            grads = OuterGradients(block, norms, R[rows], features.slack + 1e-6, products)
            return parts(space, grads, **options)

        assert_parts_within_bounds(dtype, sums)


@pytest.mark.parametrize("options", STEPS, ids=str)
@pytest.mark.parametrize(
    "groups", [((None,), (3,)), ((slice(0, 5), slice(5, 14)), (2, 3))], ids=str
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(
    rows=hnp.arrays(np.float64, (5, 14), elements=hostile),
    copied=st.integers(0, 3),
    faint=st.sampled_from([1.0, 1e-4, 1e-8, 1e-12]),
)
@settings(max_examples=25, deadline=None)
def test_parts_of_gradients_of_modules_move_within_their_bounds(
    dtype, groups, options, rows, copied, faint
):
    public = np.random.default_rng(3).normal(size=(6, 14)) * np.geomspace(1, faint, 6)[:, None]
    with np.errstate(all="ignore"):
        rows = rows.astype(dtype)
        rows[4 - copied :] = public[1]
        anchors = DenseGradients(public.astype(dtype), (14,))
        space = anchor_subspace(
            anchors, groups[1], groups[0], power_iterations=1, rng=np.random.default_rng(0)
        )

        def sums(chosen, present=None):
            return parts(space, DenseGradients(rows[chosen], (14,), present, 1e-12), **options)

        assert_parts_within_bounds(dtype, sums)


def exact_residuals(space, grads):
    """Norms of embeddings and residuals in long doubles, from coordinates as computed."""
    wide = np.longdouble
    (part,), embedded = space.parts, space.embed(grads)
    B = part.weights.astype(wide) @ part.anchors.formed().astype(wide)
    E = embedded.rows.astype(wide)
    R = grads.formed().astype(wide) - E @ B
    return np.linalg.norm(E, axis=1), np.sqrt((R * R).sum(axis=1))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long doubles are doubles here")
@pytest.mark.parametrize("power", [None, 1])
@pytest.mark.parametrize("faint", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", ["outer", "dense"])
def test_no_part_is_longer_than_it_is_taken_to_be(form, dtype, faint, power, rng):
    """Energies of anchors span up to 1e-12, and gradients lie in their span but for little."""
    n, m, d, c = 400, 12, 8, 5
    scales = np.geomspace(1, faint, m)[:, None]
    P, Q = rng.normal(size=(m, d)), rng.normal(size=(m, c)) * scales
    which = rng.integers(0, m, n)
    off = 10.0 ** rng.integers(-12, 1, size=(n, 1))
    X = (P[which] + off * rng.normal(size=(n, d))).astype(dtype)
    R = Q[which].astype(dtype)
    public = outer(P, Q)
    formed = public.features.formed()
    features = Features(X, PLAIN, 1 << 16)
    products = features.inner(slice(0, n), formed)
    grads = OuterGradients(features.at(slice(0, n)), features.norms(), R, 1e-6, products)
    anchors = OuterGradients(
        public.features, public.feature_norms, public.residuals, 0.0, formed @ formed.T
    )
    if form == "dense":
        grads, anchors = (DenseGradients(g.formed(), (d * c,)) for g in (grads, anchors))
    space = anchor_subspace(anchors, (m,), power_iterations=power, rng=rng)
    taken = _Parts.of(space, grads)
    inside, outside = exact_residuals(space, grads)
    assert (taken.lengths >= inside).all() and (taken.rests >= outside).all()
    for bound in (1e-3, 0.1, 10.0):
        clipped = outside * np.minimum(1, bound / taken.rests)
        assert clipped.max() <= bound
    far = outside > 0.1 * np.hypot(inside, outside)  # and not clipped for nothing
    np.testing.assert_allclose(taken.rests[far], outside[far], rtol=2e-3)
