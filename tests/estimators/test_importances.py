"""Importances of columns: held against shapes, grids of scores, and weights with known noise."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel

from dpsubspace import (
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    Range,
    tabular_pipeline,
)
from dpsubspace._core.solvers.descent import WeightNoise
from dpsubspace._core.tables.schema import read_table
from dpsubspace.linear_model._base import LinearScores
from dpsubspace.tables._column_importances import _Outputs, importances_of
from dpsubspace.tables._column_shapes import released_scores, shapes_of

SCHEMA = {
    "age": Range(17, 90),
    "dose": Range(1, 1000, log=True, missing=True),
    "ward": Categories(["A", "B", "C"], missing=True),
    "sex": ["f", "m"],
}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    gaps = rng.uniform(size=n) < 0.2
    frame = pd.DataFrame(
        {
            "age": rng.uniform(17, 90, n),
            "dose": np.where(gaps, np.nan, np.exp(rng.uniform(0, np.log(1000), n))),
            "ward": rng.choice(["A", "B", "C", None], n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    return frame, frame["age"] / 10 + 2 * gaps + 3 * (frame["ward"] == "B") + rng.normal(size=n)


def fitted(model, *, schema=SCHEMA, classes=2, epsilon=float("inf"), **options):
    frame, values = table()
    frame = frame[[*schema]]
    if not hasattr(model, "row_norm"):
        options["target"] = Range(0, 20)
    else:
        values = pd.qcut(values, classes, labels=False)
    return tabular_pipeline(model, schema, epsilon=epsilon, **options).fit(frame, values)


def found(model, **options):
    return importances_of(model[0].encoding_, model[-1], **options)


# What they are ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        DPSGDClassifier(row_norm=None),
        DPSGDFClassifier(row_norm=1.0),
        DPSGDRegressor(),
        DPLinearRegression(),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_shares_of_sums_are_those_of_the_variances_of_shapes(estimator, classes):
    model = fitted(clone(estimator), interactions=False, classes=classes)
    shapes, variances = shapes_of(model[0].encoding_, model[-1]), []
    for name in SCHEMA:
        shape = shapes.of(name, 65)  # every second place is the middle of one of 32 parts
        values = shape.values if shape.categorical else shape.values[1::2]
        shares = np.full(len(values), 1 / len(values))
        if shape.missing is not None:
            values, shares = np.vstack([values, shape.missing]), np.append(0.9 * shares, 0.1)
        variances.append((shares @ (values - shares @ values) ** 2).sum())
    expected = np.array(variances) / np.sum(variances)
    np.testing.assert_allclose(found(model).values, expected, atol=1e-4)
    assert found(model).values.sum() == pytest.approx(1.0, abs=1e-3)


def test_columns_that_act_together_count_with_each_other():
    """Against all scores on a grid of two numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, size=(500, 2)), columns=["a", "b"])
    schema = {"a": Range(-1, 1), "b": Range(-1, 1)}
    model = tabular_pipeline("regression", schema, float("inf"), Range(-2, 2), True)
    model.fit(frame, 0.5 * frame["a"] + frame["a"] * frame["b"])
    even = (np.arange(64) + 0.5) / 32 - 1
    grid = pd.DataFrame({"a": np.repeat(even, 64), "b": np.tile(even, 64)})
    scores = model.predict(grid).reshape(64, 64)
    expected = np.array([scores.var(axis=0).mean(), scores.var(axis=1).mean()]) / scores.var()
    values = model.feature_importances_
    np.testing.assert_allclose(values, expected, atol=0.02)
    assert values.sum() > 1.3  # the product counts twice


def test_what_is_not_used_has_none_and_one_column_has_all():
    model = fitted(DPSGDFClassifier(row_norm=1.0), interactions=True)
    of_age = ["age" in name for name in model[0].encoding_.names]
    model[-1].coef_[:, of_age] = 0.0
    values = model.feature_importances_
    assert values[0] < 1e-12 and values[1:].max() > 0.1
    model = fitted(DPLinearRegression(), schema={"age": Range(17, 90)})
    assert model.feature_importances_ == pytest.approx([1.0])


def test_the_order_of_columns_does_not_matter():
    one = fitted(DPLinearRegression(), interactions=False)
    other = fitted(DPLinearRegression(), interactions=False, schema=dict([*SCHEMA.items()][::-1]))
    np.testing.assert_allclose(
        one.feature_importances_, other.feature_importances_[::-1], atol=1e-3
    )


def test_what_all_classes_have_in_common_does_not_count():
    model = fitted(DPSGDFClassifier(random_state=0), classes=3, epsilon=3.0)
    before = found(model, level=0.9)
    model[-1].coef_ += np.random.default_rng(0).normal(size=model[-1].coef_.shape[1])
    after = found(model, level=0.9)
    for name in ("values", "low", "high"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), atol=1e-6)
    one = found(model, output=2)
    assert not np.allclose(one.values, after.values, atol=1e-3)


def test_public_rows_tell_how_columns_are_spread():
    model, (frame, _) = fitted(DPLinearRegression(), interactions=False), table(4000, 1)
    frame["ward"] = "A"
    public = read_table(frame, model[0].schema_)
    values = found(model, public=public).values
    assert values[2] == 0.0 and values[0] > 0.5
    frame["age"] = np.random.default_rng(1).permutation(np.linspace(17, 90, len(frame)))
    frame["ward"] = np.resize(["A", "B", "C"], len(frame))
    even = found(model, public=read_table(frame, model[0].schema_)).values
    assert even[2] > 0.02 and values[0] > even[0]


