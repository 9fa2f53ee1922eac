"""What linear DP-SGD costs: a step, memory, other ways to do it, and the search for the noise.

step         a private step against the two matrix products X W and X^T R that any step has, in
             turn; NumPy takes them over all rows at once, a step chunk by chunk, which caches
             like better: a ratio can be below 1
memory       anonymous memory of whole fits, rows in memory and mapped from a file
peers        CPU seconds and memory against per-example gradients and Opacus, a process each
calibration  seconds to find the noise, and the noise itself beside a reference
exact        fits without privacy (epsilon=inf) to 10,000 images of MNIST against scikit-learn's
             LogisticRegression on the same unit rows, to the same gradient: CPU seconds

usage: python benchmarks/bench_linear.py [step memory peers calibration exact]
           [--threads 1] [--opacus-python ENV/bin/python] [--out benchmarks/results/linear.json]

Opacus needs an environment of its own: pip install torch==2.13.0 opacus==1.6.0. All sides of a
comparison have the same number of threads. Two threads of OpenBLAS wait for each other where
the machine is busy: leave --threads at 1 there.
"""

import sys
import time
from pathlib import Path

import numpy as np
from _data import load
from _one_fit import one_fit
from _run import in_turns, ms, ratios, run
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dpsubspace import DPSGDClassifier, DPSGDFClassifier
from dpsubspace._core.accounting.budget import Budget, Part, Target, calibrate
from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import sampled_gaussian
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.release.noise import SecureNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.solvers.descent import STEPS, FlatStep, TrainingPlan, train

# One step -------------------------------------------------------------------------------------

CASES = {  # what differs from 10 classes, all of the rows, dense and as they come
    "dense": {},
    "dense, two classes": {"outputs": 1},
    "dense, centred": {"centred": True},
    "dense, Poisson batch": {"batch_size": 4096},
    "dense, centred, Poisson batch": {"centred": True, "batch_size": 4096},
    "sparse": {"density": 0.05},
    "sparse, centred": {"density": 0.05, "centred": True},
    "sparse, Poisson batch": {"density": 0.05, "batch_size": 4096},
}


# What a fit does once (starting threads) is shared by its steps, as in a fit.
STEPS_AT_ONCE = 5


def step_rows(args):
    for name, case in CASES.items():
        yield {"step": name, **step_row(args, **case)}


def step_row(args, outputs=10, centred=False, density=None, batch_size=None):
    rng = np.random.default_rng(0)
    X = random_rows(rng, args.rows, args.features, density)
    times = in_turns(step_sides(rng, X, outputs, centred, batch_size), args.repeats)
    floor, private = np.moveaxis(times, 2, 0)
    return {
        "floor_ms": ms(floor, STEPS_AT_ONCE),
        "private_ms": ms(private, STEPS_AT_ONCE),
        **ratios(private, floor),
    }


def step_sides(rng, X, outputs, centred, batch_size, steps=STEPS_AT_ONCE):
    """Calls that take the products of so many steps, and private steps."""
    n, d = X.shape
    y = rng.integers(max(outputs, 2), size=n)
    private = private_step(rng, X, y, outputs, centred, batch_size, steps)
    # The products take rows that are gathered already.
    some = X if batch_size is None else X[np.sort(rng.permutation(n)[:batch_size])]
    weights = rng.normal(size=(d, outputs)).astype(X.dtype)
    residual = rng.normal(size=(some.shape[0], outputs)).astype(X.dtype)

    def floor():
        for _ in range(steps):
            some @ weights
            some.T @ residual

    return floor, private


def descent(n_iter, rate, multiplier, learning_rate, *problem):
    """Call that takes steps as the estimators do, with momentum and averages."""
    how = {"learning_rate": learning_rate, "momentum": 0.9, "alpha": 1e-6, "average": True}
    plan = TrainingPlan(n_iter=n_iter, **how)
    target = Target(None, noise_multiplier=multiplier)
    budget = Budget.split(target, {STEPS: Part(1.0, n_iter, rate)})
    return lambda: train(plan, *problem, Releases(budget, SecureNoise()))


def random_rows(rng, n, d, density, dtype=np.float32):
    if density is None:
        return rng.random((n, d), dtype=dtype)
    return sparse.random_array((n, d), density=density, format="csr", dtype=dtype, rng=rng)


