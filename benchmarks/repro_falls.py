"""Do more budget or more rows make a worse model of a raw table? Curves over both, and their falls.

Tables are those of ``_raw_tables.py``, behind `tabular_pipeline` with its default settings. A cell
is the mean over seeds of 100 times R2 or AUC on test rows, where an R2 below 0 counts as 0. A seed
draws the rows, the noise, and the people or schools to test with; all epsilons share it. Sizes that
a table does not have are left out.

A *fall* along epsilon is the largest difference of a cell and a later one in its row, and a fall
along rows the same in its column. Beside it stands four times the standard error of that
difference. A fall of more than one point and of more than that is marked.

``plot`` fits nothing. It counts falls in reports of the other two, and draws the curves where
``--picture`` names a file. Of a table that two reports have, the one with more seeds counts.
Parkinson's is left out, since no model tells anything of new people.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_falls.py [values] [classes] [--seeds N]
       [--tables NAME ...] [--out FILE]
       python benchmarks/repro_falls.py plot [--reports FILE ...] [--picture docs/curves.svg]
       (by default the reports are all results/falls*.json)
"""

import json
import math
import re
from pathlib import Path

import _raw_tables
import _run
import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from dpsubspace import tabular_pipeline
from dpsubspace.exceptions import PrivacyWarning

EPSILONS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.6, 2.0, 3.0, 5.0)
SIZES = (1000, 2000, 4000, 8000, None)
LEAST = 1.0  # points
CHANCE = "parkinson"  # with 42 people no model tells anything of new ones


def score(table, task, epsilon, seed):
    """100 times the score of one fit on test rows."""
    kind = {"values": "regression", "classes": "classification"}[task]
    target = {"target": table.target} if task == "values" else {}
    model = tabular_pipeline(kind, table.schema, epsilon=epsilon, **target)
    model.set_params(random_state=seed).fit(table.X, table.y)
    if task == "values":
        return 100 * max(0.0, r2_score(table.y_test, model.predict(table.X_test)))
    return 100 * roc_auc_score(table.y_test, model.decision_function(table.X_test))


def sizes_of(table):
    """Numbers of rows that a table has more of, and then all of them."""
    return [n for n in SIZES if n is None or n < len(table.y)]


def fall(curve):
    """Largest fall of means along the first axis of (k, seeds), and its standard error."""
    worst = (0.0, 0.0)
    for i in range(len(curve)):
        for j in range(i + 1, len(curve)):
            lost = curve[i] - curve[j]
            error = lost.std(ddof=1) / math.sqrt(len(lost)) if len(lost) > 1 else math.inf
            worst = max(worst, (float(lost.mean()), float(error)))
    return worst


def told(lost, error):
    """A fall and what chance explains of it, as it is printed."""
    mark = "**" if lost > max(LEAST, 4 * error) else ""
    return f"{mark}{lost:.1f}{mark} ({4 * error:.1f})"


def curves(args, task):
    """A row for each table and size, and one for each table along its sizes."""
    for name in args.tables or _raw_tables.names(task):
        whole = _raw_tables.load(name, task)  # its size, which is nearly that of other splits
        found = {}
        for n in sizes_of(whole):
            splits = {seed: _raw_tables.load(name, task, seed) for seed in args.seeds}
            tables = {seed: _raw_tables.few(some, n, seed) for seed, some in splits.items()}
            found[n] = np.array(
                [[score(some, task, e, seed) for seed, some in tables.items()] for e in EPSILONS]
            )
            cells = dict(zip(map(str, EPSILONS), found[n].mean(axis=1).round(1), strict=True))
            yield {"table": name, "rows": n or len(whole.y), **cells, "fall": told(*fall(found[n]))}
        along = np.stack(list(found.values()))
        lost = {str(e): told(*fall(along[:, i])) for i, e in enumerate(EPSILONS)}
        yield {"table": name, "rows": "fall", **lost, "fall": ""}


def values(args):
    """Regression."""
    yield from curves(args, "values")


def classes(args):
    """Classification."""
    yield from curves(args, "classes")


# Reports ----------------------------------------------------------------------------------------


def stored(paths):
    """Cells of reports by task, table and number of rows, and the falls along these by table."""
    seeds, cells, along = {}, {}, {}
    for path in paths:
        report = json.loads(path.read_text())
        for task in _raw_tables.TASKS:
            rows = report["results"].get(task, [])
            for name in sorted({row["table"] for row in rows} - {CHANCE}):
                number = len(report["arguments"]["seeds"])
                if number > seeds.get((task, name), 0):
                    seeds[task, name] = number
                    own = {row["rows"]: row for row in rows if row["table"] == name}
                    along[task, name] = own.pop("fall", {})  # not there in a run that was ended
                    cells[task, name] = own
    return seeds, cells, along


def read(text):
    """Points of a fall, and four of its standard errors, as `told` writes them."""
    lost, errors = re.fullmatch(r"(.+) \((.+)\)", text.replace("*", "")).groups()
    return float(lost), float(errors)


