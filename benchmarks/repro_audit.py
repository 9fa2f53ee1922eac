"""Attacks on every estimator and function: what is shown of epsilon, beside what is claimed.

Rows are synthetic, 100 of 5 columns around four means. Delta is 1e-5. Beside the claim stand lower
bounds of ``audit_estimator`` at a confidence of 95 %, the median and the largest of the seeds, and
the bound that perfect guesses would give. A bound above the claim refutes it, which at that
confidence may happen once in 20 times. Sections:

- ``claims``: the package as it is, by guesses about 500 canaries in one run, or 200 in as many.
- ``broken``: the same with a tenth of the noise and the claim as before: does an audit notice?
- ``gaussian``: as the package is, by both error rates of 200 runs, where releases are Gaussian.
- ``tracing``: linear regression of 200 normal rows, which the tracing attack is about, beside
  planted canaries, with all of the noise and a tenth of it. Runs only when it is named.

usage: python benchmarks/repro_audit.py [claims broken gaussian tracing] [--seeds 3]
       [--epsilons 1 3 8] [--only DPPCA ...] [--out benchmarks/results/audit.json]
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from _broken import tenth_of_the_noise
from _run import run

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyWarning,
    private_mean,
    select_public,
)
from dpsubspace.audit import audit_estimator
from dpsubspace.linear_model import (
    GEPRegressor,
    PersonalizedLinearRegression,
    PersonalizedLogisticRegression,
    PublicSubspaceLinearRegression,
)
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor
from dpsubspace.public_data import GSDScorer
from dpsubspace.statistics import private_covariance, private_quantile

DELTA = 1e-5
RANGES = {"bounds": (-6, 8), "target_bounds": (-1, 2)}
FEW = {"n_canaries": 100, "n_training": 60}
PLANTED = {"n_canaries": 200, "n_training": 60}


def rows(n=100, d=5, seed=0):
    """Rows around four means, and which."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    return 2 * rng.normal(size=(4, d))[labels] + rng.normal(size=(n, d)) + 1.0, labels


X, LABELS = rows()
NUMBERS = LABELS - 1.0
PUBLIC = rows(60)[0]
PUBLIC[:, -1] = 0.0


def tasks():
    """Public rows as tasks, each with other weights."""
    rng, sets = np.random.default_rng(0), tuple(np.array_split(PUBLIC, 6))
    return {"X_public": sets, "y_public": tuple(x @ rng.normal(size=x.shape[1]) for x in sets)}


def module(n_outputs):
    """A torch module of two layers, with weights that are always the same."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, n_outputs))


@dataclass(frozen=True)
class Audited:
    """What is audited: an estimator to be made, or a function with parameters."""

    what: Any
    y: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    function: bool = False
    gaussian: bool = True
    few: bool = False
    rows: Any = None

    def audit(self, epsilon, seed, **options):
        """One audit."""
        what, given = self.what, dict(self.given)
        if self.function:
            given["epsilon"] = epsilon
            given |= {"delta": DELTA} if self.gaussian else {}
        else:
            what = what(epsilon=epsilon, delta=DELTA)
        options = (FEW if self.few else {}) | options
        where = X if self.rows is None else self.rows
        return audit_estimator(what, where, self.y, fit_params=given, random_state=seed, **options)


function = partial(Audited, function=True)
SETS = {f"along {j}": np.outer(np.arange(1, 4), row) for j, row in enumerate(np.eye(20))}
BINGHAM = {"mechanism": "bingham", "centered": False, "data_norm": 9.0, "n_components": 1}
AUDITED = {
    "DPSGDClassifier": Audited(DPSGDClassifier, LABELS),
    "DPSGDClassifier, batches of 20": Audited(
        partial(DPSGDClassifier, batch_size=20), LABELS, gaussian=False
    ),
    "DPSGDFClassifier": Audited(DPSGDFClassifier, LABELS),
    "DPSGDRegressor": Audited(DPSGDRegressor, NUMBERS),
    "GEPClassifier": Audited(GEPClassifier, LABELS, {"X_public": (PUBLIC,)}),
    "GEPRegressor": Audited(GEPRegressor, NUMBERS, {"X_public": (PUBLIC,)}),
    "DPLinearRegression": Audited(partial(DPLinearRegression, **RANGES), NUMBERS),
    "PublicSubspaceLinearRegression": Audited(
        partial(PublicSubspaceLinearRegression, n_components=3, target_bounds=(-1, 2)),
        NUMBERS,
        tasks(),
    ),
    "PersonalizedLinearRegression": Audited(
        partial(PersonalizedLinearRegression, missing_groups="each_row", **RANGES), NUMBERS
    ),
    "PersonalizedLogisticRegression": Audited(
        partial(
            PersonalizedLogisticRegression,
            missing_groups="each_row",
            bounds=RANGES["bounds"],
            classes=[0, 1],
        ),
        LABELS % 2,
    ),
    "BoundedScaler": Audited(BoundedScaler),
    "DPPCA": Audited(partial(DPPCA, n_components=2)),
    "DPPCA, gaussian": Audited(partial(DPPCA, n_components=2, mechanism="gaussian")),
    "DPPCA, bingham": Audited(partial(DPPCA, **BINGHAM), gaussian=False),
    "GSDScorer": Audited(partial(GSDScorer, n_components=2)),
    "private_mean": function(private_mean),
    "private_quantile": function(private_quantile),
    "private_covariance": function(private_covariance),
    "select_public": function(
        select_public,
        given={"candidates": SETS, "n_components": 1},
        rows=np.zeros((100, 20)),
        gaussian=False,
    ),
    "DPModuleClassifier": Audited(
        lambda **p: DPModuleClassifier(module=module(4), n_iter=2, **p), LABELS, few=True
    ),
    "DPModuleRegressor": Audited(
        lambda **p: DPModuleRegressor(module=module(1), n_iter=2, target_bounds=(-1, 2), **p),
        NUMBERS,
        few=True,
    ),
}


def row(name, audited, epsilon, args, **options):
    """A line of the table."""
    results = [audited.audit(epsilon, seed, **options) for seed in args.seeds]
    return {"audited": name, "claim": epsilon, "method": results[0].method} | of_seeds(results)


def shared_directions(n, d, k, seed=0):
    """Normal rows whose targets follow k of d directions, and public tasks that tell which."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
    sets = tuple(rng.normal(size=(100, d)) for _ in range(k + 10))
    y_public = tuple(x @ basis @ rng.normal(size=k) / np.sqrt(k) for x in sets)
    X = rng.normal(size=(n, d))
    y = X @ basis @ rng.normal(size=k) / np.sqrt(k) + 0.5 * rng.normal(size=n)
    return X, y, {"X_public": sets, "y_public": y_public}


