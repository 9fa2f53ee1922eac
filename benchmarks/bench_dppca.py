"""What a private PCA costs: time beside the work that any PCA has, where it goes, and memory.

time    a whole fit of rows of norm 1 against X^T X (NumPy, in the dtype of the rows) and all
        eigenvectors of that in float64, in turn with every fit. Secure noise, checks of the
        rows and accounting are part of a fit, which finds 8 eigenvectors of the noisy moment
parts   where the time of a fit goes, from a profile; with one thread
memory  anonymous memory of fits in processes of their own, rows mapped from a file: 20,000 rows of
        20,000 columns by mechanism="power", with the energy that it captures (see
        repro_dppca.py), 60 % of all of it in 8 directions; and 60,000 rows of 784 columns

usage: python benchmarks/bench_dppca.py [time parts memory] [--threads 1 2] [--scratch DIR]
           [--rows 60000 --features 784] [--out benchmarks/results/dppca_time.json]

Narrow tables: ``time --rows 1000000 --features 20``.

Medians on a machine that does other work vary: compare ratios, and look at the load.
"""

from pathlib import Path

import numpy as np
from _one_fit import one_fit
from _run import in_turns, judged, ms, parts_of, ratios, run
from threadpoolctl import threadpool_limits

from dpsubspace import DPPCA, PrivacyWarning

K = 8
FITS = [
    (mechanism, centered) for mechanism in ("gaussian", "adaptive") for centered in (False, True)
]
LIMIT, MOST_MB = 1.5, 2000  # of the plain fit, and of the wide one

# Time ------------------------------------------------------------------------------------------


def unit_rows(args, dtype):
    X = np.random.default_rng(0).random((args.rows, args.features), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(dtype)


def fit(X, mechanism, centered):
    return DPPCA(K, mechanism=mechanism, centered=centered, data_norm=1.0).fit(X)


def time_rows(args):
    for threads in args.threads:
        with threadpool_limits(limits=threads):
            for dtype in ("float32", "float64"):
                yield from times(args, unit_rows(args, dtype), threads)


def times(args, X, threads):
    def floor():
        np.linalg.eigh((X.T @ X).astype(np.float64))

    calls = [call for its in FITS for call in (floor, lambda its=its: fit(X, *its))]
    found = np.moveaxis(in_turns(calls, args.repeats), 2, 0)
    for (mechanism, centered), floors, fits in zip(FITS, found[::2], found[1::2], strict=True):
        row = {
            "mechanism": mechanism,
            "centered": centered,
            "dtype": X.dtype.name,
            "threads": threads,
            "floor_ms": ms(floors),
            "fit_ms": ms(fits),
            **ratios(fits, floors),
        }
        if (mechanism, centered) == FITS[0]:
            row |= {"limit": LIMIT, **judged(row["ratio_median"] <= LIMIT)}
        yield row


# Parts -----------------------------------------------------------------------------------------

PARTS = {  # functions of these names, which do not call each other
    "check_rows": "checks of the rows",
    "row_norms": "norms of the rows",
    "distances": "distances from a mean",
    "bounded_row_sum": "means",
    "noisy_radius": "counts of distances",
    "formed": "rows after their map",
    "_gram": "products of blocks",
    "release": "noise",
    "packed": "triangle",
    "symmetric": "triangle",
    "_spectrum": "eigenvectors",
}


def part_rows(args):
    with threadpool_limits(limits=1):  # a profile is that of one thread
        for dtype in ("float32", "float64"):
            X = unit_rows(args, dtype)
            for mechanism, centered in FITS:
                fit(X, mechanism, centered)
                found = parts_of(lambda its=(X, mechanism, centered): fit(*its), PARTS)
                yield {"mechanism": mechanism, "centered": centered, "dtype": dtype} | found


# Memory ----------------------------------------------------------------------------------------


def memory_rows(args):
    for mechanism, n, d, epsilons in (
        ("power", args.wide, args.wide, (1.0, 3.0, 10.0)),
        ("adaptive", args.rows, args.features, (1.0,)),
    ):
        file, components = args.scratch / f"{d}.npy", args.scratch / "components.npy"
        best = spiked_rows(file, n, d)
        for epsilon in epsilons:
            job = {"method": "DPPCA", "classes": 2, "mechanism": mechanism, "epsilon": epsilon}
            found = one_fit(**job, file=file, save=components)
            row = {
                "mechanism": mechanism,
                "n": n,
                "d": d,
                "dtype": "float32",
                "epsilon": epsilon,
                "file_mb": round(n * d * 4 / 1e6),
                "start_mb": round(found["start_mb"]),
                "peak_mb": round(found["peak_mb"]),
                "cpu_s": round(found["cpu_s"], 1),
                "captured": round(energy(file, np.load(components).T) / best, 3),
            }
            if n == args.wide:
                row |= {"limit_mb": MOST_MB, **judged(found["peak_mb"] < MOST_MB)}
            yield row
        file.unlink()


def spiked_rows(file, n, d):
    """Write rows of norm 1 with K strong directions; the largest energy of K directions."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, K)))[0]
    X = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 1_000):
        part = X[start : start + 1_000]
        noise = rng.standard_normal(part.shape, dtype=np.float32) * np.sqrt(0.4 / d)
        part[:] = noise + rng.standard_normal((len(part), K)) @ basis.T * np.sqrt(0.6 / K)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    X.flush()
    for _ in range(3):  # from the true directions: a few iterations find those of the sample
        basis = np.linalg.qr(product(file, basis))[0]
    return energy(file, basis)


def product(file, basis):
    """Second moment of the rows times `basis`."""
    X, basis = np.load(file, mmap_mode="r"), basis.astype(np.float32)
    return sum(np.float64(part.T @ (part @ basis)) for part in np.array_split(X, 20))


def energy(file, basis):
    return float(np.sum(basis * product(file, basis)))


SECTIONS = {"time": time_rows, "parts": part_rows, "memory": memory_rows}


OPTIONS = {"rows": 60_000, "features": 784, "wide": 20_000, "repeats": 9, "threads": [1]}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS | {"scratch": Path}, ignored=(PrivacyWarning,))
