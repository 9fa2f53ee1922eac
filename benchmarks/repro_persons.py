"""The person as the unit of privacy: what it costs in accuracy, beside the other ways to get it.

A person contributes many rows. Splits are by persons (a quarter of them to test), every seed draws
the split, what is drawn at random of a person's rows, and the noise; delta is 1e-5. Scores are on
test rows ("r2", "accuracy"), and with every test person counting the same ("..._persons": weights 1
/ n for each of his n test rows). No setting is chosen by any score. Ranges of columns and targets
are public. Ways:

- ``rows``: the row is the unit. This protects one row of a person and not the person.
- ``persons``: ``fit(X, y, groups=...)``.
- ``one row``: one row of each person, drawn at random, with the row as the unit.
- ``mean row``: the mean of each person's rows and targets, with the row as the unit.
- ``at most m rows``: m rows of each person, drawn at random where there are more, with the row as
  the unit and noise for m rows (group privacy), counted exactly.

Where epsilon is null nothing is private, and the same rows and weights are used: what a way
costs before any noise.

**Why the noise is right.** Let s be the noise multiplier of a release: noise of s C is added to a
sum in which one row has norm at most C. All releases of these fits are Gaussian, and together they
cost what one of mu = 1 / s costs (Dong, Roth, Su, 2022).

1. *m rows.* Where all rows of a person become null records, the sum moves by at most m vectors of
   norm C. Their norm is at most m C, and m C where all are equal. So the release has multiplier
   s / m for persons, or mu = m / s, and s = m t gives persons the multiplier t. Each release
   depends on earlier ones only, so that the same holds for all of them. A fit of epsilon' does
   that, with epsilon' what mu / m costs at the same delta. Rows that are left out change nothing:
   which rows of a person stay is drawn without looking at other persons. The number of rows that
   are left is taken to be public, as in any fit by rows; with ``groups`` only that of persons is.
2. *Weights.* With a weight 1 / n for each of a person's n rows the sum moves by at most
   n C / n = C: the multiplier for persons is that for rows, with no limit on n.
3. *So weights never have more noise.* In units of a sum over J persons of weight 1, their noise
   is t C / J. That of m rows is m t C over the number of rows that are left, which is at most m J:
   never less, and equal only where all persons have m rows or more. What differs beside the noise
   is what is minimised: the mean over persons of the mean loss of their rows, and not over rows.
   Steps go further: they shrink the *mean* of a person's gradients to C, and not the gradient of
   each row. It is one vector of norm C at most, as before, and shorter than those of rows where
   these point in many directions, so that C can be smaller for the same bias.
4. *Textbook.* (epsilon', delta') for a row is (m epsilon', delta' (e^(m epsilon') - 1) /
   (e^epsilon' - 1)) for m rows, whatever the method (Vadhan, 2017, lemma 2.2). Solved for
   epsilon' = epsilon / m, which asks for a little more noise than 1: see ``arithmetic``.

Sections: ``arithmetic`` (no data) has the noise of all of these, what a fit of this package states,
and what a fit with the row as the unit is worth to a person; ``cost`` has the scores; ``verdicts``
has the differences by seed of ``persons`` and the best other way to protect persons, which is
chosen on test rows in its favour.

Tables: recordings of 42 patients; pupils of 139 schools; ratings of films by 504 users, where 167
others are public and tell what they think of each film; California by squares of 0.1 degree, which
are alike inside, and by random groups of the same sizes; and Adult, where each row is a person and
stands there 1 to 40 times (a number n has a probability in proportion to n^-1.5) with numbers that
differ a little. Columns of classifiers are brought to [0, 1] by public ranges, and those of
DPSGDRegressor into the unit ball.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_persons.py [arithmetic cost verdicts]
       [--tables school movielens ...] [--estimators DPSGDClassifier ...] [--seeds 10]
       [--jobs 1] [--out benchmarks/results/persons.json]
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import _data
import _tables
import joblib
import numpy as np
from _run import judged, run, spread
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.model_selection import GroupShuffleSplit

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    PrivacyWarning,
)

EPSILONS, DELTA = (0.3, 1.0, 3.0, 8.0), 1e-5
LIMITS = (4, 16)  # most rows a person
MOST_ROWS_OF_ADULT, JITTER = 40, 0.02
SQUARES_PER_DEGREE = 10


# Tables with persons -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Rows, targets, whose row each is, and public ranges; no range of targets for classes."""

    X: np.ndarray
    y: np.ndarray
    persons: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    target_bounds: tuple[float, float] | None = None

    def at(self, rows: np.ndarray) -> "Table":
        """The table of some of its rows."""
        return replace(self, X=self.X[rows], y=self.y[rows], persons=self.persons[rows])

    @property
    def weights(self) -> np.ndarray:
        """One over the number of rows of the person, for each row."""
        _, codes, counts = np.unique(self.persons, return_inverse=True, return_counts=True)
        return 1 / counts[codes]


