"""What can be set has an effect, raises, or is documented as unused: a walk over all of it.

Each row is a public object in a mode. All of its parameters are set to another value, one at a
time, under the same seed. What is released must change (numbers, or what is said of their
privacy), or there is an error, or a warning that names the parameter; else the docstring must say
that it is not used there, in the words that stand here.
"""

import numpy as np
import pandas as pd
import pytest
from cases import tasks
from helpers import blobs, public_rows
from salted import literally
from sklearn.base import is_regressor
from walks import BUDGET, EXACT, INF, Walk, check, of_privacy, rows, settable, split

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivateRange,
    PrivateSearch,
    private_coefficients,
    private_counts,
    private_mean,
    private_summary,
)
from dpsubspace.linear_model import (
    GEPRegressor,
    GradientDirections,
    PersonalizedLinearRegression,
    PersonalizedLogisticRegression,
    PublicSubspaceLinearRegression,
)
from dpsubspace.public_data import GSDScorer, private_projection_error
from dpsubspace.statistics import private_covariance, private_quantile, private_spread
from dpsubspace.tables import TableEncoder, TabularPipeline

with literally():
    X, Y = blobs(n=60)
    PUBLIC, PUBLIC_LABELS = public_rows(5)
    DIARIES = np.random.default_rng(1).normal(size=(360, 3))
    ELSEWHERE = np.random.default_rng(2).normal(size=(6, 20, 3))
    TASKS = {f"fit__{name}": value for name, value in tasks(PUBLIC).items()}
TARGETS = X[:, 0] - X[:, 1] / 2 + X[:, 2]
PUBLIC_TARGETS = PUBLIC[:, 0]
WHOSE = np.arange(60) // 2
PERSONS = {"fit__groups": WHOSE}
INFORMED = {"fit__X_public": (PUBLIC,)}
# Persons differ in the weight of the second column, and public tasks in another direction.
AUTHORS = np.arange(360) // 6
ENTRIES = DIARIES[:, 0] + 2 * np.sin(np.arange(60))[AUTHORS] * DIARIES[:, 1]
MANY = {"fit__groups": AUTHORS}
ASKED_ELSEWHERE = {
    "fit__X_public": (*ELSEWHERE,),
    "fit__y_public": tuple(x @ [1, a, a] for x, a in zip(ELSEWHERE, range(-2, 4), strict=True)),
}
# Other values of these.
OTHER_ROWS = {"fit__X_public": (np.sin(PUBLIC),)}
OTHER_LABELS = OTHER_ROWS | {"fit__y_public": (np.where(np.arange(60) < 9, 0, PUBLIC_LABELS),)}
OTHER_VALUES = OTHER_ROWS | {"fit__y_public": (PUBLIC_TARGETS**2,)}


def fitted(Estimator, task):
    """Fit of an estimator to rows, and all numbers that it shows of them."""

    def release(options):
        own, given = split(options, "fit")
        y = {"classes": Y, "numbers": TARGETS, "rows": None}[task]
        model = Estimator(**{"random_state": 0, **own}).fit(X, *([] if y is None else [y]), **given)
        names = ("n_iter_", "data_norm_", "target_bounds_", "classes_", "components_", "bounds_")
        shown = [getattr(model, name, None) for name in names]
        ways = ("decision_function", "predict", "transform")
        ask = next(getattr(model, way) for way in ways if hasattr(model, way))
        return of_privacy(model.privacy_), repr(shown), np.asarray(ask(X)).tolist()

    return release


def of_persons(Estimator, y):
    """What a fit of personal models publishes: a model of each person is for that person alone."""

    def release(options):
        own, given = split(options, "fit")
        model = Estimator(**{"random_state": 0, **own}).fit(DIARIES, y, **given).public_part()
        return of_privacy(model.privacy_), model.coef_.tolist(), model.components_.tolist()

    return release


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 2] > 1, "x", "y")})


def in_a_table(Model):
    """Fit of a pipeline around a model; what is set in other parts has their name before it."""

    def release(options):
        parts = {"pipeline": {}, "encoder": {}, "model": {"random_state": 0}}
        own, given = split(options, "fit")
        for key, value in own.items():
            part, _, name = key.rpartition("__")
            parts[part or "model"][name] = value
        schema = {"a": (-9, 9), "b": parts["encoder"].pop("b", (-9, 9)), "c": ["x", "y"]}
        steps = [("encoder", TableEncoder(schema, **parts["encoder"]))]
        made = TabularPipeline([*steps, ("model", Model(**parts["model"]))], **parts["pipeline"])
        made.fit(FRAME, TARGETS if is_regressor(made) else Y > 0, **given)
        ask = made.predict if is_regressor(made) else made.decision_function
        return of_privacy(made.privacy_), ask(FRAME).tolist()

    return release


