"""Which public rows help: accuracy against distances, and the private choice among candidates.

Tasks are four sets of images, each with sixteen candidates for public rows, and a hard case,
which is Fashion-MNIST with mixtures of MNIST and Fashion rows (``_public_sets.py``). There are
2,000 private rows, and 2,000 in a candidate; the seed draws them. Sections:

- ``accuracy``: on the test rows, at epsilon 0.5, of two consumers with each candidate: "gep" is
  GEPClassifier with the candidate as rows without labels, "pca" is DPSGDClassifier on 32
  principal components of the candidate. The candidate "nothing" stands for DPSGDFClassifier and
  DPSGDClassifier without public rows. Of chest X-rays the area under the curve stands beside.
- ``means``: mean and standard error of these.
- ``distances``: of the rows of seed 0, and none of them private. GSD with random labels and 16
  directions; Task2Vec and optimal transport with labels. ``energies``: shares of energy, which
  are sums over private rows. "energy" is that of unit rows in 8 directions of the candidate (16
  and 64 beside), "affine" is one minus the squared distance of unit rows from 8 directions about
  the mean of the candidate, "pairs" is the share of the difference of two rows in those (or 32).
- ``concordance``: of each with the accuracies, which is the share of pairs of candidates in the
  same order less that of pairs in the other order. Pairs whose accuracies differ by less than two
  standard errors (of differences seed by seed) are left out. Intervals of 95 % are
  bootstrapped: seeds and candidates are drawn again, tasks are not.
- ``tau``: Kendall's tau of closeness with mean accuracy, over all pairs of candidates of a task.
- ``claims``: what the paper says of candidates of the task itself and of unrelated ones, and what
  the share of "pairs_32" and the rule of ``nothing`` say of those that differ clearly from nothing.
- ``probes``: GSD of other models and at trained weights, with 300 rows of each set: Kendall's tau
  with that of the linear model.
- ``start``: accuracy with labelled public rows, which is the second phase of the paper, beside
  that without the labels, for five seeds.
- ``fixed``: MNIST with the same number of its own directions and of those of CIFAR-10; "share" is
  what they hold of centred rows, "signal" the squared norm of the mean gradient at zero weights of
  rows that are brought to one length on them.
- ``runs``: `select_public` by both kinds of energy, at epsilon 0.1 and with 8 directions, in 100
  runs, each with other private rows and candidates. ``choice``: in how many of them the mean
  accuracy of the chosen candidate is within half a point, or two standard errors, of that of the
  best one. Beside it by epsilon, computed from the energies of the first 10 runs: the chance of
  that, and the mean accuracy that the choice loses.
- ``mechanisms``: the exponential mechanism beside permute-and-flip at one charge, in a ledger
  that has a fit of GEPClassifier at epsilon 0.5 as well.
- ``nothing``: the share of energy from which on directions are better than none, found by turning
  32 directions of held-out rows into random ones, beside the rule (1 + z_k) / (1 + z_p).

Cells that are in the output file already are not run again.

usage: python benchmarks/repro_gsd.py [section ...] [--seeds 20] [--tasks fashion ...] [--out FILE]
"""

from collections import Counter
from functools import cache, lru_cache, partial
from itertools import combinations

import _public_sets
import numpy as np
import torch
from _run import earlier, judged, run, spread
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.stats import kendalltau, norm
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from torch import nn

from dpsubspace import (
    DPSGDClassifier,
    DPSGDFClassifier,
    GEPClassifier,
    PrivacyLedger,
    select_public,
)
from dpsubspace.public_data import (
    gradient_subspace_distance,
    optimal_transport_distance,
    task2vec_distance,
)

TASKS = [*_public_sets.TASKS, "mixtures"]
CONSUMERS, NOTHING = ("gep", "pca"), "nothing"
N_COMPONENTS, EPSILON = 32, 0.5


@cache
def before(path):
    """Rows by section that the output file had at the start."""
    return earlier(path) or {}


def known(args, section):
    """Rows of a section that this run or the output file has."""
    return args.results.get(section) or before(args.out).get(section, [])


def resumed(cells):
    """Section of cells, pairs of a key and a function that measures, but for those there are."""

    def section(args):
        for key, measure in cells(args):
            rows = before(args.out).get(cells.__name__, [])
            there = [row for row in rows if key.items() <= row.items()]
            yield there[0] if there else key | measure()

    return section


