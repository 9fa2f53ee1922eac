"""Private regression in the subspace of public tasks, against the theory and on tables.

The model is that of Theorem 4.2: rows are normal in 60 columns, ``y = x'beta + noise`` of variance
1, and the weights of all tasks are unit vectors in one span of 5 dimensions. "excess" is the mean
squared distance of weights (and intercept) to the true ones, which is the excess risk of a new row.
Every seed draws everything. Delta is 1e-5. Sections:

- ``sweeps``: excess risk against the number of private rows n, the number of directions k, epsilon
  and the subspace error gamma, with a span of exactly that error. Beside it are the two ends,
  private and not private on all columns, and the reference values of a one-shot solver with noisy
  sufficient statistics, which knows a bound on rows.
  "cost" is the mean squared distance of the private weights to the exact ones for the same rows.
- ``slopes``: of these on logarithmic scales, beside what theory says: without privacy -1 in n, of
  the cost -2 in n and in epsilon and 2 in k, and 2 in gamma.
- ``subspaces``: sine of the largest angle to the true span against the number of public rows,
  for each way to estimate it, with and without a skew of the columns.
- ``transfer``: PublicSubspaceLinearRegression as it is shipped, with 20 public tasks of 250 or
  2000 rows; all columns with and without public rows; and a fit of public rows alone.
- ``tasks``: PublicSubspaceLinearRegression with all defaults, beside the same in as many directions
  as there are, in those that stand out of permuted targets (the default before), and regression on
  all columns, with ranges of public rows; with private weights in the span of the public ones, and
  half outside of it. "over" is the mean by which the default is worse than the better of directions
  and all columns, in standard errors of the mean of the better one.
- ``number``: how many directions are found of how many.
- ``kept``: R2 of least squares in the subspace beside that on all columns, without privacy: what a
  subspace of other groups of a table keeps of what can be predicted. It needs the tables.

usage: [DPSUBSPACE_DATA=folder] python benchmarks/repro_transfer.py
       [sweeps slopes subspaces transfer tasks number kept] [--seeds 20]
       [--picture docs/transfer.svg] [--out benchmarks/results/transfer.json]

The picture is drawn of the sections that ran.
"""

from functools import partial
from pathlib import Path

import _data
import _tables
import numpy as np
from _run import judged, run
from sklearn.linear_model import LinearRegression

from dpsubspace import DPLinearRegression
from dpsubspace._core.public.tasks import METHODS, task_subspace
from dpsubspace.linear_model import PublicSubspaceLinearRegression
from dpsubspace.public_data import subspace_distance

WIDTH, K, DELTA = 60, 5, 1e-5
SETTING = {"n": 4000, "k": K, "epsilon": 1.0, "gamma": 0.0}
SWEEPS = {
    "n": (500, 1000, 2000, 4000, 8000, 16_000, 32_000),
    "k": (2, 4, 8, 16),
    "epsilon": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
    "gamma": (0.0, 0.05, 0.1, 0.2, 0.4),
}
CHANGED = {"epsilon": {"n": 16_000}, "gamma": {"n": 32_000, "epsilon": 10.0}}
ENDS = ("n", "epsilon")  # sweeps with fits of all columns beside them
FEW, ALL = "few directions", "all columns"
PRIVATE, EXACT, COST = "private", "not private", "cost"
REFERENCES = {
    ("n", PRIVATE): dict(
        zip(SWEEPS["n"], (0.491, 0.0922, 0.0263, 0.00777, 0.00208, 0.00063, 0.00026), strict=True)
    ),
    ("n", EXACT): {500: 0.0118, 2000: 0.0031, 8000: 0.00062},
    ("k", PRIVATE): dict(zip(SWEEPS["k"], (0.0016, 0.0058, 0.0145, 0.0513), strict=True)),
    ("gamma", PRIVATE): dict(
        zip(SWEEPS["gamma"], (0.00014, 0.0027, 0.0102, 0.0402, 0.160), strict=True)
    ),
}
# Sweep, columns, what of it, least and most value, theory, and between what the slope should be.
# Noise grows a little less than as 1 / epsilon.
SLOPES = (
    ("n", FEW, EXACT, 500, 32_000, -1, -1.15, -0.85),
    ("n", FEW, COST, 1000, 32_000, -2, -2.3, -1.6),
    ("n", ALL, COST, 2000, 32_000, -2, -2.3, -1.6),
    ("k", FEW, EXACT, 2, 16, 1, 0.7, 1.3),
    ("k", FEW, COST, 2, 16, 2, 1.5, 2.3),
    ("epsilon", FEW, COST, 0.1, 0.8, -2, -2.3, -1.5),
    ("epsilon", ALL, COST, 0.1, 0.8, -2, -2.3, -1.5),
    ("gamma", FEW, PRIVATE, 0.1, 0.4, 2, 1.85, 2.15),
)
N_TASKS, PUBLIC_SIZES = 20, (250, 2000)
SIZES = (25, 50, 100, 200, 400, 800, 1600)

