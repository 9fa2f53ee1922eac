"""A public range of targets in a wrong unit costs little where it can, and is told of.

What is told follows from a few released numbers. They are given here, so that nothing rests on a
seed; `tests/units/test_focus.py` has which numbers say what. Fits with noise have so little of it,
at epsilon 100, that what they are compared with is more than 7 deviations of it away: the chance of
failing is below 1e-9.
"""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from dpsubspace import (
    DPLinearRegression,
    DPSGDRegressor,
    PrivacyWarning,
    PrivateRange,
    Range,
    tabular_pipeline,
)
from dpsubspace._core.fits import bounds
from dpsubspace._core.statistics.means import ColumnShares, Focus
from dpsubspace.linear_model import (
    GEPRegressor,
    PersonalizedLinearRegression,
    PublicSubspaceLinearRegression,
)


def _unit_rows(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.clip(X @ [0.4, -0.3, 0.2] + rng.normal(0, 0.1, n), -1, 1)


TABLES = {"table": "regression", "table of DPSGDRegressor": DPSGDRegressor()}
COLUMNS = ["x0", "x1", "x2"]


def _table(name, target):
    schema = {column: Range(-1, 1) for column in COLUMNS}
    return tabular_pipeline(TABLES[name], schema, target=target, epsilon=100.0)


def _made(name, limits):
    """A model with a public range of targets, and what else its fit takes."""
    rows, common = _unit_rows(200, seed=1), {"target_bounds": limits, "epsilon": 100.0}
    if name in TABLES:
        return _table(name, limits), {}
    if name == "DPModuleRegressor":
        torch = pytest.importorskip("torch")
        from dpsubspace.neural_network import DPModuleRegressor

        return DPModuleRegressor(torch.nn.Linear(3, 1), n_iter=40, **common), {}
    if name == "PersonalizedLinearRegression":
        model = PersonalizedLinearRegression(bounds=(-1, 1), **common)
        return model, {"groups": np.arange(6000) // 3}
    if name == "DPSGDRegressor":
        return DPSGDRegressor(data_norm=2.0, **common), {}
    if name == "GEPRegressor":
        return GEPRegressor(data_norm=2.0, **common), {"X_public": (rows[0],)}
    if name == "DPLinearRegression":
        return DPLinearRegression(bounds=(-1, 1), **common), {}
    options = {"bounds": (-1, 1), "subspace": "features", **common}
    return PublicSubspaceLinearRegression(**options), {"X_public": (rows[0],)}


def _with_range(name, low, high, model=None):
    """A fit with a public range of targets, its R2, and what it says of the range."""
    X, y = _unit_rows()
    fitted, given = _made(name, (low, high)) if model is None else (model, {})
    fitted.set_params(random_state=0)
    rows = pd.DataFrame(X, columns=COLUMNS) if name in TABLES else X
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted.fit(rows, y, **given)
        shared = fitted.public_part() if hasattr(fitted, "public_part") else fitted
        predicted = shared.predict(rows)
    return predicted, r2_score(y, predicted), [str(one.message) for one in told]


REGRESSORS = [
    "DPSGDRegressor",
    "GEPRegressor",
    "DPLinearRegression",
    "PublicSubspaceLinearRegression",
    "PersonalizedLinearRegression",
    "DPModuleRegressor",
    *TABLES,
]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (-2.4, 1.6)])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_that_is_right_or_twice_too_wide_is_not_told_of(name, low, high):
    _, score, told = _with_range(name, low, high)
    assert score > 0.7
    assert not any("range" in text for text in told)


@pytest.mark.parametrize("factor", [10, 100])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_that_is_far_too_wide_costs_little_and_is_told_of(name, factor):
    """R2 was -0.02 and -66 for ranges 10 and 100 times too wide of DPSGDRegressor at epsilon 3."""
    _, score, told = _with_range(name, -1.3 * factor, 0.7 * factor)
    assert score > 0.7
    if factor == 100:
        assert any("times as wide as needed" in text for text in told)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_beside_the_targets_gives_its_end(name, side):
    low, high = sorted([5.0 * side, 9.0 * side])
    predicted, *_ = _with_range(name, low, high)
    np.testing.assert_allclose(predicted, 5.0 * side, atol=0.5)


