"""Messages of functions name parameters as their own signature does."""

import inspect
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from dpsubspace import (
    DPSGDClassifier,
    Schema,
    private_coefficients,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    select_public,
)
from dpsubspace._core.rows.inputs import renamed
from dpsubspace._names import PLACES, imported
from dpsubspace.audit import audit_estimator
from dpsubspace.metrics import (
    PrivateCalibrationDisplay,
    PrivateRocCurveDisplay,
    private_score_difference,
)
from dpsubspace.public_data import (
    gradient_subspace_distance,
    optimal_transport_distance,
    private_projection_error,
    subspace_distance,
    task2vec_distance,
)
from dpsubspace.statistics import private_covariance, private_quantile, private_spread

A = np.random.default_rng(0).uniform(size=(60, 3))
Y = (A[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(A, columns=list("abc"))
SCHEMA = dict.fromkeys("abc", (0, 1))
MODEL = DPSGDClassifier(epsilon=50.0, n_iter=2)
SETS = {"X_private": A, "X_public": A + 1}

CALLS = {
    "private_score": (private_score, {"X": A, "y": Y}),
    "private_score_difference": (private_score_difference, {"X": A, "y": Y}),
    "private_mean": (private_mean, {"X": A, "data_norm": 2.0}),
    "private_quantile": (private_quantile, {"X": A, "bounds": (0, 1)}),
    "private_covariance": (private_covariance, {"X": A, "data_norm": 2.0}),
    "private_spread": (private_spread, {"X": A}),
    "private_projection_error": (
        private_projection_error,
        {"X": A, "X_public": A[:40] + 1, "n_components": [1]},
    ),
    "private_summary": (private_summary, {"frame": FRAME, "schema": SCHEMA}),
    "private_counts": (private_counts, {"frame": FRAME, "schema": SCHEMA, "columns": "c"}),
    "private_coefficients": (
        private_coefficients,
        {"X": FRAME, "schema": SCHEMA, "target": "b"},
    ),
    "select_public": (
        select_public,
        {"candidates": {"one": A + 1, "two": A + 2}, "X": A, "n_components": 1},
    ),
    "optimal_transport_distance": (optimal_transport_distance, SETS),
    "task2vec_distance": (task2vec_distance, {**SETS, "y_private": Y, "y_public": Y}),
    "gradient_subspace_distance": (
        gradient_subspace_distance,
        {**SETS, "n_components": 1, "n_classes": 2},
    ),
    "subspace_distance": (subspace_distance, {"A": np.eye(3)[:, :1], "B": np.eye(3)[:, :1]}),
    "Schema.check": (Schema(SCHEMA).check, {"X": FRAME}),
    "audit_estimator": (audit_estimator, {"estimator": MODEL, "X": A, "y": Y}),
    "PrivateRocCurveDisplay": (PrivateRocCurveDisplay.from_estimator, {"X": A, "y": Y}),
    "PrivateCalibrationDisplay": (PrivateCalibrationDisplay.from_estimator, {"X": A, "y": Y}),
}
# Parameters that rows and what belongs to them are passed as.
ROWS = "A B X X_private X_public candidates frame groups y y_private y_public".split()  # noqa: SIM905


def lazy():
    return pytest.importorskip("polars").DataFrame({"a": [1.0]}).lazy()


def in_blocks():
    return pytest.importorskip("dask.array").from_array(A, chunks=30)


BAD = {
    "a lazy frame": lazy,
    "masked": lambda: np.ma.masked_array(A, A > 0.9),
    "one column": lambda: A[:, 0],
    "no rows": lambda: A[:0],
    "complex": lambda: A + 1j,
    "text": lambda: pd.DataFrame(dict.fromkeys("abc", ["u"] * 60)),
    "dates": lambda: pd.DataFrame(dict.fromkeys("abc", pd.to_datetime(["2020-01-01"] * 60))),
    "missing": lambda: np.where(A > 0.9, np.nan, A),
    "infinite": lambda: np.where(A > 0.9, np.inf, A),
    "in blocks": in_blocks,
    "too short": lambda: A[:30],
}


def named_in(message):
    """Parameters for rows that a message names, in one of the ways in which it may."""
    found = re.findall(r"`(\w+)[`\[]|\bInput (\w+) contains|\b(\w+)\.co(?:llect|mpute)\(", message)
    return {name for names in found for name in names if name in ROWS}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", CALLS)
def test_messages_name_the_parameters_of_the_function(name, bad):
    """Those that it has, and that which is wrong among them where any is named."""
    call, given = CALLS[name]
    names, wrong = {*inspect.signature(call).parameters}, BAD[bad]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {**given, **({"model": MODEL.fit(A, Y)} if "model" in names else {})}
        given |= {"other": given["model"]} if "other" in names else {}
        if "Display" in name:
            given["estimator"] = MODEL.fit(A, Y)
        for parameter in {*given} & {*ROWS}:
            value = {"one": wrong, "two": A} if parameter == "candidates" else wrong
            try:
                call(**{**given, parameter: value})
            except (ValueError, TypeError) as error:
                found = named_in(str(error))
                assert found <= names, (parameter, str(error))


def test_every_function_that_takes_rows_is_in_the_table():
    functions = {
        name
        for name in PLACES
        if inspect.isfunction(function := imported(name))
        and {*inspect.signature(function).parameters} & {*ROWS}
    }
    assert functions <= {*CALLS}


def test_only_what_names_a_parameter_is_renamed():
    said = "`X` has it. Input X contains NaN. Pass X.collect() and y.compute(), not 'X', X_public."
    assert renamed(said, X="frame", y="labels") == (
        "`frame` has it. Input frame contains NaN. Pass frame.collect() and labels.compute(), not"
        " 'X', X_public."
    )
