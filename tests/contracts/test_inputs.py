"""Bad input: an error that names parameter, value and way out, or a correct fit."""

import datetime
import math

import numpy as np
import pandas as pd
import pytest
from cases import small_module
from helpers import CLASSIFIERS, ESTIMATORS, GEP, blobs, pairs_first, public_rows
from scipy import sparse

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyWarning,
    private_mean,
)
from dpsubspace._core.ground.checks import shown
from dpsubspace.linear_model import GradientDirections
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor

MODULES = [DPModuleClassifier, DPModuleRegressor]
SECRET = "seven-four-one"  # a private value that must never turn up in a message


BAD_PARAMETERS = {
    "epsilon": [0, -1.0, 1e-9, 1e300, math.nan, "1", True],
    "fit_intercept": ["yes", 1],
    "delta": [0, 1, 1.5, -0.1, 1e-300, "small", math.nan],
    "neighboring_relation": ["add_remove", None, 3],
    "loss": ["squared_error", None],
    "alpha": [-1e-3, 1e300, math.inf, None],
    "n_iter": [0, -5, 2.5, 10**12, "many", True],
    "learning_rate": [0, -1.0, 1e300, math.inf, None],
    "clip_norm": [0, -1.0, 1e300, math.inf],
    "row_norm": ["l1", "clip", 0, -2.0, 1e300, math.inf, math.nan, True],
    "random_state": [-1, "seed"],
    "class_weight": ["balanced", {9: 1.0}, {0: 0.0}, {0: -1.0}, {0: math.inf}],
    "classes": [[0], []],
}
OF_EXPERTS = {"noise_multiplier": [1.0]}  # beside an epsilon
OF_PUBLIC_ROWS = {
    "n_components": [-1, 2.5, "many", None],
    "directions": ["gradients", None, 3, GradientDirections],
    "init": ["random", None],
    "mirror": ["yes", None],
}
OF_DIRECTIONS = {
    "n_components": [-1, 2.5, "many", None],
    "residual": ["auto", None, 1],
    "residual_norm": [0, -1.0, math.inf, None],
    "embedding_share": [0, 1, -0.5, None],
    "labels": ["fixed", None],
    "power_iterations": [0, 1.5, "auto"],
    "groups": ["outputs", 2],
}
CASES = [
    (Classifier, name, value)
    for Classifiers, parameters in (
        ([*CLASSIFIERS, GEPClassifier], BAD_PARAMETERS),
        (CLASSIFIERS, OF_EXPERTS),
        ([GEPClassifier], OF_PUBLIC_ROWS),
    )
    for Classifier in Classifiers
    for name, values in parameters.items()
    for value in values
]
DIRECTIONS = [(name, value) for name, values in OF_DIRECTIONS.items() for value in values]


@pytest.mark.filterwarnings("ignore:GEP:dpsubspace.exceptions.PublicDataWarning")
@pytest.mark.parametrize(("Classifier", "name", "value"), CASES, ids=str)
def test_parameters_out_of_range(Classifier, name, value):
    X, y = blobs()
    model = Classifier(**{name: value})
    with pytest.raises(ValueError, match=name):
        model.fit(X, y)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(("name", "value"), DIRECTIONS, ids=str)
@pytest.mark.parametrize("Estimator", GEP)
def test_directions_out_of_range(Estimator, name, value):
    """With or without public rows: parameters are checked before the data."""
    model = Estimator(directions=GradientDirections(**{name: value}))
    with pytest.raises(ValueError, match=f"`{name}"):
        model.fit(*blobs())
    with pytest.raises(ValueError, match=f"`{name}"):
        model.privacy_event(100)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("Estimator", GEP)
