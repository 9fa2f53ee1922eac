"""Shares of columns that change during a descent, by what it has released."""

import itertools
import math
import weakref

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from dpsubspace import (
    Categories,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    Range,
    tabular_pipeline,
)
from dpsubspace._core.gradients.clipping import PersonSource
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.auto import momentum_at
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.solvers import relevance
from dpsubspace._core.solvers.descent import TrainingPlan, noise_of_descent
from dpsubspace._core.solvers.relevance import Groups, Relevance, penalties, shrunk

PLAN = TrainingPlan(n_iter=40, learning_rate=0.8, momentum=0.95, alpha=0.0, average=True)
GROUPS = Groups(np.array([0, 0, 0, 1, 1, 2]), np.array([0.5, 0.3, 0.2]))
TURN = 6  # the first one of PLAN


def test_scores_stay_what_they_are_but_for_what_is_shrunk(rng):
    found = Relevance(GROUPS, PLAN, 1e-9, 8)
    rows, weights = rng.normal(size=(5, 8)), rng.normal(size=(8, 2))
    velocity = rng.normal(size=(8, 2))
    now = found.turn(TURN, weights, velocity)
    columns = np.append(found.columns, [1.0, 1.0])
    for before, after in zip((weights, velocity), now, strict=True):
        np.testing.assert_allclose((rows * columns) @ after, rows @ before)
    np.testing.assert_allclose(found.unweighed(now[0]), weights)
    shares = found.columns[[0, 3, 5]] ** 2 * GROUPS.shares
    assert shares.sum() == pytest.approx(1.0) and (shares >= 0.15 * GROUPS.shares).all()


def test_shares_change_at_their_turns_only(rng):
    found, weights = Relevance(GROUPS, PLAN, 0.1, 7), rng.normal(size=(7, 1))
    turns = [t for t in range(40) if found.turn(t, weights, weights) is not None]
    assert turns == [6, 10, 16, 22]
    assert all(turn < PLAN.first_averaged for turn in turns)  # weights of one kind are averaged


def test_what_stands_out_gets_more_and_what_is_noise_is_shrunk():
    first, noise = np.full(20, 1 / 20), np.ones(20)
    energies = np.r_[100.0, 30.0, np.full(18, 0.9)]
    factors, shares = shrunk(energies, noise, first)
    assert shares[0] > shares[1] > 4 * shares[2] > 0
    assert shares.sum() == pytest.approx(1.0) and shares[2] < 0.25 * first[2]
    assert factors[0] > 0.98 and factors[1] > 0.95 and (factors[2:] < 0.3).all()


@pytest.mark.parametrize("energies", [np.full(6, 50.0), np.full(6, 0.9), np.zeros(6)])
def test_groups_that_are_alike_stay_so(energies):
    factors, shares = shrunk(energies, np.ones(6), np.full(6, 1 / 6))
    np.testing.assert_allclose(shares, 1 / 6)
    np.testing.assert_allclose(factors, 1.0, atol=1e-12)


@pytest.mark.parametrize("energy", [1e-300, 1e300, 5e-324, 1e-160, 1e160])
def test_any_released_weights_leave_finite_shares(energy):
    for noise, last in itertools.product((np.zeros(3), np.ones(3)), (0.0, 1.0, energy)):
        energies = np.array([energy, 0.0, last])
        factors, shares = shrunk(energies, noise, GROUPS.shares)
        assert np.isfinite(factors).all() and (factors >= 0).all() and (factors <= 1).all()
        assert shares.sum() == pytest.approx(1.0) and (shares > 0).all()