# Noise ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [None, "diagonal", "matrix"])
@pytest.mark.parametrize("by_column", [False, True])
def test_the_noise_that_is_taken_out_is_exact(rng, factor, by_column):
    """Its mean is a trace, of a matrix that is written down here."""
    p, c, q = 6, 3, 4 if factor == "matrix" else 6
    lifted = {"matrix": rng.normal(size=(p, q)), "diagonal": rng.uniform(1, 2, p)}.get(factor)
    sizes = rng.uniform(0.5, 2, size=(q, c) if by_column else c)
    weights, rows = rng.normal(size=(p + 1, c)), rng.normal(size=(20, p + 1))
    scores = LinearScores(weights, 0.0, None, None, WeightNoise(sizes, lifted))
    matrix = np.eye(p) if lifted is None else np.diag(lifted) if lifted.ndim == 1 else lifted
    mixing = np.eye(c) - 1 / c
    expected = 0.0
    for k, column in enumerate(np.broadcast_to(sizes, (q, c)).T):
        covariance = matrix @ np.diag(column**2) @ matrix.T
        moved = rows[:, :p] @ covariance @ rows[:, :p].T
        expected += np.trace(moved) * (mixing[k] ** 2).sum()
    variance = _Outputs.of(scores, classes=True, output=None, draws=True).variance(rows)
    assert variance.noise == pytest.approx(expected)
    assert variance.value == pytest.approx((((rows @ weights) @ mixing) ** 2).sum())
    # Draws have that mean: 256 of them are off by 8 of their own deviations with a chance of 1e-14.
    off = variance.squares.mean() - expected
    assert abs(off) < 8 * variance.squares.std() / 16


def test_bands_cover_weights_without_noise(monkeypatch):
    """Noise of known size: over 300 draws of it, a column is covered at least as often as is said.

    Where it is covered in 0.9 of the draws, it is in fewer than 0.78 with a chance of 1e-10.
    """
    model = fitted(DPSGDClassifier(row_norm=None), interactions=False)
    encoding, last = model[0].encoding_, model[-1]
    scores, rng = last._linear_scores(), np.random.default_rng(0)
    exact = found(model).values
    size = 0.3 * np.linalg.norm(scores.weights) / np.sqrt(len(scores.weights))
    noise, runs = WeightNoise(np.array([size])), []
    for _ in range(300):
        moved = scores.weights + size * rng.standard_normal(scores.weights.shape)
        noisy = LinearScores(moved, scores.bias, scores.row_map, None, noise)
        monkeypatch.setattr(last, "_linear_scores", lambda noisy=noisy: noisy)
        runs.append(importances_of(encoding, last, level=0.9))
    low, values, high = (
        np.array([getattr(one, a) for one in runs]) for a in ("low", "values", "high")
    )
    assert (low <= values).all() and (values <= high).all()
    assert (((low <= exact) & (exact <= high)).mean(axis=0) > 0.78).all()
    assert (high - low).mean() < 0.5


@pytest.mark.filterwarnings("ignore:the noise of a fit:dpsubspace.PrivacyWarning")
def test_noise_alone_has_no_importance_and_hides_it():
    model = fitted(DPSGDClassifier(random_state=0), epsilon=0.01)
    one = found(model, level=0.9)
    assert one.low is not None and (one.low <= one.values).all() and (one.values <= one.high).all()
    assert (one.high - one.low).max() > 0.5
    noise = released_scores(model[0].encoding_, model[-1]).noise
    model[-1]._weight_noise = noise.times(1e6)
    one = found(model, level=0.9)
    assert (one.values == 0).all() and (one.low == 0).all() and (one.high > 0.5).all()


@pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning")
def test_where_noise_is_not_known_there_are_no_bands():
    for model in (
        fitted(DPSGDClassifier()),
        fitted(DPLinearRegression(solver="adassp", random_state=0), epsilon=3.0),
    ):
        one = found(model, level=0.9)
        assert one.low is None and one.high is None and one.values.max() > 0.2
    for estimator in (GEPClassifier(), DPLinearRegression(solver="moments")):
        one = found(fitted(estimator.set_params(random_state=0), epsilon=3.0), level=0.9)
        assert one.low is not None and (one.low <= one.values).all()


# Where they are found ---------------------------------------------------------------------------


def test_a_pipeline_has_them_by_column():
    model = tabular_pipeline(DPLinearRegression(random_state=0), SCHEMA, target=Range(0, 20))
    assert not hasattr(model, "feature_importances_")
    frame, values = table()
    model.fit(frame, values)
    before = [*vars(model[-1])]
    importances = model.feature_importances_
    assert importances.shape == (model.n_features_in_,) == (4,)
    np.testing.assert_array_equal(importances, found(model).values)
    np.testing.assert_array_equal(
        importances, pickle.loads(pickle.dumps(model)).feature_importances_
    )
    assert not hasattr(clone(model), "feature_importances_")
    assert [*vars(model[-1])] == before
    chosen = SelectFromModel(model, prefit=True, threshold=-np.inf, max_features=2).get_support()
    np.testing.assert_array_equal(np.flatnonzero(chosen), np.sort(np.argsort(importances)[-2:]))


def test_what_transform_puts_out_does_not_matter():
    model = fitted(DPSGDRegressor(random_state=0), epsilon=3.0)
    before = model.feature_importances_
    model.set_output(transform="pandas")
    np.testing.assert_array_equal(model.feature_importances_, before)
