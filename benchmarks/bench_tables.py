"""Tables in the millions: what their fits cost in time and memory, here and on Dask workers.

dask      a table of numbers, categories and gaps is written as Parquet and fitted by a cluster of
          two workers of one thread each: *read_s* until all rows lie there, *step_ms* the median of
          the steps of the fit, *floor_ms* the products X W and X^T R alone, of the encoded rows of
          the same workers at once, *ratio* of the two; a part of a worker, encoded and as codes and
          numbers, and peaks of memory
memory    the same in memory, in a process of its own: seconds, peak, and what is held
narrow    memory of a table of two numbers and one category, by what is made of it: anonymous memory
          above that of the process with the table, in bytes a row and in tables; a process each
streaming the files read again in each step, in a process of its own: *pass_s* and *cpu_s* the
          medians of the steps, of wall and processor time, *read_s* to read the same columns by
          PyArrow alone, peak of memory. Whole fits of `--rows`, and 2 steps of `--streamed` rows
forming   processor time a row, in nanoseconds, to encode it and keep it, to keep what it is formed
          of, and of one step in either form; in turn, in one process
fits      processor seconds of whole fits in either form, one after the other, and how far apart
          their weights are over the largest of them

usage: python benchmarks/bench_tables.py [dask memory narrow streaming forming fits]
           [--rows 2000000] [--streamed 10000000] [--columns 20] [--scratch FOLDER]
           [--models DPSGDFClassifier ...] [--out benchmarks/results/tables_time.json]

Encoded rows take about 1.7 kB each where there are 20 columns.
"""

import multiprocessing
import statistics
import time
import warnings
from unittest import mock

import numpy as np
from _run import in_turns, resources, run
from bench_dask import Watched, cluster, peak

