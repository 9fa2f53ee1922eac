"""Private models of raw tables by ``tabular_pipeline``, beside what else there is.

Thirteen tables with two classes (area under the ROC curve, AUC) and twelve with values (R2), with
1,000 rows and with all of them (at most 15,000, Adult 32,561), at delta 1e-5. Seeds draw the 1,000
rows and the noise. Of Parkinson's and schools they also draw the people or schools to test with, a
quarter of all, whom training has not seen: four seeds test each once. Of other tables the test rows
are the same for all seeds. Scores are in points: 100 times AUC or R2. Sections:

- ``cells``: every table, number of rows, method and epsilon. "recipe" is what had to be written
  before: public ranges by ``BoundedScaler``, one column for each category, and a constant in the
  place of what is missing. Predictions of all private regressors are cut to the public range of the
  target. Linear models without privacy are scikit-learn's behind the recipe, and boosting is
  scikit-learn's as it comes.
- ``peer``: DP-EBM of interpret, and the forest of diffprivlib with classes, with the same public
  ranges and ``--peer-seeds`` seeds. ``--peer-python`` and ``--forest-python`` name the interpreters
  of their environments; rows of one that is not named are taken over from ``--out``.
- ``means``: over tables, with Parkinson's and without it, and whether those without it are, for
  this package, at least the ones of a first study (AIMS) less 0.3 points. With 42 people no model
  tells anything of new ones, so that Parkinson's adds chance to a mean. It is not in ``halves``.
- ``floors``: whether each cell of this package is at least what that study found it to be, less one
  standard deviation. Those of schools are of this package.
- ``halves``: the difference to the recipe, apart for the half of the tables on which constants were
  chosen (on rows to train with), and for the other half.
- ``cases``: many categories, many classes, the relation that replaces a row, and persons.
- ``time``: nanoseconds of a cell of the encoding, beside writing as many numbers.
- ``columns``: a few tables with 20, 60 and 150 columns more that tell nothing: uniform ones, and
  shuffled copies of their own. With the default models of ``tabular_pipeline``. It is long, and
  runs only where it is named.
- ``wide``: the same tables, with ranges that are 2, 5, 10 and 30 times as wide. It also runs only
  where it is named.

A run that was ended goes on where it stopped, if ``--out`` is the same file.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_tables.py
       [cells peer means floors halves cases time columns wide] [--seeds 4] [--only wine ...]
       [--quick] [--useless 0 20 60 150] [--rows 1000 3000 10000] [--epsilons 0.3 1 3]
       [--peer-seeds 3] [--peer-python EBM/bin/python] [--forest-python FOREST/bin/python]
       [--out benchmarks/results/tables.json]
"""

import json
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import _raw_tables
import numpy as np
import pandas as pd
from _run import in_turns, judged, run, spread, with_threads
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from dpsubspace import (
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDFClassifier,
    DPSGDRegressor,
    Schema,
    tabular_pipeline,
)
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.schema import read_table

EPSILONS, DELTA = (0.3, 1.0, 3.0), 1e-5
SIZES = {"1000": 1000, "all": None}
QUICK = ("diabetes", "wine")

# Means over tables without Parkinson's, in points, at epsilon 0.3 / 1 / 3. The first study split
# Parkinson's and schools by row. From the sum of its scores over tables, what this package has on
# these two with such a split was taken, and for schools what it has on new ones (four splits of
# both kinds, DPSGDFClassifier and DPSGDRegressor) was added.
AIMS = {
    ("classes", "1000"): (83.0, 86.2, 87.4),
    ("classes", "all"): (88.7, 90.4, 90.9),
    ("values", "1000"): (34.5, 46.5, 53.8),
    ("values", "all"): (55.8, 63.4, 65.2),
}
LESS = 0.3
CHANCE = "parkinson"  # with 42 people no model tells anything of new ones
OURS = {"classes": ("DPSGDFClassifier",), "values": ("DPLinearRegression", "DPSGDRegressor")}


# Methods ----------------------------------------------------------------------------------------


def budget(epsilon, seed):
    return {"epsilon": epsilon, "delta": DELTA, "random_state": seed}


