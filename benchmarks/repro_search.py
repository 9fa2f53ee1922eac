"""When tuning pays, where all of it is paid for.

Eight candidates: four encodings of the rows (as they are, and 200 random Fourier features of three
widths, which are public maps) and two estimators (`DPSGDClassifier`, `DPSGDFClassifier`). At one
honest total epsilon there are four ways to use it:

- default: one fit of the default, `DPSGDFClassifier` on the rows as they are;
- search: `PrivateSearch` over the eight, a mean of 10 trials, a fifth of the rows held out;
- pair: the same over two candidates only, the default and one encoding, which are both fitted;
- grid: `GridSearchCV` in 3 folds, whose fits share the budget. A row is in the training part of
  2 of 3 folds of each candidate and in the refit: 17 fits. Its scores have no noise: that they are
  not paid for at all is in its favour.

Two more are for comparison. "uncharged" is the grid search as it is often run, each fit at the
epsilon that is reported: its true total is given. "best" is the candidate that is best *on the
test rows* at the whole epsilon, in the mean over seeds: what a choice could bring at most.

The section `cost` holds the noise of a search against closed forms: the multiplier relative to
that of one fit, by the formula of the theorem at all orders, and by the accountant.

At most 3,000 rows are used to train. Beside real sets there is "quarters", the sign of a product of
two columns, of which no linear boundary tells anything.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_search.py [cost accuracy] [--sets digits ...]
       [--seeds 3] [--out FILE]
"""

import math
import warnings

import _data
import numpy as np
from _run import run, spread
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from dpsubspace import (
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyWarning,
    PrivateSearch,
    privacy_cost,
)
from dpsubspace.budget import share_budget

SETS = ("digits", "adult", "wine_colour", "mnist8k", "quarters")
EPSILONS = (1.0, 3.0)
DELTA = 1e-5
MOST_ROWS = 3_000
POOLED = ("mnist8k",)
WIDTHS = (0.5, 2.0, 8.0)  # gamma of the Gaussian kernel, for rows of length 1
FOLDS = 3


