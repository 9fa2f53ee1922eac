"""Fits in tasks of Dask: each run of a task is charged, or runs again only where one would be."""

import asyncio
import contextvars
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import joblib
import pytest

distributed = pytest.importorskip("distributed")

from distributed import Client, LocalCluster, get_worker  # noqa: E402
from helpers import blobs  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.ensemble import BaggingClassifier  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_validate  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from dpsubspace import (  # noqa: E402
    DPPCA,
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateSearch,
    private_mean,
)
from dpsubspace._core.accounting.payer import already_paid, in_task, run_here  # noqa: E402
from dpsubspace.budget._fit_charge import LedgerAddress  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

AGAIN = "is running the task .* again"


class Small(DPSGDClassifier):
    """Fit of which the first kills the worker that it runs on, once it has begun to spend."""

    def __init__(self, *, epsilon=0.3, n_iter=5, alpha=0.0, flag=None, random_state=None):
        super().__init__(epsilon=epsilon, n_iter=n_iter, alpha=alpha, random_state=random_state)
        self.flag = flag

    def _start_spending(self, guarantee):
        super()._start_spending(guarantee)
        die_once(self.flag)


def plain():
    return DPSGDClassifier(n_iter=5)


def die_once(flag):
    """End this process as the operating system would, unless that was done before."""
    if flag is not None and not Path(flag).exists():
        assert multiprocessing.parent_process() is not None
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def fail_once(flag):
    if not Path(flag).exists():
        Path(flag).touch()
        raise RuntimeError("out of memory")


def ledger(**options):
    return PrivacyLedger(epsilon=100.0, delta=1e-5, allow_seeded=True, **options)


def table():
    return blobs(n=240)


def quiet(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args)


def fit(model):
    return quiet(model.fit, *table())


