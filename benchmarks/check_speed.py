"""Whether anything has become slow: twelve ratios beside those that were recorded.

Run it by hand before a release. Each ratio is of two calls that are timed in turn: something of
this package, and what does the same without privacy or has to be done in any case. So the speed of
the machine hardly matters, nor does what else it does, as the processor's time counts (but for
what waits for the disk). A ratio is the median of rounds, and then that of three processes, since
memory lies elsewhere in each. All use one thread, since threads that wait take time as well. It
fails, with exit code 1, if one is a quarter worse than recorded, and still is with two more
processes. It takes two to three minutes where little else runs.

usage: python benchmarks/check_speed.py [--write]

--write records the ratios of now in results/speed.json, in place of those that were there. Say
in the commit why they have changed. --once measures in this process, for the others.
"""

import importlib.util
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import bench_fixed
import bench_regression
import numpy as np
from _run import in_turns, judged, run, with_threads
from bench_linear import random_rows, step_sides
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import MinMaxScaler

import dpsubspace as dps
from dpsubspace._core.accounting.events import gaussian

RECORDED = Path(__file__).with_name("results") / "speed.json"
WORSE, SEARCH = 1.25, Namespace(repeats=15)
CLOCK, PROCESSOR = 0, 1  # of `in_turns`: what others run takes no time of the processor's


def ratio(floor, ours, of=PROCESSOR):
    """Median ratio of the two, of rounds in turn that take eight seconds at most."""
    under, over = in_turns((floor, ours), 40, limit=8)[of].T
    return float(np.median(over / under))


def fit_ratio(plain, private, X, y=None):
    return ratio(lambda: plain.fit(X, y), lambda: private.fit(X, y))


def step(n, d, outputs=1, batch_size=None, density=None):
    rng = np.random.default_rng(0)
    X, steps = random_rows(rng, n, d, density), int(np.clip(1_000_000 // n, 3, 50))
    return ratio(*step_sides(rng, X, outputs, False, batch_size, steps))


def imports():
    codes = "import sklearn.linear_model", "from dpsubspace import DPSGDFClassifier"
    times = np.array([[bench_fixed.processor(code) for code in codes] for _ in range(7)])
    return float(np.median(times[1:, 1] / times[1:, 0]))


def regression():
    X = np.random.default_rng(0).standard_normal((100_000, 20), dtype=np.float32)
    private = dps.DPLinearRegression(**bench_regression.bounds(20))
    return fit_ratio(LinearRegression(), private, X, bench_regression.targets(X))


def perceptron():
    if importlib.util.find_spec("torch") is None:
        return np.nan
    import bench_modules as of

    of.torch.set_num_threads(1)
    return ratio(*of.sides("perceptron", of.WAYS["layers"], 2_000))


def scaler():
    X = np.random.default_rng(0).standard_normal((200_000, 20), dtype=np.float32)
    return fit_ratio(MinMaxScaler(), dps.BoundedScaler("private"), X)


def charge():
    with TemporaryDirectory() as folder, NamedTemporaryFile(dir=folder) as file:
        ledger = dps.PrivacyLedger(epsilon=50.0, delta=1e-5, path=Path(folder) / "ledger")

        def line():
            file.write(b"a" * 300 + b"\n")
            file.flush()
            os.fsync(file.fileno())

        how = {"neighboring_relation": "zero_out"}
        return ratio(line, lambda: ledger.charge(gaussian(1e4), **how), CLOCK)


RATIOS = {
    "fit of 1,000 x 20 over LogisticRegression": lambda: fit_ratio(
        LogisticRegression(), dps.DPSGDClassifier(), *bench_fixed.table(1_000, 20)
    ),
    "import over that of sklearn.linear_model": imports,
    "step of 10,000 x 20 over two products": lambda: step(10_000, 20),
    "step of 200,000 x 20 over two products": lambda: step(200_000, 20),
    "step of 60,000 x 784, ten classes": lambda: step(60_000, 784, 10),
    "Poisson batch of a 15th of 100,000 x 100": lambda: step(100_000, 100, 10, 6_666),
    "sparse step of 100,000 x 20, a tenth filled": lambda: step(100_000, 20, density=0.1),
    "DPLinearRegression over LinearRegression": regression,
    "step of a perceptron over one of torch": perceptron,
    "BoundedScaler over MinMaxScaler": scaler,
    "PrivateSearch over its fits": lambda: next(bench_fixed.search_rows(SEARCH))["over_fits"],
    "charge to a file over a line synced": charge,
}


def processes(number):
    command = [sys.executable, "-W", "ignore", __file__, "--once"]
    how = {"stdout": subprocess.PIPE, "check": True, "env": with_threads(1)}
    found = [subprocess.run(command, **how) for _ in range(number)]
    return [json.loads(one.stdout) for one in found]


def rows(args):
    args.out = RECORDED if args.write else args.out
    kept = [] if args.write else json.loads(RECORDED.read_text())["results"]
    recorded = {row["ratio of"]: row["now"] for row in kept}

    def slow(name):
        return np.median([one[name] for one in found]) > WORSE * recorded.get(name, np.inf)

    found = processes(3)
    if any(slow(name) for name in RATIOS):
        found += processes(2)
    for name in RATIOS:
        values = [round(one[name], 3) for one in found]
        if np.isnan(values).any():
            print(f"{name}: left out, since torch is not installed")
            continue
        row = {"ratio of": name, "now": float(np.median(values))}
        row |= {"least": min(values), "most": max(values)}
        if not args.write:
            row |= {"recorded": recorded.get(name)} | judged(not slow(name))
        yield row


if __name__ == "__main__":
    if "--once" in sys.argv:
        print(json.dumps({name: measure() for name, measure in RATIOS.items()}))
        sys.exit()
    args = run(__doc__, rows, {"write": False})
    if missed := [row["ratio of"] for row in args.results if row.get("verdict") == "miss"]:
        sys.exit(f"more than a quarter slower than recorded: {'; '.join(missed)}")
