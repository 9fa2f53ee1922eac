"""Devices, and chunks that run side by side."""

import copy
import itertools
import pickle
import threading
import warnings

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from dpsubspace._core.ground.arrays import (
    BLOCK,
    Scratch,
    check_device,
    chunk_rows,
    column_sums,
    columns_of_product,
    even_slices,
    on_device,
    rounded_up,
    row_product,
    row_squares,
    sparse_rows,
    to_numpy,
)
from dpsubspace._core.rows.chunks import SHARED, over_chunks


class Records:
    """Records that are a chunk each."""

    data = np.zeros((3, 3))

    def __init__(self, n, work=SHARED):
        self.n, self.size = n, work

    def bytes_read(self, batch=None):
        return self.size

    def chunks(self, batch=None):
        return list(range(self.n)) if batch is None else list(batch)


def blas_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_chunks_run_in_order_on_threads_of_their_own_and_in_silence():
    before = blas_threads()
    seen = set()

    def logarithm(i):
        seen.add(threading.get_ident())
        return float(np.log(np.float64(0.0))) if i % 7 == 0 else i

    with threadpool_limits(2, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("error")
        with over_chunks(Records(100)) as each:
            assert blas_threads() == 1
            results = list(each(logarithm))
            batch = list(each(logarithm, np.arange(1, 7)))
    assert results == [-np.inf if i % 7 == 0 else i for i in range(100)]
    assert batch == [1, 2, 3, 4, 5, 6]
    assert threading.get_ident() not in seen and len(seen) <= 2
    assert blas_threads() == before


def test_one_chunk_is_worked_on_where_it_is_asked_for():
    with threadpool_limits(2, user_api="blas"):
        with over_chunks(Records(1)) as each:
            assert blas_threads() == 1  # two would wait for each other longer than a chunk takes
            assert list(each(lambda i: threading.get_ident())) == [threading.get_ident()]
        with over_chunks(Records(3, work=SHARED - 1)) as each:  # so little is not worth sharing
            assert set(each(lambda i: threading.get_ident())) == {threading.get_ident()}
        assert blas_threads() == 2


def test_fits_side_by_side_may_end_in_any_order():
    with threadpool_limits(2, user_api="blas"):
        first, second = over_chunks(Records(3)), over_chunks(Records(3))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == 1
        second.__exit__(None, None, None)
        assert blas_threads() == 2


def test_an_error_in_a_chunk_comes_out():
    def fail(i):
        raise ValueError("chunk")

    chunks = over_chunks(Records(9))
    with threadpool_limits(2, user_api="blas"), chunks as each, pytest.raises(ValueError):
        list(each(fail))


@pytest.mark.parametrize("value", ["tpu", "mps", None, 3, ""])
def test_a_device_that_cannot_be_is_refused(value):
    with pytest.raises(ValueError, match="`device`"):
        check_device(value)


def test_the_cpu_is_numpy():
    assert check_device("cpu") is None
    X = np.arange(3.0)
    assert on_device(X, None) is X and to_numpy(X) is X


@pytest.mark.parametrize("n", [1, 127, 4_096, 4_097, 100_000, 1_000_003])
@pytest.mark.parametrize("step", [128, 4_096, 65_536])
def test_chunks_are_even_and_cover_every_row_once(n, step):
    chunks = even_slices(n, step)
    assert chunks[0].start == 0 and chunks[-1].stop == n
    assert all(a.stop == b.start for a, b in itertools.pairwise(chunks))
    sizes = [chunk.stop - chunk.start for chunk in chunks]
    assert max(sizes) <= step and all(size % BLOCK == 0 for size in sizes[:-1])
    assert n > step or len(chunks) == 1
    # Two threads have as much to do, up to what a last chunk of less than the others leaves.
    pairs = -(-n // (2 * step))
    assert len(chunks) <= 2 * pairs and (n <= step or len(chunks) >= 2)


def test_chunks_take_so_many_bytes_and_neither_too_few_rows_nor_too_many():
    def rows(d, dtype, beside=0):
        return chunk_rows(np.empty((1, d), dtype), beside=beside)

    assert rows(1, np.float32) == rows(20, np.float32) == 65_536
    assert abs(rows(100, np.float32) - 2 * rows(100, np.float64)) <= 2 * BLOCK
    assert rows(20, np.float32, beside=400) < rows(20, np.float32)
    assert rows(784, np.float32) == rows(100_000, np.float64) == 4_096
    assert chunk_rows(np.empty((1, 20)), 1_000) == 1_024


@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 1, 1), (129, 20, 1), (1_000, 5, 4), (900, 90, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_sums_of_a_chunk(shape, order, dtype):
    (k, d, c), rng = shape, np.random.default_rng(0)
    X, W = rng.normal(size=(k, d)).astype(dtype), rng.normal(size=(d, c)).astype(dtype)
    R = np.asarray(rng.normal(size=(k, c)).astype(dtype), order=order)
    close = {"rtol": 1e-4 if dtype == np.float32 else 1e-12, "atol": 1e-4}
    scores = columns_of_product(X, W)
    assert scores.dtype == dtype and scores.T.flags.c_contiguous
    np.testing.assert_allclose(scores, X @ W, **close)
    found = row_product(X, R)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, X.T.astype(float) @ R, **close)
    np.testing.assert_allclose(column_sums(R), R.sum(axis=0, dtype=float), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(row_squares(R), (R * R).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_slices_of_sparse_rows_are_no_copies(kind):
    dense = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float32)
    X = kind(np.maximum(dense, 0))
    for rows in (slice(0, 0), slice(0, 128), slice(128, 300)):
        found = sparse_rows(X, rows)
        assert type(found) is kind and found.dtype == X.dtype
        np.testing.assert_array_equal(found.toarray(), X[rows].toarray())
        for part in ("data", "indices"):
            assert not found.nnz or np.shares_memory(getattr(found, part), getattr(X, part))
        R = np.ones((found.shape[0], 2))
        np.testing.assert_allclose(row_product(found, R), X[rows].toarray().T.astype(float) @ R)


def test_numbers_are_rounded_up():
    x = np.random.default_rng(0).random(10_000) * 10.0 ** np.arange(-20, 20).repeat(250)
    single = rounded_up(x, np.float32)
    assert single.dtype == np.float32 and (single.astype(float) >= x).all()
    np.testing.assert_allclose(single, x, rtol=3e-7)
    assert rounded_up(np.array([np.inf, 0.0]), np.float32).tolist() == [np.inf, 0.0]
    assert rounded_up(x, np.float64) is x


# Scratch ------------------------------------------------------------------------------------


def test_scratch_is_used_again_and_never_given_to_two():
    first = Scratch((300, 7), np.float64)
    place = first.array.ctypes.data
    second, single = Scratch((20,), np.float64), Scratch((300, 7), np.float32)
    assert not np.shares_memory(first.array, second.array)
    assert not np.shares_memory(first.array, single.array)
    assert single.array.dtype == np.float32 and first.array.shape == (300, 7)
    del first
    again = Scratch((5, 6), np.float64)
    assert again.array.ctypes.data == place
    larger = Scratch((3000, 7), np.float64)
    larger.array[...] = 1.0
    again.array[...] = 2.0
    assert (larger.array == 1.0).all()


def test_scratch_is_not_copied_or_pickled():
    kept = Scratch((3,), np.float64)
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied or pickled"):
            take(kept)


def test_each_thread_has_its_own_scratch():
    Scratch((300, 7), np.float64)  # free at once
    here = Scratch((300, 7), np.float64)
    found = []

    def fill():
        there = Scratch((300, 7), np.float64)
        there.array[...] = 1.0
        found.append(there)

    thread = threading.Thread(target=fill)
    here.array[...] = 2.0
    thread.start()
    thread.join()
    assert (here.array == 2.0).all() and (found[0].array == 1.0).all()
