"""Private linear regression on twelve tables: raw columns without bounds, and public ranges.

Every seed draws the split and the noise; of schools and patients it draws new ones to test with.
Delta is 1e-5. R2 is on test rows, and the root mean squared error (RMSE) is in units of the target.
"low" is the number of runs below -0.05, and "warned" how many runs warned of what. Sections:

- ``raw``: columns as they come, and no bounds. Missing values are a public constant and
  categories have a column each. What estimates ranges of columns does so with half of epsilon and
  delta. AdaSSP cannot do without ranges: it stands in the next section.
- ``ranges``: public ranges of all columns and of the target, for all methods.
- ``public``: some groups of a table are public tasks, and the others are private rows: schools,
  red wines beside white ones, and blocks of houses by their distance to the ocean.
- ``unit``: diabetes without any bound. Columns are divided by their standard deviations and then
  rows by the largest norm, and 150 is taken from the target and the rest divided by 100.
- ``curves``: normal rows of many sizes, of which few or all columns tell of the target, with little
  or much noise in it, between public ranges; and tables as they come with 400 columns beside them
  that tell nothing. Beside others, "constant" is the R2 of the mean of the training targets. Runs
  where it is named.
- ``verdicts``: differences to the better of both AdaSSP by seed, and the aims of this package.

AdaSSP (Wang, 2018) is written here. "as published" spends a third of epsilon and delta on each of
its three releases; "joint" is calibrated exactly as one Gaussian release, with symmetric noise of
the least size and a ridge of the spectral norm of that noise, which is the stronger one. Both have
rows of entries in [-1, 1] and a constant 1, and targets in [-1, 1]. The public second moment is
that of Cao and Zhang (2025), with their radius or with that of 99 % of the public rows. Iterative
Hessian mixing (Lev and others, 2026) is in ``_hessian_mixing.py``.

diffprivlib runs where ``--peer-python`` names the interpreter of its environment.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_regression.py
       [raw ranges public unit curves verdicts] [--only protein wine ...] [--methods AdaSSP ...]
       [--quick] [--seeds 20] [--jobs 2] [--peer-python ENV/bin/python]
       [--out benchmarks/results/regression.json]
"""

import itertools
import json
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import _tables
import joblib
import numpy as np
from _hessian_mixing import hessian_mixing
from _run import judged, run, with_threads
from newcomer import short
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import dpsubspace
from dpsubspace import BoundedScaler, DPSGDRegressor
from dpsubspace._names import imported

EPSILONS, DELTA = (0.3, 1.0, 3.0), 1e-5
PUBLIC_TABLES = tuple(name for name in _tables.TABLES if name.endswith("_public"))
PRIVATE_TABLES = tuple(name for name in _tables.TABLES if name not in PUBLIC_TABLES)
NOT_JUDGED = ("parkinsons",)  # of new patients, a constant and all models have an R2 below 0
UNIT_GOALS = {0.3: 0.17, 1.0: 0.27, 3.0: 0.35}
FLOOR = 0.01  # of the eigenvalues of a public second moment, in units of the largest
QUICK = ("wine", "diabetes", "wine_public")


# Methods in NumPy -------------------------------------------------------------------------------