# The model --------------------------------------------------------------------------------------


class Model:
    """One draw of a span, and of the weights of the private task in it."""

    def __init__(self, seed, k=K):
        self.rng = np.random.default_rng([seed, k])
        self.span, self.apart = np.split(np.linalg.qr(self.normal(WIDTH, 2 * k))[0], 2, axis=1)
        self.weights = self.task()

    def normal(self, *shape):
        """Numbers that rows and noise are made of."""
        return self.rng.standard_normal(shape)

    def task(self):
        """Weights of a task: a unit vector in the span."""
        weights = self.normal(self.span.shape[1])
        return self.span @ (weights / np.linalg.norm(weights))

    def at(self, gamma):
        """A span of which all principal angles to the true one have this sine."""
        return np.sqrt(1 - gamma**2) * self.span + gamma * self.apart

    def rows(self, n, weights):
        """Rows, and targets by the weights of a task."""
        X = self.normal(n, WIDTH)
        return X, X @ weights + self.normal(n)

    def excess(self, coef, intercept):
        """Excess risk of weights."""
        return float(np.sum((coef - self.weights) ** 2) + intercept**2)


def figure(values):
    """Mean, standard deviation and median of one value a seed, to four digits."""
    values = np.asarray(values, dtype=float)
    found = {"mean": values.mean(), "median": np.median(values)}
    found |= {"std": values.std(ddof=1)} if len(values) > 1 else {}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


# Slopes -----------------------------------------------------------------------------------------


def sweeps(args):
    for sweep, values in SWEEPS.items():
        for value in values:
            setting = SETTING | CHANGED.get(sweep, {}) | {sweep: value}
            for columns in (FEW, ALL) if sweep in ENDS else (FEW,):
                found = [fitted(seed, columns, **setting) for seed in args.seeds]
                for part in found[0]:
                    known = REFERENCES.get((sweep, part), {}) if columns == FEW else {}
                    row = {"sweep": sweep, "value": value, "columns": columns, "part": part}
                    row |= figure([each[part] for each in found])
                    yield row | {"reference": known.get(value)}


def fitted(seed, columns, n, k, epsilon, gamma):
    """Excess risk with and without privacy; public rows say how long rows are."""
    model = Model(seed, k)
    basis = np.eye(WIDTH) if columns == ALL else model.at(gamma)
    X, y = model.rows(n, model.weights)
    known = model.normal(1000, WIDTH)
    options = {"delta": DELTA, "random_state": seed}
    private, exact = (
        DPLinearRegression(epsilon=each, **options).fit(X @ basis, y, X_public=(known @ basis,))
        for each in (epsilon, float("inf"))
    )
    cost = np.sum((private.coef_ - exact.coef_) ** 2) + (private.intercept_ - exact.intercept_) ** 2
    return {
        PRIVATE: model.excess(basis @ private.coef_, private.intercept_),
        EXACT: model.excess(basis @ exact.coef_, exact.intercept_),
        COST: float(cost),
    }


