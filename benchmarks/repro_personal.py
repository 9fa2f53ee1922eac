"""Personal models under privacy of whole users: when they pay, and what theory says of them.

The model is ``y = x'U v_j + noise`` for user j: rows are normal in 40 columns, U has 4 directions,
heads v_j are unit vectors, noise has standard deviation 0.5, and a user has 20 rows. "excess" is
the mean over users of the squared distance of a user's weights to the true ones, which is the
excess risk of a new row (that of estimators is measured on new rows); a prediction of zero has 1.
"span" is the part of it that no head can mend: the mean of ``|(I - UU')U* v_j|^2``. Every seed
draws everything. Delta is 1e-5. Ranges of columns, -4 to 4, and of targets, -5 to 5, are public
in what is drawn, where it is not said otherwise; those of tables are in ``_people.py``. Sections:

- ``theorem``: Theorem 5.5 of Thaker and others (2023): against the error gamma of the public
  subspace (sine of all its angles to the true one), epsilon and the number of users, what users
  reach alone, together, and by both, which the estimator does with public tasks: there are 100
  with 200 rows, in a span of that error; "found" is the error of what they tell of it.
- ``verdicts``: whether the estimator is ever worse than the better of both.
- ``ends``: the same where one side has nothing to give: public subspaces from exact to orthogonal,
  few persons and little budget, and the shared model alone beside a prediction by its constant.
- ``remark``: the error of the public subspace above which users are better off together, for each
  epsilon and number of users, and how its square goes with them.
- ``rates``: span and excess against epsilon, users, columns, directions and rows a user, beside the
  algorithms of Jain and others (2021) and of Snedeker and others (2025), which are written in
  ``_personal.py`` and are told constants that are best by the true error in each cell. That of
  2021 has four times the epsilon, since else its noise is larger than what it looks for.
- ``slopes``: of the cost of privacy in these on logarithmic scales, beside the papers' rates. Noise
  grows less than as 1 / epsilon, so that slopes in epsilon are in 1 / (noise of one release).
- ``users``: R2 on test rows of people that have other rows in training: schools, viewers of films,
  and 42 patients, who are too few for any of this. A quarter of each person's rows is to test.
- ``unseen``: people of whom training knows nothing (GroupKFold with 5 parts), without any row of
  their own, and with 5 or 20 of them that stay with them.
- ``labels``: log loss and accuracy where ``3 x'U v_j`` are log-odds of labels, of
  ``PersonalizedLogisticRegression``, one shared model, logistic regression of one's own in all
  columns or in the span of that error, and a constant.
- ``liked``: the same for people: films with 4 points or more, pupils above the median.
- ``cost``: seconds and peak memory by the number of users, with 20 rows each, 50 columns and
  5 directions.

Penalties of local heads are chosen on rows left out in turn among those to train with; nothing is
chosen on test rows.

usage: [DPSUBSPACE_DATA=folder] python benchmarks/repro_personal.py
       [theorem verdicts ends remark rates slopes users unseen labels liked cost]
       [--seeds 5] [--repeats 3] [--only school ...] [--out benchmarks/results/personal.json]
"""

import itertools
import warnings
from collections import Counter
from functools import cache, partial

import _people
import _personal
import _tables
import numpy as np
from _personal import Constants, Users
from _run import judged, resources, run
from newcomer import short
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from dpsubspace import DPLinearRegression, DPSGDClassifier, PrivacyWarning
from dpsubspace._core.public.tasks import task_subspace
from dpsubspace.linear_model import PersonalizedLinearRegression, PersonalizedLogisticRegression
from dpsubspace.public_data import subspace_distance

WIDTH, K, ROWS, NOISE, DELTA = 40, 4, 20, 0.5, 1e-5
RANGES = {"bounds": (-4.0, 4.0), "target_bounds": (-5.0, 5.0)}  # public, of normal numbers
TASKS, TASK_ROWS = 100, 200
FRESH = 10  # rows of each user on which predictions are held against the truth


# The model --------------------------------------------------------------------------------------


class Model:
    """One draw of a span, of the heads of all users in it, and of their rows."""

    def __init__(self, seed, n_persons, *, d=WIDTH, k=K, rows=ROWS):
        self.rng = np.random.default_rng([seed, n_persons, d, k, rows])
        self.shape = (d, k)
        spans = np.linalg.qr(self.rng.normal(size=(d, 2 * k)))[0]
        self.span, self.apart = spans[:, :k], spans[:, k : 2 * k]
        self.weights = self._unit(n_persons) @ self.span.T
        self.users = self._drawn(rows, NOISE)
        self.fresh = self._drawn(FRESH, 0.0)

    def _unit(self, number):
        found = self.rng.normal(size=(number, self.shape[1]))
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def _drawn(self, rows, noise):
        index = np.repeat(np.arange(len(self.weights)), rows)
        X = self.rng.normal(size=(len(index), self.shape[0]))
        exact = np.einsum("ij,ij->i", X, self.weights[index])
        return Users(X, exact + noise * self.rng.normal(size=len(X)), index, len(self.weights))

    def at(self, gamma):
        """A span of which all principal angles to the true one have this sine."""
        return np.sqrt(1 - gamma**2) * self.span + gamma * self.apart

    def tasks(self, gamma):
        """Rows and targets of public tasks in the span of that error."""
        of_tasks = self._unit(TASKS) @ self.at(gamma).T
        sets = tuple(self.rng.normal(size=(TASK_ROWS, self.shape[0])) for _ in range(TASKS))
        noise = NOISE * self.rng.normal(size=(TASKS, TASK_ROWS))
        targets = tuple(
            X @ weights + some for X, weights, some in zip(sets, of_tasks, noise, strict=True)
        )
        return sets, targets

    def excess(self, weights):
        """Mean squared distance of the users' weights to the true ones."""
        return float(np.mean(np.sum((weights - self.weights) ** 2, axis=1)))

    def risk(self, model):
        """The same of a fitted model, on fresh rows."""
        predicted = model.predict(self.fresh.X, groups=self.fresh.index)
        return float(np.mean((predicted - self.fresh.y) ** 2))

    def span_error(self, directions):
        """What the best heads in the span of orthonormal `directions` leave of the weights."""
        left = self.weights - self.weights @ directions @ directions.T
        return float(np.mean(np.sum(left**2, axis=1)))