def gaussian_multiplier(epsilon: float, delta: float = DELTA) -> float:
    """Noise of one Gaussian release, in units of its sensitivity (Balle and Wang, 2018)."""

    def excess(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(
            epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        )

    return 1 / float(brentq(lambda mu: excess(mu) - delta, 1e-4, 50))


def in_box(X: np.ndarray, bounds: _tables.Range) -> np.ndarray:
    """Entries clipped to their ranges, on [-1, 1], and a constant 1."""
    return np.column_stack([_tables.on_range(X, *bounds), np.ones(len(X))])


def statistics(Z, z, radius, noise, rng, *, least):
    """Noisy Z'Z and Z'z of rows of norm `radius` and targets in [-1, 1].

    `least`: entries off the diagonal have less noise, since they count twice in the norm.
    """
    width = Z.shape[1]
    upper = np.triu(rng.normal(size=(width, width)), 1) / (np.sqrt(2) if least else 1)
    symmetric = upper + upper.T + np.diag(rng.normal(size=width))
    return (
        Z.T @ Z + noise * radius**2 * symmetric,
        Z.T @ z + noise * radius * rng.normal(size=width),
    )


def adassp(split, epsilon, seed, *, joint, share=0.05):
    """AdaSSP: a ridge that is as large as the noise needs, less the least eigenvalue."""
    table, rng = split.table, np.random.default_rng(seed)
    Z, z = in_box(split.X, table.bounds), _tables.on_range(split.y, *table.target_bounds)
    width = Z.shape[1]  # the squared norm of a row is at most that
    if joint:
        noise, behind = gaussian_multiplier(epsilon) * np.sqrt(3), norm.ppf(1 - share)
    else:
        log = np.log(6 / DELTA)
        noise, behind = np.sqrt(log) / (epsilon / 3), np.sqrt(log)
    smallest = np.linalg.eigvalsh(Z.T @ Z)[0] / width
    smallest = max(0, smallest + noise * (rng.normal() - behind)) * width
    norm_of_noise = np.sqrt(2 * width if joint else width * np.log(2 * width**2 / share))
    largest = norm_of_noise * noise * width
    gram, moments = statistics(Z, z, np.sqrt(width), noise, rng, least=joint)
    gram += max(0, largest - smallest) * np.eye(width)
    weights = np.linalg.solve(gram, moments)
    predictions = in_box(split.X_test, table.bounds) @ weights
    return _tables.off_range(predictions, *table.target_bounds)


def public_moment(split, epsilon, seed, *, published, share=0.05):
    """Statistics of rows that the second moment of public rows whitens, and that are cut off.

    Directions in which public rows hardly vary are not stretched beyond a floor, without which
    one rare category is a catastrophe. Eigenvalues of the noisy moment are at least as large as
    its noise, by a public formula.
    """
    table, rng = split.table, np.random.default_rng(seed)
    known = in_box(np.concatenate([X for X, _ in table.public]), table.bounds)
    width = known.shape[1]
    moment = known.T @ known / len(known)
    values, vectors = np.linalg.eigh(moment)
    whitening = vectors / np.sqrt(np.maximum(values, FLOOR * values[-1])) @ vectors.T
    if published:
        radius = np.sqrt(width * (1 + np.log(2 * len(split.X) / share)))
    else:
        radius = np.quantile(np.linalg.norm(known @ whitening, axis=1), 0.99)
    Z = in_box(split.X, table.bounds) @ whitening
    Z /= np.maximum(np.linalg.norm(Z, axis=1, keepdims=True) / radius, 1)
    z = _tables.on_range(split.y, *table.target_bounds)
    noise = gaussian_multiplier(epsilon) * np.sqrt(2)
    gram, moments = statistics(Z, z, radius, noise, rng, least=True)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, noise * radius**2 * np.sqrt(2 * width))
    weights = whitening @ (vectors @ (vectors.T @ moments / values))
    predictions = in_box(split.X_test, table.bounds) @ weights
    return _tables.off_range(predictions, *table.target_bounds)


# Estimators -------------------------------------------------------------------------------------


def not_private(split, epsilon, seed):
    return LinearRegression().fit(split.X, split.y).predict(split.X_test)


def constant(split, epsilon, seed):
    return np.full(len(split.X_test), split.y.mean())


def of_package(name, split, epsilon, seed, *, bounded=False, public=None, **options):
    """Estimator of this package, with ranges and public rows as a section has them."""
    if bounded:
        options |= {"bounds": split.table.bounds, "target_bounds": split.table.target_bounds}
    model = imported(name)(epsilon=epsilon, delta=DELTA, random_state=seed, **options)
    rows, values = zip(*split.table.public, strict=True) if public else ((), ())
    given = {"X_public": rows} if public else {}
    given |= {"y_public": values} if public == "labelled" else {}
    return model.fit(split.X, split.y, **given).predict(split.X_test)


