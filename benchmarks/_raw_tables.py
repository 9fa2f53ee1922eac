"""Tables as they come, as data frames with a schema: thirteen with two classes, twelve with values.

``load(name, task, seed)`` gives a ``RawTable`` for the task "classes" or "values": data frames of
rows to train and to test with, a schema of public ranges and categories, and the public range of
the target. Where rows belong to people or schools, a quarter of these are tested with, whom
training has never seen, and four seeds test each of them once. Of other tables the test rows are
the same for all seeds. ``few`` draws rows to train with, ``with_useless`` adds columns that tell
nothing, and ``with_wide_ranges`` declares ranges that are wider.

Ranges are documented ones, round numbers that stand for them, or, of tables whose columns were
centred by those who packed them, the range of the file rounded outwards to two digits. The last
kind stands for a documented range too; who has a table of their own must not read it from the
rows. Columns with ``log=True`` have long tails by what they measure: amounts, counts, areas.

CHOOSING are the tables that constants may be chosen on, and SHOWN those that they are shown on:
every other table in the order of the alphabet.

usage: DPSUBSPACE_DATA=folder python benchmarks/_raw_tables.py [name ...]
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import _data
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes

from dpsubspace import Categories, Range

MOST_TRAIN, MOST_TEST = 15_000, 3_000
TASKS = ("classes", "values")
USELESS = ("uniform", "shuffled")


@dataclass(frozen=True)
class RawTable:
    """Rows to train and to test with, and what is public."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    schema: dict
    target: Range | None = None
    groups: np.ndarray | None = None  # whose the rows to train with are


@dataclass(frozen=True)
class _Source:
    """Columns and values of a table, before a task and a split."""

    frame: pd.DataFrame
    schema: dict
    y: np.ndarray
    above: float  # a row is of the second class where its value is larger
    target: tuple[float, float] | None
    groups: np.ndarray | None = None
    rows: tuple[np.ndarray, np.ndarray] | None = None  # to train and to test with


SOURCES: dict[str, Callable[[], _Source]] = {}


def load(name: str, task: str, seed: int = 0) -> RawTable:
    """Return the table called `name` for "classes" or "values", as a seed splits it."""
    if name not in names(task):
        raise KeyError(f"no table {name!r} with {task}; there are {', '.join(names(task))}")
    return _split(name, task, seed if grouped(name) else 0)


def grouped(name: str) -> bool:
    """Whether rows belong to people or schools, which are then tested with as a whole."""
    return _source(name).groups is not None


@cache
def _source(name: str) -> _Source:
    return SOURCES[name]()