def figure(name, values):
    """Mean, standard deviation over seeds and median, to four digits."""
    values = np.asarray(values, dtype=float)
    found = {name: values.mean(), f"{name}_median": np.median(values)}
    found |= {f"{name}_std": values.std(ddof=1)} if len(values) > 1 else {}
    return {key: float(f"{value:.4g}") for key, value in found.items()}


# Theorem 5.5 ------------------------------------------------------------------------------------

SETTINGS = ((250, 1.0), (1000, 1.0), (4000, 1.0), (1000, 0.3), (1000, 3.0), (1000, 10.0))
GAMMAS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
ALONE, TOGETHER, CHOICE = "alone, public subspace", "together", "both"
PRIOR, FOUND = "alone, prior of public tasks", "found"


def personal(epsilon, seed, **options):
    """The estimator with its defaults, but for the number of directions where it is known."""
    return PersonalizedLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, **options)


def theorem(args):
    """Excess of users alone, together and by both, in each setting and at each gamma."""
    for n_persons, epsilon in SETTINGS:
        found = [reached(seed, n_persons, epsilon) for seed in args.seeds]
        for gamma, method in found[0]:
            if method == FOUND:
                continue
            row = {"users": n_persons, "epsilon": epsilon, "gamma": gamma}
            if gamma is not None:
                error = np.mean([each[gamma, FOUND] for each in found])
                row |= {"found": round(float(error), 3)}
            yield (
                row | {"method": method} | figure("excess", [each[gamma, method] for each in found])
            )


@cache
def reached(seed, n_persons, epsilon):
    """Excess by gamma (None where it plays no part) and method."""
    model = Model(seed, n_persons)
    users, found = model.users, {}
    own, known = _personal.heads(users).weights, _personal.heads(users, model.span).weights
    found[None, "alone, all columns"] = model.excess(own)
    found[None, "alone, true subspace"] = model.excess(known)
    exact = _personal.without_privacy(users, K)
    found[None, "together, not private"] = model.excess(_personal.heads(users, exact).weights)
    shared = DPLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, **RANGES)
    shared.fit(users.X, users.y, groups=users.index)
    predicted = shared.predict(model.fresh.X)
    found[None, "one shared model"] = float(np.mean((predicted - model.fresh.y) ** 2))
    together = personal(epsilon, seed, n_components=K, **RANGES)
    together.fit(users.X, users.y, groups=users.index)
    found[None, TOGETHER] = model.risk(together)
    for gamma in GAMMAS:
        sets, targets = model.tasks(gamma)
        values, index = np.concatenate(targets), np.repeat(np.arange(TASKS), TASK_ROWS)
        directions = task_subspace(list(sets), values[:, None], n_components=K).components
        found[gamma, FOUND] = subspace_distance(directions, model.span.T)
        local = _personal.heads(users, np.linalg.qr(directions.T)[0]).weights
        found[gamma, ALONE] = model.excess(local)
        prior = _personal.mixed_model(Users(np.concatenate(sets), values, index, TASKS), 50)
        found[gamma, PRIOR] = model.excess(prior.coefficients(users))
        both = personal(epsilon, seed, n_components=K, **RANGES)
        both.fit(users.X, users.y, groups=users.index, X_public=sets, y_public=targets)
        found[gamma, CHOICE] = model.risk(both)
    return found


# Of the better of both: what does not matter, and the most that noise over seeds can excuse.
TOLERANCE, MOST_NOISE = 0.02, 0.1


def verdicts(args):
    """Whether the estimator is worse than the better of both by more than noise, and who wins."""
    for n_persons, epsilon in SETTINGS:
        found = [reached(seed, n_persons, epsilon) for seed in args.seeds]
        together = np.array([each[None, TOGETHER] for each in found])
        for gamma in GAMMAS:
            alone, choice = (
                np.array([each[gamma, name] for each in found]) for name in (ALONE, CHOICE)
            )
            wins = alone.mean() < together.mean()
            worse = choice - (alone if wins else together)
            error = worse.std(ddof=1) / np.sqrt(len(worse)) if len(worse) > 1 else 0.0
            better = float((alone if wins else together).mean())
            row = {"users": n_persons, "epsilon": epsilon, "gamma": gamma}
            row |= {"better": "alone" if wins else "together", "better_excess": round(better, 4)}
            row |= {"both_less_better": round(float(worse.mean()), 4)}
            allowed = max(TOLERANCE * better, min(2 * error, MOST_NOISE * better))
            yield row | judged(worse.mean() <= allowed)