def private_step(rng, X, y, outputs, centred, batch_size, steps=STEPS_AT_ONCE):
    """Steps of a fit, secure noise included; row norms are taken once a fit and are not."""
    features = Features(X, RowMap(norm="l2", bias=0.5))
    if centred:
        features = features.shifted(Shift(np.full(X.shape[1] + 1, 0.01), 0.3))
    source = LinearSource(LogLoss(), features, y, n_outputs=outputs)
    start = rng.normal(size=(features.width, outputs))
    rate = 1.0 if batch_size is None else batch_size / len(y)
    step, penalised = FlatStep(clip_norm=0.5), np.ones((features.width, 1))
    return descent(steps, rate, 40.0, 1.0, step, source, start, penalised)


# Whole fits, each in a fresh process ----------------------------------------------------------


def memory_rows(args):
    for method in ("DPSGDClassifier", "DPSGDFClassifier"):
        yield memory_row(args, method, args.rows)
    for n in (args.rows, 4 * args.rows):
        file = written_rows(args.scratch / "rows.npy", n, args.features)
        for method in ("DPSGDClassifier", "DPSGDFClassifier"):
            for batch_size in (None, 4096):
                yield memory_row(args, method, n, file, batch_size)


def written_rows(path, n, d):
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 10_000):
        part = rows[start : start + 10_000]
        part[:] = rng.random(part.shape, dtype=np.float32)
    rows.flush()
    return path


def memory_row(args, method, n, file=None, batch_size=None):
    job = {"method": method, "rows": n, "features": args.features, "file": file, "n_iter": 5}
    found = one_fit(threads=args.threads, **job, batch_size=batch_size)
    x_mb = 0.0 if file else n * args.features * 4 / 1e6
    return {
        "memory": method,
        "rows": n,
        "where": "file" if file else "memory",
        "batch": batch_size or "full",
        "x_mb": round(x_mb, 1),
        "start_mb": round(found["start_mb"], 1),
        "peak_mb": round(found["peak_mb"], 1),
        "peak_less_x_mb": round(found["peak_mb"] - x_mb, 1),
    }


PEERS = ("DPSGDClassifier", "torch.func", "opacus ghost", "opacus ghost, gathered")