def test_directions_are_counted_in_one_place(Estimator):
    model = Estimator(n_components=3, directions=GradientDirections())
    with pytest.raises(ValueError, match=r"`n_components`=3 counts directions of features\. Set"):
        model.fit(*blobs())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"module": None}, r"`module` must be a torch\.nn\.Module .* got NoneType"),
        ({"module": dict}, r"an instance, not its class\), got dict"),
        ({"module": "Linear"}, "got str"),
        ({"directions": "features"}, "`directions` must be .* GradientDirections"),
        ({"directions": GradientDirections(groups="outputs")}, "groups"),
        ({"directions": GradientDirections(labels="fixed")}, "labels"),
        ({"mirror": None}, "mirror"),
        ({"microbatch_size": 0}, "microbatch_size"),
        ({"noise_multiplier": 2.0}, "noise_multiplier"),
        ({"epsilon": math.inf}, "give `learning_rate`"),
        ({"alpha": -1.0}, "alpha"),
        ({"n_iter": 0}, "n_iter"),
        ({"loss": "absolute"}, "loss"),
    ],
    ids=str,
)
@pytest.mark.parametrize("Estimator", MODULES)
def test_parameters_of_modules_out_of_range(Estimator, options, match):
    X, y = blobs()
    if "module" not in options:
        options = {"module": small_module(5, 3), **options}
    model = Estimator(**options)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    "options", [{"mirror": True}, {"directions": GradientDirections(labels="public")}], ids=str
)
@pytest.mark.parametrize("Estimator", MODULES)
def test_modules_that_need_labels_of_public_rows_say_so(Estimator, options):
    model = Estimator(small_module(5, 3), **options)
    with pytest.raises(ValueError, match=r"needs the labels of public rows: pass `y_public`"):
        model.fit(*blobs(), X_public=(public_rows(5)[0],))
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": None}, "noise_multiplier"),
        ({"epsilon": None, "noise_multiplier": 0}, "noise_multiplier"),
        ({"epsilon": None, "noise_multiplier": 1e-160}, "noise_multiplier"),
        ({"class_weight": {0: 2.0}, "loss": "hinge"}, "class_weight"),
    ],
)
def test_parameters_that_do_not_fit_together(options, match):
    with pytest.raises(ValueError, match=match):
        DPSGDClassifier(**options).fit(*blobs())


@pytest.mark.parametrize("options", [{"row_norm": None}, {"preprocessing": "theory"}])
def test_the_mean_needs_a_bound(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DPSGDFClassifier(**options).fit(*blobs())


def test_balanced_weights_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="count the private labels"):
        DPSGDClassifier(class_weight="balanced").fit(*blobs())


def with_entry(value):
    X, _ = blobs()
    X[3, 1] = value
    return X


BAD_ROWS = {
    "NaN": (with_entry(np.nan), "NaN"),
    "inf": (with_entry(np.inf), "infinity"),
    "no rows": (np.zeros((0, 5)), "0 sample"),
    "no columns": (np.zeros((120, 0)), "0 feature"),
    "one dimension": (np.full(120, 741.0), "2D array"),
    "complex": (blobs()[0] * (1 + 1j), "Complex data"),
    "text": (np.array([[SECRET] * 5] * 120), "not numbers"),
    "object": (np.array([[SECRET, 1.0, 2.0, 3.0, 4.0]] * 120, dtype=object), "not numbers"),
    "frame": (pd.DataFrame({"age": 1.0, "name": [SECRET] * 120}), "name"),
    "category": (pd.DataFrame({"sex": pd.Categorical([SECRET] * 120)}), "sex"),
    "ragged": ([[1.0, 2.0], [3.0]] * 60, "inhomogeneous|sequence|array element"),
}


@pytest.mark.parametrize(("X", "match"), BAD_ROWS.values(), ids=BAD_ROWS)
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_unusable_rows(Classifier, X, match):
    model = Classifier()
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        model.fit(X, blobs()[1])
    for error in (caught.value, caught.value.__context__, caught.value.__cause__):
        assert SECRET not in str(error) and "741" not in str(error)
    assert not hasattr(model, "privacy_")


def polars_frame(column):
    """Frame of Polars with a column of numbers and one that holds none."""
    pl = pytest.importorskip("polars")
    columns = {
        "text": pl.Series([SECRET] * 120),
        "category": pl.Series([SECRET] * 120).cast(pl.Categorical),
        "list": pl.Series([[7, 4, 1]] * 120),
        "object": pl.Series([object()] * 120, dtype=pl.Object),
    }
    return pl.DataFrame({"age": np.arange(120.0), "flag": [True] * 120, column: columns[column]})


