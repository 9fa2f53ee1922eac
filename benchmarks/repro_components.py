"""Number of directions of public rows that a private classifier keeps, and who decides it.

Accuracy of `GEPClassifier` with the number of directions that it finds ("auto"), with fixed ones
("k=8" and so on), with all of the space but the mean of the public rows ("k=0"), and of
`DPSGDClassifier` and `DPSGDFClassifier`, which know no public rows. Public rows are unlabelled and
never private ones; seeds draw rows and noise. Sections:

- ``own``: 500 public rows of the same source.
- ``other``: public rows of which the columns are in another order, noise, and rows of another set.
- ``rows``: 5 to 2,000 public rows of the same source.
- ``values``: R2 of `GEPRegressor`, with 500 public rows of the same source.
- ``mirror``: mirror descent ("mirror"; "from zero" with ``init="zero"``) with 200 labelled public
  rows: of the same source, of one class, with the labels of other classes, and with shuffled
  columns. "alone" is logistic regression on the public rows.
- ``start``: `GEPClassifier` with labelled public rows and defaults ("start", and "believed" with
  ``init="public"``, which asks no private row), beside "dpsgd", "dpsgdf" and "alone": 300 public
  rows of chest X-rays and 200 of other sets.
- ``modules``: the same for a network of 16 hidden units on images of 7 x 7 pixels in 20 steps,
  "mirror" beside "none", which has no public rows, and "believed", which takes all labels to be
  borne out; with shuffled labels, not columns.

"r" is the number of rows over the noise multiplier of all steps. "scattering" are photographs seen
by 32 filters of 8 directions, of which the sizes are averaged over 4 x 4 squares; "simulation" has
300 columns of variance 1 / j, all of which matter alike; "kegg" has a target cut into thirds, and
columns between their quantiles of 0.01 and 0.99, which are taken to be public.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_components.py
       [own other rows values mirror start modules] [--seeds 10] [--sets mnist code ...]
       [--methods auto k=8 ...] [--out FILE]
"""

from functools import cache
from unittest.mock import patch

import _data
import numpy as np
from _run import run, spread
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, GEPClassifier
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.solvers.descent import STEPS
from dpsubspace.linear_model import GEPRegressor, GradientDirections
from dpsubspace.neural_network import DPModuleClassifier
from dpsubspace.neural_network import _torch_models as torch_models

SETS = ["mnist", "fashion", "kmnist8k", "notmnist8k", "chest_mixed", "scattering", "code"]
SETS += ["code_hashed", "glyphs", "fashion_pairs", "mnist_pairs", "adult", "kegg", "simulation"]
CELLS = ((1000, 0.1), (1000, 1.0), (4000, 1.0))
FIXED = [f"k={k}" for k in (5, 8, 12, 18, 32, 64, 128)]
METHODS = ["dpsgd", "dpsgdf", "auto", "k=0", *FIXED]
OTHER = {
    "mnist": ("shuffled", "noise", "kmnist8k", "fashion"),
    "fashion": ("shuffled", "noise", "mnist"),
    "scattering": ("shuffled", "noise"),
    "adult": ("shuffled", "noise"),
    "simulation": ("shuffled", "noise"),
}
NUMBERS = (5, 20, 50, 150, 500, 2000)
OF_ROWS = ("mnist", "adult", "simulation")
LABELLED = ("own", "one class", "wrong labels", "shuffled")
OF_MIRROR = ("mnist", "fashion", "adult")
OF_MODULES = ("mnist", "fashion")
OF_START = {"chest_mixed": 300, "mnist": 200, "fashion": 200, "adult": 200}
VALUES = ("california", "protein", "wine_quality", "bike", "mnist", "scattering", "simulation")

# Data -------------------------------------------------------------------------------------------


