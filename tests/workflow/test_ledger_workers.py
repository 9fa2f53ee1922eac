"""What releases something is charged wherever it runs, and functions are told how much it is."""

import contextlib
import inspect
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from dpsubspace import (
    BoundedScaler,
    Categories,
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    PrivateSearch,
    Range,
    private_coefficients,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    select_public,
)
from dpsubspace._core.accounting import payer as payers
from dpsubspace._core.accounting.guarantee import guarantee_in
from dpsubspace._core.release.releases import Releases
from dpsubspace._names import PLACES, imported
from dpsubspace.budget import _fit_charge as fit_charges
from dpsubspace.calibration import DPCalibratedClassifier, DPConformalClassifier
from dpsubspace.metrics import PrivateRocCurveDisplay, private_score_difference
from dpsubspace.public_data import private_projection_error
from dpsubspace.statistics import private_covariance, private_quantile, private_spread

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning"),
]

_rng = np.random.default_rng(0)
X = _rng.uniform(0, 1, size=(800, 3))
Y = (X[:, 0] > 0.5).astype(int)
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.array(["x", "y"])[Y]})
KINDS = {"a": Range(0, 1), "b": Range(0, 1), "c": Categories(["x", "y"])}
OTHER = LogisticRegression().fit(-X, Y)
PUBLIC = {"one": X[:50] + 1, "two": X[50:100] + 1}

FUNCTIONS = {
    "private_score": lambda model, **more: private_score(model, X, Y, **more),
    "private_score_difference": lambda model, **more: private_score_difference(
        model, OTHER, X, Y, **more
    ),
    "private_mean": lambda model, **more: private_mean(X, data_norm=2.0, **more),
    "private_quantile": lambda model, **more: private_quantile(X, bounds=(0, 1), **more),
    "private_covariance": lambda model, **more: private_covariance(X, data_norm=2.0, **more),
    "private_spread": lambda model, **more: private_spread(X, **more),
    "private_projection_error": lambda model, **more: private_projection_error(
        X, PUBLIC["one"], n_components=[1], **more
    ),
    "private_summary": lambda model, **more: private_summary(TABLE, KINDS, **more),
    "private_counts": lambda model, **more: private_counts(TABLE, KINDS, "c", **more),
    "private_coefficients": lambda model, **more: private_coefficients(TABLE, KINDS, "b", **more),
    "select_public": lambda model, **more: select_public(PUBLIC, X, n_components=1, **more),
    "PrivateRocCurveDisplay.from_estimator": lambda model, **more: (
        PrivateRocCurveDisplay.from_estimator(model, X, Y, **more)
    ),
}
# What is fitted where it is made, by its default epsilon, which is a parameter of its own.
FITS = {
    "DPSGDClassifier": lambda model, epsilon: DPSGDClassifier(epsilon=epsilon, n_iter=2).fit(X, Y),
    "BoundedScaler": lambda model, epsilon: BoundedScaler(epsilon=epsilon).fit(X),
    "DPCalibratedClassifier": lambda model, epsilon: DPCalibratedClassifier(
        FrozenEstimator(model), epsilon=epsilon
    ).fit(X, Y),
    "DPConformalClassifier": lambda model, epsilon: DPConformalClassifier(
        FrozenEstimator(model), epsilon=epsilon
    ).fit(X, Y),
    "PrivateSearch": lambda model, epsilon: PrivateSearch(
        DPSGDClassifier(n_iter=2), {"alpha": [0.0, 0.1]}, epsilon=epsilon
    ).fit(X, Y),
}
ALL = FUNCTIONS | FITS
CHARGED_AS = {"PrivateRocCurveDisplay.from_estimator": "private_score"}
OF_MODELS = ("private_score", "private_score_difference", *CHARGED_AS)


def release(names, model=None):
    """Release all of it, and return what was said of a worker that knows of no ledger."""
    said = []
    for name in names:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            ALL[name](model, epsilon=0.3)
        # The second of a ledger of another test, of which a worker of loky may have heard.
        texts = ("knows of no ledger", "is not charged to any ledger")
        said += [name for each in found if any(text in str(each.message) for text in texts)]
    return said


def score_of(model, X, y):
    return private_score(model, X, y, epsilon=0.3).value


def fitted():
    return DPSGDClassifier(epsilon=5.0).fit(X, Y)


@contextlib.contextmanager
def loky():
    with joblib.parallel_backend("loky"):
        yield lambda *given: joblib.Parallel(2)(joblib.delayed(release)(*g) for g in [given])[0]


@contextlib.contextmanager
def pool(method):
    context = None if method is None else get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as made:
        yield lambda *given: made.submit(release, *given).result(timeout=300)


