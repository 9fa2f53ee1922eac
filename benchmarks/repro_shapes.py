"""Bands of ShapeDisplay: how often they cover the same fit without noise, and how wide they are.

Every table is fitted with several seeds, and once with sums of gradients that get no noise. The
bands are to cover 90 % of the points of that fit's curves and bars. "ratio" is the width of the
bands beside what they would need: root mean squares over points and seeds of the standard
deviation that bands are made of, over that of the curves over seeds, by column. Tables are all with
1,000 rows (or what they have) and with at most 6,000.

Two constants of the bands were chosen on Adult, California and simulated patients; see
``_estimators/column_shapes.py``.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_shapes.py [classes values]
       [--seeds 8] [--epsilon 1] [--sizes 1000 6000] [--quick]
       [--out benchmarks/results/shapes.json]
"""

import _raw_tables
import numpy as np
from _run import run
from scipy.stats import norm

from dpsubspace import DPLinearRegression, DPSGDFClassifier, DPSGDRegressor, tabular_pipeline
from dpsubspace._estimators.column_shapes import shapes_of
from dpsubspace._release.releases import Releases
from dpsubspace._solvers.descent import STEPS
from dpsubspace.exceptions import PrivacyWarning

LEVEL, POINTS = 0.9, 41


class Silent:
    """While it is entered, sums of gradients are released without noise."""

    def __enter__(self):
        self.released = released = Releases.jointly

        def jointly(releases, name, sums, *args, **kwargs):
            found = released(releases, name, sums, *args, **kwargs)
            return tuple(each.value for each in sums) if name == STEPS else found

        Releases.jointly = jointly

    def __exit__(self, *error):
        Releases.jointly = self.released


def shapes(estimator, table, epsilon, seed):
    """Values and standard deviations by column."""
    model = tabular_pipeline(estimator, table.schema, epsilon=epsilon, target=table.target)
    model.set_params(random_state=seed).fit(table.X, table.y)
    found = shapes_of(model[0].encoding_, model[-1])
    return {name: found.of(name, POINTS) for name in table.schema}


def row(name, task, estimator, size, args):
    """How the bands of one estimator on one table are."""
    table = _raw_tables.few(_raw_tables.load(name, task), size, 0)
    runs = [shapes(estimator, table, args.epsilon, seed) for seed in args.seeds]
    with Silent():
        exact = shapes(estimator, table, args.epsilon, args.seeds[0])
    covered, ratios = [], []
    for column in table.schema:
        values = np.array([each[column].values for each in runs])
        std = np.array([each[column].std for each in runs])
        half = norm.ppf((1 + LEVEL) / 2) * std
        covered.append(np.mean(np.abs(values - exact[column].values) <= half))
        spread = np.sqrt(values.var(axis=0, ddof=1).mean())
        ratios.append(np.sqrt(np.mean(std**2)) / max(spread, 1e-12))
    return {
        "table": name,
        "estimator": type(estimator).__name__,
        "rows": len(table.y),
        "columns": len(table.schema),
        "covered": float(np.mean(covered)),
        "least of a column": float(np.min(covered)),
        "ratio, median": float(np.median(ratios)),
        "ratio, most": float(np.max(ratios)),
    }


def of_task(task, estimators):
    """A section: every table of a task."""

    def section(args):
        for size in args.sizes[: 1 if args.quick else None]:
            for name in _raw_tables.names(task)[: 2 if args.quick else None]:
                for estimator in estimators:
                    yield row(name, task, estimator, size, args)

    return section


if __name__ == "__main__":
    run(
        __doc__,
        {
            "classes": of_task("classes", [DPSGDFClassifier()]),
            "values": of_task("values", [DPLinearRegression(), DPSGDRegressor()]),
        },
        {"seeds": 8, "epsilon": 1.0, "sizes": [1000, 6000], "quick": False},
        ignored=(PrivacyWarning,),
    )
