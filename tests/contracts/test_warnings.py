"""What a fit warns of: only what public and released numbers tell, once, and where it is true."""

import copy
import re
import threading
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from helpers import blobs, releases, some_releases
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import dpsubspace
from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyWarning,
)
from dpsubspace._core.statistics.counts import noisy_range
from dpsubspace.exceptions import warn
from dpsubspace.linear_model._advice import warn_of_classes

# What a search outside of a ledger is told beside: see test_ledger_block.py.
SEVERAL = ".*is fitting copies"


def messages(model, X, y, **public):
    """Texts of the warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, **public)
    assert {each.filename for each in caught} <= {__file__}
    return [str(each.message) for each in caught]


def units(n=2000, seed=0):
    """A table of years, euros and a share, and labels that the share decides."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(18, 90, n), rng.lognormal(10, 0.5, n), rng.random(n)])
    return pd.DataFrame(X, columns=["age", "income", "share"]), X[:, 2] > 0.5


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return X[:331], y[:331]


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_a_range_is_found_where_values_fill_many_cells(relation):
    """40 in each of 9 half octaves: noise hides each of them, and not all together.

    Of 1000 seeds, 25 at most had other ends. Where it is twice as many, fewer than 25 of 40 are
    right with a chance of 2e-10.
    """
    values = 2 ** np.linspace(4, 8.5, 360, endpoint=False)

    def found_in(values, seed):
        return noisy_range(values, some_releases(14.0, relation=relation, seed=seed), "it")

    right = np.zeros(3, dtype=int)
    for seed in range(40):
        low, high, found = found_in(values, seed)
        right[0] += found and low <= 32 and 256 <= high <= 1024
        low, high, found = found_in(-values, seed)
        right[1] += found and high >= -32 and -256 >= low >= -1024
        low, high, found = found_in(np.concatenate([values, -values]), seed)
        right[2] += found and low == -high and 128 <= high <= 1024
    assert np.all(right >= 25)


def test_noise_alone_is_rarely_a_range():
    found = [
        noisy_range(np.zeros(0), some_releases(5.0, seed=seed), "it")[2] for seed in range(300)
    ]
    assert sum(found) <= 3


def test_bounds_without_noise_are_as_tight_as_cells():
    values = np.array([3.0, 5.0, 40.0])
    low, high, found = noisy_range(values, some_releases(0.0), "it")
    assert found and (low, high) == pytest.approx((2 * 2**0.5, 32 * 2**0.5))


def test_default_regression_of_few_rows_is_of_use_or_warns(diabetes):
    X, y = diabetes
    scaled = BoundedScaler(bounds=(X.min(axis=0), X.max(axis=0))).fit(X).transform(X)
    assert messages(model := DPSGDRegressor(epsilon=5.0, random_state=0), scaled, y) == []
    assert model.bounds_found_["data_norm"] and model.bounds_found_["target_bounds"].all()
    assert model.score(scaled, y) > 0.2
    texts = messages(model := DPSGDRegressor(epsilon=0.2, random_state=0), X, y)
    assert "will probably hide the range of the targets and the length of the rows" in texts[0]
    found = model.bounds_found_["data_norm"], model.bounds_found_["target_bounds"].all()
    told = [text for text in texts if text.startswith("the noise of the counts has hidden")]
    assert len(told) == 2 - sum(found)  # which of them are found is up to noise
    assert found[0] or model.data_norm_ == 1.0
    assert found[1] or np.ravel(model.target_bounds_).tolist() == [-1.0, 1.0]


def test_rows_of_unknown_length_do_not_blow_up_predictions(diabetes):
    """They are shrunk as in the fit: weights times rows of norm 300 had an R2 of -20,000."""
    X, y = diabetes
    model = DPSGDRegressor(epsilon=0.1, target_bounds=(25, 346), random_state=0)
    texts = messages(model, X, y)
    assert len(texts) == 2 and "`data_norm`" in texts[1] and "target" not in texts[1]
    assert model.score(X, y) > -3
    short = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(X), short @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(model.predict(short / 2), short / 2 @ model.coef_ + model.intercept_)