@pytest.fixture(scope="module")
def two_processes():
    with (
        LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def processes(two_processes):
    """Two workers, since with one joblib would work in this process: one may have been killed."""
    cluster = two_processes.cluster
    if (missing := 2 - len(two_processes.nthreads())) > 0:
        cluster.scale(len(cluster.workers) + missing)
    two_processes.wait_for_workers(2, timeout=60)
    with two_processes.as_current():
        yield two_processes


@pytest.fixture(scope="module")
def two_threads():
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with Client(processes=False, **options) as client:
        yield client


@pytest.fixture
def threads(two_threads):
    with two_threads.as_current():
        yield two_threads


# A worker that is killed is a process, and so is one to which nothing of this one is known.
in_processes = pytest.mark.cluster


@pytest.fixture(params=[pytest.param("processes", marks=in_processes), "threads"])
def client(request):
    return request.getfixturevalue(request.param)


# Every fit is charged -------------------------------------------------------------------------

RUNS = {
    "grid": (lambda X, y: GridSearchCV(Small(), {"alpha": [0.0, 0.1]}, cv=2).fit(X, y), 5),
    "bagging": (lambda X, y: BaggingClassifier(Small(), 4).fit(X, y), 4),
    "pipelines": (
        lambda X, y: cross_validate(
            make_pipeline(DPPCA(2, epsilon=0.1), DPSGDClassifier(epsilon=0.3, n_iter=5)), X, y, cv=2
        ),
        4,
    ),
    "ensembles": (
        lambda X, y: cross_validate(BaggingClassifier(Small(), 2, n_jobs=2), X, y, cv=2),
        4,
    ),
    "search": (
        lambda X, y: PrivateSearch(plain(), {"alpha": [0.0, 0.1, 1.0]}, n_jobs=2).fit(X, y),
        1,
    ),
}


@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
def test_tasks_charge_the_ledger(client, kept, tmp_path):
    book, total = ledger(path=tmp_path / "ledger" if kept else None), 0
    with book, joblib.parallel_config("dask"):
        for run, count in [*RUNS.values()][: 2 if kept else None]:
            run(*table())
            total += count
            assert len(book) == total
    assert len(book) == len({entry.id for entry in book.entries}) == total


@pytest.mark.parametrize("name", RUNS)
def test_without_a_ledger_everything_runs_once(client, name):
    with joblib.parallel_config("dask"):
        RUNS[name][0](*table())


# A worker that dies ---------------------------------------------------------------------------


@in_processes
@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
def test_a_fit_whose_worker_is_killed_is_charged_twice(processes, kept, tmp_path):
    book = ledger(path=tmp_path / "ledger" if kept else None)
    with book, joblib.parallel_config("dask"):
        tasks = [joblib.delayed(fit)(Small(flag=tmp_path / "died"))]
        (model,) = joblib.Parallel(n_jobs=2)(tasks)
    assert (tmp_path / "died").exists() and model.privacy_.epsilon <= 0.3
    assert [entry.estimator for entry in book.entries] == ["Small", "Small"]
    if kept:
        assert PrivacyLedger.load(tmp_path / "ledger").entries == book.entries


@in_processes
@pytest.mark.parametrize("way", ["fit", "ledger"])
def test_without_a_ledger_that_lasts_what_has_begun_to_spend_is_not_repeated(
    processes, way, tmp_path
):
    flag = tmp_path / "died"
    work = {"fit": fit_and_die, "ledger": fit_in_own_ledger_and_die}
    with pytest.raises(PrivacyError, match=AGAIN) as caught:
        processes.submit(work[way], flag, key=f"{way}-{flag}").result(timeout=60)
    assert flag.exists() and "path=" in str(caught.value)
    # Submitted anew it is another task.
    assert processes.submit(work[way], flag, key=f"{way}-{flag}-2").result(timeout=60)


def fit_and_die(flag):
    return fit(Small(flag=flag)).n_features_in_


def fit_in_own_ledger_and_die(flag):
    with ledger() as book:
        fit(Small(flag=flag))
    return len(book)


@in_processes
def test_what_dies_before_it_spends_is_repeated(processes, tmp_path):
    assert processes.submit(die_and_fit, tmp_path / "died").result(timeout=60) == 5


def die_and_fit(flag):
    die_once(flag)
    return fit(Small()).n_features_in_


@in_processes
def test_a_result_that_is_lost_is_not_computed_again(processes, tmp_path):
    future = processes.submit(fit_and_tell, key=("fit", 7))  # not only str
    distributed.wait(future, timeout=60)
    owner = processes.who_has(future)[("fit", 7)][0]
    died = processes.submit(die_once, tmp_path / "died", workers=[owner])
    deadline = time.monotonic() + 60
    while processes.nthreads().get(owner) and time.monotonic() < deadline:
        time.sleep(0.05)
    died.cancel()  # which no other worker may run
    with pytest.raises(PrivacyError, match=AGAIN):
        future.result(timeout=60)


def fit_and_tell():
    return fit(Small()).coef_


@in_processes
def test_a_task_that_started_others_is_not_repeated_without_a_ledger(processes, tmp_path):
    """They have new names then."""
    tasks = [joblib.delayed(fit_parts)(parts(), tmp_path / "died")]
    again = pytest.raises(PrivacyError, match=AGAIN)
    with joblib.parallel_config("dask"), again:
        joblib.Parallel(n_jobs=2)(tasks)
    assert (tmp_path / "died").exists()


def parts():
    return BaggingClassifier(Small(), 2, n_jobs=2)


def fit_parts(model, flag):
    fit(model)
    die_once(flag)


@in_processes
def test_a_trial_of_a_search_is_not_repeated(processes, tmp_path):
    """The search has paid for it once."""
    scoring = partial(score_and_die, tmp_path / "died")
    search = PrivateSearch(plain(), {"alpha": [0.0, 0.1]}, scoring=scoring, n_jobs=2)
    book = ledger()
    with (
        book,
        joblib.parallel_config("dask"),
        pytest.raises(PrivacyError, match=AGAIN),
    ):
        search.fit(*table())
    # Dask may run tasks of an earlier test again, whose worker dies here: they are charged as well.
    assert [each.estimator for each in book.entries].count("PrivateSearch") == 1


def score_and_die(flag, model, X, y):
    die_once(flag)
    return model.predict(X) == y


# A task that is told to retry, on the same worker ------------------------------------------------


@pytest.mark.parametrize("paid", [False, True])
@pytest.mark.parametrize(("work", "count"), [("fit", 1), ("parts", 2), ("mean", 1)])
def test_retries(threads, work, count, paid, tmp_path):
    book = ledger()
    with book if paid else nullcontext():
        future = threads.submit(work_and_fail, work, tmp_path / "failed", retries=2, pure=False)
        if paid:
            future.result(timeout=60)
        else:
            with pytest.raises(PrivacyError, match=AGAIN):
                future.result(timeout=60)
    assert len(book) == 2 * count * paid


def work_and_fail(work, flag):
    if work == "mean":
        quiet(lambda: private_mean(table()[0], data_norm=9.0, epsilon=0.1))
    else:
        with joblib.parallel_config("dask"):
            fit({"fit": Small, "parts": parts}[work]())
    fail_once(flag)


def test_several_fits_of_one_run(client):
    future = client.submit(fit_thrice, pure=False)
    runs = future.result(timeout=60)
    assert len(set(runs)) == 1
    # What was noted goes with the task.
    place = [future.key, "dpsubspace._core.accounting.payer"]
    assert list(client.get_metadata(place).values()) == [True]
    del future
    client.submit(abs, -1, pure=False).result(timeout=60)
    assert client.get_metadata(place, None) is None


def fit_thrice():
    runs = [run_here()]
    fit(make_pipeline(DPPCA(2, epsilon=0.1), Small()))
    runs.append(run_here())
    fit(Small())
    return [*runs, run_here()]


def test_what_a_task_returned_has_arrived(client):
    """Fitted again elsewhere, it does not stand in the way of the task that made it."""
    key = f"made-{client.id}"
    for _ in range(2):
        future = client.submit(make_parts, key=key)
        models = future.result(timeout=60)
        assert len(models) == 2 and not any(model._address for model in models)
        client.submit(fit_all, models, pure=False).result(timeout=60)
        del future
        client.submit(abs, -1, pure=False).result(timeout=60)


def make_parts():
    with joblib.parallel_config("dask"):
        return fit(parts()).estimators_


def fit_all(models):
    for model in models:
        fit(model)


@in_processes
def test_actors_may_spend_in_each_call(processes):
    future = processes.submit(Counter, actor=True, pure=False)
    counter = future.result(timeout=60)  # which goes with the future
    assert [counter.fit().result(timeout=60) for _ in range(2)] == [1, 2]


class Counter:
    fits = 0

    def fit(self):
        fit(Small())
        self.fits += 1
        return self.fits


def test_where_the_task_is_hidden_nothing_is_released(client):
    for hidden in (in_coroutine, in_thread_of_coroutine):
        with pytest.raises(PrivacyError, match="it is not known which"):
            client.submit(hidden, pure=False).result(timeout=60)


async def in_coroutine():
    return fit(Small())


async def in_thread_of_coroutine():
    return await asyncio.to_thread(fit, Small())


# What a task opens ------------------------------------------------------------------------------


@in_processes
def test_a_task_opens_a_ledger_by_its_path_and_makes_none(processes, tmp_path):
    path = tmp_path / "ledger"
    with pytest.raises(PrivacyError, match="must not start a"):
        processes.submit(fit_in_ledger_at, path, tmp_path / "failed", pure=False).result(timeout=60)
    assert not path.exists()
    book = ledger(path=path)
    future = processes.submit(fit_in_ledger_at, path, tmp_path / "failed", pure=False, retries=1)
    future.result(timeout=60)
    assert len(book) == 2


def fit_in_ledger_at(path, flag):
    ledger(path=path).fit(plain(), *table())
    fail_once(flag)


def test_a_worker_that_does_not_see_the_file_refuses(client, tmp_path):
    path = tmp_path / "there" / "ledger"
    path.parent.mkdir()
    with ledger(path=path):
        model = clone(Small())
    model._address = replace(model._address, path=str(tmp_path / "here"), process="another")
    with pytest.raises(PrivacyError, match="is not on this machine"):
        client.submit(fit, model, pure=False).result(timeout=60)
    assert not (tmp_path / "here").exists() and isinstance(model._address, LedgerAddress)


def test_what_pays_for_one_task_does_not_pay_for_the_next(threads, tmp_path):
    """Dask starts it in the context variables of the one that makes room by `secede`."""
    threads.submit(keep_context, pure=False).result(timeout=60)
    with pytest.raises(PrivacyError, match=AGAIN):
        threads.submit(fit_in_kept, tmp_path / "failed", retries=1, pure=False).result(timeout=60)


KEPT = []


def keep_context():
    with already_paid(1e-5, [], ("zero_out", "row")):
        KEPT[:] = [contextvars.copy_context()]


def fit_in_kept(flag):
    KEPT[0].run(fit, Small())
    fail_once(flag)


def test_a_block_that_is_closed_pays_for_nothing_that_it_started():
    """A cluster that was started in it, say, which takes in estimators and sends them on."""
    with ledger():
        inside = contextvars.copy_context()
    with ledger() as book:
        model = inside.run(lambda: pickle.loads(pickle.dumps(Small())))
        inside.run(fit, model)
    assert len(book) == 1


def test_outside_of_tasks_there_is_no_run(client):
    assert run_here() is None and not in_task()
    assert client.submit(lambda: in_task() and run_here().key == get_worker().get_current_task())
    fit(Small())