def slopes(args):
    """Of the rows of ``sweeps``, by least squares on logarithmic scales."""
    for sweep, columns, part, least, most, theory, low, high in SLOPES:
        points = curve(args.results, sweep, columns, part)
        inside = {value: mean for value, mean in points.items() if least <= value <= most}
        if sweep == "k":  # an intercept is learned as well
            inside = {value + 1: mean for value, mean in inside.items()}
        if len(inside) > 1:
            found = slope(inside)
            row = {"sweep": sweep, "columns": columns, "part": part, "from": least, "to": most}
            row |= {"slope": round(found, 2), "theory": theory, "low": low, "high": high}
            yield row | judged(low <= found <= high)


def curve(results, sweep, columns, part):
    rows = results.get("sweeps", [])
    return {
        row["value"]: row["mean"]
        for row in rows
        if (row["sweep"], row["columns"], row["part"]) == (sweep, columns, part)
    }


def slope(points):
    values, means = np.log(list(points)), np.log(list(points.values()))
    return float(np.polyfit(values, means, 1)[0])


# Subspaces --------------------------------------------------------------------------------------


def subspaces(args):
    for skewed in (False, True):
        for size in SIZES:
            found = [errors(seed, size, skewed) for seed in args.seeds]
            for subspace in found[0]:
                row = {"skewed": skewed, "rows": N_TASKS * size, "subspace": subspace}
                yield row | figure([each[subspace] for each in found])


def errors(seed, size, skewed):
    """Sine of the largest angle to the true span, by method."""
    model = Model(seed)
    if skewed:  # columns of lognormal numbers, of mean 0 and variance 1
        model.normal = partial(lognormal, model.rng)
    tasks = [model.rows(size, model.task()) for _ in range(N_TASKS)]
    sets, targets = [X for X, _ in tasks], np.concatenate([y for _, y in tasks])[:, None]
    return {
        name: subspace_distance(
            task_subspace(sets, targets, subspace=name, n_components=K).components, model.span.T
        )
        for name, method in METHODS.items()
        if not method.of_features
    }


def lognormal(rng, *shape):
    """Skewed where a matrix is asked for; weights and noise of targets stay normal."""
    numbers = rng.standard_normal(shape)
    if len(shape) < 2:
        return numbers
    return (np.exp(numbers / 2 - 1 / 8) - 1) / np.sqrt(np.exp(1 / 4) - 1)


# Transfer ---------------------------------------------------------------------------------------


def transfer(args):
    for n in SWEEPS["n"][::2]:
        found = [transferred(seed, n) for seed in args.seeds]
        for name in found[0]:
            yield {"rows": n, "method": name} | figure([each[name] for each in found])


def transferred(seed, n):
    """Excess risk by method, with the defaults of all of them."""
    model = Model(seed)
    X, y = model.rows(n, model.weights)
    options = {"delta": DELTA, "random_state": seed}
    fits = {
        "not private": LinearRegression().fit(X, y),
        "all columns": DPLinearRegression(**options).fit(X, y),
    }
    for size in PUBLIC_SIZES:
        tasks = [model.rows(size, model.task()) for _ in range(N_TASKS)]
        sets, targets = (tuple(each) for each in zip(*tasks, strict=True))
        regression = PublicSubspaceLinearRegression(**options)
        fits[f"subspace of {N_TASKS * size:,} public rows"] = regression.fit(
            X, y, X_public=sets, y_public=targets
        )
    fits["all columns, ranges of public rows"] = DPLinearRegression(**options).fit(
        X, y, X_public=sets
    )
    fits["public rows alone"] = LinearRegression().fit(
        np.concatenate(sets), np.concatenate(targets)
    )
    return {name: model.excess(fit.coef_, fit.intercept_) for name, fit in fits.items()}


