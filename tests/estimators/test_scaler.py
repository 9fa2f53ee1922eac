"""BoundedScaler: its map, where its bounds come from, and what they cost."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import RARE, RELATIONS, ScaledNoise, charged, epsilon_of, noise_p_value, releases
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from dpsubspace import (
    BoundedScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
)
from dpsubspace._core.accounting.events import composed, is_free
from dpsubspace._core.fits import estimator as base
from dpsubspace._core.plans import scaler as scaler_plans
from dpsubspace._core.release.noise import SeededNoise
from dpsubspace.exceptions import PrivacyBudgetError, PublicDataWarning

quiet = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")


def table(n=4000, seed=0):
    """Columns of all kinds: a year, incomes, zeros and ones, a constant, tiny numbers."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            rng.normal(1980, 10, n),
            rng.lognormal(10, 1, n),
            rng.random(n) < 0.3,
            np.full(n, 7.0),
            1e-9 * rng.normal(size=n),
        ]
    )


# The map --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_norm", ["ball", "l2", None])
@pytest.mark.parametrize("feature_range", [(-1, 1), (0, 1), (-3, 0.5)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_transformed_row_is_longer_than_data_norm(row_norm, feature_range, dtype):
    X = table()[:, [0, 1, 2, 4]].astype(dtype)
    X[0], X[1] = np.finfo(dtype).max, np.finfo(dtype).min
    scaler = BoundedScaler("public", feature_range=feature_range, row_norm=row_norm)
    rows = scaler.fit(X[:9], X_public=X[2:50].copy()).transform(X)
    assert rows.dtype == dtype and np.isfinite(rows).all()
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert norms.max() <= scaler.data_norm_ * (1 + (1e-6 if row_norm is None else 0))
    assert norms.max() > 0.9 * scaler.data_norm_
    if row_norm is None:
        start, end = feature_range
        assert rows.min() >= start - 1e-6 and rows.max() <= end + 1e-6


@pytest.mark.parametrize("row_norm", ["ball", None])
@pytest.mark.parametrize("feature_range", [(-1, 1), (0, 1), (2, 5)])
def test_the_map_is_affine_between_the_bounds_and_comes_back(row_norm, feature_range):
    X = table(200)
    X[:, 4] *= 1e9
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    scaler = BoundedScaler((low, high), feature_range=feature_range, row_norm=row_norm).fit(X)
    rows = scaler.transform(X)
    np.testing.assert_allclose(rows, X * scaler.scale_ + scaler.min_, atol=1e-12)
    np.testing.assert_allclose(scaler.inverse_transform(rows), X, rtol=1e-10, atol=1e-12)
    beyond = scaler.inverse_transform(scaler.transform(np.stack([low - 5, high + 5])))
    np.testing.assert_allclose(beyond, [low, high], rtol=1e-10)
    ends = scaler.transform(np.stack([low, high]))
    share = np.asarray(feature_range) / (5**0.5 * max(map(abs, feature_range)))
    # A map onto [0, 1] ends near 0: its two terms, of a size below 100, round there.
    expected = share if row_norm else feature_range
    np.testing.assert_allclose(ends[:, 0], expected, rtol=1e-5, atol=1e-12)


def test_unit_rows_cannot_be_undone():
    scaler = BoundedScaler((0, 1), row_norm="l2").fit(np.ones((3, 2)))
    rows = scaler.transform([[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1], rtol=1e-5)
    with pytest.raises(ValueError, match="row_norm='ball'"):
        scaler.inverse_transform(rows)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_constant_column_goes_to_the_middle_and_back(epsilon):
    X = np.column_stack([np.full(10_000, 7.0), np.zeros(10_000), np.arange(10_000)])
    scaler = BoundedScaler(epsilon=epsilon, feature_range=(0, 1), row_norm=None, random_state=0)
    rows = scaler.fit_transform(X)
    assert (rows[:, :2] == 0.5).all() and not scaler.scale_[:2].any()
    np.testing.assert_array_equal(scaler.inverse_transform(rows)[:, :2], X[:, :2])
    assert (scaler.transform(X + 100)[:, :2] == 0.5).all()


def test_frames_names_and_outputs():
    frame = pd.DataFrame(table(4000), columns=list("abcde"))
    scaler = BoundedScaler(epsilon=5.0).set_output(transform="pandas").fit(frame)
    rows = scaler.transform(frame)
    assert list(rows.columns) == list("abcde") == list(scaler.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        scaler.transform(frame[list("edcba")])


def test_pickle_clone_and_read_only_rows():
    X = table()
    X.setflags(write=False)
    scaler = BoundedScaler(epsilon=5.0, level=0.05, random_state=0).fit(X)
    rows = scaler.transform(X)
    rows.setflags(write=False)
    scaler.inverse_transform(rows)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaler)).transform(X), rows)
    assert not hasattr(clone(scaler), "privacy_") and clone(scaler).level == 0.05


def test_parameters_that_are_set_after_the_fit_do_not_change_the_map():
    X = table()
    scaler = BoundedScaler(epsilon=5.0).fit(X)
    before = scaler.transform(X)
    scaler.set_params(row_norm=None, feature_range=(0, 100), bounds=(0, 1))
    np.testing.assert_array_equal(scaler.transform(X), before)


# Where bounds come from -----------------------------------------------------------------------


def test_given_bounds_cost_nothing():
    X = table()
    for bounds in ((0, 1), (np.zeros(5), 2000 * np.ones(5))):
        scaler = BoundedScaler(bounds, random_state=0).fit(X)
        assert is_free(scaler.privacy_.event) and scaler.privacy_.epsilon == 0
        assert scaler.privacy_.secure and scaler.privacy_event() == scaler.privacy_.event
        assert "nothing that depends on the records" in scaler.privacy_.details()
    np.testing.assert_array_equal(scaler.data_max_, np.full(5, 2000))


@pytest.mark.parametrize("bounds", ["public", "auto"])
def test_public_rows_cost_nothing_and_private_rows_are_not_looked_at(bounds, monkeypatch):
    X, public = table(), table(300, seed=1)
    with releases(monkeypatch) as seen:
        scaler = BoundedScaler(bounds).fit(X, X_public=(public[:200], public[200:]))
    other = BoundedScaler(bounds).fit(-X, X_public=(public,))
    assert seen == [] and is_free(scaler.privacy_.event)
    assert "X_public" in scaler.privacy_.public
    np.testing.assert_array_equal(scaler.data_min_, other.data_min_)
    np.testing.assert_array_equal(scaler.data_min_, np.sort(public, axis=0)[2])
    few = BoundedScaler(bounds).fit(X, X_public=(public[:20],))
    np.testing.assert_array_equal(few.data_max_, public[:20].max(axis=0))


def test_rare_values_of_public_rows_are_not_taken_for_a_constant():
    public = np.zeros((1000, 1))
    public[0] = 3.0
    assert BoundedScaler().fit(public[:7].copy(), X_public=(public,)).data_max_ == 3.0


def test_public_rows_that_may_have_been_sliced():
    X = table(300)
    with pytest.warns(PublicDataWarning, match="tuple"):
        BoundedScaler().fit(X, X_public=table(300, seed=1))


def test_public_rows_are_ignored_where_bounds_do_not_need_them():
    X = table()
    for bounds in ((0, 1), "private"):
        scaler = BoundedScaler(bounds, random_state=0).fit(X, X_public=(X[:50] * 9,))
        np.testing.assert_array_equal(
            scaler.data_max_, BoundedScaler(bounds, random_state=0).fit(X).data_max_
        )


@pytest.mark.parametrize("relation", RELATIONS)
def test_private_bounds_hold_the_bulk_of_any_column(relation):
    X = table(20_000)
    scaler = BoundedScaler(epsilon=1.0, neighboring_relation=relation, random_state=0).fit(X)
    inside = ((scaler.data_min_ <= X) & (scaler.data_max_ >= X)).mean(axis=0)
    assert (inside > 0.93).all()
    width = scaler.data_max_ - scaler.data_min_
    exact = np.quantile(X, 0.99, axis=0) - np.quantile(X, 0.01, axis=0)
    assert (width <= 1.2 * exact).all()
    np.testing.assert_array_equal(scaler.data_max_[2:4], [1, 7])  # ties, exactly


@quiet
def test_bounds_from_few_rows_hold_nearly_all_of_them():
    """What noise hides is taken to lie where the rest suggests.

    A column of 500 rows is 20 deviations of the noise of a count, of two releases and two columns.
    """
    X = table(500)[:, 1:3]
    scaler = BoundedScaler(epsilon=1.0, random_state=0).fit(X)
    inside = ((scaler.data_min_ <= X) & (scaler.data_max_ >= X)).mean(axis=0)
    assert (inside > 0.75).all()


def test_infinite_epsilon_gives_exact_quantiles():
    X = table()
    scaler = BoundedScaler(epsilon=math.inf, level=0.1).fit(X)
    np.testing.assert_array_equal(
        scaler.data_min_[:2], np.quantile(X[:, :2], 0.1, axis=0, method="lower")
    )
    assert scaler.privacy_.epsilon == math.inf and "NOT private" in str(scaler.privacy_)
    with pytest.raises(PrivacyError):
        PrivacyLedger(epsilon=1.0, delta=1e-5).charge(scaler.privacy_)


# Privacy --------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("epsilon", [0.1, 2.0], ids=["histogram", "search"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_noise_is_that_of_the_event(monkeypatch, relation, epsilon):
    X = table(3000)
    options = {"neighboring_relation": relation, "delta": 1e-5, "random_state": 0}

    def p_value(factor):
        monkeypatch.setattr(base, "as_noise", lambda state: ScaledNoise(SeededNoise(state), factor))
        with releases(monkeypatch) as seen:
            scaler = BoundedScaler(epsilon=epsilon, **options).fit(X)
        event = scaler.privacy_.event
        cost = epsilon_of(event, 1e-5, neighboring_relation=relation)
        assert epsilon * (1 - 1e-6) < cost <= epsilon
        return noise_p_value(seen, event, relation)

    assert p_value(1.0) > RARE
    assert p_value(2 / 3) < RARE and p_value(3 / 2) < RARE


@quiet
def test_cost_is_known_before_the_fit():
    for n, options in ((4000, {}), (200, {"delta": 1e-6}), (300, {"epsilon": math.inf})):
        scaler = BoundedScaler(neighboring_relation="replace_one", **options)
        assert scaler.fit(table(n)).privacy_.event == scaler.privacy_event(n, 5)
    with pytest.raises(ValueError, match="n_samples"):
        BoundedScaler().privacy_event()
    blind = BoundedScaler(delta=1e-5).privacy_event()
    known = BoundedScaler(delta=1e-5).privacy_event(n_samples=10_000, n_features=3)
    costs = [epsilon_of(e, 1e-5, neighboring_relation="zero_out") for e in (blind, known)]
    assert costs == pytest.approx([1, 1], rel=1e-9) and max(costs) <= 1.0
    assert is_free(BoundedScaler("public").privacy_event())


def test_too_few_rows_warn_by_public_sizes():
    X = table(50)
    for rows in (X, -X, 0 * X):
        with pytest.warns(PrivacyWarning, match=r"^the noise of .* of 50 rows"):
            BoundedScaler(epsilon=0.5).fit(rows)


@quiet
def test_a_failed_fit_costs_what_was_released(monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    X = table(300)
    scaler = BoundedScaler().fit(X)
    monkeypatch.setattr(scaler_plans, "noisy_extents", fail)
    with pytest.raises(MemoryError):
        scaler.fit(X[:, :2])
    assert hasattr(scaler, "privacy_") and not hasattr(scaler, "data_norm_")


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bounds", b) for b in ("given", None, 3, (1, 0), (0, 0), (0, math.nan), (0, math.inf))),
        *(("bounds", b) for b in ((False, True), (0, 1, 2), ([0, 0], 1), [[0] * 4, [1] * 4])),
        *(("feature_range", r) for r in ((1, -1), (0, 0), None, (0, math.inf), ([0] * 5, 1))),
        *(("row_norm", r) for r in ("l1", "clip", 2)),
        *(("level", v) for v in (0, 0.5, -0.1, True, "some", None)),
        *(("epsilon", e) for e in (0, -1, None, True, "1", math.nan)),
        *(("delta", d) for d in (0, 1, "small")),
        ("neighboring_relation", "add_remove"),
        ("random_state", -1),
    ],
    ids=str,
)
def test_parameters_out_of_range(name, value):
    scaler = BoundedScaler(**{name: value})
    with pytest.raises(ValueError, match=name):
        scaler.fit(table(50))
    assert not hasattr(scaler, "privacy_")


