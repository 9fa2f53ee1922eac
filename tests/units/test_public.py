"""Gradient embeddings that are never formed, against gradients that are."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers import PLAIN, oracle
from scipy import sparse

from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.public.anchors import _Check, anchor_subspace, group_sizes
from dpsubspace._core.public.subspace import principal_directions
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.solvers.descent import GEPStep

D, C, N, M, K = 40, 10, 300, 120, 25


def problem(seed=0, *, n=N, m=M, d=D, c=C, dtype=np.float64, row_map=PLAIN, shift=None, kind=None):
    """Gradient source of private rows, and the gradients of public ones, at some weights."""
    rng = np.random.default_rng(seed)
    X, P = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(m, d))
    y, labels = rng.integers(0, c, n), rng.integers(0, c, m)
    private = Features(kind(X) if kind else X, row_map).shifted(shift)
    public = Features(P, row_map).shifted(shift)
    formed = public.at(slice(0, m)).dense()
    source = LinearSource(LogLoss(), private, y, public=formed)
    params = rng.normal(size=(private.width, c)) * 0.3
    anchors = LinearSource(LogLoss(), public, labels, public=formed).at(params, slice(0, m))
    return source, anchors, params


@pytest.mark.parametrize("m", [15, 90])
def test_the_first_directions_of_rows_are_the_leading_singular_vectors(m):
    """Of fewer rows than columns, and of more; only those that are asked for are formed."""
    rows = np.random.default_rng(0).normal(size=(m, D)) * np.linspace(1, 3, D)
    features = Features(rows, PLAIN)
    principal = principal_directions(features, features)
    singular, plain = np.linalg.svd(rows, full_matrices=False)[1:]
    assert not principal.are_all or m > D
    energies = np.maximum(singular**2 / m, principal.outside)
    np.testing.assert_allclose(principal.energies, energies, rtol=1e-9)
    few = principal.first(7)
    plain = plain[:7] * np.sign(np.sum(plain[:7] ** 3, axis=1))[:, None]
    np.testing.assert_allclose(few.vectors, plain, atol=1e-9)
    assert few.total == pytest.approx(energies[:7].sum() + few.outside * (D - 7))


def explicit(grads):
    return grads.dense().reshape(len(grads.residuals), -1)


def directions(space, anchors):
    """Directions (k, p) of a subspace, formed."""
    p = np.prod(space.shape)
    return np.array([space.lift(row).reshape(p) for row in np.eye(space.n_components)])


def step(anchors, counts=(K,), groups=(None,), power_iterations=1, **options):
    options = {"clip_norm": 1.0, "residual_norm": 0.4, "n_samples": N, "n_components": K, **options}

    def subspace(params, t):
        rng = np.random.default_rng(0)
        return anchor_subspace(anchors, counts, groups, power_iterations=power_iterations, rng=rng)

    return GEPStep(subspace=subspace, **options)


def released(step, source, params):
    """Sums of a step over all chunks, without noise, and the state."""
    state = step.begin(params, 0)
    parts = [step.sums(state, source.at(params, rows)) for rows in source.chunks(None)]
    return state, [np.sum([part[i].value for part in parts], axis=0) for i in range(len(parts[0]))]


@pytest.mark.parametrize("power", [None, 1, 3])
def test_implicit_embedding_equals_the_explicit_one(power):
    source, anchors, params = problem()
    gep = step(anchors, power_iterations=power)
    state, sums = released(gep, source, params)
    B = directions(state, anchors)
    np.testing.assert_allclose(B @ B.T, np.eye(K), atol=1e-11)
    expected = oracle(explicit(source.at(params, slice(0, N))), B, 1.0, 0.4)
    np.testing.assert_allclose(sums[0], expected[0], atol=1e-10)
    np.testing.assert_allclose(sums[1].reshape(-1), expected[1], atol=1e-10)


def test_exact_directions_are_those_of_the_singular_value_decomposition():
    _, anchors, _ = problem()
    space = anchor_subspace(anchors, (K,), power_iterations=None, rng=np.random.default_rng(0))
    B = directions(space, anchors)
    V = np.linalg.svd(explicit(anchors), full_matrices=False)[2][:K]
    np.testing.assert_allclose(B.T @ B, V.T @ V, atol=1e-10)


def test_a_power_iteration_is_that_of_the_paper():
    """Random start, product with the anchors' second moment, orthonormal rows."""
    _, anchors, _ = problem()
    A = explicit(anchors)
    rng = np.random.default_rng(3)
    space = anchor_subspace(anchors, (K,), power_iterations=1, rng=np.random.default_rng(3))
    start = (A @ A.T @ rng.standard_normal((M, K))).T @ A  # K x p, in the span of the anchors
    Q = np.linalg.qr(start.T)[0]
    B = directions(space, anchors)
    np.testing.assert_allclose(B.T @ B, Q @ Q.T, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("spread", [0, 1, 3])
def test_cholesky_factors_and_eigenvectors_give_the_same_directions(monkeypatch, spread, scale):
    """Also where lengths of public gradients differ by up to 1e3, and all are long or short."""
    _, anchors, _ = problem()
    lengths = 10.0 ** np.linspace(0, -spread, M)[:, None]
    anchors = replace(anchors, residuals=anchors.residuals * lengths * scale)
    made = []

    def space():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return anchor_subspace(anchors, (K,), power_iterations=1, rng=np.random.default_rng(0))

    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda a: made.append(1) or eigh(a))
    by_cholesky = space()
    assert not made
    monkeypatch.setattr(_Check, "good", False)
    by_eigenvectors = space()
    one, other = (part.parts[0].weights for part in (by_cholesky, by_eigenvectors))
    assert one.shape == other.shape == (K, M)
    gram = anchors.inner(anchors)[0]
    np.testing.assert_allclose(one @ gram @ one.T, np.eye(K), atol=1e-10)
    np.testing.assert_allclose(
        np.linalg.svd(one @ gram @ other.T, compute_uv=False), 1.0, atol=1e-10
    )
    assert by_cholesky.margin <= 2.1 * by_eigenvectors.margin
    assert by_cholesky.rounding == pytest.approx(by_eigenvectors.rounding, rel=1e-6)