@contextlib.contextmanager
def threads():
    with ThreadPoolExecutor(1) as made:
        yield lambda *given: made.submit(release, *given).result(timeout=300)


@contextlib.contextmanager
def dask_tasks():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield lambda *given: client.submit(release, *given, pure=False).result(timeout=300)


WORKERS = {
    "here": lambda: contextlib.nullcontext(release),
    "threads": threads,
    "loky": loky,
    "spawn": lambda: pool("spawn"),
    "dask": dask_tasks,
}
MARKED = [pytest.param(kind, marks=[pytest.mark.cluster] * (kind == "dask")) for kind in WORKERS]


@pytest.mark.parametrize("kind", MARKED)
def test_what_runs_in_a_worker_is_charged_or_says_that_it_is_not(kind, tmp_path):
    """By the models that a worker is given, also what is made there; by nothing else."""
    model, alone = fitted(), kind in ("loky", "spawn", "dask")
    names = [name for name in FUNCTIONS if name not in OF_MODELS]
    with WORKERS[kind]() as run:
        with PrivacyLedger(100.0, 1e-6) as book:
            assert run(names) == (names if alone else [])
        assert len(book) == (0 if alone else len(names))
        # A second ledger, which workers have not heard of when it opens, and whose file stays.
        for path in (None, tmp_path / "ledger"):
            with PrivacyLedger(100.0, 1e-6, path=path) as book:
                assert run([*ALL], model) == []
                assert kind == "loky" or run(names[:2]) == []  # it knows, one of two in loky
            labels = [entry.label for entry in book.entries][: len(ALL)]
            assert labels == [CHARGED_AS.get(name, name) for name in ALL]
        spent = len(book)
        run(["private_score", "private_mean"], model)  # the ledger is closed
    assert len(book) == spent == len(ALL) + 2 * (kind != "loky")


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_scorers_cost_the_same_wherever_they_run(n_jobs):
    with PrivacyLedger(100.0, 1e-6) as book:
        model = make_pipeline(BoundedScaler((0, 1)), DPSGDClassifier(epsilon=0.3, n_iter=2))
        cross_val_score(model, X, Y, scoring=score_of, cv=2, n_jobs=n_jobs)
        grid = {"dpsgdclassifier__alpha": [0.0, 0.1]}
        GridSearchCV(model, grid, scoring=score_of, cv=2, n_jobs=n_jobs).fit(X, Y)
    labels = [entry.label for entry in book.entries]
    assert labels.count("private_score") == 6 and labels.count("DPSGDClassifier") == 7


# What runs in a process that nothing tells from one of the user's: a subprocess, a worker of Ray.
SUBPROCESS = """
import pickle, sys, warnings
import numpy as np
from dpsubspace import DPSGDClassifier, PrivacyError, private_mean, private_score
from dpsubspace._core.accounting import payer as payers

X = np.random.default_rng(0).uniform(0, 1, size=(800, 3))
Y = (X[:, 0] > 0.5).astype(int)
RUNS = {
    "score": lambda model: private_score(model, X, Y, epsilon=0.3),
    "again": lambda model: model.fit(X, Y),
    "function": lambda model: private_mean(X, data_norm=2.0, epsilon=0.3),
    "fresh": lambda model: DPSGDClassifier(epsilon=0.3, n_iter=2).fit(X, Y),
}
for name, pickled in pickle.load(sys.stdin.buffer).items():
    for run in RUNS:
        payers._HEARD_OF.clear()
        model, said = pickle.loads(pickled), "silent"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                RUNS[run](model)
            except PrivacyError as error:
                said = "refused"
        if any("is not charged to any ledger" in str(each.message) for each in caught):
            said = "warned"
        print(name, run, said)
"""


def test_a_process_that_is_no_known_worker_charges_refuses_or_warns(tmp_path):
    """In every case where the ledger of a model may be open, whether its file is there or not."""
    pickled = {}
    with PrivacyLedger(100.0, 1e-6, path=tmp_path / "gone"):
        pickled["gone"] = pickle.dumps(fitted())
    (tmp_path / "gone").unlink()
    with PrivacyLedger(100.0, 1e-6, path=tmp_path / "closed"):
        marked = clone(fitted()).fit(X, Y)
        pickled["closed"] = pickle.dumps(marked)
    pickled["after"] = pickle.dumps(marked)
    with PrivacyLedger(100.0, 1e-6, path=tmp_path / "open") as book:
        pickled["open"] = pickle.dumps(fitted())
        before = len(book)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SUBPROCESS],
            input=pickle.dumps(pickled),
            capture_output=True,
            check=True,
        )
    found = {tuple(line.split()[:2]): line.split()[2] for line in done.stdout.decode().splitlines()}
    runs = ["score", "again", "function", "fresh"]
    assert [found["gone", run] for run in runs] == ["warned", "refused", "warned", "warned"]
    assert [found["closed", run] for run in runs] == ["silent", "refused", "silent", "silent"]
    assert [found["after", run] for run in runs] == ["silent"] * 4
    assert [found["open", run] for run in runs] == ["silent", "silent", "warned", "warned"]
    assert [entry.label for entry in book.entries[before:]] == ["private_score", "DPSGDClassifier"]