@pytest.mark.parametrize(
    ("bounds", "public", "match"),
    [
        ("public", None, "needs public rows"),
        ("auto", np.zeros((9, 4)), "X_public"),
        ((0, 1), np.zeros((9, 4)), "X_public"),
        ("auto", (), "empty tuple"),
        ("auto", np.full((9, 5), np.nan), "X_public"),
    ],
)
def test_unusable_public_rows(bounds, public, match):
    scaler = BoundedScaler(bounds)
    with pytest.raises(ValueError, match=match):
        scaler.fit(table(50), X_public=public)
    assert not hasattr(scaler, "privacy_")


def test_unusable_rows_are_not_quoted():
    X = table(50)
    X[3, 1] = np.nan
    for rows, match in ((X, "NaN"), (sparse.csr_array(table(50)), "toarray")):
        with pytest.raises(ValueError, match=match):
            BoundedScaler().fit(rows)
    with pytest.raises(ValueError, match="features"):
        BoundedScaler((0, 1)).fit(table(50)).transform(table(50)[:, :3])


# Pipelines and the ledger ---------------------------------------------------------------------


def ledger(epsilon=1.0, **options):
    return PrivacyLedger(epsilon=epsilon, delta=1e-5, **options)


def years(n=6000):
    X = table(n)
    return X, X[:, 0] > 1982


