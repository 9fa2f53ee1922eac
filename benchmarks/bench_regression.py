"""What private linear regression costs: time beside the products that it needs, and memory.

subspace  PublicSubspaceLinearRegression, ten components of given public tasks, against what no
          solver in a subspace can leave out: the products X @ B of all rows with the directions,
          chunk by chunk, and what they are worth with each other and with the targets. Rows are
          in memory and mapped from a file; both sides have the same number of threads
full      DPLinearRegression against LinearRegression of scikit-learn, which takes a copy of the
          rows, and against X.T @ X, on a quarter of the rows
scales    what of a fit releases scales of columns in unknown units, of kinds that tables have:
          numbers, numbers far from 0, tails, codes, and zeros beside others
persons   PersonalizedLinearRegression, twenty rows a person and 50 columns
memory    anonymous memory of fits in processes of their own, rows mapped from a file: a quarter
          of the rows, and all of them

Checks, bounds, noise and accounting are part of a private fit. The public subspace is, too; it is
found from 20 tasks of 200 rows.

usage: python benchmarks/bench_regression.py [subspace full scales persons memory]
       [--threads 1 2] [--rows 1000000] [--features 100] [--repeats 7] [--scratch DIR]
       [--out benchmarks/results/regression_time.json]
"""

from pathlib import Path

import numpy as np
from _one_fit import one_fit, public_tasks
from _run import in_turns, judged, ms, ratios, run, seconds
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

import dpsubspace
from dpsubspace import PrivacyWarning
from dpsubspace._core.accounting.budget import Budget, Target
from dpsubspace._core.release.noise import SecureNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.scales import SCALES, noisy_scales

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
    model = dpsubspace.linear_model.PublicSubspaceLinearRegression(n_components=K, **options)
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


# Scales ---------------------------------------------------------------------------------------

# Rows and columns, and the most seconds that their scales should take.
TABLES = {(10_000, 20): 0.05, (10_000, 100): 0.05, (2_000, 1_500): 3.0}


def table(n, d):
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    X[:, 1::5] = 10 * X[:, 1::5] + 50
    X[:, 2::5] = 1000 * np.exp(X[:, 2::5])
    X[:, 3::5] = X[:, 3::5] > 0.5
    X[:, 4::5] *= X[:, 4::5] > 1
    return X


def released_scales(X, y):
    budget = Budget.split(Target(1.0, 1e-5, "zero_out"), dict(SCALES), len(X))
    return noisy_scales(X, y, Releases(budget, SecureNoise(), Records.of_rows(len(X))))


def scales_rows(args):
    for (n, d), limit in TABLES.items():
        X, y = table(n, d), np.random.default_rng(1).standard_normal((n, 1))
        # The round that is not counted makes the list of distributions, once in a process.
        clock, _ = in_turns((lambda X=X, y=y: released_scales(X, y),), args.repeats)
        found = float(np.median(clock))
        row = {"rows": n, "columns": d, "seconds": round(found, 3), "limit": limit}
        yield row | judged(found <= limit)


# Persons --------------------------------------------------------------------------------------

PERSONS, OWN_ROWS, WIDE = 100_000, 20, 50


def persons_rows(args):
    for n in (PERSONS // 100, PERSONS // 10, PERSONS):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, OWN_ROWS, WIDE), dtype=np.float32)
        heads = 0.5 * rng.standard_normal((n, 3, 1)) + rng.standard_normal((3, 1))
        y = (X[:, :, :3] @ heads)[:, :, 0] + rng.normal(0, 0.7, (n, OWN_ROWS))
        model, groups = (
            dpsubspace.linear_model.PersonalizedLinearRegression(),
            np.repeat(np.arange(n), OWN_ROWS),
        )
        found, _ = seconds(lambda m=model, X=X, y=y, g=groups: m.fit(_flat(X), _flat(y), groups=g))
        yield {"persons": n, "rows": n * OWN_ROWS, "columns": WIDE, "seconds": round(found, 2)}


def _flat(values):
    return values.reshape(-1, *values.shape[2:])


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


SECTIONS = {
    "subspace": subspace_rows,
    "full": full_rows,
    "scales": scales_rows,
    "persons": persons_rows,
    "memory": memory_rows,
}
OPTIONS = {"rows": 1_000_000, "features": 100, "repeats": 7, "threads": [1], "scratch": Path}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
