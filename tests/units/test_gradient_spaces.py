"""Directions of gradients from inner products, against gradients that are formed."""

import numpy as np
import pytest
from cases import small_module
from scipy import sparse

from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.gradients.modules import ModuleGradients
from dpsubspace._core.public.gradient_spaces import WIDEST, FeatureSpace, ModuleSpace
from dpsubspace._core.public.subspace import (
    cosines,
    leading_weights,
    orthonormal,
    share_apart,
    unit_rows,
)


def decaying(rng, n, d):
    """Rows of which the variances along some axes fall from 1 to 1e-4."""
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=(n, d)) * np.geomspace(1, 1e-2, d) @ axes


@pytest.mark.parametrize("n", [60, 500])  # all eigenvectors, and some by iteration
def test_directions_by_inner_products_are_those_of_singular_vectors(rng, n):
    rows = decaying(rng, n, 40)
    found = leading_weights(rows @ rows.T, 6) @ rows
    expected = np.linalg.svd(rows, full_matrices=False)[2][:6]
    np.testing.assert_allclose(np.abs(found @ expected.T), np.eye(6), atol=1e-9)


@pytest.mark.parametrize("n", [30, 500])
def test_gradients_that_span_less_have_fewer_directions(rng, n):
    rows = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 50))
    assert leading_weights(rows @ rows.T, 8).shape == (3, n)
    assert leading_weights(np.zeros((n, n)), 8).shape == (0, n)


def test_the_same_directions_every_time(rng):
    rows = rng.normal(size=(600, 50))
    gram = rows @ rows.T
    assert np.array_equal(leading_weights(gram, 5), leading_weights(gram, 5))


def test_distances_of_subspaces_by_known_angles():
    one = np.eye(6)[:2]
    turned = np.array([[1.0, 0, 0, 0, 0, 0], [0, np.cos(0.3), np.sin(0.3), 0, 0, 0]])
    found = cosines(one @ turned.T)
    np.testing.assert_allclose(np.arccos(found), [0, 0.3], atol=1e-7)
    assert share_apart(found, 2) == pytest.approx(np.sin(0.3) / np.sqrt(2))
    assert share_apart(cosines(one @ np.eye(6)[4:].T), 2) == 1.0
    assert share_apart(cosines(one @ one.T), 2) == 0.0


def test_directions_that_others_span_are_orthonormal(rng):
    axes = rng.normal(size=(7, 30))
    axes = np.concatenate([axes, axes[:3]])  # some of them twice
    weights = orthonormal(axes @ axes.T, 200)
    assert weights.shape == (7, 10)
    np.testing.assert_allclose(weights @ axes @ axes.T @ weights.T, np.eye(7), atol=1e-10)
    assert orthonormal(axes @ axes.T, 4).shape == (4, 10)


def test_unit_rows_of_any_size(rng):
    rows = rng.normal(size=(5, 4))
    rows[1] *= 1e300
    rows[2] *= 1e-300
    rows[3] = 0
    norms = np.linalg.norm(unit_rows(rows), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 1, 0, 1], rtol=1e-12)


# Linear models ----------------------------------------------------------------------------------


def test_features_span_the_gradients_of_random_labels(rng):
    """Directions of features, once for every contrast of labels, are those of gradients."""
    rows, c = unit_rows(decaying(rng, 4000, 6)), 3
    labels = rng.integers(c, size=len(rows))
    residuals = 1 / c - np.eye(c)[labels]
    gradients = (rows[:, :, None] * residuals[:, None, :]).reshape(len(rows), -1)
    leading = np.linalg.svd(gradients, full_matrices=False)[2][: 2 * (c - 1)]
    features = FeatureSpace(6).leading(rows, 2)
    contrasts = np.linalg.svd(np.eye(c) - 1 / c)[0][:, : c - 1]
    expected = np.kron(features, contrasts.T)
    assert share_apart(cosines(leading @ expected.T), 4) < 0.1