def returned(function, *given):
    """What a function returns."""

    def release(options):
        found = function(*given, **{"random_state": 0, **options})
        value = found.value
        seen = repr(value) if not isinstance(value, np.ndarray) else value.tolist()
        return of_privacy(found.privacy), seen

    return release


LISTED = {"a": (-9, 9), "b": (-6, 6), "c": ["x", "y"]}


def described(function, *given):
    """Counts or a summary of a table: `given` are what comes after the schema."""

    def release(options):
        found = function(FRAME, LISTED, *given, **{"random_state": 0, **options})
        return of_privacy(found.privacy_), found.to_frame().to_string()

    return release


def sloped(options):
    """Coefficients of an array, with so large an epsilon that intervals have ends."""
    given = {"bounds": (-9, 9), "target_bounds": (-9, 9), "epsilon": 1e3, "random_state": 0}
    found = private_coefficients(X, target=X @ [1, -1, 0.5, 0, 0], **(given | options))
    return of_privacy(found.privacy_), found.to_frame().to_string()


def half(model, X, y):
    """What every row says of every model."""
    return np.full(len(y), 0.5)


def searched(options):
    """What a search tells; what is set in the estimator inside has "inner" before its name."""
    own, of_inner = split(options, "inner")
    own, given = split(own, "fit")
    inner = DPSGDClassifier(**{"n_iter": 2, **of_inner})
    search = PrivateSearch(inner, **{"candidates": {"alpha": [0.0, 1.0]}, "random_state": 0, **own})
    search.fit(X, Y > 0, **given)
    return of_privacy(search.privacy_), search.best_score_, search.decision_function(X).tolist()


# Words of docstrings ----------------------------------------------------------------------------

NO_BATCHES = 'Not used with ``epsilon=float("inf")``: every step then uses all rows.'
NO_CLIPPING = 'Nothing is clipped with ``epsilon=float("inf")``.'
NOT_CENTRED = 'Not used with ``epsilon=float("inf")``: rows are then centred by their mean.'
NO_RATE = "L-BFGS, which fits linear models without privacy, uses none."

EXACT_FIT = EXACT | {"batch_size": NO_BATCHES, "learning_rate": NO_RATE}
EXACT_STEPS = EXACT_FIT | {"clip_norm": NO_CLIPPING}

# Values that are set ------------------------------------------------------------------------------

STEPS = {
    "batch_size": 20,
    "alpha": 0.5,
    "n_iter": 4,
    "learning_rate": 0.01,
    "clip_norm": 0.1,
    "fit_intercept": False,
    "noise_multiplier": 3.0,
}
CLASSES = {"row_norm": 2.0, "classes": [0, 1, 2, 3], "class_weight": {0: 9.0}, "loss": "hinge"}
NUMBERS = {"data_norm": 2.0, "target_bounds": (-1, 3), "loss": "huber"}
GRADIENTS = {"directions": GradientDirections(n_components=4)}
GEP = {"n_components": 2, **GRADIENTS, "init": "public", "mirror": True}
ONE_STEP = {"n_iter": 2}
WITHOUT = {"n_iter": 2, "epsilon": INF}
MULTIPLIER = {"n_iter": 2, "epsilon": None, "noise_multiplier": 2.0}
NO_RESIDUE = 'nor with ``epsilon=float("inf")`` where a residual leaves nothing out.'
NO_HELP = {"fit__X_public": "the fit needs no help of theirs, and ends where it would without them"}
NOT_LOOKED_AT = {"fit__y_public": 'With ``init="zero"`` only `mirror`'}
NO_PUBLIC = dict.fromkeys(("n_components", "directions"), "Without public rows it has no effect")
DESCENT_MODES = {
    "plain": ONE_STEP,
    "multiplier": MULTIPLIER,  # which needs no calibration
    "batches": MULTIPLIER | {"batch_size": 15},
    "persons": ONE_STEP | PERSONS,
    "no intercept": ONE_STEP | {"fit_intercept": False},
    "without privacy": WITHOUT,
    "without privacy, batches": WITHOUT | {"batch_size": 15},
}


