"""Are the warnings of a fit right? Noise, and columns in different units.

Noise: a fit is called poor where it keeps less than half of what a model without privacy
gains on the same rows over a constant: for classes the mean of that share for accuracy (over
the most frequent class) and for AUC (over 0.5; the mean over classes), for numbers that of R2.
Of schools and of Parkinson's, seeds draw the schools or people to test with, whom training has not
seen; of other tables the test rows are the same for all seeds.
Each cell is one data set, number of rows, epsilon and estimator, by its median over seeds. Cells
where the model without privacy gains next to nothing itself (0.03 in accuracy, 0.1 in AUC or
0.05 in R2) are left out. The thresholds were chosen on the sets called "chosen on"; those called
"held out" were not looked at before. The rule of version 0.1 (ten times the noise of all
parameters, over the number of rows) is beside it.

Units: tables as they come, by their ranges and standardised, each fitted by `DPSGDFClassifier`;
a warning is right where scaling to ranges raises AUC by 0.02 or more.

usage: python benchmarks/repro_warnings.py [--seeds 3] [--out benchmarks/results/warnings.json]
"""

import math
import warnings

import _data
import numpy as np
from _run import run
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor
from dpsubspace.linear_model import GEPRegressor

N_SAMPLES, EPSILONS = (50, 120, 300, 1000, 3000, 10_000), (0.1, 0.3, 1.0, 3.0)
MOST_TEST_ROWS = 4000

# Data sets, with the threshold of the target that makes two classes of it.
CLASSES = dict.fromkeys(
    (
        *("iris", "wine", "cancer", "digits", "adult", "wine_colour", "mnist8k", "chest_mixed"),
        *("mednist", "cifar10", "kmnist8k", "notmnist8k", "fashion10k"),
    )
)
CLASSES |= {"wine_quality": 5.5, "california": 180_000.0, "kin8nm": 0.71, "bike": 0.0}
CLASSES |= {"power_plant": 452.0, "protein": 5.0}
NUMBERS = ("diabetes", "wine_quality", "power_plant", "kin8nm", "bike", "protein", "california")
POOLED = ("chest_mixed", "mednist", "cifar10", "kmnist8k", "notmnist8k", "fashion10k")

# Tables that are held out. Ranges of columns and target are those of the file, as if they were
# published.
HELD_OUT = ("elevators", "pol", "kegg", "school", "parkinson")
GROUPS = {"school": ("school", "task"), "parkinson": ("parkinsons_telemonitoring", "subject")}


def table(name):
    """Raw columns and target, at most 15,000 rows, and whose rows they are (or None)."""
    X, y = _data.raw(name)
    kept = np.random.default_rng(1).permutation(len(X))[:15_000]
    groups = None
    if name in GROUPS:
        file, column = GROUPS[name]
        groups = _data.needed(file, (column,))[0][kept]
    return X[kept], y[kept].astype(float), groups


