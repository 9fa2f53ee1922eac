"""Fits on Dask collections: what a step costs beside its products, and how that grows.

fits      rows are written as Parquet and fitted by a cluster of two workers of one thread each:
          *read_s* until all rows lie on the workers, *step_ms* the median of the steps of the fit,
          *floor_ms* the products X W and X^T R alone, of the same arrays on the same workers at
          once, *ratio* of the two; peaks of memory of the workers and of the client, and how much
          of a worker's is its part of the rows
overhead  calls with next to no rows, by the number of workers: what a step costs beside its work
growth    a step by rows and workers
persons   a tenth of the rows, about five of each person, with `groups` and without: *read_s* as
          above, of which *together_s* bring the rows of each person together (*together_cpu_s* of
          processor time), what workers sent each other, and processor time of a step on a worker
wide      100 workers, all in this process: what a scheduler and a client do for that many
paper     100 workers and 10^10 rows, from the measured time of a row and the measured overhead;
          drawing a Poisson batch of 10^10 records, and memory for it, from a draw of 10^9

usage: python benchmarks/bench_dask.py [fits overhead growth persons wide paper] [--rows 20000000]
           [--scratch FOLDER] [--out benchmarks/results/dask.json]

20 million rows of 100 columns need 8 GB in the scratch folder and about 12 GB of memory.
"""

import gc
import resource
import statistics
import time
import warnings
from uuid import uuid4

import numpy as np
from _run import run

from dpsubspace import DPLinearRegression, DPSGDClassifier, DPSGDFClassifier
from dpsubspace._core.release.noise import SecureNoise
from dpsubspace._core.rows import dask_parts
from dpsubspace._core.rows.remote import ROWS

WEIGHTS = np.random.default_rng(0).normal(size=1000) / 10

MODELS = {
    "DPSGDFClassifier": (DPSGDFClassifier, "label", {}),
    "DPLinearRegression": (DPLinearRegression, "target", {}),
}


# Rows -------------------------------------------------------------------------------------------


def table(seed, n, d):
    """Rows with some columns in common, a label and a target, as a data frame."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X[:, 1:] += 0.5 * X[:, :1]
    score = X @ WEIGHTS[:d].astype(np.float32)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(d)])
    frame["label"] = (score + rng.logistic(size=n) > 0).astype(np.int8)
    frame["target"] = (score + rng.normal(size=n)).astype(np.float32)
    frame["patient"] = rng.integers(0, 2**31, n)
    return frame


def write(folder, n, d, step=250_000):
    """Parquet files of so many rows in all."""
    folder.mkdir(parents=True)
    for i, start in enumerate(range(0, n, step)):
        frame = table(i, min(step, n - start), d)
        # Random numbers have no dictionary that would be shorter.
        options = {"compression": None, "use_dictionary": False}
        frame.to_parquet(folder / f"part{i:05d}.parquet", **options)
    return folder


def collections(folder, target, d):
    import dask.dataframe as dd

    frame = dd.read_parquet(folder)
    return frame[[f"x{i}" for i in range(d)]], frame[target]


# Clusters and what they do ----------------------------------------------------------------------


class cluster:
    """A local cluster and a client of it."""

    def __init__(self, n_workers, **options):
        self.options = {"n_workers": n_workers, "threads_per_worker": 1, **options}

    def __enter__(self):
        from dask.distributed import Client, LocalCluster

        self.cluster = LocalCluster(dashboard_address=":0", **self.options)
        self.client = Client(self.cluster)
        return self.client

    def __exit__(self, *error):
        self.client.close()
        self.cluster.close()


class Watched:
    """Times and sizes of all calls on parts while this is open."""

    def __enter__(self):
        self.calls, self.parts, self._run = [], None, dask_parts._DaskParts.run

        def run_watched(parts, task, own):
            self.parts, start = parts, time.perf_counter()
            found = self._run(parts, task, own)
            sent = len(task) + sum(0 if own is None else mine.nbytes for mine in own or ())
            self.calls.append((time.perf_counter() - start, sent))
            return found

        dask_parts._DaskParts.run = run_watched
        self.began = time.perf_counter()
        return self

    def __exit__(self, *error):
        dask_parts._DaskParts.run = self._run
        self.parts = None


def peak(_=None):
    """Most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def products(part, passes=3):
    """Median seconds of X W and X^T R over the rows of a part, by chunks that fit a cache."""
    X = part._leaves[ROWS]
    W = np.ones((X.shape[1], 1), X.dtype)
    times = []
    for _ in range(passes):
        start = time.perf_counter()
        total = np.zeros((X.shape[1], 1))
        for i in range(0, len(X), 4096):
            chunk = X[i : i + 4096]
            total += chunk.T @ (chunk @ W)
        times.append(time.perf_counter() - start)
    return statistics.median(times), X.nbytes


