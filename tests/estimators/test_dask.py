"""Fits and predictions on Dask collections, on workers of real clusters, against NumPy arrays."""

import asyncio
import gc
import logging
import time

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from dask.distributed import Client, LocalCluster, wait
from helpers import RELATIONS, blobs, thinned
from in_parts import TAKEN_FITS, assert_same, blocks, cluster_here, lengths
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyLedger,
    private_counts,
    private_mean,
    private_score,
    private_summary,
)
from dpsubspace._core.rows import dask_parts
from dpsubspace.linear_model import GEPRegressor, GradientDirections, PublicSubspaceLinearRegression
from dpsubspace.statistics import private_covariance, private_quantile

# Small data sets are mostly noise, as the warnings rightly say.
pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    # What Dask itself calls in pandas.
    pytest.mark.filterwarnings(
        "ignore:[\\s\\S]*The inplace keyword in DataFrame:DeprecationWarning"
    ),
]

N, INF = 1003, float("inf")
NAMES = list("abcdef")
_rng = np.random.default_rng(0)
_weights = _rng.normal(size=6)
X = _rng.normal(size=(N, 6)) * [1, 2, 1, 1, 3, 1] + 1
T = X @ _weights + _rng.normal(size=N)
TT = np.stack([T, -2 * T + X[:, 0]], axis=1)
Y, Y3 = (T.mean() < T).astype(int), np.digitize(T, [-3, 3])
TEXT = np.array(["no", "certainly"])[Y]
PUBLIC = _rng.normal(size=(300, 6)) * [1, 2, 1, 1, 3, 1] + 1
Y_PUBLIC, T_PUBLIC = (PUBLIC @ _weights > 0).astype(int), PUBLIC @ _weights
FRAME = pd.DataFrame(X, columns=NAMES).assign(y=Y, text=TEXT, t=T, u=TT[:, 1])
SEEDED = {"random_state": 0}


# The same as on arrays ------------------------------------------------------------------------

LABELLED = {"X_public": (PUBLIC,), "y_public": (Y_PUBLIC,)}
WITH_TARGETS = {"X_public": (PUBLIC,), "y_public": (T_PUBLIC,)}
TASKS = {
    "X_public": (PUBLIC[:150], PUBLIC[150:]),
    "y_public": (T_PUBLIC[:150], PUBLIC[150:] @ np.arange(6)),
}
FEW = GradientDirections(n_components=3)

FITS = {
    "steps": (DPSGDFClassifier(n_iter=9, **SEEDED), (X, Y), {}),
    "steps, other clients": (
        DPSGDFClassifier(n_iter=5, neighboring_relation="replace_one", **SEEDED),
        (X, Y3),
        {},
    ),
    "batches": (
        DPSGDClassifier(n_iter=5, batch_size=90, noise_multiplier=2.0, epsilon=None, **SEEDED),
        (X, Y3),
        {},
    ),
    "exact": (DPSGDClassifier(epsilon=INF, **SEEDED), (X, Y3), {}),
    "targets": (DPSGDRegressor(n_iter=5, **SEEDED), (X, T), {}),
    "two targets": (
        DPSGDRegressor(n_iter=5, neighboring_relation="replace_one", **SEEDED),
        (X, TT),
        {},
    ),
    "far targets": (DPSGDRegressor(n_iter=5, **SEEDED), (X, 1e6 + T), {}),
    "exact targets": (DPSGDRegressor(epsilon=INF, **SEEDED), (X, TT), {}),
    "public rows": (GEPClassifier(n_iter=5, **SEEDED), (X, Y), {"X_public": (PUBLIC,)}),
    "directions": (
        GEPClassifier(n_iter=5, directions=FEW, mirror=True, **SEEDED),
        (X, Y),
        LABELLED,
    ),
    "directions of targets": (
        GEPRegressor(n_iter=5, directions=FEW, **SEEDED),
        (X, T),
        WITH_TARGETS,
    ),
    "few directions": (
        PublicSubspaceLinearRegression(n_components=2, **SEEDED),
        (X, T),
        TASKS,
    ),
    "descent": (DPLinearRegression(solver="descent", **SEEDED), (X, T), {}),
    "moments": (DPLinearRegression(solver="moments", **SEEDED), (X, TT), {}),
    "AdaSSP": (DPLinearRegression(solver="adassp", **SEEDED), (X, T), {}),
    "plain": (
        DPLinearRegression(solver="plain", neighboring_relation="replace_one", **SEEDED),
        (X, T),
        {},
    ),
    "ranges": (DPLinearRegression(bounds=(-9, 9), target_bounds=(-30, 30), **SEEDED), (X, T), {}),
    "least squares": (DPLinearRegression(epsilon=INF, **SEEDED), (X, T), {}),
    "components": (DPPCA(2, **SEEDED), (X,), {}),
    "components, gaussian": (
        DPPCA(2, mechanism="gaussian", neighboring_relation="replace_one", **SEEDED),
        (X,),
        {},
    ),
    "components, power": (DPPCA(2, mechanism="power", **SEEDED), (X,), {"X_public": (PUBLIC,)}),
    "components, drawn": (
        DPPCA(2, mechanism="bingham", centered=False, data_norm=9.0, **SEEDED),
        (X,),
        {},
    ),
    "components, exact": (DPPCA(2, epsilon=INF, **SEEDED), (X,), {}),
    "scales": (BoundedScaler(epsilon=0.2, **SEEDED), (X,), {}),
    "quantiles of columns": (BoundedScaler(epsilon=20.0, **SEEDED), (X,), {}),
}