def test_shares_are_those_of_gradients_at_any_label_and_weights(rng):
    rows, directions = rng.normal(size=(20, 6)), np.linalg.qr(rng.normal(size=(6, 2)))[0].T
    residual = LogLoss().residual(rng.integers(3, size=20), rng.normal(size=(20, 3)))
    gradients = rows[:, :, None] * residual[:, None, :]
    along = np.einsum("kd,ndc->nkc", directions, gradients)
    expected = (along**2).sum(axis=2) / (gradients**2).sum(axis=(1, 2))[:, None]
    np.testing.assert_allclose(FeatureSpace(6).shares(rows, directions), expected, atol=1e-12)


def test_a_span_holds_the_leading_directions_of_all_sets(rng):
    sets = [rng.normal(size=(50, 9)) * rng.random(9) for _ in range(2)]
    stacked, counts = FeatureSpace(9).spanned(sets, 3)
    space = stacked.joined()
    assert counts == [3, 3] and space.width == 6
    np.testing.assert_allclose(space.axes @ space.axes.T, np.eye(6), atol=1e-10)
    for rows in sets:
        inside = space.leading(rows, 3)
        np.testing.assert_allclose(inside @ inside.T, np.eye(3), atol=1e-8)
    outside = space.leading(rng.normal(size=(50, 9)), 3)
    assert (np.linalg.norm(outside, axis=1) < 1).all()


def test_a_span_is_never_wider_than_the_most(rng):
    sets = [rng.normal(size=(60, 300)) for _ in range(5)]
    assert FeatureSpace(300).spanned(sets, 50)[0].joined().width == WIDEST


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_differences_of_rows(rng, form):
    rows, others = rng.normal(size=(2, 30, 8))
    space, _ = FeatureSpace(8).spanned([rng.normal(size=(40, 8))], 3, centered=True)
    difference = unit_rows(rows) - unit_rows(others)
    expected = difference @ space.axes.T / np.linalg.norm(difference, axis=1)[:, None]
    np.testing.assert_allclose(space.apart(form(rows), form(others)), expected, atol=1e-5)
    assert not space.apart(form(rows), form(rows)).any()


# Modules ----------------------------------------------------------------------------------------


@pytest.fixture
def module_space():
    pytest.importorskip("torch")
    module = small_module(5, 4).double()
    empty = np.zeros((0, 5)), np.zeros(0, dtype=np.int64)
    return ModuleSpace(ModuleGradients(module, LogLoss(), *empty, n_targets=4), 4, seed=1)


def formed(space, X, labels):
    """Gradients as rows, from inner products with a basis of many gradients."""
    from dpsubspace._core.gradients.modules import ModuleSource

    module = space.gradients._rows.module
    source = ModuleSource(module, LogLoss(), X, labels, n_targets=4)
    return source.at(source.start(), slice(0, len(X))).dense().numpy()


def test_coordinates_of_a_module_are_those_of_its_gradients(module_space, rng):
    sets, X = list(rng.normal(size=(2, 40, 5))), rng.normal(size=(30, 5))
    space = module_space.spanned(sets, 4)[0].joined()
    anchors = formed(space, space.gradients.X, space.gradients.y)
    basis = space.weights @ anchors
    np.testing.assert_allclose(basis @ basis.T, np.eye(8), atol=1e-8)
    own = formed(space, X, space._labels(30))
    unit = own / np.linalg.norm(own, axis=1)[:, None]
    np.testing.assert_allclose(space.embedded(X), unit @ basis.T, atol=1e-9)


def test_shares_of_a_module_are_over_all_labels(module_space, rng):
    X = rng.normal(size=(7, 5))
    space = module_space.spanned([rng.normal(size=(40, 5))], 4)[0].joined()
    basis = space.weights @ formed(space, space.gradients.X, space.gradients.y)
    along, whole = 0, 0
    for label in range(4):
        own = formed(space, X, np.full(7, label))
        along, whole = along + (own @ basis.T) ** 2, whole + (own**2).sum(axis=1)
    expected = along / whole[:, None]
    np.testing.assert_allclose(space.shares(X, np.eye(space.width)), expected, atol=1e-9)


def test_a_row_without_a_gradient_has_no_coordinates(module_space, rng):
    X = rng.normal(size=(3, 5))
    X[1] = 1e308  # scores overflow
    space = module_space.spanned([rng.normal(size=(40, 5))], 4)[0].joined()
    found = space.embedded(X)
    assert not found[1].any() and found[[0, 2]].any()
