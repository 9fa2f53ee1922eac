"""How far one record moves a single sum, by brute force against the stated bound."""

import numpy as np
import pytest
from helpers import PLAIN, RELATIONS, examples, mapped, move, releases, some_releases, who
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.events import non_private
from dpsubspace._core.gradients.clipping import DenseGradients, clipped_sum
from dpsubspace._core.gradients.linear import LinearSource, OuterGradients
from dpsubspace._core.gradients.losses import LogLoss, on_unit
from dpsubspace._core.public.anchors import anchor_subspace
from dpsubspace._core.public.subspace import FeatureSubspace
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.solvers.descent import GEPStep, _Parts
from dpsubspace._core.statistics import means
from dpsubspace._core.statistics.counts import RADIUS_COUNTS, noisy_parts, noisy_radius, noisy_range
from dpsubspace._core.statistics.means import bounded_row_sum, noisy_spread

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
@examples(50)
def test_row_sum_moves_within_its_bounds(row_map, dtype, as_rows, X, other):
    X = np.clip(X, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)
    changed = X.copy()
    changed[0] = np.clip(other, np.finfo(dtype).min, np.finfo(dtype).max)
    with np.errstate(all="ignore"):
        here, there = (Features(as_rows(rows), row_map) for rows in (X, changed))
        absent = Features(as_rows(X), row_map, records=who(np.arange(6) > 0, 6))
        total = bounded_row_sum(here, row_map.bound)
        without = bounded_row_sum(absent, row_map.bound)
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("constant", [None, 0.3])
@given(
    X=hnp.arrays(np.float64, (5, 3), elements=entries),
    R=hnp.arrays(
        np.float64, (5, 2), elements=st.one_of(entries, st.sampled_from([np.nan, np.inf, 1e-200]))
    ),
    mean=st.one_of(st.none(), hnp.arrays(np.float64, 3, elements=st.floats(-3, 3))),
    columns=st.sampled_from([None, (1.0, 1e-3, 30.0), (1e3, 1e3, 1e-6)]),
    clip_norm=st.sampled_from([1e-3, 0.5, 1.0, 40.0]),
)
@examples(150)
def test_clipped_sum_moves_within_its_bounds(dtype, constant, X, R, mean, columns, clip_norm):
    with np.errstate(all="ignore"):
        X, R = X.astype(dtype), R.astype(dtype)
        X[~np.isfinite(X)] = 1.0  # rows are checked before; residuals are not
        row_map = PLAIN if mean is None else RowMap(norm="clip", data_norm=3.0)

        def total(rows, present=None):
            features = Features(X[rows], row_map)
            features = features.shifted(None if mean is None else Shift(mean, constant))
            if columns is not None:
                features = features.weighed(np.array(columns))
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
        assert Features(sparse.csr_array(X.astype(dtype)), RowMap(norm="l2")).slack < 1e-7


