"""With the outputs of all releases frozen, nothing that a fit leaves behind depends on a record.

Two runs on neighbouring data sets that are given the same outputs may differ in nothing that
can be looked at: attributes of any name, the statement, types, warnings. What differs was
not released.
"""

import itertools
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from cases import CASES, FITS, RECORDS
from helpers import RELATIONS, blobs, left_behind, pairs_first

from dpsubspace._core.release import mechanisms


@contextmanager
def frozen(monkeypatch, outputs):
    """Record what the four functions that release give, or give it again."""
    calls = []

    def freezing(real):
        def release(total, multiplier, noise, **options):
            if multiplier in (0, np.inf):
                return real(total, multiplier, noise, **options)
            how = (real.__name__, multiplier, options, total.norm_bound, total.replace_bound)
            if outputs is None:
                out = real(total, multiplier, noise, **options)
            else:
                expected, out = outputs[len(calls)]
                assert expected == how
            calls.append((how, out))
            return out

        return release

    with monkeypatch.context() as patch:
        for name in (
            "release",
            "release_laplace",
            "release_direction",
            "release_subspace",
            "release_choice",
        ):
            real = getattr(mechanisms, name)
            for module in [m for key, m in sys.modules.items() if key.startswith("dpsubspace.")]:
                if getattr(module, name, None) is real:
                    patch.setattr(module, name, freezing(real))
        yield calls


def fits():
    """Every setting, with relations and records in turns."""
    turn = itertools.count()
    for case in CASES:
        factors = (case.settings, RELATIONS, RECORDS)
        yield from pairs_first(*factors, prefix=(case,), apart={(0, 2)}, turn=turn)


@pytest.mark.parametrize(("case", "setting", "relation", "record"), fits(), ids=str)
def test_nothing_but_releases_depends_on_a_record(monkeypatch, case, setting, relation, record):
    def fit(*data, **options):
        return case.shown(case.fit(*data, **options))

    assert_same_but_releases(monkeypatch, fit, setting, relation, record)


def assert_same_but_releases(monkeypatch, fit, setting, relation, record):
    """Neighbours leave the same behind where releases give the same."""
    X, y = blobs(n=60)
    (X[0], other), one, two = RECORDS[record](X), (X, y), (X.copy(), y.copy())
    two[0][0], two[1][0] = other, 3  # a label that no other record has
    masks = None, None
    if relation == "zero_out":
        masks = np.ones(60, bool), np.arange(60) > 0
    options = {"setting": setting, "relation": relation}
    with frozen(monkeypatch, None) as outputs:
        first = left_behind(lambda: fit(*one, present=masks[0], **options))
    with frozen(monkeypatch, outputs) as again:
        second = left_behind(lambda: fit(*two, present=masks[1], **options))
    assert len(outputs) == len(again) > 0
    assert first == second


def test_a_number_of_the_rows_would_be_noticed(monkeypatch):
    def leaking(X, *rest, **options):
        model = CASES[0].fit(X, *rest, **options)
        model._largest = X.max()
        return model

    with pytest.raises(AssertionError, match="=="):
        assert_same_but_releases(monkeypatch, leaking, "plain", "replace_one", "opposite")


def first_settings():
    """The first setting of each case, and the others as exhaustive."""
    for case, setting in FITS:
        marks = () if setting == next(iter(case.settings)) else pytest.mark.exhaustive
        yield pytest.param(case, setting, marks=marks)


@pytest.mark.parametrize(("case", "setting"), first_settings(), ids=str)
def test_a_null_record_counts_for_nothing_whatever_it_is(case, setting):
    def shown(*data, **options):
        return case.shown(case.fit(*data, setting, **options))

    X, y = blobs(n=case.n)
    present, fits = np.arange(case.n) > 0, []
    for record, label in ((X[5], 0), (30 * X[0], 1), (0 * X[0] + 1e300, 2)):
        rows, labels = X.copy(), y.copy()
        rows[0], labels[0] = record, label
        fits.append(left_behind(lambda d=(rows, labels): shown(*d, present=present)))
    assert fits[0] == fits[1] == fits[2]
    # Which noise does not hide, but where little of it is shown.
    if setting == "plain" and not (case.choice or case.rarely):
        assert fits[0] != left_behind(lambda: shown(X, y))
