"""What bounds, radii and means cost before a model: counts of many rows against a pass over them.

bounds         the counts of BoundedScaler(bounds="private"), beside those by a search among the
               edges of the cells and by sorted columns: the same counts; and a whole fit
preprocessing  norms of the rows, distances from a mean, and the centring of
               DPSGDFClassifier(preprocessing="adaptive"), beside the sums of all columns

usage: python benchmarks/bench_counts.py [bounds preprocessing] [--threads 1 2]
           [--rows 10000 100000 1000000] [--features 10 20 100 784]
           [--out benchmarks/results/counts.json]

Medians on a machine that does other work vary: compare ratios, and look at the load.
"""

import numpy as np
from _run import in_turns, ms, ratios, run
from threadpoolctl import threadpool_limits

from dpsubspace import BoundedScaler, PrivacyWarning
from dpsubspace._core.accounting.budget import Budget, Sizes, Target
from dpsubspace._core.fits.bounds import AdaptiveCentre
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.statistics.counts import _CELLS, CountedRanks, _counts
from dpsubspace._core.statistics.quantiles import _Doubles

MOST = 1 << 27  # entries of a table


def tables(args):
    """Rows of all sizes and dtypes that fit, with one thread and with more."""
    for n in args.rows:
        for d in args.features:
            if n * d > MOST:
                continue
            X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32) * 0.3 + 0.2
            for dtype in ("float32", "float64"):
                for threads in args.threads:
                    with threadpool_limits(limits=threads):
                        sizes = {"n": n, "d": d, "dtype": dtype, "threads": threads}
                        yield X.astype(dtype), sizes


def searched(X):
    """Counts in cells, each value searched for among the edges."""
    edges = _CELLS[1]
    n_cells = len(edges) - 1
    found = (np.clip(np.searchsorted(edges, column, "right"), 1, n_cells) - 1 for column in X.T)
    return np.array([np.bincount(cells, minlength=n_cells) for cells in found])


def ranks(X, places):
    """Ranks of two places a column, which the search ends at."""
    counted = CountedRanks(X, _Doubles(20).digits, _Doubles.octaves)
    return counted.before(places >> 10 << 10), counted.before(places)


def ranks_of_sorted(X, edges):
    ordered = np.sort(X, axis=0).astype(np.float64)
    return [column.searchsorted(edge) for column, edge in zip(ordered.T, edges, strict=True)]


def bound_rows(args):
    for X, row in tables(args):
        places = np.tile([2**19 - 2**17 - 5, 2**19 + 2**18 + 5], (X.shape[1], 1))
        edges = _Doubles(20).edge(places)
        assert (searched(X) == _counts(X, 1)).all()
        assert (ranks(X, places)[1] == ranks_of_sorted(X, edges)).all()
        calls = {
            "search": lambda X=X: searched(X),
            "counts": lambda X=X: _counts(X, 1),
            "sort": lambda X=X, edges=edges: ranks_of_sorted(X, edges),
            "ranks": lambda X=X, places=places: ranks(X, places),
            "fit": lambda X=X: BoundedScaler("private", random_state=0).fit(X),
        }
        found = timed(calls, args)
        for name, plain in (("counts", "search"), ("ranks", "sort"), ("fit", "sort")):
            yield row | {
                "what": name,
                "beside": plain,
                "beside_ms": ms(found[plain]),
                "ms": ms(found[name]),
                **ratios(found[name], found[plain]),
            }


def preprocessing_rows(args):
    centre = AdaptiveCentre()
    for X, row in tables(args):
        n, d = X.shape
        parts = dict(centre.parts(Sizes(n, d, 1)))
        budget = Budget.split(Target(1.0, 1e-6), parts, n)
        features = Features(X, RowMap(norm="l2", bias=0.5))
        shift = Shift(np.full(d + 1, 0.1), None)
        calls = {
            "pass": lambda X=X: X.sum(axis=0),
            "norms": lambda X=X: RowMap(norm="l2", bias=0.5).factors(X),
            "distances": lambda f=features, s=shift: f.shifted(s).distances(),
            "centring": lambda f=features, b=budget: centre(
                f, Releases(b, SeededNoise(0)), None, 0.5
            ),
        }
        found = timed(calls, args)
        for name in ("norms", "distances", "centring"):
            yield row | {
                "what": name,
                "pass_ms": ms(found["pass"]),
                "ms": ms(found[name]),
                **ratios(found[name], found["pass"]),
            }


def timed(calls, args):
    """Seconds of calls in turn, by name."""
    found = np.moveaxis(in_turns(list(calls.values()), args.repeats), 2, 0)
    return dict(zip(calls, found, strict=True))


SECTIONS = {"bounds": bound_rows, "preprocessing": preprocessing_rows}

OPTIONS = {
    "rows": [10_000, 100_000, 1_000_000],
    "features": [10, 20, 100, 784],
    "repeats": 5,
    "threads": [1],
}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, ignored=(PrivacyWarning,))
