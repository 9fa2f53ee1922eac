"""Private numbers are handled in no other files than docs/reviewing.md lists.

``reviewed.py --write`` runs all fits and writes the list, which takes a quarter of an hour.
"""

import functools

import numpy as np
import pytest
from helpers import blobs
from reviewed import FITS, PAIRS, Review, listed, reviewed

from dpsubspace._core.ground import auto
from dpsubspace._core.plans import linear as linear_fit

# Bits that the tool makes the same for each fit are those of the system.
pytestmark = pytest.mark.system_bits

# Fits that by default run on one pair of data sets, and which.
QUICK = {
    "DPSGDClassifier": 3,
    "GEPClassifier": 0,
    "DPPCA": 4,
    "BoundedScaler": 1,
    "tabular_pipeline": 2,
    "DPCalibratedClassifier": 0,
    "private_score": 3,
    "private_mean": 0,
    "DPSGDClassifier in a ledger": 1,
}


def files(functions):
    return {function.module for function in functions}


@pytest.mark.parametrize("name", QUICK)
def test_private_numbers_stay_in_the_files_that_are_listed(name):
    found = reviewed(FITS[name], [PAIRS[QUICK[name]]])
    assert files(found.private) and files(found.private) <= listed()


def test_a_private_number_in_a_new_file_is_noticed(monkeypatch):
    def leaking(self, *args):
        auto.many_classes(float(np.abs(self.X).sum()))
        return bound(self, *args)

    bound = linear_fit.Features.unscaled
    monkeypatch.setattr(linear_fit.Features, "unscaled", leaking)
    found = reviewed(FITS["DPSGDClassifier"], PAIRS[1:2])
    assert files(found.private) - listed() == {"_core.ground.auto"}


def test_the_same_data_differ_in_nothing():
    fit, (X, y) = FITS["DPSGDClassifier"][0], blobs(n=40)
    found = Review().add(*2 * [functools.partial(fit, PAIRS[1], X, y, None, None)])
    assert not found.private and found.setting


def test_what_sets_a_bound_a_noise_an_event_or_a_charge_is_found():
    found = reviewed(FITS["DPSGDClassifier in a ledger"], PAIRS[1:2])
    names = {str(function) for function in found.setting}
    assert names >= {
        "_core.ground.arrays.sum_slack",
        "_core.rows.records.RowMap.bound",
        "_core.release.noise._SecureStream.gaussian",
        "_core.accounting.budget.Budget.split",
        "_core.plans.linear._budget",
        "budget._ledger_state.LedgerState.add",
    }
