"""What the paper of DPSGDFClassifier claims, with default settings: Sun, Suresh, Menon (2024).

Nothing is chosen here. The paper chose step size, batch size, epochs, norm and the share of the
mean by a grid search that was not charged. Sections:

- ``counter_example``: its Theorem 3, hinge loss, epsilon 1: two classes 2 apart and ``distance``
  away from the origin, of which the worse labelling counts, and two Gaussian classes in 30 columns
  around a point that is 1,000 standard deviations away in each. Mean and least accuracy of the
  default, of one mean (``preprocessing="practical"``) and of DPSGDClassifier.
- ``offsets``: three Gaussian classes at growing offsets: accuracy, and the share of fits that warn
  that rows are still off centre.
- ``paired``: the default less one mean, on the same rows and seeds, in points of accuracy (of AUC
  for tables, behind ``tabular_pipeline``), where public sizes let them differ. The rows that train
  are drawn anew for each seed.
- ``centring``: its Table 2, of unit rows without private noise, and what a fit at epsilon 1 tells.
- ``spread``: the same numbers by `private_spread`: without noise, and means over seeds of what is
  released at epsilon 1, 0.3 and 0.1.
- ``rate``: its Theorem 1: excess mean log loss on the rows to train with, by the number of rows, of
  columns, of directions that rows lie on, and by their distance from the origin. As in the theorem,
  no gradient is clipped: the clip norm is the bound on a row.
- ``images``: its Table 1 on 60,000 raw images over 255, and the whole test sets.
- ``classes``: the last rows of its Table 1 in kind: CIFAR-100, of which the shared part has 25
  images a class, on frozen features of a small network that was trained on CIFAR-10 (public). The
  20 coarse classes stand beside the 100 fine ones. Of each class, 20 images train.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_dpsgdf.py
       [counter_example offsets paired centring spread rate images classes] [--seeds 20]
       [--sets digits adult_table ...] [--out benchmarks/results/dpsgdf.json]
"""

import itertools
import math
import time
import warnings

import _data
import _raw_tables
import numpy as np
import repro_defaults
from _run import run, spread
from repro_adaptive import blobs, counter_example
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, PrivacyWarning, tabular_pipeline
from dpsubspace.statistics import private_spread

DELTA = 1e-5
MODELS = {
    "default": DPSGDFClassifier,
    "one_mean": lambda **options: DPSGDFClassifier(preprocessing="practical", **options),
    "not_centred": DPSGDClassifier,
}


# Rows that are far from the origin --------------------------------------------------------------


def mixture(n, offset, d=30, apart=8.0):
    """Two classes of Gaussian rows around a point that is `offset` deviations away a column."""
    rng = np.random.default_rng(0)
    away, direction = offset * rng.normal(size=d), rng.normal(size=d)
    direction *= apart / np.linalg.norm(direction)

    def draw(k):
        y = rng.integers(0, 2, k)
        return away + np.outer(y, direction) + rng.normal(size=(k, d)), y

    return [(*draw(n), *draw(4000))]


def counter_example_rows(args):
    far = {
        f"{n:,} rows, distance {mu:,}": counter_example(n, mu)
        for n, mu in ((10_000, 500), (40_000, 2_000))
    }
    far |= {f"{n:,} rows of a mixture": mixture(n, 1000) for n in (2_000, 10_000)}
    for (name, sets), relation in itertools.product(far.items(), ("zero_out", "replace_one")):
        row = {"data": name, "relation": relation}
        options = {"loss": "hinge", "delta": DELTA, "neighboring_relation": relation}
        for model, make in MODELS.items():
            scores = [
                min(make(random_state=s, **options).fit(X, y).score(*test) for X, y, *test in sets)
                for s in args.seeds
            ]
            row |= spread(model, scores) | {f"{model}_least": min(scores)}
        yield row


def offset_rows(args):
    for n, d, offset in itertools.product((1000, 4000), (20, 200), (1, 10, 100, 1000)):
        [(X, y, *test)] = blobs(n, offset, d=d)
        scores, told = [], []
        for seed in args.seeds:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = DPSGDFClassifier(delta=DELTA, random_state=seed).fit(X, y)
            scores.append(model.score(*test))
            told.append(any("far from 0, and their differences" in str(w.message) for w in caught))
        row = {"n": n, "columns": d, "offset": offset, **spread("accuracy", scores)}
        yield row | {"told": round(float(np.mean(told)), 2)}


# Against one mean -------------------------------------------------------------------------------

SETS = (
    *("digits", "wine_colour", "chest", "chest_mixed", "mednist", "adult"),
    *("cifar10", "kmnist8k", "notmnist8k", "fashion10k", "wine_table", "adult_table"),
)
EPSILONS, SIZES = (0.1, 0.3, 1.0, 3.0), (300, 1000, 3000, 10_000)