FUNCTIONS = {
    "mean": (private_mean, (X,), {}),
    "mean in ranges": (private_mean, (X,), {"bounds": (-9, 9)}),
    "mean of one column": (private_mean, (T,), {"method": "gaussian", "data_norm": 20}),
    "exact mean": (private_mean, (X,), {"epsilon": INF}),
    "quantiles": (private_quantile, (X, [0.1, 0.5]), {}),
    "quantile in a range": (private_quantile, (T, 0.5), {"bounds": (-30, 30)}),
    "covariance": (private_covariance, (X,), {}),
    "covariance, exact": (private_covariance, (X,), {"epsilon": INF, "centered": False}),
}


def on_blocks(data):
    """Arrays of rows as Dask arrays in uneven blocks, some of none."""
    return [blocks(a) if len(np.shape(a)) and len(a) == N else a for a in data]


@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_that_on_arrays(client, name):
    model, data, public = FITS[name]
    here, there = clone(model).fit(*data, **public), clone(model).fit(*on_blocks(data), **public)
    # Without noise an iteration stops where rounding lets it, which differs between parts and
    # processors. L-BFGS may do a step more or less: it ends where no entry of the gradient is above
    # 1e-6. Rows of mean square norm 1 have here a curvature of at least 0.009, so that ends of 14
    # weights are at most 2 sqrt(14) 1e-6 / 0.009 apart, which is 4e-4 of the size of the targets.
    exact = model.epsilon == INF
    atol = 5e-4 * np.sqrt(np.mean(TT**2)) if name == "exact targets" else 1e-4
    assert_same(here, there, atol if exact else 1e-6, but=("n_iter_",) if exact else ())
    assert there.privacy_ == here.privacy_


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_statistic_is_that_of_arrays(client, name):
    function, data, options = FUNCTIONS[name]
    here = function(*data, **{**SEEDED, **options})
    there = function(*on_blocks(data), **{**SEEDED, **options})
    assert_same(here, there)
    assert there.privacy == here.privacy


@pytest.mark.parametrize("name", ["steps", "batches", "descent", "components", "two targets"])
def test_rows_in_single_precision(client, name):
    """Blocks of products in float32 begin with each part, so that their last digits differ."""
    model, (rows, *targets), public = FITS[name]
    data = (rows.astype(np.float32), *targets)
    here, there = clone(model).fit(*data, **public), clone(model).fit(*on_blocks(data), **public)
    assert_same(here, there, 1e-4)


def test_weights_of_many_columns_arrive_with_their_own_call(client):
    """What is sent is more than 100 kB, of which Dask may make a task by itself."""
    wide = np.random.default_rng(0).normal(size=(60, 15_000))
    model, labels = DPSGDClassifier(n_iter=10, **SEEDED), np.arange(60) % 2
    here = clone(model).fit(wide, labels)
    assert_same(here, clone(model).fit(da.from_array(wide, chunks=(20, 15_000)), labels))