@cache
def loaded(name):
    """Rows and labels, and those that are tested on, at most 2,500."""
    made = {"scattering": scattering, "kegg": kegg, "simulation": simulation}
    parts = made[name]() if name in made else _data.load(name)
    X, y, X_test, y_test = (part.astype(np.float32) if part.ndim == 2 else part for part in parts)
    some = np.random.default_rng(0).permutation(len(X_test))[:2_500]
    return X, y, X_test[some], y_test[some]


def scattering():
    X, y, X_test, y_test = _data.load("cifar10")
    return filtered(X), y, filtered(X_test), y_test


def filtered(X, side=32):
    """Mean size of the answer to 8 directions at 4 scales on 4 x 4 squares, (n, 512)."""
    found, (v, u) = [], np.meshgrid(*[np.fft.fftfreq(side)] * 2, indexing="ij")
    for rows in np.array_split(X.reshape(-1, side, side), len(X) // 500):
        images, answers = np.fft.fft2(rows), []
        for scale in 0.35 / 1.6 ** np.arange(4):
            for angle in np.pi * np.arange(8) / 8:
                along = u * np.cos(angle) + v * np.sin(angle)
                across = v * np.cos(angle) - u * np.sin(angle)
                window = np.exp(-((along - scale) ** 2 + across**2) / (2 * (0.3 * scale) ** 2))
                size = np.abs(np.fft.ifft2(images * window))
                answers.append(size.reshape(-1, 4, 8, 4, 8).mean(axis=(2, 4)).reshape(-1, 16))
        found.append(np.hstack(answers))
    return np.vstack(found)


def kegg():
    X, y = _data.raw("kegg")
    low, high = np.quantile(X, [0.01, 0.99], axis=0)
    X = _data.to_unit_ball(X[:, high > low], low[high > low], high[high > low])
    return _data.split(X, np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])), 2_500, 12_000)


def simulation():
    scores, X, rng = simulated(4)
    return _data.split(X, (2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1), 2_500)


def simulated(n_outputs, n=14_500, d=300):
    """Scores of variance 1 to which all columns contribute alike, and rows."""
    rng, scale = np.random.default_rng(1), np.arange(1, d + 1) ** -0.5
    rows = rng.standard_normal((n, d))
    scores = rows @ rng.standard_normal((d, n_outputs)) / np.sqrt(d)
    return scores, rows * scale / np.linalg.norm(scale), rng


@cache
def with_values(name):
    """The same for regression, and the public range of targets: half of the labels are 1."""
    if name == "simulation":
        scores, X, rng = simulated(1)
        y = np.clip(scores[:, 0] / 4 + rng.normal(0, 0.1, len(X)), -1, 1)
        return *_data.split(X, y, 2_500), (-1, 1)
    if name in SETS:
        X, y, X_test, y_test = loaded(name)
        return X, (y > 4).astype(float), X_test, (y_test > 4).astype(float), (0, 1)
    return *_data.load(name), _data.DATA_SETS[name].target_bounds


def public_rows(name, n, m, seed, origin):
    """Private rows and labels, public rows, and the test set."""
    X, y, X_test, y_test = loaded(name)
    order = np.random.default_rng([seed, 11]).permutation(len(X))
    rng, P = np.random.default_rng([seed, 12]), X[order[n : n + m]]
    if origin == "shuffled":
        P = P[:, rng.permutation(P.shape[1])]
    elif origin == "noise":
        P = rng.random(P.shape, dtype=np.float32)
    elif origin not in ("", "own"):
        other = loaded(origin)[0]
        P = other[rng.permutation(len(other))[:m]]
    return X[order[:n]], y[order[:n]], P, X_test, y_test


# Fits -------------------------------------------------------------------------------------------


