"""Arithmetic of rows that lie elsewhere, in parts: what NumPy gives of each row, and nothing else.

A sum, a mean or an order over the rows of a part would be a number of several records, of which no
bound knows: all that is not made of one row at a time has to be refused.
"""

import operator
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

from dpsubspace._core.rows.remote import RowPart, RowParts, for_each_part, rowwise, sum_over_parts

LENGTHS = (3, 0, 5, 1)  # of parts; one has as many rows as there are columns
N, COLUMNS = sum(LENGTHS), 3
LINE = np.array([0.5, -2.0, 3.0])


class Here(RowParts):
    """Rows in parts in this process."""

    def __init__(self, **arrays):
        super().__init__(N)
        ends = np.cumsum(LENGTHS)
        self.template = {name: array[:0] for name, array in arrays.items()}
        self.parts = [
            RowPart({name: array[end - size : end] for name, array in arrays.items()})
            for size, end in zip(LENGTHS, ends, strict=True)
        ]

    def run(self, task, own):
        own = [None] * len(self.parts) if own is None else own
        return [part.run(task, one) for part, one in zip(self.parts, own, strict=True)]

    def split(self, batch):
        raise NotImplementedError

    def scattered(self, values):
        raise NotImplementedError

    def leaves(self):
        return {name: self.leaf(name, here) for name, here in self.template.items()}


def arrays(dtype=np.float64):
    rng = np.random.default_rng(0)
    rows = (10 * rng.normal(size=(N, COLUMNS))).astype(dtype)
    rows[0] = 0
    more = (10 * rng.normal(size=(N, COLUMNS))).astype(dtype)
    return {"x": rows, "z": more, "v": more[:, 0].copy(), "w": rows[:, 1].copy()}


def remote(dtype=np.float64):
    parts = Here(**arrays(dtype))
    return parts, parts.leaves()


# By what they compute: of x and z (n, 3), v and w (n,), in NumPy and of rows elsewhere.
OF_ROWS = {
    "plus": lambda x, z, v, w: x + z,
    "minus a line": lambda x, z, v, w: x - LINE,
    "from a line": lambda x, z, v, w: LINE - x,
    "times a column": lambda x, z, v, w: x * v[:, None],
    "over a number": lambda x, z, v, w: v / 3,
    "a number over": lambda x, z, v, w: 2.5 / v,
    "of a NumPy number": lambda x, z, v, w: np.float64(2.5) * v,
    "whole and rest": lambda x, z, v, w: x // 2 + x % 3,
    "minus itself": lambda x, z, v, w: -v + abs(w),
    "square": lambda x, z, v, w: x**2,
    "cube": lambda x, z, v, w: v**3,
    "power of rows": lambda x, z, v, w: abs(x) ** abs(z),
    "power of two": lambda x, z, v, w: 2.0**v,
    "comparison": lambda x, z, v, w: (x > LINE) & ~(z <= x) | (x >= 1) ^ (x < z),
    "equal": lambda x, z, v, w: (x == z) | (x != 0.0),
    "root": lambda x, z, v, w: np.sqrt(np.abs(x)),
    "logistic": lambda x, z, v, w: rowwise(expit, v) * (1 - rowwise(expit, v)),
    "largest": lambda x, z, v, w: np.maximum(x, z),
    "least": lambda x, z, v, w: np.minimum(1.0, x),
    "missing": lambda x, z, v, w: np.isnan(x / x).astype(np.float64),
    "type": lambda x, z, v, w: v.astype(np.float32),
    "columns": lambda x, z, v, w: x[:, 1:] * x[:, 0, None],
    "where": lambda x, z, v, w: np.where(x > 0, z, 0.0),
    "where of a line": lambda x, z, v, w: np.where(x > LINE, LINE, x),
    "clip": lambda x, z, v, w: np.clip(x, -1.0, LINE),
    "clip by row": lambda x, z, v, w: np.clip(v, -abs(w), abs(w)),
    "lengths": lambda x, z, v, w: np.linalg.norm(x, axis=1),
    "lengths as columns": lambda x, z, v, w: x / np.linalg.norm(x + 1, axis=1, keepdims=True),
    "beside": lambda x, z, v, w: np.column_stack([v, x, w]),
    "cells": lambda x, z, v, w: np.searchsorted(np.array([-3.0, 0.0, 4.0]), x, side="right"),
    "several": lambda x, z, v, w: np.clip((np.clip(x, -1, 1) - LINE) / 2, -1, 1) * v[:, None],
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.filterwarnings("ignore:(divide|invalid|overflow):RuntimeWarning")
def test_arithmetic_of_rows_is_that_of_numpy_to_the_bit(name, dtype):
    formula, here = OF_ROWS[name], arrays(dtype)
    parts, there = remote(dtype)
    found = formula(**there)
    each = [part.leaves for part in parts.parts]
    expected = np.concatenate([formula(**leaves) for leaves in each])
    assert found.shape == expected.shape and found.dtype == expected.dtype and len(found) == N
    made = np.concatenate([*for_each_part(np.copy, found)])
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made.view(np.uint8), expected.view(np.uint8))
    np.testing.assert_array_equal(made, formula(**here))