def regressions():
    """Regressions to trace the rows of, by name."""
    ends = {"target_bounds": (-2, 2)}
    for name, Estimator, sizes in (
        ("PublicSubspaceLinearRegression", PublicSubspaceLinearRegression, (200, 40, 20)),
        ("DPLinearRegression", DPLinearRegression, (200, 40, 20)),
        ("DPLinearRegression, wide", DPLinearRegression, (200, 100, 50)),
        ("DPSGDRegressor, wide", DPSGDRegressor, (200, 800, 50)),
    ):
        n, d, k = sizes
        rows, y, public = shared_directions(n, d, k)
        options = {
            PublicSubspaceLinearRegression: {"n_components": k},
            DPLinearRegression: {"bounds": (-3, 3)},
            DPSGDRegressor: {"data_norm": 1.1 * np.sqrt(d)},
        }[Estimator]
        given = public if Estimator is PublicSubspaceLinearRegression else {}
        yield name, Audited(partial(Estimator, **ends, **options), y, given, rows=rows)


def of_seeds(results):
    """Bounds of several seeds."""
    bounds = [result.epsilon_lower_bound for result in results]
    return {
        "shown": float(np.median(bounds)),
        "largest": float(np.max(bounds)),
        "if all were right": results[0].epsilon_reachable,
        "above the claim": sum(result.refuted for result in results),
        "right": [f"{result.n_correct}/{result.n_guesses}" for result in results],
    }


def chosen(args):
    return {name: each for name, each in AUDITED.items() if args.only == [""] or name in args.only}


def claims(args):
    for name, audited in chosen(args).items():
        for epsilon in args.epsilons:
            yield row(name, audited, epsilon, args)


def broken(args):
    with tenth_of_the_noise():
        for name, audited in chosen(args).items():
            yield row(name, audited, args.epsilons[0], args)


def gaussian(args):
    for name, audited in chosen(args).items():
        for epsilon in args.epsilons:
            if audited.gaussian:
                options = {"statistic": "gaussian", "n_canaries": 100 if audited.few else 200}
                yield row(name, audited, epsilon, args, **options)


def tracing(args):
    for name, audited in regressions():
        for epsilon in args.epsilons:
            for noise, context in (("all", nullcontext), ("a tenth", tenth_of_the_noise)):
                for statistic, options in (("tracing", {}), ("guesses", PLANTED)):
                    with context():
                        found = row(name, audited, epsilon, args, statistic=statistic, **options)
                    yield {"noise": noise, "statistic": statistic} | found


if __name__ == "__main__":
    sections = {"claims": claims, "broken": broken, "gaussian": gaussian, "tracing": tracing}
    options = {"seeds": 3, "epsilons": [1.0, 3.0, 8.0], "only": [""]}
    run(__doc__, sections, options, ignored=[PrivacyWarning], left_out=["tracing"])
