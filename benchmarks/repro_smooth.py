"""Are smoother public directions better for `GEPClassifier`? Rules that know public rows alone.

Accuracy with the number of directions that the estimator finds, from 500 unlabelled public rows of
the same source. Sets and cells are those of ``repro_components.py``. Directions come from

- "as they are": the public rows, as in the library,
- "nearest": public rows in which each column is the mean of itself and of the five columns that
  have the largest correlation with it on these rows,
- "shrunk": their covariance with entries off the diagonal shrunk by the share that Schaefer and
  Strimmer (2005) estimate from the rows,
- "blur": images that are averaged over pixels by a normal weight of deviation 1.

Energies are those of the public rows as they are. Seeds draw rows and noise, and are the same for
all rules: "difference" is the mean over seeds of what a rule gains, "error" its standard error.
Section ``total`` has means over cells, and cells that are worse by more than two of these errors.
Smoothing is done here and not in the library, by another function in the place of its own.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_smooth.py [cells total] [--seeds 10]
       [--sets mnist adult ...] [--rows 500] [--out benchmarks/results/smooth.json]
"""

from unittest.mock import patch

import numpy as np
from _run import run, spread
from repro_components import CELLS, public_rows
from scipy.linalg import eigh
from scipy.ndimage import gaussian_filter

from dpsubspace import GEPClassifier
from dpsubspace._core.plans import guide
from dpsubspace._core.public.subspace import Directions, principal_directions

SETS = ["adult", "kegg", "simulation", "code_hashed", "mnist", "kmnist8k", "fashion", "scattering"]
IMAGES = ("mnist", "kmnist8k", "fashion")
NEAREST = 5
AS_THEY_ARE, BLUR = "as they are", "blur"


def nearest(rows):
    """Directions (q, width) of rows of which columns are means of nearest ones."""
    rows, deviations = rows - rows.mean(axis=0), rows.std(axis=0)
    unit = rows / np.where(deviations > 0, deviations, 1)
    products = unit.T @ unit
    np.fill_diagonal(products, np.inf)
    some = np.argpartition(-products, NEAREST, axis=1)[:, : NEAREST + 1]
    return of_rows(rows[:, some].mean(axis=2))


def shrunk(rows):
    """Directions of a covariance of which correlations are shrunk."""
    rows, m = rows - rows.mean(axis=0), len(rows)
    covariance, squares = rows.T @ rows / m, (rows**2).T @ rows**2 / m
    off = ~np.eye(len(covariance), dtype=bool)
    variance = np.sum((squares - covariance**2)[off]) / m
    share = float(np.clip(variance / np.sum(covariance[off] ** 2), 0, 1))
    vectors = eigh(np.where(off, (1 - share) * covariance, covariance))[1]
    return vectors[:, ::-1].T[:m]


def blur(rows):
    """Directions of images that are averaged over neighbouring pixels, then a constant if any."""
    side = int(np.sqrt(rows.shape[1]))
    images = rows[:, : side**2].reshape(-1, side, side)
    smooth = gaussian_filter(images, (0, 1, 1)).reshape(len(rows), -1)
    return of_rows(np.hstack([smooth, rows[:, side**2 :]]))


def of_rows(rows):
    values, vectors = np.linalg.svd(rows, full_matrices=False)[1:]
    return vectors[values > 1e-5 * values[0]]


RULES = {"nearest": nearest, "shrunk": shrunk, BLUR: blur}


def smoothed(rule):
    """In the place of `principal_directions`: other directions, with the energies of the rows."""

    def directions(rows, features):
        plain = principal_directions(rows, features)
        formed = np.asarray(rows.at(slice(0, rows.n_samples)).dense(), dtype=float)
        if features.shift is not None:
            formed = formed - formed.mean(axis=0)
            if features.shift.constant is not None:
                constant = np.full((len(formed), 1), features.shift.constant)
                formed = np.hstack([formed, constant])
        vectors = rule(formed)
        energies = np.mean((formed @ vectors.T) ** 2, axis=0)
        vectors = vectors.astype(plain.vectors.dtype)
        energies = np.maximum(energies, plain.outside)
        return Directions(lambda count: vectors[:count], energies, plain.outside, plain.width)

    return directions


def accuracy(name, n, epsilon, m, rule, seed):
    X, y, P, X_test, y_test = public_rows(name, n, m, seed, "own")
    model = GEPClassifier(epsilon=epsilon, random_state=seed)
    used = principal_directions if rule == AS_THEY_ARE else smoothed(RULES[rule])
    with patch.object(guide, "principal_directions", used):
        return model.fit(X, y, X_public=(P,)).score(X_test, y_test)


def cells(args):
    for n, epsilon in CELLS:
        for name in args.sets:
            cell = {"set": name, "n": n, "epsilon": epsilon, "public rows": args.rows}
            before = None
            for rule in (AS_THEY_ARE, *RULES):
                if rule == BLUR and name not in IMAGES:
                    continue
                found = [accuracy(name, n, epsilon, args.rows, rule, s) for s in args.seeds]
                row = cell | {"method": rule} | spread("accuracy", found)
                before = np.array(found) if before is None else before
                yield row | gained(np.array(found) - before) if rule != AS_THEY_ARE else row


def gained(differences):
    error = np.std(differences, ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0
    return {
        "difference": round(float(differences.mean()), 4),
        "error": round(float(error), 4),
        "worse in": int(np.sum(differences < 0)),
    }


def total(args):
    """Mean gain of each rule over its cells, and the cells where it is lost or won clearly."""
    rows = args.results.get("cells", [])
    for rule in RULES:
        of_rule = [row for row in rows if row["method"] == rule]
        if of_rule:
            values = np.array([row["difference"] for row in of_rule])
            errors = np.array([row["error"] for row in of_rule])
            yield {
                "method": rule,
                "cells": len(of_rule),
                "difference": round(float(values.mean()), 4),
                "error": round(float(np.sqrt(np.sum(errors**2)) / len(errors)), 4),
                "better": int(np.sum(values > 2 * errors)),
                "worse": int(np.sum(values < -2 * errors)),
                "below": int(np.sum(values < 0)),
                "least": round(float(values.min()), 4),
            }


if __name__ == "__main__":
    # Small data sets and epsilons are the point.
    options = {"seeds": 10, "sets": SETS, "rows": 500}
    run(__doc__, {"cells": cells, "total": total}, options, ignored=(Warning,))