def test_private_bounds_beat_no_scaling_and_nearly_reach_public_ones():
    # So many rows that a search finds ranges, and leaves out 400, which are 13 deviations of noise.
    X, y = years(40_000)
    kind = DPSGDClassifier(epsilon=1.0, random_state=0)
    given = BoundedScaler((X.min(axis=0), X.max(axis=0) + 1e-9))
    scores = [
        make_pipeline(*steps, kind).fit(X, y).score(X, y)
        for steps in ([], [BoundedScaler(random_state=0)], [given])
    ]
    assert scores[0] < 0.7 and scores[1] > 0.9 and abs(scores[1] - scores[2]) < 0.05


def test_cancer_with_private_bounds():
    X, y = load_breast_cancer(return_X_y=True)
    shares = {"epsilon": 0.6, "random_state": 0}
    scaled = make_pipeline(BoundedScaler(**shares), DPSGDClassifier(**shares)).fit(X, y)
    raw = DPSGDClassifier(epsilon=1.0, random_state=0).fit(X, y).score(X, y)
    assert scaled.score(X, y) > raw and scaled.score(X, y) > 0.88


def test_a_ledger_charges_both_steps():
    X, y = years()
    book = ledger()
    model = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(epsilon=0.7))
    book.fit(model, X, y)
    both = composed([model[0].privacy_.event, model[1].privacy_.event])
    assert charged(book) == (("Pipeline", both),)
    assert 0.7 < book.epsilon() < 0.8
    with pytest.raises(PrivacyBudgetError):
        book.fit(model, X, y)
    assert len(book.entries) == 1


