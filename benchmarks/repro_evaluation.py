"""Scores on private rows: how far released metrics are from exact ones, and what intervals cover.

Models are fitted on the training rows of real tables without noise, and scored on rows drawn from
the test rows. Sections:

- ``errors``: each metric alone on rows as they come, against the exact metric of the same
  rows, by the number of rows and epsilon.
- ``area``: the area under the ROC curve with balanced classes and with 5 % positives, for models
  with scores of many and of few values.
- ``together``: metrics asked for one by one and in one call, of the same epsilon.
- ``coverage``: how often 95 % intervals hold the metric on all test rows, of which rows are drawn
  with replacement.

Errors are medians and root mean squares over draws of rows and noise; delta is "auto".

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_evaluation.py
       [errors area together coverage] [--seeds 100] [--out benchmarks/results/evaluation.json]
"""

from functools import cache

import _data
import _tables
import numpy as np
from _run import run
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dpsubspace import PrivacyError, PrivacyWarning, private_score

SIZES, EPSILONS = (500, 2000, 8000), (0.3, 0.5, 1.0, 3.0)
LOSS_BOUND = 5.0


class Known:
    """A model of which the outputs on some rows are known: a row is its number."""

    def __init__(self, predictions, chances=None):
        self.predictions, self.chances = predictions, chances
        self.classes_, self.n_features_in_ = np.array([0, 1]), 1

    def predict(self, X):
        """Label or number that the model gives for each row."""
        return self.predictions[np.asarray(X)[:, 0]]

    def predict_proba(self, X):
        """Probabilities of both classes."""
        return self.chances[np.asarray(X)[:, 0]]


def _binary(model, X, y, X_test, y_test):
    model.fit(X, y)
    return Known(model.predict(X_test), model.predict_proba(X_test)), np.asarray(y_test)


def _adult(model):
    return _binary(model, *_data.load("adult"))


def _digits(positive):
    X, y, X_test, y_test = _data.load("mnist")
    labels, tests = np.isin(y[:6000], positive), np.isin(y_test, positive)
    model = LogisticRegression(C=0.1, max_iter=200)
    return _binary(model, X[:6000], labels.astype(int), X_test, tests.astype(int))


def _wine():
    X, y, X_test, y_test = _data.load("wine_quality")
    X, y = np.vstack([X, X_test]), (np.append(y, y_test) >= 7).astype(int)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:3000], order[3000:]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return _binary(model, X[train], y[train], X[test], y[test])


MODELS = {
    "Adult": lambda: _adult(LogisticRegression(max_iter=500)),
    "MNIST, even digits": lambda: _digits([0, 2, 4, 6, 8]),
    "MNIST, eights": lambda: _digits([8]),
    "Wine, good ones": _wine,
    "Adult, forest of 50": lambda: _adult(
        RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    ),
    "Adult, tree of 8 leaves": lambda: _adult(
        DecisionTreeClassifier(max_leaf_nodes=8, random_state=0)
    ),
}
TABLES = [*MODELS][:4]


@cache
def known(name):
    """Model with known outputs and the labels of its test rows."""
    return MODELS[name]()


@cache
def california():
    """The same for prices of houses, and their public range."""
    table = _tables.load("california")
    order = np.random.default_rng(0).permutation(len(table.y))
    train, test = order[:8000], order[8000:]
    model = make_pipeline(StandardScaler(), Ridge()).fit(table.X[train], table.y[train])
    return Known(model.predict(table.X[test])), table.y[test], table.target_bounds


def _log_loss(model, rows, y):
    losses = -np.log(np.maximum(model.chances[rows, y], 1e-300))
    return np.minimum(losses, LOSS_BOUND).mean()


EXACT = {
    "roc_auc": lambda m, rows, y: roc_auc_score(y, m.chances[rows, 1]),
    "accuracy": lambda m, rows, y: accuracy_score(y, m.predictions[rows]),
    "balanced_accuracy": lambda m, rows, y: balanced_accuracy_score(y, m.predictions[rows]),
    "f1": lambda m, rows, y: f1_score(y, m.predictions[rows]),
    "log_loss": _log_loss,
    "brier_score_loss": lambda m, rows, y: brier_score_loss(y, m.chances[rows, 1]),
}


def _in_bounds(score):
    def scored(m, rows, y):
        low, high = california()[2]
        return score(np.clip(y, low, high), np.clip(m.predictions[rows], low, high))

    return scored


NUMBERS = {
    "r2": _in_bounds(r2_score),
    "root_mean_squared_error": _in_bounds(root_mean_squared_error),
    "mean_absolute_error": _in_bounds(mean_absolute_error),
}


def drawn(labels, n, seed, share=None):
    """Numbers of rows, of which a `share` has the label 1 where that is given."""
    rng = np.random.default_rng(seed)
    if share is None:
        return rng.permutation(len(labels))[:n]
    positive = round(n * share)
    parts = [(np.flatnonzero(labels == c), k) for c, k in ((1, positive), (0, n - positive))]
    return np.concatenate([rng.permutation(part)[:k] for part, k in parts])