def test_noise_that_is_left_is_that_of_many_descents(monkeypatch):
    """Descents from noise alone, with shares and shrinking that do not depend on it.

    Deviations of 20,000 draws are seven of their own away with a chance of 2e-11.
    """
    shares, left = np.array([0.1, 0.1, 0.8]), np.array([1.0, 0.2, 0.9])
    monkeypatch.setattr(relevance, "shrunk", lambda *_: (left, shares))
    rng, n_runs, each = np.random.default_rng(0), 20_000, 0.3
    found = Relevance(GROUPS, PLAN, each, 7)
    weights = velocity = total = np.zeros((7, n_runs))
    for t in range(PLAN.n_iter):
        turned = found.turn(t, weights, velocity)
        weights, velocity = (weights, velocity) if turned is None else turned
        velocity = momentum_at(t, PLAN.momentum, n_iter=PLAN.n_iter) * velocity
        velocity = velocity - PLAN.learning_rate * each * rng.standard_normal((7, n_runs))
        weights = weights + velocity
        total = total + weights * (t >= PLAN.first_averaged)
    drawn = found.unweighed(total).std(axis=1) / (PLAN.n_iter - PLAN.first_averaged)
    noise = noise_of_descent(PLAN, each, 1, relevance=found)
    np.testing.assert_allclose(noise.std(np.eye(7))[:, 0], drawn, rtol=0.035)
    assert drawn.max() > 1.5 * drawn.min()