def scored(name, n, epsilon, make, seed):
    """Score of one fit in points."""
    options = {"delta": DELTA, "random_state": seed}
    if name.endswith("_table"):
        whole = _raw_tables.load(name.removesuffix("_table"), "classes")
        table = _raw_tables.few(whole, min(n, len(whole.y)), seed)
        model = tabular_pipeline(make(**options), table.schema, epsilon=epsilon)
        scores = model.fit(table.X, table.y).decision_function(table.X_test)
        return 100 * roc_auc_score(table.y_test, scores)
    X, y, *test = repro_defaults.rows_of(name)
    kept = np.random.default_rng(seed).permutation(len(X))[:n]
    return 100 * make(epsilon=epsilon, **options).fit(X[kept], y[kept]).score(*test)


def paired_rows(args):
    for name, n, epsilon in itertools.product(args.sets or SETS, SIZES, EPSILONS):
        table = name.endswith("_table")
        sizes = (n, 20, 1)  # columns and classes decide nothing
        events = [
            MODELS[model](epsilon=epsilon, delta=DELTA).privacy_event(*sizes)
            for model in ("default", "one_mean")
        ]
        all_rows = (
            len(_raw_tables.load(name.removesuffix("_table"), "classes").y)
            if table
            else len(repro_defaults.rows_of(name)[0])
        )
        if events[0] == events[1] or n > 1.25 * all_rows:
            continue
        found = {
            model: np.array([scored(name, n, epsilon, MODELS[model], s) for s in args.seeds])
            for model in ("default", "one_mean")
        }
        gain = found["default"] - found["one_mean"]
        yield {
            "data": name,
            "n": n,
            "epsilon": epsilon,
            **spread("one_mean", found["one_mean"]),
            **spread("default", found["default"]),
            "gain": round(float(gain.mean()), 3),
            "gain_error": round(float(gain.std(ddof=1) / math.sqrt(len(gain))), 3),
        }


# Distances --------------------------------------------------------------------------------------

# Diameter, largest and mean distance from the mean of unit rows, as the paper has them.
TABLE_2 = {"mnist8k": (1.41, 1.03, 0.77), "fashion10k": (1.41, 1.10, 0.62)}


def unit_rows(X):
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1.0)


def diameter(rows, block=1000):
    """Largest distance of two rows."""
    products = (
        (rows[start : start + block] @ rows.T).min() for start in range(0, len(rows), block)
    )
    return math.sqrt(2 - 2 * min(products))


def centring_rows(args):
    for name in ("mnist8k", "fashion10k", "kmnist8k", "cifar10", "chest_mixed", "digits", "adult"):
        X, y, *_ = repro_defaults.rows_of(name)
        rows = unit_rows(X.astype(float))
        distances = np.linalg.norm(rows - rows.mean(axis=0), axis=1)
        models = [
            DPSGDFClassifier(delta=DELTA, random_state=seed, n_iter=1).fit(X, y)
            for seed in args.seeds[:5]
        ]
        yield {
            "data": name,
            "n": len(X),
            "diameter": round(diameter(rows), 2),
            "largest": round(float(distances.max()), 2),
            "mean_distance": round(float(distances.mean()), 2),
            "paper": TABLE_2.get(name),
            "mean_norm": round(float(np.linalg.norm(rows.mean(axis=0))), 2),
            **spread("released_mean_norm", [np.linalg.norm(m.mean_) for m in models]),
            "released_mean_error": round(float(np.mean([m.mean_error_ for m in models])), 3),
            "half_released_radius": round(float(np.mean([m.radius_ for m in models])) / 2, 2),
        }


def spread_rows(args):
    for name in ("mnist8k", "fashion10k", "kmnist8k", "cifar10", "chest_mixed", "digits", "adult"):
        X = repro_defaults.rows_of(name)[0]
        for epsilon in (math.inf, 1.0, 0.3, 0.1):
            found = [
                private_spread(X, epsilon=epsilon, delta=DELTA, random_state=seed).value
                for seed in (args.seeds if epsilon < math.inf else [0])
            ]
            means = np.mean(found, axis=0)
            row = {"data": name, "n": len(X), "epsilon": epsilon if epsilon < math.inf else None}
            for title, mean, std in zip(
                found[0]._fields, means, np.std(found, axis=0), strict=True
            ):
                row |= {title: round(float(mean), 3), f"{title}_std": round(float(std), 3)}
            yield row


def labelled_rows(n, d, rank, offset, seed):
    """Rows on `rank` directions around a point, with labels by a logistic model of them."""
    rng = np.random.default_rng([n, d, rank, seed])
    z = rng.normal(size=(n, rank))
    z *= np.minimum(1.0, 1.5 * math.sqrt(rank) / np.linalg.norm(z, axis=1))[:, None]
    basis = np.linalg.qr(rng.normal(size=(d, rank + 1)))[0].T
    slope = rng.normal(size=rank)
    scores = z @ (2 * slope / np.linalg.norm(slope))
    y = rng.random(n) < 1 / (1 + np.exp(-scores))
    return z, z @ basis[:rank] + offset * basis[rank], y


