"""What holds for every test: threads, workers and random numbers."""

import os

# Matrices here are small: more threads of BLAS, OpenMP or torch than one burn four times the
# processor time and save none. Read when numpy is first imported; a setting of the user stays.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Read when scipy is first imported: scikit-learn's array API checks then run, not skip.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest

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


@pytest.fixture
def rng():
    return np.random.default_rng(0)