def recipe(table):
    """Columns as rows of numbers by public ranges, with a constant for what is missing."""
    schema = Schema(table.schema)
    middles = {name: (schema[name].low + schema[name].high) / 2 for name in schema.numbers}
    low = [schema[name].low for name in schema.numbers]
    high = [schema[name].high for name in schema.numbers]
    values = [np.array(schema[name].values) for name in schema.categories]
    parts = [(BoundedScaler(bounds=(low, high)), list(schema.numbers))]
    if values:
        first = pd.DataFrame(
            {name: [each[0]] for name, each in zip(schema.categories, values, strict=True)}
        )
        encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
        parts += [(FrozenEstimator(encoder.fit(first)), list(schema.categories))]
    map_of = make_column_transformer(*parts, sparse_threshold=0)
    return map_of.fit(table.X.fillna(middles)), middles


def behind_recipe(model, table):
    to_rows, middles = recipe(table)
    X, X_test = (to_rows.transform(frame.fillna(middles)) for frame in (table.X, table.X_test))
    return model.fit(X, table.y), X_test


def target_bounds(table):
    return (table.target.low, table.target.high)


def ours(model, table, epsilon):
    whole = tabular_pipeline(model, table.schema, epsilon=epsilon, target=table.target)
    return whole.fit(table.X, table.y), table.X_test


def classifier(table, epsilon, seed):
    return ours(DPSGDFClassifier(**budget(epsilon, seed)), table, epsilon)


def classifier_recipe(table, epsilon, seed):
    return behind_recipe(DPSGDFClassifier(**budget(epsilon, seed)), table)


def linear_regression(table, epsilon, seed):
    return ours(DPLinearRegression(**budget(epsilon, seed)), table, epsilon)


def regressor(table, epsilon, seed):
    return ours(DPSGDRegressor(**budget(epsilon, seed)), table, epsilon)


def linear_recipe(table, epsilon, seed):
    schema = Schema(table.schema)
    most = np.full(len(schema.numbers), 1 / np.sqrt(len(schema.numbers)))
    ones = np.ones(sum(len(schema[name].values) for name in schema.categories))
    bounds = {"bounds": (np.r_[-most, 0 * ones], np.r_[most, ones])}
    bounds |= {"target_bounds": target_bounds(table)}
    return behind_recipe(DPLinearRegression(**budget(epsilon, seed), **bounds), table)


def regressor_recipe(table, epsilon, seed):
    bounds = {"data_norm": rows_bound(table), "target_bounds": target_bounds(table)}
    return behind_recipe(DPSGDRegressor(**budget(epsilon, seed), **bounds), table)


def rows_bound(table):
    """Largest norm of a row behind the recipe: 1 for all numbers, and 1 for each category."""
    return float(np.sqrt(1 + len(Schema(table.schema).categories)))


def not_private(table, epsilon, seed):
    model = LogisticRegression(max_iter=2000) if table.target is None else Ridge()
    return behind_recipe(make_pipeline(StandardScaler(), model), table)


def boosting(table, epsilon, seed):
    model = (
        HistGradientBoostingClassifier if table.target is None else HistGradientBoostingRegressor
    )
    schema = Schema(table.schema)
    names = list(schema.categories)
    codes = OrdinalEncoder(categories=[np.array(schema[name].values) for name in names])
    to_rows = make_column_transformer((codes, names), remainder="passthrough")
    places = list(range(len(names)))
    whole = make_pipeline(to_rows, model(random_state=seed, categorical_features=places or None))
    return whole.fit(table.X, table.y), table.X_test


@dataclass(frozen=True)
class Method:
    """What fits a table and gives a model with the rows that it is to be tested on."""

    fit: object
    private: bool = True


METHODS = {
    "classes": {
        "DPSGDFClassifier": Method(classifier),
        "recipe, DPSGDFClassifier": Method(classifier_recipe),
        "linear, not private": Method(not_private, private=False),
        "boosting, not private": Method(boosting, private=False),
    },
    "values": {
        "DPLinearRegression": Method(linear_regression),
        "DPSGDRegressor": Method(regressor),
        "recipe, DPLinearRegression": Method(linear_recipe),
        "recipe, DPSGDRegressor": Method(regressor_recipe),
        "linear, not private": Method(not_private, private=False),
        "boosting, not private": Method(boosting, private=False),
    },
}
RECIPE = {
    "DPSGDFClassifier": "recipe, DPSGDFClassifier",
    "DPLinearRegression": "recipe, DPLinearRegression",
    "DPSGDRegressor": "recipe, DPSGDRegressor",
}