def test_few_parameters_take_the_explicit_form_and_give_the_same():
    source, anchors, params = problem(d=4, c=3)
    assert np.prod(anchors.shape[1:]) < M
    options = {"counts": (5,), "power_iterations": None}
    explicitly = released(step(anchors, **options), source, params)
    implicitly = anchor_subspace(
        anchors.part(slice(None)), (5,), power_iterations=None, rng=np.random.default_rng(0)
    )
    assert explicitly[0].parts[0].anchors.shape[0] == 5
    B = directions(explicitly[0], anchors)
    V = np.linalg.svd(explicit(anchors), full_matrices=False)[2][:5]
    np.testing.assert_allclose(B.T @ B, V.T @ V, atol=1e-10)
    expected = oracle(explicit(source.at(params, slice(0, N))), B, 1.0, 0.4)
    np.testing.assert_allclose(explicitly[1][1].reshape(-1), expected[1], atol=1e-10)
    assert implicitly.n_components == 5


def test_groups_have_their_own_directions_and_are_clipped_together():
    source, anchors, params = problem()
    groups = (slice(0, 3), slice(3, 10))
    gep = step(anchors, groups=groups, counts=(8, 12))
    state, sums = released(gep, source, params)
    B = directions(state, anchors).reshape(20, D, C)
    assert not B[:8, :, 3:].any() and not B[8:, :, :3].any()
    B = B.reshape(20, -1)
    expected = oracle(explicit(source.at(params, slice(0, N))), B, 1.0, 0.4)
    np.testing.assert_allclose(sums[0], expected[0], atol=1e-10)
    np.testing.assert_allclose(sums[1].reshape(-1), expected[1], atol=1e-10)


def test_directions_are_shared_out_by_square_roots():
    assert group_sizes(100, [10_000, 40_000], 2000) == [33, 66]
    assert group_sizes(100, [4, 40_000], 50) == [1, 50]
    assert group_sizes(3, [1, 1, 1, 1, 1], 50) == [1] * 5