def test_a_ledger_charges_regressors_behind_a_scaler():
    X, _ = years()
    model = make_pipeline(
        BoundedScaler(epsilon=0.3), DPSGDRegressor(epsilon=0.5, data_norm=1.0, delta=1e-5)
    )
    book = ledger().fit(model, X, np.column_stack([X[:, 0], X[:, 0]]))
    assert book[1].data_norm_ == book[0].data_norm_ == 1.0


@pytest.mark.parametrize("random_state", [None, 0])
def test_steps_that_cost_nothing_are_charged_as_such(random_state):
    X, y = years()
    book = ledger(0.7)
    scaler = BoundedScaler((0, 2000), epsilon=5.0, random_state=random_state)
    scaler.set_params(neighboring_relation="replace_one")  # of nothing
    model = book.fit(make_pipeline(scaler, DPSGDClassifier(epsilon=0.7)), X, y)
    assert charged(book) == (("Pipeline", model[1].privacy_.event),)
    book.fit(BoundedScaler((0, 2000), random_state=0), X)
    book.charge(model[0].privacy_)
    assert book.epsilon() <= 0.7


@pytest.mark.parametrize("options", [{"random_state": 0}, {"neighboring_relation": "replace_one"}])
def test_a_ledger_refuses_scalers_that_it_cannot_count(options):
    model = make_pipeline(BoundedScaler(epsilon=0.3, **options), DPSGDClassifier(epsilon=0.3))
    book = ledger()
    with pytest.raises(PrivacyError, match=r"seed|cannot be added up"):
        book.fit(model, *years(300))
    assert book.entries == ()


def test_public_rows_in_a_pipeline_through_a_ledger():
    X, y = years()
    model = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(epsilon=0.6))
    book = ledger()
    book.fit(model, X, y, boundedscaler__X_public=(table(200, seed=1),))
    assert charged(book) == (("Pipeline", model[1].privacy_.event),)
    with sklearn.config_context(enable_metadata_routing=True):
        book.fit(model, X, y, X_public=(table(200, seed=1),))
    assert is_free(model[0].privacy_.event) and len(book.entries) == 2


def test_public_rows_of_a_later_step_do_not_make_the_scaler_free():
    X, y = years()
    model = make_pipeline(BoundedScaler(epsilon=0.5), GEPClassifier(epsilon=1.0))
    book = PrivacyLedger(epsilon=1.1, delta=1e-5)
    with pytest.raises(PrivacyBudgetError, match=r"boundedscaler 0\.5"):
        book.fit(model, X, y, gepclassifier__X_public=(table(200, seed=1)[:, : X.shape[1]],))
    assert book.entries == ()  # refused before the scaler has spent anything


