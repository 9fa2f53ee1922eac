"""Recalibration and conformal sets of private classifiers, on private rows that were held out.

A ``DPSGDFClassifier`` of epsilon 1 is trained on `--rows` rows of a data set. Others of its rows,
drawn by each seed, recalibrate it or give its sets; all is measured on test rows. Sections:

- ``probabilities``: log loss and calibration error (ECE, 15 cells) before and after, by method,
  number of rows and epsilon; ``gain`` is the log loss saved, ``least gain`` that of the worst of
  twenty, ``best`` that of the best slope (and intercept) on the test rows themselves. The
  constants of the method were chosen on models of the sets marked "seen", test rows included.
- ``mechanisms``: what the same epsilon gives by other private ways, for the temperature.
- ``sets``: coverage and size of conformal sets at a confidence level of 0.9.
- ``rare``: of tabular pipelines on Adult cut to shares of positives, in the rows to train with and
  in those to test with: mean probability over that share and its spread over ten seeds; the
  deviation of each release that sets the intercept, over the share; seeds that are within a tenth
  or four such deviations; area under the ROC curve and accuracy in percent. There are 24,720 rows
  of the other class to train with, so that "30,000 rows" of small shares are all that there are.
- ``slopes``: of the log-odds of test labels on those that tabular pipelines predict, by table and
  epsilon, and for 10,000 rows of a logistic model of six uniform columns: 1 where probabilities are
  right, and less where they are too near 0 and 1.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_calibration.py
       [probabilities mechanisms sets rare slopes] [--seeds 20] [--rows 2000]
       [--out benchmarks/results/calibration.json]
"""

from functools import cache

import numpy as np
import pandas as pd
from _data import load
from _raw_tables import RawTable, names
from _raw_tables import load as load_raw
from _run import run, spread
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpsubspace import DPSGDFClassifier, PrivacyWarning, tabular_pipeline
from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace.calibration import DPCalibratedClassifier, DPConformalClassifier

SEEN = (
    "adult",
    "mnist",
    "digits",
    "fashion",
    "notmnist8k",
    "wine_colour",
    "kmnist8k",
    "mednist",
)
DATA = (*SEEN, "chest", "cifar10")
SIZES, EPSILONS = (200, 1000, 5000), (0.1, 0.3, 1.0)


@cache
def model_of(name, n_train):
    """A private model, rows that it has not seen, and test rows."""
    X, y, X_test, y_test = load(name)
    order = np.random.default_rng(1).permutation(len(X))
    X, y = X[order], y[order]
    n_train = min(n_train, len(X) // 2)
    model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:n_train], y[:n_train])
    return model, (X[n_train:], y[n_train:]), (X_test, y_test)


def held_out(rest, n, seed):
    """Rows drawn by a seed."""
    X, y = rest
    some = np.random.default_rng([seed, n]).choice(len(X), n, replace=False)
    return X[some], y[some]


def log_loss(probabilities, codes):
    """Mean log loss."""
    return -np.log(np.maximum(probabilities[np.arange(len(codes)), codes], 1e-15)).mean()


def ece(probabilities, codes, n_cells=15):
    """Expected calibration error of the most probable label."""
    top = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == codes
    cells = np.minimum((top * n_cells).astype(int), n_cells - 1)
    excess = np.bincount(cells, right - top, minlength=n_cells)
    return np.abs(excess).sum() / len(codes)


def best_loss(probabilities, codes, method):
    """Least log loss of a map that is found on these rows."""
    logs = np.log(np.maximum(probabilities, 2.2e-16))
    if method == "temperature":
        return minimize(lambda s: log_loss(softmax(np.exp(s[0]) * logs, axis=1), codes), [0.0]).fun
    odds = logs[:, 1] - logs[:, 0]

    def loss(found):
        second = expit(np.exp(found[0]) * odds + found[1])
        return log_loss(np.column_stack([1 - second, second]), codes)

    return minimize(loss, [0.0, 0.0]).fun