# The ends ---------------------------------------------------------------------------------------

NEAR, SHARE = 0.01, 0.05  # What the estimator may be worse than the best of the others


def ends(args):
    """Excess of the estimator beside alone, together and local in the public subspace."""
    for n_persons, epsilon in itertools.product(args.persons, args.budgets):
        cells = {
            gamma: np.array([end(seed, n_persons, epsilon, gamma) for seed in args.seeds])
            for gamma in (None, *args.gammas)
        }
        together = cells[None][:, 0]
        for gamma, found in cells.items():
            rivals = {"alone": [alone(seed, n_persons, None) for seed in args.seeds]}
            if gamma is not None:
                rivals |= {"in span": [alone(seed, n_persons, gamma) for seed in args.seeds]}
                rivals |= {TOGETHER: together}
            best = min(rivals, key=lambda name: np.mean(rivals[name]))
            least = float(np.mean(rivals[best]))
            row = {"persons": n_persons, "epsilon": epsilon, "gamma": gamma, "best": best}
            row |= {"best_excess": round(least, 4)} | figure("excess", found[:, 0])
            row |= figure("shared", found[:, 1]) | figure("constant", found[:, 2])
            yield row | judged(found[:, 0].mean() <= max(least + NEAR, (1 + SHARE) * least))


@cache
def end(seed, n_persons, epsilon, gamma):
    """Excess of persons' models, of the shared model, and of its constant; None has no tasks."""
    model, given = Model(seed, n_persons), {}
    if gamma is not None:
        given = dict(zip(("X_public", "y_public"), model.tasks(gamma), strict=True))
    found = personal(epsilon, seed, n_components=K, **RANGES)
    found.fit(model.users.X, model.users.y, groups=model.users.index, **given)
    shared, fresh = found.public_part(), model.fresh
    constant = shared.predict(np.zeros((1, WIDTH)))  # columns have the mean 0
    errors = (np.mean((each - fresh.y) ** 2) for each in (shared.predict(fresh.X), constant))
    return model.risk(found), *map(float, errors)


@cache
def alone(seed, n_persons, gamma):
    """Excess of a ridge of one's own in all columns, or in the span of that error."""
    model = Model(seed, n_persons)
    directions = None if gamma is None else model.at(gamma)
    return model.excess(_personal.heads(model.users, directions).weights)


def remark(args):
    """Where users change from alone to together, and slopes of the square of that error."""
    for n_persons, epsilon in SETTINGS:
        found = [reached(seed, n_persons, epsilon) for seed in args.seeds]
        row = {"users": n_persons, "epsilon": epsilon}
        yield row | figure("gamma", [np.sqrt(turning(each)) for each in found])
    for name, place, settings in (
        ("users", 0, [each for each in SETTINGS if each[1] == 1.0]),
        ("epsilon", 1, [each for each in SETTINGS if each[0] == 1000]),
    ):
        squares = np.array(
            [[turning(reached(seed, *each)) for seed in args.seeds] for each in settings]
        )
        inside = squares.min(axis=1) > 0
        inside &= squares.max(axis=1) < max(GAMMAS) ** 2
        if inside.sum() > 1:
            values = np.log([each[place] for each in settings])[inside]
            by_seed = np.polyfit(values, np.log(squares[inside]), 1)[0]
            yield {"slope in": name, "points": int(inside.sum())} | figure("slope", by_seed)


def turning(found):
    """Square of the error at which users alone are as good as all together; at most the largest."""
    alone = np.array([found[gamma, ALONE] for gamma in GAMMAS])
    return float(np.interp(found[None, TOGETHER], alone, np.square(GAMMAS)))


# Rates ------------------------------------------------------------------------------------------

BASE = {"users": 2000, "epsilon": 2.0, "columns": WIDTH, "directions": K, "rows": ROWS}
SWEEPS = {
    "users": (500, 1000, 2000, 4000, 8000),
    "epsilon": (0.5, 1.0, 2.0, 4.0, 8.0),
    "columns": (10, 20, 40, 80),
    "directions": (2, 4, 8),
    "rows": (10, 20, 40),
}
OURS, GRADIENT, SOLVED = "PersonalizedLinearRegression", "gradients (2025)", "solved (2021)"
UNKNOWN = f"{OURS}, no ranges"
ALGORITHMS = (OURS, UNKNOWN, GRADIENT, SOLVED)
GRIDS = {
    GRADIENT: [Constants(*each) for each in itertools.product((1, 2, 4), (0.25, 0.5), (0.5, 1.0))],
    SOLVED: [Constants(*each) for each in itertools.product((1, 2), (0.5,), (0.3, 1.0))],
}
THEORY = {  # of the privacy part of the squared error; least moment of unit heads is 1 / k
    "users": {GRADIENT: -2, SOLVED: -2},
    "epsilon": {GRADIENT: -2, SOLVED: -2},
    "columns": {GRADIENT: 2, SOLVED: 3},
    "directions": {GRADIENT: 3, SOLVED: 4},
    "rows": {GRADIENT: 0, SOLVED: 0},
}
FACTORS = {SOLVED: 4.0}  # of epsilon for an algorithm that has no rate to see at epsilon 1
MOST_SPAN = 0.3  # an error of the span beyond which rates say nothing


