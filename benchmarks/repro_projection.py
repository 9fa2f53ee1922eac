"""How much of gradients public directions miss, and how many rows a private ranking needs.

What the papers of GEPClassifier (Yu et al., 2021) and GSDScorer (Gu et al., 2023) rest on.
Sections:

- ``curves``: 2,000 private rows and 2,000 public ones of each kind (300 for a network). Share of
  the gradients of private rows off 1, 4, 16 and 64 leading directions of public rows of the same
  source, of another source and of noise, beside random directions. Of linear models, about zero
  and about the mean of the public rows, which is what GEPClassifier sees; and of the small network
  of GSDScorer. "released" is `private_projection_error` at epsilon 0.5 with the rows of the same
  source: the root mean square over seeds of what noise does to each error. "stable_rank" is that of
  the private gradients, "at_most" the bound from the first public direction, without noise.
- ``needed``: GSDScorer of growing numbers of rows, without and with the candidates in its fit
  ("span"): Kendall's tau of its ranking of thirteen candidates with the ranking without noise by
  all rows, and how often the set that it puts first is within 0.02 of the best one. This is a
  simulation. "proved" is the number of rows from which on a distance is within 0.05 of that without
  noise with a probability of 95 %, for `mechanism="gaussian"` (``pages/choosing_public_rows.md``).

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_projection.py [curves needed] [--seeds 5]
       [--out benchmarks/results/projection.json]
"""

import math

import _public_sets
import numpy as np
import repro_defaults
from _run import run, spread
from scipy.stats import kendalltau

from dpsubspace._core.public.gradient_spaces import random_labels
from dpsubspace._core.public.subspace import unit_rows
from dpsubspace.public_data import GSDScorer, private_projection_error
from dpsubspace.public_data._distances import probe_gradients

INF = math.inf
COUNTS = [1, 4, 16, 64]
OTHER = {"mnist": "kmnist", "fashion": "notmnist", "chest": "mednist", "cifar10": "cifar100"}


# Curves -----------------------------------------------------------------------------------------


def kinds_of(name, n, seed):
    """Private rows, and public ones by kind."""
    if name == "adult":
        X = repro_defaults.rows_of(name)[0]
        X = X[np.random.default_rng(seed).permutation(len(X))].astype(np.float64)
        private, public = X[:n], X[n : 2 * n]
        noise = np.random.default_rng(seed).uniform(0, 1, public.shape)
        return private, {"same": public, "noise": noise}
    X, _, _, _, candidates = _public_sets.task(name, n_private=n, n_public=n, seed=seed)
    kinds = {"same": "held out", "other": OTHER[name], "noise": "uniform"}
    return X, {kind: candidates[title] for kind, title in kinds.items()}


def curve_rows(args):
    for name in ("mnist", "fashion", "chest", "cifar10", "adult"):
        private, public = kinds_of(name, 2_000, 0)
        mean = public["same"].mean(axis=0)
        for about, shift in {"zero": 0.0, "public mean": mean}.items():
            moved = {kind: rows - shift for kind, rows in public.items()}
            yield {"data": name, "gradients": f"rows about {about}"} | curves(
                private - shift, moved, np.array(COUNTS), args.seeds
            )
    for name, shape in _public_sets.TASKS.items():
        private, public = kinds_of(name, 300, 0)
        side = shape.side // shape.square
        images = {"": private, **public}
        for kind, rows in images.items():  # channels come first
            rows = rows.reshape(len(rows), side, side, shape.colours)
            images[kind] = np.moveaxis(rows, 3, 1).reshape(len(rows), -1)
        private = images.pop("")
        module = {"module": "cnn", "input_shape": (shape.colours, side, side)}
        yield {"data": name, "gradients": "small network"} | curves(
            private, images, np.array(COUNTS), args.seeds, **module
        )