def points(found, y, task):
    """AUC or R2, times 100."""
    return 100 * float(roc_auc_score(y, found) if task == "classes" else r2_score(y, found))


def score(method, table, epsilon, seed, task):
    model, X_test = method.fit(table, epsilon, seed)
    if task == "values":
        found = model.predict(X_test)
        found = np.clip(found, *target_bounds(table)) if method.private else found
    elif hasattr(model, "decision_function"):
        found = model.decision_function(X_test)
    else:
        found = model.predict_proba(X_test)[:, 1]
    return points(found, table.y_test, task)


# Cells ------------------------------------------------------------------------------------------


def places(args):
    """Task, table and size of every group of cells."""
    for task in _raw_tables.TASKS:
        for name in _raw_tables.names(task):
            for size, rows in SIZES.items():
                enough = rows is None or len(drawn(name, task, None, 0).y) >= rows
                if name in (args.only or (QUICK if args.quick else [name])) and enough:
                    yield task, name, size


def drawn(name, task, rows, seed):
    """The table as a seed splits it, with as many rows to train with (all of them for None)."""
    return _raw_tables.few(_raw_tables.load(name, task, seed), rows, seed)


def row_of(task, name, size, method, epsilon, scores):
    found = {"kind": task, "data": name, "n": size, "method": method, "epsilon": epsilon}
    found |= {"tested": "groups" if _raw_tables.grouped(name) else "rows"}
    return found | spread("points", scores) | {"scores": [round(each, 3) for each in scores]}


def key(row):
    return tuple(row[name] for name in ("kind", "data", "n", "method", "epsilon"))


@cache
def known(path):
    """Rows of an earlier run, by what they are of."""
    if path is None or not path.exists():
        return {}
    sections = json.loads(path.read_text())["results"]
    rows = [row for part in ("cells", "peer") for row in sections.get(part, ())]
    grouped = _raw_tables.grouped  # an older report tested these with other rows of the same people
    return {key(row): row for row in rows if row.get("tested") or not grouped(row["data"])}


def cells(args):
    """Rows of all cells; those that are there with as many seeds are taken over."""
    for task, name, size in places(args):
        for title, method in METHODS[task].items():
            differ = method.private or size == "1000" or _raw_tables.grouped(name)
            seeds = args.seeds if differ else args.seeds[:1]  # or all would give the same
            for epsilon in args.epsilons if method.private else [None]:
                row = known(args.out).get((task, name, size, title, epsilon))
                if row is None or row["seeds"] < len(seeds):
                    scores = []
                    for seed in seeds:
                        table = drawn(name, task, SIZES[size], seed)
                        scores.append(score(method, table, epsilon, seed, task))
                    row = row_of(task, name, size, title, epsilon, scores)
                yield row


# Peers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A model of another package, in an environment of its own."""

    package: str
    python: str  # the argument that names the interpreter
    tasks: tuple[str, ...] = _raw_tables.TASKS
    trees: int | None = None  # where it is not the default


FOREST = "diffprivlib", "forest_python", ("classes",)
PEERS = {
    "DP-EBM": Peer("interpret-core", "peer_python"),
    "diffprivlib, forest": Peer(*FOREST),
    "diffprivlib, forest of 100 trees": Peer(*FOREST, trees=100),
}


def peer(args):
    """The same of the models of other packages, from their own environments."""
    for title, model in PEERS.items():
        python = getattr(args, model.python)
        if python:
            yield from fits_of(args, title, model, python)
        else:
            yield from (row for row in known(args.out).values() if row["method"] == title)


