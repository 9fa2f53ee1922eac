"""Closed-form clipping against the loop that it replaces."""

import numpy as np
import pytest

from dpsubspace._array import row_chunks, row_norms
from dpsubspace._gradients import LinearSource, clipped_sum
from dpsubspace._losses import LOSSES


def naive_clipped_sum(loss, X, y, weights, clip_norm):
    """Per-example gradients in full, each clipped, then added up."""
    total = np.zeros_like(weights)
    for x, label in zip(X, y, strict=True):
        residual = loss.residual(np.array([label]), x[None] @ weights)[0]
        gradient = np.outer(x, residual)
        norm = np.linalg.norm(gradient)
        total += gradient * min(1.0, clip_norm / norm) if norm > 0 else 0.0
    return total


@pytest.mark.parametrize("clip_norm", [0.01, 0.5, 100.0])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_closed_form_clipping_equals_the_naive_loop(loss, n_classes, clip_norm, rng):
    X = rng.normal(size=(80, 6)) * rng.uniform(0, 3, size=(80, 1))
    X[3] = 0.0
    y = rng.integers(n_classes, size=80)
    weights = rng.normal(size=(6, loss.n_outputs(n_classes)))
    total = clipped_sum(LinearSource(loss, X, y).at(weights), clip_norm)
    naive = naive_clipped_sum(loss, X, y, weights, clip_norm)
    np.testing.assert_allclose(total.value, naive, rtol=0, atol=1e-12 * np.abs(naive).max())


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_residual_is_the_derivative_of_the_value(loss, n_classes, rng):
    y = rng.integers(n_classes, size=10)
    scores = rng.normal(size=(10, loss.n_outputs(n_classes))) * 3
    residual = loss.residual(y, scores)
    for column in range(scores.shape[1]):
        step = np.zeros_like(scores)
        step[:, column] = 1e-6
        numeric = (loss.value(y, scores + step) - loss.value(y, scores - step)) / 2e-6
        np.testing.assert_allclose(residual[:, column], numeric, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_losses_survive_extreme_scores(loss, n_classes):
    scores = np.array([[-1e4], [1e4], [0.0]]) * np.ones((3, loss.n_outputs(n_classes)))
    scores[:, 0] *= 2
    y = np.array([0, 1, 1])
    for result in (loss.value(y, scores), loss.residual(y, scores), loss.predict(scores)):
        assert np.isfinite(result).all()
    np.testing.assert_allclose(loss.predict(scores).sum(axis=1), 1.0)


def test_row_norms_neither_overflow_nor_vanish(rng):
    X = rng.normal(size=(4, 3))
    scale = np.array([1e300, 1e-300, 1.0, 0.0])[:, None]
    expected = np.linalg.norm(X, axis=1) * scale[:, 0]
    np.testing.assert_allclose(row_norms(X * scale), expected, rtol=1e-14)
    assert row_norms(X.astype(np.float32)).dtype == np.float64


def test_chunks_cover_rows_once_and_stay_small():
    X = np.zeros((5, 3_000_000))
    chunks = row_chunks(X)
    assert [i for c in chunks for i in range(c.start, c.stop)] == list(range(5))
    assert max(c.stop - c.start for c in chunks) == 1