def descent_in_ranges(split, epsilon, seed):
    model = DPSGDRegressor(
        epsilon=epsilon,
        delta=DELTA,
        data_norm=1.0,
        target_bounds=split.table.target_bounds,
        random_state=seed,
    )
    model = make_pipeline(BoundedScaler(bounds=split.table.bounds), model)
    return model.fit(split.X, split.y).predict(split.X_test)


def descent_in_estimated_ranges(split, epsilon, seed):
    half = {"epsilon": epsilon / 2, "delta": DELTA / 2, "random_state": seed}
    model = make_pipeline(BoundedScaler(**half), DPSGDRegressor(**half, data_norm=1.0))
    return model.fit(split.X, split.y).predict(split.X_test)


# What is compared -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """Predictions for test rows: a function of a split, epsilon and a seed; what it needs."""

    predict: Callable[..., np.ndarray]
    estimator: str | None = None  # of this package: left out where it is not there
    private: bool = True


OURS, OURS_PUBLIC = "DPLinearRegression", "PublicSubspaceLinearRegression"
ENDS = {
    "LinearRegression, not private": Method(not_private, private=False),
    "mean of the target, not private": Method(constant, private=False),
}


def ours(name, **options):
    return Method(partial(of_package, name, **options), name)


ADASSP = {
    "AdaSSP, as published": Method(partial(adassp, joint=False)),
    "AdaSSP, joint": Method(partial(adassp, joint=True)),
}
METHODS = {
    "raw": {
        **ENDS,
        OURS: ours(OURS),
        "DPSGDRegressor": ours("DPSGDRegressor"),
        "DPSGDRegressor, estimated ranges": Method(descent_in_estimated_ranges),
    },
    "ranges": {
        OURS: ours(OURS, bounded=True),
        "DPSGDRegressor": Method(descent_in_ranges),
        **ADASSP,
        "iterative Hessian mixing": Method(hessian_mixing),
    },
    "public": {
        **ENDS,
        OURS: ours(OURS, bounded=True),
        f"{OURS}, X_public": ours(OURS, bounded=True, public="rows"),
        OURS_PUBLIC: ours(OURS_PUBLIC, bounded=True, public="labelled"),
        "DPSGDRegressor": Method(descent_in_ranges),
        **ADASSP,
        "public second moment": Method(partial(public_moment, published=True)),
        "public second moment, public radius": Method(partial(public_moment, published=False)),
    },
    "unit": {
        **ENDS,
        OURS: ours(OURS),
        "DPSGDRegressor": ours("DPSGDRegressor"),
        "DPSGDRegressor, estimated ranges": Method(descent_in_estimated_ranges),
    },
}


def unit(split: _tables.Split) -> _tables.Split:
    """Columns over their standard deviations, then rows over the largest norm."""
    rows = np.concatenate([split.X, split.X_test])
    scale = rows.std(axis=0)
    scale = scale * np.linalg.norm(rows / scale, axis=1).max()
    changed = {"X": split.X / scale, "X_test": split.X_test / scale}
    return replace(split, **changed, y=(split.y - 150) / 100, y_test=(split.y_test - 150) / 100)


def cell(section, name, title, epsilon, seeds, n_train):
    """Scores of one method on one table, for all seeds; what was warned."""
    method, table, found, told = METHODS[section][title], _tables.load(name), [], Counter()
    for seed in seeds:
        split = _tables.split(table, seed, n_train)
        split = unit(split) if section == "unit" else split
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found.append(_tables.scores(method.predict(split, epsilon, seed), split.y_test))
        told.update({short(str(each.message)) for each in caught})
    key = {"data": name, "method": title, "epsilon": epsilon if method.private else None}
    return (
        key
        | _tables.shape(table, n_train)
        | _tables.summary(found)
        | {"warned": dict(sorted(told.items()))}
    )


