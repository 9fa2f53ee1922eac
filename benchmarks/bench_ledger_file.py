"""Charges from several processes on one file, under ``kill -9``: what is lost, and what it costs.

Each worker charges one ledger and writes down, on a pipe, the label of each charge that has
returned. After every 50 of them a random worker is killed, in whatever it is doing, and a new one
takes its place, until so many charges have returned. Then the file is read: `lost` are charges
that returned and are not in it, `twice` those that are in it more than once, and `cut_short` those
that are in it though their worker was killed before it could say so, of which there is at most one
a kill. `torn` says how often a half-written record was found. *seconds* are the median of one
charge, in memory and in a file, which is synced to the disk.

usage: python benchmarks/bench_ledger_file.py [--out benchmarks/results/ledger_file.json]
"""

import os
import random
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from _run import run

from dpsubspace import PrivacyLedger
from dpsubspace._core.accounting.events import gaussian

CHARGE = """
import sys
from dpsubspace import PrivacyLedger
from dpsubspace._core.accounting.events import gaussian
ledger, i = PrivacyLedger.load(sys.argv[1]), 0
while True:
    label = f"{sys.argv[2]}-{i}"
    ledger.charge(gaussian(1e4), label, neighboring_relation="zero_out")
    print(label, flush=True)
    i += 1
"""


def kills(args):
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger"
            PrivacyLedger(epsilon=50.0, delta=1e-5, path=path)
            told, n_kills = _charged(path, args.charges, random.Random(seed))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                ledger = PrivacyLedger.load(path)
            labels = [entry.label for entry in ledger.entries]
            assert len({entry.id for entry in ledger.entries}) == len(ledger)
            yield {
                "seed": seed,
                "processes": 4,
                "kills": n_kills,
                "returned": len(told),
                "in_file": len(labels),
                "lost": len(set(told) - set(labels)),
                "twice": len(labels) - len(set(labels)),
                "cut_short": len(set(labels) - set(told)),
                "torn": len(caught),
            }


def _charged(path, n_charges, rng):
    """Labels of charges that returned, and how many workers were killed meanwhile."""
    told, kills, started = [], 0, 0
    waiting = selectors.DefaultSelector()

    def start():
        nonlocal started
        started += 1
        command = [sys.executable, "-c", CHARGE, str(path), f"worker{started}"]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE)
        os.set_blocking(worker.stdout.fileno(), False)
        waiting.register(worker.stdout, selectors.EVENT_READ, worker)

    def end(worker):
        nonlocal kills
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        kills += 1
        take(worker)
        waiting.unregister(worker.stdout)
        worker.stdout.close()

    def take(worker):
        told.extend((worker.stdout.read() or b"").decode().split())

    for _ in range(4):
        start()
    next_kill = 50
    while len(told) < n_charges:
        for key, _ in waiting.select(timeout=0.05):
            take(key.data)
        if len(told) >= next_kill:
            time.sleep(rng.uniform(0, 0.01))
            end(rng.choice(list(waiting.get_map().values())).data)
            start()
            next_kill = len(told) + 50
    for key in list(waiting.get_map().values()):
        end(key.data)
    return told, kills


def seconds(args):
    def median(ledger):
        times = []
        for _ in range(100):
            start = time.perf_counter()
            ledger.charge(gaussian(1e4), neighboring_relation="zero_out")
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    with tempfile.TemporaryDirectory() as folder:
        kept = PrivacyLedger(epsilon=50.0, delta=1e-5, path=Path(folder) / "ledger")
        memory = PrivacyLedger(epsilon=50.0, delta=1e-5)
        for name, ledger in (("memory", memory), ("file", kept)):
            yield {"ledger": name, "milliseconds": round(1e3 * median(ledger), 2)}


if __name__ == "__main__":
    run(__doc__, {"kills": kills, "seconds": seconds}, {"seeds": 1, "charges": 1000})