def rates(args):
    """Errors of the span and of predictions in every sweep, for all algorithms."""
    for sweep in args.sweeps:
        for value in SWEEPS[sweep]:
            for algorithm in ALGORITHMS:
                setting = BASE | {sweep: value}
                setting["epsilon"] *= FACTORS.get(algorithm, 1.0)
                row = {"sweep": sweep, "value": setting[sweep], "algorithm": algorithm}
                told, found = best_of(algorithm, setting, args.seeds)
                span, exact, excess = np.array(found).T
                row |= figure("span", span) | figure("span, not private", exact)
                row |= {"costs": [float(f"{cost:.4g}") for cost in span - exact]}
                yield row | figure("excess", excess) | {"told": told and list(told)}


def drawn(setting, seed):
    d, k = setting["columns"], setting["directions"]
    return Model(seed, setting["users"], d=d, k=k, rows=setting["rows"])


def best_of(algorithm, setting, seeds):
    """What the algorithm was told, and span error, the same without privacy, and excess by seed."""
    if algorithm in (OURS, UNKNOWN):
        ranges = RANGES if algorithm == OURS else {}
        return None, [of_package(setting, seed, ranges) for seed in seeds]
    errors = {told: [] for told in GRIDS[algorithm]}
    for seed in seeds:
        model, firsts = drawn(setting, seed), {}
        for told in errors:
            if told.level not in firsts:
                firsts[told.level] = beginning(model, setting["epsilon"], told, seed)
            error = model.span_error(
                ended(algorithm, model, firsts[told.level], setting["epsilon"], told, seed)
            )
            errors[told].append(error)
    told = min(errors, key=lambda each: np.mean(errors[each]))
    found = []
    for seed in seeds:
        model, spans = drawn(setting, seed), []
        for epsilon in (setting["epsilon"], np.inf):
            first = beginning(model, epsilon, told, seed)
            spans.append(ended(algorithm, model, first, epsilon, told, seed))
        weights = _personal.heads(model.users, spans[0]).weights
        found.append((*map(model.span_error, spans), model.excess(weights)))
    return told, found


def beginning(model, epsilon, told, seed):
    rng = np.random.default_rng([seed, 1])
    return _personal.start(model.users, model.shape[1], epsilon, DELTA, told, rng)


def ended(algorithm, model, first, epsilon, told, seed):
    function = _personal.fed_rep if algorithm == GRADIENT else _personal.alternating
    return function(model.users, first, epsilon, DELTA, told, np.random.default_rng([seed, 2]))


def of_package(setting, seed, ranges):
    """Span error, the same without privacy, and excess of the estimator."""
    model = drawn(setting, seed)
    found = fitted(model, setting["epsilon"], seed, ranges)
    span = model.span_error(np.linalg.qr(found.components_.T)[0])
    exact = without_noise(tuple((setting | {"epsilon": None}).values()), seed)
    return span, exact, model.risk(found)


def fitted(model, epsilon, seed, ranges):
    users, k = model.users, model.shape[1]
    return personal(epsilon, seed, n_components=k, **ranges).fit(
        users.X, users.y, groups=users.index
    )


@cache
def without_noise(values, seed):
    """Span error of the estimator without privacy; epsilon of the setting plays no part."""
    model = drawn(dict(zip(BASE, values, strict=True)), seed)
    return model.span_error(np.linalg.qr(fitted(model, np.inf, seed, {}).components_.T)[0])


def slopes(args):
    """Slopes of the cost of privacy by least squares on logarithmic scales, for each seed."""
    for sweep, algorithm in itertools.product(args.sweeps, ALGORITHMS):
        rows = [
            row
            for row in args.results.get("rates", [])
            if (row["sweep"], row["algorithm"]) == (sweep, algorithm) and row["span"] < MOST_SPAN
        ]
        if len(rows) < 3:
            continue
        values = np.array([row["value"] for row in rows], dtype=float)
        if sweep == "epsilon":  # noise grows less than as 1 / epsilon: slopes are in 1 / noise
            values = 1 / np.array([_personal.multiplier(value, DELTA) for value in values])
        values = np.log(values)
        costs = np.array([row["costs"] for row in rows])
        costs = np.maximum(costs, costs.mean(axis=1, keepdims=True) / 20)  # may be 0 by chance
        by_seed = np.polyfit(values, np.log(costs), 1)[0]
        of_means = np.polyfit(values, np.log(costs.mean(axis=1)), 1)[0]
        row = {"sweep": sweep, "algorithm": algorithm, "slope": round(float(of_means), 2)}
        row |= {"std": round(float(np.std(by_seed, ddof=1)), 2)} if len(by_seed) > 1 else {}
        row |= {"from": rows[0]["value"], "to": rows[-1]["value"]}
        row |= {f"theory of {name}": value for name, value in THEORY[sweep].items()}
        yield row


# People -----------------------------------------------------------------------------------------

EPSILONS = (1.0, 3.0, 8.0)
KINDS = (1, 2, 3, 5)  # numbers of directions that are tried where there is no privacy