def _released(deviation, *, seen=True, end=0.0, away=1.0):
    def answer(values, *_):
        full = np.ones(values.shape[1])
        return Focus(-full, full, deviation * full, full == seen, end * full, away * full)

    return answer


TOLD = [
    ({"deviation": 0.3}, None),
    ({"deviation": 0.15, "seen": False}, None),
    ({"deviation": 0.08}, None),
    ({"deviation": 0.05, "seen": False}, "at least 5 times as wide as needed.*if far wider"),
    ({"deviation": 0.01}, "at least 25 times as wide as needed.*found it coarsely"),
    ({"deviation": 0.3, "end": 1.0, "away": 0.04}, "at most 2 % .* upper end"),
    ({"deviation": 0.01, "end": -1.0, "away": 0.01}, "at most 0.5 % .* lower end"),
]


EACH = [("DPSGDRegressor", *case) for case in TOLD] + [(name, *TOLD[3]) for name in REGRESSORS[1:]]


@pytest.mark.parametrize(("name", "numbers", "words"), EACH)
def test_what_released_numbers_show_is_told(name, numbers, words, monkeypatch):
    """A range with all targets at one end is not said to be too wide as well."""
    monkeypatch.setattr(bounds, "noisy_focus", _released(**numbers))
    _, _, told = _with_range(name, -1, 1)
    found = [text for text in told if "public range" in text]
    assert len(found) == (words is not None)
    if words is not None:
        assert re.search(words, found[0])


@pytest.mark.parametrize("name", TABLES)
def test_a_range_that_is_estimated_is_not_told_of(name, monkeypatch):
    """It is not public, and the way out would be what was done."""
    monkeypatch.setattr(bounds, "noisy_focus", _released(0.01))
    model = _table(name, PrivateRange())
    _, _, told = _with_range(name, None, None, model)
    assert not any("public range" in text for text in told)


# Columns in different units -------------------------------------------------------------------

UNITS = [
    ([0.7, 0.29, 0.005, 0.005], ["x0"]),
    ([0.99, 0.01], ["x0"]),
    ([0.94, 0.06], []),  # as of a column of -1 and 1 beside one within [-1, 1]
    ([0.76, 0.08, 0.08, 0.08], []),
    ([0.5, 0.47, *[0.005] * 6], ["x0", "x1"]),
    ([0.5, 0.47, 0.02, 0.01], []),  # two of few columns may be all that counts
    ([0.4, 0.3, *[0.05] * 6], []),
    ([1.0], []),
]


@pytest.mark.parametrize(("shares", "columns"), UNITS)
@pytest.mark.parametrize("Estimator", [DPSGDRegressor, GEPRegressor])
def test_columns_that_make_up_the_length_of_rows_are_told_of(
    Estimator, shares, columns, monkeypatch
):
    released = ColumnShares(np.array(shares), 1e-4)
    monkeypatch.setattr(bounds, "noisy_column_shares", lambda *_: released)
    names = [f"x{i}" for i in range(len(shares))]
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (400, len(shares))), columns=names)
    public = {} if Estimator is DPSGDRegressor else {"X_public": X[:20].to_numpy().copy() + 0.01}
    model = Estimator(data_norm=3.0, target_bounds=(-1, 1), epsilon=100.0, random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, X["x0"], **public)
    found = [str(one.message) for one in told if "length of the rows" in str(one.message)]
    assert len(found) == bool(columns)
    assert all(f"{name!r}" in text for text in found for name in columns)


def test_raw_columns_are_told_of_where_their_model_is_poor():
    """A column of thousands hides one of hundredths, on which the target rests: R2 was silent."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(0, 1e5, 3000), rng.uniform(-0.01, 0.01, 3000)])
    model = DPSGDRegressor(target_bounds=(-1, 1), epsilon=100.0, random_state=0)
    with pytest.warns(PrivacyWarning, match="column 0 makes up most of the length of the rows"):
        model.fit(X, 100 * X[:, 1])
    assert model.score(X, 100 * X[:, 1]) < 0.5