def gep_modes(labels):
    labelled = INFORMED | {"fit__y_public": (labels,)}
    return {
        "plain": ONE_STEP,
        "public rows": ONE_STEP | INFORMED,
        "labels": ONE_STEP | labelled | {"init": "zero"},
        "gradients": ONE_STEP | INFORMED | GRADIENTS,
        "mirror": ONE_STEP | labelled | {"mirror": True, "init": "zero"},
        "without privacy": WITHOUT,
        "without privacy, public rows": WITHOUT | INFORMED,
        "without privacy, gradients": WITHOUT | INFORMED | GRADIENTS,
        "without privacy, mirror": WITHOUT | labelled | {"mirror": True, "init": "zero"},
    }


REGRESSION = {
    "bounds": (-3, 3),
    "target_bounds": (-1, 3),
    "solver": "adassp",
    "fit_intercept": False,
}
NOT_WITHOUT = 'Not used with ``epsilon=float("inf")``'
GROUPED = {"missing_groups": "What ``fit`` and ``predict`` do without `groups`."}
RANGES_OF_PUBLIC = "Where the fit is given public rows, their ranges are taken instead."
BOUNDS_ARE_FREE = dict.fromkeys(
    BUDGET, "What the fit cost (nothing, where bounds are public), and what its guarantee assumes."
)
NO_MODULE = dict.fromkeys(
    ("n_classes", "input_shape"), "Neither this nor `input_shape` is used without a `module`."
)
WITHOUT_PUBLIC = "Without public rows it has no effect."
OF_PERSONS = {
    "n_components": 2,
    "method": "moments",
    "bounds": (-3, 3),
    "target_bounds": (-1, 3),
    "n_iter": 3,
    "batch_size": 12,
    "missing_groups": "each_row",
    "fit_intercept": False,
}
OF_NUMBERS = ("method", "target_bounds")
OF_TWO = {
    "classes": "None reads them from `y`",
    "n_iter": "a round that finds no more than noise changes nothing.",
}
LABELLED = ASKED_ELSEWHERE | {
    "fit__y_public": tuple((y > 0).astype(int) for y in ASKED_ELSEWHERE["fit__y_public"])
}
SEARCHED = {
    "inner__epsilon": "Its own `epsilon` counts only for the ratio",
    "inner__random_state": "its `random_state` is not used",
    "target_bounds": "Classifiers have no use for it",
}
OWN_SEED = {"pipeline__random_state": "A step that has a `random_state` uses its own"}
FREE_TABLE = {"encoder__random_state": "ranges are estimated privately, a fifth of the budget pays"}
TABLES = [
    (
        DPSGDClassifier,
        BUDGET | {key: STEPS[key] for key in ("alpha", "n_iter", "clip_norm", "fit_intercept")},
        {
            "plain": ONE_STEP,
            "estimated": {"n_iter": 2, "encoder__b": PrivateRange(), "epsilon": 50.0},
        },
        {"plain": OWN_SEED | FREE_TABLE, "estimated": {}},
    ),
    (
        DPLinearRegression,
        BUDGET | REGRESSION,
        {"plain": {"pipeline__target": (-5, 5)}, "own range": {"target_bounds": (-5, 5)}},
        {"plain": OWN_SEED | FREE_TABLE, "own range": OWN_SEED | FREE_TABLE},
    ),
]