@pytest.mark.parametrize("column", ["text", "category", "list", "object"])
@pytest.mark.parametrize("Estimator", [*CLASSIFIERS, BoundedScaler, DPPCA])
def test_columns_of_polars_without_numbers_are_named(Estimator, column):
    with pytest.raises(ValueError, match=f"not numbers in the columns {column}\\. ") as caught:
        Estimator().fit(polars_frame(column), blobs()[1])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("dtype", ["String", "Categorical", "Boolean", "Int64"])
def test_labels_may_be_a_series_of_polars(dtype):
    pl = pytest.importorskip("polars")
    X, y = blobs(n=400, n_classes=2)
    labels = {"String": ["no", "yes"], "Categorical": ["no", "yes"]}.get(dtype, [0, 1])
    series = pl.Series([labels[code] for code in y]).cast(getattr(pl, dtype))
    frame = pl.DataFrame(X, schema=list("abcde"))
    model = DPSGDClassifier(epsilon=9.0, random_state=0).fit(frame, series)
    assert model.classes_.tolist() == labels
    assert model.score(frame, series) > 0.8
    assert set(model.predict(frame)) == set(labels)


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "category"])
def test_labels_of_the_types_of_pandas_stay_what_they_are(dtype):
    X, y = blobs(n=100, n_classes=2)
    values = np.asarray(y) if dtype == "Int64" else np.asarray(y) > 0
    series = pd.Series(values).astype(dtype)
    classes = DPSGDClassifier().fit(X, series).classes_
    assert classes.tolist() == [0, 1] and classes.dtype == values.dtype
    assert pd.isna(series.where(series.index > 0)).any()
    with pytest.raises(ValueError, match=r"missing labels|NaN"):
        DPSGDClassifier().fit(X, series.where(series.index > 0))


def test_text_where_numbers_belong_is_not_told_to_go_away():
    """Dropping rows, or an estimator of tables, is no way out for whoever passed text."""
    X, labels = blobs(n=100, n_classes=2)[0], ["yes", "no"] * 50
    with pytest.raises(ValueError, match=r"`y` .* takes numbers: .*to_numeric"):
        DPLinearRegression().fit(X, labels)
    frame = pd.DataFrame({"age": [20.0] * 100, "ward": labels})
    with pytest.raises(ValueError, match=r"in the columns ward\. Convert .*to_numeric") as caught:
        private_mean(frame)
    assert "tabular_pipeline" not in str(caught.value)


def test_missing_labels_of_polars_are_said_to_be_missing():
    pl = pytest.importorskip("polars")
    labels = pl.Series([SECRET, None, "b"] * 40)
    with pytest.raises(ValueError, match="missing labels") as caught:
        DPSGDClassifier().fit(blobs()[0], labels)
    assert SECRET not in str(caught.value)


def test_a_date_in_a_data_frame_is_no_number():
    frame = pd.DataFrame({"day": [datetime.date(1974, 1, 1)] * 120})
    with pytest.raises(ValueError, match="not numbers in the columns day") as caught:
        DPSGDClassifier().fit(frame, blobs()[1])
    assert "1974" not in str(caught.value)


def test_a_single_record_in_predict_is_not_quoted():
    model = DPSGDClassifier(epsilon=5.0).fit(*blobs(n=400))
    with pytest.raises(ValueError, match="Reshape your data") as caught:
        model.predict(np.full(5, 741.0))
    assert "741" not in str(caught.value)


def test_the_way_out_of_gaps_is_not_an_imputer_fitted_on_private_rows():
    with pytest.raises(ValueError, match="would not be private"):
        DPSGDClassifier().fit(with_entry(np.nan), blobs()[1])


BAD_LABELS = {
    "one class": (np.zeros(120), "1 class"),
    "continuous": (np.linspace(0, 1, 120), "continuous"),
    "NaN": (np.where(np.arange(120) == 3, np.nan, 1.0), "NaN"),
    "length": (np.zeros(7), "inconsistent"),
    "two columns": (np.zeros((120, 2)), "1d array|multi"),
    "none": (None, "y"),
    "missing": (pd.array(["a", None, "b"] * 40, dtype="string"), "missing labels"),
    "None among text": (np.array([SECRET, None] * 60, dtype=object), "missing labels"),
    "None in a Series": (pd.Series([SECRET, None] * 60), "missing labels"),
    "mixed": (np.array([SECRET, 1] * 60, dtype=object), "types"),
}


