"""Saved models: what a pickle of each asks for where it is loaded."""

import pickle
import pickletools
from dataclasses import replace

import numpy as np
import pytest
from cases import CASES

from dpsubspace._core.accounting import events
from dpsubspace._core.accounting.library import library
from dpsubspace.budget import PrivacyGuarantee

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 5)), np.arange(40) % 4
GUARANTEE = PrivacyGuarantee(
    event=events.gaussian(3.0),
    epsilon=1.0,
    delta=1e-5,
    neighboring_relation="zero_out",
    unit="row",
    secure=True,
)


def modules_in(text):
    """Modules that a pickle imports, and all else in it that is text."""
    return {value for _, value, _ in pickletools.genops(text) if isinstance(value, str)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in CASES if not case.is_function], ids=str)
def test_no_model_needs_dp_accounting_to_be_loaded(case):
    fitted = case.fit(
        X, Y.astype(float) if case.task == "numbers" else Y, next(iter(case.settings))
    )
    text = pickle.dumps(fitted)
    named = {name for name in modules_in(text) if "dp_accounting" in name or name == "attr"}
    assert not named and "dpsubspace._core.accounting.accountants" not in modules_in(text)
    if hasattr(fitted, "privacy_"):
        loaded = pickle.loads(text).privacy_
        assert "event" not in vars(loaded)
        assert (
            loaded.details() == fitted.privacy_.details()
            and loaded.to_json() == fitted.privacy_.to_json()
        )
        assert loaded == fitted.privacy_ and repr(loaded) == repr(fitted.privacy_)


@pytest.mark.parametrize(
    "event",
    [
        events.gaussian(2.5, 3),
        events.gaussian(0.1 + 0.2),
        events.sampled_gaussian(1.5, 0.01, 100),
        events.bounded_range(0.3, 2),
        events.laplace(0.7, "replace_one"),
        events.private_search(events.gaussian(9.0), 4.5),
        events.composed([events.gaussian(np.float64(1) / 3), events.laplace(1 / 3, "zero_out")]),
        events.composed([]),
        events.non_private(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_comes_back_the_same(event):
    there = replace(GUARANTEE, event=event)
    text = pickle.dumps(there)
    here = pickle.loads(text)
    assert "dp_accounting.dp_event" not in modules_in(text) and here == there
    assert here.event == event and type(here.event) is type(event)
    assert pickle.loads(pickle.dumps(here)) == there  # whether it was asked for or not
    assert replace(pickle.loads(text), epsilon=2.0) == replace(there, epsilon=2.0)
    assert not hasattr(here, "anything_else")


class GaussianDpEvent(library().GaussianDpEvent):
    """Not the one that is counted, in spite of its name."""


@pytest.mark.parametrize(
    "event", [GaussianDpEvent(1.0), library().UnsupportedDpEvent(), "an event"]
)
def test_an_event_that_cannot_be_counted_is_pickled_as_it_is(event):
    found = pickle.loads(pickle.dumps(replace(GUARANTEE, event=event)))
    assert type(found.event) is type(event)


def test_pickles_with_events_in_them_are_read():
    """They were made by earlier versions."""
    old = {**vars(GUARANTEE)}
    found = PrivacyGuarantee.__new__(PrivacyGuarantee)
    found.__setstate__(old)
    assert found.event == old["event"] and "Gaussian noise" in found.details()