def test_persons_are_weighed_row_by_row(rng):
    X, y = rng.normal(size=(30, 3)), rng.integers(2, size=30)
    records = Records.of_groups(np.arange(30) // 3, 10)
    features = Features(X, RowMap(norm="l2", bias=0.5), None, records)
    features = features.shifted(Shift(np.full(4, 0.1), 0.3))
    columns, weights = np.array([3.0, 0.5, 1.0]), rng.normal(size=(5, 1))
    found = PersonSource(LinearSource(LogLoss(), features, y, n_outputs=1), 0.5)
    found = found.weighed(columns).at(weights, np.arange(10)).dense()
    whole = features.at(slice(0, 30)).dense()
    whole[:, :3] *= columns
    residuals = LogLoss().residual(y[:, None].astype(float)[:, 0], whole @ weights)
    gradients = whole * residuals
    gradients *= np.minimum(1, 8 * 0.5 / np.linalg.norm(gradients, axis=1))[:, None]
    np.testing.assert_allclose(found, gradients.reshape(10, 3, 5).mean(axis=1), rtol=1e-6)


# Tables -----------------------------------------------------------------------------------------


def table(n, n_useless, seed=0):
    """One number and one category that tell the class, and numbers that tell nothing."""
    rng = np.random.default_rng(seed)
    columns = {f"u{i}": rng.uniform(size=n) for i in range(n_useless)}
    x, kind = rng.uniform(size=n), rng.choice(["a", "b"], size=n)
    frame = pd.DataFrame({"x": x, "kind": kind, **columns})
    schema = {"x": Range(0, 1), "kind": Categories(["a", "b"])}
    schema |= {name: Range(0, 1) for name in columns}
    return frame, (x + 0.3 * (kind == "a") > 0.65).astype(int), schema


@pytest.mark.parametrize("model", ["classification", DPSGDRegressor()])
def test_useless_columns_lose_their_share(model, monkeypatch):
    seen = []
    monkeypatch.setattr(relevance, "shrunk", lambda *a: seen.append(shrunk(*a)) or seen[-1])
    frame, y, schema = table(4000, 30)
    options = {} if model == "classification" else {"target": Range(0, 1)}
    fitted = tabular_pipeline(model, schema, epsilon=3.0, **options)
    fitted.set_params(random_state=0).fit(frame, y)
    shares = seen[-1][1] / fitted[0].encoding_.groups[1]
    assert len(seen) == 4 and shares[0] > 5 and shares[0] > 5 * np.median(shares[2:])
    noise = fitted[-1]._weight_noise.factor
    assert noise[0] > np.median(noise) > 0  # noise goes where weights are learned


def test_shares_of_an_encoding_are_those_of_the_squared_norm_of_a_row():
    _, _, schema = table(10, 1)
    found = tabular_pipeline("classification", schema, interactions=True, epsilon=1e4)
    frame, y, _ = table(500, 1)
    encoding = found.fit(frame, y)[0].encoding_
    of, shares = encoding.groups
    assert len(of) == encoding.n_features and shares.sum() == pytest.approx(1.0)
    assert list(np.bincount(of)) == [16, 2, 16, 4] and "*" in encoding.names[-1]
    grid = pd.DataFrame({"x": [0.0], "kind": ["a"], "u0": [0.0]})  # all cosines are 1 there
    squares = found[0].transform(grid)[0].astype(float) ** 2
    np.testing.assert_allclose(np.bincount(of, squares), shares, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the noise of a fit:dpsubspace.PrivacyWarning")
def test_an_empty_batch_of_persons_is_a_step_like_any_other():
    frame, y, schema = table(40, 1)
    model = DPSGDClassifier(batch_size=1, n_iter=30, random_state=0)
    found = tabular_pipeline(model, schema, epsilon=5.0)
    found.fit(frame, y, groups=np.arange(40) // 2)
    assert found[-1].n_iter_ == 30 and np.isfinite(found[-1].coef_).all()


def test_fits_that_choose_directions_or_have_no_noise_keep_their_shares(monkeypatch):
    monkeypatch.setattr(relevance, "shrunk", None)  # cannot be called
    frame, y, schema = table(300, 2)
    tabular_pipeline(GEPClassifier(), schema).fit(frame, y, X_public=table(50, 2, seed=1)[0])
    tabular_pipeline("classification", schema, epsilon=float("inf")).fit(frame, y)
    DPSGDClassifier().fit(frame[["x", "u0"]], y)


# How strong penalties are -----------------------------------------------------------------------


def known(energies, noise=0.0, n_samples=1000, least=1e-6, n_outputs=1):
    """Penalties of three groups with these energies."""
    energies = np.asarray(energies, dtype=float)
    noise = np.full(len(energies), noise)
    return penalties(energies, noise, GROUPS, n_outputs, n_samples, least)


def test_a_penalty_is_what_makes_weights_most_likely():
    """Of weights that the rows decide, d of them: d over n times their squared norm."""
    found = known([300.0, 300.0, 300.0], n_samples=10**6, least=1e-12)
    np.testing.assert_allclose(found, np.array([3, 2, 1]) / (1e6 * 300), rtol=0.01)


def test_penalties_fall_with_weights_and_with_rows():
    assert (np.diff(known([1.0, 1.0, 100.0])[[1, 2]]) < 0).all()
    few, many = known([5.0, 5.0, 5.0], n_samples=100), known([5.0, 5.0, 5.0], n_samples=10_000)
    assert (few > many).all()


def test_noise_of_privacy_takes_the_place_of_a_penalty():
    along = np.array([known([20.0, 20.0, 20.0], noise) for noise in (0.0, 0.1, 1.0, 10.0, 1e6)])
    assert (np.diff(along, axis=0) <= 0).all()
    np.testing.assert_allclose(along[-1], 1e-6, rtol=0.01)


@pytest.mark.parametrize("energy", [0.0, 5e-324, 1e-160, 1e160, 1e300])
def test_any_weights_have_finite_penalties_and_none_without_one(energy):
    for noise, n_outputs in itertools.product((0.0, 1.0, 1e300), (1, 5)):
        found = known([energy, 1.0, 0.0], noise, n_outputs=n_outputs)
        assert np.isfinite(found).all() and (found >= 1e-6).all()
        assert not known([energy, 1.0, 0.0], noise, least=0.0, n_outputs=n_outputs).any()


@pytest.mark.parametrize("n_samples", [None, 50])
def test_no_weight_is_penalised_less_than_the_plan_says(rng, n_samples):
    """Whatever columns are multiplied by: what noise leaves in weights is bounded by that."""
    plan = TrainingPlan(n_iter=40, learning_rate=0.8, momentum=0.95, alpha=0.1, average=True)
    found = Relevance(GROUPS, plan, 1e-9, 8, n_samples=n_samples)
    weights = rng.normal(size=(8, 2)) * np.array([9, 9, 9, 1, 1, 0.1, 1, 1])[:, None]
    for t in range(40):
        if found.turn(t, weights) is not None:
            penalty = found.penalty(weights)[:, 0]
            assert (penalty[:6] >= 0.1).all() and not penalty[6:].any()
    assert (found.columns < 1).any()  # the product with these would be less
    assert (penalty[:6] > 0.1).any() == (n_samples is not None)


def by_chance(seed):
    """A table of 300 rows in which one column of ten tells the class, and as many to test with."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(size=(2300, 10)), columns=[f"x{i}" for i in range(10)])
    y = (X["x0"] + rng.normal(0, 0.3, 2300) > 0.5).to_numpy(int)
    return X[:300], y[:300], X[300:], y[300:]


# Without a penalty, ten columns separate 300 rows, and it looks as if the one that counts did.
@pytest.mark.filterwarnings("ignore:column 'x0' alone decides")
@pytest.mark.parametrize("epsilon", [1e5, float("inf")])
def test_few_rows_are_not_fitted_by_chance_where_noise_is_little(epsilon):
    """In 40 seeds the ratio of the losses is .63 +- .03 with noise, .08 +- .01 without: 8 sigma."""
    X, y, X_test, y_test = by_chance(0)
    schema = {name: Range(0, 1) for name in X}
    losses = []
    for alpha in (1e-6, 0.0):  # 0 is no penalty
        model = tabular_pipeline(
            DPSGDClassifier(alpha=alpha, epsilon=epsilon, random_state=0), schema
        )
        losses.append(log_loss(y_test, model.fit(X, y).predict_proba(X_test)))
    assert losses[0] < 0.85 * losses[1]


def test_rows_as_they_were_weighed_before_are_not_kept(monkeypatch):
    """Each of them has lengths, norms and labels of all rows."""
    weighed, made = LinearSource.weighed, []

    def watched(self, columns):
        assert not [source for source in made if source() is not None]
        found = weighed(self, columns)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(LinearSource, "weighed", watched)
    frame, y, schema = table(300, 3)
    tabular_pipeline("classification", schema, epsilon=3.0).fit(frame, y)
    assert len(made) > 2


def rare(n_classes, seed):
    """A column of 150 rows with a class of about 5 %, and many rows to test with."""
    rng = np.random.default_rng(seed)
    x, shares = rng.uniform(size=5150), ([0.95, 0.05], [0.6, 0.35, 0.05])[n_classes - 2]
    chances = shares * np.exp(np.outer(4 * x - 2, np.arange(n_classes) - 1.0))
    y = (rng.uniform(size=(5150, 1)) > np.cumsum(chances, 1) / chances.sum(1)[:, None]).sum(1)
    y[:n_classes] = np.arange(n_classes)
    X = pd.DataFrame({"x": x})
    return X[:150], y[:150], X[150:], y[150:]


@pytest.mark.filterwarnings("ignore:class [012] is never predicted")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rare_classes_end_where_there_is_no_noise(n_classes):
    """Differences of losses are .02 +- .03 in 40 seeds; they were .05 to 1. Five: 10 sigma."""
    losses = []
    for seed in range(5):
        X, y, X_test, y_test = rare(n_classes, seed)
        for epsilon in (1e5, float("inf")):
            model = tabular_pipeline("classification", {"x": Range(0, 1)}, epsilon=epsilon)
            model.set_params(random_state=seed).fit(X, y)
            losses.append(log_loss(y_test, model.predict_proba(X_test)))
    with_noise, without = np.reshape(losses, (5, 2)).mean(axis=0)
    assert with_noise < without + 0.15


def test_clipping_ends_where_noise_does_and_nowhere_else():
    """By public sizes alone, and only where all of the descent is left to them."""
    X, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    found = {}
    for epsilon in (1.0, 10.0, 300.0, 1e6):
        model = DPSGDFClassifier(epsilon=epsilon, random_state=0).fit(X, y)
        found[epsilon] = model.clip_norm_, model.n_iter_
    clips, steps = np.transpose(list(found.values()))
    assert found[1.0][0] == found[10.0][0] == clips.min() and (np.diff(clips) >= 0).all()
    # No gradient of a centred row with its constant is longer.
    bound = clips[0] / auto.CENTRED_CLIP
    assert clips[-1] == pytest.approx(math.hypot(bound, auto.CENTRED_BIAS * clips[-1]))
    assert steps[-1] > steps[0]
    for set_by_hand in ({"n_iter": 150}, {"clip_norm": 0.1}, {"batch_size": 50}):
        model = DPSGDFClassifier(epsilon=1e5, random_state=0, **set_by_hand).fit(X, y)
        assert model.clip_norm_ <= found[1.0][0]
