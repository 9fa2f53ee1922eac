"""The picture of importances."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpsubspace import (
    Categories,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    Range,
    tabular_pipeline,
)
from dpsubspace.inspection import ImportanceDisplay
from dpsubspace.tables import TableEncoder

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

SCHEMA = {"age": Range(0, 1), "ward": Categories(["A", "B"]), "dose": Range(0, 1, missing=True)}


def fitted(epsilon=3.0, classes=2):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(size=600), "ward": rng.choice(["A", "B"], 600)})
    frame["dose"] = np.where(rng.uniform(size=600) < 0.3, np.nan, rng.uniform(size=600))
    labels = pd.cut(frame["age"].to_numpy(), classes, labels=False)
    model = tabular_pipeline(DPSGDFClassifier(random_state=0), SCHEMA, epsilon=epsilon)
    return model.fit(frame, labels), frame


def test_bars_are_the_importances_of_the_model_in_their_order():
    model, _ = fitted()
    display = ImportanceDisplay.from_estimator(model)
    np.testing.assert_allclose(display.importances, model.feature_importances_, atol=1e-12)
    order = np.argsort(-display.importances, kind="stable")
    assert [bar.get_width() for bar in display.bars_] == pytest.approx(display.importances[order])
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == [list(SCHEMA)[i] for i in order] and names[0] == "age"
    assert display.ax_.yaxis_inverted() and display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel().startswith("share of the variance of the log-odds of 1")
    assert "90%" in display.ax_.get_xlabel()
    lines = display.bars_.errorbar.lines[2][0].get_segments()
    np.testing.assert_allclose([line[0][0] for line in lines], display.low[order], atol=1e-12)
    np.testing.assert_allclose([line[1][0] for line in lines], display.high[order], atol=1e-12)


def test_public_rows_without_names_are_refused_where_they_would_be_taken_for_other_columns():
    model, frame = fitted()
    others = frame.assign(age=frame["age"].to_numpy()[::-1])  # than those of the fit
    ImportanceDisplay.from_estimator(model, X_public=others.to_numpy())  # in the schema's order
    model.fit(frame[["dose", "age", "ward"]], np.arange(len(frame)) % 2)
    with pytest.raises(ValueError, match="`X_public` has no column names"):
        ImportanceDisplay.from_estimator(model, X_public=others.to_numpy())


def test_a_higher_level_has_longer_bands():
    model, _ = fitted()
    narrow, wide = (ImportanceDisplay.from_estimator(model, level=level) for level in (0.5, 0.99))
    assert (narrow.low >= wide.low).all() and (narrow.high <= wide.high).all()
    assert (wide.high - wide.low).sum() > 1.2 * (narrow.high - narrow.low).sum()


def test_without_noise_there_are_no_whiskers():
    display = ImportanceDisplay.from_estimator(fitted(epsilon=float("inf"))[0])
    assert display.low is None and display.bars_.errorbar is None
    assert "whiskers" not in display.ax_.get_xlabel()


def test_the_most_important_columns_are_drawn():
    model, _ = fitted()
    _, ax = plt.subplots()
    display = ImportanceDisplay.from_estimator(model, ax=ax, max_columns=2)
    assert display.ax_ is ax and len(display.bars_) == 2
    assert ax.get_title() == "Importance (2 of 3 columns)"
    assert display.plot(bar_kw={"color": "black"}) is display and display.ax_ is not ax
    assert ax.get_xlim() == (0, 1)


def test_public_rows_and_classes_can_be_chosen():
    model, frame = fitted(classes=3)
    both = ImportanceDisplay.from_estimator(model)
    one = ImportanceDisplay.from_estimator(model, target=2)
    assert "log-odds of 2" in one.ax_.get_xlabel()
    assert not np.array_equal(one.importances, both.importances)
    old = frame.assign(age=0.9)
    assert ImportanceDisplay.from_estimator(model, X_public=old).importances[0] < 1e-12


def test_a_pipeline_of_scikit_learn_will_do():
    frame = fitted()[1]
    of_numbers = make_pipeline(
        TableEncoder(SCHEMA), DPSGDRegressor(data_norm=1.0, target_bounds=(0, 1))
    )
    display = ImportanceDisplay.from_estimator(of_numbers.fit(frame, frame["age"].rename("years")))
    assert display.importances.argmax() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level"),
        ({"target": 7}, r"`target` must be one of \[1\], or None"),
        ({"max_columns": 0}, "max_columns"),
        ({"X_public": pd.DataFrame({"age": [0.5]})}, "X_public"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    model, frame = fitted()
    with pytest.raises(ValueError, match=message):
        ImportanceDisplay.from_estimator(model, **options)
    with pytest.raises(ValueError, match="`X_public` has no rows"):
        ImportanceDisplay.from_estimator(model, X_public=frame[:0])


def test_other_models_are_refused_with_the_way_out():
    frame = fitted()[1]
    with pytest.raises(ValueError, match=r"ImportanceDisplay draws a fitted pipeline .* permutat"):
        ImportanceDisplay.from_estimator(DPSGDClassifier())
    model = make_pipeline(TableEncoder(SCHEMA), LogisticRegression()).fit(frame, frame["age"] > 0.5)
    with pytest.raises(ValueError, match=r"linear models, not LogisticRegression.*permutation_imp"):
        ImportanceDisplay.from_estimator(model)
    with pytest.raises(NotFittedError):
        ImportanceDisplay.from_estimator(tabular_pipeline(DPSGDClassifier(), SCHEMA))


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"ImportanceDisplay needs matplotlib"):
        ImportanceDisplay.from_estimator(None)