def peer_rows(args):
    for batch_size, n_iter in ((args.rows // 15, 75), (None, 10)):
        job = {"rows": args.rows, "features": args.features, "n_iter": n_iter}
        yield from peers(args, PEERS, args.threads, **job, batch_size=batch_size)


def peers(args, methods, threads, **job):
    """Medians of processes in turn; no side counts its epsilon while it is measured."""
    runs = {m: [] for m in methods if args.opacus_python or not m.startswith("opacus")}
    for _ in range(args.fits):
        for method, found in runs.items():
            python = args.opacus_python if method.startswith("opacus") else sys.executable
            found.append(one_fit(python, threads, method=method, accounting=False, **job))
    medians = {
        method: {
            key: float(np.median([run[key] for run in found]))
            for key in ("clock_s", "cpu_s", "start_mb", "peak_mb")
        }
        for method, found in runs.items()
    }
    ours = medians["DPSGDClassifier"]
    for method, median in medians.items():
        more, more_ours = (m["peak_mb"] - m["start_mb"] for m in (median, ours))
        yield {
            "peer": method,
            "batch": job["batch_size"] or "full",
            "steps": job["n_iter"],
            "clock_s": round(median["clock_s"], 3),
            "times_clock": round(median["clock_s"] / ours["clock_s"], 2),
            "cpu_s": round(median["cpu_s"], 3),
            "times_cpu": round(median["cpu_s"] / ours["cpu_s"], 2),
            "peak_mb": round(median["peak_mb"], 1),
            "times_peak": round(median["peak_mb"] / ours["peak_mb"], 2),
            "above_start_mb": round(more, 1),
            "times_above_start": round(more / more_ours, 2) if more_ours else None,
            "runs": args.fits,
            "version": runs[method][0]["version"],
        }


# The noise ------------------------------------------------------------------------------------

EPSILONS = (0.01, 0.1, 1.0, 10.0, 100.0)
RELATIONS = ("zero_out", "replace_one")
PLANS = ((1.0, 100), (0.1, 200), (0.01, 100), (0.01, 2_000), (0.01, 10_000), (0.001, 10_000))

# Noise multipliers for epsilon 1 and delta 1e-5 by dp_accounting 0.6.0: exact for the full
# batch, by privacy-loss distributions on a grid of 1e-4 for batches of rate 0.01.
REFERENCE = {
    (1.0, 1, "zero_out"): 3.7306,
    (1.0, 10, "zero_out"): 11.797,
    (1.0, 100, "zero_out"): 37.306,
    (1.0, 1_000, "zero_out"): 117.97,
    (1.0, 10_000, "zero_out"): 373.06,
    (1.0, 1, "replace_one"): 7.461,
    (1.0, 10, "replace_one"): 23.59,
    (1.0, 100, "replace_one"): 74.61,
    (0.01, 10, "zero_out"): 0.7802,
    (0.01, 100, "zero_out"): 0.9029,
    (0.01, 1_000, "zero_out"): 1.4146,
    (0.01, 10_000, "zero_out"): 3.8132,
    (0.01, 10, "replace_one"): 0.7841,
    (0.01, 100, "replace_one"): 0.9540,
    (0.01, 1_000, "replace_one"): 2.3654,
    (0.01, 10_000, "replace_one"): 7.4627,
}


def calibration_rows(args):
    noise(1.0, 1, "zero_out", 1.0), noise(0.01, 10, "zero_out", 1.0)  # imports
    for rate, n_iter in PLANS:
        for relation in RELATIONS:
            for epsilon in EPSILONS:
                yield calibration_row(rate, n_iter, relation, epsilon)
    for (rate, n_iter, relation), reference in REFERENCE.items():
        row = calibration_row(rate, n_iter, relation, 1.0)
        excess = row["multiplier"] / reference - 1
        yield {**row, "reference": reference, "excess": round(excess, 5)}


def noise(rate, n_iter, relation, epsilon):
    def cost_at(multiplier):
        return Cost.of(sampled_gaussian(multiplier, rate, n_iter), relation)

    return calibrate(cost_at, epsilon, delta=1e-5)


def calibration_row(rate, n_iter, relation, epsilon):
    start = time.perf_counter()
    multiplier = noise(rate, n_iter, relation, epsilon)
    return {
        "calibration": "full batch" if rate == 1 else f"rate {rate:g}",
        "steps": n_iter,
        "relation": relation,
        "epsilon": epsilon,
        "multiplier": float(f"{multiplier:.6g}"),
        "seconds": round(time.perf_counter() - start, 5),
    }


# Without privacy ------------------------------------------------------------------------------


def exact_rows(args):
    X, y, X_test, y_test = load("mnist")
    X, y = X[:10_000], y[:10_000]

    def rows(X):
        return X / np.hypot(np.linalg.norm(X, axis=1), 0.5)[:, None]

    for alpha in (1e-4, 1e-6):
        options = {"C": 1 / (len(X) * alpha), "tol": 1e-6, "max_iter": 10_000}
        models = {
            "DPSGDClassifier": (DPSGDClassifier(epsilon=np.inf, alpha=alpha), lambda X: X),
            "DPSGDFClassifier": (DPSGDFClassifier(epsilon=np.inf, alpha=alpha), lambda X: X),
            "LogisticRegression": (LogisticRegression(**options), rows),
        }
        for name, (model, mapped) in models.items():
            start = time.process_time()
            model.fit(mapped(X), y)
            cpu = time.process_time() - start
            loss = log_loss(y, model.predict_proba(mapped(X)))
            yield {
                "exact": name,
                "alpha": alpha,
                "cpu_s": round(cpu, 2),
                "iterations": int(np.max(model.n_iter_)),
                "objective": round(loss + alpha / 2 * float(np.sum(model.coef_**2)), 6),
                "test_accuracy": round(model.score(mapped(X_test), y_test), 4),
            }


SECTIONS = {
    "step": step_rows,
    "memory": memory_rows,
    "peers": peer_rows,
    "calibration": calibration_rows,
    "exact": exact_rows,
}


OPTIONS = {"rows": 60_000, "features": 784, "repeats": 15, "fits": 3}
OPTIONS |= {"opacus_python": Path, "scratch": Path}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS)
