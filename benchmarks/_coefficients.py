"""What samples say of the intervals of `private_coefficients`: one row of a report each cell.

A cell is one population, one number of rows and one epsilon. Of all coefficients but the intercept
``Cell.row`` gives

- `cover 0.9`, `cover 0.95`: the share that intervals of that level cover, all together;
  `worst 0.9`, `worst 0.95`: that of the coefficient that is covered least often; `least`: its name;
- `length`: median over coefficients and samples of the length over that of the sandwich interval
  without privacy of the same sample. `over limit`: the same over ``sqrt(1 + p / (n mu^2))``, which
  is the least that any Gaussian release of all p weights at this epsilon and delta allows: noise
  adds ``C / (n mu)^2`` to the covariance of influences psi if ``psi' C^-1 psi <= 1`` for each row,
  and the sum of relative variances is least at ``C = p E[psi psi']``;
- `open`: the share of intervals that have no end on one side;
- `pull`: slope, through 0, of the mean estimate on the truth, both in standard errors without
  privacy: 1 is unbiased, less is pulled towards 0;
- `rmse`: root mean squared error of estimates in standard errors without privacy, where 1 is what
  the sample alone costs. Estimates that are hidden (NaN) count in neither;
- `seconds` of the processor that a fit with its intervals takes, median; and `agree`, see below.

Whether an interval covers is asked of the test that it is made of, since intervals take most of the
time: these, and what follows from them, are made of the first ``--intervals`` samples, of which
`agree` is the share in which both say the same.

`chance` is that of a coverage as low as the cell's if it were its level minus 2 points: of all
coefficients together (Student's, by the spread over samples) or of the worst (binomial, times their
number), at either level, which are four, and so the least of them is taken four times. ``verdict``
says which cells with privacy are below by more than chance explains: 1 % over all cells of a run
together (Holm, 1979). Among 80 cells, 100 samples find a coefficient that is covered by 75 %, 300
one that is covered by 84 %, and 1,000 one of 88 %.
"""

import math
import time
import warnings
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np
from _run import judged
from scipy.stats import binom, norm, t

from dpsubspace import private_coefficients
from dpsubspace._core.accounting.cost import gaussian_sq_mu
from dpsubspace._core.statistics.inverted_tests import Interval, _separate, accepted_along

LEVELS = (0.9, 0.95)
SLACK = 0.02  # Points of coverage that are not held against a cell
ERROR = 0.01  # Chance that a run says of any cell that it fails if none does


def fit(frame, schema, epsilon, seed=None, **family):
    """Coefficients of the last column of a schema."""
    target = list(schema)[-1]
    return private_coefficients(frame, schema, target, epsilon=epsilon, random_state=seed, **family)


