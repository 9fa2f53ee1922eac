"""Bands of ShapeDisplay and ImportanceDisplay: how often they cover the same fit without noise.

Every table is fitted with several seeds, and once with sums of gradients that get no noise. The
bands are to cover 90 % of the points of that fit's curves and bars. "ratio" is the width of the
bands beside what they would need: root mean squares over points and seeds of the standard
deviation that bands are made of, over that of the curves over seeds, by column. Tables are all with
1,000 rows (or what they have) and with at most 6,000.

"importances" asks the same of ImportanceDisplay, with other seeds and sizes: there no release at
all has noise in the fit that is to be covered. "covered" is the share of seeds and columns,
"off" the mean distance of importances from those without noise, "bias" that of their means over
seeds, and "raw" the same for importances of which no noise is taken out. "moments" has bands of
curves, pairs and importances for the solver of that name.

Two constants of the bands were chosen on Adult, California and simulated patients; see
``tables/_column_shapes.py``. One of those of importances was chosen on Adult and California;
see ``tables/_column_importances.py``.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_shapes.py
       [classes values importances moments] [--seeds 8] [--many-seeds 200] [--epsilon 1]
       [--sizes 1000 6000] [--quick]
       [--out benchmarks/results/shapes.json]
"""

import _raw_tables
import numpy as np
from _run import run
from scipy.stats import norm

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    tabular_pipeline,
)
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.solvers.descent import STEPS
from dpsubspace.exceptions import PrivacyWarning
from dpsubspace.tables._column_importances import importances_of
from dpsubspace.tables._column_shapes import shapes_of

LEVEL, POINTS, PAIR_POINTS = 0.9, 41, 13


class Silent:
    """While it is entered, sums of gradients are released without noise, or all sums are."""

    def __init__(self, *, all_sums=False):
        self.all_sums = all_sums

    def __enter__(self):
        self.released = released = Releases.jointly, Releases.gaussian

        def jointly(releases, name, sums, *args, **kwargs):
            found = released[0](releases, name, sums, *args, **kwargs)
            return tuple(each.value for each in sums) if self.all_sums or name == STEPS else found

        def gaussian(releases, name, total, *args, **kwargs):
            found = released[1](releases, name, total, *args, **kwargs)
            return total.value if self.all_sums else found

        Releases.jointly, Releases.gaussian = jointly, gaussian

    def __exit__(self, *error):
        Releases.jointly, Releases.gaussian = self.released


def fitted(estimator, table, epsilon, seed):
    """Encoding and model of one fit."""
    model = tabular_pipeline(estimator, table.schema, epsilon=epsilon, target=table.target)
    model.set_params(random_state=seed).fit(table.X, table.y)
    return model[0].encoding_, model[-1]


def shapes(estimator, table, epsilon, seed, pairs=()):
    """Values and standard deviations by column."""
    found = shapes_of(*fitted(estimator, table, epsilon, seed))
    return {name: found.of(name, POINTS) for name in table.schema} | {
        names: found.of_pair(names, PAIR_POINTS) for names in pairs
    }


def row(name, task, estimator, size, args):
    """How the bands of one estimator on one table are."""
    table = _raw_tables.few(_raw_tables.load(name, task), size, 0)
    runs = [shapes(estimator, table, args.epsilon, seed) for seed in args.seeds]
    with Silent():
        exact = shapes(estimator, table, args.epsilon, args.seeds[0])
    return headed(name, estimator, table) | covering(runs, exact, table.schema)


def headed(name, estimator, table):
    return {
        "table": name,
        "estimator": type(estimator).__name__,
        "rows": len(table.y),
        "columns": len(table.schema),
    }