def plot(args):
    """Falls in reports, and a picture of their curves."""
    import matplotlib

    folder = Path(__file__).with_name("results")
    seeds, cells, along = stored(map(Path, args.reports or sorted(folder.glob("falls*.json"))))
    for task in _raw_tables.TASKS:
        own = {name: rows for (of, name), rows in cells.items() if of == task}
        curves = {
            (f"{name}, {n:,} rows"): read(row["fall"])
            for name, rows in own.items()
            for n, row in rows.items()
        }
        yield counted(task, "epsilon", curves) | seeds_of(task, seeds)
        curves = {
            f"{name}, epsilon {epsilon}": read(along[task, name][str(epsilon)])
            for name, rows in own.items()
            for epsilon in EPSILONS
            if len(rows) > 1 and str(epsilon) in along[task, name]
        }
        yield counted(task, "rows", curves) | seeds_of(task, seeds)
    if args.picture:
        matplotlib.use("agg")
        draw(cells, args.picture)


def seeds_of(task, seeds):
    numbers = {number for (of, _), number in seeds.items() if of == task}
    return {"seeds": " or ".join(map(str, sorted(numbers)))}


def counted(task, along, falls):
    """How many curves there are along `along`, how many fall, and where they do most."""
    row = {"kind": task, "along": along, "curves": len(falls)}
    row |= {"above a point": sum(lost > LEAST for lost, _ in falls.values())}
    chance = {where: max(LEAST, errors) for where, (_, errors) in falls.items()}
    row |= {"and chance": sum(lost > chance[where] for where, (lost, _) in falls.items())}
    if falls:
        worst = max(falls, key=falls.get)
        row |= {"largest": falls[worst][0], "four errors": falls[worst][1], "where": worst}
    return row


# The picture ------------------------------------------------------------------------------------

SHOWN = (1000, 4000, None)
GREYS = {0.1: "0.65", 0.3: "0.5", 1.0: "0.3", 3.0: "0"}  # by epsilon
SCORES = {"classes": ("area under ROC curve x 100", 50), "values": ("R2 x 100", 0)}


def draw(cells, path):
    """Scores over epsilon at a few numbers of rows, and their means over rows."""
    import matplotlib.pyplot as plt

    names = sorted({name for _, name in cells})
    colours = {name: plt.get_cmap("tab20")(i) for i, name in enumerate(names)}
    shared = {"sharex": "col", "sharey": "row", "layout": "constrained"}
    figure, axes = plt.subplots(2, len(SHOWN) + 1, figsize=(11, 6.2), **shared)
    for row, (task, (label, least)) in zip(axes, SCORES.items(), strict=True):
        own = {name: sizes for (of, name), sizes in cells.items() if of == task}
        for ax, n in zip(row, SHOWN, strict=False):
            over_epsilon(ax, own, n, colours)
        over_rows(row[-1], own)
        for ax in row:
            ax.grid(alpha=0.3)
        row[0].set(ylabel=label, ylim=(least, 100))
    for ax in axes[-1, :-1]:
        ax.set_xlabel("epsilon")
    axes[-1, -1].set_xlabel("rows")
    lines = [plt.Line2D([], [], color=colours[name], label=name) for name in names]
    lines.append(plt.Line2D([], [], color="black", linewidth=2.5, label="mean"))
    figure.legend(handles=lines, loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    with plt.rc_context({"svg.hashsalt": "curves", "svg.fonttype": "path"}):  # the same bytes
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def curve(row):
    return [row[str(epsilon)] for epsilon in EPSILONS]


def over_epsilon(ax, tables, n, colours):
    """A thin line for each table with `n` rows (all for None), and their mean."""
    found = {name: max(rows) if n is None else n for name, rows in tables.items()}
    lines = {name: curve(tables[name][k]) for name, k in found.items() if k in tables[name]}
    for name, line in lines.items():
        ax.plot(EPSILONS, line, color=colours[name], linewidth=0.8)
    if lines:
        ax.plot(EPSILONS, np.mean([*lines.values()], axis=0), color="black", linewidth=2.5)
    size = "all" if n is None else f"{n:,}"
    ax.set_title(f"{size} rows, {len(lines)} tables", fontsize=9)
    ax.set_xscale("log")
    ticks = (0.1, 0.3, 1, 3)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)


def over_rows(ax, tables):
    """Means over the tables that have every number of rows."""
    whole = [rows for rows in tables.values() if len(rows) == len(SIZES)]
    places = range(len(SIZES))
    for epsilon, grey in GREYS.items() if whole else ():
        lines = [[rows[n][str(epsilon)] for n in sorted(rows)] for rows in whole]
        means = np.mean(lines, axis=0)
        ax.plot(places, means, "-o", color=grey, markersize=3)
        ax.text(-0.2, means[0], f"{epsilon:g}", ha="right", va="center", fontsize=7)
    ax.set_title(f"means of {len(whole)} tables, by epsilon", fontsize=9)
    ax.set_xlim(-0.8, len(SIZES) - 0.7)
    ax.set_xticks(places, ["all" if n is None else f"{n:,}" for n in SIZES], fontsize=8)


if __name__ == "__main__":
    _run.run(
        __doc__,
        {"values": values, "classes": classes, "plot": plot},
        {"seeds": 20, "tables": [], "reports": [], "picture": Path},
        ignored=[PrivacyWarning],
        left_out=("plot",),
    )
