"""Coverage and length of the intervals of `private_coefficients`, beside those without privacy.

Tables have 10 coefficients beside the intercept, on public ranges three standard deviations wide on
either side of the middle ("wide": ten, and off the middle). "simulated" draws samples of seven
populations, of which the fit to a million rows is the truth: "gauss"; "heavy" (residuals of
Student's t with 3 degrees of freedom); "mixed" (residuals whose spread grows with a column that
also counts by its square, so that no model is true); "dummies" (a category with shares of 50 and
one with shares of 60, 20, 10, 7 and 3 %); "rare" (the last has 1 %, and by far the largest
coefficient); "corr" (columns with correlations of 0.64). "adult"
draws rows of Adult with replacement, of which the fit to all rows is the truth. `length` is the
median over coefficients and seeds of the length over that of the sandwich interval of the same
sample without privacy, `open` the share without ends, and `worst` the coverage of the coefficient
that has the lowest. `failed` is whether the coverage of all coefficients together is below the
level minus 2 points by more than chance explains: 1 % over all rows of a section, by the spread
over seeds.

usage: python benchmarks/repro_coefficients.py [simulated adult] [--seeds 200]
       [--out benchmarks/results/coefficients.json]
"""

import math

import _data
import numpy as np
import pandas as pd
from _run import run
from scipy.special import expit
from scipy.stats import norm

from dpsubspace import Range, Schema, private_coefficients
from dpsubspace.exceptions import PrivacyWarning

KINDS = ("gauss", "heavy", "mixed", "dummies", "rare", "corr", "wide")
EPSILONS = [0.3, 1.0, 3.0, math.inf]
LEVELS = (0.9, 0.95)
SHARES = {"dummies": [0.6, 0.2, 0.1, 0.07, 0.03], "rare": [0.6, 0.2, 0.1, 0.09, 0.01]}
WEIGHTS = np.array([0.1, 0.3, -0.3, 0.2, -0.2, 0.1, -0.1, 0.1, 0, 0, 0.15])


def simulated_frame(kind, family, n, rng):
    """Rows of a population, as columns by name, with the schema."""
    weights = WEIGHTS
    if kind in SHARES:
        x = rng.normal(size=(n, 5)) / 3
        two, five = rng.random(n) < 0.5, rng.choice(5, size=n, p=SHARES[kind])
        weights = np.append(WEIGHTS[:-1], 0.8 if kind == "rare" else WEIGHTS[-1])
    elif kind == "corr":
        x = (0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 10))) / 3
    else:
        x = rng.normal(size=(n, 10)) / 3
        x = x * 0.3 - 0.5 if kind == "wide" else x
    x = np.clip(x, -1, 1)
    frame = {f"x{i}": column for i, column in enumerate(x.T)}
    schema = dict.fromkeys(frame, (-1, 1))
    if kind in SHARES:
        frame |= {"two": two.astype(str), "five": five.astype(str)}
        schema |= {"two": ["False", "True"], "five": [str(i) for i in range(5)]}
        x = np.column_stack([x, two, *(five == i for i in range(1, 5))])
    signal = weights[0] + x @ weights[1:]
    if family == "linear":
        signal = signal + 0.8 * x[:, 0] ** 2 * (kind == "mixed")
        noise = rng.standard_t(3, size=n) * 0.13 if kind == "heavy" else rng.normal(size=n) * 0.22
        spread = 0.3 + 3.6 * np.abs(x[:, 0]) if kind == "mixed" else 1.0
        spread = 0.3 if kind == "wide" else spread
        return frame | {"y": np.clip(signal + noise * spread, -1, 1)}, schema | {"y": (-1, 1)}
    signal = 4 * signal + 4 * x[:, 0] ** 2 * (kind == "mixed")
    happened = rng.random(n) < expit(signal)
    return frame | {"y": np.where(happened, "yes", "no")}, schema | {"y": ["no", "yes"]}


def fit(frame, schema, epsilon, seed=None):
    return private_coefficients(frame, schema, "y", epsilon=epsilon, random_state=seed)


