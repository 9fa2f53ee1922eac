"""Do models of tables hold on tables that nothing was chosen on? Gains on seventeen of them.

Tables are those of ``_unseen_tables.py``, whose schemas were written before any model was fitted to
them: seven with classes, and ten with values, for ``--task values``. Fits are
``tabular_pipeline("classification", schema, epsilon, interactions=...)`` at the default delta, and
the same with "regression". Of these, "descent" is ``DPSGDRegressor`` with ``interactions="auto"``,
and "learned" the same with "learned". A seed draws the rows to train with and the noise, and all
settings and packages share it. Scores are in points: 100 times AUC, or R2 where it is above 0, on
test rows. Sections:

- ``run``: fits of the package that is imported, a row of the report for each seed, with the score
  and the CPU seconds of each epsilon. Let an older checkout do the same, and compare the reports.
  `--tables` may name those of ``_raw_tables.py`` as well, on which constants were chosen.
- ``reference``: scikit-learn's linear model and boosting on the same rows, without privacy.
- ``means``: over seeds, of what ran before it in the same call.
- ``compare``: gains of one report over another, paired by table, rows, epsilon and seed, and what
  a fit costs beside one before. "all" is the mean over numbers of rows, seed by seed, and the
  tables' mean is of these. After ± stand two standard errors, which tell of the chance of seeds
  and of nothing else: the test rows, and the tables, are the same for all of them. A table *loses*
  where it does so by more than 0.3 points and two standard errors, and misses its verdict where
  "all" does.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_unseen.py [run reference means] [--seeds 10]
       [--task classes] [--tables NAME ...] [--settings auto ...] [--sizes 1000 4000 0]
       [--out AFTER]
       DPSUBSPACE_DATA=folder PYTHONPATH=old/checkout python benchmarks/repro_unseen.py run
       --out BEFORE
       python benchmarks/repro_unseen.py compare --reports BEFORE AFTER [--settings auto]
       (two settings: that of the first report and that of the second; a size of 0 is all rows)
"""

import json
from collections import defaultdict
from pathlib import Path

import _raw_tables
import _run
import _unseen_tables
import numpy as np
import repro_tables
from sklearn.metrics import r2_score, roc_auc_score

from dpsubspace import DPSGDRegressor, tabular_pipeline
from dpsubspace.exceptions import PrivacyWarning

SETTINGS = {  # parameters of `tabular_pipeline` by name
    "auto": {"interactions": "auto"},
    "never": {"interactions": False},
    "always": {"interactions": True},
    "learned": {"interactions": "learned"},
    "descent": {"interactions": "auto"},
}
DESCENTS = ("learned", "descent")  # settings of values that the default model does not have
REFERENCES = {"linear": repro_tables.not_private, "boosting": repro_tables.boosting}
EPSILONS = (0.3, 1.0, 3.0)
LOSS = 0.3  # points


# Fits -------------------------------------------------------------------------------------------


def private(table, setting, epsilon, seed):
    """The score of one fit, and its CPU seconds."""
    options = {"epsilon": epsilon, "target": table.target} | SETTINGS[setting]
    kind = "classification"
    if table.target is not None:
        kind = DPSGDRegressor() if setting in DESCENTS else "regression"
    model = tabular_pipeline(kind, table.schema, **options).set_params(random_state=seed)
    _, cpu = _run.seconds(lambda: model.fit(table.X, table.y))
    return score(table, model, table.X_test), cpu


def score(table, model, X_test):
    """100 times the AUC, or the R2 where it is above 0."""
    if table.target is not None:
        return 100 * max(0.0, r2_score(table.y_test, model.predict(X_test)))
    return 100 * float(roc_auc_score(table.y_test, model.decision_function(X_test)))


def loaded(name, task, seed=0):
    """One of the seventeen tables, or one that constants were chosen on, for comparison."""
    if name in _unseen_tables.names(task):
        return _unseen_tables.load(name)
    return _raw_tables.load(name, task, seed)


def tables(args):
    """Name, number of rows, seed and table, of sizes that a table has more of, and then all."""
    for name in args.tables or _unseen_tables.names(args.task):
        most = len(loaded(name, args.task).y)
        for n in dict.fromkeys(min(n or most, most) for n in args.sizes):
            for seed in args.seeds:
                yield name, n, seed, _raw_tables.few(loaded(name, args.task, seed), n, seed)


def run(args):
    """Private fits of the package that is imported."""
    for name, n, seed, table in tables(args):
        for setting in args.settings:
            found = [private(table, setting, epsilon, seed) for epsilon in EPSILONS]
            row = {"table": name, "rows": n, "setting": setting, "seed": seed}
            row |= {
                str(e): round(points, 3) for e, (points, _) in zip(EPSILONS, found, strict=True)
            }
            cpu = {str(e): round(s, 3) for e, (_, s) in zip(EPSILONS, found, strict=True)}
            yield row | {"cpu_s": cpu}


