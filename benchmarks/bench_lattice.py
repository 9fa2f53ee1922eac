"""What releases on a lattice cost, the attack that they end, and for how many rows they have room.

step     a private step with noise on the lattice against the same step with plain noise, in
         turn: a sum in floating point plus two draws by inverse CDF, as it was before
attack   how often the mean of 1,024 rows, released by `private_mean`, has low bits that tell for
         certain that the one row that is not zero is absent; with plain noise and on the lattice
room     the largest epsilon, up to 100, of a fit of so many rows of 100 columns: *exact* where a
         noisy sum must be a whole number that floats hold, as it had to be before, and *nearest*
         where it may be the float nearest to one

usage: python benchmarks/bench_lattice.py [step attack room] [--rows 60000] [--features 784]
           [--repeats 21] [--runs 20000] [--threads 1] [--out benchmarks/results/lattice.json]
"""

from contextlib import contextmanager

import numpy as np
from _run import in_turns, ms, ratios, run
from bench_linear import STEPS_AT_ONCE, private_step, random_rows
from scipy.special import ndtri

from dpsubspace import DPLinearRegression, DPSGDFClassifier, private_mean
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.release import releases
from dpsubspace._core.release.mechanisms import check_lattice, release
from dpsubspace._core.release.noise import _system_bits
from dpsubspace._core.rows.records import NullRecords
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
def releasing(function):
    releases.release = function
    try:
        yield
    finally:
        releases.release = release


def step_rows(args):
    for name, case in STEPS.items():
        rng = np.random.default_rng(0)
        features = case.get("features", args.features)
        X = random_rows(rng, args.rows, features, None)
        outputs, batch = case.get("outputs", 10), case.get("batch_size")
        y = rng.integers(max(outputs, 2), size=args.rows)
        step = private_step(rng, X, y, outputs, False, batch)
        plain, lattice = np.moveaxis(in_turns([plainly(step), step], args.repeats), 2, 0)
        row = {"step": name, "plain_ms": ms(plain, STEPS_AT_ONCE)}
        yield row | {"lattice_ms": ms(lattice, STEPS_AT_ONCE), **ratios(lattice, plain)}


def plainly(step):
    """`step` without the lattice."""

    def call():
        with releasing(plain_release):
            step()

    return call


def attack_rows(args):
    X = np.zeros((1024, 1))
    X[0] = 1.0
    options = {"data_norm": 1.0, "method": "gaussian", "delta": 1e-5}
    for name, function in (("plain", plain_release), ("lattice", release)):
        for carrier in ("present", "absent"):
            hits, present = 0, np.arange(1024) >= (carrier == "absent")
            with releasing(function):
                for _ in range(args.runs):
                    mean = private_mean(X, groups=NullRecords(None, present), **options)
                    total = float(mean.value[0]) * 1024
                    # 1 plus noise that brings it near 0 is a multiple of 2^-53.
                    hits += abs(total) < 0.5 and total * 2.0**53 != np.rint(total * 2.0**53)
            yield {"attack": name, "record": carrier, "told": hits / args.runs, "runs": args.runs}


# Most epsilon that is tried, and the number of rows beside which it has room.
MOST, ROWS = 100.0, (10**8, 10**9, 10**10)

# Least multiplier for each row at which noisy sums are whole numbers that floats hold.
EXACT = 2.0**-26


def room_rows(args):
    for kind in (DPSGDFClassifier, DPLinearRegression):
        for n in ROWS:
            row = {"model": kind.__name__, "rows": n, "exact": largest(kind, n, exactly)}
            yield row | {"nearest": largest(kind, n, check_lattice)}


def exactly(n, *multipliers):
    if min(multipliers) < n * EXACT:
        raise ValueError


def largest(kind, n, check):
    """Largest epsilon, rounded down to two digits, at which a fit of n rows passes."""

    def passes(epsilon):
        try:
            check(n, *kind(epsilon=epsilon)._budget(Sizes(n, 100, 1)).multipliers)
        except ValueError:
            return False
        return True

    low, high = 1e-3, MOST
    if passes(high):
        return high
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if passes(middle) else (low, middle)
    digits = 1 - int(np.floor(np.log10(low)))
    return float(np.floor(low * 10.0**digits) / 10.0**digits)


SECTIONS = {"step": step_rows, "attack": attack_rows, "room": room_rows}


OPTIONS = {"rows": 60_000, "features": 784, "repeats": 21, "runs": 20_000}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
