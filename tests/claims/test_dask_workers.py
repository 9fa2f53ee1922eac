"""Workers that are killed in the middle of a fit: real processes, killed with no warning.

A fit goes on where it was if there is anybody left to read its rows again, with the same noise. If
there is nobody it ends, and what it had reserved stays charged.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
from dask.distributed import Client, LocalCluster, wait
from in_parts import assert_same, at_call, blocks, charged_once
from sklearn.base import clone

from dpsubspace import DPPCA, DPSGDClassifier, PrivacyLedger
from dpsubspace._core.rows import dask_parts
from dpsubspace.exceptions import ClusterError

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills processes"),
]

mortals = pytest.mark.cluster  # what they kill are processes

N = 611
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 4)) + 1
Y = (X[:, 0] > 1).astype(int)
WHO = np.arange(N) * 7 % 200  # persons, of whom each has rows in several blocks
MODEL = DPSGDClassifier(n_iter=6, delta=1e-5, random_state=0)
BATCHES = clone(MODEL).set_params(batch_size=90, noise_multiplier=2.0, epsilon=None)


def kill(pids):
    """End processes at once."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def client():
    """Two workers in processes, of one test: a dead one is not always replaced."""
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers) as client,
    ):
        yield client


def pids(client):
    """Processes of the workers that are there."""
    return [*client.run(os.getpid).values()]


@mortals
@pytest.mark.parametrize(
    ("model", "sent"),
    [(MODEL, False), (BATCHES, True)],
    ids=["all rows, between calls", "batches, in a call"],
)
def test_a_worker_that_dies_changes_nothing(monkeypatch, client, model, sent):
    """Its rows are read again, and the weights are those of a fit without such a loss."""
    expected, lost = clone(model).fit(blocks(X), Y), []

    def act():
        lost.append(pids(client)[0])
        kill(lost)

    with at_call(monkeypatch, 6, act, sent=sent) as made:
        found = charged_once(clone(model), blocks(X), Y)
    assert lost and len(made) > 6
    assert_same(expected, found, 1e-12)
    assert found.privacy_ == expected.privacy_


@mortals
def test_a_worker_that_dies_takes_no_person_along(monkeypatch, client):
    """Persons whose rows lie on both workers: what it had gathered is gathered again."""
    expected, lost = clone(MODEL).fit(X, Y, groups=WHO), []

    def act():
        lost.append(pids(client)[0])
        kill(lost)

    with at_call(monkeypatch, 4, act) as made:
        found = clone(MODEL).fit(blocks(X), blocks(Y), groups=blocks(WHO))
    assert lost and len(made) > 6
    assert_same(expected, found, 1e-6)
    assert found.privacy_ == expected.privacy_


@mortals
def test_rows_that_workers_hold_are_made_again(monkeypatch, client):
    """Of a collection that was persisted, what the dead one held is computed anew."""
    rows = da.from_array(X, chunks=(100, 4)).persist()
    wait(rows)
    model = DPPCA(2, mechanism="gaussian", random_state=0)
    expected = clone(model).fit(X)
    with at_call(monkeypatch, 5, lambda: kill(pids(client)[:1])) as made:
        found = clone(model).fit(rows)
    assert len(made) > 5
    assert_same(expected, found)


def dies_once(block, path):
    """The block; the first worker that reads one dies of it."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)


@mortals
def test_a_worker_that_dies_while_it_reads_changes_nothing(client, tmp_path):
    rows = blocks(X).map_blocks(dies_once, path=tmp_path / "dead", meta=X[:0])
    found = charged_once(clone(MODEL), rows, Y)
    assert (tmp_path / "dead").exists()
    assert_same(clone(MODEL).fit(X, Y), found)


def die_in(name, path=None):
    """Let workers die of every task of this name; with a path, the first of all of them alone."""
    task = getattr(dask_parts, name)

    def deadly(*args):
        dies(args) if path is None else dies_once(args, path)
        return task(*args)

    setattr(dask_parts, name, deadly)


@mortals
@pytest.mark.parametrize("phase", ["_dealt", "_share", "_gathered"])
def test_a_worker_that_dies_while_rows_of_persons_come_together_changes_nothing(
    client, tmp_path, phase
):
    """What it had read, dealt out and gathered is made again, and no person is counted twice."""
    client.run(die_in, phase, tmp_path / "dead")
    model = charged_once(clone(MODEL), blocks(X), blocks(Y), groups=blocks(WHO))
    assert (tmp_path / "dead").exists()
    assert_same(clone(MODEL).fit(X, Y, groups=WHO), model)


# Nobody left ----------------------------------------------------------------------------------


@contextmanager
def mortal(n_workers):
    """A client of workers that nobody starts again, and what starts one."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(n_workers=0, dashboard_address=":0"))
        client = stack.enter_context(Client(cluster))
        workers = []

        def start():
            command = [sys.executable, "-m", "distributed.cli.dask_worker"]
            command += [cluster.scheduler_address, "--no-nanny", "--nthreads", "1"]
            command += ["--no-dashboard"]
            path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            workers.append(subprocess.Popen(command, env=os.environ | path, **quiet))
            return workers[-1]

        def stop():
            for worker in workers:
                worker.kill()
                worker.wait()

        stack.callback(stop)
        for _ in range(n_workers):
            start()
        if n_workers:
            client.wait_for_workers(n_workers, timeout=60)
        yield client, workers, start


