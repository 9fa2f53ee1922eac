"""Do more budget or more rows make a worse model of a raw table? Curves over both, and their falls.

Tables are those of ``_raw_tables.py``, behind `tabular_pipeline` with its default settings. A cell
is the mean over seeds of 100 times R2 or AUC on test rows, where an R2 below 0 counts as 0. A seed
draws the rows, the noise, and the people or schools to test with; all epsilons share it. Sizes that
a table does not have are left out.

A *fall* along epsilon is the largest difference of a cell and a later one in its row, and a fall
along rows the same in its column. Beside it stands four times the standard error of that
difference. A fall of more than one point and of more than that is marked.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_falls.py [values] [classes] [--seeds N]
       [--tables NAME ...] [--out FILE]
"""

import math

import _raw_tables
import _run
import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

from dpsubspace import tabular_pipeline
from dpsubspace.exceptions import PrivacyWarning

EPSILONS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.6, 2.0, 3.0, 5.0)
SIZES = (1000, 2000, 4000, 8000, None)
LEAST = 1.0  # points


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


if __name__ == "__main__":
    _run.run(
        __doc__,
        {"values": values, "classes": classes},
        {"seeds": 20, "tables": []},
        ignored=[PrivacyWarning],
    )
