"""Table 1 and counts of real tables: errors beside intervals, coverage, other libraries, time.

entries     errors of `private_summary` on four tables, beside the half width of intervals, and how
            often these cover what the rows give. Errors of numbers are in standard deviations of
            the column, those of shares in points
by_size     the same of a random part of the rows of Adult
mechanisms  half widths of 95 % intervals of one count by Laplace and by Gaussian noise
counts      cross tables of Adult: errors of cells and margins, before and after they add up
others      means and counts of all columns at the same budget by diffprivlib and OpenDP, where
            these are installed (in an environment of their own: they need scikit-learn < 1.8)
times       seconds on simulated rows
"""

import math
import time

import _raw_tables
import numpy as np
import pandas as pd
from _run import run

from dpsubspace import (
    Categories,
    PrivacyLedger,
    PrivacyWarning,
    Range,
    private_counts,
    private_summary,
)

TABLES = {"adult": "sex", "california": None, "bike": None, "kegg": None}
LEVELS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


def table_of(name):
    source = _raw_tables._source(name)
    return source.frame, dict(source.schema)


def exact_of(frame, schema, by):
    """What the rows give, with quantiles that are values of rows."""
    exact = private_summary(frame, schema, by=by, epsilon=math.inf).to_frame()
    for place, row in enumerate(exact.itertuples(index=False)):
        if row.statistic in LEVELS:
            low, high = schema[row.column].low, schema[row.column].high
            own = frame[row.column] if by is None else frame[row.column][frame[by] == row.group]
            level = LEVELS[row.statistic]
            exact.loc[place, "value"] = np.quantile(
                own.dropna().clip(low, high), level, method="inverted_cdf"
            )
    return exact


def units_of(exact):
    """Standard deviation of the column of each number, 0.01 for shares; NaN for counts."""
    spread = exact[exact["statistic"] == "standard deviation"]
    spread = spread.set_index(["column", "group"])["value"]
    units = [
        0.01 if statistic == "share" else spread.get((column, group), np.nan)
        for column, statistic, group in zip(
            exact["column"], exact["statistic"], exact["group"], strict=True
        )
    ]
    return np.array(units, dtype=float)


def errors(frame, schema, by, epsilon, args, **options):
    exact = exact_of(frame, schema, by)
    units, found = units_of(exact), []
    for seed in args.seeds:
        given = {"by": by, "epsilon": epsilon, "random_state": seed, **options}
        found.append(private_summary(frame, schema, **given).to_frame())
    value, low, high = (
        np.stack([each[part].to_numpy() for each in found]) for part in ("value", "low", "high")
    )
    truth = exact["value"].to_numpy()
    covered = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
    for statistic in ("share", "mean", "standard deviation", "median", "lower quartile"):
        some = (exact["statistic"] == statistic).to_numpy() & (units > 0)
        if not some.any():
            continue
        error = np.sqrt(((value - truth)[:, some] ** 2).mean(axis=0)) / units[some]
        half = (high - low)[:, some].mean(axis=0) / 2 / units[some]
        cover = covered[:, some].mean(axis=0)
        yield {
            "statistic": statistic,
            "numbers": int(some.sum()),
            "rmse_median": float(np.median(error)),
            "rmse_worst": float(error.max()),
            "half_width_median": float(np.median(half)),
            "half_width_worst": float(half.max()),
            "coverage": float(cover.mean()),
            "coverage_least": float(cover.min()),
        }


def entries(args):
    for name, by in TABLES.items():
        frame, schema = table_of(name)
        for epsilon in args.epsilons:
            for row in errors(frame, schema, by, epsilon, args):
                yield {"table": name, "n": len(frame), "by": by, "epsilon": epsilon, **row}


def by_size(args):
    frame, schema = table_of("adult")
    for n in (300, 1000, 3000, 10_000):
        part = frame.sample(n, random_state=0).reset_index(drop=True)
        for row in errors(part, schema, "sex", 1.0, args):
            yield {"table": "adult", "n": n, "epsilon": 1.0, **row}


def mechanisms(args):
    frame = pd.DataFrame({"ward": ["A", "B"] * 500})
    schema = {"ward": ["A", "B"]}
    for relation in ("zero_out", "replace_one"):
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
            options = {"epsilon": epsilon, "neighboring_relation": relation}
            laplace = private_counts(frame, schema, "ward", **options)
            ledger = PrivacyLedger(1.01 * epsilon, 1e-5, neighboring_relation=relation)
            gaussian = ledger.run(private_counts, frame, schema, "ward", **options)
            halves = [each._noise.half_width(0.95) for each in (laplace, gaussian)]
            yield {
                "relation": relation,
                "epsilon": epsilon,
                "laplace": halves[0],
                "gaussian_at_1e-5": halves[1],
                "gaussian_is_wider": halves[1] / halves[0],
            }


def counts(args):
    frame, schema = table_of("adult")
    asked = {
        "sex x workclass": (["sex", "workclass"], 10),
        "age": ("age", 20),
        "education x occupation": (["education", "occupation"], 10),
        "age x hours x sex": (["age", "hours-per-week", "sex"], 40),
        "country x occupation x education": (["native-country", "occupation", "education"], 10),
    }
    for name, (columns, bins) in asked.items():
        options = {"bins": bins, "epsilon": 1.0}
        exact = private_counts(frame, schema, columns, **options | {"epsilon": math.inf})
        rows = []
        for seed in args.seeds[:10]:
            found = private_counts(frame, schema, columns, **options, random_state=seed)
            first = found.margin(found.columns[0])
            truth = exact.margin(found.columns[0]).counts
            rows.append(
                {
                    "cell_noisy": np.abs(found.noisy - exact.counts).mean(),
                    "cell": np.abs(found.counts - exact.counts).mean(),
                    "margin_noisy": np.abs(first.noisy - truth).mean(),
                    "margin": np.abs(first.counts - truth).mean(),
                    "coverage": np.mean((found.low <= exact.counts) & (exact.counts <= found.high)),
                    "made_up": np.sum((found.noisy >= 1) & (exact.counts == 0)),
                }
            )
        means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        empty = int((exact.counts == 0).sum())
        yield {"table": name, "cells": int(exact.counts.size), "empty": empty, **means}