@pytest.mark.parametrize(("y", "match"), BAD_LABELS.values(), ids=BAD_LABELS)
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_unusable_labels(Classifier, y, match):
    model = Classifier()
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        model.fit(blobs()[0], y)
    assert SECRET not in str(caught.value)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.arange(120) % 3, [0, 1]),
        (np.array([SECRET, "a"] * 60), ["a", "b"]),
        (np.array([SECRET, "a"] * 60, dtype=object), ["a", "b"]),
        (np.array([SECRET, "a"] * 60), [0, 1]),
        (np.arange(120) % 2, ["a", "b"]),
        (np.arange(120) % 2 + 741.0, [0, 1]),
    ],
)
def test_labels_outside_of_classes(y, classes):
    with pytest.raises(ValueError, match="not in `classes`") as caught:
        DPSGDClassifier(classes=classes).fit(blobs()[0], y)
    assert SECRET not in str(caught.value) and "741" not in str(caught.value)


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_rows_of_another_width_in_predict(Classifier):
    model = Classifier(epsilon=5.0).fit(*blobs(n=400))
    with pytest.raises(ValueError, match=r"4 features, but .* is expecting 5"):
        model.predict(np.zeros((2, 4)))


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_delta_above_one_over_n_warns(Classifier):
    with pytest.warns(PrivacyWarning, match="delta"):
        Classifier(epsilon=5.0, delta=0.01).fit(*blobs(n=400))


def extreme(X, kind):
    X = X.copy()
    if kind == "one huge row":
        X[0] = 1e300
    elif kind == "all huge":
        X *= 1e300
    elif kind == "denormal":
        X *= 5e-324
    elif kind == "zero row":
        X[:5] = 0.0
    elif kind == "all zero":
        X[:] = 0.0
    elif kind == "constant column":
        X[:, 0] = 1.0
    else:
        X = X.astype(kind)
    return X


KINDS = [
    "one huge row",
    "all huge",
    "denormal",
    "zero row",
    "all zero",
    "constant column",
    np.float16,
    np.float32,
    np.int8,
    np.uint8,
    bool,
]
MAPS = [
    {},
    {"fit_intercept": False},
    {"row_norm": 3.0},
    {"row_norm": 3.0, "fit_intercept": False},
    {"row_norm": None},
]
MAPPED = [
    (Classifier, options)
    for Classifier in CLASSIFIERS
    for options in MAPS
    if not (Classifier is DPSGDFClassifier and "row_norm" in options and not options["row_norm"])
]
MAPPED += [(DPSGDFClassifier, {"preprocessing": "adaptive"} | options) for options in MAPS[:-1]]


