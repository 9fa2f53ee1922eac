"""Intervals of coefficients by other libraries: how often they cover, and how long they are.

The population "gauss" of _coefficient_populations.py, with 10,000 rows and 10 columns, and
intervals of 95 %; its truth is the fit to a million rows. "statsmodels" has no privacy: least
squares with deviations of HC1, and maximum likelihood. "diffprivlib" is fitted to each of `draws`
bootstrap samples with an equal part of epsilon, of which the interval has the middle 95 %; its
bounds are those of the schema, and by its open reports 104 and 105 its noise may be too small for
its epsilon. "coef_std_" is that of `DPLinearRegression`, which its docstring says is too narrow:
the estimate with 1.96 deviations on either side. `length` is the median over that of statsmodels.

usage: python benchmarks/peer_coefficients.py statsmodels diffprivlib coef_std --seeds 20
"""

import math

import numpy as np
import pandas as pd
from _coefficient_populations import simulated_frame
from _run import run


def arrays(family, n, rng):
    frame = pd.DataFrame(simulated_frame("gauss", family, n, rng)[0])
    y = frame.pop("y")
    return frame.to_numpy(), (y if family == "linear" else y == "yes").to_numpy().astype(float)


def fitted(family, X, y):
    import statsmodels.api as sm

    rows = sm.add_constant(X)
    if family == "linear":
        return sm.OLS(y, rows).fit(cov_type="HC1")
    return sm.Logit(y, rows).fit(disp=0)


def truth_of(family):
    return fitted(family, *arrays(family, 1_000_000, np.random.default_rng(99))).params[1:]


def measured(args, name, families, intervals):
    for family in families:
        truth, covered, length = truth_of(family), [], []
        for seed in args.seeds:
            X, y = arrays(family, args.n, np.random.default_rng([seed, args.n, 17]))
            plain = fitted(family, X, y).conf_int()[1:]
            low, high = plain.T if intervals is None else intervals(args, family, X, y, seed)
            covered.append((low <= truth) & (truth <= high))
            length.append((high - low) / (plain[:, 1] - plain[:, 0]))
        row = {"peer": name, "family": family, "n": args.n, "epsilon": args.epsilon}
        if intervals is None:
            row["epsilon"] = math.inf
        row |= {"cover 0.95": float(np.mean(covered)), "length": float(np.median(length))}
        yield row | {"samples": len(args.seeds)}


def without_privacy(args):
    yield from measured(args, "statsmodels", ("linear", "logistic"), None)


def bootstrapped(args, family, X, y, seed):
    from diffprivlib.models import LinearRegression, LogisticRegression

    rng, found = np.random.default_rng(seed), []
    epsilon = args.epsilon / args.draws
    for draw in range(args.draws):
        rows = rng.integers(0, len(X), size=len(X))
        options = {"epsilon": epsilon, "random_state": seed * 1000 + draw}
        if family == "linear":
            model = LinearRegression(bounds_X=(-1, 1), bounds_y=(-1, 1), **options)
        else:
            model = LogisticRegression(data_norm=math.sqrt(X.shape[1]), C=1e3, **options)
        found.append(np.ravel(model.fit(X[rows], y[rows]).coef_))
    return np.quantile(found, (0.025, 0.975), axis=0)


def diffprivlib(args):
    yield from measured(args, "diffprivlib, bootstrap", ("linear", "logistic"), bootstrapped)


def by_deviations(args, _, X, y, seed):
    from dpsubspace import DPLinearRegression

    options = {"bounds": (-1, 1), "target_bounds": (-1, 1), "random_state": seed}
    model = DPLinearRegression(epsilon=args.epsilon, **options).fit(X, y)
    coef, deviation = np.ravel(model.coef_), np.ravel(model.coef_std_)
    return coef - 1.959964 * deviation, coef + 1.959964 * deviation


def coef_std(args):
    yield from measured(args, "coef_std_ of DPLinearRegression", ("linear",), by_deviations)


if __name__ == "__main__":
    sections = {"statsmodels": without_privacy, "diffprivlib": diffprivlib, "coef_std": coef_std}
    options = {"seeds": 20, "n": 10_000, "epsilon": 1.0, "draws": 20}
    run(__doc__, sections, options)