@pytest.mark.cluster
@pytest.mark.parametrize("n_workers", [1, 3])
def test_the_number_of_workers_does_not_matter(n_workers):
    """In processes, in which nothing of this one is known."""
    with (
        LocalCluster(n_workers, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers),
    ):
        for name in ("batches", "moments", "components, gaussian"):
            model, data, _ = FITS[name]
            assert_same(clone(model).fit(*data), clone(model).fit(*on_blocks(data)))


def test_workers_may_be_threads():
    """All in this process, two tasks at once on each worker."""
    with (
        LocalCluster(2, threads_per_worker=2, processes=False, dashboard_address=":0") as workers,
        Client(workers),
    ):
        for name in ("batches", "descent", "scales"):
            model, data, public = FITS[name]
            here = clone(model).fit(*data, **public)
            assert_same(here, clone(model).fit(*on_blocks(data), **public))


@pytest.mark.parametrize("relation", thinned(RELATIONS))
@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_every_setting_is_that_on_arrays(monkeypatch, case, setting, relation):
    """Without workers: see in_parts.py."""
    rows, y = blobs(n=case.n)
    here = case.fit(rows, y, setting, relation)
    with cluster_here(monkeypatch, n_workers=2):
        there = case.fit(blocks(rows), blocks(y), setting, relation)
    assert_same(here, there)


# Data frames ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["pandas", "Parquet"])
def frame(request, tmp_path_factory):
    """A Dask data frame of which nobody knows the lengths of the partitions."""
    given = dd.from_pandas(FRAME, npartitions=5)
    if request.param == "pandas":
        return given
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("parquet")
    given.to_parquet(path)
    return dd.read_parquet(path)


MANY = {
    "classes": (DPSGDFClassifier(n_iter=3), False, {}),
    "targets": (DPSGDRegressor(n_iter=3), True, {}),
    "targets in a range": (DPSGDRegressor(n_iter=3, target_bounds=(-9, 9)), True, {}),
    "public rows": (GEPRegressor(n_iter=3, target_bounds=(-9, 9)), True, {"X_public": (X,)}),
    "least squares": (DPLinearRegression(), True, {}),
    "moments": (DPLinearRegression(solver="moments", bounds=(-9, 9)), True, {}),
    "components": (DPPCA(2), None, {}),
}


@pytest.mark.parametrize("name", MANY)
def test_many_rows_are_not_looked_at_by_their_place(monkeypatch, name):
    """Some of them alone are looked at in memory, which ones their number decides."""
    model, numbers, options = MANY[name]
    rows = np.random.default_rng(1).normal(size=(25_000, 6)) + 1
    targets = rows.sum(axis=1) if numbers else (rows[:, 0] > 1).astype(int)
    given = [blocks(rows)] if numbers is None else [blocks(rows), blocks(targets)]
    with cluster_here(monkeypatch), PrivacyLedger(epsilon=2.0, delta=1e-5) as ledger:
        model.fit(*given, **options)
    assert len(ledger.entries) == 1 and model.privacy_.n_samples == 25_000


def test_a_data_frame_is_fitted_like_one_of_pandas(client, frame):
    model = DPSGDFClassifier(n_iter=9, **SEEDED)
    here = clone(model).fit(FRAME[NAMES], FRAME["text"])
    there = clone(model).fit(frame[NAMES], frame["text"])
    assert_same(here, there)
    assert list(there.feature_names_in_) == NAMES
    assert list(there.classes_) == ["certainly", "no"]
    for name in ("predict", "predict_proba", "decision_function"):
        lazy = getattr(there, name)(frame[NAMES])
        assert isinstance(lazy, da.Array) and np.isnan(lazy.shape[0])
        expected = getattr(here, name)(FRAME[NAMES])
        computed = lazy.compute()
        assert computed.shape == expected.shape
        if name == "predict":
            np.testing.assert_array_equal(computed, expected)
        else:
            np.testing.assert_allclose(computed, expected, atol=1e-9)
    score = here.score(FRAME[NAMES], TEXT)
    assert there.score(frame[NAMES], frame["text"]) == pytest.approx(score)
    with pytest.raises(ValueError, match="feature names"):
        there.predict(frame[NAMES[::-1]])


