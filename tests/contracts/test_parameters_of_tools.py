"""The walk over parameters of what helps a fit or comes after it: modules, scores, distances."""

import numpy as np
import pandas as pd
import pytest
from cases import small_module
from helpers import blobs
from salted import literally
from sklearn.linear_model import LinearRegression, LogisticRegression
from walks import BUDGET, EXACT, INF, Walk, check, of_privacy, rows, split

from dpsubspace import GEPClassifier, private_score, select_public
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)
from dpsubspace.linear_model import (
    GradientDirections,
    PersonalizedLinearRegression,
    PersonalizedLogisticRegression,
)
from dpsubspace.metrics import private_score_difference
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor, TorchFeatures
from dpsubspace.public_data import (
    GSDScorer,
    gradient_subspace_distance,
    optimal_transport_distance,
    task2vec_distance,
)
from dpsubspace.tables import TableEncoder

with literally():
    X, THREE = blobs(n=400)
    PUBLIC, PUBLIC_LABELS = blobs(n=60, seed=5)
    SPREAD = np.random.default_rng(3).normal(size=(400, 4)) * [0.1, 1.0, 0.8, 0.1]
Y = (THREE > 0).astype(int)
TARGETS = X[:, 0] - X[:, 1]
WHOSE = np.arange(400) // 2
WITHOUT = {"epsilon": INF}

# Models that were fitted elsewhere --------------------------------------------------------------


def held_out(Estimator, model, y, ask):
    """Fit to rows that were held out, and what it says of them."""

    def release(options):
        own, given = split(options, "fit")
        n = own.pop("_rows", 400)
        given = {name: value[:n] for name, value in given.items()}
        found = Estimator(model, **{"random_state": 0, **own}).fit(X[:n], y[:n], **given)
        return of_privacy(found.privacy_), np.asarray(getattr(found, ask)(X)).tolist()

    return release


def compared(model, other, y):
    """A difference of scores, and what it costs."""

    def release(options):
        s = private_score_difference(model, other, X, y, **{"random_state": 0, **options})
        return of_privacy(s.privacy_), repr((s.metric, s.value, s.low, s.high, s.pos_label, s.n))

    return release


def scored(model, y):
    """Scores, and what they cost."""

    def release(options):
        found = private_score(model, X, y, **{"random_state": 0, **options})
        each = [*found.values()] if isinstance(found, dict) else [found]
        return of_privacy(found.privacy_), repr(
            [(s.metric, s.value, s.low, s.high, s.pos_label, s.at, s.by, s.n) for s in each]
        )

    return release


BINARY = LogisticRegression().fit(X[::7] + 0.5, Y[::7])
OTHER_BINARY = LogisticRegression(C=1e-3).fit(X[::5] - 0.5, Y[::5])
OF_THREE = LogisticRegression().fit(X[::7] + 0.5, THREE[::7])
REGRESSOR = LinearRegression().fit(X[::7] + 0.5, TARGETS[::7] + X[::7, 2])
PURE = BUDGET | {"delta": 1e-3, "epsilon": 9.0}
PERSONS = {"fit__groups": WHOSE}
LEVEL = {"confidence_level": 0.8}
FEW = {"_rows": 3, "epsilon": 0.1}

# Modules ----------------------------------------------------------------------------------------


def module_of(which, n_outputs):
    """A torch module, or another one."""
    module = small_module(5, n_outputs)
    if which == "other":
        module[0].weight.data *= 2
    return module


def trained(Estimator, y):
    """Fit of a torch module."""

    def release(options):
        own, given = split(options, "fit")
        own["module"] = module_of(own.get("module"), 3 if Estimator is DPModuleClassifier else 1)
        model = Estimator(**{"random_state": 0, **own}).fit(X[:60], y[:60], **given)
        shown = [getattr(model, name, None) for name in ("n_iter_", "classes_", "n_components_")]
        ask = getattr(model, "decision_function", model.predict)
        return of_privacy(model.privacy_), repr(shown), ask(X[:60]).tolist()

    return release


def mapped(options):
    """Features of a frozen module."""
    model = TorchFeatures(**{**options, "module": module_of(options.get("module"), 3)})
    return model.fit_transform(X[:20]).tolist()


TRAINING = {
    "module": "other",
    "batch_size": 20,
    "input_shape": (5, 1),
    "alpha": 0.5,
    "n_iter": 3,
    "learning_rate": 0.01,
    "clip_norm": 0.1,
    "directions": GradientDirections(n_components=2),
    "mirror": True,
    "noise_multiplier": 3.0,
    "fit__groups": WHOSE[:60],
    "fit__X_public": (np.sin(PUBLIC),),
}
INFORMED = {"fit__X_public": (PUBLIC,)}
STEPS = {"n_iter": 2, "epsilon": None, "noise_multiplier": 2.0}
EXACT_STEPS = {"n_iter": 2, "learning_rate": 0.1} | WITHOUT