def accuracy(name, n, epsilon, m, origin, method, seed):
    X, y, P, X_test, y_test = public_rows(name, n, m, seed, origin)
    options, public = {"epsilon": epsilon, "random_state": seed}, {}
    if method.startswith("dpsgd"):
        model = (DPSGDClassifier if method == "dpsgd" else DPSGDFClassifier)(**options)
    else:
        count = method.removeprefix("k=")
        count, public = count if count == "auto" else int(count), {"X_public": (P,)}
        model = GEPClassifier(n_components=count, **options)
    return model.fit(X, y, **public).score(X_test, y_test), getattr(model, "n_components_", None)


def rows_over_noise(n, epsilon):
    budget = GEPClassifier(epsilon=epsilon)._budget(Sizes(n, 100, 1, n_public=500))
    return round(n / budget.per_record_multiplier(STEPS))


def row(args, name, n, epsilon, m, origin, method):
    found = [accuracy(name, n, epsilon, m, origin, method, seed) for seed in args.seeds]
    values, counts = zip(*found, strict=True)
    cell = {"set": name, "n": n, "epsilon": epsilon, "r": rows_over_noise(n, epsilon)}
    cell |= {"public rows": m, "public": origin, "method": method} | spread("accuracy", values)
    kept = [count for count in counts if count]
    return cell | {"directions": max(kept, default=0), "whole": len(counts) - len(kept)}


def chosen(args, names):
    return [name for name in names if name in args.sets]


def own(args):
    for name in args.sets:
        width = loaded(name)[0].shape[1]
        for n, epsilon in CELLS:
            for method in args.methods:
                if not method.startswith("k=") or int(method[2:]) < width:
                    yield row(args, name, n, epsilon, 500, "own", method)


def other(args):
    for name in chosen(args, OTHER):
        for n, epsilon in CELLS:
            for method in ("dpsgd", "dpsgdf"):
                yield row(args, name, n, epsilon, 500, "", method)
            for origin in OTHER[name]:
                for method in ("auto", "k=0"):
                    yield row(args, name, n, epsilon, 500, origin, method)


def rows(args):
    for name in chosen(args, OF_ROWS):
        for n, epsilon in CELLS:
            for m in NUMBERS:
                for method in ("auto", "k=0"):
                    yield row(args, name, n, epsilon, m, "own", method)


def values(args):
    for name in VALUES:
        X, y, X_test, y_test, bounds = with_values(name)
        for n, epsilon in CELLS:
            scores = []
            for seed in args.seeds:
                order = np.random.default_rng([seed, 11]).permutation(len(X))
                private, P = order[:n], X[order[n : n + 500]]
                model = GEPRegressor(epsilon=epsilon, target_bounds=bounds, random_state=seed)
                model.fit(X[private], y[private], X_public=(P,))
                scores.append(model.score(X_test, y_test))
            yield {"set": name, "n": n, "epsilon": epsilon} | spread("r2", scores)


def labelled_rows(name, n, m, seed, kind):
    """Private rows and labels, public rows and labels, and the test set."""
    X, y, X_test, y_test = loaded(name)
    order = np.random.default_rng([seed, 21]).permutation(len(X))
    rest, rng = order[n:], np.random.default_rng([seed, 22])
    if kind == "one class":
        rest = rest[y[rest] == y[rest[0]]]
    P, labels = X[rest[:m]], y[rest[:m]]
    if kind == "wrong labels":
        labels = (labels + 1) % (y.max() + 1)
    elif kind == "shuffled labels":
        labels = rng.permutation(labels)
    elif kind == "shuffled":
        P = P[:, rng.permutation(P.shape[1])]
    return X[order[:n]], y[order[:n]], P, labels, X_test, y_test


