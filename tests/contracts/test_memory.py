"""Rows stay where they are: memory maps, read-only arrays, sparse matrices."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import ESTIMATORS, INFORMED, AdaptiveClassifier, blobs, pairs_first, thinned, with_plan
from scipy import sparse
from sklearn.base import is_classifier

from dpsubspace._core.rows.records import RowMap
from dpsubspace.linear_model._advice import warn_of_classes


def peak(function):
    """Most bytes of arrays and objects that `function` held at once."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("Estimator", thinned([*ESTIMATORS, *INFORMED, AdaptiveClassifier]))
def test_a_read_only_memory_map_is_read_and_not_copied(Estimator, tmp_path):
    n, d = 20_000, 200
    rng = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", rng.normal(size=(n, d)).astype(np.float32))
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    y = np.arange(n) % 2
    options = {"epsilon": 5.0, "n_iter": 3, "random_state": 0}
    # The first fit of a process makes tables of public numbers, which are kept.
    mapped = Estimator(**options).fit(np.array(X[:200]), y[:200])
    held = peak(lambda: with_plan(mapped, chunk=1024)(X, y))
    # Labels, norms, factors, and what is needed for a few rows at once.
    assert held < X.nbytes
    in_memory = Estimator(**options).fit(np.array(X), y)
    np.testing.assert_allclose(mapped.coef_, in_memory.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(mapped.predict(X[:50]).shape, (50,))


def scattered(n, d, entries):
    """Sparse rows with as many entries each: `sparse.random` shuffles all n * d places."""
    rng = np.random.default_rng(0)
    indptr = np.arange(0, n * entries + 1, entries)
    rows = (rng.random(n * entries), rng.integers(0, d, n * entries), indptr)
    return sparse.csr_matrix(rows, shape=(n, d))


@pytest.mark.parametrize("Estimator", thinned([*ESTIMATORS, *INFORMED, AdaptiveClassifier], 3))
def test_centred_sparse_rows_stay_sparse(Estimator):
    n, d = 3000, 20_000
    X = scattered(n, d, 4)
    y = np.arange(n) % 2
    model = Estimator(epsilon=1e3, n_iter=3)
    # An eighth of the dense rows; public ones, a few, are dense.
    assert peak(lambda: model.fit(X, y)) < n * d * (2 if Estimator in INFORMED else 1)


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("Estimator", thinned([*ESTIMATORS, AdaptiveClassifier], 3))
def test_a_million_columns(Estimator):
    X = scattered(300, 10**6, 10)
    model = Estimator(epsilon=1.0, n_iter=2).fit(X, np.arange(300) % 2)
    assert model.coef_.size == 10**6 and np.isfinite(model.coef_).all()


def test_what_is_said_of_many_classes_needs_no_more_than_their_weights(rng):
    """All pairs of them at once would be 300 times as much, after the fit has been paid for."""
    coef = rng.normal(size=(300, 400))
    model = SimpleNamespace(classes_=np.arange(300), coef_=coef, intercept_=np.zeros(300))
    model.offset_, model._fitted_row_map = np.zeros(1), RowMap(norm="clip", data_norm=1.0, bias=0.5)
    model._interactions, model._interaction_weights = None, np.zeros((0, 300))
    assert peak(lambda: warn_of_classes(model)) < 10 * coef.nbytes


@pytest.mark.parametrize(
    ("Estimator", "form"),
    pairs_first(
        [*ESTIMATORS, *INFORMED, AdaptiveClassifier],
        [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array],
    ),
)
def test_any_sparse_form_gives_the_dense_model(Estimator, form):
    X, y = blobs(n=400)
    X[X < 0] = 0
    options = {"epsilon": 5.0, "n_iter": 20, "random_state": 0}
    dense = Estimator(**options).fit(X, y)
    model = Estimator(**options).fit(form(X), y)
    # Sums of sparse rows are not by blocks: their allowance for rounding differs, and with it the
    # noise, by single steps of its lattice. One is at most 2^-23 of the noise of a sum, and where
    # all 20 sums are one off, weights are by sqrt(20) of that share of their own noise, 5e-7.
    ask = "decision_function" if is_classifier(dense) else "predict"
    scores, expected = getattr(model, ask)(form(X)), getattr(dense, ask)(X)
    for found, wanted in ((model.coef_, dense.coef_), (scores, expected)):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
