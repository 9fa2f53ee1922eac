"""Rows of Dask collections before they are used: what is refused, and that it costs nothing.

All of it without workers: see in_parts.py.
"""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
from helpers import blobs
from in_parts import blocks, cluster_here, lengths
from scipy import sparse

import dpsubspace
from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDRegressor,
    PrivacyLedger,
)
from dpsubspace._core.rows import dask_parts
from dpsubspace._core.rows.dask_parts import load_collections
from dpsubspace.statistics import private_covariance, private_quantile

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

N, SECRET = 300, 987654.25  # an entry that no message may quote
X, Y = blobs(n=N)
NAMES, LENGTHS = list("abcde"), lengths(N)
FRAME = pd.DataFrame(X, columns=NAMES).assign(y=Y, t=X[:, 0])


def secret_rows(value=SECRET):
    """Rows of which one has an entry that nothing else has."""
    rows = X.copy()
    rows[123, 2] = value
    return rows


def unknown(frame, sizes=LENGTHS):
    """A Dask data frame of partitions of these lengths, which it does not know."""
    starts = np.cumsum([0, *sizes])
    pairs = list(pairwise(starts))
    return dd.from_map(lambda pair: frame.iloc[pair[0] : pair[1]], pairs, meta=frame[:0])


def delayed_rows(*arrays, dtype=float):
    """A Dask array made of these blocks, whatever their types and widths are."""
    made = [
        da.from_delayed(dask.delayed(array), (len(array), arrays[0].shape[1]), dtype=dtype)
        for array in arrays
    ]
    return da.concatenate(made)


def delayed_targets(*arrays):
    return da.concatenate(
        [da.from_delayed(dask.delayed(a), a.shape, dtype=arrays[0].dtype) for a in arrays]
    )