@pytest.mark.parametrize("kind", [None, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_mapped_and_shifted_rows_have_the_same_embeddings(dtype, kind):
    row_map = RowMap(norm="clip", data_norm=3.0, bias=0.5)
    shift = Shift(np.full(D + 1, 0.1), 0.3)
    source, anchors, params = problem(dtype=dtype, row_map=row_map, shift=shift, kind=kind)
    gep = step(anchors, clip_norm=0.5, residual_norm=0.2)
    for rows in (slice(0, N), np.arange(7, 250)):
        grads = source.at(params, rows)
        state = gep.begin(params, 0)
        B = directions(state, anchors)
        expected = oracle(explicit(grads), B, 0.5, 0.2)
        for total, values in zip(gep.sums(state, grads), expected, strict=True):
            scale = np.abs(values).max()
            tolerance = 1e-10 if dtype == np.float64 else 1e-5  # norms are rounded up
            np.testing.assert_allclose(total.value.reshape(-1), values, atol=tolerance * scale)


def test_inner_products_are_the_same_whether_they_are_kept_or_not(monkeypatch):
    kept, anchors, params = problem()
    monkeypatch.setattr("dpsubspace._core.gradients.linear._CACHE", 0)
    monkeypatch.setattr("dpsubspace._core.rows.features._WIDE", 5000)
    computed = problem()[0]
    for rows in (slice(0, N), np.arange(3, 200)):
        one, other = (source.at(params, rows).inner(anchors)[0] for source in (kept, computed))
        # Rounding is that of sums, of which the terms may cancel.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(one).max())


def test_combining_noiseless_sums_gives_the_gradient_back():
    """Nothing is clipped: embedding and residual add up to the whole gradient."""
    source, anchors, params = problem()
    G = explicit(source.at(params, slice(0, N)))
    gep = step(anchors, clip_norm=1e3, residual_norm=1e3)
    state, sums = released(gep, source, params)
    np.testing.assert_allclose(
        gep.combine(state, tuple(sums)).reshape(-1), G.sum(axis=0), atol=1e-9
    )
    gep = step(anchors, residual=False, clip_norm=1e3)
    state, sums = released(gep, source, params)
    B = directions(state, anchors)
    np.testing.assert_allclose(
        gep.combine(state, tuple(sums)).reshape(-1), G.sum(axis=0) @ B.T @ B, atol=1e-9
    )


def test_noise_of_the_residual_along_the_directions_is_dropped(rng):
    _, anchors, params = problem()
    gep = step(anchors)
    state = gep.begin(params, 0)
    noise = rng.normal(size=params.shape)
    out = gep.combine(state, (np.zeros(K), noise))
    B = directions(state, anchors)
    np.testing.assert_allclose(out.reshape(-1), noise.reshape(-1) @ (np.eye(D * C) - B.T @ B))


@pytest.mark.parametrize("spoil", [np.nan, np.inf, 1e300, 0.0])
def test_anchors_that_are_spoilt_or_zero_leave_sound_directions(spoil):
    _, anchors, _ = problem()
    residuals = anchors.residuals.copy()
    residuals[:100] = spoil
    spoilt = type(anchors)(
        anchors.features, anchors.feature_norms, residuals, anchors.rounding, anchors.products
    )
    for power in (None, 1):
        with np.errstate(all="ignore"):
            space = anchor_subspace(
                spoilt, (K,), power_iterations=power, rng=np.random.default_rng(0)
            )
        assert space.n_components == 20  # as many as there are other anchors
        assert space.margin < 1e-5
    zero = type(anchors)(
        anchors.features,
        anchors.feature_norms,
        residuals * 0 if spoil == 0 else np.zeros_like(residuals),
        anchors.rounding,
        anchors.products,
    )
    space = anchor_subspace(zero, (K,), power_iterations=1, rng=np.random.default_rng(0))
    assert space.n_components == 0
    source, _, params = problem()
    gep = step(zero)
    _, sums = released(gep, source, params)
    assert sums[0].shape == (0,) and np.isfinite(sums[1]).all()


def test_rank_deficient_anchors_give_as_many_directions_as_they_span():
    _, anchors, _ = problem()
    few = np.arange(M) % 7
    products = anchors.products[few][:, few]
    block = anchors.features
    repeated = type(anchors)(
        type(block)(block.X[few], block.scale[few], block.bias, None),
        anchors.feature_norms[few],
        anchors.residuals[few],
        anchors.rounding,
        products,
    )
    for power in (None, 1):
        space = anchor_subspace(
            repeated, (K,), power_iterations=power, rng=np.random.default_rng(0)
        )
        assert space.n_components == 7
