"""What public rows buy private linear classifiers: MNIST, by epsilon, origin and number of rows.

usage: python benchmarks/repro_gep.py [--seeds 5] [--quick] [--only WORD] [--out FILE]

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
that of MNIST. Results are added to the output file as they come, and not computed twice.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import _data
import numpy as np
from _report import versions
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, GEPClassifier

EPSILONS = (0.1, 0.5, 1.0, 2.0)
ORIGINS = ("mnist", "kmnist", "fashion_mnist")
NUMBERS = (50, 200, 500, 2000)
ALONE = ("dpsgd", "dpsgdf")
UNLABELLED = ("b-gep", "gep", "default", "public pca", "warm start")
LABELLED = ("pda-dpmd", "public")


def rows(origin, n, m, seed):
    """Private and public rows, and the test set."""
    X, y, X_test, y_test = _data.load("mnist60k")
    order = np.random.default_rng(seed).permutation(len(X))
    private, rest = order[:n], order[n : n + m]
    if origin == "mnist":
        return X[private], y[private], X[rest], y[rest], X_test, y_test
    P, labels = _data.images(origin)
    some = np.random.default_rng(seed).permutation(len(P))[:m]
    return X[private], y[private], P[some], labels[some], X_test, y_test


def accuracy(method, epsilon, seed, X, y, P, labels, X_test, y_test):
    options = {"epsilon": epsilon, "random_state": seed}
    public = {"X_public": (P,)}
    model = GEPClassifier(**options)
    if method == "public":
        model, public = LogisticRegressionCV(Cs=5, cv=3, max_iter=200), {}
        X, y = P, labels
    elif method in ALONE:
        Model = DPSGDClassifier if method == "dpsgd" else DPSGDFClassifier
        model, public = Model(**options), {}
    elif method in ("b-gep", "gep"):
        model.set_params(directions="gradients", residual=method == "gep")
    elif method == "public pca":
        pca = PCA(min(60, len(P)), random_state=0).fit(P)
        model, public = make_pipeline(FrozenEstimator(pca), DPSGDClassifier(**options)), {}
    elif method == "warm start":
        public["y_public"] = (labels,)
    elif method == "pda-dpmd":
        public["y_public"] = (labels,)
        model.set_params(n_components=0, init="zero", mirror=True)
    return model.fit(X, y, **public).score(X_test, y_test)


def cells(quick):
    """(number of rows, origin, public rows, epsilon, method) of every cell."""
    epsilons, numbers = ((0.5,), (50, 200)) if quick else (EPSILONS, NUMBERS)
    for n, origins, sizes in ((2000, ORIGINS, numbers), (8000, ("mnist",), (200,)), (59000, ("mnist",), (500,))):
        for epsilon in epsilons:
            for method in ALONE:
                yield n, "", 0, epsilon, method
            for origin in origins:
                for m in sizes:
                    for method in UNLABELLED + (LABELLED if origin == "mnist" else ()):
                        if method != "public" or epsilon == epsilons[0]:
                            yield n, origin, m, epsilon, method


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="cells whose name holds this")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    done = {}
    if arguments.out and arguments.out.exists():
        done = json.loads(arguments.out.read_text())["accuracy"]
    ...
