"""The walk over parameters of displays: what is set is seen in the picture."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from helpers import blobs
from salted import literally
from sklearn.linear_model import LogisticRegression
from walks import BUDGET, Walk, check, rows

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    PrivacyLedger,
    private_coefficients,
    private_mean,
    private_score,
    tabular_pipeline,
)
from dpsubspace.audit import AuditDisplay, AuditResult
from dpsubspace.budget import BudgetDisplay
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay
from dpsubspace.metrics import (
    PrivacyUtilityDisplay,
    PrivateCalibrationDisplay,
    PrivateRocCurveDisplay,
)
from dpsubspace.public_data import (
    GSDRankingDisplay,
    ProjectionErrorDisplay,
    private_projection_error,
)
from dpsubspace.statistics import CoefficientDisplay

with literally():
    X, THREE = blobs(n=90)
Y = THREE > 0
BINARY = LogisticRegression().fit(X, Y)


def picture(display):
    """Words, colors and places of all that is in a picture, and of which axes they are."""
    from matplotlib import pyplot as plt

    figure, privacy = display.figure_, getattr(display, "privacy", None)
    found = [repr(privacy), repr(getattr(display, "privacy_event", None))]
    for artist in figure.findobj():
        own = {"gid": artist.get_gid(), "alpha": artist.get_alpha()}
        for name in ("text", "color", "facecolor", "xydata", "width", "height", "array", "label"):
            ask = getattr(artist, f"get_{name}", None)
            if ask is not None and not callable(getattr(artist, "get_major_ticks", None)):
                own[name] = ask()
        paths = getattr(artist, "get_paths", list)()
        found.append((type(artist).__name__, repr(own), [path.vertices.tolist() for path in paths]))
    plt.close("all")
    return found


def drawn(draw):
    """Picture of a call; True as `ax` is axes of their own."""

    def release(options):
        options = dict(options)
        if options.get("ax") is True:
            from matplotlib import pyplot as plt

            options["ax"] = plt.figure().add_subplot(gid="given")
        return picture(draw(**options))

    return release


def of_constructor(Display, **fixed):
    """Picture of a display that is made by its constructor."""
    return drawn(lambda **options: Display(**{**fixed, **options}).plot())


def of_plot(display):
    """Picture of a display with other options."""
    return drawn(lambda **options: display().plot(**options))


def walks_of(Display, doors):
    """A walk over each door of a display: a call, other values, modes, and what is unused when."""
    for method, (release, others, modes, *unused) in doors.items():
        yield Walk(
            Display,
            release,
            others,
            modes,
            *unused,
            cheap=() if method in ("from_estimator", "from_estimators", "from_sets") else (*modes,),
            method="" if method == "made" else method,
            needs="matplotlib",
        )


AX = {"ax": True}
BLACK = {"color": "black"}
PLAIN = {"plain": {}}


def audit(**options):
    counts = {"n_canaries": 200, "n_guesses": 100, "n_correct": 60, "confidence": 0.95}
    return AuditResult(
        epsilon_lower_bound=0.3, epsilon_claimed=1.0, delta=1e-5, **counts, **options
    )


AUDITS = walks_of(
    AuditDisplay,
    {
        "from_estimators": (
            drawn(
                lambda **options: AuditDisplay.from_estimators(
                    {"mean": private_mean}, X, **{"random_state": 0, **options}
                )
            ),
            AX | {"y": Y, "random_state": 1, "audit_params": {"confidence": 0.8}},
            PLAIN,
            {"plain": {"y": "What is fitted to rows alone does not look at them."}},
        ),
        "from_results": (
            drawn(lambda **options: AuditDisplay.from_results([audit(name="a")], **options)),
            AX | {"names": ["ours"]},
            PLAIN,
        ),
        "plot": (
            of_plot(lambda: AuditDisplay(results=[audit()], names=["a"])),
            AX | {"bar_kw": BLACK, "claim_kw": {"color": "red"}, "reachable_kw": BLACK},
            PLAIN,
        ),
    },
)

with literally():
    LEDGER = PrivacyLedger(2.0, 1e-5, allow_seeded=True)
    LEDGER.fit(DPSGDClassifier(n_iter=2, random_state=0), X, Y)
PARTS = {"names": ["a", "b"], "sq_mus": [0.1, 0.2]}
BUDGETS = walks_of(
    BudgetDisplay,
    {
        "made": (
            of_constructor(BudgetDisplay, **PARTS),
            {"left": 0.5, "delta": 1e-7, "title": "ours", "alone": [0.5, 0.6]},
            PLAIN | {"left": {"left": 0.2}},
        ),
        "from_ledger": (
            drawn(lambda **options: BudgetDisplay.from_ledger(LEDGER, **options)),
            AX,
            PLAIN,
        ),
        "from_estimator": (
            drawn(
                lambda **options: BudgetDisplay.from_estimator(
                    DPSGDClassifier(batch_size=20), **{"n_samples": 90, **options}
                )
            ),
            AX | {"n_samples": 900, "n_features": 50, "n_outputs": 9, "n_train": 50},
            PLAIN,
            {
                "plain": {
                    "n_features": "where the cost depends on it",
                    "n_outputs": "Number of columns of scores or targets, likewise.",
                    "n_train": "where its splitter does not tell",
                }
            },
        ),
        "plot": (
            of_plot(lambda: BudgetDisplay(**PARTS, left=0.1)),
            AX
            | {"kind": "epsilon", "bar_kw": BLACK, "left_kw": BLACK, "text_kw": {"color": "red"}},
            PLAIN,
        ),
    },
)

DISTANCES = {"near": 0.1, "far": 0.5}
MATRIX = {"near": {"near": 0.0, "far": 0.5}, "far": {"near": 0.5, "far": 0.0}}
SETS = {"a": X, "b": X[::-1] ** 2, "c": X[:50] + 1}
BARS = {
    "row_names": ["x"],
    "spread": [0.1, 0.1],
    "reference": 0.3,
    "reference_name": "ours",
    "distance_name": "Far",
}
LINE = {"reference_name": "What the line at `reference` is, in the legend."}
OF_ROWS = "Names of the rows of `distances` where it has two dimensions."
NONE_IN_MAP = "A heat map has none."
OF_MAP = {"image_kw": "for a heat map."}
OF_BARS = {"bar_kw": "for bars.", "reference_kw": "across bars."}
OF_NUMBERS = {"text_kw": "for the numbers.", "values_format": "How to write them."}
RANKINGS = walks_of(
    GSDRankingDisplay,
    {
        "made": (
            of_constructor(GSDRankingDisplay, distances=[0.1, 0.5], names=["near", "far"]),
            BARS,
            PLAIN
            | {"reference": {"reference": 0.2}}
            | {"map": {"distances": [[0.1, 0.5]], "row_names": ["a"]}},
            {
                "plain": LINE | {"row_names": OF_ROWS},
                "reference": {"row_names": OF_ROWS},
                "map": LINE | dict.fromkeys(("reference", "spread"), NONE_IN_MAP),
            },
        ),
        "from_distances": (
            drawn(
                lambda **options: GSDRankingDisplay.from_distances(
                    **{"distances": DISTANCES, **options}
                )
            ),
            AX
            | {"spread": DISTANCES, "reference": 0.3}
            | {"reference_name": "ours", "distance_name": "Far"},
            PLAIN | {"reference": {"reference": 0.2}, "map": {"distances": MATRIX}},
            {"plain": LINE, "map": LINE},
        ),
        "from_sets": (
            drawn(
                lambda **options: GSDRankingDisplay.from_sets(
                    SETS, **{"random_state": 0, "distance": "task2vec", **options}
                )
            ),
            AX
            | {"distance": "optimal_transport", "random_state": 1, "distance_name": "Far"}
            | {"labels": {"a": THREE, "b": THREE, "c": THREE[:50]}},
            {"plain": {"distance": "gradient_subspace"}, "task2vec": {}},
            {"task2vec": {"random_state": "Passed to a distance that is given by its name."}},
        ),
        "plot": (
            of_plot(
                lambda: GSDRankingDisplay(distances=[0.1, 0.5], names=["a", "b"], reference=0.2)
            ),
            AX
            | {"kind": "heatmap", "include_values": False, "values_format": ".2e"}
            | {"bar_kw": BLACK, "image_kw": {"cmap": "gray"}}
            | {"text_kw": {"color": "red"}, "reference_kw": {"color": "red"}},
            {
                "bars": {},
                "map": {"kind": "heatmap"},
                "no values": {"include_values": False},
            },
            {
                "bars": OF_MAP,
                "map": OF_BARS,
                "no values": OF_MAP | OF_NUMBERS,
            },
        ),
    },
)

CURVE = {"epsilons": [0.5, 1.0, float("inf")], "scores": [[0.5, 0.6], [0.7, 0.8], [0.9, 0.9]]}
UTILITY = walks_of(
    PrivacyUtilityDisplay,
    {
        "made": (
            of_constructor(PrivacyUtilityDisplay, **CURVE),
            {"name": "ours", "score_name": "AUC", "chance_level": 0.5, "privacy_event": "event"},
            PLAIN,
        ),
        "from_estimator": (
            drawn(
                lambda **options: PrivacyUtilityDisplay.from_estimator(
                    DPSGDClassifier(n_iter=2),
                    X,
                    Y,
                    X_test=X,
                    y_test=Y,
                    **{"epsilons": [9.0, 99.0], "n_repeats": 2, "random_state": 0, **options},
                )
            ),
            AX
            | {"epsilons": [9.0, 50.0], "n_repeats": 3, "scoring": "neg_log_loss"}
            | {"fit_params": {"groups": np.arange(90) // 2}, "random_state": 1}
            | {"chance_level": 0.5, "name": "ours", "score_name": "Score"},
            PLAIN,
        ),
        "from_scores": (
            drawn(lambda **options: PrivacyUtilityDisplay.from_scores(**CURVE, **options)),
            AX | {"name": "ours", "score_name": "AUC", "chance_level": 0.5},
            PLAIN,
        ),
        "plot": (
            of_plot(lambda: PrivacyUtilityDisplay(**CURVE, chance_level=0.5)),
            AX
            | {"name": "ours", "line_kw": {"color": "red"}, "band_kw": BLACK}
            | {"non_private_kw": {"color": "red"}, "chance_kw": {"color": "red"}},
            PLAIN,
        ),
    },
)

RELEASING = {"pos_label": False, "level": 0.8, "groups": np.arange(90) // 2, "name": "ours"}
with literally():
    ROC = private_score(BINARY, X, Y, metric="roc_auc", pos_label=True, random_state=0, epsilon=9.0)
    CALIBRATION = private_score(
        BINARY, X, Y, metric="calibration_curve", pos_label=True, random_state=0, epsilon=9.0
    )


def evaluations(Display, x, y, released, of_reference):
    """Walks of a display of a released curve."""
    fixed = {x: [0.0, 0.5, 1.0], y: [0.0, 0.7, 1.0]}
    band = {"low": [0.0, 0.6, 0.9], "high": [0.1, 0.8, 1.0]}
    of_made = {"roc_auc": 0.8} if Display is PrivateRocCurveDisplay else {}
    return walks_of(
        Display,
        {
            "made": (
                of_constructor(Display, **fixed),
                {"low": [0.0, 0.5, 0.9], "high": [0.2, 0.8, 1.0], "name": "ours", "level": 0.5}
                | {"privacy": "privacy"}
                | of_made,
                {"band": band},
                {"band": {"level": "which is not drawn."}},
            ),
            "from_estimator": (
                drawn(
                    lambda **options: Display.from_estimator(
                        BINARY, X, Y, **{"random_state": 0, "epsilon": 9.0, **options}
                    )
                ),
                AX | BUDGET | RELEASING,
                PLAIN,
            ),
            "from_released": (
                drawn(lambda **options: Display.from_released(released, **options)),
                AX | {"name": "ours"},
                PLAIN,
            ),
            "plot": (
                of_plot(lambda: Display(**fixed, **band)),
                AX | {"name": "ours", "line_kw": {"color": "red"}, "band_kw": BLACK} | of_reference,
                PLAIN,
            ),
        },
    )


ROCS = evaluations(
    PrivateRocCurveDisplay,
    "fpr",
    "tpr",
    ROC,
    {"plot_chance_level": False, "chance_kw": {"color": "red"}},
)
CALIBRATIONS = evaluations(
    PrivateCalibrationDisplay,
    "prob_pred",
    "prob_true",
    CALIBRATION,
    {"ref_line": False, "ref_kw": {"color": "red"}},
)

with literally():
    ERRORS = private_projection_error(X[30:], X[:30], epsilon=9.0, random_state=0)
    PIXELS = np.random.default_rng(0).normal(size=(20, 64))
OF_MODULE = {"module": {"module": "cnn", "input_shape": (8, 8)}} if find_spec("torch") else {}
MISSED = {"n_components": [1, 2, 4], "error": [0.8, 0.5, 0.2]}
PROJECTIONS = walks_of(
    ProjectionErrorDisplay,
    {
        "made": (
            of_constructor(ProjectionErrorDisplay, **MISSED),
            {"random": [0.9, 0.8, 0.6], "noise": [0.1, 0.1, 0.1], "stable_rank": 2.0}
            | {"name": "ours", "privacy": "privacy"},
            PLAIN,
        ),
        "from_public": (
            drawn(
                lambda **options: ProjectionErrorDisplay.from_public(
                    PIXELS, **{"random_state": 0, "n_components": [1, 3], **options}
                )
            ),
            AX
            | {"n_components": [2], "random_state": 1, "name": "ours"}
            | {"module": "cnn", "input_shape": (4, 4, 4), "n_classes": 3},
            {"plain": {}} | OF_MODULE,
            {"plain": dict.fromkeys(("input_shape", "n_classes"), "is used without a `module`.")},
        ),
        "from_released": (
            drawn(lambda **options: ProjectionErrorDisplay.from_released(ERRORS, **options)),
            AX | {"name": "ours"},
            PLAIN,
        ),
        "plot": (
            of_plot(
                lambda: ProjectionErrorDisplay(
                    **MISSED, noise=[0.1, 0.1, 0.1], random=[0.9, 0.8, 0.6]
                )
            ),
            AX
            | {"name": "ours", "plot_random": False, "line_kw": {"color": "red"}}
            | {"band_kw": BLACK, "random_kw": {"color": "red"}},
            PLAIN,
        ),
    },
)

SLOPED = {"terms": ["a", "b"], "estimate": [2.0, 0.5], "low": [1.5, 0.2], "high": [3.0, 0.9]}
with literally():
    SLOPES = private_coefficients(
        X, target=X[:, 0], bounds=(-9, 9), target_bounds=(-9, 9), epsilon=1e3, random_state=0
    )
COEFFICIENTS = walks_of(
    CoefficientDisplay,
    {
        "made": (
            of_constructor(CoefficientDisplay, **SLOPED),
            {"score_name": "slope", "odds": True},
            PLAIN,
        ),
        "from_coefficients": (
            drawn(lambda **options: CoefficientDisplay.from_coefficients(SLOPES, **options)),
            AX,
            PLAIN,
        ),
        "plot": (
            of_plot(lambda: CoefficientDisplay(**SLOPED)),
            AX | {"line_kw": {"color": "red"}},
            PLAIN,
        ),
    },
)

FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 2] > 1, "x", "y")})
SCHEMA = {"a": (-9, 9), "b": (-9, 9), "c": ["x", "y"]}
with literally():
    TABLE = tabular_pipeline(DPSGDClassifier(n_iter=2, random_state=0), SCHEMA).fit(FRAME, THREE)
NUMBERS = tabular_pipeline(DPLinearRegression(random_state=0), SCHEMA, target=(-9, 9))


def shapes(**options):
    return ShapeDisplay.from_estimator(TABLE, **{"features": ["a", "c"], "target": 0, **options})


def shapes_made(**options):
    of = shapes()
    return ShapeDisplay(**{"shapes": of.shapes, "outputs": of.outputs, **options})


SHAPES = walks_of(
    ShapeDisplay,
    {
        "made": (
            drawn(lambda **options: shapes_made(**options).plot()),
            {"score_name": "ours", "level": 0.5},
            PLAIN,
        ),
        "from_estimator": (
            drawn(shapes),
            AX | {"features": ["a"], "target": 1, "level": 0.5, "grid_resolution": 9},
            PLAIN,
        ),
        "plot": (
            of_plot(shapes_made),
            AX
            | {"n_cols": 1, "max_categories": 1, "line_kw": BLACK, "band_kw": BLACK}
            | {"bar_kw": BLACK, "map_kw": {"cmap": "gray"}},
            PLAIN,
            {"plain": {"map_kw": "for the pairs."}},
        ),
    },
)


def importances(**options):
    return ImportanceDisplay.from_estimator(TABLE, **options)


def importances_made(**options):
    fixed = {"importances": [0.5, 0.2], "names": ["a", "b"], "low": [0, 0], "high": [1, 1]}
    return ImportanceDisplay(**{**fixed, **options})


IMPORTANCES = walks_of(
    ImportanceDisplay,
    {
        "made": (
            drawn(lambda **options: importances_made(**options).plot()),
            {"importances": [0.3, 0.6], "names": ["c", "d"], "low": None, "high": None}
            | {"score_name": "ours", "level": 0.5},
            PLAIN,
        ),
        "from_estimator": (
            drawn(importances),
            AX | {"X_public": FRAME[:20], "target": 1, "level": 0.5},
            PLAIN,
        ),
        "plot": (of_plot(importances_made), AX | {"max_columns": 1, "bar_kw": BLACK}, PLAIN),
    },
)

WALKS = [
    *AUDITS,
    *BUDGETS,
    *RANKINGS,
    *PROJECTIONS,
    *COEFFICIENTS,
    *UTILITY,
    *ROCS,
    *CALIBRATIONS,
    *SHAPES,
    *IMPORTANCES,
]


@pytest.mark.parametrize(("walk", "mode"), rows(WALKS))
def test_what_can_be_set_is_seen_or_said_to_be_unused(walk, mode):
    check(walk, mode)