from dpsubspace import (
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.rows import dataset_parts
from dpsubspace._core.rows.chunks import FormedRows, over_chunks
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap
from dpsubspace._core.tables import forming as tables_in_steps
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.forming import formed_rows
from dpsubspace._core.tables.schema import read_table

WARDS = [f"ward {i}" for i in range(8)]
MODELS = {
    "DPSGDFClassifier": (DPSGDFClassifier, "label", None),
    "DPLinearRegression": (DPLinearRegression, "target", Range(-20, 20)),
}
FEW = {"DPSGDClassifier": (DPSGDClassifier, "label", None)}
CHUNK = 1 << 12  # rows that are encoded and multiplied at once


def table(seed, n, columns):
    """Half of the columns numbers, of which every third has gaps, and half categories."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    found, score = {}, np.zeros(n)
    for i in range(columns // 2):
        numbers = rng.uniform(0, 100, n).astype(np.float32)
        score += np.cos(numbers / 20) / (i + 1)
        numbers[rng.random(n) < (0.1 if i % 3 == 0 else 0)] = np.nan
        found[f"x{i}"] = numbers
    for i in range(columns - columns // 2):
        codes = rng.integers(0, len(WARDS), n, dtype=np.int8)
        score += (codes == i % len(WARDS)) / (i + 1)
        found[f"c{i}"] = pd.Categorical.from_codes(codes, WARDS)
    found["label"] = (score + rng.logistic(size=n) > 1).astype(np.int8)
    found["target"] = (score + rng.normal(size=n)).astype(np.float32)
    return pd.DataFrame(found)


def schema_of(columns):
    numbers = {f"x{i}": Range(0, 100, missing=i % 3 == 0) for i in range(columns // 2)}
    return Schema(numbers | {f"c{i}": Categories(WARDS) for i in range(columns - columns // 2)})


def write(folder, n, columns, step=250_000):
    folder.mkdir(parents=True)
    for i, start in enumerate(range(0, n, step)):
        table(i, min(step, n - start), columns).to_parquet(folder / f"part{i:05d}.parquet")
    return folder


# Sections ---------------------------------------------------------------------------------------


def encoded(part):
    """The encoded rows of a part: formed where they are used, or the largest array."""
    made = part._made.values()
    formed = [rows for rows in made if isinstance(rows, FormedRows)]
    arrays = [rows for rows in made if isinstance(rows, np.ndarray)]
    return formed[0] if formed else max(arrays, key=lambda rows: rows.nbytes)


def products(part, passes=3):
    """Median seconds of X W and X^T R over the encoded rows of a part, by chunks that are there."""
    X, times = encoded(part), []
    W = np.ones((X.shape[1], 1), X.dtype)
    for _ in range(passes):
        total, seconds = np.zeros((X.shape[1], 1)), 0.0
        for i in range(0, len(X), CHUNK):
            chunk = np.ascontiguousarray(X[i : i + CHUNK, :])
            start = time.perf_counter()
            total += chunk.T @ (chunk @ W)
            seconds += time.perf_counter() - start
        times.append(seconds)
    return statistics.median(times), X.nbytes, part.__sizeof__()


def fitted(client, made, rows, y):
    """One fit, with the times of its calls and of products of the same rows."""
    model, plan, seen = made[-1], type(made._plan().model), []
    run = plan.run

    def measured(self, ready, *given):
        found = run(self, ready, *given)  # a part keeps encoded rows as long as `ready` is there
        seen.extend(client.gather(client.map(products, watched.parts._refs, pure=False)))
        return found

    with Watched() as watched:
        plan.run = measured
        start = time.perf_counter()
        try:
            made.fit(rows, y)
        finally:
            plan.run = run
        fit_s = time.perf_counter() - start - 3 * max(seconds for seconds, *_ in seen)
    times = [seconds for seconds, _ in watched.calls]
    step, floor = statistics.median(times[-model.n_iter_ :]), max(seconds for seconds, *_ in seen)
    return {
        "features": len(made[0].get_feature_names_out()),
        "fit_s": round(fit_s, 1),
        "read_s": round(fit_s - sum(times), 1),
        "steps": model.n_iter_,
        "step_ms": round(1e3 * step, 1),
        "floor_ms": round(1e3 * floor, 1),
        "ratio": round(step / floor, 2),
        "encoded_mb": round(max(size for _, size, _ in seen) / 2**20),
        "codes_and_numbers_mb": round(max(size for *_, size in seen) / 2**20),
    }


def dask(args):
    import dask.dataframe as dd

    folder, schema = write(args.scratch / "rows", args.rows, args.columns), schema_of(args.columns)
    for name in args.models:
        kind, y, target = MODELS[name]
        with cluster(2, memory_limit=0) as client:
            frame = dd.read_parquet(folder)
            made = tabular_pipeline(kind(), schema, target=target)
            row = fitted(client, made, frame[[*schema]], frame[y])
            yield {
                "model": name,
                "rows": args.rows,
                "columns": args.columns,
                **row,
                "worker_mb": [round(mb) for mb in client.run(peak, None).values()],
                "client_mb": round(peak()),
            }


def here(name, n, columns):
    """One fit in memory, in a process that does nothing else."""
    warnings.simplefilter("ignore")
    kind, y, target = MODELS[name]
    frame, schema = table(0, n, columns), schema_of(columns)
    made, before = tabular_pipeline(kind(), schema, target=target), peak()
    start = time.perf_counter()
    made.fit(frame[[*schema]], frame[y])
    seconds, features = time.perf_counter() - start, len(made[0].get_feature_names_out())
    used = frame[[*schema]].memory_usage(index=False).sum()
    return {
        "model": name,
        "rows": n,
        "columns": columns,
        "features": features,
        "fit_s": round(seconds, 1),
        "steps": made[-1].n_iter_,
        "columns_mb": round(used / 2**20),
        "encoded_mb": round(4 * n * features / 2**20),
        "more_at_peak_mb": round(peak() - before),
    }


def memory(args):
    for name in args.models:
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            yield alone.apply(here, (name, args.rows, args.columns))


# Of 17 bytes a row: two numbers and one category.
NARROW = {"age": Range(0, 90), "pressure": Range(60, 200), "ward": Categories(WARDS)}
COEFFICIENTS = NARROW | {"label": Categories([0, 1])}
USES = {
    "fit of DPSGDFClassifier": lambda X, y: tabular_pipeline(DPSGDFClassifier(), NARROW).fit(X, y),
    "fit of DPSGDClassifier": lambda X, y: tabular_pipeline(DPSGDClassifier(), NARROW).fit(X, y),
    "fit of DPLinearRegression": lambda X, y: tabular_pipeline(
        DPLinearRegression(), NARROW, target=Range(-1, 2)
    ).fit(X, y),
    "private_coefficients": lambda X, y: private_coefficients(
        X.assign(label=y), COEFFICIENTS, "label"
    ),
    "private_summary": lambda X, y: private_summary(X, NARROW),
    "private_counts": lambda X, y: private_counts(X, NARROW, ["age", "ward"]),
}


def use(name, n):
    """What one use of a narrow table takes, in a process that does nothing else."""
    import pandas as pd

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)

    def narrow_table(n):
        numbers = {"age": rng.uniform(0, 90, n), "pressure": rng.uniform(60, 200, n)}
        codes = rng.integers(0, len(WARDS), n, dtype=np.int8)
        frame = pd.DataFrame(numbers | {"ward": pd.Categorical.from_codes(codes, WARDS)})
        return frame, rng.integers(0, 2, n, dtype=np.int8)

    frame, y = narrow_table(n)
    USES[name](*narrow_table(2000))  # what is imported on first use
    found = resources(lambda: USES[name](frame, y))
    own, more = frame.memory_usage(index=False).sum(), 1e6 * (found["peak_mb"] - found["start_mb"])
    return {
        "use": name,
        "rows": n,
        "bytes_a_row": round(more / n),
        "tables": round(more / own, 1),
        "cpu_s": round(found["cpu_s"], 1),
    }


def narrow(args):
    for name in USES:
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            yield alone.apply(use, (name, args.rows))


def streamed(name, folder, columns, options):
    """One fit of a dataset, in a process that does nothing else."""
    import pyarrow.dataset as ds

    warnings.simplefilter("ignore")
    kind, y, target = (MODELS | FEW)[name]
    rows, schema, passes = ds.dataset(folder), schema_of(columns), []
    start = time.perf_counter()
    n = sum(batch.num_rows for batch in rows.to_batches(columns=[*schema, y]))
    read, before = time.perf_counter() - start, peak()
    run = dataset_parts._DatasetParts.run

    def watched(*call):
        wall, processor = time.perf_counter(), time.process_time()
        yield from run(*call)
        passes.append((time.perf_counter() - wall, time.process_time() - processor))

    dataset_parts._DatasetParts.run = watched
    made = tabular_pipeline(kind(**options), schema, target=target)
    start = time.perf_counter()
    made.fit(rows, y)
    seconds = time.perf_counter() - start
    wall, processor = np.median(passes[-made[-1].n_iter_ :], axis=0)
    return {
        "model": name,
        "rows": n,
        "columns": columns,
        "features": len(made[0].get_feature_names_out()),
        "files_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 2**20),
        "read_s": round(read, 1),
        "fit_s": round(seconds, 1),
        "steps": made[-1].n_iter_,
        "passes": 1 + len(passes),
        "pass_s": round(float(wall), 2),
        "cpu_s": round(float(processor), 2),
        "before_mb": round(before),
        "peak_mb": round(peak()),
    }


def streaming(args):
    few = ("DPSGDClassifier", args.streamed, {"n_iter": 2})  # with few passes before the steps
    for name, n, options in (*((name, args.rows, {}) for name in MODELS), few):
        folder = args.scratch / f"streamed{n}"
        if not folder.exists():
            write(folder, n, args.columns)
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            yield alone.apply(streamed, (name, folder, args.columns, options))


def a_step(rows, y):
    """A function that makes the clipped sum of one step of a classifier over encoded rows."""
    source = LinearSource(LogLoss(), Features(rows, RowMap(norm="l2", bias=0.2)), y, n_outputs=1)
    W = np.linspace(-0.1, 0.1, source.width, dtype=np.float32)[:, None]

    def step():
        with over_chunks(source) as each:
            each.total(lambda some: clipped_sum(source.at(W, some), 0.5).value)

    return step


def forming(args):
    """Steps of rows that are kept and of rows that are formed, by time of the processor."""
    frame, schema = table(0, args.rows, args.columns), schema_of(args.columns)
    read, y = read_table(frame[[*schema]], schema, kept=True), frame["label"].to_numpy()
    for pairs in (False, True):
        encoding = encoding_for(schema, 1e6, interactions=pairs)
        makes = {
            "kept": lambda e=encoding: e(read),
            "formed": lambda e=encoding: formed_rows(read, e),
        }
        made = {name: make() for name, make in makes.items()}
        calls = [*makes.values(), *(a_step(rows, y) for rows in made.values())]
        _, cpu = in_turns(calls, args.repeats)
        encode, hold, kept, formed = np.median(cpu, axis=0) * 1e9 / args.rows
        yield {
            "pairs": pairs,
            "features": encoding.n_features,
            "encode_ns": round(encode),
            "hold_ns": round(hold),
            "kept_ns": round(kept),
            "formed_ns": round(formed),
            "ratio": round(float(np.median(cpu[:, 3] / cpu[:, 2])), 2),
        }


def fits(args):
    """Whole fits in either form, one after the other, by time of the processor."""
    frame, schema = table(0, args.rows, args.columns), schema_of(args.columns)
    for name, (kind, y, target) in MODELS.items():
        seconds, weights = {}, {}
        for form, most in (("kept", 1 << 60), ("formed", 0)):
            made = tabular_pipeline(kind(random_state=0), schema, target=target)
            with mock.patch.object(tables_in_steps, "_MOST_KEPT", most):
                start = time.process_time()
                made.fit(frame[[*schema]], frame[y])
                seconds[form] = time.process_time() - start
            weights[form] = np.append(made[-1].coef_, made[-1].intercept_)
        kept, formed = weights.values()
        yield {
            "model": name,
            "rows": args.rows,
            "features": len(kept) - 1,
            "kept_s": round(seconds["kept"], 1),
            "formed_s": round(seconds["formed"], 1),
            "ratio": round(seconds["formed"] / seconds["kept"], 2),
            "weights_differ": float(np.abs(kept - formed).max() / np.abs(kept).max()),
        }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(
        __doc__,
        {
            "dask": dask,
            "memory": memory,
            "narrow": narrow,
            "streaming": streaming,
            "forming": forming,
            "fits": fits,
        },
        {
            "rows": 2_000_000,
            "streamed": 10_000_000,
            "columns": 20,
            "scratch": ".",
            "repeats": 9,
            "models": list(MODELS),
        },
    )
