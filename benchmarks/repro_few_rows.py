"""Private linear regression from few rows: what public ranges, public rows and public tasks buy.

Every seed draws the split and the noise; delta is 1e-5. R2 is on test rows: median and least of the
seeds, by the number of private rows. Sections:

- ``ranges``: California housing, with what is public of ranges; columns are as they come.
- ``width``: the same with ranges that are wider than the table's, by a factor.
- ``tasks``: exam results, half of the schools being public tasks; beside them a fit of all
  public rows together, which looks at no private row.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_few_rows.py [ranges width tasks]
       [--seeds 10] [--epsilon 1] [--out benchmarks/results/few_rows.json]
"""

from functools import partial

import _tables
import numpy as np
from _run import run
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from dpsubspace import BoundedScaler, DPLinearRegression, DPSGDRegressor, PrivacyWarning
from dpsubspace.linear_model import PublicSubspaceLinearRegression

SIZES = (100, 200, 500, 1000, 5000)
WIDTHS = (1, 3, 10, 30, 100)
DELTA = 1e-5


def scores(make, name, n_train, args, **public):
    """R2 on test rows by seed; `make` returns an estimator for a seed."""
    found = []
    for seed in args.seeds:
        split = _tables.split(_tables.load(name), seed, n_train)
        model = make(epsilon=args.epsilon, delta=DELTA, random_state=seed)
        found.append(model.fit(split.X, split.y, **public).score(split.X_test, split.y_test))
    return found


def row(title, found):
    """A line of the table."""
    medians = {str(size): float(np.median(each)) for size, each in found.items()}
    least = {f"least, {size}": float(np.min(each)) for size, each in found.items()}
    return {"method": title, **medians, **least}


def scaled(bounds, target_bounds, **options):
    """DP-SGD on columns that public ranges scale."""
    model = DPSGDRegressor(data_norm=1.0, target_bounds=target_bounds, **options)
    return make_pipeline(BoundedScaler(bounds=bounds), model)


def ranges(args):
    table = _tables.load("california")
    bounds, target = {"bounds": table.bounds}, {"target_bounds": table.target_bounds}
    methods = {
        "nothing": DPLinearRegression,
        "range of the target": partial(DPLinearRegression, **target),
        "ranges of the columns": partial(DPLinearRegression, **bounds),
        "both": partial(DPLinearRegression, **bounds, **target),
        "DPSGDRegressor, nothing": DPSGDRegressor,
        "DPSGDRegressor, both": partial(scaled, **bounds, **target),
    }
    for title, make in methods.items():
        yield row(title, {n: scores(make, "california", n, args) for n in SIZES})


def width(args):
    table = _tables.load("california")
    (low, high), (least, most) = table.bounds, table.target_bounds
    for factor in WIDTHS:
        more, further = (factor - 1) / 2 * (high - low), (factor - 1) / 2 * (most - least)
        bounds = {"bounds": (low - more, high + more)}
        bounds |= {"target_bounds": (least - further, most + further)}
        make = partial(DPLinearRegression, **bounds)
        yield row(f"{factor} times", {n: scores(make, "california", n, args) for n in SIZES[2:]})


def tasks(args):
    table = _tables.load("school_public")
    rows, targets = zip(*table.public, strict=True)
    known = partial(DPLinearRegression, target_bounds=table.target_bounds)
    few = PublicSubspaceLinearRegression
    public = {"X_public": rows, "y_public": targets}
    methods = {
        "all columns, nothing public": (DPLinearRegression, {}),
        "all columns, X_public": (known, {"X_public": rows}),
        "directions of tasks": (few, public),
    }
    for title, (make, given) in methods.items():
        found = {n: scores(make, "school_public", n, args, **given) for n in SIZES}
        yield row(title, found)
    alone = LinearRegression().fit(np.concatenate(rows), np.concatenate(targets))
    tests = [_tables.split(table, seed, 100) for seed in args.seeds]
    yield row("public rows alone", {"any": [alone.score(s.X_test, s.y_test) for s in tests]})


if __name__ == "__main__":
    sections = {"ranges": ranges, "width": width, "tasks": tasks}
    run(__doc__, sections, {"seeds": 10, "epsilon": 1.0}, ignored=[PrivacyWarning])