def reference(args):
    """Without privacy; a model that draws nothing is fitted once for all seeds of all rows."""
    for name, n, seed, table in tables(args):
        if n == len(loaded(name, args.task).y) and seed != args.seeds[0]:
            continue
        row = {"table": name, "rows": n, "seed": seed}
        for model, fit in REFERENCES.items():
            fitted, X_test = fit(table, None, seed)
            row[model] = round(score(table, fitted, X_test), 3)
        yield row


def means(args):
    """Over seeds, private ones beside the others."""
    private_rows, others = (args.results.get(name, []) for name in ("run", "reference"))
    beside = grouped(others, ("table", "rows"))
    for (name, n, setting), rows in grouped(private_rows, ("table", "rows", "setting")).items():
        row = {"table": name, "rows": n, "setting": setting}
        row |= {str(e): round(float(np.mean([r[str(e)] for r in rows])), 2) for e in EPSILONS}
        for model in REFERENCES:
            if found := [r[model] for r in beside.get((name, n), [])]:
                row[model] = round(float(np.mean(found)), 2)
        cpu = {str(e): [r["cpu_s"][str(e)] for r in rows] for e in EPSILONS}
        yield row | {"cpu_s": {e: round(float(np.median(s)), 2) for e, s in cpu.items()}}


def grouped(rows, keys):
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


# Two reports ------------------------------------------------------------------------------------


def stored(path, setting):
    """Rows of a report by table, number of rows and seed."""
    rows = json.loads(Path(path).read_text())["results"]["run"]
    return {(r["table"], r["rows"], r["seed"]): r for r in rows if r["setting"] == setting}


def paired(before, after):
    """Gains and ratios of CPU seconds by table and number of rows: (seeds, epsilons) each."""
    both = sorted(before.keys() & after.keys())
    if not both:
        raise SystemExit("The reports have no table, number of rows and seed in common.")
    gains, ratios = defaultdict(dict), defaultdict(dict)
    for name, n, seed in both:
        old, new = before[name, n, seed], after[name, n, seed]
        gains[name, n][seed] = [new[str(e)] - old[str(e)] for e in EPSILONS]
        ratios[name, n][seed] = [new["cpu_s"][str(e)] / old["cpu_s"][str(e)] for e in EPSILONS]
    return gains, ratios


def together(parts):
    """Means over parts, seed by seed, of the seeds that all of them have."""
    shared = sorted(set.intersection(*(set(part) for part in parts)))
    return {seed: np.mean([part[seed] for part in parts], axis=0) for seed in shared}


def two_errors(gains):
    """Means over seeds, and two standard errors of them."""
    count = len(gains)
    spread = gains.std(axis=0, ddof=1) if count > 1 else np.full(gains.shape[1:], np.inf)
    return gains.mean(axis=0), 2 * spread / np.sqrt(count)


def told(gains, ratios):
    """Cells of one line, from what each seed has at every epsilon."""
    mean, errors = two_errors(np.array(list(gains.values())))
    both = list(zip(EPSILONS, mean, errors, strict=True))
    cells = {str(epsilon): f"{gain:+.2f} ± {error:.2f}" for epsilon, gain, error in both}
    cells |= {"seeds": len(gains), "cpu": round(float(np.median(list(ratios.values()))), 2)}
    lost = [str(epsilon) for epsilon, gain, error in both if gain + error < -LOSS]
    return cells | {"loses at": ", ".join(lost)}


def compare(args):
    """Gains of the second report over the first."""
    if len(args.reports) != 2:
        raise SystemExit("compare takes --reports BEFORE AFTER.")
    both = zip(args.reports, (args.settings[0], args.settings[-1]), strict=True)
    found = paired(*(stored(path, setting) for path, setting in both))
    whole = {}
    for name in dict.fromkeys(name for name, _ in found[0]):
        sizes = [key for key in found[0] if key[0] == name]
        for key in sizes:
            yield {"table": name, "rows": key[1], **told(*(part[key] for part in found))}
        whole[name] = [together([part[key] for key in sizes]) for part in found]
        cells = told(*whole[name])
        yield {"table": name, "rows": "all", **cells, **_run.judged(not cells["loses at"])}
    each = (together(parts) for parts in zip(*whole.values(), strict=True))
    yield {"table": f"mean of {len(whole)}", "rows": "all", **told(*each)}


if __name__ == "__main__":
    _run.run(
        __doc__,
        {"run": run, "reference": reference, "means": means, "compare": compare},
        {
            "seeds": 10,
            "task": "classes",
            "tables": [],
            "settings": ["auto"],
            "sizes": [1000, 4000, 0],
            "reports": [],
        },
        ignored=[PrivacyWarning],
        left_out=("compare",),
    )
