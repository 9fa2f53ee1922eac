"""Tables whose targets are fitted as logarithms, and predicted in their own units."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor

from dpsubspace import (
    Categories,
    DPLinearRegression,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateRange,
    Range,
    load,
    privacy_report,
    private_score,
    tabular_pipeline,
)
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay
from dpsubspace.linear_model import PublicSubspaceLinearRegression

SCHEMA = {"age": Range(18, 95), "ward": Categories(["a", "b"])}
DAYS = Range(1, 60, log=True)
LOGS = (0.0, math.log(60.0))
MODELS = [DPLinearRegression, DPSGDRegressor]


def stays(n=1500):
    """Make up stays, some of less than a day."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(18, 95, n), "ward": rng.choice(["a", "b"], n)})
    days = np.exp(frame["age"] / 40 + (frame["ward"] == "a") + rng.normal(-0.5, 0.4, n))
    return frame, np.round(days.to_numpy(), 1)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_it_is_a_fit_to_logarithms(kind, epsilon):
    X, y = stays()
    options = {"epsilon": epsilon}
    model = tabular_pipeline(kind(random_state=0), SCHEMA, target=DAYS, **options).fit(X, y)
    logs = np.log(np.maximum(y, 1.0))
    by_hand = tabular_pipeline(kind(random_state=0), SCHEMA, target=LOGS, **options).fit(X, logs)
    found = model.predict(X)
    np.testing.assert_allclose(found, np.exp(by_hand.predict(X)), rtol=1e-9)
    assert found.min() >= 1.0
    assert found.max() <= 60.0
    assert model.privacy_.event == by_hand.privacy_.event
    assert model.target_range_[1] <= 60.0
    assert model.score(X, y) > 0.3


@pytest.mark.parametrize("kind", MODELS)
def test_predictions_are_medians(kind):
    X, y = stays(8000)
    model = tabular_pipeline(kind(), SCHEMA, target=DAYS, epsilon=float("inf")).fit(X, y)
    below = np.mean(np.clip(y, 1, 60) < model.predict(X))
    assert 0.45 < below < 0.55


def test_several_targets_persons_and_texts():
    X, y = stays()
    model = tabular_pipeline(DPLinearRegression(), SCHEMA, target=DAYS, epsilon=float("inf"))
    both = model.fit(X, np.column_stack([y, 2 * y]), groups=np.arange(len(X)) // 2).predict(X)
    alone = model.fit(X, y.tolist(), groups=np.arange(len(X)) // 2).predict(X)
    np.testing.assert_allclose(both[:, 0], alone, rtol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_kept_by_files_and_not_by_parameters(kind):
    X, y = stays()
    model = tabular_pipeline(kind(random_state=0), SCHEMA, target=DAYS).fit(X, y)
    found = model.predict(X)
    assert (load(model.to_json()).predict(X) == found).all()
    assert (model.set_params(target=None).predict(X) == found).all()
    model.set_params(target=(1, 60)).fit(X, y)  # and a later fit forgets it
    assert np.abs(np.log(model.predict(X)) - np.log(found)).max() > 1e-3
    assert "logarithms" not in model.to_json()


def test_guarantee_report_shapes_and_scores_are_kept():
    pytest.importorskip("matplotlib").use("agg")
    X, y = stays()
    with PrivacyLedger(epsilon=4.0, delta=1e-5) as ledger:
        model = tabular_pipeline("regression", SCHEMA, epsilon=1.0, target=DAYS).fit(X, y)
        X_new, y_new = X.assign(age=113 - X["age"]), y
        score = private_score(
            model,
            X_new,
            y_new,
            metric="mean_absolute_error",
            target_bounds=(0, 60),
            epsilon=2.0,
        )
    assert len(ledger) == 2
    assert score.value < 20
    assert model.privacy_.epsilon == 1.0
    assert "TabularPipeline" in privacy_report(model).to_html()
    for display in (ShapeDisplay, ImportanceDisplay):
        assert "of the logarithm of target" in display.from_estimator(model).score_name


def test_rows_of_dask_and_of_datasets(tmp_path, client):
    dask = pytest.importorskip("dask.dataframe")
    dataset = pytest.importorskip("pyarrow.dataset")
    X, y = stays()
    frame = X.assign(days=y)
    model = tabular_pipeline(DPLinearRegression(random_state=0), SCHEMA, target=DAYS)
    here = model.fit(X, y).predict(X)
    parts = dask.from_pandas(frame, npartitions=3)
    model.fit(parts[["age", "ward"]], parts["days"])
    np.testing.assert_allclose(model.predict(parts[["age", "ward"]]).compute(), here, rtol=0.2)
    frame.to_parquet(tmp_path / "a.parquet")
    model.fit(dataset.dataset(tmp_path), "days")
    np.testing.assert_allclose(model.predict(X), here, rtol=0.2)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("log", "Range(low, high), with log=True"),
        (Range(0, 60, log=True), "such as Range(1, 60, log=True)"),
        (Range(-5, 60, log=True), "such as Range(1, 60, log=True)"),
        (PrivateRange(log=True), "such as Range(1, 60, log=True)"),
        (Range(1, 60, missing=True), "drop rows without a target"),
    ],
)
def test_what_has_no_logarithm_is_refused(target, words):
    with pytest.raises(ValueError) as caught:
        tabular_pipeline("regression", SCHEMA, target=target)
    assert words in str(caught.value)


def test_logarithms_of_classes_and_of_public_targets_are_refused():
    X, y = stays()
    with pytest.raises(ValueError, match="is a classifier"):
        tabular_pipeline(GEPClassifier(), SCHEMA, target=DAYS)
    model = tabular_pipeline(PublicSubspaceLinearRegression(), SCHEMA, target=DAYS)
    with PrivacyLedger(epsilon=4.0, delta=1e-5) as ledger:
        with pytest.raises(ValueError, match="the logarithms of `y` and of `y_public`"):
            model.fit(X, y, X_public=X[:100] * 1, y_public=y[:100])
        assert not ledger.entries


def test_what_takes_the_place_of_a_transformed_target_is_said():
    X, y = stays()
    inner = tabular_pipeline("regression", SCHEMA, target=LOGS)
    model = TransformedTargetRegressor(inner, func=np.log1p, inverse_func=np.expm1)
    model.fit(X, np.maximum(y, 1.0))
    for use in (privacy_report, ShapeDisplay.from_estimator, ImportanceDisplay.from_estimator):
        with pytest.raises((ValueError, PrivacyError), match="target=Range"):
            use(model)
