"""How far are regressions of raw tables behind the best of six encodings? Their regret in R2.

At commit 9aa8e3e a table in front of `DPLinearRegression` had one of six encodings: polynomials of
degree 1, 2 or 4 of each number, 8 cosines, or 4 or 8 cosines and products of two numbers. The
number of rows and the budget said which. Today's encoding has no such steps. A cell is a table, a
number of rows and an epsilon; a score is 100 times R2 on test rows, where an R2 below 0 counts as
0. A seed draws the rows, the noise, and the schools to test with.

``rungs`` wants the package of that commit. It has the scores of each of the six encodings, and
those of the one that the package took by itself ("before"). Tables of more than 20 numbers had no
products there, and have four encodings here. ``now`` has the scores of the package of today.

``regret`` fits nothing and compares reports of these two. The encoding that is best on half of
the seeds is scored on the other half, and *regret* is its mean less that of the package of today on
the same seeds. Each half chooses once, so that a cell has two regrets. No user can choose like
that, since scores of private rows would have to be paid for.

usage: PYTHONPATH=CHECKOUT DPSUBSPACE_DATA=folder python benchmarks/repro_regret.py rungs
       DPSUBSPACE_DATA=folder python benchmarks/repro_regret.py now
       (both with [--seeds N] [--tables NAME ...] [--epsilons E ...] [--sizes N ...] [--out FILE],
       where 0 stands for all rows)
       python benchmarks/repro_regret.py [--reports FILE ...]
       (by default the reports are all results/regret*.json)
"""

import json
from contextlib import contextmanager
from pathlib import Path

import _raw_tables
import _run
import numpy as np
from sklearn.metrics import r2_score

from dpsubspace import DPLinearRegression, Range, tabular_pipeline
from dpsubspace._core.tables import encoding
from dpsubspace.exceptions import PrivacyWarning

LEFT_OUT = "parkinson"  # with 42 people no model tells anything of new ones
LEAST = 1.0  # points
FOLDER = Path(__file__).with_name("results")


def score(table, epsilon, seed):
    """100 times R2 of one fit on test rows, and at least 0."""
    model = tabular_pipeline(
        DPLinearRegression(), table.schema, epsilon=epsilon, target=table.target
    )
    model.set_params(random_state=seed).fit(table.X, table.y)
    return 100 * max(0.0, r2_score(table.y_test, model.predict(table.X_test)))


def tables(args):
    """Name, number of rows, and the table by the seed that draws it."""
    for name in args.tables or _raw_tables.names("values"):
        if name == LEFT_OUT:
            continue
        whole = len(_raw_tables.load(name, "values").y)
        for n in (n for n in args.sizes if n < whole):
            splits = {seed: _raw_tables.load(name, "values", seed) for seed in args.seeds}
            drawn = {seed: _raw_tables.few(some, n or None, seed) for seed, some in splits.items()}
            yield name, n or whole, drawn


def scores(drawn, epsilon):
    """Scores over seeds, as a report keeps them."""
    return " ".join(f"{score(table, epsilon, seed):.2f}" for seed, table in drawn.items())


# Fits -------------------------------------------------------------------------------------------


@contextmanager
def forced(rung):
    """The package of then, with one of its encodings wherever it fits."""
    ladder = encoding._BY_COLUMN
    encoding._BY_COLUMN = ((*rung[:3], 0, 0),)
    try:
        yield
    finally:
        encoding._BY_COLUMN = ladder


def rungs(args):
    """Scores of each encoding, and of the one that was chosen by the number of rows and budget."""
    if not hasattr(encoding, "_BY_COLUMN"):
        raise SystemExit("rungs needs PYTHONPATH to name a checkout of commit 9aa8e3e.")
    for name, n, drawn in tables(args):
        numbers = sum(
            isinstance(kind, Range) for kind in next(iter(drawn.values())).schema.values()
        )
        for epsilon in args.epsilons:
            row = {"table": name, "rows": n, "epsilon": epsilon}
            row["before"] = scores(drawn, epsilon)
            for rung in encoding._BY_COLUMN:
                curves, number, pairs, *_ = rung
                if not pairs or numbers <= encoding._COLUMNS_MOST:
                    with forced(rung):
                        found = scores(drawn, epsilon)
                    what = f"{number} cosines" if curves == "cosines" else f"degree {number}"
                    row[what + " and pairs" * pairs] = found
            yield row