def test_targets_that_were_not_found_are_named(diabetes):
    X, y = diabetes
    three = np.column_stack([y, np.ones(len(y)), y + 900])
    model = DPSGDRegressor(epsilon=0.6, data_norm=400.0, random_state=0)
    texts = messages(model, X, three)
    found, (low, high) = model.bounds_found_["target_bounds"], model.target_bounds_
    missing = np.flatnonzero(~found)  # which they are is up to noise
    which = f"target{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
    named = [f"the range of {which}, and -1 to 1 was taken" in text for text in texts]
    assert sum(named) == bool(len(missing))
    # Those that are within an octave are so as far as so few rows tell.
    far = int(np.any(found & (high - low < np.abs(low + high) / 2)))
    assert sum("in a much narrower range" in text for text in texts) == far
    assert len(texts) == int(len(missing) > 0) + far


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_columns_in_different_units_are_told_by_the_released_mean(kind):
    table, y = units()
    X = table.to_numpy() if kind == "numbers" else table
    (text,) = messages(DPSGDFClassifier(random_state=0), X, y)
    assert ("column 1 makes" if kind == "numbers" else "column 'income' makes") in text
    (text,) = messages(GEPClassifier(random_state=0), X, y, X_public=(X[:50] + 0.1,))
    assert "different units" in text
    scaled = make_pipeline(BoundedScaler(bounds=([18, 0, 0], [90, 2e5, 1])), DPSGDFClassifier())
    assert messages(scaled, X, y) == []
    assert messages(DPSGDFClassifier(epsilon=float("inf")), table / [1, 1e4, 1], y) == []


def alike(offset, n=4000, d=20):
    """Three classes that are easily told apart, and the same number added to all columns."""
    rng = np.random.default_rng(1)
    centres, y = rng.normal(size=(3, d)) * 6 / np.sqrt(d), rng.integers(0, 3, n)
    return centres[y] + rng.normal(size=(n, d)) + offset, y


def test_rows_that_hardly_differ_beside_their_offset_are_told_by_the_released_mean():
    """Rows differ from their mean by less than 0.01 of their length, which noise hides.

    What is released of that is within 2 deviations of it but for 1 fit in 40. So fewer than 25 of
    40 fits tell it with a chance below 1e-13.
    """
    X, y = alike(1000.0)
    one_mean = partial(DPSGDFClassifier, preprocessing="practical")
    fits = [messages(one_mean(random_state=seed), X, y) for seed in range(40)]
    told = [text for texts in fits for text in texts if "as long as the rows can be" in text]
    assert len(told) >= 25
    assert "preprocessing='auto'" in told[0] and "BoundedScaler" in told[0]
    # Where rows differ by most of their length, it would take noise of 30 deviations.
    for model in (one_mean(random_state=0), DPSGDFClassifier(random_state=0)):
        assert messages(model, *alike(1.0)) == []
    assert messages(DPSGDFClassifier(random_state=0), X, y) == []
    assert messages(DPSGDFClassifier(epsilon=float("inf")), *alike(1000.0, n=200)) == []


def test_rows_that_are_still_off_centre_are_told_by_the_released_radius():
    """Noise has moved the second mean by a dozen times the distance of the rows from their own.

    All of 400 fits tell it, so that more than 1 fit in 40 does not with a chance of 4e-5 at most.
    At 1 in 40, fewer than 25 of 40 fits tell it with a chance below 1e-13.
    """
    X, y = alike(100.0, n=1000, d=200)
    models = [DPSGDFClassifier(random_state=seed) for seed in range(40)]
    fits = [messages(model, X, y) for model in models]
    told = [text for texts in fits for text in texts if text.startswith("noise has moved")]
    assert len(told) >= 25
    assert "preprocessing=" not in told[0] and "BoundedScaler" in told[0]
    assert all(model.mean_error_ < model.radius_ for model in models)
    assert messages(DPSGDFClassifier(random_state=0), *alike(1.0, n=1000, d=200)) == []