# Accuracy ---------------------------------------------------------------------------------------


@resumed
def accuracy(args):
    """Accuracy of both consumers with each candidate, a row for each task and seed."""
    for task in args.tasks:
        for seed in args.seeds:
            yield {"task": task, "seed": seed}, partial(accuracies, task, seed)


def accuracies(task, seed):
    """Accuracy by consumer and candidate, and the area under the curve for two classes."""
    X, y, X_test, y_test, candidates = _public_sets.task(task, seed=seed)
    found = {}
    for name, public in {NOTHING: None, **candidates}.items():
        for consumer in CONSUMERS:
            model, scored = fitted(consumer, X, y, X_test, public, seed)
            score = model.score(scored, y_test)
            found.setdefault(consumer, {})[name] = round(float(score), 4)
            if len(model.classes_) == 2:
                area = roc_auc_score(y_test, model.decision_function(scored))
                found.setdefault(f"{consumer}_auc", {})[name] = round(float(area), 4)
    return found


def fitted(consumer, X, y, X_test, public, seed):
    """A model, and the test rows in the form that it takes."""
    options = {"epsilon": EPSILON, "random_state": seed}
    if public is None:
        Model = DPSGDFClassifier if consumer == "gep" else DPSGDClassifier
        return Model(**options).fit(X, y), X_test
    if consumer == "gep":
        return GEPClassifier(**options).fit(X, y, X_public=(public,)), X_test
    pca = PCA(N_COMPONENTS, random_state=0).fit(public)
    model = DPSGDClassifier(**options).fit(pca.transform(X), y)
    return model, pca.transform(X_test)


def scores(args, task, consumer):
    """Accuracy by candidate, an array with one value a seed."""
    rows = [row[consumer] for row in known(args, "accuracy") if row["task"] == task]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def means(args):
    for task in args.tasks:
        table = {
            consumer: scores(args, task, consumer)
            for consumer in ("gep", "pca", *(("gep_auc", "pca_auc") if task == "chest" else ()))
        }
        for name in table["gep"]:
            row = {"task": task, "candidate": name, "seeds": len(table["gep"][name])}
            for consumer, values in table.items():
                row[consumer] = round(float(values[name].mean()), 4)
                row[f"{consumer}_se"] = round(standard_error(values[name]), 4)
            yield row


def standard_error(values):
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def apart(first, second):
    """Sign of the difference of two means, 0 within two standard errors of it."""
    difference = first - second
    error = standard_error(difference)
    return int(np.sign(difference.mean())) * int(abs(difference.mean()) > 2 * error)


def good_enough(table):
    """Mean accuracy by candidate and whether it is within half a point, or two errors, of the best.

    Of candidates only: "nothing" is none.
    """
    table = {name: values for name, values in table.items() if name != NOTHING}
    best = max(table, key=lambda name: table[name].mean())
    found = {}
    for name, values in table.items():
        behind = table[best] - values
        bound = max(0.005, 2 * standard_error(behind) if name != best else 0)
        found[name] = float(values.mean()), bool(behind.mean() <= bound)
    return found


# Distances --------------------------------------------------------------------------------------

# What is larger for candidates that are closer.
CLOSENESS = ("energy", "energy_16", "energy_64", "affine", "pairs", "pairs_32")
DISTANCES = ("gsd", "task2vec", "transport")
INTERVAL, POOLED = (0.025, 0.975), ("pooled", "low", "high")


@resumed
def distances(args):
    for task in args.tasks:
        for name in _public_sets.task(task)[4]:
            yield {"task": task, "candidate": name}, partial(distances_of, task, name)


def distances_of(task, name):
    X, y, candidates = labelled(task)
    public, labels = candidates[name]
    classes = {"n_classes": len(np.unique(y)), "n_repeats": 3, "random_state": 0}
    both = {"y_private": y, "y_public": labels, "random_state": 0}
    gsd, details = gradient_subspace_distance(X, public, return_details=True, **classes)
    found = {"gsd": gsd, "gsd_spread": details.spread}
    found["task2vec"] = task2vec_distance(X, public, **both)
    found["transport"] = optimal_transport_distance(X, public, **both)
    return {key: round(float(value), 5) for key, value in found.items()}


