"""What takes rows in memory alone refuses all others before it reads or charges anything."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import dask.array as da
import dask.dataframe as dd
import pyarrow as pa
import pyarrow.dataset
from sklearn.linear_model import LinearRegression, LogisticRegression

from dpsubspace import DPSGDClassifier, PrivacyLedger, PrivateSearch, tabular_pipeline
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)

N = 300
X = np.random.default_rng(0).normal(size=(N, 3))
FRAME = pd.DataFrame(X, columns=list("abc"))
Y, T = (X[:, 0] > 0).astype(int), X[:, 0].copy()
TABLE = {name: (-4, 4) for name in "abc"}


def unread(*_):
    raise AssertionError("nothing may be read")


def array_of(values):
    blocks = da.from_array(values, chunks=100)
    return blocks.map_blocks(unread, dtype=values.dtype, meta=values[:0])


def frame_of(values):
    return dd.from_map(unread, range(3), meta=pd.DataFrame(values).rename(columns=str)[:0])


def dataset_of(values):
    columns = {str(i): column for i, column in enumerate(np.reshape(values, (N, -1)).T)}
    return pyarrow.dataset.dataset(pa.table(columns))


FORMS = {
    "a Dask array": (array_of, "is a Dask collection", ".compute()"),
    "a Dask frame": (frame_of, "is a Dask collection", ".compute()"),
    "a dataset": (dataset_of, "is a dataset of PyArrow", ".to_table()"),
}
CLASSIFIER, REGRESSOR = LogisticRegression().fit(X, Y), LinearRegression().fit(X, T)
SEARCHED = {"dpsgdclassifier__alpha": [0.1, 0.2]}
TAKERS = {
    "calibration": (DPCalibratedClassifier(CLASSIFIER), X, Y),
    "sets": (DPConformalClassifier(CLASSIFIER), X, Y),
    "intervals": (DPConformalRegressor(REGRESSOR), X, T),
    "search": (PrivateSearch(DPSGDClassifier(), {"alpha": [0.1, 0.2]}), X, Y),
    "search, table": (PrivateSearch(tabular_pipeline("classification", TABLE), SEARCHED), FRAME, Y),
}
PUBLIC = ("X_public", "y_public", "X_public_val", "y_public_val")
ARGUMENTS = [
    (taker, name)
    for taker in TAKERS
    for name in ("X", "y", "groups", *(PUBLIC if taker.startswith("search") else ()))
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("taker", "name"), ARGUMENTS)
def test_collections_and_datasets_are_refused_and_nothing_is_spent(taker, name, form):
    (model, rows, y), (made, what, way_out) = TAKERS[taker], FORMS[form]
    values = X if name.startswith("X") else np.arange(N) // 2 if name == "groups" else Y
    given = {"X": rows, "y": y, name: made(values)}
    expected = f"`{name}` {what}, which {type(model).__name__} does not take: pass {name}{way_out}"
    ledger = PrivacyLedger(epsilon=9.0, delta=1e-5)
    with ledger, pytest.raises(ValueError) as caught:
        model.fit(**given)
    assert str(caught.value).startswith(expected)
    assert len(ledger) == 0 and ledger.epsilon() == 0 and not hasattr(model, "privacy_")


@pytest.mark.parametrize("name", PUBLIC)
def test_so_are_those_in_a_tuple(name):
    given = {name: (array_of(X if name.startswith("X") else Y),)}
    with pytest.raises(ValueError, match=rf"`{name}\[0\]` is a Dask collection"):
        TAKERS["search"][0].fit(X, Y, **given)


@pytest.mark.parametrize("form", ["array", "frame"])
@pytest.mark.parametrize("taker", ["calibration", "sets", "intervals"])
def test_what_was_fitted_predicts_for_collections_lazily(taker, form):
    model, _, y = TAKERS[taker]
    rows, blocks, targets = {
        "array": (X, da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=70)),
        "frame": (FRAME, *(dd.from_pandas(each, npartitions=4) for each in (FRAME, pd.Series(y)))),
    }[form]
    inner = type(model.estimator)().fit(rows[:100], y[:100])
    model = type(model)(inner, epsilon=5.0, random_state=0).fit(rows[100:], y[100:])
    methods = ["predict", "predict_proba", "predict_set", "predict_interval"]
    for name in (name for name in methods if hasattr(model, name)):
        here, there = (getattr(model, name)(each) for each in (rows, blocks))
        assert isinstance(there, da.Array) and there.dtype == here.dtype
        np.testing.assert_allclose(there.compute(scheduler="sync"), here, atol=1e-12)
    assert model.score(blocks, targets) == pytest.approx(model.score(rows, y))
