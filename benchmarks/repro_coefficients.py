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

"tables" draws rows of other real tables of _raw_tables.py in the same way, and "attack" is of
populations that were made to break intervals: "odd" has 0.3 % of rows at the end of one column,
with targets at the end that the others do not point to; "sparse" has columns that are mostly at the
end of their ranges. "unseen" is a population that was written after the code was done.

Whether an interval covers is asked of the test that it is made of, since intervals themselves take
most of the time: these are made of the first ``--intervals`` samples, of which `agree` is the share
in which both say the same.

usage: python benchmarks/repro_coefficients.py [simulated adult tables attack unseen] [--seeds 200]
       [--out benchmarks/results/coefficients.json]
"""

import math
from unittest import mock

import _data
import _raw_tables
import numpy as np
import pandas as pd
from _run import run
from scipy.special import expit
from scipy.stats import norm

from dpsubspace import Categories, Range, Schema, private_coefficients
from dpsubspace._core.statistics.inverted_tests import accepted_along
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


def fit_without_intervals(frame, schema, epsilon, seed):
    """What is released alone, and the names of coefficients."""

    def nothing(equations, terms, level, simultaneous):
        zeros = dict.fromkeys(("estimate", "low", "high"), np.zeros(len(terms)))
        return zeros | {"level": level, "simultaneous": simultaneous}

    with mock.patch("dpsubspace.statistics._coefficients._intervals", nothing):
        return fit(frame, schema, epsilon, seed)


def least_z(found, exact, truth):
    """For each coefficient the z from which on its interval covers the truth."""
    if exact is found:
        with np.errstate(invalid="ignore"):
            deviation = (found.high - found.low) / 2 / norm.ppf(0.5 + found.level / 2)
            return np.where(
                np.isinf(deviation), 0 * truth, np.abs(found.estimate - truth) / deviation
            )
    equations, terms = found.released
    return np.array(
        [
            accepted_along(equations, term.direction, (value - term.shift) / term.factor)
            for term, value in zip(terms, truth, strict=True)
        ]
    )


class Cell:
    """What is found for one number of rows and one epsilon."""

    def __init__(self):
        self.z, self.length, self.open, self.agree = [], [], [], []

    def add(self, found, exact, truth, whole):
        """Count one sample, of which intervals are there if it is `whole`."""
        z = least_z(found, exact, truth)
        self.z.append(z[1:])
        if whole:
            inside = (found.low <= truth) & (truth <= found.high)
            with np.errstate(invalid="ignore"):
                self.length.append(((found.high - found.low) / (exact.high - exact.low))[1:])
            there = ~np.isnan(truth[1:])
            self.open.append(np.isinf(found.low[1:])[there])
            self.agree.append((inside == (z <= norm.ppf(0.5 + found.level / 2)))[1:][there])

    def row(self):
        """Return what was found, with z as the statistics of coverage."""
        found = {}
        for level in LEVELS:
            z = np.array(self.z)
            inside = z[:, ~np.isnan(z).any(axis=0)] <= norm.ppf(0.5 + level / 2)
            found |= {f"cover {level:g}": inside.mean(), f"worst {level:g}": inside.mean(0).min()}
            error = inside.mean(axis=1).std() / math.sqrt(len(inside))
            found[f"z {level:g}"] = (inside.mean() - level + 0.02) / max(error, 1e-3)
        found |= {"length": float(np.nanmedian(self.length)), "open": float(np.mean(self.open))}
        return found | {"agree": float(np.mean(self.agree)), "samples": len(self.z)}


def cells(draw, schema, truth, names, args):
    """Rows of a section for each number of rows and epsilon."""
    for n in args.n:
        found = {epsilon: Cell() for epsilon in args.epsilon}
        for seed in args.seeds:
            frame = draw(n, np.random.default_rng([seed, n, 17]))
            whole, exact = seed < args.intervals, None
            if whole or math.inf in args.epsilon:
                exact = fit(frame, schema, math.inf)
            for epsilon, cell in found.items():
                if epsilon == math.inf:
                    cell.add(exact, exact, truth, whole)
                else:
                    how = fit if whole else fit_without_intervals
                    cell.add(how(frame, schema, epsilon, seed), exact, truth, whole)
        for epsilon, cell in found.items():
            yield names | {"n": n, "epsilon": epsilon} | cell.row()


def judged(rows, n_rows):
    """Rows with whether each is below the level minus 2 points, of so many together."""
    least = norm.ppf(0.01 / (len(LEVELS) * n_rows))
    for row in rows:
        failed = min(row.pop(f"z {level:g}") for level in LEVELS) < least
        yield row | {"failed": bool(failed)}


def populations(args, make, kinds):
    n_rows = math.prod(map(len, (args.family, kinds, args.n, args.epsilon)))
    for family in args.family:
        for kind in kinds:
            rng = np.random.default_rng(99)
            columns, schema = make(kind, family, 1_000_000, rng)
            schema = Schema(schema)
            truth = fit(pd.DataFrame(columns), schema, math.inf).estimate

            def draw(n, rng, kind=kind, family=family):
                return pd.DataFrame(make(kind, family, n, rng)[0])

            names = {"family": family, "population": kind}
            yield from judged(cells(draw, schema, truth, names, args), n_rows)


def simulated(args):
    yield from populations(args, simulated_frame, args.kind)


def attacking_frame(kind, family, n, rng):
    frame, schema = simulated_frame("gauss", family, n, rng)
    if kind == "odd":
        odd, end = rng.random(n) < 0.003, -1.0 if family == "linear" else "no"
        frame |= {"x1": np.where(odd, 1.0, frame["x1"]), "y": np.where(odd, end, frame["y"])}
        return frame, schema
    x = np.where(rng.random((n, 10)) < 0.85, -1, rng.uniform(-1, 1, size=(n, 10)))
    signal = 0.5 + x @ WEIGHTS[1:] / 2
    frame = {f"x{i}": column for i, column in enumerate(x.T)}
    if family == "linear":
        shifted = rng.exponential(0.15, size=n) - 0.15
        return frame | {"y": np.clip(signal + shifted, -1, 1)}, schema
    return frame | {"y": np.where(rng.random(n) < expit(3 * signal), "yes", "no")}, schema


def attack(args):
    yield from populations(args, attacking_frame, ("odd", "sparse"))


def unseen_frame(_, family, n, rng):
    """Skewed, discrete and dependent columns, an interaction, residuals of Laplace, few far off."""
    age, count = rng.beta(2, 4, size=n) * 2 - 1, np.minimum(rng.poisson(1.5, size=n), 8)
    site = rng.choice(4, size=n, p=[0.45, 0.3, 0.19, 0.06])
    dose = np.clip(0.5 * age + rng.laplace(size=n) * 0.25 - 0.2 * (site == 2), -1, 1)
    treated = rng.random(n) < expit(2 * age)
    signal = 0.25 * age - 0.3 * dose + 0.05 * count + 0.15 * treated + 0.3 * treated * dose
    signal += np.array([0, 0.1, -0.1, 0.25])[site] - 0.1
    columns = {
        "age": age,
        "count": count,
        "dose": dose,
        "treated": treated,
        "site": site.astype(str),
    }
    schema = {"age": (-1, 1), "count": (0, 8), "dose": (-1, 1), "treated": [False, True]}
    schema["site"] = [str(i) for i in range(4)]
    if family == "linear":
        y = signal + rng.laplace(size=n) * (0.08 + 0.1 * treated)
        y += (rng.random(n) < 0.01) * rng.choice([-0.8, 1.2], size=n)
        return columns | {"y": np.clip(y, -1, 1)}, schema | {"y": (-1, 1)}
    happened = rng.random(n) < expit(4 * signal - 1)
    return columns | {"y": np.where(happened, "yes", "no")}, schema | {"y": ["no", "yes"]}


def unseen(args):
    yield from populations(args, unseen_frame, ("unseen",))


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


def of_table(frame, schema, family, name, args, n_rows):
    """Rows for a table of which samples are drawn with replacement."""
    schema = Schema(schema)
    whole = fit(frame, schema, math.inf)
    # Columns that are sums of others, or constant, have no coefficients to be covered.
    truth = np.where(np.isfinite(whole.low), whole.estimate, np.nan)

    def draw(n, rng):
        return frame.iloc[rng.integers(0, len(frame), size=n)]

    names = {"family": family, "population": name}
    yield from judged(cells(draw, schema, truth, names, args), n_rows)


def real(args):
    whole, n_rows = adult_frame(), math.prod(map(len, (args.family, args.n, args.epsilon)))
    for family in args.family:
        schema = EXPLAINED | {"hours-per-week": HOURS}
        y = "hours-per-week"
        if family == "logistic":
            schema, y = schema | {"income": [False, True]}, "income"
        frame = whole[list(schema)].rename(columns={y: "y"})
        schema = {("y" if name == y else name): kind for name, kind in schema.items()}
        yield from of_table(frame, schema, family, "adult", args, n_rows)


def tables(args):
    n_rows = math.prod(map(len, (args.family, args.table, args.n, args.epsilon)))
    for family in args.family:
        for name in args.table:
            table = _raw_tables.load(name, "values" if family == "linear" else "classes")
            frame = table.X.assign(y=table.y)
            schema = table.schema | {"y": table.target or Categories([0, 1])}
            yield from of_table(frame, schema, family, name, args, n_rows)


if __name__ == "__main__":
    options = {
        "seeds": 200,
        "n": [300, 1_000, 10_000, 100_000],
        "epsilon": EPSILONS,
        "family": ["linear", "logistic"],
        "kind": list(KINDS),
        "table": ["california", "bike"],
        "intervals": 20,
    }
    sections = {"simulated": simulated, "adult": real, "tables": tables, "attack": attack}
    sections["unseen"] = unseen
    run(__doc__, sections, options, ignored=(PrivacyWarning,))