def others(args):
    """Means and counts, each a query of its own with an equal share of the same epsilon."""
    for name in TABLES:
        frame, schema = table_of(name)
        numbers = [column for column, kind in schema.items() if isinstance(kind, Range)]
        words = [column for column, kind in schema.items() if isinstance(kind, Categories)]
        exact = exact_of(frame, schema, None)
        # Equal footing: theirs are means and counts alone, and ours come with all other lines.
        for library, answer in (
            ("dpsubspace", _ours),
            ("diffprivlib", _diffprivlib),
            ("opendp", _opendp),
        ):
            start, shares, means = time.perf_counter(), [], []
            for seed in args.seeds[:10]:
                try:
                    found = answer(frame, schema, numbers, words, args.epsilons[0], seed)
                except ImportError:
                    break
                for column in numbers:
                    own = exact[exact["column"] == column].set_index("statistic")["value"]
                    error = found[column] - own["mean"]
                    if own["standard deviation"] > 0:
                        means.append(abs(error) / own["standard deviation"])
                for column in words:
                    values = [str(value) for value in schema[column].values]
                    truth = frame[column].astype(str).value_counts().reindex(values).fillna(0)
                    shares += list(np.abs(found[column] - truth.to_numpy()))
            if means:
                yield {
                    "table": name,
                    "library": library,
                    "mean_error_in_deviations": float(np.mean(means)),
                    "count_error": float(np.mean(shares)) if shares else None,
                    "seconds": (time.perf_counter() - start) / len(args.seeds[:10]),
                }


def _ours(frame, schema, numbers, words, epsilon, seed):
    found = private_summary(frame, schema, epsilon=epsilon, random_state=seed)
    answer = {column: found.entry(column, "mean").value for column in numbers}
    for column in words:
        values = schema[column].values
        answer[column] = [found.entry(column, "count", category=v).value for v in values]
    return answer


def _diffprivlib(frame, schema, numbers, words, epsilon, seed):
    from diffprivlib import tools

    share, answer = epsilon / (len(numbers) + len(words)), {}
    for column in numbers:
        ends = (schema[column].low, schema[column].high)
        own = frame[column].dropna().to_numpy(float)  # whose number is taken to be public
        answer[column] = tools.mean(own, epsilon=share, bounds=ends, random_state=seed)
    for column in words:
        values = {str(value): i for i, value in enumerate(schema[column].values)}
        codes = frame[column].astype(str).map(values).to_numpy()
        answer[column] = tools.histogram(
            codes,
            epsilon=share,
            bins=np.arange(len(values) + 1) - 0.5,
            range=(-0.5, len(values) - 0.5),
            random_state=seed,
        )[0]
    return answer


def _opendp(frame, schema, numbers, words, epsilon, seed):
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics")
    share, answer = epsilon / (len(numbers) + len(words)), {}
    for column in numbers:
        ends = (float(schema[column].low), float(schema[column].high))
        own = np.clip(frame[column].dropna().to_numpy(float), *ends)
        domain = dp.vector_domain(dp.atom_domain(bounds=ends), size=len(own))
        space = domain, dp.symmetric_distance()
        mean = space >> dp.t.then_mean()
        meter = dp.binary_search_chain(lambda s, m=mean: m >> dp.m.then_laplace(s), 2, share)
        answer[column] = meter(own.tolist())
    for column in words:
        values = [str(value) for value in schema[column].values]
        space = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
        count = space >> dp.t.then_count_by_categories(categories=values, null_category=False)
        meter = dp.binary_search_chain(lambda s, c=count: c >> dp.m.then_laplace(s), 1, share)
        answer[column] = meter(frame[column].astype(str).tolist())
    return answer


def times(args):
    rng = np.random.default_rng(0)
    for n in (100_000, 1_000_000):
        frame = pd.DataFrame({f"x{i}": rng.normal(size=n) for i in range(10)})
        schema = {f"x{i}": Range(-6, 6) for i in range(10)}
        for i in range(5):
            frame[f"c{i}"] = pd.Categorical.from_codes(rng.integers(0, 8, n), list("abcdefgh"))
            schema[f"c{i}"] = Categories(list("abcdefgh"))
        for what, call in {
            "summary": lambda f=frame, s=schema: private_summary(f, s, epsilon=1.0),
            "summary by group": lambda f=frame, s=schema: private_summary(f, s, by="c0"),
            "counts, 3 columns": lambda f=frame, s=schema: private_counts(f, s, ["x0", "c0", "c1"]),
        }.items():
            start = time.perf_counter()
            call()
            yield {"what": what, "rows": n, "columns": 15, "seconds": time.perf_counter() - start}


SECTIONS = {
    "entries": entries,
    "by_size": by_size,
    "mechanisms": mechanisms,
    "counts": counts,
    "others": others,
    "times": times,
}


if __name__ == "__main__":
    run(__doc__, SECTIONS, {"seeds": 100, "epsilons": [1.0]}, ignored=(PrivacyWarning,))