def cells(draw, schema, truth, names, args):
    """Rows of a section for each number of rows and epsilon."""
    for n in args.n:
        for epsilon in args.epsilon:
            covered, length, ends = {level: [] for level in LEVELS}, [], []
            for seed in args.seeds:
                frame = draw(n, np.random.default_rng([seed, n, 17]))
                exact = fit(frame, schema, math.inf)
                found = fit(frame, schema, epsilon, seed) if epsilon < math.inf else exact
                for level in LEVELS:
                    at = found if level == found.level else found.at_level(level)
                    inside = (at.low <= truth) & (truth <= at.high)
                    covered[level].append(inside[1:])
                with np.errstate(invalid="ignore"):
                    length.append(((found.high - found.low) / (exact.high - exact.low))[1:])
                ends.append(np.isinf(found.low[1:]))
            row = names | {"n": n, "epsilon": epsilon}
            for level in LEVELS:
                inside = np.array(covered[level])
                row |= {f"cover {level:g}": inside.mean(), f"worst {level:g}": inside.mean(0).min()}
                error = inside.mean(axis=1).std() / math.sqrt(len(inside))
                row[f"z {level:g}"] = (inside.mean() - level + 0.02) / max(error, 1e-3)
            row |= {"length": float(np.nanmedian(length)), "open": float(np.mean(ends))}
            yield row


def judged(rows, n_rows):
    """Rows with whether each is below the level minus 2 points, of so many together."""
    least = norm.ppf(0.01 / (len(LEVELS) * n_rows))
    for row in rows:
        failed = min(row.pop(f"z {level:g}") for level in LEVELS) < least
        yield row | {"failed": bool(failed)}


def simulated(args):
    n_rows = math.prod(map(len, (args.family, args.kind, args.n, args.epsilon)))
    for family in args.family:
        for kind in args.kind:
            rng = np.random.default_rng(99)
            columns, schema = simulated_frame(kind, family, 1_000_000, rng)
            schema = Schema(schema)
            truth = fit(pd.DataFrame(columns), schema, math.inf).estimate

            def draw(n, rng, kind=kind, family=family):
                return pd.DataFrame(simulated_frame(kind, family, n, rng)[0])

            names = {"family": family, "population": kind}
            yield from judged(cells(draw, schema, truth, names, args), n_rows)


def adult_frame():
    """Adult with fewer values of two columns, from all of its rows."""
    numbers, places = _data.needed("adult", ("num_names", "cat_names"))
    parts = [
        _data.needed("adult", (f"{part}_num", f"{part}_cat", f"{part}_y"))
        for part in ("train", "test")
    ]
    X, codes, y = (np.concatenate(two) for two in zip(*parts, strict=True))
    frame = pd.DataFrame(X, columns=list(numbers))
    for name, own in zip(places, codes.T, strict=True):
        frame[name] = _data.needed("adult", (f"levels_{name}",))[0][own]
    married = frame["marital-status"].where(
        frame["marital-status"].isin(["Married-civ-spouse", "Never-married"]), "Other"
    )
    race = frame["race"].where(frame["race"].isin(["White", "Black"]), "Other")
    return frame.assign(**{"marital-status": married, "race": race, "income": y > 0.5})


EXPLAINED = {
    "age": Range(17, 90),
    "education-num": Range(1, 16),
    "sex": ["Female", "Male"],
    "marital-status": ["Never-married", "Married-civ-spouse", "Other"],
    "race": ["White", "Black", "Other"],
}
HOURS = Range(1, 99)


def real(args):
    whole, n_rows = adult_frame(), math.prod(map(len, (args.family, args.n, args.epsilon)))
    for family in args.family:
        schema = EXPLAINED | {"hours-per-week": HOURS}
        y = "hours-per-week"
        if family == "logistic":
            schema, y = schema | {"income": [False, True]}, "income"
        frame = whole[list(schema)].rename(columns={y: "y"})
        schema = Schema({("y" if name == y else name): kind for name, kind in schema.items()})
        truth = fit(frame, schema, math.inf).estimate

        def draw(n, rng, frame=frame):
            return frame.iloc[rng.integers(0, len(frame), size=n)]

        names = {"family": family, "population": "adult"}
        yield from judged(cells(draw, schema, truth, names, args), n_rows)


if __name__ == "__main__":
    options = {
        "seeds": 200,
        "n": [300, 1_000, 10_000, 100_000],
        "epsilon": EPSILONS,
        "family": ["linear", "logistic"],
        "kind": list(KINDS),
    }
    sections = {"simulated": simulated, "adult": real}
    run(__doc__, sections, options, ignored=(PrivacyWarning,))