def training_modes(labels):
    return {
        "plain": STEPS,
        "public rows": STEPS | INFORMED,
        "mirror": STEPS | INFORMED | {"fit__y_public": (labels,), "mirror": True},
        "without privacy": EXACT_STEPS,
        "without privacy, public rows": EXACT_STEPS | INFORMED,
    }


# Distances --------------------------------------------------------------------------------------


def distance(function, **given):
    """A distance that is not private."""
    return lambda options: repr(
        function(np.abs(X[:50]), np.abs(PUBLIC), **{"random_state": 0, **given, **options})
    )


LABELLED = {"y_private": THREE[:50], "y_public": PUBLIC_LABELS}
OTHERWISE = {"y_private": Y[:50], "y_public": PUBLIC_LABELS > 0}
SAMPLED = {"max_samples": 20}

# Private rows are far from 0 in one direction, and spread in two others. Of the sets one has the
# first direction, one the others, and one the second alone.
PRIVATE = SPREAD + np.array([5, 0, 0, 0])
SETS = {
    name: SPREAD[::5] * [*sizes, 0.1]
    for name, sizes in {"mean": (99, 0, 0), "spread": (0, 2, 9), "second": (0, 3, 0)}.items()
}
SIGNS = SPREAD[:, 1] > 0
MEANING = {"mean": SIGNS[4::5].copy(), "spread": ~SIGNS[::5], "second": SIGNS[::5].copy()}
OTHER_MEANING = {name: ~labels for name, labels in MEANING.items()}


def chosen(options):
    """A choice with so large an epsilon that it is the best set."""
    found = select_public(SETS, PRIVATE, **{"random_state": 0, "epsilon": 50.0, **options})
    return of_privacy(found.privacy), found.name


# Methods ----------------------------------------------------------------------------------------

SCORER = GSDScorer(n_components=2, random_state=0, epsilon=INF)
OWN = {"epsilon": INF, "n_iter": 0, "missing_groups": "each_row"}
OWN_TARGETS = TARGETS + X[:, 2] * np.sin(WHOSE)
DIARIES = {
    PersonalizedLinearRegression: OWN_TARGETS,
    PersonalizedLogisticRegression: (OWN_TARGETS > 0).astype(int),
}


PERSONAL = ("predict", "score", "decision_function", "predict_proba", "predict_log_proba")


def of_persons(kind, asked, options):
    """What a method of a personal model says of the rows of its persons."""
    y = DIARIES[kind]
    model = kind(**OWN).fit(X, y, groups=WHOSE)
    given = (X, y) if asked == "score" else (X,)
    return np.asarray(getattr(model, asked)(*given, **options)).tolist()


def directed(options):
    """Fit along directions of public gradients."""
    model = GEPClassifier(directions=GradientDirections(**options), n_iter=2, random_state=0)
    model.fit(X[:60], THREE[:60], X_public=(PUBLIC[:9],), y_public=(PUBLIC_LABELS[:9],))
    return of_privacy(model.privacy_), model.coef_.tolist()


# The walks --------------------------------------------------------------------------------------

NOTHING_RELEASED = "nothing, where there are too few rows"
OF_NOTHING = dict.fromkeys(
    ("delta", "neighboring_relation", "random_state", "method"), NOTHING_RELEASED
)
HELD_OUT = {"few": OF_NOTHING, "without privacy": EXACT}
OTHER_METRICS = {"loss_bound": "Other metrics do not use it."}
# The seed draws the samples of the interval as well.
PUBLIC_NOISE = {name: EXACT[name] for name in ("delta", "neighboring_relation")}
OF_LABELS = {
    "y": 'which only "validation" looks at',
    "y_public": 'Labels of the candidates by name, for "validation"',
}
NO_MODULE = dict.fromkeys(
    ("n_classes", "input_shape"), "Neither this nor `input_shape` is used without a `module`."
)
EXACT_MODULE = EXACT | {
    "batch_size": 'Not used with ``epsilon=float("inf")``: every step then uses all rows.',
    "clip_norm": 'Nothing is clipped with ``epsilon=float("inf")``.',
}
NO_PUBLIC = {"directions": "Without public rows it has no effect"}
NO_HELP = {"fit__X_public": "the fit needs no help of theirs, and ends where it would without them"}
NOT_LOOKED_AT = {"fit__y_public": "Only `mirror` and directions of public labels look at them."}
SEED_OF_SAMPLE = {"random_state": "Seed of the sample of rows."}
NO_RESIDUAL = {
    "embedding_share": "Without a residual the embedding gets all.",
    "residual_norm": "Not used without a residual.",
}

