"""Of a column that alone decides the outcome is told after a fit, and of no other column.

Fits have an epsilon at which the noise of what tells it is far below the bound, so that chance
decides nothing: at least eight standard deviations lie between.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

from dpsubspace import Categories, DPSGDClassifier, DPSGDFClassifier, Range, tabular_pipeline
from dpsubspace._core.solvers.intercepts import Doubt

N, EPSILON = 4000, 50.0
TOLD = "alone decides the outcome"


def columns_of(rng):
    return rng.normal(size=(N, 4))


def table_of(rng):
    X = pd.DataFrame(np.clip(columns_of(rng), -4, 4), columns=list("abcd"))
    return X, dict.fromkeys("abcd", Range(-4.0, 4.0))


def told_of(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(each.message) for each in caught if TOLD in str(each.message)]


def pipeline(schema, model="classification", epsilon=EPSILON):
    return tabular_pipeline(model, schema, epsilon=epsilon).set_params(random_state=0)


# Outcomes that something else than a copy decides, or nothing.
OUTCOMES = {
    "many columns together": lambda X, rng: X.sum(axis=1) > 0,
    "one column, poorly": lambda X, rng: X[:, 0] + rng.logistic(size=N) > 0,
    "one column, rarely": lambda X, rng: 3 * X[:, 0] + rng.logistic(size=N) > 7,
    "nothing": lambda X, rng: rng.random(N) < 0.3,
    "nothing, rarely": lambda X, rng: rng.random(N) < 0.005,
}


def test_a_column_of_an_array_that_copies_the_outcome_is_named(rng):
    X = columns_of(rng)
    y = OUTCOMES["one column, poorly"](X, rng).astype(int)
    copied = np.column_stack([X, y])
    fit = DPSGDFClassifier(epsilon=EPSILON, random_state=0)
    (message,) = told_of(fit, copied, y)
    assert message.startswith("column 4 alone") and "drop it" in message
    frame = pd.DataFrame(copied, columns=["a", "b", "c", "d", "left hospital"])
    (message,) = told_of(fit, frame, y)
    assert message.startswith("column 'left hospital' alone")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_of_other_arrays_nothing_is_told(rng, outcome):
    X = columns_of(rng)
    y = OUTCOMES[outcome](X, rng).astype(int)
    assert not told_of(DPSGDFClassifier(epsilon=EPSILON, random_state=0), X, y)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        *(("number", model) for model in ("classification", DPSGDClassifier())),
        *(("category", model) for model in ("classification", DPSGDClassifier())),
        ("wide number", "classification"),  # of which the others leave too much to other columns
    ],
)
def test_a_column_of_a_table_that_copies_the_outcome_is_named(rng, kind, model):
    X, schema = table_of(rng)
    y = OUTCOMES["one column, poorly"](X.to_numpy(), rng).astype(int)
    if kind == "category":
        X["copy"], schema["copy"] = np.where(y, "yes", "no"), Categories(["no", "yes"])
    else:
        X["copy"], schema["copy"] = y * 1.0, Range(0.0, 1.0 if kind == "number" else 5.0)
    (message,) = told_of(pipeline(schema, model), X, y)
    assert message.startswith("column 'copy' alone")


def test_a_column_that_copies_one_of_three_outcomes_is_named(rng):
    X, schema = table_of(rng)
    y = rng.choice(["a", "b", "c"], N, p=[0.2, 0.3, 0.5])
    X["code"], schema["code"] = np.char.upper(y), Categories(["A", "B", "C", "D"])
    (message,) = told_of(pipeline(schema), X, y)
    assert message.startswith("column 'code' alone")


@pytest.mark.wide
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_of_other_tables_nothing_is_told(rng, outcome):
    X, schema = table_of(rng)
    y = OUTCOMES[outcome](X.to_numpy(), rng).astype(int)
    assert not told_of(pipeline(schema), X, y)


def test_noise_is_no_reason_to_tell(rng):
    X = columns_of(rng)
    y = OUTCOMES["nothing"](X, rng).astype(int)
    fit = DPSGDFClassifier(epsilon=0.1, random_state=0)
    assert not told_of(fit, np.column_stack([X, y]), y)
    assert not fit._doubt.is_below(0.07 / 4)


@pytest.mark.parametrize(
    ("means", "error", "below"),
    [
        ([0.001], 0.0001, True),
        ([0.02], 0.0001, False),
        ([0.001], 0.006, False),  # noise may hide more than the bound
        ([-0.03], 0.006, False),  # however low it makes the mean
        ([-0.03], 0.004, True),
        ([0.004, 0.004, 0.004], 0.0001, False),
    ],
)
def test_doubt_counts_with_its_noise(means, error, below):
    assert Doubt(np.array(means), error).is_below(0.01) == below