def fits_of(args, title, model, python):
    """Rows of one peer; those that are there with as many seeds are taken over."""
    seeds = args.seeds[: args.peer_seeds]
    with (
        tempfile.TemporaryDirectory() as folder,
        peer_process(python, model.package, args.threads) as process,
    ):
        version = process.stdout.readline().strip()
        for task, name, size in places(args):
            for epsilon in args.epsilons if task in model.tasks else ():
                row = known(args.out).get((task, name, size, title, epsilon))
                if row is None or row["seeds"] < len(seeds):
                    scores = []
                    for seed in seeds:
                        table = drawn(name, task, SIZES[size], seed)
                        job = {"task": task, "epsilon": epsilon, "delta": DELTA, "seed": seed}
                        job |= {"trees": model.trees}
                        scores.append(of_peer(process, Path(folder), table, job))
                    row = row_of(task, name, size, title, epsilon, scores)
                    row |= {"version": f"{model.package} {version}"}
                yield row


def peer_process(python, package, threads):
    script, pipes = Path(__file__).with_name("peer_tables.py"), {"stdin": subprocess.PIPE}
    pipes |= {"stdout": subprocess.PIPE, "text": True, "env": with_threads(threads)}
    return subprocess.Popen([str(python), str(script), package], **pipes)


def of_peer(process, folder, table, job):
    """Score of one fit of a peer, whose script reads arrays and writes predictions."""
    given, result = folder / "given.npz", folder / "found.npy"
    np.savez(given, **arrays(table))
    process.stdin.write(json.dumps(job | {"given": str(given), "found": str(result)}) + "\n")
    process.stdin.flush()
    if process.stdout.readline() != "done\n":
        raise RuntimeError("peer_tables.py has ended.")
    return points(cut(np.load(result), table), table.y_test, job["task"])


def arrays(table):
    """What peers are given: numbers and codes of categories, public ranges, and targets."""
    schema = Schema(table.schema)
    parts = {"values": np.array([len(schema[name].values) for name in schema.categories], int)}
    for part, frame in (("train", table.X), ("test", table.X_test)):
        rows = read_table(frame, schema)
        parts |= {f"{part}_numbers": rows.numbers, f"{part}_codes": rows.codes}
    low, high = np.array([(schema[a].low, schema[a].high) for a in schema.numbers]).T
    target = (0, 1) if table.target is None else target_bounds(table)
    return parts | {"y": table.y, "low": low, "high": high, "target": np.array(target)}


def cut(found, table):
    """Predictions within the public range of the target, if it has one."""
    return found if table.target is None else np.clip(found, *target_bounds(table))


# What they come to ------------------------------------------------------------------------------


def by_place(args):
    """Scores of every cell by task, size, method and epsilon, and then by table."""
    found = {}
    for row in [*args.results.get("cells", ()), *args.results.get("peer", ())]:
        place = (row["kind"], row["n"], row["method"], row["epsilon"])
        found.setdefault(place, {})[row["data"]] = row["scores"]
    return found


def means(args):
    """Means over tables; their deviation is that of means by seed."""
    for (task, size, method, epsilon), tables in by_place(args).items():
        row = {"kind": task, "n": size, "method": method, "epsilon": epsilon}
        row |= {"tables": len(tables)} | mean_of(tables)
        others = {name: scores for name, scores in tables.items() if name != CHANCE}
        if others:
            found = mean_of(others)
            row |= {f"{a}, without Parkinson's": found[a] for a in ("points", "points_std")}
        if method in OURS[task] and not args.only and not args.quick:
            aim = AIMS[task, size][EPSILONS.index(epsilon)]
            row |= {"aim": aim} | judged(found["points"] >= aim - LESS)
        yield row


def mean_of(tables):
    """Mean over tables, with the deviation over seeds that all of them have."""
    fewest = min(map(len, tables.values()))
    found = spread("points", np.mean([scores[:fewest] for scores in tables.values()], axis=0))
    return found | {"points": round(float(np.mean([np.mean(a) for a in tables.values()])), 2)}


