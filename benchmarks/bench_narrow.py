"""What linear DP-SGD costs on narrow tables, on one thread and on two of the same process.

step    a private step against its two matrix products, as in bench_linear.py; those of a Poisson
        batch take rows that are gathered already
fit     DPSGDClassifier() and DPSGDFClassifier() as they come against scikit-learn's
        LogisticRegression() on the same rows, in turn; columns are normal and labels are drawn
        from a logistic model whose scores have standard deviation 2: L-BFGS needs few iterations
opacus  steps of all rows and of Poisson batches against Opacus with ghost clipping, a process
        each, with Opacus's own loader and on batches that are gathered by index

usage: python benchmarks/bench_narrow.py [step fit opacus] [--threads 1 2] [--rows 10000 100000]
           [--columns 10 20] [--classes 2] [--dtypes float32] [--kinds dense] [--tables 200000x20]
           [--limit 2] [--fit-limit 15] [--opacus-python ENV/bin/python]
           [--out benchmarks/results/narrow.json]

Limits are the seconds after which no round of timings begins: of steps after at least three, of
fits after one. A row has times and ratios for each number of threads, and `more_threads` is the
time of ours with the last of them over that with the first. Opacus needs an environment of its
own (see bench_linear.py) with scikit-learn in it; it is compared on the first number of threads,
since those of torch may wait for each other for long.

Memory: python benchmarks/bench_linear.py memory --rows 1000000 --features 20
"""

from itertools import product
from pathlib import Path

import numpy as np
from _run import in_turns, judged, ms, ratios, run
from bench_linear import peers, random_rows, step_sides
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, PrivacyWarning

RATIOS = ("ratio_median", "ratio_min", "ratio_max")


def timed(args, calls, limit, least):
    """Times (2, repeats) of each call, for each number of threads: all in turn."""
    pools = ThreadpoolController()
    limited = [within(pools, number, call) for number in args.threads for call in calls]
    times = np.moveaxis(in_turns(limited, args.repeats, limit, least), 2, 0)
    return times.reshape(len(args.threads), len(calls), *times.shape[1:])


def within(pools, threads, call):
    def limited():
        with pools.limit(limits=threads):
            call()

    return limited


def compared(args, floors, ours, steps=1):
    """Times and ratios for each number of threads, and what more threads do for ours.

    Where threads of BLAS wait for each other, fewer of them are what ours is compared with.
    """
    row = {}
    for threads, under, over in zip(args.threads, np.minimum.accumulate(floors), ours, strict=True):
        times = {"floor_ms": ms(under, steps), "ms": ms(over, steps)}
        found = ratios(over, under)
        row[f"threads_{threads}"] = times | {key: found[key] for key in RATIOS}
    return row | {"more_threads": ratios(ours[-1], ours[0])["ratio_median"], "load": found["load"]}


# A step ---------------------------------------------------------------------------------------

KINDS = ("dense", "centred", "sparse", "Poisson")
DENSITY, BATCHES = 0.1, 15  # of sparse rows; Poisson batches of all rows
MOST_ENTRIES = 2e8  # of rows in memory

LIMIT, FROM_COLUMNS = 2.5, 20  # of the two products, where no rows are gathered
MORE_THREADS = 1.1  # of the time of one thread; what is above 1 is for noise


def step_rows(args):
    for n, d, dtype, kind in product(args.rows, args.columns, args.dtypes, args.kinds):
        if n * d > MOST_ENTRIES:
            continue
        rng = np.random.default_rng(0)
        X = random_rows(rng, n, d, DENSITY if kind == "sparse" else None, np.dtype(dtype))
        for classes in args.classes:
            of = {"kind": kind, "rows": n, "columns": d, "classes": classes, "dtype": dtype}
            yield of | step_row(args, rng, X, classes, kind)


def step_row(args, rng, X, classes, kind):
    n, d = X.shape
    steps = int(np.clip(3_000_000 // n, 3, 50))  # a fit takes many: starting threads is shared
    batch_size = n // BATCHES if kind == "Poisson" else None
    outputs = 1 if classes == 2 else classes
    calls = step_sides(rng, X, outputs, kind == "centred", batch_size, steps)
    floors, ours = np.moveaxis(timed(args, calls, args.limit, 3), 1, 0)
    row = compared(args, floors, ours, steps)
    if kind == "Poisson" or d < FROM_COLUMNS:
        return row
    most = max(row[f"threads_{threads}"]["ratio_median"] for threads in args.threads)
    return row | judged(most <= LIMIT and row["more_threads"] <= MORE_THREADS)


# Whole fits -----------------------------------------------------------------------------------

MODELS = (DPSGDClassifier, DPSGDFClassifier)


def fit_rows(args):
    for table, dtype, classes in product(args.tables, args.dtypes, args.classes):
        n, d = map(int, table.split("x"))
        of = {"rows": n, "columns": d, "classes": classes, "dtype": dtype}
        for row in fits(args, *logistic_rows(n, d, classes, dtype)):
            yield of | row


def fits(args, X, y):
    plain, *models = LogisticRegression(), *(model() for model in MODELS)
    calls = [lambda model=model: model.fit(X, y) for model in (plain, *models)]
    for model in (plain, *models):
        model.fit(X[:1000], y[:1000])  # what is imported on first use
    floors, *ours = np.moveaxis(timed(args, calls, args.fit_limit, 0), 1, 0)
    for model, times in zip(models, ours, strict=True):
        yield {
            "model": type(model).__name__,
            **compared(args, floors, times),
            "n_iter": model.n_iter_,
            "n_iter_exact": int(np.max(plain.n_iter_)),
            "accuracy": round(model.score(X, y), 4),
            "accuracy_exact": round(plain.score(X, y), 4),
        }


def logistic_rows(n, d, classes, dtype):
    """Normal columns, and labels of the logistic model that LogisticRegression fits."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    weights = rng.standard_normal((d, classes), dtype=np.float32)
    scores = X @ (2 * weights / np.linalg.norm(weights, axis=0))
    return X.astype(dtype, copy=False), np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


# Opacus ---------------------------------------------------------------------------------------

PEERS = ("DPSGDClassifier", "opacus ghost, gathered")
LOADER = "opacus ghost"  # takes rows one by one, which batches of all of them would not end


def opacus_rows(args):
    threads = args.threads[0]
    for table, classes in product(args.peer_tables, args.classes):
        n, d = map(int, table.split("x"))
        job = {"rows": n, "features": d, "classes": classes, "n_iter": args.steps}
        for batch_size in (n // BATCHES, None):
            methods = PEERS if batch_size is None else (*PEERS, LOADER)
            of = {"rows": n, "columns": d, "classes": classes, "threads": threads}
            for row in peers(args, methods, threads, **job, batch_size=batch_size):
                yield of | row


SECTIONS = {"step": step_rows, "fit": fit_rows, "opacus": opacus_rows}

OPTIONS = {
    "threads": [1, 2],
    "repeats": 7,
    "limit": 2.0,
    "fit_limit": 15.0,
    "rows": [10_000, 100_000, 1_000_000],
    "columns": [10, 20, 50, 100, 784],
    "classes": [2, 10],
    "dtypes": ["float32", "float64"],
    "kinds": list(KINDS),
    "tables": ["10000x20", "100000x20", "200000x20", "1000000x20", "1000000x100"],
    "peer_tables": ["10000x20", "200000x20"],
    "steps": 50,
    "fits": 3,
    "opacus_python": Path,
}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
