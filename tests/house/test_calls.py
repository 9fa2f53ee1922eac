"""Traced fits: calls point down as imports do, so that a fit is read from its top to its floor."""

import functools
from collections import Counter
from dataclasses import replace

import pytest
from traced import Function, fits, traced

FITS = fits()

# A callback that was handed down runs for whom it was handed to: a protocol, and no climb. By the
# last part of the name of what is called from below, since many classes have it.
PROTOCOLS = {
    "__sklearn_tags__": "scikit-learn asks an estimator what it takes, wherever rows are checked",
    "chunks": "the one loop over chunks asks records which they have (_core.rows.chunks.Chunked)",
}

# What runs a function that it was handed down: around the methods of any class, or where rows lie.
RUNNERS = {
    "_core.ground.compat.with_callbacks.called": "callbacks, where scikit-learn has none",
    "_core.fits.call.explain_unknown_parameters.called": "around the method that it is put on",
    "_core.fits.estimator.PrivateEstimator._fit_by": "asks an estimator what is its own of a fit",
    "_core.fits.estimator.fit_privately": "runs the plan that it is handed, whatever it computes",
    "_core.rows.remote.rowwise": "makes objects of rows wherever these lie",
    "_core.rows.remote.for_each_part": "asks all parts of the rows",
    "_core.rows.chunks.Chunks.total": "the one loop over chunks",
}


@functools.cache
def trace_of(name):
    """Trace of a fit, which is slow."""
    return traced(FITS[name])


def climbs(trace):
    """Calls from a lower wing to a higher one that are no protocols, as text."""
    return {
        f"{caller} -> {called}"
        for caller, called in trace.climbs()
        if called.name.split(".")[-1] not in PROTOCOLS and str(caller) not in RUNNERS
    }


@pytest.mark.parametrize("name", FITS)
def test_calls_point_down(name):
    trace = trace_of(name)
    assert len(trace.files) > 10 and trace.depth
    assert not climbs(trace)


def test_exceptions_are_needed():
    found = [climb for name in FITS for climb in trace_of(name).climbs()]
    assert set(PROTOCOLS) <= {called.name.split(".")[-1] for _, called in found}
    runners = {str(caller) for caller, _ in found}
    assert {name for name in RUNNERS if name.startswith("_core.rows")} <= runners


def test_a_climb_would_be_noticed():
    trace = trace_of("DPSGDClassifier")
    low = Function("_core.accounting.budget", "Sizes")
    high = Function("_core.fits.estimator", "fit_privately")
    assert high in trace.functions
    climbing = replace(trace, calls=trace.calls + Counter({(low, high): 1}))
    assert climbs(climbing) == {f"{low} -> {high}"}