# Means less a standard deviation of the first study, at epsilon 0.3 / 1 / 3: of AUC with 1,000
# rows and with all, and of R2 likewise. It says None where there are not so many rows. Those of
# schools are of this package on four splits of schools, of two regressors the lower one.
# Parkinson's has none: AUC of new people is below 50 and R2 below 0 without privacy too.
FLOORS = {
    "adult": ("84.5 87.5 88.5", "90.5 91 91", None, None),
    "cancer": (None, "97 98 98", None, None),
    "diabetes": (None, "82.5 86.5 86.5", None, "34 45.5 48.5"),
    "wine": ("74.5 78.5 80", "79.5 81 81.5", "0 25.5 28", "28.5 30.5 31.5"),
    "kin8nm": ("76.5 78 79.5", "80 88 89.5", "22.5 35.5 37", "39 56 60"),
    "california": ("88.5 91.5 92.5", "93.5 94 94.5", "36 57.5 64", "66 69.5 71.5"),
    "bike": ("88.5 92 93.5", "94.5 95.5 96.5", "43 59.5 69", "73.5 79.5 82.5"),
    "school": ("71.5 74.5 75.5", "76.5 77 77", "12.5 24.5 27", "30 31 31"),
    "power": ("97.5 98 98.5", "98.5 98.5 98.5", "84 90 92", "92 93.5 93.5"),
    "parkinson": (None, None, None, None),
    "protein": ("73.5 76.5 79", "80.5 82.5 83.5", "5.5 15.5 21", "26.5 31.5 34"),
    "elevators": ("78.5 80.5 83", "86.5 89 90", "32 44 53.5", "59.5 74 77.5"),
    "pol": ("84.5 94 96.5", "97.5 98 98.5", "-inf 2 34.5", "48.5 76.5 80"),
    "kegg": (None, None, "78 91 96", "96.5 97 98"),
}


def floors(args):
    """Whether every cell of this package is above its floor."""
    scores = by_place(args)
    for i, (task, size) in enumerate(AIMS):
        for method in OURS[task]:
            for name, floor in FLOORS.items():
                for epsilon, least in zip(EPSILONS, (floor[i] or "").split(), strict=False):
                    found = scores.get((task, size, method, epsilon), {}).get(name)
                    if found:
                        mean = round(float(np.mean(found)), 2)
                        row = {"kind": task, "data": name, "n": size, "method": method}
                        row |= {"epsilon": epsilon, "points": mean, "floor": float(least)}
                        yield row | judged(mean >= float(least))


def halves(args):
    """Gain over the recipe on the tables that constants were chosen on, and on the others."""
    scores = by_place(args)
    for (task, size, method, epsilon), tables in scores.items():
        if method in RECIPE:
            of_recipe = scores[task, size, RECIPE[method], epsilon]
            gains = {a: np.mean(tables[a]) - np.mean(of_recipe[a]) for a in tables if a != CHANCE}
            for part, chosen in (("choosing", True), ("shown", False)):
                some = {
                    a: gain for a, gain in gains.items() if (a in _raw_tables.choosing()) == chosen
                }
                if some:
                    row = {"kind": task, "n": size, "method": method, "epsilon": epsilon}
                    row |= {"way": part, "tables": len(some)}
                    row |= {"gain": round(float(np.mean([*some.values()])), 2)}
                    worst = min(some, key=some.get)
                    yield row | {"least": round(float(some[worst]), 2), "least_on": worst}


# What else there is -----------------------------------------------------------------------------


def cases(args):
    """Many categories, many classes, another relation and persons, on a few tables."""
    for title, task, base, changed in CASES:
        for epsilon in args.epsilons:
            row = {"way": title, "kind": task, "epsilon": epsilon}
            for name, make in (("without", base), ("with", changed)):
                found = [make(epsilon, seed) for seed in args.seeds]
                row |= {name: round(float(np.mean(found)), 2)}
                row |= {f"{name}_std": round(float(np.std(found, ddof=min(1, len(found) - 1))), 2)}
            yield row | {"seeds": len(args.seeds)}


