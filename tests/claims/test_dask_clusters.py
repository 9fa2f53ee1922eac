"""Clusters as they are: encrypted, short of memory, with a worker that is slow, and persons on all.

Whatever a cluster is like, a fit gives what it gives in memory, and is charged once.
"""

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from shutil import which

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
from dask.distributed import Client, LocalCluster, Security
from in_parts import SCHEMA, assert_same, at_call, blocks, charged_once, mixed, partitions
from sklearn.base import clone

from dpsubspace import DPSGDClassifier, tabular_pipeline
from dpsubspace._core.rows import dask_parts

pytestmark = [pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"), pytest.mark.cluster]

N = 611
_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 4)) + 1
Y = (X[:, 0] > 1).astype(int)
WHO = np.arange(N) * 7 % 200  # persons, of whom each has rows in several blocks
MODEL = DPSGDClassifier(n_iter=6, delta=1e-5, random_state=0)
TABLE = tabular_pipeline(clone(MODEL), SCHEMA)


@contextmanager
def workers(**options):
    """A client of two workers in processes."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    with LocalCluster(2, **options) as cluster, Client(cluster) as client:
        yield client


def assert_as_in_memory(atol=1e-6):
    """Fits of rows, of rows of persons, and of a table give what they give in memory."""
    assert_same(clone(MODEL).fit(X, Y), charged_once(clone(MODEL), blocks(X), Y), atol)
    here = clone(MODEL).fit(X, Y, groups=WHO)
    there = charged_once(clone(MODEL), blocks(X), blocks(Y), groups=blocks(WHO))
    assert_same(here, there, atol)
    frame = mixed(N)
    here = clone(TABLE).fit(frame[[*SCHEMA]], frame["label"])
    rows = partitions(frame)
    there = charged_once(clone(TABLE), rows[[*SCHEMA]], rows["label"])
    assert_same(here[-1], there[-1], atol)


# Encrypted --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key, and a certificate that it has signed itself, in files."""
    if which("openssl") is None:
        pytest.skip("makes a certificate with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    key, signed = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=dpsubspace", "-keyout", key, "-out", signed]
    subprocess.run(command, check=True, capture_output=True)
    return key, signed


def test_rows_and_sums_travel_encrypted(certificate):
    """With TLS between all processes a fit is the same, and nobody without a certificate is in."""
    key, signed = map(str, certificate)
    files = {"tls_ca_file": signed} | {
        f"tls_{role}_{what}": path
        for role in ("client", "scheduler", "worker")
        for what, path in (("cert", signed), ("key", key))
    }
    security = Security(**files, require_encryption=True)
    with workers(security=security, protocol="tls://") as client:
        address = client.scheduler.address
        peers = client.scheduler_info()["workers"]
        assert all(each.startswith("tls://") for each in (address, *peers))
        with pytest.raises(OSError):
            Client(address.replace("tls", "tcp"), timeout=1)
        with client.as_current():
            assert_as_in_memory()


# Short of memory --------------------------------------------------------------------------------


def on_disk(client):
    """Names of what each worker has on its disk."""
    return client.run(lambda dask_worker: [*dask_worker.data.slow])


def test_parts_that_lie_on_disks_between_calls_change_nothing(monkeypatch):
    """Dask spills parts as soon as they are made, and what was made of them is lost each time."""
    seen = []
    tight = {"distributed.worker.memory.target": 1e-9}
    with (
        dask.config.set(tight),
        workers(memory_limit="4GiB") as client,
        at_call(monkeypatch, 4, lambda: seen.append(on_disk(client))),
        pytest.warns(UserWarning, match="move the part to disk and back at every step"),
    ):
        assert_as_in_memory()
    assert len(seen) == 1
    assert all(any(name.startswith("dpsubspace") for name in names) for names in seen[0].values())


# Slow -------------------------------------------------------------------------------------------


def slow(function, seconds):
    """A worker that takes so much longer over what it is asked for."""

    def slowly(*args):
        threading.Event().wait(seconds)
        return function(*args)

    return slowly


def make_slow(seconds, names=("_read", "_dealt", "_gathered", "_run")):
    for name in names:
        setattr(dask_parts, name, slow(getattr(dask_parts, name), seconds))


def test_a_worker_that_is_much_slower_than_the_other_changes_nothing(monkeypatch):
    """Dask does not move rows to the faster one, which has nothing to do most of the time."""
    held = []

    def who_holds():
        holders = client.who_has().items()
        held.append({key: who for key, who in holders if key.startswith("dpsubspace")})

    with workers() as client:
        first = next(iter(client.scheduler_info()["workers"]))
        client.run(make_slow, 0.05, workers=[first])
        with at_call(monkeypatch, 8, who_holds):
            assert_as_in_memory()
    assert {len(who) for who in held[0].values()} == {1}
    assert len({who for whos in held[0].values() for who in whos}) == 2


def test_a_worker_that_stands_still_for_a_while_is_waited_for(monkeypatch):
    """A machine that pages, or is suspended: its process stops in the middle of a call."""
    stopped = []

    def stop():
        stopped.append(next(iter(client.run(os.getpid).values())))
        os.kill(stopped[0], signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (stopped[0], signal.SIGCONT)).start()

    with workers() as client, at_call(monkeypatch, 5, stop, sent=True) as made:
        found = charged_once(clone(MODEL), blocks(X), Y)
        assert stopped and len(made) > 5
        assert stopped[0] in client.run(os.getpid).values()
    assert_same(clone(MODEL).fit(X, Y), found)