def curves(private, public, counts, seeds, **module):
    """A row for one kind of gradients."""
    options = {"n_components": counts, **module}
    found = {
        kind: private_projection_error(private, rows, epsilon=INF, random_state=0, **options).value
        for kind, rows in public.items()
    }
    row = {kind: np.round(each.error, 3).tolist() for kind, each in found.items()}
    row["random"] = np.round(found["same"].random, 3).tolist()
    exact = found["same"].error
    released = [
        private_projection_error(
            private, public["same"], epsilon=0.5, random_state=seed, **options
        ).value.error
        for seed in (seeds if not module else [])
    ]
    if released:
        row["released"] = np.round(np.sqrt(np.mean((released - exact) ** 2, axis=0)), 3).tolist()
    row["stable_rank"] = round(stable_rank(private, **module), 2)
    row["at_most"] = {kind: round(each.stable_rank, 2) for kind, each in found.items()}
    return row


def stable_rank(rows, module=None, input_shape=None):
    """Stable rank of gradients, each divided by its norm."""
    if module is None:
        unit = unit_rows(rows)
        return len(unit) / np.linalg.eigvalsh(unit.T @ unit)[-1]
    gradients = probe_gradients(module, input_shape, 10, 0)
    gram = gradients.of_rows(rows, random_labels(0, 10, len(rows))).gram()
    norms = np.sqrt(np.diag(gram))
    return len(rows) / np.linalg.eigvalsh(gram / np.outer(norms, norms))[-1]


# Rows of a ranking ------------------------------------------------------------------------------

N_COMPONENTS = 8
SIZES = {"mnist": (250, 1000, 4000, 16_000), "fashion": (250, 1000, 4000, 16_000)}
SIZES |= {"cifar10": (250, 1000, 4000, 16_000), "chest": (250, 1000, 2000)}


def sets_of(name, n):
    """Private rows and candidates, without mixtures of two sets."""
    X, _, _, _, candidates = _public_sets.task(name, n_private=n, n_public=1000, seed=0)
    return X, {title: rows for title, rows in candidates.items() if "+" not in title}


def needed_rows(args):
    for name, sizes in SIZES.items():
        private, candidates = sets_of(name, sizes[-1])
        truth = GSDScorer(n_components=N_COMPONENTS, epsilon=INF).fit(private).rank(candidates)
        for epsilon in (0.3, 1.0):
            for n in sizes:
                row = {"data": name, "epsilon": epsilon, "n": n, "sets": len(candidates)}
                for title, given in {"": {}, "_span": {"X_public": candidates}}.items():
                    taus, firsts = [], []
                    for seed in args.seeds:
                        some = np.random.default_rng([seed, n]).permutation(len(private))[:n]
                        scorer = GSDScorer(
                            n_components=N_COMPONENTS, epsilon=epsilon, random_state=seed
                        )
                        found = scorer.fit(private[some], **given).rank(candidates)
                        order = [found[each] for each in truth]
                        taus.append(kendalltau(order, list(truth.values()))[0])
                        firsts.append(truth[next(iter(found))] < min(truth.values()) + 0.02)
                    row |= spread(f"tau{title}", taus)
                    row[f"first{title}"] = float(np.mean(firsts))
                yield row | {"proved": proved(private, epsilon)}


def proved(rows, epsilon, k=N_COMPONENTS, within=0.05, failing=0.05):
    """Rows for a distance within so much of that without noise, by matrix perturbation."""
    unit = unit_rows(rows)
    values = np.linalg.eigvalsh(unit.T @ unit / len(unit))[::-1]
    scorer = GSDScorer(n_components=k, epsilon=epsilon, mechanism="gaussian")
    multiplier = scorer.privacy_event(len(rows), unit.shape[1]).noise_multiplier
    noise = multiplier * (math.sqrt(2 * unit.shape[1]) + math.sqrt(2 * math.log(2 / failing)))
    return math.ceil(2 * noise / (within * (values[k - 1] - values[k])))


SECTIONS = {"curves": curve_rows, "needed": needed_rows}

if __name__ == "__main__":
    run(__doc__, SECTIONS, {"seeds": 5}, ignored=(Warning,))