class Split:
    """Rows to train and to test with; `scaled` rows are on [-1, 1] and have a constant 1."""

    def __init__(self, table, train, test):
        self.table, self.train, self.test = table, train, test
        self.X, self.y, self.people = table.X[train], table.y[train], table.people[train]
        self.X_test, self.y_test, self.people_test = (
            table.X[test],
            table.y[test],
            table.people[test],
        )

    def scaled(self, X):
        """Columns on [-1, 1] by their public ranges, and a constant 1."""
        return np.column_stack([_tables.on_range(X, *self.table.bounds), np.ones(len(X))])

    def persons(self, targets):
        """Scaled rows to train with and other targets."""
        return Users(self.scaled(self.X), targets, self.people, self.table.count)

    def predicted(self, weights):
        """Predictions for rows to test with by a vector of scaled columns a person."""
        return np.einsum("ij,ij->i", self.scaled(self.X_test), weights[self.people_test])


def by_rows(table, seed):
    """A quarter of every person's rows is to test."""
    shuffled = np.random.default_rng(seed).permutation(len(table.y))
    order = shuffled[np.argsort(table.people[shuffled], kind="stable")]
    sizes = np.bincount(table.people)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    test = place < np.repeat(np.maximum(sizes // 4, 1), sizes)
    return Split(table, order[~test], order[test])


# Predictions for the rows to test with ----------------------------------------------------------


def pooled(split):
    """Weights of scaled columns by least squares, in which every person weighs alike."""
    Z, sizes = split.scaled(split.X), np.bincount(split.people, minlength=split.table.count)
    rows = Z / sizes[split.people, None]
    penalty = 1e-6 * split.table.count * np.eye(Z.shape[1])
    return np.linalg.solve(rows.T @ Z + penalty, rows.T @ split.y)


def one_model(split):
    return split.scaled(split.X_test) @ pooled(split)


def own_mean(split):
    means = np.bincount(split.people, split.y) / np.bincount(split.people)
    return means[split.people_test]


def own_ridge(split):
    ranges = split.table.bounds
    rows = Users(_tables.on_range(split.X, *ranges), split.y, split.people, split.table.count)
    own, people = _personal.heads(rows, constant=True), split.people_test
    scaled = _tables.on_range(split.X_test, *ranges)
    return np.einsum("ij,ij->i", scaled, own.weights[people]) + own.constant[people]


def mixed(split):
    found = _personal.mixed_model(split.persons(split.y))
    return split.predicted(found.coefficients(split.persons(split.y)))


def public_people(split):
    """Scaled rows and targets of public people."""
    rows = [split.scaled(X) for X, _ in split.table.public]
    index = np.repeat(np.arange(len(rows)), [len(Z) for Z in rows])
    targets = np.concatenate([y for _, y in split.table.public])
    return Users(np.concatenate(rows), targets, index, len(rows))


def by_public_prior(split):
    """Coefficients of one's own, with the mean and the covariance of those of public people."""
    prior = _personal.mixed_model(public_people(split))
    return split.predicted(prior.coefficients(split.persons(split.y)))


def in_public_subspace(split):
    """A ridge of one's own, about the model of all public people, in the span of their models."""
    public = public_people(split)
    common = np.linalg.lstsq(public.X, public.y, rcond=None)[0]
    left = Users(public.X, public.y - public.X @ common, public.index, public.count)
    directions = chosen(left)
    residuals = split.persons(split.y - split.scaled(split.X) @ common)
    own = _personal.heads(residuals, directions).weights
    return split.scaled(split.X_test) @ common + split.predicted(own)


def chosen(users):
    """Directions without privacy, as many as do best on rows left out in turn."""
    found = [_personal.without_privacy(users, k) for k in KINDS]
    errors = [np.mean(_personal.heads(users, each).errors) for each in found]
    return found[int(np.argmin(errors))]


def of_residuals(split, shared, directions=None):
    """Predictions by a shared model and a ridge of one's own on what it leaves."""
    residuals = split.persons(split.y - shared(split.X))
    if directions == "level":
        directions = np.eye(residuals.X.shape[1])[:, -1:]
    elif directions == "found":
        directions = chosen(residuals)
    own = _personal.heads(residuals, directions).weights
    return shared(split.X_test) + split.predicted(own)


def not_private(split, directions):
    weights = pooled(split)
    return of_residuals(split, lambda X: split.scaled(X) @ weights, directions)


def shared_model(split, epsilon, seed, *, rows=False):
    """One private model; a person, or only a row, is what is protected."""
    ranges = {"bounds": split.table.bounds, "target_bounds": split.table.target_bounds}
    model = DPLinearRegression(epsilon=epsilon, delta=DELTA, random_state=seed, **ranges)
    return model.fit(split.X, split.y, groups=None if rows else split.people)


def private_shared(split, epsilon, seed, rows=False):
    return shared_model(split, epsilon, seed, rows=rows).predict(split.X_test)


def private_then_own(split, epsilon, seed, directions=None):
    shared = shared_model(split, epsilon, seed)
    return of_residuals(split, shared.predict, directions)


def personal_model(split, epsilon, seed, public):
    """The estimator with its defaults and public ranges."""
    table = split.table
    model = personal(epsilon, seed, bounds=table.bounds, target_bounds=table.target_bounds)
    given = {}
    if public:
        sets, targets = zip(*table.public, strict=True)
        given = {"X_public": sets, "y_public": targets}
    return model.fit(split.X, split.y, groups=split.people, **given)


def private_personal(split, epsilon, seed, public=False):
    model = personal_model(split, epsilon, seed, public)
    return model.predict(split.X_test, groups=split.people_test)


EXACT = {
    "one model, not private": one_model,
    "one model, then own ridge, not private": partial(not_private, directions=None),
    "one model, then own level, not private": partial(not_private, directions="level"),
    "together, not private": partial(not_private, directions="found"),
    "mixed model, not private": mixed,
    "alone: own mean": own_mean,
    "alone: own ridge": own_ridge,
}
PUBLIC_EXACT = {
    "alone: public subspace": in_public_subspace,
    "alone: prior of public people": by_public_prior,
}
PRIVATE = {
    "one shared model": private_shared,
    "one shared model, a row as unit": partial(private_shared, rows=True),
    "one shared model, then own level": partial(private_then_own, directions="level"),
    "one shared model, then own ridge": private_then_own,
    OURS: private_personal,
}
PUBLIC_PRIVATE = {f"{OURS}, X_public": partial(private_personal, public=True)}


def scores(predicted, split):
    """R2 over rows, and R2 in which every person weighs alike."""
    squared = (np.clip(predicted, -1e100, 1e100) - split.y_test) ** 2
    weights = 1 / np.bincount(split.people_test)[split.people_test]
    least = np.average(
        (split.y_test - np.average(split.y_test, weights=weights)) ** 2, weights=weights
    )
    r2 = 1 - squared.mean() / split.y_test.var()
    return float(r2), float(1 - np.average(squared, weights=weights) / least)


def users(args):
    """R2 on other rows of the same people."""
    for name in args.only or _people.PEOPLE:
        table = _people.load(name)
        exact = EXACT | (PUBLIC_EXACT if table.public else {})
        private = PRIVATE | (PUBLIC_PRIVATE if table.public else {})
        cells = [(title, None, method) for title, method in exact.items()]
        cells += [
            (title, epsilon, method)
            for title, method in private.items()
            for epsilon in args.epsilons
        ]
        for title, epsilon, method in cells:
            yield row_of(name, table, title, epsilon, method, args.seeds)


def row_of(name, table, title, epsilon, method, seeds):
    found, told = [], Counter()
    for seed in seeds:
        split = by_rows(table, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predicted = method(split) if epsilon is None else method(split, epsilon, seed)
        told.update({short(str(each.message)) for each in caught})
        found.append(scores(predicted, split))
    row = {"data": name, "people": table.count, "public": len(table.public), "method": title}
    rows, people = np.array(found).T
    row |= {"epsilon": epsilon} | figure("r2", rows) | figure("r2, people alike", people)
    return row | {"warned": dict(sorted(told.items()))}


# People who come later --------------------------------------------------------------------------

OWN_ROWS = (0, 5, 20)
PARTS = 5


def unseen(args):
    """R2 for people of whom training knows nothing, by the rows that they bring."""
    for name in args.only or [name for name in _people.PEOPLE if not name.endswith("_public")]:
        table = _people.load(name)
        for epsilon in args.epsilons:
            found = [each for seed in args.seeds for each in came_later(table, epsilon, seed)]
            for title, own in found[0]:
                values = [each[title, own] for each in found]
                row = {"data": name, "people": table.count, "method": title, "epsilon": epsilon}
                yield row | {"own rows": own} | figure("r2", values)


def came_later(table, epsilon, seed):
    """R2 by method and number of own rows, for each of the parts."""
    parts = GroupKFold(PARTS, shuffle=True, random_state=seed)
    rng = np.random.default_rng(seed)
    for train, rest in parts.split(table.X, groups=table.people):
        split = Split(table, train, rng.permutation(rest))
        yield {
            (title, own): score
            for own in OWN_ROWS
            for title, score in with_own_rows(split, own, epsilon, seed).items()
        }


def with_own_rows(split, own, epsilon, seed):
    """R2 on what is left when the first 20 rows of each new person are taken away."""
    table, order = split.table, split.test
    order = order[np.argsort(table.people[order], kind="stable")]
    sizes = np.bincount(table.people[order], minlength=table.count)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    mine, last = order[place < own], order[place >= max(OWN_ROWS)]
    later = Split(table, mine, last)  # a person's own rows are all that he trains with
    shared, weights = shared_model(split, epsilon, seed), pooled(split)
    model = personal_model(split, epsilon, seed, public=False)
    if own:
        for person in np.unique(table.people[mine]):
            rows = mine[table.people[mine] == person]
            model.add_person(person, table.X[rows], table.y[rows])
    prior = _personal.mixed_model(split.persons(split.y))
    found = prior.coefficients(later.persons(later.y))
    predictions = {"mixed model, not private": later.predicted(found)}
    predictions |= {OURS: model.predict(later.X_test, groups=later.people_test)}
    exact = lambda X: split.scaled(X) @ weights  # noqa: E731
    for title, each in (("one shared model", shared.predict), ("one model, not private", exact)):
        predictions[title] = each(later.X_test)
        if own:
            predictions[f"{title}, then own ridge"] = of_residuals(later, each)
    if own:
        predictions["alone: own ridge"] = own_ridge(later)
    return {title: scores(found, later)[0] for title, found in predictions.items()}


# Labels -----------------------------------------------------------------------------------------

ODDS = 3.0  # standard deviation of a person's log-odds
ENOUGH = 250  # persons on whom regressions of one's own are tried: others are like them
FEW = 20  # persons on whom their penalty is chosen
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # C of these
LOGISTIC = "PersonalizedLogisticRegression"


def labels(args):
    """Log loss and accuracy of labels of which log-odds are in the span of few directions."""
    for n_persons in args.persons:
        of_all = [labelled(seed, n_persons, tuple(args.gammas)) for seed in args.seeds]
        for method in of_all[0]:
            row = {"persons": n_persons, "epsilon": None, "gamma": None, "method": method}
            yield row | of_losses([found[method] for found in of_all])
        for epsilon, gamma in itertools.product(args.budgets, (None, *args.gammas)):
            row = {"persons": n_persons, "epsilon": epsilon, "gamma": gamma}
            found = [labelled_privately(seed, n_persons, epsilon, gamma) for seed in args.seeds]
            for method in found[0]:
                yield row | {"method": method} | of_losses([each[method] for each in found])


def of_losses(found):
    losses, right = np.array(found).T
    return figure("log_loss", losses) | figure("accuracy", right)


def drawn_labels(seed, n_persons):
    """A draw of :class:`Model`, labels to train with, and log-odds and labels of fresh rows."""
    model = Model(seed, n_persons)
    rng = np.random.default_rng([seed, n_persons, 1])
    odds = [
        ODDS * np.einsum("ij,ij->i", each.X, model.weights[each.index])
        for each in (model.users, model.fresh)
    ]
    return model, *(score + rng.logistic(size=len(score)) > 0 for score in odds), odds[1]


def loss_of(probabilities, labels):
    """Log loss and accuracy of probabilities of the second class."""
    kept = np.clip(probabilities, 1e-12, 1 - 1e-12)
    values = np.where(labels, np.log(kept), np.log1p(-kept))
    return -float(values.mean()), float(((kept > 0.5) == labels).mean())


@cache
def labelled(seed, n_persons, gammas):
    """Losses of what has no privacy: the truth, a constant, and regressions of one's own."""
    model, y, fresh_y, odds = drawn_labels(seed, n_persons)
    found = {"true log-odds": loss_of(1 / (1 + np.exp(-odds)), fresh_y)}
    found["constant"] = loss_of(np.full(len(fresh_y), y.mean()), fresh_y)
    spans = {"alone": np.eye(WIDTH)} | {f"in span {gamma}": model.at(gamma) for gamma in gammas}
    for name, span in spans.items():
        given = (model.users.X @ span, y, model.users.index)
        asked = (model.fresh.X @ span, model.fresh.index)
        some = asked[1] < ENOUGH
        found[name] = loss_of(own_logistic(*given, asked[0][some], asked[1][some]), fresh_y[some])
    return found


def own_logistic(X, y, people, X_test, people_test):
    """Probabilities by logistic regression of one's own, of the C that is best on left out rows."""
    known = np.unique(people_test)
    errors = [
        np.mean([left_out(X[people == j], y[people == j], C) for j in known[:FEW]])
        for C in STRENGTHS
    ]
    C, found = STRENGTHS[int(np.argmin(errors))], np.empty(len(X_test))
    for j in known:
        own = people_test == j
        found[own] = own_probabilities(X[people == j], y[people == j], X_test[own], C)
    return found


def own_probabilities(X, y, X_test, C):
    if len(np.unique(y)) < 2:  # by the rule of succession
        return np.full(len(X_test), (y.sum() + 1) / (len(y) + 2))
    return LogisticRegression(C=C).fit(X, y).predict_proba(X_test)[:, 1]


def left_out(X, y, C, parts=5):
    """Log loss on rows left out in turn."""
    part = np.arange(len(y)) % parts
    each = [
        loss_of(own_probabilities(X[part != i], y[part != i], X[part == i], C), y[part == i])[0]
        for i in range(parts)
        if (part == i).any() and (part != i).any()
    ]
    return np.mean(each) if each else np.log(2)


def labelled_privately(seed, n_persons, epsilon, gamma):
    """Losses of personal models and of one model for all; with a gamma there are public tasks."""
    model, y, fresh_y, _ = drawn_labels(seed, n_persons)
    users, fresh, given, found = model.users, model.fresh, {}, {}
    if gamma is None:
        one = DPSGDClassifier(epsilon=epsilon, delta=DELTA, random_state=seed)
        one.fit(users.X, y, groups=users.index)
        found["one shared model"] = loss_of(one.predict_proba(fresh.X)[:, 1], fresh_y)
    else:
        sets, targets = model.tasks(gamma)
        rng = np.random.default_rng([seed, n_persons, 2])
        # The noise of these targets makes labels a little noisier than those of persons.
        noisy = (ODDS * score + rng.logistic(size=len(score)) for score in targets)
        tasks = tuple(score > 0 for score in noisy)
        given = {"X_public": sets, "y_public": tasks}
    own = PersonalizedLogisticRegression(
        epsilon=epsilon, delta=DELTA, random_state=seed, bounds=RANGES["bounds"], n_components=K
    )
    own.fit(users.X, y, groups=users.index, **given)
    predicted = own.predict_proba(fresh.X, groups=fresh.index)[:, 1]
    found[LOGISTIC] = loss_of(predicted, fresh_y)
    shared = own.public_part().predict_proba(fresh.X)[:, 1]
    found["its public part"] = loss_of(shared, fresh_y)
    return found


def liked(args):
    """Log loss and accuracy on other rows of the same people, of a label of their targets."""
    for name in args.only or ("school", "school_public", "movielens", "movielens_public"):
        table = _people.load(name)
        least = 4.0 if name.startswith("movielens") else float(np.median(table.y))
        splits = {seed: by_rows(table, seed) for seed in args.seeds}
        found = [liked_without(split, least) for split in splits.values()]
        row = {"data": name, "people": table.count, "public": len(table.public)}
        for method in found[0]:
            losses = of_losses([each[method] for each in found])
            yield row | {"epsilon": None, "method": method} | losses
        for epsilon in args.budgets:
            found = [liked_by(split, least, epsilon, seed) for seed, split in splits.items()]
            for method in found[0]:
                losses = of_losses([each[method] for each in found])
                yield row | {"epsilon": epsilon, "method": method} | losses


def liked_without(split, least):
    y, y_test = split.y >= least, split.y_test >= least
    sums, sizes = np.bincount(split.people, y), np.bincount(split.people)
    share = (sums + 4 * y.mean()) / (sizes + 4)
    rows, test = (_tables.on_range(X, *split.table.bounds) for X in (split.X, split.X_test))
    return {
        "constant": loss_of(np.full(len(y_test), y.mean()), y_test),
        "alone: own share": loss_of(share[split.people_test], y_test),
        "alone": loss_of(own_logistic(rows, y, split.people, test, split.people_test), y_test),
    }


def liked_by(split, least, epsilon, seed):
    table, y, y_test = split.table, split.y >= least, split.y_test >= least
    rows, test = (_tables.on_range(X, *table.bounds) for X in (split.X, split.X_test))
    one = DPSGDClassifier(epsilon=epsilon, delta=DELTA, random_state=seed)
    one.fit(rows, y, groups=split.people)
    found = {"one shared model": loss_of(one.predict_proba(test)[:, 1], y_test)}
    given = {}
    if table.public:
        sets, targets = zip(*table.public, strict=True)
        given = {"X_public": sets, "y_public": tuple(each >= least for each in targets)}
    own = PersonalizedLogisticRegression(
        epsilon=epsilon, delta=DELTA, random_state=seed, bounds=table.bounds
    )
    own.fit(split.X, y, groups=split.people, **given)
    predicted = own.predict_proba(split.X_test, groups=split.people_test)[:, 1]
    return found | {
        LOGISTIC: loss_of(predicted, y_test),
        "its public part": loss_of(own.public_part().predict_proba(split.X_test)[:, 1], y_test),
    }


# What it costs ----------------------------------------------------------------------------------

SIZES = (1000, 10_000, 100_000)


def cost(args):
    """Seconds and memory of a fit beyond its rows, and of predictions, by the number of users."""
    for n_persons in args.sizes:
        index = np.repeat(np.arange(n_persons), 20)
        rng = np.random.default_rng(n_persons)
        X = rng.standard_normal((len(index), 50))
        span, of_users = rng.standard_normal((50, 5)) / 7, rng.standard_normal((n_persons, 5))
        y = np.einsum("ij,ij->i", X @ span, of_users[index]) + rng.standard_normal(len(X))
        model = personal(1.0, 0, n_components=5)
        found = [
            (
                resources(lambda: model.fit(X, y, groups=index)),  # noqa: B023
                resources(lambda: model.predict(X, groups=index)),  # noqa: B023
            )
            for _ in range(args.repeats)
        ]
        row = {"users": n_persons, "rows_mb": round(X.nbytes / 1e6)}
        for name, each in zip(("fit", "predict"), zip(*found, strict=True), strict=True):
            cpu = min(one["cpu_s"] for one in each)
            row |= {f"{name}_s": round(min(one["clock_s"] for one in each), 3)}
            row |= {f"{name}_cpu_s": round(cpu, 3)}
            row |= {f"{name}_cpu_us_a_user": round(cpu / n_persons * 1e6, 1)}
            row |= {f"{name}_mb": round(max(one["peak_mb"] - one["start_mb"] for one in each), 1)}
        yield row


SECTIONS = {
    "theorem": theorem,
    "verdicts": verdicts,
    "ends": ends,
    "remark": remark,
    "rates": rates,
    "slopes": slopes,
    "users": users,
    "unseen": unseen,
    "labels": labels,
    "liked": liked,
    "cost": cost,
}
OPTIONS = {
    "seeds": 5,
    "repeats": 3,
    "only": [],
    "epsilons": list(EPSILONS),
    "persons": [250, 1000, 5000],
    "budgets": [0.1, 0.3, 1.0, 3.0, 10.0],
    "gammas": [0.0, 0.2, 0.4, 0.8, 1.0],
    "sweeps": list(SWEEPS),
    "sizes": list(SIZES),
}


def main() -> None:
    run(__doc__, SECTIONS, OPTIONS, ignored=[PrivacyWarning])


if __name__ == "__main__":
    main()