TABLES: dict[str, Callable[[], Table]] = {}


@cache
def load(name: str) -> Table:
    """Return the table called `name`."""
    if name not in TABLES:
        raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]()


def _table(function: Callable[[], Table]) -> Callable[[], Table]:
    TABLES[function.__name__] = function
    return function


def _with_persons(name: str, persons: np.ndarray) -> Table:
    table = _tables.load(name)
    return Table(table.X, table.y, persons, table.bounds, table.target_bounds)


@_table
def parkinsons() -> Table:
    """Recordings of 42 patients: too few for any person to hide among them."""
    return _with_persons("parkinsons", *_data.needed("parkinsons_telemonitoring", ("subject",)))


@_table
def school() -> Table:
    """Pupils; the school is the person."""
    return _with_persons("school", *_data.needed("school", ("task",)))


_GENRES, _FIRST_FILM, _EPOCH, _YEAR = 19, 1902, 1970, 365.25 * 24 * 3600
_FILMS = ((0, (_FIRST_FILM, 0, 0.5, 0)), (1, (2016, 100, 5, np.log(200))))
_PUBLIC_USERS, _PRIOR = 4, 5  # every fourth user is public; ratings that a mean is shrunk by


@_table
def movielens() -> Table:
    """Ratings by 504 users; a quarter of all, 167 others, are public and tell of films.

    Columns are the genres of the film, its year, its age when it was rated, its mean rating by
    public users, which is shrunk to the mean of all, and the logarithm of their number plus 1.
    """
    names = ("user", "movie", "rating", "timestamp", "movie_genres", "movie_year")
    user, movie, rating, seconds, genres, years = _data.needed("movielens_small", names)
    year = np.where(years > 0, years, 2000).astype(float)[movie]  # six films have none
    age = np.clip(_EPOCH + seconds / _YEAR - year, 0, 100)
    public = user % _PUBLIC_USERS == 0
    counts = np.bincount(movie[public], minlength=len(genres))
    sums = np.bincount(movie[public], rating[public], minlength=len(genres))
    means = (sums + _PRIOR * rating[public].mean()) / (counts + _PRIOR)
    X = np.column_stack([genres[movie], year, age, means[movie], np.log1p(counts[movie])])
    low, high = (np.array([*[end] * _GENRES, *ends], dtype=float) for end, ends in _FILMS)
    table = Table(X.astype(float), rating.astype(float), user, (low, high), (0.5, 5.0))
    return table.at(~public)


@_table
def california_squares() -> Table:
    """Blocks of houses; a square of the map is the person."""
    table = _tables.load("california")
    place = np.floor(SQUARES_PER_DEGREE * table.X[:, :2])
    return _with_persons("california", np.unique(place, axis=0, return_inverse=True)[1].ravel())


@_table
def california_random() -> Table:
    """The same in groups of the same sizes, of rows drawn at random."""
    persons = california_squares().persons
    return _with_persons("california", np.random.default_rng(0).permutation(persons))