# Directions, tasks, rows of each, and the share of private weights outside of the span.
TASKS = ((5, 20, 500, 0.0), (16, 40, 250, 0.0), (5, 20, 500, 0.5))
OF_TASKS = {
    0.0: [(n, epsilon) for epsilon in (1.0, 0.1) for n in (300, 1000, 3000, 8000, 30_000)]
    + [(n, epsilon) for epsilon in (3.0, 0.3) for n in (1000, 8000)],
    0.5: [(3000, 1.0), (8000, 1.0), (30_000, 0.1)],
}
GIVEN, BEFORE, AUTO = "as many directions as there are", "directions, before", "default"


def tasks(args):
    for k, count, size, outside in TASKS:
        for n, epsilon in OF_TASKS[outside]:
            found = [of_tasks(s, k, count, size, outside, n, epsilon) for s in args.seeds]
            errors = {name: np.array([each[name] for each in found]) for name in found[0]}
            row = {"directions": k, "tasks": count, "rows of each": size, "outside": outside}
            row |= {"rows": n, "epsilon": epsilon}
            better = errors[min((GIVEN, ALL), key=lambda name: errors[name].mean())]
            spread = better.std(ddof=1) / np.sqrt(len(better)) if len(better) > 1 else np.nan
            row["over"] = round(float((errors[AUTO] - better).mean() / spread), 2)
            for name, values in errors.items():
                row |= {f"{name}, {key}": value for key, value in figure(values).items()}
            yield row


def of_tasks(seed, k, count, size, outside, n, epsilon):
    """Excess risk by method, where private weights lie outside of the span by that share."""
    model = Model(seed, k)
    elsewhere = model.apart @ model.normal(k)
    elsewhere *= np.sqrt(outside) / np.linalg.norm(elsewhere)
    drawn = [model.rows(size, model.task()) for _ in range(count)]
    model.weights = np.sqrt(1 - outside) * model.weights + elsewhere
    X, y = model.rows(n, model.weights)
    sets, targets = (tuple(each) for each in zip(*drawn, strict=True))
    usual = len(task_subspace(sets, np.concatenate(targets)[:, None]).components)
    options = {"epsilon": epsilon, "delta": DELTA, "random_state": seed}
    fits = {
        number: PublicSubspaceLinearRegression(n_components=number, **options).fit(
            X, y, X_public=sets, y_public=targets
        )
        for number in {k, usual, "auto"}
    }
    fits = {GIVEN: fits[k], BEFORE: fits[usual], AUTO: fits["auto"]}
    fits[ALL] = DPLinearRegression(**options).fit(X, y, X_public=sets)
    return {name: model.excess(fit.coef_, fit.intercept_) for name, fit in fits.items()}


def number(args):
    for k in (1, 2, 5, 10):
        for size in (50, 250, 1000):
            found = [number_found(seed, k, size) for seed in args.seeds]
            row = {"directions": k, "tasks": N_TASKS, "rows of each": size}
            exact = float(np.mean(np.equal(found, k)))
            yield row | {"found": float(np.mean(found)), "exactly": exact, "most": max(found)}


def number_found(seed, k, size):
    model = Model(seed, k)
    tasks = [model.rows(size, model.task()) for _ in range(N_TASKS)]
    targets = np.concatenate([y for _, y in tasks])[:, None]
    return len(task_subspace([X for X, _ in tasks], targets).components)


# Tables -----------------------------------------------------------------------------------------


def kept(args):
    for name in _tables.TABLES:
        if not name.endswith("_public"):
            continue
        try:
            table = _tables.load(name)
        except _data.DataNotFoundError as error:
            yield {"table": name, "left out": str(error)}
            continue
        sets = [X for X, _ in table.public]
        targets = np.concatenate([y for _, y in table.public])[:, None]
        whole = r2(table, np.eye(table.X.shape[1]), args.seeds)
        for subspace in METHODS:
            for k in ("auto", 1, 2, 3, 5):
                try:
                    found = task_subspace(sets, targets, subspace=subspace, n_components=k)
                except ValueError:  # more than there are tasks
                    continue
                row = {"table": name, "subspace": subspace, "n_components": k}
                row |= {"found": len(found.components), "all columns": whole}
                yield row | {"r2": r2(table, found.directions, args.seeds)}