def fitted(client, model, X, y, groups=None):
    """One fit, with its times: of reading, of calls, of products of the same rows."""
    floors = []
    original = type(model)._store if hasattr(type(model), "_store") else None

    def store(self, *given):
        floors.extend(client.gather(client.map(products, watched.parts._refs, pure=False)))
        watched.done = time.perf_counter()
        return original(self, *given)

    with Watched() as watched:
        type(model)._store = store
        try:
            before = time.perf_counter()
            model.fit(X, y, groups=groups)
        finally:
            type(model)._store = original
    times, sent = zip(*watched.calls, strict=True)
    # The steps are the most frequent kind of call, and the last ones.
    steps = times[-model.n_iter_ :]
    return {
        "read_s": round(watched.done - before - sum(times) - max(f for f, _ in floors) * 3, 1),
        "calls": len(times),
        "steps": model.n_iter_,
        "all_calls_s": round(sum(times), 1),
        "step_ms": round(1e3 * statistics.median(steps), 1),
        "floor_ms": round(1e3 * max(seconds for seconds, _ in floors), 1),
        "ratio": round(statistics.median(steps) / max(seconds for seconds, _ in floors), 2),
        "sent_kb": round(statistics.median(sent[-model.n_iter_ :]) / 1e3, 1),
        "part_mb": round(max(size for _, size in floors) / 2**20),
    }


# Sections ---------------------------------------------------------------------------------------


def fits(args):
    folder = args.scratch / "rows"
    start = time.perf_counter()
    write(folder, args.rows, args.features)
    written = round(time.perf_counter() - start, 1)
    for name, (kind, target, options) in MODELS.items():
        with cluster(2, memory_limit=0) as client:
            X, y = collections(folder, target, args.features)
            start = time.perf_counter()
            row = fitted(client, kind(**options), X, y)
            yield {
                "model": name,
                "rows": args.rows,
                "columns": args.features,
                "written_s": written,
                "fit_s": round(time.perf_counter() - start, 1),
                **row,
                "worker_mb": [round(mb) for mb in client.run(peak, None).values()],
                "client_mb": round(peak()),
            }
        gc.collect()


