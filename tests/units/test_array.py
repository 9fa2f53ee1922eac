"""Devices, and chunks that run side by side."""

import threading
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpsubspace._array import check_device, on_device, to_numpy
from dpsubspace._rows.chunks import over_chunks


class Records:
    """Records that are a chunk each."""

    data = np.zeros((3, 3))

    def __init__(self, n):
        self.n = n

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
    with threadpool_limits(2, user_api="blas"), over_chunks(Records(1)) as each:
        assert blas_threads() == 2
        assert list(each(lambda i: threading.get_ident())) == [threading.get_ident()]


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
