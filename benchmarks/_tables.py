"""Regression tables in their own units, with public ranges of columns and target.

``load(name)`` gives a ``Table``: numeric columns as they come, in which missing values are a
public constant, and categories as one column for each. ``split`` draws test and training rows by
a seed. Where rows belong to people or schools, it draws these: nobody is on both sides. Ranges of
columns are round numbers that stand for documented ones; values outside of them exist in some
tables. Where a table has natural groups, there is a second table by the name of
``<name>_public``, in which some groups are public tasks and all other rows are private.

Files are found as in ``_data.py``: in the folder that ``DPSUBSPACE_DATA`` names, then on OpenML
where there is a counterpart with the same columns.

usage: DPSUBSPACE_DATA=folder python benchmarks/_tables.py [name ...]
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import _data
import numpy as np
from sklearn.datasets import load_diabetes

MOST_TRAIN, MOST_TEST = 16_000, 3_000
LEAST = -0.05  # an R2 below is a catastrophe: a constant has about 0, but for new patients

Range = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Table:
    """Private rows and targets, public ranges (low, high), and public tasks (rows, targets).

    `groups` are the people or schools that rows belong to.
    """

    X: np.ndarray
    y: np.ndarray
    bounds: Range
    target_bounds: tuple[float, float]
    public: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    groups: np.ndarray | None = None


@dataclass(frozen=True)
class Split:
    """Rows and targets to train and to test with, of the table that knows what is public."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    table: Table


TABLES: dict[str, Callable[[], Table]] = {}


@cache
def load(name: str) -> Table:
    """Return the table called `name`."""
    if name not in TABLES:
        raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]()