def splits(X, y, groups, parts, seeds):
    """Rows and targets to train and to test with for each seed, a part of so many to test."""
    if groups is None:
        return [_data.split(X, y, len(X) // parts)] * len(seeds)
    tested = [_data.in_fold(groups, seed, parts) for seed in seeds]
    return [(X[~some], y[~some], X[some], y[some]) for some in tested]


def noise_tasks(seeds):
    """Name, group, rows and targets for each seed, and the public range of numbers."""
    for name, threshold in CLASSES.items():
        X, y, X_test, y_test = _data.load(name)
        if name in POOLED:
            X, X_test = _data.halved(X), _data.halved(X_test)
        if threshold is not None:
            y, y_test, name = y > threshold, y_test > threshold, f"{name}>{threshold:g}"
        yield name, "chosen on", [(X, y, X_test, y_test)] * len(seeds), None
    for name in NUMBERS:
        bounds = _data.DATA_SETS[name].target_bounds
        yield name, "chosen on", [_data.load(name)] * len(seeds), bounds
    for name in HELD_OUT:
        X, y, groups = table(name)
        X, middle = _data.to_unit_ball(X, *_ranges(X)), float(np.median(y))
        parts = splits(X, y, groups, 5, seeds)
        yield name, "held out", parts, (float(y.min()), float(y.max()))
        yield f"{name}>{middle:.3g}", "held out", splits(X, y > middle, groups, 5, seeds), None


def _ranges(X):
    low, high = X.min(axis=0), X.max(axis=0)
    return low, np.where(high > low, high, low + 1)


def auc(model, X, y):
    scores, classes = model.decision_function(X), model.classes_
    if scores.ndim == 1:
        return roc_auc_score(y == classes[1], scores)
    return float(
        np.mean([roc_auc_score(y == c, s) for c, s in zip(classes, scores.T, strict=True)])
    )


def told(model, X, y):
    """Fit, and return the texts of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(each.message) for each in caught]


def old_rule(model, n_samples, n_features, n_outputs):
    event = model.privacy_.event
    steps = getattr(event, "events", [event])[-1]  # steps come last
    multiplier = steps.event.noise_multiplier / math.sqrt(steps.count)
    return 10 * multiplier * math.sqrt((n_features + 1) * n_outputs) / n_samples > 1


def noise_cells(args):
    for name, group, parts, bounds in noise_tasks(args.seeds):
        most = min(N_SAMPLES[-1], *(len(X) for X, *_ in parts))
        for n in [n for n in N_SAMPLES if n < 0.8 * most] + [most]:
            yield from _cells_of(name, group, parts, bounds, n, args.seeds)


def _cells_of(name, group, parts, bounds, n, seeds):
    draws = []
    for seed, (X, y, X_test, y_test) in zip(seeds, parts, strict=True):
        rows = np.random.default_rng(seed).permutation(len(X))[:n]
        if bounds or len(np.unique(y[rows])) == len(np.unique(y)):
            draws.append((X[rows], y[rows], X_test[:MOST_TEST_ROWS], y_test[:MOST_TEST_ROWS]))
    gains = [_gains(*draw, bounds) for draw in draws]
    draws = [(s, *pair) for s, pair in enumerate(zip(draws, gains, strict=True)) if pair[1]]
    for model in _models(bounds):
        for epsilon in EPSILONS:
            found = []
            for seed, (X, y, *_), gain in draws:
                fit = model.set_params(epsilon=epsilon, delta=1e-5, random_state=seed)
                warned = any("most of what can be" in text for text in told(fit, X, y))
                share = np.mean([max(0.0, g(fit)) for g in gain])
                n_outputs = len(fit.coef_) if fit.coef_.ndim == 2 else 1
                found.append((share, warned, old_rule(fit, n, X.shape[1], n_outputs)))
            if not found:
                continue
            kept, warned, old = np.median(found, axis=0)
            yield {
                "data": name,
                "sets": group,
                "model": type(model).__name__,
                "n": n,
                "epsilon": epsilon,
                "kept": round(float(kept), 3),
                "warned": bool(warned > 0.5),
                "old": bool(old > 0.5),
            }


def _models(bounds):
    if bounds is None:
        return [DPSGDClassifier(), DPSGDFClassifier()]
    plain = DPSGDRegressor(data_norm=1.0, target_bounds=bounds)
    centred = GEPRegressor(data_norm=1.0, target_bounds=bounds)
    return [plain, centred]


def _gains(X, y, X_test, y_test, bounds):
    """Functions of a fitted model: shares of what one without privacy gains; None for nothing."""
    if bounds is not None:
        score = make_pipeline(StandardScaler(), Ridge(1.0)).fit(X, y).score(X_test, y_test)
        return [lambda fit: fit.score(X_test, y_test) / score] if score > 0.05 else None
    open_model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=100)).fit(X, y)
    constant = np.unique(y_test, return_counts=True)[1].max() / len(y_test)
    right, area = open_model.score(X_test, y_test) - constant, auc(open_model, X_test, y_test) - 0.5
    if right < 0.03 or area < 0.1:
        return None
    return [
        lambda fit: (fit.score(X_test, y_test) - constant) / right,
        lambda fit: (auc(fit, X_test, y_test) - 0.5) / area,
    ]


def unit_cells(args):
    tables = {name: table(name) for name in HELD_OUT}
    for name in ("protein", "power_plant", "kin8nm", "bike", "adult"):
        tables[name] = (*(part[:15_000] for part in _data.raw(name)), None)
    for name in ("california", "wine_quality"):
        tables[name] = (*_data.raw(name), None)
    for name in ("breast_cancer", "wine", "iris", "digits"):
        tables[name] = (*getattr(datasets, f"load_{name}")(return_X_y=True), None)
    tables["diabetes"] = (*datasets.load_diabetes(return_X_y=True, scaled=False), None)
    for name, (X, y, groups) in tables.items():
        y = y > np.median(y) if len(np.unique(y)) > 10 else y
        parts = splits(X, y, groups, 4, args.seeds)
        most = min(len(X) for X, *_ in parts)
        for n in dict.fromkeys((min(most, 500), most)):
            for epsilon in EPSILONS[1:]:
                yield from _units(name, parts, n, epsilon, args.seeds)


def _units(name, parts, n, epsilon, seeds):
    rows = []
    for kind in ("raw", "ranges", "standard"):
        found = []
        for seed, (X, y, X_test, y_test) in zip(seeds, parts, strict=True):
            to_rows = _map(kind, X)
            model = DPSGDFClassifier(epsilon=epsilon, delta=1e-5, random_state=seed)
            texts = told(model, to_rows(X[:n]), y[:n])
            warned = any("different units" in text for text in texts)
            found.append((auc(model, to_rows(X_test), y_test), warned))
        area, warned = np.median(found, axis=0)
        rows.append({"data": name, "scale": kind, "n": n, "epsilon": epsilon})
        rows[-1] |= {"auc": round(float(area), 3), "warned": bool(warned > 0.5)}
    for row in rows:
        row["gain"] = round(rows[1]["auc"] - row["auc"], 3)
        yield row


def _map(kind, X):
    """Scaling of columns as rows to train with tell it, as if it were published."""
    if kind == "raw":
        return lambda rows: rows
    if kind == "standard":
        return StandardScaler().fit(X).transform
    low, high = _ranges(X)
    return lambda rows: 2 * (rows - low) / (high - low) - 1


def summary_rows(args):
    """How often the rules are right, in both directions; "clear" leaves out what is nearly poor."""
    cells, units = args.results.get("noise", []), args.results.get("units", [])
    for group in ("chosen on", "held out"):
        for kind in ("Classifier", "Regressor"):
            some = [c for c in cells if c["sets"] == group and c["model"].endswith(kind)]
            clear = [c for c in some if not 0.35 < c["kept"] < 0.65]
            for rule in ("warned", "old"):
                for label, chosen in (("all", some), ("clear", clear)):
                    of = f"noise, {group}, {kind}, {rule}, {label}"
                    yield {"of": of} | rightly(chosen, rule, lambda cell: cell["kept"] < 0.5)
    for kind in ("raw", "ranges", "standard"):
        some = [cell for cell in units if cell["scale"] == kind]
        yield {"of": f"units, {kind}"} | rightly(some, "warned", lambda cell: cell["gain"] >= 0.02)


def rightly(cells, rule, poor):
    table = np.zeros((2, 2), int)
    for cell in cells:
        table[int(cell[rule]), int(poor(cell))] += 1
    (fine, missed), (alarm, right) = table.tolist()
    return {
        "warned": right + alarm,
        "warned_rightly": round(right / max(1, right + alarm), 3),
        "silent": fine + missed,
        "silent_rightly": round(fine / max(1, fine + missed), 3),
        "poor_ones_warned": round(right / max(1, right + missed), 3),
    }


SECTIONS = {"noise": noise_cells, "units": unit_cells, "summary": summary_rows}


if __name__ == "__main__":
    run(__doc__, SECTIONS, {"seeds": 3})