REFUSED = {
    "other lengths": (DPSGDClassifier(), (blocks(X), Y[:-1]), r"\[300, 299\].*the same rows"),
    "other lengths of collections": (
        DPSGDClassifier(),
        (blocks(X), blocks(Y[:-1])),
        r"\[300, 299\].*the same rows",
    ),
    "targets in memory": (
        DPSGDClassifier(),
        (unknown(FRAME[NAMES]), Y),
        r"`y` is in memory and the lengths.*compute_chunk_sizes",
    ),
    "other numbers of blocks": (
        DPSGDClassifier(),
        (unknown(FRAME[NAMES]), unknown(FRAME["y"], lengths(N, (0.5,)))),
        r"`X` has 7 blocks and `y` has 2.*compute_chunk_sizes",
    ),
    "other lengths of blocks": (
        DPSGDClassifier(),
        (unknown(FRAME[NAMES]), unknown(FRAME["y"], lengths(N)[::-1])),
        r"a block of `X` and its block of `y` have \d+ and \d+ rows",
    ),
    "other types in a part": (
        DPSGDClassifier(),
        (delayed_rows(X[:10], X[10:20].astype("f4"), X[20:]), Y),
        r"`X` has blocks of different types.*float64 with 5 columns, and float32 with 5 columns",
    ),
    "other types in parts": (
        DPSGDClassifier(),
        (delayed_rows(X[:100], X[100:200].astype("f4"), X[200:]), Y),
        r"`X` has blocks of different types.*float64 with 5 columns, and float32 with 5 columns",
    ),
    "other widths": (
        DPSGDClassifier(),
        (delayed_rows(X[:100], X[100:200, :4], X[200:]), Y),
        r"`X` has blocks of different types or widths.*with 5 columns, and float64 with 4 columns",
    ),
    "other types of labels": (
        DPSGDClassifier(),
        (
            da.from_array(X, chunks=(100, 5)),
            delayed_targets(Y[:100], Y[100:200].astype(float), Y[200:]),
        ),
        r"`y` has blocks of different types.*int64 with 1 columns, and float64 with 1 columns",
    ),
    "NaN": (DPSGDClassifier(), (blocks(secret_rows(np.nan)), Y), "Input X contains NaN"),
    "infinity": (DPLinearRegression(), (blocks(secret_rows(-np.inf)), Y), "Input X contains inf"),
    "NaN in targets": (
        DPSGDRegressor(),
        (blocks(X), blocks(np.where(np.arange(N) == 200, np.nan, X[:, 0]))),
        "Input y contains NaN",
    ),
    "NaN in labels": (
        DPSGDClassifier(),
        (blocks(X), blocks(np.where(np.arange(N) == 200, np.nan, Y))),
        "Input y contains NaN",
    ),
    "text": (
        DPSGDClassifier(),
        (blocks(secret_rows().astype(str).astype(object) + "!"), Y),
        "`X` has entries that are not numbers",
    ),
    "text in a data frame": (
        DPSGDClassifier(),
        (dd.from_pandas(FRAME[NAMES].assign(c="987654.25!"), npartitions=3), Y),
        "`X` has entries that are not numbers in the columns c|in memory",
    ),
    "text as targets": (
        DPSGDRegressor(),
        (blocks(X), blocks(secret_rows()[:, 2].astype(str).astype(object) + "!")),
        "`y` has entries that are not numbers",
    ),
    "sparse blocks": (
        DPSGDClassifier(),
        (blocks(X).map_blocks(sparse.csr_array), Y),
        "sparse blocks of Dask collections are not supported",
    ),
    "no targets": (DPSGDClassifier(), (blocks(X), None), "requires y to be passed"),
    "one axis": (DPSGDClassifier(), (blocks(X[:, 0]), Y), "Expected 2D array for `X`"),
    "unknown columns": (
        DPSGDClassifier(),
        (da.from_array(X, chunks=(100, 5))[:, da.from_array(X[0] > 0)], Y),
        "`X` must have a known number of columns",
    ),
    "a device": (DPSGDClassifier(device="cuda"), (blocks(X), Y), "set device='cpu'|device"),
    "parts by chance": (DPLinearRegression(solver="ambssgd"), (blocks(X), Y), "'ambssgd'.*'auto'"),
    "one class": (DPSGDClassifier(), (blocks(X), Y * 0), "fewer than two classes"),
    "another class": (DPSGDClassifier(classes=[0, 1]), (blocks(X), Y), "not in `classes`"),
    "an estimator of users": (
        dpsubspace.linear_model.PersonalizedLinearRegression(missing_groups="each_row"),
        (blocks(X), Y),
        r"PersonalizedLinearRegression does not take Dask collections: pass X.compute\(\)",
    ),
    "a scorer of public sets": (
        dpsubspace.public_data.GSDScorer(),
        (blocks(X), Y),
        "GSDScorer does not take Dask collections",
    ),
    "missing labels": (
        DPSGDClassifier(),
        (blocks(X), blocks(np.where(X[:, 0] > 0, "987654.25", None))),
        "`y` has missing labels",
    ),
    "missing labels beside classes": (
        DPSGDClassifier(classes=["a", "b"]),
        (blocks(X), blocks(np.where(X[:, 0] > 0, "987654.25", None))),
        "`y` has missing labels",
    ),
    "labels of two types": (
        DPSGDClassifier(),
        (
            da.from_array(X, chunks=(100, 5)),
            delayed_targets(Y[:100].astype(object), Y[100:].astype(str).astype(object)),
        ),
        "`y` has missing labels, or labels of types that cannot be ordered",
    ),
    "numbers as labels": (DPSGDClassifier(), (blocks(X), blocks(X[:, 0])), "Unknown label type"),
    "columns of labels": (DPSGDClassifier(), (blocks(X), blocks(X)), "should be a 1d array"),
    "complex rows": (DPSGDClassifier(), (blocks(X).astype(complex), Y), "must be real"),
    "no columns": (DPSGDClassifier(), (blocks(X)[:, :0], Y), "0 feature"),
}


def refused(monkeypatch, call, match, model=None):
    """The message of what is refused; nothing was released, nothing charged, nothing stored."""
    ledger = PrivacyLedger(100.0, 1e-5)
    error = pytest.raises((ValueError, TypeError), match=match)
    with cluster_here(monkeypatch) as cluster, ledger, error as caught:
        call()
    assert not ledger.entries
    assert model is None or not hasattr(model, "privacy_")
    chain, error = [], caught.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    assert not any("987654" in message for message in chain)
    return cluster


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_costs_nothing_and_quotes_no_entry(monkeypatch, name):
    model, data, match = REFUSED[name]
    refused(monkeypatch, lambda: model.fit(*data), match, model)


@pytest.mark.parametrize("level", [0.5, [0.1, 0.9]])
def test_exact_quantiles_are_refused(monkeypatch, level):
    def call():
        return private_quantile(blocks(X), level, epsilon=np.inf)

    refused(monkeypatch, call, "`epsilon`=inf takes exact quantiles.*finite epsilon")


