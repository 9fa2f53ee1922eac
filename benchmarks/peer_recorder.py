"""An auditor of another library looks for leaks in every estimator and function of this one.

dp-recorder (Cebere, Erb, Desfontaines, Bellet, Fitzsimons, 2026, "Privacy in theory, bugs in
practice", arXiv 2602.17454; it found 13 violations in 12 libraries) runs an algorithm twice. The
first run is recorded. On a neighbouring data set every mechanism is given the outputs of the
first run, so that nothing but the data differs, and is asked three things: does the input
move by more than its declared sensitivity, are the calls and their parameters the same, and is
what must not depend on the data the same. Here the mechanisms are `release`, `release_laplace`
and `release_direction`; and all that a fit leaves behind, whatever its name, has to be the same
bit by bit: attributes, the statement, shapes, types, warnings.

audit    every public estimator and function, both relations, full and Poisson batches, rows dense
         (float64, float32) and sparse, five tables (one of them of several blocks, three
         degenerate), 13 records each that are hard to hide, some of them made by dp-recorder.
         Under "replace_one" through the public methods; a null record of "zero_out" is one that
         the internal `NullRecords` name. Beside what dp-recorder checks: squares of mu and epsilons
         of what ran against the event, the sum of squares of the noise against its multiplier
         (`noise_p`), the epsilon that its accountant composes from the releases
         (`composed`) against the claim. `largest_move` is a distance over its sensitivity, at most.
planted  six bugs, put in one after the other, each of which has to be found
sampled  its statistical test of each mechanism, on sums as far apart as can be: `at_least` is
         a lower bound on epsilon. For directions it sees squares of entries, whose signs are random

Three of its habits are mended on the way: its distance of matrices is the spectral norm, its
tolerance is 1e-9 whatever the sensitivity, and a replay may end early without a word.

Found, in 10,582 pairs of neighbours of 60 cases, with 120,250 releases and 500,000 things compared:
one leak, since mended. A row such as (m, m, -m, -m), m the largest number of the dtype, made NumPy
warn from within scikit-learn's check of the rows ("invalid value encountered in reduce"), which
tells of a row. No sum moved by more than its sensitivity, and many by all of it; nothing else
differed; what ran was what was charged. Noise is seeded here: `SecureNoise` is not audited.

usage: ENV/bin/python benchmarks/peer_recorder.py [audit planted sampled] [--modules]
           [--only TEXT] [--out benchmarks/results/recorder.json]

ENV has this package and what it needs, pandas, tqdm, matplotlib and seaborn, and finds dp_recorder,
which is on GitHub (ObliviousAI/dp-recorder, commit 85d189e) and not on PyPI. It asks for
dp-accounting below 0.5; what is used of it runs with 0.6. --modules needs torch.
"""

import sys
import warnings
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain

import numpy as np
from _run import run
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_recorder.auditing.audit_primitives import Auditor, audit_spec, ensure_equality
from dp_recorder.auditing.dataset_util import generate_neighbors
from scipy import sparse, stats

import dpsubspace as ours
from dpsubspace._core.accounting import budget, cost, events
from dpsubspace._core.accounting.accountants import each_mechanism
from dpsubspace._core.gradients import clipping
from dpsubspace._core.ground.arrays import as_like, to_numpy
from dpsubspace._core.release import mechanisms, noise
from dpsubspace._core.rows.records import NullRecords
from dpsubspace._core.solvers import descent

# The three functions that release, as their auditor wants to see them ---------------------------


def length(one, other):
    """Distance in L2 norm; theirs takes the spectral norm of matrices, which is shorter."""
    return float(np.linalg.norm((one - other).ravel()))


def length_l1(one, other):
    return float(np.abs(one - other).sum())


def spread(one, other):
    """Largest less least eigenvalue of the difference: how far scores of directions move."""
    difference = one - other
    values = np.linalg.eigvalsh((difference + difference.T) / 2)
    return float(values[-1] - values[0])


def bound_of(total, relation, factor=1.0):
    return float(total.norm_bound if relation == "zero_out" else factor * total.replace_bound)


