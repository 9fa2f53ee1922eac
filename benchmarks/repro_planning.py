"""What `plan_accuracy` says of a call, beside 100 calls on other rows of the same table.

Half of the rows of a table, drawn at random, are taken to be public, and the other half is private:
a plan is made on the one, and the releases on the other, as many rows as it has. Small tables are
drawn from with replacement, to have 2,000 private rows. Shown are ratios of the median width of
intervals to the planned width: their median over the numbers of a kind, the worst of them, and how
many are within 5 % (counts, shares, means) or 25 % (all else), and in the range that the plan says.
`hidden` are those that have no interval with ends by the plan, nor by the releases.

widths      counts, shares and means of `private_summary` (`hidden` are counts and shares of
            categories that are smaller than twice the deviation of the noise), counts of
            `private_counts`, slopes of `private_coefficients`, and scores of `private_score` of a
            model that was fitted to a quarter of the rows, which is no part of the plan
made_up     the same of `private_summary`, with a plan on `Schema.example`
models      scores of `tabular_pipeline`, planned on the public half, at the first epsilon
"""

import math

import _raw_tables
import numpy as np
from _run import run
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace import (
    Categories,
    PrivacyError,
    PrivacyWarning,
    Range,
    private_coefficients,
    private_counts,
    private_score,
    private_summary,
    tabular_pipeline,
)
from dpsubspace.budget import plan_accuracy
from dpsubspace.exceptions import PublicDataWarning

# Two tables with classes and two with values, and the columns of their regressions.
TABLES = {
    "cancer": ("classes", None),
    "adult": ("classes", None),
    "wine": ("values", None),
    "diabetes": ("values", None),
}
WITHIN = {"count": 0.05, "share": 0.05, "mean": 0.05}
LEAST, MOST = 2_000, 3_000


def halves(name, seed=0, least=0):
    """Public and private rows with their targets, the schema and the range of targets."""
    task = TABLES[name][0]
    source = _raw_tables._source(name)
    frame, y = source.frame, np.asarray(source.y, dtype=float)
    y = (y > source.above).astype(int) if task == "classes" else y
    order = np.random.default_rng(seed).permutation(len(frame))[: 2 * MOST]
    half = len(order) // 2
    parts = [order[:half], order[half : 2 * half]]
    if half < least:
        parts[1] = np.random.default_rng(seed).choice(parts[1], least)
    rows = [(frame.iloc[part].reset_index(drop=True), y[part]) for part in parts]
    return *rows, dict(source.schema), source.target


def kind_of(name, of):
    """Kind of a number by its name: "count" of "age, count of missing"."""
    if name != "private_summary":
        return {"private_coefficients": "slope", "private_score": "score"}.get(name, of)
    statistic = of.split(", ")[-1].partition(" of ")[0]
    return "quantile" if statistic in ("lower quartile", "median", "upper quartile") else statistic


def widths_of(numbers, call, private, epsilon, args):
    """Median widths over releases from private rows."""
    found = []
    for seed in args.seeds:
        try:
            result = call(*private, epsilon=epsilon, random_state=10_000 + seed)
        except PrivacyError:
            continue
        found.append({each.of: each.width for each in numbers(result)})
    names = dict.fromkeys(of for each in found for of in each)
    widths = {of: [each.get(of, math.inf) for each in found] for of in names}
    missing = len(args.seeds) - len(found)
    widths = {of: [*each, *[math.inf] * missing] for of, each in widths.items()}
    return {of: middle(each) for of, each in widths.items()}


def middle(widths):
    """Median, in which a width that is not known is infinite."""
    widths = np.where(np.isnan(widths), math.inf, widths)
    return float(np.quantile(widths, 0.5, method="inverted_cdf"))


def compared(name, plan, real, epsilon, noise=None):
    """Yield a row for each kind of number."""
    said = {each.of: each for each in plan.widths if each.epsilon == epsilon}
    ratios = {}
    for of, width in real.items():
        kind = kind_of(name, of)
        planned = said.get(of)
        if planned is None or of in ("Intercept", "rows"):
            continue
        if kind in ("count", "share") and noise is not None:
            count = said[of.replace(", share of ", ", count of ")].value
            kind += " (hidden)" if count < 2 * noise else ""
        ratios.setdefault(kind, []).append((width, planned.width, planned.low, planned.high))
    for kind, pairs in ratios.items():
        found, planned, low, high = np.array(pairs).T
        hidden = np.isinf(found) & np.isinf(planned)
        row = {"what": name, "kind": kind, "numbers": len(found), "hidden": int(hidden.sum())}
        within = WITHIN.get(kind.partition(" ")[0], 0.25)
        if not hidden.all():
            values = found[~hidden] / planned[~hidden]
            off = np.abs(np.log(np.maximum(values, 1e-9)))
            row |= {
                "median": float(np.median(values)),
                "worst": float(values[np.argmax(off)]),
                "tolerance": within,
                "within": int(np.sum(np.abs(values - 1) <= within)),
                "in_range": int(np.sum((found >= 0.999 * low) & (found <= 1.001 * high) & ~hidden)),
            }
        yield row


def noise_of(frame, schema, epsilon):
    return private_summary(frame, schema, epsilon=epsilon, random_state=0).noise.get("counts", 0.0)