def now(args):
    """Scores of the package of today."""
    for name, n, drawn in tables(args):
        for epsilon in args.epsilons:
            found = scores(drawn, epsilon)
            yield {"table": name, "rows": n, "epsilon": epsilon, "now": found}


# What they say ----------------------------------------------------------------------------------


def stored(paths, section):
    """Scores over seeds by model, for each cell of reports."""
    reports = [json.loads(Path(path).read_text())["results"] for path in paths]
    return {
        (row.pop("table"), row.pop("rows"), row.pop("epsilon")): {
            model: np.array(text.split(), dtype=float) for model, text in row.items()
        }
        for report in reports
        for row in report.get(section, [])
    }


def judged(six, ours):
    """Scores of the encoding that is best on half of the seeds, and ours, on the other half."""
    found, seeds = np.stack([*six.values()]), np.arange(len(ours))
    halves = seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :]
    for chooses, judges in (halves, halves[::-1]):
        best = found[:, chooses].mean(axis=1).argmax()
        yield found[best, judges], ours[judges]


def regret(args):
    """Regret by epsilon, by number of rows and by table, and the cells where it is largest."""
    paths = args.reports or sorted(FOLDER.glob("regret*.json"))
    six, today = stored(paths, "rungs"), stored(paths, "now")
    if six.keys() != today.keys():
        raise SystemExit("rungs and now are not of the same cells.")
    cells = []
    for (name, n, epsilon), own in six.items():
        ours, before = today[name, n, epsilon]["now"], own.pop("before")
        pairs = list(judged(own, ours))
        lost = [best - same for best, same in pairs]
        cell = {"table": name, "rows": n, "epsilon": epsilon, "before": before.mean()}
        cell |= {"best": np.mean([best for best, _ in pairs]), "now": ours.mean()}
        cell |= {"regrets": [some.mean() for some in lost], "change": beyond(ours - before)}
        cell |= {"regret": np.mean(lost), "four errors": 4 * error(np.concatenate(lost))}
        cells.append(cell)
    yield summed("all", cells)
    for of in ("epsilon", "table"):
        for value in sorted({cell[of] for cell in cells}):
            yield summed(f"{of} {value}", [cell for cell in cells if cell[of] == value])
    sizes = {"at most 1,000": (0, 1000), "1,001 to 5,000": (1001, 5000), "more": (5001, np.inf)}
    for said, (least, most) in sizes.items():
        if some := [cell for cell in cells if least <= cell["rows"] <= most]:
            yield summed(f"{said} rows", some)
    for cell in sorted(cells, key=lambda cell: -cell["regret"])[:12]:
        where = f"{cell['table']}, {cell['rows']:,} rows, epsilon {cell['epsilon']:g}"
        yield {"cells": where} | {
            key: round(float(cell[key]), 1)
            for key in ("before", "best", "now", "regret", "four errors")
        }


def error(scores):
    """Standard error of a mean over seeds."""
    return scores.std(ddof=1) / np.sqrt(len(scores))


def beyond(change):
    """Sign of a mean change of more than a point and of more than four standard errors, else 0."""
    mean = change.mean()
    return int(np.sign(mean)) if abs(mean) > max(LEAST, 4 * error(change)) else 0


def summed(said, cells):
    """Means over cells, the 95th percentile of regrets, and how many are better than before."""
    row = {"cells": f"{said} ({len(cells)})"}
    means = {key: np.mean([cell[key] for cell in cells]) for key in ("before", "best", "now")}
    row |= {key: round(float(mean), 1) for key, mean in means.items()}
    regrets = np.concatenate([cell["regrets"] for cell in cells])
    row["regret"] = round(float(regrets.mean()), 2)
    row["95th percentile"] = round(float(np.quantile(regrets, 0.95)), 1)
    changes = [cell["change"] for cell in cells]
    row |= {"above before": changes.count(1), "below before": changes.count(-1)}
    return row


if __name__ == "__main__":
    _run.run(
        __doc__,
        {"rungs": rungs, "now": now, "regret": regret},
        {
            "seeds": 8,
            "tables": [],
            "epsilons": [0.1, 0.3, 1.0, 3.0],
            "sizes": [1000, 4000, 0],
            "reports": [],
        },
        ignored=[PrivacyWarning],
        left_out=("rungs", "now"),
    )
