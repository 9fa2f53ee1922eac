"""A cluster in this process: fits on Dask collections without one, and what they send and get.

It stands for the client of Dask and runs each task at once, on what has been through a pickle, as
it would be on a worker. So hundreds of fits take seconds, and a test sees all that went to the
workers and all that came back.
"""

import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from cases import CASES

from dpsubspace import Categories, PrivacyLedger, Range
from dpsubspace._core.rows import dask_parts
from dpsubspace._core.rows.remote import RowPart
from dpsubspace.tables import Date

# Lengths of blocks, as shares of the rows: uneven, none a multiple of 128, some of no rows.
UNEVEN = (0.1, 0.003, 0.0, 0.45, 0.0, 0.2)

# What is fitted on collections, by what it is called in the table of all that is fitted.
TAKEN = [
    case
    for case in CASES
    if getattr(case.build, "_takes_collections", False)
    or (case.is_function and case.name.startswith(("private_mean", "private_q", "private_cov")))
]
TAKEN_FITS = [(case, setting) for case in TAKEN for setting in case.settings]


def lengths(n, shares=UNEVEN):
    """Lengths of blocks of `n` rows together."""
    found = [int(share * n) for share in shares]
    return (*found, n - sum(found))


def blocks(array, shares=UNEVEN):
    """A Dask array with blocks of rows of these lengths."""
    array = np.asarray(array)
    return da.from_array(array, chunks=(lengths(len(array), shares), *array.shape[1:]))


def partitions(frame, shares=UNEVEN):
    """A Dask data frame of partitions of these lengths, which it does not know."""
    pairs = list(pairwise(np.cumsum([0, *lengths(len(frame), shares)])))
    return dd.from_map(lambda pair: frame.iloc[slice(*pair)], pairs, meta=frame[:0])


# A table with every kind of column, and labels and targets beside.
SCHEMA = {
    "age": Range(18, 95),
    "dose": Range(0.1, 500, log=True),
    "lab": Range(50, 450, missing=True),
    "ward": ["A", "B", "C"],
    "sex": Categories(["f", "m"], missing=True),
    "code": Categories([0, 1, 2, 3, 4], missing=True),
    "flag": Categories([False, True]),
    "place": Categories([f"place {i}" for i in range(200)]),
    "admitted": Date("2020-01-01", "2023-12-31", missing=True),
    "born": Date("1930-01-01", "2009-12-31"),
}