@cache
def labelled_accuracy(name, n, epsilon, m, kind, method, seed):
    X, y, P, labels, X_test, y_test = labelled_rows(name, n, m, seed, kind)
    options, public = {"epsilon": epsilon, "random_state": seed}, {}
    if method == "alone":
        several = len(np.unique(labels)) > 1
        model = LogisticRegression(C=10, max_iter=200) if several else DummyClassifier()
        return model.fit(P, labels).score(X_test, y_test)
    if method.startswith("dpsgd"):
        model = (DPSGDClassifier if method == "dpsgd" else DPSGDFClassifier)(**options)
    else:
        init = {"from zero": "zero", "believed": "public"}.get(method, "auto")
        mixed = method in ("mirror", "from zero")
        model = GEPClassifier(mirror=mixed, init=init, **options)
        public = {"X_public": (P,), "y_public": (labels,)}
    return model.fit(X, y, **public).score(X_test, y_test)


def labelled_cells(args, name, m, methods):
    """Accuracy by epsilon, kind of public rows and method."""
    for n, epsilon in CELLS[:2]:
        for kind in LABELLED:
            for method in methods:
                if method in args.methods or args.methods == METHODS:
                    cell = {"set": name, "n": n, "epsilon": epsilon, "public": kind}
                    used = "own" if method.startswith("dpsgd") else kind  # not the public rows
                    call = (name, n, epsilon, m, used, method)
                    found = [labelled_accuracy(*call, seed) for seed in args.seeds]
                    yield cell | {"method": method} | spread("accuracy", found)


def mirror(args):
    for name in chosen(args, OF_MIRROR):
        methods = ("dpsgd", "dpsgdf", "alone", "mirror", "from zero")
        yield from labelled_cells(args, name, 200, methods)


def start(args):
    for name in chosen(args, OF_START):
        methods = ("dpsgd", "dpsgdf", "alone", "start", "believed")
        yield from labelled_cells(args, name, OF_START[name], methods)


def smaller(X):
    """Images of 7 x 7 pixels, each the mean of sixteen."""
    return X.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(len(X), -1)


@cache
def module_accuracy(name, n, epsilon, m, kind, method, seed):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    nn = torch.nn
    module = nn.Sequential(nn.Linear(49, 16), nn.Tanh(), nn.Linear(16, 10))
    X, y, P, labels, X_test, y_test = labelled_rows(name, n, m, seed, kind)
    X, P, X_test = map(smaller, (X, P, X_test))
    if method == "alone":
        several = len(np.unique(labels)) > 1
        model = LogisticRegression(C=10, max_iter=200) if several else DummyClassifier()
        return model.fit(P, labels).score(X_test, y_test)
    options, public = {"epsilon": epsilon, "n_iter": 20, "random_state": seed}, {}
    if method in ("mirror", "believed"):
        options |= {"mirror": True, "microbatch_size": 500}
        options["directions"] = GradientDirections(n_components=20)
        public = {"X_public": (P,), "y_public": (labels,)}
    model = DPModuleClassifier(module, **options)
    check = believe if method == "believed" else torch_models.borne_out
    with patch.object(torch_models, "borne_out", check):
        return model.fit(X, y, **public).score(X_test, y_test)


def believe(source, labelled, targets, releases):
    """Labels of public rows as if private rows had borne them out."""
    return True


def modules(args):
    for name in chosen(args, OF_MODULES):
        for epsilon in (0.3, 1.0):
            for kind in (*LABELLED[:3], "shuffled labels"):
                for method in ("none", "alone", "believed", "mirror"):
                    if method in args.methods or args.methods == METHODS:
                        cell = {"set": name, "n": 1000, "epsilon": epsilon, "public": kind}
                        used = "own" if method == "none" else kind
                        call = (name, 1000, epsilon, 200, used, method)
                        found = [module_accuracy(*call, seed) for seed in args.seeds]
                        yield cell | {"method": method} | spread("accuracy", found)


SECTIONS = {"own": own, "other": other, "rows": rows, "values": values, "mirror": mirror}
SECTIONS |= {"start": start, "modules": modules}

if __name__ == "__main__":
    # Few rows and small epsilons are the point.
    run(__doc__, SECTIONS, {"seeds": 10, "sets": SETS, "methods": METHODS}, ignored=(Warning,))
