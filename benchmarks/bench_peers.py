"""Whole private fits of four raw tables, as a user runs them, beside those of other libraries.

Two tables with two classes (AUC) and two with values (R2), in points, at epsilon 1 and delta 1e-5
(diffprivlib has pure epsilon, delta 0). Each fit runs in a process of its own, with one thread:
seconds by the clock and of the processor, with what makes columns of a table and with predictions
for the test rows, and memory above that of the process before. Imports do not count. peer_fits.py
has the methods. OpenDP has no model of several columns that is trained on tables.

usage: DPSUBSPACE_DATA=folder python benchmarks/bench_peers.py [--seeds 5]
           [--ebm-python EBM/bin/python] [--diffprivlib-python DPL/bin/python]
           [--opacus-python OPACUS/bin/python] [--out benchmarks/results/peers.json]
       pip install interpret-core==0.7.8 pandas                   # environments apart
       pip install diffprivlib==0.6.6 scikit-learn==1.7.2
       pip install torch==2.13.0 opacus==1.6.0
"""

import sys
import tempfile
from pathlib import Path

import _raw_tables
import numpy as np
from _one_fit import answer
from _run import run
from repro_tables import DELTA, arrays, cut, points

TABLES = (("adult", "classes"), ("bike", "classes"), ("california", "values"), ("kegg", "values"))
METHODS = {  # and the argument that names the interpreter
    "tabular_pipeline": None,
    "linear, not private": None,
    "DP-EBM": "ebm_python",
    "diffprivlib, forest": "diffprivlib_python",
    "diffprivlib, linear": "diffprivlib_python",
    "Opacus": "opacus_python",
}
SCRIPT = Path(__file__).with_name("peer_fits.py")
OF_CLASSES = ("diffprivlib, forest", "Opacus")


def rows(args):
    """Methods take turns, so that all of them have the machine as it is."""
    for name, task in TABLES:
        table = _raw_tables.load(name, task)
        chosen = [m for m in METHODS if task == "classes" or m not in OF_CLASSES]
        chosen = [m for m in chosen if METHODS[m] is None or getattr(args, METHODS[m])]
        with tempfile.TemporaryDirectory() as folder:
            given = Path(folder) / "given.npz"
            np.savez(given, **arrays(table))
            job = {"table": name, "task": task, "given": str(given), "epsilon": 1.0}
            job |= {"delta": DELTA, "found": str(Path(folder) / "found.npy")}
            fits = [
                {m: one_fit(args, table, job | {"method": m, "seed": seed}) for m in chosen}
                for seed in args.seeds
            ]
        for method in chosen:
            yield summary(name, task, method, [each[method] for each in fits])


def one_fit(args, table, job):
    python = METHODS[job["method"]] and getattr(args, METHODS[job["method"]])
    found = answer(SCRIPT, job, python or sys.executable)
    return found | {"points": points(cut(np.load(job["found"]), table), table.y_test, job["task"])}


def summary(name, task, method, fits):
    def median(key, digits=3):
        return float(f"{np.median([fit[key] for fit in fits]):.{digits}g}")

    scores = [fit["points"] for fit in fits]
    memory = float(np.median([fit["peak_mb"] - fit["start_mb"] for fit in fits]))
    return {
        "table": name,
        "kind": task,
        "method": method,
        "points": round(float(np.mean(scores)), 1),
        "points_std": round(float(np.std(scores, ddof=1)), 1) if len(scores) > 1 else None,
        "seconds": median("clock_s"),
        "cpu_seconds": median("cpu_s"),
        "memory_mb": round(memory),
        "version": fits[0]["version"],
    }


if __name__ == "__main__":
    run(__doc__, rows, {name: Path for name in METHODS.values() if name} | {"seeds": 5})