WALKS = [
    Walk(
        DPSGDClassifier,
        fitted(DPSGDClassifier, "classes"),
        BUDGET | PERSONS | STEPS | CLASSES,
        DESCENT_MODES
        | {
            "hinge": ONE_STEP | {"loss": "hinge"},
            "bound": ONE_STEP | {"row_norm": 3.0},
            "no bound": ONE_STEP | {"row_norm": None},
        },
        {
            "without privacy": EXACT_STEPS,
            "without privacy, batches": EXACT_STEPS,
        },
        cheap=("multiplier",),
    ),
    Walk(
        DPSGDFClassifier,
        fitted(DPSGDFClassifier, "classes"),
        BUDGET | PERSONS | STEPS | CLASSES | {"preprocessing": "adaptive"},
        DESCENT_MODES | {"adaptive": {"n_iter": 2, "preprocessing": "adaptive", "epsilon": 200.0}},
        {
            "without privacy": EXACT_FIT | {"preprocessing": NOT_CENTRED},
            "without privacy, batches": EXACT_FIT | {"preprocessing": NOT_CENTRED},
        },
        cheap=("multiplier", "without privacy"),
    ),
    Walk(
        DPSGDRegressor,
        fitted(DPSGDRegressor, "numbers"),
        BUDGET | PERSONS | STEPS | NUMBERS,
        DESCENT_MODES | {"given": {"n_iter": 2, "data_norm": 3.0, "target_bounds": (-2, 2)}},
        {
            "without privacy": EXACT_STEPS,
            "without privacy, batches": EXACT_STEPS,
        },
        cheap=("multiplier",),
    ),
    Walk(
        GEPClassifier,
        fitted(GEPClassifier, "classes"),
        BUDGET | PERSONS | OTHER_LABELS | STEPS | CLASSES | GEP,
        gep_modes(PUBLIC_LABELS),
        {
            "plain": NO_PUBLIC,
            "labels": NOT_LOOKED_AT,
            "without privacy": EXACT_FIT | NO_PUBLIC | NO_HELP,
            "without privacy, public rows": EXACT_FIT | NO_HELP | {"directions": NO_RESIDUE},
            "without privacy, gradients": EXACT_FIT | NO_HELP,
            "without privacy, mirror": EXACT | {"batch_size": NO_BATCHES},
        },
        cheap=("without privacy", "without privacy, mirror"),
        rounding=("fit__X_public",),
    ),
    Walk(
        GEPRegressor,
        fitted(GEPRegressor, "numbers"),
        BUDGET | PERSONS | OTHER_VALUES | STEPS | NUMBERS | GEP,
        gep_modes(PUBLIC_TARGETS),
        {
            "plain": NO_PUBLIC,
            "without privacy": EXACT_FIT | NO_PUBLIC,
            "without privacy, public rows": EXACT_FIT | {"directions": NO_RESIDUE},
            "without privacy, gradients": EXACT_FIT,
            "without privacy, mirror": EXACT | {"batch_size": NO_BATCHES},
        },
        cheap=("without privacy, public rows",),
    ),
    Walk(
        DPLinearRegression,
        fitted(DPLinearRegression, "numbers"),
        BUDGET | PERSONS | OTHER_ROWS | REGRESSION,
        {
            "plain": {},
            "given": {"bounds": (-8, 8), "target_bounds": (-9, 9)},
            "public rows": INFORMED,
            "moments": {"solver": "moments"},
            "persons": PERSONS | {"epsilon": 50.0},
            "without privacy": {"epsilon": INF},
        },
        {
            "public rows": {"bounds": RANGES_OF_PUBLIC},
            "without privacy": EXACT | {"solver": NOT_WITHOUT},
        },
        cheap=("without privacy",),
    ),
    Walk(
        PublicSubspaceLinearRegression,
        fitted(PublicSubspaceLinearRegression, "numbers"),
        BUDGET | PERSONS | OTHER_VALUES | REGRESSION | {"n_components": 2, "subspace": "moments"},
        {
            "plain": {},
            "tasks": TASKS,
            "features": INFORMED | {"subspace": "features"},
            "without privacy": TASKS | {"epsilon": INF},
        },
        {
            "plain": dict.fromkeys(("n_components", "subspace"), WITHOUT_PUBLIC),
            "tasks": {"bounds": RANGES_OF_PUBLIC},
            "features": {"bounds": RANGES_OF_PUBLIC},
            "without privacy": EXACT | {"bounds": RANGES_OF_PUBLIC, "solver": NOT_WITHOUT},
        },
        cheap=("without privacy",),
    ),
    Walk(
        PersonalizedLinearRegression,
        of_persons(PersonalizedLinearRegression, ENTRIES),
        BUDGET
        | {"fit__groups": AUTHORS // 2, "fit__X_public": (*np.sin(ELSEWHERE),)}
        | {"fit__y_public": tuple(x @ [1, 1, 2] for x in ELSEWHERE)}
        | OF_PERSONS,
        {
            # Whether a round finds more than noise here is up to the noise.
            "rounds": MANY
            | {"epsilon": 1e3, "n_components": 1, "n_iter": 1, "method": OF_PERSONS["method"]},
            "tasks": MANY | ASKED_ELSEWHERE | {"epsilon": 1e3, "n_components": 1, "n_iter": 1},
            "without privacy": MANY
            | ASKED_ELSEWHERE
            | {"epsilon": INF, "n_components": 1, "n_iter": 1},
        },
        {
            "rounds": GROUPED,
            "tasks": GROUPED | {"bounds": RANGES_OF_PUBLIC},
            "without privacy": EXACT
            | GROUPED
            | {"batch_size": NOT_WITHOUT, "bounds": RANGES_OF_PUBLIC},
        },
        cheap=("without privacy",),
    ),
    Walk(
        PersonalizedLogisticRegression,
        of_persons(PersonalizedLogisticRegression, (ENTRIES > 0).astype(int)),
        BUDGET
        | {"fit__groups": AUTHORS // 2, "fit__X_public": (*np.sin(ELSEWHERE),)}
        | {"fit__y_public": tuple((x @ [1, 1, 2] > 0).astype(int) for x in ELSEWHERE)}
        | {"classes": [0, 1]}
        | {name: OF_PERSONS[name] for name in OF_PERSONS if name not in OF_NUMBERS},
        {
            # Whether a round finds more than noise here is up to the noise.
            "rounds": MANY | {"epsilon": 1e3, "n_components": 1, "n_iter": 1},
            "tasks": MANY | LABELLED | {"epsilon": 1e3, "n_components": 1, "n_iter": 1},
            "without privacy": MANY | LABELLED | {"epsilon": INF, "n_components": 1, "n_iter": 1},
        },
        {
            "rounds": GROUPED | {"classes": OF_TWO["classes"]},
            "tasks": GROUPED | {"classes": OF_TWO["classes"], "bounds": RANGES_OF_PUBLIC},
            "without privacy": EXACT
            | GROUPED
            | OF_TWO
            | {"batch_size": NOT_WITHOUT, "bounds": RANGES_OF_PUBLIC},
        },
        cheap=("without privacy",),
    ),
    Walk(
        DPPCA,
        fitted(DPPCA, "rows"),
        BUDGET
        | PERSONS
        | OTHER_ROWS
        | {"n_components": 1, "mechanism": "power", "centered": False, "data_norm": 3.0}
        | {"whiten": True},
        {
            "plain": {"n_components": 2},
            "gaussian": {"n_components": 2, "mechanism": "gaussian"},
            "without privacy": {"n_components": 2, "epsilon": INF},
        },
        {"without privacy": EXACT},
        cheap=("plain", "without privacy"),
    ),
    Walk(
        BoundedScaler,
        fitted(BoundedScaler, "rows"),
        BUDGET
        | PERSONS
        | OTHER_ROWS
        | {"bounds": (-8, 8), "feature_range": (0, 1), "row_norm": None, "level": 0.2},
        {
            "plain": {"epsilon": 50.0},
            "given": {"bounds": (-9, 9)},
            "public rows": INFORMED,
            "without privacy": {"epsilon": INF},
        },
        {
            "given": BOUNDS_ARE_FREE
            | {"level": "where bounds are not given."}
            | {"fit__X_public": "and bounds that are given do not."},
            "public rows": BOUNDS_ARE_FREE,
            "without privacy": EXACT,
        },
        cheap=("plain", "given", "without privacy"),
    ),
    Walk(
        GSDScorer,
        fitted(GSDScorer, "rows"),
        BUDGET
        | PERSONS
        | OTHER_ROWS
        | {"n_components": 1, "mechanism": "power", "module": "cnn", "n_classes": 4}
        | {"input_shape": (5,)},
        {"plain": {}, "public rows": INFORMED, "without privacy": {"epsilon": INF}},
        {
            "plain": NO_MODULE,
            "public rows": NO_MODULE,
            "without privacy": EXACT | NO_MODULE,
        },
        cheap=("plain",),
    ),
    Walk(
        private_mean,
        returned(private_mean, X),
        BUDGET | {"data_norm": 3.0, "bounds": (-8, 8), "method": "gaussian", "groups": WHOSE},
        {
            "plain": {},
            "bound": {"data_norm": 9.0},
            "ranges": {"bounds": (-9, 9)},
            "without privacy": {"epsilon": INF},
        },
        {"without privacy": EXACT | {"method": "Both are the mean of the rows"}},
        cheap=("plain", "bound", "ranges", "without privacy"),
    ),
    Walk(
        private_covariance,
        returned(private_covariance, X),
        BUDGET | {"data_norm": 3.0, "bounds": (-8, 8), "centered": False, "groups": WHOSE},
        {"plain": {}, "bound": {"data_norm": 9.0}, "without privacy": {"epsilon": INF}},
        {"without privacy": EXACT},
        cheap=("plain", "bound", "without privacy"),
    ),
    Walk(
        private_quantile,
        returned(private_quantile, X),
        BUDGET | {"level": 0.2, "bounds": (0, 1), "groups": WHOSE},
        {
            "plain": {"epsilon": 9.0},
            "ranges": {"epsilon": 9.0, "bounds": (-9, 9)},
            "without privacy": {"epsilon": INF},
        },
        {"without privacy": EXACT},
        cheap=("plain", "ranges", "without privacy"),
    ),
    Walk(
        private_projection_error,
        returned(private_projection_error, X, PUBLIC),
        BUDGET
        | {"n_components": [1, 3], "module": "cnn", "n_classes": 4, "input_shape": (5,)}
        | {"groups": WHOSE},
        {"plain": {}, "without privacy": {"epsilon": INF}},
        {"plain": NO_MODULE, "without privacy": EXACT | NO_MODULE},
        cheap=("plain", "without privacy"),
    ),
    Walk(
        private_spread,
        returned(private_spread, X),
        BUDGET | {"row_norm": 3.0, "groups": WHOSE},
        {"plain": {"epsilon": 9.0}, "without privacy": {"epsilon": INF}},
        {"without privacy": EXACT},
        cheap=("plain", "without privacy"),
    ),
    Walk(
        private_coefficients,
        sloped,
        BUDGET
        | {"epsilon": 500.0, "bounds": (-5, 5), "target_bounds": (-4, 4), "groups": WHOSE}
        | {"level": 0.5, "simultaneous": True},
        {"plain": {}, "without privacy": {"epsilon": INF}},
        {"without privacy": EXACT},
        cheap=("plain", "without privacy"),
        # test_coefficients.py, test_rate_ratios.py
        elsewhere=("schema", "target", "family", "exposure", "reference", "units"),
    ),
    Walk(
        private_counts,
        described(private_counts, ["a", "c"]),
        BUDGET | {"bins": 3, "level": 0.5, "groups": WHOSE},
        {"plain": {}, "without privacy": {"epsilon": INF}},
        {
            "plain": {"delta": "Laplace noise is taken, which has no delta, unless another"},
            "without privacy": EXACT | {"level": "They are about noise alone"},
        },
        cheap=("plain", "without privacy"),
    ),
    Walk(
        private_summary,
        described(private_summary),
        BUDGET | {"by": "c", "level": 0.5, "groups": WHOSE},
        {"plain": {}, "without privacy": {"epsilon": INF}},
        {"without privacy": EXACT | {"level": "They are about noise alone"}},
        cheap=("plain", "without privacy"),
    ),
    Walk(
        PrivateSearch,
        searched,
        BUDGET
        | {"method": "random", "n_trials": 3, "scoring": half, "validation_fraction": 0.4}
        | {"target_bounds": (-1, 1), "candidates": {"alpha": [2.0]}}
        | {f"inner__{name}": value for name, value in BUDGET.items()}
        | PERSONS
        | {"fit__X_public": (PUBLIC,), "fit__y_public": (PUBLIC_LABELS > 0,)}
        | {"fit__X_public_val": (PUBLIC,), "fit__y_public_val": (PUBLIC_LABELS > 0,)},
        {
            "plain": {},
            "random": {"method": "random", "candidates": {"alpha": [0.0, 1.0]}},
        },
        {
            "plain": SEARCHED | {"n_trials": '"all" has no use for it.'},
            "random": SEARCHED,
        },
        cheap=("plain",),
        elsewhere=("estimator", "estimators"),  # test_private_search.py
    ),
    *(
        Walk(
            TabularPipeline,
            in_a_table(Model),
            {f"pipeline__{name}": value for name, value in BUDGET.items()}
            | {f"encoder__{name}": value for name, value in BUDGET.items()}
            | {"pipeline__target": (-3, 3), "encoder__interactions": True, **others}
            | PERSONS
            | {"fit__X_public": (FRAME[:9],), "fit__y_public": (TARGETS[:9],)},
            modes,
            unused,
            cheap=("plain",),
        )
        for Model, others, modes, unused in TABLES
    ),
]


@pytest.mark.parametrize(("walk", "mode"), rows(WALKS))
def test_what_can_be_set_is_used_or_said_to_be_unused(walk, mode):
    check(walk, mode)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_the_walk_sets_every_parameter(walk):
    names = {name.rpartition("__")[2] for name in walk.others}
    assert settable(walk.what) <= names | {*walk.elsewhere}