def probabilities(args):
    for name in DATA:
        model, rest, (X_test, y_test) = model_of(name, args.rows)
        codes, before = np.searchsorted(model.classes_, y_test), model.predict_proba(X_test)
        losses = log_loss(before, codes), ece(before, codes)
        for method in ("temperature", "sigmoid")[: 1 + (len(model.classes_) == 2)]:
            best = losses[0] - best_loss(before, codes, method)
            for n in (n for n in SIZES if n <= len(rest[0])):
                for epsilon in EPSILONS:
                    gains, errors = [], []
                    for seed in args.seeds:
                        options = {"method": method, "epsilon": epsilon, "random_state": seed}
                        right = DPCalibratedClassifier(model, **options)
                        after = right.fit(*held_out(rest, n, seed)).predict_proba(X_test)
                        gains.append(losses[0] - log_loss(after, codes))
                        errors.append(ece(after, codes))
                    yield {
                        "data": name + " (seen)" * (name in SEEN),
                        "method": method,
                        "n": n,
                        "epsilon": epsilon,
                        "log loss": losses[0],
                        "gain": float(np.mean(gains)),
                        "least gain": float(np.min(gains)),
                        "best": float(best),
                        "ECE": losses[1],
                        "ECE after": float(np.mean(errors)),
                    }


# Other ways -----------------------------------------------------------------------------------

LOGS = np.arange(-80, 49) / 16 * np.log(2)


def by_clipped_losses(logs, codes, epsilon, rng):
    """Exponential mechanism on losses that differ from those of no change by at most 1."""
    rows = np.arange(len(codes))
    losses = [-np.log(softmax(np.exp(s) * logs, axis=1)[rows, codes]) for s in LOGS]
    apart = np.clip(np.array(losses) - losses[80], -1, 1).sum(axis=1)
    return np.exp(LOGS[np.argmax(-epsilon / 2 * apart + rng.gumbel(size=len(LOGS)))])


def by_newton(logs, codes, epsilon, rng, steps=5):
    """Newton's method on the logarithm of the slope, with Gaussian noise at delta 1e-5.

    Gradients are clipped to [-1, 1] and second derivatives to [0, 1], with two thirds and one third
    of the budget of a step.
    """
    rows, found = np.arange(len(codes)), 0.0
    multiplier = Budget.split(Target(epsilon, 1e-5), {"steps": Part(1.0, steps)}).scales["steps"]
    for _ in range(steps):
        scores = np.exp(found) * logs
        chances = softmax(scores, axis=1)
        mean = (chances * scores).sum(axis=1)
        gradient = np.clip(mean - scores[rows, codes], -1, 1).sum()
        curvature = np.clip((chances * (scores - mean[:, None]) ** 2).sum(axis=1), 0, 1).sum()
        gradient += multiplier * np.sqrt(3 / 2) * rng.normal()
        curvature += multiplier * np.sqrt(3) * rng.normal()
        step = gradient / max(curvature, 0.05 * len(codes))
        found = np.clip(found - np.clip(step, -1, 1), -3, 2)
    return np.exp(found)


def mechanisms(args):
    others = {"clipped losses": by_clipped_losses, "noisy Newton": by_newton}
    for name in DATA:
        model, rest, (X_test, y_test) = model_of(name, args.rows)
        codes, before = np.searchsorted(model.classes_, y_test), model.predict_proba(X_test)
        loss, logs_test = log_loss(before, codes), np.log(np.maximum(before, 2.2e-16))
        for n in (n for n in SIZES if n <= len(rest[0])):
            for epsilon in EPSILONS:
                gains = {"ours": [], **{other: [] for other in others}}
                for seed in args.seeds:
                    X, y = held_out(rest, n, seed)
                    right = DPCalibratedClassifier(model, epsilon=epsilon, random_state=seed)
                    slopes = {"ours": right.fit(X, y).slope_}
                    logs = np.log(np.maximum(model.predict_proba(X), 2.2e-16))
                    rng, labels = np.random.default_rng(seed), np.searchsorted(model.classes_, y)
                    for other, way in others.items():
                        slopes[other] = way(logs, labels, epsilon, rng)
                    for way, slope in slopes.items():
                        after = softmax(slope * logs_test, axis=1)
                        gains[way].append(loss - log_loss(after, codes))
                row = {"data": name + " (seen)" * (name in SEEN), "n": n, "epsilon": epsilon}
                row |= {way: float(np.mean(found)) for way, found in gains.items()}
                row |= {f"least, {way}": float(np.min(found)) for way, found in gains.items()}
                yield row


# Sets -----------------------------------------------------------------------------------------