def test_a_null_record_is_removed_exactly(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 3
    keep = np.arange(20) != 7
    weights = rng.normal(size=(3, 3))
    everything = slice(None)
    masked = LinearSource(LogLoss(), Features(X, PLAIN, records=who(keep, 20)), y)
    masked = masked.at(weights, everything)
    removed = LinearSource(LogLoss(), Features(X[keep], PLAIN), y[keep]).at(weights, everything)
    np.testing.assert_allclose(
        clipped_sum(masked, 0.2).value, clipped_sum(removed, 0.2).value, rtol=0, atol=1e-14
    )


@given(
    values=hnp.arrays(np.float64, 9, elements=entries),
    other=st.one_of(entries, st.sampled_from([2.0, -2.0, 2.0**40, -(2.0**40)])),
)
@examples(100)
def test_counts_move_within_their_bounds(values, other):
    changed = np.append(other, values[1:])

    def counts(values, present=None):
        with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
            noisy_range(values, some_releases(1.0, present=present), "it")
        return seen[0][0]

    total = counts(values)
    assert total.value.sum() == 9  # every value is counted, wherever it lies
    assert move(total, counts(values, np.arange(9) > 0)) == 1.0 == total.norm_bound
    assert move(total, counts(changed)) <= total.replace_bound * (1 + 1e-15)


wild = st.one_of(entries, st.sampled_from([np.nan, np.inf, -np.inf, 0.3, 0.7]))


@given(
    values=hnp.arrays(np.float64, (6, 3), elements=wild), other=hnp.arrays(float, 3, elements=wild)
)
@examples(100)
def test_parts_of_a_whole_move_within_their_bounds(values, other):
    """Also where the numbers of a row add up to more than 1."""
    changed = np.vstack([other, values[1:]])

    def total(values, present=None):
        with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
            noisy_parts(values, some_releases(1.0, present=present), "it")
        return seen[0][0]

    whole = total(values)
    assert move(whole, total(values, np.arange(6) > 0)) <= whole.norm_bound <= 1 + 1e-13
    assert move(whole, total(changed)) <= whole.replace_bound <= np.sqrt(2) + 1e-13


def test_a_row_that_adds_up_to_more_than_1_is_divided_by_that():
    """Two rows of ones alone, at (1, 0) and (0, 1), move the parts by all of the bounds."""
    values = np.array([[1.0, 1.0, 1.0], [0.2, 0.3, 0.0], [1.0, 0.5, 0.5], [-1.0, np.nan, 2.0]])
    with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
        noisy_parts(values, some_releases(1.0), "it")
    parts = [[1 / 3] * 3, [0.2, 0.3, 0.0], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(seen[0][0].value, np.sum(parts, axis=0), rtol=1e-15)


@given(
    X=hnp.arrays(np.float64, (6, 3), elements=st.floats(-3, 3)),
    other=hnp.arrays(np.float64, 3, elements=entries),
    mean=hnp.arrays(np.float64, 3, elements=st.floats(-1, 1)),
    radius=st.sampled_from([1e-4, 0.01, 0.3, 1.0, 3.0]),
)
@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@examples(60)
def test_sums_of_clipped_rows_move_within_their_bounds(dtype, as_rows, X, other, mean, radius):
    X = X.astype(dtype)
    X[1:3] = mean  # as near as rounding lets them be
    changed = X.copy()
    changed[0] = np.clip(other, np.finfo(dtype).min, np.finfo(dtype).max)

    def total(rows, present=None, zoom=1.0):
        row_map = RowMap(norm="clip", data_norm=2.0)
        features = Features(as_rows(rows), row_map, records=who(present, 6))
        clipped = features.shifted(Shift(mean, 0.1)).clipped(radius, zoom)
        assert clipped.norms().max() <= radius * zoom
        return bounded_row_sum(clipped, radius * zoom)

    for zoom in (1.0, 1e3):
        whole = total(X, zoom=zoom)
        slack = radius * zoom * 1e-9
        assert move(whole, total(X, np.arange(6) > 0, zoom)) <= whole.norm_bound + slack
        assert move(whole, total(changed, zoom=zoom)) <= whole.replace_bound + slack


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_radius_holds_half_of_the_rows_and_noise_makes_it_larger(relation, rng):
    values = rng.exponential(size=4000) / 100

    def radius_of(values, multiplier, present=None):
        how = some_releases(multiplier, 6, relation=relation, present=present)
        return noisy_radius(values, 1.0, how, "it")

    radius = radius_of(values, 1.0)
    assert 1 <= radius / np.median(values) < 1.25
    assert radius <= radius_of(values, 300.0) < 4 * radius
    assert radius_of(values, 1e4) == 1.0  # noise hides all of them
    assert radius_of(0 * values, 1.0) == 2.0**-15.75
    assert radius_of(values, 1.0, present=values > 0.02) < radius / 100


STEPS = [
    {},
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
        basis = np.linalg.svd(rows.dense(), full_matrices=False)[2][:2]
        return FeatureSubspace(basis, 2), features.inner(slice(0, len(features.X)), basis)
    m = 4 if kind == "implicit" else 9
    formed = rows.dense()[:m]
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
@examples(50)
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
@examples(50)
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
    B = part.weights.astype(wide) @ part.anchors.dense().astype(wide)
    E = embedded.rows.astype(wide)
    R = grads.dense().astype(wide) - E @ B
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
    formed = public.features.dense()
    features = Features(X, PLAIN, 1 << 16)
    products = features.inner(slice(0, n), formed)
    grads = OuterGradients(features.at(slice(0, n)), features.norms(), R, 1e-6, products)
    anchors = OuterGradients(
        public.features, public.feature_norms, public.residuals, 0.0, formed @ formed.T
    )
    if form == "dense":
        grads, anchors = (DenseGradients(g.dense(), (d * c,)) for g in (grads, anchors))
    space = anchor_subspace(anchors, (m,), power_iterations=power, rng=rng)
    taken = _Parts.of(space, grads)
    inside, outside = exact_residuals(space, grads)
    assert (taken.lengths >= inside).all() and (taken.rests >= outside).all()
    for bound in (1e-3, 0.1, 10.0):
        clipped = outside * np.minimum(1, bound / taken.rests)
        assert clipped.max() <= bound
    far = outside > 0.1 * np.hypot(inside, outside)  # and not clipped for nothing
    np.testing.assert_allclose(taken.rests[far], outside[far], rtol=2e-3)


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_row_near_a_first_mean_is_longer_than_the_radius(dtype, as_rows, rng, monkeypatch):
    """Rows that are 10^4 times as far from 0 as from each other: a factor rounded to float32
    would move them by a thousandth of the radius."""
    X = (1 + 1e-4 * rng.standard_normal((500, 3))).astype(dtype)
    features = Features(as_rows(X), RowMap(norm="l2"))
    summed = []
    plain = means.noisy_mean

    def seen(rows, norm_bound, *args, **options):
        summed.append((rows, norm_bound))
        return plain(rows, norm_bound, *args, **options)

    monkeypatch.setattr(means, "noisy_mean", seen)
    names = {"coarse mean": 1, "coarse radius": RADIUS_COUNTS, "mean": 1}
    parts = {name: Part(0.1, count) for name, count in names.items()}
    budget = Budget(Target(None, 1e-5), parts, dict.fromkeys(parts, 1e-4), non_private(), True)
    means.recentred_mean(features, 1.0, Releases(budget, SeededNoise(0)))
    near, radius = summed[1]
    assert radius < 1e-2
    exact = near.factors.astype(np.longdouble)[:, None] * X - near.shift.mean
    lengths = near.shrink * np.sqrt((exact**2).sum(axis=1))
    assert 0.99 * radius < lengths.max() <= radius * (1 + 1e-12)


@pytest.mark.parametrize("multiplier", [0.3, 3.0, 30.0])
def test_the_error_of_a_released_mean_is_how_far_noise_has_moved_it(multiplier, rng):
    """Its square is that of the distance on average, or above it where noise outweighs the mean.

    A ratio of means of 300 squares has a deviation of 0.02 or less: the limit is 12 of them.
    """
    X = np.tile(rng.standard_normal(20), (30, 1))
    features = Features(X, RowMap(norm="l2"))
    found = [
        means.noisy_mean(features, 1.0, some_releases(multiplier, name="mean", seed=seed))
        for seed in range(300)
    ]
    exact = X[0] / np.linalg.norm(X[0])
    squares = [np.sum((mean - exact) ** 2) for mean, _ in found]
    ratio = np.mean(squares) / np.mean([error**2 for _, error in found])
    assert (0.76 if multiplier < 10 else 0.0) < ratio < 1.24


def test_a_long_row_moves_the_mean_square_of_lengths_by_all_of_its_bound(monkeypatch):
    with releases(monkeypatch) as seen:
        for first in (100.0, 0.0):
            noisy_spread(np.array([first, 1.0, 0.5]), 3.0, some_releases(1.0, name="spread"))
    here, there = (total for total, *_ in seen)
    assert 8.99 < move(here, there) <= here.norm_bound == here.replace_bound < 9.01


def test_targets_outside_of_their_range_are_at_its_ends():
    found = on_unit(
        np.array([[-1e9], [2.0], [5.0], [8.0], [1e9]]), np.array([2.0]), np.array([8.0])
    )
    assert found.ravel().tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]
