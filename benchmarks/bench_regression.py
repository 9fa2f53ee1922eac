"""What private linear regression costs: time beside the products that it needs, and memory.

subspace  PublicSubspaceLinearRegression, ten components of given public tasks, against what no
          solver in a subspace can leave out: the products X @ B of all rows with the directions,
          chunk by chunk, and what they are worth with each other and with the targets. Rows are
          in memory and mapped from a file; both sides have the same number of threads
full      DPLinearRegression against LinearRegression of scikit-learn, which takes a copy of the
          rows, and against X.T @ X, on a quarter of the rows
memory    anonymous memory of fits in processes of their own, rows mapped from a file: a quarter
          of the rows, and all of them

Checks, bounds, noise and accounting are part of a private fit. The public subspace is, too; it is
found from 20 tasks of 200 rows.

usage: python benchmarks/bench_regression.py [subspace full memory] [--threads 1 2]
       [--rows 1000000] [--features 100] [--repeats 7] [--scratch DIR]
       [--out benchmarks/results/regression_time.json]
"""

from pathlib import Path

import numpy as np
from _one_fit import one_fit, public_tasks
from _run import in_turns, judged, ms, ratios, run
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import dpsubspace
from dpsubspace import PrivacyWarning

K, CHUNK = 10, 8192
LIMIT = 1.5  # times the products
GROWTH_MB = 50  # of a fit of four times as many rows, beside what is known of each row
BYTES_A_ROW = 16  # a target and a norm in float64


def written(path, n, d):
    """Normal rows in an .npy file, in float32, and targets that have ten directions."""
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 10_000):
        part = rows[start : start + 10_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    rows.flush()
    return np.load(path, mmap_mode="r")


def targets(X):
    """Of the first ten columns, with as much noise."""
    y = np.asarray(X[:, :K]).sum(axis=1, dtype=np.float64)
    return y + np.random.default_rng(1).normal(0, np.sqrt(K), len(X))


def bounds(d):
    return {"bounds": (np.full(d, -5.0), np.full(d, 5.0)), "target_bounds": (-20.0, 20.0)}


# In the subspace --------------------------------------------------------------------------------


def products(X, y, directions):
    """The least that a solver in the subspace computes."""
    gram, moments = 0, 0
    for start in range(0, len(X), CHUNK):
        embedded = X[start : start + CHUNK] @ directions
        gram = gram + embedded.T @ embedded
        moments = moments + embedded.T @ y[start : start + CHUNK]
    return gram, moments


def subspace_rows(args):
    mapped = written(args.scratch / "rows.npy", args.rows, args.features)
    rows, tasks = {"memory": np.array(mapped), "file": mapped}, public_tasks(args.features)
    y = targets(mapped)
    rng = np.random.default_rng(2)
    directions = np.linalg.qr(rng.normal(size=(args.features, K)))[0].astype(np.float32)
    values = y.astype(np.float32)
    for threads in args.threads:
        for where, X in rows.items():
            for known in (True, False):
                fit = subspace_fit(X, y, tasks, bounds(args.features) if known else {})
                with threadpool_limits(threads):
                    calls = (lambda X=X: products(X, values, directions), fit)
                    floor, fits = np.moveaxis(in_turns(calls, args.repeats), 2, 0)
                row = {"rows": len(X), "columns": args.features, "where": where}
                row |= {"bounds": "public" if known else "estimated", "threads": threads}
                row |= {"products_ms": ms(floor), "fit_ms": ms(fits), **ratios(fits, floor)}
                verdict = judged(row["ratio_median"] <= LIMIT) if known else {}
                yield row | {"limit": LIMIT} | verdict


def subspace_fit(X, y, tasks, options):
    model = dpsubspace.PublicSubspaceLinearRegression(n_components=K, **options)
    X_public, y_public = tasks
    return lambda: model.fit(X, y, X_public=X_public, y_public=y_public)


# In the full space ------------------------------------------------------------------------------


def full_rows(args):
    for threads in args.threads:
        for d in (20, args.features):
            X = np.random.default_rng(0).standard_normal((args.rows // 4, d), dtype=np.float32)
            y = targets(X)
            for known in (True, False):
                options = bounds(d) if known else {}
                private = dpsubspace.DPLinearRegression(**options)
                calls = (
                    lambda X=X: X.T @ X,
                    lambda X=X, y=y: LinearRegression().fit(X, y),
                    lambda X=X, y=y, private=private: private.fit(X, y),
                )
                with threadpool_limits(threads):
                    gram, plain, fits = np.moveaxis(in_turns(calls, args.repeats), 2, 0)
                row = {"rows": len(X), "columns": d, "bounds": "public" if known else "estimated"}
                row |= {"threads": threads, "gram_ms": ms(gram)}
                row |= {"LinearRegression_ms": ms(plain), "fit_ms": ms(fits)}
                yield row | ratios(fits, plain) | {"to_gram": round(ms(fits) / ms(gram), 2)}


# Memory -----------------------------------------------------------------------------------------


def memory_rows(args):
    for method in ("PublicSubspaceLinearRegression", "DPLinearRegression"):
        peaks = {}
        for n in (args.rows // 4, args.rows):
            file = args.scratch / f"{n}.npy"
            if not file.exists():
                written(file, n, args.features)
            found = one_fit(threads=max(args.threads), method=method, file=file, n_components=K)
            peaks[n] = found["peak_mb"]
            row = {"method": method, "rows": n, "columns": args.features}
            row |= {"file_mb": round(4 * n * args.features / 1e6, 1)}
            row |= {key: round(found[key], 1) for key in ("start_mb", "peak_mb")}
            if n == args.rows:
                few, many = peaks.values()
                row["growth_mb"] = round(many - few, 1)
                row |= judged(many - few <= GROWTH_MB + BYTES_A_ROW * 0.75 * n / 1e6)
            yield row


SECTIONS = {"subspace": subspace_rows, "full": full_rows, "memory": memory_rows}
OPTIONS = {"rows": 1_000_000, "features": 100, "repeats": 7, "threads": [1], "scratch": Path}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
