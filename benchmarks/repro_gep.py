"""What public rows buy private linear classifiers: MNIST, by epsilon, origin and number of rows.

A full factorial over epsilon, where public rows come from and how many there are, at 2,000
private rows; then one setting at 8,000 and at 60,000. Methods, all with their defaults:

dpsgd       DPSGDClassifier, and dpsgdf, DPSGDFClassifier: no public rows
b-gep, gep  directions of public gradients with random labels, as the paper has them, without
            and with the residual
default     GEPClassifier without public labels
public pca  the 60 first principal components of the public rows, frozen, then DPSGDClassifier
warm start  GEPClassifier with public labels
pda-dpmd    mirror descent: public gradients mixed in, without directions and start
public      logistic regression on the labelled public rows alone, no private row

Public rows of another origin have labels of another meaning: there "warm start" shows whether
the check finds out, and the last two are left out. Seeds draw rows and noise; the test set is
that of MNIST. "b-gep" and "gep" run for three seeds, with 2,000 public rows for two and at one
origin only, as they take long. Cells that are in the output file already are not run again.

usage: python benchmarks/repro_gep.py [--seeds 5] [--sizes 2000 8000 59000]
       [--methods default "warm start" ...] [--epsilons 0.5 ...] [--numbers 200 ...] [--out FILE]
"""

import time
from functools import cache

import _data
import numpy as np
from _run import earlier, run, spread
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, GEPClassifier
from dpsubspace.linear_model import GradientDirections

EPSILONS = (0.1, 0.5, 1.0, 2.0)
ORIGINS = {"mnist": "mnist", "kmnist": "kmnist8k", "fashion": "fashion"}
NUMBERS = (50, 200, 500, 2000)
ALONE = ("dpsgd", "dpsgdf")
UNLABELLED = ("default", "b-gep", "gep", "public pca", "warm start")
LABELLED = ("pda-dpmd", "public")


@cache
def images(name):
    """Data set with rows in float32."""
    return [a.astype(np.float32) if a.ndim == 2 else a for a in _data.load(name)]


def rows(origin, n, m, seed):
    """Private and public rows, and the test set."""
    X, y, X_test, y_test = images("mnist")
    order = np.random.default_rng(seed).permutation(len(X))
    private, rest = order[:n], order[n : n + m]
    P, labels = X[rest], y[rest]
    if origin not in ("", "mnist"):
        Q, meanings = images(ORIGINS[origin])[:2]
        some = np.random.default_rng(seed).permutation(len(Q))[:m]
        P, labels = Q[some], meanings[some]
    return X[private], y[private], P, labels, X_test, y_test


def accuracy(method, epsilon, seed, X, y, P, labels, X_test, y_test):
    """Accuracy of one fit on the test set."""
    options = {"epsilon": epsilon, "random_state": seed}
    public = {"X_public": (P,)}
    model = GEPClassifier(**options)
    if method == "public":
        folds = min(3, int(np.bincount(labels).min()) or 1)
        model = LogisticRegression(max_iter=200)
        if folds > 1:
            model = GridSearchCV(model, {"C": (0.1, 1, 10, 100)}, cv=folds)
        return model.fit(P, labels).score(X_test, y_test)
    if method in ALONE:
        Model = DPSGDClassifier if method == "dpsgd" else DPSGDFClassifier
        model, public = Model(**options), {}
    elif method in ("b-gep", "gep"):
        model.set_params(directions=GradientDirections(residual=method == "gep"))
    elif method == "public pca":
        pca = PCA(min(60, len(P)), random_state=0).fit(P)
        model, public = make_pipeline(FrozenEstimator(pca), DPSGDClassifier(**options)), {}
    elif method == "warm start":
        public["y_public"] = (labels,)
    elif method == "pda-dpmd":
        public["y_public"] = (labels,)
        model.set_params(n_components=0, init="zero", mirror=True)
    return model.fit(X, y, **public).score(X_test, y_test)


def cells(sizes):
    """Number of rows, origin and number of public rows, epsilon and method of every cell."""
    for n in sizes:
        origins, numbers = (
            (ORIGINS, NUMBERS) if n == 2000 else (("mnist",), (200 if n < 20_000 else 500,))
        )
        for epsilon in EPSILONS:
            yield from ((n, "", 0, epsilon, method) for method in ALONE)
        for m in numbers:
            for origin in origins:
                methods = UNLABELLED + (LABELLED if origin == "mnist" else ())
                for method in methods:
                    slow = m == 2000 and method in ("gep", "b-gep")
                    if not (slow and origin != "mnist"):
                        for epsilon in EPSILONS[:1] if method == "public" else EPSILONS:
                            yield n, origin, m, epsilon, method


def measured(cell, seeds):
    """Mean accuracy of a cell and its spread."""
    n, origin, m, epsilon, method = cell
    if method in ("gep", "b-gep"):
        seeds = seeds[: 2 if m == 2000 else 3]
    if n > 20_000:
        seeds = seeds[:3]
    start = time.perf_counter()
    values = [accuracy(method, epsilon, seed, *rows(origin, n, m, seed)) for seed in seeds]
    seconds = (time.perf_counter() - start) / len(values)
    names = ("n", "origin", "public_rows", "epsilon", "method")
    row = dict(zip(names, cell, strict=True))
    return row | spread("accuracy", values) | {"seconds": round(seconds, 2)}


def all_rows(args):
    """What the output file has, then what it lacks."""
    known = earlier(args.out)
    yield from known
    there = {(r["n"], r["origin"], r["public_rows"], r["epsilon"], r["method"]) for r in known}
    for cell in cells(args.sizes):
        *_, number, epsilon, method = cell
        asked = number in (0, *args.numbers) and epsilon in args.epsilons
        if cell not in there and asked and method in (args.methods or [method]):
            yield measured(cell, args.seeds)


if __name__ == "__main__":
    # Small data sets and epsilons are the point.
    options = {"seeds": 5, "sizes": [2000, 8000, 59_000], "methods": []}
    options |= {"epsilons": list(EPSILONS), "numbers": list(NUMBERS)}
    run(__doc__, all_rows, options, ignored=(Warning,))
