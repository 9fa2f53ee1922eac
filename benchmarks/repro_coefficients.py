"""Coverage and length of the intervals of `private_coefficients`, beside those without privacy.

Populations are those of _coefficient_populations.py, real tables those of _raw_tables.py and
_published_tables.py; the columns of a report, and when a cell has failed, are explained by
_coefficients.py.

Sections "simulated", "attack" and "unseen" draw samples of a population of which the fit to a
million rows is the truth. Tables have 10 coefficients beside the intercept, on public ranges three
standard deviations wide on either side of the middle ("wide": ten, and off the middle). "gauss"
has nothing else; "heavy" residuals of Student's t with 3 degrees of freedom; "mixed" residuals
whose spread grows with a column that also counts by its square, so that no model is true; "dummies"
a category with shares of 50 and one with shares of 60, 20, 10, 7 and 3 %; in "rare" the last has
1 %, and by far the largest coefficient; "corr" has correlations of 0.64. "attack" was made to break
intervals: "odd" has 0.3 % of rows at the end of one column, with targets at the end that the others
do not point to; "sparse" has columns that are mostly at the end of their ranges. "unseen" was
written after the code was done.

"known" and "prevalence" draw outcomes from a logistic regression whose weights are the truth: a
table of a ward, one with correlated columns and one of many places; outcomes of 1 to 50 %, and two
tables of two by two.
"counts" draws counts of half a year to two years from a Poisson regression: a mean of 0.5 or 5 a
year, and one of 5 with rates that vary by 70 % beside what columns say. "tests" has the size and
the power of tests of 0, with correlated columns and with counts.

"adult", "tables" and "published" draw rows of a real table with replacement, of which the fit to
all rows is the truth. "published" are tables that textbooks print coefficients of; they come with
packages that the project does not need, and the section runs only when it is named.

usage: python benchmarks/repro_coefficients.py [simulated adult tables attack unseen known
       prevalence counts tests published] [--n 20000] [--epsilon 1 3 10 inf] [--seeds 200]
       [--intervals 200] [--out benchmarks/results/coefficients.json]
"""

import math

import _coefficient_populations as populations
import _published_tables
import _raw_tables
import numpy as np
import pandas as pd
from _coefficients import cells, fit, rejections, with_verdict
from _run import run

from dpsubspace import Categories, Schema
from dpsubspace.exceptions import PrivacyWarning

# Rows of a population over those of a sample: intervals of the truth are a sixth as long.
TIMES = 40


def of_population(make, kind, family, args):
    """Rows for a population of which the fit to very many rows is the truth."""
    most = max(1_000_000, TIMES * max(args.n))
    columns, schema = make(kind, family, most, np.random.default_rng(99))
    schema = Schema(schema)
    whole = fit(pd.DataFrame(columns), schema, math.inf)

    def draw(n, rng):
        return pd.DataFrame(make(kind, family, n, rng)[0])

    names = {"family": family, "population": kind}
    yield from cells(draw, schema, whole, whole.estimate, names, args)


def simulated(args):
    for family in args.family:
        for kind in args.kind:
            yield from of_population(populations.simulated_frame, kind, family, args)


def attack(args):
    for family in args.family:
        for kind in ("odd", "sparse"):
            yield from of_population(populations.attacking_frame, kind, family, args)


def unseen(args):
    for family in args.family:
        yield from of_population(populations.unseen_frame, "unseen", family, args)


def of_known(kinds, args, shown=cells):
    """Rows for populations of which the coefficients are known."""
    for kind in kinds:
        columns, schema = populations.known_frame(kind, 10_000, np.random.default_rng(99))
        schema, weights = Schema(schema), populations.known_weights(kind)
        counted = kind in populations.COUNTED
        family = {"family": "poisson", "exposure": "years"} if counted else {}
        whole = fit(pd.DataFrame(columns), schema, math.inf, **family)
        truth = np.array([weights.get(term, 0.0) for term in whole.terms])

        def draw(n, rng, kind=kind):
            return pd.DataFrame(populations.known_frame(kind, n, rng)[0])

        names = {"family": whole.family, "population": kind}
        yield from shown(draw, schema, whole, truth, names, args, **family)


def known(args):
    yield from of_known(populations.KNOWN, args)


def prevalence(args):
    yield from of_known(populations.PREVALENT, args)


def counts(args):
    yield from of_known(populations.COUNTED, args)


def tests(args):
    yield from of_known(("correlated", *populations.COUNTED), args, rejections)


def of_table(frame, schema, name, args):
    """Rows for a table of which samples are drawn with replacement."""
    schema = Schema(schema)
    whole = fit(frame, schema, math.inf)
    # Columns that are sums of others, or constant, have no coefficients to be covered.
    truth = np.where(np.isfinite(whole.low), whole.estimate, np.nan)

    def draw(n, rng):
        return frame.iloc[rng.integers(0, len(frame), size=n)]

    names = {"family": whole.family, "population": name}
    yield from cells(draw, schema, whole, truth, names, args)


def adult(args):
    whole = populations.adult_frame()
    schema = populations.EXPLAINED | {"hours-per-week": populations.HOURS}
    for family in args.family:
        own = schema if family == "linear" else schema | {"income": [False, True]}
        yield from of_table(whole[list(own)], own, "adult", args)


def tables(args):
    for family in args.family:
        for name in args.table:
            table = _raw_tables.load(name, "values" if family == "linear" else "classes")
            frame = table.X.assign(y=table.y)
            schema = table.schema | {"y": table.target or Categories([0, 1])}
            yield from of_table(frame, schema, name, args)


def published(args):
    for name in args.published:
        yield from of_table(*_published_tables.load(name), name, args)


if __name__ == "__main__":
    options = {
        "seeds": 200,
        "n": [1_000, 5_000, 20_000, 100_000],
        "epsilon": [0.5, 1.0, 3.0, 10.0, 1e5, math.inf],
        "family": ["linear", "logistic"],
        "kind": list(populations.KINDS),
        "table": ["california", "bike"],
        "published": list(_published_tables.TABLES),
        "intervals": 50,
    }
    sections = (
        simulated,
        adult,
        tables,
        attack,
        unseen,
        known,
        prevalence,
        counts,
        tests,
        published,
    )
    sections = {section.__name__: with_verdict(section) for section in sections}
    run(__doc__, sections, options, ignored=(PrivacyWarning,), left_out=("published",))