def test_without_a_client_the_message_says_how_to_start_one(monkeypatch):
    """For all that is fitted, in full words; lazy methods need none."""
    assert distributed.client._get_global_client() is None
    how = re.escape("from dask.distributed import Client; client = Client()")
    ledger = PrivacyLedger(100.0, 1e-5)
    for call in (
        lambda: DPSGDClassifier().fit(blocks(X), Y),
        lambda: DPPCA().fit(blocks(X)),
        lambda: BoundedScaler().fit(blocks(X)),
        lambda: private_covariance(blocks(X), epsilon=1.0),
    ):
        with ledger, pytest.raises(ValueError, match=how):
            call()
    assert not ledger.entries


@pytest.mark.parametrize("names", [NAMES, [0, 1, 2]])
def test_names_of_features_are_those_of_the_data_frame(monkeypatch, names):
    frame = FRAME[NAMES[: len(names)]].set_axis(names, axis=1)
    with cluster_here(monkeypatch):
        model = DPPCA(2, random_state=0).fit(unknown(frame))
        assert model.n_features_in_ == len(names)
    assert list(getattr(model, "feature_names_in_", names)) == names
    assert hasattr(model, "feature_names_in_") == (names is NAMES)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 8])
@pytest.mark.parametrize("shares", [(), (0.1, 0.003, 0.0, 0.45), (0.01,) * 20, (0.0,) * 9])
def test_blocks_are_dealt_out_in_runs(monkeypatch, n_workers, shares):
    """No more parts than blocks, none without one, all rows in their order."""
    with cluster_here(monkeypatch, n_workers) as cluster:
        given, targets = blocks(X, shares), blocks(Y, (0.3,))
        checked = lambda rows, y: {"rows": np.asarray(rows), "targets": np.asarray(y)}  # noqa: E731
        rows = load_collections(given, targets, checked)["rows"]
        parts = [part.value for part in cluster.parts]
    assert len(parts) == min(n_workers, len(shares) + 1)
    assert all(part.lengths for part in parts)
    assert [length for part in parts for length in part.lengths] == list(lengths(N, shares))
    np.testing.assert_array_equal(np.concatenate([part._leaves["rows"] for part in parts]), X)
    np.testing.assert_array_equal(np.concatenate([part._leaves["targets"] for part in parts]), Y)
    assert rows.shape == X.shape and rows.dtype == X.dtype


def test_a_worker_with_more_threads_has_more_blocks():
    assert dask_parts._runs(8, [3, 1]) == [slice(0, 6), slice(6, 8)]
    assert dask_parts._runs(1, [1, 1, 1]) == [slice(0, 1)]
    assert sum(run.stop - run.start for run in dask_parts._runs(100, [1, 2, 5])) == 100


def test_what_blocks_share_is_made_once(monkeypatch):
    """Blocks that need most of the rows each (here, a product of all) are made by Dask first."""
    square = da.from_array(X[:, :5].T, chunks=(5, 10)) @ da.from_array(X, chunks=(10, 5))
    rows = da.from_array(X, chunks=(30, 5)) @ square
    with cluster_here(monkeypatch) as cluster:
        one = DPPCA(2, random_state=0).fit(rows)
    assert len(cluster.held) == 10
    other = DPPCA(2, random_state=0).fit(X @ (X.T @ X))
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-9)


def test_columns_may_lie_in_several_blocks(monkeypatch):
    with cluster_here(monkeypatch):
        one = DPPCA(2, random_state=0).fit(da.from_array(X, chunks=(90, 2)))
        two = DPLinearRegression(random_state=0).fit(
            da.from_array(X, chunks=(70, 3)), da.from_array(X[:, :2], chunks=(50, 1))
        )
    np.testing.assert_allclose(
        one.components_, DPPCA(2, random_state=0).fit(X).components_, atol=1e-9
    )
    other = DPLinearRegression(random_state=0).fit(X, X[:, :2])
    np.testing.assert_allclose(two.coef_, other.coef_, atol=1e-9)


def test_batches_are_split_by_the_parts_that_hold_their_rows(monkeypatch, rng):
    with cluster_here(monkeypatch):
        rows = load_collections(blocks(X), None, lambda rows: {"rows": np.asarray(rows)})["rows"]
        parts = rows.parts
        for size in (0, 1, 50, N):
            batch = np.sort(rng.choice(N, size, replace=False))
            own = parts.split(batch)
            taken = parts.call(lambda x, some: x[some], rows, own=own)
            np.testing.assert_array_equal(np.concatenate(taken), X[batch])