def test_a_later_step_that_fails_leaves_what_the_scaler_spent():
    X, y = years()
    book = ledger()
    model = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(epsilon=0.6, classes=[5, 6]))
    with pytest.raises(ValueError, match="classes"):
        book.fit(model, X, y)
    assert charged(book) == (("Pipeline", model[0].privacy_.event),)
    with pytest.raises(ValueError, match="NaN"):
        book.fit(model, np.where(X == 7, np.nan, X), y)
    assert len(book.entries) == 1  # the scaler refused before its first release


@pytest.mark.parametrize("row", [(BoundedScaler(), LogisticRegression()), (BoundedScaler(),)])
def test_only_private_last_steps(row):
    if len(row) == 1:
        assert ledger().fit(make_pipeline(*row), *years()).steps[0][1].privacy_.epsilon == 1.0
        return
    with pytest.raises(PrivacyError, match="logisticregression"):
        ledger().fit(make_pipeline(*row), *years())


# Tables with categories -----------------------------------------------------------------------


def patients(n=5000):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(18, 95, n), "ward": rng.choice(["A", "B", "C"], n)})
    return frame, frame["age"] + 20 * (frame["ward"] == "C") > 65


WARDS = FrozenEstimator(OneHotEncoder().fit(pd.DataFrame({"ward": ["A", "B", "C"]})))


def columns(scaler, *, sparse_threshold=0.0, chosen=("age",), remainder="drop"):
    steps = (scaler, list(chosen) if isinstance(chosen, tuple) else chosen), (WARDS, ["ward"])
    return make_column_transformer(*steps, sparse_threshold=sparse_threshold, remainder=remainder)


def test_a_ledger_charges_a_scaler_of_some_columns():
    X, y = patients()
    X["member"] = 1.0
    numbers = make_column_selector(pattern="age")
    for chosen, remainder in ((("age",), "passthrough"), (numbers, "drop")):
        book = ledger()
        some = columns(BoundedScaler(epsilon=0.3), chosen=chosen, remainder=remainder)
        model = make_pipeline(some, DPSGDClassifier(epsilon=0.6))
        assert book.fit(model, X, y).score(X, y) > 0.9
        scaler = model[0].transformers_[0][1]
        assert charged(book) == (
            ("Pipeline", composed([scaler.privacy_.event, model[1].privacy_.event])),
        )


def test_the_plan_for_some_columns_is_that_of_the_parameters_and_not_of_an_earlier_fit():
    X, y = patients()
    model = make_pipeline(columns(BoundedScaler(epsilon=0.3)), DPSGDClassifier(epsilon=0.3)).fit(
        X, y
    )
    model[0].transformers[0][1].set_params(epsilon=0.9)
    book = ledger(0.6)
    with pytest.raises(PrivacyBudgetError):
        book.fit(model, X, y)
    assert book.entries == ()


def test_a_failure_behind_some_columns_is_charged_in_full():
    """They are fitted as clones, so that nobody sees what they released."""
    X, y = patients()
    book = ledger()
    model = make_pipeline(
        columns(BoundedScaler(epsilon=0.3)), DPSGDClassifier(epsilon=0.6, classes=[5, 6])
    )
    with pytest.raises(ValueError, match="classes"):
        book.fit(model, X, y)
    assert 0.6 < book.epsilon() < 0.8


@pytest.mark.parametrize(
    ("transformer", "match"),
    [
        (columns(BoundedScaler(), sparse_threshold=0.3), "sparse_threshold"),
        (columns(BoundedScaler(), chosen=lambda frame: ["age"]), "function"),
        (columns(OneHotEncoder()), "onehotencoder"),
        (columns(BoundedScaler(), remainder=OneHotEncoder()), "remainder"),
    ],
    ids=["zeros", "function", "child", "remainder"],
)
def test_columns_that_learn_from_private_rows_are_refused(transformer, match):
    book = ledger()
    with pytest.raises(PrivacyError, match=match):
        book.fit(make_pipeline(transformer, DPSGDClassifier()), *patients(300))
    assert book.entries == ()


def test_a_scaler_that_gets_no_column_costs_nothing():
    X, y = patients()
    model = make_pipeline(
        columns(BoundedScaler(epsilon=0.3), chosen=()), DPSGDClassifier(epsilon=0.6)
    )
    book = ledger()
    book.fit(model, X, y)
    assert charged(book) == (("Pipeline", model[1].privacy_.event),)