def r2(table, directions, seeds):
    """Median on test rows of least squares of rows times directions."""
    values = []
    for seed in seeds:
        split = _tables.split(table, seed)
        fit = LinearRegression().fit(split.X @ directions, split.y)
        values.append(fit.score(split.X_test @ directions, split.y_test))
    return round(float(np.median(values)), 4)


# The picture ------------------------------------------------------------------------------------


def draw(results, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6), layout="constrained")
    for ax, sweep in zip(axes.flat, ("n", "epsilon", "gamma", "k"), strict=False):
        draw_sweep(ax, results, sweep)
    draw_subspaces(axes[1, 1], results.get("subspaces", []))
    draw_transfer(axes[1, 2], results.get("transfer", []))
    for ax, source in ((axes[0, 2], axes[0, 0]), (axes[1, 1], None), (axes[1, 2], None)):
        lines, labels = (source or ax).get_legend_handles_labels()
        place = "center" if source else "lower left"
        if lines:
            ax.legend(lines, labels, fontsize=7, loc=place)
    plt.rcParams["svg.hashsalt"] = "transfer"  # the same bytes every time
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)


def on_logs(ax, xlabel, ylabel, ticks):
    """Logarithmic axes with these ticks below."""
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.grid(alpha=0.3)


COLOURS = {FEW: "tab:blue", ALL: "tab:orange"}
STYLES = {PRIVATE: "-o", EXACT: "--", COST: ":"}
LABELS = {
    "n": "private rows",
    "k": "directions k",
    "epsilon": "epsilon",
    "gamma": "subspace error gamma",
}


def draw_sweep(ax, results, sweep):
    for columns in COLOURS:
        for part, style in STYLES.items():
            points = curve(results, sweep, columns, part)
            points = {value: mean for value, mean in points.items() if value > 0}
            label = f"{columns}, {part}"
            if points:
                values = zip(*points.items(), strict=True)
                ax.plot(*values, style, ms=3, c=COLOURS[columns], label=label)
    known = {value: mean for value, mean in REFERENCES.get((sweep, PRIVATE), {}).items() if value}
    if known:
        ax.plot(*zip(*known.items(), strict=True), "kx", ms=4, label="reference")
    ticks = [value for value in SWEEPS[sweep] if value]
    on_logs(ax, LABELS[sweep], "excess risk", ticks[::2] if sweep == "n" else ticks)


def draw_subspaces(ax, rows):
    for subspace in dict.fromkeys(row["subspace"] for row in rows):
        for skewed, style in ((False, "-o"), (True, ":")):
            chosen = [r for r in rows if (r["subspace"], r["skewed"]) == (subspace, skewed)]
            label = None if skewed else subspace
            colour = f"C{list(METHODS).index(subspace)}"
            values = [[row[key] for row in chosen] for key in ("rows", "mean")]
            ax.plot(*values, style, ms=3, c=colour, label=label)
    ticks = [N_TASKS * size for size in SIZES]
    on_logs(ax, "public rows (20 tasks); dotted: skewed", "sine of the largest angle", ticks[::2])
    ax.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
    ax.set_yticks([], minor=True)


def draw_transfer(ax, rows):
    for name in dict.fromkeys(row["method"] for row in rows):
        points = [(row["rows"], row["median"]) for row in rows if row["method"] == name]
        style = "--" if name == "not private" else "-o"
        ax.plot(*zip(*points, strict=True), style, ms=3, label=name)
    on_logs(ax, "private rows (epsilon 1)", "excess risk, median", SWEEPS["n"][::2])
    ax.set_ylim(2e-4, 3)


SECTIONS = {
    "sweeps": sweeps,
    "slopes": slopes,
    "subspaces": subspaces,
    "transfer": transfer,
    "tasks": tasks,
    "number": number,
    "kept": kept,
}

if __name__ == "__main__":
    # Few rows and small epsilons are the point.
    args = run(__doc__, SECTIONS, {"seeds": 20, "picture": Path}, ignored=(Warning,))
    if args.picture is not None:
        draw(args.results, args.picture)