@mortals
@pytest.mark.parametrize("sent", [False, True], ids=["between calls", "in a call"])
def test_a_fit_whose_workers_are_all_lost_ends_and_stays_charged(monkeypatch, sent):
    with (
        mortal(2) as (_, workers, _),
        dask.config.set({"dpsubspace.no-worker-timeout": 3}),
        at_call(monkeypatch, 6, lambda: kill(w.pid for w in workers), sent=sent) as made,
    ):
        model, started = clone(MODEL), time.monotonic()
        match = r"no worker for 3 seconds.*What it had reserved stays charged"
        charged_once(model, blocks(X), Y, error=ClusterError, match=match)
        assert 3 < time.monotonic() - started < 60
        assert len(made) == 6
    assert model.privacy_.epsilon == pytest.approx(1.0)
    assert not hasattr(model, "coef_")


@mortals
def test_a_fit_waits_for_workers_that_come_back(monkeypatch):
    expected = clone(MODEL).fit(X, Y)
    with mortal(1) as (_, workers, start):

        def replace():
            kill([workers[0].pid])
            workers[0].wait()
            start()

        with at_call(monkeypatch, 6, replace) as made:
            found = charged_once(clone(MODEL), blocks(X), Y)
    assert len(made) > 6
    assert_same(expected, found)


@mortals
def test_a_fit_without_any_worker_costs_nothing():
    ledger, model = PrivacyLedger(10.0, 1e-5), DPSGDClassifier()
    with (
        mortal(0),
        dask.config.set({"dpsubspace.no-worker-timeout": 0.5}),
        ledger,
        pytest.raises(ClusterError, match=r"no worker for.*nothing was charged"),
    ):
        model.fit(blocks(X), Y)
    assert not ledger.entries and not hasattr(model, "privacy_")


@mortals
def test_a_fit_whose_workers_are_lost_while_they_exchange_rows_costs_nothing():
    ledger, model = PrivacyLedger(10.0, 1e-5), DPSGDClassifier()
    with (
        mortal(2) as (client, _, _),
        dask.config.set({"dpsubspace.no-worker-timeout": 0.5}),
        ledger,
        pytest.raises(ClusterError, match="nothing was charged"),
    ):
        client.run(die_in, "_gathered")
        model.fit(blocks(X), blocks(Y), groups=blocks(WHO))
    assert not ledger.entries and not hasattr(model, "privacy_")


def dies(block):
    os.kill(os.getpid(), signal.SIGKILL)


@mortals
def test_rows_that_kill_whoever_reads_them_end_a_fit_that_costs_nothing():
    ledger, model = PrivacyLedger(10.0, 1e-5), DPSGDClassifier()
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(1, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers),
        ledger,
        pytest.raises(ClusterError, match=r"lost one after another.*nothing was charged"),
    ):
        model.fit(blocks(X).map_blocks(dies, meta=X[:0]), Y)
    assert not ledger.entries and not hasattr(model, "privacy_")


@pytest.mark.parametrize("sent", [False, True], ids=["between calls", "in a call"])
def test_a_fit_whose_cluster_is_closed_ends_and_stays_charged(monkeypatch, sent):
    model = clone(MODEL)
    with (
        LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=":0") as workers,
        Client(workers) as client,
        dask.config.set({"dpsubspace.no-worker-timeout": 2}),
        at_call(monkeypatch, 6, client.close, sent=sent),
    ):
        charged_once(model, blocks(X), Y, error=ClusterError, match="stays charged")
    assert model.privacy_.epsilon == pytest.approx(1.0)