def fit_without_privacy(frame, schema, **family):
    """The sandwich covariance; samples with few events may have classes that are separate."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the classes are separate", UserWarning)
        return fit(frame, schema, math.inf, **family)


def fit_without_intervals(frame, schema, epsilon, seed, **family):
    """What is released alone, and the names of coefficients."""
    nothing = Interval(math.nan, -math.inf, math.inf)

    def none(_, directions, __):
        return [nothing] * len(directions)

    with mock.patch("dpsubspace.statistics._coefficients.intervals_along", none):
        return fit(frame, schema, epsilon, seed, **family)


def least_length(found, n):
    """Least length of intervals over that without privacy, for any Gaussian release of weights."""
    if math.isinf(found.privacy_.epsilon):
        return 1.0
    sq_mu = gaussian_sq_mu(found.privacy_.epsilon, found.privacy_.delta)
    return math.sqrt(1 + len(found.terms) / (n * sq_mu))


class Sample(NamedTuple):
    """What one sample gives for each coefficient; NaN where no intervals were made."""

    z: np.ndarray  # from which on the interval covers the truth
    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    plain: np.ndarray  # length of the interval without privacy


class Cell:
    """What is found for one population, one number of rows and one epsilon."""

    def __init__(self, whole, truth):
        # Columns that are sums of others, or constant, have no coefficient to be covered.
        self.kept = ~np.isnan(truth) & (np.arange(len(truth)) > 0)
        self.terms, self.truth = np.array(whole.terms)[self.kept], truth[self.kept]
        self.level, self.limit, self.samples, self.seconds = whole.level, 1.0, [], []

    def add(self, found, exact, truth, n, seconds=None):
        """Count one sample, of which intervals are there if it has `seconds`."""
        parts = (found.estimate, found.low, found.high)
        if seconds is None:
            parts = (np.full(len(truth), math.nan),) * 3
        else:
            self.seconds.append(seconds)
        self.limit = least_length(found, n)
        z = least_z(found, truth)
        # Whatever the test says, an interval without ends is printed as one that covers.
        z = np.where(np.isinf(parts[1]) & np.isinf(parts[2]), 0 * truth, z)
        every = Sample(z, *parts, _lengths(exact))
        self.samples.append(Sample(*(part[self.kept] for part in every)))

    def row(self):
        """The row of a report."""
        found = Sample(*(np.array(part) for part in zip(*self.samples, strict=True)))
        row = self._coverage(found.z)
        if self.seconds:
            made = Sample(*(part[: len(self.seconds)] for part in found))
            row |= self._sizes(made) | self._errors(made)
            row["seconds"] = float(np.median(self.seconds))
        shown = {name: round(x, 4) if isinstance(x, float) else x for name, x in row.items()}
        return shown | {"chance": float(f"{row['chance']:.2g}"), "samples": len(found.z)}

    def _coverage(self, z):
        found, chances = {}, []
        for level in LEVELS:
            inside = z <= norm.ppf(0.5 + level / 2)
            each = inside.mean(axis=0)
            found |= {f"cover {level:g}": float(each.mean()), f"worst {level:g}": float(each.min())}
            found["least"] = str(self.terms[each.argmin()])
            chances += [_chance_of_all(inside, level), _chance_of_worst(inside, level)]
        return found | {"chance": min(1.0, len(chances) * min(chances))}

    def _sizes(self, made):
        with np.errstate(invalid="ignore"):
            length = float(np.nanmedian(_lengths(made) / made.plain))
        inside = (made.low <= self.truth) & (self.truth <= made.high)
        same = inside == (made.z <= norm.ppf(0.5 + self.level / 2))
        ended = np.isfinite(made.low) & np.isfinite(made.high)
        found = {"length": length, "over limit": length / self.limit}
        return found | {"open": float(1 - ended.mean()), "agree": float(same.mean())}

    def _errors(self, made):
        error = _deviation(np.nanmedian(made.plain, axis=0), self.level)
        # Without an event the sample has no standard error, and what is hidden has no estimate.
        seen = np.isfinite(error) & ~np.isnan(made.estimate).all(axis=0)
        if not seen.any():
            return {"pull": None, "rmse": None}
        estimate, truth = made.estimate[:, seen] / error[seen], self.truth[seen] / error[seen]
        pull = np.nanmean(estimate, axis=0) @ truth / (truth @ truth)
        return {"pull": float(pull), "rmse": float(np.sqrt(np.nanmean((estimate - truth) ** 2)))}


def least_z(found, truth):
    """For each coefficient the z from which on its interval covers the truth."""
    equations, terms = found.released[:2]
    if equations.exact:
        with np.errstate(invalid="ignore"):
            z = np.abs(found.estimate - truth) / _deviation(_lengths(found), found.level)
            return np.where(np.isinf(found.low), 0 * truth, z)
    z = np.array(
        [
            accepted_along(equations, term.direction, (value - term.shift) / term.factor)
            for term, value in zip(terms, truth, strict=True)
        ]
    )
    # Categories of one outcome are hidden, whatever the test says.
    directions = np.array([term.direction for term in terms])
    return np.where(_separate(equations, equations.of_table(directions)), 0.0, z)


def _lengths(found):
    with np.errstate(invalid="ignore"):
        return found.high - found.low


def _deviation(length, level):
    return length / 2 / norm.ppf(0.5 + level / 2)


def _chance_of_all(inside, level):
    n_samples = len(inside)
    error = inside.mean(axis=1).std(ddof=1) / math.sqrt(n_samples) if n_samples > 1 else 0.0
    # A handful of samples may look all the same: coefficients are hardly less than independent.
    independent = math.sqrt(level * (1 - level) / inside.size)
    statistic = (inside.mean() - level + SLACK) / max(error, independent)
    return float(t.cdf(statistic, max(n_samples - 1, 1)))


def _chance_of_worst(inside, level):
    hits, n_terms = int(inside.sum(axis=0).min()), inside.shape[1]
    return float(n_terms * binom.cdf(hits, len(inside), level - SLACK))


def cells(draw, schema, whole, truth, names, args, **family):
    """Rows for each number of rows and epsilon, of a population of which `whole` is a fit."""
    for n in args.n:
        found = {epsilon: Cell(whole, truth) for epsilon in args.epsilon}
        for seed in args.seeds:
            frame = draw(n, np.random.default_rng([seed, n, 17]))
            exact, plain = _timed(partial(fit_without_privacy, **family), frame, schema)
            for epsilon, cell in found.items():
                if math.isinf(epsilon):
                    cell.add(exact, exact, truth, n, plain)
                elif seed < args.intervals:
                    made, seconds = _timed(partial(fit, **family), frame, schema, epsilon, seed)
                    cell.add(made, exact, truth, n, seconds)
                else:
                    made = fit_without_intervals(frame, schema, epsilon, seed, **family)
                    cell.add(made, exact, truth, n)
        for epsilon, cell in found.items():
            yield names | {"n": n, "epsilon": epsilon} | cell.row()


def rejections(draw, schema, whole, truth, names, args, **family):
    """Rows with the size and the power of tests of 0 at 5 %, of known coefficients.

    `size` is of all coefficients that are 0, together, and `least` and `most` of single ones;
    `power` is of all others but the intercept, and `plain` says what the same are without privacy.
    """
    zero, other = truth == 0, (truth != 0) & (np.arange(len(truth)) > 0)
    for n in args.n:
        found = {epsilon: [] for epsilon in args.epsilon}
        plain = []
        for seed in args.seeds:
            frame = draw(n, np.random.default_rng([seed, n, 17]))
            exact = fit_without_privacy(frame, schema, **family)
            plain.append(least_z(exact, np.zeros(len(truth))))
            for epsilon, own in found.items():
                made = fit_without_intervals(frame, schema, epsilon, seed, **family)
                own.append(least_z(made, np.zeros(len(truth))))
        beside = np.mean(np.array(plain) > norm.ppf(0.975), axis=0)
        for epsilon, own in found.items():
            share = np.mean(np.array(own) > norm.ppf(0.975), axis=0)
            row = {"size": share[zero].mean(), "least": share[zero].min()}
            row |= {"most": share[zero].max(), "plain size": beside[zero].mean()}
            row |= {"power": share[other].mean(), "plain power": beside[other].mean()}
            row = {name: round(float(x), 4) for name, x in row.items()}
            yield names | {"n": n, "epsilon": epsilon} | row | {"samples": len(own)}


def _timed(call, *args):
    """What a call returns, and its seconds of the processor."""
    start = time.process_time()
    return call(*args), time.process_time() - start


def with_verdict(section):
    """A section that ends with which cells failed, of all that the run has had."""

    def judging(args):
        yield from section(args)
        yield verdict([row for rows in args.results.values() for row in rows])

    return judging


def verdict(rows):
    """Which cells are below their level by more than chance explains."""
    rows = [row for row in rows if "chance" in row and math.isfinite(row["epsilon"])]
    failed = np.flatnonzero(rejected([row["chance"] for row in rows]))
    below = "; ".join(_told(rows[i]) for i in failed)
    return {"cells": len(rows), "below": below} | judged(not below)


def _told(row):
    where = f"{row['population']} {row['family']}, {row['n']} rows, epsilon {row['epsilon']:g}"
    return f"{where} (all {row['cover 0.95']:.3g}, {row['least']} {row['worst 0.95']:.3g})"


def rejected(chances):
    """Which of many hypotheses are rejected at ERROR over all together (Holm, 1979)."""
    chances, k = np.array(chances), len(chances)
    order = np.argsort(chances)
    below = np.logical_and.accumulate(chances[order] <= ERROR / np.arange(k, 0, -1))
    return np.isin(np.arange(k), order[below])
