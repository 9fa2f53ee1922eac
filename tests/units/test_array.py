"""Devices, and chunks that run side by side."""

import threading
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpsubspace._array import check_device, chunk_map, on_device, to_numpy


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
        with chunk_map(np.zeros((3, 3)), 100) as over:
            assert blas_threads() == 1
            results = list(over(logarithm, list(range(100))))
    assert results == [-np.inf if i % 7 == 0 else i for i in range(100)]
    assert threading.get_ident() not in seen and len(seen) <= 2
    assert blas_threads() == before
    with chunk_map(np.zeros((3, 3)), 1) as over:
        assert over is map


def test_an_error_in_a_chunk_comes_out():
    def fail(i):
        raise ValueError("chunk")

    chunks = chunk_map(np.zeros((3, 3)), 9)
    with threadpool_limits(2, user_api="blas"), chunks as over, pytest.raises(ValueError):
        list(over(fail, list(range(9))))


@pytest.mark.parametrize("value", ["tpu", "mps", None, 3, ""])
def test_a_device_that_cannot_be_is_refused(value):
    with pytest.raises(ValueError, match="`device`"):
        check_device(value)


def test_the_cpu_is_numpy():
    assert check_device("cpu") is None
    X = np.arange(3.0)
    assert on_device(X, None) is X and to_numpy(X) is X