@lru_cache(1)
def labelled(task):
    X, y, _, _, candidates = _public_sets.labelled_task(task)
    return X, y, candidates


def energies(args):
    for task in args.tasks:
        X, _, candidates = labelled(task)
        for name, (public, _) in candidates.items():
            found = shares(X, public)
            row = {"task": task, "candidate": name}
            yield row | {kind: round(float(value), 5) for kind, value in found.items()}


def shares(X, public):
    """Shares of energy by kind: means over private rows of numbers from 0 to 1."""
    rows, public = unit(X), unit(public)
    about_zero, mean = directions(public, 64), public.mean(axis=0)
    found = {}
    for kind, count in (("energy", 8), ("energy_16", 16), ("energy_64", 64)):
        found[kind] = np.mean(np.sum((rows @ about_zero[:, :count]) ** 2, axis=1))
    about_mean = directions(public - mean, 32)
    centred = rows - mean
    off = np.sum(centred**2, axis=1) - np.sum((centred @ about_mean[:, :8]) ** 2, axis=1)
    found["affine"] = 1 - np.mean(np.minimum(off, 1))
    for kind, count in (("pairs", 8), ("pairs_32", 32)):
        found[kind] = np.mean(of_pairs(rows, about_mean[:, :count]))
    return found


def of_pairs(rows, axes):
    """Share of the difference of two rows along some directions, each row in one pair."""
    pairs = rows[::2] - rows[1::2]
    return np.sum((pairs @ axes) ** 2, axis=1) / np.sum(pairs**2, axis=1)