def sets(args):
    for name in DATA:
        model, rest, (X_test, y_test) = model_of(name, args.rows)
        codes = np.searchsorted(model.classes_, y_test)
        for n in (n for n in SIZES if n <= len(rest[0])):
            for epsilon in (*EPSILONS, np.inf):
                covered, sizes, likely = [], [], 0
                for seed in args.seeds:
                    conformal = DPConformalClassifier(model, epsilon=epsilon, random_state=seed)
                    found = conformal.fit(*held_out(rest, n, seed)).predict_set(X_test)
                    covered.append(found[np.arange(len(codes)), codes].mean())
                    sizes.append(found.sum(axis=1).mean())
                    likely += covered[-1] >= conformal.likely_coverage_
                yield {
                    "data": name,
                    "n": n,
                    "epsilon": epsilon,
                    "coverage": float(np.mean(covered)),
                    "least": float(np.min(covered)),
                    "said at 95%": conformal.likely_coverage_,
                    "kept": likely / len(args.seeds),
                    "size": float(np.mean(sizes)),
                }


# Rare classes ---------------------------------------------------------------------------------

SHARES, ROWS, BUDGETS = (0.02, 0.05, 0.2), (1000, 4000, 30_000), (0.3, 1.0, 3.0)


def cut(X, y, share, n, rng):
    """At most `n` random rows of which a share is positive."""
    positive, other = (rng.permutation(np.flatnonzero(y == code)) for code in (1, 0))
    n = int(min(n, len(positive) / share, len(other) / (1 - share)))
    n_positive = round(share * n)
    rows = rng.permutation(np.concatenate([positive[:n_positive], other[: n - n_positive]]))
    return X.iloc[rows].reset_index(drop=True), y[rows]


def rare(args):
    table = load_raw("adult", "classes")
    for n in ROWS:
        for share in SHARES:
            for epsilon in BUDGETS:
                found, noise, kept = [], 0.0, 0
                for seed in args.seeds[:10]:
                    rng = np.random.default_rng([seed, n, round(1000 * share)])
                    X, y = cut(table.X, table.y, share, n, rng)
                    X_test, y_test = cut(table.X_test, table.y_test, share, np.inf, rng)
                    model = DPSGDFClassifier(random_state=seed)
                    whole = tabular_pipeline(model, table.schema, epsilon=epsilon).fit(X, y)
                    budget = model.set_params(epsilon=epsilon)._budget(Sizes(len(y)))
                    noise = budget.scales.get("intercept", 0.0) / len(y) / share
                    p = whole.predict_proba(X_test)[:, 1]
                    right = 100 * (whole.predict(X_test) == y_test).mean()
                    found.append((p.mean() / share, 100 * roc_auc_score(y_test, p), right))
                    kept += abs(found[-1][0] - 1) < max(0.1, 4 * noise)
                means = np.mean(found, axis=0)
                yield {
                    "rows": len(y),
                    "share": share,
                    "epsilon": epsilon,
                    "mean over share": means[0],
                    "spread": float(np.std(found, axis=0)[0]),
                    "noise": noise,
                    "within": kept / len(found),
                    "AUC": means[1],
                    "accuracy": means[2],
                }


def slopes(args):
    for name in (*names("classes"), "logistic"):
        table = logistic() if name == "logistic" else load_raw(name, "classes")
        for epsilon in (0.3, 1.0, 3.0):
            found = [slope_of(table, epsilon, seed) for seed in args.seeds[:5]]
            yield {"table": name, "rows": len(table.y), "epsilon": epsilon} | spread("slope", found)


def slope_of(table, epsilon, seed):
    model = DPSGDFClassifier(random_state=seed)
    whole = tabular_pipeline(model, table.schema, epsilon=epsilon).fit(table.X, table.y)
    odds = logit(np.clip(whole.predict_proba(table.X_test)[:, 1], 1e-9, 1 - 1e-9))
    return LogisticRegression(C=1e6).fit(odds[:, None], table.y_test).coef_[0, 0]


def logistic():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 6))
    y = rng.random(len(X)) < expit(X @ [2, 1, -1, 0.5, 0, 0])
    frame, ranges = pd.DataFrame(X).rename(columns=str), {str(i): (-1, 1) for i in range(6)}
    return RawTable(frame[:10_000], y[:10_000], frame[10_000:], y[10_000:], ranges)


if __name__ == "__main__":
    options = {"seeds": 20, "rows": 2000}
    parts = {"probabilities": probabilities, "mechanisms": mechanisms, "sets": sets}
    parts |= {"rare": rare, "slopes": slopes}
    run(__doc__, parts, options, ignored=[PrivacyWarning])