# Not of single rows, or not known to be: with rows elsewhere in the place of any argument.
REFUSED = {
    "np.sum": lambda x, z, v, w: np.sum(x),
    "np.sum of columns": lambda x, z, v, w: np.sum(x, axis=1),
    "np.mean": lambda x, z, v, w: np.mean(x, axis=0),
    "np.sort": lambda x, z, v, w: np.sort(v),
    "np.argsort": lambda x, z, v, w: np.argsort(v),
    "np.unique": lambda x, z, v, w: np.unique(v),
    "np.cumsum": lambda x, z, v, w: np.cumsum(v),
    "np.max": lambda x, z, v, w: np.max(v),
    "np.quantile": lambda x, z, v, w: np.quantile(v, 0.5),
    "np.bincount": lambda x, z, v, w: np.bincount(v),
    "np.concatenate": lambda x, z, v, w: np.concatenate([x, z]),
    "np.flip": lambda x, z, v, w: np.flip(x),
    "np.roll": lambda x, z, v, w: np.roll(x, 1),
    "np.diff": lambda x, z, v, w: np.diff(v),
    "np.einsum": lambda x, z, v, w: np.einsum("ij,ij->j", x, z),
    "np.nonzero": lambda x, z, v, w: np.nonzero(v),
    "where alone": lambda x, z, v, w: np.where(v > 0),
    "method sum": lambda x, z, v, w: x.sum(),
    "method mean": lambda x, z, v, w: x.mean(axis=0),
    "method max": lambda x, z, v, w: v.max(),
    "method sort": lambda x, z, v, w: v.sort(),
    "method cumsum": lambda x, z, v, w: v.cumsum(),
    "method reshape": lambda x, z, v, w: x.reshape(-1),
    "transposed": lambda x, z, v, w: x.T,
    "flat": lambda x, z, v, w: x.flat,
    "size": lambda x, z, v, w: x.size,
    "reduce": lambda x, z, v, w: np.add.reduce(x),
    "reduceat": lambda x, z, v, w: np.add.reduceat(v, [0]),
    "accumulate": lambda x, z, v, w: np.add.accumulate(v),
    "outer": lambda x, z, v, w: np.multiply.outer(v, LINE),
    "at": lambda x, z, v, w: np.add.at(v, [0], 1),
    "at places of rows": lambda x, z, v, w: np.add.at(np.zeros(N), v, 1),
    "np.dot": lambda x, z, v, w: np.dot(v, w),
    "np.dot of weights": lambda x, z, v, w: np.dot(np.ones(N), x),
    "np.inner": lambda x, z, v, w: np.inner(v, w),
    "np.vdot": lambda x, z, v, w: np.vdot(v, w),
    "np.tensordot": lambda x, z, v, w: np.tensordot(x, LINE, 1),
    "matmul of rows": lambda x, z, v, w: np.matmul(x, z),
    "matmul on the right": lambda x, z, v, w: np.ones((2, N)) @ x,
    "matmul of a column": lambda x, z, v, w: v @ np.ones(N),
    "matmul of columns": lambda x, z, v, w: v @ w,
    "matmul of weights": lambda x, z, v, w: x @ LINE,  # BLAS rounds by the place of a row
    "np.stack": lambda x, z, v, w: np.stack([v, w], axis=1),
    "length of all": lambda x, z, v, w: np.linalg.norm(x),
    "length of a column": lambda x, z, v, w: np.linalg.norm(v, axis=0),
    "lengths of columns": lambda x, z, v, w: np.linalg.norm(x, axis=0),
    "norm of all by its order": lambda x, z, v, w: np.linalg.norm(x, 1),
    "norm of all by its place": lambda x, z, v, w: np.linalg.norm(x, None, 0),
    "columns by rows": lambda x, z, v, w: x[:, v > 0],
    "another norm": lambda x, z, v, w: np.linalg.norm(x, 1, axis=1),
    "iteration": lambda x, z, v, w: [row for row in x],
    "sum of Python": lambda x, z, v, w: sum(v),
    "list": lambda x, z, v, w: list(v),
    "unpacking": lambda x, z, v, w: [*v],
    "in": lambda x, z, v, w: 1.0 in v,
    "equality": lambda x, z, v, w: bool(v == w),
    "inequality": lambda x, z, v, w: bool(v != w),
    "truth": lambda x, z, v, w: bool(v > 0),
    "a row": lambda x, z, v, w: x[0],
    "some rows": lambda x, z, v, w: x[v > 0],
    "as many entries as rows": lambda x, z, v, w: v + np.ones(N),
    "as many rows": lambda x, z, v, w: np.ones((N, 1)) * x,
    "one row": lambda x, z, v, w: x + np.ones((1, 3)),
    "a column beside rows": lambda x, z, v, w: x * v,
    "rows by a column": lambda x, z, v, w: v * x,
    "more axes": lambda x, z, v, w: x + np.ones((2, 1, 3)),
    "power of as many": lambda x, z, v, w: v ** np.ones(N),
    "clip by entries": lambda x, z, v, w: np.clip(v, np.zeros(N), 1.0),
    "where by entries": lambda x, z, v, w: np.where(np.ones(N, bool), v, w),
    "where beside a column": lambda x, z, v, w: np.where(v > 0, x, z),
    "beside what lies here": lambda x, z, v, w: np.column_stack([x, np.ones(N)]),
    "one under another": lambda x, z, v, w: np.stack([v, w]),
    "sorted among rows": lambda x, z, v, w: np.searchsorted(v, np.array([1.0])),
    "by an order": lambda x, z, v, w: np.searchsorted(LINE, v, sorter=[0, 1, 2]),
    "clip into rows": lambda x, z, v, w: np.clip(v, 0.0, 1.0, v),
    "clip without an end": lambda x, z, v, w: np.clip(v, 0.0),
    "masked": lambda x, z, v, w: x + np.ma.masked_array(np.zeros(3)),
    "records": lambda x, z, v, w: x + np.zeros(3).view(np.recarray),
    "columns before rows": lambda x, z, v, w: x[:, [0, 1], None, True],
    "two results": lambda x, z, v, w: np.modf(v),
    "divmod": lambda x, z, v, w: divmod(v, 2),
    "in place": lambda x, z, v, w: operator.iadd(v, 1.0),
    "into an array": lambda x, z, v, w: np.add(v, 1.0, out=np.empty(N)),
    "where of a ufunc": lambda x, z, v, w: np.add(v, 1.0, where=True),
    "type of a ufunc": lambda x, z, v, w: np.add(v, 1.0, dtype=np.float32),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_of_single_rows_is_refused_before_anything_is_asked(monkeypatch, name):
    parts, there = remote()
    monkeypatch.setattr(parts, "run", lambda *_: pytest.fail("parts were asked"))
    with pytest.raises(TypeError):
        REFUSED[name](**there)


@pytest.mark.parametrize("name", ["np.sum", "np.mean", "np.sort", "reduce", "method sum"])
def test_a_refusal_says_what_to_use(name):
    with pytest.raises(TypeError, match="`sum_over_parts`"):
        REFUSED[name](**remote()[1])


def test_rows_of_other_parts_do_not_go_together():
    one, other = remote()[1], remote()[1]
    with pytest.raises(RuntimeError, match="different rows"):
        one["x"] + other["x"]


def test_only_arrays_have_arithmetic():
    """What stands for an object of rows is no array, whatever that object could do."""
    table = rowwise(partial(dict, a=1), {}, b=remote()[1]["x"])
    for use in (lambda: table + 1, lambda: np.sqrt(table), lambda: np.clip(table, 0, 1)):
        with pytest.raises(TypeError, match="not taken of rows"):
            use()


# What parts keep ------------------------------------------------------------------------------


def n_kept(parts):
    """Most that a part keeps beside its rows."""
    return max(len(part._made) - len(part.leaves) for part in parts.parts)


def watched(parts):
    """How much each part keeps whenever something is made, without its rows."""
    found = []

    class Watched(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            found.append(len(self) - len(parts.template))

    for part in parts.parts:
        part._made = Watched(part._made)
    return found


def in_box(x):
    return np.clip((np.clip(x, -1.0, 1.0) - LINE) / 2, -1.0, 1.0)


def test_of_a_formula_parts_keep_its_result_alone():
    parts, there = remote()
    seen = watched(parts)
    found = in_box(there["x"])
    expected = in_box(arrays()["x"]).sum(axis=0)
    for _ in range(2):
        np.testing.assert_allclose(sum_over_parts(np.sum, found, 0), expected)
        assert n_kept(parts) == 1
    assert len(seen) == 4 * len(LENGTHS)  # each once
    assert max(seen) == 2  # an operand and a result
    del found
    sum_over_parts(np.sum, there["v"])
    assert n_kept(parts) == 0


def test_what_is_forgotten_is_made_again_where_more_is_made_of_it():
    parts, there = remote()
    between = there["x"] + there["z"]
    first, second = between * 2, between * 3
    del between
    for made in (first, second, first):  # parts keep what is between as long as `second` needs it
        assert np.isfinite(sum_over_parts(np.sum, made))
    assert n_kept(parts) == 2
    parts.parts[0] = RowPart(parts.parts[0].leaves)  # takes the place of a lost one
    seen = watched(parts)
    x, z = arrays()["x"], arrays()["z"]
    assert sum_over_parts(np.sum, second) == pytest.approx(((x + z) * 3).sum())
    assert len(seen) == 2  # of the lost part: what is between, and `second`
    assert n_kept(parts) == 2


def fail_on_rows(x):
    if len(x):
        raise ValueError("rows")
    return x


def test_nothing_stays_of_a_call_that_fails():
    parts, there = remote()
    for _ in range(3):
        found = rowwise(fail_on_rows, (there["x"] + 1.0) * 2.0)
        with pytest.raises(ValueError, match="rows"):
            sum_over_parts(np.sum, found)
        del found
        sum_over_parts(np.sum, there["v"])
        assert n_kept(parts) == 0


def test_a_call_may_run_twice_on_a_part():
    """As a task of Dask does whose result is lost, where what it was made of is forgotten."""
    parts, there = remote()
    run = parts.run
    parts.run = lambda task, own: (run(task, own), run(task, own))[1]
    between = there["x"] + there["z"]
    assert np.isfinite(sum_over_parts(np.sum, between))
    more = np.sqrt(abs(between) + 1) * 2
    del between
    x, z = arrays()["x"], arrays()["z"]
    expected = (np.sqrt(abs(x + z) + 1) * 2).sum()
    assert sum_over_parts(np.sum, more) == pytest.approx(expected)
    assert n_kept(parts) == 1


def test_parts_that_are_read_again_keep_nothing_of_a_call():
    parts, there = remote()
    parts.keeps = False
    seen = watched(parts)
    found = in_box(there["x"])
    expected = in_box(arrays()["x"]).sum()
    for _ in range(2):  # nor does it know of any that was made
        assert sum_over_parts(np.sum, found) == pytest.approx(expected)
        assert n_kept(parts) == 0 and max(seen) == 2