def mixed(n, seed=0):
    """Rows of such a table, a few with values that the schema does not know."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(10, 99, n),
            "dose": rng.lognormal(2, 1, n),
            "lab": rng.normal(250, 70, n),
            "unused": rng.choice(["x", "y"], n),
            "ward": pd.Categorical(rng.choice(["A", "B", "C", "?"], n)),
            "sex": rng.choice(["f", "m"], n),
            "code": rng.integers(0, 6, n).astype(np.float32),
            "flag": rng.random(n) < 0.3,
            "place": [f"place {i}" for i in rng.integers(0, 210, n)],
            "admitted": np.datetime64("2019-12-01T00:00:00") + rng.integers(0, 1600 * 86400, n),
            "born": (np.datetime64("1929-01-01") + rng.integers(0, 29_000, n)).astype(str),
        }
    )
    for name in ("lab", "sex", "code", "admitted"):
        frame.loc[rng.random(n) < 0.1, name] = None
    risk = abs(frame["age"] - 50) / 15 + np.log(frame["dose"]) + (frame["ward"] == "A")
    label = np.where(risk + rng.logistic(size=n) > 3.5, "yes", "no")
    return frame.assign(label=label, days=risk + rng.normal(size=n), other=-risk)


@dataclass
class Held:
    """What a worker holds: a future that is done."""

    key: str
    value: Any


class ClusterHere:
    """Runs tasks as soon as they are sent.

    `before(cluster)` is called before each call to the parts. `twice` runs every task once more,
    and compares what it gives.
    """

    asynchronous, status = False, "running"
    scheduler = SimpleNamespace(address="here")

    def __init__(self, n_workers, *, twice=False, before=lambda cluster: None):
        self.workers = {f"worker {i}": 1 for i in range(n_workers)}
        self.twice, self.before = twice, before
        self.parts, self.results, self.sent, self.held = [], [], [], []
        self.calls, self.at_work = 0, False

    def submit(self, function, *args, key, workers, allow_other_workers, pure):
        assert set(workers) <= set(self.workers) and allow_other_workers and not pure
        part = Held(key, self._ran(key, function, args))
        self.parts.append(part)
        return part

    def map(self, function, *given, key, pure):
        """No keyword arguments: of large ones Dask makes tasks that are called as they are."""
        assert not pure
        self.calls += 1
        self.before(self)
        done = [
            Held(name, self._ran(name, function, args))
            for name, *args in zip(key, *given, strict=True)
        ]
        self.results += [held.value for held in done]
        return done

    def get(self, graph, keys, sync):
        found = dask.get(graph, keys)
        self.held += [Held(str(key), block) for key, block in zip(keys, found, strict=True)]
        return self.held[-len(keys) :]

    def lose(self, number):
        """A part is read anew: what was made of it is gone."""
        part = self.parts[number].value
        self.parts[number].value = RowPart(dict(part._leaves), list(part.lengths))

    def _ran(self, key, function, args):
        sent = cloudpickle.dumps((function, _without(args, Held)))
        self.sent.append((key, sent))
        found = [self._once(sent, args) for _ in range(1 + self.twice)]
        if self.twice and function is dask_parts._run:
            first, again = map(pickle.dumps, found)
            assert first == again, f"{function} gives another result when it runs again"
        # A part stays where it is; all else comes back.
        return found[0] if isinstance(found[0], RowPart) else pickle.loads(pickle.dumps(found[0]))

    def _once(self, sent, args):
        function, others = pickle.loads(sent)
        args = [_filled(other, arg) for other, arg in zip(others, args, strict=True)]
        self.at_work = True
        try:
            return function(*args)
        finally:
            self.at_work = False


def _without(value, kind):
    if isinstance(value, (list, tuple)):
        return [_without(entry, kind) for entry in value]
    return None if isinstance(value, kind) else value


def _filled(value, given):
    """`value` with what stands in the place of futures."""
    if isinstance(given, Held):
        return given.value
    if isinstance(given, (list, tuple)):
        return [_filled(*pair) for pair in zip(value, given, strict=True)]
    return value


READ = []  # columns of each partition that was read, of what `read_by_columns` made last


def read_by_columns(frame, sizes):
    """A data frame in partitions of so many rows, which are read by columns, as files are."""
    ends = np.cumsum(sizes)
    pieces = [frame.iloc[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    READ.clear()
    return dd.from_map(_read, pieces, meta=frame.iloc[:0])


def _read(piece, columns=None):
    READ.append(list(piece if columns is None else columns))
    return piece if columns is None else piece[columns]


@contextmanager
def cluster_here(monkeypatch, n_workers=3, **options):
    """Fits on Dask collections run in this process, in parts, as long as this lasts."""
    cluster = ClusterHere(n_workers, **options)
    worker = SimpleNamespace(
        state=SimpleNamespace(nthreads=1), memory_manager=SimpleNamespace(memory_limit=None)
    )

    def get_worker():
        if not cluster.at_work:
            raise ValueError("no worker found")
        return worker

    with monkeypatch.context() as patch:
        patch.setattr(dask_parts, "_client", lambda: cluster)
        patch.setattr(distributed, "get_worker", get_worker)
        patch.setattr(dask_parts._DaskParts, "_workers", lambda parts: cluster.workers)
        patch.setattr(dask_parts._DaskParts, "_unpin", lambda parts: None)
        patch.setattr(
            dask_parts._DaskParts, "_results", lambda parts, futures: [f.value for f in futures]
        )
        yield cluster


def learned(fitted):
    """Arrays and numbers that a fit has stored, or that a function has returned."""
    if not hasattr(fitted, "get_params"):
        return dict(enumerate(fitted[:-1]))
    return {
        name: value
        for name, value in vars(fitted).items()
        if name.endswith("_") and isinstance(value, (np.ndarray, float, int))
    }


def assert_same(one, other, atol=1e-6, but=()):
    """Two fits have learned the same, except for the attributes `but`."""
    one, other = (
        {name: value for name, value in learned(fit).items() if name not in but}
        for fit in (one, other)
    )
    assert one.keys() == other.keys() and one
    for name, value in one.items():
        if np.asarray(value).dtype.kind in "OUS":
            np.testing.assert_array_equal(value, other[name], err_msg=str(name))
        else:
            np.testing.assert_allclose(other[name], value, rtol=atol, atol=atol, err_msg=str(name))


# Real clusters ----------------------------------------------------------------------------------


@contextmanager
def at_call(monkeypatch, number, act, *, sent=False):
    """`act()` before a call to the parts, or once its tasks are sent; gives how many were made."""
    made = []

    def counted(function):
        def called(parts, *args, **options):
            made.append(1)
            if len(made) == number and not sent:
                act()
            found = function(parts, *args, **options)
            if len(made) == number and sent:
                act()
            return found

        return called

    name = "_submit" if sent else "run"
    with monkeypatch.context() as patch:
        patch.setattr(dask_parts._DaskParts, name, counted(getattr(dask_parts._DaskParts, name)))
        yield made


def charged_once(model, rows, y, *, error=None, match=None, **beside):
    """A fit, and the ledger that it is charged to, once whatever becomes of it."""
    unit = "person" if "groups" in beside else "row"
    ledger = PrivacyLedger(1000.0, 1e-3, unit=unit, allow_seeded=True)
    with ledger:
        if error is None:
            model.fit(rows, y, **beside)
        else:
            with pytest.raises(error, match=match):
                model.fit(rows, y, **beside)
    assert len(ledger.entries) == 1
    return model
