"""Columns of pandas that have the labels of the rows in another order are refused."""

import numpy as np
import pandas as pd
import pytest
from cases import CASES
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    GEPClassifier,
    PrivacyLedger,
    PrivateSearch,
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    select_public,
    tabular_pipeline,
)
from dpsubspace._core.rows.inputs import _BlockOfRows
from dpsubspace._core.tables.schema import _BlockOfTable
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)
from dpsubspace.statistics import private_spread
from dpsubspace.tables import TableEncoder

N = 24
LABELS = np.arange(100, 100 + N)
TURNED = LABELS[::-1]
SCHEMA = {"a": Range(0, 1), "b": Range(0, 1), "y": Categories([0, 1])}
ROWS = pd.DataFrame(np.random.default_rng(0).random((N, 2)), index=LABELS, columns=["a", "b"])
WHOLE = ROWS.assign(y=np.arange(N) % 2)


def column(labels, values=None):
    return pd.Series(np.arange(N) % 2 if values is None else values, index=labels)


SMALL = {"epsilon": 1.0, "n_iter": 1, "random_state": 0}
MODEL = DPSGDClassifier(**SMALL)
TABLE = {name: SCHEMA[name] for name in "ab"}
FITTED = LogisticRegression().fit(ROWS.to_numpy(), np.arange(N) % 2)
FITTED_NUMBERS = LinearRegression().fit(ROWS.to_numpy(), np.arange(N) % 2)


def scored(X, y, groups):
    return private_score(FITTED, X, y, groups=groups, epsilon=1.0)


def charged(model):
    def fit(X, y, groups):
        return PrivacyLedger(epsilon=9.0, delta=1e-5).fit(model, X, y, groups=groups)

    return fit


def frozen(kind, model, **options):
    return lambda X, y, groups: kind(model, epsilon=1.0, **options).fit(X, y, groups=groups)


def of_table(function, **options):
    return lambda X, y, groups: function(WHOLE, SCHEMA, epsilon=1.0, groups=groups, **options)


# What takes rows with targets, with persons, or with both: whatever is taken is looked at.
DOORS = {
    "fit": lambda X, y, groups: MODEL.fit(X, y, groups=groups),
    "regression": lambda X, y, groups: DPLinearRegression(
        epsilon=1.0, bounds=(0, 1), target_bounds=(0, 1)
    ).fit(X, y, groups=groups),
    "pipeline": lambda X, y, groups: make_pipeline(BoundedScaler((0, 1)), MODEL).fit(
        X, y, dpsgdclassifier__groups=groups, boundedscaler__groups=groups
    ),
    "pca": lambda X, y, groups: DPPCA(1, epsilon=1.0).fit(X, y, groups=groups),
    "table": lambda X, y, groups: tabular_pipeline(MODEL, TABLE).fit(X, y, groups=groups),
    "encoder": lambda X, y, groups: TableEncoder(TABLE).fit(X, y, groups=groups),
    "ledger": charged(MODEL),
    "score": scored,
    "recalibrated": frozen(DPCalibratedClassifier, FITTED),
    "conformal": frozen(DPConformalClassifier, FITTED),
    "intervals": frozen(DPConformalRegressor, FITTED_NUMBERS),
    "search": lambda X, y, groups: PrivateSearch(MODEL, {"alpha": [0.1, 0.2]}, epsilon=1.0).fit(
        X, y, groups=groups
    ),
    "mean": lambda X, y, groups: private_mean(X, bounds=(0, 1), groups=groups, epsilon=1.0),
    "spread": lambda X, y, groups: private_spread(X, groups=groups, epsilon=1.0),
    "coefficients": lambda X, y, groups: private_coefficients(
        X, target=y, bounds=(0, 1), groups=groups, epsilon=1.0
    ),
    "coefficients of a table": of_table(private_coefficients, target="y"),
    "summary": of_table(private_summary),
    "counts": of_table(private_counts, columns=["y"]),
    "validation": lambda X, y, groups: select_public(
        {"one": ROWS.to_numpy() + 2, "two": ROWS.to_numpy() + 3},
        X,
        y,
        y_public={"one": np.arange(N) % 2, "two": np.arange(N) % 2},
        method="validation",
        groups=groups,
        epsilon=1.0,
    ),
}
NO_TARGETS = ("mean", "spread", "coefficients of a table", "summary", "counts", "encoder")


@pytest.mark.parametrize("which", ["y", "groups"])
@pytest.mark.parametrize("door", list(DOORS))
def test_labels_in_another_order_are_refused_before_anything_is_charged(door, which):
    if which == "y" and door in NO_TARGETS:
        return
    persons = column(TURNED if which == "groups" else LABELS, np.arange(N) // 2)
    targets = column(TURNED if which == "y" else LABELS)
    named = "target" if which == "y" and door == "coefficients" else which
    ledger = PrivacyLedger(epsilon=1000.0, delta=1e-5)
    with (
        ledger,
        pytest.raises(
            ValueError, match=rf"{named}` has the labels .*{named}\.loc\[(X|frame)\.index\]"
        ),
    ):
        DOORS[door](ROWS, targets, persons)
    assert not ledger.entries


# Those that make a table of the rows, or are given a fitted model, are among the doors.
APART = ("Tab", "DPCal", "DPConf", "private_score", "private_co", "private_su")
PLAIN = [case for case in CASES if not (case.module or case.name.startswith(APART))]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_every_estimator_and_function_looks_at_labels(case):
    X = pd.DataFrame(np.random.default_rng(0).random((case.n, 5)))
    groups = pd.Series(np.arange(case.n), index=np.arange(case.n)[::-1])
    y = np.arange(case.n) % 4
    with pytest.raises(ValueError, match=r"`groups` has the labels of the rows"):
        case.fit(X, y, groups=groups)


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,  # the same
        LABELS.astype(object),  # of another type
        np.arange(N),  # a new series beside chosen rows
        LABELS + 1,  # the targets of later rows
    ],
    ids=["same", "objects", "new", "shifted"],
)
@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
def test_other_labels_go_by_position(labels):
    expected = DPSGDClassifier(**SMALL).fit(ROWS.to_numpy(), np.arange(N) % 2)
    for y in (column(labels), column(LABELS).to_frame().iloc[:, 0], np.arange(N) % 2):
        found = DPSGDClassifier(**SMALL).fit(ROWS, y)
        np.testing.assert_array_equal(found.coef_, expected.coef_)


@pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning")
def test_labels_of_public_sets_and_of_groups_of_a_score():
    model = GEPClassifier(n_iter=1, random_state=0)
    public, turned = ROWS + 5, column(TURNED)
    for given in ((public, turned), ((public,), (turned,))):
        for one in (model, tabular_pipeline(model, TABLE)):
            with pytest.raises(ValueError, match=r"`y_public.* has the labels .*`X_public"):
                one.fit(ROWS, column(LABELS), X_public=given[0], y_public=given[1])
    with pytest.raises(ValueError, match="`by` has the labels"):
        entries = pd.Series(["u", "v"] * (N // 2), index=TURNED)
        private_score(FITTED, ROWS, column(LABELS), by=(entries, ["u", "v"]), epsilon=1.0)


@pytest.mark.parametrize(
    "block",
    [
        _BlockOfRows(np.asarray),
        _BlockOfTable(Schema(TABLE), np.asarray),
    ],
    ids=["rows", "table"],
)
def test_blocks_of_data_frames_are_looked_at_where_they_lie(block):
    with pytest.raises(ValueError, match="`y` has the labels"):
        block(ROWS, column(TURNED))
    block(ROWS, column(LABELS))