def fitted(table, epsilon, seed, task, model=None, *, groups=None, **options):
    """Score of a pipeline."""
    default = DPSGDFClassifier if task == "classes" else DPLinearRegression
    whole = tabular_pipeline(
        (model or default)(**budget(epsilon, seed), **options),
        table.schema,
        epsilon=epsilon,
        target=table.target,
    )
    whole.fit(table.X, table.y, groups=groups)
    if task == "values":
        return points(whole.predict(table.X_test), table.y_test, task)
    if len(np.unique(table.y)) > 2:
        return 100 * whole.score(table.X_test, table.y_test)
    return points(whole.decision_function(table.X_test), table.y_test, task)


def plain(name, task, rows=None, **options):
    def make(epsilon, seed):
        return fitted(drawn(name, task, rows, seed), epsilon, seed, task, **options)

    return make


def crossed(first, second, rows=None):
    """Adult with one more column, of pairs of two categories."""

    def make(epsilon, seed):
        table = _raw_tables.load("adult", "classes", seed)
        values = [
            f"{a}, {b}" for a in table.schema[first].values for b in table.schema[second].values
        ]
        X, X_test = (
            frame.assign(both=frame[first].astype(str) + ", " + frame[second].astype(str))
            for frame in (table.X, table.X_test)
        )
        table = replace(
            table, X=X, X_test=X_test, schema=table.schema | {"both": Categories(values)}
        )
        return fitted(_raw_tables.few(table, rows, seed), epsilon, seed, "classes")

    return make


def irrelevant(number, rows=None):
    """Adult with one more column, of so many values that tell nothing."""

    def make(epsilon, seed):
        table = _raw_tables.load("adult", "classes", seed)
        rng = np.random.default_rng(seed)
        X, X_test = (
            frame.assign(code=rng.integers(number, size=len(frame)))
            for frame in (table.X, table.X_test)
        )
        schema = table.schema | {"code": Categories(list(range(number)))}
        table = replace(table, X=X, X_test=X_test, schema=schema)
        return fitted(_raw_tables.few(table, rows, seed), epsilon, seed, "classes")

    return make


def classes_of(name, number, of_recipe):
    """Accuracy where the class of a row is one of `number` equal parts of the range of values."""

    def make(epsilon, seed):
        table = _raw_tables.load(name, "values", seed)
        edges = np.linspace(table.target.low, table.target.high, number + 1)[1:-1]
        y, y_test = np.digitize(table.y, edges), np.digitize(table.y_test, edges)
        table = replace(table, y=y, y_test=y_test, target=None)
        if of_recipe:
            model, X_test = behind_recipe(DPSGDFClassifier(**budget(epsilon, seed)), table)
            return 100 * model.score(X_test, y_test)
        return fitted(table, epsilon, seed, "classes")

    return make


def persons(name, task):
    def make(epsilon, seed):
        table = _raw_tables.load(name, task, seed)
        return fitted(table, epsilon, seed, task, groups=table.groups)

    return make


_REPLACE = {"neighboring_relation": "replace_one"}
CASES = (
    *(
        (f"adult, {rows} rows: {title}", "classes", plain("adult", "classes", rows), changed(rows))
        for rows in (1000, 10_000)
        for title, changed in {
            "and a column of 1,000 values that tell nothing": partial(irrelevant, 1000),
            "and 630 pairs of country and occupation": partial(
                crossed, "native-country", "occupation"
            ),
            "and 240 pairs of education and occupation": partial(
                crossed, "education", "occupation"
            ),
        }.items()
    ),
    *(
        (
            f"{name}, accuracy of ten classes: recipe, pipeline",
            "classes",
            classes_of(name, 10, True),
            classes_of(name, 10, False),
        )
        for name in ("california", "bike")
    ),
    *(
        (f"{name}: zero_out, replace_one", task, plain(name, task), plain(name, task, **_REPLACE))
        for name, task in (
            ("adult", "classes"),
            ("diabetes", "classes"),
            ("california", "values"),
            ("diabetes", "values"),
        )
    ),
    *(
        (f"{name}: rows, persons", task, plain(name, task), persons(name, task))
        for name in ("parkinson", "school")
        for task in _raw_tables.TASKS
    ),
)


# Columns that tell nothing ----------------------------------------------------------------------

FACTORS = (2, 5, 10, 30)
COLUMNS = {"classes": ("adult", "california", "bike"), "values": ("california", "bike", "power")}