@dataclass(frozen=True)
class Primitive:
    """A function that releases: how far its input may move, and what that is measured in."""

    name: str
    distance: object
    factor: float = 1.0  # of replace_bound
    accountant: object = None


def gaussian_loss(sensitivity, multiplier, relation, sampled):
    """Privacy loss distribution of one release; none of a batch."""
    # Multipliers are against half of the bound on a replacement.
    return None if sampled else loss_of(multiplier / (2 if relation == "replace_one" else 1))


@lru_cache(maxsize=64)
def loss_of(multiplier):
    return pld.from_gaussian_mechanism(
        multiplier, value_discretization_interval=1e-3, use_connect_dots=True
    )


PRIMITIVES = [
    Primitive("release", length, accountant=gaussian_loss),
    Primitive("release_laplace", length_l1),
    Primitive("release_direction", spread, factor=np.sqrt(2)),
]


def audited(primitive, real, seen):
    """`real`, visible to an active Auditor; what it adds is kept in `seen`."""

    def call(total, multiplier, noise, *, neighboring_relation, sampled=False):
        options = {"neighboring_relation": neighboring_relation}
        options |= {"sampled": True} if sampled else {}
        if multiplier == 0 or multiplier == np.inf:  # exact, for public rows or epsilon=inf
            return real(total, multiplier, noise, **options)

        @audit_spec(
            kind=primitive.name,
            input_arg="value",
            sensitivity_arg="sensitivity",
            metric_fn=primitive.distance,
            accountant=primitive.accountant,
        )
        def mechanism(value, sensitivity, multiplier, relation, sampled):
            out = real(
                replace(total, value=as_like(value, total.value)), multiplier, noise, **options
            )
            seen.append((primitive.name, value, to_numpy(out), multiplier, total, options))
            return out

        return mechanism(
            value=to_numpy(total.value),
            sensitivity=bound_of(total, neighboring_relation, primitive.factor),
            multiplier=float(multiplier),
            relation=neighboring_relation,
            sampled=sampled,
        )

    return call


@contextmanager
def replaced(real, other, *owners):
    """`other` in place of the function `real`, in every module or in given classes."""
    modules = (module for name, module in [*sys.modules.items()] if name.startswith("dpsubspace."))
    name = real.__name__
    places = [at for at in owners or modules if vars(at).get(name) is real]
    assert places, f"nothing has {name}"
    for place in places:
        setattr(place, name, other)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, real)


@contextmanager
def hooks():
    """The three functions are audited while this lasts."""
    seen = []
    with ExitStack() as stack:
        for primitive in PRIMITIVES:
            real = getattr(mechanisms, primitive.name)
            stack.enter_context(replaced(real, audited(primitive, real, seen)))
        yield seen


# What a fit leaves behind -----------------------------------------------------------------------


