"""Features of several numbers that are added during a descent, by what it has released."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_regressor
from sklearn.metrics import roc_auc_score

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
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import REGRESSOR_LOSSES, LogLoss
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.solvers.descent import TrainingPlan, noise_of_descent
from dpsubspace._core.solvers.relevance import Groups, Relevance
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.forming import drawn
from dpsubspace._core.tables.schema import as_schema, read_table
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay
from dpsubspace.linear_model import GEPRegressor

SCHEMA = {
    "a": Range(0, 1),
    "b": Range(1, 100, log=True, missing=True),
    "c": Range(-2, 2),
    "kind": Categories(["x", "y", "z"]),
}
PLAN = TrainingPlan(n_iter=40, learning_rate=0.8, momentum=0.95, alpha=0.0, average=True)


def frame_of(n, rng):
    b = np.where(rng.uniform(size=n) < 0.1, np.nan, rng.uniform(1, 100, n))
    columns = {"a": rng.uniform(size=n), "b": b, "c": rng.uniform(-2, 2, n)}
    return pd.DataFrame(columns | {"kind": rng.choice(["x", "y", "z"], n)})


def encoded(n, rng, ratio=5000.0):
    encoding = encoding_for(as_schema(SCHEMA), ratio, interactions="learned")
    return encoding, encoding(read_table(frame_of(n, rng), encoding.schema))


def made(encoding, rng, means=None):
    return drawn(encoding, encoding.groups[1], means, rng)


def test_share_grows_with_rows_and_budget_and_is_a_quarter_at_most():
    schema = as_schema(SCHEMA)
    ratios = (100.0, 1200.0, 5000.0, np.inf)
    found = [encoding_for(schema, r, interactions="learned").interacting for r in ratios]
    assert found == sorted(found) and found[1] == 0.125 and found[-1] == 0.25
    for other in (True, False, "auto"):
        assert encoding_for(schema, 5000.0, interactions=other).interacting == 0
    rng = np.random.default_rng(0)
    assert made(encoding_for(schema, 100.0, interactions="learned"), rng) is None
    one = encoding_for(as_schema({"a": Range(0, 1)}), 5000.0, interactions="learned")
    assert made(one, rng) is None


def test_what_a_row_becomes_does_not_depend_on_where_it_lies(rng):
    """To the bit: rows of one person may lie anywhere, in neighbouring tables elsewhere."""
    encoding, rows = encoded(1500, rng)
    features = made(encoding, rng)
    found, order = features(rows), rng.permutation(1500)
    np.testing.assert_array_equal(features(np.ascontiguousarray(rows[order])), found[order])
    for some in (slice(7, 8), slice(3, 1003), slice(700, 1211)):
        np.testing.assert_array_equal(features(rows[some].copy()), found[some])


def test_features_of_any_row_have_a_norm_that_is_known(rng):
    encoding, rows = encoded(300, rng)
    features = made(encoding, rng)
    hostile = [0 * rows[:2], 1e30 * rows[:2], -1e30 * rows[:2], np.full_like(rows[:2], np.inf)]
    found = features(np.concatenate([rows, *hostile]))
    norms = np.linalg.norm(found.astype(np.float64) + features.means, axis=1)
    np.testing.assert_allclose(norms, 1.0, atol=1e-5)
    assert np.linalg.norm(found, axis=1).max() <= features.longest * (1 + 1e-5)


def test_means_are_those_of_even_numbers_or_of_released_marginals(rng):
    """Means of 20,000 rows: seven deviations of a mean of numbers of at most 1 / sqrt(300)."""
    schema = {name: kind for name, kind in SCHEMA.items() if name != "b"}
    encoding = encoding_for(as_schema(schema), 5000.0, interactions="learned")
    n, most = 20_000, 7 / np.sqrt(20_000) / np.sqrt(300)
    frame = frame_of(n, rng)[list(schema)]
    rows = encoding(read_table(frame, encoding.schema))
    assert np.abs(made(encoding, rng)(rows).mean(axis=0)).max() < most
    frame["a"] **= 4  # near 0
    rows = encoding(read_table(frame, encoding.schema))
    told = made(encoding, np.random.default_rng(0), rows.mean(axis=0, dtype=np.float64))
    untold = made(encoding, np.random.default_rng(0))
    off = [np.linalg.norm(features(rows).mean(axis=0)) for features in (told, untold)]
    assert off[0] < 0.3 * off[1]


def test_averages_over_other_numbers_are_those_of_many_rows(rng):
    encoding, rows = encoded(40, rng)
    features, at = made(encoding, rng), encoding.blocks["a"]
    places = (np.arange(128) + 0.5) / 128
    total = 0.0
    for shift in range(128):  # all places of b and of c, in pairs that are even
        numbers = np.stack(
            [
                np.full(128, 0.3),
                encoding.numbers_at("b", places),
                encoding.numbers_at("c", np.roll(places, shift)),
            ],
            axis=1,
        )
        table = pd.DataFrame(numbers, columns=["a", "b", "c"]).assign(kind="x")
        total = total + features(encoding(read_table(table, encoding.schema))).mean(axis=0)
    one = encoding(read_table(table[:1], encoding.schema)).astype(float)
    np.testing.assert_allclose(features.averaged(one, at)[0], total / 128, atol=2e-3)
    every = np.concatenate([encoding.blocks[name] for name in ("a", "b", "c")])
    np.testing.assert_allclose(features.averaged(rows, every), features(rows), atol=2e-3)


class Linear:
    """Columns that are added: given numbers times those that are there."""

    def __init__(self, matrix, share):
        self._matrix, self.share, self.width = matrix, share, matrix.shape[1]

    def __call__(self, rows):
        return (rows @ self._matrix).astype(rows.dtype)


def test_scores_stay_what_they_are_where_columns_are_added(rng):
    groups = Groups(np.array([0, 0, 0, 1, 1, 2]), np.array([0.5, 0.3, 0.2]))
    more = Linear(rng.normal(size=(6, 4)), 0.2)
    found = Relevance(groups, PLAN, 1e-9, 8, lambda shares: more)
    rows, weights = rng.normal(size=(5, 8)), rng.normal(size=(8, 2))
    wide = np.concatenate([rows[:, :6], more(rows[:, :6]), rows[:, 6:]], axis=1)
    now = weights
    for t in (6, 10, 16, 22):
        (now,) = found.turn(t, now)
        columns = np.append(found.columns, [1.0, 1.0])
        seen = rows if t < 10 else wide
        np.testing.assert_allclose((seen * columns) @ now, rows @ weights, atol=1e-12)
        assert found.columns[:6] ** 2 * groups.shares[groups.of] @ (
            1 / np.bincount(groups.of)[groups.of]
        ) == pytest.approx(1.0 if t < 10 else 0.8)
    assert now.shape == (12, 2) and (found.columns[6:] ** 2).tolist() == pytest.approx([0.2] * 4)
    noise = noise_of_descent(PLAN, 1.0, 2, relevance=found)
    assert noise.factor.shape == (12,)
    assert 0 < noise.factor[6] < np.sqrt(0.2)  # noise of later steps alone


def sources(rows, rng):
    """What classifiers and regressors descend on, of 400 rows."""
    for mean in (None, 0.3 * rng.normal(size=rows.shape[1] + 1)):
        features = Features(rows, RowMap(norm="l2", bias=0.5))
        features = features if mean is None else features.shifted(Shift(mean, 0.2))
        yield LinearSource(LogLoss(), features, rng.integers(0, 2, 400), n_outputs=1)
    for data_norm in (1.0, 0.3):  # a bound on rows that is met, and one that shrinks them
        features = Features(rows, RowMap(norm="ball", data_norm=data_norm, bias=0.5 * data_norm))
        loss, targets = REGRESSOR_LOSSES["squared_error"], rng.uniform(-1, 1, (400, 1))
        yield LinearSource(loss, features, targets, n_outputs=1)


def test_a_neighbour_moves_clipped_sums_of_wider_rows_by_a_clip_norm_at_most(rng):
    encoding, rows = encoded(400, rng)
    for source in sources(rows, rng):
        more = made(encoding, rng)
        wide = source.widened(more)
        columns = rng.uniform(0.1, 2.0, encoding.n_features + more.width)
        seen = wide.weighed(columns)
        params = rng.normal(size=(seen.width, 1))
        for clip_norm in (1e-3, 0.1):
            with_all = seen.at(params, slice(0, 400))
            bounded = clipped_sum(with_all, clip_norm)
            gradients = with_all.dense().reshape(400, -1)
            norms = np.linalg.norm(gradients, axis=1)
            clipped = gradients * np.minimum(1, clip_norm / norms)[:, None]
            np.testing.assert_allclose(
                np.ravel(bounded.value), clipped.sum(axis=0), rtol=1e-3, atol=1e-3 * clip_norm
            )
            kept = clipped_sum(seen.at(params, slice(0, 399)), clip_norm)
            moved = np.linalg.norm(np.ravel(bounded.value) - np.ravel(kept.value))
            assert moved <= bounded.norm_bound


def test_another_row_changes_the_gradient_of_no_row(rng):
    encoding, rows = encoded(300, rng)
    more, labels = made(encoding, rng), rng.integers(0, 2, 300)
    columns, params = rng.uniform(0.1, 2.0, encoding.n_features + more.width), None
    found = []
    for last in (rows[-1], -rows[0]):
        changed = np.concatenate([rows[:-1], last[None]])
        features = Features(changed, RowMap(norm="l2", bias=0.5))
        seen = LinearSource(LogLoss(), features, labels, n_outputs=1).widened(more).weighed(columns)
        params = rng.normal(size=(seen.width, 1)) if params is None else params
        found.append(seen.at(params, slice(0, 300)).dense())
    np.testing.assert_array_equal(found[0][:-1], found[1][:-1])
    assert (found[0][-1] != found[1][-1]).any()


def data(n, rng):
    frame = frame_of(n, rng)
    return frame, ((frame["a"] - 0.5) * frame["c"] > 0).astype(int)


@pytest.mark.parametrize("Model", [DPSGDClassifier, DPSGDFClassifier])
def test_a_product_of_three_numbers_is_learned_that_pairs_cannot_tell(Model, rng):
    """AUC of eight other fits each: .98 with a deviation of .005, and .57 with .016."""
    X = pd.DataFrame(rng.uniform(-1, 1, (8000, 4)), columns=[*"abcd"])
    y, schema = (X["a"] * X["b"] * X["c"] > 0).astype(int), dict.fromkeys("abcd", Range(-1, 1))
    found = []
    for interactions in ("learned", "auto"):
        model = tabular_pipeline(Model(), schema, 3.0, interactions=interactions).fit(X, y)
        found.append(roc_auc_score(y, model.decision_function(X)))
    assert found[0] > 0.85 > 0.75 > found[1]


TARGET = {"target": Range(-2, 2)}  # of values


def values(n, rng):
    frame = frame_of(n, rng)
    return frame, 2 * (frame["a"] - 0.5) * frame["c"]


def regressor(schema=SCHEMA, epsilon=3.0, interactions="learned", **options):
    return tabular_pipeline(
        DPSGDRegressor(**options), schema, epsilon, interactions=interactions, **TARGET
    )


def test_a_product_of_three_numbers_is_a_value_that_is_learned(rng):
    """R2 of eight other fits each: .87 with a deviation of .02, or .79 with .02 by the Huber loss;
    and -.01 with .005.
    """
    X = pd.DataFrame(rng.uniform(-1, 1, (8000, 3)), columns=[*"abc"])
    y, schema = 2 * X["a"] * X["b"] * X["c"], dict.fromkeys("abc", Range(-1, 1))
    for loss in ("squared_error", "huber"):
        found = [
            regressor(schema, interactions=how, loss=loss).fit(X, y).score(X, y)
            for how in ("learned", "auto")
        ]
        assert found[0] > 0.5 > 0.2 > found[1]


def test_a_pickle_of_a_regressor_has_all_that_predictions_need(rng):
    X, y = values(4000, rng)
    y = np.stack([y, -y], axis=1)
    model = regressor().fit(X, y)
    assert model[-1].coef_.shape == (2, model[0].encoding_.n_features)
    assert model[-1]._interaction_weights.shape == (600, 2)
    kept, found = pickle.loads(pickle.dumps(model)), model.predict(X)
    np.testing.assert_array_equal(kept.predict(X), found)
    np.testing.assert_allclose(model.predict(X[:5]), found[:5], rtol=1e-5)
    one = regressor().set_params(random_state=0).fit(X, y[:, 0])
    assert one.predict(X).shape == (4000,) and one[-1].coef_.ndim == 1
    few = regressor(epsilon=np.inf).fit(X, y[:, 0])
    assert few[-1]._interactions is None and np.isfinite(few.predict(X)).all()


def test_predictions_are_those_of_the_rows_that_were_trained_on(rng):
    """Weights act on encoded rows and on what was added to them, in the units of the targets."""
    X, y = values(3000, rng)
    model = regressor(data_norm=0.7).fit(X, y)
    rows, last = model[0].transform(X), model[-1]
    scores = rows @ last.coef_ + last._interactions(rows) @ last._interaction_weights[:, 0]
    np.testing.assert_allclose(last.predict(rows), scores + last.intercept_, atol=1e-3)
    told = last._linear_scores()
    used = told.used(rows.astype(float), np.arange(rows.shape[1]), (rows**2).sum(axis=1))
    at = np.arange(used.shape[1] - 1)
    np.testing.assert_allclose(told.scores(used, at)[:, 0], scores, atol=1e-3)
    assert (told.std(used, at) > 0).all()


def test_a_pickle_has_all_that_predictions_need(rng):
    X, y = data(4000, rng)
    model = tabular_pipeline("classification", SCHEMA, 3.0, interactions="learned").fit(X, y)
    assert model[-1].coef_.shape == (1, model[0].encoding_.n_features)
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(kept.decision_function(X), model.decision_function(X))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    few = model.decision_function(X[:5])
    np.testing.assert_allclose(few, model.decision_function(X)[:5], rtol=1e-5)


def test_features_are_the_same_on_torch(rng):
    torch = pytest.importorskip("torch")
    encoding, rows = encoded(200, rng)
    features = made(encoding, rng)
    np.testing.assert_allclose(features(torch.asarray(rows)).numpy(), features(rows), atol=1e-5)


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_cost_is_that_of_a_fit_that_adds_nothing(kind, rng):
    X, y = data(2000, rng) if kind == "classes" else values(2000, rng)
    groups = np.arange(2000) // 2
    of_kind = ("classification", {}) if kind == "classes" else (DPSGDRegressor(), TARGET)
    for options in ({}, {"neighboring_relation": "replace_one"}):
        for given in ({}, {"groups": groups}):
            events, (model, target) = [], of_kind
            for interactions in ("auto", "learned"):
                made = tabular_pipeline(model, SCHEMA, 1.0, interactions=interactions, **target)
                made.set_params(**options).fit(X, y, **given)
                events.append(repr(made.privacy_.event))
            assert events[0] == events[1]


def test_batches_classes_and_absent_numbers(rng):
    X, _ = data(3000, rng)
    y = rng.integers(0, 3, 3000)
    for model in (DPSGDClassifier(batch_size=500), DPSGDFClassifier(loss="hinge")):
        fitted = tabular_pipeline(model, SCHEMA, 3.0, interactions="learned").fit(X, y)
        assert fitted[-1]._interaction_weights.shape == (600, 3)
        assert np.isfinite(fitted.decision_function(X)).all()
    few = {"a": Range(0, 1), "kind": Categories(["x", "y", "z"])}
    for schema, options in ((few, {}), (SCHEMA, {"epsilon": np.inf})):
        model = tabular_pipeline(
            "classification", schema, **{"epsilon": 3.0} | options, interactions="learned"
        )
        assert model.fit(X[list(schema)], y)[-1]._interactions is None


def test_shapes_and_importances_count_what_was_added(rng):
    """Of 20 fits: importances .994, .003, .999 and .000 with deviations of .002 at most, and
    corners of the map of at least 50 with deviations of 3.3.
    """
    X, y = data(8000, rng)
    model = tabular_pipeline("classification", SCHEMA, 5.0, interactions="learned").fit(X, y)
    shapes = ShapeDisplay.from_estimator(model, [("a", "c")], grid_resolution=9).shapes
    found = shapes["a", "c"].values[:, :, 0]
    assert found[0, 0] > 0 > found[0, -1] and found[-1, -1] > 0 > found[-1, 0]
    importances = ImportanceDisplay.from_estimator(model).importances
    assert importances[0] > 0.5 and importances[2] > 0.5  # both, as neither tells anything alone
    assert importances[1] < 0.3 and importances[3] < 0.3


def test_shapes_and_importances_of_values_count_what_was_added(rng):
    """Of 20 fits: importances .997, .000, .997 and .000 with deviations of .005 at most, and
    corners of the map of at least 1.7 in size with deviations of .13.
    """
    X, y = values(8000, rng)
    model = regressor(epsilon=5.0).fit(X, y)
    shapes = ShapeDisplay.from_estimator(model, [("a", "c")], grid_resolution=9).shapes
    found = shapes["a", "c"].values[:, :, 0]
    assert found[0, 0] > 0.5 > -0.5 > found[0, -1] and found[-1, -1] > 0.5 > -0.5 > found[-1, 0]
    importances = ImportanceDisplay.from_estimator(model).importances
    assert importances[0] > 0.5 and importances[2] > 0.5  # both, as neither tells anything alone
    assert importances[1] < 0.3 and importances[3] < 0.3


@pytest.mark.parametrize(
    "model",
    [DPLinearRegression(), GEPRegressor(), GEPClassifier()],
    ids=lambda m: type(m).__name__,
)
def test_models_that_learn_no_interactions_say_so(model, rng):
    made = tabular_pipeline(model, SCHEMA, interactions="auto")
    made.set_params(tableencoder__interactions="learned")
    X, y = data(100, rng)
    made.set_params(**TARGET if is_regressor(model) else {})
    with pytest.raises(ValueError, match="does not learn interactions: use DPSGDClassifier, "):
        made.fit(X, y)


def test_the_parameter_is_checked():
    with pytest.raises(ValueError, match="interactions"):
        tabular_pipeline("classification", SCHEMA, interactions="some")