def released(model, rows, y, **options):
    """What is released of these rows; None where that is refused."""
    try:
        return private_score(model, rows[:, None], y, **options)
    except PrivacyError:
        return None


def summary(errors, refused=0):
    """Of the sizes of errors."""
    errors = np.abs(errors)
    found = {"median error": np.nan, "rms error": np.nan}
    if len(errors):
        found = {"median error": np.median(errors), "rms error": np.sqrt(np.mean(errors**2))}
    return {name: float(f"{value:.3g}") for name, value in found.items()} | {"refused": refused}


def error_of(model, labels, metric, exact, args, n, share=None, **options):
    """Errors of one metric over draws of rows and of noise, and the mean exact value."""
    errors, values, refused = [], [], 0
    for seed in args.seeds:
        rows = drawn(labels, n, seed, share)
        score = released(model, rows, labels[rows], metric=metric, random_state=seed, **options)
        values.append(exact(model, rows, labels[rows]))
        refused += score is None
        if score is not None:
            errors.append(float(score) - values[-1])
    return {"exact": float(f"{np.mean(values):.4g}")} | summary(np.array(errors), refused)


def errors(args):
    for name in [*TABLES, "California, prices"]:
        if name in MODELS:
            model, labels, options, metrics = *known(name), {}, EXACT
        else:
            model, labels, bounds = california()
            options, metrics = {"target_bounds": bounds}, NUMBERS
        for metric, exact in metrics.items():
            for n in [n for n in SIZES if n <= len(labels)]:
                for epsilon in EPSILONS:
                    given = options | {"epsilon": epsilon}
                    found = error_of(model, labels, metric, exact, args, n, **given)
                    yield {"table": name, "metric": metric, "n": n, "epsilon": epsilon} | found


def area(args):
    cases = [(share, epsilon, "zero_out") for share in (0.5, 0.05) for epsilon in (0.3, 0.5, 1.0)]
    for name in MODELS:
        model, labels = known(name)
        n = min(2000, 2 * int(labels.sum()))
        for share, epsilon, relation in [*cases, (0.5, 0.5, "replace_one")]:
            options = {"epsilon": epsilon, "neighboring_relation": relation}
            found = error_of(model, labels, "roc_auc", EXACT["roc_auc"], args, n, share, **options)
            row = {"table": name, "positives": share, "n": n, "epsilon": epsilon}
            yield row | {"relation": relation} | found


def together(args):
    for name in TABLES[:2]:
        model, labels = known(name)
        for epsilon in (0.5, 1.0):
            asked, found = [*EXACT], {metric: ([], []) for metric in EXACT}
            for seed in args.seeds:
                rows = drawn(labels, 2000, seed)
                y = labels[rows]
                options = {"epsilon": epsilon, "random_state": seed}
                all_of_them = released(model, rows, y, metric=asked, **options)
                for metric in asked:
                    alone = released(model, rows, y, metric=metric, **options)
                    exact = EXACT[metric](model, rows, y)
                    for each, score in zip(
                        found[metric], (alone, all_of_them[metric]), strict=True
                    ):
                        if score is not None:
                            each.append(float(score) - exact)
            for metric, (alone, beside) in found.items():
                medians = {"alone": alone, "in one call": beside}
                medians = {k: float(f"{np.median(np.abs(v)):.3g}") for k, v in medians.items()}
                yield {"table": name, "epsilon": epsilon, "metric": metric} | medians


def covered(model, labels, metric, exact, args, n, **options):
    """How often intervals hold the metric on all rows, and how wide they are."""
    truth, hits, widths = exact(model, np.arange(len(labels)), labels), [], []
    for seed in args.seeds:
        rows = np.random.default_rng(seed).integers(len(labels), size=n)
        score = released(model, rows, labels[rows], metric=metric, random_state=seed, **options)
        if score is not None:
            hits.append(score.low <= truth <= score.high)
            widths.append(score.high - score.low)
    if not hits:
        return {"covered": None, "width": None, "refused": len(args.seeds)}
    refused = len(args.seeds) - len(hits)
    return {
        "covered": float(f"{np.mean(hits):.3g}"),
        "width": float(f"{np.mean(widths):.3g}"),
        "refused": refused,
    }


def coverage(args):
    for name in [*MODELS, "California, prices"]:
        if name in MODELS:
            model, labels, options, metrics = *known(name), {}, EXACT
        else:
            model, labels, bounds = california()
            options, metrics = {"target_bounds": bounds}, NUMBERS
        if name not in TABLES and name in MODELS:
            metrics = {"roc_auc": EXACT["roc_auc"]}
        for metric, exact in metrics.items():
            for n, epsilon in ((500, 1.0), (2000, 0.5), (8000, 1.0)):
                given = options | {"epsilon": epsilon}
                found = covered(model, labels, metric, exact, args, n, **given)
                yield {"table": name, "metric": metric, "n": n, "epsilon": epsilon} | found


if __name__ == "__main__":
    sections = {"errors": errors, "area": area, "together": together, "coverage": coverage}
    run(__doc__, sections, {"seeds": 100}, ignored=[PrivacyWarning])
