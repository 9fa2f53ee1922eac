"""What users type first, and the answer that leads on, before anything is charged."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from dpsubspace import (
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    GEPClassifier,
    PrivacyLedger,
    Range,
    Schema,
    load,
    privacy_report,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    tabular_pipeline,
)
from dpsubspace.budget import PrivacyGuarantee
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay

RNG = np.random.default_rng(0)
STAYS = pd.DataFrame({"age": RNG.uniform(18, 95, 400), "ward": RNG.choice(["a", "b"], 400)})
ILL = (STAYS["age"] > 50).to_numpy()
DAYS = RNG.uniform(1, 60, 400)
SCHEMA = {"age": Range(18, 95), "ward": Categories(["a", "b"])}


class Knows:
    """A fitted model of others, of two classes."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.zeros(len(X), int)


@pytest.fixture
def ledger():
    """Open a ledger, in which nothing may have been charged in the end."""
    with PrivacyLedger(epsilon=10.0, delta=1e-5) as ledger:
        yield ledger
    assert not ledger.entries


def refused(call, kind=ValueError):
    """Text of the error of a call."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *[("auc", "roc_auc"), ("AUC", "roc_auc"), ("ROC AUC", "roc_auc"), ("recal", "recall")],
        *[("rmse", "root_mean_squared_error"), ("MAE", "mean_absolute_error")],
        *[("mse", "mean_squared_error"), ("r2_score", "r2"), ("sensitivity", "recall")],
        (["accuracy", "auc"], "roc_auc"),
    ],
)
def test_a_metric_by_another_name(ledger, typed, meant):
    said = refused(lambda: private_score(Knows(), STAYS, ILL, metric=typed, epsilon=1.0))
    assert said.endswith(f"Did you mean {meant!r}?")


@pytest.mark.parametrize("typed", ["average_precision", "pr_auc"])
def test_a_metric_that_there_is_not(ledger, typed):
    said = refused(lambda: private_score(Knows(), STAYS, ILL, metric=typed, epsilon=1.0))
    assert f"There is no {typed!r}: ask for 'roc_auc'" in said


def test_whatever_takes_a_name_knows_the_nearest_one(ledger):
    calls = {
        "'zero_out'": lambda: DPSGDClassifier(neighboring_relation="zero-out").fit([[1.0]], [0]),
        "'moments'": lambda: DPLinearRegression(solver="moment").fit([[1.0]], [0]),
        "'replace_one'": lambda: PrivacyLedger(1.0, 1e-5, neighboring_relation="replace"),
        "'regression'": lambda: tabular_pipeline("regresion", SCHEMA),
        "'classification'": lambda: tabular_pipeline("classifier", SCHEMA),
        "'epsilon'": lambda: DPSGDClassifier().set_params(epsilom=1.0),
    }
    for meant, call in calls.items():
        assert f"Did you mean {meant}?" in refused(call, (TypeError, ValueError)), meant


def test_a_class_by_a_near_name():
    y = np.where(ILL, "ill", "well")
    model = tabular_pipeline("classification", SCHEMA, epsilon=float("inf")).fit(STAYS, y)
    said = refused(lambda: ShapeDisplay.from_estimator(model, target="wel"))
    assert said.endswith("Did you mean 'well'?")


def test_a_parameter_by_a_near_name(ledger):
    said = refused(lambda: DPSGDClassifier(epsilom=1.0), TypeError)
    assert said.endswith("keyword argument 'epsilom'. Did you mean 'epsilon'?")
    said = refused(lambda: private_mean([[1.0]], bounds=(0, 1), epsilon=1, stat=0), TypeError)
    assert said.endswith("keyword argument 'stat'")
    said = refused(lambda: DPLinearRegression(class_weight={0: 1.0}), TypeError)
    assert said.endswith("only classifiers have weights of classes.")


# Parameters of other places -----------------------------------------------------------------------


@pytest.mark.parametrize("word", ["class_weight", "delta", "random_state", "alpha"])
def test_parameters_of_the_model_of_a_table(word):
    said = refused(lambda: tabular_pipeline("classification", SCHEMA, **{word: None}), TypeError)
    assert f"tabular_pipeline(DPSGDFClassifier({word}=...), schema)" in said
    model = DPSGDFClassifier(class_weight={0: 1.0, 1: 2.0}, delta=1e-6, random_state=0)
    assert tabular_pipeline(model, SCHEMA).steps[-1][1].delta == 1e-6


def test_the_range_of_targets_by_other_words():
    said = refused(
        lambda: tabular_pipeline("regression", SCHEMA, target_bounds=Range(0, 60)), TypeError
    )
    assert "target=Range(0, 60)" in said


def test_a_schema_in_place_of_a_model():
    said = refused(lambda: tabular_pipeline(SCHEMA, "classification"), TypeError)
    assert "tabular_pipeline('classification', schema)" in said


@pytest.mark.parametrize(
    "call",
    [
        lambda bounds: DPLinearRegression(target_bounds=bounds).fit(STAYS[["age"]], DAYS),
        lambda bounds: BoundedScaler(bounds=bounds).fit(STAYS[["age"]]),
        lambda bounds: private_mean(STAYS[["age"]], bounds=bounds, epsilon=1.0),
        lambda bounds: private_score(
            Knows(), STAYS, DAYS, metric="r2", target_bounds=bounds, epsilon=1.0
        ),
    ],
)
def test_a_range_where_a_pair_belongs(ledger, call):
    assert "bounds=(0, 60)." in refused(lambda: call(Range(0, 60)))


# Paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "way_out"),
    [
        ("stays", "pyarrow.dataset.dataset('stays')"),
        ("stays.csv", "pandas.read_csv('stays.csv')"),
        ("stays.Parquet", "pandas.read_parquet('stays.Parquet')"),
    ],
)
def test_a_path_is_no_table(ledger, tmp_path, path, way_out):
    model = tabular_pipeline("classification", SCHEMA)
    for call in (
        lambda: model.fit(path, "ill"),
        lambda: DPSGDClassifier().fit(path, "ill"),
        lambda: private_score(Knows(), path, "ill", epsilon=1.0),
        lambda: private_summary(path, SCHEMA, epsilon=1.0),
        lambda: private_counts(path, SCHEMA, columns=["ward"], epsilon=1.0),
        lambda: private_mean(path, bounds=(0, 1), epsilon=1.0),
    ):
        assert way_out in refused(call)
    assert "pyarrow.dataset" in refused(lambda: model.fit(tmp_path, "ill"))


def test_the_name_of_a_column_is_no_column(ledger):
    frame = STAYS.assign(ill=ILL)
    for model in (tabular_pipeline("classification", SCHEMA), DPSGDClassifier()):
        said = refused(lambda model=model: model.fit(frame, "ill"))
        assert "y=frame['ill']" in said
        assert "frame.drop(columns='ill')" in said


# A dataset to score -------------------------------------------------------------------------------


def test_a_score_of_a_dataset_says_how_to_read_it(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    table = arrow.Table.from_pandas(STAYS.assign(y=ILL))
    dataset.write_dataset(table, tmp_path, format="parquet")
    rows = dataset.dataset(tmp_path)
    model = tabular_pipeline("classification", SCHEMA).fit(rows, "y")
    said = refused(lambda: private_score(model, rows, "y", epsilon=1.0))
    way_out = "private_score(model, table.drop_columns(['y']), table['y'].to_numpy(), ...)"
    assert way_out in said
    read = rows.to_table()
    score = private_score(model, read.drop_columns(["y"]), read["y"].to_numpy(), epsilon=1.0)
    assert 0 <= score.value <= 1


# Models that are not fitted -----------------------------------------------------------------------


# What older versions of scikit-learn say of any Pipeline, before code of ours runs.
OF_PIPELINES = "Pipeline is not fitted yet."


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc", "mean_absolute_error"])
@pytest.mark.parametrize("of_table", [False, True])
def test_a_score_of_a_model_that_is_not_fitted(ledger, metric, of_table):
    numbers = metric == "mean_absolute_error"
    bounds = {"target_bounds": (0, 60)} if numbers else {}
    model = DPLinearRegression() if numbers else DPSGDClassifier()
    if of_table:
        model = tabular_pipeline(model, SCHEMA, target=(0, 60) if numbers else None)
    y = DAYS if numbers else ILL
    said = refused(
        lambda: private_score(model, STAYS, y, metric=metric, epsilon=1.0, **bounds),
        NotFittedError,
    )
    assert type(model).__name__ in said or said == OF_PIPELINES


def test_a_score_of_a_class(ledger):
    said = refused(lambda: private_score(DPSGDClassifier, STAYS, ILL, epsilon=1.0), TypeError)
    assert "DPSGDClassifier(...).fit(X, y)" in said


@pytest.mark.parametrize(
    "use",
    [
        ShapeDisplay.from_estimator,
        ImportanceDisplay.from_estimator,
        lambda model: model.feature_importances_,
        lambda model: model.predict(STAYS),
        lambda model: model.to_json(),
    ],
)
def test_uses_of_a_table_that_is_not_fitted(use):
    said = refused(lambda: use(tabular_pipeline("classification", SCHEMA)), NotFittedError)
    assert "TabularPipeline" in said or said == OF_PIPELINES


# Order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_array", [False, True])
def test_rows_and_labels_that_are_swapped(ledger, as_array):
    X = STAYS[["age"]].to_numpy() if as_array else STAYS
    for call in (
        lambda: DPSGDClassifier().fit(ILL, X),
        lambda: DPLinearRegression().fit(DAYS, X),
        lambda: tabular_pipeline("classification", SCHEMA).fit(ILL, X),
        lambda: private_score(Knows(), ILL, X, epsilon=1.0),
    ):
        assert "swapped" in refused(call)


@pytest.mark.parametrize("pair", [[0, 1], [1, 2], [1, 0], [18, 95]])
def test_two_numbers_in_a_list_are_a_range_or_categories(pair):
    said = refused(lambda: Schema({"sex": pair}))
    for code in said.rpartition("write ")[2].rstrip(".").split(" or "):
        assert eval(code, {"Range": Range, "Categories": Categories})


# Files --------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written(tmp_path):
    model = DPSGDClassifier(epsilon=float("inf")).fit(STAYS[["age"]], ILL)
    writers = [
        model.to_json,
        model.privacy_.to_json,
        Schema(SCHEMA).to_json,
        privacy_report(model).to_html,
        PrivacyLedger(epsilon=1.0, delta=1e-5).save,
        lambda path: PrivacyLedger(epsilon=1.0, delta=1e-5, path=path),
    ]
    for write in writers:
        said = refused(lambda write=write: write(tmp_path / "no" / "a.json"), FileNotFoundError)
        assert "does not exist" in said
        said = refused(lambda write=write: write(tmp_path), IsADirectoryError)
        assert "is a folder" in said
    locked = tmp_path / "locked"
    locked.write_text("")  # a file in place of the folder: no user can write there
    for write in writers:
        said = refused(lambda write=write: write(locked / "a.json"), OSError)
        assert "`path`" in said


def test_a_file_that_cannot_be_read(tmp_path):
    for read in (load, Schema.from_json, PrivacyGuarantee.from_json):
        assert "is a folder" in refused(lambda read=read: read(tmp_path), IsADirectoryError)
        assert "cannot be read" in refused(
            lambda read=read: read(tmp_path / "none.json"), FileNotFoundError
        )


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [DPSGDClassifier, DPSGDFClassifier, GEPClassifier])
def test_what_weights_are_not_is_said_at_the_attribute(model):
    about = model.__doc__.partition("    coef_ : ")[2].partition("    intercept_ : ")[0]
    assert ":meth:`decision_function`" in about
    assert ":func:`private_coefficients`" in about


def test_weights_alone_are_not_the_score():
    model = DPSGDClassifier(epsilon=float("inf")).fit(STAYS[["age"]], ILL)
    score = STAYS[["age"]].to_numpy() @ model.coef_.T + model.intercept_
    assert not np.allclose(score[:, 0], model.decision_function(STAYS[["age"]]))