def columns(args):
    """Tables with many columns beside theirs; sizes that a table does not have are left out."""
    for task, tables in COLUMNS.items():
        for name in tables[: 1 if args.quick else None]:
            for rows in args.rows[: 1 if args.quick else None]:
                enough = rows <= len(drawn(name, task, None, 0).y)
                for useless in args.useless if enough and name in (args.only or [name]) else ():
                    for kind in _raw_tables.USELESS if useless else ("none",):
                        for epsilon in args.epsilons:
                            row = {"kind": task, "data": name, "n": rows, "useless": useless}
                            row |= {"columns": kind, "epsilon": epsilon}
                            scores = [
                                widened(name, task, rows, useless, kind, epsilon, seed)
                                for seed in args.seeds
                            ]
                            yield row | spread("points", scores)


def widened(name, task, rows, useless, kind, epsilon, seed):
    """Score of the default model of a pipeline, with columns that tell nothing."""
    table = drawn(name, task, rows, seed)
    if useless:
        table = _raw_tables.with_useless(table, useless, kind, seed)
    return fitted(table, epsilon, seed, task)


def wide(args):
    """The same tables with ranges that are too wide."""
    for task, tables in COLUMNS.items():
        for name in tables:
            for rows in args.rows:
                enough = rows <= len(drawn(name, task, None, 0).y)
                for factor in FACTORS if enough and name in (args.only or [name]) else ():
                    for epsilon in args.epsilons:
                        row = {"kind": task, "data": name, "n": rows, "times_as_wide": factor}
                        scores = []
                        for seed in args.seeds:
                            table = drawn(name, task, rows, seed)
                            table = _raw_tables.with_wide_ranges(table, factor)
                            scores.append(fitted(table, epsilon, seed, task))
                        yield row | {"epsilon": epsilon} | spread("points", scores)


# Time -------------------------------------------------------------------------------------------


def time(args):
    """Nanoseconds of a number that is written, by the encoding and by filling an array."""
    wide = Schema({f"x{i}": (0.0, 1.0) for i in range(10)})
    many = Schema({f"x{i}": [str(j) for j in range(50)] for i in range(10)})
    n = 20_000 if args.quick else 200_000
    numbers, codes = np.random.default_rng(0).random((n, 10)), np.arange(10 * n).reshape(n, 10) % 50
    none = np.zeros((n, 0))
    for title, schema, table, ratio in (
        ("10 numbers, 8 cosines", wide, (numbers, none.astype(int)), 100.0),
        ("10 numbers, 16 cosines and pairs", wide, (numbers, none.astype(int)), 5000.0),
        ("10 categories of 50 values", many, (none, codes), 100.0),
    ):
        encoding, rows = encoding_for(schema, ratio), _Rows(*table)
        shape = (n, encoding.n_features)

        def write(shape=shape):
            np.empty(shape, dtype=np.float32).fill(1.0)

        clock, _ = in_turns([lambda e=encoding, r=rows: e(r), write], args.repeats)
        each = np.median(clock, axis=0) / np.prod(shape) * 1e9
        row = {"way": title, "rows": n, "columns": shape[1], "encoding_ns": float(f"{each[0]:.3g}")}
        row |= {"writing_ns": float(f"{each[1]:.3g}")}
        yield row | {"ratio_median": round(float(np.median(clock[:, 0] / clock[:, 1])), 1)}


@dataclass(frozen=True)
class _Rows:
    """Rows as a schema has read them."""

    numbers: np.ndarray
    codes: np.ndarray


SECTIONS = {
    "cells": cells,
    "peer": peer,
    "means": means,
    "floors": floors,
    "halves": halves,
    "cases": cases,
    "time": time,
    "columns": columns,
    "wide": wide,
}

if __name__ == "__main__":
    options = {"only": [], "quick": False, "seeds": 4, "epsilons": list(EPSILONS), "repeats": 5}
    options |= {"peer_python": Path, "forest_python": Path, "peer_seeds": 3}
    options |= {"useless": [0, 20, 60, 150], "rows": [1000, 3000, 10_000]}
    run(__doc__, SECTIONS, options, ignored=(Warning,), left_out=("columns", "wide"))