@pytest.mark.parametrize("targets", ["t", ["t", "u"]])
def test_targets_may_be_columns_of_a_data_frame(client, frame, targets):
    here = DPLinearRegression(**SEEDED).fit(FRAME[NAMES], FRAME[targets])
    there = DPLinearRegression(**SEEDED).fit(frame[NAMES], frame[targets])
    assert_same(here, there)
    predicted = there.predict(frame[NAMES]).compute()
    np.testing.assert_allclose(predicted, here.predict(FRAME[NAMES]), atol=1e-9)
    for weight, lazy_weight in ((None, None), (FRAME["t"] ** 2, frame["t"] ** 2)):
        score = here.score(FRAME[NAMES], FRAME[targets], sample_weight=weight)
        lazy = there.score(frame[NAMES], frame[targets], sample_weight=lazy_weight)
        assert lazy == pytest.approx(score)


def test_arrays_of_unknown_lengths(client, frame):
    rows, y = frame[NAMES].values, frame["y"].values
    assert np.isnan(rows.shape[0])
    here, there, known = (DPSGDClassifier(n_iter=3, **SEEDED) for _ in range(3))
    here.fit(X, Y)
    if rows.numblocks[0] == y.numblocks[0]:  # Dask may join small files, one column more of them
        assert_same(here, there.fit(rows, y))
    assert_same(here, known.fit(rows.compute_chunk_sizes(), Y))
    assert_same(here, known.fit(rows.compute_chunk_sizes(), y.compute_chunk_sizes()))


def test_statistics_of_a_series(client, frame):
    here = private_quantile(FRAME["t"], [0.2, 0.9], **SEEDED)
    assert_same(here, private_quantile(frame["t"], [0.2, 0.9], **SEEDED))
    assert_same(private_mean(FRAME["t"], **SEEDED), private_mean(frame["t"], **SEEDED))


# Lazy methods ---------------------------------------------------------------------------------


def refusing(block):
    raise AssertionError("a block was read")


def unread(rows):
    """The rows in blocks that cannot be read."""
    return blocks(rows).map_blocks(refusing, dtype=rows.dtype, meta=rows[:0])


@pytest.fixture(scope="module")
def fitted():
    """Models that were fitted on arrays, and need no client."""
    return {
        "classifier": DPSGDClassifier(n_iter=9, **SEEDED).fit(X, Y3),
        "two classes": DPSGDFClassifier(n_iter=9, **SEEDED).fit(X, TEXT),
        "regressor": DPSGDRegressor(n_iter=9, **SEEDED).fit(X, T),
        "regression": DPLinearRegression(**SEEDED).fit(X, TT),
        "components": DPPCA(2, **SEEDED).fit(X),
        "scaler": BoundedScaler(**SEEDED).fit(X),
    }


METHODS = [
    *(
        (name, method)
        for name in ("classifier", "two classes")
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function")
    ),
    ("regressor", "predict"),
    ("regression", "predict"),
    *((name, method) for name in ("components", "scaler") for method in ("transform",)),
    ("components", "inverse_transform"),
    ("scaler", "inverse_transform"),
]


def assert_close(found, expected, dtype):
    """The same labels, or numbers as close as this type has them."""
    if expected.dtype.kind in "OSU":
        np.testing.assert_array_equal(found, expected)
    else:
        rtol = 1e-5 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods_are_lazy_and_give_what_they_give_of_arrays(fitted, name, method, dtype):
    """They need no client, and read nothing before somebody computes what they give."""
    rows = X.astype(dtype)
    if (name, method) == ("components", "inverse_transform"):
        rows = rows[:, :2]
    call = getattr(fitted[name], method)
    expected, lazy = call(rows), call(blocks(rows))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape and lazy.dtype == expected.dtype
    assert lazy.chunks[0] == lengths(N)
    computed = lazy.compute(scheduler="sync")
    assert computed.dtype == expected.dtype
    assert_close(computed, expected, dtype)
    # Columns may lie in several blocks.
    assert_close(
        call(da.from_array(rows, chunks=(400, 1))).compute(scheduler="sync"), expected, dtype
    )
    unseen = call(unread(rows))
    assert unseen.shape == expected.shape
    with pytest.raises(AssertionError, match="a block was read"):
        unseen.compute(scheduler="sync")