def scored(name, task, public, private, target):
    """A model of some public rows, and the arguments of private_score with others."""
    (X, y), (X_private, y_private) = public, private
    numbers = [column for column in X if X[column].dtype.kind in "fi"]
    half = len(X) // 2
    fit = LogisticRegression(max_iter=1000) if task == "classes" else LinearRegression()
    model = make_pipeline(StandardScaler(), fit)

    def plain(frame):
        return frame[numbers].fillna(0.0).to_numpy(float)

    model.fit(plain(X[:half]), y[:half])
    metrics = ["accuracy", "roc_auc", "log_loss"]
    options = {"metric": metrics}
    if task == "values":
        options = {"metric": "mean_absolute_error", "target_bounds": target}
    return model, (plain(X[half:]), y[half:]), (plain(X_private), y_private), options


def regression_schema(frame, schema, task, y, target):
    """At most five columns and the target, in one table, without categories of many values."""
    columns = [name for name, kind in schema.items() if len(getattr(kind, "values", ())) < 3][:5]
    small = {column: schema[column] for column in columns}
    small["target"] = Categories([0, 1]) if task == "classes" else Range(*target)
    return frame[columns].assign(target=y), small


def calls(name):
    """Yield names of functions, plans and releases, for `plan_accuracy`."""
    from dpsubspace.metrics._planned_accuracy import _numbers_of

    task = TABLES[name][0]
    public, private, schema, target = halves(name, least=LEAST)
    n = len(private[0])

    yield private_summary, (public[0], schema), (private[0], schema), {}, n, _numbers_of
    column = next(iter(schema))
    yield private_counts, (public[0], schema, column), (private[0], schema, column), {}, n, _cells
    both = [regression_schema(X, schema, task, y, target) for X, y in (public, private)]
    rows = [(frame, small, "target") for frame, small in both]
    yield private_coefficients, *rows, {}, n, _numbers_of
    model, rows, private_rows, options = scored(name, task, public, private, target)
    yield private_score, (model, *rows), (model, *private_rows), options, n, _numbers_of


def _cells(found):
    """Mean width of the intervals of cells, which is cut where the count is below the noise."""
    from dpsubspace.metrics._planned_accuracy import _Number

    inside = found.counts > found._noise.half_width(found.level)
    if inside.any():
        yield _Number("count", 0.0, float(np.median((found.high - found.low)[inside])))


def widths(args):
    for name in args.table:
        for function, public, private, options, n, numbers in calls(name):
            given = {"epsilon": args.epsilons, "n_samples": n, **options}
            plan = plan_accuracy(function, *public, **given)
            for epsilon in args.epsilons:

                def call(*rows, function=function, options=options, **more):
                    return function(*rows, **options, **more)

                real = widths_of(numbers, call, private, epsilon, args)
                hidden = None
                if function is private_summary:
                    hidden = noise_of(*private, epsilon)
                for row in compared(function.__name__, plan, real, epsilon, hidden):
                    yield {"table": name, "n": n, "epsilon": epsilon, **row}


def made_up(args):
    from dpsubspace.metrics._planned_accuracy import _numbers_of

    for name in args.table:
        _, (frame, _), schema, _ = halves(name, least=LEAST)
        given = {"epsilon": args.epsilons, "n_samples": len(frame)}
        plan = plan_accuracy(private_summary, None, schema, **given)
        for epsilon in args.epsilons:
            real = widths_of(_numbers_of, private_summary, (frame, schema), epsilon, args)
            hidden = noise_of(frame, schema, epsilon)
            for row in compared("private_summary", plan, real, epsilon, hidden):
                yield {"table": name, "n": len(frame), "epsilon": epsilon, **row}


def models(args):
    for name in args.table:
        task = TABLES[name][0]
        public, (X, y), schema, target = halves(name)
        (X_test, y_test), n = (X[: len(X) // 3], y[: len(X) // 3]), len(X) - len(X) // 3
        X, y = X[len(X) // 3 :], y[len(X) // 3 :]
        ends = None if task == "classes" else Range(*target)
        model = tabular_pipeline(
            "classification" if task == "classes" else "regression", schema, target=ends
        )
        scoring = "roc_auc" if task == "classes" else "r2"
        given = {"epsilon": args.epsilons[:1], "n_samples": n, "scoring": scoring}
        plan = plan_accuracy(model, *public, **given)
        for epsilon in given["epsilon"]:
            scores = []
            for seed in args.seeds:
                fit = model.set_params(epsilon=epsilon, random_state=10_000 + seed).fit(X, y)
                if task == "classes":
                    scores.append(roc_auc_score(y_test, fit.predict_proba(X_test)[:, 1]))
                else:
                    scores.append(r2_score(y_test, fit.predict(X_test)))
            said = plan.width(epsilon=epsilon)
            yield {
                "table": name,
                "n": n,
                "epsilon": epsilon,
                "score": scoring,
                "planned": said.value,
                "released": float(np.median(scores)),
                "planned_loss": said.width,
            }


SECTIONS = {"widths": widths, "made_up": made_up, "models": models}

if __name__ == "__main__":
    run(
        __doc__,
        SECTIONS,
        {"seeds": 100, "epsilons": [1.0, 3.0], "table": [*TABLES]},
        ignored=(PrivacyWarning, PublicDataWarning),
    )