SCORES = {}  # by section, table, method and epsilon: those of each seed


def section(name, args):
    """Rows of all cells of a section."""
    seeds = seeds_of(args)
    tasks = [
        joblib.delayed(cell)(name, data, title, epsilon, seeds, args.train_rows)
        for data in tables_of(name, args)
        for title, method in METHODS[name].items()
        if chosen(title, args) and (not method.estimator or hasattr(dpsubspace, method.estimator))
        for epsilon in (args.epsilons if method.private else [np.inf])
    ]
    with joblib.parallel_config("loky", n_jobs=args.jobs, inner_max_num_threads=args.threads):
        parallel = joblib.Parallel(return_as="generator", batch_size=1)
        for row in itertools.chain(parallel(tasks), peer_cells(name, args)):
            SCORES[name, row["data"], row["method"], row["epsilon"]] = row.pop("scores")
            yield row


def seeds_of(args):
    return args.seeds[:2] if args.quick else args.seeds


def tables_of(name, args):
    of_section = {"public": PUBLIC_TABLES, "unit": ("diabetes",)}.get(name, PRIVATE_TABLES)
    only = args.only or (QUICK if args.quick else of_section)
    return [data for data in of_section if data in only]


def chosen(title, args):
    return not args.methods or any(part in title for part in args.methods)