@pytest.mark.parametrize("name", ["classifier", "two classes", "regressor", "regression"])
def test_scores_are_those_of_arrays(fitted, name):
    y = {"classifier": Y3, "two classes": TEXT, "regressor": T, "regression": TT}[name]
    for weight in (None, T**2):
        score = fitted[name].score(X, y, sample_weight=weight)
        lazy_weight = None if weight is None else blocks(weight)
        for targets in (y, blocks(y), da.from_array(y, chunks=(400, *y.shape[1:]))):
            with dask.config.set(scheduler="sync"):
                found = fitted[name].score(blocks(X), targets, sample_weight=lazy_weight)
            assert isinstance(found, float) and found == pytest.approx(score, rel=1e-9)


def test_a_score_of_targets_that_do_not_vary_is_that_of_arrays(fitted):
    for model, targets in ((fitted["regressor"], 0 * T + 3.0), (fitted["regression"], 0 * TT)):
        with dask.config.set(scheduler="sync"):
            found = model.score(blocks(X), blocks(targets))
        assert found == model.score(X, targets)


def test_what_is_not_fitted_or_does_not_fit_is_said_at_once(fitted):
    with pytest.raises(NotFittedError):
        DPSGDClassifier().predict(unread(X))
    with pytest.raises(ValueError, match="has 3 features"):
        fitted["classifier"].predict(unread(X)[:, :3])


def test_a_pipeline_of_dask_collections(client, frame):
    def pipeline():
        steps = BoundedScaler(**SEEDED), DPPCA(3, **SEEDED), DPSGDClassifier(n_iter=9, **SEEDED)
        return make_pipeline(*steps)

    here = pipeline().fit(X, TEXT)
    for rows, labels in ((blocks(X), blocks(TEXT)), (frame[NAMES], frame["text"])):
        there = pipeline().fit(rows, labels)
        assert_same(here[-1], there[-1])
        lazy = there.predict(rows)
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy.compute(), here.predict(X))
        assert there.score(rows, labels) == pytest.approx(here.score(X, TEXT))


# What stays, and what is refused --------------------------------------------------------------


def keys(client):
    """Keys of ours that workers hold."""
    return {str(key) for key in client.who_has() if "dpsubspace" in str(key)}


def gone(client, seconds=10):
    """Whether workers hold nothing of ours any more, soon."""
    gc.collect()
    end = time.monotonic() + seconds
    while keys(client) and time.monotonic() < end:
        time.sleep(0.05)
    return not keys(client)


def test_nothing_of_a_fit_stays_on_the_workers(client, monkeypatch):
    during = []

    def looking(parts, *call):
        found = run(parts, *call)
        during.append(keys(client))
        return found

    run = dask_parts._DaskParts.run
    monkeypatch.setattr(dask_parts._DaskParts, "run", looking)
    parts = da.from_array(X, chunks=(300, 6)).persist()
    wait(parts)
    before = set(client.who_has())
    DPSGDClassifier(n_iter=3, **SEEDED).fit(parts, Y)
    private_mean(parts, **SEEDED)
    DPPCA(2, **SEEDED).fit(parts)
    assert gone(client)
    assert len(during) > 9 and all(during)  # there was something to let go
    assert set(client.who_has()) == before  # what the user keeps stays