def test_a_worker_without_the_file_is_told_of_whatever_it_releases(tmp_path, monkeypatch):
    """What comes to a worker that has no way to the ledger, also what is made there."""
    with PrivacyLedger(100.0, 1e-6, path=tmp_path / "ledger"):
        pickled = pickle.dumps(fitted())
    (tmp_path / "ledger").unlink()
    monkeypatch.setattr(fit_charges, "_IMPORTED", "another process")
    for worker in (True, False):
        monkeypatch.setattr(payers, "in_worker", lambda worker=worker: worker)
        for name in ALL:  # each in a process of its own, to which it is said once
            monkeypatch.setattr(payers, "_HEARD_OF", {})
            monkeypatch.setattr(payers, "_ARRIVED", {})
            model = pickle.loads(pickled)
            with pytest.warns(PrivacyWarning, match="is not charged to any ledger: .*cannot be"):
                ALL[name](model, epsilon=0.3)


def test_a_model_says_which_of_several_ledgers_is_meant():
    first, second = PrivacyLedger(100.0, 1e-6), PrivacyLedger(100.0, 1e-6)
    found = []

    def in_thread(run):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def scored(model):
        try:
            private_score(model, X, Y, epsilon=0.3)
        except PrivacyError as error:
            found.append("several ledgers" in str(error))
        else:
            found.append("charged")

    def inside():
        with second:
            for model in (marked, make_pipeline(marked), plain):
                in_thread(lambda model=model: scored(model))

    with first:
        plain = fitted()
        marked = pickle.loads(pickle.dumps(plain))
        in_thread(inside)
    assert found == ["charged", "charged", True] and (len(first), len(second)) == (3, 0)


class Elsewhere:
    """Address of a ledger of another process, whose block is open."""

    def is_open(self):
        return True

    def payer(self):
        raise AssertionError("it may be the other one")


def test_of_two_ledgers_that_came_to_a_worker_none_is_taken(monkeypatch):
    monkeypatch.setattr(payers, "_ARRIVED", {Elsewhere(): None, Elsewhere(): None})
    with pytest.raises(PrivacyError, match="several ledgers"):
        private_mean(X, data_norm=2.0, epsilon=0.3)


# How much it is -------------------------------------------------------------------------------


def functions_with_epsilon():
    """All public doors that are no estimators and have a default of epsilon."""
    found = set()
    for name in PLACES:
        thing = imported(name)
        doors = {name: thing} if inspect.isfunction(thing) else {}
        if inspect.isclass(thing) and not hasattr(thing, "privacy_event"):
            own = inspect.getmembers(thing, inspect.ismethod)
            doors = {f"{name}.{method}": door for method, door in own if method[0] != "_"}
        for door, called in doors.items():
            given = inspect.signature(called).parameters.get("epsilon")
            if given is not None and isinstance(given.default, float):
                found.add(door)
    return found


def test_every_function_with_a_default_is_in_the_table():
    assert functions_with_epsilon() - {"PrivateCalibrationDisplay.from_estimator"} == {*FUNCTIONS}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["block", "run", "thread"])
def test_a_function_must_be_told_its_epsilon_in_a_ledger(name, kind, monkeypatch):
    """Nothing is looked at, released or charged, and the message says what is left."""
    model, book = fitted(), PrivacyLedger(1.0, 1e-6)
    made = []
    monkeypatch.setattr(Releases, "__init__", lambda *given: made.append(given))
    said = rf"(?s)^`epsilon` of {name} must be given .* epsilon=1 at delta=1e-06.*Nothing was rel"
    if kind == "block":
        with book, pytest.raises(PrivacyError, match=said):
            FUNCTIONS[name](model)
    elif kind == "thread":
        with book, ThreadPoolExecutor(1) as pool, pytest.raises(PrivacyError, match=said):
            pool.submit(FUNCTIONS[name], model).result()
    elif "." not in name:
        function = imported(name)
        with pytest.raises(PrivacyError, match=said):
            book.run(function, X)
    assert not made and len(book) == 0 and book.seen == ()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "." not in name])
def test_without_a_ledger_a_function_has_its_default(name):
    released = FUNCTIONS[name](fitted())
    found = guarantee_in(released)
    assert found.epsilon == inspect.signature(imported(name)).parameters["epsilon"].default
