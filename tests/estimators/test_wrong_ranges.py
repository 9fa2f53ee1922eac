"""A public range of targets in a wrong unit costs little where it can, and is always told of."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from dpsubspace import (
    DPLinearRegression,
    DPSGDRegressor,
    GEPRegressor,
    Range,
    tabular_pipeline,
)


def _unit_rows(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.clip(X @ [0.4, -0.3, 0.2] + rng.normal(0, 0.1, n), -1, 1)


def _with_range(name, low, high, rows=_unit_rows):
    """A fit with a public range of targets, and its R2 and what it says of the range."""
    X, y = rows()
    given, table = {}, [f"x{i}" for i in range(3)]
    ranges = {"target_bounds": (low, high), "random_state": 0}
    if name == "table":
        schema = {column: Range(-1, 1) for column in table}
        model = tabular_pipeline("regression", schema, target=(low, high), epsilon=3.0)
        model.set_params(random_state=0)
        X = pd.DataFrame(X, columns=table)
    elif name == "DPLinearRegression":
        model = DPLinearRegression(epsilon=3.0, bounds=(-1, 1), **ranges)
    else:
        kind = {"DPSGDRegressor": DPSGDRegressor, "GEPRegressor": GEPRegressor}[name]
        model = kind(epsilon=3.0, data_norm=2.0, **ranges)
        if kind is GEPRegressor:
            given = {"X_public": (_unit_rows(200, seed=1)[0],)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = model.fit(X, y, **given)
    return r2_score(y, found.predict(X)), [str(one.message) for one in told], found


def _as_rows(name):
    X = _unit_rows(50, seed=2)[0]
    return pd.DataFrame(X, columns=["x0", "x1", "x2"]) if name == "table" else X


REGRESSORS = ["DPSGDRegressor", "GEPRegressor", "DPLinearRegression", "table"]


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_that_is_right_is_not_told_of(name):
    score, told, _ = _with_range(name, -1, 1)
    assert score > 0.8
    assert not any("wide as" in text or "beyond it" in text for text in told)


@pytest.mark.parametrize("name", REGRESSORS)
def test_neither_is_one_that_is_twice_too_wide(name):
    score, told, _ = _with_range(name, -2.4, 1.6)
    assert score > 0.8
    assert not any("wide as" in text or "beyond it" in text for text in told)


@pytest.mark.parametrize("factor", [10, 100])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_that_is_far_too_wide_costs_little_and_is_told_of(name, factor):
    """R2 was -0.02 and -66 for ranges 10 and 100 times too wide of the first."""
    score, told, _ = _with_range(name, -1.3 * factor, 0.7 * factor)
    assert score > (0.7 if factor == 10 else 0.0)
    if factor == 100:
        assert any("times as wide as the targets need" in text for text in told)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_beside_the_targets_is_told_of_and_gives_its_end(name, side):
    low, high = sorted([5.0 * side, 9.0 * side])
    _, told, model = _with_range(name, low, high)
    end = "lower" if side > 0 else "upper"
    assert any(f"so near the {end} end of `target_bounds`" in text for text in told)
    assert any("beyond it: all predictions are about that end" in text for text in told)
    np.testing.assert_allclose(model.predict(_as_rows(name)), 5.0 * side, atol=0.5)


def _scores(at_top=0.0):
    """Scores of 0 to 1 near the upper end, and which share of them is moved beyond 1."""
    X, y = _unit_rows(60_000)
    y = 0.985 + 0.01 * y
    return X, np.where(np.arange(len(y)) % 100 < 100 * at_top, 5.0, np.where(at_top > 0, 0.0, y))


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_range_that_cuts_nearly_all_targets_is_told_of(name):
    """Of whole numbers from 0 to 10 in a range of 0 to 1, all but the 0 are beyond it.

    Nothing was said, since the mean of many rows is known to be below the end: it is 0.02 away, of
    which noise has a standard deviation of at most 0.0005. Scores that are 0.03 away, all of them,
    fit their range.
    """
    _, told, _ = _with_range(name, 0, 1, lambda: _scores(0.99))
    assert any("so near the upper end of `target_bounds`" in text for text in told)
    _, told, _ = _with_range(name, 0, 1, _scores)
    assert not any("beyond it" in text for text in told)
