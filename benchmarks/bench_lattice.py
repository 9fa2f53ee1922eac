"""What releases on a lattice cost, and the attack that they end.

step     a private step with noise on the lattice against the same step with plain noise, in
         turn: a sum in floating point plus two draws by inverse CDF, as it was before
attack   how often the mean of 1,024 rows, released by `private_mean`, has low bits that tell for
         certain that the one row that is not zero is absent; with plain noise and on the lattice

usage: python benchmarks/bench_lattice.py [step attack] [--rows 60000] [--features 784]
           [--repeats 21] [--runs 20000] [--threads 1] [--out benchmarks/results/lattice.json]
"""

import argparse
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from _report import printed, save
from bench_linear import STEPS_AT_ONCE, private_step, random_rows, seconds
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from dpsubspace._accounting.budget import Target
from dpsubspace._estimators import functions
from dpsubspace._release.mechanisms import release
from dpsubspace._release.noise import _system_bits
from dpsubspace._solvers import descent
from dpsubspace.exceptions import PrivacyWarning

STEPS = {
    "10 classes": {},
    "two classes": {"outputs": 1},
    "10 classes, Poisson batch": {"batch_size": 4096},
    "two classes, narrow table": {"outputs": 1, "features": 20},
}


def plain_release(total, noise_multiplier, noise, *, neighboring_relation, sampled=False):
    """Sum and noise in floating point: fast, and not safe."""
    scale = noise_multiplier * total.unit(neighboring_relation, sampled=sampled)
    bits = _system_bits((2, *total.value.shape))
    tail = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53
    pair = (1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)) * ndtri(tail)
    return total.value + (pair[0] + pair[1]) * (scale / np.sqrt(2))


@contextmanager
def releasing(module, function):
    module.release = function
    try:
        yield
    finally:
        module.release = release


def step_rows(args):
    for name, case in STEPS.items():
        rng = np.random.default_rng(0)
        features = case.get("features", args.features)
        X = random_rows(rng, args.rows, features, None)
        outputs, batch = case.get("outputs", 10), case.get("batch_size")
        y = rng.integers(max(outputs, 2), size=args.rows)
        step = private_step(rng, X, y, outputs, False, batch)
        times = []
        for _ in range(args.repeats + 1):
            with releasing(descent, plain_release):
                plain = seconds(step)
            times.append((plain, seconds(step)))
        times = np.array(times[1:])
        ratios = times[:, 1] / times[:, 0]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        yield {
            "step": name,
            "lattice / plain": round(float(middle), 4),
            "quartiles": [round(float(low), 4), round(float(high), 4)],
            "ratio of medians": round(float(np.divide(*np.median(times[:, ::-1], axis=0))), 4),
            "ms a step": round(float(np.median(times[:, 1])) * 1e3 / STEPS_AT_ONCE, 2),
        }


def attack_rows(args):
    X = np.zeros((1024, 1))
    X[0] = 1.0
    options = {"data_norm": 1.0, "bounds": None, "method": "gaussian"}
    for name, function in (("plain", plain_release), ("lattice", release)):
        for carrier in ("present", "absent"):
            hits, present = 0, np.arange(1024) >= (carrier == "absent")
            with releasing(functions, function), warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                for _ in range(args.runs):
                    mean = functions._mean(X, Target(1.0, 1e-5), None, present=present, **options)
                    total = float(mean.value[0]) * 1024
                    # 1 plus noise that brings it near 0 is a multiple of 2^-53.
                    hits += abs(total) < 0.5 and total * 2.0**53 != np.rint(total * 2.0**53)
            yield {"attack": name, "record": carrier, "told": hits / args.runs, "runs": args.runs}


SECTIONS = {"step": step_rows, "attack": attack_rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=[], metavar="section")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with threadpool_limits(args.threads):
        results = {name: printed(SECTIONS[name](args)) for name in args.sections or list(SECTIONS)}
    save(args, results)


if __name__ == "__main__":
    main()
