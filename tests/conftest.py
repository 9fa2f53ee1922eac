"""What holds for every test: threads, workers and random numbers."""

import os

# Matrices here are small: more threads of BLAS, OpenMP or torch than one burn four times the
# processor time and save none. Read when numpy is first imported; a setting of the user stays.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Read when scipy is first imported: scikit-learn's array API checks then run, not skip.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import contextlib
import hashlib
import inspect
import random
import re
import sys

import helpers
import numpy as np
import pytest
import salted
from hypothesis import HealthCheck, settings

from dpsubspace._core.accounting import payer as payers
from dpsubspace._core.release import noise
from dpsubspace._names import PLACES, imported

# All modules, before a test replaces something that one of them would then keep.
for _name in PLACES:
    imported(_name)

MOST_WORKERS = 8  # each holds its own torch


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run whole folders on all cores, where pytest-xdist is there and nobody said otherwise.

    Not in `addopts`, which would be an error with ``-p no:xdist``, and start workers for one test.
    """
    option = config.option
    asked = getattr(option, "numprocesses", 0) is not None or option.usepdb
    if asked or hasattr(config, "workerinput") or not all(map(os.path.isdir, config.args)):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and cores > 1:
        option.numprocesses, option.dist = min(cores, MOST_WORKERS), "worksteal"


@pytest.fixture(autouse=True)
def _scheduler_of_no_other_test():
    """A client that another test has opened may leave its scheduler in the settings of Dask.

    Tests of several modules take turns in a process, and so do the clients that modules share. Once
    they are closed in another order, Dask asks for a scheduler whose client is gone. Without the
    setting it takes that of the client that is open, or none.
    """
    dask = sys.modules.get("dask")
    with contextlib.nullcontext() if dask is None else dask.config.set(scheduler=None):
        yield


@pytest.fixture(scope="module")
def _workers_here():
    """Two workers of Dask in threads of this process, which all tests of a module share.

    To start processes takes seconds, in which they import what is imported here. All that is sent
    to these workers goes through a socket, and so through pickles, as it would to processes. They
    end with the module: their event loop draws from Python's `random`, and Hypothesis would take
    that for a strategy of a later test which does.
    """
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
    with distributed.LocalCluster(2, threads_per_worker=1, **options) as workers:
        yield workers


@pytest.fixture
def client(_workers_here):
    """A client of its own for each test, with which all that it has sent goes from the workers."""
    with sys.modules["distributed"].Client(_workers_here) as client:
        yield client


# What the markers leave out ------------------------------------------------------------------
# Most rows of the tests are behind the markers of `_MARKS`. Where ``-m`` leaves them out,
# they are not collected at all: making tests of them would take longer than many tests.

_MARKS = {"exhaustive", "odd", "cluster", "wide"}


def _leaves_out(expression, marks):
    """Whether ``-m`` leaves out what has these marks, as far as it speaks of no other ones."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    if not marks & _MARKS or not names or not names <= _MARKS:
        return False
    try:
        return not eval(expression, {name: name in marks for name in _MARKS})
    except SyntaxError:  # pytest says so
        return False


def pytest_sessionstart(session):
    helpers.EVERY_EXAMPLE = not _leaves_out(session.config.option.markexpr, {"exhaustive"})


def _collected_rows(mark, config):
    """A mark of `parametrize` without the rows that are left out."""

    def stays(row):
        marks = {each.name for each in getattr(row, "marks", ())}
        return not _leaves_out(config.option.markexpr, marks)

    names, values, *others = mark.args
    values, ids = list(values), mark.kwargs.get("ids")
    kept = [number for number, row in enumerate(values) if stays(row)]
    options = dict(mark.kwargs)
    if ids is not None and not callable(ids):
        ids = list(ids)
        options["ids"] = [ids[number] for number in kept]
    rows = [values[number] for number in kept]
    return pytest.mark.parametrize(names, rows, *others, **options).mark


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, obj):
    marks = getattr(obj, "pytestmark", None)
    if not inspect.isfunction(obj) or not marks:
        return None
    if _leaves_out(collector.config.option.markexpr, {mark.name for mark in marks}):
        return []
    for place, mark in enumerate(marks):
        if mark.name == "parametrize" and len(mark.args) > 1:
            marks[place] = _collected_rows(mark, collector.config)
            if mark.args[1] and not marks[place].args[1]:
                return []
    return None