def test_nothing_stays_of_a_fit_that_was_refused(client):
    rows = X.copy()
    rows[700, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        DPSGDClassifier().fit(blocks(rows), Y)
    assert gone(client)


def refused(call, match):
    """What is refused charges nothing."""
    ledger = PrivacyLedger(100.0, 1e-5)
    with ledger, pytest.raises(ValueError, match=match) as caught:
        call()
    assert not ledger.entries
    return caught.value


def test_no_message_and_no_log_has_an_entry(client, caplog):
    """Neither where a block is refused by us, nor in the logs of the workers."""
    secret = X.copy()
    secret[700, 3], secret[701, 2] = np.nan, 987654.25
    with caplog.at_level(logging.DEBUG):
        error = refused(lambda: DPSGDClassifier().fit(blocks(secret), Y), "Input X contains NaN")
        secret[700, 3] = 0.0
        model = DPSGDClassifier(epsilon=3.0, n_iter=2).fit(blocks(secret), Y)
        model.predict(blocks(secret)).compute()
    assert "987654" not in str(error) + caplog.text
    assert "987654" not in str(client.get_worker_logs()) + str(client.get_scheduler_logs())


def test_a_fit_in_a_dask_task_is_refused(client):
    def task():
        rows = da.zeros((10, 2))
        try:
            DPSGDClassifier().fit(rows, np.arange(10) % 2)
        except ValueError as error:
            return str(error)

    assert "cannot run inside a Dask task" in client.submit(task, pure=False).result(30)


def test_an_asynchronous_client_is_refused():
    async def main():
        model = DPSGDClassifier()
        async with (
            LocalCluster(1, processes=False, dashboard_address=":0", asynchronous=True) as workers,
            Client(workers, asynchronous=True),
        ):
            refused(lambda: model.fit(blocks(X), Y), "not asynchronous")
        assert not hasattr(model, "privacy_")

    asyncio.run(main())


def test_a_closed_client_is_none(client):
    """Of the current one, if that is closed; a fit goes to the one that is open."""
    with LocalCluster(1, processes=False, dashboard_address=":0") as workers:
        Client(workers).close()
        model = DPSGDClassifier(n_iter=2, **SEEDED)
        assert_same(clone(model).fit(X, Y), model.fit(blocks(X), Y))


def test_rows_that_are_held_by_another_cluster_are_refused(client):
    with (
        LocalCluster(1, processes=False, dashboard_address=":0") as others,
        Client(others, set_as_default=False) as other,
    ):
        with other.as_current():
            rows = da.from_array(X, chunks=(300, 6)).persist()
            wait(rows)
        model = DPSGDClassifier()
        refused(lambda: model.fit(rows, Y), "persisted on another cluster")
        refused(lambda: model.fit(blocks(X), (rows[:, 0] > 0) * 1), "persisted on another cluster")
        assert not hasattr(model, "privacy_")
        with other.as_current():
            model = DPSGDClassifier(n_iter=2, **SEEDED)
            assert_same(clone(model).fit(X, Y), model.fit(rows, Y))


def test_a_ledger_is_charged_once(client):
    ledger = PrivacyLedger(9.0, 1e-5, allow_seeded=True)
    with ledger:
        DPSGDClassifier(n_iter=2, epsilon=1.0, **SEEDED).fit(blocks(X), Y)
    assert len(ledger.entries) == 1
    ledger.fit(DPSGDClassifier(n_iter=2, epsilon=1.0, **SEEDED), blocks(X), Y)
    assert len(ledger.entries) == 2
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    with pytest.raises(ValueError, match="Open the ledger around the fit"):
        ledger.fit(DPSGDClassifier(n_iter=2, epsilon=1.0, **SEEDED), frame, frame[0] > 0)
    assert len(ledger.entries) == 2


# Tables and scores ----------------------------------------------------------------------------


def test_tables_and_scores_on_workers(client, tmp_path):
    """From files of mixed columns, of which only some are read."""
    frame = FRAME.assign(sex=np.where(X[:, 1] > 0, "f", "m"))
    frame.loc[::7, "text"] = None
    for i, piece in enumerate(np.array_split(np.arange(N), 5)):
        frame.iloc[piece].to_parquet(tmp_path / f"{i}.parquet")
    rows = dd.read_parquet(tmp_path)
    schema = {
        "a": (-2, 4),
        "text": Categories(["no", "certainly"], missing=True),
        "sex": ["f", "m"],
    }
    summaries = [private_summary(each, schema, by="sex", **SEEDED) for each in (frame, rows)]
    assert summaries[0].entries == summaries[1].entries
    counts = [private_counts(each, schema, ["text", "a"], **SEEDED).noisy for each in (frame, rows)]
    np.testing.assert_array_equal(*counts)
    model = DPSGDClassifier(epsilon=3.0).fit(FRAME[NAMES], Y)
    given = {"metric": ["roc_auc", "log_loss"], **SEEDED}
    here = private_score(model, FRAME[NAMES], Y, **given)
    there = private_score(model, rows[NAMES], rows["y"], **given)
    for name in here:  # a row may be in the next cell: products are rounded by where it lies
        assert float(there[name]) == pytest.approx(float(here[name]), abs=5 / N)