def test_classes_that_no_row_can_have_are_told_by_the_released_weights():
    """Labels that columns tell nothing of: the rarer one has a score that no row can lift.

    After short steps the largest score is 15 of its deviations below zero.
    """
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(20_000, 10)), np.array(["often", "rarely"])[np.arange(20_000) % 5 // 4]
    model = DPSGDFClassifier(epsilon=5.0, learning_rate=3.0, random_state=0)
    (text,) = messages(model, X, y)
    assert text.startswith("class 'rarely' is never predicted")
    far = np.vstack([X, 1e6 * X, np.zeros((1, 10)), 1e-9 * X])
    assert set(model.predict(far)) == {"often"}


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("row_norm", ["l2", 2.0])
def test_a_class_out_of_reach_is_predicted_for_no_row(n_classes, row_norm, rng):
    """Of two classes, one that is told of is one that the largest or the least score excludes."""
    X, y = rng.normal(size=(60, 3)), np.arange(60) % n_classes
    model = DPSGDClassifier(row_norm=row_norm, random_state=0).fit(X, y)
    n_scores = 1 if n_classes == 2 else n_classes
    for _ in range(20):
        model.coef_ = rng.normal(size=(n_scores, 3))
        model.intercept_ = rng.normal(size=n_scores)
        model.offset_ = 4 * rng.normal(size=n_scores)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_classes(model)
        text = str(caught[0].message).partition("never")[0] if caught else ""
        told = {int(word) for word in re.findall(r"\d+", text)}
        directions = np.vstack([rng.normal(size=(4000, 3)), model.coef_, -model.coef_])
        rows = np.vstack([directions * size for size in 10.0 ** np.arange(-3, 4)])
        assert not told & set(model.predict(rows).tolist())
        if n_classes == 2:
            scores = np.ravel(model.decision_function(rows))
            assert (0 in told) <= (scores.min() > 0) and (1 in told) <= (scores.max() < 0)


def test_of_rows_without_a_bound_no_class_is_told(rng):
    X = rng.normal(size=(3000, 3))
    assert messages(DPSGDClassifier(epsilon=5.0, row_norm=None), X, X[:, 0] > 0) == []


def test_public_ranges_that_columns_hardly_fill_are_told_by_their_released_squares():
    """Squares in half ranges have a mean of 0.0001 or 0.06, and its noise a deviation of 0.004.

    The limit is 0.04 less two deviations: 8 of them are left on either side.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 5))
    y = X.sum(axis=1) + rng.normal(size=5000)
    (text,) = messages(DPLinearRegression(bounds=(-100, 100), random_state=0), X, y)
    assert text.startswith("`bounds` are about") and "bounds=None" in text
    for model in (DPLinearRegression(bounds=(-4, 4), random_state=0), DPLinearRegression()):
        assert messages(model, X, y) == []
    exact = DPLinearRegression(bounds=(-100, 100), epsilon=float("inf"))
    assert messages(exact, X, y) == []


def test_two_columns_of_many_may_hold_the_length():
    table, y = units()
    rest = np.random.default_rng(1).random((len(y), 8))
    X = np.column_stack([table["age"], table["age"] + 20 * rest[:, 0], table["share"], rest])
    (text,) = messages(DPSGDFClassifier(random_state=0), X, y)
    assert "columns 1 and 0 make up" in text


def test_rows_in_one_unit_are_not_told_to_be_scaled():
    rng = np.random.default_rng(0)
    codes = rng.choice(20, p=[0.9, *[0.1 / 19] * 19], size=(2000, 2))
    onehot = np.eye(20)[codes].reshape(2000, -1)
    X, y = load_digits(return_X_y=True)
    for rows, labels in ((onehot, codes[:, 0] == 0), (X, y), blobs(n=2000)):
        for model in (DPSGDFClassifier(), DPSGDFClassifier(preprocessing="adaptive")):
            assert messages(model.set_params(random_state=0), rows, labels) == []


@pytest.mark.parametrize(
    "model",
    [
        DPSGDRegressor(epsilon=0.2, random_state=0),
        DPSGDFClassifier(epsilon=0.1, random_state=0),
        # So little noise that the released mean always shows the large column.
        DPSGDFClassifier(preprocessing="adaptive", epsilon=50.0, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_warnings_are_a_function_of_what_was_released(model, monkeypatch):
    """Other rows, the same releases: the same warnings, whatever the rows are."""
    X, y = (part.to_numpy(float) if hasattr(part, "columns") else part for part in units(n=120))
    y = y if isinstance(model, DPSGDFClassifier) else y + 50.0
    with releases(monkeypatch) as seen:
        first = messages(model, X, y)
    assert first
    with releases(monkeypatch, seen):
        assert messages(model, np.zeros_like(X), np.roll(y, 60)) == first


@pytest.mark.parametrize("steps", [(), (BoundedScaler(bounds=(-9, 9)),)], ids=["model", "pipeline"])
def test_a_search_says_it_once(steps):
    X, y = blobs(n=61)
    model = make_pipeline(*steps, DPSGDClassifier(epsilon=0.1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", SEVERAL, PrivacyWarning)
        cross_val_score(model, X, y, cv=4)
        assert len(caught) == 1  # though folds differ in their number of rows
        assert caught[0].filename == __file__
        cross_val_score(model, X, y, cv=4)
        assert len(caught) == 2  # another call, another line
        grid = {"dpsgdclassifier__epsilon": [0.05, 0.1, 20.0]}
        GridSearchCV(model, grid, cv=3).fit(X, y)
        assert ["=0.05 " in str(each.message) for each in caught[2:]] == [True, False]
        assert len(caught) == 4
        for n in (40, 50):
            model.fit(X[:n], y[:n])
        assert len(caught) == 6  # outside of a search, Python's own rule


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([BoundedScaler(epsilon=0.1), DPSGDClassifier(epsilon=10.0)], "bounds are read from"),
        ([DPPCA(1, data_norm=1.0, epsilon=0.05), DPSGDClassifier(epsilon=10.0)], "second moment"),
        ([DPSGDClassifier(epsilon=10.0, delta=0.1)], "one whole record"),
    ],
    ids=["scaler", "components", "delta"],
)
def test_each_step_of_a_pipeline_says_it_once_in_a_search(steps, text):
    X, y = blobs(n=61)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", SEVERAL, PrivacyWarning)
        cross_val_score(make_pipeline(*steps), X, y, cv=4)
    assert [text in str(each.message) for each in caught] == [True]
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_filters_are_obeyed_within_a_search():
    X, y = blobs(n=60)
    model = DPSGDClassifier(epsilon=0.1)
    for _ in range(2):  # the same line
        with pytest.warns(PrivacyWarning, match="most of what can be learned from 45 rows") as seen:
            cross_val_score(model, X, y, cv=4)
        assert sum("can be learned" in str(each.message) for each in seen) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        cross_val_score(model, X, y, cv=4)
    with pytest.raises(PrivacyWarning):  # an error in these tests
        cross_val_score(model, X, y, cv=4, error_score="raise")


def test_warnings_that_are_errors_cost_nothing_before_the_fit_and_leave_a_model_after_it():
    X, y = blobs(n=60)
    model = DPSGDFClassifier(epsilon=0.1)
    with pytest.raises(PrivacyWarning):
        model.fit(X, y)
    assert not hasattr(model, "privacy_")
    table, labels = units()
    with pytest.raises(PrivacyWarning, match="different units"):
        model.set_params(epsilon=1.0).fit(table, labels)
    assert model.privacy_.epsilon <= 1.0 and len(model.predict(table)) == len(labels)


def test_noise_that_public_rows_make_up_for_is_not_told():
    X, y = load_digits(return_X_y=True)
    public, private = slice(0, 300), slice(300, 600)
    options = {"epsilon": 0.1, "random_state": 0}
    # The start is given: whether "auto" takes it is up to the noise of 300 rows.
    model, rows = GEPClassifier(init="public", **options), {"X_public": (X[public],)}
    assert messages(model, X[private], y[private], **rows, y_public=(y[public],)) == []
    # Of 12 seeds, scores had a mean of 0.840 and a deviation of 0.006, and 0.22 and 0.086 without
    # labels: the limit is 8 and 6.6 deviations away.
    assert model.init_ == "public" and model.score(X[private], y[private]) > 0.79
    model = GEPClassifier(**options)
    (text,) = messages(model, X[private], y[private], **rows)
    assert "will probably hide most" in text and model.init_ == "zero"
    assert model.score(X[private], y[private]) < 0.79


def test_what_was_not_shown_is_not_remembered():
    """Trials of a private search warn where nobody hears it, and nobody may learn of it later."""
    X, y = blobs(n=61)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = {*globals().get("__warningregistry__", {})} - {"version"}
        cross_val_score(DPSGDClassifier(epsilon=0.1), X, y, cv=4)
    assert {*globals().get("__warningregistry__", {})} - {"version"} == before


def test_a_worker_has_no_line_of_the_caller():
    """And so does not name one of Python's own modules."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        worker = threading.Thread(target=warn, args=("the noise is large", PrivacyWarning))
        worker.start()
        worker.join()
    assert [each.filename for each in caught] == ["<worker>"]


# Saved by another version -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [DPSGDClassifier(n_iter=2), make_pipeline(BoundedScaler(bounds=(0, 1)), DPPCA(2))]
)
def test_a_model_that_another_version_saved_says_so_when_it_is_loaded(model, monkeypatch, tmp_path):
    path, whole = tmp_path / "model.joblib", isinstance(model, DPSGDClassifier)
    joblib.dump(model, path)
    own = [vars(each) for each in ([model] if whole else [step for _, step in model.steps])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (joblib.load(path), copy.deepcopy(model), clone(model)):
            again = [same] if whole else [step for _, step in same.steps]
            assert [set(vars(each)) for each in again] == [set(each) for each in own]
    monkeypatch.setattr(dpsubspace, "__version__", "77.1")
    with pytest.warns(UserWarning, match="of version 0.* is loaded by version 77.1") as caught:
        joblib.load(path)
    assert {each.filename for each in caught} == {__file__}
    assert len(caught) == len(own)


def test_a_model_without_a_version_is_from_another_one_too():
    model = DPSGDClassifier()
    state = {name: value for name, value in model.__getstate__().items() if "version" not in name}
    with pytest.warns(UserWarning, match="of version that is not known"):
        DPSGDClassifier.__new__(DPSGDClassifier).__setstate__(state)