def unit(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def directions(rows, count):
    """Leading directions (d, k) of rows about zero."""
    width = rows.shape[1]
    moment = rows.T @ rows
    return eigh(moment, subset_by_index=(width - count, width - 1))[1][:, ::-1]


# Concordance ------------------------------------------------------------------------------------


def all_closeness(args):
    """How close each candidate is, by kind, task and name: distances count negatively."""
    closeness = {}
    for section, kinds, sign in (("distances", DISTANCES, -1), ("energies", CLOSENESS, 1)):
        for row in known(args, section):
            for kind in kinds:
                of_kind = closeness.setdefault(kind, {}).setdefault(row["task"], {})
                of_kind[row["candidate"]] = sign * row[kind]
    return closeness


def concordance(args):
    closeness = all_closeness(args)
    for consumer in CONSUMERS:
        tables = {task: candidates_of(args, task, consumer) for task in args.tasks}
        orders, rng = clear_orders(tables), np.random.default_rng(0)
        drawn = [clear_orders(resampled(tables, rng)) for _ in range(500)]
        for kind, values in closeness.items():
            row = {"consumer": consumer, "distance": kind}
            for task in args.tasks:
                row[task] = agreement([each for each in orders if each[0] == task], values)
            row["pooled"] = agreement(orders, values)
            row["low"], row["high"] = np.quantile([agreement(d, values) for d in drawn], INTERVAL)
            numbers = {key: round(float(row[key]), 3) for key in (*args.tasks, *POOLED)}
            yield row | numbers


def tau(args):
    for consumer in CONSUMERS:
        tables = {task: candidates_of(args, task, consumer) for task in args.tasks}
        for kind, closeness in all_closeness(args).items():
            row = {"consumer": consumer, "distance": kind}
            for task, table in tables.items():
                pairs = [(closeness[task][name], values.mean()) for name, values in table]
                row[task] = round(float(kendalltau(*zip(*pairs, strict=True))[0]), 3)
            yield row


def candidates_of(args, task, consumer):
    """Pairs of a candidate and its accuracies."""
    table = scores(args, task, consumer)
    return [(name, values) for name, values in table.items() if name != NOTHING]


def clear_orders(tables):
    """Task, two candidates, and the sign of the difference of their accuracies, where clear."""
    found = []
    for task, table in tables.items():
        for (first, accuracy), (second, other) in combinations(table, 2):
            if order := apart(accuracy, other):
                found.append((task, first, second, order))
    return found


def agreement(orders, values):
    """Share of pairs that values put in the same order, less that of the other order."""
    signs = [order * np.sign(values[task][a] - values[task][b]) for task, a, b, order in orders]
    return float(np.mean(signs)) if signs else 0.0


def resampled(tables, rng):
    """The same with seeds and candidates drawn again."""
    drawn = {}
    for task, table in tables.items():
        n_seeds = len(table[0][1])
        seeds = rng.integers(n_seeds, size=n_seeds)
        chosen = rng.integers(len(table), size=len(table))
        drawn[task] = [(table[i][0], table[i][1][seeds]) for i in chosen]
    return drawn


# Claims of the paper ----------------------------------------------------------------------------


def claims(args):
    """Rank of the task's own rows, and who is clearly worse than no public rows at all."""
    for task in args.tasks:
        for consumer in CONSUMERS:
            table = scores(args, task, consumer)
            nothing = table.pop(NOTHING)
            ranked = sorted(table, key=lambda name: -table[name].mean())
            own = "100 % fashion" if task == "mixtures" else "held out"
            worse = [name for name in ranked if apart(table[name], nothing) < 0]
            better = [name for name in ranked if apart(table[name], nothing) > 0]
            row = {
                "task": task,
                "consumer": consumer,
                "best": ranked[0],
                "rank of own": 1 + ranked.index(own),
                "clearly better than own": sum(apart(table[n], table[own]) > 0 for n in ranked),
                "own less best": round(float(table[own].mean() - table[ranked[0]].mean()), 4),
                "nothing": round(float(nothing.mean()), 4),
                "clearly worse than nothing": len(worse),
                "worst": ranked[-1],
            }
            if consumer == "gep":
                row |= told(args, task, better, worse)
            yield row


def told(args, task, better, worse):
    """How many candidates the share of pairs puts on the right side of the rule."""
    rows = known(args, "energies")
    share = {row["candidate"]: row["pairs_32"] for row in rows if row["task"] == task}
    least = rule(task, EPSILON)
    return {
        "rule": least,
        "better, and told": f"{sum(share[n] > least for n in better)} of {len(better)}",
        "worse, and told": f"{sum(share[n] <= least for n in worse)} of {len(worse)}",
    }


@resumed
def probes(args):
    """Kendall's tau of the order by GSD with that by the linear model at zero weights."""
    for task in _public_sets.TASKS:
        for probe in ("linear", "convolutions", *(f"perceptron, {n} epochs" for n in (0, 1, 10))):
            yield {"task": task, "probe": probe}, partial(order_by, task, probe)


def order_by(task, probe):
    names, linear = probed(task, "linear")
    values = probed(task, probe)[1]
    return {
        "tau": round(float(kendalltau(linear, values)[0]), 3),
        "own": round(float(values[names.index("held out")]), 3),
        "closest": names[int(np.argmin(values))],
        "farthest": names[int(np.argmax(values))],
    }


@cache
def probed(task, probe):
    """Names of the candidates, and their GSD by some model."""
    X, y, _, _, candidates = _public_sets.task(task, n_private=300, n_public=300)
    shape, c, module, as_seen = _public_sets.TASKS[task], len(np.unique(y)), None, np.asarray
    if probe == "convolutions":
        module, as_seen = "cnn", partial(images, shape=shape)
    elif probe != "linear":
        module = perceptron(X, y, int(probe.split()[1]))
    options = {"module": module, "n_classes": c, "n_repeats": 1, "random_state": 0}
    rows = as_seen(X)
    values = [
        gradient_subspace_distance(rows, as_seen(public), **options)
        for public in candidates.values()
    ]
    return list(candidates), values


def images(rows, shape):
    """Rows as (height, width) or (colours, height, width)."""
    side = shape.side // shape.square
    rows = rows.reshape(-1, side, side, shape.colours).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(rows if shape.colours > 1 else rows[:, 0])


def perceptron(X, y, epochs):
    """A small network, trained on the private rows without privacy for some epochs."""
    torch.manual_seed(0)
    c = len(np.unique(y))
    outputs = c if c > 2 else 1
    module = nn.Sequential(nn.Linear(X.shape[1], 32), nn.Tanh(), nn.Linear(32, outputs))
    step = torch.optim.Adam(module.parameters(), lr=1e-3)
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    loss = nn.CrossEntropyLoss() if c > 2 else nn.BCEWithLogitsLoss()
    target = y if c > 2 else y[:, None].float()
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(50):
            step.zero_grad()
            loss(module(X[batch]), target[batch]).backward()
            step.step()
    return module.eval()


@resumed
def start(args):
    """Accuracy of GEPClassifier from weights that were fitted to a candidate with its labels."""
    for task in ("fashion", "mnist", "cifar10"):
        for name in ("held out", "shifted", "inverted", "permuted", "kmnist", "gaussian"):
            yield {"task": task, "candidate": name}, partial(started, args, task, name)


def started(args, task, name):
    values, used = [], 0
    for seed in args.seeds[:5]:
        X, y, X_test, y_test, candidates = _public_sets.labelled_task(task, seed=seed)
        public, labels = candidates[name]
        model = GEPClassifier(epsilon=EPSILON, random_state=seed)
        model.fit(X, y, X_public=(public,), y_public=(labels,))
        values.append(model.score(X_test, y_test))
        used += model.init_ == "public"
    without = scores(args, task, "gep")[name][: len(values)].mean()
    row = {"started there": used} | spread("with labels", values)
    return row | {"without": round(float(without), 4)}


@resumed
def fixed(args):
    """On MNIST: as many directions of its own rows as of CIFAR-10, for five seeds."""
    for count in (16, 32, 48, 64):
        for name in ("held out", "cifar10"):
            key = {"components": count, "candidate": name}
            yield key, partial(with_fixed, args, count, name)


def with_fixed(args, count, name):
    accuracies, kept, signals = [], [], []
    for seed in args.seeds[:5]:
        X, y, X_test, y_test, candidates = _public_sets.task("mnist", seed=seed)
        public = candidates[name]
        model = GEPClassifier(epsilon=EPSILON, n_components=count, random_state=seed)
        accuracies.append(model.fit(X, y, X_public=(public,)).score(X_test, y_test))
        rows, public = unit(X), unit(public)
        centred = rows - rows.mean(axis=0)
        on = centred @ directions(public - public.mean(axis=0), count)
        kept.append(np.sum(on**2) / np.sum(centred**2))
        residuals = np.eye(10)[y] - 0.1
        signals.append(np.sum((residuals.T @ unit(on) / len(on)) ** 2))
    row = spread("accuracy", accuracies) | {"share": round(float(np.mean(kept)), 3)}
    return row | {"signal": round(float(np.mean(signals)), 4)}


# The private choice -----------------------------------------------------------------------------

RUNS, CURVE_RUNS, CHOICE_EPSILON, CHOICE_COMPONENTS = 100, 10, 0.1, 8
CURVE = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def choice(args):
    for method in METHODS:
        for task in args.tasks:
            chosen, totals = all_runs(args, method, task)
            for consumer in CONSUMERS:
                row = {"method": method, "task": task, "consumer": consumer, "runs": len(chosen)}
                row |= outcome(good_enough(scores(args, task, consumer)), chosen, totals)
                if consumer == "gep" and task != "mixtures":
                    row |= judged(row["within"] >= 0.95 * len(chosen))
                yield row


def outcome(table, chosen, totals):
    """How good the choices were, and how good they are at other epsilons."""
    means, met = (np.array(each) for each in zip(*table.values(), strict=True))
    lost = means.max() - np.mean([table[name][0] for name in chosen])
    row = {"within": sum(table[name][1] for name in chosen), "lost": round(float(lost), 4)}
    row["chosen"] = dict(Counter(chosen))
    for epsilon in CURVE:
        chances = exponential(in_order(totals, table), epsilon)
        row[f"within at {epsilon:g}"] = round(float((chances @ met).mean()), 3)
        row[f"lost at {epsilon:g}"] = round(float((chances @ (means.max() - means)).mean()), 4)
    return row


METHODS = ("energy", "centered_energy")


@resumed
def runs(args):
    """The name that is chosen in each run, and totals of energy in the first runs of a task."""
    for method in METHODS:
        for task in args.tasks:
            for seed in range(1000, 1000 + args.runs):
                key = {"method": method, "task": task, "seed": seed}
                yield key, partial(one_run, **key)


def one_run(method, task, seed):
    X, _, _, _, candidates = _public_sets.task(task, seed=seed)
    options = {"method": method, "n_components": CHOICE_COMPONENTS, "random_state": seed}
    row = {"chosen": select_public(candidates, X, epsilon=CHOICE_EPSILON, **options).name}
    if seed < 1000 + CURVE_RUNS:
        rows = unit(X)
        row["totals"] = {
            name: round(float(total(method, rows, unit(public))), 1)
            for name, public in candidates.items()
        }
    return row


def total(method, rows, public):
    if method == "energy":
        return np.sum((rows @ directions(public, CHOICE_COMPONENTS)) ** 2)
    return np.sum(of_pairs(rows, directions(public - public.mean(axis=0), CHOICE_COMPONENTS)))


def all_runs(args, method, task):
    """Names that were chosen, and totals by candidate of the runs that have them."""
    of = {"method": method, "task": task}
    rows = [row for row in known(args, "runs") if of.items() <= row.items()]
    return [row["chosen"] for row in rows], [row["totals"] for row in rows if "totals" in row]


def in_order(totals, table):
    """Totals as an array (runs, candidates), in the order of a table."""
    return np.array([[each[name] for name in table] for each in totals])


def exponential(totals, epsilon):
    """Chances of the exponential mechanism under zero_out, (runs, candidates)."""
    weights = np.exp(epsilon * (totals - totals.max(axis=1, keepdims=True)))
    return weights / weights.sum(axis=1, keepdims=True)


def permute_and_flip(totals, epsilon):
    """The same for permute-and-flip: the largest of scores with exponential noise."""
    accepted = np.exp(epsilon * (totals - totals.max(axis=1, keepdims=True)))
    nodes, weights = np.polynomial.legendre.leggauss(totals.shape[1])
    at = (nodes + 1) / 2
    chances = np.zeros_like(totals)
    for j in range(totals.shape[1]):
        others = np.delete(accepted, j, axis=1)
        refused = np.prod(1 - others[:, :, None] * at, axis=1)
        chances[:, j] = accepted[:, j] * (refused @ weights) / 2
    return chances


def mechanisms(args):
    """Both at one charge, of which permute-and-flip has more if it is counted as pure privacy."""
    fit = GEPClassifier(epsilon=EPSILON).privacy_event(2000, 785, 10)
    total = with_range(fit, CHOICE_EPSILON)
    bounds = (CHOICE_EPSILON / 10, CHOICE_EPSILON)
    by_range = brentq(lambda e: with_range(fit, 2 * np.log(2 * np.exp(e / 2) - 1)) - total, *bounds)
    pure = brentq(lambda e: with_pure(EPSILON, e) - total, *bounds)
    for task in args.tasks:
        table = good_enough(scores(args, task, "gep"))
        behind = max(mean for mean, _ in table.values()) - np.array([m for m, _ in table.values()])
        met = np.array([ok for _, ok in table.values()])
        totals = in_order(all_runs(args, "energy", task)[1], table)
        row = {"task": task, "fit and choice": round(total, 4), "exponential": CHOICE_EPSILON}
        row |= {"by range": round(by_range, 4), "as pure": round(pure, 4)}
        for name, chances in (
            ("exponential", exponential(totals, CHOICE_EPSILON)),
            ("flip by range", permute_and_flip(totals, by_range)),
            ("flip as pure", permute_and_flip(totals, pure)),
        ):
            row[f"{name} within"] = round(float((chances @ met).mean()), 3)
            row[f"{name} lost"] = round(float((chances @ behind).mean()), 5)
        yield row


def with_range(fit, epsilon):
    """Epsilon at delta 1e-5 of a fit and a choice whose privacy loss has a range of `epsilon`."""
    toy = np.random.default_rng(0).normal(size=(2, 20, 4))
    options = {"epsilon": float(epsilon), "n_components": 1, "random_state": 0}
    event = select_public({"a": toy[0], "b": toy[1]}, np.ones((2000, 4)), **options).privacy.event
    ledger = PrivacyLedger(epsilon=10, delta=1e-5)
    for each in (fit, event):
        ledger.charge(each, neighboring_relation="zero_out")
    return ledger.epsilon()


def with_pure(fit_epsilon, epsilon):
    """The same for any mechanism of pure privacy, whose worst losses are plus and minus epsilon."""
    mu = strength(fit_epsilon)
    share = 1 / (1 + np.exp(-epsilon))

    def both(at):
        return share * delta(mu, at - epsilon) + (1 - share) * delta(mu, at + epsilon) - 1e-5

    return brentq(both, fit_epsilon / 2, fit_epsilon + 2 * epsilon)


def strength(epsilon):
    """One over the noise multiplier of a whole fit, at delta 1e-5."""
    return brentq(lambda mu: delta(mu, epsilon) - 1e-5, 1e-3, 9)


def delta(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


# No public rows ---------------------------------------------------------------------------------

# Shares of the energy of the leading directions that are kept, and what gradients are worth beside
# their clip norm.
KEPT, GRADIENT = (0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1), 0.05


@resumed
def nothing(args):
    """Where accuracy on directions of some share crosses that without directions."""
    for task in ("mnist", "fashion", "chest"):
        for epsilon in (0.2, 0.5, 1.5):
            yield {"task": task, "epsilon": epsilon}, partial(crossings, args, task, epsilon)


def crossings(args, task, epsilon):
    found = [turned(task, epsilon, seed) for seed in args.seeds[:3]]
    shares, pca, gep = np.mean([each[0] for each in found], axis=0).T
    without = np.mean([each[1] for each in found], axis=0)
    return {
        "pca from": crossing(shares, pca, without[0]),
        "gep from": crossing(shares, gep, without[1]),
        "gep or dpsgdf from": crossing(shares, gep, without[2]),
        "rule": rule(task, epsilon),
    }


def turned(task, epsilon, seed):
    """Share and accuracies of both consumers by share kept, and accuracies without directions.

    The mean is that of the held-out rows throughout, but for DPSGDFClassifier.
    """
    X, y, X_test, y_test, candidates = _public_sets.task(task, seed=seed)
    X, X_test, public = unit(X), unit(X_test), unit(candidates["held out"])
    mean, rng = public.mean(axis=0), np.random.default_rng(seed)
    own = directions(public - mean, N_COMPONENTS)
    scales = (public - mean) @ own
    random = rng.normal(size=own.shape)
    random = np.linalg.qr(random - own @ (own.T @ random))[0]
    options, found = {"epsilon": epsilon, "random_state": seed}, []
    for kept in KEPT:
        axes = np.sqrt(kept) * own + np.sqrt(1 - kept) * random
        rows, scored = (X - mean) @ axes, (X_test - mean) @ axes
        pca = DPSGDClassifier(**options).fit(rows, y).score(scored, y_test)
        like = {"X_public": ((mean + scales @ axes.T).astype(np.float32),)}
        gep = GEPClassifier(n_components=N_COMPONENTS, **options).fit(X, y, **like)
        share = np.sum(rows**2) / np.sum((X - mean) ** 2)
        found.append((share, pca, gep.score(X_test, y_test)))
    gep = GEPClassifier(n_components=0, **options).fit(X, y, X_public=(public,))
    without = (
        DPSGDClassifier(**options).fit(X - mean, y).score(X_test - mean, y_test),
        gep.score(X_test, y_test),
        DPSGDFClassifier(**options).fit(X, y).score(X_test, y_test),
    )
    return found, without


def crossing(shares, accuracies, alone):
    """Smallest share from which on accuracy is above `alone`, linear between two; None if none."""
    below = np.flatnonzero(accuracies < alone)
    if not len(below):
        return 0.0
    last = below[-1]
    if last + 1 == len(shares):
        return None
    gained = (alone - accuracies[last]) / (accuracies[last + 1] - accuracies[last])
    return round(float(shares[last] + gained * (shares[last + 1] - shares[last])), 3)


def rule(task, epsilon, count=N_COMPONENTS, n=2000):
    """Share at which projection breaks even, by the noise of all steps and numbers of weights."""
    shape = _public_sets.TASKS["fashion" if task == "mixtures" else task]
    c = 1 if task == "chest" else 10
    width = (shape.side // shape.square) ** 2 * shape.colours
    noise = 1 / strength(epsilon) / (n * GRADIENT)
    sizes = [noise * np.sqrt(q * c) for q in (count, width)]
    return round(float((1 + sizes[0]) / (1 + sizes[1])), 3)


SECTIONS = {
    "accuracy": accuracy,
    "means": means,
    "distances": distances,
    "energies": energies,
    "concordance": concordance,
    "tau": tau,
    "claims": claims,
    "probes": probes,
    "start": start,
    "fixed": fixed,
    "runs": runs,
    "choice": choice,
    "mechanisms": mechanisms,
    "nothing": nothing,
}

if __name__ == "__main__":
    # Small data sets and epsilons are the point.
    options = {"seeds": 20, "tasks": TASKS, "runs": RUNS}
    run(__doc__, SECTIONS, options, ignored=(Warning,))