def peer_cells(name, args):
    """The same of diffprivlib, from its own environment."""
    wanted = name in ("ranges", "public") and args.peer_python and chosen("diffprivlib", args)
    if not wanted or not tables_of(name, args):
        return
    job = {"tables": tables_of(name, args), "epsilons": args.epsilons, "seeds": seeds_of(args)}
    script = Path(__file__).with_name("peer_regression.py")
    with subprocess.Popen(
        [str(args.peer_python), str(script), json.dumps(job | {"n_train": args.train_rows})],
        stdout=subprocess.PIPE,
        env=with_threads(args.threads),
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise RuntimeError(f"{script.name} ended with {process.returncode}")


# Curves -----------------------------------------------------------------------------------------

# Rows, columns, and how many of these tell of the target.
SIZES = [(100, 10, 10), (100, 300, 10), (300, 30, 5), (500, 10, 10), (1000, 40, 5), (1000, 200, 10)]
SIZES += [(1000, 200, 200), (1000, 784, 20), (2000, 40, 40), (2000, 200, 10), (5000, 100, 100)]
SIZES += [(5000, 400, 10), (5000, 400, 400)]
NOISES = (0.05, 1.0)  # over the spread of what columns tell
BESIDE, USELESS = ("bike", "protein", "elevators"), 400


def normal_rows(rows, columns, telling, noise):
    """A function of a seed that draws a table of normal rows, with 2,000 to test with."""

    def draw(seed):
        rng = np.random.default_rng([seed, 1])
        X, weights = rng.normal(size=(rows + 2000, columns)), np.zeros(columns)
        weights[:telling] = rng.normal(size=telling)
        told = X @ weights / np.linalg.norm(weights)
        y, ranges = told + noise * rng.normal(size=len(X)), (np.full(columns, -4.0),) * 2
        table = _tables.Table(X, y, (ranges[0], -ranges[1]), (-4.0, 4.0))
        return _tables.Split(X[:rows], y[:rows], X[rows:], y[rows:], table)

    return draw


def beside_useless(name, rows):
    """A function of a seed that draws rows of a table with columns beside it that tell nothing."""

    def draw(seed):
        split, rng = _tables.split(_tables.load(name), seed, rows), np.random.default_rng([seed, 1])
        wide = [np.hstack([X, rng.normal(size=(len(X), USELESS))]) for X in (split.X, split.X_test)]
        return replace(split, X=wide[0], X_test=wide[1])

    return draw


def curves(args):
    """Rows of all curves."""
    for rows, columns, telling in SIZES:
        for noise in NOISES:
            key = {"data": "normal", "rows": rows, "columns": columns}
            key |= {"telling": telling, "noise": noise}
            yield from curve(key, normal_rows(rows, columns, telling, noise), args, bounded=True)
    for name in BESIDE:
        columns = _tables.load(name).X.shape[1] + USELESS
        key = {"data": f"{name}, {USELESS} useless columns", "rows": 5000, "columns": columns}
        yield from curve(key, beside_useless(name, 5000), args, bounded=False)


def curve(key, draw, args, *, bounded):
    """Scores of one table at every epsilon; each seed draws the table, the split and the noise."""
    for epsilon in args.epsilons:
        found, constants = [], []
        for seed in seeds_of(args):
            split = draw(seed)
            predictions = of_package(OURS, split, epsilon, seed, bounded=bounded)
            found.append(_tables.scores(predictions, split.y_test))
            constants.append(_tables.scores(constant(split, epsilon, seed), split.y_test)[0])
        row = key | {"method": OURS, "epsilon": epsilon} | _tables.summary(found)
        row.pop("scores")
        yield row | {"constant": round(float(np.mean(constants)), 4)}


# What was aimed at ------------------------------------------------------------------------------


def verdicts(args):
    """Whether the aims are met, from the scores of this run: for each cell, then over all."""
    found = [row for key, scores in list(SCORES.items()) if (row := verdict(key, scores))]
    yield from found
    for name in METHODS:
        every = [row["difference_median"] for row in found if row["of"] == name and "over" in row]
        if every:
            middle = float(np.median(every))
            over = sum(value > 0 for value in every)
            row = {"of": name, "data": "all", "difference_median": round(middle, 4), "over": over}
            yield row | {"cells": len(every)} | judged(middle > 0)


def verdict(key, scores):
    """What one cell of ours is beside the better of both AdaSSP, or beside its goal."""
    name, data, title, epsilon = key
    if title != OURS or data in NOT_JUDGED:
        return None
    ours = r2_of(scores)
    row = {"of": name, "data": data, "epsilon": epsilon}
    row |= {"r2_median": round(float(np.median(ours)), 4)}
    if name == "unit":
        goal = UNIT_GOALS.get(epsilon, -np.inf)
        return row | {"goal": goal} | judged(row["r2_median"] >= goal)
    where = "ranges" if name == "raw" else name  # AdaSSP has ranges in either case
    peers = [r2_of(SCORES.get((where, data, peer, epsilon), [])) for peer in ADASSP]
    peers = [peer for peer in peers if len(peer) == len(ours)]
    return row | against(ours, max(peers, key=np.median)) if peers else None


def against(ours, peer):
    """Median of the differences by seed, and a standard error of their mean."""
    differences = ours - peer
    error = np.std(differences, ddof=1) / np.sqrt(len(ours)) if len(ours) > 1 else np.inf
    median = float(np.median(differences))
    return {
        "AdaSSP_median": round(float(np.median(peer)), 4),
        "difference_median": round(median, 4),
        "over": int(np.sum(differences > 0)),
        "difference_se": round(float(error), 4),
        **judged(median >= -2 * error and np.median(ours) >= _tables.LEAST),
    }


def r2_of(scores):
    return np.array([r2 for r2, _ in scores])


SECTIONS = {name: partial(section, name) for name in METHODS}
SECTIONS |= {"curves": curves, "verdicts": verdicts}
OPTIONS = {"only": [], "methods": [], "epsilons": list(EPSILONS), "seeds": 20, "quick": False}
OPTIONS |= {"train_rows": _tables.MOST_TRAIN, "jobs": 2, "peer_python": Path}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS, left_out=["curves"])