def covering(runs, exact, columns):
    """How often bands of shapes cover the exact ones, and how wide they are."""
    covered, ratios = [], []
    for column in columns:
        values = np.array([each[column].values for each in runs])
        std = np.array([each[column].std for each in runs])
        half = norm.ppf((1 + LEVEL) / 2) * std
        covered.append(np.mean(np.abs(values - exact[column].values) <= half))
        spread = np.sqrt(values.var(axis=0, ddof=1).mean())
        ratios.append(np.sqrt(np.mean(std**2)) / max(spread, 1e-12))
    return {
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


def importances(args):
    """A section: bands of importances."""
    for name, task, size, estimator in OF_IMPORTANCES[: 1 if args.quick else None]:
        table = _raw_tables.few(_raw_tables.load(name, task), size, 0)
        seeds = range(4 if args.quick else args.many_seeds)
        yield headed(name, estimator, table) | of_importances(estimator, table, args.epsilon, seeds)


def of_importances(estimator, table, epsilon, seeds):
    """How bands of importances are over fits of the same rows."""
    with Silent(all_sums=True):
        encoding, model = fitted(estimator, table, epsilon, 0)
    model._weight_noise = None  # there is nothing to take out
    exact, low, high, off, raw = importances_of(encoding, model).values, [], [], [], []
    for seed in seeds:
        encoding, model = fitted(estimator, table, epsilon, seed)
        found = importances_of(encoding, model, level=LEVEL)
        model._weight_noise = None
        low.append(found.low)
        high.append(found.high)
        off.append(found.values - exact)
        raw.append(importances_of(encoding, model).values - exact)
    covered = ((np.array(low) <= exact) & (exact <= np.array(high))).mean(axis=0)
    return {
        "seeds": len(low),
        "covered": float(covered.mean()),
        "least of a column": float(covered.min()),
        "width": float(np.mean(high) - np.mean(low)),
        "off": float(np.abs(off).mean()),
        "off, raw": float(np.abs(raw).mean()),
        "bias": float(np.abs(np.mean(off, axis=0)).mean()),
        "bias, raw": float(np.abs(np.mean(raw, axis=0)).mean()),
    }


OF_IMPORTANCES = [
    ("adult", "classes", 5000, DPSGDFClassifier()),
    ("adult", "classes", 1000, DPSGDFClassifier()),
    ("california", "values", 5000, DPLinearRegression()),
    ("california", "classes", 5000, DPSGDFClassifier()),
    ("bike", "classes", 5000, DPSGDFClassifier()),
    ("bike", "values", 5000, DPLinearRegression()),
    ("protein", "classes", 5000, DPSGDClassifier()),
    ("kin8nm", "values", 5000, DPLinearRegression()),
    ("elevators", "values", 5000, DPSGDRegressor()),
    ("wine", "classes", 1000, DPSGDFClassifier()),
    ("power", "values", 1000, DPLinearRegression()),
    ("diabetes", "values", 330, DPLinearRegression()),
]


def moments(args):
    """A section: bands of curves, pairs and importances of the solver "moments"."""
    estimator = DPLinearRegression(solver="moments")
    for name in ("california", "bike", "power", "kin8nm")[: 1 if args.quick else None]:
        for size, epsilon in ((5000, 1.0), (None, 3.0)):
            table = _raw_tables.few(_raw_tables.load(name, "values"), size, 0)
            columns = list(table.schema)
            pairs = [tuple(columns[:2]), tuple(columns[1:3])]
            runs = [shapes(estimator, table, epsilon, seed, pairs) for seed in args.seeds]
            with Silent(all_sums=True):
                exact = shapes(estimator, table, epsilon, args.seeds[0], pairs)
            seeds = range(4 if args.quick else args.many_seeds // 4)
            of_all = of_importances(estimator, table, epsilon, seeds)
            yield (
                {"epsilon": epsilon}
                | headed(name, estimator, table)
                | {f"{key}, curves": x for key, x in covering(runs, exact, columns).items()}
                | {f"{key}, pairs": x for key, x in covering(runs, exact, pairs).items()}
                | {f"{key}, importances": x for key, x in of_all.items()}
            )


if __name__ == "__main__":
    run(
        __doc__,
        {
            "classes": of_task("classes", [DPSGDFClassifier()]),
            "values": of_task("values", [DPLinearRegression(), DPSGDRegressor()]),
            "importances": importances,
            "moments": moments,
        },
        {"seeds": 8, "many_seeds": 200, "epsilon": 1.0, "sizes": [1000, 6000], "quick": False},
        ignored=(PrivacyWarning,),
    )