WALKS = [
    Walk(
        DPCalibratedClassifier,
        held_out(DPCalibratedClassifier, BINARY, Y, "predict_proba"),
        PURE | PERSONS | {"method": "sigmoid"},
        {"plain": {}, "sigmoid": {"method": "sigmoid"}, "few": FEW, "without privacy": WITHOUT},
        HELD_OUT,
        cheap=("plain", "few", "without privacy"),
        elsewhere=("random_state",),  # one of some candidates is chosen, on which seeds agree
    ),
    Walk(
        DPConformalClassifier,
        held_out(DPConformalClassifier, OF_THREE, THREE, "predict_set"),
        PURE | PERSONS | LEVEL,
        {"plain": {}, "few": FEW, "without privacy": WITHOUT},
        HELD_OUT,
        cheap=("plain", "few", "without privacy"),
        elsewhere=("random_state",),  # one of some candidates is chosen, on which seeds agree
    ),
    Walk(
        DPConformalRegressor,
        held_out(DPConformalRegressor, REGRESSOR, TARGETS, "predict_interval"),
        PURE | PERSONS | LEVEL | {"target_bounds": (-3, 3)},
        {"plain": {}, "few": FEW, "bounds": {"target_bounds": (-9, 9)}, "without privacy": WITHOUT},
        HELD_OUT,
        cheap=("plain", "few", "bounds", "without privacy"),
        elsewhere=("random_state",),  # one of some candidates is chosen, on which seeds agree
    ),
    Walk(
        private_score,
        scored(BINARY, Y),
        PURE
        | {"pos_label": 0, "level": 0.8, "loss_bound": 2.0, "target_bounds": (-1, 1)}
        | {"groups": WHOSE, "by": (THREE, [0, 1, 2]), "metric": "recall"},
        {
            "plain": {},
            "log loss": {"metric": "log_loss"},
            "area": {"metric": "roc_auc"},
            "list": {"metric": ["precision", "log_loss"]},
            "by": {"by": (THREE, [0, 1])},
            "without privacy": {"metric": "recall", "random_state": 1} | WITHOUT,
        },
        {mode: OTHER_METRICS for mode in ("plain", "area", "by")}
        | {"without privacy": PUBLIC_NOISE | OTHER_METRICS},
        cheap=("plain", "log loss", "without privacy"),
    ),
    Walk(
        private_score,
        scored(REGRESSOR, TARGETS),
        PURE
        | {"pos_label": 0, "level": 0.8, "loss_bound": 2.0, "target_bounds": (-5, 5)}
        | {"groups": WHOSE, "by": (THREE, [0, 1, 2])},
        {"errors": {"metric": "mean_absolute_error", "target_bounds": (-9, 9)}},
        {"errors": OTHER_METRICS},
        cheap=("errors",),
    ),
    Walk(
        private_score_difference,
        compared(BINARY, OTHER_BINARY, Y),
        PURE
        | {"pos_label": 0, "level": 0.8, "loss_bound": 2.0, "target_bounds": (-1, 1)}
        | {"groups": WHOSE, "metric": "recall"},
        {
            "plain": {},
            "log loss": {"metric": "log_loss"},
            "area": {"metric": "roc_auc"},
            "without privacy": {"metric": "recall", "random_state": 1} | WITHOUT,
        },
        {
            "plain": OTHER_METRICS,
            "area": OTHER_METRICS | {"pos_label": '"roc_auc" is the same for both'},
        }
        | {"without privacy": PUBLIC_NOISE | OTHER_METRICS},
        cheap=("plain", "log loss", "without privacy"),
    ),
    Walk(
        select_public,
        chosen,
        {"epsilon": 60.0, "neighboring_relation": "replace_one", "groups": WHOSE}
        | {"method": "centered_energy", "n_components": 1, "none": 0.99, "y": SIGNS}
        | {"y_public": OTHER_MEANING, "input_shape": (4,), "n_classes": 3},
        {
            # One direction of each set is enough for the best one.
            "energy": {"n_components": 1},
            "centred": {"method": "centered_energy", "n_components": 2},
            "labels": {"method": "validation", "y": SIGNS, "y_public": MEANING},
            "without privacy": {"n_components": 1} | WITHOUT,
        },
        {
            "energy": NO_MODULE | OF_LABELS,
            "centred": NO_MODULE | OF_LABELS,
            "labels": NO_MODULE | {"n_components": '"validation" has no use for it.'},
            "without privacy": EXACT | NO_MODULE | OF_LABELS,
        },
        cheap=("energy", "centred", "labels"),
        # One of three sets is chosen, on which seeds agree. Tests of modules need torch.
        elsewhere=("random_state", "module"),
    ),
    *(
        Walk(
            Estimator,
            trained(Estimator, y),
            BUDGET | TRAINING | others | {"fit__y_public": (labels,)},
            training_modes(labels),
            {
                "plain": NO_PUBLIC,
                "public rows": looked_at,
                "without privacy": EXACT_MODULE | NO_PUBLIC,
                "without privacy, public rows": EXACT_MODULE | NO_HELP | looked_at,
            },
            needs="torch",
        )
        for Estimator, y, labels, others, looked_at in (
            (
                DPModuleClassifier,
                THREE,
                PUBLIC_LABELS,
                {"classes": [0, 1, 2, 3], "class_weight": {0: 9.0}, "loss": "hinge"},
                NOT_LOOKED_AT,
            ),
            (
                DPModuleRegressor,
                TARGETS,
                PUBLIC[:, 0],
                {"target_bounds": (-1, 3), "loss": "huber"},
                {},
            ),
        )
    ),
    Walk(
        TorchFeatures,
        mapped,
        {"module": "other", "input_shape": (5, 1), "batch_size": 7},
        {"plain": {}},
        {"plain": {"batch_size": "does not change the result, up to rounding"}},
        cheap=("plain",),
        rounding=("batch_size",),
        needs="torch",
    ),
    Walk(
        GradientDirections,
        directed,
        {"n_components": 2, "residual": False, "labels": "public", "residual_norm": 0.1}
        | {"embedding_share": 0.3, "power_iterations": None, "groups": 2},
        {"plain": {"n_components": 3}, "no residual": {"residual": False, "n_components": 3}},
        {"no residual": NO_RESIDUAL},
        cheap=("plain", "no residual"),
    ),
    Walk(
        gradient_subspace_distance,
        distance(gradient_subspace_distance),
        {"n_components": 2, "n_classes": 3, "n_repeats": 2, "module": "cnn", "params": {}}
        | {"random_state": 1, "return_details": True}
        | SAMPLED,
        {"plain": {"n_components": 3}},
        cheap=("plain",),
    ),
    *(
        Walk(
            function,
            distance(function),
            OTHERWISE | SAMPLED | {"random_state": 1},
            {"plain": {}, "labels": LABELLED, "sampled": LABELLED | {"max_samples": 30}},
            {} if sampled else dict.fromkeys(("plain", "labels"), SEED_OF_SAMPLE),
            cheap=("plain", "labels", "sampled"),
        )
        # The first takes as many rows of both sets, which is a sample of the larger one.
        for function, sampled in ((optimal_transport_distance, True), (task2vec_distance, False))
    ),
    Walk(
        GSDScorer,
        lambda options: SCORER.fit(X).distance(PUBLIC, **options),
        {"y_public": PUBLIC_LABELS},
        {"plain": {}},
        {"plain": {"y_public": "Ignored"}},
        cheap=("plain",),
        method="distance",
    ),
    Walk(
        GSDScorer,
        lambda options: SCORER.fit(X).score(PUBLIC, **options),
        {"y": PUBLIC_LABELS},
        {"plain": {}},
        {"plain": {"y": "Ignored"}},
        cheap=("plain",),
        method="score",
    ),
    Walk(
        TableEncoder,
        lambda options: (
            TableEncoder({"a": (0, 1)})
            .fit(pd.DataFrame({"a": [0.5]}))
            .get_feature_names_out(**options)
            .tolist()
        ),
        {"input_features": ["b"]},
        {"plain": {}},
        {"plain": {"input_features": "Ignored: the schema has the names."}},
        cheap=("plain",),
        method="get_feature_names_out",
    ),
    *(
        Walk(
            kind,
            lambda options, kind=kind, asked=asked: of_persons(kind, asked, options),
            {"groups": WHOSE[::-1], "sample_weight": np.arange(400)},
            {"plain": {}, "groups": {"groups": WHOSE}},
            cheap=("plain", "groups"),
            method=asked,
        )
        for kind in DIARIES
        for asked in PERSONAL
        if hasattr(kind, asked)
    ),
]


@pytest.mark.parametrize(("walk", "mode"), rows(WALKS))
def test_what_can_be_set_is_used_or_said_to_be_unused(walk, mode):
    check(walk, mode)
