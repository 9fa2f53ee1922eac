"""Paired differences of two models: how short their intervals are, and what these cover.

Pairs of models are fitted on the training rows of a table without noise, and compared on rows drawn
from the test rows with replacement, by ``private_score_difference`` and by two calls of
``private_score`` with half of the epsilon each. The length beside is that of the interval of the
difference of two scores, as if they were independent: the root of the sum of squares of theirs.
Coverage is of the difference on all test rows.

- Breast cancer: two logistic regressions, of all columns and of ten of them.
- Adult: logistic regression and a tree of 64 leaves.
- Made up: two logistic regressions where 2 % have the outcome.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_difference.py [--seeds 100]
       [--out benchmarks/results/difference.json]
"""

from functools import cache

import _data
import numpy as np
from _run import run
from repro_evaluation import Known
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    roc_auc_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dpsubspace import PrivacyError, PrivacyWarning, private_score
from dpsubspace.metrics import private_score_difference

LOSS_BOUND = 5.0
SIZES = {"Breast cancer": 1000, "Adult": 4000, "Made up, 2 %": 10_000}


def _bounded_log_loss(y, chances):
    chances = np.clip(chances, np.exp(-LOSS_BOUND), None)
    return -np.log(chances[np.arange(len(y)), y]).mean()


EXACT = {
    "accuracy": lambda m, y: accuracy_score(y, m.predictions),
    "balanced_accuracy": lambda m, y: balanced_accuracy_score(y, m.predictions),
    "roc_auc": lambda m, y: roc_auc_score(y, m.chances[:, 1]),
    "log_loss": lambda m, y: _bounded_log_loss(y, m.chances),
}


def _fitted(models, X, y, X_test):
    found = []
    for model, columns in models:
        model.fit(X[:, columns], y)
        rows = X_test[:, columns]
        found.append(Known(model.predict(rows), model.predict_proba(rows)))
    return found


def _cancer():
    X, y = load_breast_cancer(return_X_y=True)
    models = [
        (make_pipeline(StandardScaler(), LogisticRegression()), slice(0, k)) for k in (30, 10)
    ]
    return _fitted(models, X[::2], y[::2], X[1::2]), y[1::2]


def _adult():
    X, y, X_test, y_test = _data.load("adult")
    every = slice(None)
    models = [(LogisticRegression(max_iter=500), every)]
    models += [(DecisionTreeClassifier(max_leaf_nodes=64, random_state=0), every)]
    return _fitted(models, X, y, X_test), np.asarray(y_test)


def _made_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 6))
    y = (X @ [1.0, 0.8, 0.6, 0.4, 0.0, 0.0] + rng.logistic(size=len(X)) > 5.2).astype(int)
    models = [(LogisticRegression(class_weight="balanced"), slice(0, k)) for k in (4, 2)]
    return _fitted(models, X[:10_000], y[:10_000], X[10_000:]), y[10_000:]


TABLES = {"Breast cancer": _cancer, "Adult": _adult, "Made up, 2 %": _made_up}


@cache
def known(name):
    """Models with known outputs, and the labels of the test rows."""
    return TABLES[name]()


def _released(call, *args, **options):
    try:
        return call(*args, **options)
    except PrivacyError:
        return None


def _compared(models, y, metric, epsilon, n, seed):
    rows = np.random.default_rng(seed).integers(len(y), size=n)
    given = {"metric": metric, "random_state": seed}
    data = rows[:, None], y[rows]
    paired = _released(private_score_difference, *models, *data, epsilon=epsilon, **given)
    two = [_released(private_score, m, *data, epsilon=epsilon / 2, **given) for m in models]
    return paired, None if None in two else two


def _row(found, truth):
    paired = [each for each, _ in found if each is not None]
    two = [each for _, each in found if each is not None]
    lengths = [np.hypot(*(s.high - s.low for s in pair)) for pair in two]
    overlap = [a.low <= b.high and b.low <= a.high for a, b in two]
    return {
        "difference": float(f"{truth:.3g}"),
        "covered": float(np.mean([d.low <= truth <= d.high for d in paired])),
        "length": float(f"{np.mean([d.high - d.low for d in paired]):.3g}"),
        "length of two": float(f"{np.mean(lengths):.3g}"),
        "sign told": float(np.mean([d.low * d.high > 0 for d in paired])),
        "two intervals apart": float(1 - np.mean(overlap)),
        "refused": len(found) - len(paired),
        "two refused": len(found) - len(two),
    }


def differences(args):
    for name in TABLES:
        models, y = known(name)
        for metric, exact in EXACT.items():
            truth = exact(models[0], y) - exact(models[1], y)
            for epsilon in (0.5, 1.0):
                found = [
                    _compared(models, y, metric, epsilon, SIZES[name], seed) for seed in args.seeds
                ]
                row = {"table": name, "metric": metric, "n": SIZES[name], "epsilon": epsilon}
                yield row | _row(found, truth)


if __name__ == "__main__":
    run(__doc__, differences, {"seeds": 100}, ignored=[PrivacyWarning])
