"""What a fit costs whatever its rows: small fits, imports, new events, and a search.

fit     DPSGDClassifier() and DPSGDFClassifier() as they come against LogisticRegression() on the
        same rows, in turn; `again` is a fit over the first of its sizes, which is after one of
        other sizes, so that nothing is counted that is imported on first use
import  processor time of processes that import something, over that of `sklearn.linear_model`, in
        turn: run it where Python may write bytecode, or most of it is compilation
event   `privacy_event` of a budget that was not asked for before, and again, in milliseconds
used    shares of nine epsilons from 1e-4 to 1e6 that are used with batches, and the ratio of noise
        between two of them where it falls least
search  PrivateSearch over eight candidates and 3,000 x 20, over the fits that ran

usage: python benchmarks/bench_fixed.py [fit import event used search] [--tables 100x5 1000x20]
           [--repeats 25] [--out benchmarks/results/fixed.json]

A checkout against another one: python benchmarks/golden.py times FOLDER
"""

import itertools
import os
import resource
import subprocess
import sys
import time
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from _run import in_turns, judged, ms, ratios, run
from sklearn.linear_model import LogisticRegression

from dpsubspace import (
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyWarning,
    PrivateSearch,
    privacy_cost,
)
from dpsubspace._core.accounting.events import mechanisms_of

MODELS = (DPSGDClassifier, DPSGDFClassifier)


def table(n, d):
    """Normal columns, and labels of a logistic model of scores with standard deviation 2."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(n, d)), rng.normal(size=d)
    scores = X @ (2 * weights / np.linalg.norm(weights))
    return X, (scores + rng.logistic(size=n) > 0).astype(int)


def elapsed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# Small fits -----------------------------------------------------------------------------------

MOST = {"100x5": 10, "1000x20": 8}  # times LogisticRegression


def fit_rows(args):
    for model in MODELS:
        model().fit(*table(60, 3))
    for sizes in args.tables:
        data = table(*map(int, sizes.split("x")))
        kinds = (LogisticRegression, *MODELS)
        calls = [lambda kind=kind, data=data: kind().fit(*data) for kind in kinds]
        first = [elapsed(call) for call in calls]
        floor, *ours = np.moveaxis(in_turns(calls, args.repeats), 2, 0)
        for model, before, times in zip(MODELS, first[1:], ours, strict=True):
            found = ratios(times, floor)
            row = {"table": sizes, "model": model.__name__, "floor_ms": ms(floor), "ms": ms(times)}
            again = round(float(np.median(times[0]) / before), 2)
            met = found["ratio_median"] <= MOST.get(sizes, np.inf)
            yield row | found | {"again": again} | judged(met)


# Imports --------------------------------------------------------------------------------------

IMPORTS = (
    "import sklearn.linear_model",
    "import dpsubspace",
    "from dpsubspace import DPSGDFClassifier",
    "from dpsubspace import *",
)


def import_rows(args):
    times = np.array([[processor(code) for code in IMPORTS] for _ in range(args.repeats + 1)])[1:]
    for code, own in zip(IMPORTS, times.T, strict=True):
        ratio = round(float(np.median(own / times[:, 0])), 3)
        yield {"code": code, "cpu_ms": round(float(np.median(own)) * 1e3), "ratio_cpu": ratio}


def processor(code):
    """Seconds of the processor that a process with this code takes."""
    # Compiled code is kept from the first run on, as that of an installed package is.
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=kept)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# Events ---------------------------------------------------------------------------------------


def event_rows(args):
    for model in MODELS:
        for batch_size, most in ((None, 2), (256, 300)):
            start = 1.0 if model is DPSGDClassifier else 2.0  # no budget is asked for twice
            budgets = start + np.arange(args.repeats + 1) / 97
            models = [model(epsilon=float(e), batch_size=batch_size) for e in budgets]
            new, again = (np.median([elapsed(partial(cost, m)) for m in models]) for _ in range(2))
            row = {"model": model.__name__, "batch_size": batch_size}
            row |= {"new_ms": round(float(new) * 1e3, 2), "again_ms": round(float(again) * 1e3, 2)}
            yield row | judged(row["new_ms"] <= most)


def cost(model):
    return model.privacy_event(n_samples=10_000, n_features=20, n_outputs=1)


# What is used of epsilon -----------------------------------------------------------------------

EPSILONS = (1e-4, 0.01, 1.0, 10.0, 90.0, 110.0, 1e3, 1e5, 1e6)


def used_rows(args):
    relations = ("zero_out", "replace_one")
    for n, relation in itertools.product((100, 10**4, 10**7, 10**9), relations):
        for batch in (1, 64, n // 10, None):
            common = {"batch_size": batch, "neighboring_relation": relation}
            sizes: dict[str, Any] = {"n_samples": n, "n_features": 10}
            used, noise = [], []
            start = time.perf_counter()
            for epsilon in EPSILONS:
                model = DPSGDClassifier(epsilon=epsilon, **common)
                noise.append(mechanisms_of(model.privacy_event(**sizes))[-1].value)
                used.append(privacy_cost(model, **sizes) / epsilon)
            took = (time.perf_counter() - start) / len(EPSILONS)
            fall = max(b / a for a, b in itertools.pairwise(noise))
            row = {"rows": n, "batch": batch or n, "relation": relation}
            row |= {"used": " ".join(f"{share:.3f}" for share in used), "fall": round(fall, 3)}
            met = min(used) > 0.95 and max(used) <= 1 and fall < 1
            yield row | {"ms": round(took * 1e3, 1)} | judged(met)


# A search -------------------------------------------------------------------------------------

CANDIDATES = {"alpha": [1e-6, 1e-4, 1e-3, 1e-2], "loss": ["log_loss", "hinge"]}


def search_rows(args):
    X, y = table(3000, 20)
    spent = []
    fit = DPSGDFClassifier.fit

    def timed(model, *data, **options):
        spent.append(elapsed(lambda: fit(model, *data, **options)))
        return model

    with mock.patch.object(DPSGDFClassifier, "fit", timed):
        for method in ("all", "random"):
            found = []
            for _ in range(args.repeats + 1):
                spent.clear()
                search = PrivateSearch(DPSGDFClassifier(), CANDIDATES, method=method)
                whole = elapsed(lambda search=search: search.fit(X, y))
                found.append((whole * 1e3, len(spent), whole / sum(spent)))
            whole, fits, over = np.array(found[1:]).T
            many = fits >= 8
            row = {"method": method, "ms": round(float(np.median(whole)), 1)}
            row |= {"fits": float(np.median(fits)), "over_fits": round(float(np.median(over)), 3)}
            if many.any():
                row["of_8_fits"] = round(float(np.median(over[many])), 3)
            yield row | judged(row["over_fits"] <= 1.2)


SECTIONS = {
    "fit": fit_rows,
    "import": import_rows,
    "event": event_rows,
    "used": used_rows,
    "search": search_rows,
}

OPTIONS = {"repeats": 25, "tables": ["100x5", "1000x20"]}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