def calls_of(n_workers, n_iter=100, **options):
    """Milliseconds of a call of a fit with next to no rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(64 * n_workers, 10)), np.arange(64 * n_workers) % 2
    import dask.array as da

    with cluster(n_workers, **options) as client, Watched() as watched:
        client.wait_for_workers(n_workers)
        lazy = da.from_array(X, chunks=(64, 10))
        DPSGDClassifier(n_iter=n_iter, epsilon=10.0).fit(lazy, y)
        times, sent = zip(*watched.calls, strict=True)
    times = np.array(times[-n_iter:])
    return {
        "workers": n_workers,
        "call_ms": round(1e3 * float(np.median(times)), 1),
        "p90_ms": round(1e3 * float(np.quantile(times, 0.9)), 1),
        "sent_kb": round(statistics.median(sent) / 1e3, 1),
    }


def overhead(args):
    for n_workers in (1, 2, 4):
        yield {"kind": "processes", **calls_of(n_workers, memory_limit=0)}


def growth(args):
    for n in (args.rows // 20, args.rows // 10, args.rows // 5):
        folder = write(args.scratch / f"growth{n}", n, args.features)
        for n_workers in (1, 2):
            with cluster(n_workers, memory_limit=0) as client:
                X, y = collections(folder, "label", args.features)
                model = DPSGDFClassifier(n_iter=50)
                row = fitted(client, model, X, y)
                yield {"rows": n, "workers": n_workers, **row}


def timed(name, folder):
    """On a worker: write down when tasks of this name begin and end, and their processor time."""
    task = getattr(dask_parts, name)

    def watched(*given):
        start, before = time.time(), time.thread_time()
        found = task(*given)
        passed = [start, time.time(), time.thread_time() - before]
        (folder / f"{name}-{uuid4().hex}").write_text(" ".join(map(repr, passed)))
        return found

    setattr(dask_parts, name, watched)


def received(dask_worker):
    """Bytes that a worker has got from other workers."""
    return sum(each["total"] for each in dask_worker.transfer_incoming_log)


def persons(args):
    n = args.rows // 10
    folder = write(args.scratch / "persons", n, args.features)
    for grouped in (False, True):
        times = args.scratch / f"times{grouped}"
        times.mkdir()
        with cluster(2, memory_limit=0) as client:
            X, y = collections(folder, "label", args.features)
            who = None
            if grouped:
                who = collections(folder, "patient", args.features)[1] % (n // 5)
            exchange = ("_dealt", "_share", "_gathered")
            for name in (*exchange, "_run"):
                client.run(timed, name, times)
            row = fitted(client, DPSGDFClassifier(n_iter=20), X, y, who)
            tasks = {
                kind: np.array(
                    [
                        [*map(float, file.read_text().split())]
                        for file in times.iterdir()
                        if file.name.startswith(kind)
                    ]
                )
                for kind in (exchange, "_run")
            }
            together, steps = tasks[exchange], tasks["_run"]
            steps = steps[np.argsort(steps[:, 0])][-2 * row["steps"] :]
            came = client.run(received)
            yield {
                "rows": n,
                "columns": args.features,
                "persons": grouped,
                "together_s": round(np.ptp(together[:, :2]), 1) if grouped else 0.0,
                "together_cpu_s": round(together[:, 2].sum(), 1) if grouped else 0.0,
                "step_cpu_ms": round(1e3 * float(np.median(steps[:, 2])), 1),
                "between_workers_mb": round(sum(came.values()) / 2**20),
                **row,
                "worker_mb": [round(mb) for mb in client.run(peak, None).values()],
                "client_mb": round(peak()),
            }


def wide(args):
    for n_workers in (10, 30, 100):
        options = {"processes": False, "memory_limit": 0}
        yield {"kind": "in one process", **calls_of(n_workers, 30, **options)}


def paper(args):
    kept = args.results
    step = next(row for row in kept["fits"] if row["model"] == "DPSGDFClassifier")
    row_ns = 1e6 * step["step_ms"] * 2 / step["rows"]
    call = kept["wide"][-1]["call_ms"]
    n, workers = 10**10, 100
    yield {
        "what": "a step of all rows",
        "row_ns": round(row_ns, 1),
        "work_s": round(1e-9 * row_ns * n / workers, 2),
        "overhead_s": round(call / 1e3, 2),
        "memory_gb_a_worker": round(4 * args.features * n / workers / 1e9, 1),
    }
    start = time.perf_counter()
    rate = 1e-4
    found = SecureNoise().poisson_sample(n // 10, rate)
    seconds = time.perf_counter() - start
    assert abs(len(found) - rate * n / 10) < 6 * (rate * n / 10) ** 0.5
    yield {
        "what": "a Poisson batch of a record in 10,000",
        "drawn_s": round(10 * seconds, 1),
        "sent_mb": round(8 * rate * n / 1e6, 1),
        "client_mb": round(peak()),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(
        __doc__,
        {
            "fits": fits,
            "overhead": overhead,
            "growth": growth,
            "persons": persons,
            "wide": wide,
            "paper": paper,
        },
        {"rows": 20_000_000, "features": 100, "scratch": "."},
    )
