"""Cost of a private step against the two matrix products that no step can avoid.

Both are timed in turn in one process; the ratio of medians is what counts.

usage: python benchmarks/bench_step.py [--rows 60000] [--out benchmarks/results/step.json]
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np

import dpsubspace
from dpsubspace._features import Features
from dpsubspace._gradients import LinearSource
from dpsubspace._losses import LogLoss
from dpsubspace._noise import SecureNoise
from dpsubspace._scaling import RowMap, Shift
from dpsubspace._training import FlatStep, TrainingPlan, train


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--centred", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    X = rng.random((args.rows, args.features), dtype=np.float32)
    y = rng.integers(args.classes, size=args.rows)
    weights = rng.normal(size=(args.features, args.classes))
    residual = rng.normal(size=(args.rows, args.classes)).astype(np.float32)
    features = Features(X, RowMap(norm="l2", bias=0.5))
    if args.centred:
        features = features.shifted(Shift(np.full(args.features + 1, 0.01), 0.3))
    source = LinearSource(LogLoss(), features, y)
    start = rng.normal(size=(features.width, args.classes))
    plan = TrainingPlan(
        n_iter=1,
        noise_multiplier=40.0,
        sample_rate=1.0,
        learning_rate=1.0,
        momentum=0.9,
        alpha=1e-4,
        average=True,
        neighboring_relation="zero_out",
    )
    step, penalised = FlatStep(clip_norm=0.5), np.ones((features.width, 1))

    def floor():
        X @ weights.astype(np.float32)
        X.T @ residual

    def private():
        train(plan, step, source, start, penalised, noise=SecureNoise())

    times = np.array([(seconds(floor), seconds(private)) for _ in range(args.repeats + 1)])[1:]
    ratios = times[:, 1] / times[:, 0]
    row = {
        "floor_ms": round(float(np.median(times[:, 0])) * 1e3, 1),
        "private_ms": round(float(np.median(times[:, 1])) * 1e3, 1),
        "ratio_median": round(float(np.median(ratios)), 3),
        "ratio_min": round(float(ratios.min()), 3),
        "ratio_max": round(float(ratios.max()), 3),
    }
    print(row)
    if args.out:
        report = {
            "arguments": {k: v for k, v in vars(args).items() if k != "out"},
            "results": row,
            "versions": {
                "dpsubspace": dpsubspace.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
        args.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