BASE = {"n": 4000, "d": 40, "rank": 10, "offset": 0.0}
VARIED = {
    "n": (1000, 4000, 16_000),
    "d": (20, 160, 640),
    "rank": (2, 10, 30),
    "offset": (0.0, 30.0, 300.0, 3000.0),
}


def rate_rows(args):
    seeds = args.seeds[:10]
    for name, values in VARIED.items():
        for value in values:
            sizes = BASE | {name: value}
            found = {model: [] for model in MODELS}
            for seed in seeds:
                z, X, y = labelled_rows(*sizes.values(), seed)
                best = LogisticRegression(C=1e6, max_iter=1000).fit(z, y).predict_proba(z)
                bound = math.hypot(sizes["offset"], 1.5 * math.sqrt(sizes["rank"]))
                options = {"row_norm": bound, "clip_norm": bound, "delta": DELTA}
                options["random_state"] = seed
                for model, make in MODELS.items():
                    chances = make(**options).fit(X, y).predict_proba(X)
                    found[model].append(log_loss(y, chances) - log_loss(y, best))
            row = {"varied": name, **sizes}
            for model, risks in found.items():
                row |= spread(model, risks)
            yield row


# Images -----------------------------------------------------------------------------------------

# (data, class, epsilon): accuracy in the paper.
PAPER = {
    ("mnist", "DPSGDClassifier", 1.0): 0.874,
    ("mnist", "DPSGDFClassifier", 1.0): 0.920,
    ("mnist", "DPSGDFClassifier", 2.0): 0.923,
    ("fashion", "DPSGDFClassifier", 1.0): 0.840,
    ("fashion", "DPSGDFClassifier", 2.0): 0.845,
}


def image_rows(args):
    for name in ("mnist", "fashion"):
        X, y, X_test, y_test = _data.load(name)
        for Classifier in (DPSGDFClassifier, DPSGDClassifier):
            for epsilon in (1.0, 2.0):
                start = time.perf_counter()
                models = [
                    Classifier(epsilon=epsilon, delta=DELTA, random_state=seed).fit(X, y)
                    for seed in args.seeds[:3]
                ]
                seconds = (time.perf_counter() - start) / len(models)
                yield {
                    "data": name,
                    "model": Classifier.__name__,
                    "epsilon": epsilon,
                    **spread("accuracy", [model.score(X_test, y_test) for model in models]),
                    "paper": PAPER.get((name, Classifier.__name__, epsilon)),
                    "n_iter": models[0].n_iter_,
                    "seconds": round(seconds, 1),
                }


def network_features(images, n_epochs=5):
    """Features (n, 256) of 32 x 32 images by a network that public images of CIFAR-10 trained."""
    import torch
    from torch import nn

    def as_input(pixels):
        return torch.from_numpy(pixels.astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1)

    torch.manual_seed(0)
    layers = []
    for before, width in ((3, 32), (32, 64), (64, 256)):
        convolution = nn.Conv2d(before, width, 3, stride=2, padding=1)
        layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Linear(256, 10)
    pixels, labels = _data.needed("cifar10", ("train_x", "train_y"))
    X, y = as_input(pixels), torch.from_numpy(labels.astype(np.int64))
    parameters = [*body.parameters(), *head.parameters()]
    steps = n_epochs * (len(X) // 100)
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(n_epochs):
        for batch in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(body(X[batch])), y[batch]).backward()
            optimizer.step()
            schedule.step()
    body.eval()
    with torch.no_grad():
        return np.concatenate([body(part).numpy() for part in as_input(images).split(500)])


def class_rows(args):
    images, fine, coarse = _data.needed("cifar100_part", ("x", "y", "y_coarse"))
    features = network_features(images)
    # The first 20 of each class, in the random order of the file, train.
    order = np.argsort(fine, kind="stable")
    place = np.empty(len(fine), int)
    place[order] = np.arange(len(fine)) % 25
    kept = place < 20
    for labels, epsilon in itertools.product((fine, coarse), (1.0, 2.0, 5.0, math.inf)):
        row = {"classes": len(np.unique(labels)), "epsilon": epsilon}
        for model in ("default", "not_centred"):
            seeds = args.seeds if epsilon < math.inf else args.seeds[:1]
            options = {"epsilon": epsilon, "delta": DELTA, "alpha": 1e-4}
            if epsilon < math.inf:
                del options["alpha"]
            fits = (
                MODELS[model](random_state=seed, **options).fit(features[kept], labels[kept])
                for seed in seeds
            )
            scores = [fit.score(features[~kept], labels[~kept]) for fit in fits]
            row |= spread(model, scores)
        yield row


SECTIONS = {
    "counter_example": counter_example_rows,
    "offsets": offset_rows,
    "paired": paired_rows,
    "centring": centring_rows,
    "spread": spread_rows,
    "rate": rate_rows,
    "images": image_rows,
    "classes": class_rows,
}

if __name__ == "__main__":
    # Small data sets and epsilons are the point.
    run(__doc__, SECTIONS, {"seeds": 20, "sets": []}, ignored=(PrivacyWarning,))