def split(table: Table, seed: int, n_train: int = MOST_TRAIN) -> Split:
    """Up to 3,000 rows, at most a fifth, to test, and up to `n_train` others to train.

    Of a table with groups, the rows of a fifth of the groups to test, whatever their number; five
    seeds in a row test every group once.
    """
    order = np.random.default_rng(seed).permutation(len(table.X))
    if table.groups is None:
        test, rest = np.split(order, [min(MOST_TEST, -(-len(order) // 5))])
    else:
        tested = _data.in_fold(table.groups, seed, 5)[order]
        test, rest = order[tested], order[~tested]
    train = rest[:n_train]
    return Split(table.X[train], table.y[train], table.X[test], table.y[test], table)


def shape(table: Table, n_train: int = MOST_TRAIN) -> dict[str, int]:
    """Rows to train with, and columns."""
    rows = len(split(table, 0, n_train).X)
    return {"rows": rows, "columns": table.X.shape[1]}


def on_range(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Values clipped to a range, on [-1, 1]."""
    return 2 * (np.clip(values, low, high) - low) / (np.subtract(high, low)) - 1


def off_range(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Values on [-1, 1] in the units of the range."""
    return (values + 1) / 2 * np.subtract(high, low) + low


# What a model is worth --------------------------------------------------------------------------


def scores(predictions: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """R2 and root mean squared error, finite for predictions of any size."""
    squared = np.mean(np.square(np.clip(predictions, -1e100, 1e100) - y))
    return float(1 - squared / np.var(y)), float(np.sqrt(squared))


def summary(by_seed: list[tuple[float, float]]) -> dict:
    """Mean, standard deviation and median of both, and how many runs are below -0.05."""
    row: dict = {"seeds": len(by_seed)}
    for name, values in zip(("r2", "rmse"), np.array(by_seed).T, strict=True):
        spread = float(f"{values.std(ddof=1):.5g}") if len(values) > 1 else None
        row |= {name: float(f"{values.mean():.5g}"), f"{name}_std": spread}
        row[f"{name}_median"] = float(f"{np.median(values):.5g}")
        row |= {"low": int(np.sum(values < LEAST))} if name == "r2" else {}
    return row | {"scores": by_seed}


# The tables -------------------------------------------------------------------------------------


def _table(function: Callable[[], Table]) -> Callable[[], Table]:
    TABLES[function.__name__] = function
    return function


def _made(X, y, low, high, target_bounds) -> Table:
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    low, high = (np.array(np.broadcast_to(end, X.shape[1]), dtype=float) for end in (low, high))
    return Table(X, y, (low, high), target_bounds)


# Without public rows ----------------------------------------------------------------------------


def _numbers(name, low, high, target_bounds) -> Table:
    return _made(*_data.raw(name), low, high, target_bounds)


@_table
def protein() -> Table:
    """Areas (2), share, area, mass-weighted area, deviation, distance, penalty, order."""
    high = (40_000, 15_000, 1, 400, 6e6, 600, 20_000, 350, 60)
    return _numbers("protein", 0, high, (0, 21))


@_table
def power_plant() -> Table:
    """Temperature, vacuum, pressure and humidity, by the description of the table."""
    low, high = (1.81, 25.36, 992.89, 25.56), (37.11, 81.56, 1033.30, 100.16)
    return _numbers("power_plant", low, high, (420, 500))


@_table
def kin8nm() -> Table:
    """Eight joint angles within half a turn, and a distance within the reach of the arm."""
    return _numbers("kin8nm", -np.pi / 2, np.pi / 2, (0, 1.5))


_BIKE = [(0, 1), (1, 12), (1, 31), (1, 4), (0, 1), (1, 12), (0, 23), (0, 1), (0, 6), (0, 1)]
_BIKE += [(1, 4)] + [(0, 1)] * 4
_BIKE_MEANS = (0.503, 6.538, 15.683, 2.502, 0.503, 6.538, 11.547, 0.029, 3.004, 0.683)
_BIKE_MEANS += (1.425, 0.497, 0.476, 0.627, 0.19)


@_table
def bike() -> Table:
    """Calendar and weather less means of the file; year and month stand there twice."""
    low, high = np.array(_BIKE, dtype=float).T - np.array(_BIKE_MEANS)
    return _numbers("bike", low - 0.01, high + 0.01, (-4.54, 2.38))


_POL_LOW = (-70, -20, *[-10] * 4, *[-20] * 5, *[-10] * 5, -2, -2, -10, -1, -2, *[-1] * 5)
_POL_HIGH = (130, 110, 120, 130, 110, 130, 130, 140, 130, 120, 140, 110, 120, 120, 130, 110)
_POL_HIGH += (90, 75, 110, 100, 75, 70, 45, 70, 50, 40)


@_table
def pol() -> Table:
    """Telecommunication: 26 counts, most of them zero, and a percentage, less their means."""
    return _numbers("pol", _POL_LOW, _POL_HIGH, (-30, 75))


_ELEVATORS_LOW = (-1000, -90, -1.4, -0.6, -3.1, -13, -60, -0.09, -9, -0.0028, -0.0028, -0.0028)
_ELEVATORS_LOW += (-0.0027, -0.0007, -1e-5, -0.0006, -1e-5, -0.0027)
_ELEVATORS_HIGH = (1000, 110, 1.2, 0.7, 3, 8, 50, 0.06, 9, 0.0008, 0.0008, 0.0008, 0.0008)
_ELEVATORS_HIGH += (0.0008, 0.0002, 0.0006, 0.0002, 0.0008)


@_table
def elevators() -> Table:
    """Control of an aircraft: columns of very different scales, less their means."""
    return _numbers("elevators", _ELEVATORS_LOW, _ELEVATORS_HIGH, (-0.6, 1.4))


_KEGG_LOW = (-3, -4, -1, -0.3, -1000, -2, -0.6, -0.3, -0.4, -0.1, -0.1, -10, -1, -1.2, -100)
_KEGG_LOW += (-0.01, -0.6, -1.2, -0.2, -0.2, -0.3, -3, -0.01, -0.6, -1, -0.1, -20)
_KEGG_HIGH = (36, 42, 12, 0.8, 24_000, 14, 2, 0.8, 1.5, 0.1, 4, 220, 14, 8.1, 2100, 0.25, 2.5)
_KEGG_HIGH += (8.1, 0.9, 0.2, 0.2, 23, 0.25, 0.4, 11, 1, 220)


@_table
def keggundirected() -> Table:
    """Metabolic networks: tails are heavy, and one column is constant."""
    return _numbers("kegg", _KEGG_LOW, _KEGG_HIGH, (-1.7, 3.8))


_CALIFORNIA_LOW = (-125, 32, 0, 0, 0, 0, 0, 0)
_CALIFORNIA_HIGH = (-114, 42, 52, 40_000, 6_500, 36_000, 6_500, 15)
_BEDROOMS = 500  # where the number of bedrooms is missing
_CALIFORNIA_VALUES = (0, 500_001)


def _california() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place, age, rooms, bedrooms, people, households, income; value; distance to the ocean."""
    X, near, y = _data.needed("california_housing", ("x", "ocean", "y"))
    return np.nan_to_num(X.astype(float), nan=_BEDROOMS), y, near


@_table
def california() -> Table:
    """Blocks of houses, with one column for each of five distances to the ocean."""
    X, y, near = _california()
    low, high = (*_CALIFORNIA_LOW, *[0] * 5), (*_CALIFORNIA_HIGH, *[1] * 5)
    return _made(np.hstack([X, np.eye(5)[near]]), y, low, high, _CALIFORNIA_VALUES)


_WINE_LOW = (3, 0, 0, 0.5, 0, 1, 5, 0.985, 2.7, 0.2, 8)
_WINE_HIGH = (16, 1.6, 1.7, 66, 0.65, 290, 440, 1.04, 4.1, 2, 15)


def _wine() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measurements of wines, their scores, and whether they are white."""
    found = _data.arrays("wine_quality", ("x", "y", "is_white"))
    if found is not None:
        return found
    red, white = (_data.openml(f"wine-quality-{colour}") for colour in ("red", "white"))
    y = np.concatenate([red.target, white.target])
    colour = np.repeat([0, 1], [len(red.data), len(white.data)])
    return np.vstack([red.data, white.data]), y, colour


@_table
def wine() -> Table:
    """Red and white wines, with a column that says which; scores are 0 to 10."""
    X, y, white = _wine()
    return _made(np.column_stack([X, white]), y, (*_WINE_LOW, 0), (*_WINE_HIGH, 1), (0, 10))


_SCHOOL_HIGH = np.ones(27)
_SCHOOL_HIGH[[3, 4]] = 100  # percentages of pupils; all else is 0 or 1


@_table
def school() -> Table:
    """Examination scores of pupils; the constant column of the file is left out."""
    X, y, schools = _data.needed("school", ("x", "y", "task"))
    return replace(_made(X[:, :27], y, 0, _SCHOOL_HIGH, (0, 70)), groups=schools)


_PARKINSONS_LOW = (30, 0, -10, *[0] * 12, 0, 0.1, 0.5, 0)
_PARKINSONS_HIGH = (90, 1, 220, 0.1, 0.0005, 0.06, 0.07, 0.18, 0.27, 2.2, 0.17, 0.17, 0.28, 0.5)
_PARKINSONS_HIGH += (0.75, 40, 1, 0.9, 0.75)


@_table
def parkinsons() -> Table:
    """Age, sex, day and sixteen measurements of the voice of 42 people; the score is 0 to 60."""
    X, y, people = _data.needed("parkinsons_telemonitoring", ("x", "total_updrs", "subject"))
    whole = _made(X, y, _PARKINSONS_LOW, _PARKINSONS_HIGH, (0, 60))
    return replace(whole, groups=people)


_DIABETES_LOW = (18, 1, 15, 50, 80, 30, 10, 1, 3, 50)
_DIABETES_HIGH = (80, 2, 45, 140, 320, 260, 110, 10, 6.5, 130)


@_table
def diabetes() -> Table:
    """Age, sex, and clinical ranges; 442 rows."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return _made(X, y, _DIABETES_LOW, _DIABETES_HIGH, (25, 346))


# Whose groups are public tasks ------------------------------------------------------------------


def _grouped(X, y, low, high, target_bounds, groups, public) -> Table:
    """Rows of the groups `public` are one public task each, and all other rows are private."""
    whole = _made(X, y, low, high, target_bounds)
    tasks = tuple((whole.X[groups == g], whole.y[groups == g]) for g in public)
    kept = ~np.isin(groups, public)
    return Table(whole.X[kept], whole.y[kept], whole.bounds, target_bounds, tasks)


@_table
def school_public() -> Table:
    """The first 40 schools are public; pupils of 99 others are private."""
    X, y, schools = _data.needed("school", ("x", "y", "task"))
    whole = _grouped(X[:, :27], y, 0, _SCHOOL_HIGH, (0, 70), schools, range(40))
    return replace(whole, groups=schools[schools >= 40])


@_table
def wine_public() -> Table:
    """Red wines are public, and white ones are private."""
    X, y, white = _wine()
    return _grouped(X, y, _WINE_LOW, _WINE_HIGH, (0, 10), white, [0])


@_table
def california_public() -> Table:
    """Inland, by the bay and by the ocean are public; within an hour of the ocean is private."""
    X, y, near = _california()
    kept = near != 2  # five blocks on islands
    ranges = (_CALIFORNIA_LOW, _CALIFORNIA_HIGH, _CALIFORNIA_VALUES)
    return _grouped(X[kept], y[kept], *ranges, near[kept], [1, 3, 4])


def main() -> None:
    for name in sys.argv[1:] or TABLES:
        table = load(name)
        (low, high), (least, most) = table.bounds, table.target_bounds
        outside = np.mean(np.clip(table.X, low, high) != table.X)
        beyond = np.mean(table.y != np.clip(table.y, least, most))
        public = [len(y) for _, y in table.public]
        print(f"{name:<18} {table.X.shape}, outside {outside:.4f}, {beyond:.4f}; public {public}")


if __name__ == "__main__":
    main()