@_table
def movielens_liked() -> Table:
    """Whether a rating is 4 or more."""
    ratings = load("movielens")
    return replace(ratings, y=(ratings.y >= 4).astype(int), target_bounds=None)


@_table
def adult_repeated() -> Table:
    """Adult, each row 1 to 40 times: numbers of small jitter, and the same categories."""
    X, y, _, _ = _data.load("adult")
    rng, sizes = np.random.default_rng(0), np.arange(1, MOST_ROWS_OF_ADULT + 1)
    counts = rng.choice(sizes, size=len(X), p=sizes**-1.5 / np.sum(sizes**-1.5))
    persons = np.repeat(np.arange(len(X)), counts)
    rows, numbers = X[persons].astype(float), slice(len(_data._ADULT_NUMBERS))
    rows[:, numbers] += rng.uniform(-JITTER, JITTER, size=rows[:, numbers].shape)
    ends = (np.zeros(X.shape[1]), np.ones(X.shape[1]))
    return Table(np.clip(rows, 0, 1), y[persons], persons, ends)


def split(name: str, seed: int) -> tuple[Table, Table]:
    """Rows of three quarters of the persons to train with, and of the others to test with."""
    table = load(name)
    of_persons = GroupShuffleSplit(n_splits=1, test_size=0.25, random_state=seed)
    train, test = next(of_persons.split(table.X, groups=table.persons))
    return table.at(train), table.at(test)


def sizes(name: str) -> dict[str, int]:
    """Persons and rows of the whole table, and rows a person."""
    counts = np.unique(load(name).persons, return_counts=True)[1]
    return {
        "persons": len(counts),
        "rows": int(counts.sum()),
        "median_rows": int(np.median(counts)),
        "most_rows": int(counts.max()),
    }


# What one Gaussian release costs, and group privacy -----------------------------------------------


def delta_of(epsilon: float, mu: float) -> float:
    """Least delta of one Gaussian release of multiplier 1 / mu (Balle and Wang, 2018)."""
    above, below = norm.cdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
    return float(above - np.exp(epsilon + below))


def mu_of(epsilon: float, delta: float = DELTA) -> float:
    """One over the noise multiplier of a release that costs `epsilon`."""
    return _root(lambda mu: delta_of(epsilon, mu) - delta, 1e-6, 100)


def epsilon_of(mu: float, delta: float = DELTA) -> float:
    """What a release of multiplier 1 / mu costs."""
    return _root(lambda epsilon: delta_of(epsilon, mu) - delta, 0, mu**2 / 2 + 10 * mu)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    found: Any = brentq(function, low, high, xtol=1e-14)
    return float(found)


def for_one_row(epsilon: float, m: int) -> float:
    """Epsilon of a row at which m rows cost `epsilon` at the same delta, for Gaussian noise."""
    return epsilon_of(mu_of(epsilon) / m)


def textbook(epsilon: float, m: int) -> tuple[float, float]:
    """The same and a smaller delta, for whatever is private."""
    return epsilon / m, DELTA * math.expm1(epsilon / m) / math.expm1(epsilon)