@cache
def _split(name: str, task: str, seed: int) -> RawTable:
    source, classes = _source(name), task == "classes"
    y = (source.y > source.above).astype(int) if classes else source.y.astype(float)
    order = np.random.default_rng(7).permutation(len(y))
    if source.rows is not None:
        train, test = source.rows
    elif source.groups is not None:
        tested = _data.in_fold(source.groups, seed)[order]
        train, test = order[~tested][:MOST_TRAIN], order[tested]
    else:
        test, train = np.split(order, [min(MOST_TEST, len(y) // 4)])
        train = train[:MOST_TRAIN]
    return RawTable(
        source.frame.iloc[train].reset_index(drop=True),
        y[train],
        source.frame.iloc[test].reset_index(drop=True),
        y[test],
        source.schema,
        None if classes else Range(*source.target),
        None if source.groups is None else source.groups[train],
    )


def few(table: RawTable, n_rows: int | None, seed: int) -> RawTable:
    """The table with `n_rows` random rows to train with, or with all of them."""
    if n_rows is None or n_rows >= len(table.y):
        return table
    rows = np.random.default_rng(seed).permutation(len(table.y))[:n_rows]
    groups = None if table.groups is None else table.groups[rows]
    frame = table.X.iloc[rows].reset_index(drop=True)
    return replace(table, X=frame, y=table.y[rows], groups=groups)


def with_useless(table: RawTable, n_columns: int, kind: str, seed: int) -> RawTable:
    """The table with `n_columns` more columns that tell nothing of the target.

    They are "uniform" between 0 and 1, or "shuffled": copies of the table's own columns in turn, as
    they are declared, whose rows are permuted apart to train and to test with.
    """
    if kind not in USELESS:
        raise ValueError(f"kind={kind!r} must be one of {', '.join(USELESS)}.")
    rng, own, prefix = np.random.default_rng([seed, 11]), list(table.schema), "useless"
    while any(name.startswith(prefix) for name in own):
        prefix += "_"
    copied = {f"{prefix}{i}": own[i % len(own)] for i in range(n_columns)}

    def wider(frame):
        if kind == "uniform":
            columns = {name: rng.random(len(frame)) for name in copied}
        else:
            columns = {
                name: frame[of].take(rng.permutation(len(frame))).reset_index(drop=True)
                for name, of in copied.items()
            }
        return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)

    unit = Range(0.0, 1.0)
    schema = {a: unit if kind == "uniform" else table.schema[of] for a, of in copied.items()}
    X, X_test = wider(table.X), wider(table.X_test)
    return replace(table, X=X, X_test=X_test, schema=table.schema | schema)


def with_wide_ranges(table: RawTable, factor: float) -> RawTable:
    """The table with ranges that are `factor` times as wide, about their middles.

    Ranges with ``log=True`` grow at their upper ends alone.
    """
    wide = {}
    for name, kind in table.schema.items():
        if isinstance(kind, Range):
            if kind.log:
                kind = replace(kind, high=kind.low + factor * (kind.high - kind.low))
            else:
                middle, half = (kind.low + kind.high) / 2, factor * (kind.high - kind.low) / 2
                kind = replace(kind, low=middle - half, high=middle + half)
        wide[name] = kind
    return replace(table, schema=wide)


def names(task: str) -> list[str]:
    """Names of the tables that there are for "classes" or "values"."""
    without = {"classes": ("kegg",), "values": ("adult", "cancer")}[task]
    return [name for name in sorted(SOURCES) if name not in without]


def choosing() -> list[str]:
    """Names of the tables that constants may be chosen on: every other one, from the first."""
    return sorted(SOURCES)[::2]


# The tables -------------------------------------------------------------------------------------


def _table(function: Callable[[], _Source]) -> Callable[[], _Source]:
    SOURCES[function.__name__] = function
    return function


def _frame(X, columns=None) -> pd.DataFrame:
    columns = [f"x{i}" for i in range(X.shape[1])] if columns is None else columns
    return pd.DataFrame(np.asarray(X, dtype=float), columns=list(columns))


def _ranges(frame: pd.DataFrame, low, high, logs=()) -> dict:
    """Schema of numbers; a column with gaps is declared to have them."""
    gaps = frame.isna().any()
    ends = zip(frame, low, high, strict=True)
    return {
        name: Range(float(a), float(b), log=i in logs, missing=bool(gaps[name]))
        for i, (name, a, b) in enumerate(ends)
    }


def _outwards(frame: pd.DataFrame, logs=()) -> dict:
    """Ranges of the file rounded outwards: these stand for documented ones."""
    low, high = _rounded(frame.min().to_numpy(), frame.max().to_numpy())
    return _ranges(frame, low, high, logs)


def _rounded(low, high):
    width = np.subtract(high, low)
    step = 10.0 ** np.floor(np.log10(np.where(width > 0, width, 1))) / 10
    return np.floor(low / step - 1e-9) * step, np.ceil(high / step + 1e-9) * step


_ADULT = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")


@_table
def adult() -> _Source:
    """Census incomes: five numbers and eight categories, of which native-country has 42 values."""
    numbers, places = _data.needed("adult", ("num_names", "cat_names"))
    columns = [list(numbers).index(name) for name in _ADULT]
    values = _data.needed("adult", tuple(f"levels_{name}" for name in places))
    parts = [
        _data.needed("adult", (f"{part}_num", f"{part}_cat", f"{part}_y"))
        for part in ("train", "test")
    ]
    X, codes, y = (np.concatenate(two) for two in zip(*parts, strict=True))
    frame = _frame(X[:, columns], _ADULT)
    schema = _ranges(frame, (17, 1, 0, 0, 1), (90, 16, 99_999, 4356, 99), (2, 3))
    for name, known, of_rows in zip(places, values, codes.T, strict=True):
        frame[name] = known[of_rows]
        schema[str(name)] = Categories([str(value) for value in known])
    rng, n = np.random.default_rng(3), len(parts[0][2])
    train, test = rng.permutation(n), n + rng.permutation(len(y) - n)[:6000]
    return _Source(frame, schema, y, 0.5, None, rows=(train, test))


@_table
def cancer() -> _Source:
    """Cells of breast tissue, 30 measurements; areas and errors of the outline have long tails."""
    X, y = load_breast_cancer(return_X_y=True)
    frame = _frame(X)
    return _Source(frame, _outwards(frame, (3, 10, 11, 12, 13, 23)), y, 0.5, None)


_WINE_LOW = (3, 0, 0, 0.5, 0.005, 1, 5, 0.985, 2.7, 0.2, 8)
_WINE_HIGH = (16, 1.6, 1.7, 66, 0.62, 290, 440, 1.04, 4.1, 2, 15)


@_table
def wine() -> _Source:
    """Eleven measurements and the colour of a wine; the score is 0 to 10, good from 6 on."""
    X, white, y = _data.needed("wine_quality", ("x", "is_white", "y"))
    frame = _frame(X)
    schema = _ranges(frame, _WINE_LOW, _WINE_HIGH, (3, 4, 5, 6, 9))
    frame["colour"] = np.where(white > 0, "white", "red")
    return _Source(frame, schema | {"colour": Categories(["red", "white"])}, y, 5, (0, 10))


_HOUSES_LOW = (-125, 32, 0, 1, 1, 1, 1, 0)
_HOUSES_HIGH = (-114, 42.5, 52, 40_000, 6_500, 36_000, 6_500, 15.01)


@_table
def california() -> _Source:
    """Blocks of houses, values in thousands; the number of bedrooms is missing here and there."""
    X, near, kinds, y = _data.needed("california_housing", ("x", "ocean", "ocean_names", "y"))
    frame = _frame(X)
    schema = _ranges(frame, _HOUSES_LOW, _HOUSES_HIGH, (3, 4, 5, 6))
    frame["ocean"] = kinds[near]
    schema["ocean"] = Categories([str(kind) for kind in kinds])
    return _Source(frame, schema, y / 1000.0, 180, (0, 500))


def _uci(name, above, target=None, logs=(), columns=None) -> _Source:
    X, y = _data.needed("uci_regression", (f"{name}_x", f"{name}_y"))
    X, y = X.astype(float), y.astype(float)
    rows = np.random.default_rng(5).permutation(len(y))[:18_000]
    frame = _frame(X if columns is None else X[:, columns])
    schema = _outwards(frame.iloc[rows], logs)
    if target is None:
        target = tuple(float(end) for end in _rounded(y.min(), y.max()))
    return _Source(frame.iloc[rows].reset_index(drop=True), schema, y[rows], above, target)


@_table
def protein() -> _Source:
    """Nine measurements of a protein's folding; the distance is 0 to 21."""
    return _uci("protein", 5.0, (0, 21), (6,))


@_table
def power() -> _Source:
    """A power plant: temperature, vacuum, pressure and humidity."""
    return _uci("power_plant", 450, (420, 500))


@_table
def kin8nm() -> _Source:
    """Eight joint angles of an arm, of which only products tell how far it reaches."""
    return _uci("kin8nm", 0.7, (0, 1.5))


@_table
def bike() -> _Source:
    """Calendar and weather; hour, month and weather are numbers here, less their means."""
    return _uci("bike", 0.4, columns=[0, 1, 2, 3, *range(6, 15)])


@_table
def pol() -> _Source:
    """Telecommunication: 26 counts, most of them zero, and a percentage, less their means."""
    return _uci("pol", 0)


@_table
def elevators() -> _Source:
    """Control of an aircraft: columns of very different scales, less their means."""
    return _uci("elevators", 0)


@_table
def kegg() -> _Source:
    """Metabolic networks: tails are heavy, and one column is constant."""
    return _uci("keggundirected", 0)


@_table
def parkinson() -> _Source:
    """Age, sex and voice of 42 people, 101 to 168 recordings of each; the score is 0 to 60."""
    X, y, people = _data.needed("parkinsons_telemonitoring", ("x", "total_updrs", "subject"))
    frame = _frame(np.delete(X, 1, 1))
    schema = _outwards(frame, range(2, 14))
    frame["sex"] = np.where(X[:, 1] > 0, "female", "male")
    schema["sex"] = Categories(["male", "female"])
    return _Source(frame, schema, y, 28, (0, 60), groups=people)


@_table
def school() -> _Source:
    """Pupils of 139 schools: two percentages and 25 marks of yes or no; the score is 0 to 70."""
    X, y, schools = _data.needed("school", ("x", "y", "task"))
    X, shares = X[:, :27].astype(float), [3, 4]
    frame = _frame(X[:, shares])
    schema = _ranges(frame, (0, 0), (100, 45))
    for i in (i for i in range(27) if i not in shares):
        frame[f"c{i}"] = X[:, i].astype(int)
        schema[f"c{i}"] = Categories([0, 1])
    return _Source(frame, schema, y, 20, (0, 70), groups=schools)


_DIABETES_LOW = (18, 1, 15, 50, 80, 30, 10, 1, 3, 50)
_DIABETES_HIGH = (80, 2, 45, 140, 320, 260, 110, 10, 6.5, 130)


@_table
def diabetes() -> _Source:
    """Age, sex and eight clinical measurements of 442 patients; the target is 0 to 350."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    frame = _frame(X)
    return _Source(frame, _ranges(frame, _DIABETES_LOW, _DIABETES_HIGH), y, 140, (0, 350))


def main() -> None:
    for name in sys.argv[1:] or sorted(SOURCES):
        for task in TASKS:
            if name in names(task):
                table = load(name, task)
                part = "choosing" if name in choosing() else "shown"
                print(f"{name:<11} {task:<8} {table.X.shape} {table.X_test.shape} {part}")
                print("   ", round(float(np.mean(table.y)), 3), table.target)


if __name__ == "__main__":
    main()