def quarters():
    """Rows of a plane, labelled by the sign of a product: lines are at chance."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(8000, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X[:MOST_ROWS], y[:MOST_ROWS], X[MOST_ROWS:], y[MOST_ROWS:]


def rows_of(name):
    if name == "quarters":
        return quarters()
    X, y, X_test, y_test = _data.load(name)
    if name in POOLED:
        X, X_test = _data.halved(X), _data.halved(X_test)
    kept = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    return X[kept], y[kept], X_test, y_test


def candidates(n_features):
    """Encodings and estimators; the first is the default."""
    anywhere = np.zeros((1, n_features))
    maps = [RBFSampler(gamma=g, n_components=200, random_state=0) for g in WIDTHS]
    encodings = ["passthrough", *(FrozenEstimator(each.fit(anywhere)) for each in maps)]
    return {"rows": encodings, "model": [DPSGDFClassifier(), DPSGDClassifier()]}


def pipeline():
    return Pipeline([("rows", "passthrough"), ("model", DPSGDFClassifier())])


def at(epsilon, params, seed):
    """A candidate at a budget."""
    model = clone(pipeline()).set_params(**{k: clone(v, safe=False) for k, v in params.items()})
    return model.set_params(model__epsilon=epsilon, model__delta=DELTA, model__random_state=seed)


def listed(grid):
    return [{"rows": r, "model": m} for r in grid["rows"] for m in grid["model"]]


def name_of(params):
    encoding = params["rows"]
    width = "" if encoding == "passthrough" else f", width {encoding.estimator.gamma:g}"
    return type(params["model"]).__name__ + width


def grid_search(grid, epsilon, X, y, seed):
    """Grid search of which each fit has a budget, and noise of its own."""
    options = {"model__epsilon": epsilon, "model__delta": DELTA}
    model = pipeline().set_params(**options)
    budgets = {"epsilon": epsilon, "delta": DELTA, "random_state": np.random.RandomState(seed)}
    models = [clone(each).set_params(**budgets) for each in grid["model"]]
    return GridSearchCV(model, grid | {"model": models}, cv=FOLDS).fit(X, y)


def share_of_one(n_fits, epsilon, n):
    """Epsilon of each of some equal fits that cost `epsilon` together."""
    fits = [DPSGDFClassifier() for _ in range(n_fits)]
    share_budget(fits, epsilon, DELTA, n_samples=n)
    return fits[0].epsilon


def accuracy(args):
    for name in args.sets:
        X, y, X_test, y_test = rows_of(name)
        grid = candidates(X.shape[1])
        tried = listed(grid)
        n_fits = len(tried) * (FOLDS - 1) + 1
        for epsilon in EPSILONS:
            found, chosen = {"default": [], "search": [], "pair": []}, []
            found |= {"grid": [], "uncharged": []}
            each = share_of_one(n_fits, epsilon, len(X))
            for seed in args.seeds:
                options = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
                model = PrivateSearch(pipeline(), grid, **options).fit(X, y)
                found["search"].append(model.score(X_test, y_test))
                chosen.append(name_of(model.best_params_))
                few = {"rows": [grid["rows"][i] for i in (0, 2)]}
                model = PrivateSearch(pipeline(), few, **options).fit(X, y)
                found["pair"].append(model.score(X_test, y_test))
                for way, budget in (("grid", each), ("uncharged", epsilon)):
                    model = grid_search(grid, budget, X, y, seed)
                    found[way].append(model.score(X_test, y_test))
            by_candidate = {
                name_of(params): [
                    at(epsilon, params, seed).fit(X, y).score(X_test, y_test) for seed in args.seeds
                ]
                for params in tried
            }
            default = name_of(tried[0])
            found["default"] = by_candidate[default]
            best = max(by_candidate, key=lambda name: np.mean(by_candidate[name]))
            true = privacy_cost(
                [DPSGDFClassifier(epsilon=epsilon, delta=DELTA)] * n_fits,
                n_samples=len(X),
                delta=DELTA,
            )
            found["best"] = by_candidate[best]
            row = {"data": name, "rows": len(X), "epsilon": epsilon}
            for way, scores in found.items():
                row |= spread(way, scores)
            yield row | {
                "best_is": best,
                "chosen_best": chosen.count(best) / len(chosen),
                "true_epsilon_of_uncharged": round(true, 2),
            }


def by_theorem(multiplier, mean, orders):
    """Epsilon of a search over Gaussians by the theorem, at orders that are close together."""
    low, high = 1e-12, 2 * math.log(mean) + 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.expm1(middle) / middle < mean else (low, middle)
    least = np.min((orders - 1) / multiplier**2 / 2 + low / orders)
    renyi = orders / multiplier**2 / 2 + least + math.log(mean) / (orders - 1)
    tail = np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)
    return float(np.min(renyi + tail))


def cost(args):
    orders = 1 + np.geomspace(1e-2, 1e5, 400_000)
    for epsilon in (0.3, 1.0, 3.0, 8.0):
        once = DPSGDClassifier(epsilon=epsilon, delta=DELTA, n_iter=1).privacy_event(1000)
        for mean in (3, 10, 30, 100):
            model = PrivateSearch(
                DPSGDClassifier(),
                {"alpha": [10.0**-i for i in range(2, 9)]},
                epsilon=epsilon,
                delta=DELTA,
                n_trials=mean,
                method="random",
            )
            multiplier = model.privacy_event(1000).event.noise_multiplier
            yield {
                "epsilon": epsilon,
                "trials": mean,
                "noise": multiplier / once.noise_multiplier,
                "accountant": privacy_cost(model, n_samples=1000, delta=DELTA),
                "theorem": by_theorem(multiplier, mean, orders),
            }


def main():
    warnings.simplefilter("ignore", PrivacyWarning)
    options = {"sets": list(SETS), "seeds": 3}
    run(__doc__, {"cost": cost, "accuracy": accuracy}, options, ignored=[PrivacyWarning])


if __name__ == "__main__":
    main()