def arithmetic(args):
    """Noise multipliers that protect m rows, and what a row's guarantee is worth to a person."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4_000, 5)), rng.integers(2, size=4_000)
    for epsilon, m in itertools.product(args.epsilons, (1, *LIMITS, 40)):
        of_row = for_one_row(epsilon, m)
        yield {
            "epsilon": epsilon,
            "m": m,
            "multiplier_of_persons": 1 / mu_of(epsilon),
            "multiplier_of_m_rows": 1 / mu_of(of_row),
            "multiplier_textbook": 1 / mu_of(*textbook(epsilon, m)),
            "stated_by_a_fit": stated_multiplier(X, y, of_row),
            "epsilon_of_a_row": of_row,
            "what_epsilon_a_row_costs_m_rows": epsilon_of(m * mu_of(epsilon)),
        }


def stated_multiplier(X, y, epsilon):
    """Multiplier of all steps of a fit together, from the event that its guarantee holds."""
    model = DPSGDClassifier(epsilon=epsilon, delta=DELTA, n_iter=100, random_state=0).fit(X, y)
    event: Any = model.privacy_.event
    return float(event.event.noise_multiplier / np.sqrt(event.count))


# Ways to protect a person ------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """What is given to an estimator: rows, epsilon, and whether persons are named."""

    table: Table
    epsilon: float
    grouped: bool = False


def rows_as_they_are(table, epsilon, rng):
    return Fit(table, epsilon)


def persons(table, epsilon, rng):
    return Fit(table, epsilon, grouped=True)


def one_row(table, epsilon, rng):
    return Fit(table.at(at_most(table.persons, 1, rng)), epsilon)


def mean_row(table, epsilon, rng):
    who, codes, counts = np.unique(table.persons, return_inverse=True, return_counts=True)
    sums, y = np.zeros((len(who), table.X.shape[1])), np.bincount(codes, table.y) / counts
    np.add.at(sums, codes, table.X)
    return Fit(replace(table, X=sums / counts[:, None], y=y, persons=who), epsilon)


def m_rows(m, table, epsilon, rng):
    kept = table.at(at_most(table.persons, m, rng))
    return Fit(kept, for_one_row(epsilon, m) if epsilon < np.inf else epsilon)


def at_most(groups, m, rng):
    """Rows of at most m of each group, drawn at random, in their order."""
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    first = np.searchsorted(groups[order], groups[order])
    return np.sort(order[np.arange(len(groups)) - first < m])


WAYS: dict[str, Callable[..., Fit]] = {
    "rows": rows_as_they_are,
    "persons": persons,
    "one row": one_row,
    "mean row": mean_row,
}
WAYS |= {f"at most {m} rows": partial(m_rows, m) for m in LIMITS}


# Estimators --------------------------------------------------------------------------------------


def linear_regression(table, **options):
    """Columns as they come, and public ranges."""
    model = DPLinearRegression(bounds=table.bounds, target_bounds=table.target_bounds, **options)
    return model, lambda X: X


def descent_regression(table, **options):
    """Columns from public ranges into the unit ball."""
    model = DPSGDRegressor(data_norm=1.0, target_bounds=table.target_bounds, **options)
    return model, lambda X: _data.to_unit_ball(X, *table.bounds)


def classifier(kind, table, **options):
    """Columns from public ranges to [0, 1]."""
    low, high = table.bounds
    return kind(**options), lambda X: np.clip((X - low) / (high - low), 0, 1)


ESTIMATORS: dict[str, Callable[..., tuple[Any, Callable]]] = {
    "DPLinearRegression": linear_regression,
    "DPSGDRegressor": descent_regression,
    "DPSGDClassifier": partial(classifier, DPSGDClassifier),
    "DPSGDFClassifier": partial(classifier, DPSGDFClassifier),
}
CLASSIFIERS = ("DPSGDClassifier", "DPSGDFClassifier")


def fitted_scores(estimator, way, epsilon, train, test, seed):
    """Scores of one fit, of rows and of persons."""
    given = WAYS[way](train, epsilon, np.random.default_rng(seed))
    options = {"epsilon": given.epsilon, "delta": DELTA, "random_state": seed}
    model, prepared = ESTIMATORS[estimator](given.table, **options)
    named = {"groups": given.table.persons} if given.grouped else {}
    model.fit(prepared(given.table.X), given.table.y, **named)
    return scores(model.predict(prepared(test.X)), test)


def scores(predictions, test):
    """R2 or accuracy, with rows counting the same and with persons counting the same."""
    found = {}
    for suffix, weights in (("", np.ones(len(test.y))), ("_persons", test.weights)):
        if test.target_bounds is None:
            found[f"accuracy{suffix}"] = np.average(predictions == test.y, weights=weights)
            continue
        errors = np.square(np.clip(predictions, -1e100, 1e100) - test.y)
        middle = np.average(test.y, weights=weights)
        variance = np.average(np.square(test.y - middle), weights=weights)
        found[f"r2{suffix}"] = 1 - np.average(errors, weights=weights) / variance
    return found


# The table of results ----------------------------------------------------------------------------


def cell(name, estimator, way, epsilon, seeds):
    """Scores over the seeds of one way to protect persons."""
    found = [fitted_scores(estimator, way, epsilon, *split(name, s), s) for s in seeds]
    key = {"data": name, "estimator": estimator, "way": way}
    key["epsilon"] = epsilon if epsilon < np.inf else None
    of_persons = next(score for score in found[0] if score.endswith("_persons"))
    return key | summary(found) | sizes(name) | {"scores": [each[of_persons] for each in found]}


def summary(found):
    """Mean, standard deviation and median of each score over the seeds."""
    row = {}
    for score in found[0]:
        values = [each[score] for each in found]
        row |= spread(score, values) | {f"{score}_median": round(float(np.median(values)), 4)}
    return row


def constants(name, seeds):
    """The same of the mean of the training targets, or of their most frequent class."""
    found = []
    for seed in seeds:
        train, test = split(name, seed)
        classes = train.target_bounds is None
        value = np.bincount(train.y).argmax() if classes else train.y.mean()
        found.append(scores(np.full(len(test.y), value), test))
    key = {"data": name, "estimator": "constant", "way": "rows", "epsilon": None}
    return key | summary(found) | sizes(name)


SCORES: dict[tuple, list[float]] = {}  # of persons, of each seed


def cost(args):
    """Scores of all tables, estimators, ways and epsilons."""
    tasks = []
    for name in args.tables:
        classes = load(name).target_bounds is None
        fitting = [each for each in args.estimators if (each in CLASSIFIERS) == classes]
        ways = [way for way in args.ways if not (classes and way == "mean row")]
        if fitting:
            yield constants(name, args.seeds)
        cells = itertools.product([name], fitting, ways, (np.inf, *args.epsilons), [args.seeds])
        tasks += cells
    with joblib.parallel_config("loky", n_jobs=args.jobs, inner_max_num_threads=args.threads):
        parallel = joblib.Parallel(return_as="generator", batch_size=1)
        for row in parallel(joblib.delayed(cell)(*task) for task in tasks):
            key = row["data"], row["estimator"], row["epsilon"], row["way"]
            SCORES[key] = row.pop("scores")
            yield row


def verdicts(args):
    """What persons gain by seed over the best other way to protect them, by the scores above."""
    others = [way for way in args.ways if way not in ("rows", "persons")]
    for (data, estimator, epsilon, way), ours in list(SCORES.items()):
        found = {other: SCORES.get((data, estimator, epsilon, other)) for other in others}
        rivals = {other: each for other, each in found.items() if each}
        if way != "persons" or epsilon is None or not rivals:
            continue
        best = max(rivals, key=lambda other: float(np.mean(rivals[other])))
        gains = np.subtract(ours, rivals[best])
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
        row = {"data": data, "estimator": estimator, "epsilon": epsilon, "beside": best}
        row |= {"gain": round(float(np.mean(gains)), 4), "standard_error": round(error, 4)}
        yield row | judged(np.mean(gains) >= -2 * error)


OPTIONS = {"tables": list(TABLES), "estimators": list(ESTIMATORS), "ways": list(WAYS)}
OPTIONS |= {"epsilons": list(EPSILONS), "seeds": 10, "jobs": 1}

if __name__ == "__main__":
    sections = {"arithmetic": arithmetic, "cost": cost, "verdicts": verdicts}
    run(__doc__, sections, OPTIONS, ignored=[PrivacyWarning])