_FEW = 8  # cases of a test, of which none is wide


@pytest.hookimpl(tryfirst=True)  # before pytest looks at markers
def pytest_collection_modifyitems(items):
    """Mark as wide what brings no value of a parameter that no other case of its test has.

    The name of the test says which cases are looked at first, so that all processes agree.
    """
    tests = {}
    for item in items:
        if hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        if len(cases) <= _FEW:
            continue
        met = set()
        for case in random.Random(name).sample(cases, len(cases)):
            values = {_identity(*pair) for pair in case.callspec.params.items()}
            if values <= met:
                case.add_marker("wide")
            met |= values


def _identity(name, value):
    """A parameter and its value, or which object that is."""
    plain = isinstance(value, (str, int, float, type(None)))
    return name, type(value), value if plain else id(value)


@pytest.fixture(autouse=True)
def _ledgers_of_no_other_test():
    """Models that tests make as if other processes had sent them bring ledgers, which go again."""
    yield
    payers._HEARD_OF.clear()
    payers._ARRIVED.clear()
    payers._UNUSED.clear()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# Random numbers ------------------------------------------------------------------------------
# A fit without `random_state` draws from the operating system: among thousands of tests, some
# would fail by chance every few runs. Here the name of the test gives these bits, and all others,
# so that each test passes always or never, alone or with others. Other processes have the bits of
# the system, as have tests with ``@pytest.mark.system_bits``. A salt enters names and seeds.

# No deadline: how long an example takes says something of the machine and not of the code.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("by name", derandomize=True, **_SLOW)
settings.register_profile("by salt", derandomize=False, database=None, **_SLOW)
settings.load_profile("by name")


def pytest_addoption(parser):
    parser.addoption("--salt", default="", help="a text that enters all random numbers of tests")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks for a seed of its own
def pytest_configure(config):
    if salt := config.option.salt:
        salted.begin(salt)
        config.option.hypothesis_seed = config.option.hypothesis_seed or str(salted.salted(0))
        settings.load_profile("by salt")


def pytest_report_header(config):
    return f"salt: {config.option.salt}" if config.option.salt else None


_system_bits = noise._system_bits
_drawn_from: list[tuple[int, np.random.Generator]] = []  # the process, and its bits; last counts


def _bits(shape):
    if not _drawn_from or _drawn_from[-1][0] != os.getpid():
        return _system_bits(shape)
    return _drawn_from[-1][1].integers(2**64, size=shape, dtype=np.uint64)


noise._system_bits = _bits
noise.SecureNoise.public = lambda self: np.random.default_rng(int(_bits((1,))[0]))


@contextlib.contextmanager
def _drawn_by(name):
    """Have `name` give all bits, and the random numbers that belong to the whole process."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    seed = salted.salted(seed)
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002 - scikit-learn uses it
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    _drawn_from.append((os.getpid(), np.random.default_rng(seed)))
    try:
        yield
    finally:
        _drawn_from.pop()
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if item.get_closest_marker("system_bits"):
        return (yield)
    literal = item.get_closest_marker("literal_seeds")
    with _drawn_by(item.nodeid), salted.literally() if literal else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share is the same, whichever of them runs first."""
    if fixturedef.scope == "function":
        return (yield)
    with _drawn_by(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]"):
        return (yield)


@pytest.fixture(autouse=True)
def close_figures():
    """No test leaves figures to the next one of its process."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