def flattened(value, name, found, inside=()):
    """Every number that can be reached from `value`, bit by bit, by its path."""
    if id(value) in inside:
        return found
    inside = (*inside, id(value))
    if sparse.issparse(value):
        value = value.toarray()
    if hasattr(value, "state_dict"):
        value = {key: to_numpy(tensor) for key, tensor in value.state_dict().items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        bits = value.tolist() if value.dtype.hasobject else value.tobytes()
        found[name] = (value.dtype.str, value.shape, bits)
    elif isinstance(value, dict):
        found[name] = tuple(sorted(map(str, value)))
        for key, part in value.items():
            flattened(part, f"{name}.{key}", found, inside)
    elif isinstance(value, (list, tuple)):
        found[name] = (type(value).__name__, len(value))
        for i, part in enumerate(value):
            flattened(part, f"{name}[{i}]", found, inside)
    elif hasattr(value, "__dict__") and not callable(value):
        flattened(vars(value), name, found, inside)
    else:
        found[name] = repr(value)
    return found


def left_behind(run):
    """Result of `run` and everything that may be looked at after it, warnings included."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run()
    found = flattened(result, "result", {})
    texts = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    return result, found | {f"warning {i}": text for i, text in enumerate(texts)}


# One pair of neighbours -------------------------------------------------------------------------


def compare(run, here, there):
    """Record `run` on one data set and replay it on its neighbour."""
    auditor, problems = Auditor(), []
    with hooks() as seen:
        with auditor:
            result, states = left_behind(lambda: run(*here))
            n_calls = len(auditor.log)
            for name in ("names", *states):
                ensure_equality(**{name: tuple(states) if name == "names" else states[name]})
        auditor.set_replay()
        try:
            with auditor:
                _, others = left_behind(lambda: run(*there))
                if auditor._cursor != n_calls:
                    problems.append(f"{n_calls} releases, then {auditor._cursor}")
                changed = [
                    k for k in states.keys() | others.keys() if states.get(k) != others.get(k)
                ]
                problems += [f"differs: {name}" for name in sorted(changed)]
                for name in ("names", *others) if not problems else ():
                    ensure_equality(**{name: tuple(others) if name == "names" else others[name]})
        except (AssertionError, RuntimeError) as error:
            problems.append(f"replay: {str(error).splitlines()[0]}")
    try:
        auditor.validate_records()
    except AssertionError as error:
        problems += str(error).splitlines()
    calls = [e for e in auditor.log if e.kind != "EQ" and e.inputs_dp is not None]
    moves = [
        e.metric_fn(np.asarray(e.inputs_d["value"]), np.asarray(e.inputs_dp["value"]))
        / e.sensitivity_val
        for e in calls
    ]
    largest = max(moves, default=0.0)
    if largest > 1 + 1e-9:  # their tolerance is absolute, which a small sensitivity hides in
        problems.append(f"moves by {largest:.6g} of the declared sensitivity")
    found = {"releases": n_calls, "compared": len(states), "largest_move": largest}
    return auditor, seen, result, found | {"problems": problems}


# Data sets, and records that are hard to hide ---------------------------------------------------

N, D, CLASSES = 90, 4, [0, 1, 2, 3]  # the last label is rare: one record may have it


def usual(rng, y):
    """Rows about class means, one column constant."""
    X = rng.normal(size=(3, D))[y] * 2 + rng.normal(size=(len(y), D)) + 1
    X[:, 2] = 5.0
    return X


TABLES = {
    "usual": usual,
    "700 rows": usual,  # more than a block of a sum
    "zeros": lambda rng, y: np.zeros((len(y), D)),
    "all rows equal": lambda rng, y: np.full((len(y), D), 3.0),
    "far apart": lambda rng, y: 10.0 ** rng.integers(-30, 30, size=(len(y), D)),
}


def table(name, dtype):
    """Rows, labels and targets."""
    rng, y = np.random.default_rng(0), np.arange(700 if name == "700 rows" else N) % 3
    X = TABLES[name](rng, y)
    targets = np.clip(X, -9, 9) @ [1.0, -2.0, 0.0, 0.5] + (name != "zeros") * rng.normal(
        size=len(y)
    )
    return X.astype(dtype), y, targets


def hard_records(X, y, targets):
    """First records, with their label and their target, by name."""
    largest = np.finfo(X.dtype).max
    one = np.ones(D)
    yield "opposite", -30 * X[0], 1, -targets[0]
    yield "huge", 0.1 * largest * one, 0, 1e300
    yield "largest, both signs", largest * np.resize([1.0, -1.0], D), 0, -1e300
    yield "largest, in pairs", largest * np.resize([1.0, 1.0, -1.0, -1.0], D), 0, 1e300
    yield "zero", 0 * one, 0, 0.0
    yield "tiny", np.finfo(X.dtype).smallest_subnormal * one, 0, 5e-324
    yield "duplicate", X[5], y[5], targets[5]
    yield "rare label", X[0], 3, 1e6
    yield "not constant", X[0] + 7 * np.eye(D)[2], y[0], targets[0]
    yield "one column", 1e6 * np.eye(D)[0], y[0], 1e-6
    rows = np.column_stack([X, y.astype(X.dtype)])
    for strategy in ("modify_one_attr", "insert_large_outliers", "insert_shifted_outliers"):
        # Theirs; the largest integers are out of the range of float32.
        with np.errstate(over="ignore"):
            other = generate_neighbors(
                rows.astype(np.float64), 1, "bounded:replace", rng=1, idx=0, strategy=strategy
            )[0][0]
        row = np.clip(other[:D], -largest, largest)
        yield f"theirs, {strategy}", row, int(np.clip(other[D], 0, 3)), float(other[D])


def pairs(name, relation, dtype, as_rows):
    """(name, records, neighbouring records), each as rows, labels, targets and who is present."""
    X, y, targets = table(name, dtype)
    everyone, others = np.ones(len(y), bool), np.arange(len(y)) > 0
    for kind, row, label, target in hard_records(X, y, targets):
        changed = X.copy(), y.copy(), targets.copy()
        changed[0][0], changed[1][0], changed[2][0] = row, label, target
        rows = as_rows(changed[0])
        if relation == "zero_out":  # the record takes part, or is a null record
            yield kind, (rows, *changed[1:], everyone), (rows, *changed[1:], others)
        else:
            yield kind, (as_rows(X), y, targets, None), (rows, *changed[1:], None)


def public_rows():
    rng = np.random.default_rng(9)
    y = np.arange(40) % 4
    X = rng.normal(size=(40, D)) + 1
    return X, y, X @ [1.0, -2.0, 0.0, 0.5]


# Every public estimator and function ------------------------------------------------------------


def groups_of(present):
    """What `fit` is given where some records are null ones."""
    return None if present is None else NullRecords(None, present)


def classifier(Model, **options):
    def run(X, y, targets, present, relation, seed):
        model = Model(classes=CLASSES, neighboring_relation=relation, random_state=seed, **options)
        return model.fit(X, y, groups=groups_of(present))

    return run


def informed_classifier(labels=False, Model=ours.GEPClassifier, **options):
    def run(X, y, targets, present, relation, seed):
        model = Model(classes=CLASSES, neighboring_relation=relation, random_state=seed, **options)
        rows, codes, _ = public_rows()
        given = {"X_public": (rows,)} | ({"y_public": (codes,)} if labels else {})
        return model.fit(X, y, groups=groups_of(present), **given)

    return run


def two_classes(Model, **options):
    def run(X, y, targets, present, relation, seed):
        model = Model(classes=[0, 1], neighboring_relation=relation, random_state=seed, **options)
        y = np.minimum(y, 1)
        return model.fit(X, y, groups=groups_of(present))

    return run


def regressor(Model, public=None, several=False, **options):
    def run(X, y, targets, present, relation, seed):
        model = Model(neighboring_relation=relation, random_state=seed, **options)
        targets = np.column_stack([targets, -targets]) if several else targets
        rows, _, values = public_rows()
        given = {} if public is None else {"X_public": (rows,)}
        given |= {"y_public": (values,)} if public == "labelled" else {}
        return model.fit(X, targets, groups=groups_of(present), **given)

    return run


def transformer(Model, public=False, **options):
    def run(X, y, targets, present, relation, seed):
        model = Model(neighboring_relation=relation, random_state=seed, **options)
        given = {"X_public": (public_rows()[0],)} if public else {}
        return model.fit(X, groups=groups_of(present), **given)

    return run


def function(name, column=False, epsilon=1.0, delta="auto", **options):
    def run(X, y, targets, present, relation, seed):
        X = X[:, 0] if column else X
        how = {"epsilon": epsilon, "delta": delta, "neighboring_relation": relation}
        how |= {"random_state": seed, "groups": groups_of(present)}
        return getattr(ours, f"private_{name}")(X, **how, **options)

    return run


def small_module():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(D, 3), torch.nn.Tanh(), torch.nn.Linear(3, 4))


SHORT = {"epsilon": 3.0, "n_iter": 4}
FEW = {"epsilon": 200.0, "n_iter": 4}  # few rows have a radius
SGD, SGDF, GEPC = ours.DPSGDClassifier, ours.DPSGDFClassifier, ours.GEPClassifier
REG, GEPR, PCA, SCALER = (
    ours.DPSGDRegressor,
    ours.linear_model.GEPRegressor,
    ours.DPPCA,
    ours.BoundedScaler,
)
# With an epsilon for batches every fit would search for its noise for a second.
BATCHES = {"batch_size": 60, "epsilon": None, "noise_multiplier": 3.0, "n_iter": 4}
CLIPPED = {"row_norm": 3.0}
ANCHORS = {"directions": ours.linear_model.GradientDirections(n_components=5)}
BARE = {"directions": ours.linear_model.GradientDirections(n_components=5, residual=False)}
# Estimators that use public rows have no parameter for a multiplier.
FEW_BATCHES = {"batch_size": 60, "epsilon": 20.0, "n_iter": 4}

CASES = {
    "DPSGDClassifier": classifier(SGD, **SHORT),
    "DPSGDClassifier, batches": classifier(SGD, batch_size=60, **SHORT),
    "DPSGDClassifier, hinge, clipped rows": classifier(SGD, loss="hinge", **CLIPPED, **SHORT),
    "DPSGDClassifier, rows as they are": classifier(SGD, row_norm=None, **SHORT),
    "DPSGDClassifier, weights": classifier(SGD, class_weight={0: 50.0}, **SHORT),
    "DPSGDClassifier, two classes": two_classes(SGD, **SHORT),
    "DPSGDClassifier, multiplier": classifier(SGD, epsilon=None, noise_multiplier=3.0, n_iter=4),
    "DPSGDFClassifier": classifier(SGDF, **SHORT),
    "DPSGDFClassifier, batches": classifier(SGDF, **BATCHES),
    "DPSGDFClassifier, clipped rows": classifier(SGDF, **CLIPPED, **SHORT),
    "DPSGDFClassifier, adaptive": classifier(SGDF, preprocessing="adaptive", **FEW),
    "DPSGDFClassifier, adaptive, batches": classifier(SGDF, preprocessing="adaptive", **BATCHES),
    "DPSGDFClassifier, auto": classifier(SGDF, preprocessing="auto", **FEW),
    "DPSGDRegressor": regressor(REG, **FEW),
    "DPSGDRegressor, batches": regressor(REG, **BATCHES),
    "DPSGDRegressor, data_norm": regressor(REG, data_norm=9.0, **SHORT),
    "DPSGDRegressor, target_bounds": regressor(REG, target_bounds=(-5, 5), **SHORT),
    "DPSGDRegressor, both": regressor(REG, data_norm=9.0, target_bounds=(-5, 5), **SHORT),
    "DPSGDRegressor, Huber, two targets": regressor(REG, several=True, loss="huber", **FEW),
    "GEPClassifier, no public rows": classifier(GEPC, **SHORT),
    "GEPClassifier, features": informed_classifier(**SHORT),
    "GEPClassifier, 2 features": informed_classifier(n_components=2, **SHORT),
    "GEPClassifier, features, batches": informed_classifier(**FEW_BATCHES),
    "GEPClassifier, labelled": informed_classifier(True, **SHORT),
    "GEPClassifier, labelled, mirror": informed_classifier(True, mirror=True, **SHORT),
    "GEPClassifier, gradients": informed_classifier(**ANCHORS, **SHORT),
    "GEPClassifier, gradients, batches": informed_classifier(**ANCHORS, **FEW_BATCHES),
    "GEPClassifier, gradients, no residual": informed_classifier(**BARE, **SHORT),
    "GEPRegressor, no public rows": regressor(GEPR, **FEW),
    "GEPRegressor, features": regressor(GEPR, "rows", **FEW),
    "GEPRegressor, labelled": regressor(GEPR, "labelled", **SHORT),
    "GEPRegressor, gradients": regressor(GEPR, "labelled", **ANCHORS, **SHORT),
    "GEPRegressor, gradients, batches": regressor(
        GEPR, "rows", data_norm=9.0, target_bounds=(-5, 5), **ANCHORS, **FEW_BATCHES
    ),
    "BoundedScaler": transformer(SCALER, epsilon=200.0),
    "BoundedScaler, few rows": transformer(SCALER, epsilon=1.0, row_norm="l2"),
    "BoundedScaler, bounds": transformer(SCALER, bounds=(-1, 1)),
    "BoundedScaler, public rows": transformer(SCALER, public=True, level=0.1),
    "DPPCA": transformer(PCA, n_components=2, epsilon=20.0),
    "DPPCA, data_norm": transformer(PCA, n_components=2, data_norm=9.0, whiten=True),
    "DPPCA, share of the variance": transformer(
        PCA, n_components=0.9, data_norm=9.0, epsilon=200.0
    ),
    "DPPCA, as they are": transformer(PCA, centered=False, epsilon=20.0),
    "DPPCA, public rows": transformer(PCA, public=True, n_components=2, epsilon=20.0),
    "DPPCA, gaussian": transformer(PCA, mechanism="gaussian", n_components=2),
    "DPPCA, gaussian, as they are": transformer(
        PCA, mechanism="gaussian", centered=False, data_norm=9.0, n_components=2
    ),
    "DPPCA, power": transformer(PCA, mechanism="power", n_components=2, epsilon=20.0),
    "DPPCA, power, as they are, public rows": transformer(
        PCA, public=True, mechanism="power", centered=False, data_norm=9.0, n_components=2
    ),
    "DPPCA, bingham": transformer(
        PCA, mechanism="bingham", centered=False, data_norm=9.0, n_components=2, delta=0
    ),
    "private_mean": function("mean", data_norm=None, bounds=None, method="recentre", epsilon=20.0),
    "private_mean, data_norm": function("mean", data_norm=9.0, bounds=None, method="gaussian"),
    "private_mean, bounds": function("mean", data_norm=None, bounds=(-3, 3), method="recentre"),
    "private_mean, one column": function(
        "mean", True, data_norm=None, bounds=(-3, 3), method="gaussian"
    ),
    "private_quantile": function("quantile", level=[0.1, 0.5], bounds=None),
    "private_quantile, bounds": function("quantile", True, level=0.5, bounds=(-3, 3)),
    "private_covariance": function(
        "covariance", data_norm=None, bounds=None, centered=True, epsilon=20.0
    ),
    "private_covariance, bounds": function(
        "covariance", data_norm=None, bounds=(-3, 3), centered=False
    ),
}


def module(public=True, **options):
    def run(*data):
        how = {"module": small_module(), **options}
        Model, directions = (
            ours.neural_network.DPModuleClassifier,
            ours.linear_model.GradientDirections(n_components=6),
        )
        if not public:
            return classifier(Model, **how)(*data)
        return informed_classifier(Model=Model, directions=directions, **how)(*data)

    return run


MODULES = {
    "DPModuleClassifier": module(**SHORT),
    "DPModuleClassifier, batches": module(**BATCHES),
    "DPModuleClassifier, no public rows": module(public=False, **SHORT),
}
# What takes no sparse rows.
DENSE = ("BoundedScaler", "private_quantile", "bounds", "DPModule", "one column")
FORMS = {
    "float64": (np.float64, np.asarray),
    "float32": (np.float32, np.asarray),
    "sparse": (np.float64, sparse.csr_array),
}


# What was charged -------------------------------------------------------------------------------


def charged(result):
    return result.privacy if isinstance(result, ours.statistics.Released) else result.privacy_


def squared_mu(seen, event):
    """Sum of 1 / multiplier^2 of what ran and of what the event says: full batches, then batches.

    Two sums on one batch are one Gaussian inside of the sampling, so their squares add up too.
    """
    ran, said = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    for name, _, _, multiplier, _, options in seen:
        if name == "release":
            ran[options.get("sampled", False)] += multiplier**-2
    for part in each_mechanism(event):
        if part.kind == "gaussian":
            said[part.sampled] += part.count * part.value**-2
    return ran, said


def pure_parts(seen, event):
    """Epsilons of draws and of Laplace releases that ran, and what the event says of them."""
    ran = sorted((name, m) for name, _, _, m, _, _ in seen if name != "release")
    kinds = {"range": "release_direction", "laplace": "release_laplace"}
    pure = [part for part in each_mechanism(event) if part.pure]
    said = [[(kinds[part.kind], part.value)] * part.count for part in pure]
    return ran, sorted(chain(*said))


def noise_p_value(seen):
    """Of the Gaussian noise that was added, against its multiplier times the declared unit."""
    squares, count = 0.0, 0
    for name, value, out, multiplier, total, options in seen:
        if name == "release":
            relation, sampled = options["neighboring_relation"], options.get("sampled", False)
            unit = total.norm_bound if relation == "zero_out" else total.replace_bound / 2
            if sampled:
                unit = max(total.norm_bound, unit)
            squares += float(np.sum(((out - value) / (multiplier * unit)) ** 2))
            count += value.size
    chi2 = stats.chi2(count)
    return 2 * min(chi2.cdf(squares), chi2.sf(squares)) if count else None


def checked_charge(auditor, seen, result):
    """Problems of what was charged, and the epsilon that their composition comes to."""
    guarantee, problems = charged(result), []
    ran, said = squared_mu(seen, guarantee.event)
    for sampled in (False, True):
        if not np.isclose(ran[sampled], said[sampled], rtol=1e-9, atol=0):
            problems.append(f"charged {said[sampled]:.6g}, ran {ran[sampled]:.6g} of squared mu")
    pure, said_pure = pure_parts(seen, guarantee.event)
    same = [n for n, _ in pure] == [n for n, _ in said_pure]
    draws = [
        (a, b) for (n, a), (_, b) in zip(pure, said_pure, strict=False) if n == "release_direction"
    ]
    if not (same and all(np.isclose(a, b, rtol=1e-12) for a, b in draws)):
        problems.append(f"charged {said_pure}, ran {pure}")
    theirs = None
    if not pure and not ran[True] and ran[False]:
        auditor.compute_overall_pld()
        theirs = auditor.get_overall_current_guarantee(guarantee.delta)
        if theirs > guarantee.epsilon * 1.02 + 0.01:  # their grid is pessimistic
            problems.append(f"composed {theirs:.4g}, claimed {guarantee.epsilon:.4g}")
    return problems, theirs, guarantee.epsilon


# The audit --------------------------------------------------------------------------------------


def audit(name, run, relation, form, where):
    """All pairs of neighbours of one case."""
    row = {"case": name, "relation": relation, "rows": form, "table": where, "pairs": 0}
    row |= {"releases": 0, "compared": 0, "largest_move": 0.0, "problems": []}
    everything = []
    for kind, here, there in pairs(where, relation, *FORMS[form]):
        seed = zlib.crc32(f"{name} {relation} {form} {where} {kind}".encode())
        try:
            auditor, seen, result, found = compare(partial(call, run, relation, seed), here, there)
        except Exception as error:
            row["problems"].append(f"{kind}: {type(error).__name__}: {error}")
            continue
        problems = found.pop("problems")
        if not row["pairs"]:
            more, row["composed"], row["claimed"] = checked_charge(auditor, seen, result)
            problems += more
        everything += seen
        row["pairs"] += 1
        row["problems"] += [f"{kind}: {problem}" for problem in problems]
        row |= {key: max(row[key], value) for key, value in found.items()}
    row["noise_p"] = noise_p_value(everything)
    if row["noise_p"] is not None and row["noise_p"] < 1e-7:  # there are hundreds of them
        row["problems"].append(f"noise is not what its multiplier says, p = {row['noise_p']:.1g}")
    return row


def call(run, relation, seed, *data):
    return run(*data, relation, seed)


def audit_rows(args):
    for name, case in (CASES | (MODULES if args.modules else {})).items():
        if args.only not in name:
            continue
        forms = [form for form in FORMS if form != "sparse" or not any(w in name for w in DENSE)]
        places = [("usual", form) for form in forms] + [("700 rows", "float32")]
        places += [(where, "float64") for where in ("zeros", "all rows equal", "far apart")]
        for where, form in places:
            for relation in events.NEIGHBORING_RELATIONS:
                yield audit(name, case, relation, form, where)


# Bugs that it has to find -----------------------------------------------------------------------


def unclipped(norms, clip_norm):
    return (norms < np.inf).astype(float)


def half_bound(value, norm_bound, slack):
    return vector_sum(value, norm_bound / 2, slack)


def half_noise(self, shape, scale, *rest):
    return gaussian(self, shape, scale / 2, *rest)


def remembered(self, X, y):
    self._kept_entry = float(np.abs(X).max())
    return fit(self, X, y)


def stopped(plan, step, source, *rest, **options):
    options["after_step"] = lambda: int(np.sum(source.y)) % 2 == 1
    return train(plan, step, source, *rest, **options)


def undercharged(target, parts, scales):
    return event(target, parts, {name: 2 * scale for name, scale in scales.items()})


vector_sum, gaussian = mechanisms.vector_sum, noise.SeededNoise.gaussian
fit, train, event = ours.DPSGDClassifier.fit, descent.train, budget._event
PLANTED = {
    "gradients are not clipped": (clipping.shrink_factors, unclipped),
    "a bound is half of what it should be": (vector_sum, half_bound),
    "noise is half of what it should be": (gaussian, half_noise, noise.SeededNoise),
    "a fit remembers the largest entry": (fit, remembered, ours.DPSGDClassifier),
    "labels decide when a fit ends": (train, stopped),
    "a fit runs with half of the noise that is charged": (event, undercharged),
}


def planted_rows(args):
    for bug, change in PLANTED.items():
        with replaced(*change):
            row = audit(
                "DPSGDClassifier", CASES["DPSGDClassifier"], "replace_one", "float64", "usual"
            )
        found = [problem for problem in row["problems"] if "Error:" not in problem]
        yield {"planted": bug, "found": bool(found), "first": found[:1]}


# Their statistical test of one release ------------------------------------------------------------


def sampled_rows(args):
    """Lower bounds on epsilon from many outputs, for records that move a sum by its whole bound."""
    for relation in events.NEIGHBORING_RELATIONS:
        for primitive in PRIMITIVES:
            if args.only not in primitive.name:
                continue
            epsilon, one, other, multiplier = worst_pair(primitive.name, relation)
            auditor, untrusted = Auditor(), replace(primitive, accountant=None)
            release = audited(untrusted, squared(getattr(mechanisms, primitive.name)), [])
            for data, start in ((one, lambda: None), (other, auditor.set_replay)):
                start()
                with auditor:
                    release(data, multiplier, noise.SeededNoise(1), neighboring_relation=relation)
            auditor.validate_records()
            auditor.run_distributional_audit(n_samples=args.samples)
            bound = auditor.log[0].empirical_epsilon_lb
            yield {
                "sampled": primitive.name,
                "relation": relation,
                "epsilon": round(epsilon, 4),
                "at_least": round(bound, 4),
                "samples": args.samples,
                "problems": [f"{bound} > {epsilon}"] if bound > epsilon else [],
            }


def squared(real):
    """`real`, with directions as the squares of their entries: their test is linear."""
    if real.__name__ != "release_direction":
        return real
    return lambda *given, **options: real(*given, **options) ** 2


def worst_pair(name, relation):
    """Epsilon, two neighbouring sums as far apart as can be, and the multiplier for epsilon."""
    away = np.array([1.0, 0.0, 0.0])
    back = -away if relation == "replace_one" else 0 * away
    if name == "release":
        multiplier = 2.0
        epsilon = cost.Cost.of(events.gaussian(multiplier), relation).epsilon(1e-5)
        return epsilon, *(mechanisms.vector_sum(v, 1.0, 0.0) for v in (away, back)), multiplier
    if name == "release_laplace":
        other = np.array([0.0, 1.0, 0.0]) if relation == "replace_one" else back
        return 1.0, *(mechanisms.energy_sum(v, 1.0) for v in (away, other)), 1.0
    other = np.diag([0.0, 1.0, 0.0]) if relation == "replace_one" else np.zeros((3, 3))
    return 2.0, *(mechanisms.gram_sum(m, 1.0) for m in (np.diag(away), other)), 2.0


SECTIONS = {"audit": audit_rows, "planted": planted_rows, "sampled": sampled_rows}


if __name__ == "__main__":
    args = run(__doc__, SECTIONS, {"only": "", "modules": False, "samples": 20_000})
    print(sum(bool(row.get("problems")) for row in chain(*args.results.values())), "violations")