@pytest.mark.filterwarnings("ignore:(the (noise|released)|class):dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(("kind", "mapped"), pairs_first(KINDS, MAPPED), ids=str)
def test_extreme_rows_give_a_finite_model(kind, mapped):
    (Classifier, options), (X, y) = mapped, blobs(n=400)
    model = Classifier(epsilon=5.0, random_state=0, **options).fit(extreme(X, kind), y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert np.isfinite(model.predict_proba(X)).all()


def test_one_huge_row_does_no_harm():
    X, y = blobs(n=400)
    for options in ({}, {"row_norm": 5.0}):
        model = DPSGDClassifier(epsilon=5.0, random_state=0, **options)
        clean = model.fit(X, y).score(X, y)
        assert model.fit(extreme(X, "one huge row"), y).score(X, y) > clean - 0.02


def test_labels_named_in_classes_draw_no_warning_that_depends_on_them():
    """scikit-learn warns of many unique labels, which is private where `classes` names them."""
    y = np.arange(40) % 25
    model = DPSGDClassifier(epsilon=100.0, classes=np.arange(25))
    model.fit(np.random.default_rng(0).normal(size=(40, 3)), y)


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_overflow_on_one_row_is_silent(dtype):
    X = blobs(n=400)[0].astype(dtype)
    X[0] = np.finfo(dtype).max
    DPSGDClassifier(epsilon=5.0, row_norm=None).fit(X, blobs(n=400)[1])


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_a_row_of_largest_numbers_of_both_signs_is_not_told_of(dtype, form):
    """Checks add up all entries: two halves overflow to inf and -inf, of which NumPy warns."""
    X, y = blobs(n=400, d=4)
    X = X.astype(dtype)
    X[0] = np.finfo(dtype).max * np.array([1.0, 1.0, -1.0, -1.0])
    model = DPSGDClassifier(epsilon=5.0).fit(form(X), y)
    model.predict(form(X))


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_settings_that_diverge_are_refused_before_the_first_release(Classifier):
    model = Classifier(epsilon=5.0, learning_rate=10.0, alpha=1.0)
    with pytest.raises(ValueError, match="`learning_rate`=10 and `alpha`=1 diverge"):
        model.fit(*blobs(n=400))
    assert not hasattr(model, "privacy_")


@pytest.mark.filterwarnings("ignore:(the noise of|class):dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "options", [{"alpha": 1e6}, {"learning_rate": 1e40, "alpha": 0.0}], ids=str
)
@pytest.mark.parametrize("epsilon", [1e-4, 5.0, math.inf])
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_extreme_settings_give_a_finite_model(Classifier, epsilon, options):
    X, y = blobs(n=400)
    model = Classifier(epsilon=epsilon, random_state=0, **options).fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("rows", [lambda X: X, lambda X: X[10:20], lambda X: X[::2]], ids="abc")
@pytest.mark.parametrize("Estimator", GEP)
def test_private_rows_are_not_taken_for_public_ones(Estimator, rows):
    X, y = blobs(n=400)
    model = Estimator(epsilon=9.0)
    with pytest.raises(ValueError, match=r"`X_public\[0\]` is a part of `X` itself"):
        model.fit(X, y, X_public=(rows(X),))
    assert not hasattr(model, "privacy_")


# Words of messages --------------------------------------------------------------------------


@pytest.mark.parametrize("Estimator", [*ESTIMATORS, *GEP, *MODULES, BoundedScaler, DPPCA])
def test_errors_of_python_name_no_class_that_users_do_not_know(Estimator):
    X, y = blobs()
    name = Estimator.__name__
    with pytest.raises(TypeError, match=rf"^{name}\.fit\(\) got an unexp.*'sample_weight'"):
        Estimator().fit(X, y, sample_weight=y)
    for method in ("predict", "decision_function", "predict_proba", "privacy_event"):
        if hasattr(Estimator, method):
            with pytest.raises(TypeError, match=rf"^({name}\.)?{method}\(\) got an unexp"):
                getattr(Estimator(), method)(rows=X)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.uint8(7), "7"),
        ((np.float64(1), np.array([0.0, 2.0])), "(1.0, [0.0, 2.0])"),
        ({np.int64(1): np.float32(0.5)}, "{1: 0.5}"),
        (np.arange(20), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"),
        (np.arange(1000), "an array"),  # rows, perhaps, whose entries no message has
        (["yes", "no"] * 500, "a list"),
        (np.array("cuda"), "'cuda'"),
        (math.nan, "nan"),
    ],
)
def test_values_in_messages_are_as_a_person_writes_them(value, expected):
    assert shown(value) == expected


def test_messages_have_no_entries_of_columns_and_frames():
    pd = pytest.importorskip("pandas")
    for value in (pd.Series(["yes", "no"]), pd.DataFrame({"age": [49]})):
        assert shown(value) == f"a {type(value).__name__}"


def test_messages_have_no_types_of_numpy_in_them():
    X, y = blobs(n_classes=2)
    y = y.astype(np.uint8)
    fits = {
        "`epsilon`.*got -1.0": lambda: DPSGDClassifier(epsilon=np.float64(-1)).fit(X, y),
        r"has the label 7, and the classes are \[0, 1\]": lambda: DPSGDClassifier(
            class_weight={np.uint8(7): 1.0}
        ).fit(X, y),
        r"got \(1.0, 0.0\)": lambda: DPSGDRegressor(target_bounds=(*np.eye(2)[0],)).fit(X, y),
        r"\[6, 7\]: the classes are \[0, 1\]": lambda: GEPClassifier().fit(
            X, y, X_public=(X + 0,), y_public=(y + np.uint8(6),)
        ),
    }
    for match, fit in fits.items():
        with pytest.raises(ValueError, match=match) as caught:
            fit()
        assert "np." not in str(caught.value)
