"""Why there are two recipes of a recentred mean: `private_mean` with the radius of either.

The radius that rows are shortened to about a rough mean is searched for over twenty stages
("search", as shipped), or read off six counts ("counts", what models are trained with), also with
both means shrunk by their noise ("shrunk"). Errors are root mean squares over seeds, of the
distance from the exact mean; "counts" and "shrunk" are in units of "search".

usage: python benchmarks/bench_centring.py [--seeds 30] [--out benchmarks/results/centring.json]
"""

from contextlib import contextmanager
from functools import partial

import numpy as np
from _run import run
from sklearn.datasets import load_digits

from dpsubspace import private_mean
from dpsubspace._core.accounting.budget import Part
from dpsubspace._core.plans import mean as plans
from dpsubspace._core.rows.records import Shift
from dpsubspace._core.statistics.counts import RADIUS_COUNTS, noisy_radius
from dpsubspace._core.statistics.means import bounded_row_sum, noisy_mean, searched_mean
from dpsubspace.exceptions import PrivacyWarning

SEARCH = plans._MEAN["recentre"]
COUNTS = SEARCH | {"radius": Part(1 / 3, RADIUS_COUNTS)}
RECIPES = {"search": (searched_mean, SEARCH)}


def counted_mean(features, norm_bound, releases, *, shrunk):
    """`searched_mean`, with the radius of the mean that models are centred by."""
    n, scale = features.n_samples, releases.budget.scales["mean"]

    def mean(rows, bound, name):
        if shrunk:
            return noisy_mean(rows, bound, releases, name).mean
        return releases.gaussian(name, bounded_row_sum(rows, bound)) / n

    first = mean(features, norm_bound, "centre")
    about, outside = features.shifted(Shift(first, None)), min(0.5, scale * features.width**0.5 / n)
    options = {"within": 1 - outside, "margin": 0.0}
    radius = noisy_radius(about.distances(), 2 * norm_bound, releases, "radius", **options)
    return first + mean(about.clipped(radius), radius, "mean"), radius


for name, shrunk in (("counts", False), ("shrunk", True)):
    RECIPES[name] = partial(counted_mean, shrunk=shrunk), COUNTS


@contextmanager
def recipe(name):
    """`private_mean` by a recipe."""
    plans.searched_mean, plans._MEAN["recentre"] = RECIPES[name]
    try:
        yield
    finally:
        plans.searched_mean, plans._MEAN["recentre"] = RECIPES["search"]


def tables():
    """Name, rows and public bound on their norms."""
    rng = np.random.default_rng(0)
    for n in (1000, 10_000):
        yield f"2 normal columns far from 0, n={n}", rng.normal([100, -50], 1.0, (n, 2)), 200
        yield f"20 normal columns, n={n}", rng.normal(3, 1.0, (n, 20)), 50
        yield f"20 normal columns far from 0, n={n}", rng.normal(100, 1.0, (n, 20)), 1000
        yield f"1 lognormal column, n={n}", rng.lognormal(10, 1, (n, 1)), 1e6
        yield f"5 heavy tails, n={n}", rng.standard_t(2.5, (n, 5)) + 10, 100
        sparse = (rng.random((n, 50)) < 0.1) * rng.exponential(1, (n, 50))
        yield f"50 columns of mostly 0, n={n}", sparse, 50
    yield "digits", load_digits().data, 60


def rows(args):
    for name, X, norm in tables():
        for epsilon in (0.3, 1.0, 3.0):
            error, options = {}, {"data_norm": norm, "epsilon": epsilon}
            for each in RECIPES:
                with recipe(each):
                    found = [private_mean(X, **options, random_state=s).value for s in args.seeds]
                squares = ((np.array(found) - X.mean(axis=0)) ** 2).sum(axis=1)
                error[each] = float(np.sqrt(squares.mean()))
            row = {"rows": name, "epsilon": epsilon, "search": error["search"]}
            yield row | {k: error[k] / error["search"] for k in ("counts", "shrunk")}


if __name__ == "__main__":
    run(__doc__, rows, {"seeds": 30}, ignored=(PrivacyWarning,))
